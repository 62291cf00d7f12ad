"""An MDP as the kernels want it: edges merged where no reward tells them apart, states reordered, both directions.

Counts of states and edges times features, and features as dense matrices in the engine's order.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limiirl._typing import FloatArray
from limiirl.kernels.graph import PathGraph, build_graph
from limiirl.mdp import MDP, FeatureMatrix


@dataclass(frozen=True, eq=False)
class CompiledMDP:
    """The graph that an engine sweeps over, and the way from its edges back to the MDP's.

    A *graph edge* joins two states. Where actions and edges bring no reward of their own, all MDP edges from s to
    s' are one graph edge, whose weight is the q-mass sum_a T(s, a, s'); it may exceed 1. `edge_of` (E,) maps MDP
    edges to the edges that `graph` was built from, and `mass` holds these edges' weights.
    """

    graph: PathGraph
    edge_of: NDArray[np.int64]
    mass: FloatArray
    prob: FloatArray

    @cached_property
    def _out(self) -> FloatArray | None:
        return None if np.all(self.mass == 1.0) else self.mass[self.graph.edge_order]

    def edge_weights(self, log: bool) -> tuple[FloatArray | None, FloatArray | None]:
        """Return the weights (or logarithms) of the edges sorted by source and by target; None where all are 1."""
        return self._log_weights if log else self._weights

    @cached_property
    def _weights(self) -> tuple[FloatArray | None, FloatArray | None]:
        return (None, None) if self._out is None else (self._out, self._out[self.graph.in_edge])

    @cached_property
    def _log_weights(self) -> tuple[FloatArray | None, FloatArray | None]:
        out, into = self._weights
        return (None, None) if out is None or into is None else (np.log(out), np.log(into))

    def spread(self, into: FloatArray) -> FloatArray:
        """Turn numbers (E', K) on graph edges, sorted by target, into (E, K) on MDP edges, shared by probability."""
        given = np.empty_like(into)
        given[self.graph.edge_order[self.graph.in_edge]] = into
        share = self.prob / self.mass[self.edge_of]
        return given[self.edge_of] * share[:, None]

    @cached_property
    def members(self) -> tuple[NDArray[np.int64], FloatArray]:
        """Return the MDP edges sorted by graph edge (as built), and the running total of their probabilities."""
        order = np.argsort(self.edge_of, kind="stable")
        return order, np.concatenate([[0.0], np.cumsum(self.prob[order])])


_known: weakref.WeakKeyDictionary[MDP, CompiledMDP] = weakref.WeakKeyDictionary()


def compile_mdp(mdp: MDP) -> CompiledMDP:
    """Return the compiled form of an MDP, made once for as long as the MDP lives.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 1], [1, 1, 2], n_states=3)
    >>> compile_mdp(mdp).mass
    array([2., 1.])
    """
    known = _known.get(mdp)
    if known is None:
        known = _known[mdp] = _compile(mdp)
    return known


def _compile(mdp: MDP) -> CompiledMDP:
    if mdp.n_action_features or mdp.n_edge_features:
        src, dst, mass = mdp.src.astype(np.int64), mdp.dst.astype(np.int64), mdp.prob
        edge_of = np.arange(mdp.n_edges)
    else:
        pairs, edge_of = np.unique(mdp.src.astype(np.int64) * mdp.n_states + mdp.dst, return_inverse=True)
        src, dst = np.divmod(pairs, mdp.n_states)
        mass = np.bincount(edge_of, weights=mdp.prob, minlength=pairs.size).astype(np.float64)
    return CompiledMDP(build_graph(mdp.n_states, src, dst), edge_of, mass, mdp.prob)


def expected_features(mdp: MDP, node: FloatArray, edge: FloatArray | None) -> FloatArray:
    """Return (K, d): the features of discounted counts of states (S, K) and edges (E, K).

    Paper: the gradient of ln Z, section 3.
    """
    parts: list[Any] = []
    if mdp.state_features is not None:
        parts.append(mdp.state_features.T @ node)
    if edge is not None:
        if mdp.action_features is not None:
            pairs = np.zeros((mdp.n_pairs, edge.shape[1]))
            np.add.at(pairs, mdp.pair_of_edge, edge)
            parts.append(mdp.action_features.T @ pairs)
        if mdp.edge_features is not None:
            parts.append(mdp.edge_features.T @ edge)
    return np.ascontiguousarray(np.vstack(parts).T)


def edge_parts(mdp: MDP) -> list[FeatureMatrix]:
    """Return the features (E, c) that edges bear, of their actions and of their own, in the order of theta."""
    parts = [] if mdp.action_features is None else [mdp.action_features[mdp.pair_of_edge]]
    return parts if mdp.edge_features is None else [*parts, mdp.edge_features]


def dense_features(mdp: MDP, compiled: CompiledMDP) -> tuple[FloatArray, FloatArray | None]:
    """Return dense features of states (S, d) and of edges sorted by target (E, d), each in its own columns of theta.

    The second is None where edges bear none. Only then are edges merged: here, MDP edges and graph edges are the same.
    """
    graph = compiled.graph
    phi = np.zeros((mdp.n_states, mdp.n_features))
    ds, da = mdp.n_state_features, mdp.n_action_features
    if mdp.state_features is not None:
        phi[:, :ds] = _dense(mdp.state_features)[graph.order]
    if not (da or mdp.n_edge_features):
        return phi, None
    edge_phi = np.zeros((mdp.n_edges, mdp.n_features))
    if mdp.action_features is not None:
        edge_phi[:, ds : ds + da] = _dense(mdp.action_features)[mdp.pair_of_edge]
    if mdp.edge_features is not None:
        edge_phi[:, ds + da :] = _dense(mdp.edge_features)
    return phi, edge_phi[graph.edge_order][graph.in_edge]


def _dense(features: FeatureMatrix) -> FloatArray:
    return features if isinstance(features, np.ndarray) else features.toarray()
