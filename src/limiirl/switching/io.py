"""Save and load a fitted `SwitchingMixture`: a folder of JSON and npz files with checksums."""

from __future__ import annotations

import warnings
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from limiirl._io import as_path
from limiirl.demos import CovariateScale
from limiirl.errors import LimiirlWarning
from limiirl.irl import allow_cpu
from limiirl.mixture import (
    FolderFormat,
    Writer,
    check_data_file,
    check_fitted,
    check_mdp,
    decode,
    decode_history,
    decode_model,
    encode_parameters,
    validate,
)
from limiirl.switching.em import SwitchingRestart
from limiirl.switching.transitions import Logits

if TYPE_CHECKING:
    from limiirl.switching.estimator import SwitchingMixture

_FOLDER = FolderFormat("limiirl.switching", 1)
check_target = _FOLDER.check_target
_RESULTS = (
    *("initial_", "thetas_", "transition_", "mean_transition_", "shares_", "groups_", "n_demos_", "n_steps_"),
    *("n_columns_", "log_likelihood_", "objective_", "n_iter_", "converged_"),
)
_RESTART = ("objective", "log_likelihood", "n_iter", "converged", "best")
_Switching = TypeVar("_Switching", bound="SwitchingMixture")


def save(mixture: SwitchingMixture, folder: str | PathLike[str]) -> None:
    """Write a fitted mixture; see `SwitchingMixture.save`."""
    check_fitted(mixture)
    check_mdp(mixture.mdp_)
    _FOLDER.check_target(folder)
    writer = Writer()
    parameters, replaced = encode_parameters(mixture, writer, "kmeans")
    if "init" in replaced:
        warnings.warn(
            f"init is a {replaced['init']} and cannot be serialised. The loaded mixture has init='kmeans'. Predictions "
            "are not affected.",
            LimiirlWarning,
            stacklevel=validate.caller_stacklevel(),
        )
    covariates = mixture.covariates_
    header: dict[str, Any] = {
        "parameters": parameters,
        "replaced": replaced,
        "irl": None if mixture.irl is None else writer.model(mixture.irl, "irl"),
        "irl_": writer.model(mixture.irl_, "irl_"),
        "data_file": mixture.data_file_,
        "results": {name: writer.encode(getattr(mixture, name), name) for name in _RESULTS},
        "logits": [writer.encode(part, f"logits.{i}") for i, part in enumerate(mixture.logits_)],
        "initial_logits": writer.encode(mixture.initial_logits_, "initial_logits"),
        "covariates": None
        if covariates is None
        else [writer.encode(part, f"covariates.{i}") for i, part in enumerate(covariates)],
        "history": writer.history(mixture.history_),
        "restarts": [[writer.encode(getattr(run, name), name) for name in _RESTART] for run in mixture.restarts_],
    }
    _FOLDER.write(folder, header, writer.arrays, mixture.mdp_)


def load(cls: type[_Switching], folder: str | PathLike[str]) -> _Switching:
    """Read a mixture that `save` wrote; see `SwitchingMixture.load`."""
    header, arrays, mdp = _FOLDER.read(folder)
    try:
        mixture = cls(**{name: decode(value, arrays) for name, value in header["parameters"].items()})
        mixture.irl = None if header["irl"] is None else allow_cpu(decode_model(header["irl"], arrays))
        for name in _RESULTS:
            setattr(mixture, name, decode(header["results"][name], arrays))
        mixture.data_file_ = check_data_file(header.get("data_file"))
        mixture.logits_ = Logits(*(decode(part, arrays) for part in header["logits"]))
        mixture.initial_logits_ = decode(header.get("initial_logits"), arrays)
        written = header["covariates"]
        mixture.covariates_ = None if written is None else CovariateScale(*(decode(x, arrays) for x in written))
        mixture.history_ = decode_history(header["history"], arrays)
        mixture.restarts_ = [
            SwitchingRestart(**dict(zip(_RESTART, decode(run, arrays), strict=True))) for run in header["restarts"]
        ]
        mixture.irl_, mixture.mdp_ = allow_cpu(decode_model(header["irl_"], arrays)), mdp
        _check_shapes(mixture)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise _FOLDER.make_error(folder, error) from error
    return mixture


def is_saved(folder: str | PathLike[str]) -> bool:
    """Return True if a folder contains a saved `SwitchingMixture`."""
    return _FOLDER.wrote(as_path(folder, "folder"))


def _check_shapes(mixture: SwitchingMixture) -> None:
    """Raise ValueError unless the arrays have consistent shapes."""
    K, d = len(mixture.initial_), mixture.mdp_.n_features
    m = {"homogeneous": 0, "state": mixture.mdp_.n_states}.get(mixture.switching)
    if m is None:
        m = 0 if mixture.covariates_ is None else len(mixture.covariates_.names)
    expected = ((K,), (K, d), (K,), (K, K), (K, K), (K, m))
    actual = [np.shape(x) for x in (mixture.initial_, mixture.thetas_, mixture.shares_, mixture.mean_transition_)]
    if (*actual, *map(np.shape, mixture.logits_)) != expected:
        raise ValueError(f"shapes {actual} of {K} intents")
