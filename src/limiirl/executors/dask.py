"""Executors on clusters: Dask and Ray."""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import queue
import re
import socket
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, NamedTuple

from limiirl._version import __version__
from limiirl.errors import BackendUnavailable, LimiirlWarning
from limiirl.executors.local import AHEAD, Death, Ticket

_LOG = logging.getLogger(__name__)
_CONNECT_SECONDS = 5
_WORKERS_SECONDS = 30
# How long to wait for copies: one to a worker that dies meanwhile may take for ever, and tasks fetch what they need.
_COPY_SECONDS = 2
# A cluster may grow while we use it; asking its size costs a message.
_RESIZE_SECONDS = 2.0
_POLL_SECONDS = 0.005
# Ray's tasks for each worker at a time: at the end of a lot workers wait for the last, and nothing is yielded before.
_LOT = 8
# A function that holds more bytes than this, an MDP or demonstrations, is sent once and not with every task.
_LARGE = 16_384
_SAFE = "Start the run again when it is back: what a run has written to a folder is not done again."


def absent(executor: str) -> str:
    """Return what to do about an executor whose package is not installed.

    >>> absent("ray")
    "The executor 'ray' needs Ray, which is not installed. Install it: pip install ray."
    """
    package = {"dask": "'dask[distributed]'", "ray": "ray"}[executor]
    return (
        f"The executor '{executor}' needs {executor.capitalize()}, which is not installed. "
        f"Install it: pip install {package}."
    )


class _Raised(NamedTuple):
    """What a task has raised instead of returning something."""

    error: BaseException


