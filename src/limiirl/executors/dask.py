"""Executor backend for a Dask cluster."""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Collection
from concurrent.futures import Future
from importlib import import_module
from typing import Any

from limiirl._version import __version__
from limiirl.errors import BackendUnavailable, LimiirlWarning
from limiirl.executors.local import TASKS_PER_WORKER, TaskBackend

_LOG = logging.getLogger(__name__)
_CONNECT_SECONDS = 5
_WORKERS_SECONDS = 30
# Timeout in seconds of replication, which may block if a worker exits. After a timeout, each task fetches the input.
_COPY_SECONDS = 2
# Interval in seconds between requests for the list of workers, because a cluster may add workers.
_RESIZE_SECONDS = 2.0
_RETRY_SECONDS = 0.005
# Size in bytes above which a function, such as one that contains an MDP, is sent once instead of with every task.
_LARGE = 16_384


def check_dask() -> None:
    """Raise `BackendUnavailable` unless the package `distributed` is installed."""
    try:
        import_module("distributed")
    except ImportError:
        message = 'The executor "dask" requires Dask. Install it with pip install "dask[distributed]".'
        raise BackendUnavailable(message, parameter="executor", value="dask") from None


class DaskBackend(TaskBackend):
    """Backend that submits tasks to a Dask cluster.

    joblib's backend "dask" and `Client.get_executor` are not used, because both can block forever if a worker exits
    (ADR 0010).
    """

    attempts = 2  # in addition to the retries of the scheduler (distributed.scheduler.allowed-failures)
    poll_s = 0.05

    def __init__(self, scheduler: str, workers: int | None) -> None:
        check_dask()
        distributed = import_module("distributed")
        super().__init__(None)
        self._address, self._limit = scheduler, workers
        self._function: Callable[[Any], Any] = _version
        self._packed = b""  # pickled function, if it is large
        self._input: Any = None  # Dask future of a large function
        self._remote: dict[Future[Any], Any] = {}  # the Dask future of each unfinished future
        self._threads: dict[str, int] = {}  # number of threads per worker
        self._listed = -math.inf  # time of the last request for the list of workers
        self._warn_at = math.inf  # time at which to warn if the cluster has no workers
        self._warned = False
        self._silence(True)
        try:
            _probe(self._address)
            self._client: Any = distributed.Client(self._address, timeout=_CONNECT_SECONDS, set_as_default=False)
        except Exception as error:  # any type: another server may run at this address
            self._silence(False)
            reason = str(error) or f"no answer within {_CONNECT_SECONDS} seconds"
            if isinstance(error, MemoryError):  # raised for a message length that is text of another protocol
                reason = "another server answers"
            message = f"There is no Dask scheduler at {self._address} ({reason:.200}). Check the address."
            raise self._unavailable(message) from error
        try:
            self._check_workers()
        except BaseException:
            self.close()
            raise
        self._warn_at = time.monotonic() + _WORKERS_SECONDS

    def _unavailable(self, message: str) -> BackendUnavailable:
        return BackendUnavailable(message, parameter="scheduler", value=self._address)

    def _connection_error(self) -> BackendUnavailable:
        remedy = "Restart the run; results that were already written to a folder are not recomputed."
        return self._unavailable(f"The connection to the Dask scheduler at {self._address} was lost. {remedy}")

    def _check_workers(self) -> None:
        # `wait_for_workers` would block, because an adaptive cluster starts workers only if there is a task.
        workers = f"The workers of the Dask scheduler at {self._address}"
        remedy = f"Install limiirl {__version__} and its dependencies on the workers, and restart them."
        try:
            version = self._client.submit(_version, pure=False).result(timeout=_WORKERS_SECONDS)
        except TimeoutError as error:
            what = f"had no worker within {_WORKERS_SECONDS} seconds"
            remedy = f"Start workers: dask worker {self._address} --nthreads 1."
            raise self._unavailable(f"The Dask scheduler at {self._address} {what}. {remedy}") from error
        except ImportError as error:
            raise self._unavailable(f"{workers} cannot import limiirl ({error}). {remedy}") from error
        if version != __version__:
            what = f"run limiirl {version}, but this process runs {__version__}, so results could differ"
            raise self._unavailable(f"{workers} {what}. {remedy}")

    def load(self, function: Callable[[Any], Any]) -> None:
        """Set the function that subsequent tasks call."""
        packed = import_module("distributed.protocol.pickle").dumps(function)
        self._function, self._packed, self._input = function, b"", None
        if len(packed) > _LARGE:
            self._packed = packed
            self._send()

    def _send(self) -> None:
        """Send the function as the result of a task, and replicate this result to every worker.

        If all workers that store the result exit, Dask recomputes it; scattered data would be lost.
        """
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sending large graph")
            self._input = self._client.submit(_unpack, self._packed, key=f"limiirl-input-{uuid.uuid4().hex}")
        while not self._input.done():
            self.check()
            time.sleep(_RETRY_SECONDS)
        self._copy()

    def _copy(self) -> None:
        if self._input is not None and self._input.status == "finished":
            try:
                self._client.replicate([self._input], callback_timeout=_COPY_SECONDS)
            except Exception as error:  # noqa: BLE001 (any type: workers may exit meanwhile)
                _LOG.debug("Could not replicate the input; each task will fetch it instead. %s", error)

    def width(self) -> int:
        """Return the maximum number of unfinished tasks."""
        self._list_workers()
        return self._limit or TASKS_PER_WORKER * max(1, len(self._threads))

    def _list_workers(self) -> None:
        """Update the list of workers, replicate the input to new workers, and warn if there are no workers."""
        now = time.monotonic()
        if now - self._listed < _RESIZE_SECONDS:
            return
        self._listed = now
        try:
            before, self._threads = self._threads, self._client.nthreads()
        except (OSError, RuntimeError) as error:
            raise self._connection_error() from error
        if self._threads.keys() - before.keys():
            self._copy()
        threads = max(self._threads.values(), default=1)
        if threads > 1 and not self._warned:
            self._warned = True
            what = f"have up to {threads} threads, but a task uses only one"
            remedy = "Start one worker per core: dask worker ... --nworkers N --nthreads 1."
            message = f"Workers of the Dask scheduler at {self._address} {what}. {remedy}"
            warnings.warn(message, LimiirlWarning, stacklevel=2)
        if self._threads:
            self._warn_at = now + _WORKERS_SECONDS
        elif now >= self._warn_at:
            self._warn_at = math.inf  # warn once, and again only after workers were available
            what = f"has had no worker for {_WORKERS_SECONDS} seconds. The run continues when a worker is started"
            remedy = f"dask worker {self._address} --nthreads 1."
            message = f"The Dask scheduler at {self._address} {what}: {remedy}"
            warnings.warn(message, LimiirlWarning, stacklevel=2)

    def submit(self, task: Any) -> Future[Any]:
        """Submit a task."""
        # Bind the task to the function, because Dask searches arguments that are tuples or lists for futures.
        if self._input is None:
            remote = self._client.submit(functools.partial(self._function, task), pure=False)
        else:
            if self._input.status not in ("pending", "finished"):
                self._send()  # all workers that stored the function exited; sending it is retried like a task
            remote = self._client.submit(functools.partial(_call, task), self._input, pure=False)
        future: Future[Any] = Future()
        self._remote[future] = remote
        self._client.loop.add_callback(self._fetch, remote, future)
        return future

    async def _fetch(self, remote: Any, future: Future[Any]) -> None:
        """Copy the result or error of a Dask future into `future`.

        The result is requested explicitly: `as_completed` and callbacks do not report a task that is run again after
        its worker was lost, and then fails.
        """
        while True:
            try:
                (result,) = await self._client.gather([remote], asynchronous=True)
            except BaseException as error:  # noqa: BLE001 (any type: `execute` raises it)
                if isinstance(error, OSError) and remote.status != "error" and self._client.status == "running":
                    # The connection failed, not the task. Dask reconnects, or changes the status of the client.
                    await asyncio.sleep(_RETRY_SECONDS)
                    continue
                future.set_exception(error)
            else:
                future.set_result(result)
            self._remote.pop(future, None)
            return

    def check(self) -> None:
        """Raise `BackendUnavailable` if the connection to the scheduler was lost."""
        if self._client.status != "running" or any(remote.cancelled() for remote in list(self._remote.values())):
            raise self._connection_error()
        self._list_workers()

    def explain(self, error: BaseException) -> tuple[int, str]:
        """Return the number of exited workers and a hint for the message; re-raise the error of a failed task."""
        from distributed import CancelledError, KilledWorker

        if isinstance(error, CancelledError) or self._client.status != "running":
            raise self._connection_error() from error
        if not isinstance(error, KilledWorker):
            raise error
        # Results may be published, so the address is only logged.
        _LOG.warning("The worker at %s exited while running a task; see its log.", error.last_worker.address)
        return error.allowed_failures + 1, "See the log of the last worker."

    def discard(self, futures: Collection[Future[Any]]) -> None:
        """Release the Dask futures, so that the scheduler cancels their tasks."""
        for future in futures:
            remote = self._remote.pop(future, None)
            if remote is not None:
                remote.release()

    def close(self) -> None:
        """Close the connection."""
        self._input = None
        self._client.close(timeout=_CONNECT_SECONDS)
        self._silence(False)

    @staticmethod
    def _silence(quiet: bool) -> None:
        """Suppress log messages about a lost connection, because `check` raises an error."""
        for name in ("distributed.client", "distributed.batched", "tornado.application"):
            logger = logging.getLogger(name)
            (logger.addFilter if quiet else logger.removeFilter)(_drop_record)


