"""Conditional means of path features, for the exact Hessian; and a bound on the growth of messages per step."""

import math
from typing import Any

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from limiirl._parallel import BLOCK, LOCK, ONLY_PRANGE
from limiirl.kernels.graph import Neighbours, Rewards
from limiirl.kernels.simd import exp


@njit(forceinline=True, error_model="numpy")
def _edge_feature(edge_phi: Any, scale: float, e: int, j: int) -> float:
    if edge_phi is None:
        return 0.0
    return scale * edge_phi[e, j]


@njit(forceinline=True, error_model="numpy")
def _add(total: Any, row: int, j: int, value: float) -> None:
    if total is not None:
        total[row, j] += value


@njit(cache=True, error_model="numpy")
def _block(
    near: Any,
    edge_prob: Any,
    marginals: Any,
    phi: Any,
    edge_phi: Any,
    mean: Any,
    out: Any,
    sums: Any,
    discounts: Any,
    lo: int,
    hi: int,
) -> None:
    node_total, edge_total = sums
    node_discount, edge_discount = discounts
    n_features = phi.shape[1]
    for s in range(lo, hi):
        for j in range(n_features):
            out[s, j] = node_discount * phi[s, j]
        for e in range(near.ptr[s], near.ptr[s + 1]):
            if edge_prob[e] > 0.0:
                other = near.idx[e]
                for j in range(n_features):
                    contribution = edge_prob[e] * (mean[other, j] + _edge_feature(edge_phi, edge_discount, e, j))
                    out[s, j] += contribution
                    _add(edge_total, e, j, edge_discount * marginals[s] * contribution)
        for j in range(n_features):
            _add(node_total, s, j, node_discount * marginals[s] * out[s, j])


@njit(cache=True, error_model="numpy")
def _propagate_serial(
    near: Any,
    edge_prob: Any,
    marginals: Any,
    phi: Any,
    edge_phi: Any,
    mean: Any,
    sums: Any,
    node_discount: Any,
    edge_discount: Any,
) -> None:
    for i in range(edge_prob.shape[0]):
        discounts = (node_discount[i], edge_discount[i])
        _block(
            near,
            edge_prob[i],
            marginals[i],
            phi,
            edge_phi,
            mean[i % 2],
            mean[(i + 1) % 2],
            sums,
            discounts,
            0,
            phi.shape[0],
        )


@njit(parallel=ONLY_PRANGE, cache=True, error_model="numpy")
def _propagate_parallel(
    near: Any,
    edge_prob: Any,
    marginals: Any,
    phi: Any,
    edge_phi: Any,
    mean: Any,
    sums: Any,
    node_discount: Any,
    edge_discount: Any,
) -> None:
    for i in range(edge_prob.shape[0]):
        discounts = (node_discount[i], edge_discount[i])
        before, after = mean[i % 2], mean[(i + 1) % 2]
        for b in prange((phi.shape[0] + BLOCK - 1) // BLOCK):
            lo, hi = b * BLOCK, min(phi.shape[0], (b + 1) * BLOCK)
            _block(near, edge_prob[i], marginals[i], phi, edge_phi, before, after, sums, discounts, lo, hi)


def propagate_means(
    near: Neighbours,
    edge_prob: NDArray[np.float64],
    marginals: NDArray[np.float64],
    phi: NDArray[np.float64],
    edge_phi: NDArray[np.float64] | None,
    mean: NDArray[np.float64],
    sums: tuple[NDArray[np.float64] | None, NDArray[np.float64] | None],
    node_discount: NDArray[np.float64],
    edge_discount: NDArray[np.float64],
) -> None:
    """Propagate conditional means of the discounted feature sum over n steps.

        mean(s) <- node_discount phi(s) + sum_e edge_prob(e) (mean(neighbour) + edge_discount phi(e))

    If edge_prob(e) = P(edge into s = e | s), mean(s) is the expected feature sum up to step t given s_t = s; if
    edge_prob(e) = P(edge out of s = e | s), it is the expected feature sum from step t on.

    Parameters
    ----------
    near : predecessors or successors; `edge_prob` (n, E) and `edge_phi` (E, d) are in the order of `near.idx`
    marginals : (n, S), P(s_t = s)
    phi : (S, d)
    mean : (2, S, d)
        Row 0 contains the initial means, and row n % 2 the result.
    sums : (S, d) and (E, d), or None
        Arrays to which node_discount marginals(s) mean(s) and edge_discount marginals(s) edge_prob(e) (mean(neighbour)
        + edge_discount phi(e)) are added.
    node_discount, edge_discount : (n,)
    """
    if phi.shape[0] > BLOCK:
        with LOCK:
            _propagate_parallel(near, edge_prob, marginals, phi, edge_phi, mean, sums, node_discount, edge_discount)
    else:
        _propagate_serial(near, edge_prob, marginals, phi, edge_phi, mean, sums, node_discount, edge_discount)


@njit(forceinline=True, error_model="numpy")
def _prob_and_reward(prob: Any, reward: Any, e: int, k: int, n_columns: int) -> Any:
    return prob[e] if prob.size else 1.0, reward[e * n_columns + k] if reward.size else 0.0


@njit(cache=True, error_model="numpy")
def _log_growth(near: Any, rewards: Any, n_columns: int) -> Any:
    largest = np.zeros(n_columns)
    last = rewards.discount[max(0, rewards.discount.size - 2)]
    continuation = rewards.discount[min(1, rewards.discount.size - 1)]
    for s in range(near.ptr.size - 1):
        for k in range(n_columns):
            total = 0.0
            for e in range(near.ptr[s], near.ptr[s + 1]):
                p, r = _prob_and_reward(rewards.prob, rewards.edge, e, k, n_columns)
                c = r + continuation * rewards.node[near.idx[e] * n_columns + k]
                total += p * exp(c if c > 0.0 else last * c)
            largest[k] = max(largest[k], total)
    for k in range(n_columns):
        largest[k] = math.log(largest[k]) if largest[k] > 0.0 else -np.inf
    return largest


def log_growth(near: Neighbours, rewards: Rewards, columns: tuple[int, ...]) -> NDArray[np.float64]:
    """Return an upper bound (K,) on log sum_e x_t(e) w_{t+1}(s') over all states and steps t.

    The exponent discount_t (r(e) + discount_1 r(s')) is largest at the first step if it is positive, and at the last
    step if it is negative.
    """
    return _log_growth(near, rewards.without_none(), len(columns))
