"""`fit_streamed`: EM of an `IntentMixture` on a feature store, with one pass over the store per iteration.

A checkpoint contains the state of EM after an iteration, and identifies the data and the parameters.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limiirl._io import FileFormat, as_path, read_archive, write_archive
from limiirl._parallel import BLOCK, Mapper
from limiirl._progress import Progress, check_progress
from limiirl._validation import check_count
from limiirl.errors import InvalidFile, InvalidParameter, MissingFile
from limiirl.irl import EStep, MaxEnt, MaxEntProblem, Moments
from limiirl.kernels.e_step import MixtureParameters
from limiirl.mdp import MDP, RewardEnsemble
from limiirl.mixture import (
    IntentMixture,
    Iteration,
    NotSerialisable,
    Start,
    Starts,
    State,
    Writer,
    decode,
    decode_history,
    is_given,
    validate,
)
from limiirl.streams.passes import (
    WINDOW,
    ImplicitResponsibilities,
    StoreStatistics,
    check_mixture,
    open_executor,
    sample_problem,
    stream_problem,
    with_statistics,
)
from limiirl.streams.store import FeatureStore, as_store, get_qualified_name

# Number of rows for the initialisation; the standard error of a mean is then below 1 % of the standard deviation.
SAMPLE = 50_000


def fit_streamed(
    mixture: IntentMixture,
    mdp: MDP,
    store: FeatureStore | str | PathLike[str],
    *,
    sample: int = SAMPLE,
    checkpoint: str | PathLike[str] | None = None,
    executor: Mapper | None = None,
    block: int = WINDOW,
    progress: Progress | None = None,
) -> IntentMixture:
    """Fit a mixture to a feature store, which need not fit in memory, and return the mixture.

    The algorithm is the EM of `IntentMixture.fit`; with the same initialisation it converges to the same parameters up
    to rounding. The attributes with one row per demonstration (`responsibilities_`, `labels_`) are None; `assign`
    writes them to files.

    Parameters
    ----------
    mixture : IntentMixture
        Its model must be a `MaxEnt` with condition="none". `init` is computed on a sample, unless it is a
        `RewardEnsemble`.
    mdp : MDP
        The MDP that the store was written with.
    store : FeatureStore or path
        Result of `write_features`, or the folder of the store.
    sample : int
        Number of rows, drawn at random, on which `init` is computed; at least the number of intents.
    checkpoint : path, optional
        File that is written after every iteration. If it exists, the fit resumes from it: a converged fit, or one with
        at least `max_iter` iterations, is returned unchanged. A checkpoint of other data, another MDP or other
        settings (except `device`, `max_memory` and the stopping rule) raises an error; functions (a callable `init`, a
        generated store) are compared by name only.
    executor : limiirl.executors.Executor, Session or concurrent.futures.Executor, optional
        Runs the E-steps; its workers are reused for the whole fit. By default the E-steps run in this process with
        several threads, which is fastest on one machine.
    block : int
        Number of rows in memory at a time; it does not affect the result.
    progress : callable, optional
        Called as ``progress(done, total, message)`` with the number of rows processed in an E-step. The `progress` of
        the mixture is called after every iteration.

    Examples
    --------
    >>> import tempfile
    >>> from limiirl import Demonstrations
    >>> from limiirl.streams import write_features
    >>> phi = [[0, 0], [1, 0], [0, 1], [0, 0]]
    >>> mdp = MDP.from_edges([0, 0, 1, 2], [1, 2, 3, 3], p0=[1, 0, 0, 0], state_features=phi)
    >>> shards = [Demonstrations.from_lists([[0, 1, 3]] * 3), Demonstrations.from_lists([[0, 2, 3]])]
    >>> store = write_features(mdp, shards, Path(tempfile.mkdtemp()) / "features")
    >>> mix = fit_streamed(IntentMixture(2, MaxEnt(bounds=(-5, 5)), random_state=0), mdp, store)
    >>> mix.weights_.round(2)
    array([0.75, 0.25])
    """
    _check_settings(mixture)
    check_progress(progress)
    irl = validate.clone_model(MaxEnt() if mixture.irl is None else mixture.irl)
    path = _checkpoint_path(checkpoint)
    window = -(-check_count(block, "block") // BLOCK) * BLOCK
    rows = as_store(store)
    problem = stream_problem(irl, mdp, rows)
    validate.check_enough_units(mixture.n_intents, problem.units)
    if check_count(sample, "sample") < mixture.n_intents:
        raise InvalidParameter.of("sample", sample, f"must be at least n_intents = {mixture.n_intents}")
    settings = identity(mixture, irl, mdp, rows, sample)
    shape = (mixture.n_intents, mdp.n_features)
    begin: Start | State | None = None if path is None else read_checkpoint(path, settings, shape)
    if begin is None:
        begin = _start(mixture, problem, rows, sample)

    def keep(state: State) -> None:
        if path is not None:
            write_checkpoint(path, state, settings)

    with open_executor(executor) as session:
        statistics = StoreStatistics(rows, window=window, executor=session, progress=progress)
        return mixture.fit_from(with_statistics(problem, statistics), begin, keep=keep)


def _checkpoint_path(checkpoint: Any) -> Path | None:
    """Return the path of the checkpoint; check before the fit that its folder exists."""
    path = None if checkpoint is None else as_path(checkpoint, "checkpoint")
    if path is not None and not path.absolute().parent.is_dir():
        message = (
            f"The folder {path.parent} of the checkpoint {path.name} does not exist. Create it, or choose another."
        )
        raise MissingFile(message, parameter="checkpoint", value=str(path))
    return path


def _check_settings(mixture: IntentMixture) -> None:
    """Raise `InvalidParameter` for settings that need all demonstrations in memory."""
    check_mixture(mixture)
    validate.make_settings(mixture)
    if mixture.n_init != 1:
        remedy = "Fit a sample in memory and pass its ensemble as init, or compare objective_ for several seeds."
        raise InvalidParameter.of("n_init", mixture.n_init, "must be 1 for a stream", remedy=remedy)
    if mixture.refine is not None:
        rule = "must be None for a stream, which does not store responsibilities"
        raise InvalidParameter.of("refine", mixture.refine, rule)
    if mixture.degenerate == "reseed":
        rule = "must be 'fit' or 'keep' for a stream, because 'reseed' needs all demonstrations in memory"
        raise InvalidParameter.of("degenerate", "reseed", rule)
    if is_given(mixture.init) and not isinstance(mixture.init, RewardEnsemble):
        rule = "must be a name, a clusterer, a function or a RewardEnsemble for a stream"
        raise InvalidParameter.of("init", mixture.init, rule)
    embedding = mixture.embedding
    if embedding is not None and not (isinstance(embedding, str) and embedding in ("shares", "gradients")):
        raise InvalidParameter.of("embedding", embedding, "must be None, 'shares' or 'gradients' for a stream")


def _start(mixture: IntentMixture, problem: MaxEntProblem, store: FeatureStore, sample: int) -> Start:
    """Return the initialisation of EM from a sample of the rows.

    The first seed is the same as in `IntentMixture.fit`, so that a sample of all rows yields the same initialisation.
    """
    first, second = validate.spawn_seeds(mixture.random_state, 2)
    drawn = sample_problem(problem, store, sample, np.random.default_rng(second))
    starts = Starts(mixture.init, mixture.embedding, drawn)
    begin = starts.begin(mixture.n_intents, mixture.reward_init, np.random.default_rng(first))
    return replace(begin, U=None)


# K intents, d features.
_SHAPES = dict.fromkeys(("rho", "log_Z", "log_rho", "sizes", "counts"), "K")
_SHAPES |= {"thetas": "Kd", "features": "Kd", "inverse_temperature": ""}
FORMAT = FileFormat("limiirl.streams.fit", 2, "a checkpoint", "fit_streamed")
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
