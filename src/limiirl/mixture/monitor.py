"""The history, the stopping rule and the progress reports of EM."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from limiirl._progress import Progress
from limiirl._typing import FloatArray


@dataclass(frozen=True, eq=False)
class Iteration:
    """One entry of a mixture's history.

    Attributes
    ----------
    iteration : int
        Number of M-steps so far; 0 is the initial ensemble.
    log_likelihood : float
        Mean log-likelihood per unit.
    objective : float
        Mean log-likelihood minus the model's penalty; nondecreasing except at an `event`.
    change : float
        Mean over units of ``sum_k |u_ik - previous u_ik|``. At iteration 0, the change from the initial clusters (the
        realised epsilon of Theorem 1); nan without clusters.
    weights : (K,)
    n_evaluations : int
        Number of evaluations in the M-step, the maximum over intents; 0 if the model does not count them.
    temperature : float
    event : str
        Empty, or the reason why the objective may decrease: "start", "projected" (initial rewards outside the bounds),
        "annealed" or "reseeded 2"; or an accepted move of `refine`, such as "split 2, merged 0 into 1", which includes
        several M-steps.
    """

    iteration: int
    log_likelihood: float
    objective: float
    change: float
    weights: FloatArray
    n_evaluations: int = 0
    temperature: float = 1.0
    event: str = ""


Callback = Callable[[Iteration], None]


class ConvergenceMonitor:
    """History, stopping rule and callback of one run of EM; see `IntentMixture` for the parameters."""

    def __init__(
        self, max_iter: int, resp_tol: float, likelihood_tol: float | None = None, callback: Callback | None = None
    ) -> None:
        self.max_iter, self.resp_tol, self.likelihood_tol, self.callback = max_iter, resp_tol, likelihood_tol, callback
        self.history: list[Iteration] = []

    def record(self, entry: Iteration) -> None:
        """Append an iteration to the history, and report it."""
        self.history.append(entry)
        if self.callback is not None:
            self.callback(entry)

    @property
    def converged(self) -> bool:
        """True if the last iteration met a stopping rule."""
        if len(self.history) < 2:
            return False
        last, before = self.history[-1], self.history[-2]
        if last.event or last.temperature != 1.0:
            return False
        if last.change < self.resp_tol:
            return True
        return self.likelihood_tol is not None and last.objective - before.objective < self.likelihood_tol

    @property
    def stops(self) -> bool:
        """True if EM has converged or reached `max_iter`."""
        return len(self.history) > self.max_iter or self.converged


def report_iterations(progress: Progress | None, start: int, n_starts: int, max_iter: int) -> Callback | None:
    """Return a callback that reports each iteration of EM from initialisation `start` to `progress`."""
    if progress is None:
        return None
    name = f"initialisation {start + 1} of {n_starts}: " if n_starts > 1 else ""

    def report(entry: Iteration) -> None:
        change = "" if math.isnan(entry.change) else f", change {entry.change:.1e}"
        # The moves of `refine` add iterations beyond max_iter.
        total = max(max_iter, entry.iteration)
        progress(entry.iteration, total, f"{name}log-likelihood {entry.log_likelihood:.6f}{change}")

    return report
