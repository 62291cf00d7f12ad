"""One thread for the libraries below numpy, where several cost time, or make the last bits depend on the machine."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController


def one_thread(user_api: str | None = None) -> AbstractContextManager[Any]:
    """Return a context in which libraries have one thread: several add up in any order, and bits would differ.

    Parameters
    ----------
    user_api : {"blas", "openmp"}, optional
        Limit this kind alone: with "blas", the kernels' own loops keep their threads.

    Examples
    --------
    >>> from threadpoolctl import threadpool_info
    >>> import numpy
    >>> with one_thread("blas"):
    ...     {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}
    {1}
    """
    found: AbstractContextManager[Any] = _libraries(user_api).limit(limits=1, user_api=user_api)
    return found


@cache
def _libraries(user_api: str | None) -> ThreadpoolController:
    """Return the libraries that are loaded when first asked for, which takes milliseconds to find out.

    More may be loaded between the first limit of linear algebra and that of all, so that both are asked for apart.
    """
    del user_api
    return ThreadpoolController()
