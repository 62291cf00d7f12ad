"""What a fitted mixture says about itself: standard errors, criteria, a summary, and its intents in another's order."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl.demos import Demonstrations
from limiirl.errors import InvalidParameter
from limiirl.irl.devices import anywhere
from limiirl.irl.prepared import Prepared, prepare
from limiirl.mdp.ensemble import RewardEnsemble
from limiirl.mixture import align, checks
from limiirl.mixture.information import StandardErrors, free_parameters, standard_errors
from limiirl.mixture.summary import Summary, evaluate, summarise

if TYPE_CHECKING:
    from limiirl.mixture.estimator import IntentMixture

Float = NDArray[np.float64]


class Reporting:
    """The methods of `IntentMixture` that judge a fit."""

    weights_: Float
    thetas_: Float
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
        ready: Prepared | None = state.pop("_prepared", None)
        if ready is not None:
            state["_fitted_to"] = ready.demos, ready.units.groups
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
            self._prepared = prepare(_settled(self.irl_), self.mdp_, *data)

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

    def bic(self, demos: Demonstrations, groups: ArrayLike | None = None) -> float:
        """Return the Bayesian information criterion, -2 log L + n_free log N; lower is better.

        N is the number of demonstrations, or of groups. Rewards on a bound and directions that cannot be identified are
        not counted, nor are intents that hardly anybody follows.
        """
        return self._bic(*self._evaluated(demos, groups))

    def aic(self, demos: Demonstrations, groups: ArrayLike | None = None) -> float:
        """Return Akaike's information criterion, -2 log L + 2 n_free; lower is better. See `bic`."""
        U, log_likelihood = self._evaluated(demos, groups)
        return -2.0 * log_likelihood + 2.0 * self._n_free(len(U))

    def icl(self, demos: Demonstrations, groups: ArrayLike | None = None) -> float:
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
        checks.fitted(self)
        known = demos is not None or groups is not None or hasattr(self, "_prepared")
        return summarise(cast("IntentMixture", self), self._data(demos, groups) if known else None)

    def align_to(self, other: IntentMixture | RewardEnsemble) -> IntentMixture:
        """Return a copy of this fitted mixture whose intents stand in the order of another's.

        `limiirl.mixture.align.intent_order` says how they are compared.

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
        return align.permuted(mine, align.intent_order(mine, other))

    def _data(self, demos: Demonstrations | None, groups: ArrayLike | None) -> Prepared:
        """Return demonstrations under the fitted model: those given, or those of the fit."""
        checks.fitted(self)
        if demos is not None:
            return prepare(_settled(self.irl_), self.mdp_, checks.demonstrations(demos), groups)
        if groups is not None:
            raise InvalidParameter("groups belong to demonstrations; pass both, or neither for those of the fit.")
        known = getattr(self, "_prepared", None)
        if known is None:
            raise InvalidParameter(
                "Standard errors need the demonstrations, which a mixture loaded from a file does not have. Pass those "
                "that it was fitted to: standard_errors(demos), with groups if it was fitted to groups."
            )
        return cast("Prepared", known)

    def _evaluated(self, demos: Demonstrations, groups: ArrayLike | None) -> tuple[Float, float]:
        """Return responsibilities (G, K) of all units, and their log-likelihood together."""
        return evaluate(self, self._data(checks.demonstrations(demos), groups))

    def _bic(self, U: Float, log_likelihood: float) -> float:
        return -2.0 * log_likelihood + self._n_free(len(U)) * float(np.log(len(U)))

    def _n_free(self, n_units: int) -> int:
        return free_parameters(self.irl_, self.mdp_, self.weights_, self.thetas_, n_units).n_free


def _settled(irl: Any) -> Any:
    """Return a copy of a fitted model that keeps the largest length which its first data settled."""
    model, longest = checks.fresh(irl), getattr(irl, "max_length_", None)
    if longest is not None and hasattr(model, "max_length"):
        model.max_length = longest
    return model
