"""Statistics of a matching, counted by hand on a street."""

from pathlib import Path

import numpy as np
import pytest

from limiirl.demos import Demonstrations
from limiirl.errors import InvalidDemos, InvalidParameter, InvalidTrips, SkippedTripsWarning
from limiirl.roads import Matches, RoadNetwork, Trips, clean, match, path_recovery, read_trips, simulate_recording
from limiirl.roads.geometry import Plane
from limiirl.roads.kernels.hmm import path_progress
from limiirl.roads.matching.matches import MatchedPiece, TripMatch
from limiirl.roads.matching.quality import measure_quality
from limiirl.roads.privacy import trim_cleaned
from limiirl.roads.traces.trips import SkippedTrip
from tests.helpers import raises

CENTRE = (41.15, -8.63)


def street() -> RoadNetwork:
    """Return eight segments of 100 m, from west to east."""
    lat, lon = Plane(*CENTRE).degrees(np.column_stack([100.0 * np.arange(9), np.zeros(9)])).T
    return RoadNetwork.from_segments(lat, lon, np.arange(8), np.arange(1, 9), centre=CENTRE, length_m=np.full(8, 100.0))


def trips_of(*trips: list, skipped: tuple = ()) -> Trips:
    lat, lon = zip(*(Plane(*CENTRE).degrees(np.array(trip)[:, :2]).T for trip in trips), strict=True)
    made = Trips.from_lists(lat, lon, [[row[2] for row in trip] for trip in trips])
    return Trips(made.lat, made.lon, made.time_s, made.offsets, made.ids, made.groups, skipped)


def test_statistics_of_two_trips_counted_by_hand():
    # Fixes at 30, 130 and 730 m with one unmatched; and an unmatched trip.
    trips = trips_of(
        [(30, 5, 0), (130, -12, 15), (400, 90, 30), (730, 0, 100)],
        [(0, 900, 0), (9, 900, 15)],
        skipped=(SkippedTrip("x", 2, "no fixes"),),
    )
    one = TripMatch(
        (MatchedPiece(0, 3, np.arange(8), 0.75),),
        np.array([0, 1, -1, 7]),
        np.array([30.0, 30.0, np.nan, 30.0]),
        np.array([5.0, 12.0, np.nan, 0.0]),
        ("skipped",),
    )
    none = TripMatch((), np.full(2, -1), np.full(2, np.nan), np.full(2, np.nan), ("nothing near",))
    quality = measure_quality(street(), trips, Matches.from_trips(trips, [one, none]))
    assert (quality.n_trips, quality.n_pieces_given, quality.n_matched, quality.n_whole, quality.n_paths) == (
        3,
        2,
        1,
        1,
        1,
    )
    assert (quality.n_fixes, quality.n_fixes_matched, quality.fraction_matched) == (6, 3, 0.5)
    assert quality.lost == {"no fixes": 1}
    assert quality.reasons == {"skipped": 1, "nothing near": 1}
    np.testing.assert_allclose(quality.distance_m[2], 5.0, rtol=1e-12)
    np.testing.assert_allclose(list(quality.within.values()), [2 / 3, 1.0, 1.0], rtol=1e-12)
    np.testing.assert_allclose(quality.gap_m[[0, 2]], [125.0, 350.0], rtol=1e-12)  # 100 and 600 m
    np.testing.assert_allclose(quality.gap_s[2], 50.0, rtol=1e-12)  # 15 and 85 s
    assert quality.n_gaps == 1
    np.testing.assert_allclose(quality.fraction_in_gaps, 600 / 700, rtol=1e-12)
    np.testing.assert_allclose(quality.length_ratio, 700.0 / (np.hypot(100, 17) + np.hypot(600, 12)), rtol=1e-6)
    assert quality.worst.tolist() == quality.typical.tolist() == [0]
    np.testing.assert_allclose(quality.fraction_whole, 1 / 3, rtol=1e-12)
    assert "1 of 3 trips matched completely" in repr(quality)


def test_path_progress_counts_repeated_segments_and_never_decreases():
    length = np.array([100.0, 50.0, 10.0])
    path = np.array([0, 1, 2, 0, 1])
    segment, along = np.array([0, 0, -1, 2, 0, 1]), np.array([60.0, 55.0, np.nan, 5.0, 20.0, 50.0])
    progress = path_progress(path, length, segment, along)
    np.testing.assert_allclose(progress, [60.0, 60.0, np.nan, 155.0, 180.0, 310.0], rtol=1e-12)
    # A fix on an earlier segment of the path does not advance.
    np.testing.assert_allclose(
        path_progress(path[:3], length, np.array([1, 0]), np.array([9.0, 3.0])), [109.0, 109.0], rtol=1e-12
    )


