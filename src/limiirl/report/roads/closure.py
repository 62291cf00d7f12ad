"""The page of a closure: a map of where trips become more and fewer, the streets, and who is cut off."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from limiirl._typing import BoolArray, FloatArray, IntArray
from limiirl.report.document import Callout, Item, Report, Section, Text
from limiirl.report.maps import WIDEST, Layer, Map, Stroke
from limiirl.report.markup import literal
from limiirl.report.roads.layers import chains, class_word, flow_layers, near, streets, way, window
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

_MORE, _LESS, _SHUT = SERIES[1], SERIES[0], SERIES[6]
# Where classes of a change begin, as shares of the largest, and how wide they are drawn.
_STEPS = ((0.02, 1.6, 0.6), (0.1, 2.8, 0.75), (0.25, 4.2, 0.9), (0.5, 6.0, 1.0))
# What changes at least by this share of the largest change is in the window at first.
_SEEN = 0.1
_GROUP = "trips"
_ROWS = 12


def change_page(closure: Closure, *, title: str = "") -> Report:
    """Return the report of a closure; single trips are not drawn.

    Parameters
    ----------
    closure : Closure
        Of `limiirl.roads.close_streets`.
    title : str
        By default the street's name is in it.

    Examples
    --------
    >>> from limiirl import DestinationMaxEnt, IntentMixture
    >>> from limiirl.forecast import Forecaster
    >>> from limiirl.roads import City, close_streets
    >>> city = City(seed=1, radius_km=0.8)
    >>> demos = city.drive(n_drivers=12, trips_each=2).demos
    >>> mix = IntentMixture(1, DestinationMaxEnt(), random_state=0).fit(city.mdp, demos)
    >>> closure = close_streets(city.network, Forecaster(mix), demos, [int(np.argmax(np.bincount(demos.states)))])
    >>> [section.title for section in change_page(closure).sections]
    ['Where trips go instead', 'Streets']
    """
    network = closure.network
    street = (list_street_names(network, closure.closed) or [describe_street(network, int(closure.closed[0]))])[0]
    gains, losses = closure.gains(_ROWS), closure.losses(_ROWS)
    tables: list[Item] = [
        _table(closure, name, f"Streets with {name} trips", found)
        for name, found in (("more", gains), ("fewer", losses))
        if found
    ]
    said = [describe_passages(closure), describe_detour(closure), describe_cut_off(closure)]
    return Report(
        title or f"What if {street} is closed?",
        literal(f"Closed: {describe_closed(closure)}. " + " ".join(filter(None, said))).replace("%", "\u00a0%"),
        [
            Section("Where trips go instead", [_map(closure)]),
            Section(
                "Streets",
                tables or [Text("None that may be shown.")],
                lead="Expected trips, both directions together, where each street changes most.",
            ),
        ],
        methods=[
            Text(
                f"The demand is where {len(closure.demos):,} matched trips begin and end, and does not change. Before "
                "and after are both expected: what the styles would drive between these places, with the street and "
                "without it, each style in its share. A detour is the mean over all ways around, not the shortest one. "
                "Traffic does not slow down where trips become more."
            ),
            Callout(
                "note",
                "Trips are people's",
                f"Numbers behind which fewer than {closure.least} {closure.counted} stand are hidden: those who passed "
                "a street before the closure; and after it those who still would, and those whose likeliest way around "
                "leads there. Single trips are not drawn.",
            ),
        ],
        highlights=_highlights(closure),
    )


def _highlights(closure: Closure) -> dict[str, object]:
    found: dict[str, object] = {"trips": f"{len(closure.demos):,}"}
    few = f"under {closure.least} {closure.counted}"
    found["passed it"] = few if closure.hidden else f"{closure.passed.size:,}"
    if closure.detour_m is not None:
        found["m of detour"] = f"{closure.detour_m:,.0f}"
    if closure.detour_s is not None:
        found["minutes longer"] = f"{closure.detour_s / 60.0:.1f}"
    found["cut off"] = few if closure.few(closure.cut_off) else f"{closure.cut_off.size:,}"
    return found


def _map(closure: Closure) -> Map:
    network = closure.network
    before, after = (
        np.where(seen, flow, np.nan) for seen, flow in zip(closure.shown, (closure.before, closure.after), strict=True)
    )
    hidden = f"under {closure.least} {closure.counted}"
    change, drawn = _changes(closure)
    most = float(np.abs(change[drawn]).max(initial=0.0))
    layers = []
    if most > 0.0:
        layers.append(_change_layer(closure, change, drawn, most, hidden))
    flows = flow_layers(network, [before, after], ["before", "after"], hidden=hidden, group=_GROUP)[1:]
    for layer, title in zip(flows, ("Trips before", "Trips after"), strict=True):
        # After it, little can be said that would not tell of the few who came to the closure.
        if title == "Trips before" or not closure.hidden:
            layers.append(replace(layer, title=title))
    ends = np.concatenate([way(network, [s]) for s in closure.closed.tolist()])
    seen = drawn & (np.abs(change) >= _SEEN * most)
    rows = np.flatnonzero(seen)
    points = np.concatenate([ends, *([_ends(closure, rows)] if rows.size else [_around(closure)])])
    layers += _closed_layers(closure)
    return Map(
        "change",
        "Where trips become more and fewer",
        f"A map of {int(drawn.sum()):,} streets on which trips become more or fewer when "
        f"{describe_street(network, int(closure.closed[0]))} is closed.",
        "Orange streets have more trips, blue ones fewer, wide ones many; red is what is closed. Choose the trips "
        f"before or after instead of the change. Streets with {hidden} are left out.",
        [streets(network, near(network, points, 800.0, widest=WIDEST)), *layers],
        attribution=network.attribution,
        view=window(points),
    )


def _changes(closure: Closure) -> tuple[FloatArray, BoolArray]:
    """Return the change (S,) of each street, and which are drawn: those that may be shown on either side."""
    before, after = closure.streets
    change = after - before
    shown = np.logical_or(*closure.shown) & (not closure.hidden)
    shown &= ~closure.shut
    most = float(np.abs(change[shown]).max(initial=0.0))
    return change, shown & (np.abs(change) >= max(_STEPS[0][0] * most, 1e-9))


def _change_layer(closure: Closure, change: FloatArray, drawn: BoolArray, most: float, hidden: str) -> Layer:
    network, codes = closure.network, np.full(change.size, -1, dtype=np.int64)
    bounds = np.array([share for share, _, _ in _STEPS]) * most
    size = np.clip(np.searchsorted(bounds, np.abs(change), side="right") - 1, 0, len(_STEPS) - 1)
    # Blue below, orange on top, the widest last.
    codes[drawn] = np.where(change > 0.0, size + len(_STEPS), size)[drawn]
    strokes = []
    for colour, word in ((_LESS, "fewer"), (_MORE, "more")):
        for step, (_, width, strength) in enumerate(_STEPS):
            above = bounds[step + 1] if step + 1 < len(_STEPS) else most
            label = f"{bounds[step]:.2g} to {above:.2g} trips {word}"
            strokes.append(Stroke(label, colour, width, strength))
    apart = max(most / 100.0, 1e-12)
    masks = closure.drivers_before, closure.drivers_after
    lines = chains(
        network, [codes, np.rint(change / apart), network.street_of, *(mask.hidden for mask in masks)], drawn
    )
    s = lines.first
    numbers = {}
    for title, flow, mask in zip(("before", "after"), closure.streets, masks, strict=True):
        numbers[title] = [
            hidden if few else f"{value:,.3g} trips"
            for value, few in zip(flow[s].tolist(), mask.hidden[s].tolist(), strict=True)
        ]
    facts: dict[str, list[object]] = {
        "": [network.street(i) or class_word(network.class_names[network.road_class[i]]) for i in s.tolist()],
        **{title: list(values) for title, values in numbers.items()},
    }
    return Layer("Change", lines.points, lines.offsets, strokes=strokes, stroke=codes[s], facts=facts, group=_GROUP)


def _closed_layers(closure: Closure) -> list[Layer]:
    network = closure.network
    lines = [way(network, [s]) for s in closure.closed.tolist()]
    names = [describe_street(network, s) for s in closure.closed.tolist()]
    closed = Layer.of_lines("Closed", lines, strokes=[Stroke("closed", _SHUT, 7.0, halo=True)], facts={"closed": names})
    # At the scale of a city a segment is not seen; a dot is.
    middle = np.mean([line.mean(axis=0) for line in lines], axis=0)
    nearest = lines[int(np.argmin([np.abs(line.mean(axis=0) - middle).sum() for line in lines]))].mean(axis=0)
    dot = Layer("Where it is", [nearest], strokes=[Stroke("", _SHUT, 13.0, halo=True)], kind="points")
    return [closed, dot]


def _ends(closure: Closure, segments: IntArray) -> FloatArray:
    nodes = np.concatenate([closure.network.tail[segments], closure.network.head[segments]])
    return np.stack([closure.network.lat[nodes], closure.network.lon[nodes]], axis=1)


def _around(closure: Closure, metres: float = 1000.0) -> FloatArray:
    """Return two corners about what is closed, for a map on which nothing else is to be seen."""
    ends = _ends(closure, closure.closed)
    xy = closure.network.plane.xy(ends[:, 0], ends[:, 1])
    return closure.network.plane.degrees(np.stack([xy.min(axis=0) - metres, xy.max(axis=0) + metres]))


def _table(closure: Closure, name: str, title: str, found: list[StreetChange]) -> Table:
    rows: list[list[Content]] = [
        [
            describe_changed_street(closure.network, row),
            format_place(closure.network, row.segment),
            *(Cell("few" if value is None else f"{value:,.1f}", value=value) for value in (row.before, row.after)),
            Cell("–" if row.change is None else f"{row.change:+,.1f}".replace("-", "\u2212"), value=row.change),
            Cell.number(row.km, 1),
        ]
        for row in found
    ]
    columns: list[Column | str] = [
        Column("Street", "left"),
        Column("Near", "left"),
        "Before",
        "After",
        "Change",
        "km",
    ]
    caption = "km is how much of the street changes at least half as much. What is closed is left out."
    return Table(name, title, caption, columns, rows)
