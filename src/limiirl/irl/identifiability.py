"""Directions in reward space that leave the probability of every trajectory unchanged.

A direction v is null if v . F(tau) is the same for all trajectories tau. For example, indicators of road classes and
indicators of speed limits, all multiplied by length, have one null direction, because both sets sum to the length.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from limiirl._typing import FloatArray
from limiirl.mdp import MDP

# Eigenvalues up to this size, for features of unit size, are treated as zero. Rounding errors are about 1e-13.
_NULL = 1e-10


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
        starts = sparse.csr_array(mdp.state_features)[np.flatnonzero(mdp.p0 > 0)]
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
    basis = np.linalg.svd(directions, full_matrices=False)[2]
    # Make the signs unique: the largest entry of each direction is positive.
    largest = basis[np.arange(basis.shape[0]), np.argmax(np.abs(basis), axis=1)]
    return np.asarray(basis * np.sign(largest)[:, None])


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
