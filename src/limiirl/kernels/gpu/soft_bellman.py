"""GPU version of `kernels.soft_bellman`: finite horizons, and value iteration until convergence, with adjoints.

Without a horizon the CPU uses Newton's method or policy iteration with sparse LU; a GPU has cheap backups instead.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from limiirl.kernels.gpu.device import Device, flat_shape
from limiirl.kernels.gpu.forward_backward import grid_of

_CHECK_EVERY = 16
# Sweeps after which values that have not converged are given up, and what counts as converged: a few units in the last
# place of the largest value; far less than one for what moves in one direction only, since many backups may follow.
MOST_SWEEPS, SETTLED, FADED = 65_536, 2.0**-50, 2.0**-60
# How a state's value comes from those of its choices, in the order of `Rule` in cuda/choices.cu.
RULES = ("soft", "soft or stop", "best", "average")


class DeviceChoices(NamedTuple):
    """`kernels.soft_bellman.Graph` on a device, and the same backwards: the pairs that lead to each state."""

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


class Marks(NamedTuple):
    """Moves by step: each state and each pair once per step, with ptr (n + 1,) and weights (m, K)."""

    state_ptr: Any
    state: Any
    of_state: Any
    pair_ptr: Any
    pair: Any
    of_pair: Any


class ChoiceKernels:
    """The kernels for one graph, inverse temperature and rule, one of `RULES`."""

    def __init__(self, device: Device, graph: DeviceChoices, beta: float, rule: str) -> None:
        self.device, self.graph, self.beta, self.rule = device, graph, beta, RULES.index(rule)

    def _arguments(self, reward: Any) -> tuple[Any, ...]:
        g = self.graph
        return g.pair_ptr, g.edge_ptr, g.dst, g.prob, reward, g.gamma, self.beta, self.rule

    def _waiting(self, kernel: str, k: int, arguments: tuple[Any, ...]) -> None:
        grid = grid_of(self.device, self.graph.n_states, k)
        self.device.launch(kernel, (*grid[:2], 0), (self.graph.n_states, k, *arguments), (k, 3, 0))

    def _flat(self, kernel: str, rows: int, k: int, arguments: tuple[Any, ...]) -> None:
        self.device.launch(kernel, flat_shape(self.device, rows * k), (rows * k, k, *arguments), (k, 3, 0))

    def _counter(self) -> Any:
        return self.device.xp.zeros(1, dtype=np.uint64)

    def plan(self, r_state: Any, reward: Any, V: Any) -> None:
        """Fill V (n, S, K) back from its last row, which is given; r_state (S, K) is what states earn."""
        if V.shape[0] > 1:
            given = (*self._arguments(reward), r_state, V, V.shape[0], self._counter())
            self._waiting("choice_plan", r_state.shape[1], given)

    def log_choice(self, reward: Any, V: Any, step: Any, state: Any, pair: Any) -> Any:
        """Return (m, K): the log-probabilities of moves; `step` is -1 where V (S, K) is that of all steps."""
        k = reward.shape[1]
        values = self.device.xp.empty((step.size, k))
        if step.size:
            given = (*self._arguments(reward), V, self.graph.n_states, step, state, pair, values)
            self._flat("choice_moves", step.size, k, given)
        return values

    def plan_back(self, reward: Any, V: Any, marks: Marks, node: Any, pair: Any) -> None:
        """Add to node (S, K) and pair (P, K) the derivatives of weighted log-probabilities of moves.

        V (n, S, K) are the values after each of n steps, of which the last are r_state, or with averages 0.
        """
        xp, g = self.device.xp, self.graph
        mu, seen = xp.zeros_like(node), xp.zeros_like(node)
        given, adjoint = xp.zeros_like(pair), xp.zeros_like(pair)
        back = (g.in_ptr, g.in_pair, g.in_prob)
        rest = (*back, V, V.shape[0], *marks, mu, seen, given, adjoint, node, pair, self._counter())
        self._waiting("choice_plan_back", node.shape[1], (*self._arguments(reward), *rest))

    def settle(self, r_state: Any, reward: Any, start: Any, tol: float) -> Any:
        """Return the values (S, K) of all steps, swept from `start`, or None if they have not converged."""
        values = self.device.xp.stack([start, start])
        used = self._repeat("choice_settle", (*self._arguments(reward), r_state, values), start.shape[1], tol)
        return values[used % 2] if used > 0 else None

    def adjoint(self, omega: Any, right: Any) -> Any:
        """Return mu (S, K) with mu = right + gamma P' mu, or None if it has not converged."""
        g, mu = self.graph, right.copy()
        given = (g.in_ptr, g.in_pair, g.in_prob, g.pair_state, g.gamma, omega, mu, self.device.xp.stack([mu, mu]))
        return mu if self._repeat("choice_adjoint", given, right.shape[1], FADED) > 0 else None

    def _repeat(self, kernel: str, given: tuple[Any, ...], k: int, tol: float) -> int:
        """Return the number of backups until nothing moved by more than `tol`, negative where it has not converged."""
        xp = self.device.xp
        tops = xp.zeros(2 * k * (MOST_SWEEPS // _CHECK_EVERY), dtype=np.uint64)
        used = xp.zeros(1, dtype=np.int64)
        self._waiting(kernel, k, (*given, MOST_SWEEPS, tol, tops, self._counter(), used))
        return int(self.device.take(used)[0])

    def pair_adjoint(self, reward: Any, V: Any, at: Any, weight: Any) -> tuple[Any, Any, Any]:
        """Return pi (P, K), adjoint (P, K) and its part by state (S, K), from weights (u, K) of the pairs `at` (u,)."""
        xp, g, k = self.device.xp, self.graph, reward.shape[1]
        pi, adjoint, right = xp.zeros_like(reward), xp.zeros_like(reward), xp.empty((g.n_states, k))
        adjoint[at] = self.beta * weight
        self._flat("choice_pull", g.n_states, k, (*self._arguments(reward), V, pi, adjoint))
        self._flat("choice_back", g.n_states, k, (g.in_ptr, g.in_pair, g.in_prob, g.gamma, adjoint, right))
        return pi, adjoint, right

    def ties(self, reward: Any, V: Any, slack: float) -> Any:
        """Return (P, K): 1 shared by the best choices of each state, to within `slack` of the largest value."""
        omega, scale = self.device.xp.zeros_like(reward), abs(V).max(axis=0)
        given = (*self._arguments(reward), V, scale, slack, omega)
        self._flat("choice_ties", self.graph.n_states, reward.shape[1], given)
        return omega
