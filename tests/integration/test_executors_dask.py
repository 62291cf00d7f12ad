"""The executor "dask" against a plain loop, on a real scheduler and real workers that the tests start on loopback."""

import contextlib
import functools
import os
import signal
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pytest

from limiirl.errors import BackendUnavailable, LimiirlWarning
from limiirl.executors import Executor, LostTask, execute, map_ordered
from limiirl.executors import dask as clusters
from tests.helpers import raises
from tests.oracles.clusters import Cluster, await_workers, cluster, dask, list_workers

pytest.importorskip("distributed", reason="the extra 'cluster' is not installed")
from distributed import Client, Worker

TASKS = range(12)


def spectrum(seed: int) -> bytes:
    """Return the bits of a computation that threads could change."""
    A = np.random.default_rng(seed).normal(size=(120, 120))
    return (np.linalg.eigvalsh(A @ A.T) @ A).tobytes()


def threads(_: int) -> tuple[int, int]:
    import numba
    from threadpoolctl import threadpool_info

    return numba.get_num_threads(), max(library["num_threads"] for library in threadpool_info())


def process(_: int) -> int:
    time.sleep(0.05)
    return os.getpid()


def die_once(folder: Path, task: int) -> int:
    marker = folder / "died"
    if task == 5 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return task**2


def die_at_four(task: int) -> int:
    if task == 4:
        os._exit(3)
    time.sleep(0.1)  # so that it is running when its neighbour is killed
    return task**2


def fail_at_three(task: int) -> int:
    if task == 3:
        raise KeyError("three")
    return task


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("dask"), workers=2) as started:
        yield started


@pytest.fixture
def executor(two: Cluster) -> Executor:
    """Both workers, also after a test that killed one."""
    await_workers(two.address, 2)
    return Executor("dask", scheduler=two.address)


@pytest.mark.smoke
def test_results_are_those_of_a_loop(executor: Executor) -> None:
    assert dict(execute(spectrum, TASKS, executor)) == {seed: spectrum(seed) for seed in TASKS}


def test_workers_of_another_version_are_rejected(executor: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "__version__", "0.0")  # here, and not in the workers
    with raises(BackendUnavailable, parameter="scheduler", value=executor.scheduler):
        list(execute(abs, TASKS, executor))


def test_a_task_has_one_thread(executor: Executor) -> None:
    assert {result for _, result in execute(threads, TASKS, executor)} == {(1, 1)}


def test_tasks_are_taken_only_when_there_is_room(executor: Executor) -> None:
    taken = []

    def tasks() -> Iterator[int]:
        for task in range(16):
            taken.append(task)
            yield task

    limited = Executor("dask", workers=1, scheduler=executor.scheduler)
    for done, _ in enumerate(execute(process, tasks(), limited), start=1):
        assert len(taken) <= done + 1
    assert taken == list(range(16))


def test_exceptions_of_the_function_are_raised(executor: Executor) -> None:
    with pytest.raises(KeyError, match="three"):
        list(execute(fail_at_three, TASKS, executor))


def hold(folder: Path, task: int) -> None:
    """Return at once for task 0; otherwise write a file, and wait for the file "go"."""
    end = time.monotonic() + 60
    if task:
        (folder / str(task)).touch()
        while not (folder / "go").exists() and time.monotonic() < end:
            time.sleep(0.01)


def waiting(dask_worker: Worker) -> int:
    return sum(task.state == "ready" for task in dask_worker.state.tasks.values())


@pytest.mark.parametrize("session", [False, True])
def test_closing_early_drops_waiting_tasks(executor: Executor, tmp_path: Path, session: bool) -> None:
    from tests.oracles.runs import wait_until  # here: a worker imports this module, and need not wait for that one

    def has_queue(client: Client) -> bool:
        return any(client.run(waiting).values())

    with ExitStack() as stack:
        client = stack.enter_context(Client(executor.scheduler, set_as_default=False))
        used = stack.enter_context(executor.session()) if session else executor
        results = execute(functools.partial(hold, tmp_path), range(1000), used)
        assert next(results)[0] == 0
        # Two run, and others wait for their turn, which never comes.
        wait_until(lambda: len(list(tmp_path.iterdir())) == 2 and has_queue(client), seconds=60)
        results.close()  # type: ignore[attr-defined]
        wait_until(lambda: not has_queue(client), seconds=30)
        # Running tasks are not stopped; no task follows them.
        (tmp_path / "go").touch()
        assert dict(execute(abs, TASKS, used)) == dict(enumerate(TASKS))
    assert len(list(tmp_path.iterdir())) == 3


