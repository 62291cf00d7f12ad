"""`CausalModel`, the base class of `MaxCausalEnt` and `MLIRL`."""

from __future__ import annotations

import logging
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from limiirl._typing import BoolArray, FloatArray, IntArray
from limiirl._validation import as_generator, check_choice, check_count
from limiirl.demos import Demonstrations, Groups, simulate
from limiirl.errors import InvalidParameter, NumericalError
from limiirl.irl import validate
from limiirl.irl.base import QUERIES, SUFFICIENT_STATISTICS, FitResult, NextActions
from limiirl.irl.causal import stationary
from limiirl.irl.causal.finite_horizon import FiniteHorizonSolver
from limiirl.irl.causal.problem import CausalProblem, DecisionCounts, StateActionMoments
from limiirl.irl.causal.state_actions import StateActions
from limiirl.irl.causal.stationary import PolicySolver
from limiirl.irl.estimator import LinearRewardModel
from limiirl.irl.identifiability import null_directions
from limiirl.irl.problem import FitProblem
from limiirl.kernels.forward_backward.sampling import advance, best_arrival
from limiirl.kernels.soft_bellman import ObservedPairs
from limiirl.mdp import MDP, is_connected, shortest_path


class CausalModel(LinearRewardModel):
    """Base class of models p(tau | theta) = q(tau) prod_t pi_theta(a_t | s_t); see `Demonstrations.log_q` for q.

    A subclass implements `_solver`, which maps rewards to policies.
    """

    # `null_directions` depends on the MDP, not on theta.
    null_directions_vary = False

    supports: ClassVar[frozenset[str]] = QUERIES | {SUFFICIENT_STATISTICS}

    def __init__(
        self,
        beta: float,
        bounds: Any,
        *,
        ridge: float | Mapping[str, float],
        ridge_per: str,
        gtol: float,
        max_evaluations: int,
        device: str,
    ) -> None:
        self.beta = beta
        self.bounds = bounds
        self.ridge = ridge
        self.ridge_per = ridge_per
        self.gtol = gtol
        self.max_evaluations = max_evaluations
        self.device = device

    @abstractmethod
    def _solver(self, mdp: MDP) -> PolicySolver:
        """Check the model's parameters and return the policy solver."""

    def _check(self, mdp: MDP, demos: Demonstrations, *, whole: bool) -> None:
        """Check demonstrations, which are prefixes of trajectories unless `whole` is True."""
        del whole  # without a maximum length, every demonstration is a prefix
        validate.check_trajectories(mdp, demos, "anywhere", np.inf)

    def _decisions(self, mdp: MDP, demos: Demonstrations, units: Groups, *, whole: bool = True) -> DecisionCounts:
        self._check(mdp, demos, whole=whole)
        return DecisionCounts.from_demos(mdp, demos, units)

    def log_prob(self, mdp: MDP, thetas: ArrayLike, demos: Demonstrations) -> FloatArray:
        """Return the log-probability (N, K) of each demonstration under each of thetas (K, d), including log q.

        A step without a recorded action contributes log sum_a pi(a | s) P(s' | s, a).
        """
        return self._log_prob(mdp, thetas, demos, whole=True)

    def log_prob_prefix(self, mdp: MDP, thetas: ArrayLike, demos: Demonstrations) -> FloatArray:
        """Return the log-probability (N, K) that a trajectory begins with each demonstration."""
        return self._log_prob(mdp, thetas, demos, whole=False)

    def _log_prob(self, mdp: MDP, thetas: ArrayLike, demos: Demonstrations, *, whole: bool) -> FloatArray:
        solver, demos = self._solver(mdp), validate.in_numbers_of(mdp, demos)
        checked, units = mdp.check_thetas(thetas), Groups.from_labels(None, len(demos))
        decisions = self._decisions(mdp, demos, units, whole=whole)
        return CausalProblem.from_demos(self, mdp, demos, units, solver, decisions).log_prob(checked)

    def null_directions(self, mdp: MDP, theta: ArrayLike) -> FloatArray:
        """Return an orthonormal basis (m, d) of the directions that leave the policy of every theta unchanged.

        The result is empty for very large MDPs with many features; see `causal_null_directions`.

        Examples
        --------
        Without a terminal state, a constant reward for all states does not change the policy.

        >>> from limiirl.irl import MLIRL
        >>> mdp = MDP.from_edges([0, 0, 1], [0, 1, 0], gamma=0.9, state_features=[[1, 0], [1, 1]])
        >>> MLIRL().null_directions(mdp, [0, 0])
        array([[1., 0.]])
        """
        validate.one_theta(mdp, theta)
        return causal_null_directions(self._solver(mdp))

    def _null_directions_of_fit(
        self, mdp: MDP, demos: Demonstrations, weights: FloatArray, theta: FloatArray
    ) -> FloatArray:
        del demos, weights
        return self.null_directions(mdp, theta)

    def most_likely(self, mdp: MDP, theta: ArrayLike, start: int, goal: int) -> tuple[Demonstrations, float]:
        """Return the most probable trajectory from one state to another, and its log-probability.

        If max_length is inf, the trajectory ends at the first visit to the goal. Otherwise, it ends with the action of
        stopping in the goal.

        Examples
        --------
        >>> from limiirl.irl import MLIRL
        >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2], p0=[1, 0, 0])
        >>> demos, log_prob = MLIRL(beta=1.0).most_likely(mdp, [0, 1, 0], 0, 2)  # state 1 is worth a detour
        >>> demos.states, round(log_prob, 4)
        (array([0, 1, 2]), -0.3133)
        """
        return most_likely(self._solver(mdp), validate.one_theta(mdp, theta), start, goal)

    def _fit(self, mdp: MDP, demos: Demonstrations, weights: FloatArray, starts: FloatArray | None) -> list[FitResult]:
        problem = self._problem(mdp, demos, Groups.from_labels(None, len(demos)))
        moments = StateActionMoments(problem.decisions.total(weights), weights.sum(axis=0))
        ridge = np.tile(validate.ridge(self.ridge, mdp.feature_names), (weights.shape[1], 1))
        if self.ridge_per == "step":  # the objective is a mean over demonstrations
            ridge = ridge * (((demos.lengths - 1.0) @ weights) / moments.counts)[:, None]
        return problem.search(moments, ridge, starts, check_count(self.max_evaluations, "max_evaluations"))

    def make_problem(self, mdp: MDP, demos: Demonstrations, units: Groups) -> FitProblem:
        """Return the fit problem of a mixture, for `IntentMixture`."""
        demos = validate.in_numbers_of(mdp, demos)
        if SUFFICIENT_STATISTICS not in self.supports:
            return FitProblem(self, mdp, demos, units)  # a subclass has its own likelihood or fit
        return self._problem(mdp, demos, units)

    def _problem(self, mdp: MDP, demos: Demonstrations, units: Groups) -> CausalProblem:
        check_choice(self.ridge_per, "ridge_per", ("demonstration", "step"))
        solver = self._solver(mdp)
        decisions = self._decisions(mdp, validate.demonstrations(demos), units)
        return CausalProblem.from_demos(self, mdp, demos, units, solver, decisions)

    def policy(self, mdp: MDP, theta: ArrayLike, step: int = 0) -> FloatArray:
        """Return pi(a | s) (S, A) at a step, given that the trajectory continues.

        Rows of states without actions are zero. If max_length is inf, the policy is the same at every step.
        """
        solver, last = self._solver(mdp), self._last_step()
        t = validate.step(step, np.inf if last is None else last + 1)
        return solver.pairs.policy_table(solver.policy(validate.one_theta(mdp, theta), t)[0])

    def residual(self, mdp: MDP, thetas: ArrayLike) -> FloatArray:
        """Return the residual (K,) of the Bellman equation under thetas (K, d), relative to the largest value.

        The residual is of the order of rounding errors, except for `MLIRL` with q="bv", which uses a fixed number of
        backups.
        """
        empty = np.zeros(0, dtype=np.int64)
        no_pairs = ObservedPairs(np.zeros(2 + (self._last_step() or 0), dtype=np.int64), empty, empty)
        return self._solver(mdp).solve(mdp.check_thetas(thetas), no_pairs).residual

    def next_actions(self, mdp: MDP, thetas: ArrayLike, demos: Demonstrations) -> NextActions:
        """Return the probabilities of each next action (N, K, A) and of stopping (N, K) after each demonstration."""
        solver, checked = self._solver(mdp), mdp.check_thetas(thetas)
        demos = validate.in_numbers_of(mdp, demos)
        self._check(mdp, demos, whole=False)
        action = np.zeros((len(demos), checked.shape[0], mdp.n_actions))
        stop = np.zeros(action.shape[:2])
        last = demos.last_states
        step = demos.lengths - 1 if self._last_step() is not None else np.zeros(len(demos), dtype=np.int64)
        steps = np.unique(step)
        for k, theta in enumerate(checked if steps.size else ()):
            policy = _policies(solver, theta, int(steps[0]))
            for t in steps:
                here = np.flatnonzero(step == t)
                pi, stops = policy(int(t))
                stop[here, k] = np.where(mdp.terminal[last[here]], 1.0, stops[last[here]])
                action[here, k] = (1.0 - stop[here, k, None]) * solver.pairs.policy_table(pi)[last[here]]
        return NextActions(action, stop)

    def sample(
        self,
        mdp: MDP,
        theta: ArrayLike,
        n: int,
        seed: int | np.random.Generator | None = None,
        *,
        max_length: int = 1000,
    ) -> Demonstrations:
        """Draw n trajectories that start from p0.

        `max_length` truncates trajectories if the model's `max_length` is inf; otherwise, it is ignored.

        Examples
        --------
        >>> from limiirl.irl import MLIRL
        >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2], p0=[1, 0, 0])
        >>> MLIRL().sample(mdp, [0.0, 0.0, 0.0], 1000, seed=0).lengths.mean().round(1)
        np.float64(2.5)
        """
        solver, checked = self._solver(mdp), validate.one_theta(mdp, theta)
        rng, n_samples = as_generator(seed), check_count(n, "n")
        last = self._last_step()
        if last is None:
            pi, _ = solver.policy(checked, 0)
            return simulate(mdp, pi, n_samples, rng, max_length=check_count(max_length, "max_length"))
        return sample_finite_horizon(mdp, _policies(solver, checked), n_samples, rng, last)

    def _last_step(self) -> int | None:
        """Return the last step, max_length - 1, or None for a stationary policy."""
        return None


