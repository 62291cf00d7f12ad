"""HMM matching on streets with known paths, and reasons for unmatched parts."""

import numpy as np
import pytest

from limiirl.errors import InvalidParameter, InvalidTrips
from limiirl.roads import (
    City,
    Matches,
    RoadNetwork,
    Trips,
    build,
    clean,
    estimate_noise,
    match,
    read_trips,
    simulate_recording,
)
from limiirl.roads.kernels.routing import router, streets_between
from limiirl.roads.matching.candidates import AWAY, CUT, LEFT_OVER, OUTSIDE, SINGLE, SKIPPED, build_grid, build_streets
from limiirl.roads.matching.hmm import HmmSettings
from limiirl.roads.matching.match_trips import find_chatter
from tests.helpers import raises
from tests.oracles.map_matching import routes
from tests.oracles.road_networks import from_xy, illegal_turns, random_grid


def ladder(n=6, block_m=100.0):
    """Two one-way streets 100 m apart, eastward below and westward above, joined by two-way rungs."""
    xy = [(i * block_m, j * block_m) for j in (0, 1) for i in range(n)]
    pairs = [(i, i + 1) for i in range(n - 1)] + [(n + i + 1, n + i) for i in range(n - 1)]
    pairs += [(i, n + i) for i in range(n)] + [(n + i, i) for i in range(n)]
    return from_xy(xy, *np.array(pairs).T)


def match_places(network, places, step_s=15.0, **settings):
    degrees = [network.plane.degrees(np.asarray(xy, dtype=np.float64)) for xy in places]
    trips = Trips.from_lists([d[:, 0] for d in degrees], [d[:, 1] for d in degrees], step_s=step_s)
    # There are too few fixes to estimate the noise.
    return match(network, trips, threads=1, **({"sigma_m": 8.0} | settings))


def test_gaps_between_fixes_are_filled_by_the_route():
    matches = match_places(ladder(), [[(20, 3), (180, -4), (480, 2)]])
    assert matches.path(0).tolist() == [0, 1, 2, 3, 4]
    assert matches.whole.tolist() == [True]
    assert matches.fix_segment.tolist() == [0, 1, 4]
    np.testing.assert_allclose(matches.fix_along_m, [20.0, 80.0, 80.0], rtol=0.0, atol=0.1)
    np.testing.assert_allclose(matches.fix_distance_m, [3.0, 4.0, 2.0], rtol=0.0, atol=0.01)


def test_a_one_way_street_is_not_driven_backward():
    # The fixes lead west along the lower street, which is one-way to the east: there is no legal path.
    matches = match_places(ladder(), [[(480, 0), (380, 0), (280, 0), (180, 0)]], speed_ms=9.0, slack_m=20.0)
    assert matches.n_whole == 0
    assert matches.reasons[CUT] >= 1


def test_noise_back_along_a_street_is_not_driving():
    matches = match_places(ladder(), [[(20, 0), (160, 2), (152, -2), (158, 1), (340, 0)]], thin_sigmas=0.0)
    assert matches.path(0).tolist() == [0, 1, 2, 3]
    assert matches.n_whole == 1


def test_standing_at_a_corner_is_not_a_drive_round_the_block():
    matches = match_places(ladder(), [[(20, 0), (95, 4), (104, -3), (97, 3), (105, 2), (240, 0)]], thin_sigmas=0.0)
    assert matches.path(0).tolist() == [0, 1, 2]


def test_a_drive_round_the_block_is_match_places():
    network = ladder()
    around = [(150, 0), (250, 0), (300, 50), (250, 100), (150, 100), (100, 50), (150, 0), (190, 0)]
    matches = match_places(network, [around])
    nodes = [network.tail[matches.path(0)[0]], *network.head[matches.path(0)]]
    assert nodes == [1, 2, 3, 9, 8, 7, 1, 2]
    assert matches.cycles().tolist() == [True]


def test_a_loop_supported_only_by_the_last_fix_is_removed():
    # The fix is 70 m behind the previous one on a one-way street: it is reachable only around the block.
    matches = match_places(ladder(), [[(20, 0), (120, 0), (190, 0), (120, 0)]], sigma_m=4.0)
    assert matches.path(0).tolist() == [0, 1]
    assert matches.fix_segment.tolist() == [0, 1, 1, 1]


