"""Closures: effects computed by hand on two routes from A to B, and suppression of values of few drivers."""

import numpy as np
import pytest

from limiirl import Demonstrations, DestinationMaxEnt, IntentMixture, MaxEnt
from limiirl.errors import InvalidDemos, InvalidParameter
from limiirl.forecast import Forecaster
from limiirl.roads import close_streets
from limiirl.roads.closures import summarize_closure
from tests.helpers import raises
from tests.oracles.road_networks import from_xy
from tests.oracles.two_ways import LENGTH_M, MOTORWAY, STREET
from tests.oracles.two_ways import two_ways as with_a_short_way_back

# 10 trips from 0 to 4 and 6 from 5 to 4 with two routes; 3 trips start on the motorway, 2 on the street.
PATHS = [MOTORWAY] * 6 + [STREET] * 4 + [[5, *MOTORWAY]] * 3 + [[5, *STREET]] * 3 + [[1, 2, 4, 5]] * 3 + [[3, 4, 5]] * 2
FREE = 16
DRIVERS = np.arange(len(PATHS)) % 7


# Reward per km of highway, major road, minor road and local street; the street is slightly worse.
THETA = np.array([[-2.0, 0.0, 0.0, -4.0]])


def two_ways():
    """Return two routes and a return road that is so long that cycles are negligible."""
    length_m = np.where(np.arange(6) == 5, 60_000.0, LENGTH_M)
    return with_a_short_way_back().replace(length_m=length_m)


def forecaster(network, demos, model, theta=THETA):
    mixture = IntentMixture(1, model, random_state=0).fit(network.mdp("plain"), demos)
    mixture.thetas_ = theta
    return Forecaster(mixture)


@pytest.fixture(scope="module", params=["given ends", "free ends"])
def fitted(request):
    demos = Demonstrations.from_lists(PATHS, groups=DRIVERS)
    model = DestinationMaxEnt(bounds=(-10, 0)) if request.param == "given ends" else MaxEnt(6, (-10, 0))
    return forecaster(two_ways(), demos, model), demos


@pytest.fixture(scope="module")
def closure(fitted):
    """Closure of the first segment of the motorway."""
    return close_streets(two_ways(), *fitted, [1])


def chance(fitted):
    """Return the probability of the motorway from 0 to 4 according to the route forecast."""
    result = {tuple(route.states.tolist()): route.probability for route in fitted[0].routes(0, 4)}
    return result[tuple(MOTORWAY)]


def test_flows_before_and_after(fitted, closure):
    p = chance(fitted)
    assert p == pytest.approx(1.0 / (1.0 + np.exp(-0.4)), rel=1e-9)
    np.testing.assert_allclose(closure.before[[1, 2, 3]], [FREE * p + 3, FREE * p + 3, FREE * (1 - p) + 2], rtol=1e-9)
    np.testing.assert_allclose(closure.after, [FREE, 0.0, 0.0, FREE + 2, FREE + 2, 8.0], rtol=1e-9)


def test_passages_and_cut_off(fitted, closure):
    np.testing.assert_allclose(closure.passages, FREE * chance(fitted) + 3, rtol=1e-9)
    np.testing.assert_allclose(closure.redirected, FREE * chance(fitted), rtol=1e-9)
    assert closure.passed.tolist() == [0, 1, 2, 3, 4, 5, 10, 11, 12, 16, 17, 18]
    assert closure.cut_off.tolist() == [16, 17, 18]


def test_detour_is_averaged_over_affected_trips(closure):
    """The street is 100 m shorter than the motorway, and takes 36 s instead of 12 s."""
    assert closure.detour_m == pytest.approx(-100.0, rel=1e-9)
    assert closure.detour_s == pytest.approx(24.0, rel=1e-9)
    assert closure.limits_known == 1.0


def test_streets_that_gain_and_lose(fitted, closure):
    p = chance(fitted)
    assert [row.segment for row in closure.gains()] == [3]
    assert closure.gains()[0].change == pytest.approx(FREE * p, rel=1e-9)
    assert closure.gains()[0].km == pytest.approx(0.3, rel=1e-12)
    assert [row.segment for row in closure.losses()][:1] == [2]
    assert {row.segment for row in closure.losses()[1:]} == {4, 5}
    assert closure.losses(1)[0].before == pytest.approx(FREE * p + 3, rel=1e-9)
    # A count of zero does not disclose a driver.
    assert closure.losses(1)[0].after == pytest.approx(0.0, abs=1e-12)


def test_text_of_a_closure(closure):
    text = str(closure)
    for phrase in (
        "Closed: a motorway near 41.1525,-8.6370; motorway, 200 m one-way to the north-east",
        "(1 segment: 1).",
        "Before: 12 of 21 trips passed the closed street; the model expects ",
        "100 m shorter on average and take 0.4 minutes more at the speed limits (limits are known for 100%",
        "Cut off: trips of fewer than 5 drivers.",
        "a residential road near 41.1510,-8.6360 to the east",
        "Based on 21 trips. Streets with fewer than 5 drivers are omitted",
    ):
        assert phrase in text, (phrase, text)
    assert "to few" not in text


def test_plain_values(closure):
    result = summarize_closure(closure)
    assert result["closed"] == {"segments": [1], "streets": [], "classes": ["motorway"], "metres": 200.0}
    assert (result["trips"], result["trips_passed"], result["trips_cut_off"]) == (21, 12, None)
    assert result["detour_minutes"] == pytest.approx(0.4, rel=1e-9)
    assert [row["segment"] for row in result["gain"]] == [3]
    assert result["gain"][0]["near"] == [41.151, -8.636]


