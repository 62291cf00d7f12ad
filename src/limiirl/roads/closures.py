"""Street closures: forecast flows, detours and cut-off trips for an unchanged demand."""

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
from limiirl.kernels.sparse_lu import return_visits
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


_MIN_CHANGE = 0.05  # minimum change in trips of a listed street


@dataclass(frozen=True)
class StreetChange:
    """Change in the number of trips on a street.

    Attributes
    ----------
    segment : int
        Segment with the largest change.
    before, after : float or None
        Expected number of trips on the segment in both directions; None if too few drivers contribute.
    change : float or None
        Difference ``after - before``; None if either is None.
    km : float
        Length of the part of the street where the change is at least half of the largest change.
    """

    segment: int
    before: float | None
    after: float | None
    change: float | None
    km: float


@dataclass(frozen=True, eq=False, repr=False)
class Closure:
    """Effects of a closure on a set of trips; values based on fewer than `least` drivers are hidden.

    Flows before and after the closure are expected values under the fitted styles, given the observed start and end
    segments.

    Attributes
    ----------
    network : RoadNetwork
    closed : (c,)
        Closed segments.
    demos : Demonstrations
        The n observed trips.
    before, after : (S,)
        Expected number of trips that pass each segment at least once (with `MaxEnt`, expected number of passages).
    cut_off : (m,)
        Trips without a remaining route; they are not included in `after`.
    passages : float
        Expected number of entries into the closed segments.
    extra_m, extra_s : float
        Total additional distance and time (at the speed limits) of the trips that have a remaining route.
    redirected : float
        Expected number of entries into the closed segments by these trips.
    drivers_before : RouteMask
        Number of drivers (of trips, if drivers are unknown) who passed each street in either direction.
    drivers_after : RouteMask
        Number of drivers after the closure, if affected trips take their most likely detour.
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
        """Observed trips (p,) that passed a closed segment."""
        return _find_passing(self.demos, np.isin(np.arange(self.network.n_segments), self.closed))

    @property
    def counted(self) -> str:
        """Unit of `least`: "drivers", or "trips" if drivers are unknown."""
        return "trips" if self.demos.groups is None else "drivers"

    def few(self, trips: IntArray) -> bool:
        """Return True if the number of drivers of the trips is positive, but less than `least`."""
        drivers = np.unique(index_drivers(self.demos)[trips]).size
        return 0 < drivers < self.least

    @cached_property
    def shut(self) -> BoolArray:
        """Mask (S,) of the segments that are closed in one or both directions."""
        closed, back = np.isin(np.arange(self.network.n_segments), self.closed), self.network.opposite
        return np.asarray(closed | ((back >= 0) & closed[np.maximum(back, 0)]))

    @cached_property
    def hidden(self) -> bool:
        """True if too few drivers were affected to disclose their detours."""
        return self.few(self.passed)

    @property
    def least(self) -> int:
        """Smallest number of drivers for which a value is disclosed."""
        return self.drivers_before.least

    @property
    def shown(self) -> tuple[BoolArray, BoolArray]:
        """Masks (S,) of the segments with enough drivers before and after the closure."""
        before, after = self.drivers_before, self.drivers_after
        return before.drivers >= before.least, after.drivers >= after.least

    @cached_property
    def streets(self) -> tuple[FloatArray, FloatArray]:
        """Expected number of trips (S,) before and after, summed over both directions; includes hidden values."""
        back = self.network.opposite
        both = [flow + np.where(back >= 0, flow[np.maximum(back, 0)], 0.0) for flow in (self.before, self.after)]
        return both[0], both[1]

    @property
    def detour_m(self) -> float | None:
        """Mean detour of affected trips in metres; None if there are none, or too few to disclose their detour."""
        if self.hidden or self.passed.size == 0 or self.redirected < _MIN_CHANGE:
            return None
        return self.extra_m / self.redirected

    @property
    def detour_s(self) -> float | None:
        """Mean detour in seconds at the speed limits; None if `detour_m` is None or the map has no speed limits."""
        known = np.isfinite(self.network.speed_kmh)
        return None if self.detour_m is None or not known.any() else self.extra_s / self.redirected

    @property
    def limits_known(self) -> float:
        """Fraction of the driven kilometres with a known speed limit."""
        km = (self.before + self.after) * self.network.length_m
        return float(km[np.isfinite(self.network.speed_kmh)].sum() / max(km.sum(), 1e-300))

    def gains(self, n: int = 8) -> list[StreetChange]:
        """Return the n streets with the largest increases in flow, in descending order."""
        return self._largest_changes(n, 1.0)

    def losses(self, n: int = 8) -> list[StreetChange]:
        """Return the n streets with the largest decreases in flow, in descending order, excluding closed streets."""
        return self._largest_changes(n, -1.0)

    def _largest_changes(self, n: int, sign: float) -> list[StreetChange]:
        if self.hidden:
            return []
        before, after = self.streets
        back = self.network.opposite
        change = np.where(self.shut | ~self.shown[1 if sign > 0.0 else 0], 0.0, sign * (after - before))
        # Each street is listed once, at the segment with the largest change.
        single = (back < 0) | (np.arange(before.size) < back)
        part = street_components(self.network)
        order = np.argsort(-change, kind="stable")
        order = order[(change[order] > _MIN_CHANGE) & single[order]]
        _, first = np.unique(part[order], return_index=True)
        changes = []
        for s in order[np.sort(first)][:n]:
            long = (part == part[s]) & single & (change >= 0.5 * change[s])
            old = None if self.drivers_before.hidden[s] else float(before[s])
            new = None if self.drivers_after.hidden[s] else float(after[s])
            difference = None if old is None or new is None else new - old
            changes.append(
                StreetChange(int(s), old, new, difference, float(self.network.length_m[long].sum()) / 1000.0)
            )
        return changes

    def __repr__(self) -> str:
        return describe_closure(self)


def close_streets(
    network: RoadNetwork, forecaster: Forecaster, demos: Demonstrations, segments: ArrayLike, *, least: int = 5
) -> Closure:
    """Forecast the effects of closing segments.

    The demand does not change: it consists of the start and end segments of `demos`. Trips that start and end on the
    same segment are ignored.

    Parameters
    ----------
    network : RoadNetwork
    forecaster : Forecaster
        Forecaster of a mixture that was fitted on the network.
    demos : Demonstrations
        Observed trips; states are segments, and groups are drivers.
    segments : (c,)
        Segments to close, from `RoadNetwork.nearest`, `nearest_segments` or `RoadNetwork.find`.
    least : int
        Values based on fewer drivers are hidden.

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
    closed = np.unique(np.asarray(segments))
    if not closed.size or closed.dtype.kind not in "iu" or closed[0] < 0 or closed[-1] >= network.n_segments:
        rule = f"must be one or more integers from 0 to {network.n_segments - 1:,}"
        remedy = "network.nearest returns the segments at a point."
        raise InvalidParameter.of("segments", np.asarray(segments).tolist(), rule, remedy=remedy)
    closed = closed.astype(np.int64)
    kept = np.flatnonzero(demos.start_states != demos.last_states)
    if not kept.size:
        raise InvalidDemos("demos must have at least one trip between two different segments.", parameter="demos")
    trips = demos[kept]
    seen = RouteMask(count_drivers_by_street(trips, network.opposite), least)
    starts, goals = trips.start_states, trips.last_states
    around = forecaster.with_closures(states=closed)
    again, again_around = _count_visits(forecaster), _count_visits(around)
    after = around.flows(starts, goals)
    # Trips that are cut off count before the closure, but have no detour.
    possible = np.isin(np.arange(len(trips)), after.cut_off, invert=True)
    before, lost = (forecaster.flows(starts[which], goals[which]) for which in (possible, ~possible))
    shut = np.zeros(network.n_segments, dtype=bool)
    shut[closed] = True
    redirected = _count_entries(network, before, starts[possible], shut)
    kept_before = (before.state_by_intent / again).sum(axis=0)
    kept_after = (after.state_by_intent / again_around).sum(axis=0)
    extra = kept_after - kept_before
    rerouted = count_drivers_by_street(_reroute(around, trips, possible, shut), network.opposite)
    return Closure(
        network=network,
        closed=closed,
        demos=trips,
        before=kept_before + (lost.state_by_intent / again).sum(axis=0),
        after=kept_after,
        cut_off=np.delete(np.flatnonzero(~possible), lost.cut_off),
        passages=redirected + _count_entries(network, lost, starts[~possible], shut),
        extra_m=float(extra @ network.length_m),
        extra_s=float(extra @ network.duration_s),
        redirected=redirected,
        drivers_before=seen,
        drivers_after=RouteMask(rerouted, least),
    )


