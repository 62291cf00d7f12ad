"""What a fitted Bayesian mixture says about itself, and the `IntentMixture` that stands for it."""

from __future__ import annotations

from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from limiirl.demos import Demonstrations
from limiirl.errors import InvalidParameter
from limiirl.irl.checks import positive
from limiirl.irl.prepared import Prepared
from limiirl.mdp.ensemble import RewardEnsemble
from limiirl.mixture import checks
from limiirl.mixture.bayesian_prior import Prior
from limiirl.mixture.bayesian_rewards import Rewards
from limiirl.mixture.bayesian_search import Step
from limiirl.mixture.estimator import IntentMixture
from limiirl.mixture.information import StandardErrors
from limiirl.mixture.init import is_given
from limiirl.mixture.reporting import Reporting
from limiirl.mixture.summary import Summary

Float = NDArray[np.float64]
# Of a Gaussian this much lies within a standard deviation of the mean.
_ONE_SIGMA = 0.6827


class BayesianReporting(Reporting):
    """The methods of `BayesianIntentMixture` that judge a fit."""

    irl: Any
    init: Any
    bound_: float
    converged_: bool
    n_iter_: int
    history_: list[Step]
    responsibilities_: Float
    _prepared: Prepared
    _prior: Prior
    _posterior_of_rewards: Rewards

    @property
    def ensemble_(self) -> RewardEnsemble:
        """The weights and rewards as one value."""
        checks.fitted(self)
        return RewardEnsemble(self.weights_, self.thetas_)

    @property
    def mixture_(self) -> IntentMixture:
        """The weights and rewards as a fitted `IntentMixture`; fitted again, its EM would go on from there."""
        checks.fitted(self)
        known = self.__dict__.get("_mixture")
        if known is None or known[0] is not self.thetas_:  # made once for each fit
            self._mixture = (self.thetas_, self._as_mixture())
        found: IntentMixture = self._mixture[1]
        return found

    def _as_mixture(self) -> IntentMixture:
        ready = self._prepared
        found = IntentMixture(len(self.weights_), self.irl, init=self.ensemble_, max_iter=0)
        found.fit(ready.mdp, ready.demos, ready.units.groups).set_params(max_iter=IntentMixture().max_iter)
        # EM did nothing: what converged, or did not, are the sweeps.
        change = float(np.mean(np.sum(np.abs(found.responsibilities_ - self.responsibilities_), axis=1)))
        found.history_ = [replace(found.history_[0], change=change)]
        found.converged_, found.n_iter_ = self.converged_, self.n_iter_
        found.weights_ = self.weights_  # EM divides by their sum, which is 1 but for rounding
        return found

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
        """Return what was found, as `IntentMixture.summary` has it, and how the search went.

        Likelihood and BIC are taken at the medians of rewards, and know no prior; `bound_` does. Beside each reward
        stands half the width of the interval in which it lies with a probability of 68 %.
        """
        checks.fitted(self)
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

    def standard_errors(self, demos: Demonstrations | None = None, groups: ArrayLike | None = None) -> StandardErrors:
        """Return standard errors at the medians of rewards, from the likelihood alone.

        They are no part of the posterior, whose widths are in `credible_intervals`, and have none for a reward on its
        bound.
        """
        return super().standard_errors(demos, groups)

    def bic(self, demos: Demonstrations, groups: ArrayLike | None = None) -> float:
        """Return the BIC at the medians of rewards, where the likelihood is not at its peak; `bound_` judges the fit.

        It is for comparison with an `IntentMixture`, to which it is a little unfair.
        """
        return super().bic(demos, groups)

    def aic(self, demos: Demonstrations, groups: ArrayLike | None = None) -> float:
        """Return Akaike's criterion at the medians of rewards; see `bic`."""
        return super().aic(demos, groups)

    def icl(self, demos: Demonstrations, groups: ArrayLike | None = None) -> float:
        """Return the integrated completed likelihood at the medians of rewards; see `bic`."""
        return super().icl(demos, groups)

    def align_to(self, other: IntentMixture | RewardEnsemble) -> IntentMixture:
        """Return an `IntentMixture` of the same intents, in the order of another's."""
        return self.mixture_.align_to(other)

    def save(self, folder: str | PathLike[str]) -> None:
        """Write the weights and rewards to a folder as an `IntentMixture`, whose `load` reads it.

        There is no `BayesianIntentMixture.load`: the posterior around the rewards is not written.
        """
        self.mixture_.save(folder)
