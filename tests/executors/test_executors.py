"""The loop over tasks and the executor of this machine: real processes that really die."""

import functools
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

from limiirl.errors import BackendUnavailable, InvalidParameter
from limiirl.executors import Executor, LostTask, execute, map_ordered
from tests.helpers import raises

TASKS = range(12)


def spectrum(seed: int) -> bytes:
    """The bits of a computation that threads could change."""
    A = np.random.default_rng(seed).normal(size=(120, 120))
    return (np.linalg.eigvalsh(A @ A.T) @ A).tobytes()


def die_once(folder: Path, task: int) -> int:
    marker = folder / "died"
    if task == 5 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return task**2


def die_always(fatal: int, task: int) -> int:
    if task == fatal:
        os._exit(3)
    time.sleep(0.1)  # so that it is running when its neighbour dies
    return task**2


def interrupt(task: int) -> int:
    os.kill(os.getpid(), signal.SIGINT)
    return task


def threads(_: int) -> tuple[int, int, int]:
    import numba
    from threadpoolctl import threadpool_info

    return numba.get_num_threads(), max(library["num_threads"] for library in threadpool_info()), os.getpid()


def fail_at_three(task: int) -> int:
    if task == 3:
        raise KeyError("three")
    return task


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def await_death(pids: list[int], seconds: float = 10.0) -> list[int]:
    """Those that are alive at the end of so many seconds."""
    end = time.monotonic() + seconds
    while any(map(alive, pids)) and time.monotonic() < end:
        time.sleep(0.05)
    return [pid for pid in pids if alive(pid)]


@pytest.mark.parametrize("workers", [1, 2])
def test_results_are_those_of_a_loop(workers: int) -> None:
    assert dict(execute(spectrum, TASKS, Executor(workers=workers))) == {seed: spectrum(seed) for seed in TASKS}


def test_a_worker_is_another_process_with_one_thread() -> None:
    results = [result for _, result in execute(threads, TASKS, Executor(workers=1))]
    assert {result[:2] for result in results} == {(1, 1)}
    (pid,) = {result[2] for result in results}
    assert pid != os.getpid()
    assert not alive(pid)


def test_no_tasks() -> None:
    assert list(execute(abs, [], Executor(workers=1))) == []


def test_equal_tasks_have_a_result_each() -> None:
    assert list(execute(abs, [-1, -1, -1], Executor(workers=1))) == [(-1, 1)] * 3


def test_tasks_are_taken_only_when_there_is_room() -> None:
    taken = []

    def tasks() -> Iterator[int]:
        for task in range(40):
            taken.append(task)
            yield task

    for done, _ in enumerate(execute(abs, tasks(), Executor(workers=1)), start=1):
        # Two in flight, and the one that took the place of that just yielded.
        assert len(taken) <= done + 2
    assert taken == list(range(40))


def test_a_task_whose_worker_died_is_tried_again(tmp_path: Path) -> None:
    results = dict(execute(functools.partial(die_once, tmp_path), TASKS, Executor(workers=2)))
    assert results == {task: task**2 for task in TASKS}
    assert (tmp_path / "died").exists()


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_task_that_always_kills_is_lost_and_no_other(workers: int) -> None:
    results = dict(execute(functools.partial(die_always, 4), TASKS, Executor(workers=workers)))
    lost = results.pop(4)
    assert isinstance(lost, LostTask)
    assert lost.attempts == 3
    assert "EXIT(3)" in str(lost)
    assert results == {task: task**2 for task in TASKS if task != 4}


def test_what_the_function_raises_is_raised() -> None:
    with pytest.raises(KeyError, match="three"):
        list(execute(fail_at_three, TASKS, Executor(workers=2)))


def test_what_the_tasks_raise_is_raised() -> None:
    def tasks() -> Iterator[int]:
        yield 1
        raise OSError("the store is full")

    with pytest.raises(OSError, match="the store is full"):
        list(execute(abs, tasks(), Executor(workers=1)))


