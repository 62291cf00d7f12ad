"""Counts of states and edges times features, and features as dense matrices in the engine's order."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from limiirl.irl.engine.compiled import CompiledMDP
from limiirl.mdp import MDP
from limiirl.mdp.features import FeatureMatrix

Float = NDArray[np.float64]


def expected_features(mdp: MDP, node: Float, edge: Float | None) -> Float:
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


def dense_features(mdp: MDP, compiled: CompiledMDP) -> tuple[Float, Float | None]:
    """Return dense features of states (S, d) and of edges sorted by target (E, d), each in its own columns of theta.

    The second is None where edges bear none. Only then are edges merged: here, MDP edges and engine edges are the same.
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


def _dense(features: FeatureMatrix) -> Float:
    return features if isinstance(features, np.ndarray) else features.toarray()
