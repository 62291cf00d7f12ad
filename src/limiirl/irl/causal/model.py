"""`CausalModel`, what `MaxCausalEnt` and `MLIRL` share: choices follow a policy, outcomes the dynamics as they are."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator

from limiirl._estimator import NoMetadataRouting
from limiirl._typing import FloatArray
from limiirl._validation import as_generator, check_count, check_positive
from limiirl.demos import Demonstrations, Groups, simulate
from limiirl.errors import InvalidParameter
from limiirl.irl import validate
from limiirl.irl.base import SUFFICIENT_STATISTICS, Capabilities, FitResult
from limiirl.irl.causal.finite_horizon import FiniteHorizonSolver
from limiirl.irl.causal.identifiability import causal_null_directions
from limiirl.irl.causal.likelihood import DecisionCounts
from limiirl.irl.causal.problem import CausalProblem, StateActionMoments
from limiirl.irl.causal.stationary import PolicySolver
from limiirl.irl.causal.trajectories import most_likely, walk
from limiirl.irl.maxent.inference import NextActions
from limiirl.irl.problem import FitProblem
from limiirl.kernels.soft_bellman import Moves
from limiirl.mdp import MDP


class CausalModel(Capabilities, NoMetadataRouting, BaseEstimator):  # type: ignore[misc]
    """A model of choices: p(tau | theta) = q(tau) prod_t pi_theta(a_t | s_t), with q as in `Demonstrations.log_q`.

    A model says how rewards lead to policies, by `_engine`; all else is here.
    """

    # The MDP alone decides which directions of reward have no effect; `null_directions` looks at no theta.
    null_directions_vary = False
    bounds: Any
    ridge: float
    gtol: float
    max_evaluations: int

    supports: ClassVar[frozenset[str]] = frozenset({SUFFICIENT_STATISTICS, "policy", "sample"})

    def _engine(self, mdp: MDP) -> PolicySolver:
        """Return the way from rewards to policies, checking the model's parameters."""
        raise NotImplementedError

    def _events(self, mdp: MDP, demos: Demonstrations, units: Groups, *, whole: bool = True) -> DecisionCounts:
        """Return the choices of demonstrations; without `whole` they may go on where they end."""
        del whole  # without a horizon, a demonstration is a beginning anyway
        validate.fits_model(mdp, demos, "anywhere", np.inf)
        return DecisionCounts(mdp, demos, units)

    def log_prob(self, mdp: MDP, thetas: ArrayLike, demos: Demonstrations) -> FloatArray:
        """Return the log-probability (N, K) of each demonstration under each of thetas (K, d), log q included.

        Where actions were not recorded, it is that of the states: each step has sum_a pi(a | s) P(s' | s, a).
        """
        return self._log_prob(mdp, thetas, demos, whole=True)

    def log_prob_prefix(self, mdp: MDP, thetas: ArrayLike, demos: Demonstrations) -> FloatArray:
        """Return the log-probability (N, K) that a trajectory begins with each demonstration, itself included."""
        return self._log_prob(mdp, thetas, demos, whole=False)

    def _log_prob(self, mdp: MDP, thetas: ArrayLike, demos: Demonstrations, *, whole: bool) -> FloatArray:
        engine = self._engine(mdp)
        checked, units = mdp.check_thetas(thetas), Groups.from_labels(None, len(demos))
        events = self._events(mdp, demos, units, whole=whole)
        return CausalProblem(self, mdp, demos, units, engine, events).log_prob(checked)

    def fit(
        self, mdp: MDP, demos: Demonstrations, weights: ArrayLike | None = None, start: ArrayLike | None = None
    ) -> FloatArray:
        """Return the parameters (d,) that maximise the weighted log-likelihood, less the ridge, within the bounds.

        Parameters
        ----------
        weights : (N,), optional
            How much each demonstration counts; equal by default.
        start : (d,), optional
            Where to begin. By default 0, moved into the bounds. Where moves are uncertain the likelihood may have
            several maxima, and the start decides which is found.
        """
        given = validate.weights(weights, validate.demonstrations(demos), columns=False)
        result = self._fit(mdp, demos, given, None if start is None else validate.one_theta(mdp, start)[None])[0]
        validate.warn_unless_converged(result)
        directions = self.null_directions(mdp, result.theta)
        self.result_ = validate.identified(result, directions, self.bounds, mdp)
        self.theta_ = self.result_.theta
        return self.theta_

    def null_directions(self, mdp: MDP, theta: ArrayLike) -> FloatArray:
        """Return an orthonormal basis (m, d) of the directions in which no policy changes; the MDP alone decides.

        In very large MDPs with very many features they are not looked for; see `causal_null_directions`.

        Examples
        --------
        Without an end, what is earned in every state alike changes no choice.

        >>> from limiirl.irl.causal.mlirl import MLIRL
        >>> mdp = MDP.from_edges([0, 0, 1], [0, 1, 0], gamma=0.9, state_features=[[1, 0], [1, 1]])
        >>> MLIRL().null_directions(mdp, [0, 0])
        array([[1., 0.]])
        """
        validate.one_theta(mdp, theta)
        return causal_null_directions(self._engine(mdp))

    def most_likely(self, mdp: MDP, theta: ArrayLike, start: int, goal: int) -> tuple[Demonstrations, float]:
        """Return the most probable trajectory from one state to another, and its log-probability.

        It follows the policy and the dynamics. Without a horizon it ends where it first reaches the goal; with one it
        stops there, as the model has it.

        Examples
        --------
        >>> from limiirl.irl.causal.mlirl import MLIRL
        >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2], p0=[1, 0, 0])
        >>> demos, log_prob = MLIRL(beta=1.0).most_likely(mdp, [0, 1, 0], 0, 2)  # state 1 is worth a detour
        >>> demos.states, round(log_prob, 4)
        (array([0, 1, 2]), -0.3133)
        """
        return most_likely(self._engine(mdp), validate.one_theta(mdp, theta), start, goal)

    def fit_many(
        self, mdp: MDP, demos: Demonstrations, weights: ArrayLike, starts: ArrayLike | None = None
    ) -> FloatArray:
        """Return parameters (K, d), one row for each column of weights (N, K).

        `starts` is (K, d). Each row is what `fit` returns for that column, without its report.
        """
        given = validate.weights(weights, validate.demonstrations(demos), columns=True)
        results = self._fit(mdp, demos, given, None if starts is None else mdp.check_thetas(starts))
        return np.array([result.theta for result in results])

    def _fit(self, mdp: MDP, demos: Demonstrations, weights: FloatArray, starts: FloatArray | None) -> list[FitResult]:
        ready, K = self._prepare(mdp, demos, Groups.from_labels(None, len(demos))), weights.shape[1]
        if starts is not None and starts.shape[0] != K:
            raise InvalidParameter(
                f"There must be one start for each of {K} columns of weights; there are {starts.shape[0]}.",
                parameter="starts",
                value=starts.shape,
            )
        moments = StateActionMoments(ready.events.total(weights), weights.sum(axis=0))
        ridge = np.full(K, check_positive(self.ridge, "ridge", zero=True))
        results = ready.search(moments, ridge, starts, check_count(self.max_evaluations, "max_evaluations"))
        self.results_ = results
        for name in ("result_", "theta_"):  # of an earlier fit
            self.__dict__.pop(name, None)
        return results

    def make_problem(self, mdp: MDP, demos: Demonstrations, units: Groups) -> FitProblem:
        """Return the model with the data of a mixture, for `IntentMixture`."""
        if SUFFICIENT_STATISTICS not in self.supports:
            return FitProblem(self, mdp, demos, units)  # a subclass with a likelihood of its own
        return self._prepare(mdp, demos, units)

    def _prepare(self, mdp: MDP, demos: Demonstrations, units: Groups) -> CausalProblem:
        engine = self._engine(mdp)
        events = self._events(mdp, validate.demonstrations(demos), units)
        return CausalProblem(self, mdp, demos, units, engine, events)

    def policy(self, mdp: MDP, theta: ArrayLike, step: int = 0) -> FloatArray:
        """Return the probability (S, A) of each action for those who go on from each state at a step.

        Rows are zero where nobody can go on. Without a horizon the step does not matter.
        """
        engine = self._engine(mdp)
        whole = isinstance(step, int | np.integer) and not isinstance(step, bool)
        if not whole or step < 0 or 0 < self._last_step() < step:
            upper = f" and at most max_length - 1 = {self._last_step()}" if self._last_step() else ""
            raise InvalidParameter(
                f"step must be a whole number, at least 0{upper}; got {step!r}.", parameter="step", value=step
            )
        return engine.choices.policy(engine.policy(validate.one_theta(mdp, theta), int(step))[0])

    def residual(self, mdp: MDP, thetas: ArrayLike) -> FloatArray:
        """Return (K,), how far Bellman's equation of thetas (K, d) is from solved, relative to the largest value.

        Rounding, or 0, but for `MLIRL` with q="bv", whose number of sweeps is fixed.
        """
        nothing = np.zeros(0, dtype=np.int64)
        nobody = Moves(np.zeros(2 + self._last_step(), dtype=np.int64), nothing, nothing)
        return self._engine(mdp).solve(mdp.check_thetas(thetas), nobody).residual

    def next_actions(self, mdp: MDP, thetas: ArrayLike, demos: Demonstrations) -> NextActions:
        """Return the probabilities of each next action (N, K, A) and of stopping (N, K), given that it began so."""
        engine, checked = self._engine(mdp), mdp.check_thetas(thetas)
        self._events(mdp, demos, Groups.from_labels(None, len(demos)), whole=False)
        action = np.zeros((len(demos), checked.shape[0], mdp.n_actions))
        stop = np.zeros(action.shape[:2])
        last, at = demos.last_states, self._step_of(demos)
        for t in np.unique(at):
            here = np.flatnonzero(at == t)
            for k, theta in enumerate(checked):
                pi, stops = engine.policy(theta, int(t))
                stop[here, k] = np.where(mdp.terminal[last[here]], 1.0, stops[last[here]])
                action[here, k] = (1.0 - stop[here, k, None]) * engine.choices.policy(pi)[last[here]]
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
        """Draw n trajectories from the model, starts from p0; without a horizon, cut after `max_length` states.

        Examples
        --------
        >>> from limiirl.irl.causal.mlirl import MLIRL
        >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2], p0=[1, 0, 0])
        >>> MLIRL().sample(mdp, [0.0, 0.0, 0.0], 1000, seed=0).lengths.mean().round(1)
        np.float64(2.5)
        """
        engine, checked = self._engine(mdp), validate.one_theta(mdp, theta)
        rng, wanted = as_generator(seed), check_count(n, "n")
        last = self._last_step()
        if not last:
            pi, _ = engine.policy(checked, 0)
            return simulate(mdp, pi, wanted, rng, max_length=check_count(max_length, "max_length"))
        policy = (
            engine.policies(checked) if isinstance(engine, FiniteHorizonSolver) else partial(engine.policy, checked)
        )
        return walk(mdp, policy, wanted, rng, last)

    def _last_step(self) -> int:
        """Return the last step at which anything is decided, 0 where policies are the same at all steps."""
        return 0

    def _step_of(self, demos: Demonstrations) -> NDArray[np.int64]:
        """Return (N,) the step at which each demonstration ends, where policies depend on it."""
        return np.zeros(len(demos), dtype=np.int64)
