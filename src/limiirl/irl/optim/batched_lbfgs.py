"""Several searches that ask for values one at a time, answered together: one pass over a large graph serves all."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from limiirl._typing import FloatArray

_Result = TypeVar("_Result")
# Whose errors come before those of the searches, which are numbered from 0.
_CALLER = -1


class Values(Protocol):
    """Values (J,) and gradients (J, d) of some of several functions."""

    def evaluate(self, thetas: FloatArray, which: NDArray[np.intp]) -> tuple[FloatArray, FloatArray]:
        """Return them at thetas (J, d) for the functions `which` (J,)."""
        ...


class _Stopped(BaseException):
    """Ends the searches that wait when one of them, or an evaluation, has failed."""


class BatchedEvaluator:
    """Runs K searches in threads of their own, and evaluates what they ask for in the caller's thread, all at once.

    A search sees an objective as if it were alone, so that it need not know of the others: its answers are the same to
    the last bit wherever the values of one function do not depend on which others are asked for. Everything heavy
    happens in the caller's thread, with its settings of threads and warnings.

    Examples
    --------
    >>> class Squares:
    ...     def evaluate(self, thetas, which):
    ...         return (thetas**2).sum(axis=1), 2.0 * thetas
    >>> def search(values, k):
    ...     return float(values.evaluate(np.array([[k + 1.0]]), np.array([k]))[0][0])
    >>> BatchedEvaluator(Squares()).run(search, 3)
    [1.0, 4.0, 9.0]
    """

    def __init__(self, objective: Values) -> None:
        self._objective = objective
        self._changed = threading.Condition()
        self._asked: dict[int, tuple[FloatArray, NDArray[np.intp]]] = {}
        self._answered: dict[int, tuple[FloatArray, FloatArray]] = {}
        self._live = 0
        self._failures: dict[int, BaseException] = {}

    def evaluate(self, thetas: FloatArray, which: NDArray[np.intp]) -> tuple[FloatArray, FloatArray]:
        """Ask for values from a search's thread, and wait for them."""
        me = threading.get_ident()
        with self._changed:
            self._asked[me] = (thetas, which)
            self._changed.notify_all()
            self._changed.wait_for(lambda: me in self._answered or self._failures)
            # An answer counts although another search failed since: which errors there are must not depend on who woke
            # first.
            if me not in self._answered:
                raise _Stopped
            return self._answered.pop(me)

    def run(self, search: Callable[[Values, int], _Result], n: int) -> list[_Result]:
        """Return what ``search(values, k)`` returns for k = 0, ..., n - 1.

        An error of one ends all; where several fail in the same step, that of the smallest k is raised.
        """
        results: dict[int, _Result] = {}

        def work(k: int) -> None:
            try:
                results[k] = search(self, k)
            except _Stopped:
                pass
            except BaseException as error:  # noqa: BLE001 (raised again in the caller's thread)
                self._fail(k, error)
            finally:
                with self._changed:
                    self._live -= 1
                    self._changed.notify_all()

        self._live = n
        threads = [threading.Thread(target=work, args=(k,), daemon=True) for k in range(n)]
        try:
            for thread in threads:
                thread.start()
            while self._serve():
                pass
        except BaseException as error:  # noqa: BLE001 (an interrupt as well: nobody may be left waiting)
            self._fail(_CALLER, error)
        for thread in threads:
            if thread.ident is not None:  # one that could not be started has nothing to end
                thread.join()
        if self._failures:
            raise self._failures[min(self._failures)]
        return [results[k] for k in range(n)]

    def _serve(self) -> bool:
        """Answer everybody once all that are left have asked; return whether anybody is left."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._asked) == self._live or self._failures)
            if self._live == 0 or self._failures:
                return False
            # In the order of the functions, so that nothing depends on which thread was first.
            waiting = sorted(self._asked.items(), key=lambda item: int(item[1][1][0]))
            self._asked = {}
        sizes = [which.size for _, (_, which) in waiting]
        values, gradients = self._objective.evaluate(
            np.concatenate([thetas for _, (thetas, _) in waiting]), np.concatenate([which for _, (_, which) in waiting])
        )
        ends = np.cumsum(sizes)
        with self._changed:
            for (who, _), end, size in zip(waiting, ends, sizes, strict=True):
                self._answered[who] = values[end - size : end], gradients[end - size : end]
            self._changed.notify_all()
        return True

    def _fail(self, who: int, error: BaseException) -> None:
        with self._changed:
            self._failures[who] = error
            self._changed.notify_all()
