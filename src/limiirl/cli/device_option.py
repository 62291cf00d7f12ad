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
    if device is None:
        return settings
    from limiirl.irl.devices import choose_device

    choose_device(device, 0)  # raises at once, before anything is read or fitted, where there is no such device
    return [f"irl__device={device}", *settings]
