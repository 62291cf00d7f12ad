"""One pass over a store: the E-step and the sums that the next M-step needs, part by part.

A part's sums are those of the in-memory E-step on the same rows, to the last bit, whatever the size of the windows and
wherever it runs. Parts are added up exactly and rounded once, so that neither their order nor the number of workers
changes a bit.

Workers that stay for all passes over a stream.

Which models can be fitted to sums of features alone, and whether demonstrations belong to one.

A MaxEnt model with a store of features: what EM asks of data that it never sees as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from limiirl._parallel import map_tasks
from limiirl._typing import FloatArray
from limiirl.demos import Groups
from limiirl.errors import InvalidDemos, InvalidParameter
from limiirl.executors import Executor, Session
from limiirl.irl import Expectation, MaxEnt, Moments, PreparedRows, PreparedSums
from limiirl.irl.validate import max_length
from limiirl.kernels.e_step import Blocks, Weighed, expect_forgetfully
from limiirl.kernels.threading import BLOCK
from limiirl.mdp import MDP
from limiirl.mixture import IntentMixture, validate
from limiirl.streams.store import Facts, FeatureStore, Part

Workers = Executor | Session | None


@contextmanager
def opened(executor: Workers) -> Iterator[Workers]:
    """Yield an executor whose workers stay until the end of the block, for many passes.

    Examples
    --------
    >>> with opened(Executor(workers=1)) as workers:
    ...     list(workers.map(abs, [-2])), list(workers.map(abs, [-3]))
    ([2], [3])
    """
    if isinstance(executor, Executor):
        with executor.session() as session:
            yield session
    else:
        yield executor


def check_progress(progress: object) -> None:
    """Check that there is somebody to tell, if anybody."""
    if progress is not None and not callable(progress):
        raise InvalidParameter(f"progress must be a function of what is done and of all, or None; it is {progress!r}.")


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
    sizes: FloatArray
    features: FloatArray
    counts: FloatArray


def sum_part(task: SumTask) -> PartSums:
    """Return the sums of one part: a pure function of its task, for any worker.

    Examples
    --------
    >>> from limiirl.kernels.e_step import Rows
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


def _exactly(arrays: tuple[FloatArray, ...]) -> FloatArray:
    table = np.stack(arrays).reshape(len(arrays), -1)
    return np.array([math.fsum(column) for column in table.T.tolist()]).reshape(arrays[0].shape)


def sweep(
    store: FeatureStore,
    now: Weighed,
    before: Weighed | None,
    *,
    executor: Workers = None,
    window: int = WINDOW,
    progress: Callable[[int, int], None] | None = None,
) -> PartSums:
    """Return the sums of a whole store: one pass over it.

    Parameters
    ----------
    progress : callable, optional
        Called with the number of rows done and of all; with an executor, done or under way.
    """

    def tasks() -> Iterator[SumTask]:
        begun = 0
        for part in store.parts:
            yield SumTask(part, now, before, window)
            begun += part.facts.n
            if progress is not None:
                progress(begun, store.n)

    return combine(map_tasks(sum_part, tasks(), executor))


_INSTEAD = "Fit it in memory with IntentMixture.fit, on a sample of the demonstrations if need be."


def check_mixture(mixture: Any) -> None:
    """Check that it is EM that a stream is to serve."""
    if not isinstance(mixture, IntentMixture):
        raise InvalidParameter(f"mixture must be an IntentMixture for a stream; it is a {type(mixture).__name__}.")


def check_model(irl: Any) -> MaxEnt:
    """Return a model whose log-probabilities are theta . F(tau) + log q - log Z, so that sums of features say all.

    Examples
    --------
    >>> from limiirl import MaxCausalEnt
    >>> check_model(MaxCausalEnt())
    Traceback (most recent call last):
    limiirl.errors.InvalidParameter: A stream keeps one row of feature sums a demonstration, which is all that MaxEnt...
    """
    validate.model(irl)
    if not isinstance(irl, MaxEnt):
        raise InvalidParameter(
            "A stream keeps one row of feature sums a demonstration, which is all that MaxEnt looks at; "
            f"{type(irl).__name__} looks at every step. {_INSTEAD}"
        )
    kind = type(irl)
    if any(getattr(kind, name) is not getattr(MaxEnt, name) for name in ("log_prob", "fit", "_fit", "prepare")):
        raise InvalidParameter(
            f"{kind.__name__} has a likelihood of its own, which sums of features may not determine. {_INSTEAD}"
        )
    if irl.condition != "none":
        raise InvalidParameter(
            f"condition={irl.condition!r} needs where each demonstration begins, which sums of features do not say. "
            f"Use condition='none'. {_INSTEAD}"
        )
    return irl


