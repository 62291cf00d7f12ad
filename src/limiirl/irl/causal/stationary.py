"""Stationary policies: soft values (Ziebart 2010, chapter 9) and hard values, solved without a horizon.

    Q(s, a) = r(s, a) + gamma sum_s' P(s' | s, a) V(s'),  pi(a | s) = exp(beta Q(s, a)) / sum_a' exp(beta Q(s, a')),
    V(s) = r(s) + log sum_a exp(beta Q(s, a)) / beta (soft), or r(s) + max_a Q(s, a) (hard).

Since dV = dr + sum_a omega dQ, with omega = pi (soft) or the best action (hard), one linear solve gives the gradient.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph, linalg

from limiirl._typing import FloatArray
from limiirl.errors import DivergentPartition, InvalidParameter, NumericalError
from limiirl.irl.causal.state_actions import StateActions
from limiirl.kernels.soft_bellman import Moves, fill_systems, look_ahead, look_back, pull_of_moves, settle, soften
from limiirl.mdp import BellmanEquations

# Up to this many states a dense solve is quicker than setting up a sparse one.
DENSE = 250
# Iterations of BiCGSTAB, and how often it is begun anew from its residual, before LU takes over.
_ITERATIONS, _ROUNDS = 300, 3
# A graph is narrow if its states can be numbered so that edges join numbers at most this many times sqrt(S) apart.
# Streets and grids have 1 to 3, random graphs 12 and more; narrow ones have a sparse LU. Porto's 85,000 segments take
# 0.08 s by LU and 0.84 s by BiCGSTAB, a random graph of 3,000 states with 4 edges each 0.6 and 0.05 s.
NARROW = 6.0
# Solutions by the LU of another policy, each correcting the one before, before it is made anew; and by how much the
# residual must fall each time.
CORRECTIONS, _FALL = 8, 0.3


class LUFactors:
    """The last LU of each column's system: a policy that has changed little is solved for by the one before.

    Parameters
    ----------
    columns : (K,)
        The numbers under which the systems at hand are known; equal ones share a LU.
    """

    def __init__(self, columns: NDArray[np.intp]) -> None:
        self.columns = columns
        self.of: dict[int, Any] = {}

    def part(self, columns: NDArray[np.intp]) -> LUFactors:
        """Return the same for some of the columns."""
        found = LUFactors(columns)
        found.of = self.of
        return found


def solve(
    choices: StateActions,
    omega: FloatArray,
    right: FloatArray,
    *,
    transposed: bool = False,
    rtol: float = 1e-13,
    factors: LUFactors | None = None,
) -> FloatArray:
    """Return x (S, K) with (I - gamma P_k) x_k = right_k, P_k[s, s'] = sum_a omega_k(s, a) P(s' | s, a).

    Parameters
    ----------
    omega : (P, K)
        Weights of the choices; for the derivative of a value they need not be probabilities.
    right : (S, K)
    transposed : bool
        Solve with the transposed matrices instead.
    rtol : float
        The residual that an iterative solution may leave, relative to the right side; a direct one leaves rounding.
    factors : Factors, optional
        What is known of systems with nearly the same omega; it is brought up to date.

    Examples
    --------
    A state that is left with probability 1/2 is visited twice.

    >>> from limiirl.mdp import MDP
    >>> mdp = MDP.from_edges([0, 0], [0, 1], action=[0, 0], prob=[0.5, 0.5])
    >>> solve(StateActions(mdp), np.ones((1, 1)), np.array([[1.0], [0.0]]), transposed=True).ravel()
    array([2., 1.])
    """
    n = choices.mdp.n_states
    try:
        if n <= DENSE:
            systems = np.empty((omega.shape[1], n, n))
            fill_systems(choices.graph, omega, systems)
            if transposed:
                systems = systems.transpose(0, 2, 1)
            found = np.linalg.solve(systems, right.T[:, :, None])[:, :, 0].T
        else:
            known = LUFactors(np.arange(omega.shape[1])) if factors is None else factors
            found = np.column_stack(
                [
                    _sparse(choices, omega[:, k], right[:, k], transposed, rtol, known.of, int(column))
                    for k, column in enumerate(known.columns)
                ]
            )
    except (np.linalg.LinAlgError, RuntimeError):  # what numpy and SuperLU say of a singular matrix
        found = np.full(right.shape, np.nan)
    if not np.all(np.isfinite(found)):
        raise NumericalError(
            "The values of a policy left the range of float64: an end is reached too rarely. Lower gamma.",
            parameter="thetas",
        )
    return np.ascontiguousarray(found)


def _sparse(
    choices: StateActions,
    omega: FloatArray,
    right: FloatArray,
    transposed: bool,
    rtol: float,
    known: dict[int, Any],
    column: int,
) -> FloatArray:
    """Solve by LU where the graph is narrow; else by BiCGSTAB where it gets there, as random graphs fill LU in."""
    n = choices.mdp.n_states
    choose: Any = sparse.csr_array((omega, np.arange(omega.size), choices.graph.pair_ptr), shape=(n, omega.size))
    matrix = sparse.csr_array(sparse.eye_array(n) - choices.graph.gamma * (choose @ choices.moves))
    if choices.bandwidth <= NARROW * np.sqrt(n):
        return _direct(matrix, right, transposed, rtol, known, column)
    matrix = sparse.csr_array(matrix.T) if transposed else matrix
    wanted = rtol * float(np.linalg.norm(right))
    x, residual = np.zeros(n), right
    for _ in range(_ROUNDS):
        size = float(np.linalg.norm(residual))
        if size <= wanted:
            return x
        step, _ = linalg.bicgstab(matrix, residual, rtol=min(0.1, 0.5 * wanted / size), atol=0.0, maxiter=_ITERATIONS)
        if np.all(np.isfinite(step)):
            x = x + np.asarray(step)
        residual = right - matrix @ x
    if float(np.linalg.norm(residual)) <= wanted:
        return x
    return np.asarray(linalg.splu(matrix.tocsc()).solve(right))


def _direct(
    matrix: Any, right: FloatArray, transposed: bool, rtol: float, known: dict[int, Any], column: int
) -> FloatArray:
    """Solve by the LU that is known, as long as corrections by it get there fast, else by one of this matrix."""
    trans, operator = ("T", matrix.T) if transposed else ("N", matrix)
    if column in known:
        x, residual = np.zeros(right.size), right
        size = float(np.linalg.norm(right))
        wanted = rtol * size
        for _ in range(CORRECTIONS):
            x = x + known[column].solve(residual, trans)
            residual = right - operator @ x
            before, size = size, float(np.linalg.norm(residual))
            if size <= wanted:
                return np.asarray(x)
            if not size <= _FALL * before:
                break
    known[column] = linalg.splu(matrix.tocsc())
    return np.asarray(known[column].solve(right, trans))


# Newton's method doubles the digits at each step; a cap is reached only where there is no solution.
_STEPS = 100
# Far from the solution, a few sweeps after each step carry news further than the policy's own horizon. A step need not
# be solved to the last digit, as the next one corrects it.
_SWEEPS, _NEAR, _INEXACT = 4, 1e-6, 1e-3
# A residual this small, relative to the largest value, is as good as rounding allows; one that no longer falls is
# accepted below the second.
_SOLVED, _ROUNDING = 1e-14, 1e-9
# In units of a step's reward, how far a backup, or rounding, may still move values that are found.
_CERTAIN = 1e-3
# Actions this close to the best, relative to the largest value, count as ties.
TIE = 1e-12


class Policies(Protocol):
    """The policies of K rewards.

    Attributes
    ----------
    log_choice : (c, K)
        The log-probability of each move asked about.
    residual : (K,)
        How far, relative to the largest value, Bellman's equation was from being solved.
    """

    log_choice: FloatArray
    residual: FloatArray

    def gradient(self, weight: FloatArray) -> FloatArray:
        """Return (K, d): the derivative by theta of sum_c weight (c, K) log_choice (c, K)."""
        ...


class PolicySolver(Protocol):
    """A way from rewards to policies."""

    choices: StateActions

    def solve(self, thetas: FloatArray, moves: Moves) -> Policies:
        """Return the policies of thetas (K, d); `DivergentPartition` where values are infinite."""
        ...

    def policy(self, theta: FloatArray, step: int) -> tuple[FloatArray, FloatArray]:
        """Return the probabilities (P,) of pairs for those who go on at a step, and (S,) of stopping."""
        ...


class BellmanValues(NamedTuple):
    """Q and pi (P, K), omega (P, K), which is dV / dQ, log of the sum over actions (S, K), residuals (K,).

    `factors` are what is known of systems with nearly this omega.
    """

    Q: FloatArray
    norm: FloatArray
    pi: FloatArray
    omega: FloatArray
    residual: FloatArray
    factors: LUFactors | None = None


class StationaryPolicies:
    """Policies from values without a horizon; see `Policies`."""

    def __init__(self, solver: StationarySolver, values: BellmanValues, moves: Moves) -> None:
        self._solver, self._values, self._moves = solver, values, moves
        self.residual = values.residual
        self.log_choice = solver.beta * (values.Q[moves.pair] - values.norm[moves.state])

    def gradient(self, weight: FloatArray) -> FloatArray:
        """Return (K, d), by one adjoint solve: mu = gamma T' (b + omega mu), where b = d / dQ of the function."""
        choices, values = self._solver.choices, self._values
        pull, right = np.empty(values.pi.shape), np.empty(values.norm.shape)
        pull_of_moves(choices.graph.pair_ptr, self._moves, weight, self._solver.beta, values.pi, pull)
        look_back(choices.graph, pull, right)
        # mu is the discounted state occupancy of Ziebart (2010), chapter 9, started with the weights on decisions.
        mu = solve(choices, values.omega, right, transposed=True, factors=values.factors)
        return choices.features(mu, pull + values.omega * mu[choices.mdp.pair_state])


