"""Pieces of cut trips, in memory and in files."""

import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from limiirl.errors import InvalidTrips, SkippedTripsWarning
from limiirl.roads import Trips, clean, read_trips
from limiirl.roads.geometry import Plane, distance_m
from limiirl.roads.privacy import mask_zones, trim_ends
from tests.helpers import examples, raises

PLANE = Plane(41.15, -8.63)


def lines(*xs: np.ndarray, **known) -> Trips:
    """Return trips with fixes at the given metres east of a point."""
    points = [PLANE.degrees(np.column_stack([x, np.zeros(len(x))])) for x in xs]
    return Trips.from_lists([p[:, 0] for p in points], [p[:, 1] for p in points], **known)


def quietly(*args, **known) -> Trips:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkippedTripsWarning)
        return read_trips(*args, **known)


def test_pieces_of_one_trip_are_numbered():
    steps = np.arange(0.0, 500.0, 100.0)
    trips = lines(steps, steps, steps, steps, ids=["a", "b", "a", "a"], groups=["ann", "ann", "ann", "bob"])
    assert trips.pieces.tolist() == [0, 0, 1, 0]
    assert not trips.pieces.flags.writeable
    assert trips[[2, 0]].pieces.tolist() == [1, 0]
    assert trips[[2, 2]].pieces.tolist() == [0, 1]  # drawn twice: two pieces, not one that is twice as long
    assert trips != Trips(*trips_of(trips), pieces=[5, 0, 1, 0])
    with raises(InvalidTrips, parameter="pieces"):
        Trips(*trips_of(trips), pieces=[0, 0, -1, 0])
    with raises(InvalidTrips, parameter="pieces"):
        Trips(*trips_of(trips), pieces=[0, 1])


def trips_of(trips: Trips) -> tuple:
    return trips.lat, trips.lon, trips.time_s, trips.offsets, trips.ids, trips.groups


def test_masked_trips_stay_cut_in_a_file(tmp_path):
    trips = lines(np.arange(0.0, 3000.0, 100.0), np.arange(0.0, 900.0, 100.0), ids=["t", "u"], groups=["ann", "bob"])
    zones = [(*PLANE.degrees([x, 0.0]), 150.0) for x in (950.0, 2050.0)]
    masked = mask_zones(trips, zones)
    assert (masked.ids.tolist(), masked.pieces.tolist()) == (["t", "t", "t", "u"], [0, 1, 2, 0])
    masked.to_parquet(tmp_path / "masked.parquet")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        back = read_trips(tmp_path / "masked.parquet")
    assert back == masked
    for lat, lon, _ in back:  # no step leads over a circle
        assert distance_m(lat[:-1], lon[:-1], lat[1:], lon[1:]).max() < 101.0


def test_cleaned_trips_stay_cut_in_a_file(tmp_path):
    x = np.arange(0.0, 300.0 * 40, 300.0)
    time = 15.0 * np.arange(40.0)
    time[10:] += 1000.0
    time[25:] += 1000.0
    points = PLANE.degrees(np.column_stack([x, np.zeros(40)]))
    cleaned = clean(Trips.from_lists([points[:, 0]], [points[:, 1]], [time], ids=["t"])).trips
    assert (cleaned.lengths.tolist(), cleaned.pieces.tolist()) == ([10, 15, 15], [0, 1, 2])
    cleaned.to_parquet(tmp_path / "cleaned.parquet")
    assert read_trips(tmp_path / "cleaned.parquet") == cleaned
    # Only pieces that are cut again are renumbered.
    assert clean(cleaned).trips == cleaned
    assert clean(cleaned[1:]).trips == cleaned[1:]
    again = mask_zones(cleaned, [(*points[15], 200.0)])
    assert (again.lengths.tolist(), again.pieces.tolist()) == ([10, 5, 9, 15], [0, 1, 2, 3])
    assert mask_zones(cleaned[1:], []).pieces.tolist() == [1, 2]
    assert trim_ends(cleaned[1:], 400.0, seed=0).pieces.tolist() == [1, 2]


def test_a_table_of_pieces_in_any_order(tmp_path):
    table = {
        "trip": ["a", "a", "a", "a", "b", "a"],
        "piece": [1, 0, 1, 0, 0, 2],
        "driver": ["x", "x", "x", "x", "x", "y"],
        "time": [40.0, 0.0, 50.0, 10.0, 0.0, 0.0],
        "lat": [41.4, 41.1, 41.5, 41.2, 42.0, 43.0],
        "lon": [-8.0] * 6,
    }
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    trips = quietly(tmp_path / "a.parquet")
    # Trip a of y differs from trip a of x; the two pieces of the latter keep a common id.
    assert trips.ids.tolist() == ["a", "a", "b", "a#2"]
    assert trips.pieces.tolist() == [1, 0, 0, 2]
    assert [lat.tolist() for lat, _, _ in trips] == [[41.4, 41.5], [41.1, 41.2], [42.0], [43.0]]
    assert quietly(tmp_path / "a.parquet", columns={"piece": None}).lengths.tolist() == [4, 1, 1]
    words = pa.table(table | {"piece": ["late", "early", "late", "early", "", "early"]})
    pq.write_table(words, tmp_path / "words.parquet")
    assert quietly(tmp_path / "words.parquet").lengths.tolist() == [2, 2, 1, 1]


def test_several_files_of_pieces(tmp_path):
    x = np.arange(0.0, 2000.0, 100.0)
    masked = mask_zones(lines(x, ids=["t"]), [(*PLANE.degrees([950.0, 0.0]), 60.0)])
    other = mask_zones(lines(x + 5.0, ids=["t"]), [(*PLANE.degrees([950.0, 0.0]), 60.0)])
    for name, part in (("a", masked), ("b", other), ("c", masked)):
        part.to_parquet(tmp_path / f"{name}.parquet")
    trips = quietly(tmp_path)
    assert (trips.ids.tolist(), trips.pieces.tolist()) == (["t", "t", "t#2", "t#2"], [0, 1, 0, 1])
    assert [skip.reason.startswith("it is a copy") for skip in trips.skipped] == [True, True]


def test_renamed_trips_do_not_collide(tmp_path):
    rows = ["trip,polyline", *(f'{name},"[[-8.6,{lat}]]"' for name, lat in (("7", 41), ("7", 42), ("7#2", 43)))]
    (tmp_path / "a.csv").write_text("\n".join(rows), encoding="utf-8")
    trips = quietly(tmp_path / "a.csv")
    assert (trips.ids.tolist(), trips.pieces.tolist()) == (["7", "7#3", "7#2"], [0, 0, 0])


@settings(max_examples=examples(40), deadline=None)
@given(
    names=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 4)), min_size=1, max_size=8, unique=True),
    drivers=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_parquet_round_trip_of_pieces(tmp_path_factory, names, drivers, seed):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 5, len(names))
    ids, pieces = zip(*names, strict=True)
    fixes = rng.uniform(-80, 80, (2, lengths.sum()))
    times = np.concatenate([np.cumsum(rng.uniform(1.0, 20.0, n)) for n in lengths])
    groups = [f"driver of {name}" for name in ids] if drivers else None
    trips = Trips(*fixes, times, np.concatenate([[0], np.cumsum(lengths)]), ids, groups, pieces=pieces)
    assert trips.pieces.tolist() == list(pieces)
    path = tmp_path_factory.mktemp("pieces") / "a.parquet"
    trips.to_parquet(path)
    assert read_trips(path) == trips
