"""The methods of a fitted mixture: predictions for demonstrations, and reports about the fit."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, NamedTuple, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl._estimator import NoMetadataRouting
from limiirl._typing import FloatArray
from limiirl._validation import as_generator, check_count
from limiirl.demos import Demonstrations, Groups
from limiirl.errors import InvalidDemos, InvalidParameter
from limiirl.irl import FitProblem, NextActions, anywhere, make_problem
from limiirl.kernels.e_step import e_step
from limiirl.mdp import RewardEnsemble
from limiirl.mixture import restarts, validate
from limiirl.mixture.information import StandardErrors, free_parameters, standard_errors
from limiirl.mixture.summary import Summary, evaluate, summarise

if TYPE_CHECKING:
    from limiirl.mixture.estimator import IntentMixture


class MostLikely(NamedTuple):
    """The most probable trajectory between two states, the intent that it serves, and log rho_k p(tau | theta_k)."""

    demos: Demonstrations
    intent: int
    log_prob: float


class Inference(NoMetadataRouting):
    """The methods of `IntentMixture` that need a fit; all average over intents."""

    weights_: FloatArray
    thetas_: FloatArray
    irl_: Any
    mdp_: Any

    def predict_proba(
        self, demos: Demonstrations, groups: ArrayLike | None = None, *, partial: bool = False
    ) -> FloatArray:
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
        return units.broadcast(U)

    def predict(self, demos: Demonstrations, groups: ArrayLike | None = None, *, partial: bool = False) -> Any:
        """Return the most likely intent (N,) of each demonstration; see `predict_proba`."""
        return np.argmax(self.predict_proba(demos, groups, partial=partial), axis=1)

    def score_samples(
        self, demos: Demonstrations, groups: ArrayLike | None = None, *, partial: bool = False
    ) -> FloatArray:
        """Return the log-likelihood (N,) of each demonstration, or (G,) of each group in sorted order."""
        return self._posterior(*self._log_prob(demos, groups, partial))[1]

    def score(self, demos: Demonstrations, groups: ArrayLike | None = None, *, partial: bool = False) -> float:
        """Return the mean log-likelihood of demonstrations, or of groups."""
        found = self.score_samples(demos, groups, partial=partial)
        if found.size == 0:
            raise InvalidDemos(
                "A mean log-likelihood needs at least one demonstration; there are none.", parameter="demos"
            )
        return float(np.mean(found))

    def sample(self, n: int, seed: int | np.random.Generator | None = None) -> tuple[Demonstrations, NDArray[np.int64]]:
        """Draw n demonstrations, and return them with the intents (n,) that they follow."""
        validate.fitted(self)
        rng = as_generator(seed)
        labels = rng.choice(len(self.weights_), size=check_count(n, "n"), p=self.weights_)
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

    def next_actions(self, demos: Demonstrations) -> NextActions:
        """Return the probabilities of each next action (N, A) and of stopping (N,), averaged over intents.

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
        return NextActions(action, np.sum(posterior * found.stop, axis=1))

    def most_likely(self, start: int, goal: int, intent: int | None = None) -> MostLikely:
        """Return the most probable trajectory from one state that ends in another, of one intent or over all."""
        validate.fitted(self)
        find, K = self._method("most_likely"), len(self.weights_)
        intents = range(K) if intent is None else [validate.one_intent(intent, K)]
        found = [find(self.mdp_, self.thetas_[k], start, goal) for k in intents]
        log_prob = [float(np.log(self.weights_[k])) + value for k, (_, value) in zip(intents, found, strict=True)]
        best = int(np.argmax(log_prob))
        return MostLikely(found[best][0], intents[best], log_prob[best])

    def policy(self, k: int, step: int = 0) -> Any:
        """Return the probability (S, A) of each action in each state under intent k, given that it goes on.

        Trajectory models such as `MaxEnt` look at how many steps are left, so that the policy depends on the step.
        """
        validate.fitted(self)
        theta = self.thetas_[validate.one_intent(k, len(self.weights_))]
        return self._method("policy")(self.mdp_, theta, step)

    def _log_prob(self, demos: Demonstrations, groups: ArrayLike | None, partial: bool) -> tuple[Groups, FloatArray]:
        validate.fitted(self)
        validate.new_demonstrations(demos)
        units = Groups.for_demos(groups, demos)
        if len(demos) == 0:
            return units, np.empty((0, len(self.weights_)))
        log_prob = self._method("log_prob_prefix") if partial else self.irl_.log_prob
        return units, units.sum(np.asarray(log_prob(self.mdp_, self.thetas_, demos), dtype=np.float64))

    def _posterior(self, units: Groups, log_p: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return responsibilities (G, K) and log-likelihoods (G,); a unit that nobody can have been is an error."""
        U = np.zeros(log_p.shape)
        found = e_step(np.ascontiguousarray(log_p), self.thetas_, np.empty(0), np.log(self.weights_), U)
        if found.bad_row >= 0:
            raise InvalidDemos(
                f"{units.name(found.bad_row)} has no probability under any intent. Check that it was recorded in "
                "the MDP that was fitted.",
                parameter="demos",
                index=found.bad_row,
            )
        return U, np.asarray(np.logaddexp.reduce(log_p + np.log(self.weights_), axis=1))

    def _method(self, name: str) -> Any:
        found = getattr(self.irl_, name, None)
        if found is None:
            raise InvalidParameter(
                f"{type(self.irl_).__name__} has no method {name}, which this needs; MaxEnt has it.",
                parameter="irl",
                value=name,
            )
        return found


class Reporting:
    """The methods of `IntentMixture` that judge a fit."""

    weights_: FloatArray
    thetas_: FloatArray
    irl_: Any
    mdp_: Any

    def __copy__(self) -> Self:
        """Return another mixture of the same parts, which are not made anew as those of a pickle are."""
        found = type(self).__new__(type(self))
        found.__dict__.update(vars(self))
        return found

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what the fit worked with, which is large and may be on a GPU: it is made again from its data."""
        state = dict(cast("dict[str, Any]", super().__getstate__()))
        ready: FitProblem | None = state.pop("_problem", None)
        if ready is not None:
            state["_fitted_to"] = ready.demos, ready.units.labels
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "irl_" in state:  # one that is not fitted is on its way to a worker, which has the device that was asked for
            state = state | {name: anywhere(state[name]) for name in ("irl", "irl_")}
        self._restore(state)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return a mixture that stays on its device, as a pickle does not."""
        found = type(self).__new__(type(self))
        found._restore(copy.deepcopy(self.__getstate__(), memo))
        return found

    def _restore(self, state: dict[str, Any]) -> None:
        state = dict(state)
        data = state.pop("_fitted_to", None)
        vars(self).update(state)
        if data is not None:
            self._problem = make_problem(_settled(self.irl_), self.mdp_, *data)

    def standard_errors(self, demos: Demonstrations | None = None, groups: ArrayLike | None = None) -> StandardErrors:
        """Return standard errors of shares and rewards, from the mixture's observed information (Louis' identity).

        Rewards on a bound, or that cannot be identified, have none; `status` says why.

        Parameters
        ----------
        demos, groups : Demonstrations, (N,), optional
            What the mixture was fitted to. A mixture that was loaded from a file has to be told; others remember.

        Examples
        --------
        >>> from limiirl import MDP, Demonstrations, IntentMixture, MaxEnt
        >>> mdp = MDP.from_edges([0], [1], p0=[1, 0], state_features=[[0], [1]])
        >>> demos = Demonstrations.from_lists([[0], [0, 1], [0, 1], [0, 1]])
        >>> mix = IntentMixture(1, MaxEnt(2, bounds=None)).fit(mdp, demos)
        >>> mix.thetas_.round(4), mix.standard_errors().thetas.round(4)
        (array([[1.0986]]), array([[1.1547]]))
        """
        return standard_errors(self._data(demos, groups), self.weights_, self.thetas_)

    def bic(self, demos: Demonstrations | None = None, groups: ArrayLike | None = None) -> float:
        """Return the Bayesian information criterion, -2 log L + n_free log N; lower is better.

        N is the number of demonstrations, or of groups; by default those of the fit. Rewards on a bound, directions
        that cannot be identified and nearly empty intents are not counted.
        """
        return self._bic(*self._evaluated(demos, groups))

    def aic(self, demos: Demonstrations | None = None, groups: ArrayLike | None = None) -> float:
        """Return Akaike's information criterion, -2 log L + 2 n_free; lower is better. See `bic`."""
        U, log_likelihood = self._evaluated(demos, groups)
        return -2.0 * log_likelihood + 2.0 * self._n_free(len(U))

    def icl(self, demos: Demonstrations | None = None, groups: ArrayLike | None = None) -> float:
        """Return the integrated completed likelihood: `bic` plus twice the entropy of the responsibilities.

        Lower is better; it counts against intents that overlap.
        """
        U, log_likelihood = self._evaluated(demos, groups)
        entropy = -float(np.sum(U * np.log(np.where(U > 0.0, U, 1.0))))
        return self._bic(U, log_likelihood) + 2.0 * entropy

    def summary(self, demos: Demonstrations | None = None, groups: ArrayLike | None = None) -> Summary:
        """Return what was found, as a text to print, a table for notebooks, or a dict for JSON.

        A mixture that was loaded from a file no longer has its demonstrations; the summary then leaves out standard
        errors, unless they are passed.

        Examples
        --------
        >>> from limiirl import MDP, Demonstrations, IntentMixture, MaxEnt
        >>> mdp = MDP.from_edges([0], [1], p0=[1, 0], state_features=[[0], [1]])
        >>> demos = Demonstrations.from_lists([[0], [0, 1], [0, 1], [0, 1]])
        >>> mix = IntentMixture(1, MaxEnt(2, bounds=None)).fit(mdp, demos)
        >>> round(mix.summary().bic, 3)
        5.885
        """
        return summarise(cast("IntentMixture", self), self._known_data(demos, groups))

    def align_to(self, other: IntentMixture | RewardEnsemble) -> IntentMixture:
        """Return a copy of this fitted mixture whose intents stand in the order of another's.

        `limiirl.mixture.restarts.intent_order` says how they are compared.

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
        return restarts.permuted(mine, restarts.intent_order(mine, other))

    def _data(self, demos: Demonstrations | None, groups: ArrayLike | None) -> FitProblem:
        """Return demonstrations under the fitted model: those given, or those of the fit."""
        validate.fitted(self)
        if demos is not None:
            return make_problem(_settled(self.irl_), self.mdp_, validate.demonstrations(demos), groups)
        if groups is not None:
            raise InvalidParameter(
                "groups belong to demonstrations; pass both, or neither for those of the fit.", parameter="groups"
            )
        known = getattr(self, "_problem", None)
        if known is None:
            raise InvalidParameter(
                "Standard errors need the demonstrations, which a mixture loaded from a file does not have. Pass those "
                "that it was fitted to: standard_errors(demos), with groups if it was fitted to groups.",
                parameter="demos",
            )
        return cast("FitProblem", known)

    def _known_data(self, demos: Demonstrations | None, groups: ArrayLike | None) -> FitProblem | None:
        """Return `_data`, or None where a mixture that was loaded from a file is asked about its own."""
        validate.fitted(self)
        known = demos is not None or groups is not None or hasattr(self, "_problem")
        return self._data(demos, groups) if known else None

    def _evaluated(self, demos: Demonstrations | None, groups: ArrayLike | None) -> tuple[FloatArray, float]:
        """Return responsibilities (G, K) of all units, and their log-likelihood together."""
        return evaluate(self, self._known_data(demos, groups))

    def _bic(self, U: FloatArray, log_likelihood: float) -> float:
        return -2.0 * log_likelihood + self._n_free(len(U)) * float(np.log(len(U)))

    def _n_free(self, n_units: int) -> int:
        return free_parameters(self.irl_, self.mdp_, self.weights_, self.thetas_, n_units).n_free


def _settled(irl: Any) -> Any:
    """Return a copy of a fitted model that keeps the largest length which its first data settled."""
    model, longest = validate.fresh(irl), getattr(irl, "max_length_", None)
    if longest is not None and hasattr(model, "max_length"):
        model.max_length = longest
    return model
