"""Simulated GPS recordings: positions without noise, noise, lost fixes and outliers."""

import numpy as np
import pytest
import shapely

from limiirl import roads
from limiirl.demos import Demonstrations
from limiirl.errors import InvalidDemos, InvalidParameter
from tests.helpers import raises


@pytest.fixture(scope="module")
def city():
    return roads.City(seed=0)


@pytest.fixture(scope="module")
def demos(city):
    return city.drive(20, 5, seed=1).demos


@pytest.fixture(scope="module")
def clean(city, demos):
    return roads.simulate_recording(city.network, demos, noise_m=0.0, seed=2)


def errors(city, recording):
    """Return the errors (n, 2) of the fixes, in metres east and north of the true positions."""
    network, s = city.network, recording.segment
    start, end = network.node_xy[network.tail[s]], network.node_xy[network.head[s]]
    true = start + (recording.along_m / network.length_m[s])[:, None] * (end - start)
    return network.plane.xy(recording.trips.lat, recording.trips.lon) - true


class TestDrive:
    def test_without_noise_every_fix_lies_on_its_segment(self, city, clean):
        network, s = city.network, clean.segment
        ends = np.stack([network.node_xy[network.tail[s]], network.node_xy[network.head[s]]], axis=1)
        points = shapely.points(network.plane.xy(clean.trips.lat, clean.trips.lon))
        np.testing.assert_allclose(shapely.distance(shapely.linestrings(ends), points), 0.0, atol=1e-6)
        along = shapely.line_locate_point(shapely.linestrings(ends), points)
        # The error of the planar projection is 0.03 % at the edge of the city.
        np.testing.assert_allclose(clean.along_m, along, rtol=5e-4, atol=1e-6)

    def test_fixes_follow_the_path_from_its_first_segment_to_its_last(self, city, demos, clean):
        assert len(clean.trips) == len(demos)
        for i, demo in enumerate(demos):
            rows = slice(clean.trips.offsets[i], clean.trips.offsets[i + 1])
            seen = clean.segment[rows]
            assert (seen[0], seen[-1]) == (demo.states[0], demo.states[-1])
            begin = np.cumsum(city.network.length_m[demo.states]) - city.network.length_m[demo.states]
            # If a path passes a segment twice, the position is ambiguous; driven distances are ascending.
            place = [
                begin[np.flatnonzero(demo.states == s)] + a for s, a in zip(seen, clean.along_m[rows], strict=True)
            ]
            at = 0.0
            for choices in place:
                continues = choices[choices >= at - 1e-9]
                assert continues.size
                at = float(continues.min())

    def test_fixes_at_every_step_until_parked(self, clean):
        for _, _, time_s in clean.trips:
            np.testing.assert_array_equal(time_s, 15.0 * np.arange(time_s.size))
        shares = clean.along_m[clean.trips.offsets[1:] - 1]
        assert shares.min() > 0.0

    def test_trips_begin_and_end_within_their_segments(self, city, clean):
        for rows in (clean.trips.offsets[:-1], clean.trips.offsets[1:] - 1):
            share = clean.along_m[rows] / city.network.length_m[clean.segment[rows]]
            assert np.all((share >= 0.3) & (share <= 0.7))

    def test_speeds_are_within_limits(self, city, demos, clean):
        xy = city.network.plane.xy(clean.trips.lat, clean.trips.lon)
        within = np.ones(len(xy), dtype=bool)
        within[clean.trips.offsets[:-1]] = False
        straight = np.hypot(*np.diff(xy, axis=0, prepend=xy[:1]).T)[within]
        assert straight.max() / 15.0 * 3.6 <= 90.0
        driven = np.add.reduceat(city.network.length_m[demos.states], demos.offsets[:-1])
        seconds = clean.trips.time_s[clean.trips.offsets[1:] - 1]
        assert np.all((driven / seconds * 3.6 > 12.0) & (driven / seconds * 3.6 < 90.0))

    def test_turns_take_time(self, city, demos):
        often = roads.simulate_recording(city.network, demos, noise_m=0.0, step_s=1.0, seed=2)
        stands = (np.diff(often.along_m) == 0.0) & (np.diff(often.segment) == 0)
        last = np.isin(np.arange(stands.size) + 1, np.concatenate([often.trips.offsets, often.trips.offsets - 1]))
        assert np.sum(stands & ~last) > len(demos)

    def test_any_time_step(self, city, demos):
        for step_s in (1.0, 60.0):
            trips = roads.simulate_gps(city.network, demos[:5], step_s=step_s)
            np.testing.assert_array_equal(np.unique(np.diff(trips[0][2])), [step_s])

    def test_a_path_of_one_segment(self, city):
        result = roads.simulate_recording(city.network, Demonstrations.from_lists([[5]]), noise_m=0.0)
        np.testing.assert_array_equal(result.segment, 5)
        assert result.along_m[0] <= result.along_m[-1]

    def test_names_and_drivers_are_kept(self, city, demos):
        named = Demonstrations(demos.states, demos.offsets, groups=demos.groups, ids=np.arange(len(demos)) + 100)
        trips = roads.simulate_gps(city.network, named)
        np.testing.assert_array_equal(trips.ids, named.ids)
        np.testing.assert_array_equal(trips.groups, demos.groups)


