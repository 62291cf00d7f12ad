"""The policy solvers of the causal models on a GPU: stationary ones, and those of a fixed number of backups.

Policies and samples of a single reward are computed on the CPU. So are values that do not settle: the CPU decides
whether they are infinite.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np

from limiirl._typing import FloatArray
from limiirl.irl.causal.finite_horizon import FiniteHorizonSolver, SoftmaxAverageSolver
from limiirl.irl.causal.state_actions import StateActions
from limiirl.irl.causal.stationary import TIE, HardBellmanSolver, Policies, SoftBellmanSolver, StationarySolver
from limiirl.irl.maxent.gpu import DeviceFeatures, side_by_side
from limiirl.kernels.gpu.device import Device, faults
from limiirl.kernels.gpu.soft_bellman import FADED, SETTLED, ChoiceKernels, DeviceChoices, Marks
from limiirl.kernels.soft_bellman import Moves

# Columns at a time, as in the sweeps over trajectories.
COLUMNS = 4


class DeviceRewards:
    """The features of states and pairs on a device, and the graph of the choices."""

    def __init__(self, choices: StateActions, device: Device) -> None:
        self.device, self.choices = device, choices
        mdp, graph, put = choices.mdp, choices.graph, device.put
        order = np.argsort(mdp.dst, kind="stable")
        in_ptr = np.concatenate([[0], np.cumsum(np.bincount(mdp.dst, minlength=mdp.n_states))]).astype(np.int64)
        outcomes = (put(graph.pair_ptr), put(graph.edge_ptr), put(graph.dst), put(graph.prob), graph.gamma)
        pairs = mdp.pair_of_edge.astype(np.int64)[order]
        back = (put(in_ptr), put(pairs), put(mdp.prob[order]), put(mdp.pair_state.astype(np.int64)))
        self.graph = DeviceChoices(*outcomes, *back)
        self._state = None if mdp.state_features is None else DeviceFeatures(device, mdp.state_features)
        parts = choices.pair_features
        self._pair = DeviceFeatures(device, side_by_side(parts)) if parts else None

    def rewards(self, thetas: FloatArray) -> tuple[Any, Any]:
        """Return what states (S, K) and pairs (P, K) earn, on the device."""
        mdp, xp, K = self.choices.mdp, self.device.xp, thetas.shape[0]
        first = mdp.n_state_features
        of_state = xp.zeros((mdp.n_states, K)) if self._state is None else self._state.rewards(thetas[:, :first])
        of_pair = xp.zeros((mdp.n_pairs, K)) if self._pair is None else self._pair.rewards(thetas[:, first:])
        return of_state, of_pair

    def features(self, node: Any, pair: Any) -> FloatArray:
        """Return (K, d), on the host, from counts on the device."""
        parts = [] if self._state is None else [self._state.collect(node)]
        if self._pair is not None:
            parts.append(self._pair.collect(pair))
        return np.ascontiguousarray(np.vstack(parts).T)


class DeviceColumns(NamedTuple):
    """Some columns of a solution, on the device: what pairs earn (P, K), and values (S, K), or (n, S, K) by step."""

    columns: slice
    reward: Any
    V: Any


def parts_of(K: int, most: int) -> list[slice]:
    """Return the columns of portions of at most so many."""
    return [slice(k, min(K, k + most)) for k in range(0, K, most)]


class _GpuStationaryPolicies:
    """Policies that are the same at every step; see `limiirl.irl.causal.stationary.Policies`."""

    def __init__(self, solver: _GpuStationarySolver, moves: Moves, thetas: FloatArray) -> None:
        self._solver, self._moves, self._thetas = solver, moves, thetas
        self.log_choice, self.residual = np.empty((moves.pair.size, len(thetas))), np.zeros(len(thetas))
        self.parts: list[DeviceColumns] = []

    def keep(self, part: DeviceColumns) -> None:
        """Add some columns, with the log-probabilities of the moves."""
        put, take = self._solver.device.put, self._solver.device.take
        where = (np.full(self._moves.pair.size, -1, dtype=np.int64), self._moves.state, self._moves.pair)
        found = self._solver.kernels.log_choice(part.reward, part.V, *map(put, where))
        self.log_choice[:, part.columns] = take(found)
        self.parts.append(part)

    @faults()
    def gradient(self, weight: FloatArray) -> FloatArray:
        """Return (K, d), by one adjoint solution."""
        solver, found = self._solver, [np.empty((0, self._thetas.shape[1]))]
        at, index = np.unique(self._moves.pair, return_inverse=True)
        total = np.zeros((at.size, weight.shape[1]))
        np.add.at(total, index, weight)
        for part in self.parts:
            given = solver.device.put(np.ascontiguousarray(total[:, part.columns]))
            pi, pull, right = solver.kernels.pull(part.reward, part.V, solver.device.put(at), given)
            omega = solver.omega(part, pi)
            mu = solver.kernels.adjoint(omega, right)
            if mu is None:
                return solver.solve_on_cpu(self._thetas, self._moves).gradient(weight)
            found.append(solver.place.features(mu, pull + omega * mu[solver.place.graph.pair_state]))
        return np.concatenate(found)


class _GpuStationarySolver(StationarySolver):
    """Values that are swept on a device until nothing moves.

    With a discount they begin below their first sweep. Sweeps are monotone, so that they only rise, and come to rest.
    From elsewhere they would not where a circle is certain: rounding differs around it, and goes around with sweeps.
    """

    _rule: str

    @faults()
    def __init__(self, choices: StateActions, beta: float, device: Device) -> None:
        super().__init__(choices, beta)
        self.device, self.place = device, DeviceRewards(choices, device)
        self.kernels = ChoiceKernels(device, self.place.graph, beta, self._rule)

    @faults()
    def solve(self, thetas: FloatArray, moves: Moves) -> Policies:  # type: ignore[override]
        """See `limiirl.irl.causal.stationary.PolicySolver`."""
        found = _GpuStationaryPolicies(self, moves, thetas)
        for columns in parts_of(thetas.shape[0], COLUMNS):
            r_state, r_pair = self.place.rewards(thetas[columns])
            V = self._settle(r_state, r_pair)
            if V is None:
                return self.solve_on_cpu(thetas, moves)
            found.keep(DeviceColumns(columns, r_pair, V))
        return found

    def solve_on_cpu(self, thetas: FloatArray, moves: Moves) -> Policies:
        """Return what the CPU finds, or raise as it does."""
        return super().solve(thetas, moves)

    def _below(self, r_state: Any, reward: Any) -> Any:
        """Return (S, K): for states with a choice, twice what the worst step would cost if it were taken for ever."""
        graph, xp = self.place.graph, self.device.xp
        if graph.gamma == 1.0 or not reward.shape[0]:
            return r_state
        least = r_state.min(axis=0)
        least = xp.minimum(0.0, xp.minimum(least, least + reward.min(axis=0)))
        chooses = graph.pair_ptr[1:] > graph.pair_ptr[:-1]
        return xp.where(chooses[:, None], 2.0 / (1.0 - graph.gamma) * least, r_state)

    @abstractmethod
    def _settle(self, r_state: Any, reward: Any) -> Any:
        """Return the values (S, K), or None to leave them to the CPU."""

    @abstractmethod
    def omega(self, part: DeviceColumns, pi: Any) -> Any:
        """Return (P, K), dV / dQ."""


class GpuSoftBellmanSolver(_GpuStationarySolver, SoftBellmanSolver):
    """`SoftBellmanSolver` on a device: sweeps instead of Newton's method."""

    _rule = "soft"

    def _settle(self, r_state: Any, reward: Any) -> Any:
        return self.kernels.settle(r_state, reward, self._below(r_state, reward), SETTLED)

    def omega(self, part: DeviceColumns, pi: Any) -> Any:
        """Return pi."""
        del part
        return pi


