"""What a warm start does on the data themselves: the realised epsilon, clusters in feature space, and their distances.

Paper: theorem 1 bounds the realised epsilon; appendix C plots the inter-cluster margin. None of this needs assumptions.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import cdist
from sklearn.base import clone

from limiirl.demos import Demonstrations
from limiirl.errors import InvalidDemos, InvalidParameter
from limiirl.irl import MaxEnt
from limiirl.irl.checks import demonstrations
from limiirl.irl.prepared import prepare
from limiirl.mdp import MDP
from limiirl.mixture.align import assign
from limiirl.mixture.checks import model
from limiirl.mixture.init import kmeans
from limiirl.mixture.rewards import REWARDS

Float = NDArray[np.float64]
Int = NDArray[np.int64]


def realised_epsilon(
    mdp: MDP, demos: Demonstrations, clusters: ArrayLike, irl: Any = None, reward_init: str = "mean"
) -> float:
    """Return (1/N) sum_i sum_k abs(u_ik^(1) - u_ik^(0)): how much EM's first step moves a start from these clusters.

    0 means that EM agrees with the clusters; 2 would be that it changes its mind about every demonstration.

    Parameters
    ----------
    clusters : (N,)
        A label for each demonstration, at least two of them distinct.
    irl : model, optional
        `MaxEnt()` by default.
    reward_init : {"mean", "mle", "mean_ray", "mean_clipped"}
        Theorem 1 is about "mean".

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0, 0], [3, 0], [0, 3]])
    >>> demos = Demonstrations.from_lists([[0, 1], [0, 1], [0, 2], [0, 2]])
    >>> round(realised_epsilon(mdp, demos, [0, 0, 1, 1]), 6)
    0.000247
    """
    if not isinstance(reward_init, str) or reward_init not in REWARDS:
        raise InvalidParameter(f"reward_init must be one of {', '.join(REWARDS)}; it is {reward_init!r}.")
    numbers = check_labels(clusters, demonstrations(demos), "clusters")
    prepared = prepare(clone(model(MaxEnt() if irl is None else irl)), mdp, demos)
    U = np.eye(int(numbers.max()) + 1)[numbers]
    thetas = REWARDS[reward_init](prepared, U)
    return float(prepared.expect(U.mean(axis=0), thetas, U.copy()).change)


def inter_cluster_margin(features: ArrayLike, labels: ArrayLike) -> float:
    """Return the mean over pairs of clusters of the least distance between their members (appendix C).

    A least distance shrinks as demonstrations are added: compare only data of one size.

    Examples
    --------
    >>> inter_cluster_margin([[0.0, 0.0], [0.0, 1.0], [0.0, 3.0], [4.0, 0.0]], [0, 0, 1, 2])
    3.6666666666666665
    """
    points, numbers = np.asarray(features, dtype=np.float64), np.asarray(labels)
    if points.ndim != 2 or numbers.shape != (len(points),) or np.unique(numbers).size < 2:
        raise InvalidParameter(
            f"features must have shape (N, d) and labels (N,) with at least two distinct ones; got the shapes "
            f"{points.shape} and {numbers.shape} with {np.unique(numbers).size} distinct. Give one label a row."
        )
    groups = [points[numbers == label] for label in np.unique(numbers)]
    return float(np.mean([cdist(one, other).min() for one, other in combinations(groups, 2)]))


def kmeans_clusters(features: Float, labels: Int, random_state: int = 0) -> Int:
    """Return (N,) k-means clusters in feature space, as many as intents, numbered to agree best with labels 0..K-1.

    Examples
    --------
    >>> kmeans_clusters(np.array([[0.0], [9.0], [0.1], [9.1]]), np.array([1, 0, 1, 0])).tolist()
    [1, 0, 1, 0]
    """
    n_intents = int(labels.max()) + 1
    clusters = kmeans(features, n_intents, np.random.default_rng(random_state))
    if np.unique(clusters).size < n_intents:
        raise InvalidDemos(
            f"Clusters need at least as many distinct feature vectors as intents, {n_intents}; the demonstrations have "
            f"{len(np.unique(features, axis=0))}. Add features that tell the intents apart, or pass clusters."
        )
    return aligned(clusters, labels)


def aligned(clusters: Int, labels: Int) -> Int:
    """Return clusters renumbered so that as many demonstrations as can be have the number of their intent."""
    n = int(labels.max()) + 1
    table = np.zeros((n, n))
    np.add.at(table, (clusters, labels), 1.0)
    return assign(-table)[clusters]


def check_labels(labels: ArrayLike, demos: Demonstrations, name: str = "labels") -> Int:
    """Return labels (N,) of any kind as numbers 0..K-1 in their sorted order, with K at least 2.

    Examples
    --------
    >>> check_labels(["b", "a"], Demonstrations.from_lists([[0], [1]])).tolist()
    [1, 0]
    """
    given = np.asarray(labels)
    if given.shape != (len(demos),):
        raise InvalidParameter(
            f"{name} must have one entry a demonstration, {len(demos)}; got shape {given.shape}. Give one a "
            "demonstration, in the same order."
        )
    missing = [i for i, label in enumerate(given.tolist()) if label is None or label != label]
    if missing:
        i = missing[0]
        raise InvalidParameter(f"{name} must be known; that of demonstration {i} is {given[i]}. Remove or mend it.")
    if given.dtype.kind == "O":  # a column of texts in a table
        given = np.array(given.tolist())
    distinct, numbers = np.unique(given, return_inverse=True)
    if distinct.size < 2:
        raise InvalidParameter(
            f"{name} must have at least two distinct values to separate; all {len(demos)} are {distinct[0].item()!r}. "
            "Give the intents, or the labels_ of a fitted mixture."
        )
    return numbers.astype(np.int64)
