"""Directions in reward space that leave the probability of every trajectory unchanged.

A direction v is null if v . F(tau) is the same for all trajectories tau. For example, indicators of road classes and
indicators of speed limits, all multiplied by length, have one null direction, because both sets sum to the length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from limiirl._typing import FloatArray
from limiirl.demos import Demonstrations
from limiirl.errors import InvalidParameter
from limiirl.irl.problem import OptionalMembers, make_problem
from limiirl.mdp import MDP

# Eigenvalues up to this size, for features of unit size, are treated as zero. Rounding errors are about 1e-13.
_NULL = 1e-10
# Sums of squared projections up to this size, for unit directions, are treated as zero.
_SEPARATE = 1e-8
# Condition index above which a direction is weakly identified (Belsley, Kuh and Welsch 1980), and least component of a
# feature that is named.
_WEAK, _INVOLVED = 30.0, 0.3


def variation(mdp: MDP, max_length: float, by_start: bool) -> tuple[FloatArray, FloatArray]:
    """Return the Gram matrix (d, d) of feature differences between trajectories, and the scale (d,) of each feature.

    Trajectories may stop anywhere. Extending a trajectory along an edge e to s' adds gamma^t (phi(e) + gamma phi(s'))
    to F. These vectors, and the differences between the features of start states, span all differences of F.

    Parameters
    ----------
    max_length : int or inf
        Maximum length of a trajectory. Edges that no such trajectory contains are excluded.
    by_start : bool
        If True, the model is conditioned on the start state, and trajectories from different start states are not
        compared.
    """
    usable = _depth(mdp)[mdp.src] + 2 <= max_length
    blocks: list[Any] = []
    if mdp.state_features is not None:
        blocks.append(mdp.gamma * mdp.state_features[mdp.dst[usable]])
    if mdp.action_features is not None:
        blocks.append(mdp.action_features[mdp.pair_of_edge[usable]])
    if mdp.edge_features is not None:
        blocks.append(mdp.edge_features[usable])
    rows = sparse.hstack([sparse.csr_array(block) for block in blocks], format="csr")
    gram = (rows.T @ rows).toarray()
    size = np.diag(gram).copy()
    if mdp.state_features is not None and not by_start:
        environment = np.zeros(mdp.n_states) if mdp.environment is None else mdp.environment
        for e in np.unique(environment):  # start states of different environments are not compared
            starts = sparse.csr_array(mdp.state_features)[np.flatnonzero((mdp.p0 > 0) & (environment == e))]
            mean: FloatArray = np.asarray(starts.mean(axis=0)).ravel()
            products = (starts.T @ starts).toarray()
            gram[: mean.size, : mean.size] += products - starts.shape[0] * np.outer(mean, mean)
            size[: mean.size] += np.diag(products)
    return np.asarray(gram), np.sqrt(size)


def _depth(mdp: MDP) -> FloatArray:
    """Return the smallest number of transitions (S,) from a start state to each state; inf if unreachable."""
    depth = np.full(mdp.n_states, np.inf)
    frontier = np.flatnonzero(mdp.p0 > 0)
    links = sparse.csr_array((np.ones(mdp.n_edges), (mdp.src, mdp.dst)), shape=(mdp.n_states, mdp.n_states))
    n_transitions = 0
    while frontier.size:
        depth[frontier] = n_transitions
        reached = np.unique(links[frontier].indices)
        frontier = reached[np.isinf(depth[reached])]
        n_transitions += 1
    return depth


def null_directions(gram: FloatArray, size: FloatArray) -> FloatArray:
    """Return an orthonormal basis (m, d) of the null space of a Gram or covariance matrix of path features.

    `size` (d,) is the scale of each feature before centring. Variances are taken relative to this scale, so that the
    result does not depend on the units of the features.

    Examples
    --------
    >>> null_directions(np.array([[1.0, 1.0], [1.0, 1.0]]), np.ones(2)).round(3)
    array([[ 0.707, -0.707]])
    """
    variance = np.diag(gram)
    constant = variance <= _NULL * size**2
    scale = np.where(constant, 1.0, np.sqrt(np.where(constant, 1.0, variance)))
    scaled = gram / np.outer(scale, scale)
    scaled[constant] = scaled[:, constant] = 0.0
    values, vectors = np.linalg.eigh(scaled)
    directions = (vectors[:, values <= _NULL * gram.shape[0]] / scale[:, None]).T
    if not directions.size:
        return np.empty((0, gram.shape[0]))
    return _orient(np.linalg.svd(directions, full_matrices=False)[2])


def _orient(basis: FloatArray) -> FloatArray:
    """Make the signs unique: the first of the largest entries of each direction is positive."""
    size = np.abs(basis)
    first = np.argmax(size >= size.max(axis=1, initial=0.0, keepdims=True) - _NULL, axis=1)
    return np.asarray(basis * np.sign(basis[np.arange(len(basis)), first])[:, None])


def describe(directions: FloatArray, names: Sequence[str], most: int = 4) -> str:
    """Return a sentence that names the features involved in null directions (m, d).

    Examples
    --------
    >>> describe(np.array([[0.6, 0.0, -0.8]]), ["length", "toll", "time"])
    '1 of 3 directions in reward space cannot be identified; it involves time, length'
    """
    involved = np.linalg.norm(directions, axis=0)
    order = [j for j in np.argsort(-involved, kind="stable") if involved[j] > 1e-6]
    listed = ", ".join(names[j] for j in order[:most]) + (f" and {len(order) - most} more" if len(order) > most else "")
    subject = "it involves" if directions.shape[0] == 1 else "they involve"
    of = f"{directions.shape[0]} of {directions.shape[1]}"
    return f"{of} directions in reward space cannot be identified; {subject} {listed}"


@dataclass(frozen=True, eq=False)
class Identifiability:
    """Null and weakly identified directions of rewards in several environments, separately and together.

    Attributes
    ----------
    feature_names : tuple of str
        Names of the d features of all environments.
    separate : tuple of (m_e, d)
        Orthonormal null directions of each environment. A feature that an environment does not have is null in it.
    joint : (m, d)
        Orthonormal directions that are null in every environment.
    information : tuple of (d, d), or None
        Information of each environment's demonstrations, the negative Hessian of their log-likelihood; None without
        demonstrations. That of all environments together is the sum.
    """

    feature_names: tuple[str, ...]
    separate: tuple[FloatArray, ...]
    joint: FloatArray
    information: tuple[FloatArray, ...] | None = None

    def find_resolved(self, e: int) -> FloatArray:
        """Return orthonormal directions that are null in environment e, and that the other environments identify."""
        own = self.separate[e]
        outside = own - own @ self.joint.T @ self.joint
        values, rows = np.linalg.svd(outside, full_matrices=False)[1:]
        return _orient(rows[values > _SEPARATE])

    def find_weak(self, e: int | None = None, threshold: float = _WEAK) -> tuple[FloatArray, FloatArray]:
        """Return weakly identified directions (m, d) of environment e, or of all together, and condition indices (m,).

        In units in which each reward alone would have a standard error of 1, the condition index of an eigenvector of
        the information is the standard error along this direction divided by the smallest one. An index above 30 means
        that the features of the direction are nearly collinear: only their sum is determined well. Null directions are
        not included.

        Examples
        --------
        The features of two actions are nearly proportional.

        >>> from limiirl import MDP, Demonstrations, MaxEnt
        >>> phi, names = [[0, 0], [1, 1], [2, 2.02]], ["time", "length"]
        >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=phi, feature_names=names)
        >>> demos = Demonstrations.from_lists([[0, 1], [0, 2], [0]])
        >>> report = compare_environments(MaxEnt(2), [(mdp, demos)])
        >>> directions, indices = report.find_weak()
        >>> directions.round(2).tolist(), indices.round().tolist()
        ([[0.71, -0.7]], [350.0])
        """
        if self.information is None:
            message = "information is required. Pass pairs (MDP, Demonstrations) to compare_environments."
            raise InvalidParameter(message, parameter="mdps")
        information = np.sum(self.information, axis=0) if e is None else self.information[e]
        size = np.sqrt(np.maximum(np.diag(information), 0.0))
        informed = size > 0.0
        scale = np.where(informed, size, 1.0)
        values, vectors = np.linalg.eigh(information / np.outer(scale, scale))
        positive = values > _NULL * len(values)
        indices = np.sqrt(values[-1] / np.where(positive, values, np.inf))
        weak = np.flatnonzero(indices > threshold)
        directions = vectors[:, weak].T / scale
        return _orient(directions / np.linalg.norm(directions, axis=1, keepdims=True)), indices[weak]

    def _describe(self, e: int | None) -> str:
        null = self.joint if e is None else self.separate[e]
        full = "all directions in reward space are identified"
        text = describe(null, self.feature_names) if len(null) else full
        if self.information is None:
            return text
        information = np.sum(self.information, axis=0) if e is None else self.information[e]
        for direction, index in zip(*self.find_weak(e), strict=True):
            component = np.abs(direction) * np.sqrt(np.diag(information))
            named = [self.feature_names[j] for j in np.flatnonzero(component >= _INVOLVED * component.max())]
            text += f"; a combination of {', '.join(named)} is weakly identified (condition index {index:.0f})"
        return text

    def __str__(self) -> str:
        lines = [f"environment {e}: {self._describe(e)}" for e in range(len(self.separate))]
        return "\n".join([*lines, f"together: {self._describe(None)}"])


def compare_environments(
    model: Any, mdps: Sequence[MDP | tuple[MDP, Demonstrations]], theta: Mapping[str, float] | None = None
) -> Identifiability:
    """Find which directions of the reward several environments identify, alone and together.

    Environments may be different MDPs, or the same MDP with different discounts (`mdp.replace(gamma=...)`), start
    distributions or absorbing states. Features are matched by name.

    Parameters
    ----------
    model : model with `null_directions`
    mdps : sequence of MDP, or of pairs (MDP, Demonstrations)
        With demonstrations, the result also has their information, from which `find_weak` computes directions that are
        identified in principle, but not precisely.
    theta : mapping from feature names to rewards, optional
        Rewards at which the information is computed, and null directions, if they depend on the rewards
        (`null_directions_vary`); by default 0.

    Examples
    --------
    Without a terminal state, a constant reward does not change the policy. In the second environment, it does, but the
    only choice is between the end and a cycle of both states.

    >>> from limiirl import MDP, MaxCausalEnt
    >>> names = ["rest", "work"]
    >>> cycle = MDP.from_edges([0, 0, 1], [0, 1, 0], gamma=0.9, state_features=[[1, 0], [0, 1]], feature_names=names)
    >>> ends = MDP.from_edges(
    ...     [0, 0, 1], [1, 2, 0], gamma=0.9, state_features=[[0, 1], [1, 0], [0, 0]], feature_names=names[::-1]
    ... )
    >>> report = compare_environments(MaxCausalEnt(), [cycle, ends])
    >>> print(report)
    environment 0: 1 of 2 directions in reward space cannot be identified; it involves rest, work
    environment 1: 1 of 2 directions in reward space cannot be identified; it involves rest, work
    together: all directions in reward space are identified
    >>> report.find_resolved(0).round(2).tolist()
    [[0.71, 0.71]]
    """
    own = OptionalMembers.of(model).null_directions
    if own is None:
        raise InvalidParameter.of("model", type(model).__name__, "must have the method null_directions")
    if not mdps:
        raise InvalidParameter.of("mdps", 0, "must contain at least one MDP")
    pairs = [given if isinstance(given, tuple | list) else (given, None) for given in mdps]
    names = tuple(dict.fromkeys(name for mdp, _ in pairs for name in mdp.feature_names))
    rewards = {} if theta is None else dict(theta)
    unknown = [name for name in rewards if name not in names]
    if unknown:
        raise InvalidParameter.of("theta", unknown[0], "must have names of features")
    d, separate, measured = len(names), [], []
    for mdp, demos in pairs:
        columns = np.array([names.index(name) for name in mdp.feature_names])
        at = np.array([rewards.get(name, 0.0) for name in mdp.feature_names])
        inside = own(mdp, at)
        null = np.zeros((len(inside), d))
        null[:, columns] = inside
        separate.append(np.vstack([null, np.delete(np.eye(d), columns, axis=0)]))
        if demos is not None:
            measured.append(np.zeros((d, d)))
            measured[-1][np.ix_(columns, columns)] = _measure_information(model, mdp, demos, at)
    # A direction is null in every environment if its projections onto the complements of all null spaces vanish.
    complements = sum(np.eye(d) - null.T @ null for null in separate)
    values, vectors = np.linalg.eigh(complements)
    information = tuple(measured) if len(measured) == len(pairs) else None
    return Identifiability(names, tuple(separate), _orient(vectors[:, values < _SEPARATE].T), information)


def _measure_information(model: Any, mdp: MDP, demos: Demonstrations, theta: FloatArray) -> FloatArray:
    """Return the negative Hessian (d, d) of the log-likelihood of demonstrations at theta (d,)."""
    problem = make_problem(model, mdp, demos.renumber(mdp))
    curvature = problem.curvature(np.ones((len(problem.units), 1)), theta[None], np.ones((1, theta.size), dtype=bool))
    if curvature is None:
        rule = "must have gradients if demonstrations are passed"
        raise InvalidParameter.of("model", type(model).__name__, rule, remedy="Pass MDPs only.")
    return np.asarray(curvature[0])
