"""Features of road segments and turns, and the MDP of drivers: the paper's 24 dimensions, or a choice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from limiirl._typing import FloatArray
from limiirl.errors import InvalidNetwork, InvalidParameter
from limiirl.mdp import MDP
from limiirl.roads.geometry import distance_m, regions
from limiirl.worlds import REGIONS

if TYPE_CHECKING:
    from limiirl.roads.network import RoadNetwork


REST = "*"
"""In a class group: every class that no group names."""
CLASS_GROUPS: Mapping[str, tuple[str, ...]] = {
    "highway": ("motorway", "trunk"),
    "major road": ("primary", "secondary"),
    "minor road": ("tertiary", "unclassified"),
    "local street": ("residential", "living_street", REST),
}
"""The four classes of road that "paper" tells apart; a link road belongs to the class that it links."""
SPEED_GROUPS = (50.0,)
"""Where "paper" divides the speed limits, in km/h; unknown limits are a group of their own."""
LANES_GROUPS = (1.0, 2.0)
"""Where `lanes=True` divides the numbers of lanes."""
TURNS = ("left turns", "right turns", "sharp turns")
"""The edge features of `turns=True`: how often one turns, at nodes where three or more streets meet."""


def _between(bounds: Sequence[float], unit: str, unknown: str) -> list[str]:
    """Return the names of the groups that ascending bounds make, and of the unknown."""
    if len(bounds) == 0:
        return [f"any {unit}", unknown]
    lower = [None, *bounds[:-1]]
    steps = [
        f"up to {b:g} {unit}" if a is None else f"{a:g} to {b:g} {unit}" for a, b in zip(lower, bounds, strict=True)
    ]
    return [name.replace(" 1 lanes", " 1 lane") for name in (*steps, f"over {bounds[-1]:g} {unit}", unknown)]


@dataclass(frozen=True, eq=False)
class FeatureChoice:
    """Which features a driver's reward sees. All but turns and extras are lengths in km, in groups.

    Every group divides the same length: its features sum to a segment's km. Between two groups one direction of the
    reward is therefore not identifiable: raise all weights of one group and lower all of the other by as much, and no
    trip changes its reward. With G groups there are G - 1 such directions; the model's `null_directions` lists them.

    Parameters
    ----------
    class_groups : mapping of a name to road classes, or None
        A class that no group names is an error, unless one group holds "*", which takes the rest. "primary" also
        stands for "primary_link" unless some group names the link.
    speed_groups : sequence of km/h, ascending, or None
        Each limit but the highest group's is the upper bound of a group, inclusive; unknown limits are one more group.
    lanes : bool or sequence of numbers, ascending
        Likewise by number of lanes; True stands for 1, 2, more and unknown. No bound, (), leaves any and unknown.
    regions : bool
        The centre and 16 compass points, `limiirl.roads.regions`.
    turns : bool
        Numbers of left, right and sharp (over 135 degrees, and U) turns, as edge features.
    length : bool
        The total length, a group of one.
    extra : mapping of a name to (S,), optional
        Features of your own. One whose name begins with "km" must not be longer than the segment: a guard against
        metres.
    centre : (lat, lon), optional
        Of the regions; the network's by default.
    radius_km : float
        Of the centre.
    corrected : bool
        Compass points in metres, not the paper's in degrees.
    check_units : bool
        False to accept lengths that do not look like metres.

    Examples
    --------
    >>> choice = FeatureChoice(regions=False, turns=True)
    >>> choice.names
    ('km of highway', 'km of major road', 'km of minor road', 'km of local street', 'km at up to 50 km/h',
     'km at over 50 km/h', 'km at unknown speed', 'left turns', 'right turns', 'sharp turns')
    >>> choice.groups["speed"]
    (4, 5, 6)
    """

    class_groups: Mapping[str, Sequence[str]] | None = field(default_factory=lambda: dict(CLASS_GROUPS))
    speed_groups: Sequence[float] | None = SPEED_GROUPS
    lanes: bool | Sequence[float] = False
    regions: bool = True
    turns: bool = False
    length: bool = False
    extra: Mapping[str, ArrayLike] | None = None
    centre: tuple[float, float] | None = None
    radius_km: float = 2.0
    corrected: bool = False
    check_units: bool = True

    def __post_init__(self) -> None:
        """Check the bounds of groups, and that no class is in two of them."""
        for name, bounds in (("speed_groups", self.speed_groups), ("lanes", self.lanes_bounds)):
            values = np.asarray(() if bounds is None else bounds, dtype=np.float64)
            if values.ndim != 1 or not (np.all(np.isfinite(values)) and np.all(np.diff(values) > 0.0)):
                raise InvalidParameter(
                    f"{name} must be finite and ascend; got {bounds!r}.", parameter=name, value=bounds
                )
        listed = [name for group in (self.class_groups or {}).values() for name in group]
        twice = sorted({name for name in listed if listed.count(name) > 1})
        if twice:
            raise InvalidParameter(
                f"class_groups must name each road class once; {twice[0]!r} is in two groups.",
                parameter="class_groups",
                value=twice[0],
            )
        if not self.names:
            raise InvalidParameter("A FeatureChoice needs at least one feature; everything is switched off.")
        same = sorted({name for name in self.names if self.names.count(name) > 1})
        if same:
            raise InvalidParameter(
                f"Two features are both named {same[0]!r}. Give the one of `extra` another name.",
                parameter="extra",
                value=same[0],
            )

    def __eq__(self, other: object) -> bool:
        """Whether all that is chosen is the same, the numbers of `extra` with it."""
        return self._content() == other._content() if isinstance(other, FeatureChoice) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._content())

    def _content(self) -> tuple[object, ...]:
        """Return all fields as values that can be compared and hashed; the order of groups is that of the features."""
        extra = {name: np.asarray(values, dtype=np.float64) for name, values in (self.extra or {}).items()}
        return (
            None if self.class_groups is None else tuple((k, tuple(names)) for k, names in self.class_groups.items()),
            None if self.speed_groups is None else tuple(self.speed_groups),
            None if self.lanes_bounds is None else tuple(self.lanes_bounds),
            tuple((name, values.shape, (values + 0.0).tobytes()) for name, values in extra.items()),
            None if self.centre is None else tuple(self.centre),
            (self.regions, self.turns, self.length, self.radius_km, self.corrected, self.check_units),
        )

    @property
    def lanes_bounds(self) -> Sequence[float] | None:
        """Where the numbers of lanes are divided; None without `lanes`."""
        return (LANES_GROUPS if self.lanes else None) if isinstance(self.lanes, bool) else self.lanes

    @property
    def groups_by_name(self) -> dict[str, tuple[str, ...]]:
        """The names of features in each group, in order."""
        found: dict[str, tuple[str, ...]] = {}
        if self.class_groups:
            found["road class"] = tuple(f"km of {name}" for name in self.class_groups)
        if self.speed_groups is not None:
            found["speed"] = tuple(f"km at {name}" for name in _between(self.speed_groups, "km/h", "unknown speed"))
        if self.lanes_bounds is not None:
            found["lanes"] = tuple(f"km with {name}" for name in _between(self.lanes_bounds, "lanes", "unknown lanes"))
        if self.regions:
            found["region"] = tuple(f"km in {name}" for name in REGIONS)
        if self.length:
            found["length"] = ("km",)
        if self.extra:
            found["extra"] = tuple(self.extra)
        if self.turns:
            found["turns"] = TURNS
        return found

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features, in the order of the MDP's."""
        return tuple(name for names in self.groups_by_name.values() for name in names)

    @property
    def groups(self) -> dict[str, tuple[int, ...]]:
        """The indices of each group's features, by the group's name: "road class", "speed", "region" and so on."""
        places: dict[str, tuple[int, ...]] = {}
        start = 0
        for group, names in self.groups_by_name.items():
            places[group] = tuple(range(start, start + len(names)))
            start += len(names)
        return places


