"""Fit problem of a causal model, in which demonstrations are reduced to counts of distinct decisions per unit.

A unit is a group of demonstrations with a common intent, or a single demonstration. An E-step is a sparse product of
the counts with the log-probabilities of the decisions. An M-step requires K weighted sums of the counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import sparse

from limiirl._typing import BoolArray, FloatArray, IndexArray, IntArray
from limiirl._validation import check_positive
from limiirl.demos import Demonstrations, Groups, Steps
from limiirl.errors import DivergentPartition, NumericalError
from limiirl.irl import validate
from limiirl.irl.base import FitResult
from limiirl.irl.causal.stationary import HardBellmanSolver, PolicySolver, SoftBellmanSolver, StationarySolver
from limiirl.irl.observed_paths import ObservedPaths
from limiirl.irl.optim import (
    Box,
    difference_hessian,
    evaluate_separately,
    increasing_costs,
    minimise_lbfgs,
    minimise_newton,
    minimise_nonsmooth,
)
from limiirl.irl.problem import FitProblem, MStep, Regulariser
from limiirl.kernels.soft_bellman import ObservedPairs
from limiirl.mdp import MDP

if TYPE_CHECKING:
    from limiirl.irl.causal.model import CausalModel


class _ObservedDecisions(NamedTuple):
    """Demonstration, step, state and key of each of n decisions; the decisions to stop come last."""

    demo: IntArray
    t: IntArray
    state: IntArray
    key: IntArray


@dataclass(frozen=True, eq=False)
class DecisionCounts:
    """Distinct decisions in demonstrations. A decision is an action, a transition with an unrecorded action, or a stop.

    Attributes
    ----------
    counts : (G, m) sparse
        Number of times that each unit made each decision.
    candidates : ObservedPairs
        Candidate actions (c,) of the decisions, sorted by step. A decision has several candidates only if the action is
        not recorded.
    ptr : (m + 1,)
        Decision j has the candidates ptr[j]:ptr[j + 1].
    log_outcome : (c,)
        log P(s' | s, a) of the candidates of unrecorded actions; 0 for recorded actions.
    log_q : (G,)
        Log-probability of the start state and of the outcomes of recorded actions, summed over each unit.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 1], [1, 1, 2], action=[0, 1, 0], n_states=3)
    >>> demos = Demonstrations.from_lists([[0, 1, 2], [0, 1]], [[1, 0], None])
    >>> decisions = DecisionCounts.from_demos(mdp, demos, Groups.from_labels(None, 2))
    >>> decisions.counts.toarray().tolist(), decisions.candidates.pair.tolist(), decisions.ptr.tolist()
    ([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]], [1, 2, 0, 1], [0, 1, 2, 4])
    """

    counts: Any
    candidates: ObservedPairs
    ptr: IntArray
    log_outcome: FloatArray
    log_q: FloatArray

    @classmethod
    def from_demos(
        cls, mdp: MDP, demos: Demonstrations, units: Groups, max_length: int | None = None, stop: bool = False
    ) -> DecisionCounts:
        """Count the decisions of units.

        Parameters
        ----------
        max_length : int, optional
            If given, decisions at different steps are distinct.
        stop : bool
            If True, stopping in a nonterminal state is a decision.
        """
        steps = demos.steps(mdp)
        made = _find_decisions(mdp, demos, steps, max_length, stop)
        # One key per decision, sorted by step.
        width = 2 * mdp.n_edges + mdp.n_states + 1
        keys, first, index = np.unique(made.t * width + made.key, return_index=True, return_inverse=True)
        unit = made.demo if units.index is None else units.index[made.demo]
        shape = (len(units), keys.size)
        counts: Any = sparse.csr_array((np.ones(index.size), (unit, index)), shape=shape)
        counts.sum_duplicates()
        edge, ptr = _candidates(mdp, steps, keys % width)
        sizes = np.diff(ptr)
        several = np.repeat(sizes > 1, sizes)
        log_outcome = np.zeros(edge.size)
        log_outcome[several] = np.log(mdp.prob[edge[several]])
        pair = np.full(edge.size, -1, dtype=np.int64)
        pair[edge >= 0] = mdp.pair_of_edge[edge[edge >= 0]]
        t = np.repeat(made.t[first], sizes)
        by_step = np.searchsorted(t, np.arange((max_length or 1) + 1)).astype(np.int64)
        candidates = ObservedPairs(by_step, np.repeat(made.state[first], sizes), pair)
        return cls(counts, candidates, ptr, log_outcome, units.sum(_log_q(mdp, demos, steps)))

    @property
    def certain(self) -> bool:
        """True if every decision has one candidate, that is, if every action is recorded or can be inferred."""
        return self.log_outcome.size == self.ptr.size - 1

    def total(self, U: FloatArray) -> FloatArray:
        """Return the weighted counts (m, K) of decisions for weights (G, K)."""
        return np.asarray(self.counts.T @ U)

    def log_prob(self, log_candidate: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the log-probabilities (m, K) of decisions and the posterior (c, K) of their candidates.

        `log_candidate` (c, K) are the log-probabilities of the candidates. A decision with an unrecorded action has the
        log-probability log sum_a pi(a | s) P(s' | s, a).
        """
        if self.certain:
            return log_candidate, np.ones_like(log_candidate)
        joint = log_candidate + self.log_outcome[:, None]
        first, sizes = self.ptr[:-1], np.diff(self.ptr)
        top = np.maximum.reduceat(joint, first)
        # Avoid -inf - (-inf) for impossible decisions.
        top = np.where(np.isfinite(top), top, 0.0)
        weight = np.exp(joint - np.repeat(top, sizes, axis=0))
        total = np.add.reduceat(weight, first)
        with np.errstate(divide="ignore", invalid="ignore"):
            return top + np.log(total), weight / np.repeat(total, sizes, axis=0)


