"""`--device`: where a command's model computes, the same for every command that has it."""

from typing import Annotated

import typer

from limiirl.errors import InvalidParameter

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
    for setting in settings:
        if setting.startswith("irl__device="):
            raise InvalidParameter(
                f"--device {device} and --set {setting} name the device twice. Leave one of them out."
            )
    return [f"irl__device={device}", *settings]
