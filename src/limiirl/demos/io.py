"""Parquet and CSV files of demonstrations, and rollouts in Gymnasium environments."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl._io import as_path, atomic_write
from limiirl._typing import Seed
from limiirl._validation import as_generator, check_count, check_each, check_seed
from limiirl.demos.validate import NOT_RECORDED
from limiirl.errors import BackendUnavailable, InvalidDemos, InvalidFile, InvalidParameter
from limiirl.mdp import encode, rename_columns, split_columns

if TYPE_CHECKING:
    from limiirl.demos.demonstrations import Demonstrations


FORMAT = "limiirl.demonstrations"
VERSION = 2
# Files without names are written as version 1, so that older releases can read them.
_VERSION_WITHOUT_NAMES = 1

_NAMES = ("state_names", "action_names")
# Column of each attribute of a demonstration; the value is repeated in all its rows.
_COLUMNS = {"groups": "group", "labels": "label"}
_REMEDY = "Write it again with Demonstrations.to_parquet, or read other tables with Demonstrations.from_frame."


def write_parquet(demos: Demonstrations, path: str | os.PathLike[str]) -> None:
    """Write demonstrations to `path`; see `Demonstrations.to_parquet`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    demo_of_row = np.repeat(np.arange(len(demos)), demos.lengths)
    rows = pa.array(demo_of_row)
    columns = {
        "demo": rows if demos.ids is None else _as_arrow(demos.ids).take(rows),
        "t": pa.array(np.arange(demos.n_steps) - demos.offsets[demo_of_row]),
        "state": _with_names(pa.array(demos.states), demos.state_names),
    }
    if demos.actions is not None:
        actions = pa.array(demos.actions, mask=demos.actions == NOT_RECORDED)
        columns["action"] = _with_names(actions, demos.action_names)
    for name, column in _COLUMNS.items():
        values = getattr(demos, name)
        if values is not None:
            columns[column] = _as_arrow(values).take(rows)
    if demos.times is not None:
        columns["time"] = _as_arrow(demos.times)
    names = {name: getattr(demos, name) for name in _NAMES if getattr(demos, name) is not None}
    version = VERSION if names or demos.times is not None else _VERSION_WITHOUT_NAMES
    about = {"limiirl.format": FORMAT, "limiirl.version": str(version), "limiirl.ids": str(int(demos.ids is not None))}
    about |= {f"limiirl.{name}": json.dumps(values) for name, values in names.items()}
    with atomic_write(path) as scratch, scratch.open("wb") as stream:  # pyarrow opens only paths in UTF-8
        # Page checksums detect corrupt data.
        pq.write_table(pa.table(columns, metadata=about), stream, compression="zstd", write_page_checksum=True)


