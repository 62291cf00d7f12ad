"""From demonstrations in parts to a store of their feature sums: each part once, by any worker, whole or not at all.

Whose folder it is: a store is begun, gone on with, or refused, and looked through when it is finished.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from limiirl._parallel import map_tasks
from limiirl.demos import Demonstrations, Groups
from limiirl.errors import InvalidDemos, InvalidFile, LimiirlError, LimiirlWarning
from limiirl.irl import validate
from limiirl.kernels.e_step import Rows
from limiirl.mdp import MDP
from limiirl.streams.passes import Workers, check_facts, check_model, check_progress
from limiirl.streams.sources import MOST, FilePart, PartSource, check_names, parts_of
from limiirl.streams.store import (
    AGAIN,
    HEADER,
    MDP_FILE,
    Facts,
    FeatureStore,
    NewerFormat,
    StoredPart,
    a_path,
    is_scratch,
    make_folder,
    read_header,
    write_header,
)

PART = "part-{:05d}.json"
_PARTS = "part-*.json"
# Seconds. Whoever writes a file touches it more often, and clocks of machines that share a folder differ by less.
_ABANDONED = 3600.0


def claim(place: Path, mdp: MDP, by_group: bool) -> None:
    """Begin a store, or check that the one that is there may be gone on with; one without any part may be any store.

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
    # Looked for after the rest: another writer may have begun just now, with the header.
    if (place / HEADER).exists():
        known = _goes_on(place, mdp, by_group)
    elif others:
        raise InvalidFile(
            f"{place} is not empty, and not a store of features: it has {others[0]}. Give another folder."
        )
    else:
        known = False
    if not known:
        write_header(place, mdp, by_group=by_group, parts=None)
    if not _is_saved(mdp, place / MDP_FILE):
        mdp.save(place / MDP_FILE)


def _goes_on(place: Path, mdp: MDP, by_group: bool) -> bool:
    """Whether a store is the one that is wanted; another is an error once it has a part."""
    header = read_header(place)
    if (header["mdp"], header["by_group"]) == (mdp.fingerprint(), by_group):
        return True
    if not any(place.glob(_PARTS)):
        return False
    if header["mdp"] != mdp.fingerprint():
        raise InvalidFile(
            f"{place} has features of the MDP {header['mdp']}; this one is {mdp.fingerprint()}. Give another folder."
        )
    rows = "groups" if header["by_group"] else "demonstrations"
    raise InvalidFile(f"{place} has a row for each of its {rows}; by_group is {by_group}. Give another folder.")


def _is_saved(mdp: MDP, path: Path) -> bool:
    try:
        return MDP.load(path).fingerprint() == mdp.fingerprint()
    except InvalidFile:
        return False


def check_finished(place: Path, names: list[str]) -> None:
    """Check that a store has the parts of its source and no other; take away what killed writers left behind.

    Scratch files that were touched of late may belong to another writer, who still needs them.
    """
    for path in filter(is_scratch, list(place.iterdir())):
        with suppress(FileNotFoundError):  # its writer has just finished
            if time.time() - path.stat().st_mtime > _ABANDONED:
                path.unlink()
    others = sorted({path.name for path in place.glob(_PARTS)} - set(names))
    if others:
        raise InvalidFile(
            f"{place} has {others[0]}, which the source no longer has: it has {len(names)} parts. Write to another "
            "folder, or remove this one."
        )


Progress = Callable[[int, int | None], None]


