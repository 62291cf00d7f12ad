"""scipy's L-BFGS-B for K functions, with batched evaluations if the objective has the attribute `batched`.

At kinks of nonsmooth functions, gradient sampling (Burke, Lewis and Overton 2005) takes over: the negative of the
shortest vector in the convex hull of nearby gradients is a descent direction unless it is zero.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import repeat
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, nnls

from limiirl._parallel import one_thread
from limiirl._typing import FloatArray, IndexArray
from limiirl.irl.base import FitResult, Status
from limiirl.irl.optim.projected_newton import SUFFICIENT, Box, Objective, check_starts

_Result = TypeVar("_Result")
# Key of errors in the caller's thread. Searches have the keys 0, 1, ..., and the error with the smallest key is raised.
_CALLER = -1


class _Stopped(BaseException):
    """Raised in searches that wait for an evaluation, after an error in another search or in an evaluation."""


class BatchedEvaluator:
    """Objective of K searches that run in one thread each, and whose evaluations are batched in the caller's thread.

    If the values of functions do not depend on the batch, the results are identical to those of separate searches.
    """

    def __init__(self, objective: Objective) -> None:
        self._objective = objective
        self._changed = threading.Condition()
        self._requests: dict[int, tuple[FloatArray, IndexArray]] = {}
        self._replies: dict[int, tuple[FloatArray, FloatArray]] = {}
        self._live = 0
        self._failures: dict[int, BaseException] = {}

    def evaluate(self, thetas: FloatArray, which: IndexArray) -> tuple[FloatArray, FloatArray]:
        """Submit a request from a search's thread and wait for the reply."""
        me = threading.get_ident()
        with self._changed:
            self._requests[me] = (thetas, which)
            self._changed.notify_all()
            self._changed.wait_for(lambda: me in self._replies or self._failures)
            # Return the reply even if another search has failed in the meantime, so that errors do not depend on the
            # scheduler.
            if me not in self._replies:
                raise _Stopped
            return self._replies.pop(me)

    def run(self, search: Callable[[Objective, int], _Result], n: int) -> list[_Result]:
        """Return the results of ``search(objective, k)`` for k = 0, ..., n - 1.

        An error in one search stops all searches. If several searches of a batch fail, the error of the smallest k is
        raised.
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
        except BaseException as error:  # noqa: BLE001 (including KeyboardInterrupt, so that no thread keeps waiting)
            self._fail(_CALLER, error)
        for thread in threads:
            if thread.ident is not None:  # the thread was started
                thread.join()
        if self._failures:
            raise self._failures[min(self._failures)]
        return [results[k] for k in range(n)]

    def _serve(self) -> bool:
        """Evaluate the requests of all running searches in one batch; return True if a search is still running."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._requests) == self._live or self._failures)
            if self._live == 0 or self._failures:
                return False
            # Sort by function, so that the batch does not depend on the scheduler.
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
    """Minimise K functions with scipy's L-BFGS-B; arguments as for `minimise_newton`.

    Searches run one after the other or, if the attribute `batched` of the objective is True, in lockstep. The best
    evaluated point is returned. Unlike in scipy, a search stops as soon as `max_evaluations` is reached, and steps to
    infinite values are shortened. BLAS uses one thread, because the matrices are small.
    """
    tols, clipped = np.broadcast_to(tol, starts.shape), box.clip(starts)
    search = partial(_search, starts=clipped, box=box, tols=tols, max_evaluations=max_evaluations)
    with one_thread("blas"):
        if len(clipped) > 1 and getattr(objective, "batched", False):
            return BatchedEvaluator(objective).run(search, len(clipped))
        return list(map(search, repeat(objective), range(len(clipped))))


# Relative difference up to which values of the objective are equal except for rounding errors.
_TIE = 2.0**-52


class _EvaluationLimit(Exception):
    """The maximum number of evaluations is reached."""


class _Recorder:
    """Function k for scipy, which counts the evaluations and stores the best point."""

    def __init__(self, objective: Objective, k: int, start: FloatArray, limit: int) -> None:
        self.objective, self.which, self.limit = objective, np.array([k]), limit
        values, gradients = objective.evaluate(start[None], self.which)
        check_starts(start[None], values, self.which)
        self.n_evaluations = 1
        self.value, self.theta, self.gradient = float(values[0]), start, gradients[0]

    def __call__(self, theta: Any) -> tuple[float, Any]:
        if np.array_equal(theta, self.theta):
            return self.value, self.gradient
        if self.n_evaluations >= self.limit:
            raise _EvaluationLimit
        self.n_evaluations += 1
        values, gradients = self.objective.evaluate(theta[None], self.which)
        value = float(values[0])
        if not np.isfinite(value):
            # The line search of scipy requires finite values: this one is that of a parabola along the step, whose
            # minimum is at a quarter of the step, so that the next step is shorter.
            return self.value + abs(float(self.gradient @ (theta - self.theta))), -3.0 * self.gradient
        # Values that differ by rounding errors are compared by the size of the gradient, which is more accurate.
        tie = _TIE * abs(self.value)
        smaller = np.sum(gradients[0] ** 2) < np.sum(self.gradient**2)
        if value < self.value - tie or (value <= self.value + tie and smaller):
            self.value, self.theta, self.gradient = value, theta.copy(), gradients[0]
        return value, gradients[0]


