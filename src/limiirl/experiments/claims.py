"""Claims of the paper and of further studies, and verdicts on these claims from the records.

A cell of a study is a method at one point of the axis. A measure is significantly lower in one cell than in another if
two paired tests over the common worlds, Student's t-test and Wilcoxon's signed-rank test, both have p < 0.01. Two cells
are equivalent if the 99 % interval of their difference lies within +-`margin_of`, and different if it lies outside. A
claim that is neither confirmed nor refuted is open.
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
# The paper does not specify its soft clustering. Two variants are compared: a GMM with a tied covariance, initialised
# by k-means, and a GMM with full covariances and random initialisations.
TIED, SOFT = "GMM, MLE", "full GMM, MLE"
RANDOM_GMM = "full GMM, random starts"
_SOFT_KINDS = ((RANDOM_GMM, SOFT), ("GMM", TIED))
QUALITY = ("anid", "gevd")
# Minimum number of worlds; with fewer, Wilcoxon's test cannot reach p < 0.01.
_MIN_WORLDS = 8
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
    """Verdict on a claim of a study ("holds", "does not hold" or "open"), and the comparisons as text."""

    study: str
    claim: str
    verdict: str
    evidence: str


MARGINS = {"nll": 0.1, "anid": 0.02, "gevd": 0.5, "n_iter": 5.0}
"""Equivalence margins by measure: the largest differences that are considered negligible."""

CAUSAL_GEVD = 0.1
"""Equivalence margin of GEVD for causal models, whose GEVD is about a tenth of the GEVD of MaxEnt."""


def margin_of(measure: str, model: str) -> float:
    """Return the equivalence margin of a measure for a model, or nan if there is none.

    Sigma-GIRL has no margins in NLL and GEVD, because its profile likelihood is not normalised and its rewards are
    identified only up to scale.

    Examples
    --------
    >>> margin_of("gevd", "MaxEnt"), margin_of("gevd", "MLIRL"), margin_of("nll", "SigmaGIRL")
    (0.5, 0.1, nan)
    """
    if model == "SigmaGIRL" and measure in ("nll", "gevd"):
        return math.nan
    return CAUSAL_GEVD if measure == "gevd" and model in ("MaxCausalEnt", "MLIRL") else MARGINS.get(measure, math.nan)


@dataclass(frozen=True)
class PairedDifference:
    """Paired comparison of two cells.

    Attributes
    ----------
    sign : int or None
        -1 if the first mean is significantly lower than the second, 1 if it is significantly higher, 0 if the
        difference is not significant, and None if there are too few worlds.
    text : str
        Means, difference and p-value.
    low, high : float
        99 % interval of the difference; nan if there are too few worlds.
    margin : float
        Equivalence margin; nan if there is none.
    """

    sign: int | None
    text: str
    low: float = math.nan
    high: float = math.nan
    margin: float = math.nan

    @property
    def equivalent(self) -> bool:
        """True if the interval lies within the margin."""
        return -self.margin <= self.low and self.high <= self.margin

    @property
    def different(self) -> bool:
        """True if the interval lies outside the margin."""
        return self.low > self.margin or self.high < -self.margin


def compare_cells(results: Results, first: Cell, second: Cell, measure: str, label: str = "") -> PairedDifference:
    """Compare a measure in two cells of a study."""
    name = MEASURES.get(measure, measure)
    at = f" at {label}" if label else ""
    comparison = results.compare(first, second, measure)
    if comparison is None or comparison.difference.n < _MIN_WORLDS:
        return PairedDifference(None, f"{name}{at}: fewer than {_MIN_WORLDS} worlds")
    means, difference = comparison.means, comparison.difference
    sign = 0 if comparison.better is None else (-1 if difference.mean < 0 else 1)
    p = max(comparison.p_t, comparison.p_wilcoxon)
    text = f"{name} {means[0]:.3g} against {means[1]:.3g}{at}, difference {difference} (p = {p:.1g})"
    models = {_model(results, cell) for cell in (first, second)}
    # Equivalence is tested only between cells with the same model.
    margin = margin_of(measure, models.pop()) if len(models) == 1 else math.nan
    return PairedDifference(sign, text, difference.low, difference.high, margin)


def _model(results: Results, cell: Cell) -> str:
    method, x = cell
    spec = results.study.spec(method, x[0] if isinstance(x, tuple) else x)
    return "" if spec is None else spec.model


Rule = Callable[[Sequence[PairedDifference]], str]
Claim = tuple[str, Rule, list[PairedDifference]]
"""A claim, its decision rule, and the comparisons to which the rule is applied."""


def judge_lower(differences: Sequence[PairedDifference]) -> str:
    """Judge the claim that the first mean is lower in all comparisons; a higher mean in one comparison refutes it."""
    signs = [d.sign for d in differences]
    return HOLDS if all(s == -1 for s in signs) else FAILS if 1 in signs else OPEN


def judge_equivalent(differences: Sequence[PairedDifference]) -> str:
    """Judge the claim that the cells are equivalent in all comparisons; one difference outside its margin refutes it.

    Examples
    --------
    >>> judge_equivalent([PairedDifference(1, "", 0.1, 0.9, margin=0.5)])
    'open'
    """
    return HOLDS if all(d.equivalent for d in differences) else FAILS if any(d.different for d in differences) else OPEN


def at_most(margin: float) -> Rule:
    """Return the decision rule for the claim that the first mean exceeds the second by at most `margin`.

    Examples
    --------
    >>> at_most(0.02)([PairedDifference(1, "", 0.001, 0.01), PairedDifference(-1, "", -0.3, -0.1)])
    'holds'
    """

    def rule(differences: Sequence[PairedDifference]) -> str:
        if all(d.high <= margin for d in differences):
            return HOLDS
        return FAILS if any(d.low > margin for d in differences) else OPEN

    return rule


def get_symbol(results: Results) -> str:
    """Return the symbol of a study's axis, such as "N"."""
    return _SYMBOLS[results.study.name]


