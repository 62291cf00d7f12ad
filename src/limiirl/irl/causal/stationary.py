"""Stationary policies from soft values (Ziebart 2010, chapter 9) and from hard values.

    Q(s, a) = r(s, a) + gamma sum_s' P(s' | s, a) V(s'),  pi(a | s) = exp(beta Q(s, a)) / sum_a' exp(beta Q(s, a')),
    V(s) = r(s) + log sum_a exp(beta Q(s, a)) / beta (soft), or r(s) + max_a Q(s, a) (hard).

Because dV = dr + sum_a omega dQ, where omega is pi (soft) or 1 for the best action (hard), the gradient of a function
of Q requires only one linear solve.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import linalg

from limiirl._typing import FloatArray
from limiirl.errors import DivergentPartition, InvalidParameter, NumericalError
from limiirl.irl.causal.state_actions import StateActions
from limiirl.kernels.policy_systems import (
    NewtonLimits,
    PolicyFactors,
    allocate_factors,
    refine,
    solve_columns,
    solve_policy,
    solve_soft_columns,
)
from limiirl.kernels.soft_bellman import (
    ObservedPairs,
    add_average,
    apply_softmax,
    centre_scores,
    compute_policy_adjoint,
    compute_q,
    compute_q_adjoint,
    fill_systems,
    iterate_values,
)
from limiirl.kernels.sparse_lu import factorise_lu
from limiirl.mdp import BellmanEquations, find_reachable

# Number of states up to which a dense solver is faster than a sparse solver.
DENSE = 250
# Number of iterations and restarts of BiCGSTAB before LU is used.
_ITERATIONS, _ROUNDS = 300, 3
# Maximum number of refinement steps with the factors of an earlier policy, before the matrix is factorised again; and
# the factor by which each step must reduce the residual.
CORRECTIONS, _FALL = 8, 0.3


class FactorCache:
    """Cache of matrix factors, which are reused while policies change little.

    `columns` (K,) contains one cache key per linear system. Systems with equal keys share factors.
    """

    def __init__(self, columns: NDArray[np.intp]) -> None:
        self.columns = columns
        self.by_column: dict[int, PolicyFactors] = {}

    def part(self, columns: NDArray[np.intp]) -> FactorCache:
        """Return a view of this cache for the systems with keys `columns`."""
        view = FactorCache(columns)
        view.by_column = self.by_column
        return view


def solve(
    pairs: StateActions,
    omega: FloatArray,
    right: FloatArray,
    *,
    transposed: bool = False,
    rtol: float = 1e-13,
    factors: FactorCache | None = None,
) -> FloatArray:
    """Solve (I - gamma P_k) x_k = right_k for x (S, K), where P_k[s, s'] = sum_a omega_k(s, a) P(s' | s, a).

    Parameters
    ----------
    omega : (P, K) or (P, 1)
        Weights of the state-action pairs, not necessarily probabilities. A single column applies to all columns of
        `right`.
    right : (S, K)
    transposed : bool
        Solve with the transposed matrices instead.
    rtol : float
        Relative residual of iterative solutions.
    factors : FactorCache, optional
        Factors of systems with similar omega. They are updated in place.
    """
    n = pairs.mdp.n_states
    if pairs.one_step:
        return np.array(right)
    try:
        if n <= DENSE:
            systems = np.empty((omega.shape[1], n, n))
            fill_systems(pairs.graph, omega, systems)
            if transposed:
                systems = systems.transpose(0, 2, 1)
            x = np.linalg.solve(systems, right.T[:, :, None])[:, :, 0].T
        elif omega.shape[1] < right.shape[1] and pairs.narrow and not transposed:
            system = pairs.graph, pairs.symbolic, allocate_factors(pairs.symbolic)
            x, regular = solve_columns(*system, np.ascontiguousarray(omega[:, 0]), right)
            if not regular:
                raise np.linalg.LinAlgError
        else:
            K = right.shape[1]
            cache = FactorCache(np.arange(K)) if factors is None else factors
            omegas = np.broadcast_to(omega, (len(omega), K))
            x = np.column_stack(
                [
                    _solve_sparse(pairs, omegas[:, k], right[:, k], transposed, rtol, cache.by_column, int(key))
                    for k, key in enumerate(cache.columns)
                ]
            )
    except (np.linalg.LinAlgError, RuntimeError):  # raised by NumPy and SuperLU for a singular matrix
        x = np.full(right.shape, np.nan)
    if not np.all(np.isfinite(x)):
        raise NumericalError(
            "The values of a policy overflow float64, because terminal states are reached too rarely. Reduce gamma.",
            parameter="thetas",
        )
    return np.ascontiguousarray(x)


def _solve_sparse(
    pairs: StateActions,
    omega: FloatArray,
    right: FloatArray,
    transposed: bool,
    rtol: float,
    factors: dict[int, PolicyFactors],
    key: int,
) -> FloatArray:
    """Solve by elimination if the bandwidth is small, otherwise with BiCGSTAB and, if it does not converge, with LU."""
    n = pairs.mdp.n_states
    omega, right = np.ascontiguousarray(omega), np.ascontiguousarray(right)
    if pairs.narrow:
        if key in factors:
            cached = pairs.graph, pairs.symbolic, factors[key]
            solution, converged = refine(*cached, omega, right, transposed, rtol, CORRECTIONS, _FALL)
            if converged:
                return np.asarray(solution)
        return _eliminate(pairs, omega, right, transposed, factors, key)
    matrix = sparse.csr_array(sparse.eye_array(n) - pairs.graph.gamma * pairs.average(omega, pairs.transitions))
    operator = sparse.csr_array(matrix.T) if transposed else matrix
    wanted = rtol * float(np.linalg.norm(right))
    x, residual = np.zeros(n), right
    for _ in range(_ROUNDS):
        size = float(np.linalg.norm(residual))
        if size <= wanted:
            return x
        step, _ = linalg.bicgstab(operator, residual, rtol=min(0.1, 0.5 * wanted / size), atol=0.0, maxiter=_ITERATIONS)
        if np.all(np.isfinite(step)):
            x = x + np.asarray(step)
        residual = right - operator @ x
    if float(np.linalg.norm(residual)) <= wanted:
        return x
    return np.asarray(factorise_lu(matrix.tocsc()).solve(right, "T" if transposed else "N"))


def _eliminate(
    pairs: StateActions,
    omega: FloatArray,
    right: FloatArray,
    transposed: bool,
    factors: dict[int, PolicyFactors],
    key: int,
) -> FloatArray:
    """Replace the cached factors by the factors for omega, and solve; raise `LinAlgError` if the matrix is singular."""
    if key not in factors:
        factors[key] = allocate_factors(pairs.symbolic)
    x, regular = solve_policy(pairs.graph, pairs.symbolic, factors[key], omega, right, transposed)
    if not regular:
        del factors[key]
        raise np.linalg.LinAlgError
    return np.asarray(x)


# Limits of Newton's method (`steps` is reached only if there is no solution), and tolerance of inexact Newton steps.
_LIMITS = NewtonLimits(steps=100, backups=4, near=1e-6, solved=1e-14, rounding=1e-9, certain=1e-3)
_INEXACT = 1e-3
# With exact Newton steps, additional backups save time only while the values are far from the solution.
_EXACT_LIMITS = _LIMITS._replace(backups=2, near=0.1)
# Number of off-diagonal factors up to which new factors take less time than iterative refinement with old ones.
_FEW_FACTORS = 10_000
# Largest number of products in a Hessian, d^2 P, for which Newton's method is used. For the mouse data (d = 128,
# P = 878), a Hessian costs as much as ten gradients, and a fit of two intents takes a third of the time of L-BFGS.
_SMALL_HESSIAN = 50_000_000
# Default number of stored solutions of the soft Bellman equation, two per intent for up to 16 intents; and the memory
# that more of them may take (256 MiB).
_MOST_SOLVED, _SOLVED_BYTES = 32, 2**28
# An action is tied with the best action if their Q-values differ by at most this fraction of the largest value.
TIE = 1e-12


class Policies(Protocol):
    """Policies for K thetas: log-probabilities (c, K) of the observed pairs, and relative Bellman residuals (K,)."""

    log_prob: FloatArray
    residual: FloatArray

    def gradient(self, weight: FloatArray) -> FloatArray:
        """Return the gradient (K, d) with respect to theta of sum_c weight (c, K) log_prob (c, K)."""


class PolicySolver(Protocol):
    """Solver that computes the policies for given rewards."""

    pairs: StateActions

    def solve(self, thetas: FloatArray, observed: ObservedPairs) -> Policies:
        """Return the policies for thetas (K, d); raise `DivergentPartition` if values are infinite."""

    def policy(self, theta: FloatArray, step: int) -> tuple[FloatArray, FloatArray]:
        """Return, for a step, the probabilities of pairs (P,) if the trajectory continues, and of stopping (S,)."""


class BellmanValues(NamedTuple):
    """Solution of the Bellman equation: Q and pi (P, K), norm (S, K) = log sum_a exp(beta Q) / beta, residuals (K,).

    omega (P, K) is dV / dQ, and `factors` contains the factors of linear systems with similar omega.
    """

    Q: FloatArray
    norm: FloatArray
    pi: FloatArray
    omega: FloatArray
    residual: FloatArray
    factors: FactorCache | None = None


class StationaryPolicies:
    """Stationary policies; see `Policies`."""

    def __init__(self, solver: StationarySolver, values: BellmanValues, observed: ObservedPairs) -> None:
        self._solver, self._values, self._observed = solver, values, observed
        self.residual = values.residual
        self.log_prob = solver.beta * (values.Q[observed.pair] - values.norm[observed.state])

    def gradient(self, weight: FloatArray) -> FloatArray:
        """Return the gradient (K, d), where b is the adjoint of Q and mu = gamma T' (b + omega mu) the adjoint of V."""
        pairs, values = self._solver.pairs, self._values
        q_bar, right = np.empty(values.pi.shape), np.empty(values.norm.shape)
        compute_policy_adjoint(pairs.graph.pair_ptr, self._observed, weight, self._solver.beta, values.pi, q_bar)
        compute_q_adjoint(pairs.graph, q_bar, right)
        # mu is the discounted state occupancy of Ziebart (2010), chapter 9, with the weighted decisions as source term.
        mu = solve(pairs, values.omega, right, transposed=True, factors=values.factors)
        return pairs.features(mu, q_bar + values.omega * mu[pairs.mdp.pair_state])


