"""`BayesianIntentMixture`: a Dirichlet process mixture of intents, which infers how many there are.

In place of the papers' samplers (Choi & Kim 2012, Almingol & Montesano 2015) it has a variational posterior; ADR 0011.
"""

from __future__ import annotations

import warnings
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri
from sklearn.base import BaseEstimator

from limiirl.demos import Demonstrations
from limiirl.errors import ConvergenceWarning, InvalidParameter
from limiirl.irl import MaxEnt
from limiirl.irl.checks import count, positive
from limiirl.irl.prepared import Prepared, prepare
from limiirl.mdp.ensemble import RewardEnsemble
from limiirl.mixture import checks
from limiirl.mixture.bayesian_bound import Problem
from limiirl.mixture.bayesian_prior import Prior
from limiirl.mixture.bayesian_search import Found, search
from limiirl.mixture.bayesian_slopes import check_model
from limiirl.mixture.bayesian_sticks import Concentration
from limiirl.mixture.estimator import IntentMixture
from limiirl.mixture.inference import Inference
from limiirl.mixture.init import grouping, is_given, random_rewards, standardised
from limiirl.mixture.reporting import Reporting
from limiirl.mixture.summary import Summary

Float = NDArray[np.float64]


class BayesianIntentMixture(Inference, Reporting, BaseEstimator):  # type: ignore[misc]
    r"""A mixture of as many intents as the demonstrations call for: a Dirichlet process prior over their rewards.

    Each new demonstration follows an intent with the probability of how many follow it already, or, by a weight of
    `concentration`, a new one whose reward is drawn from the prior. The posterior is variational: responsibilities,
    Beta sticks, and a Gaussian for the rewards of each intent. `bound_` is what it proves of the log evidence; sweeps
    never lower it, and intents are merged, dropped and split where that raises it. An intent pays for its rewards by
    how far the data narrow them down, so that no criterion is needed to stop. The same data and `random_state` give the
    same result; the order of demonstrations does not matter.

    Parameters
    ----------
    max_intents : int
        How many intents to begin with, and the most that there may be.
    irl : model, optional
        The single-intent model, with `fit` and `log_prob`; `MaxEnt()` by default. It is cloned, never changed. Its
        ridge is not used, since the prior takes its place. `SigmaGIRL` has no Gaussian posterior, and is refused.
    init : str, array, RewardEnsemble, clusterer or callable
        Where to begin, as for `IntentMixture`.
    concentration : float or (shape, rate)
        alpha of the Dirichlet process: about alpha log(1 + N / alpha) intents are expected before anything is seen. A
        pair gives alpha a Gamma prior, and alpha is learned.
    prior_scale : float
        Rewards are N(0, prior_scale^2) before anything is seen, restricted to the model's bounds: how large rewards may
        well be in the features' units. The larger, the more an intent costs.
    embedding : (N, m) array or callable, optional
        What to cluster at the start instead of feature counts.
    max_iter : int
        Most sweeps after the last move.
    tol : float
        Sweeps end when the bound rises by less than this many nats.
    random_state : int, Generator, RandomState or None
        For the clustering at the start; the rest is not random.

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
        The bound on the log evidence of all demonstrations together. Exact expectations would make it one; they are
        where log-likelihoods are quadratic in rewards, and near it elsewhere.
    intent_posterior_ : dict of int to float
        Probability of each number of intents that the search met, the best partition of each standing for all. The
        exact posterior also adds up many partitions in which single demonstrations stand apart.
    expected_intents_ : float
        The mean of that.
    new_intent_weight_ : float
        Probability that the next demonstration follows an intent that nobody has shown yet.
    concentration_ : float
        alpha, or its posterior mean.
    history_ : list of Step
    n_iter_, converged_ : int, bool
        Sweeps in all, and whether the last rose by less than `tol`.
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
        tol: float = 1e-3,
        random_state: Any = None,
    ) -> None:
        self.max_intents = max_intents
        self.irl = irl
        self.init = init
        self.concentration = concentration
        self.prior_scale = prior_scale
        self.embedding = embedding
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def fit(self, mdp: Any, demos: Demonstrations, groups: ArrayLike | None = None) -> BayesianIntentMixture:
        """Infer the intents behind demonstrations, and how many there are.

        Parameters
        ----------
        mdp : MDP
        demos : Demonstrations
        groups : (N,), optional
            Whom each demonstration belongs to: all those of a group then share an intent.
        """
        most, max_iter = count(self.max_intents, "max_intents"), count(self.max_iter, "max_iter")
        scale, concentration = positive(self.prior_scale, "prior_scale"), _concentration(self.concentration)
        tol = positive(self.tol, "tol", zero=True)
        irl = checks.fresh(MaxEnt() if self.irl is None else self.irl)
        prepared = prepare(irl, mdp, checks.demonstrations(demos), groups)
        check_model(prepared)
        prior = Prior(prepared.box(_n_parameters(prepared)), scale)
        points = IntentMixture(embedding=self.embedding).points(prepared)
        problem = Problem(prepared, prior, concentration, standardised(points))
        found = search(problem, self._start(prepared, prior, points, most), most, max_iter, tol)
        self.irl_ = irl
        self._keep(found, prepared, prior)
        if not found.converged:
            warnings.warn(
                f"The bound still rises by more than tol={tol:g} nats a sweep after {max_iter} sweeps. Raise max_iter "
                "or tol.",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def fit_predict(self, mdp: Any, demos: Demonstrations, groups: ArrayLike | None = None) -> NDArray[np.int64]:
        """Fit, and return the intent (N,) of each demonstration."""
        return np.asarray(self.fit(mdp, demos, groups).labels_)

    def _start(self, prepared: Prepared, prior: Prior, points: Float, most: int) -> Float:
        """Return responsibilities (G, K) to begin with."""
        rng = np.random.default_rng(checks.seeds(self.random_state, 1)[0])
        K = min(_given_intents(self.init, most), len(prepared.units))
        if isinstance(self.init, str) and self.init == "random_rewards":
            found: Any = random_rewards(prior.box.lower, prior.box.upper, K, rng)
        elif is_given(self.init):
            found = grouping(self.init, points, _given_intents(self.init, most), prepared.units, rng, first=True)
        else:
            # Clusterers draw points by their position: sorted ones are the same whatever order demonstrations have.
            order = np.lexsort(points.T[::-1])
            found = grouping(self.init, points[order], K, prepared.units, rng, first=True)
            if not isinstance(found, RewardEnsemble):
                found = found[np.argsort(order)]
        if not isinstance(found, RewardEnsemble):
            return np.asarray(found)
        checks.ensemble(found, found.n_intents, prepared)
        U = np.zeros((len(prepared.units), found.n_intents))
        prepared.expect(np.asarray(found.weights), np.asarray(found.thetas), U)
        return U

    def _keep(self, found: Found, prepared: Prepared, prior: Prior) -> None:
        state, units = found.state, prepared.units
        self.n_intents_ = state.n_intents
        expected = state.sticks.weights
        self.weights_, self.new_intent_weight_ = expected / expected.sum(), float(1.0 - expected.sum())
        self.thetas_ = prior.theta(state.rewards.mean)
        self.responsibilities_ = units.spread(state.U)
        self.labels_ = np.argmax(self.responsibilities_, axis=1)
        self.groups_ = units.names if units.grouped else None
        self.group_responsibilities_ = state.U if units.grouped else None
        self.bound_, self.concentration_ = state.bound, state.sticks.concentration
        numbers = sorted(found.evidence)
        log_evidence = np.array([found.evidence[number] for number in numbers])
        share = np.exp(log_evidence - log_evidence.max())
        self.intent_posterior_ = dict(zip(numbers, (share / share.sum()).tolist(), strict=True))
        self.expected_intents_ = float(sum(number * p for number, p in self.intent_posterior_.items()))
        self.history_, self.converged_ = found.history, found.converged
        self.n_iter_ = sum(step.event == "sweep" for step in found.history)
        self.mdp_, self._prepared = prepared.mdp, prepared
        self._posterior_of_rewards, self._prior = state.rewards, prior

    @property
    def ensemble_(self) -> RewardEnsemble:
        """The weights and rewards as one value."""
        checks.fitted(self)
        return RewardEnsemble(self.weights_, self.thetas_)

    @property
    def mixture_(self) -> IntentMixture:
        """The weights and rewards as a fitted `IntentMixture`, which was not changed by EM."""
        checks.fitted(self)
        known = self.__dict__.get("_mixture")
        if known is None or known[0] is not self.thetas_:  # made once for each fit
            ready = self._prepared
            groups = None if ready.units.index is None else ready.units.names[ready.units.index]
            mixture = IntentMixture(self.n_intents_, self.irl, init=self.ensemble_, max_iter=0)
            self._mixture = (self.thetas_, mixture.fit(ready.mdp, ready.demos, groups))
        return self._mixture[1]

    def credible_intervals(self, level: float = 0.95) -> Float:
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
        checks.fitted(self)
        if not 0.0 < positive(level, "level") < 1.0:
            raise InvalidParameter(f"level must be between 0 and 1; it is {level!r}.")
        rewards = self._posterior_of_rewards
        width = float(ndtri(0.5 + 0.5 * level)) * np.linalg.norm(rewards.root, axis=2)
        return np.stack([self._prior.theta(rewards.mean - width), self._prior.theta(rewards.mean + width)], axis=2)

    def summary(self, demos: Demonstrations | None = None, groups: ArrayLike | None = None) -> Summary:
        """Return what was found, as `IntentMixture.summary` has it, with its errors, which know no prior."""
        return self.mixture_.summary(demos, groups)

    def align_to(self, other: IntentMixture | RewardEnsemble) -> IntentMixture:
        """Return an `IntentMixture` of the same intents, in the order of another's."""
        return self.mixture_.align_to(other)

    def save(self, folder: str | PathLike[str]) -> None:
        """Write the weights and rewards to a folder as an `IntentMixture`, whose `load` reads it.

        The posterior around them is not written.
        """
        self.mixture_.save(folder)


def _concentration(given: Any) -> Concentration:
    """Return alpha, or the shape and rate of its prior."""
    if isinstance(given, tuple | list):
        if len(given) != 2:
            raise InvalidParameter(
                f"concentration must be a number, or (shape, rate) of a Gamma prior; it is {given!r}."
            )
        return positive(given[0], "concentration's shape"), positive(given[1], "concentration's rate")
    return positive(given, "concentration")


def _n_parameters(prepared: Prepared) -> int:
    """Return d, by a fit to everybody where the model does not say it."""
    if prepared.n_parameters is not None:
        return prepared.n_parameters
    everybody = prepared.moments(np.ones((len(prepared.units), 1)))
    return int(prepared.maximise(everybody, None, np.arange(1), 100).thetas.shape[1])


def _given_intents(init: Any, most: int) -> int:
    """Return how many intents an init has, or `most` where it may have any number."""
    if isinstance(init, RewardEnsemble):
        return init.n_intents
    given: NDArray[Any] = np.asarray(init) if is_given(init) else np.empty(0)
    return int(given.shape[1]) if given.ndim == 2 else most
