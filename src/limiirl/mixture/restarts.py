"""What several starts of EM found, and how far their solutions lie apart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from limiirl.mdp.ensemble import RewardEnsemble
from limiirl.mixture.align import assign
from limiirl.mixture.em import Solution

Float = NDArray[np.float64]
# Objectives (nats a unit) closer than this are the same solution, reached to within EM's tolerance.
_SAME_OBJECTIVE = 1e-5


@dataclass(frozen=True)
class Restart:
    """One start of EM.

    Attributes
    ----------
    objective : float
        Mean penalised log-likelihood.
    n_iter, converged : int, bool
    ensemble : RewardEnsemble
        Intents in the order of the best solution's.
    distance : float
        Share of the units that would have to change intent to turn this solution into the best.
    best : bool
        Whether it reached the best objective.
    """

    objective: float
    n_iter: int
    converged: bool
    ensemble: RewardEnsemble
    distance: float
    best: bool


def compare(solutions: list[Solution], best: Solution) -> list[Restart]:
    """Return what each start found, aligned with the best."""
    found = []
    for solution in solutions:
        order = assign(-(best.U.T @ solution.U))
        distance = 0.5 * float(np.mean(np.sum(np.abs(solution.U[:, order] - best.U), axis=1)))
        found.append(
            Restart(
                solution.objective,
                solution.n_iter,
                solution.converged,
                RewardEnsemble(solution.rho[order], solution.thetas[order]),
                distance,
                best.objective - solution.objective <= _SAME_OBJECTIVE,
            )
        )
    return found
