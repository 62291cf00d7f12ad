"""Soft values of choices on a GPU: plans up to a horizon, and sweeps that settle, with their derivatives.

The twin of those functions of `kernels.choices` that the soft models use. Without a horizon the CPU solves by Newton's
method and sparse LU; a GPU has no good LU but cheap sweeps, so that it sweeps until nothing moves.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from limiirl.kernels.gpu_device import Device, flat_shape
from limiirl.kernels.gpu_sweeps import grid_of

_CHECK_EVERY = 16
# Sweeps after which values that have not settled are given up, and what counts as settled: a few units in the last
# place of the largest value.
MOST_SWEEPS, SETTLED = 65_536, 4.0 * 2.0**-52


class DeviceChoices(NamedTuple):
    """`kernels.choices.Graph` on a device, and the same backwards: the pairs that lead to each state."""

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
    """Moves by step: each state and each pair once a step, with ptr (n + 1,) and weights (m, K)."""

    state_ptr: Any
    state: Any
    of_state: Any
    pair_ptr: Any
    pair: Any
    of_pair: Any


class SoftChoices:
    """The kernels for one graph, inverse temperature and rule of stopping."""

    def __init__(self, device: Device, graph: DeviceChoices, beta: float, stop: bool) -> None:
        self.device, self.graph, self.beta, self.stop = device, graph, beta, stop

    def _given(self, reward: Any) -> tuple[Any, ...]:
        g = self.graph
        return g.pair_ptr, g.edge_ptr, g.dst, g.prob, reward, g.gamma, self.beta, int(self.stop)

    def _waiting(self, kernel: str, k: int, arguments: tuple[Any, ...]) -> None:
        grid = grid_of(self.device, self.graph.n_states, k)
        self.device.launch(kernel, (*grid[:2], 0), (self.graph.n_states, k, *arguments), (k, 3, 0))

    def _flat(self, kernel: str, rows: int, k: int, arguments: tuple[Any, ...]) -> None:
        self.device.launch(kernel, flat_shape(self.device, rows * k), (rows * k, k, *arguments), (k, 3, 0))

    def _counter(self) -> Any:
        return self.device.xp.zeros(1, dtype=np.uint64)

    def plan(self, r_state: Any, reward: Any, V: Any) -> None:
        """Fill V (n, S, K) from its last row, which is r_state (S, K)."""
        V[-1] = r_state
        if V.shape[0] > 1:
            given = (*self._given(reward), r_state, V, V.shape[0], self._counter())
            self._waiting("choice_plan", r_state.shape[1], given)

    def log_choice(self, reward: Any, V: Any, step: Any, state: Any, pair: Any) -> Any:
        """Return (m, K): the log-probabilities of moves; `step` is -1 where V (S, K) is that of all steps."""
        k = reward.shape[1]
        found = self.device.xp.empty((step.size, k))
        if step.size:
            given = (*self._given(reward), V, self.graph.n_states, step, state, pair, found)
            self._flat("choice_moves", step.size, k, given)
        return found

    def plan_back(self, reward: Any, V: Any, marks: Marks, node: Any, pair: Any) -> None:
        """Add to node (S, K) and pair (P, K) the derivatives of weighted log-probabilities of moves."""
        xp, g = self.device.xp, self.graph
        mu, seen = xp.zeros_like(node), xp.zeros_like(node)
        given, pull = xp.zeros_like(pair), xp.zeros_like(pair)
        back = (g.in_ptr, g.in_pair, g.in_prob)
        rest = (*back, V, V.shape[0], *marks, mu, seen, given, pull, node, pair, self._counter())
        self._waiting("choice_plan_back", node.shape[1], (*self._given(reward), *rest))

    def settle(self, r_state: Any, reward: Any) -> Any:
        """Return the values (S, K) of all steps, or None if they have not settled."""
        given = (*self._given(reward), r_state)
        return self._settled("choice_settle", given, r_state)

    def adjoint(self, omega: Any, right: Any) -> Any:
        """Return mu (S, K) with mu = right + gamma P' mu, or None if it has not settled."""
        g = self.graph
        given = (g.in_ptr, g.in_pair, g.in_prob, g.pair_state, g.gamma, omega, right)
        return self._settled("choice_adjoint", given, right)

    def _settled(self, kernel: str, given: tuple[Any, ...], start: Any) -> Any:
        xp, k = self.device.xp, start.shape[1]
        values = xp.stack([start, start])
        tops = xp.zeros(2 * k * (MOST_SWEEPS // _CHECK_EVERY), dtype=np.uint64)
        used = xp.zeros(1, dtype=np.int64)
        self._waiting(kernel, k, (*given, values, MOST_SWEEPS, SETTLED, tops, self._counter(), used))
        n = int(self.device.take(used)[0])
        return values[n % 2] if n > 0 else None

    def pull(self, reward: Any, V: Any, at: Any, weight: Any) -> tuple[Any, Any, Any]:
        """Return pi (P, K), pull (P, K) and its part by state (S, K), from weights (u, K) of the pairs `at` (u,)."""
        xp, g, k = self.device.xp, self.graph, reward.shape[1]
        pi, pull, right = xp.zeros_like(reward), xp.zeros_like(reward), xp.empty((g.n_states, k))
        pull[at] = self.beta * weight
        self._flat("choice_pull", g.n_states, k, (*self._given(reward), V, pi, pull))
        self._flat("choice_back", g.n_states, k, (g.in_ptr, g.in_pair, g.in_prob, g.gamma, pull, right))
        return pi, pull, right
