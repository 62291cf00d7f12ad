"""RoadGrid: a synthetic town; its states are directed road segments, its actions turns."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components

from limiirl._typing import BoolArray, FloatArray, IntArray
from limiirl._validation import check_count
from limiirl.errors import InvalidParameter
from limiirl.mdp import MDP
from limiirl.worlds.base import check_gamma

if TYPE_CHECKING:
    from matplotlib.axes import Axes


ROAD_CLASSES = ("primary", "secondary", "tertiary", "residential")
SPEED_CLASSES = ("80 km/h", "50 km/h", "30 km/h")
TURNS = ("straight", "left", "right", "back")

_PRIMARY, _SECONDARY, _TERTIARY, _RESIDENTIAL = range(4)
# By road class. The shares are for a town of plain texture and shrink with `plan_streets`' texture.
_MISSING = np.array([0.0, 0.0, 0.04, 0.16])
_ONE_WAY = np.array([0.0, 0.0, 0.25, 0.40])
_SPEED = np.array([[0.80, 0.20, 0.0], [0.10, 0.85, 0.05], [0.0, 0.60, 0.40], [0.0, 0.15, 0.85]])


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


BLOCK_KM = 0.11
_STRETCH, _WAVE, _JITTER, _BOW = 0.22, 0.18, 0.1, 0.2
LIPSCHITZ = _STRETCH + _WAVE + 2.0 * np.sqrt(2.0) * _JITTER + np.sqrt(2.0) * _BOW
"""Bound on the displacement's Lipschitz constant, 0.97."""


@dataclass(frozen=True)
class LatticeSegments:
    """S directed segments between consecutive map nodes (junctions and shape points), and E turns."""

    node_xy: FloatArray  # (nodes, 2) km east and north of the centre
    tail: IntArray  # (S,) node
    head: IntArray  # (S,) node
    street: IntArray  # (S,) street of the plan
    turns: IntArray  # (E, 3) from and to segment, and the index into TURNS


def cut_streets(plan: StreetPlan, n_segments: int, rng: np.random.Generator) -> LatticeSegments | None:
    """Draw the streets and cut them into exactly `n_segments` directed segments; None where the plan does not allow it.

    Longer streets get more shape points. Both directions of a street share its points, so a cut adds a segment on a
    one-way street and two on another.
    """
    junctions = _place(plan, rng)
    chord = np.linalg.norm(junctions[plan.ends[:, 1]] - junctions[plan.ends[:, 0]], axis=1)
    directions = np.bincount(plan.street)
    cuts = _share_cuts(n_segments - plan.street.size, chord, directions == 1, rng)
    if cuts is None:
        return None
    before = len(plan.junctions) + np.cumsum(cuts) - cuts  # the street's first shape point is this node
    pieces = cuts + 1

    def node(street: IntArray, point: IntArray) -> IntArray:
        """The street's nodes are numbered 0 (first end) to its number of pieces (second end)."""
        inner = before[street] + point - 1
        at_end = np.where(point == 0, plan.ends[street, 0], plan.ends[street, 1])
        return np.where((point == 0) | (point == pieces[street]), at_end, inner)

    count = pieces[plan.street]
    first = np.cumsum(count) - count  # segment with which each directed street begins
    directed = np.repeat(np.arange(count.size), count)
    step = np.arange(n_segments) - first[directed]
    street, forward, total = plan.street[directed], plan.forward[directed], count[directed]
    inner = np.flatnonzero(step < total - 1)  # segments that end at a shape point, where the only way is on
    turns = np.concatenate(
        [
            np.column_stack([inner, inner + 1, np.zeros_like(inner)]),
            np.column_stack([(first + count - 1)[plan.turns[:, 0]], first[plan.turns[:, 1]], plan.turns[:, 2]]),
        ]
    )
    return LatticeSegments(
        node_xy=BLOCK_KM * np.concatenate([junctions, _shape_points(plan, junctions, cuts, rng)]) @ _rotation(rng),
        tail=node(street, np.where(forward, step, total - step)),
        head=node(street, np.where(forward, step + 1, total - step - 1)),
        street=street,
        turns=turns,
    )


