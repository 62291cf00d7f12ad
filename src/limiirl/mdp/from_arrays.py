"""Constructors of an MDP from transition tables and from edge lists."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from limiirl._typing import BoolArray, FloatArray, IntArray
from limiirl._validation import as_floats, check_flag
from limiirl.errors import InvalidMDP
from limiirl.kernels.graph import edge_order, number_within, pair_index, pair_starts
from limiirl.mdp import validate
from limiirl.mdp.features import FeatureInput, FeatureMatrix, as_features, freeze

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
    action_names: Sequence[str] | None = None,
) -> MDP:
    """Build an MDP from a transition table.

    Parameters
    ----------
    T : (S, A, S)
        ``T[s, a, s']`` = P(s' | s, a). A row of zeros marks an action that is not available.
    p0 : (S,), optional
        Start distribution; default: uniform over the nonterminal states (over all states if all are terminal).
    gamma : float
        Discount in (0, 1].
    state_features : (S, ds), optional
        Dense or scipy.sparse. Here and below, the last axis may be omitted if it has length 1. Without features, state
        indicators are used.
    action_features : (S, A, da), optional
        A sparse matrix has S * A rows; (s, a) is row ``s * A + a``.
    edge_features : (S, A, S, de), optional
        A sparse matrix has S * A * S rows; (s, a, s') is row ``(s * A + a) * S + s'``.
    terminal : (S,) bool, or integer state indices, optional
        States that end a trajectory; their rows of T are ignored. Default: the states without an available action.
    normalise : bool
        Rescale the nonzero rows of T to sum to 1; T may then contain counts.
    feature_names : sequence of d strings, optional
    state_names : sequence of S strings, optional
    action_names : sequence of A strings, optional

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
    check_flag(normalise, "normalise")
    table = as_floats(T, "T", boolean=True, error=InvalidMDP)
    if table.ndim != 3 or table.shape[0] != table.shape[2]:
        raise InvalidMDP.of("T", table.shape, "must have shape (S, A, S)", remedy="Index it as T[s, a, s'].")
    n_states, n_actions, _ = table.shape
    n_states = validate.check_n_states(n_states)
    validate.check_entries(table, "T", np.inf if normalise else 1.0)
    src, act, dst = np.nonzero(table)
    mask = terminal_states(terminal, src, n_states)
    kept = ~mask[src]
    src, act, dst = src[kept], act[kept], dst[kept]
    prob = table[src, act, dst]
    pairs = src * n_actions + act
    first = pairs[pair_starts(src, act)]
    return cls(
        src=src.astype(np.int32),
        act=act.astype(np.int32),
        dst=dst.astype(np.int32),
        prob=normalise_pairs(src, act, prob) if normalise else prob,
        p0=start_or_uniform(p0, mask),
        gamma=gamma,
        terminal=mask,
        state_features=state_rows(state_features, n_states),
        action_features=_select_rows(action_features, table.shape[:2], first, "action_features"),
        edge_features=_select_rows(edge_features, table.shape, pairs * n_states + dst, "edge_features"),
        feature_names=validate.as_tuple(feature_names, "feature_names"),
        state_names=None if state_names is None else validate.as_tuple(state_names, "state_names"),
        action_names=None if action_names is None else validate.as_tuple(action_names, "action_names"),
    )


def terminal_states(terminal: ArrayLike | None, src: IntArray, n_states: int) -> BoolArray:
    """Return the mask of terminal states; if `terminal` is None, the states without an outgoing edge."""
    if terminal is not None:
        return validate.as_terminal_mask(terminal, n_states)
    return np.asarray(np.bincount(src, minlength=n_states) == 0)


def start_or_uniform(p0: ArrayLike | None, terminal: BoolArray) -> FloatArray:
    """Return p0, or if it is None, the uniform distribution over nonterminal states (over all if all are terminal)."""
    if p0 is not None:
        return validate.check_p0(p0, terminal.size)
    support = np.ones(terminal.size, dtype=np.bool_) if terminal.all() else ~terminal
    return np.asarray(support / support.sum())


def normalise_pairs(src: IntArray, act: IntArray, prob: FloatArray) -> FloatArray:
    """Rescale the probabilities of sorted edges to sum to 1 over each (s, a)."""
    pair = pair_index(src, act)
    return prob / np.bincount(pair, weights=prob)[pair]


def state_rows(features: FeatureInput | None, n_states: int) -> FeatureMatrix | None:
    """Return checked state features (S, ds)."""
    if features is None:
        return None
    matrix = as_features(features, "state_features")
    remedy = "Pass n_states if some states have no edge."
    validate.check_feature_rows(matrix, n_states, "state_features", remedy=remedy)
    return freeze(matrix)


def _select_rows(
    features: FeatureInput | None, axes: tuple[int, ...], rows: IntArray, name: str
) -> FeatureMatrix | None:
    """Return the given rows of features with shape (*axes, d) or (*axes,) if dense, or (prod(axes), d) if sparse."""
    if features is None:
        return None
    total = math.prod(axes)
    if sparse.issparse(features):
        matrix = as_features(features, name)
        if matrix.shape[0] != total:
            raise InvalidMDP.of(name, matrix.shape, f"must have {total} rows ({' * '.join(map(str, axes))}) if sparse")
        return freeze(matrix[rows])
    table = as_floats(features, name, boolean=True, error=InvalidMDP)
    if table.ndim not in (len(axes), len(axes) + 1) or table.shape[: len(axes)] != axes:
        raise InvalidMDP.of(name, table.shape, f"must have shape ({', '.join(map(str, axes))}, d)")
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
    action_names: Sequence[str] | None = None,
) -> MDP:
    """Build an MDP from a list of edges, in any order.

    Self-loops and parallel edges (same source and target, different actions) are allowed. Edges of probability 0 and
    edges that leave terminal states are dropped.

    Parameters
    ----------
    src, dst : (E,) int
        Source and target of each edge.
    n_states : int, optional
        Default: the largest state index plus one.
    action : (E,) int, optional
        Action of each edge. Default: each edge is a separate action, numbered from 0 within its source.
    prob : (E,), optional
        P(dst | src, action). Default: 1 (deterministic).
    p0 : (S,), optional
        Start distribution; default: uniform over the nonterminal states (over all states if all are terminal).
    gamma : float
        Discount in (0, 1].
    state_features : (S, ds), optional
        Dense or scipy.sparse; a one-dimensional array is one feature. Without features, state indicators are used.
    action_features : (E, da) or (S, A, da), optional
        Array indexed by edge, with equal rows for all edges of an (s, a) pair; or array indexed by [s, a].
    edge_features : (E, de), optional
        One row per edge.
    terminal : (S,) bool, or integer state indices, optional
        States that end a trajectory. Default: the states without an outgoing edge.
    normalise : bool
        Rescale `prob` to sum to 1 over each (s, a); `prob` may then contain counts.
    feature_names : sequence of d strings, optional
    state_names : sequence of S strings, optional
    action_names : sequence of A strings, optional

    Examples
    --------
    >>> from limiirl.mdp import MDP
    >>> mdp = MDP.from_edges([1, 0, 0], [2, 2, 1], edge_features=[[3.0], [1.0], [2.0]])
    >>> mdp.src, mdp.dst, mdp.edge_features.ravel()
    (array([0, 0, 1], dtype=int32), array([2, 1, 2], dtype=int32), array([1., 2., 3.]))
    """
    check_flag(normalise, "normalise")
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
        action_names=None if action_names is None else validate.as_tuple(action_names, "action_names"),
    )


