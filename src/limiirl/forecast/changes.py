"""What differs between two worlds: links that gain and lose, pairs that are cut off, routes that change."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from limiirl.forecast.flows import Flows
from limiirl.forecast.routes import written

Float = NDArray[np.float64]
Int = NDArray[np.int64]
# Links that are written out.
_SHOWN = 3


@dataclass(frozen=True, eq=False, repr=False)
class Change:
    """What changes from one world to another, for the same demand.

    Attributes
    ----------
    before, after : Flows
        Edges of both have the numbers of the first world's MDP.
    edge, state : (E,), (S,)
        Flow after less flow before.
    cut_off : (m,)
        Pairs that were connected and are not any more; their trips are missing in `after`.
    trips_lost : float
        How many trips that are.

    Examples
    --------
    >>> none = np.array([], dtype=np.int64)
    >>> before = Flows(np.array([[2.0, 1.0]]), np.array([[3.0, 2.0, 1.0]]), 3.0, none)
    >>> after = Flows(np.array([[0.0, 3.0]]), np.array([[3.0, 0.0, 3.0]]), 3.0, none)
    >>> Change(before, after, after.edge - before.edge, after.state - before.state, none, 0.0)
    3 trips, 2 of 2 edges change
      gain: edge 1 +2
      lose: edge 0 -2
    """

    before: Flows
    after: Flows
    edge: Float
    state: Float
    cut_off: Int
    trips_lost: float

    def gains(self, n: int = 10) -> Int:
        """Return the edges that gain most, at most n, the most first."""
        order = np.argsort(-self.edge, kind="stable")[:n]
        return np.asarray(order[self.edge[order] > 0.0])

    def losses(self, n: int = 10) -> Int:
        """Return the edges that lose most, at most n, the most first."""
        order = np.argsort(self.edge, kind="stable")[:n]
        return np.asarray(order[self.edge[order] < 0.0])

    def __repr__(self) -> str:
        # What differs by rounding does not change.
        changed = np.count_nonzero(np.abs(self.edge) > 1e-9 * max(1.0, self.before.trips))
        lines = [f"{self.before.trips:g} trips, {changed} of {self.edge.size} edges change"]
        for what, which in (("gain", self.gains(_SHOWN)), ("lose", self.losses(_SHOWN))):
            if which.size:
                lines.append(f"  {what}: " + ", ".join(f"edge {e} {self.edge[e]:+.4g}" for e in which))
        if self.cut_off.size:
            lines.append(f"  cut off: {self.cut_off.size} pairs, {self.trips_lost:g} trips")
        return "\n".join(lines)


def change(before: Flows, after: Flows, weights: Float) -> Change:
    """Return the change from one world's flows to another's, for the same pairs of `weights` (n,) trips."""
    lost = np.setdiff1d(after.cut_off, before.cut_off)
    return Change(before, after, after.edge - before.edge, after.state - before.state, lost, float(weights[lost].sum()))


@dataclass(frozen=True, eq=False, repr=False)
class RouteChange:
    """The probabilities of routes between two states in two worlds; 0 for a route that a world does not have.

    Attributes
    ----------
    routes : list of (T,) arrays of states
        The best of both worlds, those of the first world first.
    before, after : (R,)

    Examples
    --------
    >>> RouteChange([np.array([0, 1, 3]), np.array([0, 2, 3])], np.array([0.8, 0.2]), np.array([0.0, 1.0]))
    80.0 % -> 0.0 %: 0 - 1 - 3
    20.0 % -> 100.0 %: 0 - 2 - 3
    """

    routes: list[Int]
    before: Float
    after: Float

    def __repr__(self) -> str:
        lines = []
        for states, old, new in zip(self.routes, self.before, self.after, strict=True):
            lines.append(f"{100 * old:.1f} % -> {100 * new:.1f} %: {written(states)}")
        return "\n".join(lines)
