"""How close forecast trajectories come to recorded ones: distance missed, matches, features, edits, next actions.

The first four compare pairs: demonstration i of one set with demonstration i of another, such as the likeliest route
between the same two places. They return a value a pair; `mean_interval` turns these into a figure with its interval.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from limiirl._typing import FloatArray, IntArray
from limiirl.demos import Demonstrations, name_demo
from limiirl.errors import InvalidDemos, InvalidParameter
from limiirl.mixture import validate

if TYPE_CHECKING:
    from limiirl.mdp import MDP
    from limiirl.mixture import IntentMixture


# Probabilities this close, relative to the largest, tie for the most likely action; they differ by rounding.
_TIE = 1e-9
# States of prefixes that are looked at together.
_BATCH = 2_000_000


def missed_distance_share(
    true: Demonstrations, forecast: Demonstrations, lengths: ArrayLike | None = None, *, mdp: MDP | None = None
) -> FloatArray:
    """Return (N,) the share of each true trajectory's distance that its forecast leaves out, in [0, 1].

    ``1 - sum_{e shared} len(e) / sum_{e true} len(e)``: what is passed twice must be forecast twice, directions matter,
    order does not. Detours of the forecast cost nothing, so that the two are not interchangeable. A true trajectory of
    no length misses nothing.

    Parameters
    ----------
    true, forecast : Demonstrations
        N each.
    lengths : (S,) or (E,), optional
        Length of each state (a road network's segments), or of each edge where an MDP is given; 1 by default.
    mdp : MDP, optional
        Compare its edges instead of states. Actions must be recorded where several edges join two states.

    Examples
    --------
    >>> true, forecast = Demonstrations.from_lists([[0, 1, 2, 3]]), Demonstrations.from_lists([[0, 1, 4, 3]])
    >>> missed_distance_share(true, forecast), missed_distance_share(true, forecast, [1.0, 1.0, 6.0, 2.0, 1.0])
    (array([0.25]), array([0.6]))
    """
    shared, total = _distances(true, forecast, lengths, mdp)
    return np.divide(total - shared, total, out=np.zeros(total.size), where=total > 0.0)


def match_rate(
    true: Demonstrations,
    forecast: Demonstrations,
    lengths: ArrayLike | None = None,
    *,
    mdp: MDP | None = None,
    share: float = 0.9,
) -> float:
    """Return the share of trajectories of which the forecast has at least 90 % of the distance, or another share.

    Other arguments as in `missed_distance_share`.

    Examples
    --------
    >>> true = Demonstrations.from_lists([[0, 1, 2], [0, 1, 2]])
    >>> match_rate(true, Demonstrations.from_lists([[0, 1, 2], [0, 3, 2]]))
    0.5
    """
    if not 0.0 <= share <= 1.0:
        raise InvalidParameter(
            f"share must lie between 0 and 1; it is {share!r}. Pass 0.9 for 90 %.", parameter="share"
        )
    shared, total = _distances(true, forecast, lengths, mdp)
    # Nine tenths of ten must count as 90 %, whatever their sums are rounded to.
    return float(np.mean(shared >= (share - 1e-12) * total))


def feature_distance(mdp: MDP, true: Demonstrations, forecast: Demonstrations) -> FloatArray:
    """Return (N,) the distance ``|F - F'|_2`` of each pair's discounted feature counts.

    Examples
    --------
    >>> from limiirl import MDP
    >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0, 0], [3, 0], [0, 4]])
    >>> feature_distance(mdp, Demonstrations.from_lists([[0, 1]]), Demonstrations.from_lists([[0, 2]]))
    array([5.])
    """
    _check_pairs(true, forecast)
    return np.asarray(np.linalg.norm(true.features(mdp) - forecast.features(mdp), axis=1))


def edit_distance(one: Demonstrations, other: Demonstrations, *, normalised: bool = False) -> FloatArray:
    """Return (N,) how many states must be inserted, removed or replaced to turn one trajectory into the other.

    Parameters
    ----------
    one, other : Demonstrations
        N each; the order of the two does not matter.
    normalised : bool
        Divide by the longer one's number of states: 0 for equals, 1 if nothing can be kept.

    Examples
    --------
    >>> one, other = Demonstrations.from_lists([[0, 1, 2, 3]]), Demonstrations.from_lists([[0, 2, 3, 4]])
    >>> edit_distance(one, other), edit_distance(one, other, normalised=True)
    (array([2.]), array([0.5]))
    """
    from limiirl.kernels.sequences import edit_distances  # numba takes a third of a second to import

    _check_pairs(one, other)
    found: FloatArray = edit_distances(one.states, one.offsets, other.states, other.offsets).astype(np.float64)
    return found / np.maximum(one.lengths, other.lengths) if normalised else found


@dataclass(frozen=True, eq=False, repr=False)
class NextActionAccuracy:
    """How well a mixture foresees the next action, after each beginning of each demonstration.

    Attributes
    ----------
    demo, t : (m,) int64
        The moves that were foreseen: demonstration and step.
    correct : (m,) float64
        1 where the action that was taken is the most probable one, 0 where not, 1/n where n tie and it is among them.
    probability : (m,) float64
        What the mixture gave to the action that was taken; stopping has its share too.
    """

    demo: IntArray
    t: IntArray
    correct: FloatArray
    probability: FloatArray

    @property
    def accuracy(self) -> float:
        """Share of moves that were foreseen."""
        return float(self.correct.mean())

    @property
    def log_loss(self) -> float:
        """Mean of -log probability, in nats; infinite where a move was thought impossible."""
        with np.errstate(divide="ignore"):
            return -float(np.log(self.probability).mean())

    def by_step(self) -> FloatArray:
        """Return the accuracy at each step: how fast the mixture recognises an intent. NaN where no move is known."""
        counts = np.bincount(self.t)
        with np.errstate(invalid="ignore"):
            return np.asarray(np.bincount(self.t, weights=self.correct) / counts)

    def __repr__(self) -> str:
        return f"{100 * self.accuracy:.1f} % of {self.t.size} next actions foreseen, log-loss {self.log_loss:.3f}"


def next_action_accuracy(mixture: IntentMixture, demos: Demonstrations) -> NextActionAccuracy:
    """Return how well a mixture foresees each move of demonstrations from what came before it.

    Actions are those recorded, or known because one edge alone joins two states; moves by unknown actions are left out.

    Examples
    --------
    >>> from limiirl import MDP, IntentMixture, MaxEnt
    >>> mdp = MDP.from_edges([0, 1, 1], [1, 2, 3], p0=[1, 0, 0, 0])
    >>> demos = Demonstrations.from_lists([[0, 1, 2]] * 3 + [[0, 1, 3]])
    >>> mix = IntentMixture(1, MaxEnt(bounds=(-3, 3)), random_state=0).fit(mdp, demos)
    >>> next_action_accuracy(mix, demos)
    87.5 % of 8 next actions foreseen, log-loss 0.300
    """
    validate.fitted(mixture)
    mdp, steps = mixture.mdp_, validate.demonstrations(demos).steps(mixture.mdp_)
    known = np.flatnonzero(steps.edge >= 0)
    if known.size == 0:
        raise InvalidDemos(
            "No move of these demonstrations has a known action. Record actions, or give longer ones.",
            parameter="demos",
        )
    demo, t, taken = steps.demo_of_step[known], steps.t_of_step[known], mdp.act[steps.edge[known]]
    correct, probability = np.empty(known.size), np.empty(known.size)
    for part in _batches(t + 1):
        action = mixture.next_actions(_prefixes(demos, demo[part], t[part])).action
        given = action[np.arange(len(action)), taken[part]]
        best = action >= (1.0 - _TIE) * action.max(axis=1, keepdims=True)
        hit = best[np.arange(len(action)), taken[part]] & (given > 0.0)
        correct[part], probability[part] = hit / best.sum(axis=1), given
    return NextActionAccuracy(demo, t, correct, probability)


def _prefixes(demos: Demonstrations, demo: IntArray, t: IntArray) -> Demonstrations:
    """Return for each move (m,) the beginning of its demonstration, up to the state in which the move is made."""
    offsets = np.concatenate([[0], np.cumsum(t + 1)])
    rows = np.arange(offsets[-1]) + np.repeat(demos.offsets[demo] - offsets[:-1], t + 1)
    if demos.actions is None:
        return Demonstrations(demos.states[rows], offsets)
    actions = demos.actions[rows]
    actions[offsets[1:] - 1] = -1  # what is to be foreseen
    return Demonstrations(demos.states[rows], offsets, actions)


def _batches(sizes: IntArray) -> Iterator[slice]:
    """Yield consecutive moves whose prefixes have a bounded number of states together, at least one move each."""
    ends = np.cumsum(sizes)
    first = 0
    while first < sizes.size:
        done = ends[first - 1] if first else 0
        last = max(int(np.searchsorted(ends, done + _BATCH, side="right")), first + 1)
        yield slice(first, last)
        first = last


def _distances(
    true: Demonstrations, forecast: Demonstrations, lengths: Any, mdp: MDP | None
) -> tuple[FloatArray, FloatArray]:
    """Return the distance that each pair shares, and that of the true one, (N,) each."""
    _check_pairs(true, forecast)
    (demo, what), (demo_f, what_f) = _passed(true, mdp), _passed(forecast, mdp)
    # Numbers of what is passed by anybody: those of states may be anything.
    distinct, code = np.unique(np.concatenate([what, what_f]), return_inverse=True)
    what, what_f, n = code[: what.size], code[what.size :], max(distinct.size, 1)
    each = np.ones(n) if lengths is None else _check_lengths(lengths, distinct, mdp)[distinct]
    # One number for a demonstration and what it passes, so that a multiset is numbers with their counts.
    key, count = np.unique(demo * n + what, return_counts=True)
    key_f, count_f = np.unique(demo_f * n + what_f, return_counts=True)
    there = np.zeros(key.size, dtype=np.int64)
    _, at, at_f = np.intersect1d(key, key_f, assume_unique=True, return_indices=True)
    there[at] = count_f[at_f]
    owner, length = key // n, each[key % n]
    total, shared = (
        np.bincount(owner, weights=times * length, minlength=len(true)).astype(np.float64)
        for times in (count, np.minimum(count, there))
    )
    return shared, total


def _passed(demos: Demonstrations, mdp: MDP | None) -> tuple[IntArray, IntArray]:
    """Return the states, or edges, that are passed, and whose they are."""
    if mdp is None:
        return np.repeat(np.arange(len(demos)), demos.lengths), demos.states
    steps = demos.steps(mdp)
    if steps.ambiguous.size:
        k = int(steps.ambiguous[0])
        where = f"{name_demo(demos.ids, int(steps.demo_of_step[k]))}, step {steps.t_of_step[k]}"
        raise InvalidDemos(
            f"{where}: several edges join its two states, and the action was not recorded. Record the actions, or "
            "compare states, without mdp=.",
            parameter="mdp",
        )
    return steps.demo_of_step, steps.edge


def _check_lengths(lengths: Any, passed: IntArray, mdp: MDP | None) -> FloatArray:
    """Return lengths, finite and not negative, with an entry for each of the states or edges passed (sorted)."""
    array = np.asarray(lengths, dtype=np.float64)
    n = int(passed[-1]) + 1 if passed.size else 0
    if array.ndim != 1 or (array.size < n if mdp is None else array.size != mdp.n_edges):
        wanted = f"(S,) with at least {n}" if mdp is None else f"(E,) with E = {mdp.n_edges}"
        each = "a state" if mdp is None else "an edge of the MDP"
        raise InvalidParameter(
            f"lengths must have shape {wanted}, one {each}; got shape {array.shape}.", parameter="lengths"
        )
    wrong = ~(np.isfinite(array) & (array >= 0.0))
    if wrong.any():
        i = int(np.argmax(wrong))
        raise InvalidParameter(
            f"lengths must be finite and not negative; lengths[{i}] is {array[i]}. Mend it.", parameter="lengths"
        )
    return array


def _check_pairs(one: Demonstrations, other: Demonstrations) -> None:
    for demos in (one, other):
        validate.demonstrations(demos)
    if len(one) != len(other):
        raise InvalidDemos(
            f"Trajectories are compared in pairs; there are {len(one)} and {len(other)}. Give one forecast for each.",
            parameter="forecast",
            value=len(other),
        )