class _EdgeList(NamedTuple):
    """Validated edges, in the order of the input."""

    src: IntArray
    act: IntArray
    dst: IntArray
    prob: FloatArray
    n_states: int
    deterministic: bool

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
        source, target = validate.as_indices(src, "src"), validate.as_indices(dst, "dst")
        if n_states is None:
            n_states = 1 + max(int(column.max(initial=-1)) for column in (source, target))
        n_states = validate.check_n_states(n_states)
        act = number_within(source) if action is None else validate.as_indices(action, "action")
        validate.check_edge_indices(source, act, target, n_states)
        weight = np.ones(source.size) if prob is None else as_floats(prob, "prob", error=InvalidMDP)
        validate.check_probabilities(weight, source.size, limit=np.inf if normalise else 1.0)
        stochastic = np.flatnonzero(weight != 1.0)
        if action is None and stochastic.size:
            edge = int(stochastic[0])
            rule, remedy = "must be 1 if action is None", "Pass the action of each edge."
            raise InvalidMDP.of("prob", float(weight[edge]), rule, index=edge, remedy=remedy)
        return cls(source, act, target, weight, n_states, prob is None)

    def canonical_rows(self, terminal: BoolArray) -> IntArray:
        """Return the indices of the edges to keep, sorted by (src, act, dst); raise `InvalidMDP` for duplicates."""
        rows = np.flatnonzero((self.prob > 0) & ~terminal[self.src])
        order = edge_order(self.src[rows], self.act[rows], self.dst[rows])
        rows = rows if order is None else rows[order]
        source, act, target = self.src[rows], self.act[rows], self.dst[rows]
        same_pair = ~pair_starts(source, act)[1:]
        twice = np.flatnonzero(same_pair & (target[1:] == target[:-1]))
        if twice.size:
            one, other = sorted((int(rows[twice[0]]), int(rows[twice[0] + 1])))
            raise InvalidMDP(
                f"Edges must not repeat (src, action, dst); edges {one} and {other} are both ({self.src[one]}, "
                f"{self.act[one]}, {self.dst[one]}). Use different actions, or sum the probabilities.",
                parameter="src",
                index=(one, other),
            )
        if self.deterministic and same_pair.any():
            position = int(np.flatnonzero(same_pair)[0])
            one, other = sorted((int(rows[position]), int(rows[position + 1])))
            raise InvalidMDP(
                f"prob is required if an action has several outcomes; edges {one} and {other} are both outcomes of "
                f"state {self.src[one]}, action {self.act[one]}. Pass prob, or use different actions.",
                parameter="prob",
                index=(one, other),
            )
        return rows


