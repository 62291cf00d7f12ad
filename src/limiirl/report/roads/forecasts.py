"""Pages on forecasts: example trips with turns, routes and destinations, and the effects of a street closure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from limiirl._typing import BoolArray, FloatArray, IntArray
from limiirl.errors import InvalidParameter
from limiirl.report.document import Callout, Item, Report, Section, Text
from limiirl.report.maps import WIDEST, Layer, Map, Stroke
from limiirl.report.markup import literal
from limiirl.report.roads.layers import (
    class_label,
    flow_layers,
    format_km,
    join_segments,
    node_points,
    pad_bounds,
    path_points,
    route_layer,
    segments_near,
    street_layer,
    with_landmarks,
)
from limiirl.report.roads.view import DriversView, ForecastExample
from limiirl.report.svg import INK, SERIES
from limiirl.report.tables import Cell, Column, Content, Table, format_percent
from limiirl.roads import (
    STRAIGHT,
    Closure,
    RoadNetwork,
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

if TYPE_CHECKING:
    from limiirl.forecast import Forecaster


# Destinations with a lower probability are not drawn.
_MIN_PROBABILITY = 0.005
# Smallest probability, diameter in pixels and label of each class of destinations.
_CLASSES = ((0.0, 9.0, "under 2 %"), (0.02, 14.0, "2 to 10 %"), (0.1, 19.0, "10 to 30 %"), (0.3, 25.0, "over 30 %"))
# Maximum fraction of a route shared with a more probable one, and number of candidates per listed route.
_SAME, _CANDIDATES = 0.8, 6
# Indices of the colours of routes; the first styles have other colours.
_HUES = (5, 4, 7, 0, 1)
_WIDTHS = (8.0, 5.0, 2.6)
_TRAINED = " These are training trips, so the forecasts do not measure the accuracy on new trips."
_HELD_OUT = " These are test trips."
_AVERAGE = "Forecasts are averaged over the styles, weighted by their posterior probabilities given the trip so far."


def forecast_example(
    forecaster: Forecaster, network: RoadNetwork, states: ArrayLike, *, title: str, fraction: float = 0.5, k: int = 3
) -> ForecastExample:
    """Truncate a trip at a segment with several turns, and forecast its continuation.

    Parameters
    ----------
    forecaster : Forecaster
        Its candidate destinations should be the ends of other trips; see `Forecaster.with_destinations`.
    network : RoadNetwork
    states : (n,)
        Segments of a complete trip, n >= 2.
    title : str
    fraction : float
        The trip is truncated at the first segment with several turns after this fraction of its segments.
    k : int
        Largest number of routes, which are distinct; see `select_distinct`.
    """
    path = np.asarray(states, dtype=np.int64)
    several = np.diff(network.out_ptr)[path] > 1
    several[: int(fraction * (path.size - 1))] = False
    several[-1] = False
    cut = int(np.argmax(several)) if several.any() else max(int(fraction * (path.size - 1)), 0)
    driven, actual = path[: cut + 1], path[cut + 1 :]
    prefix = driven.tolist()
    turns = forecaster.next_states(prefix)
    ends = forecaster.destinations(prefix)
    candidates = forecaster.routes(int(driven[-1]), int(path[-1]), _CANDIDATES * k, partial=prefix)
    routes = [(route.states, route.probability) for route in candidates]
    return ForecastExample(
        title,
        driven,
        actual,
        list(zip(turns.state.tolist(), turns.probability.tolist(), strict=True)),
        select_distinct(network, routes, k),
        ends.candidates,
        ends.probability[0],
        forecaster.intents(prefix)[0],
    )


def select_distinct(
    network: RoadNetwork, routes: Sequence[tuple[IntArray, float]], k: int
) -> list[tuple[IntArray, float]]:
    """Return the first k routes that share at most 80 % of their length with every route selected before.

    >>> ring = RoadNetwork.from_segments([0, 0, 0, 1], [0, 1, 9, 9], [0, 1, 1, 0, 2], [1, 2, 3, 2, 3])
    >>> routes = [(np.array(states), 0.3) for states in ([0, 1], [0, 1, 4], [0, 2], [3])]
    >>> [states.tolist() for states, _ in select_distinct(ring, routes, 3)]
    [[0, 1], [0, 2], [3]]
    """
    chosen: list[tuple[IntArray, float]] = []
    for states, probability in routes:
        length = float(network.length_m[states].sum())
        shared = (float(network.length_m[np.intersect1d(states, other)].sum()) for other, _ in chosen)
        if len(chosen) < k and all(part <= _SAME * length for part in shared):
            chosen.append((states, probability))
    return chosen


def forecast_section(view: DriversView) -> Section | None:
    """Return the section on example forecasts, or None if there are no examples."""
    if not view.forecasts:
        return None
    parts = [
        Section(example.title, _items(view.network, view.style_names, number, example))
        for number, example in enumerate(view.forecasts, start=1)
    ]
    return Section(
        "Forecasts",
        parts,
        lead="Trips are truncated, and the mixture forecasts the next turn, the route to the true destination, and the "
        f"destination. {_AVERAGE} Candidate destinations are the ends of the other trips."
        + ("" if view.trained is None else _TRAINED if view.trained else _HELD_OUT),
    )


def forecast_page(network: RoadNetwork, example: ForecastExample) -> Report:
    """Return the report on the forecast of one trip.

    The page contains personal data, since it shows the movements of one driver; do not publish it.

    >>> ring = RoadNetwork.from_segments([41.15, 41.16, 41.16], [-8.63, -8.63, -8.62], [0, 1, 2], [1, 2, 0])
    >>> example = ForecastExample("Trip 7", np.array([0]), np.array([1]), turns=[(1, 0.75)])
    >>> [table.name for table in forecast_page(ring, example).tables]
    ['turns-1']
    """
    names = [f"style {k}" for k in range(example.intents.size)]
    privacy = "This page shows past and predicted movements of a person. Do not share it."
    return Report(
        f"Forecast of {example.title[:1].lower()}{example.title[1:]}",
        _describe_forecast(network, names, example),
        [Section("Forecast", _items(network, names, 1, example), lead=_AVERAGE)],
        project=network.fingerprint(),
        methods=[Callout("note", "Privacy", privacy)],
    )


def _describe_forecast(network: RoadNetwork, names: Sequence[str], example: ForecastExample) -> str:
    """Return the most probable style, turn and route of a forecast in words."""
    parts = []
    if example.intents.size:
        k = int(example.intents.argmax())
        parts.append(f"The most probable style is {names[k]} ({format_percent(float(example.intents[k]))})")
    if example.turns:
        segment, probability = max(example.turns, key=lambda turn: turn[1])
        turn = describe_turn(network, int(example.driven[-1]), segment, example.title)
        parts.append(f"the most probable turn is {turn} ({format_percent(probability)})")
    if example.routes:
        path, probability = example.routes[0]
        km = f"{format_km(network, path)} long ({format_percent(probability)})"
        parts.append(f"the most probable route to the true destination is {km}")
    text = "; ".join(parts)
    return literal(f"{text[:1].upper()}{text[1:]}.") if parts else ""


def _items(network: RoadNetwork, names: Sequence[str], number: int, example: ForecastExample) -> list[Item]:
    items: list[Item] = []
    if example.intents.size:
        posterior = zip(names, example.intents, strict=True)
        parts = ", ".join(f"{literal(name)}: {format_percent(p)}" for name, p in posterior).replace(
            "style ", "style\u00a0"
        )
        items.append(Text(f"Posterior over styles after {format_km(network, example.driven)}: {parts}."))
    items.append(_forecast_map(network, number, example))
    if example.turns:
        items.append(_turn_table(network, number, example))
    if example.routes:
        items.append(_route_table(network, number, example))
    return items


def _forecast_map(network: RoadNetwork, number: int, example: ForecastExample) -> Map:
    whole = np.concatenate([example.driven, example.actual])
    line = path_points(network, whole)
    probable = example.probability >= _MIN_PROBABILITY
    ends = _midpoints(network, example.destinations[probable & (example.probability >= 0.02)])
    seen = np.concatenate([line, *(path_points(network, path) for path, _ in example.routes), ends])
    layers = [street_layer(network, segments_near(network, seen, 600.0, widest=WIDEST))]
    for rank, (path, probability) in enumerate(example.routes):
        # The most probable route is the widest and lowest, so that all routes are visible where they coincide.
        stroke = Stroke("", SERIES[_HUES[rank % len(_HUES)]], _WIDTHS[min(rank, len(_WIDTHS) - 1)], halo=rank == 0)
        layers.append(route_layer(network, path, f"Route {rank + 1}, {format_percent(probability, 1)}", stroke))
    if example.actual.size:
        rest = np.concatenate([example.driven[-1:], example.actual])
        layers.append(route_layer(network, rest, "Actual continuation", Stroke("", INK, 1.8, dashed=True)))
    layers.append(route_layer(network, example.driven, "Driven so far", Stroke("", INK, 4.0, halo=True)))
    if probable.any():
        layers.append(_destination_layer(network, example, probable))
    dots = [
        Stroke("start", INK, 11.0, 0.6, halo=True),
        Stroke("current position", SERIES[6], 16.0, halo=True),
        Stroke("true destination", INK, 18.0, halo=True),
    ]
    at = np.stack([line[0], path_points(network, example.driven)[-1], line[-1]])
    layers.append(Layer("Start, current position and destination", at, strokes=dots, stroke=[0, 1, 2], kind="points"))
    return Map(
        f"forecast-{number}",
        example.title,
        f"A trip of {format_km(network, whole)}, truncated after {format_km(network, example.driven)}, with "
        f"{len(example.routes)} forecast routes and {int(probable.sum())} possible destinations.",
        "Routes lead to the true destination; the forecasts of destinations do not use it.",
        with_landmarks(network, layers),
        attribution=network.attribution,
        view=pad_bounds(seen),
    )


def _destination_layer(network: RoadNetwork, example: ForecastExample, probable: BoolArray) -> Layer:
    strokes = [Stroke(label, SERIES[3], width, 0.85, halo=True) for _, width, label in _CLASSES]
    chance = example.probability[probable]
    codes = np.searchsorted([low for low, _, _ in _CLASSES], chance, side="right") - 1
    facts = {"": [f"destination with probability {format_percent(value, 1)}" for value in chance.tolist()]}
    at = _midpoints(network, example.destinations[probable])
    return Layer("Destinations", at, strokes=strokes, stroke=codes, facts=facts, kind="points")


def _midpoints(network: RoadNetwork, segments: ArrayLike) -> FloatArray:
    s = np.asarray(segments, dtype=np.int64)
    return np.asarray(node_points(network, np.stack([network.tail[s], network.head[s]])).mean(axis=0))


def describe_turn(network: RoadNetwork, here: int, target: int, trip: str = "") -> str:
    """Return the direction, angle and street of a turn as text; `trip` is named in the error if there is no such turn.

    >>> ring = RoadNetwork.from_segments([41.15, 41.16, 41.16], [-8.63, -8.63, -8.62], [0, 1, 2], [1, 2, 0])
    >>> describe_turn(ring, 0, 1)
    'right, 90°, into road'
    """
    own = np.arange(network.out_ptr[here], network.out_ptr[here + 1])
    turn = own[network.turn_to[own] == target]
    if not turn.size:
        where = f" in {trip}" if trip else ""
        raise InvalidParameter.of("target", target, f"must be a successor of segment {here}{where}")
    bend = float(network.turn_angle[turn[0]])
    side = "straight on" if abs(bend) <= STRAIGHT else "right" if bend > 0.0 else "left"
    label, name = class_label(network.class_names[network.road_class[target]]), network.street(target)
    return f"{side}, {abs(bend):.0f}°, into {f'{name} ({label})' if name else label}"


def _turn_table(network: RoadNetwork, number: int, example: ForecastExample) -> Table:
    here = int(example.driven[-1])
    taken = int(example.actual[0]) if example.actual.size else -1
    rows: list[list[Content]] = [
        [
            describe_turn(network, here, segment, example.title),
            Cell.percent(probability, 1),
            "yes" if segment == taken else "",
        ]
        for segment, probability in sorted(example.turns, key=lambda turn: -turn[1])
    ]
    columns: list[Column | str] = [Column("Turn", "left"), "Probability", Column("Actual turn", "left")]
    caption = "The remaining probability is the probability that the trip ends here."
    return Table(f"turns-{number}", "Next turn", caption, columns, rows)


def _route_table(network: RoadNetwork, number: int, example: ForecastExample) -> Table:
    truth = np.concatenate([example.driven[-1:], example.actual])
    length = network.length_m[truth].sum()
    rows: list[list[Content]] = []
    for rank, (path, probability) in enumerate(example.routes, start=1):
        shared = network.length_m[np.intersect1d(truth, path)].sum() / length
        rows.append(
            [
                f"route {rank}",
                Cell.percent(probability, 1),
                Cell(format_km(network, path), value=float(network.length_m[path].sum() / 1000.0)),
                Cell.percent(float(shared)),
            ]
        )
    columns: list[Column | str] = [Column("Route", "left"), "Probability", "Length", "Overlap"]
    caption = (
        "Overlap is the percentage of the actual continuation that is on the route. Routes that share more than "
        f"{100 * _SAME:.0f}\u00a0% of their length with a more probable route are omitted."
    )
    return Table(f"routes-{number}", "Most probable routes", caption, columns, rows)


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
            Section("Change in trips", [_change_map(closure)]),
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


def _change_map(closure: Closure) -> Map:
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
