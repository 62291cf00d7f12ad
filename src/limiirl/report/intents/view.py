"""Contents of the page on a fitted mixture, as plain arrays: rewards with errors, memberships and visits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from limiirl._typing import BoolArray, FloatArray, IntArray
from limiirl._validation import is_collection
from limiirl.demos import Agents, Demonstrations, Groups
from limiirl.errors import InvalidParameter, LimiirlError
from limiirl.irl import CausalModel, DestinationMaxEnt
from limiirl.mdp import MDP
from limiirl.mixture import BayesianIntentMixture, IntentMixture, Summary, summarise, validate
from limiirl.report.intents.layout import Layout, find_layout, merge_previous
from limiirl.switching import DwellTimes, Segments, SwitchingErrors, SwitchingSummary, summarise_switching

SURE = 0.9
"""A demonstration is assigned clearly if its largest posterior probability is at least this value."""

# Familywise error rate of all statements about rewards, and of all statements about visits.
_LEVEL = 0.05
# Largest number of rewards K d with standard errors, as in summaries.
_MOST_PARAMETERS = 3000
# Maximum difference between posteriors at which given demonstrations count as the training data.
_SAME = 1e-3
# The same for switching intents: maximum difference of log-likelihoods per step.
_SAME_SCORE = 1e-6
# Number of steps of the windows that measure typical feature counts of switching intents.
_WINDOW = 20
# Maximum size of a policy (S x A), and maximum number of steps, in the computation of expected visits.
_MOST_ENTRIES, _MOST_STEPS = 5_000_000, 2_000
# Fraction of the recordings of an intent below which none of them continues.
_NO_RECORDING = 1e-12


@dataclass(frozen=True, eq=False)
class Contrasts:
    """Differences (K, m) between each intent and the average of the other intents, with standard errors.

    `others` (K, m) are the averages over the other intents, or 0 for a single intent. `clear` marks differences with an
    absolute value above `z` standard errors, where `z` is the critical value of a joint test at the 5 % level
    (Bonferroni).
    """

    values: FloatArray
    others: FloatArray
    errors: FloatArray

    @property
    def differences(self) -> FloatArray:
        """`values` - `others`."""
        return np.asarray(self.values - self.others)

    @cached_property
    def z(self) -> float:
        """Critical value of |difference| / error."""
        return float(-ndtri(0.5 * _LEVEL / max(int(np.isfinite(self.errors).sum()), 1)))

    @cached_property
    def clear(self) -> BoolArray:
        """Mask (K, m) of differences that are distinguishable from 0."""
        known = np.isfinite(self.errors)
        return np.asarray(known & (np.abs(self.differences) > self.z * np.where(known, self.errors, np.inf)))


@dataclass(frozen=True, eq=False)
class IntentsView:
    """A fitted mixture of K intents, and its demonstrations or agents, if given.

    `places` is the MDP without previous states, and `place_of` (S,) has the index of each state in it (see
    `merge_previous`).
    """

    mixture: Any
    data: Any
    groups: NDArray[Any] | None
    trained: bool
    names: tuple[str, ...]
    layout: Layout | None
    estimator: str
    places: MDP | None
    place_of: IntArray
    covariates: Any = None

    @property
    def mdp(self) -> Any:
        """The MDP; None for agents."""
        return self.mixture.mdp_

    @property
    def n_intents(self) -> int:
        """Number K of intents."""
        return len(self.weights)

    @property
    def weights(self) -> FloatArray:
        """Mixture weights (K,)."""
        return np.asarray(self.mixture.weights_)

    @property
    def demos(self) -> Demonstrations | None:
        """The demonstrations; None for agents, or without data."""
        return self.data if isinstance(self.data, Demonstrations) else None

    @cached_property
    def units(self) -> Groups | None:
        """Units that have one intent each: demonstrations, agents or groups; None without data."""
        return None if self.data is None else Groups.for_demos(self.groups, self.data)

    @cached_property
    def posterior(self) -> FloatArray | None:
        """Posterior (N, K) of each demonstration or agent."""
        if self.data is None or self.trained:
            return self.mixture.responsibilities_  # type: ignore[no-any-return]
        return np.asarray(self.mixture.predict_proba(self.data, self.groups, covariates=self.covariates))

    @cached_property
    def unit_posterior(self) -> FloatArray | None:
        """Posterior (G, K) of each unit."""
        if self.posterior is None:
            return None
        if self.units is None:
            grouped = self.mixture.group_responsibilities_
            return self.posterior if grouped is None else np.asarray(grouped)
        if self.units.index is None:
            return self.posterior
        first = np.unique(self.units.index, return_index=True)[1]
        return np.asarray(self.posterior[first])

    @property
    def noun(self) -> str:
        """Plural noun of the units."""
        grouped = self.groups is not None if self.data is not None else self.mixture.groups_ is not None
        return "groups" if grouped else "agents" if self.mdp is None else "demonstrations"

    @cached_property
    def unit_names(self) -> list[str]:
        """Name of each demonstration or agent."""
        if self.data is None:
            return []
        known = self.data.names if isinstance(self.data, Agents) else self.data.ids
        return [str(name) for name in (np.arange(len(self.data)) if known is None else known)]

    @cached_property
    def recordings(self) -> Groups | None:
        """Groups in the data, even if the fit did not use them; None without groups."""
        known = self.groups if self.groups is not None else getattr(self.data, "groups", None)
        return None if known is None else Groups.from_labels(known, len(self.data))

    @cached_property
    def feature_names(self) -> list[str]:
        """Name of each reward; an indicator of a state has the name of the state."""
        names = getattr(self.mdp, "feature_names", None)
        if not names:
            return [f"feature {j}" for j in range(self.mixture.thetas_.shape[1])]
        places = self.places
        if places is None or self.mdp.n_state_features != places.n_states:
            return [str(name) for name in names]
        own = [str(s) for s in range(places.n_states)] if places.state_names is None else places.state_names
        default = {f"state[{name}]": self.state_name(s) for s, name in enumerate(own)}
        return [default.get(name, str(name)) for name in names]

    def state_name(self, place: int) -> str:
        """Return the name of a state without its previous state."""
        names = getattr(self.places, "state_names", None)
        return f"state {place}" if names is None else str(names[place])

    @cached_property
    def state_names(self) -> list[str]:
        """Names of the states without previous states."""
        return [] if self.places is None else [self.state_name(place) for place in range(self.places.n_states)]

    @cached_property
    def visited(self) -> IntArray:
        """States (n,) of all demonstrations, without previous states."""
        return np.empty(0, dtype=np.int64) if self.demos is None else np.asarray(self.place_of[self.demos.states])

    def path(self, i: int) -> IntArray:
        """Return the states of demonstration i, without previous states."""
        assert self.demos is not None  # callers check it
        return self.visited[self.demos.offsets[i] : self.demos.offsets[i + 1]]

    @cached_property
    def summary(self) -> Summary | None:
        """Summary without standard errors; None if the mixture was fitted to a stream."""
        return None if self.mixture.responsibilities_ is None else summarise(self.mixture, None)

    @cached_property
    def _errors(self) -> tuple[FloatArray, NDArray[np.str_], FloatArray]:
        """Standard errors (K,) of the weights, and status (K, d) and covariance (K d, K d) of the rewards."""
        K, d = self.mixture.thetas_.shape
        unknown = np.full(K, np.nan), np.full((K, d), "ok"), np.full((K * d, K * d), np.nan)
        if isinstance(self._source, BayesianIntentMixture):
            summary = self._source.summary()
            return unknown[0], summary.status, np.diag(summary.errors.ravel() ** 2)
        if not self.trained or K * d > _MOST_PARAMETERS:
            return (unknown[0], self.summary.status, unknown[2]) if self.summary is not None else unknown
        known = self.mixture.standard_errors(self.data, self.groups, covariates=self.covariates)
        return known.weights, known.status, known.covariance[K:, K:]

    @property
    def _source(self) -> Any:
        return self.__dict__.get("_fitted", self.mixture)

    @property
    def weight_errors(self) -> FloatArray:
        """Standard errors (K,) of the mixture weights; nan if unavailable."""
        return self._errors[0]

    @property
    def status(self) -> NDArray[np.str_]:
        """Status (K, d) of each reward; see `StandardErrors`."""
        return self._errors[1]

    @cached_property
    def errors(self) -> FloatArray:
        """Standard errors (K, d) of the rewards; nan if unavailable."""
        variance = np.diag(self._errors[2]).reshape(self.mixture.thetas_.shape)
        return np.sqrt(np.where(variance >= 0.0, variance, np.nan))

    @cached_property
    def rewards(self) -> Contrasts:
        """Contrasts of the rewards; a reward on a bound or without an error is not compared."""
        thetas, covariance = self.mixture.thetas_, self._errors[2]
        K, d = thetas.shape
        others = _other_weights(self.weights)
        variance = np.empty((K, d))
        for k in range(K):
            row = -others[k]
            row[k] = 1.0
            for j in range(d):
                cells = np.arange(K) * d + j
                used = np.flatnonzero(row)
                variance[k, j] = row[used] @ covariance[np.ix_(cells[used], cells[used])] @ row[used]
        return Contrasts(thetas, others @ thetas, np.sqrt(np.where(variance > 0.0, variance, np.nan)))

    @cached_property
    def scale(self) -> FloatArray:
        """Typical difference (d,) between the feature counts of demonstrations, which makes rewards comparable."""
        d = self.mixture.thetas_.shape[1]
        if self.demos is None or self.mdp is None or self.mdp.n_features != d:
            return np.ones(d)
        spread = np.asarray(np.std(self.demos.features(self.mdp), axis=0))
        return np.where(spread > 0.0, spread, 1.0)

    @property
    def weighted(self) -> str:
        """Plural noun of the units that have a posterior."""
        return "demonstrations"

    @cached_property
    def visits(self) -> Contrasts | None:
        """Visits per 100 steps (K, S); errors are clustered by recording, and posteriors are taken as known."""
        if self.demos is None or self.posterior is None or self.places is None:
            return None
        units = self.recordings if self.recordings is not None else Groups.from_labels(None, len(self.demos))
        owner = np.arange(len(self.demos)) if units.index is None else units.index
        each = np.repeat(np.arange(len(self.demos)), self.demos.lengths)
        return visit_rates(self.visited, self.posterior[each], owner[each], self.places.n_states)

    @cached_property
    def expected_visits(self) -> FloatArray | None:
        """Visits per 100 steps (K, S) under the fitted model; None if the model does not provide them."""
        if self.demos is None or self.posterior is None or self.places is None:
            return None
        try:
            counts = _expected_counts(self.mixture, self.demos, self.posterior)
        except (LimiirlError, MemoryError):
            return None
        if counts is None:
            return None
        merged = np.array([np.bincount(self.place_of, row, minlength=self.places.n_states) for row in counts])
        return np.asarray(100.0 * merged / np.maximum(merged.sum(axis=1, keepdims=True), 1e-300))

    def examples(self, k: int, n: int = 3) -> IntArray:
        """Return the demonstrations of at least median length with the highest posterior of intent k."""
        if self.demos is None or self.posterior is None:
            return np.empty(0, dtype=np.int64)
        own = np.flatnonzero(np.argmax(self.posterior, axis=1) == k)
        if own.size == 0:
            return own
        lengths = self.demos.lengths[own]
        own = own[lengths >= np.median(lengths)]
        # Among equal probabilities, prefer a length near the median.
        usual = np.abs(self.demos.lengths[own] - np.median(lengths))
        return own[np.lexsort((usual, -np.round(self.posterior[own, k], 3)))][:n]


def make_view(
    mixture: Any,
    data: Any = None,
    groups: ArrayLike | None = None,
    *,
    covariates: Any = None,
    intent_names: Any = None,
    coordinates: ArrayLike | None = None,
) -> IntentsView:
    """Return the contents of the page; by default, data and groups are those of the fit."""
    problem = getattr(mixture, "_problem", None)
    if data is None:
        if groups is not None:
            message = "groups requires demos. Pass both, or neither to use the training data."
            raise InvalidParameter(message, parameter="groups", value=groups)
        if problem is not None:
            data, groups = problem.demos, problem.units.labels
    elif not isinstance(data, Demonstrations | Agents):
        raise InvalidParameter.of("demos", type(data).__name__, "must be Demonstrations or Agents")
    base = mixture.mixture_ if isinstance(mixture, BayesianIntentMixture) else mixture
    if not isinstance(base, IntentMixture):
        raise InvalidParameter.of("mixture", type(mixture).__name__, "must be a fitted mixture of intents")
    K = len(base.weights_)
    given_names = [f"intent {k}" for k in range(K)] if intent_names is None else intent_names
    names = tuple(map(str, given_names)) if is_collection(given_names) else ()
    if len(names) != K or len(set(names)) != K:
        raise InvalidParameter.of("intent_names", intent_names, f"must be {K} different names, one per intent")
    labels = None if groups is None else np.asarray(groups)
    given = data
    if isinstance(data, Demonstrations) and base.mdp_ is not None:
        data = data.renumber(base.mdp_)
    fitted_to = None if problem is None else problem.demos
    trained = data is not None and (given is fitted_to or _is_training(base, data, labels, covariates))
    places, place_of = merge_previous(base.mdp_)
    layout = find_layout(places, coordinates)
    view = IntentsView(base, data, labels, trained, names, layout, type(mixture).__name__, places, place_of, covariates)
    if base is not mixture and trained:
        object.__setattr__(view, "_fitted", mixture)
    return view


@dataclass(frozen=True, eq=False)
class SwitchingView(IntentsView):
    """A fitted `SwitchingMixture` of K intents, and demonstrations, if given."""

    covariates: Any = None

    @property
    def weights(self) -> FloatArray:
        """Expected fractions (K,) of the steps."""
        return np.asarray(self.mixture.shares_)

    @property
    def posterior(self) -> None:
        """None: demonstrations have no single intent."""
        return

    @property
    def unit_posterior(self) -> None:
        """None: demonstrations have no single intent."""
        return

    @property
    def noun(self) -> str:
        """Plural noun of the demonstrations."""
        return "recordings"

    @cached_property
    def path(self) -> NDArray[np.int64]:  # type: ignore[override]
        """Most probable sequence of intents (n,)."""
        return np.asarray(self.mixture.predict(self.data, self.covariates))

    @cached_property
    def steps(self) -> FloatArray:
        """Smoothed posterior (n, K) of the intent at each step."""
        return np.asarray(self.mixture.predict_proba(self.data, self.covariates))

    @cached_property
    def owner(self) -> IntArray:
        """Demonstration (n,) of each step."""
        return np.repeat(np.arange(len(self.data)), self.data.lengths - 1)

    @cached_property
    def dwell(self) -> DwellTimes | None:
        """Lengths of the segments of the most probable sequences."""
        if self.data is None:
            return None
        offsets = np.concatenate([[0], np.cumsum(self.data.lengths - 1)])
        segments = Segments.from_path(self.path, self.steps, offsets, self.data.ids)
        return DwellTimes.from_segments(segments, self.mixture.mean_transition_, self.data.lengths - 1)

    @cached_property
    def measured(self) -> SwitchingErrors | None:
        """Standard errors, if the demonstrations are the training data and this takes about a minute at most."""
        if not self.trained or not self.mixture.has_fast_errors(self.data):
            return None
        groups = self.mixture.groups_
        clustered = groups is not None and np.unique(groups).size > 1
        errors: SwitchingErrors = self.mixture.standard_errors(
            self.data, self.covariates, groups=groups if clustered else None
        )
        return errors

    @cached_property
    def summary(self) -> SwitchingSummary:  # type: ignore[override]
        """Summary with the dwell times and standard errors."""
        return summarise_switching(self.mixture, self.dwell, self.measured)

    @cached_property
    def _errors(self) -> tuple[FloatArray, NDArray[np.str_], FloatArray]:
        K, d = self.mixture.thetas_.shape
        if self.measured is None:
            return np.full(K, np.nan), self.summary.status, np.full((K * d, K * d), np.nan)
        own = slice(K, K + K * d)
        covariance = self.measured.covariance[own, own].copy()
        without = ~np.isfinite(self.measured.thetas.ravel())
        covariance[without] = covariance[:, without] = np.nan
        return np.full(K, np.nan), self.measured.status, covariance

    @cached_property
    def scale(self) -> FloatArray:
        """Typical difference (d,) between the feature counts of windows, which makes rewards comparable."""
        if self.data is None:
            return np.ones(self.mixture.thetas_.shape[1])
        spread = np.asarray(np.std(self.data.cut(_WINDOW).features(self.mdp), axis=0))
        return np.where(spread > 0.0, spread, 1.0)

    @property
    def weighted(self) -> str:
        """Plural noun of the units that have a posterior."""
        return "steps"

    @cached_property
    def visits(self) -> Contrasts | None:
        """Decisions per 100 steps (K, S) in each state; errors are clustered by group, or by recording."""
        if self.data is None or self.places is None:
            return None
        states = self.place_of[self.data.states[np.arange(self.owner.size) + self.owner]]
        owner = self.owner if self.units is None or self.units.index is None else self.units.index[self.owner]
        return visit_rates(states, self.steps, owner, self.places.n_states)

    @property
    def expected_visits(self) -> None:
        """None: the policies of the intents do not determine visits in short segments."""
        return

    @cached_property
    def state_rewards(self) -> FloatArray | None:
        """Reward (K, S) of each state, relative to its mean; None without state features."""
        if self.places is None or self.places.state_features is None:
            return None
        rewards = self.places.state_features @ self.mixture.thetas_[:, : self.mdp.n_state_features].T
        return np.asarray((rewards - rewards.mean(axis=0)).T)

    def rename(self, text: str) -> str:
        """Return a name of a quantity with the names of the intents."""
        head, comma, last = text.rpartition(", ")
        own = {f"intent {k}": name for k, name in enumerate(self.names)}
        return f"{head}{comma}{own[last]}" if last in own else text


def make_switching_view(
    mixture: Any,
    demos: Demonstrations | None = None,
    covariates: Any = None,
    groups: ArrayLike | None = None,
    *,
    intent_names: Sequence[str] | None = None,
    coordinates: ArrayLike | None = None,
) -> SwitchingView:
    """Return the contents of the page; by default, the demonstrations and groups are those of the fit."""
    K = len(mixture.shares_)
    names = tuple(f"intent {k}" for k in range(K)) if intent_names is None else tuple(map(str, intent_names))
    if len(names) != K or len(set(names)) != K:
        raise InvalidParameter.of("intent_names", intent_names, f"must be {K} different names, one per intent")
    fitted_to, own = mixture._training
    data = fitted_to if demos is None else validate.check_demos(demos, mixture.mdp_)
    trained = data is not None and data is fitted_to
    if demos is None:
        covariates, groups = own, mixture.groups_ if groups is None else groups
    elif data.n_transitions == mixture.n_steps_:
        trained = abs(mixture.score(data, covariates) - mixture.log_likelihood_) < _SAME_SCORE
    if groups is None and data is not None:
        groups = data.groups
    labels = None if groups is None or data is None else Groups.for_demos(groups, data).labels
    places, place_of = merge_previous(mixture.mdp_)
    layout = find_layout(places, coordinates)
    return SwitchingView(
        mixture, data, labels, trained, names, layout, type(mixture).__name__, places, place_of, covariates
    )


def _is_training(mixture: IntentMixture, data: Any, groups: NDArray[Any] | None, covariates: Any) -> bool:
    stored = mixture.responsibilities_
    if stored is None or len(stored) != len(data) or (mixture.groups_ is None) != (groups is None):
        return False
    posterior = mixture.predict_proba(data, groups, covariates=covariates)
    return bool(np.max(np.abs(posterior - stored), initial=0.0) < _SAME)


def _other_weights(weights: FloatArray) -> FloatArray:
    """Return the matrix (K, K) that averages over the other intents; 0 for a single intent."""
    others = np.tile(weights, (len(weights), 1))
    np.fill_diagonal(others, 0.0)
    total = others.sum(axis=1, keepdims=True)
    return np.asarray(others / np.where(total > 0.0, total, 1.0))


def visit_rates(states: IntArray, U: FloatArray, owner: NDArray[np.int64], n_states: int) -> Contrasts:
    """Return ratio estimates of the visits per 100 steps of n steps, with errors from the residuals of each cluster.

    `states` (n,), `U` (n, K) and `owner` (n,) are the state, the posterior and the cluster of each step.
    """
    from scipy import sparse

    n_owners, K = int(owner.max(initial=-1)) + 1, U.shape[1]
    values, others, errors = np.zeros((K, n_states)), np.zeros((K, n_states)), np.full((K, n_states), np.nan)
    for k in range(K):
        parts = []
        for u, rates in ((U[:, k], values), (1.0 - U[:, k], others)):
            total = float(u.sum())
            if total <= 0.0:
                continue
            weights = 100.0 * u / total
            rates[k] = np.bincount(states, weights, n_states)
            counts = sparse.coo_array((weights, (owner, states)), shape=(n_owners, n_states)).tocsr()
            parts.append((counts, np.bincount(owner, u, n_owners) / total, rates[k]))
        errors[k] = _estimate_error(parts) if n_owners > 1 else np.nan
    return Contrasts(values, others, errors)


def _estimate_error(parts: list[Any]) -> FloatArray:
    """Return the standard error (S,) of the difference of two ratios, from the sums of each cluster."""
    # The residual of cluster c is n_c - r L_c; only n_c is sparse, so the square is expanded.
    signs = (1.0, -1.0)
    sparse_part: Any = sum(sign * part[0] for sign, part in zip(signs, parts, strict=False))
    trends = [sign * part[1] for sign, part in zip(signs, parts, strict=False)]
    rates = [part[2] for part in parts]
    square = np.asarray(sparse_part.multiply(sparse_part).sum(axis=0)).ravel()
    for a, rate in zip(trends, rates, strict=True):
        square -= 2.0 * rate * np.asarray(sparse_part.T @ a).ravel()
        for b, other in zip(trends, rates, strict=True):
            square += float(a @ b) * rate * other
    return np.asarray(np.sqrt(np.maximum(square, 0.0)))


def _expected_counts(mixture: IntentMixture, demos: Demonstrations, U: FloatArray) -> FloatArray | None:
    """Return expected visits (K, S): exact for models of trajectories and trips, and by propagation for policies."""
    mdp, irl = mixture.mdp_, mixture.irl_
    if hasattr(irl, "state_marginals"):
        return np.asarray(irl.state_marginals(mdp, mixture.thetas_))
    if isinstance(irl, DestinationMaxEnt):
        return _counts_to_destinations(mixture, demos, U)
    if not isinstance(irl, CausalModel) or mdp.n_states * mdp.n_actions > _MOST_ENTRIES:
        return None
    counts = np.zeros((U.shape[1], mdp.n_states))
    for k in range(U.shape[1]):
        pi = np.asarray(mixture.policy(k))[mdp.pair_state, mdp.pair_action][mdp.pair_of_edge] * mdp.prob
        p = np.bincount(demos.start_states, weights=U[:, k], minlength=mdp.n_states)
        # Recordings that end in a nonterminal state are truncated: after each step, scale by the observed fraction that
        # continues.
        terminated = np.bincount(demos.lengths, weights=U[:, k] * mdp.terminal[demos.last_states])
        alive = np.cumsum(np.bincount(demos.lengths, weights=U[:, k])[::-1])[::-1]
        for length in range(1, min(alive.size, _MOST_STEPS)):
            counts[k] += p
            after = alive[length + 1] if length + 1 < alive.size else 0.0
            continuing = alive[length] - terminated[length]
            # Posteriors of 1e-17 and their differences, which may round to 0, do not count as recordings.
            if min(after, continuing) <= _NO_RECORDING * alive[0]:
                break
            p = np.bincount(mdp.dst, weights=p[mdp.src] * pi, minlength=mdp.n_states)
            p *= after / continuing
    return counts


def _counts_to_destinations(mixture: IntentMixture, demos: Demonstrations, U: FloatArray) -> FloatArray:
    """Return expected visits (K, S) of trips between the observed starts and destinations."""
    mdp, starts = mixture.mdp_, demos.start_states
    counts = np.empty((U.shape[1], mdp.n_states))
    for k, theta in enumerate(mixture.thetas_):
        flow = mixture.irl_.expected_flow(mdp, theta, starts, demos.last_states, U[:, k])
        counts[k] = np.bincount(starts, U[:, k], mdp.n_states) + np.bincount(mdp.dst, flow, mdp.n_states)
    return counts


def total_variation(observed: FloatArray, expected: FloatArray) -> FloatArray:
    """Return the total variation distance (K,) between two distributions of visits (K, S), per 100 steps."""
    return np.asarray(0.5 * np.abs(observed - expected).sum(axis=1) / 100.0)


def sampling_distance(expected: FloatArray, steps: FloatArray) -> FloatArray:
    """Return the expected `total_variation` (K,) of `steps` (K,) independent draws from `expected` (K, S)."""
    p = np.clip(expected / 100.0, 0.0, 1.0)
    return np.asarray(np.sqrt(0.5 / np.pi) * np.sqrt(p * (1.0 - p) / steps[:, None]).sum(axis=1))
