"""Edges, feature counts and log-probabilities of demonstrations in an MDP."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from limiirl.demos.names import is_numbered_as
from limiirl.demos.validate import locate, name_step
from limiirl.errors import InvalidDemos
from limiirl.mdp import as_features, goal_feature_counts, name_of

if TYPE_CHECKING:
    from limiirl.demos.demonstrations import Demonstrations
    from limiirl.mdp import MDP, FeatureMatrix


# Maximum number of successors or actions listed in an error message.
_LISTED = 8


@dataclass(frozen=True, eq=False)
class Steps:
    """Transitions of N demonstrations as edges of an MDP, ordered by demonstration and time.

    A demonstration of T states has T - 1 transitions; transition t goes from state t to state t + 1.

    Attributes
    ----------
    edge : (n_transitions,) int64
        Edge of each transition; -1 if the action was not recorded and several edges connect the two states.
    demo_of_step, t_of_step : (n_transitions,) int64
        Demonstration of each transition, and its index t within the demonstration.
    step_ptr : (N + 1,) int64
        The transitions of demonstration i are step_ptr[i]:step_ptr[i + 1].
    ambiguous : (m,) int64
        Transitions with edge -1, ascending.
    cand_ptr, cand_edge : (m + 1,) and (c,) int64
        Transition ambiguous[j] is one of the edges cand_edge[cand_ptr[j]:cand_ptr[j + 1]].

    Examples
    --------
    >>> import limiirl.mdp, limiirl.demos
    >>> mdp = limiirl.mdp.MDP.from_edges([0, 0, 1], [1, 1, 2], n_states=3, action=[0, 1, 0])
    >>> steps = limiirl.demos.Demonstrations.from_lists([[0, 1, 2], [1, 2]]).steps(mdp)
    >>> steps.edge.tolist(), steps.ambiguous.tolist(), steps.cand_edge.tolist()
    ([-1, 2, 2], [0], [0, 1])
    >>> steps.demo_of_step.tolist(), steps.t_of_step.tolist()
    ([0, 0, 1], [0, 1, 0])
    """

    edge: NDArray[np.int64]
    demo_of_step: NDArray[np.int64]
    t_of_step: NDArray[np.int64]
    step_ptr: NDArray[np.int64]
    ambiguous: NDArray[np.int64]
    cand_ptr: NDArray[np.int64]
    cand_edge: NDArray[np.int64]

    @property
    def n_transitions(self) -> int:
        """Total number of transitions."""
        return self.edge.size


class StepsCache:
    """Cache of the steps of a `Demonstrations` object, keyed by the identity of the MDP."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[weakref.ref[MDP], Steps]] = {}

    def steps(self, demos: Demonstrations, mdp: MDP) -> Steps:
        """Return the cached steps, or compute and cache them."""
        key = id(mdp)
        if key not in self._entries:
            steps, owner = match_steps(demos, mdp), weakref.ref(self)

            def forget(_: weakref.ref[MDP]) -> None:
                cache = owner()
                if cache is not None:
                    cache._entries.pop(key, None)

            # The entry is removed when its MDP is deleted, before the id can be reused. `forget` has only a weak
            # reference to the cache, because a reference cycle would keep the steps of streamed shards in memory.
            self._entries[key] = (weakref.ref(mdp, forget), steps)
        return self._entries[key][1]