def compare_means(
    results: Results, first: str, second: str, xs: tuple[Point, ...], measures: Iterable[str]
) -> list[PairedDifference]:
    """Compare two methods by their averages over points of the axis, world by world."""
    if len(results.study.points) == 1:
        label = ""
    elif len(xs) == 1:
        label = str(xs[0]) if isinstance(xs[0], str) else f"{get_symbol(results)} = {xs[0]}"
    else:
        label = f"{get_symbol(results)} = {', '.join(map(str, xs))} on average"
    return [compare_cells(results, (first, xs), (second, xs), m, label) for m in measures]


def compare_each(
    results: Results, first: str, second: str, xs: Iterable[Point], measures: Iterable[str]
) -> list[PairedDifference]:
    """Compare two methods at each point of the axis."""
    return [
        compare_cells(results, (first, x), (second, x), m, f"{get_symbol(results)} = {x}") for m in measures for x in xs
    ]


def compare_ends(results: Results, methods: Iterable[str], measures: Iterable[str]) -> list[PairedDifference]:
    """Compare the first point of the axis with the last point, for each method."""
    first, last = results.study.points[0], results.study.points[-1]
    label = f"{get_symbol(results)} = {first} and {last}"
    return [
        compare_cells(results, (name, first), (name, last), m, f"{name}, {label}") for m in measures for name in methods
    ]


def _outperforms(results: Results, xs: tuple[Point, ...], others: Iterable[tuple[str, str]]) -> list[Claim]:
    """Return the claims that hard clustering outperforms `others`, which are pairs of a name and a method."""
    return [
        (f"Hard clustering outperforms {name}", judge_lower, compare_means(results, HARD, other, xs, QUALITY))
        for name, other in others
    ]


_SOFT_STARTS = tuple((f"soft ({kind})", method) for kind, method in _SOFT_KINDS)
_OTHER_STARTS = ((RANDOM, RANDOM), *_SOFT_STARTS)


def _warm_starts(results: Results, xs: tuple[Point, ...], others: Iterable[str]) -> list[Claim]:
    return [
        (
            f"{method} outperforms {other} in ANID, GEVD and iterations",
            judge_lower,
            compare_means(results, method, other, xs, (*QUALITY, "n_iter")),
        )
        for method in (HARD, MEAN)
        for other in others
    ]


def _like_supervision(results: Results, xs: tuple[Point, ...]) -> Claim:
    differences = compare_means(results, HARD, SUPERVISED, xs, QUALITY)
    return "Hard clustering performs as well as supervision", judge_equivalent, differences


def _table(results: Results) -> list[Claim]:
    at = (PAPER_LENGTH,)
    mean = compare_means(results, HARD, MEAN, at, ("nll", *QUALITY))
    nll = compare_means(results, HARD, RANDOM, at, ("nll",))
    return [
        *_warm_starts(results, at, (RANDOM,)),
        ("MLE and mean rewards perform equally well", judge_equivalent, mean),
        *_outperforms(results, at, _SOFT_STARTS),
        ("Warm and random starts have the same NLL", judge_equivalent, nll),
        _like_supervision(results, at),
    ]


