"""Optimal values, optimal policies and policy evaluation.

``Q(s, a) = r(s) + sum_s' P(s' | s, a) (r(s, a, s') + gamma V(s'))``, and ``V(s) = r(s)`` in terminal states.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.sparse import csgraph, linalg

from limiirl._typing import BoolArray, FloatArray, IndexArray
from limiirl._validation import as_floats, check_fraction
from limiirl.errors import InvalidParameter, NumericalError
from limiirl.kernels.graph import pair_starts
from limiirl.kernels.sparse_lu import factorise_lu
from limiirl.mdp.mdp import MDP

ROUNDING = 1e-13
"""Relative improvement below which an action is not replaced: about 100 times the error of a linear solve."""

# Largest number of states for which a dense solve is faster.
_DENSE = 250
# Number of Bellman backups before policy iteration, and its iteration limit (reached only if rounding causes a cycle).
_BACKUPS, _ITERATIONS = 30, 10_000
# Tolerance for the sums of a policy's probabilities, equal to that for transition probabilities.
_TOLERANCE = 1e-8


class BellmanEquations:
    """Bellman equations of an MDP with one reward vector, solved by policy iteration."""

    def __init__(self, mdp: MDP, theta: FloatArray) -> None:
        r_state, r_edge = mdp.rewards(theta)
        self.mdp = mdp
        self.r_state: FloatArray = r_state[:, 0]
        self.r_edge: FloatArray = np.zeros(mdp.n_edges) if r_edge is None else r_edge[:, 0]
        self.first_edge: IndexArray = np.flatnonzero(pair_starts(mdp.src, mdp.act))
        self.nonterminal: IndexArray = np.flatnonzero(~mdp.terminal)
        self.first_pair: IndexArray = np.searchsorted(mdp.pair_state, self.nonterminal)
        self.owner: IndexArray = np.searchsorted(self.nonterminal, mdp.pair_state)

    def action_values(self, V: FloatArray) -> FloatArray:
        """Return Q (P,) from V (S,)."""
        mdp = self.mdp
        continuation = np.add.reduceat(mdp.prob * (self.r_edge + mdp.gamma * V[mdp.dst]), self.first_edge)
        return np.asarray(self.r_state[mdp.pair_state] + continuation)

    def solve(self) -> FloatArray:
        """Return V* (S,) by policy iteration; an action is replaced only if the improvement exceeds rounding error.

        For gamma = 1 the initial policy terminates with probability 1. If an improved policy does not terminate with
        probability 1, it has a cycle of positive average reward, and the total reward is unbounded.
        """
        mdp, nonterminal = self.mdp, self.nonterminal
        if not nonterminal.size:
            return self.r_state.copy()
        zero_value = np.zeros(mdp.n_states, dtype=np.bool_)
        if mdp.gamma == 1.0:
            zero_value = self.find_zero_reward(np.ones(mdp.n_pairs, dtype=np.bool_), every=False)
        choice = self._initial_pairs(zero_value)
        before = np.full(mdp.n_states, -np.inf)
        for _ in range(_ITERATIONS):
            policy = np.zeros(mdp.n_pairs)
            policy[choice] = 1.0
            if mdp.gamma == 1.0:
                self.next_towards_end(policy > 0.0, zero_value, "some policy has unbounded total reward")
            V = self.evaluate(policy, zero_value)
            slack = ROUNDING * float(np.abs(V).max())
            Q = self.action_values(V)
            greedy = self.greedy(Q)
            change = Q[greedy] > np.where(zero_value[nonterminal], 0.0, Q[choice]) + slack
            if not change.any() or np.all(before + slack >= V):
                return V
            choice = np.where(change, greedy, choice)
            # Values never decrease, so a state whose value exceeds 0 cannot return to the mask.
            zero_value[nonterminal[change]] = False
            before = V
        raise NumericalError(
            f"Policy iteration did not converge in {_ITERATIONS} iterations; values reach {np.abs(V).max():.3g}. "
            "Reduce gamma or the range of the rewards."
        )

    def best(self, Q: FloatArray) -> FloatArray:
        """Return max_a Q(s, a) of every nonterminal state."""
        return np.asarray(np.maximum.reduceat(Q, self.first_pair))

    def greedy(self, Q: FloatArray) -> IndexArray:
        """Return the index of the optimal (s, a) pair of every nonterminal state, the first pair in case of ties."""
        optimal = np.flatnonzero(self.best(Q)[self.owner] == Q)
        return np.asarray(optimal[np.searchsorted(self.owner[optimal], np.arange(self.nonterminal.size))])

    def _initial_pairs(self, zero_value: BoolArray) -> IndexArray:
        mdp = self.mdp
        if mdp.gamma < 1.0:
            V = self.r_state.copy()
            for _ in range(_BACKUPS):
                V[self.nonterminal] = self.best(self.action_values(V))
            return self.greedy(self.action_values(V))
        every = np.ones(mdp.n_pairs, dtype=np.bool_)
        successor = self.next_towards_end(every, zero_value, "no terminal state is reachable")
        # A policy that moves closer to an end with positive probability from every state terminates with probability 1.
        towards = np.zeros(mdp.n_pairs)
        towards[mdp.pair_of_edge[mdp.dst == successor[mdp.src]]] = 1.0
        return self.greedy(towards)

    def find_zero_reward(self, used: BoolArray, *, every: bool) -> BoolArray:
        """Return the mask (S,) of nonterminal states from which a policy can receive zero rewards forever.

        Only the pairs `used` (P,) are available. If `every`, all policies on these pairs must receive zero rewards.
        """
        mdp = self.mdp
        zero = ~mdp.terminal
        idle = used & (self.r_state[mdp.pair_state] == 0.0)
        idle &= np.logical_and.reduceat(self.r_edge == 0.0, self.first_edge) if idle.size else False
        while idle.any():
            idle &= np.logical_and.reduceat(zero[mdp.dst], self.first_edge)
            stays = np.logical_and.reduceat(idle | ~used, self.first_pair) if every else None
            stays = np.logical_or.reduceat(idle, self.first_pair) if stays is None else stays
            if np.array_equal(zero[self.nonterminal], stays):
                return np.asarray(zero)
            zero[self.nonterminal] = stays
        return np.zeros(mdp.n_states, dtype=np.bool_)

    def next_towards_end(self, used: BoolArray, zero_value: BoolArray, fault: str) -> IndexArray:
        """Return the next state (S,) on a shortest path to a terminal state or a state of the mask `zero_value` (S,).

        Paths use only the pairs `used` (P,). If a state has no such path, an error with the reason `fault` is raised.
        """
        mdp, sink = self.mdp, self.mdp.n_states
        ends = np.flatnonzero(mdp.terminal | zero_value)
        edges = used[mdp.pair_of_edge]
        rows = np.concatenate([mdp.dst[edges], np.full(ends.size, sink)])
        columns = np.concatenate([mdp.src[edges], ends])
        backwards = sparse.csr_array((np.ones(rows.size), (rows, columns)), shape=(sink + 1, sink + 1))
        order, successor = csgraph.breadth_first_order(backwards, sink)
        if order.size <= sink:
            trapped = np.setdiff1d(np.arange(sink), order)
            message = (
                f"With gamma = 1, the total reward under theta must be finite, but from state {trapped[0]} (the first "
                f"of {trapped.size}) {fault}. Use gamma < 1, make a state terminal, or change theta."
            )
            raise InvalidParameter(message, parameter="theta", index=int(trapped[0]))
        return np.asarray(successor[:sink], dtype=np.intp)

    def evaluate(self, policy: FloatArray, zero_value: BoolArray) -> FloatArray:
        """Return the values V (S,) of a policy (P,), with V = 0 in the states of the mask `zero_value` (S,)."""
        mdp, n = self.mdp, self.mdp.n_states
        weight = np.where(zero_value[mdp.src], 0.0, policy[mdp.pair_of_edge] * mdp.prob)
        reward = np.where(zero_value, 0.0, self.r_state + np.bincount(mdp.src, weight * self.r_edge, minlength=n))
        if n <= _DENSE:
            kernel = np.bincount(mdp.src * n + mdp.dst, weight, minlength=n * n).reshape(n, n)
            return _finite(lambda: np.linalg.solve(np.eye(n) - mdp.gamma * kernel, reward))
        used = weight > 0.0
        P = sparse.csr_array((weight[used], (mdp.src[used], mdp.dst[used])), shape=(n, n))
        matrix = sparse.csr_array(sparse.eye_array(n) - mdp.gamma * P)
        return _finite(lambda: _sparse_solve(matrix, reward, mdp.gamma))


def _finite(solve: Callable[[], FloatArray]) -> FloatArray:
    try:
        values = solve()
    except (np.linalg.LinAlgError, RuntimeError):  # numpy and SuperLU, for a singular matrix
        values = np.array([np.nan])
    if not np.isfinite(values).all():
        message = "Policy values exceed the range of float64 (trajectories are too long). Reduce gamma."
        raise NumericalError(message, parameter="theta")
    return values


def _sparse_solve(matrix: sparse.csr_array[np.float64, tuple[int, int]], right: FloatArray, gamma: float) -> FloatArray:
    """Solve with BiCGSTAB if its residual guarantees 11 digits, otherwise with LU, which may have much fill-in.

    LU is used directly if states have at most one successor on average.
    """
    x, residual = np.zeros(right.size), right
    for _ in range(3 if gamma < 1.0 and matrix.nnz > 2 * right.size else 0):
        step, _ = linalg.bicgstab(matrix, residual, rtol=1e-12, maxiter=500)
        x = x + np.asarray(step)
        residual = right - matrix @ x
        # The norm of the inverse is at most 1 / (1 - gamma), and the error of Q must be well below ROUNDING.
        if float(np.abs(residual).max()) <= min(1e-14, 1e-11 * (1.0 - gamma)) * float(np.abs(x).max()):
            return x
    return np.asarray(factorise_lu(matrix.tocsc()).solve(right))


def optimal_values(mdp: MDP, theta: ArrayLike, *, minimise: bool = False) -> FloatArray:
    """Return the optimal values V* (S,), exact up to rounding, by policy iteration.

    For gamma = 1 the maximum is over policies that, with probability 1, reach a terminal state or stay in states of
    zero reward. An error is raised if there is no such policy, or if the total reward is unbounded.

    Parameters
    ----------
    mdp : MDP
    theta : (d,)
        One parameter vector.
    minimise : bool
        Return the values of the worst policy instead.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2], gamma=0.5, state_features=[-1.0, -1.0, 4.0])
    >>> optimal_values(mdp, [1.0])
    array([1., 1., 4.])
    >>> optimal_values(mdp, [1.0], minimise=True)
    array([-0.5,  1. ,  4. ])
    """
    problem = _problem(mdp, theta, minimise=minimise)
    values = problem.solve()
    return -values + 0.0 if minimise else values  # adding 0 turns -0.0 into 0.0


def action_values(mdp: MDP, values: ArrayLike, theta: ArrayLike) -> FloatArray:
    """Return the Q-values (P,) of all (s, a) pairs, in the order of `mdp.pair_state`, from state values V (S,).

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2], gamma=0.5, state_features=[-1.0, -1.0, 4.0])
    >>> action_values(mdp, optimal_values(mdp, [1.0]), [1.0])
    array([-0.5,  1. ,  1. ])
    """
    V = as_floats(values, "values")
    if V.shape != (mdp.n_states,):
        raise InvalidParameter.of("values", V.shape, f"must have shape ({mdp.n_states},), one value per state")
    return _problem(mdp, theta).action_values(V)


def optimal_policy(mdp: MDP, theta: ArrayLike, *, tol: float = 1e-6) -> FloatArray:
    """Return the optimal policy that is uniform over tied actions: probabilities (P,) of the (s, a) pairs.

    Action a is optimal in s if ``Q(s, a) >= max_a' Q(s, a') - tol (max Q - min Q)``, where the range of Q is over
    all pairs, so that ties depend neither on the scale of the rewards nor on rounding.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 0, 1, 2], [1, 2, 3, 3, 3], gamma=0.5, state_features=[0.0, -1.0, -1.0, 8.0])
    >>> optimal_policy(mdp, [1.0])
    array([0., 0., 1., 1., 1.])
    >>> optimal_policy(mdp, [0.0])
    array([0.33333333, 0.33333333, 0.33333333, 1.        , 1.        ])
    """
    if check_fraction(tol, "tol") == 1.0:
        raise InvalidParameter.of("tol", tol, "must lie in [0, 1)", remedy="It is a fraction of the range of Q.")
    problem = _problem(mdp, theta)
    Q = problem.action_values(problem.solve())
    if not Q.size:
        return Q
    # If the range of Q is only rounding error, all actions are tied.
    slack = max(tol * float(np.ptp(Q)), 10.0 * ROUNDING * float(np.abs(Q).max()))
    optimal = problem.best(Q)[problem.owner] <= Q + slack
    ties = np.add.reduceat(optimal, problem.first_pair, dtype=np.float64)
    return np.asarray(optimal / ties[problem.owner])


def policy_values(mdp: MDP, policy: ArrayLike, theta: ArrayLike) -> FloatArray:
    """Return the values V (S,) of a policy, computed with a linear solve.

    For gamma = 1 the policy must reach a terminal state, or states of zero reward, from every state.

    Parameters
    ----------
    mdp : MDP
    policy : (P,)
        Probabilities of the (s, a) pairs, in the order of `mdp.pair_state`; they sum to 1 over each state's pairs.
    theta : (d,)
        One parameter vector.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2], gamma=0.5, state_features=[-1.0, -1.0, 4.0])
    >>> policy_values(mdp, [0.5, 0.5, 1.0], [1.0])
    array([0.25, 1.  , 4.  ])
    """
    problem, weights = _problem(mdp, theta), check_policy(mdp, policy)
    zero_value = np.zeros(mdp.n_states, dtype=np.bool_)
    if mdp.gamma == 1.0:
        zero_value = problem.find_zero_reward(weights > 0.0, every=True)
        problem.next_towards_end(weights > 0.0, zero_value, "the policy never reaches a terminal state")
    return problem.evaluate(weights, zero_value)


def policy_table(mdp: MDP, policy: ArrayLike) -> FloatArray:
    """Return a policy (P,) over state-action pairs as a table of action probabilities (S, A).

    Environments index policies by state and action; pass the table to `Demonstrations.from_rollouts`. Unavailable
    actions have probability 0, and rows of terminal states are zero. `policy_pairs` is the inverse.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2])
    >>> policy_table(mdp, [0.25, 0.75, 1.0])
    array([[0.25, 0.75],
           [1.  , 0.  ],
           [0.  , 0.  ]])
    """
    table = np.zeros((mdp.n_states, mdp.n_actions))
    table[mdp.pair_state, mdp.pair_action] = check_policy(mdp, policy)
    return table


def policy_pairs(mdp: MDP, table: ArrayLike) -> FloatArray:
    """Return a table of action probabilities (S, A) as a policy (P,) over state-action pairs.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2])
    >>> policy_pairs(mdp, [[0.25, 0.75], [1, 0], [0, 0]])
    array([0.25, 0.75, 1.  ])
    """
    probabilities = np.asarray(table)
    shape = (mdp.n_states, mdp.n_actions)
    if probabilities.shape != shape:
        raise InvalidParameter.of("table", probabilities.shape, f"must have shape {shape}, one row per state")
    return check_policy(mdp, probabilities[mdp.pair_state, mdp.pair_action])


def check_policy(mdp: MDP, policy: ArrayLike) -> FloatArray:
    """Return a stationary policy (P,) as float64 after checking its shape, signs and sums.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2])
    >>> check_policy(mdp, [0.5, 0.4, 1.0])
    Traceback (most recent call last):
    limiirl.errors.InvalidParameter: policy[0] must sum to 1 over the actions of a state; got 0.9.
    """
    weights = as_floats(policy, "policy")
    if weights.shape != (mdp.n_pairs,):
        rule = f"must have shape ({mdp.n_pairs},), one probability per (s, a) pair in the order of mdp.pair_state"
        raise InvalidParameter.of("policy", weights.shape, rule)
    negative = np.flatnonzero(~(weights >= 0.0))
    if negative.size:
        pair = int(negative[0])
        rule = f"(state {mdp.pair_state[pair]}, action {mdp.pair_action[pair]}) must not be negative"
        raise InvalidParameter.of("policy", float(weights[pair]), rule, index=pair)
    sums = np.bincount(mdp.pair_state, weights=weights, minlength=mdp.n_states)
    wrong = np.flatnonzero(~mdp.terminal & ~(np.abs(sums - 1.0) <= _TOLERANCE))
    if wrong.size:
        state = int(wrong[0])
        rule = "must sum to 1 over the actions of a state"
        raise InvalidParameter.of("policy", float(sums[state]), rule, index=state)
    return weights


def _problem(mdp: MDP, theta: ArrayLike, *, minimise: bool = False) -> BellmanEquations:
    thetas = mdp.check_thetas(theta)
    if len(thetas) != 1:
        raise InvalidParameter.of("theta", thetas.shape, "must be one parameter vector")
    return BellmanEquations(mdp, -thetas[0] if minimise else thetas[0])
