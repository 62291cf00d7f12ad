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
    from limiirl.roads import features, privacy
    from limiirl.roads.city.city import City
    from limiirl.roads.city.gps_noise import Recording, record, recording
    from limiirl.roads.city.pipeline import run_demo
    from limiirl.roads.closures import Closure, close_streets
    from limiirl.roads.compass import REGIONS, regions
    from limiirl.roads.drivers.fitting import DriverFit, fit_drivers
    from limiirl.roads.facts import describe
    from limiirl.roads.feature_choice import FeatureChoice
    from limiirl.roads.maps.building import build, from_networkx, from_osm, from_ways
    from limiirl.roads.matching import agreement, particles, quality
    from limiirl.roads.matching.matches import Matches
    from limiirl.roads.matching.methods import estimate_noise, match
    from limiirl.roads.matching.recovery import recovered
    from limiirl.roads.nearest import segments_at
    from limiirl.roads.network import RoadNetwork
    from limiirl.roads.traces.cleaning import Cleaned, clean
    from limiirl.roads.traces.reading import read_trips
    from limiirl.roads.traces.trips import Skipped, Trips

# Name: the module that holds it. No module here may be called as one of these, or it would take the name's place.
_HOMES = {
    "run_demo": "city.pipeline",
    "recovered": "matching.recovery",
    "build": "maps.building",
    "describe": "facts",
    "from_networkx": "maps.building",
    "from_osm": "maps.building",
    "from_ways": "maps.building",
    "DriverFit": "drivers.fitting",
    "fit_drivers": "drivers.fitting",
    "City": "city.city",
    "Closure": "closures",
    "close_streets": "closures",
    "segments_at": "nearest",
    "Cleaned": "traces.cleaning",
    "Skipped": "traces.trips",
    "Trips": "traces.trips",
    "clean": "traces.cleaning",
    "read_trips": "traces.reading",
    "Recording": "city.gps_noise",
    "record": "city.gps_noise",
    "recording": "city.gps_noise",
    "REGIONS": "compass",
    "FeatureChoice": "feature_choice",
    "Matches": "matching.matches",
    "RoadNetwork": "network",
    "regions": "compass",
    "estimate_noise": "matching.methods",
    "match": "matching.methods",
}
_MODULES = {
    "agreement": "matching.agreement",
    "features": "features",
    "particles": "matching.particles",
    "privacy": "privacy",
    "quality": "matching.quality",
}

__all__ = [
    "REGIONS",
    "City",
    "Cleaned",
    "Closure",
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
    "close_streets",
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
    "segments_at",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"limiirl.roads.{_MODULES[name]}")
    if name in _HOMES:
        return getattr(import_module(f"limiirl.roads.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'limiirl.roads' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
