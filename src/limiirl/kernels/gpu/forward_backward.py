"""GPU versions of `kernels.forward_backward`: one launch per pass, K intents side by side.

Expected counts are summed in a fixed order, so that results are reproducible.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from limiirl.errors import InvalidParameter
from limiirl.kernels.gpu.device import Device, flat_shape
from limiirl.kernels.graph import Alpha, CountBuffers, Neighbours, Rewards, Weights

_KEEP_NODE, _KEEP_TALLY, _KEEP_TABLE = 1, 2, 4


class LaunchShape(NamedTuple):
    """Blocks and threads of a inputs."""

    blocks: int
    threads: int
    states: int  # of a block


def grid_of(device: Device, n_states: int, n_columns: int) -> LaunchShape:
    """Return a grid whose blocks all run at once, with no more of them than have work for every thread."""
    if n_columns > device.n_threads:
        raise InvalidParameter(
            f"{n_columns} columns are more than the {device.n_threads} threads of a block. Take fewer at once."
        )
    lanes = device.n_threads // n_columns
    blocks = max(1, min(device.n_blocks, -(-n_states // lanes)))
    return LaunchShape(blocks, min(lanes, max(1, n_states)) * n_columns, -(-n_states // blocks))


class _Kernels:
    """Common part of linear and log arithmetic."""

    def __init__(self, device: Device) -> None:
        self.device = device

    def _scratch(self, steps: int, n_columns: int) -> tuple[Any, Any]:
        """Return zeros for the maxima of each step, and for the barrier's counter."""
        zeros = self.device.xp.zeros(steps * n_columns + 1, dtype=np.uint64)
        return zeros, zeros[steps * n_columns :]