def read_parquet(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the arguments of `Demonstrations` from a file written by `write_parquet`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = as_path(path)
    try:
        with path.open("rb") as handle, pq.ParquetFile(handle, page_checksum_verification=True) as file:
            about = file.schema_arrow.metadata or {}
            _check_format(path, about)
            table = file.read()
    except (pa.ArrowException, OSError) as error:
        raise _read_error(path, error) from None
    names = {name: about.get(f"limiirl.{name}".encode()) for name in _NAMES}
    return _unpack(
        path, table, {k: _decode_names(path, v) for k, v in names.items()}, about.get(b"limiirl.ids") == b"1"
    )


def read_table(path: str | os.PathLike[str], columns: Mapping[str, str] | None = None) -> Any:
    """Return the table of a parquet or CSV file, or None for a file written by `write_parquet`; see `read_csv`.

    `columns` maps the roles demo, group, label, state and action to the names of columns that differ from the role.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = as_path(path)
    if path.suffix not in (".parquet", ".csv"):
        raise InvalidFile.at(path, "must be a .parquet or .csv file with the columns demo, t, state[, action].")
    try:
        if path.suffix == ".csv":
            sources = rename_columns(columns)
            identifiers, indices = (
                {part for field in fields for part in (sources[field], *split_columns(sources[field]))}
                for fields in (("demo", "group", "label"), ("state", "action"))
            )
            return read_csv(path, tuple(identifiers), tuple(indices))
        with path.open("rb") as handle, pq.ParquetFile(handle) as file:
            about = file.schema_arrow.metadata or {}
            return None if b"limiirl.format" in about else file.read()
    except (pa.ArrowException, OSError) as error:
        raise _read_error(path, error) from None


def read_csv(
    path: Path,
    identifiers: Sequence[str] = ("demo", "group", "label"),
    indices: Sequence[str] = ("state", "action"),
) -> Any:
    """Read a CSV file in UTF-8 as a pyarrow Table, such that different texts remain different values.

    A column of identifiers is read as text if an entry, such as 01 or 1e2, is not an integer in canonical form. A
    column of states or actions (`indices`) is read as text if two different texts denote the same number. pyarrow
    infers the types of the other columns. Empty cells, NA, NaN and null are missing values.
    """
    import pyarrow as pa
    from pyarrow import csv

    options = csv.ConvertOptions(
        column_types=dict.fromkeys((*identifiers, *indices), pa.large_string()), strings_can_be_null=True
    )
    if path.stat().st_size == 0:
        raise InvalidFile.at(path, "is empty. It must have a header, such as demo,t,state, and one row per step.")
    try:
        with path.open("rb") as stream:  # pyarrow opens only paths in UTF-8
            table = csv.read_csv(stream, convert_options=options)
        names: list[str] = table.column_names
    except (UnicodeDecodeError, pa.ArrowInvalid) as error:
        _check_utf8(path)
        if isinstance(error, UnicodeDecodeError):
            raise InvalidFile.at(path, f"has a column name that is not UTF-8 text ({error}).") from None
        raise
    if len(names) == 1:
        raise InvalidFile.at(path, f"has one column, {names[0]!r}. Separate columns by commas.")
    for i, name in enumerate(names):
        if name in identifiers:
            table = table.set_column(i, name, _parse_identifiers(table.column(i)))
        elif name in indices:
            table = table.set_column(i, name, _parse_indices(table.column(i)))
    return table


def _parse_identifiers(column: Any) -> Any:
    """Convert a column of text to integers if all entries are integers in canonical form."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        numbers = column.cast(pa.int64())
    except pa.ArrowInvalid:
        return column
    same = pc.all(pc.equal(numbers.cast(pa.large_string()), column)).as_py()
    return column if same is False else numbers


def _parse_indices(column: Any) -> Any:
    """Convert a column of text to numbers if different texts denote different numbers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    trimmed = pc.utf8_trim_whitespace(column)
    distinct = trimmed.unique().drop_null()
    for kind in (pa.int64(), pa.float64()):
        try:
            if len(distinct.cast(kind).unique()) == len(distinct):
                return trimmed.cast(kind)
        except pa.ArrowInvalid:
            continue
    return column


def _check_utf8(path: Path) -> None:
    """Raise `InvalidFile` if a line is not UTF-8 text."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                byte = line[error.start]
                reason = f"is not UTF-8 text: line {number} has the byte 0x{byte:02x}"
                raise InvalidFile.at(path, f"{reason}. Save it as UTF-8, e.g. with iconv -f latin1 -t utf-8.") from None


def _read_error(path: Path, error: Exception) -> Exception:
    if isinstance(error, OSError) and error.errno is not None:
        return error  # a missing file, a directory or missing permission
    reason = str(error).partition("\n")[0].rstrip(".")
    return InvalidFile.at(path, f"is not a {path.suffix[1:] or 'parquet'} file or is corrupted ({reason}). {_REMEDY}")


def _check_format(path: Path, about: dict[bytes, bytes]) -> None:
    if about.get(b"limiirl.format", b"").decode() != FORMAT:
        raise InvalidFile.at(path, f"was not written by Demonstrations.to_parquet. {_REMEDY}")
    version = about.get(b"limiirl.version", b"").decode()
    if not version.isdecimal() or int(version) > VERSION:
        reason = f"has format version {version or None}; this release reads up to {VERSION}. Upgrade limiirl."
        raise InvalidFile.at(path, reason)


def _decode_names(path: Path, text: bytes | None) -> tuple[str, ...] | None:
    try:
        return None if text is None else tuple(json.loads(text))
    except (ValueError, TypeError) as error:
        raise InvalidFile.at(path, f"has corrupted names ({error!s:.100}). {_REMEDY}") from None


def _with_names(numbers: Any, names: tuple[str, ...] | None) -> Any:
    """Replace numbers by their names; return them unchanged if there are no names."""
    import pyarrow as pa

    return numbers if names is None else pa.array(names, type=pa.large_string()).take(numbers)


def _numbers(path: Path, column: Any, name: str, names: tuple[str, ...] | None) -> NDArray[Any]:
    """Return the indices of states or actions, given as indices or names; -1 where null."""
    if names is None:
        return np.asarray((column if name == "state" else column.fill_null(NOT_RECORDED)).to_numpy())
    numbers, _ = encode(column.to_numpy(), column.is_null().to_numpy(), names)
    if np.any(numbers < NOT_RECORDED):
        row = int(np.argmax(numbers < NOT_RECORDED))
        value = column[row].as_py()
        reason = (
            f"has {name} {value!r} in row {row} (from 0), which is not one of the {name} names in the file. {_REMEDY}"
        )
        raise InvalidFile.at(path, reason)
    return numbers


def _unpack(path: Path, table: Any, names: dict[str, tuple[str, ...] | None], with_ids: bool) -> dict[str, Any]:
    """Return the table as flat arrays; a demonstration begins where t is 0."""
    missing = [name for name in ("demo", "t", "state") if name not in table.column_names]
    if missing:
        raise InvalidFile.at(path, f"has no column {missing[0]!r}. {_REMEDY}")
    t = table["t"].to_numpy()
    # Ids may repeat, for example after resampling, so t = 0 marks the start of a demonstration.
    starts = np.flatnonzero(t == 0)
    offsets = np.append(starts, t.size)
    if (t.size > 0 and t[0] != 0) or np.any(t != np.arange(t.size) - np.repeat(starts, np.diff(offsets))):
        reason = f"must have t = 0, 1, 2, ... within each demonstration; rows are missing or reordered. {_REMEDY}"
        raise InvalidFile.at(path, reason)
    columns: dict[str, Any] = names | {"offsets": offsets}
    columns["states"] = _numbers(path, table["state"], "state", names["state_names"])
    if "action" in table.column_names:
        columns["actions"] = _numbers(path, table["action"], "action", names["action_names"])
    if "time" in table.column_names:
        columns["times"] = table["time"].to_numpy()
    for name, column in (_COLUMNS | {"ids": "demo"} if with_ids else _COLUMNS).items():
        if column in table.column_names:
            columns[name] = table[column].take(starts).to_numpy()
    return columns


def _as_arrow(values: NDArray[Any]) -> Any:
    """Return an Arrow array; strings have 64-bit offsets, because repeated strings may exceed 2 GiB."""
    import pyarrow as pa

    return pa.array(values, type=pa.large_string() if values.dtype.kind == "U" else None)


Policy: TypeAlias = Callable[[Any, np.random.Generator], Any] | ArrayLike


def roll_out(env: Any, policy: Policy, n: int, seed: Seed, max_steps: int) -> tuple[list[list[int]], list[list[int]]]:
    """Return the states and actions of n episodes, numbered from 0; see `Demonstrations.from_rollouts`."""
    check_count(n, "n")
    check_count(max_steps, "max_steps", least=0)
    if isinstance(seed, int | np.integer):
        # The environment is seeded with `seed`; the policy has an independent stream.
        first_seed, rng = check_seed(seed), np.random.default_rng([seed, 1])
    else:
        rng = as_generator(seed)
        first_seed = int(rng.integers(2**31))
    first_state, n_states = _check_discrete(env, "observation")
    first_action, n_actions = _check_discrete(env, "action")
    if callable(policy):
        choose = policy
    else:
        sample = _table_policy(np.asarray(policy), n_states, n_actions)

        def choose(observation: Any, rng: np.random.Generator) -> int:
            return sample(int(observation) - first_state, rng) + first_action

    states: list[list[int]] = []
    actions: list[list[int]] = []
    for episode in range(n):
        # A seed in every reset would repeat the first episode.
        observation, _ = env.reset(seed=first_seed if episode == 0 else None)
        visited, taken = [int(observation) - first_state], list[int]()
        for _ in range(max_steps):
            action = choose(observation, rng)
            observation, _, terminated, truncated, _ = env.step(action)
            visited.append(int(observation) - first_state)
            taken.append(int(action) - first_action)
            if terminated or truncated:
                break
        states.append(visited)
        actions.append(taken)
    return states, actions


def _check_discrete(env: Any, kind: str) -> tuple[int, int]:
    """Return the first element and the size of the discrete observation or action space."""
    try:
        from gymnasium.spaces import Discrete
    except ImportError:
        raise BackendUnavailable("Rollouts require gymnasium. Install it with pip install gymnasium.") from None
    space = getattr(env, f"{kind}_space", None)
    if not isinstance(space, Discrete):
        remedy = f"Wrap the environment in gymnasium.wrappers.Transform{kind.title()}."
        raise InvalidDemos.of("env", space, f"must have a discrete {kind} space", remedy=remedy)
    return int(space.start), int(space.n)


def _table_policy(table: NDArray[Any], n_states: int, n_actions: int) -> Callable[[int, np.random.Generator], int]:
    """Return a function (state, rng) -> action from an array of actions (S,) or of probabilities (S, A)."""
    if table.shape == (n_states,) and table.dtype.kind in "iu":
        check_each((table >= 0) & (table < n_actions), table, "policy", f"must lie in 0..{n_actions - 1}")
        return lambda s, _: int(table[s])
    if table.shape == (n_states, n_actions) and table.dtype.kind in "iuf":
        return _random_policy(table.astype(np.float64))
    rule = f"must be a function, or an array of integers ({n_states},) or probabilities ({n_states}, {n_actions})"
    raise InvalidParameter.of("policy", table.shape, rule)


def _random_policy(table: NDArray[np.float64]) -> Callable[[int, np.random.Generator], int]:
    """Return a function that samples actions from probabilities (S, A); rows of unvisited states may be zero."""
    # NaN fails the first comparison.
    valid = np.all(table >= 0, axis=1) & ((np.abs(table.sum(axis=1) - 1) <= 1e-8) | ~np.any(table, axis=1))
    check_each(valid, table, "policy", "must be nonnegative and sum to 1")
    cumulative = np.cumsum(table, axis=1)
    total = cumulative[:, -1:]
    # The division makes the last entry exactly 1, so that no sample exceeds the last possible action.
    cumulative = np.divide(cumulative, total, out=np.zeros_like(cumulative), where=total > 0)

    def sample(s: int, rng: np.random.Generator) -> int:
        if cumulative[s, -1] == 0:
            raise InvalidParameter(
                f"policy[{s}] must not be all zero, because state {s} is visited.",
                parameter="policy",
                index=s,
            )
        return int(np.searchsorted(cumulative[s], rng.random(), side="right"))

    return sample
