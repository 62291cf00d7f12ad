"""What if a street is closed: the same trips without it, as flows, detours and cut-off trips, in words and as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from limiirl._typing import BoolArray, FloatArray, IntArray
from limiirl.demos import Demonstrations
from limiirl.errors import InvalidDemos, InvalidParameter
from limiirl.irl import GoalValues, MaxEnt
from limiirl.roads.kernels.selected_inverse import return_visits
from limiirl.roads.lookup import (
    describe_class,
    describe_direction,
    describe_street,
    format_place,
    list_street_names,
    street_components,
)
from limiirl.roads.privacy import RouteMask, count_drivers_by_street, index_drivers

if TYPE_CHECKING:
    from limiirl.forecast import Forecaster
    from limiirl.roads.network import RoadNetwork


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
    closed: IntArray
    demos: Demonstrations
    before: FloatArray
    after: FloatArray
    cut_off: IntArray
    passages: float
    extra_m: float
    extra_s: float
    redirected: float
    drivers_before: RouteMask
    drivers_after: RouteMask

    @cached_property
    def passed(self) -> IntArray:
        """The trips (p,) that did come to what is closed."""
        return _passing(self.demos, np.isin(np.arange(self.network.n_segments), self.closed))

    @property
    def counted(self) -> str:
        """What is counted for hiding: drivers, or trips where nobody knows who drove."""
        return "trips" if self.demos.groups is None else "drivers"

    def few(self, trips: IntArray) -> bool:
        """Return whether too few drivers made some of the trips; nobody is not too few."""
        drivers = np.unique(index_drivers(self.demos)[trips]).size
        return 0 < drivers < self.least

    @cached_property
    def shut(self) -> BoolArray:
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
    def shown(self) -> tuple[BoolArray, BoolArray]:
        """Streets (S,) on which enough drivers are before the closure, and after it."""
        before, after = self.drivers_before, self.drivers_after
        return before.drivers >= before.least, after.drivers >= after.least

    @cached_property
    def streets(self) -> tuple[FloatArray, FloatArray]:
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
        part = street_components(self.network)
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

        return describe_closure(self)


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
        `RoadNetwork.nearest`, `nearest_segments` and `RoadNetwork.find` find them.
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
    closed = _check_segments(network, segments)
    kept = np.flatnonzero(demos.start_states != demos.last_states)
    if not kept.size:
        raise InvalidDemos(
            "There is no trip that leads from one segment to another. Give trips of people.", parameter="demos"
        )
    trips = demos[kept]
    seen = RouteMask(count_drivers_by_street(trips, network.opposite), least)
    starts, goals = trips.start_states, trips.last_states
    around = forecaster.with_closures(states=closed)
    again, again_around = _count_visits(forecaster), _count_visits(around)
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
        RouteMask(count_drivers_by_street(_reroute(around, trips, ways, shut), network.opposite), least),
    )


def _check_segments(network: RoadNetwork, segments: ArrayLike) -> IntArray:
    closed = np.unique(np.asarray(segments))
    if not closed.size or closed.dtype.kind not in "iu" or closed[0] < 0 or closed[-1] >= network.n_segments:
        raise InvalidParameter(
            f"segments must be some of 0 to {network.n_segments - 1:,}; got {np.asarray(segments).tolist()!r:.100}. "
            "network.nearest finds those at a place.",
            parameter="segments",
            value=np.asarray(segments).tolist(),
        )
    return closed.astype(np.int64)


def _count_visits(forecaster: Forecaster) -> FloatArray:
    """Return (K, S) how often those who come to a segment pass it: more than once where a round costs them little.

    Flows count visits, and who drives round a roundabout twice is still one trip. `MaxEnt` bounds the length of trips,
    so that no such number holds for all of them: there a visit is a trip.
    """
    mdp = forecaster.mdp
    if isinstance(forecaster.mixture.irl_, MaxEnt):
        return np.ones((forecaster.shares.size, mdp.n_states))
    values = GoalValues(mdp)
    weights = (np.exp(values.log_moves(theta)) for theta in forecaster.thetas)
    return np.stack([return_visits(mdp.src, mdp.dst, weight, mdp.n_states) for weight in weights])


def _entries(network: RoadNetwork, flows: Any, starts: IntArray, shut: BoolArray) -> float:
    """Return how often trips come to closed segments from outside, or begin there."""
    into = ~shut[network.turn_from] & shut[network.turn_to]
    begun = np.isin(np.arange(starts.size), flows.cut_off, invert=True) & shut[starts]
    return float(flows.edge[into].sum() + np.count_nonzero(begun))


def _passing(demos: Demonstrations, shut: BoolArray) -> IntArray:
    """Return the trips that pass closed segments."""
    return np.flatnonzero(np.add.reduceat(shut[demos.states], demos.offsets[:-1]))


def _reroute(around: Forecaster, trips: Demonstrations, ways: BoolArray, shut: BoolArray) -> Demonstrations:
    """Return the trips that can be driven, those that passed the closure by their likeliest route around it."""
    passing = np.isin(np.arange(len(trips)), _passing(trips, shut))
    routes, chosen = around.predicted_routes(trips.start_states[passing & ways], trips.last_states[passing & ways]), []
    for demos, drivers in ((trips, ~passing & ways), (routes, passing & ways)):
        who = np.arange(len(trips)) if trips.groups is None else trips.groups
        some = demos[drivers] if demos is trips else demos
        if len(some):
            chosen.append(Demonstrations(some.states, some.offsets, groups=who[drivers]))
    return Demonstrations.concat(chosen) if chosen else trips[:0]


def describe_closure(closure: Closure) -> str:
    """Return what a closure changes, in lines."""
    trips, least = len(closure.demos), closure.least
    lines = [f"Closed: {describe_closed(closure)}.", describe_passages(closure)]
    lines += [describe_detour(closure), describe_cut_off(closure)]
    for title, found in (("More trips", closure.gains()), ("Fewer trips", closure.losses())):
        if found:
            lines.append(f"\n{title} (expected, both ways, where the street changes most):")
            names, changes = (
                [describe_changed_street(closure.network, row) for row in found],
                [describe_change(row) for row in found],
            )
            wide, far = max(map(len, names)), max(map(len, changes))
            lines += [
                f"  {name:<{wide}}  {change:>{far}}  over {row.km:.1f} km"
                for name, change, row in zip(names, changes, found, strict=True)
            ]
    lines.append(
        f"\nOf {trips:,} trips. Streets with fewer than {least} {closure.counted} are left out, and numbers behind "
        "which fewer stand are called few."
    )
    return "\n".join(line for line in lines if line)


def describe_closed(closure: Closure) -> str:
    """Return what was closed: street, class, length and segments."""
    network, closed = closure.network, closure.closed
    names = list_street_names(network, closed) or [describe_street(network, int(closed[0]))]
    classes = network.road_class[closed]
    word = network.class_names[np.bincount(classes).argmax()].replace("_", " ")
    some = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    ways = (
        "in both directions together"
        if _is_two_way(network, closed)
        else f"one way, {describe_direction(network, int(closed[0]))}"
    )
    numbers = ", ".join(str(s) for s in closed[:6]) + (" ..." if closed.size > 6 else "")
    metres = network.length_m[closed].sum()
    return f"{some}; {word}, {metres:,.0f} m {ways} ({closed.size} segment{'s' * (closed.size != 1)}: {numbers})"


def describe_passages(closure: Closure) -> str:
    """Return how many trips came to the closure, as driven and as expected."""
    n = closure.passed.size
    if n == 0:
        return f"Before: none of the trips passed it; the styles expect {closure.passages:.1f}."
    if closure.hidden:
        return (
            f"Before: trips of fewer than {closure.least} {closure.counted} passed it, so that nothing more is said of "
            "what they do instead. Ask with more trips."
        )
    return f"Before: {n:,} of {len(closure.demos):,} trips passed it; the styles expect {closure.passages:.1f}."


def describe_detour(closure: Closure) -> str:
    """Return how much further those drive who came to the closure; nothing where that is not known or hidden."""
    metres, seconds = closure.detour_m, closure.detour_s
    if metres is None:
        return ""
    said = (
        f"Detour: those who came there drive {abs(metres):,.0f} m {'further' if metres >= 0.0 else 'less'} in the mean"
    )
    if seconds is None:
        return said + "; how much longer is not known, since the map has no speed limits."
    known = f"{closure.limits_known:.0%} of the way has a known one, elsewhere what is usual for the class"
    word = "longer" if seconds >= 0.0 else "less"
    return said + f", {abs(seconds) / 60.0:.1f} minutes {word} at the speed limits ({known})."


def describe_cut_off(closure: Closure) -> str:
    """Return how many trips cannot be driven any more."""
    lost = closure.cut_off
    if lost.size == 0:
        return "Cut off: no trip."
    if closure.few(lost):
        return f"Cut off: trips of fewer than {closure.least} {closure.counted}."
    ends = np.isin(closure.demos.start_states[lost], closure.closed)
    ends |= np.isin(closure.demos.last_states[lost], closure.closed)
    rest = "" if ends.all() else " The others have no other way on, as on a ramp that leads only there."
    n = np.count_nonzero(ends)
    return f"Cut off: {lost.size:,} trips, of which {n:,} begin or end on what is closed.{rest}"


def describe_changed_street(network: RoadNetwork, row: StreetChange) -> str:
    """Return which street changes: its name, direction and class, or its class and where it is."""
    name, s = network.street(row.segment), row.segment
    way = "" if network.opposite[s] >= 0 else f" {describe_direction(network, s)}"
    return f"{name}{way}, {describe_class(network, s)}" if name else f"{describe_street(network, s)}{way}"


def describe_change(row: StreetChange) -> str:
    """Return how many trips a street has before and after.

    Examples
    --------
    >>> from limiirl.roads.closures import StreetChange
    >>> describe_change(StreetChange(4, 2.0, 13.5, 11.5, 0.3)), describe_change(StreetChange(4, None, 13.5, None, 0.3))
    ('+11.5 (2.0 to 13.5)', 'few to 13.5')
    """
    before, after = ("few" if value is None else f"{value:.1f}" for value in (row.before, row.after))
    return f"{before} to {after}" if row.change is None else f"{row.change:+.1f} ({before} to {after})"


def summarize_closure(closure: Closure) -> dict[str, Any]:
    """Return what a closure changes as plain values, ready for JSON; None for what is hidden or unknown."""
    network = closure.network
    seconds = closure.detour_s

    def rows(found: list[StreetChange]) -> list[dict[str, Any]]:
        return [
            {
                "street": network.street(row.segment),
                "class": network.class_names[network.road_class[row.segment]],
                "near": [float(value) for value in format_place(network, row.segment).split(",")],
                "segment": row.segment,
                "trips_before": row.before,
                "trips_after": row.after,
                "change": row.change,
                "km": row.km,
            }
            for row in found
        ]

    return {
        "closed": {
            "segments": closure.closed.tolist(),
            "streets": list_street_names(network, closure.closed),
            "classes": sorted({network.class_names[c] for c in network.road_class[closure.closed].tolist()}),
            "metres": float(network.length_m[closure.closed].sum()),
        },
        "trips": len(closure.demos),
        "trips_passed": None if closure.hidden else int(closure.passed.size),
        "trips_passed_expected": None if closure.hidden else closure.passages,
        "detour_m": closure.detour_m,
        "detour_minutes": None if seconds is None else seconds / 60.0,
        "limits_known": closure.limits_known,
        "trips_cut_off": None if closure.few(closure.cut_off) else int(closure.cut_off.size),
        "gain": rows(closure.gains()),
        "lose": rows(closure.losses()),
        "least": closure.least,
        "counted": closure.counted,
    }


def _is_two_way(network: RoadNetwork, closed: Any) -> bool:
    """Return whether something is closed in both directions: of one line, or of two that run opposite ways."""
    bend = np.abs((network.bearing[closed] - network.bearing[closed[0]] + 180.0) % 360.0 - 180.0)
    return bool(np.isin(network.opposite[closed], closed).any() or (bend > 120.0).any())