def _policies(
    solver: PolicySolver, theta: FloatArray, first: int = 0
) -> Callable[[int], tuple[FloatArray, FloatArray]]:
    """Return a function that maps a step (`first` or later) to the policy; a finite horizon takes one backward pass."""
    if isinstance(solver, FiniteHorizonSolver):
        return solver.policies(theta, first)
    return partial(solver.policy, theta)


_LOG = logging.getLogger(__name__)

LARGEST = 2**23
"""Maximum number of state-action pairs times features for which null directions are computed.

About 1,450 states with four actions and one indicator feature per state reach this limit."""


def causal_null_directions(solver: PolicySolver) -> FloatArray:
    """Return an orthonormal basis (m, d) of the directions that leave the policy of every theta unchanged.

    Unreachable states are ignored, and the backups of q="bv" are assumed to have converged. The result is empty if the
    size of the problem exceeds `LARGEST` (a warning is logged), or if the discount is 1 and a terminal state may never
    be reached under the uniform policy.
    """
    pairs = solver.pairs
    mdp, d = pairs.mdp, pairs.mdp.n_features
    if mdp.n_pairs * d > LARGEST:
        _LOG.warning(
            "Null directions are not computed, because %d state-action pairs times %d features exceed %d. Check that "
            "no linear combination of features is constant.",
            mdp.n_pairs,
            d,
            LARGEST,
        )
        return np.empty((0, d))
    state_rows, pair_rows = pairs.feature_rows()
    own = pair_rows + mdp.gamma * np.asarray(pairs.transitions @ state_rows)
    uniform = 1.0 / np.diff(pairs.graph.pair_ptr)[mdp.pair_state]
    gram = _GramAccumulator(d)
    if not isinstance(solver, FiniteHorizonSolver):
        try:
            mean = pairs.average(uniform, own)
            later = stationary.solve(pairs, uniform[:, None], mean)
        except NumericalError:  # a terminal state may never be reached under the uniform policy
            return np.empty((0, d))
        rows = own + mdp.gamma * np.asarray(pairs.transitions @ later)
        gram.add(rows, rows - later[mdp.pair_state], _reachable(pairs, mdp.n_states)[-1][mdp.pair_state])
        return gram.null()
    last = solver.max_length - 2  # last step with a decision
    if solver.stop and last >= 0:  # stopping has value 0, so null directions do not change the value of continuing
        gram.add(own, own, _reachable(pairs, last)[-1][mdp.pair_state])
        return gram.null()
    reached, later = _reachable(pairs, last, every=True), np.zeros(state_rows.shape)
    for t in range(last, -1, -1):
        rows = own + mdp.gamma * np.asarray(pairs.transitions @ later)
        later = pairs.average(uniform, rows)
        gram.add(rows, rows - later[mdp.pair_state], reached[t][mdp.pair_state])
    return gram.null()


