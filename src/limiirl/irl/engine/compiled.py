"""An MDP as the kernels want it: edges merged where no reward tells them apart, states reordered, both directions."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from limiirl.kernels.graph import PathGraph, build_graph
from limiirl.mdp import MDP

Float = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class CompiledMDP:
    """The graph that an engine sweeps over, and the way from its edges back to the MDP's.

    An *engine edge* joins two states. Where actions and edges bring no reward of their own, all MDP edges from s to
    s' are one engine edge, whose weight is the q-mass sum_a T(s, a, s'); it may exceed 1. `edge_of` (E,) maps MDP
    edges to the edges that `graph` was built from, and `mass` holds these edges' weights.
    """

    graph: PathGraph
    edge_of: NDArray[np.int64]
    mass: Float
    prob: Float

    @cached_property
    def _out(self) -> Float | None:
        return None if np.all(self.mass == 1.0) else self.mass[self.graph.edge_order]

    def edge_weights(self, log: bool) -> tuple[Float | None, Float | None]:
        """Return the weights (or logarithms) of the edges sorted by source and by target; None where all are 1."""
        return self._log_weights if log else self._weights

    @cached_property
    def _weights(self) -> tuple[Float | None, Float | None]:
        return (None, None) if self._out is None else (self._out, self._out[self.graph.in_edge])

    @cached_property
    def _log_weights(self) -> tuple[Float | None, Float | None]:
        out, into = self._weights
        return (None, None) if out is None or into is None else (np.log(out), np.log(into))

    def spread(self, into: Float) -> Float:
        """Turn numbers (E', K) on engine edges, sorted by target, into (E, K) on MDP edges, shared by probability."""
        given = np.empty_like(into)
        given[self.graph.edge_order[self.graph.in_edge]] = into
        share = self.prob / self.mass[self.edge_of]
        return given[self.edge_of] * share[:, None]

    @cached_property
    def members(self) -> tuple[NDArray[np.int64], Float]:
        """Return the MDP edges sorted by engine edge (as built), and the running total of their probabilities."""
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
