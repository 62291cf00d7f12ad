"""What a fitted mixture says about demonstrations, old and new, whole and partial."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl.demos import Demonstrations
from limiirl.demos.units import Units
from limiirl.errors import InvalidDemos, InvalidParameter
from limiirl.irl.checks import count, generator
from limiirl.kernels.expectation import expect
from limiirl.mixture import checks

Float = NDArray[np.float64]


class Forecast(NamedTuple):
    """What comes next: probabilities of each action (N, A), and of stopping (N,)."""

    action: Float
    stop: Float


class MostLikely(NamedTuple):
    """The most probable trajectory between two states, the intent that it serves, and log rho_k p(tau | theta_k)."""

    demos: Demonstrations
    intent: int
    log_prob: float


class Inference:
    """The methods of `IntentMixture` that need a fit; all average over intents."""

    weights_: Float
    thetas_: Float
    irl_: Any
    mdp_: Any

    def predict_proba(self, demos: Demonstrations, groups: ArrayLike | None = None, *, partial: bool = False) -> Float:
        """Return the posterior (N, K) of each demonstration's intent.

        Parameters
        ----------
        groups : (N,), optional
            Demonstrations of a group share their intent, and their posterior.
        partial : bool
            Take each demonstration as the beginning of one that is still going on.
        """
        units, log_p = self._log_prob(demos, groups, partial)
        U, _ = self._posterior(units, log_p)
        return units.spread(U)

    def predict(self, demos: Demonstrations, groups: ArrayLike | None = None, *, partial: bool = False) -> Any:
        """Return the most likely intent (N,) of each demonstration; see `predict_proba`."""
        return np.argmax(self.predict_proba(demos, groups, partial=partial), axis=1)

    def score_samples(self, demos: Demonstrations, groups: ArrayLike | None = None, *, partial: bool = False) -> Float:
        """Return the log-likelihood (N,) of each demonstration, or (G,) of each group in sorted order."""
        return self._posterior(*self._log_prob(demos, groups, partial))[1]

    def score(self, demos: Demonstrations, groups: ArrayLike | None = None, *, partial: bool = False) -> float:
        """Return the mean log-likelihood of demonstrations, or of groups."""
        found = self.score_samples(demos, groups, partial=partial)
        if found.size == 0:
            raise InvalidDemos("A mean log-likelihood needs at least one demonstration; there are none.")
        return float(np.mean(found))

    def sample(self, n: int, seed: int | np.random.Generator | None = None) -> tuple[Demonstrations, NDArray[np.int64]]:
        """Draw n demonstrations, and return them with the intents (n,) that they follow."""
        checks.fitted(self)
        rng = generator(seed)
        labels = rng.choice(len(self.weights_), size=count(n, "n"), p=self.weights_)
        draw = self._method("sample")
        parts = [
            draw(self.mdp_, self.thetas_[k], int(size), rng)
            for k, size in enumerate(np.bincount(labels, minlength=len(self.weights_)))
            if size
        ]
        # The parts stand one intent after the other; put each where its label is.
        order = np.empty(labels.size, dtype=np.int64)
        order[np.argsort(labels, kind="stable")] = np.arange(labels.size)
        return Demonstrations.concat(parts)[order], labels

    def next_actions(self, demos: Demonstrations) -> Forecast:
        """Return what comes next after each demonstration, given all that it shows: an average over intents.

        Each demonstration is taken as the beginning of one; its intent's posterior weighs what each intent would do.

        Examples
        --------
        >>> from limiirl import MDP, IntentMixture, MaxEnt, RewardEnsemble
        >>> mdp = MDP.from_edges([0, 1, 1], [1, 2, 3], p0=[1, 0, 0, 0])
        >>> demos = Demonstrations.from_lists([[0, 1, 2]] * 3 + [[0, 1, 3]])
        >>> mix = IntentMixture(1, MaxEnt(bounds=(-3, 3)), random_state=0).fit(mdp, demos)
        >>> mix.next_actions(Demonstrations.from_lists([[0, 1]])).action.round(2)
        array([[0.71, 0.25]])
        """
        posterior = self.predict_proba(demos, partial=True)
        found = self._method("next_actions")(self.mdp_, self.thetas_, demos)
        # An intent that cannot have begun so has posterior 0, and says nothing about what comes next.
        action = np.einsum("nk,nka->na", posterior, found.action)
        return Forecast(action, np.sum(posterior * found.stop, axis=1))

    def most_likely(self, start: int, goal: int, intent: int | None = None) -> MostLikely:
        """Return the most probable trajectory from one state that ends in another, of one intent or over all."""
        checks.fitted(self)
        find, K = self._method("most_likely"), len(self.weights_)
        intents = range(K) if intent is None else [checks.one_intent(intent, K)]
        found = [find(self.mdp_, self.thetas_[k], start, goal) for k in intents]
        log_prob = [float(np.log(self.weights_[k])) + value for k, (_, value) in zip(intents, found, strict=True)]
        best = int(np.argmax(log_prob))
        return MostLikely(found[best][0], intents[best], log_prob[best])

    def policy(self, k: int, step: int = 0) -> Any:
        """Return the probability (S, A) of each action in each state under intent k, given that it goes on.

        Trajectory models such as `MaxEnt` look at how many steps are left, so that the policy depends on the step.
        """
        checks.fitted(self)
        theta = self.thetas_[checks.one_intent(k, len(self.weights_))]
        return self._method("policy")(self.mdp_, theta, step)

    def _log_prob(self, demos: Demonstrations, groups: ArrayLike | None, partial: bool) -> tuple[Units, Float]:
        checks.fitted(self)
        checks.new_demonstrations(demos)
        units = Units.among(groups, demos)
        if len(demos) == 0:
            return units, np.empty((0, len(self.weights_)))
        log_prob = self._method("log_prob_prefix") if partial else self.irl_.log_prob
        return units, units.total(np.asarray(log_prob(self.mdp_, self.thetas_, demos), dtype=np.float64))

    def _posterior(self, units: Units, log_p: Float) -> tuple[Float, Float]:
        """Return responsibilities (G, K) and log-likelihoods (G,); a unit that nobody can have been is an error."""
        U = np.zeros(log_p.shape)
        found = expect(np.ascontiguousarray(log_p), self.thetas_, np.empty(0), np.log(self.weights_), U)
        if found.bad_row >= 0:
            raise InvalidDemos(
                f"{units.name(found.bad_row)} has no probability under any intent. Check that it was recorded in "
                "the MDP that was fitted."
            )
        return U, np.asarray(np.logaddexp.reduce(log_p + np.log(self.weights_), axis=1))

    def _method(self, name: str) -> Any:
        found = getattr(self.irl_, name, None)
        if found is None:
            raise InvalidParameter(f"{type(self.irl_).__name__} has no method {name}, which this needs; MaxEnt has it.")
        return found
