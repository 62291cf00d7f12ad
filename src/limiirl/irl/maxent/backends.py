"""Where the finite engine computes: arrays, graph, features and kernels of one place, under the same names everywhere.

`HostBackend` is numpy and the numba kernels; `limiirl.irl.maxent.gpu.GpuBackend` is a GPU. The engine asks for no more.

Linear or log space? A rigorous bound on what linear space could lose decides.
"""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from limiirl._typing import FloatArray
from limiirl.errors import InvalidParameter, NumericalError
from limiirl.irl.maxent.compiled import CompiledMDP, dense_features, expected_features
from limiirl.kernels.forward_backward import hessian, linear, logspace
from limiirl.kernels.forward_backward.hessian import log_growth
from limiirl.kernels.graph import PathGraph, Rewards
from limiirl.mdp import MDP

# Linear space is used where its relative loss by underflow is certainly below this.
LOSS = 1e-12
# exp(-708) is about the least normal double: what is smaller, relative to its scale, is lost.
_RANGE = 708.0
ARITHMETICS = ("auto", "linear", "log")


def log_loss_bound(
    n_states: int, max_length: int, log_growth: NDArray[np.float64], log_weight: NDArray[np.float64] | float = 0.0
) -> NDArray[np.float64]:
    """Return (K,) an upper bound on the logarithm of the share of Z that underflow can lose in linear space.

    log eps <= log S + 2 log L + L max(0, g) + v - 708, with g the largest growth of a step and v (`log_weight`) the
    largest weight that a message can have between the two factors of a step. It holds because trajectories may stop
    anywhere: then Z is at least every entry of every forward message, so that an entry lost to underflow, e^-708 of its
    message's scale, can have contributed at most that times the largest weight of going on, L e^(L g).

    Examples
    --------
    >>> log_loss_bound(54, 50, np.array([math.log(4)])) < math.log(LOSS)
    array([ True])
    """
    paths = math.log(n_states) + 2 * math.log(max_length)
    return paths + max_length * np.maximum(0.0, log_growth) + log_weight - _RANGE


def kernels_of(log: bool) -> ModuleType:
    """Return the sweeps of an arithmetic: modules with the same functions and arguments."""
    return logspace if log else linear


def check_arithmetic(arithmetic: str) -> str:
    """Return the name of an arithmetic, or say which there are."""
    if arithmetic not in ARITHMETICS:
        raise InvalidParameter(
            f"arithmetic must be one of {', '.join(ARITHMETICS)}; it is {arithmetic!r}.",
            parameter="arithmetic",
            value=arithmetic,
        )
    return arithmetic


# Dense features of at most this size are kept.
_KEPT_BYTES = 16e6


class OrderedRewards(NamedTuple):
    """Rewards of K intents in graph order: node (S, K), and edge (E', K) sorted by source, or None."""

    node: Any
    edge: Any


class Backend(Protocol):
    """What the engine asks of a place to compute; arrays are the place's own unless they are said to be the host's.

    Attributes
    ----------
    xp : numpy, or a module with its functions
    graph : the compiled graph
    max_columns : intents swept together
    max_bytes : memory for messages, where nothing else is said
    step_bytes : memory for the probabilities of a few steps at a time
    """

    xp: Any
    graph: PathGraph
    max_columns: int
    step_bytes: float

    @property
    def max_bytes(self) -> float:
        """Memory for messages, where nothing else is said."""
        ...

    def put(self, array: Any) -> Any:
        """Return a host array here."""
        ...

    def take(self, array: Any) -> NDArray[Any]:
        """Return an array of this place on the host."""
        ...

    def edge_weights(self, log: bool) -> tuple[Any, Any]:
        """Return the weights (or logarithms) of the edges sorted by source and by target; None where all are 1."""
        ...

    def sweeps(self, log: bool) -> Any:
        """Return the kernels of an arithmetic: `fill` (linear), `backward` and `forward`."""
        ...

    def carry(self, *arguments: Any) -> None:
        """Carry mean features along the edges; see `kernels.means.carry`. The gains are the host's."""
        ...

    def rewards(self, mdp: MDP, thetas: FloatArray) -> OrderedRewards:
        """Return the rewards of the host's thetas (K, d), which must be finite."""
        ...

    def log_growth(self, rewards: Rewards, discount: FloatArray, n_columns: int) -> FloatArray:
        """Return (K,), on the host: the bound of `kernels.growth`."""
        ...

    def column_max(self, values: Any) -> FloatArray:
        """Return the maxima (K,) of the columns of (n, K), on the host; 0 for none."""
        ...

    def column_sums(self, values: Any) -> Any:
        """Return the sums (K,) of the columns of (n, K)."""
        ...

    def dense_features(self, mdp: MDP) -> tuple[Any, Any]:
        """Return dense features of states (S, d) and of edges sorted by target (E, d), or None."""
        ...

    def expected_features(self, mdp: MDP, node: Any, edge: Any) -> FloatArray:
        """Return (K, d), on the host, from counts of states (S, K) and of edges sorted by target (E', K), or None."""
        ...


