"""The options that several commands share, and what becomes of --device and --executor."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from limiirl.errors import InvalidParameter

if TYPE_CHECKING:
    from limiirl.executors import Executor
    from limiirl.mdp import MDP


Demos = Annotated[
    Path,
    typer.Argument(
        help="Parquet or CSV: demo, t, state[, action, group], one row a step; for SigmaGIRL an .npz of Agents.save."
    ),
]
MDPFile = Annotated[
    Path | None, typer.Option("--mdp", help="An .npz of MDP.save; estimated from the demonstrations without it.")
]
Gamma = Annotated[
    float | None,
    typer.Option(help="Discount of the estimated MDP; 1 by default, 0.99 for MaxCausalEnt and MLIRL."),
]
Model = Annotated[str, typer.Option(help="The single-intent model: MaxEnt, MaxCausalEnt, MLIRL or SigmaGIRL.")]
Init = Annotated[str, typer.Option(help="kmeans, gmm, best, random or random_rewards.")]
Setting = Annotated[
    list[str], typer.Option("--set", help="NAME=VALUE: any parameter, such as irl__max_length=50 or tol=1e-4.")
]
Seed = Annotated[int, typer.Option(help="Seed of all that is random.")]
ByGroup = Annotated[bool, typer.Option("--by-group", help="One intent a group (driver, animal) instead of a demo.")]
FoldByGroup = Annotated[
    bool,
    typer.Option(
        "--fold-by-group", help="Intents of demos, but hold out whole groups (drivers, animals) in the folds."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Network = Annotated[Path, typer.Argument(help="An .npz that `limiirl roads build` wrote.")]
MatchesFile = Annotated[Path, typer.Argument(help="An .npz that `limiirl roads match` wrote.")]
Styles = Annotated[Path, typer.Argument(help="A folder that `limiirl roads fit` wrote.")]
Page = Annotated[Path | None, typer.Option("--page", help="Folder for a page about it, which opens in a browser.")]
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
                f"--device {device} and --set {setting} name the device twice. Leave one of them out.",
                parameter="device",
                value=device,
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
