"""Arguments that streams cannot use: each is one error of ours that says which it is."""

import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from limiirl import BayesianIntentMixture, IntentMixture, MaxEnt, RewardEnsemble
from limiirl.errors import InvalidFile, InvalidParameter, MissingFile
from limiirl.kernels.e_step import MixtureParameters, Rows
from limiirl.streams import FeatureStore, FunctionSource, assign, fit_streamed, write_features
from limiirl.streams.passes import check_model, sweep
from tests.helpers import raises
from tests.oracles.mixture import TASTES, crossings, walks

pytestmark = pytest.mark.filterwarnings("ignore::limiirl.errors.ConvergenceWarning")


@pytest.fixture
def walked():
    return walks(100, seed=1)[0]


@pytest.fixture
def store(tmp_path, walked):
    return write_features(crossings(), [walked], tmp_path / "features")


def mixture(**parameters):
    settings = {"init": RewardEnsemble([0.5, 0.5], TASTES / 2), "max_iter": 1, "random_state": 0} | parameters
    return IntentMixture(2, MaxEnt(bounds=(-5, 5)), **settings)


@pytest.mark.parametrize(
    ("arguments", "parameter", "value"),
    [
        ((abs, 2.5), "n_parts", 2.5),
        ((abs, "2"), "n_parts", "2"),
        ((abs, 0), "n_parts", 0),
        ((3, 2), "function", 3),
        ((abs, 2, print), "mark", print),
        ((abs, 2, 3), "mark", 3),
    ],
    ids=str,
)
def test_sources_of_functions(arguments, parameter, value):
    with raises(InvalidParameter, parameter=parameter, value=value):
        FunctionSource(*arguments)


def test_files_that_are_none(tmp_path, walked):
    walked.to_parquet(tmp_path / "a.parquet")
    for name in ("b.parquet", "b.csv"):
        with raises(MissingFile, parameter="source", value=str(tmp_path / name), index=1):
            write_features(crossings(), [tmp_path / "a.parquet", tmp_path / name], tmp_path / "out")
    with raises(InvalidParameter, parameter="source", value=str(tmp_path), index=0):
        write_features(crossings(), [tmp_path], tmp_path / "out")


@pytest.mark.parametrize("word", [b"weather", b"zulu"], ids=["a column", "a demonstration"])
def test_damaged_text_in_a_file(tmp_path, word):
    good = tmp_path / "good.parquet"
    columns = {"demo": ["zulu", "zulu"], "t": [0, 1], "state": [0, 1], "weather": ["fine", "fine"]}
    pq.write_table(pa.table(columns), good, store_schema=False, compression="none")
    assert write_features(crossings(), good, tmp_path / "good").n == 1
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.parquet").write_bytes(good.read_bytes().replace(word, b"\xa6" + word[1:]))
    with raises(InvalidFile, parameter="source", value=str(tmp_path / "in" / "a.parquet")):
        write_features(crossings(), tmp_path / "in", tmp_path / "out")


def test_folders_that_are_files(tmp_path, walked, store):
    (tmp_path / "file").write_text("mine")
    fitted = fit_streamed(mixture(), crossings(), store)
    for place in (tmp_path / "file", tmp_path / "file" / "within"):
        with raises(InvalidFile, parameter="folder", value=str(place)):
            write_features(crossings(), [walked], place)
        with raises(InvalidFile, parameter="folder", value=str(place)):
            assign(fitted, store, place)
    for job in (
        lambda: write_features(crossings(), [walked], 3),
        lambda: assign(fitted, store, 3),
        lambda: FeatureStore.open(3),
    ):
        with raises(InvalidParameter, parameter="folder", value=3):
            job()
    assert (tmp_path / "file").read_text() == "mine"


def test_a_store_may_be_given_by_its_folder(tmp_path, store):
    fitted = fit_streamed(mixture(), crossings(), store)
    by_name = fit_streamed(mixture(), crossings(), str(tmp_path / "features"))
    np.testing.assert_array_equal(by_name.thetas_, fitted.thetas_)
    assert len(assign(fitted, tmp_path / "features", tmp_path / "out")) == 1
    with raises(InvalidParameter, parameter="store", value=None):
        fit_streamed(mixture(), crossings(), None)
    with raises(InvalidParameter, parameter="store", value=3):
        assign(fitted, 3, tmp_path / "out")


