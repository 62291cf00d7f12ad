"""Layers of road maps: streets as few long lines, routes, places along them, and flows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl._typing import FloatArray, IntArray
from limiirl.errors import InvalidParameter
from limiirl.report.maps import Layer, Stroke
from limiirl.report.svg import MUTED, SERIES
from limiirl.roads import RoadNetwork


@dataclass(frozen=True)
class Chains:
    """Lines along streets, and the segments of each.

    Attributes
    ----------
    points : (n, 2)
        Latitudes and longitudes.
    offsets : (m + 1,)
        Chain i has the points ``offsets[i]:offsets[i + 1]``.
    segments : (n - m,)
        One segment a step; of a street driven both ways, the lower number.
    """

    points: FloatArray
    offsets: IntArray
    segments: IntArray

    @property
    def n_chains(self) -> int:
        """Number m of lines."""
        return int(self.offsets.size - 1)

    @property
    def starts(self) -> IntArray:
        """Where in `segments` each chain begins (m,)."""
        return self.offsets[:-1] - np.arange(self.n_chains)

    @property
    def first(self) -> IntArray:
        """A segment (m,) of each chain: what all of a chain share is read there."""
        return self.segments[self.starts]

    def total(self, values: ArrayLike) -> FloatArray:
        """Return the sums (m,) of values (S,) along each chain."""
        chosen = np.asarray(values, dtype=np.float64)[self.segments]
        return np.add.reduceat(chosen, self.starts) if self.n_chains else np.empty(0)


def chains(network: RoadNetwork, keys: Sequence[ArrayLike] = (), within: ArrayLike | None = None) -> Chains:
    """Join segments into lines that end only at crossings, or where one of the keys changes.

    Parameters
    ----------
    network : RoadNetwork
    keys : sequence of (S,)
        What must be equal along a line.
    within : (S,) bool, optional
        Which segments to draw; all by default. A street is drawn if one of its directions is.

    Examples
    --------
    >>> bend = RoadNetwork.from_segments([41.15, 41.16, 41.16], [-8.63, -8.63, -8.62], [0, 1, 1, 2], [1, 2, 0, 1])
    >>> chains(bend).points.tolist()
    [[41.15, -8.63], [41.16, -8.63], [41.16, -8.62]]
    """
    chosen = np.ones(network.n_segments, dtype=bool) if within is None else np.asarray(within, dtype=bool)
    other = network.opposite
    twin = np.where(other >= 0, other, np.arange(network.n_segments))
    streets = np.flatnonzero((chosen | chosen[twin]) & (np.arange(network.n_segments) <= twin))
    tail, head = network.tail[streets].astype(np.int64), network.head[streets].astype(np.int64)
    joint = _joints(network.n_nodes, tail, head, [np.asarray(key)[streets] for key in keys])
    nodes, lengths, order = _walk(tail.tolist(), head.tolist(), joint.tolist())
    points = np.stack([network.lat[nodes], network.lon[nodes]], axis=1) if nodes else np.empty((0, 2))
    return Chains(points, np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]), streets[np.array(order, np.int64)])


def _joints(n_nodes: int, tail: IntArray, head: IntArray, keys: list[NDArray[np.generic]]) -> IntArray:
    """Return the street (n, 2) that goes on from each end of a street, tail first; -1 where the line ends."""
    n = tail.size
    ends = np.concatenate([tail, head])
    meeting = np.bincount(ends, minlength=n_nodes)
    order = np.argsort(ends, kind="stable")
    pairs = order[meeting[ends[order]] == 2].reshape(-1, 2)
    alike = pairs[:, 0] % n != pairs[:, 1] % n if n else np.empty(0, dtype=bool)
    for key in keys:
        a, b = key[pairs[:, 0] % n], key[pairs[:, 1] % n]
        # Unknown is as good as equal to unknown.
        alike &= (a == b) | ((a != a) & (b != b))
    joint = np.full(2 * n, -1, dtype=np.int64)
    for one, two in ((0, 1), (1, 0)):
        joint[pairs[alike, one]] = pairs[alike, two] % n
    return joint.reshape(2, n).T


def _walk(tail: list[int], head: list[int], joint: list[list[int]]) -> tuple[list[int], list[int], list[int]]:
    """Follow every line from an end of it, then the rings, which have none: nodes, points a line, streets in order."""
    nodes: list[int] = []
    lengths: list[int] = []
    order: list[int] = []
    done = [False] * len(tail)
    ends = [i for i in range(len(tail)) if min(joint[i]) < 0]
    for first in [*ends, *range(len(tail))]:
        if done[first]:
            continue
        at, street = (tail[first] if joint[first][0] < 0 else head[first]), first
        if min(joint[first]) >= 0:
            at = tail[first]
        begun = len(nodes)
        nodes.append(at)
        while street >= 0 and not done[street]:
            done[street] = True
            order.append(street)
            forward = tail[street] == at
            at = head[street] if forward else tail[street]
            nodes.append(at)
            street = joint[street][1 if forward else 0]
        lengths.append(len(nodes) - begun)
    return nodes, lengths, order


# The importance of a class by its name in OpenStreetMap; a link is as important as what it links.
_RANKS = {"motorway": 5, "trunk": 5, "primary": 4, "secondary": 3, "tertiary": 2, "avenue": 4, "arterial": 4, "ring": 5}
# Width, strength and from which metres a pixel on a street of each rank is drawn as background.
_BACKGROUND = (
    (0.8, 0.3, 45.0),
    (0.8, 0.3, 45.0),
    (1.2, 0.38, 90.0),
    (1.5, 0.42, 0.0),
    (2.0, 0.48, 0.0),
    (2.8, 0.5, 0.0),
)
# Beside what is to be seen, as a share of it: a map has its scale and its source in the corners.
_ROOM = 0.08
# Where classes of a flow begin, as shares of the largest one, and how wide they are drawn.
_FLOW = ((0.0, 1.0, 0.45), (0.02, 1.7, 0.6), (0.06, 2.6, 0.7), (0.15, 3.8, 0.8), (0.35, 5.2, 0.9), (0.65, 7.0, 1.0))


def rank(class_name: str) -> int:
    """Return how important a class of road is, from 1 to 5.

    Examples
    --------
    >>> rank("motorway_link"), rank("residential"), rank("something else")
    (5, 1, 1)
    """
    return _RANKS.get(class_name.removesuffix("_link"), 1)


def ranks(network: RoadNetwork) -> IntArray:
    """Return the importance (S,) of each segment."""
    return np.array([rank(name) for name in network.class_names], dtype=np.int64)[network.road_class]


def class_word(name: str) -> str:
    """Return a class's name as words."""
    return name.replace("_", " ")


