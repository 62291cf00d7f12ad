"""Metrics of predicted trajectories: missing distance, match rate, feature and edit distance, BLEU, next actions.

Pairwise metrics compare demonstration i of two sets, and return one value per pair.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from limiirl._typing import FloatArray, IntArray
from limiirl._validation import as_floats, check_each, check_flag, check_fraction
from limiirl.demos import Demonstrations, name_demo, with_common_names
from limiirl.errors import InvalidDemos, InvalidParameter
from limiirl.mixture import validate

if TYPE_CHECKING:
    from limiirl.mdp import MDP
    from limiirl.mixture import IntentMixture


# Relative tolerance for ties between action probabilities.
_TIE = 1e-9
# Maximum number of states in a batch of prefixes.
_BATCH = 2_000_000
# Number of matches that replaces 0 in BLEU.
_NO_HIT = 0.1


def missing_distance_fraction(
    true: Demonstrations, forecast: Demonstrations, lengths: ArrayLike | None = None, *, mdp: MDP | None = None
) -> FloatArray:
    """Return the fraction (N,) of the length of each true trajectory that is missing in the forecast.

    ``1 - sum_{e shared} len(e) / sum_{e true} len(e)`` over multisets of states or edges. Detours are not
    penalised, so that the arguments are not interchangeable. The fraction is 0 for a true trajectory of length 0.

    Parameters
    ----------
    true, forecast : Demonstrations
        N trajectories each.
    lengths : (S,) or (E,), optional
        Length of each state (road segment), or of each edge if `mdp` is given; default: 1.
    mdp : MDP, optional
        Compare edges instead of states. Actions must be recorded where edges are parallel.

    Examples
    --------
    >>> true, forecast = Demonstrations.from_lists([[0, 1, 2, 3]]), Demonstrations.from_lists([[0, 1, 4, 3]])
    >>> missing_distance_fraction(true, forecast), missing_distance_fraction(true, forecast, [1.0, 1.0, 6.0, 2.0, 1.0])
    (array([0.25]), array([0.6]))
    """
    shared, total = _measure_shared(true, forecast, lengths, mdp)
    return np.divide(total - shared, total, out=np.zeros(total.size), where=total > 0.0)


def match_rate(
    true: Demonstrations,
    forecast: Demonstrations,
    lengths: ArrayLike | None = None,
    *,
    mdp: MDP | None = None,
    threshold: float = 0.9,
) -> float:
    """Return the fraction of true trajectories whose forecast covers at least a fraction `threshold` of their length.

    The other arguments are described in `missing_distance_fraction`.

    Examples
    --------
    >>> true = Demonstrations.from_lists([[0, 1, 2], [0, 1, 2]])
    >>> match_rate(true, Demonstrations.from_lists([[0, 1, 2], [0, 3, 2]]))
    0.5
    """
    check_fraction(threshold, "threshold", remedy="Pass 0.9 for 90 %.")
    shared, total = _measure_shared(true, forecast, lengths, mdp)
    # 1e-12 is a tolerance for rounding.
    return float(np.mean(shared >= (threshold - 1e-12) * total))


def feature_distance(mdp: MDP, true: Demonstrations, forecast: Demonstrations) -> FloatArray:
    """Return the distance ``|F - F'|_2`` (N,) between the discounted feature counts of each pair.

    Examples
    --------
    >>> from limiirl import MDP
    >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0, 0], [3, 0], [0, 4]])
    >>> feature_distance(mdp, Demonstrations.from_lists([[0, 1]]), Demonstrations.from_lists([[0, 2]]))
    array([5.])
    """
    true, forecast = _check_pairs(true, forecast)
    return np.asarray(np.linalg.norm(true.features(mdp) - forecast.features(mdp), axis=1))


def edit_distance(one: Demonstrations, other: Demonstrations, *, normalised: bool = False) -> FloatArray:
    """Return the Levenshtein distance (N,) between the state sequences of each pair.

    If `normalised` is True, the distance is divided by the length of the longer sequence.

    Examples
    --------
    >>> one, other = Demonstrations.from_lists([[0, 1, 2, 3]]), Demonstrations.from_lists([[0, 2, 3, 4]])
    >>> edit_distance(one, other), edit_distance(one, other, normalised=True)
    (array([2.]), array([0.5]))
    """
    from limiirl.kernels.sequences import edit_distances  # imports numba, which is slow

    one, other = _check_pairs(one, other, "other")
    distances: FloatArray = edit_distances(one.states, one.offsets, other.states, other.offsets).astype(np.float64)
    return distances / np.maximum(one.lengths, other.lengths) if check_flag(normalised, "normalised") else distances


class RouteAccuracy(NamedTuple):
    """Mean edit distance, BLEU and fraction of exact routes of predictions."""

    edit: float
    bleu: float
    exact: float


def route_accuracy(true: Demonstrations, forecast: Demonstrations) -> RouteAccuracy:
    """Return the accuracy of routes, with all true routes between the same two states as references.

    `edit` is the smallest edit distance to a reference, divided by the length of the true route, at most 1. `bleu` is
    `bleu_scores`. `exact` is the fraction of forecasts that equal the true route. These are the metrics of Zhao and
    Liang (2023, arXiv:2206.10598).

    Parameters
    ----------
    true, forecast : Demonstrations
        N trajectories each; pair i has the same first and last states.

    Examples
    --------
    >>> true = Demonstrations.from_lists([[0, 1, 2, 3, 4], [0, 1, 5, 3, 4]])
    >>> route_accuracy(true, Demonstrations.from_lists([[0, 1, 5, 3, 4], [0, 1, 5, 3, 4]]))
    RouteAccuracy(edit=0.0, bleu=1.0, exact=0.5)
    """
    true, forecast = _check_pairs(true, forecast)
    pair, reference = _match_references(true)
    edits = np.full(len(true), np.inf)
    np.minimum.at(edits, pair, edit_distance(true[reference], forecast[pair]))
    exact = edit_distance(true, forecast) == 0.0
    edits = np.minimum(edits / true.lengths, 1.0)
    return RouteAccuracy(float(edits.mean()), float(bleu_scores(true, forecast).mean()), float(exact.mean()))


def bleu_scores(true: Demonstrations, forecast: Demonstrations) -> FloatArray:
    """Return BLEU-4 (N,) of each forecast, with all true routes between the same two states as references.

    BLEU is the geometric mean of the clipped precisions of sequences of 1 to 4 states, times a penalty of short
    forecasts (Papineni et al. 2002). A count of zero is replaced by 0.1 (smoothing method 1 of Chen and Cherry 2014),
    except for single states.

    Examples
    --------
    >>> true = Demonstrations.from_lists([[0, 1, 2, 3, 4, 5]])
    >>> bleu_scores(true, Demonstrations.from_lists([[0, 1, 2, 3, 4, 6]])).round(4)
    array([0.7598])
    """
    true, forecast = _check_pairs(true, forecast)
    known, routes = ([tuple(r.tolist()) for r in np.split(d.states, d.offsets[1:-1])] for d in (true, forecast))
    references: dict[tuple[int, int], set[tuple[int, ...]]] = {}
    for route in known:
        references.setdefault((route[0], route[-1]), set()).add(route)
    pairs = zip(known, routes, strict=True)
    return np.array([_bleu(route, sorted(references[own[0], own[-1]])) for own, route in pairs])


def _bleu(route: Sequence[int], references: Sequence[Sequence[int]]) -> float:
    log_mean = 0.0
    for n in range(1, 5):
        counts, most = _count_sequences(route, n), Counter[tuple[int, ...]]()
        for reference in references:
            most |= _count_sequences(reference, n)
        hits = (counts & most).total()
        if n == 1 and hits == 0:
            return 0.0
        log_mean += math.log((hits or _NO_HIT) / max(1, counts.total())) / 4.0
    closest = min((abs(len(reference) - len(route)), len(reference)) for reference in references)[1]
    return math.exp(log_mean + min(0.0, 1.0 - closest / len(route)))


def _count_sequences(route: Sequence[int], n: int) -> Counter[tuple[int, ...]]:
    return Counter(tuple(route[i : i + n]) for i in range(len(route) - n + 1))


def _match_references(true: Demonstrations) -> tuple[IntArray, IntArray]:
    """Return all pairs (m,), (m,) of a route and a reference, which has the same ends."""
    ends = np.stack([true.start_states, true.last_states], axis=1)
    _, group, sizes = np.unique(ends, axis=0, return_inverse=True, return_counts=True)
    order, first = np.argsort(group, kind="stable"), np.cumsum(sizes) - sizes
    pair = np.repeat(np.arange(group.size), sizes[group])
    within = np.arange(pair.size) - np.repeat(np.cumsum(sizes[group]) - sizes[group], sizes[group])
    return pair, order[first[group[pair]] + within]


@dataclass(frozen=True, eq=False, repr=False)
class NextActionAccuracy:
    """Accuracy of predicted next actions after each prefix of each demonstration.

    Attributes
    ----------
    demo, t : (m,) int64
        Demonstration and step of each predicted action.
    correct, probability : (m,) float64
        `correct` is 1 if the action is the most probable one, 1/n if n actions are tied, and 0 otherwise; `probability`
        is the predicted probability of the action.
    """

    demo: IntArray
    t: IntArray
    correct: FloatArray
    probability: FloatArray

    @property
    def accuracy(self) -> float:
        """Fraction of correct predictions."""
        return float(self.correct.mean())

    @property
    def log_loss(self) -> float:
        """Mean negative log-probability of the actions, in nats."""
        with np.errstate(divide="ignore"):
            return -float(np.log(self.probability).mean())

    def by_step(self) -> FloatArray:
        """Return the accuracy at each step, or NaN at a step without known actions."""
        counts = np.bincount(self.t)
        with np.errstate(invalid="ignore"):
            return np.asarray(np.bincount(self.t, weights=self.correct) / counts)

    def __repr__(self) -> str:
        return f"{100 * self.accuracy:.1f} % of {self.t.size} next actions predicted, log-loss {self.log_loss:.3f}"


def next_action_accuracy(mixture: IntentMixture, demos: Demonstrations) -> NextActionAccuracy:
    """Return the accuracy of the next actions that a mixture predicts after each prefix of each demonstration.

    Steps are excluded if the action was not recorded and several actions connect the two states.

    Examples
    --------
    >>> from limiirl import MDP, IntentMixture, MaxEnt
    >>> mdp = MDP.from_edges([0, 1, 1], [1, 2, 3], p0=[1, 0, 0, 0])
    >>> demos = Demonstrations.from_lists([[0, 1, 2]] * 3 + [[0, 1, 3]])
    >>> mix = IntentMixture(1, MaxEnt(bounds=(-3, 3)), random_state=0).fit(mdp, demos)
    >>> next_action_accuracy(mix, demos)
    87.5 % of 8 next actions predicted, log-loss 0.300
    """
    validate.check_fitted(mixture)
    mdp, demos = mixture.mdp_, validate.check_demos(demos, mixture.mdp_)
    steps = demos.steps(mdp)
    known = np.flatnonzero(steps.edge >= 0)
    if known.size == 0:
        message = "demos must contain at least one transition with a recorded or unambiguous action."
        remedy = "Record the actions, or pass demonstrations of at least two states."
        raise InvalidDemos(f"{message} {remedy}", parameter="demos")
    demo, t, taken = steps.demo_of_step[known], steps.t_of_step[known], mdp.act[steps.edge[known]]
    correct, probability = np.empty(known.size), np.empty(known.size)
    for part in batch_prefixes(t + 1):
        action = mixture.next_actions(extract_prefixes(demos, demo[part], t[part])).action
        predicted = action[np.arange(len(action)), taken[part]]
        best = action >= (1.0 - _TIE) * action.max(axis=1, keepdims=True)
        hit = best[np.arange(len(action)), taken[part]] & (predicted > 0.0)
        correct[part], probability[part] = hit / best.sum(axis=1), predicted
    return NextActionAccuracy(demo, t, correct, probability)


def extract_prefixes(demos: Demonstrations, demo: IntArray, t: IntArray) -> Demonstrations:
    """Return the first t + 1 states of each of the given demonstrations (m,), without the last action."""
    offsets = np.concatenate([[0], np.cumsum(t + 1)])
    rows = np.arange(offsets[-1]) + np.repeat(demos.offsets[demo] - offsets[:-1], t + 1)
    if demos.actions is None:
        return Demonstrations(demos.states[rows], offsets)
    actions = demos.actions[rows]
    actions[offsets[1:] - 1] = -1  # the action to predict
    return Demonstrations(demos.states[rows], offsets, actions)


def batch_prefixes(sizes: IntArray) -> Iterator[slice]:
    """Yield slices of prefixes with at most `_BATCH` states in total; a longer prefix has a slice of its own."""
    ends = np.cumsum(sizes)
    first = 0
    while first < sizes.size:
        done = ends[first - 1] if first else 0
        last = max(int(np.searchsorted(ends, done + _BATCH, side="right")), first + 1)
        yield slice(first, last)
        first = last


def _measure_shared(
    true: Demonstrations, forecast: Demonstrations, lengths: Any, mdp: MDP | None
) -> tuple[FloatArray, FloatArray]:
    """Return, for each pair (N,), the length shared by both routes and the length of the true route."""
    true, forecast = _check_pairs(true, forecast)
    (demo, element), (demo_f, element_f) = _list_elements(true, mdp), _list_elements(forecast, mdp)
    # Use compact codes, because states may be arbitrary integers.
    distinct, code = np.unique(np.concatenate([element, element_f]), return_inverse=True)
    element, element_f, n = code[: element.size], code[element.size :], max(distinct.size, 1)
    each = np.ones(n) if lengths is None else _check_lengths(lengths, distinct, mdp)[distinct]
    # One key per (demonstration, state or edge); a multiset is an array of keys with their counts.
    key, count = np.unique(demo * n + element, return_counts=True)
    key_f, count_f = np.unique(demo_f * n + element_f, return_counts=True)
    there = np.zeros(key.size, dtype=np.int64)
    _, at, at_f = np.intersect1d(key, key_f, assume_unique=True, return_indices=True)
    there[at] = count_f[at_f]
    owner, length = key // n, each[key % n]
    total, shared = (
        np.bincount(owner, weights=times * length, minlength=len(true)).astype(np.float64)
        for times in (count, np.minimum(count, there))
    )
    return shared, total


def _list_elements(demos: Demonstrations, mdp: MDP | None) -> tuple[IntArray, IntArray]:
    """Return the demonstration and the state of each visit; with `mdp`, the demonstration and the edge of each step."""
    if mdp is None:
        return np.repeat(np.arange(len(demos)), demos.lengths), demos.states
    steps = demos.renumber(mdp).steps(mdp)
    if steps.ambiguous.size:
        k = int(steps.ambiguous[0])
        demo, t = int(steps.demo_of_step[k]), int(steps.t_of_step[k])
        where = f"{name_demo(demos.ids, demo)}, step {t}"
        message = f"{where}: several actions connect the two states. Record actions, or compare states without mdp."
        raise InvalidDemos(message, parameter="mdp", index=(demo, t))
    return steps.demo_of_step, steps.edge


def _check_lengths(lengths: Any, visited: IntArray, mdp: MDP | None) -> FloatArray:
    """Validate lengths; `visited` are the sorted states or edges that must have a length."""
    array = as_floats(lengths, "lengths")
    n = int(visited[-1]) + 1 if visited.size else 0
    if array.ndim != 1 or (array.size < n if mdp is None else array.size != mdp.n_edges):
        wanted = f"(S,) with S >= {n}" if mdp is None else f"(E,) with E = {mdp.n_edges}"
        raise InvalidParameter.of("lengths", array.shape, f"must have shape {wanted}")
    check_each(np.isfinite(array) & (array >= 0.0), array, "lengths", "must be finite and nonnegative")
    return array


def _check_pairs(one: Demonstrations, other: Demonstrations, name: str = "forecast") -> list[Demonstrations]:
    """Check that two sets of trajectories have equal sizes, and give both the same state and action indices."""
    for demos in (one, other):
        validate.check_demos(demos)
    if len(one) != len(other):
        raise InvalidDemos.of(name, len(other), f"must have {len(one)} trajectories, as in the first argument")
    return with_common_names([one, other])