class TestNoise:
    def test_is_gaussian_in_each_coordinate(self, city, demos):
        result = roads.simulate_recording(city.network, demos, noise_m=10.0, step_s=3.0)
        error = errors(city, result)
        assert len(error) > 10_000
        np.testing.assert_allclose(error.std(axis=0), 10.0, rtol=0.03)
        np.testing.assert_allclose(error.mean(axis=0), 0.0, atol=0.4)
        assert abs(np.corrcoef(error.T)[0, 1]) < 0.04
        # Errors of consecutive fixes are independent.
        assert abs(np.corrcoef(error[1:, 0], error[:-1, 0])[0, 1]) < 0.04
        # For a normal distribution, 68.3 and 95.4 % lie within one and two standard deviations.
        np.testing.assert_allclose(np.mean(np.abs(error) < 10.0), 0.683, atol=0.015)
        np.testing.assert_allclose(np.mean(np.abs(error) < 20.0), 0.954, atol=0.01)

    def test_noise_changes_only_positions(self, city, demos, clean):
        noisy = roads.simulate_recording(city.network, demos, noise_m=25.0, seed=2)
        np.testing.assert_array_equal(noisy.segment, clean.segment)
        np.testing.assert_array_equal(noisy.trips.time_s, clean.trips.time_s)

    def test_depends_on_the_seed_alone(self, city, demos):
        first, again, other = (roads.simulate_gps(city.network, demos[:9], seed=seed) for seed in (1, 1, 2))
        assert first == again
        assert first != other

    def test_drift_is_slow(self, city, demos):
        result = roads.simulate_recording(city.network, demos, noise_m=0.0, drift_m=8.0, step_s=3.0)
        error = errors(city, result)
        within = np.ones(len(error), dtype=bool)
        within[result.trips.offsets[:-1]] = False
        now, before = error[within], error[np.flatnonzero(within) - 1]
        np.testing.assert_allclose(error.std(axis=0), 8.0, rtol=0.1)
        # The correlation decreases by a factor of e per minute.
        lag = (now * before).sum() / (before**2).sum()
        np.testing.assert_allclose(lag, np.exp(-3.0 / 60.0), atol=0.01)
        # Errors of different trips are independent.
        first, last = error[result.trips.offsets[1:-1]], error[result.trips.offsets[1:-1] - 1]
        assert abs((first * last).sum() / (last**2).sum()) < 0.3

    def test_outliers(self, city, demos):
        result = roads.simulate_recording(city.network, demos, noise_m=0.0, outliers=0.05, step_s=3.0)
        away = np.hypot(*errors(city, result).T)
        np.testing.assert_allclose(result.outlier.mean(), 0.05, atol=0.01)
        np.testing.assert_allclose(away[~result.outlier], 0.0, atol=1e-6)
        assert np.all((away[result.outlier] >= 200.0) & (away[result.outlier] <= 2000.0))

    def test_lost_fixes(self, city, demos, clean):
        result = roads.simulate_recording(city.network, demos, noise_m=0.0, seed=2, lost=0.2)
        np.testing.assert_allclose(result.trips.n_fixes / clean.trips.n_fixes, 0.8, atol=0.03)
        for i in range(len(demos)):
            kept, all_ = result.trips[i][2], clean.trips[i][2]
            assert (kept[0], kept[-1]) == (all_[0], all_[-1])
            assert np.isin(kept, all_).all()
        assert result.segment.size == result.along_m.size == result.outlier.size == result.trips.n_fixes


class TestErrors:
    def test_illegal_turn_is_rejected(self, city):
        network = city.network
        back = next(s for s in range(network.n_segments) if network.opposite[s] >= 0)
        path = [back, int(network.opposite[back])]
        with raises(InvalidDemos, parameter="demos", value=(1, 5), index=1):
            roads.simulate_gps(network, Demonstrations.from_lists([[3], path]))

    def test_unknown_segment_is_rejected(self, city):
        with raises(InvalidDemos, parameter="demos", value=999999, index=0):
            roads.simulate_gps(city.network, Demonstrations.from_lists([[999999]]))

    @pytest.mark.parametrize(
        ("setting", "value"),
        [
            ("noise_m", -1.0),
            ("noise_m", np.inf),
            ("step_s", 0.0),
            ("step_s", 1e-4),
            ("drift_m", np.nan),
            ("outliers", 1.5),
            ("lost", -0.1),
        ],
    )
    def test_settings_out_of_range(self, city, demos, setting, value):
        with raises(InvalidParameter, parameter=setting):
            roads.simulate_gps(city.network, demos, **{setting: value})


def test_invalid_demonstrations_are_rejected_and_single_segments_accepted():
    street = roads.RoadNetwork.from_segments([41.15, 41.16], [-8.63, -8.63], [0], [1])
    one = Demonstrations.from_lists([[0]])
    result = roads.simulate_recording(street, one, noise_m=0.0)
    assert set(result.segment.tolist()) == {0}
    with raises(InvalidParameter, parameter="seed", value=-1):
        roads.simulate_recording(street, one, seed=-1)
    with raises(InvalidDemos, parameter="demos"):
        roads.simulate_recording(street, one[:0])
    with raises(InvalidDemos, parameter="demos", value=(0, 0), index=0):
        roads.simulate_recording(street, Demonstrations.from_lists([[0, 0]]))
