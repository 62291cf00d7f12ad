"""`write_features`: compute the feature sums of demonstrations, shard by shard, and write them to a store."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from limiirl._io import as_path
from limiirl._parallel import Mapper, map_tasks
from limiirl._progress import Progress, check_progress
from limiirl.demos import Demonstrations, Groups
from limiirl.errors import InvalidDemos, InvalidFile, LimiirlError, LimiirlWarning
from limiirl.irl import validate
from limiirl.kernels.e_step import Rows
from limiirl.mdp import MDP
from limiirl.streams.passes import check_info, check_model
from limiirl.streams.sources import MAX_NAMES, FileShard, ShardSource, check_names, list_shards
from limiirl.streams.store import (
    HEADER,
    MDP_FILE,
    REMEDY,
    FeatureStore,
    NewerFormat,
    ShardInfo,
    StoredShard,
    file_error,
    is_scratch,
    make_folder,
    read_header,
    write_header,
)  # fmt: skip

SHARD = "shard-{:05d}.json"
_SHARDS = "shard-*.json"
# Age in seconds from which a temporary file is considered abandoned by a killed writer.
_ABANDONED = 3600.0


def claim(folder: Path, mdp: MDP, by_group: bool) -> None:
    """Create a store, or check that an existing one can be resumed; replace the header of a store without shards."""
    make_folder(folder)
    others = sorted(path.name for path in folder.iterdir() if not is_scratch(path))
    # Checked after the listing, because another writer may create the header in between.
    exists = (folder / HEADER).exists()
    if others and not exists:
        message = f"{folder} is not empty and not a feature store: it contains {others[0]}. Choose another folder."
        raise file_error(message, folder)
    if not exists or not _can_resume(folder, mdp, by_group):
        write_header(folder, mdp, by_group=by_group, shards=None)
    if not _is_saved(mdp, folder / MDP_FILE):
        mdp.save(folder / MDP_FILE)


def _can_resume(folder: Path, mdp: MDP, by_group: bool) -> bool:
    """Return True if the MDP and `by_group` of a store match; otherwise raise an error if the store has shards."""
    header = read_header(folder)
    if (header["mdp"], header["by_group"]) == (mdp.fingerprint(), by_group):
        return True
    if not any(folder.glob(_SHARDS)):
        return False
    if header["mdp"] != mdp.fingerprint():
        what = f"features of an MDP with fingerprint {header['mdp']}; mdp has {mdp.fingerprint()}"
    else:
        what = f"one row per {'group' if header['by_group'] else 'demonstration'}; by_group is {by_group}"
    raise file_error(f"{folder} has {what}. Choose another folder.", folder)


def _is_saved(mdp: MDP, path: Path) -> bool:
    try:
        return MDP.load(path).fingerprint() == mdp.fingerprint()
    except InvalidFile:
        return False


def check_finished(folder: Path, names: list[str]) -> None:
    """Check that a store has no shards beyond those of its source, and remove temporary files of killed writers."""
    for path in filter(is_scratch, list(folder.iterdir())):
        with suppress(FileNotFoundError):  # already renamed by its writer
            if time.time() - path.stat().st_mtime > _ABANDONED:
                path.unlink()
    others = sorted({path.name for path in folder.glob(_SHARDS)} - set(names))
    if others:
        message = f"{folder} contains {others[0]}, but the source has only {len(names)} shards."
        raise file_error(f"{message} Write to another folder, or remove this one.", folder / others[0])


class WriteTask(NamedTuple):
    """A shard to write: its path and source, the file and the fingerprint of the MDP, and True if rows are groups."""

    path: str
    source: ShardSource
    mdp_file: str
    mdp: str
    by_group: bool


def write_features(
    mdp: MDP,
    source: Any,
    folder: str | PathLike[str],
    *,
    irl: Any = None,
    by_group: bool = False,
    executor: Mapper | None = None,
    progress: Progress | None = None,
) -> FeatureStore:
    """Compute the feature sums of demonstrations, shard by shard, and write them to a store for `fit_streamed`.

    To resume an interrupted call, repeat it. Existing shards of the same data and MDP are kept; corrupted shards are
    rebuilt with a warning; shards of other data raise an error. The data of a `FunctionSource` are compared only by
    version. Several processes may write the same store concurrently.

    Parameters
    ----------
    source : path, paths, FunctionSource, or iterable of Demonstrations
        For example a folder of .parquet or .csv files in the format of `Demonstrations.from_file`, one shard per file;
        see `limiirl.streams.sources.list_shards`. A shard must fit in the memory of a worker; a few hundred thousand
        demonstrations are a good size. All rows of a demonstration must be in one file; this is checked for all names
        up to 16 million, and for a sample of the names beyond that.
    folder : path
        Created if it does not exist.
    irl : model, optional
        The model to be fitted later; an error is raised if it cannot generate a demonstration.
    by_group : bool
        If True, write one row per group (for example per driver) instead of one per demonstration: all demonstrations
        of a group have the same intent. A group must be in one shard.
    executor : limiirl.executors.Executor, Session or concurrent.futures.Executor, optional
        By default, shards are computed sequentially in this process. All workers must have access to the folder.
    progress : callable, optional
        Called as ``progress(done, total, message)`` with the number of shards written (with an executor, submitted);
        `total` is None until it is known.

    Examples
    --------
    >>> import tempfile
    >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0], [1], [-1]])
    >>> shards = [Demonstrations.from_lists([[0, 1], [0, 1]]), Demonstrations.from_lists([[0, 2]])]
    >>> store = write_features(mdp, shards, Path(tempfile.mkdtemp()) / "features")
    >>> store.n, store.n_features, [shard.info.n for shard in store.shards]
    (3, 1, [2, 1])
    """
    validate.mdp(mdp)
    check_progress(progress)
    if irl is not None:
        check_model(irl)
    root = as_path(folder, "folder").absolute()  # workers may have another working directory
    names: list[str] = []
    shards = list_shards(source)
    total = len(shards) if isinstance(shards, list) else None
    from_files = isinstance(shards, list) and all(isinstance(shard, FileShard) for shard in shards)

    def tasks() -> Iterator[WriteTask]:
        for index, shard in enumerate(shards):
            if index == 0:  # after the source was read, so that a missing source creates no store
                claim(root, mdp, by_group)
            if progress is not None:
                progress(index, total, shard.name)
            names.append(SHARD.format(index))
            yield WriteTask(str(root / names[-1]), shard, str(root / MDP_FILE), mdp.fingerprint(), by_group)

    for name, info in map_tasks(write_shard, tasks(), executor):
        if irl is not None:
            check_info(irl, info, name, mdp)
    if not names:
        message = f"source must contain at least one shard, but it is empty; nothing was written to {root}."
        raise InvalidDemos(f"{message} Pass at least one Demonstrations object or file.", parameter="source")
    check_finished(root, names)
    if progress is not None:
        progress(len(names), len(names), "")
    written = [StoredShard.open(root / name) for name in names]
    if by_group:
        check_names(written, "group")
    elif from_files:
        check_names(written, "demo", MAX_NAMES)
    write_header(root, mdp, by_group=by_group, shards=names)
    return FeatureStore.open(root)


def write_shard(task: WriteTask) -> tuple[str, ShardInfo]:
    """Write one shard unless it exists, and return the name of its source and the metadata."""
    path = Path(task.path)
    existing = _open_intact(path)
    if existing is not None:
        _check_same(existing, task)
        return existing.name, existing.info
    mdp = _load_mdp(task.mdp_file, task.mdp)
    source, checksum = task.source.name, task.source.checksum()
    demos = task.source.read()
    try:
        rows, names, info = _sum_features(mdp, demos, task.by_group)
    except LimiirlError as error:
        message = f"{source}: {error}"
        raise type(error)(message, parameter=error.parameter, value=error.value, index=error.index) from None
    provenance = {"source": source, "source_checksum": checksum, "mdp": task.mdp, "by_group": task.by_group}
    StoredShard.write(path, rows, names, info, provenance)
    return source, info


@lru_cache(maxsize=2)
def _load_mdp(path: str, fingerprint: str) -> MDP:
    """Return the store's MDP, read once per worker."""
    mdp = MDP.load(path)
    if mdp.fingerprint() != fingerprint:
        raise file_error(
            f"{path} has MDP fingerprint {mdp.fingerprint()}, but the store has MDP {fingerprint}. {REMEDY}", path
        )
    return mdp


