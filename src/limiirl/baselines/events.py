"""Actions or next states as the events to predict, and the base class of the baselines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator

from limiirl._estimator import NoMetadataRouting
from limiirl._typing import FloatArray, IntArray
from limiirl.demos import Demonstrations
from limiirl.errors import InvalidDemos, InvalidParameter, NotFitted
from limiirl.mdp import MDP


class Events(NamedTuple):
    """Decisions (n,) of demonstrations, in the order of `Demonstrations.steps`.

    Attributes
    ----------
    state : (n,)
        State of each decision.
    event : (n,)
        Action, or the next state if no actions are recorded.
    t, demo : (n,)
        Index of the step within its demonstration, and index of the demonstration.
    position : (n,)
        Index of the state in `Demonstrations.states`.
    """

    state: IntArray
    event: IntArray
    t: IntArray
    demo: IntArray
    position: IntArray


class Baseline(NoMetadataRouting, BaseEstimator, ABC):  # type: ignore[misc]
    """Base class of predictors of the next action, or of the next state if no actions are recorded.

    Attributes
    ----------
    mdp_ : MDP or None
    by_action_ : bool
        True if events are actions, False if they are next states.
    n_states_, n_events_ : int
    """

    def fit(self, demos: Demonstrations, mdp: MDP | None = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        demos : Demonstrations
            Actions must be recorded in all steps or in none.
        mdp : MDP, optional
            Determines the possible events of each state. By default, every event is possible in every state.

        Returns
        -------
        self
        """
        self.mdp_: Any = mdp
        own = demos if mdp is None else demos.renumber(mdp)
        if own.n_transitions == 0:
            raise InvalidDemos.of("demos", own.n_transitions, "must have at least one step")
        self.by_action_ = own.actions is not None
        self._names = own.state_names, own.action_names
        events = self._read(own, check=False)
        self.n_states_ = int(own.states.max()) + 1 if mdp is None else mdp.n_states
        self.n_events_ = self._count_events(events)
        if mdp is not None:
            own.steps(mdp)  # raises if a transition is impossible
        self._fit(own, events)
        return self

    def predictive_log_prob(self, demos: Demonstrations) -> FloatArray:
        """Return the log-probability of each decision given the earlier states and actions.

        Returns
        -------
        (n,)
            One value per step, in the order of `SwitchingMixture.predictive_log_prob`: by demonstration, then by time.
        """
        if not hasattr(self, "by_action_"):
            raise NotFitted(f"This {type(self).__name__} is not fitted. Call fit first.")
        own = demos if self.mdp_ is None else demos.renumber(self.mdp_)
        if self.mdp_ is not None:
            own.steps(self.mdp_)
        return self._predict(own, self._read(own, check=True))

    def score(self, demos: Demonstrations) -> float:
        """Return the mean of `predictive_log_prob`, in nats per step."""
        return float(np.mean(self.predictive_log_prob(demos)))

    @abstractmethod
    def _fit(self, demos: Demonstrations, events: Events) -> None:
        """Fit the model to validated events."""

    @abstractmethod
    def _predict(self, demos: Demonstrations, events: Events) -> FloatArray:
        """Return the log-probability (n,) of validated events."""

    def _count_events(self, events: Events) -> int:
        if self.mdp_ is None:
            return int(events.event.max()) + 1 if self.by_action_ else self.n_states_
        return int(self.mdp_.n_actions if self.by_action_ else self.mdp_.n_states)

    def _read(self, demos: Demonstrations, *, check: bool) -> Events:
        """Validate the actions, and with `check` also the states and names, and return the events."""
        demo = np.repeat(np.arange(len(demos)), demos.lengths - 1)
        position = np.arange(demo.size) + demo
        if (demos.actions is not None) != self.by_action_ and demos.n_transitions:
            rule = f"must {'' if self.by_action_ else 'not '}have actions, as in fit"
            raise InvalidDemos.of("demos", demos.actions, rule)
        event = demos.states[position + 1] if demos.actions is None else demos.actions[position]
        t = position - demos.offsets[demo]
        if np.any(event < 0):
            i = int(np.argmax(event < 0))
            remedy = "Record all actions, or none: demos.replace(actions=None)."
            rule = "must have an action in every step"
            raise InvalidDemos.of("demos", -1, rule, index=(int(demo[i]), int(t[i])), remedy=remedy)
        if check:
            self._check_known(demos, event, demo, t)
        return Events(demos.states[position], event, t, demo, position)

    def _check_known(self, demos: Demonstrations, event: IntArray, demo: IntArray, t: IntArray) -> None:
        if self.mdp_ is None and (demos.state_names, demos.action_names) != self._names:
            rule = "must have the same state and action names as in fit"
            raise InvalidDemos.of("demos", demos.state_names, rule, remedy="Pass mdp to fit.")
        position = np.arange(demo.size) + demo
        known = (demos.states[position], self.n_states_, "state"), (event, self.n_events_, "event")
        for values, bound, unit in known:
            if np.any(values >= bound):
                i = int(np.argmax(values >= bound))
                rule, index = f"must have {unit} indices below {bound}, as in fit", (int(demo[i]), int(t[i]))
                raise InvalidDemos.of("demos", int(values[i]), rule, index=index, remedy="Pass mdp to fit.")


def count_available(model: Baseline) -> FloatArray:
    """Return the number (S,) of possible events of each state."""
    if model.mdp_ is None:
        return np.full(model.n_states_, float(model.n_events_))
    mdp = model.mdp_
    if model.by_action_:
        return np.bincount(mdp.pair_state, minlength=mdp.n_states).astype(np.float64)
    pairs = np.unique(mdp.src.astype(np.int64) * mdp.n_states + mdp.dst)
    return np.bincount(pairs // mdp.n_states, minlength=mdp.n_states).astype(np.float64)


class Uniform(Baseline):
    """Uniform distribution over the possible actions of each state.

    Parameters
    ----------
    n_actions : int, optional
        Number of actions in every state. By default, the number of actions that the MDP allows in the state or,
        without an MDP, the largest action index in the demonstrations plus 1.

    Examples
    --------
    >>> demos = Demonstrations.from_lists([[0, 1, 0]], actions=[[0, 3]])
    >>> Uniform().fit(demos).predictive_log_prob(demos).round(4).tolist()
    [-1.3863, -1.3863]
    """

    def __init__(self, n_actions: int | None = None) -> None:
        self.n_actions = n_actions

    def _fit(self, demos: Demonstrations, events: Events) -> None:
        del demos
        if self.n_actions is not None and self.n_actions < self.n_events_ and self.mdp_ is None:
            most = int(events.event.max()) + 1
            raise InvalidParameter.of("n_actions", self.n_actions, f"must be at least {most}, as in the data")
        self.available_ = count_available(self)
        if self.n_actions is not None:
            self.available_[:] = self.n_actions

    def _predict(self, demos: Demonstrations, events: Events) -> FloatArray:
        del demos
        return -np.log(self.available_[events.state])
