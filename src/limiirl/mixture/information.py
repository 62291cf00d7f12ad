r"""How well a mixture's parameters are known: its observed information, and standard errors from it.

By Louis' identity the information that demonstrations hold is what they would hold if intents were known, less what is
missing because they are not:

    I = sum_i [ sum_k u_ik B_ik - sum_k u_ik s_ik s_ik' + sbar_i sbar_i' ],     sbar_i = sum_k u_ik s_ik

with s_ik and B_ik the gradient and minus the Hessian of log rho_k + log p_ik in (rho, thetas). The first term alone,
the information of the M-step, gives errors that are too small wherever intents overlap.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag, helmert

from limiirl.irl import checks
from limiirl.irl.prepared import Prepared
from limiirl.mixture.derivatives import scores
from limiirl.mixture.em import SMALLEST_SHARE, few

Float = NDArray[np.float64]
Mask = NDArray[np.bool_]
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

    weights: Float
    thetas: Float
    status: NDArray[np.str_]
    covariance: Float = field(repr=False)
    n_free: int


class Free(NamedTuple):
    """What may move: status (K, d), occupied intents (K,), and a basis (K + K d, n_free) of the directions left."""

    status: NDArray[np.str_]
    occupied: Mask
    basis: Float

    @property
    def n_free(self) -> int:
        """Number of free parameters."""
        return int(self.basis.shape[1])


def standard_errors(prepared: Prepared, rho: Float, thetas: Float) -> StandardErrors:
    """Return standard errors of shares rho (K,) and rewards thetas (K, d) that were fitted to units.

    Examples
    --------
    Of four demonstrations, three go on: the log-odds are log 3, and their variance is 1 / (4 * 3/4 * 1/4).

    >>> from limiirl import MDP, Demonstrations, MaxEnt
    >>> from limiirl.irl.prepared import prepare
    >>> mdp = MDP.from_edges([0], [1], p0=[1, 0], state_features=[[0], [1]])
    >>> demos = Demonstrations.from_lists([[0], [0, 1], [0, 1], [0, 1]])
    >>> ready = prepare(MaxEnt(max_length=2, bounds=None), mdp, demos)
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


def information(prepared: Prepared, rho: Float, thetas: Float, free: Mask | None = None) -> Float:
    """Return the observed information (K + K d, K + K d) of rho, then of thetas row by row.

    Shares are treated as K separate numbers; what is meant is its restriction to changes that sum to 0. A ridge adds
    its curvature. Where second derivatives are not known (another model than MaxEnt, or unrecorded actions whose
    features differ), it is the sum of sbar_i sbar_i', which has the same expectation if the model is right. Units go
    through it in blocks: scores (block, K, d) and (K d)^2 numbers are all that it adds to responsibilities.

    Parameters
    ----------
    free : (K, d), optional
        Which rewards are of interest, all by default; rows of the others may be left 0.

    Examples
    --------
    >>> from limiirl import MDP, Demonstrations, MaxEnt
    >>> from limiirl.irl.prepared import prepare
    >>> mdp = MDP.from_edges([0], [1], p0=[1, 0], state_features=[[0], [1]])
    >>> ready = prepare(MaxEnt(max_length=2, bounds=None), mdp, Demonstrations.from_lists([[0], [0, 1]]))
    >>> information(ready, np.ones(1), np.zeros((1, 1)))[1, 1]  # N times the variance of going on
    np.float64(0.5)
    """
    return _informations(prepared, rho, thetas, np.ones(thetas.shape, dtype=bool) if free is None else free)[0]


def _informations(prepared: Prepared, rho: Float, thetas: Float, free: Mask) -> tuple[Float, Float]:
    """Return the observed information, and the diagonal of what it would be if everybody's intent were known."""
    K, d = thetas.shape
    U = np.zeros((len(prepared.units), K))
    prepared.expect(rho, thetas, U)
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


def _penalty_curvature(prepared: Prepared, thetas: Float) -> Float:
    """Return (K, d): second differences of the penalty, exact for a ridge, which is a sum of squares."""
    found, here = np.zeros(thetas.shape), prepared.penalty(thetas)
    if here == 0.0 and prepared.penalty(thetas + 1.0) == 0.0:
        return found
    for index in np.ndindex(*thetas.shape):
        move = np.zeros(thetas.shape)
        move[index] = 1.0
        found[index] = prepared.penalty(thetas + move) - 2.0 * here + prepared.penalty(thetas - move)
    return found


def free_parameters(model: Any, mdp: Any, rho: Float, thetas: Float, n_units: int) -> Free:
    """Return which parameters may move, and a basis of the directions in which they do.

    A model that knows directions without effect says so by a method `null_directions(mdp, theta)`, which is called once
    for all intents if the model's `null_directions_vary` is False: theta then does not matter.

    Examples
    --------
    >>> from limiirl import MDP, MaxEnt
    >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0])
    >>> found = free_parameters(MaxEnt(max_length=2), mdp, np.ones(1), np.array([[-1.0, -2.0, 0.0]]), 10)
    >>> found.status.tolist(), found.n_free  # everybody starts in state 0; the third lies on the bound 0
    ([['not identified', 'ok', 'bound']], 1)
    """
    K, d = thetas.shape
    box = checks.box(getattr(model, "bounds", None), [f"parameter {j}" for j in range(d)])
    occupied = ~few(rho * n_units, n_units) & (rho > SMALLEST_SHARE * (1.0 + 1e-6))
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
    return Free(status, occupied, np.asarray(block_diag(*blocks)))


def _null_directions(model: Any, mdp: Any, thetas: Float, wanted: Mask) -> list[Float]:
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


def _tangent(occupied: Mask) -> Float:
    """Return (K, m - 1): an orthonormal basis of changes of the m occupied shares that sum to 0; none is privileged."""
    m = int(np.count_nonzero(occupied))
    found = np.zeros((occupied.size, max(m - 1, 0)))
    if m > 1:
        found[occupied] = helmert(m).T
    return found


def _identified(null: Float, inside: Mask) -> tuple[Float, Mask]:
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


def _invert(matrix: Float, complete: Float) -> tuple[Float, Mask]:
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
