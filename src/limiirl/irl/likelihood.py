"""The objective of a MaxEnt fit: minus the weighted mean log-likelihood of demonstrations, for K weightings at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from limiirl.errors import DivergentPartition, NumericalError
from limiirl.irl.engine import FiniteEngine, InfiniteEngine
from limiirl.irl.engine.features import expected_features
from limiirl.irl.evidence import Demonstrated, Evidence
from limiirl.irl.optimise import Box

Float = NDArray[np.float64]
# What `feasible_start` tries: features may be in any unit, so that a cost of 1 a step may need parameters of 1000.
_COSTS = (0.0, *(4.0**power for power in range(11)))


class PathLikelihood:
    """The functions f_k(theta) = log Z(theta) - sum_i w_ik log-weight_i(theta) + ridge_k / 2 |theta|^2.

    The weights of each k sum to 1; all that is asked of them is in `demonstrated`.
    Convex in theta, but for unrecorded actions; its gradient is E[F] - F_k, the expected minus the demonstrated
    features.

    Parameters
    ----------
    evidence : Evidence, optional
        Asked about unrecorded actions only, where `demonstrated` has weights.
    ridge : (K,)
    """

    def __init__(
        self, engine: FiniteEngine | InfiniteEngine, evidence: Evidence | None, demonstrated: Demonstrated, ridge: Float
    ) -> None:
        self.engine, self.evidence, self.ridge = engine, evidence, ridge
        self.mean_features, self._starts, self._weights = demonstrated

    @property
    def heavy(self) -> bool:
        """Whether a pass over the graph costs so much that several intents should share it."""
        return self.engine.together

    def evaluate(self, thetas: Float, which: NDArray[np.intp]) -> tuple[Float, Float]:
        """Return values (J,) and gradients (J, d); infinite where the sum is, or is beyond float64."""
        starts = None if self._starts is None else self._starts[:, which]
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                log_Z, expected = self.engine.expectation(thetas, starts=starts)
        except (DivergentPartition, NumericalError):
            if len(which) == 1:
                return np.array([np.inf]), np.zeros_like(thetas)
            parts = [self.evaluate(thetas[j : j + 1], which[j : j + 1]) for j in range(len(which))]
            return np.concatenate([value for value, _ in parts]), np.concatenate([gradient for _, gradient in parts])
        demonstrated = self.mean_features[which]
        with np.errstate(over="ignore", invalid="ignore"):
            return self._join(thetas, which, log_Z, expected - demonstrated)

    def _join(self, thetas: Float, which: NDArray[np.intp], log_Z: Float, gradients: Float) -> tuple[Float, Float]:
        """Return values and gradients from the sums over trajectories and expected minus demonstrated features."""
        linear = np.sum(self.mean_features[which] * thetas, axis=1)
        values = log_Z - linear + 0.5 * self.ridge[which] * np.sum(thetas**2, axis=1)
        gradients = gradients + self.ridge[which, None] * thetas
        if self._weights is not None and self.evidence is not None:
            for j, k in enumerate(which):
                value, gradient = self.evidence.correction(thetas[j], self._weights[:, k])
                values[j] -= value
                gradients[j] -= gradient
        return values, gradients

    def hessian(self, theta: Float, k: int) -> Float:
        """Return the Hessian (d, d) of log Z plus the ridge.

        Unrecorded actions would lower it, and could make it indefinite; without them it is still a descent metric.
        """
        starts = None if self._starts is None else self._starts[:, k]
        found = self.engine.covariance(theta, starts=starts)
        return np.asarray(found + self.ridge[k] * np.eye(theta.size))


def feasible_start(engine: FiniteEngine | InfiniteEngine, box: Box) -> Float:
    """Return a point (d,) within the bounds where the sum over trajectories is finite: 0, or else growing costs.

    A cost is a parameter of the sign that makes its feature, summed over states and edges, a loss.
    """
    mdp = engine.mdp
    if isinstance(engine, FiniteEngine):  # a finite sum is finite everywhere
        return box.clip(np.zeros(mdp.n_features))
    start = box.clip(np.zeros(mdp.n_features))
    against = np.sign(expected_features(mdp, np.ones((mdp.n_states, 1)), np.ones((mdp.n_edges, 1)))[0])
    for cost in _COSTS:
        trial = box.clip(start - cost * against)
        try:
            engine.log_partition(trial[None])
        except DivergentPartition:
            continue
        except NumericalError:
            if cost == 0.0:
                raise
            break  # costs have become too large for float64: larger ones are as well
        return trial
    raise DivergentPartition(
        "The sum over trajectories of any length stays infinite whatever features cost within the bounds: some cycle "
        "collects too little. Widen the bounds, pass a start where the sum is finite, add a feature that every step "
        "has, or use a finite max_length."
    )