class GpuHardBellmanSolver(_GpuStationarySolver, HardBellmanSolver):
    """`HardBellmanSolver` on a device: sweeps instead of policy iteration, but at discount 1, which is left to the CPU.

    Its sweeps are monotone in every bit, rounding included, so that values come to rest to the last bit of the largest.
    That is near enough to the solution to find the CPU's ties.
    """

    _rule = "best"

    def _settle(self, r_state: Any, reward: Any) -> Any:
        if self.place.graph.gamma == 1.0:
            return None
        return self.kernels.settle(r_state, reward, self._below(r_state, reward), FADED)

    def omega(self, part: DeviceColumns, pi: Any) -> Any:
        """Return the best actions, averaged where several are best."""
        del pi
        return self.kernels.ties(part.reward, part.V, TIE)


class _GpuUnrolledPolicies:
    """Policies from sweeps; see `limiirl.irl.causal.stationary.Policies`.

    Values take up to a third of the free memory, and so does a portion of columns. Portions beyond that are swept again
    for their gradient.
    """

    def __init__(
        self, solver: GpuFiniteHorizonSolver | GpuSoftmaxAverageSolver, moves: Moves, thetas: FloatArray
    ) -> None:
        self._solver, self._moves, self._thetas, K = solver, moves, thetas, thetas.shape[0]
        self.log_choice, self.residual = np.empty((moves.pair.size, K)), np.zeros(K)
        self._step = np.repeat(np.arange(moves.ptr.size - 1), np.diff(moves.ptr)).astype(np.int64)
        put, room = solver.device.put, solver.device.free_bytes() / 3.0
        column = 8.0 * solver.choices.mdp.n_states * solver.n_rows
        where = [put(at) for at in (self._step + solver.after - 1, moves.state, moves.pair)]
        self._parts: list[DeviceColumns] = []
        for columns in parts_of(K, max(1, min(COLUMNS, int(room / column)))):
            part = solver.sweep(thetas, columns)
            self.log_choice[:, columns] = solver.device.take(solver.kernels.log_choice(part.reward, part.V, *where))
            self.residual[columns] = solver.residuals(thetas, part)
            keeps = columns == slice(0, K) or column * columns.stop <= room
            self._parts.append(part if keeps else DeviceColumns(columns, None, None))

    @faults()
    def gradient(self, weight: FloatArray) -> FloatArray:
        """Return (K, d), by reverse sweeps."""
        solver, found = self._solver, [np.empty((0, self._thetas.shape[1]))]
        xp = solver.device.xp
        for known in self._parts:
            part = solver.sweep(self._thetas, known.columns) if known.V is None else known
            V = part.V[solver.after :]
            node, pair = xp.zeros(part.V.shape[1:]), xp.zeros(part.reward.shape)
            marks = self._marks(np.ascontiguousarray(weight[:, part.columns]), V.shape[0] + 1)
            solver.kernels.plan_back(part.reward, V, marks, node, pair)
            found.append(solver.place.features(node, pair))
        return np.concatenate(found)

    def _marks(self, weight: FloatArray, n: int) -> Marks:
        """Sum the weights of moves that share a step and a state, and those that share a step and a pair."""
        put, moves, mdp = self._solver.device.put, self._moves, self._solver.choices.mdp
        chosen = moves.pair >= 0
        state = _summed(self._step, moves.state, weight, mdp.n_states, n)
        pair = _summed(self._step[chosen], moves.pair[chosen], weight[chosen], mdp.n_pairs, n)
        return Marks(*map(put, (*state, *pair)))


