"""Claims of the paper and of the studies beyond it, each with a verdict from the records.

A cell of a study is below another in a measure if both paired tests, Student's and Wilcoxon's, reject equality with
p < 0.01 over their common worlds. Two cells are on par if the 99 % interval of their difference lies within a margin
(`margin_of`), and not on par if it lies outside; otherwise the claim is open.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType

from limiirl.experiments.results import MEASURES, Cell, Results
from limiirl.experiments.spec import METHODS, Point
from limiirl.experiments.studies import BETTER_STARTS, ML_IRL, PAPER_LENGTH, STUDIES, join_method, model_of

HOLDS, FAILS, OPEN = "holds", "does not hold", "open"
HARD, MEAN, SUPERVISED = "k-means, MLE", "k-means, mean", "supervised"
RANDOM, UNIFORM = "random rewards", "random responsibilities"
# Soft clusterings: a GMM with tied covariance started from k-means, and one with full covariances and random starts.
# The paper does not state which one it uses.
TIED, SOFT = "GMM, MLE", "full GMM, MLE"
RANDOM_GMM = "full GMM, random starts"
_SOFT_KINDS = ((RANDOM_GMM, SOFT), ("GMM", TIED))
QUALITY = ("anid", "gevd")
# With fewer worlds Wilcoxon's test cannot reach p < 0.01.
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
    """Verdict on a claim of a study: "holds", "does not hold" or "open", with the comparisons that decide it."""

    study: str
    claim: str
    verdict: str
    evidence: str


MARGINS = {"nll": 0.1, "anid": 0.02, "gevd": 0.5, "n_iter": 5.0}
"""Equivalence margins: differences that do not matter."""

CAUSAL_GEVD = 0.1
"""Margin in GEVD of causal models, whose GEVD is about a tenth of MaxEnt's."""


def margin_of(measure: str, model: str) -> float:
    """Return the equivalence margin of a measure with a model, nan if there is none.

    The likelihood of Sigma-GIRL is a profile likelihood without a scale, and its rewards are identified up to scale.

    Examples
    --------
    >>> margin_of("gevd", "MaxEnt"), margin_of("gevd", "MLIRL"), margin_of("nll", "SigmaGIRL")
    (0.5, 0.1, nan)
    """
    if model == "SigmaGIRL" and measure in ("nll", "gevd"):
        return math.nan
    return CAUSAL_GEVD if measure == "gevd" and model in ("MaxCausalEnt", "MLIRL") else MARGINS.get(measure, math.nan)


@dataclass(frozen=True)
class Gap:
    """Paired comparison of two cells.

    Attributes
    ----------
    sign : int or None
        -1 if the first is significantly below the second, 1 above, 0 neither, None for too few worlds.
    text : str
    low, high : float
        99 % interval of the difference; nan for too few worlds.
    margin : float
        Equivalence margin; nan if there is none.
    """

    sign: int | None
    text: str
    low: float = math.nan
    high: float = math.nan
    margin: float = math.nan

    @property
    def same(self) -> bool:
        """True if the interval lies within the margin."""
        return -self.margin <= self.low and self.high <= self.margin

    @property
    def apart(self) -> bool:
        """True if the interval lies outside the margin."""
        return self.low > self.margin or self.high < -self.margin


def gap(results: Results, first: Cell, second: Cell, measure: str, label: str = "") -> Gap:
    """Compare two cells of a study."""
    name = MEASURES.get(measure, measure)
    at = f" at {label}" if label else ""
    comparison = results.compare(first, second, measure)
    if comparison is None or comparison.difference.n < _LEAST_WORLDS:
        return Gap(None, f"{name}{at}: fewer than {_LEAST_WORLDS} worlds")
    means, difference = comparison.means, comparison.difference
    sign = 0 if comparison.better is None else (-1 if difference.mean < 0 else 1)
    p = max(comparison.p_t, comparison.p_wilcoxon)
    text = f"{name} {means[0]:.3g} against {means[1]:.3g}{at}, difference {difference} (p = {p:.1g})"
    models = {_model(results, cell) for cell in (first, second)}
    # Equivalence is tested within a model only.
    margin = margin_of(measure, models.pop()) if len(models) == 1 else math.nan
    return Gap(sign, text, difference.low, difference.high, margin)