PAPER = FeatureChoice()
"""The paper's 24: 4 classes, 3 speeds and 17 regions, times km."""
PLAIN = FeatureChoice(speed_groups=None, regions=False)
"""Km of the 4 classes, no more."""
_BY_NAME = {"paper": PAPER, "plain": PLAIN}


def choose_features(features: str | FeatureChoice) -> FeatureChoice:
    """Return a choice by its name, "paper" or "plain", or as it is.

    Examples
    --------
    >>> len(choose_features("paper").names), len(choose_features("plain").names)
    (24, 4)
    """
    if isinstance(features, FeatureChoice):
        return features
    if features not in _BY_NAME:
        raise InvalidParameter(
            f"features must be a FeatureChoice, 'paper' or 'plain'; got {features!r}.",
            parameter="features",
            value=features,
        )
    return _BY_NAME[features]


STRAIGHT = 45.0
"""Up to so many degrees a turn is straight on."""
_SHARP = 135.0
_MEDIAN_M = (1.0, 5000.0)
_STRETCH = (0.5, 3.0)  # of the length over the straight line; feet would give 3.3 and kilometres 0.001


def driver_mdp(network: RoadNetwork, features: str | FeatureChoice = "paper", gamma: float = 1.0) -> MDP:
    """Return the MDP of drivers: a state a segment, an action a turn, p0 uniform over all segments.

    Edge e of the MDP is turn e of the network. A segment without a turn onward is terminal.

    Examples
    --------
    >>> from limiirl.roads import RoadNetwork
    >>> ring = RoadNetwork.from_segments([41.15, 41.16, 41.16], [-8.63, -8.63, -8.62], [0, 1, 2], [1, 2, 0])
    >>> mdp = driver_mdp(ring, "plain")
    >>> mdp.n_states, mdp.n_edges, mdp.n_features
    (3, 3, 4)
    """
    choice = choose_features(features)
    n = network.n_segments
    # Numbered in the order of the turns, actions keep the MDP's edges in that order.
    return MDP.from_edges(
        network.turn_from,
        network.turn_to,
        n_states=n,
        p0=np.full(n, 1.0 / n),
        gamma=gamma,
        state_features=state_features(network, choice) if set(choice.groups) != {"turns"} else None,
        edge_features=turn_features(network) if choice.turns else None,
        feature_names=choice.names,
    )


