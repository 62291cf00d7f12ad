"""The paper's findings on ElementWorld with MaxEnt.

Paper: sections "ElementWorld Results" and "Sensitivity Analysis", appendix E.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType

from limiirl.experiments.results import MEASURES, Results
from limiirl.experiments.studies import METHODS, PAPER_LENGTH, Point
from limiirl.experiments.verdicts import (
    FAILS,
    HARD,
    HOLDS,
    MEAN,
    OPEN,
    QUALITY,
    RANDOM,
    RANDOM_GMM,
    SOFT,
    SUPERVISED,
    TIED,
    Finding,
    Gap,
    along,
    everywhere_below,
    finding,
    gap,
    on_par,
    over,
)

_E = 3  # elements in the sweep over K


def _table(results: Results) -> list[Finding]:
    def here(first: str, second: str, measures: Iterable[str]) -> list[Gap]:
        return over(results, first, second, (PAPER_LENGTH,), measures)

    name = results.study.name
    return [
        *(
            finding(
                name,
                f"{method} is ahead of random rewards in ANID, GEVD and iterations",
                everywhere_below,
                here(method, RANDOM, (*QUALITY, "n_iter")),
            )
            for method in (HARD, MEAN)
        ),
        finding(name, "MLE and mean rewards do equally well", on_par, here(HARD, MEAN, ("nll", *QUALITY))),
        *(
            finding(name, f"Hard clustering is ahead of soft ({kind})", everywhere_below, here(HARD, soft, QUALITY))
            for kind, soft in ((RANDOM_GMM, SOFT), ("GMM", TIED))
        ),
        finding(name, "NLL does not tell warm starts from random ones", on_par, here(HARD, RANDOM, ("nll",))),
        finding(name, "Hard clustering is on par with supervision", on_par, here(HARD, SUPERVISED, QUALITY)),
    ]


def _demos(results: Results) -> list[Finding]:
    ends = (results.study.points[0], results.study.points[-1])
    return [
        finding(
            "demos",
            "The number of iterations does not depend on the number of demonstrations",
            on_par,
            along(results, (HARD, MEAN, SOFT, RANDOM), ends, ("n_iter",)),
        ),
        finding(
            "demos",
            "The duration grows with the number of demonstrations",
            everywhere_below,
            along(results, (HARD, MEAN, SOFT, RANDOM), ends, ("seconds",)),
        ),
        *_ahead(results),
    ]


def _ahead(results: Results) -> list[Finding]:
    """Return whether hard clustering is ahead of random rewards, and of soft clustering, over a whole sweep."""
    return [
        finding(
            results.study.name,
            f"Hard clustering is ahead of {name}",
            everywhere_below,
            over(results, HARD, other, results.study.points, QUALITY),
        )
        for name, other in (("random rewards", RANDOM), (f"soft ({RANDOM_GMM})", SOFT), ("soft (GMM)", TIED))
    ]


def _wind(results: Results) -> list[Finding]:
    points = results.study.points
    return [
        *(
            finding(
                "wind",
                f"Every method has a larger {MEASURES[measure]} with wind than without",
                everywhere_below,
                along(results, METHODS, (points[0], points[-1]), (measure,)),
            )
            for measure in ("nll", *QUALITY)
        ),
        *_ahead(results),
    ]


def _clusters(results: Results) -> list[Finding]:
    points = results.study.points

    def at(k: Point, other: Point, measure: str) -> Gap:
        return gap(results, (HARD, k), (HARD, other), measure, f"K = {k} and {other}")

    return [
        finding("clusters", "ANID is least at K = E", everywhere_below, [at(_E, k, "anid") for k in points if k != _E]),
        finding(
            "clusters",
            "GEVD falls until K = E and then no further",
            _falls_then_level,
            [at(b, a, "gevd") for a, b in pairwise(points)],
        ),
        finding("clusters", "Test NLL grows with K", everywhere_below, [at(a, b, "nll") for a, b in pairwise(points)]),
        finding(
            "clusters",
            "Warm starts help while K does not exceed E",
            everywhere_below,
            over(results, HARD, RANDOM, tuple(k for k in points[1:] if float(k) <= _E), QUALITY),
        ),
    ]


def _falls_then_level(gaps: Sequence[Gap]) -> str:
    """Holds where GEVD falls from K to K + 1 up to E, and is on par from there."""
    falls, level = everywhere_below(gaps[: _E - 1]), on_par(gaps[_E - 1 :])
    return FAILS if FAILS in (falls, level) else OPEN if OPEN in (falls, level) else HOLDS


def _elements(results: Results) -> list[Finding]:
    points = results.study.points
    ends = (points[0], points[-1])
    unsupervised = [method for method in METHODS if method != SUPERVISED]
    return [
        finding(
            "elements",
            "Warm starts are ahead of random rewards at large E",
            everywhere_below,
            over(results, HARD, RANDOM, points[-2:], QUALITY),
        ),
        finding(
            "elements",
            "Hard clustering falls behind supervision at large E",
            everywhere_below,
            over(results, SUPERVISED, HARD, points[-1:], QUALITY),
        ),
        finding(
            "elements",
            "More intents are harder for every unsupervised method",
            everywhere_below,
            along(results, unsupervised, ends, ("anid",)),
        ),
        finding(
            "elements",
            "More intents are not harder for the supervised one",
            on_par,
            along(results, (SUPERVISED,), ends, QUALITY),
        ),
    ]


def _imbalance(results: Results) -> list[Finding]:
    ends = (results.study.points[0], results.study.points[-1])
    return [
        finding(
            "imbalance",
            "Hard clustering is as good with skewed shares as with equal ones",
            on_par,
            along(results, (HARD,), ends, QUALITY),
        ),
        *_ahead(results),
        finding(
            "imbalance",
            f"Soft clustering ({RANDOM_GMM}) is worse with skewed shares than with equal ones",
            everywhere_below,
            along(results, (SOFT,), ends, QUALITY),
        ),
    ]


def _margin(results: Results) -> list[Finding]:
    calm, windy = results.study.points[0], results.study.points[-1]
    found = gap(results, (SUPERVISED, windy), (SUPERVISED, calm), "margin", f"w = {windy} and {calm}")
    return [
        finding("margin", "The margin between intents is smaller with wind than without", everywhere_below, [found])
    ]


PAPER_FINDINGS: Mapping[str, Callable[[Results], list[Finding]]] = MappingProxyType(
    {
        "table1": _table,
        "boxplots": _table,
        "demos": _demos,
        "wind": _wind,
        "clusters": _clusters,
        "elements": _elements,
        "imbalance": _imbalance,
        "margin": _margin,
    }
)
"""What each study says, by its name."""
