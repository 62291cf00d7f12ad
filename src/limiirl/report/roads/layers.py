"""Layers of road maps: streets, routes and flows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl._typing import BoolArray, FloatArray, IntArray
from limiirl.report.maps import Bounds, Layer, Stroke
from limiirl.report.svg import INK, MUTED, SERIES
from limiirl.roads import PLACES, RoadNetwork

# Importance of a road class by its name in OpenStreetMap; links have the importance of their road.
_RANKS = {"motorway": 5, "trunk": 5, "primary": 4, "secondary": 3, "tertiary": 2, "avenue": 4, "arterial": 4, "ring": 5}
# Width, strength and largest scale (metres per pixel) of background streets, by rank.
_BACKGROUND = (
    (0.8, 0.3, 45.0),
    (0.8, 0.3, 45.0),
    (1.2, 0.38, 90.0),
    (1.5, 0.42, 0.0),
    (2.0, 0.48, 0.0),
    (2.8, 0.5, 0.0),
)
# Padding of a view as a fraction of its size: room for the scale and the attribution in the corners.
_PADDING = 0.08
# Lower bound as a fraction of the largest flow, width and strength of each flow class.
_FLOW = ((0.0, 1.0, 0.45), (0.02, 1.7, 0.6), (0.06, 2.6, 0.7), (0.15, 3.8, 0.8), (0.35, 5.2, 0.9), (0.65, 7.0, 1.0))


@dataclass(frozen=True)
class StreetLines:
    """Lines along consecutive segments, with the segments of each line.

    `points` (n, 2) are latitudes and longitudes; line i has the points ``offsets[i]:offsets[i + 1]``. `segments`
    (n - m,) has one segment per pair of consecutive points; for a two-way street, the lower of the two indices.
    """

    points: FloatArray
    offsets: IntArray
    segments: IntArray

    @property
    def n_lines(self) -> int:
        """Number m of lines."""
        return int(self.offsets.size - 1)

    @property
    def starts(self) -> IntArray:
        """First index into `segments` of each line (m,)."""
        return self.offsets[:-1] - np.arange(self.n_lines)

    @property
    def first(self) -> IntArray:
        """First segment (m,) of each line."""
        return self.segments[self.starts]

    def sum_along(self, values: ArrayLike) -> FloatArray:
        """Return the sums (m,) of values (S,) along the lines."""
        chosen = np.asarray(values, dtype=np.float64)[self.segments]
        return np.add.reduceat(chosen, self.starts) if self.n_lines else np.empty(0)


def join_segments(network: RoadNetwork, keys: Sequence[ArrayLike] = (), within: ArrayLike | None = None) -> StreetLines:
    """Join segments into lines that end at intersections and where one of the keys (S,) changes.

    `within` (S,) is a mask of segments; a street is included if one of its directions is selected.

    >>> bend = RoadNetwork.from_segments([41.15, 41.16, 41.16], [-8.63, -8.63, -8.62], [0, 1, 1, 2], [1, 2, 0, 1])
    >>> join_segments(bend).points.tolist()
    [[41.15, -8.63], [41.16, -8.63], [41.16, -8.62]]
    """
    chosen = np.ones(network.n_segments, dtype=bool) if within is None else np.asarray(within, dtype=bool)
    other = network.opposite
    twin = np.where(other >= 0, other, np.arange(network.n_segments))
    streets = np.flatnonzero((chosen | chosen[twin]) & (np.arange(network.n_segments) <= twin))
    tail, head = network.tail[streets].astype(np.int64), network.head[streets].astype(np.int64)
    following = _find_following(network.n_nodes, tail, head, [np.asarray(key)[streets] for key in keys])
    nodes, lengths, order = _trace_lines(tail.tolist(), head.tolist(), following.tolist())
    points = np.stack([network.lat[nodes], network.lon[nodes]], axis=1) if nodes else np.empty((0, 2))
    return StreetLines(
        points, np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]), streets[np.array(order, np.int64)]
    )


def _find_following(n_nodes: int, tail: IntArray, head: IntArray, keys: list[NDArray[np.generic]]) -> IntArray:
    """Return the street (n, 2) that continues each street at its tail and at its head; -1 where a line ends."""
    n = tail.size
    ends = np.concatenate([tail, head])
    degree = np.bincount(ends, minlength=n_nodes)
    order = np.argsort(ends, kind="stable")
    pairs = order[degree[ends[order]] == 2].reshape(-1, 2)
    alike = pairs[:, 0] % n != pairs[:, 1] % n if n else np.empty(0, dtype=bool)
    for key in keys:
        a, b = key[pairs[:, 0] % n], key[pairs[:, 1] % n]
        # Unknown values (NaN) are treated as equal.
        alike &= (a == b) | ((a != a) & (b != b))
    following = np.full(2 * n, -1, dtype=np.int64)
    for one, two in ((0, 1), (1, 0)):
        following[pairs[alike, one]] = pairs[alike, two] % n
    return following.reshape(2, n).T


def _trace_lines(
    tail: list[int], head: list[int], following: list[list[int]]
) -> tuple[list[int], list[int], list[int]]:
    """Return the nodes and the number of points of each line, and the streets in order; closed rings come last."""
    nodes: list[int] = []
    lengths: list[int] = []
    order: list[int] = []
    done = [False] * len(tail)
    ends = [i for i in range(len(tail)) if min(following[i]) < 0]
    for first in [*ends, *range(len(tail))]:
        if done[first]:
            continue
        ring = min(following[first]) >= 0
        at, street = (tail[first] if ring or following[first][0] < 0 else head[first]), first
        n_before = len(nodes)
        nodes.append(at)
        while street >= 0 and not done[street]:
            done[street] = True
            order.append(street)
            forward = tail[street] == at
            at = head[street] if forward else tail[street]
            nodes.append(at)
            street = following[street][1 if forward else 0]
        lengths.append(len(nodes) - n_before)
    return nodes, lengths, order


def class_rank(class_name: str) -> int:
    """Return the rank of a road class, from 1 (local street) to 5 (motorway)."""
    return _RANKS.get(class_name.removesuffix("_link"), 1)


def segment_ranks(network: RoadNetwork) -> IntArray:
    """Return the rank (S,) of the road class of each segment."""
    return np.array([class_rank(name) for name in network.class_names], dtype=np.int64)[network.road_class]


def class_label(name: str) -> str:
    """Return the name of a road class for display."""
    return name.replace("_", " ")


def segments_near(network: RoadNetwork, points: ArrayLike, margin_m: float, *, widest: float = 1.0) -> BoolArray:
    """Return a mask (S,) of the segments in the bounding box of points (n, 2) in degrees, plus a margin.

    If `widest` > 1, the box is extended to cover maps with aspect ratios between 1 and `widest`.

    >>> pair = RoadNetwork.from_segments([41.15, 41.16, 41.3], [-8.63, -8.63, -8.63], [0, 1], [1, 2])
    >>> segments_near(pair, [[41.15, -8.63]], 250.0).tolist()
    [True, False]
    """
    given = np.asarray(points, dtype=np.float64).reshape(-1, 2)
    xy = network.plane.xy(given[:, 0], given[:, 1])
    low, high = xy.min(axis=0) - margin_m, xy.max(axis=0) + margin_m
    middle, half = 0.5 * (low + high), 0.5 * (high - low)
    if widest > 1.0:
        half = np.array([max(half[0], widest * half[1]), max(half[1], half[0])])
    low, high = middle - half, middle + half
    a, b = network.node_xy[network.tail], network.node_xy[network.head]
    return np.asarray(((np.minimum(a, b) <= high) & (np.maximum(a, b) >= low)).all(axis=1))


def pad_bounds(points: ArrayLike) -> Bounds:
    """Return the south-west and north-east corners of points (n, 2), with padding."""
    given = np.asarray(points, dtype=np.float64).reshape(-1, 2)
    low, high = given.min(axis=0), given.max(axis=0)
    room = _PADDING * (high - low)
    (south, west), (north, east) = (low - room).round(6).tolist(), (high + room).round(6).tolist()
    return (south, west), (north, east)


def street_facts(network: RoadNetwork, lines: StreetLines) -> dict[str, list[object]]:
    """Return the name, class, lanes, speed limit, length and direction of each line.

    The title is the name of the street, or its class if it has no name.
    """
    s = lines.first
    both = network.opposite[s] >= 0
    classes = [class_label(network.class_names[c]) for c in network.road_class[s].tolist()]
    names = _list_names(network, lines)
    return {
        "": [name or label for name, label in zip(names, classes, strict=True)],
        "class": [label if name else "" for name, label in zip(names, classes, strict=True)],
        "lanes": [f"{value:g}" if np.isfinite(value) else "unknown" for value in network.lanes[s].tolist()],
        "speed limit": [
            f"{value:g} km/h" if np.isfinite(value) else "unknown" for value in network.speed_kmh[s].tolist()
        ],
        "length": [f"{value:,.0f} m" for value in lines.sum_along(network.length_m).tolist()],
        "direction": ["two-way" if two else "one-way" for two in both.tolist()],
    }


def _list_names(network: RoadNetwork, lines: StreetLines) -> list[str]:
    return [network.street_names[i] for i in network.street_of[lines.first].tolist()]


def join_uniform_segments(network: RoadNetwork, *more: ArrayLike, within: ArrayLike | None = None) -> StreetLines:
    """Join segments into lines with constant `street_facts` and constant further keys (S,)."""
    both = network.opposite >= 0
    keys = [network.road_class, network.street_of, network.lanes, network.speed_kmh, both, *more]
    return join_segments(network, keys, within)


def street_layer(network: RoadNetwork, within: ArrayLike | None = None) -> Layer:
    """Return the background layer of streets in grey, with stronger lines for important roads."""
    lines = join_uniform_segments(network, within=within)
    strokes = [Stroke("", MUTED, width, strength, detail) for width, strength, detail in _BACKGROUND]
    codes, facts = segment_ranks(network)[lines.first], street_facts(network, lines)
    return Layer("Streets", lines.points, lines.offsets, strokes=strokes, stroke=codes, facts=facts)


def with_landmarks(network: RoadNetwork, layers: Sequence[Layer]) -> list[Layer]:
    """Return layers with water below them and place names on top, if the map has landmarks."""
    return [*_water_layers(network), *layers, *_label_layers(network)]


def _water_layers(network: RoadNetwork) -> list[Layer]:
    """Return the layers of rivers and lakes, which are drawn below the streets; [] if the map has none."""
    lines = [np.array(line) for line in network.landmarks["water"]]
    closed = [bool((line[0] == line[-1]).all()) and len(line) > 3 for line in lines]
    layers = []
    for kind, title, width in (("areas", "Lakes", 1.0), ("lines", "Rivers", 5.0)):
        chosen = [line for line, is_closed in zip(lines, closed, strict=True) if is_closed == (kind == "areas")]
        if chosen:
            layers.append(Layer.of_lines(title, chosen, strokes=[Stroke("", SERIES[5], width, 0.3)], kind=kind))
    return layers


def _label_layers(network: RoadNetwork) -> list[Layer]:
    """Return the layer of place names, which is drawn on top, with large places first; [] if the map has none."""
    places = sorted(network.landmarks["places"], key=lambda place: PLACES.index(place[1]) if place[1] in PLACES else 99)
    if not places:
        return []
    # Names of quarters and hamlets are shown at large scales only.
    strokes = [Stroke("", INK, 13.0, 0.85), Stroke("", INK, 11.0, 0.7, detail=12.0)]
    codes = [int(kind not in PLACES[:3]) for _, kind, _, _ in places]
    at = [[lat, lon] for _, _, lat, lon in places]
    facts = {"": [name for name, *_ in places]}
    return [Layer("Places", at, strokes=strokes, stroke=codes, facts=facts, kind="labels")]


def path_points(network: RoadNetwork, states: ArrayLike) -> FloatArray:
    """Return the line (k + 1, 2) in degrees along k consecutive segments."""
    path = np.asarray(states, dtype=np.int64)
    return node_points(network, np.concatenate([network.tail[path[:1]], network.head[path]]))


def node_points(network: RoadNetwork, nodes: NDArray[np.integer]) -> FloatArray:
    """Return latitudes and longitudes (..., 2) of nodes."""
    return np.stack([network.lat[nodes], network.lon[nodes]], axis=-1)


def route_layer(network: RoadNetwork, states: ArrayLike, title: str, stroke: Stroke) -> Layer:
    """Return the layer of one route."""
    return Layer.of_lines(
        title, [path_points(network, states)], strokes=[stroke], facts={"length": [format_km(network, states)]}
    )


def format_km(network: RoadNetwork, states: ArrayLike) -> str:
    """Return the length of a path in km as text."""
    return f"{network.length_m[np.asarray(states, dtype=np.int64)].sum() / 1000.0:.1f} km"


def flow_layers(
    network: RoadNetwork, flows: ArrayLike, names: Sequence[str], *, hidden: str = "not shown", group: str = "flows"
) -> list[Layer]:
    """Return a layer of the dominant intent per street, and one layer of flows per intent.

    `flows` (K, S) is the number of trips per intent and segment, with NaN in both directions of hidden streets, which
    are labelled `hidden`. The two directions of a street are summed. One layer of the group is visible at a time.
    """
    counts = np.asarray(flows, dtype=np.float64)
    back = network.opposite
    both = counts + np.where(back >= 0, counts[:, np.maximum(back, 0)], 0.0)
    shown = ~np.isnan(both)
    streets = np.where(shown, both, 0.0)
    # Round to 1/200 of the largest flow, so that neighbouring segments can be joined.
    step = max(float(streets.max(initial=0.0)) / 200.0, 1e-12)
    keys = [network.street_of, *(np.rint(row / step) for row in streets), *shown]
    lines = join_segments(network, keys, streets.sum(axis=0) > 0.0)
    flow = streets[:, lines.first]
    named = len(network.street_names) > 1
    facts: dict[str, list[str]] = {"street": _list_names(network, lines)} if named else {}
    facts |= {
        name: [f"{value:,.3g} trips" if visible else hidden for value, visible in zip(row, mask, strict=True)]
        for name, row, mask in zip(names, flow.tolist(), shown[:, lines.first].tolist(), strict=True)
    }

    def layer(title: str, strokes: list[Stroke], codes: IntArray) -> Layer:
        return Layer(title, lines.points, lines.offsets, strokes=strokes, stroke=codes, facts=facts, group=group)

    layers = [layer("Dominant style", *_dominant_styles(flow, np.nansum(counts, axis=1), names))]
    for k, row in enumerate(flow):
        classes, strokes = _flow_classes(row, SERIES[k % len(SERIES)])
        layers.append(layer(f"Trips of {names[k]}", strokes, np.where(row > 0.0, classes, -1)))
    return layers


def _flow_classes(row: FloatArray, colour: str) -> tuple[IntArray, list[Stroke]]:
    most = float(row.max(initial=0.0))
    edges = np.array([part for part, _, _ in _FLOW]) * most
    strokes = []
    for step, (_, width, strength) in enumerate(_FLOW):
        above = edges[step + 1] if step + 1 < len(edges) else most
        label = f"{edges[step]:.2g} to {above:.2g} trips" if step else f"up to {above:.2g} trips"
        strokes.append(Stroke(label, colour, width, strength, halo=False))
    return np.clip(np.searchsorted(edges, row, side="right") - 1, 0, len(strokes) - 1), strokes


def _dominant_styles(flow: FloatArray, n_trips: FloatArray, names: Sequence[str]) -> tuple[list[Stroke], IntArray]:
    """Return one stroke per intent and, for each street, the intent with the largest fraction of its trips there."""
    rate = flow / np.maximum(n_trips, 1e-300)[:, None]
    fraction = rate / np.maximum(rate.sum(axis=0), 1e-300)
    leader = fraction.argmax(axis=0)
    # A style is dominant if its fraction is about 1.5 times that of an equal split.
    clear = fraction.max(axis=0, initial=0.0) >= 1.5 / (len(names) + 0.5)
    total = flow.sum(axis=0)
    wide = np.searchsorted(np.array([0.05, 0.3]) * float(total.max(initial=0.0)), total, side="right")
    strokes = []
    # The legend lists strokes from the last to the first.
    for k in range(len(names), -1, -1):
        colour = SERIES[k % len(SERIES)] if k < len(names) else MUTED
        label = f"mostly {names[k]}" if k < len(names) else "no dominant style"
        strokes += [Stroke(label if width > 4.0 else "", colour, width, 0.9) for width in (1.3, 2.8, 4.6)]
    return strokes, 3 * np.where(clear, len(names) - leader, 0) + wide