def _model(results: Results, cell: Cell) -> str:
    method, x = cell
    spec = results.study.spec(method, x[0] if isinstance(x, tuple) else x)
    return "" if spec is None else spec.model


Rule = Callable[[Sequence[Gap]], str]
Claim = tuple[str, Rule, list[Gap]]
"""A claim, the rule of its verdict, and the comparisons that the rule applies to."""


def all_below(gaps: Sequence[Gap]) -> str:
    """Holds if every first cell is below the second; does not hold if one is above."""
    signs = [g.sign for g in gaps]
    return HOLDS if all(s == -1 for s in signs) else FAILS if 1 in signs else OPEN


def on_par(gaps: Sequence[Gap]) -> str:
    """Holds if every difference lies within its margin; does not hold if one lies outside.

    Examples
    --------
    >>> on_par([Gap(1, "", 0.1, 0.9, margin=0.5)]), on_par([Gap(1, "", 0.6, 0.9, margin=0.5)])
    ('open', 'does not hold')
    """
    return HOLDS if all(g.same for g in gaps) else FAILS if any(g.apart for g in gaps) else OPEN


def at_most(margin: float) -> Rule:
    """Return the rule that holds if no first cell exceeds the second by more than `margin`.

    Examples
    --------
    >>> at_most(0.02)([Gap(1, "", 0.001, 0.01), Gap(-1, "", -0.3, -0.1)])
    'holds'
    """

    def rule(gaps: Sequence[Gap]) -> str:
        return HOLDS if all(g.high <= margin for g in gaps) else FAILS if any(g.low > margin for g in gaps) else OPEN

    return rule


def symbol(results: Results) -> str:
    """Return the symbol of a study's axis."""
    return _SYMBOLS[results.study.name]


def compare_means(
    results: Results, first: str, second: str, xs: tuple[Point, ...], measures: Iterable[str]
) -> list[Gap]:
    """Compare the means of two methods over points of the axis, which are taken per world."""
    if len(results.study.points) == 1:
        label = ""
    elif len(xs) == 1:
        label = str(xs[0]) if isinstance(xs[0], str) else f"{symbol(results)} = {xs[0]}"
    else:
        label = f"{symbol(results)} = {', '.join(map(str, xs))} on average"
    return [gap(results, (first, xs), (second, xs), m, label) for m in measures]


def compare_each(results: Results, first: str, second: str, xs: Iterable[Point], measures: Iterable[str]) -> list[Gap]:
    """Compare two methods at each point of the axis."""
    return [gap(results, (first, x), (second, x), m, f"{symbol(results)} = {x}") for m in measures for x in xs]


def compare_ends(results: Results, methods: Iterable[str], measures: Iterable[str]) -> list[Gap]:
    """Compare each method at the first point of the axis with itself at the last."""
    first, last = results.study.points[0], results.study.points[-1]
    label = f"{symbol(results)} = {first} and {last}"
    return [gap(results, (name, first), (name, last), m, f"{name}, {label}") for m in measures for name in methods]


def _outperforms(results: Results, xs: tuple[Point, ...], others: Iterable[tuple[str, str]]) -> list[Claim]:
    """Return the claims that hard clustering outperforms other methods, given as (name, method)."""
    return [
        (f"Hard clustering outperforms {name}", all_below, compare_means(results, HARD, other, xs, QUALITY))
        for name, other in others
    ]


_SOFT_STARTS = tuple((f"soft ({kind})", method) for kind, method in _SOFT_KINDS)
_OTHER_STARTS = ((RANDOM, RANDOM), *_SOFT_STARTS)


