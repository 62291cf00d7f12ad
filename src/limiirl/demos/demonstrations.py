"""`Demonstrations`: recorded trajectories in flat, read-only arrays."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl._typing import Seed
from limiirl._validation import check_count, is_collection, to_array
from limiirl.demos import io
from limiirl.demos.names import renumber_by_name, with_common_names
from limiirl.demos.transitions import Steps, StepsCache, feature_counts, log_path_mass
from limiirl.demos.validate import (
    NOT_RECORDED,
    as_actions,
    as_array,
    as_attribute,
    as_indices,
    as_names,
    as_offsets,
    as_readonly,
    as_step_times,
    locate,
    name_step,
)
from limiirl.errors import InvalidDemos, InvalidFile, InvalidParameter
from limiirl.mdp import MDP, encode, is_text, name_of

if TYPE_CHECKING:
    from limiirl.mdp import MDP

Subset: TypeAlias = slice | Sequence[int] | Sequence[bool] | NDArray[np.integer] | NDArray[np.bool_]

_ATTRIBUTES = ("groups", "labels", "ids")
_ARRAYS = ("states", "offsets", "actions", "times", *_ATTRIBUTES)


@dataclass(frozen=True, eq=False)
class Demonstration:
    """One demonstration, as returned by `demos[i]`.

    Attributes
    ----------
    states : (T,) int64
        States, T >= 1.
    actions : (T - 1,) int64
        Actions between the states; -1 if not recorded.
    group, label, id
        Entries of `Demonstrations.groups`, `labels` and `ids`, or None.

    Examples
    --------
    >>> import limiirl.demos
    >>> demo = limiirl.demos.Demonstrations.from_lists([[0, 1, 2]], [[5, 6]], labels=["direct"])[0]
    >>> len(demo), demo.states.tolist(), demo.actions.tolist(), demo.label
    (3, [0, 1, 2], [5, 6], 'direct')
    """

    states: NDArray[np.int64]
    actions: NDArray[np.int64]
    group: Any = None
    label: Any = None
    id: Any = None

    def __len__(self) -> int:
        return self.states.size

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Demonstration):
            return NotImplemented
        return (
            np.array_equal(self.states, other.states)
            and np.array_equal(self.actions, other.actions)
            and (self.group, self.label, self.id) == (other.group, other.label, other.id)
        )

    def __hash__(self) -> int:
        return hash(self.states.tobytes())


def as_index_array(index: Subset, n: int) -> NDArray[np.int64]:
    """Return the indices in 0..n - 1 that a slice, a mask or indices select."""
    if isinstance(index, slice):
        return np.arange(n)[index]
    array = to_array(index, "index")
    if array.ndim != 1:
        raise InvalidParameter.of("index", array.shape, "must be a one-dimensional mask or integer array")
    if array.dtype.kind == "b":
        if array.size != n:
            raise InvalidParameter.of("index", array.size, f"must have {n} entries if it is a mask")
        return np.flatnonzero(array)
    if array.size == 0:
        return np.empty(0, dtype=np.int64)
    if array.dtype.kind not in "iu":
        raise InvalidParameter.of("index", array.dtype, "must contain booleans or integers")
    outside = (array >= n) | (array < -n)
    if np.any(outside):
        raise IndexError(f"index {array[np.argmax(outside)]} is out of range for {n} demonstrations")
    return array.astype(np.int64) % n


def concatenate_attribute(name: str, parts: Sequence[NDArray[Any] | None]) -> NDArray[Any] | None:
    """Concatenate the groups, labels or ids of several sets; raise if only some sets have them, or if dtypes differ."""
    present = [part for part in parts if part is not None]
    if not present:
        return None
    drop = f"demos.replace({name}=None)"
    if len(present) < len(parts):
        absent = next(i for i, part in enumerate(parts) if part is None)
        having = next(i for i, part in enumerate(parts) if part is not None)
        message = (
            f"Either all or none of the parts must have {name}; parts[{having}] has {name}, but parts[{absent}] does "
            f"not. Set {name} on every part, or drop {name} with {drop}."
        )
        raise InvalidDemos(message, parameter=name, index=absent)
    for i, part in enumerate(present):
        # np.concatenate would convert numbers to strings.
        if part.dtype.kind != present[0].dtype.kind:
            rule = f"must have the same dtype in all parts ({present[0].dtype} in part 0)"
            remedy = f"Convert {name}, or drop {name} with {drop}."
            raise InvalidDemos.of(name, part.dtype, rule, index=i, remedy=remedy)
    return np.concatenate(present)


def concatenate_times(parts: Sequence[Demonstrations]) -> NDArray[Any] | None:
    """Concatenate the times of several sets; step numbers are used for sets without times."""
    if all(part.times is None for part in parts):
        return None
    times = [step_times(part) for part in parts]
    if all(values.dtype.kind in "iuf" for values in times):
        return np.concatenate(times)
    return concatenate_attribute("times", times)


def step_times(demos: Demonstrations) -> NDArray[Any]:
    """Return the times (n,) of steps, or step numbers if the demonstrations have no times."""
    if demos.times is not None:
        return demos.times
    return np.arange(demos.n_steps) - np.repeat(demos.offsets[:-1], demos.lengths)


def cut(demos: Demonstrations, max_steps: int) -> Demonstrations:
    """Return pieces of demonstrations; see `Demonstrations.cut`."""
    check_count(max_steps, "max_steps")
    max_steps = min(max_steps, demos.n_steps + 1)
    n_moves = demos.lengths - 1
    n_pieces = np.maximum(1, -(-n_moves // max_steps))
    recording = np.repeat(np.arange(len(demos)), n_pieces)
    piece = np.arange(recording.size) - np.repeat(np.cumsum(n_pieces) - n_pieces, n_pieces)
    first, last = (number * n_moves[recording] // n_pieces[recording] for number in (piece, piece + 1))
    lengths = last - first + 1
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    rows = np.arange(offsets[-1]) + np.repeat(demos.offsets[recording] + first - offsets[:-1], lengths)
    actions = None
    if demos.actions is not None:
        actions = demos.actions[rows]
        actions[offsets[1:] - 1] = NOT_RECORDED
    names = np.arange(len(demos)) if demos.ids is None else demos.ids
    given = {"groups": names if demos.groups is None else demos.groups, "labels": demos.labels, "ids": names}
    return demos.replace(
        states=demos.states[rows],
        offsets=offsets,
        actions=actions,
        times=step_times(demos)[rows],
        **{name: None if values is None else values[recording] for name, values in given.items()},
    )


def same_arrays(one: NDArray[Any] | None, other: NDArray[Any] | None) -> bool:
    """Return True if two optional arrays have the same kind of dtype and the same content."""
    if one is None or other is None:
        return one is other
    return one.dtype.kind == other.dtype.kind and np.array_equal(one, other)


def as_list(values: Iterable[Any], name: str) -> list[Any]:
    """Return an iterable of sequences, one per demonstration, as a list."""
    if not is_collection(values):
        raise InvalidDemos.of(name, values, "must be a list of lists, one per demonstration")
    return list(values)


def flatten(sequences: Sequence[object], name: str) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the concatenation of sequences, with an inferred dtype, and their lengths."""
    try:
        lengths = np.fromiter(map(len, sequences), dtype=np.int64)  # type: ignore[arg-type]
    except TypeError:
        i = next(i for i, x in enumerate(sequences) if not isinstance(x, Sized) or getattr(x, "ndim", 1) == 0)
        raise InvalidDemos.of(name, sequences[i], "must be a sequence", index=i) from None
    if len(sequences) == 0:
        return np.empty(0, dtype=np.int64), lengths
    masked = next((i for i, x in enumerate(sequences) if np.ma.is_masked(x)), None)
    if masked is not None:
        raise InvalidDemos.of(name, sequences[masked], "must not have masked entries", index=masked)
    try:
        if all(isinstance(x, np.ndarray) for x in sequences):
            return np.concatenate(sequences), lengths  # type: ignore[arg-type]
        values: list[object] = list(chain.from_iterable(sequences))  # type: ignore[arg-type]
        array = np.array(values)
        if array.dtype.kind not in "iuf" or any(isinstance(x, bool) for x in values):
            # Keep objects, because NumPy converts booleans to numbers, and numbers to strings if one value is a string.
            array = np.array(values, dtype=object)
        return array, lengths
    except ValueError as error:
        message = f"{name} must be a list of one-dimensional lists, one per demonstration ({error})."
        raise InvalidDemos(message, parameter=name) from None


