"""Posteriors, segments and information criteria of fitted models with switching intents."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl._estimator import NoMetadataRouting
from limiirl._io import to_pandas
from limiirl._typing import FloatArray
from limiirl._validation import check_choice
from limiirl.demos import Covariates, CovariateScale, Demonstrations, Groups
from limiirl.errors import InvalidParameter
from limiirl.kernels.switching import count, viterbi
from limiirl.metrics import GroupComparison, compare_groups, condition_of_groups
from limiirl.mixture import COVARIANCES, MOST_PARAMETERS, FunctionEstimate, check_fitted, free_parameters, validate
from limiirl.switching.dynamics import (
    DwellTimes,
    GroupDynamics,
    SwitchingGraph,
    expected_dwell_times,
    stationary_shares,
)
from limiirl.switching.information import SwitchingErrors, switching_errors
from limiirl.switching.problem import Parameters, SwitchingProblem, refuse_covariates
from limiirl.switching.summary import SwitchingSummary, null_log_likelihood, summarise_switching
from limiirl.switching.transitions import COVARIATES, Logits, transition_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Number of operations up to which a summary has standard errors by default: about a minute.
_MOST_OPERATIONS = 2e9


@dataclass(frozen=True, eq=False)
class Segments:
    """Maximal runs of steps with the same intent, in the most probable sequence of intents.

    Attributes
    ----------
    demo : (n,)
        Index of the demonstration.
    start, stop : (n,)
        The segment consists of the decisions start, ..., stop - 1 of the demonstration.
    intent : (n,)
    probability : (n,)
        Mean over the steps of the smoothed posterior of the intent.
    ids : (N,) or None
        Identifiers of the demonstrations, if they have any.

    Examples
    --------
    >>> segments = Segments.from_path(np.array([0, 0, 1, 1]), np.full((4, 2), 0.5), np.array([0, 3, 4]))
    >>> segments.demo.tolist(), segments.start.tolist(), segments.stop.tolist(), segments.intent.tolist()
    ([0, 0, 1], [0, 2, 0], [2, 3, 1], [0, 1, 1])
    """

    demo: NDArray[np.int64]
    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    intent: NDArray[np.int64]
    probability: FloatArray
    ids: NDArray[Any] | None = None

    @classmethod
    def from_path(
        cls,
        path: NDArray[np.int64],
        posterior: FloatArray,
        offsets: NDArray[np.int64],
        ids: NDArray[Any] | None = None,
    ) -> Segments:
        """Return the segments of intents (n,) of demonstrations with offsets (N + 1,) and posteriors (n, K)."""
        begins = np.ones(path.size, dtype=bool)
        begins[1:] = path[1:] != path[:-1]
        begins[offsets[:-1]] = True
        first = np.flatnonzero(begins)
        last = np.append(first[1:], path.size)
        demo = np.searchsorted(offsets, first, side="right") - 1
        own = posterior[np.arange(path.size), path]
        probability = np.add.reduceat(own, first) / (last - first)
        return cls(demo, first - offsets[demo], last - offsets[demo], path[first], probability, ids)

    def __len__(self) -> int:
        return self.demo.size

    @property
    def length(self) -> NDArray[np.int64]:
        """Number (n,) of steps of each segment."""
        return self.stop - self.start

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one row per segment; `demo` contains the identifiers, if there are any."""
        columns = {name: getattr(self, name) for name in ("demo", "start", "stop", "intent", "probability")}
        if self.ids is not None:
            columns["demo"] = self.ids[self.demo]
        return to_pandas(columns)


