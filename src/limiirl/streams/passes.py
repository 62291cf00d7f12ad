"""One pass over a store: the E-step and the sums that the next M-step needs, part by part.

A part's sums have the bits of the in-memory E-step on the same rows, whatever the windows and the worker. Sums over
parts are exact and rounded once, so that neither the order of parts nor the number of workers changes a bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from limiirl._parallel import Mapper, map_tasks
from limiirl._progress import Progress
from limiirl._typing import FloatArray
from limiirl.demos import Groups
from limiirl.errors import InvalidDemos, InvalidParameter
from limiirl.executors import Executor
from limiirl.irl import SUFFICIENT_STATISTICS, MaxEnt, MaxEntProblem, Moments, RowStatistics
from limiirl.irl.validate import max_length
from limiirl.kernels.e_step import Blocks, EStepSums, MixtureParameters, e_step_streamed
from limiirl.kernels.threading import BLOCK
from limiirl.mdp import MDP
from limiirl.mixture import IntentMixture, validate
from limiirl.streams.store import FeaturePart, FeatureStore, PartFacts


@contextmanager
def open_executor(executor: Mapper | None) -> Iterator[Mapper | None]:
    """Yield an executor whose workers remain until the end of the block."""
    if isinstance(executor, Executor):
        with executor.session() as session:
            yield session
    else:
        yield executor


# Rows that are mapped at a time; a multiple of the kernel's block, so that it does not matter for the result.
WINDOW = 32 * BLOCK


class SumTask(NamedTuple):
    """A part to sum up, under an ensemble; the change is measured from the ensemble before, if there is one."""

    part: FeaturePart
    now: MixtureParameters
    before: MixtureParameters | None
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
    >>> now = MixtureParameters(np.zeros((1, 2)), np.log([3.0]), np.zeros(1))
    >>> found = sum_part(SumTask(made.parts[0], now, None))
    >>> round(found.log_likelihood, 4), found.sizes.tolist(), found.features.tolist()
    (-2.1972, [2.0], [[1.0, 1.0]])
    """
    blocks = [e_step_streamed(rows, task.now, task.before) for rows in task.part.windows(task.window)]
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
                f"{task.part.name}, row {begin + bad} has probability 0 under every intent, or features that are not "
                "numbers. Write the features again, or bound the rewards.",
                parameter="store",
                value=task.part.name,
                index=begin + bad,
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
    now: MixtureParameters,
    before: MixtureParameters | None,
    *,
    executor: Mapper | None = None,
    window: int = WINDOW,
    progress: Progress | None = None,
) -> PartSums:
    """Return the sums of a whole store: one pass over it.

    Parameters
    ----------
    progress : callable, optional
        Called as ``progress(done, total, message)`` with the number of rows done; with an executor, done or in flight.
    """

    def tasks() -> Iterator[SumTask]:
        begun = 0
        for part in store.parts:
            yield SumTask(part, now, before, window)
            begun += part.facts.n
            if progress is not None:
                progress(begun, store.n, part.name)

    return combine(map_tasks(sum_part, tasks(), executor))


_INSTEAD = "Fit it in memory with IntentMixture.fit, on a sample of the demonstrations if need be."


def check_mixture(mixture: Any) -> None:
    """Raise `InvalidParameter` unless `mixture` is an IntentMixture."""
    if not isinstance(mixture, IntentMixture):
        raise InvalidParameter(
            f"mixture must be an IntentMixture for a stream; got a {type(mixture).__name__}.",
            parameter="mixture",
            value=mixture,
        )


def check_model(irl: Any) -> MaxEnt:
    """Return a model whose log-probabilities are theta . F(tau) + log q - log Z: feature sums are sufficient."""
    validate.model(irl)
    if not isinstance(irl, MaxEnt):
        raise InvalidParameter(
            f"irl must be a MaxEnt for a stream, which keeps feature sums only; {type(irl).__name__} needs every step. "
            f"{_INSTEAD}",
            parameter="irl",
            value=irl,
        )
    kind = type(irl)
    if SUFFICIENT_STATISTICS not in kind.supports:
        raise InvalidParameter(
            f"{kind.__name__} overrides the likelihood of MaxEnt; feature sums may not determine it. {_INSTEAD}",
            parameter="irl",
            value=irl,
        )
    if irl.condition != "none":
        raise InvalidParameter(
            f"condition must be 'none' for a stream, which does not keep start states; got {irl.condition!r}. "
            f"{_INSTEAD}",
            parameter="condition",
            value=irl.condition,
        )
    return irl


