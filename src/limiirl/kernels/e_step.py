"""E-step of a mixture in one pass over the data: responsibilities, their change, the log-likelihood, and moments.

Threads process blocks of rows. Sums are stored per block and added in block order, so that they do not depend on the
number of threads.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit, prange

from limiirl._parallel import BLOCK, LOCK, ONLY_PRANGE
from limiirl._typing import FloatArray


class Rows(NamedTuple):
    """Statistics of n rows with log-probability theta . features[i] + log_q[i] - counts[i] log Z(theta)."""

    features: FloatArray
    log_q: FloatArray
    counts: FloatArray

    def log_prob(self, thetas: FloatArray, log_Z: FloatArray) -> FloatArray:
        """Return the log-probabilities (n, K) of the rows under rewards (K, d) with log-partition values log_Z (K,)."""
        return np.asarray(self.features @ thetas.T + self.log_q[:, None] - np.outer(self.counts, log_Z))


class EStepSums(NamedTuple):
    """Sums of an E-step over all rows.

    `change` is the sum of absolute changes of U, `sizes` (K,) is sum_i u_ik, `moments` (K, d) sum_i u_ik features[i],
    and `bad_row` is the first row whose probability is zero or nan, or -1 if there is none.
    """

    log_likelihood: float
    change: float
    sizes: FloatArray
    moments: FloatArray
    bad_row: int


class Blocks(NamedTuple):
    """Sums of an E-step per block of rows.

    `sums` (B, 3 + K) has the columns log-likelihood, change, bad row and sizes; `moments` is (B, K, d), and `counts`
    (B, K) contains the sums of u_ik counts[i].
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
    """Rewards (K, d), log-partition values (K,), log mixture weights (K,), and inverse temperature of the posterior."""

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
def _normalise(log_joint: Any, log_rho: Any, inverse_temperature: float, posterior: Any) -> float:
    """Set the responsibilities (K,) of a row; return its log-likelihood, or nan if it is not finite."""
    K = log_joint.size
    top = -np.inf
    for k in range(K):
        log_joint[k] += log_rho[k]
        if log_joint[k] != log_joint[k]:
            return np.nan
        top = max(top, log_joint[k])
    if not -np.inf < top < np.inf:
        return np.nan
    total, tempered = 0.0, 0.0
    for k in range(K):
        weight = np.exp(log_joint[k] - top)
        total += weight
        posterior[k] = weight if inverse_temperature == 1.0 else np.exp(inverse_temperature * (log_joint[k] - top))
        tempered += posterior[k]
    for k in range(K):
        posterior[k] /= tempered
    return float(top + np.log(total))


@njit(cache=True, error_model="numpy")
def _block(
    features: Any,
    log_p: Any,
    log_q: Any,
    counts: Any,
    parameters: Any,
    U: Any,
    sums: Any,
    moments: Any,
    lo: int,
    hi: int,
) -> None:
    thetas, offset, log_rho, inverse_temperature = parameters
    K = log_rho.size
    log_joint, posterior = np.empty(K), np.empty(K)
    sums[2] = -1.0
    for i in range(lo, hi):
        for k in range(K):
            log_joint[k] = _log_joint(features, log_p, log_q, counts, thetas, offset, i, k)
        log_likelihood = _normalise(log_joint, log_rho, inverse_temperature, posterior)
        if log_likelihood != log_likelihood:
            sums[2] = i
            return
        sums[0] += log_likelihood
        for k in range(K):
            sums[1] += abs(posterior[k] - U[i, k])
            U[i, k] = posterior[k]
            sums[3 + k] += posterior[k]
            if features is not None:
                for j in range(features.shape[1]):
                    moments[k, j] += posterior[k] * features[i, j]


@njit(parallel=ONLY_PRANGE, cache=True, error_model="numpy")
def _blocks(
    features: Any, log_p: Any, log_q: Any, counts: Any, parameters: Any, U: Any, sums: Any, moments: Any
) -> None:
    n = U.shape[0]
    for b in prange(sums.shape[0]):
        lo, hi = b * BLOCK, min(n, (b + 1) * BLOCK)
        _block(features, log_p, log_q, counts, parameters, U, sums[b], moments[b], lo, hi)