def _demos(results: Results) -> list[Claim]:
    methods = (HARD, MEAN, SOFT, RANDOM)
    iterations, seconds = (compare_ends(results, methods, (measure,)) for measure in ("n_iter", "seconds"))
    return [
        ("The number of iterations does not depend on the number of demonstrations", judge_equivalent, iterations),
        ("The duration increases with the number of demonstrations", judge_lower, seconds),
        *_outperforms(results, results.study.points, _OTHER_STARTS),
    ]


def _wind(results: Results) -> list[Claim]:
    return [
        *(
            (
                f"Every method has a larger {MEASURES[measure]} with wind than without",
                judge_lower,
                compare_ends(results, METHODS, (measure,)),
            )
            for measure in ("nll", *QUALITY)
        ),
        *_outperforms(results, results.study.points, _OTHER_STARTS),
    ]


_E = 3  # number of elements in the study "clusters"


def _clusters(results: Results) -> list[Claim]:
    points = results.study.points

    def compare(k: Point, other: Point, measure: str) -> PairedDifference:
        return compare_cells(results, (HARD, k), (HARD, other), measure, f"K = {k} and {other}")

    gevd = [compare(b, a, "gevd") for a, b in pairwise(points)]
    warm = compare_means(results, HARD, RANDOM, tuple(k for k in points[1:] if float(k) <= _E), QUALITY)
    return [
        ("ANID is smallest at K = E", judge_lower, [compare(_E, k, "anid") for k in points if k != _E]),
        ("GEVD decreases up to K = E and is constant from there", _judge_decrease, gevd),
        ("Test NLL increases with K", judge_lower, [compare(a, b, "nll") for a, b in pairwise(points)]),
        ("Warm starts outperform random rewards for K up to E", judge_lower, warm),
    ]


def _judge_decrease(differences: Sequence[PairedDifference]) -> str:
    """Judge the claim that GEVD decreases with K for K <= E and is constant for K >= E."""
    verdicts = judge_lower(differences[: _E - 1]), judge_equivalent(differences[_E - 1 :])
    return FAILS if FAILS in verdicts else OPEN if OPEN in verdicts else HOLDS


def _elements(results: Results) -> list[Claim]:
    points = results.study.points
    unsupervised = [method for method in METHODS if method != SUPERVISED]
    warm = compare_means(results, HARD, RANDOM, points[-2:], QUALITY)
    supervision = compare_means(results, SUPERVISED, HARD, points[-1:], QUALITY)
    anid = compare_ends(results, unsupervised, ("anid",))
    errors = compare_ends(results, (SUPERVISED,), QUALITY)
    return [
        ("Warm starts outperform random rewards at large E", judge_lower, warm),
        ("Supervision outperforms hard clustering at large E", judge_lower, supervision),
        ("ANID of every unsupervised method increases with E", judge_lower, anid),
        ("Errors of the supervised method do not depend on E", judge_equivalent, errors),
    ]


def _imbalance(results: Results) -> list[Claim]:
    hard, soft = (compare_ends(results, (method,), QUALITY) for method in (HARD, SOFT))
    return [
        ("Hard clustering performs as well with skewed as with equal weights", judge_equivalent, hard),
        *_outperforms(results, results.study.points, _OTHER_STARTS),
        (f"Soft clustering ({RANDOM_GMM}) is worse with skewed than with equal weights", judge_lower, soft),
    ]


def _margin(results: Results) -> list[Claim]:
    calm, windy = results.study.points[0], results.study.points[-1]
    margins = compare_cells(results, (SUPERVISED, windy), (SUPERVISED, calm), "margin", f"w = {windy} and {calm}")
    return [("The margin between intents is smaller with wind than without", judge_lower, [margins])]


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
                f"Warm starts and {other} have the same ANID",
                judge_equivalent,
                compare_means(results, _REWARD, other, points, ("anid",)),
            )
            for other in random
        ),
        *(
            (
                f"Warm starts need fewer iterations and less time than {other} (slightly, in the paper)",
                judge_lower,
                compare_means(results, _REWARD, other, points, ("n_iter", "seconds")),
            )
            for other in random
        ),
        *(
            (
                f"Clustering by reward and by policy features perform equally well ({kind})",
                judge_equivalent,
                compare_means(results, reward, policy, points, ("anid",)),
            )
            for kind, reward, policy in _FEATURE_PAIRS
        ),
        # The paper reports no difference.
        *(
            (
                f"Warm starts are more accurate than {other} with {n} trajectories per agent",
                judge_lower,
                compare_each(results, other, _REWARD, (n,), ("accuracy",)),
            )
            for other in random
            for n in points
        ),
    ]


