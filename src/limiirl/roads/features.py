"""Features of road segments and turns (the 24 features of the paper, or a custom choice), and the MDP of a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from limiirl._typing import FloatArray
from limiirl._validation import check_each
from limiirl.errors import InvalidNetwork, InvalidParameter
from limiirl.mdp import MDP
from limiirl.roads.geometry import distance_m, regions
from limiirl.worlds import REGIONS

if TYPE_CHECKING:
    from limiirl.roads.network import RoadNetwork


REST = "*"
"""Denotes all road classes that are in no other group."""
CLASS_GROUPS: Mapping[str, tuple[str, ...]] = {
    "highway": ("motorway", "trunk"),
    "major road": ("primary", "secondary"),
    "minor road": ("tertiary", "unclassified"),
    "local street": ("residential", "living_street", REST),
}
"""Default groups of road classes; a link road belongs to the class that it links."""
SPEED_GROUPS = (50.0,)
"""Default upper bounds of the speed groups, in km/h; unknown limits form a separate group."""
LANES_GROUPS = (1.0, 2.0)
"""Upper bounds of the lane groups with `lanes=True`."""
TURNS = ("left turns", "right turns", "sharp turns")
"""Edge features with `turns=True`; turns are counted where three or more streets meet."""
CHOICES = ("log of choices",)
"""Edge feature with `choices=True`: the logarithm of the number of turns from a segment."""


def _name_groups(bounds: Sequence[float], unit: str, unknown: str) -> list[str]:
    """Return the names of the groups between ascending bounds, and of the unknown group."""
    if len(bounds) == 0:
        return [f"any {unit}", unknown]
    lower = [None, *bounds[:-1]]
    steps = [
        f"up to {b:g} {unit}" if a is None else f"{a:g} to {b:g} {unit}" for a, b in zip(lower, bounds, strict=True)
    ]
    return [name.replace(" 1 lanes", " 1 lane") for name in (*steps, f"over {bounds[-1]:g} {unit}", unknown)]


@dataclass(frozen=True, eq=False)
class FeatureChoice:
    """Features of the reward, in groups. All features are lengths in km, except for turns and extra features.

    The features of a group of lengths sum to the length of the segment. With G such groups, G - 1 directions of the
    reward are therefore not identifiable: adding a constant to all weights of one group and subtracting it from all
    weights of another group does not change the reward of any trip. The attribute `null_directions` of a model
    contains these directions.

    Parameters
    ----------
    class_groups : mapping of name to road classes, or None
        Every class must be in a group; "*" denotes all other classes. A class includes its links ("primary_link")
        unless a group contains the links.
    speed_groups : sequence of float, ascending, or None
        Inclusive upper bounds of the groups, in km/h. Higher limits form another group, and unknown limits form the
        last.
    lanes : bool or sequence of float, ascending
        Upper bounds of the groups by number of lanes. True means (1, 2); () means one group for all known numbers.
    regions : bool
        Include lengths by region; see `limiirl.roads.regions`.
    turns : bool
        Edge features that count left turns, right turns, and sharp turns (above 135 degrees, and U-turns).
    choices : bool
        Edge feature: the logarithm of the number of turns from the segment. With a coefficient of -1 and no other
        features, all turns from a segment are equally likely. `DestinationMaxEnt` predicts much better with it (ADR
        0025), because the sum over paths otherwise grows with every junction.
    length : bool
        Total length, as a group with one feature.
    extra : mapping of name to (S,), optional
        Custom features. If the name begins with "km", values above the length of the segment are rejected.
    centre : (lat, lon), optional
        Centre of the regions; by default the centre of the network.
    radius_km : float
        Radius of the central region.
    corrected : bool
        As in `limiirl.roads.regions`.
    check_units : bool
        Raise `InvalidNetwork` if lengths are probably not in metres.

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
    choices: bool = False
    length: bool = False
    extra: Mapping[str, ArrayLike] | None = None
    centre: tuple[float, float] | None = None
    radius_km: float = 2.0
    corrected: bool = False
    check_units: bool = True

    def __post_init__(self) -> None:
        for name, bounds in (("speed_groups", self.speed_groups), ("lanes", self.lanes_bounds)):
            values = np.asarray(() if bounds is None else bounds, dtype=np.float64)
            if values.ndim != 1 or not (np.all(np.isfinite(values)) and np.all(np.diff(values) > 0.0)):
                raise InvalidParameter.of(name, bounds, "must be finite and ascending")
        listed = [name for group in (self.class_groups or {}).values() for name in group]
        twice = sorted({name for name in listed if listed.count(name) > 1})
        if twice:
            raise InvalidParameter.of("class_groups", twice[0], "must contain each road class at most once")
        if not self.names:
            raise InvalidParameter("A FeatureChoice must have at least one feature; all are disabled.")
        same = sorted({name for name in self.names if self.names.count(name) > 1})
        if same:
            raise InvalidParameter.of("extra", same[0], "must not contain the name of another feature")

    def __eq__(self, other: object) -> bool:
        """Compare all fields, including the values of `extra`."""
        return self._content() == other._content() if isinstance(other, FeatureChoice) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._content())

    def _content(self) -> tuple[object, ...]:
        """Return all fields as hashable values."""
        extra = {name: np.asarray(values, dtype=np.float64) for name, values in (self.extra or {}).items()}
        return (
            None if self.class_groups is None else tuple((k, tuple(names)) for k, names in self.class_groups.items()),
            None if self.speed_groups is None else tuple(self.speed_groups),
            None if self.lanes_bounds is None else tuple(self.lanes_bounds),
            tuple((name, values.shape, (values + 0.0).tobytes()) for name, values in extra.items()),
            None if self.centre is None else tuple(self.centre),
            (self.regions, self.turns, self.choices, self.length, self.radius_km, self.corrected, self.check_units),
        )

    @property
    def lanes_bounds(self) -> Sequence[float] | None:
        """Upper bounds of the lane groups; None if `lanes` is False."""
        return (LANES_GROUPS if self.lanes else None) if isinstance(self.lanes, bool) else self.lanes

    @property
    def groups_by_name(self) -> dict[str, tuple[str, ...]]:
        """Names of the features in each group, in order."""
        groups: dict[str, tuple[str, ...]] = {}
        if self.class_groups:
            groups["road class"] = tuple(f"km of {name}" for name in self.class_groups)
        if self.speed_groups is not None:
            groups["speed"] = tuple(
                f"km at {name}" for name in _name_groups(self.speed_groups, "km/h", "unknown speed")
            )
        if self.lanes_bounds is not None:
            groups["lanes"] = tuple(
                f"km with {name}" for name in _name_groups(self.lanes_bounds, "lanes", "unknown lanes")
            )
        if self.regions:
            groups["region"] = tuple(f"km in {name}" for name in REGIONS)
        if self.length:
            groups["length"] = ("km",)
        if self.extra:
            groups["extra"] = tuple(self.extra)
        if self.turns:
            groups["turns"] = TURNS
        if self.choices:
            groups["choices"] = CHOICES
        return groups

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features, in the order of the columns of the MDP."""
        return tuple(name for names in self.groups_by_name.values() for name in names)

    @property
    def groups(self) -> dict[str, tuple[int, ...]]:
        """Indices of the features of each group, by group name ("road class", "speed", "region")."""
        indices: dict[str, tuple[int, ...]] = {}
        start = 0
        for group, names in self.groups_by_name.items():
            indices[group] = tuple(range(start, start + len(names)))
            start += len(names)
        return indices


PAPER = FeatureChoice()
"""The 24 features of the paper: km in 4 groups of road classes, 3 of speed limits and 17 regions."""
PLAIN = FeatureChoice(speed_groups=None, regions=False)
"""Km in the 4 groups of road classes."""
_BY_NAME = {"paper": PAPER, "plain": PLAIN}


def choose_features(features: str | FeatureChoice) -> FeatureChoice:
    """Return the feature choice named "paper" or "plain", or the given choice.

    Examples
    --------
    >>> len(choose_features("paper").names), len(choose_features("plain").names)
    (24, 4)
    """
    if isinstance(features, FeatureChoice):
        return features
    if features not in _BY_NAME:
        raise InvalidParameter.of("features", features, "must be a FeatureChoice, 'paper' or 'plain'")
    return _BY_NAME[features]


STRAIGHT = 45.0
"""Maximum angle of a turn that is straight on, in degrees."""
_SHARP = 135.0
_MEDIAN_M = (1.0, 5000.0)
_STRETCH = (0.5, 3.0)  # length divided by the straight-line distance; 3.3 for lengths in feet, 0.001 for km


def driver_mdp(network: RoadNetwork, features: str | FeatureChoice = "paper", gamma: float = 1.0) -> MDP:
    """Return the MDP of a network: one state per segment, one action per turn, and a uniform p0.

    Edge e of the MDP is turn e of the network. Segments without an outgoing turn are terminal.
    """
    choice = choose_features(features)
    n = network.n_segments
    # Without actions, `from_edges` numbers the edges of a state in the given order, the order of the turns.
    return MDP.from_edges(
        network.turn_from,
        network.turn_to,
        n_states=n,
        p0=np.full(n, 1.0 / n),
        gamma=gamma,
        state_features=state_features(network, choice) if set(choice.groups) - {"turns", "choices"} else None,
        edge_features=_edge_features(network, choice) if choice.turns or choice.choices else None,
        feature_names=choice.names,
    )


def state_features(network: RoadNetwork, features: str | FeatureChoice = "paper") -> sparse.csr_array:
    """Return the features (S, d) of the segments, without turn features."""
    choice = choose_features(features)
    if choice.check_units:
        check_units(network)
    members: list[tuple[NDArray[np.int64], int]] = []
    if choice.class_groups:
        members.append((_index_by_class(network, choice.class_groups), len(choice.class_groups)))
    if choice.speed_groups is not None:
        members.append((_index_by_bounds(network.speed_kmh, choice.speed_groups), len(choice.speed_groups) + 2))
    if choice.lanes_bounds is not None:
        members.append((_index_by_bounds(network.lanes, choice.lanes_bounds), len(choice.lanes_bounds) + 2))
    if choice.regions:
        region = regions(network, choice.centre, choice.radius_km, corrected=choice.corrected)
        members.append((region, len(REGIONS)))
    if choice.length:
        members.append((np.zeros(network.n_segments, dtype=np.int64), 1))
    km, n = network.length_m / 1000.0, network.n_segments
    blocks = [sparse.csr_array((km, member, np.arange(n + 1)), shape=(n, size)) for member, size in members]
    if choice.extra:
        blocks.append(sparse.csr_array(_stack_extra(network, choice.extra, check=choice.check_units)))
    if not blocks:
        return sparse.csr_array((n, 0))
    return sparse.csr_array(sparse.hstack(blocks, format="csr"))


def turn_features(network: RoadNetwork) -> FloatArray:
    """Return the turn features `TURNS` (E, 3), which are 1 for a left, right or sharp turn.

    Angles up to 45 degrees are straight on; turns above 135 degrees and U-turns are sharp. Except for U-turns, turns
    are counted only where three or more streets meet.
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


