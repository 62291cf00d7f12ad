"""Checks of the arrays of an MDP."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl._typing import BoolArray, FloatArray
from limiirl.errors import InvalidMDP
from limiirl.mdp.features import FeatureMatrix, as_floats, first_nonfinite
from limiirl.mdp.indexing import descents, pair_index

# Sums of probabilities may miss 1 by this much: enough for float32 tables divided by their sums in double precision,
# too little for a forgotten outcome.
TOLERANCE = 1e-8
LARGEST_INDEX = int(np.iinfo(np.int32).max)


def as_indices(values: ArrayLike, name: str) -> NDArray[np.int64]:
    """Return a one-dimensional array of integers; anything else is an error (an empty list is an empty array)."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise InvalidMDP(
            f"{name} must be one-dimensional; it has shape {array.shape}. Flatten it.",
            parameter=name,
            value=array.shape,
        )
    if array.size and array.dtype.kind not in "iu":
        raise InvalidMDP(
            f"{name} must hold integers; its dtype is {array.dtype}. Convert it with .astype(int).",
            parameter=name,
            value=array.dtype,
        )
    return array.astype(np.int64, copy=False)


def check_gamma(gamma: Any) -> float:
    """Return the discount as a float in (0, 1]."""
    try:
        value = float(gamma)
    except (TypeError, ValueError):
        value = float("nan")
    if not 0.0 < value <= 1.0:
        raise InvalidMDP(
            f"The discount must lie in (0, 1]; gamma is {gamma!r}. Use 1.0 for no discounting.",
            parameter="gamma",
            value=gamma,
        )
    return value


def check_p0(p0: ArrayLike, n_states: int) -> FloatArray:
    """Return the start distribution (S,) after checking its length, signs and sum."""
    array = as_floats(p0, "p0")
    if array.shape != (n_states,):
        raise InvalidMDP(
            f"p0 must have one entry per state, shape ({n_states},); it has shape {array.shape}. "
            "Give 0 to states where no trajectory starts.",
            parameter="p0",
            value=array.shape,
        )
    wrong = np.flatnonzero(~(array >= 0) | np.isinf(array))
    if wrong.size:
        state = int(wrong[0])
        raise InvalidMDP(
            f"p0 must be finite and not negative; state {state} has {array[state]}. "
            "Replace that entry, then divide by the sum.",
            parameter="p0",
            value=float(array[state]),
            index=state,
        )
    total = float(array.sum())
    if abs(total - 1.0) > TOLERANCE:
        raise InvalidMDP(
            f"p0 must sum to 1; it sums to {total:.10g} over {n_states} states. Divide it by its sum.",
            parameter="p0",
            value=total,
        )
    return array


def as_terminal_mask(terminal: ArrayLike, n_states: int) -> BoolArray:
    """Return a boolean mask (S,) from a mask or from an array of state indices."""
    array = np.asarray(terminal)
    if array.dtype == np.bool_:
        if array.shape != (n_states,):
            raise InvalidMDP(
                f"terminal must have one entry per state, shape ({n_states},); the mask has shape {array.shape}. "
                "Give a mask over all states, or an integer array of the terminal states.",
                parameter="terminal",
                value=array.shape,
            )
        return array
    chosen = as_indices(array, "terminal")
    outside = np.flatnonzero((chosen < 0) | (chosen >= n_states))
    if outside.size:
        raise InvalidMDP(
            f"terminal states must lie in 0..{n_states - 1}; entry {int(outside[0])} is {int(chosen[outside[0]])}. "
            "Integers are read as state indices: remove it, or pass a boolean mask.",
            parameter="terminal",
            value=int(chosen[outside[0]]),
            index=int(outside[0]),
        )
    values, counts = np.unique(chosen, return_counts=True)
    if counts.size and counts.max() > 1:
        # A mask written as 0/1 integers would otherwise be read, silently, as the states 0 and 1.
        state, times = int(values[counts.argmax()]), int(counts.max())
        raise InvalidMDP(
            f"terminal must name a state once; it names state {state} {times} times. Integers are read as "
            "state indices: name each state once, or pass a boolean mask.",
            parameter="terminal",
            value=state,
        )
    mask = np.zeros(n_states, dtype=np.bool_)
    mask[chosen] = True
    return mask