BASELINE, BEST = "MaxEnt", "MaxCausalEnt"
NEAR = MARGINS["anid"]
"""Largest difference in ANID at which a method is considered as good as supervision."""
MANY = (4, 5, 6)
"""Numbers of intents at which initialisations are compared with supervision and with k-means."""
CAUSAL = (BEST, "ML-IRL", "ML-IRL, paper's", "ML-IRL, averaged")
N_HEADLINES = len(CAUSAL) + 1
"""Number of main claims, which come first: one per causal model about its rewards, and one about supervision."""


def _models(results: Results) -> tuple[str, ...]:
    return tuple(dict.fromkeys(model_of(method) for method in results.study.methods))


def _common_points(results: Results, *methods: str, among: Iterable[Point] | None = None) -> tuple[Point, ...]:
    """Return the points at which a study contains all of the given methods."""
    points = results.study.points if among is None else [x for x in results.study.points if x in tuple(among)]
    return tuple(x for x in points if all(results.study.spec(name, x) is not None for name in methods))


def _at(results: Results, xs: tuple[Point, ...], *, mean: bool = False) -> str:
    return f"at {get_symbol(results)} = {', '.join(map(str, xs))}" + (" on average" if mean and len(xs) > 1 else "")


def _rewards(results: Results, xs: tuple[Point, ...]) -> Iterator[Claim]:
    """Yield the claims that each causal model learns better rewards than MaxEnt."""
    for model in CAUSAL:
        first, second = join_method(model, HARD), join_method(BASELINE, HARD)
        both = _common_points(results, first, second, among=xs)
        claim = f"{model} learns better rewards than {BASELINE} {_at(results, both)} (GEVD, both from k-means)"
        yield claim, judge_lower, compare_each(results, first, second, both, ("gevd",))


def _supervision(results: Results) -> Claim:
    first, second = join_method(BEST, HARD), join_method(BEST, SUPERVISED)
    xs = _common_points(results, first, second)
    claim = f"{BEST} from k-means performs as well as {BEST} from the true labels {_at(results, xs)}"
    return claim, judge_equivalent, compare_each(results, first, second, xs, QUALITY)


def _near(results: Results) -> Iterator[Claim]:
    """Yield the claims that, for `MANY` intents, an initialisation is almost as good as supervision in ANID."""
    for start in (HARD, *BETTER_STARTS):
        for model in _models(results):
            method, ideal = join_method(model, start), join_method(model, SUPERVISED)
            xs = _common_points(results, method, ideal, among=MANY)
            if xs:
                claim = f"{model} from {start} is within {NEAR} of supervision in ANID {_at(results, xs)}"
                yield claim, at_most(NEAR), compare_each(results, method, ideal, xs, ("anid",))


def _better_starts(results: Results, among: tuple[Point, ...]) -> Iterator[Claim]:
    """Yield the claims that the mean ANID over all points is lower for `BETTER_STARTS` than for k-means.

    The points are fixed in advance, because a selection of points at which k-means fails would favour the others.
    """
    for start in BETTER_STARTS:
        for model in _models(results):
            better, plain = join_method(model, start), join_method(model, HARD)
            xs = _common_points(results, better, plain, among=among)
            if xs:
                claim = f"{model} from {start} has a lower ANID than from k-means {_at(results, xs, mean=True)}"
                yield claim, judge_lower, compare_means(results, better, plain, xs, ("anid",))


def _times(results: Results) -> Iterator[Claim]:
    """Yield the claims that a fit from a warm start takes less time than a fit from a random start."""
    for model in _models(results):
        for other in (RANDOM, UNIFORM):
            first, second = join_method(model, HARD), join_method(model, other)
            xs = _common_points(results, first, second)
            if xs:
                claim = f"{model} takes less time from k-means than from {other} {_at(results, xs, mean=True)}"
                yield claim, judge_lower, compare_means(results, first, second, xs, ("seconds",))


def _beyond_models(results: Results) -> list[Claim]:
    xs, baseline = results.study.points, join_method(BASELINE, HARD)
    claims: list[Claim] = [
        (
            f"{model} from k-means outperforms {BASELINE} from k-means in ANID and GEVD",
            judge_lower,
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


def judge_claims(results: Results) -> list[Finding]:
    """Judge the claims of a study; a study that is not in `STUDIES` has no claims."""
    name = results.study.name
    if STUDIES.get(name) != results.study:
        return []
    return [_judge(name, *claim) for claim in _BY_STUDY[name](results)]


def _judge(study: str, claim: str, rule: Rule, differences: list[PairedDifference]) -> Finding:
    if all(d.sign is None for d in differences):
        return Finding(study, claim, OPEN, f"Fewer than {_MIN_WORLDS} worlds.")
    evidence = "; ".join(d.text for d in differences) + "."
    return Finding(study, claim, rule(differences), evidence[:1].upper() + evidence[1:])
