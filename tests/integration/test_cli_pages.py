"""Pages on fitted mixtures from the command line."""

import json

import numpy as np
import pandas as pd
import pytest

from limiirl import IntentMixture
from tests.helpers import read_error
from tests.integration.test_cli import limiirl
from tests.oracles.mixture import crossings, walks

FIT = ("--mdp", "town.npz", "--set", "irl__max_length=7", "--set", "irl__bounds=[-5, 5]")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with an MDP, demonstrations with groups, and coordinates of the states."""
    path = tmp_path_factory.mktemp("pages")
    demos, _ = walks(60, seed=2)
    crossings().save(path / "town.npz")
    demos.replace(groups=np.arange(60) % 12).to_parquet(path / "walks.parquet")
    demos[:20].to_parquet(path / "others.parquet")
    n = crossings().n_states
    xy = pd.DataFrame({"state": np.arange(n)[::-1], "x": np.arange(n)[::-1] * 2.0, "y": np.arange(n)[::-1] % 3})
    xy.to_csv(path / "xy.csv", index=False)
    return path


@pytest.fixture(scope="module")
def fitted(folder):
    """The output of a fit with a page."""
    return limiirl(folder, "fit", "walks.parquet", *FIT, "--intents", "2", "--out", "mix", "--report", "page")


@pytest.mark.smoke
def test_fit_writes_a_page_with_its_command(folder, fitted):
    page = (folder / "page" / "index.html").read_text()
    assert "limiirl fit walks.parquet" in page
    assert (folder / "page" / "figures" / "timeline.csv").is_file()
    assert "page/index.html" in fitted.stderr
    assert (folder / "mix" / "mixture.json").is_file()


def test_a_saved_mixture_has_a_page_with_coordinates(folder, fitted):
    done = limiirl(
        folder, "report", "mix", "--demos", "walks.parquet", "--out", "full", "--coordinates", "xy.csv", "--json"
    )
    assert json.loads(done.stdout) == {"report": "full/index.html"}
    rewards = pd.read_csv(folder / "full" / "figures" / "rewards.csv")
    mix = IntentMixture.load(folder / "mix")
    assert rewards["reward"].sum() == pytest.approx(mix.thetas_.sum())
    assert rewards["standard_error"].notna().any()
    visits = pd.read_csv(folder / "full" / "figures" / "visits.csv")
    np.testing.assert_array_equal(visits["x"], 2.0 * np.arange(len(visits)))


class TestData:
    """`limiirl report MIXTURE` reads the file of the fit if it is there and has not changed."""

    @pytest.fixture
    def project(self, tmp_path):
        demos, _ = walks(30, seed=3)
        crossings().save(tmp_path / "town.npz")
        (tmp_path / "data").mkdir()
        rows = [(i, t, s, i % 5) for i, demo in enumerate(demos) for t, s in enumerate(demo.states)]
        table = pd.DataFrame(rows, columns=["walk", "t", "place", "group"])
        table.to_csv(tmp_path / "data" / "walks.csv", index=False)
        options = (
            "--columns",
            "demo=walk,state=place",
            "--by-group",
            "--intents",
            "2",
            "--cut",
            "20",
            "--out",
            "fits/mix",
        )
        limiirl(tmp_path, "fit", "data/walks.csv", *FIT, *options)
        return tmp_path

    def report(self, project, n_figures):
        done = limiirl(project, "report", "fits/mix", "--out", "page")
        names = {path.stem for path in (project / "page" / "figures").iterdir()}
        assert {"rewards", "memberships"} <= names
        assert ("visits" in names) == (n_figures == "all")
        return done

    def test_the_page_is_that_of_the_fit_also_after_moving_the_project(self, project, tmp_path_factory):
        moved = tmp_path_factory.mktemp("moved") / "project"
        project.rename(moved)
        done = self.report(moved, "all")
        assert "--demos" not in done.stderr
        rewards = pd.read_csv(moved / "page" / "figures" / "rewards.csv")
        assert rewards["standard_error"].notna().any()
        recorded = IntentMixture.load(moved / "fits" / "mix").data_file_
        assert recorded["path"] == "../../data/walks.csv"

    def test_a_changed_or_missing_file_is_not_used(self, project):
        path = project / "data" / "walks.csv"
        with path.open("a") as file:
            file.write("\n")
        assert "walks.csv, which has changed" in self.report(project, "few").stderr
        path.unlink()
        assert "walks.csv, which does not exist" in self.report(project, "few").stderr

    def test_a_fit_in_python_records_no_file(self, project):
        mixture = IntentMixture.load(project / "fits" / "mix")
        demos, _ = walks(30, seed=3)
        mixture.fit(crossings(), demos).save(project / "fits" / "mix")
        assert IntentMixture.load(project / "fits" / "mix").data_file_ is None
        assert "was not fitted to a file" in self.report(project, "few").stderr


def test_select_predict_and_evaluate_write_pages(folder, fitted):
    limiirl(
        folder, "select", "walks.parquet", *FIT, "-k", "2", "--folds", "2", "--resamples", "0", "--report", "select"
    )
    assert (folder / "select" / "figures" / "criteria.csv").is_file()
    limiirl(folder, "predict", "mix", "others.parquet", "--report", "predict")
    assert len(pd.read_csv(folder / "predict" / "figures" / "memberships.csv")) == 20
    scores = json.loads(limiirl(folder, "evaluate", "mix", "others.parquet", "--report", "evaluate", "--json").stdout)
    per_step = f"{-scores['nll']['per_step']:.3f}".replace("-", "−")
    assert per_step in (folder / "evaluate" / "index.html").read_text()


def test_infer_writes_a_page(folder):
    limiirl(folder, "infer", "walks.parquet", *FIT, "-k", "3", "--out", "inferred", "--report", "infer")
    assert (folder / "infer" / "tables" / "posterior.csv").is_file()


@pytest.mark.parametrize("target", ["mix2", "mix2/page", "walks.parquet"])
def test_pages_are_refused_before_the_fit(folder, target):
    options = ("--intents", "2", "--out", "mix2", "--report", target, "--json")
    done = limiirl(folder, "fit", "walks.parquet", *FIT, *options, code=2)
    assert read_error(done.stderr, folder)[0] == "--report"
    assert not (folder / "mix2").exists()


def test_coordinates_need_every_state(folder, fitted):
    pd.read_csv(folder / "xy.csv").iloc[1:].to_csv(folder / "few.csv", index=False)
    done = limiirl(
        folder, "report", "mix", "--demos", "walks.parquet", "--coordinates", "few.csv", "--out", "no", "--json", code=2
    )
    assert read_error(done.stderr, folder)[1].endswith("few.csv")
    assert not (folder / "no").exists()


def test_options_of_mixtures_are_refused_for_runs(folder):
    done = limiirl(folder, "report", "nothing", "--demos", "walks.parquet", "--json", code=2)
    assert read_error(done.stderr, folder) == ("--demos", "walks.parquet")
