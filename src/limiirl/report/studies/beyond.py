"""Sections on studies beyond the paper: every behaviour model with every initialisation on the same worlds."""

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
    compare_cells,
    get_symbol,
    model_of,
    start_of,
)
from limiirl.report.document import Figure, Fold, Section
from limiirl.report.figures import plot_by_model, plot_by_start, plot_quality
from limiirl.report.studies.sections import callouts, count_worlds
from limiirl.report.studies.table1 import (
    DIGITS,
    TITLES,
    comparison_cells,
    comparison_columns,
    difference_cell,
    iterations_cell,
    score_cell,
)
from limiirl.report.tables import Cell, Column, Content, Table

_MODEL = (Column("Model", align="left"), Column("Initialisation", align="left"))
_QUESTIONS = {
    "beyond-elements": "What if there are more intents? The true number is given to the methods, and the wind is 0.1. "
    "Slow models were run with fewer initialisations and not for the largest numbers of intents.",
    "beyond-wind": "What if there is more wind? Wind deflects steps, and the models differ in how they explain "
    "deflections. There are three elements.",
}


def paper_point(results: Results) -> Point | None:
    """Return the value of the varied parameter in the setting of the paper, or None if it is not included."""
    wanted = BASE.world_parameters
    return next((setting.x for setting in results.study.settings if setting.spec.world_parameters == wanted), None)


def methods_at(results: Results, x: Point) -> dict[tuple[str, str], str]:
    """Return the methods of a study at a point, by model and initialisation."""
    names = {setting.method for setting in results.study.settings if setting.x == x}
    methods = {(model_of(name), start_of(name)): name for name in names}
    return {pair: methods[pair] for pair in _sort_pairs(methods)}


