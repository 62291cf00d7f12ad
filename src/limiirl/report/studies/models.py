"""Sections and text tables on other behaviour models: ML-IRL in ElementWorld, and Sigma-GIRL on agents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from limiirl._typing import FloatArray
from limiirl.experiments import MEASURES, ML_IRL, RANDOM, SUPERVISED, UNIFORM, Point, Results
from limiirl.report.document import Figure, Fold, Section, Text
from limiirl.report.figures import plot_boxes, plot_sweep, plot_value_counts
from limiirl.report.studies.beyond import methods_at, paper_point
from limiirl.report.studies.sections import callouts, count_worlds
from limiirl.report.studies.table1 import (
    METHOD,
    TITLES,
    comparison_cells,
    comparison_columns,
    iterations_cell,
    random_table,
    score_cell,
    score_table,
)
from limiirl.report.tables import Cell, Column, Content, Table

_BOXES = (
    "Boxes show the median and the quartiles; whiskers extend to the outermost values within 1.5 interquartile ranges; "
    "diamonds are outliers."
)
_NOT_STATED = "The paper shows these results as box plots only, so there are no values to compare with."
_RANDOM = (UNIFORM, RANDOM)
_ALL_CORRECT = 1.0 - 1e-9
_LEGEND = "  Mean ± half-width of the 95 % interval"


def _values_at(results: Results, x: Point, measures: tuple[str, ...]) -> dict[str, dict[str, FloatArray]]:
    values = {m: {name: results.values(name, x, m) for name in results.study.methods} for m in measures}
    return {m: {name: v for name, v in by.items() if np.isfinite(v).any()} for m, by in values.items()}


def mlirl_section(results: Results) -> Section:
    """Return the section on ML-IRL: box plots, means and tests."""
    x = results.study.points[0]
    title = f"{ML_IRL}, ElementWorld: mean ± half-width of the 95 % interval over {count_worlds(results)}"
    plot = plot_boxes(_values_at(results, x, tuple(MEASURES)))
    return Section(
        f"Box plots: {ML_IRL}",
        [
            Figure.from_plot("mlirl", f"{ML_IRL}: scores by world", _BOXES, plot),
            *callouts(results),
            score_table(results, "mlirl-scores", title, _NOT_STATED, x),
            random_table(results, x, "mlirl-tests"),
        ],
        lead="The same worlds and initialisations with the ML-IRL model of the paper instead of MaxEnt: a Boltzmann "
        "policy over the optimal Q-values, with rewards between −10 and 0.",
    )


def sigma_section(results: Results) -> Section:
    """Return the section on Sigma-GIRL: frequencies of correct assignments, means, tests and box plots."""
    points = results.study.points
    values = {m: {f"{x} trajectories": _values_at(results, x, (m,))[m] for x in points} for m in ("accuracy", "anid")}
    caption = (
        "The area of a dot is proportional to the frequency of the value among "
        f"{count_worlds(results, 'repeat')}. The mean and its 95 % interval are below the dots. Panels differ in the "
        "number of trajectories per agent."
    )
    plot = plot_value_counts({m: by for m, by in values.items() if any(by.values())})
    return Section(
        "Box plots: Sigma-GIRL",
        [
            Figure.from_plot("sigma-girl", "Accuracy and ANID of the assignments of agents to intents", caption, plot),
            Text(
                "Three agents are assigned to two intents. Under the best matching of intents, at least two agents are "
                "always correct, so accuracy is 2/3 or 1, and ANID has few distinct values. The figure therefore shows "
                "the frequency of each value instead of box plots.\n\n"
                "The NLL is based on a profile likelihood, which does not integrate to 1, so "
                "its differences are not tested. The paper reports equal NLL for all initialisations."
            ),
            *callouts(results),
            sigma_table(results),
            Fold("Tests against random initialisations", [sigma_tests(results)]),
            Fold(
                "Effect of the number of trajectories, and box plots as in the paper",
                [_length_figure(results), *_box_plots(results)],
            ),
        ],
        lead="Each agent in the continuous PuddleWorld is recorded several times. Sigma-GIRL uses the policy gradients "
        f"of the agents to infer which of them share a reward. {_NOT_STATED}",
    )


def _length_figure(results: Results) -> Figure:
    study, measures = results.study, ("accuracy", "anid", "n_iter", "seconds", "nll")
    by = {x: _values_at(results, x, measures) for x in study.points}
    values = {
        m: {name: {float(x): by[x][m][name] for x in by if name in by[x][m]} for name in study.methods}
        for m in measures
    }
    caption = f"Means over {count_worlds(results, 'repeat')} with 95 % intervals."
    plot = plot_sweep({m: {name: v for name, v in lines.items() if v} for m, lines in values.items()}, study.axis)
    return Figure.from_plot("sigma-girl-lines", "Sigma-GIRL by number of trajectories", caption, plot)


def _box_plots(results: Results) -> list[Figure]:
    measures = ("n_iter", "seconds", "nll", "anid")
    plots = {x: plot_boxes(_values_at(results, x, measures)) for x in results.study.points}
    return [
        Figure.from_plot(f"sigma-girl-{x}", f"Sigma-GIRL: scores by repeat, {x} trajectories per agent", _BOXES, plot)
        for x, plot in plots.items()
    ]


def sigma_table(results: Results) -> Table:
    """Return the scores of each method, with the number of repeats in which all agents are correct."""
    rows: list[list[Content]] = []
    for x in results.study.points:
        for method in results.study.methods:
            accuracy = results.finite(method, x, "accuracy")
            correct = int(np.sum(accuracy >= _ALL_CORRECT))
            all_correct = Cell(f"{correct} of {accuracy.size}", value=correct) if accuracy.size else None
            measures = ("accuracy", "anid", "nll", "seconds")
            first, *others, seconds = (score_cell(results, method, x, m, compare=False) for m in measures)
            rows.append([method, str(x), first, all_correct, *others, iterations_cell(results, method, x), seconds])
    return Table(
        "sigma-girl-scores",
        f"Sigma-GIRL: mean ± half-width of the 95 % interval over {count_worlds(results, 'repeat')}",
        "Accuracy is the fraction of agents with the correct intent under the best matching of intents; *all correct* "
        "is the number of repeats in which every agent is correct. Supervised is one M-step with the true labels.",
        [METHOD, "Trajectories", "Accuracy", "All correct", "ANID", "NLL", "Iterations", "Seconds"],
        rows,
    )


def sigma_tests(results: Results) -> Table:
    """Return the paired tests of clustered against random initialisations, by number of trajectories."""
    measures, methods = ("accuracy", "anid"), results.study.methods
    rows: list[list[Content]] = []
    for method in (name for name in methods if name not in (*_RANDOM, SUPERVISED)):
        for other in (name for name in _RANDOM if name in methods):
            for x in results.study.points:
                cells: list[Content] = [method, other, str(x)]
                for measure in measures:
                    cells += comparison_cells(results, results.compare((method, x), (other, x), measure), measure)
                rows.append(cells)
    return Table(
        "sigma-girl-tests",
        "Paired tests against random initialisations",
        "Paired difference between each method and a random initialisation: mean ± half-width of the 99 % interval. "
        "Positive differences in accuracy and negative differences in ANID favour the method. Differences are marked "
        "as significant if p < 0.01 in both tests.",
        [METHOD, Column("Compared with", align="left"), Column("Trajectories"), *comparison_columns(measures)],
        rows,
    )


def models_text(results: Results) -> str:
    """Return the mean scores by method and point as text, for a study of a single IRL model."""
    points, methods = results.study.points, results.study.methods
    # GEVD is not defined for agents.
    rewards = any(results.finite(name, x, "gevd").size for name in methods for x in points)
    measures = [*(["gevd"] if rewards else []), "anid", "accuracy", "nll", "n_iter", "seconds"]
    if len(points) == 1:
        at = {(name, TITLES[m]): _text(results, name, points[0], m) for name in methods for m in measures}
        return "\n".join([_format_block("", methods, [TITLES[m] for m in measures], at), f"{_LEGEND}."])
    blocks = []
    for m in measures:
        at = {(name, str(x)): _text(results, name, x, m) for name in methods for x in points}
        blocks.append(_format_block(TITLES[m], methods, [str(x) for x in points], at))
    return "\n".join([*blocks, f"{_LEGEND}, by {results.study.axis}."])


def beyond_text(results: Results) -> str:
    """Return the means in the setting of the paper as text, or "" if the study does not include it."""
    x = paper_point(results)
    if x is None:
        return ""
    methods = methods_at(results, x)
    models, starts = (list(dict.fromkeys(pair[part] for pair in methods)) for part in (0, 1))
    blocks = []
    for m in ("gevd", "anid", "seconds"):
        at = {(start, model): _text(results, name, x, m) for (model, start), name in methods.items()}
        blocks.append(_format_block(TITLES[m], starts, models, at))
    return "\n".join([*blocks, f"{_LEGEND} in the setting of the paper, E = 3 and wind 0.1."])


def _text(results: Results, method: str, x: Point, measure: str) -> str:
    return score_cell(results, method, x, measure, compare=False).text


def _format_block(title: str, rows: Sequence[str], columns: Sequence[str], at: Mapping[tuple[str, str], str]) -> str:
    width = max(map(len, [title, *rows]))
    table = [(title, list(columns)), *((row, [at.get((row, column), "–") for column in columns]) for row in rows)]
    wide = max(len(text) for _, texts in table for text in texts)
    return "\n".join(f"  {name:<{width}}" + "".join(f"  {text:>{wide}}" for text in texts) for name, texts in table)
