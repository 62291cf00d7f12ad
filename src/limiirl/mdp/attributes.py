"""Attributes of route choice by name: features of edges, one-hot constants, and features of the goal.

Each builder returns named columns for `add_edge_features`, or a `GoalFeature` for `add_goal_features`:

| Attribute | Function | Introduced by |
|---|---|---|
| log out-degree of the next state (choice aversion) | `next_choices` | Knies, Lorca and Melo (2022) |
| travel time or length of the next link | `edge_attribute` | Fosgerau, Frejinger and Karlström (2013) |
| left turns, U-turns | `turn_kinds` | Fosgerau, Frejinger and Karlström (2013) |
| road class | `class_constants` | |
| constant per link, constant per turn (fixed effects) | `state_constants`, `edge_constants` | |
| distance to the destination | `distance_to_goal` | |
| similarity of a state and the destination | `similarity_to_goal` | West and Leskovec (2012) |
| link size | `limiirl.irl.link_size` | Fosgerau, Frejinger and Karlström (2013) |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse import csgraph

from limiirl._typing import IntArray
from limiirl._validation import as_floats, check_choice, check_each, to_array
from limiirl.errors import InvalidParameter
from limiirl.mdp.features import GoalFeature
from limiirl.mdp.habits import EdgeFeatures
from limiirl.mdp.mdp import MDP

# Angles of Mai, Fosgerau and Frejinger (2015), in radians: changes of direction above the first are U-turns, and those
# below the second are straight.
_U_TURN, _STRAIGHT = 3.1, np.deg2rad(30.0)


def edge_attribute(mdp: MDP, values: ArrayLike, name: str, *, of: str = "state") -> EdgeFeatures:
    """Return one column with the values of the next states (S,) or, with of="edge", of edges (E,), such as minutes.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2])
    >>> edge_attribute(mdp, [0.0, 1.5, 0.5], "minutes").values.toarray().ravel()
    array([1.5, 0.5, 0.5])
    """
    given = as_floats(values, "values", boolean=True).astype(np.float64)
    check_each(np.isfinite(given), given, "values", "must be finite")
    column = _per_edge(mdp, given, "values", of)
    return EdgeFeatures(sparse.csr_array(column[:, None]), (name,))


def next_choices(mdp: MDP, counted: ArrayLike | None = None, name: str = "log next choices") -> EdgeFeatures:
    """Return the logarithm of the number of edges that leave the next state (Knies, Lorca and Melo 2022).

    Its parameter is negative if travellers avoid states with many alternatives. In the recursive logit model, the value
    of a state otherwise grows with the number of its alternatives. See also `limiirl.irl.with_choices`, which counts
    the edges of the current state.

    Parameters
    ----------
    counted : (E,) bool, optional
        The edges to count, such as those that do not end the trip; all by default. Other edges have the value 0.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 1, 1, 2], [1, 2, 3, 3])
    >>> next_choices(mdp).values.toarray().ravel().round(3)
    array([0.693, 0.   , 0.   , 0.   ])
    """
    mask = np.ones(mdp.n_edges, dtype=bool) if counted is None else to_array(counted, "counted").astype(bool)
    if mask.shape != (mdp.n_edges,):
        raise InvalidParameter.of("counted", mask.shape, f"must have shape ({mdp.n_edges},), one entry per edge")
    n_next = np.bincount(mdp.src[mask], minlength=mdp.n_states)
    column = np.log(np.maximum(1, n_next[mdp.dst])) * mask
    return EdgeFeatures(sparse.csr_array(column[:, None]), (name,))


def turn_kinds(mdp: MDP, angle: ArrayLike) -> EdgeFeatures:
    """Return indicators of left turns, right turns and U-turns for a network whose states are links.

    The thresholds are those of Mai, Fosgerau and Frejinger (2015): a turn is straight below 30 degrees, and a U-turn
    above 3.1 radians. For MDPs whose states include previous states, see `turn_features`.

    Parameters
    ----------
    angle : (E,)
        Change of direction in radians, negative to the left; nan for edges that are not turns.

    Examples
    --------
    >>> turn_kinds(MDP.from_edges([0, 0, 0], [1, 2, 3]), [-1.6, 0.1, 3.14]).values.toarray()
    array([[1., 0., 0.],
           [0., 0., 0.],
           [0., 0., 1.]])
    """
    angles = as_floats(angle, "angle")
    if angles.shape != (mdp.n_edges,):
        raise InvalidParameter.of("angle", angles.shape, f"must have shape ({mdp.n_edges},), one entry per edge")
    around = np.abs(angles) > _U_TURN
    kinds = [(angles < -_STRAIGHT) & ~around, (angles > _STRAIGHT) & ~around, around]
    return EdgeFeatures(
        sparse.csr_array(np.stack(kinds, axis=1).astype(np.float64)), ("left turn", "right turn", "U-turn")
    )


def state_constants(mdp: MDP, name: str = "state", *, scale: float = 1.0) -> EdgeFeatures:
    """Return one indicator per next state: a constant per link, if states are links.

    Use a ridge, such as ``DestinationMaxEnt(ridge={"state *": 1e-4})``, and `select_penalty` to choose it.

    Examples
    --------
    >>> state_constants(MDP.from_edges([0, 0, 1], [1, 2, 2])).names
    ('state 1', 'state 2')
    """
    return class_constants(mdp, _names_of_states(mdp), name, scale=scale)


def edge_constants(mdp: MDP, name: str = "edge", *, scale: float = 1.0) -> EdgeFeatures:
    """Return one indicator per edge: a constant per turn, if states are links.

    Examples
    --------
    >>> edge_constants(MDP.from_edges([0, 0, 1], [1, 2, 2])).names
    ('edge 0 > 1', 'edge 0 > 2', 'edge 1 > 2')
    """
    states = _names_of_states(mdp)
    names = [f"{name} {states[s]} > {states[t]}" for s, t in zip(mdp.src.tolist(), mdp.dst.tolist(), strict=True)]
    repeated = {text for text, count in zip(*np.unique(names, return_counts=True), strict=True) if count > 1}
    names = [f"{text} ({a})" if text in repeated else text for text, a in zip(names, mdp.act.tolist(), strict=True)]
    return EdgeFeatures(sparse.csr_array(scale * sparse.eye_array(mdp.n_edges, format="csr")), tuple(names))


def class_constants(
    mdp: MDP, labels: ArrayLike, name: str = "class", *, of: str = "state", scale: float = 1.0
) -> EdgeFeatures:
    """Return one indicator per class of the next state (S,) or, with of="edge", of the edge (E,), such as road classes.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2])
    >>> class_constants(mdp, ["minor", "minor", "major"], "road").names
    ('road major', 'road minor')
    """
    given = _per_edge(mdp, to_array(labels, "labels"), "labels", of)
    distinct, column = np.unique(given, return_inverse=True)
    shape = (mdp.n_edges, distinct.size)
    values = sparse.csr_array((np.full(mdp.n_edges, scale), (np.arange(mdp.n_edges), column)), shape=shape)
    return EdgeFeatures(values, tuple(f"{name} {label}" for label in distinct.tolist()))


def distance_to_goal(
    mdp: MDP, goals: ArrayLike, cost: ArrayLike | None = None, *, xy: ArrayLike | None = None, name: str = "distance"
) -> GoalFeature:
    """Return the distance from the next state to the goal, along the cheapest path or in a straight line.

    States from which the goal cannot be reached have the largest finite distance.

    Parameters
    ----------
    goals : (G,)
        For example, the last states of demonstrations; repeated goals are computed once.
    cost : (E,), optional
        Nonnegative costs of edges; 1 by default.
    xy : (S, 2), optional
        Coordinates of the states, for straight-line distances.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2])
    >>> distance_to_goal(mdp, [2], [1.0, 5.0, 1.0]).values
    array([[2., 1., 0.]])
    """
    ends = _distinct_states(mdp, goals)
    if xy is not None:
        points = as_floats(xy, "xy")
        if points.shape != (mdp.n_states, 2):
            raise InvalidParameter.of("xy", points.shape, f"must have shape ({mdp.n_states}, 2)")
        if cost is not None:
            raise InvalidParameter("cost must be None if xy is given. Pass one of them.", parameter="cost")
        return GoalFeature(name, np.linalg.norm(points[None] - points[ends][:, None], axis=2), ends)
    costs = np.ones(mdp.n_edges) if cost is None else as_floats(cost, "cost")
    if costs.shape != (mdp.n_edges,):
        raise InvalidParameter.of("cost", costs.shape, f"must have shape ({mdp.n_edges},), one entry per edge")
    check_each(costs >= 0.0, costs, "cost", "must not be negative")
    # Explicit zeros are edges in csgraph; of parallel edges, the cheapest counts.
    order = np.lexsort((costs, mdp.src, mdp.dst))
    first = np.ones(order.size, dtype=bool)
    first[1:] = (np.diff(mdp.src[order]) != 0) | (np.diff(mdp.dst[order]) != 0)
    kept = order[first]
    back = sparse.csr_array((costs[kept], (mdp.dst[kept], mdp.src[kept])), shape=(mdp.n_states, mdp.n_states))
    distance = csgraph.dijkstra(back, indices=ends)
    return GoalFeature(name, np.where(np.isinf(distance), distance[np.isfinite(distance)].max(), distance), ends)


def similarity_to_goal(
    mdp: MDP, goals: ArrayLike, vectors: ArrayLike | Callable[[int], ArrayLike], name: str = "similarity"
) -> GoalFeature:
    """Return the similarity of the next state and the goal, such as that of a page and the target of a search.

    Parameters
    ----------
    goals : (G,)
        Repeated goals are computed once.
    vectors : (S, m) array or callable
        Vectors of the states, whose cosine similarity is used; or a function that returns the values (S,) of all states
        for a goal.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2])
    >>> similarity_to_goal(mdp, [2], [[1.0, 0.0], [3.0, 4.0], [0.0, 2.0]]).values
    array([[0. , 0.8, 1. ]])
    """
    ends = _distinct_states(mdp, goals)
    if callable(vectors):
        return GoalFeature(name, np.array([as_floats(vectors(int(goal)), "vectors") for goal in ends]), ends)
    rows = as_floats(vectors, "vectors")
    if rows.ndim != 2 or rows.shape[0] != mdp.n_states:
        raise InvalidParameter.of("vectors", rows.shape, f"must have {mdp.n_states} rows, one per state")
    size = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = rows / np.where(size > 0.0, size, 1.0)
    return GoalFeature(name, unit[ends] @ unit.T, ends)


def _per_edge(mdp: MDP, given: NDArray[Any], name: str, of: str) -> NDArray[Any]:
    """Return the values of all edges (E,), given those of states (S,) or of edges (E,)."""
    size = mdp.n_states if check_choice(of, "of", ("state", "edge")) == "state" else mdp.n_edges
    if given.shape != (size,):
        raise InvalidParameter.of(name, given.shape, f"must have shape ({size},), one entry per {of}")
    return np.asarray(given[mdp.dst] if of == "state" else given)


def _distinct_states(mdp: MDP, given: ArrayLike) -> IntArray:
    states = np.unique(np.asarray(given))
    if states.size == 0 or states.dtype.kind not in "iu" or states[0] < 0 or states[-1] >= mdp.n_states:
        raise InvalidParameter.of("goals", given, f"must be state indices from 0 to {mdp.n_states - 1}")
    return states.astype(np.int64)


def _names_of_states(mdp: MDP) -> Any:
    return np.array(mdp.state_names or tuple(map(str, range(mdp.n_states))))
