"""Saved mixtures are restored bit for bit, and foreign or corrupted folders raise."""

import contextlib
import copy
import json
import pickle
import shutil
import stat
import warnings
from dataclasses import fields

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.cluster import KMeans

import limiirl
from limiirl import MDP, Demonstrations, IntentMixture, MaxEnt, RewardEnsemble, select_intents
from limiirl.errors import InvalidFile, InvalidParameter, LimiirlError, LimiirlWarning, NotFitted
from limiirl.executors import Executor
from limiirl.irl import MODELS
from limiirl.mixture import io
from tests.gpu.emulator import compiler, install_emulator
from tests.helpers import raises

PHI = np.array([[0, 0], [1, 0], [0, 1], [0.25, 0.1]])
STATES = [[0, 1, 3]] * 5 + [[0, 2, 3]] * 3 + [[0, 1], [0, 2]]
GROUPS = ["ann"] * 5 + ["bob"] * 3 + ["ann", "cyd"]


def problem():
    mdp = MDP.from_edges([0, 0, 1, 2], [1, 2, 3, 3], p0=[1, 0, 0, 0], gamma=1 / 1.1, state_features=PHI)
    return mdp, Demonstrations.from_lists(STATES)


def mixture(groups=None, **parameters):
    mdp, demos = problem()
    settings = {"n_intents": 2, "max_iter": 10, "irl": MaxEnt(bounds=(-5, 5)), "random_state": 0} | parameters
    with warnings.catch_warnings():
        # What EM thinks of ten demonstrations is tested elsewhere.
        warnings.simplefilter("ignore", LimiirlWarning)
        return IntentMixture(**settings).fit(mdp, demos, groups)


@pytest.fixture(scope="module")
def fitted():
    return mixture(n_init=3, resp_tol=1e-4)


@pytest.fixture
def saved(fitted, tmp_path):
    fitted.save(tmp_path / "mix")
    return tmp_path / "mix"


def same(one, other):
    """Equal by type and content; floats bit for bit, nan included."""
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and (one.dtype, one.shape, one.tobytes()) == (
            other.dtype,
            other.shape,
            other.tobytes(),
        )
    if isinstance(one, list | tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float):
        return isinstance(other, float) and np.float64(one).tobytes() == np.float64(other).tobytes()
    if isinstance(one, RewardEnsemble):
        return same(one.weights, other.weights) and same(one.thetas, other.thetas)
    if hasattr(one, "__dataclass_fields__") and not isinstance(one, MDP):
        return all(same(getattr(one, field.name), getattr(other, field.name)) for field in fields(one))
    return one == other