def state_features(network: RoadNetwork, features: str | FeatureChoice = "paper") -> sparse.csr_array:
    """Return the features (S, d) of segments, those of turns left out.

    Examples
    --------
    >>> from limiirl.roads import RoadNetwork
    >>> ring = RoadNetwork.from_segments([41.15, 41.16, 41.16], [-8.63, -8.63, -8.62], [0, 1, 2], [1, 2, 0])
    >>> state_features(ring, FeatureChoice(regions=False)).toarray().round(1)[0]
    array([0. , 0. , 0. , 1.1, 0. , 0. , 1.1])
    """
    choice = choose_features(features)
    if choice.check_units:
        check_units(network)
    members: list[tuple[NDArray[np.int64], int]] = []
    if choice.class_groups:
        members.append((_class_member(network, choice.class_groups), len(choice.class_groups)))
    if choice.speed_groups is not None:
        members.append((_bounded_member(network.speed_kmh, choice.speed_groups), len(choice.speed_groups) + 2))
    if choice.lanes_bounds is not None:
        members.append((_bounded_member(network.lanes, choice.lanes_bounds), len(choice.lanes_bounds) + 2))
    if choice.regions:
        found = regions(network, choice.centre, choice.radius_km, corrected=choice.corrected)
        members.append((found, len(REGIONS)))
    if choice.length:
        members.append((np.zeros(network.n_segments, dtype=np.int64), 1))
    km, n = network.length_m / 1000.0, network.n_segments
    blocks = [sparse.csr_array((km, member, np.arange(n + 1)), shape=(n, size)) for member, size in members]
    if choice.extra:
        blocks.append(sparse.csr_array(_extra(network, choice.extra, check=choice.check_units)))
    if not blocks:
        return sparse.csr_array((n, 0))
    return sparse.csr_array(sparse.hstack(blocks, format="csr"))


def turn_features(network: RoadNetwork) -> FloatArray:
    """Return the features `TURNS` (E, 3) of turns: 1 where a turn is to the left, to the right, or sharp.

    Only where three or more streets meet: where a street bends, nobody turns. Up to 45 degrees is straight on; over
    135 degrees is sharp, whichever the side, and so is a U-turn.

    Examples
    --------
    >>> from limiirl.roads import RoadNetwork
    >>> cross = RoadNetwork.from_segments([0.0, 0.01, 0.01, 0.01], [0.0, 0.0, -0.01, 0.01], [0, 1, 1], [1, 2, 3])
    >>> turn_features(cross)
    array([[1., 0., 0.],
           [0., 1., 0.]])
    """
    pairs = np.concatenate([np.stack([network.tail, network.head], 1), np.stack([network.head, network.tail], 1)])
    streets = np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)
    meeting = np.bincount(streets[:, 0], minlength=network.n_nodes)
    back = network.head[network.turn_to] == network.tail[network.turn_from]
    counts = (meeting[network.head[network.turn_from]] >= 3) | back
    angle = network.turn_angle
    sharp = (np.abs(angle) > _SHARP) | back
    left, right = (angle < -STRAIGHT) & ~sharp, (angle > STRAIGHT) & ~sharp
    return np.stack([left & counts, right & counts, sharp & counts], axis=1).astype(np.float64)