class DaskPool:
    """A Dask cluster, by its own client.

    Not joblib's backend "dask": when the scheduler gives up a task because its workers died, joblib 1.6 is not told and
    waits for ever.
    """

    # The scheduler itself tries a task several times (distributed.scheduler.allowed-failures) before it tells us.
    rounds = 2

    def __init__(self, scheduler: str, workers: int | None) -> None:
        try:
            distributed = import_module("distributed")
        except ImportError as error:
            raise BackendUnavailable(absent("dask")) from error
        self._address, self._limit = scheduler, workers
        self._tickets: dict[Any, Ticket] = {}
        self._function: Callable[[Any], Any] = _version
        self._large = b""
        self._input: Any = None
        self._hush(True)
        try:
            self._client: Any = distributed.Client(self._address, timeout=_CONNECT_SECONDS, set_as_default=False)
        except Exception as error:  # of any kind: something that is no scheduler may answer with anything
            self._hush(False)
            raise BackendUnavailable(
                f"No Dask scheduler answers at {self._address} ({error}). "
                "Check the address and that `dask scheduler` runs there."
            ) from error
        self._ended: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()
        self._workers: dict[str, int] = {}
        self._warned = False
        self._asked = -_RESIZE_SECONDS
        self._alone_at = math.inf  # when it will have had no worker for long
        try:
            self._probe()
        except BaseException:
            self.close()
            raise
        self._alone_at = time.monotonic() + _WORKERS_SECONDS

    def _probe(self) -> None:
        # Not `wait_for_workers`: a cluster that adapts to its load starts workers only once there is a task.
        try:
            theirs = self._client.submit(_version, pure=False).result(timeout=_WORKERS_SECONDS)
        except TimeoutError as error:
            raise BackendUnavailable(
                f"The Dask scheduler at {self._address} had no worker within {_WORKERS_SECONDS} seconds. "
                f"Start some: dask worker {self._address} --nthreads 1."
            ) from error
        except ImportError as error:
            raise BackendUnavailable(
                f"The workers of the Dask scheduler at {self._address} cannot import limiirl ({error}). "
                "Start them in an environment like this one."
            ) from error
        if theirs != __version__:
            raise BackendUnavailable(
                f"The workers of the Dask scheduler at {self._address} have limiirl {theirs}, and here it is "
                f"{__version__}: they could compute other numbers. Start them in an environment like this one."
            )

    def use(self, function: Callable[[Any], Any]) -> None:
        """Take the function for the tasks that follow."""
        packed = import_module("distributed.protocol.pickle").dumps(function)
        self._function, self._large, self._input = function, b"", None
        if len(packed) > _LARGE:
            self._large = packed
            self._send()

    def _send(self) -> None:
        """Send a large function as a task of its own, whose result is then copied to every worker.

        Not by `scatter`: what was scattered is gone with the last worker that has it, while a task is done again.
        """
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sending large graph")  # this is where it is sent once
            self._input = self._client.submit(_unpacked, self._large, key=f"limiirl-input-{uuid.uuid4().hex}")
        while not self._input.done():
            self._check()
            time.sleep(_POLL_SECONDS)
        self._copy()

    def _copy(self) -> None:
        """Copy a large function to all workers; tasks only go where it is, unless an idle worker steals them."""
        if self._input is not None and self._input.status == "finished":
            try:
                self._client.replicate([self._input], callback_timeout=_COPY_SECONDS)
            except Exception as error:  # noqa: BLE001 (of any kind, since workers may come and go meanwhile)
                _LOG.debug("A copy of the input failed; tasks find it where it is. %s", error)

    def width(self) -> int:
        """How many tasks may be in flight."""
        self._look_around()
        return self._limit or AHEAD * max(1, len(self._workers))

    def _look_around(self) -> None:
        """Ask now and then who works: those that came get a copy of the input, and that all have gone is told."""
        now = time.monotonic()
        if now - self._asked < _RESIZE_SECONDS:
            return
        self._asked = now
        try:
            before, self._workers = self._workers, self._client.nthreads()
        except (OSError, RuntimeError) as error:
            raise self._gone() from error
        if self._workers.keys() - before.keys():
            self._copy()
        self._look_for_threads()
        if self._workers:
            self._alone_at = now + _WORKERS_SECONDS
        elif now >= self._alone_at:
            self._alone_at = math.inf  # it is said once, until some come
            warnings.warn(
                f"The Dask scheduler at {self._address} has had no worker for {_WORKERS_SECONDS} seconds. The run "
                f"waits, and goes on with what it has once there are some: dask worker {self._address} --nthreads 1.",
                LimiirlWarning,
                stacklevel=2,
            )

    def _look_for_threads(self) -> None:
        """Warn, once, of workers with several threads: tasks are run one at a time in a process."""
        most = max(self._workers.values(), default=1)
        if most > 1 and not self._warned:
            self._warned = True
            warnings.warn(
                f"Workers of the Dask scheduler at {self._address} have up to {most} threads, of which a task uses "
                "one and the others wait. Start as many workers as cores: dask worker ... --nworkers N --nthreads 1.",
                LimiirlWarning,
                stacklevel=2,
            )

    def submit(self, ticket: Ticket) -> None:
        """Send a task."""
        # Function and task travel as one callable, for Dask would look for its futures in a tuple or a list.
        if self._input is None:
            future = self._client.submit(functools.partial(self._function, ticket.task), pure=False)
        else:
            if self._input.status not in ("pending", "finished"):
                self._send()  # its worker died too often; the task is tried again, and so is this
            future = self._client.submit(functools.partial(_applied, ticket.task), self._input, pure=False)
        self._tickets[future] = ticket
        self._client.loop.add_callback(self._follow, future)

    async def _follow(self, future: Any) -> None:
        """Put the outcome of a task in the queue, when there is one.

        Not by `as_completed`: where a worker dies with a result, and the task is then given up, it tells nobody.
        """
        while True:
            try:
                (outcome,) = await self._client.gather([future], asynchronous=True)
            except BaseException as error:  # noqa: BLE001 (of any kind: it is raised where results are taken)
                if isinstance(error, OSError) and future.status != "error" and self._client.status == "running":
                    # Not the task's, but of a connection that broke: either it is there again, or the client will know.
                    await asyncio.sleep(_POLL_SECONDS)
                    continue
                outcome = _Raised(error)
            self._ended.put((future, outcome))
            return

    def collect(self) -> Iterator[tuple[Ticket, Any]]:
        """Wait until a task has ended, and give those that have."""
        from distributed import CancelledError, KilledWorker

        for future, outcome in (self._first(), *self._others()):
            ticket = self._tickets.pop(future, None)
            if ticket is None:
                continue  # it was dropped
            if not isinstance(outcome, _Raised):
                yield ticket, outcome
            elif isinstance(outcome.error, CancelledError) or self._client.status != "running":
                raise self._gone() from outcome.error
            elif isinstance(outcome.error, KilledWorker):
                killed = outcome.error
                # An address does not belong in a record that may be published.
                _LOG.warning("A task ended the worker at %s; its log may say why.", killed.last_worker.address)
                yield ticket, Death("The log of the last one may say why.", killed.allowed_failures + 1)
            else:
                raise outcome.error

    def _first(self) -> tuple[Any, Any]:
        """Wait for an outcome."""
        while True:
            try:
                return self._ended.get(timeout=_POLL_SECONDS)
            except queue.Empty:  # a result that was on its way when the scheduler went never comes
                self._check()

    def _others(self) -> Iterator[tuple[Any, Any]]:
        """Give the outcomes that have come as well."""
        while not self._ended.empty():
            yield self._ended.get()

    def _check(self) -> None:
        if self._client.status != "running" or any(future.cancelled() for future in self._tickets):
            raise self._gone()
        self._look_around()

    def _gone(self) -> BackendUnavailable:
        return BackendUnavailable(f"The Dask scheduler at {self._address} has gone away. {_SAFE}")

    def drop(self) -> None:
        """Forget the tasks that are in flight."""
        for future in self._tickets:  # others may hold it still, and the scheduler drops a task that nobody holds
            future.release()
        self._tickets.clear()

    def close(self) -> None:
        """Stop what still runs."""
        self.drop()
        self._input = None
        self._client.close(timeout=_CONNECT_SECONDS)
        self._hush(False)

    @staticmethod
    def _hush(quiet: bool) -> None:
        """Keep the client from logging tracebacks of a lost connection, of which our error tells in a sentence."""
        for name in ("distributed.client", "distributed.batched", "tornado.application"):
            logger = logging.getLogger(name)
            (logger.addFilter if quiet else logger.removeFilter)(_nothing)


