"""The command line: parse, call, print.

`limiirl`: the commands and what they print.
"""

import json
import sys
import warnings
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer

from limiirl import __version__
from limiirl.cli import mixtures, reproduce, roads, stream
from limiirl.cli.wording import in_options, options_of
from limiirl.errors import LimiirlError, LimiirlWarning

app = typer.Typer(
    help="Find the distinct intents behind unlabelled behaviour.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"limiirl {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Hold the options that come before a command."""


@app.command()
def demo(
    context: typer.Context,
    n: Annotated[int, typer.Option("--demos", "-n", help="Number of demonstrations.")] = 100,
    seed: Annotated[int, typer.Option(help="Seed of the world and of the demonstrations.")] = 2,
    worlds: Annotated[int, typer.Option(help="Worlds of the study that the report shows.", min=1)] = 8,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the report.")] = Path("report"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Learn three intents from unlabelled walks, compare them with the truth, and write a report of a small study.

    Example: limiirl demo --demos 300 --seed 7
    """
    from limiirl.cli.demo import learn, study, tell

    found = learn(n, seed)
    if not as_json:
        typer.echo(tell(found))
    page = study(worlds, out, context.obj)
    typer.echo(json.dumps(found.as_dict() | {"report": str(page)}) if as_json else f"\nThe report is {page}")


app.command(no_args_is_help=True)(mixtures.fit)
app.command(no_args_is_help=True)(mixtures.evaluate)
app.command(no_args_is_help=True)(mixtures.predict)
app.command(no_args_is_help=True)(mixtures.select)
app.command(no_args_is_help=True)(mixtures.infer)
app.command(no_args_is_help=True)(reproduce.reproduce)
app.command(no_args_is_help=True)(reproduce.report)
app.add_typer(roads.app, name="roads")
app.add_typer(stream.app, name="stream")


_python_shows = warnings.showwarning


@cache
def _commands() -> Any:
    """All commands, made once: reading the options of every command takes longer than most of them run."""
    return typer.main.get_command(app)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line, on sys.argv by default; an error of ours is one sentence and exit code 2."""
    words = sys.argv[1:] if arguments is None else arguments
    options = options_of(_commands(), words)

    def show_warning(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        """Print a warning of ours as one line on stderr; others as Python does."""
        if issubclass(category, LimiirlWarning):
            typer.echo(f"limiirl: warning: {in_options(str(message), options)}", err=True)
        else:
            _python_shows(message, category, *where, **more)

    warnings.showwarning = show_warning
    try:
        _commands()(words, obj=words)  # a run notes the words that made it
    except LimiirlError as error:
        typer.echo(f"limiirl: {in_options(str(error), options)}", err=True)
        sys.exit(2)
    except OSError as error:  # a folder that is not there, a full disk
        typer.echo(f"limiirl: {error.filename or 'a file'}: {error.strerror or error}.", err=True)
        sys.exit(2)


__all__ = ["main"]