def _probe(address: str) -> None:
    """Raise unless a Dask scheduler answers within `_CONNECT_SECONDS`.

    `distributed.Client` exceeds its timeout if a server accepts the connection but does not answer, and its finaliser
    prints errors if the server is not a Dask scheduler.
    """

    async def connect() -> None:
        core, security = import_module("distributed.core"), import_module("distributed.security").Security()
        limit, options = _CONNECT_SECONDS, security.get_connection_args("client")
        comm = await asyncio.wait_for(core.connect(address, timeout=limit, **options), limit)
        comm.abort()

    def run() -> None:
        try:
            asyncio.run(connect())
        except Exception as error:  # noqa: BLE001 (any type: another server may run at this address)
            errors.append(error)

    errors: list[Exception] = []
    # Use a thread, because a notebook has a running event loop, and another server may delay the cancellation.
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(_CONNECT_SECONDS + 0.5)
    if thread.is_alive() or errors:
        raise errors[0] if errors else TimeoutError


def _version(_: Any = None) -> str:
    return __version__


def _unpack(packed: bytes) -> Any:
    return import_module("distributed.protocol.pickle").loads(packed)


def _call(task: Any, function: Callable[[Any], Any]) -> Any:
    return function(task)


def _drop_record(_: logging.LogRecord) -> bool:
    return False
