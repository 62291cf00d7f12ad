"""The particle filter against the exact posterior on a small network; legal paths; cut trips; the same from a seed."""

import itertools

import numpy as np
import pytest
from scipy import stats

from limiirl.errors import InvalidParameter
from limiirl.roads import Matches, RoadNetwork, Trips, match, simulate_recording
from limiirl.roads.geometry import Plane
from limiirl.roads.kernels.particle_filter import advance, begin, normal_between, normal_mass, uniform
from limiirl.roads.kernels.particle_smoothing import follow, join
from limiirl.roads.kernels.routing import router
from limiirl.roads.matching import candidates
from limiirl.roads.matching.candidates import AWAY, CUT, OUTSIDE, SINGLE, SKIPPED
from limiirl.roads.matching.evaluation import path_recovery
from limiirl.roads.matching.particle_filter import ParticleSettings, build_road_arrays, match_particles
from tests.helpers import raises
from tests.oracles import fine_roads

CENTRE = (41.15, -8.63)


def town(u_turns: bool = False) -> RoadNetwork:
    """A ladder of two streets with a bend, a dead end and a one-way street; joints without a choice make streets."""
    xy = np.array([[0, 0], [60, 0], [95, 4], [120, 0], [60, 40], [90, 43], [120, 45], [180, 10]])
    both = [(0, 1), (1, 2), (2, 3), (1, 4), (4, 5), (5, 6), (3, 7), (6, 7)]
    pairs = [*both, *((b, a) for a, b in both), (6, 3)]
    lat, lon = Plane(*CENTRE).degrees(xy).T
    return RoadNetwork.from_segments(lat, lon, *np.transpose(pairs), centre=CENTRE, u_turns=u_turns)


FIXES = np.array([[20.0, 6.0], [75.0, 18.0], [76.0, 20.0], [118.0, 24.0], [165.0, 22.0]])
TIMES = np.array([0.0, 8.0, 16.0, 24.0, 32.0])


def trips_at(xy: np.ndarray, times: np.ndarray) -> Trips:
    lat, lon = Plane(*CENTRE).degrees(xy).T
    return Trips.from_lists([lat], [lon], [times])


def counter(seed: int) -> np.ndarray:
    return np.array([seed], dtype=np.uint64)


@pytest.mark.slow
@pytest.mark.parametrize("u_turns", [False, True])
def test_many_particles_agree_with_the_exact_posterior(u_turns: bool):
    network = town(u_turns)
    settings = ParticleSettings(
        n_particles=4000, n_paths=4000, sigma_m=9.0, radius_m=500.0, slack_m=0.0, max_speed_ms=12.0
    )
    exact = fine_roads.posterior(network, FIXES, TIMES, settings)
    roads, state = build_road_arrays(network), counter(5)
    grid, desk = candidates.build_grid(network), router(roads.streets)
    found = follow(roads, grid, FIXES, TIMES, settings.motion(), settings.effort(), desk, state)
    assert (found.used.tolist(), found.onward) == ([0, 1, 2, 3, 4], 5)
    np.testing.assert_allclose(found.log_evidence, exact.log_evidence, atol=0.03)
    for t in range(len(FIXES)):
        drawn = np.bincount(found.drawn[t], minlength=network.n_segments) / settings.n_paths
        # Drawn paths share particles, so that their share strays further than that of as many coins.
        np.testing.assert_allclose(drawn, exact.segments[t], atol=0.035)
    # There is something to get wrong.
    assert exact.segments[1:4].max() < 0.8


def test_few_particles_are_right_on_average():
    """The evidence is unbiased with any number of particles, which a wrong weight would spoil."""
    network = town()
    settings = ParticleSettings(n_particles=8, n_paths=1, sigma_m=9.0, radius_m=500.0)
    exact = fine_roads.posterior(network, FIXES[:3], TIMES[:3], settings).log_evidence.sum()
    roads, grid, state = build_road_arrays(network), candidates.build_grid(network), counter(1)
    desk, guesses = router(roads.streets), []
    for _ in range(4000):
        found = follow(roads, grid, FIXES[:3], TIMES[:3], settings.motion(), settings.effort(), desk, state)
        guesses.append(np.exp(found.log_evidence.sum() - exact))
    error = np.std(guesses) / np.sqrt(len(guesses))
    assert error < 0.02
    np.testing.assert_allclose(np.mean(guesses), 1.0, atol=4.0 * error + 0.005)


def test_particles_of_one_place_part_at_a_junction():
    """Drawn in the order of particles, equal chances repeat in the period of the draw, and all would do the same."""
    network = town()
    roads, state, near = build_road_arrays(network), counter(2), np.arange(network.n_segments)
    cloud, _ = begin(roads, near[:1], np.array([30.0, 0.0]), 100, 1e-3, state)
    fixes, settings = np.array([[30.0, 0.0], [60.0, 3.0]]), ParticleSettings(sigma_m=9.0)
    moved, _ = advance(roads, cloud, near, fixes, 10.0, settings.motion(), router(roads.streets), state)
    counts = np.bincount(moved.segment, minlength=network.n_segments)
    into = [np.flatnonzero((network.tail == a) & (network.head == b))[0] for a, b in ((0, 1), (1, 2), (1, 4))]
    assert counts[into].sum() > 90
    assert counts[into].min() > 10