class Unloadable:
    """A task that cannot be unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return int, ("x",)


def test_a_task_that_cannot_be_unpickled_is_not_taken_for_a_dead_worker() -> None:
    with pytest.raises(RuntimeError, match="un-serialize") as caught:
        list(execute(str, [Unloadable()], Executor(workers=1)))
    assert "invalid literal" in str(caught.value.__cause__)


def test_an_interrupt_is_not_the_workers_affair() -> None:
    assert dict(execute(interrupt, [1, 2], Executor(workers=1))) == {1: 1, 2: 2}


def test_closing_early_stops_the_workers() -> None:
    results = execute(threads, range(1000), Executor(workers=2))
    pids = {next(results)[1][2] for _ in range(20)}
    results.close()  # type: ignore[attr-defined]
    assert await_death(list(pids)) == []


SCRIPT = """
import os, sys, time
from pathlib import Path
from limiirl.executors import Executor, execute

def slow(folder):
    (Path(folder) / str(os.getpid())).touch()
    time.sleep(0.1)

if __name__ == "__main__":
    for _ in execute(slow, [sys.argv[1]] * 10_000, Executor(workers=2)):
        pass
"""


def workers_of(tmp_path: Path, how: signal.Signals, group: bool) -> tuple[list[int], str, int]:
    """Start a run, signal it once two workers work; the workers, what it wrote to stderr, and how it ended."""
    script, pids = tmp_path / "run.py", tmp_path / "pids"
    script.write_text(SCRIPT)
    pids.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-W", "error", script, pids], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        end = time.monotonic() + 30
        while len(list(pids.iterdir())) < 2 and time.monotonic() < end:
            time.sleep(0.05)
        (os.killpg if group else os.kill)(process.pid, how)
        _, errors = process.communicate(timeout=20)
    finally:
        process.kill()
        process.wait()
    workers = [int(path.name) for path in pids.iterdir()]
    assert len(workers) == 2
    return workers, errors, process.returncode


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("group", [False, True], ids=["to the run", "to all, as a terminal does"])
def test_an_interrupt_ends_the_run_and_its_workers_quietly(tmp_path: Path, group: bool) -> None:
    workers, errors, status = workers_of(tmp_path, signal.SIGINT, group)
    assert await_death(workers) == []
    assert status == -signal.SIGINT
    assert "LokyProcess" not in errors  # what a worker that is interrupted itself would say
    assert errors.rstrip().endswith("KeyboardInterrupt")


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_workers_do_not_outlive_a_killed_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    workers, _, _ = workers_of(tmp_path, signal.SIGKILL, group=False)
    assert await_death(workers) == []
    assert list(tmp_path.glob("limiirl-*")) == [], "what the run could not remove itself"


class Loaded:
    """A function that holds something, and leaves a file whenever it is unpacked."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.payload = folder, np.arange(1000.0)

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        (self.folder / f"{os.getpid()}-{time.monotonic_ns()}").touch()

    def __call__(self, task: int) -> tuple[float, int]:
        time.sleep(0.01)
        return float(self.payload[task]), os.getpid()


def test_what_a_function_holds_travels_once_to_each_worker(tmp_path: Path) -> None:
    found = dict(execute(Loaded(tmp_path), range(40), Executor(workers=2)))
    assert {task: value for task, (value, _) in found.items()} == {task: float(task) for task in range(40)}
    unpacked = [int(path.name.partition("-")[0]) for path in tmp_path.iterdir()]
    assert len(unpacked) == len(set(unpacked)) <= 2
    assert {pid for _, pid in found.values()} <= set(unpacked)


def first_waits(marker: Path, task: int) -> int:
    """Task 0 ends once the marker is there."""
    end = time.monotonic() + 60
    while task == 0 and not marker.exists() and time.monotonic() < end:
        time.sleep(0.01)
    return task


def test_results_in_the_order_of_the_tasks(tmp_path: Path) -> None:
    executor = Executor(workers=2)

    def tasks(marker: Path) -> Iterator[int]:
        for task in range(8):
            if task == 6:  # taken when others than task 0 have come back: four are in flight
                marker.touch()
            yield task

    came = [
        task for task, _ in execute(functools.partial(first_waits, tmp_path / "a"), tasks(tmp_path / "a"), executor)
    ]
    assert came != sorted(came)
    assert map_ordered(functools.partial(first_waits, tmp_path / "b"), tasks(tmp_path / "b"), executor) == list(
        range(8)
    )
    mapped = executor.map(functools.partial(first_waits, tmp_path / "c"), tasks(tmp_path / "c"))
    assert list(mapped) == list(range(8))


