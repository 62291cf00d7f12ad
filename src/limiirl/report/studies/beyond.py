"""Sections beyond the paper: every model with every start on the same worlds, in figures and tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from limiirl._typing import FloatArray
from limiirl.experiments import (
    BASE,
    BASELINE,
    BEYOND_MODELS,
    BEYOND_STARTS,
    HARD,
    HOLDS,
    N_HEADLINES,
    NEAR,
    SUPERVISED,
    TIES,
    Point,
    Results,
    at_most,
    gap,
    model_of,
    start_of,
    symbol,
)
from limiirl.report.document import Figure, Fold, Section
from limiirl.report.figures import by_model, by_start, quality
from limiirl.report.studies.sections import callouts, counted_worlds, figure
from limiirl.report.studies.table1 import DIGITS, TITLES, cell, comparison_cells, difference, iterations
from limiirl.report.tables import Cell, Column, Table

_MODEL = (Column("Model", align="left"), Column("Start", align="left"))


def paper_point(results: Results) -> Point | None:
    """Return the point of a study's axis that is the paper's own setting, None where it has none."""
    wanted = BASE.world_parameters
    return next((setting.x for setting in results.study.settings if setting.spec.world_parameters == wanted), None)


def methods_at(results: Results, x: Point) -> dict[tuple[str, str], str]:
    """Return the methods that a study has at a point, by model and start."""
    names = {setting.method for setting in results.study.settings if setting.x == x}
    known = {(model_of(name), start_of(name)): name for name in names}
    return {pair: known[pair] for pair in in_order(known)}


def in_order(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return pairs of model and start in the order of models, then of starts, each once; unknown ones come last."""
    models, starts = ({name: place for place, name in enumerate(names)} for names in (BEYOND_MODELS, BEYOND_STARTS))
    last = len(models) + len(starts)
    return sorted(set(pairs), key=lambda p: (models.get(p[0], last), p[0], starts.get(p[1], last), p[1]))


def score_table(results: Results, x: Point, name: str = "beyond") -> Table:
    """Return GEVD, ANID, accuracy, iterations and the time of a fit, for each model and start."""
    methods = methods_at(results, x)
    best = {m: _best(results, methods, x, m) for m in ("gevd", "anid")}
    rows: list[list[Cell | str]] = []
    for (model, start), method in methods.items():
        scores = {m: cell(results, method, x, m, compare=False) for m in ("gevd", "anid", "accuracy", "seconds")}
        for m in ("gevd", "anid"):
            scores[m] = replace(scores[m], mark="best" if method in best[m] else None)
        seconds = scores.pop("seconds")
        rows.append([model, start, *scores.values(), iterations(results, method, x, counted=False), seconds])
    return Table(
        name,
        "Every model and start at the paper's setting: mean ± half-width of the 95 % interval over "
        f"{counted_worlds(results)}",
        "E = 3, wind 0.1, 100 demonstrations to learn from and 100 others to judge by. The best are of those without "
        "labels; what differs by no more than EM's tolerance is as good. Fit time is initialisation and EM, in seconds "
        "on one thread, timed one after the other, so that each prepares the data anew; of *split and merge* it is "
        "that of one whole fit, which does so once. Sigma-GIRL's ANID and accuracy, if it is there, are of agents, a "
        "few for each intent, not of single demonstrations.",
        [*_MODEL, *(TITLES[m] for m in ("gevd", "anid", "accuracy", "n_iter")), "Fit time"],
        rows,
    )


def _best(results: Results, methods: dict[tuple[str, str], str], x: Point, measure: str) -> set[str]:
    """Return the unsupervised methods with the least mean: one, and those that tie with it."""
    means = {
        name: float(known.mean())
        for (_, start), name in methods.items()
        if start != SUPERVISED and (known := results.finite(name, x, measure)).size
    }
    least = min(means.values(), default=0.0)
    return {name for name, mean in means.items() if mean <= least + TIES[measure]}


