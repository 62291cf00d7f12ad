"""RoadGrid: a synthetic road network; states are directed road segments, actions are turns."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components

from limiirl._typing import BoolArray, FloatArray, IntArray
from limiirl._validation import check_count, check_seed
from limiirl.errors import InvalidParameter
from limiirl.mdp import MDP
from limiirl.worlds.base import check_gamma

if TYPE_CHECKING:
    from matplotlib.axes import Axes


ROAD_CLASSES = ("primary", "secondary", "tertiary", "residential")
SPEED_CLASSES = ("80 km/h", "50 km/h", "30 km/h")
TURNS = ("straight", "left", "right", "back")

_PRIMARY, _SECONDARY, _TERTIARY, _RESIDENTIAL = range(4)
# Fractions of missing streets, of one-way streets (both multiplied by `texture`) and of speed classes, by road class.
_MISSING = np.array([0.0, 0.0, 0.04, 0.16])
_ONE_WAY = np.array([0.0, 0.0, 0.25, 0.40])
_SPEED = np.array([[0.80, 0.20, 0.0], [0.10, 0.85, 0.05], [0.0, 0.60, 0.40], [0.0, 0.15, 0.85]])


@dataclass(frozen=True)
class StreetPlan:
    """Strongly connected street plan: J junctions, G streets between neighbours, D directed streets and B turns.

    As in a map extract, directed streets are ordered by neighbourhood (the blocks between arterials, in random order),
    and within a neighbourhood by way (the streets on a line between two arterials, forward and then backward).
    """

    radius: float  # radius of the town, in block lengths
    junctions: IntArray  # (J, 2) lattice coordinates, east and north
    on_arterial: BoolArray  # (J,)
    ends: IntArray  # (G, 2) junctions at the western or southern end, and at the other end
    road_class: IntArray  # (G,) index into ROAD_CLASSES
    speed_class: IntArray  # (G,) index into SPEED_CLASSES
    street: IntArray  # (D,) street of each directed street
    forward: BoolArray  # (D,) True from the first end to the second
    turns: IntArray  # (B, 3) directed street before and after, and index into TURNS

    @property
    def surplus(self) -> int:
        """B - D, which does not change when streets are split into segments."""
        return len(self.turns) - len(self.street)


def plan_streets(radius: float, texture: float, rng: np.random.Generator) -> StreetPlan:
    """Return a random town of about ``pi * radius ** 2`` junctions.

    `texture` in [0, 1] scales the fractions of missing and one-way streets; at 0, the lattice is complete and has
    nearly 3 turns per directed street.
    """
    lattice = _build_lattice(radius, texture, rng)
    side, step = lattice.side, lattice.step
    street, forward = _list_directions(lattice.one_way, lattice.reverse)
    heading = lattice.axis[street] + np.where(forward, 0, 2)
    tail = lattice.first[street] + np.where(forward, 0, step[lattice.axis[street]])
    turns = _list_turns(tail, tail + step[heading], heading, side * side)
    kept, turns = _find_largest_component(turns, street.size)
    street, forward = street[kept], forward[kept]

    neighbourhood = rng.permutation(side * side)[lattice.neighbourhood]
    # Backward, the streets of a way are in reverse order.
    along = np.where(forward, street, -street)
    order = np.lexsort((along, ~forward, lattice.way[street], neighbourhood[street]))
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size)
    used, street = np.unique(street[order], return_inverse=True)
    first = lattice.first[used]
    nodes, ends = np.unique(np.stack([first, first + step[lattice.axis[used]]], axis=1), return_inverse=True)
    north, east = np.divmod(nodes, side)
    return StreetPlan(
        radius=radius,
        junctions=np.stack([east, north], axis=1) - side // 2,
        on_arterial=lattice.on_arterial[nodes],
        ends=ends.reshape(-1, 2),
        road_class=lattice.road_class[used],
        speed_class=lattice.speed_class[used],
        street=street,
        forward=forward[order],
        turns=np.column_stack([rank[turns[:, 0]], rank[turns[:, 1]], turns[:, 2]]),
    )


@dataclass(frozen=True)
class _Lattice:
    """Streets of the full square lattice; junction (east, north) is north * side + east."""

    side: int
    step: IntArray  # (4,) offset of the next junction by heading: east, north, west, south
    first: IntArray  # (G,) western or southern junction
    axis: IntArray  # (G,) 0 eastwards, 1 northwards
    road_class: IntArray  # (G,)
    way: IntArray  # (G,)
    neighbourhood: IntArray  # (G,) below side ** 2
    speed_class: IntArray  # (G,)
    one_way: BoolArray  # (G,)
    reverse: BoolArray  # (G,) direction of one-way streets
    on_arterial: BoolArray  # (side ** 2,) by junction


def _build_lattice(radius: float, texture: float, rng: np.random.Generator) -> _Lattice:
    half = int(np.ceil(1.2 * radius)) + 1
    side = 2 * half + 1
    step = np.array([1, side, -1, -side])
    rows, columns = _draw_lines(half, rng), _draw_lines(half, rng)
    first, axis = _list_adjacent(_draw_town_mask(half, radius, rng), step)
    north, east = np.divmod(first, side)
    road_class = np.where(axis == 0, rows.road_class[north], columns.road_class[east])
    built = rng.random(first.size) >= texture * _MISSING[road_class]
    first, axis, north, east, road_class = (values[built] for values in (first, axis, north, east, road_class))
    # All streets of a way share its random draws.
    line, part = np.where(axis == 0, (north, columns.quarter[east]), (east, rows.quarter[north]))
    way = (axis * side + line) * side + part
    draws = rng.random((3, 2 * side * side))[:, way]
    arterial_rows, arterial_columns = rows.road_class < _TERTIARY, columns.road_class < _TERTIARY
    return _Lattice(
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
    """Parallel lines of a lattice in one direction."""

    road_class: IntArray  # (side,)
    quarter: IntArray  # (side,) number of arterials up to and including the line


def _draw_lines(half: int, rng: np.random.Generator) -> _Lines:
    """Return the lines -half..half: a primary road in the middle, and arterials every 4 to 7 blocks."""
    road_class = np.full(2 * half + 1, _RESIDENTIAL)
    road_class[half] = _PRIMARY
    for outwards in (1, -1):
        spacing = rng.integers(4, 8, size=half // 4 + 1)
        arterials = np.cumsum(spacing)
        collectors = (arterials - spacing // 2)[rng.random(spacing.size) < 0.6]
        road_class[half + outwards * collectors[collectors <= half]] = _TERTIARY
        arterials = arterials[arterials <= half]
        fourth = np.arange(1, arterials.size + 1) % 4 == 0
        road_class[half + outwards * arterials] = np.where(fourth, _PRIMARY, _SECONDARY)
    return _Lines(road_class, np.cumsum(road_class < _TERTIARY))


def _draw_town_mask(half: int, radius: float, rng: np.random.Generator) -> BoolArray:
    """Return the mask of the junctions in the town, a disc whose outline is deformed by two random waves."""
    north, east = np.mgrid[-half : half + 1, -half : half + 1]
    angle = np.arctan2(north, east)
    phase = rng.uniform(0.0, 2.0 * np.pi, size=2)
    outline = 1.0 + 0.09 * np.sin(2.0 * angle + phase[0]) + 0.06 * np.sin(3.0 * angle + phase[1])
    return np.asarray(np.hypot(north, east) <= radius * outline).ravel()


def _list_adjacent(inside: BoolArray, step: IntArray) -> tuple[IntArray, IntArray]:
    """Return the first junction and the axis (0 eastwards, 1 northwards) of every pair of adjacent junctions."""
    pairs = [np.flatnonzero(inside[: -step[axis]] & inside[step[axis] :]) for axis in range(2)]
    return np.concatenate(pairs), np.repeat([0, 1], [p.size for p in pairs])


def _list_directions(one_way: BoolArray, reverse: BoolArray) -> tuple[IntArray, BoolArray]:
    """Return the street of every directed street, and True if its direction is forward."""
    forward = np.flatnonzero(~(one_way & reverse))
    backward = np.flatnonzero(~(one_way & ~reverse))
    return np.concatenate([forward, backward]), np.arange(forward.size + backward.size) < forward.size


def _list_turns(tail: IntArray, head: IntArray, heading: IntArray, n_nodes: int) -> IntArray:
    """Return all turns (B, 3) as (from, to, index into TURNS); U-turns exist only in dead ends."""
    departing = np.full((n_nodes, 4), -1)
    departing[tail, heading] = np.arange(tail.size)
    following = departing[head[:, None], (heading[:, None] + np.array([0, 1, 3, 2])) % 4]  # in the order of TURNS
    following[(following[:, :3] >= 0).any(axis=1), 3] = -1
    source, kind = np.nonzero(following >= 0)
    return np.column_stack([source, following[source, kind], kind])


def _find_largest_component(turns: IntArray, n: int) -> tuple[IntArray, IntArray]:
    """Return the directed streets and the renumbered turns of the largest strongly connected component."""
    graph = csr_array((np.ones(len(turns), dtype=np.int8), (turns[:, 0], turns[:, 1])), shape=(n, n))
    _, label = connected_components(graph, directed=True, connection="strong")
    member = label == np.bincount(label).argmax()
    number = np.cumsum(member) - 1
    inner = turns[member[turns[:, 0]] & member[turns[:, 1]]]
    return np.flatnonzero(member), np.column_stack([number[inner[:, 0]], number[inner[:, 1]], inner[:, 2]])


BLOCK_KM = 0.11
_STRETCH, _WAVE, _JITTER, _BOW = 0.22, 0.18, 0.1, 0.2
LIPSCHITZ = _STRETCH + _WAVE + 2.0 * np.sqrt(2.0) * _JITTER + np.sqrt(2.0) * _BOW
"""Upper bound on the Lipschitz constant of the displacement, 0.97. Streets do not cross because it is below 1."""


@dataclass(frozen=True)
class LatticeSegments:
    """S directed segments between consecutive map nodes (junctions and shape points), and E turns."""

    node_xy: FloatArray  # (nodes, 2) km east and north of the centre
    tail: IntArray  # (S,) node
    head: IntArray  # (S,) node
    street: IntArray  # (S,) street of the plan
    turns: IntArray  # (E, 3) segment before and after, and index into TURNS


def split_streets(plan: StreetPlan, n_segments: int, rng: np.random.Generator) -> LatticeSegments | None:
    """Split the streets at shape points into exactly `n_segments` directed segments; return None if that is impossible.

    Both directions of a street share its shape points, so a cut adds one segment to a one-way street and two to others.
    """
    junctions = _place_junctions(plan, rng)
    chord = np.linalg.norm(junctions[plan.ends[:, 1]] - junctions[plan.ends[:, 0]], axis=1)
    directions = np.bincount(plan.street)
    cuts = _draw_cuts(n_segments - plan.street.size, chord, directions == 1, rng)
    if cuts is None:
        return None
    before = len(plan.junctions) + np.cumsum(cuts) - cuts  # node of the first shape point of each street
    pieces = cuts + 1

    def node(street: IntArray, point: IntArray) -> IntArray:
        """Return the map node of point 0 (the first end), 1, ..., or `pieces` (the other end) of a street."""
        inner = before[street] + point - 1
        at_end = np.where(point == 0, plan.ends[street, 0], plan.ends[street, 1])
        return np.where((point == 0) | (point == pieces[street]), at_end, inner)

    count = pieces[plan.street]
    first = np.cumsum(count) - count  # first segment of each directed street
    directed = np.repeat(np.arange(count.size), count)
    step = np.arange(n_segments) - first[directed]
    street, forward, total = plan.street[directed], plan.forward[directed], count[directed]
    inner = np.flatnonzero(step < total - 1)  # segments that end at a shape point, and continue straight
    straight = np.column_stack([inner, inner + 1, np.zeros_like(inner)])
    at_junctions = np.column_stack([(first + count - 1)[plan.turns[:, 0]], first[plan.turns[:, 1]], plan.turns[:, 2]])
    return LatticeSegments(
        node_xy=BLOCK_KM * np.concatenate([junctions, _draw_shapes(plan, junctions, cuts, rng)]) @ _draw_rotation(rng),
        tail=node(street, np.where(forward, step, total - step)),
        head=node(street, np.where(forward, step + 1, total - step - 1)),
        street=street,
        turns=np.concatenate([straight, at_junctions]),
    )


def _place_junctions(plan: StreetPlan, rng: np.random.Generator) -> FloatArray:
    """Return the displaced positions of the junctions, in units of one block length."""
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
    return np.asarray(lattice + stretched + waved + jittered)


def _draw_rotation(rng: np.random.Generator) -> FloatArray:
    """Return the matrix (2, 2) of a random rotation by up to 0.4 radians."""
    tilt = rng.uniform(-0.4, 0.4)
    return np.array([[np.cos(tilt), np.sin(tilt)], [-np.sin(tilt), np.cos(tilt)]])


def _draw_cuts(extra: int, chord: FloatArray, one_way: BoolArray, rng: np.random.Generator) -> IntArray | None:
    """Draw the number of cuts of each street in proportion to its length, so that `extra` segments are added."""
    if extra < 0:
        return None
    weight = chord * np.where(one_way, 1.0, 2.0)
    single = round(extra * float(weight[one_way].sum() / weight.sum()))
    if (extra - single) % 2:
        single += 1 if single < extra else -1
    if single and not one_way.any():
        return None
    cuts = np.zeros(chord.size, dtype=np.int64)
    for mask, total in ((one_way, single), (~one_way, (extra - single) // 2)):
        if total:
            cuts[mask] = rng.multinomial(total, chord[mask] / chord[mask].sum())
    return cuts


def _draw_shapes(plan: StreetPlan, junctions: FloatArray, cuts: IntArray, rng: np.random.Generator) -> FloatArray:
    """Return the shape points of all streets, in block lengths, evenly spaced on arcs between the ends of streets."""
    bow = _BOW * rng.uniform(-1.0, 1.0, size=cuts.size)
    street = np.repeat(np.arange(cuts.size), cuts)
    point = np.arange(street.size) - (np.cumsum(cuts) - cuts)[street] + 1
    t = (point / (cuts[street] + 1.0))[:, None]
    start, end = junctions[plan.ends[street, 0]], junctions[plan.ends[street, 1]]
    sideways = np.abs(plan.junctions[plan.ends[street, 1]] - plan.junctions[plan.ends[street, 0]])[:, ::-1]
    return np.asarray((1.0 - t) * start + t * end + bow[street, None] * t * (1.0 - t) * sideways)


# fmt: off
SECTORS = ("E", "ENE", "NE", "NNE", "N", "NNW", "NW", "WNW", "W", "WSW", "SW", "SSW", "S", "SSE", "SE", "ESE")
# fmt: on
REGIONS = ("centre", *SECTORS)

_LEAST_STATES = 200
_TURNS_PER_STATE = (1.2, 2.8)
_CENTRE_RADIUS = 0.2  # relative to the town's radius
_ATTEMPTS = 100
_SPARE = (0.03, 0.06)  # target and maximum number of removed turns, relative to n_edges - n_states


@dataclass(frozen=True)
class RoadGrid:
    """A random planar road network with exactly `n_states` directed segments and `n_edges` turns.

    Junctions are on a deformed lattice within a disc. There is an arterial every 4 to 7 blocks; every fourth arterial
    is a primary road, and there are collectors between some arterials. Some local streets are missing or one-way.
    Streets are split at shape points. U-turns are possible only in dead ends. The network is strongly connected.

    States are segments, in an order like that of a map extract, and actions are turns (`TURNS`). The features, as in
    the paper's road network, are three one-hot groups multiplied by the length in km: 4 road classes, 3 speed classes
    and 17 regions (the centre and 16 compass sectors). Each group sums to the length, so that two directions of the
    reward are not identifiable. There are no terminal states, and p0 is uniform.

    Parameters
    ----------
    n_states : int
        Number of directed segments, at least 200.
    n_edges : int
        Number of turns, 1.2 to 2.8 per state; the maximum is lower for small towns.
    seed : int
        Seed of the network.
    gamma : float
        Discount in (0, 1].

    Attributes
    ----------
    node_xy : (nodes, 2) coordinates of the map nodes, km east and north of the centre
    tail, head : (S,) map nodes at the start and the end of each segment
    length_km : (S,)
    road_class, speed_class, region : (S,) indices into `ROAD_CLASSES`, `SPEED_CLASSES` and `REGIONS`
    one_way : (S,) True if there is no segment in the opposite direction
    turns : (E, 3) segment before and after, and index into `TURNS`

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
        check_count(self.n_states, "n_states", least=_LEAST_STATES)
        check_count(self.n_edges, "n_edges")
        check_seed(self.seed)
        check_gamma(self.gamma)
        low, high = (round(r * self.n_states) for r in _TURNS_PER_STATE)
        if not low <= self.n_edges <= high:
            rule = f"must lie in {low}..{high}, {_TURNS_PER_STATE[0]} to {_TURNS_PER_STATE[1]} times n_states"
            raise InvalidParameter.of("n_edges", self.n_edges, rule)
        plan, segments = _generate(self.n_states, self.n_edges, self.seed)
        start, end = segments.node_xy[segments.tail], segments.node_xy[segments.head]
        arrays = {
            "node_xy": segments.node_xy,
            "tail": segments.tail,
            "head": segments.head,
            "length_km": np.linalg.norm(end - start, axis=1),
            "road_class": plan.road_class[segments.street],
            "speed_class": plan.speed_class[segments.street],
            "region": _assign_regions((start + end) / 2.0, _CENTRE_RADIUS * plan.radius * BLOCK_KM),
            "one_way": (np.bincount(plan.street) == 1)[segments.street],
            "turns": segments.turns,
        }
        for name, array in arrays.items():
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    @property
    def start_xy(self) -> FloatArray:
        """Start (S, 2) of each segment, km east and north of the centre."""
        return self.node_xy[self.tail]

    @property
    def end_xy(self) -> FloatArray:
        """End (S, 2) of each segment, km east and north of the centre."""
        return self.node_xy[self.head]

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the 24 features: km on each road class, at each speed limit, in each region."""
        return tuple(f"km {name}" for name in (*ROAD_CLASSES, *SPEED_CLASSES, *REGIONS))

    @cached_property
    def mdp(self) -> MDP:
        """The network as a deterministic MDP without terminal states, with sparse features."""
        first_speed = len(ROAD_CLASSES)
        first_region = first_speed + len(SPEED_CLASSES)
        columns = np.column_stack([self.road_class, first_speed + self.speed_class, first_region + self.region])
        features = csr_array(
            (np.repeat(self.length_km, 3), columns.ravel(), np.arange(0, 3 * self.n_states + 1, 3)),
            shape=(self.n_states, first_region + len(REGIONS)),
        )
        src, dst, kind = self.turns.T
        names, terminal = self.feature_names, np.zeros(self.n_states, dtype=np.bool_)
        return MDP.from_edges(
            src, dst, self.n_states, kind, None, None, self.gamma, features, None, None, terminal, feature_names=names
        )

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw the streets, coloured by road class, on `ax` or in a new figure; return the axes."""
        from limiirl.worlds.plotting import draw_roadgrid

        return draw_roadgrid(self, ax)