def _count_visits(forecaster: Forecaster) -> FloatArray:
    """Return the expected number of visits (K, S) to each segment, given that a trip reaches it.

    Expected visits divided by this number are expected trips. With `MaxEnt`, the number depends on the remaining length
    of the trip, and 1 is returned.
    """
    mdp = forecaster.mdp
    if isinstance(forecaster.mixture.irl_, MaxEnt):
        return np.ones((forecaster.weights.size, mdp.n_states))
    values = GoalValues(mdp)
    weights = (np.exp(values.edge_log_weights(theta)) for theta in forecaster.thetas)
    return np.stack([return_visits(mdp.src, mdp.dst, weight, mdp.n_states) for weight in weights])


def _count_entries(network: RoadNetwork, flows: Any, starts: IntArray, shut: BoolArray) -> float:
    """Return the expected number of entries into closed segments, including trips that start there."""
    into = ~shut[network.turn_from] & shut[network.turn_to]
    begun = np.isin(np.arange(starts.size), flows.cut_off, invert=True) & shut[starts]
    return float(flows.edge[into].sum() + np.count_nonzero(begun))


def _find_passing(demos: Demonstrations, shut: BoolArray) -> IntArray:
    return np.flatnonzero(np.add.reduceat(shut[demos.states], demos.offsets[:-1]))


