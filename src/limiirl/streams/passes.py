"""One pass over a store: the E-step and the sums that the next M-step needs, part by part.

A part's sums are those of the in-memory E-step on the same rows, to the last bit, whatever the size of the windows and
wherever it runs. Parts are added up exactly and rounded once, so that neither their order nor the number of workers
changes a bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from limiirl.errors import InvalidDemos
from limiirl.kernels.expectation import Blocks, Weighed, expect_forgetfully
from limiirl.kernels.parallel import BLOCK
from limiirl.mixture.spread import spread
from limiirl.streams.parts import Part
from limiirl.streams.store import FeatureStore
from limiirl.streams.workers import Workers

Float = NDArray[np.float64]
# Rows that are mapped at a time; a multiple of the kernel's block, so that it does not matter for the result.
WINDOW = 32 * BLOCK


class SumTask(NamedTuple):
    """A part to sum up, under an ensemble; the change is measured from the ensemble before, if there is one."""

    part: Part
    now: Weighed
    before: Weighed | None
    window: int = WINDOW


class PartSums(NamedTuple):
    """What a pass finds.

    Attributes
    ----------
    log_likelihood, change : float
        Sums over rows of the log-likelihood, and of the absolute change of responsibilities.
    sizes, counts : (K,)
        Sums of responsibilities, and of responsibilities times demonstrations a row.
    features : (K, d)
    """

    log_likelihood: float
    change: float
    sizes: Float
    features: Float
    counts: Float


def sum_part(task: SumTask) -> PartSums:
    """Return the sums of one part: a pure function of its task, for any worker.

    Examples
    --------
    >>> from limiirl.kernels.expectation import Rows
    >>> made = FeatureStore.generated(lambda i: Rows(np.eye(2), np.zeros(2), np.ones(2)), [2], 2, longest=2)
    >>> now = Weighed(np.zeros((1, 2)), np.log([3.0]), np.zeros(1))
    >>> found = sum_part(SumTask(made.parts[0], now, None))
    >>> round(found.log_likelihood, 4), found.sizes.tolist(), found.features.tolist()
    (-2.1972, [2.0], [[1.0, 1.0]])
    """
    blocks = [expect_forgetfully(rows, task.now, task.before) for rows in task.part.windows(task.window)]
    _check_rows(task, blocks)
    joined = Blocks(*(np.concatenate(arrays) for arrays in zip(*blocks, strict=True)))
    found = joined.total()
    return PartSums(found.log_likelihood, found.change, found.sizes, found.moments, joined.counts.sum(axis=0))


def _check_rows(task: SumTask, blocks: list[Blocks]) -> None:
    begin = 0
    for found in blocks:
        bad = found.total().bad_row
        if bad >= 0:
            raise InvalidDemos(
                f"{task.part.name}, row {begin + bad}: it has no probability under any intent, or its features are not "
                "numbers. Write the features anew, or bound the rewards."
            )
        begin += task.window


def combine(parts: Iterable[PartSums]) -> PartSums:
    """Return the sum over parts, exact but for one rounding, and hence the same in any order.

    Examples
    --------
    >>> one, tiny = (PartSums(x, 0.0, np.array([x]), np.zeros((1, 0)), np.array([x])) for x in (1.0, 1e-16))
    >>> combine([one, tiny, tiny]).sizes[0] == combine([tiny, tiny, one]).sizes[0] == 1.0 + 2e-16
    np.True_
    """
    columns = list(zip(*parts, strict=True))
    return PartSums(math.fsum(columns[0]), math.fsum(columns[1]), *(_exactly(arrays) for arrays in columns[2:]))


def _exactly(arrays: tuple[Float, ...]) -> Float:
    table = np.stack(arrays).reshape(len(arrays), -1)
    return np.array([math.fsum(column) for column in table.T.tolist()]).reshape(arrays[0].shape)


def sweep(
    store: FeatureStore,
    now: Weighed,
    before: Weighed | None,
    *,
    engine: Workers = None,
    window: int = WINDOW,
    progress: Callable[[int, int], None] | None = None,
) -> PartSums:
    """Return the sums of a whole store: one pass over it.

    Parameters
    ----------
    progress : callable, optional
        Called with the number of rows done and of all; with an engine, done or under way.
    """

    def tasks() -> Iterator[SumTask]:
        begun = 0
        for part in store.parts:
            yield SumTask(part, now, before, window)
            begun += part.facts.n
            if progress is not None:
                progress(begun, store.n)

    return combine(spread(sum_part, tasks(), engine))
