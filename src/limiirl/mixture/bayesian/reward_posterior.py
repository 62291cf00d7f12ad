"""Gaussian posteriors of rewards in the prior's normal scores u, with expectations along the axes of the root R.

    E f = f(m) + sum_j (f(m + sqrt(3) r_j) - 2 f(m) + f(m - sqrt(3) r_j)) / 6,  u ~ N(m, R R')

Exact for polynomials of degree 3; its errors elsewhere are measured in ADR 0011. The same 2 d + 1 nodes give the mean
gradient and curvature, from which a Newton step towards the best Gaussian follows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from limiirl._typing import FloatArray, IndexArray
from limiirl.errors import DivergentPartition, InvalidParameter, NumericalError
from limiirl.irl import (
    Box,
    CausalLikelihood,
    CausalProblem,
    FinitePathSums,
    FitProblem,
    MaxEntProblem,
    PathLikelihood,
    SigmaProblem,
    minimise_lbfgs,
)
from limiirl.irl.causal import likelihood as choice_likelihood
from limiirl.irl.maxent import likelihood

# Bounds with less of the prior between them are a mistake, and beyond what differences of Phi can tell.
_LEAST_MASS = 1e-9


class RewardPrior:
    """Independent rewards N(0, scale^2), restricted to a box.

    Parameters
    ----------
    box : Box
        Bounds (d,) of theta.
    scale : float

    Examples
    --------
    >>> prior = RewardPrior(Box(np.array([-10.0, -np.inf]), np.array([0.0, np.inf])), 10.0)
    >>> prior.theta(np.array([[0.0, 0.0], [-9.0, 1.0]])).round(3)  # a median, then a bound and a standard deviation
    array([[ -4.418,   0.   ],
           [-10.   ,  10.   ]])
    """

    def __init__(self, box: Box, scale: float) -> None:
        self.box, self.scale = box, scale
        self.free = np.isneginf(box.lower) & np.isposinf(box.upper)
        low, high = box.lower / scale, box.upper / scale
        self._below, self._above = ndtr(low), ndtr(-high)
        # Of two ends on the same side of 0, the difference is taken in the tail where digits are left.
        self._mass = np.where(low > 0.0, ndtr(-low) - self._above, ndtr(high) - self._below)
        if np.any(self._mass < _LEAST_MASS):
            j = int(np.argmin(self._mass))
            raise InvalidParameter(
                f"prior_scale={scale:g} leaves next to no probability between the bounds {box.lower[j]:g} and "
                f"{box.upper[j]:g} of parameter {j}. Raise prior_scale, or move the bounds towards 0.",
                parameter="prior_scale",
                value=scale,
                index=j,
            )

    def theta(self, u: FloatArray) -> FloatArray:
        """Return rewards (..., d) of normal scores (..., d)."""
        tail = np.where(u <= 0.0, self._below, self._above) + ndtr(-np.abs(u)) * self._mass
        bounded = np.where(u <= 0.0, 1.0, -1.0) * ndtri(tail) * self.scale
        return np.asarray(np.where(self.free, self.scale * u, self.box.clip(bounded)))

    def score(self, theta: FloatArray) -> FloatArray:
        """Return normal scores (..., d) of rewards (..., d) within the bounds; infinite on a bound."""
        at = theta / self.scale
        # From the nearer end, where digits are left.
        below, above = (ndtr(at) - self._below) / self._mass, (ndtr(-at) - self._above) / self._mass
        bounded = np.where(below < above, ndtri(np.maximum(below, 0.0)), -ndtri(np.maximum(above, 0.0)))
        return np.asarray(np.where(self.free, at, bounded))

    def slope(self, u: FloatArray) -> FloatArray:
        """Return d theta / d u (..., d)."""
        at = self.theta(u) / self.scale
        with np.errstate(over="ignore"):  # of rewards without bounds, which may be any
            bounded = self.scale * self._mass * np.exp(0.5 * (at**2 - u**2))
        return np.asarray(np.where(self.free, self.scale, bounded))


Loss = Callable[[FloatArray, IndexArray], tuple[FloatArray, FloatArray]]
# Columns of thetas at a time. MaxEnt's finite engine compiles its loops for each number of columns that it meets, so
# that it is always given as many: the last ones are repeated.
_COLUMNS = 16
# Normal scores that stand for those of a bound.
_FARTHEST = 6.0
# How far a parameter moves in a central difference, relative to the scale of its prior.
_MOVE = 1e-5


def loss(prepared: FitProblem, U: FloatArray, scale: float) -> Loss:
    """Return a function of thetas (J, d) and columns `which` (J,): values (J,) and gradients (J, d).

    Its value is -sum_i u_ik log p(unit i | theta) up to a constant, k being the column; inf where that is not finite.
    A ridge of the model is left out: the prior takes its place.

    Parameters
    ----------
    U : (G, K)
        Weights of the units; no column is all 0.
    scale : float
        The scale of parameters, by which others than our own models are differentiated.

    Examples
    --------
    >>> from limiirl import MDP, Demonstrations, MaxEnt
    >>> from limiirl.irl.problem import make_problem
    >>> mdp = MDP.from_edges([0], [1], p0=[1, 0], state_features=[[0], [1]])
    >>> ready = make_problem(MaxEnt(max_length=2), mdp, Demonstrations.from_lists([[0], [0, 1], [0, 1]]))
    >>> loss(ready, np.ones((3, 1)), 10.0)(np.zeros((1, 1)), np.array([0]))[1]  # three halves expected, two seen
    array([[-0.5]])
    """
    counts = prepared.units.counts @ U
    if isinstance(prepared, MaxEntProblem) and prepared.observed is not None:
        demonstrated = prepared.observed.moments(prepared.units.broadcast(U))
        path = PathLikelihood(prepared.path_sums, prepared.observed, demonstrated, np.zeros(U.shape[1]))
        return _scaled(prepared, path.evaluate, counts)
    if isinstance(prepared, CausalProblem):
        totals = prepared.events.total(U)
        choice = CausalLikelihood(prepared.engine, prepared.events, totals, counts, np.zeros(U.shape[1]))
        return _scaled(prepared, choice.evaluate, counts)
    return lambda thetas, which: _by_differences(prepared, U, thetas, which, _MOVE * scale)


def check_model(prepared: FitProblem) -> None:
    """Refuse a model whose parameters have no Gaussian posterior."""
    if isinstance(prepared, SigmaProblem):
        raise InvalidParameter(
            "A Bayesian mixture needs a likelihood with a peak in every direction of its rewards; SigmaGIRL's depends "
            "on their proportions alone. Use IntentMixture, or MaxEnt, MaxCausalEnt or MLIRL.",
            parameter="irl",
            value=prepared.model,
        )


def blocks(prepared: FitProblem, n: int) -> list[IndexArray]:
    """Return the columns 0 to n - 1 in blocks; what comes after n of them is padding."""
    compiled = isinstance(prepared, MaxEntProblem) and isinstance(prepared.path_sums, FinitePathSums)
    padded = -(-n // _COLUMNS) * _COLUMNS if compiled else n
    columns = np.minimum(np.arange(padded), n - 1)
    return [columns[lo : lo + _COLUMNS] for lo in range(0, padded, _COLUMNS)]


def _scaled(prepared: FitProblem, evaluate: Loss, counts: FloatArray) -> Loss:
    """Return a mean over demonstrations as a sum, evaluated so many columns at a time."""

    def total(thetas: FloatArray, which: IndexArray) -> tuple[FloatArray, FloatArray]:
        n = len(which)
        parts = [evaluate(thetas[some], which[some]) for some in blocks(prepared, n)]
        values, gradients = (np.concatenate([part[i] for part in parts])[:n] for i in (0, 1))
        return values * counts[which], gradients * counts[which, None]

    return total


def log_probs(prepared: FitProblem, thetas: FloatArray) -> FloatArray:
    """Return the log-probability (G, J) of each unit under each of thetas (J, d); -inf where sums are infinite."""
    parts = [_log_probs(prepared, thetas[some]) for some in blocks(prepared, len(thetas))]
    return np.hstack(parts)[:, : len(thetas)]


def _log_probs(prepared: FitProblem, thetas: FloatArray) -> FloatArray:
    try:
        return prepared.log_prob(thetas)
    except (DivergentPartition, NumericalError):
        if len(thetas) == 1:
            return np.full((len(prepared.units), 1), -np.inf)
        return np.hstack([_log_probs(prepared, theta[None]) for theta in thetas])


def finite_scores(prepared: FitProblem, prior: RewardPrior) -> FloatArray:
    """Return normal scores (d,) at which log-probabilities are finite: those of the prior's median, if they are.

    Sums over walks of any length are not, where rewards are too high; the model then knows where to begin.
    """
    start = np.zeros(prior.box.lower.size)
    if _is_finite(prepared, prior.theta(start)):
        return start
    if isinstance(prepared, MaxEntProblem):
        theta = likelihood.feasible_start(prepared.path_sums, prior.box)
    elif isinstance(prepared, CausalProblem):
        theta = choice_likelihood.feasible_start(prepared.engine, prepared.events, prior.box)
    else:
        return start
    # A bound is infinitely far away; this is near it, and where it has been seen to do.
    found = np.clip(prior.score(theta), -_FARTHEST, _FARTHEST)
    return found if _is_finite(prepared, prior.theta(found)) else start


def _is_finite(prepared: FitProblem, theta: FloatArray) -> bool:
    everybody = loss(prepared, np.ones((len(prepared.units), 1)), 1.0)
    return bool(np.isfinite(everybody(theta[None], np.array([0]))[0][0]))


def _by_differences(
    prepared: FitProblem, U: FloatArray, thetas: FloatArray, which: IndexArray, move: float
) -> tuple[FloatArray, FloatArray]:
    J, d = thetas.shape
    moved = thetas[:, None, :] + move * np.vstack([np.zeros((1, d)), np.eye(d), -np.eye(d)])
    log_p = log_probs(prepared, moved.reshape(-1, d)).reshape(len(U), J, 1 + 2 * d)
    weights = U[:, which, None]
    with np.errstate(invalid="ignore"):  # what is impossible and nobody's counts for nothing
        values = -np.sum(np.where(weights > 0.0, weights * log_p, 0.0), axis=0)
    with np.errstate(invalid="ignore"):
        gradients = (values[:, 1 : 1 + d] - values[:, 1 + d :]) / (2.0 * move)
    finite = np.all(np.isfinite(values), axis=1)
    return np.where(finite, values[:, 0], np.inf), np.where(finite[:, None], gradients, 0.0)


_REACH = np.sqrt(3.0)
# A posterior is at most twice as wide as the prior in any direction: curvatures of a likelihood that is not concave
# may be anything.
_LEAST_PRECISION = 0.25
# The first guess at a posterior's width, from which curvature is measured.
_FIRST_WIDTH = 0.01
# Cap on evaluations of the search for a peak, and the gradient in u at which it is near enough.
_PEAK_EVALUATIONS, _PEAK_TOL = 200, 0.1
# Numbers of log-probabilities at a time.
_BLOCK = 4_000_000
# Steps are halved at most this often in a row.
_HALVINGS = 12
# A posterior is found when a step gains less than this many nats.
_GAIN = 1e-4


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
        """Kullback-Leibler divergence (K,) from the prior N(0, I): what an intent costs."""
        squares = np.sum(self.root**2, axis=(1, 2)) + np.sum(self.mean**2, axis=1)
        return np.asarray(0.5 * (squares - self.mean.shape[1]) - np.linalg.slogdet(self.root)[1])

    @property
    def nodes(self) -> FloatArray:
        """The points (K, 2 d + 1, d) at which functions are looked at: the mean, then both ways along each axis."""
        axes = _REACH * np.swapaxes(self.root, 1, 2)
        ways = np.concatenate([np.zeros((len(self), 1, self.mean.shape[1])), axes, -axes], axis=1)
        return np.asarray(self.mean[:, None, :] + ways)

    @classmethod
    def join(cls, parts: list[RewardPosterior]) -> RewardPosterior:
        """Return the posteriors of several one after the other."""
        return cls(np.concatenate([part.mean for part in parts]), np.concatenate([part.root for part in parts]))

    @classmethod
    def narrow(cls, mean: FloatArray) -> RewardPosterior:
        """Return posteriors about means (K, d) that are all but points."""
        return cls(mean, np.tile(_FIRST_WIDTH * np.eye(mean.shape[1]), (len(mean), 1, 1)))


def node_weights(d: int) -> FloatArray:
    """Return the weights (2 d + 1,) of the nodes; that of the mean is negative for d > 3, and they sum to 1."""
    return np.concatenate([[1.0 - d / 3.0], np.full(2 * d, 1.0 / 6.0)])


def expected_log_prob(prepared: FitProblem, prior: RewardPrior, rewards: RewardPosterior) -> FloatArray:
    """Return (G, K): the mean of each unit's log-probability over the posterior of each intent's rewards."""
    K, d = rewards.mean.shape
    weights, found = node_weights(d), np.empty((len(prepared.units), K))
    at_once = max(1, _BLOCK // (len(found) * weights.size))
    for lo in range(0, K, at_once):
        nodes = rewards.nodes[lo : lo + at_once]
        log_p = log_probs(prepared, prior.theta(nodes).reshape(-1, d)).reshape(len(found), len(nodes), -1)
        possible = np.all(np.isfinite(log_p), axis=2)
        mean = np.where(possible[:, :, None], log_p, 0.0) @ weights
        found[:, lo : lo + at_once] = np.where(possible, mean, -np.inf)
    return found


class _Peak:
    """The loss of points u instead of posteriors, with the prior's: its minimum is the most probable reward."""

    def __init__(self, loss: Loss, prior: RewardPrior) -> None:
        self.loss, self.prior = loss, prior

    def evaluate(self, u: FloatArray, which: NDArray[np.intp]) -> tuple[FloatArray, FloatArray]:
        """Return values (J,) and gradients (J, d)."""
        values, gradients = self.loss(self.prior.theta(u), which)
        return values + 0.5 * np.sum(u**2, axis=1), gradients * self.prior.slope(u) + u


