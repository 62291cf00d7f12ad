"""Fitted mixtures survive a round trip through files, bit for bit."""

import json

import numpy as np
import pytest

from limiirl import IntentMixture, MaxCausalEnt, SwitchingMixture
from limiirl.errors import InvalidFile, LimiirlWarning, NotFitted
from tests.helpers import raises
from tests.switching.test_estimator import MODEL, switch


def fit(switching, **options):
    mdp, demos, _ = switch(n_demos=3, length=50)
    X = np.random.default_rng(0).normal(size=(150, 2)) if switching == "covariates" else None
    options = {"random_state": 0, "n_init": 2} | options
    groups = np.array(["wet", "dry", "wet"])
    return SwitchingMixture(2, MODEL, switching, **options).fit(mdp, demos, groups, covariates=X), demos, X


@pytest.mark.parametrize("switching", ["homogeneous", "state", "covariates"])
def test_round_trip(tmp_path, switching):
    sw, demos, X = fit(switching)
    sw.save(tmp_path / "sw")
    loaded = SwitchingMixture.load(tmp_path / "sw")
    assert sorted(path.name for path in (tmp_path / "sw").iterdir()) == ["arrays.npz", "mdp.npz", "mixture.json"]
    for method in ("predict", "predict_proba", "filter_proba", "predictive_log_prob"):
        np.testing.assert_array_equal(getattr(loaded, method)(demos, X), getattr(sw, method)(demos, X))
    names = {name for name in vars(sw) if name.endswith("_")} - {"mdp_", "irl_", "logits_", "covariates_", "history_"}
    for name in names:
        np.testing.assert_array_equal(getattr(loaded, name), getattr(sw, name), err_msg=name)
    assert {name for name in vars(loaded) if name.endswith("_")} == {name for name in vars(sw) if name.endswith("_")}
    for one, other in zip(loaded.logits_, sw.logits_, strict=True):
        np.testing.assert_array_equal(one, other)
    assert [entry.objective for entry in loaded.history_] == [entry.objective for entry in sw.history_]
    assert loaded.get_params(deep=False).keys() == sw.get_params(deep=False).keys()
    assert (loaded.switching, loaded.irl.ridge, loaded.irl_.ridge_per) == (switching, 1e-4, "step")
    assert loaded.bic() == sw.bic()
    assert loaded.mdp_ == sw.mdp_
    text, expected = str(loaded.summary(demos, X, errors=False)), str(sw.summary(errors=False))
    assert text == expected
    if X is not None:
        np.testing.assert_array_equal(loaded.covariates_.scale, sw.covariates_.scale)


def test_saved_again_replaces_the_folder(tmp_path):
    one, two = (fit("homogeneous", n_init=1, random_state=seed)[0] for seed in (0, 1))
    one.save(tmp_path / "sw")
    two.save(tmp_path / "sw")
    np.testing.assert_array_equal(SwitchingMixture.load(tmp_path / "sw").thetas_, two.thetas_)
    assert [path.name for path in tmp_path.iterdir()] == ["sw"]


def test_init_by_a_mixture_is_replaced_with_a_warning(tmp_path):
    sw, demos, _ = fit("homogeneous")
    again = SwitchingMixture(2, MODEL, init=sw).fit(sw.mdp_, demos)
    with pytest.warns(LimiirlWarning):
        again.save(tmp_path / "sw")
    loaded = SwitchingMixture.load(tmp_path / "sw")
    assert loaded.init == "kmeans"
    np.testing.assert_array_equal(loaded.predict_proba(demos), again.predict_proba(demos))


def test_labels_as_init_are_saved(tmp_path):
    mdp, demos, intents = switch(n_demos=3, length=50)
    sw = SwitchingMixture(2, MODEL, init=intents.ravel()).fit(mdp, demos)
    sw.save(tmp_path / "sw")
    np.testing.assert_array_equal(SwitchingMixture.load(tmp_path / "sw").init, intents.ravel())


def test_unfitted_raises(tmp_path):
    with raises(NotFitted):
        SwitchingMixture().save(tmp_path / "sw")
    assert not list(tmp_path.iterdir())


class TestInvalidFolders:
    @pytest.fixture
    def folder(self, tmp_path):
        fit("state", n_init=1)[0].save(tmp_path / "sw")
        return tmp_path / "sw"

    def test_mixtures_of_the_other_class_are_refused(self, tmp_path, folder):
        mdp, demos, _ = switch(n_demos=3, length=30)
        mix = IntentMixture(1, MaxCausalEnt(ridge=0.01)).fit(mdp, demos)
        mix.save(tmp_path / "mix")
        with raises(InvalidFile, parameter="folder"):
            SwitchingMixture.load(tmp_path / "mix")
        with raises(InvalidFile, parameter="folder"):
            IntentMixture.load(folder)
        with raises(InvalidFile, parameter="folder"):
            mix.save(folder)
        with raises(InvalidFile, parameter="folder"):
            fit("state", n_init=1)[0].save(tmp_path / "mix")
        assert IntentMixture.load(tmp_path / "mix").n_iter_ == mix.n_iter_

    @pytest.mark.parametrize("name", ["arrays.npz", "mdp.npz", "mixture.json"])
    def test_missing_or_changed_files(self, folder, name):
        path = folder / name
        content = path.read_bytes()
        path.write_bytes(content[:-20])
        with raises(InvalidFile, parameter="folder"):
            SwitchingMixture.load(folder)
        path.unlink()
        with raises(InvalidFile, parameter="folder"):
            SwitchingMixture.load(folder)

    @pytest.mark.parametrize(
        "change",
        [
            {"results": {}},
            {"logits": []},
            {"logits": [[0.0], [0.0]]},
            {"restarts": [[1.0]]},
            {"parameters": {"n_intents": 2, "unknown": 1}},
            {"irl_": {"name": "Unknown", "parameters": {}, "fitted": {}}},
            {"version": 2},
            {"format": "other"},
        ],
        ids=lambda change: next(iter(change)),
    )
    def test_changed_headers(self, folder, change):
        path = folder / "mixture.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | change))
        with raises(InvalidFile, parameter="folder"):
            SwitchingMixture.load(folder)

    def test_folder_that_does_not_exist(self, tmp_path):
        with raises(InvalidFile, parameter="folder"):
            SwitchingMixture.load(tmp_path / "none")
