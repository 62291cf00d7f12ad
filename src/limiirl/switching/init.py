"""Initialisation of EM: clustered windows (the paper's warm start), labels, a fitted mixture, or random windows."""

from __future__ import annotations

import copy
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limiirl._parallel import one_thread
from limiirl._typing import FloatArray, IntArray
from limiirl.demos import Demonstrations
from limiirl.errors import InvalidParameter
from limiirl.irl import OptionalMembers
from limiirl.kernels.switching import ChainCounts
from limiirl.mixture import (
    IntentMixture,
    as_responsibilities,
    centre_by_environment,
    environment_fractions,
    kmeans,
)
from limiirl.switching.problem import Parameters, SwitchingProblem
from limiirl.switching.transitions import Logits

# Labels become responsibilities _CERTAIN * one-hot + (1 - _CERTAIN) / K, so that no responsibility is 0.
_CERTAIN = 0.9
# Number of windows up to which all of them are clustered; of more, a sample is clustered.
_MOST_WINDOWS = 20_000
# Expected transitions that are added to each entry of the first transition matrix.
_ADDED = 1.0
_NAMES = ("kmeans", "random")


def check_init(init: Any) -> None:
    """Raise for an unknown `init`."""
    if isinstance(init, str) and init not in _NAMES:
        other = "labels or responsibilities per step, an IntentMixture or a SwitchingMixture"
        raise InvalidParameter.of("init", init, f"must be one of {', '.join(_NAMES)}, or {other}")


def is_random(init: Any) -> bool:
    """Return True if initialisations differ between restarts."""
    return isinstance(init, str)