def fresh(loss: Loss, prior: RewardPrior, start: FloatArray, K: int, max_steps: int) -> RewardPosterior:
    """Return posteriors of columns 0 to K - 1 of a loss that begin at their peaks, whatever was known before.

    Newton steps from far away would lose their way in likelihoods that are not concave.

    Parameters
    ----------
    start : (d,)
        Normal scores at which the search for peaks begins, and where the loss is finite.
    """
    anywhere = Box(np.full(start.size, -np.inf), np.full(start.size, np.inf))
    found = minimise_lbfgs(_Peak(loss, prior), np.tile(start, (K, 1)), anywhere, _PEAK_TOL, _PEAK_EVALUATIONS)
    return improve(loss, prior, RewardPosterior.narrow(np.array([result.theta for result in found])), max_steps)


@dataclass
class _Point:
    """Posteriors with their losses (K,), mean gradients (K, d) and mean precisions (K, d, d), the prior included."""

    rewards: RewardPosterior
    loss: FloatArray
    gradient: FloatArray
    precision: FloatArray

    def replace(self, which: NDArray[np.intp], other: _Point) -> None:
        self.rewards.mean[which], self.rewards.root[which] = other.rewards.mean, other.rewards.root
        self.loss[which], self.gradient[which], self.precision[which] = other.loss, other.gradient, other.precision


