"""Claims of the paper and ours, each with a verdict from the records and its evidence.

One cell of a study is below another in a measure where both paired tests, Student's and Wilcoxon's, say so with
p < 0.01 over the worlds that both have. Two are on par where the 99 % interval of their difference lies within a
margin, `margin_of`: absence of evidence is not evidence of absence. They are not on par where it lies wholly outside;
otherwise the worlds do not decide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType

from limiirl.experiments.results import MEASURES, Cell, Results
from limiirl.experiments.spec import METHODS, Point
from limiirl.experiments.studies import BETTER_STARTS, ML_IRL, PAPER_LENGTH, STUDIES, combined, model_of

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


Rule = Callable[[Sequence[Gap]], str]
Claim = tuple[str, Rule, list[Gap]]
"""What is claimed, the rule that judges it, and the comparisons that decide."""


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


_E = 3  # elements in the sweep over K


def _table(results: Results) -> list[Claim]:
    def here(first: str, second: str, measures: Iterable[str]) -> list[Gap]:
        return over(results, first, second, (PAPER_LENGTH,), measures)

    return [
        *(
            (
                f"{method} is ahead of random rewards in ANID, GEVD and iterations",
                everywhere_below,
                here(method, RANDOM, (*QUALITY, "n_iter")),
            )
            for method in (HARD, MEAN)
        ),
        ("MLE and mean rewards do equally well", on_par, here(HARD, MEAN, ("nll", *QUALITY))),
        *(
            (f"Hard clustering is ahead of soft ({kind})", everywhere_below, here(HARD, soft, QUALITY))
            for kind, soft in ((RANDOM_GMM, SOFT), ("GMM", TIED))
        ),
        ("NLL does not tell warm starts from random ones", on_par, here(HARD, RANDOM, ("nll",))),
        ("Hard clustering is on par with supervision", on_par, here(HARD, SUPERVISED, QUALITY)),
    ]


def _demos(results: Results) -> list[Claim]:
    ends = (results.study.points[0], results.study.points[-1])
    return [
        (
            "The number of iterations does not depend on the number of demonstrations",
            on_par,
            along(results, (HARD, MEAN, SOFT, RANDOM), ends, ("n_iter",)),
        ),
        (
            "The duration grows with the number of demonstrations",
            everywhere_below,
            along(results, (HARD, MEAN, SOFT, RANDOM), ends, ("seconds",)),
        ),
        *_ahead(results),
    ]


def _ahead(results: Results) -> list[Claim]:
    """Return whether hard clustering is ahead of random rewards, and of soft clustering, over a whole sweep."""
    return [
        (
            f"Hard clustering is ahead of {name}",
            everywhere_below,
            over(results, HARD, other, results.study.points, QUALITY),
        )
        for name, other in (("random rewards", RANDOM), (f"soft ({RANDOM_GMM})", SOFT), ("soft (GMM)", TIED))
    ]


def _wind(results: Results) -> list[Claim]:
    points = results.study.points
    return [
        *(
            (
                f"Every method has a larger {MEASURES[measure]} with wind than without",
                everywhere_below,
                along(results, METHODS, (points[0], points[-1]), (measure,)),
            )
            for measure in ("nll", *QUALITY)
        ),
        *_ahead(results),
    ]


def _clusters(results: Results) -> list[Claim]:
    points = results.study.points

    def at(k: Point, other: Point, measure: str) -> Gap:
        return gap(results, (HARD, k), (HARD, other), measure, f"K = {k} and {other}")

    return [
        ("ANID is least at K = E", everywhere_below, [at(_E, k, "anid") for k in points if k != _E]),
        (
            "GEVD falls until K = E and then no further",
            _falls_then_level,
            [at(b, a, "gevd") for a, b in pairwise(points)],
        ),
        ("Test NLL grows with K", everywhere_below, [at(a, b, "nll") for a, b in pairwise(points)]),
        (
            "Warm starts help while K does not exceed E",
            everywhere_below,
            over(results, HARD, RANDOM, tuple(k for k in points[1:] if float(k) <= _E), QUALITY),
        ),
    ]


def _falls_then_level(gaps: Sequence[Gap]) -> str:
    """Holds where GEVD falls from K to K + 1 up to E, and is on par from there."""
    falls, level = everywhere_below(gaps[: _E - 1]), on_par(gaps[_E - 1 :])
    return FAILS if FAILS in (falls, level) else OPEN if OPEN in (falls, level) else HOLDS


def _elements(results: Results) -> list[Claim]:
    points = results.study.points
    ends = (points[0], points[-1])
    unsupervised = [method for method in METHODS if method != SUPERVISED]
    return [
        (
            "Warm starts are ahead of random rewards at large E",
            everywhere_below,
            over(results, HARD, RANDOM, points[-2:], QUALITY),
        ),
        (
            "Hard clustering falls behind supervision at large E",
            everywhere_below,
            over(results, SUPERVISED, HARD, points[-1:], QUALITY),
        ),
        (
            "More intents are harder for every unsupervised method",
            everywhere_below,
            along(results, unsupervised, ends, ("anid",)),
        ),
        ("More intents are not harder for the supervised one", on_par, along(results, (SUPERVISED,), ends, QUALITY)),
    ]


def _imbalance(results: Results) -> list[Claim]:
    ends = (results.study.points[0], results.study.points[-1])
    return [
        (
            "Hard clustering is as good with skewed shares as with equal ones",
            on_par,
            along(results, (HARD,), ends, QUALITY),
        ),
        *_ahead(results),
        (
            f"Soft clustering ({RANDOM_GMM}) is worse with skewed shares than with equal ones",
            everywhere_below,
            along(results, (SOFT,), ends, QUALITY),
        ),
    ]


def _margin(results: Results) -> list[Claim]:
    calm, windy = results.study.points[0], results.study.points[-1]
    found = gap(results, (SUPERVISED, windy), (SUPERVISED, calm), "margin", f"w = {windy} and {calm}")
    return [("The margin between intents is smaller with wind than without", everywhere_below, [found])]


_REWARD, _POLICY = "k-means, reward features", "k-means, policy features"
_SOFT_REWARD, _SOFT_POLICY = "GMM, reward features", "GMM, policy features"
_RANDOM_STARTS = (UNIFORM, RANDOM)


def _mlirl(results: Results) -> list[Claim]:
    at = (ML_IRL,)
    return [
        *(
            (
                f"{method} is ahead of {other} in ANID, GEVD and iterations",
                everywhere_below,
                over(results, method, other, at, (*QUALITY, "n_iter")),
            )
            for method in (HARD, MEAN)
            for other in (RANDOM, UNIFORM)
        ),
        *(
            (f"Hard clustering is ahead of soft ({kind})", everywhere_below, over(results, HARD, soft, at, QUALITY))
            for kind, soft in ((RANDOM_GMM, SOFT), ("GMM", TIED))
        ),
        ("Hard clustering is on par with supervision", on_par, over(results, HARD, SUPERVISED, at, QUALITY)),
    ]


def _sigma(results: Results) -> list[Claim]:
    points = results.study.points
    return [
        *(
            (
                f"Warm starts and {other} end with the same ANID",
                on_par,
                over(results, _REWARD, other, points, ("anid",)),
            )
            for other in _RANDOM_STARTS
        ),
        *(
            (
                f"Warm starts need fewer iterations and less time than {other} (the paper: a little, not certainly)",
                everywhere_below,
                over(results, _REWARD, other, points, ("n_iter", "seconds")),
            )
            for other in _RANDOM_STARTS
        ),
        *(
            (
                f"Reward and policy features are equally good to cluster by ({kind})",
                on_par,
                over(results, reward, policy, points, ("anid",)),
            )
            for kind, reward, policy in (("k-means", _REWARD, _POLICY), ("GMM", _SOFT_REWARD, _SOFT_POLICY))
        ),
        # Not the paper's: it saw no difference.
        *(
            (
                f"Warm starts put more agents right than {other} with {n} trajectories an agent",
                everywhere_below,
                at_each(results, other, _REWARD, (n,), ("accuracy",)),
            )
            for other in _RANDOM_STARTS
            for n in points
        ),
    ]


BASELINE, BEST = "MaxEnt", "MaxCausalEnt"
NEAR = MARGINS["anid"]
"""So near in ANID to supervision is as good."""
MANY = (4, 5, 6)
"""Numbers of intents at which a start is to come near supervision, and a better one to be ahead of k-means."""
CAUSAL = (BEST, "ML-IRL", "ML-IRL, paper's", "ML-IRL, averaged")
"""Models that assume no luck."""
N_HEADLINES = len(CAUSAL) + 1
"""The first claims of a study: on the rewards of each causal model, and on supervision."""


def _models(results: Results) -> tuple[str, ...]:
    return tuple(dict.fromkeys(model_of(method) for method in results.study.methods))


def _points(results: Results, *methods: str) -> tuple[Point, ...]:
    """Return the points at which a study has some methods: slow ones are not everywhere."""
    return tuple(x for x in results.study.points if all(results.study.spec(name, x) is not None for name in methods))


def _at(results: Results, xs: tuple[Point, ...]) -> str:
    return f"at {symbol(results)} = {', '.join(map(str, xs))}"


def _rewards(results: Results, xs: tuple[Point, ...]) -> list[Claim]:
    """Return whether each causal model has better rewards than MaxEnt at each of some points, where it is tried."""
    claims: list[Claim] = []
    for model in CAUSAL:
        first, second = combined(model, HARD), combined(BASELINE, HARD)
        both = tuple(x for x in _points(results, first, second) if x in xs)
        claim = f"{model} learns better rewards than {BASELINE} {_at(results, both)} (GEVD, both from k-means)"
        claims.append((claim, everywhere_below, at_each(results, first, second, both, ("gevd",))))
    return claims


def _supervision(results: Results) -> Claim:
    first, second = combined(BEST, HARD), combined(BEST, SUPERVISED)
    xs = _points(results, first, second)
    return (
        f"{BEST} from k-means is on par with {BEST} from the true labels {_at(results, xs)}",
        on_par,
        at_each(results, first, second, xs, QUALITY),
    )


def _near(results: Results, model: str, start: str) -> list[Claim]:
    """Return whether a start comes near supervision at each of many numbers of intents, where it is tried."""
    method, ideal = combined(model, start), combined(model, SUPERVISED)
    xs = tuple(x for x in _points(results, method, ideal) if x in MANY)
    if not xs:
        return []
    return [
        (
            f"{model} from {start} is within {NEAR} of supervision in ANID {_at(results, xs)}",
            at_most(NEAR),
            at_each(results, method, ideal, xs, ("anid",)),
        )
    ]


def _better(results: Results, model: str, start: str, at: tuple[Point, ...]) -> list[Claim]:
    """Return whether a better start has clearer clusters than k-means, on average over some points, where both are.

    The points are fixed beforehand: to choose those at which k-means failed in the same records would favour the other.
    """
    better, plain = (combined(model, name) for name in (start, HARD))
    xs = tuple(x for x in _points(results, better, plain) if x in at)
    if not xs:
        return []
    mean = " on average" if len(xs) > 1 else ""
    return [
        (
            f"{model} from {start} has a lower ANID than from k-means {_at(results, xs)}{mean}",
            everywhere_below,
            over(results, better, plain, xs, ("anid",)),
        )
    ]


def _all_better(results: Results, at: tuple[Point, ...]) -> list[Claim]:
    return [one for start in BETTER_STARTS for model in _models(results) for one in _better(results, model, start, at)]


def _times(results: Results) -> list[Claim]:
    """Return whether warm starts save time, model by model, over all points that have both."""
    claims: list[Claim] = []
    for model in _models(results):
        for other in (RANDOM, UNIFORM):
            xs = _points(results, combined(model, HARD), combined(model, other))
            if xs:
                gaps = over(results, combined(model, HARD), combined(model, other), xs, ("seconds",))
                mean = " on average" if len(xs) > 1 else ""
                claim = f"{model} takes less time from k-means than from {other} {_at(results, xs)}{mean}"
                claims.append((claim, everywhere_below, gaps))
    return claims


def _setting(results: Results) -> list[Claim]:
    """Return what the many worlds of the paper's own setting say."""
    xs = results.study.points
    ahead = [
        (
            f"{model} from k-means is ahead of {BASELINE} from k-means in ANID and GEVD",
            everywhere_below,
            at_each(results, combined(model, HARD), combined(BASELINE, HARD), xs, QUALITY),
        )
        for model in CAUSAL
    ]
    return [*ahead, _supervision(results)]


