"""`SwitchingMixture`: intents that switch within a demonstration, fitted by expectation-maximisation."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone

from limiirl._progress import Progress, check_progress, report_progress
from limiirl._validation import check_choice, check_count, check_positive
from limiirl.demos import Covariates, Demonstrations, Groups, resolve_environments
from limiirl.errors import ConvergenceWarning, DegenerateIntentWarning, InvalidDemos, InvalidParameter
from limiirl.irl import MaxCausalEnt
from limiirl.irl import validate as irl_checks
from limiirl.mdp import RewardEnsemble
from limiirl.mixture import Settings, nearly_empty, report_iterations, validate
from limiirl.switching import io
from limiirl.switching.em import EM, SwitchingState, compare_restarts, mean_transition, occupancy
from limiirl.switching.inference import FittedSwitching
from limiirl.switching.init import SwitchingStarts, check_init, is_random
from limiirl.switching.problem import SwitchingProblem, check_model, refuse_covariates
from limiirl.switching.transitions import CONSTANT, COVARIATES, HOMOGENEOUS, KINDS, STATE, transition_table

if TYPE_CHECKING:
    from limiirl.switching.selection import SwitchingSelection


class SwitchingMixture(FittedSwitching, BaseEstimator):  # type: ignore[misc]
    r"""Intents that switch within a demonstration: a hidden Markov model whose states are rewards.

    The intent z_t of each step is a Markov chain, and the action follows the policy of its reward:

        P(z_0 = k) = initial_k,  P(z_{t+1} = k | z_t = j, x_t) = softmax_k(A_jk + B_k . x_t),
        P(a_t | s_t, z_t = k) = pi_k(a_t | s_t),

    where x_t is empty, the state s_t (one-hot), or given covariates. Each policy is computed as if its intent never
    changed (ADR 0028). The likelihood and the posteriors are exact, by the forward-backward recursion.

    Parameters
    ----------
    n_intents : int
        K, the number of intents.
    irl : model, optional
        Model with the same policy at every step, by default `MaxCausalEnt`. It is cloned, never modified. Its `ridge`
        is the coefficient per step.
    switching : {"homogeneous", "state", "covariates"}
        Whether the transition probabilities are constant, depend on the state, or depend on the `covariates` of `fit`.
    init : str, array, IntentMixture or SwitchingMixture
        "kmeans" (clusters of the mean features of windows); "random" (a random intent per window); labels (n,) or
        responsibilities (n, K) of the n decisions of all demonstrations; a fitted `IntentMixture`, whose posterior is
        computed for each window; or a fitted `SwitchingMixture`, from whose parameters EM starts.
    initial : {"constant", "covariates"}
        Whether the probabilities of the first intent are constant, or a multinomial logit of the covariates of the
        first step.
    switching_ridge : float
        Coefficient of the penalty ``|B|^2 / 2`` on the total log-likelihood: 1 / variance of a Gaussian prior. The
        coefficients of the first intent have the same prior.
    window : int
        Maximum number of steps of a window.
    n_init : int
        Number of initialisations; the solution with the highest objective is kept. EM is run only once if `init` is not
        a string.
    max_iter : int
        Maximum number of M-steps.
    tol : float
        EM has converged when the objective, in nats per step, increases by less than this value.
    max_evaluations : int
        Maximum number of evaluations of each policy per M-step. A truncated M-step never lowers the likelihood.
    random_state : int, Generator, RandomState or None
        Seed of the initialisations; results are reproducible for an integer.
    progress : callable, optional
        Called as ``progress(done, total, message)`` after every iteration; `history_` records the iterations.
    verbose : bool
        Show the progress on stderr: a bar on a terminal, lines elsewhere.

    Attributes
    ----------
    initial_, thetas_ : (K,), (K, d)
        Initial probabilities and rewards; with ``initial="covariates"``, the mean probabilities over demonstrations.
    initial_logits_ : (K, 1 + m) or None
        Intercepts and coefficients of the first intent for standardised covariates, relative to intent 0.
    transition_ : (K, K) or (S, K, K)
        P(z_{t+1} = k | z_t = j), for each state if ``switching="state"``, or at the mean of the covariates.
    mean_transition_ : (K, K)
        `transition_` without x_t; otherwise the expected fraction of the steps of intent j that are followed by intent
        k in the training data.
    stationary_ : (K,)
        Stationary distribution of `mean_transition_`: the fraction of steps with each intent in a long demonstration.
    logits_ : Logits
        A (K, K) and B (K, m), for standardised covariates.
    shares_ : (K,)
        Expected fraction of steps with each intent.
    log_likelihood_, objective_ : float
        Log-likelihood per step, without and with the penalties.
    history_ : list of Iteration
        Likelihood and shares at each iteration of the best initialisation.
    n_iter_, converged_ : int, bool
    restarts_ : list of SwitchingRestart
        The result of each initialisation; `best` marks those that reached the best objective.
    groups_ : (N,) or None
        The groups that were passed to `fit`.
    covariates_ : CovariateScale or None
        Names, means and standard deviations of the covariates.
    data_file_ : dict or None
        Description of the file of the demonstrations, set by the command line.
    irl_, mdp_ : model, MDP
    n_demos_, n_steps_ : int
        Number of demonstrations and of decisions in the training data.

    Examples
    --------
    An agent prefers one of two actions for some time, then the other.

    >>> from limiirl import MDP, Demonstrations, MaxCausalEnt, SwitchingMixture
    >>> mdp = MDP.from_edges([0, 0], [0, 0], action=[0, 1], gamma=0.9, action_features=[[1.0], [0.0]])
    >>> demos = Demonstrations.from_lists([[0] * 41] * 2, [[0] * 20 + [1] * 20, [1] * 20 + [0] * 20])
    >>> sw = SwitchingMixture(2, MaxCausalEnt(ridge=1e-3), random_state=0).fit(mdp, demos)
    >>> segments = sw.segments(demos)
    >>> segments.demo.tolist(), segments.start.tolist(), segments.stop.tolist()
    ([0, 0, 1, 1], [0, 20, 0, 20], [20, 40, 20, 40])
    >>> print(round(sw.transition_[0, 0], 2))
    0.97
    """

    def __init__(  # noqa: PLR0913 (an estimator's parameters, each with a default)
        self,
        n_intents: int = 2,
        irl: Any = None,
        switching: str = "homogeneous",
        init: Any = "kmeans",
        *,
        initial: str = "constant",
        switching_ridge: float = 1.0,
        window: int = 20,
        n_init: int = 1,
        max_iter: int = 200,
        tol: float = 1e-6,
        max_evaluations: int = 30,
        random_state: Any = None,
        progress: Progress | None = None,
        verbose: bool = False,
    ) -> None:
        self.n_intents = n_intents
        self.irl = irl
        self.switching = switching
        self.init = init
        self.initial = initial
        self.switching_ridge = switching_ridge
        self.window = window
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.max_evaluations = max_evaluations
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
    ) -> SwitchingMixture:
        """Learn the rewards of the intents, and when they switch.

        Parameters
        ----------
        mdp : MDP, or list or mapping of pairs (MDP, Demonstrations)
            Pairs are environments with the same intents; see `combine_environments`. `demos` is omitted then.
        demos : Demonstrations
        groups : (N,), optional
            Group of each demonstration, such as an animal. All groups share the parameters. Standard errors are
            clustered by group if there are at least two.
        covariates : (n, m) array or frame, optional
            Covariates of the steps, if `switching` or `initial` is "covariates": one row per decision, or one row per
            state, in the order of `demos.states`. Row t affects the transition from step t to step t + 1. A table with
            a column demo or group has one row per demonstration or group, for all of its steps. Text columns have one
            indicator per level except the first.

        Returns
        -------
        SwitchingMixture
            This estimator.
        """
        mdp, demos = resolve_environments(mdp, demos)
        settings = self._settings()
        demos = validate.check_demos(demos, mdp)
        irl_checks.mdp(mdp)
        irl = check_model(validate.clone_model(MaxCausalEnt() if self.irl is None else self.irl))
        if "ridge_per" in getattr(irl, "get_params", dict)():
            irl.set_params(ridge_per="step")
        self.irl_, self.mdp_ = irl, mdp
        self.groups_ = None if groups is None else Groups.for_demos(groups, demos).labels
        checked = self._check_covariates(demos, covariates)
        self.covariates_ = scale = None if checked is None else checked.measure()
        scaled = None if checked is None or scale is None else scale.standardise(checked.values)
        problem = SwitchingProblem(irl, mdp, demos, self.switching, scaled, self.initial)
        self._check_enough_steps(problem)
        em = EM(problem, settings, check_positive(self.switching_ridge, "switching_ridge", zero=True))
        starts = SwitchingStarts(self.init, problem, self.n_intents, self.window)
        seeds = validate.spawn_seeds(self.random_state, self.n_init if is_random(self.init) else 1)
        with report_progress("EM", self.verbose, self.progress) as report:
            runs = []
            for i, seed in enumerate(seeds):
                start = starts.begin(np.random.default_rng(seed), first=i == 0)
                runs.append(em.run(start, report_iterations(report, i, len(seeds), settings.max_iter)))
        self.restarts_ = compare_restarts(runs)
        self._store(problem, *runs[int(np.argmax([state.objective for state, _ in runs]))])
        self._training, self.data_file_ = (demos, covariates), None
        self._warn(problem)
        return self

    def _settings(self) -> Settings:
        """Check the parameters and return the settings of EM."""
        check_count(self.n_intents, "n_intents")
        check_choice(self.switching, "switching", KINDS)
        check_choice(self.initial, "initial", (CONSTANT, COVARIATES))
        check_count(self.n_init, "n_init")
        check_count(self.window, "window")
        check_progress(self.progress)
        check_init(self.init)
        return Settings(
            max_iter=check_count(self.max_iter, "max_iter", least=0),
            resp_tol=0.0,
            likelihood_tol=check_positive(self.tol, "tol"),
            max_evaluations=check_count(self.max_evaluations, "max_evaluations"),
        )

    def _check_covariates(self, demos: Demonstrations, covariates: Any) -> Covariates | None:
        if COVARIATES not in (self.switching, self.initial):
            refuse_covariates(covariates)
            return None
        return Covariates.for_steps(covariates, demos)

    def _check_enough_steps(self, problem: SwitchingProblem) -> None:
        if self.n_intents > problem.n_steps:
            raise InvalidParameter.of(
                "n_intents", self.n_intents, f"must be at most {problem.n_steps}, the number of steps"
            )
        if self.n_intents > 1 and problem.n_steps == len(problem.demos):
            message = (
                "demos must contain a demonstration with at least two actions; all have one, so that switching cannot "
                "be observed. Use IntentMixture."
            )
            raise InvalidDemos(message, parameter="demos", value=1)

    def _store(self, problem: SwitchingProblem, state: SwitchingState, converged: bool) -> None:
        """Set the attributes of the solution."""
        parameters, last = state.parameters, state.history[-1]
        self.initial_, self.thetas_, self.logits_, self.initial_logits_ = parameters
        kind = self.switching
        eta = np.zeros((1, self.n_intents)) if kind == COVARIATES else problem.design.eta(parameters.logits.B)
        table = transition_table(parameters.logits, eta)
        self.transition_ = table if kind == STATE else table[0]
        self.shares_ = occupancy(state.counts)
        mean = mean_transition(state.counts, self.transition_)
        self.mean_transition_ = self.transition_ if kind == HOMOGENEOUS else mean
        self.log_likelihood_, self.objective_ = last.log_likelihood, last.objective
        self.history_, self.n_iter_, self.converged_ = state.history, last.iteration, converged
        self.n_demos_, self.n_steps_ = len(problem.demos), problem.n_steps
        # One column per visited state, except one, whose coefficient is absorbed by the intercepts.
        self.n_columns_ = np.unique(problem.decisions.state).size - 1 if kind == STATE else problem.design.n_columns

    @property
    def ensemble_(self) -> RewardEnsemble:
        """The shares and rewards as a `RewardEnsemble`."""
        return RewardEnsemble(self.shares_, self.thetas_)

    def _warn(self, problem: SwitchingProblem) -> None:
        """Issue the warnings about features and about the solution."""
        stacklevel = validate.caller_stacklevel()
        problem.emissions.warn_of_features(stacklevel + 1)
        empty = np.flatnonzero(nearly_empty(self.shares_ * self.n_steps_, self.n_steps_))
        if empty.size:
            listed = ", ".join(f"{k} ({100 * self.shares_[k]:.2g} % of the steps)" for k in empty)
            message = f"Intent {listed} is nearly empty; its reward is unreliable. Use fewer intents or another init."
            warning = DegenerateIntentWarning(message, parameter="shares_", index=int(empty[0]))
            warnings.warn(warning, stacklevel=stacklevel)
        if not self.converged_ and self.max_iter > 0:
            rise = self.history_[-1].objective - self.history_[-2].objective
            message = (
                f"EM did not converge in {self.n_iter_} iterations: the objective still increases by {rise:.1e} nats "
                f"per step, more than tol={self.tol:g}. Raise max_iter or tol."
            )
            warnings.warn(ConvergenceWarning(message, parameter="max_iter"), stacklevel=stacklevel)

    def select(
        self, mdp: Any, demos: Demonstrations, n_intents: Iterable[int], *, irl: Any = None, **options: Any
    ) -> SwitchingSelection:
        """Compare numbers of intents with these parameters; see `select_switching` and `select_intents`."""
        from limiirl.switching.selection import select_switching  # circular import

        template: SwitchingMixture = self
        if irl is not None:
            if self.irl is not None:
                raise InvalidParameter(
                    "Pass either irl or a mixture with a model, not both.", parameter="irl", value=irl
                )
            template = clone(self).set_params(irl=irl)
        return select_switching(mdp, demos, n_intents, mixture=template, **options)

    def save(self, folder: str | PathLike[str]) -> None:
        """Write the fitted mixture to a folder of JSON and npz files, atomically; `SwitchingMixture.load` reads it.

        An earlier mixture in the folder is replaced; a folder with other files raises an error. An `init` that is a
        fitted mixture is replaced by "kmeans". The training data are not written.
        """
        io.save(self, folder)

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> SwitchingMixture:
        """Read a mixture that `save` wrote; its predictions are identical, bit for bit.

        Raises `InvalidFile` for a folder that is incomplete, corrupted, written by a newer version, or not a
        `SwitchingMixture`.
        """
        return io.load(cls, folder)

    def __sklearn_clone__(self) -> SwitchingMixture:
        """Return an unfitted copy; `init` is not cloned, because a fitted mixture passed as `init` must stay fitted."""
        parameters = self.get_params(deep=False)
        return type(self)(
            **{name: value if name == "init" else clone(value, safe=False) for name, value in parameters.items()}
        )
