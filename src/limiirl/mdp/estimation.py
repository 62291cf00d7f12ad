"""Dynamics estimated from recordings, for behaviour that has no simulator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from limiirl.errors import InvalidDemos, InvalidParameter
from limiirl.mdp.features import as_features
from limiirl.mdp.frames import read_frame
from limiirl.mdp.indexing import number_within, row_pointers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from limiirl.mdp.features import FeatureInput
    from limiirl.mdp.sparse import MDP

Int64 = NDArray[np.int64]
Float = NDArray[np.float64]


def from_demonstrations(
    cls: type[MDP],
    data: Any,
    n_states: int | None = None,
    gamma: float = 1.0,
    smoothing: float = 0.1,
    state_features: FeatureInput | None = None,
    action_features: FeatureInput | None = None,
    feature_names: Sequence[str] | None = None,
) -> MDP:
    """Estimate an MDP from what was seen in recordings.

    With actions, an action is available in a state where somebody took it, and it leads to the states that followed
    that state, whatever the action:

        T(s' | s, a) = (n(s, a, s') + smoothing) / sum over the successors s'' of s of (n(s, a, s'') + smoothing)

    so that a rare slip seen under one action is thought possible under the others, but no move that was never seen
    is. Without actions, the subject is taken to choose where to go: each move s -> s' that was seen is a
    deterministic action of its own, numbered by increasing s'. A start has the probability (n(s) + smoothing) / (N +
    smoothing S).

    A state that nobody leaves is terminal. Beware of recordings that are cut by the clock: a state seen only at the
    cut looks terminal too; record longer, or leave that last state out. States that never occur are kept (they are
    terminal and start with the probability that the smoothing gives), so that state numbers and features stay as they
    are.

    Parameters
    ----------
    data : frame with the columns demo, t, state[, action], or Demonstrations
        Frames of pandas or polars, pyarrow Tables and mappings of columns are read by `limiirl.mdp.frames.read_frame`.
    n_states : int, optional
        By default the number of rows of `state_features`, or else the largest state seen plus one.
    gamma : float
        Discount in (0, 1].
    smoothing : float
        Pseudo-count, 0 for plain frequencies.
    state_features : (S, ds), optional
        Without features of any kind, indicators of the states.
    action_features : (S, A, da), optional
        Features on (s, a, s') can be added to the result with ``mdp.replace(edge_features=...)``, one row for each of
        its edges (`mdp.src`, `mdp.act`, `mdp.dst`).
    feature_names : sequence of d strings, optional

    Examples
    --------
    >>> from limiirl.mdp import MDP
    >>> table = {"demo": [0, 0, 0, 1, 1], "t": [0, 1, 2, 0, 1], "state": [0, 0, 1, 0, 1], "action": [1, 1, -1, 0, -1]}
    >>> mdp = MDP.from_demonstrations(table, smoothing=0.5)
    >>> for edge in zip(mdp.src, mdp.act, mdp.dst, mdp.prob):
    ...     print(*edge)
    0 0 0 0.25
    0 0 1 0.75
    0 1 0 0.5
    0 1 1 0.5
    """
    if not (isinstance(smoothing, int | float | np.number) and 0 <= smoothing < np.inf):
        raise InvalidParameter(f"smoothing must be a number from 0; it is {smoothing!r}. Use 0 for plain frequencies.")
    runs = data if hasattr(data, "states") and hasattr(data, "offsets") else read_frame(data)
    states, offsets = np.asarray(runs.states, dtype=np.int64), np.asarray(runs.offsets, dtype=np.int64)
    if n_states is None and state_features is not None:
        n_states = as_features(state_features, "state_features").shape[0]
    if n_states is None:
        n_states = 1 + int(states.max(initial=-1))
    _check_range(states, offsets, n_states)
    starts = np.bincount(states[offsets[:-1]], minlength=n_states) + smoothing
    src, act, dst, prob = _moves(states, offsets, runs.actions, n_states, float(smoothing))
    return cls.from_edges(
        src,
        dst,
        n_states,
        act,
        prob,
        starts / starts.sum(),
        gamma,
        state_features=state_features,
        action_features=action_features,
        feature_names=feature_names,
    )


def _moves(
    states: Int64, offsets: Int64, actions: Any, n_states: int, smoothing: float
) -> tuple[Int64, Int64, Int64, NDArray[np.float64]]:
    """Return the edges (s, a, s', p) that the moves of all recordings amount to."""
    moving = np.ones(states.size, dtype=np.bool_)
    moving[offsets[1:] - 1] = False
    steps = np.flatnonzero(moving)
    src, dst = states[steps], states[steps + 1]
    if actions is None:
        return _choices(src, dst, n_states)
    taken = np.asarray(actions, dtype=np.int64)[steps]
    if np.any(taken < 0):
        position = int(steps[np.argmax(taken < 0)])
        demo = int(np.searchsorted(offsets, position, side="right")) - 1
        raise InvalidDemos(
            f"demonstration {demo}, step {position - offsets[demo]}: its action was not recorded, while others were. "
            "Record all actions, or none: then every move is taken to be a choice."
        )
    return _frequencies(src, taken, dst, n_states, smoothing)


def _check_range(states: Int64, offsets: Int64, n_states: int) -> None:
    wrong = np.flatnonzero((states < 0) | (states >= n_states))
    if wrong.size:
        demo = int(np.searchsorted(offsets, wrong[0], side="right")) - 1
        raise InvalidDemos(
            f"States must lie in 0..{n_states - 1}; demonstration {demo} has {int(states[wrong[0]])} at step "
            f"{int(wrong[0] - offsets[demo])}. Pass a larger n_states (and as many rows of state_features)."
        )


def _choices(src: Int64, dst: Int64, n_states: int) -> tuple[Int64, Int64, Int64, Float]:
    """Return each distinct move as a deterministic action."""
    source, target = np.divmod(np.unique(src * n_states + dst), n_states)
    return source, number_within(source), target, np.ones(source.size)


def _frequencies(
    src: Int64, act: Int64, dst: Int64, n_states: int, smoothing: float
) -> tuple[Int64, Int64, Int64, Float]:
    """Return the smoothed frequencies of the successors of a state under each action taken there."""
    n_actions = int(act.max(initial=-1)) + 1
    pairs, pair = np.unique(src * n_actions + act, return_inverse=True)
    moves, move = np.unique(src * n_states + dst, return_inverse=True)
    pair_state, pair_action = np.divmod(pairs, max(n_actions, 1))
    move_state, successor = np.divmod(moves, n_states)
    # The edges are the join of the (s, a) pairs with the moves (s, s') over s: those of pair p start at first[p].
    move_ptr = row_pointers(move_state, n_states)
    degree = np.diff(move_ptr)[pair_state]
    first = np.concatenate([[0], np.cumsum(degree)])
    edge_pair = np.repeat(np.arange(pairs.size), degree)
    edge_move = np.arange(first[-1]) - first[edge_pair] + move_ptr[pair_state[edge_pair]]
    seen = first[pair] + move - move_ptr[src]
    weight = np.bincount(seen, minlength=int(first[-1])) + smoothing
    total = np.bincount(edge_pair, weights=weight, minlength=pairs.size)
    return pair_state[edge_pair], pair_action[edge_pair], successor[edge_move], weight / total[edge_pair]