def as_numbers(
    flat: NDArray[Any], kind: str, names: Sequence[str] | None, offsets: NDArray[np.int64]
) -> tuple[NDArray[Any], Sequence[str] | None]:
    """Convert states or actions (`kind` is "state" or "action") from text to indices; return the indices and names."""
    if not is_text(flat):
        return flat, names
    absent = flat == NOT_RECORDED if kind == "action" and flat.dtype.kind == "O" else np.zeros(flat.size, np.bool_)
    numbers, named = encode(flat, absent, as_names(names, f"{kind}_names", None))
    wrong = numbers < NOT_RECORDED
    if np.any(wrong):
        values = flat.tolist()
        if not all(isinstance(values[i], str) for i in np.flatnonzero(wrong)):
            return flat, names  # the constructor rejects a mixture of numbers and text
        i = int(np.argmax(wrong))
        value, index = values[i], locate(offsets, i)
        message = (
            f"{name_step(None, index)}: {kind} {value!r} is not one of the {kind}_names. Correct it, or omit "
            f"{kind}_names."
        )
        raise InvalidDemos(message, parameter=f"{kind}s", value=value, index=index)
    return numbers, named


def align_actions(
    actions: Sequence[object], offsets: NDArray[np.int64], names: Sequence[str] | None = None
) -> tuple[NDArray[np.int64], Sequence[str] | None]:
    """Return actions (n,) aligned with the states, -1 if unrecorded or in a last state, and the action names."""
    n = offsets.size - 1
    if len(actions) != n:
        rule = f"must have one entry per demonstration ({n} in total)"
        remedy = "Use None for a demonstration without recorded actions."
        raise InvalidDemos.of("actions", len(actions), rule, remedy=remedy)
    missing = np.fromiter((x is None for x in actions), dtype=np.bool_, count=n)
    empty = np.empty(0, dtype=np.int64)
    flat, lengths = flatten([empty if x is None else x for x in actions], "actions")
    n_states = np.diff(offsets)
    wrong = (lengths != n_states - 1) & ~missing
    if np.any(wrong):
        demo = int(np.argmax(wrong))
        rule = f"must have length {n_states[demo] - 1}, one less than the number of states"
        remedy = "Drop the action in the last state, or add the state that it led to."
        raise InvalidDemos.of("actions", int(lengths[demo]), rule, index=demo, remedy=remedy)
    recorded = np.repeat(~missing, n_states)
    recorded[offsets[1:] - 1] = False
    aligned = np.full(recorded.size, NOT_RECORDED, dtype=np.int64)
    own = np.concatenate([[0], np.cumsum(lengths)])
    numbers, named = as_numbers(flat, "action", names, own)
    aligned[recorded] = as_indices(numbers, "action", NOT_RECORDED, own)
    return aligned, named