def improve(loss: Loss, prior: RewardPrior, rewards: RewardPosterior, max_steps: int) -> RewardPosterior:
    """Return posteriors that raise sum_i u_ik E log p_ik - divergence_k, or keep them, for each column k of the loss.

    Parameters
    ----------
    max_steps : int
        Most Newton steps; each is halved until it gains. A posterior that reaches where the loss is infinite begins
        anew about its mean, all but a point.

    Examples
    --------
    >>> from limiirl.irl.optim import Box
    >>> def quadratic(thetas, which):  # three observations of mean 1 and variance 1
    ...     return 1.5 * np.sum((thetas - 1.0) ** 2, axis=1), 3.0 * (thetas - 1.0)
    >>> prior = RewardPrior(Box(np.array([-np.inf]), np.array([np.inf])), 1.0)
    >>> found = improve(quadratic, prior, RewardPosterior.narrow(np.zeros((1, 1))), 5)
    >>> round(found.mean.item(), 9), round(found.root.item() ** 2, 9)  # of precision 3 + 1
    (0.75, 0.25)
    """
    everyone = np.arange(len(rewards))
    here = _measure(loss, prior, RewardPosterior(rewards.mean.copy(), rewards.root.copy()), everyone)
    lost = np.flatnonzero(np.isinf(here.loss))
    if lost.size:
        here.replace(lost, _measure(loss, prior, RewardPosterior.narrow(rewards.mean[lost]), lost))
    active, sizes = everyone, np.ones(len(rewards))
    for _ in range(max_steps):
        active = active[_promise(here)[active] > _GAIN]
        if not active.size:
            break
        before = here.loss[active].copy()
        _step(loss, prior, here, active, sizes)
        active = active[before > here.loss[active] + _GAIN]
    return here.rewards


