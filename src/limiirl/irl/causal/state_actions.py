"""`StateActions`: the state-action pairs of an MDP and their expected rewards."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from limiirl._typing import FloatArray
from limiirl.kernels.elimination.symbolic import SymbolicFactorisation, factorise
from limiirl.kernels.soft_bellman import Graph
from limiirl.mdp import MDP, to_dense

# Bandwidth in units of sqrt(S) up to which linear systems are solved by elimination, because the factors are sparse.
# The bandwidth is 1 to 3 for streets and grids, and at least 12 for random graphs. BiCGSTAB takes ten times as long as
# elimination for Porto (85,000 segments), but a tenth of the time for a random graph of 3,000 states with 4 edges each.
NARROW = 6.0
# Largest number of entries of dense features that are stored (8 MiB).
_MOST_STORED = 2**20


class StateActions:
    """State-action pairs of an MDP and their outcomes.

    Attributes
    ----------
    graph : Graph
        CSR arrays for the kernels.
    transitions : (P, S) sparse
        P(s' | s, a).
    alive, first_pair : (m,)
        States with actions, and the index of the first pair of each.
    pair_features : list of (P, c)
        Action features and expected edge features, if the MDP has them.
    """

    def __init__(self, mdp: MDP) -> None:
        mdp.check_no_goal_features()
        self.mdp = mdp
        counts = np.bincount(mdp.pair_of_edge, minlength=mdp.n_pairs)
        edge_ptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        pairs = np.bincount(mdp.pair_state, minlength=mdp.n_states)
        pair_ptr = np.concatenate([[0], np.cumsum(pairs)]).astype(np.int64)
        self.graph = Graph(pair_ptr, edge_ptr, mdp.dst, mdp.prob, float(mdp.gamma))
        self.alive = np.flatnonzero(pairs)
        self.first_pair = pair_ptr[self.alive]
        self.transitions: Any = sparse.csr_array((mdp.prob, mdp.dst, edge_ptr), shape=(mdp.n_pairs, mdp.n_states))
        self.pair_features: list[Any] = [] if mdp.action_features is None else [mdp.action_features]
        if mdp.edge_features is not None:
            mean: Any = sparse.csr_array((mdp.prob, np.arange(mdp.n_edges), edge_ptr))
            self.pair_features.append(mean @ mdp.edge_features)
        self._rows: tuple[FloatArray, FloatArray] | None = None

    def rewards(self, thetas: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the rewards of states (S, K) and of state-action pairs (P, K) under thetas (K, d)."""
        mdp, first = self.mdp, self.mdp.n_state_features
        r_state = np.zeros((mdp.n_states, thetas.shape[0]))
        if mdp.state_features is not None:
            r_state += np.asarray(mdp.state_features @ thetas[:, :first].T)
        r_pair = np.zeros((mdp.n_pairs, thetas.shape[0]))
        for features in self.pair_features:
            last = first + features.shape[1]
            r_pair += features @ thetas[:, first:last].T
            first = last
        return r_state, r_pair

    def features(self, node: FloatArray, pair: FloatArray) -> FloatArray:
        """Return sums of features (K, d) over counts of states (S, K) and pairs (P, K); the transpose of `rewards`."""
        parts: list[Any] = [] if self.mdp.state_features is None else [self.mdp.state_features.T @ node]
        parts += [features.T @ pair for features in self.pair_features]
        return np.ascontiguousarray(np.vstack(parts).T)

    def average(self, weights: FloatArray, rows: Any) -> Any:
        """Return sums (S, m) of rows (P, m), dense or sparse, over the pairs of each state, with weights (P,)."""
        shape = (self.mdp.n_states, weights.size)
        sums: Any = sparse.csr_array((weights, np.arange(weights.size), self.graph.pair_ptr), shape=shape)
        return sums @ rows

    @property
    def one_step(self) -> bool:
        """True if the discount is so small that later rewards are below the rounding errors of the next one."""
        return bool(self.mdp.gamma < np.finfo(np.float64).eps ** 2)

    @cached_property
    def symbolic(self) -> SymbolicFactorisation:
        """Symbolic factorisation of the transition graph."""
        return factorise(self.mdp.n_states, self.mdp.src.astype(np.int64), self.mdp.dst.astype(np.int64))

    @cached_property
    def bandwidth(self) -> int:
        """Bandwidth of the adjacency matrix in reverse Cuthill-McKee order."""
        mdp = self.mdp
        if not mdp.n_edges:
            return 0
        ends = np.concatenate([mdp.src, mdp.dst]), np.concatenate([mdp.dst, mdp.src])
        links = sparse.csr_array((np.ones(2 * mdp.n_edges), ends), shape=(mdp.n_states, mdp.n_states))
        rank = np.empty(mdp.n_states, dtype=np.int64)
        rank[csgraph.reverse_cuthill_mckee(links, symmetric_mode=True)] = np.arange(mdp.n_states)
        return int(np.max(np.abs(rank[mdp.src] - rank[mdp.dst])))

    @property
    def narrow(self) -> bool:
        """True if the bandwidth is small, so that linear systems have sparse factors."""
        return bool(self.bandwidth <= NARROW * np.sqrt(self.mdp.n_states))

    def feature_rows(self) -> tuple[FloatArray, FloatArray]:
        """Return dense features of states (S, d) and pairs (P, d), with zeros in the columns of other features.

        Small arrays are stored, because every Hessian needs them; they must not be modified.
        """
        if self._rows is not None:
            return self._rows
        rows = self._make_rows()
        if self.stores_rows:
            self._rows = rows
        return rows

    @property
    def stores_rows(self) -> bool:
        """True if dense features of states and pairs are small enough to be stored."""
        return bool((self.mdp.n_states + self.mdp.n_pairs) * self.mdp.n_features <= _MOST_STORED)

    def _make_rows(self) -> tuple[FloatArray, FloatArray]:
        mdp = self.mdp
        states, pairs = np.zeros((mdp.n_states, mdp.n_features)), np.zeros((mdp.n_pairs, mdp.n_features))
        first = mdp.n_state_features
        if mdp.state_features is not None:
            states[:, :first] = to_dense(mdp.state_features)
        for features in self.pair_features:
            pairs[:, first : first + features.shape[1]] = to_dense(features)
            first += features.shape[1]
        return states, pairs

    def policy_table(self, pi: FloatArray) -> FloatArray:
        """Convert the probabilities of pairs (P,) to an array (S, A)."""
        table = np.zeros((self.mdp.n_states, self.mdp.n_actions))
        table[self.mdp.pair_state, self.mdp.pair_action] = pi
        return table
