"""EM between two iterations as one file: killed and started again, it ends with the same bits."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from limiirl.archives import Kind, read_archive, write_archive
from limiirl.errors import InvalidFile, InvalidParameter
from limiirl.irl.prepared import Expectation
from limiirl.irl.prepared_rows import Moments
from limiirl.kernels.expectation import Weighed
from limiirl.mdp import MDP
from limiirl.mixture import IntentMixture
from limiirl.mixture.em import State
from limiirl.mixture.encoding import Unwritable, Writer, decode, decode_history
from limiirl.streams.parts import name_of
from limiirl.streams.prepared import Remembered
from limiirl.streams.store import FeatureStore

KIND = Kind("limiirl.streams.checkpoint", 1, "a checkpoint", "fit_streamed")
# When to stop is no part of what is fitted: a fit that has ended may be gone on with.
_STOPPING = ("max_iter", "tol", "likelihood_tol")
_SILENT = ("irl", "callback", "verbose")


def identity(mixture: IntentMixture, irl: Any, mdp: MDP, store: FeatureStore, sample: int) -> str:
    """Return a digest of what is fitted to what: the data, the MDP, the model, and the mixture but for when it stops.

    Functions are known by their names, estimators by their classes and parameters: what they do is not looked at.

    Examples
    --------
    >>> from limiirl import MaxEnt
    >>> from limiirl.kernels.expectation import Rows
    >>> mdp = MDP.from_edges([0], [1], p0=[1, 0], state_features=np.eye(2))
    >>> store = FeatureStore.generated(lambda i: Rows(np.eye(2), np.zeros(2), np.ones(2)), [2], 2, longest=2)
    >>> a, b, c = (IntentMixture(2, max_iter=m, random_state=s) for m, s in ((5, 0), (9, 0), (5, 1)))
    >>> one, other, third = (identity(mixture, MaxEnt(), mdp, store, 10) for mixture in (a, b, c))
    >>> one == other, one == third
    (True, False)
    """
    writer = Writer()
    # Temperatures depend on the number of iterations.
    skipped = (*_SILENT, *_STOPPING) if mixture.annealing is None else _SILENT
    parameters = mixture.get_params(deep=False) | {f"irl__{k}": v for k, v in irl.get_params(deep=False).items()}
    written = {name: _written(writer, value, name) for name, value in sorted(parameters.items()) if name not in skipped}
    about = [written, name_of(irl), mdp.fingerprint(), mdp.n_features, store.fingerprint, sample]
    digest = hashlib.sha256(json.dumps(about).encode())
    for name, array in sorted(writer.arrays.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _written(writer: Writer, value: Any, place: str) -> Any:
    """Return JSON for a parameter; of one that has no form there, what tells it from others."""
    try:
        return writer.encode(value, place)
    except Unwritable:
        pass
    if isinstance(value, list | tuple):
        return [_written(writer, item, f"{place}.{i}") for i, item in enumerate(value)]
    known: dict[str, Any] = {}
    if hasattr(value, "get_params") and not isinstance(value, type):
        known = value.get_params(deep=False)
    return [name_of(value), {key: _written(writer, item, f"{place}.{key}") for key, item in sorted(known.items())}]


def write_checkpoint(path: Path, state: State, fitted: str) -> None:
    """Write a state, whole or not at all, in the place of the one before."""
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
        "coldness": np.array(remembered.coldness),
        "sizes": state.found.sizes,
        "features": state.found.moments.features,
        "counts": state.found.moments.counts,
    }
    write_archive(path, KIND, header, arrays | writer.arrays)


def read_checkpoint(path: Path, fitted: str) -> State | None:
    """Return the state that was written last, or None if there is none; that of another fit is an error."""
    if not path.exists():
        return None
    header, arrays = read_archive(path, KIND)
    try:
        if header["fitted"] != fitted:
            raise InvalidParameter(
                f"{path} is the checkpoint of another fit: other data, another model or other settings. Give another "
                "name, or remove it."
            )
        moments = Moments(arrays["features"], arrays["counts"], None)
        found = Expectation(
            decode(header["log_likelihood"], arrays), decode(header["change"], arrays), arrays["sizes"], moments
        )
        now = Weighed(arrays["thetas"], arrays["log_Z"], arrays["log_rho"], float(arrays["coldness"]))
        return State(
            rho=arrays["rho"],
            thetas=arrays["thetas"],
            U=Remembered(now),
            found=found,
            outside=header["outside"],
            reseeds_left=header["reseeds_left"],
            history=decode_history(header["history"], arrays),
        )
    except (KeyError, TypeError) as error:
        raise InvalidFile(f"{path} is damaged ({error!s:.200}). Remove it, and fit from the start.") from None
