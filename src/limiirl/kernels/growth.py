"""How fast can the weight of a trajectory grow from one step to the next? The guard of linear space asks that."""

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from limiirl.kernels.graph import Neighbours
from limiirl.kernels.layout import Rewards
from limiirl.kernels.vector import exp


@njit(forceinline=True, error_model="numpy")
def _edge_part(prob: Any, reward: Any, e: int, k: int, n_columns: int) -> Any:
    """Return (probability, reward) of an edge."""
    p = 1.0 if prob is None else prob[e]
    r = 0.0 if reward is None else reward[e * n_columns + k]
    return p, r


@njit(cache=True, error_model="numpy")
def log_growth(near: Neighbours, rewards: Rewards, columns: Any) -> NDArray[np.float64]:
    """Return (K,) an upper bound on log sum_e x_t(e) w_{t+1}(s') over all states and steps.

    The exponent of a step is discount_t (r(e) + discount_1 r(s')), whose largest value over t is at the first step
    where the bracket is positive and at the last where it is negative: late weights tend to 1, which a bound from the
    first step alone would miss.
    """
    n_columns = len(columns)
    largest = np.zeros(n_columns)
    last = rewards.discount[max(0, rewards.discount.size - 2)]
    onward = rewards.discount[min(1, rewards.discount.size - 1)]
    for s in range(near.ptr.size - 1):
        for k in range(n_columns):
            total = 0.0
            for e in range(near.ptr[s], near.ptr[s + 1]):
                p, r = _edge_part(rewards.prob, rewards.edge, e, k, n_columns)
                c = r + onward * rewards.node[near.idx[e] * n_columns + k]
                total += p * exp(c if c > 0.0 else last * c)
            largest[k] = max(largest[k], total)
    for k in range(n_columns):
        largest[k] = math.log(largest[k]) if largest[k] > 0.0 else -np.inf
    return largest
