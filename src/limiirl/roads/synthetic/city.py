"""`City`: a synthetic road network. A bent lattice of streets, a river with bridges, and a ring road."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from limiirl._typing import FloatArray, IntArray
from limiirl._validation import check_count, check_seed
from limiirl.demos import Demonstrations
from limiirl.errors import InvalidParameter
from limiirl.irl import DestinationMaxEnt
from limiirl.mdp import MDP, RewardEnsemble
from limiirl.roads.features import FeatureChoice
from limiirl.roads.geometry import Plane
from limiirl.roads.network import RoadNetwork, freeze, join_segments
from limiirl.worlds import intent_counts

CLASS_NAMES = ("motorway", "motorway_link", "primary", "secondary", "tertiary", "residential")
MOTORWAY, LINK, PRIMARY, SECONDARY, TERTIARY, RESIDENTIAL = range(6)

BLOCK_M = (72.0, 112.0)  # distance between lines, before jitter and bends
TWIN_M = 30.0  # distance between the carriageways of an avenue, and between an arterial and its service road
_SPEEDS = ((90.0, 90.0), (50.0, 40.0), (60.0, 50.0), (50.0, 50.0), (50.0, 40.0), (30.0, 30.0, 20.0))  # by class
_LANES = ((3.0, 2.0), (1.0,), (2.0,), (1.0, 2.0), (1.0,), (1.0,))
_SPEED_UNKNOWN = (0.0, 0.1, 0.0, 0.05, 0.1, 0.2)
_LANES_UNKNOWN = (0.0, 0.2, 0.1, 0.3, 0.5, 0.8)
# Probabilities that a residential street is one-way, missing, curved, or not connected across an avenue.
_ONE_WAY, _MISSING, _CURVED, _NO_GAP = 0.4, 0.10, 0.15, 0.4
_NO_LEFT = 0.12  # probability that a left turn from a primary road is forbidden


class StreetChain(NamedTuple):
    """Nodes along one street, in the direction of travel if it is one-way.

    Streets with the same `way` have the same speed limit and lanes; `road_class` is an index into `CLASS_NAMES`.
    """

    nodes: tuple[int, ...]
    road_class: int
    way: int
    one_way: bool


@dataclass(frozen=True)
class CityPlan:
    """Arrays of a `RoadNetwork`, in metres east and north of the centre.

    Speed limits and lanes are NaN if unknown. The segments are strongly connected by the turns (E, 2). The river (k, 2)
    runs from west to east.
    """

    node_xy: FloatArray
    tail: IntArray
    head: IntArray
    road_class: IntArray
    way: IntArray
    speed_kmh: FloatArray
    lanes: FloatArray
    turns: IntArray
    river: FloatArray


@dataclass
class CityDrawing:
    """Nodes and streets that have been added, and the river (k, 2)."""

    river: FloatArray
    xy: list[tuple[float, float]] = field(default_factory=list)
    streets: list[StreetChain] = field(default_factory=list)
    n_ways: int = 0

    def node(self, point: FloatArray) -> int:
        """Add a node and return its index."""
        self.xy.append((float(point[0]), float(point[1])))
        return len(self.xy) - 1

    def way(self) -> int:
        """Return the index of a new way."""
        self.n_ways += 1
        return self.n_ways - 1

    def street(self, nodes: list[int], road_class: int, way: int, *, one_way: bool = False) -> None:
        """Add a street along nodes."""
        self.streets.append(StreetChain(tuple(nodes), road_class, way, one_way))


class LatticeLines(NamedTuple):
    """Parallel lines of the lattice at ascending positions `at` (n,), in metres from the centre.

    `sense` is 1 or -1 if the line is one-way in ascending or descending direction, else 0. `stretch` is the number of
    arterials up to each line; attributes of cross streets change at arterials only. `twin` is True if the distance to
    the next line is 30 m.
    """

    at: FloatArray
    road_class: IntArray
    sense: IntArray
    stretch: IntArray
    twin: NDArray[np.bool_]


def lay_lattice(radius_m: float, outline: FloatArray, rng: np.random.Generator) -> tuple[CityDrawing, list[int]]:
    """Create the streets within an outline; also return the nodes at the edge where secondary roads end.

    The outline (360,) is the extent per degree, anticlockwise from east, as a fraction of `radius_m`.
    """
    columns, rows = _draw_lines(radius_m, -1, rng), _draw_lines(radius_m, 1, rng)
    xy = _bend_lattice(columns.at, rows.at, radius_m, rng)
    angle = np.degrees(np.arctan2(xy[..., 1], xy[..., 0])).astype(np.int64) % 360
    away = np.hypot(xy[..., 0], xy[..., 1])
    inside = away <= radius_m * outline[angle]
    drawing = CityDrawing(_draw_river(radius_m, rng))
    south = xy[..., 1] < np.interp(xy[..., 0], *drawing.river.T)
    number = np.full(inside.shape, -1)
    for i, j in np.argwhere(inside):
        number[i, j] = drawing.node(xy[i, j])
    for axis, lines, across in ((0, columns, rows), (1, rows, columns)):
        nodes, bank = (number, south) if axis == 0 else (number.T, south.T)
        for i in range(lines.at.size):
            _lay_line(drawing, nodes[i], bank[i], (lines, i, across), bridges=axis == 0, rng=rng)
    ends = [n for s in drawing.streets if s.road_class == SECONDARY for n in (s.nodes[0], s.nodes[-1])]
    # Exclude arterials that end at the river.
    edge = set(number[inside & (away > 0.85 * radius_m * outline[angle])].tolist())
    return drawing, sorted(n for n in edge if ends.count(n) == 1)


def plan_city(drawing: CityDrawing, rng: np.random.Generator) -> CityPlan:
    """Return the directed segments and legal turns of the largest strongly connected component of a drawing."""
    pieces = [(a, b, s.road_class, s.way) for s in drawing.streets for a, b in zip(s.nodes, s.nodes[1:], strict=False)]
    pieces += [
        (b, a, s.road_class, s.way)
        for s in drawing.streets
        if not s.one_way
        for a, b in zip(s.nodes[::-1][1:], s.nodes[::-1], strict=False)
    ]
    tail, head, road_class, way = np.array(pieces, dtype=np.int64).T
    of_way = np.full(drawing.n_ways, RESIDENTIAL)
    of_way[way] = road_class
    speed = _draw_by_class(of_way, _SPEEDS, _SPEED_UNKNOWN, rng)
    lanes = _draw_by_class(of_way, _LANES, _LANES_UNKNOWN, rng)
    xy = np.array(drawing.xy)
    turns = _legal_turns(xy, tail, head, road_class, rng)
    graph = csr_array((np.ones(len(turns), dtype=np.int8), tuple(turns.T)), shape=(tail.size, tail.size))
    _, part = connected_components(graph, directed=True, connection="strong")
    kept = np.flatnonzero(part == np.bincount(part).argmax())
    kept = kept[np.lexsort((kept, way[kept]))]
    number = np.full(tail.size, -1)
    number[kept] = np.arange(kept.size)
    turns = number[turns]
    used, ends = np.unique(np.stack([tail[kept], head[kept]]), return_inverse=True)
    tail, head = ends.reshape(2, -1)
    return CityPlan(
        node_xy=xy[used],
        tail=tail,
        head=head,
        road_class=road_class[kept],
        way=way[kept],
        speed_kmh=speed[way[kept]],
        lanes=lanes[way[kept]],
        turns=turns[(turns >= 0).all(axis=1)],
        river=drawing.river,
    )


def _draw_lines(radius_m: float, keep_right: int, rng: np.random.Generator) -> LatticeLines:
    """Return parallel lines: an avenue with two carriageways through the centre, and an arterial every 5 or 6 blocks.

    `keep_right` is the `sense` of the carriageway at the lower coordinate: -1 for columns (the western one leads
    south), 1 for rows (the southern one leads east). Every second arterial has a service road.
    """
    lines = [(-TWIN_M / 2.0, PRIMARY, keep_right), (TWIN_M / 2.0, PRIMARY, -keep_right)]
    for outwards in (1, -1):
        at, service = TWIN_M / 2.0, rng.random() < 0.5
        while at < radius_m:
            n = int(rng.integers(5, 7))
            collector = int(rng.integers(2, n - 1)) if rng.random() < 0.6 else 0
            for k in range(1, n + 1):
                at += rng.uniform(*BLOCK_M)
                road_class = SECONDARY if k == n else TERTIARY if k == collector else RESIDENTIAL
                lines.append((outwards * at, road_class, 0))
            if service:
                at += TWIN_M
                lines.append((outwards * at, RESIDENTIAL, 0))
            service = not service
    lines = sorted(line for line in lines if abs(line[0]) <= radius_m)
    places, classes, sense = (np.array(column) for column in zip(*lines, strict=True))
    twin = np.append(np.diff(places) < TWIN_M + 1.0, False)
    return LatticeLines(places, classes, sense, np.cumsum(classes < TERTIARY), twin)


def _bend_lattice(columns: FloatArray, rows: FloatArray, radius_m: float, rng: np.random.Generator) -> FloatArray:
    """Return the crossings (columns, rows, 2), bent by a sine wave per axis, with jitter, and rotated."""
    x, y = np.meshgrid(columns, rows, indexing="ij")
    phase = rng.uniform(0.0, 2.0 * np.pi, size=2)
    wave = np.pi / radius_m
    # The slope of the waves is at most 0.12, so that the distance between twins changes little.
    x, y = (x + 0.12 / wave * np.sin(wave * y + phase[0]), y + 0.12 / wave * np.sin(wave * x + phase[1]))
    jitter = np.clip(rng.normal(0.0, 1.2, size=(*x.shape, 2)), -2.0, 2.0)
    angle = np.radians(rng.uniform(-20.0, 20.0))
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    return np.asarray((np.stack([x, y], axis=-1) + jitter) @ turn)


def _draw_river(radius_m: float, rng: np.random.Generator) -> FloatArray:
    x = np.linspace(-1.6, 1.6, 81)
    y = -0.45 + 0.08 * np.sin(2.5 * x + rng.uniform(0.0, 2.0 * np.pi))
    return radius_m * np.stack([x, y], axis=1)


def _lay_line(
    drawing: CityDrawing,
    nodes: IntArray,
    south: NDArray[np.bool_],
    line: tuple[LatticeLines, int, LatticeLines],
    *,
    bridges: bool,
    rng: np.random.Generator,
) -> None:
    """Create the streets along one line of the lattice; only arterials cross the river."""
    lines, i, across = line
    road_class, sense = int(lines.road_class[i]), int(lines.sense[i])
    local = road_class == RESIDENTIAL
    way_of_stretch: dict[int, tuple[int, int]] = {}
    for j in range(nodes.size - 1):
        a, b = int(nodes[j]), int(nodes[j + 1])
        missing, median, curved = rng.random(3)
        stretch = int(across.stretch[j])
        if stretch not in way_of_stretch:
            one_way = sense if sense or not local or rng.random() >= _ONE_WAY else int(rng.choice([-1, 1]))
            way_of_stretch[stretch] = (drawing.way(), one_way)
        if a < 0 or b < 0 or (south[j] != south[j + 1] and not (bridges and road_class < TERTIARY)):
            continue
        if local and (median < _NO_GAP if across.twin[j] else missing < _MISSING):
            continue
        way, one_way = way_of_stretch[stretch]
        chain = [a, b]
        if local and curved < _CURVED and not (across.twin[j] or lines.twin[i] or (i > 0 and lines.twin[i - 1])):
            chain.insert(1, drawing.node(_bulge(drawing, a, b, rng)))
        drawing.street(chain[::-1] if one_way < 0 else chain, road_class, way, one_way=one_way != 0)


def _bulge(drawing: CityDrawing, a: int, b: int, rng: np.random.Generator) -> FloatArray:
    """Return a point 6 to 12 m beside the midpoint of two nodes."""
    start, end = np.array(drawing.xy[a]), np.array(drawing.xy[b])
    side = np.array([start[1] - end[1], end[0] - start[0]]) / np.hypot(*(end - start))
    return np.asarray((start + end) / 2.0 + rng.choice([-1.0, 1.0]) * rng.uniform(6.0, 12.0) * side)


def _draw_by_class(
    of_way: IntArray, values: tuple[tuple[float, ...], ...], unknown: tuple[float, ...], rng: np.random.Generator
) -> FloatArray:
    """Sample the speed limit or lanes of each way from the values of its class; NaN if unknown."""
    drawn = np.array([rng.choice(values[k]) for k in of_way])
    drawn[rng.random(of_way.size) < np.array(unknown)[of_way]] = np.nan
    return drawn


def _legal_turns(
    xy: FloatArray, tail: IntArray, head: IntArray, road_class: IntArray, rng: np.random.Generator
) -> IntArray:
    """Return legal turns; U-turns, turns between slip roads and some left turns from primary roads are forbidden."""
    turns = join_segments(tail, head)
    source, target = turns.T
    before, after = (xy[head[k]] - xy[tail[k]] for k in (source, target))
    cross = before[:, 0] * after[:, 1] - before[:, 1] * after[:, 0]
    left = np.arctan2(cross, (before * after).sum(axis=1)) > np.radians(45.0)
    forbidden = left & (road_class[source] == PRIMARY) & (rng.random(len(turns)) < _NO_LEFT)
    # Turns between two slip roads at an avenue, back to the motorway, are forbidden.
    crossing = np.bincount(tail)[head[source]] > 1
    forbidden |= crossing & (road_class[source] == LINK) & (road_class[target] == LINK)
    return np.asarray(turns[~forbidden])


_PIECE_M = 120.0  # distance between the nodes of the ring
_INTERCHANGES = 8
_STREET_M = 110.0  # distance between the nodes of the avenues to the ring
_SLIP = 2  # number of segments of the ring between a slip road and the avenue
_APART_M = 130.0  # distance between the inner carriageway of the ring and the end of an avenue


def ring_outline(rng: np.random.Generator) -> FloatArray:
    """Return the relative radius (360,) of the ring per degree, anticlockwise from east; its mean is 1."""
    angle = np.radians(np.arange(360.0))
    phase = rng.uniform(0.0, 2.0 * np.pi, size=2)
    return np.asarray(1.0 + 0.05 * np.sin(2.0 * angle + phase[0]) + 0.025 * np.sin(3.0 * angle + phase[1]))


def lay_ring(drawing: CityDrawing, radius_m: float, outline: FloatArray, ends: list[int]) -> None:
    """Create the ring road, and connect it to arterials at up to eight interchanges.

    Traffic keeps to the right: the outer carriageway is anticlockwise, the inner one clockwise. `radius_m` is the mean
    radius, `outline` (360,) is the result of `ring_outline`, and `ends` are the nodes where arterials end.
    """
    n = round(2.0 * np.pi * radius_m / _PIECE_M)
    step = 2.0 * np.pi / n

    def point(at: float, inwards_m: float) -> FloatArray:
        angle = at * step
        r = radius_m * np.interp(np.degrees(angle), np.arange(360.0), outline, period=360.0) - inwards_m
        return np.asarray([r * np.cos(angle), r * np.sin(angle)])

    outer = [drawing.node(point(k, -TWIN_M / 2.0)) for k in range(n)]
    inner = [drawing.node(point(k, TWIN_M / 2.0)) for k in range(n)]
    drawing.street([*outer, outer[0]], MOTORWAY, drawing.way(), one_way=True)
    drawing.street([*inner[::-1], inner[-1]], MOTORWAY, drawing.way(), one_way=True)
    places = np.array([drawing.xy[k] for k in ends])
    bearing = np.arctan2(places[:, 1], places[:, 0])
    for quarter in range(_INTERCHANGES):
        away = np.abs((bearing - quarter * 2.0 * np.pi / _INTERCHANGES + np.pi) % (2.0 * np.pi) - np.pi)
        chosen = int(np.argmin(away))
        if away[chosen] > np.pi / _INTERCHANGES:
            continue
        k = round(bearing[chosen] / step)
        end = drawing.node(point(k, TWIN_M / 2.0 + _APART_M))
        drawing.street(_lay_avenue(drawing, ends[chosen], end), SECONDARY, drawing.way())
        # In the direction of travel, exits are before the avenue and entries after it.
        for roadway, clockwise, inwards_m in ((inner, True, 75.0), (outer, False, 45.0)):
            for off in (True, False):
                offset = _SLIP if off == clockwise else -_SLIP
                bend = drawing.node(point(k + 0.5 * offset, inwards_m))
                chain = [roadway[(k + offset) % n], bend, end]
                drawing.street(chain if off else chain[::-1], LINK, drawing.way(), one_way=True)


def _lay_avenue(drawing: CityDrawing, start: int, end: int) -> list[int]:
    a, b = np.array(drawing.xy[start]), np.array(drawing.xy[end])
    n = max(1, round(float(np.hypot(*(b - a))) / _STREET_M))
    return [start, *(drawing.node(a + (b - a) * k / n) for k in range(1, n)), end]


CENTRE = 3.0 / 7.0
"""Radius of the centre, as a fraction of the radius of the ring."""
_IN_CENTRE = "km in the centre"
FEATURES = ("km of motorway", "km of avenue", "km of street", _IN_CENTRE, "left turns", "right turns", "sharp turns")
"""Names of the features, in the order of the MDP."""
STYLES: dict[str, tuple[float, ...]] = {
    "ring road": (-1.0, -7.0, -9.5, -1.0, -2.0, -1.5, -4.0),
    "short cuts": (-9.0, -9.0, -6.5, 0.0, -1.4, -1.2, -3.0),
    "around the centre": (-6.0, -5.0, -8.0, -8.0, -2.0, -1.5, -4.0),
}
"""Reward weights of each style: per km by road class, per km in the centre, and per turn."""
_WEIGHTS = (0.3, 0.4, 0.3)
_APART = 5.0 / 7.0  # minimum distance between start and end of a trip, as a fraction of the radius of the ring


@dataclass(frozen=True)
class CityTrips:
    """Trips with known drivers and styles.

    Attributes
    ----------
    demos : Demonstrations
        True paths of segments; `groups` are drivers, `labels` are styles.
    style : (n_drivers,) int64
        Style of each driver, as an index into `City.styles`.
    home : (n_drivers,) int64
        Home segment of each driver.
    """

    demos: Demonstrations
    style: IntArray
    home: IntArray


def choose_places(network: RoadNetwork, n: int, rng: np.random.Generator) -> IntArray:
    """Sample n distinct segments as origins and destinations."""
    addresses = _addresses(network)
    if n > addresses.size:
        rule = f"must be at most {addresses.size}, the number of segments on which a trip may end"
        raise InvalidParameter.of("n_places", n, rule, remedy="Reduce n_places, or increase radius_km.")
    return np.sort(rng.choice(addresses, size=n, replace=False))


def _addresses(network: RoadNetwork) -> IntArray:
    """Return the segments on which a trip may start or end: at least 50 m long, and not on the motorway."""
    names = np.array(network.class_names)[network.road_class]
    return np.flatnonzero(~np.char.startswith(names, "motorway") & (network.length_m >= 50.0))


def _far_places(city: City, start: int) -> IntArray:
    """Return the places that are far enough from a start, or else the farthest place."""
    at = city.network.node_xy[city.network.head]
    away = np.hypot(*(at[city.places] - at[start]).T)
    return np.asarray(city.places[away >= min(1000.0 * _APART * city.radius_km, away.max())])


def _sample_routes(
    city: City, thetas: FloatArray, style: IntArray, start: IntArray, goal: IntArray, rng: np.random.Generator
) -> list[IntArray]:
    """Sample one route (k,) per trip from the distribution of its style."""
    model = DestinationMaxEnt()
    routes: dict[int, IntArray] = {}
    for k, theta in enumerate(thetas):
        mine = np.flatnonzero(style == k)
        if mine.size:
            sample = model.sample(city.mdp, theta, start[mine], goal[mine], seed=int(rng.integers(2**31)))
            routes |= {int(i): demo.states for i, demo in zip(mine, sample, strict=True)}
    return [routes[i] for i in range(style.size)]


_CENTRE = (41.15, -8.63)
_LATTICE = 0.82  # radius of the lattice, as a fraction of the radius of the ring
_LEAST_KM, _MOST_KM = 0.8, 6.0


@dataclass(frozen=True)
class City:
    """Synthetic city with drivers of known styles.

    The streets form a bent lattice with blocks of at most 120 m, crossed by a river with few bridges. Two avenues with
    two carriageways meet in the centre, and some arterials have a parallel service road. A ring road with two
    carriageways and up to eight interchanges surrounds the city. Many residential streets are one-way, some left turns
    and all U-turns are forbidden, and the network is strongly connected. As in real maps, some speed limits and most
    numbers of lanes are unknown. The coordinates are fictitious.

    Parameters
    ----------
    seed : int
        Seed of the city and its places.
    radius_km : float
        Mean radius of the ring road, from 0.8 to 6. The number of segments is proportional to its square.
    n_places : int
        Number of destinations.

    Attributes
    ----------
    network : RoadNetwork
    places : (n_places,) int64
        Destination segments.
    river : (k, 2)
        Latitudes and longitudes along the river.

    Examples
    --------
    >>> city = City(seed=1)
    >>> city.network
    RoadNetwork: 4,026 directed segments of 338.9 km in all, 8,490 turns, 1,667 nodes
    >>> driven = city.drive(n_drivers=6, trips_each=2)
    >>> len(driven.demos), city.styles[driven.style[0]]
    (12, 'around the centre')
    """

    seed: int = 0
    radius_km: float = 2.1
    n_places: int = 24
    network: RoadNetwork = field(init=False, repr=False, compare=False)
    places: IntArray = field(init=False, repr=False, compare=False)
    river: FloatArray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_seed(self.seed)
        check_count(self.n_places, "n_places", least=2)
        if not _LEAST_KM <= self.radius_km <= _MOST_KM:
            raise InvalidParameter.of("radius_km", self.radius_km, f"must lie in [{_LEAST_KM:g}, {_MOST_KM:g}]")
        # Python numbers, since the notes of the network are saved as JSON.
        for name, kind in (("seed", int), ("radius_km", float), ("n_places", int)):
            object.__setattr__(self, name, kind(getattr(self, name)))
        network, river = _build(self.seed, 1000.0 * self.radius_km)
        places = choose_places(network, self.n_places, np.random.default_rng((self.seed, 1)))
        for name, value in (("network", network), ("places", freeze(places)), ("river", freeze(river))):
            object.__setattr__(self, name, value)

    @property
    def styles(self) -> tuple[str, ...]:
        """Names of the driving styles, in the order of `ensemble`."""
        return tuple(STYLES)

    @cached_property
    def features(self) -> FeatureChoice:
        """Features of the rewards: km by road class, km in the centre, and turns."""
        network = self.network
        middle = (network.node_xy[network.tail] + network.node_xy[network.head]) / 2.0
        central = np.hypot(*middle.T) <= 1000.0 * CENTRE * self.radius_km
        groups = {"motorway": ("motorway",), "avenue": ("primary", "secondary"), "street": ("*",)}
        extra = {_IN_CENTRE: central * network.length_m / 1000.0}
        return FeatureChoice(class_groups=groups, speed_groups=None, regions=False, turns=True, extra=extra)

    @cached_property
    def mdp(self) -> MDP:
        """Undiscounted MDP of the city with `features`."""
        return self.network.mdp(self.features)

    @property
    def ensemble(self) -> RewardEnsemble:
        """Rewards of the styles, weighted by their fraction of the drivers."""
        return RewardEnsemble(_WEIGHTS, list(STYLES.values()))

    def drive(self, n_drivers: int = 36, trips_each: int = 10, seed: int = 0) -> CityTrips:
        """Simulate trips of drivers, each with a style and a home segment.

        A trip starts at the home or at one of the places, and ends at another place. Its route is sampled from the
        distribution of the style given the first and the last segment, ``p(tau | first, last)`` proportional to
        ``exp(theta . F(tau))``. The trips depend on `seed` and on the seed of the city.
        """
        check_count(n_drivers, "n_drivers")
        check_count(trips_each, "trips_each")
        check_seed(seed)
        rng = np.random.default_rng((self.seed, 2, seed))
        styles = self.ensemble
        style = rng.permutation(np.repeat(np.arange(styles.n_intents), intent_counts(n_drivers, styles.weights)))
        home = rng.choice(_addresses(self.network), size=n_drivers)
        driver = np.repeat(np.arange(n_drivers), trips_each)
        start, goal = np.empty(driver.size, dtype=np.int64), np.empty(driver.size, dtype=np.int64)
        for i, k in enumerate(driver):
            # Every second trip starts at home.
            start[i] = home[k] if i % 2 == 0 else rng.choice(self.places)
            goal[i] = rng.choice(_far_places(self, start[i]))
        paths = _sample_routes(self, styles.thetas, style[driver], start, goal, rng)
        return CityTrips(Demonstrations.from_lists(paths, groups=driver, labels=style[driver]), style, home)


def _build(seed: int, radius_m: float) -> tuple[RoadNetwork, FloatArray]:
    rng = np.random.default_rng((seed, 0))
    outline = ring_outline(rng)
    drawing, ends = lay_lattice(_LATTICE * radius_m, outline, rng)
    lay_ring(drawing, radius_m, outline, ends)
    plan = plan_city(drawing, rng)
    plane = Plane(*_CENTRE)
    lat, lon = plane.degrees(plan.node_xy).T
    notes = {"source": "limiirl.roads.City", "seed": seed, "radius_km": radius_m / 1000.0}
    fields: dict[str, Any] = {
        "class_names": CLASS_NAMES,
        "centre": _CENTRE,
        "attribution": "A synthetic city",
        "notes": notes,
    }
    fields |= {name: getattr(plan, name) for name in ("turns", "road_class", "speed_kmh", "lanes")}
    network = RoadNetwork.from_segments(lat, lon, plan.tail, plan.head, way_id=plan.way, **fields)
    return network, plane.degrees(plan.river)
