"""`to_geojson`: networks, paths, styles, flows, routes and closures for a geographic information system."""

from __future__ import annotations

import io
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl._io import as_path, atomic_write
from limiirl._typing import FloatArray, IntArray
from limiirl.demos import Demonstrations
from limiirl.errors import BackendUnavailable, InvalidParameter
from limiirl.roads.closures import Closure
from limiirl.roads.drivers import DriverFit, count_style_drivers, count_style_trips
from limiirl.roads.matching import Matches
from limiirl.roads.network import RoadNetwork

if TYPE_CHECKING:
    from limiirl.forecast import Flows, Route

_DECIMALS = 6  # of degrees: 0.1 m


def to_geojson(
    item: RoadNetwork
    | Matches
    | Demonstrations
    | DriverFit
    | Flows
    | Closure
    | Sequence[Route | tuple[ArrayLike, float]],
    network: RoadNetwork | None = None,
    path: str | os.PathLike[str] | None = None,
    *,
    least: int = 5,
) -> dict[str, Any]:
    """Return an object as a GeoJSON FeatureCollection (RFC 7946), and write it to a GeoJSON file or a GeoPackage.

    ==================  ==============================================================================================
    item                features
    ==================  ==============================================================================================
    `RoadNetwork`       one line per segment, with class, street, lanes, speed limit and length
    `Matches`           one line per matched path, with trip, driver, confidence and length
    `Demonstrations`    one line per trip, with trip, driver, label and length
    `DriverFit`         one line per segment with trips: expected trips per style, and the dominant style
    `Flows`             one line per segment with trips: expected trips per style
    `Closure`           one line per affected segment: expected trips before and after, their change, and closed
    list of routes      one line per `Route`, or pair of states and probability, with rank, probability and length
    ==================  ==============================================================================================

    Parameters
    ----------
    item : object
    network : RoadNetwork, optional
        Network of the trips; not required for a `RoadNetwork` or a `Closure`.
    path : path, optional
        File to write, such as ``styles.geojson``. A file that ends in ``.gpkg`` is a GeoPackage (requires
        pyogrio).
    least : int
        For a `DriverFit`, the number of trips of a style on a street is null if fewer than `least` drivers (trips, if
        drivers are unknown) have this style there. A `Closure` has its own limit. Exported paths are personal data;
        trim and mask the trips first (`limiirl.roads.privacy`).

    Returns
    -------
    dict
        Coordinates are longitudes and latitudes with six decimals. Unknown and hidden values are None.

    Examples
    --------
    >>> from limiirl.roads import RoadNetwork
    >>> ring = RoadNetwork.from_segments([41.15, 41.16, 41.16], [-8.63, -8.63, -8.62], [0, 1, 2], [1, 2, 0])
    >>> trips = to_geojson(Demonstrations.from_lists([[0, 1]], groups=["ann"]), ring)
    >>> trips["features"][0]["geometry"]["coordinates"]
    [[-8.63, 41.15], [-8.63, 41.16], [-8.62, 41.16]]
    >>> trips["features"][0]["properties"]
    {'trip': 0, 'driver': 'ann', 'label': None, 'km': 1.95}
    """
    for kind, convert in _CONVERTERS.items():
        if isinstance(item, kind):
            features = convert(item, _get_network(item, network), least)
            break
    else:
        features = _convert_other(item, network)
    collection = {"type": "FeatureCollection", "features": features}
    if path is not None:
        with atomic_write(path) as scratch:
            if is_geopackage(path):
                scratch.write_bytes(_encode_geopackage(features, as_path(path).stem))
            else:
                scratch.write_text(json.dumps(collection, ensure_ascii=False, allow_nan=False), encoding="utf-8")
    return collection


def is_geopackage(path: str | os.PathLike[str]) -> bool:
    """Return True if a file name ends in ``.gpkg``; raise `BackendUnavailable` if pyogrio is not installed."""
    if as_path(path).suffix != ".gpkg":
        return False
    try:
        import_module("pyogrio")
    except ImportError as error:
        message = f"{path} requires pyogrio: pip install pyogrio. Or pass a file name that ends in .geojson."
        raise BackendUnavailable(message, parameter="path", value=str(path)) from error
    return True


