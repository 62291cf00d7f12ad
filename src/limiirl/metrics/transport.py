"""The cheapest flow between two sets of weights: discrete optimal transport, by the simplex method of HiGHS."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linprog

from limiirl.errors import NumericalError

Float = NDArray[np.float64]

# The least tolerance that HiGHS takes; weights are at most 1, and costs are scaled to it.
_TOLERANCE = 1e-10
# How often costs are scaled anew, and the largest cost then, in units of the flow's.
_ROUNDS, _DEAREST = 3, 1e6
# A flow this small is what the solver leaves of zero.
_NOTHING = 1e-12


def transport(costs: ArrayLike, rows: ArrayLike, columns: ArrayLike) -> Float:
    """Return the flow (K', K) of least cost from rows (K',) to columns (K,), nonnegative weights that sum to 1 both.

    Examples
    --------
    >>> transport([[0.0, 1.0], [2.0, 0.0]], [0.5, 0.5], [0.75, 0.25])
    array([[0.5 , 0.  ],
           [0.25, 0.25]])
    """
    all_costs, a, b = (np.asarray(values, dtype=np.float64) for values in (costs, rows, columns))
    flow = np.zeros(all_costs.shape)
    live = np.ix_(a > 0.0, b > 0.0)
    a, b, cost = a[a > 0.0], b[b > 0.0], all_costs[live]
    if a.size == 1 or b.size == 1:
        flow[live] = np.outer(a, b)
        return flow
    flow[live] = _cheapest(cost, a, b)
    return flow


def _cheapest(cost: Float, a: Float, b: Float) -> Float:
    """Return the cheapest flow by HiGHS, whose tolerance is absolute: costs are scaled, again if few of them matter.

    A pair that costs a million times as much as the flow itself hides differences among the others. So costs are then
    measured by the flow's, those far above it cut down; of all flows found the one that is cheapest in truth is taken.
    """
    scale = float(cost.max()) or 1.0
    best = flow = _solve(cost / scale, a, b)
    for _ in range(_ROUNDS):
        value = float((flow * cost).sum())
        if value <= 0.0 or value > 1e-3 * scale:
            break
        scale = value
        flow = _solve(np.minimum(cost / scale, _DEAREST), a, b)
        if float((flow * cost).sum()) < float((best * cost).sum()):
            best = flow
    return best


def _solve(cost: Float, a: Float, b: Float) -> Float:
    sums = np.vstack([np.kron(np.eye(a.size), np.ones(b.size)), np.kron(np.ones(a.size), np.eye(b.size))])
    found = linprog(
        cost.ravel(),
        # The last sum follows from the others.
        A_eq=sums[:-1],
        b_eq=np.concatenate([a, b])[:-1],
        method="highs-ds",
        options={"primal_feasibility_tolerance": _TOLERANCE, "dual_feasibility_tolerance": _TOLERANCE},
    )
    if found.x is None:
        raise NumericalError(f"The transport problem was not solved: {found.message} Check the weights.")
    return np.asarray(np.where(found.x > _NOTHING, found.x, 0.0).reshape(cost.shape))


def least_cost(costs: Float, rows: Float, columns: Float) -> float:
    """Return the cost of the cheapest flow, where some pairs may cost infinitely much.

    Examples
    --------
    >>> half = np.array([0.5, 0.5])
    >>> least_cost(np.array([[0.0, 1.0], [np.inf, 4.0]]), half, half)
    2.0
    >>> least_cost(np.array([[0.0, 1.0], [np.inf, 4.0]]), half, np.array([0.75, 0.25]))
    inf
    """
    finite = np.isfinite(costs)
    # Dearer than any detour through the others, so taken only where it must be.
    dear = (1.0 + costs[finite].max(initial=0.0)) * sum(costs.shape)
    flow = transport(np.where(finite, costs, dear), rows, columns)
    if flow[~finite].any():
        return math.inf
    return float((flow[finite] * costs[finite]).sum())
