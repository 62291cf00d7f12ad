"""RoadGrid: a synthetic town of any size; its states are directed road segments, its actions turns."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order

from limiirl.errors import InvalidParameter
from limiirl.mdp import MDP
from limiirl.worlds.parameters import check_count, check_gamma
from limiirl.worlds.segments import BLOCK_KM, FloatArray, Segments, cut_streets
from limiirl.worlds.streets import ROAD_CLASSES, SPEED_CLASSES, BoolArray, IntArray, StreetPlan, plan_streets

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
        check_count("n_states", self.n_states, _LEAST_STATES, "A smaller town has no arterials.")
        check_count("n_edges", self.n_edges, 1, "It counts the turns.")
        check_count("seed", self.seed, 0, "Pass a nonnegative integer.")
        check_gamma(self.gamma)
        low, high = (round(r * self.n_states) for r in _TURNS_A_STATE)
        if not low <= self.n_edges <= high:
            raise InvalidParameter(
                f"n_edges must be {_TURNS_A_STATE[0]} to {_TURNS_A_STATE[1]} times n_states; got {self.n_edges} turns "
                f"for {self.n_states} states, {self.n_edges / self.n_states:.4f} each. Ask for {low} to {high} turns."
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
        from limiirl.worlds.drawing import draw_roadgrid

        return draw_roadgrid(self, ax)


def _region(middle: FloatArray, centre_km: float) -> IntArray:
    """Index into REGIONS of each point: the centre, or the nearest of the 16 compass directions."""
    east, north = middle.T
    sixteenths = np.arctan2(north, east) / (2.0 * np.pi) * len(SECTORS)
    sector = np.rint(sixteenths).astype(np.int64) % len(SECTORS)
    return np.where(np.hypot(east, north) <= centre_km, 0, 1 + sector)


def _generate(n_states: int, n_edges: int, seed: int) -> tuple[StreetPlan, Segments]:
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
        f"{_ATTEMPTS} attempts. Ask for 1.5 to 2.2 turns a segment, or for more segments."
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
