"""MDPs from transition tables, and the defaults that tables and edge lists share."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from limiirl.errors import InvalidMDP
from limiirl.mdp import validate
from limiirl.mdp.features import FeatureInput, FeatureMatrix, as_features, as_floats, freeze
from limiirl.mdp.indexing import pair_index, pair_starts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from limiirl.mdp.sparse import MDP

Int64 = NDArray[np.int64]
Float = NDArray[np.float64]
Bool = NDArray[np.bool_]


def from_dense(  # noqa: PLR0913 (the design fixes the signature)
    cls: type[MDP],
    T: ArrayLike,
    p0: ArrayLike | None = None,
    gamma: float = 0.99,
    state_features: FeatureInput | None = None,
    action_features: FeatureInput | None = None,
    edge_features: FeatureInput | None = None,
    terminal: ArrayLike | None = None,
    *,
    normalise: bool = False,
    feature_names: Sequence[str] | None = None,
    state_names: Sequence[str] | None = None,
) -> MDP:
    """Build an MDP from a transition table.

    Parameters
    ----------
    T : (S, A, S)
        ``T[s, a, s']`` = P(s' | s, a). A row of zeros says that action a is not available in s.
    p0 : (S,), optional
        Start distribution; by default uniform over the states that are not terminal (over all, if all are).
    gamma : float
        Discount in (0, 1].
    state_features : (S, ds), optional
        Dense or scipy.sparse; here and below an array without the last axis is one feature. Without features of any
        kind, indicators of the states.
    action_features : (S, A, da), optional
        Or a sparse matrix with S * A rows, row ``s * A + a``.
    edge_features : (S, A, S, de), optional
        Or a sparse matrix with S * A * S rows, row ``(s * A + a) * S + s'``.
    terminal : (S,) bool, or integer state indices, optional
        States in which a trajectory stops; whatever T says of leaving them is ignored. By default the states that no
        action leaves.
    normalise : bool
        Rescale the rows of T that are not zero to sum to 1, so that counts will do.
    feature_names : sequence of d strings, optional
    state_names : sequence of S strings, optional

    Examples
    --------
    >>> import numpy as np
    >>> from limiirl.mdp import MDP
    >>> T = np.zeros((2, 1, 2))
    >>> T[0, 0] = [0.25, 0.75]
    >>> mdp = MDP.from_dense(T, p0=[1, 0], gamma=0.9)
    >>> mdp.prob, mdp.terminal
    (array([0.25, 0.75]), array([False,  True]))
    """
    table = as_floats(T, "T")
    if table.ndim != 3 or table.shape[0] != table.shape[2]:
        raise InvalidMDP(f"T must have shape (S, A, S); it has shape {table.shape}. Index it as T[s, a, s'].")
    n_states, n_actions, _ = table.shape
    n_states = validate.state_count(n_states)
    _check_table(table, limit=np.inf if normalise else 1.0)
    src, act, dst = np.nonzero(table)
    mask = terminal_states(terminal, src, n_states)
    kept = ~mask[src]
    src, act, dst = src[kept], act[kept], dst[kept]
    prob = table[src, act, dst]
    first = pair_starts(src, act)
    pairs = src * n_actions + act
    return cls(
        src=src.astype(np.int32),
        act=act.astype(np.int32),
        dst=dst.astype(np.int32),
        prob=normalised(src, act, prob) if normalise else prob,
        p0=start_or_uniform(p0, mask),
        gamma=gamma,
        terminal=mask,
        state_features=state_rows(state_features, n_states),
        action_features=_indexed_rows(action_features, (n_states, n_actions), pairs[first], "action_features"),
        edge_features=_indexed_rows(
            edge_features, (n_states, n_actions, n_states), pairs * n_states + dst, "edge_features"
        ),
        feature_names=validate.as_tuple(feature_names, "feature_names"),
        state_names=None if state_names is None else validate.as_tuple(state_names, "state_names"),
    )


def _check_table(table: Float, limit: float) -> None:
    wrong = ~((table >= 0) & (table <= limit + validate.TOLERANCE)) | np.isinf(table)
    if wrong.any():
        state, action, target = (int(index) for index in np.argwhere(wrong)[0])
        where = f"T at state {state}, action {action}, next state {target}"
        raise InvalidMDP(validate.probability_message(where, float(table[state, action, target])))


def terminal_states(terminal: ArrayLike | None, left: Int64, n_states: int) -> Bool:
    """Return the terminal mask, by default the states that no edge leaves."""
    if terminal is not None:
        return validate.terminal_mask(terminal, n_states)
    unleft: Bool = np.bincount(left, minlength=n_states) == 0
    return unleft


def start_or_uniform(p0: ArrayLike | None, terminal: Bool) -> Float:
    """Return the start distribution, by default uniform over the states that are not terminal (all, if all are)."""
    if p0 is not None:
        return validate.start_distribution(p0, terminal.size)
    chosen = np.ones(terminal.size, dtype=np.bool_) if terminal.all() else ~terminal
    uniform: Float = chosen / chosen.sum()
    return uniform


def normalised(src: Int64, act: Int64, prob: Float) -> Float:
    """Return the probabilities of the sorted edges rescaled to sum to 1 over each (s, a)."""
    pair = pair_index(src, act)
    return prob / np.bincount(pair, weights=prob)[pair]


def state_rows(features: FeatureInput | None, n_states: int) -> FeatureMatrix | None:
    """Read state features, with the remedy for a number of states that was guessed from the edges."""
    if features is None:
        return None
    matrix = as_features(features, "state_features")
    remedy = "Give one row a state, or pass n_states if states without an edge have rows too."
    validate.feature_rows(matrix, n_states, "state_features", lambda row: f"state {row}", remedy=remedy)
    return freeze(matrix)


def _indexed_rows(features: FeatureInput | None, axes: tuple[int, ...], rows: Int64, name: str) -> FeatureMatrix | None:
    """Pick rows of features indexed by `axes`, e.g. (S, A): dense (*axes, d) or (*axes,), or sparse (prod(axes), d)."""
    if features is None:
        return None
    total = math.prod(axes)
    if sparse.issparse(features):
        matrix = as_features(features, name)
        if matrix.shape[0] != total:
            raise InvalidMDP(f"Sparse {name} must have {total} rows, one for each of {axes}; it has {matrix.shape[0]}.")
        return freeze(matrix[rows])
    table = as_floats(features, name)
    if table.ndim not in (len(axes), len(axes) + 1) or table.shape[: len(axes)] != axes:
        expected = ", ".join(map(str, axes))
        raise InvalidMDP(
            f"{name} must have shape ({expected}, d); it has shape {table.shape}. Index it by state and action."
        )
    return table.reshape(total, -1)[rows]