def choice_features(network: RoadNetwork) -> FloatArray:
    """Return the feature `CHOICES` (E, 1): the logarithm of the number of turns from the segment of each turn."""
    n_turns = np.bincount(network.turn_from, minlength=network.n_segments)
    return np.asarray(np.log(n_turns[network.turn_from])[:, None])


def _edge_features(network: RoadNetwork, choice: FeatureChoice) -> FloatArray:
    parts = ((turn_features, choice.turns), (choice_features, choice.choices))
    return np.hstack([part(network) for part, used in parts if used])


def check_units(network: RoadNetwork) -> None:
    """Raise `InvalidNetwork` if `length_m` is probably not in metres.

    The median length must lie in [1 m, 5 km], and the median ratio of length to straight-line distance in [0.5, 3].
    """
    tail, head = network.tail, network.head
    straight = distance_m(network.lat[tail], network.lon[tail], network.lat[head], network.lon[head])
    apart = straight > 0.0
    stretch = float(np.median(network.length_m[apart] / straight[apart])) if apart.any() else 1.0
    median = float(np.median(network.length_m))
    if not (_MEDIAN_M[0] <= median <= _MEDIAN_M[1] and _STRETCH[0] <= stretch <= _STRETCH[1]):
        raise InvalidNetwork(
            f"length_m must be in metres; its median is {median:.4g}, and the median ratio to the straight-line "
            f"distance is {stretch:.3g}. Convert length_m, or pass FeatureChoice(check_units=False).",
            parameter="length_m",
            value=median,
        )