def check_n_states(n_states: int) -> int:
    """Return the number of states after checking that there are some and that they fit the index type."""
    if not isinstance(n_states, int | np.integer) or isinstance(n_states, bool):
        raise InvalidMDP(
            f"n_states must be an integer; it is {n_states!r}. Pass the number of states.",
            parameter="n_states",
            value=n_states,
        )
    if not 1 <= n_states <= LARGEST_INDEX:
        raise InvalidMDP(
            f"An MDP needs 1 to {LARGEST_INDEX} states; n_states is {n_states}. Pass n_states, or an edge.",
            parameter="n_states",
            value=n_states,
        )
    return int(n_states)


def check_edge_indices(
    src: NDArray[np.integer], act: NDArray[np.integer], dst: NDArray[np.integer], n_states: int
) -> None:
    """Check that the columns of an edge list have one length and point at states and actions that can exist."""
    if not src.size == act.size == dst.size:
        raise InvalidMDP(
            f"Edges need one source, action and target each; src has {src.size}, action {act.size} and dst {dst.size} "
            "entries. Give arrays of one length.",
            parameter="src",
            value=(src.size, act.size, dst.size),
        )
    for values, name, bound in ((src, "src", n_states), (dst, "dst", n_states), (act, "action", LARGEST_INDEX)):
        wrong = np.flatnonzero((values < 0) | (values >= bound))
        if wrong.size:
            edge = int(wrong[0])
            remedy = "Correct it, or pass a larger n_states." if name != "action" else "Number actions from 0."
            raise InvalidMDP(
                f"{name} must lie in 0..{bound - 1}; edge {edge} has {int(values[edge])}. {remedy}",
                parameter=name,
                value=int(values[edge]),
                index=edge,
            )


def check_probabilities(prob: FloatArray, n_edges: int, *, limit: float = 1.0) -> None:
    """Check that every edge has a probability in [0, limit]."""
    if prob.shape != (n_edges,):
        raise InvalidMDP(
            f"prob must have one entry per edge, shape ({n_edges},); it has shape {prob.shape}. "
            "Give arrays of one length.",
            parameter="prob",
            value=prob.shape,
        )
    wrong = np.flatnonzero(~((prob >= 0) & (prob <= limit + TOLERANCE)) | np.isinf(prob))
    if wrong.size:
        edge = int(wrong[0])
        raise InvalidMDP(
            probability_message(f"edge {edge}", float(prob[edge])),
            parameter="prob",
            value=float(prob[edge]),
            index=edge,
        )


def probability_message(where: str, value: float) -> str:
    """Return the message for an entry that is no probability."""
    remedy = "Pass normalise=True if these are counts." if value > 1 and np.isfinite(value) else "Correct that entry."
    return f"Probabilities must lie in [0, 1]; {where} has {value}. {remedy}"