def _version(_: Any = None) -> str:
    return __version__


def _unpacked(packed: bytes) -> Any:
    return import_module("distributed.protocol.pickle").loads(packed)


def _applied(task: Any, function: Callable[[Any], Any]) -> Any:
    return function(task)


def _nothing(_: logging.LogRecord) -> bool:
    return False


class RayPool:
    """A Ray cluster, by joblib's backend "ray"; it returns lists only, so tasks go in lots."""

    rounds = 3

    def __init__(self, scheduler: str | None, workers: int | None) -> None:
        try:
            import ray
            from ray.util.joblib import register_ray
        except ImportError as error:
            raise BackendUnavailable(absent("ray")) from error
        register_ray()
        self._function: Callable[[Any], Any] = _version
        self._ours = not ray.is_initialized()
        if self._ours:
            _knock(scheduler)
            ray.init(address=scheduler, log_to_driver=False)
        self._parallel: Any = None
        self._workers = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        self._tickets: list[Ticket] = []

    def use(self, function: Callable[[Any], Any]) -> None:
        """Take the function for the tasks that follow; here it travels with every one of them."""
        self._function = function

    def width(self) -> int:
        """How many tasks may be in flight."""
        return _LOT * self._workers

    def submit(self, ticket: Ticket) -> None:
        """Send a task."""
        self._tickets.append(ticket)

    def collect(self) -> Iterator[tuple[Ticket, Any]]:
        """Wait until a task has ended, and give those that have."""
        from joblib import Parallel, delayed
        from ray.exceptions import RayError

        lot, self._tickets = self._tickets, []
        if self._parallel is None:
            # Entered, so that the workers stay from lot to lot. A single job would run in this process.
            self._parallel = Parallel(n_jobs=max(2, self._workers), backend="ray", batch_size=1).__enter__()
        try:
            results = self._parallel(delayed(self._function)(ticket.task) for ticket in lot)
        except RayError as error:
            self._leave()
            results = [Death(str(error).partition("\n")[0])] * len(lot)
        yield from zip(lot, results, strict=True)

    def _leave(self) -> None:
        if self._parallel is not None:
            self._parallel.__exit__(None, None, None)
            self._parallel = None

    def drop(self) -> None:
        """Forget the tasks that are in flight."""
        self._tickets = []

    def close(self) -> None:
        """Stop what still runs."""
        import ray

        self._leave()
        if self._ours:
            ray.shutdown()


def _knock(address: str | None) -> None:
    """Raise if nobody listens at a Ray address with a port; Ray itself would try for minutes."""
    found = re.fullmatch(r"(?:ray://)?(.+):(\d+)", address or "")
    if found is None:
        return
    try:
        socket.create_connection((found[1], int(found[2])), timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        raise BackendUnavailable(
            f"No Ray cluster answers at {address} ({error}). Check the address and that `ray start --head` runs there."
        ) from error