def _sort_pairs(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return distinct pairs ordered by model and then by initialisation; unknown names come last."""
    models, starts = ({name: i for i, name in enumerate(names)} for names in (BEYOND_MODELS, BEYOND_STARTS))
    last = len(models) + len(starts)
    return sorted(set(pairs), key=lambda p: (models.get(p[0], last), p[0], starts.get(p[1], last), p[1]))


def score_table(results: Results, x: Point, name: str = "beyond") -> Table:
    """Return GEVD, ANID, accuracy, iterations and fit time for each model and initialisation."""
    methods = methods_at(results, x)
    best = {m: _best_methods(results, methods, x, m) for m in ("gevd", "anid")}
    rows: list[list[Content]] = []
    for (model, start), method in methods.items():
        scores = {m: score_cell(results, method, x, m, compare=False) for m in ("gevd", "anid", "accuracy", "seconds")}
        for m in ("gevd", "anid"):
            scores[m] = replace(scores[m], mark="best" if method in best[m] else None)
        seconds = scores.pop("seconds")
        rows.append([model, start, *scores.values(), iterations_cell(results, method, x, count=False), seconds])
    return Table(
        name,
        "Models and initialisations in the setting of the paper: mean ± half-width of the 95 % interval over "
        f"{count_worlds(results)}",
        "E = 3, wind 0.1, 100 training and 100 test demonstrations. The best unsupervised methods are marked, "
        "including ties within the tolerance of EM. Fit time is the duration of initialisation and EM in seconds on "
        "one thread, including the preparation of the data. ANID and accuracy of Sigma-GIRL are computed over agents, "
        "a few per intent, instead of demonstrations.",
        [*_MODEL, *(TITLES[m] for m in ("gevd", "anid", "accuracy", "n_iter")), "Fit time"],
        rows,
    )


def _best_methods(results: Results, methods: dict[tuple[str, str], str], x: Point, measure: str) -> set[str]:
    """Return the unsupervised methods with the lowest mean, including ties."""
    means = {
        name: float(values.mean())
        for (_, start), name in methods.items()
        if start != SUPERVISED and (values := results.finite(name, x, measure)).size
    }
    least = min(means.values(), default=0.0)
    return {name for name, mean in means.items() if mean <= least + TIES[measure]}


def comparison_table(results: Results, x: Point, name: str = "beyond-tests") -> Table:
    """Return the paired tests of each model against MaxEnt with the same initialisation."""
    measures = ("gevd", "anid")
    methods = methods_at(results, x)
    rows: list[list[Content]] = []
    for (model, start), method in methods.items():
        base = methods.get((BASELINE, start))
        if model != BASELINE and base is not None:
            cells = (comparison_cells(results, results.compare((method, x), (base, x), m), m) for m in measures)
            rows.append([model, start, *(cell for of_measure in cells for cell in of_measure)])
    return Table(
        name,
        f"Paired tests against {BASELINE} with the same initialisation",
        f"Paired difference between each model and {BASELINE} in the setting of the paper: mean ± half-width of the "
        "99 % interval. Negative values favour the model. Differences are marked as significant if p < 0.01 in both "
        "tests, without correction for multiple comparisons; d is the mean difference divided by its standard "
        "deviation.",
        [*_MODEL, *comparison_columns(measures)],
        rows,
    )


def supervision_table(results: Results) -> Table:
    """Return the differences in ANID between unsupervised and supervised fits, by model and parameter value."""
    points = results.study.points
    rows: list[list[Content]] = []
    methods = {x: methods_at(results, x) for x in points}
    for model, start in _sort_pairs(pair for at in methods.values() for pair in at):
        if start != SUPERVISED:
            pairs = [(methods[x].get((model, start)), methods[x].get((model, SUPERVISED))) for x in points]
            rows.append(
                [model, start, *(_supervision_cell(results, *pair, x) for pair, x in zip(pairs, points, strict=True))]
            )
    return Table(
        f"{results.study.name}-supervised",
        "Difference in ANID from supervised fits",
        "Paired difference between each model and the same model given the true labels: mean ± half-width of the 99 % "
        f"interval. A cell is marked if its interval lies below {NEAR}. "
        "Settings with empty cells were not run.",
        [*_MODEL, *_headings(results)],
        rows,
    )


def _headings(results: Results) -> list[str]:
    return [f"{get_symbol(results)} = {x}" for x in results.study.points]


def _supervision_cell(results: Results, method: str | None, reference: str | None, x: Point) -> Cell | None:
    result = None if method is None or reference is None else results.compare((method, x), (reference, x), "anid")
    if result is None or method is None or reference is None:
        return None
    near = at_most(NEAR)([compare_cells(results, (method, x), (reference, x), "anid")]) == HOLDS
    return difference_cell(results, result, DIGITS["anid"], "agrees" if near else None)


def time_table(results: Results) -> Table:
    """Return the fit time of each model with the paper's initialisation, by parameter value."""
    points = results.study.points
    methods = {x: methods_at(results, x) for x in points}
    pairs = _sort_pairs(pair for at in methods.values() for pair in at)
    rows: list[list[Content]] = []
    for model in (model for model, start in pairs if start == HARD):
        names = [methods[x].get((model, HARD)) for x in points]
        cells = [
            None if name is None else score_cell(results, name, x, "seconds", compare=False)
            for name, x in zip(names, points, strict=True)
        ]
        rows.append([model, *cells])
    return Table(
        f"{results.study.name}-seconds",
        "Fit time",
        f"Duration of initialisation ({HARD}) and EM in seconds on one thread: mean ± half-width of the 95 % interval. "
        "Settings with empty cells were not run.",
        [_MODEL[0], *_headings(results)],
        rows,
    )


def quality_section(results: Results) -> Section | None:
    """Return the section on the setting of the paper, or None if the study does not include it."""
    x = paper_point(results)
    if x is None:
        return None
    values: dict[str, dict[str, dict[str, FloatArray]]] = {}
    for (model, start), method in methods_at(results, x).items():
        values.setdefault(model, {})[start] = {m: results.values(method, x, m) for m in ("anid", "gevd", "seconds")}
    caption = (
        f"Means over {count_worlds(results)} with 95 % intervals. Colours denote models, shapes denote "
        "initialisations; the lower left is best. ANID has a square-root scale; GEVD and fit time have logarithmic "
        "scales. Intervals are clipped at the axis limits. ANID of Sigma-GIRL is computed over agents instead of "
        "demonstrations. Supervised fits are not timed."
    )
    title = "Reward quality against clustering quality and fit time"
    return Section(
        "Reward quality, clustering quality and fit time",
        [
            Figure.from_plot("quality", title, caption, plot_quality(values)),
            score_table(results, x),
            comparison_table(results, x),
        ],
        lead="Every behaviour model with every initialisation in the setting of the paper, on the same worlds and "
        "demonstrations. Lower values are better, except for accuracy.",
    )


def setting_section(results: Results) -> Section | None:
    """Return the section on the models in the setting of the paper, or None if the study does not include it."""
    x = paper_point(results)
    if x is None:
        return None
    name = results.study.name
    return Section(
        results.study.title,
        [score_table(results, x, name), *callouts(results), comparison_table(results, x, f"{name}-tests")],
        lead="The setting of the paper with other behaviour models, initialised with k-means or with the true labels.",
    )


def beyond_section(results: Results) -> Section:
    """Return the section on a sweep, in which models and initialisations are compared with supervised fits."""
    study, verdicts = results.study, callouts(results)
    # The first claims are about all models; each of the others is about one model or initialisation.
    first, others = verdicts[:N_HEADLINES], verdicts[N_HEADLINES:]
    return Section(
        study.title,
        [
            _model_figure(results),
            *first,
            _start_figure(results, "anid"),
            supervision_table(results),
            time_table(results),
            Fold("GEVD by initialisation", [_start_figure(results, "gevd")]),
            *([Fold("Further claims", others)] if others else []),
        ],
        lead=_QUESTIONS.get(study.name, ""),
    )


def _values_along(results: Results, model: str, start: str, measure: str) -> dict[float, FloatArray]:
    """Return the values of a measure by parameter value, or {} if none of them is finite."""
    names = {x: methods_at(results, x).get((model, start)) for x in results.study.points}
    values = {float(x): results.values(name, x, measure) for x, name in names.items() if name is not None}
    return values if any(np.isfinite(v).any() for v in values.values()) else {}


def _starts_by_model(results: Results) -> dict[str, list[str]]:
    starts: dict[str, list[str]] = {}
    for model, start in _sort_pairs(pair for x in results.study.points for pair in methods_at(results, x)):
        starts.setdefault(model, []).append(start)
    return starts


def _model_figure(results: Results) -> Figure:
    measures, models = ("gevd", "anid", "seconds"), list(_starts_by_model(results))
    lines, supervised = (
        {m: {model: v for model in models if (v := _values_along(results, model, start, m))} for m in measures}
        for start in (HARD, SUPERVISED)
    )
    study = results.study
    caption = (
        f"Means over {count_worlds(results)} with 95 % intervals. Solid lines: initialised with {HARD}; dashed lines: "
        "the same model given the true labels. ANID has a square-root scale. Intervals are clipped at the axis limits."
    )
    plot = plot_by_model(lines, supervised, study.axis)
    return Figure.from_plot(study.name, f"{study.title}, by model", caption, plot)


def _start_figure(results: Results, measure: str) -> Figure:
    values = {
        model: {start: v for start in starts if (v := _values_along(results, model, start, measure))}
        for model, starts in _starts_by_model(results).items()
    }
    study = results.study
    scale = " square-root" if measure == "anid" else ""
    caption = (
        f"Means over {count_worlds(results)} with 95 % intervals, one panel per model with a common{scale} scale. "
        "Intervals are clipped at the axis limits."
    )
    plot = plot_by_start({model: by for model, by in values.items() if by}, measure, study.axis)
    title = f"{study.title}, {TITLES[measure]} by initialisation"
    return Figure.from_plot(f"{study.name}-{measure}", title, caption, plot)
