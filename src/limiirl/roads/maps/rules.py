"""What the tags of a way say about driving on it: whether one may, which way, how fast, on how many lanes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

Tags = Mapping[str, str]

DRIVABLE = (
    "motorway",
    "motorway_link",
    "trunk",
    "trunk_link",
    "primary",
    "primary_link",
    "secondary",
    "secondary_link",
    "tertiary",
    "tertiary_link",
    "unclassified",
    "residential",
    "living_street",
    "road",
)
"""Values of the tag "highway" on which cars drive, the most important first."""
SERVICE = "service"
"""Ways to a yard, a car park or a house: kept only if asked."""

_ACCESS = ("motorcar", "motor_vehicle", "vehicle", "access")
_CLOSED = frozenset({"no", "private", "agricultural", "forestry", "emergency", "military", "permit", "residents"})
_ALONG, _AGAINST, _BOTH = ("yes", "true", "1"), ("-1", "reverse"), ("no", "false", "0")
_KMH = {"": 1.0, "km/h": 1.0, "kmh": 1.0, "kph": 1.0, "mph": 1.609344, "knots": 1.852}
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z/]*)")


class Directions(NamedTuple):
    """Whether a way is driven along and against its nodes, and the rule that says so."""

    along: bool
    against: bool
    rule: str


def why_not(tags: Tags, *, service: bool = False, public: bool = False) -> str | None:
    """Return why no car may drive on a way, or None if one may.

    Parameters
    ----------
    tags : mapping
    service : bool
        Whether service roads count as roads.
    public : bool
        Whether a way must be open to the public: not closed by the most specific of the tags motorcar, motor_vehicle,
        vehicle and access.

    Examples
    --------
    >>> why_not({"highway": "residential"}) is None
    True
    >>> why_not({"highway": "footway"})
    'not for cars'
    >>> why_not({"highway": "residential", "access": "private"}, public=True)
    'closed to the public'
    """
    highway = tags.get("highway")
    if highway is None:
        return "not a road"
    if highway == SERVICE:
        if not service:
            return "service road"
    elif highway not in DRIVABLE:
        return "not for cars"
    if tags.get("area") == "yes":
        return "an area"
    return "closed to the public" if public and is_closed(tags) else None


def is_closed(tags: Tags) -> bool:
    """Return whether a way is closed to the public's cars.

    Examples
    --------
    >>> is_closed({"access": "no", "motor_vehicle": "yes"})
    False
    """
    value = next((tags[name] for name in _ACCESS if name in tags), "yes")
    return all(part.strip() in _CLOSED for part in value.split(";"))


def directions(tags: Tags) -> Directions:
    """Return in which directions a way is driven.

    `oneway` decides. Where it is absent, motorways, their links and roundabouts are driven along their nodes only, and
    all else both ways. "reversible" and "alternating" change by the hour: both ways, at some time. A value that nobody
    knows is taken as absent.

    Examples
    --------
    >>> directions({"highway": "primary", "oneway": "-1"})
    Directions(along=False, against=True, rule='against')
    >>> directions({"highway": "motorway"})
    Directions(along=True, against=False, rule='implied')
    """
    oneway = tags.get("oneway", "").strip().lower()
    if oneway in _ALONG:
        return Directions(True, False, "along")
    if oneway in _AGAINST:
        return Directions(False, True, "against")
    if oneway in _BOTH:
        return Directions(True, True, "both")
    if oneway in ("reversible", "alternating"):
        return Directions(True, True, "changing")
    motorway = tags.get("highway", "").removesuffix("_link") == "motorway"
    if motorway or tags.get("junction") == "roundabout":
        return Directions(True, False, "implied")
    return Directions(True, True, "unknown value" if oneway else "both")


def speed_kmh(text: str | None) -> float:
    """Return a speed limit in km/h, NaN where the text gives no one number.

    "50", "50 km/h", "30 mph" and "10 knots" are numbers. A rule of the country ("PT:urban"), "walk", "none", "signals"
    and several numbers ("50;30") are not: nothing is guessed.

    Examples
    --------
    >>> speed_kmh("30 mph")
    48.28032
    >>> speed_kmh("PT:urban"), speed_kmh("50;30"), speed_kmh("50; 50")
    (nan, nan, 50.0)
    """
    return _one_number(text, _KMH)


def lane_count(text: str | None) -> float:
    """Return the number of lanes, NaN where the text gives no one number; "1.5" is a road where two cars squeeze by.

    Examples
    --------
    >>> lane_count("2"), lane_count("1.5"), lane_count("2;3"), lane_count(None)
    (2.0, 1.5, nan, nan)
    """
    return _one_number(text, {"": 1.0})


def limits(tags: Tags) -> tuple[float, float]:
    """Return the speed limits in km/h along and against a way; "maxspeed:forward" goes before "maxspeed".

    Examples
    --------
    >>> limits({"maxspeed": "50", "maxspeed:backward": "30"})
    (50.0, 30.0)
    """
    both = tags.get("maxspeed")
    return speed_kmh(tags.get("maxspeed:forward", both)), speed_kmh(tags.get("maxspeed:backward", both))


def _one_number(text: str | None, units: Mapping[str, float]) -> float:
    """Return the one number that a list of texts, divided by semicolons, agrees on, in a unit by its name; else NaN."""
    found = set()
    for part in (text or "").lower().split(";"):
        match = _NUMBER.fullmatch(part.strip())
        if match is None or match.group(2) not in units:
            return math.nan
        found.add(float(match.group(1)) * units[match.group(2)])
    value = found.pop()
    return value if not found and value > 0.0 else math.nan
