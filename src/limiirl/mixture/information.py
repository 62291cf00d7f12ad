r"""Observed information of a mixture (Louis' identity), and standard errors from it.

    I = sum_i [ sum_k u_ik B_ik - sum_k u_ik s_ik s_ik' + sbar_i sbar_i' ],     sbar_i = sum_k u_ik s_ik

with s_ik and B_ik the gradient and minus the Hessian of log rho_k + log p_ik in (rho, thetas).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import block_diag, helmert

from limiirl._typing import BoolArray, FloatArray
from limiirl.demos import Groups
from limiirl.irl import FitProblem, MaxEntProblem, RowStatistics, validate
from limiirl.mixture.em import SMALLEST_WEIGHT, nearly_empty

Block = tuple[slice, FloatArray]
# Bytes of scores (block, K, d) at a time.
_BLOCK_BYTES = 32e6
# How far theta . F moves in a central difference: truncation is about its square, rounding 1e-15 divided by it.
_MOVE = 1e-4
# Shares of it that are tried near the edge of the domain, and how many steps the edge must be away: the log-probability
# bends like a logarithm there, so that the error is about the square of step over distance.
_SHARES = (1.0, 0.1, 0.01, 1e-3, 1e-4)
_ROOM = 10.0


class ExactScores:
    """Scores of MaxEnt where features do not depend on theta.

    The score of unit i under intent k is F_i - sum_s n_i(s) E_k[F | s], n_i(s) its demonstrations that start in s; in a
    model that is not conditioned on the start, there is one s for all. E_k[F | s] is then a central difference of
    log Z(s), which the engine gives for all s at once.
    """

    def __init__(self, prepared: MaxEntProblem, thetas: FloatArray) -> None:
        self.prepared, self.thetas = prepared, thetas
        assert isinstance(prepared.statistics, RowStatistics)  # `scores` has seen to it
        self.features = prepared.statistics.rows.features
        engine, units = prepared.path_sums, prepared.units
        if engine.by_start:
            self.starts, column = np.unique(prepared.demos.start_states, return_inverse=True)
            row = np.arange(len(prepared.demos)) if units.index is None else units.index
            ones, shape = np.ones(column.size), (len(units), self.starts.size)
            self.counts = sparse.coo_array((ones, (row, column)), shape=shape).tocsr()
            self.expected = self._by_start()
        else:
            self.counts = sparse.csr_array(units.counts[:, None])
            self.expected = engine.value_and_grad(thetas)[1][None]

    def _by_start(self) -> FloatArray:
        """Return E_k[F | s] (m, K, d) of the states where demonstrations start."""
        K, d = self.thetas.shape
        found, steps = np.empty((self.starts.size, K, d)), _steps(self.prepared, d)
        for j in range(d):
            move = steps[j] * np.eye(d)[j]
            log_Z = self.prepared.path_sums.log_partition_by_start(np.vstack([self.thetas + move, self.thetas - move]))
            found[:, :, j] = (log_Z[self.starts, :K] - log_Z[self.starts, K:]) / (2.0 * steps[j])
        return found

    def blocks(self) -> Iterator[Block]:
        """Yield scores (b, K, d) with the units that they are of."""
        K, d = self.thetas.shape
        features, flat = self.features, self.expected.reshape(-1, K * d)
        for units in _slices(len(self.prepared.units), K * d):
            yield units, features[units, None, :] - np.asarray(self.counts[units] @ flat).reshape(-1, K, d)

    def curvature(self, U: FloatArray) -> FloatArray:
        """Return (K, d, d): sum_i u_ik times minus the Hessian of log p_ik, which is a covariance of features."""
        engine, weights = self.prepared.path_sums, np.asarray(self.counts.T @ U)
        found = np.empty((U.shape[1], self.thetas.shape[1], self.thetas.shape[1]))
        for k, theta in enumerate(self.thetas):
            total, starts = weights[:, k].sum(), None
            if engine.by_start:
                starts = np.zeros(engine.mdp.n_states)
                # An intent that nobody at all follows has no information; any distribution will do.
                starts[self.starts] = weights[:, k] / total if total > 0.0 else 1.0 / self.starts.size
            found[k] = total * engine.covariance(theta, starts=starts)
        return found


class DifferenceScores:
    """Scores by central differences of log-probabilities, for any model that has `log_prob`.

    Parameters
    ----------
    prepared : FitProblem
    thetas : (K, d)
    free : (K, d)
        Which parameters to move; scores of the others are left 0.
    """

    def __init__(self, prepared: FitProblem, thetas: FloatArray, free: BoolArray) -> None:
        self.prepared, self.thetas, self.free = prepared, thetas, free

    def blocks(self) -> Iterator[Block]:
        """Yield scores (b, K, d) with the units that they are of."""
        K, d = self.thetas.shape
        steps = _steps(self.prepared, d)
        for units in _slices(len(self.prepared.units), K * d):
            part, found = _part(self.prepared, units), np.zeros((units.stop - units.start, K, d))
            for j in range(d):
                move = np.zeros((K, d))
                move[:, j] = steps[j] * self.free[:, j]
                found[:, :, j] = self._slope(part, move) / (2.0 * steps[j])
            yield units, found

    def _slope(self, part: FitProblem, move: FloatArray) -> FloatArray:
        """Return (b, K): the rise of log-probabilities from thetas - move to thetas + move; of less where need be."""
        low, high = np.array([self._ends(k, move) for k in range(len(self.thetas))]).T
        with np.errstate(invalid="ignore"):  # -inf - -inf: impossible for this intent wherever theta is
            rise = part.log_prob(self.thetas + high[:, None] * move) - part.log_prob(self.thetas + low[:, None] * move)
        apart = np.where(high > low, high - low, np.inf)
        return np.where(np.isfinite(rise), rise, 0.0) * 2.0 / apart

    def _ends(self, k: int, move: FloatArray) -> tuple[float, float]:
        """Return between which shares of a move to look at intent k; at the very edge both are on one side, or 0."""
        theta, own = self.thetas[k : k + 1], move[k : k + 1]
        for low, high in ((1.0, 1.0), (1.0, 0.0), (0.0, 1.0)):
            for share in _SHARES:
                reach = _ROOM * share * own
                if self.prepared.finite(theta + high * reach) and self.prepared.finite(theta - low * reach):
                    return -low * share, high * share
        return 0.0, 0.0

    def curvature(self, U: FloatArray) -> None:
        """Return None: second derivatives are not known."""
        del U


Scores = ExactScores | DifferenceScores


def scores(prepared: FitProblem, thetas: FloatArray, free: BoolArray) -> Scores:
    """Return the scores that a model offers; `free` (K, d) are the parameters whose scores are wanted."""
    rows = isinstance(prepared, MaxEntProblem) and isinstance(prepared.statistics, RowStatistics)
    if isinstance(prepared, MaxEntProblem) and rows and (prepared.observed is None or prepared.observed.fixed):
        return ExactScores(prepared, thetas)
    return DifferenceScores(prepared, thetas, free)


def _steps(prepared: FitProblem, d: int) -> FloatArray:
    """Return (d,) how far to move each parameter: features may be in any unit."""
    features = prepared.features()
    if features.shape[1] != d:  # the model clusters in another space than that of its parameters
        return np.full(d, _MOVE)
    size = np.sqrt(np.mean(features**2, axis=0))
    return np.asarray(_MOVE / np.where(size > 0.0, size, 1.0))


def _slices(n: int, width: int) -> Iterator[slice]:
    size = max(1, int(_BLOCK_BYTES / (8 * width)))
    return (slice(lo, min(lo + size, n)) for lo in range(0, n, size))


def _part(prepared: FitProblem, which: slice) -> FitProblem:
    """Return some of the units under the same model."""
    units = prepared.units
    if which == slice(0, len(units)):
        return prepared
    if units.index is None:
        rows, index = np.arange(which.start, which.stop), None
    else:
        rows = np.flatnonzero((units.index >= which.start) & (units.index < which.stop))
        index = units.index[rows] - which.start
    demos, some = prepared.demos[rows], Groups(index, units.counts[which], units.names[which], units.each)
    if isinstance(prepared, MaxEntProblem):  # its own `make_problem` would settle the largest length anew
        return MaxEntProblem.from_demos(prepared.model, prepared.mdp, demos, some, prepared.path_sums)
    return FitProblem(prepared.model, prepared.mdp, demos, some)


# A direction involves a parameter whose component of it is larger than this.
_INVOLVED = 1e-6
# A parameter is lost to directions without effect whose component of them, of a length of 1, is larger than this. Less
# is told in the gauge that the fit has chosen: with a discount of 0.99 a reward of 1 more for every step and of 100
# more for the end changes nothing, and all but the reward of the end are known to a hundredth of that.
_LOST = 0.1
# A solver may leave this much between a reward and the bound that holds it.
AT_BOUND = 1e-10
# Components of null directions that count as zero when directions are sought that leave bounds alone.
_ZERO = 1e-8
# Information in a direction, relative to that of its parameters one by one, that counts as none.
_FLAT = 1e-9


@dataclass(frozen=True, eq=False)
class StandardErrors:
    """How well the parameters of a mixture are known.

    Attributes
    ----------
    weights : (K,)
        Standard errors of the shares; nan for an empty intent, or where the likelihood is flat.
    thetas : (K, d)
        Standard errors of the rewards, nan where there is none.
    status : (K, d) of str
        "ok"; or why there is none: "bound" (the reward lies on a bound), "not identified" (moving it with others, none
        of them ten times as far, leaves every trajectory's probability unchanged), "up to scale" (only proportions
        matter to the model, which has scaled them), "empty" (hardly anybody follows the
        intent), or "flat" (the likelihood has no peak there: fewer intents, more demonstrations, or more iterations of
        EM).
    covariance : (K + K d, K + K d)
        Of the weights, then of the thetas row by row; nan for what has no error.
    n_free : int
        Number of free parameters: shares less one, and the directions of reward that are neither on a bound nor
        without effect. BIC and AIC count these.
    """

    weights: FloatArray
    thetas: FloatArray
    status: NDArray[np.str_]
    covariance: FloatArray = field(repr=False)
    n_free: int


class FreeParameters(NamedTuple):
    """What may move: status (K, d), occupied intents (K,), and a basis (K + K d, n_free) of the directions left."""

    status: NDArray[np.str_]
    occupied: BoolArray
    basis: FloatArray

    @property
    def n_free(self) -> int:
        """Number of free parameters."""
        return int(self.basis.shape[1])


def standard_errors(prepared: FitProblem, rho: FloatArray, thetas: FloatArray) -> StandardErrors:
    """Return standard errors of shares rho (K,) and rewards thetas (K, d) that were fitted to units.

    Examples
    --------
    Of four demonstrations, three go on: the log-odds are log 3, and their variance is 1 / (4 * 3/4 * 1/4).

    >>> from limiirl import MDP, Demonstrations, MaxEnt
    >>> from limiirl.irl.problem import make_problem
    >>> mdp = MDP.from_edges([0], [1], p0=[1, 0], state_features=[[0], [1]])
    >>> demos = Demonstrations.from_lists([[0], [0, 1], [0, 1], [0, 1]])
    >>> ready = make_problem(MaxEnt(max_length=2, bounds=None), mdp, demos)
    >>> found = standard_errors(ready, np.ones(1), np.array([[np.log(3)]]))
    >>> found.thetas.round(4), found.status, found.n_free
    (array([[1.1547]]), array([['ok']], dtype='<U14'), 1)
    """
    free = free_parameters(prepared.model, prepared.mdp, rho, thetas, len(prepared.units))
    moving = np.isin(free.status, ("ok", "not identified", "up to scale"))
    observed, complete = _informations(prepared, rho, thetas, moving)
    covariance, flat = _invert(free.basis.T @ observed @ free.basis, (free.basis**2).T @ complete)
    covariance = free.basis @ covariance @ free.basis.T
    lost = np.any(np.abs(free.basis[:, flat]) > _INVOLVED, axis=1)
    K = len(rho)
    status = np.where((free.status == "ok") & lost[K:].reshape(thetas.shape), "flat", free.status)
    without = np.concatenate([lost[:K] | ~free.occupied, (status != "ok").ravel()])
    covariance[without] = covariance[:, without] = np.nan
    errors = np.sqrt(np.diag(covariance))
    return StandardErrors(errors[:K], errors[K:].reshape(thetas.shape), status, covariance, free.n_free)


def information(prepared: FitProblem, rho: FloatArray, thetas: FloatArray, free: BoolArray | None = None) -> FloatArray:
    """Return the observed information (K + K d, K + K d) of rho, then of thetas row by row.

    Shares are treated as K separate numbers; what is meant is its restriction to changes that sum to 0. A ridge adds
    its curvature. Where second derivatives are not known (another model than MaxEnt, or unrecorded actions whose
    features differ), it is the sum of sbar_i sbar_i', which has the same expectation if the model is right. Units go
    through it in blocks: scores (block, K, d) and (K d)^2 numbers are all that it adds to responsibilities.

    Parameters
    ----------
    free : (K, d), optional
        Which rewards are of interest, all by default; rows of the others may be left 0.
    """
    return _informations(prepared, rho, thetas, np.ones(thetas.shape, dtype=bool) if free is None else free)[0]


def _informations(
    prepared: FitProblem, rho: FloatArray, thetas: FloatArray, free: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """Return the observed information, and the diagonal of what it would be if everybody's intent were known."""
    K, d = thetas.shape
    U = np.zeros((len(prepared.units), K))
    prepared.e_step(rho, thetas, U)
    derived = scores(prepared, thetas, free)
    curvature = derived.curvature(U)
    found = np.diag(np.concatenate([np.zeros(K), _penalty_curvature(prepared, thetas).ravel()]))
    complete = np.diag(found).copy()
    for units, score in derived.blocks():
        u = U[units]
        weighted = u[:, :, None] * score
        mean = np.hstack([u / rho, weighted.reshape(len(u), K * d)])
        found += mean.T @ mean
        complete += np.concatenate([(u / rho**2).sum(axis=0), (weighted * score).sum(axis=0).ravel()])
        if curvature is None:
            continue
        for k in range(K):
            own = slice(K + k * d, K + (k + 1) * d)
            found[own, own] -= weighted[:, k].T @ score[:, k]
            # Of rho_k with itself, u B and u s s' are both u / rho_k^2, and cancel.
            cross = weighted[:, k].sum(axis=0) / rho[k]
            found[k, own] -= cross
            found[own, k] -= cross
    if curvature is not None:
        found[K:, K:] += block_diag(*curvature)
    return np.asarray(0.5 * (found + found.T)), complete


