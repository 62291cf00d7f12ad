"""The sections of other models: ML-IRL in ElementWorld and Sigma-GIRL on agents, for the page and for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from limiirl._typing import FloatArray
from limiirl.experiments import MEASURES, ML_IRL, RANDOM, SUPERVISED, UNIFORM, Point, Results
from limiirl.report.document import Figure, Fold, Section, Text
from limiirl.report.figures import boxes, counted, sweep
from limiirl.report.studies.beyond import methods_at, paper_point
from limiirl.report.studies.sections import callouts, counted_worlds, figure
from limiirl.report.studies.table1 import TITLES, cell, comparison_cells, iterations, random_table
from limiirl.report.tables import Cell, Column, Table

_BOXES = "Median, quartiles, whiskers to 1.5 interquartile ranges, what lies beyond as diamonds."
_NOT_STATED = "The paper prints box plots alone, so there are no numbers of its own to stand beside ours."
_RANDOM = (UNIFORM, RANDOM)
_ALL_RIGHT = 1.0 - 1e-9


def _values(results: Results, x: Point, measures: tuple[str, ...]) -> dict[str, dict[str, FloatArray]]:
    """Return measures by method, without those methods that do not have them."""
    found = {m: {name: results.values(name, x, m) for name in results.study.methods} for m in measures}
    return {m: {name: v for name, v in by.items() if np.isfinite(v).any()} for m, by in found.items()}


def mlirl_section(results: Results) -> Section:
    """Return the box plots of ML-IRL, with the means and the tests."""
    x = results.study.points[0]
    rows: list[list[Cell | str]] = []
    for method in results.study.methods:
        scores = [cell(results, method, x, m, compare=False) for m in MEASURES if m != "n_iter"]
        rows.append([method, iterations(results, method, x), *scores])
    table = Table(
        "mlirl-scores",
        f"{ML_IRL}, ElementWorld: mean ± half-width of the 95 % interval over {counted_worlds(results)}",
        _NOT_STATED,
        [Column("Method", align="left"), *(TITLES[measure] for measure in MEASURES)],
        rows,
    )
    drawing = figure("mlirl", f"{ML_IRL}: by world", _BOXES, boxes(_values(results, x, tuple(MEASURES))))
    return Section(
        f"Box plots: {ML_IRL}",
        [drawing, *callouts(results), table, random_table(results, x, "mlirl-tests")],
        lead="Walkers who are the likelier to take a step the more it is worth: the same starts, with the paper's "
        "ML-IRL in place of MaxEnt, in the same worlds. It takes steps to be worth what an optimal policy makes of "
        "them, and rewards to lie between -10 and 0.",
    )


def sigma_section(results: Results) -> Section:
    """Return the results of Sigma-GIRL: how often the agents are put right, the means, the tests, the box plots."""
    points = results.study.points
    values = {m: {f"{x} trajectories": _values(results, x, (m,))[m] for x in points} for m in ("accuracy", "anid")}
    return Section(
        "Box plots: Sigma-GIRL",
        [
            figure(
                "sigma-girl",
                "How often the agents are put right",
                "Each dot is a value that occurs, as large as it is frequent among "
                f"{counted_worlds(results, 'repeat')}; below it mean and 95 % interval. Panels are by the number of "
                "trajectories of an agent.",
                counted({m: by for m, by in values.items() if any(by.values())}),
            ),
            Text(
                "Three agents are to be put into two intents. Of three, two are right whatever is done, so that "
                "accuracy is 2/3 or 1, and ANID takes few values too. A box plot of such numbers shows little more "
                "than on which side of the half they fall: here stands how often each occurs.\n\nNLL is that of a "
                "profile likelihood, which does not integrate to 1. How large a difference of it would matter cannot "
                "be said, so that nothing is claimed of it; the paper calls it the same from all starts."
            ),
            *callouts(results),
            sigma_table(results),
            Fold("Tests against random starts", [sigma_tests(results)]),
            Fold("More trajectories, and the paper's box plots", [_lines(results), *_box_plots(results)]),
        ],
        lead="Agents that walk through a continuous world with a puddle, each recorded several times; from the "
        f"gradients of their policies Sigma-GIRL says whose reward is whose. {_NOT_STATED}",
    )


def _lines(results: Results) -> Figure:
    study, measures = results.study, ("accuracy", "anid", "n_iter", "seconds", "nll")
    by = {x: _values(results, x, measures) for x in study.points}
    values = {
        m: {name: {float(x): by[x][m][name] for x in by if name in by[x][m]} for name in study.methods}
        for m in measures
    }
    return figure(
        "sigma-girl-lines",
        "Sigma-GIRL against the number of trajectories",
        f"Means over {counted_worlds(results, 'repeat')} with 95 % intervals.",
        sweep({m: {name: v for name, v in lines.items() if v} for m, lines in values.items()}, study.axis),
    )


def _box_plots(results: Results) -> list[Figure]:
    measures = ("n_iter", "seconds", "nll", "anid")
    return [
        figure(
            f"sigma-girl-{x}",
            f"Sigma-GIRL by repeat, {x} trajectories an agent",
            _BOXES,
            boxes(_values(results, x, measures)),
        )
        for x in results.study.points
    ]


def sigma_table(results: Results) -> Table:
    """Return each method's accuracy, how often all agents are right, ANID, NLL, iterations and seconds."""
    rows: list[list[Cell | str | float | None]] = []
    for x in results.study.points:
        for method in results.study.methods:
            known = results.finite(method, x, "accuracy")
            right = int(np.sum(known >= _ALL_RIGHT))
            share = Cell(f"{right} of {known.size}", value=right) if known.size else None
            first, *others = (cell(results, method, x, m, compare=False) for m in ("accuracy", "anid", "nll"))
            seconds = cell(results, method, x, "seconds", compare=False)
            rows.append([method, str(x), first, share, *others, iterations(results, method, x), seconds])
    return Table(
        "sigma-girl-scores",
        f"Sigma-GIRL: mean ± half-width of the 95 % interval over {counted_worlds(results, 'repeat')}",
        "Accuracy is the share of agents put right after the best matching of intents; *all right* counts the repeats "
        "in which every agent is. Supervised is one M-step on the true labels.",
        [
            Column("Method", align="left"),
            "Trajectories",
            "Accuracy",
            "All right",
            "ANID",
            "NLL",
            "Iterations",
            "Seconds",
        ],
        rows,
    )


