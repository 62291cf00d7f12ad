"""Page on a street closure: a map of the change in trips, the most affected streets, and disconnected trips."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from limiirl._typing import BoolArray, FloatArray, IntArray
from limiirl.report.document import Callout, Item, Report, Section, Text
from limiirl.report.maps import WIDEST, Layer, Map, Stroke
from limiirl.report.markup import literal
from limiirl.report.roads.layers import (
    class_label,
    flow_layers,
    join_segments,
    node_points,
    pad_bounds,
    path_points,
    segments_near,
    street_layer,
    with_landmarks,
)
from limiirl.report.svg import SERIES
from limiirl.report.tables import Cell, Column, Content, Table
from limiirl.roads import (
    Closure,
    StreetChange,
    describe_changed_street,
    describe_closed,
    describe_cut_off,
    describe_detour,
    describe_passages,
    describe_street,
    format_place,
    list_street_names,
)

_MORE, _LESS, _CLOSED = SERIES[1], SERIES[0], SERIES[6]
# Lower bound as a fraction of the largest change, width and strength of each class.
_STEPS = ((0.02, 1.6, 0.6), (0.1, 2.8, 0.75), (0.25, 4.2, 0.9), (0.5, 6.0, 1.0))
# The initial view contains changes of at least this fraction of the largest change.
_IN_VIEW = 0.1
_GROUP = "trips"
_ROWS = 12
# Margin of the map around the closure if no change is shown.
_AROUND_M = 1000.0


def change_page(closure: Closure) -> Report:
    """Return the report on a closure from `limiirl.roads.close_streets`; single trips are not drawn."""
    network = closure.network
    street = (list_street_names(network, closure.closed) or [describe_street(network, int(closure.closed[0]))])[0]
    tables: list[Item] = [
        _table(closure, name, f"Streets with {name} trips", changes)
        for name, changes in (("more", closure.gains(_ROWS)), ("fewer", closure.losses(_ROWS)))
        if changes
    ]
    effects = [describe_passages(closure), describe_detour(closure), describe_cut_off(closure)]
    streets_lead = "Expected number of trips in both directions, on the segment of each street with the largest change."
    return Report(
        f"Closure of {street}",
        literal(re.sub(r"\s*%", "\u00a0%", " ".join([*filter(None, effects), f"Closed: {describe_closed(closure)}."]))),
        [
            Section("Change in trips", [_map(closure)]),
            Section("Streets", tables or [Text("No street has enough trips to be shown.")], lead=streets_lead),
        ],
        methods=[
            Text(
                f"The origins and destinations of {len(closure.demos):,} matched trips are held fixed. The numbers of "
                "trips before and after the closure are expectations under the learned driving styles, weighted by the "
                "mixture weights. The detour is the mean over all alternative routes, not the shortest detour. "
                "Congestion is not modelled."
            ),
            Callout(
                "note",
                "Privacy",
                f"Values based on fewer than {closure.least} {closure.counted} are hidden. Before the closure, the "
                f"{closure.counted} that use a street are counted; after it, those that still use it and those whose "
                "most likely detour includes it. Single trips are not drawn.",
            ),
        ],
        project=network.fingerprint(),
        highlights=_highlights(closure),
    )


def _highlights(closure: Closure) -> dict[str, object]:
    few = f"fewer than {closure.least} {closure.counted}"
    highlights: dict[str, object] = {"trips": f"{len(closure.demos):,}"}
    highlights["trips through the closure"] = few if closure.hidden else f"{closure.passed.size:,}"
    if closure.detour_m is not None:
        highlights["mean detour"] = f"{closure.detour_m:,.0f} m"
    if closure.detour_s is not None:
        highlights["mean delay"] = f"{closure.detour_s / 60.0:.1f} min"
    highlights["trips without a route"] = few if closure.few(closure.cut_off) else f"{closure.cut_off.size:,}"
    return highlights


def _map(closure: Closure) -> Map:
    network = closure.network
    before, after = (
        np.where(seen, flow, np.nan) for seen, flow in zip(closure.shown, (closure.before, closure.after), strict=True)
    )
    hidden = f"fewer than {closure.least} {closure.counted}"
    change, drawn = _changes(closure)
    most = float(np.abs(change[drawn]).max(initial=0.0))
    layers = [_change_layer(closure, change, drawn, most, hidden)] if most > 0.0 else []
    flows = flow_layers(network, [before, after], ["before", "after"], hidden=hidden, group=_GROUP)[1:]
    for layer, title in zip(flows, ("Trips before", "Trips after"), strict=True):
        # Trips after a closure with few drivers could identify the drivers.
        if title == "Trips before" or not closure.hidden:
            layers.append(replace(layer, title=title))
    ends = np.concatenate([path_points(network, [s]) for s in closure.closed.tolist()])
    rows = np.flatnonzero(drawn & (np.abs(change) >= _IN_VIEW * most))
    points = np.concatenate([ends, _end_points(closure, rows) if rows.size else _surroundings(closure)])
    layers += _mark_closed(closure)
    return Map(
        "change",
        "Change in trips",
        f"A map of {int(drawn.sum()):,} streets with more or fewer trips when "
        f"{describe_street(network, int(closure.closed[0]))} is closed.",
        "Orange streets have more trips, blue streets have fewer; the width increases with the change. The closed "
        f"street is red. Other layers show the trips before and after the closure. Streets with {hidden} are hidden.",
        with_landmarks(network, [street_layer(network, segments_near(network, points, 800.0, widest=WIDEST)), *layers]),
        attribution=network.attribution,
        view=pad_bounds(points),
    )


def _changes(closure: Closure) -> tuple[FloatArray, BoolArray]:
    """Return the change (S,) of each street, and a mask of the streets that are shown before or after."""
    before, after = closure.streets
    change = after - before
    shown = np.logical_or(*closure.shown) & (not closure.hidden)
    shown &= ~closure.shut
    most = float(np.abs(change[shown]).max(initial=0.0))
    return change, shown & (np.abs(change) >= max(_STEPS[0][0] * most, 1e-9))


def _change_layer(closure: Closure, change: FloatArray, drawn: BoolArray, most: float, hidden: str) -> Layer:
    network, codes = closure.network, np.full(change.size, -1, dtype=np.int64)
    bounds = np.array([fraction for fraction, _, _ in _STEPS]) * most
    size = np.clip(np.searchsorted(bounds, np.abs(change), side="right") - 1, 0, len(_STEPS) - 1)
    # Blue below, orange on top, the widest last.
    codes[drawn] = np.where(change > 0.0, size + len(_STEPS), size)[drawn]
    strokes = []
    for colour, word in ((_LESS, "fewer"), (_MORE, "more")):
        for step, (_, width, strength) in enumerate(_STEPS):
            above = bounds[step + 1] if step + 1 < len(_STEPS) else most
            strokes.append(Stroke(f"{bounds[step]:.2g} to {above:.2g} {word} trips", colour, width, strength))
    rounded = np.rint(change / max(most / 100.0, 1e-12))
    masks = closure.drivers_before, closure.drivers_after
    lines = join_segments(network, [codes, rounded, network.street_of, *(mask.hidden for mask in masks)], drawn)
    s = lines.first
    names = [network.street(i) or class_label(network.class_names[network.road_class[i]]) for i in s.tolist()]
    facts: dict[str, list[object]] = {"": list(names)}
    for title, flow, mask in zip(("before", "after"), closure.streets, masks, strict=True):
        numbers = zip(flow[s].tolist(), mask.hidden[s].tolist(), strict=True)
        facts[title] = [hidden if few else f"{value:,.3g} trips" for value, few in numbers]
    return Layer("Change", lines.points, lines.offsets, strokes=strokes, stroke=codes[s], facts=facts, group=_GROUP)


def _mark_closed(closure: Closure) -> list[Layer]:
    network = closure.network
    lines = [path_points(network, [s]) for s in closure.closed.tolist()]
    names = [describe_street(network, s) for s in closure.closed.tolist()]
    stroke = Stroke("closed", _CLOSED, 7.0, halo=True)
    closed = Layer.of_lines("Closed", lines, strokes=[stroke], facts={"closed": names})
    # A segment is too small to see at the scale of a city.
    middle = np.mean([line.mean(axis=0) for line in lines], axis=0)
    nearest = lines[int(np.argmin([np.abs(line.mean(axis=0) - middle).sum() for line in lines]))].mean(axis=0)
    dot = Layer("Location of the closure", [nearest], strokes=[Stroke("", _CLOSED, 13.0, halo=True)], kind="points")
    return [closed, dot]


def _end_points(closure: Closure, segments: IntArray) -> FloatArray:
    network = closure.network
    return node_points(network, np.concatenate([network.tail[segments], network.head[segments]]))


def _surroundings(closure: Closure) -> FloatArray:
    ends = _end_points(closure, closure.closed)
    xy = closure.network.plane.xy(ends[:, 0], ends[:, 1])
    return closure.network.plane.degrees(np.stack([xy.min(axis=0) - _AROUND_M, xy.max(axis=0) + _AROUND_M]))


def _table(closure: Closure, name: str, title: str, changes: list[StreetChange]) -> Table:
    rows: list[list[Content]] = [
        [
            describe_changed_street(closure.network, row),
            format_place(closure.network, row.segment),
            *(Cell("hidden" if value is None else f"{value:,.1f}", value=value) for value in (row.before, row.after)),
            Cell("–" if row.change is None else f"{row.change:+,.1f}".replace("-", "\u2212"), value=row.change),
            Cell.number(row.km, 1),
        ]
        for row in changes
    ]
    left = [Column("Street", "left"), Column("Location", "left")]
    caption = (
        "*Length* is the length of the part of the street where the change is at least half of the largest change on "
        "the street. Closed streets are omitted."
    )
    return Table(name, title, caption, [*left, "Before", "After", "Change", "Length, km"], rows)