def _assign_regions(middle: FloatArray, centre_km: float) -> IntArray:
    """Return the index into REGIONS of each point: the centre, or the sector of the nearest compass direction."""
    east, north = middle.T
    sixteenths = np.arctan2(north, east) / (2.0 * np.pi) * len(SECTORS)
    sector = np.rint(sixteenths).astype(np.int64) % len(SECTORS)
    return np.where(np.hypot(east, north) <= centre_km, 0, 1 + sector)


def _generate(n_states: int, n_edges: int, seed: int) -> tuple[StreetPlan, LatticeSegments]:
    """Generate a town with exactly `n_states` segments and `n_edges` turns.

    Splitting a street adds as many turns as segments, so that the surplus of turns over segments depends only on the
    plan. The radius is corrected until the surplus is slightly too large; then random turns are removed until the
    surplus is exact, and streets are split until the number of segments is exact. If a plan has more streets than
    `n_states`, the next plan has fewer missing and fewer one-way streets: with more turns per street, fewer streets
    give the same surplus.
    """
    surplus = n_edges - n_states
    # A plan has about 3 - 0.64 * texture turns per directed street; aim at 20 % more segments than streets.
    texture = float(np.clip((2.0 - 1.2 * surplus / n_states) / 0.64, 0.03, 1.0))
    radius = np.sqrt(surplus / (np.pi * 4.0))
    for attempt in range(_ATTEMPTS):
        rng = np.random.default_rng((seed, attempt))
        plan = plan_streets(radius, texture, rng)
        spare = plan.surplus - surplus
        if 0 <= spare <= _SPARE[1] * surplus + 4:
            restricted = _remove_turns(plan, spare, rng)
            segments = None if restricted is None else split_streets(restricted, n_states, rng)
            if segments is not None:
                return plan, segments
        if plan.street.size > n_states:
            texture *= 0.8
        radius *= np.sqrt((1.0 + _SPARE[0]) * surplus / max(plan.surplus, 1))
    rule = f"must allow a network of {n_states} segments (none was generated in {_ATTEMPTS} attempts)"
    raise InvalidParameter.of("n_edges", n_edges, rule, remedy="Use 1.5 to 2.2 turns per segment, or more segments.")


def _remove_turns(plan: StreetPlan, n: int, rng: np.random.Generator) -> StreetPlan | None:
    """Remove n random turns; return None if fewer than n can be removed.

    Turns of the breadth-first trees from and to the first street are not removed, so that the network stays strongly
    connected.
    """
    size = plan.street.size
    number = np.arange(1, len(plan.turns) + 1)  # from 1, because a sparse graph stores no zeros
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
