"""`--device`: where a command's model computes, the same for every command that has it."""

from typing import Annotated

import typer

DeviceName = Annotated[
    str | None, typer.Option("--device", help="Where to compute: cpu, gpu, or auto (a GPU where it is worth it).")
]


def with_device(settings: list[str], device: str | None) -> list[str]:
    """Return settings of a mixture that name the device of its model too, if one was given.

    >>> with_device(["tol=1e-4"], "auto")
    ['irl__device=auto', 'tol=1e-4']
    >>> with_device([], None)
    []
    """
    return settings if device is None else [f"irl__device={device}", *settings]
