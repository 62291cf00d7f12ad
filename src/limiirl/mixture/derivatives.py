"""Scores of units (demonstrations or groups): how each one's log-probability under each intent changes with its reward.

For MaxEnt they are exact: a unit's features less those that the model expects of as many demonstrations. Any other
model is asked for log-probabilities on either side of its parameters.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from limiirl.demos.units import Units
from limiirl.irl.prepared import Prepared
from limiirl.irl.prepared_maxent import PreparedMaxEnt
from limiirl.irl.prepared_rows import PreparedRows

Float = NDArray[np.float64]
Mask = NDArray[np.bool_]
Block = tuple[slice, Float]
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

    Parameters
    ----------
    prepared : PreparedRows
    thetas : (K, d)
    """

    def __init__(self, prepared: PreparedRows, thetas: Float) -> None:
        self.prepared, self.thetas = prepared, thetas
        engine, units = prepared.engine, prepared.units
        if engine.by_start:
            self.starts, column = np.unique(prepared.demos.start_states, return_inverse=True)
            row = np.arange(len(prepared.demos)) if units.index is None else units.index
            ones, shape = np.ones(column.size), (len(units), self.starts.size)
            self.counts = sparse.coo_array((ones, (row, column)), shape=shape).tocsr()
            self.expected = self._by_start()
        else:
            self.counts = sparse.csr_array(units.counts[:, None])
            self.expected = engine.expectation(thetas)[1][None]

    def _by_start(self) -> Float:
        """Return E_k[F | s] (m, K, d) of the states where demonstrations start."""
        K, d = self.thetas.shape
        found, steps = np.empty((self.starts.size, K, d)), _steps(self.prepared, d)
        for j in range(d):
            move = steps[j] * np.eye(d)[j]
            log_Z = self.prepared.engine.log_partition_by_start(np.vstack([self.thetas + move, self.thetas - move]))
            found[:, :, j] = (log_Z[self.starts, :K] - log_Z[self.starts, K:]) / (2.0 * steps[j])
        return found

    def blocks(self) -> Iterator[Block]:
        """Yield scores (b, K, d) with the units that they are of."""
        K, d = self.thetas.shape
        features, flat = self.prepared.rows.features, self.expected.reshape(-1, K * d)
        for units in _slices(len(self.prepared.units), K * d):
            yield units, features[units, None, :] - np.asarray(self.counts[units] @ flat).reshape(-1, K, d)

    def curvature(self, U: Float) -> Float:
        """Return (K, d, d): sum_i u_ik times minus the Hessian of log p_ik, which is a covariance of features."""
        engine, weights = self.prepared.engine, np.asarray(self.counts.T @ U)
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
    prepared : Prepared
    thetas : (K, d)
    free : (K, d)
        Which parameters to move; scores of the others are left 0.
    """

    def __init__(self, prepared: Prepared, thetas: Float, free: Mask) -> None:
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

    def _slope(self, part: Prepared, move: Float) -> Float:
        """Return (b, K): the rise of log-probabilities from thetas - move to thetas + move; of less where need be."""
        low, high = np.array([self._ends(k, move) for k in range(len(self.thetas))]).T
        with np.errstate(invalid="ignore"):  # -inf - -inf: impossible for this intent wherever theta is
            rise = part.log_prob(self.thetas + high[:, None] * move) - part.log_prob(self.thetas + low[:, None] * move)
        apart = np.where(high > low, high - low, np.inf)
        return np.where(np.isfinite(rise), rise, 0.0) * 2.0 / apart

    def _ends(self, k: int, move: Float) -> tuple[float, float]:
        """Return between which shares of a move to look at intent k; at the very edge both are on one side, or 0."""
        theta, own = self.thetas[k : k + 1], move[k : k + 1]
        for low, high in ((1.0, 1.0), (1.0, 0.0), (0.0, 1.0)):
            for share in _SHARES:
                reach = _ROOM * share * own
                if self.prepared.finite(theta + high * reach) and self.prepared.finite(theta - low * reach):
                    return -low * share, high * share
        return 0.0, 0.0

    def curvature(self, U: Float) -> None:
        """Return None: second derivatives are not known."""
        del U


Scores = ExactScores | DifferenceScores


def scores(prepared: Prepared, thetas: Float, free: Mask) -> Scores:
    """Return the scores that a model offers; `free` (K, d) are the parameters whose scores are wanted.

    Examples
    --------
    >>> from limiirl import MDP, Demonstrations, MaxEnt
    >>> from limiirl.irl.prepared import prepare
    >>> mdp = MDP.from_edges([0], [1], p0=[1, 0], state_features=[[0], [1]])
    >>> ready = prepare(MaxEnt(max_length=2), mdp, Demonstrations.from_lists([[0], [0, 1]]))
    >>> [found.ravel().tolist() for _, found in scores(ready, np.zeros((1, 1)), np.ones((1, 1), bool)).blocks()]
    [[-0.5, 0.5]]
    """
    if isinstance(prepared, PreparedRows) and (prepared.evidence is None or prepared.evidence.fixed):
        return ExactScores(prepared, thetas)
    return DifferenceScores(prepared, thetas, free)


def _steps(prepared: Prepared, d: int) -> Float:
    """Return (d,) how far to move each parameter: features may be in any unit."""
    features = prepared.features()
    if features.shape[1] != d:  # the model clusters in another space than that of its parameters
        return np.full(d, _MOVE)
    size = np.sqrt(np.mean(features**2, axis=0))
    return np.asarray(_MOVE / np.where(size > 0.0, size, 1.0))


def _slices(n: int, width: int) -> Iterator[slice]:
    size = max(1, int(_BLOCK_BYTES / (8 * width)))
    return (slice(lo, min(lo + size, n)) for lo in range(0, n, size))


def _part(prepared: Prepared, which: slice) -> Prepared:
    """Return some of the units under the same model."""
    units = prepared.units
    if which == slice(0, len(units)):
        return prepared
    if units.index is None:
        rows, index = np.arange(which.start, which.stop), None
    else:
        rows = np.flatnonzero((units.index >= which.start) & (units.index < which.stop))
        index = units.index[rows] - which.start
    demos, some = prepared.demos[rows], Units(index, units.counts[which], units.names[which], units.each)
    if isinstance(prepared, PreparedMaxEnt):  # its own `prepare` would settle the largest length anew
        return PreparedMaxEnt(prepared.model, prepared.mdp, demos, some, prepared.engine)
    return Prepared(prepared.model, prepared.mdp, demos, some)