def _edge_rows(features: FeatureInput, edges: _EdgeList, name: str) -> FeatureMatrix:
    """Check features with one row per edge of the input, and return them as a matrix."""
    matrix = as_features(features, name)
    validate.check_feature_rows(matrix, edges.src.size, name, remedy="Pass one row per edge, in the order of src.")
    return matrix


def _edge_features(features: FeatureInput | None, edges: _EdgeList, rows: IntArray) -> FeatureMatrix | None:
    return None if features is None else freeze(_edge_rows(features, edges, "edge_features")[rows])


def _action_features(features: FeatureInput | None, edges: _EdgeList, rows: IntArray) -> FeatureMatrix | None:
    """Return one row per (s, a) pair among the edges with indices `rows`; `features` is indexed by [s, a] or edge."""
    if features is None:
        return None
    source, act = edges.src[rows], edges.act[rows]
    first = pair_starts(source, act)
    if (
        not sparse.issparse(features)
        and (table := as_floats(features, "action_features", boolean=True, error=InvalidMDP)).ndim == 3
    ):
        n_actions = int(edges.act.max(initial=-1)) + 1
        if table.shape[0] != edges.n_states or table.shape[1] < n_actions:
            rule = f"must have shape ({edges.n_states}, {n_actions}, da), or one row per edge"
            raise InvalidMDP.of("action_features", table.shape, rule)
        return table[source[first], act[first]]
    matrix = _edge_rows(features, edges, "action_features")
    leader = rows[first][pair_index(source, act)]
    unequal = _find_differing_rows(matrix[rows], matrix[leader])
    if unequal.size:
        one, other = int(leader[unequal[0]]), int(rows[unequal[0]])
        raise InvalidMDP(
            f"action_features must be equal for all edges of one (s, a); edges {one} and {other} of state "
            f"{edges.src[one]}, action {edges.act[one]} differ. Pass edge-dependent features as edge_features.",
            parameter="action_features",
            index=(one, other),
        )
    return matrix[rows[first]]


def _find_differing_rows(one: FeatureMatrix, other: FeatureMatrix) -> IntArray:
    if isinstance(one, np.ndarray):
        return np.flatnonzero((one != other).any(axis=1))
    return np.unique((one - other).nonzero()[0]).astype(np.int64)
