"""What the road commands read and print: a network with the trips matched to it, points, and facts as lines."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from limiirl.errors import InvalidFile, InvalidParameter, InvalidTrips

if TYPE_CHECKING:
    from limiirl.roads import Cleaned, Matches, RoadNetwork


def read_matched(network: Path, matches: Path) -> tuple[RoadNetwork, Matches]:
    """Read a network and the trips matched to it; of another network their segments would be any others."""
    from limiirl.roads import Matches, RoadNetwork

    roads, found = RoadNetwork.load(network), Matches.load(matches)
    if found.settings.get("network", roads.fingerprint()) != roads.fingerprint():
        raise InvalidFile(f"{matches} was matched to another network. Name that one, or match the trips again.")
    return roads, found


def without_ends(cleaned: Cleaned, roads: RoadNetwork, metres: float) -> Cleaned:
    """Return whole trips without their ends; those that were cut before have ends in the middle, and are left out.

    Cleaning comes first: around an outlier that begins a trip there is nothing to hide.
    """
    from limiirl.roads import clean
    from limiirl.roads.privacy import trim_ends

    trimmed = trim_ends(cleaned.trips[cleaned.whole], metres)
    if len(trimmed) == 0:
        raise InvalidTrips(f"Nothing is left of any trip without {metres:g} m at both ends. Lower --trim.")
    # A stop has kept its first and its last fix, between which there is no gap.
    again = clean(trimmed, roads, max_gap_s=math.inf)
    cut = int(np.unique(cleaned.source[~cleaned.whole]).size)
    lost = Counter(cleaned.lost) + Counter(again.lost) + Counter({"cut before its ends could be trimmed": cut})
    gone = int(cleaned.whole.sum()) - len(trimmed)
    lost += Counter({"nothing left without its ends": gone})
    dropped = dict(Counter(cleaned.dropped) + Counter(again.dropped))
    return replace(again, lost=dict(lost), dropped=dropped, n_trips=cleaned.n_trips)


def point(text: str | None) -> tuple[float, float] | None:
    """Return the latitude and longitude of LAT,LON."""
    if text is None:
        return None
    try:
        lat, lon = (float(part) for part in text.split(","))
    except ValueError:
        raise InvalidParameter(f"--centre takes LAT,LON in degrees, such as 41.148,-8.633; it is {text!r}.") from None
    return lat, lon


def place(demos: Any, trip: str) -> int:
    """Return the number of the demonstration of an id."""
    ids = np.arange(len(demos)) if demos.ids is None else demos.ids
    found = np.flatnonzero(ids.astype(str) == trip)
    if not found.size:
        raise InvalidParameter(
            f"No matched trip of 10 to 300 segments has the id {trip!r}; there are {len(demos)}, the first is {ids[0]}."
        )
    return int(found[0])


def some(demos: Any, n: int | None, seed: int) -> Any:
    """Return n demonstrations drawn at random, or all."""
    if n is None or n >= len(demos):
        return demos
    if n < 1:
        raise InvalidParameter(f"--trips must be at least 1; it is {n}.")
    return demos[np.sort(np.random.default_rng(seed).permutation(len(demos))[:n])]


def as_lines(facts: dict[str, Any]) -> str:
    """Return plain facts a line each, nested ones indented."""
    lines = []
    for name, value in facts.items():
        if isinstance(value, dict):
            lines.append(f"{name}:")
            lines += [f"  {key}: {_figure(entry)}" for key, entry in value.items()]
        else:
            lines.append(f"{name}: {_figure(value)}")
    return "\n".join(lines)


def _figure(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000.0 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
