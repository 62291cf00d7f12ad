"""The command line: parse, call, print."""

import json
import math
import sys
import warnings
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer

from limiirl import __version__
from limiirl.cli import mixtures, reproduce, roads, stream
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


# Parameters of the library that a command's function calls otherwise.
_SYNONYMS = {"random_state": "seed", "max_intents": "most"}
_show_other_warnings = warnings.showwarning


@cache
def _commands() -> Any:
    """Build all commands once: reading the options of every command takes longer than most of them run."""
    return typer.main.get_command(app)


def find_option(parameter: str | None, words: list[str]) -> str | None:
    """Return the option of the command named by `words` that sets a parameter of the library; None if there is none.

    Examples
    --------
    >>> find_option("n_intents", ["roads", "fit", "town.npz", "m.npz"])
    '--intents'
    >>> find_option("tol", ["fit", "walks.csv", "--set", "tol=-1"])
    '--set tol'
    """
    command = _commands()
    for word in words:
        inner = getattr(command, "commands", {}).get(word)
        if inner is None:
            break
        command = inner
    for option in command.params:
        if option.name in (parameter, _SYNONYMS.get(str(parameter))) and option.opts[0].startswith("--"):
            return str(option.opts[0])
    settings = [word.partition("=")[0] for word in words if "=" in word]
    return next((f"--set {name}" for name in settings if name in (parameter, f"irl__{parameter}")), None)


def _describe(error: LimiirlError, words: list[str]) -> str:
    """Return an error in one sentence that names the option at fault, or as JSON where that was asked for."""
    option = find_option(error.parameter, words)
    if "--json" in words:
        value: Any = error.value
        if getattr(value, "shape", None) == ():
            value = value.item()  # a number of numpy
        finite = isinstance(value, float) and math.isfinite(value)
        plain = value if finite or isinstance(value, int | str | None) else str(value)
        facts = {"parameter": error.parameter, "option": option, "value": plain, "index": error.index}
        return json.dumps({"error": type(error).__name__, "message": str(error)} | facts)
    return f"limiirl: {error}" + ("" if option is None or option in str(error) else f" (option {option})")


def main(arguments: list[str] | None = None) -> None:
    """Run the command line, on sys.argv by default; an error of the library is one sentence and exit code 2."""
    words = sys.argv[1:] if arguments is None else arguments

    def show_warning(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        """Print a warning of the library as one line on stderr; others as Python does."""
        if issubclass(category, LimiirlWarning):
            typer.echo(f"limiirl: warning: {message}", err=True)
        else:
            _show_other_warnings(message, category, *where, **more)

    warnings.showwarning = show_warning
    try:
        _commands()(words, obj=words)  # a run records the words of its command
    except LimiirlError as error:
        typer.echo(_describe(error, words), err=True)
        sys.exit(2)
    except OSError as error:  # a folder that does not exist, a full disk
        typer.echo(f"limiirl: {error.filename or 'a file'}: {error.strerror or error}.", err=True)
        sys.exit(2)


__all__ = ["main"]
