"""Agreement of two matchings, compared with shapely."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from limiirl.errors import InvalidParameter, InvalidTrips
from limiirl.roads import RoadNetwork
from limiirl.roads.kernels.spatial_index import length_near
from limiirl.roads.matching.quality import Agreement, measure_agreement
from tests.helpers import raises

shapely = pytest.importorskip("shapely")

NETWORK = RoadNetwork.from_segments([41.15, 41.16], [-8.63, -8.63], [0, 1], [1, 0])


def by_shapely(line: np.ndarray, other: np.ndarray, reach: float) -> float:
    """Return the length near another line, summed over segments, since shapely counts repeated segments once."""
    near = (shapely.LineString(other) if len(other) > 1 else shapely.Point(other[0])).buffer(reach, quad_segs=2000)
    return sum(shapely.LineString(line[i : i + 2]).intersection(near).length for i in range(len(line) - 1))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("n", [1, 2, 12])
def test_length_near_agrees_with_shapely(seed: int, n: int):
    rng = np.random.default_rng(seed)
    line, other = rng.normal(scale=40.0, size=(8, 2)), rng.normal(scale=40.0, size=(n, 2))
    total, near = length_near(line, other, 15.0)
    np.testing.assert_allclose(total, shapely.LineString(line).length, rtol=1e-12)
    np.testing.assert_allclose(near, by_shapely(line, other, 15.0), rtol=1e-5, atol=1e-5)
    assert 0.0 <= near <= total


GRID = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=2, max_size=7)


@given(GRID, GRID)
def test_length_near_on_grid_lines_with_parallels_and_repeats(one: list, two: list):
    line, other = 10.0 * np.array(one), 10.0 * np.array(two)
    _, near = length_near(line, other, 5.0)
    distinct = other[np.r_[True, np.any(np.diff(other, axis=0) != 0.0, axis=1)]]
    np.testing.assert_allclose(near, by_shapely(line, distinct, 5.0), rtol=1e-6, atol=1e-5)


def test_agreement_in_both_directions():
    street, half = [(41.15, -8.63), (41.16, -8.63)], [(41.15, -8.63), (41.155, -8.63)]
    aside = [(41.15, -8.60), (41.16, -8.60)]
    agreement = measure_agreement(NETWORK, [street, half, street], [half, half, aside], metres=15.0)
    long, short = 1110.569, 555.2845  # at the centre's latitude, halfway
    np.testing.assert_allclose(agreement.length_m, [[long, short], [short, short], [long, long]], atol=0.01)
    np.testing.assert_allclose(agreement.near_m, [[short + 15.0, short], [short, short], [0.0, 0.0]], atol=0.01)
    np.testing.assert_allclose(
        agreement.total, [(2 * short + 15.0) / (2 * long + short), 2 * short / (long + 2 * short)], atol=1e-4
    )
    assert agreement.worst.tolist() == [2, 0, 1]
    assert len(agreement) == 3


def test_a_line_without_length_has_no_share_and_is_listed_last():
    point, street = [(41.15, -8.63)], [(41.15, -8.63), (41.16, -8.63)]
    agreement = measure_agreement(NETWORK, [point, street], [street, street])
    np.testing.assert_array_equal(np.isnan(agreement.shares), [[True, False], [False, False]])
    np.testing.assert_allclose(agreement.near_m[0], [0.0, 15.0], atol=1e-6)
    assert agreement.worst.tolist() == [1, 0]
    assert np.isnan(Agreement(np.zeros((0, 2)), np.zeros((0, 2)), 15.0).total).all()


@pytest.mark.parametrize("bad", [np.zeros((0, 2)), [(41.15, np.nan)], [41.15, -8.63], [(1.0, 2.0, 3.0)]])
def test_an_invalid_line_is_reported(bad: object):
    street = [(41.15, -8.63), (41.16, -8.63)]
    with raises(InvalidTrips, parameter="theirs", index=1):
        measure_agreement(NETWORK, [street, street], [street, bad])


def test_sets_of_different_size_and_zero_distance_are_rejected():
    street = [(41.15, -8.63), (41.16, -8.63)]
    with raises(InvalidTrips, parameter="theirs", value=1):
        measure_agreement(NETWORK, [street, street], [street])
    with raises(InvalidParameter, parameter="metres", value=0.0):
        measure_agreement(NETWORK, [street], [street], metres=0.0)
