"""Checkpoint file of EM after an iteration; a resumed fit is bit-identical to an uninterrupted one."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limiirl._io import FileFormat, read_archive, write_archive
from limiirl.errors import InvalidFile, InvalidParameter
from limiirl.irl import EStep, Moments
from limiirl.kernels.e_step import MixtureParameters
from limiirl.mdp import MDP
from limiirl.mixture import IntentMixture, Iteration, NotSerialisable, State, Writer, decode, decode_history
from limiirl.streams.passes import ImplicitResponsibilities
from limiirl.streams.store import FeatureStore, get_qualified_name

# K intents, d features.
_SHAPES = dict.fromkeys(("rho", "log_Z", "log_rho", "sizes", "counts"), "K")
_SHAPES |= {"thetas": "Kd", "features": "Kd", "inverse_temperature": ""}
FORMAT = FileFormat("limiirl.streams.checkpoint", 2, "a checkpoint", "fit_streamed")
# The stopping rule may differ, so that a finished fit can be continued.
_STOPPING = ("max_iter", "resp_tol", "likelihood_tol")
# Parameters that do not affect the result, or are compared separately (irl).
_IGNORED = ("irl", "progress", "verbose", "irl__device", "irl__max_memory")


def identity(mixture: IntentMixture, irl: Any, mdp: MDP, store: FeatureStore, sample: int) -> dict[str, str]:
    """Return checksums of the data, the MDP, the model, and the parameters of the mixture except its stopping rule.

    Functions are identified by name, estimators by class and parameters, and random generators by state.
    """
    # With annealing, the temperatures depend on max_iter.
    skipped = (*_IGNORED, *_STOPPING) if mixture.annealing is None else _IGNORED
    parameters = mixture.get_params(deep=False) | {f"irl__{k}": v for k, v in irl.get_params(deep=False).items()}
    parameters = {name: value for name, value in sorted(parameters.items()) if name not in skipped}
    parameters |= {"the data": store.fingerprint, "the MDP": [mdp.fingerprint(), mdp.n_features]}
    parameters |= {"irl": get_qualified_name(irl), "sample": sample}
    return {name: _checksum(value) for name, value in parameters.items()}


def _checksum(value: Any) -> str:
    writer = Writer()
    checksum = hashlib.sha256(json.dumps(_encode(writer, value, "value")).encode())
    for name, array in sorted(writer.arrays.items()):
        checksum.update(f"{name} {array.dtype.str} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return checksum.hexdigest()


def _encode(writer: Writer, value: Any, name: str) -> Any:
    """Return a parameter, or its class and parameters, as JSON data; arrays are stored in `writer` under `name`."""
    try:
        return writer.encode(value, name)
    except NotSerialisable:
        pass
    if isinstance(value, np.random.Generator):
        return _encode(writer, value.bit_generator.state, name)
    if isinstance(value, np.random.RandomState):
        return _encode(writer, value.get_state(legacy=False), name)
    if isinstance(value, list | tuple):
        return [_encode(writer, item, f"{name}.{i}") for i, item in enumerate(value)]
    parameters: dict[str, Any] = {}
    if hasattr(value, "get_params") and not isinstance(value, type):
        parameters = value.get_params(deep=False)
    encoded = {key: _encode(writer, item, f"{name}.{key}") for key, item in sorted(parameters.items())}
    return [get_qualified_name(value), encoded]


def write_checkpoint(path: Path, state: State, settings: dict[str, str]) -> None:
    """Replace the checkpoint atomically."""
    parameters = state.U.parameters
    writer = Writer()
    header = {
        "settings": settings,
        "log_likelihood": writer.encode(state.e_step.log_likelihood, "log_likelihood"),
        "change": writer.encode(state.e_step.change, "change"),
        "outside": bool(state.outside),
        "reseeds_left": state.reseeds_left,
        "history": writer.history(state.history),
    }
    arrays = {
        "rho": state.rho,
        "thetas": state.thetas,
        "log_Z": parameters.log_Z,
        "log_rho": parameters.log_rho,
        "inverse_temperature": np.array(parameters.inverse_temperature),
        "sizes": state.e_step.sizes,
        "features": state.e_step.moments.features,
        "counts": state.e_step.moments.counts,
    }
    write_archive(path, FORMAT, header, arrays | writer.arrays)


def read_checkpoint(path: Path, settings: dict[str, str], shape: tuple[int, int]) -> State | None:
    """Return the state in a checkpoint, or None if there is no file; raise if it belongs to another fit.

    The shape (K, d) is checked here because the kernels do not check it: they would read past the end of the arrays.
    """
    if not path.exists():
        return None
    header, arrays = read_archive(path, FORMAT)
    stored = header.get("settings")
    if stored != settings:
        stored = stored if isinstance(stored, dict) else {}
        others = ", ".join(name for name in stored | settings if stored.get(name) != settings.get(name))
        message = (
            f"{path} is the checkpoint of a fit with other settings ({others}). Choose another file, or remove it."
        )
        raise InvalidParameter(message, parameter="checkpoint", value=str(path))
    try:
        return _read_state(header, arrays, *shape)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        message = f"{path} is corrupted ({error!s:.200}). Remove it to fit from the beginning."
        raise InvalidFile(message, parameter="checkpoint", value=str(path)) from None


def _read_state(header: dict[str, Any], arrays: dict[str, NDArray[Any]], K: int, d: int) -> State:
    """Return the state; raise a built-in exception if the data are invalid."""
    for name, axes in _SHAPES.items():
        shape, array = tuple({"K": K, "d": d}[axis] for axis in axes), arrays[name]
        if array.shape != shape or array.dtype != np.float64 or not np.all(np.isfinite(array)):
            raise ValueError(f"{name} must be a finite array of shape {shape}")
    for name in ("rho", "inverse_temperature"):
        if not np.all(arrays[name] > 0.0):
            raise ValueError(f"{name} must be positive")
    for name in ("sizes", "counts"):
        if np.any(arrays[name] < 0.0):
            raise ValueError(f"{name} must be nonnegative")
    history = decode_history(header["history"], arrays)
    for index, entry in enumerate(history):
        _check_entry(entry, index, K)
    if not history:
        raise ValueError("the history is empty")
    log_likelihood, change = (decode(header[name], arrays) for name in ("log_likelihood", "change"))
    outside, reseeds_left = header["outside"], header["reseeds_left"]
    if type(outside) is not bool or type(reseeds_left) is not int or reseeds_left < 0:
        raise ValueError("'outside' must be a boolean, and 'reseeds_left' a nonnegative integer")
    _check_number(log_likelihood, "log_likelihood")
    _check_number(change, "change", may_be_nan=len(history) == 1)
    now = MixtureParameters(arrays["thetas"], arrays["log_Z"], arrays["log_rho"], float(arrays["inverse_temperature"]))
    moments = Moments(arrays["features"], arrays["counts"], None)
    return State(
        rho=arrays["rho"],
        thetas=arrays["thetas"],
        U=ImplicitResponsibilities(now),
        e_step=EStep(log_likelihood, change, arrays["sizes"], moments),
        outside=outside,
        reseeds_left=reseeds_left,
        history=history,
    )


def _check_entry(entry: Iteration, index: int, K: int) -> None:
    types = (type(entry.iteration), type(entry.n_evaluations), type(entry.event))
    if types != (int, int, str) or entry.iteration != index:
        raise ValueError(f"iteration {index} of the history is invalid")
    weights = np.asarray(entry.weights)
    if weights.shape != (K,) or weights.dtype != np.float64 or not np.all(np.isfinite(weights)):
        raise ValueError(f"the weights of iteration {index} must be {K} finite numbers")
    for name in ("log_likelihood", "objective", "temperature", "change"):
        _check_number(getattr(entry, name), f"{name} of iteration {index}", may_be_nan=name == "change" and index == 0)


def _check_number(value: Any, name: str, *, may_be_nan: bool = False) -> None:
    if type(value) not in (int, float) or not (math.isfinite(value) or may_be_nan):
        raise ValueError(f"{name} must be finite")