def test_a_loop_supported_only_by_the_first_fix_is_removed():
    matches = match_places(ladder(), [[(190, 0), (120, 0), (220, 0), (320, 0)]], sigma_m=4.0)
    assert matches.path(0).tolist() == [1, 2, 3]


def test_the_last_fix_is_used_even_without_movement():
    matches = match_places(ladder(), [[(20, 0), (120, 0), (123, 0)]])
    assert matches.whole.tolist() == [True]
    assert matches.span.tolist() == [[0, 2]]


def test_the_remainder_of_a_street_is_driven_before_the_next():
    # Segments 0, 1 and 2 are one street, which forks into 3 and 4; the second fix is slightly behind the first (noise).
    xy = [(0, 0), (50, 0), (100, 0), (150, 0), (250, 0), (150, 100)]
    network = from_xy(xy, [0, 1, 2, 3, 3], [1, 2, 3, 4, 5])
    matches = match_places(network, [[(10, 0), (60, 0), (45, 0), (190, 0)]])
    assert matches.path(0).tolist() == [0, 1, 2, 3]


def test_short_ends_are_trimmed():
    # The last fix is 3 m past a corner, and the first fix is 2 m before one.
    xy = [[(98, 0), (150, 0), (250, 0), (303, 0)]]
    assert match_places(ladder(), xy).path(0).tolist() == [1, 2]
    assert match_places(ladder(), xy, end_m=0.0).path(0).tolist() == [0, 1, 2, 3]


def test_a_short_segment_driven_whole_is_kept():
    network = from_xy([(0, 0), (100, 0), (103, 0), (200, 0)], [0, 1, 2], [1, 2, 3])
    assert match_places(network, [[(20, 0), (60, 0), (102.9, 0)]]).path(0).tolist() == [0, 1]


@pytest.mark.parametrize("bad", [1, 2, 3])
def test_an_outlier_is_skipped(bad):
    xy = [(20, 0), (120, 0), (220, 0), (320, 0), (420, 0)]
    xy[bad] = (xy[bad][0], 2000.0)
    matches = match_places(ladder(), [xy])
    assert matches.path(0).tolist() == [0, 1, 2, 3, 4]
    assert matches.whole.tolist() == [True]
    assert np.flatnonzero(matches.fix_segment < 0).tolist() == [bad]
    assert matches.reasons == {AWAY: 1} or matches.reasons == {SKIPPED: 1}
    assert matches.confidence[0] < 0.81


def test_an_outlier_on_another_road_is_skipped():
    # The third fix lies on a street 900 m away: it has candidates, but is not reachable in time.
    xy = [(0, 0), (100, 0), (200, 0), (300, 0), (400, 0), (0, 900), (100, 900)]
    network = from_xy(xy, [0, 1, 2, 3, 5], [1, 2, 3, 4, 6])
    matches = match_places(network, [[(20, 0), (120, 0), (50, 900), (320, 0)]])
    assert matches.path(0).tolist() == [0, 1, 2, 3]
    assert matches.reasons == {SKIPPED: 1}


def test_a_reachable_dead_end_fix_is_skipped():
    # The third fix lies on a side street of 200 m that is a dead end.
    network = from_xy([(0, 0), (100, 0), (200, 0), (300, 0), (400, 0), (200, 200)], [0, 1, 2, 3, 2], [1, 2, 3, 4, 5])
    matches = match_places(network, [[(20, 0), (120, 0), (200, 100), (320, 0), (380, 0)]])
    assert matches.path(0).tolist() == [0, 1, 2, 3]
    assert matches.whole.tolist() == [True]
    assert matches.fix_segment.tolist() == [0, 1, -1, 3, 3]
    assert matches.reasons == {SKIPPED: 1}


def test_an_isolated_first_fix_does_not_lose_the_rest():
    xy = [(0, 0), (100, 0), (200, 0), (300, 0), (0, 900), (100, 900)]
    network = from_xy(xy, [0, 1, 2, 4], [1, 2, 3, 5])
    matches = match_places(network, [[(50, 900), (20, 0), (120, 0), (220, 0)]])
    assert [matches.path(i).tolist() for i in range(len(matches))] == [[0, 1, 2]]
    assert matches.whole.tolist() == [False]
    assert matches.reasons == {CUT: 1, LEFT_OVER: 1}
    assert matches.span.tolist() == [[1, 3]]