class _GramAccumulator:
    """Gram matrix (d, d) of feature differences between actions, and sums of squares (d,) of the features."""

    def __init__(self, d: int) -> None:
        self.gram, self.squares = np.zeros((d, d)), np.zeros(d)

    def add(self, rows: FloatArray, differences: FloatArray, counted: BoolArray) -> None:
        self.gram += differences[counted].T @ differences[counted]
        self.squares += np.sum(rows[counted] ** 2, axis=0)

    def null(self) -> FloatArray:
        return null_directions(self.gram, np.sqrt(self.squares))


def _reachable(pairs: StateActions, most: int, *, every: bool = False) -> list[BoolArray]:
    """Return one mask (S,) per t = 0, ..., `most`: states reachable in at most t transitions, or exactly t if `every`.

    If not `every`, the list ends as soon as the masks no longer change.
    """
    mdp = pairs.mdp
    reached = [mdp.p0 > 0.0]
    for _ in range(most):
        now = np.zeros(mdp.n_states, dtype=bool) if every else reached[-1].copy()
        now[mdp.dst[reached[-1][mdp.src]]] = True
        if not every and np.array_equal(now, reached[-1]):
            break
        reached.append(now)
    return reached


def most_likely(solver: PolicySolver, theta: FloatArray, start: object, goal: object) -> tuple[Demonstrations, float]:
    """Return the most likely trajectory from one state to another, and its log-probability, including log p0(start).

    With a stationary policy, the trajectory ends at its first visit to the goal. With a finite horizon, it ends with
    the action of stopping in the goal, and it may visit the goal before. If several trajectories are equally likely,
    the shortest is returned.
    """
    mdp = solver.pairs.mdp
    s, g = validate.state(mdp, start, "start"), validate.state(mdp, goal, "goal")
    if mdp.p0[s] == 0.0:
        raise InvalidParameter.of("start", s, "must be a state with p0 > 0", remedy="Use mdp.replace(p0=...).")
    if isinstance(solver, FiniteHorizonSolver):
        edges, log_prob = _viterbi(solver, theta, s, g)
    else:
        edges, log_prob = _shortest_path(solver, theta, s, g)
    states = np.concatenate([[s], mdp.dst[edges]]).astype(np.int64)
    actions = np.append(mdp.act[edges], -1).astype(np.int64)
    path = Demonstrations(states=states, offsets=np.array([0, states.size]), actions=actions)
    return path, float(mdp.log_p0[s]) + log_prob


