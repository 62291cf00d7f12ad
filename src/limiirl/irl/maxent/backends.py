"""`CompiledMDP`, an MDP as a graph for the kernels, and the backends of finite-horizon path sums."""

from __future__ import annotations

import math
import weakref
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from limiirl._typing import FloatArray
from limiirl.errors import NumericalError
from limiirl.kernels.forward_backward import hessian, linear, logspace
from limiirl.kernels.forward_backward.hessian import log_growth
from limiirl.kernels.forward_backward.small import LOG_RANGE
from limiirl.kernels.graph import PathGraph, Rewards, build_graph
from limiirl.mdp import MDP, expected_features, to_dense


@dataclass(frozen=True, eq=False)
class CompiledMDP:
    """Graph of an MDP with parallel edges merged, and the mapping back to the MDP's edges.

    If the MDP has no action and edge features, all MDP edges from s to s' become one graph edge of weight
    sum_a T(s, a, s'), which may exceed 1. `edge_of` (E,) is the graph edge of each MDP edge, and `mass` (E',) contains
    the weights of the graph edges.
    """

    graph: PathGraph
    edge_of: NDArray[np.int64]
    mass: FloatArray
    prob: FloatArray

    @cached_property
    def _out(self) -> FloatArray | None:
        return None if np.all(self.mass == 1.0) else self.mass[self.graph.edge_order]

    def edge_weights(self, log: bool) -> tuple[FloatArray | None, FloatArray | None]:
        """Return the edge weights or log-weights, sorted by source and by target; None if all weights are 1."""
        return self._log_weights if log else self._weights

    @cached_property
    def _weights(self) -> tuple[FloatArray | None, FloatArray | None]:
        return (None, None) if self._out is None else (self._out, self._out[self.graph.in_edge])

    @cached_property
    def _log_weights(self) -> tuple[FloatArray | None, FloatArray | None]:
        out, into = self._weights
        return (None, None) if out is None or into is None else (np.log(out), np.log(into))

    def spread(self, into: FloatArray) -> FloatArray:
        """Distribute counts (E', K) of graph edges, sorted by target, over MDP edges (E, K) in proportion to T."""
        given = np.empty_like(into)
        given[self.graph.edge_order[self.graph.in_edge]] = into
        fraction = self.prob / self.mass[self.edge_of]
        return given[self.edge_of] * fraction[:, None]

    @cached_property
    def members(self) -> tuple[NDArray[np.int64], FloatArray]:
        """MDP edges sorted by graph edge, and the cumulative sum of their probabilities."""
        order = np.argsort(self.edge_of, kind="stable")
        return order, np.concatenate([[0.0], np.cumsum(self.prob[order])])


_CACHE: weakref.WeakKeyDictionary[MDP, CompiledMDP] = weakref.WeakKeyDictionary()


def compile_mdp(mdp: MDP) -> CompiledMDP:
    """Return the compiled form of an MDP, cached for the lifetime of the MDP."""
    if mdp not in _CACHE:
        _CACHE[mdp] = _compile(mdp)
    return _CACHE[mdp]


def _compile(mdp: MDP) -> CompiledMDP:
    if mdp.n_action_features or mdp.n_edge_features:
        src, dst, mass = mdp.src.astype(np.int64), mdp.dst.astype(np.int64), mdp.prob
        edge_of = np.arange(mdp.n_edges)
    else:
        pairs, edge_of = np.unique(mdp.src.astype(np.int64) * mdp.n_states + mdp.dst, return_inverse=True)
        src, dst = np.divmod(pairs, mdp.n_states)
        mass = np.bincount(edge_of, weights=mdp.prob, minlength=pairs.size).astype(np.float64)
    return CompiledMDP(build_graph(mdp.n_states, src, dst), edge_of, mass, mdp.prob)


