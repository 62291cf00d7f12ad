"""MDPs from transition tables and from edge lists in any order."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from limiirl._typing import BoolArray, FloatArray, IntArray
from limiirl.errors import InvalidMDP
from limiirl.mdp import validate
from limiirl.mdp.features import FeatureInput, FeatureMatrix, as_features, as_floats, freeze
from limiirl.mdp.indexing import edge_order, number_within, pair_index, pair_starts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from limiirl.mdp.mdp import MDP


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
        raise InvalidMDP(
            f"T must have shape (S, A, S); it has shape {table.shape}. Index it as T[s, a, s'].",
            parameter="T",
            value=table.shape,
        )
    n_states, n_actions, _ = table.shape
    n_states = validate.check_n_states(n_states)
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
        prob=normalise_pairs(src, act, prob) if normalise else prob,
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


def _check_table(table: FloatArray, limit: float) -> None:
    wrong = ~((table >= 0) & (table <= limit + validate.TOLERANCE)) | np.isinf(table)
    if wrong.any():
        state, action, target = (int(index) for index in np.argwhere(wrong)[0])
        value = float(table[state, action, target])
        where = f"T at state {state}, action {action}, next state {target}"
        raise InvalidMDP(
            validate.probability_message(where, value),
            parameter="T",
            value=value,
            index=(state, action, target),
        )


def terminal_states(terminal: ArrayLike | None, left: IntArray, n_states: int) -> BoolArray:
    """Return the terminal mask, by default the states that no edge leaves."""
    if terminal is not None:
        return validate.as_terminal_mask(terminal, n_states)
    unleft: BoolArray = np.bincount(left, minlength=n_states) == 0
    return unleft


def start_or_uniform(p0: ArrayLike | None, terminal: BoolArray) -> FloatArray:
    """Return the start distribution, by default uniform over the states that are not terminal (all, if all are)."""
    if p0 is not None:
        return validate.check_p0(p0, terminal.size)
    chosen = np.ones(terminal.size, dtype=np.bool_) if terminal.all() else ~terminal
    uniform: FloatArray = chosen / chosen.sum()
    return uniform


def normalise_pairs(src: IntArray, act: IntArray, prob: FloatArray) -> FloatArray:
    """Return the probabilities of the sorted edges rescaled to sum to 1 over each (s, a)."""
    pair = pair_index(src, act)
    return prob / np.bincount(pair, weights=prob)[pair]


def state_rows(features: FeatureInput | None, n_states: int) -> FeatureMatrix | None:
    """Read state features, with the remedy for a number of states that was guessed from the edges."""
    if features is None:
        return None
    matrix = as_features(features, "state_features")
    remedy = "Give one row per state, or pass n_states if states without an edge have rows too."
    validate.check_feature_rows(matrix, n_states, "state_features", lambda row: f"state {row}", remedy=remedy)
    return freeze(matrix)


def _indexed_rows(
    features: FeatureInput | None, axes: tuple[int, ...], rows: IntArray, name: str
) -> FeatureMatrix | None:
    """Pick rows of features indexed by `axes`, e.g. (S, A): dense (*axes, d) or (*axes,), or sparse (prod(axes), d)."""
    if features is None:
        return None
    total = math.prod(axes)
    if sparse.issparse(features):
        matrix = as_features(features, name)
        if matrix.shape[0] != total:
            raise InvalidMDP(
                f"Sparse {name} must have {total} rows, one for each of {axes}; it has {matrix.shape[0]}.",
                parameter=name,
                value=matrix.shape,
            )
        return freeze(matrix[rows])
    table = as_floats(features, name)
    if table.ndim not in (len(axes), len(axes) + 1) or table.shape[: len(axes)] != axes:
        expected = ", ".join(map(str, axes))
        raise InvalidMDP(
            f"{name} must have shape ({expected}, d); it has shape {table.shape}. Index it by state and action.",
            parameter=name,
            value=table.shape,
        )
    return table.reshape(total, -1)[rows]


def from_edges(  # noqa: PLR0913 (the design fixes the signature)
    cls: type[MDP],
    src: ArrayLike,
    dst: ArrayLike,
    n_states: int | None = None,
    action: ArrayLike | None = None,
    prob: ArrayLike | None = None,
    p0: ArrayLike | None = None,
    gamma: float = 1.0,
    state_features: FeatureInput | None = None,
    action_features: FeatureInput | None = None,
    edge_features: FeatureInput | None = None,
    terminal: ArrayLike | None = None,
    *,
    normalise: bool = False,
    feature_names: Sequence[str] | None = None,
    state_names: Sequence[str] | None = None,
) -> MDP:
    """Build an MDP from a list of edges in any order.

    Self-loops and parallel edges (one source and target, different actions) are welcome. Edges of probability 0 and
    edges that leave terminal states are dropped.

    Parameters
    ----------
    src, dst : (E,) int
        Source and target of each edge.
    n_states : int, optional
        By default the largest state of any edge plus one.
    action : (E,) int, optional
        Action of each edge. By default each edge is an action of its own, numbered from 0 within its source in the
        order given.
    prob : (E,), optional
        P(dst | src, action); by default 1, a deterministic MDP.
    p0 : (S,), optional
        Start distribution; by default uniform over the states that are not terminal (over all, if all are).
    gamma : float
        Discount in (0, 1].
    state_features : (S, ds), optional
        Dense or scipy.sparse; a one-dimensional array is one feature. Without features of any kind, indicators of the
        states.
    action_features : (E, da) or (S, A, da), optional
        One row per edge in the order given, the same on all edges of one (s, a); or an array indexed [s, a].
    edge_features : (E, de), optional
        One row per edge in the order given.
    terminal : (S,) bool, or integer state indices, optional
        States in which a trajectory stops. By default those without an outgoing edge.
    normalise : bool
        Rescale `prob` to sum to 1 over each (s, a), so that counts will do.
    feature_names : sequence of d strings, optional
    state_names : sequence of S strings, optional

    Examples
    --------
    >>> from limiirl.mdp import MDP
    >>> mdp = MDP.from_edges([1, 0, 0], [2, 2, 1], edge_features=[[3.0], [1.0], [2.0]])
    >>> mdp.src, mdp.dst, mdp.edge_features.ravel()
    (array([0, 0, 1], dtype=int32), array([2, 1, 2], dtype=int32), array([1., 2., 3.]))
    """
    edges = _EdgeList.read(src, dst, n_states, action, prob, normalise=normalise)
    mask = terminal_states(terminal, edges.src[edges.prob > 0], edges.n_states)
    rows = edges.canonical_rows(mask)
    source, act, target, weight = edges.src[rows], edges.act[rows], edges.dst[rows], edges.prob[rows]
    return cls(
        src=source.astype(np.int32),
        act=act.astype(np.int32),
        dst=target.astype(np.int32),
        prob=normalise_pairs(source, act, weight) if normalise else weight,
        p0=start_or_uniform(p0, mask),
        gamma=gamma,
        terminal=mask,
        state_features=state_rows(state_features, edges.n_states),
        action_features=_action_features(action_features, edges, rows),
        edge_features=_edge_features(edge_features, edges, rows),
        feature_names=validate.as_tuple(feature_names, "feature_names"),
        state_names=None if state_names is None else validate.as_tuple(state_names, "state_names"),
    )


class _EdgeList(NamedTuple):
    """Edges in the order given, checked one by one but not yet sorted."""

    src: IntArray
    act: IntArray
    dst: IntArray
    prob: FloatArray
    n_states: int
    certain: bool

    @classmethod
    def read(
        cls,
        src: ArrayLike,
        dst: ArrayLike,
        n_states: int | None,
        action: ArrayLike | None,
        prob: ArrayLike | None,
        *,
        normalise: bool,
    ) -> _EdgeList:
        """Check the columns of an edge list and fill in its defaults."""
        source, target = validate.as_indices(src, "src"), validate.as_indices(dst, "dst")
        if n_states is None:
            n_states = 1 + max(int(column.max(initial=-1)) for column in (source, target))
        n_states = validate.check_n_states(n_states)
        act = number_within(source) if action is None else validate.as_indices(action, "action")
        validate.check_edge_indices(source, act, target, n_states)
        weight = np.ones(source.size) if prob is None else as_floats(prob, "prob")
        validate.check_probabilities(weight, source.size, limit=np.inf if normalise else 1.0)
        uncertain = np.flatnonzero(weight != 1.0)
        if action is None and uncertain.size:
            edge = int(uncertain[0])
            raise InvalidMDP(
                f"Without action= every edge is an action of its own and needs probability 1; edge {edge} has "
                f"{weight[edge]}. Pass action= to say which edges are outcomes of one action.",
                parameter="prob",
                value=float(weight[edge]),
                index=edge,
            )
        return cls(source, act, target, weight, n_states, prob is None)

    def canonical_rows(self, terminal: BoolArray) -> IntArray:
        """Return the edges to keep, sorted by (src, act, dst), after a check for duplicates."""
        rows = np.flatnonzero((self.prob > 0) & ~terminal[self.src])
        order = edge_order(self.src[rows], self.act[rows], self.dst[rows])
        rows = rows if order is None else rows[order]
        source, act, target = self.src[rows], self.act[rows], self.dst[rows]
        same_pair = ~pair_starts(source, act)[1:]
        twice = np.flatnonzero(same_pair & (target[1:] == target[:-1]))
        if twice.size:
            one, other = sorted((int(rows[twice[0]]), int(rows[twice[0] + 1])))
            raise InvalidMDP(
                f"An edge may occur once; edges {one} and {other} both go from state {self.src[one]} by action "
                f"{self.act[one]} to state {self.dst[one]}. "
                "Give parallel edges different actions, or add their probabilities.",
                parameter="src",
                index=(one, other),
            )
        if self.certain and same_pair.any():
            position = int(np.flatnonzero(same_pair)[0])
            one, other = sorted((int(rows[position]), int(rows[position + 1])))
            raise InvalidMDP(
                f"Without prob= every edge has probability 1; edges {one} and {other} both leave state {self.src[one]} "
                f"by action {self.act[one]}. Pass prob=, or give them different actions.",
                parameter="prob",
                index=(one, other),
            )
        return rows


def _edge_rows(features: FeatureInput, edges: _EdgeList, name: str) -> FeatureMatrix:
    """Read features given as one row per edge, so that messages count the edges as the caller does."""
    matrix = as_features(features, name)
    remedy = "Give one row per edge, in the order of src and dst."
    validate.check_feature_rows(matrix, edges.src.size, name, lambda row: f"edge {row}", remedy=remedy)
    return matrix


def _edge_features(features: FeatureInput | None, edges: _EdgeList, rows: IntArray) -> FeatureMatrix | None:
    return None if features is None else freeze(_edge_rows(features, edges, "edge_features")[rows])


def _action_features(features: FeatureInput | None, edges: _EdgeList, rows: IntArray) -> FeatureMatrix | None:
    """Return one row for each (s, a) pair of the edges `rows`, from an [s, a] table or from one row per edge."""
    if features is None:
        return None
    source, act = edges.src[rows], edges.act[rows]
    first = pair_starts(source, act)
    if not sparse.issparse(features) and (table := as_floats(features, "action_features")).ndim == 3:
        n_actions = int(edges.act.max(initial=-1)) + 1
        if table.shape[0] != edges.n_states or table.shape[1] < n_actions:
            raise InvalidMDP(
                f"action_features indexed [s, a] must cover {edges.n_states} states and {n_actions} actions; it has "
                f"shape {table.shape}. Give an array (S, A, da), or one row per edge.",
                parameter="action_features",
                value=table.shape,
            )
        return table[source[first], act[first]]
    matrix = _edge_rows(features, edges, "action_features")
    leader = rows[first][pair_index(source, act)]
    unequal = _disagreeing_rows(matrix[rows], matrix[leader])
    if unequal.size:
        one, other = int(leader[unequal[0]]), int(rows[unequal[0]])
        raise InvalidMDP(
            f"action_features must agree on the edges of one (s, a); edges {one} and {other} of state {edges.src[one]} "
            f"and action {edges.act[one]} differ. Give both the same row, or pass what differs as edge_features.",
            parameter="action_features",
            index=(one, other),
        )
    return matrix[rows[first]]


def _disagreeing_rows(one: FeatureMatrix, other: FeatureMatrix) -> IntArray:
    """Return the rows in which two matrices of one shape differ."""
    if isinstance(one, np.ndarray):
        return np.flatnonzero((one != other).any(axis=1))
    return np.unique((one - other).nonzero()[0]).astype(np.int64)