def _shortest_path(solver: PolicySolver, theta: FloatArray, start: int, goal: int) -> tuple[IntArray, float]:
    """Return the edges of the most likely path and its log-probability, with Dijkstra's algorithm."""
    mdp = solver.pairs.mdp
    if not is_connected(mdp, start, goal):
        raise InvalidParameter.of("goal", goal, f"must be reachable from start = {start}")
    all_pairs = ObservedPairs(np.array([0, mdp.n_pairs]), mdp.pair_state.astype(np.int64), np.arange(mdp.n_pairs))
    log_pi = solver.solve(theta[None], all_pairs).log_prob[:, 0]
    log_edge = log_pi[mdp.pair_of_edge] + np.log(mdp.prob)
    # Rounding may leave log-probabilities slightly above 0.
    edges = shortest_path(mdp.src, mdp.dst, np.maximum(0.0, -log_edge), mdp.n_states, start, goal)
    return edges, float(log_edge[edges].sum())


def _viterbi(solver: FiniteHorizonSolver, theta: FloatArray, start: int, goal: int) -> tuple[IntArray, float]:
    """Return the edges of the most likely trajectory that stops in the goal and its log-probability."""
    mdp, policy = solver.pairs.mdp, solver.log_policies(theta)
    order, log_prob = mdp.in_order, np.log(mdp.prob)
    src, flat = mdp.src[order], np.zeros(mdp.n_states)

    def log_edges(log_pi: FloatArray) -> FloatArray:
        return np.asarray((log_pi[mdp.pair_of_edge] + log_prob)[order])

    layers = [np.full(mdp.n_states, -np.inf)]
    layers[0][start] = 0.0
    best, length = -math.inf, 0
    for t in range(solver.max_length):
        log_pi, log_stop = policy(t)
        if layers[t][goal] + log_stop[goal] > best:
            best, length = float(layers[t][goal] + log_stop[goal]), t
        if t == solver.max_length - 1 or layers[t].max() <= best:  # no longer trajectory is more likely
            break
        layers.append(np.empty(mdp.n_states))
        advance(mdp.in_ptr, src, log_edges(log_pi), None, 1.0, flat, 1.0, layers[t], layers[t + 1])
    if best == -math.inf:
        within = "at most" if solver.stop or mdp.terminal[goal] else "exactly"
        rule = f"must be reachable from start = {start} in {within} max_length = {solver.max_length} states"
        raise InvalidParameter.of("goal", goal, rule)
    edges, at = np.empty(length, dtype=np.int64), goal
    for t in range(length - 1, -1, -1):
        arrival = best_arrival(mdp.in_ptr, src, log_edges(policy(t)[0]), None, 1.0, layers[t], at)
        edges[t], at = order[arrival], int(src[arrival])
    return edges, best


