"""Tables and page of the comparison with published methods."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from limiirl.experiments.rivals import RivalResults, RivalRow
from limiirl.report.document import Callout, Code, Figure, Fold, Item, Report, Section, Text
from limiirl.report.figures import plot_scores
from limiirl.report.tables import Cell, Column, Mark, Table

_DIGITS = 4


def rivals_report(results: Sequence[RivalResults], command: str) -> Report:
    """Return the page: one section per part, with its table, figure, goals and, if it was repeated, the selection."""
    complete = [part for part in results if part.ours is not None]
    lead = " ".join(_summarise(part) for part in complete)
    return Report(
        "Comparison with published methods",
        lead or "No part is complete.",
        [_section(part) for part in results],
        methods=[
            Text(
                "Scores of recordings are predictive: the probability of an action given the states up to it and the "
                "earlier actions, in nats per step. Scores of routes are probabilities given both ends. Settings of "
                "our methods were chosen by cross-validation within the training data; `--select` repeats this. The "
                "test data are used for the scores only. Standard errors are clustered by the units that differences "
                "are paired by."
            ),
            Code(command, "Command"),
        ],
    )


def _summarise(results: RivalResults) -> str:
    ours = results.ours
    assert ours is not None  # complete
    others = [row for row in results.rows() if row.method != ours.method]
    best = max(others, key=lambda row: row.held_out)
    reached = results.goals()
    goals = f"; {sum(ok for *_, ok in reached)} of {len(reached)} goals are reached" if reached else ""
    return (
        f"{results.part.title}: {ours.held_out:.4f} nats per {results.part.unit} ({ours.method}), against "
        f"{best.held_out:.4f} of the best other method ({best.method}){goals}."
    )


def _section(results: RivalResults) -> Section:
    part, rows = results.part, results.rows()
    items: list[Item] = [scores_table(results)]
    shown = [row for row in rows if row.method != "uniform"]  # which would extend the axis
    if shown:
        scores = {row.method: (row.held_out, row.error) for row in reversed(shown)}
        quoted = {row.method for row in rows if row.source}
        plot = plot_scores(scores, f"held-out nats per {part.unit}", quoted, part.ours)
        caption = "Bars: two standard errors. Empty markers: published scores. Without the uniform distribution."
        items.append(Figure.from_plot(f"{part.name}-methods", f"Scores: {part.title}", caption, plot))
    for goal, value, reached in results.goals():
        prose = f"{value:.4f}, to {'stay below' if goal.below else 'exceed'} {goal.threshold:g}."
        items.append(Callout("holds" if reached else "fails", goal.text, prose))
    items += [
        Callout("problem", f"Trial {record.seed} failed", record.error or "no message") for record in results.failures
    ]
    if results.candidates():
        items.append(Fold("Selection of the settings", [selection_table(results)]))
    return Section(part.title, items, lead=part.description)


def scores_table(results: RivalResults) -> Table:
    """Return the table of a part: published and fitted methods, in the order of their scores."""
    part, rows = results.part, results.rows()
    with_accuracy = any(math.isfinite(row.accuracy) for row in rows)
    figures = list(dict.fromkeys(name for row in rows for name in row.figures))
    columns = ["held out", "ours minus this", "training"] + ["accuracy"] * with_accuracy + figures + ["processor s"]
    cells = [[_name(row), *_numbers(row, part.ours, figures, with_accuracy=with_accuracy)] for row in rows]
    caption = f"{part.description} Nats per {part.unit}, ± one standard error; differences are paired by {part.paired}."
    return Table(f"{part.name}-scores", part.title, caption, [Column("Method", "left"), *columns], cells)


def _name(row: RivalRow) -> Cell:
    return Cell(row.method, note=f"Quoted: {row.source}." if row.source else "")


def _numbers(row: RivalRow, ours: str, figures: Sequence[str], *, with_accuracy: bool) -> Iterator[Cell]:
    mark: Mark | None = "best" if row.method == ours else None
    if math.isfinite(row.error):
        yield Cell.estimate(row.held_out, row.error, _DIGITS, mark)
    else:
        yield Cell.number(row.held_out, _DIGITS, mark)
    shown = math.isfinite(row.gain) and row.method != ours
    yield Cell.estimate(row.gain, row.gain_error, _DIGITS) if shown else Cell.number(None)
    yield Cell.number(row.train, _DIGITS)
    if with_accuracy:
        yield Cell.number(row.accuracy, _DIGITS)
    for name in figures:
        value = row.figures.get(name)
        yield Cell.number(value, 0 if value is not None and value == round(value) else _DIGITS)
    yield Cell.number(row.seconds, 1)


def selection_table(results: RivalResults) -> Table:
    """Return the table of the candidates, scored by cross-validation within the training data."""
    part = results.part
    cells = [
        [
            Cell(row.method, mark="best" if row.method == part.chosen else None),
            Cell.estimate(row.held_out, row.error, _DIGITS),
            Cell.number(None) if row.method == part.chosen else Cell.estimate(row.gain, row.gain_error, _DIGITS),
            Cell.number(row.train, _DIGITS),
            Cell.number(row.seconds, 0),
        ]
        for row in results.candidates()
    ]
    caption = f"Cross-validation within the training data, {part.n_folds} folds; the chosen setting is marked."
    columns: list[Column | str] = [
        Column("Setting", "left"),
        "held out",
        "chosen minus this",
        "training",
        "processor s",
    ]
    return Table(f"{part.name}-selection", f"Selection: {part.title}", caption, columns, cells)


def format_rivals(results: Sequence[RivalResults]) -> str:
    """Return the scores and goals as text."""
    blocks = []
    for part in results:
        lines = [part.part.title]
        for row in part.rows():
            error = f" ± {row.error:.4f}" if math.isfinite(row.error) else ""
            accuracy = f"  accuracy {row.accuracy:.4f}" if math.isfinite(row.accuracy) else ""
            figures = "".join(f"  {name} {value:.4f}" for name, value in row.figures.items())
            end = f"{accuracy}{figures}{'  (quoted)' if row.source else ''}"
            lines.append(f"  {row.method:<58} {row.held_out:8.4f}{error}{end}")
        lines += [
            f"  {'reached' if ok else 'NOT reached'}: {goal.text}, {value:.4f} against {goal.threshold:g}"
            for goal, value, ok in part.goals()
        ]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)