class FittedSwitching(NoMetadataRouting):
    """Methods of a fitted model with switching intents."""

    initial_: FloatArray
    thetas_: FloatArray
    transition_: FloatArray
    mean_transition_: FloatArray
    logits_: Logits
    shares_: FloatArray
    irl_: Any
    mdp_: Any
    switching: str
    initial: str
    initial_logits_: FloatArray | None = None
    covariates_: CovariateScale | None
    switching_ridge: float
    groups_: NDArray[Any] | None
    data_file_: dict[str, Any] | None = None
    _training: tuple[Demonstrations | None, Any] = (None, None)

    def predictive_log_prob(self, demos: Demonstrations, covariates: Any = None) -> FloatArray:
        """Return log p(a_t | s_0, ..., s_t, a_0, ..., a_{t-1}) (n,) of the decisions of all demonstrations.

        A step without a recorded action contributes log p(s_{t+1} | ...), summed over the actions.
        """
        problem, parameters = self._problem_of(demos, covariates)
        return problem.infer(parameters, smooth=False).log_prob

    def filter_proba(self, demos: Demonstrations, covariates: Any = None) -> FloatArray:
        """Return the posterior (n, K) of the intent at each step given the states and actions up to that step."""
        problem, parameters = self._problem_of(demos, covariates)
        return problem.infer(parameters, smooth=False).intents

    def predict_proba(self, demos: Demonstrations, covariates: Any = None) -> FloatArray:
        """Return the posterior (n, K) of the intent at each step given the whole demonstration."""
        problem, parameters = self._problem_of(demos, covariates)
        return problem.infer(parameters, smooth=True).intents

    def predict(self, demos: Demonstrations, covariates: Any = None) -> NDArray[np.int64]:
        """Return the most probable sequence (n,) of intents of each demonstration (Viterbi)."""
        return self._viterbi(*self._problem_of(demos, covariates))

    def segments(self, demos: Demonstrations, covariates: Any = None) -> Segments:
        """Return the segments of the most probable sequences of intents."""
        problem, parameters = self._problem_of(demos, covariates)
        posterior = problem.infer(parameters, smooth=True).intents
        return Segments.from_path(self._viterbi(problem, parameters), posterior, problem.decisions.offsets, demos.ids)

    @property
    def stationary_(self) -> FloatArray:
        """Stationary distribution (K,) of `mean_transition_`."""
        check_fitted(self)
        return stationary_shares(self.mean_transition_)

    @property
    def dwell_times_(self) -> FloatArray:
        """Expected number (K,) of steps until an intent ends, 1 / (1 - P_kk) for P = `mean_transition_`."""
        check_fitted(self)
        return expected_dwell_times(self.mean_transition_)

    def dwell_times(self, demos: Demonstrations, covariates: Any = None) -> DwellTimes:
        """Return the expected dwell times, and the lengths of the segments of demonstrations."""
        segments = self.segments(demos, covariates)
        return DwellTimes.from_segments(segments, self.mean_transition_, demos.lengths - 1)

    def switching_graph(self, demos: Demonstrations, covariates: Any = None) -> SwitchingGraph:
        """Return the expected numbers of switches between intents in demonstrations."""
        problem, parameters = self._problem_of(demos, covariates)
        return SwitchingGraph.from_counts(problem.e_step(parameters).transitions)

    def occupancy(self, demos: Demonstrations, covariates: Any = None) -> FloatArray:
        """Return the expected number (S, K) of decisions in each state with each intent."""
        problem, parameters = self._problem_of(demos, covariates)
        decisions, first = problem.decisions, np.zeros(len(problem.decisions.demos), dtype=np.int64)
        first[decisions.number] = decisions.state
        result = np.zeros((self.mdp_.n_states, len(self.initial_)))
        np.add.at(result, first, problem.e_step(parameters).decisions)
        return result

    def group_dynamics(
        self, demos: Demonstrations, groups: ArrayLike | None = None, covariates: Any = None
    ) -> GroupDynamics:
        """Return the shares of steps, dwell times and switching rate of each group of demonstrations.

        Parameters
        ----------
        demos : Demonstrations
        groups : (N,), optional
            Group of each demonstration, such as an animal; by default, `demos.groups` or, without these, each
            demonstration is its own group.
        covariates : (n, m) array or frame, optional
        """
        problem, parameters = self._problem_of(demos, covariates)
        units = Groups.for_demos(demos.groups if groups is None else groups, demos)
        problem.e_step(parameters)  # raises for an impossible decision
        chain, distinct = problem.chain(parameters), problem.design.distinct
        counts = [count(chain, part, distinct_rows=distinct) for part in problem.split(units)]
        steps = np.array([part.decisions.sum(axis=0) for part in counts])
        return GroupDynamics(units, steps, np.array([part.transitions for part in counts]))

    def compare_groups(
        self,
        demos: Demonstrations,
        groups: ArrayLike | None = None,
        condition: Any = None,
        covariates: Any = None,
        **options: Any,
    ) -> GroupComparison:
        """Compare shares of steps, dwell times and switching rates between conditions.

        The units of the test are groups, such as animals, not demonstrations. The test is exact if the groups are
        exchangeable under the null hypothesis, which requires a mixture that was fitted without the conditions: to all
        groups, or to other groups.

        Parameters
        ----------
        demos : Demonstrations
        groups : (N,), optional
            Group of each demonstration; by default, `demos.groups` or, without these, each demonstration is its own
            group.
        condition : (N,), or mapping of groups to conditions
            Condition of each demonstration, which is constant within a group.
        covariates : (n, m) array or frame, optional
        **options
            Options of `limiirl.metrics.compare_groups`, such as `correction`.

        Examples
        --------
        >>> from limiirl import MDP, Demonstrations, MaxCausalEnt, SwitchingMixture
        >>> mdp = MDP.from_edges([0, 0], [0, 0], action=[0, 1], gamma=0.9, action_features=[[1.0], [0.0]])
        >>> slow, fast = [0] * 20 + [1] * 20, ([0] * 5 + [1] * 5) * 4
        >>> demos = Demonstrations.from_lists([[0] * 41] * 8, [slow] * 4 + [fast] * 4)
        >>> sw = SwitchingMixture(2, MaxCausalEnt(ridge=1e-3), random_state=0).fit(mdp, demos)
        >>> table = sw.compare_groups(demos, condition=["slow"] * 4 + ["fast"] * 4).to_frame()
        >>> table[["quantity", "mean_first", "mean_second", "p"]].tail(1).round(3).values.tolist()
        [['switches per 100 steps', 17.96, 2.58, 0.029]]
        """
        dynamics = self.group_dynamics(demos, groups, covariates)
        if len(self.initial_) == 1:
            raise InvalidParameter.of("n_intents", 1, "must be at least 2, so that intents can switch")
        units, quantities = dynamics.groups, dynamics.quantities
        if len(self.initial_) == 2:
            del quantities["share of steps, intent 1"]  # one share determines the other
        return compare_groups(quantities, condition_of_groups(condition, units), groups=units.names, **options)

    def standard_errors(
        self,
        demos: Demonstrations | None = None,
        covariates: Any = None,
        *,
        groups: ArrayLike | None = None,
        covariance: str | None = None,
    ) -> SwitchingErrors:
        """Return standard errors of the rewards, the initial probabilities and the transition model.

        The computation takes as long as two E-steps per free parameter.

        Parameters
        ----------
        demos : Demonstrations, optional
            By default, the training data with the groups of `fit`.
        covariates : (n, m) array or frame, optional
        groups : (N,), optional
            Group of each demonstration; by default, for the training data, the groups of `fit`.
        covariance : {"observed", "robust", "cluster"}, optional
            "observed": the inverse of the observed information (Louis' identity). "robust": the sandwich estimator with
            the scores of demonstrations, valid also if the model is not correct. "cluster": with the scores of groups,
            valid also if demonstrations of a group are dependent; it needs many more groups than parameters of
            interest. By default "cluster" if there are groups, and otherwise "observed".
        """
        check_fitted(self)
        if demos is None:
            demos, covariates = self._require_training()
            groups = self.groups_ if groups is None and self._n_groups > 1 else groups
        if covariance is None:
            covariance = "observed" if groups is None else "cluster"
        units = None
        if check_choice(covariance, "covariance", COVARIANCES) == "cluster":
            if groups is None:
                message = "groups is required for covariance='cluster'. Pass one label per demonstration."
                raise InvalidParameter(message, parameter="groups")
            units = Groups.for_demos(groups, demos)
        elif covariance == "robust":
            units = Groups.for_demos(None, demos)
        if units is not None and len(units) < 2:
            raise InvalidParameter.of("groups", len(units), "must have at least two groups")
        problem, parameters = self._problem_of(demos, covariates)
        return switching_errors(problem, parameters, self.shares_, float(self.switching_ridge), units)

    def delta_method(
        self, function: Callable[..., Any], gradient: Callable[..., Any] | None = None, **options: Any
    ) -> FunctionEstimate:
        """Return a function of (initial, thetas, transition) with its standard error.

        Parameters
        ----------
        function, gradient : callable
            See `SwitchingErrors.delta_method`. A gradient has the derivatives by all parameters of `SwitchingErrors`.
        **options
            Arguments of `standard_errors`, such as ``covariance="robust"``.

        Examples
        --------
        The expected dwell time of intent 0:

        >>> from limiirl import MDP, Demonstrations, MaxCausalEnt, SwitchingMixture
        >>> mdp = MDP.from_edges([0, 0], [0, 0], action=[0, 1], gamma=0.9, action_features=[[1.0], [0.0]])
        >>> actions = [[0] * 20 + [1] * 20, [1] * 20 + [0] * 10 + [1] * 10] * 4
        >>> demos = Demonstrations.from_lists([[0] * 41] * 8, actions)
        >>> sw = SwitchingMixture(2, MaxCausalEnt(ridge=1e-3), random_state=0).fit(mdp, demos)
        >>> dwell = sw.delta_method(lambda initial, thetas, transition: 1 / (1 - transition[0, 0]))
        >>> bool(np.isclose(dwell.value, sw.dwell_times_[0]))
        True
        """
        return self.standard_errors(**options).delta_method(function, gradient)

    def _require_training(self) -> tuple[Demonstrations, Any]:
        demos, covariates = self._training
        if demos is None:
            message = "demos is required, because the training data of a loaded mixture are not available."
            raise InvalidParameter(message, parameter="demos")
        return demos, covariates

    @property
    def _n_groups(self) -> int:
        return 0 if self.groups_ is None else int(np.unique(self.groups_).size)

    def summary(
        self,
        demos: Demonstrations | None = None,
        covariates: Any = None,
        *,
        errors: bool | None = None,
        covariance: str | None = None,
    ) -> SwitchingSummary:
        """Return a summary of the fit, with the segments of demonstrations; the training data are the default.

        Parameters
        ----------
        demos : Demonstrations, optional
            After `load`, the training data are not available, and without `demos` the summary has neither segments nor
            standard errors.
        covariates : (n, m) array or frame, optional
        errors : bool, optional
            Compute standard errors; by default, if this takes about a minute at most.
        covariance : {"observed", "robust", "cluster"}, optional
            See `standard_errors`.
        """
        check_fitted(self)
        if demos is None:
            demos, covariates = self._training
        if demos is None:
            return summarise_switching(cast("Any", self))
        problem, _ = self._problem_of(demos, covariates)
        trained = demos is self._training[0]
        measured = None
        if self.has_fast_errors(demos) if errors is None else errors:
            given = () if trained else (demos, covariates)
            measured = self.standard_errors(*given, covariance=covariance)
        total, null = self._total(None if trained else demos, covariates)[0], null_log_likelihood(problem)
        return summarise_switching(cast("Any", self), self.dwell_times(demos, covariates), measured, (total, null))

    def has_fast_errors(self, demos: Demonstrations) -> bool:
        """Return True if standard errors from these demonstrations take about a minute at most."""
        K = len(self.initial_)
        n_parameters = self.thetas_.size + (self.n_columns_ + K) * K
        return n_parameters <= MOST_PARAMETERS and float(n_parameters) * demos.n_transitions * K**2 <= _MOST_OPERATIONS

    def report(
        self, folder: str | PathLike[str], demos: Demonstrations | None = None, covariates: Any = None, **options: Any
    ) -> Path:
        """Write an offline page on this mixture, with figures and tables, and return the path of the page.

        The page describes the intents in words, and shows rewards with errors, dwell times, the graph of switches, the
        time line of each recording, visits, baselines, and a comparison of groups if conditions are given.

        Parameters
        ----------
        folder : path
            Created if absent; other files in it are kept.
        demos : Demonstrations, optional
            By default the training data, which a mixture loaded from a file does not contain.
        covariates : (n, m) array or frame, optional
        **options
            Options of `limiirl.report.intents.switching_report`, such as `condition`, `intent_names` and `selection`.

        Examples
        --------
        >>> import tempfile
        >>> from limiirl import MDP, Demonstrations, MaxCausalEnt, SwitchingMixture
        >>> mdp = MDP.from_edges([0, 0], [0, 0], action=[0, 1], gamma=0.9, action_features=[[1.0], [0.0]])
        >>> demos = Demonstrations.from_lists([[0] * 41] * 2, [[0] * 20 + [1] * 20, [1] * 20 + [0] * 20])
        >>> sw = SwitchingMixture(2, MaxCausalEnt(ridge=1e-3), random_state=0).fit(mdp, demos)
        >>> sw.report(tempfile.mkdtemp()).name
        'index.html'
        """
        from limiirl.report.intents import write_switching

        check_fitted(self)
        return write_switching(self, folder, demos, covariates=covariates, **options)

    def plot_timeline(
        self, demos: Demonstrations | None = None, covariates: Any = None, *, intent_names: Any = None
    ) -> Figure:
        """Draw the most probable sequence of intents of each recording, and the posterior below it.

        Parameters
        ----------
        demos : Demonstrations, optional
            By default the training data. At most 40 recordings are drawn; select others with an index.
        covariates : (n, m) array or frame, optional
        intent_names : sequence of K strings, optional

        Returns
        -------
        matplotlib.figure.Figure

        Examples
        --------
        >>> from limiirl import MDP, Demonstrations, MaxCausalEnt, SwitchingMixture
        >>> mdp = MDP.from_edges([0, 0], [0, 0], action=[0, 1], gamma=0.9, action_features=[[1.0], [0.0]])
        >>> demos = Demonstrations.from_lists([[0] * 41] * 2, [[0] * 20 + [1] * 20, [1] * 20 + [0] * 20])
        >>> sw = SwitchingMixture(2, MaxCausalEnt(ridge=1e-3), random_state=0).fit(mdp, demos)
        >>> sw.plot_timeline().axes[0].get_xlabel()
        'step of the recording'
        """
        from limiirl.report.intents import plot_switching_timeline

        check_fitted(self)
        return plot_switching_timeline(self, demos, covariates, intent_names)

    def plot_rewards(
        self,
        demos: Demonstrations | None = None,
        covariates: Any = None,
        *,
        maps: bool | None = None,
        coordinates: ArrayLike | None = None,
        intent_names: Any = None,
    ) -> Figure:
        """Draw the rewards with 95 % intervals, or maps of the reward of each state.

        Parameters
        ----------
        demos : Demonstrations, optional
            By default the training data, which the standard errors require.
        covariates : (n, m) array or frame, optional
        maps : bool, optional
            Draw one map per intent. By default, this is done if there is one feature per state and a legible layout of
            the states: coordinates, a grid, or a small graph.
        coordinates : (S, 2), optional
            Positions of the states.
        intent_names : sequence of K strings, optional
        """
        from limiirl.report.intents import plot_switching_rewards

        check_fitted(self)
        return plot_switching_rewards(self, demos, covariates, maps, coordinates, intent_names)

    def plot_switches(
        self, demos: Demonstrations | None = None, covariates: Any = None, *, intent_names: Any = None
    ) -> Figure:
        """Draw the graph of switches: shares and dwell times of the intents, and which intent follows which."""
        from limiirl.report.intents import plot_switching_graph

        check_fitted(self)
        return plot_switching_graph(self, demos, covariates, intent_names)

    def score_samples(self, demos: Demonstrations, covariates: Any = None) -> FloatArray:
        """Return the log-likelihood (N,) of the actions of each demonstration, given its states.

        It is the sum of `predictive_log_prob`. The log-likelihood of an `IntentMixture` includes in addition the
        probability of the start state and of the outcomes of the actions, `demos.log_q`.
        """
        problem, parameters = self._problem_of(demos, covariates)
        log_prob = problem.infer(parameters, smooth=False).log_prob
        return np.asarray(np.add.reduceat(log_prob, problem.decisions.offsets[:-1]))

    def score(self, demos: Demonstrations, covariates: Any = None) -> float:
        """Return the mean of `predictive_log_prob`, in nats per step."""
        return float(np.mean(self.predictive_log_prob(demos, covariates)))

    def policy(self, k: int) -> Any:
        """Return the policy (S, A) of intent k."""
        check_fitted(self)
        return self.irl_.policy(self.mdp_, self.thetas_[validate.check_intent(k, len(self.initial_))])

    def transition_at(self, covariates: Any) -> FloatArray:
        """Return the transition matrices (n, K, K) for rows of covariates (n, m), in their original units."""
        check_fitted(self)
        if self.covariates_ is None or self.switching != COVARIATES:
            message = f"transition_at requires switching='covariates'; got {self.switching!r}. See transition_."
            raise InvalidParameter(message, parameter="switching", value=self.switching)
        scaled = self.covariates_.standardise(Covariates.read(covariates, self.covariates_).values)
        return transition_table(self.logits_, scaled @ self.logits_.B.T)

    def bic(self, demos: Demonstrations | None = None, covariates: Any = None) -> float:
        """Return the Bayesian information criterion, -2 log L + n_free log n for n steps; lower is better.

        The training data are the default. Directions of rewards that are not identified, rewards on a bound and nearly
        empty intents are not counted in n_free; the ridge on the coefficients of the transition model is ignored.
        """
        log_likelihood, n = self._total(demos, covariates)
        return -2.0 * log_likelihood + self.n_free_ * float(np.log(n))

    def aic(self, demos: Demonstrations | None = None, covariates: Any = None) -> float:
        """Return Akaike's information criterion, -2 log L + 2 n_free; lower is better. See `bic`."""
        return -2.0 * self._total(demos, covariates)[0] + 2.0 * self.n_free_

    @property
    def n_free_(self) -> int:
        """Number of free parameters: of the rewards, the initial probabilities and the transition model."""
        check_fitted(self)
        K = len(self.initial_)
        rewards = free_parameters(self.irl_, self.mdp_, self.shares_, self.thetas_, self.n_steps_).n_free
        n_first = 0 if self.initial_logits_ is None else self.initial_logits_.shape[1] - 1
        return rewards + (K - 1) * (K + self.n_columns_ + n_first)

    def _total(self, demos: Demonstrations | None, covariates: Any) -> tuple[float, int]:
        """Return the total log-likelihood and the number of steps; the training data are the default."""
        check_fitted(self)
        if demos is None:
            return self.log_likelihood_ * self.n_steps_, self.n_steps_
        log_prob = self.predictive_log_prob(demos, covariates)
        return float(np.sum(log_prob)), log_prob.size

    n_steps_: int
    n_columns_: int
    log_likelihood_: float

    @property
    def _parameters(self) -> Parameters:
        return Parameters(self.initial_, self.thetas_, self.logits_, self.initial_logits_)

    def _problem_of(self, demos: Demonstrations, covariates: Any) -> tuple[SwitchingProblem, Parameters]:
        """Return the fit problem of demonstrations, and the fitted parameters."""
        check_fitted(self)
        demos = validate.check_demos(demos, self.mdp_)
        scaled = None
        if self.covariates_ is not None:
            scaled = self.covariates_.standardise(Covariates.for_steps(covariates, demos, self.covariates_).values)
        else:
            refuse_covariates(covariates)
        return SwitchingProblem(self.irl_, self.mdp_, demos, self.switching, scaled, self.initial), self._parameters

    def _viterbi(self, problem: SwitchingProblem, parameters: Parameters) -> NDArray[np.int64]:
        log_emission, B = problem.log_emission(parameters.thetas), parameters.logits.B
        eta, log_initial = problem.design.eta(B), np.log(problem.initial(parameters))
        return viterbi(log_emission, log_initial, parameters.logits.A, eta, problem.data)
