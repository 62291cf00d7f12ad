"""Read and validate the inputs of commands: MDPs, demonstrations, agents, settings and output folders."""

import ast
import contextlib
import math
import os
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import typer

from limiirl.cli.options import echo
from limiirl.errors import InvalidDemos, InvalidFile, InvalidParameter

if TYPE_CHECKING:
    from limiirl import MDP, BayesianIntentMixture, IntentMixture, SwitchingMixture
    from limiirl.report import Report


_Mixture = TypeVar("_Mixture", "IntentMixture", "BayesianIntentMixture", "SwitchingMixture")
# The only model that is fitted to `Agents`.
_AGENT_MODEL = "SigmaGIRL"
_CAUSAL_DISCOUNT = 0.99
# Largest number of intents of --intents.
_MOST_INTENTS = 1000
# Column with the number of each row of a table.
_ROW = "row number"
# Parameters that --set does not accept, because they have their own options or cannot be written as text.
_OPTIONS = ("irl", "n_intents", "max_intents", "random_state", "progress", "verbose")


class Problem(NamedTuple):
    """Inputs of a fit: MDP, demonstrations or agents, unfitted model, and the reason if the model was chosen."""

    mdp: "MDP | None"
    demos: Any
    irl: Any
    choice: str = ""


def read_problem(
    demos: Path,
    mdp: Path | None,
    model: str | None,
    gamma: float | None,
    columns: str | None = None,
    cut: int | None = None,
    state_features: Path | None = None,
    *,
    quiet: bool = False,
) -> Problem:
    """Read demonstrations and their MDP, or estimate the MDP if `mdp` is None.

    If the file contains `Agents`, the MDP of the returned problem is None. If `model` is None, the default model is
    chosen and, unless `quiet`, printed to stderr.
    """
    from limiirl.irl import DestinationMaxEnt, choose_model, model_class

    world, data = _read_data(demos, mdp, model, gamma, columns, cut, state_features)
    if model is not None:
        return Problem(world, data, model_class(model)())
    choice = choose_model(world, data, estimated=mdp is None)
    if world is not None and mdp is None and gamma is None and not isinstance(choice.model, DestinationMaxEnt):
        world = world.replace(gamma=_CAUSAL_DISCOUNT)
        choice = choose_model(world, data, estimated=True)
    if not quiet:
        echo(f"Model: {choice}{' (--model)' if choice.alternatives else ''}.", err=True)
    return Problem(world, data, choice.model, str(choice))


def _read_data(
    demos: Path,
    mdp: Path | None,
    model: str | None,
    gamma: float | None,
    columns: str | None,
    cut: int | None,
    state_features: Path | None,
) -> "tuple[MDP | None, Any]":
    from limiirl import MDP, Agents

    data = read_demos(demos, columns, cut)
    if model is not None and isinstance(data, Agents) != (model == _AGENT_MODEL):
        if isinstance(data, Agents):
            rule = f"must be {_AGENT_MODEL}, because {demos} contains agents"
            raise InvalidParameter.of("model", model, rule, remedy="Pass demonstrations for other models.")
        raise InvalidParameter(
            f"--model {_AGENT_MODEL} requires agents, but {demos} contains demonstrations. Convert them with "
            "Agents.from_demonstrations, or pass another --model.",
            parameter="model",
            value=model,
        )
    if isinstance(data, Agents):
        for name, value in (("mdp", mdp), ("gamma", gamma), ("state_features", state_features)):
            if value is not None:
                raise InvalidParameter(
                    f"--{name.replace('_', '-')} {value} cannot be combined with --model {_AGENT_MODEL}, which does "
                    "not use an MDP. Set the discount with --set irl__gamma.",
                    parameter=name,
                    value=value if name == "gamma" else str(value),
                )
        return None, data
    if mdp is None:
        discount = _default_discount(model) if gamma is None else gamma
        table = None if state_features is None else read_state_table(state_features)
        return MDP.from_demonstrations(data, gamma=discount, state_features=table), data
    if state_features is not None:
        rule = "applies to an estimated MDP only and cannot be combined with --mdp"
        raise InvalidParameter.of("state_features", str(state_features), rule, remedy="Omit one of the two options.")
    if gamma is not None:
        rule = "applies to an estimated MDP only and cannot be combined with --mdp"
        raise InvalidParameter.of("gamma", gamma, rule, remedy="Remove --gamma; the MDP file contains its discount.")
    return MDP.load(check_exists(mdp)), data