def _warm_starts(results: Results, xs: tuple[Point, ...], others: Iterable[str]) -> list[Claim]:
    return [
        (
            f"{method} outperforms {other} in ANID, GEVD and iterations",
            all_below,
            compare_means(results, method, other, xs, (*QUALITY, "n_iter")),
        )
        for method in (HARD, MEAN)
        for other in others
    ]


def _like_supervision(results: Results, xs: tuple[Point, ...]) -> Claim:
    gaps = compare_means(results, HARD, SUPERVISED, xs, QUALITY)
    return "Hard clustering is on par with supervision", on_par, gaps


def _table(results: Results) -> list[Claim]:
    at = (PAPER_LENGTH,)
    mean = compare_means(results, HARD, MEAN, at, ("nll", *QUALITY))
    return [
        *_warm_starts(results, at, (RANDOM,)),
        ("MLE and mean rewards are on par", on_par, mean),
        *_outperforms(results, at, _SOFT_STARTS),
        ("Warm and random starts are on par in NLL", on_par, compare_means(results, HARD, RANDOM, at, ("nll",))),
        _like_supervision(results, at),
    ]


def _demos(results: Results) -> list[Claim]:
    methods = (HARD, MEAN, SOFT, RANDOM)
    iterations, seconds = (compare_ends(results, methods, (measure,)) for measure in ("n_iter", "seconds"))
    return [
        ("The number of iterations does not depend on the number of demonstrations", on_par, iterations),
        ("The duration increases with the number of demonstrations", all_below, seconds),
        *_outperforms(results, results.study.points, _OTHER_STARTS),
    ]


def _wind(results: Results) -> list[Claim]:
    return [
        *(
            (
                f"Every method has a larger {MEASURES[measure]} with wind than without",
                all_below,
                compare_ends(results, METHODS, (measure,)),
            )
            for measure in ("nll", *QUALITY)
        ),
        *_outperforms(results, results.study.points, _OTHER_STARTS),
    ]


_E = 3  # elements in the study of K


def _clusters(results: Results) -> list[Claim]:
    points = results.study.points

    def compare(k: Point, other: Point, measure: str) -> Gap:
        return gap(results, (HARD, k), (HARD, other), measure, f"K = {k} and {other}")

    few = tuple(k for k in points[1:] if float(k) <= _E)
    return [
        ("ANID is smallest at K = E", all_below, [compare(_E, k, "anid") for k in points if k != _E]),
        (
            "GEVD decreases up to K = E and is constant from there",
            _decreases_then_constant,
            [compare(b, a, "gevd") for a, b in pairwise(points)],
        ),
        ("Test NLL increases with K", all_below, [compare(a, b, "nll") for a, b in pairwise(points)]),
        (
            "Warm starts outperform random rewards for K up to E",
            all_below,
            compare_means(results, HARD, RANDOM, few, QUALITY),
        ),
    ]


def _decreases_then_constant(gaps: Sequence[Gap]) -> str:
    """Holds if GEVD decreases from K to K + 1 up to E, and is on par from there."""
    verdicts = all_below(gaps[: _E - 1]), on_par(gaps[_E - 1 :])
    return FAILS if FAILS in verdicts else OPEN if OPEN in verdicts else HOLDS


def _elements(results: Results) -> list[Claim]:
    points = results.study.points
    unsupervised = [method for method in METHODS if method != SUPERVISED]
    return [
        (
            "Warm starts outperform random rewards at large E",
            all_below,
            compare_means(results, HARD, RANDOM, points[-2:], QUALITY),
        ),
        (
            "Supervision outperforms hard clustering at large E",
            all_below,
            compare_means(results, SUPERVISED, HARD, points[-1:], QUALITY),
        ),
        (
            "ANID of every unsupervised method increases with E",
            all_below,
            compare_ends(results, unsupervised, ("anid",)),
        ),
        ("Errors of the supervised method do not depend on E", on_par, compare_ends(results, (SUPERVISED,), QUALITY)),
    ]


