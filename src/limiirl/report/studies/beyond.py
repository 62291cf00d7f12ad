"""The sections that go beyond the paper: every model of behaviour with every start, on the same worlds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from limiirl.experiments.findings_beyond import N_HEADLINES
from limiirl.experiments.results import Results
from limiirl.experiments.studies import Point
from limiirl.experiments.verdicts import HARD, SUPERVISED
from limiirl.report.document import Figure, Fold, Section
from limiirl.report.figures import by_model, by_start, quality
from limiirl.report.studies.beyond_tables import (
    gap_table,
    in_order,
    methods_at,
    paired_table,
    paper_point,
    score_table,
    time_table,
)
from limiirl.report.studies.sections import callouts, counted_worlds, figure

Float = NDArray[np.float64]
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
    values: dict[str, dict[str, dict[str, Float]]] = {}
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


def _along(results: Results, model: str, start: str, measure: str) -> dict[float, Float]:
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
