"""Prediction, sampling, information criteria and standard errors of fitted mixtures."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl._estimator import NoMetadataRouting
from limiirl._parallel import Mapper
from limiirl._typing import FloatArray
from limiirl._validation import as_generator, check_count, check_flag, check_positive
from limiirl.demos import Covariates, CovariateScale, Demonstrations, Groups
from limiirl.errors import InvalidDemos, InvalidParameter, ModelMismatchWarning
from limiirl.irl import FitProblem, NextActions, OptionalMembers, allow_cpu, impossible_unit, make_problem
from limiirl.kernels.e_step import e_step
from limiirl.mdp import RewardEnsemble
from limiirl.mixture import restarts, validate
from limiirl.mixture.bayesian.sampling import PosteriorSamples, Priors, sample_posterior
from limiirl.mixture.em import WeightDesign
from limiirl.mixture.estimates import FunctionEstimate, Profile, ProfileInterval
from limiirl.mixture.information import StandardErrors, free_parameters, group_rewards
from limiirl.mixture.membership import MembershipLogit, measure_errors
from limiirl.mixture.summary import Summary, evaluate, feature_names, summarise

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from limiirl.metrics import GroupComparison
    from limiirl.mixture.estimator import IntentMixture


class MostLikely(NamedTuple):
    """The most probable trajectory between two states, its intent k, and log rho_k p(tau | theta_k)."""

    demos: Demonstrations
    intent: int
    log_prob: float


class FittedMixture(NoMetadataRouting):
    """Methods of a fitted mixture of intents."""

    weights_: FloatArray
    thetas_: FloatArray
    irl_: Any
    mdp_: Any
    membership_ridge: float = 0.0
    model_choice_: str = ""
    data_file_: dict[str, Any] | None = None
    membership_logits_: FloatArray | None = None
    covariates_: CovariateScale | None = None

    @property
    def ensemble_(self) -> RewardEnsemble:
        """The fitted weights and rewards as a `RewardEnsemble`."""
        validate.check_fitted(self)
        return RewardEnsemble(self.weights_, self.thetas_)

    @property
    def membership_(self) -> MembershipLogit | None:
        """Mixture weights by covariates; None if `fit` was called without covariates."""
        validate.check_fitted(self)
        if self.membership_logits_ is None or self.covariates_ is None:
            return None
        return MembershipLogit(self.covariates_, self.membership_logits_, self)

    def fit_predict(
        self, mdp: Any, demos: Demonstrations, groups: ArrayLike | None = None, **options: Any
    ) -> NDArray[np.int64]:
        """Fit the mixture and return the most probable intent (N,) of each demonstration; `options` are for `fit`."""
        return np.asarray(cast("Any", self).fit(mdp, demos, groups, **options).labels_)

    def predict_proba(
        self,
        demos: Demonstrations,
        groups: ArrayLike | None = None,
        *,
        covariates: Any = None,
        partial: bool = False,
    ) -> FloatArray:
        """Return the posterior (N, K) over the intents of each demonstration.

        Parameters
        ----------
        demos : Demonstrations
        groups : (N,), optional
            Group of each demonstration; demonstrations of a group have the same posterior.
        covariates : array or table, optional
            Required if `fit` was called with covariates, except for the training demonstrations.
        partial : bool
            Treat each demonstration as a prefix of an unfinished trajectory.
        """
        units, log_p = self._log_prob(demos, groups, partial)
        U, _ = self._posterior(units, log_p, self.unit_weights(demos, units, covariates))
        return units.broadcast(U)

    def predict(
        self,
        demos: Demonstrations,
        groups: ArrayLike | None = None,
        *,
        covariates: Any = None,
        partial: bool = False,
    ) -> Any:
        """Return the most probable intent (N,) of each demonstration; see `predict_proba`."""
        return np.argmax(self.predict_proba(demos, groups, covariates=covariates, partial=partial), axis=1)

    def score_samples(
        self,
        demos: Demonstrations,
        groups: ArrayLike | None = None,
        *,
        covariates: Any = None,
        partial: bool = False,
    ) -> FloatArray:
        """Return the log-likelihood (N,) of each demonstration, or (G,) of each group in sorted order."""
        units, log_p = self._log_prob(demos, groups, partial)
        return self._posterior(units, log_p, self.unit_weights(demos, units, covariates))[1]

    def score(
        self,
        demos: Demonstrations,
        groups: ArrayLike | None = None,
        *,
        covariates: Any = None,
        partial: bool = False,
    ) -> float:
        """Return the mean log-likelihood per demonstration, or per group."""
        values = self.score_samples(demos, groups, covariates=covariates, partial=partial)
        if values.size == 0:
            raise InvalidDemos.of("demos", 0, "must contain at least one demonstration")
        return float(np.mean(values))

    def sample(self, n: int, seed: int | np.random.Generator | None = None) -> tuple[Demonstrations, NDArray[np.int64]]:
        """Draw n demonstrations, and return them with their intents (n,).

        With covariates, intents are drawn from the mean weights over the training data.
        """
        validate.check_fitted(self)
        rng = as_generator(seed)
        labels = rng.choice(len(self.weights_), size=check_count(n, "n", bytes_each=64.0), p=self.weights_)
        draw = self._method("sample")
        parts = [
            draw(self.mdp_, self.thetas_[k], int(size), rng)
            for k, size in enumerate(np.bincount(labels, minlength=len(self.weights_)))
            if size
        ]
        # The samples are ordered by intent; restore the order of the labels.
        order = np.empty(labels.size, dtype=np.int64)
        order[np.argsort(labels, kind="stable")] = np.arange(labels.size)
        return self._with_names(Demonstrations.concat(parts)[order]), labels

    def next_actions(self, demos: Demonstrations, *, covariates: Any = None) -> NextActions:
        """Return the probabilities of each next action (N, A) and of stopping (N,) after prefixes of trajectories.

        Probabilities are averaged over the posterior of intents given the prefix.

        Examples
        --------
        >>> from limiirl import MDP, IntentMixture, MaxEnt, RewardEnsemble
        >>> mdp = MDP.from_edges([0, 1, 1], [1, 2, 3], p0=[1, 0, 0, 0])
        >>> demos = Demonstrations.from_lists([[0, 1, 2]] * 3 + [[0, 1, 3]])
        >>> mix = IntentMixture(1, MaxEnt(bounds=(-3, 3)), random_state=0).fit(mdp, demos)
        >>> mix.next_actions(Demonstrations.from_lists([[0, 1]])).action.round(2)
        array([[0.71, 0.25]])
        """
        demos = validate.check_new_demos(demos, self.mdp_)
        posterior = self.predict_proba(demos, covariates=covariates, partial=True)
        following = self._method("next_actions")(self.mdp_, self.thetas_, demos)
        action = np.einsum("nk,nka->na", posterior, following.action)
        return NextActions(action, np.sum(posterior * following.stop, axis=1))

    def most_likely(self, start: int, goal: int, intent: int | None = None) -> MostLikely:
        """Return the most probable trajectory from state `start` to state `goal`, of one intent or over all intents."""
        validate.check_fitted(self)
        search, K = self._method("most_likely"), len(self.weights_)
        intents = range(K) if intent is None else [validate.check_intent(intent, K, "intent")]
        paths = [search(self.mdp_, self.thetas_[k], start, goal) for k in intents]
        log_prob = [float(np.log(self.weights_[k])) + value for k, (_, value) in zip(intents, paths, strict=True)]
        best = int(np.argmax(log_prob))
        return MostLikely(self._with_names(paths[best][0]), intents[best], log_prob[best])

    def policy(self, k: int, step: int = 0) -> Any:
        """Return the policy (S, A) of intent k at a step, given that the trajectory continues.

        The policy of trajectory models such as `MaxEnt` depends on the step, since the length is bounded.
        """
        validate.check_fitted(self)
        theta = self.thetas_[validate.check_intent(k, len(self.weights_))]
        return self._method("policy")(self.mdp_, theta, step)

    def _with_names(self, demos: Demonstrations) -> Demonstrations:
        names = {name: getattr(self.mdp_, name, None) for name in ("state_names", "action_names")}
        return demos.replace(**names)

    def _log_prob(self, demos: Demonstrations, groups: ArrayLike | None, partial: bool) -> tuple[Groups, FloatArray]:
        validate.check_fitted(self)
        check_flag(partial, "partial")
        demos = validate.check_new_demos(demos, self.mdp_)
        units = Groups.for_demos(groups, demos)
        single = getattr(self, "groups_", None) is None and getattr(self, "responsibilities_", None) is not None
        if units.grouped and single and len(units) < len(demos):
            message = (
                "The mixture was fitted without groups: demonstrations of a group may differ in intent, and therefore "
                "posteriors of groups are overconfident. Pass groups to fit (--by-group), or predict demonstrations "
                "and average their posteriors."
            )
            warnings.warn(ModelMismatchWarning(message, parameter="groups"), stacklevel=validate.caller_stacklevel())
        if len(demos) == 0:
            return units, np.empty((0, len(self.weights_)))
        log_prob = self._method("log_prob_prefix") if partial else self.irl_.log_prob
        return units, units.sum(np.asarray(log_prob(self.mdp_, self.thetas_, demos), dtype=np.float64))

    def _posterior(self, units: Groups, log_p: FloatArray, rho: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the responsibilities (G, K) and log-likelihoods (G,) of units with weights rho (K,) or (G, K)."""
        U = np.zeros(log_p.shape)
        with np.errstate(divide="ignore"):  # a weight by covariates may be less than the smallest float
            log_joint = log_p + np.log(rho)
        result = e_step(np.ascontiguousarray(log_joint), self.thetas_, np.empty(0), np.zeros(log_p.shape[1]), U)
        if result.bad_row >= 0:
            raise impossible_unit(units, result.bad_row)
        return U, np.asarray(np.logaddexp.reduce(log_joint, axis=1))

    def unit_weights(self, demos: Any, units: Groups, covariates: Any) -> FloatArray:
        """Return the mixture weights (G, K) of units with covariates, or (K,) without."""
        design = self._weight_design(demos, units, covariates)
        return self.weights_ if design is None else design.weights(cast("FloatArray", self.membership_logits_))

    def _weight_design(self, demos: Any, units: Groups, covariates: Any) -> WeightDesign | None:
        """Return the design of the covariates of units; by default, that of the training data if they are the same."""
        if self.covariates_ is None:
            if covariates is not None:
                rule = "must be None, because the mixture was fitted without covariates"
                raise InvalidParameter.of("covariates", type(covariates).__name__, rule)
            return None
        if covariates is not None:
            values = Covariates.for_units(covariates, demos, units, self.covariates_).values
            return WeightDesign(validate.add_intercept(self.covariates_.standardise(values)), self.membership_ridge)
        problem = getattr(self, "_problem", None)
        if problem is None or problem.demos != demos or not np.array_equal(problem.units.names, units.names):
            listed = ", ".join(self.covariates_.columns)
            message = (
                f"covariates is required: the mixture weights depend on {listed}. Pass a table with these columns."
            )
            raise InvalidParameter(message, parameter="covariates")
        return cast("WeightDesign", problem.weight_design)

    def _method(self, name: str) -> Any:
        """Return a method of the model; raise if the model does not have it, or does not list it in `supports`."""
        supports = OptionalMembers.of(self.irl_).supports
        if not (hasattr(self.irl_, name) if supports is None else name in supports):
            message = f"{type(self.irl_).__name__} does not support {name}. Use another model, such as MaxEnt."
            raise InvalidParameter(message, parameter="irl", value=name)
        return getattr(self.irl_, name)

    def __copy__(self) -> Self:
        """Return a shallow copy that shares the fit problem."""
        result = type(self).__new__(type(self))
        result.__dict__.update(vars(self))
        return result

    def __getstate__(self) -> dict[str, Any]:
        """Return the state with the fit problem, which may be large or on a GPU, replaced by its data."""
        state = dict(cast("dict[str, Any]", super().__getstate__()))
        problem: FitProblem | None = state.pop("_problem", None)
        if problem is not None:
            state["_fitted_to"] = problem.demos, problem.units.labels, problem.weight_design
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "irl_" in state:  # an unfitted mixture keeps its device: it is being sent to a worker
            state = state | {name: allow_cpu(state[name]) for name in ("irl", "irl_")}
        self._restore(state)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return a copy that keeps its device."""
        result = type(self).__new__(type(self))
        result._restore(copy.deepcopy(self.__getstate__(), memo))
        return result

    def _restore(self, state: dict[str, Any]) -> None:
        state = dict(state)
        data = state.pop("_fitted_to", None)
        vars(self).update(state)
        if data is not None:
            self._problem = make_problem(self.irl_, self.mdp_, *data)

    def standard_errors(
        self,
        demos: Demonstrations | None = None,
        groups: ArrayLike | None = None,
        *,
        covariates: Any = None,
        covariance: str = "observed",
        clusters: ArrayLike | None = None,
    ) -> StandardErrors:
        """Return standard errors of weights and rewards, by default from the observed information (Louis 1982).

        Second derivatives are exact for `MaxEnt` and for `MaxCausalEnt` and `MLIRL` with stationary policies (d linear
        solves per intent). For finite horizons, `MLIRL(q="bv")`, `DestinationMaxEnt` and `SigmaGIRL` they are central
        differences of exact gradients (2 d evaluations per intent). For models that have only `fit` and `log_prob`,
        outer products of scores are used; see `StandardErrors.method`. Scores require up to 2 d more evaluations.

        Parameters
        ----------
        demos, groups, covariates : Demonstrations, (N,), array or table, optional
            The training data; required for a mixture loaded from a file.
        covariance : {"observed", "robust", "cluster"}
            "observed": the inverse of the observed information, valid if the model is correct and demonstrations (or
            groups of the fit) are independent. "robust": the sandwich estimator, valid also if the model is not
            correct. "cluster": the sandwich estimator with the scores of clusters, valid also if demonstrations of a
            cluster, such as a driver or an animal, are dependent; it needs many more clusters than parameters of
            interest.
        clusters : (N,), optional
            Cluster of each demonstration; by default the groups of the fit, or `demos.groups`.

        Examples
        --------
        >>> from limiirl import MDP, Demonstrations, IntentMixture, MaxEnt
        >>> mdp = MDP.from_edges([0], [1], p0=[1, 0], state_features=[[0], [1]])
        >>> demos = Demonstrations.from_lists([[0], [0, 1], [0, 1], [0, 1]])
        >>> mix = IntentMixture(1, MaxEnt(2, bounds=None)).fit(mdp, demos)
        >>> mix.thetas_.round(4), mix.standard_errors().thetas.round(4)
        (array([[1.0986]]), array([[1.1547]]))
        """
        return measure_errors(self, self._data(demos, groups, covariates), covariance, clusters)

    def delta_method(
        self, function: Callable[..., Any], gradient: Callable[..., Any] | None = None, **options: Any
    ) -> FunctionEstimate:
        """Return a function of weights (K,) and thetas (K, d), such as a value of time, with its standard error.

        Parameters
        ----------
        function, gradient : callable
            See `StandardErrors.delta_method`.
        **options
            Arguments of `standard_errors`, such as ``covariance="robust"``.

        Examples
        --------
        >>> from limiirl import MDP, Demonstrations, IntentMixture, MaxEnt
        >>> mdp = MDP.from_edges([0], [1], p0=[1, 0], state_features=[[0], [1]])
        >>> demos = Demonstrations.from_lists([[0], [0, 1], [0, 1], [0, 1]])
        >>> mix = IntentMixture(1, MaxEnt(2, bounds=None)).fit(mdp, demos)
        >>> odds = mix.delta_method(lambda weights, thetas: np.exp(thetas[0, 0]))
        >>> odds.value.round(3), odds.error.round(3)
        (np.float64(3.0), np.float64(3.464))
        """
        return self.standard_errors(**options).delta_method(function, gradient)

    def compare_groups(
        self,
        demos: Demonstrations | None = None,
        groups: ArrayLike | None = None,
        condition: Any = None,
        *,
        covariates: Any = None,
        rewards: bool = True,
        **options: Any,
    ) -> GroupComparison:
        """Compare the mixture weights and the rewards of groups, such as animals, between conditions.

        The units of the permutation test are groups, not demonstrations. The test is exact if groups are exchangeable
        under the null hypothesis that neither weights nor rewards depend on the condition, which requires a mixture
        that was fitted without the conditions: to all groups, or to other groups. If weights differ, tests of rewards
        are approximate.

        Parameters
        ----------
        demos : Demonstrations, optional
            By default, the training data.
        groups : (N,), optional
            Group of each demonstration; by default, those of the fit or `demos.groups`. Without groups, each
            demonstration is its own group.
        condition : (N,), or mapping of groups to conditions
            Condition of each demonstration, which is constant within a group.
        covariates : array or table, optional
            Covariates of the mixture weights, if the mixture was fitted with any.
        rewards : bool
            Compare rewards too, by one-step estimates per group (`limiirl.mixture.group_rewards`).
        **options
            Options of `limiirl.metrics.compare_groups`, such as `correction`.

        Returns
        -------
        GroupComparison

        Examples
        --------
        >>> from limiirl import MDP, Demonstrations, IntentMixture, MaxEnt
        >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0], [1], [-1]])
        >>> left, right = [[0, 1]] * 5, [[0, 2]] * 5
        >>> demos = Demonstrations.from_lists((left + right[:1]) * 4 + (right + left[:1]) * 4)
        >>> mix = IntentMixture(2, MaxEnt(2, bounds=(-3, 3)), random_state=0).fit(mdp, demos)
        >>> animal = np.repeat(np.arange(8), 6)
        >>> table = mix.compare_groups(demos, animal, np.where(animal < 4, "wet", "dry"), rewards=False).to_frame()
        >>> table[["quantity", "mean_first", "mean_second", "p"]].round(3).values.tolist()[:1]
        [['weight of intent 0', 0.168, 0.832, 0.029]]
        """
        from limiirl.metrics import compare_groups, condition_of_groups

        problem = self._data(demos, groups if getattr(self, "groups_", None) is not None else None, covariates)
        demos = problem.demos
        if problem.units.grouped:
            units, members = problem.units, Groups.from_labels(None, len(problem.units))
        else:
            labels = getattr(demos, "groups", None) if groups is None else groups
            units = members = Groups.for_demos(labels, demos)
        U, _ = evaluate(self, problem)
        # One weight determines the other of two.
        weights = members.mean(U).T[: 1 if U.shape[1] == 2 else None] if U.shape[1] > 1 else ()
        quantities = {f"weight of intent {k}": column for k, column in enumerate(weights)}
        if rewards:
            shared = validate.find_shared(getattr(self, "shared", None), self.mdp_)
            estimates = group_rewards(problem, self.weights_, self.thetas_, members, U, shared)
            names = feature_names(self.mdp_, self.thetas_.shape[1])
            known = np.any(np.isfinite(estimates), axis=0)
            quantities |= {f"intent {k}: {names[j]}": estimates[:, k, j] for k, j in np.argwhere(known).tolist()}
        return compare_groups(quantities, condition_of_groups(condition, units), groups=units.names, **options)

    def profile_intervals(
        self,
        parameters: Iterable[tuple[int, int | str]],
        demos: Demonstrations | None = None,
        groups: ArrayLike | None = None,
        *,
        covariates: Any = None,
        level: float = 0.95,
    ) -> list[ProfileInterval]:
        """Return profile-likelihood intervals of chosen rewards and weights.

        They need not be symmetric, do not depend on the parametrisation, and are valid under the conditions of the
        observed information. Each interval requires about ten constrained maximisations of the marginal likelihood.

        Parameters
        ----------
        parameters : iterable of pairs
            Intent, and the number or the name of a feature, or "weight".
        demos, groups, covariates : Demonstrations, (N,), array or table, optional
            The training data; required for a mixture loaded from a file.
        level : float
            Confidence level.

        Examples
        --------
        >>> from limiirl import MDP, Demonstrations, IntentMixture, MaxEnt
        >>> mdp = MDP.from_edges([0], [1], p0=[1, 0], state_features=[[0], [1]], feature_names=["going on"])
        >>> demos = Demonstrations.from_lists([[0]] * 5 + [[0, 1]] * 15)
        >>> mix = IntentMixture(1, MaxEnt(2, bounds=None)).fit(mdp, demos)
        >>> (interval,) = mix.profile_intervals([(0, "going on")])
        >>> round(interval.estimate, 2), round(interval.low, 2), round(interval.high, 2)
        (1.1, 0.15, 2.22)
        """
        problem = self._data(demos, groups, covariates)
        measured = measure_errors(self, problem)
        logits = self.membership_logits_
        if logits is None:
            logits = WeightDesign(np.ones((1, 1))).constant(self.weights_)
        names = feature_names(self.mdp_, self.thetas_.shape[1])
        profile = Profile(problem, logits, self.thetas_, (measured.weights, measured.thetas), names)
        return profile.intervals(parameters, level)

    def sample_posterior(  # noqa: PLR0913 (the data, and independent options with defaults)
        self,
        demos: Demonstrations | None = None,
        groups: ArrayLike | None = None,
        *,
        covariates: Any = None,
        draws: int = 1000,
        tune: int = 500,
        chains: int = 4,
        prior_scale: float = 10.0,
        concentration: float = 1.0,
        covariate_scale: float = 2.5,
        seed: Any = None,
        executor: Mapper | None = None,
    ) -> PosteriorSamples:
        """Sample the posterior of weights and rewards by NUTS, on the exact marginal likelihood and its gradient.

        Requires ``pip install "limiirl[bayes]"`` and a model with gradients. Draws are relabelled so that each intent
        has the demonstrations of the fitted intent.

        Parameters
        ----------
        demos, groups, covariates : Demonstrations, (N,), array or table, optional
            The training data; required for a mixture loaded from a file.
        draws, tune, chains : int
            Draws per chain, iterations of adaptation per chain, and number of chains.
        prior_scale : float
            Rewards are N(0, prior_scale^2) a priori, truncated to the bounds. The ridge of the model is not used.
        concentration : float
            Weights are Dir(concentration, ..., concentration) a priori.
        covariate_scale : float
            With covariates: the deviations of intercepts and coefficients of standardised covariates from their means
            over intents are N(0, covariate_scale^2) a priori.
        seed : int, Generator, RandomState or None
        executor : limiirl.executors.Executor or concurrent.futures.Executor, optional
            Runs the chains in parallel. The draws are the same.

        Examples
        --------
        >>> from limiirl import MDP, Demonstrations, IntentMixture, MaxEnt
        >>> mdp = MDP.from_edges([0], [1], p0=[1, 0], state_features=[[0], [1]])
        >>> demos = Demonstrations.from_lists([[0], [0, 1], [0, 1], [0, 1]])
        >>> mix = IntentMixture(1, MaxEnt(2, bounds=None)).fit(mdp, demos)
        >>> samples = mix.sample_posterior(seed=0, chains=2)  # doctest: +SKIP
        >>> samples.thetas.mean().round(1), samples.r_hat[1:].round(2)  # doctest: +SKIP
        (1.3, array([1.]))
        """
        if getattr(self, "shared", None) is not None:
            raise InvalidParameter.of("shared", cast("Any", self).shared, "must be None to sample the posterior")
        priors = Priors(
            check_positive(prior_scale, "prior_scale"),
            check_positive(concentration, "concentration"),
            check_positive(covariate_scale, "covariate_scale"),
        )
        problem = self._data(demos, groups, covariates)
        return sample_posterior(self, problem, priors, (chains, draws, tune), seed, executor)

    def bic(
        self, demos: Demonstrations | None = None, groups: ArrayLike | None = None, *, covariates: Any = None
    ) -> float:
        """Return the Bayesian information criterion, -2 log L + n_free log N; lower is better.

        N is the number of demonstrations, or of groups; the training data are the default. Rewards on a bound,
        unidentified directions and nearly empty intents are not counted in n_free.
        """
        return self._bic(*self._evaluate(demos, groups, covariates))

    def aic(
        self, demos: Demonstrations | None = None, groups: ArrayLike | None = None, *, covariates: Any = None
    ) -> float:
        """Return Akaike's information criterion, -2 log L + 2 n_free; lower is better. See `bic`."""
        U, log_likelihood = self._evaluate(demos, groups, covariates)
        return -2.0 * log_likelihood + 2.0 * self._n_free(len(U))

    def icl(
        self, demos: Demonstrations | None = None, groups: ArrayLike | None = None, *, covariates: Any = None
    ) -> float:
        """Return the integrated completed likelihood, BIC + 2 entropy(U), which penalises overlap; lower is better."""
        U, log_likelihood = self._evaluate(demos, groups, covariates)
        entropy = -float(np.sum(U * np.log(np.where(U > 0.0, U, 1.0))))
        return self._bic(U, log_likelihood) + 2.0 * entropy

    def summary(
        self,
        demos: Demonstrations | None = None,
        groups: ArrayLike | None = None,
        *,
        covariates: Any = None,
        covariance: str = "observed",
        clusters: ArrayLike | None = None,
        profile: Iterable[tuple[int, int | str]] | None = None,
    ) -> Summary:
        """Return a summary that prints as text, is shown as a table in notebooks, and converts to a dict.

        For a mixture loaded from a file, standard errors require the training data.

        Parameters
        ----------
        demos, groups, covariates, covariance, clusters
            See `standard_errors`.
        profile : iterable of pairs, optional
            Parameters with 95 % profile-likelihood intervals; see `profile_intervals`.
        """
        problem = self._find_data(demos, groups, covariates)
        result = summarise(cast("IntentMixture", self), problem, covariance, clusters)
        if profile is None:
            return result
        return replace(result, profile=tuple(self.profile_intervals(profile, demos, groups, covariates=covariates)))

    def to_frame(
        self, demos: Demonstrations | None = None, groups: ArrayLike | None = None, *, covariates: Any = None
    ) -> Any:
        """Return the rewards of `summary` as a pandas DataFrame with one row per intent and feature.

        For one row per demonstration, see `limiirl.mixture.membership_table`.
        """
        return self.summary(demos, groups, covariates=covariates).to_frame()

    def report(
        self, folder: str | PathLike[str], demos: Any = None, groups: ArrayLike | None = None, **options: Any
    ) -> Path:
        """Write an offline page on this mixture, with figures and tables, and return the path of the page.

        The page describes the intents in words, and shows rewards, errors, sizes, memberships, visits and typical
        trajectories.

        Parameters
        ----------
        folder : path
            Created if absent; other files in it are kept.
        demos, groups : Demonstrations or Agents, (N,), optional
            By default the training data, which a mixture loaded from a file does not contain.
        **options
            Options of `limiirl.report.intents.intents_report`, such as `covariates`, `intent_names` and `selection`.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> from limiirl import MDP, Demonstrations, IntentMixture, MaxEnt
        >>> mdp = MDP.from_edges([0, 0, 1, 2], [1, 2, 3, 3], p0=[1, 0, 0, 0], state_features=np.eye(4)[:, 1:3])
        >>> demos = Demonstrations.from_lists([[0, 1, 3]] * 9 + [[0, 2, 3]] * 3)
        >>> mix = IntentMixture(2, MaxEnt(bounds=(-5, 5)), random_state=0).fit(mdp, demos)
        >>> mix.report(tempfile.mkdtemp()).name
        'index.html'
        """
        from limiirl.report.intents import write_intents

        validate.check_fitted(self)
        return write_intents(self, folder, demos, groups=groups, **options)

    def plot(
        self,
        demos: Any = None,
        groups: ArrayLike | None = None,
        *,
        covariates: Any = None,
        intent_names: Any = None,
    ) -> Figure:
        """Draw the rewards with 95 % intervals, features with clear differences between intents first.

        Parameters
        ----------
        demos, groups, covariates : Demonstrations or Agents, (N,), array or table, optional
            As for `report`.
        intent_names : sequence of K strings, optional

        Returns
        -------
        matplotlib.figure.Figure

        Examples
        --------
        >>> from limiirl import MDP, Demonstrations, IntentMixture, MaxEnt
        >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0], [1], [-1]])
        >>> demos = Demonstrations.from_lists([[0, 1], [0, 1], [0, 2]])
        >>> mix = IntentMixture(2, MaxEnt(2, bounds=(-3, 3)), init=[0, 0, 1]).fit(mdp, demos)
        >>> mix.plot().axes[0].get_xlabel()
        'reward θ, with 95 % interval'
        """
        from limiirl.report.intents import plot_mixture_rewards

        validate.check_fitted(self)
        return plot_mixture_rewards(self, demos, groups, covariates, intent_names)

    def plot_memberships(
        self,
        demos: Any = None,
        groups: ArrayLike | None = None,
        *,
        covariates: Any = None,
        intent_names: Any = None,
    ) -> Figure:
        """Draw the posterior of each demonstration, or of each group, sorted by intent; see `plot`."""
        from limiirl.report.intents import plot_mixture_memberships

        validate.check_fitted(self)
        return plot_mixture_memberships(self, demos, groups, covariates, intent_names)

    def align_to(self, other: IntentMixture | RewardEnsemble) -> IntentMixture:
        """Return a copy of this mixture with its intents in the order of the intents of `other`.

        Intents are matched by responsibilities or by expected features; see `limiirl.mixture.restarts.intent_order`.

        Examples
        --------
        >>> from limiirl import MDP, Demonstrations, IntentMixture, MaxEnt
        >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0], [1], [-1]])
        >>> demos = Demonstrations.from_lists([[0, 1], [0, 1], [0, 2]])
        >>> a, b = (IntentMixture(2, MaxEnt(2, bounds=(-3, 3)), init=labels) for labels in ([0, 0, 1], [1, 1, 0]))
        >>> b.fit(mdp, demos).labels_.tolist(), b.align_to(a.fit(mdp, demos)).labels_.tolist()
        ([1, 1, 0], [0, 0, 1])
        """
        mine = cast("IntentMixture", self)
        return restarts.permute_intents(mine, restarts.intent_order(mine, other))

    def _data(self, demos: Demonstrations | None, groups: ArrayLike | None, covariates: Any = None) -> FitProblem:
        """Return the fit problem of the given demonstrations, or of the training data."""
        validate.check_fitted(self)
        if demos is not None:
            demos = validate.check_demos(demos, self.mdp_)
            design = self._weight_design(demos, Groups.for_demos(groups, demos), covariates)
            return make_problem(self.irl_, self.mdp_, demos, groups, design)
        for name, value in (("groups", groups), ("covariates", covariates)):
            if value is not None:
                message = f"{name} requires demos. Pass both, or neither to use the training data."
                raise InvalidParameter(message, parameter=name, value=value)
        problem = getattr(self, "_problem", None)
        if problem is None:
            message = "demos is required, because a mixture loaded from a file has no training data."
            raise InvalidParameter(message, parameter="demos")
        return cast("FitProblem", problem)

    def _find_data(
        self, demos: Demonstrations | None, groups: ArrayLike | None, covariates: Any = None
    ) -> FitProblem | None:
        validate.check_fitted(self)
        available = demos is not None or groups is not None or covariates is not None or hasattr(self, "_problem")
        return self._data(demos, groups, covariates) if available else None

    def _evaluate(
        self, demos: Demonstrations | None, groups: ArrayLike | None, covariates: Any = None
    ) -> tuple[FloatArray, float]:
        """Return the responsibilities (G, K) and the total log-likelihood of units."""
        return evaluate(self, self._find_data(demos, groups, covariates))

    def _bic(self, U: FloatArray, log_likelihood: float) -> float:
        return -2.0 * log_likelihood + self._n_free(len(U)) * float(np.log(len(U)))

    def _n_free(self, n_units: int) -> int:
        n_covariates = 0 if self.covariates_ is None else len(self.covariates_.names)
        shared = validate.find_shared(getattr(self, "shared", None), self.mdp_)
        return free_parameters(self.irl_, self.mdp_, self.weights_, self.thetas_, n_units, n_covariates, shared).n_free
