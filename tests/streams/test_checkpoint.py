"""Checkpoints: identity of the fit, and rejection of modified files."""

import numpy as np
import pytest

from limiirl import IntentMixture, MaxEnt, RewardEnsemble
from limiirl._io import read_archive, write_archive
from limiirl.errors import ConvergenceWarning, InvalidFile, InvalidParameter
from limiirl.streams import fit_streamed, write_features
from limiirl.streams.fit import FORMAT
from tests.helpers import raises
from tests.oracles.mixture import TASTES, crossings, walks

pytestmark = pytest.mark.filterwarnings("ignore::limiirl.errors.ConvergenceWarning")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    demos, _ = walks(300, seed=2)
    return write_features(crossings(), [demos[:100], demos[100:]], tmp_path_factory.mktemp("store") / "features")


def fitting(irl=None, **parameters):
    settings = {"init": RewardEnsemble([0.5, 0.5], TASTES / 2), "max_iter": 2, "resp_tol": 0.0, "random_state": 0}
    return IntentMixture(2, MaxEnt(bounds=(-5, 5)) if irl is None else irl, **settings | parameters)


MT19937 = np.random.MT19937


@pytest.mark.parametrize(
    "random",
    [np.random.default_rng, np.random.RandomState, lambda seed: np.random.Generator(MT19937(seed))],
    ids=["Generator", "RandomState", "MT19937"],
)
def test_a_generator_in_another_state_is_another_fit(tmp_path, store, random):
    path = tmp_path / "fit.npz"
    short = fit_streamed(fitting(init="random", random_state=random(0)), crossings(), store, checkpoint=path)
    with raises(InvalidParameter, parameter="checkpoint", value=str(path)):
        fit_streamed(fitting(init="random", random_state=random(1)), crossings(), store, checkpoint=path)
    again = fit_streamed(fitting(init="random", random_state=random(0)), crossings(), store, checkpoint=path)
    np.testing.assert_array_equal(again.thetas_, short.thetas_)


def test_device_and_memory_do_not_change_the_identity_of_a_fit(tmp_path, store):
    path = tmp_path / "fit.npz"
    fit_streamed(fitting(), crossings(), store, checkpoint=path)
    elsewhere = MaxEnt(bounds=(-5, 5), device="auto", max_memory=1e6)
    assert fit_streamed(fitting(elsewhere, max_iter=4), crossings(), store, checkpoint=path).n_iter_ == 4
    with raises(InvalidParameter, parameter="checkpoint", value=str(path)):
        fit_streamed(fitting(MaxEnt(bounds=(-5, 5), gtol=1e-3)), crossings(), store, checkpoint=path)


def test_a_fit_beyond_max_iter_is_returned_unchanged(tmp_path, store):
    path = tmp_path / "fit.npz"
    far = fit_streamed(fitting(max_iter=6), crossings(), store, checkpoint=path)
    with pytest.warns(ConvergenceWarning, match="EM did not converge in 6 iterations"):
        again = fit_streamed(fitting(max_iter=2), crossings(), store, checkpoint=path)
    assert (again.n_iter_, len(again.history_)) == (6, 7)
    np.testing.assert_array_equal(again.thetas_, far.thetas_)


def in_history(name, value):
    return lambda header, arrays: header["history"].update({name: value})


def in_header(name, value):
    return lambda header, arrays: header.update({name: value})


def without(name):
    return lambda header, arrays: arrays.pop(name)


def array(name, change):
    return lambda header, arrays: arrays.update({name: change(arrays[name])})


HEADER = ("log_likelihood", "change", "outside", "reseeds_left", "history")


ARRAYS = ("rho", "thetas", "log_Z", "log_rho", "inverse_temperature", "sizes", "features", "counts", "history.weights")


CHANGES = (
    {f"{name} {value!r}": in_header(name, value) for name in HEADER for value in (None, "x", [], {}, {"array": "z"})}
    | {f"{name} is absent": without(name) for name in ARRAYS}
    | {
        f"{name} is {word}": array(name, change)
        for name in ARRAYS
        for word, change in {
            "short": lambda values: values.ravel()[: max(1, values.size - 1)].reshape((-1, 1)),
            "nan": lambda values: values * np.nan,
            "text": lambda values: values.astype(str),
            "float32": lambda values: values.astype(np.float32),
        }.items()
    }
    | {
        "one log Z for two": array("log_Z", lambda values: values[:1]),
        "shares of one intent before": array("history.weights", lambda values: values[:, :1]),
        "negative shares": array("rho", np.negative),
        "negative counts": array("counts", np.negative),
        "no inverse_temperature": array("inverse_temperature", lambda values: values * 0.0),
        "reseeds -5": in_header("reseeds_left", -5),
        "nan": in_header("log_likelihood", {"float": "nan"}),
        "iterations from 1": in_history("iteration", [1, 2, 3]),
        "text for objectives": in_history("objective", ["a", "b", "c"]),
        "infinite temperature": in_history("temperature", [1.0, 1.0, {"float": "inf"}]),
        "numbers for events": in_history("event", [1, 2, 3]),
        "another column": in_history("colour", [1, 2, 3]),
    }
)


@pytest.fixture(scope="module")
def written(store, tmp_path_factory):
    path = tmp_path_factory.mktemp("checkpoint") / "fit.npz"
    fit_streamed(fitting(), crossings(), store, checkpoint=path)
    return path


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_modified_checkpoint_raises_invalid_file(tmp_path, store, written, change):
    header, arrays = read_archive(written, FORMAT)
    del header["format"], header["version"]
    change(header, arrays)
    path = tmp_path / "fit.npz"
    write_archive(path, FORMAT, header, arrays)
    with raises(InvalidFile, parameter="checkpoint", value=str(path)):
        fit_streamed(fitting(max_iter=4), crossings(), store, checkpoint=path)


def test_an_intact_checkpoint_resumes(tmp_path, store, written):
    header, arrays = read_archive(written, FORMAT)
    del header["format"], header["version"]
    write_archive(tmp_path / "fit.npz", FORMAT, header, arrays)
    again = fit_streamed(fitting(max_iter=4), crossings(), store, checkpoint=tmp_path / "fit.npz")
    np.testing.assert_array_equal(again.thetas_, fit_streamed(fitting(max_iter=4), crossings(), store).thetas_)
