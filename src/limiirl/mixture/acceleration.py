"""Acceleration of EM by a quasi-Newton search on the penalised marginal likelihood.

EM converges linearly, and slowly where intents overlap. Between M-steps, L-BFGS maximises the same objective over the
mixture weights and all rewards together. Its gradient is that of the M-step at the current responsibilities (Fisher's
identity), so that both have the same stationary points. A search never lowers the objective.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from limiirl._typing import FloatArray, IndexArray
from limiirl.errors import DivergentPartition, InvalidDemos, InvalidParameter, NumericalError
from limiirl.irl import Box, FitProblem, minimise_lbfgs

# Largest difference of the logits of two mixture weights: no weight becomes less than about 1e-8.
_LARGEST_LOGIT = 18.0
# Tolerance on the gradient of the mean objective, in variables in which features have size 1.
_GTOL = 1e-7


class MarginalLikelihood:
    """Negative penalised log-likelihood of a mixture per unit, as a function of one vector.

    The vector contains the logits of the mixture weights, relative to the first intent, and the rewards of all intents
    times `scale` (d,).
    """

    batched = False

    def __init__(self, problem: FitProblem, n_intents: int, scale: FloatArray) -> None:
        self.problem, self.K, self.scale = problem, n_intents, scale
        self.n = len(problem.units)
        self._U = problem.allocate(n_intents)
        self._objective: Any = problem.objective

    def pack(self, rho: FloatArray, thetas: FloatArray) -> FloatArray:
        """Return the vector of mixture weights (K,) and rewards (K, d)."""
        logits = np.log(rho)
        return np.concatenate([logits[1:] - logits[0], (thetas * self.scale).ravel()])

    def unpack(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the mixture weights (K,) and rewards (K, d) of a vector."""
        logits = np.concatenate([[0.0], x[: self.K - 1]])
        weights = np.exp(logits - logits.max())
        return weights / weights.sum(), x[self.K - 1 :].reshape(self.K, -1) / self.scale

    def box(self, box: Box) -> Box:
        """Return the bounds on the vector, given the bounds on the rewards of one intent."""
        logits = np.full(self.K - 1, _LARGEST_LOGIT)
        lower, upper = (np.tile(bound * self.scale, self.K) for bound in (box.lower, box.upper))
        return Box(np.concatenate([-logits, lower]), np.concatenate([logits, upper]))

    def evaluate(self, points: FloatArray, which: IndexArray) -> tuple[FloatArray, FloatArray]:
        """Return values (1,) and gradients (1, p); the value is inf if a partition function diverges."""
        del which
        rho, thetas = self.unpack(points[0])
        try:
            e_step = self.problem.e_step(rho, thetas, self._U)
            # A size of 0 would make the mean over demonstrations undefined.
            U = np.maximum(self._U, 1e-300)
            loss, derivative = self._objective(U).evaluate(thetas, np.arange(self.K))
        except (DivergentPartition, NumericalError, InvalidDemos):
            return np.array([np.inf]), np.zeros_like(points)
        if not np.all(np.isfinite(loss)):
            return np.array([np.inf]), np.zeros_like(points)
        value = e_step.log_likelihood - self.problem.penalty(thetas)
        n_demos = self.problem.units.broadcast(U).sum(axis=0)
        by_theta = -n_demos[:, None] * derivative - self.problem.penalty_gradient(thetas)
        by_logit = e_step.sizes - self.n * rho
        gradient = np.concatenate([by_logit[1:], (by_theta / self.scale).ravel()])
        return np.array([-value / self.n]), -gradient[None] / self.n


def check_accelerates(problem: FitProblem, n_intents: int) -> None:
    """Raise unless the model of a problem has gradients."""
    U = np.full((len(problem.units), n_intents), 1.0 / n_intents)
    if problem.demos is None or problem.regulariser is None or problem.objective(U) is None:
        what = "a stream" if problem.demos is None else type(problem.model).__name__
        rule = f"must be False for {what}, whose likelihood has no gradient"
        raise InvalidParameter.of("accelerate", True, rule)


def maximise(
    problem: FitProblem, rho: FloatArray, thetas: FloatArray, max_evaluations: int
) -> tuple[FloatArray, FloatArray, int]:
    """Return weights and rewards with a higher penalised likelihood, and the number of evaluations per intent."""
    K, d = thetas.shape
    size = np.sqrt(np.mean(problem.features() ** 2, axis=0))
    scale = np.where(size > 0.0, size, 1.0) if size.size == d else np.ones(d)
    objective = MarginalLikelihood(problem, K, scale)
    box = objective.box(problem.box(d))
    (result,) = minimise_lbfgs(objective, objective.pack(rho, thetas)[None], box, _GTOL, max_evaluations)
    new_rho, new_thetas = objective.unpack(result.theta)
    return new_rho, np.asarray(problem.box(d).clip(new_thetas)), result.n_evaluations