class StationarySolver(ABC):
    """A `PolicySolver` of values without a horizon: policies are the same at every step."""

    def __init__(self, choices: StateActions, beta: float) -> None:
        self.choices, self.beta = choices, beta

    def solve(self, thetas: FloatArray, moves: Moves) -> StationaryPolicies:
        """See `PolicySolver`."""
        return StationaryPolicies(self, self.values(thetas), moves)

    def policy(self, theta: FloatArray, step: int) -> tuple[FloatArray, FloatArray]:
        """See `PolicySolver`; the step does not matter."""
        del step
        return self.values(theta[None]).pi[:, 0], np.zeros(self.choices.mdp.n_states)

    @abstractmethod
    def values(self, thetas: FloatArray) -> BellmanValues:
        """Return the values of thetas (K, d)."""


class SoftBellmanSolver(StationarySolver):
    """Values that count the entropy of the choices, at discount 1 for those who surely end.

    Examples
    --------
    Two ways of equal worth are worth log 2 more than one.

    >>> from limiirl.mdp import MDP
    >>> solver = SoftBellmanSolver(StateActions(MDP.from_edges([0, 0, 1], [1, 2, 2], gamma=0.5)), beta=1.0)
    >>> solver.values(np.zeros((1, 3))).norm.ravel().round(4)
    array([0.6931, 0.    , 0.    ])
    """

    def values(self, thetas: FloatArray) -> BellmanValues:
        """Return the values of thetas (K, d), by Newton's method: from a policy to its value, to a better policy."""
        choices, K = self.choices, thetas.shape[0]
        r_state, r_pair = choices.rewards(thetas)
        found = BellmanValues(
            np.empty(r_pair.shape), np.empty(r_state.shape), np.zeros(r_pair.shape), np.empty(0), np.full(K, np.inf)
        )
        V, open_ = r_state.copy(), np.arange(K)
        unit = 1.0 / self.beta + np.max(np.abs(np.vstack([r_state, r_pair])), axis=0, initial=0.0)
        factors = LUFactors(open_)
        for _ in range(_STEPS):
            step = self._backup(r_state[:, open_], r_pair[:, open_], V[:, open_])
            found.Q[:, open_], found.norm[:, open_], found.pi[:, open_] = step.Q, step.norm, step.pi
            rise = r_state[:, open_] + step.norm - V[:, open_]
            scale = np.max(np.abs(V[:, open_]), axis=0, initial=1e-300)
            most = np.max(np.abs(rise), axis=0, initial=0.0)
            residual = most / scale
            done = (residual <= _SOLVED) | ((residual >= found.residual[open_]) & (residual <= _ROUNDING))
            # Values on their way to infinity rise by as much as ever, which is next to nothing of what they are.
            done &= np.maximum(most, np.finfo(np.float64).eps * scale) <= _CERTAIN * unit[open_]
            found.residual[open_] = residual
            if np.all(done):
                return found._replace(omega=found.pi, factors=factors)
            open_, rise, pi = open_[~done], rise[:, ~done], np.ascontiguousarray(step.pi[:, ~done])
            try:
                better = V[:, open_] + solve(choices, pi, rise, rtol=_INEXACT, factors=factors.part(open_))
            except NumericalError:
                open_ = open_[self._unsolved(pi, rise) :]
                break
            V[:, open_] = better
            self._sweep(r_state, r_pair, V, open_[residual[~done] > _NEAR])
        raise DivergentPartition(
            f"The soft values of thetas[{open_[0]}] are infinite, or beyond float64: some state never ends, or the "
            "choices on the way are worth more than they cost. Use gamma < 1, lower rewards, or a finite max_length.",
            parameter="thetas",
            value=thetas[open_[0]],
            index=int(open_[0]),
        )

    def _sweep(self, r_state: FloatArray, r_pair: FloatArray, V: FloatArray, columns: NDArray[np.intp]) -> None:
        """Sweep some columns of V (S, K) a little towards their solution."""
        if columns.size:
            r, reward, found = (np.ascontiguousarray(values[:, columns]) for values in (r_state, r_pair, V))
            settle(self.choices.graph, r, reward, self.beta, found, _SWEEPS)
            V[:, columns] = found

    def _unsolved(self, pi: FloatArray, rise: FloatArray) -> int:
        """Return the first column that has no solution."""
        for k in range(pi.shape[1] - 1):
            try:
                solve(self.choices, pi[:, k : k + 1], rise[:, k : k + 1], rtol=_INEXACT)
            except NumericalError:
                return k
        return int(pi.shape[1]) - 1

    def _backup(self, r_state: FloatArray, r_pair: FloatArray, V: FloatArray) -> BellmanValues:
        # Ziebart (2010), equations (9.1) to (9.3): Q = r + gamma E[V], norm = softmax_a Q, pi = exp beta (Q - norm).
        Q, norm, pi = np.empty(r_pair.shape), np.empty(r_state.shape), np.zeros(r_pair.shape)
        look_ahead(self.choices.graph, r_pair, V, Q)
        soften(self.choices.graph.pair_ptr, Q, self.beta, False, norm, pi)
        return BellmanValues(Q, norm, pi, pi, np.empty(0))


