"""`limiirl roads` on files: from a map and a CSV of taxis to styles, forecasts and reports."""

import contextlib
import csv
import io
import json
import re
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import typer

from limiirl import Demonstrations, IntentMixture, MaxEnt
from limiirl.cli import app, main
from limiirl.cli.inputs import command_line
from limiirl.cli.reproduce import _plain, format_drivers
from limiirl.experiments import DriverPlan, DriverRecord, DriverResults
from limiirl.forecast import Forecaster
from limiirl.report.roads.forecasts import select_distinct
from limiirl.roads import City, Matches, RoadNetwork, simulate_gps
from tests.helpers import read_error
from tests.integration.test_cli import limiirl
from tests.oracles.town_maps import write_xml

STYLES = ("--model", "DestinationMaxEnt", "--features", "plain", "--intents", "2", "--by-driver")


@pytest.fixture(scope="module")
def city():
    return City(seed=1, radius_km=0.8)


@pytest.fixture(scope="module")
def driven(city):
    """20 trips of 5 drivers, then one of few segments, and a lap of the ring that ends where it began."""
    demos = city.drive(5, 4, seed=0).demos
    ring = set(np.flatnonzero(np.array(city.network.class_names)[city.network.road_class] == "motorway").tolist())
    next_segment = {a: b for a, b in zip(city.network.turn_from, city.network.turn_to, strict=True) if {a, b} <= ring}
    lap = [min(ring)]
    while len(lap) < 2 or lap[-1] != lap[0]:
        lap.append(next_segment[lap[-1]])
    paths = [demo.states for demo in demos] + [demos[0].states[:6], lap]
    return Demonstrations.from_lists(paths, groups=[*demos.groups, 0, 1])


