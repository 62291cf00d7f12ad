"""Forward-backward on small graphs in linear arithmetic: one compiled call per pass, which stores all messages.

Requirements: rewards of states only, trajectories that may stop in every state, and at most `BLOCK` states, so that
`build_graph` does not reorder them. The recursions are those of `linear`; operations are in the same order as in
`irl.maxent.messages`.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from limiirl.kernels.forward_backward.hessian import _log_growth, _propagate_serial
from limiirl.kernels.forward_backward.linear import _backward_serial, _forward_serial
from limiirl.kernels.graph import EMPTY, EMPTY_ROWS, Alpha, CountBuffers, Rewards, Weights
from limiirl.kernels.simd import exp

# exp(-708) is about the smallest normal double.
LOG_RANGE = 708.0


class Buffers(NamedTuple):
    """Arrays of one pass for K columns, flat with K fastest.

    Attributes
    ----------
    node : (S K,)
        Rewards.
    weight : (S K,)
        exp(rewards) of one step.
    messages : (L, (S + 1) K)
        Backward messages u_t; row 0 is beta_0.
    exponents : (L, K)
        Binary exponents of the messages.
    alpha : (S K,)
        Forward message of step 0, divided by exp(shift).
    start : (S K,)
        alpha times beta_0, which is P(s_0 = s) times `total`.
    shift, total, log_norm : (K,)
        Maximum of log p0(s) + r(s), sum of `start`, and log of that sum, for each column.
    """

    node: NDArray[np.float64]
    weight: NDArray[np.float64]
    messages: NDArray[np.float64]
    exponents: NDArray[np.int64]
    alpha: NDArray[np.float64]
    start: NDArray[np.float64]
    shift: NDArray[np.float64]
    total: NDArray[np.float64]
    log_norm: NDArray[np.float64]
    empty: NDArray[np.float64]
    empty_rows: NDArray[np.float64]


def allocate(n_states: int, max_length: int, n_columns: int) -> Buffers:
    """Return new buffers."""
    size = n_states * n_columns
    return Buffers(
        np.empty(size),
        np.empty(size),
        np.zeros((max_length, size + n_columns)),
        np.zeros((max_length, n_columns), dtype=np.int64),
        np.empty(size),
        np.empty(size),
        np.empty(n_columns),
        np.empty(n_columns),
        np.empty(n_columns),
        EMPTY,
        EMPTY_ROWS,
    )


@njit(cache=True, error_model="numpy")
def pairwise_sum(values: Any, first: int, n: int, stride: int) -> float:
    """Return the sum of values[first::stride][:n], in the summation order of `numpy.sum` over a contiguous axis."""
    if n < 8:
        total = -0.0
        for i in range(n):
            total += values[first + i * stride]
        return total
    if n <= 128:
        part = np.empty(8)
        for j in range(8):
            part[j] = values[first + j * stride]
        i = 8
        while i < n - n % 8:
            for j in range(8):
                part[j] += values[first + (i + j) * stride]
            i += 8
        total = ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]))
        for j in range(i, n):
            total += values[first + j * stride]
        return total
    half = n // 2
    half -= half % 8
    return pairwise_sum(values, first, half, stride) + pairwise_sum(values, first + half * stride, n - half, stride)


@njit(cache=True, error_model="numpy")
def prepare(near: Any, prob: Any, discount: Any, log_p0: Any, log_paths: float, log_loss: float, b: Any) -> bool:
    """Set `weight`, `shift` and the logarithms of `messages[-1]` and `alpha`; return False if underflow is possible.

    Underflow is considered impossible if a bound on the lost fraction of Z (`irl.maxent.backends.log_loss_bound`) is
    below exp(log_loss).
    """
    n_columns = b.shift.size
    length = discount.size
    for i in range(b.node.size):
        if not -np.inf < b.node[i] < np.inf:
            return False
    growth = _log_growth(near, Rewards(b.node, prob, b.empty, discount, False), n_columns)
    for k in range(n_columns):
        top = 0.0
        for i in range(k, b.node.size, n_columns):
            top = max(top, b.node[i])
        if not log_paths + length * max(0.0, growth[k]) + top - LOG_RANGE < log_loss:
            return False
    b.shift[:] = -np.inf
    for i in range(b.node.size):
        b.weight[i] = exp(b.node[i])
        b.messages[length - 1, i] = discount[length - 1] * b.node[i]
        b.alpha[i] = log_p0[i // n_columns, 0] + b.node[i]
        b.shift[i % n_columns] = max(b.shift[i % n_columns], b.alpha[i])
    for i in range(b.node.size):
        b.alpha[i] -= b.shift[i % n_columns]
    return True


@njit(cache=True, error_model="numpy")
def backward(near: Any, prob: Any, edge: Any, discount: Any, time_homogeneous: bool, b: Any) -> bool:
    """Compute `messages`, `start` and `total`; return True if every beta_0 is positive and finite."""
    n_columns = b.shift.size
    b.messages[-1, b.node.size :] = 0.0
    b.exponents[-1] = 0
    rewards, weights = Rewards(b.node, prob, b.empty, discount, time_homogeneous), Weights(b.weight, edge)
    _backward_serial((near, rewards, weights, n_columns), b.empty, b.messages, b.exponents, 0)
    for i in range(b.node.size):
        if not 0.0 < b.messages[0, i] < np.inf:
            return False
        b.start[i] = b.alpha[i] * b.messages[0, i]
    for k in range(n_columns):
        b.total[k] = pairwise_sum(b.start, k, b.node.size // n_columns, n_columns)
    return True


@njit(cache=True, error_model="numpy")
def forward(near: Any, prob: Any, edge: Any, discount: Any, time_homogeneous: bool, b: Any, counts: Any) -> bool:
    """Set `counts` (S K,) to sum_t discount_t P(s_t = s); return True if they sum to at most sum_t discount_t."""
    n_columns, size = b.shift.size, b.node.size
    alpha = np.zeros((2, size + n_columns))
    for i in range(size):
        alpha[0, i] = b.alpha[i]
        counts[i] = discount[0] * (b.start[i] / b.total[i % n_columns])
    rewards, weights = Rewards(b.node, prob, b.empty, discount, time_homogeneous), Weights(b.weight, edge)
    state = Alpha(alpha, -b.exponents[0], b.log_norm)
    buffers = CountBuffers(counts, b.empty, b.empty_rows, b.empty_rows)
    inputs = (near, rewards, weights, n_columns)
    _forward_serial(inputs, b.messages, b.exponents, state, discount, buffers, 0)
    most = np.sum(discount) * (1.0 + 1e-6)
    in_range = True
    for k in range(n_columns):
        in_range &= 0.0 <= pairwise_sum(counts, k, size // n_columns, n_columns) <= most
    return in_range


@njit(cache=True, error_model="numpy")
def feature_moments(
    near: Any,
    prob: Any,
    edge: Any,
    discount: Any,
    time_homogeneous: bool,
    b: Any,
    k: int,
    phi: Any,
    marginals: Any,
    total: Any,
) -> None:
    """Set `marginals` (L, S) to P(s_t = s), and `total` (S, d) to sum_t discount_t P(s_t = s) m_t(s), for column k.

    m_t(s) is the expectation of the discounted feature sum up to step t, given s_t = s.
    """
    n_columns = b.shift.size
    n_states, length = b.node.size // n_columns, discount.size
    messages, exponents = np.empty((length, n_states + 1)), np.empty((length, 1), dtype=np.int64)
    alpha, node, weight = np.zeros((2, n_states + 1)), np.empty(n_states), np.empty(n_states)
    for t in range(length):
        exponents[t, 0] = b.exponents[t, k]
        for s in range(n_states + 1):
            messages[t, s] = b.messages[t, s * n_columns + k]
    for s in range(n_states):
        i = s * n_columns + k
        alpha[0, s], node[s], weight[s] = b.alpha[i], b.node[i], exp(b.node[i])
        marginals[0, s] = b.start[i] / b.total[k]
        for j in range(phi.shape[1]):
            total[s, j] = marginals[0, s] * phi[s, j]
    edge_prob = np.empty((length - 1, near.idx.size))
    rewards, weights = Rewards(node, prob, b.empty, discount, time_homogeneous), Weights(weight, edge)
    state = Alpha(alpha, -exponents[0], b.log_norm[k : k + 1].copy())
    buffers = CountBuffers(b.empty, b.empty, marginals[1:], edge_prob)
    _forward_serial((near, rewards, weights, 1), messages, exponents, state, discount, buffers, 0)
    mean = np.empty((2, n_states, phi.shape[1]))
    mean[0] = phi
    _propagate_serial(near, edge_prob, marginals[1:], phi, None, mean, (total, None), discount[1:], discount[:-1])