def summarise(demos: Demonstrations) -> str:
    """Return the text of `repr(demos)`."""
    lines = [f"Demonstrations: {format_count(len(demos), 'demonstration')}, {format_count(demos.n_steps, 'step')}"]
    if len(demos) > 0:
        lengths, states = demos.lengths, demos.states
        lines.append(f"  lengths   {lengths.min()} to {lengths.max()}, median {np.median(lengths):g}")
        extent = f"{name_of(demos.state_names, states.min())} to {name_of(demos.state_names, states.max())}"
        lines.append(f"  states    {_count_distinct(states)} distinct, {extent}")
        lines.append(f"  actions   {_describe_actions(demos)}")
    for name in ("groups", "labels"):
        values = getattr(demos, name)
        if values is not None:
            lines.append(f"  {name:<9} {np.unique(values).size} distinct")
    return "\n".join(lines)


def _describe_actions(demos: Demonstrations) -> str:
    if demos.actions is None:
        return "not recorded"
    recorded = demos.actions[demos.actions >= 0]
    extent = (
        "recorded" if recorded.size == demos.n_transitions else f"{recorded.size} of {demos.n_transitions} recorded"
    )
    return f"{extent}, {_count_distinct(recorded)} distinct"


def _count_distinct(indices: NDArray[np.int64]) -> int:
    """Return the number of distinct indices; sort them only if the largest index is large."""
    if indices.max() > 10 * indices.size + 1000:
        return int(np.unique(indices).size)
    seen = np.zeros(int(indices.max()) + 1, dtype=np.bool_)
    seen[indices] = True
    return int(np.count_nonzero(seen))


