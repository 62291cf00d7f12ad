"""`FeatureChoice`: which features of a road a driver's reward sees, their names and groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from limiirl.errors import InvalidParameter
from limiirl.roads.compass import REGIONS

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
                raise InvalidParameter(f"{name} must be finite and ascend; got {bounds!r}.")
        listed = [name for group in (self.class_groups or {}).values() for name in group]
        twice = sorted({name for name in listed if listed.count(name) > 1})
        if twice:
            raise InvalidParameter(f"class_groups must name each road class once; {twice[0]!r} is in two groups.")
        if not self.names:
            raise InvalidParameter("A FeatureChoice needs at least one feature; everything is switched off.")
        same = sorted({name for name in self.names if self.names.count(name) > 1})
        if same:
            raise InvalidParameter(f"Two features are both named {same[0]!r}. Give the one of `extra` another name.")

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


def choose(features: str | FeatureChoice) -> FeatureChoice:
    """Return a choice by its name, "paper" or "plain", or as it is.

    Examples
    --------
    >>> len(choose("paper").names), len(choose("plain").names)
    (24, 4)
    """
    if isinstance(features, FeatureChoice):
        return features
    if features not in _BY_NAME:
        raise InvalidParameter(f"features must be a FeatureChoice, 'paper' or 'plain'; got {features!r}.")
    return _BY_NAME[features]
