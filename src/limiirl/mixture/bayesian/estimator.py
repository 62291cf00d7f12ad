"""`BayesianIntentMixture`: a Dirichlet process mixture of intents by variational inference (ADR 0011)."""

from __future__ import annotations

import warnings
from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri
from sklearn.base import BaseEstimator

from limiirl._parallel import one_thread
from limiirl._progress import Progress, check_progress, report_progress
from limiirl._typing import FloatArray
from limiirl._validation import check_count, check_level, check_positive
from limiirl.demos import Demonstrations, resolve_environments
from limiirl.errors import ConvergenceWarning, InvalidParameter, ModelMismatchWarning
from limiirl.irl import FitProblem, make_problem
from limiirl.mdp import RewardEnsemble
from limiirl.mixture import validate
from limiirl.mixture.bayesian.reward_posterior import RewardPrior, check_model, node_weights
from limiirl.mixture.bayesian.search import SearchResult, search
from limiirl.mixture.bayesian.variational import Concentration, VariationalProblem
from limiirl.mixture.estimator import IntentMixture
from limiirl.mixture.inference import FittedMixture
from limiirl.mixture.init import Starts, check_choices, is_given, standardise
from limiirl.mixture.summary import Summary

# Probability mass of a Gaussian within one standard deviation of its mean.
_ONE_SIGMA = 0.6827
# Number of posteriors per intent whose cubature nodes are stored: the current one and two trials.
_GENERATIONS = 3


