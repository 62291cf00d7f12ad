"""`IntentMixture`: a mixture of intents fitted by expectation-maximisation."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from limiirl._parallel import Mapper
from limiirl._progress import Progress, report_progress
from limiirl._validation import check_count
from limiirl.demos import Demonstrations, resolve_environments
from limiirl.errors import BoundWarning, ConvergenceWarning, DegenerateIntentWarning
from limiirl.irl import FitProblem
from limiirl.mdp import RewardEnsemble
from limiirl.mixture import io, validate
from limiirl.mixture.em import Solution, Start, State, nearly_empty, report_iterations, run
from limiirl.mixture.inference import FittedMixture
from limiirl.mixture.init import check_choices, find_equal_pair, find_indistinct_pair, is_given
from limiirl.mixture.restarts import EMFromSeed, Restart, compare

# Minimum number of rewards on bounds for a warning; in small examples, all rewards may be on bounds.
_MANY = 10
# Difference between coefficients of standardised covariates from which a warning is issued: the odds of two intents
# differ by a factor of 20,000 between units one standard deviation apart.
_SEPARATED = 10.0


class IntentMixture(FittedMixture, BaseEstimator):  # type: ignore[misc]
    r"""A mixture of intents: p(tau) = sum_k rho_k p(tau | theta_k), fitted by EM from a warm start (LiMIIRL).

    Demonstrations are clustered in feature space, a reward is fitted to each cluster, and EM refines rewards, mixture
    weights and responsibilities. The single-intent model is any object with `fit` and `log_prob`.

    Parameters
    ----------
    n_intents : int
        K, the number of intents.
    irl : model, optional
        Single-intent model, by default the choice of `limiirl.irl.default_model` for the MDP and demonstrations. It is
        cloned, never modified.
    init : str, array, RewardEnsemble, clusterer or callable
        "kmeans"; "gmm" (soft clusters); "best" (k-means, GMM or k-means on gradients, whichever has the highest
        objective); "random" (random responsibilities); "random_rewards" (the paper's baseline); labels (N,);
        responsibilities (N, K); a `RewardEnsemble`; a scikit-learn clusterer; or a function of points (N, m), K and a
        Generator that returns labels, responsibilities or a `RewardEnsemble`.
    reward_init : {"mle", "mean", "mean_clipped", "mean_ray"} or callable
        Initial reward of a cluster: the maximum likelihood estimate ("mle"); the mean features of the cluster minus the
        overall mean ("mean"); this difference clipped to the bounds; or this difference times the factor that maximises
        the likelihood ("mean_ray").
    embedding : {"shares", "gradients"}, (N, m) array or callable, optional
        Points to cluster instead of feature counts: feature counts divided by their sum ("shares"), which removes the
        effect of the length of a trajectory; gradients of the log-likelihood; an array; or a function of (mdp, demos).
    refine : {"split_merge"}, optional
        After EM, try moves that split one intent and merge two others; moves that raise the objective are accepted.
    n_init : int
        Number of initialisations; the solution with the highest objective is kept. EM is run only once if `init`
        contains labels, responsibilities or rewards.
    max_iter : int
        Maximum number of M-steps, for the fit and for each move of `refine`; 0 returns the initial ensemble.
    resp_tol : float
        EM has converged when the mean absolute change in responsibilities is below this value (the paper's rule).
    likelihood_tol : float, optional
        EM has also converged when the objective increases by less than this value.
    max_evaluations : int, optional
        Maximum number of evaluations of the objective per M-step; by default 50, as in the paper, or the model's own
        `max_evaluations` if it is smaller or if there is a single intent. Models that do not support a limit raise an
        error. A truncated M-step never lowers the likelihood.
    degenerate : {"fit", "keep", "reseed"}
        Treatment of a nearly empty intent. "fit": fit its reward like the others, after which the intent often
        recovers. "keep": keep its reward. "reseed": assign the demonstration with the lowest likelihood to it. See ADR
        0006 for a comparison.
    annealing : (temperature, iterations), optional
        Deterministic annealing: responsibilities are tempered, and the temperature falls to 1 over the iterations.
    accelerate : bool
        After every three M-steps, maximise the marginal likelihood by a quasi-Newton search. The stationary points are
        those of EM, and the objective never decreases. Use it where EM needs many iterations because intents overlap.
    shared : str or sequence of str, optional
        Names of features, or patterns such as ``"link *"``, whose rewards are equal for all intents: theta_k = shared +
        delta_k, where delta_k is 0 for these features. Constants per link or turn remain estimable with several
        intents, and count once in BIC. Requires a model with gradients.
    membership_ridge : float
        Coefficient of the penalty ``ridge / 2 sum_k |D_k - mean(D)|^2`` on the total log-likelihood, where D_k are the
        coefficients of the standardised `covariates` of `fit`: 1 / variance of a Gaussian prior.
    random_state : int, Generator, RandomState or None
        Seed of the clusterings and random initialisations; results are reproducible for an integer.
    progress : callable, optional
        Called as ``progress(done, total, message)`` after every iteration; `history_` records the iterations.
    verbose : bool
        Show the progress on stderr: a bar on a terminal, lines elsewhere.

    Attributes
    ----------
    weights_, thetas_ : (K,), (K, d)
        Mixture weights and rewards; with covariates, the mean weights over demonstrations or groups.
    membership_ : MembershipLogit or None
        Mixture weights by covariates: coefficients, odds ratios, marginal effects and predicted weights.
    membership_logits_, covariates_ : (K, 1 + m), CovariateScale, or None
        Intercepts and coefficients of standardised covariates, relative to intent 0, and the scale of the covariates.
    ensemble_ : RewardEnsemble
        `weights_` and `thetas_` as one object.
    responsibilities_, labels_ : (N, K), (N,)
        Posterior over the intents of each demonstration, and the most probable intent.
    groups_, group_responsibilities_ : (G,), (G, K)
        Names and posteriors of groups; None if `fit` was called without groups.
    log_likelihood_, objective_ : float
        Mean log-likelihood per demonstration, or per group, without and with the model's penalty.
    history_ : list of Iteration
        Likelihood, change in responsibilities, and weights at each iteration of the best initialisation.
    n_iter_, converged_ : int, bool
        Number of M-steps, and whether a stopping rule was met.
    restarts_ : list of Restart
        The result of each initialisation, and its distance from the best.
    irl_, mdp_ : model, MDP
        Copy of `irl` with parameters resolved from the data, such as `max_length`, and the MDP.
    model_choice_ : str
        Explanation of the default model; empty if `irl` was given.
    data_file_ : dict or None
        Path, checksum and options of the file of demonstrations, set by the command line, so that `limiirl report`
        finds them; None after a fit in Python.

    Examples
    --------
    >>> from limiirl import MDP, Demonstrations, IntentMixture, MaxEnt
    >>> phi = [[0, 0], [1, 0], [0, 1], [0, 0]]
    >>> mdp = MDP.from_edges([0, 0, 1, 2], [1, 2, 3, 3], p0=[1, 0, 0, 0], state_features=phi)
    >>> demos = Demonstrations.from_lists([[0, 1, 3]] * 3 + [[0, 2, 3]])
    >>> mix = IntentMixture(n_intents=2, irl=MaxEnt(bounds=(-5, 5)), random_state=0).fit(mdp, demos)
    >>> mix.labels_.tolist()
    [0, 0, 0, 1]
    >>> mix.weights_.round(2)
    array([0.75, 0.25])
    """

    def __init__(  # noqa: PLR0913 (an estimator's parameters, each with a default)
        self,
        n_intents: int = 2,
        irl: Any = None,
        init: Any = "kmeans",
        reward_init: Any = "mle",
        *,
        embedding: Any = None,
        refine: str | None = None,
        n_init: int = 1,
        max_iter: int = 100,
        resp_tol: float = 1e-6,
        likelihood_tol: float | None = None,
        max_evaluations: int | None = None,
        degenerate: str = "fit",
        annealing: tuple[float, int] | None = None,
        accelerate: bool = False,
        shared: str | Sequence[str] | None = None,
        membership_ridge: float = 0.0,
        random_state: Any = None,
        progress: Progress | None = None,
        verbose: bool = False,
    ) -> None:
        self.n_intents = n_intents
        self.irl = irl
        self.init = init
        self.reward_init = reward_init
        self.embedding = embedding
        self.refine = refine
        self.n_init = n_init
        self.max_iter = max_iter
        self.resp_tol = resp_tol
        self.likelihood_tol = likelihood_tol
        self.max_evaluations = max_evaluations
        self.degenerate = degenerate
        self.annealing = annealing
        self.accelerate = accelerate
        self.shared = shared
        self.membership_ridge = membership_ridge
        self.random_state = random_state
        self.progress = progress
        self.verbose = verbose

    def fit(
        self,
        mdp: Any,
        demos: Demonstrations | None = None,
        groups: ArrayLike | None = None,
        *,
        covariates: Any = None,
        executor: Mapper | None = None,
    ) -> IntentMixture:
        """Learn the intents of demonstrations.

        Parameters
        ----------
        mdp : MDP, or list or mapping of pairs (MDP, Demonstrations)
            Pairs are environments with the same intents; see `combine_environments`. `demos` is omitted then, and other
            arguments have one row per demonstration of all environments, in order.
        demos : Demonstrations
        groups : (N,), optional
            Group of each demonstration, such as a driver, an animal or a recording (see `demos.groups`). All
            demonstrations of a group have the same intent, and mixture weights are fractions of groups.
        covariates : (N, m) array, data frame, pyarrow Table or mapping of columns, optional
            Mixture weights are softmax_k(c_k + D_k . x_i), with c_0 = 0 and D_0 = 0, for the row x_i of each
            demonstration or group. Rows of a table with a column demo or group are matched by it; otherwise, there is
            one row per demonstration, or one per group in sorted order. Text columns have one indicator per level
            except the first.
        executor : limiirl.executors.Executor or concurrent.futures.Executor, optional
            Runs the `n_init` initialisations in parallel. The result is the same, bit for bit. `progress` is called
            with the iterations of an initialisation after it has finished.

        Returns
        -------
        IntentMixture
            This estimator.
        """
        mdp, demos = resolve_environments(mdp, demos)
        settings = validate.make_settings(self, validate.find_shared(self.shared, mdp))
        n_init = check_count(self.n_init, "n_init", bytes_each=500.0)
        check_choices(self.init, self.embedding, self.reward_init)
        demos = validate.check_demos(demos, mdp)
        irl, choice = validate.resolve_model(self.irl, mdp, demos)
        scale, design = validate.make_weight_design(covariates, demos, groups, self.membership_ridge)
        em = EMFromSeed(self, irl, settings, mdp, demos, groups, design)
        validate.check_enough_units(self.n_intents, em.problem.units)
        seeds = validate.spawn_seeds(self.random_state, 1 if is_given(self.init) else n_init)
        with report_progress("EM", self.verbose, self.progress) as report:
            em.report_to(report, len(seeds))
            outcomes = list(map(em, enumerate(seeds))) if executor is None else em.map(seeds, executor)
        solutions = [outcome.solution for outcome in outcomes]
        best = solutions[int(np.argmax([solution.objective for solution in solutions]))]
        self._store(best, em.problem, compare(solutions, best))
        self.model_choice_, self.data_file_, self.covariates_ = choice, None, scale
        messages = dict.fromkeys(message for outcome in outcomes for message in outcome.warnings)
        self._warn(best, em.problem, messages, {k for outcome in outcomes for k in outcome.empty})
        return self

    def fit_from(
        self, problem: FitProblem, start: Start | State, *, keep: Callable[[State], None] | None = None
    ) -> IntentMixture:
        """Run EM on a fit problem from one initialisation; used by `limiirl.streams`.

        Parameters
        ----------
        problem : FitProblem
            A model with statistics of demonstrations, in memory or streamed. Attributes with one row per demonstration
            are None for a streamed problem.
        start : Start or State
        keep : callable, optional
            Called with the `State` after each iteration.
        """
        settings = validate.make_settings(self, validate.find_shared(self.shared, problem.mdp))
        with report_progress("EM", self.verbose, self.progress) as report:
            solution = run(problem, start, settings, report_iterations(report, 0, 1, settings.max_iter), keep)
        ensemble = RewardEnsemble(solution.rho, solution.thetas)
        restart = Restart(solution.objective, solution.n_iter, solution.converged, ensemble, 0.0, True)
        self._store(solution, problem, [restart])
        self.model_choice_, self.data_file_, self.covariates_ = "", None, None
        messages, empty = (start.warnings, start.empty) if isinstance(start, Start) else ((), ())
        self._warn(solution, problem, messages, empty)
        return self

    def _store(self, best: Solution, problem: FitProblem, restarts: list[Restart]) -> None:
        units, kept = problem.units, isinstance(best.U, np.ndarray)
        self.weights_, self.thetas_, self.membership_logits_ = best.rho, best.thetas, best.logits
        self.responsibilities_: Any = units.broadcast(best.U) if kept else None
        self.labels_: Any = None if self.responsibilities_ is None else np.argmax(self.responsibilities_, axis=1)
        self.groups_ = units.names if kept and units.grouped else None
        self.group_responsibilities_ = best.U if kept and units.grouped else None
        self.log_likelihood_, self.objective_ = best.log_likelihood, best.objective
        self.history_, self.n_iter_, self.converged_ = best.history, best.n_iter, best.converged
        self.restarts_ = restarts
        self.irl_, self.mdp_ = problem.model, problem.mdp
        if problem.demos is None:
            self.__dict__.pop("_problem", None)  # free the problem of an earlier fit
        else:
            self._problem = problem

    def _warn(
        self, best: Solution, problem: FitProblem, messages: Iterable[str], initially_empty: Collection[int]
    ) -> None:
        """Issue the warnings about features and the initialisation, then about the solution."""
        stacklevel = validate.caller_stacklevel()
        problem.warn_of_features(stacklevel + 1)
        for message in messages:
            warnings.warn(message, DegenerateIntentWarning, stacklevel=stacklevel)
        n_units, streamed = len(problem.units), problem.demos is None
        empty = nearly_empty(best.sizes, n_units)
        small = [int(k) for k in np.flatnonzero(empty) if k not in initially_empty]
        pair, why = find_equal_pair(best.thetas, ~empty), "they have the same rewards"
        # Equal rewards imply equal likelihoods, so warn once. Annealed responsibilities are similar even for distinct
        # intents.
        if pair is None and not (small or streamed) and n_units > 1 and best.history[-1].event != "annealed":
            pair = find_indistinct_pair(best.U, ~empty)
            why = f"the ratio of their likelihoods is the same for all {problem.units.noun}"
        if pair is not None and self.max_iter > 0:
            message = f"Intents {pair[0]} and {pair[1]} are not separately identified: {why}. Use fewer intents."
            warning = DegenerateIntentWarning(message, parameter="thetas_", index=pair)
            warnings.warn(warning, stacklevel=stacklevel)
        if small:
            listed = ", ".join(f"{k} (weight {best.rho[k]:.2g})" for k in small)
            what = f"Intent {listed} is nearly empty; its reward is"
            if len(small) > 1:
                what = f"Intents {listed} are nearly empty; their rewards are"
            advice = "or another init" if streamed else "another init, or degenerate='reseed'"
            message = f"{what} unreliable. Use fewer intents, {advice}."
            index = small[0] if len(small) == 1 else tuple(small)
            warning = DegenerateIntentWarning(message, parameter="weights_", value=best.rho[small], index=index)
            warnings.warn(warning, stacklevel=stacklevel)
        if (
            best.logits is not None
            and (largest := float(np.max(np.ptp(best.logits[:, 1:][~empty], axis=0)))) > _SEPARATED
        ):
            message = (
                f"A coefficient of the standardised covariates is {largest:.1f}: the covariates separate the intents "
                "almost completely, so that coefficients have no finite estimate. Pass membership_ridge=1."
            )
            warning = DegenerateIntentWarning(message, parameter="membership_ridge", value=largest)
            warnings.warn(warning, stacklevel=stacklevel)
        n_at_bound, n_rewards = problem.count_at_bound(best.thetas[~empty])
        if self.max_iter > 0 and n_at_bound >= _MANY and 2 * n_at_bound > n_rewards:
            message = (
                f"{n_at_bound} of {n_rewards} rewards are on a bound of the model and not determined by the data. "
                "Use fewer intents or features, wider bounds, or a ridge."
            )
            warnings.warn(BoundWarning(message, parameter="bounds", value=n_at_bound), stacklevel=stacklevel)
        if not best.converged and self.max_iter > 0:
            last = best.history[-1]
            why = f"the mean change in responsibilities is {last.change:.2g}, above resp_tol={self.resp_tol:g}"
            if last.event:
                why = f"convergence is not tested after the last iteration (event '{last.event}')"
            n = f"{best.n_iter} iteration" + ("" if best.n_iter == 1 else "s")
            more = "another random_state" if streamed else "a larger n_init"
            message = f"EM did not converge in {n}: {why}. Raise max_iter or resp_tol; {more} may also help."
            warnings.warn(message, ConvergenceWarning, stacklevel=stacklevel)

    def save(self, folder: str | PathLike[str]) -> None:
        """Write a fitted mixture to a folder of JSON and npz files, atomically; `IntentMixture.load` reads it.

        An earlier mixture in the folder is replaced; a folder with other files raises an error. The model must be
        registered (`limiirl.irl.register_model`). Parameters that cannot be serialised are replaced: `init` by the
        fitted ensemble, others by their defaults. The training data are not written.
        """
        io.save(self, folder)

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> IntentMixture:
        """Read a mixture that `save` wrote; its predictions are identical, bit for bit.

        Raises `InvalidFile` for a folder that is incomplete, corrupted, written by a newer version, or not a mixture.
        Custom models must be registered first. A model fitted with device="gpu" is loaded with "auto".
        """
        return io.load(cls, folder)
