"""The page of a road network: a map in several colourings, what is known of its streets, and what was left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limiirl._typing import IntArray
from limiirl.report.document import Facts, Fold, Item, Report, Section, Text
from limiirl.report.maps import Layer, Map, Stroke
from limiirl.report.roads.layers import Chains, class_word, facts_chains, rank, street_facts
from limiirl.report.svg import INK, MUTED, SERIES
from limiirl.report.tables import Cell, Column, Content, Table
from limiirl.roads import RoadNetwork, regions, summarize
from limiirl.worlds import REGIONS

_SPEEDS = (30.0, 50.0, 70.0, 90.0)
_LANES = (1.0, 2.0, 3.0)
_GROUP = "colouring"
_THIN, _DETAIL = 0.9, 45.0
# Of the classes from the most important on: neighbours must be told apart at a glance.
_HUES = (1, 6, 0, 2, 3, 5, 7, 4)


def network_page(network: RoadNetwork, *, title: str = "Road network") -> Report:
    """Return the report of a network: map, lengths by class and region, what is known, what was dropped and why.

    Examples
    --------
    >>> ring = RoadNetwork.from_segments([41.15, 41.16, 41.16], [-8.63, -8.63, -8.62], [0, 1, 2], [1, 2, 0])
    >>> page = network_page(ring)
    >>> page.highlights[0]
    ('directed segments', '3')
    >>> [table.name for table in page.tables]
    ['road-classes', 'regions']
    """
    place = regions(network)
    km = network.length_m / 1000.0
    known_speed, known_lanes = (float(km[np.isfinite(v)].sum() / km.sum()) for v in (network.speed_kmh, network.lanes))
    sections = [
        Section("Map", [_map(network, place)]),
        Section(
            "Roads",
            [_class_table(network)],
            lead="Lengths count each direction that may be driven. What the source does not say stays unknown.",
        ),
        Section("Regions", [_region_table(network, place)], lead="The centre, and sixteen compass points around it."),
        *_notes_section(network),
    ]
    speed, lanes = (f"{100.0 * share:.0f}\u00a0%" for share in (known_speed, known_lanes))
    return Report(
        title,
        f"{network.n_segments:,} directed segments of {km.sum():,.0f} km in all, joined by {network.n_turns:,} turns. "
        f"The speed limit is known for {speed} of the length, the number of lanes for {lanes}.",
        sections,
        methods=[
            Text("A segment is a piece of road between two neighbouring points of the map, driven one way; a turn is a "
                 "legal move from one segment to the next. Segments are the states of the MDP, turns its actions."),
            Facts(
                {
                    "Centre": f"{network.centre[0]:.5f}, {network.centre[1]:.5f}",
                    "Fingerprint": network.fingerprint(),
                    "Attribution": network.attribution or "none given",
                }
            ),
        ],
        highlights={
            "directed segments": f"{network.n_segments:,}",
            "turns": f"{network.n_turns:,}",
            "km": f"{km.sum():,.0f}",
            "nodes": f"{network.n_nodes:,}",
        },
    )  # fmt: skip


def _map(network: RoadNetwork, place: IntArray) -> Map:
    # Lines end where the region changes, so that all colourings share them.
    lines = facts_chains(network, place)
    facts: dict[str, list[object]] = {
        **street_facts(network, lines),
        "region": [REGIONS[r] for r in place[lines.first].tolist()],
    }
    s = lines.first
    importance = np.array([rank(name) for name in network.class_names])[network.road_class[s]]

    def layer(name: str, strokes: list[Stroke], codes: IntArray, *, shown: bool = False) -> Layer:
        return Layer(
            name, lines.points, lines.offsets, strokes=strokes, stroke=codes, facts=facts, group=_GROUP, shown=shown
        )

    layers = [
        layer("Road class", *_by_class(network, lines), shown=True),
        layer("Speed limit", *_steps(network.speed_kmh[s], _SPEEDS, "km/h", SERIES[1])),
        layer("Lanes", *_steps(network.lanes[s], _LANES, "lanes", SERIES[2])),
        layer("Region", *_by_region(place[s], importance)),
    ]
    km = np.bincount(network.road_class, network.length_m / 1000.0, minlength=len(network.class_names))
    most = class_word(network.class_names[int(km.argmax())])
    return Map(
        "network",
        "The network",
        f"A map of {network.n_segments:,} road segments. Most of the length, {km.max() / km.sum():.0%}, is {most}.",
        "Choose a colouring below. Drag or use arrow keys to move; zoom with the buttons, + and −, or with the wheel "
        "after a click. Point at a street to read what is known of it.",
        layers,
        attribution=network.attribution,
    )


def _by_class(network: RoadNetwork, lines: Chains) -> tuple[list[Stroke], IntArray]:
    """Colour by class, the important ones wide and on top; all local classes are grey."""
    names = [name.removesuffix("_link") for name in network.class_names]
    important = sorted({name for name in names if rank(name) > 1}, key=lambda name: (rank(name), name))
    local = sorted({name for name in names if rank(name) == 1})
    ordered = [*local, *important]
    strokes = [Stroke(class_word(name), MUTED, _THIN, 0.45, _DETAIL) for name in local]
    for place, name in enumerate(important, start=1):
        colour = SERIES[_HUES[(len(important) - place) % len(_HUES)]]
        strokes.append(Stroke(class_word(name), colour, 0.5 + 0.6 * rank(name)))
    codes = np.array([ordered.index(name) for name in names], dtype=np.int64)
    return strokes, codes[network.road_class[lines.first]]


def _steps(
    values: NDArray[np.float64], bounds: tuple[float, ...], unit: str, colour: str
) -> tuple[list[Stroke], IntArray]:
    """Colour by steps of a number, stronger and wider the more; unknown is grey."""
    n = len(bounds)
    labels = [f"up to {bounds[0]:g} {unit}"]
    labels += [f"over {a:g} to {b:g} {unit}" for a, b in pairwise(bounds)]
    labels.append(f"over {bounds[-1]:g} {unit}")
    strokes = [Stroke("unknown", MUTED, _THIN, 0.3, _DETAIL)]
    strokes += [Stroke(label, colour, 1.2 + 2.0 * k / n, 0.45 + 0.55 * k / n) for k, label in enumerate(labels)]
    codes = np.where(np.isfinite(values), 1 + np.searchsorted(bounds, values, side="left"), 0)
    return strokes, codes.astype(np.int64)


def _by_region(place: IntArray, importance: IntArray) -> tuple[list[Stroke], IntArray]:
    """Colour by region: opposite compass points have one hue, one of them paler; important roads are wide."""
    strokes: list[Stroke] = []
    for number, name in reversed(list(enumerate(REGIONS))):
        colour = INK if number == 0 else SERIES[(number - 1) % len(SERIES)]
        strength = 0.8 if number <= len(SERIES) else 0.5
        strokes.append(Stroke("", colour, _THIN, strength, _DETAIL))
        strokes.append(Stroke(name, colour, 2.2, strength))
    return strokes, 2 * (len(REGIONS) - 1 - place) + (importance > 1)


def _class_table(network: RoadNetwork) -> Table:
    km = network.length_m / 1000.0
    rows: list[list[Content]] = []
    for c in sorted(range(len(network.class_names)), key=lambda c: (-rank(network.class_names[c]), c)):
        mine = network.road_class == c
        if not mine.any():
            continue
        total = float(km[mine].sum())
        shares = [float(km[mine & np.isfinite(v)].sum()) / total for v in (network.lanes, network.speed_kmh)]
        limits = network.speed_kmh[mine & np.isfinite(network.speed_kmh)]
        rows.append(
            [
                class_word(network.class_names[c]),
                Cell(f"{int(mine.sum()):,}", value=int(mine.sum())),
                Cell.number(total, 1),
                *(Cell(f"{share:.0%}", value=share) for share in shares),
                Cell.number(float(np.median(limits)) if limits.size else None, 0),
            ]
        )
    columns: list[Column | str] = [
        Column("Class", "left"),
        "Segments",
        "km",
        "Lanes known",
        "Limit known",
        "Median limit, km/h",
    ]
    return Table("road-classes", "Roads by class", "Shares are of the length.", columns, rows)


def _region_table(network: RoadNetwork, place: IntArray) -> Table:
    km = np.bincount(place, network.length_m / 1000.0, minlength=len(REGIONS))
    count = np.bincount(place, minlength=len(REGIONS))
    rows: list[list[Content]] = [
        [name, Cell(f"{int(count[r]):,}", value=int(count[r])), Cell.number(float(km[r]), 1)]
        for r, name in enumerate(REGIONS)
    ]
    return Table("regions", "Roads by region", "", [Column("Region", "left"), "Segments", "km"], rows)


def _notes_section(network: RoadNetwork) -> list[Section]:
    """Show what building left out and why, and all else that was noted, whatever its maker notes."""
    dropped = summarize(network)["dropped"]
    items: list[Item] = []
    if dropped:
        rows: list[list[Content]] = [[reason, Cell(f"{count:,}", value=count)] for reason, count in dropped.items()]
        items.append(Table("dropped", "What was left out", "", [Column("What, and why", "left"), "Count"], rows))
    if network.notes:
        items.append(Fold("All that was noted when the network was built", [Facts(list(_flat(network.notes)))]))
    return [Section("What was read, kept and dropped", items)] if items else []


def _flat(notes: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    for key, value in notes.items():
        name = f"{above}{str(key).replace('_', ' ')}"
        if isinstance(value, Mapping):
            if value:
                yield from _flat(value, f"{name}: ")
        elif isinstance(value, list | tuple):
            yield name, ", ".join(str(part) for part in value)
        elif isinstance(value, int) and not isinstance(value, bool):
            yield name, f"{value:,}"
        else:
            yield name, str(value)
