"""Passes over a store: the E-step with the sums for the next M-step, shard by shard, and `assign`.

The sums of a shard are bit-identical to the in-memory E-step on the same rows, for any window size. Sums over shards
are computed exactly and rounded once, so that they do not depend on the order of the shards or the number of workers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from limiirl._parallel import BLOCK, Mapper, map_tasks
from limiirl._progress import Progress, check_progress
from limiirl._typing import FloatArray
from limiirl.demos import Groups
from limiirl.errors import InvalidDemos, InvalidParameter
from limiirl.executors import Executor
from limiirl.irl import SUFFICIENT_STATISTICS, MaxEnt, MaxEntProblem, Moments, RowStatistics
from limiirl.irl import validate as model_validate
from limiirl.kernels.e_step import Blocks, EStepSums, MixtureParameters, e_step, e_step_streamed
from limiirl.mdp import MDP
from limiirl.mixture import IntentMixture, Membership, validate
from limiirl.streams.store import FeatureShard, FeatureStore, ShardInfo, as_store, file_error, is_scratch, make_folder

# Rows in memory at a time; a multiple of the block size of the kernel, so that it does not affect the result.
WINDOW = 32 * BLOCK


@contextmanager
def open_executor(executor: Mapper | None) -> Iterator[Mapper | None]:
    """Context in which a session of the executor is open."""
    if isinstance(executor, Executor):
        with executor.session() as session:
            yield session
    else:
        yield executor


class SumTask(NamedTuple):
    """A shard with the current and the previous parameters, whose responsibilities are compared."""

    shard: FeatureShard
    now: MixtureParameters
    before: MixtureParameters | None
    window: int = WINDOW


class ShardSums(NamedTuple):
    """E-step sums over rows i with responsibilities u, features F and n_i demonstrations."""

    log_likelihood: float
    change: float  # sum of |u - previous u|
    sizes: FloatArray  # (K,): sum_i u_ik
    features: FloatArray  # (K, d): sum_i u_ik F_i
    counts: FloatArray  # (K,): sum_i u_ik n_i


def sum_shard(task: SumTask) -> ShardSums:
    """Return the E-step sums of one shard."""
    windows = [e_step_streamed(rows, task.now, task.before) for rows in task.shard.windows(task.window)]
    for i, window in enumerate(windows):
        row = window.total().bad_row
        if row >= 0:
            row, name = row + i * task.window, task.shard.name
            message = f"{name}, row {row} has probability 0 under every intent, or features that are not finite."
            remedy = "Write the features again, or set bounds for the rewards."
            raise InvalidDemos(f"{message} {remedy}", parameter="store", value=name, index=row)
    blocks = Blocks(*(np.concatenate(arrays) for arrays in zip(*windows, strict=True)))
    total = blocks.total()
    return ShardSums(total.log_likelihood, total.change, total.sizes, total.moments, blocks.counts.sum(axis=0))


def combine(shards: Iterable[ShardSums]) -> ShardSums:
    """Return the sum over shards, rounded once (`math.fsum`) and hence independent of the order of the shards."""
    columns = list(zip(*shards, strict=True))
    return ShardSums(math.fsum(columns[0]), math.fsum(columns[1]), *(_fsum(arrays) for arrays in columns[2:]))


def _fsum(arrays: tuple[FloatArray, ...]) -> FloatArray:
    table = np.stack(arrays).reshape(len(arrays), -1)
    return np.array([math.fsum(column) for column in table.T.tolist()]).reshape(arrays[0].shape)


def sum_store(
    store: FeatureStore,
    now: MixtureParameters,
    before: MixtureParameters | None,
    *,
    executor: Mapper | None = None,
    window: int = WINDOW,
    progress: Progress | None = None,
) -> ShardSums:
    """Return the E-step sums of a store, in one pass over it."""
    tasks = (SumTask(shard, now, before, window) for shard in iterate_shards(store, progress))
    return combine(map_tasks(sum_shard, tasks, executor))


def iterate_shards(store: FeatureStore, progress: Progress | None) -> Iterator[FeatureShard]:
    """Yield the shards; call `progress` with the number of rows that are processed or, with an executor, submitted."""
    submitted = 0
    for shard in store.shards:
        yield shard
        submitted += shard.info.n
        if progress is not None:
            progress(submitted, store.n, shard.name)


_IN_MEMORY = "Use IntentMixture.fit, on a sample of the demonstrations if necessary."


def check_mixture(mixture: Any) -> None:
    """Raise `InvalidParameter` unless `mixture` is an IntentMixture."""
    if not isinstance(mixture, IntentMixture):
        raise InvalidParameter.of("mixture", mixture, "must be an IntentMixture for a stream")


def check_model(irl: Any) -> MaxEnt:
    """Return a model with log p = theta . F(tau) + log q - log Z, for which feature sums are sufficient statistics."""
    validate.check_irl(irl)
    if not isinstance(irl, MaxEnt):
        rule = "must be a MaxEnt for a stream: feature sums are not sufficient for other models"
        raise InvalidParameter.of("irl", irl, rule, remedy=_IN_MEMORY)
    if SUFFICIENT_STATISTICS not in type(irl).supports:
        rule = "must not override the likelihood of MaxEnt: feature sums might not be sufficient"
        raise InvalidParameter.of("irl", irl, rule, remedy=_IN_MEMORY)
    if irl.condition != "none":
        rule = "must be 'none' for a stream, which does not store start states"
        raise InvalidParameter.of("condition", irl.condition, rule, remedy=_IN_MEMORY)
    return irl


def check_info(irl: MaxEnt, info: ShardInfo, name: str, mdp: MDP, longest: float | None = None) -> None:
    """Check that the model can generate the demonstrations of a shard; `longest` replaces a `max_length` of None."""
    if mdp.environment is not None:
        rule = "must be one environment for a stream, which does not store start states"
        raise InvalidParameter.of("mdp", mdp.environment_names, rule, remedy=_IN_MEMORY)
    if irl.max_length is not None:
        longest = model_validate.max_length(irl.max_length)
    if longest is not None and info.longest > longest:
        i, states = info.longest_at, info.longest
        message = f"{name}: demonstration {i} has {states} states; max_length is {longest}."
        remedy = "Shorten it, or use a larger max_length."
        raise InvalidDemos(f"{message} {remedy}", parameter="max_length", value=states, index=i)
    if irl.stop == "anywhere" or info.open_ended is None:
        return
    if irl.stop == "terminal_or_max_length" and (longest is None or info.open_ended == (longest, longest)):
        return
    i, n_terminal = info.open_ended_at, int(mdp.terminal.sum())
    message = f"{name}: demonstration {i} does not end in one of the {n_terminal} terminal states (stop={irl.stop!r})."
    remedy = "Use stop='anywhere', or mark its last state as terminal."
    raise InvalidDemos(f"{message} {remedy}", parameter="stop", value=irl.stop, index=i)


@dataclass
class ImplicitResponsibilities:
    """Responsibilities represented by the mixture parameters that determine them."""

    parameters: MixtureParameters | None = None


@dataclass(frozen=True)
class UnitCount:
    """Replacement for `Groups` that stores only the number of groups."""

    n: int
    noun: str
    grouped: bool

    def __len__(self) -> int:
        return self.n


class StoreStatistics:
    """Sufficient statistics of a store: an E-step is one pass over its rows, with `window` rows in memory at a time."""

    def __init__(
        self,
        store: FeatureStore,
        *,
        window: int = WINDOW,
        executor: Mapper | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.store, self.window, self.executor, self.progress = store, window, executor, progress
        self.n_demos = store.n_demos

    def allocate(self, n_intents: int) -> ImplicitResponsibilities:
        """Allocate the responsibilities that `e_step` fills in."""
        del n_intents
        return ImplicitResponsibilities()

    def e_step(
        self, path_sums: Any, rho: FloatArray, thetas: FloatArray, U: ImplicitResponsibilities, temperature: float
    ) -> tuple[EStepSums, Moments]:
        """Compute the E-step in one pass over the store: update `U`, and return the sums and moments."""
        now = MixtureParameters(thetas, path_sums.log_partition(thetas), np.log(rho), 1.0 / temperature)
        options: dict[str, Any] = {"executor": self.executor, "window": self.window, "progress": self.progress}
        sums = sum_store(self.store, now, U.parameters, **options)
        U.parameters = now
        moments = Moments(sums.features, sums.counts if self.store.by_group else sums.sizes, None)
        return EStepSums(sums.log_likelihood, sums.change, sums.sizes, sums.features, -1), moments


def stream_problem(model: MaxEnt, mdp: MDP, store: FeatureStore) -> MaxEntProblem:
    """Return the fit problem of a MaxEnt model and a store, with E-steps in this process.

    The problem's model has the length of the longest demonstration as `max_length`, if that is None.
    """
    store.check(mdp)
    check_model(model)
    for shard in store.shards:
        check_info(model, shard.info, shard.name, mdp, store.longest)
    units = UnitCount(store.n, store.noun, store.by_group)
    resolved = model.resolve_max_length(store.longest)
    return MaxEntProblem(resolved, mdp, None, units, resolved.path_sums(mdp), StoreStatistics(store))


def with_statistics(problem: MaxEntProblem, statistics: StoreStatistics) -> MaxEntProblem:
    """Return a copy of the problem with other statistics."""
    return MaxEntProblem(problem.model, problem.mdp, None, problem.units, problem.path_sums, statistics)


def sample_problem(problem: MaxEntProblem, store: FeatureStore, n: int, rng: np.random.Generator) -> MaxEntProblem:
    """Return the problem restricted to at most n rows, drawn uniformly without replacement.

    The sample does not depend on how the store is divided into shards.
    """
    # With shuffle=False, numpy draws a small sample without allocating an array of all rows.
    chosen = np.arange(store.n) if n >= store.n else np.sort(rng.choice(store.n, size=n, replace=False, shuffle=False))
    rows = store.take(chosen.astype(np.int64))
    index = np.arange(len(chosen), dtype=np.int64) if store.by_group else None
    units = Groups(index, rows.counts, chosen)
    return MaxEntProblem(problem.model, problem.mdp, None, units, problem.path_sums, RowStatistics(rows, units))


class AssignTask(NamedTuple):
    """A shard, the fitted mixture, the file to write, and the column of the row names ("demo" or "group")."""

    shard: FeatureShard
    parameters: MixtureParameters
    path: str
    unit: str


def assign(
    mixture: IntentMixture,
    store: FeatureStore | str | PathLike[str],
    folder: str | PathLike[str],
    *,
    executor: Mapper | None = None,
    progress: Progress | None = None,
) -> list[Path]:
    """Write the posterior over intents of each row of a store, one parquet file per shard, and return the paths.

    The columns are those of `limiirl predict`: demo (or group), intent, probability_0, ..., log_likelihood.
    Demonstrations without names are numbered within each shard.

    Parameters
    ----------
    mixture : IntentMixture
        A mixture fitted to this store, or to other demonstrations in the same MDP.
    store : FeatureStore or path
    folder : path
        Created if it does not exist. Existing files of this store are replaced atomically.
    executor, progress
        See `fit_streamed`.

    Examples
    --------
    >>> import tempfile
    >>> import pyarrow.parquet as pq
    >>> from limiirl import MDP, Demonstrations, MaxEnt
    >>> from limiirl.streams import write_features
    >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0], [1], [-1]])
    >>> demos = Demonstrations.from_lists([[0, 1], [0, 1], [0, 2]])
    >>> folder = Path(tempfile.mkdtemp())
    >>> mix = IntentMixture(2, MaxEnt(bounds=(-3, 3)), init=[0, 0, 1]).fit(mdp, demos)
    >>> (path,) = assign(mix, write_features(mdp, [demos], folder / "features"), folder / "intents")
    >>> pq.read_table(path)["intent"].to_pylist()
    [0, 0, 1]
    """
    check_mixture(mixture)
    validate.check_fitted(mixture)
    check_progress(progress)
    irl = check_model(mixture.irl_)
    rows = as_store(store)
    rows.check(mixture.mdp_)
    for shard in rows.shards:
        check_info(irl, shard.info, shard.name, mixture.mdp_)
    root = make_folder(folder)
    paths = [root / f"shard-{index:05d}.parquet" for index in range(len(rows.shards))]
    others = sorted({path.name for path in root.iterdir() if not is_scratch(path)} - {path.name for path in paths})
    if others:
        message = f"{root} contains {others[0]}, which is not one of the {len(paths)} shards. Choose another folder."
        raise file_error(message, root / others[0])
    for path in filter(Path.exists, paths):
        _check_replaceable(path)
    log_Z = irl.log_partition(mixture.mdp_, mixture.thetas_)
    with np.errstate(divide="ignore"):  # a mixture weight may be 0
        parameters = MixtureParameters(mixture.thetas_, log_Z, np.log(mixture.weights_))
    unit = "group" if rows.by_group else "demo"
    shards = zip(iterate_shards(rows, progress), paths, strict=True)
    tasks = (AssignTask(shard, parameters, str(path), unit) for shard, path in shards)
    return [Path(path) for path in map_tasks(assign_shard, tasks, executor)]


def _check_replaceable(path: Path) -> None:
    """Raise unless a file is an earlier output, so that no file of demonstrations with the same name is replaced."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        names = pq.read_schema(path).names if path.is_file() else []
    except pa.ArrowException:
        names = []
    if "log_likelihood" not in names:
        raise file_error(f"{path} was not written by assign and is not replaced. Choose another folder.", path)


def assign_shard(task: AssignTask) -> str:
    """Write the posteriors of one shard, and return the path of the file."""
    posteriors: list[FloatArray] = []
    log_likelihoods: list[FloatArray] = []
    thetas, log_Z, log_rho, _ = task.parameters
    for rows in task.shard.windows(WINDOW):
        U = np.zeros((len(rows.features), log_rho.size))
        bad = e_step(rows, thetas, log_Z, log_rho, U).bad_row
        if bad >= 0:
            row = bad + sum(map(len, posteriors))
            message = f"{task.shard.name}, row {row} has probability 0 under every intent. Remove it."
            raise InvalidDemos(message, parameter="store", value=task.shard.name, index=row)
        posteriors.append(U)
        log_likelihoods.append(np.logaddexp.reduce(rows.log_prob(thetas, log_Z) + log_rho, axis=1))
    posterior, names = np.concatenate(posteriors), task.shard.names()
    names = np.arange(len(posterior)) if names is None else names
    intents = np.argmax(posterior, axis=1)
    Membership(task.unit, names, intents, posterior, np.concatenate(log_likelihoods)).write(task.path)
    return task.path