@pytest.fixture(scope="module")
def folder(city, driven, tmp_path_factory):
    """Networks, and trips as the taxis of Porto have them, one of a single fix among them."""
    place = tmp_path_factory.mktemp("roads")
    city.network.save(place / "town.npz")
    City(seed=2, radius_km=0.8).network.save(place / "other.npz")
    trips = simulate_gps(city.network, driven, noise_m=4.0, step_s=5.0)
    with (place / "trips.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["TRIP_ID", "CALL_TYPE", "TAXI_ID", "TIMESTAMP", "MISSING_DATA", "POLYLINE"])
        for i in range(len(trips)):
            lat, lon, _ = trips[i]
            line = json.dumps(np.column_stack([lon, lat]).round(6).tolist())
            rows.writerow([f"T{i}", "A", int(trips.groups[i]), 1372636800 + 3600 * i, "False", line])
        rows.writerow(["T99", "A", 1, 1372636800, "False", "[[-8.63, 41.15]]"])
    write_xml(place / "map.osm")
    return place


@pytest.fixture(scope="module")
def matched(folder):
    """JSON output of the matching, whose file is beside the network."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        printed = limiirl(folder, "roads", "match", "town.npz", "trips.csv", "--step", "5", "--out", "m.npz", "--json")
    return json.loads(printed.stdout)


@pytest.fixture(scope="module")
def fitted(folder, matched):
    """JSON output of a fit with its folder `styles`, and the report `bare-page` without single trips."""
    page = ("--page", "bare-page", "--no-examples")
    return json.loads(limiirl(folder, "roads", "fit", "town.npz", "m.npz", *STYLES, *page, "--json").stdout)


def is_report(page: Path, *words: str) -> bool:
    text = page.read_text(encoding="utf-8")
    assert text.lower().startswith("<!doctype html>")
    assert (page.parent / ".limiirl-report.json").exists()
    return all(word in text for word in words)


class TestBuild:
    def test_prints_a_summary_of_the_network(self, folder):
        facts = json.loads(limiirl(folder, "roads", "build", "map.osm", "--out", "small.npz", "--json").stdout)
        network = RoadNetwork.load(folder / "small.npz")
        assert (facts["segments"], facts["turns"]) == (network.n_segments, network.n_turns)
        assert facts["fingerprint"] == network.fingerprint()
        assert facts["saved"] == "small.npz"

    def test_options_change_the_network(self, folder):
        def segments(*options):
            printed = limiirl(folder, "roads", "build", "map.osm", "--out", "x.npz", *options, "--json")
            return json.loads(printed.stdout)["segments"], json.loads(printed.stdout)["turns"]

        plain, service, back = segments(), segments("--service"), segments("--u-turns")
        assert service[0] > plain[0]
        assert back[1] > plain[1]

    def test_component_all_keeps_everything(self, tmp_path):
        node = '<node id="{0}" lat="41.0{0}" lon="-8.0"/>'
        way = '<way id="1"><nd ref="5"/><nd ref="6"/><tag k="highway" v="road"/><tag k="oneway" v="yes"/></way>'
        (tmp_path / "street.osm").write_text(f"<osm>{node.format(5)}{node.format(6)}{way}</osm>")
        done = limiirl(tmp_path, "roads", "build", "street.osm", code=2)
        assert "--component" in done.stderr
        facts = json.loads(limiirl(tmp_path, "roads", "build", "street.osm", "--component", "all", "--json").stdout)
        assert facts["segments"] == 1

    def test_prints_one_fact_per_line(self, folder):
        printed = limiirl(folder, "roads", "build", "map.osm", "--out", "small.npz").stdout
        assert "segments: " in printed
        assert "km by class:\n  " in printed
        assert "{" not in printed
        assert "Saved to small.npz." in printed

    def test_writes_a_report_and_prints_its_path(self, folder):
        quiet = limiirl(folder, "roads", "build", "map.osm", "--out", "small.npz", "--page", "map-page", "--json")
        assert json.loads(quiet.stdout)["saved"] == "small.npz"  # stdout has the JSON only
        assert f"Report: {Path('map-page/index.html')}" in quiet.stderr
        assert is_report(folder / "map-page" / "index.html", "segments", "limiirl roads build map.osm --out small.npz")


def test_pages_do_not_show_masked_places():
    words = ["roads", "match", "town.npz", "--mask", "41.15,-8.61,300", "--mask=41.2,-8.7,100", "--page", "quality"]
    command = command_line(SimpleNamespace(obj=words))
    assert command == "limiirl roads match town.npz --mask PLACE --mask=PLACE --page quality"


class TestMatch:
    def test_matches_the_trips(self, folder, matched, driven):
        facts = Matches.load(folder / "m.npz")
        assert matched["trips"] == len(driven) + 1
        assert matched["matched_end_to_end"] == facts.n_whole >= 0.9 * len(driven)
        assert matched["fixes_matched"] == int(np.sum(facts.fix_segment >= 0))
        assert sum(matched["trips_lost"].values()) == 1  # that of a single fix
        assert matched["unread"] == {}
        right = 0
        for i, name in enumerate(facts.ids):
            right += np.array_equal(facts.path(i), driven[int(name[1:])].states)
        assert right >= 0.7 * len(driven)
        assert set(facts.groups) == set(range(5))

    @pytest.mark.filterwarnings("ignore::limiirl.errors.LimiirlWarning")
    def test_prints_losses_and_writes_a_report(self, folder, matched):
        given = ("roads", "match", "town.npz", "trips.csv", "--step", "5", "--out", "again.npz", "--page", "quality")
        printed = limiirl(folder, *given).stdout
        assert "trips lost:\n  " in printed
        assert "Saved to again.npz.\nLearn driving styles with `limiirl roads fit town.npz again.npz`.\n" in printed
        assert f"Report: {Path('quality/index.html')}" in printed
        assert is_report(folder / "quality" / "index.html", "High confidence")
        assert Matches.load(folder / "again.npz") == Matches.load(folder / "m.npz")

    @pytest.mark.filterwarnings("ignore::limiirl.errors.LimiirlWarning")
    def test_options_are_passed_on(self, folder, matched):
        given = ("roads", "match", "town.npz", "trips.csv", "--step", "5", "--out", "x.npz", "--json")
        limiirl(folder, *given, "--sigma", "9")
        assert Matches.load(folder / "x.npz").settings["sigma_m"] == 9.0
        limiirl(folder, *given, "--method", "particles", "--seed", "3")
        facts = Matches.load(folder / "x.npz")
        assert (facts.settings["method"], facts.settings["seed"]) == ("particles", 3)
        whole, trimmed = Matches.load(folder / "m.npz"), json.loads(limiirl(folder, *given, "--trim", "150").stdout)
        assert 0 < trimmed["fixes_matched"] < matched["fixes_matched"]
        network, short = RoadNetwork.load(folder / "town.npz"), Matches.load(folder / "x.npz")
        assert short.lengths_m(network).sum() < whole.lengths_m(network).sum()

    @pytest.mark.filterwarnings("ignore::limiirl.errors.LimiirlWarning")
    def test_zones_are_masked(self, folder, matched):
        network, whole = RoadNetwork.load(folder / "town.npz"), Matches.load(folder / "m.npz")
        lat, lon = whole.geometry(network, 0)[whole.path(0).size // 2]
        zone = ("--mask", f"{lat},{lon},120")
        given = ("roads", "match", "town.npz", "trips.csv", "--step", "5", "--out", "masked.npz", "--json", *zone)
        printed = json.loads(limiirl(folder, *given).stdout)
        assert printed["matched_end_to_end"] < matched["matched_end_to_end"]
        assert 0 < printed["fixes_matched"] < matched["fixes_matched"]

    def test_columns_can_be_named(self, folder, matched):
        head, rest = (folder / "trips.csv").read_text().split("\n", 1)
        other = head.replace("TRIP_ID", "nr, neu").replace("TAXI_ID", "wer").replace("POLYLINE", "linie")
        (folder / "german.csv").write_text(other.replace("nr, neu", '"nr, neu"') + "\n" + rest)
        given = ("roads", "match", "town.npz", "german.csv", "--step", "5", "--out", "german.npz", "--json")
        done = limiirl(folder, *given, code=2)
        assert "its columns are nr, neu, CALL_TYPE, wer" in " ".join(done.stderr.split())
        assert "columns={'polyline': ...}" in " ".join(done.stderr.split())
        limiirl(folder, *given, "--columns", "trip=nr, neu,polyline=linie", "--columns", "driver=wer")
        assert Matches.load(folder / "german.npz") == Matches.load(folder / "m.npz")
        limiirl(folder, *given, "--columns", "trip=nr, neu,polyline=linie,driver=")
        assert Matches.load(folder / "german.npz").groups is None

    def test_stages_are_lines_without_a_terminal(self, folder, matched):
        given = ("roads", "match", "town.npz", "trips.csv", "--step", "5", "--out", "x.npz", "--json")
        lines = limiirl(folder, *given).stderr.splitlines()
        n = len(Matches.load(folder / "m.npz").fix_offsets) - 1
        assert [line for line in lines if line.endswith(" ...")] == [
            "reading trips.csv ...",
            f"cleaning {matched['trips']} trips ...",
            f"matching {n} cleaned trips ...",
        ]

    @pytest.mark.parametrize(
        "text",
        [
            "TRIP_ID,POLYLINE\n",
            'TRIP_ID,POLYLINE\n1,"[]"\n',
            'TRIP_ID,POLYLINE\n1,"[[-8.63,41.15]]"\n2,"[[-8.63,41.15]]"\n',
            'TRIP_ID,POLYLINE\n1,"[[41.15,-8.63]]"\n',
        ],
    )
    @pytest.mark.filterwarnings("ignore::limiirl.errors.LimiirlWarning")
    def test_nothing_to_match_is_an_error(self, folder, tmp_path, text):
        (tmp_path / "trips.csv").write_text(text)
        done = limiirl(tmp_path, "roads", "match", str(folder / "town.npz"), "trips.csv", "--json", code=2)
        facts = json.loads(done.stderr.splitlines()[-1])
        assert (facts["error"], facts["parameter"]) == ("InvalidTrips", "trips")
        assert "Warning" not in done.stderr  # of numpy's, about the mean of nothing


class TestFit:
    @pytest.mark.smoke
    def test_prints_the_styles(self, folder, matched, fitted):
        assert fitted["unit"] == "groups"
        assert fitted["n_units"] == 5
        assert len(fitted["styles"]) == 2
        assert all("of the trips" in text for text in fitted["styles"])
        assert fitted["n_clusters"] >= 1
        mixture = IntentMixture.load(folder / fitted["saved"])
        assert fitted["saved"] == "styles"
        assert mixture.mdp_.n_states == RoadNetwork.load(folder / "town.npz").n_segments
        assert type(mixture.irl).__name__ == "DestinationMaxEnt"

    def test_prints_the_excluded_trips(self, folder, matched, fitted):
        facts = Matches.load(folder / "m.npz")
        assert fitted["excluded"] == {"fewer than 10 segments": 1, "last segment visited twice": 1}
        printed = limiirl(
            folder, "roads", "fit", "town.npz", "m.npz", *STYLES, "--out", "again", "--page", "styles-page"
        )
        assert f"Fitted to {len(facts) - 2} trips.\nModel: DestinationMaxEnt" in printed.stdout
        assert ".\nNumber of styles estimated by a Gaussian mixture of trip features: " in printed.stdout
        assert (
            "excluded paths (a trip may have several):\n  fewer than 10 segments: 1\n  last segment visited twice: 1\n"
            in printed.stdout
        )
        for k, text in enumerate(fitted["styles"]):
            assert f"Style {k} (intent {k}): {text}" in printed.stdout
        assert "Saved to again." in printed.stdout
        assert is_report(folder / "styles-page" / "index.html", "style 0", "style 1", "Forecasts")
        assert is_report(folder / "bare-page" / "index.html", "style 0", "style 1", "trips are not shown")
        assert "Forecasts" not in (folder / "bare-page" / "index.html").read_text(encoding="utf-8")
        same = IntentMixture.load(folder / "again")
        np.testing.assert_array_equal(same.thetas_, IntentMixture.load(folder / "styles").thetas_)

    def test_writes_geojson(self, folder, matched, fitted):
        given = {
            "fit": ("town.npz", "m.npz", *STYLES, "--out", "with-geojson"),
            "forecast": ("town.npz", "styles", "m.npz"),
            "close": ("town.npz", "styles", "m.npz", "--segments", "0"),
        }
        for command, options in given.items():
            done = limiirl(folder, "roads", command, *options, "--geojson", f"{command}.geojson")
            features = json.loads((folder / f"{command}.geojson").read_text())["features"]
            assert f"GeoJSON: {command}.geojson ({len(features):,} features)" in done.stdout
            assert {feature["geometry"]["type"] for feature in features} <= {"LineString"}
            # Each style has fewer than five drivers, so that no street is shown.
            assert bool(features) == (command != "fit")
            if command == "close":
                assert [f["properties"]["segment"] for f in features if f["properties"]["closed"]] == [0]
        done = limiirl(folder, "roads", "close", *given["close"], "--gis", "closed.gpkg")
        assert f"GeoPackage: closed.gpkg ({len(features):,} features)" in done.stdout
        taken = limiirl(folder, "roads", "fit", *given["fit"], "--geojson", "m.npz", "--json", code=2)
        assert json.loads(taken.stderr)["option"] == "--geojson"

    def test_progress_without_a_terminal_starts_with_a_line(self, folder, matched):
        given = ("roads", "fit", "town.npz", "m.npz", "--features", "plain", "-k", "1", "--trips", "8", "--out", "x")
        assert limiirl(folder, *given).stderr.splitlines()[0] == "learning styles from 8 trips ..."

    def test_samples_of_trips_depend_on_the_seed(self, folder, matched):
        given = ("roads", "fit", "town.npz", "m.npz", "--features", "plain", "-k", "1", "--trips", "8", "--json")
        facts = [json.loads(limiirl(folder, *given, "--seed", seed, "--out", "x").stdout) for seed in "001"]
        assert [printed["n_units"] + sum(printed["excluded"].values()) for printed in facts] == [9, 9, 9]
        assert facts[0]["log_likelihood"] == facts[1]["log_likelihood"] != facts[2]["log_likelihood"]
        assert [printed["trips"] for printed in facts] == [21, 21, 21]

    def test_the_default_model_is_given_the_destination(self, folder, matched):
        given = (
            "roads",
            "fit",
            "town.npz",
            "m.npz",
            "-k",
            "1",
            "--features",
            "plain",
            "--trips",
            "8",
            "--out",
            "default",
        )
        printed = limiirl(folder, *given).stdout
        assert "Model: DestinationMaxEnt" in printed
        assert "--model MaxEnt" in printed
        assert "--trips 21" in printed  # a sample is used
        mixture = IntentMixture.load(folder / "default")
        assert type(mixture.irl).__name__ == "DestinationMaxEnt"
        assert mixture.mdp_.feature_names[-1] == "log of choices"
        done = limiirl(folder, *given, "--gamma", "0.999", "--json", code=2)
        error = json.loads(done.stderr.splitlines()[-1])
        assert (error["option"], error["value"]) == ("--gamma", 0.999)

    def test_the_model_of_the_paper_has_a_discount(self, folder, matched):
        given = ("roads", "fit", "town.npz", "m.npz", "-k", "1", "--gamma", "0.999", "--out", "paper", "--json")
        facts = json.loads(limiirl(folder, *given, "--features", "plain", "--model", "MaxEnt").stdout)
        mixture = IntentMixture.load(folder / "paper")
        assert facts["model"] == type(mixture.irl).__name__ == "MaxEnt"
        assert (mixture.irl.max_length, mixture.mdp_.gamma) == (300, 0.999)

    def test_workers_give_the_same_result(self, folder, matched):
        given = ("roads", "fit", "town.npz", "m.npz", *STYLES, "--intents", "select", "--trips", "12", "--json")
        facts = []
        for name, workers in (("alone", ()), ("together", ("--workers", "2"))):
            printed = json.loads(limiirl(folder, *given, *workers, "--out", name).stdout)
            facts.append({key: printed[key] for key in printed.keys() - {"saved", "seconds"}})
        assert facts[0] == facts[1]
        assert "Number of styles estimated" not in limiirl(folder, *given[:-1], "--out", "repeated").stdout
        error = json.loads(limiirl(folder, *given, "--executor", "dask", "--out", "nowhere", code=2).stderr)
        assert (error["error"], error["option"], error["value"]) == ("InvalidParameter", "--scheduler", None)
        assert not (folder / "nowhere").exists()
        done = limiirl(folder, *given[:4], *STYLES, "--workers", "2", "--out", "nowhere", code=2)
        assert done.stderr.splitlines()[-1].startswith("limiirl: --workers requires --intents select")


class TestForecast:
    def test_equals_the_forecaster_of_the_library(self, folder, fitted):
        given = ("roads", "forecast", "town.npz", "styles", "m.npz")
        demos = Matches.load(folder / "m.npz").demonstrations()
        name = str(demos.ids[2])
        options = ("--trip", name, "--fraction", "0.3", "--routes", "2")
        printed = json.loads(limiirl(folder, *given, *options, "--json").stdout)
        path = demos[2].states
        known = path[: printed["known_segments"]].tolist()
        assert int(0.3 * (len(path) - 1)) + 1 <= len(known) < len(path)
        others = demos[np.arange(len(demos)) != 2]
        forecaster = Forecaster(IntentMixture.load(folder / "styles"), others)
        assert {end["segment"] for end in printed["destinations"]} <= set(others.last_states.tolist())
        candidates = [(r.states, r.probability) for r in forecaster.routes(known[-1], int(path[-1]), 12, partial=known)]
        routes = select_distinct(RoadNetwork.load(folder / "town.npz"), candidates, 2)
        assert [route["segments"] for route in printed["routes"]] == [states.tolist() for states, _ in routes]
        np.testing.assert_allclose(
            [route["probability"] for route in printed["routes"]],
            [probability for _, probability in routes],
            rtol=1e-12,
        )
        np.testing.assert_allclose(printed["styles"], forecaster.intents(known)[0], rtol=1e-12)
        np.testing.assert_allclose(sum(printed["styles"]), 1.0, rtol=1e-9)
        turns = forecaster.next_states(known)
        order = np.argsort(-turns.probability, kind="stable")
        assert [turn["segment"] for turn in printed["next"]] == turns.state[order].tolist()
        np.testing.assert_allclose(
            [turn["probability"] for turn in printed["next"]], turns.probability[order], rtol=1e-12
        )
        assert 1 <= len(printed["routes"]) <= 2
        for route in printed["routes"]:
            assert (route["segments"][0], route["segments"][-1]) == (known[-1], path[-1])
        chances = [end["probability"] for end in printed["destinations"]]
        assert chances == sorted(chances, reverse=True)
        assert len(chances) <= 5
        words = limiirl(folder, *given, *options).stdout
        assert words.startswith(f"Trip {name}, after ")
        assert f" km ({len(known)} of {len(path)} segments), on " in words
        for kind in ("style", "next", "route", "destination"):
            assert f"\n  {kind} " in words
        ends = re.findall(r"^  destination (\S+)%: (.*)$", words, re.M)
        assert 1 <= len(ends) == len({street for _, street in ends}) <= 5
        assert float(ends[0][0]) >= round(100 * chances[0], 1)

    @pytest.mark.filterwarnings("ignore::limiirl.errors.LimiirlWarning")
    def test_no_usable_path_is_an_error(self, folder, fitted, tmp_path):
        head, *lines = (folder / "trips.csv").read_text().splitlines()
        town, styles = str(folder / "town.npz"), str(folder / "styles")
        (tmp_path / "few.csv").write_text("\n".join([head, *(line for line in lines if line.startswith("T20,"))]))
        limiirl(tmp_path, "roads", "match", town, "few.csv", "--step", "5", "--out", "few.npz")
        done = limiirl(tmp_path, "roads", "forecast", town, styles, "few.npz", code=2)
        assert "(1: fewer than 10 segments)" in " ".join(done.stderr.split())
        assert "Traceback" not in done.stderr

    @pytest.mark.parametrize("share", ["0", "1"])
    def test_forecasts_at_both_ends_of_a_trip(self, folder, fitted, share):
        printed = limiirl(
            folder, "roads", "forecast", "town.npz", "styles", "m.npz", "--fraction", share, "--json"
        ).stdout
        facts = json.loads(printed)
        first = Matches.load(folder / "m.npz").demonstrations()[0].states
        if share == "1":
            assert facts["known_segments"] == len(first)
            assert facts["routes"][0]["segments"] == [first[-1]]
        else:
            assert facts["known_segments"] < len(first) / 2


class TestDemo:
    GIVEN = ("roads", "demo", "--radius", "0.8", "--noise", "5", "--out", "demo")

    @pytest.mark.filterwarnings("ignore::limiirl.errors.LimiirlWarning")
    def test_runs_the_whole_pipeline(self, tmp_path):
        done = limiirl(tmp_path, *self.GIVEN, "--drivers", "6", "--trips-each", "4")
        assert "24 trips of 6 drivers" in done.stdout
        assert 90.0 < float(re.search(r"completely; ([0-9.]+) % of the driven length", done.stdout)[1]) <= 100.0
        assert [line.split()[0] for line in done.stderr.splitlines() if line.endswith(" ...")] == [
            "city", "drives", "recordings", "cleaning", "matching", "styles", "scores"
        ]  # fmt: skip
        for name in ("network", "matching", "styles"):
            assert f"\n{name:<9} {Path('demo') / name / 'index.html'}\n" in done.stdout
            assert is_report(tmp_path / "demo" / name / "index.html")

    @pytest.mark.filterwarnings("ignore::limiirl.errors.LimiirlWarning")
    def test_prints_json_with_particles(self, tmp_path):
        given = ("--drivers", "6", "--trips-each", "2", "--method", "particles", "--json")
        printed = limiirl(tmp_path, *self.GIVEN, *given).stdout
        assert "NaN" not in printed
        facts = json.loads(printed)
        assert facts["trips_driven"] == 12
        assert facts["recovered"] > 0.9
        assert 4.0 < facts["sigma_m"] < 8.0  # of noise of 5 m and a drift of 3 m
        assert list(facts["pages"]) == ["network", "matching", "styles"]
        for page in facts["pages"].values():
            assert is_report(tmp_path / page)


class TestReproduce:
    def test_driver_options_are_rejected_for_other_studies(self, tmp_path):
        done = limiirl(tmp_path, "reproduce", "table1", "--train", "5", "--out", "run", "--json", code=2)
        assert read_error(done.stderr, tmp_path) == ("--train", "5")
        assert not (tmp_path / "run").exists()

    def test_an_invalid_executor_creates_no_folder(self, tmp_path):
        done = limiirl(tmp_path, "reproduce", "drivers", "--scheduler", "x", "--out", "run", "--json", code=2)
        assert json.loads(done.stderr)["option"] == "--scheduler"
        assert not (tmp_path / "run").exists()

    def test_drivers_cannot_be_combined_with_other_studies(self, tmp_path):
        done = limiirl(tmp_path, "reproduce", "drivers", "table1", "--out", "run", "--json", code=2)
        assert json.loads(done.stderr)["parameter"] == "studies"

    def test_a_missing_gpu_creates_no_folder(self, folder, matched, tmp_path, monkeypatch):
        monkeypatch.setenv("LIMIIRL_GPU", "off")
        files = ("--network", folder / "town.npz", "--matches", folder / "m.npz", "--train", 5, "--device", "gpu")
        done = limiirl(tmp_path, "reproduce", "drivers", *map(str, files), "--out", "run", code=2)
        assert "LIMIIRL_GPU=off" in " ".join(done.stderr.split())
        assert not (tmp_path / "run").exists()

    def test_too_few_trips_create_no_folder(self, folder, matched, tmp_path):
        files = ("--network", folder / "town.npz", "--matches", folder / "m.npz")
        done = limiirl(tmp_path, "reproduce", "drivers", *map(str, files), "--out", "run", "--json", code=2)
        assert json.loads(done.stderr)["parameter"] == "n_train"
        assert not (tmp_path / "run").exists()

    def test_json_figures_have_names(self):
        records = tuple(result(method, split) for method in ("one intent", "GMM, MLE") for split in range(2))
        plain = json.loads(json.dumps(_plain(DriverResults(DriverPlan(n_splits=2), records)), allow_nan=False))
        assert plain["rows"][1]["nll"] == {"mean": 1.0, "half_width": 0.0, "low": 1.0, "high": 1.0, "n": 2}
        assert plain["rows"][0]["gain"] is None
        assert plain["baselines"]["shortest time"]["surplus"]["mean"] == 1.0
        assert plain["plan"]["n_splits"] == 2

    def test_a_single_split_is_a_row_without_interval(self):
        alone = DriverResults(DriverPlan(n_splits=1), (result("one intent", 0),))
        lines = format_drivers(alone).splitlines()
        assert lines[1].split()[:2] == ["one", "intent"]
        assert "±" not in format_drivers(alone)
        assert "nan" not in format_drivers(alone)
        assert json.loads(json.dumps(_plain(alone), allow_nan=False))["rows"][0]["nll"]["half_width"] is None

    def test_an_interrupted_run_is_reported(self, folder, matched, tmp_path):
        class Impatient(io.StringIO):
            """A stderr that interrupts the run after the first trial."""

            def write(self, text):
                if "1 of 96" in text:
                    raise KeyboardInterrupt
                return super().write(text)

        files = ("--network", folder / "town.npz", "--matches", folder / "m.npz")
        given = ["reproduce", "drivers", *map(str, files), "--train", "5", "--out", str(tmp_path / "run")]
        with contextlib.redirect_stderr(Impatient()) as seen, pytest.raises(SystemExit) as ended:
            main(given)
        assert ended.value.code == 130
        assert "interrupted. Finished trials are saved" in seen.getvalue()
        done = limiirl(tmp_path, "report", "run", code=2)
        text = " ".join(done.stderr.split())
        assert "is a driver experiment with 1 of 96 trials" in text
        assert "`limiirl reproduce drivers --out" in text


def result(method, split):
    """A record whose figures are 1."""
    given = dict.fromkeys(DriverRecord.__dataclass_fields__, 1.0) | {"weights": [1.0], "thetas": [[0.0]], "history": []}
    key = {"spec": method, "seed": split, "error": "", "trace": ""}
    return DriverRecord(**(given | key | {"method": method, "gamma": 1.0}))


REFUSED = [
    (("build", "nowhere.osm"), None, "nowhere.osm"),
    (("build", "trips.csv"), None, "trips.csv"),
    (("match", "nowhere.npz", "trips.csv"), None, "nowhere.npz"),
    (("match", "trips.csv", "trips.csv"), None, "trips.csv"),
    (("match", "town.npz", "nowhere.csv"), None, "nowhere.csv"),
    (("match", "town.npz", "map.osm"), None, "map.osm"),
    (("match", "m.npz", "trips.csv"), None, "m.npz"),
    (("match", "foreign", "trips.csv"), None, "foreign"),
    (("match", "town.npz", "trips.csv", "--out", "none/x.npz"), "--out", "none/x.npz"),
    (("match", "town.npz", "trips.csv", "--out", "foreign"), "--out", "foreign"),
    (("match", "town.npz", "trips.csv", "--columns", "lat"), "--columns", "lat"),
    (("match", "town.npz", "trips.csv", "--columns", "x=y"), "--columns", "x"),
    (("match", "town.npz", "trips.csv", "--mask", "41,x,3"), "--mask", "41,x,3"),
    (("match", "town.npz", "trips.csv", "--mask", "41,-8"), "--mask", "(41.0, -8.0)"),
    (("build", "map.osm", "--out", "none/x.npz"), "--out", "none/x.npz"),
    (("build", "map.osm", "--component", "x"), "--component", "x"),
    (("fit", "town.npz", "foreign"), None, "foreign"),
    (("forecast", "town.npz", "foreign", "m.npz"), None, "foreign"),
    (("match", "town.npz", "trips.csv", "--method", "magic"), "--method", "magic"),
    (("match", "town.npz", "trips.csv", "--step", "0"), "--step", 0.0),
    (("fit", "town.npz", "nowhere.npz"), None, "nowhere.npz"),
    (("fit", "town.npz", "town.npz"), None, "town.npz"),
    (("fit", "other.npz", "m.npz"), None, "m.npz"),
    (("fit", "town.npz", "m.npz", "--intents", "many"), "--intents", "many"),
    (("fit", "town.npz", "m.npz", "--model", "Magic"), "--model", "Magic"),
    (("fit", "town.npz", "m.npz", "--features", "all"), "--features", "all"),
    (("fit", "town.npz", "m.npz", "--trips", "0"), "--trips", 0),
    (("fit", "town.npz", "m.npz", "--init", "kmeens", "-k", "2", "--features", "plain"), "--init", "kmeens"),
    (("fit", "town.npz", "m.npz", "--model", "DestinationMaxEnt", "--gamma", "0.9"), "--gamma", 0.9),
    (("fit", "town.npz", "m.npz", "--out", "foreign"), "--out", "foreign"),
    (("forecast", "town.npz", "nowhere", "m.npz"), None, "nowhere"),
    (("forecast", "town.npz", "styles", "town.npz"), None, "town.npz"),
    (("forecast", "other.npz", "styles", "m.npz"), None, "m.npz"),
    (("forecast", "town.npz", "styles", "m.npz", "--trip", "T77"), "--trip", "T77"),
    (("forecast", "town.npz", "small-styles", "m.npz"), None, "small-styles"),
    (("forecast", "turned.npz", "styles", "turned-m.npz"), None, "styles"),
    (("forecast", "replaced.npz", "styles", "replaced-m.npz"), None, "styles"),
    (("demo", "--out", "m.npz"), "--out", "m.npz"),
    (("demo", "--out", "taken"), None, "taken/styles"),
    (("build", "map.osm", "--out", "x.npz", "--page", "m.npz"), "--page", "m.npz"),
    (("match", "town.npz", "trips.csv", "--out", "x.npz", "--page", "m.npz/page"), "--page", "m.npz/page"),
    (("fit", "town.npz", "m.npz", "--out", "x", "--page", "m.npz"), "--page", "m.npz"),
    (("demo", "--radius", "99", "--out", "demo"), "--radius", 99.0),
    (("demo", "--drivers", "0", "--radius", "0.8", "--out", "demo"), "--drivers", 0),
]  # fmt: skip


@pytest.fixture(scope="module")
def others(folder, fitted):
    """Folders with other files, and networks with other turns and their trips."""
    for name, inside in (("foreign", "thesis.tex"), ("taken/styles", "index.html")):
        (folder / name).mkdir(parents=True)
        (folder / name / inside).write_text("ten years of work")
    street = RoadNetwork.from_segments([41.15, 41.16], [-8.63, -8.63], [0, 1], [1, 0], u_turns=True)
    trips = Demonstrations.from_lists([[0, 1], [1, 0]])
    IntentMixture(1, MaxEnt(3)).fit(street.mdp("plain"), trips).save(folder / "small-styles")
    town, matches = RoadNetwork.load(folder / "town.npz"), Matches.load(folder / "m.npz")
    # One U-turn more, and the same with another turn less.
    lane = int(np.flatnonzero(town.opposite >= 0)[-1])
    turns = np.array(sorted([*zip(town.turn_from, town.turn_to, strict=True), (lane, town.opposite[lane])]))
    for name, kept in (("turned", turns), ("replaced", turns[1:])):
        network = town.replace(turn_from=kept[:, 0], turn_to=kept[:, 1])
        network.save(folder / f"{name}.npz")
        settings = matches.settings | {"network": network.fingerprint()}
        replace(matches, settings=settings).save(folder / f"{name}-m.npz")


def files_in(folder):
    """Modification time and content of every file."""
    return {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in folder.rglob("*") if file.is_file()}


@pytest.mark.filterwarnings("ignore::limiirl.errors.LimiirlWarning")
@pytest.mark.parametrize(("arguments", "option", "value"), REFUSED, ids=[" ".join(words) for words, *_ in REFUSED])
def test_invalid_input_is_reported_with_option_and_value(folder, others, arguments, option, value):
    before = files_in(folder)
    done = limiirl(folder, "roads", *arguments, "--json", code=2)
    assert read_error(done.stderr, folder) == (option, value)
    assert "pickle" not in done.stderr
    if option == "--page":
        assert " ..." not in done.stderr  # before any computation
    assert done.stdout == ""
    assert files_in(folder) == before


def test_an_invalid_report_folder_is_reported_before_the_experiment(tmp_path):
    (tmp_path / "run").write_text("not a folder")
    done = limiirl(tmp_path, "reproduce", "drivers", "--train", "20", "--out", "run", code=2)
    assert "which is a file" in " ".join(done.stderr.split())


def test_help_of_the_matching_seed(tmp_path):
    printed = " ".join(limiirl(tmp_path, "roads", "match", "--help").stdout.replace("│", " ").split())
    assert "--trim" in printed.partition("--seed")[2]


def all_commands():
    """All commands by their words, from the app itself."""
    facts = {}

    def walk(group, words):
        for name, command in group.commands.items():
            if hasattr(command, "commands"):
                walk(command, (*words, name))
            else:
                facts[(*words, name)] = command

    walk(typer.main.get_command(app), ())
    return facts


COMMANDS = all_commands()


def test_all_commands_are_listed():
    assert {("roads", name) for name in ("build", "match", "fit", "forecast", "demo")} <= set(COMMANDS)
    assert ("fit",) in COMMANDS


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_has_an_example_and_json(tmp_path, words):
    printed = " ".join(limiirl(tmp_path, *words, "--help").stdout.split())
    assert f"Example: limiirl {' '.join(words)}" in printed
    assert words == ("report",) or "--json" in [name for part in COMMANDS[words].params for name in part.opts]


def test_the_group_lists_its_commands(tmp_path):
    printed = limiirl(tmp_path, "roads", "--help").stdout
    for name in ("build", "match", "fit", "forecast", "demo"):
        assert f" {name} " in printed
    assert "GPS" in limiirl(tmp_path, "--help").stdout


@pytest.mark.parametrize("words", [words for words in COMMANDS if words[0] == "roads"], ids=" ".join)
def test_examples_name_options_that_exist(words):
    """The options of an example are options of its command."""
    command = COMMANDS[words]
    example = command.epilog.split("Example: limiirl ", 1)[1].split()
    assert tuple(example[: len(words)]) == words
    known = {name for part in command.params for name in part.opts}
    assert {word for word in example if word.startswith("-")} <= known
    assert len([part for part in command.params if part.param_type_name == "argument" and part.required]) <= len(
        example
    )