def _find_decisions(
    mdp: MDP, demos: Demonstrations, steps: Steps, max_length: int | None, stop: bool
) -> _ObservedDecisions:
    """Return all decisions with their keys.

    With E edges, the key is e + 1 for an action whose first edge is e, E + e + 1 for a transition with an unrecorded
    action whose first candidate is e, and 2 E + s + 1 for a stop in state s.
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


def _candidates(mdp: MDP, steps: Steps, key: IntArray) -> tuple[IntArray, IntArray]:
    """Return the candidate edges (c,) of decisions with keys (m,), -1 for a stop, and their offsets (m + 1,)."""
    groups, position = np.unique(steps.cand_edge[steps.cand_ptr[:-1]], return_index=True)
    sizes = np.ones(key.size, dtype=np.int64)
    grouped = (key > mdp.n_edges) & (key <= 2 * mdp.n_edges)
    slot = position[np.searchsorted(groups, key[grouped] - mdp.n_edges - 1)]
    sizes[grouped] = np.diff(steps.cand_ptr)[slot]
    ptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    edge = np.repeat(np.where(key <= mdp.n_edges, key - 1, -1), sizes)
    inside = np.repeat(grouped, sizes)
    offset = np.arange(ptr[-1]) - np.repeat(ptr[:-1], sizes)
    start = np.zeros(key.size, dtype=np.int64)
    start[grouped] = steps.cand_ptr[slot]
    edge[inside] = steps.cand_edge[(np.repeat(start, sizes) + offset)[inside]]
    return edge, ptr


def _log_q(mdp: MDP, demos: Demonstrations, steps: Steps) -> FloatArray:
    recorded = steps.edge >= 0
    log_prob = np.log(mdp.prob[steps.edge[recorded]])
    log_dynamics = np.bincount(steps.demo_of_step[recorded], weights=log_prob, minlength=len(demos))
    return np.asarray(mdp.log_p0[demos.start_states] + log_dynamics)


class CausalLikelihood:
    """Objectives f_k(theta) = -sum_m c_mk log pi_theta(m) / n_k + ridge_k / 2 |theta|^2 over decisions m.

    The objectives are nonsmooth for hard values, and not convex for stochastic transitions.

    Parameters
    ----------
    weighted_counts : (m, K)
        Weighted count c_mk of each decision.
    sizes, ridge : (K,)
        Total weight n_k of the demonstrations, and the ridge coefficients.
    """

    def __init__(
        self,
        solver: PolicySolver,
        decisions: DecisionCounts,
        weighted_counts: FloatArray,
        sizes: FloatArray,
        ridge: FloatArray,
    ) -> None:
        self.solver, self.decisions, self.ridge = solver, decisions, ridge.reshape(len(ridge), -1)
        self._mean_counts = weighted_counts / sizes
        self._repeats = np.diff(decisions.ptr)

    @property
    def n_decisions(self) -> FloatArray:
        """Mean number (K,) of decisions per demonstration."""
        return np.asarray(self._mean_counts.sum(axis=0))

    @np.errstate(over="ignore", invalid="ignore")
    def evaluate(self, thetas: FloatArray, which: IndexArray) -> tuple[FloatArray, FloatArray]:
        """Return values (J,) and gradients (J, d); a value is inf if the Bellman values diverge or overflow."""
        try:
            policies = self.solver.solve(thetas, self.decisions.candidates)
            log_p, posterior = self.decisions.log_prob(policies.log_prob)
            counts = self._mean_counts[:, which]
            # An impossible decision of weight 0 contributes 0.
            with np.errstate(invalid="ignore"):
                values = -np.sum(np.where(counts > 0.0, counts * log_p, 0.0), axis=0)
            gradients = -policies.gradient(np.repeat(counts, self._repeats, axis=0) * posterior)
        except (DivergentPartition, NumericalError):
            failed = np.array([np.inf]), np.zeros_like(thetas)
            values, gradients = evaluate_separately(lambda j: self.evaluate(thetas[j], which[j]), len(which), failed)
            return values, gradients
        ridge_gradient = self.ridge[which] * thetas
        values += 0.5 * np.sum(ridge_gradient * thetas, axis=1)
        gradients += ridge_gradient
        return values, gradients

    def hessian(self, theta: FloatArray, k: int) -> FloatArray:
        """Return the Hessian (d, d) of function k for a stationary policy, with d linear solves.

        If several actions are tied for the maximum in hard values, derivatives are averaged over these actions.
        """
        assert isinstance(self.solver, StationarySolver)
        decisions, candidates = self.decisions, self.decisions.candidates
        derivatives = self.solver.derivatives(theta)
        _, posterior = decisions.log_prob(derivatives.log_prob[candidates.pair][:, None])
        weight = np.repeat(self._mean_counts[:, k], self._repeats) * posterior[:, 0]
        hessian = -self.solver.hessian(derivatives, candidates, weight)
        if not decisions.certain:
            # If a decision has several candidates, its Hessian also contains the covariance of their scores.
            scores = derivatives.scores[candidates.pair]
            mean = np.add.reduceat(posterior * scores, decisions.ptr[:-1])
            deviation = scores - np.repeat(mean, self._repeats, axis=0)
            hessian -= deviation.T @ (weight[:, None] * deviation)
        return np.asarray(0.5 * (hessian + hessian.T) + self.ridge[k] * np.eye(theta.size))


def feasible_start(solver: PolicySolver, decisions: DecisionCounts, box: Box) -> FloatArray:
    """Return a theta (d,) within the bounds with finite Bellman values, after trying 0 and increasing costs."""
    mdp = solver.pairs.mdp
    features = solver.pairs.features(np.ones((mdp.n_states, 1)), np.ones((mdp.n_pairs, 1)))[0]
    for trial in increasing_costs(box, features):
        try:
            solver.solve(trial[None], decisions.candidates)
        except DivergentPartition:
            continue
        return trial
    raise DivergentPartition(
        "The Bellman values are infinite for every reward vector that was tried within the bounds: at discount 1, some "
        "state never reaches a terminal state, or entropy outweighs the costs. Use gamma < 1, a finite max_length, "
        "wider bounds, or pass a feasible `start`.",
        parameter="bounds",
    )


# Factor by which an M-step with Newton's method reduces the gradient. More accuracy would not pay off, because the next
# E-step changes the objective.
_REDUCTION = 0.1
# Step of central differences of gradients, as a change in theta . F for typical feature counts F.
_STEP = 1e-4


class StateActionMoments(NamedTuple):
    """Sums of responsibilities over the occurrences of each decision (m, K), and over all demonstrations (K,)."""

    decisions: FloatArray
    counts: FloatArray


class CausalProblem(FitProblem):
    """Fit problem of a causal model, with its policy solver and the decisions of the units."""

    regulariser: Regulariser

    def __init__(
        self,
        model: CausalModel,
        mdp: MDP,
        demos: Demonstrations,
        units: Groups,
        regulariser: Regulariser,
        solver: PolicySolver,
        decisions: DecisionCounts,
    ) -> None:
        super().__init__(model, mdp, demos, units, regulariser)
        self.solver, self.decisions = solver, decisions
        self._start: FloatArray | None = None

    @classmethod
    def from_demos(
        cls,
        model: CausalModel,
        mdp: MDP,
        demos: Demonstrations,
        units: Groups,
        solver: PolicySolver,
        decisions: DecisionCounts,
    ) -> CausalProblem:
        """Return the fit problem; a ridge per step is converted to a ridge per demonstration."""
        regulariser = Regulariser.from_model(model, mdp, len(demos))
        if model.ridge_per == "step" and len(demos):
            regulariser = replace(regulariser, ridge=regulariser.ridge * float(np.mean(demos.lengths - 1.0)))
        return cls(model, mdp, demos, units, regulariser, solver, decisions)

    @np.errstate(over="ignore", invalid="ignore")
    def log_prob(self, thetas: FloatArray) -> FloatArray:
        """Return the log-probabilities (G, K) of the units."""
        log_p, _ = self.decisions.log_prob(self.solver.solve(thetas, self.decisions.candidates).log_prob)
        validate.check_log_prob(log_p)
        if np.all(np.isfinite(log_p)):
            return np.asarray(self.decisions.counts @ log_p + self.decisions.log_q[:, None])
        # Count impossible decisions separately, because 0 times -inf is nan.
        impossible = self.decisions.counts @ np.isneginf(log_p).astype(np.float64)
        finite = self.decisions.counts @ np.where(np.isneginf(log_p), 0.0, log_p) + self.decisions.log_q[:, None]
        return np.where(impossible > 0.0, -np.inf, finite)

    def moments(self, U: FloatArray) -> StateActionMoments:
        """Return the argument of `m_step` for responsibilities U (G, K)."""
        return StateActionMoments(self.decisions.total(U), self.units.counts @ U)

    def m_step(
        self,
        moments: StateActionMoments,
        starts: FloatArray | None,
        which: IndexArray,
        max_evaluations: int | None = None,
    ) -> MStep:
        """See `FitProblem.m_step`."""
        counts = moments.counts[which]
        ridge = self.regulariser.ridges(len(moments.counts), counts)
        part = StateActionMoments(moments.decisions[:, which], counts)
        limit = self.limit_evaluations(max_evaluations)
        return MStep.from_results(self.search(part, ridge, starts, limit, reduction=_REDUCTION))

    def search(
        self,
        moments: StateActionMoments,
        ridge: FloatArray,
        starts: FloatArray | None,
        max_evaluations: int,
        *,
        reduction: float = 0.0,
    ) -> list[FitResult]:
        """Minimise the objective of each column of the moments, from `starts` (J, d) or a feasible point.

        If starts are given, a search with Newton's method ends when the gradient is at most `reduction` times the
        initial gradient.
        """
        objective = CausalLikelihood(self.solver, self.decisions, moments.decisions, moments.counts, ridge)
        given, box = starts is not None, self.regulariser.box
        if starts is None:
            starts = np.tile(self.feasible_start(), (len(moments.counts), 1))
        tol = check_positive(self.model.gtol, "gtol") * np.maximum(1.0, objective.n_decisions)[:, None]
        tols = np.broadcast_to(tol, starts.shape)
        search: Any = minimise_lbfgs
        if isinstance(self.solver, HardBellmanSolver):
            search = minimise_nonsmooth
        elif isinstance(self.solver, SoftBellmanSolver) and self.solver.has_cheap_hessian:
            search = minimise_newton
            if given and reduction:
                _, gradients = objective.evaluate(starts, np.arange(len(starts)))
                first = [box.residual(*pair) for pair in zip(starts, gradients / self.feature_scale, strict=True)]
                tols = np.maximum(tols, reduction * np.array(first)[:, None])
        return self.rescale(search)(objective, starts, box, tols, max_evaluations)

    def curvature(self, U: FloatArray, thetas: FloatArray, free: BoolArray) -> FloatArray:
        """Return -sum_i u_ik Hessian(log p_ik) (K, d, d).

        Stationary policies require d linear solves per intent; other policies use central differences of the gradient
        with 2 d evaluations.
        """
        K, counts = len(thetas), self.decisions.total(U)
        objective = CausalLikelihood(self.solver, self.decisions, counts, np.ones(K), np.zeros(K))
        if isinstance(self.solver, StationarySolver):
            return np.array([objective.hessian(theta, k) for k, theta in enumerate(thetas)])

        def evaluate(theta: FloatArray, k: int) -> tuple[float, FloatArray]:
            values, gradients = objective.evaluate(theta[None], np.array([k]))
            return float(values[0]), gradients[0]

        size = np.sqrt(np.mean(self.features() ** 2, axis=0))
        steps = _STEP / np.where(size > 0.0, size, 1.0)
        each = [difference_hessian(partial(evaluate, k=k), theta, steps, free[k]) for k, theta in enumerate(thetas)]
        return np.array(each)

    def objective(self, U: FloatArray) -> CausalLikelihood:
        """See `FitProblem.objective`."""
        moments = self.moments(U)
        return CausalLikelihood(self.solver, self.decisions, *moments, np.zeros(U.shape[1]))

    def store_solutions(self, n: int) -> None:
        """See `FitProblem.store_solutions`."""
        if isinstance(self.solver, SoftBellmanSolver):
            self.solver.store(n)

    def feasible_start(self) -> FloatArray:
        """Return a theta (d,) within the bounds with finite Bellman values."""
        if self._start is None:
            self._start = feasible_start(self.solver, self.decisions, self.regulariser.box)
        return self._start

    def features(self) -> FloatArray:
        """Return the mean feature counts (G, d); unrecorded actions are replaced by their first candidates."""
        return self.units.mean(ObservedPaths.from_demos(self.mdp, self.demos).features)
