"""Trimming, masking and suppression: guarantees about the remaining data."""

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from limiirl.demos import Demonstrations
from limiirl.errors import InvalidDemos, InvalidParameter, InvalidTrips, LimiirlWarning
from limiirl.roads import RoadNetwork, Trips, clean
from limiirl.roads.geometry import Plane, distance_m
from limiirl.roads.privacy import (
    RouteMask,
    mask_zones,
    merge_small,
    suppress_small,
    trim_cleaned,
    trim_ends,
    trim_path_ends,
)
from limiirl.roads.traces.trips import SkippedTrip
from tests.helpers import examples, raises

PLANE = Plane(41.15, -8.63)


def random_trips(seed: int, n: int = 5, size: int = 40, step_m: float = 150.0) -> Trips:
    rng = np.random.default_rng(seed)
    lat, lon = [], []
    for _ in range(n):
        xy = np.cumsum(rng.normal(0.0, step_m, (rng.integers(1, size), 2)), axis=0)
        where = PLANE.degrees(xy)
        lat.append(where[:, 0])
        lon.append(where[:, 1])
    return Trips.from_lists(lat, lon, groups=np.arange(n) % 2)


def line(*x: float) -> Trips:
    lat, lon = PLANE.degrees(np.column_stack([x, np.zeros(len(x))])).T
    return Trips.from_lists([lat], [lon], ids=["t"], groups=["ann"])


def line_m(lat: np.ndarray, lon: np.ndarray, to_lat: float, to_lon: float) -> np.ndarray:
    """Return the distance of each line between consecutive fixes from a point, computed with shapely."""
    xy = Plane(to_lat, to_lon).xy(lat, lon)
    return shapely.distance(shapely.linestrings(np.stack([xy[:-1], xy[1:]], axis=1)), shapely.Point(0.0, 0.0))


# Trips


@settings(max_examples=examples(60), deadline=None)
@given(seed=st.integers(0, 2**32 - 1), metres=st.floats(10.0, 800.0), jitter=st.floats(0.0, 1.0))
def test_trimmed_trips_stay_away_from_the_original_ends(seed, metres, jitter):
    trips = random_trips(seed)
    left = trim_ends(trips, metres, jitter=jitter, seed=seed)
    assert left.n_fixes + left.notes.get("fixes trimmed from the ends", 0) == trips.n_fixes
    assert len(left) + left.notes.get("trips without remaining fixes, trimmed from the ends", 0) == len(trips)
    for trip, (lat, lon, time_s) in zip(left.ids.tolist(), left, strict=True):
        old_lat, old_lon, old_time = trips[trip]
        # No remaining fix, and no line between two, is near either end.
        for end in (0, -1):
            assert np.all(distance_m(lat, lon, old_lat[end], old_lon[end]) > metres)
            assert np.all(line_m(lat, lon, old_lat[end], old_lon[end]) > metres * (1.0 - 1e-3))
        k = int(np.flatnonzero((old_time == time_s[0]) & (old_lat == lat[0]))[0])
        np.testing.assert_array_equal(old_lat[k : k + lat.size], lat)
        # The trip is as long as possible: the line to the adjacent dropped fix is within the largest radius of an end.
        far = metres * (1.0 + jitter) * (1.0 + 1e-3)
        for step in (slice(k - 1, k + 1), slice(k + lat.size - 1, k + lat.size + 1)):
            ends = (line_m(old_lat[step], old_lon[step], old_lat[end], old_lon[end])[0] for end in (0, -1))
            assert min(ends) <= far


def test_trip_that_passes_its_start_again_keeps_the_longer_part():
    trips = line(*np.arange(0.0, 1000.0, 100.0), *np.arange(1000.0, -3000.0, -100.0))
    lat, lon, _ = trim_ends(trips, 250.0, jitter=0.0)[0]
    east = PLANE.xy(lat, lon)[:, 0]
    assert east.max() == pytest.approx(-300.0, abs=1.0)
    assert east.min() == pytest.approx(-2600.0, abs=1.0)


