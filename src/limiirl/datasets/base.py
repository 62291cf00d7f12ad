"""`Dataset`, and reading the files of a data set from a folder."""

from __future__ import annotations

import csv
import gzip
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limiirl import _io
from limiirl._io import as_path
from limiirl._typing import BoolArray, FloatArray, IntArray
from limiirl.demos import Demonstrations
from limiirl.errors import InvalidFile
from limiirl.mdp import MDP

# Most bytes of a text file after decompression; the largest published file has under 100 MB.
_MOST_BYTES = 2**30


@dataclass(frozen=True, eq=False, kw_only=True)
class Dataset:
    """Demonstrations with their MDP and, if known, test set, conditions, true intents and true rewards.

    Attributes
    ----------
    mdp : MDP
    demos : Demonstrations
        `demos.groups` is the animal or the driver, where it is known.
    description : str
        Content and source.
    test : (N,) bool or None
        Demonstrations of the published test set.
    splits : (F, N) bool or None
        Test set of each published split.
    condition : (N,) or None
        Experimental condition of each demonstration, such as "restricted".
    intents : (n,) or None
        True intent of each decision, in the order of the transitions of `demos`.
    thetas : (K, d) or None
        True rewards.
    """

    mdp: MDP
    demos: Demonstrations
    description: str
    test: BoolArray | None = None
    splits: BoolArray | None = None
    condition: NDArray[Any] | None = None
    intents: IntArray | None = None
    thetas: FloatArray | None = None

    def __repr__(self) -> str:
        return f"{self.description}\n\n{self.mdp!r}\n{self.demos!r}"


def locate(folder: str | os.PathLike[str], name: str) -> Path:
    """Return the path of the file `name` in a folder; raise `InvalidFile` if it does not exist."""
    path = as_path(folder) / name
    if not path.is_file():
        raise InvalidFile.at(path, f"does not exist. Pass the folder that contains {name}.")
    return path


def read_rows(path: Path, columns: Sequence[str]) -> list[dict[str, str]]:
    """Return the rows of a CSV file, which may be compressed by gzip; raise `InvalidFile` if a column is missing."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            raw = stream.read(_MOST_BYTES + 1)
        if len(raw) > _MOST_BYTES:
            raise InvalidFile.at(path, f"has over {_MOST_BYTES:,} bytes after decompression. Copy it again.")
        text = raw.decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise InvalidFile.at(path, f"cannot be read as UTF-8 text: {error}") from None
    table = csv.DictReader(io.StringIO(text), skipinitialspace=True)
    missing = [name for name in columns if name not in (table.fieldnames or ())]
    if missing:
        raise InvalidFile.at(path, f"must have the columns {', '.join(columns)}; {missing[0]} is missing.")
    return list(table)


def read_arrays(path: Path, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Return the arrays `names` of an npz file, without pickle; raise `InvalidFile` if one is missing."""
    return _io.read_arrays(path, f"It must have the arrays {', '.join(names)}.", lambda _: list(names))


def as_numbers(path: Path, rows: Sequence[dict[str, str]], column: str, missing: float = np.nan) -> FloatArray:
    """Return a column as numbers; empty cells become `missing`."""
    values = np.empty(len(rows))
    for i, row in enumerate(rows):
        text = row[column].strip()
        try:
            values[i] = float(text) if text else missing
        except ValueError:
            raise InvalidFile.at(path, f"row {i + 2}, column {column}: {text!r} is not a number.") from None
    return values


def parse_path(path: Path, row: int, text: str, separator: str | None, n_states: int) -> list[int]:
    """Return a sequence of states in a cell of the data row with index `row`."""
    try:
        states = [int(part) for part in text.split(separator)]
    except ValueError:
        states = []
    if not states or min(states) < 0 or max(states) >= n_states:
        raise InvalidFile.at(
            path, f"row {row + 2}: must be a list of states from 0 to {n_states - 1}, not {text[:60]!r}."
        )
    return states
