"""Policy solvers of the causal models on a GPU.

Policies and samples for a single theta, and values that do not converge on the GPU, are computed on the CPU.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np

from limiirl._typing import FloatArray
from limiirl.irl.causal.finite_horizon import FiniteHorizonSolver, SoftmaxAverageSolver
from limiirl.irl.causal.state_actions import StateActions
from limiirl.irl.causal.stationary import TIE, HardBellmanSolver, Policies, SoftBellmanSolver, StationarySolver
from limiirl.irl.maxent.gpu import DeviceFeatures, side_by_side
from limiirl.kernels.gpu.device import Device, convert_cuda_errors
from limiirl.kernels.gpu.soft_bellman import MONOTONE_TOL, ROUNDING_TOL, BellmanKernels, DeviceGraph, ObservedWeights
from limiirl.kernels.soft_bellman import ObservedPairs

# Maximum number of thetas per kernel call, the same as in the forward-backward kernels.
COLUMNS = 4


class DeviceRewards:
    """Transition graph of an MDP, and the features of its states and state-action pairs, on a device."""

    def __init__(self, pairs: StateActions, device: Device) -> None:
        self.device, self.pairs = device, pairs
        mdp, graph, put = pairs.mdp, pairs.graph, device.put
        order = np.argsort(mdp.dst, kind="stable")
        in_ptr = np.concatenate([[0], np.cumsum(np.bincount(mdp.dst, minlength=mdp.n_states))]).astype(np.int64)
        outcomes = (put(graph.pair_ptr), put(graph.edge_ptr), put(graph.dst), put(graph.prob), graph.gamma)
        incoming = (in_ptr, mdp.pair_of_edge.astype(np.int64)[order], mdp.prob[order], mdp.pair_state.astype(np.int64))
        self.graph = DeviceGraph(*outcomes, *map(put, incoming))
        self._state = None if mdp.state_features is None else DeviceFeatures(device, mdp.state_features)
        parts = pairs.pair_features
        self._pair = DeviceFeatures(device, side_by_side(parts)) if parts else None

    def of(self, thetas: FloatArray) -> tuple[Any, Any]:
        """Return the rewards of states (S, K) and pairs (P, K) on the device."""
        mdp, xp, K = self.pairs.mdp, self.device.xp, thetas.shape[0]
        first = mdp.n_state_features
        of_state = xp.zeros((mdp.n_states, K)) if self._state is None else self._state.rewards(thetas[:, :first])
        of_pair = xp.zeros((mdp.n_pairs, K)) if self._pair is None else self._pair.rewards(thetas[:, first:])
        return of_state, of_pair

    def features(self, node: Any, pair: Any) -> FloatArray:
        """Return sums of features (K, d) over counts of states (S, K) and pairs (P, K); the result is on the host."""
        parts = [] if self._state is None else [self._state.collect(node)]
        if self._pair is not None:
            parts.append(self._pair.collect(pair))
        return np.ascontiguousarray(np.vstack(parts).T)


class DeviceColumns(NamedTuple):
    """Part of a solution, on the device: rewards of pairs (P, J), and values (S, J) or, for n steps, (n, S, J)."""

    columns: slice
    reward: Any
    V: Any


def _split(K: int, most: int) -> list[slice]:
    return [slice(k, min(K, k + most)) for k in range(0, K, most)]


class _GpuStationaryPolicies:
    """Stationary policies; see `limiirl.irl.causal.stationary.Policies`."""

    def __init__(self, solver: _GpuStationarySolver, observed: ObservedPairs, thetas: FloatArray) -> None:
        self._solver, self._observed, self._thetas = solver, observed, thetas
        self.log_prob, self.residual = np.empty((observed.pair.size, len(thetas))), np.zeros(len(thetas))
        self.parts: list[DeviceColumns] = []

    def append(self, part: DeviceColumns) -> None:
        """Append the columns of `part`, with the log-probabilities of the observed pairs."""
        put, take = self._solver.device.put, self._solver.device.take
        where = (np.full(self._observed.pair.size, -1, dtype=np.int64), self._observed.state, self._observed.pair)
        self.log_prob[:, part.columns] = take(self._solver.kernels.log_policy(part.reward, part.V, *map(put, where)))
        self.parts.append(part)

    @convert_cuda_errors()
    def gradient(self, weight: FloatArray) -> FloatArray:
        """Return the gradient (K, d), computed with one adjoint solve per column."""
        solver, gradients = self._solver, [np.empty((0, self._thetas.shape[1]))]
        at, index = np.unique(self._observed.pair, return_inverse=True)
        total = np.zeros((at.size, weight.shape[1]))
        np.add.at(total, index, weight)
        for part in self.parts:
            given = solver.device.put(np.ascontiguousarray(total[:, part.columns]))
            pi, q_bar, right = solver.kernels.pair_adjoint(part.reward, part.V, solver.device.put(at), given)
            omega = solver.omega(part, pi)
            mu = solver.kernels.solve_adjoint(omega, right)
            if mu is None:
                return solver.solve_on_cpu(self._thetas, self._observed).gradient(weight)
            gradients.append(solver.rewards.features(mu, q_bar + omega * mu[solver.rewards.graph.pair_state]))
        return np.concatenate(gradients)


class _GpuStationarySolver(StationarySolver):
    """Value iteration on a device until the values no longer change.

    With a discount below 1, the initial values are a lower bound. Backups are monotone and therefore increase the
    values until they converge. From other initial values, rounding errors could prevent convergence on deterministic
    cycles.
    """

    _rule: str

    @convert_cuda_errors()
    def __init__(self, pairs: StateActions, beta: float, device: Device) -> None:
        super().__init__(pairs, beta)
        self.device, self.rewards = device, DeviceRewards(pairs, device)
        self.kernels = BellmanKernels(device, self.rewards.graph, beta, self._rule)

    @convert_cuda_errors()
    def solve(self, thetas: FloatArray, observed: ObservedPairs) -> Policies:  # type: ignore[override]
        """See `limiirl.irl.causal.stationary.PolicySolver`."""
        policies = _GpuStationaryPolicies(self, observed, thetas)
        for columns in _split(thetas.shape[0], COLUMNS):
            r_state, r_pair = self.rewards.of(thetas[columns])
            V = self._iterate_values(r_state, r_pair)
            if V is None:
                return self.solve_on_cpu(thetas, observed)
            policies.append(DeviceColumns(columns, r_pair, V))
        return policies

    def solve_on_cpu(self, thetas: FloatArray, observed: ObservedPairs) -> Policies:
        """Return the policies computed on the CPU; raise if the values diverge."""
        return super().solve(thetas, observed)

    def _lower_bound(self, r_state: Any, reward: Any) -> Any:
        """Return a lower bound (S, K) on the values: twice the value of a path with the lowest reward at every step."""
        graph, xp = self.rewards.graph, self.device.xp
        if graph.gamma == 1.0 or not reward.shape[0]:
            return r_state
        least = r_state.min(axis=0)
        least = xp.minimum(0.0, xp.minimum(least, least + reward.min(axis=0)))
        has_actions = graph.pair_ptr[1:] > graph.pair_ptr[:-1]
        return xp.where(has_actions[:, None], 2.0 / (1.0 - graph.gamma) * least, r_state)

    @abstractmethod
    def _iterate_values(self, r_state: Any, reward: Any) -> Any:
        """Return the values (S, K), or None to fall back to the CPU."""

    @abstractmethod
    def omega(self, part: DeviceColumns, pi: Any) -> Any:
        """Return the derivatives dV / dQ (P, K)."""


class GpuSoftBellmanSolver(_GpuStationarySolver, SoftBellmanSolver):
    """`SoftBellmanSolver` on a device: value iteration instead of Newton's method."""

    _rule = "soft"

    def _iterate_values(self, r_state: Any, reward: Any) -> Any:
        return self.kernels.iterate_values(r_state, reward, self._lower_bound(r_state, reward), ROUNDING_TOL)

    def omega(self, part: DeviceColumns, pi: Any) -> Any:
        """Return pi."""
        del part
        return pi