class BayesianIntentMixture(FittedMixture, BaseEstimator):  # type: ignore[misc]
    r"""A mixture with an unknown number of intents: a Dirichlet process prior over their rewards.

    The variational posterior consists of responsibilities, Beta stick-breaking weights, and one Gaussian per intent for
    its rewards. Coordinate ascent maximises the evidence lower bound, and intents are merged, deleted and split if that
    raises the bound further. The bound includes the Kullback-Leibler divergence of each reward posterior from the
    prior, which penalises additional intents. The result is deterministic given `random_state`, and independent of the
    order of demonstrations unless `init` is "best" or a function.

    `standard_errors`, `bic`, `aic` and `icl` are computed at the posterior medians from the likelihood alone;
    `credible_intervals` and `bound_` include the prior.

    Parameters
    ----------
    max_intents : int
        Initial and maximum number of intents.
    irl : model, optional
        Single-intent model with `fit` and `log_prob`, by default the choice of `limiirl.irl.default_model`. It is
        cloned, never modified. The prior replaces its ridge, and its `solver`, `gtol` and `max_evaluations` are not
        used. `SigmaGIRL` has no Gaussian posterior and is rejected.
    init : str, array, RewardEnsemble, clusterer or callable
        As for `IntentMixture`, with at most `max_intents` intents.
    concentration : float or (shape, rate)
        alpha of the Dirichlet process: about alpha log(1 + N / alpha) intents are expected a priori. For a pair, alpha
        has a Gamma prior and is inferred.
    prior_scale : float
        Rewards are N(0, prior_scale^2) a priori, truncated to the model's bounds. A larger scale penalises additional
        intents more.
    embedding : {"shares", "gradients"}, (N, m) array or callable, optional
        Points for the initial clustering and for splits, as for `IntentMixture`.
    max_iter : int
        Maximum number of iterations of coordinate ascent after the last move.
    bound_tol : float
        Coordinate ascent has converged when an iteration increases the bound by less than this many nats.
    random_state : int, Generator, RandomState or None
        Seed of the initial clustering; everything else is deterministic.
    progress : callable, optional
        Called as ``progress(done, None, message)`` after each step; `history_` records the steps.
    verbose : bool
        Show the progress on stderr: a bar on a terminal, lines elsewhere.

    Attributes
    ----------
    n_intents_ : int
    weights_, thetas_, ensemble_ : (K,), (K, d), RewardEnsemble
        Normalised expected weights, and posterior medians of the rewards. Intents are in decreasing order of size.
    responsibilities_, labels_ : (N, K), (N,)
        The variational posterior over intents; `predict_proba` uses the point estimates and may differ slightly.
    groups_, group_responsibilities_ : (G,), (G, K)
        Names and posteriors of groups; None if `fit` was called without groups.
    bound_ : float
        Evidence lower bound of all demonstrations. Expectations over rewards are computed by cubature, which is exact
        for log-likelihoods that are quadratic in the rewards; in ADR 0011, the error is up to 0.25 nats per intent.
    intent_posterior_ : dict of int to float
        Posterior probability of each number of intents visited by the search, computed from the best partition with
        that number. All labellings of the partition are counted, but `bound_` is for a single labelling, so the most
        probable number may differ from `n_intents_`.
    expected_intents_ : float
        Mean of `intent_posterior_`.
    new_intent_weight_ : float
        Probability alpha / (alpha + G) that the next demonstration, or group, has a new intent.
    concentration_ : float
        alpha, or its posterior mean.
    history_ : list of SearchStep
    n_iter_, converged_ : int, bool
        Number of iterations, excluding rejected moves, and whether the last one met `bound_tol`.
    irl_, mdp_ : model, MDP
        Fitted copy of `irl`, and the MDP.

    Examples
    --------
    >>> from limiirl import BayesianIntentMixture, MDP, Demonstrations, MaxEnt
    >>> phi = [[0, 0], [1, 0], [0, 1], [0, 0]]
    >>> mdp = MDP.from_edges([0, 0, 1, 2], [1, 2, 3, 3], p0=[1, 0, 0, 0], state_features=phi)
    >>> demos = Demonstrations.from_lists([[0, 1, 3]] * 5 + [[0, 2, 3]] * 3)
    >>> mix = BayesianIntentMixture(4, MaxEnt(bounds=(-5, 5)), random_state=0).fit(mdp, demos)
    >>> mix.n_intents_  # a single stochastic intent explains eight short trajectories equally well
    1
    >>> mix.fit(mdp, demos, groups=[0, 1, 2, 0, 1, 3, 3, 3]).n_intents_  # four groups, each with one path only
    2
    """

    def __init__(  # noqa: PLR0913 (an estimator's parameters, each with a default)
        self,
        max_intents: int = 10,
        irl: Any = None,
        init: Any = "kmeans",
        *,
        concentration: Concentration = 1.0,
        prior_scale: float = 10.0,
        embedding: Any = None,
        max_iter: int = 200,
        bound_tol: float = 1e-3,
        random_state: Any = None,
        progress: Progress | None = None,
        verbose: bool = False,
    ) -> None:
        self.max_intents = max_intents
        self.irl = irl
        self.init = init
        self.concentration = concentration
        self.prior_scale = prior_scale
        self.embedding = embedding
        self.max_iter = max_iter
        self.bound_tol = bound_tol
        self.random_state = random_state
        self.progress = progress
        self.verbose = verbose

    def fit(
        self, mdp: Any, demos: Demonstrations | None = None, groups: ArrayLike | None = None
    ) -> BayesianIntentMixture:
        """Infer the intents of demonstrations and their number.

        Parameters
        ----------
        mdp : MDP, or list or mapping of pairs (MDP, Demonstrations)
            Pairs are environments with the same intents; see `combine_environments`. `demos` is omitted then.
        demos : Demonstrations
        groups : (N,), optional
            Group of each demonstration; all demonstrations of a group have the same intent.
        """
        mdp, demos = resolve_environments(mdp, demos)
        most, max_iter = check_count(self.max_intents, "max_intents"), validate.check_max_iter(self.max_iter)
        scale, concentration = check_positive(self.prior_scale, "prior_scale"), _concentration(self.concentration)
        tol = check_positive(self.bound_tol, "bound_tol", zero=True)
        check_choices(self.init, self.embedding)
        check_progress(self.progress)
        demos = validate.check_demos(demos, mdp)
        irl, choice = validate.resolve_model(self.irl, mdp, demos)
        problem = make_problem(irl, mdp, demos, groups)
        check_model(problem)
        prior = RewardPrior(problem.box(_n_parameters(problem)), scale)
        starts = Starts(self.init, self.embedding, problem, prior.box.lower.size)
        # With one thread, sums in linear algebra have a fixed order.
        with one_thread("blas"), report_progress("search", self.verbose, self.progress) as report:
            variational = VariationalProblem(problem, prior, concentration, standardise(starts.points))
            # Sweeps evaluate the nodes of accepted posteriors three times.
            problem.store_solutions(_GENERATIONS * most * len(node_weights(prior.box.lower.size)))
            result = search(variational, self._start(starts, most), most, max_iter, tol, report)
            problem.store_solutions(0)
        self.irl_, self.model_choice_, self.data_file_ = problem.model, choice, None
        self._store(result, problem, prior)
        if not result.converged:
            what = f"the bound still increases by more than bound_tol={tol:g} nats per iteration"
            message = (
                f"Coordinate ascent did not converge in {max_iter} iterations: {what}. Raise max_iter or bound_tol."
            )
            warnings.warn(message, ConvergenceWarning, stacklevel=validate.caller_stacklevel())
        return self

    def _start(self, starts: Starts, most: int) -> FloatArray:
        """Return initial responsibilities (G, K)."""
        problem, rng = starts.problem, np.random.default_rng(validate.spawn_seeds(self.random_state, 1)[0])
        K = min(most, len(problem.units))
        if starts.seeks_best:
            start = starts.begin(K, "mle", rng)  # the warnings about empty clusters are ignored
            assert start.U is not None  # init='best' always clusters
            return start.U
        if is_given(self.init):
            guess = starts.guess(_count_given_intents(self.init, most), rng)
        elif isinstance(self.init, str) or not callable(self.init):
            # Clusterers sample points by index: sort them, so that the order of demonstrations does not matter.
            guess = starts.guess(K, rng, order=np.lexsort(starts.points.T[::-1]))
        else:  # a function may rely on the order of demonstrations
            guess = starts.guess(K, rng)
        if not isinstance(guess, RewardEnsemble):
            return np.asarray(guess)
        _check_at_most(guess.n_intents, most)
        validate.check_ensemble(guess, guess.n_intents, problem)
        U = np.zeros((len(problem.units), guess.n_intents))
        problem.e_step(np.asarray(guess.weights), np.asarray(guess.thetas), U)
        return U

    def _store(self, result: SearchResult, problem: FitProblem, prior: RewardPrior) -> None:
        state, units = result.state, problem.units
        self.n_intents_ = state.n_intents
        expected = state.stick_posterior.weights
        self.weights_ = expected / expected.sum()
        self.thetas_ = np.ascontiguousarray(prior.theta(state.rewards.mean))
        self.responsibilities_ = units.broadcast(state.U)
        self.labels_ = np.argmax(self.responsibilities_, axis=1)
        self.groups_ = units.names if units.grouped else None
        self.group_responsibilities_ = state.U if units.grouped else None
        self.bound_, self.concentration_ = state.bound, state.stick_posterior.concentration
        self.new_intent_weight_ = self.concentration_ / (self.concentration_ + len(units))
        numbers = sorted(result.evidence)
        log_evidence = np.array([result.evidence[number] for number in numbers])
        p = np.exp(log_evidence - log_evidence.max())
        self.intent_posterior_ = dict(zip(numbers, (p / p.sum()).tolist(), strict=True))
        self.expected_intents_ = float(sum(number * p for number, p in self.intent_posterior_.items()))
        self.history_, self.converged_ = result.history, result.converged
        self.n_iter_ = sum(step.event == "sweep" for step in result.history)
        self.mdp_, self._problem = problem.mdp, problem
        self._posterior_of_rewards, self._prior = state.rewards, prior

    @property
    def mixture_(self) -> IntentMixture:
        """An `IntentMixture` with these weights and rewards; its `fit` starts EM from them."""
        validate.check_fitted(self)
        cached = self.__dict__.get("_mixture")
        if cached is None or cached[0] is not self.thetas_:  # one per fit
            self._mixture = (self.thetas_, self._as_mixture())
        mixture: IntentMixture = self._mixture[1]
        return mixture

    def _as_mixture(self) -> IntentMixture:
        problem = self._problem
        mixture = IntentMixture(len(self.weights_), self.irl, init=self.ensemble_, max_iter=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ModelMismatchWarning)  # already issued by `fit`
            mixture.fit(problem.mdp, problem.demos, problem.units.labels)
        mixture.set_params(max_iter=IntentMixture().max_iter)
        # EM did not iterate: convergence and number of iterations are those of coordinate ascent.
        change = float(np.mean(np.sum(np.abs(mixture.responsibilities_ - self.responsibilities_), axis=1)))
        mixture.history_ = [replace(mixture.history_[0], change=change)]
        mixture.converged_, mixture.n_iter_ = self.converged_, self.n_iter_
        mixture.model_choice_, mixture.data_file_ = self.model_choice_, self.data_file_
        mixture.weights_ = self.weights_  # undo rounding by EM, which renormalises the weights
        return mixture

    def credible_intervals(self, level: float = 0.95) -> FloatArray:
        """Return the central credible interval (K, d, 2) of each reward, within the bounds.

        Examples
        --------
        >>> from limiirl import BayesianIntentMixture, MDP, Demonstrations, MaxEnt
        >>> mdp = MDP.from_edges([0], [1], p0=[1, 0], state_features=[[0], [1]])
        >>> demos = Demonstrations.from_lists([[0]] * 20 + [[0, 1]] * 20)
        >>> mix = BayesianIntentMixture(1, MaxEnt(2, bounds=None)).fit(mdp, demos)
        >>> mix.credible_intervals().round(1).tolist()
        [[[-0.6, 0.6]]]
        """
        validate.check_fitted(self)
        check_level(level)
        rewards = self._posterior_of_rewards
        width = float(ndtri(0.5 + 0.5 * level)) * np.linalg.norm(rewards.root, axis=2)
        return np.stack([self._prior.theta(rewards.mean - width), self._prior.theta(rewards.mean + width)], axis=2)

    def summary(
        self,
        demos: Demonstrations | None = None,
        groups: ArrayLike | None = None,
        *,
        covariates: Any = None,
        **options: Any,
    ) -> Summary:
        """Return the summary of the posterior medians, with the half-widths of 68 % credible intervals as errors.

        Likelihood and BIC exclude the prior; `bound_` includes it. Options of `IntentMixture.summary` do not apply to
        credible intervals; `mixture_.summary` accepts them.
        """
        if options:
            name = next(iter(options))
            message = f"{name} does not apply to credible intervals. Call mixture_.summary({name}=...) instead."
            raise InvalidParameter(message, parameter=name, value=options[name])
        validate.check_fitted(self)
        moves = sum(step.event not in ("start", "sweep") for step in self.history_)
        status = "converged" if self.converged_ else "not converged: raise max_iter or bound_tol"
        how = self.init if isinstance(self.init, str) else "given" if is_given(self.init) else type(self.init).__name__
        return replace(
            self.mixture_.summary(demos, groups, covariates=covariates),
            estimator="BayesianIntentMixture",
            errors=0.5 * np.ptp(self.credible_intervals(_ONE_SIGMA), axis=2),
            weight_errors=np.full(len(self.weights_), np.nan),
            wald=False,
            status=np.full(self.thetas_.shape, "ok"),
            spread="half-width of the 68 % credible interval",
            init=f"{how}, {self.history_[0].n_intents} initial intents",
            convergence=f"not used; variational inference: {self.n_iter_} iterations, {moves} moves, {status}",
            starts=f"1; evidence lower bound {self.bound_:.2f}",
        )

    def align_to(self, other: IntentMixture | RewardEnsemble) -> IntentMixture:
        """Return an `IntentMixture` with the same intents, in the order of the intents of `other`."""
        return self.mixture_.align_to(other)

    def save(self, folder: str | PathLike[str]) -> None:
        """Write the weights and rewards as an `IntentMixture`, which `IntentMixture.load` reads.

        The posterior of the rewards is not written, and there is no `BayesianIntentMixture.load`.
        """
        self.mixture_.save(folder)


