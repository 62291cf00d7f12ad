"""Forward-backward and Viterbi recursions of intents that switch within a demonstration.

Demonstration i has the decisions offsets[i]:offsets[i + 1]. The intent z_t of decision t is a Markov chain with

    P(z_{t+1} = k | z_t = j) = W[j, k] v[r, k] / sum_k' W[j, k'] v[r, k'],  r = row[t],

so that memory and time do not depend on the number of distinct transition matrices. Threads process blocks of
demonstrations; sums are stored per block and added in block order, so that they do not depend on the number of threads.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from limiirl._parallel import BLOCK, LOCK, ONLY_PRANGE
from limiirl._typing import FloatArray, Int32Array, IntArray

# Maximum number of blocks, and of bytes of their sums.
_BLOCKS, _BLOCK_BYTES = 16, 2**28


class Chain(NamedTuple):
    """Parameters of the Markov chain and of the decisions, on plain arrays.

    Attributes
    ----------
    emission : (m, K)
        P(decision | intent) of each distinct decision, divided by its maximum over intents.
    log_top : (m,)
        Logarithm of that maximum; -inf for a decision that is impossible under every intent.
    initial : (R, K)
        P(z_0 = k); one row for all demonstrations, or the rows that `Decisions.start` selects.
    W : (K, K)
    v : (M, K)
    """

    emission: FloatArray
    log_top: FloatArray
    initial: FloatArray
    W: FloatArray
    v: FloatArray

    @classmethod
    def of(cls, log_emission: FloatArray, initial: FloatArray, A: FloatArray, eta: FloatArray) -> "Chain":
        """Return the chain for logits A (K, K) + eta (M, K) and log-probabilities of the decisions (m, K).

        `initial` is (K,) or (R, K).

        Examples
        --------
        >>> chain = Chain.of(np.log([[0.2, 0.4]]), np.full(2, 0.5), np.log([[0.9, 0.1], [0.5, 0.5]]), np.zeros((1, 2)))
        >>> chain.emission, chain.W.round(2).tolist()
        (array([[0.5, 1. ]]), [[1.0, 0.11], [1.0, 1.0]])
        """
        top = log_emission.max(axis=1)
        safe = np.where(np.isfinite(top), top, 0.0)
        W, v = (np.exp(logits - logits.max(axis=1, keepdims=True)) for logits in (A, eta))
        return cls(np.exp(log_emission - safe[:, None]), top, np.ascontiguousarray(np.atleast_2d(initial)), W, v)


_NO_STARTS = np.zeros(0, dtype=np.int32)


class Decisions(NamedTuple):
    """Number of the decision (n,) and row (n,) of each step, and offsets (N + 1,) of the demonstrations.

    `start` (N,) is the row of `Chain.initial` of each demonstration, if there are several.
    """

    number: Int32Array
    row: Int32Array
    offsets: IntArray
    start: Int32Array = _NO_STARTS


class ChainCounts(NamedTuple):
    """Expected counts under the posterior of the intents.

    Attributes
    ----------
    log_prob : float
        Sum over demonstrations of the log-likelihood.
    decisions : (m, K)
        Expected number of times that each distinct decision was made with each intent.
    initial : (K,) or (N, K)
        Expected number of demonstrations that start with each intent; or, with several rows of `Chain.initial`, the
        posterior of the first intent of each demonstration.
    origin, target : (M, K)
        Expected number of transitions of each row from, and to, each intent.
    transitions : (K, K)
        Expected number of transitions, summed over rows.
    bad : int
        First step with probability 0, or -1.
    """

    log_prob: float
    decisions: FloatArray
    initial: FloatArray
    origin: FloatArray
    target: FloatArray
    transitions: FloatArray
    bad: int


@njit(cache=True, error_model="numpy")
def _forward(chain: Any, data: Any, i: int, alpha: Any, log_prob: Any) -> int:
    """Set alpha (T, K) to P(z_t | decisions up to t) and log_prob (T,) to log P(decision t | decisions before t).

    Return the first step of demonstration i with probability 0, or -1.
    """
    K, lo, hi = chain.W.shape[0], data.offsets[i], data.offsets[i + 1]
    predicted = chain.initial[data.start[i] if chain.initial.shape[0] > 1 else 0].copy()
    for t in range(hi - lo):
        d = data.number[lo + t]
        total = 0.0
        for k in range(K):
            alpha[t, k] = predicted[k] * chain.emission[d, k]
            total += alpha[t, k]
        if not total > 0.0 or not chain.log_top[d] > -np.inf:
            return lo + t
        for k in range(K):
            alpha[t, k] /= total
        log_prob[t] = np.log(total) + chain.log_top[d]
        r = data.row[lo + t]
        predicted[:] = 0.0
        for j in range(K):
            norm = 0.0
            for k in range(K):
                norm += chain.W[j, k] * chain.v[r, k]
            weight = alpha[t, j] / norm
            for k in range(K):
                predicted[k] += weight * chain.W[j, k]
        for k in range(K):
            predicted[k] *= chain.v[r, k]
    return -1


@njit(cache=True, error_model="numpy")
def _smooth(chain: Any, data: Any, lo: int, hi: int, alpha: Any, origin: Any, target: Any, transitions: Any) -> None:
    """Overwrite alpha (T, K) with P(z_t | all decisions); add the expected transitions, unless `transitions` is empty.

    beta_t(j) = sum_k P(k | j) emission_k beta_{t+1}(k) is divided by its maximum, so that it cannot overflow.
    """
    K = chain.W.shape[0]
    beta, ahead, joint = np.ones(K), np.empty(K), np.empty((K, K))
    for t in range(hi - lo - 2, -1, -1):
        d, r = data.number[lo + t + 1], data.row[lo + t]
        for k in range(K):
            ahead[k] = chain.emission[d, k] * beta[k] * chain.v[r, k]
        largest, total = 0.0, 0.0
        for j in range(K):
            norm = 0.0
            for k in range(K):
                norm += chain.W[j, k] * chain.v[r, k]
            beta[j] = 0.0
            for k in range(K):
                joint[j, k] = chain.W[j, k] * ahead[k] / norm
                beta[j] += joint[j, k]
            largest = max(largest, beta[j])
            total += alpha[t, j] * beta[j]
        for j in range(K):
            weight = alpha[t, j] / total
            alpha[t, j] = weight * beta[j]
            beta[j] /= largest
            if transitions.size:
                origin[r, j] += alpha[t, j]
                for k in range(K):
                    transitions[j, k] += weight * joint[j, k]
        if transitions.size:
            for k in range(K):
                target[r, k] += alpha[t + 1, k]


@njit(cache=True, error_model="numpy")
def _count_block(
    chain: Any, data: Any, first: int, last: int, sums: Any, starts: Any, decisions: Any, origin: Any, target: Any
) -> int:
    """Add the expected counts of demonstrations first:last; `sums` (1 + K, K) has log_prob, then initial, transitions.

    Set `starts` (N, K) to the posterior of first intents, unless it is empty. Return the first step with probability 0,
    or -1.
    """
    K, longest = chain.W.shape[0], 0
    for i in range(first, last):
        longest = max(longest, data.offsets[i + 1] - data.offsets[i])
    buffer, log_prob = np.empty((longest, K)), np.empty(longest)
    for i in range(first, last):
        lo, hi = data.offsets[i], data.offsets[i + 1]
        alpha = buffer[: hi - lo]
        bad = _forward(chain, data, i, alpha, log_prob)
        if bad >= 0:
            return int(bad)
        _smooth(chain, data, lo, hi, alpha, origin, target, sums[2:])
        for t in range(hi - lo):
            sums[0, 0] += log_prob[t]
            for k in range(K):
                decisions[data.number[lo + t], k] += alpha[t, k]
        for k in range(K):
            sums[1, k] += alpha[0, k]
            if starts.size:
                starts[i, k] = alpha[0, k]
    return -1


@njit(parallel=ONLY_PRANGE, cache=True, error_model="numpy")
def _count_blocks(
    chain: Any,
    data: Any,
    blocks: Any,
    table: Any,
    sums: Any,
    starts: Any,
    decisions: Any,
    origin: Any,
    target: Any,
    bad: Any,
) -> None:
    for b in prange(blocks.size - 1):
        c = table[b]
        bad[b] = _count_block(
            chain, data, blocks[b], blocks[b + 1], sums[b], starts, decisions[b], origin[c], target[c]
        )


def count(chain: Chain, data: Decisions, *, distinct_rows: bool = False) -> ChainCounts:
    """Return the expected counts of all demonstrations.

    Parameters
    ----------
    chain : Chain
    data : Decisions
    distinct_rows : bool
        True if no two steps have the same row, so that the blocks may share the sums over rows.

    Examples
    --------
    >>> chain = Chain.of(np.log([[0.9, 0.1], [0.1, 0.9]]), np.full(2, 0.5), np.zeros((2, 2)), np.zeros((1, 2)))
    >>> data = Decisions(np.array([0, 1], np.int32), np.zeros(2, np.int32), np.array([0, 2]))
    >>> counts = count(chain, data)
    >>> round(counts.log_prob, 4), counts.decisions.round(2).tolist(), counts.transitions.round(2).tolist()
    (-1.3863, [[0.9, 0.1], [0.1, 0.9]], [[0.09, 0.81], [0.01, 0.09]])
    """
    (m, K), (M, _) = chain.emission.shape, chain.v.shape
    blocks = divide(data.offsets, 8 * K * (m + (0 if distinct_rows else 2 * M)))
    n_blocks = blocks.size - 1
    sums, decisions = np.zeros((n_blocks, 2 + K, K)), np.zeros((n_blocks, m, K))
    origin, target = np.zeros((2, 1 if distinct_rows else n_blocks, M, K))
    bad, several = np.full(n_blocks, -1), len(chain.initial) > 1
    starts = np.zeros((data.offsets.size - 1 if several else 0, K))
    if n_blocks > 1:
        table = np.zeros(n_blocks, dtype=np.int64) if distinct_rows else np.arange(n_blocks)
        with LOCK:
            _count_blocks(chain, data, blocks, table, sums, starts, decisions, origin, target, bad)
    elif n_blocks:
        end = int(blocks[1])
        bad[0] = _count_block(chain, data, 0, end, sums[0], starts, decisions[0], origin[0], target[0])
    total, wrong = sums.sum(axis=0), bad[bad >= 0]
    return ChainCounts(
        float(total[0, 0]),
        decisions.sum(axis=0),
        starts if several else total[1],
        origin.sum(axis=0),
        target.sum(axis=0),
        total[2:],
        int(wrong[0]) if wrong.size else -1,
    )


def divide(offsets: IntArray, bytes_each: int) -> IntArray:
    """Return the boundaries of blocks of demonstrations with similar numbers of steps.

    The number of blocks depends on the data only, not on the number of threads.

    Examples
    --------
    >>> divide(np.array([0, 4000, 5000, 8192]), 8).tolist()
    [0, 1, 2, 3]
    """
    n = int(offsets[-1])
    most = max(1, min(_BLOCKS, _BLOCK_BYTES // max(bytes_each, 1), -(-n // BLOCK)))
    ends = np.searchsorted(offsets, n * np.arange(1, most + 1) / most)
    return np.unique(np.concatenate([[0], ends])).astype(np.int64)


@njit(parallel=ONLY_PRANGE, cache=True, error_model="numpy")
def _infer_blocks(chain: Any, data: Any, blocks: Any, smooth: bool, posterior: Any, log_prob: Any, bad: Any) -> None:
    for b in prange(blocks.size - 1):
        nothing = np.empty((0, 0))
        for i in range(blocks[b], blocks[b + 1]):
            lo, hi = data.offsets[i], data.offsets[i + 1]
            bad[b] = _forward(chain, data, i, posterior[lo:hi], log_prob[lo:hi])
            if bad[b] >= 0:
                break
            if smooth:
                _smooth(chain, data, lo, hi, posterior[lo:hi], nothing, nothing, nothing)


class Posterior(NamedTuple):
    """Posterior (n, K) of intents, log-probability (n,) of each decision given earlier ones, and the first bad step."""

    intents: FloatArray
    log_prob: FloatArray
    bad: int


def infer(chain: Chain, data: Decisions, *, smooth: bool) -> Posterior:
    """Return P(z_t | decisions up to t), or P(z_t | all decisions of the demonstration) if `smooth`.

    Examples
    --------
    >>> chain = Chain.of(np.log([[0.9, 0.1]]), np.full(2, 0.5), np.log([[0.8, 0.2], [0.2, 0.8]]), np.zeros((1, 2)))
    >>> data = Decisions(np.zeros(2, np.int32), np.zeros(2, np.int32), np.array([0, 2]))
    >>> infer(chain, data, smooth=False).log_prob.round(4).tolist()
    [-0.6931, -0.3682]
    """
    blocks = divide(data.offsets, 1)
    posterior, log_prob = np.zeros((data.number.size, len(chain.W))), np.zeros(data.number.size)
    bad = np.full(blocks.size - 1, -1)
    with LOCK:
        _infer_blocks(chain, data, blocks, smooth, posterior, log_prob, bad)
    wrong = bad[bad >= 0]
    return Posterior(posterior, log_prob, int(wrong[0]) if wrong.size else -1)


@njit(cache=True, error_model="numpy")
def _viterbi(log_emission: Any, log_initial: Any, A: Any, eta: Any, data: Any, path: Any) -> None:
    K = A.shape[0]
    longest = 0
    for i in range(data.offsets.size - 1):
        longest = max(longest, data.offsets[i + 1] - data.offsets[i])
    back = np.empty((longest, K), dtype=np.int16)
    best, after, norm = np.empty(K), np.empty(K), np.empty(K)
    for i in range(data.offsets.size - 1):
        lo, hi = data.offsets[i], data.offsets[i + 1]
        for t in range(lo, hi):
            if t == lo:
                best[:] = log_initial[data.start[i] if log_initial.shape[0] > 1 else 0]
            else:
                r = data.row[t - 1]
                for j in range(K):
                    top = -np.inf
                    for k in range(K):
                        top = max(top, A[j, k] + eta[r, k])
                    norm[j] = 0.0
                    for k in range(K):
                        norm[j] += np.exp(A[j, k] + eta[r, k] - top)
                    norm[j] = top + np.log(norm[j])
                for k in range(K):
                    after[k] = -np.inf
                    back[t - lo, k] = 0
                    for j in range(K):
                        value = best[j] + A[j, k] + eta[r, k] - norm[j]
                        if value > after[k]:
                            after[k] = value
                            back[t - lo, k] = j
                best[:] = after
            for k in range(K):
                best[k] += log_emission[data.number[t], k]
        path[hi - 1] = np.argmax(best)
        for t in range(hi - 2, lo - 1, -1):
            path[t] = back[t + 1 - lo, path[t + 1]]


def viterbi(
    log_emission: FloatArray, log_initial: FloatArray, A: FloatArray, eta: FloatArray, data: Decisions
) -> NDArray[np.int64]:
    """Return the most probable sequence of intents (n,) of each demonstration; ties are broken by the lower index.

    `log_initial` is (K,) or (R, K), as in `Chain`.

    Examples
    --------
    >>> data = Decisions(np.array([0, 1, 0], np.int32), np.zeros(3, np.int32), np.array([0, 3]))
    >>> A = np.log([[0.9, 0.1], [0.1, 0.9]])
    >>> viterbi(np.log([[0.9, 0.1], [0.4, 0.6]]), np.log([0.5, 0.5]), A, np.zeros((1, 2)), data).tolist()
    [0, 0, 0]
    """
    path = np.zeros(data.number.size, dtype=np.int64)
    _viterbi(log_emission, np.ascontiguousarray(np.atleast_2d(log_initial)), A, eta, data, path)
    return path


@njit(cache=True, error_model="numpy")
def _normalise(W: Any, v: Any, origin: Any, d_A: Any, d_eta: Any) -> float:
    K, total = W.shape[0], 0.0
    for r in range(v.shape[0]):
        for j in range(K):
            n = origin[r, j]
            if n == 0.0:
                continue
            norm = 0.0
            for k in range(K):
                norm += W[j, k] * v[r, k]
            total += n * np.log(norm)
            for k in range(K):
                expected = n * W[j, k] * v[r, k] / norm
                d_A[j, k] += expected
                d_eta[r, k] += expected
    return total


def normalise_logits(A: FloatArray, eta: FloatArray, origin: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    """Return sum_rj origin[r, j] log sum_k exp(A[j, k] + eta[r, k]), and its gradients (K, K) and (M, K).

    Examples
    --------
    >>> value, d_A, d_eta = normalise_logits(np.zeros((2, 2)), np.zeros((1, 2)), np.array([[3.0, 1.0]]))
    >>> round(value, 4), d_A.tolist(), d_eta.tolist()
    (2.7726, [[1.5, 1.5], [0.5, 0.5]], [[2.0, 2.0]])
    """
    top_A, top_eta = A.max(axis=1, keepdims=True), eta.max(axis=1, keepdims=True)
    d_A, d_eta = np.zeros(A.shape), np.zeros(eta.shape)
    value = _normalise(np.exp(A - top_A), np.exp(eta - top_eta), origin, d_A, d_eta)
    return float(value + origin.sum(axis=0) @ top_A[:, 0] + origin.sum(axis=1) @ top_eta[:, 0]), d_A, d_eta