def _sum_features(mdp: MDP, demos: Demonstrations, by_group: bool) -> tuple[Rows, NDArray[Any] | None, ShardInfo]:
    """Return the rows, their names, and the metadata of a shard."""
    if not isinstance(demos, Demonstrations):
        message = f"a shard must be a Demonstrations object; got a {type(demos).__name__}."
        raise InvalidDemos(message, parameter="source", value=demos)
    if len(demos) == 0:
        raise InvalidDemos("a shard must have at least one demonstration. Remove empty shards.", parameter="source")
    if by_group and demos.groups is None:
        raise InvalidDemos(
            "by_group=True requires demonstrations with groups. Set their groups, or omit by_group.",
            parameter="by_group",
        )
    demos = demos.renumber(mdp)
    units = Groups.from_labels(demos.groups if by_group else None, len(demos))
    # This raises an error for an unrecorded action with features, whose sums would depend on theta.
    features = demos.features(mdp)
    with np.errstate(divide="ignore"):
        log_q = demos.log_q(mdp)
    wrong = ~(np.all(np.isfinite(features), axis=1) & np.isfinite(log_q))
    if np.any(wrong):
        i = int(np.argmax(wrong))
        why = "features that are not finite" if np.isfinite(log_q[i]) else "probability 0: p0 of its start state is 0"
        raise InvalidDemos(f"demonstration {i} has {why}. Remove it, or correct the MDP.", parameter="source", index=i)
    rows = Rows(np.ascontiguousarray(units.sum(features)), units.sum(log_q), units.counts)
    lengths = demos.lengths
    open_ended = np.flatnonzero(~mdp.terminal[demos.last_states])
    open_lengths = lengths[open_ended]
    longest = int(np.argmax(lengths))
    info = ShardInfo(
        n=len(units),
        n_demos=len(demos),
        longest=int(lengths[longest]),
        longest_at=longest,
        open_ended=(int(open_lengths.min()), int(open_lengths.max())) if open_lengths.size else None,
        open_ended_at=int(open_ended[np.argmin(open_lengths)]) if open_lengths.size else 0,
    )
    return rows, units.names if units.grouped else demos.ids, info


def _open_intact(path: Path) -> StoredShard | None:
    """Return an existing shard if its checksum matches; otherwise remove its header, which marks it as incomplete."""
    if not path.is_file():
        return None
    try:
        shard = StoredShard.open(path)
        shard.verify()
    except NewerFormat:
        raise
    except InvalidFile as error:
        what = str(error).removesuffix(REMEDY).rstrip()
        warnings.warn(f"{what} The shard is rebuilt.", LimiirlWarning, stacklevel=2)
        path.unlink(missing_ok=True)
        return None
    return shard


def _check_same(shard: StoredShard, task: WriteTask) -> None:
    """Check that an existing shard was written from the same data."""
    if (shard.mdp, shard.by_group) != (task.mdp, task.by_group):
        raise file_error(f"{shard.path} belongs to another store. Choose another folder.", shard.path)
    changed = shard.source_checksum != task.source.checksum()
    if shard.source != task.source.name or changed:
        renamed = shard.source != task.source.name
        how = f"not from {task.source.name}" if renamed else "which has changed since then"
        message = f"{shard.path} was written from {shard.source}, {how}."
        raise file_error(f"{message} Write the changed data to another folder, or remove this one.", shard.path)
