"""GeoJSON files of networks, paths, styles, flows, routes and closures."""

import json
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import shapely

from limiirl import Demonstrations
from limiirl.errors import InvalidParameter
from limiirl.forecast import Forecaster
from limiirl.roads import Closure, RoadNetwork, close_streets, to_geojson
from limiirl.roads.matching.matches import MatchedPiece, Matches, TripMatch
from limiirl.roads.traces.trips import Trips
from tests.helpers import raises

LAT, LON = [41.15, 41.16, 41.16, 41.15], [-8.63, -8.63, -8.62, -8.62]


@pytest.fixture
def square() -> RoadNetwork:
    network = RoadNetwork.from_segments(LAT, LON, [0, 1, 2, 3, 1], [1, 2, 3, 0, 0])
    speed = np.where(np.arange(5) == 2, np.nan, 50.0)
    return network.replace(street_names=("", 'Rua "Ä"'), street_of=[1, 0, 0, 0, 1], speed_kmh=speed)


def read(path):
    """Return the features of a file, which must be valid JSON without NaN."""

    def refuse(name):
        raise AssertionError(name)

    collection = json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
    assert collection["type"] == "FeatureCollection"
    return collection["features"]


def test_a_network_has_one_line_per_segment(square, tmp_path):
    returned = to_geojson(square, path=tmp_path / "roads.geojson")
    features = read(tmp_path / "roads.geojson")
    assert features == returned["features"]
    assert [f["geometry"]["coordinates"] for f in features] == [
        [[LON[a], LAT[a]], [LON[b], LAT[b]]] for a, b in zip(square.tail, square.head, strict=True)
    ]
    assert [f["properties"]["street"] for f in features] == ['Rua "Ä"', None, None, None, 'Rua "Ä"']
    assert [f["properties"]["speed_kmh"] for f in features] == [50.0, 50.0, None, 50.0, 50.0]
    np.testing.assert_allclose([f["properties"]["length_m"] for f in features], square.length_m, atol=0.05)


def test_a_geopackage_has_the_features_of_the_geojson_file(square, tmp_path):
    import pyogrio

    features = to_geojson(square, path=tmp_path / "roads.gpkg")["features"]
    metadata, _, geometry, columns = pyogrio.raw.read(tmp_path / "roads.gpkg")
    assert metadata["crs"] == "EPSG:4326"
    assert pyogrio.list_layers(tmp_path / "roads.gpkg").tolist() == [["roads", "LineString"]]
    lines = [shapely.from_wkb(line).coords[:] for line in geometry]
    assert lines == [[tuple(point) for point in feature["geometry"]["coordinates"]] for feature in features]
    properties = [feature["properties"] for feature in features]
    assert list(metadata["fields"]) == list(properties[0])
    for name, column in zip(metadata["fields"], columns, strict=True):
        known = [row[name] is not None for row in properties]
        np.testing.assert_array_equal(~pd.isna(column), known)
        assert column[known].tolist() == [row[name] for row in properties if row[name] is not None]
    types = dict(zip(metadata["fields"], [column.dtype.kind for column in columns], strict=True))
    assert (types["segment"], types["street"], types["speed_kmh"]) == ("i", "O", "f")


def test_a_geopackage_of_a_closure_and_of_nothing(square, tmp_path):
    import pyogrio

    demos = Demonstrations.from_lists([[0, 1, 2], [4, 0]])
    to_geojson(demos, square, tmp_path / "trips.gpkg")
    to_geojson(demos[:1], square, tmp_path / "trips.gpkg")  # overwrites
    assert pyogrio.read_info(tmp_path / "trips.gpkg")["features"] == 1
    to_geojson([], square, tmp_path / "none.gpkg")
    assert pyogrio.read_info(tmp_path / "none.gpkg")["features"] == 0


def test_a_geopackage_without_pyogrio_names_the_package(tmp_path):
    path = tmp_path / "roads.gpkg"
    code = f"import sys; sys.modules['pyogrio'] = None; from limiirl import roads; roads.is_geopackage({str(path)!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "BackendUnavailable" in done.stderr
    assert "pip install pyogrio" in done.stderr


def test_paths_of_trips_follow_their_segments(square):
    demos = Demonstrations.from_lists([[0, 1, 2], [3]], groups=["ann", "bob"]).replace(labels=np.array([1, 0]))
    one, two = to_geojson(demos, square)["features"]
    assert one["geometry"]["coordinates"] == [[LON[i], LAT[i]] for i in (0, 1, 2, 3)]
    km = float(square.length_m[[0, 1, 2]].sum()) / 1000.0
    assert one["properties"] == {"trip": 0, "driver": "ann", "label": 1, "km": pytest.approx(km, abs=5e-4)}
    assert two["properties"]["driver"] == "bob"