class GpuHardBellmanSolver(_GpuStationarySolver, HardBellmanSolver):
    """`HardBellmanSolver` on a device: value iteration instead of policy iteration. At discount 1, the CPU is used.

    Backups are monotone even with rounding, so that the error of converged values is one unit in the last place of the
    largest value. Therefore the same ties are detected as on the CPU.
    """

    _rule = "best"

    def _iterate_values(self, r_state: Any, reward: Any) -> Any:
        if self.rewards.graph.gamma == 1.0:
            return None
        return self.kernels.iterate_values(r_state, reward, self._lower_bound(r_state, reward), MONOTONE_TOL)

    def omega(self, part: DeviceColumns, pi: Any) -> Any:
        """Return 1 for the best action of each state; tied actions share the weight equally."""
        del pi
        return self.kernels.average_ties(part.reward, part.V, TIE)


class _GpuUnrolledPolicies:
    """Policies from unrolled backups; see `limiirl.irl.causal.stationary.Policies`.

    Up to a third of the free memory stores values for the gradient, and another third is used for one batch of thetas.
    The values of batches that are not stored are recomputed for the gradient.
    """

    def __init__(self, solver: _GpuUnrolledSolver, observed: ObservedPairs, thetas: FloatArray) -> None:
        self._solver, self._observed, self._thetas, K = solver, observed, thetas, thetas.shape[0]
        self.log_prob, self.residual = np.empty((observed.pair.size, K)), np.zeros(K)
        self._step = np.repeat(np.arange(observed.ptr.size - 1), np.diff(observed.ptr)).astype(np.int64)
        put, room = solver.device.put, solver.device.free_bytes() / 3.0
        column = 8.0 * solver.pairs.mdp.n_states * solver.n_rows
        where = [put(at) for at in (self._step + solver.after - 1, observed.state, observed.pair)]
        self._parts: list[DeviceColumns] = []
        for columns in _split(K, max(1, min(COLUMNS, int(room / column)))):
            part = solver.backups(thetas, columns)
            self.log_prob[:, columns] = solver.device.take(solver.kernels.log_policy(part.reward, part.V, *where))
            self.residual[columns] = solver.residuals(thetas, part)
            stored = columns == slice(0, K) or column * columns.stop <= room
            self._parts.append(part if stored else DeviceColumns(columns, None, None))

    @convert_cuda_errors()
    def gradient(self, weight: FloatArray) -> FloatArray:
        """Return the gradient (K, d), computed by reverse-mode differentiation."""
        solver, gradients = self._solver, [np.empty((0, self._thetas.shape[1]))]
        xp = solver.device.xp
        for stored in self._parts:
            part = solver.backups(self._thetas, stored.columns) if stored.V is None else stored
            V = part.V[solver.after :]
            node, pair = xp.zeros(part.V.shape[1:]), xp.zeros(part.reward.shape)
            step_weights = self._sum_weights(np.ascontiguousarray(weight[:, part.columns]), V.shape[0] + 1)
            solver.kernels.plan_adjoint(part.reward, V, step_weights, node, pair)
            gradients.append(solver.rewards.features(node, pair))
        return np.concatenate(gradients)

    def _sum_weights(self, weight: FloatArray, n: int) -> ObservedWeights:
        put, observed, mdp = self._solver.device.put, self._observed, self._solver.pairs.mdp
        chosen = observed.pair >= 0
        state = _sum_by_step(self._step, observed.state, weight, mdp.n_states, n)
        pair = _sum_by_step(self._step[chosen], observed.pair[chosen], weight[chosen], mdp.n_pairs, n)
        return ObservedWeights(*map(put, (*state, *pair)))