def test_a_worker_killed_midway_loses_nothing(executor: Executor) -> None:
    results = execute(process, range(30), executor)
    done = [next(results) for _ in range(10)]
    killed = done[-1][1]
    os.kill(killed, signal.SIGKILL)
    done += results
    assert sorted(task for task, _ in done) == list(range(30))
    assert all(isinstance(pid, int) for _, pid in done)
    assert {pid for _, pid in done} > {killed}


def test_a_task_whose_worker_died_is_tried_again(executor: Executor, tmp_path: Path) -> None:
    results = dict(execute(functools.partial(die_once, tmp_path), TASKS, executor))
    assert results == {task: task**2 for task in TASKS}
    assert (tmp_path / "died").exists()


def test_a_task_that_always_kills_is_lost_and_no_other(executor: Executor) -> None:
    results = dict(execute(die_at_four, TASKS, executor))
    lost = results.pop(4)
    assert isinstance(lost, LostTask)
    assert lost.attempts == 2
    assert results == {task: task**2 for task in TASKS if task != 4}


def test_a_result_whose_worker_dies_before_it_is_taken_is_kept(tmp_path: Path) -> None:
    with cluster(tmp_path, workers=1) as (address, _), closing(clusters.DaskBackend(address, None)) as backend:
        backend.load(process)
        future = backend.submit(0)
        (remote,) = backend._remote.values()
        assert wait([future], timeout=30).done
        (worker,) = list_workers(address)
        os.kill(worker, signal.SIGKILL)
        end = time.monotonic() + 30
        while remote.status == "finished" and time.monotonic() < end:
            time.sleep(0.005)
        assert remote.status != "finished"
        assert future.result() == worker


def die_at_second(folder: Path, task: int) -> int:
    (folder / f"{time.monotonic_ns()}").write_text(str(os.getpid()))
    if len(list(folder.iterdir())) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return task


def test_a_lost_result_whose_task_then_dies_is_computed_again(
    executor: Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dask's own `as_completed` waits for such a result forever."""
    gather, lost = Client._gather_remote, []

    async def lose_first(client: Client, *given: object) -> object:
        if not lost and (runs := list(tmp_path.iterdir())):
            lost.append(int(runs[0].read_text()))
            os.kill(lost[0], signal.SIGKILL)
        return await gather(client, *given)

    monkeypatch.setattr(Client, "_gather_remote", lose_first)
    assert list(execute(functools.partial(die_at_second, tmp_path), [7], executor)) == [(7, 7)]
    assert len(lost) == 1
    assert len(list(tmp_path.iterdir())) == 3


def quick(_: int) -> bytes:
    time.sleep(0.002)
    return b"x" * 20_000


# Of quick tasks some result is on its way at any moment, and fails in another manner than one that is waited for.
@pytest.mark.parametrize(("task", "after"), [(process, 0.0), (quick, 0.2), (quick, 0.5), (quick, 0.9)])
def test_a_scheduler_lost_midway_raises_backend_unavailable(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], task: Callable[[int], object], after: float
) -> None:
    with cluster(tmp_path, workers=1) as (address, scheduler):
        results = execute(task, range(5000), Executor("dask", scheduler=address))
        next(results)
        threading.Timer(after, scheduler.kill).start()
        with raises(BackendUnavailable, parameter="scheduler", value=address) as caught:
            list(results)
    assert "was lost" in str(caught.value)
    assert capfd.readouterr().err == ""


def test_a_scheduler_without_workers_raises_backend_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clusters, "_WORKERS_SECONDS", 1)
    with cluster(tmp_path, workers=0) as (address, _):
        with raises(BackendUnavailable, parameter="scheduler", value=address) as caught:
            list(execute(abs, TASKS, Executor("dask", scheduler=address)))
        assert "no worker" in str(caught.value)


