"""Statements that records bear out or not: how two cells of a study are compared, and what follows.

One cell is below another in a measure where both paired tests, Student's and Wilcoxon's, say so with p < 0.01 over the
worlds that both have. Two are on par where the 99 % interval of their difference lies within a margin, `margin_of`: no
difference found is not yet none. They are not where it lies wholly outside; between the two the worlds do not decide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from limiirl.experiments.results import MEASURES, Cell, Results
from limiirl.experiments.studies import Point

HOLDS, FAILS, OPEN = "holds", "does not hold", "open"
HARD, MEAN, SUPERVISED = "k-means, MLE", "k-means, mean", "supervised"
RANDOM, UNIFORM = "random rewards", "random responsibilities"
# Soft clusters that begin from k-means, with one covariance for all; and such that begin at random, with one each. The
# paper does not say which it has.
TIED, SOFT = "GMM, MLE", "full GMM, MLE"
RANDOM_GMM = "full GMM, random starts"
QUALITY = ("anid", "gevd")
# Of fewer worlds Wilcoxon's test cannot reach p < 0.01, whatever they say.
_LEAST_WORLDS = 8
_SYMBOLS = {
    "demos": "N",
    "wind": "w",
    "clusters": "K",
    "elements": "E",
    "imbalance": "p",
    "margin": "w",
    "sigma-girl": "n",
    "beyond-elements": "E",
    "beyond-wind": "w",
    "beyond-models": "E",
}


@dataclass(frozen=True)
class Finding:
    """A claim, of the paper's or of ours, what the records say of it, and why.

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

CAUSAL_GEVD = 0.1
"""The margin in GEVD of causal models, whose rewards lose a tenth of what MaxEnt's do."""

_CAUSAL = ("MaxCausalEnt", "MLIRL")
_AGENTS = "SigmaGIRL"


def margin_of(measure: str, model: str) -> float:
    """Return the difference in a measure that does not matter with a model, nan where none is known not to.

    Sigma-GIRL's likelihood is a profile, no density: its NLL has no scale on which a difference would be small, and
    its GEVD is of rewards that are known up to their length.

    Examples
    --------
    >>> margin_of("gevd", "MaxEnt"), margin_of("gevd", "MLIRL"), margin_of("nll", "SigmaGIRL")
    (0.5, 0.1, nan)
    """
    if model == _AGENTS and measure in ("nll", "gevd"):
        return math.nan
    return CAUSAL_GEVD if measure == "gevd" and model in _CAUSAL else MARGINS.get(measure, math.nan)


@dataclass(frozen=True)
class Gap:
    """A paired comparison of two cells.

    Attributes
    ----------
    sign : int or None
        -1 where the first is certainly below the second, 1 above, 0 not certain, None for too few worlds.
    words : str
    low, high : float
        The 99 % interval of the difference; nan for too few worlds.
    margin : float
        The difference that does not matter; nan where none is known not to.

    Examples
    --------
    >>> Gap(0, "", -0.2, 0.3, margin=0.5).same, Gap(-1, "", -0.9, -0.6, margin=0.5).apart
    (True, True)
    """

    sign: int | None
    words: str
    low: float = math.nan
    high: float = math.nan
    margin: float = math.nan

    @property
    def same(self) -> bool:
        """Whether the difference is certain not to matter."""
        return -self.margin <= self.low and self.high <= self.margin

    @property
    def apart(self) -> bool:
        """Whether the difference is certain to matter."""
        return self.low > self.margin or self.high < -self.margin


def gap(results: Results, first: Cell, second: Cell, measure: str, label: str = "") -> Gap:
    """Compare two cells of a study."""
    name = MEASURES.get(measure, measure)
    at = f" at {label}" if label else ""
    found = results.compare(first, second, measure)
    if found is None or found.difference.n < _LEAST_WORLDS:
        return Gap(None, f"{name}{at}: fewer than {_LEAST_WORLDS} worlds")
    sign = 0 if found.better is None else (-1 if found.difference.mean < 0 else 1)
    p = max(found.p_t, found.p_wilcoxon)
    words = f"{name} {found.means[0]:.3g} against {found.means[1]:.3g}{at}, difference {found.difference} (p = {p:.1g})"
    models = {_model(results, cell) for cell in (first, second)}
    # Of two models there is no margin: nobody asks whether they are the same.
    margin = margin_of(measure, models.pop()) if len(models) == 1 else math.nan
    return Gap(sign, words, found.difference.low, found.difference.high, margin)


