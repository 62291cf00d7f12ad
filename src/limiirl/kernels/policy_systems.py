"""State elimination for systems (I - gamma P) x = b of policies on sparse graphs; Newton's method for soft values.

P[s, s'] = sum_a omega(s, a) P(s' | s, a) for weights omega (P,) of the state-action pairs. No terms cancel in the
elimination, because I - gamma P is an M-matrix. On graphs of a few hundred states it is about twenty times as fast as
SuperLU, most of whose time is spent on the construction and the ordering of the matrix.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit, prange

from limiirl._parallel import LOCK, ONLY_PRANGE
from limiirl._typing import FloatArray
from limiirl.kernels.elimination.linear import eliminate, solve, solve_transposed
from limiirl.kernels.elimination.symbolic import SymbolicFactorisation
from limiirl.kernels.soft_bellman import apply_softmax, compute_q, iterate_values

# Number of rewards from which their equations are solved in several threads; waiting for threads would outweigh fewer.
_MANY_COLUMNS = 8


class PolicyFactors(NamedTuple):
    """Factors of I - gamma P: the values and Kleene stars of `linear.eliminate`."""

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
    """Set residual (S,) to right - (I - gamma P) x, or to right - (I - gamma P)' x if `transposed`."""
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
    graph: Any,
    symbolic: Any,
    factors: Any,
    omega: Any,
    right: Any,
    transposed: bool,
    rtol: float,
    steps: int,
    fall: Any,
) -> Any:
    """Return the solution (S,) by iterative refinement with the factors of a similar policy, and True if it converged.

    Refinement stops without convergence after `steps` steps, or if the norm of the residual after a step exceeds `fall`
    times the norm before it.
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
    """Overwrite the factors with those of a policy; return the solution (S,), and True if the matrix is nonsingular."""
    x = np.zeros(right.size)
    regular = _factorise(graph, symbolic, omega, factors.value, factors.star)
    if regular:
        _add_solution(symbolic, factors.value, factors.star, right, transposed, np.empty(right.size), x)
    return x, regular


@njit(cache=True, nogil=True)
def solve_columns(graph: Any, symbolic: Any, factors: Any, omega: Any, right: Any) -> Any:
    """Return the solutions (S, m) for the columns of `right` with one policy, and True if the matrix is nonsingular."""
    up_ptr, up, value, star = symbolic.up_ptr, symbolic.up, factors.value, factors.star
    n, m = up.size, right.shape[1]
    x, work = np.empty(right.shape), np.empty(right.shape)
    if not _factorise(graph, symbolic, omega, value, star):
        return x, False
    for s in range(star.size):
        work[symbolic.rank[s]] = right[s]
    for v in range(star.size):
        for p in range(up_ptr[v], up_ptr[v + 1]):
            weight = star[v] * value[n + p]
            for j in range(m):
                work[up[p], j] += weight * work[v, j]
    for v in range(star.size - 1, -1, -1):
        for p in range(up_ptr[v], up_ptr[v + 1]):
            for j in range(m):
                work[v, j] += value[p] * work[up[p], j]
        for j in range(m):
            work[v, j] *= star[v]
    for s in range(star.size):
        x[s] = work[symbolic.rank[s]]
    return x, True


class NewtonLimits(NamedTuple):
    """Parameters of `solve_soft_values`.

    Attributes
    ----------
    steps : int
        Maximum number of Newton steps.
    backups, near : int, float
        Number of Bellman backups after each Newton step while the residual exceeds `near`.
    solved, rounding : float
        Relative residual at which the iteration stops, and the largest residual that is accepted if it no longer
        decreases.
    certain : float
        Largest accepted change in the last backup, in units of the largest reward of a step.
    """

    steps: int
    backups: int
    near: float
    solved: float
    rounding: float
    certain: float


@njit(cache=True, nogil=True, error_model="numpy")
def solve_soft_values(
    graph: Any,
    symbolic: Any,
    factors: Any,
    r_state: Any,
    reward: Any,
    beta: float,
    limits: Any,
    V: Any,
    Q: Any,
    norm: Any,
    pi: Any,
) -> float:
    """Solve the soft Bellman equation for one reward by Newton's method, and return the relative residual.

    Set V and norm (S, 1), Q and pi (P, 1), and the factors of the last policy before convergence. Return nan if the
    values diverge. Divergent values increase by a constant per backup, so the relative residual alone does not detect
    them.

    Parameters
    ----------
    r_state, reward : (S, 1), (P, 1)
    limits : NewtonLimits
    V : (S, 1)
        Initial values, such as `r_state`.
    """
    residual = np.inf
    unit = 1.0 / beta
    for r in (r_state, reward):
        if r.size:
            unit = max(unit, 1.0 / beta + np.max(np.abs(r)))
    for _ in range(limits.steps):
        compute_q(graph, reward, V, Q)
        apply_softmax(graph.pair_ptr, Q, beta, False, norm, pi)
        rise = (r_state + norm - V)[:, 0]
        # The values may be 0 for large rewards, such as the log-probabilities of a policy.
        most, scale = np.max(np.abs(rise)), max(np.max(np.abs(V)), 1e-3 * unit)
        before, residual = residual, most / scale
        done = residual <= limits.solved or (residual >= before and residual <= limits.rounding)
        if done and max(most, 2.0**-52 * scale) <= limits.certain * unit:
            return residual
        step, regular = solve_policy(graph, symbolic, factors, pi[:, 0], rise, False)
        if not (regular and np.all(np.isfinite(step))):
            break
        V[:, 0] += step
        if residual > limits.near:
            iterate_values(graph, r_state, reward, beta, V, limits.backups)
    return np.nan


@njit(cache=True, nogil=True, error_model="numpy")
def _measure_residual(graph: Any, r_state: Any, reward: Any, beta: float, V: Any, Q: Any, norm: Any, pi: Any) -> float:
    """Return the largest change of values V (S, 1) in one soft Bellman backup."""
    compute_q(graph, reward, V, Q)
    apply_softmax(graph.pair_ptr, Q, beta, False, norm, pi)
    return np.max(np.abs(r_state + norm - V))


@njit(cache=True, nogil=True, error_model="numpy")
def _solve_column(
    graph: Any, symbolic: Any, factors: Any, rewards: Any, beta: float, limits: Any, guess: Any, outputs: Any, k: int
) -> None:
    """Solve for reward k; see `solve_soft_columns`."""
    r_state, reward = rewards
    Q, norm, pi, residual = outputs
    own = PolicyFactors(factors.value[k], factors.star[k])
    r, r_pair = r_state[:, k : k + 1].copy(), reward[:, k : k + 1].copy()
    own_Q, own_norm, own_pi = np.empty(r_pair.shape), np.empty(r.shape), np.empty(r_pair.shape)
    cold = _measure_residual(graph, r, r_pair, beta, r, own_Q, own_norm, own_pi)
    warm = _measure_residual(graph, r, r_pair, beta, guess, own_Q, own_norm, own_pi) < cold
    V = guess.copy() if warm else r.copy()
    residual[k] = solve_soft_values(graph, symbolic, own, r, r_pair, beta, limits, V, own_Q, own_norm, own_pi)
    if warm and np.isnan(residual[k]):
        V[:] = r
        residual[k] = solve_soft_values(graph, symbolic, own, r, r_pair, beta, limits, V, own_Q, own_norm, own_pi)
    Q[:, k], norm[:, k], pi[:, k] = own_Q[:, 0], own_norm[:, 0], own_pi[:, 0]


@njit(cache=True, nogil=True, error_model="numpy")
def _solve_serial(
    graph: Any, symbolic: Any, factors: Any, rewards: Any, beta: float, limits: Any, guess: Any, outputs: Any
) -> None:
    for k in range(rewards[0].shape[1]):
        _solve_column(graph, symbolic, factors, rewards, beta, limits, guess, outputs, k)


@njit(cache=True, nogil=True, error_model="numpy", parallel=ONLY_PRANGE)
def _solve_parallel(
    graph: Any, symbolic: Any, factors: Any, rewards: Any, beta: float, limits: Any, guess: Any, outputs: Any
) -> None:
    for k in prange(rewards[0].shape[1]):
        _solve_column(graph, symbolic, factors, rewards, beta, limits, guess, outputs, k)


def solve_soft_columns(
    graph: Any, symbolic: Any, factors: Any, rewards: Any, beta: float, limits: Any, guess: Any, outputs: Any
) -> None:
    """Solve the soft Bellman equations of K rewards with `solve_soft_values`, in several threads if K is large.

    The initial values are `guess` (S, 1) or the rewards, whichever changes less in a backup. Results do not depend on
    the number of threads.

    Parameters
    ----------
    factors : PolicyFactors
        Buffers (K, n) and (K, S) for the factors of each policy.
    rewards : tuple
        Rewards of states (S, K) and of state-action pairs (P, K).
    outputs : tuple
        Arrays Q (P, K), norm (S, K), pi (P, K) and relative residuals (K,), which are overwritten.
    """
    arguments = graph, symbolic, factors, rewards, beta, limits, guess, outputs
    if rewards[0].shape[1] < _MANY_COLUMNS:
        _solve_serial(*arguments)
    else:
        with LOCK:
            _solve_parallel(*arguments)


def allocate_factors(symbolic: SymbolicFactorisation) -> PolicyFactors:
    """Return a buffer for the factors of one policy."""
    return PolicyFactors(np.empty(symbolic.n_values), np.empty(symbolic.rank.size))
