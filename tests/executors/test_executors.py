"""`execute`, sessions and the local executor, with processes that are killed."""

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
    """Return the bytes of a computation whose rounding depends on the number of threads."""
    A = np.random.default_rng(seed).normal(size=(120, 120))
    return (np.linalg.eigvalsh(A @ A.T) @ A).tobytes()


def exit_once(folder: Path, task: int) -> int:
    marker = folder / "exited"
    if task == 5 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return task**2


def exit_always(fatal: int, task: int) -> int:
    if task == fatal:
        os._exit(3)
    time.sleep(0.1)  # still running when the other worker exits
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


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_for_exit(pids: list[int], seconds: float = 10.0) -> list[int]:
    """Return the processes that are still alive after `seconds`."""
    end = time.monotonic() + seconds
    while any(map(is_alive, pids)) and time.monotonic() < end:
        time.sleep(0.05)
    return [pid for pid in pids if is_alive(pid)]


@pytest.mark.parametrize("workers", [1, 2])
def test_results_equal_a_sequential_loop(workers: int) -> None:
    assert dict(execute(spectrum, TASKS, Executor(workers=workers))) == {seed: spectrum(seed) for seed in TASKS}


def test_a_worker_is_another_process_with_one_thread() -> None:
    results = [result for _, result in execute(threads, TASKS, Executor(workers=1))]
    assert {result[:2] for result in results} == {(1, 1)}
    (pid,) = {result[2] for result in results}
    assert pid != os.getpid()
    assert not is_alive(pid)


def test_without_tasks_there_are_no_results() -> None:
    assert list(execute(abs, [], Executor(workers=1))) == []


def test_equal_tasks_have_one_result_each() -> None:
    assert list(execute(abs, [-1, -1, -1], Executor(workers=1))) == [(-1, 1)] * 3


def test_tasks_are_consumed_lazily() -> None:
    taken = []

    def tasks() -> Iterator[int]:
        for task in range(40):
            taken.append(task)
            yield task

    for done, _ in enumerate(execute(abs, tasks(), Executor(workers=1)), start=1):
        # Two unfinished tasks, and the one that was submitted when the last result was yielded.
        assert len(taken) <= done + 2
    assert taken == list(range(40))


def test_a_task_whose_worker_exits_is_retried(tmp_path: Path) -> None:
    results = dict(execute(functools.partial(exit_once, tmp_path), TASKS, Executor(workers=2)))
    assert results == {task: task**2 for task in TASKS}
    assert (tmp_path / "exited").exists()


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_only_a_task_that_always_ends_its_worker_is_lost(workers: int) -> None:
    results = dict(execute(functools.partial(exit_always, 4), TASKS, Executor(workers=workers)))
    lost = results.pop(4)
    assert isinstance(lost, LostTask)
    assert lost.attempts == 3
    assert "EXIT(3)" in str(lost)
    assert results == {task: task**2 for task in TASKS if task != 4}


def test_exceptions_of_the_function_are_raised() -> None:
    with pytest.raises(KeyError, match="three"):
        list(execute(fail_at_three, TASKS, Executor(workers=2)))


def test_exceptions_of_the_task_iterator_are_raised() -> None:
    def tasks() -> Iterator[int]:
        yield 1
        raise OSError("the store is full")

    with pytest.raises(OSError, match="the store is full"):
        list(execute(abs, tasks(), Executor(workers=1)))


class Unloadable:
    """A task that cannot be unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return int, ("x",)


def test_a_task_that_cannot_be_unpickled_is_not_retried() -> None:
    with pytest.raises(RuntimeError, match="un-serialize") as caught:
        list(execute(str, [Unloadable()], Executor(workers=1)))
    assert "invalid literal" in str(caught.value.__cause__)


def test_workers_ignore_interrupts() -> None:
    assert dict(execute(interrupt, [1, 2], Executor(workers=1))) == {1: 1, 2: 2}


def test_closing_early_stops_the_workers() -> None:
    results = execute(threads, range(1000), Executor(workers=2))
    pids = {next(results)[1][2] for _ in range(20)}
    results.close()  # type: ignore[attr-defined]
    assert wait_for_exit(list(pids)) == []


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


def interrupt_run(tmp_path: Path, how: signal.Signals, group: bool) -> tuple[list[int], str, int]:
    """Start a run, and signal it once two workers are busy; return the workers, its stderr, and its exit code."""
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
@pytest.mark.parametrize("group", [False, True], ids=["to the run", "to the process group"])
def test_an_interrupt_ends_the_run_and_its_workers_quietly(tmp_path: Path, group: bool) -> None:
    workers, errors, status = interrupt_run(tmp_path, signal.SIGINT, group)
    assert wait_for_exit(workers) == []
    assert status == -signal.SIGINT
    assert "LokyProcess" not in errors  # an interrupted worker would write it
    assert errors.rstrip().endswith("KeyboardInterrupt")


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_workers_do_not_outlive_a_killed_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    workers, _, _ = interrupt_run(tmp_path, signal.SIGKILL, group=False)
    assert wait_for_exit(workers) == []
    assert list(tmp_path.glob("limiirl-*")) == [], "folders of the killed run"


class Loaded:
    """A function with a payload that creates a file whenever it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.payload = folder, np.arange(1000.0)

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        (self.folder / f"{os.getpid()}-{time.monotonic_ns()}").touch()

    def __call__(self, task: int) -> tuple[float, int]:
        time.sleep(0.01)
        return float(self.payload[task]), os.getpid()


