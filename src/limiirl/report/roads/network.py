"""Page on a road network: a map with several colourings, statistics of roads, and excluded data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from limiirl._typing import FloatArray, IntArray
from limiirl.report.document import Facts, Fold, Item, Report, Section, Text
from limiirl.report.maps import Layer, Map, Stroke
from limiirl.report.roads.layers import (
    StreetLines,
    class_label,
    class_rank,
    join_uniform_segments,
    segment_ranks,
    street_facts,
    with_landmarks,
)
from limiirl.report.svg import INK, MUTED, SERIES
from limiirl.report.tables import Cell, Column, Content, Table, format_percent
from limiirl.roads import RoadNetwork, regions, summarize
from limiirl.worlds import REGIONS

_SPEEDS = (30.0, 50.0, 70.0, 90.0)
_LANES = (1.0, 2.0, 3.0)
_GROUP = "colouring"
_THIN, _DETAIL = 0.9, 45.0
# Colours of road classes from the most to the least important, such that neighbours are distinct.
_HUES = (1, 6, 0, 2, 3, 5, 7, 4)


def network_page(network: RoadNetwork, *, title: str = "Road network") -> Report:
    """Return the report on a network: map, lengths by class and region, known attributes, and excluded data.

    >>> ring = RoadNetwork.from_segments([41.15, 41.16, 41.16], [-8.63, -8.63, -8.62], [0, 1, 2], [1, 2, 0])
    >>> [table.name for table in network_page(ring).tables]
    ['road-classes', 'regions']
    """
    region = regions(network)
    km = network.length_m / 1000.0
    speed, lanes = (
        format_percent(float(km[np.isfinite(v)].sum() / km.sum())) for v in (network.speed_kmh, network.lanes)
    )
    roads_lead = "Two-way streets are counted once per direction. Attributes missing in the source are unknown."
    regions_lead = "The regions are the centre and sixteen compass directions around it."
    facts = {
        "Centre": f"{network.centre[0]:.5f}, {network.centre[1]:.5f}",
        "Fingerprint": network.fingerprint(),
        "Attribution": network.attribution or "none",
    }
    return Report(
        title,
        f"{network.n_segments:,} directed segments with a total length of {km.sum():,.0f} km and {network.n_turns:,} "
        f"turns. The speed limit is known for {speed} of the length, and the number of lanes for {lanes}.",
        [
            Section("Map", [_map(network, region)]),
            Section("Roads", [_class_table(network)], lead=roads_lead),
            Section("Regions", [_region_table(network, region)], lead=regions_lead),
            *_notes_section(network),
        ],
        methods=[
            Text(
                "A segment is a directed piece of road between two consecutive points of the map. A turn is a legal "
                "transition from one segment to the next. In the MDP, segments are states and turns are actions."
            ),
            Facts(facts),
        ],
        project=network.fingerprint(),
        highlights={
            "directed segments": f"{network.n_segments:,}",
            "turns": f"{network.n_turns:,}",
            "km": f"{km.sum():,.0f}",
            "nodes": f"{network.n_nodes:,}",
        },
    )


def _map(network: RoadNetwork, region: IntArray) -> Map:
    # Lines end where the region changes, so that all colourings use the same lines.
    lines = join_uniform_segments(network, region)
    s = lines.first
    facts = street_facts(network, lines)
    facts["region"] = [REGIONS[r] for r in region[s].tolist()]
    colourings = {
        "Road class": _by_class(network, lines),
        "Speed limit": _by_value(network.speed_kmh[s], _SPEEDS, " km/h", SERIES[1]),
        "Lanes": _by_value(network.lanes[s], _LANES, "", SERIES[2]),
        "Region": _by_region(region[s], segment_ranks(network)[s]),
    }
    layers = [
        Layer(name, lines.points, lines.offsets, strokes=strokes, stroke=codes, facts=facts, group=_GROUP, shown=shown)
        for (name, (strokes, codes)), shown in zip(colourings.items(), (True, False, False, False), strict=True)
    ]
    km = np.bincount(network.road_class, network.length_m / 1000.0, minlength=len(network.class_names))
    most = class_label(network.class_names[int(km.argmax())])
    return Map(
        "network",
        "Road network",
        f"A map of {network.n_segments:,} road segments. The most frequent class is {most}, with "
        f"{format_percent(km.max() / km.sum())} of the length.",
        "Select a colouring below. Drag the map or use the arrow keys to pan. Zoom with the buttons, with + and −, or "
        "with the mouse wheel after a click. Hover over a street to see its attributes.",
        with_landmarks(network, layers),
        attribution=network.attribution,
    )


def _by_class(network: RoadNetwork, lines: StreetLines) -> tuple[list[Stroke], IntArray]:
    """Return the strokes by road class, and the stroke (S,) of each segment; important roads are wide and on top."""
    names = [name.removesuffix("_link") for name in network.class_names]
    important = sorted({name for name in names if class_rank(name) > 1}, key=lambda name: (class_rank(name), name))
    local = sorted({name for name in names if class_rank(name) == 1})
    ordered = [*local, *important]
    strokes = [Stroke(class_label(name), MUTED, _THIN, 0.45, _DETAIL) for name in local]
    for rank, name in enumerate(important, start=1):
        colour = SERIES[_HUES[(len(important) - rank) % len(_HUES)]]
        strokes.append(Stroke(class_label(name), colour, 0.5 + 0.6 * class_rank(name)))
    codes = np.array([ordered.index(name) for name in names], dtype=np.int64)
    return strokes, codes[network.road_class[lines.first]]


def _by_value(values: FloatArray, bounds: tuple[float, ...], unit: str, colour: str) -> tuple[list[Stroke], IntArray]:
    """Return the strokes for intervals of a value (grey if unknown), and the stroke (S,) of each segment."""
    n = len(bounds)
    labels = [f"up to {bounds[0]:g}{unit}"]
    labels += [f"over {a:g} to {b:g}{unit}" for a, b in pairwise(bounds)]
    labels.append(f"over {bounds[-1]:g}{unit}")
    strokes = [Stroke("unknown", MUTED, _THIN, 0.3, _DETAIL)]
    strokes += [Stroke(label, colour, 1.2 + 2.0 * k / n, 0.45 + 0.55 * k / n) for k, label in enumerate(labels)]
    codes = np.where(np.isfinite(values), 1 + np.searchsorted(bounds, values, side="left"), 0)
    return strokes, codes.astype(np.int64)


def _by_region(region: IntArray, importance: IntArray) -> tuple[list[Stroke], IntArray]:
    """Return the strokes by region, and the stroke (S,) of each segment; opposite directions share a hue."""
    strokes: list[Stroke] = []
    for number, name in reversed(list(enumerate(REGIONS))):
        colour = INK if number == 0 else SERIES[(number - 1) % len(SERIES)]
        strength = 0.8 if number <= len(SERIES) else 0.5
        strokes.append(Stroke("", colour, _THIN, strength, _DETAIL))
        strokes.append(Stroke(name, colour, 2.2, strength))
    return strokes, 2 * (len(REGIONS) - 1 - region) + (importance > 1)


def _class_table(network: RoadNetwork) -> Table:
    km = network.length_m / 1000.0
    rows: list[list[Content]] = []
    for c in sorted(range(len(network.class_names)), key=lambda c: (-class_rank(network.class_names[c]), c)):
        own = network.road_class == c
        if not own.any():
            continue
        total = float(km[own].sum())
        known = [float(km[own & np.isfinite(v)].sum()) / total for v in (network.lanes, network.speed_kmh)]
        limits = network.speed_kmh[own & np.isfinite(network.speed_kmh)]
        rows.append(
            [
                class_label(network.class_names[c]),
                Cell.count(int(own.sum())),
                Cell.number(total, 1),
                *map(Cell.percent, known),
                Cell.number(float(np.median(limits)) if limits.size else None, 0),
            ]
        )
    columns: list[Column | str] = [
        Column("Class", "left"),
        "Segments",
        "Length, km",
        "Lanes known",
        "Speed limit known",
    ]
    columns.append("Median speed limit, km/h")
    return Table("road-classes", "Roads by class", "Percentages refer to the length.", columns, rows)


def _region_table(network: RoadNetwork, region: IntArray) -> Table:
    km = np.bincount(region, network.length_m / 1000.0, minlength=len(REGIONS))
    count = np.bincount(region, minlength=len(REGIONS))
    rows: list[list[Content]] = [
        [name, Cell.count(int(count[r])), Cell.number(float(km[r]), 1)] for r, name in enumerate(REGIONS)
    ]
    return Table("regions", "Roads by region", "", [Column("Region", "left"), "Segments", "Length, km"], rows)


def _notes_section(network: RoadNetwork) -> list[Section]:
    """Return the section on excluded data and build notes, or [] if there are none."""
    dropped = summarize(network)["dropped"]
    items: list[Item] = []
    if dropped:
        rows: list[list[Content]] = [[reason, Cell.count(count)] for reason, count in dropped.items()]
        items.append(Table("excluded", "Excluded data", "", [Column("Reason", "left"), "Count"], rows))
    if network.notes:
        items.append(Fold("Build log", [Facts(list(_flatten(network.notes)))]))
    return [Section("Source data", items)] if items else []


def _flatten(notes: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    for key, value in notes.items():
        name = f"{above}{str(key).replace('_', ' ')}"
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{name}: ")
        elif isinstance(value, list | tuple):
            yield name, ", ".join(str(part) for part in value)
        elif isinstance(value, int) and not isinstance(value, bool):
            yield name, f"{value:,}"
        else:
            yield name, str(value)