def test_trip_that_passes_its_start_between_two_fixes_keeps_the_longer_part():
    trips = line(*np.arange(0.0, 2501.0, 500.0), *np.arange(2250.0, -2751.0, -500.0))  # 250 and -250, home between
    lat, lon, _ = trim_ends(trips, 240.0, jitter=0.0)[0]
    np.testing.assert_allclose(PLANE.xy(lat, lon)[[0, -1], 0], [500.0, 250.0], atol=1.0)


def test_skipped_trips_and_notes_are_kept():
    trips = line(*range(0, 2000, 100))
    skipped = (SkippedTrip("x", 2, "it has no fixes"),)
    read = Trips(*fields_of(trips), skipped, {"odd": 2, "fixes masked": 3})
    assert trim_ends(read, 250.0, jitter=0.0).notes == {"odd": 2, "fixes masked": 3, "fixes trimmed from the ends": 6}
    masked = mask_zones(read, [(*PLANE.degrees([1000.0, 0.0]), 10.0)])
    assert masked.notes == {"odd": 2, "fixes masked": 4}
    assert masked.skipped == trim_ends(read, 250.0).skipped == skipped


def fields_of(trips: Trips) -> tuple:
    return trips.lat, trips.lon, trips.time_s, trips.offsets, trips.ids, trips.groups


def test_masked_trips_are_marked_as_pieces():
    trips = Trips.concat([line(*range(0, 2000, 100)), line(*range(0, 800, 100))])
    trips = Trips(*fields_of(trips)[:4], np.array(["a", "b"]))
    assert trips.cut.tolist() == [False, False]
    end = mask_zones(trips, [(*PLANE.degrees([1900.0, 0.0]), 150.0)])
    assert (end.ids.tolist(), end.pieces.tolist(), end.cut.tolist()) == (["a", "b"], [1, 0], [True, False])
    middle = mask_zones(trips, [(*PLANE.degrees([1000.0, 0.0]), 150.0)])
    assert (middle.ids.tolist(), middle.cut.tolist()) == (["a", "a", "b"], [True, True, False])
    assert clean(end).whole.tolist() == [False, True]
    assert clean(middle).whole.tolist() == [False, False, True]
    assert clean(trips).whole.tolist() == [True, True]


def test_trimmed_distances_are_random_per_trip():
    trips = Trips.concat([line(*np.arange(0.0, 4000.0, 10.0))] * 40)
    starts = {lon[0] for _, lon, _ in trim_ends(trips, 300.0)}
    assert len(starts) > 10
    assert trim_ends(trips) != trim_ends(trips)
    assert trim_ends(trips, seed=3) == trim_ends(trips, seed=3)
    assert trim_ends(trips, 300.0, jitter=0.0).groups.tolist() == ["ann"] * 40


def test_both_ends_are_trimmed_by_independent_distances():
    """With a common radius, one end could be inferred from the other."""
    trips = Trips.concat([line(*np.arange(0.0, 4000.0, 10.0))] * 40)
    left = [PLANE.xy(lat, lon)[[0, -1], 0] for lat, lon, _ in trim_ends(trips, 300.0, jitter=0.5, seed=1)]
    front, back = np.array(left).T[0], 3990.0 - np.array(left).T[1]
    for cut in (front, back):
        assert np.all((cut > 299.0) & (cut < 461.0))
        assert np.ptp(cut) > 100.0
    assert np.count_nonzero(np.abs(front - back) > 10.0) > 20
    assert abs(np.corrcoef(front, back)[0, 1]) < 0.5


def test_trip_shorter_than_both_trimmed_ends_is_dropped():
    left = trim_ends(Trips.concat([line(0, 100, 200), line(*range(0, 2000, 100))]), 250.0, jitter=0.0)
    assert len(left) == 1
    assert left.notes["trips without remaining fixes, trimmed from the ends"] == 1
    assert len(trim_ends(left[:0])) == 0