def sample_finite_horizon(
    mdp: MDP, policy: Callable[[int], tuple[FloatArray, FloatArray]], n: int, rng: np.random.Generator, last: int
) -> Demonstrations:
    """Draw n trajectories of at most `last` transitions that start from p0.

    `policy(step)` returns the probabilities (P,) of pairs, given that the trajectory continues, and (S,) of stopping.
    """
    state = rng.choice(mdp.n_states, size=n, p=mdp.p0 / mdp.p0.sum())
    states, actions = np.full((n, last + 1), -1), np.full((n, last + 1), -1)
    states[:, 0] = state
    active = np.arange(n)
    for t in range(last):
        pi, stop = policy(t)
        mass = np.concatenate([[0.0], np.cumsum(pi[mdp.pair_of_edge] * mdp.prob)])
        here = states[active, t]
        low, high = mass[mdp.out_ptr[here]], mass[mdp.out_ptr[here + 1]]
        on = rng.random(active.size) >= stop[here]
        active, low, high = active[on], low[on], high[on]
        point = np.minimum(low + rng.random(active.size) * (high - low), np.nextafter(high, -np.inf))
        edge = np.searchsorted(mass[1:], point, side="right")
        actions[active, t], states[active, t + 1] = mdp.act[edge], mdp.dst[edge]
    visited = states >= 0
    offsets = np.concatenate([[0], np.cumsum(visited.sum(axis=1))])
    return Demonstrations(states[visited], offsets, actions[visited])
