"""The paper's findings as statements that records bear out or not, each with its evidence.

Paper: sections "ElementWorld Results" and "Sensitivity Analysis", appendix E. One cell of a study is below another in
a measure where both paired tests, Student's and Wilcoxon's, say so with p < 0.01 over the worlds that both have. Two
are on par where the 99 % interval of their difference lies within a margin, `MARGINS`: no difference found is not yet
none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from limiirl.experiments.results import MEASURES, Cell, Results
from limiirl.experiments.studies import METHODS, PAPER_LENGTH, STUDIES, Point

HOLDS, FAILS, OPEN = "holds", "does not hold", "open"
HARD, MEAN, RANDOM, SUPERVISED = "k-means, MLE", "k-means, mean", "random rewards", "supervised"
# Soft clusters that begin from k-means, with one covariance for all; and such that begin at random, with one each. The
# paper does not say which it has.
TIED, SOFT = "GMM, MLE", "full GMM, MLE"
_RANDOM_GMM = "full GMM, random starts"
_QUALITY = ("anid", "gevd")
_E = 3  # elements in the sweep over K
# Of fewer worlds Wilcoxon's test cannot reach p < 0.01, whatever they say.
_LEAST_WORLDS = 8


@dataclass(frozen=True)
class Finding:
    """A claim of the paper, what the records say of it, and why.

    Attributes
    ----------
    study : str
        Name of the study that bears on it.
    claim : str
    verdict : str
        "holds", "does not hold", or "open": too few worlds, or no difference is certain.
    evidence : str
        The comparisons that decide.
    """

    study: str
    claim: str
    verdict: str
    evidence: str


MARGINS = {"nll": 0.1, "anid": 0.02, "gevd": 0.5, "n_iter": 5.0}
"""Differences that do not matter: two cells are on par where the 99 % interval of their difference lies within."""


@dataclass(frozen=True)
class Gap:
    """A paired comparison of two cells.

    Attributes
    ----------
    sign : int or None
        -1 where the first is certainly below the second, 1 above, 0 not certain, None for too few worlds.
    same : bool
        Whether the interval of the difference lies within the measure's margin.
    words : str
    """

    sign: int | None
    same: bool
    words: str


def gap(results: Results, first: Cell, second: Cell, measure: str, label: str = "") -> Gap:
    """Compare two cells of a study."""
    name = MEASURES.get(measure, measure)
    at = f" at {label}" if label else ""
    found = results.compare(first, second, measure)
    if found is None or found.difference.n < _LEAST_WORLDS:
        return Gap(None, False, f"{name}{at}: fewer than {_LEAST_WORLDS} worlds")
    sign = 0 if found.better is None else (-1 if found.difference.mean < 0 else 1)
    margin = MARGINS.get(measure, 0.0)
    same = -margin <= found.difference.low and found.difference.high <= margin
    p = max(found.p_t, found.p_wilcoxon)
    words = f"{name} {found.means[0]:.3g} against {found.means[1]:.3g}{at}, difference {found.difference} (p = {p:.1g})"
    return Gap(sign, same, words)


def everywhere_below(gaps: Sequence[Gap]) -> str:
    """Holds where every first cell is below; does not where one is above."""
    signs = [g.sign for g in gaps]
    return HOLDS if all(s == -1 for s in signs) else FAILS if 1 in signs else OPEN


def on_par(gaps: Sequence[Gap]) -> str:
    """Holds where every difference is certain to be small; does not where one is certain and not so."""
    if all(g.same for g in gaps):
        return HOLDS
    return FAILS if any(g.sign in (-1, 1) and not g.same for g in gaps) else OPEN


def _finding(study: str, claim: str, rule: Callable[[Sequence[Gap]], str], gaps: Iterable[Gap]) -> Finding:
    known = list(gaps)
    if all(g.sign is None for g in known):
        return Finding(study, claim, OPEN, f"Fewer than {_LEAST_WORLDS} worlds: no test could tell.")
    evidence = "; ".join(g.words for g in known) + "."
    return Finding(study, claim, rule(known), evidence[:1].upper() + evidence[1:])


def _over(results: Results, first: str, second: str, xs: tuple[Point, ...], measures: Iterable[str]) -> list[Gap]:
    """Compare two methods by their means over points of the axis, world by world: one test for all points."""
    label = "" if len(xs) == 1 else f"{_axis(results)} = {', '.join(map(str, xs))} on average"
    return [gap(results, (first, xs), (second, xs), m, label) for m in measures]


def _axis(results: Results) -> str:
    return {"demos": "N", "wind": "w", "clusters": "K", "elements": "E", "imbalance": "p"}[results.study.name]


def _along(results: Results, methods: Iterable[str], ends: tuple[Point, Point], measures: Iterable[str]) -> list[Gap]:
    """Compare each method's value at one point (first) with its value at another, in the same worlds."""
    return [
        gap(results, (method, ends[0]), (method, ends[1]), m, f"{method}, {_axis(results)} = {ends[0]} and {ends[1]}")
        for m in measures
        for method in methods
    ]