class PolicyDerivatives(NamedTuple):
    """Bellman values, log-policy log pi (P,) and scores d log pi / d theta (P, d) for one theta.

    The next call of `StationarySolver.derivatives` may overwrite the scores.
    """

    values: BellmanValues
    log_prob: FloatArray
    scores: FloatArray


class StationarySolver(ABC):
    """Base class of solvers whose policy is the same at every step.

    `smooth` is False if the values are piecewise linear in theta.
    """

    smooth = True

    def __init__(self, pairs: StateActions, beta: float) -> None:
        self.pairs, self.beta = pairs, beta
        self._arrays: tuple[FloatArray, FloatArray, FloatArray] | None = None

    def solve(self, thetas: FloatArray, observed: ObservedPairs) -> StationaryPolicies:
        """See `PolicySolver`."""
        return StationaryPolicies(self, self.values(thetas), observed)

    def policy(self, theta: FloatArray, step: int) -> tuple[FloatArray, FloatArray]:
        """See `PolicySolver`; the policy does not depend on the step."""
        del step
        return self.values(theta[None]).pi[:, 0], np.zeros(self.pairs.mdp.n_states)

    def derivatives(self, theta: FloatArray) -> PolicyDerivatives:
        """Return the log-probabilities of all pairs at theta (d,), and their gradients, with d linear solves."""
        pairs, values = self.pairs, self.values(theta[None])
        graph, (state_rows, pair_rows) = pairs.graph, pairs.feature_rows()
        right, scores, _ = self._workspace()
        # dV = phi + omega dQ and dQ = phi + gamma P dV.
        right[:] = state_rows
        add_average(graph.pair_ptr, values.omega[:, 0], pair_rows, right)
        compute_q(graph, pair_rows, solve(pairs, values.omega, right), scores)
        centre_scores(graph.pair_ptr, values.pi[:, 0], self.beta, scores)
        return PolicyDerivatives(values, self.beta * (values.Q - values.norm[pairs.mdp.pair_state])[:, 0], scores)

    def hessian(self, derivatives: PolicyDerivatives, observed: ObservedPairs, weight: FloatArray) -> FloatArray:
        """Return the Hessian (d, d) of sum_c weight_c log pi(c) for observed pairs (c,).

        The Hessian is sum_s (mu(s) / beta - n(s)) Cov_pi(scores | s), where n(s) is the weight of the decisions in s
        and mu(s) is the adjoint of V(s). The term with mu is omitted for hard values, which are piecewise linear.
        """
        pairs, values, scores = self.pairs, derivatives.values, derivatives.scores
        level: FloatArray = np.bincount(observed.state, -weight, minlength=pairs.mdp.n_states).astype(np.float64)
        if self.smooth:
            q_bar, right = np.empty(values.pi.shape), np.empty(values.norm.shape)
            compute_policy_adjoint(pairs.graph.pair_ptr, observed, weight[:, None], self.beta, values.pi, q_bar)
            compute_q_adjoint(pairs.graph, q_bar, right)
            level = level + solve(pairs, values.omega, right, transposed=True)[:, 0] / self.beta
        _, _, weighted = self._workspace()
        np.multiply(scores, (values.pi[:, 0] * level[pairs.mdp.pair_state])[:, None], out=weighted)
        return np.asarray(scores.T @ weighted)

    def _workspace(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return arrays (S, d), (P, d) and (P, d) for a Hessian.

        Small arrays are stored, because page faults of new arrays take as long as the arithmetic on them.
        """
        if self._arrays is not None:
            return self._arrays
        states, pairs = (rows.shape for rows in self.pairs.feature_rows())
        arrays = np.empty(states), np.empty(pairs), np.empty(pairs)
        if self.pairs.stores_rows:
            self._arrays = arrays
        return arrays

    @abstractmethod
    def values(self, thetas: FloatArray) -> BellmanValues:
        """Return the values of thetas (K, d)."""


class SolvedRewards(NamedTuple):
    """Soft values of one reward: Q and pi (P,), norm (S,), the relative residual, and the factors; never modified."""

    Q: FloatArray
    norm: FloatArray
    pi: FloatArray
    residual: float
    factors: PolicyFactors


class SoftBellmanSolver(StationarySolver):
    """Solver for soft values with Newton's method. At discount 1, every state must reach a terminal state.

    The last solutions are stored, because EM needs the soft values of the same theta in the E-step, in the evaluation
    at the start of the M-step, and for its Hessian.
    """

    def __init__(self, pairs: StateActions, beta: float) -> None:
        super().__init__(pairs, beta)
        self._solved: dict[bytes, SolvedRewards] = {}
        self._n_stored = 0

    def store(self, n: int) -> None:
        """Store the last `n` solutions, as far as memory allows, or the default number if that is larger."""
        if not self._has_few_factors:
            return
        mdp, symbolic = self.pairs.mdp, self.pairs.symbolic
        size = 8 * (3 * (mdp.n_states + mdp.n_pairs) + symbolic.n_values)
        self._n_stored = min(n, _SOLVED_BYTES // size)
        self._drop()

    def _drop(self) -> None:
        """Delete the least recently used solutions, which are the first."""
        for key in list(self._solved)[: max(0, len(self._solved) - max(self._n_stored, _MOST_SOLVED))]:
            del self._solved[key]

    @property
    def _has_few_factors(self) -> bool:
        return self.pairs.mdp.n_states > DENSE and self.pairs.narrow and self.pairs.symbolic.up.size <= _FEW_FACTORS

    @property
    def has_cheap_hessian(self) -> bool:
        """True if computing a Hessian takes less time than the evaluations that it saves."""
        mdp = self.pairs.mdp
        return self._has_few_factors and mdp.n_features**2 * mdp.n_pairs <= _SMALL_HESSIAN

    @np.errstate(over="ignore", invalid="ignore")
    def values(self, thetas: FloatArray) -> BellmanValues:
        """Return the soft values of thetas (K, d)."""
        pairs, K = self.pairs, thetas.shape[0]
        r_state, r_pair = pairs.rewards(thetas)
        values = BellmanValues(
            np.empty(r_pair.shape), np.empty(r_state.shape), np.zeros(r_pair.shape), np.empty(0), np.full(K, np.inf)
        )
        if pairs.one_step:
            step = self._backup(r_state, r_pair, r_state)
            if not np.all(np.isfinite(step.norm[pairs.alive])):
                raise _infinite(thetas, int(np.argmin(np.isfinite(step.norm[pairs.alive]).all(axis=0))))
            factors = FactorCache(np.arange(K))
            return step._replace(omega=step.pi, residual=np.zeros(K), factors=factors)
        if self._has_few_factors:
            return self._eliminate(r_state, r_pair, values, thetas)
        V, open_ = r_state.copy(), np.arange(K)
        unit = 1.0 / self.beta + np.max(np.abs(np.vstack([r_state, r_pair])), axis=0, initial=0.0)
        factors = FactorCache(open_)
        for _ in range(_LIMITS.steps):
            step = self._backup(r_state[:, open_], r_pair[:, open_], V[:, open_])
            values.Q[:, open_], values.norm[:, open_], values.pi[:, open_] = step.Q, step.norm, step.pi
            rise = r_state[:, open_] + step.norm - V[:, open_]
            # The values may be 0 for large rewards, such as the log-probabilities of a policy.
            scale = np.maximum(np.max(np.abs(V[:, open_]), axis=0), 1e-3 * unit[open_])
            most = np.max(np.abs(rise), axis=0, initial=0.0)
            residual = most / scale
            done = (residual <= _LIMITS.solved) | (
                (residual >= values.residual[open_]) & (residual <= _LIMITS.rounding)
            )
            # Divergent values increase by a constant per backup. Relative to the values, this constant becomes small.
            done &= np.maximum(most, np.finfo(np.float64).eps * scale) <= _LIMITS.certain * unit[open_]
            values.residual[open_] = residual
            if np.all(done):
                return values._replace(omega=values.pi, factors=factors)
            open_, rise, pi = open_[~done], rise[:, ~done], np.ascontiguousarray(step.pi[:, ~done])
            try:
                better = V[:, open_] + solve(pairs, pi, rise, rtol=_INEXACT, factors=factors.part(open_))
            except NumericalError:
                open_ = open_[self._first_singular(pi, rise) :]
                break
            V[:, open_] = better
            self._iterate(r_state, r_pair, V, open_[residual[~done] > _LIMITS.near])
        raise _infinite(thetas, int(open_[0]))

    def _eliminate(
        self, r_state: FloatArray, r_pair: FloatArray, values: BellmanValues, thetas: FloatArray
    ) -> BellmanValues:
        """Set Q, norm, pi and residuals; return the values."""
        factors = FactorCache(np.arange(len(thetas)))
        for k, solved in enumerate(self._solve_rewards(r_state, r_pair)):
            if np.isnan(solved.residual):
                raise _infinite(thetas, k)
            values.Q[:, k], values.norm[:, k], values.pi[:, k] = solved.Q, solved.norm, solved.pi
            values.residual[k] = solved.residual
            # `solve` may overwrite factors.
            factors.by_column[k] = PolicyFactors(*(part.copy() for part in solved.factors))
        return values._replace(omega=values.pi, factors=factors)

    def _solve_rewards(self, r_state: FloatArray, r_pair: FloatArray) -> list[SolvedRewards]:
        """Return the soft values of rewards (S, K) and (P, K), from the stored solutions where possible."""
        keys = [r_state[:, k].tobytes() + r_pair[:, k].tobytes() for k in range(r_state.shape[1])]
        solved = {key: self._solved.pop(key) for key in set(keys) & self._solved.keys()}
        new = [k for k, key in enumerate(keys) if key not in solved and key not in keys[:k]]
        first = new[:0] if solved else new[:1]  # the others start from the values of one solution
        for columns in (first, new[len(first) :]):
            if columns:
                start = next(((k, solved[key]) for k, key in enumerate(keys) if key in solved), None)
                guess = r_state[:, columns[:1]] if start is None else (r_state[:, start[0]] + start[1].norm)[:, None]
                results = self._solve_columns(r_state[:, columns], r_pair[:, columns], np.ascontiguousarray(guess))
                solved |= {keys[k]: result for k, result in zip(columns, results, strict=True)}
        self._solved |= {key: solved[key] for key in dict.fromkeys(keys)}
        self._drop()
        return [solved[key] for key in keys]

    def _solve_columns(self, r_state: FloatArray, r_pair: FloatArray, guess: FloatArray) -> list[SolvedRewards]:
        """Return the soft values of rewards, with new factors in every Newton step."""
        symbolic, K = self.pairs.symbolic, r_state.shape[1]
        factors = PolicyFactors(np.empty((K, symbolic.n_values)), np.empty((K, len(r_state))))
        Q, norm, pi, residual = np.empty(r_pair.shape), np.empty(r_state.shape), np.empty(r_pair.shape), np.empty(K)
        outputs = Q, norm, pi, residual
        system = self.pairs.graph, symbolic, factors, (r_state, r_pair), self.beta, _EXACT_LIMITS
        solve_soft_columns(*system, guess, outputs)
        return [
            SolvedRewards(
                Q[:, k], norm[:, k], pi[:, k], float(residual[k]), PolicyFactors(factors.value[k], factors.star[k])
            )
            for k in range(K)
        ]

    def _iterate(self, r_state: FloatArray, r_pair: FloatArray, V: FloatArray, columns: NDArray[np.intp]) -> None:
        """Apply a few Bellman backups to some columns of V (S, K)."""
        if columns.size:
            r, reward, part = (np.ascontiguousarray(values[:, columns]) for values in (r_state, r_pair, V))
            iterate_values(self.pairs.graph, r, reward, self.beta, part, _LIMITS.backups)
            V[:, columns] = part

    def _first_singular(self, pi: FloatArray, rise: FloatArray) -> int:
        """Return the index of the first column with a singular system."""
        for k in range(pi.shape[1] - 1):
            try:
                solve(self.pairs, pi[:, k : k + 1], rise[:, k : k + 1], rtol=_INEXACT)
            except NumericalError:
                return k
        return int(pi.shape[1]) - 1

    def _backup(self, r_state: FloatArray, r_pair: FloatArray, V: FloatArray) -> BellmanValues:
        # Ziebart (2010), equations (9.1) to (9.3): Q = r + gamma E[V], norm = softmax_a Q, pi = exp beta (Q - norm).
        Q, norm, pi = np.empty(r_pair.shape), np.empty(r_state.shape), np.zeros(r_pair.shape)
        compute_q(self.pairs.graph, r_pair, V, Q)
        apply_softmax(self.pairs.graph.pair_ptr, Q, self.beta, False, norm, pi)
        return BellmanValues(Q, norm, pi, pi, np.empty(0))


def _infinite(thetas: FloatArray, k: int) -> DivergentPartition:
    return DivergentPartition(
        f"The soft values of thetas[{k}] are infinite or overflow float64: some state never reaches a terminal state, "
        "or entropy outweighs the costs. Use gamma < 1, lower rewards, or a finite max_length.",
        parameter="thetas",
        value=thetas[k],
        index=k,
    )


class HardBellmanSolver(StationarySolver):
    """Solver for hard values with policy iteration. Derivatives are averaged over tied actions."""

    smooth = False

    @np.errstate(over="ignore", invalid="ignore")
    def values(self, thetas: FloatArray) -> BellmanValues:
        """Return the values of thetas (K, d)."""
        pairs = self.pairs
        r_state, r_pair = pairs.rewards(thetas)
        Q, norm, pi = np.empty(r_pair.shape), np.empty(r_state.shape), np.zeros(r_pair.shape)
        V = np.column_stack([self._best(theta, k) for k, theta in enumerate(thetas)])
        compute_q(pairs.graph, r_pair, V, Q)
        apply_softmax(pairs.graph.pair_ptr, Q, self.beta, False, norm, pi)
        omega = np.zeros(Q.shape)
        residual = np.zeros(thetas.shape[0])
        if pairs.alive.size:
            best = np.maximum.reduceat(Q, pairs.first_pair)
            top = np.zeros(V.shape)
            top[pairs.alive] = best
            scale = np.max(np.abs(V), axis=0)
            ties = (top[pairs.mdp.pair_state] - Q <= TIE * scale).astype(np.float64)
            omega = ties / np.repeat(
                np.add.reduceat(ties, pairs.first_pair), np.diff(pairs.graph.pair_ptr)[pairs.alive], axis=0
            )
            omega *= self._reach_terminal(omega)
            residual = np.max(np.abs(r_state + top - V), axis=0) / np.maximum(scale, 1e-300)
        return BellmanValues(Q, norm, pi, omega, residual)

    def _best(self, theta: FloatArray, k: int) -> FloatArray:
        try:
            return BellmanEquations(self.pairs.mdp, theta).solve()
        except InvalidParameter as error:  # at discount 1 the optimal value may be infinite
            raise DivergentPartition(f"thetas[{k}]: {error}", parameter="thetas", value=theta, index=k) from None

    def _reach_terminal(self, omega: FloatArray) -> FloatArray:
        """Return an array (P, K) of 0 and 1, where 0 marks pairs whose values are treated as locally constant in theta.

        These are, at discount 1, the pairs of states from which optimal actions never reach a terminal state.
        """
        mdp = self.pairs.mdp
        ending = np.ones(omega.shape)
        if mdp.gamma == 1.0:
            for k in range(omega.shape[1]):
                used = omega[mdp.pair_of_edge, k] > 0.0
                ending[:, k] = find_reachable(mdp.dst[used], mdp.src[used], mdp.terminal)[mdp.pair_state]
        return ending