def _promise(here: _Point) -> FloatArray:
    """Return (K,) the nats that a Newton step gains if the loss is as it looks from here."""
    step = np.linalg.solve(here.precision, here.gradient[:, :, None])[:, :, 0]
    ratio = here.precision @ here.rewards.root @ here.rewards.root
    wider = np.trace(ratio, axis1=1, axis2=2) - here.gradient.shape[1] - np.linalg.slogdet(ratio)[1]
    return np.asarray(0.5 * (np.sum(step * here.gradient, axis=1) + wider))


def _step(loss: Loss, prior: RewardPrior, here: _Point, which: NDArray[np.intp], sizes: FloatArray) -> None:
    """Move the posteriors `which` by a Newton step each, halved until it gains; those that never gain stay.

    `sizes` (K,) are the shares of a whole step to begin with, and become twice those that gained: where one step had to
    be halved, the next has, too.
    """
    for _ in range(_HALVINGS):
        old, size = here.rewards[which], sizes[which]
        step = np.linalg.solve(here.precision[which], here.gradient[which][:, :, None])[:, :, 0]
        covariance = old.root @ old.root
        share = size[:, None, None]
        precision = (1.0 - share) * np.linalg.inv(covariance) + share * here.precision[which]
        trial = _measure(loss, prior, RewardPosterior(old.mean - size[:, None] * step, _inverse_root(precision)), which)
        better = trial.loss < here.loss[which]
        here.replace(
            which[better],
            _Point(trial.rewards[better], trial.loss[better], trial.gradient[better], trial.precision[better]),
        )
        sizes[which] = np.where(better, np.minimum(1.0, 2.0 * size), 0.5 * size)
        which = which[~better]
        if not which.size:
            return