def test_other_arguments(tmp_path, walked, store):
    fitted, other = fit_streamed(mixture(), crossings(), store), BayesianIntentMixture(2)
    for job, parameter, value in (
        (lambda: fit_streamed(other, crossings(), store), "mixture", other),
        (lambda: assign(None, store, tmp_path / "a"), "mixture", None),
        (lambda: fit_streamed(mixture(), crossings(), store, checkpoint=3), "checkpoint", 3),
        (lambda: fit_streamed(mixture(), crossings(), store, progress=3), "progress", 3),
        (lambda: write_features(crossings(), [walked], tmp_path / "a", progress=3), "progress", 3),
        (lambda: assign(fitted, store, tmp_path / "a", progress=3), "progress", 3),
        (lambda: fit_streamed(mixture(), crossings(), store, sample=1), "sample", 1),
    ):
        with raises(InvalidParameter, parameter=parameter, value=value):
            job()
    for job in (
        lambda: fit_streamed(mixture(), None, store),
        lambda: write_features(None, [walked], tmp_path / "a"),
    ):
        with pytest.raises(InvalidParameter, match="mdp must"):
            job()
    for model in ("MaxEnt", MaxEnt):
        with pytest.raises(InvalidParameter, match="irl must"):
            check_model(model)
    assert not (tmp_path / "a").exists()


def test_an_intent_that_nobody_follows_is_assigned_to_nobody(tmp_path, store):
    fitted = fit_streamed(mixture(), crossings(), store)
    fitted.weights_ = np.array([1.0, 0.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (path,) = assign(fitted, store, tmp_path / "out")
    found = pq.read_table(path)
    np.testing.assert_array_equal(found["probability_1"].to_numpy(), 0.0)
    assert np.all(np.isfinite(found["log_likelihood"].to_numpy()))


N = 3
GOOD = (np.ones((N, 3)), np.zeros(N), np.ones(N))


@pytest.mark.parametrize(
    ("made", "value"),
    [
        (Rows(np.ones((N, 2)), *GOOD[1:]), (3, 2)),
        (Rows(np.ones((N, 7)), *GOOD[1:]), (3, 7)),
        (Rows(np.ones(N), *GOOD[1:]), (3,)),
        (Rows(GOOD[0], np.zeros((N, 2)), GOOD[2]), (3, 2)),
        (Rows(*GOOD[:2], np.ones((N, 1))), (3, 1)),
        (Rows(GOOD[0], 0.0, GOOD[2]), ()),
        (Rows(np.ones((2, 3)), np.zeros(2), np.ones(2)), (2, 3)),
        (Rows([["a"] * 3] * N, *GOOD[1:]), None),
        (Rows([[1.0], [1.0, 2.0], [1.0]], *GOOD[1:]), None),
        (None, None),
        (GOOD[0], None),
        (GOOD[:2], None),
    ],
    ids=range(12),
)
def test_rows_that_were_not_announced(made, value):
    """A wrong shape is the error's value, other objects are themselves."""
    store = FeatureStore.generated(lambda i: made, [N], 3, longest=4)
    for job in (
        lambda: fit_streamed(mixture(), crossings(), store),
        lambda: sweep(store, MixtureParameters(TASTES, np.zeros(2), np.log([0.5, 0.5])), None),
    ):
        with raises(InvalidParameter, parameter="function", index=0) as caught:
            job()
        assert caught.value.value is made if value is None else caught.value.value == value


@pytest.mark.parametrize(
    ("changed", "value", "index"),
    [
        ({"sizes": ["a"]}, "a", 0),
        ({"sizes": [N, -1.5]}, -1.5, 1),
        ({"sizes": [np.inf]}, np.inf, 0),
        ({"sizes": [None]}, None, 0),
        ({"sizes": [4, 0]}, 0, 1),
        ({"sizes": [2.5]}, 2.5, 0),
        ({"sizes": []}, [], None),
        ({"sizes": 3}, 3, None),
        ({"longest": "5"}, "5", None),
        ({"longest": 0}, 0, None),
        ({"n_features": 2.5}, 2.5, None),
        ({"function": 3}, 3, None),
        ({"mark": 3}, 3, None),
    ],
    ids=str,
)
def test_what_is_announced(changed, value, index):
    given = {"function": lambda i: Rows(*GOOD), "sizes": [N], "n_features": 3, "longest": 4} | changed
    with raises(InvalidParameter, parameter=next(iter(changed)), value=value, index=index):
        FeatureStore.generated(**given)


def test_sizes_that_are_not_numbers():
    with raises(InvalidParameter, parameter="sizes", index=1):
        FeatureStore.generated(lambda i: Rows(*GOOD), [N, np.nan], 3, longest=4)


def test_sizes_may_be_any_whole_numbers():
    for sizes in ((N, N), np.array([N, N]), [float(N), np.int32(N)]):
        assert FeatureStore.generated(lambda i: Rows(*GOOD), sizes, 3, longest=4).n == 2 * N


def test_a_benchmarks_folder_with_another_number_of_demonstrations_is_refused(tmp_path):
    from benchmarks.streaming import written

    assert written(40, tmp_path).n == 40
    assert written(40, tmp_path).n == 40
    with raises(InvalidFile, parameter="folder"):
        written(50, tmp_path)