def _encode_geopackage(features: list[dict[str, Any]], layer: str) -> bytes:
    """Return a GeoPackage with the features in one layer of lines."""
    pyogrio: Any = import_module("pyogrio")
    file = io.BytesIO()
    lines = [_encode_line(feature["geometry"]["coordinates"]) for feature in features]
    names = list(features[0]["properties"]) if features else []
    columns = [_make_column([feature["properties"][name] for feature in features]) for name in names]
    pyogrio.raw.write(
        file,
        np.array(lines, dtype=object),
        columns,
        names,
        layer=layer,
        driver="GPKG",
        geometry_type="LineString",
        crs="EPSG:4326",
    )
    return file.getvalue()


def _encode_line(coordinates: list[list[float]]) -> bytes:
    """Return a line as well-known binary: byte order, type 2, number of points, coordinates."""
    header = np.array([1], np.uint8).tobytes() + np.array([2, len(coordinates)], "<u4").tobytes()
    return header + np.array(coordinates, "<f8").tobytes()


def _make_column(values: list[Any]) -> NDArray[Any]:
    """Return an array of booleans, integers, floats (NaN for None) or text."""
    present = [value for value in values if value is not None]
    if present and all(isinstance(value, int | float) for value in present):
        return np.array([math.nan if value is None else value for value in values])
    column = np.empty(len(values), dtype=object)
    column[:] = [None if value is None else str(value) for value in values]
    return column


def _get_network(item: object, network: RoadNetwork | None) -> RoadNetwork:
    if isinstance(item, RoadNetwork):
        return item
    own = item.network if isinstance(item, Closure) else network
    if own is None:
        raise InvalidParameter.of("network", None, f"is required for {type(item).__name__}")
    return own


def _convert_other(item: Any, network: RoadNetwork | None) -> list[dict[str, Any]]:
    """Return the features of `Flows` or a list of `Route`, recognised by their attributes to avoid an import."""
    if hasattr(item, "state_by_intent"):
        flows = np.asarray(item.state_by_intent)
        trips = {f"trips_style_{k}": row for k, row in enumerate(flows)}
        return _segment_features(_get_network(item, network), flows.sum(axis=0) > 0.0, trips)
    if isinstance(item, Sequence) and not isinstance(item, str):
        roads = _get_network(item, network)
        pairs = [route if isinstance(route, tuple) else (route.states, route.probability) for route in item]
        return [
            _line_feature(
                _path_coordinates(roads, states),
                {"rank": rank, "probability": probability, "km": _km(roads, states)},
            )
            for rank, (states, probability) in enumerate(pairs, start=1)
        ]
    rule = "must be a RoadNetwork, Matches, Demonstrations, DriverFit, Flows, Closure or list of routes"
    raise InvalidParameter.of("item", type(item).__name__, rule)


def _convert_network(network: RoadNetwork, _: RoadNetwork, least: int) -> list[dict[str, Any]]:
    del least
    return _segment_features(network, np.ones(network.n_segments, dtype=bool), {})


def _convert_matches(matches: Matches, network: RoadNetwork, least: int) -> list[dict[str, Any]]:
    del least
    features = []
    for i in range(len(matches)):
        facts = {
            "trip": matches.ids[i],
            "driver": None if matches.groups is None else matches.groups[i],
            "confidence": matches.confidence[i],
            "whole": matches.whole[i],
            "km": _km(network, matches.path(i)),
        }
        features.append(_line_feature(_coordinates(matches.geometry(network, i, clip=True)), facts))
    return features


def _convert_trips(demos: Demonstrations, network: RoadNetwork, least: int) -> list[dict[str, Any]]:
    del least
    return [
        _line_feature(
            _path_coordinates(network, demo.states),
            {
                "trip": i if demos.ids is None else demos.ids[i],
                "driver": None if demos.groups is None else demos.groups[i],
                "label": None if demos.labels is None else demos.labels[i],
                "km": _km(network, demo.states),
            },
        )
        for i, demo in enumerate(demos)
    ]


