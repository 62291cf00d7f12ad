"""Cleaning: every fix is kept or counted, and the kept pieces are drivable."""

from collections.abc import Callable
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from limiirl.errors import InvalidParameter, InvalidTrips
from limiirl.roads import RoadNetwork, SkippedTrip, Trips, clean, read_trips
from limiirl.roads.geometry import Plane, distance_m
from limiirl.roads.kernels.gps import metres
from limiirl.roads.traces.cleaning import CUTS, REASONS, CleanedTrips
from tests.helpers import examples, raises

PLANE = Plane(41.15, -8.63)
NETWORK = RoadNetwork.from_segments([41.1, 41.2, 41.2], [-8.7, -8.7, -8.5], [0, 1, 2], [1, 2, 0])
SWAPPED, SAME, OUTLIER, OUTSIDE, STANDING, FEW, SHORT = REASONS[1:]
GAP, JUMP, LEFT, STOP = CUTS[1:]
ALL = {"min_fixes": 0, "min_length_m": 0.0, "stop_radius_m": 0.0}


def test_skipped_trips_and_notes_are_kept():
    trips = along(*np.arange(0.0, 3000.0, 100.0))
    read = Trips(
        trips.lat,
        trips.lon,
        trips.time_s,
        trips.offsets,
        trips.ids,
        skipped=(SkippedTrip("x", 1, "no fixes"),),
        notes={"left out": 2},
    )
    cleaned = clean(read)
    assert cleaned.trips.skipped == read.skipped
    assert cleaned.trips.notes == read.notes


def along(*x: float, y: float = 0.0, time_s: list[float] | None = None) -> Trips:
    """Return one trip with fixes at the given metres east of a point in Porto."""
    lat, lon = PLANE.degrees(np.column_stack([x, np.full(len(x), y)])).T
    return Trips.from_lists([lat], [lon], None if time_s is None else [time_s])


def pieces(result: CleanedTrips) -> list[list[int]]:
    """Return the indices of the fixes of each piece among the input fixes."""
    return [result.fix[a:b].tolist() for a, b in zip(result.trips.offsets[:-1], result.trips.offsets[1:], strict=True)]


def test_distances_are_those_on_the_ellipsoid():
    rng = np.random.default_rng(0)
    lat, lon = rng.uniform(-70, 70, 40), rng.uniform(179, 181, 40) % 360 - 180
    wanted = distance_m(lat[:-1], lon[:-1], lat[1:], lon[1:])
    result = [metres(lat[i], lon[i], lat[i + 1], lon[i + 1]) for i in range(39)]
    np.testing.assert_allclose(result, wanted, rtol=1e-12)
    assert metres(lat[0], lon[0], lat[0], lon[0]) == 0.0


def test_clean_trip_is_unchanged():
    trip = along(*range(0, 3000, 300))
    result = clean(trip)
    assert result.trips == trip
    assert (result.whole.tolist(), result.source.tolist()) == ([True], [0])
    assert result.dropped == result.cuts == result.lost == {}
    assert not result.fate.any()


@pytest.mark.parametrize("n_out", [1, 2, 5])
def test_excursions_are_dropped(n_out):
    x = np.arange(0.0, 300.0 * 20, 300.0)
    x[7 : 7 + n_out] += 9000.0 * np.arange(1, n_out + 1)  # each at another place
    result = clean(along(*x))
    assert pieces(result) == [[*range(7), *range(7 + n_out, 20)]]
    assert result.dropped == {OUTLIER: n_out}
    assert result.whole.tolist() == [True]


def test_long_excursion_becomes_a_piece():
    x = np.arange(0.0, 300.0 * 20, 300.0)
    x[7:13] += 9000.0
    assert pieces(clean(along(*x))) == [[*range(7)], [*range(7, 13)], [*range(13, 20)]]
    assert clean(along(*x)).cuts == {JUMP: 2}
    assert pieces(clean(along(*x), max_outliers=6)) == [[*range(7), *range(13, 20)]]


