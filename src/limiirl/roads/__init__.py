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
    from limiirl.roads.closures import Closure, close_streets
    from limiirl.roads.drivers.fit import DriverFit, fit_drivers
    from limiirl.roads.features import FeatureChoice
    from limiirl.roads.geometry import regions
    from limiirl.roads.lookup import segments_at
    from limiirl.roads.maps.build import build, from_networkx, from_osm, from_ways
    from limiirl.roads.matching import evaluation, particle_filter, quality
    from limiirl.roads.matching.evaluation import recovered
    from limiirl.roads.matching.match import estimate_noise, match
    from limiirl.roads.matching.matches import Matches
    from limiirl.roads.network import RoadNetwork
    from limiirl.roads.summary import describe
    from limiirl.roads.synthetic.city import City
    from limiirl.roads.synthetic.demo import run_demo
    from limiirl.roads.synthetic.gps import Recording, record, recording
    from limiirl.roads.traces.clean import Cleaned, clean
    from limiirl.roads.traces.read import read_trips
    from limiirl.roads.traces.trips import Skipped, Trips
    from limiirl.worlds import REGIONS


# Name: the module that holds it. No module here may be called as one of these, or it would take the name's place.
_HOMES = {
    "City": "synthetic.city",
    "Cleaned": "traces.clean",
    "Closure": "closures",
    "DriverFit": "drivers.fit",
    "FeatureChoice": "features",
    "Matches": "matching.matches",
    "REGIONS": "geometry",
    "Recording": "synthetic.gps",
    "RoadNetwork": "network",
    "Skipped": "traces.trips",
    "Trips": "traces.trips",
    "build": "maps.build",
    "clean": "traces.clean",
    "close_streets": "closures",
    "describe": "summary",
    "estimate_noise": "matching.match",
    "fit_drivers": "drivers.fit",
    "from_networkx": "maps.build",
    "from_osm": "maps.build",
    "from_ways": "maps.build",
    "match": "matching.match",
    "read_trips": "traces.read",
    "record": "synthetic.gps",
    "recording": "synthetic.gps",
    "recovered": "matching.evaluation",
    "regions": "geometry",
    "run_demo": "synthetic.demo",
    "segments_at": "lookup",
}
_MODULES = {
    "evaluation": "matching.evaluation",
    "features": "features",
    "particle_filter": "matching.particle_filter",
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
    "build",
    "clean",
    "close_streets",
    "describe",
    "estimate_noise",
    "evaluation",
    "features",
    "fit_drivers",
    "from_networkx",
    "from_osm",
    "from_ways",
    "match",
    "particle_filter",
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
