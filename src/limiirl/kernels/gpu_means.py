"""The twins of `means` and `growth` on a GPU, and sums and maxima of columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from limiirl.kernels.gpu_device import Device, flat_shape
from limiirl.kernels.gpu_sweeps import grid_of
from limiirl.kernels.graph import Neighbours
from limiirl.kernels.layout import Rewards


def carry(
    device: Device,
    near: Neighbours,
    share: Any,
    visits: Any,
    phi: Any,
    edge_phi: Any,
    mean: Any,
    totals: tuple[Any, Any],
    node_gain: Any,
    edge_gain: Any,
) -> None:
    """Carry mean features n steps; see `kernels.means.carry`. The gains (n,) are the host's."""
    n_states, d = phi.shape
    for i in range(share.shape[0]):
        given = (
            n_states, d, near.ptr, near.idx, share[i], visits[i], phi, edge_phi, mean[i % 2], mean[(i + 1) % 2],
            *totals, node_gain[i], edge_gain[i],
        )  # fmt: skip
        device.launch("means_carry", flat_shape(device, n_states * d), given, (1, 1, 0))


def log_growth(device: Device, near: Neighbours, rewards: Rewards, discount: Any, n_columns: int) -> Any:
    """Return (K,) a bound on the logarithm of a step's growth; see `kernels.growth`. `discount` is the host's."""
    n_states = near.ptr.size - 1
    growth = device.xp.empty((n_states, n_columns))
    onward, last = discount[min(1, discount.size - 1)], discount[max(0, discount.size - 2)]
    given = (n_states, n_columns, near.ptr, near.idx, rewards.node, rewards.prob, rewards.edge, onward, last, growth)
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
    partial, found = device.xp.empty((grid.blocks, k)), device.xp.empty((1, k))
    device.launch("column_reduce", (*grid[:2], 0), (n, k, values, largest, partial), (k, 3, 0))
    last = grid_of(device, grid.blocks, k)._replace(blocks=1)
    device.launch("column_reduce", (*last[:2], 0), (grid.blocks, k, partial, largest, found), (k, 3, 0))
    return found[0]
