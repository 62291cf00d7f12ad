"""Distances and the planar projection, compared with geodesics of pyproj."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyproj import Geod

from limiirl.roads.geometry import Plane, distance_m, radii_m
from tests.helpers import examples

GEOD = Geod(ellps="WGS84")
LATITUDES = st.floats(-70.0, 70.0)
LONGITUDES = st.floats(-180.0, 180.0)


@given(LATITUDES, LONGITUDES, st.floats(0.0, 360.0), st.floats(1.0, 10_000.0))
@settings(max_examples=examples(200), deadline=None)
def test_distances_are_geodesics_to_a_part_in_a_million(lat: float, lon: float, azimuth: float, metres: float):
    to_lon, to_lat, _ = GEOD.fwd(lon, lat, azimuth, metres)
    if abs(to_lat) <= 70.0:
        np.testing.assert_allclose(distance_m(lat, lon, to_lat, to_lon), metres, rtol=1e-6, atol=1e-6)


def test_distances_broadcast_over_arrays():
    rng = np.random.default_rng(0)
    lat, lon = 41.15 + 0.05 * rng.normal(size=(2, 50)), -8.6 + 0.05 * rng.normal(size=(2, 50))
    _, _, wanted = GEOD.inv(lon[0], lat[0], lon[1], lat[1])
    np.testing.assert_allclose(distance_m(lat[0], lon[0], lat[1], lon[1]), wanted, rtol=1e-6)


def test_shorter_direction_around_the_globe():
    np.testing.assert_allclose(distance_m(10.0, 179.99, 10.0, -179.99), distance_m(10.0, 0.0, 10.0, 0.02), rtol=1e-9)


@pytest.mark.parametrize("lat", [-60.0, 0.0, 41.15, 89.0])
def test_radii_equal_those_from_short_geodesics(lat: float):
    along, across = radii_m(lat)
    _, _, north = GEOD.inv(0.0, lat - 5e-4, 0.0, lat + 5e-4)
    np.testing.assert_allclose(along * np.radians(1e-3), north, rtol=1e-8)
    _, _, east = GEOD.inv(0.0, lat, 1e-3, lat)
    np.testing.assert_allclose(across * np.cos(np.radians(lat)) * np.radians(1e-3), east, rtol=1e-8)


@given(st.floats(-60.0, 60.0), st.floats(-170.0, 170.0), st.floats(0.0, 360.0))
@settings(max_examples=examples(100), deadline=None)
def test_flat_map_is_exact_near_its_centre(lat: float, lon: float, azimuth: float):
    to_lon, to_lat, _ = GEOD.fwd(lon, lat, azimuth, 500.0)
    east, north = Plane(lat, lon).xy(to_lat, to_lon)
    wanted = 500.0 * np.sin(np.radians(azimuth)), 500.0 * np.cos(np.radians(azimuth))
    np.testing.assert_allclose((east, north), wanted, atol=0.1)


def test_error_of_the_flat_map_is_as_documented():
    plane = Plane(41.15, -8.63)
    to_lon, to_lat, _ = GEOD.fwd(-8.63, 41.15, 0.0, 10_000.0)
    _, _, true = GEOD.inv(to_lon, to_lat, to_lon + 0.01, to_lat)
    (west, _), (east, _) = plane.xy([to_lat, to_lat], [to_lon, to_lon + 0.01])
    np.testing.assert_allclose((east - west) / true - 1.0, 0.0014, atol=5e-5)


@given(LATITUDES, LONGITUDES, st.lists(st.tuples(st.floats(-2e4, 2e4), st.floats(-2e4, 2e4)), min_size=1, max_size=4))
@settings(max_examples=examples(100), deadline=None)
def test_degrees_undo_xy(lat: float, lon: float, points: list[tuple[float, float]]):
    plane = Plane(lat, lon)
    degrees = plane.degrees(points)
    np.testing.assert_allclose(plane.xy(degrees[:, 0], degrees[:, 1]), points, atol=1e-6)
