"""Theorem 1: how near to a fixed point of EM the paper's warm start is, from the quantities of its two assumptions.

Everything is in logarithms: masses grow like |A|^L, and margins are exponents. The errata of docs/paper_map.md apply.

What a warm start does on the data themselves: the realised epsilon, clusters in feature space, and their distances.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist
from sklearn.base import clone

from limiirl._typing import FloatArray, IntArray
from limiirl.demos import Demonstrations
from limiirl.errors import InvalidDemos, InvalidParameter
from limiirl.irl import MaxEnt, make_problem, validate
from limiirl.mdp import MDP
from limiirl.mixture import REWARDS, assign, kmeans, model

# Responsibilities of a demonstration cannot change by more than this, whatever holds.
TRIVIAL = 2.0


@dataclass(frozen=True, eq=False)
class Quantities:
    """What assumptions 1 and 2 speak of.

    T_k+ are the typical trajectories of expert k, T_k- its other ones, C_k the cluster that stands for it. A vector
    separates two sets by the least difference of its inner products with their members.

    Attributes
    ----------
    zeta : float
        The largest share of T_k- in the mass of T_k.
    delta : float
        The largest share of a cluster that is not in its T_k+: misplaced demonstrations and atypical ones.
    margin_between : float
        d, the least by which a typical trajectory separates T_k+ from all trajectories outside of T_k.
    margin_within : float
        The least by which a typical trajectory separates T_k+ from T_k-; inf where nothing is atypical.
    r : (K,)
        Radius of each T_k+: half of its diameter.
    mean_norm : (K,)
        Length of Phi_k, the centred mean features of each cluster.
    sizes : (K,)
        Demonstrations in each cluster.
    log_Q, log_Q_other : (K,)
        Log of the mass of T_k, and of all trajectories outside of it.
    typical_norm : (K,)
        The largest length of phi in T_k+, for assumption 1(b).
    atypical_between, atypical_within : float
        The same margins with the trajectories of T_k- as the separating ones; inf where there are none.
    misfit_between, misfit_within : float
        The same with the members of C_k that are not in T_k+, for assumption 2.

    Examples
    --------
    >>> q = Quantities(zeta=0.1, delta=0.05, margin_between=9.0, margin_within=4.0, r=[0.1, 0.1], mean_norm=[3, 3],
    ...                sizes=[50, 50], log_Q=[0, 0], log_Q_other=[1, 1], typical_norm=[3, 3])
    >>> q.failures
    ()
    """

    zeta: float
    delta: float
    margin_between: float
    margin_within: float
    r: ArrayLike
    mean_norm: ArrayLike
    sizes: ArrayLike
    log_Q: ArrayLike
    log_Q_other: ArrayLike
    typical_norm: ArrayLike
    atypical_between: float = np.inf
    atypical_within: float = np.inf
    misfit_between: float = np.inf
    misfit_within: float = np.inf

    def __post_init__(self) -> None:
        vectors = ("r", "mean_norm", "sizes", "log_Q", "log_Q_other", "typical_norm")
        n_intents = np.size(self.sizes)
        for name in vectors:
            value = np.asarray(getattr(self, name), dtype=np.float64)
            if value.shape != (n_intents,) or n_intents < 2 or np.any(np.isnan(value)):
                raise InvalidParameter(
                    f"{name} must have one number for each of at least two intents, like sizes, which has "
                    f"{n_intents}; it is {value.tolist()}.",
                    parameter=name,
                )
            object.__setattr__(self, name, value)
        for name, least in (
            ("sizes", "above"),
            ("r", "at least"),
            ("mean_norm", "at least"),
            ("typical_norm", "at least"),
        ):
            value = np.asarray(getattr(self, name))
            if np.any(value < 0.0) or (least == "above" and np.any(value == 0.0)):
                raise InvalidParameter(f"{name} must be {least} 0; it is {value.tolist()}.", parameter=name)
        for name in ("zeta", "delta"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise InvalidParameter(f"{name} is a share, from 0 to 1; it is {getattr(self, name)}.", parameter=name)

    @property
    def n_intents(self) -> int:
        """K."""
        return int(np.size(self.sizes))

    @property
    def separation_failures(self) -> tuple[str, ...]:
        """What assumption 1 asks for and does not hold, in words; empty where it holds."""
        d, within = self.margin_between, self.margin_within
        widths = 2.0 * np.asarray(self.r) * np.asarray(self.typical_norm)
        k = int(np.argmax(widths))
        found = []
        if not self.zeta < 0.5:
            found.append(f"zeta = {self.zeta:.3g} of an intent's mass is atypical or shared, not below 1/2")
        if not d > 0.0:
            found.append(f"(a)(i) margin_between = {d:.3g} is not positive: intents overlap with other trajectories")
        if not within > 0.0:
            found.append(f"(a)(i) margin_within = {within:.3g} is not positive: atypical ones lie among typical ones")
        if found:
            return tuple(found)  # the rest is measured against margins that are positive
        if not (self.atypical_between >= -d and self.atypical_within >= -within):
            found.append(
                f"(a)(ii) an atypical trajectory points too far away: its margins are {self.atypical_between:.3g} and "
                f"{self.atypical_within:.3g}, below {-d:.3g} or {-within:.3g}"
            )
        if not widths[k] < d:
            found.append(
                f"(b) intent {k} is too wide: 2 r |phi| = {widths[k]:.3g} is not below margin_between = {d:.3g}"
            )
        return tuple(found)

    @property
    def clustering_failures(self) -> tuple[str, ...]:
        """What assumption 2 asks for and does not hold, in words; empty where it holds."""
        d, within = self.margin_between, self.margin_within
        found = []
        if not self.delta < 0.5:
            found.append(f"delta = {self.delta:.3g} of a cluster is misplaced or atypical, not below 1/2")
        if min(d, within) > 0.0 and not (self.misfit_between >= -d and self.misfit_within >= -within):
            found.append(
                "a demonstration that is misplaced or atypical points too far away: its margins are "
                f"{self.misfit_between:.3g} and {self.misfit_within:.3g}, below {-d:.3g} or {-within:.3g}"
            )
        return tuple(found)

    @property
    def failures(self) -> tuple[str, ...]:
        """Everything that does not hold, by assumption; empty where the theorem applies."""
        return tuple(f"assumption 1: {text}" for text in self.separation_failures) + tuple(
            f"assumption 2: {text}" for text in self.clustering_failures
        )

    @property
    def mean_margins(self) -> tuple[float, float]:
        """Lemma 1: the margins between and within, (1 - 2 delta) of the trajectories' own, that every Phi_k has."""
        share = 1.0 - 2.0 * self.delta
        return share * self.margin_between, share * self.margin_within if share else 0.0  # 0 of inf is no margin

    def log_lower(self) -> FloatArray:
        """Lemma 2: the least of log p(tau | Phi_k) - log q(tau) over tau in T_k+, (K,)."""
        between, within = self.mean_margins
        keep = _log(1.0 - self.zeta)
        denominator = np.logaddexp(keep + np.asarray(self.log_Q) + between, self.log_Q_other)
        exponent = between - 2.0 * np.asarray(self.r) * np.asarray(self.mean_norm)
        return np.asarray(keep + exponent - denominator - np.logaddexp(0.0, _log(self.zeta) - keep - within))

    def log_upper(self, log_q: ArrayLike = -np.inf) -> FloatArray:
        """Lemma 2: the most of log p(tau | Phi_k) - log q(tau) for a tau outside of T_k with this log q, (K,)."""
        return -np.logaddexp(_log(1.0 - self.zeta) + np.asarray(self.log_Q) + self.mean_margins[0], log_q)