@pytest.mark.parametrize("groups", [None, GROUPS, np.arange(10) // 3])
def test_all_attributes_are_restored(tmp_path, groups):
    mix = mixture(groups, n_init=2)
    mix.save(tmp_path / "mix")
    back = IntentMixture.load(tmp_path / "mix")
    kept = {name for name in vars(mix) if name.endswith("_")}
    assert {name for name in vars(back) if name.endswith("_")} == kept
    for name in kept - {"irl_"}:
        assert same(getattr(mix, name), getattr(back, name)), name
    assert back.irl_.get_params() == mix.irl_.get_params()
    assert back.irl_.max_length == mix.irl_.max_length == 3
    assert back.irl.get_params() == mix.irl.get_params()
    assert {**back.get_params(), "irl": 0} == {**mix.get_params(), "irl": 0}
    assert not hasattr(back, "_problem")


def test_predictions_are_bit_for_bit_the_same(fitted, saved):
    _, demos = problem()
    back = IntentMixture.load(saved)
    assert fitted.predict_proba(demos).tobytes() == back.predict_proba(demos).tobytes()
    assert fitted.score_samples(demos).tobytes() == back.score_samples(demos).tobytes()
    assert fitted.predict_proba(demos, GROUPS).tobytes() == back.predict_proba(demos, GROUPS).tobytes()
    assert same(fitted.ensemble_, back.ensemble_)


def test_a_loaded_mixture_can_be_saved_and_fitted(saved, fitted, tmp_path):
    back = IntentMixture.load(saved)
    back.save(tmp_path / "copy")
    assert same(IntentMixture.load(tmp_path / "copy").thetas_, fitted.thetas_)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LimiirlWarning)
        assert same(back.fit(*problem()).thetas_, fitted.thetas_)


LABELS = np.array([0] * 5 + [1] * 3 + [0, 1], dtype=np.int8)
EMBEDDING = np.column_stack([LABELS * 0.1, np.arange(10.0)])


@pytest.mark.parametrize(
    "parameters",
    [
        {"init": LABELS},
        {"init": LABELS.tolist()},
        {"init": np.array(["left", "right"])[LABELS]},
        {"init": np.eye(2)[LABELS]},
        {"init": RewardEnsemble([0.4, 0.6], [[1.0, 0.1], [0.0, 1 / 3]])},
        {"embedding": EMBEDDING},
        {"irl": MaxEnt(bounds=np.array([[-5.0, 5.0], [-1 / 3, 4.0]]))},
        {"irl": MaxEnt(bounds=[[-5.0, 5.0], [-1 / 3, 4.0]], max_length=7)},
        {"irl": MaxEnt(max_length=np.int64(4), bounds=(-3, np.inf), ridge=0.1)},
        {"irl": None},
        {"likelihood_tol": 1e-3, "annealing": (3.0, 4), "degenerate": "reseed", "max_iter": 30, "random_state": None},
    ],
    ids=lambda parameters: ",".join(parameters),
)
def test_parameters_are_restored(tmp_path, parameters):
    mix = mixture(**parameters)
    mix.save(tmp_path / "mix")
    back = IntentMixture.load(tmp_path / "mix")
    for name in parameters:
        before, after = getattr(mix, name), getattr(back, name)
        if isinstance(before, MaxEnt):
            assert all(map(same, before.get_params().values(), after.get_params().values()))
        else:
            assert same(before, after)
    assert json.loads((tmp_path / "mix" / "mixture.json").read_text())["replaced"] == {}


def by_first(points, n_intents, rng):
    return (points[:, 0] > np.median(points[:, 0])).astype(int)


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("init", by_first, "function"),
        ("init", KMeans(n_init=2), "KMeans"),
        ("reward_init", lambda problem, U: np.array([[1.0, 0.0], [0.0, 1.0]]), "function"),
        ("embedding", lambda mdp, demos: EMBEDDING, "function"),
        ("random_state", np.random.default_rng(1), "Generator"),
        ("progress", lambda *report: None, "function"),
    ],
)
def test_parameters_that_cannot_be_serialised_are_replaced(tmp_path, name, value, kind):
    mix = mixture(**{name: value})
    expected = pytest.warns(LimiirlWarning, match=f"{name} cannot be serialised")
    with expected if name in ("init", "reward_init", "embedding") else contextlib.nullcontext():
        mix.save(tmp_path / "mix")
    back = IntentMixture.load(tmp_path / "mix")
    wanted = mix.ensemble_ if name == "init" else IntentMixture().get_params()[name]
    assert same(getattr(back, name), wanted)
    assert json.loads((tmp_path / "mix" / "mixture.json").read_text())["replaced"] == {name: kind}
    assert same(back.thetas_, mix.thetas_)


class Remembering(BaseEstimator):
    """A model whose fit settles a number, an array and something that no file holds."""

    def __init__(self, scale=1.0):
        self.scale = scale

    def fit(self, mdp, demos, weights=None, start=None):
        self.shift_, self.table_, self.report_ = 1 / 3, np.arange(3.0) / 7, object()
        weights = np.ones(len(demos)) if weights is None else weights
        return weights @ demos.features(mdp) / weights.sum()

    def log_prob(self, mdp, thetas, demos):
        away = demos.features(mdp)[:, None] - np.asarray(thetas)
        return -self.scale * np.sum(away**2, axis=2) - self.shift_ * self.table_.sum()


def test_a_registered_model_stores_fitted_attributes(tmp_path, monkeypatch):
    monkeypatch.setitem(MODELS, "Remembering", Remembering)
    mix = mixture(irl=Remembering(scale=3.0))
    mix.save(tmp_path / "mix")
    back = IntentMixture.load(tmp_path / "mix")
    assert (back.irl_.shift_, back.irl_.scale, hasattr(back.irl_, "report_")) == (1 / 3, 3.0, False)
    assert same(back.irl_.table_, mix.irl_.table_)
    assert same(back.predict_proba(problem()[1]), mix.predict_proba(problem()[1]))