def paired_table(results: Results, x: Point, name: str = "beyond-tests") -> Table:
    """Return paired tests of each model against MaxEnt with the same start."""
    measures = ("gevd", "anid")
    columns: list[Column] = [*_MODEL]
    for measure in measures:
        columns += [Column(title, group=TITLES[measure]) for title in ("difference", "p, Student", "p, Wilcoxon", "d")]
    methods = methods_at(results, x)
    rows: list[list[Cell | str | float | None]] = []
    for (model, start), method in methods.items():
        base = methods.get((BASELINE, start))
        if model == BASELINE or base is None:
            continue
        cells: list[Cell | str | float | None] = [model, start]
        for measure in measures:
            found = results.compare((method, x), (base, x), measure)
            cells += comparison_cells(results, found, measure)
        rows.append(cells)
    return Table(
        name,
        f"Against {BASELINE} with the same start",
        f"Model minus {BASELINE}, world by world, at the paper's setting: mean ± half-width of the 99 % interval; "
        "below zero the model is better. Certain is what has p < 0.01 in both tests; d is the mean difference over its "
        "standard deviation. No correction was made for the number of tests.",
        columns,
        rows,
    )


def gap_table(results: Results) -> Table:
    """Return how far in ANID each model and start is from the same model with the true labels, along the axis."""
    points = results.study.points
    rows: list[list[Cell | str | float | None]] = []
    known = {x: methods_at(results, x) for x in points}
    for pair in in_order(pair for methods in known.values() for pair in methods):
        model, start = pair
        if start == SUPERVISED:
            continue
        cells: list[Cell | str | float | None] = [model, start]
        for x in points:
            method, floor = known[x].get(pair), known[x].get((model, SUPERVISED))
            cells.append(None if method is None or floor is None else _gap(results, method, floor, x))
        rows.append(cells)
    return Table(
        f"{results.study.name}-gap",
        "The gap to supervision in ANID",
        "ANID minus that of the same model with the true labels, world by world: mean ± half-width of the 99 % "
        f"interval. Certain is here what is near: an interval that lies wholly below {NEAR}, which is the rule of the "
        "claims too. What is empty was not tried.",
        [*_MODEL, *_headings(results)],
        rows,
    )


def _headings(results: Results) -> list[str]:
    return [f"{symbol(results)} = {x}" for x in results.study.points]


def _gap(results: Results, method: str, floor: str, x: Point) -> Cell | None:
    found = results.compare((method, x), (floor, x), "anid")
    if found is None:
        return None
    near = at_most(NEAR)([gap(results, (method, x), (floor, x), "anid")]) == HOLDS
    return difference(results, found, DIGITS["anid"], certain=near)


def time_table(results: Results) -> Table:
    """Return the time of a fit of each model from the paper's start, along the axis."""
    points = results.study.points
    known = {x: methods_at(results, x) for x in points}
    pairs = in_order(pair for methods in known.values() for pair in methods)
    models = [model for model, start in pairs if start == HARD]
    rows: list[list[Cell | str | float | None]] = [
        [model, *(_seconds(results, known[x].get((model, HARD)), x) for x in points)] for model in models
    ]
    return Table(
        f"{results.study.name}-seconds",
        "The time of a fit",
        f"Seconds on one thread, initialisation and EM, from {HARD}: mean ± half-width of the 95 % interval. What is "
        "empty was not tried.",
        [_MODEL[0], *_headings(results)],
        rows,
    )


def _seconds(results: Results, method: str | None, x: Point) -> Cell | None:
    return None if method is None else cell(results, method, x, "seconds", compare=False)


_QUESTIONS = {
    "beyond-elements": "And with more intents? As many are learned as there are, at wind 0.1. Slow models were tried "
    "with fewer starts, and not with the largest numbers.",
    "beyond-wind": "And with more wind? It blows steps astray, and models differ in what they make of that. E = 3.",
}