@dataclass(frozen=True, eq=False)
class Bound:
    """Theorem 1 with everything that enters it.

    Attributes
    ----------
    epsilon : float
        The bound on the mean change of responsibilities in EM's first step. Where an assumption fails it is 2, which
        always holds and says nothing.
    log_beta : float
        Log of beta, the least ratio of a typical demonstration's probability under its own and another intent; -inf
        where an assumption fails.
    failures : tuple of str
        What does not hold, in words.
    quantities : Quantities
    """

    epsilon: float
    log_beta: float
    failures: tuple[str, ...]
    quantities: Quantities

    @property
    def applies(self) -> bool:
        """Whether both assumptions hold."""
        return not self.failures


def bound(quantities: Quantities) -> Bound:
    """Return theorem 1's epsilon = 2 delta + (1 - delta) 2 (K - 1) / (beta + K - 1).

    beta is the least over k and k' of ``|C_k| / |C_k'|`` times lemma 2's lower bound for k over its upper one for k'.

    Examples
    --------
    >>> q = Quantities(zeta=0.1, delta=0.05, margin_between=9.0, margin_within=4.0, r=[0.1, 0.1], mean_norm=[3, 3],
    ...                sizes=[50, 50], log_Q=[0, 0], log_Q_other=[1, 1], typical_norm=[3, 3])
    >>> found = bound(q)
    >>> round(found.epsilon, 4), round(found.log_beta, 3), found.applies
    (0.1012, 7.391, True)
    """
    failures = quantities.failures
    if failures:
        return Bound(TRIVIAL, -np.inf, failures, quantities)
    ratio = np.log(np.asarray(quantities.sizes)) + quantities.log_lower()
    against = np.log(np.asarray(quantities.sizes)) + quantities.log_upper()
    apart = ratio[:, None] - against[None, :]
    np.fill_diagonal(apart, np.inf)
    log_beta = float(apart.min())
    others = quantities.n_intents - 1
    # 2 (K - 1) / (beta + K - 1), without forming beta, which may exceed any float.
    rest = 2.0 * np.exp(-np.logaddexp(log_beta - np.log(others), 0.0))
    return Bound(float(2.0 * quantities.delta + (1.0 - quantities.delta) * rest), log_beta, (), quantities)