def _penalty_curvature(prepared: FitProblem, thetas: FloatArray) -> FloatArray:
    """Return (K, d): second differences of the penalty, exact for a ridge, which is a sum of squares."""
    found, here = np.zeros(thetas.shape), prepared.penalty(thetas)
    if here == 0.0 and prepared.penalty(thetas + 1.0) == 0.0:
        return found
    for index in np.ndindex(*thetas.shape):
        move = np.zeros(thetas.shape)
        move[index] = 1.0
        found[index] = prepared.penalty(thetas + move) - 2.0 * here + prepared.penalty(thetas - move)
    return found


def free_parameters(model: Any, mdp: Any, rho: FloatArray, thetas: FloatArray, n_units: int) -> FreeParameters:
    """Return which parameters may move, and a basis of the directions in which they do.

    A model that knows directions without effect says so by a method `null_directions(mdp, theta)`, which is called once
    for all intents if the model's `null_directions_vary` is False: theta then does not matter.
    """
    K, d = thetas.shape
    box = validate.box(getattr(model, "bounds", None), [f"parameter {j}" for j in range(d)])
    occupied = ~nearly_empty(rho * n_units, n_units) & (rho > SMALLEST_WEIGHT * (1.0 + 1e-6))
    status = np.full((K, d), "not identified")  # the longest, so that all fit
    blocks = [_tangent(occupied)]
    nulls = _null_directions(model, mdp, thetas, occupied)
    for k, theta in enumerate(thetas):
        if not occupied[k]:
            status[k] = "empty"
            blocks.append(np.empty((d, 0)))
            continue
        inside = (theta > box.lower + AT_BOUND) & (theta < box.upper - AT_BOUND)
        basis, lost = _identified(nulls[k], inside)
        status[k] = np.where(inside, np.where(lost, getattr(model, "null_status", "not identified"), "ok"), "bound")
        blocks.append(basis)
    return FreeParameters(status, occupied, np.asarray(block_diag(*blocks)))


