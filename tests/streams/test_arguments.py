"""Arguments that streams cannot use: each is one error of ours that says which it is."""

import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from limiirl import BayesianIntentMixture, IntentMixture, MaxEnt, RewardEnsemble
from limiirl.errors import InvalidFile, InvalidParameter, MissingFile
from limiirl.kernels.e_step import Rows, Weighed
from limiirl.streams import Calls, FeatureStore, assign, fit_streamed, write_features
from limiirl.streams.passes import check_model, sweep
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
    ("arguments", "message"),
    [
        ((abs, 2.5), "n_parts must be a integer of at least 1; got 2.5"),
        ((abs, "2"), "n_parts must be a integer of at least 1; got '2'"),
        ((abs, 0), "n_parts must be a integer of at least 1; got 0"),
        ((3, 2), "function must be a function of a part's number; it is 3"),
        ((abs, 2, print), "mark must be a text, such as a date or str.seed.; it is <built-in function print>"),
        ((abs, 2, 3), "mark must be a text"),
    ],
    ids=str,
)
def test_calls(arguments, message):
    with pytest.raises(InvalidParameter, match=message):
        Calls(*arguments)


def test_files_that_are_none(tmp_path, walked):
    walked.to_parquet(tmp_path / "a.parquet")
    for name in ("b.parquet", "b.csv"):
        with pytest.raises(MissingFile, match=rf"There is no file .*{name} \(item 1\)"):
            write_features(crossings(), [tmp_path / "a.parquet", tmp_path / name], tmp_path / "out")
    with pytest.raises(InvalidParameter, match=r"\(item 0\) is a folder. Give a folder by itself"):
        write_features(crossings(), [tmp_path], tmp_path / "out")


@pytest.mark.parametrize("word", [b"weather", b"zulu"], ids=["a column", "a demonstration"])
def test_damaged_text_in_a_file(tmp_path, word):
    good = tmp_path / "good.parquet"
    columns = {"demo": ["zulu", "zulu"], "t": [0, 1], "state": [0, 1], "weather": ["fine", "fine"]}
    pq.write_table(pa.table(columns), good, store_schema=False, compression="none")
    assert write_features(crossings(), good, tmp_path / "good").n == 1
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.parquet").write_bytes(good.read_bytes().replace(word, b"\xa6" + word[1:]))
    with pytest.raises(InvalidFile, match=r"a.parquet is no parquet file, or damaged. Write or copy it again"):
        write_features(crossings(), tmp_path / "in", tmp_path / "out")


def test_folders_that_are_files(tmp_path, walked, store):
    (tmp_path / "file").write_text("mine")
    fitted = fit_streamed(mixture(), crossings(), store)
    for place in (tmp_path / "file", tmp_path / "file" / "within"):
        with pytest.raises(InvalidFile, match="cannot be a folder: that, or what it should lie in, is a file"):
            write_features(crossings(), [walked], place)
        with pytest.raises(InvalidFile, match="cannot be a folder"):
            assign(fitted, store, place)
    for job in (
        lambda: write_features(crossings(), [walked], 3),
        lambda: assign(fitted, store, 3),
        lambda: FeatureStore.open(3),
    ):
        with pytest.raises(InvalidParameter, match="folder must be a path; it is 3"):
            job()
    assert (tmp_path / "file").read_text() == "mine"


def test_a_store_may_be_given_by_its_folder(tmp_path, store):
    fitted = fit_streamed(mixture(), crossings(), store)
    by_name = fit_streamed(mixture(), crossings(), str(tmp_path / "features"))
    np.testing.assert_array_equal(by_name.thetas_, fitted.thetas_)
    assert len(assign(fitted, tmp_path / "features", tmp_path / "out")) == 1
    for job in (lambda: fit_streamed(mixture(), crossings(), None), lambda: assign(fitted, 3, tmp_path / "out")):
        with pytest.raises(InvalidParameter, match="store must be a FeatureStore, or the folder of one"):
            job()


