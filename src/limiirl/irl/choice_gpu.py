"""The causal models without a horizon on a GPU: `SoftValues` and `HardValues`, with values and gradients from there.

What is asked once for one reward (policies, samples) stays on the CPU, and so do values that do not settle: the CPU
then finds out whether they are infinite.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from limiirl.irl.choice_values import TIE, HardValues, SoftValues, Solved, StationaryValues
from limiirl.irl.choices import Choices
from limiirl.irl.engine.gpu import DeviceFeatures, side_by_side
from limiirl.kernels.choices import Moves
from limiirl.kernels.gpu_choices import FADED, SETTLED, ChoiceKernels, DeviceChoices
from limiirl.kernels.gpu_device import Device, faults

Float = NDArray[np.float64]
# Columns at a time, as in the sweeps over trajectories.
COLUMNS = 4


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
        self._pair = DeviceFeatures(device, side_by_side(parts)) if parts else None

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


class Part(NamedTuple):
    """Some columns of a solution, on the device: what pairs earn (P, K), and values (S, K), or (n, S, K) by step."""

    columns: slice
    reward: Any
    V: Any


def parts_of(K: int, most: int) -> list[slice]:
    """Return the columns of portions of at most so many.

    Examples
    --------
    >>> parts_of(5, 4)
    [slice(0, 4, None), slice(4, 5, None)]
    """
    return [slice(k, min(K, k + most)) for k in range(0, K, most)]


class _SolvedOnDevice:
    """Policies that are the same at every step; see `limiirl.irl.choice_values.Solved`."""

    def __init__(self, engine: _OnDevice, moves: Moves, thetas: Float) -> None:
        self._engine, self._moves, self._thetas = engine, moves, thetas
        self.log_choice, self.residual = np.empty((moves.pair.size, len(thetas))), np.zeros(len(thetas))
        self.parts: list[Part] = []

    def keep(self, part: Part) -> None:
        """Add some columns, with the log-probabilities of the moves."""
        put, take = self._engine.device.put, self._engine.device.take
        where = (np.full(self._moves.pair.size, -1, dtype=np.int64), self._moves.state, self._moves.pair)
        found = self._engine.kernels.log_choice(part.reward, part.V, *map(put, where))
        self.log_choice[:, part.columns] = take(found)
        self.parts.append(part)

    @faults()
    def gradient(self, weight: Float) -> Float:
        """Return (K, d), by one adjoint solution."""
        engine, found = self._engine, [np.empty((0, self._thetas.shape[1]))]
        at, index = np.unique(self._moves.pair, return_inverse=True)
        total = np.zeros((at.size, weight.shape[1]))
        np.add.at(total, index, weight)
        for part in self.parts:
            given = engine.device.put(np.ascontiguousarray(total[:, part.columns]))
            pi, pull, right = engine.kernels.pull(part.reward, part.V, engine.device.put(at), given)
            omega = engine.omega(part, pi)
            mu = engine.kernels.adjoint(omega, right)
            if mu is None:
                return engine.solve_on_cpu(self._thetas, self._moves).gradient(weight)
            found.append(engine.place.features(mu, pull + omega * mu[engine.place.graph.pair_state]))
        return np.concatenate(found)


class _OnDevice(StationaryValues):
    """Values that are swept on a device until nothing moves.

    With a discount they begin below their first sweep. Sweeps are monotone, so that they only rise, and come to rest.
    From elsewhere they would not where a circle is certain: rounding differs around it, and goes around with sweeps.
    """

    _rule: str

    @faults()
    def __init__(self, choices: Choices, beta: float, device: Device) -> None:
        super().__init__(choices, beta)
        self.device, self.place = device, DeviceRewards(choices, device)
        self.kernels = ChoiceKernels(device, self.place.graph, beta, self._rule)

    @faults()
    def solve(self, thetas: Float, moves: Moves) -> Solved:  # type: ignore[override]
        """See `limiirl.irl.choice_values.Engine`."""
        found = _SolvedOnDevice(self, moves, thetas)
        for columns in parts_of(thetas.shape[0], COLUMNS):
            r_state, r_pair = self.place.rewards(thetas[columns])
            V = self._settle(r_state, r_pair)
            if V is None:
                return self.solve_on_cpu(thetas, moves)
            found.keep(Part(columns, r_pair, V))
        return found

    def solve_on_cpu(self, thetas: Float, moves: Moves) -> Solved:
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
    def omega(self, part: Part, pi: Any) -> Any:
        """Return (P, K), dV / dQ."""


class GpuSoftValues(_OnDevice, SoftValues):
    """`SoftValues` on a device: sweeps instead of Newton's method.

    Parameters
    ----------
    device : Device
    """

    _rule = "soft"

    def _settle(self, r_state: Any, reward: Any) -> Any:
        return self.kernels.settle(r_state, reward, self._below(r_state, reward), SETTLED)

    def omega(self, part: Part, pi: Any) -> Any:
        """Return pi."""
        del part
        return pi


class GpuHardValues(_OnDevice, HardValues):
    """`HardValues` on a device: sweeps instead of policy iteration, but at discount 1, which is left to the CPU.

    Its sweeps are monotone in every bit, rounding included, so that values come to rest to the last bit of the largest.
    That is near enough to the solution to find the CPU's ties.

    Parameters
    ----------
    device : Device
    """

    _rule = "best"

    def _settle(self, r_state: Any, reward: Any) -> Any:
        if self.place.graph.gamma == 1.0:
            return None
        return self.kernels.settle(r_state, reward, self._below(r_state, reward), FADED)

    def omega(self, part: Part, pi: Any) -> Any:
        """Return the best actions, averaged where several are best."""
        del pi
        return self.kernels.ties(part.reward, part.V, TIE)