def test_an_unregistered_model_raises(tmp_path, monkeypatch):
    mix = mixture(irl=Remembering())
    with raises(InvalidParameter, parameter="irl", value="Remembering"):
        mix.save(tmp_path / "mix")
    monkeypatch.setitem(MODELS, "Remembering", Remembering)
    mix.save(tmp_path / "mix")
    monkeypatch.delitem(MODELS, "Remembering")
    with raises(InvalidFile, parameter="folder"):
        IntentMixture.load(tmp_path / "mix")


def test_a_function_as_model_parameter_raises(tmp_path, monkeypatch):
    monkeypatch.setitem(MODELS, "Remembering", Remembering)
    mix = mixture(irl=Remembering())
    mix.irl_.set_params(scale=abs)
    with raises(InvalidParameter, parameter="scale"):
        mix.save(tmp_path / "mix")
    assert not (tmp_path / "mix").exists()


def test_a_model_free_mixture_has_no_mdp_file(tmp_path, fitted):
    mix = mixture()
    mix.mdp_ = None
    mix.save(tmp_path / "mix")
    assert sorted(path.name for path in (tmp_path / "mix").iterdir()) == ["arrays.npz", "mixture.json"]
    assert IntentMixture.load(tmp_path / "mix").mdp_ is None
    mix.mdp_ = "a simulator"
    with raises(InvalidParameter, parameter="mdp", value="str"):
        mix.save(tmp_path / "mix")


def test_the_folder_contains_json_and_npz(saved):
    assert sorted(path.name for path in saved.iterdir()) == ["arrays.npz", "mdp.npz", "mixture.json"]
    header = json.loads((saved / "mixture.json").read_text(), parse_constant=lambda name: pytest.fail(name))
    assert (header["format"], header["version"]) == ("limiirl.mixture", 1)
    assert header["limiirl"] == limiirl.__version__
    assert header["irl_"]["name"] == "MaxEnt"
    with np.load(saved / "arrays.npz", allow_pickle=False) as arrays:
        assert all(arrays[name].dtype != object for name in arrays.files)
    assert MDP.load(saved / "mdp.npz") == problem()[0]


def test_an_older_mixture_is_replaced_without_temporary_files(saved, tmp_path):
    other = mixture(random_state=3, n_intents=3, irl=MaxEnt(bounds=(-2, 2)))
    other.save(str(saved))
    assert IntentMixture.load(saved).n_intents == 3
    assert [path.name for path in tmp_path.iterdir()] == ["mix"]


def test_folders_are_created_with_ordinary_permissions(fitted, tmp_path):
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "empty").mkdir()
    for folder in (tmp_path / "new" / "deeper" / "mix", tmp_path / "made" / "empty"):
        fitted.save(folder)
        assert stat.S_IMODE(folder.stat().st_mode) == stat.S_IMODE((tmp_path / "made").stat().st_mode)
        assert IntentMixture.load(folder).converged_ == fitted.converged_


def test_an_interrupted_save_leaves_the_older_mixture(saved, tmp_path, monkeypatch):
    before = {path.name: path.read_bytes() for path in saved.iterdir()}

    def fail(*arguments):
        raise KeyboardInterrupt

    for broken in ("_sha256", "_put"):
        with monkeypatch.context() as patch:
            patch.setattr(io, broken, fail)
            with pytest.raises(KeyboardInterrupt):
                mixture(random_state=3).save(saved)
        assert {path.name: path.read_bytes() for path in saved.iterdir()} == before
        assert [path.name for path in tmp_path.iterdir()] == ["mix"]


