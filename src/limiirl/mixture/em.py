"""Expectation-maximisation for a mixture of intents, including the treatment of empty components.

Paper: section "The LiMIIRL algorithm". An M-step never lowers the expected log-likelihood, even if its number of
evaluations is limited. The penalised likelihood is therefore nondecreasing, except at iterations with an `event` in the
history.

EM converges slowly where intents overlap. With `accelerate`, L-BFGS maximises the same objective over the mixture
weights and all rewards together, between M-steps. Its gradient is that of the M-step at the current responsibilities
(Fisher's identity), so that both have the same stationary points. A search never lowers the objective.

With `shared` features, rewards are theta_k = shared + delta_k, where delta_k is 0 for these features. An M-step is one
search over the shared rewards and the rewards of all intents (ADR 0037).

With covariates, the mixture weights of unit i are a multinomial logit of x_i (`WeightDesign`), whose M-step is Newton's
method.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, softmax

from limiirl._progress import Progress
from limiirl._typing import BoolArray, FloatArray, IndexArray
from limiirl.errors import DivergentPartition, InvalidDemos, InvalidParameter, NumericalError
from limiirl.irl import Box, EStep, FitProblem, minimise_lbfgs

ACCELERATED = "accelerated"
"""Event of an iteration that is a quasi-Newton search."""
# Lower bound on mixture weights: a weight of zero would remain zero under EM.
SMALLEST_WEIGHT = 1e-8
# Minimum size of a fitted intent; mean features of smaller intents underflow.
_UNDERFLOW = 1e-250
# Maximum number of reseeds of empty intents per fit.
_RESEEDS = 3
# Maximum number of evaluations of a fit of initial rewards, for models without a limit.
_FIRST_EVALUATIONS = 1000
# Maximum number of Newton steps in an M-step of weights by covariates, and the expected increase of the log-likelihood
# per unit at which it ends.
_NEWTON_STEPS, _DECREMENT = 25, 1e-14
# Number of M-steps before the first quasi-Newton search and between searches, and the evaluations of a search.
_BEFORE_SEARCH, _SEARCH_EVALUATIONS = 3, 500


@dataclass(frozen=True, eq=False)
class Pooling:
    """Rewards with parts that are equal for all intents: theta_k = shared + delta_k.

    Attributes
    ----------
    shared : (d,) bool
        Features for which delta_k is 0.

    Examples
    --------
    >>> pooling = Pooling(np.array([True, False]))
    >>> pooling.pack(np.array([[1.0, 2.0], [1.0, 4.0]]))
    array([1., 2., 4.])
    >>> pooling.unpack(np.array([1.0, 2.0, 4.0]), 2)
    array([[1., 2.],
           [1., 4.]])
    """

    shared: BoolArray

    def pack(self, thetas: FloatArray, weights: FloatArray | None = None) -> FloatArray:
        """Return the s shared rewards, averaged with weights (K,), followed by the other rewards (K, d - s).

        Without weights, the shared rewards are equal, and those of the first intent are returned.
        """
        own = thetas[:, self.shared]
        shared = own[0] if weights is None else weights @ own / weights.sum()
        return np.concatenate([shared, thetas[:, ~self.shared].ravel()])

    def unpack(self, x: FloatArray, n_intents: int) -> FloatArray:
        """Return the rewards (K, d) of a vector of `pack`."""
        thetas = np.empty((n_intents, self.shared.size))
        count = np.count_nonzero(self.shared)
        thetas[:, self.shared], thetas[:, ~self.shared] = x[:count], x[count:].reshape(n_intents, -1)
        return thetas

    def sum_gradients(self, by_theta: FloatArray) -> FloatArray:
        """Return the gradient with respect to the vector of `pack`, given that with respect to thetas (K, d)."""
        return np.concatenate([by_theta[:, self.shared].sum(axis=0), by_theta[:, ~self.shared].ravel()])

    def pool(self, problem: FitProblem, thetas: FloatArray, weights: FloatArray) -> FloatArray:
        """Return feasible rewards (K, d) near `thetas` with equal shared rewards."""
        K = len(thetas)
        pooled = self.unpack(self.pack(problem.project(thetas), weights), K)
        inside = problem.feasible_start()
        if inside is None:
            return problem.project(pooled)
        for fraction in (0.0, 0.01, 0.1, 0.3, 0.6, 1.0):
            trial = pooled + fraction * (inside - pooled)
            if np.array_equal(problem.project(trial), trial):
                break
        return np.asarray(trial)


@dataclass(frozen=True)
class Settings:
    """Parameters of EM, named as in `IntentMixture`; `temperatures` is the annealing schedule."""

    max_iter: int = 100
    resp_tol: float = 1e-6
    likelihood_tol: float | None = None
    max_evaluations: int | None = None
    degenerate: str = "fit"
    temperatures: tuple[float, ...] = ()
    accelerate: bool = False
    pooling: Pooling | None = None


@dataclass(frozen=True)
class Start:
    """Initial weights and rewards, and the responsibilities (G, K) from which they were computed, or None.

    `empty` contains the intents without initial responsibilities, `warnings` the messages of the warnings that `fit`
    issues, and `parameter` the name of the argument of `IntentMixture` that determined the rewards. `logits` (K, p) are
    those of the mixture weights by covariates, by default constant weights.
    """

    rho: FloatArray
    thetas: FloatArray
    U: FloatArray | None = None
    empty: tuple[int, ...] = ()
    warnings: tuple[str, ...] = ()
    parameter: str = "init"
    logits: FloatArray | None = None


@dataclass(frozen=True, eq=False)
class WeightDesign:
    """Mixture weights by covariates: rho_k(x_i) = softmax_k(C_k . x_i), with the reference C_0 = 0.

    Attributes
    ----------
    X : (G, p)
        A column of ones and the standardised covariates of units.
    ridge : float
        Coefficient of the penalty ridge / 2 sum_k |C_k - mean(C)|^2 on the total log-likelihood, without the
        intercepts. It does not depend on which intent is the reference.
    """

    X: FloatArray
    ridge: float = 0.0

    def weights(self, logits: FloatArray) -> FloatArray:
        """Return the mixture weights (G, K) for logits C (K, p)."""
        return np.asarray(softmax(self.X @ logits.T, axis=1))

    def constant(self, rho: FloatArray) -> FloatArray:
        """Return the logits (K, p) of constant weights rho (K,)."""
        logits = np.zeros((rho.size, self.X.shape[1]))
        logits[:, 0] = np.log(rho) - np.log(rho[0])
        return logits

    def penalty(self, logits: FloatArray) -> float:
        """Return the penalty of logits (K, p)."""
        return 0.5 * self.ridge * float(np.sum((logits - logits.mean(axis=0))[:, 1:] ** 2))

    def penalty_curvature(self, n_intents: int) -> FloatArray:
        """Return the Hessian (K p, K p) of the penalty."""
        centred = np.eye(n_intents) - 1.0 / n_intents
        penalised = np.ones(self.X.shape[1])
        penalised[0] = 0.0
        return np.asarray(self.ridge * np.kron(centred, np.diag(penalised)))

    def information(self, rho: FloatArray) -> FloatArray:
        """Return sum_i (diag(rho_i) - rho_i rho_i') x (x_i x_i') (K p, K p), for weights rho (G, K)."""
        (n, K), p = rho.shape, self.X.shape[1]
        covariance = -rho[:, :, None] * rho[:, None, :]
        covariance[:, np.arange(K), np.arange(K)] += rho
        squares = (self.X[:, :, None] * self.X[:, None, :]).reshape(n, p * p)
        blocks = (covariance.reshape(n, K * K).T @ squares).reshape(K, K, p, p)
        return np.ascontiguousarray(blocks.transpose(0, 2, 1, 3)).reshape(K * p, K * p)

    def fit(self, U: FloatArray, start: FloatArray) -> FloatArray:
        """Return the logits (K, p) that maximise sum_ik u_ik log rho_k(x_i) minus the penalty, by Newton's method.

        A step is halved until it does not lower the objective, which is concave.
        """
        K, p = start.shape
        if K == 1:
            return start
        logits, value = start, self._value(U, start)
        curvature = self.penalty_curvature(K)
        for _ in range(_NEWTON_STEPS):
            rho = self.weights(logits)
            gradient = (((U - rho).T @ self.X).ravel() - curvature @ logits.ravel())[p:]
            hessian = (self.information(rho) + curvature)[p:, p:]
            direction = np.linalg.lstsq(hessian, gradient, rcond=None)[0]
            if not gradient @ direction > _DECREMENT * len(U):
                break
            step = np.concatenate([np.zeros(p), direction]).reshape(K, p)
            while not (reached := self._value(U, logits + step)) >= value:
                step = 0.5 * step
                if np.max(np.abs(step)) < _DECREMENT:
                    return logits
            logits, value = logits + step, reached
        return logits

    def _value(self, U: FloatArray, logits: FloatArray) -> float:
        return float(np.sum(U * log_softmax(self.X @ logits.T, axis=1))) - self.penalty(logits)


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
        "annealed" or "reseeded 2"; "accelerated" for a quasi-Newton search, after which convergence is not tested; or
        an accepted move of `refine`, such as "split 2, merged 0 into 1", which includes
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


@dataclass(frozen=True)
class State:
    """State of EM after an iteration, from which a run can resume.

    The next E-step overwrites `U`; copy it to retain it. `outside` is True if the rewards lie outside the bounds.
    `logits` (K, p) are those of the mixture weights by covariates; `rho` is then the mean weight over units.
    """

    rho: FloatArray
    thetas: FloatArray
    U: Any
    e_step: EStep
    outside: bool
    reseeds_left: int
    history: list[Iteration]
    logits: FloatArray | None = None


@dataclass(frozen=True)
class Solution:
    """Final parameters of EM with their responsibilities, sizes and likelihood."""

    rho: FloatArray
    thetas: FloatArray
    U: FloatArray
    log_likelihood: float
    objective: float
    converged: bool
    history: list[Iteration] = field(default_factory=list)
    sizes: FloatArray = field(default_factory=lambda: np.empty(0))
    logits: FloatArray | None = None

    @property
    def n_iter(self) -> int:
        """Number of M-steps."""
        return self.history[-1].iteration


class Recorded(Protocol):
    """A state of EM with the history of its iterations."""

    @property
    def history(self) -> list[Iteration]:
        """The iterations so far."""
        ...


class ConvergenceMonitor:
    """Stopping rule and callbacks of one run of EM; see `IntentMixture` and `run` for the parameters."""

    def __init__(
        self, settings: Settings, callback: Callback | None = None, keep: Callable[[State], None] | None = None
    ) -> None:
        self.settings, self.callback, self.keep = settings, callback, keep

    def record(self, state: State) -> None:
        """Call the callbacks with the last iteration and with the state."""
        if self.callback is not None:
            self.callback(state.history[-1])
        if self.keep is not None:
            self.keep(state)

    def has_converged(self, state: Recorded) -> bool:
        """Return True if the last iteration met a stopping rule."""
        if len(state.history) < 2:
            return False
        last, before = state.history[-1], state.history[-2]
        if last.event or last.temperature != 1.0:
            return False
        if last.change < self.settings.resp_tol:
            return True
        tol = self.settings.likelihood_tol
        return tol is not None and last.objective - before.objective < tol

    def stops(self, state: Recorded) -> bool:
        """Return True if EM has converged or reached `max_iter`."""
        return len(state.history) > self.settings.max_iter or self.has_converged(state)


def run(
    problem: FitProblem,
    start: Start | State,
    settings: Settings,
    callback: Callback | None = None,
    keep: Callable[[State], None] | None = None,
) -> Solution:
    """Run EM until convergence or `max_iter`.

    A run resumed from a `State` is bit-identical to an uninterrupted run. `callback` is called with each `Iteration`,
    and `keep` with the `State` after each iteration, including iteration 0.
    """
    monitor = ConvergenceMonitor(settings, callback, keep)
    if settings.accelerate:
        check_gradients(problem, len(start.rho), "accelerate", True)
    if settings.pooling is not None:
        check_gradients(problem, len(start.rho), "shared", int(np.count_nonzero(settings.pooling.shared)))
    if isinstance(start, State):
        state = start
    else:
        state = initialise(problem, start, settings)
        monitor.record(state)
    while not monitor.stops(state):
        due = is_search_due(settings, state.history)
        state = accelerate(problem, state, settings.pooling) if due else step(problem, state, settings)
        monitor.record(state)
    last = state.history[-1]
    fit = last.log_likelihood, last.objective, monitor.has_converged(state)
    return Solution(
        state.rho, state.thetas, state.U, *fit, history=state.history, sizes=state.e_step.sizes, logits=state.logits
    )


def initialise(problem: FitProblem, start: Start, settings: Settings) -> State:
    """Return the state after the first E-step."""
    rho, thetas = floor_weights(start.rho, 1.0), start.thetas
    U = problem.allocate(len(rho)) if start.U is None else start.U.copy()
    if settings.pooling is not None:
        thetas = settings.pooling.pool(problem, thetas, rho)
    outside = not np.array_equal(problem.project(thetas), thetas)
    temperature, logits = _temperature(settings, 0), start.logits
    if logits is None and problem.weight_design is not None:
        logits = problem.weight_design.constant(rho)
    try:
        e_step = problem.e_step(unit_weights(problem, rho, logits), thetas, U, temperature)
    except DivergentPartition as error:
        message = f"The initial rewards from {start.parameter} have an infinite partition function. {error}"
        raise DivergentPartition(message, parameter=start.parameter, value=error.value, index=error.index) from error
    change = np.nan if start.U is None else e_step.change
    values = _per_unit(problem, thetas, e_step, logits)
    entry = Iteration(0, *values, change, rho, temperature=temperature, event="start")
    return State(rho, thetas, U, e_step, outside, _RESEEDS, [entry], logits)


def step(problem: FitProblem, state: State, settings: Settings) -> State:
    """Return the state after an M-step and an E-step, which overwrites `state.U`."""
    n, number, reseeds_left = len(problem.units), len(state.history), state.reseeds_left
    moments, sizes = state.e_step.moments, state.e_step.sizes
    event = "projected" if state.outside else ""
    # An M-step after a tempered E-step may lower the objective.
    if _temperature(settings, number - 1) != 1.0:
        event = "annealed"
    small = nearly_empty(sizes, n)
    if settings.degenerate == "reseed" and np.any(small) and reseeds_left:
        k = int(np.argmax(small))
        _reassign_worst(problem, state, k)
        reseeds_left -= 1
        moments, sizes, event = problem.moments(state.U), state.U.sum(axis=0), f"reseeded {k}"
        small = nearly_empty(sizes, n)
    most = settings.max_evaluations
    if most is None and sizes.size == 1:  # responsibilities do not change, so that this M-step is the last
        most = problem.initial_evaluations
    if settings.pooling is None:
        which = np.flatnonzero(sizes > _UNDERFLOW if settings.degenerate == "fit" else ~small)
        starts, thetas = problem.project(state.thetas[which]), state.thetas.copy()
        thetas[which], n_evaluations = problem.m_step(moments, starts, which, most)
    else:
        limit = problem.limit_evaluations(most)
        thetas, n_evaluations = fit_pooled(problem, state.U, state.thetas, settings.pooling, limit)
    rho, temperature, logits = floor_weights(sizes, n), _temperature(settings, number), state.logits
    if logits is not None:
        logits = problem.weight_design.fit(state.U, logits)
        rho = problem.weight_design.weights(logits).mean(axis=0)
    e_step = problem.e_step(unit_weights(problem, rho, logits), thetas, state.U, temperature)
    values = _per_unit(problem, thetas, e_step, logits)
    entry = Iteration(number, *values, e_step.change, rho, n_evaluations, temperature, event)
    return State(rho, thetas, state.U, e_step, False, reseeds_left, [*state.history, entry], logits)


def unit_weights(problem: FitProblem, rho: FloatArray, logits: FloatArray | None) -> FloatArray:
    """Return the mixture weights (G, K) of units by covariates, or constant weights rho (K,)."""
    return rho if logits is None else np.asarray(problem.weight_design.weights(logits))


def accelerate(problem: FitProblem, state: State, pooling: Pooling | None = None) -> State:
    """Return the state after a quasi-Newton search on the marginal likelihood and an E-step."""
    logits = WeightDesign(np.ones((1, 1))).constant(state.rho) if state.logits is None else state.logits
    logits, thetas, n_evaluations = maximise_marginal(problem, logits, state.thetas, _SEARCH_EVALUATIONS, pooling)
    if state.logits is None:
        rho, kept = np.asarray(softmax(logits[:, 0])), None
    else:
        rho, kept = problem.weight_design.weights(logits).mean(axis=0), logits
    e_step = problem.e_step(unit_weights(problem, rho, kept), thetas, state.U)
    number, values = len(state.history), _per_unit(problem, thetas, e_step, kept)
    entry = Iteration(number, *values, e_step.change, rho, n_evaluations, event=ACCELERATED)
    return State(rho, thetas, state.U, e_step, False, state.reseeds_left, [*state.history, entry], kept)


def is_search_due(settings: Settings, history: list[Iteration]) -> bool:
    """Return True if the next iteration is a quasi-Newton search: after a few M-steps without events."""
    last = history[-_BEFORE_SEARCH:]
    return (
        settings.accelerate
        and len(history) > _BEFORE_SEARCH
        and all(not entry.event and entry.temperature == 1.0 for entry in last)
    )


def _temperature(settings: Settings, iteration: int) -> float:
    """Return the temperature of an iteration; it is 1 in the last iteration, so that the solution is not tempered."""
    schedule = settings.temperatures
    return schedule[iteration] if iteration < min(len(schedule), settings.max_iter) else 1.0


def _per_unit(problem: FitProblem, thetas: FloatArray, e_step: EStep, logits: FloatArray | None) -> tuple[float, float]:
    n, penalty = len(problem.units), problem.penalty(thetas)
    if logits is not None:
        penalty += problem.weight_design.penalty(logits)
    log_likelihood = e_step.log_likelihood / n
    return log_likelihood, log_likelihood - penalty / n


def _reassign_worst(problem: FitProblem, state: State, k: int) -> None:
    """Assign the unit with the lowest likelihood to intent k, in `state.U`."""
    log_p = problem.log_prob(state.thetas) + np.log(unit_weights(problem, state.rho, state.logits))
    worst = int(np.argmin(np.logaddexp.reduce(log_p, axis=1)))
    state.U[worst] = 0.0
    state.U[worst, k] = 1.0


def floor_weights(sizes: FloatArray, total: float) -> FloatArray:
    """Return rho (K,) that maximises sum_k sizes_k log rho_k subject to rho_k >= `SMALLEST_WEIGHT`."""
    rho = np.asarray(sizes / total, dtype=np.float64)
    low = rho < SMALLEST_WEIGHT
    while True:
        rest = 1.0 - SMALLEST_WEIGHT * np.count_nonzero(low)
        floored = np.where(low, SMALLEST_WEIGHT, rho * rest / rho[~low].sum())
        lower = floored < SMALLEST_WEIGHT
        if not np.any(lower):
            return floored
        low |= lower


def nearly_empty(sizes: FloatArray, n: int) -> NDArray[np.bool_]:
    """Return the mask (K,) of intents with a size below 0.5 or below n / 1000.

    The first threshold is below 1 because the responsibilities of an intent with one unit sum to slightly less than 1.
    """
    return np.asarray(sizes < max(0.5, 1e-3 * n))


def report_iterations(progress: Progress | None, start: int, n_starts: int, max_iter: int) -> Callback | None:
    """Return a callback that reports each iteration of EM from initialisation `start` to `progress`."""
    if progress is None:
        return None
    name = f"initialisation {start + 1} of {n_starts}: " if n_starts > 1 else ""

    def report(entry: Iteration) -> None:
        change = "" if math.isnan(entry.change) else f", change {entry.change:.1e}"
        # With `refine`, the number of iterations may exceed max_iter.
        total = max(max_iter, entry.iteration)
        progress(entry.iteration, total, f"{name}log-likelihood {entry.log_likelihood:.6f}{change}")

    return report


# Largest difference of the logits of two mixture weights: no weight becomes less than about 1e-8.
_LARGEST_LOGIT = 18.0
# Tolerance on the gradient of the mean objective, in variables in which features have size 1.
_GTOL = 1e-7


class ExpectedLikelihood:
    """Negative penalised expected log-likelihood of an M-step with shared rewards, per demonstration.

    The argument is the vector of `Pooling.pack` for the rewards times `scale` (d,). Responsibilities are U (G, K).
    """

    batched = False

    def __init__(self, problem: FitProblem, U: FloatArray, pooling: Pooling, scale: FloatArray) -> None:
        # A size of 0 would make the mean over demonstrations undefined.
        U = np.maximum(U, 1e-300)
        self.problem, self.pooling, self.scale, self.K = problem, pooling, scale, U.shape[1]
        counts = problem.units.broadcast(U).sum(axis=0)
        self.n, self._rho = counts.sum(), counts / counts.sum()
        self._objective: Any = problem.objective(U)

    def evaluate(self, points: FloatArray, which: IndexArray) -> tuple[FloatArray, FloatArray]:
        """Return values (1,) and gradients (1, p); the value is inf if a partition function diverges."""
        del which
        thetas = self.pooling.unpack(points[0], self.K) / self.scale
        try:
            loss, derivative = self._objective.evaluate(thetas, np.arange(self.K))
        except (DivergentPartition, NumericalError):
            loss = np.array([np.inf])
        if not np.all(np.isfinite(loss)):
            return np.array([np.inf]), np.zeros_like(points)
        value = float(self._rho @ loss) + self.problem.penalty(thetas) / self.n
        by_theta = self._rho[:, None] * derivative + self.problem.penalty_gradient(thetas) / self.n
        return np.array([value]), self.pooling.sum_gradients(by_theta / self.scale)[None]


def fit_pooled(
    problem: FitProblem, U: FloatArray, thetas: FloatArray, pooling: Pooling, max_evaluations: int
) -> tuple[FloatArray, int]:
    """Return rewards (K, d) with shared parts, which raise the expected log-likelihood for responsibilities U (G, K).

    The second result is the number of evaluations. The search begins at `thetas` (K, d), which have equal shared parts.
    """
    scale, box = scale_of(problem, thetas.shape[1]), problem.box(thetas.shape[1])
    bounds = Box(*(pooling.pack(np.tile(side * scale, (len(thetas), 1))) for side in (box.lower, box.upper)))
    objective = ExpectedLikelihood(problem, U, pooling, scale)
    start = pooling.pack(thetas * scale)
    (result,) = minimise_lbfgs(objective, start[None], bounds, _GTOL, max_evaluations)
    return np.asarray(box.clip(pooling.unpack(result.theta, len(thetas)) / scale)), result.n_evaluations


def fit_pooled_clusters(problem: FitProblem, U: FloatArray, pooling: Pooling) -> FloatArray:
    """Return maximum likelihood rewards (K, d) of clusters U (G, K) with shared parts, from a fit of one intent."""
    limit = int(problem.initial_evaluations or _FIRST_EVALUATIONS)
    pooled = problem.moments(np.ones((len(U), 1)))
    theta = problem.m_step(pooled, None, np.arange(1), limit).thetas
    return fit_pooled(problem, U, np.repeat(theta, U.shape[1], axis=0), pooling, limit)[0]


def scale_of(problem: FitProblem, d: int) -> FloatArray:
    """Return the scale (d,) of searches, the square root of the approximate curvature per demonstration.

    The curvature is the mean square of the points that a warm start clusters, plus that of the ridge penalty.
    """
    points, ridge = problem.features(), problem.penalty_gradient(np.ones((1, d)))[0] / problem.units.counts.sum()
    size = np.sqrt(np.mean(points**2, axis=0) + ridge) if points.shape[1] == d else np.zeros(d)
    return np.where(size > 0.0, size, 1.0)


class MarginalLikelihood:
    """Negative penalised log-likelihood of a mixture per unit, as a function of one vector.

    The vector contains the logits (K, p) of the mixture weights without those of the first intent, which are 0, and the
    rewards of all intents times `scale` (d,), in the order of `Pooling.pack`. Without covariates, p = 1.
    """

    batched = False

    def __init__(self, problem: FitProblem, n_intents: int, scale: FloatArray, pooling: Pooling | None = None) -> None:
        self.problem, self.K, self.scale = problem, n_intents, scale
        self.pooling = Pooling(np.zeros(scale.size, dtype=bool)) if pooling is None else pooling
        self.n = len(problem.units)
        self.design = problem.weight_design
        self.p = 1 if self.design is None else int(self.design.X.shape[1])
        self._U = problem.allocate(n_intents)
        self._objective: Any = problem.objective

    def pack(self, logits: FloatArray, thetas: FloatArray) -> FloatArray:
        """Return the vector of logits (K, p) and rewards (K, d)."""
        return np.concatenate([logits[1:].ravel(), self.pooling.pack(thetas * self.scale)])

    def unpack(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the logits (K, p) and rewards (K, d) of a vector."""
        n = (self.K - 1) * self.p
        logits = np.concatenate([np.zeros(self.p), x[:n]]).reshape(self.K, self.p)
        return logits, self.pooling.unpack(x[n:], self.K) / self.scale

    def box(self, box: Box) -> Box:
        """Return the bounds on the vector, given the bounds on the rewards of one intent."""
        logits = np.full((self.K - 1) * self.p, _LARGEST_LOGIT)
        sides = (np.tile(bound * self.scale, (self.K, 1)) for bound in (box.lower, box.upper))
        lower, upper = (self.pooling.pack(side) for side in sides)
        return Box(np.concatenate([-logits, lower]), np.concatenate([logits, upper]))

    def evaluate(self, points: FloatArray, which: IndexArray) -> tuple[FloatArray, FloatArray]:
        """Return values (1,) and gradients (1, p); the value is inf if a partition function diverges."""
        del which
        logits, thetas = self.unpack(points[0])
        rho = np.asarray(softmax(logits[:, 0])) if self.design is None else self.design.weights(logits)
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
        if self.design is None:
            by_logit = self.differentiate_logits(e_step.sizes, rho)
        else:
            value -= self.design.penalty(logits)
            penalty = self.design.penalty_curvature(self.K) @ logits.ravel()
            by_logit = ((self._U - rho).T @ self.design.X - penalty.reshape(self.K, self.p))[1:].ravel()
        gradient = np.concatenate([by_logit, self.pooling.sum_gradients(by_theta / self.scale)])
        return np.array([-value / self.n]), -gradient[None] / self.n

    def differentiate_logits(self, sizes: FloatArray, rho: FloatArray) -> FloatArray:
        """Return the derivatives (K - 1,) of the log-likelihood by the logits, given sums of responsibilities (K,)."""
        return np.asarray((sizes - self.n * rho)[1:])