def test_jumps_are_cut_or_bridged():
    x = [*np.arange(0.0, 3000.0, 300.0), *np.arange(3700.0, 6000.0, 300.0)]  # 1,000 m in one step
    result = clean(along(*x))
    assert pieces(result) == [[*range(10)], [*range(10, 18)]]
    assert (result.cuts, result.dropped, result.whole.tolist()) == ({JUMP: 1}, {}, [False, False])
    bridged = clean(along(*x), bridge_jumps=True)
    assert (len(bridged), bridged.dropped, bridged.cuts) == (1, {OUTLIER: 1}, {})
    # The distance is too large for every time difference that results from dropping fixes.
    x = [*np.arange(0.0, 3000.0, 300.0), *np.arange(30_000.0, 33_000.0, 300.0)]
    assert clean(along(*x), bridge_jumps=True).cuts == {JUMP: 1}


def test_outlier_at_an_end_is_dropped_alone():
    x = np.arange(0.0, 3000.0, 300.0)
    x[0] = 9000.0
    result = clean(along(*x))
    assert (pieces(result), result.dropped, result.whole.tolist()) == ([[*range(1, 10)]], {FEW: 1}, [False])
    result = clean(along(*x), bridge_jumps=True)
    assert (pieces(result), result.dropped) == ([[*range(1, 10)]], {OUTLIER: 1})


def test_gaps_cut():
    x = np.arange(0.0, 3000.0, 300.0)
    time = 15.0 * np.arange(10.0)
    time[5:] += 105.0  # 120 s in all
    assert len(clean(along(*x, time_s=time))) == 1
    time[5:] += 1.0
    result = clean(along(*x, time_s=time))
    assert (pieces(result), result.cuts, result.dropped) == ([[*range(5)], [*range(5, 10)]], {GAP: 1}, {})


def test_gaps_opened_by_dropped_fixes_are_cut():
    x = np.arange(0.0, 600.0 * 14, 600.0)
    x[7] = 99_000.0
    result = clean(along(*x, time_s=70.0 * np.arange(14)))
    assert (result.cuts, result.dropped) == ({GAP: 1}, {OUTLIER: 1})


def test_outlier_between_two_longest_steps():
    x = np.arange(0.0, 600.0 * 14, 600.0)
    x[7] = 99_000.0
    result = clean(along(*x, time_s=120.0 * np.arange(14)))
    assert (result.cuts, result.dropped) == ({GAP: 1}, {OUTLIER: 1})


def test_gap_within_a_stop_cuts_it():
    x = [0, 300, 600, 900, 1200, 1202, 1204, 1206, 1500, 1800, 2100]
    time = 15.0 * np.arange(11.0)
    time[6:] += 500.0
    result = clean(along(*x, time_s=time))
    assert (pieces(result), result.cuts) == ([[*range(6)], [*range(6, 11)]], {GAP: 1})


def test_first_and_last_fix_of_a_stop_are_kept():
    x = [0, 300, 600, 900, 903, 897, 910, 905, 1200, 1500, 1800]
    result = clean(along(*x))
    assert pieces(result) == [[0, 1, 2, 3, 7, 8, 9, 10]]
    assert (result.dropped, result.whole.tolist()) == ({STANDING: 3}, [True])
    assert result.trips[0][2][3:5].tolist() == [45.0, 105.0]
    assert clean(along(*x), stop_radius_m=0.0).dropped == {}
    # A stop of one minute, followed by another trip.
    split = clean(along(*x), split_stops_s=59.0, min_fixes=3)
    assert (pieces(split), split.cuts) == ([[0, 1, 2, 3], [7, 8, 9, 10]], {STOP: 1})
    assert clean(along(*x), split_stops_s=60.0).cuts == {}


def test_stop_longer_than_the_maximum_gap_is_cut():
    x = [0, 300, 600, *[900] * 20, 1200, 1500]
    result = clean(along(*x))
    assert (len(result), result.cuts, result.dropped) == (1, {}, {STANDING: 18})


def test_first_of_simultaneous_fixes_is_kept():
    x = [0, 300, 310, 600, 900, 1200, 1210]
    result = clean(along(*x, time_s=[0, 15, 15, 30, 45, 60, 60]))
    assert (pieces(result), result.dropped, result.whole.tolist()) == ([[0, 1, 3, 4, 5]], {SAME: 2}, [True])


