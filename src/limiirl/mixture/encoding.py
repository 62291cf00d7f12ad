"""Parameters and results as JSON, with the arrays set aside: what a folder of a saved mixture holds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limiirl.errors import InvalidParameter
from limiirl.irl.registry import model_class, model_name
from limiirl.mdp.ensemble import RewardEnsemble
from limiirl.mixture.em import Iteration
from limiirl.mixture.restarts import Restart

Arrays = dict[str, NDArray[Any]]
# Numbers and texts; an array of objects could only be pickled.
_KINDS = "biufUS"


class Unwritable(InvalidParameter):
    """A value that has no form in JSON or npz, such as a function."""


class Writer:
    """Turns values into JSON; arrays go to `arrays` under their place's name, and JSON refers to them.

    None, booleans, whole numbers and texts are themselves. Floats are exact, since JSON has as many digits as they
    need; what JSON lacks is an object of one entry that says what it is.

    Examples
    --------
    >>> writer = Writer()
    >>> writer.encode((1.5, np.inf, np.zeros(2)), "bounds")
    {'tuple': [1.5, {'float': 'inf'}, {'array': 'bounds.2'}]}
    >>> decode({"tuple": [1.5, {"float": "inf"}, {"array": "bounds.2"}]}, writer.arrays)
    (1.5, inf, array([0., 0.]))
    """

    def __init__(self) -> None:
        self.arrays: Arrays = {}

    def encode(self, value: Any, place: str) -> Any:
        """Return JSON for a value, or raise `Unwritable`."""
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or isinstance(value, bool | int | str):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"float": str(value)}
        if isinstance(value, list | tuple):
            listed = [self.encode(item, f"{place}.{i}") for i, item in enumerate(value)]
            return listed if isinstance(value, list) else {"tuple": listed}
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            return {"dict": {key: self.encode(item, f"{place}.{key}") for key, item in value.items()}}
        if isinstance(value, RewardEnsemble):
            parts = (value.weights, value.thetas)
            return {"ensemble": [self.encode(part, f"{place}.{i}") for i, part in enumerate(parts)]}
        return self._array(value, place)

    def _array(self, value: Any, place: str) -> dict[str, str]:
        array = np.asarray(value) if hasattr(value, "__array__") else np.empty(0, dtype=object)
        if array.dtype.kind not in _KINDS:
            raise Unwritable(f"{place} is a {type(value).__name__}, which has no form in JSON or npz.")
        self.arrays[place] = array
        return {"array": place}

    def model(self, model: Any, place: str) -> dict[str, Any]:
        """Return JSON for a single-intent model: its name, its parameters, and what `fit` found out about it.

        A parameter that cannot be written is an error, since the model would be another without it. Of the attributes
        with a trailing underscore, those are kept that can be written.
        """
        name, parameters, fitted = model_name(model), {}, {}
        for key, value in model.get_params(deep=False).items():
            try:
                parameters[key] = self.encode(value, f"{place}.parameters.{key}")
            except Unwritable:
                raise InvalidParameter(
                    f"{name} cannot be written: its parameter {key} is a {type(value).__name__}. Give the model a "
                    "name, a number or an array instead, and look up the rest in its fit."
                ) from None
        for key, value in vars(model).items():
            if key.endswith("_") and not key.startswith("_"):
                try:
                    fitted[key] = self.encode(value, f"{place}.fitted.{key}")
                except Unwritable:
                    continue  # a report of the last fit, say
        return {"name": name, "parameters": parameters, "fitted": fitted}

    def history(self, entries: list[Iteration]) -> dict[str, Any]:
        """Return JSON for iterations, a column for each field."""
        columns = {field.name: [getattr(entry, field.name) for entry in entries] for field in fields(Iteration)}
        columns["weights"] = np.array(columns["weights"])  # type: ignore[assignment]
        return {name: self.encode(column, f"history.{name}") for name, column in columns.items()}

    def restarts(self, entries: list[Restart]) -> dict[str, Any]:
        """Return JSON for restarts, a column for each field."""
        columns: dict[str, Any] = {
            field.name: [getattr(entry, field.name) for entry in entries]
            for field in fields(Restart)
            if field.name != "ensemble"
        }
        columns["weights"] = np.array([entry.ensemble.weights for entry in entries])
        columns["thetas"] = np.array([entry.ensemble.thetas for entry in entries])
        return {name: self.encode(column, f"restarts.{name}") for name, column in columns.items()}


def decode(written: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """Return the value that `Writer.encode` wrote."""
    if isinstance(written, list):
        return [decode(item, arrays) for item in written]
    if not isinstance(written, dict):
        return written
    ((kind, content),) = written.items()
    if kind == "float":
        return float(content)
    if kind == "array":
        return arrays[content]
    if kind == "tuple":
        return tuple(decode(item, arrays) for item in content)
    if kind == "dict":
        return {key: decode(item, arrays) for key, item in content.items()}
    if kind == "ensemble":
        weights, thetas = (decode(part, arrays) for part in content)
        return RewardEnsemble(weights, thetas)
    raise ValueError(f"nothing is written as {kind!r}")


def decode_model(written: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Any:
    """Return the model that `Writer.model` wrote."""
    parameters = {key: decode(value, arrays) for key, value in written["parameters"].items()}
    model = model_class(written["name"])(**parameters)
    for key, value in written["fitted"].items():
        setattr(model, key, decode(value, arrays))
    return model


def decode_history(written: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> list[Iteration]:
    """Return the iterations that `Writer.history` wrote."""
    return [Iteration(**row) for row in _rows(written, arrays)]


def decode_restarts(written: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> list[Restart]:
    """Return the restarts that `Writer.restarts` wrote."""
    rows = _rows(written, arrays)
    return [Restart(ensemble=RewardEnsemble(row.pop("weights"), row.pop("thetas")), **row) for row in rows]


def _rows(written: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> list[dict[str, Any]]:
    columns = {name: decode(column, arrays) for name, column in written.items()}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