def check_facts(irl: MaxEnt, facts: Facts, name: str, mdp: MDP, longest: float | None = None) -> None:
    """Check that the demonstrations of a part are among the trajectories of a model.

    Parameters
    ----------
    longest : float, optional
        The model's largest length where the longest demonstration settles it, and it is known.
    """
    if irl.max_length is not None:
        longest = max_length(irl.max_length)
    if longest is not None and facts.longest > longest:
        raise InvalidDemos(
            f"{name}: demonstration {facts.longest_at} has {facts.longest} states, more than max_length = {longest}. "
            "Shorten it, or use a larger max_length."
        )
    if irl.stop == "anywhere" or facts.loose is None:
        return
    if irl.stop == "terminal_or_max_length" and (longest is None or facts.loose == (longest, longest)):
        return
    raise InvalidDemos(
        f"{name}: demonstration {facts.loose_at} does not end in one of the {int(mdp.terminal.sum())} terminal states, "
        f"but the model has stop={irl.stop!r}. Use stop='anywhere', or mark its last state as terminal."
    )


@dataclass
class Remembered:
    """Stands for responsibilities (G, K): the ensemble that they belong to, from which any row's can be made."""

    ensemble: Weighed | None = None


@dataclass(frozen=True)
class Uncounted:
    """Units that are known by number only."""

    n: int
    noun: str
    grouped: bool

    def __len__(self) -> int:
        return self.n


class PreparedStream(PreparedSums):
    """The rows of a store under a MaxEnt model: an E-step is one pass, whatever their number.

    Parameters
    ----------
    model : MaxEnt
        Its `max_length_` is settled by the longest demonstration of the store, unless it is given.
    store : FeatureStore
    workers : Executor or Session, optional
        Where passes run; by default in this process, on its threads.
    window : int
        Rows in memory at a time.
    progress : callable, optional
        Called with the rows done in a pass, and all.
    """

    def __init__(
        self,
        model: MaxEnt,
        mdp: MDP,
        store: FeatureStore,
        *,
        workers: Workers = None,
        window: int = WINDOW,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        store.check(mdp)
        check_model(model)
        longest = store.longest if model.max_length is None else max_length(model.max_length)
        for part in store.parts:
            check_facts(model, part.facts, part.name, mdp, longest)
        units = Uncounted(store.n, store.noun, store.by_group)
        super().__init__(model, mdp, None, units, model.settle(mdp, store.longest), store.n_demos)
        self.store, self.workers, self.window, self.progress = store, workers, window, progress

    def blank(self, n_intents: int) -> Remembered:
        """Return what `expect` overwrites."""
        del n_intents
        return Remembered()

    def expect(self, rho: FloatArray, thetas: FloatArray, U: Any, temperature: float = 1.0) -> Expectation:
        """Make U (a `Remembered`) that of an ensemble; see `Prepared.expect`."""
        now = Weighed(thetas, self.engine.log_partition(thetas), np.log(rho), 1.0 / temperature)
        found = sweep(self.store, now, U.ensemble, executor=self.workers, window=self.window, progress=self.progress)
        U.ensemble = now
        counts = found.counts if self.units.grouped else found.sizes
        return Expectation(
            found.log_likelihood, found.change / len(self.units), found.sizes, Moments(found.features, counts, None)
        )

    def sample(self, n: int, rng: np.random.Generator) -> PreparedRows:
        """Return n rows drawn at random without replacement, in order, under the same model; all where there are fewer.

        Which they are depends on the number of rows in the store, and not on its parts.
        """
        total = len(self.units)
        # Numpy draws a small share of many without a table of all.
        chosen = np.arange(total) if n >= total else np.sort(rng.choice(total, size=n, replace=False, shuffle=False))
        rows = self.store.take(chosen.astype(np.int64))
        index = np.arange(len(chosen), dtype=np.int64) if self.units.grouped else None
        units = Groups(index, rows.counts, chosen)
        return PreparedRows(self.model, self.mdp, None, units, self.engine, rows)
