"""Streams on a Dask cluster: features, passes and memberships with the bits of one process when workers are killed."""

import random
import signal
import time
from collections.abc import Callable
from functools import cache
from multiprocessing import parent_process
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from limiirl import IntentMixture, MaxEnt
from limiirl.errors import BackendUnavailable
from limiirl.executors import Executor
from limiirl.streams import FeatureStore, FunctionSource, Rows, assign, fit_streamed, write_features
from tests.helpers import raises
from tests.oracles.clusters import Cluster, cluster, kill_workers
from tests.oracles.mixture import crossings, walks
from tests.oracles.runs import command, start

pytest.importorskip("distributed", reason="the extra 'cluster' is not installed")
pytestmark = [pytest.mark.filterwarnings("ignore::limiirl.errors.LimiirlWarning")]

MDP, SHARDS, SIZE, ITERATIONS = crossings(), 6, 200, 5


def pause() -> None:
    """Let a worker take a while, so that it can be killed meanwhile; the loop in this process need not."""
    if parent_process() is not None:
        time.sleep(0.06)


def demos_of(index: int) -> Any:
    """The demonstrations of a shard."""
    pause()
    return walks(SIZE, seed=index)[0]


@cache
def compute_rows(index: int) -> Rows:
    demos, _ = walks(SIZE, seed=index)
    return Rows(demos.features(MDP), demos.log_q(MDP), np.ones(SIZE))


def rows_of(index: int) -> Rows:
    """The features of a shard; every pass waits for them."""
    pause()
    return compute_rows(index)


def write_store(folder: Path, executor: Executor | None = None) -> FeatureStore:
    return write_features(MDP, FunctionSource(demos_of, SHARDS), folder, executor=executor)


def generate_store() -> FeatureStore:
    return FeatureStore.from_function(rows_of, [SIZE] * SHARDS, MDP.n_features, longest=7)


def fit_repr(
    executor: Executor | None = None, checkpoint: Path | None = None, progress: Callable[..., None] | None = None
) -> Any:
    """Fit, and return every bit of the result as text."""
    mix = IntentMixture(
        2, MaxEnt(7, bounds=(-5, 5)), max_iter=ITERATIONS, resp_tol=0.0, random_state=0, progress=progress
    )
    fit_streamed(mix, MDP, generate_store(), sample=500, checkpoint=checkpoint, executor=executor)
    history = [(entry.iteration, entry.objective, entry.change, entry.weights.tolist()) for entry in mix.history_]
    return repr((mix.thetas_.tolist(), mix.weights_.tolist(), history))


@pytest.fixture(scope="module")
def alone() -> str:
    return fit_repr()


def test_features_fit_and_memberships_have_the_bits_of_one_process(
    tmp_path: Path, running: Cluster, alone: str
) -> None:
    executor = Executor("dask", scheduler=running.address)
    here, there = write_store(tmp_path / "here"), write_store(tmp_path / "there", executor)
    assert [shard.fingerprint for shard in there.shards] == [shard.fingerprint for shard in here.shards]
    assert fit_repr(executor) == alone
    mix = fit_streamed(IntentMixture(2, MaxEnt(7, bounds=(-5, 5)), max_iter=2, random_state=0), MDP, here)
    tables = [
        [pq.read_table(path) for path in assign(mix, store, tmp_path / name, executor=place)]
        for store, name, place in ((here, "a", None), (there, "b", executor))
    ]
    assert len(tables[0]) == SHARDS
    assert tables[0] == tables[1]


def test_workers_killed_at_random_moments_cost_time_only(tmp_path: Path, running: Cluster, alone: str) -> None:
    executor = Executor("dask", scheduler=running.address)
    with kill_workers(running.address, times=4, seed=0) as killed:
        store = write_store(tmp_path / "features", executor)
        assert fit_repr(executor) == alone
    assert killed, "all was done before a worker was killed"
    wanted = write_store(tmp_path / "alone")
    assert [shard.fingerprint for shard in store.shards] == [shard.fingerprint for shard in wanted.shards]


def test_a_lost_scheduler_raises_an_error_and_the_fit_continues_from_its_checkpoint(
    tmp_path: Path, running: Cluster, alone: str
) -> None:
    checkpoint = tmp_path / "fit.npz"
    with cluster(tmp_path, workers=1) as first:

        def kill_scheduler(done: int, total: int, message: str) -> None:
            if done == 2:
                first.scheduler.kill()

        executor = Executor("dask", scheduler=first.address)
        with raises(BackendUnavailable, parameter="scheduler", value=first.address):
            fit_repr(executor, checkpoint, kill_scheduler)
    seen: list[int] = []
    executor = Executor("dask", scheduler=running.address)
    assert fit_repr(executor, checkpoint, lambda done, total, message: seen.append(done)) == alone
    assert seen == list(range(3, ITERATIONS + 1)), "the fit did not continue from its checkpoint"


def test_a_fit_that_is_killed_goes_on_to_the_same_intents(tmp_path: Path, running: Cluster) -> None:
    write_store(tmp_path / "features")
    checkpoint = tmp_path / "fit.npz"
    limits = (
        "--set",
        "max_iter=12",
        "--set",
        "resp_tol=1e-12",
        "--set",
        "irl__max_length=7",
        "--sample",
        300,
        "--json",
    )
    fit = ("stream", "fit", tmp_path / "features", "--intents", 2, *limits)
    wanted = command(*fit, "--out", tmp_path / "alone")
    there = (*fit, "--out", tmp_path / "there", "--checkpoint", checkpoint)
    there += ("--executor", "dask", "--scheduler", running.address)
    with start(*there) as run:
        run.until(checkpoint.exists)
        time.sleep(random.Random(2).uniform(0.0, 0.05))
        run.kill_group()
    assert run.process.returncode == -signal.SIGKILL
    assert not (tmp_path / "there").exists(), "the fit was over before it was killed"
    done = command(*there)
    assert done.counts | {"saved": ""} == wanted.counts | {"saved": ""}
    assert wanted.stderr.startswith("iteration 0: ")
    iterations = [line.partition(":")[0] for line in done.stderr.splitlines() if line.startswith("iteration ")]
    assert iterations, "the fit was over before it was killed"
    assert iterations[0] != "iteration 0", "the fit did not continue from its checkpoint"
