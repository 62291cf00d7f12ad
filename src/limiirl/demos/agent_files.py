"""Files of agents: one npz of plain arrays and a JSON header, no pickle; and the agents released with Sigma-GIRL."""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from limiirl.demos.agent_checks import Agent
from limiirl.errors import InvalidFile
from limiirl.files import atomic_write

if TYPE_CHECKING:
    from limiirl.demos.agents import Agents

FORMAT = "limiirl.agents"
VERSION = 1
RELEASED = ("center", "up", "border")
"""The agents of the experiment by Ramponi et al. (2020): the first has an intent to itself, the others share one."""

_OURS = "Give a file that Agents.save wrote."
_PARTS = ("policy_features", "actions", "reward_features")


def save(agents: Agents, path: str | os.PathLike[str]) -> None:
    """Write agents to `path`; see `Agents.save`."""
    header: dict[str, Any] = {"format": FORMAT, "version": VERSION, "n_agents": len(agents), "texts": {}}
    arrays = {f"{i}.{part}": array for i, record in enumerate(agents) for part, array in record._asdict().items()}
    for name in ("names", "labels"):
        values = getattr(agents, name)
        if values is not None and values.dtype.kind == "U":
            header["texts"][name] = values.tolist()  # numpy's strings lose trailing NULs
        elif values is not None:
            arrays[name] = values
    text = np.frombuffer(json.dumps(header).encode("ascii"), dtype=np.uint8)
    with atomic_write(path) as scratch, scratch.open("wb") as stream:
        np.savez(stream, allow_pickle=False, header=text, **arrays)


def load(path: str | os.PathLike[str]) -> tuple[tuple[Agent, ...], NDArray[Any], NDArray[Any] | None]:
    """Return records, names and labels that `save` wrote; see `Agents.load`."""
    arrays = _read(path, _OURS, lambda files: files)
    try:
        header = json.loads(arrays.pop("header").tobytes())
        written, version = header["format"], header["version"]
    except (KeyError, ValueError, TypeError) as error:
        raise InvalidFile(f"{path} holds no agents of limiirl: it has no header. {_OURS}") from error
    if written != FORMAT or not isinstance(version, int):
        raise InvalidFile(f"{path} holds {written!r}, not {FORMAT!r}. {_OURS}")
    if version > VERSION:
        raise InvalidFile(f"{path} has format version {version}; this limiirl reads up to {VERSION}. Upgrade limiirl.")
    try:
        texts = {name: np.array(values, dtype=np.str_) for name, values in header["texts"].items()}
        records = [Agent._make(arrays[f"{i}.{part}"] for part in Agent._fields) for i in range(int(header["n_agents"]))]
        names = texts["names"] if "names" in texts else arrays["names"]
        return tuple(records), names, texts.get("labels", arrays.get("labels"))
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise InvalidFile(f"{path} is damaged: {error!s:.300} is missing or wrong. Save the agents again.") from error


def read_released(path: str | os.PathLike[str], dataset: int, names: Sequence[str]) -> list[list[NDArray[Any]]]:
    """Return policy features, actions and reward features of the agents named; see `Agents.from_released`."""
    wanted = [f"{name}_{dataset}_{part}" for name in names for part in _PARTS]

    def chosen(files: list[str]) -> list[str]:
        absent = [key for key in wanted if key not in files]
        if absent:
            kept = sorted({key.removesuffix(f"_{_PARTS[0]}") for key in files if key.endswith(_PARTS[0])})
            raise InvalidFile(f"{path} has no {absent[0]}. It has {', '.join(kept) or 'no agents at all'}.")
        return wanted

    arrays = _read(path, "Give the npz file of the released agents.", chosen)
    return [[arrays[key] for key in wanted[start::3]] for start in range(3)]


def _read(
    path: str | os.PathLike[str], remedy: str, chosen: Callable[[list[str]], list[str]]
) -> dict[str, NDArray[Any]]:
    """Return those arrays of an npz file that are chosen from the names of all."""
    try:
        with Path(path).open("rb") as stream:
            stored = np.load(stream, allow_pickle=False)
            if not isinstance(stored, np.lib.npyio.NpzFile):
                raise InvalidFile(f"{path} is not an npz file of plain arrays, but a single array. {remedy}")
            return {name: stored[name] for name in chosen(stored.files)}
    except InvalidFile:
        raise
    except FileNotFoundError:
        raise InvalidFile(f"{path} does not exist. {remedy}") from None
    except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
        # What numpy says of a file of another kind advises to unpickle it.
        reason = "it holds objects, or begins like no npz file" if "pickle" in str(error) else f"{error!s:.200}"
        raise InvalidFile(
            f"{path} is not an npz file of plain arrays, or a truncated one ({reason}). Copy it again. {remedy}"
        ) from error
