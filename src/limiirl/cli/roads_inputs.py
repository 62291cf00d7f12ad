"""What the road commands read and print: a network with the trips matched to it, points, and facts as lines."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from limiirl.errors import InvalidFile, InvalidParameter, InvalidTrips

if TYPE_CHECKING:
    from limiirl.roads import Cleaned, Matches, RoadNetwork, Trips


_CUT_TRIP = "cut before its ends could be trimmed"


def read_network(path: Path) -> RoadNetwork:
    """Read a network."""
    from limiirl.roads import RoadNetwork

    return RoadNetwork.load(no_folder(path, "build"))


def no_folder(path: Path, writer: str) -> Path:
    """Return the path of a file, or say that it is a folder."""
    if path.is_dir():
        raise InvalidFile(f"{path} is a folder. Name the .npz that `limiirl roads {writer}` wrote.")
    return path


def read_matched(network: Path, matches: Path) -> tuple[RoadNetwork, Matches]:
    """Read a network and the trips matched to it; of another network their segments would be any others."""
    from limiirl.roads import Matches

    roads, found = read_network(network), Matches.load(no_folder(matches, "match"))
    if found.settings.get("network", roads.fingerprint()) != roads.fingerprint():
        raise InvalidFile(f"{matches} was matched to another network. Name that one, or match the trips again.")
    return roads, found


def read_columns(given: list[str]) -> dict[str, str | None] | None:
    """Return which column has which role: ROLE=NAME, several with commas between them, or ROLE= for none.

    Examples
    --------
    >>> read_columns(["lat=Breite,lon=Länge, östlich", "driver="])
    {'lat': 'Breite', 'lon': 'Länge, östlich', 'driver': None}
    """
    from limiirl.roads.traces.tables import GUESSES

    found: dict[str, str | None] = {}
    for text in given:
        # A comma may belong to a name; it ends one only where a role follows.
        for pair in re.split(rf",(?=(?:{'|'.join(GUESSES)})=)", text):
            role, equals, name = pair.partition("=")
            if not equals:
                raise InvalidParameter(
                    f"--columns takes ROLE=NAME with a ROLE of {', '.join(GUESSES)}, or ROLE= to leave it out; got "
                    f"{pair!r}."
                )
            found[role.strip()] = name or None
    return found or None


def check_file(out: Path) -> None:
    """Check, before the work is done, that a file can be written there."""
    if out.is_dir():
        raise InvalidFile(f"{out} is a folder. Name a file in it with --out.")
    if not out.parent.is_dir():
        raise InvalidFile(f"There is no folder {out.parent} for {out.name}. Make it, or name another with --out.")


def check_trips(read: Trips, path: Path) -> None:
    """Check that a file had trips at all."""
    if len(read) == 0:
        n = len(read.skipped)
        why = f" Of {n:,} that were skipped, the first was because {read.skipped[0].reason}." if n else ""
        raise InvalidTrips(f"{path} holds no trip that can be used.{why} Give a file with trips of several fixes.")


def check_cleaned(cleaned: Cleaned, path: Path) -> None:
    """Check that something is left to match."""
    if len(cleaned) == 0:
        why = "; ".join(f"{count:,}: {reason}" for reason, count in cleaned.lost.items())
        raise InvalidTrips(
            f"Nothing is left to match of the {cleaned.n_trips:,} trips of {path} ({why}). Give longer trips, or "
            "the map of their place."
        )


def without_ends(cleaned: Cleaned, roads: RoadNetwork, metres: float) -> Cleaned:
    """Return whole trips without their ends; those that were cut before have ends in the middle, and are left out.

    Cleaning comes first: around an outlier that begins a trip there is nothing to hide.
    """
    from limiirl.roads import clean
    from limiirl.roads.privacy import trim_ends

    given = cleaned.trips
    entire = replace(given[cleaned.whole], skipped=given.skipped, notes=given.notes)
    trimmed = trim_ends(entire, metres)
    if len(trimmed) == 0:
        raise InvalidTrips(f"Nothing is left of any trip without {metres:g} m at both ends. Lower --trim.")
    # A stop has kept its first and its last fix, between which there is no gap.
    again = clean(trimmed, roads, max_gap_s=math.inf)
    cut = {
        _CUT_TRIP: int(np.unique(cleaned.source[~cleaned.whole]).size),
        "nothing left without its ends": len(entire) - len(trimmed),
    }
    ends = {
        f"in a trip {_CUT_TRIP}": given.n_fixes - entire.n_fixes,
        "at the ends, trimmed": entire.n_fixes - trimmed.n_fixes,
    }
    lost = Counter(cleaned.lost) + Counter(again.lost) + Counter(cut)
    dropped = Counter(cleaned.dropped) + Counter(again.dropped) + Counter(ends)
    return replace(again, lost=lost, dropped=dropped, n_trips=cleaned.n_trips)


def point(text: str | None, option: str = "--centre") -> tuple[float, float] | None:
    """Return the latitude and longitude of LAT,LON."""
    if text is None:
        return None
    try:
        lat, lon = (float(part) for part in text.split(","))
    except ValueError:
        raise InvalidParameter(f"{option} takes LAT,LON in degrees, such as 41.148,-8.633; it is {text!r}.") from None
    return lat, lon


def read_zones(given: list[str]) -> list[tuple[float, ...]]:
    """Return circles of LAT,LON,METRES, for `mask_zones`, which checks them.

    Examples
    --------
    >>> read_zones(["41.15,-8.61,300"])
    [(41.15, -8.61, 300.0)]
    """
    found = []
    for text in given:
        try:
            found.append(tuple(float(part) for part in text.split(",")))
        except ValueError:
            raise InvalidParameter(f"--mask takes LAT,LON,METRES, such as 41.15,-8.61,300; it is {text!r}.") from None
    return found


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


def plural(n: int, word: str) -> str:
    """Return a number of things: 1 trip, 2 trips."""
    return f"{n:,} {word}{'s' * (n != 1)}"


def _figure(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000.0 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