def choose_features(
    world: Any, demos: Any, mixture: "_Mixture", features: Path | None, seed: int, *, quiet: bool = False
) -> tuple[Any, Any]:
    """Return the MDP and the demonstrations with default features if `features` (--mdp or --state-features) is None.

    Set the ridge of the mixture's model, and print the choice to stderr unless `quiet`. The likelihood of `MaxEnt`
    depends on how recordings are cut into demonstrations, so default features are chosen only for causal models.
    """
    from limiirl.irl import CausalModel
    from limiirl.irl import choose_features as choose

    if world is None or not isinstance(mixture.irl, CausalModel):
        return world, demos
    if features is not None:
        recordings = demos.ids
        if recordings is not None and len(set(recordings.tolist())) < len(recordings):
            # Recordings are cut into demonstrations. With a ridge per step, the fit does not depend on the cuts.
            mixture.set_params(irl__ridge_per="step")
        return world, demos
    choice = choose(world, demos, mixture.irl, seed=seed)
    mixture.set_params(irl=choice.model)
    if not quiet:
        echo(f"{choice}. Choose others with --state-features TABLE or --mdp FILE.", err=True)
    return choice.mdp, choice.demos


def _default_discount(model: str | None) -> float:
    """Return the default discount of an estimated MDP, which is below 1 for causal models so that values are finite."""
    from limiirl.irl import CausalModel, model_class

    if model is None:
        return 1.0
    return _CAUSAL_DISCOUNT if issubclass(model_class(model), CausalModel) else 1.0


def read_demos(path: Path, columns: str | None = None, cut: int | None = None) -> Any:
    """Read `Demonstrations` from a parquet or CSV file, or `Agents` from an .npz file.

    `columns` and `cut` are the values of --columns and --cut.
    """
    from limiirl import Agents, Demonstrations

    if path.suffix != ".npz":
        demos = Demonstrations.from_file(check_exists(path), parse_columns(columns))
        return demos if cut is None else demos.cut(cut)
    for name, value in (("columns", columns), ("cut", cut)):
        if value is not None:
            message = f"--{name} requires a table of steps, but {path} contains agents. Omit --{name}."
            raise InvalidParameter(message, parameter=name, value=value)
    return Agents.load(check_exists(path))


def parse_columns(text: str | None) -> dict[str, str] | None:
    """Parse the value of --columns into a mapping from demo, t, state, action, group and label to column names.

    >>> parse_columns("demo=mouse+bout, t=step")
    {'demo': 'mouse+bout', 't': 'step'}
    """
    if text is None:
        return None
    columns: dict[str, str] = {}
    for part in text.split(","):
        name, equals, column = (piece.strip() for piece in part.partition("="))
        if not (name and equals and column) or name in columns:
            rule = "must be NAME=COLUMN,... with distinct names out of demo, t, state, action, group and label"
            raise InvalidParameter.of("columns", text, rule)
        columns[name] = column
    return columns


def parse_number(text: str) -> int:
    """Parse the value of --intents of a command that fits one number of intents.

    >>> parse_number("3")
    3
    """
    from limiirl._validation import check_count

    try:
        return check_count(int(text), "n_intents")
    except ValueError as error:
        if isinstance(error, InvalidParameter):
            raise
        remedy = f"To compare numbers, use `limiirl select --intents {text}`." if "-" in text else ""
        raise InvalidParameter.of("n_intents", text, "must be a whole number", remedy=remedy) from None


def parse_numbers(text: str) -> list[int]:
    """Parse the value of --intents: a number, or a range such as 1-6.

    >>> parse_numbers("3"), parse_numbers("1-4")
    ([3], [1, 2, 3, 4])
    """
    first, dash, last = text.partition("-")
    ends = [part.strip() for part in ((first, last) if dash else (first, first))]
    if all(part.isdecimal() for part in ends) and 1 <= int(ends[0]) <= int(ends[1]) <= _MOST_INTENTS:
        return list(range(int(ends[0]), int(ends[1]) + 1))
    raise InvalidParameter.of("n_intents", text, "must be a positive number, or a range such as 1-6")


