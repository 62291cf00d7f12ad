"""The objective of a causal fit: minus the weighted mean log-likelihood of decisions, for K weightings at once."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from limiirl._typing import FloatArray, IntArray
from limiirl.demos import Demonstrations, Groups, Steps
from limiirl.errors import DivergentPartition, NumericalError
from limiirl.irl.causal.stationary import PolicySolver
from limiirl.irl.optim import Box
from limiirl.kernels.soft_bellman import Moves
from limiirl.mdp import MDP


class _ObservedDecisions(NamedTuple):
    """Choices as they were made: demonstration, step, state, the place of the first candidate, and a key (n,)."""

    demo: IntArray
    t: IntArray
    state: IntArray
    key: IntArray


class DecisionCounts:
    """The distinct choices of demonstrations: to take an action, to get somewhere by any action, or to stop.

    Parameters
    ----------
    max_length : int, optional
        Tell choices apart by their step, out of so many.
    stop : bool
        Count it as a choice to end in a state from which one could have gone on.

    Attributes
    ----------
    counts : (G, m) sparse
        How often each unit made each choice.
    moves : Moves
        The actions (c,) that each choice may have been, by step.
    ptr : (m + 1,)
        Choice j may have been any of ptr[j]:ptr[j + 1]; several where the action was not recorded.
    log_outcome : (c,)
        The log-probability of the outcome where it says which action it was; else it is in log_q.
    log_q : (G,)
        The log-probability of the start and of the outcomes of recorded actions.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 1], [1, 1, 2], action=[0, 1, 0], n_states=3)
    >>> demos = Demonstrations.from_lists([[0, 1, 2], [0, 1]], [[1, 0], None])
    >>> events = DecisionCounts(mdp, demos, Groups.from_labels(None, 2))
    >>> events.counts.toarray().tolist(), events.moves.pair.tolist(), events.ptr.tolist()
    ([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]], [1, 2, 0, 1], [0, 1, 2, 4])
    """

    def __init__(
        self, mdp: MDP, demos: Demonstrations, units: Groups, max_length: int | None = None, stop: bool = False
    ) -> None:
        steps = demos.steps(mdp)
        seen = _seen(mdp, demos, steps, max_length, stop)
        # One number an event: those of a step stand together, and the steps in order.
        width = 2 * mdp.n_edges + mdp.n_states + 1
        keys, first, event = np.unique(seen.t * width + seen.key, return_index=True, return_inverse=True)
        unit = seen.demo if units.index is None else units.index[seen.demo]
        shape = (len(units), keys.size)
        self.counts: Any = sparse.csr_array((np.ones(event.size), (unit, event)), shape=shape)
        self.counts.sum_duplicates()
        edge, self.ptr = _candidates(mdp, steps, keys % width)
        several = np.repeat(np.diff(self.ptr) > 1, np.diff(self.ptr))
        self.log_outcome = np.zeros(edge.size)
        self.log_outcome[several] = np.log(mdp.prob[edge[several]])
        pair = np.full(edge.size, -1, dtype=np.int64)
        pair[edge >= 0] = mdp.pair_of_edge[edge[edge >= 0]]
        t = np.repeat(seen.t[first], np.diff(self.ptr))
        by_step = np.searchsorted(t, np.arange((max_length or 1) + 1)).astype(np.int64)
        self.moves = Moves(by_step, np.repeat(seen.state[first], np.diff(self.ptr)), pair)
        self.log_q = units.sum(_log_q(mdp, demos, steps))
        self.certain = bool(np.all(np.diff(self.ptr) == 1))

    def total(self, U: FloatArray) -> FloatArray:
        """Return (m, K): how often each choice was made under weights (G, K)."""
        return np.asarray(self.counts.T @ U)

    def log_prob(self, log_choice: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return log-probabilities (m, K) from those of each possible action (c, K), and the posterior (c, K) of these.

        log sum_a pi(a | s) P(s' | s, a), where the action was not recorded.
        """
        if self.certain:
            return log_choice, np.ones_like(log_choice)
        joint = log_choice + self.log_outcome[:, None]
        first, sizes = self.ptr[:-1], np.diff(self.ptr)
        top = np.maximum.reduceat(joint, first)
        # Where nothing is possible, -inf less itself would be no number.
        top = np.where(np.isfinite(top), top, 0.0)
        weight = np.exp(joint - np.repeat(top, sizes, axis=0))
        total = np.add.reduceat(weight, first)
        with np.errstate(divide="ignore", invalid="ignore"):
            return top + np.log(total), weight / np.repeat(total, sizes, axis=0)


def _seen(mdp: MDP, demos: Demonstrations, steps: Steps, max_length: int | None, stop: bool) -> _ObservedDecisions:
    """Return every choice, with a key that tells its kind: edge + 1, E + group + 1, or 2 E + state + 1.

    Edges of one pair are one choice; the first of them stands for it. So is the first candidate for a whole group.
    """
    first_edge = np.searchsorted(mdp.pair_of_edge, mdp.pair_of_edge)
    key = first_edge[steps.edge] + 1 if mdp.n_edges else np.empty(0, dtype=np.int64)
    key[steps.ambiguous] = mdp.n_edges + steps.cand_edge[steps.cand_ptr[:-1]] + 1
    t = steps.t_of_step if max_length is not None else np.zeros(steps.n_transitions, dtype=np.int64)
    state = demos.states[np.arange(steps.n_transitions) + steps.demo_of_step]
    if not stop or max_length is None:
        return _ObservedDecisions(steps.demo_of_step, t, state, key)
    ends = np.flatnonzero(~mdp.terminal[demos.last_states] & (demos.lengths < max_length))
    last = demos.last_states[ends]
    return _ObservedDecisions(
        np.concatenate([steps.demo_of_step, ends]),
        np.concatenate([t, demos.lengths[ends] - 1]),
        np.concatenate([state, last]),
        np.concatenate([key, 2 * mdp.n_edges + last + 1]),
    )


