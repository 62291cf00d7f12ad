"""What the road commands read and print: a network with the trips matched to it, points, and facts as lines."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from limiirl.errors import InvalidFile, InvalidParameter, InvalidTrips

if TYPE_CHECKING:
    from limiirl.roads import CleanedTrips, Matches, RoadNetwork, Trips


def read_network(path: Path) -> RoadNetwork:
    """Read a network."""
    from limiirl.roads import RoadNetwork

    return RoadNetwork.load(no_folder(path, "build"))


def no_folder(path: Path, writer: str) -> Path:
    """Return the path of a file, or say that it is a folder."""
    if path.is_dir():
        raise InvalidFile(
            f"{path} is a folder. Name the .npz that `limiirl roads {writer}` wrote.", parameter="path", value=str(path)
        )
    return path


def read_matched(network: Path, matches: Path) -> tuple[RoadNetwork, Matches]:
    """Read a network and the trips matched to it; of another network their segments would be any others."""
    from limiirl.roads import Matches

    roads, found = read_network(network), Matches.load(no_folder(matches, "match"))
    if found.settings.get("network", roads.fingerprint()) != roads.fingerprint():
        raise InvalidFile(
            f"{matches} was matched to another network. Name that one, or match the trips again.",
            parameter="matches",
            value=str(matches),
        )
    return roads, found


def read_columns(given: list[str]) -> dict[str, str | None] | None:
    """Return which column has which role: ROLE=NAME, several with commas between them, or ROLE= for none.

    Examples
    --------
    >>> read_columns(["lat=Breite,lon=Länge, östlich", "driver="])
    {'lat': 'Breite', 'lon': 'Länge, östlich', 'driver': None}
    """
    from limiirl.roads.traces import COLUMN_NAMES

    found: dict[str, str | None] = {}
    for text in given:
        # A comma may belong to a name; it ends one only where a role follows.
        for pair in re.split(rf",(?=(?:{'|'.join(COLUMN_NAMES)})=)", text):
            role, equals, name = pair.partition("=")
            if not equals:
                raise InvalidParameter(
                    f"--columns takes ROLE=NAME with a ROLE of {', '.join(COLUMN_NAMES)}, or ROLE= for none; got "
                    f"{pair!r}.",
                    parameter="columns",
                    value=pair,
                )
            found[role.strip()] = name or None
    return found or None


def check_file(out: Path) -> None:
    """Check, before the work is done, that a file can be written there."""
    if out.is_dir():
        raise InvalidFile(f"{out} is a folder. Name a file in it with --out.", parameter="out", value=str(out))
    if not out.parent.is_dir():
        raise InvalidFile(
            f"There is no folder {out.parent} for {out.name}. Make it, or name another with --out.",
            parameter="out",
            value=str(out),
        )


def check_trips(read: Trips, path: Path) -> None:
    """Check that a file had trips at all."""
    if len(read) == 0:
        n = len(read.skipped)
        why = f" Of {n:,} that were skipped, the first was because {read.skipped[0].reason}." if n else ""
        raise InvalidTrips(
            f"{path} holds no trip that can be used.{why} Give a file with trips of several fixes.",
            parameter="trips",
            value=str(path),
        )


def check_cleaned(cleaned: CleanedTrips, path: Path) -> None:
    """Check that something is left to match."""
    if len(cleaned) == 0:
        why = "; ".join(f"{count:,}: {reason}" for reason, count in cleaned.lost.items())
        raise InvalidTrips(
            f"Nothing is left to match of the {cleaned.n_trips:,} trips of {path} ({why}). Give longer trips, or "
            "the map of their place.",
            parameter="trips",
            value=str(path),
        )


def point(text: str | None, option: str = "--centre") -> tuple[float, float] | None:
    """Return the latitude and longitude of LAT,LON."""
    if text is None:
        return None
    try:
        lat, lon = (float(part) for part in text.split(","))
    except ValueError:
        raise InvalidParameter(
            f"{option} must be LAT,LON in degrees, such as 41.148,-8.633; got {text!r}.",
            parameter=option.removeprefix("--"),
            value=text,
        ) from None
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
            raise InvalidParameter(
                f"--mask must be LAT,LON,METRES, such as 41.15,-8.61,300; got {text!r}.", parameter="mask", value=text
            ) from None
    return found


def find_trip(demos: Any, trip: str) -> int:
    """Return the number of the demonstration of an id."""
    import numpy as np

    ids = np.arange(len(demos)) if demos.ids is None else demos.ids
    found = np.flatnonzero(ids.astype(str) == trip)
    if not found.size:
        raise InvalidParameter(
            f"No matched trip of 10 to 300 segments has the id {trip!r}; the first of {len(demos)} is {ids[0]}.",
            parameter="trip",
            value=trip,
        )
    return int(found[0])


def some(demos: Any, n: int | None, seed: int) -> Any:
    """Return n demonstrations drawn at random, or all."""
    if n is None or n >= len(demos):
        return demos
    if n < 1:
        raise InvalidParameter(f"--trips must be at least 1; got {n}.", parameter="trips", value=n)
    import numpy as np

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
