"""What a closed street changes: by hand on two ways from A to B, and what is hidden of few people."""

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

# 10 trips from 0 to 4 and 6 from 5 to 4, which may take either way; 3 begin on the motorway, 2 on the street.
PATHS = [MOTORWAY] * 6 + [STREET] * 4 + [[5, *MOTORWAY]] * 3 + [[5, *STREET]] * 3 + [[1, 2, 4, 5]] * 3 + [[3, 4, 5]] * 2
FREE = 16
DRIVERS = np.arange(len(PATHS)) % 7


# What a km of highway, of major and minor roads and of local streets is worth: the street is a little worse.
THETA = np.array([[-2.0, 0.0, 0.0, -4.0]])


def two_ways():
    """The way back is so long that nobody drives it twice."""
    length_m = np.where(np.arange(6) == 5, 60_000.0, LENGTH_M)
    return with_a_short_way_back().replace(length_m=length_m)


def forecaster(network, demos, model, theta=THETA):
    mixture = IntentMixture(1, model, random_state=0).fit(network.mdp("plain"), demos)
    mixture.thetas_ = theta
    return Forecaster(mixture)


@pytest.fixture(scope="module", params=["given ends", "free ends"])
def asked(request):
    demos = Demonstrations.from_lists(PATHS, groups=DRIVERS)
    model = DestinationMaxEnt(bounds=(-10, 0)) if request.param == "given ends" else MaxEnt(6, (-10, 0))
    return forecaster(two_ways(), demos, model), demos


@pytest.fixture(scope="module")
def closure(asked):
    """Without the first segment of the motorway."""
    return close_streets(two_ways(), *asked, [1])


def chance(asked):
    """How likely the motorway is from 0 to 4: the forecast of a route, another computation than flows."""
    found = {tuple(route.states.tolist()): route.probability for route in asked[0].routes(0, 4)}
    return found[tuple(MOTORWAY)]


def test_flows_before_and_after(asked, closure):
    p = chance(asked)
    assert p == pytest.approx(1.0 / (1.0 + np.exp(-0.4)), rel=1e-9)
    np.testing.assert_allclose(closure.before[[1, 2, 3]], [FREE * p + 3, FREE * p + 3, FREE * (1 - p) + 2], rtol=1e-9)
    np.testing.assert_allclose(closure.after, [FREE, 0.0, 0.0, FREE + 2, FREE + 2, 8.0], rtol=1e-9)


def test_passages_and_cut_off(asked, closure):
    np.testing.assert_allclose(closure.passages, FREE * chance(asked) + 3, rtol=1e-9)
    np.testing.assert_allclose(closure.redirected, FREE * chance(asked), rtol=1e-9)
    assert closure.passed.tolist() == [0, 1, 2, 3, 4, 5, 10, 11, 12, 16, 17, 18]
    assert closure.cut_off.tolist() == [16, 17, 18]


def test_the_detour_is_of_those_who_came_there(closure):
    """The street is 100 m shorter than the motorway, and takes 36 s where that takes 12."""
    assert closure.detour_m == pytest.approx(-100.0, rel=1e-9)
    assert closure.detour_s == pytest.approx(24.0, rel=1e-9)
    assert closure.limits_known == 1.0


def test_streets_that_gain_and_lose(asked, closure):
    p = chance(asked)
    assert [row.segment for row in closure.gains()] == [3]
    assert closure.gains()[0].change == pytest.approx(FREE * p, rel=1e-9)
    assert closure.gains()[0].km == pytest.approx(0.3, rel=1e-12)
    assert [row.segment for row in closure.losses()][:1] == [2]
    assert {row.segment for row in closure.losses()[1:]} == {4, 5}
    assert closure.losses(1)[0].before == pytest.approx(FREE * p + 3, rel=1e-9)
    # Nobody is left there, and nobody stands behind a zero.
    assert closure.losses(1)[0].after == pytest.approx(0.0, abs=1e-12)


def test_words(closure):
    text = str(closure)
    for said in (
        "Closed: a motorway near 41.1525,-8.6370; motorway, 200 m one-way to the north-east",
        "(1 segment: 1).",
        "Before: 12 of 21 trips passed it; the model expects ",
        "100 m shorter on average and take 0.4 minutes more at the speed limits (known for 100%",
        "Cut off: trips of fewer than 5 drivers.",
        "a residential road near 41.1510,-8.6360 to the east",
        "Based on 21 trips. Streets with fewer than 5 drivers are left out",
    ):
        assert said in text, (said, text)
    assert "to few" not in text


def test_plain_values(closure):
    found = summarize_closure(closure)
    assert found["closed"] == {"segments": [1], "streets": [], "classes": ["motorway"], "metres": 200.0}
    assert (found["trips"], found["trips_passed"], found["trips_cut_off"]) == (21, 12, None)
    assert found["detour_minutes"] == pytest.approx(0.4, rel=1e-9)
    assert [row["segment"] for row in found["gain"]] == [3]
    assert found["gain"][0]["near"] == [41.151, -8.636]