def test_small_pieces_are_dropped_and_counted():
    few, short = along(0, 300, 600, 900), along(0, 40, 80, 120, 160, 190)
    result = clean(Trips.concat([few, short, along(*range(0, 3000, 300))]))
    assert (result.dropped, result.lost, result.source.tolist()) == ({FEW: 4, SHORT: 6}, {FEW: 1, SHORT: 1}, [2])
    assert len(clean(few, min_fixes=4)) == 1
    assert len(clean(short, min_length_m=189.0)) == 1


def test_fixes_outside_the_network_are_cut():
    east = float(NETWORK.plane.xy(41.15, NETWORK.lon.max())[0] - NETWORK.plane.xy(PLANE.lat, PLANE.lon)[0])
    x = east + np.array([-1500, -1200, -900, -600, -300, 150, 190, 450, 800, 100, -300, -600, -900, -1200, -1500])
    result = clean(along(*x), NETWORK)
    assert pieces(result) == [[*range(7)], [*range(9, 15)]]
    assert (result.dropped, result.cuts, result.whole.tolist()) == ({OUTSIDE: 2}, {LEFT: 1}, [False, False])
    assert clean(along(*x), NETWORK, margin_m=900.0).dropped == {}
    assert clean(along(*x)).dropped == {}
    # An outlier outside the network does not cut the trip.
    x = np.arange(-3000.0, 0.0, 300.0)
    x[4] = 90_000.0
    assert clean(along(*x), NETWORK).dropped == {OUTLIER: 1}


@pytest.mark.parametrize(("axis", "side"), [(0, -1), (0, 1), (1, -1), (1, 1)])
def test_the_margin_is_the_same_on_every_side(axis, side):
    edge = NETWORK.node_xy.mean(axis=0)
    edge[axis] = (NETWORK.node_xy.min if side < 0 else NETWORK.node_xy.max)(axis=0)[axis]
    xy = np.tile(edge, (8, 1))
    xy[:, axis] += side * np.array([-1000.0, -700.0, -400.0, -100.0, 190.0, 210.0, 500.0, 800.0])
    lat, lon = NETWORK.plane.degrees(xy).T
    assert pieces(clean(Trips.from_lists([lat], [lon]), NETWORK)) == [[*range(5)]]


def test_swapped_trips_are_counted_or_rejected():
    good = along(*range(0, 3000, 300))
    bad = Trips(good.lon, good.lat, good.time_s, good.offsets, good.ids)
    result = clean(Trips.concat([good, bad, good]), NETWORK)
    assert (result.dropped, result.lost, result.source.tolist()) == ({SWAPPED: 10}, {SWAPPED: 1}, [0, 2])
    with raises(InvalidTrips, parameter="trips", value=2):
        clean(Trips.concat([bad, bad, good]), NETWORK)
    paris = Trips.from_lists([[48.9] * 5], [[2.3] * 5])
    with raises(InvalidTrips, parameter="network", value=NETWORK.centre):
        clean(paris, NETWORK)


@pytest.mark.parametrize("wrong", [{"max_gap_s": 0.0}, {"max_speed_ms": np.nan}, {"min_fixes": -1}, {"margin_m": -1.0}])
def test_invalid_limits_are_rejected(wrong):
    (name,) = wrong
    with raises(InvalidParameter, parameter=name):
        clean(along(0, 1), **wrong)


def test_nothing_to_clean():
    none = along(0, 300)[:0]
    assert (len(clean(none)), len(clean(none, NETWORK))) == (0, 0)
    assert repr(clean(none)) == "CleanedTrips: 0 pieces of 0 trips, 0 whole; 0 of 0 fixes kept"


def cheapest(x: np.ndarray, most: int, bridge: bool) -> float:
    """Return the minimum cost over all subsets of dropped fixes, by enumeration."""
    n, jump = x.size, most // 2 + 1

    def far(a: int, b: int) -> bool:
        return bool(abs(x[b] - x[a]) > 45.0 * 15.0 * (b - a) + 30.0)

    best = np.inf
    for size in range(1, n + 1):
        for kept in combinations(range(n), size):
            if not bridge and (kept[0] != 0 or kept[-1] != n - 1):
                continue
            pairs = list(pairwise(kept))
            legal = all(b - a - 1 <= most for a, b in pairs)
            if not bridge:
                legal &= all(not far(a, b) for a, b in pairs if b > a + 1)
                legal &= all(far(a, d) and far(d, b) for a, b in pairs for d in range(a + 1, b))
            if legal:
                best = min(best, n - size + jump * sum(far(a, b) for a, b in pairs))
    return best


