"""The causal models of so many sweeps on a GPU: `HorizonValues` and `AverageValues`, with their reverse sweeps.

Both are one recursion on the device. Values V (n, S, K) go from the last row back: up to a horizon the last row is what
states earn, and averages begin with 0, so that Q = r. Policies of single steps (samples) stay on the CPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from limiirl.irl.choice_gpu import COLUMNS, DeviceRewards, Part, parts_of
from limiirl.irl.choice_sweeps import AverageValues, HorizonValues
from limiirl.irl.choice_values import Solved
from limiirl.irl.choices import Choices
from limiirl.kernels.choices import Moves
from limiirl.kernels.gpu_choices import ChoiceKernels, Marks
from limiirl.kernels.gpu_device import Device, faults

Float = NDArray[np.float64]


class _SolvedSweeps:
    """Policies from sweeps; see `limiirl.irl.choice_values.Solved`.

    Values take up to a third of the free memory, and so does a portion of columns. Portions beyond that are swept again
    for their gradient.
    """

    def __init__(self, engine: GpuHorizonValues | GpuAverageValues, moves: Moves, thetas: Float) -> None:
        self._engine, self._moves, self._thetas, K = engine, moves, thetas, thetas.shape[0]
        self.log_choice, self.residual = np.empty((moves.pair.size, K)), np.zeros(K)
        self._step = np.repeat(np.arange(moves.ptr.size - 1), np.diff(moves.ptr)).astype(np.int64)
        put, room = engine.device.put, engine.device.free_bytes() / 3.0
        column = 8.0 * engine.choices.mdp.n_states * engine.n_rows
        where = [put(at) for at in (self._step + engine.after - 1, moves.state, moves.pair)]
        self._parts: list[Part] = []
        for columns in parts_of(K, max(1, min(COLUMNS, int(room / column)))):
            part = engine.sweep(thetas, columns)
            self.log_choice[:, columns] = engine.device.take(engine.kernels.log_choice(part.reward, part.V, *where))
            self.residual[columns] = engine.residuals(thetas, part)
            keeps = columns == slice(0, K) or column * columns.stop <= room
            self._parts.append(part if keeps else Part(columns, None, None))

    @faults()
    def gradient(self, weight: Float) -> Float:
        """Return (K, d), by reverse sweeps."""
        engine, found = self._engine, [np.empty((0, self._thetas.shape[1]))]
        xp = engine.device.xp
        for known in self._parts:
            part = engine.sweep(self._thetas, known.columns) if known.V is None else known
            V = part.V[engine.after :]
            node, pair = xp.zeros(part.V.shape[1:]), xp.zeros(part.reward.shape)
            marks = self._marks(np.ascontiguousarray(weight[:, part.columns]), V.shape[0] + 1)
            engine.kernels.plan_back(part.reward, V, marks, node, pair)
            found.append(engine.place.features(node, pair))
        return np.concatenate(found)

    def _marks(self, weight: Float, n: int) -> Marks:
        """Sum the weights of moves that share a step and a state, and those that share a step and a pair."""
        put, moves, mdp = self._engine.device.put, self._moves, self._engine.choices.mdp
        chosen = moves.pair >= 0
        state = _summed(self._step, moves.state, weight, mdp.n_states, n)
        pair = _summed(self._step[chosen], moves.pair[chosen], weight[chosen], mdp.n_pairs, n)
        return Marks(*map(put, (*state, *pair)))


def _summed(step: Any, at: Any, weight: Float, size: int, n: int) -> tuple[Any, Any, Float]:
    """Return ptr (n,) by step, the distinct places (u,) of each step, and the sums (u, K) of the weights there."""
    keys, index = np.unique(step * max(1, size) + at, return_inverse=True)
    total = np.zeros((keys.size, weight.shape[1]))
    np.add.at(total, index, weight)
    return np.searchsorted(keys // max(1, size), np.arange(n)).astype(np.int64), keys % max(1, size), total


def _planned(engine: GpuHorizonValues | GpuAverageValues, r_state: Any, r_pair: Any, *, last: Any) -> Any:
    """Return the values V (n, S, K), swept from a last row back."""
    V = engine.device.xp.empty((engine.n_rows, *r_state.shape))
    V[-1] = last
    engine.kernels.plan(r_state, r_pair, V)
    return V


class GpuHorizonValues(HorizonValues):
    """`HorizonValues` on a device.

    Parameters
    ----------
    device : Device

    Attributes
    ----------
    n_rows, after : int
        The number of rows of V, and the row of the values after step 0.
    """

    @faults()
    def __init__(self, choices: Choices, beta: float, horizon: int, device: Device, *, stop: bool = True) -> None:
        super().__init__(choices, beta, horizon, stop=stop)
        self.device, self.place = device, DeviceRewards(choices, device)
        self.kernels = ChoiceKernels(device, self.place.graph, beta, "soft or stop" if stop else "soft")
        self.n_rows, self.after = horizon, 1

    @faults()
    def solve(self, thetas: Float, moves: Moves) -> Solved:  # type: ignore[override]
        """See `limiirl.irl.choice_values.Engine`."""
        return _SolvedSweeps(self, moves, thetas)

    def sweep(self, thetas: Float, columns: slice) -> Part:
        """Return the values of some columns."""
        rewards = self.place.rewards(thetas[columns])
        return Part(columns, rewards[1], _planned(self, *rewards, last=rewards[0]))

    def residuals(self, thetas: Float, part: Part) -> Float:
        """Return zeros: a plan is what it is."""
        del thetas
        return np.zeros(part.V.shape[2])


class GpuAverageValues(AverageValues):
    """`AverageValues` on a device; attributes as of `GpuHorizonValues`.

    Parameters
    ----------
    device : Device
    """

    @faults()
    def __init__(self, choices: Choices, beta: float, n_sweeps: int, device: Device) -> None:
        super().__init__(choices, beta, n_sweeps)
        self.device, self.place = device, DeviceRewards(choices, device)
        self.kernels = ChoiceKernels(device, self.place.graph, beta, "average")
        self.n_rows, self.after = n_sweeps + 1, 0

    @faults()
    def solve(self, thetas: Float, moves: Moves) -> Solved:  # type: ignore[override]
        """See `limiirl.irl.choice_values.Engine`."""
        return _SolvedSweeps(self, moves, thetas)

    def sweep(self, thetas: Float, columns: slice) -> Part:
        """Return the values of some columns, those of the last sweep first."""
        rewards = self.place.rewards(thetas[columns])
        return Part(columns, rewards[1], _planned(self, *rewards, last=0.0))

    def residuals(self, thetas: Float, part: Part) -> Float:
        """Return (K,): how far the last two sweeps were apart, relative to the largest value."""
        before = part.V[1] if self.n_sweeps > 1 else self.place.rewards(thetas[part.columns])[0]
        far, scale = (self.device.take(abs(x).max(axis=0)) for x in (part.V[0] - before, part.V[0]))
        return np.asarray(far / np.maximum(scale, 1e-300))