def _imbalance(results: Results) -> list[Claim]:
    hard, soft = (compare_ends(results, (method,), QUALITY) for method in (HARD, SOFT))
    return [
        ("Hard clustering with skewed weights is on par with equal weights", on_par, hard),
        *_outperforms(results, results.study.points, _OTHER_STARTS),
        (f"Soft clustering ({RANDOM_GMM}) is worse with skewed than with equal weights", all_below, soft),
    ]


def _margin(results: Results) -> list[Claim]:
    calm, windy = results.study.points[0], results.study.points[-1]
    margins = gap(results, (SUPERVISED, windy), (SUPERVISED, calm), "margin", f"w = {windy} and {calm}")
    return [("The margin between intents is smaller with wind than without", all_below, [margins])]


def _mlirl(results: Results) -> list[Claim]:
    at = (ML_IRL,)
    soft = _outperforms(results, at, _SOFT_STARTS)
    return [*_warm_starts(results, at, (RANDOM, UNIFORM)), *soft, _like_supervision(results, at)]


_REWARD = "k-means, reward features"
_FEATURE_PAIRS = (
    ("k-means", _REWARD, "k-means, policy features"),
    ("GMM", "GMM, reward features", "GMM, policy features"),
)


def _sigma(results: Results) -> list[Claim]:
    points = results.study.points
    random = (UNIFORM, RANDOM)
    return [
        *(
            (
                f"Warm starts and {other} are on par in ANID",
                on_par,
                compare_means(results, _REWARD, other, points, ("anid",)),
            )
            for other in random
        ),
        *(
            (
                f"Warm starts need fewer iterations and less time than {other} (in the paper slightly)",
                all_below,
                compare_means(results, _REWARD, other, points, ("n_iter", "seconds")),
            )
            for other in random
        ),
        *(
            (
                f"Clustering by reward and by policy features are on par ({kind})",
                on_par,
                compare_means(results, reward, policy, points, ("anid",)),
            )
            for kind, reward, policy in _FEATURE_PAIRS
        ),
        # Not a claim of the paper, which saw no difference.
        *(
            (
                f"Warm starts are more accurate than {other} with {n} trajectories per agent",
                all_below,
                compare_each(results, other, _REWARD, (n,), ("accuracy",)),
            )
            for other in random
            for n in points
        ),
    ]


BASELINE, BEST = "MaxEnt", "MaxCausalEnt"
NEAR = MARGINS["anid"]
"""Difference in ANID up to which a method is as good as supervision."""
MANY = (4, 5, 6)
"""Numbers of intents at which starts are compared with supervision and with k-means."""
CAUSAL = (BEST, "ML-IRL", "ML-IRL, paper's", "ML-IRL, averaged")
"""Causal models."""
N_HEADLINES = len(CAUSAL) + 1
"""Number of headline claims, the first of a study: rewards of each causal model, and supervision."""


def _models(results: Results) -> tuple[str, ...]:
    return tuple(dict.fromkeys(model_of(method) for method in results.study.methods))


def _common_points(results: Results, *methods: str, among: Iterable[Point] | None = None) -> tuple[Point, ...]:
    """Return the points at which a study has all of some methods."""
    points = results.study.points if among is None else [x for x in results.study.points if x in tuple(among)]
    return tuple(x for x in points if all(results.study.spec(name, x) is not None for name in methods))


def _at(results: Results, xs: tuple[Point, ...], *, mean: bool = False) -> str:
    return f"at {symbol(results)} = {', '.join(map(str, xs))}" + (" on average" if mean and len(xs) > 1 else "")


def _rewards(results: Results, xs: tuple[Point, ...]) -> Iterator[Claim]:
    """Yield the claims that each causal model learns better rewards than MaxEnt."""
    for model in CAUSAL:
        first, second = join_method(model, HARD), join_method(BASELINE, HARD)
        both = _common_points(results, first, second, among=xs)
        claim = f"{model} learns better rewards than {BASELINE} {_at(results, both)} (GEVD, both from k-means)"
        yield claim, all_below, compare_each(results, first, second, both, ("gevd",))


