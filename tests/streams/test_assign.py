"""`assign`: posteriors of the rows of a store, in files."""

import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from limiirl import Demonstrations, IntentMixture, MaxEnt, RewardEnsemble
from limiirl.errors import InvalidDemos, InvalidFile, InvalidParameter
from limiirl.streams import assign, fit_streamed, write_features
from tests.helpers import raises
from tests.oracles.mixture import TASTES, crossings, walks
from tests.oracles.stores import mixture, quick_mixture

pytestmark = pytest.mark.filterwarnings("ignore::limiirl.errors.ConvergenceWarning")


def test_an_intent_of_weight_zero_is_never_assigned(tmp_path, small_store):
    fitted = fit_streamed(quick_mixture(), crossings(), small_store)
    fitted.weights_ = np.array([1.0, 0.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (path,) = assign(fitted, small_store, tmp_path / "out")
    table = pq.read_table(path)
    np.testing.assert_array_equal(table["probability_1"].to_numpy(), 0.0)
    assert np.all(np.isfinite(table["log_likelihood"].to_numpy()))


@pytest.fixture
def mix(walked):
    return IntentMixture(2, MaxEnt(bounds=(-5, 5)), init=RewardEnsemble([0.5, 0.5], TASTES), max_iter=0).fit(
        crossings(), walked
    )


def test_assignments_equal_the_predictions_of_the_mixture(tmp_path, walked, mix):
    named = Demonstrations(walked.states, walked.offsets, ids=[f"w{i}" for i in range(300)])
    store = write_features(crossings(), [named[:100], walked[100:]], tmp_path / "features")
    seen = []
    paths = assign(mix, store, tmp_path / "out", progress=lambda *report: seen.append(report))
    assert seen == [(100, 300, "shard 0"), (300, 300, "shard 1")]
    tables = [pq.read_table(path) for path in paths]
    assert tables[0].column_names == ["demo", "intent", "probability_0", "probability_1", "log_likelihood"]
    assert tables[0]["demo"].to_pylist() == [f"w{i}" for i in range(100)]
    assert tables[1]["demo"].to_pylist() == list(range(200))
    whole = pa.concat_tables([table.drop(["demo"]) for table in tables])
    np.testing.assert_array_equal(whole["intent"].to_numpy(), mix.predict(walked))
    np.testing.assert_allclose(whole["probability_1"].to_numpy(), mix.predict_proba(walked)[:, 1], rtol=1e-12)
    np.testing.assert_allclose(whole["log_likelihood"].to_numpy(), mix.score_samples(walked), rtol=1e-12)
    assert assign(mix, store, tmp_path / "out") == paths  # replaced
    (tmp_path / "out" / "shard-00002.parquet").write_bytes(b"")
    with raises(InvalidFile, parameter="folder", value=str(tmp_path / "out" / "shard-00002.parquet")):
        assign(mix, store, tmp_path / "out")


def test_assignments_of_groups_equal_the_predictions(tmp_path, walked, mix):
    named = walked.replace(groups=np.arange(300) // 10)
    store = write_features(crossings(), [named[:100], named[100:]], tmp_path / "features", by_group=True)
    tables = [pq.read_table(path) for path in assign(mix, store, tmp_path / "out")]
    groups = np.concatenate([table["group"].to_numpy() for table in tables])
    np.testing.assert_array_equal(groups, np.arange(30))
    result = np.concatenate([table["probability_0"].to_numpy() for table in tables])
    np.testing.assert_allclose(result, mix.predict_proba(named, named.groups)[::10, 0], rtol=1e-10)


def test_assign_rejects_another_mdp_and_longer_trajectories(tmp_path, walked, mix):
    short = IntentMixture(1, MaxEnt(), max_iter=0).fit(crossings(), walked[walked.lengths <= 4])
    store = write_features(crossings(), [walked], tmp_path / "features")
    with raises(InvalidDemos, parameter="max_length"):
        assign(short, store, tmp_path / "out")
    other = write_features(crossings().replace(gamma=0.9), [walked], tmp_path / "other")
    with raises(InvalidParameter, parameter="mdp"):
        assign(mix, other, tmp_path / "out")


def test_assign_ignores_temporary_files_and_rejects_other_files(tmp_path):
    demos, _ = walks(100, seed=2)
    store = write_features(crossings(), [demos], tmp_path / "features")
    fitted = fit_streamed(mixture(), crossings(), store)
    (tmp_path / "intents").mkdir()
    (tmp_path / "intents" / ".shard-00000.parquet.x1.tmp").write_text("half")
    assert [path.name for path in assign(fitted, store, tmp_path / "intents")] == ["shard-00000.parquet"]
    (tmp_path / "intents" / "notes.txt").write_text("mine")
    with raises(InvalidFile, parameter="folder", value=str(tmp_path / "intents" / "notes.txt")):
        assign(fitted, store, tmp_path / "intents")


def test_assign_replaces_only_its_own_files(tmp_path, few, small_store):
    fitted = fit_streamed(quick_mixture(), crossings(), small_store)
    folder = tmp_path / "demos"
    folder.mkdir()
    few.to_parquet(folder / "shard-00000.parquet")
    with raises(InvalidFile, value=str(folder / "shard-00000.parquet")):
        assign(fitted, small_store, folder)
    assert Demonstrations.from_parquet(folder / "shard-00000.parquet") == few
    for _ in range(2):
        (path,) = assign(fitted, small_store, tmp_path / "out")
    assert pq.read_table(path).num_rows == len(few)