def read_state_table(path: Path) -> Any:
    """Read the table of --state-features."""
    from limiirl.demos import read_table

    table = read_table(check_exists(path))
    if table is None:
        raise InvalidFile.at(path, "must have one row per state; it contains demonstrations.")
    return table


def read_covariates(path: Path | None) -> Any:
    """Read the table of --covariates, or return None."""
    from limiirl.demos import read_table

    if path is None:
        return None
    table = read_table(check_exists(path))
    if table is None or not {"demo", "group"} & set(table.column_names):
        raise InvalidFile.at(path, "must be a table with a column demo or group, and one column per covariate.")
    return table


def get_groups(demos: Any, by_group: bool, option: str = "--by-group") -> Any:
    """Return the groups of demonstrations if the option is set, else None."""
    if not by_group:
        return None
    if getattr(demos, "groups", None) is None:
        raise InvalidParameter(
            f"{option} requires demonstrations with a column 'group'. Add the column, or omit {option}.",
            parameter=option[2:].replace("-", "_"),
            value=True,
        )
    return demos.groups


def read_labelled(path: Path, column: str, columns: str | None, cut: int | None, option: str = "labels") -> Any:
    """Read demonstrations whose labels are the values of a column, which is constant within a demonstration."""
    from limiirl import Demonstrations
    from limiirl.demos import read_table

    if path.suffix == ".npz":
        raise InvalidFile(
            f"--{option} {column} requires demonstrations, but {path} contains agents. Omit --{option}.",
            parameter=option,
            value=column,
        )
    sources = (parse_columns(columns) or {}) | {"label": column}
    table = read_table(check_exists(path), sources)
    if table is None:  # written by Demonstrations.to_parquet, not a table of steps
        demos = Demonstrations.from_file(path)
        given = {name: v for name, v in (("label", demos.labels), ("group", demos.groups)) if v is not None}
        if column in given:
            demos = demos.replace(labels=given[column])
            return demos if cut is None else demos.cut(cut)
        names = ", ".join(given) or "neither label nor group"
    elif column in table.column_names:
        try:
            demos = Demonstrations.from_frame(table, sources)
        except InvalidDemos as error:
            if error.parameter != "label":
                raise
            message = str(error).replace("'label'", repr(column))
            raise InvalidDemos(message, parameter=option, value=error.value, index=error.index) from None
        return demos if cut is None else demos.cut(cut)
    else:
        names = ", ".join(table.column_names)
    raise InvalidFile.of(option, column, f"must be a column of {path}; the file has {names}")


def read_step_covariates(path: Path, names: Sequence[str], columns: str | None) -> "dict[str, Any] | None":
    """Read columns of a table of steps, in the order of the states of its demonstrations; None without names."""
    import pyarrow as pa

    from limiirl import Demonstrations
    from limiirl.demos import read_table

    if not names:
        return None
    sources = parse_columns(columns) or {}
    table = read_table(check_exists(path), sources)
    present = [] if table is None else table.column_names
    absent = [name for name in names if name not in present]
    if absent:
        listed = ", ".join(present) or "not known, because it was written by Demonstrations.to_parquet"
        raise InvalidFile.of("step_covariates", absent[0], f"must be a column of {path}; its columns are {listed}")
    # In the order of the demonstrations, the states are the numbers of the rows.
    numbered = table.append_column(_ROW, pa.array(range(table.num_rows)))
    rows = Demonstrations.from_frame(numbered, sources | {"state": _ROW}).states
    return {name: table[name].to_numpy()[rows] for name in names}


def make_mixture(n_intents: int, model: Any, settings: list[str], **parameters: Any) -> "IntentMixture":
    """Return an unfitted mixture with settings NAME=VALUE; `model` is an object or a name."""
    from limiirl import IntentMixture
    from limiirl.irl import model_class

    irl = model_class(model)() if isinstance(model, str) else model
    return configure(IntentMixture(n_intents, irl, **parameters), settings)


