"""Linear systems (I - gamma P) x = b of policies on sparse graphs, solved by state elimination.

P[s, s'] = sum_a omega(s, a) P(s' | s, a) for weights omega (P,) of the state-action pairs. No terms cancel in the
elimination, because I - gamma P is an M-matrix. On graphs of some hundred states it is about twenty times as fast as
SuperLU, most of whose time is spent on the construction and the ordering of the matrix.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from limiirl._typing import FloatArray
from limiirl.kernels.elimination.linear import eliminate, solve, solve_transposed
from limiirl.kernels.elimination.symbolic import SymbolicFactorisation


class PolicyFactors(NamedTuple):
    """Factors of I - gamma P: values and stars of `linear.eliminate`."""

    value: FloatArray
    star: FloatArray


@njit(cache=True, nogil=True)
def _factorise(graph: Any, symbolic: Any, omega: Any, value: Any, star: Any) -> bool:
    """Set the factors of the policy omega (P,); return False if the matrix is singular."""
    value[:] = 0.0
    for p in range(omega.size):
        for e in range(graph.edge_ptr[p], graph.edge_ptr[p + 1]):
            value[symbolic.slot[e]] += graph.gamma * graph.prob[e] * omega[p]
    state = eliminate(symbolic.up_ptr, symbolic.up, symbolic.low_ptr, symbolic.low, symbolic.place, value, star, 1.0)
    return state < 0


@njit(cache=True, nogil=True)
def _add_solution(symbolic: Any, value: Any, star: Any, right: Any, transposed: bool, work: Any, x: Any) -> None:
    """Add the solution for `right` (S,) to x (S,)."""
    for s in range(x.size):
        work[symbolic.rank[s]] = right[s]
    if transposed:
        solve_transposed(symbolic.up_ptr, symbolic.up, value, star, work)
    else:
        solve(symbolic.up_ptr, symbolic.up, value, star, work)
    for s in range(x.size):
        x[s] += work[symbolic.rank[s]]


@njit(cache=True, nogil=True)
def _subtract_product(graph: Any, omega: Any, x: Any, right: Any, transposed: bool, residual: Any) -> None:
    """Set residual (S,) to right - (I - gamma P) x, or the same with the transposed matrix."""
    for s in range(x.size):
        residual[s] = right[s] - x[s]
    for s in range(x.size):
        for p in range(graph.pair_ptr[s], graph.pair_ptr[s + 1]):
            for e in range(graph.edge_ptr[p], graph.edge_ptr[p + 1]):
                weight, d = graph.gamma * graph.prob[e] * omega[p], graph.dst[e]
                if transposed:
                    residual[d] += weight * x[s]
                else:
                    residual[s] += weight * x[d]


@njit(cache=True, nogil=True)
def refine(
    graph: Any, symbolic: Any, factors: Any, omega: Any, right: Any, transposed: bool, rtol: float, steps: int, fall: Any
) -> Any:
    """Return the solution (S,) by iterative refinement with the factors of a similar policy, and True if it converges.

    It fails if `steps` steps are not enough, or if a step does not multiply the residual by at most `fall`.
    """
    x, work, residual = np.zeros(right.size), np.empty(right.size), right.copy()
    size = np.sqrt(np.sum(right**2))
    wanted = rtol * size
    for _ in range(steps):
        _add_solution(symbolic, factors.value, factors.star, residual, transposed, work, x)
        _subtract_product(graph, omega, x, right, transposed, residual)
        before, size = size, np.sqrt(np.sum(residual**2))
        if size <= wanted:
            return x, True
        if not size <= fall * before:
            break
    return x, False


@njit(cache=True, nogil=True)
def solve_policy(graph: Any, symbolic: Any, factors: Any, omega: Any, right: Any, transposed: bool) -> Any:
    """Overwrite the factors with those of a policy; return the solution (S,), and False if the matrix is singular."""
    x = np.zeros(right.size)
    regular = _factorise(graph, symbolic, omega, factors.value, factors.star)
    if regular:
        _add_solution(symbolic, factors.value, factors.star, right, transposed, np.empty(right.size), x)
    return x, regular


def allocate_factors(symbolic: SymbolicFactorisation) -> PolicyFactors:
    """Return a buffer for the factors of one policy."""
    return PolicyFactors(np.empty(symbolic.n_values), np.empty(symbolic.rank.size))