class SwitchingStarts:
    """Initial parameters of EM for a fit problem."""

    def __init__(self, init: Any, problem: SwitchingProblem, n_intents: int, window: int) -> None:
        self.init, self.problem, self.n_intents, self.window = init, problem, n_intents, window

    @cached_property
    def _windows(self) -> tuple[IntArray, Any]:
        """Windows and their counts; `window` is reduced if there would be fewer windows than intents."""
        number, counts = self.problem.sum_windows(self.window)
        if counts.shape[0] < self.n_intents:
            return self.problem.sum_windows(self.problem.n_steps // self.n_intents)
        return number, counts

    def begin(self, rng: np.random.Generator, *, first: bool) -> Parameters:
        """Return initial parameters; clusterings other than the `first` use one random start."""
        if not isinstance(self.init, str | IntentMixture) and hasattr(self.init, "transition_"):
            return self._from_fitted(self.init)
        return self._m_step(self._responsibilities(rng, first=first))

    def _responsibilities(self, rng: np.random.Generator, *, first: bool) -> FloatArray:
        """Return the initial responsibilities (n, K) of steps."""
        K = self.n_intents
        if isinstance(self.init, IntentMixture):
            return self._from_mixture(self.init)
        if not isinstance(self.init, str):
            given = np.asarray(self.init)
            U = as_responsibilities(self.init, K, self.problem.units)
            return U if given.ndim == 2 else _CERTAIN * U + (1.0 - _CERTAIN) / K
        number, counts = self._windows
        if K == 1:
            labels = np.zeros(counts.shape[0], dtype=np.int64)
        elif self.init == "random":
            labels = rng.integers(K, size=counts.shape[0])
        else:
            labels = self._cluster(counts, rng, n_starts=20 if first else 1)
        return np.asarray(_CERTAIN * np.eye(K)[labels] + (1.0 - _CERTAIN) / K)[number]

    def _cluster(self, counts: Any, rng: np.random.Generator, n_starts: int) -> NDArray[np.int64]:
        """Return k-means labels (W,) of the mean features of windows."""
        features = self.problem.emissions.features()
        sizes = np.asarray(counts.sum(axis=1)).ravel()
        points = np.asarray(counts @ features) / sizes[:, None]
        fractions = environment_fractions(self.problem.emissions)
        if fractions is not None:
            points = centre_by_environment(points, np.asarray(counts @ fractions) / sizes[:, None])
        with one_thread():
            if len(points) <= _MOST_WINDOWS:
                return kmeans(points, self.n_intents, rng, n_starts)
            sample = points[rng.choice(len(points), _MOST_WINDOWS, replace=False)]
            labels = kmeans(sample, self.n_intents, rng, n_starts)
            centres = np.array([sample[labels == k].mean(axis=0) for k in np.unique(labels)])
            distance = np.sum(centres**2, axis=1) - 2.0 * points @ centres.T
            return np.asarray(np.argmin(distance, axis=1), dtype=np.int64)

    def _from_mixture(self, mixture: IntentMixture) -> FloatArray:
        """Return the posterior of a fitted mixture for the window of each step."""
        if not hasattr(mixture, "thetas_"):
            raise InvalidParameter.of("init", mixture, "must be fitted", remedy="Call its fit first.")
        if len(mixture.weights_) != self.n_intents:
            raise InvalidParameter.of("init", len(mixture.weights_), f"must have n_intents={self.n_intents} intents")
        problem, (number, _) = self.problem, self._windows
        starts = np.flatnonzero(np.diff(number, prepend=-1))
        anywhere = copy.copy(mixture)
        anywhere.mdp_ = mixture.mdp_.replace(p0=np.full(problem.mdp.n_states, 1.0 / problem.mdp.n_states))
        # Window w begins at the state of its first step, and ends in the state after its last step.
        demos = problem.demos
        demo = np.searchsorted(problem.decisions.offsets, starts, side="right") - 1
        lengths = np.diff(np.append(starts, problem.n_steps)) + 1
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        rows = np.arange(offsets[-1]) + np.repeat(starts + demo - offsets[:-1], lengths)
        actions = None if demos.actions is None else demos.actions[rows]
        if actions is not None:
            actions[offsets[1:] - 1] = -1
        windows = Demonstrations(
            demos.states[rows], offsets, actions, state_names=demos.state_names, action_names=demos.action_names
        )
        supports = OptionalMembers.of(mixture.irl_).supports
        partial = supports is not None and "log_prob_prefix" in supports
        return np.asarray(anywhere.predict_proba(windows, partial=partial)[number])

    def _from_fitted(self, fitted: Any) -> Parameters:
        """Return the parameters of a fitted SwitchingMixture."""
        if len(fitted.initial_) != self.n_intents:
            raise InvalidParameter.of("init", len(fitted.initial_), f"must have n_intents={self.n_intents} intents")
        d, m = self.problem.mdp.n_features, self.problem.design.n_columns
        if fitted.thetas_.shape[1] != d:
            raise InvalidParameter.of("init", fitted.thetas_.shape[1], f"must have {d} features, like the MDP")
        B = fitted.logits_.B
        same = fitted.logits_.B.shape[1] == m
        logits = Logits(fitted.logits_.A, B if same else np.zeros((self.n_intents, m)))
        design, first = self.problem.first, getattr(fitted, "initial_logits_", None)
        if design is None or (first is not None and first.shape[1] != design.X.shape[1]):
            first = None if design is None else design.constant(fitted.initial_)
        elif first is None:
            first = design.constant(fitted.initial_)
        return Parameters(fitted.initial_, fitted.thetas_, logits, first)

    def _m_step(self, U: FloatArray) -> Parameters:
        """Return the parameters for responsibilities U (n, K), with transitions between the most probable intents."""
        problem, K = self.problem, self.n_intents
        index, offsets = problem.decisions.number, problem.decisions.offsets
        m = len(problem.decisions.demos)
        decisions: FloatArray = np.array([np.bincount(index, weights=U[:, k], minlength=m) for k in range(K)]).T.copy()
        labels, last = np.argmax(U, axis=1), np.zeros(len(U), dtype=bool)
        last[offsets[1:] - 1] = True
        pair = (labels[:-1] * K + labels[1:])[~last[:-1]]
        transitions = np.asarray(np.bincount(pair, minlength=K * K).reshape(K, K) + _ADDED, dtype=np.float64)
        A = np.log(transitions / transitions.sum(axis=1, keepdims=True))
        logits = Logits(A, np.zeros((K, problem.design.n_columns)))
        empty = np.empty((0, K))
        counts = ChainCounts(0.0, decisions, U[offsets[:-1]].sum(axis=0), empty, empty, transitions, -1)
        return problem.first_m_step(counts, logits)