def match_steps(demos: Demonstrations, mdp: MDP) -> Steps:
    """Return the edge of every transition; raise `InvalidDemos` for the first impossible transition.

    Start states must have p0 > 0, and every (s, a, s') must be an edge. `Demonstrations.steps` caches the result.
    """
    from limiirl.kernels.sequences import find_edges  # importing numba takes 0.3 s

    if not is_numbered_as(demos, mdp):
        message = "demos must have the same state and action names as the MDP. Convert them with demos.renumber(mdp)."
        raise InvalidDemos(message, parameter="demos")
    _check_states(demos, mdp)
    actions = np.empty(0, dtype=np.int64) if demos.actions is None else demos.actions
    edge, count, first = find_edges(
        mdp.out_ptr, mdp.in_ptr, mdp.in_order, mdp.src, mdp.act, mdp.dst, demos.states, actions, demos.offsets
    )
    lengths = demos.lengths - 1
    step_ptr = demos.offsets - np.arange(len(demos) + 1)
    demo_of_step = np.repeat(np.arange(len(demos)), lengths)
    t_of_step = np.arange(edge.size) - np.repeat(step_ptr[:-1], lengths)
    if not np.all(count):
        k = int(np.argmin(count))
        index = int(demo_of_step[k]), int(t_of_step[k])
        position = k + index[0]
        message = f"{name_step(demos.ids, index)}: {_explain_impossible(demos, mdp, position)}"
        raise InvalidDemos(message, parameter="demos", value=int(demos.states[position + 1]), index=index)
    ambiguous = np.flatnonzero(count > 1)
    many = count[ambiguous]
    cand_ptr = np.concatenate([[0], np.cumsum(many)])
    # The candidates of a transition are contiguous in `in_order`, beginning at `first`.
    slots = np.arange(cand_ptr[-1]) + np.repeat(first[ambiguous] - cand_ptr[:-1], many)
    cand_edge = mdp.in_order[slots].astype(np.int64)
    arrays = (edge, demo_of_step, t_of_step, step_ptr, ambiguous, cand_ptr, cand_edge)
    for array in arrays:
        array.flags.writeable = False
    return Steps(*arrays)


def _check_states(demos: Demonstrations, mdp: MDP) -> None:
    """Check that all states exist and that start states have p0 > 0."""
    if demos.n_steps == 0:
        return
    if int(demos.states.max()) >= mdp.n_states:
        position = int(np.argmax(demos.states >= mdp.n_states))
        index, state = locate(demos.offsets, position), int(demos.states[position])
        message = f"{name_step(demos.ids, index)}: state {state} is not one of the MDP's states 0..{mdp.n_states - 1}."
        raise InvalidDemos(message, parameter="demos", value=state, index=index)
    impossible = mdp.p0[demos.start_states] <= 0
    if np.any(impossible):
        demo = int(np.argmax(impossible))
        state = int(demos.start_states[demo])
        start = f"start state {name_of(mdp.state_names, state)}"
        message = f"{name_step(demos.ids, (demo, 0))}: {start} has p0 = 0. Change it with mdp.replace(p0=...)."
        raise InvalidDemos(message, parameter="demos", value=state, index=(demo, 0))


def _explain_impossible(demos: Demonstrations, mdp: MDP, position: int) -> str:
    """Return a message: why the transition from `position` is not an edge of the MDP, and the remedy."""
    s, target = int(demos.states[position]), int(demos.states[position + 1])
    start, end = name_of(mdp.state_names, s), name_of(mdp.state_names, target)
    fix = "Correct the recording, or add the transition to the MDP."
    if mdp.terminal[s]:
        return (
            f"state {start} is terminal, but the demonstration continues to state {end}. "
            "Truncate the demonstration there, or make the state nonterminal."
        )
    out = slice(int(mdp.out_ptr[s]), int(mdp.out_ptr[s + 1]))
    act, dst = mdp.act[out], mdp.dst[out]
    action = -1 if demos.actions is None else int(demos.actions[position])
    if action < 0:
        successors = _list_names(dst, mdp.state_names)
        return f"no action leads from state {start} to state {end} (successors: {successors}). {fix}"
    taken = name_of(mdp.action_names, action)
    if action not in act:
        return f"state {start} has no action {taken} (actions: {_list_names(act, mdp.action_names)}). {fix}"
    successors = _list_names(dst[act == action], mdp.state_names)
    return f"action {taken} in state {start} does not lead to state {end} (successors: {successors}). {fix}"


def _list_names(values: NDArray[np.int32], names: tuple[str, ...] | None) -> str:
    distinct = np.unique(values).tolist()
    return ", ".join(name_of(names, x) for x in distinct[:_LISTED]) + (", ..." if len(distinct) > _LISTED else "")