def _place(plan: StreetPlan, rng: np.random.Generator) -> FloatArray:
    """The junctions, moved, in blocks."""
    lattice = plan.junctions.astype(np.float64)
    reach = np.abs(lattice).max()
    stretched = _STRETCH * lattice * (2.0 / 3.0 * (lattice / reach) ** 2 - 1.0)
    wavelength = 1.4 * plan.radius
    phase = rng.uniform(0.0, 2.0 * np.pi, size=2)
    waved = _WAVE * wavelength / (2.0 * np.pi) * np.sin(2.0 * np.pi / wavelength * lattice[:, ::-1] + phase)
    # Arterials are straighter than local streets.
    size = _JITTER * np.sqrt(rng.random(len(lattice))) * np.where(plan.on_arterial, 0.4, 1.0)
    angle = rng.uniform(0.0, 2.0 * np.pi, size=len(lattice))
    jittered = size[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    placed: FloatArray = lattice + stretched + waved + jittered
    return placed


def _rotation(rng: np.random.Generator) -> FloatArray:
    """A random tilt of the map by up to 0.4 radians: streets need not run along the compass."""
    tilt = rng.uniform(-0.4, 0.4)
    return np.array([[np.cos(tilt), np.sin(tilt)], [-np.sin(tilt), np.cos(tilt)]])


def _share_cuts(extra: int, chord: FloatArray, one_way: BoolArray, rng: np.random.Generator) -> IntArray | None:
    """Cuts a street, such that they add exactly `extra` directed segments, drawn in proportion to the length."""
    if extra < 0:
        return None
    weight = chord * np.where(one_way, 1.0, 2.0)
    single = round(extra * float(weight[one_way].sum() / weight.sum()))
    if (extra - single) % 2:
        single += 1 if single < extra else -1
    if single and not one_way.any():
        return None
    cuts = np.zeros(chord.size, dtype=np.int64)
    for chosen, total in ((one_way, single), (~one_way, (extra - single) // 2)):
        if total:
            cuts[chosen] = rng.multinomial(total, chord[chosen] / chord[chosen].sum())
    return cuts


def _shape_points(plan: StreetPlan, junctions: FloatArray, cuts: IntArray, rng: np.random.Generator) -> FloatArray:
    """The shape points in blocks, street by street: evenly spaced on an arc between the ends."""
    bow = _BOW * rng.uniform(-1.0, 1.0, size=cuts.size)
    street = np.repeat(np.arange(cuts.size), cuts)
    point = np.arange(street.size) - (np.cumsum(cuts) - cuts)[street] + 1
    t = (point / (cuts[street] + 1.0))[:, None]
    start, end = junctions[plan.ends[street, 0]], junctions[plan.ends[street, 1]]
    sideways = np.abs(plan.junctions[plan.ends[street, 1]] - plan.junctions[plan.ends[street, 0]])[:, ::-1]
    points: FloatArray = (1.0 - t) * start + t * end + bow[street, None] * t * (1.0 - t) * sideways
    return points


# fmt: off
SECTORS = ("E", "ENE", "NE", "NNE", "N", "NNW", "NW", "WNW", "W", "WSW", "SW", "SSW", "S", "SSE", "SE", "ESE")
# fmt: on
REGIONS = ("centre", *SECTORS)

_LEAST_STATES = 200
_TURNS_A_STATE = (1.2, 2.8)
_CENTRE_SHARE = 0.2  # of the town's radius
_ATTEMPTS = 100
_SPARE = (0.03, 0.06)  # forbidden turns, as a share of n_edges - n_states: aimed at, and at most


@dataclass(frozen=True)
class RoadGrid:
    """A seeded, planar, road-like graph with exactly `n_states` directed segments and `n_edges` turns.

    Junctions lie on a jittered, stretched and bent lattice within a wobbly disc. Arterials run every 4 to 7 blocks,
    every fourth of them a primary road; collectors run between some of them. Some local streets are missing and some
    stretches of them are one-way. Streets are cut at shape points. There are no U-turns except where there is no
    other way on. What is not strongly connected is cut off.

    A state is an ordered pair of consecutive map nodes, an action is a legal turn (`streets.TURNS`: straight on, left,
    right, back). A cut adds as many turns as states, so the difference between the two counts depends on the streets
    alone. The generator therefore looks for a radius at which this difference is a few percent too large, forbids
    random turns until it is right, and cuts the streets until the number of states is. It spares two spanning trees,
    one out of and one into some street, so that the graph stays strongly connected.

    States are numbered as in a map extract: neighbourhood by neighbourhood in random order, and way by way within.

    Features, as in the paper's road network: three one-hot groups, each multiplied by the segment's length in km: 4
    road classes, 3 speed classes, and 17 regions (the centre and 16 compass sectors). Each group sums to the length,
    so two directions of the reward are not identifiable. There are no terminal states, and p0 is uniform.

    Parameters
    ----------
    n_states : int
        Directed segments, at least 200.
    n_edges : int
        Turns, 1.2 to 2.8 for each state; small towns, whose edge weighs more, reach less than 2.8.
    seed : int
        Determines the town.
    gamma : float
        Discount in (0, 1].

    Attributes
    ----------
    node_xy : (nodes, 2) coordinates of the map nodes, km east and north of the centre
    tail, head : (S,) map nodes at the start and the end of each segment
    length_km : (S,)
    road_class, speed_class, region : (S,) indices into the names `ROAD_CLASSES`, `SPEED_CLASSES`, `REGIONS`
    one_way : (S,) whether the opposite segment does not exist
    turns : (E, 3) from and to segment, and the kind of turn, an index into `TURNS`

    Examples
    --------
    >>> town = RoadGrid(2_000, 4_000, seed=1)
    >>> town.mdp.n_states, town.mdp.n_edges, town.mdp.n_features
    (2000, 4000, 24)
    """

    n_states: int = 292_604
    n_edges: int = 594_933
    seed: int = 0
    gamma: float = 1.0
    node_xy: FloatArray = field(init=False, repr=False, compare=False)
    tail: IntArray = field(init=False, repr=False, compare=False)
    head: IntArray = field(init=False, repr=False, compare=False)
    length_km: FloatArray = field(init=False, repr=False, compare=False)
    road_class: IntArray = field(init=False, repr=False, compare=False)
    speed_class: IntArray = field(init=False, repr=False, compare=False)
    region: IntArray = field(init=False, repr=False, compare=False)
    one_way: BoolArray = field(init=False, repr=False, compare=False)
    turns: IntArray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_count(self.n_states, "n_states", least=_LEAST_STATES, remedy="A smaller town has no arterials.")
        check_count(self.n_edges, "n_edges", remedy="It counts the turns.")
        check_count(self.seed, "seed", least=0, remedy="Pass a nonnegative integer.")
        check_gamma(self.gamma)
        low, high = (round(r * self.n_states) for r in _TURNS_A_STATE)
        if not low <= self.n_edges <= high:
            raise InvalidParameter(
                f"n_edges must be {_TURNS_A_STATE[0]} to {_TURNS_A_STATE[1]} times n_states; got {self.n_edges} turns "
                f"for {self.n_states} states, {self.n_edges / self.n_states:.4f} each. Ask for {low} to {high} turns.",
                parameter="n_edges",
                value=self.n_edges,
            )
        plan, segments = _generate(self.n_states, self.n_edges, self.seed)
        start, end = segments.node_xy[segments.tail], segments.node_xy[segments.head]
        self._set("node_xy", segments.node_xy)
        self._set("tail", segments.tail)
        self._set("head", segments.head)
        self._set("length_km", np.linalg.norm(end - start, axis=1))
        self._set("road_class", plan.road_class[segments.street])
        self._set("speed_class", plan.speed_class[segments.street])
        self._set("region", _region((start + end) / 2.0, _CENTRE_SHARE * plan.radius * BLOCK_KM))
        self._set("one_way", (np.bincount(plan.street) == 1)[segments.street])
        self._set("turns", segments.turns)

    def _set(self, name: str, value: FloatArray | IntArray | BoolArray) -> None:
        value.flags.writeable = False
        object.__setattr__(self, name, value)

    @property
    def start_xy(self) -> FloatArray:
        """Coordinates (S, 2) of each segment's start, km east and north of the centre."""
        return self.node_xy[self.tail]

    @property
    def end_xy(self) -> FloatArray:
        """Coordinates (S, 2) of each segment's end, km east and north of the centre."""
        return self.node_xy[self.head]

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the 24 features: km on each road class, at each speed limit, in each region."""
        return tuple(f"km {name}" for name in (*ROAD_CLASSES, *SPEED_CLASSES, *REGIONS))

    @cached_property
    def mdp(self) -> MDP:
        """The town as a deterministic MDP without terminal states, with sparse features."""
        first_speed = len(ROAD_CLASSES)
        first_region = first_speed + len(SPEED_CLASSES)
        columns = np.column_stack([self.road_class, first_speed + self.speed_class, first_region + self.region])
        features = csr_array(
            (np.repeat(self.length_km, 3), columns.ravel(), np.arange(0, 3 * self.n_states + 1, 3)),
            shape=(self.n_states, first_region + len(REGIONS)),
        )
        return MDP.from_edges(
            self.turns[:, 0],
            self.turns[:, 1],
            n_states=self.n_states,
            action=self.turns[:, 2],
            gamma=self.gamma,
            state_features=features,
            terminal=np.zeros(self.n_states, dtype=np.bool_),
            feature_names=self.feature_names,
        )

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw the streets, coloured by road class.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        matplotlib Axes
        """
        from limiirl.worlds.plotting import draw_roadgrid

        return draw_roadgrid(self, ax)


def _region(middle: FloatArray, centre_km: float) -> IntArray:
    """Index into REGIONS of each point: the centre, or the nearest of the 16 compass directions."""
    east, north = middle.T
    sixteenths = np.arctan2(north, east) / (2.0 * np.pi) * len(SECTORS)
    sector = np.rint(sixteenths).astype(np.int64) % len(SECTORS)
    return np.where(np.hypot(east, north) <= centre_km, 0, 1 + sector)


def _generate(n_states: int, n_edges: int, seed: int) -> tuple[StreetPlan, LatticeSegments]:
    """Find a town that can be cut and restricted to the exact counts.

    The plan's surplus of turns over directed streets is random, but about proportional to the area: each attempt
    corrects the radius by what the last one had. A plan with more streets than states wanted has too few turns a
    street: the next one has fewer missing and one-way streets.
    """
    wanted = n_edges - n_states
    # A plan has about 3 - 0.64 * texture turns a directed street. Leave room for a fifth more pieces than streets.
    texture = float(np.clip((2.0 - 1.2 * wanted / n_states) / 0.64, 0.03, 1.0))
    radius = np.sqrt(wanted / (np.pi * 4.0))
    for attempt in range(_ATTEMPTS):
        rng = np.random.default_rng((seed, attempt))
        plan = plan_streets(radius, texture, rng)
        spare = plan.surplus - wanted
        if 0 <= spare <= _SPARE[1] * wanted + 4:
            restricted = _forbid_turns(plan, spare, rng)
            segments = None if restricted is None else cut_streets(restricted, n_states, rng)
            if segments is not None:
                return plan, segments
        if plan.street.size > n_states:
            texture *= 0.8
        radius *= np.sqrt((1.0 + _SPARE[0]) * wanted / max(plan.surplus, 1))
    raise InvalidParameter(
        f"No town of {n_states} segments with {n_edges} turns, {n_edges / n_states:.2f} a segment, was found in "
        f"{_ATTEMPTS} attempts. Ask for 1.5 to 2.2 turns per segment, or for more segments.",
        parameter="n_edges",
        value=n_edges,
    )


def _forbid_turns(plan: StreetPlan, n: int, rng: np.random.Generator) -> StreetPlan | None:
    """Remove n random turns, none of which lies on the breadth-first trees out of and into the first street."""
    size = plan.street.size
    number = np.arange(1, len(plan.turns) + 1)  # 0 would be no edge in a sparse graph
    graph = csr_array((number, (plan.turns[:, 0], plan.turns[:, 1])), shape=(size, size))
    needed = np.zeros(len(plan.turns), dtype=np.bool_)
    for tree, towards in ((graph, False), (graph.T.tocsr(), True)):
        _, parent = breadth_first_order(tree, 0)
        child = np.flatnonzero(parent >= 0)
        ends = (child, parent[child]) if towards else (parent[child], child)
        needed[graph[ends] - 1] = True
    free = np.flatnonzero(~needed)
    if free.size < n:
        return None
    kept = np.ones(len(plan.turns), dtype=np.bool_)
    kept[rng.choice(free, size=n, replace=False)] = False
    return replace(plan, turns=plan.turns[kept])