def test_worst_and_typical_paths_by_confidence():
    trips = trips_of(*([(10, 0, 0), (50, 0, 15)] for _ in range(5)))
    sure = [0.9, 0.2, 0.8, 0.5, 0.7]
    match_of = [
        TripMatch((MatchedPiece(0, 1, np.array([0]), c),), np.zeros(2, int), np.array([10.0, 50.0]), np.zeros(2))
        for c in sure
    ]
    quality = measure_quality(street(), trips, Matches.from_trips(trips, match_of), examples=2)
    assert quality.worst.tolist() == [1, 3]
    assert quality.typical.tolist() == [4, 2]
    np.testing.assert_allclose(quality.length_ratio, np.ones(5), rtol=1e-6)


@pytest.mark.parametrize("method", ["hmm", "particles"])
def test_cleaned_trips_are_counted_as_recorded(method: str, small_city):
    city = small_city
    trips = simulate_recording(city.network, city.drive(3, 2).demos, noise_m=4.0, seed=1, outliers=0.1).trips
    cleaned = clean(trips, city.network, max_speed_ms=14.0)
    matches = match(city.network, cleaned, method, threads=1)
    quality = measure_quality(city.network, cleaned, matches)
    assert (quality.n_trips, quality.n_pieces_given, quality.n_fixes) == (
        len(trips),
        len(cleaned),
        cleaned.trips.n_fixes,
    )
    assert quality.n_whole == np.count_nonzero(matches.whole)
    assert dict(quality.dropped) == dict(cleaned.dropped) != {}
    assert sum(quality.dropped.values()) + quality.n_fixes == trips.n_fixes
    assert 2.0 < quality.distance_m[2] < 4.0
    assert 0.8 < np.median(quality.length_ratio) < 1.2


def test_no_match_gives_nan_statistics():
    trips = trips_of([(0, 900, 0), (9, 900, 15)])
    quality = measure_quality(street(), trips, match(street(), trips))
    assert (quality.n_paths, quality.n_whole, quality.fraction_matched, quality.n_gaps) == (0, 0, 0.0, 0)
    assert np.isnan(quality.distance_m).all()
    assert np.isnan(quality.fraction_in_gaps)
    assert "0 of 1 trips" in repr(quality)


def test_unreadable_rows_are_not_trips_and_trimming_keeps_the_counts(tmp_path: Path):
    rows = ["trip,time,lat,lon"]
    # One complete trip, one with a stop of five minutes, and one that is too short.
    for trip, (least, most) in enumerate([(0, 800), (30, 700), (300, 400)]):
        for second, x in enumerate(range(least, most, 10)):
            lat, lon = Plane(*CENTRE).degrees([x, 0.0])
            rows.append(f"{trip},{second + 300 * (trip == 1 and x > 350)},{lat:.7f},{lon:.7f}")
    rows = [*rows[:5], "0,1", "0,2", *rows[5:], "0,3,4"]
    (tmp_path / "trips.csv").write_text("\n".join(rows), encoding="utf-8")
    with pytest.warns(SkippedTripsWarning, match="3 skipped"):
        read = read_trips(tmp_path / "trips.csv")
    assert (len(read), read.n_fixes) == (3, 80 + 67 + 10)
    assert "3 trips or rows" in repr(read)
    cleaned = clean(read, street())
    assert cleaned.whole.tolist() == [True, False, False]
    for given in (cleaned, trim_cleaned(cleaned, street(), 60.0)):
        quality = measure_quality(street(), given, match(street(), given, sigma_m=5.0, threads=1))
        assert (quality.n_trips, quality.n_whole) == (3, 1)
        assert list(quality.unread.values()) == [3]
        assert sum(quality.dropped.values()) + quality.n_fixes == read.n_fixes
        assert not any("cells" in reason for reason in quality.lost)
    assert quality.lost["cut before its ends could be trimmed"] == 1
    assert quality.dropped["at the ends, trimmed"] > 10


def test_another_network_is_rejected():
    trips = trips_of([(10, 0, 0), (50, 0, 15)])
    matches = match(street(), trips)
    other = RoadNetwork.from_segments([41.15, 41.151], [-8.63, -8.63], [0], [1])
    with raises(InvalidTrips, parameter="network", value="a50100b90128c837"):
        measure_quality(other, trips, matches)
    truth = Demonstrations.from_lists([[0, 1]])
    with raises(InvalidTrips, parameter="network", value="a50100b90128c837"):
        path_recovery(other, truth, matches)
    with raises(InvalidDemos, parameter="truth", value=8):
        path_recovery(street(), Demonstrations.from_lists([[8]]), matches)
    for source in ([-1], [1], [0.0], [0, 0], [[0]]):
        with raises(InvalidParameter, parameter="source"):
            path_recovery(street(), truth, matches, source=source)
    assert path_recovery(street(), truth, matches, source=[0]).recovered_m.tolist() == [100.0]
    nothing = match(street(), trips[:0])
    assert path_recovery(street(), truth, nothing, source=[]).share == 0.0


def test_other_trips_are_rejected():
    trips = trips_of([(10, 0, 0), (50, 0, 15)])
    with raises(InvalidTrips, parameter="trips"):
        measure_quality(street(), trips_of([(10, 0, 0), (50, 0, 15), (60, 0, 30)]), match(street(), trips))
