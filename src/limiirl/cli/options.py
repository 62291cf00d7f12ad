"""`--device`: where a command's model computes, the same for every command that has it.

The options that say where a command's work is done, the same for every command that has them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from limiirl.errors import InvalidParameter

if TYPE_CHECKING:
    from limiirl.executors import Executor
    from limiirl.mdp import MDP


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


def tell_device(device: str | None, mdp: MDP | int | None) -> None:
    """Say, on stderr, where "auto" computes for an MDP, or for one of so many states and edges."""
    if device != "auto" or mdp is None:
        return
    from limiirl.irl import WORTH_IT, choose_device

    size = mdp if isinstance(mdp, int) else mdp.n_states + mdp.n_edges
    found = choose_device(device, size)
    if found is not None:
        where = found.name
    elif size < WORTH_IT:
        where = f"the CPU: a GPU gains from {WORTH_IT:,} states and edges on, and there are {size:,}"
    else:
        where = "the CPU: no GPU works here (--device gpu says why)"
    typer.echo(f"--device auto: computing on {where}.", err=True)


ExecutorName = Annotated[str | None, typer.Option("--executor", help="Where to run: local or dask.")]
Workers = Annotated[int | None, typer.Option(help="Processes at once; as many as there are cores by default.")]
Scheduler = Annotated[str | None, typer.Option(help="Address of the Dask scheduler, as in tcp://10.0.0.1:8786.")]


def resolve_executor(name: str | None, workers: int | None, scheduler: str | None) -> Executor | None:
    """Return the executor that was asked for, whose package is there; None where no option was given.

    >>> resolve_executor(None, None, None) is None
    True
    >>> resolve_executor(None, 2, None)
    Executor(name='local', workers=2, scheduler=None)
    """
    if name is None and workers is None and scheduler is None:
        return None
    from limiirl.executors import Executor

    executor = Executor(name or "local", workers, scheduler)
    executor.check()
    return executor