def test_matches_are_clipped_to_their_fixes(square):
    """The path begins and ends in the middle of a segment."""
    trips = Trips.from_lists([[41.155, 41.16]], [[-8.63, -8.625]])
    piece = MatchedPiece(0, 1, np.array([0, 1]), 0.75)
    middle = 0.5 * square.length_m[[0, 1]]
    match = TripMatch((piece,), np.array([0, 1]), middle, np.zeros(2))
    matches = Matches.from_trips(trips, [match])
    (feature,) = to_geojson(matches, square)["features"]
    np.testing.assert_allclose(
        feature["geometry"]["coordinates"], [[-8.63, 41.155], [-8.63, 41.16], [-8.625, 41.16]], atol=2e-6
    )
    assert feature["properties"]["confidence"] == 0.75
    assert feature["properties"]["driver"] is None


def test_styles_have_expected_trips_and_hide_few_drivers(small_city, small_fit):
    U = np.asarray(small_fit.mixture.responsibilities_)
    network, demos, labels = small_city.network, small_fit.demos, U.argmax(axis=1)
    features = to_geojson(small_fit, network, least=2)["features"]
    by_segment = {f["properties"]["segment"]: f["properties"] for f in features}
    hidden = 0
    for s in range(network.n_segments):
        street = {s, int(network.opposite[s])} - {-1}
        trips = sum((demo.states == s).sum() * U[i] for i, demo in enumerate(demos))
        drivers = [
            {demos.groups[i] for i, demo in enumerate(demos) if labels[i] == k and street & set(demo.states.tolist())}
            for k in range(2)
        ]
        shown = [len(people) >= 2 for people in drivers]
        if not np.any(trips) or not any(shown):
            assert s not in by_segment
            continue
        for k in range(2):
            value = by_segment[s][f"trips_style_{k}"]
            hidden += not shown[k]
            assert (value is not None) == shown[k]
            assert value is None or value == pytest.approx(trips[k], abs=1e-6)
        assert shown[by_segment[s]["dominant_style"]]
    assert hidden
    assert by_segment


def test_a_closure_has_the_trips_before_and_after(small_city, small_fit):
    network, demos = small_city.network, small_fit.demos
    busiest = int(np.bincount(demos.states, minlength=network.n_segments).argmax())
    closed = [s for s in (busiest, int(network.opposite[busiest])) if s >= 0]
    closure = close_streets(network, Forecaster(small_fit.mixture, demos), demos, closed, least=2)
    assert isinstance(closure, Closure)
    by_segment = {f["properties"]["segment"]: f["properties"] for f in to_geojson(closure)["features"]}
    assert {s for s, facts in by_segment.items() if facts["closed"]} == set(closed)
    shown = 0
    for s, facts in by_segment.items():
        before = None if closure.drivers_before.hidden[s] or closure.hidden else closure.before[s]
        after = None if closure.drivers_after.hidden[s] or closure.hidden else closure.after[s]
        assert facts["trips_before"] == (None if before is None else pytest.approx(before, abs=1e-6))
        assert facts["trips_after"] == (None if after is None else pytest.approx(after, abs=1e-6))
        if before is not None and after is not None:
            shown += 1
            assert facts["change"] == pytest.approx(after - before, abs=2e-6)
    assert shown


def test_flows_and_routes(square):
    flows = SimpleNamespace(state_by_intent=np.array([[1.0, 0, 0, 0, 0.5], [0.25, 0, 0, 0, 0]]))
    features = to_geojson(flows, square)["features"]
    assert [
        (f["properties"]["segment"], f["properties"]["trips_style_0"], f["properties"]["trips_style_1"])
        for f in features
    ] == [(0, 1.0, 0.25), (4, 0.5, 0.0)]
    route = SimpleNamespace(states=[1, 2], probability=0.25)
    first, second = to_geojson([([0, 1], np.float64(0.5)), route], square)["features"]
    assert first["geometry"]["coordinates"][0] == [LON[0], LAT[0]]
    assert (first["properties"]["rank"], first["properties"]["probability"]) == (1, 0.5)
    assert (second["properties"]["rank"], second["properties"]["probability"]) == (2, 0.25)


def test_invalid_items_are_rejected(square):
    with raises(InvalidParameter, parameter="network"):
        to_geojson(Demonstrations.from_lists([[0]]))
    with raises(InvalidParameter, parameter="item", value="int"):
        to_geojson(3, square)
