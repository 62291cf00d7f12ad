r"""Observed information of a mixture (Louis' identity), and standard errors from it.

    I = sum_i [ sum_k u_ik B_ik - sum_k u_ik s_ik s_ik' + sbar_i sbar_i' ],     sbar_i = sum_k u_ik s_ik

where s_ik is the gradient and B_ik the negative Hessian of log rho_k + log p_ik with respect to (rho, thetas).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import block_diag, helmert, null_space

from limiirl._typing import BoolArray, FloatArray, IntArray
from limiirl._validation import as_floats, check_choice
from limiirl.demos import Groups
from limiirl.errors import InvalidParameter
from limiirl.irl import AT_BOUND, FitProblem, OptionalMembers, validate
from limiirl.mixture.em import SMALLEST_WEIGHT, nearly_empty
from limiirl.mixture.estimates import COVARIANCES, FreeEstimates, check_clusters, wald_statistics

Block = tuple[slice, FloatArray]
# Maximum size of a block of scores (block, K, d) in bytes.
_BLOCK_BYTES = 32e6
# Fractions of the step that are tried near the boundary of the domain, and minimum distance from the boundary in steps:
# the relative error of a difference is about (step / distance)^2.
_FRACTIONS = (1.0, 0.1, 0.01, 1e-3, 1e-4)
_DISTANCE = 10.0
# Number of clusters from which the sandwich estimator is usually accurate.
_MANY_CLUSTERS = 30


class DifferenceScores:
    """Scores of any model by central differences of `log_prob`; 0 for parameters that are not `free` (K, d)."""

    def __init__(self, problem: FitProblem, thetas: FloatArray, free: BoolArray) -> None:
        self.problem, self.thetas, self.free = problem, thetas, free

    def blocks(self) -> Iterator[Block]:
        """Yield slices of units with their scores (b, K, d)."""
        K, d = self.thetas.shape
        steps = self.problem.difference_steps(d)
        for units in _slices(len(self.problem.units), K * d):
            part, scores = _restrict(self.problem, units), np.zeros((units.stop - units.start, K, d))
            for j in range(d):
                step = np.zeros((K, d))
                step[:, j] = steps[j] * self.free[:, j]
                scores[:, :, j] = self._difference(part, step) / (2.0 * steps[j])
            yield units, scores

    def _difference(self, part: FitProblem, step: FloatArray) -> FloatArray:
        """Return log p(thetas + step) - log p(thetas - step) (b, K), extrapolated from a smaller step if necessary."""
        low, high = np.array([self._ends(k, step) for k in range(len(self.thetas))]).T
        with np.errstate(invalid="ignore"):  # -inf - -inf: impossible for every theta
            rise = part.log_prob(self.thetas + high[:, None] * step) - part.log_prob(self.thetas + low[:, None] * step)
        width = np.where(high > low, high - low, np.inf)
        return np.where(np.isfinite(rise), rise, 0.0) * 2.0 / width

    def _ends(self, k: int, step: FloatArray) -> tuple[float, float]:
        """Return the multiples of a step at which intent k is evaluated; one or both are 0 near the boundary."""
        theta, own = self.thetas[k : k + 1], step[k : k + 1]
        for low, high in ((1.0, 1.0), (1.0, 0.0), (0.0, 1.0)):
            for fraction in _FRACTIONS:
                reach = _DISTANCE * fraction * own
                if self.problem.is_finite(theta + high * reach) and self.problem.is_finite(theta - low * reach):
                    return -low * fraction, high * fraction
        return 0.0, 0.0


def score_blocks(problem: FitProblem, thetas: FloatArray, free: BoolArray) -> Iterator[Block]:
    """Yield slices of units with their scores (b, K, d), by differences of `free` (K, d) parameters if necessary."""
    exact = problem.scores(thetas)
    if exact is None:
        yield from DifferenceScores(problem, thetas, free).blocks()
        return
    for units in _slices(len(problem.units), thetas.size):
        yield units, exact.select(units)


def _slices(n: int, width: int) -> Iterator[slice]:
    size = max(1, int(_BLOCK_BYTES / (8 * width)))
    return (slice(lo, min(lo + size, n)) for lo in range(0, n, size))


def _restrict(problem: FitProblem, which: slice) -> FitProblem:
    return problem if which == slice(0, len(problem.units)) else problem.restrict(which)


# A direction involves a parameter if its component exceeds this value.
_INVOLVED = 1e-6
# A parameter is unidentified if its component in the (orthonormal) null directions exceeds this value. For example,
# with discount 0.99, adding 1 to every step and 100 to the end changes nothing; only the reward at the end exceeds the
# value.
_UNIDENTIFIED = 0.1
# A reward is a contrast if its component in null directions is below this fraction of the largest reward.
_CONTRAST = 0.01
# Minimum squared length of the projection of a contrast onto the identified directions; 0.8 for a reward relative to
# the mean of five.
_MOSTLY = 0.7
# Singular values of null directions, restricted to rewards on bounds, that are treated as zero.
_ZERO = 1e-8
# Minimum relative information of a direction; the likelihood is treated as flat in other directions.
_FLAT = 1e-9
# The likelihood is treated as flat if the standard error of a weight exceeds 0.5, the largest standard deviation of a
# proportion, or if the standard error of a reward exceeds this multiple of the largest absolute reward.
_IMPRECISE, _LARGEST_WEIGHT_ERROR = 10.0, 0.5
# An information matrix is indefinite if an eigenvalue, relative to the complete-data information, is below this value.
# Rounding errors of equal intents are smaller.
_INDEFINITE = -1e-3
# Minimum expected number of demonstrations of an intent in a group for an estimate of the group's rewards.
_LEAST_SIZE = 0.5
OUTER_PRODUCTS = "outer products of scores"
# Statuses of rewards that count as constants.
_FIXED = ("bound", "empty")
# Cache of the last standard errors of each fit problem, for example for a summary followed by a page.
_RECENT: WeakKeyDictionary[FitProblem, tuple[bytes, StandardErrors]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class StandardErrors(FreeEstimates):
    """Standard errors of the parameters of a mixture.

    Arguments of functions for `delta_method` are the weights (K,) and the thetas (K, d).

    Attributes
    ----------
    weights : (K,)
        Standard errors of the mixture weights; nan for an empty intent, or if the likelihood is flat.
    thetas : (K, d)
        Standard errors of the rewards; nan unless `status` is "ok".
    status : (K, d) of str
        "ok"; "bound" (on a bound); "not identified" (component of at least 0.1 in a direction that does not change the
        likelihood); "up to scale" (the model identifies proportions only); "empty" (nearly empty intent); "flat" (the
        likelihood has no maximum: use fewer intents, more demonstrations or more iterations).
    covariance : (K + K d, K + K d)
        Covariance of the weights and of the thetas row by row; nan for parameters without a standard error.
    n_free : int
        Number of free parameters in BIC and AIC: K - 1 weights, and the identified directions of reward that are not on
        a bound.
    method : str
        "observed information" (exact second derivatives, or differences of exact gradients) or "outer products of
        scores", which have the same expectation if the model is correct. The latter is used for models that have only
        `fit` and `log_prob`, and if EM ended before the maximum, where the observed information is indefinite. For
        robust covariances, "sandwich estimator", with the clusters.

    Examples
    --------
    The ratio of two rewards, such as a value of time:

    >>> from limiirl import MDP, Demonstrations, MaxEnt
    >>> phi = [[0, 0], [2, 0], [0, 1], [1, 1]]
    >>> mdp = MDP.from_edges([0, 0, 0], [1, 2, 3], p0=[1, 0, 0, 0], state_features=phi)
    >>> demos = Demonstrations.from_lists([[0]] * 10 + [[0, 1]] * 20 + [[0, 2]] * 30 + [[0, 3]] * 40)
    >>> irl = MaxEnt(2, bounds=None)
    >>> theta = irl.fit(mdp, demos)
    >>> ratio = irl.standard_errors(mdp, demos).delta_method(lambda weights, thetas: thetas[0, 0] / thetas[0, 1])
    >>> ratio.value.round(3), ratio.error.round(3)
    (np.float64(0.309), np.float64(0.128))
    """

    weights: FloatArray
    thetas: FloatArray
    status: NDArray[np.str_]
    covariance: FloatArray = field(repr=False)
    n_free: int
    method: str
    _basis: FloatArray = field(repr=False)  # (K + K d, n_free), orthonormal
    _free_covariance: FloatArray = field(repr=False)  # (n_free, n_free); nan in flat directions
    _estimates: FloatArray = field(repr=False)  # (K + K d,): weights, then thetas row by row

    @property
    def t(self) -> FloatArray:
        """Rewards (K, d) divided by their standard errors."""
        return wald_statistics(self._arguments(self._estimates)[1], self.thetas)[0]

    @property
    def p(self) -> FloatArray:
        """Two-sided p-values (K, d) of the hypothesis that a reward is 0 (for contrasts: the mean), from `t`."""
        return wald_statistics(self._arguments(self._estimates)[1], self.thetas)[1]

    def _arguments(self, x: FloatArray) -> tuple[FloatArray, ...]:
        K = self.weights.size
        return x[:K], x[K:].reshape(self.thetas.shape)

    def _movable(self) -> BoolArray:
        return np.concatenate([np.zeros(self.weights.size, dtype=bool), ~np.isin(self.status, _FIXED).ravel()])

    def of_contrasts(self, contrasts: ArrayLike) -> FloatArray:
        """Return the standard errors (K, m) of linear combinations of rewards, such as differences of two rewards.

        A combination can be identified although its rewards are not. Rewards on a bound count as constants.

        Parameters
        ----------
        contrasts : (m, d)

        Returns
        -------
        (K, m)
            nan for combinations that are not identified, of a nearly empty intent, or in a flat direction of the
            likelihood.

        Examples
        --------
        >>> from limiirl import MDP, Demonstrations, IntentMixture, MaxEnt
        >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0, 0], [1, 0], [0, 1]])
        >>> demos = Demonstrations.from_lists([[0, 1], [0, 1], [0, 1], [0, 2]])
        >>> mix = IntentMixture(1, MaxEnt(2, bounds=None, stop="terminal")).fit(mdp, demos)
        >>> errors = mix.standard_errors()
        >>> errors.status.tolist(), errors.of_contrasts([[1, -1], [1, 0]]).round(2).tolist()
        ([['not identified', 'not identified']], [[1.15, nan]])
        """
        rows = np.atleast_2d(as_floats(contrasts, "contrasts"))
        K, d = self.thetas.shape
        errors = np.full((K, len(rows)), np.nan)
        for k in range(K):
            part = self._basis[K + k * d : K + (k + 1) * d]
            inside = np.where(self.status[k] == "bound", 0.0, rows)
            along = inside @ part
            # The part of a combination outside of the free directions is not identified. Columns of `part` that are
            # shared by intents do not have unit length.
            axes, size, _ = np.linalg.svd(part, full_matrices=False)
            axes = axes[:, size > _ZERO]
            outside = np.linalg.norm(inside - inside @ axes @ axes.T, axis=1) > _INVOLVED * np.linalg.norm(
                inside, axis=1
            )
            used = np.any(np.abs(along) > _INVOLVED, axis=0)
            variance = np.einsum(
                "ij,jk,ik->i", along[:, used], self._free_covariance[np.ix_(used, used)], along[:, used]
            )
            moving = np.any(inside != 0.0, axis=1)
            errors[k] = np.where(outside | ~moving, np.nan, np.sqrt(np.maximum(variance, 0.0)))
        return errors


class FreeParameters(NamedTuple):
    """Status (K, d), mask (K,) of intents that are not nearly empty, and basis (K + K d, n_free) of free directions.

    With m covariates, the basis has K (1 + m) + K d rows.
    """

    status: NDArray[np.str_]
    occupied: BoolArray
    basis: FloatArray

    @property
    def n_free(self) -> int:
        """Number of free parameters."""
        return int(self.basis.shape[1])

    @property
    def moving(self) -> BoolArray:
        """Mask (K, d) of rewards that are neither on a bound nor of a nearly empty intent."""
        return np.isin(self.status, ("ok", "contrast", "not identified", "up to scale"))


def standard_errors(
    problem: FitProblem,
    rho: FloatArray,
    thetas: FloatArray,
    covariance: str = "observed",
    clusters: ArrayLike | None = None,
    shared: BoolArray | None = None,
) -> StandardErrors:
    """Return standard errors of mixture weights rho (K,) and rewards thetas (K, d).

    Parameters
    ----------
    covariance : {"observed", "robust", "cluster"}
        Inverse I^-1 of the observed information; or the sandwich estimator I^-1 (sum_c s_c s_c') I^-1 C / (C - 1),
        where s_c is the score of a unit ("robust") or the sum of the scores of a cluster of units ("cluster").
    clusters : (N,), optional
        Cluster of each demonstration; by default the groups of the fit, or `demos.groups`.
    shared : (d,) mask, optional
        Features whose rewards are one parameter for all intents.
    """
    index, noun = resolve_clusters(problem, covariance, clusters)
    key = b"".join(array.tobytes() for array in (rho, thetas, *(part for part in (index, shared) if part is not None)))
    recent = _RECENT.get(problem)
    if recent is not None and recent[0] == key:
        return recent[1]
    result = _standard_errors(problem, rho, thetas, index, noun, shared)
    _RECENT[problem] = key, result
    return result


def _standard_errors(
    problem: FitProblem,
    rho: FloatArray,
    thetas: FloatArray,
    clusters: IntArray | None,
    noun: str,
    shared: BoolArray | None,
) -> StandardErrors:
    free = free_parameters(problem.model, problem.mdp, rho, thetas, len(problem.units), shared=shared)
    measured = information(problem, rho, thetas, free.moving, clusters)
    inverse, flat, method = invert(measured, free.basis, noun)
    return make_errors(free, (rho, thetas), free.basis, inverse, flat, method)


def resolve_clusters(problem: FitProblem, covariance: str, clusters: ArrayLike | None) -> tuple[IntArray | None, str]:
    """Return the cluster (G,) of each unit, or None for the observed information, and the noun of clusters."""
    check_choice(covariance, "covariance", COVARIANCES)
    if clusters is not None and covariance != "cluster":
        message = f"clusters requires covariance='cluster'; got {covariance!r}."
        raise InvalidParameter(message, parameter="clusters", value=covariance)
    if covariance == "cluster":
        return check_clusters(clusters, problem)
    return (np.arange(len(problem.units)) if covariance == "robust" else None), problem.units.noun


def invert(measured: Information, basis: FloatArray, noun: str) -> tuple[FloatArray, BoolArray, str]:
    """Return the covariance (r, r) of the coordinates of a basis, the mask (r,) of flat directions, and the method.

    With scores of clusters, whose plural is `noun`, the covariance is the `sandwich`.
    """
    observed, outer, complete, method, scores = measured
    projected, complete = basis.T @ observed @ basis, (basis**2).T @ complete
    if _is_indefinite(projected, complete):
        # EM ended before a maximum, where only the outer products are positive semidefinite.
        projected, method = basis.T @ outer @ basis, f"{OUTER_PRODUCTS}, because EM ended before the maximum"
    inverse, flat = invert_information(projected, complete)
    if scores is not None:
        inverse, method = sandwich(inverse, scores @ basis), describe_sandwich(len(scores), noun, method)
    return inverse, flat, method


def make_errors(
    free: FreeParameters,
    estimates: tuple[FloatArray, FloatArray],
    basis: FloatArray,
    inverse: FloatArray,
    flat: BoolArray,
    method: str,
) -> StandardErrors:
    """Return the standard errors of estimates: K weights and thetas (K, d), which move along `basis` (K + K d, r).

    `inverse` (r, r) is the covariance of the coordinates, and `flat` the mask (r,) of directions without information.
    """
    rho, thetas = estimates
    covariance = basis @ inverse @ basis.T
    on_flat = np.any(np.abs(basis[:, flat]) > _INVOLVED, axis=1)
    K = len(thetas)
    with_error = np.isin(free.status, ("ok", "contrast"))
    variance = np.diag(covariance)
    scale = np.max(np.abs(thetas[free.occupied]), initial=0.0)
    imprecise = np.concatenate([variance[:K] > _LARGEST_WEIGHT_ERROR**2, variance[K:] > (_IMPRECISE * scale) ** 2])
    on_flat |= imprecise & (scale > 0.0)
    status = np.where(with_error & on_flat[K:].reshape(thetas.shape), "flat", free.status)
    without = np.concatenate([on_flat[:K] | ~free.occupied, ~np.isin(status, ("ok", "contrast")).ravel()])
    covariance[without] = covariance[:, without] = np.nan
    errors = np.sqrt(np.diag(covariance))
    inverse[flat] = inverse[:, flat] = np.nan
    rewards, vector = errors[K:].reshape(thetas.shape), np.concatenate([rho, thetas.ravel()])
    return StandardErrors(errors[:K], rewards, status, covariance, free.n_free, method, basis, inverse, vector)


def group_rewards(
    problem: FitProblem,
    rho: FloatArray,
    thetas: FloatArray,
    groups: Groups,
    U: FloatArray,
    shared: BoolArray | None = None,
) -> FloatArray:
    r"""Return one-step estimates (G, K, d) of the rewards of each group of units, given the rewards of all.

    A Newton step from the common rewards of intent k, with the mean information per demonstration of the intent:

        theta_gk = theta_k + (sum_i B_ik u_ik / n_k)^-1 (sum_{i in g} u_ik s_ik / n_gk),    n_gk = sum_{i in g} u_ik

    It is the maximum likelihood estimate of the group to first order, and nan for groups with n_gk < 0.5, for rewards
    that are not identified, and for rewards on a bound. Rewards that intents share are not estimated per group: they
    are nan, and the step changes the other rewards only.

    Parameters
    ----------
    groups : Groups
        Of the units of the problem.
    U : (N, K)
        Responsibilities of the units.
    shared : (d,) mask, optional
        Features whose rewards are equal for all intents.
    """
    K, d = thetas.shape
    shared = np.zeros(d, dtype=bool) if shared is None else shared
    free = free_parameters(problem.model, problem.mdp, rho, thetas, len(problem.units))
    moving = np.isin(free.status, ("ok", "contrast", "not identified")) & ~shared
    index = np.arange(len(groups)) if groups.index is None else groups.index
    scores, outer = np.zeros((len(groups), K, d)), np.zeros((K, d, d))
    for units, score in score_blocks(problem, thetas, moving):
        weighted = U[units, :, None] * score
        np.add.at(scores, index[units], weighted)
        outer += np.einsum("nkd,nke->kde", weighted, score)
    curvature = problem.curvature(U, thetas, moving)
    curvature = outer if curvature is None else curvature
    sizes = groups.sum(U)
    result = np.full((len(groups), K, d), np.nan)
    n_weights = max(int(np.count_nonzero(free.occupied)) - 1, 0)
    for k in np.flatnonzero(free.occupied):
        basis = free.basis[K + k * d : K + (k + 1) * d, n_weights:]
        basis = basis[:, np.any(basis != 0.0, axis=0)]
        if np.any(shared):
            basis = basis @ null_space(basis[shared])
        information = basis.T @ curvature[k] @ basis
        inverse, _ = invert_information(information, np.diag(information).copy())
        enough = sizes[:, k] >= _LEAST_SIZE
        with np.errstate(divide="ignore", invalid="ignore"):
            steps = scores[:, k] @ (basis @ inverse @ basis.T) * (sizes[:, k].sum() / sizes[:, k])[:, None]
        known = np.isin(free.status[k], ("ok", "contrast")) & ~shared
        result[np.ix_(enough, [k], known)] = (thetas[k] + steps)[np.ix_(enough, known)][:, None]
    return result


def sandwich(inverse: FloatArray, scores: FloatArray) -> FloatArray:
    """Return I^-1 (sum_c s_c s_c') I^-1 C / (C - 1), given I^-1 (m, m) and the scores (C, m) of C clusters.

    Examples
    --------
    The standard error of a mean, for Gaussian scores with unit information:

    >>> x = np.array([1.0, 2.0, 6.0])
    >>> np.sqrt(sandwich(np.array([[1 / 3]]), (x - x.mean())[:, None])) - x.std(ddof=1) / np.sqrt(3)
    array([[0.]])
    """
    half = scores @ inverse
    return np.asarray(half.T @ half * (len(scores) / (len(scores) - 1.0)))


def describe_sandwich(n_clusters: int, noun: str, bread: str = "observed information") -> str:
    """Return the description of robust standard errors; `noun` names the units or clusters of the scores."""
    of = "" if bread == "observed information" else f" with {bread}"
    few = "; with fewer than 30, errors tend to be too small" if n_clusters < _MANY_CLUSTERS else ""
    return f"sandwich estimator{of}, clustered by {n_clusters} {noun}{few}"


class Information(NamedTuple):
    """Information (rho, then thetas row by row) by second derivatives and by outer products, and the method.

    `complete` is the diagonal of the complete-data information, and `scores` (C, K + K d) are the sums of the gradients
    of the penalised log-likelihoods of the units of each cluster, if there are clusters.
    """

    observed: FloatArray
    outer: FloatArray
    complete: FloatArray
    method: str
    scores: FloatArray | None = None


def information(
    problem: FitProblem, rho: FloatArray, thetas: FloatArray, free: BoolArray, clusters: IntArray | None = None
) -> Information:
    """Return the observed information of a mixture, and the scores of clusters of units, given as labels (G,).

    The matrix has K + K d rows. The weights are treated as K free parameters; to impose that they sum to 1, project
    onto directions that sum to 0. A ridge adds its curvature. For models without gradients the result is sum_i sbar_i
    sbar_i', which has the same expectation under the model. Rows of rewards that are not `free` (K, d) may be 0.
    """
    K, d = thetas.shape
    U = np.zeros((len(problem.units), K))
    problem.e_step(rho, thetas, U)
    curvature = problem.curvature(U, thetas, free)
    observed = np.diag(np.concatenate([np.zeros(K), penalty_curvature(problem, thetas).ravel()]))
    outer, complete = observed.copy(), np.diag(observed).copy()
    scores = None if clusters is None else np.zeros((int(clusters.max()) + 1, K + K * d))
    for units, score in score_blocks(problem, thetas, free):
        u = U[units]
        weighted = u[:, :, None] * score
        mean = np.hstack([u / rho, weighted.reshape(len(u), K * d)])
        if scores is not None and clusters is not None:
            np.add.at(scores, clusters[units], mean)
        product = mean.T @ mean
        observed += product
        outer += product
        complete += np.concatenate([(u / rho**2).sum(axis=0), (weighted * score).sum(axis=0).ravel()])
        if curvature is None:
            continue
        for k in range(K):
            own = slice(K + k * d, K + (k + 1) * d)
            observed[own, own] -= weighted[:, k].T @ score[:, k]
            # In the (rho_k, rho_k) entries, the terms u B and u s s' are both u / rho_k^2 and cancel.
            cross = weighted[:, k].sum(axis=0) / rho[k]
            observed[k, own] -= cross
            observed[own, k] -= cross
    if curvature is not None:
        observed[K:, K:] += block_diag(*curvature)
    method = OUTER_PRODUCTS if curvature is None else "observed information"
    if scores is not None and clusters is not None:
        # Each unit has an equal part of the penalty.
        sizes = np.bincount(clusters) / len(problem.units)
        scores[:, K:] -= np.outer(sizes, problem.penalty_gradient(thetas).ravel())
    return Information(np.asarray(0.5 * (observed + observed.T)), outer, complete, method, scores)


def penalty_curvature(problem: FitProblem, thetas: FloatArray) -> FloatArray:
    """Return the second differences (K, d) of the penalty, exact for a ridge."""
    curvature, here = np.zeros(thetas.shape), problem.penalty(thetas)
    if here == 0.0 and problem.penalty(thetas + 1.0) == 0.0:
        return curvature
    for index in np.ndindex(*thetas.shape):
        step = np.zeros(thetas.shape)
        step[index] = 1.0
        curvature[index] = problem.penalty(thetas + step) - 2.0 * here + problem.penalty(thetas - step)
    return curvature


def free_parameters(
    model: Any,
    mdp: Any,
    rho: FloatArray,
    thetas: FloatArray,
    n_units: int,
    n_covariates: int = 0,
    shared: BoolArray | None = None,
) -> FreeParameters:
    """Return the free parameters and a basis of the free directions; see `OptionalMembers.null_directions`.

    With covariates, each intent has 1 + n_covariates logits instead of a weight. Rewards of `shared` features (d,)
    change together, as one direction.
    """
    K, d = thetas.shape
    members = OptionalMembers.of(model)
    box = validate.box(members.bounds, [f"parameter {j}" for j in range(d)])
    occupied = ~nearly_empty(rho * n_units, n_units) & (rho > SMALLEST_WEIGHT * (1.0 + 1e-6))
    status = np.full((K, d), "not identified")  # the longest status, so that the dtype holds all
    blocks: list[FloatArray] = [np.asarray(np.kron(_tangent(occupied), np.eye(1 + n_covariates)))]
    nulls = _null_directions(members, mdp, thetas, occupied)
    for k, theta in enumerate(thetas):
        if not occupied[k]:
            status[k] = "empty"
            blocks.append(np.empty((d, 0)))
            continue
        inside = (theta > box.lower + AT_BOUND) & (theta < box.upper - AT_BOUND)
        basis, unidentified = _identify(nulls[k], inside)
        status[k] = np.where(inside, np.where(unidentified, members.null_status, "ok"), "bound")
        if members.null_status == "not identified":
            contrast = _is_contrast(theta, basis, inside)
            if np.all(contrast[unidentified & inside]):
                status[k, unidentified & inside] = "contrast"
        blocks.append(basis)
    if shared is not None:
        blocks = [blocks[0], _share(blocks[1:], occupied, shared)]
    return FreeParameters(status, occupied, np.asarray(block_diag(*blocks)))


def _share(blocks: list[FloatArray], occupied: BoolArray, shared: BoolArray) -> FloatArray:
    """Return an orthonormal basis (K d, r) of the free directions in which shared rewards change together.

    `blocks` contains the free directions (d, r_k) of each intent.
    """
    K, d = occupied.size, shared.size
    each = occupied.astype(np.float64) / math.sqrt(max(1, int(np.count_nonzero(occupied))))
    together = np.multiply.outer(each, np.eye(d)[:, shared]).reshape(K * d, -1)
    apart = np.eye(K * d)[:, np.repeat(occupied, d) & np.tile(~shared, K)]
    pooled, free = np.hstack([together, apart]), np.asarray(block_diag(*blocks))
    projected = free.T @ pooled
    # Directions that are free as they are remain parameters; the others are combined.
    length = np.sum(projected**2, axis=0)
    alone, partly = length > 1.0 - _ZERO, (length > _ZERO) & (length <= 1.0 - _ZERO)
    if not np.any(partly):
        return pooled[:, alone]
    _, size, mixes = np.linalg.svd(projected[:, partly], full_matrices=False)
    return np.hstack([pooled[:, alone], pooled[:, partly] @ mixes[size > _ZERO].T])


def _null_directions(members: OptionalMembers, mdp: Any, thetas: FloatArray, wanted: BoolArray) -> list[FloatArray]:
    """Return a basis (m, d) of the null directions for each row of thetas (K, d) in the mask `wanted` (K,)."""
    K, d = thetas.shape
    directions = members.null_directions
    if directions is None:
        return [np.empty((0, d))] * K
    if members.null_directions_vary:
        return [directions(mdp, thetas[k]) if wanted[k] else np.empty((0, d)) for k in range(K)]
    # They do not depend on theta. For causal models they require a linear solve over all states.
    return [directions(mdp, thetas[0])] * K


def _tangent(occupied: BoolArray) -> FloatArray:
    """Return an orthonormal basis (K, m - 1) of vectors that sum to 0 and are 0 outside of the m occupied intents."""
    m = int(np.count_nonzero(occupied))
    basis = np.zeros((occupied.size, max(m - 1, 0)))
    if m > 1:
        basis[occupied] = helmert(m).T
    return basis


def _identify(null: FloatArray, inside: BoolArray) -> tuple[FloatArray, BoolArray]:
    """Return a basis (d, r) of the identified directions inside the bounds, and the mask (d,) of unidentified rewards.

    Null directions that change rewards on bounds are excluded. A reward without a component in the remaining null
    directions is a basis vector by itself.
    """
    if null.shape[0]:
        _, size, mixes = np.linalg.svd(null[:, ~inside].T)
        null = mixes[np.count_nonzero(size > _ZERO) :] @ null
    length = np.linalg.norm(null, axis=0)
    involved, unidentified = inside & (length > _INVOLVED), inside & (length > _UNIDENTIFIED)
    alone = np.eye(inside.size)[:, inside & ~involved]
    rest = np.zeros((inside.size, np.count_nonzero(involved) - null.shape[0]))
    if np.any(involved):
        rest[involved] = np.linalg.svd(null[:, involved])[2][null.shape[0] :].T
    return np.hstack([alone, rest]), unidentified


def _is_contrast(theta: FloatArray, basis: FloatArray, inside: BoolArray) -> BoolArray:
    """Return the mask (d,) of rewards that are contrasts: identified differences from a mean of rewards.

    A reward is a contrast if theta equals its projection onto the identified directions `basis` (d, r), as after a fit
    with a ridge, and if most of the reward lies in these directions. For example, if adding a constant to all rewards
    is not identified, contrasts are differences from the mean reward.
    """
    projected = np.where(inside, basis @ (basis.T @ theta), theta)
    close = np.abs(theta - projected) <= _CONTRAST * max(float(np.abs(theta).max()), 1e-3)
    return np.asarray(close & (np.sum(basis**2, axis=1) >= _MOSTLY))


def _is_indefinite(matrix: FloatArray, complete: FloatArray) -> bool:
    """Return True if an information matrix (m, m) has a negative eigenvalue, as before a maximum of the likelihood."""
    scale = np.sqrt(np.where(complete > 0.0, complete, 1.0))
    values = np.linalg.eigvalsh(matrix / np.outer(scale, scale))
    return bool(np.min(values, initial=0.0) < _INDEFINITE)


def invert_information(matrix: FloatArray, complete: FloatArray) -> tuple[FloatArray, BoolArray]:
    """Return the pseudo-inverse of an information matrix (m, m), and the mask (m,) of coordinates in flat directions.

    Coordinates are scaled to unit information. Values far below `complete` (m,), the information of the complete data,
    are rounding errors.
    """
    diagonal = np.diag(matrix)
    scale = np.sqrt(np.where(diagonal > _FLAT * complete, diagonal, np.where(complete > 0.0, complete, 1.0)))
    values, vectors = np.linalg.eigh(matrix / np.outer(scale, scale))
    good = values > _FLAT
    flat = np.linalg.norm(vectors[:, ~good], axis=1) > _INVOLVED
    inverse = (vectors[:, good] / values[good]) @ vectors[:, good].T
    return inverse / np.outer(scale, scale), flat
