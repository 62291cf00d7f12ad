"""What if a street is closed? The same trips without it: who drives where, how much further, and who is cut off."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl.demos import Demonstrations
from limiirl.errors import InvalidDemos, InvalidParameter
from limiirl.irl import MaxEnt
from limiirl.irl.destination_values import GoalValues
from limiirl.kernels.returns import visits_from
from limiirl.roads.small_numbers import RouteMask, drivers_by_street, drivers_of
from limiirl.roads.street_names import parts

if TYPE_CHECKING:
    from limiirl.forecast import Forecaster
    from limiirl.roads.network import RoadNetwork

Float = NDArray[np.float64]
Int = NDArray[np.int64]
Bool = NDArray[np.bool_]

# Changes of fewer trips are not listed.
_NOTHING = 0.05


@dataclass(frozen=True)
class StreetChange:
    """A street on which trips become more or fewer.

    Attributes
    ----------
    segment : int
        Where the change is largest.
    before, after : float or None
        Expected trips there, both ways; None where too few drivers stand behind the number.
    change : float or None
        The difference; None where one of them is.
    km : float
        How much of the street changes at least half as much.
    """

    segment: int
    before: float | None
    after: float | None
    change: float | None
    km: float


@dataclass(frozen=True, eq=False, repr=False)
class Closure:
    """What a closure changes for some trips; numbers behind which too few drivers stand are hidden.

    Flows are expected, before as well as after: the trips' starts and ends, driven as the styles would drive.

    Attributes
    ----------
    network : RoadNetwork
    closed : (c,)
        Segments.
    demos : Demonstrations
        The n trips that are asked for, as they were driven.
    before, after : (S,)
        Expected trips that pass each segment, however often; passages with `MaxEnt`, which differ on roundabouts.
    cut_off : (m,)
        Those of the trips that cannot be driven any more; they are missing in `after`.
    passages : float
        How often the trips are expected to come to what is closed.
    extra_m, extra_s : float
        How much further, and longer at the limits, all trips together drive that still can; rounds are not counted.
    redirected : float
        Passages of those trips.
    drivers_before : RouteMask
        How many drivers passed each street, either way: numbers behind which too few stand are hidden. Trips are
        counted where drivers are not known.
    drivers_after : RouteMask
        The same if those who came to the closure take the likeliest way around it, and all others drive as before.
    """

    network: RoadNetwork
    closed: Int
    demos: Demonstrations
    before: Float
    after: Float
    cut_off: Int
    passages: float
    extra_m: float
    extra_s: float
    redirected: float
    drivers_before: RouteMask
    drivers_after: RouteMask

    @cached_property
    def passed(self) -> Int:
        """The trips (p,) that did come to what is closed."""
        return _passing(self.demos, np.isin(np.arange(self.network.n_segments), self.closed))

    @property
    def counted(self) -> str:
        """What is counted for hiding: drivers, or trips where nobody knows who drove."""
        return "trips" if self.demos.groups is None else "drivers"

    def few(self, trips: Int) -> bool:
        """Return whether too few drivers made some of the trips; nobody is not too few."""
        drivers = np.unique(drivers_of(self.demos)[trips]).size
        return 0 < drivers < self.least

    @cached_property
    def shut(self) -> Bool:
        """Streets (S,) that are closed, in one direction or both."""
        found, back = np.isin(np.arange(self.network.n_segments), self.closed), self.network.opposite
        return np.asarray(found | ((back >= 0) & found[np.maximum(back, 0)]))

    @cached_property
    def hidden(self) -> bool:
        """Whether so few drivers passed that nothing may be said of what they do instead."""
        return self.few(self.passed)

    @property
    def least(self) -> int:
        """The smallest number of drivers behind whom a number is shown."""
        return self.drivers_before.least

    @property
    def shown(self) -> tuple[Bool, Bool]:
        """Streets (S,) on which enough drivers are before the closure, and after it."""
        before, after = self.drivers_before, self.drivers_after
        return before.drivers >= before.least, after.drivers >= after.least

    @cached_property
    def streets(self) -> tuple[Float, Float]:
        """Expected trips (S,) before and after, both directions of a street together; hidden ones included."""
        back = self.network.opposite
        both = [flow + np.where(back >= 0, flow[np.maximum(back, 0)], 0.0) for flow in (self.before, self.after)]
        return both[0], both[1]

    @property
    def detour_m(self) -> float | None:
        """Metres further that those drive who came to the closure, in the mean; None where that is nobody, or few."""
        return (
            None
            if self.hidden or self.passed.size == 0 or self.redirected < _NOTHING
            else self.extra_m / self.redirected
        )

    @property
    def detour_s(self) -> float | None:
        """Seconds longer at the limits, and at the usual speed of a class where they are unknown; None as above."""
        known = np.isfinite(self.network.speed_kmh)
        return None if self.detour_m is None or not known.any() else self.extra_s / self.redirected

    @property
    def limits_known(self) -> float:
        """Share of the driven kilometres of which the speed limit is known."""
        km = (self.before + self.after) * self.network.length_m
        return float(km[np.isfinite(self.network.speed_kmh)].sum() / max(km.sum(), 1e-300))

    def gains(self, n: int = 8) -> list[StreetChange]:
        """Return the streets that gain most, at most n, the most first; each where it gains most."""
        return self._most(n, 1.0)

    def losses(self, n: int = 8) -> list[StreetChange]:
        """Return the streets that lose most, what is closed left out."""
        return self._most(n, -1.0)

    def _most(self, n: int, sign: float) -> list[StreetChange]:
        if self.hidden:
            return []
        before, after = self.streets
        back = self.network.opposite
        change = np.where(self.shut | ~self.shown[1 if sign > 0.0 else 0], 0.0, sign * (after - before))
        # Each street once: two directions are one, and so are all parts of it that hang together.
        single = (back < 0) | (np.arange(before.size) < back)
        part = parts(self.network)
        order = np.argsort(-change, kind="stable")
        order = order[(change[order] > _NOTHING) & single[order]]
        _, first = np.unique(part[order], return_index=True)
        found = []
        for s in order[np.sort(first)][:n]:
            long = (part == part[s]) & single & (change >= 0.5 * change[s])
            old = None if self.drivers_before.hidden[s] else float(before[s])
            new = None if self.drivers_after.hidden[s] else float(after[s])
            gap = None if old is None or new is None else new - old
            found.append(StreetChange(int(s), old, new, gap, float(self.network.length_m[long].sum()) / 1000.0))
        return found

    def __repr__(self) -> str:
        from limiirl.roads.closure_words import told

        return told(self)


def close_streets(
    network: RoadNetwork, forecaster: Forecaster, demos: Demonstrations, segments: ArrayLike, *, least: int = 5
) -> Closure:
    """Close segments, and forecast how the same trips are driven without them.

    Who wants to go where does not change: the demand is where `demos` begin and end. Trips that begin and end on the
    same segment are left out, since nobody knows where they wanted to go.

    Parameters
    ----------
    network : RoadNetwork
    forecaster : Forecaster
        Of a mixture that was fitted on the network.
    demos : Demonstrations
        States are segments; groups are drivers.
    segments : (c,)
        `RoadNetwork.nearest`, `segments_at` and `RoadNetwork.find` find them.
    least : int
        Numbers behind which fewer drivers stand are hidden.

    Examples
    --------
    >>> from limiirl import DestinationMaxEnt, IntentMixture
    >>> from limiirl.forecast import Forecaster
    >>> from limiirl.roads import City
    >>> city = City(seed=1, radius_km=0.8)
    >>> demos = city.drive(n_drivers=12, trips_each=4).demos
    >>> mix = IntentMixture(1, DestinationMaxEnt(), random_state=0).fit(city.mdp, demos)
    >>> busiest = int(np.argmax(np.bincount(demos.states)))
    >>> closure = close_streets(city.network, Forecaster(mix), demos, [busiest])
    >>> float(closure.after[busiest])
    0.0
    """
    closed = _checked(network, segments)
    kept = np.flatnonzero(demos.start_states != demos.last_states)
    if not kept.size:
        raise InvalidDemos("There is no trip that leads from one segment to another. Give trips of people.")
    trips = demos[kept]
    seen = RouteMask(drivers_by_street(trips, network.opposite), least)
    starts, goals = trips.start_states, trips.last_states
    around = forecaster.closing(states=closed)
    again, again_around = _visits(forecaster), _visits(around)
    after = around.flows(starts, goals)
    # Those that nobody can drive any more have a before, but no detour.
    ways = np.isin(np.arange(len(trips)), after.cut_off, invert=True)
    before, lost = (forecaster.flows(starts[which], goals[which]) for which in (ways, ~ways))
    shut = np.zeros(network.n_segments, dtype=bool)
    shut[closed] = True
    redirected = _entries(network, before, starts[ways], shut)
    kept_before, kept_after = (
        (before.state_by_intent / again).sum(axis=0),
        (after.state_by_intent / again_around).sum(axis=0),
    )
    extra = kept_after - kept_before
    return Closure(
        network,
        closed,
        trips,
        kept_before + (lost.state_by_intent / again).sum(axis=0),
        kept_after,
        np.delete(np.flatnonzero(~ways), lost.cut_off),
        redirected + _entries(network, lost, starts[~ways], shut),
        float(extra @ network.length_m),
        float(extra @ network.duration_s),
        redirected,
        seen,
        RouteMask(drivers_by_street(_rerouted(around, trips, ways, shut), network.opposite), least),
    )


def _checked(network: RoadNetwork, segments: ArrayLike) -> Int:
    closed = np.unique(np.asarray(segments))
    if not closed.size or closed.dtype.kind not in "iu" or closed[0] < 0 or closed[-1] >= network.n_segments:
        raise InvalidParameter(
            f"segments must be some of 0 to {network.n_segments - 1:,}; got {np.asarray(segments).tolist()!r:.100}. "
            "network.nearest finds those at a place."
        )
    return closed.astype(np.int64)


def _visits(forecaster: Forecaster) -> Float:
    """Return (K, S) how often those who come to a segment pass it: more than once where a round costs them little.

    Flows count visits, and who drives round a roundabout twice is still one trip. `MaxEnt` bounds the length of trips,
    so that no such number holds for all of them: there a visit is a trip.
    """
    mdp = forecaster.mdp
    if isinstance(forecaster.mixture.irl_, MaxEnt):
        return np.ones((forecaster.shares.size, mdp.n_states))
    values = GoalValues(mdp)
    weights = (np.exp(values.log_moves(theta)) for theta in forecaster.thetas)
    return np.stack([visits_from(mdp.src, mdp.dst, weight, mdp.n_states) for weight in weights])


def _entries(network: RoadNetwork, flows: Any, starts: Int, shut: Bool) -> float:
    """Return how often trips come to closed segments from outside, or begin there."""
    into = ~shut[network.turn_from] & shut[network.turn_to]
    begun = np.isin(np.arange(starts.size), flows.cut_off, invert=True) & shut[starts]
    return float(flows.edge[into].sum() + np.count_nonzero(begun))


def _passing(demos: Demonstrations, shut: Bool) -> Int:
    """Return the trips that pass closed segments."""
    return np.flatnonzero(np.add.reduceat(shut[demos.states], demos.offsets[:-1]))


def _rerouted(around: Forecaster, trips: Demonstrations, ways: Bool, shut: Bool) -> Demonstrations:
    """Return the trips that can be driven, those that passed the closure by their likeliest route around it."""
    passing = np.isin(np.arange(len(trips)), _passing(trips, shut))
    routes, chosen = around.predicted_routes(trips.start_states[passing & ways], trips.last_states[passing & ways]), []
    for demos, drivers in ((trips, ~passing & ways), (routes, passing & ways)):
        who = np.arange(len(trips)) if trips.groups is None else trips.groups
        some = demos[drivers] if demos is trips else demos
        if len(some):
            chosen.append(Demonstrations(some.states, some.offsets, groups=who[drivers]))
    return Demonstrations.concat(chosen) if chosen else trips[:0]