class HardBellmanSolver(StationarySolver):
    """Values of the best actions, by policy iteration; where several are best, derivatives are averaged over them."""

    def values(self, thetas: FloatArray) -> BellmanValues:
        """Return the values of thetas (K, d)."""
        choices = self.choices
        r_state, r_pair = choices.rewards(thetas)
        Q, norm, pi = np.empty(r_pair.shape), np.empty(r_state.shape), np.zeros(r_pair.shape)
        V = np.column_stack([self._best(theta, k) for k, theta in enumerate(thetas)])
        look_ahead(choices.graph, r_pair, V, Q)
        soften(choices.graph.pair_ptr, Q, self.beta, False, norm, pi)
        omega = np.zeros(Q.shape)
        residual = np.zeros(thetas.shape[0])
        if choices.alive.size:
            best = np.maximum.reduceat(Q, choices.first_pair)
            top = np.zeros(V.shape)
            top[choices.alive] = best
            scale = np.max(np.abs(V), axis=0)
            ties = (top[choices.mdp.pair_state] - Q <= TIE * scale).astype(np.float64)
            omega = ties / np.repeat(
                np.add.reduceat(ties, choices.first_pair), np.diff(choices.graph.pair_ptr)[choices.alive], axis=0
            )
            omega *= self._ends(omega)
            residual = np.max(np.abs(r_state + top - V), axis=0) / np.maximum(scale, 1e-300)
        return BellmanValues(Q, norm, pi, omega, residual)

    def _best(self, theta: FloatArray, k: int) -> FloatArray:
        try:
            return BellmanEquations(self.choices.mdp, theta).solve()
        except InvalidParameter as error:  # at discount 1 the best total may be infinite
            raise DivergentPartition(f"thetas[{k}]: {error}", parameter="thetas", value=theta, index=k) from None

    def _ends(self, omega: FloatArray) -> FloatArray:
        """Return (P, K), 1 but at discount 1 where the best actions never end: there V is taken as fixed."""
        mdp = self.choices.mdp
        found = np.ones(omega.shape)
        if mdp.gamma < 1.0:
            return found
        for k in range(omega.shape[1]):
            used = omega[mdp.pair_of_edge, k] > 0.0
            ends = np.flatnonzero(mdp.terminal)
            rows = np.concatenate([mdp.dst[used], np.full(ends.size, mdp.n_states)])
            columns = np.concatenate([mdp.src[used], ends])
            n = mdp.n_states + 1
            back = sparse.csr_array((np.ones(rows.size), (rows, columns)), shape=(n, n))
            order = csgraph.breadth_first_order(back, mdp.n_states, return_predecessors=False)
            reached = np.zeros(n)
            reached[order] = 1.0
            found[:, k] = reached[mdp.pair_state]
        return found
