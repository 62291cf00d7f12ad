"""Inputs of several commands: an MDP, demonstrations or agents, settings NAME=VALUE, and folders to write to."""

import ast
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from limiirl.errors import InvalidFile, InvalidParameter

if TYPE_CHECKING:
    from limiirl import MDP, BayesianIntentMixture, IntentMixture
    from limiirl.report import Report


_Mixture = TypeVar("_Mixture", "IntentMixture", "BayesianIntentMixture")
# The model that learns from agents instead of demonstrations.
_OF_AGENTS = "SigmaGIRL"
_CAUSAL_DISCOUNT = 0.99


def read_problem(demos: Path, mdp: Path | None, model: str, gamma: float | None) -> "tuple[MDP | None, Any]":
    """Read demonstrations, and the MDP they were recorded in, or estimate one from them; or agents, who have none."""
    from limiirl import MDP, Agents

    recorded = read_demos(demos)
    if isinstance(recorded, Agents) and model != _OF_AGENTS:
        raise InvalidParameter(
            f"--model must be {_OF_AGENTS} for the agents of {demos}; got {model}.", parameter="model", value=model
        )
    if model == _OF_AGENTS and not isinstance(recorded, Agents):
        raise InvalidParameter(
            f"--model {_OF_AGENTS} learns from agents, an .npz of Agents.save; {demos} has demonstrations. Make agents "
            "of them by Agents.from_demonstrations, or choose another model.",
            parameter="model",
            value=model,
        )
    if isinstance(recorded, Agents):
        if mdp is not None or gamma is not None:
            raise InvalidParameter(
                f"--model {_OF_AGENTS} has no MDP. Leave out --mdp; set irl__gamma, not --gamma.",
                parameter="gamma" if mdp is None else "mdp",
                value=gamma if mdp is None else str(mdp),
            )
        return None, recorded
    if mdp is None:
        return MDP.from_demonstrations(recorded, gamma=_discount(model) if gamma is None else gamma), recorded
    if gamma is not None:
        raise InvalidParameter(
            "--gamma is the discount of an estimated MDP; that of --mdp has its own.", parameter="gamma", value=gamma
        )
    return MDP.load(check_exists(mdp)), recorded


def _discount(model: str) -> float:
    """Return the discount of an estimated MDP: below 1 for the causal models, whose values must be finite."""
    from limiirl.irl import CausalModel, model_class

    return _CAUSAL_DISCOUNT if issubclass(model_class(model), CausalModel) else 1.0


def read_demos(path: Path) -> Any:
    """Read Demonstrations from a parquet or CSV file, or Agents from an .npz."""
    from limiirl import Agents, Demonstrations

    return Agents.load(check_exists(path)) if path.suffix == ".npz" else Demonstrations.from_file(check_exists(path))


def groups_of(demos: Any, wanted: bool, option: str = "--by-group") -> Any:
    """Return the groups of demonstrations if they are wanted."""
    if not wanted:
        return None
    if getattr(demos, "groups", None) is None:
        raise InvalidParameter(
            f"{option} needs demonstrations with a column 'group'; the file has none.",
            parameter=option[2:].replace("-", "_"),
        )
    return demos.groups


def make_mixture(n_intents: int, model: str, settings: list[str], **parameters: Any) -> "IntentMixture":
    """Return an unfitted mixture of a model chosen by name, with settings NAME=VALUE on top."""
    from limiirl import IntentMixture
    from limiirl.irl import model_class

    return configured(IntentMixture(n_intents, model_class(model)(), **parameters), settings)


_OPTIONS = ("irl", "n_intents", "max_intents", "random_state", "callback", "verbose")


def configured(mixture: _Mixture, settings: list[str]) -> _Mixture:
    """Return a mixture with settings NAME=VALUE of its own or of its model."""
    # What has an option of its own is not set in two ways.
    known = {name: value for name, value in mixture.get_params().items() if name not in _OPTIONS}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if name == "irl__device" and name not in known:
            raise InvalidParameter(
                f"{type(mixture.irl).__name__} has no device: it is computed on the CPU. Leave --device out.",
                parameter="device",
                value=text,
            )
        if not equals or name not in known:
            choices = ", ".join(sorted(known))
            raise InvalidParameter(
                f"--set takes NAME=VALUE, with a NAME of {choices}; got {setting!r}.",
                parameter="settings",
                value=setting,
            )
        if name == "irl__device":  # before anything is fitted
            from limiirl.irl import choose_device

            choose_device(text, 0)
        mixture.set_params(**{name: _value(text)})
    return mixture


def check_target(folder: Path) -> None:
    """Check that a mixture may be saved in a folder."""
    from limiirl.mixture import check_target as check

    check(folder)


def check_page(folder: Path | None) -> None:
    """Check, before the work is done, that a page can be written to a folder, if there is to be one."""
    if folder is not None:
        from limiirl.report import check_folder

        check_folder(folder)


def show_page(report: "Report", folder: Path, as_json: bool) -> None:
    """Write a page, and say where it is; beside JSON, on stderr."""
    from limiirl.report import write

    typer.echo(f"The page is {write(report, folder)}", err=as_json)


def _value(text: str) -> Any:
    """Return a number, a list or tuple, true, false, null or a plain word."""
    words = {"inf": math.inf, "-inf": -math.inf, "true": True, "false": False, "null": None}
    try:
        return words[text] if text in words else ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def check_exists(path: Path) -> Path:
    """Return the path of a file, which must exist."""
    if path.is_dir():
        raise InvalidFile(f"{path} is a folder. Name a file in it.", parameter="path", value=str(path))
    if not path.is_file():
        raise InvalidFile(f"There is no file {path}. Check the name and the folder.", parameter="path", value=str(path))
    return path