def _supervision(results: Results) -> Claim:
    first, second = join_method(BEST, HARD), join_method(BEST, SUPERVISED)
    xs = _common_points(results, first, second)
    claim = f"{BEST} from k-means is on par with {BEST} from the true labels {_at(results, xs)}"
    return claim, on_par, compare_each(results, first, second, xs, QUALITY)


def _near(results: Results) -> Iterator[Claim]:
    """Yield the claims that starts come near supervision with many intents."""
    for start in (HARD, *BETTER_STARTS):
        for model in _models(results):
            method, ideal = join_method(model, start), join_method(model, SUPERVISED)
            xs = _common_points(results, method, ideal, among=MANY)
            if xs:
                claim = f"{model} from {start} is within {NEAR} of supervision in ANID {_at(results, xs)}"
                yield claim, at_most(NEAR), compare_each(results, method, ideal, xs, ("anid",))


def _better_starts(results: Results, among: tuple[Point, ...]) -> Iterator[Claim]:
    """Yield the claims that better starts than k-means reduce ANID on average over points.

    The points are fixed in advance: selecting those at which k-means failed would favour the other starts.
    """
    for start in BETTER_STARTS:
        for model in _models(results):
            better, plain = join_method(model, start), join_method(model, HARD)
            xs = _common_points(results, better, plain, among=among)
            if xs:
                claim = f"{model} from {start} has a lower ANID than from k-means {_at(results, xs, mean=True)}"
                yield claim, all_below, compare_means(results, better, plain, xs, ("anid",))


def _times(results: Results) -> Iterator[Claim]:
    """Yield the claims that warm starts save time."""
    for model in _models(results):
        for other in (RANDOM, UNIFORM):
            first, second = join_method(model, HARD), join_method(model, other)
            xs = _common_points(results, first, second)
            if xs:
                claim = f"{model} takes less time from k-means than from {other} {_at(results, xs, mean=True)}"
                yield claim, all_below, compare_means(results, first, second, xs, ("seconds",))


def _beyond_models(results: Results) -> list[Claim]:
    xs, baseline = results.study.points, join_method(BASELINE, HARD)
    claims: list[Claim] = [
        (
            f"{model} from k-means outperforms {BASELINE} from k-means in ANID and GEVD",
            all_below,
            compare_each(results, join_method(model, HARD), baseline, xs, QUALITY),
        )
        for model in CAUSAL
    ]
    return [*claims, _supervision(results)]


def _beyond_elements(results: Results) -> list[Claim]:
    rewards = _rewards(results, results.study.points)
    return [*rewards, _supervision(results), *_near(results), *_better_starts(results, MANY), *_times(results)]


def _beyond_wind(results: Results) -> list[Claim]:
    rewards = _rewards(results, tuple(x for x in results.study.points if float(x) > 0.0))
    return [*rewards, _supervision(results), *_better_starts(results, results.study.points), *_times(results)]


_BY_STUDY: Mapping[str, Callable[[Results], list[Claim]]] = MappingProxyType(
    {
        "table1": _table,
        "boxplots": _table,
        "demos": _demos,
        "wind": _wind,
        "clusters": _clusters,
        "elements": _elements,
        "imbalance": _imbalance,
        "margin": _margin,
        "mlirl": _mlirl,
        "sigma-girl": _sigma,
        "beyond-models": _beyond_models,
        "beyond-elements": _beyond_elements,
        "beyond-wind": _beyond_wind,
    }
)


def findings(results: Results) -> list[Finding]:
    """Return the verdicts on the claims of a study in `STUDIES`; others have no claims."""
    name = results.study.name
    if STUDIES.get(name) != results.study:
        return []
    return [_judge(name, *claim) for claim in _BY_STUDY[name](results)]


def _judge(study: str, claim: str, rule: Rule, gaps: list[Gap]) -> Finding:
    if all(gap.sign is None for gap in gaps):
        return Finding(study, claim, OPEN, f"Fewer than {_LEAST_WORLDS} worlds.")
    evidence = "; ".join(gap.text for gap in gaps) + "."
    return Finding(study, claim, rule(gaps), evidence[:1].upper() + evidence[1:])
