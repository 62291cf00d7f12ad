"""The E-step of a mixture in one pass over the data: responsibilities, their change, the likelihood, and moments.

Rows are independent and go to threads in blocks; sums are kept for each block and added up in the order of the blocks,
so that the number of threads changes no bit of them. Everything is written where it is read, so that a pass streams
through memory once whatever N is.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit, prange

from limiirl._typing import FloatArray
from limiirl.kernels.threading import BLOCK, LOCK, ONLY_PRANGE


class Rows(NamedTuple):
    """Log-probabilities that are linear in theta: row i has theta . features[i] + log_q[i] - counts[i] log Z."""

    features: FloatArray
    log_q: FloatArray
    counts: FloatArray

    def log_prob(self, thetas: FloatArray, log_Z: FloatArray) -> FloatArray:
        """Return (n, K): the log-probability of each row under rewards (K, d) whose log Z is (K,)."""
        return np.asarray(self.features @ thetas.T + self.log_q[:, None] - np.outer(self.counts, log_Z))


class EStepSums(NamedTuple):
    """What a pass adds up: log-likelihood, change of U, sizes (K,), moments (K, d), and a row without hope, or -1."""

    log_likelihood: float
    change: float
    sizes: FloatArray
    moments: FloatArray
    bad_row: int


class Blocks(NamedTuple):
    """The same sums for each block of rows, in order: (B, 3 + K), (B, K, d), and counts U' (B, K).

    Blocks of one table may come from several passes over pieces of it, as long as all pieces but the last have a
    multiple of `BLOCK` rows: `total` adds them up as if it had been one pass.
    """

    sums: FloatArray
    moments: FloatArray
    counts: FloatArray

    def total(self) -> EStepSums:
        """Return the sums over all blocks."""
        bad = self.sums[self.sums[:, 2] >= 0, 2]
        return EStepSums(
            float(self.sums[:, 0].sum()),
            float(self.sums[:, 1].sum()),
            self.sums[:, 3:].sum(axis=0),
            self.moments.sum(axis=0),
            int(bad[0]) if bad.size else -1,
        )


class MixtureParameters(NamedTuple):
    """An ensemble as a pass needs it: rewards (K, d), log Z (K,), log shares (K,), and one over the temperature."""

    thetas: FloatArray
    log_Z: FloatArray
    log_rho: FloatArray
    inverse_temperature: float = 1.0


@njit(forceinline=True, error_model="numpy")
def _log_joint(features: Any, log_p: Any, log_q: Any, counts: Any, thetas: Any, offset: Any, i: int, k: int) -> float:
    if features is None:
        return log_p[i, k]
    total = log_q[i] - counts[i] * offset[k]
    for j in range(thetas.shape[1]):
        total += features[i, j] * thetas[k, j]
    return total


@njit(forceinline=True, error_model="numpy")
def _normalise(log_joint: Any, log_rho: Any, inverse_temperature: float, shares: Any) -> float:
    """Turn log-probabilities (K,) into shares (K,); return the log of the mixture, or nan where there is none."""
    K = log_joint.size
    top = -np.inf
    for k in range(K):
        log_joint[k] += log_rho[k]
        if log_joint[k] != log_joint[k]:
            return np.nan
        top = max(top, log_joint[k])
    if not -np.inf < top < np.inf:
        return np.nan
    total, cooled = 0.0, 0.0
    for k in range(K):
        weight = np.exp(log_joint[k] - top)
        total += weight
        shares[k] = weight if inverse_temperature == 1.0 else np.exp(inverse_temperature * (log_joint[k] - top))
        cooled += shares[k]
    for k in range(K):
        shares[k] /= cooled
    return float(top + np.log(total))


@njit(cache=True, error_model="numpy")
def _block(
    features: Any,
    log_p: Any,
    log_q: Any,
    counts: Any,
    thetas: Any,
    offset: Any,
    log_rho: Any,
    inverse_temperature: float,
    U: Any,
    sums: Any,
    moments: Any,
    lo: int,
    hi: int,
) -> None:
    K = log_rho.size
    log_joint, shares = np.empty(K), np.empty(K)
    sums[2] = -1.0
    for i in range(lo, hi):
        for k in range(K):
            log_joint[k] = _log_joint(features, log_p, log_q, counts, thetas, offset, i, k)
        found = _normalise(log_joint, log_rho, inverse_temperature, shares)
        if found != found:
            sums[2] = i
            return
        sums[0] += found
        for k in range(K):
            sums[1] += abs(shares[k] - U[i, k])
            U[i, k] = shares[k]
            sums[3 + k] += shares[k]
            if features is not None:
                for j in range(features.shape[1]):
                    moments[k, j] += shares[k] * features[i, j]


@njit(parallel=ONLY_PRANGE, cache=True, error_model="numpy")
def _blocks(
    features: Any,
    log_p: Any,
    log_q: Any,
    counts: Any,
    thetas: Any,
    offset: Any,
    log_rho: Any,
    inverse_temperature: float,
    U: Any,
    sums: Any,
    moments: Any,
) -> None:
    n = U.shape[0]
    for b in prange(sums.shape[0]):
        lo, hi = b * BLOCK, min(n, (b + 1) * BLOCK)
        _block(
            features, log_p, log_q, counts, thetas, offset, log_rho, inverse_temperature, U, sums[b], moments[b], lo, hi
        )


def e_step(
    rows: Rows | FloatArray,
    thetas: FloatArray,
    log_Z: FloatArray,
    log_rho: FloatArray,
    U: FloatArray,
    inverse_temperature: float = 1.0,
) -> EStepSums:
    """Overwrite responsibilities U (N, K) with u_ik in proportion to (rho_k p_ik)^inverse_temperature, and sum up.

    Parameters
    ----------
    rows : Rows, or (N, K)
        What the log-probabilities are computed from, or the log-probabilities themselves; moments are then zero.
    thetas, log_Z : (K, d), (K,)
        Used with `Rows` only.
    U : (N, K)
        The responsibilities before; the change is measured from them.

    Examples
    --------
    >>> U = np.zeros((2, 2))
    >>> found = e_step(np.log([[0.2, 0.6], [0.5, 0.5]]), np.empty((2, 0)), np.empty(2), np.log([0.5, 0.5]), U)
    >>> U.round(2).tolist(), round(found.log_likelihood, 4), found.change, found.sizes.tolist()
    ([[0.25, 0.75], [0.5, 0.5]], -1.6094, 2.0, [0.75, 1.25])
    """
    K = log_rho.size
    data: tuple[Any, ...] = (None, rows, None, None)
    if isinstance(rows, Rows):
        # Numba leaves out a branch only for an argument that is None: beside features, the table is there but empty.
        data = (rows.features, np.empty((0, 0)), rows.log_q, rows.counts)
    sums, moments, counts = _empty_blocks(U.shape[0], K, 0 if data[0] is None else data[0].shape[1])
    arguments = (*data, thetas, log_Z, log_rho, float(inverse_temperature), U)
    if len(sums) > 1:
        with LOCK:
            _blocks(*arguments, sums, moments)
    else:
        _block(*arguments, sums[0], moments[0], 0, U.shape[0])
    return Blocks(sums, moments, counts).total()


def _empty_blocks(n: int, n_intents: int, n_features: int) -> Blocks:
    n_blocks = max(1, -(-n // BLOCK))
    shapes = ((n_blocks, 3 + n_intents), (n_blocks, n_intents, n_features), (n_blocks, n_intents))
    return Blocks(*(np.zeros(shape) for shape in shapes))


@njit(cache=True, error_model="numpy")
def _weigh_block(features: Any, U: Any, moments: Any, lo: int, hi: int) -> None:
    for i in range(lo, hi):
        for k in range(U.shape[1]):
            for j in range(features.shape[1]):
                moments[k, j] += U[i, k] * features[i, j]


@njit(parallel=ONLY_PRANGE, cache=True, error_model="numpy")
def _weigh_blocks(features: Any, U: Any, moments: Any) -> None:
    n = U.shape[0]
    for b in prange(moments.shape[0]):
        _weigh_block(features, U, moments[b], b * BLOCK, min(n, (b + 1) * BLOCK))


def weighted_sums(features: FloatArray, U: FloatArray) -> FloatArray:
    """Return the moments U' features (K, d), added up in the order in which `e_step` does it.

    Examples
    --------
    >>> weighted_sums(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0, 0.5], [0.0, 0.5]])).tolist()
    [[1.0, 2.0], [2.0, 3.0]]
    """
    n_blocks = max(1, -(-U.shape[0] // BLOCK))
    moments = np.zeros((n_blocks, U.shape[1], features.shape[1]))
    if n_blocks > 1:
        with LOCK:
            _weigh_blocks(features, U, moments)
    else:
        _weigh_block(features, U, moments[0], 0, U.shape[0])
    return np.asarray(moments.sum(axis=0))


@njit(cache=True, error_model="numpy")
def _fill(features: Any, log_q: Any, counts: Any, ensemble: Any, U: Any, lo: int) -> None:
    """Write the responsibilities of the rows from `lo` on, as many as U has."""
    thetas, offset, log_rho, inverse_temperature = ensemble
    K = log_rho.size
    log_joint, shares, no_table = np.empty(K), np.empty(K), np.empty((0, 0))
    for i in range(U.shape[0]):
        for k in range(K):
            log_joint[k] = _log_joint(features, no_table, log_q, counts, thetas, offset, lo + i, k)
        _normalise(log_joint, log_rho, inverse_temperature, shares)
        for k in range(K):
            U[i, k] = shares[k]


@njit(parallel=ONLY_PRANGE, cache=True, error_model="numpy")
def _streamed_blocks(
    features: Any, log_q: Any, counts: Any, now: Any, before: Any, sums: Any, moments: Any, weighed: Any
) -> None:
    n, K = features.shape[0], now[2].size
    thetas, offset, log_rho, inverse_temperature = now
    for b in prange(sums.shape[0]):
        lo, hi = b * BLOCK, min(n, (b + 1) * BLOCK)
        U, no_table = np.zeros((hi - lo, K)), np.empty((0, 0))
        if before is not None:
            _fill(features, log_q, counts, before, U, lo)
        some = (features[lo:hi], no_table, log_q[lo:hi], counts[lo:hi])
        _block(*some, thetas, offset, log_rho, inverse_temperature, U, sums[b], moments[b], 0, hi - lo)
        if sums[b, 2] >= 0:
            sums[b, 2] += lo
        column = weighed[b].reshape((K, 1))
        _weigh_block(counts[lo:hi].reshape((hi - lo, 1)), U, column, 0, hi - lo)


def e_step_streamed(rows: Rows, now: MixtureParameters, before: MixtureParameters | None) -> Blocks:
    """Return the sums of an E-step that keeps no responsibilities: a block's are made, summed up and forgotten.

    Those before, from which the change is measured, are made anew from the ensemble before; without any, the change is
    1 a row. Every number is the one that `e_step` finds, to the last bit.

    Examples
    --------
    >>> rows = Rows(np.array([[0.0], [1.0]]), np.zeros(2), np.ones(2))
    >>> one, other = (MixtureParameters(np.array([[a], [0.0]]), np.zeros(2), np.log([0.5, 0.5])) for a in (1.0, 2.0))
    >>> found = e_step_streamed(rows, other, one).total()
    >>> round(found.log_likelihood, 4), round(found.change, 4), found.sizes.round(4).tolist()
    (1.4338, 0.2995, [1.3808, 0.6192])
    """
    found = _empty_blocks(len(rows.features), now.log_rho.size, rows.features.shape[1])
    if len(rows.features):
        with LOCK:
            _streamed_blocks(*rows, now, before, *found)
    return found
