"""`limiirl roads close` and `roads forecast` on files of a tiny city."""

import json

import numpy as np
import pytest

from limiirl import DestinationMaxEnt, IntentMixture, MaxEnt
from limiirl.forecast import Forecaster, condition_on_ends
from limiirl.report.roads import change_page, describe_turn
from limiirl.roads import City, Matches, RoadNetwork, close_streets, nearest_segments
from limiirl.roads.closures import summarize_closure
from tests.helpers import read_error
from tests.integration.test_cli import limiirl

FILES = ("town.npz", "styles", "m.npz")


@pytest.fixture(scope="module")
def city():
    return City(seed=1, radius_km=0.8)


@pytest.fixture(scope="module")
def town(city):
    """The ring road is called so; all other streets have no name."""
    ring = np.array(city.network.class_names)[city.network.road_class] == "motorway"
    return city.network.replace(street_names=("", "Ring Road (R 1)"), street_of=ring.astype(np.int32))


def make_matches(network, demos):
    """Trips whose fixes lie at the beginnings of their segments."""
    ends = np.stack([demos.offsets[:-1], demos.offsets[1:] - 1], axis=1)
    n, nothing = len(demos), np.zeros(demos.n_steps)
    return Matches(
        demos.states, demos.offsets, np.arange(n), np.array([f"T{i}" for i in range(n)]), demos.groups, np.ones(n),
        np.ones(n, dtype=bool), ends, demos.states, nothing, nothing, demos.offsets,
        settings={"network": network.fingerprint(), "sigma_m": 1.0},
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(city, town, tmp_path_factory):
    place = tmp_path_factory.mktemp("closing")
    demos = city.drive(12, 5, seed=0).demos
    demos = demos[demos.lengths >= 10]
    town.save(place / "town.npz")
    make_matches(town, demos).save(place / "m.npz")
    make_matches(town, demos.replace(groups=None)).save(place / "anonymous.npz")
    alone = demos.replace(groups=np.arange(len(demos)))
    make_matches(town, alone).save(place / "alone.npz")
    mixture = IntentMixture(2, DestinationMaxEnt(), random_state=0, resp_tol=0.2).fit(town.mdp("plain"), demos)
    mixture.save(place / "styles")
    return place


@pytest.fixture(scope="module")
def trips(folder):
    return Matches.load(folder / "m.npz").demonstrations()


@pytest.fixture(scope="module")
def busiest(town, trips):
    """A segment that is driven both ways and that most trips pass."""
    uses = np.bincount(trips.states, minlength=town.n_segments)
    return int(np.argmax(np.where(town.opposite >= 0, uses, -1)))


@pytest.fixture(scope="module")
def place(town, busiest):
    """LAT,LON of its middle."""
    nodes = [town.tail[busiest], town.head[busiest]]
    return f"{town.lat[nodes].mean():.6f},{town.lon[nodes].mean():.6f}"


def run_close(folder, *arguments, **more):
    return limiirl(folder, "roads", "close", *FILES, *arguments, **more)


class TestClose:
    def test_equals_the_result_of_the_library(self, folder, town, trips, busiest, place):
        facts = json.loads(run_close(folder, "--at", place, "--json").stdout)
        both = sorted([busiest, int(town.opposite[busiest])])
        assert facts["closed"]["segments"] == both
        forecaster = Forecaster(IntentMixture.load(folder / "styles"), trips)
        wanted = close_streets(town, forecaster, trips, both)
        assert facts == json.loads(json.dumps(summarize_closure(wanted)))
        assert facts["trips_passed"] >= 5

    @pytest.mark.smoke
    def test_prints_text_and_writes_a_report(self, folder, place):
        printed = run_close(folder, "--at", place, "--min-drivers", "2", "--page", "closed-page")
        for message in (
            "Closed: ",
            "Before: ",
            "Detour: ",
            "Cut off: ",
            "More trips",
            "Fewer trips",
            "Streets with fewer than 2 drivers",
        ):
            assert message in printed.stdout
        page = (folder / "closed-page" / "index.html").read_text(encoding="utf-8")
        assert 'id="figure-change"' in page
        assert "Single trips are not drawn" in page
        assert (folder / "closed-page" / "figures" / "change.png").exists()

    def test_styles_of_maxent_are_routed_between_given_ends(self, folder, town, trips, busiest):
        mixture = IntentMixture(1, MaxEnt(300), random_state=0, max_iter=1).fit(town.mdp("plain"), trips)
        mixture.save(folder / "paper-styles")
        words = ("roads", "close", "town.npz", "paper-styles", "m.npz", "--segments", str(busiest))
        facts = json.loads(limiirl(folder, *words, "--json").stdout)
        wanted = close_streets(town, Forecaster(condition_on_ends(mixture, trips), trips), trips, [busiest])
        assert facts["trips_passed_expected"] == pytest.approx(wanted.passages, rel=1e-6)
        assert facts["trips"] == len(wanted.demos)
        assert "DestinationMaxEnt" in limiirl(folder, *words).stderr

    def test_closes_segments_in_one_or_both_directions(self, folder, town, busiest):
        one = json.loads(run_close(folder, "--segments", str(busiest), "--json").stdout)
        two = json.loads(run_close(folder, "--segments", str(busiest), "--both", "--json").stdout)
        assert one["closed"]["segments"] == [busiest]
        assert two["closed"]["segments"] == sorted([busiest, int(town.opposite[busiest])])

    def test_closes_a_street_by_name(self, folder, town):
        facts = json.loads(run_close(folder, "--street", "ring", "--json").stdout)
        assert facts["closed"]["segments"] == np.flatnonzero(town.street_of == 1).tolist()
        assert facts["closed"]["streets"] == ["Ring Road (R 1)"]

    def test_samples_trips(self, folder, place):
        assert json.loads(run_close(folder, "--at", place, "--trips", "20", "--json").stdout)["trips"] <= 20

    def test_small_counts_are_hidden(self, folder, place):
        facts = json.loads(
            run_close(folder, "--at", place, "--min-drivers", "50", "--page", "few-page", "--json").stdout
        )
        assert (facts["trips_passed"], facts["detour_m"], facts["gain"], facts["lose"]) == (None, None, [], [])
        page = (folder / "few-page" / "index.html").read_text(encoding="utf-8")
        assert 'id="table-more"' not in page
        assert "Trips after" not in page

    @pytest.mark.parametrize(
        ("arguments", "option", "value"),
        [
            ((), "--at", None),
            (("--at", "41.1,-8.6", "--street", "ring"), "--at", "41.1,-8.6"),
            (("--at", "here"), "--at", "here"),
            (("--at", "-8.61,41.15"), None, 100.0),
            (("--street", "Rung Road"), "--street", "Rung Road"),
            (("--street", "ring", "--one-way"), "--street", "ring"),
            (("--segments", "1,x"), "--segments", "1,x"),
            (("--segments", "999999", "--both"), "--segments", "[999999]"),
        ],
    )
    def test_invalid_streets_are_reported_with_option_and_value(self, folder, arguments, option, value):
        done = run_close(folder, *arguments, "--json", code=2)
        assert read_error(done.stderr, folder) == (option, value)

    def test_one_way_needs_a_segment(self, folder, town, busiest, place):
        message = " ".join(run_close(folder, "--at", place, "--one-way", code=2).stderr.split())
        assert message.startswith("limiirl: --one-way: ")
        assert str(busiest) in message

    def test_an_ambiguous_street_name_is_rejected(self, folder, town, tmp_path):
        """A part of a name must not close several streets."""
        twice = np.where(np.arange(town.n_segments) < 40, 2, town.street_of)
        many = town.replace(street_names=("", "Ring Road (R 1)", "Old Ring"), street_of=twice)
        many.save(folder / "many.npz")
        printed = limiirl(folder, "roads", "close", "many.npz", *FILES[1:], "--street", "ring", code=2).stderr
        assert "--street 'ring' matches 2 streets: Ring Road (R 1); Old Ring." in " ".join(printed.split())

    def test_styles_of_another_network(self, folder):
        City(seed=2, radius_km=0.8).network.save(folder / "other.npz")
        done = limiirl(folder, "roads", "close", "other.npz", *FILES[1:], "--segments", "1", code=2)
        assert done.stderr.splitlines()[-1].startswith("limiirl: m.npz was not matched to other.npz")


class TestForecast:
    def run_forecast(self, folder, *arguments, matches="m.npz", **more):
        return limiirl(folder, "roads", "forecast", *FILES[:2], matches, *arguments, **more)

    def test_prints_the_trip_and_the_known_part(self, folder, town, trips):
        facts = json.loads(self.run_forecast(folder, "--trip", "T3", "--json").stdout)
        path = trips[3].states
        assert facts["trip"] == "T3"
        assert facts["km"] == pytest.approx(town.length_m[path].sum() / 1000.0, rel=1e-12)
        known = path[: facts["known_segments"]]
        assert facts["known_km"] == pytest.approx(town.length_m[known].sum() / 1000.0, rel=1e-12)
        text = self.run_forecast(folder, "--trip", "T3").stdout
        assert text.startswith(f"Trip T3, after {facts['known_km']:.1f} of {facts['km']:.1f} km (")
        turns = [turn["probability"] for turn in facts["next"]]
        assert turns == sorted(turns, reverse=True)
        likeliest = describe_turn(town, int(known[-1]), facts["next"][0]["segment"])
        assert f"  next        {turns[0]:.1%}: {likeliest}\n" in text

    def test_other_trips_of_the_driver_inform_the_style(self, folder, trips):
        facts = json.loads(self.run_forecast(folder, "--trip", "T3", "--by-driver", "--json").stdout)
        others = np.flatnonzero((trips.groups == trips.groups[3]) & (np.arange(len(trips)) != 3))
        assert facts["other_trips_of_the_driver"] == others.size
        known = trips[3].states[: facts["known_segments"]].tolist()
        rest = trips[np.arange(len(trips)) != 3]
        forecaster = Forecaster(IntentMixture.load(folder / "styles"), rest)
        wanted = forecaster.with_history(trips[others]).intents(known)[0]
        np.testing.assert_allclose(facts["styles"], wanted, rtol=1e-12)
        assert np.abs(wanted - forecaster.intents(known)[0]).max() > 1e-6
        assert "history     " in self.run_forecast(folder, "--trip", "T3", "--by-driver").stdout

    def test_by_driver_needs_drivers_with_other_trips(self, folder):
        for matches in ("anonymous.npz", "alone.npz"):
            done = self.run_forecast(folder, "--by-driver", "--json", matches=matches, code=2)
            assert read_error(done.stderr, folder) == ("--by-driver", True)

    def test_page(self, folder):
        printed = self.run_forecast(folder, "--page", "trip-page").stdout
        assert "Report: " in printed
        page = (folder / "trip-page" / "index.html").read_text(encoding="utf-8")
        assert "Forecast of trip T0" in page
        assert 'id="table-turns-1"' in page


def test_the_report_marks_closed_segments(folder, town, trips, place):
    lat, lon = (float(part) for part in place.split(","))
    forecaster = Forecaster(IntentMixture.load(folder / "styles"), trips)
    closure = close_streets(town, forecaster, trips, nearest_segments(town, lat, lon), least=2)
    page = change_page(closure)
    layers = {layer.title: layer for layer in page.maps[0].layers}
    assert list(layers) == ["Streets", "Change", "Trips before", "Trips after", "Closed", "Location of the closure"]
    assert layers["Closed"].n_features == closure.closed.size
    change = closure.streets[1] - closure.streets[0]
    drawn = layers["Change"].stroke >= 0
    assert drawn.any()
    # Streets with few drivers before and after are not drawn.
    shown = np.logical_or(*closure.shown)
    assert np.abs(change[shown & ~closure.shut]).max() > 0.0
    before, after = (layers["Change"].facts[side] for side in ("before", "after"))
    assert all("fewer" not in one or "fewer" not in other for one, other in zip(before, after, strict=True))
    assert [table.name for table in page.tables] == ["more", "fewer"]


def test_a_network_without_street_names_is_rejected(folder, city):
    assert isinstance(city.network, RoadNetwork)
    city.network.save(folder / "bare.npz")
    printed = limiirl(folder, "roads", "close", "bare.npz", *FILES[1:], "--street", "ring", code=2).stderr
    assert "has no street names" in " ".join(printed.split())