@settings(max_examples=examples(150), deadline=None)
@given(
    x=st.lists(st.integers(-30, 30), min_size=1, max_size=8),
    most=st.integers(0, 4),
    bridge=st.booleans(),
)
def test_bridging_drops_the_fewest_fixes(x, most, bridge):
    """Return a random walk with steps of 101 m, most of which are impossible."""
    metres = 101.0 * np.array(x) + np.arange(len(x))
    # There are no time gaps, even if many consecutive fixes are dropped.
    result = clean(along(*metres), max_outliers=most, bridge_jumps=bridge, max_gap_s=1e9, **ALL)
    cost = result.dropped.get(OUTLIER, 0) + (most // 2 + 1) * result.cuts.get(JUMP, 0)
    assert cost == cheapest(metres, most, bridge)


@st.composite
def messy_trips(draw: st.DrawFn) -> Trips:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    parts = []
    for _ in range(draw(st.integers(1, 4))):
        n = draw(st.integers(1, 30))
        xy = np.cumsum(rng.normal(0.0, rng.choice([1.0, 200.0], n)[:, None], (n, 2)), axis=0)
        xy += rng.normal(0.0, 8000.0, (n, 2)) * (rng.random((n, 1)) < 0.1)
        time = np.cumsum(rng.choice([0.0, 1.0, 15.0, 60.0, 500.0], n, p=[0.1, 0.2, 0.5, 0.15, 0.05]))
        lat, lon = PLANE.degrees(xy).T
        parts.append(Trips.from_lists([lat], [lon], [time]))
    return Trips.concat(parts)


@settings(max_examples=examples(150), deadline=None)
@given(trips=messy_trips(), bridge=st.booleans(), stop=st.sampled_from([None, 30.0]), min_fixes=st.integers(0, 4))
def test_every_fix_is_kept_or_counted_and_pieces_can_be_driven(trips, bridge, stop, min_fixes):
    limits = {"bridge_jumps": bridge, "split_stops_s": stop, "min_fixes": min_fixes, "min_length_m": 20.0}
    try:
        result = clean(trips, NETWORK, **limits)
    except InvalidTrips as error:
        assume(error.parameter != "network")  # skip sets of trips that lie completely outside
        raise
    assert result.fix.size + sum(result.dropped.values()) == trips.n_fixes == result.fate.size
    np.testing.assert_array_equal(np.flatnonzero(result.fate == 0), result.fix)
    assert len(set(result.source.tolist())) + sum(result.lost.values()) == len(trips)
    for name in ("lat", "lon", "time_s"):
        np.testing.assert_array_equal(getattr(result.trips, name), getattr(trips, name)[result.fix])
    np.testing.assert_array_equal(trips.trip_of_fix[result.fix], np.repeat(result.source, result.trips.lengths))
    for part, (lat, lon, time) in zip(pieces(result), result.trips, strict=True):
        steps, gaps = distance_m(lat[:-1], lon[:-1], lat[1:], lon[1:]), np.diff(time)
        assert len(part) >= min_fixes
        assert steps.sum() >= 20.0
        assert np.all(steps <= (45.0 * gaps + 30.0) * (1 + 1e-9))
        assert np.all((gaps > 0) & ((gaps <= 120.0) | (steps <= 15.0)))
        between = result.fate[part[0] : part[-1]]
        assert set(between[between > 0].tolist()) <= {REASONS.index(why) for why in (SAME, OUTLIER, STANDING)}


def test_porto_is_cleaned_and_accounted_for(shared_data: Callable[[str], Path]):
    trips = read_trips(shared_data("porto_taxi_trips") / "porto_trips_1pct.csv.gz")
    result = clean(trips)
    assert result.fix.size + sum(result.dropped.values()) == 836_221
    assert len(set(result.source.tolist())) + sum(result.lost.values()) == 17_084
    # The README counts 1,416 trips with a jump of over 160 km/h.
    assert 1_200 < result.cuts[JUMP] < 1_500
    assert np.count_nonzero(result.whole) > 15_000
