"""A seeded street lattice: which streets exist, who may drive along them, and which turns the junctions allow.

This is the topology of a `RoadGrid`; lengths and shapes are added there. Junctions are the integer points within a
wobbly disc, streets join neighbours. Lines of the lattice have a class: arterials every few blocks, some of them
primary, a collector between two arterials now and then, and residential streets otherwise. Local streets are missing
here and there, and whole stretches of them, from one arterial to the next, are one-way. What cannot be reached and
left again is cut off, so that the turns make one strongly connected graph.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

ROAD_CLASSES = ("primary", "secondary", "tertiary", "residential")
SPEED_CLASSES = ("80 km/h", "50 km/h", "30 km/h")
TURNS = ("straight", "left", "right", "back")

_PRIMARY, _SECONDARY, _TERTIARY, _RESIDENTIAL = range(4)
# By road class. The shares are for a town of plain texture and shrink with `plan_streets`' texture.
_MISSING = np.array([0.0, 0.0, 0.04, 0.16])
_ONE_WAY = np.array([0.0, 0.0, 0.25, 0.40])
_SPEED = np.array([[0.80, 0.20, 0.0], [0.10, 0.85, 0.05], [0.0, 0.60, 0.40], [0.0, 0.15, 0.85]])

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class StreetPlan:
    """J junctions, G streets between neighbours, D driving directions along them and B turns from one to the next.

    The D directed streets are strongly connected through the turns. They are numbered as a map extract would number
    them: neighbourhood by neighbourhood (the block between two pairs of arterials) in random order, and within it way
    by way, a way being a stretch of a line from one arterial to the next, there and, unless it is one-way, back.
    """

    radius: float  # of the disc of junctions, in blocks
    junctions: IntArray  # (J, 2) lattice coordinates, east and north
    on_arterial: BoolArray  # (J,)
    ends: IntArray  # (G, 2) junctions at the western or southern end, and at the other
    road_class: IntArray  # (G,) index into ROAD_CLASSES
    speed_class: IntArray  # (G,) index into SPEED_CLASSES
    street: IntArray  # (D,) the street that is driven along
    forward: BoolArray  # (D,) whether from its first end to its second
    turns: IntArray  # (B, 3) from and to directed street, and the index into TURNS

    @property
    def surplus(self) -> int:
        """B - D. Cutting a street into pieces adds as many turns as directed pieces, so that this number stays."""
        return len(self.turns) - len(self.street)


def plan_streets(radius: float, texture: float, rng: np.random.Generator) -> StreetPlan:
    """Draw a town of about ``pi * radius ** 2`` junctions.

    Parameters
    ----------
    radius : float
        Of the town, in blocks.
    texture : float
        In [0, 1]: scales the shares of missing and of one-way streets. A full lattice (0) has nearly 3 turns a
        directed street.
    rng : numpy Generator

    Examples
    --------
    >>> plan = plan_streets(10.0, 1.0, np.random.default_rng(0))
    >>> plan.junctions.shape[1], plan.ends.shape[1], plan.turns.shape[1]
    (2, 2, 3)
    >>> bool((plan.turns[:, 0] != plan.turns[:, 1]).all())
    True
    """
    laid = _lay_streets(radius, texture, rng)
    side, step = laid.side, laid.step
    street, forward = _directions(laid.one_way, laid.reverse)
    heading = laid.axis[street] + np.where(forward, 0, 2)
    tail = laid.first[street] + np.where(forward, 0, step[laid.axis[street]])
    turns = _turns(tail, tail + step[heading], heading, side * side)
    kept, turns = _largest_component(turns, street.size)
    street, forward = street[kept], forward[kept]

    neighbourhood = rng.permutation(side * side)[laid.neighbourhood]
    # Driven forward, a way's streets come in the order of their numbers; backward, in the opposite order.
    along = np.where(forward, street, -street)
    order = np.lexsort((along, ~forward, laid.way[street], neighbourhood[street]))
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size)
    used, street = np.unique(street[order], return_inverse=True)
    first = laid.first[used]
    nodes, ends = np.unique(np.stack([first, first + step[laid.axis[used]]], axis=1), return_inverse=True)
    north, east = np.divmod(nodes, side)
    return StreetPlan(
        radius=radius,
        junctions=np.stack([east, north], axis=1) - side // 2,
        on_arterial=laid.on_arterial[nodes],
        ends=ends.reshape(-1, 2),
        road_class=laid.road_class[used],
        speed_class=laid.speed_class[used],
        street=street,
        forward=forward[order],
        turns=np.column_stack([rank[turns[:, 0]], rank[turns[:, 1]], turns[:, 2]]),
    )


@dataclass(frozen=True)
class _Streets:
    """Streets of the full square lattice before anything is cut off; junction (east, north) is north * side + east."""

    side: int
    step: IntArray  # (4,) to the next junction, by heading: east, north, west, south
    first: IntArray  # (G,) western or southern junction
    axis: IntArray  # (G,) 0 where the street runs eastwards, 1 northwards
    road_class: IntArray  # (G,)
    way: IntArray  # (G,)
    neighbourhood: IntArray  # (G,) below side ** 2
    speed_class: IntArray  # (G,)
    one_way: BoolArray  # (G,)
    reverse: BoolArray  # (G,) which way, if one-way
    on_arterial: BoolArray  # (side ** 2,) by junction


def _lay_streets(radius: float, texture: float, rng: np.random.Generator) -> _Streets:
    half = int(np.ceil(1.2 * radius)) + 1
    side = 2 * half + 1
    step = np.array([1, side, -1, -side])
    rows, columns = _lines(half, rng), _lines(half, rng)
    first, axis = _neighbours(_inside(half, radius, rng), step)
    north, east = np.divmod(first, side)
    road_class = np.where(axis == 0, rows.road_class[north], columns.road_class[east])
    built = rng.random(first.size) >= texture * _MISSING[road_class]
    first, axis, north, east, road_class = (values[built] for values in (first, axis, north, east, road_class))
    # A way is a stretch of a line from one arterial to the next, and of one kind: its draws are shared by its streets.
    line, stretch = np.where(axis == 0, (north, columns.quarter[east]), (east, rows.quarter[north]))
    way = (axis * side + line) * side + stretch
    draws = rng.random((3, 2 * side * side))[:, way]
    arterial_rows, arterial_columns = rows.road_class < _TERTIARY, columns.road_class < _TERTIARY
    return _Streets(
        side=side,
        step=step,
        first=first,
        axis=axis,
        road_class=road_class,
        way=way,
        neighbourhood=rows.quarter[north] * side + columns.quarter[east],
        speed_class=(draws[0][:, None] >= np.cumsum(_SPEED, axis=1)[road_class, :-1]).sum(axis=1),
        one_way=draws[1] < texture * _ONE_WAY[road_class],
        reverse=draws[2] < 0.5,
        on_arterial=(arterial_rows[:, None] | arterial_columns).ravel(),
    )


@dataclass(frozen=True)
class _Lines:
    """The parallel lines of a lattice in one direction."""

    road_class: IntArray  # (side,)
    quarter: IntArray  # (side,) number of arterials up to and including the line


def _lines(half: int, rng: np.random.Generator) -> _Lines:
    """Classes of the lines -half..half: a primary road through the middle, then arterials every 4 to 7 blocks."""
    road_class = np.full(2 * half + 1, _RESIDENTIAL)
    road_class[half] = _PRIMARY
    for outwards in (1, -1):
        gaps = rng.integers(4, 8, size=half // 4 + 1)
        arterials = np.cumsum(gaps)
        collectors = (arterials - gaps // 2)[rng.random(gaps.size) < 0.6]
        road_class[half + outwards * collectors[collectors <= half]] = _TERTIARY
        arterials = arterials[arterials <= half]
        road_class[half + outwards * arterials] = np.where(
            np.arange(1, arterials.size + 1) % 4 == 0, _PRIMARY, _SECONDARY
        )
    return _Lines(road_class, np.cumsum(road_class < _TERTIARY))


def _inside(half: int, radius: float, rng: np.random.Generator) -> BoolArray:
    """Which junctions of the square belong to the town, flat: a disc whose outline is drawn out by two random waves."""
    north, east = np.mgrid[-half : half + 1, -half : half + 1]
    angle = np.arctan2(north, east)
    phase = rng.uniform(0.0, 2.0 * np.pi, size=2)
    outline = 1.0 + 0.09 * np.sin(2.0 * angle + phase[0]) + 0.06 * np.sin(3.0 * angle + phase[1])
    inside: BoolArray = (np.hypot(north, east) <= radius * outline).ravel()
    return inside


def _neighbours(inside: BoolArray, step: IntArray) -> tuple[IntArray, IntArray]:
    """First junction and axis (0 eastwards, 1 northwards) of every pair of neighbours; the margin is never inside."""
    pairs = [np.flatnonzero(inside[: -step[axis]] & inside[step[axis] :]) for axis in range(2)]
    return np.concatenate(pairs), np.repeat([0, 1], [p.size for p in pairs])


def _directions(one_way: BoolArray, reverse: BoolArray) -> tuple[IntArray, BoolArray]:
    """Street and sense of every legal driving direction."""
    there = np.flatnonzero(~(one_way & reverse))
    back = np.flatnonzero(~(one_way & ~reverse))
    return np.concatenate([there, back]), np.arange(there.size + back.size) < there.size


def _turns(tail: IntArray, head: IntArray, heading: IntArray, n_nodes: int) -> IntArray:
    """All (from, to, kind) at the junctions; back only where there is no other way on."""
    departing = np.full((n_nodes, 4), -1)
    departing[tail, heading] = np.arange(tail.size)
    # By kind: straight, left, right, back.
    following = departing[head[:, None], (heading[:, None] + np.array([0, 1, 3, 2])) % 4]
    following[(following[:, :3] >= 0).any(axis=1), 3] = -1
    source, kind = np.nonzero(following >= 0)
    return np.column_stack([source, following[source, kind], kind])


def _largest_component(turns: IntArray, n: int) -> tuple[IntArray, IntArray]:
    """Directed streets of the largest strongly connected component, and the turns among them, renumbered."""
    graph = csr_array((np.ones(len(turns), dtype=np.int8), (turns[:, 0], turns[:, 1])), shape=(n, n))
    _, label = connected_components(graph, directed=True, connection="strong")
    member = label == np.bincount(label).argmax()
    number = np.cumsum(member) - 1
    inner = turns[member[turns[:, 0]] & member[turns[:, 1]]]
    return np.flatnonzero(member), np.column_stack([number[inner[:, 0]], number[inner[:, 1]], inner[:, 2]])
