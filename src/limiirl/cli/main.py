"""`limiirl`: the commands and what they print."""

import json
import sys
from typing import Annotated

import typer

from limiirl import __version__
from limiirl.errors import LimiirlError

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
    n: Annotated[int, typer.Option("--demos", "-n", help="Demonstrations of each intent.")] = 300,
    seed: Annotated[int, typer.Option(help="Seed of the world and of the demonstrations.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Recover the rewards of three intents in a small built-in world, and compare them with the truth.

    Example: limiirl demo --demos 1000 --seed 7
    """
    from limiirl.cli.demo import recover, table

    found = recover(n, seed)
    if as_json:
        typer.echo(json.dumps(found.as_dict()))
    else:
        table(found)


def main() -> None:
    """Run the command line; an error of ours is one sentence and exit code 2."""
    try:
        app()
    except LimiirlError as error:
        typer.echo(f"limiirl: {error}", err=True)
        sys.exit(2)
