"""Storage of an MDP in one npz file with plain arrays and a JSON header, without pickle."""

from __future__ import annotations

import hashlib
import json
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from limiirl._io import FileFormat, read_archive, write_archive
from limiirl.errors import InvalidFile, InvalidMDP
from limiirl.mdp.features import FeatureMatrix, GoalFeature

if TYPE_CHECKING:
    from limiirl.mdp.mdp import MDP


FORMAT = FileFormat("limiirl.mdp", 1, "an MDP", "MDP.save")

_ARRAYS = ("src", "act", "dst", "prob", "p0", "terminal")
_FEATURES = ("state_features", "action_features", "edge_features")


def _pack(mdp: MDP) -> dict[str, NDArray[Any]]:
    """Return the fields of an MDP, except the names, as plain arrays."""
    packed: dict[str, NDArray[Any]] = {name: getattr(mdp, name) for name in _ARRAYS}
    packed["gamma"] = np.array(mdp.gamma)
    for name in _FEATURES:
        packed |= _pack_matrix(getattr(mdp, name), name)
    for j, feature in enumerate(mdp.goal_features):
        packed |= _pack_matrix(feature.values, f"goal.{j}.values")
        packed[f"goal.{j}.goals"] = feature.goals
        if feature.starts is not None:
            packed[f"goal.{j}.starts"] = feature.starts
    if mdp.history is not None:  # only if present, so that other MDPs keep their digests
        packed["history"] = mdp.history
    if mdp.environment is not None:
        packed["environment"] = mdp.environment
    return packed


def _pack_matrix(matrix: FeatureMatrix | None, name: str) -> dict[str, NDArray[Any]]:
    if matrix is None:
        return {}
    if isinstance(matrix, np.ndarray):
        return {name: matrix}
    parts = {part: getattr(matrix, part) for part in ("data", "indices", "indptr")}
    parts["shape"] = np.array(matrix.shape, dtype=np.int64)
    return {f"{name}.{part}": values for part, values in parts.items()}


def _names(mdp: MDP) -> dict[str, Any]:
    names = {"feature_names": mdp.feature_names, "state_names": mdp.state_names}
    # Only if present, so that MDPs without them keep their digests.
    optional: dict[str, Any] = {"action_names": mdp.action_names, "original_names": mdp.original_names}
    if mdp.goal_features:
        optional["goal_features"] = [[feature.name, feature.of] for feature in mdp.goal_features]
    optional["environment_names"] = mdp.environment_names or None
    return names | {name: values for name, values in optional.items() if values is not None}


def digest(mdp: MDP) -> str:
    """Return the SHA-256 digest of the content, in hexadecimal."""
    sha = hashlib.sha256(json.dumps(_names(mdp)).encode("ascii"))
    for name, array in sorted(_pack(mdp).items()):
        # Equal MDPs must have equal digests: replace -0.0 by 0.0, and hash sparse indices as int64.
        values = array + 0.0 if array.dtype == np.float64 else array
        if name.endswith((".indices", ".indptr")):
            values = values.astype(np.int64)
        values = np.ascontiguousarray(values.astype(values.dtype.newbyteorder("<"), copy=False))
        sha.update(f"{name} {values.dtype.str} {values.shape}\n".encode())
        sha.update(values.data)
    return sha.hexdigest()


def save(mdp: MDP, path: str | PathLike[str]) -> None:
    """Write `mdp` to `path`; see `MDP.save`."""
    write_archive(path, FORMAT, _names(mdp), _pack(mdp))


def load(cls: type[MDP], path: str | PathLike[str]) -> MDP:
    """Read an MDP written by `save`; raise `InvalidFile` if the file is corrupted, not an MDP or too new.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from limiirl.mdp import MDP
    >>> mdp = MDP.from_edges([0, 1], [1, 0])
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "ring.npz"
    >>> mdp.save(path)
    >>> MDP.load(path) == mdp
    True
    """
    header, arrays = read_archive(path, FORMAT)
    try:
        return cls(
            **{name: arrays[name] for name in _ARRAYS},
            gamma=float(arrays["gamma"]),
            **{name: _unpack_features(arrays, name) for name in _FEATURES},
            feature_names=tuple(header["feature_names"]),
            state_names=None if header["state_names"] is None else tuple(header["state_names"]),
            action_names=None if header.get("action_names") is None else tuple(header["action_names"]),
            history=arrays.get("history"),
            original_names=None if header.get("original_names") is None else tuple(header["original_names"]),
            goal_features=tuple(
                GoalFeature(
                    name,
                    _unpack_features(arrays, f"goal.{j}.values"),
                    arrays[f"goal.{j}.goals"],
                    arrays.get(f"goal.{j}.starts"),
                    of,
                )
                for j, (name, of) in enumerate(header.get("goal_features", ()))
            ),
            environment=arrays.get("environment"),
            environment_names=tuple(header.get("environment_names") or ()),
        )
    except (KeyError, ValueError, TypeError, InvalidMDP) as error:
        reason = f"the array {error} is missing." if isinstance(error, KeyError) else f"{error!s:.300}"
        raise InvalidFile.at(path, f"is corrupted: {reason} Save the MDP again.") from error


def _unpack_features(arrays: dict[str, NDArray[Any]], name: str) -> Any:
    if f"{name}.data" not in arrays:
        return arrays.get(name)
    data, indices, indptr, shape = (arrays[f"{name}.{part}"] for part in ("data", "indices", "indptr", "shape"))
    return sparse.csr_array((data, indices, indptr), shape=(int(shape[0]), int(shape[1])))
