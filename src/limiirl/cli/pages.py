"""Reports on fitted mixtures, written by `limiirl report MIXTURE` and by the option --report of other commands."""

import hashlib
import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from limiirl._progress import show_progress
from limiirl.cli.inputs import (
    check_exists,
    check_page,
    command_line,
    get_groups,
    read_covariates,
    read_demos,
    read_labelled,
    read_step_covariates,
)
from limiirl.cli.options import echo
from limiirl.errors import InvalidFile, InvalidParameter, LimiirlWarning

if TYPE_CHECKING:
    from limiirl.mdp import MDP

ReportFolder = Annotated[
    Path | None, typer.Option("--report", metavar="FOLDER", help="Write an HTML page to this folder.")
]
_HEADER = "mixture.json"


def check_report(folder: Path | None, *inputs: Path | None) -> None:
    """Raise if the report cannot be written to a folder; called before the computation."""
    check_page(folder, *inputs, option="report")


@contextmanager
def record_warnings() -> Iterator[list[str]]:
    """Return a context manager that collects the messages of limiirl's warnings; they are also shown as usual."""
    messages: list[str] = []
    show = warnings.showwarning

    def collect(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if issubclass(category, LimiirlWarning):
            messages.append(str(message))
        show(message, category, *where, **more)

    warnings.showwarning = collect
    try:
        yield messages
    finally:
        warnings.showwarning = show


def write_page(
    context: typer.Context, folder: Path | None, mixture: Any, demos: Any = None, groups: Any = None, **options: Any
) -> None:
    """Write the report on a mixture and print its path to stderr; do nothing if `folder` is None."""
    if folder is None:
        return
    from limiirl import SwitchingMixture
    from limiirl.report.intents import write_intents, write_switching

    write = write_switching if isinstance(mixture, SwitchingMixture) else write_intents
    with show_progress("page") as progress:
        path = write(mixture, folder, demos, progress, groups=groups, command=command_line(context), **options)
    echo(f"Report: {path}", err=True)


def describe_data(
    demos: Path, out: Path, columns: str | None, cut: int | None, by_group: bool, **more: str | None
) -> dict[str, Any]:
    """Return the path of a file relative to the folder of a mixture, its checksum, and the options that read it."""
    file = os.path.realpath(demos)
    try:
        path = os.path.relpath(file, os.path.realpath(out))
    except ValueError:  # on another drive of Windows, to which no relative path leads
        path = file
    facts = {"path": Path(path).as_posix(), "sha256": _sha256(demos)}
    return facts | {"columns": columns, "cut": cut, "by_group": by_group} | more


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def find_data(folder: Path, recorded: dict[str, Any] | None) -> tuple[Path | None, str]:
    """Return the file that a mixture was fitted to, or None and the reason if it is not available."""
    if recorded is None:
        return None, "The mixture was not fitted to a file."
    path = Path(os.path.normpath(Path(os.path.realpath(folder)) / recorded["path"]))
    if not path.is_file():
        return None, f"The mixture was fitted to {path}, which does not exist."
    if _sha256(path) != recorded["sha256"]:
        return None, f"The mixture was fitted to {path}, which has changed."
    return path, ""


def resolve_cut(cut: int | None, mixture: Any) -> int | None:
    """Return the value of --cut, by default that of the fit, which is then printed to stderr."""
    recorded = None if mixture.data_file_ is None else mixture.data_file_["cut"]
    if cut is None and recorded is not None:
        echo(f"Recordings are cut into pieces of at most {recorded} steps, as for the fit (--cut).", err=True)
    return recorded if cut is None else cut


def is_mixture(folder: Path) -> bool:
    """Return True if a folder contains a saved mixture."""
    return (folder / _HEADER).is_file()


def report_mixture(  # noqa: PLR0913 (the options of a command)
    context: typer.Context,
    folder: Path,
    out: Path | None,
    demos: Path | None,
    columns: str | None,
    cut: int | None,
    by_group: bool,
    covariates: Path | None,
    coordinates: Path | None,
    as_json: bool,
) -> None:
    """Write the report on a saved mixture; see `limiirl report`."""
    from limiirl import IntentMixture, SwitchingMixture
    from limiirl.report.intents import merge_previous, write_intents, write_switching
    from limiirl.switching import is_saved

    target = Path(f"{os.path.normpath(folder)}-report") if out is None else out
    check_report(target, folder, demos, coordinates, covariates)
    switching = is_saved(folder)
    mixture: Any = (SwitchingMixture if switching else IntentMixture).load(folder)
    reason, recorded, more = "", mixture.data_file_, dict[str, Any]()
    if demos is None:
        demos, reason = find_data(folder, recorded)
        if demos is not None and recorded is not None:
            check_report(target, demos)
            columns, cut = columns or recorded["columns"], cut or recorded["cut"]
            by_group = by_group or recorded["by_group"]
    if switching:
        check_uncut(cut)
        condition = None if recorded is None else recorded["condition"]
        if demos is not None:
            more = read_step_columns(mixture, demos, columns) | read_condition(demos, condition, columns)
    data = None if demos is None else read_demos(demos, columns, cut)
    grouped = by_group or (data is not None and mixture.groups_ is not None)
    groups = None if data is None else get_groups(data, grouped)
    xy = None if coordinates is None else read_coordinates(coordinates, merge_previous(mixture.mdp_)[0])
    more |= {"groups": groups, "coordinates": xy, "command": command_line(context)}
    with show_progress("page") as progress:
        if not switching:
            more["covariates"] = read_covariates(covariates)
        path = (write_switching if switching else write_intents)(mixture, target, data, progress, **more)
    if as_json:
        echo(json.dumps({"report": str(path)}))
        return
    echo(f"Report: {path}")
    if data is None:
        echo(f"{reason} Pass --demos FILE for errors, trajectories and visits.", err=True)


def read_step_columns(mixture: Any, demos: Path, columns: str | None) -> dict[str, Any]:
    """Return the argument `covariates` of methods of a `SwitchingMixture`, read from a table of steps."""
    names = () if mixture.covariates_ is None else mixture.covariates_.columns
    return {"covariates": read_step_covariates(demos, names, columns)}


def read_condition(demos: Path, column: str | None, columns: str | None) -> dict[str, Any]:
    """Return the argument `condition` of reports on a `SwitchingMixture`; empty without a column."""
    if column is None:
        return {}
    return {"condition": read_labelled(demos, column, columns, None, "condition").labels}


def check_uncut(cut: int | None) -> None:
    """Raise if --cut is set for a mixture of intents that switch within recordings."""
    if cut is not None:
        rule = "cannot be combined with intents that switch within recordings"
        raise InvalidParameter.of("cut", cut, rule, remedy="Omit --cut: each recording is used as a whole.")


def read_coordinates(path: Path, mdp: "MDP | None") -> Any:
    """Read the positions (S, 2) of the states from a table with the columns state, x and y.

    The column state has the state names of the MDP, or state numbers.
    """
    import numpy as np

    from limiirl.demos import read_table

    if mdp is None:
        raise InvalidParameter.of(
            "coordinates",
            str(path),
            "requires a mixture that was fitted to demonstrations; this one was fitted to agents",
        )
    table = read_table(check_exists(path))
    missing = [name for name in ("state", "x", "y") if table is None or name not in table.column_names]
    if table is None or missing:
        raise InvalidFile.at(path, f"must have the columns state, x and y; it lacks {', '.join(missing)}.")
    names = [str(s) for s in range(mdp.n_states)] if mdp.state_names is None else list(mdp.state_names)
    rows = {str(state): i for i, state in enumerate(table["state"].to_pylist())}
    absent = [name for name in names if name not in rows]
    if absent:
        raise InvalidFile.at(path, f"must have one row per state; state {absent[0]!r} is missing.")
    order = [rows[name] for name in names]
    return np.column_stack([np.asarray(table[axis].to_pylist(), dtype=np.float64)[order] for axis in ("x", "y")])
