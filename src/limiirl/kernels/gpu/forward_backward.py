"""GPU versions of `kernels.forward_backward`: one launch per pass for K intents.

Expected counts are summed in a fixed order, so that results are reproducible.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from limiirl.errors import InvalidParameter
from limiirl.kernels.gpu.device import Device, flat_shape
from limiirl.kernels.graph import Alpha, CountBuffers, Neighbours, Rewards, Weights

# Arrays that a block caches in shared memory; see cuda/linear.cu.
_CACHE_WEIGHTS, _CACHE_COUNTS, _CACHE_TABLE = 1, 2, 4


class LaunchShape(NamedTuple):
    """Number of blocks, threads per block, and states per block."""

    blocks: int
    threads: int
    states: int


def grid_of(device: Device, n_states: int, n_columns: int) -> LaunchShape:
    """Return the largest grid whose blocks run concurrently and whose threads all have work."""
    if n_columns > device.n_threads:
        message = f"{n_columns} columns exceed the {device.n_threads} threads per block. Process fewer columns at once."
        raise InvalidParameter(message, value=n_columns)
    lanes = device.n_threads // n_columns
    blocks = max(1, min(device.n_blocks, -(-n_states // lanes)))
    return LaunchShape(blocks, min(lanes, max(1, n_states)) * n_columns, -(-n_states // blocks))


class _Kernels:
    def __init__(self, device: Device) -> None:
        self.device = device

    def _scratch(self, steps: int, n_columns: int) -> tuple[Any, Any]:
        """Return zero-initialised arrays for the maxima of each step and for the barrier counter."""
        zeros = self.device.xp.zeros(steps * n_columns + 1, dtype=np.uint64)
        return zeros, zeros[steps * n_columns :]


class LinearKernels(_Kernels):
    """GPU version of `kernels.forward_backward.linear`."""

    def fill(self, near: Neighbours, rewards: Rewards, weights: Weights, columns: tuple[int, ...]) -> None:
        """Compute the weights if they are time-homogeneous; otherwise they are computed in each step."""
        if not rewards.time_homogeneous:
            return
        parts = [(weights.node, None, rewards.node), (weights.edge, rewards.prob, rewards.edge)]
        for weight, prob, reward in parts:
            if weight is None:
                continue
            size = rewards.node.size if weight is weights.node else near.idx.size * len(columns)
            arguments = (size, len(columns), prob, reward, weight)
            self.device.launch("linear_fill", flat_shape(self.device, size), arguments, (len(columns), near.width, 0))

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
        """Compute messages[i], the message of step t_first + i, backwards from the last row, which is input."""
        n, k = messages.shape[0] - 1, len(columns)
        grid = grid_of(self.device, near.ptr.size - 1, k)
        cached, shared = self._choose_cached(grid, near, k, counts=False)
        plain = int(self._is_plain(near, rewards, weights) and end is None)
        graph = self._graph(near, rewards, weights, k)
        arguments = (*graph, end, messages, exponents, t_first, n, *self._scratch(n, k), cached, plain)
        self.device.launch("linear_backward", (*grid[:2], shared), arguments, (k, near.width, plain))

    def forward(
        self,
        near: Neighbours,
        rewards: Rewards,
        weights: Weights,
        messages: Any,
        exponents: Any,
        state: Alpha,
        step_weight: Any,
        counts: CountBuffers,
        t_first: int,
        columns: tuple[int, ...],
    ) -> None:
        """Compute alpha for the steps t_first + 1, ..., t_first + n, and accumulate expected counts."""
        n, k = messages.shape[0] - 1, len(columns)
        grid = grid_of(self.device, near.ptr.size - 1, k)
        cached, shared = self._choose_cached(grid, near, k, counts=counts.node is not None)
        plain = int(self._is_plain(near, rewards, weights) and all(part is None for part in counts[1:]))
        arguments = (
            *self._graph(near, rewards, weights, k), messages, exponents, *state, step_weight, *counts, near.idx.size,
            t_first, n, *self._scratch(n, k), cached, plain,
        )  # fmt: skip
        self.device.launch("linear_forward", (*grid[:2], shared), arguments, (k, near.width, plain))

    def _is_plain(self, near: Neighbours, rewards: Rewards, weights: Weights) -> bool:
        """Return True if edge weights are 1, the table contains all edges, and rewards are time-homogeneous."""
        return rewards.time_homogeneous and weights.edge is None and not near.overflows

    def _graph(self, near: Neighbours, rewards: Rewards, weights: Weights, k: int) -> tuple[Any, ...]:
        w, x = (weights.node, weights.edge) if rewards.time_homogeneous else (None, None)
        edges = (None, None) if rewards.time_homogeneous else (rewards.prob, rewards.edge)
        graph = (near.ptr.size - 1, k, near.ptr, near.idx, near.table, near.width, int(near.overflows))
        return (*graph, w, x, rewards.node, *edges, rewards.discount)

    def _choose_cached(self, grid: LaunchShape, near: Neighbours, k: int, counts: bool) -> tuple[int, int]:
        """Return the flags of the arrays to cache in shared memory (by decreasing benefit), and their size in bytes."""
        row = grid.states * k * 8
        arrays = [(_CACHE_COUNTS, row)] if counts else []
        arrays += [(_CACHE_WEIGHTS, row), (_CACHE_TABLE, (grid.states * near.width * 4 + 7) // 8 * 8)]
        cached, used = 0, 0
        for flag, size in arrays:
            if used + size <= self.device.shared_bytes:
                cached, used = cached | flag, used + size
        return cached, used


class LogKernels(_Kernels):
    """GPU version of `kernels.forward_backward.logspace`."""

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
        """Compute messages[i] = log u_t (log beta_0 for t = 0) backwards from the last row, which is input."""
        del weights
        n, k = messages.shape[0] - 1, len(columns)
        grid = grid_of(self.device, near.ptr.size - 1, k)
        arguments = (*self._graph(near, rewards, k), end, messages, exponents, t_first, n, *self._scratch(n, k))
        self.device.launch("log_backward", (*grid[:2], 0), arguments, (k, near.width, 0))

    def forward(
        self,
        near: Neighbours,
        rewards: Rewards,
        weights: Weights | None,
        messages: Any,
        exponents: Any,
        state: Alpha,
        step_weight: Any,
        counts: CountBuffers,
        t_first: int,
        columns: tuple[int, ...],
    ) -> None:
        """Compute log alpha for the steps t_first + 1, ..., t_first + n, and accumulate expected counts."""
        del weights
        n, k = messages.shape[0] - 1, len(columns)
        grid = grid_of(self.device, near.ptr.size - 1, k)
        arguments = (
            *self._graph(near, rewards, k), messages, exponents, *state, step_weight, *counts, near.idx.size,
            t_first, n, *self._scratch(n, k),
        )  # fmt: skip
        self.device.launch("log_forward", (*grid[:2], 0), arguments, (k, near.width, 0))

    def _graph(self, near: Neighbours, rewards: Rewards, k: int) -> tuple[Any, ...]:
        edges = (rewards.node, rewards.prob, rewards.edge, rewards.discount)
        return (near.ptr.size - 1, k, near.ptr, near.idx, *edges)


def propagate_means(
    device: Device,
    near: Neighbours,
    edge_prob: Any,
    marginals: Any,
    phi: Any,
    edge_phi: Any,
    mean: Any,
    sums: tuple[Any, Any],
    node_discount: Any,
    edge_discount: Any,
) -> None:
    """Propagate conditional mean features; see `hessian.propagate_means`. The discounts (n,) are on the host."""
    n_states, d = phi.shape
    for i in range(edge_prob.shape[0]):
        arguments = (
            n_states, d, near.ptr, near.idx, edge_prob[i], marginals[i], phi, edge_phi, mean[i % 2], mean[(i + 1) % 2],
            *sums, node_discount[i], edge_discount[i],
        )  # fmt: skip
        device.launch("propagate_means", flat_shape(device, n_states * d), arguments, (1, 1, 0))


def log_growth(device: Device, near: Neighbours, rewards: Rewards, discount: Any, n_columns: int) -> Any:
    """Return the bound (K,) of `hessian.log_growth`; `discount` is on the host."""
    n_states = near.ptr.size - 1
    growth = device.xp.empty((n_states, n_columns))
    node_discount, last = discount[min(1, discount.size - 1)], discount[max(0, discount.size - 2)]
    graph = (n_states, n_columns, near.ptr, near.idx, rewards.node, rewards.prob, rewards.edge)
    arguments = (*graph, node_discount, last, growth)
    device.launch("step_growth", flat_shape(device, n_states * n_columns), arguments, (n_columns, near.width, 0))
    with np.errstate(divide="ignore"):
        return np.log(device.take(column_max(device, growth)))


def column_max(device: Device, values: Any) -> Any:
    """Return the column maxima (K,) of an (n, K) array, ignoring nan."""
    return _reduce(device, values, 1)


def column_sums(device: Device, values: Any) -> Any:
    """Return the column sums (K,) of an (n, K) array; the summation order depends only on n, K and the device."""
    return _reduce(device, values, 0)


def _reduce(device: Device, values: Any, largest: int) -> Any:
    n, k = values.shape
    grid = grid_of(device, n, k)
    partial, result = device.xp.empty((grid.blocks, k)), device.xp.empty((1, k))
    device.launch("column_reduce", (*grid[:2], 0), (n, k, values, largest, partial), (k, 3, 0))
    last = grid_of(device, grid.blocks, k)._replace(blocks=1)
    device.launch("column_reduce", (*last[:2], 0), (grid.blocks, k, partial, largest, result), (k, 3, 0))
    return result[0]
