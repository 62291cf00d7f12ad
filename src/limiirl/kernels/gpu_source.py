"""The CUDA source of the GPU kernels: its text, and what its kernels take."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import NamedTuple

# What is compiled together, in the order in which files need each other: a model waits for its own kernels alone.
_FAMILIES = (
    ("grid.cuh", "linear.cu", "logspace.cu", "means.cu", "choices.cu"),
    ("grid.cuh", "sparse.cu"),
    ("grid.cuh", "seats.cuh", "goals.cu"),
    ("grid.cuh", "seats.cuh", "legs.cu"),
)
_KERNEL = re.compile(r'extern "C" __global__ void\s+(?:__launch_bounds__\([^)]*\)\s+)?(\w+)\(([^)]*)\)')


class Signature(NamedTuple):
    """A kernel's parameters: their declarations, their names, and the C type of each, "pointer" for all pointers."""

    declarations: tuple[str, ...]
    names: tuple[str, ...]
    types: tuple[str, ...]


def _text(names: tuple[str, ...]) -> str:
    folder = files("limiirl.kernels") / "cuda"
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in names)


@cache
def source(kernel: str) -> str:
    """Return the source of a kernel, with those that are compiled with it.

    Examples
    --------
    >>> "goal_climb" in source("goal_join"), "goal_climb" in source("linear_fill")
    (True, False)
    """
    for names in _FAMILIES:
        text = _text(names)
        if kernel in (name for name, _ in _KERNEL.findall(text)):
            return text
    raise KeyError(kernel)


@cache
def _everything() -> str:
    return _text(tuple(dict.fromkeys(name for names in _FAMILIES for name in names)))


@cache
def emulator_source() -> str:
    """Return the C++ that runs the kernels on a CPU: the same source, and a function `run_<kernel>` for each."""
    runner = (files("limiirl.kernels") / "cuda" / "emulator.hpp").read_text(encoding="utf-8")
    calls = []
    for name, found in signatures().items():
        given = ", ".join(("unsigned blocks", "unsigned threads", "u64 shared", "int reverse", *found.declarations))
        call = f"emulate(blocks, threads, shared, reverse, [&] {{ {name}({', '.join(found.names)}); }})"
        calls.append(f'extern "C" int run_{name}({given}) {{ return {call}; }}')
    return "\n".join((runner, _everything(), *calls, ""))


@cache
def signatures() -> dict[str, Signature]:
    """Return the signatures of all kernels by name.

    Examples
    --------
    >>> signatures()["linear_fill"].names
    ('size', 'n_columns', 'prob', 'reward', 'weight')
    """
    found = {}
    for name, parameters in _KERNEL.findall(_everything()):
        declarations = tuple(" ".join(part.split()) for part in parameters.split(","))
        names = tuple(re.split(r"[ *]+", part)[-1] for part in declarations)
        types = tuple("pointer" if "*" in part else part.split()[0] for part in declarations)
        found[name] = Signature(declarations, names, types)
    return found
