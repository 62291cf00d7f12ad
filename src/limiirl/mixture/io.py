"""Save and load a fitted mixture: a folder of `mixture.json`, `arrays.npz` and `mdp.npz` with sha256 checksums.

`FolderFormat` writes and reads such folders for all estimators.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import secrets
import shutil
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields
from inspect import signature
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from limiirl._io import as_path, atomic_write, load_json, read_arrays, write_arrays
from limiirl._version import __version__
from limiirl.demos import CovariateScale
from limiirl.errors import InvalidFile, InvalidParameter, LimiirlWarning
from limiirl.irl import allow_cpu, model_class, model_name
from limiirl.mdp import MDP, RewardEnsemble
from limiirl.mixture import validate
from limiirl.mixture.em import Iteration
from limiirl.mixture.restarts import Restart

if TYPE_CHECKING:
    from limiirl.mixture.estimator import IntentMixture


Arrays = dict[str, NDArray[Any]]
# Numbers and strings; object arrays would need pickle.
_KINDS = "biufUS"


class NotSerialisable(InvalidParameter):
    """Raised for a value that cannot be serialised to JSON or npz, such as a function."""


class Writer:
    """Serialiser of values to JSON; arrays are collected in `arrays`, and JSON refers to them by name.

    Floats round-trip exactly. A value without a JSON equivalent is an object with one entry, whose key is the type.
    """

    def __init__(self) -> None:
        self.arrays: Arrays = {}

    def encode(self, value: Any, name: str) -> Any:
        """Return JSON for a value; an array is stored under `name`. Raises `NotSerialisable`."""
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or isinstance(value, bool | int | str):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"float": str(value)}
        if isinstance(value, list | tuple):
            listed = [self.encode(item, f"{name}.{i}") for i, item in enumerate(value)]
            return listed if isinstance(value, list) else {"tuple": listed}
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            return {"dict": {key: self.encode(item, f"{name}.{key}") for key, item in value.items()}}
        if isinstance(value, RewardEnsemble):
            arrays = (value.weights, value.thetas)
            return {"ensemble": [self.encode(array, f"{name}.{i}") for i, array in enumerate(arrays)]}
        return self._array(value, name)

    def _array(self, value: Any, name: str) -> dict[str, str]:
        array = np.asarray(value) if hasattr(value, "__array__") else np.empty(0, dtype=object)
        if array.dtype.kind not in _KINDS:
            message = f"{name} cannot be serialised: a {type(value).__name__} has no JSON or npz form."
            raise NotSerialisable(message, parameter=name, value=value)
        self.arrays[name] = array
        return {"array": name}

    def model(self, model: Any, name: str) -> dict[str, Any]:
        """Return JSON for a single-intent model: its name, parameters and fitted attributes.

        Raises if a parameter cannot be serialised; fitted attributes that cannot be serialised are omitted.
        """
        class_name, parameters, fitted = model_name(model), {}, {}
        for key, value in model.get_params(deep=False).items():
            try:
                parameters[key] = self.encode(value, f"{name}.parameters.{key}")
            except NotSerialisable:
                message = f"{class_name}({key}={value!r:.80}) cannot be serialised. Use a string, a number or an array."
                raise InvalidParameter(message, parameter=key, value=value) from None
        for key, value in vars(model).items():
            if key.endswith("_") and not key.startswith("_"):
                try:
                    fitted[key] = self.encode(value, f"{name}.fitted.{key}")
                except NotSerialisable:
                    continue  # for example the result object of the last fit
        return {"name": class_name, "parameters": parameters, "fitted": fitted}

    def history(self, entries: list[Iteration]) -> dict[str, Any]:
        """Return JSON for iterations, one column per field."""
        columns = {field.name: [getattr(entry, field.name) for entry in entries] for field in fields(Iteration)}
        columns["weights"] = np.array(columns["weights"])  # type: ignore[assignment]
        return {name: self.encode(column, f"history.{name}") for name, column in columns.items()}

    def restarts(self, entries: list[Restart]) -> dict[str, Any]:
        """Return JSON for restarts, one column per field."""
        columns: dict[str, Any] = {
            field.name: [getattr(entry, field.name) for entry in entries]
            for field in fields(Restart)
            if field.name != "ensemble"
        }
        columns["weights"] = np.array([entry.ensemble.weights for entry in entries])
        columns["thetas"] = np.array([entry.ensemble.thetas for entry in entries])
        return {name: self.encode(column, f"restarts.{name}") for name, column in columns.items()}


def decode(written: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """Return the value that `Writer.encode` serialised."""
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
    raise ValueError(f"unknown type {kind!r}")


def decode_model(written: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Any:
    """Return the model that `Writer.model` serialised."""
    parameters = {key: decode(value, arrays) for key, value in written["parameters"].items()}
    model = model_class(written["name"])(**parameters)
    for key, value in written["fitted"].items():
        setattr(model, key, decode(value, arrays))
    return model


def decode_history(written: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> list[Iteration]:
    """Return the iterations that `Writer.history` serialised."""
    return [Iteration(**row) for row in _rows(written, arrays)]


def decode_restarts(written: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> list[Restart]:
    """Return the restarts that `Writer.restarts` serialised."""
    rows = _rows(written, arrays)
    return [Restart(ensemble=RewardEnsemble(row.pop("weights"), row.pop("thetas")), **row) for row in rows]


def _rows(written: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> list[dict[str, Any]]:
    columns = {name: decode(column, arrays) for name, column in written.items()}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


FORMAT = "limiirl.mixture"
VERSION = 1

_HEADER, _ARRAYS, _MDP = "mixture.json", "arrays.npz", "mdp.npz"
_RESULTS = (
    *("weights_", "thetas_", "responsibilities_", "labels_", "groups_", "group_responsibilities_"),
    *("log_likelihood_", "objective_", "n_iter_", "converged_"),
)
_Mixture = TypeVar("_Mixture", bound="IntentMixture")


def _invalid(message: str, value: object) -> InvalidFile:
    return InvalidFile(message, parameter="folder", value=value)


# Estimator of each format, for messages.
_ESTIMATORS = {FORMAT: "IntentMixture", "limiirl.switching": "SwitchingMixture"}


@dataclass(frozen=True)
class FolderFormat:
    """Format of the folders of one estimator.

    Attributes
    ----------
    name : str
        Entry "format" of the header.
    version : int
    """

    name: str
    version: int

    @property
    def estimator(self) -> str:
        """Name of the class."""
        return _ESTIMATORS[self.name]

    def write(self, folder: str | PathLike[str], header: dict[str, Any], arrays: Arrays, mdp: MDP | None) -> None:
        """Write a folder atomically; an earlier folder of this format is replaced."""
        target = _resolve(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = _sibling(target)
        scratch.mkdir()
        try:
            with atomic_write(scratch / _ARRAYS) as part, part.open("wb") as stream:
                write_arrays(stream, arrays)
            if mdp is not None:
                mdp.save(scratch / _MDP)
            first = {"format": self.name, "version": self.version, "limiirl": __version__}
            last = {"files": {path.name: _sha256(path) for path in sorted(scratch.iterdir())}}
            with atomic_write(scratch / _HEADER) as part:
                text = json.dumps(first | header | last, indent=1, allow_nan=False)
                part.write_text(text + "\n", encoding="ascii")
            _put(scratch, target)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def read(self, folder: str | PathLike[str]) -> tuple[dict[str, Any], Arrays, MDP | None]:
        """Return the header, the arrays and the MDP of a folder, after checks of the format and of the checksums."""
        path = as_path(folder, "folder")
        header = self._header(path)
        _check_files(path, header)
        for key in ("irl", "irl_"):
            _check_model(path, header.get(key))
        mdp = MDP.load(path / _MDP) if _MDP in header["files"] else None
        try:
            return header, read_arrays(path / _ARRAYS, "Save the mixture again."), mdp
        except (KeyError, ValueError) as error:
            raise self.make_error(folder, error) from error

    def make_error(self, folder: str | PathLike[str], error: Exception) -> InvalidFile:
        """Return the error for a header whose entries are wrong."""
        path = as_path(folder, "folder") / _HEADER
        message = f"{path} is corrupted, or a class has changed ({error!s:.300}). Save the mixture again."
        return _invalid(message, folder)

    def _header(self, folder: Path) -> dict[str, Any]:
        """Read the header and check its format and version."""
        path = folder / _HEADER
        try:
            header: Any = load_json(path.read_bytes())
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            what = "has no mixture.json" if folder.is_dir() else "is not a folder"
            message = f"{folder} {what}. Pass a folder that {self.estimator}.save wrote."
            raise _invalid(message, folder) from None
        except ValueError as error:
            remedy = "Copy the folder again, or save the mixture again."
            raise _invalid(f"{path} is truncated or not JSON ({error!s:.200}). {remedy}", folder) from error
        facts: dict[str, Any] = header if isinstance(header, dict) else {}
        if facts.get("format") != self.name or not isinstance(facts.get("version"), int):
            other = next((name for form, name in _ESTIMATORS.items() if form == facts.get("format")), None)
            what = f"is a saved {other}" if other and other != self.estimator else "is not a limiirl mixture"
            raise _invalid(f"{path} {what}. Pass a folder that {self.estimator}.save wrote.", folder)
        if facts["version"] < 1:
            message = f"{path} has the unknown format version {facts['version']}. Save the mixture again."
            raise _invalid(message, facts["version"])
        if facts["version"] > self.version:
            version = f"{facts['version']}, written by limiirl {facts.get('limiirl')}"
            rule = f"this release reads version {self.version}"
            raise _invalid(f"{folder} has format version {version}; {rule}. Upgrade limiirl.", facts["version"])
        return facts

    def check_target(self, folder: str | PathLike[str]) -> None:
        """Raise unless the folder does not exist, is empty, or contains a mixture of this format."""
        target = _resolve(folder)
        if not target.exists():
            return
        if not target.is_dir():
            raise _invalid(f"{target} is a file; a mixture is saved to a folder. Pass another path.", target)
        names = {path.name for path in target.iterdir()}
        if not names:
            return
        foreign = sorted(names - {_HEADER, _ARRAYS, _MDP})
        if foreign or not self.wrote(target):
            what = foreign[0] if foreign else "other files"
            message = f"{target} contains {what} and is not overwritten. Pass another folder, or remove this one."
            raise _invalid(message, target)

    def wrote(self, folder: Path) -> bool:
        """Return True if a folder has a header of this format."""
        try:
            header = load_json((folder / _HEADER).read_bytes())
        except (ValueError, OSError):
            return False
        return isinstance(header, dict) and header.get("format") == self.name


_FOLDER = FolderFormat(FORMAT, VERSION)


def check_target(folder: str | PathLike[str]) -> None:
    """Raise unless the folder does not exist, is empty, or contains an `IntentMixture`."""
    _FOLDER.check_target(folder)


def save(mixture: IntentMixture, folder: str | PathLike[str]) -> None:
    """Write a fitted mixture; see `IntentMixture.save`."""
    validate.check_fitted(mixture)
    check_mdp(mixture.mdp_)
    check_target(folder)
    header, arrays = _describe(mixture)
    lost = [name for name in ("init", "reward_init", "embedding") if name in header["replaced"]]
    if lost:  # others, such as `progress`, do not affect the fit
        warnings.warn(
            f"{', '.join(lost)} cannot be serialised. In the loaded mixture, such an init is replaced by the fitted "
            "ensemble, and other parameters by their defaults. Predictions are not affected.",
            LimiirlWarning,
            stacklevel=validate.caller_stacklevel(),
        )
    _FOLDER.write(folder, header, arrays, mixture.mdp_)


def check_mdp(mdp: Any) -> None:
    """Raise unless an MDP can be saved."""
    if not (mdp is None or isinstance(mdp, MDP)):
        raise InvalidParameter.of("mdp", type(mdp).__name__, "must be a limiirl.MDP to be saved")


def _describe(mixture: IntentMixture) -> tuple[dict[str, Any], Arrays]:
    """Return the header and the arrays of a mixture, without its MDP."""
    writer = Writer()
    parameters, replaced = encode_parameters(mixture, writer, mixture.ensemble_)
    header = {
        "parameters": parameters,
        "replaced": replaced,
        "irl": None if mixture.irl is None else writer.model(mixture.irl, "irl"),
        "irl_": writer.model(mixture.irl_, "irl_"),
        "model_choice": mixture.model_choice_,
        "data_file": mixture.data_file_,
        "results": {name: writer.encode(getattr(mixture, name), name) for name in _RESULTS},
        "membership": _describe_membership(mixture, writer),
        "history": writer.history(mixture.history_),
        "restarts": writer.restarts(mixture.restarts_),
    }
    return header, writer.arrays


def _describe_membership(mixture: IntentMixture, writer: Writer) -> list[Any] | None:
    """Return JSON for the logits of the mixture weights and the scale of the covariates."""
    if mixture.membership_logits_ is None or mixture.covariates_ is None:
        return None
    parts = (mixture.membership_logits_, *mixture.covariates_)
    return [writer.encode(part, f"membership.{i}") for i, part in enumerate(parts)]


def encode_parameters(estimator: Any, writer: Writer, init: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """Return JSON for the parameters except `irl`, and the types of those that cannot be serialised.

    The latter are replaced: `init` by the argument, others by their defaults.
    """
    defaults = {name: parameter.default for name, parameter in signature(type(estimator).__init__).parameters.items()}
    written, replaced = {}, {}
    for name, value in estimator.get_params(deep=False).items():
        if name == "irl":
            continue
        try:
            written[name] = writer.encode(value, f"parameters.{name}")
        except NotSerialisable:
            replaced[name] = type(value).__name__
            written[name] = writer.encode(init if name == "init" else defaults[name], f"parameters.{name}")
    return written, replaced


def load(cls: type[_Mixture], folder: str | PathLike[str]) -> _Mixture:
    """Read a mixture that `save` wrote; see `IntentMixture.load`."""
    header, arrays, mdp = _FOLDER.read(folder)
    try:
        mixture = cls(**{name: decode(value, arrays) for name, value in header["parameters"].items()})
        mixture.irl = None if header["irl"] is None else allow_cpu(decode_model(header["irl"], arrays))
        for name in _RESULTS:
            setattr(mixture, name, decode(header["results"][name], arrays))
        written = header.get("membership")  # not in files of version 0.1
        parts: list[Any] = [None] if written is None else [decode(part, arrays) for part in written]
        mixture.membership_logits_ = parts[0]
        mixture.covariates_ = None if written is None else CovariateScale(*parts[1:])
        mixture.model_choice_ = str(header.get("model_choice", ""))  # not in files of version 0.1
        mixture.data_file_ = check_data_file(header.get("data_file"))
        mixture.history_ = decode_history(header["history"], arrays)
        mixture.restarts_ = decode_restarts(header["restarts"], arrays)
        mixture.irl_, mixture.mdp_ = allow_cpu(decode_model(header["irl_"], arrays)), mdp
        RewardEnsemble(mixture.weights_, mixture.thetas_)  # checks shapes and weights
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise _FOLDER.make_error(folder, error) from error
    return mixture


def check_data_file(written: Any) -> dict[str, Any] | None:
    """Check the description of a file of demonstrations; files of version 0.1 have none."""
    if written is None:
        return None
    types = {"path": str, "sha256": str, "columns": str | None, "cut": int | None, "by_group": bool}
    if "condition" in written:  # of switching intents
        types["condition"] = str | None
    if set(written) != set(types) or not all(isinstance(written[name], types[name]) for name in types):
        raise ValueError("data_file is invalid")
    return dict(written)


def _check_files(folder: Path, header: dict[str, Any]) -> None:
    """Check that all files exist and match their checksums."""
    written = header.get("files")
    if not isinstance(written, dict) or _ARRAYS not in written or not set(written) <= {_ARRAYS, _MDP}:
        raise _invalid(f"{folder / _HEADER} is corrupted: it does not list its files. Save the mixture again.", folder)
    for name, digest in written.items():
        path = folder / name
        if not path.is_file():
            raise _invalid(f"{folder} is incomplete: {name} is missing. Copy the whole folder again.", name)
        if _sha256(path) != digest:
            message = f"{path} does not match its checksum. Copy the whole folder again, or save the mixture again."
            raise _invalid(message, name)


def _check_model(folder: Path, written: Any) -> None:
    if isinstance(written, dict) and isinstance(written.get("name"), str):
        try:
            model_class(written["name"])
        except InvalidParameter as error:
            raise _invalid(f"{folder} cannot be read: {error}", folder) from None


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _resolve(folder: str | PathLike[str]) -> Path:
    """Return the absolute path with links resolved; a loop of links raises an OSError."""
    path = as_path(folder, "folder")
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        path.stat()
    return Path(os.path.realpath(path))


def _sibling(target: Path) -> Path:
    return target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")


def _put(scratch: Path, target: Path) -> None:
    """Move a complete folder to its target; a concurrent reader finds a complete folder or, for a moment, none."""
    if not target.exists():
        scratch.rename(target)
        return
    old = _sibling(target)
    target.rename(old)
    try:
        scratch.rename(target)
    except OSError:
        old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)
