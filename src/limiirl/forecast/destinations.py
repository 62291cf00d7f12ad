"""Where is a trip going? The posterior over candidate destinations, from what has been driven of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from limiirl._typing import FloatArray, IntArray
from limiirl.demos import Demonstrations, name_demo
from limiirl.errors import InvalidDemos
from limiirl.forecast.prefixes import alone
from limiirl.forecast.validate import log

# Destinations that are written out, and numbers that partial trips, candidates and intents may fill at a time.
_SHOWN = 5
_AT_ONCE = 2**22


@dataclass(frozen=True, eq=False, repr=False)
class DestinationPosterior:
    """The probability of each candidate destination for each of N partial trips.

    Attributes
    ----------
    candidates : (G,)
        States.
    probability : (N, G)
        Each row sums to 1.

    Examples
    --------
    >>> found = DestinationPosterior(np.array([4, 7, 9]), np.array([[0.2, 0.7, 0.1]]))
    >>> found
    bound for: state 7 70.0 %, 4 20.0 %, 9 10.0 %
    >>> found.most_likely, found.top(2)
    (array([7]), array([[7, 4]]))
    """

    candidates: IntArray
    probability: FloatArray

    def __len__(self) -> int:
        return len(self.probability)

    @property
    def most_likely(self) -> IntArray:
        """The most probable destination (N,) of each trip, the first of equals."""
        return np.asarray(self.candidates[np.argmax(self.probability, axis=1)])

    def top(self, n: int) -> IntArray:
        """Return the n most probable destinations (N, n) of each trip, the most probable first."""
        order = np.argsort(-self.probability, axis=1, kind="stable")
        return np.asarray(self.candidates[order[:, :n]])

    def __repr__(self) -> str:
        if len(self) != 1:
            return f"destinations of {len(self)} partial trips among {self.candidates.size} candidates"
        order = np.argsort(-self.probability[0], kind="stable")[:_SHOWN]
        listed = ", ".join(f"{self.candidates[j]} {100 * self.probability[0, j]:.1f} %" for j in order)
        more = f" and {self.candidates.size - _SHOWN} more" if self.candidates.size > _SHOWN else ""
        return f"bound for: state {listed}{more}"


def destinations(
    trips: Any, log_prior: FloatArray, demos: Demonstrations, candidates: IntArray, prior: FloatArray | None
) -> DestinationPosterior:
    """Return the posterior over destinations of partial trips.

    ``p(g | prefix) prop. to prior(g) sum_k p(k | s_1, g) p_k(prefix | s_1, g)``. A `DestinationMaxEnt` has p(k | s_1,
    g) = rho_k. For `MaxEnt` it is the posterior of the intent of one who goes from s_1 to g.

    Parameters
    ----------
    trips : FreeEnds or GivenEnds
    log_prior : (N, K)
        Of intents.
    demos : Demonstrations
        N partial trips.
    candidates : (G,)
    prior : (G,) or None
        Of destinations. None: the model's own, which only `MaxEnt` has.
    """
    size = max(1, _AT_ONCE // max(1, candidates.size * log_prior.shape[1]))
    parts = [slice(i, i + size) for i in range(0, len(demos), size)]
    log_p = np.concatenate([_log_joint(trips, log_prior[part], demos[part], candidates, prior) for part in parts])
    total = np.logaddexp.reduce(log_p, axis=1)
    lost = total == -np.inf
    if np.any(lost):
        i = int(np.argmax(lost))
        raise InvalidDemos(
            f"{name_demo(demos.ids, i)}: a trip that begins so leads to none of the {candidates.size} candidate "
            f"destinations. From state {demos.last_states[i]} none can be reached, or it was there already. Pass other "
            "candidates.",
            parameter="candidates",
            index=i,
        )
    return DestinationPosterior(candidates, np.exp(log_p - total[:, None]))


def _log_joint(
    trips: Any, log_prior: FloatArray, demos: Demonstrations, candidates: IntArray, prior: FloatArray | None
) -> FloatArray:
    """Return (N, G) the log of prior(g) p(prefix | s_1, g), up to a constant of each trip."""
    begun = np.logaddexp.reduce(trips.log_begin_each(demos, candidates) + log_prior[:, None], axis=2)
    if prior is None:
        return np.asarray(begun)
    # By start: what all trips from there to the candidate weigh.
    whole = np.logaddexp.reduce(
        trips.log_begin_each(alone(demos.start_states), candidates) + log_prior[:, None], axis=2
    )
    possible = whole > -np.inf
    return np.where(possible, log(prior) + begun - np.where(possible, whole, 0.0), -np.inf)
