"""Extremes of phi(tau) . phi(.) over sets of trajectories too large to list, and the law of phi where it is small.

Paper: assumption 1(a). For a fixed tau the inner product is a reward, so that its extremes over T_k and over all other
trajectories are finite-horizon dynamic programmes: d(tau) is exact over all of T, without enumeration.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl.mdp import MDP
from limiirl.mdp.features import FeatureMatrix
from limiirl.theory.typical import PathSet, Weights

Float = NDArray[np.float64]
Bool = NDArray[np.bool_]
Int = NDArray[np.int64]

# Sums of features closer than this, relative to the largest, are the same but for rounding.
_SAME = 1e-9
# Numbers held at once by a dynamic programme over many directions.
_BLOCK = 1_000_000


@dataclass(frozen=True, eq=False)
class Extremes:
    """For n directions theta, the extremes of theta . phi(.) over T_k and over all trajectories outside of it.

    Attributes
    ----------
    inside_min, inside_max : (n,)
        Over T_k; inf and -inf where it is empty.
    outside_max : (n,)
        Over T less T_k; -inf where that is empty.
    """

    inside_min: Float
    inside_max: Float
    outside_max: Float

    @property
    def margin(self) -> Float:
        """d(tau) (n,): by how much theta separates T_k from all others; negative where it does not."""
        return self.inside_min - self.outside_max


def extremes(paths: PathSet, k: int, thetas: ArrayLike) -> Extremes:
    """Return the extremes of theta . phi(.) over T_k and its complement, for directions (n, d) or (d,).

    Examples
    --------
    Two lanes; T has (0) as well, whose features are 0.

    >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0, 0], [3, 0], [0, 2]])
    >>> paths = PathSet(mdp, [[1, 0], [0, 1]], max_length=2)
    >>> found = extremes(paths, 0, [[3.0, 0.0], [1.5, -1.0]])
    >>> found.inside_min, found.outside_max, found.margin
    (array([9. , 4.5]), array([0., 0.]), array([9. , 4.5]))
    """
    blocks = list(_blocks(paths.mdp, paths.mdp.check_thetas(thetas)))
    negative = (Weights(-block.node, -block.edge, block.gamma, block.start) for block in blocks)
    return Extremes(
        np.concatenate([-paths.inside(k, np.maximum, block) for block in negative]),
        np.concatenate([paths.inside(k, np.maximum, block) for block in blocks]),
        np.concatenate([paths.outside(k, np.maximum, block) for block in blocks]),
    )


def outside_max(paths: PathSet, k: int, thetas: Float) -> Float:
    """Return (n,) the largest theta . phi(.) over all trajectories outside of T_k, for directions (n, d)."""
    found = [paths.outside(k, np.maximum, block) for block in _blocks(paths.mdp, thetas)]
    return np.concatenate([np.empty(0), *found])


def _blocks(mdp: MDP, thetas: Float) -> Iterator[Weights]:
    """Yield the rewards of directions (n, d), so many at once that they fit into memory."""
    start = np.where(mdp.p0 > 0.0, 0.0, -np.inf)[:, None]
    size = max(1, _BLOCK // (mdp.n_edges + mdp.n_states))
    for first in range(0, len(thetas), size):
        node, moves = mdp.rewards(thetas[first : first + size])
        yield Weights(node, np.zeros((mdp.n_edges, 1)) if moves is None else moves, mdp.gamma, start)


@dataclass(frozen=True, eq=False)
class Law:
    """The features of an expert's trajectories with their masses, exactly.

    Attributes
    ----------
    points : (m, d)
        phi of the trajectories in T_k, trajectories with the same features taken together.
    log_mass : (m,)
        Log of the sum of q over each.
    experts : (m, K) bool
        The experts in whose T_k these trajectories are; those that others can generate as well are points of their own.
    """

    points: Float
    log_mass: Float
    experts: Bool


def feature_law(paths: PathSet, k: int, limit: int = 1000) -> Law | None:
    """Return the law of phi over T_k, or None where more than `limit` walks differ in features at any step.

    At a discount of 1 with whole features few do, because walks that have collected the same are one; otherwise this is
    an enumeration of T_k.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 1, 2], [1, 2, 3, 3], p0=[1, 0, 0, 0], state_features=[0.0, 1.0, 1.0, 0.0])
    >>> law = feature_law(PathSet(mdp, [[1, 1, 1, 1], [0, 1, 0, 1]], max_length=3), 0)
    >>> law.points.tolist(), np.exp(law.log_mass).tolist(), law.experts.tolist()
    ([[1.0], [1.0]], [1.0, 1.0], [[True, False], [True, True]])
    """
    mdp = paths.mdp
    of_state, of_edge = _dense(mdp)
    usable = np.flatnonzero(paths.supports[k][mdp.pair_of_edge])
    ptr = np.searchsorted(mdp.src[usable], np.arange(mdp.n_states + 1))
    state = np.flatnonzero(mdp.p0 > 0.0)
    walks = _Walks(
        state, of_state[state], np.log(mdp.p0[state]), np.ones((state.size, paths.n_intents), dtype=np.bool_)
    )
    ended: list[_Walks] = []
    for t in range(paths.max_length):
        walks = walks.merged()
        if len(walks.state) > limit:
            return None
        ended.append(walks.those(paths.may_stop(paths.max_length - t)[1][walks.state]))
        if t == paths.max_length - 1:
            break
        many = np.diff(ptr)[walks.state]
        who = np.repeat(np.arange(many.size), many)
        edge = usable[np.arange(who.size) - np.repeat(np.cumsum(many) - many, many) + ptr[walks.state][who]]
        state = mdp.dst[edge].astype(np.int64)
        points = walks.points[who] + mdp.gamma**t * (of_edge[edge] + mdp.gamma * of_state[state])
        experts = walks.experts[who] & paths.supports[:, mdp.pair_of_edge[edge]].T
        walks = _Walks(state, points, walks.log_mass[who] + np.log(mdp.prob[edge]), experts)
    fields = [np.concatenate([getattr(walks, name) for walks in ended]) for name in ("points", "log_mass", "experts")]
    found = _Walks(np.zeros(len(fields[0]), dtype=np.int64), *fields).merged()
    return None if len(found.state) > limit else Law(found.points, found.log_mass, found.experts)


@dataclass(frozen=True, eq=False)
class _Walks:
    """Walks on their way: where they are, what they have collected, their mass, and the experts that they may be of."""

    state: Int
    points: Float
    log_mass: Float
    experts: Bool

    def those(self, mask: Bool) -> _Walks:
        return _Walks(self.state[mask], self.points[mask], self.log_mass[mask], self.experts[mask])

    def merged(self) -> _Walks:
        """Take together the walks that are in the same state with the same features and experts."""
        if not self.state.size:
            return self
        scale = max(1.0, float(np.abs(self.points).max(initial=0.0))) * _SAME
        keys = np.column_stack([self.state, self.experts, np.rint(self.points / scale)])
        _, first, index = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        order = np.argsort(index.ravel(), kind="stable")
        starts = np.searchsorted(index.ravel()[order], np.arange(first.size))
        log_mass = np.logaddexp.reduceat(self.log_mass[order], starts)
        return _Walks(self.state[first], self.points[first], log_mass, self.experts[first])


def _dense(mdp: MDP) -> tuple[Float, Float]:
    """Return the features of states (S, d) and of edges (E, d), in the columns of theta."""
    ends = np.cumsum([mdp.n_state_features, mdp.n_action_features, mdp.n_edge_features])
    of_state, of_edge = np.zeros((mdp.n_states, mdp.n_features)), np.zeros((mdp.n_edges, mdp.n_features))
    of_state[:, : ends[0]] = _array(mdp.state_features, mdp.n_states)
    of_edge[:, ends[0] : ends[1]] = _array(mdp.action_features, mdp.n_pairs)[mdp.pair_of_edge]
    of_edge[:, ends[1] :] = _array(mdp.edge_features, mdp.n_edges)
    return of_state, of_edge


def _array(features: FeatureMatrix | None, rows: int) -> Float:
    if features is None:
        return np.empty((rows, 0))
    return features if isinstance(features, np.ndarray) else np.asarray(features.toarray())