class TestFewPeople:
    def close(self, groups, least=5, paths=PATHS):
        demos = Demonstrations.from_lists(paths, groups=groups)
        return close_streets(two_ways(), forecaster(two_ways(), demos, DestinationMaxEnt()), demos, [1], least=least)

    def test_detours_of_few_drivers_are_hidden(self):
        """Twelve trips of four drivers passed."""
        passed = np.isin(np.arange(21), [0, 1, 2, 3, 4, 5, 10, 11, 12, 16, 17, 18])
        result = self.close(np.where(passed, np.arange(21) % 4, 10 + np.arange(21)))
        assert result.hidden
        assert result.gains() == result.losses() == []
        assert result.detour_m is None
        assert result.detour_s is None
        values = summarize_closure(result)
        assert [values[key] for key in ("trips_passed", "trips_passed_expected", "detour_m")] == [None] * 3
        text = str(result)
        assert "fewer than 5 drivers passed the closed street" in text
        assert "Detour" not in text
        assert "trips (expected" not in text

    def test_detours_are_shown_with_a_lower_limit(self):
        assert not self.close(DRIVERS % 4, least=4).hidden
        assert self.close(DRIVERS % 4, least=5).hidden

    def test_trips_count_where_drivers_are_not_known(self):
        result = self.close(None, least=12)
        assert (result.counted, result.hidden) == ("trips", False)
        assert self.close(None, least=13).hidden
        assert "fewer than 13 trips" in str(self.close(None, least=13))

    def test_redirected_drivers_count_on_their_detour(self):
        """Nine trips are redirected to the street, which has nine others."""
        result = self.close(None)
        assert result.drivers_before.drivers[[1, 2, 3]].tolist() == [12, 12, 9]
        assert result.drivers_after.drivers[[1, 2, 3]].tolist() == [0, 0, 18]

    def test_either_direction_of_a_street_counts(self):
        """A two-way ring of four nodes: drivers of both directions pass a street."""
        ring = from_xy([[0, 0], [200, 0], [200, 200], [0, 200]], [0, 1, 2, 3, 1, 2, 3, 0], [1, 2, 3, 0, 0, 1, 2, 3])
        demos = Demonstrations.from_lists([[0, 1, 2]] * 3 + [[6, 5, 4]] * 2, groups=range(5))
        result = close_streets(ring, forecaster(ring, demos, DestinationMaxEnt()), demos, [3])
        assert result.drivers_before.drivers.tolist() == [5, 5, 5, 0, 5, 5, 5, 0]
        np.testing.assert_allclose(result.streets[0][[1, 5]], result.before[1] + result.before[5], rtol=1e-12)


def test_two_rounds_of_a_roundabout_are_one_trip():
    """Return routes from 0 to 8 through a roundabout (2, 4, 5) or through 6 and 7; a round has the weight w."""
    xy = [[0, 0], [100, 0], [200, 0], [250, 50], [200, 100], [350, 50], [250, -100], [450, 50]]
    network = from_xy(
        xy, [0, 1, 2, 3, 3, 4, 1, 6, 5], [1, 2, 3, 5, 4, 2, 6, 5, 7], length_m=[100.0] * 9, class_names=("motorway",)
    )
    demos = Demonstrations.from_lists([[0, 1, 2, 3, 8]] * 5 + [[0, 6, 7, 8]] * 5, groups=range(10))
    w = np.exp(-0.6)
    routes = np.exp(-0.6) / (1.0 - w), np.exp(-0.4)
    p = routes[0] / sum(routes)
    result = close_streets(network, forecaster(network, demos, DestinationMaxEnt()), demos, [6])
    np.testing.assert_allclose(result.before[[1, 2, 4, 6]], 10.0 * np.array([p, p, p * w, 1.0 - p]), rtol=1e-9)
    np.testing.assert_allclose(result.after[[1, 2, 4, 6]], [10.0, 10.0, 10.0 * w, 0.0], rtol=1e-9)
    # 300 m, and 200 m more per round of the roundabout, compared with 200 m through 6 and 7.
    assert result.detour_m == pytest.approx(100.0 + 200.0 * w, rel=1e-9)


def test_closing_an_unused_street_changes_no_trip(small_city):
    city = small_city
    demos = city.drive(6, 3, seed=0).demos
    model = IntentMixture(1, DestinationMaxEnt(), random_state=0).fit(city.mdp, demos)
    unused = np.setdiff1d(np.arange(city.network.n_segments), np.concatenate([demos.states, [0]]))
    result = close_streets(city.network, Forecaster(model), demos, unused[:1])
    assert result.passed.size == result.cut_off.size == 0
    assert "no trip passed the closed street" in str(result)
    np.testing.assert_array_equal(result.drivers_before.drivers, result.drivers_after.drivers)


def test_round_trips_are_left_out(fitted):
    forecast, demos = fitted
    loop = Demonstrations.from_lists([[0, 3, 4, 5, 0]], groups=[0])
    result = close_streets(two_ways(), forecast, demos + loop, [1])
    assert len(result.demos) == len(demos)
    with raises(InvalidDemos, parameter="demos"):
        close_streets(two_ways(), forecast, loop, [1])


@pytest.mark.parametrize("segments", [[], [6], [-1], [0.5], [[]]])
def test_invalid_segments_are_rejected(fitted, segments):
    with raises(InvalidParameter, parameter="segments"):
        close_streets(two_ways(), *fitted, segments)


def test_least_must_be_positive(fitted):
    with raises(InvalidParameter, parameter="least", value=0):
        close_streets(two_ways(), *fitted, [1], least=0)


def test_trip_enters_a_closure_of_several_segments_once(fitted, closure):
    whole = close_streets(two_ways(), *fitted, [1, 2])
    assert whole.passages == pytest.approx(closure.passages, rel=1e-9)
