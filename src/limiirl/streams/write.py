"""`write_features`: compute the feature sums of demonstrations once, part by part, into a store."""

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

from limiirl._parallel import Mapper, map_tasks
from limiirl._progress import Progress, check_progress
from limiirl.demos import Demonstrations, Groups
from limiirl.errors import InvalidDemos, InvalidFile, LimiirlError, LimiirlWarning
from limiirl.irl import validate
from limiirl.kernels.e_step import Rows
from limiirl.mdp import MDP
from limiirl.streams.passes import check_facts, check_model
from limiirl.streams.sources import MAX_NAMES, FilePart, PartSource, check_names, list_parts
from limiirl.streams.store import (
    HEADER,
    MDP_FILE,
    REMEDY,
    FeatureStore,
    NewerFormat,
    PartFacts,
    StoredPart,
    check_path,
    file_error,
    is_scratch,
    make_folder,
    read_header,
    write_header,
)

PART = "part-{:05d}.json"
_PARTS = "part-*.json"
# Seconds. A writer touches its files more often, and clocks of machines that share a folder differ by less.
_ABANDONED = 3600.0


def claim(place: Path, mdp: MDP, by_group: bool) -> None:
    """Begin a store, or check that the existing one can be continued; one without parts may become any store.

    Examples
    --------
    >>> import tempfile
    >>> place, mdp = Path(tempfile.mkdtemp()), MDP.from_edges([0], [1])
    >>> claim(place, mdp, by_group=True)
    >>> claim(place, mdp, by_group=False)
    >>> sorted(path.name for path in place.iterdir()), read_header(place)["by_group"]
    (['mdp.npz', 'store.json'], False)
    """
    make_folder(place)
    others = sorted(path.name for path in place.iterdir() if not is_scratch(path))
    # After the listing: another writer may have begun meanwhile, with the header.
    exists = (place / HEADER).exists()
    if others and not exists:
        raise file_error(
            f"{place} is not empty and not a store of features: it has {others[0]}. Give another folder.", place
        )
    if not exists or not _can_continue(place, mdp, by_group):
        write_header(place, mdp, by_group=by_group, parts=None)
    if not _is_saved(mdp, place / MDP_FILE):
        mdp.save(place / MDP_FILE)


def _can_continue(place: Path, mdp: MDP, by_group: bool) -> bool:
    """Whether a store has the same MDP and rows; another is an error once it has a part."""
    header = read_header(place)
    if (header["mdp"], header["by_group"]) == (mdp.fingerprint(), by_group):
        return True
    if not any(place.glob(_PARTS)):
        return False
    if header["mdp"] != mdp.fingerprint():
        raise file_error(
            f"{place} has features of the MDP {header['mdp']}; mdp is {mdp.fingerprint()}. Give another folder.", place
        )
    rows = "group" if header["by_group"] else "demonstration"
    raise file_error(f"{place} has one row per {rows}; by_group is {by_group}. Give another folder.", place)


def _is_saved(mdp: MDP, path: Path) -> bool:
    try:
        return MDP.load(path).fingerprint() == mdp.fingerprint()
    except InvalidFile:
        return False


def check_finished(place: Path, names: list[str]) -> None:
    """Check that a store has the parts of its source and no other, and remove the temporary files of killed writers.

    Temporary files that were touched recently may belong to another writer.
    """
    for path in filter(is_scratch, list(place.iterdir())):
        with suppress(FileNotFoundError):  # its writer has just finished
            if time.time() - path.stat().st_mtime > _ABANDONED:
                path.unlink()
    others = sorted({path.name for path in place.glob(_PARTS)} - set(names))
    if others:
        raise file_error(
            f"{place} has {others[0]}; the source has only {len(names)} parts. Write to another folder, or remove this "
            "one.",
            place / others[0],
        )


class PartTask(NamedTuple):
    """A part to write: its path, its source, the MDP (file and fingerprint), and whether rows are groups."""

    path: str
    source: PartSource
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
    """Compute the feature sums of demonstrations once, part by part, into a folder that `fit_streamed` reads.

    It can be stopped at any time; called again, it continues. An existing part is kept if its data, MDP and checksum
    match, and rebuilt with a warning if it is damaged; other data are refused. The data of a `FunctionSource` are
    compared by their mark only. Several processes may write the same store at once; the result is the same.

    Parameters
    ----------
    source : path, paths, FunctionSource, or iterable of Demonstrations
        A folder of .parquet or .csv files, one part each, as `Demonstrations.from_file` reads them; see
        `limiirl.streams.sources.list_parts`. A part must fit into a worker's memory; a few hundred thousand
        demonstrations are a good size. A demonstration must lie within one file; this is checked for up to 16
        million names, and for a sample of more.
    folder : path
        Created if it does not exist.
    irl : model, optional
        The model to be fitted later, to check now that it can be, and that all demonstrations are possible under it.
    by_group : bool
        One row per group (a driver, say) instead of per demonstration: the demonstrations of a group share an intent.
        A group must lie within one part.
    executor : limiirl.executors.Executor, Session or concurrent.futures.Executor, optional
        Where parts are computed; by default one after the other in this process. All workers must see the folder.
    progress : callable, optional
        Called as ``progress(done, total, message)`` with the number of parts done (with an executor, done or in
        flight); `total` is None until it is known.

    Examples
    --------
    >>> import tempfile
    >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0], [1], [-1]])
    >>> parts = [Demonstrations.from_lists([[0, 1], [0, 1]]), Demonstrations.from_lists([[0, 2]])]
    >>> store = write_features(mdp, parts, Path(tempfile.mkdtemp()) / "features")
    >>> store.n, store.n_features, [part.facts.n for part in store.parts]
    (3, 1, [2, 1])
    """
    validate.mdp(mdp)
    check_progress(progress)
    if irl is not None:
        check_model(irl)
    place = check_path(folder, "folder").absolute()  # workers may have another working directory
    names: list[str] = []
    parts = list_parts(source)
    total = len(parts) if isinstance(parts, list) else None
    from_files = isinstance(parts, list) and all(isinstance(part, FilePart) for part in parts)

    def tasks() -> Iterator[PartTask]:
        for index, part in enumerate(parts):
            if index == 0:  # a missing source leaves nothing behind
                claim(place, mdp, by_group)
            if progress is not None:
                progress(index, total, part.name)
            names.append(PART.format(index))
            yield PartTask(str(place / names[-1]), part, str(place / MDP_FILE), mdp.fingerprint(), by_group)

    for name, facts in map_tasks(write_part, tasks(), executor):
        if irl is not None:
            check_facts(irl, facts, name, mdp)
    if not names:
        raise InvalidDemos("source has no parts.", parameter="source")
    check_finished(place, names)
    if progress is not None:
        progress(len(names), len(names), "")
    written = [StoredPart.open(place / name) for name in names]
    if by_group:
        check_names(written, "group")
    elif from_files:
        check_names(written, "demo", MAX_NAMES)
    write_header(place, mdp, by_group=by_group, parts=names)
    return FeatureStore.open(place)


