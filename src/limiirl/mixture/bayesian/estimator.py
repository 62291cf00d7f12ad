"""`BayesianIntentMixture`: a Dirichlet process mixture of intents by variational inference (ADR 0011)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri
from sklearn.base import BaseEstimator

from limiirl._parallel import one_thread
from limiirl._typing import FloatArray
from limiirl._validation import check_count, check_positive
from limiirl.demos import Demonstrations
from limiirl.errors import ConvergenceWarning, DegenerateIntentWarning, InvalidParameter
from limiirl.irl import FitProblem, MaxEnt, make_problem
from limiirl.mdp import RewardEnsemble
from limiirl.mixture import validate
from limiirl.mixture.bayesian.reward_posterior import RewardPrior, check_model
from limiirl.mixture.bayesian.search import SearchResult, SearchStep, search
from limiirl.mixture.bayesian.variational import Concentration, VariationalProblem
from limiirl.mixture.estimator import IntentMixture
from limiirl.mixture.inference import Inference, Reporting
from limiirl.mixture.init import Starts, is_given, standardised
from limiirl.mixture.monitor import searching
from limiirl.mixture.summary import Summary

# Of a Gaussian this much lies within a standard deviation of the mean.
_ONE_SIGMA = 0.6827


class BayesianIntentMixture(Inference, Reporting, BaseEstimator):  # type: ignore[misc]
    r"""A mixture of as many intents as the demonstrations call for: a Dirichlet process prior over their rewards.

    Each new demonstration follows an intent with the probability of how many follow it already, or, by a weight of
    `concentration`, a new one whose reward is drawn from the prior. The posterior is variational: responsibilities,
    Beta sticks, and a Gaussian for the rewards of each intent. Sweeps never lower its bound on the log evidence, as far
    as expectations over rewards are right (see `bound_`), and intents are merged, dropped and split where that raises
    it. An intent pays for its rewards by how far the data narrow them down, so that no criterion is needed to stop. The
    same data and `random_state` give the same result; but for "best" and functions as `init`, the order of
    demonstrations does not matter.

    `standard_errors`, `bic`, `aic` and `icl` are taken at the medians of rewards, from the likelihood alone;
    `credible_intervals` and `bound_` know the prior.

    Parameters
    ----------
    max_intents : int
        How many intents to begin with, and the most that there may be.
    irl : model, optional
        The single-intent model, with `fit` and `log_prob`; `MaxEnt()` by default. It is cloned, never changed. Its
        ridge is not used, since the prior takes its place. `SigmaGIRL` has no Gaussian posterior, and is refused.
    init : str, array, RewardEnsemble, clusterer or callable
        Where to begin, as for `IntentMixture`, with at most `max_intents`.
    concentration : float or (shape, rate)
        alpha of the Dirichlet process: about alpha log(1 + N / alpha) intents are expected before anything is seen. A
        pair gives alpha a Gamma prior, and alpha is learned.
    prior_scale : float
        Rewards are N(0, prior_scale^2) before anything is seen, restricted to the model's bounds: how large rewards may
        well be in the features' units. The larger, the more an intent costs.
    embedding : {"shares", "gradients"}, (N, m) array or callable, optional
        What to cluster at the start, and to cut intents in two by, instead of feature counts; as for `IntentMixture`.
    max_iter : int
        Most sweeps after the last move.
    bound_tol : float
        Sweeps end when the bound rises by less than this many nats.
    random_state : int, Generator, RandomState or None
        For the clustering at the start; the rest is not random.
    callback : callable, optional
        Called with each `SearchStep` of the search.
    verbose : bool
        Show how the search goes.

    Attributes
    ----------
    n_intents_ : int
    weights_, thetas_, ensemble_ : (K,), (K, d), RewardEnsemble
        Expected shares, scaled to sum to 1, and the medians of rewards; intents in falling order of size.
    responsibilities_, labels_ : (N, K), (N,)
        The posterior of who follows which intent. `predict_proba` uses the point estimates above, and may differ a
        little.
    groups_, group_responsibilities_ : (G,), (G, K), where `fit` was given groups; else None
    bound_ : float
        The bound on the log evidence of all demonstrations together, but for the error of expectations over rewards:
        none where log-likelihoods are quadratic in rewards, up to 0.25 nats for each intent where it was measured (ADR
        0011).
    intent_posterior_ : dict of int to float
        Probability of each number of intents that the search met, the best partition of each standing for all. The
        exact posterior also adds up many partitions in which single demonstrations stand apart. It counts all the names
        that a partition may have, `bound_` one; its mode may therefore differ from `n_intents_` where two numbers are
        nearly as good.
    expected_intents_ : float
        The mean of that.
    new_intent_weight_ : float
        Probability that the next demonstration, or group, follows an intent that nobody has shown yet: alpha /
        (alpha + G).
    concentration_ : float
        alpha, or its posterior mean.
    history_ : list of SearchStep
    n_iter_, converged_ : int, bool
        Sweeps, without those that tried moves out, and whether the last rose by less than `bound_tol`.
    mixture_ : IntentMixture
        The same weights and rewards as a mixture that is fitted, for all that one can do.
    irl_, mdp_ : the model and the MDP that were fitted

    Examples
    --------
    >>> from limiirl import BayesianIntentMixture, MDP, Demonstrations, MaxEnt
    >>> phi = [[0, 0], [1, 0], [0, 1], [0, 0]]
    >>> mdp = MDP.from_edges([0, 0, 1, 2], [1, 2, 3, 3], p0=[1, 0, 0, 0], state_features=phi)
    >>> demos = Demonstrations.from_lists([[0, 1, 3]] * 5 + [[0, 2, 3]] * 3)
    >>> mix = BayesianIntentMixture(4, MaxEnt(bounds=(-5, 5)), random_state=0).fit(mdp, demos)
    >>> mix.n_intents_  # one who is in two minds explains eight short walks as well
    1
    >>> mix.fit(mdp, demos, groups=[0, 1, 2, 0, 1, 3, 3, 3]).n_intents_  # five by three who always choose alike
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
        callback: Callable[[SearchStep], None] | None = None,
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
        self.callback = callback
        self.verbose = verbose

    def fit(self, mdp: Any, demos: Demonstrations, groups: ArrayLike | None = None) -> BayesianIntentMixture:
        """Infer the intents behind demonstrations, and how many there are.

        Parameters
        ----------
        mdp : MDP
        demos : Demonstrations
        groups : (N,), optional
            Whom each demonstration belongs to: all those of a group then share an intent.
        """
        most, max_iter = check_count(self.max_intents, "max_intents"), check_count(self.max_iter, "max_iter")
        scale, concentration = check_positive(self.prior_scale, "prior_scale"), _concentration(self.concentration)
        tol = check_positive(self.bound_tol, "bound_tol", zero=True)
        validate.instance(self.init)
        if self.callback is not None and not callable(self.callback):
            raise InvalidParameter(
                f"callback must be a function of a SearchStep, or None; got {self.callback!r}.",
                parameter="callback",
                value=self.callback,
            )
        irl = validate.fresh(MaxEnt() if self.irl is None else self.irl)
        prepared = make_problem(irl, mdp, validate.demonstrations(demos), groups)
        check_model(prepared)
        prior = RewardPrior(prepared.box(_n_parameters(prepared)), scale)
        starts = Starts(self.init, self.embedding, prepared, prior.box.lower.size)
        # With several threads, sums of linear algebra would come in any order.
        with one_thread("blas"), searching(self.verbose, self.callback) as told:
            problem = VariationalProblem(prepared, prior, concentration, standardised(starts.points))
            found = search(problem, self._start(starts, most), most, max_iter, tol, told)
        self.irl_ = irl
        self._keep(found, prepared, prior)
        if not found.converged:
            warnings.warn(
                f"The bound still rises by more than bound_tol={tol:g} nats a sweep after {max_iter} sweeps. Raise "
                "max_iter or bound_tol.",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def fit_predict(self, mdp: Any, demos: Demonstrations, groups: ArrayLike | None = None) -> NDArray[np.int64]:
        """Fit, and return the intent (N,) of each demonstration."""
        return np.asarray(self.fit(mdp, demos, groups).labels_)

    def _start(self, starts: Starts, most: int) -> FloatArray:
        """Return responsibilities (G, K) to begin with."""
        prepared, rng = starts.problem, np.random.default_rng(validate.seeds(self.random_state, 1)[0])
        K = min(most, len(prepared.units))
        if starts.seeks_best:
            with warnings.catch_warnings():  # too many clusters to begin with are no fault
                warnings.simplefilter("ignore", DegenerateIntentWarning)
                begun = starts.begin(K, "mle", rng)
            assert begun.U is not None  # it comes from clusters
            return begun.U
        if is_given(self.init):
            found = starts.guess(_given_intents(self.init, most), rng)
        elif isinstance(self.init, str) or not callable(self.init):
            # Clusterers draw points by their position: sorted ones are the same whatever order demonstrations have.
            found = starts.guess(K, rng, order=np.lexsort(starts.points.T[::-1]))
        else:  # a function may know who is who
            found = starts.guess(K, rng)
        if not isinstance(found, RewardEnsemble):
            return np.asarray(found)
        _at_most(found.n_intents, most)
        validate.ensemble(found, found.n_intents, prepared)
        U = np.zeros((len(prepared.units), found.n_intents))
        prepared.e_step(np.asarray(found.weights), np.asarray(found.thetas), U)
        return U

    def _keep(self, found: SearchResult, prepared: FitProblem, prior: RewardPrior) -> None:
        state, units = found.state, prepared.units
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
        numbers = sorted(found.evidence)
        log_evidence = np.array([found.evidence[number] for number in numbers])
        share = np.exp(log_evidence - log_evidence.max())
        self.intent_posterior_ = dict(zip(numbers, (share / share.sum()).tolist(), strict=True))
        self.expected_intents_ = float(sum(number * p for number, p in self.intent_posterior_.items()))
        self.history_, self.converged_ = found.history, found.converged
        self.n_iter_ = sum(step.event == "sweep" for step in found.history)
        self.mdp_, self._problem = prepared.mdp, prepared
        self._posterior_of_rewards, self._prior = state.rewards, prior

    @property
    def ensemble_(self) -> RewardEnsemble:
        """The weights and rewards as one value."""
        validate.fitted(self)
        return RewardEnsemble(self.weights_, self.thetas_)

    @property
    def mixture_(self) -> IntentMixture:
        """The weights and rewards as a fitted `IntentMixture`; fitted again, its EM would go on from there."""
        validate.fitted(self)
        known = self.__dict__.get("_mixture")
        if known is None or known[0] is not self.thetas_:  # made once for each fit
            self._mixture = (self.thetas_, self._as_mixture())
        found: IntentMixture = self._mixture[1]
        return found

    def _as_mixture(self) -> IntentMixture:
        ready = self._problem
        found = IntentMixture(len(self.weights_), self.irl, init=self.ensemble_, max_iter=0)
        found.fit(ready.mdp, ready.demos, ready.units.labels).set_params(max_iter=IntentMixture().max_iter)
        # EM did nothing: what converged, or did not, are the sweeps.
        change = float(np.mean(np.sum(np.abs(found.responsibilities_ - self.responsibilities_), axis=1)))
        found.history_ = [replace(found.history_[0], change=change)]
        found.converged_, found.n_iter_ = self.converged_, self.n_iter_
        found.weights_ = self.weights_  # EM divides by their sum, which is 1 but for rounding
        return found

    def credible_intervals(self, level: float = 0.95) -> FloatArray:
        """Return (K, d, 2): between what each reward lies with the given probability, within the bounds.

        Examples
        --------
        >>> from limiirl import BayesianIntentMixture, MDP, Demonstrations, MaxEnt
        >>> mdp = MDP.from_edges([0], [1], p0=[1, 0], state_features=[[0], [1]])
        >>> demos = Demonstrations.from_lists([[0]] * 20 + [[0, 1]] * 20)
        >>> mix = BayesianIntentMixture(1, MaxEnt(2, bounds=None)).fit(mdp, demos)
        >>> mix.credible_intervals().round(1).tolist()
        [[[-0.6, 0.6]]]
        """
        validate.fitted(self)
        if not 0.0 < check_positive(level, "level") < 1.0:
            raise InvalidParameter(f"level must be between 0 and 1; got {level!r}.", parameter="level", value=level)
        rewards = self._posterior_of_rewards
        width = float(ndtri(0.5 + 0.5 * level)) * np.linalg.norm(rewards.root, axis=2)
        return np.stack([self._prior.theta(rewards.mean - width), self._prior.theta(rewards.mean + width)], axis=2)

    def summary(self, demos: Demonstrations | None = None, groups: ArrayLike | None = None) -> Summary:
        """Return what was found, as `IntentMixture.summary` has it, and how the search went.

        Likelihood and BIC are taken at the medians of rewards, and know no prior; `bound_` does. Beside each reward
        stands half the width of the interval in which it lies with a probability of 68 %.
        """
        validate.fitted(self)
        moves = sum(step.event not in ("start", "sweep") for step in self.history_)
        settled = "converged" if self.converged_ else "not converged: raise max_iter or bound_tol"
        how = self.init if isinstance(self.init, str) else "given" if is_given(self.init) else type(self.init).__name__
        at_medians = self.mixture_.summary(demos, groups)
        return replace(
            at_medians,
            estimator="BayesianIntentMixture",
            errors=0.5 * np.ptp(self.credible_intervals(_ONE_SIGMA), axis=2),
            weight_errors=np.full(len(self.weights_), np.nan),
            status=np.full(self.thetas_.shape, "ok"),
            spread="half the width of the interval in which a reward lies with a probability of 68 %",
            init=f"{how}, {self.history_[0].n_intents} intents to begin with",
            convergence=f"none; variational, {self.n_iter_} sweeps, {moves} move{'' if moves == 1 else 's'}, {settled}",
            starts=f"1; the bound on the log evidence is {self.bound_:.2f}",
        )

    def align_to(self, other: IntentMixture | RewardEnsemble) -> IntentMixture:
        """Return an `IntentMixture` of the same intents, in the order of another's."""
        return self.mixture_.align_to(other)

    def save(self, folder: str | PathLike[str]) -> None:
        """Write the weights and rewards to a folder as an `IntentMixture`, whose `load` reads it.

        There is no `BayesianIntentMixture.load`: the posterior around the rewards is not written.
        """
        self.mixture_.save(folder)


def _concentration(given: Any) -> Concentration:
    """Return alpha, or the shape and rate of its prior."""
    if isinstance(given, tuple | list):
        if len(given) != 2:
            raise InvalidParameter(
                f"concentration must be a number, or (shape, rate) of a Gamma prior; got {given!r}.",
                parameter="concentration",
                value=given,
            )
        return check_positive(given[0], "concentration"), check_positive(given[1], "concentration")
    return check_positive(given, "concentration")


def _n_parameters(prepared: FitProblem) -> int:
    """Return d, by a fit to everybody where the model does not say it."""
    if prepared.n_parameters is not None:
        return prepared.n_parameters
    everybody = prepared.moments(np.ones((len(prepared.units), 1)))
    return int(prepared.m_step(everybody, None, np.arange(1)).thetas.shape[1])


def _given_intents(init: Any, most: int) -> int:
    """Return how many intents a given init has, or `most` where labels may have any number up to it."""
    if isinstance(init, RewardEnsemble):
        return init.n_intents
    try:
        given = np.asarray(init)
    except ValueError:  # ragged: said by who reads it
        return most
    if given.ndim == 1 and given.dtype.kind in "iuU":
        _at_most(np.unique(given[given >= 0] if given.dtype.kind == "i" else given).size, most)
    if given.ndim != 2:
        return most
    _at_most(given.shape[1], most)
    return int(given.shape[1])


def _at_most(n_intents: int, most: int) -> None:
    if n_intents > most:
        raise InvalidParameter(
            f"init has {n_intents} intents, more than max_intents={most}. Raise max_intents.",
            parameter="init",
            value=n_intents,
        )
