"""E-step and M-step of EM for intents that switch within a demonstration.

Emissions are the decisions of a causal model. The M-step of the rewards depends on the data only through the expected
number of times that each distinct decision is made with each intent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from limiirl._typing import FloatArray, Int32Array, IntArray
from limiirl.demos import Demonstrations, Groups, name_demo
from limiirl.errors import InvalidDemos, InvalidParameter
from limiirl.irl import FitProblem, MaxEnt, OptionalMembers, make_problem
from limiirl.irl import validate as irl_checks
from limiirl.kernels.switching import Chain, ChainCounts, Decisions, Posterior, count, infer
from limiirl.mdp import MDP
from limiirl.mixture import WeightDesign, floor_weights, validate
from limiirl.switching.transitions import (
    CONSTANT,
    COVARIATES,
    HOMOGENEOUS,
    LARGEST_LOGIT,
    STATE,
    Design,
    Logits,
    fit_logits,
)

# Intents with fewer expected steps are not fitted, because averages of their features underflow.
_UNDERFLOW = 1e-250
# Maximum number of evaluations in the first M-step.
_FIRST_EVALUATIONS = 50


class Parameters(NamedTuple):
    """Initial probabilities (K,), rewards (K, d), and logits of the transitions.

    If the first intent depends on covariates, `first` (K, p) are its logits, and `initial` the mean probabilities.
    """

    initial: FloatArray
    thetas: FloatArray
    logits: Logits
    first: FloatArray | None = None


class DistinctDecisions(NamedTuple):
    """Distinct decisions of demonstrations, each as a demonstration of one step.

    Attributes
    ----------
    demos : Demonstrations
        m demonstrations of two states.
    number : (n,)
        Distinct decision of each step.
    state : (n,)
        State of each step.
    offsets : (N + 1,)
        The steps of demonstration i are offsets[i]:offsets[i + 1].
    log_outcome : (m,)
        log P(s' | s, a) if the action is recorded, otherwise 0.
    """

    demos: Demonstrations
    number: Int32Array
    state: IntArray
    offsets: IntArray
    log_outcome: FloatArray

    @classmethod
    def of(cls, mdp: MDP, demos: Demonstrations) -> DistinctDecisions:
        """Return the distinct decisions: actions in a state, or transitions with an unrecorded action."""
        check_lengths(demos)
        steps = demos.steps(mdp)
        key = np.where(steps.edge >= 0, mdp.pair_of_edge[steps.edge], 0)
        key[steps.ambiguous] = mdp.n_pairs + steps.cand_edge[steps.cand_ptr[:-1]]
        first = np.full(mdp.n_pairs + mdp.n_edges, -1)
        first[key[::-1]] = np.arange(key.size)[::-1]
        made = np.flatnonzero(first >= 0)
        number = np.zeros(first.size, dtype=np.int32)
        number[made] = np.arange(made.size)
        step = first[made]
        edge, position = steps.edge[step], step + steps.demo_of_step[step]
        recorded = edge >= 0
        log_outcome = np.where(recorded, np.log(mdp.prob[edge]), 0.0)
        states = np.column_stack([demos.states[position], demos.states[position + 1]])
        actions = np.column_stack([np.where(recorded, mdp.act[edge], -1), np.full(edge.size, -1)])
        pieces = Demonstrations(states.ravel(), 2 * np.arange(edge.size + 1), actions.ravel())
        state = demos.states[np.arange(key.size) + steps.demo_of_step]
        return cls(pieces, number[key], state, np.asarray(steps.step_ptr), log_outcome)


def check_lengths(demos: Demonstrations) -> None:
    """Raise if a demonstration has no decision."""
    alone = demos.lengths == 1
    if np.any(alone):
        i = int(np.argmax(alone))
        message = f"{name_demo(demos.ids, i)} has one state, and thus no action. Remove demonstrations of one state."
        raise InvalidDemos(message, parameter="demos", value=1, index=i)


def check_model(model: Any) -> Any:
    """Return a model; raise unless it has the same policy at every step."""
    supports = OptionalMembers.of(model).supports
    has_policy = hasattr(model, "policy") if supports is None else "policy" in supports
    length = getattr(model, "max_length", math.inf)
    if not has_policy or isinstance(model, MaxEnt) or length is None or length != math.inf:
        what = f"{type(model).__name__}(max_length={length})" if length != math.inf else type(model).__name__
        remedy = "Use MaxCausalEnt or MLIRL without a maximum length."
        raise InvalidParameter.of("irl", what, "must have a policy that is the same at every step", remedy=remedy)
    return model


def refuse_covariates(covariates: object) -> None:
    """Raise if there are covariates, but neither the first intent nor the switches depend on them."""
    if covariates is not None:
        rule = "requires switching='covariates' or initial='covariates'"
        raise InvalidParameter.of("covariates", type(covariates).__name__, rule)


class SwitchingProblem:
    """E-step and M-step for the decisions of demonstrations.

    Parameters
    ----------
    model : IRLModel
    mdp : MDP
    demos : Demonstrations
    kind : {"homogeneous", "state", "covariates"}
        Transition model.
    covariates : (n, m), optional
        Standardised covariates of the steps, for the transitions if `kind` is "covariates".
    initial : {"constant", "covariates"}
        Whether the first intent depends on the covariates of the first step.
        Standardised covariates of the steps.

    Attributes
    ----------
    decisions : DistinctDecisions
    emissions : FitProblem
        Fit problem whose units are the distinct decisions.
    """

    def __init__(
        self,
        model: Any,
        mdp: MDP,
        demos: Demonstrations,
        kind: str = HOMOGENEOUS,
        covariates: FloatArray | None = None,
        initial: str = CONSTANT,
    ) -> None:
        self.model, self.mdp, self.demos = check_model(model), mdp, demos
        self.decisions = DistinctDecisions.of(mdp, demos)
        anywhere = mdp.replace(p0=np.full(mdp.n_states, 1.0 / mdp.n_states))
        self._log_start = anywhere.log_p0[self.decisions.demos.start_states]
        self.emissions: FitProblem = make_problem(model, anywhere, self.decisions.demos)
        regulariser = self.emissions.regulariser
        if regulariser is not None:  # the penalty is per step
            self.emissions.regulariser = replace(regulariser, n_demos=self.n_steps)
        self.first: WeightDesign | None = None
        if initial == COVARIATES and covariates is not None:
            self.first = WeightDesign(validate.add_intercept(covariates[self.decisions.offsets[:-1]]))
        if kind == COVARIATES and covariates is not None:
            self.design = Design.by_covariates(covariates)
        elif kind == STATE:
            self.design = Design.by_state(self.decisions.state, mdp.n_states)
        else:
            self.design = Design.homogeneous(self.n_steps)

    @property
    def n_steps(self) -> int:
        """Number of decisions."""
        return int(self.decisions.number.size)

    @cached_property
    def data(self) -> Decisions:
        """Arrays for the kernels."""
        offsets = self.decisions.offsets
        return Decisions(self.decisions.number, self.design.row, offsets, np.arange(offsets.size - 1, dtype=np.int32))

    def log_emission(self, thetas: FloatArray) -> FloatArray:
        """Return the log-probabilities (m, K) of the distinct decisions, given their states."""
        log_q = self.decisions.log_outcome + self._log_start
        return irl_checks.check_log_prob(self.emissions.log_prob(thetas) - log_q[:, None])

    def initial(self, parameters: Parameters) -> FloatArray:
        """Return the probabilities of the first intent, (K,), or (N, K) if they depend on covariates."""
        if self.first is None or parameters.first is None:
            return parameters.initial
        return self.first.weights(parameters.first)

    def chain(self, parameters: Parameters) -> Chain:
        """Return the parameters of the kernels."""
        eta = self.design.eta(parameters.logits.B)
        return Chain.of(self.log_emission(parameters.thetas), self.initial(parameters), parameters.logits.A, eta)

    def e_step(self, parameters: Parameters) -> ChainCounts:
        """Return the expected counts; raise if a step has probability 0 under every intent."""
        counts = count(self.chain(parameters), self.data, distinct_rows=self.design.distinct)
        self._check_possible(counts.bad)
        return counts

    def infer(self, parameters: Parameters, *, smooth: bool) -> Posterior:
        """Return the filtered or smoothed posterior of intents at each step."""
        posterior = infer(self.chain(parameters), self.data, smooth=smooth)
        self._check_possible(posterior.bad)
        return posterior

    def _check_possible(self, bad: int) -> None:
        if bad >= 0:
            offsets = self.decisions.offsets
            i = int(np.searchsorted(offsets, bad, side="right")) - 1
            t = bad - int(offsets[i])
            message = (
                f"{name_demo(self.demos.ids, i)}, step {t}: the decision in state {self.decisions.state[bad]} has "
                "probability 0 under every intent. Remove it, correct the MDP, or set bounds on the rewards."
            )
            raise InvalidDemos(message, parameter="demos", value=int(self.decisions.state[bad]), index=(i, t))

    def m_step(
        self, parameters: Parameters, counts: ChainCounts, ridge: float, max_evaluations: int | None
    ) -> tuple[Parameters, int]:
        """Return parameters with a higher expected log-likelihood, and the number of evaluations of the rewards.

        The number is the maximum over intents.
        """
        sizes = counts.decisions.sum(axis=0)
        which, thetas = np.flatnonzero(sizes > _UNDERFLOW), parameters.thetas.copy()
        moments = self.emissions.moments(counts.decisions)
        starts = self.emissions.project(thetas[which])
        thetas[which], n_evaluations = self.emissions.m_step(moments, starts, which, self._limit(max_evaluations))
        logits = fit_logits(self.design, counts, parameters.logits, ridge)
        if self.first is None or parameters.first is None:
            initial, first = floor_weights(counts.initial, float(counts.initial.sum())), None
        else:
            design = replace(self.first, ridge=ridge)
            first = design.fit(np.atleast_2d(counts.initial), parameters.first)
            initial = design.weights(first).mean(axis=0)
        return Parameters(initial, thetas, logits, first), n_evaluations

    def first_m_step(self, counts: ChainCounts, logits: Logits) -> Parameters:
        """Return parameters for expected counts from initial responsibilities, and the given logits.

        An intent without steps gets the reward of all steps.
        """
        decisions = np.where(
            counts.decisions.sum(axis=0) > 0.0, counts.decisions, counts.decisions.sum(axis=1)[:, None]
        )
        which, limit = np.arange(decisions.shape[1]), self._limit(_FIRST_EVALUATIONS)
        thetas = self.emissions.m_step(self.emissions.moments(decisions), None, which, limit).thetas
        initial = floor_weights(counts.initial, float(counts.initial.sum()))
        return Parameters(initial, thetas, logits, None if self.first is None else self.first.constant(initial))

    def _limit(self, max_evaluations: int | None) -> int | None:
        """Return the limit, or None for a model without such a parameter."""
        return max_evaluations if hasattr(self.model, "max_evaluations") else None

    def penalty(self, parameters: Parameters, ridge: float) -> float:
        """Return the penalty that EM subtracts from the log-likelihood."""
        penalty = self.emissions.penalty(parameters.thetas) + 0.5 * ridge * float(np.sum(parameters.logits.B**2))
        if self.first is not None and parameters.first is not None:
            penalty += replace(self.first, ridge=ridge).penalty(parameters.first)
        return penalty

    def to_vector(self, parameters: Parameters) -> FloatArray:
        """Return the parameters as one vector, in which a linear extrapolation keeps probabilities positive."""
        logits = parameters.logits
        first = np.log(parameters.initial) if parameters.first is None else parameters.first
        parts = (first, parameters.thetas, logits.A, logits.B)
        return np.concatenate([np.ravel(part) for part in parts])

    def from_vector(self, vector: FloatArray, like: Parameters) -> Parameters:
        """Return the parameters of a vector, projected onto the feasible set; `like` provides the shapes."""
        K, thetas, B = len(like.initial), like.thetas, like.logits.B
        ends = np.cumsum([K if like.first is None else like.first.size, thetas.size, K * K])
        start, theta, A, flat_B = np.split(vector, ends)
        rows = A.reshape(K, K)
        if self.design.kind == HOMOGENEOUS:
            rows = np.array([np.log(_to_probabilities(row)) for row in rows])
        else:
            rows = np.clip(rows, -LARGEST_LOGIT, LARGEST_LOGIT)
        projected = self.emissions.project(theta.reshape(thetas.shape))
        logits = Logits(rows, flat_B.reshape(B.shape))
        if self.first is None or like.first is None:
            return Parameters(_to_probabilities(start), projected, logits)
        first = start.reshape(like.first.shape)
        return Parameters(self.first.weights(first).mean(axis=0), projected, logits, first)

    def sum_windows(self, window: int) -> tuple[IntArray, Any]:
        """Return the window (n,) of each step, and the counts (W, m) of distinct decisions in each window.

        Demonstrations are cut into windows of nearly equal length with at most `window` steps.
        """
        from scipy import sparse

        offsets = self.decisions.offsets
        lengths = np.diff(offsets)
        n_windows = -(-lengths // window)
        first = np.cumsum(n_windows) - n_windows
        t = np.arange(self.n_steps) - np.repeat(offsets[:-1], lengths)
        number = np.repeat(first, lengths) + t * np.repeat(n_windows, lengths) // np.repeat(lengths, lengths)
        shape = (int(n_windows.sum()), len(self.decisions.demos))
        counts: Any = sparse.csr_array((np.ones(self.n_steps), (number, self.decisions.number)), shape=shape)
        return number, counts

    def split(self, groups: Groups) -> Iterator[Decisions]:
        """Yield the decisions of each group of demonstrations."""
        data = self.data
        index = np.arange(data.offsets.size - 1) if groups.index is None else groups.index
        for g in range(len(groups)):
            own = np.flatnonzero(index == g)
            lengths = data.offsets[own + 1] - data.offsets[own]
            first = np.cumsum(lengths) - lengths
            steps = np.arange(int(lengths.sum())) + np.repeat(data.offsets[own] - first, lengths)
            yield Decisions(data.number[steps], data.row[steps], np.append(first, lengths.sum()), data.start[own])

    @property
    def units(self) -> Groups:
        """The steps as units, for messages about arrays with one row per step."""
        return Groups.from_labels(None, self.n_steps, "steps")


def _to_probabilities(log_weights: FloatArray) -> FloatArray:
    weights = np.exp(log_weights - log_weights.max())
    return floor_weights(weights, float(weights.sum()))
