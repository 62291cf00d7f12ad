"""Theorem 1 (change in the responsibilities after a warm start), its assumptions, and the realised epsilon.

Masses grow like |A|^L, so they are computed in log space. The errata in docs/paper_map.md apply.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist

from limiirl._typing import FloatArray, IntArray
from limiirl._validation import as_floats, as_generator, check_fraction, scale_exponent
from limiirl.demos import Demonstrations
from limiirl.errors import InvalidDemos, InvalidParameter
from limiirl.irl import MaxEnt, make_problem, validate
from limiirl.mdp import MDP
from limiirl.mixture import REWARDS, assign_columns, check_irl, kmeans

# Largest possible change in the responsibilities of a demonstration.
TRIVIAL = 2.0


@dataclass(frozen=True, eq=False)
class Quantities:
    """Quantities of assumptions 1 and 2.

    T_k is the set of trajectories of expert k, T_k+ and T_k- are its typical and atypical subsets, and C_k is its
    cluster. The margin between two sets A and B along a vector v is min_A v . a - max_B v . b.

    Attributes
    ----------
    zeta : float
        Largest fraction, over experts, of the mass of T_k that is in T_k-.
    delta : float
        Largest fraction, over clusters, of demonstrations outside T_k+ (misplaced or atypical).
    margin_between : float
        d, the smallest margin over k between T_k+ and all trajectories outside T_k, along any phi in T_k+.
    margin_within : float
        Smallest margin over k between T_k+ and T_k-, along any phi in T_k+; inf if T_k- is empty.
    r : (K,)
        Radius of each T_k+: half of its diameter.
    mean_norm : (K,)
        Norm of Phi_k, the centred mean features of each cluster.
    sizes : (K,)
        Number of demonstrations in each cluster.
    log_Q, log_Q_other : (K,)
        Log-mass of T_k, and of all other trajectories.
    typical_norm : (K,)
        Largest norm of phi in T_k+, for assumption 1(b).
    atypical_between, atypical_within : float
        As `margin_between` and `margin_within`, but along any phi in T_k-; inf if T_k- is empty.
    misfit_between, misfit_within : float
        As `margin_between` and `margin_within`, but along phi of the demonstrations in C_k outside T_k+, for
        assumption 2.
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
            value = as_floats(getattr(self, name), name)
            if value.shape != (n_intents,) or n_intents < 2 or np.any(np.isnan(value)):
                rule = f"must have {max(2, n_intents)} values, one per intent (at least two intents)"
                raise InvalidParameter.of(name, value.tolist(), rule)
            object.__setattr__(self, name, value)
        for name in ("sizes", "r", "mean_norm", "typical_norm"):
            value = np.asarray(getattr(self, name))
            if np.any(value < 0.0) or (name == "sizes" and np.any(value == 0.0)):
                rule = "must be above 0" if name == "sizes" else "must be at least 0"
                raise InvalidParameter.of(name, value.tolist(), rule)
        for name in ("zeta", "delta"):
            check_fraction(getattr(self, name), name)

    @property
    def separation_failures(self) -> tuple[str, ...]:
        """Descriptions of the violated conditions of assumption 1."""
        d, within = self.margin_between, self.margin_within
        widths = 2.0 * np.asarray(self.r) * np.asarray(self.typical_norm)
        k = int(np.argmax(widths))
        violated = []
        if not self.zeta < 0.5:
            violated.append(
                f"zeta = {self.zeta:.3g}, the atypical or shared fraction of an intent's mass, is not below 1/2"
            )
        if not d > 0.0:
            violated.append(f"(a)(i) margin_between = {d:.3g} is not positive: intents overlap with other trajectories")
        if not within > 0.0:
            violated.append(
                f"(a)(i) margin_within = {within:.3g} is not positive: typical and atypical trajectories overlap"
            )
        if violated:
            return tuple(violated)  # the other conditions presuppose positive margins
        if not (self.atypical_between >= -d and self.atypical_within >= -within):
            violated.append(
                f"(a)(ii) the margins of an atypical trajectory, {self.atypical_between:.3g} and "
                f"{self.atypical_within:.3g}, are below {-d:.3g} or {-within:.3g}, respectively"
            )
        if not widths[k] < d:
            violated.append(
                f"(b) intent {k} is too wide: 2 r |phi| = {widths[k]:.3g} is not below margin_between = {d:.3g}"
            )
        return tuple(violated)

    @property
    def clustering_failures(self) -> tuple[str, ...]:
        """Descriptions of the violated conditions of assumption 2."""
        d, within = self.margin_between, self.margin_within
        violated = []
        if not self.delta < 0.5:
            violated.append(
                f"delta = {self.delta:.3g}, the misplaced or atypical fraction of a cluster, is not below 1/2"
            )
        if min(d, within) > 0.0 and not (self.misfit_between >= -d and self.misfit_within >= -within):
            violated.append(
                f"the margins of a misplaced or atypical demonstration, {self.misfit_between:.3g} and "
                f"{self.misfit_within:.3g}, are below {-d:.3g} or {-within:.3g}, respectively"
            )
        return tuple(violated)

    @property
    def failures(self) -> tuple[str, ...]:
        """Descriptions of all violated conditions; empty if the theorem applies."""
        return tuple(f"assumption 1: {text}" for text in self.separation_failures) + tuple(
            f"assumption 2: {text}" for text in self.clustering_failures
        )

    @property
    def mean_margins(self) -> tuple[float, float]:
        """Lower bounds of lemma 1 along every Phi_k: `margin_between` and `margin_within` times 1 - 2 delta."""
        factor = 1.0 - 2.0 * self.delta
        return factor * self.margin_between, factor * self.margin_within if factor else 0.0  # 0 * inf = 0 here

    def log_lower(self) -> FloatArray:
        """Return the lower bound (K,) of lemma 2 on log p(tau | Phi_k) - log q(tau) for every tau in T_k+."""
        between, within = self.mean_margins
        keep = _log(1.0 - self.zeta)
        denominator = np.logaddexp(keep + np.asarray(self.log_Q) + between, self.log_Q_other)
        exponent = between - 2.0 * np.asarray(self.r) * np.asarray(self.mean_norm)
        return np.asarray(keep + exponent - denominator - np.logaddexp(0.0, _log(self.zeta) - keep - within))

    def log_upper(self, log_q: ArrayLike = -np.inf) -> FloatArray:
        """Return the upper bound (K,) of lemma 2 on log p(tau | Phi_k) - log q(tau) for a tau outside T_k."""
        return -np.logaddexp(_log(1.0 - self.zeta) + np.asarray(self.log_Q) + self.mean_margins[0], log_q)