class PartTask(NamedTuple):
    """A part to write: where, from what, for which MDP (by its file and fingerprint), a row a group or not."""

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
    executor: Workers = None,
    progress: Progress | None = None,
) -> FeatureStore:
    """Compute the feature sums of demonstrations once, part by part, into a folder that `fit_streamed` reads.

    Stopped at any moment and called again, it goes on where it was. What is there already is kept if it was made from
    the same data and MDP, and its digest is right; what is damaged is made anew, with a warning; anything else is
    refused. Of `Calls` nobody can tell whether their data are the same but by their mark. Several may write the same
    store at once: the work is done more than once then, and the result is the same.

    Parameters
    ----------
    source : path, paths, Calls, or iterable of Demonstrations
        A folder of .parquet or .csv files, one part each, as `Demonstrations.from_file` reads them; see
        `limiirl.streams.sources.parts_of`. A part must fit into a worker's memory: some hundred thousand
        demonstrations are a good size. A demonstration must lie within one file: that its name is in no other is
        checked, for all of up to 16 million names, and for a sample of more.
    folder : path
        Made if it is not there.
    irl : model, optional
        The model to be fitted, to learn now rather than later that it cannot be, or that some demonstration does not
        belong to it.
    by_group : bool
        One row a group (a driver, say) instead of a demonstration: all of a group's share an intent. A group must lie
        within one part.
    executor : Executor or Session, optional
        Where parts are computed; by default one after the other in this process. The folder must be the same for all.
    progress : callable, optional
        Called with the number of parts done (with an executor, done or under way), and of all once that is known.

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
    place = a_path(folder, "folder").absolute()  # workers may stand elsewhere
    names: list[str] = []
    parts = parts_of(source)
    total = len(parts) if isinstance(parts, list) else None
    from_files = isinstance(parts, list) and all(isinstance(part, FilePart) for part in parts)

    def tasks() -> Iterator[PartTask]:
        for index, part in enumerate(parts):
            if index == 0:  # so that a source that is not there leaves nothing behind
                claim(place, mdp, by_group)
            if progress is not None:
                progress(index, total)
            names.append(PART.format(index))
            yield PartTask(str(place / names[-1]), part, str(place / MDP_FILE), mdp.fingerprint(), by_group)

    for name, facts in map_tasks(write_part, tasks(), executor):
        if irl is not None:
            check_facts(irl, facts, name, mdp)
    if not names:
        raise InvalidDemos("The source has no parts: there is nothing to fit.")
    check_finished(place, names)
    if progress is not None:
        progress(len(names), len(names))
    written = [StoredPart.open(place / name) for name in names]
    if by_group:
        check_names(written, "group")
    elif from_files:
        check_names(written, "demo", MOST)
    write_header(place, mdp, by_group=by_group, parts=names)
    return FeatureStore.open(place)


def write_part(task: PartTask) -> tuple[str, Facts]:
    """Write one part unless it is there, and return its source's name and its facts; a pure function of its files."""
    path = Path(task.path)
    known = _undamaged(path)
    if known is not None:
        _check_same(known, task)
        return known.name, known.facts
    mdp = _mdp(task.mdp_file, task.mdp)
    mark = task.source.mark()
    demos = task.source.read()
    try:
        rows, names, facts = _summed(mdp, demos, task.by_group)
    except LimiirlError as error:
        raise type(error)(f"{task.source.name}: {error}") from None
    about = {"source": task.source.name, "mark": mark, "mdp": task.mdp, "by_group": task.by_group}
    StoredPart.write(path, rows, names, facts, about)
    return task.source.name, facts


@lru_cache(maxsize=2)
def _mdp(path: str, fingerprint: str) -> MDP:
    """Return the store's MDP, read once a worker."""
    found = MDP.load(path)
    if found.fingerprint() != fingerprint:
        raise InvalidFile(f"{path} is the MDP {found.fingerprint()}; the store belongs to {fingerprint}.")
    return found


def _summed(mdp: MDP, demos: Demonstrations, by_group: bool) -> tuple[Rows, NDArray[Any] | None, Facts]:
    """Return a row for each unit, the units' names, and what a model will ask."""
    if not isinstance(demos, Demonstrations):
        raise InvalidDemos(f"a part must be Demonstrations; it is a {type(demos).__name__}.")
    if len(demos) == 0:
        raise InvalidDemos("there are no demonstrations in it. Leave out files without rows.")
    if by_group and demos.groups is None:
        raise InvalidDemos("by_group needs a group for each demonstration; it has none.")
    units = Groups.from_labels(demos.groups if by_group else None, len(demos))
    # An unrecorded action whose features matter is an error that names its step: it would make them depend on theta.
    features = demos.features(mdp)
    with np.errstate(divide="ignore"):
        log_q = demos.log_q(mdp)
    wrong = ~(np.all(np.isfinite(features), axis=1) & np.isfinite(log_q))
    if np.any(wrong):
        i = int(np.argmax(wrong))
        why = "features that are not finite" if np.isfinite(log_q[i]) else "probability 0: p0 has no such start"
        raise InvalidDemos(f"demonstration {i} has {why}. Remove it, or mend the MDP.")
    rows = Rows(np.ascontiguousarray(units.sum(features)), units.sum(log_q), units.counts)
    lengths = demos.lengths
    open_ended = np.flatnonzero(~mdp.terminal[demos.last_states])
    some = lengths[open_ended]
    longest = int(np.argmax(lengths))
    facts = Facts(
        n=len(units),
        n_demos=len(demos),
        longest=int(lengths[longest]),
        longest_at=longest,
        loose=(int(some.min()), int(some.max())) if some.size else None,
        loose_at=int(open_ended[np.argmin(some)]) if some.size else 0,
    )
    return rows, units.names if units.grouped else demos.ids, facts


def _undamaged(path: Path) -> StoredPart | None:
    """Return a part that is there, and whole to the last bit; the header of another is taken away."""
    if not path.is_file():
        return None
    try:
        part = StoredPart.open(path)
        part.verify()
    except NewerFormat:
        raise
    except InvalidFile as error:
        what = str(error).removesuffix(AGAIN).rstrip()
        warnings.warn(f"{what} It is written anew now.", LimiirlWarning, stacklevel=2)
        path.unlink(missing_ok=True)
        return None
    return part


def _check_same(part: StoredPart, task: PartTask) -> None:
    """Check that a part that is there was made from the same data."""
    if (part.mdp, part.by_group) != (task.mdp, task.by_group):
        raise InvalidFile(f"{part.path} belongs to another store. Give another folder.")
    changed = part.mark != task.source.mark()
    if part.source != task.source.name or changed:
        how = "which has changed since" if changed and part.source == task.source.name else f"not {task.source.name}"
        raise InvalidFile(
            f"{part.path} was made from {part.source}, {how}. Write the changed data to another folder, or remove this "
            "one."
        )