def _search(objective: Any, k: int, starts: FloatArray, box: Box, tols: FloatArray, max_evaluations: int) -> FitResult:
    best, tol = _Recorder(objective, k, starts[k], max_evaluations), tols[k]
    options: Any = {"maxfun": 10**9, "maxiter": 10**9, "gtol": 0.1 * float(np.min(tol)), "ftol": 0.0, "maxcor": 20}
    bounds, status = list(zip(box.lower, box.upper, strict=True)), Status.STALLED
    before = residual_before = np.inf
    # A search that stalls is repeated without its memory, as long as the value decreases or the gradient is halved.
    while (here := box.residual(best.theta, best.gradient / tol)) > 1.0:
        if best.value >= before and here > 0.5 * residual_before:
            break
        before, residual_before = best.value, here
        try:
            minimize(best, best.theta, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        except _EvaluationLimit:
            status = Status.EVALUATIONS
            break
    residual = box.residual(best.theta, best.gradient)
    if box.residual(best.theta, best.gradient / tol) <= 1.0:
        status = Status.CONVERGED
    return FitResult(best.theta, best.value, status, best.n_evaluations, 0, residual)


# Sampling radii relative to the largest parameter.
_RADII = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
# Step lengths relative to the radius; they are evaluated in one batch.
_LENGTHS = 4.0 ** np.arange(2, -5, -1)
# Maximum number of gradients per sample.
_MOST = 40
# Smallest relative decrease after which L-BFGS-B is restarted.
_WORTH = 1e-9


def minimise_nonsmooth(
    objective: Objective, starts: FloatArray, box: Box, tol: float | FloatArray, max_evaluations: int
) -> list[FitResult]:
    """Minimise K functions one after the other; arguments as for `minimise_newton`.

    At a kink, the search has converged if the components of a convex combination of nearby gradients are at most ten
    times the tolerance. Points are sampled with a fixed seed.
    """
    tols = np.broadcast_to(tol, starts.shape)
    return [_minimise(objective, k, start, box, tols[k], max_evaluations) for k, start in enumerate(starts)]


class _OneFunction:
    """Objective that consists of function k only."""

    def __init__(self, objective: Objective, k: int) -> None:
        self.objective, self.k = objective, k

    def evaluate(self, thetas: FloatArray, which: NDArray[np.intp]) -> tuple[FloatArray, FloatArray]:
        return self.objective.evaluate(thetas, np.full(which.shape, self.k))


def _minimise(objective: Objective, k: int, start: FloatArray, box: Box, tol: FloatArray, limit: int) -> FitResult:
    one, rng = _OneFunction(objective, k), np.random.default_rng(0)
    solution = minimise_lbfgs(one, start[None], box, tol[None], limit)[0]
    while solution.status is Status.STALLED:
        stepped = _step(one, solution, box, tol, limit, rng)
        if stepped.status is not Status.STALLED or stepped.value >= solution.value - _WORTH * (
            1.0 + abs(solution.value)
        ):
            return stepped
        left = limit - stepped.n_evaluations
        if left < 1:
            return replace(stepped, status=Status.EVALUATIONS)
        solution = minimise_lbfgs(one, stepped.theta[None], box, tol[None], left)[0]
        solution = replace(solution, n_evaluations=solution.n_evaluations + stepped.n_evaluations)
    return solution


def _step(
    one: _OneFunction, at: FitResult, box: Box, tol: FloatArray, limit: int, rng: np.random.Generator
) -> FitResult:
    """Return a point with a lower value or, if none is found, the same point with its final status.

    A lower point keeps the status STALLED, so that the search continues from it.
    """
    d, used = at.theta.size, at.n_evaluations
    size, n = max(1.0, float(np.max(np.abs(at.theta)))), min(_MOST, 2 * d) + 1
    for relative in _RADII:
        if used + n + _LENGTHS.size > limit:
            return replace(at, n_evaluations=used, status=Status.EVALUATIONS)
        radius = relative * size
        around = box.clip(at.theta + radius * np.vstack([np.zeros(d), rng.uniform(-1.0, 1.0, (n - 1, d))]))
        values, gradients = one.evaluate(around, np.zeros(n, dtype=np.intp))
        shortest = _shortest(gradients[np.isfinite(values)], at.theta, box)
        length = float(np.linalg.norm(shortest))
        used += n
        if length > 0.0:
            steps = radius * _LENGTHS[:, None] / length
            trials = box.clip(at.theta - steps * shortest)
            values, _ = one.evaluate(trials, np.zeros(len(trials), dtype=np.intp))
            used += len(trials)
            lower = values <= at.value - SUFFICIENT * steps[:, 0] * length**2
            if np.any(lower):
                best = int(np.argmin(np.where(lower, values, np.inf)))
                return replace(at, theta=trials[best], value=float(values[best]), n_evaluations=used)
    residual = float(np.max(np.abs(shortest), initial=0.0))
    solved = bool(np.all(np.abs(shortest) <= 10.0 * tol))
    status = Status.CONVERGED if solved else Status.STALLED
    return replace(at, n_evaluations=used, status=status, projected_gradient=residual)


def _shortest(gradients: FloatArray, theta: FloatArray, box: Box) -> FloatArray:
    """Return the shortest vector (d,) in the convex hull of gradients (n, d), with 0 for active variables."""
    solution = _hull(gradients)
    active = box.active(theta, solution)
    if np.any(active):
        solution = np.zeros(theta.size)
        solution[~active] = _hull(gradients[:, ~active])
        solution[box.active(theta, solution)] = 0.0
    return solution


def _hull(gradients: FloatArray) -> FloatArray:
    if not gradients.size:
        return np.zeros(gradients.shape[1])
    scale = float(np.max(np.abs(gradients))) or 1.0
    weights, _ = nnls(
        np.vstack([gradients.T / scale, np.ones(len(gradients))]), np.append(np.zeros(gradients.shape[1]), 1.0)
    )
    return np.asarray(gradients.T @ (weights / weights.sum()))
