"""Estimates of the quantities of assumptions 1 and 2, from all trajectories of the experts or from demonstrations.

The trajectories farthest from the mean of their expert are atypical, up to a fraction zeta of the mass. Trajectories
that several experts can generate are also atypical, because theorem 1 requires disjoint typical sets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from limiirl._typing import BoolArray, FloatArray, IntArray
from limiirl.demos import Demonstrations
from limiirl.mdp import MDP
from limiirl.theory.bound import Bound, Quantities, bound
from limiirl.theory.feature_sets import FeatureDistribution, PathSet, outside_max

ZETAS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.49)
# Relative tolerance for matching a demonstration to a point of a feature distribution.
_SAME = 1e-7


@dataclass(frozen=True, eq=False)
class Cloud:
    """Features of the trajectories T_k of one expert and of the members of its cluster.

    All phi are centred by the mean over demonstrations.

    Attributes
    ----------
    points, log_mass : (m, d), (m,)
        phi of trajectories in T_k, and their log-masses.
    outside : (m,)
        Largest inner product of each point with phi of a trajectory outside T_k.
    shared : (m,) bool
        True if another expert can generate the trajectory too.
    log_Q, log_Q_other : float
        Log-masses of T_k and of all other trajectories.
    members : (c, d)
        phi of the demonstrations in cluster C_k.
    point_of_member : (c,) int64
        Index into `points` of each member; -1 if the member is not in T_k.
    members_outside : (c,)
        Largest inner product of each member with phi of a trajectory outside T_k.
    """

    points: FloatArray
    log_mass: FloatArray
    outside: FloatArray
    shared: BoolArray
    log_Q: float
    log_Q_other: float
    members: FloatArray
    point_of_member: IntArray
    members_outside: FloatArray

    def typical(self, zeta: float) -> BoolArray:
        """Return the mask (m,) of points that remain after trimming those farthest from the mean, up to mass zeta."""
        mass = self._mass_fractions()
        weight = np.where(self.shared, 0.0, mass)
        if weight.sum() == 0.0:
            return np.zeros(mass.size, dtype=np.bool_)
        distance = np.linalg.norm(self.points - weight @ self.points / weight.sum(), axis=1)
        order = np.argsort(np.where(self.shared, np.inf, distance), kind="stable")[::-1]
        trimmed = np.cumsum(mass[order]) <= zeta * (1.0 + 1e-12)
        kept = ~self.shared
        kept[order[trimmed]] = False
        return kept

    def atypical_mass(self, typical: BoolArray) -> float:
        """Return the fraction of the mass that is not typical."""
        return float(np.clip(self._mass_fractions()[~typical].sum(), 0.0, 1.0))

    def _mass_fractions(self) -> FloatArray:
        return np.exp(self.log_mass - logsumexp(self.log_mass)) if self.log_mass.size else np.empty(0)


def quantities(clouds: list[Cloud], zeta: float) -> Quantities:
    """Return the quantities of the assumptions, with up to a fraction `zeta` of each expert's mass treated as atypical.

    The result's `zeta` also includes trajectories that several experts can generate, and is 1 if an expert has no
    typical point.
    """
    parts = [_TypicalSplit(cloud, cloud.typical(zeta)) for cloud in clouds]
    margins = np.min([part.margins() for part in parts], axis=0).tolist()
    return Quantities(
        zeta=max(part.cloud.atypical_mass(part.typical) if part.typical.any() else 1.0 for part in parts),
        delta=max(part.misfits.mean() for part in parts),
        margin_between=margins[0],
        margin_within=margins[1],
        r=[part.radius() for part in parts],
        mean_norm=[np.linalg.norm(part.cloud.members.mean(axis=0)) for part in parts],
        sizes=[len(part.cloud.members) for part in parts],
        log_Q=[part.cloud.log_Q for part in parts],
        log_Q_other=[part.cloud.log_Q_other for part in parts],
        typical_norm=[np.linalg.norm(part.core, axis=1).max(initial=0.0) for part in parts],
        atypical_between=margins[2],
        atypical_within=margins[3],
        misfit_between=margins[4],
        misfit_within=margins[5],
    )


def smallest_bound(clouds: list[Cloud], zetas: tuple[float, ...] = ZETAS) -> Bound:
    """Return the best bound over the fractions `zetas`: fewest violated conditions, then smallest epsilon."""
    bounds = [bound(quantities(clouds, zeta)) for zeta in zetas]
    return min(bounds, key=lambda each: (len(each.failures), each.epsilon, -each.quantities.margin_between))


class _TypicalSplit:
    """A cloud split into typical and atypical points, with their inner products."""

    def __init__(self, cloud: Cloud, typical: BoolArray) -> None:
        self.cloud, self.typical = cloud, typical
        self.core, self.fringe = cloud.points[typical], cloud.points[~typical]
        inside = np.zeros(len(cloud.members), dtype=np.bool_)
        matched = cloud.point_of_member >= 0
        inside[matched] = typical[cloud.point_of_member[matched]]
        self.misfits = ~inside

    def margins(self) -> list[float]:
        """Return margins (between, within) along typical points, atypical points, and members outside T_k+, in turn."""
        cloud, typical, misfits = self.cloud, self.typical, self.misfits
        vectors = (
            (cloud.points[typical], cloud.outside[typical]),
            (cloud.points[~typical], cloud.outside[~typical]),
            (cloud.members[misfits], cloud.members_outside[misfits]),
        )
        return [margin for projectors, outside in vectors for margin in self._margins(projectors, outside)]

    def radius(self) -> float:
        if not len(self.core):
            return 0.0
        gram = self.core @ self.core.T
        squares = np.diag(gram)[:, None] + np.diag(gram)[None, :] - 2.0 * gram
        return float(np.sqrt(max(squares.max(), 0.0))) / 2.0

    def _margins(self, projectors: FloatArray, outside: FloatArray) -> tuple[float, float]:
        lowest = (projectors @ self.core.T).min(axis=1) if len(self.core) else np.full(len(projectors), np.inf)
        between = (lowest - outside).min(initial=np.inf)
        if not len(self.fringe):
            return between, np.inf
        return between, (lowest - (projectors @ self.fringe.T).max(axis=1)).min(initial=np.inf)


def clouds_of_demos(mdp: MDP, demos: Demonstrations, labels: IntArray, clusters: IntArray) -> list[Cloud]:
    """Return one `Cloud` per intent, where T_k is the set of demonstrations with label k.

    Cluster k in `clusters` (N,) belongs to intent k in `labels` (N,).
    """
    F = demos.features(mdp)
    F, log_q, which = F - F.mean(axis=0), demos.log_q(mdp), distinct(demos)
    first = np.unique(which, return_index=True)[1]
    belongs = np.zeros((first.size, int(labels.max()) + 1), dtype=np.bool_)
    belongs[which, labels] = True
    clouds = []
    for k in range(belongs.shape[1]):
        mine, others = first[belongs[:, k]], first[~belongs[:, k]]
        index = np.full(first.size, -1)
        index[belongs[:, k]] = np.arange(mine.size)
        members = np.flatnonzero(clusters == k)
        clouds.append(
            Cloud(
                points=F[mine],
                log_mass=log_q[mine],
                outside=_max_product(F[mine], F[others]),
                shared=belongs[belongs[:, k]].sum(axis=1) > 1,
                log_Q=float(logsumexp(log_q[mine])),
                log_Q_other=float(logsumexp(log_q[others])) if others.size else -np.inf,
                members=F[members],
                point_of_member=index[which[members]],
                members_outside=_max_product(F[members], F[others]),
            )
        )
    return clouds


def all_clouds(
    paths: PathSet,
    demos: Demonstrations,
    labels: IntArray,
    clusters: IntArray,
    distributions: Sequence[FeatureDistribution | None],
) -> list[Cloud]:
    """Return one `Cloud` per intent, compared with all trajectories outside T_k by dynamic programming.

    If `distributions[k]` is None, the points are the demonstrations of intent k in T_k, which overestimates margins.
    """
    F = demos.features(paths.mdp)
    mean = F.mean(axis=0)
    inside, which, log_q = paths.contains(demos), distinct(demos), demos.log_q(paths.mdp)
    clouds = []
    for k in range(paths.n_intents):
        distribution = distributions[k]
        members = np.flatnonzero(clusters == k)
        if distribution is None:
            own = np.flatnonzero((labels == k) & inside[:, k])
            own = own[np.unique(which[own], return_index=True)[1]]
            points, log_mass, experts = F[own] - mean, log_q[own], inside[own]
            index = np.full(int(which.max()) + 1, -1)
            index[which[own]] = np.arange(own.size)
            matches = index[which[members]]
        else:
            points, log_mass, experts = distribution.points - mean, distribution.log_mass, distribution.experts
            matches = _nearest(F[members] - mean, inside[members], points, experts)
        outside, unmatched = _outside(paths, k, points, mean), matches < 0
        members_outside = np.empty(members.size)
        members_outside[~unmatched] = outside[matches[~unmatched]]
        members_outside[unmatched] = _outside(paths, k, F[members[unmatched]] - mean, mean)
        clouds.append(
            Cloud(
                points=points,
                log_mass=log_mass,
                outside=outside,
                shared=experts.sum(axis=1) > 1,
                log_Q=float(paths.log_Q[k]),
                log_Q_other=float(paths.log_Q_other[k]),
                members=F[members] - mean,
                point_of_member=matches,
                members_outside=members_outside,
            )
        )
    return clouds


def distinct(demos: Demonstrations) -> IntArray:
    """Return an index (N,) that is equal for demonstrations with equal states and actions."""
    index: dict[tuple[bytes, bytes], int] = {}
    keys = ((demo.states.tobytes(), demo.actions.tobytes()) for demo in demos)
    return np.array([index.setdefault(key, len(index)) for key in keys], dtype=np.int64)


def _outside(paths: PathSet, k: int, points: FloatArray, mean: FloatArray) -> FloatArray:
    # `outside_max` uses uncentred features.
    return np.asarray(outside_max(paths, k, points) - points @ mean)


def _max_product(projectors: FloatArray, others: FloatArray) -> FloatArray:
    return np.asarray((projectors @ others.T).max(axis=1, initial=-np.inf))


def _nearest(members: FloatArray, members_experts: BoolArray, points: FloatArray, experts: BoolArray) -> IntArray:
    """Return the index (c,) of the point with the features and experts of each member; -1 if there is none."""
    if not len(points):
        return np.full(len(members), -1)
    scale = max(1.0, float(np.abs(points).max()))
    far = np.abs(members[:, None, :] - points[None, :, :]).max(axis=2, initial=0.0)
    far[(members_experts[:, None, :] != experts[None, :, :]).any(axis=2)] = np.inf
    best = far.argmin(axis=1)
    return np.where(far[np.arange(len(best)), best] <= _SAME * scale, best, -1)