def _null_directions(model: Any, mdp: Any, thetas: FloatArray, wanted: BoolArray) -> list[FloatArray]:
    """Return for each of thetas (K, d) that is wanted (K,) a basis (m, d) of its null directions, else none.

    Where theta does not matter they are found once: in a causal model that takes a linear system in all states.
    """
    K, d = thetas.shape
    found = getattr(model, "null_directions", None)
    if found is None:
        return [np.empty((0, d))] * K
    if getattr(model, "null_directions_vary", True):
        return [found(mdp, thetas[k]) if wanted[k] else np.empty((0, d)) for k in range(K)]
    return [found(mdp, thetas[0])] * K


def _tangent(occupied: BoolArray) -> FloatArray:
    """Return (K, m - 1): an orthonormal basis of changes of the m occupied shares that sum to 0; none is privileged."""
    m = int(np.count_nonzero(occupied))
    found = np.zeros((occupied.size, max(m - 1, 0)))
    if m > 1:
        found[occupied] = helmert(m).T
    return found


def _identified(null: FloatArray, inside: BoolArray) -> tuple[FloatArray, BoolArray]:
    """Return a basis (d, r) of the directions that move only rewards inside their bounds and have an effect.

    And which rewards (d,) are lost to the directions without effect. These directions are null ones that leave the
    rewards on bounds alone. A reward that none of them involves is a basis vector of its own.
    """
    if null.shape[0]:
        _, size, mixes = np.linalg.svd(null[:, ~inside].T)
        null = mixes[np.count_nonzero(size > _ZERO) :] @ null
    length = np.linalg.norm(null, axis=0)
    involved, lost = inside & (length > _INVOLVED), inside & (length > _LOST)
    alone = np.eye(inside.size)[:, inside & ~involved]
    rest = np.zeros((inside.size, np.count_nonzero(involved) - null.shape[0]))
    if np.any(involved):
        rest[involved] = np.linalg.svd(null[:, involved])[2][null.shape[0] :].T
    return np.hstack([alone, rest]), lost


def _invert(matrix: FloatArray, complete: FloatArray) -> tuple[FloatArray, BoolArray]:
    """Return the inverse of an information (m, m) where it is positive, and the coordinates (m,) where it is not.

    Coordinates are first scaled to an information of 1 each, so that units do not matter. Where next to nothing is left
    of the complete data's information (m,), what is left is rounding.
    """
    diagonal = np.diag(matrix)
    scale = np.sqrt(np.where(diagonal > _FLAT * complete, diagonal, np.where(complete > 0.0, complete, 1.0)))
    values, vectors = np.linalg.eigh(matrix / np.outer(scale, scale))
    good = values > _FLAT
    flat = np.linalg.norm(vectors[:, ~good], axis=1) > _INVOLVED
    inverse = (vectors[:, good] / values[good]) @ vectors[:, good].T
    return inverse / np.outer(scale, scale), flat