class TestFewPeople:
    def closed(self, groups, least=5, paths=PATHS):
        demos = Demonstrations.from_lists(paths, groups=groups)
        return close_streets(two_ways(), forecaster(two_ways(), demos, DestinationMaxEnt()), demos, [1], least=least)

    def test_nothing_is_said_of_what_few_do_instead(self):
        """Twelve trips passed, but all are of four drivers."""
        passed = np.isin(np.arange(21), [0, 1, 2, 3, 4, 5, 10, 11, 12, 16, 17, 18])
        found = self.closed(np.where(passed, np.arange(21) % 4, 10 + np.arange(21)))
        assert found.hidden
        assert found.gains() == found.losses() == []
        assert found.detour_m is None
        assert found.detour_s is None
        values = summarize_closure(found)
        assert [values[key] for key in ("trips_passed", "trips_passed_expected", "detour_m")] == [None] * 3
        text = str(found)
        assert "trips of fewer than 5 drivers passed it" in text
        assert "Detour" not in text
        assert "trips (expected" not in text

    def test_with_a_lower_limit_it_is(self):
        assert not self.closed(DRIVERS % 4, least=4).hidden
        assert self.closed(DRIVERS % 4, least=5).hidden

    def test_trips_count_where_drivers_are_not_known(self):
        found = self.closed(None, least=12)
        assert (found.counted, found.hidden) == ("trips", False)
        assert self.closed(None, least=13).hidden
        assert "fewer than 13 trips" in str(self.closed(None, least=13))

    def test_who_drives_around_counts_on_the_new_way(self):
        """Drivers of 9 trips are redirected to the street, which 9 others drove."""
        found = self.closed(None)
        assert found.drivers_before.drivers[[1, 2, 3]].tolist() == [12, 12, 9]
        assert found.drivers_after.drivers[[1, 2, 3]].tolist() == [0, 0, 18]

    def test_either_direction_of_a_street_counts(self):
        """A ring of four nodes, driven both ways; a street is passed by those who go north and those who go south."""
        ring = from_xy([[0, 0], [200, 0], [200, 200], [0, 200]], [0, 1, 2, 3, 1, 2, 3, 0], [1, 2, 3, 0, 0, 1, 2, 3])
        demos = Demonstrations.from_lists([[0, 1, 2]] * 3 + [[6, 5, 4]] * 2, groups=range(5))
        found = close_streets(ring, forecaster(ring, demos, DestinationMaxEnt()), demos, [3])
        assert found.drivers_before.drivers.tolist() == [5, 5, 5, 0, 5, 5, 5, 0]
        np.testing.assert_allclose(found.streets[0][[1, 5]], found.before[1] + found.before[5], rtol=1e-12)


def test_who_drives_round_a_roundabout_twice_is_one_trip():
    """From 0 to 8 by a roundabout (2, 4, 5) or by 6 and 7; a round of 0.3 km at -2 a km weighs w."""
    xy = [[0, 0], [100, 0], [200, 0], [250, 50], [200, 100], [350, 50], [250, -100], [450, 50]]
    network = from_xy(
        xy, [0, 1, 2, 3, 3, 4, 1, 6, 5], [1, 2, 3, 5, 4, 2, 6, 5, 7], length_m=[100.0] * 9, class_names=("motorway",)
    )
    demos = Demonstrations.from_lists([[0, 1, 2, 3, 8]] * 5 + [[0, 6, 7, 8]] * 5, groups=range(10))
    w = np.exp(-0.6)
    ways = np.exp(-0.6) / (1.0 - w), np.exp(-0.4)
    p = ways[0] / sum(ways)
    found = close_streets(network, forecaster(network, demos, DestinationMaxEnt()), demos, [6])
    np.testing.assert_allclose(found.before[[1, 2, 4, 6]], 10.0 * np.array([p, p, p * w, 1.0 - p]), rtol=1e-9)
    np.testing.assert_allclose(found.after[[1, 2, 4, 6]], [10.0, 10.0, 10.0 * w, 0.0], rtol=1e-9)
    # 300 m and what is driven of the roundabout, 200 m more, if it is driven round; by 6 and 7 it is 200 m.
    assert found.detour_m == pytest.approx(100.0 + 200.0 * w, rel=1e-9)


def test_an_avenue_closed_by_nobody_changes_nothing(small_city):
    city = small_city
    demos = city.drive(6, 3, seed=0).demos
    model = IntentMixture(1, DestinationMaxEnt(), random_state=0).fit(city.mdp, demos)
    unused = np.setdiff1d(np.arange(city.network.n_segments), np.concatenate([demos.states, [0]]))
    found = close_streets(city.network, Forecaster(model), demos, unused[:1])
    assert found.passed.size == found.cut_off.size == 0
    assert "no trip passed it" in str(found)
    np.testing.assert_array_equal(found.drivers_before.drivers, found.drivers_after.drivers)


def test_round_trips_are_left_out(asked):
    forecast, demos = asked
    loop = Demonstrations.from_lists([[0, 3, 4, 5, 0]], groups=[0])
    found = close_streets(two_ways(), forecast, demos + loop, [1])
    assert len(found.demos) == len(demos)
    with raises(InvalidDemos, parameter="demos"):
        close_streets(two_ways(), forecast, loop, [1])


@pytest.mark.parametrize("segments", [[], [6], [-1], [0.5], [[]]])
def test_refuses_what_is_no_segment(asked, segments):
    with raises(InvalidParameter, parameter="segments"):
        close_streets(two_ways(), *asked, segments)


def test_refuses_a_limit_of_nobody(asked):
    with raises(InvalidParameter, parameter="least", value=0):
        close_streets(two_ways(), *asked, [1], least=0)


def test_a_trip_comes_once_to_a_closure_of_several_segments(asked, closure):
    whole = close_streets(two_ways(), *asked, [1, 2])
    assert whole.passages == pytest.approx(closure.passages, rel=1e-9)
