"""`RewardEnsemble`: reward vectors with mixture weights."""

from __future__ import annotations

import json
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl._io import as_path, atomic_write, load_json, read_arrays
from limiirl._validation import as_floats
from limiirl._version import __version__
from limiirl.errors import InvalidFile, InvalidParameter

FORMAT = "limiirl.ensemble"
VERSION = 1
WEIGHT_TOLERANCE = 1e-8


@dataclass(frozen=True, init=False, eq=False, repr=False)
class RewardEnsemble:
    """K reward vectors with their mixture weights.

    Parameters
    ----------
    weights : array_like, shape (K,)
        Mixture weights: nonnegative, summing to 1 within 1e-8.
    thetas : array_like, shape (K, d)
        One finite reward vector per intent, in the order of the MDP's features.

    Examples
    --------
    >>> ensemble = RewardEnsemble([0.25, 0.75], [[0.0, -1.0, -10.0], [0.0, -10.0, -1.0]])
    >>> ensemble
    RewardEnsemble(2 intents, 3 features)
      25.0 %  [  0.  -1. -10.]
      75.0 %  [  0. -10.  -1.]
    >>> ensemble.n_intents
    2
    >>> ensemble == RewardEnsemble(ensemble.weights, ensemble.thetas)
    True
    """

    weights: NDArray[np.float64]
    thetas: NDArray[np.float64]

    def __init__(self, weights: ArrayLike, thetas: ArrayLike) -> None:
        checked_weights = _check_weights(weights)
        object.__setattr__(self, "weights", checked_weights)
        object.__setattr__(self, "thetas", _check_thetas(thetas, len(checked_weights)))

    @property
    def n_intents(self) -> int:
        """Number K of reward vectors."""
        return len(self.thetas)

    @property
    def n_features(self) -> int:
        """Length d of each reward vector."""
        return int(self.thetas.shape[1])

    def save(self, path: str | PathLike[str]) -> None:
        """Write the ensemble to a JSON file, atomically and without rounding; `RewardEnsemble.load` reads it.

        Examples
        --------
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "truth.json"
        >>> ensemble = RewardEnsemble([0.25, 0.75], [[0.0, -1.0], [0.1, -10.0]])
        >>> ensemble.save(path)
        >>> RewardEnsemble.load(path) == ensemble
        True
        """
        if as_path(path).suffix != ".json":
            raise InvalidFile.at(path, "must have the extension .json.")
        content = {
            "format": FORMAT,
            "version": VERSION,
            "limiirl": __version__,
            "weights": self.weights.tolist(),
            "thetas": self.thetas.tolist(),
        }
        with atomic_write(path) as scratch:
            scratch.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="ascii")

    @classmethod
    def load(cls, path: str | PathLike[str]) -> RewardEnsemble:
        """Read a file written by `save`, or an .npz file with the arrays weights (K,) and thetas (K, d)."""
        content: dict[str, Any] = (
            dict(read_arrays(path, "Store the arrays weights (K,) and thetas (K, d) in it."))
            if as_path(path).suffix == ".npz"
            else _read_json(as_path(path))
        )
        for name in ("weights", "thetas"):
            if name not in content:
                raise InvalidFile.at(path, f"has no array {name!r}.")
        try:
            return cls(content["weights"], content["thetas"])
        except InvalidParameter as error:
            raise InvalidFile.at(path, f"is invalid: {error}") from None

    def __repr__(self) -> str:
        head = f"RewardEnsemble({self.n_intents} intents, {self.n_features} features)"
        shown = zip(self.weights, self.thetas, strict=True)
        rows = (f"  {100 * w:4.1f} %  {np.array2string(t, precision=4, threshold=12, edgeitems=4)}" for w, t in shown)
        return "\n".join([head, *rows])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RewardEnsemble):
            return NotImplemented
        return np.array_equal(self.weights, other.weights) and np.array_equal(self.thetas, other.thetas)

    def __hash__(self) -> int:
        return hash((self.thetas.shape, self.weights.tobytes(), self.thetas.tobytes()))


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = load_json(path.read_bytes())
    except ValueError as error:
        reason = f"is truncated or not JSON ({error!s:.200}). Use a file written by RewardEnsemble.save."
        raise InvalidFile.at(path, reason) from None
    if not isinstance(content, dict) or content.get("format") != FORMAT or type(content.get("version")) is not int:
        raise InvalidFile.at(path, "is not a reward ensemble. Use a file written by RewardEnsemble.save.")
    if content["version"] > VERSION:
        written = f"format version {content['version']} (limiirl {content.get('limiirl')})"
        raise InvalidFile.at(path, f"has {written}; this release reads versions up to {VERSION}. Upgrade limiirl.")
    return content


def _as_frozen(values: ArrayLike, name: str) -> NDArray[np.float64]:
    """Return a read-only float64 copy; adding 0.0 turns -0.0 into 0.0, so that equal ensembles have equal hashes."""
    array = np.asarray(np.array(as_floats(values, name), order="C") + 0.0)
    array.flags.writeable = False
    return array


def _check_weights(weights: ArrayLike) -> NDArray[np.float64]:
    array = _as_frozen(weights, "weights")
    if array.ndim != 1 or array.size == 0:
        raise InvalidParameter.of("weights", array.shape, "must have shape (K,) with K >= 1")
    bad = np.flatnonzero(~(np.isfinite(array) & (array >= 0.0)))
    if bad.size:
        raise InvalidParameter.of("weights", float(array[bad[0]]), "must be finite and nonnegative", index=int(bad[0]))
    total = float(array.sum())
    if abs(total - 1.0) > WEIGHT_TOLERANCE:
        raise InvalidParameter.of("weights", total, "must sum to 1", remedy="Divide them by their sum.")
    return array


def _check_thetas(thetas: ArrayLike, n_intents: int) -> NDArray[np.float64]:
    array = _as_frozen(thetas, "thetas")
    if array.ndim != 2 or array.shape[0] != n_intents or array.shape[1] == 0:
        rule = f"must have shape ({n_intents}, d) with one row per weight and d >= 1"
        raise InvalidParameter.of("thetas", array.shape, rule)
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        k, j = (int(i) for i in bad[0])
        raise InvalidParameter.of("thetas", float(array[k, j]), "must be finite", index=(k, j))
    return array