def check_canonical_edges(
    src: NDArray[np.int32], act: NDArray[np.int32], dst: NDArray[np.int32], prob: FloatArray, terminal: BoolArray
) -> None:
    """Check the canonical edge arrays of an MDP: ranges, order, sums over (s, a), and the states without an edge."""
    check_edge_indices(src, act, dst, terminal.size)
    check_probabilities(prob, src.size)
    same = (src[1:] == src[:-1]) & (act[1:] == act[:-1]) & (dst[1:] == dst[:-1])
    wrong = np.flatnonzero(descents(src, act, dst) | same)
    if wrong.size:
        raise InvalidMDP(
            f"Edges must be sorted by (src, act, dst) without duplicates; edge {int(wrong[0]) + 1} breaks the order. "
            "Build the MDP with MDP.from_edges, which sorts them.",
            parameter="src",
            index=int(wrong[0]) + 1,
        )
    zero = np.flatnonzero(prob == 0)
    if zero.size:
        raise InvalidMDP(
            f"A stored edge needs a positive probability; edge {int(zero[0])} has 0. "
            "Leave it out, or build the MDP with MDP.from_edges, which drops it.",
            parameter="prob",
            value=0.0,
            index=int(zero[0]),
        )
    check_row_sums(src, act, prob)
    leaving = np.flatnonzero(terminal[src])
    if leaving.size:
        edge = int(leaving[0])
        raise InvalidMDP(
            f"A terminal state has no outgoing edge; edge {edge} leaves state {int(src[edge])}. "
            "Build the MDP with MDP.from_edges, which drops such edges, or take the state out of terminal.",
            parameter="terminal",
            value=int(src[edge]),
            index=edge,
        )
    dead = np.flatnonzero(~terminal & (np.bincount(src, minlength=terminal.size) == 0))
    if dead.size:
        raise InvalidMDP(
            f"A state that is not terminal needs an outgoing edge; state {int(dead[0])} has none ({dead.size} in all). "
            "Add it to terminal, or give it an edge.",
            parameter="terminal",
            value=int(dead[0]),
        )


def check_row_sums(src: NDArray[np.integer], act: NDArray[np.integer], prob: FloatArray) -> None:
    """Check that the probabilities of each (s, a) pair of the sorted edges sum to one."""
    pair = pair_index(src, act)
    sums = np.bincount(pair, weights=prob)
    wrong = np.flatnonzero(np.abs(sums - 1.0) > TOLERANCE)
    if wrong.size:
        edge = int(np.searchsorted(pair, wrong[0]))
        raise InvalidMDP(
            f"T rows must sum to 1; state {int(src[edge])}, action {int(act[edge])} sums to {sums[wrong[0]]:.10g}. "
            "Pass normalise=True to rescale.",
            parameter="prob",
            value=float(sums[wrong[0]]),
            index=(int(src[edge]), int(act[edge])),
        )


def check_feature_rows(
    features: FeatureMatrix,
    rows: int,
    name: str,
    place: Callable[[int], str],
    *,
    remedy: str = "Give one row for each.",
) -> None:
    """Check that a feature matrix has `rows` finite rows; `place` says in words what a row belongs to."""
    if features.shape[0] != rows:
        raise InvalidMDP(
            f"{name} must have {rows} rows; it has {features.shape[0]}. {remedy}", parameter=name, value=features.shape
        )
    bad = first_nonfinite(features)
    if bad is not None:
        row, column, value = bad
        raise InvalidMDP(
            f"{name} must be finite; {place(row)}, column {column} is {value}. Replace it by a number.",
            parameter=name,
            value=value,
            index=(row, column),
        )


def as_tuple(values: Iterable[str] | None, name: str) -> tuple[str, ...]:
    """Return names as a tuple; None gives (), and a lone string, which would fall apart into letters, is an error."""
    if isinstance(values, str):
        raise InvalidMDP(
            f"{name} must be a sequence of strings; got the string {values!r}. Put it in a list.",
            parameter=name,
            value=values,
        )
    return () if values is None else tuple(values)


def check_names(values: Iterable[str], count: int, name: str, unit: str) -> tuple[str, ...]:
    """Return a tuple of `count` strings."""
    result = as_tuple(values, name)
    if len(result) != count:
        raise InvalidMDP(
            f"{name} must have one entry a {unit}, {count}; it has {len(result)}. Give one name for each, in order.",
            parameter=name,
            value=len(result),
        )
    for position, value in enumerate(result):
        if not isinstance(value, str):
            raise InvalidMDP(
                f"{name} must be strings; entry {position} is {value!r}. Convert it with str().",
                parameter=name,
                value=value,
                index=position,
            )
    return tuple(str(value) for value in result)
