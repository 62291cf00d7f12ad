"""Particle filter: agreement with the exact posterior on a small network, legal paths, cuts, reproducibility."""

import itertools

import numpy as np
import pytest
from scipy import stats

from limiirl.errors import InvalidParameter
from limiirl.roads import Matches, RoadNetwork, Trips, match, simulate_recording
from limiirl.roads.geometry import Plane
from limiirl.roads.kernels.particle_filter import (
    FilterProblem,
    advance,
    begin,
    follow,
    join,
    normal_between,
    normal_mass,
    uniform,
)
from limiirl.roads.kernels.routing import router
from limiirl.roads.matching import candidates
from limiirl.roads.matching.candidates import AWAY, CUT, OUTSIDE, SINGLE, SKIPPED
from limiirl.roads.matching.particle_filter import ParticleSettings, build_road_arrays, match_particles
from limiirl.roads.matching.quality import path_recovery
from tests.helpers import raises
from tests.oracles import fine_roads

CENTRE = (41.15, -8.63)


def town(u_turns: bool = False) -> RoadNetwork:
    """Return a ladder of two streets with a bend, a dead end and a one-way street; some have several segments."""
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
    grid, work = candidates.build_grid(network), router(roads.streets)
    stretch = follow(FilterProblem(roads, grid, settings.motion(), settings.effort(), work), FIXES, TIMES, state)
    assert (stretch.used.tolist(), stretch.following) == ([0, 1, 2, 3, 4], 5)
    np.testing.assert_allclose(stretch.log_evidence, exact.log_evidence, atol=0.03)
    for t in range(len(FIXES)):
        drawn = np.bincount(stretch.drawn[t], minlength=network.n_segments) / settings.n_paths
        # Sampled paths share particles, so that fractions vary more than for independent samples.
        np.testing.assert_allclose(drawn, exact.segments[t], atol=0.035)
    # The posterior is not degenerate.
    assert exact.segments[1:4].max() < 0.8


@pytest.mark.slow
def test_the_evidence_is_unbiased_with_few_particles():
    """With correct weights, the estimated evidence is unbiased for every number of particles."""
    network = town()
    settings = ParticleSettings(n_particles=8, n_paths=1, sigma_m=9.0, radius_m=500.0)
    exact = fine_roads.posterior(network, FIXES[:3], TIMES[:3], settings).log_evidence.sum()
    roads, grid, state = build_road_arrays(network), candidates.build_grid(network), counter(1)
    problem = FilterProblem(roads, grid, settings.motion(), settings.effort(), router(roads.streets))
    ratios = []
    for _ in range(4000):
        stretch = follow(problem, FIXES[:3], TIMES[:3], state)
        ratios.append(np.exp(stretch.log_evidence.sum() - exact))
    error = np.std(ratios) / np.sqrt(len(ratios))
    assert error < 0.02
    np.testing.assert_allclose(np.mean(ratios), 1.0, atol=4.0 * error + 0.005)


@pytest.mark.slow
def test_particles_at_one_point_separate_at_a_junction():
    """With particles as the outer index, systematic resampling would assign all particles to one candidate."""
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
def test_truncated_normal_variables(low: float, high: float):
    np.testing.assert_allclose(normal_mass(low, high), stats.norm.cdf(high) - stats.norm.cdf(low), rtol=1e-9)
    state = counter(3)
    drawn = np.array([normal_between(low, high, state) for _ in range(4000)])
    assert np.all((drawn >= low) & (drawn <= high))
    assert stats.kstest(drawn, stats.truncnorm(low, high).cdf).pvalue > 1e-3


