"""`GpuBackend`: the finite-horizon path sums on a GPU.

The MDP is copied to the GPU once. Each evaluation transfers only theta (K, d), log Z (K,) and the expected features
(K, d).
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
from scipy import sparse

from limiirl._typing import FloatArray
from limiirl.irl.maxent.backends import OrderedRewards, check_rewards, compile_mdp, dense_features
from limiirl.irl.maxent.path_sums import FinitePathSums
from limiirl.kernels.gpu import forward_backward
from limiirl.kernels.gpu.device import Device, SparseRows, convert_cuda_errors
from limiirl.kernels.gpu.forward_backward import LinearKernels, LogKernels
from limiirl.kernels.graph import Neighbours, Rewards
from limiirl.mdp import MDP, edge_parts


class DeviceFeatures:
    """A feature matrix (n, c) on a device."""

    def __init__(self, device: Device, matrix: Any) -> None:
        self.device = device
        self._dense: Any = None
        self._rows, self._turned = None, None
        if isinstance(matrix, np.ndarray):
            self._dense = device.put(matrix)
        else:  # store the transpose too, because only rows can be summed in a fixed order
            self._rows, self._turned = SparseRows(device, matrix), SparseRows(device, matrix.T.tocsr())

    def rewards(self, thetas: FloatArray) -> Any:
        """Return the rewards (n, K) for thetas (K, c) on the host."""
        given = self.device.put(np.ascontiguousarray(thetas.T))
        if self._rows is not None:
            return self._rows.times(given)
        with np.errstate(over="ignore", invalid="ignore"):  # the caller checks for overflow
            return self.device.xp.ascontiguousarray(self._dense @ given)

    def collect(self, counts: Any) -> FloatArray:
        """Return the product (c, K) of the transposed matrix and counts (n, K), on the host."""
        return self.device.take(self._dense.T @ counts if self._turned is None else self._turned.times(counts))


def side_by_side(parts: list[Any]) -> Any:
    """Return the horizontal concatenation of feature matrices: dense if all are dense, otherwise CSR."""
    if all(isinstance(part, np.ndarray) for part in parts):
        return np.hstack(parts)
    return sparse.hstack([sparse.csr_array(part) for part in parts]).tocsr()


class GpuBackend:
    """Graph, weights and features of an MDP on a GPU; see `Backend`."""

    # With eight columns, a block of the paper's road network does not fit into shared memory (ADR 0018).
    max_columns = 4
    step_bytes = 1e9

    def __init__(self, mdp: MDP, device: Device) -> None:
        self.device, self.xp = device, device.xp
        self.put, self.take = device.put, device.take
        self.host = compile_mdp(mdp)
        graph = self.host.graph
        self.graph = graph._replace(
            out=self._put_neighbours(graph.out),
            into=self._put_neighbours(graph.into),
            **{name: device.put(getattr(graph, name)) for name in ("order", "rank", "edge_order", "in_edge")},
        )
        self._weights: dict[bool, tuple[Any, Any]] = {}
        self._kernels = LinearKernels(device), LogKernels(device)
        self._state, self._edge = self._features(mdp)
        self._dense: tuple[Any, Any] | None = None

    @property
    def max_bytes(self) -> float:
        """Half of the free memory of the device."""
        return self.device.free_bytes() / 2

    def _put_neighbours(self, near: Neighbours) -> Neighbours:
        return near._replace(ptr=self.put(near.ptr), idx=self.put(near.idx), table=self.put(near.table))

    def _features(self, mdp: MDP) -> tuple[DeviceFeatures | None, DeviceFeatures | None]:
        graph, state, edge = self.host.graph, None, None
        if mdp.state_features is not None:
            state = DeviceFeatures(self.device, mdp.state_features[graph.order])
        parts = edge_parts(mdp)
        if parts:
            edge = DeviceFeatures(self.device, side_by_side(parts)[graph.edge_order])
        return state, edge

    def edge_weights(self, log: bool) -> tuple[Any, Any]:
        """Return the edge weights on the device."""
        if log not in self._weights:
            out, into = self.host.edge_weights(log)
            self._weights[log] = (None, None) if out is None or into is None else (self.put(out), self.put(into))
        return self._weights[log]

    def kernels(self, log: bool) -> LinearKernels | LogKernels:
        """Return the kernels of log or linear arithmetic."""
        return self._kernels[log]

    def propagate_means(self, *arguments: Any) -> None:
        """Propagate expected features along the edges."""
        forward_backward.propagate_means(self.device, *arguments)

    def rewards(self, mdp: MDP, thetas: FloatArray) -> OrderedRewards:
        """Compute the rewards on the device."""
        ds = mdp.n_state_features
        if self._state is None:
            node = self.xp.zeros((mdp.n_states, thetas.shape[0]))
        else:
            node = self._state.rewards(thetas[:, :ds])
        edge = None if self._edge is None else self._edge.rewards(thetas[:, ds:])
        for values in (node, edge):
            if values is not None and not np.all(np.isfinite(self.take(self.column_sums(values)))):
                with np.errstate(over="ignore", invalid="ignore"):
                    check_rewards(*mdp.rewards(thetas))  # does not raise if only the sum overflowed
        return OrderedRewards(node, edge)

    def log_growth(self, rewards: Rewards, discount: FloatArray, n_columns: int) -> FloatArray:
        """Return an upper bound on the log growth per step."""
        return np.asarray(forward_backward.log_growth(self.device, self.graph.out, rewards, discount, n_columns))

    def column_max(self, values: Any) -> Any:
        """Return the maxima of the columns."""
        if values.shape[0] == 0:
            return self.xp.full(values.shape[1], -np.inf)
        return forward_backward.column_max(self.device, values)

    def column_sums(self, values: Any) -> Any:
        """Return the sums of the columns, in an order that depends only on the device."""
        return forward_backward.column_sums(self.device, self.xp.ascontiguousarray(values))

    def dense_features(self, mdp: MDP) -> tuple[Any, Any]:
        """Return dense features, cached for the next Hessian."""
        if self._dense is None:
            phi, edge_phi = dense_features(mdp, self.host)
            self._dense = self.put(phi), None if edge_phi is None else self.put(edge_phi)
        return self._dense

    def expected_features(self, mdp: MDP, node: Any, edge: Any) -> FloatArray:
        """Multiply counts and features on the device."""
        del mdp
        parts = [] if self._state is None else [self._state.collect(node)]
        if self._edge is not None:
            by_source = self.xp.empty_like(edge)
            by_source[self.graph.in_edge] = edge
            parts.append(self._edge.collect(by_source))
        return np.ascontiguousarray(np.vstack(parts).T)


class GpuFinitePathSums(FinitePathSums):
    """`FinitePathSums` on a GPU; errors of the device are converted to errors of limiirl."""

    __init__ = convert_cuda_errors()(FinitePathSums.__init__)
    expected_counts = convert_cuda_errors()(FinitePathSums.expected_counts)
    value_and_grad = convert_cuda_errors()(FinitePathSums.value_and_grad)
    log_partition = convert_cuda_errors()(FinitePathSums.log_partition)
    log_partition_by_start = convert_cuda_errors()(FinitePathSums.log_partition_by_start)
    covariance = convert_cuda_errors()(FinitePathSums.covariance)
    time_marginals = convert_cuda_errors()(FinitePathSums.time_marginals)
    backward_messages = convert_cuda_errors()(FinitePathSums.backward_messages)


_BACKENDS: weakref.WeakKeyDictionary[MDP, GpuBackend] = weakref.WeakKeyDictionary()


@convert_cuda_errors()
def gpu_backend(mdp: MDP, device: Device) -> GpuBackend:
    """Return the backend of an MDP on a device, cached for the lifetime of the MDP."""
    backend = _BACKENDS.get(mdp)
    if backend is None or backend.device is not device:
        backend = _BACKENDS[mdp] = GpuBackend(mdp, device)
    return backend
