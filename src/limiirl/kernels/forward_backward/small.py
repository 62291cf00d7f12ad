"""Forward-backward of small graphs in linear arithmetic: one compiled call per pass, all steps kept in memory.

For state rewards, trajectories that may stop anywhere, and at most `BLOCK` states, for which `build_graph` keeps the
order of the states: arrays in graph order and in the order of the MDP are the same. The recursions are those of
`linear`; only the work around them is compiled too, in the order of operations of `irl.maxent.messages`.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from limiirl.kernels.forward_backward.hessian import _log_growth
from limiirl.kernels.forward_backward.hessian import _serial as _carry_means
from limiirl.kernels.forward_backward.linear import _backward_serial, _forward_serial
from limiirl.kernels.graph import Alpha, CountBuffers, Rewards, Weights
from limiirl.kernels.simd import exp

# Largest K with a specialised kernel: 14 % faster than a kernel with K at run time, for one compilation per K.
_SPECIALISED = 4
# exp(-708) is about the smallest normal double.
LOG_RANGE = 708.0


def specialise_columns(n_columns: int) -> Any:
    """Return a tuple of K zeros, for which numba compiles a specialised kernel, or the number K if it is large."""
    return (0,) * n_columns if n_columns <= _SPECIALISED else n_columns


class Buffers(NamedTuple):
    """Arrays of one pass for K columns, flat with K fastest.

    Attributes
    ----------
    node : (S K,)
        Rewards.
    weight : (S K,)
        exp(rewards) of one step.
    messages : (L, (S + 1) K)
        Backward messages u_t, in row 0 beta_0.
    exponents : (L, K)
        Binary exponents of the messages.
    alpha : (S K,)
        Forward message of step 0, divided by exp(shift).
    start : (S K,)
        alpha times beta_0; divided by `total`, P(s_0 = s).
    shift, total, log_norm : (K,)
        Largest log(p0) + reward, column sums of `start`, and their logarithms.
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


def allocate(n_states: int, max_length: int, n_columns: int) -> Buffers:
    """Return uninitialised buffers."""
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
    )


@njit(cache=True, error_model="numpy")
def pairwise_sum(values: Any, first: int, n: int, stride: int) -> float:
    """Return the sum of n entries, `stride` apart, in the order of additions of `numpy.sum` over a contiguous axis."""
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
    """Set weights and the arguments of exp in `messages[-1]` and `alpha`; return True if linear arithmetic is safe.

    It is where the bound on the share of Z lost to underflow, `log_paths` + L max(0, g) + v with g the largest log
    growth of a step and v the largest reward, is below `log_loss`; see `irl.maxent.backends.log_loss_bound`.
    """
    n_columns = b.shift.size
    length = discount.size
    for i in range(b.node.size):
        if not -np.inf < b.node[i] < np.inf:
            return False
    growth = _log_growth(near, Rewards(b.node, prob, None, discount, False), n_columns)
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
def backward(near: Any, prob: Any, edge: Any, discount: Any, steady: bool, b: Any, columns: Any) -> bool:
    """Run the backward pass and combine it with the start distribution; return True if every beta_0 is in range."""
    n_columns = b.shift.size
    b.messages[-1, b.node.size :] = 0.0
    b.exponents[-1] = 0
    rewards, weights = Rewards(b.node, prob, None, discount, steady), Weights(b.weight, edge)
    _backward_serial(near, rewards, weights, None, b.messages, b.exponents, 0, columns)
    for i in range(b.node.size):
        if not 0.0 < b.messages[0, i] < np.inf:
            return False
        b.start[i] = b.alpha[i] * b.messages[0, i]
    for k in range(n_columns):
        b.total[k] = pairwise_sum(b.start, k, b.node.size // n_columns, n_columns)
    return True


@njit(cache=True, error_model="numpy")
def forward(near: Any, prob: Any, edge: Any, discount: Any, steady: bool, b: Any, counts: Any, columns: Any) -> bool:
    """Set the expected discounted counts (S K,) of states; return True if they sum to at most sum_t discount_t."""
    n_columns, size = b.shift.size, b.node.size
    alpha = np.zeros((2, size + n_columns))
    for i in range(size):
        alpha[0, i] = b.alpha[i]
        counts[i] = discount[0] * (b.start[i] / b.total[i % n_columns])
    rewards, weights = Rewards(b.node, prob, None, discount, steady), Weights(b.weight, edge)
    state = Alpha(alpha, -b.exponents[0], b.log_norm)
    buffers = CountBuffers(counts, None, None, None)
    _forward_serial(near, rewards, weights, b.messages, b.exponents, state, discount, buffers, 0, columns)
    most = np.sum(discount) * (1.0 + 1e-6)
    in_range = True
    for k in range(n_columns):
        in_range &= 0.0 <= pairwise_sum(counts, k, size // n_columns, n_columns) <= most
    return in_range


@njit(cache=True, error_model="numpy")
def feature_moments(
    near: Any, prob: Any, edge: Any, discount: Any, steady: bool, b: Any, k: int, phi: Any, marginals: Any, total: Any
) -> None:
    """Set `marginals` (L, S) = P(s_t = s) and `total` (S, d) = sum_t discount_t p_t(s) m_t(s) of column k.

    m_t(s) is the mean of the features collected up to step t, given s_t = s.
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
    share = np.empty((length - 1, near.idx.size))
    rewards, weights = Rewards(node, prob, None, discount, steady), Weights(weight, edge)
    state = Alpha(alpha, -exponents[0], b.log_norm[k : k + 1].copy())
    buffers = CountBuffers(None, None, marginals[1:], share)
    _forward_serial(near, rewards, weights, messages, exponents, state, discount, buffers, 0, (0,))
    mean = np.empty((2, n_states, phi.shape[1]))
    mean[0] = phi
    _carry_means(near, share, marginals[1:], phi, None, mean, (total, None), discount[1:], discount[:-1])
