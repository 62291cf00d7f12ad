"""Whose folder it is: a store is begun, gone on with, or refused, and looked through when it is finished."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

from limiirl.errors import InvalidFile
from limiirl.mdp import MDP
from limiirl.streams.places import is_scratch, make_folder
from limiirl.streams.store import HEADER, MDP_FILE, read_header, write_header

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