def write_part(task: PartTask) -> tuple[str, PartFacts]:
    """Write one part unless it exists, and return its source's name and its facts."""
    path = Path(task.path)
    known = _open_intact(path)
    if known is not None:
        _check_same(known, task)
        return known.name, known.facts
    mdp = _load_mdp(task.mdp_file, task.mdp)
    mark = task.source.mark()
    demos = task.source.read()
    try:
        rows, names, facts = _sum_features(mdp, demos, task.by_group)
    except LimiirlError as error:
        raise type(error)(
            f"{task.source.name}: {error}", parameter=error.parameter, value=error.value, index=error.index
        ) from None
    about = {"source": task.source.name, "mark": mark, "mdp": task.mdp, "by_group": task.by_group}
    StoredPart.write(path, rows, names, facts, about)
    return task.source.name, facts


@lru_cache(maxsize=2)
def _load_mdp(path: str, fingerprint: str) -> MDP:
    """Return the store's MDP, read once per worker."""
    mdp = MDP.load(path)
    if mdp.fingerprint() != fingerprint:
        raise file_error(f"{path} is the MDP {mdp.fingerprint()}; the store belongs to {fingerprint}.", path)
    return mdp


def _sum_features(mdp: MDP, demos: Demonstrations, by_group: bool) -> tuple[Rows, NDArray[Any] | None, PartFacts]:
    """Return the rows, their names, and the facts of a part."""
    if not isinstance(demos, Demonstrations):
        raise InvalidDemos(
            f"a part must be Demonstrations; got a {type(demos).__name__}.", parameter="source", value=demos
        )
    if len(demos) == 0:
        raise InvalidDemos("a part must have demonstrations. Leave out files without rows.", parameter="source")
    if by_group and demos.groups is None:
        raise InvalidDemos("by_group=True needs a group per demonstration; there are none.", parameter="by_group")
    units = Groups.from_labels(demos.groups if by_group else None, len(demos))
    # An unrecorded action whose features matter is an error: the sums would depend on theta.
    features = demos.features(mdp)
    with np.errstate(divide="ignore"):
        log_q = demos.log_q(mdp)
    wrong = ~(np.all(np.isfinite(features), axis=1) & np.isfinite(log_q))
    if np.any(wrong):
        i = int(np.argmax(wrong))
        why = "features that are not finite" if np.isfinite(log_q[i]) else "probability 0: p0 has no such start"
        raise InvalidDemos(f"demonstration {i} has {why}. Remove it, or correct the MDP.", parameter="source", index=i)
    rows = Rows(np.ascontiguousarray(units.sum(features)), units.sum(log_q), units.counts)
    lengths = demos.lengths
    open_ended = np.flatnonzero(~mdp.terminal[demos.last_states])
    some = lengths[open_ended]
    longest = int(np.argmax(lengths))
    facts = PartFacts(
        n=len(units),
        n_demos=len(demos),
        longest=int(lengths[longest]),
        longest_at=longest,
        loose=(int(some.min()), int(some.max())) if some.size else None,
        loose_at=int(open_ended[np.argmin(some)]) if some.size else 0,
    )
    return rows, units.names if units.grouped else demos.ids, facts


def _open_intact(path: Path) -> StoredPart | None:
    """Return an existing part whose checksum matches; remove the header of a damaged one."""
    if not path.is_file():
        return None
    try:
        part = StoredPart.open(path)
        part.verify()
    except NewerFormat:
        raise
    except InvalidFile as error:
        what = str(error).removesuffix(REMEDY).rstrip()
        warnings.warn(f"{what} It is rebuilt now.", LimiirlWarning, stacklevel=2)
        path.unlink(missing_ok=True)
        return None
    return part


def _check_same(part: StoredPart, task: PartTask) -> None:
    """Check that an existing part was made from the same data."""
    if (part.mdp, part.by_group) != (task.mdp, task.by_group):
        raise file_error(f"{part.path} belongs to another store. Give another folder.", part.path)
    changed = part.mark != task.source.mark()
    if part.source != task.source.name or changed:
        how = "which has changed since" if changed and part.source == task.source.name else f"not {task.source.name}"
        raise file_error(
            f"{part.path} was made from {part.source}, {how}. Write the changed data to another folder, or remove this "
            "one.",
            part.path,
        )
