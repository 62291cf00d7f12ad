"""Passes over a store on random rows and partitions: agreement with an oracle, and bit-reproducibility."""

import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from limiirl import Demonstrations, IntentMixture, MaxEnt, RewardEnsemble
from limiirl._parallel import BLOCK
from limiirl.errors import InvalidDemos, InvalidFile, InvalidParameter
from limiirl.executors import Executor
from limiirl.kernels.e_step import MixtureParameters, Rows, e_step, e_step_streamed, sum_weighted
from limiirl.streams import FeatureStore, assign, fit_streamed, write_features
from limiirl.streams.passes import SumTask, combine, sum_shard, sum_store
from limiirl.streams.store import GeneratedShard, ShardInfo, StoredShard
from tests.helpers import examples, raises
from tests.oracles.mixture import TASTES, crossings, responsibilities, walks
from tests.oracles.stores import mixture, quick_mixture


@pytest.mark.slow
def test_worker_processes_change_no_bit(tmp_path):
    demos, _ = walks(5000, seed=8)
    shards = [demos[:120], demos[120:4500], demos[4500:]]
    alone = write_features(crossings(), shards, tmp_path / "alone")
    store = write_features(crossings(), shards, tmp_path / "workers", executor=Executor(workers=2))
    assert [shard.fingerprint for shard in store.shards] == [shard.fingerprint for shard in alone.shards]
    now, before = (MixtureParameters(TASTES * scale, np.array([1.0, 2.0]), np.log([0.3, 0.7])) for scale in (1.0, 0.5))
    seen = []
    there = sum_store(store, now, before, executor=Executor(workers=2), progress=lambda *report: seen.append(report))
    here = sum_store(alone, now, before, window=2048)
    assert seen == [(120, 5000, "shard 0"), (4500, 5000, "shard 1"), (5000, 5000, "shard 2")]
    for one, other in zip(here, there, strict=True):
        np.testing.assert_array_equal(one, other)


def table(n: int, d: int, seed: int) -> Rows:
    rng = np.random.default_rng(seed)
    return Rows(rng.normal(size=(n, d)), rng.normal(size=n), rng.integers(1, 5, size=n).astype(float))


def ensemble(K: int, d: int, seed: int, inverse_temperature: float = 1.0) -> MixtureParameters:
    rng = np.random.default_rng(seed)
    return MixtureParameters(
        rng.normal(size=(K, d)), rng.normal(size=K), np.log(rng.dirichlet(np.ones(K))), inverse_temperature
    )


def some(rows: Rows, lo: int, hi: int) -> Rows:
    return Rows(*(np.ascontiguousarray(array[lo:hi]) for array in rows))


def in_shards(rows: Rows, ends: list[int]) -> FeatureStore:
    edges = [0, *ends, len(rows.log_q)]

    def make(i: int) -> Rows:
        return some(rows, edges[i], edges[i + 1])

    infos = [ShardInfo(n, n, 9, 0, None, 0) for n in np.diff(edges).tolist()]
    shards = tuple(GeneratedShard(i, make, infos[i], rows.features.shape[1], by_group=True) for i in range(len(infos)))
    return FeatureStore(shards, rows.features.shape[1])


sizes = st.integers(1, 5), st.integers(1, 6), st.integers(0, 2**32 - 1)