def _candidates(mdp: MDP, steps: Steps, kind: IntArray) -> tuple[IntArray, IntArray]:
    """Return the edges (c,) that each choice (m,) may have been, -1 to stop, and where those of each begin."""
    groups, place = np.unique(steps.cand_edge[steps.cand_ptr[:-1]], return_index=True)
    sizes = np.ones(kind.size, dtype=np.int64)
    grouped = (kind > mdp.n_edges) & (kind <= 2 * mdp.n_edges)
    slot = place[np.searchsorted(groups, kind[grouped] - mdp.n_edges - 1)]
    sizes[grouped] = np.diff(steps.cand_ptr)[slot]
    ptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    edge = np.repeat(np.where(kind <= mdp.n_edges, kind - 1, -1), sizes)
    inside = np.repeat(grouped, sizes)
    offset = np.arange(ptr[-1]) - np.repeat(ptr[:-1], sizes)
    start = np.zeros(kind.size, dtype=np.int64)
    start[grouped] = steps.cand_ptr[slot]
    edge[inside] = steps.cand_edge[(np.repeat(start, sizes) + offset)[inside]]
    return edge, ptr


def _log_q(mdp: MDP, demos: Demonstrations, steps: Steps) -> FloatArray:
    known = steps.edge >= 0
    log_prob = np.log(mdp.prob[steps.edge[known]])
    log_dynamics = np.bincount(steps.demo_of_step[known], weights=log_prob, minlength=len(demos))
    return np.asarray(np.log(mdp.p0[demos.start_states]) + log_dynamics)


# What `feasible_start` tries: features may be in any unit, so that a cost of 1 a step may need parameters of 1000.
_COSTS = (0.0, *(4.0**power for power in range(11)))


class CausalLikelihood:
    """The functions f_k(theta) = -sum_m c_mk log pi_theta(m) / n_k + ridge_k / 2 |theta|^2.

    Smooth but for hard values, and not convex where moves are uncertain.

    Parameters
    ----------
    totals : (m, K)
        How often each distinct choice was made, under each weighting.
    sizes, ridge : (K,)
        The weight of all demonstrations together, and the penalty.
    """

    def __init__(
        self, solver: PolicySolver, events: DecisionCounts, totals: FloatArray, sizes: FloatArray, ridge: FloatArray
    ) -> None:
        self.solver, self.events, self.ridge = solver, events, ridge
        self._share = totals / sizes
        self._repeats = np.diff(events.ptr)

    @property
    def n_choices(self) -> FloatArray:
        """Mean number (K,) of choices a demonstration."""
        return np.asarray(self._share.sum(axis=0))

    def evaluate(self, thetas: FloatArray, which: NDArray[np.intp]) -> tuple[FloatArray, FloatArray]:
        """Return values (J,) and gradients (J, d); infinite where values are, or are beyond float64."""
        try:
            found = self.solver.solve(thetas, self.events.moves)
            log_p, posterior = self.events.log_prob(found.log_choice)
            share = self._share[:, which]
            # An impossible choice that nobody made counts for nothing.
            with np.errstate(invalid="ignore"):
                values = -np.sum(np.where(share > 0.0, share * log_p, 0.0), axis=0)
            gradients = -found.gradient(np.repeat(share, self._repeats, axis=0) * posterior)
        except (DivergentPartition, NumericalError):
            if len(which) == 1:
                return np.array([np.inf]), np.zeros_like(thetas)
            parts = [self.evaluate(thetas[j : j + 1], which[j : j + 1]) for j in range(len(which))]
            return np.concatenate([value for value, _ in parts]), np.concatenate([gradient for _, gradient in parts])
        values += 0.5 * self.ridge[which] * np.sum(thetas**2, axis=1)
        gradients += self.ridge[which, None] * thetas
        return values, gradients


def feasible_start(solver: PolicySolver, events: DecisionCounts, box: Box) -> FloatArray:
    """Return a point (d,) within the bounds where values are finite: 0, or else growing costs.

    A cost is a parameter of the sign that makes its feature, summed over states and choices, a loss.
    """
    mdp = solver.choices.mdp
    start = box.clip(np.zeros(mdp.n_features))
    against = np.sign(solver.choices.features(np.ones((mdp.n_states, 1)), np.ones((mdp.n_pairs, 1)))[0])
    for cost in _COSTS:
        trial = box.clip(start - cost * against)
        try:
            solver.solve(trial[None], events.moves)
        except DivergentPartition:
            continue
        return trial
    raise DivergentPartition(
        "Values stay infinite whatever features cost within the bounds: at discount 1 some state never ends, or its "
        "choices are worth too much. Use gamma < 1, a finite max_length, wider bounds, or a feasible start.",
        parameter="bounds",
    )
