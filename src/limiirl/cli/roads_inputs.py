"""Read and validate the inputs of the road commands, and format their results."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from limiirl.cli.inputs import check_file
from limiirl.cli.options import echo
from limiirl.errors import InvalidFile, InvalidParameter, InvalidTrips

if TYPE_CHECKING:
    from limiirl.roads import CleanedTrips, Matches, RoadNetwork, Trips


def read_network(path: Path) -> RoadNetwork:
    """Read a road network from a file."""
    from limiirl.roads import RoadNetwork

    return RoadNetwork.load(_check_not_folder(path, "build"))


def _check_not_folder(path: Path, command: str) -> Path:
    if path.is_dir():
        raise InvalidFile(
            f"{path} is a folder. Pass an .npz file written by `limiirl roads {command}`.",
            parameter="path",
            value=str(path),
        )
    return path


def read_matched(network: Path, matches: Path) -> tuple[RoadNetwork, Matches]:
    """Read a road network and trips; raise unless the trips were matched to this network."""
    from limiirl.roads import Matches

    roads, matched = read_network(network), Matches.load(_check_not_folder(matches, "match"))
    if matched.settings.get("network", roads.fingerprint()) != roads.fingerprint():
        raise InvalidFile(
            f"{matches} was not matched to {network}. Pass the network that was used for matching, or match again.",
            parameter="matches",
            value=str(matches),
        )
    return roads, matched


def parse_columns(options: list[str]) -> dict[str, str | None] | None:
    """Parse comma-separated ROLE=NAME pairs into a mapping from role to column name; an empty name becomes None.

    Examples
    --------
    >>> parse_columns(["lat=Breite,lon=Länge, östlich", "driver="])
    {'lat': 'Breite', 'lon': 'Länge, östlich', 'driver': None}
    """
    from limiirl.roads.traces import COLUMN_NAMES

    columns: dict[str, str | None] = {}
    for text in options:
        # A comma that is not followed by a role and "=" is part of a column name.
        for pair in re.split(rf",(?=(?:{'|'.join(COLUMN_NAMES)})=)", text):
            role, equals, name = pair.partition("=")
            if not equals:
                raise InvalidParameter.of(
                    "columns", pair, f"must be ROLE=NAME, with ROLE one of {', '.join(COLUMN_NAMES)}"
                )
            columns[role.strip()] = name or None
    return columns or None


def check_trips(trips: Trips, path: Path) -> None:
    """Raise if a file contains no usable trips."""
    if len(trips) == 0:
        n = len(trips.skipped)
        reason = f" ({plural(n, 'trip')} skipped; the first one: {trips.skipped[0].reason})" if n else ""
        raise InvalidTrips(
            f"{path} contains no usable trips{reason}. Pass trips with at least two fixes.",
            parameter="trips",
            value=str(path),
        )


def check_cleaned(cleaned: CleanedTrips, path: Path) -> None:
    """Raise if cleaning removed all trips."""
    if len(cleaned) == 0:
        reasons = "; ".join(f"{count:,}: {reason}" for reason, count in cleaned.lost.items())
        raise InvalidTrips(
            f"Cleaning removed all {cleaned.n_trips:,} trips of {path} ({reasons}). Pass longer trips, or a map that "
            "covers them.",
            parameter="trips",
            value=str(path),
        )


def _parse_numbers(text: str, parameter: str, rule: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InvalidParameter.of(parameter, text, rule) from None


def parse_point(text: str | None, parameter: str = "centre") -> tuple[float, float] | None:
    """Parse LAT,LON."""
    rule = "must be LAT,LON in degrees, for example 41.148,-8.633"
    if text is None:
        return None
    numbers = _parse_numbers(text, parameter, rule)
    if len(numbers) != 2:
        raise InvalidParameter.of(parameter, text, rule)
    return numbers[0], numbers[1]


def parse_zones(options: list[str]) -> list[tuple[float, ...]]:
    """Parse circles LAT,LON,METRES, which `mask_zones` validates.

    Examples
    --------
    >>> parse_zones(["41.15,-8.61,300"])
    [(41.15, -8.61, 300.0)]
    """
    return [_parse_numbers(text, "mask", "must be LAT,LON,METRES, for example 41.15,-8.61,300") for text in options]


def find_trip(demos: Any, trip: str) -> int:
    """Return the index of the demonstration with a given id."""
    import numpy as np

    ids = np.arange(len(demos)) if demos.ids is None else demos.ids
    indices = np.flatnonzero(ids.astype(str) == trip)
    if not indices.size:
        raise InvalidParameter.of(
            "trip", trip, f"must be the id of a matched trip of 10 to 300 segments, for example {ids[0]}"
        )
    return int(indices[0])


def sample_demos(demos: Any, n: int | None, seed: int) -> Any:
    """Return a random sample of n demonstrations, or all if n is None."""
    import numpy as np

    from limiirl._validation import check_count

    if n is None or check_count(n, "trips") >= len(demos):
        return demos
    return demos[np.sort(np.random.default_rng(seed).permutation(len(demos))[:n])]


# Names of facts that would be unclear without their underscores.
_LABELS = {
    "bounds": "south, west, north, east",
    "known_share": "known for this fraction of the km",
    "one_way_share": "one-way fraction of the km",
    "segment_m": "quantiles of the segment length in m",
    "turns_out": "segments by number of outgoing turns",
}


def format_facts(facts: Mapping[str, Any], indent: str = "") -> str:
    """Return facts as text with one line per fact; nested facts are indented, and empty ones are omitted.

    >>> print(format_facts({"km": 12.5, "lanes": {"known_share": 0.5, "km": {"1": 6.25}}, "unread": {}}))
    km: 12.5
    lanes:
      known for this fraction of the km: 0.5
      km:
        1: 6.25
    """
    lines = []
    for name, value in facts.items():
        label = f"{indent}{_LABELS.get(name, name.replace('_', ' '))}:"
        if isinstance(value, Mapping):
            lines += [label, format_facts(value, f"{indent}  ")] if value else []
        else:
            # Lists are coordinates.
            shown = ", ".join(f"{x:.4f}" for x in value) if isinstance(value, list) else _format(value)
            lines.append(f"{label} {shown}")
    return "\n".join(lines)


def plural(n: int, word: str) -> str:
    """Return a count with its noun: 1 trip, 2 trips."""
    return f"{n:,} {word}{'s' * (n != 1)}"


def _format(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000.0 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def check_geojson(path: Path | None, *inputs: Path | None) -> None:
    """Raise if the file of --geojson cannot be written; called before the computation."""
    check_file(path, *inputs, option="geojson")
    if path is not None:
        from limiirl.roads import is_geopackage

        is_geopackage(path)


def write_geojson(item: Any, network: RoadNetwork | None, path: Path | None, as_json: bool) -> None:
    """Write the file of --geojson, if set, and print its path (to stderr if --json is set)."""
    if path is None:
        return
    from limiirl.roads import is_geopackage, to_geojson

    n = len(to_geojson(item, network, path)["features"])
    echo(f"{'GeoPackage' if is_geopackage(path) else 'GeoJSON'}: {path} ({n:,} features)", err=as_json)
