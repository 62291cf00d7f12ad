"""Files of agents: one npz of plain arrays and a JSON header, no pickle; and the agents released with Sigma-GIRL."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from limiirl.archives import Kind, read_archive, read_arrays, write_archive
from limiirl.demos.agent_checks import Agent
from limiirl.errors import InvalidFile

if TYPE_CHECKING:
    from limiirl.demos.agents import Agents

KIND = Kind("limiirl.agents", 1, "a file of agents", "Agents.save")
RELEASED = ("center", "up", "border")
"""The agents of the experiment by Ramponi et al. (2020): the first has an intent to itself, the others share one."""

_PARTS = ("policy_features", "actions", "reward_features")


def save(agents: Agents, path: str | os.PathLike[str]) -> None:
    """Write agents to `path`; see `Agents.save`."""
    header: dict[str, Any] = {"n_agents": len(agents), "texts": {}}
    arrays = {f"{i}.{part}": array for i, record in enumerate(agents) for part, array in record._asdict().items()}
    for name in ("names", "labels"):
        values = getattr(agents, name)
        if values is not None and values.dtype.kind == "U":
            header["texts"][name] = values.tolist()
        elif values is not None:
            arrays[name] = values
    write_archive(path, KIND, header, arrays)


def load(path: str | os.PathLike[str]) -> tuple[tuple[Agent, ...], NDArray[Any], NDArray[Any] | None]:
    """Return records, names and labels that `save` wrote; see `Agents.load`."""
    header, arrays = read_archive(path, KIND)
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

    arrays = read_arrays(path, "Give the npz file of the released agents.", chosen)
    return [[arrays[key] for key in wanted[start::3]] for start in range(3)]
