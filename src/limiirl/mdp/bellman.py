"""The Bellman equations of an MDP with one reward: what `limiirl.mdp.planning` solves."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph, linalg

from limiirl.errors import InvalidParameter, NumericalError
from limiirl.mdp.indexing import pair_starts
from limiirl.mdp.sparse import MDP

Float = NDArray[np.float64]
Int = NDArray[np.intp]
Bool = NDArray[np.bool_]

ROUNDING = 1e-13
"""A gain this small, relative to the largest value, is rounding: about a hundred times what a solve leaves."""

# Up to this many states a dense solve is quicker than setting up a sparse one.
_DENSE = 250
# Sweeps of value iteration that give policy iteration its first policy, and the iterations that it may take. Tens are
# usual; a cap is reached only if rounding makes it circle.
_SWEEPS, _ITERATIONS = 30, 10_000


class Problem:
    """An MDP with one reward, and where the edges of each pair and the pairs of each state begin."""

    def __init__(self, mdp: MDP, theta: Float) -> None:
        r_state, r_edge = mdp.rewards(theta)
        self.mdp = mdp
        self.r_state: Float = r_state[:, 0]
        self.r_edge: Float = np.zeros(mdp.n_edges) if r_edge is None else r_edge[:, 0]
        self.first_edge: Int = np.flatnonzero(pair_starts(mdp.src, mdp.act))
        self.alive: Int = np.flatnonzero(~mdp.terminal)
        self.first_pair: Int = np.searchsorted(mdp.pair_state, self.alive)
        self.owner: Int = np.searchsorted(self.alive, mdp.pair_state)

    def action_values(self, V: Float) -> Float:
        """Return Q (P,) from V (S,)."""
        mdp = self.mdp
        onward = np.add.reduceat(mdp.prob * (self.r_edge + mdp.gamma * V[mdp.dst]), self.first_edge)
        return np.asarray(self.r_state[mdp.pair_state] + onward)

    def solve(self) -> Float:
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

    def best(self, Q: Float) -> Float:
        """Return the largest Q of every state that is not terminal."""
        return np.asarray(np.maximum.reduceat(Q, self.first_pair))

    def greedy(self, Q: Float) -> Int:
        """Return the first best pair of every state that is not terminal."""
        found = np.flatnonzero(self.best(Q)[self.owner] == Q)
        return np.asarray(found[np.searchsorted(self.owner[found], np.arange(self.alive.size))])

    def _first_choice(self, resting: Bool) -> Int:
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

    def resting(self, used: Bool, *, every: bool) -> Bool:
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

    def way_out(self, used: Bool, resting: Bool, fault: str) -> Int:
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
                f"{fault}. Use gamma < 1, make a state terminal, or change theta."
            )
        return np.asarray(onward[:sink], dtype=np.intp)

    def evaluate(self, policy: Float, resting: Bool) -> Float:
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


def _finite(solve: Callable[[], Float]) -> Float:
    try:
        values = solve()
    except (np.linalg.LinAlgError, RuntimeError):  # what numpy and SuperLU say of a singular matrix
        values = np.array([np.nan])
    if not np.isfinite(values).all():
        raise NumericalError(
            "The values of a policy left the range of float64: an end is reached too rarely. Lower gamma."
        )
    return values


def _sparse_solve(matrix: sparse.csr_array[np.float64, tuple[int, int]], right: Float, gamma: float) -> Float:
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
