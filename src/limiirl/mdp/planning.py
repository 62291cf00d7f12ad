"""Optimal values and policies, and the values of any policy.

A visit to state s earns r(s), a terminal state's included, and a move along an edge earns r(s, a, s'):
``Q(s, a) = r(s) + sum_s' P(s' | s, a) (r(s, a, s') + gamma V(s'))``, and ``V(s) = r(s)`` where s is terminal.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.sparse import csgraph, linalg

from limiirl._typing import BoolArray, FloatArray, IndexArray
from limiirl.errors import InvalidParameter, NumericalError
from limiirl.mdp.indexing import pair_starts
from limiirl.mdp.mdp import MDP

ROUNDING = 1e-13
"""A gain this small, relative to the largest value, is rounding: about a hundred times what a solve leaves."""

# Up to this many states a dense solve is quicker than setting up a sparse one.
_DENSE = 250
# Sweeps of value iteration that give policy iteration its first policy, and the iterations that it may take. Tens are
# usual; a cap is reached only if rounding makes it circle.
_SWEEPS, _ITERATIONS = 30, 10_000


class BellmanEquations:
    """An MDP with one reward, and where the edges of each pair and the pairs of each state begin."""

    def __init__(self, mdp: MDP, theta: FloatArray) -> None:
        r_state, r_edge = mdp.rewards(theta)
        self.mdp = mdp
        self.r_state: FloatArray = r_state[:, 0]
        self.r_edge: FloatArray = np.zeros(mdp.n_edges) if r_edge is None else r_edge[:, 0]
        self.first_edge: IndexArray = np.flatnonzero(pair_starts(mdp.src, mdp.act))
        self.alive: IndexArray = np.flatnonzero(~mdp.terminal)
        self.first_pair: IndexArray = np.searchsorted(mdp.pair_state, self.alive)
        self.owner: IndexArray = np.searchsorted(self.alive, mdp.pair_state)

    def action_values(self, V: FloatArray) -> FloatArray:
        """Return Q (P,) from V (S,)."""
        mdp = self.mdp
        onward = np.add.reduceat(mdp.prob * (self.r_edge + mdp.gamma * V[mdp.dst]), self.first_edge)
        return np.asarray(self.r_state[mdp.pair_state] + onward)

    def solve(self) -> FloatArray:
        """Return V* (S,) by policy iteration. A state changes its action for a real gain only.

        At a discount of 1 it starts from a policy that surely ends. If after a change some states never end, each of
        those that changed gains, so their loop's average reward is positive: the total is infinite.
        """
        mdp, alive = self.mdp, self.alive
        if not alive.size:
            return self.r_state.copy()
        resting = np.zeros(mdp.n_states, dtype=np.bool_)
        if mdp.gamma == 1.0:
            resting = self.resting(np.ones(mdp.n_pairs, dtype=np.bool_), every=False)
        choice = self._first_choice(resting)
        before = np.full(mdp.n_states, -np.inf)
        for _ in range(_ITERATIONS):
            policy = np.zeros(mdp.n_pairs)
            policy[choice] = 1.0
            if mdp.gamma == 1.0:
                self.way_out(policy > 0.0, resting, "some policy gains without bound")
            V = self.evaluate(policy, resting)
            slack = ROUNDING * float(np.abs(V).max())
            Q = self.action_values(V)
            greedy = self.greedy(Q)
            change = Q[greedy] > np.where(resting[alive], 0.0, Q[choice]) + slack
            if not change.any() or np.all(before + slack >= V):
                return V
            choice = np.where(change, greedy, choice)
            # Who leaves its rest does so for more than nothing, and values only rise: there is no way back.
            resting[alive[change]] = False
            before = V
        raise NumericalError(
            f"Policy iteration did not settle in {_ITERATIONS} iterations; the values reach {np.abs(V).max():.3g}. "
            "Lower gamma, or the range of the rewards."
        )

    def best(self, Q: FloatArray) -> FloatArray:
        """Return the largest Q of every state that is not terminal."""
        return np.asarray(np.maximum.reduceat(Q, self.first_pair))

    def greedy(self, Q: FloatArray) -> IndexArray:
        """Return the first best pair of every state that is not terminal."""
        found = np.flatnonzero(self.best(Q)[self.owner] == Q)
        return np.asarray(found[np.searchsorted(self.owner[found], np.arange(self.alive.size))])

    def _first_choice(self, resting: BoolArray) -> IndexArray:
        mdp = self.mdp
        if mdp.gamma < 1.0:
            V = self.r_state.copy()
            for _ in range(_SWEEPS):
                V[self.alive] = self.best(self.action_values(V))
            return self.greedy(self.action_values(V))
        every = np.ones(mdp.n_pairs, dtype=np.bool_)
        onward = self.way_out(every, resting, "no action leads on towards a terminal state")
        # Moving with positive probability one step nearer to an end, from everywhere, is to end surely.
        towards = np.zeros(mdp.n_pairs)
        towards[mdp.pair_of_edge[mdp.dst == onward[mdp.src]]] = 1.0
        return self.greedy(towards)

    def resting(self, used: BoolArray, *, every: bool) -> BoolArray:
        """Return the states (S,) from which some choice among the used pairs (or every one) earns nothing, ever."""
        mdp = self.mdp
        rest = ~mdp.terminal
        idle = used & (self.r_state[mdp.pair_state] == 0.0)
        idle &= np.logical_and.reduceat(self.r_edge == 0.0, self.first_edge) if idle.size else False
        while idle.any():
            idle &= np.logical_and.reduceat(rest[mdp.dst], self.first_edge)
            stays = np.logical_and.reduceat(idle | ~used, self.first_pair) if every else None
            stays = np.logical_or.reduceat(idle, self.first_pair) if stays is None else stays
            if np.array_equal(rest[self.alive], stays):
                return np.asarray(rest)
            rest[self.alive] = stays
        return np.zeros(mdp.n_states, dtype=np.bool_)

    def way_out(self, used: BoolArray, resting: BoolArray, fault: str) -> IndexArray:
        """Return the next state (S,) on a shortest way to an end through used pairs; raise where there is none."""
        mdp, sink = self.mdp, self.mdp.n_states
        ends = np.flatnonzero(mdp.terminal | resting)
        edges = used[mdp.pair_of_edge]
        rows = np.concatenate([mdp.dst[edges], np.full(ends.size, sink)])
        columns = np.concatenate([mdp.src[edges], ends])
        backwards = sparse.csr_array((np.ones(rows.size), (rows, columns)), shape=(sink + 1, sink + 1))
        order, onward = csgraph.breadth_first_order(backwards, sink)
        if order.size <= sink:
            lost = np.setdiff1d(np.arange(sink), order)
            raise InvalidParameter(
                f"At a discount of 1 the total reward must be finite; from state {lost[0]} ({lost.size} in all) "
                f"{fault}. Use gamma < 1, make a state terminal, or change theta.",
                parameter="theta",
                index=int(lost[0]),
            )
        return np.asarray(onward[:sink], dtype=np.intp)

    def evaluate(self, policy: FloatArray, resting: BoolArray) -> FloatArray:
        """Solve V = r + gamma P V of a policy (P,), with V = 0 where it rests."""
        mdp, n = self.mdp, self.mdp.n_states
        weight = np.where(resting[mdp.src], 0.0, policy[mdp.pair_of_edge] * mdp.prob)
        earned = np.where(resting, 0.0, self.r_state + np.bincount(mdp.src, weight * self.r_edge, minlength=n))
        if n <= _DENSE:
            kernel = np.bincount(mdp.src * n + mdp.dst, weight, minlength=n * n).reshape(n, n)
            return _finite(lambda: np.linalg.solve(np.eye(n) - mdp.gamma * kernel, earned))
        used = weight > 0.0
        P = sparse.csr_array((weight[used], (mdp.src[used], mdp.dst[used])), shape=(n, n))
        matrix = sparse.csr_array(sparse.eye_array(n) - mdp.gamma * P)
        return _finite(lambda: _sparse_solve(matrix, earned, mdp.gamma))


def _finite(solve: Callable[[], FloatArray]) -> FloatArray:
    try:
        values = solve()
    except (np.linalg.LinAlgError, RuntimeError):  # what numpy and SuperLU say of a singular matrix
        values = np.array([np.nan])
    if not np.isfinite(values).all():
        raise NumericalError(
            "The values of a policy left the range of float64: an end is reached too rarely. Lower gamma."
        )
    return values


def _sparse_solve(matrix: sparse.csr_array[np.float64, tuple[int, int]], right: FloatArray, gamma: float) -> FloatArray:
    """Solve by BiCGSTAB where its residual proves 11 digits, else by LU: random graphs fill LU in, long ones do not.

    Where every state has one successor LU fills nothing in, and is taken at once.
    """
    x, residual = np.zeros(right.size), right
    for _ in range(3 if gamma < 1.0 and matrix.nnz > 2 * right.size else 0):
        step, _ = linalg.bicgstab(matrix, residual, rtol=1e-12, maxiter=500)
        x = x + np.asarray(step)
        residual = right - matrix @ x
        # The inverse has norm 1 / (1 - gamma) at most; and Q must come out well within ROUNDING.
        if float(np.abs(residual).max()) <= min(1e-14, 1e-11 * (1.0 - gamma)) * float(np.abs(x).max()):
            return x
    return np.asarray(linalg.splu(matrix.tocsc()).solve(right))


# Sums of a policy's probabilities may miss 1 by this much, like those of an MDP.
_TOLERANCE = 1e-8


def optimal_values(mdp: MDP, theta: ArrayLike, *, minimise: bool = False) -> FloatArray:
    """Return the optimal values V* (S,), exact up to rounding, by policy iteration.

    At a discount of 1 the supremum is over the policies that surely end or come to rest, in a terminal state or where
    nothing is earned any more; it is an error if some state has none, or if they can earn without bound.

    Parameters
    ----------
    mdp : MDP
    theta : (d,)
        One parameter vector.
    minimise : bool
        Whether to return the values of the worst policy instead.

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
    # Adding 0 turns -0.0 into 0.0.
    return -values + 0.0 if minimise else values


