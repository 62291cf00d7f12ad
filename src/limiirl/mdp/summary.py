"""What an MDP prints about itself, and the comparison of two."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from limiirl.mdp.features import FeatureMatrix, same_features

if TYPE_CHECKING:
    from limiirl.mdp.sparse import MDP


def describe(mdp: MDP) -> str:
    """Return a summary of a few lines.

    Examples
    --------
    >>> from limiirl.mdp import MDP
    >>> print(describe(MDP.from_edges([0, 0, 2], [0, 1, 1], action=[0, 0, 0], prob=[0.2, 0.8, 1], p0=[1, 0, 0])))
    MDP: 3 states (1 terminal), 1 action, 3 edges, discount 1
      moves: stochastic, 1 action a state, up to 2 outcomes an action
      starts: 1 state; 1 state out of reach
      features: 3 on states (sparse)
    """
    head = (
        f"MDP: {_count(mdp.n_states, 'state')} ({int(mdp.terminal.sum()):,} terminal), "
        f"{_count(mdp.n_actions, 'action')}, {_count(mdp.n_edges, 'edge')}, discount {mdp.gamma:.6g}"
    )
    starts = f"  starts: {_count(int((mdp.p0 > 0).sum()), 'state')}"
    lost = int((~reachable(mdp)).sum())
    if lost:
        starts += f"; {_count(lost, 'state')} out of reach"
    kinds = (("states", mdp.state_features), ("actions", mdp.action_features), ("edges", mdp.edge_features))
    parts = [_features(kind, matrix) for kind, matrix in kinds if matrix is not None]
    return "\n".join([head, _moves(mdp), starts, "  features: " + ", ".join(parts)])


def _moves(mdp: MDP) -> str:
    if mdp.n_edges == 0:
        return "  moves: none"
    choices = np.bincount(mdp.pair_state, minlength=mdp.n_states)[~mdp.terminal]
    low, high = int(choices.min()), int(choices.max())
    actions = f"{_count(high, 'action')} a state" if low == high else f"{low} to {high} actions a state"
    if mdp.deterministic:
        return f"  moves: deterministic, {actions}"
    outcomes = int(np.bincount(mdp.pair_of_edge).max())
    return f"  moves: stochastic, {actions}, up to {_count(outcomes, 'outcome')} an action"


def _features(kind: str, matrix: FeatureMatrix) -> str:
    return f"{matrix.shape[1]:,} on {kind} ({'dense' if isinstance(matrix, np.ndarray) else 'sparse'})"


def _count(number: int, unit: str) -> str:
    return f"{number:,} {unit}" if number == 1 else f"{number:,} {unit}s"


def reachable(mdp: MDP) -> NDArray[np.bool_]:
    """Return the mask (S,) of the states that some trajectory from the start distribution visits."""
    starts = np.flatnonzero(mdp.p0 > 0)
    # One extra state with an edge to every start makes a single search do for all of them.
    origin = mdp.n_states
    rows = np.concatenate([mdp.src, np.full(starts.size, origin)])
    columns = np.concatenate([mdp.dst, starts])
    graph = sparse.csr_array((np.ones(rows.size), (rows, columns)), shape=(origin + 1, origin + 1))
    visited = csgraph.breadth_first_order(graph, origin, return_predecessors=False)
    mask = np.zeros(origin + 1, dtype=np.bool_)
    mask[visited] = True
    return mask[:-1]


def same_content(one: MDP, other: MDP) -> bool:
    """Tell whether two MDPs have the same edges, probabilities, start, discount, features and names."""
    arrays = ("p0", "terminal", "src", "act", "dst", "prob")
    return (
        one.gamma == other.gamma
        and one.feature_names == other.feature_names
        and one.state_names == other.state_names
        and all(np.array_equal(getattr(one, name), getattr(other, name)) for name in arrays)
        and all(
            same_features(getattr(one, name), getattr(other, name))
            for name in ("state_features", "action_features", "edge_features")
        )
    )
