"""The backend of a Dask cluster."""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import time
import uuid
import warnings
from collections.abc import Callable, Collection
from concurrent.futures import Future
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from limiirl._version import __version__
from limiirl.errors import BackendUnavailable, LimiirlWarning
from limiirl.executors.local import AHEAD, TaskBackend

_LOG = logging.getLogger(__name__)
_CONNECT_SECONDS = 5
_WORKERS_SECONDS = 30
# Limit on copying: a copy to a worker that dies meanwhile may never end, and tasks fetch what they need.
_COPY_SECONDS = 2
# Seconds between two requests for the list of workers: a cluster may grow, and a request costs a message.
_RESIZE_SECONDS = 2.0
_RETRY_SECONDS = 0.005
# A function of more bytes than this, with an MDP or demonstrations, is sent once and not with every task.
_LARGE = 16_384


def check_dask() -> None:
    """Raise `BackendUnavailable` unless the package `distributed` is installed."""
    try:
        installed = find_spec("distributed") is not None
    except ValueError:  # None in sys.modules
        installed = False
    if not installed:
        raise BackendUnavailable(
            "The executor 'dask' needs Dask, which is not installed. Install it: pip install 'dask[distributed]'.",
            parameter="executor",
            value="dask",
        )


class DaskBackend(TaskBackend):
    """A Dask cluster, by its client.

    Neither joblib's backend "dask" nor `Client.get_executor`: both wait indefinitely for some tasks whose workers died
    (ADR 0010).
    """

    attempts = 2  # the scheduler itself retries a task (distributed.scheduler.allowed-failures) before it gives it up
    poll_s = 0.05

    def __init__(self, scheduler: str, workers: int | None) -> None:
        check_dask()
        distributed = import_module("distributed")
        super().__init__(None)
        self._address, self._limit = scheduler, workers
        self._function: Callable[[Any], Any] = _version
        self._packed = b""  # the function, if it is large
        self._input: Any = None  # the future of the large function
        self._remote: dict[Future[Any], Any] = {}  # the unfinished futures of Dask
        self._threads: dict[str, int] = {}  # per worker
        self._listed = -math.inf  # when the workers were listed
        self._warn_at = math.inf  # when to warn that there are no workers
        self._warned = False
        self._silence(True)
        try:
            self._client: Any = distributed.Client(self._address, timeout=_CONNECT_SECONDS, set_as_default=False)
        except Exception as error:  # any type: another server may answer with anything
            self._silence(False)
            raise self._unavailable(
                f"No Dask scheduler answers at {self._address} ({error}). "
                "Check the address and that `dask scheduler` runs there."
            ) from error
        try:
            self._check_workers()
        except BaseException:
            self.close()
            raise
        self._warn_at = time.monotonic() + _WORKERS_SECONDS

    def _unavailable(self, message: str) -> BackendUnavailable:
        return BackendUnavailable(message, parameter="scheduler", value=self._address)

    def _gone(self) -> BackendUnavailable:
        return self._unavailable(
            f"The Dask scheduler at {self._address} has gone away. Start the run again when it is back: results that "
            "were written to a folder are not computed again."
        )

    def _check_workers(self) -> None:
        # Not `wait_for_workers`: an adaptive cluster starts workers only once there is a task.
        try:
            version = self._client.submit(_version, pure=False).result(timeout=_WORKERS_SECONDS)
        except TimeoutError as error:
            raise self._unavailable(
                f"The Dask scheduler at {self._address} had no worker within {_WORKERS_SECONDS} seconds. "
                f"Start some: dask worker {self._address} --nthreads 1."
            ) from error
        except ImportError as error:
            raise self._unavailable(
                f"The workers of the Dask scheduler at {self._address} cannot import limiirl ({error}). "
                "Start them in an environment like this one."
            ) from error
        if version != __version__:
            raise self._unavailable(
                f"The workers of the Dask scheduler at {self._address} have limiirl {version}, this process has "
                f"{__version__}; results could differ. Start them in an environment like this one."
            )

    def load(self, function: Callable[[Any], Any]) -> None:
        """Set the function of the following tasks."""
        packed = import_module("distributed.protocol.pickle").dumps(function)
        self._function, self._packed, self._input = function, b"", None
        if len(packed) > _LARGE:
            self._packed = packed
            self._send()

    def _send(self) -> None:
        """Send a large function as a task, whose result is then copied to every worker.

        Not by `scatter`: scattered data are lost with the last worker that has them, while a task is computed again.
        """
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sending large graph")  # once
            self._input = self._client.submit(_unpack, self._packed, key=f"limiirl-input-{uuid.uuid4().hex}")
        while not self._input.done():
            self.check()
            time.sleep(_RETRY_SECONDS)
        self._copy()

    def _copy(self) -> None:
        """Copy a large function to all workers: tasks go where it is, unless an idle worker steals them."""
        if self._input is not None and self._input.status == "finished":
            try:
                self._client.replicate([self._input], callback_timeout=_COPY_SECONDS)
            except Exception as error:  # noqa: BLE001 (any type: workers may come and go meanwhile)
                _LOG.debug("Copying the input failed; tasks fetch it. %s", error)

    def width(self) -> int:
        """Return how many tasks may be in flight."""
        self._list_workers()
        return self._limit or AHEAD * max(1, len(self._threads))

    def _list_workers(self) -> None:
        """List the workers at intervals: copy the input to new ones, and warn if there are none."""
        now = time.monotonic()
        if now - self._listed < _RESIZE_SECONDS:
            return
        self._listed = now
        try:
            before, self._threads = self._threads, self._client.nthreads()
        except (OSError, RuntimeError) as error:
            raise self._gone() from error
        if self._threads.keys() - before.keys():
            self._copy()
        threads = max(self._threads.values(), default=1)
        if threads > 1 and not self._warned:
            self._warned = True
            self._warn(
                f"Workers of the Dask scheduler at {self._address} have up to {threads} threads, of which a task uses "
                "one. Start as many workers as cores: dask worker ... --nworkers N --nthreads 1."
            )
        if self._threads:
            self._warn_at = now + _WORKERS_SECONDS
        elif now >= self._warn_at:
            self._warn_at = math.inf  # once, until some come
            self._warn(
                f"The Dask scheduler at {self._address} has had no worker for {_WORKERS_SECONDS} seconds. The run "
                f"continues once there are some: dask worker {self._address} --nthreads 1."
            )

    @staticmethod
    def _warn(message: str) -> None:
        warnings.warn(message, LimiirlWarning, stacklevel=2)

    def submit(self, task: Any) -> Future[Any]:
        """Submit a task."""
        # Function and task are one callable, since Dask would look for futures in a tuple or a list.
        if self._input is None:
            remote = self._client.submit(functools.partial(self._function, task), pure=False)
        else:
            if self._input.status not in ("pending", "finished"):
                self._send()  # its workers died too often; the task is tried again, and so is this
            remote = self._client.submit(functools.partial(_call, task), self._input, pure=False)
        future: Future[Any] = Future()
        self._remote[future] = remote
        self._client.loop.add_callback(self._fetch, remote, future)
        return future

    async def _fetch(self, remote: Any, future: Future[Any]) -> None:
        """Fetch the result of a task.

        Not by `as_completed` or callbacks of the future: neither reports a task that is given up after its result was
        lost with a worker.
        """
        while True:
            try:
                (result,) = await self._client.gather([remote], asynchronous=True)
            except BaseException as error:  # noqa: BLE001 (any type: it is raised where results are consumed)
                if isinstance(error, OSError) and remote.status != "error" and self._client.status == "running":
                    # Of a broken connection, not of the task: it is restored, or the client notices.
                    await asyncio.sleep(_RETRY_SECONDS)
                    continue
                future.set_exception(error)
            else:
                future.set_result(result)
            self._remote.pop(future, None)
            return

    def check(self) -> None:
        """Raise `BackendUnavailable` if the scheduler has gone; a result that was on its way then never comes."""
        if self._client.status != "running" or any(remote.cancelled() for remote in list(self._remote.values())):
            raise self._gone()
        self._list_workers()

    def explain(self, error: BaseException) -> tuple[int, str]:
        """Return how many workers a task has ended, or raise its error."""
        from distributed import CancelledError, KilledWorker

        if isinstance(error, CancelledError) or self._client.status != "running":
            raise self._gone() from error
        if not isinstance(error, KilledWorker):
            raise error
        # Only logged: an address does not belong in a record that may be published.
        _LOG.warning("A task ended the worker at %s; its log may say why.", error.last_worker.address)
        return error.allowed_failures + 1, "The log of the last one may say why."

    def discard(self, futures: Collection[Future[Any]]) -> None:
        """Release the futures of Dask: the scheduler drops a task that no client holds."""
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
        """Keep the client from logging tracebacks of a lost connection; our error reports it."""
        for name in ("distributed.client", "distributed.batched", "tornado.application"):
            logger = logging.getLogger(name)
            (logger.addFilter if quiet else logger.removeFilter)(_drop_record)


def _version(_: Any = None) -> str:
    return __version__


def _unpack(packed: bytes) -> Any:
    return import_module("distributed.protocol.pickle").loads(packed)


def _call(task: Any, function: Callable[[Any], Any]) -> Any:
    return function(task)


def _drop_record(_: logging.LogRecord) -> bool:
    return False