def e_step(
    rows: Rows | FloatArray,
    thetas: FloatArray,
    log_Z: FloatArray,
    log_rho: FloatArray,
    U: FloatArray,
    inverse_temperature: float = 1.0,
) -> EStepSums:
    """Overwrite U (N, K) with responsibilities proportional to (rho_k p_ik)^inverse_temperature; return the sums.

    Parameters
    ----------
    rows : Rows, or (N, K)
        Statistics of the rows, or their log-probabilities. With log-probabilities, the moments have shape (K, 0).
    thetas, log_Z : (K, d), (K,)
        Ignored if `rows` contains log-probabilities.
    U : (N, K)
        Previous responsibilities, used to compute the change; overwritten.

    Examples
    --------
    >>> U = np.zeros((2, 2))
    >>> result = e_step(np.log([[0.2, 0.6], [0.5, 0.5]]), np.empty((2, 0)), np.empty(2), np.log([0.5, 0.5]), U)
    >>> U.round(2).tolist(), round(result.log_likelihood, 4), result.change, result.sizes.tolist()
    ([[0.25, 0.75], [0.5, 0.5]], -1.6094, 2.0, [0.75, 1.25])
    """
    K = log_rho.size
    data: tuple[Any, ...] = (None, rows, None, None)
    if isinstance(rows, Rows):
        # Numba prunes branches only for None; the unused log-probabilities are an empty array.
        data = (rows.features, np.empty((0, 0)), rows.log_q, rows.counts)
    sums, moments, counts = _empty_blocks(U.shape[0], K, 0 if data[0] is None else data[0].shape[1])
    arguments = (*data, MixtureParameters(thetas, log_Z, log_rho, float(inverse_temperature)), U)
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


def sum_weighted(features: FloatArray, U: FloatArray) -> FloatArray:
    """Return the moments U' features (K, d), with the summation order of `e_step`.

    Examples
    --------
    >>> sum_weighted(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0, 0.5], [0.0, 0.5]])).tolist()
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
def _fill(features: Any, log_q: Any, counts: Any, parameters: Any, U: Any, lo: int) -> None:
    """Set U (n, K) to the responsibilities of the rows lo, ..., lo + n - 1."""
    thetas, offset, log_rho, inverse_temperature = parameters
    K = log_rho.size
    log_joint, posterior, no_table = np.empty(K), np.empty(K), np.empty((0, 0))
    for i in range(U.shape[0]):
        for k in range(K):
            log_joint[k] = _log_joint(features, no_table, log_q, counts, thetas, offset, lo + i, k)
        _normalise(log_joint, log_rho, inverse_temperature, posterior)
        for k in range(K):
            U[i, k] = posterior[k]


@njit(parallel=ONLY_PRANGE, cache=True, error_model="numpy")
def _stream_blocks(
    features: Any, log_q: Any, counts: Any, now: Any, before: Any, sums: Any, moments: Any, count_sums: Any
) -> None:
    n, K = features.shape[0], now.log_rho.size
    for b in prange(sums.shape[0]):
        lo, hi = b * BLOCK, min(n, (b + 1) * BLOCK)
        U, no_table = np.zeros((hi - lo, K)), np.empty((0, 0))
        if before is not None:
            _fill(features, log_q, counts, before, U, lo)
        _block(features[lo:hi], no_table, log_q[lo:hi], counts[lo:hi], now, U, sums[b], moments[b], 0, hi - lo)
        if sums[b, 2] >= 0:
            sums[b, 2] += lo
        column = count_sums[b].reshape((K, 1))
        _weigh_block(counts[lo:hi].reshape((hi - lo, 1)), U, column, 0, hi - lo)


def e_step_streamed(rows: Rows, now: MixtureParameters, before: MixtureParameters | None) -> Blocks:
    """Return the sums of an E-step without storing responsibilities.

    Previous responsibilities are recomputed from the parameters `before`; if it is None, they are 0. The result is
    bit-identical to the result of `e_step`.

    Examples
    --------
    >>> rows = Rows(np.array([[0.0], [1.0]]), np.zeros(2), np.ones(2))
    >>> one, other = (MixtureParameters(np.array([[a], [0.0]]), np.zeros(2), np.log([0.5, 0.5])) for a in (1.0, 2.0))
    >>> result = e_step_streamed(rows, other, one).total()
    >>> round(result.log_likelihood, 4), round(result.change, 4), result.sizes.round(4).tolist()
    (1.4338, 0.2995, [1.3808, 0.6192])
    """
    blocks = _empty_blocks(len(rows.features), now.log_rho.size, rows.features.shape[1])
    if len(rows.features):
        with LOCK:
            _stream_blocks(*rows, now, before, *blocks)
    return blocks
