"""The soft causal models on a GPU: `HorizonValues` and `SoftValues` whose values and gradients are computed there.

What is asked once for one reward (policies, samples) stays on the CPU, and so do values that do not settle: the CPU
then finds out whether they are infinite.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from limiirl.irl.choice_sweeps import HorizonValues
from limiirl.irl.choice_values import SoftValues, Solved
from limiirl.irl.choices import Choices
from limiirl.irl.engine.gpu import DeviceFeatures
from limiirl.kernels.choices import Moves
from limiirl.kernels.gpu_choices import DeviceChoices, Marks, SoftChoices
from limiirl.kernels.gpu_device import Device, faults

Float = NDArray[np.float64]
# Columns at a time, as in the sweeps over trajectories.
_COLUMNS = 4


class DeviceRewards:
    """The features of states and pairs on a device, and the graph of the choices."""

    def __init__(self, choices: Choices, device: Device) -> None:
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
        self._pair = None
        if parts and all(isinstance(part, np.ndarray) for part in parts):
            self._pair = DeviceFeatures(device, np.hstack(parts))
        elif parts:
            self._pair = DeviceFeatures(device, sparse.hstack([sparse.csr_array(part) for part in parts]).tocsr())

    def rewards(self, thetas: Float) -> tuple[Any, Any]:
        """Return what states (S, K) and pairs (P, K) earn, on the device."""
        mdp, xp, K = self.choices.mdp, self.device.xp, thetas.shape[0]
        first = mdp.n_state_features
        of_state = xp.zeros((mdp.n_states, K)) if self._state is None else self._state.rewards(thetas[:, :first])
        of_pair = xp.zeros((mdp.n_pairs, K)) if self._pair is None else self._pair.rewards(thetas[:, first:])
        return of_state, of_pair

    def features(self, node: Any, pair: Any) -> Float:
        """Return (K, d), on the host, from counts on the device."""
        parts = [] if self._state is None else [self._state.collect(node)]
        if self._pair is not None:
            parts.append(self._pair.collect(pair))
        return np.ascontiguousarray(np.vstack(parts).T)


class _Part(NamedTuple):
    """Some columns of a solution, on the device."""

    columns: slice
    reward: Any
    V: Any


def _columns(K: int, most: int) -> list[slice]:
    return [slice(k, min(K, k + most)) for k in range(0, K, most)]


class _SolvedHorizon:
    """Policies up to a horizon; see `limiirl.irl.choice_values.Solved`."""

    def __init__(self, engine: GpuHorizonValues, moves: Moves, K: int) -> None:
        self._engine, self._moves = engine, moves
        self.log_choice, self.residual = np.empty((moves.pair.size, K)), np.zeros(K)
        self._step = np.repeat(np.arange(moves.ptr.size - 1), np.diff(moves.ptr)).astype(np.int64)
        self.parts: list[_Part] = []

    def keep(self, part: _Part) -> None:
        """Add some columns, with the log-probabilities of the moves."""
        put, take = self._engine.device.put, self._engine.device.take
        where = (put(self._step), put(self._moves.state), put(self._moves.pair))
        self.log_choice[:, part.columns] = take(self._engine.kernels.log_choice(part.reward, part.V, *where))
        self.parts.append(part)

    @faults()
    def gradient(self, weight: Float) -> Float:
        """Return (K, d), by reverse sweeps."""
        engine, found = self._engine, []
        xp = engine.device.xp
        for part in self.parts:
            node, pair = xp.zeros(part.V.shape[1:]), xp.zeros(part.reward.shape)
            marks = self._marks(np.ascontiguousarray(weight[:, part.columns]))
            engine.kernels.plan_back(part.reward, part.V, marks, node, pair)
            found.append(engine.place.features(node, pair))
        return np.concatenate(found)

    def _marks(self, weight: Float) -> Marks:
        """Sum the weights of moves that share a step and a state, and those that share a step and a pair."""
        put, moves, n = self._engine.device.put, self._moves, self._moves.ptr.size
        chosen = moves.pair >= 0
        mdp = self._engine.choices.mdp
        state = _summed(self._step, moves.state, weight, mdp.n_states, n)
        pair = _summed(self._step[chosen], moves.pair[chosen], weight[chosen], mdp.n_pairs, n)
        return Marks(*map(put, (*state, *pair)))


def _summed(step: Any, at: Any, weight: Float, size: int, n: int) -> tuple[Any, Any, Float]:
    """Return ptr (n,) by step, the distinct places (u,) of each step, and the sums (u, K) of the weights there."""
    keys, index = np.unique(step * max(1, size) + at, return_inverse=True)
    total = np.zeros((keys.size, weight.shape[1]))
    np.add.at(total, index, weight)
    return np.searchsorted(keys // max(1, size), np.arange(n)).astype(np.int64), keys % max(1, size), total


class GpuHorizonValues(HorizonValues):
    """`HorizonValues` on a device.

    Parameters
    ----------
    device : Device
    """

    @faults()
    def __init__(self, choices: Choices, beta: float, horizon: int, device: Device, *, stop: bool = True) -> None:
        super().__init__(choices, beta, horizon, stop=stop)
        self.device, self.place = device, DeviceRewards(choices, device)
        self.kernels = SoftChoices(device, self.place.graph, beta, stop)

    @faults()
    def solve(self, thetas: Float, moves: Moves) -> Solved:  # type: ignore[override]
        """See `limiirl.irl.choice_values.Engine`."""
        found, K = _SolvedHorizon(self, moves, thetas.shape[0]), thetas.shape[0]
        column = 8.0 * self.choices.mdp.n_states * self.horizon
        most = max(1, min(_COLUMNS, int(self.device.free_bytes() / 2 / column)))
        for columns in _columns(K, most):
            r_state, r_pair = self.place.rewards(thetas[columns])
            V = self.device.xp.empty((self.horizon, *r_state.shape))
            self.kernels.plan(r_state, r_pair, V)
            found.keep(_Part(columns, r_pair, V))
        return found


class _SolvedSoft:
    """Policies without a horizon; see `limiirl.irl.choice_values.Solved`."""

    def __init__(self, engine: GpuSoftValues, moves: Moves, thetas: Float) -> None:
        self._engine, self._moves, self._thetas = engine, moves, thetas
        self.log_choice, self.residual = np.empty((moves.pair.size, len(thetas))), np.zeros(len(thetas))
        self.parts: list[_Part] = []

    def keep(self, part: _Part) -> None:
        """Add some columns, with the log-probabilities of the moves."""
        put, take = self._engine.device.put, self._engine.device.take
        where = (np.full(self._moves.pair.size, -1, dtype=np.int64), self._moves.state, self._moves.pair)
        found = self._engine.kernels.log_choice(part.reward, part.V, *map(put, where))
        self.log_choice[:, part.columns] = take(found)
        self.parts.append(part)

    @faults()
    def gradient(self, weight: Float) -> Float:
        """Return (K, d), by one adjoint solution."""
        engine, found = self._engine, []
        at, index = np.unique(self._moves.pair, return_inverse=True)
        total = np.zeros((at.size, weight.shape[1]))
        np.add.at(total, index, weight)
        for part in self.parts:
            given = engine.device.put(np.ascontiguousarray(total[:, part.columns]))
            pi, pull, right = engine.kernels.pull(part.reward, part.V, engine.device.put(at), given)
            mu = engine.kernels.adjoint(pi, right)
            if mu is None:
                return engine.solve_on_cpu(self._thetas, self._moves).gradient(weight)
            found.append(engine.place.features(mu, pull + pi * mu[engine.place.graph.pair_state]))
        return np.concatenate(found)


class GpuSoftValues(SoftValues):
    """`SoftValues` on a device: sweeps until nothing moves, instead of Newton's method.

    Parameters
    ----------
    device : Device
    """

    @faults()
    def __init__(self, choices: Choices, beta: float, device: Device) -> None:
        super().__init__(choices, beta)
        self.device, self.place = device, DeviceRewards(choices, device)
        self.kernels = SoftChoices(device, self.place.graph, beta, stop=False)

    @faults()
    def solve(self, thetas: Float, moves: Moves) -> Solved:  # type: ignore[override]
        """See `limiirl.irl.choice_values.Engine`."""
        found = _SolvedSoft(self, moves, thetas)
        for columns in _columns(thetas.shape[0], _COLUMNS):
            r_state, r_pair = self.place.rewards(thetas[columns])
            V = self.kernels.settle(r_state, r_pair)
            if V is None:
                return self.solve_on_cpu(thetas, moves)
            found.keep(_Part(columns, r_pair, V))
        return found

    def solve_on_cpu(self, thetas: Float, moves: Moves) -> Solved:
        """Return what the CPU finds, or raise as it does."""
        return super().solve(thetas, moves)