def format_count(n: int, noun: str) -> str:
    """Return a number with a singular or plural noun."""
    return f"{n:,} {noun}" + ("" if n == 1 else "s")


@dataclass(frozen=True, eq=False, repr=False)
class Demonstrations:
    """N demonstrated trajectories, concatenated in flat arrays.

    Build them with `from_lists`, `from_frame`, `from_parquet` or `from_rollouts`. Arrays are read-only, and equality
    compares content. `demos[3]` is one `Demonstration`; slices, masks and index arrays select several, and `+`
    concatenates.

    Attributes
    ----------
    states : (n,) int64
        States of all demonstrations.
    offsets : (N + 1,) int64
        Demonstration i is states[offsets[i]:offsets[i + 1]], with at least one state.
    actions : (n,) int64 or None
        Action taken in each state; -1 if the action is not recorded, and in the last state of a demonstration. None if
        no action is recorded.
    groups, labels, ids : (N,) or None
        Group (driver, animal, recording), true intent and identifier of each demonstration: integers, floats, booleans
        or strings.
    state_names, action_names : tuple of str, or None
        Name of each state and action. States and actions given as text are numbered in sorted order of their names. If
        the MDP has names too, demonstrations are matched to it by name; see `renumber`.
    times : (n,) or None
        Time of each step, as recorded: numbers, dates or text. None for the step numbers 0, 1, ...

    Examples
    --------
    >>> demos = Demonstrations.from_lists([[0, 1, 2], [0, 2]], actions=[[0, 0], [1]], groups=["ann", "bob"])
    >>> demos
    Demonstrations: 2 demonstrations, 5 steps
      lengths   2 to 3, median 2.5
      states    3 distinct, 0 to 2
      actions   recorded, 2 distinct
      groups    2 distinct
    >>> demos.states.tolist(), demos.actions.tolist(), demos.offsets.tolist()
    ([0, 1, 2, 0, 2], [0, 0, -1, 1, -1], [0, 3, 5])
    >>> (demos + demos[:1]).lengths.tolist()
    [3, 2, 3]
    """

    states: NDArray[np.int64]
    offsets: NDArray[np.int64]
    actions: NDArray[np.int64] | None = None
    groups: NDArray[Any] | None = None
    labels: NDArray[Any] | None = None
    ids: NDArray[Any] | None = None
    state_names: tuple[str, ...] | None = None
    action_names: tuple[str, ...] | None = None
    times: NDArray[Any] | None = None

    def __post_init__(self) -> None:
        states = np.atleast_1d(as_array(self.states, "states"))
        offsets = as_offsets(self.offsets, len(states))
        n = offsets.size - 1
        ids = as_attribute(self.ids, "ids", n)
        arrays = {
            "states": as_indices(states, "state", 0, offsets, ids),
            "offsets": offsets,
            "actions": as_actions(self.actions, offsets, ids),
            "groups": as_attribute(self.groups, "groups", n),
            "labels": as_attribute(self.labels, "labels", n),
            "ids": ids,
            "times": as_step_times(self.times, len(states)),
        }
        for name, numbers in (("state_names", arrays["states"]), ("action_names", arrays["actions"])):
            object.__setattr__(self, name, as_names(getattr(self, name), name, numbers))
        for name, array in arrays.items():
            object.__setattr__(self, name, None if array is None else as_readonly(array))
        # The cache is not a dataclass field, so that it is neither compared nor copied.
        object.__setattr__(self, "_steps", StepsCache())

    @classmethod
    def from_lists(
        cls,
        states: Iterable[Sequence[int] | Sequence[str] | NDArray[Any]],
        actions: Iterable[Sequence[int] | Sequence[str] | NDArray[Any] | None] | None = None,
        *,
        groups: ArrayLike | None = None,
        labels: ArrayLike | None = None,
        state_names: Sequence[str] | None = None,
        action_names: Sequence[str] | None = None,
    ) -> Demonstrations:
        """Build demonstrations from one list of states per demonstration.

        Parameters
        ----------
        states : N sequences of integers or strings
            States of each demonstration, including the first and the last.
        actions : N sequences of integers or strings, optional
            Actions between the states, so that a demonstration of T states has T - 1 actions. Use -1 for an unrecorded
            action, and None for a demonstration without recorded actions. An unrecorded action is inferred if only one
            action leads from the state to its successor; otherwise models sum over the possible edges.
        groups, labels : (N,), optional
        state_names, action_names : sequence of str, optional
            Names in the order of the indices. For states or actions given as text, the default is the sorted names that
            occur.

        Examples
        --------
        >>> demos = Demonstrations.from_lists([["den", "pond"], ["pond", "nest", "den"]])
        >>> demos.states.tolist(), demos.state_names
        ([0, 2, 2, 1, 0], ('den', 'nest', 'pond'))
        >>> Demonstrations.from_lists([[0, 1, 2], [0, 1]], actions=[[0, 0], [0, 1]])
        Traceback (most recent call last):
        limiirl.errors.InvalidDemos: actions[1] must have length 1, one less than the number of states; got 2. Drop ...
        """
        flat, lengths = flatten(as_list(states, "states"), "states")
        offsets = as_offsets(np.concatenate([[0], np.cumsum(lengths)]), int(lengths.sum()))
        numbers, named = as_numbers(flat, "state", state_names, offsets)
        aligned, named_actions = None, action_names
        if actions is not None:
            aligned, named_actions = align_actions(as_list(actions, "actions"), offsets, action_names)
        return cls(numbers, offsets, aligned, groups, labels, None, named, named_actions)  # type: ignore[arg-type]

    @classmethod
    def from_frame(cls, df: object, columns: Mapping[str, str] | None = None) -> Demonstrations:
        """Build demonstrations from a table with one row per step, in any order; see `limiirl.mdp.read_frame`.

        Parameters
        ----------
        df : pandas or polars DataFrame, pyarrow Table, or mapping of columns
            Columns demo (identifier), t (sort key) and state (number or text); optionally action (number or text;
            ignored in the last row of a demonstration), group and label (constant within a demonstration).
        columns : mapping, optional
            Names of columns that differ from the default, such as {"demo": "mouse+bout", "state": "place"}. The
            identifier "mouse+bout" joins two columns.

        Examples
        --------
        >>> import pandas as pd
        >>> df = pd.DataFrame({"demo": ["x", "x", "y"], "t": [1, 0, 0], "state": [5, 4, 4]})
        >>> demos = Demonstrations.from_frame(df)
        >>> demos.ids.tolist(), [demo.states.tolist() for demo in demos]
        (['x', 'y'], [[4, 5], [4]])
        """
        from limiirl.mdp import read_frame

        return cls(**read_frame(df, columns)._asdict())

    @classmethod
    def from_parquet(cls, path: str | os.PathLike[str]) -> Demonstrations:
        """Read a file written by `to_parquet`; use `from_file` for other tables.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "demos.parquet"
        >>> demos = Demonstrations.from_lists([[0, 1, 2], [0, 2]], labels=[0, 1])
        >>> demos.to_parquet(path)
        >>> Demonstrations.from_parquet(path) == demos
        True
        """
        content = io.read_parquet(path)
        try:
            return cls(**content)
        except InvalidDemos as error:
            raise InvalidFile.at(path, f"is invalid: {error}") from None

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], columns: Mapping[str, str] | None = None) -> Demonstrations:
        r"""Read a parquet file written by `to_parquet`, or a parquet or CSV file with the columns of `from_frame`.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "visits.csv"
        >>> _ = path.write_text("animal,session,minute,place\na,1,0,den\na,1,5,pond\nb,1,0,pond\n")
        >>> columns = {"demo": "animal+session", "t": "minute", "state": "place", "group": "animal"}
        >>> demos = Demonstrations.from_file(path, columns)
        >>> demos.ids.tolist(), demos.groups.tolist(), demos.state_names
        (['a/1', 'b/1'], ['a', 'b'], ('den', 'pond'))
        """
        table = io.read_table(path, columns)
        if table is None:
            return cls.from_parquet(path)
        try:
            return cls.from_frame(table, columns)
        except InvalidDemos as error:
            raise InvalidFile.at(path, f"is invalid: {error}") from None

    @classmethod
    def from_rollouts(
        cls, env: Any, policy: io.Policy, n: int, seed: Seed = 0, *, max_steps: int = 1000
    ) -> Demonstrations:
        """Record n episodes of a policy in a Gymnasium environment with discrete observations and actions.

        Parameters
        ----------
        env : gymnasium.Env
            Gymnasium 1.0 or later. States and actions are numbered from 0, even if the spaces start at another integer.
        policy : callable, (S, A) array or (S,) array
            A function policy(observation, rng) -> action, an array of action probabilities (S, A), or an array of one
            action per state (S,).
        n : int
            Number of episodes.
        seed : int, Generator or None
            Seed of the environment and of the policy.
        max_steps : int
            Maximum number of actions per episode.

        Examples
        --------
        >>> import gymnasium
        >>> lake = gymnasium.make("FrozenLake-v1", is_slippery=False)
        >>> demos = Demonstrations.from_rollouts(lake, lambda observation, rng: int(rng.integers(4)), n=20, seed=1)
        >>> len(demos), set(demos.start_states.tolist())
        (20, {0})
        """
        states, actions = io.roll_out(env, policy, n, seed, max_steps)
        return cls.from_lists(states, actions)

    @classmethod
    def concat(cls, parts: Sequence[Demonstrations]) -> Demonstrations:
        """Concatenate several sets; each of groups, labels and ids must be present in all sets or in none."""
        empty = np.empty(0, dtype=np.int64)  # np.concatenate requires at least one array
        parts = with_common_names(parts)
        lengths = np.concatenate([empty, *(part.lengths for part in parts)])
        actions = (np.full(x.n_steps, NOT_RECORDED) if x.actions is None else x.actions for x in parts)
        return cls(
            states=np.concatenate([empty, *(part.states for part in parts)]),
            offsets=np.concatenate([[0], np.cumsum(lengths)]),
            actions=np.concatenate([empty, *actions]),
            **{name: concatenate_attribute(name, [getattr(part, name) for part in parts]) for name in _ATTRIBUTES},
            state_names=parts[0].state_names if parts else None,
            action_names=parts[0].action_names if parts else None,
            times=concatenate_times(parts),
        )

    def __add__(self, other: Demonstrations) -> Demonstrations:
        if not isinstance(other, Demonstrations):
            return NotImplemented
        return Demonstrations.concat([self, other])

    def replace(self, **changes: Any) -> Demonstrations:
        """Return a validated copy with some fields changed."""
        names = [field.name for field in fields(self)]
        unknown = sorted(changes.keys() - names)
        if unknown:
            message = f"Demonstrations have no field {unknown[0]!r}. Choose from {', '.join(names)}."
            raise InvalidDemos(message, parameter=unknown[0], value=changes[unknown[0]])
        return replace(self, **changes)

    def to_parquet(self, path: str | os.PathLike[str]) -> None:
        """Write a parquet file with one row per step and the columns of `from_frame`, atomically and without loss."""
        io.write_parquet(self, path)

    def __len__(self) -> int:
        return self.offsets.size - 1

    def __iter__(self) -> Iterator[Demonstration]:
        return (self[i] for i in range(len(self)))

    @overload
    def __getitem__(self, index: int) -> Demonstration: ...
    @overload
    def __getitem__(self, index: Subset) -> Demonstrations: ...
    def __getitem__(self, index: int | Subset) -> Demonstration | Demonstrations:
        if not isinstance(index, int | np.integer):
            return self.subset(index)
        i = int(as_index_array([int(index)], len(self))[0])
        start, stop = int(self.offsets[i]), int(self.offsets[i + 1])
        unknown = np.full(stop - start - 1, NOT_RECORDED, dtype=np.int64)
        actions = unknown if self.actions is None else self.actions[start : stop - 1]
        attributes = (None if x is None else x[i].item() for x in (self.groups, self.labels, self.ids))
        return Demonstration(self.states[start:stop], actions, *attributes)

    def subset(self, index: Subset) -> Demonstrations:
        """Select demonstrations by a slice, a boolean mask (N,), or indices, which may repeat.

        Examples
        --------
        >>> demos = Demonstrations.from_lists([[0, 1], [2], [3, 4, 5]], labels=[0, 1, 0])
        >>> demos.subset(demos.labels == 0).states.tolist()
        [0, 1, 3, 4, 5]
        >>> demos[::-1].lengths.tolist(), demos[[2, 2]].lengths.tolist()
        ([3, 1, 2], [3, 3])
        """
        selected = as_index_array(index, len(self))
        lengths = self.lengths[selected]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        rows = np.arange(offsets[-1]) + np.repeat(self.offsets[selected] - offsets[:-1], lengths)
        attributes = {name: getattr(self, name) for name in _ATTRIBUTES}
        return Demonstrations(
            states=self.states[rows],
            offsets=offsets,
            actions=None if self.actions is None else self.actions[rows],
            **{name: None if values is None else values[selected] for name, values in attributes.items()},
            state_names=self.state_names,
            action_names=self.action_names,
            times=None if self.times is None else self.times[rows],
        )

    def cut(self, max_steps: int) -> Demonstrations:
        """Cut long recordings into pieces of nearly equal length with at most `max_steps` transitions.

        Consecutive pieces share a state, so that each transition is in one piece. Pieces keep the group, label, id and
        times of their recording. If the recordings have no groups, each recording becomes a group.

        Examples
        --------
        >>> pieces = Demonstrations.from_lists([[0, 1, 2, 3, 4, 5], [6, 7]]).cut(2)
        >>> [piece.states.tolist() for piece in pieces], pieces.groups.tolist()
        ([[0, 1], [1, 2, 3], [3, 4, 5], [6, 7]], [0, 0, 0, 1])
        >>> pieces.times.tolist()
        [0, 1, 1, 2, 3, 3, 4, 5, 0, 1]
        """
        return cut(self, check_count(max_steps, "max_steps"))

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of states of each demonstration, (N,)."""
        return np.diff(self.offsets)

    @property
    def n_steps(self) -> int:
        """Total number of states, including last states."""
        return self.states.size

    @property
    def n_transitions(self) -> int:
        """Total number of transitions, n_steps - N."""
        return self.n_steps - len(self)

    @property
    def start_states(self) -> NDArray[np.int64]:
        """First state of each demonstration, (N,)."""
        return self.states[self.offsets[:-1]]

    @property
    def last_states(self) -> NDArray[np.int64]:
        """Last state of each demonstration, (N,)."""
        return self.states[self.offsets[1:] - 1]

    def steps(self, mdp: MDP) -> Steps:
        """Return the edge of every transition in `mdp`, cached per MDP; raise `InvalidDemos` if one is impossible.

        Demonstrations with names must be numbered as in the MDP; see `renumber`.

        Examples
        --------
        >>> from limiirl.mdp import MDP
        >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2], n_states=3)
        >>> Demonstrations.from_lists([[0, 1, 2], [0, 2]]).steps(mdp).edge.tolist()
        [0, 2, 1]
        >>> Demonstrations.from_lists([[0, 1, 2], [0, 1, 0]]).steps(mdp)
        Traceback (most recent call last):
        limiirl.errors.InvalidDemos: demonstration 1, step 1: no action leads from state 1 to state 0 (successors: 2)...
        """
        cache: StepsCache = self.__dict__["_steps"]
        return cache.steps(self, mdp)

    def renumber(self, mdp: MDP) -> Demonstrations:
        """Number states and actions by name as in `mdp`, and return the renumbered demonstrations.

        Models and mixtures call this method. Demonstrations without names are returned unchanged.

        Examples
        --------
        >>> from limiirl.mdp import MDP
        >>> mdp = MDP.from_edges([0], [1], state_names=["pond", "den"])
        >>> demos = Demonstrations.from_lists([["pond", "den"]])
        >>> demos.states.tolist(), demos.renumber(mdp).states.tolist()
        ([1, 0], [0, 1])
        >>> Demonstrations.from_lists([["pond", "nest"]]).renumber(mdp)
        Traceback (most recent call last):
        limiirl.errors.InvalidDemos: demonstration 0, step 1: state 'nest' is not one of the 2 states of the MDP...
        """
        if isinstance(mdp, MDP) and self.state_names == mdp.state_names and self.action_names == mdp.action_names:
            return self
        return renumber_by_name(self, mdp)

    def features(self, mdp: MDP) -> NDArray[np.float64]:
        """Return the discounted feature counts of every demonstration.

        F = sum_t gamma^t phi(s_t) over all states, including the last, plus the sum over the transitions of
        gamma^t (phi(s_t, a_t) + phi(s_t, a_t, s_{t+1})); columns are state, action and edge features.

        Returns
        -------
        (N, d) float64

        Examples
        --------
        >>> import numpy as np
        >>> from limiirl.mdp import MDP
        >>> mdp = MDP.from_edges([0, 1], [1, 2], n_states=3, gamma=0.5, state_features=np.eye(3))
        >>> Demonstrations.from_lists([[0, 1, 2], [1, 2]]).features(mdp).tolist()
        [[1.0, 0.5, 0.25], [0.0, 1.0, 0.5]]
        """
        return feature_counts(self.renumber(mdp), mdp)

    def log_q(self, mdp: MDP) -> NDArray[np.float64]:
        """Return log q(tau) = log p0(s_1) + sum_t log P(s_{t+1} | s_t, a_t), the part of log p that is free of rewards.

        For an unrecorded action, the probabilities of all edges between the two states are summed. If several actions
        connect the states, the sum may exceed 1.

        Returns
        -------
        (N,) float64

        Examples
        --------
        >>> from limiirl.mdp import MDP
        >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2], action=[0, 0, 0], prob=[0.25, 0.75, 1], p0=[0.5, 0.5, 0])
        >>> Demonstrations.from_lists([[0, 1, 2], [1, 2]]).log_q(mdp).round(4).tolist()
        [-2.0794, -0.6931]
        """
        return log_path_mass(self.renumber(mdp), mdp)

    def __repr__(self) -> str:
        return summarise(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Demonstrations):
            return NotImplemented
        if (self.state_names, self.action_names) != (other.state_names, other.action_names):
            return False
        return all(same_arrays(getattr(self, name), getattr(other, name)) for name in _ARRAYS)

    def __hash__(self) -> int:
        return hash((len(self), self.states[:1000].tobytes()))

    def __reduce__(self) -> tuple[Any, ...]:
        # The constructor makes the arrays read-only; the cache of steps cannot be pickled.
        return type(self), tuple(getattr(self, x.name) for x in fields(self))
