"""The command line: parse options, call the library, print."""

import json
import math
import os
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from limiirl import __version__
from limiirl.cli import mixtures, reproduce, roads, stream
from limiirl.cli.options import AsJson, add_command, echo, make_app
from limiirl.errors import LimiirlError, LimiirlWarning

app = make_app("Learn one reward function per intent from unlabelled demonstrations.")


def _show_version(show: bool) -> None:
    if show:
        echo(f"limiirl {__version__}")
        raise typer.Exit


@app.callback(epilog="Example: limiirl fit demos.parquet --intents 3")
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Learn one reward function per intent from unlabelled demonstrations."""


def demo(
    context: typer.Context,
    n: Annotated[int, typer.Option("--demos", "-n", help="Number of demonstrations.")] = 100,
    seed: Annotated[int, typer.Option(help="Random seed of the world and the demonstrations.")] = 2,
    worlds: Annotated[int, typer.Option(help="Number of worlds in the study.", min=1)] = 8,
    out: Annotated[Path, typer.Option("--out", "-o", help="Output folder of the report.")] = Path("report"),
    as_json: AsJson = False,
) -> None:
    """Fit a small example and write a report.

    Learns three intents from unlabelled trajectories in a grid world, compares them with the ground truth, and compares
    initialisations in a small study.
    """
    from limiirl.cli.demo import describe, describe_study, fit_example, run_study, to_dict, write_report

    example = fit_example(n, seed)
    if not as_json:
        echo(describe(example))
    store = run_study(worlds, out, context.obj)
    page = write_report(example, store, out)
    if as_json:
        echo(json.dumps(to_dict(example) | {"report": str(page)}))
    else:
        echo(f"\n{describe_study(store)}\n\nReport: {page}")


add_command(app, demo, "demo --demos 300 --seed 7", show_help=False)
add_command(app, mixtures.fit, "fit demos.parquet --mdp town.npz --intents 3 --out intents")
add_command(app, mixtures.switch, "switch recordings.csv --intents 3 --by-group --report page --out intents")
add_command(app, mixtures.predict, "predict intents new_demos.parquet --out labels.csv")
add_command(app, mixtures.evaluate, "evaluate intents test_demos.parquet --truth truth.json")
add_command(app, mixtures.select, "select demos.parquet --mdp town.npz --intents 1-6 --plot criteria.png")
add_command(app, mixtures.infer, "infer demos.parquet --mdp town.npz --model MaxCausalEnt --out intents")
app.add_typer(roads.app, name="roads")
app.add_typer(stream.app, name="stream")
add_command(app, reproduce.reproduce, "reproduce table1 --repeats 100 --out run")
add_command(app, reproduce.report, "report run --out report")


# Options whose name differs from that of the parameter in the library.
_SYNONYMS = {
    "random_state": "seed",
    "zones": "mask",
    "label": "labels",
    "name": "model",
    "covariates": "step_covariates",
}
# Parameters that several options may set; the option is identified by its value.
_PATHS = ("path", "folder")
_show_other_warnings = warnings.showwarning


@cache
def build_commands() -> Any:
    """Build the commands; the result is cached, because building takes time."""
    return typer.main.get_command(app)


def find_option(parameter: str | None, words: list[str], value: object = None) -> str | None:
    """Return the option that sets a parameter of the library, or None if no option does.

    Parameters
    ----------
    parameter : str or None
        Name of an argument of the library.
    words : list of str
        The command line. It begins with the name of the command.
    value : object
        Offending value. If no option sets the parameter and the value is text, the option with this text is returned.

    Examples
    --------
    >>> find_option("n_intents", ["roads", "fit", "town.npz", "m.npz"])
    '--intents'
    >>> find_option("resp_tol", ["fit", "walks.csv", "--set", "resp_tol=-1"])
    '--set resp_tol'
    >>> find_option("path", ["fit", "walks.csv", "--mdp", "town.npz"], "town.npz")
    '--mdp'
    """
    command = build_commands()
    for word in words:
        inner = getattr(command, "commands", {}).get(word)
        if inner is None:
            break
        command = inner
    for option in command.params:
        if option.name in (parameter, _SYNONYMS.get(str(parameter))) and option.opts[0].startswith("--"):
            return next((name for name in option.secondary_opts if name in words), str(option.opts[0]))
    settings = [word.partition("=")[0] for word in words if "=" in word]
    for name in settings:
        if name in (parameter, f"irl__{parameter}"):
            return f"--set {name}"
    if parameter not in _PATHS and not isinstance(value, str):  # several options may have the same number
        return None
    given = dict(pair for pair in pairwise(words) if pair[0].startswith("-"))
    given |= dict(word.split("=", 1) for word in words if word.startswith("--") and "=" in word)
    options = {name: option.opts[0] for option in command.params for name in option.opts if name.startswith("-")}
    matching = (
        options[name]
        for name, text in given.items()
        if name in options and str(value) in (text, str(Path(text).absolute()))
    )
    return next(matching, None)


def _describe(error: LimiirlError, words: list[str]) -> str:
    """Return an error message in one line that names the invalid option or, with --json, as JSON."""
    option = find_option(error.parameter, words, error.value)
    if "--json" not in words:
        message = " ".join(str(error).split("\n"))
        if option is not None and message.startswith((f"{error.parameter} ", f"{error.parameter}[")):
            message = option + message.removeprefix(str(error.parameter))
        elif option is not None and option not in message:
            message = f"{option}: {message}"
        return f"limiirl: {message}"
    value: Any = error.value.item() if getattr(error.value, "shape", None) == () else error.value  # type: ignore[attr-defined]
    plain = isinstance(value, int | str | None) or (isinstance(value, float) and math.isfinite(value))
    facts = {"parameter": error.parameter, "option": option, "value": value if plain else str(value)}
    return json.dumps({"error": type(error).__name__, "message": str(error)} | facts | {"index": error.index})


# Time in seconds that Python has to handle an interrupt before the process is ended. Files are written atomically.
_GRACE_S = 3.0


@contextmanager
def interruptible() -> Iterator[None]:
    """Return a context manager in which an interrupt raises KeyboardInterrupt, or ends the process in compiled code.

    Python runs signal handlers only between bytecode instructions of the main thread, so that compiled code delays
    them. A second thread waits for the signal, and ends the process with exit code 130 if the handler has not run after
    `_GRACE_S` seconds.
    """
    default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if threading.current_thread() is not threading.main_thread() or not default:
        yield
        return
    handled = threading.Event()
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)

    def handle(number: int, frame: FrameType | None) -> None:
        handled.set()
        signal.default_int_handler(number, frame)

    def wait() -> None:
        while True:
            received = ours.recv(1)
            if not received:  # the context manager has exited
                return
            if received[0] == signal.SIGINT and not handled.wait(_GRACE_S):
                os.write(2, b"limiirl: interrupted.\n")
                os._exit(130)
            handled.clear()

    thread = threading.Thread(target=wait, daemon=True)
    previous = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, handle)
    thread.start()
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.set_wakeup_fd(previous)
        theirs.close()
        thread.join()
        ours.close()


def main(arguments: list[str] | None = None) -> None:
    """Run the command line with `arguments` (default: sys.argv); for invalid input, print one line and exit with 2."""
    words = sys.argv[1:] if arguments is None else arguments

    def show_warning(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if issubclass(category, LimiirlWarning):
            echo(f"limiirl: warning: {message}", err=True)
        else:
            _show_other_warnings(message, category, *where, **more)

    warnings.showwarning = show_warning
    try:
        with interruptible():
            build_commands()(words, obj=words)  # the command line is recorded with the results of a run
    except LimiirlError as error:
        echo(_describe(error, words), err=True)
        sys.exit(2)
    except OSError as error:  # a missing folder, a full disk
        message = f"{error.strerror or error}."
        echo(f"limiirl: {error.filename}: {message}" if error.filename else f"limiirl: {message}", err=True)
        sys.exit(2)
    except MemoryError as error:
        echo(f"limiirl: out of memory. Use less data, or smaller parameters. {error}".rstrip(), err=True)
        sys.exit(2)


__all__ = ["build_commands", "interruptible", "main"]