def configure(mixture: _Mixture, settings: list[str]) -> _Mixture:
    """Apply settings NAME=VALUE to a mixture and its model."""
    names = {name for name in mixture.get_params() if name not in _OPTIONS}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if name == "irl__device" and name not in names:
            rule = f"is not supported by {type(mixture.irl).__name__}"
            raise InvalidParameter.of("device", text, rule, remedy="Omit --device.")
        if not equals or name not in names:
            rule = f"must be NAME=VALUE, with NAME one of {', '.join(sorted(names))}"
            raise InvalidParameter.of("settings", setting, rule)
        if name == "irl__device":  # raise before the fit if the device is not available
            from limiirl.irl import choose_device

            choose_device(text, 0)
        mixture.set_params(**{name: _parse(text)})
    return mixture


def _parse(text: str) -> Any:
    """Parse a number, list, tuple, true, false, null or inf; return any other text unchanged."""
    words = {"inf": math.inf, "-inf": -math.inf, "true": True, "false": False, "null": None}
    try:
        return words[text] if text in words else ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def check_target(folder: Path | None, *inputs: Path | None, switching: bool = False) -> None:
    """Raise, before a fit, if its mixture cannot be saved in a folder; see `_check_output`."""
    if folder is not None:
        from limiirl.mixture import check_target as check
        from limiirl.switching import check_target as check_switching

        _check_output(folder, "out", inputs)
        (check_switching if switching else check)(folder)


def check_page(folder: Path | None, *inputs: Path | None, option: str = "page") -> None:
    """Raise if a report cannot be written to a folder; called before the computation."""
    if folder is not None:
        from limiirl.report import check_folder

        _check_output(folder, option, inputs)
        check_folder(folder)


def check_file(out: Path | None, *inputs: Path | None, option: str = "out") -> None:
    """Raise if an output file cannot be written; called before the computation."""
    if out is None:
        return
    _check_output(out, option, inputs)
    if out.exists() and not out.is_file():
        what = "is a folder" if out.is_dir() else "is not a regular file"
        raise InvalidFile(f"--{option} {out} {what}. Pass a file name.", parameter=option, value=str(out))
    if not out.parent.is_dir():
        raise InvalidFile(
            f"--{option} {out} is in a folder that does not exist. Create {out.parent} first.",
            parameter=option,
            value=str(out),
        )


def _check_output(out: Path, option: str, inputs: tuple[Path | None, ...]) -> None:
    """Raise if an output path equals an input path or is inside it, or if its folder is not writable."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        out.stat()  # raise OSError for a loop of symbolic links or a name that is too long
    target = Path(os.path.realpath(out))
    for given in inputs:
        if given is not None and _is_within(target, Path(os.path.realpath(given))):
            rule = f"must not overwrite the input {given}"
            raise InvalidFile.of(option, str(out), rule, remedy="Pass another output.")
    folder = target.parent
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not folder.is_dir():
        reason = f"is in {folder}, which is a file. Pass a path in a folder."
    elif not os.access(folder, os.W_OK | os.X_OK):
        reason = f"cannot be written: the folder {folder} is read-only. Pass a path in another folder."
    else:
        return
    raise InvalidFile(f"--{option} {out} {reason}", parameter=option, value=str(out))


def _is_within(path: Path, other: Path) -> bool:
    """Return True if a path is another path or inside it, also if its name differs in upper and lower case only."""
    places = (path, *path.parents)
    return other in places or (other.exists() and any(place.exists() and place.samefile(other) for place in places))


def command_line(context: typer.Context) -> str:
    """Return the current command line; the places of --mask are replaced, because a page must not show them."""
    words = [str(word) for word in context.obj or []]
    hidden = [
        "--mask=PLACE" if word.startswith("--mask=") else "PLACE" if before == "--mask" else word
        for before, word in zip(["", *words], words, strict=False)
    ]
    return shlex.join(["limiirl", *hidden])


def write_page(context: typer.Context, report: "Report", folder: Path, as_json: bool) -> None:
    """Write a report that contains the command, and print its path (to stderr if --json is set)."""
    from limiirl.report import Code, write

    report = replace(report, methods=[*report.methods, Code(command_line(context), title="Command")])
    echo(f"Report: {write(report, folder)}", err=as_json)


def check_exists(path: Path) -> Path:
    """Return `path`, or raise if it is not an existing file."""
    if path.is_file():
        return path
    problem = "is a folder. Pass a file." if path.is_dir() else "does not exist. Check the path."
    raise InvalidFile(f"{path} {problem}", parameter="path", value=str(path))
