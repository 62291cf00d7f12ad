"""How the log-likelihood of weighted demonstrations changes with an intent's rewards, for any single-intent model.

MaxEnt and the causal models know their gradients. Any other model is asked for log-probabilities on either side.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from limiirl.errors import DivergentPartition, InvalidParameter, NumericalError
from limiirl.irl import choice_likelihood, likelihood
from limiirl.irl.choice_likelihood import ChoiceLikelihood
from limiirl.irl.engine import FiniteEngine
from limiirl.irl.likelihood import PathLikelihood
from limiirl.irl.prepared import Prepared
from limiirl.irl.prepared_causal import PreparedCausal
from limiirl.irl.prepared_maxent import PreparedMaxEnt
from limiirl.irl.prepared_sigma import PreparedSigma
from limiirl.mixture.bayesian_prior import Prior

Float = NDArray[np.float64]
Int = NDArray[np.intp]
Loss = Callable[[Float, Int], tuple[Float, Float]]
# Columns of thetas at a time. MaxEnt's finite engine compiles its loops for each number of columns that it meets, so
# that it is always given as many: the last ones are repeated.
_COLUMNS = 16
# Normal scores that stand for those of a bound.
_FARTHEST = 6.0
# How far a parameter moves in a central difference, relative to the scale of its prior.
_MOVE = 1e-5


def loss(prepared: Prepared, U: Float, scale: float) -> Loss:
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
    >>> from limiirl.irl.prepared import prepare
    >>> mdp = MDP.from_edges([0], [1], p0=[1, 0], state_features=[[0], [1]])
    >>> ready = prepare(MaxEnt(max_length=2), mdp, Demonstrations.from_lists([[0], [0, 1], [0, 1]]))
    >>> loss(ready, np.ones((3, 1)), 10.0)(np.zeros((1, 1)), np.array([0]))[1]  # three halves expected, two seen
    array([[-0.5]])
    """
    counts = prepared.units.counts @ U
    if isinstance(prepared, PreparedMaxEnt):
        demonstrated = prepared.evidence.demonstrated(prepared.units.spread(U))
        path = PathLikelihood(prepared.engine, prepared.evidence, demonstrated, np.zeros(U.shape[1]))
        return _scaled(prepared, path.evaluate, counts)
    if isinstance(prepared, PreparedCausal):
        totals = prepared.events.total(U)
        choice = ChoiceLikelihood(prepared.engine, prepared.events, totals, counts, np.zeros(U.shape[1]))
        return _scaled(prepared, choice.evaluate, counts)
    return lambda thetas, which: _by_differences(prepared, U, thetas, which, _MOVE * scale)


def check_model(prepared: Prepared) -> None:
    """Refuse a model whose parameters have no Gaussian posterior."""
    if isinstance(prepared, PreparedSigma):
        raise InvalidParameter(
            "A Bayesian mixture needs a likelihood with a peak in every direction of its rewards; SigmaGIRL's depends "
            "on their proportions alone. Use IntentMixture, or MaxEnt, MaxCausalEnt or MLIRL."
        )


def blocks(prepared: Prepared, n: int) -> list[Int]:
    """Return the columns 0 to n - 1 in blocks; what comes after n of them is padding."""
    compiled = isinstance(prepared, PreparedMaxEnt) and isinstance(prepared.engine, FiniteEngine)
    padded = -(-n // _COLUMNS) * _COLUMNS if compiled else n
    columns = np.minimum(np.arange(padded), n - 1)
    return [columns[lo : lo + _COLUMNS] for lo in range(0, padded, _COLUMNS)]


def _scaled(prepared: Prepared, evaluate: Loss, counts: Float) -> Loss:
    """Return a mean over demonstrations as a sum, evaluated so many columns at a time."""

    def total(thetas: Float, which: Int) -> tuple[Float, Float]:
        n = len(which)
        parts = [evaluate(thetas[some], which[some]) for some in blocks(prepared, n)]
        values, gradients = (np.concatenate([part[i] for part in parts])[:n] for i in (0, 1))
        return values * counts[which], gradients * counts[which, None]

    return total


def log_probs(prepared: Prepared, thetas: Float) -> Float:
    """Return the log-probability (G, J) of each unit under each of thetas (J, d); -inf where sums are infinite."""
    parts = [_log_probs(prepared, thetas[some]) for some in blocks(prepared, len(thetas))]
    return np.hstack(parts)[:, : len(thetas)]


def _log_probs(prepared: Prepared, thetas: Float) -> Float:
    try:
        return prepared.log_prob(thetas)
    except (DivergentPartition, NumericalError):
        if len(thetas) == 1:
            return np.full((len(prepared.units), 1), -np.inf)
        return np.hstack([_log_probs(prepared, theta[None]) for theta in thetas])


def finite_scores(prepared: Prepared, prior: Prior) -> Float:
    """Return normal scores (d,) at which log-probabilities are finite: those of the prior's median, if they are.

    Sums over walks of any length are not, where rewards are too high; the model then knows where to begin.

    Examples
    --------
    >>> from limiirl import MDP, Demonstrations, MaxEnt
    >>> from limiirl.irl.prepared import prepare
    >>> mdp = MDP.from_edges([0, 0], [0, 1], p0=[1, 0], state_features=[[1], [0]])
    >>> ready = prepare(MaxEnt(np.inf, bounds=None), mdp, Demonstrations.from_lists([[0, 0, 1]]))
    >>> finite_scores(ready, Prior(ready.box(1), 10.0))  # a step back to 0 has to cost something
    array([-0.1])
    """
    start = np.zeros(prior.box.lower.size)
    if _is_finite(prepared, prior.theta(start)):
        return start
    if isinstance(prepared, PreparedMaxEnt):
        theta = likelihood.feasible_start(prepared.engine, prior.box)
    elif isinstance(prepared, PreparedCausal):
        theta = choice_likelihood.feasible_start(prepared.engine, prepared.events, prior.box)
    else:
        return start
    # A bound is infinitely far away; this is near it, and where it has been seen to do.
    found = np.clip(prior.score(theta), -_FARTHEST, _FARTHEST)
    return found if _is_finite(prepared, prior.theta(found)) else start


def _is_finite(prepared: Prepared, theta: Float) -> bool:
    everybody = loss(prepared, np.ones((len(prepared.units), 1)), 1.0)
    return bool(np.isfinite(everybody(theta[None], np.array([0]))[0][0]))


def _by_differences(prepared: Prepared, U: Float, thetas: Float, which: Int, move: float) -> tuple[Float, Float]:
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