def near(network: RoadNetwork, points: ArrayLike, margin_m: float = 250.0, *, widest: float = 1.0) -> NDArray[np.bool_]:
    """Return which segments (S,) lie in the box around points (n, 2), degrees, with a margin.

    Parameters
    ----------
    widest : float
        The box is at least as high as it is wide divided by this, and as wide as it is high times this: what a window
        shows that holds the points, whose sides are in a ratio of 1 to this.

    Examples
    --------
    >>> pair = RoadNetwork.from_segments([41.15, 41.16, 41.3], [-8.63, -8.63, -8.63], [0, 1], [1, 2])
    >>> near(pair, [[41.15, -8.63]]).tolist()
    [True, False]
    >>> near(pair, [[41.25, -8.63]]).tolist()
    [False, True]
    """
    given = np.asarray(points, dtype=np.float64).reshape(-1, 2)
    xy = network.plane.xy(given[:, 0], given[:, 1])
    low, high = xy.min(axis=0) - margin_m, xy.max(axis=0) + margin_m
    middle, half = 0.5 * (low + high), 0.5 * (high - low)
    if widest > 1.0:
        # A window wider than high on a screen, and a square one on a phone.
        half = np.array([max(half[0], widest * half[1]), max(half[1], half[0])])
    low, high = middle - half, middle + half
    a, b = network.node_xy[network.tail], network.node_xy[network.head]
    return np.asarray(((np.minimum(a, b) <= high) & (np.maximum(a, b) >= low)).all(axis=1))