def dense_features(mdp: MDP, compiled: CompiledMDP) -> tuple[FloatArray, FloatArray | None]:
    """Return dense features (S, d) of states and, unless there are none, (E, d) of edges by target, padded with 0."""
    graph = compiled.graph
    phi = np.zeros((mdp.n_states, mdp.n_features))
    ds, da = mdp.n_state_features, mdp.n_action_features
    if mdp.state_features is not None:
        phi[:, :ds] = to_dense(mdp.state_features)[graph.order]
    if not (da or mdp.n_edge_features):
        return phi, None
    edge_phi = np.zeros((mdp.n_edges, mdp.n_features))
    if mdp.action_features is not None:
        edge_phi[:, ds : ds + da] = to_dense(mdp.action_features)[mdp.pair_of_edge]
    if mdp.edge_features is not None:
        edge_phi[:, ds + da :] = to_dense(mdp.edge_features)
    return phi, edge_phi[graph.edge_order][graph.in_edge]


# Linear arithmetic is used if the relative error of Z due to underflow is at most this value.
LOSS = 1e-12
ARITHMETICS = ("auto", "linear", "log")


def log_loss_bound(
    n_states: int, max_length: int, log_growth: NDArray[np.float64], log_weight: NDArray[np.float64] | float = 0.0
) -> NDArray[np.float64]:
    """Return an upper bound (K,) on the log of the relative error of Z due to underflow in linear arithmetic.

    The bound is log S + 2 log L + L max(0, g) + v - 708, where g is the largest log growth per step and v
    (`log_weight`) is the largest intermediate log-weight within a step. Proof: trajectories may stop anywhere, so that
    Z is at least as large as every entry of every forward message. An entry that underflows is at most e^-708 times the
    scale of its message, and the total weight of its continuations is at most L e^(L g).
    """
    paths = math.log(n_states) + 2 * math.log(max_length)
    return paths + max_length * np.maximum(0.0, log_growth) + log_weight - LOG_RANGE


# Maximum size of cached dense features, in bytes.
_CACHE_BYTES = 16e6


class OrderedRewards(NamedTuple):
    """Rewards of K intents: `node` (S, K) in the order `graph.order`, and `edge` (E', K) sorted by source, or None."""

    node: Any
    edge: Any


class Backend(Protocol):
    """Arrays, graph, features and kernels on one device. Arrays "on the host" are numpy arrays.

    Attributes
    ----------
    xp : module
        numpy, or a module with the same functions.
    graph : PathGraph
    max_columns : int
        Maximum number of intents per pass.
    step_bytes : float
        Memory for the marginals of a batch of steps.
    """

    xp: Any
    graph: PathGraph
    max_columns: int
    step_bytes: float

    @property
    def max_bytes(self) -> float:
        """Default memory for messages, in bytes."""

    def put(self, array: Any) -> Any:
        """Copy a host array to the device."""

    def take(self, array: Any) -> NDArray[Any]:
        """Copy an array to the host."""

    def edge_weights(self, log: bool) -> tuple[Any, Any]:
        """Return `CompiledMDP.edge_weights` on the device."""

    def kernels(self, log: bool) -> Any:
        """Return the kernels `backward`, `forward` and, for linear arithmetic, `fill`."""

    def propagate_means(self, *arguments: Any) -> None:
        """Propagate expected features along the edges; see `kernels.forward_backward.hessian`."""

    def rewards(self, mdp: MDP, thetas: FloatArray) -> OrderedRewards:
        """Return the rewards of thetas (K, d), which are on the host; raise if they are not finite."""

    def log_growth(self, rewards: Rewards, discount: FloatArray, n_columns: int) -> FloatArray:
        """Return an upper bound (K,) on the log growth per step, on the host."""

    def column_max(self, values: Any) -> Any:
        """Return the maxima (K,) of the columns of (n, K); -inf if n is 0."""

    def column_sums(self, values: Any) -> Any:
        """Return the sums (K,) of the columns of (n, K)."""

    def dense_features(self, mdp: MDP) -> tuple[Any, Any]:
        """Return dense features of states (S, d) in the order `graph.order` and of edges (E, d) by target (or None)."""

    def expected_features(self, mdp: MDP, node: Any, edge: Any) -> FloatArray:
        """Return sums of features (K, d), on the host, over counts of states (S, K) and edges (E', K) by target."""