def _convert_styles(fit: DriverFit, network: RoadNetwork, least: int) -> list[dict[str, Any]]:
    U = np.asarray(fit.mixture.responsibilities_)
    trips = count_style_trips(fit.demos, U, network.n_segments)
    shown = count_style_drivers(fit.demos, U.argmax(axis=1), U.shape[1], network.opposite) >= least
    rate = trips / np.maximum(U.sum(axis=0), 1e-300)[:, None]
    used = shown.any(axis=0) & (trips.sum(axis=0) > 0.0)
    dominant = np.where(shown, rate, -1.0).argmax(axis=0)
    columns: dict[str, Any] = {f"trips_style_{k}": np.where(shown[k], row, np.nan) for k, row in enumerate(trips)}
    return _segment_features(network, used, columns | {"dominant_style": dominant})


def _convert_closure(closure: Closure, network: RoadNetwork, least: int) -> list[dict[str, Any]]:
    del least
    masks = closure.drivers_before, closure.drivers_after
    before, after = (
        np.where(mask.hidden | closure.hidden, np.nan, flow)
        for mask, flow in zip(masks, (closure.before, closure.after), strict=True)
    )
    used = (closure.before + closure.after > 0.0) & (np.isfinite(before) | np.isfinite(after))
    used[closure.closed] = True
    closed = np.isin(np.arange(network.n_segments), closure.closed)
    columns = {"closed": closed, "trips_before": before, "trips_after": after, "change": after - before}
    return _segment_features(network, used, columns)


_CONVERTERS: dict[type, Callable[[Any, RoadNetwork, int], list[dict[str, Any]]]] = {
    RoadNetwork: _convert_network,
    Matches: _convert_matches,
    Demonstrations: _convert_trips,
    DriverFit: _convert_styles,
    Closure: _convert_closure,
}


def _segment_features(network: RoadNetwork, used: ArrayLike, columns: Mapping[str, ArrayLike]) -> list[dict[str, Any]]:
    """Return the segments in a mask (S,) with their attributes and further columns (S,)."""
    s = np.flatnonzero(used)
    ends = _coordinates(np.stack([network.lat, network.lon], axis=1))
    facts: dict[str, Iterable[Any]] = {
        "segment": s.tolist(),
        "street": [network.street(i) or None for i in s.tolist()],
        "class": [network.class_names[c] for c in network.road_class[s].tolist()],
        "lanes": network.lanes[s].tolist(),
        "speed_kmh": network.speed_kmh[s].tolist(),
        "length_m": np.round(network.length_m[s], 1).tolist(),
    }
    facts |= {name: np.asarray(values)[s].tolist() for name, values in columns.items()}
    tails, heads = network.tail[s].tolist(), network.head[s].tolist()
    return [
        _line_feature([ends[tail], ends[head]], dict(zip(facts, row, strict=True)))
        for tail, head, row in zip(tails, heads, zip(*facts.values(), strict=True), strict=True)
    ]


def _line_feature(coordinates: list[list[float]], facts: Mapping[str, Any]) -> dict[str, Any]:
    geometry = {"type": "LineString", "coordinates": coordinates}
    return {"type": "Feature", "geometry": geometry, "properties": {name: _plain(v) for name, v in facts.items()}}


def _plain(value: Any) -> Any:
    """Convert a value to a JSON type: null for unknown values, text for values of other types."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def _coordinates(points: FloatArray) -> list[list[float]]:
    """Return points (n, 2) of latitudes and longitudes as GeoJSON positions."""
    positions: list[list[float]] = np.round(points[:, ::-1], _DECIMALS).tolist()
    return positions


def _path_coordinates(network: RoadNetwork, states: ArrayLike) -> list[list[float]]:
    path: IntArray = np.asarray(states, dtype=np.int64)
    nodes = np.concatenate([network.tail[path[:1]], network.head[path]])
    return _coordinates(np.stack([network.lat[nodes], network.lon[nodes]], axis=1))


def _km(network: RoadNetwork, states: ArrayLike) -> float:
    return round(float(network.length_m[np.asarray(states, dtype=np.int64)].sum()) / 1000.0, 3)