class LinearKernels(_Kernels):
    """The functions of `kernels.linear` on a device."""

    def fill(self, near: Neighbours, rewards: Rewards, weights: Weights, columns: tuple[int, ...]) -> None:
        """Compute the weights of a steady step; those of discounted ones are computed as they are used."""
        if not rewards.steady:
            return
        parts = [(weights.node, None, rewards.node), (weights.edge, rewards.prob, rewards.edge)]
        for weight, prob, reward in parts:
            if weight is None:
                continue
            size = rewards.node.size if weight is weights.node else near.idx.size * len(columns)
            given = (size, len(columns), prob, reward, weight)
            self.device.launch("linear_fill", flat_shape(self.device, size), given, (len(columns), near.width, 0))

    def backward(
        self,
        near: Neighbours,
        rewards: Rewards,
        weights: Weights,
        end: Any,
        messages: Any,
        exponents: Any,
        t_first: int,
        columns: tuple[int, ...],
    ) -> None:
        """Fill messages[i] for steps t_first + i, from the last row down, which is given."""
        n, k = messages.shape[0] - 1, len(columns)
        grid = grid_of(self.device, near.ptr.size - 1, k)
        keep, shared = self._keep(grid, near, k, counts=False)
        plain = int(self._plain(near, rewards, weights) and end is None)
        tops = self._scratch(n, k)
        graph = self._graph(near, rewards, weights, k)
        given = (*graph, end, messages, exponents, t_first, n, *tops, keep, plain)
        self.device.launch("linear_backward", (*grid[:2], shared), given, (k, near.width, plain))

    def forward(
        self,
        near: Neighbours,
        rewards: Rewards,
        weights: Weights,
        messages: Any,
        exponents: Any,
        state: Alpha,
        gain: Any,
        counts: CountBuffers,
        t_first: int,
        columns: tuple[int, ...],
    ) -> None:
        """Carry alpha from step t_first over the steps of `messages`, tallying every step on the way."""
        n, k = messages.shape[0] - 1, len(columns)
        grid = grid_of(self.device, near.ptr.size - 1, k)
        keep, shared = self._keep(grid, near, k, counts=counts.node is not None)
        plain = int(self._plain(near, rewards, weights) and all(part is None for part in counts[1:]))
        given = (
            *self._graph(near, rewards, weights, k), messages, exponents, *state, gain, *counts, near.idx.size,
            t_first, n, *self._scratch(n, k), keep, plain,
        )  # fmt: skip
        self.device.launch("linear_forward", (*grid[:2], shared), given, (k, near.width, plain))

    def _plain(self, near: Neighbours, rewards: Rewards, weights: Weights) -> bool:
        """Return True if edges weigh 1, the table holds them all, and every step is the same."""
        return rewards.steady and weights.edge is None and not near.overflows

    def _graph(self, near: Neighbours, rewards: Rewards, weights: Weights, k: int) -> tuple[Any, ...]:
        w, x = (weights.node, weights.edge) if rewards.steady else (None, None)
        edges = (None, None) if rewards.steady else (rewards.prob, rewards.edge)
        graph = (near.ptr.size - 1, k, near.ptr, near.idx, near.table, near.width, int(near.overflows))
        return (*graph, w, x, rewards.node, *edges, rewards.discount)

    def _keep(self, grid: LaunchShape, near: Neighbours, k: int, counts: bool) -> tuple[int, int]:
        """Return what a block keeps in shared memory, the most useful first, and the bytes that it takes."""
        row = grid.states * k * 8
        kinds = [(_KEEP_TALLY, row)] if counts else []
        kinds += [(_KEEP_NODE, row), (_KEEP_TABLE, (grid.states * near.width * 4 + 7) // 8 * 8)]
        keep, used = 0, 0
        for kind, size in kinds:
            if used + size <= self.device.shared_bytes:
                keep, used = keep | kind, used + size
        return keep, used


class LogKernels(_Kernels):
    """The functions of `kernels.logspace` on a device."""

    def backward(
        self,
        near: Neighbours,
        rewards: Rewards,
        weights: Weights | None,
        end: Any,
        messages: Any,
        exponents: Any,
        t_first: int,
        columns: tuple[int, ...],
    ) -> None:
        """Fill messages[i] with log u_t (log beta_0 at t = 0), from the last row down, which is given."""
        del weights
        n, k = messages.shape[0] - 1, len(columns)
        tops = self._scratch(n, k)
        given = (*self._graph(near, rewards, k), end, messages, exponents, t_first, n, *tops)
        self.device.launch(
            "log_backward", (*grid_of(self.device, near.ptr.size - 1, k)[:2], 0), given, (k, near.width, 0)
        )

    def forward(
        self,
        near: Neighbours,
        rewards: Rewards,
        weights: Weights | None,
        messages: Any,
        exponents: Any,
        state: Alpha,
        gain: Any,
        counts: CountBuffers,
        t_first: int,
        columns: tuple[int, ...],
    ) -> None:
        """Carry log alpha from step t_first over the steps of `messages`, tallying every step on the way."""
        del weights
        n, k = messages.shape[0] - 1, len(columns)
        tops = self._scratch(n, k)
        given = (
            *self._graph(near, rewards, k), messages, exponents, *state, gain, *counts, near.idx.size, t_first, n, *tops
        )  # fmt: skip
        self.device.launch(
            "log_forward", (*grid_of(self.device, near.ptr.size - 1, k)[:2], 0), given, (k, near.width, 0)
        )

    def _graph(self, near: Neighbours, rewards: Rewards, k: int) -> tuple[Any, ...]:
        edges = (rewards.node, rewards.prob, rewards.edge, rewards.discount)
        return (near.ptr.size - 1, k, near.ptr, near.idx, *edges)


def carry(
    device: Device,
    near: Neighbours,
    share: Any,
    marginals: Any,
    phi: Any,
    edge_phi: Any,
    mean: Any,
    sums: tuple[Any, Any],
    node_gain: Any,
    edge_gain: Any,
) -> None:
    """Carry mean features n steps; see `kernels.forward_backward.hessian.carry`. The gains (n,) are the host's."""
    n_states, d = phi.shape
    for i in range(share.shape[0]):
        given = (
            n_states, d, near.ptr, near.idx, share[i], marginals[i], phi, edge_phi, mean[i % 2], mean[(i + 1) % 2],
            *sums, node_gain[i], edge_gain[i],
        )  # fmt: skip
        device.launch("means_carry", flat_shape(device, n_states * d), given, (1, 1, 0))


def log_growth(device: Device, near: Neighbours, rewards: Rewards, discount: Any, n_columns: int) -> Any:
    """Return (K,) a bound on the logarithm of a step's growth; see `hessian.log_growth`. `discount` is the host's."""
    n_states = near.ptr.size - 1
    growth = device.xp.empty((n_states, n_columns))
    continuation, last = discount[min(1, discount.size - 1)], discount[max(0, discount.size - 2)]
    given = (
        n_states,
        n_columns,
        near.ptr,
        near.idx,
        rewards.node,
        rewards.prob,
        rewards.edge,
        continuation,
        last,
        growth,
    )
    device.launch("step_growth", flat_shape(device, n_states * n_columns), given, (n_columns, near.width, 0))
    with np.errstate(divide="ignore"):
        return np.log(device.take(column_max(device, growth)))


def column_max(device: Device, values: Any) -> Any:
    """Return the maxima (K,) of the columns of (n, K); nan is passed over."""
    return _reduce(device, values, 1)


def column_sums(device: Device, values: Any) -> Any:
    """Return the sums (K,) of the columns of (n, K), in an order that n, K and the device decide."""
    return _reduce(device, values, 0)


def _reduce(device: Device, values: Any, largest: int) -> Any:
    n, k = values.shape
    grid = grid_of(device, n, k)
    partial, result = device.xp.empty((grid.blocks, k)), device.xp.empty((1, k))
    device.launch("column_reduce", (*grid[:2], 0), (n, k, values, largest, partial), (k, 3, 0))
    last = grid_of(device, grid.blocks, k)._replace(blocks=1)
    device.launch("column_reduce", (*last[:2], 0), (grid.blocks, k, partial, largest, result), (k, 3, 0))
    return result[0]