@pytest.mark.filterwarnings("ignore:No trip enters")
@settings(max_examples=examples(60), deadline=None)
@given(seed=st.integers(0, 2**32 - 1), radius=st.floats(50.0, 600.0))
def test_no_fix_and_no_straight_line_between_two_is_left_in_a_zone(seed, radius):
    trips = random_trips(seed)
    zones = [(41.15, -8.63, radius), (41.152, -8.632, 0.5 * radius)]
    left = mask_zones(trips, zones)
    assert left.n_fixes + left.notes.get("fixes masked", 0) == trips.n_fixes
    inside = np.zeros(trips.n_fixes, dtype=bool)
    for lat, lon, r in zones:
        inside |= np.hypot(*Plane(lat, lon).xy(trips.lat, trips.lon).T) <= r
        for part_lat, part_lon, _ in left:
            share = np.linspace(0.0, 1.0, 50)[:, None]
            xy = Plane(lat, lon).xy(part_lat, part_lon)
            between = (1 - share)[..., None] * xy[:-1] + share[..., None] * xy[1:]
            assert np.all(np.hypot(between[..., 0], between[..., 1]) > r * (1 - 1e-9))
    assert left.n_fixes == np.count_nonzero(~inside)


def test_zones_cut_trips_also_between_two_fixes():
    trip = line(*range(0, 1000, 100))
    middle = tuple(PLANE.degrees([450.0, 0.0]))
    assert [lat.size for lat, _, _ in mask_zones(trip, [(*middle, 60.0)])] == [4, 4]
    narrow = mask_zones(trip, [(*middle, 40.0)])
    assert (narrow.lengths.tolist(), narrow.ids.tolist(), narrow.groups.tolist()) == (
        [5, 5],
        ["t", "t"],
        ["ann", "ann"],
    )
    beside = tuple(PLANE.degrees([450.0, 50.0]))
    with pytest.warns(LimiirlWarning, match="No trip enters"):
        assert mask_zones(trip, [(*beside, 49.0)]) == trip
    assert mask_zones(trip, []) == trip
    everything = mask_zones(trip, [(*middle, 5000.0)])
    assert (len(everything), everything.notes["trips without remaining fixes, masked"]) == (0, 1)


@pytest.mark.parametrize("zone", [(41.0, -8.0, 0.0), (141.0, -8.0, 5.0), (41.0, np.nan, 5.0)])
def test_invalid_zones_are_rejected(zone):
    with raises(InvalidParameter, parameter="zones", index=0):
        mask_zones(line(0, 1), [zone])


def test_unused_zone_warns():
    trip = Trips.from_lists([41.15 + 0.001 * np.arange(9)], [np.full(9, -8.63)])
    with pytest.warns(LimiirlWarning, match=r"zones\[1\]"):
        masked = mask_zones(trip, [(41.154, -8.63, 150.0), (-8.63, 41.154, 150.0)])
    assert len(masked) == 2


def test_cleaned_trips_are_accepted():
    cleaned = clean(Trips.from_lists([41.15 + 0.001 * np.arange(20)], [np.full(20, -8.63)]))
    for tool in (
        lambda given: trim_ends(given, 300.0, seed=0),
        lambda given: mask_zones(given, [(41.16, -8.63, 150.0)]),
    ):
        np.testing.assert_array_equal(tool(cleaned).lat, tool(cleaned.trips).lat)
        with raises(InvalidTrips, parameter="trips", value="list"):
            tool([1.0])


@pytest.mark.parametrize("known", [{"metres": 0.0}, {"metres": np.inf}, {"jitter": -0.1}])
def test_invalid_distances_are_rejected(known):
    ((name, value),) = known.items()
    with raises(InvalidParameter, parameter=name, value=value):
        trim_ends(line(0, 1), **known)
    with raises(InvalidParameter, parameter=name, value=value):
        trim_path_ends(Demonstrations.from_lists([[0]]), [1.0], **known)


# Matched paths


@settings(max_examples=examples(60), deadline=None)
@given(seed=st.integers(0, 2**32 - 1), metres=st.floats(1.0, 400.0))
def test_paths_lose_at_least_the_distance_at_both_ends(seed, metres):
    rng = np.random.default_rng(seed)
    lengths_m = rng.uniform(5.0, 200.0, 30)
    paths = [rng.integers(30, size=rng.integers(1, 25)).tolist() for _ in range(6)]
    demos = Demonstrations.from_lists(paths, [[k % 3 for k in path[:-1]] for path in paths], groups=np.arange(6))
    left = trim_path_ends(demos, lengths_m, metres, jitter=0.0)
    expected = []
    for path in paths:
        first, last = 0, len(path)
        while first < len(path) and lengths_m[path[:first]].sum() < metres:
            first += 1
        while last > 0 and lengths_m[path[last:]].sum() < metres:
            last -= 1
        # The longest remaining run without a segment of the ends (the first if tied).
        ends = {*path[:first], *path[last:]}
        runs = [(i, j) for i in range(first, last) for j in range(i + 1, last + 1) if not ends & {*path[i:j]}]
        if runs:
            i, j = max(runs, key=lambda run: run[1] - run[0])
            expected.append((path[i:j], [k % 3 for k in path[i : j - 1]]))
    assert [demo.states.tolist() for demo in left] == [states for states, _ in expected]
    assert [demo.actions.tolist() for demo in left] == [actions for _, actions in expected]


