"""Single-intent models by name: how they are written to disk and chosen on the command line."""

from __future__ import annotations

from typing import Any

from limiirl.errors import InvalidParameter
from limiirl.irl.base import PARAMETERS, REQUIRED
from limiirl.irl.causal.maxcausalent import MaxCausalEnt
from limiirl.irl.causal.mlirl import MLIRL
from limiirl.irl.destination.model import DestinationMaxEnt
from limiirl.irl.maxent.model import MaxEnt
from limiirl.irl.sigma_girl.model import SigmaGIRL

MODELS: dict[str, type[Any]] = {
    "MaxEnt": MaxEnt,
    "MaxCausalEnt": MaxCausalEnt,
    "MLIRL": MLIRL,
    "DestinationMaxEnt": DestinationMaxEnt,
    "SigmaGIRL": SigmaGIRL,
}
"""Models by name; `register_model` adds to them."""


def register_model(name: str, cls: type[Any]) -> None:
    """Give a model a name, under which mixtures of it are saved and loaded.

    A name belongs to one class. Registering a class again, as a notebook does that runs a cell twice, replaces it.

    Examples
    --------
    >>> class Strict(MaxEnt):
    ...     pass
    >>> register_model("Strict", Strict)
    >>> model_class("Strict") is Strict
    True
    >>> del MODELS["Strict"]
    """
    if not isinstance(name, str) or not name:
        raise InvalidParameter(
            f"A model's name must be a text that is not empty; got {name!r}.", parameter="name", value=name
        )
    if not isinstance(cls, type):
        raise InvalidParameter(
            f"register_model needs the model's class; got {cls!r}. Pass the class, not an instance.",
            parameter="cls",
            value=cls,
        )
    methods = REQUIRED + PARAMETERS
    missing = [method for method in methods if not callable(getattr(cls, method, None))]
    if missing:
        raise InvalidParameter(
            f"A model needs the methods {', '.join(methods)}; {cls.__name__} has no {missing[0]}. "
            "limiirl.testing.check_irl_model says all that a model needs.",
            parameter="cls",
            value=cls,
        )
    known = MODELS.get(name, cls)
    if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
        raise InvalidParameter(
            f"The name {name!r} belongs to {known.__module__}.{known.__qualname__}. Choose another for {cls.__name__}.",
            parameter="name",
            value=name,
        )
    MODELS[name] = cls


def model_class(name: str) -> type[Any]:
    """Return the class of a name.

    Examples
    --------
    >>> model_class("MaxEnt")
    <class 'limiirl.irl.maxent.model.MaxEnt'>
    >>> model_class("Strict")
    Traceback (most recent call last):
    limiirl.errors.InvalidParameter: There is no model named 'Strict'; known are MaxEnt, ... Import the module ...
    """
    if name not in MODELS:
        near = next((known for known in MODELS if known.lower() == str(name).lower()), None)
        if near is not None:
            raise InvalidParameter(
                f"There is no model named {name!r}. Did you mean {near!r}?", parameter="name", value=name
            )
        raise InvalidParameter(
            f"There is no model named {name!r}; known are {', '.join(MODELS)}. Import the module that defines it, and "
            f"call limiirl.irl.register_model({name!r}, its class).",
            parameter="name",
            value=name,
        )
    return MODELS[name]


def model_name(model: Any) -> str:
    """Return the name of a model's class."""
    for name, cls in MODELS.items():
        if cls is type(model):
            return name
    own = type(model).__name__
    raise InvalidParameter(
        f"{own} has no name to be written under. Call limiirl.irl.register_model({own!r}, {own}) first, here and where "
        "it is loaded.",
        parameter="irl",
        value=own,
    )