def describe_missing_gradients(problem: FitProblem, n_intents: int) -> str:
    """Return the name of the data or model if it has no gradients of the marginal likelihood, otherwise ""."""
    U = np.full((len(problem.units), n_intents), 1.0 / n_intents)
    if problem.demos is None or problem.regulariser is None or problem.objective(U) is None:
        return "a stream" if problem.demos is None else type(problem.model).__name__
    return ""


def check_gradients(problem: FitProblem, n_intents: int, parameter: str, value: object) -> None:
    """Raise an error for a parameter unless the model of a problem has gradients."""
    if what := describe_missing_gradients(problem, n_intents):
        rule = f"must be {'False' if value is True else 'None'} for {what}, whose likelihood has no gradient"
        raise InvalidParameter.of(parameter, value, rule)


def maximise_marginal(
    problem: FitProblem,
    logits: FloatArray,
    thetas: FloatArray,
    max_evaluations: int,
    pooling: Pooling | None = None,
) -> tuple[FloatArray, FloatArray, int]:
    """Return logits and rewards with a higher penalised likelihood, and the number of evaluations per intent."""
    K, d = thetas.shape
    objective = MarginalLikelihood(problem, K, scale_of(problem, d), pooling)
    box = objective.box(problem.box(d))
    (result,) = minimise_lbfgs(objective, objective.pack(logits, thetas)[None], box, _GTOL, max_evaluations)
    new_logits, new_thetas = objective.unpack(result.theta)
    return new_logits, np.asarray(problem.box(d).clip(new_thetas)), result.n_evaluations