@dataclass(frozen=True, eq=False)
class Bound:
    """Result of theorem 1.

    Attributes
    ----------
    epsilon : float
        Bound on the mean change in the responsibilities in the first EM iteration; 2, the largest possible change, if
        an assumption is violated.
    log_beta : float
        Log of beta, a lower bound on the posterior odds of a typical demonstration's own intent against any other
        intent; -inf if an assumption is violated.
    failures : tuple of str
        Violated conditions.
    quantities : Quantities
    """

    epsilon: float
    log_beta: float
    failures: tuple[str, ...]
    quantities: Quantities

    @property
    def applies(self) -> bool:
        """True if both assumptions hold."""
        return not self.failures


def bound(quantities: Quantities) -> Bound:
    """Return theorem 1's epsilon = 2 delta + (1 - delta) 2 (K - 1) / (beta + K - 1).

    beta is the minimum over k != k' of ``|C_k| / |C_k'| exp(log_lower_k - log_upper_k')``, with the bounds of lemma 2.

    Examples
    --------
    >>> q = Quantities(zeta=0.1, delta=0.05, margin_between=9.0, margin_within=4.0, r=[0.1, 0.1], mean_norm=[3, 3],
    ...                sizes=[50, 50], log_Q=[0, 0], log_Q_other=[1, 1], typical_norm=[3, 3])
    >>> result = bound(q)
    >>> round(result.epsilon, 4), round(result.log_beta, 3), result.applies
    (0.1012, 7.391, True)
    """
    failures = quantities.failures
    if failures:
        return Bound(TRIVIAL, -np.inf, failures, quantities)
    log_sizes = np.log(np.asarray(quantities.sizes))
    log_ratio = (log_sizes + quantities.log_lower())[:, None] - (log_sizes + quantities.log_upper())[None, :]
    np.fill_diagonal(log_ratio, np.inf)
    log_beta = float(log_ratio.min())
    others = np.size(quantities.sizes) - 1
    # 2 (K - 1) / (beta + K - 1), without overflow of beta.
    rest = 2.0 * np.exp(-np.logaddexp(log_beta - np.log(others), 0.0))
    return Bound(float(2.0 * quantities.delta + (1.0 - quantities.delta) * rest), log_beta, (), quantities)


def _log(value: float) -> float:
    return float(np.log(value)) if value > 0.0 else -np.inf