def test_the_function_is_sent_once_per_worker(tmp_path: Path) -> None:
    results = dict(execute(Loaded(tmp_path), range(40), Executor(workers=2)))
    assert {task: value for task, (value, _) in results.items()} == {task: float(task) for task in range(40)}
    pids = [int(path.name.partition("-")[0]) for path in tmp_path.iterdir()]
    assert len(pids) == len(set(pids)) <= 2
    assert {pid for _, pid in results.values()} <= set(pids)


def first_waits(marker: Path, task: int) -> int:
    """Return the task; task 0 waits for the marker."""
    end = time.monotonic() + 60
    while task == 0 and not marker.exists() and time.monotonic() < end:
        time.sleep(0.01)
    return task


def test_ordered_results(tmp_path: Path) -> None:
    executor = Executor(workers=2)

    def tasks(marker: Path) -> Iterator[int]:
        for task in range(8):
            if task == 6:  # at most four tasks are unfinished, so that task 0 is not the first to complete
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
def test_map_ordered_raises_for_a_lost_task() -> None:
    with raises(BackendUnavailable, value=7, index=2):
        map_ordered(functools.partial(exit_always, 7), [5, 6, 7, 8], Executor(workers=1))


def test_a_process_pool_is_accepted() -> None:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        assert dict(execute(spectrum, TASKS, pool)) == {seed: spectrum(seed) for seed in TASKS}
        with pytest.raises(KeyError, match="three"):
            list(execute(fail_at_three, TASKS, pool))
        assert map_ordered(abs, [-2, 1], pool) == [2, 1], "the pool must still be open"


def test_thread_pools_and_other_objects_are_rejected() -> None:
    with ThreadPoolExecutor(2) as pool, raises(InvalidParameter, parameter="executor", value=pool):
        map_ordered(abs, [-2], pool)
    with raises(InvalidParameter, parameter="executor", value="dask"):
        map_ordered(abs, [-2], "dask")  # type: ignore[arg-type]


def get_pid(_: int) -> int:
    return os.getpid()


def test_a_session_keeps_its_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Executor(workers=1).session() as session:
        (first,), (second,) = map_ordered(get_pid, [0], session), map_ordered(get_pid, [0], session)
        assert first == second
        assert map_ordered(abs, [-2], session) == [2]
        results = execute(threads, range(1000), session)
        next(results)
        results.close()  # type: ignore[attr-defined]
        assert wait_for_exit([first]) == []  # closing the iterator kills the workers
        assert map_ordered(abs, [-3], session) == [3]
        (last,) = map_ordered(get_pid, [0], session)
        assert len(list(tmp_path.glob("limiirl-*/*.pickle"))) == 1
    assert wait_for_exit([last]) == []
    assert list(tmp_path.glob("limiirl-*")) == []


def test_a_session_allows_one_call_at_a_time() -> None:
    with Executor(workers=1).session() as session:
        first = session.map(abs, range(0, -20, -1))
        assert next(first) == 0
        with raises(InvalidParameter, parameter="executor"):
            map_ordered(str, range(3), session)
        assert list(first) == list(range(1, 20)), "the first call must continue"
        assert map_ordered(str, range(3), session) == ["0", "1", "2"]
        with pytest.raises(KeyError, match="three"):
            map_ordered(fail_at_three, TASKS, session)
        assert map_ordered(str, range(3), session) == ["0", "1", "2"], "the session must be usable after a failed call"


def test_an_unknown_executor_is_rejected() -> None:
    with raises(InvalidParameter, parameter="name", value="spark"):
        Executor("spark")


@pytest.mark.parametrize("workers", [0, -1, 1.5, True])
def test_workers_must_be_a_positive_integer(workers: object) -> None:
    with raises(InvalidParameter, parameter="workers", value=workers):
        Executor(workers=workers)  # type: ignore[arg-type]


@pytest.mark.parametrize("address", [None, "", "somewhere"])
def test_dask_needs_a_scheduler_address(address: str | None) -> None:
    with raises(InvalidParameter, parameter="scheduler", value=address):
        Executor("dask", scheduler=address)


def test_a_closed_session_raises() -> None:
    with Executor(workers=1).session() as session:
        assert map_ordered(abs, [-1], session) == [1]
    with raises(InvalidParameter, parameter="executor") as caught:
        map_ordered(abs, [-1], session)
    assert "closed" in str(caught.value)


def test_workers_may_be_a_numpy_integer() -> None:
    assert Executor(workers=np.int64(2)).workers == 2  # type: ignore[arg-type]


def test_the_local_executor_rejects_a_scheduler() -> None:
    address = "tcp://127.0.0.1:8786"
    with raises(InvalidParameter, parameter="scheduler", value=address):
        Executor("local", scheduler=address)


def test_a_missing_package_is_reported_with_its_remedy() -> None:
    # In another process; None in sys.modules makes the import fail.
    code = """
import sys
sys.modules["distributed"] = None
from limiirl.executors import Executor, execute
list(execute(abs, [1], Executor("dask", scheduler="127.0.0.1:1")))
"""
    ended = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, check=False)
    assert "BackendUnavailable" in ended.stderr
    assert "pip install" in ended.stderr
