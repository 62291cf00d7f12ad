"""Edges, feature counts and log-probabilities of demonstrations in an MDP."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from limiirl.demos.validate import locate, name_demo, name_step
from limiirl.errors import InvalidDemos

if TYPE_CHECKING:
    from limiirl.demos.demonstrations import Demonstrations
    from limiirl.mdp import MDP, FeatureMatrix


# How many alternatives an error message lists before it breaks off.
_LISTED = 8


@dataclass(frozen=True, eq=False)
class Steps:
    """The transitions of N demonstrations as edges of one MDP, in the order of the demonstrations and then of time.

    A demonstration of T states has T - 1 transitions; its transition t = 0..T - 2 goes from state t to state t + 1.

    Attributes
    ----------
    edge : (n_transitions,) int64
        The edge of each transition; -1 where the action was not recorded and more than one edge joins the two states.
    demo_of_step, t_of_step : (n_transitions,) int64
        The demonstration of each transition, and its number t within it.
    step_ptr : (N + 1,) int64
        The transitions of demonstration i are step_ptr[i]:step_ptr[i + 1].
    ambiguous : (m,) int64
        The transitions with edge -1, ascending.
    cand_ptr, cand_edge : (m + 1,) and (c,) int64
        Transition ambiguous[j] used one of the edges cand_edge[cand_ptr[j]:cand_ptr[j + 1]], ascending, at least two.

    Examples
    --------
    Two actions join state 0 to state 1.

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
        """Number of transitions of all demonstrations together."""
        return self.edge.size


class StepsMemory:
    """The steps of one set of demonstrations in each MDP that it was used with, for as long as that MDP lives.

    MDPs are told apart by identity: comparing contents could cost more than matching the steps again.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[MDP], Steps]] = {}

    def steps(self, demos: Demonstrations, mdp: MDP) -> Steps:
        """Return the remembered steps, or match them now."""
        key = id(mdp)
        if key not in self._known:
            steps, owner = match_steps(demos, mdp), weakref.ref(self)

            def forget(_: weakref.ref[MDP]) -> None:
                memory = owner()
                if memory is not None:
                    memory._known.pop(key, None)

            # The entry goes with its MDP, before another object can be given the same id. It does not hold on to this
            # memory: such a circle would keep the steps of one part of a stream after the other.
            self._known[key] = (weakref.ref(mdp, forget), steps)
        return self._known[key][1]


def match_steps(demos: Demonstrations, mdp: MDP) -> Steps:
    """Find the edge of every transition; the first impossible one is an error that names it.

    Checked are: states in range, start states with p0 > 0, no move out of a terminal state, every (s, a, s') an edge.
    Use `Demonstrations.steps`, which remembers the result.
    """
    from limiirl.kernels.sequences import find_edges  # numba takes a third of a second to import

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
        raise InvalidDemos(
            f"{name_step(demos.ids, index)}: {_why_impossible(demos, mdp, position)}",
            parameter="demos",
            value=int(demos.states[position + 1]),
            index=index,
        )

    ambiguous = np.flatnonzero(count > 1)
    many = count[ambiguous]
    cand_ptr = np.concatenate([[0], np.cumsum(many)])
    # Candidates of one transition are neighbours in in_order, from first on.
    slots = np.arange(cand_ptr[-1]) + np.repeat(first[ambiguous] - cand_ptr[:-1], many)
    cand_edge = mdp.in_order[slots].astype(np.int64)
    arrays = (edge, demo_of_step, t_of_step, step_ptr, ambiguous, cand_ptr, cand_edge)
    for array in arrays:
        array.flags.writeable = False
    return Steps(*arrays)


def _check_states(demos: Demonstrations, mdp: MDP) -> None:
    """Check that all states exist and that the first ones can be started in."""
    if demos.n_steps == 0:
        return
    if int(demos.states.max()) >= mdp.n_states:
        position = int(np.argmax(demos.states >= mdp.n_states))
        index, state = locate(demos.offsets, position), int(demos.states[position])
        raise InvalidDemos(
            f"{name_step(demos.ids, index)}: state {state} does not exist in an MDP of {mdp.n_states} states "
            f"(0 to {mdp.n_states - 1}). Fix the recording, or use the MDP that it was made in.",
            parameter="demos",
            value=state,
            index=index,
        )
    impossible = mdp.p0[demos.start_states] <= 0
    if np.any(impossible):
        demo = int(np.argmax(impossible))
        raise InvalidDemos(
            f"{name_demo(demos.ids, demo)}, step 0: it starts in state {demos.start_states[demo]}, where p0 is 0. "
            "Fix the recording, or give that state a share of the start distribution with mdp.replace(p0=...).",
            parameter="demos",
            value=int(demos.start_states[demo]),
            index=(demo, 0),
        )


def _why_impossible(demos: Demonstrations, mdp: MDP, position: int) -> str:
    """Explain why the step from `position` to the next one is no edge of the MDP, and what to do."""
    s, target = int(demos.states[position]), int(demos.states[position + 1])
    fix = "Fix the recording, or add the transition to the MDP."
    if mdp.terminal[s]:
        return (
            f"state {s} is terminal, but the demonstration goes on to state {target}. "
            "Cut the demonstration there, or make the state non-terminal in the MDP."
        )
    out = slice(int(mdp.out_ptr[s]), int(mdp.out_ptr[s + 1]))
    act, dst = mdp.act[out], mdp.dst[out]
    action = -1 if demos.actions is None else int(demos.actions[position])
    if action < 0:
        return f"no action in state {s} leads to state {target} (they lead to {_listing(dst)}). {fix}"
    if action not in act:
        return f"there is no action {action} in state {s} (the actions there are {_listing(act)}). {fix}"
    reachable = _listing(dst[act == action])
    return f"action {action} in state {s} cannot lead to state {target} (it leads to {reachable}). {fix}"


def _listing(values: NDArray[np.int32]) -> str:
    """Write out a few numbers, each once."""
    distinct = np.unique(values).tolist()
    return ", ".join(map(str, distinct[:_LISTED])) + (", ..." if len(distinct) > _LISTED else "")


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
            "MaxEnt.log_prob and MaxEnt.fit need none, they sum over the actions.",
            parameter="demos",
            index=(demo, t),
        )
    edge = steps.edge.copy()
    edge[steps.ambiguous] = representative
    return edge


def _rows_differ(features: FeatureMatrix, one: NDArray[np.integer], other: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Whether features[one[j]] and features[other[j]] differ anywhere, for every j."""
    if isinstance(features, np.ndarray):
        return np.asarray(np.any(features[one] != features[other], axis=1))
    return np.asarray(abs(features[one] - features[other]).sum(axis=1) > 0, dtype=np.bool_)