def check_facts(irl: MaxEnt, facts: PartFacts, name: str, mdp: MDP, longest: float | None = None) -> None:
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
            "Shorten it, or use a larger max_length.",
            parameter="max_length",
            value=facts.longest,
            index=facts.longest_at,
        )
    if irl.stop == "anywhere" or facts.loose is None:
        return
    if irl.stop == "terminal_or_max_length" and (longest is None or facts.loose == (longest, longest)):
        return
    raise InvalidDemos(
        f"{name}: demonstration {facts.loose_at} does not end in one of the {int(mdp.terminal.sum())} terminal states, "
        f"but the model has stop={irl.stop!r}. Use stop='anywhere', or mark its last state as terminal.",
        parameter="stop",
        value=irl.stop,
        index=facts.loose_at,
    )


@dataclass
class Remembered:
    """The ensemble of responsibilities (G, K), from which those of any row can be computed."""

    ensemble: MixtureParameters | None = None


@dataclass(frozen=True)
class Uncounted:
    """Groups of which only the number is known."""

    n: int
    noun: str
    grouped: bool

    def __len__(self) -> int:
        return self.n


class StoreStatistics:
    """The rows of a store: an E-step is one pass over them, whatever their number.

    Parameters
    ----------
    store : FeatureStore
    workers : limiirl.executors.Executor or Session, optional
        Where passes run; by default in this process, on its threads.
    window : int
        Rows in memory at a time.
    progress : callable, optional
        Called as ``progress(done, total, message)`` with the rows done in a pass.
    """

    def __init__(
        self,
        store: FeatureStore,
        *,
        workers: Mapper | None = None,
        window: int = WINDOW,
        progress: Progress | None = None,
    ) -> None:
        self.store, self.workers, self.window, self.progress = store, workers, window, progress
        self.n_demos = store.n_demos

    def allocate(self, n_intents: int) -> Remembered:
        """Return what `e_step` overwrites."""
        del n_intents
        return Remembered()

    def e_step(
        self, path_sums: Any, rho: FloatArray, thetas: FloatArray, U: Remembered, temperature: float
    ) -> tuple[EStepSums, Moments]:
        """Make U that of an ensemble, in one pass over the store."""
        now = MixtureParameters(thetas, path_sums.log_partition(thetas), np.log(rho), 1.0 / temperature)
        sums = sweep(self.store, now, U.ensemble, executor=self.workers, window=self.window, progress=self.progress)
        U.ensemble = now
        counts = sums.counts if self.store.by_group else sums.sizes
        moments = Moments(sums.features, counts, None)
        return EStepSums(sums.log_likelihood, sums.change, sums.sizes, sums.features, -1), moments

    def moments(self, U: Any) -> Moments:
        """Raise: a store keeps no responsibilities."""
        raise NotImplementedError

    def log_prob(self, path_sums: Any, thetas: FloatArray) -> FloatArray:
        """Raise: a store is not read as a whole; `assign` writes its responsibilities to files."""
        raise NotImplementedError

    def features(self) -> FloatArray:
        """Raise: a store is not read as a whole; `sample_problem` draws rows."""
        raise NotImplementedError


def stream_problem(
    model: MaxEnt, mdp: MDP, store: FeatureStore, *, window: int = WINDOW, progress: Progress | None = None
) -> MaxEntProblem:
    """Return the fit problem of a MaxEnt model and the rows of a store.

    The `max_length_` of the model is the longest demonstration of the store, unless its `max_length` is given.
    """
    store.check(mdp)
    check_model(model)
    longest = store.longest if model.max_length is None else max_length(model.max_length)
    for part in store.parts:
        check_facts(model, part.facts, part.name, mdp, longest)
    units = Uncounted(store.n, store.noun, store.by_group)
    path_sums = model.resolve_max_length(mdp, store.longest)
    return MaxEntProblem(model, mdp, None, units, path_sums, StoreStatistics(store, window=window, progress=progress))


def sample_problem(problem: MaxEntProblem, store: FeatureStore, n: int, rng: np.random.Generator) -> MaxEntProblem:
    """Return the problem of n rows drawn at random without replacement, in order; of all where there are fewer.

    The rows depend on the number of rows in the store, and not on its parts.
    """
    # Numpy draws a small fraction of many without a table of all.
    chosen = np.arange(store.n) if n >= store.n else np.sort(rng.choice(store.n, size=n, replace=False, shuffle=False))
    rows = store.take(chosen.astype(np.int64))
    index = np.arange(len(chosen), dtype=np.int64) if store.by_group else None
    units = Groups(index, rows.counts, chosen)
    statistics = RowStatistics(rows, units)
    return MaxEntProblem(problem.model, problem.mdp, None, units, problem.path_sums, statistics)