@given(st.integers(1, 40), *sizes, st.sampled_from([1.0, 0.3]))
def test_a_pass_agrees_with_a_table_of_log_probabilities(n, K, d, seed, inverse_temperature):
    rows, now, before = table(n, d, seed), ensemble(K, d, seed, inverse_temperature), ensemble(K, d, seed + 1)
    tables = [rows.features @ e.thetas.T + rows.log_q[:, None] - np.outer(rows.counts, e.log_Z) for e in (now, before)]
    _, log_lik = responsibilities(tables[0], np.exp(now.log_rho))
    U, _ = responsibilities(inverse_temperature * (tables[0] + now.log_rho), np.ones(K))
    V, _ = responsibilities(tables[1], np.exp(before.log_rho))
    sums = sum_shard(SumTask(in_shards(rows, []).shards[0], now, before))
    np.testing.assert_allclose(sums.log_likelihood, log_lik.sum(), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(sums.change, np.abs(U - V).sum(), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(sums.sizes, U.sum(axis=0), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(sums.counts, rows.counts @ U, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(sums.features, U.T @ rows.features, rtol=1e-9, atol=1e-9)


@settings(max_examples=examples(20))
@given(st.integers(1, 3 * BLOCK), *sizes)
@example(BLOCK, 2, 3, 0)
@example(2 * BLOCK + 1, 3, 2, 1)
def test_discarding_responsibilities_changes_no_bit(n, K, d, seed):
    rows, now, before = table(n, d, seed), ensemble(K, d, seed), ensemble(K, d, seed + 1, 0.5)
    U = np.zeros((n, K))
    e_step(rows, *before[:3], U, before.inverse_temperature)
    kept = e_step(rows, *now[:3], U, now.inverse_temperature)
    forgot = e_step_streamed(rows, now, before)
    for one, other in zip(kept, forgot.total(), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(forgot.counts.sum(axis=0), sum_weighted(rows.counts[:, None], U)[:, 0])


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A shard on disk of several blocks, with its rows."""
    rows = table(5 * BLOCK + 77, 4, 3)
    path = tmp_path_factory.mktemp("store") / "shard-00000.json"
    provenance = {"source": "rows", "source_checksum": "", "mdp": "", "by_group": False}
    StoredShard.write(path, rows, None, ShardInfo(len(rows.log_q), len(rows.log_q), 9, 0, None, 0), provenance)
    return StoredShard.open(path), rows


@settings(max_examples=examples(15))
@given(st.integers(1, 8), st.integers(0, 1000))
def test_the_window_size_changes_no_bit(stored, windows, seed):
    shard, rows = stored
    now, before = ensemble(3, 4, seed), ensemble(3, 4, seed + 1)
    sums = sum_shard(SumTask(shard, now, before, windows * BLOCK))
    whole = sum_shard(SumTask(in_shards(rows, []).shards[0], now, before))
    for one, other in zip(sums, whole, strict=True):
        np.testing.assert_array_equal(one, other)


@settings(max_examples=examples(30))
@given(st.lists(st.integers(1, 2999), max_size=12, unique=True), st.integers(0, 1000))
def test_sharding_changes_only_rounding_and_order_changes_nothing(ends, seed):
    rows = table(3000, 3, seed)
    now, before = ensemble(2, 3, seed), ensemble(2, 3, seed + 1)
    store, whole = in_shards(rows, sorted(ends)), in_shards(rows, [])
    result, one = sum_store(store, now, before), sum_store(whole, now, before)
    for name, value in one._asdict().items():
        # Terms of either sign: relative to the sum of absolute values.
        scale = np.abs(rows.features).sum() if name == "features" else 3000.0 * 10
        np.testing.assert_allclose(getattr(result, name), value, rtol=1e-13, atol=1e-15 * scale)
    sums = [sum_shard(SumTask(shard, now, before)) for shard in store.shards]
    for forwards, backwards in zip(combine(sums), combine(reversed(sums)), strict=True):
        np.testing.assert_array_equal(forwards, backwards)


@given(st.integers(1, 200), st.lists(st.integers(1, 199), max_size=6, unique=True), st.integers(0, 100))
def test_rows_are_taken_from_any_shard(n, ends, seed):
    rows = table(n, 2, seed)
    chosen = np.sort(np.random.default_rng(seed).choice(n, size=max(1, n // 3), replace=False))
    store = in_shards(rows, sorted(end for end in ends if end < n))
    for one, other in zip(store.take(chosen), rows, strict=True):
        np.testing.assert_array_equal(one, other[chosen])


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