def test_the_counter_based_generator_is_uniform():
    state = counter(0)
    drawn = np.array([uniform(state) for _ in range(4000)])
    assert stats.kstest(drawn, "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(drawn[1:], drawn[:-1])[0, 1]) < 0.06
    assert uniform(counter(7)) == uniform(counter(7)) != uniform(counter(8))


@pytest.fixture(scope="module")
def driven(small_city) -> tuple:
    return small_city.network, small_city.drive(n_drivers=8, trips_each=3, seed=2).demos


def match_trips(network: RoadNetwork, trips: Trips, **settings) -> Matches:
    return match(network, trips, "particles", **({"threads": 1} | settings))


@pytest.mark.parametrize("noise_m", [10.0, 25.0])
def test_paths_are_legal_and_fixes_are_in_order(driven, noise_m: float):
    network, demos = driven
    trips = simulate_recording(network, demos, noise_m=noise_m, seed=3).trips
    matches = match_trips(network, trips, sigma_m=noise_m)
    legal = set(zip(network.turn_from.tolist(), network.turn_to.tolist(), strict=True))
    assert len(matches)
    for i in range(len(matches)):
        path = matches.path(i).tolist()
        assert set(itertools.pairwise(path)) <= legal
        at = 0
        for fix in range(matches.span[i, 0], matches.span[i, 1] + 1):
            if matches.fix_segment[fix] >= 0:
                at = path.index(matches.fix_segment[fix], at)
    on = matches.fix_segment >= 0
    assert np.all(
        (matches.fix_along_m[on] >= 0.0) & (matches.fix_along_m[on] <= network.length_m[matches.fix_segment[on]])
    )
    assert np.all((matches.confidence > 0.0) & (matches.confidence <= 1.0))


def test_driven_paths_are_recovered(driven):
    network, demos = driven
    for noise_m, least in ((10.0, 0.98), (25.0, 0.90)):
        trips = simulate_recording(network, demos, noise_m=noise_m, seed=1).trips
        assert path_recovery(network, demos, match_trips(network, trips, sigma_m=noise_m)).share > least


def test_noise_lowers_the_confidence(driven):
    network, demos = driven
    trips = [simulate_recording(network, demos, noise_m=noise, seed=1).trips for noise in (3.0, 25.0)]
    sure = [
        match_trips(network, each, sigma_m=noise).confidence.mean()
        for each, noise in zip(trips, (3.0, 25.0), strict=True)
    ]
    assert sure[0] > 0.99 > sure[1] > 0.5


def test_the_result_depends_on_the_seed_not_on_threads(driven):
    network, demos = driven
    trips = simulate_recording(network, demos, noise_m=20.0, seed=1).trips
    one = match_trips(network, trips, sigma_m=20.0, seed=4)
    assert match_trips(network, trips, sigma_m=20.0, seed=4, threads=3) == one
    assert match_trips(network, trips, sigma_m=20.0, seed=5) != one
    np.testing.assert_array_equal(
        match_trips(network, trips[:2], sigma_m=20.0, seed=4).segments, one.segments[: one.offsets[2]]
    )


def test_a_lost_cloud_restarts_and_the_cut_is_counted():
    network = town()
    there, back = np.array([[10.0, 0.0], [40.0, 0.0]]), np.array([[170.0, 14.0], [140.0, 36.0], [100.0, 44.0]])
    # 130 m in two seconds cannot be driven.
    xy, times = np.vstack([there, back]), np.array([0.0, 10.0, 12.0, 20.0, 30.0])
    matches = match_trips(network, trips_at(xy, times), patience=0, slack_m=0.0)
    assert matches.reasons == {CUT: 1}
    assert matches.span.tolist() == [[0, 1], [2, 4]]
    assert not matches.whole.any()
    assert [(network.tail[p[0]], network.head[p[-1]]) for p in map(matches.path, range(2))] == [(0, 1), (7, 5)]


def test_an_unreachable_fix_is_skipped():
    network = town()
    xy = np.array([[10.0, 0.0], [30.0, 0.0], [175.0, 14.0], [50.0, 1.0], [80.0, 2.0]])
    matches = match_trips(network, trips_at(xy, np.array([0.0, 4.0, 6.0, 8.0, 14.0])), slack_m=0.0)
    assert matches.reasons == {SKIPPED: 1}
    assert matches.whole.tolist() == [True]
    assert (matches.fix_segment < 0).tolist() == [False, False, True, False, False]
    assert (
        np.isnan(matches.fix_along_m).tolist()
        == np.isnan(matches.fix_distance_m).tolist()
        == (matches.fix_segment < 0).tolist()
    )


def test_a_long_detour_is_found_if_all_else_is_less_likely():
    network = town()
    # The one-way street leads in the other direction, so that the far side is reachable only around the tip.
    xy = np.array([[70.0, 1.0], [110.0, 2.0], [105.0, 44.0], [75.0, 42.0]])
    matches = match_trips(network, trips_at(xy, np.arange(4) * 12.0), sigma_m=3.0, detour_m=5.0)
    assert matches.whole.tolist() == [True]
    assert [int(network.head[s]) for s in matches.path(0)] == [2, 3, 7, 6, 5, 4]


def test_fixes_off_the_network_and_single_fixes_are_reported():
    network = town()
    far = np.array([[0.0, 900.0], [10.0, 900.0]])
    assert match_trips(network, trips_at(far, np.array([0.0, 9.0]))).reasons == {OUTSIDE: 1}
    assert match_trips(network, trips_at(FIXES[:1], TIMES[:1])).reasons == {SINGLE: 1}
    both = match_trips(network, trips_at(np.vstack([far, FIXES]), np.arange(7) * 8.0))
    assert (both.reasons, both.whole.tolist(), both.span.tolist()) == ({AWAY: 2}, [False], [[2, 6]])
    assert len(match_trips(network, trips_at(FIXES, TIMES)[:0])) == 0


def test_simultaneous_fixes_and_a_standing_car():
    network = town()
    xy, times = np.repeat([[30.0, 1.0]], 6, axis=0), np.array([0.0, 15.0, 15.0, 30.0, 45.0, 60.0])
    matches = match_trips(network, trips_at(xy, times))
    assert matches.whole.tolist() == [True]
    assert matches.path(0).size == 1
    np.testing.assert_allclose(matches.fix_distance_m[matches.fix_segment >= 0], 1.0, atol=0.01)


def test_a_path_round_the_block_is_connected():
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
def test_invalid_settings_are_rejected(name: str, value: object):
    with raises(InvalidParameter, parameter=name, value=value):
        ParticleSettings(**{name: value})


def test_unknown_settings_and_zero_threads_are_rejected():
    network, trips = town(), trips_at(FIXES, TIMES)
    with raises(InvalidParameter, parameter="beta_m", value=3.0):
        match(network, trips, "particles", beta_m=3.0)
    with raises(InvalidParameter, parameter="threads", value=0):
        match_particles(network, candidates.build_grid(network), trips, ParticleSettings(), threads=0)


def test_progress_is_reported():
    seen = []
    match_trips(town(), trips_at(FIXES, TIMES), progress=lambda done, of, _: seen.append((done, of)))
    assert seen == [(1, 1)]


def test_fixes_off_the_map_cut_the_trip_or_lower_the_confidence():
    network, xy = town(), np.column_stack([np.linspace(5.0, 55.0, 12), np.zeros(12)])
    one, many = xy.copy(), xy.copy()
    one[5, 1], many[3:9, 1] = 500.0, 500.0
    cut, less, sure = (match_trips(network, trips_at(each, np.arange(12) * 5.0)) for each in (many, one, xy))
    assert (cut.whole.tolist(), cut.span.tolist()) == ([False, False], [[0, 2], [9, 11]])
    assert cut.reasons == {CUT: 1, AWAY: 6}
    assert (less.whole.tolist(), less.reasons) == ([True], {SKIPPED: 1})
    assert less.confidence[0] <= 11 / 12 < sure.confidence[0]
