"""A closure in words and in plain values: what was closed, who came there, and where they go instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from limiirl.roads.nearest import towards
from limiirl.roads.street_names import called, names_of, place, unnamed

if TYPE_CHECKING:
    from limiirl.roads.closures import Closure, StreetChange
    from limiirl.roads.network import RoadNetwork


def told(closure: Closure) -> str:
    """Return what a closure changes, in lines."""
    trips, least = len(closure.demos), closure.least
    lines = [f"Closed: {closed_words(closure)}.", passed_words(closure)]
    lines += [detour_words(closure), cut_words(closure)]
    for title, found in (("More trips", closure.gains()), ("Fewer trips", closure.losses())):
        if found:
            lines.append(f"\n{title} (expected, both ways, where the street changes most):")
            names, changes = [street_words(closure.network, row) for row in found], [change_words(row) for row in found]
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


def closed_words(closure: Closure) -> str:
    """Return what was closed: street, class, length and segments."""
    network, closed = closure.network, closure.closed
    names = names_of(network, closed) or [called(network, int(closed[0]))]
    classes = network.road_class[closed]
    word = network.class_names[np.bincount(classes).argmax()].replace("_", " ")
    some = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    ways = "in both directions together" if _both(network, closed) else f"one way, {towards(network, int(closed[0]))}"
    numbers = ", ".join(str(s) for s in closed[:6]) + (" ..." if closed.size > 6 else "")
    metres = network.length_m[closed].sum()
    return f"{some}; {word}, {metres:,.0f} m {ways} ({closed.size} segment{'s' * (closed.size != 1)}: {numbers})"


def passed_words(closure: Closure) -> str:
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


def detour_words(closure: Closure) -> str:
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


def cut_words(closure: Closure) -> str:
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


def street_words(network: RoadNetwork, row: StreetChange) -> str:
    """Return which street changes: its name, direction and class, or its class and where it is."""
    name, s = network.street(row.segment), row.segment
    way = "" if network.opposite[s] >= 0 else f" {towards(network, s)}"
    return f"{name}{way}, {unnamed(network, s)}" if name else f"{called(network, s)}{way}"


def change_words(row: StreetChange) -> str:
    """Return how many trips a street has before and after.

    Examples
    --------
    >>> from limiirl.roads.closures import StreetChange
    >>> change_words(StreetChange(4, 2.0, 13.5, 11.5, 0.3)), change_words(StreetChange(4, None, 13.5, None, 0.3))
    ('+11.5 (2.0 to 13.5)', 'few to 13.5')
    """
    before, after = ("few" if value is None else f"{value:.1f}" for value in (row.before, row.after))
    return f"{before} to {after}" if row.change is None else f"{row.change:+.1f} ({before} to {after})"


def facts(closure: Closure) -> dict[str, Any]:
    """Return what a closure changes as plain values, ready for JSON; None for what is hidden or unknown."""
    network = closure.network
    seconds = closure.detour_s

    def rows(found: list[StreetChange]) -> list[dict[str, Any]]:
        return [
            {
                "street": network.street(row.segment),
                "class": network.class_names[network.road_class[row.segment]],
                "near": [float(value) for value in place(network, row.segment).split(",")],
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
            "streets": names_of(network, closure.closed),
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


def _both(network: RoadNetwork, closed: Any) -> bool:
    """Return whether something is closed in both directions: of one line, or of two that run opposite ways."""
    bend = np.abs((network.bearing[closed] - network.bearing[closed[0]] + 180.0) % 360.0 - 180.0)
    return bool(np.isin(network.opposite[closed], closed).any() or (bend > 120.0).any())