def _beyond_elements(results: Results) -> list[Claim]:
    return [
        *_rewards(results, results.study.points),
        _supervision(results),
        *(
            one
            for start in (HARD, *BETTER_STARTS)
            for model in _models(results)
            for one in _near(results, model, start)
        ),
        *_all_better(results, MANY),
        *_times(results),
    ]


def _beyond_wind(results: Results) -> list[Claim]:
    windy = tuple(x for x in results.study.points if float(x) > 0.0)
    return [
        *_rewards(results, windy),
        _supervision(results),
        *_all_better(results, results.study.points),
        *_times(results),
    ]


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
        "beyond-models": _setting,
        "beyond-elements": _beyond_elements,
        "beyond-wind": _beyond_wind,
    }
)


def findings(results: Results) -> list[Finding]:
    """Return the verdicts on what is claimed of a study; of one that is not in `STUDIES` nothing is claimed."""
    name = results.study.name
    if STUDIES.get(name) != results.study:
        return []
    return [_judge(name, *claim) for claim in _BY_STUDY[name](results)]


def _judge(study: str, claim: str, rule: Rule, gaps: list[Gap]) -> Finding:
    if all(gap.sign is None for gap in gaps):
        return Finding(study, claim, OPEN, f"Fewer than {_LEAST_WORLDS} worlds: no test could tell.")
    evidence = "; ".join(gap.words for gap in gaps) + "."
    return Finding(study, claim, rule(gaps), evidence[:1].upper() + evidence[1:])
