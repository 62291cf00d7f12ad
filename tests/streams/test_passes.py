"""Passes over a store on random rows and partitions: agreement with an oracle, and bit-reproducibility."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from limiirl.executors import Executor
from limiirl.kernels.e_step import MixtureParameters, Rows, e_step, e_step_streamed, sum_weighted
from limiirl.kernels.threading import BLOCK
from limiirl.streams import FeatureStore, write_features
from limiirl.streams.passes import SumTask, combine, sum_shard, sum_store
from limiirl.streams.store import GeneratedShard, ShardInfo, StoredShard
from tests.helpers import examples
from tests.oracles.mixture import TASTES, crossings, responsibilities, walks


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
