"""Options shared by several commands, the layout of the help, and the selection of devices and executors."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from limiirl._progress import escape_controls
from limiirl.errors import InvalidParameter

if TYPE_CHECKING:
    from limiirl.executors import Executor
    from limiirl.mdp import MDP


_STEPS = "Parquet or CSV file with one row per step and columns demo, t, state[, action, group, label]."
Demos = Annotated[Path, typer.Argument(metavar="DEMOS", help=_STEPS)]
DemosOrAgents = Annotated[
    Path, typer.Argument(metavar="DEMOS", help=f"{_STEPS} For SigmaGIRL: .npz file written by Agents.save.")
]
Columns = Annotated[
    str | None,
    typer.Option(
        metavar="NAME=COLUMN,...",
        help="Columns with other names, such as demo=mouse+bout,t=step,state=place,group=mouse.",
    ),
]
StateFeatures = Annotated[
    Path | None,
    typer.Option(
        "--state-features",
        metavar="TABLE",
        help="Parquet or CSV file with one row per state: its name (state), and features (numbers, booleans or text).",
    ),
]
Covariates = Annotated[
    Path | None,
    typer.Option(
        "--covariates",
        metavar="TABLE",
        help="Parquet or CSV file with one row per demonstration (column demo) or group (column group), and covariates "
        "(numbers, booleans or text) of the mixture weights.",
    ),
]
Cut = Annotated[
    int | None,
    typer.Option("--cut", metavar="N", help="Cut long recordings into pieces of at most N steps.", min=1),
]
MDPFile = Annotated[
    Path | None,
    typer.Option("--mdp", help="MDP file (.npz) written by MDP.save. [default: estimated from the demonstrations]"),
]
Gamma = Annotated[
    float | None,
    typer.Option(help="Discount factor of the estimated MDP. [default: 0.99 for MaxCausalEnt and MLIRL, otherwise 1]"),
]
NIntents = Annotated[str, typer.Option("--intents", "-k", metavar="K", help="Number of intents.")]
Numbers = Annotated[
    str, typer.Option("--intents", "-k", metavar="K", help="Number of intents, or a range to compare, such as 1-6.")
]
Range = Annotated[
    str,
    typer.Option(
        "--intents", "--max-intents", "-k", metavar="K", help="Numbers of intents to compare, such as 1-6; 6 is 1-6."
    ),
]
Switching = Annotated[
    str,
    typer.Option(help="What the probabilities of switching depend on: homogeneous (the intent only), or state."),
]
StepCovariates = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN,...", help="Columns on which the probabilities of switching depend; replaces --switching."
    ),
]
Covariance = Annotated[
    str,
    typer.Option(help="Standard errors: observed (information), robust, or cluster (robust, clustered by group)."),
]
Condition = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="Compare groups by this column, such as their treatment."),
]
SegmentsFile = Annotated[
    Path | None,
    typer.Option("--segments", metavar="FILE", help="Output file (.csv or .parquet) with one row per segment."),
]
Model = Annotated[
    str | None,
    typer.Option(
        help="Single-intent model: MaxEnt, MaxCausalEnt, MLIRL, DestinationMaxEnt or SigmaGIRL. "
        "[default: chosen from the data]"
    ),
]
Init = Annotated[str, typer.Option(help="Initialisation: kmeans, gmm, best, random or random_rewards.")]
RewardInit = Annotated[str, typer.Option(help="Initial rewards: mle, mean, mean_clipped or mean_ray.")]
Setting = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Set another parameter of the mixture, or of its model (irl__NAME=VALUE). Repeatable.",
    ),
]
Seed = Annotated[int, typer.Option(help="Random seed.")]
ByGroup = Annotated[bool, typer.Option("--by-group", help="Assign one intent per group instead of per demonstration.")]
FoldByGroup = Annotated[bool, typer.Option("--fold-by-group", help="Keep each group within one fold.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
MixtureOut = Annotated[Path, typer.Option("--out", "-o", help="Output folder of the fitted mixture.")]
MixtureFolder = Annotated[Path, typer.Argument(metavar="MIXTURE", help="Folder written by `limiirl fit` or `switch`.")]
Network = Annotated[Path, typer.Argument(metavar="NETWORK", help="Road network written by `limiirl roads build`.")]
MatchesFile = Annotated[Path, typer.Argument(metavar="MATCHES", help="Matched trips written by `limiirl roads match`.")]
Styles = Annotated[Path, typer.Argument(metavar="STYLES", help="Folder written by `limiirl roads fit`.")]
Page = Annotated[
    Path | None, typer.Option("--page", "--report", help="Output folder of an HTML report. [default: no report]")
]
GeoJSON = Annotated[
    Path | None,
    typer.Option(
        "--geojson", "--gis", metavar="FILE", help="Output file for a GIS: GeoJSON, or GeoPackage if it ends in .gpkg."
    ),
]
NoExamples = Annotated[bool, typer.Option("--no-examples", help="Do not show individual trips in the report.")]
DeviceName = Annotated[
    str | None, typer.Option("--device", help="Device: cpu, gpu, or auto (gpu for large MDPs). [default: cpu]")
]
ExecutorName = Annotated[
    str | None, typer.Option("--executor", help="Run in parallel: local (processes) or dask. [default: not parallel]")
]
Workers = Annotated[
    int | None, typer.Option(help="Number of parallel tasks; implies --executor local. [default: number of CPU cores]")
]
Scheduler = Annotated[str | None, typer.Option(help="For dask: address of the scheduler, such as tcp://10.0.0.1:8786.")]


def echo(text: str, *, err: bool = False) -> None:
    r"""Print a line; control characters and undecodable bytes of file names are escaped.

    >>> echo("red \x1b[31m")
    red \x1b[31m
    """
    printable = escape_controls(text)
    encoding = getattr(sys.stderr if err else sys.stdout, "encoding", None) or "utf-8"
    typer.echo(printable.encode(encoding, "backslashreplace").decode(encoding), err=err)


class _Command(TyperCommand):
    """Command whose help omits braces, types and "[required]" of arguments, and "range" in types."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command line; the message for an invalid value ends with the value."""
        words = [piece for word in args for piece in (word.split("=", 1) if word.startswith("--") else [word])]
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            options = () if error.param is None else error.param.opts
            given = [value for name, value in pairwise(words) if name in options]
            error.message += f"; got {given[-1]!r}" if given else ""
            raise

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the options and arguments of the usage line."""
        return [piece.replace("{", "").replace("}", "") for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and the options."""
        arguments, options = [], []
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            if parameter.param_type_name == "argument":
                name = str(parameter.metavar) + ("..." if parameter.nargs != 1 else "")
                arguments.append((name, record[1].removesuffix("  [required]")))
            else:
                options.append((record[0].replace(" range>", ">"), record[1].replace("  [", " [")))
        for title, rows in (("Arguments", arguments), ("Options", options)):
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def make_app(summary: str, example: str = "") -> typer.Typer:
    """Return a group of commands whose help is plain text."""
    return typer.Typer(
        help=summary,
        epilog=f"Example: limiirl {example}" if example else None,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    )


def add_command(app: typer.Typer, function: Callable[..., Any], example: str, *, show_help: bool = True) -> None:
    """Add a command with an example in its help; if `show_help`, the command prints its help without arguments."""
    app.command(cls=_Command, epilog=f"\b\nExample: limiirl {example}", no_args_is_help=show_help)(function)


def with_device(settings: list[str], device: str | None) -> list[str]:
    """Add the value of --device to the values of --set.

    >>> with_device(["resp_tol=1e-4"], "auto")
    ['irl__device=auto', 'resp_tol=1e-4']
    """
    if device is None:
        return settings
    if any(setting.startswith("irl__device=") for setting in settings):
        raise InvalidParameter.of(
            "device", device, "cannot be combined with --set irl__device", remedy="Remove one of the two options."
        )
    return [f"irl__device={device}", *settings]


def report_device(device: str | None, mdp: MDP | int | None) -> None:
    """Print to stderr which device "auto" selects for an MDP, or for a given number of states plus edges."""
    if device != "auto" or mdp is None:
        return
    from limiirl.irl import GPU_MIN_SIZE, choose_device

    size = mdp if isinstance(mdp, int) else mdp.n_states + mdp.n_edges
    gpu = choose_device(device, size)
    if gpu is not None:
        name = gpu.name
    elif size < GPU_MIN_SIZE:
        name = f"the CPU ({size:,} states plus edges; a GPU is faster from {GPU_MIN_SIZE:,})"
    else:
        name = "the CPU (no usable GPU; run with --device gpu to see the reason)"
    echo(f"--device auto: computing on {name}.", err=True)


def resolve_executor(name: str | None, workers: int | None, scheduler: str | None) -> Executor | None:
    """Return the executor that the options select, or None if none is set; raise if it is not available.

    >>> resolve_executor(None, 2, None)
    Executor(name='local', workers=2, scheduler=None)
    """
    if name is None and workers is None and scheduler is None:
        return None
    from limiirl.executors import Executor

    executor = Executor(name or "local", workers, scheduler)
    executor.check()
    return executor
