"""Registry of single-intent models by name, for saved files and the command line."""

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
    model.__name__: model for model in (MaxEnt, MaxCausalEnt, MLIRL, DestinationMaxEnt, SigmaGIRL)
}
"""Registered models by name."""


def register_model(name: str, cls: type[Any]) -> None:
    """Register a model class under a name, so that mixtures with this model can be saved and loaded.

    A class may be registered again, for example after its module has been reloaded.

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
        raise InvalidParameter.of("name", name, "must be a non-empty string")
    if not isinstance(cls, type):
        raise InvalidParameter.of("cls", cls, "must be a class", remedy="Pass the class, not an instance.")
    methods = REQUIRED + PARAMETERS
    missing = [method for method in methods if not callable(getattr(cls, method, None))]
    if missing:
        raise InvalidParameter(
            f"cls must have the methods {', '.join(methods)}; {cls.__name__} has no {missing[0]}. "
            "Check all requirements with limiirl.testing.check_irl_model.",
            parameter="cls",
            value=cls,
        )
    current = MODELS.get(name, cls)
    if (current.__module__, current.__qualname__) != (cls.__module__, cls.__qualname__):
        raise InvalidParameter(
            f"name must not be in use for another class; {name!r} is registered for {current.__module__}."
            f"{current.__qualname__}. Choose another name for {cls.__name__}.",
            parameter="name",
            value=name,
        )
    MODELS[name] = cls


def model_class(name: str) -> type[Any]:
    """Return the class registered under a name."""
    if name not in MODELS:
        similar = next((own for own in MODELS if own.lower() == str(name).lower()), None)
        remedy = (
            f"Import the module that defines it and call limiirl.irl.register_model({name!r}, cls)."
            if similar is None
            else f"Did you mean {similar!r}?"
        )
        raise InvalidParameter.of("name", name, f"must be one of {', '.join(MODELS)}", remedy=remedy)
    return MODELS[name]


def model_name(model: Any) -> str:
    """Return the name under which a model's class is registered."""
    for name, cls in MODELS.items():
        if cls is type(model):
            return name
    own = type(model).__name__
    raise InvalidParameter(
        f"irl must be a registered model to be saved; got {own}. Call limiirl.irl.register_model({own!r}, {own}) when "
        "saving and when loading.",
        parameter="irl",
        value=own,
    )
