"""Gaussian posteriors of rewards, in coordinates u in which the prior is N(0, I) (normal scores).

Expectations are computed with a cubature rule of degree 3 with 2 d + 1 nodes along the columns a_j of A = R Q, where Q
is orthogonal,

    E f = f(m) + sum_j (f(m + c a_j) - 2 f(m) + f(m - c a_j)) / (2 c^2),  u ~ N(m, R R').

Up to 16 rewards, Q = I and c^2 = 3, which is also exact for the fourth powers of coordinates (ADR 0011). With more
rewards, c^2 = d: the weights are nonnegative and the nodes are as far from the mean as samples are; Q is a cosine
transform, because at this distance single rewards would be extreme (ADR 0040). The nodes also yield the mean gradient
and curvature of a Newton step towards the optimal Gaussian.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dct
from scipy.special import ndtr, ndtri

from limiirl._typing import FloatArray, IndexArray
from limiirl.errors import DivergentPartition, InvalidParameter, NumericalError
from limiirl.irl import (
    Box,
    FitProblem,
    evaluate_separately,
    minimise_lbfgs,
)

# Minimum prior mass between the bounds; smaller differences of the normal distribution function are inaccurate.
_LEAST_MASS = 1e-9


class RewardPrior:
    """Independent rewards N(0, scale^2), truncated to a box, and their map to normal scores u ~ N(0, I)."""

    def __init__(self, box: Box, scale: float) -> None:
        self.box, self.scale = box, scale
        self.free = np.isneginf(box.lower) & np.isposinf(box.upper)
        low, high = box.lower / scale, box.upper / scale
        self._below, self._above = ndtr(low), ndtr(-high)
        # Differences are computed in the nearer tail, where they are accurate.
        self._mass = np.where(low > 0.0, ndtr(-low) - self._above, ndtr(high) - self._below)
        if np.any(self._mass < _LEAST_MASS):
            j = int(np.argmin(self._mass))
            message = (
                f"prior_scale={scale:g} is too small: the interval between the bounds of parameter {j} has no prior "
                "mass. Increase prior_scale."
            )
            raise InvalidParameter(message, parameter="prior_scale", value=scale, index=j)

    def theta(self, u: FloatArray) -> FloatArray:
        """Return the rewards (..., d) for normal scores (..., d)."""
        tail = np.where(u <= 0.0, self._below, self._above) + ndtr(-np.abs(u)) * self._mass
        bounded = np.where(u <= 0.0, 1.0, -1.0) * ndtri(tail) * self.scale
        return np.asarray(np.where(self.free, self.scale * u, self.box.clip(bounded)))

    def score(self, theta: FloatArray) -> FloatArray:
        """Return normal scores (..., d) of rewards (..., d) within the bounds; infinite on a bound."""
        at = theta / self.scale
        # From the nearer bound, where differences are accurate.
        below, above = (ndtr(at) - self._below) / self._mass, (ndtr(-at) - self._above) / self._mass
        bounded = np.where(below < above, ndtri(np.maximum(below, 0.0)), -ndtri(np.maximum(above, 0.0)))
        return np.asarray(np.where(self.free, at, bounded))

    def derivative(self, u: FloatArray) -> FloatArray:
        """Return d theta / d u (..., d)."""
        at = self.theta(u) / self.scale
        with np.errstate(over="ignore"):  # values of unbounded rewards are replaced below
            bounded = self.scale * self._mass * np.exp(0.5 * (at**2 - u**2))
        return np.asarray(np.where(self.free, self.scale, bounded))


Loss = Callable[[FloatArray, IndexArray], tuple[FloatArray, FloatArray]]
# Reward vectors per evaluation; and the number of states and transitions of larger blocks. Blocks are padded if
# kernels are compiled per number of reward vectors, as those of `FinitePathSums`.
_COLUMNS, _LARGE = 16, 1_000_000
# Largest absolute value of a normal score; the score of a bound is infinite.
_FARTHEST = 6.0
# Step of central differences relative to the prior scale.
_MOVE = 1e-5


def loss(problem: FitProblem, U: FloatArray, scale: float) -> Loss:
    """Return the loss -sum_i u_ik log p(i | theta) as a function of thetas (J, d) and columns k (J,).

    The function returns values (J,), inf if not finite, and gradients (J, d). The model's ridge is excluded. Columns of
    U (G, K) must not be all zero. `scale` sets the step of central differences for models without gradients.
    """
    counts = problem.units.counts @ U
    objective = problem.objective(U)
    if objective is not None:
        return _sum_loss(problem, objective.evaluate, counts)
    return lambda thetas, which: _by_differences(problem, U, thetas, which, _MOVE * scale)


def check_model(problem: FitProblem) -> None:
    """Raise for a model without a Gaussian posterior."""
    if problem.up_to_scale:
        name = type(problem.model).__name__
        rule = f"must not be {name}, which identifies rewards only up to scale and has no Gaussian posterior"
        raise InvalidParameter.of("irl", problem.model, rule, remedy="Use IntentMixture.")


def blocks(problem: FitProblem, n: int) -> list[IndexArray]:
    """Return the indices 0 to n - 1 in blocks; if kernels are compiled per block size, the last block is padded."""
    if problem.compiles_per_batch:
        size, padded = _COLUMNS, -(-n // _COLUMNS) * _COLUMNS
    else:
        size, padded = max(_COLUMNS, _LARGE // max(1, problem.mdp.n_states + problem.mdp.n_edges)), n
    columns = np.minimum(np.arange(padded), n - 1)
    return [columns[lo : lo + size] for lo in range(0, padded, size)]


def _sum_loss(problem: FitProblem, evaluate: Loss, counts: FloatArray) -> Loss:
    """Return the loss as a sum over demonstrations instead of a mean, evaluated in blocks."""

    def total(thetas: FloatArray, which: IndexArray) -> tuple[FloatArray, FloatArray]:
        n = len(which)
        parts = [evaluate(thetas[block], which[block]) for block in _blocks_of_columns(problem, which)]
        values, gradients = (np.concatenate([part[i] for part in parts])[:n] for i in (0, 1))
        return values * counts[which], gradients * counts[which, None]

    return total


def _blocks_of_columns(problem: FitProblem, which: IndexArray) -> list[IndexArray]:
    """Return blocks of indices of columns `which` (J,); many reward vectors of a column have blocks of their own.

    They are similar, and solvers start from the solution for the first reward vector of a block.
    """
    first = np.concatenate([[0], np.flatnonzero(np.diff(which)) + 1, [len(which)]])
    if problem.compiles_per_batch or len(which) < _COLUMNS * (len(first) - 1):
        return blocks(problem, len(which))
    return [lo + block for lo, hi in pairwise(first.tolist()) for block in blocks(problem, hi - lo)]


def log_probs(problem: FitProblem, thetas: FloatArray) -> FloatArray:
    """Return log p (G, J) of the units under thetas (J, d); -inf where the partition function is infinite."""
    parts = [_log_probs(problem, thetas[block]) for block in blocks(problem, len(thetas))]
    return np.hstack(parts)[:, : len(thetas)]


def _log_probs(problem: FitProblem, thetas: FloatArray) -> FloatArray:
    try:
        return problem.log_prob(thetas)
    except (DivergentPartition, NumericalError):
        failed = (np.full((len(problem.units), 1), -np.inf),)
        return evaluate_separately(lambda j: (_log_probs(problem, thetas[j]),), len(thetas), failed, axis=1)[0]


def finite_scores(problem: FitProblem, prior: RewardPrior) -> FloatArray:
    """Return initial normal scores (d,): 0 (the prior median), or a feasible point if the loss at 0 is infinite.

    The partition function of paths of unbounded length is infinite for large rewards. If no feasible point is found,
    the result is 0.
    """
    start = np.zeros(prior.box.lower.size)
    if _is_finite(problem, prior.theta(start)):
        return start
    theta = problem.feasible_start()
    if theta is None:
        return start
    scores = np.clip(prior.score(theta), -_FARTHEST, _FARTHEST)
    return scores if _is_finite(problem, prior.theta(scores)) else start


def _is_finite(problem: FitProblem, theta: FloatArray) -> bool:
    pooled = loss(problem, np.ones((len(problem.units), 1)), 1.0)
    return bool(np.isfinite(pooled(theta[None], np.array([0]))[0][0]))


def _by_differences(
    problem: FitProblem, U: FloatArray, thetas: FloatArray, which: IndexArray, move: float
) -> tuple[FloatArray, FloatArray]:
    J, d = thetas.shape
    moved = thetas[:, None, :] + move * np.vstack([np.zeros((1, d)), np.eye(d), -np.eye(d)])
    log_p = log_probs(problem, moved.reshape(-1, d)).reshape(len(U), J, 1 + 2 * d)
    weights = U[:, which, None]
    with np.errstate(invalid="ignore"):  # by convention 0 * -inf = 0; inf - inf is masked below
        values = -np.sum(np.where(weights > 0.0, weights * log_p, 0.0), axis=0)
        gradients = (values[:, 1 : 1 + d] - values[:, 1 + d :]) / (2.0 * move)
    finite = np.all(np.isfinite(values), axis=1)
    return np.where(finite, values[:, 0], np.inf), np.where(finite[:, None], gradients, 0.0)


# Number of rewards up to which nodes are near the mean, along the columns of R.
_FEW = 16
# Lower bound on the posterior precision; the likelihood may not be concave. A posterior is at most twice as wide as the
# prior.
_LEAST_PRECISION = 0.25
# Initial width of a posterior, at which the curvature is measured.
_FIRST_WIDTH = 0.01
# Maximum number of evaluations and gradient tolerance (in u) of the search for the posterior mode.
_PEAK_EVALUATIONS, _PEAK_TOL = 3000, 1.0
# Log-probabilities per block.
_BLOCK = 4_000_000
# Searches end when a step gains less than this many nats.
_GAIN = 1e-4
# Initial radius of the trust region, and its limit while a rejected trial is remembered. It applies to changes in
# log-variance, and to changes in the mean in standard deviations. The radius grows by a factor if the realised gain
# exceeds the first fraction of the predicted gain, and is halved below the second.
_RADIUS, _WIDEN, _GOOD, _POOR = 1.0, 1.5, 0.5, 0.25
# Number of accepted trials after which a rejected trial is forgotten, because it is too far from the point.
_MEMORY = 3
# Limits on the fraction to which a rejected step is shortened.
_FRACTIONS = (0.05, 0.9)


@dataclass(frozen=True, eq=False)
class RewardPosterior:
    """Gaussian posteriors N(mean_k, root_k root_k') of K intents' normal scores."""

    mean: FloatArray
    root: FloatArray

    def __len__(self) -> int:
        return len(self.mean)

    def __getitem__(self, which: NDArray[Any]) -> RewardPosterior:
        return RewardPosterior(self.mean[which], self.root[which])

    @property
    def divergence(self) -> FloatArray:
        """Kullback-Leibler divergence (K,) from the prior N(0, I)."""
        squares = np.sum(self.root**2, axis=(1, 2)) + np.sum(self.mean**2, axis=1)
        return np.asarray(0.5 * (squares - self.mean.shape[1]) - np.linalg.slogdet(self.root)[1])

    @property
    def axes(self) -> FloatArray:
        """The axes (K, d, d) of the cubature nodes, which are the columns of R Q."""
        d = self.mean.shape[1]
        return self.root if d <= _FEW else np.asarray(self.root @ dct(np.eye(d), norm="ortho"))

    @property
    def nodes(self) -> FloatArray:
        """Cubature nodes (K, 2 d + 1, d): the mean, then both directions along each axis."""
        axes = node_distance(self.mean.shape[1]) * np.swapaxes(self.axes, 1, 2)
        offsets = np.concatenate([np.zeros((len(self), 1, self.mean.shape[1])), axes, -axes], axis=1)
        return np.asarray(self.mean[:, None, :] + offsets)

    def combine(self, other: RewardPosterior) -> RewardPosterior:
        """Return the posteriors (K,) given the data of both, which are exact for quadratic log-likelihoods.

        Their precisions are the sums of both precisions, minus the precision I of the prior, which is in both.
        """
        one, two = (np.linalg.inv(part.root @ np.swapaxes(part.root, 1, 2)) for part in (self, other))
        precision = one + two - np.eye(self.mean.shape[1])
        values, vectors = np.linalg.eigh(precision)
        values = np.maximum(values, _LEAST_PRECISION)[:, None, :]
        inverse = (vectors / values) @ np.swapaxes(vectors, 1, 2)
        weighted = one @ self.mean[:, :, None] + two @ other.mean[:, :, None]
        return RewardPosterior((inverse @ weighted)[:, :, 0], (vectors / np.sqrt(values)) @ np.swapaxes(vectors, 1, 2))

    @classmethod
    def concatenate(cls, parts: list[RewardPosterior]) -> RewardPosterior:
        """Concatenate posteriors of several intents."""
        return cls(np.concatenate([part.mean for part in parts]), np.concatenate([part.root for part in parts]))

    @classmethod
    def narrow(cls, mean: FloatArray) -> RewardPosterior:
        """Return narrow posteriors at means (K, d)."""
        return cls(mean, np.tile(_FIRST_WIDTH * np.eye(mean.shape[1]), (len(mean), 1, 1)))


def node_distance(d: int) -> float:
    """Return the distance c of the nodes from the mean, in standard deviations."""
    return math.sqrt(3.0 if d <= _FEW else d)


def node_weights(d: int) -> FloatArray:
    """Return the weights (2 d + 1,) of the nodes, which sum to 1; the first is negative for 3 < d <= 16."""
    square = node_distance(d) ** 2
    return np.concatenate([[1.0 - d / square], np.full(2 * d, 0.5 / square)])


def expected_log_prob(problem: FitProblem, prior: RewardPrior, rewards: RewardPosterior) -> FloatArray:
    """Return E[log p(i | theta_k)] (G, K) over the posterior rewards of each intent."""
    K, d = rewards.mean.shape
    weights, expected = node_weights(d), np.empty((len(problem.units), K))
    at_once = max(1, _BLOCK // (len(expected) * weights.size))
    for lo in range(0, K, at_once):
        nodes = rewards.nodes[lo : lo + at_once]
        log_p = log_probs(problem, prior.theta(nodes).reshape(-1, d)).reshape(len(expected), len(nodes), -1)
        possible = np.all(np.isfinite(log_p), axis=2)
        mean = np.where(possible[:, :, None], log_p, 0.0) @ weights
        expected[:, lo : lo + at_once] = np.where(possible, mean, -np.inf)
    return expected


class _NegativeLogPosterior:
    """Loss plus the prior's u'u / 2, as a function of points u; its minimum is the posterior mode."""

    def __init__(self, loss: Loss, prior: RewardPrior) -> None:
        self.loss, self.prior = loss, prior

    def evaluate(self, u: FloatArray, which: NDArray[np.intp]) -> tuple[FloatArray, FloatArray]:
        """Return values (J,) and gradients (J, d)."""
        values, gradients = self.loss(self.prior.theta(u), which)
        return values + 0.5 * np.sum(u**2, axis=1), gradients * self.prior.derivative(u) + u


def fit_posteriors(loss: Loss, prior: RewardPrior, start: FloatArray, K: int, max_trials: int) -> RewardPosterior:
    """Return the reward posteriors of K intents: L-BFGS from `start` (d,) to each mode, then Newton steps.

    Newton steps alone may diverge if the likelihood is not concave. The loss must be finite at `start`.
    """
    unbounded = Box(np.full(start.size, -np.inf), np.full(start.size, np.inf))
    objective = _NegativeLogPosterior(loss, prior)
    modes = minimise_lbfgs(objective, np.tile(start, (K, 1)), unbounded, _PEAK_TOL, _PEAK_EVALUATIONS)
    return improve(loss, prior, RewardPosterior.narrow(np.array([mode.theta for mode in modes])), max_trials)


@dataclass(frozen=True, eq=False)
class _Point:
    """A posterior with its loss, mean gradient (d,) and mean precision (d, d), prior included."""

    mean: FloatArray
    root: FloatArray
    loss: float
    gradient: FloatArray
    precision: FloatArray


class _Search:
    """Trust-region search for one optimal Gaussian: the best point, the next step and the last rejected trial.

    Steps are along axes (d, d), in which the covariance of the point is I and its mean precision is diagonal. `shift`
    (d,) is the change in the mean along each axis, and `growth` (d,) the change in the log-variance. Both are limited
    per axis, because a wide posterior may reach rewards at which the likelihood falls steeply in a few directions only.
    """

    def __init__(self, point: _Point) -> None:
        self.point, self.radius = point, _RADIUS
        self.rejected: _Point | None = None
        self.failures = self.age = 0
        self.converged = False
        self._aim()

    def _aim(self) -> None:
        """Set the axes, and the step to a Newton step."""
        point = self.point
        values, vectors = np.linalg.eigh(point.root @ point.precision @ point.root)
        self.axes, self.dual = point.root @ vectors, np.linalg.solve(point.root, vectors)
        self.least = _LEAST_PRECISION * np.sum(self.axes**2, axis=0)
        self.slope = self.axes.T @ point.gradient
        # The likelihood may not be concave. The mean moves downhill; the variance has an upper limit.
        self.curvature, self.precision = np.maximum(np.abs(values), self.least), np.maximum(values, self.least)
        self.shift, self.growth = -self.slope / self.curvature, -np.log(self.precision)
        if self.rejected is not None:
            self._avoid(self.rejected)
        self._clip()

    def _clip(self) -> None:
        self.shift = np.clip(self.shift, -self.radius, self.radius)
        self.growth = np.clip(self.growth, -2.0 * self.radius, self.radius)

    def _avoid(self, trial: _Point) -> bool:
        """Shorten the step along axes on which a rejected trial is past the optimum; return whether there are any.

        The optimum is interpolated: linearly in the gradient for the mean, and in the logarithms for the variance.
        """
        log_variance = np.log(np.sum((self.dual.T @ trial.root) ** 2, axis=1))
        precision = np.einsum("ij,ij->j", self.axes, trial.precision @ self.axes)
        narrower = log_variance + np.log(np.maximum(precision, self.least))
        # Only a posterior that becomes wider may reach steep directions.
        growth = np.where(self.growth > 0.0, _interpolate(log_variance, self.growth, -narrower), self.growth)
        moved, slope = self.dual.T @ (trial.mean - self.point.mean), self.axes.T @ trial.gradient
        shift = _interpolate(moved, self.shift, -slope / self.curvature)
        changed = not (np.array_equal(growth, self.growth) and np.array_equal(shift, self.shift))
        self.growth, self.shift = growth, shift
        return changed

    @property
    def predicted_gain(self) -> float:
        """Gain in nats of the step in the quadratic approximation."""
        mean = self.shift * (self.slope + 0.5 * self.curvature * self.shift)
        variance = self.precision * np.expm1(self.growth) - self.growth
        return -float(np.sum(mean) + 0.5 * np.sum(variance))

    def trial(self) -> tuple[FloatArray, FloatArray]:
        """Return the mean and the root of the next trial."""
        covariance = (self.axes * np.exp(self.growth)) @ self.axes.T
        return self.point.mean + self.axes @ self.shift, _symmetric_root(covariance)

    def update(self, trial: _Point) -> None:
        """Accept a trial if the loss decreased, otherwise shorten the step; update the radius."""
        gain, predicted = self.point.loss - trial.loss, self.predicted_gain
        if gain > 0.0:
            self.converged = gain < _GAIN
            if gain > _GOOD * predicted:
                self.radius = min(_WIDEN * self.radius, np.inf if self.rejected is None else _RADIUS)
            elif gain < _POOR * predicted:
                self.radius *= 0.5
            self.point, self.failures, self.age = trial, 0, self.age + 1
            if self.age > _MEMORY:
                self.rejected = None
            self._aim()
            return
        self.failures += 1
        self.radius = min(self.radius, _RADIUS) * (1.0 if self.failures == 1 else 0.5)
        if not np.isfinite(trial.loss):
            self.radius *= 0.5
        else:
            self.rejected, self.age = trial, 0
            if not self._avoid(trial):
                self.shift, self.growth = 0.5 * self.shift, 0.5 * self.growth
        self._clip()


def _interpolate(moved: FloatArray, step: FloatArray, further: FloatArray) -> FloatArray:
    """Return a step, shortened where a trial moved in its direction and the next step from there would be backwards.

    `further` is the next step from the trial; the optimum is where the step is 0.
    """
    past = (moved * step > 0.0) & (further * step < 0.0)
    fraction = step / np.where(past, step - further, 1.0)
    optimum = moved * np.clip(fraction, *_FRACTIONS)
    return np.where(past & (np.abs(optimum) < np.abs(step)), optimum, step)


def improve(loss: Loss, prior: RewardPrior, rewards: RewardPosterior, max_trials: int) -> RewardPosterior:
    """Increase sum_i u_ik E[log p_ik] - KL_k of each posterior k with at most `max_trials` trials of Newton steps.

    A posterior with an infinite loss is replaced by a narrow one.
    """
    points = _measure(loss, prior, rewards, np.arange(len(rewards)))
    infinite = np.array([k for k, point in enumerate(points) if np.isinf(point.loss)], dtype=np.intp)
    if infinite.size:
        narrow = _measure(loss, prior, RewardPosterior.narrow(rewards.mean[infinite]), infinite)
        for k, point in zip(infinite.tolist(), narrow, strict=True):
            points[k] = point
    searches = [_Search(point) for point in points]
    for _ in range(max_trials):
        active = [k for k, search in enumerate(searches) if not search.converged and search.predicted_gain > _GAIN]
        if not active:
            break
        means, roots = zip(*(searches[k].trial() for k in active), strict=True)
        trials = _measure(loss, prior, RewardPosterior(np.array(means), np.array(roots)), np.array(active))
        for k, trial in zip(active, trials, strict=True):
            searches[k].update(trial)
    best = [search.point for search in searches]
    return RewardPosterior(np.array([point.mean for point in best]), np.array([point.root for point in best]))


def _measure(loss: Loss, prior: RewardPrior, rewards: RewardPosterior, which: NDArray[np.intp]) -> list[_Point]:
    """Return the losses of posteriors, -sum_i u_i E log p_i + divergence, and their derivatives."""
    K, d = rewards.mean.shape
    u, weights = rewards.nodes, node_weights(d)
    values, gradients = loss(prior.theta(u).reshape(-1, d), np.repeat(which, 2 * d + 1))
    values, gradients = values.reshape(K, -1), gradients.reshape(K, -1, d) * prior.derivative(u)
    finite = np.all(np.isfinite(values), axis=1)
    losses = np.where(finite, np.where(finite[:, None], values, 0.0) @ weights + rewards.divergence, np.inf)
    mean_gradients = np.einsum("knd,n->kd", gradients, weights) + rewards.mean
    # Stein's lemma: E[u_j df/du] is the mean curvature times axis j.
    along = np.swapaxes(gradients[:, 1 : 1 + d] - gradients[:, 1 + d :], 1, 2) / (2.0 * node_distance(d))
    curvature = along @ np.linalg.inv(rewards.axes)
    precision = np.eye(d) + 0.5 * (curvature + np.swapaxes(curvature, 1, 2))
    points = zip(rewards.mean, rewards.root, losses.tolist(), mean_gradients, precision, strict=True)
    return [_Point(*point) for point in points]


def _symmetric_root(matrix: FloatArray) -> FloatArray:
    """Return the symmetric square root (d, d) of a positive definite matrix."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.sqrt(values)) @ vectors.T)
