"""The exact Hessian of log Z: the covariance of the path features.

Write m_t(s) for the mean of the features collected up to step t by those who are in s at step t. It is carried
forward along the edges by `kernels.means.carry`, and

    E[F F'] = X + X' - sum_t gamma^2t Phi' diag(p_t) Phi,      X = Phi' sum_t gamma^t diag(p_t) m_t

because each pair of steps is counted once by the later of the two (edges likewise). One forward recursion with d
columns suffices, and it works on probabilities, so that it needs no arithmetic of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from limiirl._typing import FloatArray
from limiirl.errors import NumericalError
from limiirl.irl.maxent.messages import ForwardBackward
from limiirl.kernels.graph import owners
from limiirl.mdp import MDP

if TYPE_CHECKING:
    from limiirl.irl.maxent.path_sums import FinitePathSums


def covariance(engine: FinitePathSums, theta: FloatArray, starts: FloatArray | None = None) -> FloatArray:
    """Return the Hessian (d, d) of log_Z at theta (d,): Cov[F], or its mean over starts in a model by start.

    `starts` (S,) replaces p0 as the distribution of start states.
    """
    ((_, run),) = engine.passes(theta[None], None if starts is None else starts[:, None])
    moments = _Moments(engine)
    moments.begin(run.start_visits[:, 0])
    most = max(1, int(engine.backend.step_bytes / (8 * (engine.mdp.n_states + engine.graph.n_edges))))
    with np.errstate(over="ignore", invalid="ignore"):
        for first, visits, share in run.step_by_step(most):
            moments.add(first, visits, share)
        second, mean = moments.finish()
        found = second - (_between_starts(engine, run, starts) if engine.by_start else np.outer(mean, mean))
    return check_covariance(engine.mdp, found)


def check_covariance(mdp: MDP, found: FloatArray) -> FloatArray:
    """Return a covariance (d, d) that is finite, or name the feature whose variance is not."""
    if not np.all(np.isfinite(found)):
        name = mdp.feature_names[int(np.argmin(np.isfinite(found).all(axis=1)))]
        raise NumericalError(f"The variance of feature {name!r} is beyond the range of float64. Rescale the features.")
    return found


class _Moments:
    """First and second moments of the path features, accumulated step by step."""

    def __init__(self, engine: FinitePathSums) -> None:
        self.engine, self.backend = engine, engine.backend
        xp = self.backend.xp
        self.phi, self.edge_phi = self.backend.dense_features(engine.mdp)
        self.target = None if self.edge_phi is None else self.backend.put(owners(engine.graph.into))
        self.mean = xp.stack([self.phi, self.phi])
        self.total = xp.zeros_like(self.phi)
        # Without features on edges, what they collect is not computed; the array only stands for it.
        self.edge_total = xp.zeros((0, 0) if self.edge_phi is None else self.edge_phi.shape)
        self.counts = xp.zeros((2, engine.mdp.n_states))
        self.edge_counts = xp.zeros((2, engine.graph.n_edges))

    def begin(self, visits: Any) -> None:
        """Take in step 0: the probability (S,) of each start state."""
        self.total += visits[:, None] * self.phi
        self.counts += visits

    def add(self, first: int, visits: Any, share: Any) -> None:
        """Take in steps `first` and following: visits (n, S) and share (n, E)."""
        n = visits.shape[0]
        here, before = self.engine.discount[first : first + n], self.engine.discount[first - 1 : first - 1 + n]
        totals = (self.total, None if self.edge_phi is None else self.edge_total)
        into, put = self.backend.graph.into, self.backend.put
        self.backend.carry(into, share, visits, self.phi, self.edge_phi, self.mean, totals, here, before)
        if n % 2:
            self.mean[0] = self.mean[1]
        self.counts += put(np.stack([here, here**2])) @ visits
        if self.edge_phi is not None:
            self.edge_counts += put(np.stack([before, before**2])) @ (visits[:, self.target] * share)

    def finish(self) -> tuple[FloatArray, FloatArray]:
        """Return E[F F'] (d, d) and E[F] (d,), on the host."""
        cross = self.phi.T @ self.total
        own = (self.phi.T * self.counts[1]) @ self.phi
        mean = self.counts[0] @ self.phi
        if self.edge_phi is not None:
            cross += self.edge_phi.T @ self.edge_total
            own += (self.edge_phi.T * self.edge_counts[1]) @ self.edge_phi
            mean += self.edge_counts[0] @ self.edge_phi
        return self.backend.take(cross + cross.T - own), self.backend.take(mean)


def _between_starts(engine: FinitePathSums, run: ForwardBackward, starts: FloatArray | None) -> FloatArray:
    """Return sum_s c(s) E[F | s] E[F | s]', by carrying mean features backwards from the last step to the first."""
    backend = engine.backend
    graph, xp = backend.graph, backend.xp
    phi, edge_phi = backend.dense_features(engine.mdp)
    if edge_phi is not None:  # from sorted by target to sorted by source
        sorted_out = xp.empty_like(edge_phi)
        sorted_out[graph.in_edge] = edge_phi
        edge_phi = sorted_out
    ahead = xp.stack([engine.discount[-1] * phi, xp.empty_like(phi)])
    nobody = xp.zeros((1, engine.mdp.n_states))
    for t, share in run.departures():
        gain = engine.discount[t : t + 1]
        backend.carry(graph.out, share[None], nobody, phi, edge_phi, ahead, (None, None), gain, gain)
        ahead[0] = ahead[1]
    weights = backend.put((engine.mdp.p0 if starts is None else starts)[engine.graph.order])
    return backend.take((ahead[0].T * weights) @ ahead[0])