def action_values(mdp: MDP, values: ArrayLike, theta: ArrayLike) -> FloatArray:
    """Return Q (P,) of every (s, a) pair, in the order of `mdp.pair_state`, where V (S,) follows.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2], gamma=0.5, state_features=[-1.0, -1.0, 4.0])
    >>> action_values(mdp, optimal_values(mdp, [1.0]), [1.0])
    array([-0.5,  1. ,  1. ])
    """
    V = np.asarray(values, dtype=np.float64)
    if V.shape != (mdp.n_states,):
        raise InvalidParameter(
            f"values must have shape ({mdp.n_states},), one per state; got shape {V.shape}.",
            parameter="values",
            value=V.shape,
        )
    return _problem(mdp, theta).action_values(V)


def optimal_policy(mdp: MDP, theta: ArrayLike, *, tol: float = 1e-6) -> FloatArray:
    """Return the stochastic optimal policy: probabilities (P,) of the (s, a) pairs, uniform over ties.

    Action a is optimal in s if ``Q(s, a) >= max_a' Q(s, a') - tol (max Q - min Q)``, where the range of Q is over all
    pairs, so that neither the unit of the rewards nor rounding decides about ties.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 0, 1, 2], [1, 2, 3, 3, 3], gamma=0.5, state_features=[0.0, -1.0, -1.0, 8.0])
    >>> optimal_policy(mdp, [1.0])
    array([0., 0., 1., 1., 1.])
    >>> optimal_policy(mdp, [0.0])
    array([0.33333333, 0.33333333, 0.33333333, 1.        , 1.        ])
    """
    if not 0.0 <= tol < 1.0:
        raise InvalidParameter(
            f"tol must lie in [0, 1); got {tol!r}. It is a share of the range of Q.", parameter="tol", value=tol
        )
    problem = _problem(mdp, theta)
    Q = problem.action_values(problem.solve())
    if not Q.size:
        return Q
    # A range that is rounding only must not part what is equal.
    slack = max(tol * float(np.ptp(Q)), 10.0 * ROUNDING * float(np.abs(Q).max()))
    optimal = problem.best(Q)[problem.owner] <= Q + slack
    ties = np.add.reduceat(optimal, problem.first_pair, dtype=np.float64)
    return np.asarray(optimal / ties[problem.owner])


