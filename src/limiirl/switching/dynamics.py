"""Dwell times of intents, stationary shares, the graph of switches, and switching in each group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from limiirl._io import to_pandas
from limiirl._typing import FloatArray

if TYPE_CHECKING:
    from limiirl.demos import Groups
    from limiirl.switching.inference import Segments


def stationary_shares(transition: FloatArray) -> FloatArray:
    """Return the stationary distribution (K,) of a transition matrix (K, K).

    Every fitted probability is positive, so that the distribution is unique.

    Examples
    --------
    >>> stationary_shares(np.array([[0.9, 0.1], [0.3, 0.7]])).round(4).tolist()
    [0.75, 0.25]
    """
    # Elimination of one intent after another (Grassmann, Taksar and Heyman), which subtracts nothing, so that very
    # small probabilities keep their relative accuracy.
    P = np.array(transition, dtype=np.float64)
    K = len(P)
    for k in range(K - 1, 0, -1):
        P[:k, k] /= P[k, :k].sum()
        P[:k, :k] += np.outer(P[:k, k], P[k, :k])
    shares = np.ones(K)
    for k in range(1, K):
        shares[k] = shares[:k] @ P[:k, k]
    return np.asarray(shares / shares.sum())


def expected_dwell_times(transition: FloatArray) -> FloatArray:
    """Return the expected number (K,) of steps until an intent ends, 1 / (1 - P_kk); inf if it never ends.

    Examples
    --------
    >>> expected_dwell_times(np.array([[0.9, 0.1], [0.5, 0.5]])).round(6).tolist()
    [10.0, 2.0]
    """
    leaving = np.sum(transition, axis=1, where=~np.eye(len(transition), dtype=bool))
    with np.errstate(divide="ignore"):
        return np.asarray(1.0 / leaving)


@dataclass(frozen=True, eq=False)
class DwellTimes:
    """Dwell times of the intents, in steps.

    Attributes
    ----------
    expected : (K,)
        Expected number of steps under the fitted transition probabilities, 1 / (1 - P_kk).
    n_segments, n_complete : (K,)
        Number of segments of the most probable sequences of intents, and number of segments that neither begin nor end
        with their demonstration.
    mean, median : (K,)
        Mean and median length of all segments, which underestimate the dwell times if many segments are truncated; nan
        without segments.

    Examples
    --------
    >>> from limiirl.switching import Segments
    >>> path = np.array([0, 0, 0, 1, 0])
    >>> segments = Segments.from_path(path, np.full((5, 2), 0.5), np.array([0, 5]))
    >>> dwell = DwellTimes.from_segments(segments, np.array([[0.5, 0.5], [0.75, 0.25]]), np.array([5]))
    >>> dwell.to_frame().round(2).values.tolist()
    [[0.0, 2.0, 2.0, 0.0, 2.0, 2.0], [1.0, 1.33, 1.0, 1.0, 1.0, 1.0]]
    """

    expected: FloatArray
    n_segments: NDArray[np.int64]
    n_complete: NDArray[np.int64]
    mean: FloatArray
    median: FloatArray

    @classmethod
    def from_segments(cls, segments: Segments, transition: FloatArray, lengths: NDArray[np.int64]) -> DwellTimes:
        """Return the dwell times of segments, for a transition matrix (K, K) and numbers of steps (N,)."""
        K = len(transition)
        complete = (segments.start > 0) & (segments.stop < lengths[segments.demo])
        counts = [np.bincount(segments.intent[which], minlength=K) for which in (slice(None), complete)]
        mean, median = np.full((2, K), np.nan)
        for k in np.flatnonzero(counts[0]):
            own = segments.length[segments.intent == k]
            mean[k], median[k] = np.mean(own), np.median(own)
        return cls(expected_dwell_times(transition), counts[0], counts[1], mean, median)

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one row per intent."""
        names = ("expected", "n_segments", "n_complete", "mean", "median")
        return to_pandas({"intent": np.arange(len(self.mean))} | {name: getattr(self, name) for name in names})


