"""Noise estimation of `match` for both methods, and removal of chatter."""

import numpy as np
import pytest

from limiirl.errors import InvalidParameter
from limiirl.roads import City, Matches, Trips, estimate_noise, match, path_recovery, simulate_recording
from limiirl.roads.matching.candidates import OUTSIDE, build_grid
from limiirl.roads.matching.hmm import HmmSettings, match_hmm
from limiirl.roads.matching.match_trips import DEFAULT, ESTIMATED, GIVEN, find_chatter
from limiirl.roads.matching.particle_filter import ParticleSettings, match_particles
from tests.helpers import raises
from tests.oracles.road_networks import from_xy, illegal_turns

METHODS = pytest.mark.parametrize("method", ["hmm", "particles"])


def along(network, *places):
    degrees = [network.plane.degrees(np.asarray(xy, dtype=np.float64)) for xy in places]
    return Trips.from_lists([d[:, 0] for d in degrees], [d[:, 1] for d in degrees])


def street(n=60):
    return from_xy([(100.0 * i, 0.0) for i in range(n + 1)], range(n), range(1, n + 1))


@pytest.fixture(scope="module")
def driven():
    city = City(seed=3, radius_km=1.2)
    return city.network, city.drive(12, 3, seed=1).demos


@METHODS
@pytest.mark.parametrize(("noise_m", "least", "most_added"), [(10.0, 0.98, 0.02), (25.0, 0.90, 0.08)])
def test_the_city_is_recovered_with_estimated_noise(driven, method, noise_m, least, most_added):
    network, demos = driven
    trips = simulate_recording(network, demos, noise_m=noise_m, step_s=15.0, seed=2).trips
    matches = match(network, trips, method, threads=1)
    assert matches.settings["sigma_m"] == estimate_noise(network, trips, threads=1)[0]
    assert abs(matches.settings["sigma_m"] / noise_m - 1.0) < 0.1
    assert matches.settings["sigma_from"] == ESTIMATED
    score = path_recovery(network, demos, matches)
    assert score.share >= least
    assert score.added <= most_added
    # The reported value is the one used.
    assert match(network, trips, method, sigma_m=matches.settings["sigma_m"], threads=1).segments.tolist() == (
        matches.segments.tolist()
    )


@METHODS
def test_a_given_sigma_is_used(driven, method, tmp_path):
    network, demos = driven
    trips = simulate_recording(network, demos[:4], noise_m=25.0, seed=2).trips
    small, large = (match(network, trips, method, sigma_m=sigma, threads=1) for sigma in (3.0, 25.0))
    assert (small.settings["sigma_m"], small.settings["sigma_from"]) == (3.0, GIVEN)
    assert (small.settings["radius_m"], large.settings["radius_m"]) == (50.0, 100.0)
    assert small.segments.tolist() != large.segments.tolist()
    large.save(tmp_path / "matches.npz")
    assert "noise      25.0 m, given" in repr(Matches.load(tmp_path / "matches.npz"))


@METHODS
def test_too_few_fixes_give_the_default_sigma(method):
    network, own = street(), {"hmm": HmmSettings, "particles": ParticleSettings}[method]().sigma_m
    x = np.linspace(20.0, 1500.0, 19)
    few = match(network, along(network, np.column_stack([x, np.full(19, 20.0)])), method)
    assert (few.settings["sigma_m"], few.settings["sigma_from"], few.n_whole) == (own, DEFAULT, 1)
    enough = match(network, along(network, np.column_stack([np.append(x, 1580.0), np.full(20, 20.0)])), method)
    np.testing.assert_allclose(enough.settings["sigma_m"], 1.4826 * 20.0, rtol=1e-6)
    # Trips outside the network are reported without an error.
    away = match(network, along(network, [(0, 9e5), (100, 9e5)]), method)
    assert (away.reasons, away.settings["sigma_from"]) == ({OUTSIDE: 1}, DEFAULT)
    assert match(network, Trips.from_lists([], []), method).settings["sigma_m"] == own


def test_beta_is_at_least_sigma():
    # Fixes alternate between the sides of a straight street, 20 m away: steps of 100 m are 107.7 m long.
    network = street()
    fixes = np.column_stack([np.arange(50.0, 3050.0, 100.0), np.tile([20.0, -20.0], 15)])
    sigma_m, beta_m = estimate_noise(network, along(network, fixes))
    np.testing.assert_allclose(sigma_m, 1.4826 * 20.0, rtol=1e-6)
    assert beta_m == sigma_m > (np.hypot(100.0, 40.0) - 100.0) / np.log(2.0) > 10.0


def test_moving_back_slightly_is_not_driving():
    # One of three steps is 10 m backward: its driven distance is 0, and the next is 10 m less than the straight line.
    network = street()
    x = 60.0 + np.cumsum(np.tile([50.0, 50.0, -10.0], 10))
    _, beta_m = estimate_noise(network, along(network, np.column_stack([x, np.zeros(30)])), thin_sigmas=0.0, rounds=1)
    np.testing.assert_allclose(beta_m, 10.0 / np.log(2.0), rtol=1e-4)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"sigma": 3.0}, {"parameter": "sigma", "value": 3.0}),
        ({"threads": 0}, {"parameter": "threads", "value": 0}),
        ({"rounds": 0}, {"parameter": "rounds", "value": 0}),
        ({"most_trips": -1}, {"parameter": "most_trips", "value": -1}),
    ],
)
def test_settings_of_the_estimate_are_checked(given, expected):
    with raises(InvalidParameter, **expected):
        estimate_noise(street(), along(street(), [(20, 0), (120, 0)]), **given)


@METHODS
def test_chatter_is_removed_for_both_methods(method):
    # Forward, 40 m backward and forward again: this exceeds the noise limit, so that U-turns are necessary.
    network = from_xy(
        [(20.0 * i, 0) for i in range(8)], [*range(7), *range(1, 8)], [*range(1, 8), *range(7)], u_turns=True
    )
    trips = along(network, [(10, 0), (30, 0), (50, 0), (70, 0), (50, 0), (30, 0), (50, 0), (70, 0), (90, 0), (110, 0)])
    how = {"hmm": match_hmm, "particles": match_particles}[method]
    settings = {"hmm": HmmSettings, "particles": ParticleSettings}[method](sigma_m=1.0)
    (raw,) = how(network, build_grid(network), trips, settings, threads=1)
    assert find_chatter(network, raw.pieces[0].segments).any()
    matches = match(network, trips, method, sigma_m=1.0, threads=1)
    assert matches.path(0).tolist() == [0, 1, 2, 3, 4, 5]
    assert illegal_turns(network, matches.path(0)) == []
    # Fixes on removed segments are assigned to the same position on the opposite segment.
    assert set(matches.fix_segment.tolist()) <= set(matches.path(0).tolist())
    east = network.plane.xy(trips.lat, trips.lon)[:, 0]
    np.testing.assert_allclose(20.0 * matches.fix_segment + matches.fix_along_m, east, rtol=0.0, atol=2.0)
