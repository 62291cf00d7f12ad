"""Posterior over candidate destinations of a partial trip."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from limiirl._typing import FloatArray, IntArray
from limiirl.demos import Demonstrations, name_demo
from limiirl.errors import InvalidDemos
from limiirl.forecast.prefixes import one_state_trips
from limiirl.forecast.validate import log

# Destinations shown in a summary.
_SHOWN = 5
# Size of the largest array of partial trips, candidates and intents.
_BATCH = 2**22


@dataclass(frozen=True, eq=False, repr=False)
class DestinationPosterior:
    """Posterior (N, G) over candidate destinations (G,) of N partial trips.

    Examples
    --------
    >>> posterior = DestinationPosterior(np.array([4, 7, 9]), np.array([[0.2, 0.7, 0.1]]))
    >>> posterior
    destination: state 7 70.0 %, 4 20.0 %, 9 10.0 %
    >>> posterior.most_likely, posterior.top(2)
    (array([7]), array([[7, 4]]))
    """

    candidates: IntArray
    probability: FloatArray

    def __len__(self) -> int:
        return len(self.probability)

    @property
    def most_likely(self) -> IntArray:
        """Most probable destination (N,) of each trip; the first one if tied."""
        return np.asarray(self.candidates[np.argmax(self.probability, axis=1)])

    def top(self, n: int) -> IntArray:
        """Return the n most probable destinations (N, n) of each trip in descending order."""
        order = np.argsort(-self.probability, axis=1, kind="stable")
        return np.asarray(self.candidates[order[:, :n]])

    def __repr__(self) -> str:
        if len(self) != 1:
            return f"destinations of {len(self)} partial trips among {self.candidates.size} candidates"
        order = np.argsort(-self.probability[0], kind="stable")[:_SHOWN]
        listed = ", ".join(f"{self.candidates[j]} {100 * self.probability[0, j]:.1f} %" for j in order)
        more = f" and {self.candidates.size - _SHOWN} more" if self.candidates.size > _SHOWN else ""
        return f"destination: state {listed}{more}"


def infer_destinations(
    trips: Any, log_prior: FloatArray, demos: Demonstrations, candidates: IntArray, prior: FloatArray | None
) -> DestinationPosterior:
    """Return the posterior over the destinations of partial trips, given a log-prior (N, K) over intents.

    It is proportional to ``prior(g) sum_k p(k | s_1, g) p_k(prefix | s_1, g)``, where p(k | s_1, g) is rho_k for
    `DestinationMaxEnt`. If `prior` (G,) is None, the distribution of final states under `MaxEnt` is used.
    """
    size = max(1, _BATCH // max(1, candidates.size * log_prior.shape[1]))
    batches = [slice(i, i + size) for i in range(0, len(demos), size)]
    log_p = np.concatenate([_log_joint(trips, log_prior[rows], demos[rows], candidates, prior) for rows in batches])
    total = np.logaddexp.reduce(log_p, axis=1)
    impossible = total == -np.inf
    if np.any(impossible):
        i = int(np.argmax(impossible))
        raise InvalidDemos(
            f"{name_demo(demos.ids, i)}: no trip with this prefix ends in one of {candidates.size} candidates: each is "
            f"unreachable from state {demos.last_states[i]}, or was visited before. Pass other candidates.",
            parameter="candidates",
            index=i,
        )
    return DestinationPosterior(candidates, np.exp(log_p - total[:, None]))


def _log_joint(
    trips: Any, log_prior: FloatArray, demos: Demonstrations, candidates: IntArray, prior: FloatArray | None
) -> FloatArray:
    """Return log prior(g) p(prefix | s_1, g) (N, G), up to a constant per trip."""
    log_prefix = np.logaddexp.reduce(trips.log_prob_prefix_by_goal(demos, candidates) + log_prior[:, None], axis=2)
    if prior is None:
        return np.asarray(log_prefix)
    # Normalise by the probability of all trips from the start state to the candidate.
    starts = one_state_trips(demos.start_states)
    whole = np.logaddexp.reduce(trips.log_prob_prefix_by_goal(starts, candidates) + log_prior[:, None], axis=2)
    possible = whole > -np.inf
    return np.where(possible, log(prior) + log_prefix - np.where(possible, whole, 0.0), -np.inf)