def test_a_trip_is_cut_at_unreachable_fixes():
    network = from_xy([(0, 0), (100, 0), (200, 0), (300, 0), (400, 0)], [0, 2, 3], [1, 3, 4])
    matches = match_places(network, [[(10, 0), (50, 0), (90, 0), (220, 0), (260, 0), (350, 0)]])
    assert [matches.path(i).tolist() for i in range(2)] == [[0], [1, 2]]
    assert matches.trip.tolist() == [0, 0]
    assert matches.whole.tolist() == [False, False]
    assert matches.reasons == {CUT: 1}
    assert np.all(matches.fix_segment >= 0)


def test_unmatched_trips_are_counted():
    network = ladder()
    matches = match_places(network, [[(20, 0)], [(9e5, 9e5), (9e5, 9e5)], [(20, 0), (120, 0)]])
    assert matches.trip.tolist() == [2]
    assert matches.reasons == {SINGLE: 1, OUTSIDE: 1}
    assert matches.fix_segment.tolist() == [-1, -1, -1, 0, 1]


def test_no_trips_give_an_empty_result():
    matches = match(ladder(), Trips.from_lists([], []))
    assert len(matches) == 0
    assert matches.reasons == {}


def test_a_trip_of_ten_thousand_fixes():
    network = ladder(n=40)
    lap = [(x, 0) for x in range(10, 3900, 25)] + [(x, 100) for x in range(3890, 0, -25)]
    places = np.tile(lap, (33, 1))[:10_000] + np.random.default_rng(0).normal(size=(10_000, 2))
    matches = match_places(network, [places], step_s=3.0)
    assert matches.whole.tolist() == [True]
    assert illegal_turns(network, matches.path(0)) == []
    assert np.all(matches.fix_segment >= 0)
    assert matches.confidence[0] > 0.95


