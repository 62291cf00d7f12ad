"""What we claim beyond the paper, tested as the paper's findings are: causal models, better starts, and their cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from limiirl.experiments.results import Results
from limiirl.experiments.studies import Point
from limiirl.experiments.studies_beyond import BETTER_STARTS, combined, model_of
from limiirl.experiments.verdicts import (
    HARD,
    MARGINS,
    QUALITY,
    RANDOM,
    SUPERVISED,
    UNIFORM,
    Finding,
    at_each,
    at_most,
    everywhere_below,
    finding,
    on_par,
    over,
    symbol,
)

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


def _rewards(results: Results, xs: tuple[Point, ...]) -> list[Finding]:
    """Return whether each causal model has better rewards than MaxEnt at each of some points, where it is tried."""
    found = []
    for model in CAUSAL:
        first, second = combined(model, HARD), combined(BASELINE, HARD)
        both = tuple(x for x in _points(results, first, second) if x in xs)
        claim = f"{model} learns better rewards than {BASELINE} {_at(results, both)} (GEVD, both from k-means)"
        found.append(
            finding(results.study.name, claim, everywhere_below, at_each(results, first, second, both, ("gevd",)))
        )
    return found


def _supervision(results: Results) -> Finding:
    first, second = combined(BEST, HARD), combined(BEST, SUPERVISED)
    xs = _points(results, first, second)
    return finding(
        results.study.name,
        f"{BEST} from k-means is on par with {BEST} from the true labels {_at(results, xs)}",
        on_par,
        at_each(results, first, second, xs, QUALITY),
    )


def _near(results: Results, model: str, start: str) -> list[Finding]:
    """Return whether a start comes near supervision at each of many numbers of intents, where it is tried."""
    method, ideal = combined(model, start), combined(model, SUPERVISED)
    xs = tuple(x for x in _points(results, method, ideal) if x in MANY)
    if not xs:
        return []
    return [
        finding(
            results.study.name,
            f"{model} from {start} is within {NEAR} of supervision in ANID {_at(results, xs)}",
            at_most(NEAR),
            at_each(results, method, ideal, xs, ("anid",)),
        )
    ]


def _better(results: Results, model: str, start: str, at: tuple[Point, ...]) -> list[Finding]:
    """Return whether a better start has clearer clusters than k-means, on average over some points, where both are.

    The points are fixed beforehand: to choose those at which k-means failed in the same records would favour the other.
    """
    better, plain = (combined(model, name) for name in (start, HARD))
    xs = tuple(x for x in _points(results, better, plain) if x in at)
    if not xs:
        return []
    mean = " on average" if len(xs) > 1 else ""
    return [
        finding(
            results.study.name,
            f"{model} from {start} has a lower ANID than from k-means {_at(results, xs)}{mean}",
            everywhere_below,
            over(results, better, plain, xs, ("anid",)),
        )
    ]


def _all_better(results: Results, at: tuple[Point, ...]) -> list[Finding]:
    return [one for start in BETTER_STARTS for model in _models(results) for one in _better(results, model, start, at)]


def _times(results: Results) -> list[Finding]:
    """Return whether warm starts save time, model by model, over all points that have both."""
    found = []
    for model in _models(results):
        for other in (RANDOM, UNIFORM):
            xs = _points(results, combined(model, HARD), combined(model, other))
            if xs:
                gaps = over(results, combined(model, HARD), combined(model, other), xs, ("seconds",))
                mean = " on average" if len(xs) > 1 else ""
                claim = f"{model} takes less time from k-means than from {other} {_at(results, xs)}{mean}"
                found.append(finding(results.study.name, claim, everywhere_below, gaps))
    return found


def _setting(results: Results) -> list[Finding]:
    """Return what the many worlds of the paper's own setting say."""
    xs = results.study.points
    ahead = [
        finding(
            results.study.name,
            f"{model} from k-means is ahead of {BASELINE} from k-means in ANID and GEVD",
            everywhere_below,
            at_each(results, combined(model, HARD), combined(BASELINE, HARD), xs, QUALITY),
        )
        for model in CAUSAL
    ]
    return [*ahead, _supervision(results)]


def _elements(results: Results) -> list[Finding]:
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


def _wind(results: Results) -> list[Finding]:
    windy = tuple(x for x in results.study.points if float(x) > 0.0)
    return [
        *_rewards(results, windy),
        _supervision(results),
        *_all_better(results, results.study.points),
        *_times(results),
    ]


BEYOND_FINDINGS: Mapping[str, Callable[[Results], list[Finding]]] = MappingProxyType(
    {"beyond-models": _setting, "beyond-elements": _elements, "beyond-wind": _wind}
)
"""What each study says, by its name."""