def _reroute(around: Forecaster, trips: Demonstrations, possible: BoolArray, shut: BoolArray) -> Demonstrations:
    """Return the possible trips, with those through closed segments replaced by their most likely detour."""
    passing = np.isin(np.arange(len(trips)), _find_passing(trips, shut))
    affected, unaffected = passing & possible, ~passing & possible
    routes = around.predict_routes(trips.start_states[affected], trips.last_states[affected])
    drivers = np.arange(len(trips)) if trips.groups is None else trips.groups
    parts = [
        Demonstrations(demos.states, demos.offsets, groups=drivers[which])
        for demos, which in ((trips[unaffected], unaffected), (routes, affected))
        if len(demos)
    ]
    return Demonstrations.concat(parts) if parts else trips[:0]


def describe_closure(closure: Closure) -> str:
    """Return the effects of a closure as text."""
    lines = [f"Closed: {describe_closed(closure)}.", describe_passages(closure)]
    lines += [describe_detour(closure), describe_cut_off(closure)]
    for title, rows in (("More trips", closure.gains()), ("Fewer trips", closure.losses())):
        if rows:
            lines.append(f"\n{title} (expected number in both directions, where the change is largest):")
            names = [describe_changed_street(closure.network, row) for row in rows]
            changes = [describe_change(row) for row in rows]
            wide, far = max(map(len, names)), max(map(len, changes))
            lines += [
                f"  {name:<{wide}}  {change:>{far}}  over {row.km:.1f} km"
                for name, change, row in zip(names, changes, rows, strict=True)
            ]
    lines.append(
        f"\nBased on {len(closure.demos):,} trips. Streets with fewer than {closure.least} {closure.counted} are "
        'omitted; values based on fewer are shown as "few".'
    )
    return "\n".join(line for line in lines if line)