def _table(results: Results) -> list[Finding]:
    def here(first: str, second: str, measures: Iterable[str]) -> list[Gap]:
        return _over(results, first, second, (PAPER_LENGTH,), measures)

    name = results.study.name
    return [
        *(
            _finding(
                name,
                f"{method} is ahead of random rewards in ANID, GEVD and iterations",
                everywhere_below,
                here(method, RANDOM, (*_QUALITY, "n_iter")),
            )
            for method in (HARD, MEAN)
        ),
        _finding(name, "MLE and mean rewards do equally well", on_par, here(HARD, MEAN, ("nll", *_QUALITY))),
        *(
            _finding(name, f"Hard clustering is ahead of soft ({kind})", everywhere_below, here(HARD, soft, _QUALITY))
            for kind, soft in ((_RANDOM_GMM, SOFT), ("GMM", TIED))
        ),
        _finding(name, "NLL does not tell warm starts from random ones", on_par, here(HARD, RANDOM, ("nll",))),
        _finding(name, "Hard clustering is on par with supervision", on_par, here(HARD, SUPERVISED, _QUALITY)),
    ]


def _demos(results: Results) -> list[Finding]:
    ends = (results.study.points[0], results.study.points[-1])
    return [
        _finding(
            "demos",
            "The number of iterations does not depend on the number of demonstrations",
            on_par,
            _along(results, (HARD, MEAN, SOFT, RANDOM), ends, ("n_iter",)),
        ),
        _finding(
            "demos",
            "The duration grows with the number of demonstrations",
            everywhere_below,
            _along(results, (HARD, MEAN, SOFT, RANDOM), ends, ("seconds",)),
        ),
        *_ahead(results),
    ]


def _ahead(results: Results) -> list[Finding]:
    """Return whether hard clustering is ahead of random rewards, and of soft clustering, over a whole sweep."""
    return [
        _finding(
            results.study.name,
            f"Hard clustering is ahead of {name}",
            everywhere_below,
            _over(results, HARD, other, results.study.points, _QUALITY),
        )
        for name, other in (("random rewards", RANDOM), (f"soft ({_RANDOM_GMM})", SOFT), ("soft (GMM)", TIED))
    ]


def _wind(results: Results) -> list[Finding]:
    points = results.study.points
    return [
        *(
            _finding(
                "wind",
                f"Every method has a larger {MEASURES[measure]} with wind than without",
                everywhere_below,
                _along(results, METHODS, (points[0], points[-1]), (measure,)),
            )
            for measure in ("nll", *_QUALITY)
        ),
        *_ahead(results),
    ]


def _clusters(results: Results) -> list[Finding]:
    points = results.study.points

    def at(k: Point, other: Point, measure: str) -> Gap:
        return gap(results, (HARD, k), (HARD, other), measure, f"K = {k} and {other}")

    return [
        _finding(
            "clusters", "ANID is least at K = E", everywhere_below, [at(_E, k, "anid") for k in points if k != _E]
        ),
        _finding(
            "clusters",
            "GEVD falls until K = E and then no further",
            _falls_then_level,
            [at(b, a, "gevd") for a, b in pairwise(points)],
        ),
        _finding("clusters", "Test NLL grows with K", everywhere_below, [at(a, b, "nll") for a, b in pairwise(points)]),
        _finding(
            "clusters",
            "Warm starts help while K does not exceed E",
            everywhere_below,
            _over(results, HARD, RANDOM, tuple(k for k in points[1:] if float(k) <= _E), _QUALITY),
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
        _finding(
            "elements",
            "Warm starts are ahead of random rewards at large E",
            everywhere_below,
            _over(results, HARD, RANDOM, points[-2:], _QUALITY),
        ),
        _finding(
            "elements",
            "Hard clustering falls behind supervision at large E",
            everywhere_below,
            _over(results, SUPERVISED, HARD, points[-1:], _QUALITY),
        ),
        _finding(
            "elements",
            "More intents are harder for every unsupervised method",
            everywhere_below,
            _along(results, unsupervised, ends, ("anid",)),
        ),
        _finding(
            "elements",
            "More intents are not harder for the supervised one",
            on_par,
            _along(results, (SUPERVISED,), ends, _QUALITY),
        ),
    ]


def _imbalance(results: Results) -> list[Finding]:
    ends = (results.study.points[0], results.study.points[-1])
    return [
        _finding(
            "imbalance",
            "Hard clustering is as good with skewed shares as with equal ones",
            on_par,
            _along(results, (HARD,), ends, _QUALITY),
        ),
        *_ahead(results),
        _finding(
            "imbalance",
            f"Soft clustering ({_RANDOM_GMM}) is worse with skewed shares than with equal ones",
            everywhere_below,
            _along(results, (SOFT,), ends, _QUALITY),
        ),
    ]


def _margin(results: Results) -> list[Finding]:
    calm, windy = results.study.points[0], results.study.points[-1]
    found = gap(results, (SUPERVISED, windy), (SUPERVISED, calm), "margin", f"w = {windy} and {calm}")
    return [
        _finding("margin", "The margin between intents is smaller with wind than without", everywhere_below, [found])
    ]


_BY_STUDY: dict[str, Callable[[Results], list[Finding]]] = {
    "table1": _table,
    "boxplots": _table,
    "demos": _demos,
    "wind": _wind,
    "clusters": _clusters,
    "elements": _elements,
    "imbalance": _imbalance,
    "margin": _margin,
}


def findings(results: Results) -> list[Finding]:
    """Return what a study says of the paper's findings; of a study that is not the paper's there are none."""
    name = results.study.name
    return _BY_STUDY[name](results) if STUDIES.get(name) == results.study else []