def policy_values(mdp: MDP, policy: ArrayLike, theta: ArrayLike) -> FloatArray:
    """Return the values V (S,) of following a policy, by a linear solve.

    At a discount of 1 it is an error if from some state the policy may go on earning for ever.

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
    resting = np.zeros(mdp.n_states, dtype=np.bool_)
    if mdp.gamma == 1.0:
        resting = problem.resting(weights > 0.0, every=True)
        problem.way_out(weights > 0.0, resting, "the policy never reaches a terminal state")
    return problem.evaluate(weights, resting)


def check_policy(mdp: MDP, policy: ArrayLike) -> FloatArray:
    """Return a stationary policy (P,) as float64 after checking its shape, signs and sums.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2])
    >>> check_policy(mdp, [0.5, 0.4, 1.0])
    Traceback (most recent call last):
    limiirl.errors.InvalidParameter: A policy must sum to 1 over the actions of a state; state 0 sums to 0.9. Divide ...
    """
    try:
        weights = np.asarray(policy, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidParameter(
            f"A policy must be an array of numbers ({error}). Give one per (s, a) pair.", parameter="policy"
        ) from error
    if weights.shape != (mdp.n_pairs,):
        raise InvalidParameter(
            f"A policy must have shape ({mdp.n_pairs},), one probability per (s, a) pair; got shape {weights.shape}. "
            "Follow the order of mdp.pair_state and mdp.pair_action.",
            parameter="policy",
            value=weights.shape,
        )
    wrong = np.flatnonzero(~(weights >= 0.0))
    if wrong.size:
        pair = int(wrong[0])
        raise InvalidParameter(
            f"A policy must not be negative; state {mdp.pair_state[pair]}, action {mdp.pair_action[pair]} has "
            f"{weights[pair]}. Replace it by a probability.",
            parameter="policy",
            value=float(weights[pair]),
            index=pair,
        )
    sums = np.bincount(mdp.pair_state, weights=weights, minlength=mdp.n_states)
    wrong = np.flatnonzero(~mdp.terminal & ~(np.abs(sums - 1.0) <= _TOLERANCE))
    if wrong.size:
        state = int(wrong[0])
        raise InvalidParameter(
            f"A policy must sum to 1 over the actions of a state; state {state} sums to {sums[state]:.10g}. "
            "Divide by the sums.",
            parameter="policy",
            value=float(sums[state]),
            index=state,
        )
    return weights


def _problem(mdp: MDP, theta: ArrayLike, *, minimise: bool = False) -> BellmanEquations:
    thetas = mdp.check_thetas(theta)
    if len(thetas) != 1:
        raise InvalidParameter(
            f"Planning takes one theta; got {len(thetas)} rows. Call it for each of them.",
            parameter="theta",
            value=thetas.shape,
        )
    return BellmanEquations(mdp, -thetas[0] if minimise else thetas[0])
