"""Roads: from a map and GPS traces to demonstrations in an MDP of road segments.

Names are imported on first use, so that importing the package loads neither numba nor scipy.

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
    from limiirl.roads import privacy
    from limiirl.roads.closures import (
        Closure,
        StreetChange,
        close_streets,
        describe_changed_street,
        describe_closed,
        describe_cut_off,
        describe_detour,
        describe_passages,
        summarize_closure,
    )
    from limiirl.roads.drivers import (
        NOT_LENGTHS,
        DriverFit,
        NormalisedRewards,
        StyleDescription,
        check_groups,
        count_style_drivers,
        count_style_trips,
        describe_fit,
        describe_styles,
        fit_drivers,
        match_rewards,
        normalise_rewards,
    )
    from limiirl.roads.features import STRAIGHT, FeatureChoice, choose_features
    from limiirl.roads.geojson import is_geopackage, to_geojson
    from limiirl.roads.geometry import Plane, distance_m, regions
    from limiirl.roads.lookup import describe_street, format_place, list_street_names, nearest_segments
    from limiirl.roads.maps import PLACES, build, from_networkx, from_osm, from_ways
    from limiirl.roads.matching import (
        Agreement,
        MatchedPiece,
        Matches,
        PathRecovery,
        Quality,
        TripMatch,
        build_grid,
        estimate_noise,
        match,
        measure_agreement,
        measure_quality,
        path_recovery,
    )
    from limiirl.roads.network import RoadNetwork, summarize
    from limiirl.roads.privacy import count_drivers_by_street, index_drivers
    from limiirl.roads.synthetic import City, DemoResult, Recording, run_demo, simulate_gps, simulate_recording
    from limiirl.roads.traces import CleanedTrips, SkippedTrip, Trips, clean, read_trips
    from limiirl.worlds import REGIONS


# Public names by module; a module must not have the name of a public function.
_NAMES = {
    "closures": (
        "Closure", "StreetChange", "close_streets", "describe_changed_street", "describe_closed", "describe_cut_off",
        "describe_detour", "describe_passages", "summarize_closure",
    ),
    "drivers": (
        "DriverFit", "NOT_LENGTHS", "NormalisedRewards", "StyleDescription", "check_groups",
        "count_style_drivers", "count_style_trips", "describe_fit", "describe_styles", "fit_drivers", "match_rewards",
        "normalise_rewards",
    ),
    "features": ("FeatureChoice", "STRAIGHT", "choose_features"),
    "geojson": ("is_geopackage", "to_geojson"),
    "geometry": ("Plane", "distance_m", "regions"),
    "lookup": ("describe_street", "format_place", "list_street_names", "nearest_segments"),
    "maps": ("PLACES", "build", "from_networkx", "from_osm", "from_ways"),
    "matching": (
        "Agreement", "MatchedPiece", "Matches", "PathRecovery", "Quality", "TripMatch", "build_grid", "estimate_noise",
        "match", "measure_agreement", "measure_quality", "path_recovery",
    ),
    "network": ("RoadNetwork", "summarize"),
    "privacy": ("count_drivers_by_street", "index_drivers"),
    "synthetic": ("City", "DemoResult", "Recording", "run_demo", "simulate_gps", "simulate_recording"),
    "traces": ("CleanedTrips", "SkippedTrip", "Trips", "clean", "read_trips"),
}  # fmt: skip
_HOMES = {name: f"limiirl.roads.{module}" for module, names in _NAMES.items() for name in names}
_HOMES["REGIONS"] = "limiirl.worlds"

__all__ = [
    "NOT_LENGTHS", "PLACES", "REGIONS", "STRAIGHT", "Agreement", "City", "CleanedTrips", "Closure", "DemoResult",
    "DriverFit", "FeatureChoice", "MatchedPiece", "Matches", "NormalisedRewards", "PathRecovery", "Plane",
    "Quality", "Recording", "RoadNetwork", "SkippedTrip", "StreetChange", "StyleDescription", "TripMatch", "Trips",
    "build", "build_grid", "check_groups", "choose_features", "clean", "close_streets", "count_drivers_by_street",
    "count_style_drivers", "count_style_trips",
    "describe_changed_street", "describe_closed", "describe_cut_off", "describe_detour", "describe_fit",
    "describe_passages", "describe_street", "describe_styles", "distance_m", "estimate_noise", "fit_drivers",
    "format_place", "from_networkx", "from_osm", "from_ways", "index_drivers", "is_geopackage", "list_street_names",
    "match", "match_rewards", "measure_agreement", "measure_quality", "nearest_segments", "normalise_rewards",
    "path_recovery", "privacy", "read_trips", "regions", "run_demo", "simulate_gps", "simulate_recording",
    "summarize", "summarize_closure", "to_geojson",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "privacy":
        return import_module("limiirl.roads.privacy")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'limiirl.roads' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
