"""Trips one by one on several threads, each with a desk of its own to search on; what both matchers share."""

from __future__ import annotations

import queue
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numba

from limiirl.errors import InvalidParameter
from limiirl.kernels.routing import Router, Streets, router
from limiirl.roads.matching.matches import TripMatch

Progress = Callable[[int, int], None]


def match_each(
    one: Callable[[int, Router], TripMatch],
    n: int,
    streets: Streets,
    threads: int | None,
    progress: Progress | None,
) -> list[TripMatch]:
    """Return one(i, desk) for i = 0, ..., n - 1, in this order whatever the threads.

    Parameters
    ----------
    one : callable
        Matches trip i on a desk that nobody else uses meanwhile.
    n : int
    streets : Streets
        That the desks are for.
    threads : int, optional
        As many as numba uses by default.
    progress : callable, optional
        Called with the number of trips done and of all.
    """
    if threads is not None and threads < 1:
        raise InvalidParameter(f"threads must be at least 1; it is {threads!r}.")
    n_threads = min(threads or numba.get_num_threads(), max(1, n))
    desks: queue.SimpleQueue[Router] = queue.SimpleQueue()
    for _ in range(n_threads):
        desks.put(router(streets))

    def with_desk(i: int) -> TripMatch:
        desk = desks.get()
        try:
            return one(i, desk)
        finally:
            desks.put(desk)

    found: list[TripMatch] = []
    with ThreadPoolExecutor(n_threads) as pool:
        # Without a second thread an interrupt reaches the one that works.
        for match in pool.map(with_desk, range(n)) if n_threads > 1 else map(with_desk, range(n)):
            found.append(match)
            if progress is not None:
                progress(len(found), n)
    return found
