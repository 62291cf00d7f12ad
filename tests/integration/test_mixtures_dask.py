"""Selections and restarts on a Dask cluster: the bits of a plain loop, whichever processes are killed, and when."""

import random
import signal
import time
from multiprocessing import parent_process
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import limiirl as ll
from limiirl.errors import BackendUnavailable
from limiirl.executors import Executor
from tests.helpers import raises
from tests.oracles.clusters import Cluster, await_work, cluster, kill_workers
from tests.oracles.mixture import crossings, walks
from tests.oracles.runs import command, start

pytest.importorskip("distributed", reason="the extra 'cluster' is not installed")

IRL = ll.MaxEnt(max_length=7, bounds=(-5, 5))
# More than a small function holds, so that it travels as an input of its own.
MDP, (DEMOS, _) = crossings(), walks(600, seed=1)
SHORT = {"max_iter": 4, "resp_tol": 1e-2}


def slowly(points: Any, n_intents: int, rng: np.random.Generator) -> Any:
    """Return random labels; a worker takes longer, so that it can be killed meanwhile."""
    if parent_process() is not None:
        time.sleep(0.1)
    return rng.integers(n_intents, size=len(points))


def restarts(executor: Executor | None) -> list[Any]:
    mix = ll.IntentMixture(2, IRL, init=slowly, n_init=10, random_state=3, **SHORT).fit(MDP, DEMOS, executor=executor)
    arrays = (mix.weights_, mix.thetas_, mix.responsibilities_)
    return [*(array.tobytes() for array in arrays), [(r.objective, r.distance) for r in mix.restarts_]]


def selection(executor: Executor | None) -> list[Any]:
    mixture = ll.IntentMixture(irl=IRL, init=slowly, **SHORT)
    result = ll.select_intents(MDP, DEMOS, (1, 2), mixture=mixture, folds=3, resamples=2, seed=0, executor=executor)
    return [result.to_dict(), {k: mix.thetas_.tobytes() for k, mix in result.mixtures.items()}]


JOBS = {"restarts": restarts, "selection": selection}
pytestmark = [pytest.mark.filterwarnings("ignore::limiirl.errors.LimiirlWarning")]


@pytest.fixture(scope="module")
def alone() -> dict[str, list[Any]]:
    """Results of each job in a plain loop."""
    return {name: job(None) for name, job in JOBS.items()}


@pytest.mark.parametrize("name", JOBS)
def test_the_bits_are_those_of_a_loop(name: str, running: Cluster, alone: dict[str, list[Any]]) -> None:
    assert JOBS[name](Executor("dask", scheduler=running.address)) == alone[name]


@pytest.mark.parametrize(("name", "seed"), [("restarts", 0), ("selection", 1)])
def test_workers_killed_at_random_moments_cost_time_only(
    name: str, seed: int, running: Cluster, alone: dict[str, list[Any]]
) -> None:
    with kill_workers(running.address, times=2, seed=seed) as killed:
        assert JOBS[name](Executor("dask", scheduler=running.address)) == alone[name]
    assert killed, "the job was done before a worker was killed"


def test_a_lost_scheduler_raises_an_error_and_the_restarted_job_ends_the_same(
    tmp_path: Path, running: Cluster, alone: dict[str, list[Any]]
) -> None:
    with cluster(tmp_path, workers=1) as first:

        def give_up(done: int, total: int, text: str) -> None:
            del total, text
            if done == 3:
                first.scheduler.kill()

        executor = Executor("dask", scheduler=first.address)
        mixture = ll.IntentMixture(irl=IRL, init=slowly, **SHORT)
        with raises(BackendUnavailable, parameter="scheduler", value=first.address):
            ll.select_intents(MDP, DEMOS, mixture=mixture, seed=0, executor=executor, progress=give_up)
    assert selection(Executor("dask", scheduler=running.address)) == alone["selection"]


def test_a_command_that_is_killed_and_started_again_prints_the_same(tmp_path: Path, running: Cluster) -> None:
    MDP.save(tmp_path / "mdp.npz")
    DEMOS.to_parquet(tmp_path / "walks.parquet")
    arguments = ("select", tmp_path / "walks.parquet", "--mdp", tmp_path / "mdp.npz", "--max-intents", 2, "--json")
    arguments += (
        "--folds",
        4,
        "--resamples",
        5,
        "--set",
        "irl__max_length=7",
        "--set",
        "resp_tol=1e-3",
        "--init",
        "random",
    )
    wanted = command(*arguments)
    there = (*arguments, "--executor", "dask", "--scheduler", running.address)
    with start(*there) as run:
        await_work(running.address)
        time.sleep(random.Random(4).uniform(0.0, 0.2))
        await_work(running.address)  # some of it is still under way
        run.kill_group()
    assert run.process.returncode == -signal.SIGKILL, "the command was over before it was killed"
    assert command(*there).counts == wanted.counts