def feature_counts(
    demos: Demonstrations,
    mdp: MDP,
    edge: NDArray[np.int64] | None = None,
    goals: NDArray[np.int64] | None = None,
) -> NDArray[np.float64]:
    """Return the discounted feature counts (N, d) of every demonstration; see `Demonstrations.features`.

    `edge` (n_transitions,) overrides the edges of the transitions, to resolve ambiguous transitions. `goals` (N,), by
    default the last states, are the goals for features that depend on them.
    """
    steps = demos.steps(mdp)
    counts = np.empty((len(demos), mdp.n_features))
    longest = int(demos.lengths.max(initial=0))
    discounts = mdp.gamma ** np.arange(longest, dtype=np.float64)
    ends = np.cumsum([mdp.n_state_features, mdp.n_action_features, mdp.n_edge_features])
    if mdp.state_features is not None:
        t = np.arange(demos.n_steps) - np.repeat(demos.offsets[:-1], demos.lengths)
        counts[:, : ends[0]] = _sum_rows(discounts[t], demos.states, demos.offsets, mdp.state_features)
    if mdp.action_features is None and mdp.edge_features is None and not mdp.goal_features:
        return counts
    if edge is None:
        edge = _resolve_edges(demos, steps, mdp)
    weights = discounts[steps.t_of_step]
    if mdp.goal_features:
        ends_of = demos.start_states, demos.last_states if goals is None else goals
        counts[:, ends[2] :] = goal_feature_counts(
            mdp.goal_features, mdp.dst, edge, steps.demo_of_step, weights, *ends_of
        )
    if mdp.action_features is not None:
        pairs = mdp.pair_of_edge[edge]
        counts[:, ends[0] : ends[1]] = _sum_rows(weights, pairs, steps.step_ptr, mdp.action_features)
    if mdp.edge_features is not None:
        counts[:, ends[1] : ends[2]] = _sum_rows(weights, edge, steps.step_ptr, mdp.edge_features)
    return counts


def log_path_mass(demos: Demonstrations, mdp: MDP) -> NDArray[np.float64]:
    """Return the log-probability (N,) of the start state and the transitions; see `Demonstrations.log_q`."""
    steps = demos.steps(mdp)
    # Ambiguous transitions have edge -1, which selects an arbitrary probability that is overwritten below.
    prob = mdp.prob[steps.edge] if mdp.n_edges else np.empty(0)
    if steps.ambiguous.size:
        prob[steps.ambiguous] = np.add.reduceat(mdp.prob[steps.cand_edge], steps.cand_ptr[:-1])
    log_dynamics = np.bincount(steps.demo_of_step, weights=np.log(prob), minlength=len(demos))
    return mdp.log_p0[demos.start_states] + log_dynamics


def _sum_rows(
    weights: NDArray[np.float64], rows: NDArray[np.integer], ptr: NDArray[np.int64], features: FeatureMatrix
) -> NDArray[np.float64]:
    """Return the sums of weights[j] * features[rows[j]] over ptr[i] <= j < ptr[i + 1]."""
    selection = csr_array((weights, rows, ptr), shape=(ptr.size - 1, features.shape[0]))
    product = selection @ features
    return product if isinstance(product, np.ndarray) else product.toarray()


def _resolve_edges(demos: Demonstrations, steps: Steps, mdp: MDP) -> NDArray[np.int64]:
    """Return one edge per transition; raise `InvalidDemos` if the candidates of a transition differ in features."""
    if steps.ambiguous.size == 0:
        return steps.edge
    # The first candidate identifies the set of parallel edges between two states.
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
    for feature in mdp.goal_features:
        if feature.of == "edge":
            differs |= _rows_differ(as_features(feature.values.T, feature.name), members, firsts)
    if np.any(differs):
        k = int(steps.ambiguous[np.argmax(np.isin(representative, firsts[differs]))])
        demo, t = int(steps.demo_of_step[k]), int(steps.t_of_step[k])
        s, target = demos.states[demos.offsets[demo] + t : demos.offsets[demo] + t + 2].tolist()
        message = (
            f"{name_step(demos.ids, (demo, t))}: several actions with different features lead from state "
            f"{name_of(mdp.state_names, s)} to state {name_of(mdp.state_names, target)}. Record the actions, or use "
            "MaxEnt.log_prob and MaxEnt.fit, which sum over the actions."
        )
        raise InvalidDemos(message, parameter="demos", index=(demo, t))
    edge = steps.edge.copy()
    edge[steps.ambiguous] = representative
    return edge


def _rows_differ(features: FeatureMatrix, one: NDArray[np.integer], other: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Return a mask that is True at j if features[one[j]] and features[other[j]] differ."""
    if isinstance(features, np.ndarray):
        return np.asarray(np.any(features[one] != features[other], axis=1))
    return np.asarray(abs(features[one] - features[other]).sum(axis=1) > 0, dtype=np.bool_)
