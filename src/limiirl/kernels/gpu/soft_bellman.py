"""GPU version of `kernels.soft_bellman`: backward induction or value iteration, with adjoints.

For an infinite horizon, the CPU uses Newton's method or policy iteration with sparse LU; on a GPU, value iteration is
cheaper.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from limiirl.kernels.gpu.device import Device, flat_shape
from limiirl.kernels.gpu.forward_backward import grid_of

MAX_BACKUPS, _CHECK_EVERY = 65_536, 16
# Maximum change by a backup at convergence, relative to the largest value. The tolerance of monotone sequences is far
# below rounding error, because many changes in the same direction may follow.
ROUNDING_TOL, MONOTONE_TOL = 2.0**-50, 2.0**-60
# Backup operators, in the order of `Rule` in cuda/soft_bellman.cu.
RULES = ("soft", "soft or stop", "best", "average")


class DeviceGraph(NamedTuple):
    """`kernels.soft_bellman.Graph` on a device, and its transpose: the pairs with an edge to each state, as CSR."""

    pair_ptr: Any
    edge_ptr: Any
    dst: Any
    prob: Any
    gamma: float
    in_ptr: Any
    in_pair: Any
    in_prob: Any
    pair_state: Any

    @property
    def n_states(self) -> int:
        """Number of states S."""
        return int(self.pair_ptr.size) - 1


class ObservedWeights(NamedTuple):
    """Observed states and pairs of each step, as CSR with pointers (n + 1,), and the sums (m, K) of their weights."""

    state_ptr: Any
    state: Any
    state_weight: Any
    pair_ptr: Any
    pair: Any
    pair_weight: Any


class BellmanKernels:
    """Bellman backups on a device for one graph, inverse temperature and backup operator (one of `RULES`)."""

    def __init__(self, device: Device, graph: DeviceGraph, beta: float, rule: str) -> None:
        self.device, self.graph, self.beta, self.rule = device, graph, beta, RULES.index(rule)

    def _arguments(self, reward: Any) -> tuple[Any, ...]:
        g = self.graph
        return g.pair_ptr, g.edge_ptr, g.dst, g.prob, reward, g.gamma, self.beta, self.rule

    def _launch_grid(self, kernel: str, k: int, arguments: tuple[Any, ...]) -> None:
        grid = grid_of(self.device, self.graph.n_states, k)
        self.device.launch(kernel, (*grid[:2], 0), (self.graph.n_states, k, *arguments), (k, 3, 0))

    def _launch_flat(self, kernel: str, rows: int, k: int, arguments: tuple[Any, ...]) -> None:
        self.device.launch(kernel, flat_shape(self.device, rows * k), (rows * k, k, *arguments), (k, 3, 0))

    def _counter(self) -> Any:
        return self.device.xp.zeros(1, dtype=np.uint64)

    def plan(self, r_state: Any, reward: Any, V: Any) -> None:
        """Compute V (n, S, K) backwards from the last row, which is input, for state rewards r_state (S, K)."""
        if V.shape[0] > 1:
            arguments = (*self._arguments(reward), r_state, V, V.shape[0], self._counter())
            self._launch_grid("bellman_plan", r_state.shape[1], arguments)

    def log_policy(self, reward: Any, V: Any, step: Any, state: Any, pair: Any) -> Any:
        """Return the log-probabilities (m, K) of observed pairs; `step` is -1 if V is stationary (S, K)."""
        k = reward.shape[1]
        values = self.device.xp.empty((step.size, k))
        if step.size:
            arguments = (*self._arguments(reward), V, self.graph.n_states, step, state, pair, values)
            self._launch_flat("bellman_log_policy", step.size, k, arguments)
        return values

    def plan_adjoint(self, reward: Any, V: Any, weights: ObservedWeights, node: Any, pair: Any) -> None:
        """Add to node (S, K) and pair (P, K) the derivatives of sum_m weight[m] log_pi[m] with respect to the rewards.

        V (n, S, K) contains the values after each of n steps; the last row is r_state, or 0 for the rule "average".
        """
        xp, g = self.device.xp, self.graph
        mu, state_total = xp.zeros_like(node), xp.zeros_like(node)
        pair_total, adjoint = xp.zeros_like(pair), xp.zeros_like(pair)
        transpose = (g.in_ptr, g.in_pair, g.in_prob)
        rest = (*transpose, V, V.shape[0], *weights, mu, state_total, pair_total, adjoint, node, pair, self._counter())
        self._launch_grid("bellman_plan_adjoint", node.shape[1], (*self._arguments(reward), *rest))

    def iterate_values(self, r_state: Any, reward: Any, start: Any, tol: float) -> Any:
        """Iterate Bellman backups from `start`; return the values (S, K), or None if they did not converge."""
        values = self.device.xp.stack([start, start])
        n = self._iterate("bellman_iterate", (*self._arguments(reward), r_state, values), start.shape[1], tol)
        return values[n % 2] if n > 0 else None

    def solve_adjoint(self, omega: Any, right: Any) -> Any:
        """Return the solution mu (S, K) of mu = right + gamma P' mu, or None if the iteration did not converge."""
        g, mu = self.graph, right.copy()
        arguments = (g.in_ptr, g.in_pair, g.in_prob, g.pair_state, g.gamma, omega, mu, self.device.xp.stack([mu, mu]))
        return mu if self._iterate("bellman_adjoint", arguments, right.shape[1], MONOTONE_TOL) > 0 else None

    def _iterate(self, kernel: str, arguments: tuple[Any, ...], k: int, tol: float) -> int:
        """Return the number of backups, negated if they did not converge."""
        xp = self.device.xp
        maxima = xp.zeros(2 * k * (MAX_BACKUPS // _CHECK_EVERY), dtype=np.uint64)
        n_backups = xp.zeros(1, dtype=np.int64)
        self._launch_grid(kernel, k, (*arguments, MAX_BACKUPS, tol, maxima, self._counter(), n_backups))
        return int(self.device.take(n_backups)[0])

    def pair_adjoint(self, reward: Any, V: Any, at: Any, weight: Any) -> tuple[Any, Any, Any]:
        """Return pi (P, K) and the adjoints of Q (P, K) and V (S, K), given weights (u, K) of the pairs `at` (u,)."""
        xp, g, k = self.device.xp, self.graph, reward.shape[1]
        pi, adjoint, right = xp.zeros_like(reward), xp.zeros_like(reward), xp.empty((g.n_states, k))
        adjoint[at] = self.beta * weight
        self._launch_flat("bellman_policy_adjoint", g.n_states, k, (*self._arguments(reward), V, pi, adjoint))
        self._launch_flat("bellman_q_adjoint", g.n_states, k, (g.in_ptr, g.in_pair, g.in_prob, g.gamma, adjoint, right))
        return pi, adjoint, right

    def average_ties(self, reward: Any, V: Any, slack: float) -> Any:
        """Return omega (P, K), uniform over the actions with Q(s, a) >= max_a' Q(s, a') - slack max |V|."""
        omega, scale = self.device.xp.zeros_like(reward), abs(V).max(axis=0)
        arguments = (*self._arguments(reward), V, scale, slack, omega)
        self._launch_flat("bellman_ties", self.graph.n_states, reward.shape[1], arguments)
        return omega
