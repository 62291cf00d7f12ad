"""`Trips`: validation, immutability, selection, concatenation and comparison."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limiirl.errors import InvalidParameter, InvalidTrips
from limiirl.roads import SkippedTrip, Trips, read_trips
from tests.helpers import examples, raises


def three(**known) -> Trips:
    lat = [[41.1, 41.2, 41.3], [41.5], [41.6, 41.7]]
    lon = [[-8.1, -8.2, -8.3], [-8.5], [-8.6, -8.7]]
    return Trips.from_lists(lat, lon, **({"ids": ["a", "b", "c"], "groups": [7, 8, 7]} | known))


def test_lists_become_flat_read_only_arrays():
    trips = three(step_s=10.0)
    assert (len(trips), trips.n_fixes, trips.lengths.tolist()) == (3, 6, [3, 1, 2])
    assert trips.offsets.tolist() == [0, 3, 4, 6]
    assert trips.time_s.tolist() == [0.0, 10.0, 20.0, 0.0, 0.0, 10.0]
    assert trips.trip_of_fix.tolist() == [0, 0, 0, 1, 2, 2]
    for name in ("lat", "lon", "time_s", "offsets", "ids", "groups"):
        assert not getattr(trips, name).flags.writeable
    mine = np.array([41.0, 41.1])
    taken = Trips(mine, mine, mine, np.array([0, 2]), np.array(["x"]))
    mine[0] = 7.0
    assert taken.lat[0] == 41.0


def test_one_trip_and_several():
    trips = three()
    lat, lon, time_s = trips[-1]
    assert (lat.tolist(), lon.tolist(), time_s.tolist()) == ([41.6, 41.7], [-8.6, -8.7], [0.0, 15.0])
    chosen = trips[[2, 0]]
    assert (chosen.ids.tolist(), chosen.groups.tolist(), chosen.lat[:2].tolist()) == (["c", "a"], [7, 7], [41.6, 41.7])
    assert trips[1:] == trips[np.array([False, True, True])] == trips[[1, 2]]
    assert [lat.size for lat, _, _ in trips] == [3, 1, 2]
    assert len(trips[:0]) == 0


def test_trips_are_equal_if_their_content_is():
    assert three() == three()
    assert hash(three()) == hash(three())
    assert three() != three(ids=["a", "b", "d"])
    assert three() != three(groups=None)
    assert three() != "trips"


def test_concat_joins_trips_and_metadata():
    one = three()
    other = Trips(
        one.lat, one.lon, one.time_s, one.offsets, one.ids, one.groups, (SkippedTrip("z", 4, "empty"),), {"odd": 2}
    )
    both = Trips.concat([other, one, other])
    assert (len(both), both.n_fixes, both.notes, len(both.skipped)) == (9, 18, {"odd": 4}, 2)
    assert both[:3] == one
    assert both[3:6].lat.tolist() == one.lat.tolist()
    assert both.pieces.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    numbers = Trips.concat([three(ids=[1, 2, 3]), one])
    assert numbers.ids.tolist() == ["1", "2", "3", "a", "b", "c"]
    with raises(InvalidTrips, parameter="parts", index=1):
        Trips.concat([one, three(groups=None)])
    with raises(InvalidParameter, parameter="parts"):
        Trips.concat([])


@pytest.mark.parametrize(
    ("change", "parameter", "index"),
    [
        ({"lat": [41.0, np.nan, 41.0]}, "lat", 1),
        ({"lat": [41.0, 41.0, 121.0]}, "lat", 2),
        ({"lon": [41.0, -181.0, 0.0]}, "lon", 1),
        ({"time_s": [0.0, np.inf, 0.0]}, "time_s", 1),
        ({"time_s": [5.0, 4.0, 0.0]}, "time_s", 1),
        ({"lon": [41.0, 41.0]}, "time_s", None),
        ({"lat": ["a", "b", "c"]}, "lat", None),
        ({"offsets": [0, 3, 3]}, "offsets", 1),
        ({"offsets": [0, 2]}, "offsets", None),
        ({"offsets": [0.0, 3.0]}, "offsets", None),
        ({"ids": ["a"]}, "ids", None),
        ({"groups": [0.5, 1.0]}, "groups", None),
    ],
)
def test_invalid_arrays_are_rejected_with_the_index(change, parameter, index):
    fields = {"lat": [41.0, 41.0, 41.0], "lon": [0.0, 0.0, 0.0], "time_s": [0.0, 1.0, 0.0]}
    fields |= {"offsets": [0, 2, 3], "ids": ["a", "b"]}
    with raises(InvalidTrips, parameter=parameter, index=index):
        Trips(**(fields | change))


def test_lists_of_different_lengths_are_rejected():
    with raises(InvalidTrips, parameter="lat", value=(2, 1, 2), index=1):
        Trips.from_lists([[1.0], [1.0, 2.0]], [[1.0], [1.0]])
    with raises(InvalidTrips, parameter="lat", value=(1, 2, 1)):
        Trips.from_lists([[1.0]], [[1.0], [2.0]])


@pytest.mark.parametrize("index", [3, -4, [0, 3]])
def test_trip_index_out_of_range(index):
    with pytest.raises(IndexError, match=r"(3|-4) is out of range"):
        three()[index]


@pytest.mark.parametrize("index", [[True, False], [0.5], np.zeros((1, 1), dtype=int)])
def test_invalid_selection_is_rejected(index):
    with raises(InvalidParameter, parameter="index"):
        three()[index]


def test_ids_too_large_for_int64_become_text():
    ids = np.array([1, 2, 2**64 - 1], dtype=np.uint64)
    assert three(ids=ids).ids.tolist() == ["1", "2", str(2**64 - 1)]
    assert three(ids=[1, 2, 3]).ids.dtype == np.int64


def test_repr_of_trips():
    words = repr(three())
    assert words.splitlines()[0] == "Trips: 3 trips, 6 fixes"
    assert "1 to 3 per trip, median 2" in words
    assert "drivers   2" in words
    assert repr(three()[:0]).splitlines() == ["Trips: 0 trips, 0 fixes", "  drivers   0"]
    full = Trips([1.0], [1.0], [1.0], [0, 1], [1], None, [SkippedTrip("9", 3, "it has no fixes")], {"odd": 2})
    assert "skipped   1 trip; first reason: it has no fixes" in repr(full)
    assert "repaired  odd: 2" in repr(full)


@settings(max_examples=examples(30), deadline=None)
@given(
    lengths=st.lists(st.integers(1, 5), min_size=1, max_size=6),
    text=st.booleans(),
    drivers=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_parquet_round_trip(tmp_path_factory, lengths, text, drivers, seed):
    rng = np.random.default_rng(seed)
    lat, lon = ([rng.uniform(-90, 90, n) for n in lengths] for _ in range(2))
    times = [1.4e9 + np.cumsum(rng.uniform(0.0, 20.0, n)) for n in lengths]
    ids = np.arange(len(lengths)) * 3
    groups = np.array([f"d{i % 2}" for i in range(len(lengths))]) if drivers else None
    trips = Trips.from_lists(lat, lon, times, ids=[f"t{i}" for i in ids] if text else ids, groups=groups)
    path: Path = tmp_path_factory.mktemp("trips") / "trips.parquet"
    trips.to_parquet(path)
    assert read_trips(path) == trips