def test_path_that_returns_home_keeps_the_longer_part():
    demos = Demonstrations.from_lists([[0, 1, 2, 3, 0, 4, 5, 6, 7, 8]])
    left = trim_path_ends(demos, [100.0] * 9, 150.0, jitter=0.0)
    assert left.states.tolist() == [4, 5, 6]
    assert len(trim_path_ends(demos[:0], [100.0])) == 0


def test_trimmed_paths_keep_metadata():
    demos = Demonstrations.from_lists([[0, 1, 2], [0], [2, 1, 0]], groups=["a", "b", "c"], labels=[1, 2, 3])
    left = trim_path_ends(demos, [100.0, 100.0, 100.0], 100.0, jitter=0.0)
    assert (left.states.tolist(), left.groups.tolist(), left.labels.tolist()) == ([1, 1], ["a", "c"], [1, 3])
    with raises(InvalidParameter, parameter="lengths_m", value=(2,)):
        trim_path_ends(demos, [1.0, 1.0])


# Small numbers


def test_small_counts_are_hidden_and_zeros_are_not():
    np.testing.assert_array_equal(suppress_small([[0, 1], [4, 5]]), [[0.0, np.nan], [np.nan, 5.0]])
    np.testing.assert_array_equal(suppress_small([2, 3], least=3), [np.nan, 3.0])
    np.testing.assert_array_equal(suppress_small([1, 1], least=1), [1.0, 1.0])


@settings(max_examples=examples(150), deadline=None)
@given(
    table=st.lists(st.lists(st.integers(0, 12), min_size=4, max_size=4), min_size=1, max_size=5),
    least=st.integers(1, 8),
    total_axes=st.sampled_from([(), (0,), (1,), (0, 1)]),
)
def test_no_hidden_count_follows_from_a_total(table, least, total_axes):
    counts = np.array(table)
    shown = suppress_small(counts, least, total_axes=total_axes)
    hidden = np.isnan(shown)
    np.testing.assert_array_equal(shown[~hidden], counts[~hidden])
    assert hidden[(counts > 0) & (counts < least)].all()
    assert not hidden[counts == 0].any()
    if not total_axes:
        assert not hidden[counts >= least].any()
    for axis in total_axes:
        for line_counts, line_hidden in zip(np.moveaxis(counts, axis, -1), np.moveaxis(hidden, axis, -1), strict=True):
            if line_hidden.any() and (line_counts[~line_hidden] > 0).any():
                assert line_hidden.sum() >= 2
                assert line_counts[line_hidden].sum() >= least


@pytest.mark.parametrize(("args", "parameter"), [(([-1],), "counts"), (([0.5],), "counts"), (([1], 0), "least")])
def test_invalid_counts_are_rejected(args, parameter):
    with raises(InvalidParameter, parameter=parameter):
        suppress_small(*args)
    with raises(InvalidParameter, parameter="total_axes", value=(1,)):
        suppress_small([1], total_axes=(1,))


@settings(max_examples=examples(100), deadline=None)
@given(labels=st.lists(st.integers(0, 5), max_size=25), least=st.integers(1, 6))
def test_no_small_group_is_left(labels, least):
    merged = merge_small(labels, least)
    names, counts = np.unique(merged, return_counts=True)
    if len(labels) >= least:
        assert np.all(counts >= least)
    kept = merged != "others"
    assert merged[kept].tolist() == [str(label) for label, k in zip(labels, kept, strict=True) if k]
    sizes = {label: labels.count(label) for label in labels}
    if all(size >= least for size in sizes.values()):
        assert "others" not in names