@dataclass(frozen=True, eq=False)
class SwitchingGraph:
    """Transitions between intents.

    Attributes
    ----------
    counts : (K, K)
        Expected number of transitions from intent j to intent k under the smoothed posterior.
    probability : (K, K)
        P(next intent = k | intent j ends); the diagonal is 0, and the row of an intent that never ends is nan.

    Examples
    --------
    >>> graph = SwitchingGraph.from_counts(np.array([[8.0, 1.5, 0.5], [2.0, 3.0, 0.0], [0.0, 0.0, 4.0]]))
    >>> graph.probability.round(2).tolist()
    [[0.0, 0.75, 0.25], [1.0, 0.0, 0.0], [nan, nan, nan]]
    """

    counts: FloatArray
    probability: FloatArray

    @classmethod
    def from_counts(cls, counts: FloatArray) -> SwitchingGraph:
        """Return the graph of expected transitions (K, K)."""
        switches = np.where(np.eye(len(counts), dtype=bool), 0.0, counts)
        left = switches.sum(axis=1, keepdims=True)
        with np.errstate(invalid="ignore"):
            return cls(counts, np.where(left > 0.0, switches / left, np.nan))

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one row per pair of different intents: from, to, switches, probability."""
        source, target = np.nonzero(~np.eye(len(self.counts), dtype=bool))
        columns = {"from": source, "to": target, "switches": self.counts[source, target]}
        return to_pandas(columns | {"probability": self.probability[source, target]})


@dataclass(frozen=True, eq=False)
class GroupDynamics:
    """Shares, dwell times and switching rate of each of G groups, from expected counts under the smoothed posterior.

    Attributes
    ----------
    groups : Groups
    steps : (G, K)
        Expected number of steps with each intent.
    transitions : (G, K, K)
        Expected number of transitions from intent j to intent k.

    Examples
    --------
    >>> from limiirl.demos import Groups
    >>> transitions = np.array([[[8.0, 2.0], [1.0, 9.0]], [[18.0, 2.0], [3.0, 7.0]]])
    >>> dynamics = GroupDynamics(Groups.from_labels(["a", "b"], 2), transitions.sum(axis=2), transitions)
    >>> dynamics.shares.tolist()
    [[0.5, 0.5], [0.6666666666666666, 0.3333333333333333]]
    >>> dynamics.dwell_times.round(2).tolist(), dynamics.switching_rate.round(2).tolist()
    ([[5.83, 7.5], [9.17, 3.75]], [15.0, 16.67])
    """

    groups: Groups
    steps: FloatArray
    transitions: FloatArray

    @property
    def shares(self) -> FloatArray:
        """Expected fractions (G, K) of the steps."""
        return np.asarray(self.steps / self.steps.sum(axis=1, keepdims=True))

    @property
    def dwell_times(self) -> FloatArray:
        """Expected numbers (G, K) of steps until an intent ends; nan if a group has less than one expected step of it.

        They are (n + d) / (m + 1) for n expected transitions from the intent, of which m are switches, and the dwell
        time d of all groups: the mean under a prior with the weight of one switch, which is finite without switches.
        """
        stays = self.transitions.diagonal(axis1=1, axis2=2)
        n = self.transitions.sum(axis=2)
        switches = n - stays
        pooled = n.sum(axis=0) / np.maximum(switches.sum(axis=0), 1.0)
        return np.where(n >= 1.0, (n + pooled) / (switches + 1.0), np.nan)

    @property
    def switching_rate(self) -> FloatArray:
        """Expected number (G,) of switches per 100 transitions; nan for a group without transitions."""
        stays = np.trace(self.transitions, axis1=1, axis2=2)
        n = self.transitions.sum(axis=(1, 2))
        return np.asarray(100.0 * (n - stays) / np.where(n > 0.0, n, np.nan))

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one row per group."""
        return to_pandas({"group": self.groups.names} | self.quantities)

    @property
    def quantities(self) -> dict[str, FloatArray]:
        """The shares of steps, dwell times and switching rate (G,) by name."""
        columns = {f"share of steps, intent {k}": column for k, column in enumerate(self.shares.T)}
        columns |= {f"dwell time, intent {k}": column for k, column in enumerate(self.dwell_times.T)}
        return columns | {"switches per 100 steps": self.switching_rate}