def check_rewards(node: FloatArray, edge: FloatArray | None) -> None:
    """Check that the rewards of states (S, K) and edges (E, K) are finite."""
    for values, what in ((node, "state"), (edge, "edge")):
        if values is not None and not np.all(np.isfinite(values)):
            row = int(np.argmin(np.isfinite(values).all(axis=1)))
            message = f"The reward of {what} {row} at step 0 is not finite. Use smaller parameters or features."
            raise NumericalError(message, parameter="thetas", index=row)


class HostBackend:
    """The CPU: numpy arrays and numba kernels."""

    xp: Any = np
    # More columns would not fit into registers.
    max_columns = 8
    max_bytes = 2.0**30
    step_bytes = 64e6

    def __init__(self, compiled: CompiledMDP, mdp: MDP) -> None:
        self.compiled = compiled
        self.graph = compiled.graph
        self._in_order = bool(np.array_equal(self.graph.order, np.arange(mdp.n_states)))
        self._phi: Any = None if mdp.n_action_features or mdp.n_edge_features else mdp.state_features
        self._dense: tuple[FloatArray, FloatArray | None] | None = None

    def put(self, array: Any) -> Any:
        """Return the array."""
        return array

    def take(self, array: Any) -> NDArray[Any]:
        """Return the array."""
        return np.asarray(array)

    def edge_weights(self, log: bool) -> tuple[FloatArray | None, FloatArray | None]:
        """Return the edge weights of the compiled MDP."""
        return self.compiled.edge_weights(log)

    def kernels(self, log: bool) -> Any:
        """Return the kernels of log or linear arithmetic."""
        return logspace if log else linear

    def propagate_means(self, *arguments: Any) -> None:
        """Propagate expected features along the edges."""
        hessian.propagate_means(*arguments)

    def rewards(self, mdp: MDP, thetas: FloatArray) -> OrderedRewards:
        """See `Backend`."""
        with np.errstate(over="ignore", invalid="ignore"):
            node: FloatArray
            edge: FloatArray | None
            if self._phi is not None:  # `MDP.rewards` without checks
                node, edge = np.ascontiguousarray(self._phi @ thetas.T), None
            else:
                node, edge = mdp.rewards(thetas)
        check_rewards(node, edge)
        if edge is not None:
            edge = np.ascontiguousarray(edge[self.graph.edge_order])
        return OrderedRewards(node if self._in_order else np.ascontiguousarray(node[self.graph.order]), edge)

    def log_growth(self, rewards: Rewards, discount: FloatArray, n_columns: int) -> FloatArray:
        """Return an upper bound on the log growth per step."""
        del discount
        return np.asarray(log_growth(self.graph.out, rewards, (0,) * n_columns))

    def column_max(self, values: FloatArray) -> FloatArray:
        """Return the maxima of the columns."""
        return np.asarray(values.max(axis=0, initial=-np.inf))

    def column_sums(self, values: FloatArray) -> FloatArray:
        """Return the sums of the columns, in an order that does not depend on K."""
        return np.asarray(np.ascontiguousarray(values.T).sum(axis=1))

    def dense_features(self, mdp: MDP) -> tuple[FloatArray, FloatArray | None]:
        """Return dense features, cached if they are small."""
        if self._dense is not None:
            return self._dense
        dense = dense_features(mdp, self.compiled)
        if sum(part.nbytes for part in dense if part is not None) <= _CACHE_BYTES:
            self._dense = dense
        return dense

    def expected_features(self, mdp: MDP, node: FloatArray, edge: FloatArray | None) -> FloatArray:
        """Return the features of expected counts."""
        counts = node
        if not self._in_order:
            counts = np.empty_like(node)
            counts[self.graph.order] = node
        return expected_features(mdp, counts, None if edge is None else self.compiled.spread(edge))