def quality_section(results: Results) -> Section | None:
    """Return every model and start at the paper's setting; None where the study does not have that setting."""
    x = paper_point(results)
    if x is None:
        return None
    values: dict[str, dict[str, dict[str, FloatArray]]] = {}
    for (model, start), method in methods_at(results, x).items():
        values.setdefault(model, {})[start] = {m: results.values(method, x, m) for m in ("anid", "gevd", "seconds")}
    return Section(
        "Rewards, clusters and time",
        [
            figure(
                "quality",
                "Reward quality against clustering quality, and against time",
                f"Means over {counted_worlds(results)} with 95 % intervals: colours are models, shapes are starts. The "
                "lower left is best. ANID has the scale of a square root, GEVD and seconds that of a logarithm. "
                "Intervals are cut at the axes. Sigma-GIRL's ANID is of agents, not of single demonstrations. With "
                "labels given nothing is timed.",
                quality(values),
            ),
            score_table(results, x),
            paired_table(results, x),
        ],
        lead="How good are the rewards, how good the clusters, and what do they cost? Every model of behaviour with "
        "every start, at the paper's setting: the same worlds and the same demonstrations for all. Lower is better, "
        "but for accuracy.",
    )


def setting_section(results: Results) -> Section | None:
    """Return the models at the paper's setting, over many worlds; None where the study does not have that setting."""
    x = paper_point(results)
    if x is None:
        return None
    return Section(
        results.study.title,
        [
            score_table(results, x, results.study.name),
            *callouts(results),
            paired_table(results, x, f"{results.study.name}-tests"),
        ],
        lead="The paper's setting with other models of behaviour, from k-means and from the true labels: what the "
        "choice of a model is worth.",
    )


def beyond_section(results: Results) -> Section:
    """Return a sweep of every model and start: by model, by start, and the gap to supervision."""
    study, said = results.study, callouts(results)
    # Of the many others each is of one model or start.
    first, others = said[:N_HEADLINES], said[N_HEADLINES:]
    return Section(
        study.title,
        [
            _by_model(results),
            *first,
            _by_start(results, "anid"),
            gap_table(results),
            time_table(results),
            Fold("GEVD by start", [_by_start(results, "gevd")]),
            *([Fold("Further claims, with their evidence", others)] if others else []),
        ],
        lead=_QUESTIONS.get(study.name, ""),
    )


def _along(results: Results, model: str, start: str, measure: str) -> dict[float, FloatArray]:
    """Return a measure's values at each point that has the model with the start, where there are any."""
    known: dict[Point, str | None] = {x: methods_at(results, x).get((model, start)) for x in results.study.points}
    found = {float(x): results.values(name, x, measure) for x, name in known.items() if name is not None}
    return found if any(np.isfinite(values).any() for values in found.values()) else {}


def _pairs(results: Results) -> dict[str, list[str]]:
    """Return the starts of each model."""
    found: dict[str, list[str]] = {}
    for model, start in in_order(pair for x in results.study.points for pair in methods_at(results, x)):
        found.setdefault(model, []).append(start)
    return found


def _by_model(results: Results) -> Figure:
    measures, models = ("gevd", "anid", "seconds"), list(_pairs(results))
    lines, floors = (
        {m: {model: v for model in models if (v := _along(results, model, start, m))} for m in measures}
        for start in (HARD, SUPERVISED)
    )
    study = results.study
    return figure(
        study.name,
        f"{study.title}, by model",
        f"Means over {counted_worlds(results)} with 95 % intervals, from {HARD}; dashed, the same model with the true "
        "labels given. ANID has the scale of a square root. Intervals are cut at the axes.",
        by_model(lines, floors, study.axis),
    )


def _by_start(results: Results, measure: str) -> Figure:
    values = {
        model: {start: v for start in starts if (v := _along(results, model, start, measure))}
        for model, starts in _pairs(results).items()
    }
    name, study = {"anid": "ANID", "gevd": "GEVD"}[measure], results.study
    scale = " The scale is that of a square root." if measure == "anid" else ""
    return figure(
        f"{study.name}-{measure}",
        f"{study.title}, {name} by start",
        f"Means over {counted_worlds(results)} with 95 % intervals, a panel a model, all on one scale.{scale} "
        "Intervals are cut at the axes.",
        by_start({model: by for model, by in values.items() if by}, measure, study.axis),
    )
