"""Memory of Dask workers that have a limit: a run stays below it, and only a task that exceeds it is lost."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from limiirl.executors import Executor, LostTask, execute
from tests.oracles.clusters import cluster

pytest.importorskip("distributed", reason="the extra 'cluster' is not installed")
pytestmark = [
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc of Linux"),
]

LIMIT = 700  # MiB
SIZE = 60  # MiB


def peak() -> float:
    """The most memory that this process has had, in MiB."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


class Sums:
    """A function that holds a large input, and makes as much again for every task."""

    def __init__(self) -> None:
        self.held = np.ones(SIZE * 2**17)

    def __call__(self, task: int) -> tuple[float, float, int]:
        made = self.held * task
        return float(made.sum()), peak(), os.getpid()


def greedy(task: int) -> int:
    """Take twice the limit for one task, and keep it until the worker is killed."""
    if task != 3:
        return task
    taken = []
    for _ in range(2 * LIMIT // 20):
        taken.append(np.ones(20 * 2**17))
        time.sleep(0.02)  # a nanny checks ten times per second
    time.sleep(60)  # but on a busy machine later
    return len(taken)


@pytest.fixture(scope="module")
def executor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Executor]:
    with cluster(tmp_path_factory.mktemp("dask"), workers=1, memory=f"{LIMIT}MiB") as (address, _):
        yield Executor("dask", scheduler=address)


def test_many_tasks_with_a_large_input_stay_below_the_limit(executor: Executor) -> None:
    done = dict(execute(Sums(), range(40), executor))
    assert {task: total for task, (total, _, _) in done.items()} == {i: float(i * SIZE * 2**17) for i in range(40)}
    assert len({pid for _, _, pid in done.values()}) == 1, "the worker was replaced on the way"
    assert max(most for _, most, _ in done.values()) < LIMIT
    # 40 inputs in flight, or results not fetched, would be 2.4 GB. 40 tasks take the memory of 4.
    few, many = (max(most for task, (_, most, _) in done.items() if task < n) for n in (4, 40))
    assert many < few + SIZE


def test_a_task_over_the_limit_is_lost_and_no_other(executor: Executor) -> None:
    done = dict(execute(greedy, range(6), executor))
    assert isinstance(done.pop(3), LostTask)
    assert done == {task: task for task in range(6) if task != 3}