@pytest.mark.slow
def test_a_lost_task_is_named_where_all_results_are_needed() -> None:
    with raises(BackendUnavailable, value=7, index=2):
        map_ordered(functools.partial(die_always, 7), [5, 6, 7, 8], Executor(workers=1))


def test_any_executor_of_processes_will_do() -> None:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        assert dict(execute(spectrum, TASKS, pool)) == {seed: spectrum(seed) for seed in TASKS}
        with pytest.raises(KeyError, match="three"):
            list(execute(fail_at_three, TASKS, pool))
        assert map_ordered(abs, [-2, 1], pool) == [2, 1], "it is still open"


def test_threads_and_other_objects_are_refused() -> None:
    with ThreadPoolExecutor(2) as pool, raises(InvalidParameter, parameter="executor", value=pool):
        map_ordered(abs, [-2], pool)
    with raises(InvalidParameter, parameter="executor", value="dask"):
        map_ordered(abs, [-2], "dask")  # type: ignore[arg-type]


def whose(_: int) -> int:
    return os.getpid()


def test_a_session_keeps_its_workers_until_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Executor(workers=1).session() as session:
        (first,), (second,) = map_ordered(whose, [0], session), map_ordered(whose, [0], session)
        assert first == second
        assert map_ordered(abs, [-2], session) == [2]
        results = execute(threads, range(1000), session)
        next(results)
        results.close()  # type: ignore[attr-defined]
        assert await_death([first]) == []  # nothing else stops the tasks that nobody waits for
        assert map_ordered(abs, [-3], session) == [3]
        (last,) = map_ordered(whose, [0], session)
        assert len(list(tmp_path.glob("limiirl-*/*.pickle"))) == 1
    assert await_death([last]) == []
    assert list(tmp_path.glob("limiirl-*")) == []


def test_a_session_takes_one_call_at_a_time() -> None:
    with Executor(workers=1).session() as session:
        first = session.map(abs, range(0, -20, -1))
        assert next(first) == 0
        with raises(InvalidParameter, parameter="executor"):
            map_ordered(str, range(3), session)
        assert list(first) == list(range(1, 20)), "the first goes on undisturbed"
        assert map_ordered(str, range(3), session) == ["0", "1", "2"]
        with pytest.raises(KeyError, match="three"):
            map_ordered(fail_at_three, TASKS, session)
        assert map_ordered(str, range(3), session) == ["0", "1", "2"], "one that failed has ended"


def test_an_executor_has_a_known_name() -> None:
    with raises(InvalidParameter, parameter="executor", value="spark"):
        Executor("spark")


@pytest.mark.parametrize("workers", [0, -1, 1.5, True])
def test_workers_are_counted(workers: object) -> None:
    with raises(InvalidParameter, parameter="workers", value=workers):
        Executor(workers=workers)  # type: ignore[arg-type]


@pytest.mark.parametrize("address", [None, "", "somewhere"])
def test_dask_needs_an_address(address: str | None) -> None:
    with raises(InvalidParameter, parameter="scheduler", value=address):
        Executor("dask", scheduler=address)


def test_a_closed_session_says_so() -> None:
    with Executor(workers=1).session() as session:
        assert map_ordered(abs, [-1], session) == [1]
    with raises(InvalidParameter, parameter="executor") as caught:
        map_ordered(abs, [-1], session)
    assert "closed" in str(caught.value)


def test_numpy_counts_workers_too() -> None:
    assert Executor(workers=np.int64(2)).workers == 2  # type: ignore[arg-type]


def test_this_machine_has_no_scheduler() -> None:
    address = "tcp://127.0.0.1:8786"
    with raises(InvalidParameter, parameter="scheduler", value=address):
        Executor("local", scheduler=address)


def test_an_absent_package_is_named_with_its_remedy() -> None:
    # In a process of its own, where the package cannot be imported; None in sys.modules is Python's own way to say so.
    code = """
import sys
sys.modules["distributed"] = None
from limiirl.executors import Executor, execute
list(execute(abs, [1], Executor("dask", scheduler="127.0.0.1:1")))
"""
    ended = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, check=False)
    assert "BackendUnavailable" in ended.stderr
    assert "not installed. Install it: pip install" in ended.stderr