def test_a_run_without_workers_warns_once_and_continues_when_one_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clusters, "_WORKERS_SECONDS", 1)
    monkeypatch.setattr(clusters, "_RESIZE_SECONDS", 0.1)
    contact = tmp_path / "scheduler.json"
    options = ("worker", "--scheduler-file", contact, "--nthreads", 1, "--local-directory", tmp_path)
    with cluster(tmp_path, workers=0) as (address, _), ExitStack() as stack:
        with dask(*options):
            await_workers(address, 1)
            results = execute(process, range(50), Executor("dask", scheduler=address))
            first = next(results)
        with warnings.catch_warnings(record=True) as messages:
            warnings.simplefilter("always")
            later = threading.Timer(4.0, lambda: stack.enter_context(dask(*options)))
            later.start()
            done = [first, *results]
        later.join()
    assert sorted(task for task, _ in done) == list(range(50))
    waits = [str(warning.message) for warning in messages if "no worker" in str(warning.message)]
    assert len(waits) == 1


def test_a_scheduler_that_does_not_answer_raises_backend_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "_CONNECT_SECONDS", 1)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"tcp://127.0.0.1:{listener.getsockname()[1]}"  # closed: nothing listens there any more
    with raises(BackendUnavailable, parameter="scheduler", value=address):
        list(execute(abs, TASKS, Executor("dask", scheduler=address)))


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"], ids=["none", "http"]
)
def test_another_server_raises_backend_unavailable_within_seconds(answer: bytes) -> None:
    kept: list[socket.socket] = []

    def serve(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):  # until the listener is closed
            while True:
                kept.append(listener.accept()[0])
                kept[-1].sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        address = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        start = time.monotonic()
        with raises(BackendUnavailable, parameter="scheduler", value=address):
            Executor("dask", scheduler=address).open()
        assert time.monotonic() - start < 15  # 5 s, and 10 s for a machine under load
        listener.shutdown(socket.SHUT_RDWR)
    for connection in kept:
        connection.close()


class Loaded:
    """A function that holds much, and counts how often it is unpacked; it leaves a file for each time."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.payload = folder, np.arange(250_000.0)

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        (self.folder / f"{os.getpid()}-{time.monotonic_ns()}").touch()

    def __call__(self, task: int) -> tuple[float, int]:
        time.sleep(0.02)
        return float(self.payload[task]), os.getpid()


def test_a_large_function_is_sent_once_to_each_worker(executor: Executor, tmp_path: Path) -> None:
    done = dict(execute(Loaded(tmp_path), range(60), executor))
    assert {task: value for task, (value, _) in done.items()} == {task: float(task) for task in range(60)}
    workers = {pid for _, pid in done.values()}
    assert len(workers) == 2, "all tasks went where the input was"
    unpacked = [int(path.name.partition("-")[0]) for path in tmp_path.iterdir()]
    assert set(unpacked) == workers
    # Dask may drop a copy while no task waits for it, and fetch it again; with every task it would be 60 times.
    assert len(unpacked) <= 2 * len(workers)


def test_a_large_function_survives_the_death_of_the_workers_that_have_it(executor: Executor, tmp_path: Path) -> None:
    results = execute(Loaded(tmp_path), range(80), executor)
    done = [next(results) for _ in range(10)]
    killed = list_workers(str(executor.scheduler))
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    done += results
    assert {task: value for task, (value, _) in done} == {task: float(task) for task in range(80)}
    assert {pid for _, (_, pid) in done} - set(killed), "no new worker continued"


class Shared:
    """A function whose tasks share an array, as those of a fit share the buffers of path sums."""

    def __init__(self) -> None:
        self.memory = np.zeros(10_000)

    def __call__(self, task: int) -> bool:
        self.memory[:] = task
        time.sleep(0.02)
        return bool(np.all(self.memory == task))


def test_threads_of_a_worker_take_turns(tmp_path: Path) -> None:
    with (
        cluster(tmp_path, workers=1, threads=4) as (address, _),
        pytest.warns(LimiirlWarning, match="4 threads"),
    ):
        results = dict(execute(Shared(), range(20), Executor("dask", workers=8, scheduler=address)))
    assert results == dict.fromkeys(range(20), True)


def test_a_session_keeps_its_connection_and_drops_unfinished_tasks(executor: Executor) -> None:
    with executor.session() as session:
        assert map_ordered(abs, [-3, -1, -2], session) == [3, 1, 2]
        results = execute(process, range(1000), session)
        next(results)
        results.close()  # type: ignore[attr-defined]
        assert list(session.map(str, TASKS)) == [str(task) for task in TASKS]
