"""Edge features of habits: turns and sequences of states, for MDPs whose states include previous states, and policies.

Each builder returns sparse columns with names; `add_edge_features` appends them to an MDP.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.sparse import csgraph

from limiirl._typing import FloatArray, IntArray
from limiirl._validation import as_floats, check_count, check_flag, check_positive, to_array
from limiirl.errors import InvalidParameter
from limiirl.mdp.features import GoalFeature
from limiirl.mdp.mdp import MDP

# Largest change of direction of a turn that is "straight", in radians.
_STRAIGHT = np.deg2rad(30.0)
_BASE_KINDS = ("staying", "turning back")
# Largest excess of a probability over 1 by rounding.
_ROUNDING = 1e-9


class EdgeFeatures(NamedTuple):
    """Named columns of edge features.

    Attributes
    ----------
    values : (E, m) csr_array
    names : tuple of m str
    """

    values: sparse.csr_array[np.float64, tuple[int, int]]
    names: tuple[str, ...]


def add_edge_features(mdp: MDP, *blocks: EdgeFeatures) -> MDP:
    """Return an MDP with additional edge features, which are stored as a sparse matrix.

    Parameters
    ----------
    mdp : MDP
    *blocks : EdgeFeatures
        Features computed for this MDP, or for an MDP with the same edges.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 1], [0, 1, 0])
    >>> add_edge_features(mdp, sequence_features(mdp, 2, scale=0.5)).feature_names
    ('state[0]', 'state[1]', '0 > 0', '0 > 1', '1 > 0')
    """
    for i, block in enumerate(blocks):
        if block.values.shape != (mdp.n_edges, len(block.names)):
            rule = f"must have shape ({mdp.n_edges}, {len(block.names)}), one row per edge and one column per name"
            raise InvalidParameter.of("blocks", block.values.shape, rule, index=i)
    parts = [sparse.csr_array(block.values) for block in blocks if block.names]
    if not parts:
        return mdp
    if mdp.edge_features is not None:
        parts.insert(0, sparse.csr_array(mdp.edge_features))
    general = mdp.without_goal_features.feature_names
    goal_names = mdp.feature_names[len(general) :]
    names = (*general, *(name for block in blocks for name in block.names), *goal_names)
    return mdp.replace(edge_features=sparse.hstack(parts, format="csr"), feature_names=names)


def add_goal_features(mdp: MDP, *features: GoalFeature) -> MDP:
    """Return an MDP with additional features that depend on the goal, for `DestinationMaxEnt`.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2], edge_features=[1.0, 1.0, 1.0])
    >>> add_goal_features(mdp, GoalFeature("near", [[0.0, 1.0, 0.0]], goals=[2])).feature_names
    ('edge[0]', 'near')
    """
    names = (*mdp.feature_names, *(feature.name for feature in features))
    return mdp.replace(goal_features=(*mdp.goal_features, *features), feature_names=names)


def sequence_features(mdp: MDP, length: int = 3, *, actions: bool = False, scale: float = 1.0) -> EdgeFeatures:
    """Return one indicator per sequence of `length` states that ends with the next state of a transition.

    With length=1 the sequence is the next state, with 2 the current and the next state, with 3 also the previous state.
    For an MDP of `with_history`, the length is at most order + 2. Features for several lengths act like back-off in an
    n-gram model: with a ridge, the rewards of rare long sequences shrink towards those of the shorter sequences.

    Parameters
    ----------
    mdp : MDP
    length : int
        Number of states of a sequence, including the next state. Transitions with a shorter history have no indicator.
    actions : bool
        Distinguish the actions that lead to the same next state.
    scale : float
        Value of an indicator. A parameter theta is a reward of scale * theta, so that a ridge on theta is a ridge on
        the reward divided by scale^2: a scale below 1 shrinks the rewards of this block more.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 1], [0, 1, 0], state_names=["den", "pond"])
    >>> sequence_features(mdp, 2).names
    ('den > den', 'den > pond', 'pond > den')
    """
    states = _sequences(mdp)
    most = states.shape[1]
    length, scale = check_count(length, "length"), check_positive(scale, "scale")
    if length > most:
        remedy = "Reduce it, or call with_history with a higher order."
        raise InvalidParameter.of("length", length, f"must be at most {most}, the order plus 2", remedy=remedy)
    present = np.flatnonzero(states[:, length - 1] >= 0)
    rows = states[present, length - 1 :: -1]
    by_action = check_flag(actions, "actions")
    if by_action:
        rows = np.column_stack([rows, mdp.act[present]])
    distinct, column = np.unique(rows, axis=0, return_inverse=True)
    named = mdp.original_names or mdp.state_names or tuple(map(str, range(mdp.n_states)))
    names = [" > ".join(named[s] for s in row[:length]) for row in distinct.tolist()]
    if by_action:
        acts = mdp.action_names or tuple(f"action {a}" for a in range(mdp.n_actions))
        names = [f"{name} ({acts[a]})" for name, a in zip(names, distinct[:, -1].tolist(), strict=True)]
    return _indicators(mdp, present, column.ravel(), names, scale)


def policy_features(mdp: MDP, policy: ArrayLike, name: str = "habit") -> EdgeFeatures:
    """Return the log-probability of each action under a reference policy, such as a habit, as one feature.

    If its parameter is 1, the rewards of other features are relative to the policy: `MaxCausalEnt` with beta=1
    maximises the expected sum of these rewards minus the Kullback-Leibler divergence from the policy, and without other
    rewards its policy is the reference policy for every discount. Bounds on theta keep the parameter at 1.

    Parameters
    ----------
    mdp : MDP
    policy : (S, A)
        Probabilities, which are positive for all actions that the MDP allows.
    name : str

    Examples
    --------
    >>> from limiirl.irl import MaxCausalEnt
    >>> mdp = MDP.from_edges([0, 0, 1], [0, 1, 0], gamma=0.9, state_features=[[0.0], [1.0]])
    >>> habitual = add_edge_features(mdp, policy_features(mdp, [[0.9, 0.1], [1.0, 0.0]]))
    >>> MaxCausalEnt().policy(habitual, [0.0, 1.0]).round(6).tolist()
    [[0.9, 0.1], [1.0, 0.0]]
    >>> MaxCausalEnt().policy(habitual, [2.0, 1.0]).round(2).tolist()
    [[0.66, 0.34], [1.0, 0.0]]
    """
    table = as_floats(policy, "policy")
    if table.shape != (mdp.n_states, mdp.n_actions):
        rule = f"must have shape ({mdp.n_states}, {mdp.n_actions}), one row per state and one column per action"
        raise InvalidParameter.of("policy", table.shape, rule)
    prob = table[mdp.src, mdp.act]
    wrong = ~((prob > 0.0) & (prob <= 1.0 + _ROUNDING))
    if np.any(wrong):
        e = int(np.argmax(wrong))
        rule = f"must be probabilities above 0 (state {mdp.src[e]}, action {mdp.act[e]})"
        index = int(mdp.src[e]), int(mdp.act[e])
        raise InvalidParameter.of("policy", float(prob[e]), rule, index=index)
    return EdgeFeatures(sparse.csr_array(np.log(prob)[:, None]), (name,))


def turn_features(
    mdp: MDP,
    *,
    xy: ArrayLike | None = None,
    root: int | None = None,
    per: ArrayLike | None = None,
    n_turns: int = 1,
    scale: float = 1.0,
) -> EdgeFeatures:
    """Return one indicator per kind of turn: staying, turning back, and, with `xy` or `root`, the direction.

    A turn consists of the previous, the current and the next state. "staying": the next state is the current one.
    "turning back": the next state is the previous one. The other kinds depend on the arguments:

    - With coordinates `xy`: "straight" (a change of direction below 30 degrees), "left" and "right".
    - In a tree with a `root`, where children are numbered 1, 2, ... in the order of their states: "down 2" to child 2,
      "up from 1", "across 1 to 2"; turning back is "back up" or "back down 1".
    - Otherwise, other turns have no indicator.

    If the MDP has two previous states, "alternating" is a left turn directly after a right turn or vice versa; in a
    tree, it is two consecutive steps down to children with different numbers. Indicators that are equal for all edges
    are omitted.

    Parameters
    ----------
    mdp : MDP
        An MDP of `with_history`.
    xy : (n, 2), optional
        Coordinates of the states of the original MDP; the second axis points upwards.
    root : int, optional
        Root of the tree of the states of the original MDP.
    per : (n,), optional
        Groups of the states of the original MDP, such as depths: each kind has one indicator per group of the current
        state.
    n_turns : int
        Number of consecutive turns that are combined, such as "left after right" for 2. Requires n_turns
        previous states.
    scale : float
        Value of the features, as in `sequence_features`.

    Examples
    --------
    >>> from limiirl.demos import Demonstrations, with_history
    >>> mdp = MDP.from_edges([0, 1, 1, 2], [1, 0, 2, 1])
    >>> longer, demos = with_history(mdp, Demonstrations.from_lists([[0, 1, 2, 1]]))
    >>> turn_features(longer).names, turn_features(longer, xy=[[0, 0], [1, 0], [1, 1]], per=["a", "b", "b"]).names
    (('turning back',), ('turning back, a', 'turning back, b', 'left, b', 'right, b'))
    """
    states = _sequences(mdp)
    n_turns, scale = check_count(n_turns, "n_turns"), check_positive(scale, "scale")
    if n_turns > states.shape[1] - 2:
        remedy = "Call with_history with a higher order."
        raise InvalidParameter.of(
            "n_turns", n_turns, f"must be at most {states.shape[1] - 2}, the order", remedy=remedy
        )
    if xy is not None and root is not None:
        raise InvalidParameter.of("root", root, "must be None if xy is given")
    n = 1 + int(states.max(initial=0))
    if root is not None:
        classify: _Turns | _TreeTurns = _TreeTurns(states, n, root)
    else:
        classify = _Turns(None if xy is None else _check_xy(xy, n))
    n_known = min(states.shape[1] - 2, max(n_turns, 2))
    kinds = [classify.kinds(*states[:, i : i + 3].T) for i in range(n_known)]
    code, names = kinds[0], list(classify.names)
    for before in kinds[1:n_turns]:
        code = np.where((code >= 0) & (before >= 0), code * len(classify.names) + before, -1)
        names = [f"{name} after {other}" for name in names for other in classify.names]
    blocks = [(code, names)]
    if n_turns == 1 and n_known > 1 and classify.alternatives:
        own, previous = (np.isin(kind, classify.alternatives) for kind in kinds[:2])
        blocks.append((np.where(own & previous & (kinds[0] != kinds[1]), 0, -1), ["alternating"]))
    parts = [_interactions(mdp, code, names, states[:, 1], per, scale) for code, names in blocks]
    values = sparse.csr_array(sparse.hstack([part.values for part in parts], format="csr"))
    every = np.concatenate([np.array(part.names, dtype=object) for part in parts])
    sizes = np.diff(values.tocsc().indptr)
    kept = np.flatnonzero((sizes > 0) & (sizes < mdp.n_edges))
    return EdgeFeatures(sparse.csr_array(values[:, kept]), tuple(every[kept].tolist()))


def _sequences(mdp: MDP) -> IntArray:
    """Return the next, the current and the previous states (E, order + 2) of each edge; -1 where absent."""
    history = np.arange(mdp.n_states)[:, None] if mdp.history is None else mdp.history.astype(np.int64)
    return np.column_stack([history[mdp.dst, 0], history[mdp.src]])


def _indicators(mdp: MDP, edge: IntArray, column: IntArray, names: Sequence[str], scale: float) -> EdgeFeatures:
    shape = (mdp.n_edges, len(names))
    return EdgeFeatures(sparse.csr_array((np.full(edge.size, scale), (edge, column)), shape=shape), tuple(names))


def _interactions(
    mdp: MDP, code: IntArray, names: list[str], current: IntArray, per: ArrayLike | None, scale: float
) -> EdgeFeatures:
    """Return one indicator per code and group of the current state; edges with code (E,) -1 have none."""
    if per is not None:
        labels = to_array(per, "per")
        if labels.ndim != 1 or labels.size <= current.max(initial=-1):
            rule = f"must have one entry per state of the original MDP, at least {current.max(initial=-1) + 1}"
            raise InvalidParameter.of("per", labels.shape, rule)
        groups, group = np.unique(labels, return_inverse=True)
        code = np.where(code >= 0, code * groups.size + group[current], -1)
        names = [f"{name}, {label}" for name in names for label in groups.tolist()]
    present = np.flatnonzero(code >= 0)
    return _indicators(mdp, present, code[present], names, scale)


def _check_xy(xy: ArrayLike, n: int) -> FloatArray:
    array = as_floats(xy, "xy")
    if array.ndim != 2 or array.shape[0] < n or array.shape[1] != 2:
        raise InvalidParameter.of("xy", array.shape, f"must have shape ({n}, 2), one row per state of the original MDP")
    return array


class _Turns:
    """Kinds of turns of a graph, with directions if coordinates are known."""

    def __init__(self, xy: FloatArray | None) -> None:
        self.xy = xy
        self.names: tuple[str, ...] = _BASE_KINDS if xy is None else (*_BASE_KINDS, "left", "right", "straight")
        self.alternatives = [] if xy is None else [2, 3]

    def kinds(self, after: IntArray, at: IntArray, before: IntArray) -> IntArray:
        """Return the kind (n,) of each turn from `before` via `at` to `after`; -1 if there is no kind."""
        kind = np.full(at.size, -1)
        known = (at >= 0) & (before >= 0)
        if self.xy is not None:
            first, second = self.xy[at] - self.xy[before], self.xy[after] - self.xy[at]
            cross = first[:, 0] * second[:, 1] - first[:, 1] * second[:, 0]
            angle = np.arctan2(cross, np.sum(first * second, axis=1))
            moves = known & np.any(first != 0.0, axis=1) & np.any(second != 0.0, axis=1)
            kind[moves] = np.where(np.abs(angle) <= _STRAIGHT, 4, np.where(angle > 0.0, 2, 3))[moves]
        kind[known & (after == before)] = 1
        kind[(at >= 0) & (after == at)] = 0
        return kind


class _TreeTurns:
    """Kinds of turns of a tree with a root."""

    def __init__(self, states: IntArray, n: int, root: int) -> None:
        root = check_count(root, "root", least=0)
        ends = np.unique(np.sort(states[:, :2], axis=1), axis=0)
        ends = ends[ends[:, 0] != ends[:, 1]]
        graph: Any = sparse.csr_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(n, n))
        if root >= n or len(ends) != n - 1 or csgraph.connected_components(graph, directed=False)[0] > 1:
            rule = f"must be a state of a tree; the original MDP has {n} states and {len(ends)} connections"
            raise InvalidParameter.of("root", root, rule, remedy="Pass xy, or neither.")
        _, self.parent = csgraph.breadth_first_order(graph, root, directed=False)
        # Rank of each state among the children of its parent.
        order = np.argsort(self.parent, kind="stable")
        ordered = self.parent[order]
        self.rank = np.empty(n, dtype=np.int64)
        self.rank[order] = np.arange(n) - np.searchsorted(ordered, ordered)
        self.rank[root] = -1
        m = self.most = int(self.rank.max()) + 1
        each = range(1, m + 1)
        self.names = (
            "staying",
            "back up",
            *(f"back down {i}" for i in each),
            *(f"down {i}" for i in each),
            *(f"up from {i}" for i in each),
            *(f"across {i} to {j}" for i in each for j in each),
        )
        self.alternatives = [2 + m + i for i in range(m)]

    def kinds(self, after: IntArray, at: IntArray, before: IntArray) -> IntArray:
        """Return the kind (n,) of each turn from `before` via `at` to `after`; -1 if there is no kind."""
        m, kind = self.most, np.full(at.size, -1)
        known = (at >= 0) & (before >= 0) & (at != before)
        above, up = self.parent[at] == before, self.parent[at] == after
        source, target = self.rank[before], self.rank[after]
        kind[known & above] = (2 + m + target)[known & above]
        kind[known & ~above] = (2 + 3 * m + source * m + target)[known & ~above]
        kind[known & ~above & up] = (2 + 2 * m + source)[known & ~above & up]
        back = known & (after == before)
        kind[back] = np.where(above, 1, 2 + source)[back]
        kind[(at >= 0) & (after == at)] = 0
        return kind