def _summed(step: Any, at: Any, weight: FloatArray, size: int, n: int) -> tuple[Any, Any, FloatArray]:
    """Return ptr (n,) by step, the distinct places (u,) of each step, and the sums (u, K) of the weights there."""
    keys, index = np.unique(step * max(1, size) + at, return_inverse=True)
    total = np.zeros((keys.size, weight.shape[1]))
    np.add.at(total, index, weight)
    return np.searchsorted(keys // max(1, size), np.arange(n)).astype(np.int64), keys % max(1, size), total


def _planned(solver: GpuFiniteHorizonSolver | GpuSoftmaxAverageSolver, r_state: Any, r_pair: Any, *, last: Any) -> Any:
    """Return the values V (n, S, K), swept from a last row back."""
    V = solver.device.xp.empty((solver.n_rows, *r_state.shape))
    V[-1] = last
    solver.kernels.plan(r_state, r_pair, V)
    return V


class GpuFiniteHorizonSolver(FiniteHorizonSolver):
    """`FiniteHorizonSolver` on a device.

    Parameters
    ----------
    device : Device

    Attributes
    ----------
    n_rows, after : int
        The number of rows of V, and the row of the values after step 0.
    """

    @faults()
    def __init__(
        self, choices: StateActions, beta: float, max_length: int, device: Device, *, stop: bool = True
    ) -> None:
        super().__init__(choices, beta, max_length, stop=stop)
        self.device, self.place = device, DeviceRewards(choices, device)
        self.kernels = ChoiceKernels(device, self.place.graph, beta, "soft or stop" if stop else "soft")
        self.n_rows, self.after = max_length, 1

    @faults()
    def solve(self, thetas: FloatArray, moves: Moves) -> Policies:  # type: ignore[override]
        """See `limiirl.irl.causal.stationary.PolicySolver`."""
        return _GpuUnrolledPolicies(self, moves, thetas)

    def sweep(self, thetas: FloatArray, columns: slice) -> DeviceColumns:
        """Return the values of some columns."""
        rewards = self.place.rewards(thetas[columns])
        return DeviceColumns(columns, rewards[1], _planned(self, *rewards, last=rewards[0]))

    def residuals(self, thetas: FloatArray, part: DeviceColumns) -> FloatArray:
        """Return zeros: a plan is what it is."""
        del thetas
        return np.zeros(part.V.shape[2])


class GpuSoftmaxAverageSolver(SoftmaxAverageSolver):
    """`SoftmaxAverageSolver` on a device; attributes as of `GpuFiniteHorizonSolver`."""

    @faults()
    def __init__(self, choices: StateActions, beta: float, n_backups: int, device: Device) -> None:
        super().__init__(choices, beta, n_backups)
        self.device, self.place = device, DeviceRewards(choices, device)
        self.kernels = ChoiceKernels(device, self.place.graph, beta, "average")
        self.n_rows, self.after = n_backups + 1, 0

    @faults()
    def solve(self, thetas: FloatArray, moves: Moves) -> Policies:  # type: ignore[override]
        """See `limiirl.irl.causal.stationary.PolicySolver`."""
        return _GpuUnrolledPolicies(self, moves, thetas)

    def sweep(self, thetas: FloatArray, columns: slice) -> DeviceColumns:
        """Return the values of some columns, those of the last sweep first."""
        rewards = self.place.rewards(thetas[columns])
        return DeviceColumns(columns, rewards[1], _planned(self, *rewards, last=0.0))

    def residuals(self, thetas: FloatArray, part: DeviceColumns) -> FloatArray:
        """Return (K,): how far the last two sweeps were apart, relative to the largest value."""
        before = part.V[1] if self.n_backups > 1 else self.place.rewards(thetas[part.columns])[0]
        far, scale = (self.device.take(abs(x).max(axis=0)) for x in (part.V[0] - before, part.V[0]))
        return np.asarray(far / np.maximum(scale, 1e-300))
