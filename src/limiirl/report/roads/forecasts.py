"""Example trips with what was forecast of them: the next turn, the routes to the end, and where it may lead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl._typing import FloatArray
from limiirl.errors import InvalidParameter
from limiirl.report.document import Callout, Item, Report, Section, Text
from limiirl.report.maps import WIDEST, Layer, Map, Stroke
from limiirl.report.markup import literal
from limiirl.report.roads.layers import class_word, near, route, streets, way, window
from limiirl.report.roads.view import DriversView, ForecastExample
from limiirl.report.svg import INK, SERIES
from limiirl.report.tables import Cell, Column, Content, Table
from limiirl.roads import STRAIGHT, RoadNetwork

if TYPE_CHECKING:
    from limiirl.forecast import Forecaster


# Destinations less probable than this are not drawn, and classes of those that are.
_LEAST = 0.005
_CLASSES = ((0.0, 6.0, "under 2 %"), (0.02, 9.0, "2 to 10 %"), (0.1, 13.0, "10 to 30 %"), (0.3, 18.0, "over 30 %"))
# Colours of routes: not those of the first styles.
_HUES = (5, 4, 7, 0, 1)
_WIDTHS = (8.0, 5.0, 2.6)
_TRAINED = " The mixture was trained on these trips too, so that this is how well it fits, not how well it foresees."
_HELD_OUT = " The mixture was not trained on these trips."


def forecast_example(
    forecaster: Forecaster,
    network: RoadNetwork,
    states: ArrayLike,
    *,
    title: str,
    share: float = 0.5,
    k: int = 3,
    candidates: ArrayLike | None = None,
) -> ForecastExample:
    """Cut a trip where there is a choice, and forecast how it goes on.

    Parameters
    ----------
    forecaster : Forecaster
        Best one whose candidate destinations are of other trips: see `Forecaster.with_destinations`.
    network : RoadNetwork
    states : (n,)
        Segments of a whole trip, at least two; best one that the mixture was not trained on.
    title : str
    share : float
        The trip is cut at the first segment after this share of it from which several turns lead.
    k : int
        How many routes.
    candidates : (G,), optional
        Segments at which it may end; the forecaster's own where absent.
    """
    path = np.asarray(states, dtype=np.int64)
    several = np.diff(network.out_ptr)[path] > 1
    several[: int(share * (path.size - 1))] = False
    several[-1] = False
    cut = int(np.argmax(several)) if several.any() else max(int(share * (path.size - 1)), 0)
    driven, actual = path[: cut + 1], path[cut + 1 :]
    begun = driven.tolist()
    turns = forecaster.next_states(begun)
    ends = forecaster.destinations(begun, candidates)
    routes = forecaster.routes(int(driven[-1]), int(path[-1]), k, partial=begun)
    return ForecastExample(
        title,
        driven,
        actual,
        list(zip(turns.state.tolist(), turns.probability.tolist(), strict=True)),
        [(found.states, found.probability) for found in routes],
        ends.candidates,
        ends.probability[0],
        forecaster.intents(begun)[0],
    )


def forecast_section(view: DriversView) -> Section | None:
    """Return the section of example forecasts; None where the view has none."""
    if not view.forecasts:
        return None
    parts = [
        Section(found.title, _example(view.network, view.style_names, number, found))
        for number, found in enumerate(view.forecasts, start=1)
    ]
    return Section(
        "Forecasts",
        parts,
        lead="Trips cut somewhere, and what the mixture says from there: which way next, which route if the "
        "destination is known, and which destination if it is not. All are averaged over the styles, by how well each "
        "explains what was driven so far. The candidate destinations are the ends of the other trips, and this trip's "
        "own only where another ends there too."
        + ("" if view.trained is None else _TRAINED if view.trained else _HELD_OUT),
    )


def forecast_page(network: RoadNetwork, found: ForecastExample) -> Report:
    """Return the report of one trip that was cut, and what was forecast of it; it shows where a person went.

    Examples
    --------
    >>> ring = RoadNetwork.from_segments([41.15, 41.16, 41.16], [-8.63, -8.63, -8.62], [0, 1, 2], [1, 2, 0])
    >>> found = ForecastExample("Trip 7", np.array([0]), np.array([1]), turns=[(1, 0.75)])
    >>> [table.name for table in forecast_page(ring, found).tables]
    ['turns-1']
    """
    names = [f"style {k + 1}" for k in range(found.intents.size)]
    return Report(
        f"Forecast of {found.title[:1].lower()}{found.title[1:]}",
        "Which way next, which route if the destination is known, and which destination if it is not: averaged over "
        "the styles, by how well each explains what was driven so far.",
        [Section("Forecast", _example(network, names, 1, found))],
        methods=[
            Callout(
                "note",
                "This is somebody's trip",
                "It tells where a person was and may be going. Show it to nobody else.",
            )
        ],
    )


def _example(network: RoadNetwork, names: Sequence[str], number: int, found: ForecastExample) -> list[Item]:
    items: list[Item] = []
    if found.intents.size:
        shares = ", ".join(f"{literal(name)} ({value:.0%})" for name, value in zip(names, found.intents, strict=True))
        items.append(Text(f"After {network.length_m[found.driven].sum() / 1000.0:.1f} km the driver is, "
                          f"with these probabilities: {shares}.".replace("%", "\u00a0%")))  # fmt: skip
    items.append(_map(network, number, found))
    if found.turns:
        items.append(_turn_table(network, number, found))
    if found.routes:
        items.append(_route_table(network, number, found))
    return items


def _map(network: RoadNetwork, number: int, found: ForecastExample) -> Map:
    whole = np.concatenate([found.driven, found.actual])
    drawn = [way(network, whole), *(way(network, path) for path, _ in found.routes)]
    probable = found.probability >= _LEAST
    seen = np.concatenate([*drawn, _middles(network, found.destinations[probable & (found.probability >= 0.02)])])
    layers = [streets(network, near(network, seen, 600.0, widest=WIDEST))]
    for place, (path, probability) in enumerate(found.routes):
        # The likeliest is the widest and lies below, so that all are seen where they go the same way.
        stroke = Stroke("", SERIES[_HUES[place % len(_HUES)]], _WIDTHS[min(place, len(_WIDTHS) - 1)], halo=place == 0)
        layers.append(route(network, path, f"Route {place + 1}, {probability:.1%}", stroke, length=_km(network, path)))
    if found.actual.size:
        rest = np.concatenate([found.driven[-1:], found.actual])
        layers.append(
            route(network, rest, "How it went on", Stroke("", INK, 1.8, dashed=True), length=_km(network, rest))
        )
    layers.append(
        route(
            network, found.driven, "Driven so far", Stroke("", INK, 4.0, halo=True), length=_km(network, found.driven)
        )
    )
    if probable.any():
        layers.append(_destinations(network, found, probable))
    line = way(network, whole)
    dots = [
        Stroke("start", INK, 8.0, 0.6, halo=True),
        Stroke("now", SERIES[6], 13.0, halo=True),
        Stroke("true end", INK, 12.0, halo=True),
    ]
    at = np.stack([line[0], way(network, found.driven)[-1], line[-1]])
    layers.append(Layer("Start, now and end", at, strokes=dots, stroke=[0, 1, 2], kind="points"))
    return Map(
        f"forecast-{number}",
        found.title,
        f"A trip of {_km(network, whole)}, of which {_km(network, found.driven)} are driven, with {len(found.routes)} "
        f"forecast routes and {int(probable.sum())} possible destinations.",
        "Routes lead from now to the true end; destinations are forecast without knowing it.",
        layers,
        attribution=network.attribution,
        view=window(seen),
    )  # fmt: skip


def _destinations(network: RoadNetwork, found: ForecastExample, probable: NDArray[np.bool_]) -> Layer:
    strokes = [Stroke(label, SERIES[3], width, 0.85, halo=True) for _, width, label in _CLASSES]
    chance = found.probability[probable]
    codes = np.searchsorted([low for low, _, _ in _CLASSES], chance, side="right") - 1
    facts = {"": [f"{value:.1%} that it ends here" for value in chance.tolist()]}
    at = _middles(network, found.destinations[probable])
    return Layer("Destinations", at, strokes=strokes, stroke=codes, facts=facts, kind="points", shown=True)


def _middles(network: RoadNetwork, segments: ArrayLike) -> FloatArray:
    s = np.asarray(segments, dtype=np.int64)
    nodes = np.stack([network.tail[s], network.head[s]])
    return np.stack([network.lat[nodes].mean(axis=0), network.lon[nodes].mean(axis=0)], axis=1)


def _km(network: RoadNetwork, states: ArrayLike) -> str:
    return f"{network.length_m[np.asarray(states, dtype=np.int64)].sum() / 1000.0:.1f} km"


def turn_words(network: RoadNetwork, here: int, onward: int, trip: str = "") -> str:
    """Return a turn from one segment into the next in words: where it bends, and into which street.

    `trip` is named where there is no such turn.

    Examples
    --------
    >>> ring = RoadNetwork.from_segments([41.15, 41.16, 41.16], [-8.63, -8.63, -8.62], [0, 1, 2], [1, 2, 0])
    >>> turn_words(ring, 0, 1)
    'right, 90°, into road'
    """
    own = np.arange(network.out_ptr[here], network.out_ptr[here + 1])
    turn = own[network.turn_to[own] == onward]
    if not turn.size:
        whose = f"{trip}: no" if trip else "No"
        raise InvalidParameter(
            f"{whose} turn leads from segment {here} to {onward}. Leave it out.", parameter="onward", value=onward
        )
    bend = float(network.turn_angle[turn[0]])
    side = "straight on" if abs(bend) <= STRAIGHT else "right" if bend > 0.0 else "left"
    word, name = class_word(network.class_names[network.road_class[onward]]), network.street(onward)
    return f"{side}, {abs(bend):.0f}°, into {f'{name} ({word})' if name else word}"


def _turn_table(network: RoadNetwork, number: int, found: ForecastExample) -> Table:
    rows: list[list[Content]] = []
    here = int(found.driven[-1])
    taken = int(found.actual[0]) if found.actual.size else -1
    for segment, probability in sorted(found.turns, key=lambda turn: -turn[1]):
        rows.append(
            [
                turn_words(network, here, segment, found.title),
                Cell(f"{probability:.1%}", value=probability),
                "yes" if segment == taken else "",
            ]
        )
    columns: list[Column | str] = [Column("Turn", "left"), "Probability", Column("Taken", "left")]
    return Table(
        f"turns-{number}", "The next turn", "What is missing to 100 % is that the trip ends here.", columns, rows
    )


def _route_table(network: RoadNetwork, number: int, found: ForecastExample) -> Table:
    truth = np.concatenate([found.driven[-1:], found.actual])
    length = network.length_m[truth].sum()
    rows: list[list[Content]] = []
    for place, (path, probability) in enumerate(found.routes, start=1):
        shared = network.length_m[np.intersect1d(truth, path)].sum() / length
        rows.append(
            [
                f"route {place}",
                Cell(f"{probability:.1%}", value=probability),
                Cell(_km(network, path), value=float(network.length_m[path].sum() / 1000.0)),
                Cell(f"{shared:.0%}", value=float(shared)),
            ]
        )
    columns: list[Column | str] = [Column("Route", "left"), "Probability", "Length", "Shared"]
    return Table(
        f"routes-{number}",
        "The most probable routes",
        "Shared is how much of what was driven is on the route.",
        columns,
        rows,
    )