def _log(value: float) -> float:
    return float(np.log(value)) if value > 0.0 else -np.inf


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
        raise InvalidParameter(
            f"reward_init must be one of {', '.join(REWARDS)}; it is {reward_init!r}.", parameter="reward_init"
        )
    numbers = check_labels(clusters, validate.demonstrations(demos), "clusters")
    prepared = make_problem(clone(model(MaxEnt() if irl is None else irl)), mdp, demos)
    U = np.eye(int(numbers.max()) + 1)[numbers]
    thetas = REWARDS[reward_init](prepared, U)
    return float(prepared.e_step(U.mean(axis=0), thetas, U.copy()).change)


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
            f"{points.shape} and {numbers.shape} with {np.unique(numbers).size} distinct. Give one label a row.",
            parameter="features",
        )
    groups = [points[numbers == label] for label in np.unique(numbers)]
    return float(np.mean([cdist(one, other).min() for one, other in combinations(groups, 2)]))


def kmeans_clusters(features: FloatArray, labels: IntArray, random_state: int = 0) -> IntArray:
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
            f"{len(np.unique(features, axis=0))}. Add features that tell the intents apart, or pass clusters.",
            parameter="demos",
        )
    return aligned(clusters, labels)


def aligned(clusters: IntArray, labels: IntArray) -> IntArray:
    """Return clusters renumbered so that as many demonstrations as can be have the number of their intent."""
    n = int(labels.max()) + 1
    table = np.zeros((n, n))
    np.add.at(table, (clusters, labels), 1.0)
    return assign(-table)[clusters]


def check_labels(labels: ArrayLike, demos: Demonstrations, name: str = "labels") -> IntArray:
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
            "demonstration, in the same order.",
            parameter=name,
        )
    missing = [i for i, label in enumerate(given.tolist()) if label is None or label != label]
    if missing:
        i = missing[0]
        raise InvalidParameter(
            f"{name} must be known; that of demonstration {i} is {given[i]}. Remove or mend it.", parameter=name
        )
    if given.dtype.kind == "O":  # a column of texts in a table
        given = np.array(given.tolist())
    distinct, numbers = np.unique(given, return_inverse=True)
    if distinct.size < 2:
        raise InvalidParameter(
            f"{name} must have at least two distinct values to separate; all {len(demos)} are {distinct[0].item()!r}. "
            "Give the intents, or the labels_ of a fitted mixture.",
            parameter=name,
        )
    return numbers.astype(np.int64)