def sigma_tests(results: Results) -> Table:
    """Return paired tests of each warm start against both random ones, for each number of trajectories."""
    columns = [Column("Method", align="left"), Column("Against", align="left"), Column("Trajectories")]
    measures = ("accuracy", "anid")
    for measure in measures:
        columns += [Column(title, group=TITLES[measure]) for title in ("difference", "p, Student", "p, Wilcoxon", "d")]
    rows: list[list[Cell | str | float | None]] = []
    for method in results.study.methods:
        if method in (*_RANDOM, SUPERVISED):
            continue
        for other in (name for name in _RANDOM if name in results.study.methods):
            for x in results.study.points:
                cells: list[Cell | str | float | None] = [method, other, str(x)]
                for measure in measures:
                    cells += comparison_cells(results, results.compare((method, x), (other, x), measure), measure)
                rows.append(cells)
    return Table(
        "sigma-girl-tests",
        "Warm starts against random ones",
        "Method minus random start, repeat by repeat: mean ± half-width of the 99 % interval. The method is better "
        "where accuracy is above zero and ANID below. Certain is what has p < 0.01 in both tests.",
        columns,
        rows,
    )


_LEGEND = "  Mean ± half-width of the 95 % interval"
_At = tuple[str, Point]


def models_text(results: Results) -> str:
    """Return the means of a study of one model."""
    points, methods = results.study.points, results.study.methods
    # Of agents there is no GEVD.
    rewards = any(results.finite(name, x, "gevd").size for name in methods for x in points)
    measures = [*(["gevd"] if rewards else []), "anid", "accuracy", "nll", "n_iter", "seconds"]
    if len(points) == 1:
        at = {(name, m): _cell(results, (name, points[0]), m) for name in methods for m in measures}
        return "\n".join([_block("", methods, measures, at, TITLES), f"{_LEGEND}."])
    blocks = []
    for m in measures:
        at = {(name, str(x)): _cell(results, (name, x), m) for name in methods for x in points}
        blocks.append(_block(TITLES[m], methods, [str(x) for x in points], at))
    return "\n".join([*blocks, f"{_LEGEND}, by {results.study.axis}."])


def beyond_text(results: Results) -> str:
    """Return the means of every model and start at the paper's setting, where the study has that."""
    x = paper_point(results)
    if x is None:
        return ""
    known = methods_at(results, x)
    models = list(dict.fromkeys(model for model, _ in known))
    # The first model has the most starts.
    starts = list(dict.fromkeys(start for _, start in known))
    blocks = []
    for m in ("gevd", "anid", "seconds"):
        at = {(start, model): _cell(results, (name, x), m) for (model, start), name in known.items()}
        blocks.append(_block(TITLES[m], starts, models, at))
    return "\n".join([*blocks, f"{_LEGEND} at the paper's setting, E = 3 and wind 0.1."])


def _cell(results: Results, at: _At, measure: str) -> str:
    return cell(results, *at, measure, compare=False).text


def _block(
    title: str,
    rows: Sequence[str],
    columns: Sequence[str],
    at: Mapping[tuple[str, str], str],
    headings: Mapping[str, str] | None = None,
) -> str:
    """Return rows and columns in fixed width; what is not there is a dash."""
    width = max(map(len, [title, *rows]))
    names = [(headings or {}).get(column, column) for column in columns]
    table = [(title, names), *((row, [at.get((row, column), "–") for column in columns]) for row in rows)]
    wide = max(len(text) for _, texts in table for text in texts)
    return "\n".join(f"  {name:<{width}}" + "".join(f"  {text:>{wide}}" for text in texts) for name, texts in table)