def compute_epsilon(
    mdp: MDP, demos: Demonstrations, clusters: ArrayLike, irl: Any = None, reward_init: str = "mean"
) -> float:
    """Return (1/N) sum_i sum_k abs(u_ik^(1) - u_ik^(0)), the change in the responsibilities in the first EM iteration.

    This realised epsilon is 0 if EM keeps the clusters, and 2 if it reassigns every demonstration.

    Parameters
    ----------
    clusters : (N,)
        One label per demonstration, with at least two distinct labels.
    irl : model, optional
        `MaxEnt()` by default.
    reward_init : {"mean", "mle", "mean_ray", "mean_clipped"}
        Theorem 1 assumes "mean".

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0, 0], [3, 0], [0, 3]])
    >>> demos = Demonstrations.from_lists([[0, 1], [0, 1], [0, 2], [0, 2]])
    >>> round(compute_epsilon(mdp, demos, [0, 0, 1, 1]), 6)
    0.000247
    """
    if not isinstance(reward_init, str) or reward_init not in REWARDS:
        raise InvalidParameter.of("reward_init", reward_init, f"must be one of {', '.join(REWARDS)}")
    numbers = check_labels(clusters, validate.demonstrations(demos), "clusters")
    problem = make_problem(check_irl(MaxEnt() if irl is None else irl), mdp, demos)
    U = np.eye(int(numbers.max()) + 1)[numbers]
    thetas = REWARDS[reward_init](problem, U)
    return float(problem.e_step(U.mean(axis=0), thetas, U.copy()).change)


def inter_cluster_margin(features: ArrayLike, labels: ArrayLike) -> float:
    """Return the distance between the nearest points of two clusters, averaged over pairs of clusters (appendix C).

    It decreases with the number of demonstrations, so compare only data sets of the same size.

    Examples
    --------
    >>> inter_cluster_margin([[0.0, 0.0], [0.0, 1.0], [0.0, 3.0], [4.0, 0.0]], [0, 0, 1, 2])
    3.6666666666666665
    """
    points, numbers = as_floats(features, "features"), np.asarray(labels)
    if points.ndim != 2 or not np.all(np.isfinite(points)):
        raise InvalidParameter.of("features", points.shape, "must be finite of shape (N, d)")
    if numbers.shape != (len(points),) or np.unique(numbers).size < 2:
        rule = f"must have shape ({len(points)},) and at least two distinct values"
        raise InvalidParameter.of("labels", numbers.tolist(), rule)
    exponent = scale_exponent(points)
    groups = [np.ldexp(points[numbers == label], -exponent) for label in np.unique(numbers)]
    margin = np.mean([cdist(one, other).min() for one, other in combinations(groups, 2)])
    return float(np.ldexp(margin, exponent))


def kmeans_clusters(features: FloatArray, labels: IntArray, seed: int | np.random.Generator | None = 0) -> IntArray:
    """Return k-means clusters (N,) of features (N, d), numbered to match labels 0..K-1."""
    n_intents = int(labels.max()) + 1
    clusters = kmeans(features, n_intents, as_generator(seed))
    if np.unique(clusters).size < n_intents:
        rule = f"must have at least {n_intents} distinct feature vectors, one per intent"
        remedy = "Add features that distinguish the intents, or pass clusters."
        raise InvalidDemos.of("demos", len(np.unique(features, axis=0)), rule, remedy=remedy)
    return align_clusters(clusters, labels)


def align_clusters(clusters: IntArray, labels: IntArray) -> IntArray:
    """Renumber clusters (N,) to maximise the agreement with labels (N,)."""
    n = int(labels.max()) + 1
    table = np.zeros((n, n))
    np.add.at(table, (clusters, labels), 1.0)
    return assign_columns(-table)[clusters]


def check_labels(labels: ArrayLike, demos: Demonstrations, name: str = "labels") -> IntArray:
    """Convert labels (N,) of any type to indices 0..K-1 into their sorted distinct values; raise if K < 2."""
    values = np.asarray(labels)
    if values.shape != (len(demos),):
        raise InvalidParameter.of(name, values.shape, f"must have shape ({len(demos)},), one entry per demonstration")
    missing = [i for i, label in enumerate(values.tolist()) if label is None or label != label]
    if missing:
        raise InvalidParameter.of(name, values.tolist()[missing[0]], "must not be missing", index=missing[0])
    if values.dtype.kind == "O":  # strings from a data frame
        values = np.array(values.tolist())
    distinct, numbers = np.unique(values, return_inverse=True)
    if distinct.size < 2:
        raise InvalidParameter.of(name, distinct[0].item(), "must have at least two distinct values")
    return numbers.astype(np.int64)
