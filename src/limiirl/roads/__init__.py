"""Roads: from a map and GPS traces to demonstrations in an MDP of road segments.

Names are loaded when first used, so that `import limiirl.roads` is quick.

Examples
--------
>>> from limiirl import roads
>>> ring = roads.RoadNetwork.from_segments([41.15, 41.16, 41.16], [-8.63, -8.63, -8.62], [0, 1, 2], [1, 2, 0])
>>> ring.mdp("plain").n_features
4
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from limiirl.roads import agreement, features, particles, privacy, quality
    from limiirl.roads.building import build, from_networkx, from_osm, from_ways
    from limiirl.roads.city import City
    from limiirl.roads.cleaning import Cleaned, clean
    from limiirl.roads.compass import REGIONS, regions
    from limiirl.roads.facts import describe
    from limiirl.roads.feature_choice import FeatureChoice
    from limiirl.roads.fitting import DriverFit, fit_drivers
    from limiirl.roads.gps_noise import Recording, record, recording
    from limiirl.roads.matches import Matches
    from limiirl.roads.matching import estimate_noise, match
    from limiirl.roads.network import RoadNetwork
    from limiirl.roads.pipeline import run_demo
    from limiirl.roads.recovery import recovered
    from limiirl.roads.trip_files import read_trips
    from limiirl.roads.trips import Skipped, Trips

# Name: the module that holds it. A module must not be called as one of these, or it would take the name's place.
_HOMES = {
    "run_demo": "pipeline",
    "recovered": "recovery",
    "build": "building",
    "describe": "facts",
    "from_networkx": "building",
    "from_osm": "building",
    "from_ways": "building",
    "DriverFit": "fitting",
    "fit_drivers": "fitting",
    "City": "city",
    "Cleaned": "cleaning",
    "Skipped": "trips",
    "Trips": "trips",
    "clean": "cleaning",
    "read_trips": "trip_files",
    "Recording": "gps_noise",
    "record": "gps_noise",
    "recording": "gps_noise",
    "REGIONS": "compass",
    "FeatureChoice": "feature_choice",
    "Matches": "matches",
    "RoadNetwork": "network",
    "regions": "compass",
    "estimate_noise": "matching",
    "match": "matching",
}
_MODULES = ("agreement", "features", "particles", "privacy", "quality")

__all__ = [
    "REGIONS",
    "City",
    "Cleaned",
    "DriverFit",
    "FeatureChoice",
    "Matches",
    "Recording",
    "RoadNetwork",
    "Skipped",
    "Trips",
    "agreement",
    "build",
    "clean",
    "describe",
    "estimate_noise",
    "features",
    "fit_drivers",
    "from_networkx",
    "from_osm",
    "from_ways",
    "match",
    "particles",
    "privacy",
    "quality",
    "read_trips",
    "record",
    "recording",
    "recovered",
    "regions",
    "run_demo",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"limiirl.roads.{name}")
    if name in _HOMES:
        return getattr(import_module(f"limiirl.roads.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'limiirl.roads' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
