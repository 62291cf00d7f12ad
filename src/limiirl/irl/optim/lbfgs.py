"""scipy's L-BFGS-B for K functions, whose evaluations are batched where one pass over a graph serves all."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from scipy.optimize import minimize

from limiirl._parallel import one_thread
from limiirl._typing import FloatArray, IndexArray
from limiirl.irl.base import FitResult, Status
from limiirl.irl.optim.projected_newton import LONGEST, Box, Objective, evaluate_starts

_Result = TypeVar("_Result")
# Whose errors come before those of the searches, which are numbered from 0.
_CALLER = -1


class _Stopped(BaseException):
    """Ends the searches that wait when one of them, or an evaluation, has failed."""


class BatchedEvaluator:
    """Runs K searches in threads of their own, and evaluates what they ask for in the caller's thread, all at once.

    A search sees an objective as if it were alone, so that it need not know of the others: its answers are the same to
    the last bit wherever the values of one function do not depend on which others are asked for. Everything heavy
    happens in the caller's thread, with its settings of threads and warnings.

    Examples
    --------
    >>> class Squares:
    ...     def evaluate(self, thetas, which):
    ...         return (thetas**2).sum(axis=1), 2.0 * thetas
    >>> def search(values, k):
    ...     return float(values.evaluate(np.array([[k + 1.0]]), np.array([k]))[0][0])
    >>> BatchedEvaluator(Squares()).run(search, 3)
    [1.0, 4.0, 9.0]
    """

    def __init__(self, objective: Objective) -> None:
        self._objective = objective
        self._changed = threading.Condition()
        self._requests: dict[int, tuple[FloatArray, IndexArray]] = {}
        self._replies: dict[int, tuple[FloatArray, FloatArray]] = {}
        self._live = 0
        self._failures: dict[int, BaseException] = {}

    def evaluate(self, thetas: FloatArray, which: IndexArray) -> tuple[FloatArray, FloatArray]:
        """Ask for values from a search's thread, and wait for them."""
        me = threading.get_ident()
        with self._changed:
            self._requests[me] = (thetas, which)
            self._changed.notify_all()
            self._changed.wait_for(lambda: me in self._replies or self._failures)
            # An answer counts although another search failed since: which errors there are must not depend on who woke
            # first.
            if me not in self._replies:
                raise _Stopped
            return self._replies.pop(me)

    def run(self, search: Callable[[Objective, int], _Result], n: int) -> list[_Result]:
        """Return what ``search(values, k)`` returns for k = 0, ..., n - 1.

        An error of one ends all; where several fail in the same step, that of the smallest k is raised.
        """
        results: dict[int, _Result] = {}

        def work(k: int) -> None:
            try:
                results[k] = search(self, k)
            except _Stopped:
                pass
            except BaseException as error:  # noqa: BLE001 (raised again in the caller's thread)
                self._fail(k, error)
            finally:
                with self._changed:
                    self._live -= 1
                    self._changed.notify_all()

        self._live = n
        threads = [threading.Thread(target=work, args=(k,), daemon=True) for k in range(n)]
        try:
            for thread in threads:
                thread.start()
            while self._serve():
                pass
        except BaseException as error:  # noqa: BLE001 (an interrupt as well: zeros may be left waiting)
            self._fail(_CALLER, error)
        for thread in threads:
            if thread.ident is not None:  # one that could not be started has nothing to end
                thread.join()
        if self._failures:
            raise self._failures[min(self._failures)]
        return [results[k] for k in range(n)]

    def _serve(self) -> bool:
        """Evaluate the requests of all running searches at once; return whether any is still running."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._requests) == self._live or self._failures)
            if self._live == 0 or self._failures:
                return False
            # In the order of the functions, so that nothing depends on which thread was first.
            waiting = sorted(self._requests.items(), key=lambda item: int(item[1][1][0]))
            self._requests = {}
        sizes = [which.size for _, (_, which) in waiting]
        values, gradients = self._objective.evaluate(
            np.concatenate([thetas for _, (thetas, _) in waiting]), np.concatenate([which for _, (_, which) in waiting])
        )
        ends = np.cumsum(sizes)
        with self._changed:
            for (who, _), end, size in zip(waiting, ends, sizes, strict=True):
                self._replies[who] = values[end - size : end], gradients[end - size : end]
            self._changed.notify_all()
        return True

    def _fail(self, who: int, error: BaseException) -> None:
        with self._changed:
            self._failures[who] = error
            self._changed.notify_all()


def minimise_lbfgs(
    objective: Objective, starts: FloatArray, box: Box, tol: float | FloatArray, max_evaluations: int
) -> list[FitResult]:
    """Minimise K functions by scipy's L-BFGS-B; arguments as for `minimise_newton`.

    Searches run one after the other, or in lockstep where the objective is `heavy`. The best evaluated point is
    returned. scipy checks a cap only between iterations and gives up at an infinite value; here the cap ends the search
    at once, and after an infinite value it restarts from the best point. BLAS uses one thread for the small matrices.
    """
    tols, clipped = np.broadcast_to(tol, starts.shape), box.clip(starts)

    def search(values: Any, k: int) -> FitResult:
        return _search(values, clipped[k], k, box, tols[k], max_evaluations)

    with one_thread("blas"):
        if len(clipped) > 1 and getattr(objective, "heavy", False):
            return BatchedEvaluator(objective).run(search, len(clipped))
        return [search(objective, k) for k in range(len(clipped))]


class _EvaluationLimit(Exception):
    """The cap on evaluations is reached."""


class _Recorder:
    """One of the K functions, for scipy: counts its evaluations, keeps the best, and stops at the cap."""

    def __init__(self, objective: Objective, k: int, start: FloatArray, cap: int) -> None:
        self.objective, self.which, self.cap = objective, np.array([k]), cap
        values, gradients = evaluate_starts(objective, start[None], self.which)
        self.n_evaluations = 1
        self.value, self.theta, self.gradient = float(values[0]), start, gradients[0]
        self.jumped = False

    def __call__(self, theta: Any) -> tuple[float, Any]:
        if np.array_equal(theta, self.theta):
            return self.value, self.gradient
        if self.n_evaluations >= self.cap:
            raise _EvaluationLimit
        self.n_evaluations += 1
        values, gradients = self.objective.evaluate(theta[None], self.which)
        value = float(values[0])
        self.jumped |= not np.isfinite(value)
        if value < self.value:
            self.value, self.theta, self.gradient = value, theta.copy(), gradients[0]
        return value, gradients[0]


def _search(
    objective: Objective, start: FloatArray, k: int, box: Box, tol: FloatArray, max_evaluations: int
) -> FitResult:
    best = _Recorder(objective, k, start, max_evaluations)
    status, radius = Status.STALLED, np.inf
    while True:
        # After an infinite value, the next search keeps within a box around the best point that is halved each time.
        best.jumped, before = False, best.value
        near = Box(np.maximum(box.lower, best.theta - radius), np.minimum(box.upper, best.theta + radius))
        options: Any = {"maxfun": 10**9, "maxiter": 10**9, "gtol": 0.1 * float(np.min(tol)), "ftol": 0.0, "maxcor": 20}
        bounds = list(zip(near.lower, near.upper, strict=True))
        try:
            minimize(best, best.theta, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        except _EvaluationLimit:
            status = Status.EVALUATIONS
            break
        if box.residual(best.theta, best.gradient / tol) <= 1.0 or radius < 1e-6:
            break
        if best.jumped:
            radius = min(LONGEST, radius) / 2
        elif best.value >= before:
            break
    residual = box.residual(best.theta, best.gradient)
    if box.residual(best.theta, best.gradient / tol) <= 1.0:
        status = Status.CONVERGED
    return FitResult(best.theta, best.value, status, best.n_evaluations, 0, residual)