def test_other_arguments(tmp_path, walked, store):
    fitted = fit_streamed(mixture(), crossings(), store)
    for job, message in (
        (lambda: fit_streamed(mixture(), None, store), "mdp must be an MDP; it is a NoneType"),
        (lambda: write_features(None, [walked], tmp_path / "a"), "mdp must be an MDP; it is a NoneType"),
        (lambda: fit_streamed(BayesianIntentMixture(2), crossings(), store), "it is a BayesianIntentMixture"),
        (
            lambda: assign(None, store, tmp_path / "a"),
            "mixture must be an IntentMixture for a stream; it is a NoneType",
        ),
        (lambda: fit_streamed(mixture(), crossings(), store, checkpoint=3), "checkpoint must be a path; it is 3"),
        (lambda: fit_streamed(mixture(), crossings(), store, progress=3), "progress must be a function"),
        (lambda: write_features(crossings(), [walked], tmp_path / "a", progress=3), "progress must be a function"),
        (lambda: assign(fitted, store, tmp_path / "a", progress=3), "progress must be a function"),
        (lambda: fit_streamed(mixture(), crossings(), store, sample=1), "sample=1 rows are too few .*at least 2"),
        (lambda: check_model("MaxEnt"), "irl must be a single-intent model .*; str has no fit"),
        (lambda: check_model(MaxEnt), "irl must be an instance of a model; MaxEnt is a class. Add parentheses"),
    ):
        with pytest.raises(InvalidParameter, match=message):
            job()
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
    ("made", "message"),
    [
        (Rows(np.ones((N, 2)), *GOOD[1:]), r"made features of the shape \(3, 2\); \(3, 3\) was announced"),
        (Rows(np.ones((N, 7)), *GOOD[1:]), r"made features of the shape \(3, 7\); \(3, 3\) was announced"),
        (Rows(np.ones(N), *GOOD[1:]), r"made features of the shape \(3,\); \(3, 3\) was announced"),
        (Rows(GOOD[0], np.zeros((N, 2)), GOOD[2]), r"made log_q of the shape \(3, 2\); \(3,\) was announced"),
        (Rows(*GOOD[:2], np.ones((N, 1))), r"made counts of the shape \(3, 1\); \(3,\) was announced"),
        (Rows(GOOD[0], 0.0, GOOD[2]), "made 3 rows of features, 1 of log q and 3 counts; 3 of each were announced"),
        (Rows([["a"] * 3] * N, *GOOD[1:]), "must return numbers .could not convert string"),
        (Rows([[1.0], [1.0, 2.0], [1.0]], *GOOD[1:]), "must return numbers"),
        (None, r"must return Rows\(features, log_q, counts\); it returned a NoneType"),
        (GOOD[0], r"must return Rows\(features, log_q, counts\); it returned a ndarray"),
        (GOOD[:2], r"must return Rows\(features, log_q, counts\); it returned a tuple"),
    ],
    ids=range(11),
)
def test_rows_that_were_not_announced(made, message):
    store = FeatureStore.generated(lambda i: made, [N], 3, longest=4)
    with pytest.raises(InvalidParameter, match=f"^part 0: the function {message}"):
        fit_streamed(mixture(), crossings(), store)
    with pytest.raises(InvalidParameter, match=f"^part 0: the function {message}"):
        sweep(store, Weighed(TASTES, np.zeros(2), np.log([0.5, 0.5])), None)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"sizes": ["a"]}, "part 0 has 'a'"),
        ({"sizes": [N, np.nan]}, "part 1 has nan"),
        ({"sizes": [np.inf]}, "part 0 has inf"),
        ({"sizes": [None]}, "part 0 has None"),
        ({"sizes": 3}, "sizes must be a list of numbers of rows; it is 3"),
        ({"longest": "5"}, "longest must be a integer of at least 1; got '5'"),
        ({"longest": 0}, "longest must be a integer of at least 1; got 0"),
        ({"n_features": 2.5}, "n_features must be a whole number"),
        ({"function": 3}, "function must be a function"),
        ({"mark": 3}, "mark must be a text"),
    ],
    ids=str,
)
def test_what_is_announced(changed, message):
    given = {"function": lambda i: Rows(*GOOD), "sizes": [N], "n_features": 3, "longest": 4} | changed
    with pytest.raises(InvalidParameter, match=message):
        FeatureStore.generated(**given)


def test_sizes_may_be_any_whole_numbers():
    for sizes in ((N, N), np.array([N, N]), [float(N), np.int32(N)]):
        assert FeatureStore.generated(lambda i: Rows(*GOOD), sizes, 3, longest=4).n == 2 * N


def test_a_benchmarks_folder_with_another_number_of_demonstrations_is_refused(tmp_path):
    from benchmarks.streaming import written

    assert written(40, tmp_path).n == 40
    assert written(40, tmp_path).n == 40
    with pytest.raises(InvalidFile, match="was made from part 0, which has changed since"):
        written(50, tmp_path)