def describe_closed(closure: Closure) -> str:
    """Return the name, class, length and segments of the closed streets."""
    network, closed = closure.network, closure.closed
    names = list_street_names(network, closed) or [describe_street(network, int(closed[0]))]
    classes = network.road_class[closed]
    word = network.class_names[np.bincount(classes).argmax()].replace("_", " ")
    some = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    bend = np.abs((network.bearing[closed] - network.bearing[closed[0]] + 180.0) % 360.0 - 180.0)
    # Both directions are closed: of a single line, or of two carriageways with opposite directions.
    two_way = np.isin(network.opposite[closed], closed).any() or (bend > 120.0).any()
    direction = "counting both directions" if two_way else f"one-way {describe_direction(network, int(closed[0]))}"
    numbers = ", ".join(str(s) for s in closed[:6]) + (" ..." if closed.size > 6 else "")
    metres = network.length_m[closed].sum()
    return f"{some}; {word}, {metres:,.0f} m {direction} ({closed.size} segment{'s' * (closed.size != 1)}: {numbers})"


def describe_passages(closure: Closure) -> str:
    """Return the observed and the expected number of trips through the closed segments."""
    n = closure.passed.size
    if n == 0:
        return f"Before: no trip passed the closed street; the model expects {closure.passages:.1f}."
    if closure.hidden:
        return (
            f"Before: fewer than {closure.least} {closure.counted} passed the closed street, so detours are not shown. "
            "Use more trips."
        )
    return (
        f"Before: {n:,} of {len(closure.demos):,} trips passed the closed street; the model expects "
        f"{closure.passages:.1f}."
    )


def describe_detour(closure: Closure) -> str:
    """Return the mean detour of the affected trips as text; "" if it is unknown or hidden."""
    metres, seconds = closure.detour_m, closure.detour_s
    if metres is None:
        return ""
    text = f"Detour: affected trips are {abs(metres):,.0f} m {'longer' if metres >= 0.0 else 'shorter'} on average"
    if seconds is None:
        return f"{text}. The additional time is unknown because the map has no speed limits."
    known = f"limits are known for {closure.limits_known:.0%} of the distance, and estimated by road class elsewhere"
    word = "more" if seconds >= 0.0 else "less"
    return f"{text} and take {abs(seconds) / 60.0:.1f} minutes {word} at the speed limits ({known})."


def describe_cut_off(closure: Closure) -> str:
    """Return the number of trips without a remaining route as text."""
    lost = closure.cut_off
    if lost.size == 0:
        return "Cut off: no trip."
    if closure.few(lost):
        return f"Cut off: trips of fewer than {closure.least} {closure.counted}."
    ends = np.isin(closure.demos.start_states[lost], closure.closed)
    ends |= np.isin(closure.demos.last_states[lost], closure.closed)
    rest = "" if ends.all() else " The others have no remaining route."
    n = np.count_nonzero(ends)
    return f"Cut off: {lost.size:,} trips, of which {n:,} start or end on a closed segment.{rest}"


def describe_changed_street(network: RoadNetwork, row: StreetChange) -> str:
    """Return the name, direction and class of a street, or its class and position."""
    name, s = network.street(row.segment), row.segment
    direction = "" if network.opposite[s] >= 0 else f" {describe_direction(network, s)}"
    return f"{name}{direction}, {describe_class(network, s)}" if name else f"{describe_street(network, s)}{direction}"


def describe_change(row: StreetChange) -> str:
    """Return the trips before and after, such as "+11.5 (2.0 to 13.5)", or "few to 13.5" if a number is hidden."""
    before, after = ("few" if value is None else f"{value:.1f}" for value in (row.before, row.after))
    return f"{before} to {after}" if row.change is None else f"{row.change:+.1f} ({before} to {after})"


def summarize_closure(closure: Closure) -> dict[str, Any]:
    """Return the effects of a closure as a JSON-serialisable dict; hidden and unknown values are None."""
    network = closure.network
    seconds = closure.detour_s

    def describe_rows(changes: list[StreetChange]) -> list[dict[str, Any]]:
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
            for row in changes
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
        "gain": describe_rows(closure.gains()),
        "lose": describe_rows(closure.losses()),
        "least": closure.least,
        "counted": closure.counted,
    }
