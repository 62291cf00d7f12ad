"""Every model of behaviour and every start in tables: scores, paired tests, the gap to supervision, and time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from limiirl.experiments.findings_beyond import BASELINE, NEAR
from limiirl.experiments.results import TIES, Results
from limiirl.experiments.studies import BASE, Point
from limiirl.experiments.studies_beyond import BEYOND_MODELS, BEYOND_STARTS, model_of, start_of
from limiirl.experiments.verdicts import HARD, HOLDS, SUPERVISED, at_most, gap, symbol
from limiirl.report.cells import Cell, Column, Table
from limiirl.report.studies.sections import counted_worlds
from limiirl.report.studies.table1 import DIGITS, TITLES, cell, comparison_cells, difference, iterations

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
