r"""Functions of estimated parameters (delta method), Wald tests of parameters, and profile-likelihood intervals.

Delta method: Cov f(x) = J V J', where V is the covariance of the parameters x and J the derivative of f.

Profile likelihood: the interval of a parameter is {v : 2 (log L_max - log L_p(v)) <= z^2}, where log L_p(v) is the
maximum over all other parameters if the parameter is v, and z is a quantile of the normal distribution.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri, softmax

from limiirl._typing import BoolArray, FloatArray
from limiirl._validation import check_level
from limiirl.errors import InvalidParameter, NumericalError
from limiirl.irl import Box, FitProblem, minimise_lbfgs
from limiirl.mixture.em import MarginalLikelihood, describe_missing_gradients

COVARIANCES = ("observed", "robust", "cluster")
"""Covariances of estimates: inverse observed information; sandwich of the scores of units; of clusters of units."""
# A function depends on a direction if its derivative exceeds this fraction of its largest derivative.
_DEPENDS = 1e-6
# Steps of central differences: a fraction of a standard error, and of a parameter without standard error.
_STEP, _FIXED_STEP = 1e-3, 1e-5
# Search for the end of a profile interval: tolerance on the signed root of the likelihood ratio, maximum number of
# searches, and largest distance from the estimate in standard errors.
_ROOT_TOL, _MOST_SEARCHES, _FARTHEST = 1e-4, 25, 200.0
_GTOL, _EVALUATIONS = 1e-8, 2000


def wald_statistics(values: FloatArray, errors: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the ratios t of estimates to their standard errors, and two-sided p-values from the normal distribution.

    Examples
    --------
    >>> t, p = wald_statistics(np.array([1.96]), np.array([1.0]))
    >>> t, p.round(3)
    (array([1.96]), array([0.05]))
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(errors > 0.0, values / errors, np.nan)
    return t, np.asarray(2.0 * ndtr(-np.abs(t)))


@dataclass(frozen=True)
class HypothesisTest:
    """Result of a test; prints as one line with the conditions below it.

    Attributes
    ----------
    name : str
    statistic, p : float
    df : float or None
        Degrees of freedom; None for tests without them.
    conditions : str
        Conditions under which the p-value is valid.
    """

    name: str
    statistic: float
    df: float | None
    p: float
    conditions: str

    def __str__(self) -> str:
        df = "" if self.df is None else f" with {self.df:g} degree{'' if self.df == 1 else 's'} of freedom"
        return f"{self.name}: {self.statistic:.4g}{df}, p = {self.p:.3g}\n  Valid if {self.conditions}"


@dataclass(frozen=True, eq=False)
class FunctionEstimate:
    """A function of the parameters with its standard error from the delta method.

    Attributes
    ----------
    value : scalar or array
        The function at the estimates.
    covariance : (m, m)
        Covariance of the m entries of `value`; nan for entries without standard error.
    method : str
        Covariance of the parameters.
    """

    value: FloatArray
    covariance: FloatArray = field(repr=False)
    method: str

    @property
    def error(self) -> FloatArray:
        """Standard error, with the shape of `value`."""
        return np.sqrt(np.diag(self.covariance)).reshape(self.value.shape)

    @property
    def t(self) -> FloatArray:
        """Value divided by its standard error."""
        return wald_statistics(self.value, self.error)[0]

    @property
    def p(self) -> FloatArray:
        """Two-sided p-value of the hypothesis that the value is 0."""
        return wald_statistics(self.value, self.error)[1]

    def interval(self, level: float = 0.95) -> FloatArray:
        """Return the ends of the confidence interval, with shape (..., 2)."""
        half = float(ndtri(0.5 + 0.5 * check_level(level))) * self.error
        return np.stack([self.value - half, self.value + half], axis=-1)


class FreeEstimates(ABC):
    """Base class of standard errors: parameters that move in the free directions only, and functions of them."""

    method: str
    _estimates: FloatArray  # (n,)
    _basis: FloatArray  # (n, r), orthonormal
    _free_covariance: FloatArray  # (r, r); nan in flat directions

    def delta_method(
        self, function: Callable[..., Any], gradient: Callable[..., Any] | None = None
    ) -> FunctionEstimate:
        """Return a function of the parameters with its standard error.

        Parameters
        ----------
        function : callable
            Function of the arguments named in the class, with a scalar or array as result.
        gradient : callable, optional
            Returns the derivatives of the function as a tuple with one entry per argument; each has the shape of the
            result followed by the shape of the argument. By default, central differences are used.

        Returns
        -------
        FunctionEstimate
            The error is nan if the function depends on directions that are not identified or have no curvature. Rewards
            on a bound count as constants.
        """
        for name, given in (("function", function), ("gradient", gradient)):
            if not (callable(given) or (name == "gradient" and given is None)):
                raise InvalidParameter.of(name, given, "must be callable")
        value = np.asarray(function(*self._arguments(self._estimates)), dtype=np.float64)
        if not np.all(np.isfinite(value)):
            raise InvalidParameter.of("function", value.tolist(), "must be finite at the estimates")
        variance = np.diag(self._free_covariance)
        flat = ~np.isfinite(variance)
        null = self._null_directions()
        if gradient is None:
            steps = np.where(flat, _FIXED_STEP, _STEP * np.sqrt(np.maximum(np.where(flat, 0.0, variance), 0.0)))
            along = self._differentiate(function, self._basis, np.where(steps > 0.0, steps, _FIXED_STEP))
            beyond = self._differentiate(function, null, np.full(null.shape[1], _FIXED_STEP))
        else:
            parts = [np.reshape(part, (value.size, -1)) for part in gradient(*self._arguments(self._estimates))]
            derivative = np.hstack(parts)
            if derivative.shape[1] != self._estimates.size:
                rule = f"must return {self._estimates.size} derivatives per value, in one array per argument"
                raise InvalidParameter.of("gradient", derivative.shape[1], rule)
            along, beyond = derivative @ self._basis, derivative @ null
        limit = _DEPENDS * np.maximum(np.max(np.abs(along), axis=1, initial=0.0), np.abs(beyond).max(axis=1, initial=0))
        undefined = np.any(np.abs(beyond) > limit[:, None], axis=1)
        undefined |= np.any((np.abs(along) > limit[:, None]) & flat, axis=1)
        along = np.where(flat, 0.0, along)
        covariance = along @ np.where(np.isfinite(self._free_covariance), self._free_covariance, 0.0) @ along.T
        covariance[undefined] = covariance[:, undefined] = np.nan
        return FunctionEstimate(value, covariance, self.method)

    def _differentiate(self, function: Callable[..., Any], directions: FloatArray, steps: FloatArray) -> FloatArray:
        """Return the derivatives (m, r) of a function along directions (n, r), by central differences."""
        result = []
        for direction, step in zip(directions.T, steps, strict=True):
            ends = [
                np.asarray(function(*self._arguments(self._estimates + sign * step * direction)), dtype=np.float64)
                for sign in (1.0, -1.0)
            ]
            result.append((ends[0] - ends[1]).ravel() / (2.0 * step))
        m = np.asarray(function(*self._arguments(self._estimates))).size
        return np.array(result).reshape(-1, m).T

    def _null_directions(self) -> FloatArray:
        """Return an orthonormal basis (n, q) of changes of the rewards in the model that are not free directions."""
        n = self._estimates.size
        outside = (np.eye(n) - self._basis @ self._basis.T)[:, self._movable()]
        left, size, _ = np.linalg.svd(outside, full_matrices=False)
        return np.asarray(left[:, size > _DEPENDS])

    @abstractmethod
    def _arguments(self, x: FloatArray) -> tuple[FloatArray, ...]:
        """Return the arguments of functions for a vector of parameters (n,)."""

    @abstractmethod
    def _movable(self) -> BoolArray:
        """Return the mask (n,) of rewards that are neither on a bound nor of a nearly empty intent."""


class ProfileInterval(NamedTuple):
    """Profile-likelihood interval of a mixture weight (`feature` is "weight") or of a reward.

    `low` or `high` is a bound of the model, or infinite, if the likelihood does not fall far enough on that side.
    """

    intent: int
    feature: str
    estimate: float
    low: float
    high: float


class _Weight(MarginalLikelihood):
    """The likelihood with the log odds of the weight of intent k as its first variable.

    The other weights are (1 - rho_k) softmax(b), where the logits b are relative to the first other intent.
    """

    def __init__(self, problem: FitProblem, n_intents: int, scale: FloatArray, k: int) -> None:
        super().__init__(problem, n_intents, scale)
        self.k, self.others = k, np.delete(np.arange(n_intents), k)

    def pack(self, logits: FloatArray, thetas: FloatArray) -> FloatArray:
        rho = np.asarray(softmax(logits[:, 0]))
        others = np.log(rho[self.others])
        odds = np.log(rho[self.k] / rho[self.others].sum())
        return np.concatenate([[odds], others[1:] - others[0], (thetas * self.scale).ravel()])

    def unpack(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        rho = np.empty(self.K)
        rho[self.k] = 1.0 / (1.0 + np.exp(-x[0]))
        logits = np.concatenate([[0.0], x[1 : self.K - 1]])
        share = np.exp(logits - logits.max())
        rho[self.others] = (1.0 - rho[self.k]) * share / share.sum()
        return np.log(rho)[:, None], x[self.K - 1 :].reshape(self.K, -1) / self.scale

    def differentiate_logits(self, sizes: FloatArray, rho: FloatArray) -> FloatArray:
        others, rest = self.others, self.n - sizes[self.k]
        share = rho[others] / rho[others].sum()
        return np.concatenate([[sizes[self.k] - self.n * rho[self.k]], (sizes[others] - rest * share)[1:]])


@dataclass(frozen=True, eq=False)
class Profile:
    """Profile likelihoods of a fitted mixture.

    Parameters
    ----------
    problem : FitProblem
    logits, thetas : (K, p), (K, d)
        The maximum of the likelihood; p = 1 without covariates.
    errors : (K,), (K, d)
        Standard errors of both; they determine the first step of the search, and must be positive.
    names : sequence of str
        Names of the features.
    """

    problem: FitProblem
    logits: FloatArray
    thetas: FloatArray
    errors: tuple[FloatArray, FloatArray]
    names: tuple[str, ...]

    def intervals(self, parameters: Iterable[tuple[int, int | str]], level: float) -> list[ProfileInterval]:
        """Return the intervals of parameters, given as (intent, feature) or (intent, "weight")."""
        quantile = float(ndtri(0.5 + 0.5 * check_level(level)))
        if what := describe_missing_gradients(self.problem, len(self.thetas)):
            message = (
                f"Profile likelihoods require a likelihood with gradients; {what} has none. Use standard_errors()."
            )
            raise InvalidParameter(message, parameter="irl", value=what)
        try:
            chosen = list(parameters)
        except TypeError:
            raise InvalidParameter.of("parameters", parameters, "must be a list of pairs") from None
        return [self._interval(*self._resolve(parameter), quantile) for parameter in chosen]

    def _resolve(self, parameter: tuple[int, int | str]) -> tuple[int, int | None]:
        """Return the intent and the number of the feature, or None for the weight."""
        K, d = self.thetas.shape
        try:
            k, feature = parameter
            if feature == "weight" and "weight" not in self.names:
                return range(K)[k], None
            return range(K)[k], self.names.index(feature) if isinstance(feature, str) else range(d)[feature]
        except (TypeError, ValueError, IndexError):
            rule = f"must be pairs of an intent below {K} and a feature (number below {d}, or name), or 'weight'"
            raise InvalidParameter.of("parameters", parameter, rule) from None

    def _interval(self, k: int, j: int | None, quantile: float) -> ProfileInterval:
        K, d = self.thetas.shape
        name = "weight" if j is None else self.names[j]
        error = float(self.errors[0][k] if j is None else self.errors[1][k, j])
        if not error > 0.0:
            rule = "must have a standard error; see its status in standard_errors()"
            raise InvalidParameter.of("parameters", (k, name), rule)
        size = np.sqrt(np.mean(self.problem.features() ** 2, axis=0))
        scale = np.where(size > 0.0, size, 1.0) if size.size == d else np.ones(d)
        if j is None:
            if self.problem.weight_design is not None:
                rule = "must be rewards, because the mixture weights depend on covariates; see mix.membership_"
                raise InvalidParameter.of("parameters", (k, name), rule)
            objective: MarginalLikelihood = _Weight(self.problem, K, scale, k)
            at, estimate = 0, float(softmax(self.logits[:, 0])[k])
            width = error / (estimate * (1.0 - estimate))
        else:
            objective, estimate = MarginalLikelihood(self.problem, K, scale), self.thetas[k, j]
            at, width = (K - 1) * objective.p + k * d + j, error * scale[j]
        box = objective.box(self.problem.box(d))
        start, lowest = _minimise(objective, objective.pack(self.logits, self.thetas), box)
        ends = [_find_end(objective, start, lowest, box, at, sign * width, quantile) for sign in (-1.0, 1.0)]
        if j is None:
            return ProfileInterval(k, name, estimate, *(float(1.0 / (1.0 + np.exp(-end))) for end in ends))
        bounds = self.problem.box(d)
        low, high = (float(np.clip(end / scale[j], bounds.lower[j], bounds.upper[j])) for end in ends)
        return ProfileInterval(k, name, float(estimate), low, high)


def _minimise(objective: MarginalLikelihood, start: FloatArray, box: Box) -> tuple[FloatArray, float]:
    """Return the minimum of the negative log-likelihood per unit within a box, and its value."""
    (result,) = minimise_lbfgs(objective, start[None], box, _GTOL, _EVALUATIONS)
    return result.theta, float(result.value)


def _find_end(
    objective: MarginalLikelihood, start: FloatArray, lowest: float, box: Box, at: int, width: float, quantile: float
) -> float:
    """Return the value of variable `at` where the root of the likelihood ratio equals a quantile, by the secant method.

    `width` is a standard error with the sign of the direction. The root is nearly linear in the variable.
    """
    limit = box.lower[at] if width < 0.0 else box.upper[at]
    x, before, point = start, (float(start[at]), 0.0), float(start[at]) + quantile * width
    for _ in range(_MOST_SEARCHES):
        point = float(np.clip(point, box.lower[at], box.upper[at]))
        lower, upper = box.lower.copy(), box.upper.copy()
        lower[at] = upper[at] = point
        first = x.copy()
        first[at] = point
        try:
            x, value = _minimise(objective, first, Box(lower, upper))
            root = float(np.sqrt(max(2.0 * objective.n * (value - lowest), 0.0)))
        except NumericalError:  # the partition function diverges: the interval ends before this point
            point = 0.5 * (point + before[0])
            continue
        if abs(root - quantile) < _ROOT_TOL:
            return point
        if (point == limit and root < quantile) or abs(point - start[at]) > _FARTHEST * abs(width):
            return float(limit)
        rate = (root - before[1]) / (point - before[0]) if point != before[0] else 0.0
        average = (root - 0.0) / (point - start[at])
        step = (quantile - root) / (rate if rate * width > 0.0 else average or 1.0 / width)
        before = point, root
        # Limit extrapolation to ten standard errors.
        point += float(np.clip(step, -10.0 * abs(width), 10.0 * abs(width)))
    return point


def check_clusters(clusters: ArrayLike | None, problem: FitProblem) -> tuple[Any, str]:
    """Return the cluster (G,) of each unit, and a description of the clusters.

    By default, clusters are the groups of the fit or, if it has none, the groups of the demonstrations.
    """
    units, demos = problem.units, problem.demos
    if clusters is None:
        clusters = None if units.grouped else getattr(demos, "groups", None)
        if clusters is None and not units.grouped:
            message = (
                "clusters is required, because the demonstrations have no groups. Pass one label per demonstration."
            )
            raise InvalidParameter(message, parameter="clusters")
    if clusters is None:
        return np.arange(len(units)), "groups"
    given = type(units).from_labels(clusters, int(units.counts.sum()))
    labels = given.labels
    assert given.index is not None  # clusters were given
    assert labels is not None
    if units.index is None:
        index = given.index
    else:
        index = np.zeros(len(units), dtype=np.int64)
        index[units.index] = given.index
        split = np.flatnonzero(index[units.index] != given.index)
        if split.size:
            i = int(split[0])
            rule = f"must not split the groups of the fit; {units.name(int(units.index[i]))} is in several clusters"
            raise InvalidParameter.of("clusters", labels.tolist()[i], rule, index=i)
    if len(given) < 2:
        raise InvalidParameter.of("clusters", len(given), "must have at least two clusters")
    return index, "clusters" if clusters is not getattr(demos, "groups", None) else "groups"