@pytest.mark.parametrize("step_s", [1.0, 60.0])
def test_any_time_step(step_s):
    x = np.arange(20.0, 3800.0, 12.0 * step_s)
    matches = match_places(ladder(n=40), [np.column_stack([x, np.zeros_like(x)])], step_s=step_s)
    assert matches.path(0).tolist() == list(range(int(x[-1] // 100) + 1))


def test_fixes_of_a_standing_car_are_thinned_but_positioned():
    rng = np.random.default_rng(1)
    stand = rng.normal(loc=(150, 0), size=(50, 2))
    matches = match_places(ladder(), [np.vstack([[(20, 0)], stand, [(280, 0)]])])
    assert matches.path(0).tolist() == [0, 1, 2]
    assert matches.fix_segment.tolist() == [0] + [1] * 50 + [2]
    np.testing.assert_allclose(matches.fix_along_m[1:-1], 50.0, rtol=0.0, atol=5.0)


def test_progress_reports_every_trip():
    seen = []
    match_places(ladder(), [[(20, 0), (120, 0)]] * 3, progress=lambda done, total, _: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_a_cleaned_piece_is_whole_only_if_its_trip_is():
    network = ladder(n=12)
    x = np.concatenate([np.arange(20.0, 500.0, 60.0), np.arange(620.0, 1000.0, 60.0)])
    degrees = network.plane.degrees(np.column_stack([x, np.zeros_like(x)]))
    time_s = np.where(x < 500.0, 0.0, 1000.0) + x / 4.0
    trips = Trips.from_lists([degrees[:, 0]], [degrees[:, 1]], [time_s])
    cleaned = clean(trips)
    matches = match(network, cleaned)
    assert len(cleaned.trips) == 2
    assert matches.whole.tolist() == [False, False]
    assert match(network, cleaned.trips).whole.tolist() == [False, False]  # as `Trips.cut` says


@pytest.mark.parametrize(("noise_m", "least"), [(10.0, 0.98), (25.0, 0.90)])
def test_the_synthetic_city_is_recovered(noise_m, least):
    city = City(seed=5, radius_km=1.2)
    demos = city.drive(n_drivers=20, trips_each=3).demos
    trips = simulate_recording(city.network, demos, noise_m=noise_m, step_s=15.0, seed=7).trips
    matches = match(city.network, trips, sigma_m=noise_m)
    length, driven, hit = city.network.length_m, 0.0, np.zeros(len(demos))
    for i in range(len(demos)):
        truth = demos.states[demos.offsets[i] : demos.offsets[i + 1]]
        paths = np.concatenate([[], *(matches.path(k) for k in np.flatnonzero(matches.trip == i))])
        hit[i] = length[truth[np.isin(truth, paths)]].sum()
        driven += length[truth].sum()
    assert hit.sum() / driven >= least


def test_confidence_separates_good_from_bad_matches():
    city = City(seed=6, radius_km=1.2)
    demos = city.drive(n_drivers=40, trips_each=3).demos
    trips = simulate_recording(city.network, demos, noise_m=25.0, step_s=15.0, seed=8).trips
    matches = match(city.network, trips, sigma_m=25.0)
    right_share = np.zeros(len(matches))
    for k in range(len(matches)):
        truth = demos.states[demos.offsets[matches.trip[k]] : demos.offsets[matches.trip[k] + 1]]
        length = city.network.length_m[matches.path(k)]
        right_share[k] = length[np.isin(matches.path(k), truth)].sum() / length.sum()
    sure = matches.confidence >= np.median(matches.confidence)
    assert right_share[sure].mean() > right_share[~sure].mean() + 0.02
    # The mean confidence is the fraction of correct segments, up to 0.05.
    np.testing.assert_allclose(matches.confidence.mean(), right_share.mean(), rtol=0.0, atol=0.05)


@pytest.mark.parametrize("noise_m", [5.0, 20.0])
def test_the_noise_is_estimated(noise_m):
    city = City(seed=7, radius_km=1.2)
    trips = simulate_recording(city.network, city.drive(10, 3).demos, noise_m=noise_m, step_s=5.0).trips
    sigma_m, beta_m = estimate_noise(city.network, trips)
    assert abs(sigma_m / noise_m - 1.0) < 0.15
    assert beta_m >= 10.0


def test_the_noise_of_trips_off_the_network_is_an_error():
    network = ladder()
    with raises(InvalidTrips, parameter="trips"):
        estimate_noise(network, Trips.from_lists([[10.0, 10.1]], [[10.0, 10.1]]))


def test_beta_is_the_median_of_the_detours():
    # Every second step turns a corner: 60 + 60 m by road and 84.9 m straight, a difference of 35.1 m.
    xy = [(0, 0), (100, 0), (100, 100), (200, 100), (200, 200), (300, 200)]
    network = from_xy(xy, range(5), range(1, 6))
    fixes = [(40, 0), (100, 60), (140, 100), (200, 160), (240, 200)]
    degrees = network.plane.degrees(np.array(fixes, dtype=np.float64))
    trips = Trips.from_lists([degrees[:, 0]], [degrees[:, 1]])
    _, beta_m = estimate_noise(network, trips)
    detours = [120 - np.hypot(60, 60), 80 - np.hypot(40, 40)] * 2
    np.testing.assert_allclose(beta_m, np.median(detours) / np.log(2.0), rtol=1e-3)


def test_chatter_between_u_turns_is_detected():
    network = from_xy([(0, 0), (20, 0), (120, 0)], [0, 1, 1, 2], [1, 2, 0, 1], u_turns=True)
    there_and_back = np.array([1, 3, 2, 0, 1])
    assert there_and_back[~find_chatter(network, there_and_back)].tolist() == [1, 3, 2, 0, 1]
    path = np.array([0, 2, 0, 1])
    assert path[~find_chatter(network, path)].tolist() == [0, 1]
    twice = np.array([0, 2, 0, 2, 0, 1])
    assert twice[~find_chatter(network, twice)].tolist() == [0, 1]
    longer = from_xy([(0, 0), (20, 0), (40, 0), (90, 0)], [0, 1, 2, 1, 2, 3], [1, 2, 3, 0, 1, 2], u_turns=True)
    path = np.array([0, 1, 4, 3, 0, 1, 2])
    assert path[~find_chatter(longer, path)].tolist() == [0, 1, 2]
    assert not find_chatter(longer, path, most_m=30.0).any()


@pytest.mark.parametrize("seed", range(3))
def test_paths_between_streets_are_shortest(seed):
    import networkx as nx

    network = random_grid(seed)
    roads, graph, rng = build_streets(network), routes(network), np.random.default_rng(seed)
    work = router(roads)
    assert sorted(roads.items.tolist()) == list(range(network.n_segments))
    for _ in range(60):
        a, b = (int(v) for v in rng.integers(roads.length_m.size, size=2))
        goal = roads.length_m.size if a == b else b
        streets = streets_between(roads, a, goal, np.inf, work)
        segments = [int(s) for c in [a, *streets[:-1]] for s in roads.items[roads.ptr[c] : roads.ptr[c + 1]]]
        last, first = roads.items[roads.ptr[a + 1] - 1], roads.items[roads.ptr[b]]
        lengths = [
            nx.dijkstra_path_length(graph, t, first) for _, t in graph.out_edges(last) if nx.has_path(graph, t, first)
        ]
        if not lengths:
            assert streets.size == 0
            continue
        np.testing.assert_allclose(network.length_m[segments].sum(), roads.length_m[a] + min(lengths), rtol=1e-12)
        assert illegal_turns(network, [*segments, first]) == []
        short = streets_between(roads, a, goal, roads.length_m[a] + min(lengths) - 1e-6, work)
        assert short.size == 0


def test_a_ring_is_one_street():
    ring = from_xy([(0, 0), (100, 0), (100, 100), (0, 100)], range(4), [1, 2, 3, 0])
    roads = build_streets(ring)
    assert roads.length_m.size == 1
    matches = match_places(ring, [[(50, 0), (100, 50), (50, 100), (0, 50), (50, 0), (80, 0)]])
    assert matches.path(0).tolist() == [0, 1, 2, 3, 0]


@pytest.mark.parametrize(
    "settings",
    [
        {"sigma_m": 0.0},
        {"beta_m": -1.0},
        {"beta_m": float("inf")},
        {"most": 2.5},
        {"max_skips": -1},
        {"sigma_m": "8"},
        {"sigma": 3.0},
        {"threads": 0},
        {"method": "magic"},
    ],
)
def test_settings_are_checked(settings):
    trips = Trips.from_lists([[41.15, 41.15]], [[-8.63, -8.63]])
    ((name, value),) = settings.items()
    with raises(InvalidParameter, parameter=name, value=value):
        match(ladder(), trips, **settings)


def test_search_radii_depend_on_sigma():
    assert HmmSettings(sigma_m=5.0).model().radius_m == 50.0
    assert HmmSettings(sigma_m=25.0).model().radius_m == 100.0
    assert HmmSettings(sigma_m=25.0).model().max_radius_m == 200.0
    assert HmmSettings(radius_m=30.0, max_radius_m=10.0).model().max_radius_m == 30.0


def test_a_network_without_turns_can_be_match_places():
    network = RoadNetwork.from_segments([41.15, 41.151], [-8.63, -8.63], [0], [1])
    matches = match(network, Trips.from_lists([[41.1502, 41.1508]], [[-8.63, -8.63]]))
    assert matches.path(0).tolist() == [0]


@pytest.mark.slow
def test_taxis_in_porto_are_matched_along_legal_turns(shared_data):
    network = build(shared_data("porto_road_osm"))
    trips = read_trips(shared_data("porto_taxi_trips") / "porto_trips_1pct.csv.gz")[5000:5040]
    matches = match(network, clean(trips, network))
    # 12,000 of all 17,084 trips are; some of these 40 trips leave the map.
    assert matches.n_whole >= 22
    for i in range(len(matches)):
        assert illegal_turns(network, matches.path(i)) == []
    on = matches.fix_segment >= 0
    assert np.median(matches.fix_distance_m[on]) < 6.0
    length = matches.lengths_m(network)[matches.whole]
    assert length.min() > 50.0


@pytest.mark.parametrize("method", ["hmm", "particles"])
def test_the_index_of_another_network_is_rejected(method):
    trips = Trips.from_lists([[41.15, 41.15]], [[-8.63, -8.63]])
    with raises(InvalidParameter, parameter="index"):
        match(ladder(), trips, method, index=build_grid(ladder(n=9)))


@pytest.mark.parametrize(("method", "name"), [("hmm", "beam"), ("particles", "detour_m")])
def test_numpy_settings_can_be_saved(tmp_path, method, name):
    matches = match(ladder(), Trips.from_lists([], []), method, most=np.int64(8), sigma_m=np.float32(4.0))
    matches.save(tmp_path / "x.npz")
    again = Matches.load(tmp_path / "x.npz")
    assert (again.settings["most"], again.settings["sigma_m"]) == (8, 4.0)
    assert name in again.settings
