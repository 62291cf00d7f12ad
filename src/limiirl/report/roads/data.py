"""Pages on the data of roads: a road network, and the quality of map matching."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from limiirl._typing import FloatArray, IntArray
from limiirl.report.document import Facts, Figure, Fold, Grid, Item, Report, Section, Text
from limiirl.report.figures.comparisons import plot_histogram
from limiirl.report.maps import WIDEST, Layer, Map, Stroke
from limiirl.report.markup import literal
from limiirl.report.roads.layers import (
    StreetLines,
    class_label,
    class_rank,
    join_uniform_segments,
    node_points,
    pad_bounds,
    segment_ranks,
    segments_near,
    street_facts,
    street_layer,
    with_landmarks,
)
from limiirl.report.svg import INK, MUTED, SERIES
from limiirl.report.tables import Cell, Column, Content, Table, format_percent
from limiirl.roads import Matches, RoadNetwork, Trips, measure_quality, regions, summarize
from limiirl.roads.matching import LEVELS, LONG_M, LONG_S, Quality
from limiirl.worlds import REGIONS

if TYPE_CHECKING:
    from limiirl.roads import CleanedTrips

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


# Drivers with fewer paths than this are counted together.
_MIN_PATHS = 5
_DISTANCES = np.arange(0.0, 61.0, 2.5)


def quality_page(
    network: RoadNetwork,
    trips: Trips | CleanedTrips,
    matches: Matches,
    quality: Quality | None = None,
    *,
    examples: bool = True,
) -> Report:
    """Return the report on the quality of map matching.

    Parameters
    ----------
    network : RoadNetwork
    trips : Trips or CleanedTrips
        Trips that were matched.
    matches : Matches
    quality : Quality, optional
        Result of `limiirl.roads.measure_quality`; computed by default.
    examples : bool
        Show three trips with their GPS fixes.
    """
    given: Trips = trips if isinstance(trips, Trips) else trips.trips
    measured = measure_quality(network, trips, matches) if quality is None else quality
    median = float(measured.distance_m[list(LEVELS).index(0.5)]) if measured.n_fixes_matched else None
    distances = matches.fix_distance_m[matches.fix_segment >= 0]
    settings = {str(name).replace("_", " "): _format_setting(value) for name, value in matches.settings.items()}
    return Report(
        "Map matching",
        _lead(measured, median),
        [
            Section("Matched trips", [_counts(measured), _outcomes(given, matches), *_losses(measured)]),
            Section("Accuracy", [Grid(_histograms(matches, distances)), _quantiles(measured), _gaps(matches)]),
            *(_examples(network, given, matches) if examples else []),
        ],
        methods=[Facts({**settings, **_count_drivers(matches)})],
        project=network.fingerprint(),
        highlights={
            "recorded trips": f"{measured.n_trips:,}",
            "matched completely": _percent(measured.fraction_whole),
            "matched fixes": _percent(measured.fraction_matched),
            "median distance": "–" if median is None else f"{median:.1f} m",
        },
    )


def _percent(fraction: float) -> str:
    return format_percent(fraction, 1) if np.isfinite(fraction) else "–"


def _lead(quality: Quality, median: float | None) -> str:
    if median is None:
        return f"None of the {quality.n_trips:,} recorded trips was matched."
    return (
        f"{quality.n_whole:,} of {quality.n_trips:,} recorded trips were matched completely. "
        f"{_percent(quality.fraction_matched)} of the GPS fixes were matched, at a median distance of {median:.1f} m."
    )


def _counts(quality: Quality) -> Facts:
    ratio = quality.length_ratio[np.isfinite(quality.length_ratio)]
    within = ", ".join(f"{_percent(part)} within {metres:g} m" for metres, part in quality.within.items())
    facts = {
        "Recorded trips": f"{quality.n_trips:,}",
        "Input of the matcher": f"{quality.n_pieces_given:,} trips or parts of trips with {quality.n_fixes:,} fixes",
        "Matched at least in part": f"{quality.n_matched:,} trips, with {quality.n_paths:,} connected paths",
        "Matched completely": f"{quality.n_whole:,} trips",
        "Matched fixes": f"{quality.n_fixes_matched:,}: {within}" if quality.n_fixes_matched else "none",
        "Length of paths": f"{np.median(ratio):.2f} times the length of the line through the fixes (median)"
        if ratio.size
        else "",
        "Long gaps": f"{quality.n_gaps:,} gaps longer than {LONG_S:g} s or {LONG_M:g} m; the shortest paths that fill "
        f"them account for {_percent(quality.fraction_in_gaps)} of the length"
        if quality.n_paths
        else "",
    }
    return Facts({name: text for name, text in facts.items() if text})


def _outcomes(trips: Trips, matches: Matches) -> Table:
    """Return the number of trips and parts of trips by outcome of the matching."""
    pieces = np.bincount(matches.trip, minlength=len(trips))
    whole = np.zeros(len(trips), dtype=bool)
    whole[matches.trip[matches.whole]] = True
    rows: list[list[Content]] = []
    for name, chosen in (
        ("completely", whole),
        ("partly, with one path", (pieces == 1) & ~whole),
        ("partly, with several paths", (pieces > 1) & ~whole),
        ("not at all", pieces == 0),
    ):
        n = int(chosen.sum())
        rows.append([name, Cell.count(n), Cell.percent(n / max(len(trips), 1), 1)])
    columns: list[Column | str] = [Column("Matched", "left"), "Number", "Percentage"]
    caption = "Number of trips by matching result. If cleaning divided a trip, its parts are counted separately."
    return Table("outcomes", "Outcomes", caption, columns, rows)


def _losses(quality: Quality) -> list[Table]:
    """Return the table of excluded data with reasons, or [] if no data were excluded."""
    rows: list[list[Content]] = []
    for what, counts in (
        ("trips", quality.lost),
        ("rows or files", quality.unread),
        ("fixes, in cleaning", quality.dropped),
        ("matching", quality.reasons),
    ):
        ordered = sorted(counts.items(), key=lambda pair: -pair[1])
        rows += [[f"{what}: {reason}", Cell.count(count)] for reason, count in ordered]
    caption = (
        "Trips excluded before matching, rows or files that could not be read, fixes removed by cleaning, and fixes or "
        "parts of trips excluded by matching."
    )
    columns: list[Column | str] = [Column("Reason", "left"), "Count"]
    return [Table("reasons", "Excluded data", caption, columns, rows)] if rows else []


def _quantiles(quality: Quality) -> Table:
    rows: list[list[Content]] = [
        [name, *(Cell.number(float(value), 1) for value in values)]
        for name, values in (
            ("distance from fix to path, m", quality.distance_m),
            ("time between fixes, s", quality.gap_s),
            ("distance driven between fixes, m", quality.gap_m),
        )
    ]
    columns: list[Column | str] = [Column("Quantity", "left"), *(f"{100 * level:g}\u00a0%" for level in LEVELS)]
    caption = "The first row is over matched fixes, the others over pairs of consecutive matched fixes."
    return Table("quantiles", "Quantiles", caption, columns, rows)


def _format_setting(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}"


def _histograms(matches: Matches, distances: FloatArray) -> list[Figure]:
    distance = plot_histogram(distances, "distance from fix to path, m", "matched fixes", _DISTANCES, unit=" m")
    confidence = plot_histogram(matches.confidence, "confidence of the path", "paths", np.linspace(0.0, 1.0, 21))
    return [
        Figure.from_plot("distances", "Distances", "Distances from matched fixes to the path.", distance),
        Figure.from_plot("confidence", "Confidence", "Confidence of each matched path.", confidence),
    ]


def _gaps(matches: Matches) -> Table:
    """Return the number of runs of unmatched fixes, by length."""
    runs = _run_lengths(matches)
    rows: list[list[Content]] = []
    for name, chosen in (
        ("1 fix", runs == 1),
        ("2 to 4 fixes", (runs >= 2) & (runs <= 4)),
        ("5 to 19 fixes", (runs >= 5) & (runs <= 19)),
        ("20 fixes and more", runs >= 20),
    ):
        rows.append([name, Cell.count(int(chosen.sum())), Cell.count(int(runs[chosen].sum()))])
    columns: list[Column | str] = [Column("Length of run", "left"), "Runs", "Fixes"]
    return Table("gaps", "Unmatched fixes", "Runs of consecutive fixes of a trip that were not matched.", columns, rows)


def _run_lengths(matches: Matches) -> IntArray:
    lost = matches.fix_segment < 0
    trip = np.repeat(np.arange(matches.fix_offsets.size - 1), np.diff(matches.fix_offsets))
    begins = lost & np.concatenate([[True], ~lost[:-1] | (np.diff(trip) > 0)])[: lost.size]
    return np.bincount((np.cumsum(begins) - 1)[lost]) if lost.any() else np.empty(0, dtype=np.int64)


def _count_drivers(matches: Matches) -> dict[str, str]:
    """Return the number of drivers; drivers with few paths are counted together for privacy."""
    if matches.groups is None:
        return {}
    _, counts = np.unique(matches.groups, return_counts=True)
    shown = int((counts >= _MIN_PATHS).sum())
    few = f"{counts.size - shown:,} with fewer than {_MIN_PATHS} paths"
    return {"drivers": f"{counts.size:,}: {shown:,} with at least {_MIN_PATHS} paths, {few}"}


def _examples(network: RoadNetwork, trips: Trips, matches: Matches) -> list[Section]:
    """Return maps of three paths of at least median length: with high, median and low confidence."""
    if not len(matches):
        return []
    usual = np.flatnonzero(matches.lengths >= np.median(matches.lengths))
    order = usual[np.lexsort((usual, matches.confidence[usual]))].tolist()
    chosen = {"High confidence": order[-1], "Median confidence": order[len(order) // 2], "Low confidence": order[0]}
    maps: list[Item] = []
    taken: set[int] = set()
    for number, (name, piece) in enumerate(chosen.items(), start=1):
        if piece not in taken:
            taken.add(piece)
            maps.append(_example(network, trips, matches, piece, name, number))
    text = "Dots are GPS fixes, thick lines are matched paths, and thin lines connect each fix to its matched position."
    return [Section("Examples", [Text(text), *maps])]


def _example(network: RoadNetwork, trips: Trips, matches: Matches, piece: int, name: str, number: int) -> Map:
    path = matches.path(piece)
    trip = int(matches.trip[piece])
    own = slice(int(matches.fix_offsets[trip]), int(matches.fix_offsets[trip + 1]))
    at = np.stack([trips.lat[own], trips.lon[own]], axis=1)
    segment, along, away = matches.fix_segment[own], matches.fix_along_m[own], matches.fix_distance_m[own]
    line = matches.geometry(network, piece, clip=True)
    on = segment >= 0
    seen = np.concatenate([line, at[on]])
    layers = [street_layer(network, segments_near(network, seen, 500.0, widest=WIDEST))]
    others = [i for i in np.flatnonzero(matches.trip == trip).tolist() if i != piece]
    if others:
        lines = [matches.geometry(network, i, clip=True) for i in others]
        layers.append(Layer.of_lines("Other parts of the trip", lines, strokes=[Stroke("", SERIES[0], 4.0, 0.5)]))
    stroke = Stroke("", SERIES[0], 5.0, halo=True)
    layers.append(Layer.of_lines("Matched path", [line], strokes=[stroke], facts={"segments": [path.size]}))
    if on.any():
        links = np.stack([at[on], _positions(network, segment[on], along[on])], axis=1)
        layers.append(Layer.of_lines("Fixes to matched positions", list(links), strokes=[Stroke("", INK, 1.0, 0.6)]))
    strokes = [Stroke("unmatched fix", MUTED, 7.0, halo=True), Stroke("fix", SERIES[1], 7.0, halo=True)]
    facts = {
        "time": [f"{value:.0f} s" for value in (trips.time_s[own] - trips.time_s[own.start]).tolist()],
        "distance": [f"{value:.1f} m" if good else "" for value, good in zip(away.tolist(), on.tolist(), strict=True)],
    }
    layers.append(Layer("Fixes", at, strokes=strokes, stroke=on.astype(np.int64), facts=facts, kind="points"))
    metres = away[on]
    summary = (
        f"median distance {np.median(metres):.1f} m, maximum {metres.max():.1f} m"
        if metres.size
        else "no matched fixes"
    )
    return Map(
        f"example-{number}",
        name,
        f"A trip of {at.shape[0]} fixes and the path of {path.size} segments matched to it: {summary}.",
        f"Confidence {matches.confidence[piece]:.2f}; {literal(summary)}. "
        + ("The path covers the whole trip." if matches.whole[piece] else "The path covers part of the trip."),
        with_landmarks(network, layers),
        attribution=network.attribution,
        view=pad_bounds(seen),
    )


def _positions(network: RoadNetwork, segment: IntArray, along_m: FloatArray) -> FloatArray:
    """Return the points (n, 2) at the given distances along segments."""
    fraction = (along_m / network.length_m[segment])[:, None]
    tail, head = (node_points(network, ends[segment]) for ends in (network.tail, network.head))
    return np.asarray(tail + fraction * (head - tail))