def check_rewards(node: FloatArray, edge: FloatArray | None) -> None:
    """Raise if a reward (in the MDP's order) is not finite."""
    for values, what in ((node, "state"), (edge, "edge")):
        if values is not None and not np.all(np.isfinite(values)):
            row = int(np.argmin(np.isfinite(values).all(axis=1)))
            raise NumericalError(
                f"The reward of {what} {row} at step 0 is not finite. Use smaller parameters or features."
            )


class HostBackend:
    """The CPU: numpy's arrays and the numba kernels."""

    xp: Any = np
    # Enough to amortise the reading of the graph, few enough that the unrolled loops stay in registers.
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
        """Return the array: it is here."""
        return array

    def take(self, array: Any) -> NDArray[Any]:
        """Return the array: it is here."""
        return np.asarray(array)

    def edge_weights(self, log: bool) -> tuple[FloatArray | None, FloatArray | None]:
        """Return those of the compiled MDP."""
        return self.compiled.edge_weights(log)

    def sweeps(self, log: bool) -> Any:
        """Return the module of an arithmetic."""
        return kernels_of(log)

    def carry(self, *arguments: Any) -> None:
        """Carry mean features along the edges."""
        hessian.carry(*arguments)

    def rewards(self, mdp: MDP, thetas: FloatArray) -> OrderedRewards:
        """Return the MDP's rewards in graph order."""
        with np.errstate(over="ignore", invalid="ignore"):
            node: FloatArray
            edge: FloatArray | None
            if self._phi is not None:  # the same product as that of `MDP.rewards`, without its checks
                node, edge = np.ascontiguousarray(self._phi @ thetas.T), None
            else:
                node, edge = mdp.rewards(thetas)
        check_rewards(node, edge)
        if edge is not None:
            edge = np.ascontiguousarray(edge[self.graph.edge_order])
        return OrderedRewards(node if self._in_order else np.ascontiguousarray(node[self.graph.order]), edge)

    def log_growth(self, rewards: Rewards, discount: FloatArray, n_columns: int) -> FloatArray:
        """Return the bound of a step's growth."""
        del discount
        return np.asarray(log_growth(self.graph.out, rewards, (0,) * n_columns))

    def column_max(self, values: FloatArray) -> FloatArray:
        """Return the maxima of the columns."""
        return np.asarray(values.max(axis=0, initial=0.0))

    def column_sums(self, values: FloatArray) -> FloatArray:
        """Return the sums of the columns, in an order that K does not change: the same bits in any batch."""
        return np.asarray(np.ascontiguousarray(values.T).sum(axis=1))

    def dense_features(self, mdp: MDP) -> tuple[FloatArray, FloatArray | None]:
        """Return dense features in graph order, kept for the next Hessian where they are small."""
        if self._dense is not None:
            return self._dense
        dense = dense_features(mdp, self.compiled)
        if sum(part.nbytes for part in dense if part is not None) <= _KEPT_BYTES:
            self._dense = dense
        return dense

    def expected_features(self, mdp: MDP, node: FloatArray, edge: FloatArray | None) -> FloatArray:
        """Return the features of counts."""
        counts = node
        if not self._in_order:
            counts = np.empty_like(node)
            counts[self.graph.order] = node
        return expected_features(mdp, counts, None if edge is None else self.compiled.spread(edge))