def _measure(loss: Loss, prior: RewardPrior, rewards: RewardPosterior, which: NDArray[np.intp]) -> _Point:
    """Return the loss of posteriors, -sum_i u_i E log p_i + divergence, and its derivatives."""
    K, d = rewards.mean.shape
    u, weights = rewards.nodes, node_weights(d)
    values, gradients = loss(prior.theta(u).reshape(-1, d), np.repeat(which, 2 * d + 1))
    values, slopes = values.reshape(K, -1), gradients.reshape(K, -1, d) * prior.slope(u)
    finite = np.all(np.isfinite(values), axis=1)
    values = np.where(finite[:, None], values, 0.0)
    # The slope of the loss along an axis, E[u_j df/du], is the mean curvature times that axis.
    along = np.swapaxes(slopes[:, 1 : 1 + d] - slopes[:, 1 + d :], 1, 2) / (2.0 * _REACH)
    curvature = along @ np.linalg.inv(rewards.root)
    precision = np.eye(d) + 0.5 * (curvature + np.swapaxes(curvature, 1, 2))
    return _Point(
        rewards,
        np.where(finite, values @ weights + rewards.divergence, np.inf),
        np.einsum("knd,n->kd", slopes, weights) + rewards.mean,
        _at_least(precision),
    )


def _at_least(precision: FloatArray) -> FloatArray:
    values, vectors = np.linalg.eigh(precision)
    return np.asarray((vectors * np.maximum(values, _LEAST_PRECISION)[:, None, :]) @ np.swapaxes(vectors, 1, 2))


def _inverse_root(precision: FloatArray) -> FloatArray:
    """Return the symmetric roots (K, d, d) of the inverses."""
    values, vectors = np.linalg.eigh(precision)
    return np.asarray((vectors / np.sqrt(values)[:, None, :]) @ np.swapaxes(vectors, 1, 2))
