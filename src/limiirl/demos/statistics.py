"""What an MDP says about demonstrations: their feature counts, and their probability under its dynamics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from limiirl.demos.checks import name_demo
from limiirl.errors import InvalidDemos

if TYPE_CHECKING:
    from limiirl.demos.demonstrations import Demonstrations
    from limiirl.demos.steps import Steps
    from limiirl.mdp import MDP
    from limiirl.mdp.features import FeatureMatrix


def feature_counts(demos: Demonstrations, mdp: MDP, edge: NDArray[np.int64] | None = None) -> NDArray[np.float64]:
    """Discounted features of every demonstration, (N, d); see `Demonstrations.features`.

    `edge` (n_transitions,) names the edge of every transition, for callers who resolve the ambiguous ones themselves.
    """
    steps = demos.steps(mdp)
    counts = np.empty((len(demos), mdp.n_features))
    longest = int(demos.lengths.max(initial=0))
    discounts = mdp.gamma ** np.arange(longest, dtype=np.float64)
    ends = np.cumsum([mdp.n_state_features, mdp.n_action_features, mdp.n_edge_features])
    if mdp.state_features is not None:
        t = np.arange(demos.n_steps) - np.repeat(demos.offsets[:-1], demos.lengths)
        counts[:, : ends[0]] = _weighted_sums(discounts[t], demos.states, demos.offsets, mdp.state_features)
    if mdp.action_features is None and mdp.edge_features is None:
        return counts
    if edge is None:
        edge = _one_edge_each(demos, steps, mdp)
    weights = discounts[steps.t_of_step]
    if mdp.action_features is not None:
        pairs = mdp.pair_of_edge[edge]
        counts[:, ends[0] : ends[1]] = _weighted_sums(weights, pairs, steps.step_ptr, mdp.action_features)
    if mdp.edge_features is not None:
        counts[:, ends[1] :] = _weighted_sums(weights, edge, steps.step_ptr, mdp.edge_features)
    return counts


def log_path_mass(demos: Demonstrations, mdp: MDP) -> NDArray[np.float64]:
    """Log of start and transition probabilities of every demonstration, (N,); see `Demonstrations.log_q`."""
    steps = demos.steps(mdp)
    # Ambiguous transitions have edge -1: they pick some probability here, which is overwritten just below.
    prob = mdp.prob[steps.edge] if mdp.n_edges else np.empty(0)
    if steps.ambiguous.size:
        prob[steps.ambiguous] = np.add.reduceat(mdp.prob[steps.cand_edge], steps.cand_ptr[:-1])
    log_dynamics = np.bincount(steps.demo_of_step, weights=np.log(prob), minlength=len(demos))
    return np.log(mdp.p0[demos.start_states]) + log_dynamics


def _weighted_sums(
    weights: NDArray[np.float64], rows: NDArray[np.integer], ptr: NDArray[np.int64], features: FeatureMatrix
) -> NDArray[np.float64]:
    """Sum weights[j] * features[rows[j]] over ptr[i] <= j < ptr[i + 1], for every i."""
    selection = csr_array((weights, rows, ptr), shape=(ptr.size - 1, features.shape[0]))
    product = selection @ features
    return product if isinstance(product, np.ndarray) else product.toarray()


def _one_edge_each(demos: Demonstrations, steps: Steps, mdp: MDP) -> NDArray[np.int64]:
    """An edge with the features of each transition; an error where its possible edges have different ones."""
    if steps.ambiguous.size == 0:
        return steps.edge
    # The first candidate stands for its group: all edges joining the same two states. Few groups, many transitions.
    representative = steps.cand_edge[steps.cand_ptr[:-1]]
    group_first, group_step = np.unique(representative, return_index=True)
    sizes = np.diff(steps.cand_ptr)[group_step]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    slots = np.arange(starts[-1]) + np.repeat(steps.cand_ptr[:-1][group_step] - starts[:-1], sizes)
    members, firsts = steps.cand_edge[slots], np.repeat(group_first, sizes)
    differs = np.zeros(members.size, dtype=np.bool_)
    if mdp.action_features is not None:
        differs |= _rows_differ(mdp.action_features, mdp.pair_of_edge[members], mdp.pair_of_edge[firsts])
    if mdp.edge_features is not None:
        differs |= _rows_differ(mdp.edge_features, members, firsts)
    if np.any(differs):
        k = int(steps.ambiguous[np.argmax(np.isin(representative, firsts[differs]))])
        demo, t = int(steps.demo_of_step[k]), int(steps.t_of_step[k])
        s, target = demos.states[demos.offsets[demo] + t : demos.offsets[demo] + t + 2].tolist()
        raise InvalidDemos(
            f"{name_demo(demos.ids, demo)}, step {t}: several actions lead from state {s} to state {target} and their "
            "features differ, so the features of an unrecorded action are unknown. Record the actions; "
            "MaxEnt.log_prob and MaxEnt.fit need none, they sum over the actions."
        )
    edge = steps.edge.copy()
    edge[steps.ambiguous] = representative
    return edge


def _rows_differ(features: FeatureMatrix, one: NDArray[np.integer], other: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Whether features[one[j]] and features[other[j]] differ anywhere, for every j."""
    if isinstance(features, np.ndarray):
        return np.asarray(np.any(features[one] != features[other], axis=1))
    return np.asarray(abs(features[one] - features[other]).sum(axis=1) > 0, dtype=np.bool_)