def _index_by_bounds(values: FloatArray, bounds: Sequence[float]) -> NDArray[np.int64]:
    """Return the group (S,) of each value; upper bounds are inclusive, and NaN belongs to the last group."""
    group = np.searchsorted(np.asarray(bounds, dtype=np.float64), values, side="left")
    return np.where(np.isnan(values), len(bounds) + 1, group).astype(np.int64)


def _index_by_class(network: RoadNetwork, groups: Mapping[str, Sequence[str]]) -> NDArray[np.int64]:
    home = {name: k for k, names in enumerate(groups.values()) for name in names}
    index = np.empty(len(network.class_names), dtype=np.int64)
    used = np.bincount(network.road_class, minlength=index.size)
    for k, name in enumerate(network.class_names):
        group = home.get(name, home.get(name.removesuffix("_link"), home.get(REST, -1)))
        if group < 0 and used[k]:
            rule = f"must contain every road class of the network ({used[k]} segments have this class)"
            remedy = f"Add the class to a group, or add {REST!r}, which denotes all other classes."
            raise InvalidParameter.of("class_groups", name, rule, remedy=remedy)
        index[k] = max(group, 0)
    return index[network.road_class]


def _stack_extra(network: RoadNetwork, extra: Mapping[str, Any], *, check: bool) -> FloatArray:
    columns = []
    for name, values in extra.items():
        column = np.asarray(values, dtype=np.float64)
        if column.shape != (network.n_segments,):
            rule = f"of {name!r} must have shape ({network.n_segments},)"
            raise InvalidParameter.of("extra", column.shape, rule)
        check_each(np.isfinite(column), column, "extra", f"of {name!r} must be finite")
        longer = np.abs(column) > network.length_m / 1000.0 * (1.0 + 1e-9)
        if check and name.startswith("km") and longer.any():
            i = int(np.argmax(longer))
            message = (
                f"extra[{name!r}][{i}] is {column[i]:g} km, but the length of the segment is "
                f"{network.length_m[i] / 1000.0:g} km. Divide values in metres by 1000; if they are not lengths, "
                "choose a name that does not begin with 'km'."
            )
            raise InvalidParameter(message, parameter="extra", value=float(column[i]), index=i)
        columns.append(column)
    return np.stack(columns, axis=1)