def check_units(network: RoadNetwork) -> None:
    """Raise `InvalidNetwork` where `length_m` cannot be metres.

    The median length must lie between 1 m and 5 km, and be between half and three times the straight line between the
    nodes. Weights scale inversely with the features, so that a wrong unit would pass unnoticed into every result.

    Examples
    --------
    >>> from limiirl.roads import RoadNetwork
    >>> check_units(RoadNetwork.from_segments([0.0, 0.01], [0.0, 0.0], [0], [1]))
    """
    tail, head = network.tail, network.head
    straight = distance_m(network.lat[tail], network.lon[tail], network.lat[head], network.lon[head])
    apart = straight > 0.0
    stretch = float(np.median(network.length_m[apart] / straight[apart])) if apart.any() else 1.0
    median = float(np.median(network.length_m))
    if not (_MEDIAN_M[0] <= median <= _MEDIAN_M[1] and _STRETCH[0] <= stretch <= _STRETCH[1]):
        raise InvalidNetwork(
            f"length_m does not look like metres: the median segment has {median:.4g}, {stretch:.3g} times the "
            "straight line between its nodes in metres. Convert it, or pass FeatureChoice(check_units=False).",
            parameter="length_m",
            value=median,
        )


def _bounded_member(values: FloatArray, bounds: Sequence[float]) -> NDArray[np.int64]:
    """Return the group (S,) of each value: bounds belong to the group below them, and NaN to the last."""
    group = np.searchsorted(np.asarray(bounds, dtype=np.float64), values, side="left")
    return np.where(np.isnan(values), len(bounds) + 1, group).astype(np.int64)


def _class_member(network: RoadNetwork, groups: Mapping[str, Sequence[str]]) -> NDArray[np.int64]:
    home = {name: k for k, names in enumerate(groups.values()) for name in names}
    index = np.empty(len(network.class_names), dtype=np.int64)
    used = np.bincount(network.road_class, minlength=index.size)
    for k, name in enumerate(network.class_names):
        place = home.get(name, home.get(name.removesuffix("_link"), home.get(REST, -1)))
        if place < 0 and used[k]:
            raise InvalidParameter(
                f"class_groups has no place for {name!r}, the class of {used[k]} segments. Name it in a group, or put "
                f"{REST!r} into the one that takes the rest.",
                parameter="class_groups",
                value=name,
            )
        index[k] = max(place, 0)
    return index[network.road_class]


def _extra(network: RoadNetwork, extra: Mapping[str, Any], *, check: bool) -> FloatArray:
    columns = []
    for name, values in extra.items():
        column = np.asarray(values, dtype=np.float64)
        if column.shape != (network.n_segments,):
            raise InvalidParameter(
                f"extra[{name!r}] must have shape ({network.n_segments},); it has {column.shape}.",
                parameter="extra",
                value=column.shape,
            )
        if not np.all(np.isfinite(column)):
            i = int(np.argmin(np.isfinite(column)))
            raise InvalidParameter(
                f"extra[{name!r}][{i}] is {column[i]}; features must be finite. Give a number there.",
                parameter="extra",
                value=float(column[i]),
                index=i,
            )
        longer = np.abs(column) > network.length_m / 1000.0 * (1.0 + 1e-9)
        if check and name.startswith("km") and longer.any():
            i = int(np.argmax(longer))
            raise InvalidParameter(
                f"extra[{name!r}][{i}] is {column[i]:g} km on a segment of {network.length_m[i] / 1000.0:g} km. Is it "
                "in metres? Divide by 1000, or choose a name that does not begin with 'km'.",
                parameter="extra",
                value=float(column[i]),
                index=i,
            )
        columns.append(column)
    return np.stack(columns, axis=1)