def _concentration(given: Any) -> Concentration:
    """Return alpha, or the shape and rate of its prior."""
    if not isinstance(given, tuple | list):
        return check_positive(given, "concentration")
    if len(given) != 2:
        raise InvalidParameter.of("concentration", given, "must be a number, or (shape, rate) of a Gamma prior")
    return check_positive(given[0], "concentration"), check_positive(given[1], "concentration")


def _n_parameters(problem: FitProblem) -> int:
    """Return the number d of rewards; fit a single intent if the model does not declare it."""
    if problem.n_parameters is not None:
        return problem.n_parameters
    pooled = problem.moments(np.ones((len(problem.units), 1)))
    return int(problem.m_step(pooled, None, np.arange(1)).thetas.shape[1])


def _count_given_intents(init: Any, most: int) -> int:
    """Return the number of intents of an array or ensemble; for labels, return `most`."""
    if isinstance(init, RewardEnsemble):
        return init.n_intents
    try:
        given = np.asarray(init)
    except ValueError:  # ragged: `Starts.guess` raises
        return most
    if given.ndim == 1 and given.dtype.kind in "iuU":
        _check_at_most(np.unique(given[given >= 0] if given.dtype.kind == "i" else given).size, most)
    if given.ndim != 2:
        return most
    _check_at_most(given.shape[1], most)
    return int(given.shape[1])


def _check_at_most(n_intents: int, most: int) -> None:
    if n_intents > most:
        raise InvalidParameter.of("init", n_intents, f"must have at most max_intents={most} intents")