def _sum_by_step(step: Any, at: Any, weight: FloatArray, size: int, n: int) -> tuple[Any, Any, FloatArray]:
    """Sum the weights with equal step and index; return offsets (n,) of the steps, indices (u,) and sums (u, K)."""
    keys, index = np.unique(step * max(1, size) + at, return_inverse=True)
    total = np.zeros((keys.size, weight.shape[1]))
    np.add.at(total, index, weight)
    return np.searchsorted(keys // max(1, size), np.arange(n)).astype(np.int64), keys % max(1, size), total


class _GpuUnrolledSolver(ABC):
    """Base class of solvers that run a fixed number of backups on a device.

    The values V have `n_rows` rows, one per step. Row `after` (0 or 1) contains the values of the successors at step 0.
    If `after` is 0, the last row contains the initial values, which are 0.
    """

    device: Device
    rewards: DeviceRewards
    kernels: BellmanKernels
    pairs: StateActions
    n_rows: int
    after: int

    @convert_cuda_errors()
    def solve(self, thetas: FloatArray, observed: ObservedPairs) -> Policies:
        """See `limiirl.irl.causal.stationary.PolicySolver`."""
        return _GpuUnrolledPolicies(self, observed, thetas)

    def backups(self, thetas: FloatArray, columns: slice) -> DeviceColumns:
        """Return the values of thetas[columns] at each step."""
        r_state, r_pair = self.rewards.of(thetas[columns])
        V = self.device.xp.empty((self.n_rows, *r_state.shape))
        V[-1] = r_state if self.after else 0.0
        self.kernels.plan(r_state, r_pair, V)
        return DeviceColumns(columns, r_pair, V)

    @abstractmethod
    def residuals(self, thetas: FloatArray, part: DeviceColumns) -> FloatArray:
        """Return the change (J,) in the last backup, relative to the largest value."""


class GpuFiniteHorizonSolver(_GpuUnrolledSolver, FiniteHorizonSolver):  # type: ignore[misc]
    """`FiniteHorizonSolver` on a device."""

    @convert_cuda_errors()
    def __init__(self, pairs: StateActions, beta: float, max_length: int, device: Device, *, stop: bool = True) -> None:
        super().__init__(pairs, beta, max_length, stop=stop)
        self.device, self.rewards = device, DeviceRewards(pairs, device)
        self.kernels = BellmanKernels(device, self.rewards.graph, beta, "soft or stop" if stop else "soft")
        self.n_rows, self.after = max_length, 1

    def residuals(self, thetas: FloatArray, part: DeviceColumns) -> FloatArray:
        """Return zeros, because finite-horizon values are exact."""
        del thetas
        return np.zeros(part.V.shape[2])


class GpuSoftmaxAverageSolver(_GpuUnrolledSolver, SoftmaxAverageSolver):  # type: ignore[misc]
    """`SoftmaxAverageSolver` on a device; the values of the last backup are in row 0."""

    @convert_cuda_errors()
    def __init__(self, pairs: StateActions, beta: float, n_backups: int, device: Device) -> None:
        super().__init__(pairs, beta, n_backups)
        self.device, self.rewards = device, DeviceRewards(pairs, device)
        self.kernels = BellmanKernels(device, self.rewards.graph, beta, "average")
        self.n_rows, self.after = n_backups + 1, 0

    def residuals(self, thetas: FloatArray, part: DeviceColumns) -> FloatArray:
        """Return the change (J,) in the last backup, relative to the largest value."""
        before = part.V[1] if self.n_backups > 1 else self.rewards.of(thetas[part.columns])[0]
        change, scale = (self.device.take(abs(x).max(axis=0)) for x in (part.V[0] - before, part.V[0]))
        return np.asarray(change / np.maximum(scale, 1e-300))