@pytest.mark.parametrize(("low", "high"), [(-9.0, 9.0), (-0.4, 1.0), (-1.0, 9.0), (0.3, 0.9), (1.0, 8.0), (-7.0, -5.0)])
def test_normal_variables_between_bounds(low: float, high: float):
    np.testing.assert_allclose(normal_mass(low, high), stats.norm.cdf(high) - stats.norm.cdf(low), rtol=1e-9)
    state = counter(3)
    drawn = np.array([normal_between(low, high, state) for _ in range(4000)])
    assert np.all((drawn >= low) & (drawn <= high))
    assert stats.kstest(drawn, stats.truncnorm(low, high).cdf).pvalue > 1e-3


def test_the_counter_gives_uniform_numbers():
    state = counter(0)
    drawn = np.array([uniform(state) for _ in range(4000)])
    assert stats.kstest(drawn, "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(drawn[1:], drawn[:-1])[0, 1]) < 0.06
    assert uniform(counter(7)) == uniform(counter(7)) != uniform(counter(8))


@pytest.fixture(scope="module")
def driven(small_city) -> tuple:
    return small_city.network, small_city.drive(n_drivers=8, trips_each=3, seed=2).demos


def matched(network: RoadNetwork, trips: Trips, **settings) -> Matches:
    return match(network, trips, "particles", **({"threads": 1} | settings))


@pytest.mark.parametrize("noise_m", [10.0, 25.0])
def test_paths_are_legal_and_fixes_lie_on_them_in_order(driven, noise_m: float):
    network, demos = driven
    trips = simulate_recording(network, demos, noise_m=noise_m, seed=3).trips
    found = matched(network, trips, sigma_m=noise_m)
    legal = set(zip(network.turn_from.tolist(), network.turn_to.tolist(), strict=True))
    assert len(found)
    for i in range(len(found)):
        path = found.path(i).tolist()
        assert set(itertools.pairwise(path)) <= legal
        at = 0
        for fix in range(found.span[i, 0], found.span[i, 1] + 1):
            if found.fix_segment[fix] >= 0:
                at = path.index(found.fix_segment[fix], at)
    on = found.fix_segment >= 0
    assert np.all((found.fix_along_m[on] >= 0.0) & (found.fix_along_m[on] <= network.length_m[found.fix_segment[on]]))
    assert np.all((found.confidence > 0.0) & (found.confidence <= 1.0))


def test_what_was_driven_is_found(driven):
    network, demos = driven
    for noise_m, least in ((10.0, 0.98), (25.0, 0.90)):
        trips = simulate_recording(network, demos, noise_m=noise_m, seed=1).trips
        assert path_recovery(network, demos, matched(network, trips, sigma_m=noise_m)).share > least


def test_noise_makes_it_less_sure(driven):
    network, demos = driven
    trips = [simulate_recording(network, demos, noise_m=noise, seed=1).trips for noise in (3.0, 25.0)]
    sure = [
        matched(network, each, sigma_m=noise).confidence.mean() for each, noise in zip(trips, (3.0, 25.0), strict=True)
    ]
    assert sure[0] > 0.99 > sure[1] > 0.5


def test_the_seed_decides_and_not_the_threads(driven):
    network, demos = driven
    trips = simulate_recording(network, demos, noise_m=20.0, seed=1).trips
    one = matched(network, trips, sigma_m=20.0, seed=4)
    assert matched(network, trips, sigma_m=20.0, seed=4, threads=3) == one
    assert matched(network, trips, sigma_m=20.0, seed=5) != one
    np.testing.assert_array_equal(
        matched(network, trips[:2], sigma_m=20.0, seed=4).segments, one.segments[: one.offsets[2]]
    )


def test_a_lost_cloud_begins_again_and_the_cut_is_counted():
    network = town()
    there, back = np.array([[10.0, 0.0], [40.0, 0.0]]), np.array([[170.0, 14.0], [140.0, 36.0], [100.0, 44.0]])
    # 130 m in two seconds cannot be driven.
    xy, times = np.vstack([there, back]), np.array([0.0, 10.0, 12.0, 20.0, 30.0])
    found = matched(network, trips_at(xy, times), patience=0, slack_m=0.0)
    assert found.reasons == {CUT: 1}
    assert found.span.tolist() == [[0, 1], [2, 4]]
    assert not found.whole.any()
    assert [(network.tail[p[0]], network.head[p[-1]]) for p in map(found.path, range(2))] == [(0, 1), (7, 5)]


def test_a_fix_that_nobody_can_reach_is_skipped():
    network = town()
    xy = np.array([[10.0, 0.0], [30.0, 0.0], [175.0, 14.0], [50.0, 1.0], [80.0, 2.0]])
    found = matched(network, trips_at(xy, np.array([0.0, 4.0, 6.0, 8.0, 14.0])), slack_m=0.0)
    assert found.reasons == {SKIPPED: 1}
    assert found.whole.tolist() == [True]
    assert (found.fix_segment < 0).tolist() == [False, False, True, False, False]
    assert (
        np.isnan(found.fix_along_m).tolist()
        == np.isnan(found.fix_distance_m).tolist()
        == (found.fix_segment < 0).tolist()
    )


def test_a_long_way_round_is_found_where_all_else_is_less_likely():
    network = town()
    # Onto the near side and then onto the far one: the one-way street leads the other way, so only around by the tip.
    xy = np.array([[70.0, 1.0], [110.0, 2.0], [105.0, 44.0], [75.0, 42.0]])
    found = matched(network, trips_at(xy, np.arange(4) * 12.0), sigma_m=3.0, detour_m=5.0)
    assert found.whole.tolist() == [True]
    assert [int(network.head[s]) for s in found.path(0)] == [2, 3, 7, 6, 5, 4]


def test_fixes_off_the_network_and_single_ones_are_told():
    network = town()
    far = np.array([[0.0, 900.0], [10.0, 900.0]])
    assert matched(network, trips_at(far, np.array([0.0, 9.0]))).reasons == {OUTSIDE: 1}
    assert matched(network, trips_at(FIXES[:1], TIMES[:1])).reasons == {SINGLE: 1}
    both = matched(network, trips_at(np.vstack([far, FIXES]), np.arange(7) * 8.0))
    assert (both.reasons, both.whole.tolist(), both.span.tolist()) == ({AWAY: 2}, [False], [[2, 6]])
    assert len(matched(network, trips_at(FIXES, TIMES)[:0])) == 0


def test_fixes_of_one_time_and_a_standing_car():
    network = town()
    xy, times = np.repeat([[30.0, 1.0]], 6, axis=0), np.array([0.0, 15.0, 15.0, 30.0, 45.0, 60.0])
    found = matched(network, trips_at(xy, times))
    assert found.whole.tolist() == [True]
    assert found.path(0).size == 1
    np.testing.assert_allclose(found.fix_distance_m[found.fix_segment >= 0], 1.0, atol=0.01)


def test_a_way_round_the_block_is_joined():
    network = town()
    roads = build_road_arrays(network)
    behind = [int(np.flatnonzero((network.tail == a) & (network.head == b))[0]) for a, b in ((1, 2), (6, 3))]
    path, ptr, upto = join(
        roads, np.array([behind[0], behind[1], behind[0]]), np.zeros(3, dtype=np.int64), router(roads.streets)
    )
    legal = set(zip(network.turn_from.tolist(), network.turn_to.tolist(), strict=True))
    assert set(itertools.pairwise(path.tolist())) <= legal
    assert path[upto].tolist() == [behind[0], behind[1], behind[0]]
    assert ptr.tolist() == [0, path.size]


@pytest.mark.parametrize(
    ("name", "value"),
    [("n_particles", 0), ("sigma_m", 0.0), ("most", 2.5), ("seed", -1), ("radius_m", np.inf), ("end_m", "x")],
)
def test_settings_that_make_no_sense_are_named(name: str, value: object):
    with raises(InvalidParameter, parameter=name, value=value):
        ParticleSettings(**{name: value})


def test_unknown_settings_and_no_threads_are_refused():
    network, trips = town(), trips_at(FIXES, TIMES)
    with raises(InvalidParameter, parameter="beta_m", value=3.0):
        match(network, trips, "particles", beta_m=3.0)
    with raises(InvalidParameter, parameter="threads", value=0):
        match_particles(network, candidates.build_grid(network), trips, ParticleSettings(), threads=0)


def test_progress_is_told():
    seen = []
    matched(town(), trips_at(FIXES, TIMES), progress=lambda done, of, _: seen.append((done, of)))
    assert seen == [(1, 1)]


def test_many_fixes_off_the_map_cut_the_trip_and_few_make_it_less_sure():
    network, xy = town(), np.column_stack([np.linspace(5.0, 55.0, 12), np.zeros(12)])
    one, many = xy.copy(), xy.copy()
    one[5, 1], many[3:9, 1] = 500.0, 500.0
    cut, less, sure = (matched(network, trips_at(each, np.arange(12) * 5.0)) for each in (many, one, xy))
    assert (cut.whole.tolist(), cut.span.tolist()) == ([False, False], [[0, 2], [9, 11]])
    assert cut.reasons == {CUT: 1, AWAY: 6}
    assert (less.whole.tolist(), less.reasons) == ([True], {SKIPPED: 1})
    assert less.confidence[0] <= 11 / 12 < sure.confidence[0]