def test_existing_group_name_is_rejected_for_the_merged_group():
    with raises(InvalidParameter, parameter="into", value="others"):
        merge_small(["others", "a"])


@settings(max_examples=examples(60), deadline=None)
@given(seed=st.integers(0, 2**32 - 1), least=st.integers(1, 4))
def test_segments_are_shown_where_enough_drivers_passed(seed, least):
    rng = np.random.default_rng(seed)
    paths = [rng.integers(9, size=rng.integers(1, 6)).tolist() for _ in range(8)]
    who = rng.integers(5, size=8)
    demos = Demonstrations.from_lists(paths, groups=[f"d{i}" for i in who])
    mask = RouteMask.from_demos(demos, 10, least)
    drivers = [len({int(i) for i, path in zip(who, paths, strict=True) if s in path}) for s in range(10)]
    assert mask.drivers.tolist() == drivers
    assert mask.hidden.tolist() == [0 < k < least for k in drivers]
    values = rng.normal(size=(10, 2))
    np.testing.assert_array_equal(np.isnan(mask.apply(values)), np.repeat(mask.hidden[:, None], 2, axis=1))
    assert mask.select_paths(demos).tolist() == [not any(0 < drivers[s] < least for s in path) for path in paths]


def test_route_mask_needs_drivers():
    with raises(InvalidDemos, parameter="demos"):
        RouteMask.from_demos(Demonstrations.from_lists([[0]]), 1)
    with raises(InvalidDemos, parameter="demos", value=3):
        RouteMask.from_demos(Demonstrations.from_lists([[3]], groups=["a"]), 3)
    with raises(InvalidDemos, parameter="demos", value=3):
        RouteMask.from_demos(Demonstrations.from_lists([[0]], groups=["a"]), 1).select_paths(
            Demonstrations.from_lists([[0, 3]])
        )
    with raises(InvalidParameter, parameter="values", value=(2,)):
        RouteMask.from_demos(Demonstrations.from_lists([[0]], groups=["a"]), 1).apply([1.0, 2.0])


# Cleaned trips

CORNERS = PLANE.degrees([[-5000.0, -5000.0], [5000.0, -5000.0], [5000.0, 5000.0]])
NETWORK = RoadNetwork.from_segments(CORNERS[:, 0], CORNERS[:, 1], [0, 1, 2], [1, 2, 0])


def drives(*lines: list[float]) -> Trips:
    """Return trips with fixes at the given metres east of a point."""
    points = [PLANE.degrees(np.column_stack([x, np.zeros(len(x))])) for x in lines]
    return Trips.from_lists([p[:, 0] for p in points], [p[:, 1] for p in points])


def test_outlier_at_the_start_does_not_protect_the_home_from_trimming():
    steps = np.arange(0.0, 3000.0, 100.0)
    homes = [100.0, 0.0]  # the first true fix of the trip with the outlier is at 100 m
    left = trim_cleaned(clean(drives([4000.0, *steps[1:]], list(steps)), NETWORK), NETWORK, 250.0).trips
    assert 1 in left.ids
    for trip, (lat, lon, _) in zip(left.ids.tolist(), left, strict=True):
        for end in (homes[trip], steps[-1]):
            assert distance_m(lat, lon, *PLANE.degrees([[end, 0.0]])[0]).min() > 250.0


def test_every_trip_is_still_accounted_for():
    steps = list(np.arange(0.0, 3000.0, 100.0))
    # The second trip is shorter than every radius; the third has a jump in the middle.
    cleaned = clean(drives(steps, steps[:5], [*steps[:15], *(x + 1500.0 for x in steps[15:])]), NETWORK)
    left = trim_cleaned(cleaned, NETWORK, 250.0)
    assert left.n_trips == 3
    assert len(left.trips) == 1
    assert left.lost == {"cut before its ends could be trimmed": 1, "no fixes left after trimming": 1}


def test_trimming_everything_is_rejected():
    with raises(InvalidTrips, parameter="metres", value=2000.0):
        trim_cleaned(clean(drives(list(np.arange(0.0, 3000.0, 100.0))), NETWORK), NETWORK, 2000.0)