def window(points: ArrayLike) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the corners, south-west and north-east, of a view of points (n, 2), with room for what a map's edge tells.

    Examples
    --------
    >>> window([[41.0, -8.0], [42.0, -8.5]])
    ((40.92, -8.54), (42.08, -7.96))
    """
    given = np.asarray(points, dtype=np.float64).reshape(-1, 2)
    low, high = given.min(axis=0), given.max(axis=0)
    room = _ROOM * (high - low)
    (south, west), (north, east) = (low - room).round(6).tolist(), (high + room).round(6).tolist()
    return (south, west), (north, east)


def street_facts(network: RoadNetwork, lines: Chains) -> dict[str, list[object]]:
    """Return what is known of each line of streets that share class, lanes and limit."""
    s = lines.first
    both = network.opposite[s] >= 0
    return {
        "": [class_word(network.class_names[c]) for c in network.road_class[s].tolist()],
        "lanes": [f"{value:g}" if np.isfinite(value) else "unknown" for value in network.lanes[s].tolist()],
        "limit": [f"{value:g} km/h" if np.isfinite(value) else "unknown" for value in network.speed_kmh[s].tolist()],
        "length": [f"{value:,.0f} m" for value in lines.total(network.length_m).tolist()],
        "driven": ["both ways" if two else "one way" for two in both.tolist()],
    }


def facts_chains(network: RoadNetwork, *more: ArrayLike, within: ArrayLike | None = None) -> Chains:
    """Return lines along which all that `street_facts` tells is the same."""
    both = network.opposite >= 0
    return chains(network, [network.road_class, network.lanes, network.speed_kmh, both, *more], within)


def streets(network: RoadNetwork, within: ArrayLike | None = None, *, title: str = "Streets") -> Layer:
    """Return the streets as a quiet background, the important ones stronger.

    Examples
    --------
    >>> ring = RoadNetwork.from_segments([41.15, 41.16, 41.16], [-8.63, -8.63, -8.62], [0, 1, 2], [1, 2, 0])
    >>> layer = streets(ring)
    >>> layer.n_things, layer.facts["length"]
    (1, ['3,342 m'])
    """
    lines = facts_chains(network, within=within)
    strokes = [Stroke("", MUTED, width, strength, detail) for width, strength, detail in _BACKGROUND]
    return Layer(
        title,
        lines.points,
        lines.offsets,
        strokes=strokes,
        stroke=ranks(network)[lines.first],
        facts=street_facts(network, lines),
    )


def way(network: RoadNetwork, states: ArrayLike) -> FloatArray:
    """Return the line (k + 1, 2) in degrees along segments (k,) that follow each other.

    Examples
    --------
    >>> ring = RoadNetwork.from_segments([41.15, 41.16, 41.16], [-8.63, -8.63, -8.62], [0, 1, 2], [1, 2, 0])
    >>> way(ring, [1, 2]).tolist()
    [[41.16, -8.63], [41.16, -8.62], [41.15, -8.63]]
    """
    path = np.asarray(states, dtype=np.int64)
    nodes = np.concatenate([network.tail[path[:1]], network.head[path]])
    return np.stack([network.lat[nodes], network.lon[nodes]], axis=1)


def route(network: RoadNetwork, states: ArrayLike, title: str, stroke: Stroke, **facts: object) -> Layer:
    """Return one route as a layer of its own."""
    return Layer.of_lines(title, [way(network, states)], strokes=[stroke], facts={k: [v] for k, v in facts.items()})


def flow_layers(
    network: RoadNetwork,
    flows: ArrayLike,
    names: Sequence[str],
    *,
    least: float = 0.0,
    unit: str = "trips",
    hidden: str = "not shown",
    group: str = "flows",
) -> list[Layer]:
    """Return what flows on each street, a layer an intent and one that tells who uses a street more than others do.

    Both directions of a street are added up.

    Parameters
    ----------
    network : RoadNetwork
    flows : (K, S)
        Expected or counted uses of each segment by each intent; NaN, in both directions, for those that are hidden.
    names : K texts
    least : float
        Streets that all intents together use less are left out, so that no single trip shows.
    unit : str
        What is counted.
    hidden : str
        What is said of those that are hidden.
    group : str
        Of these layers one is shown at a time.

    Examples
    --------
    >>> ring = RoadNetwork.from_segments([41.15, 41.16, 41.16], [-8.63, -8.63, -8.62], [0, 1, 2], [1, 2, 0])
    >>> [layer.title for layer in flow_layers(ring, [[9.0, 9.0, 9.0], [9.0, 1.0, 1.0]], ["slow", "fast"])]
    ['Who drives where', 'Flows of slow', 'Flows of fast']
    """
    counted = np.asarray(flows, dtype=np.float64)
    if counted.shape != (len(names), network.n_segments):
        raise InvalidParameter(
            f"flows must be (K, S) = ({len(names)}, {network.n_segments}); got shape {counted.shape}.",
            parameter="flows",
            value=counted.shape,
        )
    back = network.opposite
    uses = counted + np.where(back >= 0, counted[:, np.maximum(back, 0)], 0.0)
    told = ~np.isnan(uses)
    streets = np.where(told, uses, 0.0)
    used = streets.sum(axis=0) > max(least - 1e-9, 0.0)
    # A step of a two-hundredth of the largest flow is not seen, and longer lines are.
    step = max(float(streets.max(initial=0.0)) / 200.0, 1e-12)
    lines = chains(network, [*(np.rint(row / step) for row in streets), *told], used)
    flow = streets[:, lines.first]
    numbers = {
        name: [f"{value:,.3g} {unit}" if seen else hidden for value, seen in zip(row, known, strict=True)]
        for name, row, known in zip(names, flow.tolist(), told[:, lines.first].tolist(), strict=True)
    }
    layers = [_by_leader(lines, flow, np.nansum(counted, axis=1), names, numbers, group)]
    for k, row in enumerate(flow):
        classes, strokes = _flow_classes(row, SERIES[k % len(SERIES)], unit)
        kept = row > max(least - 1e-9, 0.0)
        codes = np.where(kept, classes, -1)
        layers.append(
            Layer(
                f"Flows of {names[k]}",
                lines.points,
                lines.offsets,
                strokes=strokes,
                stroke=codes,
                facts=numbers,
                group=group,
            )
        )
    return layers


def _flow_classes(row: FloatArray, colour: str, unit: str) -> tuple[IntArray, list[Stroke]]:
    most = float(row.max(initial=0.0))
    edges = np.array([part for part, _, _ in _FLOW]) * most
    strokes = []
    for place, (_, width, strength) in enumerate(_FLOW):
        above = edges[place + 1] if place + 1 < len(edges) else most
        label = f"{edges[place]:.2g} to {above:.2g} {unit}" if place else f"up to {above:.2g} {unit}"
        strokes.append(Stroke(label, colour, width, strength, halo=False))
    return np.clip(np.searchsorted(edges, row, side="right") - 1, 0, len(strokes) - 1), strokes


def _by_leader(
    lines: Chains, told: FloatArray, totals: FloatArray, names: Sequence[str], facts: dict[str, list[str]], group: str
) -> Layer:
    """Colour a street by the intent whose trips use it most, if that is clearly more than they all do."""
    rate = told / np.maximum(totals, 1e-300)[:, None]
    share = rate / np.maximum(rate.sum(axis=0), 1e-300)
    leader = share.argmax(axis=0)
    # Half as much again as an equal share.
    clear = share.max(axis=0, initial=0.0) >= 1.5 / (len(names) + 0.5)
    total = told.sum(axis=0)
    wide = np.searchsorted(np.array([0.05, 0.3]) * float(total.max(initial=0.0)), total, side="right")
    strokes = []
    # The legend is read from the last to the first.
    for k in range(len(names), -1, -1):
        colour = SERIES[k % len(SERIES)] if k < len(names) else MUTED
        mostly = f"mostly {names[k]}" if k < len(names) else "all alike"
        strokes += [Stroke(mostly if width > 4.0 else "", colour, width, 0.9) for width in (1.3, 2.8, 4.6)]
    codes = 3 * np.where(clear, len(names) - leader, 0) + wide
    return Layer(
        "Who drives where", lines.points, lines.offsets, strokes=strokes, stroke=codes, facts=facts, group=group
    )
