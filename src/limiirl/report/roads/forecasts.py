"""Forecasts for example trips: the next turn, routes to the destination, and possible destinations."""

from __future__ import annotations

from collections.abc import Sequence
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
    format_km,
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
from limiirl.roads import STRAIGHT, RoadNetwork

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
    items.append(_map(network, number, example))
    if example.turns:
        items.append(_turn_table(network, number, example))
    if example.routes:
        items.append(_route_table(network, number, example))
    return items


def _map(network: RoadNetwork, number: int, example: ForecastExample) -> Map:
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
