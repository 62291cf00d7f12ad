"""The state of EM between two iterations as one file: a fit that is killed and started again has the same bits."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limiirl._io import Kind, read_archive, write_archive
from limiirl.errors import InvalidFile, InvalidParameter
from limiirl.irl import EStep, Moments
from limiirl.kernels.e_step import MixtureParameters
from limiirl.mdp import MDP
from limiirl.mixture import IntentMixture, Iteration, State, Unwritable, Writer, decode, decode_history
from limiirl.streams.passes import Remembered
from limiirl.streams.store import FeatureStore, qualified_name

# K intents, d features.
_SHAPES = dict.fromkeys(("rho", "log_Z", "log_rho", "sizes", "counts"), "K")
_SHAPES |= {"thetas": "Kd", "features": "Kd", "inverse_temperature": ""}
KIND = Kind("limiirl.streams.checkpoint", 1, "a checkpoint", "fit_streamed")
# The stopping rule is not part of the identity: a fit that has ended may be continued.
_STOPPING = ("max_iter", "tol", "likelihood_tol")
# Nor are the device and the memory.
_IGNORED = ("irl", "callback", "verbose", "irl__device", "irl__max_memory")


def identity(mixture: IntentMixture, irl: Any, mdp: MDP, store: FeatureStore, sample: int) -> dict[str, str]:
    """Return digests of the data, the MDP, the model, and the mixture's parameters except its stopping rule.

    Functions are identified by name, estimators by class and parameters, random generators by state.

    Examples
    --------
    >>> from limiirl import MaxEnt
    >>> from limiirl.kernels.e_step import Rows
    >>> mdp = MDP.from_edges([0], [1], p0=[1, 0], state_features=np.eye(2))
    >>> store = FeatureStore.generated(lambda i: Rows(np.eye(2), np.zeros(2), np.ones(2)), [2], 2, longest=2)
    >>> a, b, c = (IntentMixture(2, max_iter=m, random_state=s) for m, s in ((5, 0), (9, 0), (5, 1)))
    >>> one, other, third = (identity(mixture, MaxEnt(), mdp, store, 10) for mixture in (a, b, c))
    >>> one == other, [name for name in one if one[name] != third[name]]
    (True, ['random_state'])
    """
    # Temperatures depend on the number of iterations.
    skipped = (*_IGNORED, *_STOPPING) if mixture.annealing is None else _IGNORED
    parameters = mixture.get_params(deep=False) | {f"irl__{k}": v for k, v in irl.get_params(deep=False).items()}
    parameters = {name: value for name, value in sorted(parameters.items()) if name not in skipped}
    parameters |= {"the data": store.fingerprint, "the MDP": [mdp.fingerprint(), mdp.n_features]}
    return {
        name: _digest(value) for name, value in (parameters | {"irl": qualified_name(irl), "sample": sample}).items()
    }


def _digest(value: Any) -> str:
    writer = Writer()
    digest = hashlib.sha256(json.dumps(_encode(writer, value, "value")).encode())
    for name, array in sorted(writer.arrays.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _encode(writer: Writer, value: Any, place: str) -> Any:
    """Return a parameter as JSON, or a description of it."""
    try:
        return writer.encode(value, place)
    except Unwritable:
        pass
    if isinstance(value, np.random.Generator):
        return _encode(writer, value.bit_generator.state, place)
    if isinstance(value, np.random.RandomState):
        return _encode(writer, value.get_state(legacy=False), place)
    if isinstance(value, list | tuple):
        return [_encode(writer, item, f"{place}.{i}") for i, item in enumerate(value)]
    known: dict[str, Any] = {}
    if hasattr(value, "get_params") and not isinstance(value, type):
        known = value.get_params(deep=False)
    return [
        qualified_name(value),
        {key: _encode(writer, item, f"{place}.{key}") for key, item in sorted(known.items())},
    ]


def write_checkpoint(path: Path, state: State, fitted: dict[str, str]) -> None:
    """Replace the checkpoint atomically."""
    remembered = state.U.ensemble
    writer = Writer()
    header = {
        "fitted": fitted,
        "log_likelihood": writer.encode(state.found.log_likelihood, "log_likelihood"),
        "change": writer.encode(state.found.change, "change"),
        "outside": bool(state.outside),
        "reseeds_left": state.reseeds_left,
        "history": writer.history(state.history),
    }
    arrays = {
        "rho": state.rho,
        "thetas": state.thetas,
        "log_Z": remembered.log_Z,
        "log_rho": remembered.log_rho,
        "inverse_temperature": np.array(remembered.inverse_temperature),
        "sizes": state.found.sizes,
        "features": state.found.moments.features,
        "counts": state.found.moments.counts,
    }
    write_archive(path, KIND, header, arrays | writer.arrays)


def read_checkpoint(path: Path, fitted: dict[str, str], shape: tuple[int, int]) -> State | None:
    """Return the last state, or None if there is no file; the checkpoint of another fit is an error.

    Parameters
    ----------
    shape : (K, d)
        Intents and features. Kernels do not check shapes: they would read beyond the end of smaller arrays.
    """
    if not path.exists():
        return None
    header, arrays = read_archive(path, KIND)
    known = header.get("fitted")
    if known != fitted:
        known = known if isinstance(known, dict) else {}
        others = ", ".join(name for name in known | fitted if known.get(name) != fitted.get(name))
        raise InvalidParameter(
            f"{path} is the checkpoint of another fit, with another {others}. Give another name, or remove it.",
            parameter="checkpoint",
            value=str(path),
        )
    try:
        return _read_state(header, arrays, *shape)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidFile(
            f"{path} is damaged ({error!s:.200}). Remove it, and fit from the start.",
            parameter="checkpoint",
            value=str(path),
        ) from None


def _read_state(header: dict[str, Any], arrays: dict[str, NDArray[Any]], K: int, d: int) -> State:
    """Return the state of a file, or raise a builtin error if it is damaged."""
    for name, axes in _SHAPES.items():
        shape, array = tuple({"K": K, "d": d}[axis] for axis in axes), arrays[name]
        if array.shape != shape or array.dtype != np.float64 or not np.all(np.isfinite(array)):
            raise ValueError(f"{name} should be {shape} finite numbers")
    for name in ("rho", "inverse_temperature"):
        if not np.all(arrays[name] > 0.0):
            raise ValueError(f"{name} should be above 0")
    for name in ("sizes", "counts"):
        if np.any(arrays[name] < 0.0):
            raise ValueError(f"{name} should not be below 0")
    history = decode_history(header["history"], arrays)
    for index, entry in enumerate(history):
        _check_entry(entry, index, K)
    if not history:
        raise ValueError("it has no iteration")
    log_likelihood, change = (decode(header[name], arrays) for name in ("log_likelihood", "change"))
    outside, reseeds_left = header["outside"], header["reseeds_left"]
    if type(outside) is not bool or type(reseeds_left) is not int or reseeds_left < 0:
        raise ValueError("outside should be true or false, and reseeds_left a number")
    _check_number(log_likelihood, "log_likelihood")
    _check_number(change, "change", unknown=len(history) == 1)
    now = MixtureParameters(arrays["thetas"], arrays["log_Z"], arrays["log_rho"], float(arrays["inverse_temperature"]))
    moments = Moments(arrays["features"], arrays["counts"], None)
    return State(
        rho=arrays["rho"],
        thetas=arrays["thetas"],
        U=Remembered(now),
        found=EStep(log_likelihood, change, arrays["sizes"], moments),
        outside=outside,
        reseeds_left=reseeds_left,
        history=history,
    )


def _check_entry(entry: Iteration, index: int, K: int) -> None:
    whole = type(entry.iteration) is int and type(entry.n_evaluations) is int and type(entry.event) is str
    if not whole or entry.iteration != index:
        raise ValueError(f"iteration {index} of its history is invalid")
    weights = np.asarray(entry.weights)
    if weights.shape != (K,) or weights.dtype != np.float64 or not np.all(np.isfinite(weights)):
        raise ValueError(f"the weights of iteration {index} should be {K} numbers")
    for name in ("log_likelihood", "objective", "temperature", "change"):
        _check_number(getattr(entry, name), f"{name} of iteration {index}", unknown=name == "change" and index == 0)


def _check_number(value: Any, what: str, *, unknown: bool = False) -> None:
    if type(value) not in (int, float) or not (math.isfinite(value) or unknown):
        raise ValueError(f"{what} should be a finite number")