def test_the_older_mixture_is_restored_if_the_rename_fails(saved, tmp_path):
    with pytest.raises(FileNotFoundError):
        io._put(tmp_path / "nothing", saved)
    assert IntentMixture.load(saved).n_intents == 2
    assert [path.name for path in tmp_path.iterdir()] == ["mix"]


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ({"thesis.tex": "words"}, "(it has thesis.tex), so it is not overwritten. Give another folder, or remove"),
        ({"mixture.json": '{"format": "limiirl.mixture"}', "notes": ""}, "(it has notes), so it is not overwritten"),
        ({"mixture.json": '{"format": "recipe"}'}, "(it has other files), so it is not overwritten"),
        ({"mixture.json": "{"}, "(it has other files), so it is not overwritten"),
        ({"mdp.npz": ""}, "(it has other files), so it is not overwritten"),
    ],
)
def test_a_foreign_folder_is_not_overwritten(fitted, tmp_path, made, message):
    for name, text in made.items():
        (tmp_path / name).write_text(text)
    with raises(InvalidFile, parameter="folder"):
        fitted.save(tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == made


def test_saving_to_a_file_raises(fitted, tmp_path):
    (tmp_path / "mix").write_text("words")
    with raises(InvalidFile, parameter="folder"):
        fitted.save(tmp_path / "mix")
    with raises(InvalidFile, parameter="folder"):
        IntentMixture.load(tmp_path / "mix")


def test_an_unfitted_mixture_is_not_saved(tmp_path):
    with pytest.raises(NotFitted, match="Call fit"):
        IntentMixture().save(tmp_path / "mix")
    assert not (tmp_path / "mix").exists()


def test_a_missing_folder_or_file_is_named(saved, tmp_path):
    with raises(InvalidFile, parameter="folder"):
        IntentMixture.load(tmp_path / "nowhere")
    for name in ("arrays.npz", "mdp.npz"):
        copy = tmp_path / name.removesuffix(".npz")
        shutil.copytree(saved, copy)
        (copy / name).unlink()
        with raises(InvalidFile, parameter="folder", value=name):
            IntentMixture.load(copy)
    (saved / "mixture.json").unlink()
    with raises(InvalidFile, parameter="folder"):
        IntentMixture.load(saved)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
@pytest.mark.parametrize("name", ["mixture.json", "arrays.npz", "mdp.npz"])
def test_truncated_files_raise(saved, name, share):
    whole = (saved / name).read_bytes()
    (saved / name).write_bytes(whole[: int(share * len(whole))])
    with raises(InvalidFile, parameter="folder", value=saved if name == "mixture.json" else name):
        IntentMixture.load(saved)


@pytest.mark.parametrize("name", ["arrays.npz", "mdp.npz"])
def test_files_of_another_mixture_raise(saved, tmp_path, name):
    other = mixture(irl=MaxEnt(bounds=(-1, 1)))
    other.mdp_ = other.mdp_.replace(gamma=0.5)
    other.save(tmp_path / "other")
    shutil.copy(tmp_path / "other" / name, saved / name)
    with raises(InvalidFile, parameter="folder", value=name):
        IntentMixture.load(saved)


def rewrite(folder, **changes):
    path = folder / "mixture.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "limiirl.mdp"}, "not a limiirl mixture"),
        ({"version": "1"}, "not a limiirl mixture"),
        ({"version": 2, "limiirl": "9.1"}, "version 2, .* 9.1"),
        ({"files": {}}, "files"),
        ({"files": {"arrays.npz": "", "../secret": ""}}, "files"),
        ({"results": {}}, "'weights_'"),
        ({"parameters": {"n_clusters": 3}}, "n_clusters"),
        ({"irl_": {"name": "MaxEnt", "parameters": {"depth": 1}, "fitted": {}}}, "depth"),
        ({"irl": {}}, "corrupted"),
        ({"data_file": [1]}, "data_file"),
        ({"data_file": {"path": "a.csv", "sha256": 3, "columns": None, "cut": None, "by_group": False}}, "data_file"),
        ({"history": {"weights": {"ndarray": "x"}}}, "'ndarray'"),
        ({"history": {"weights": {"array": "x", "float": "1"}}}, "corrupted"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_foreign_newer_and_corrupted_json_raises(saved, changes, message):
    rewrite(saved, **changes)
    with pytest.raises(InvalidFile, match=message) as caught:
        IntentMixture.load(saved)
    assert caught.value.parameter == "folder"


@pytest.mark.parametrize("text", ["[]", "3", "null", '"limiirl.mixture"', "\xff"])
def test_json_of_another_structure_raises(saved, text):
    (saved / "mixture.json").write_text(text, encoding="latin-1")
    with raises(InvalidFile, parameter="folder"):
        IntentMixture.load(saved)


@pytest.mark.parametrize("groups", [None, GROUPS])
def test_a_pickle_contains_the_data_without_derived_values(groups):
    mix = mixture(groups)
    packed = pickle.dumps(mix)
    again = pickle.loads(packed)
    for name in io._RESULTS:
        assert same(getattr(mix, name), getattr(again, name)), name
    assert same(mix.standard_errors().thetas, again.standard_errors().thetas)
    assert again._problem.path_sums is not mix._problem.path_sums
    assert copy.copy(mix)._problem is mix._problem
    assert same(copy.deepcopy(mix).standard_errors().weights, mix.standard_errors().weights)
    _, demos = problem()
    assert same(again.predict_proba(demos, groups), mix.predict_proba(demos, groups))
    large = len(pickle.dumps(mixture(irl=MaxEnt(1000, bounds=(-5, 5)))))
    assert large < 2 * len(packed), "the messages of a thousand steps were written"


@pytest.mark.slow
def test_an_unfitted_mixture_is_pickled_with_its_device(monkeypatch):
    monkeypatch.setenv("LIMIIRL_GPU", "off")
    sent = IntentMixture(2, MaxEnt(bounds=(-5, 5), device="gpu"))
    assert pickle.loads(pickle.dumps(sent)).irl.device == "gpu"
    mdp, demos = problem()
    with (
        Executor(workers=1).session() as session,
        raises(LimiirlError, parameter="n_intents"),
    ):
        select_intents(mdp, demos, [1, 2], mixture=sent, folds=0, resamples=0, executor=session)


def test_mixtures_fitted_on_a_gpu_load_without_one(tmp_path, monkeypatch):
    if compiler() is None:
        pytest.skip("no C++ compiler to emulate a GPU")
    install_emulator(monkeypatch)
    mix = mixture(irl=MaxEnt(bounds=(-5, 5), device="gpu"))
    packed = pickle.dumps(mix)
    mix.save(tmp_path / "mix")
    again = copy.deepcopy(mix)
    assert (again.irl_.device, again._problem is mix._problem) == ("gpu", False)
    mix.__dict__.pop("_problem")  # as a stream leaves it
    assert pickle.loads(pickle.dumps(mix)).irl_.device == "auto"
    monkeypatch.setenv("LIMIIRL_GPU", "off")
    _, demos = problem()
    for result in (pickle.loads(packed), IntentMixture.load(tmp_path / "mix")):
        assert (result.irl.device, result.irl_.device) == ("auto", "auto")
        np.testing.assert_allclose(result.score_samples(demos), mixture().score_samples(demos), rtol=1e-9)


def places(value, path=()):
    """Paths of the entries of nested JSON; only the first entry of a list."""
    for key in value if isinstance(value, dict) else range(min(1, len(value))) if isinstance(value, list) else ():
        yield (*path, key)
        yield from places(value[key], (*path, key))


ODD = [None, -1, [], {}, "x", True, 1e308, [[1]], {"array": "nope"}, {"float": "x"}, {"tuple": 3}, {"ensemble": [1]}]


def test_any_change_of_the_json_is_read_or_reported(saved):
    header = saved / "mixture.json"
    content = json.loads(header.read_text())
    for number, path in enumerate(places(content)):
        for odd in (ODD[number % len(ODD)], ODD[(7 * number + 3) % len(ODD)]):
            changed = copy.deepcopy(content)
            inner = changed
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = odd
            header.write_text(json.dumps(changed))
            with contextlib.suppress(LimiirlError):
                IntentMixture.load(saved)
    header.write_text("[" * 100_000)
    with raises(InvalidFile, parameter="folder"):
        IntentMixture.load(saved)


def test_loops_of_links_and_invalid_paths_raise(fitted, tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    for folder in (tmp_path / "loop", tmp_path / "loop" / "x"):
        for call in (fitted.save, IntentMixture.load):
            with raises(InvalidFile, parameter="folder", value=str(folder)):
                call(folder)
    for call in (fitted.save, IntentMixture.load):
        with pytest.raises(OSError, match="too long"):
            call(tmp_path / ("x" * 300))
    for folder in (None, 3, "a\0b"):
        with raises(InvalidParameter, parameter="folder", value=folder):
            fitted.save(folder)
        with raises(InvalidParameter, parameter="folder", value=folder):
            IntentMixture.load(folder)