def _model(results: Results, cell: Cell) -> str:
    method, x = cell
    spec = results.study.spec(method, x[0] if isinstance(x, tuple) else x)
    return "" if spec is None else spec.model


def everywhere_below(gaps: Sequence[Gap]) -> str:
    """Holds where every first cell is below; does not where one is above."""
    signs = [g.sign for g in gaps]
    return HOLDS if all(s == -1 for s in signs) else FAILS if 1 in signs else OPEN


def on_par(gaps: Sequence[Gap]) -> str:
    """Holds where every difference is certain to be small; does not where one is certain to be larger.

    Examples
    --------
    >>> on_par([Gap(1, "", 0.1, 0.9, margin=0.5)]), on_par([Gap(1, "", 0.6, 0.9, margin=0.5)])
    ('open', 'does not hold')
    """
    if all(g.same for g in gaps):
        return HOLDS
    return FAILS if any(g.apart for g in gaps) else OPEN


def at_most(margin: float) -> Callable[[Sequence[Gap]], str]:
    """Return the rule: holds where every first cell is certain to exceed the second by no more than a margin.

    It does not hold where one is certain to exceed it by more.

    Examples
    --------
    >>> at_most(0.02)([Gap(1, "", 0.001, 0.01), Gap(-1, "", -0.3, -0.1)])
    'holds'
    >>> at_most(0.02)([Gap(1, "", 0.001, 0.03)]), at_most(0.02)([Gap(1, "", 0.03, 0.04)])
    ('open', 'does not hold')
    """

    def rule(gaps: Sequence[Gap]) -> str:
        if all(g.high <= margin for g in gaps):
            return HOLDS
        return FAILS if any(g.low > margin for g in gaps) else OPEN

    return rule


def finding(study: str, claim: str, rule: Callable[[Sequence[Gap]], str], gaps: Iterable[Gap]) -> Finding:
    """Return a claim about a study with the verdict of a rule on some comparisons, which are the evidence."""
    known = list(gaps)
    if all(g.sign is None for g in known):
        return Finding(study, claim, OPEN, f"Fewer than {_LEAST_WORLDS} worlds: no test could tell.")
    evidence = "; ".join(g.words for g in known) + "."
    return Finding(study, claim, rule(known), evidence[:1].upper() + evidence[1:])


def over(results: Results, first: str, second: str, xs: tuple[Point, ...], measures: Iterable[str]) -> list[Gap]:
    """Compare two methods by their means over points of the axis, world by world: one test for all points."""
    return [gap(results, (first, xs), (second, xs), m, named(results, xs)) for m in measures]


def named(results: Results, xs: Sequence[Point]) -> str:
    """Return points of a study's axis in words, nothing for the only one that it has."""
    if len(results.study.points) == 1:
        return ""
    if len(xs) == 1:
        return str(xs[0]) if isinstance(xs[0], str) else f"{symbol(results)} = {xs[0]}"
    return f"{symbol(results)} = {', '.join(map(str, xs))} on average"


def at_each(results: Results, first: str, second: str, xs: Iterable[Point], measures: Iterable[str]) -> list[Gap]:
    """Compare two methods at each point of the axis by itself."""
    return [gap(results, (first, x), (second, x), m, f"{symbol(results)} = {x}") for m in measures for x in xs]


def symbol(results: Results) -> str:
    """Return the letter of a study's axis."""
    return _SYMBOLS[results.study.name]


def along(results: Results, methods: Iterable[str], ends: tuple[Point, Point], measures: Iterable[str]) -> list[Gap]:
    """Compare each method's value at one point (first) with its value at another, in the same worlds."""
    return [
        gap(results, (method, ends[0]), (method, ends[1]), m, f"{method}, {symbol(results)} = {ends[0]} and {ends[1]}")
        for m in measures
        for method in methods
    ]
