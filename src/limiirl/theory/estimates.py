"""The quantities of assumptions 1 and 2 from clouds of points: listed exactly, or those that were demonstrated.

A `Cloud` holds what is known of an expert's trajectories. Typical ones are chosen by trimming: the points that lie
farthest from the centre are atypical, up to a share zeta of the mass, and so is whatever another expert can generate as
well, since theorem 1 needs typical trajectories to be nobody else's. A sweep over zeta keeps the smallest bound.
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
from limiirl.theory.feature_sets import Law, PathSet, outside_max

ZETAS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.49)
# A demonstration is a point of a law if its features are as near as this, relative to the largest.
_SAME = 1e-7


@dataclass(frozen=True, eq=False)
class Cloud:
    """One expert's trajectories as points, with the members of its cluster. Features are centred on the data's mean.

    Attributes
    ----------
    points : (m, d)
        phi of trajectories in T_k.
    log_mass : (m,)
        Their masses.
    outside : (m,)
        The largest inner product of each point with a trajectory outside of T_k.
    shared : (m,) bool
        Whether another expert can generate it too.
    log_Q, log_Q_other : float
        The masses of T_k and of all trajectories outside of it.
    members : (c, d)
        phi of the demonstrations in cluster k.
    place : (c,) int64
        Which point each member is; -1 where it is not in T_k.
    members_outside : (c,)
        Like `outside`, for the members.
    """

    points: FloatArray
    log_mass: FloatArray
    outside: FloatArray
    shared: BoolArray
    log_Q: float
    log_Q_other: float
    members: FloatArray
    place: IntArray
    members_outside: FloatArray

    def typical(self, zeta: float) -> BoolArray:
        """Return (m,) which points are typical when a share zeta of the mass may be trimmed, the farthest first."""
        share = self._share()
        weight = np.where(self.shared, 0.0, share)
        if weight.sum() == 0.0:
            return np.zeros(share.size, dtype=np.bool_)
        distance = np.linalg.norm(self.points - weight @ self.points / weight.sum(), axis=1)
        order = np.argsort(np.where(self.shared, np.inf, distance), kind="stable")[::-1]
        trimmed = np.cumsum(share[order]) <= zeta * (1.0 + 1e-12)
        kept = ~self.shared
        kept[order[trimmed]] = False
        return kept

    def trimmed_share(self, typical: BoolArray) -> float:
        """Return the share of the mass that is not typical."""
        return float(np.clip(self._share()[~typical].sum(), 0.0, 1.0))

    def _share(self) -> FloatArray:
        return np.exp(self.log_mass - logsumexp(self.log_mass)) if self.log_mass.size else np.empty(0)


def quantities(clouds: list[Cloud], zeta: float) -> Quantities:
    """Return what the assumptions speak of when at most a share zeta of each expert's mass is trimmed.

    Margins, zeta and delta are the worst of all experts. Where an expert has no typical point, zeta is 1.
    """
    parts = [_Part(cloud, cloud.typical(zeta)) for cloud in clouds]
    return Quantities(
        zeta=max(part.cloud.trimmed_share(part.typical) if part.typical.any() else 1.0 for part in parts),
        delta=max(part.misfits.mean() for part in parts),
        margin_between=min(part.between(part.typical) for part in parts),
        margin_within=min(part.within(part.typical) for part in parts),
        r=[part.radius() for part in parts],
        mean_norm=[np.linalg.norm(part.cloud.members.mean(axis=0)) for part in parts],
        sizes=[len(part.cloud.members) for part in parts],
        log_Q=[part.cloud.log_Q for part in parts],
        log_Q_other=[part.cloud.log_Q_other for part in parts],
        typical_norm=[np.linalg.norm(part.core, axis=1).max(initial=0.0) for part in parts],
        atypical_between=min(part.between(~part.typical) for part in parts),
        atypical_within=min(part.within(~part.typical) for part in parts),
        misfit_between=min(part.misfit_between() for part in parts),
        misfit_within=min(part.misfit_within() for part in parts),
    )


def sweep(clouds: list[Cloud], zetas: tuple[float, ...] = ZETAS) -> Bound:
    """Return the smallest bound over shares to trim; where none applies, the one that comes nearest to it.

    That is the one with the fewest failures, and among these with the largest margin between.
    """
    found = [bound(quantities(clouds, zeta)) for zeta in zetas]
    return min(found, key=lambda each: (len(each.failures), each.epsilon, -each.quantities.margin_between))


class _Part:
    """A cloud cut into typical and atypical points, with the inner products of both."""

    def __init__(self, cloud: Cloud, typical: BoolArray) -> None:
        self.cloud, self.typical = cloud, typical
        self.core, self.fringe = cloud.points[typical], cloud.points[~typical]
        inside = np.zeros(len(cloud.members), dtype=np.bool_)
        inside[cloud.place >= 0] = typical[cloud.place[cloud.place >= 0]]
        self.misfits = ~inside

    def between(self, rows: BoolArray) -> float:
        return _least(self._lowest(self.cloud.points[rows]) - self.cloud.outside[rows])

    def within(self, rows: BoolArray) -> float:
        return self._within(self.cloud.points[rows])

    def misfit_between(self) -> float:
        return _least(self._lowest(self.cloud.members[self.misfits]) - self.cloud.members_outside[self.misfits])

    def misfit_within(self) -> float:
        return self._within(self.cloud.members[self.misfits])

    def radius(self) -> float:
        if not len(self.core):
            return 0.0
        gram = self.core @ self.core.T
        squares = np.diag(gram)[:, None] + np.diag(gram)[None, :] - 2.0 * gram
        return float(np.sqrt(max(squares.max(), 0.0))) / 2.0

    def _within(self, projectors: FloatArray) -> float:
        if not len(self.fringe):
            return np.inf
        return _least(self._lowest(projectors) - (projectors @ self.fringe.T).max(axis=1))

    def _lowest(self, projectors: FloatArray) -> FloatArray:
        """The least inner product of each projector with a typical point; inf where there is none to separate."""
        return (projectors @ self.core.T).min(axis=1) if len(self.core) else np.full(len(projectors), np.inf)


def _least(values: FloatArray) -> float:
    return float(values.min(initial=np.inf))


def demonstrated_clouds(mdp: MDP, demos: Demonstrations, labels: IntArray, clusters: IntArray) -> list[Cloud]:
    """Return clouds in which the demonstrations are all the trajectories there are: T_k are those labelled k.

    What it says of the assumptions is optimistic, because nobody has demonstrated the trajectories that nobody takes.

    Parameters
    ----------
    labels, clusters : (N,) int64
        Intents and clusters 0..K-1; cluster k stands for intent k.
    """
    F = demos.features(mdp)
    F, log_q, which = F - F.mean(axis=0), demos.log_q(mdp), distinct(demos)
    first = np.unique(which, return_index=True)[1]
    belongs = np.zeros((first.size, int(labels.max()) + 1), dtype=np.bool_)
    belongs[which, labels] = True
    found = []
    for k in range(belongs.shape[1]):
        mine, others = first[belongs[:, k]], first[~belongs[:, k]]
        place = np.full(first.size, -1)
        place[belongs[:, k]] = np.arange(mine.size)
        members = np.flatnonzero(clusters == k)
        found.append(
            Cloud(
                points=F[mine],
                log_mass=log_q[mine],
                outside=_highest(F[mine], F[others]),
                shared=belongs[belongs[:, k]].sum(axis=1) > 1,
                log_Q=float(logsumexp(log_q[mine])),
                log_Q_other=float(logsumexp(log_q[others])) if others.size else -np.inf,
                members=F[members],
                place=place[which[members]],
                members_outside=_highest(F[members], F[others]),
            )
        )
    return found


def all_clouds(
    paths: PathSet, demos: Demonstrations, labels: IntArray, clusters: IntArray, laws: Sequence[Law | None]
) -> list[Cloud]:
    """Return clouds whose outside is every trajectory of the model, by dynamic programming.

    Parameters
    ----------
    labels, clusters : (N,) int64
        Intents and clusters 0..K-1; cluster k stands for intent k.
    laws : K of Law or None
        The results of `feature_distribution`. With the law of an expert its quantities are exact. Without, its
        demonstrations stand for it, so that zeta and the margins are estimates, the latter too large.
    """
    F = demos.features(paths.mdp)
    mean = F.mean(axis=0)
    inside, which, log_q = paths.contains(demos), distinct(demos), demos.log_q(paths.mdp)
    found = []
    for k in range(paths.n_intents):
        law = laws[k]
        members = np.flatnonzero(clusters == k)
        if law is None:
            own = np.flatnonzero((labels == k) & inside[:, k])
            own = own[np.unique(which[own], return_index=True)[1]]
            points, log_mass, experts = F[own] - mean, log_q[own], inside[own]
            place = np.full(int(which.max()) + 1, -1)
            place[which[own]] = np.arange(own.size)
            where = place[which[members]]
        else:
            points, log_mass, experts = law.points - mean, law.log_mass, law.experts
            where = _nearest(F[members] - mean, inside[members], points, experts)
        outside, strangers = _outside(paths, k, points, mean), where < 0
        members_outside = np.empty(members.size)
        members_outside[~strangers] = outside[where[~strangers]]
        members_outside[strangers] = _outside(paths, k, F[members[strangers]] - mean, mean)
        found.append(
            Cloud(
                points=points,
                log_mass=log_mass,
                outside=outside,
                shared=experts.sum(axis=1) > 1,
                log_Q=float(paths.log_Q[k]),
                log_Q_other=float(paths.log_Q_other[k]),
                members=F[members] - mean,
                place=where,
                members_outside=members_outside,
            )
        )
    return found


def distinct(demos: Demonstrations) -> IntArray:
    """Return (N,) a number for each demonstration, the same for those with the same states and actions.

    Examples
    --------
    >>> distinct(Demonstrations.from_lists([[0, 1], [0, 2], [0, 1]])).tolist()
    [0, 1, 0]
    """
    known: dict[tuple[bytes, bytes], int] = {}
    keys = ((demo.states.tobytes(), demo.actions.tobytes()) for demo in demos)
    return np.array([known.setdefault(key, len(known)) for key in keys], dtype=np.int64)


def _outside(paths: PathSet, k: int, points: FloatArray, mean: FloatArray) -> FloatArray:
    # The features of the trajectories that the programme runs over are not centred yet.
    return np.asarray(outside_max(paths, k, points) - points @ mean)


def _highest(projectors: FloatArray, others: FloatArray) -> FloatArray:
    return np.asarray((projectors @ others.T).max(axis=1, initial=-np.inf))


def _nearest(members: FloatArray, members_experts: BoolArray, points: FloatArray, experts: BoolArray) -> IntArray:
    """Return (c,) the point that each member is, with the same experts; -1 for none."""
    if not len(points):
        return np.full(len(members), -1)
    scale = max(1.0, float(np.abs(points).max()))
    far = np.abs(members[:, None, :] - points[None, :, :]).max(axis=2, initial=0.0)
    far[(members_experts[:, None, :] != experts[None, :, :]).any(axis=2)] = np.inf
    best = far.argmin(axis=1)
    return np.where(far[np.arange(len(best)), best] <= _SAME * scale, best, -1)
