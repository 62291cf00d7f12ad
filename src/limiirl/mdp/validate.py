"""Validation of the arrays of an MDP."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl._typing import BoolArray, FloatArray
from limiirl._validation import as_floats, check_each, check_memory, is_collection, to_array
from limiirl.errors import InvalidMDP, InvalidParameter
from limiirl.kernels.graph import descents, pair_index
from limiirl.mdp.features import FeatureMatrix, GoalFeature, first_nonfinite

# Tolerance for sums of probabilities. It accepts float32 tables that were normalised in double precision.
TOLERANCE = 1e-8
LARGEST_INDEX = int(np.iinfo(np.int32).max)
# Memory of the pointers, the start distribution, the mask of terminal states and one feature.
_BYTES_PER_STATE = 48


def as_indices(values: ArrayLike, name: str) -> NDArray[np.int64]:
    """Return a one-dimensional int64 array; raise `InvalidMDP` if `values` are not integers, unless they are empty."""
    try:
        array = to_array(values, name)
    except InvalidParameter as error:
        raise InvalidMDP(str(error), parameter=name) from None
    if array.ndim != 1:
        raise InvalidMDP.of(name, array.shape, "must be one-dimensional", remedy="Flatten it.")
    if array.size and array.dtype.kind not in "iu":
        raise InvalidMDP.of(name, array.dtype, "must contain integers", remedy="Convert it with .astype(int).")
    return array.astype(np.int64, copy=False)


def check_gamma(gamma: Any) -> float:
    """Return the discount as a float in (0, 1]."""
    try:
        value = float(gamma)
    except (TypeError, ValueError):
        value = float("nan")
    if not 0.0 < value <= 1.0:
        raise InvalidMDP.of("gamma", gamma, "must lie in (0, 1]", remedy="Use 1.0 for no discounting.")
    return value


def check_p0(p0: ArrayLike, n_states: int) -> FloatArray:
    """Return the start distribution (S,) after checking its length, signs and sum."""
    array = as_floats(p0, "p0", error=InvalidMDP)
    if array.shape != (n_states,):
        rule, remedy = f"must have shape ({n_states},)", "Use 0 for states in which no trajectory starts."
        raise InvalidMDP.of("p0", array.shape, rule, remedy=remedy)
    wrong = np.flatnonzero(~(array >= 0) | np.isinf(array))
    if wrong.size:
        state = int(wrong[0])
        raise InvalidMDP.of("p0", float(array[state]), "must be finite and nonnegative", index=state)
    total = float(array.sum())
    if abs(total - 1.0) > TOLERANCE:
        raise InvalidMDP.of("p0", total, "must sum to 1", remedy="Divide it by its sum.")
    return array


def as_terminal_mask(terminal: ArrayLike, n_states: int) -> BoolArray:
    """Return a boolean mask (S,) from a mask or from an array of state indices."""
    try:
        array = to_array(terminal, "terminal")
    except InvalidParameter as error:
        raise InvalidMDP(str(error), parameter="terminal") from None
    if array.dtype == np.bool_:
        if array.shape != (n_states,):
            rule, remedy = f"must have shape ({n_states},)", "Pass a mask over all states, or integer state indices."
            raise InvalidMDP.of("terminal", array.shape, rule, remedy=remedy)
        return array
    states = as_indices(array, "terminal")
    remedy = "Integers are state indices; pass a boolean array for a mask."
    outside = np.flatnonzero((states < 0) | (states >= n_states))
    if outside.size:
        entry = int(outside[0])
        rule = f"must lie in 0..{n_states - 1}"
        raise InvalidMDP.of("terminal", int(states[entry]), rule, index=entry, remedy=remedy)
    values, counts = np.unique(states, return_counts=True)
    if counts.size and counts.max() > 1:
        # Probably a mask of integers 0 and 1, which would be interpreted as the states 0 and 1.
        raise InvalidMDP.of("terminal", int(values[counts.argmax()]), "must not repeat a state", remedy=remedy)
    mask = np.zeros(n_states, dtype=np.bool_)
    mask[states] = True
    return mask


def check_n_states(n_states: int) -> int:
    """Return the number of states after checking that it is positive and fits the index type."""
    if not isinstance(n_states, int | np.integer) or isinstance(n_states, bool):
        raise InvalidMDP.of("n_states", n_states, "must be an integer")
    if not 1 <= n_states <= LARGEST_INDEX:
        raise InvalidMDP.of("n_states", n_states, f"must lie in 1..{LARGEST_INDEX}", remedy="Pass n_states or an edge.")
    try:
        check_memory(
            _BYTES_PER_STATE * int(n_states), "n_states", int(n_states), "Number the states from 0 without gaps."
        )
    except InvalidParameter as error:
        raise InvalidMDP(str(error), parameter="n_states", value=int(n_states)) from None
    return int(n_states)


def check_edge_indices(
    src: NDArray[np.integer], act: NDArray[np.integer], dst: NDArray[np.integer], n_states: int
) -> None:
    """Check that the columns of an edge list have equal lengths and valid state and action indices."""
    sizes = (src.size, act.size, dst.size)
    if len(set(sizes)) > 1:
        raise InvalidMDP.of("src", sizes, "must have the same length as action and dst")
    for values, name, bound in ((src, "src", n_states), (dst, "dst", n_states), (act, "action", LARGEST_INDEX)):
        wrong = np.flatnonzero((values < 0) | (values >= bound))
        if wrong.size:
            edge = int(wrong[0])
            remedy = "Number actions from 0." if name == "action" else "Correct it, or pass a larger n_states."
            raise InvalidMDP.of(name, int(values[edge]), f"must lie in 0..{bound - 1}", index=edge, remedy=remedy)


def check_probabilities(prob: FloatArray, n_edges: int, *, limit: float = 1.0) -> None:
    """Check that every edge has a probability in [0, limit]."""
    if prob.shape != (n_edges,):
        raise InvalidMDP.of("prob", prob.shape, f"must have one entry per edge, shape ({n_edges},)")
    check_entries(prob, "prob", limit)


def check_entries(prob: FloatArray, name: str, limit: float) -> None:
    """Check that every entry of an array lies in [0, limit]."""
    wrong = ~((prob >= 0) & (prob <= limit + TOLERANCE)) | np.isinf(prob)
    if wrong.any():
        index = tuple(int(i) for i in np.argwhere(wrong)[0])
        value = float(prob[index])
        remedy = "Pass normalise=True if these are counts." if 1 < value < np.inf else ""
        position = index if len(index) > 1 else index[0]
        raise InvalidMDP.of(name, value, "must be a probability in [0, 1]", index=position, remedy=remedy)


def check_canonical_edges(
    src: NDArray[np.int32], act: NDArray[np.int32], dst: NDArray[np.int32], prob: FloatArray, terminal: BoolArray
) -> None:
    """Check the ranges, order and row sums of edges, and that exactly the terminal states have no outgoing edge."""
    check_edge_indices(src, act, dst, terminal.size)
    check_probabilities(prob, src.size)
    same = (src[1:] == src[:-1]) & (act[1:] == act[:-1]) & (dst[1:] == dst[:-1])
    wrong = np.flatnonzero(descents(src, act, dst) | same)
    if wrong.size:
        edge = int(wrong[0]) + 1
        rule = f"must follow edge {edge - 1} in the order (src, act, dst), without duplicates"
        remedy = "Use MDP.from_edges, which sorts the edges."
        raise InvalidMDP.of("src", (int(src[edge]), int(act[edge]), int(dst[edge])), rule, index=edge, remedy=remedy)
    zero = np.flatnonzero(prob == 0)
    if zero.size:
        remedy = "Drop the edge, or use MDP.from_edges, which drops it."
        raise InvalidMDP.of("prob", 0.0, "must be positive", index=int(zero[0]), remedy=remedy)
    check_row_sums(src, act, prob)
    leaving = np.flatnonzero(terminal[src])
    if leaving.size:
        edge = int(leaving[0])
        raise InvalidMDP(
            f"terminal states must have no outgoing edge; edge {edge} leaves state {int(src[edge])}. "
            "Use MDP.from_edges, which drops such edges, or remove the state from terminal.",
            parameter="terminal",
            value=int(src[edge]),
            index=edge,
        )
    dead = np.flatnonzero(~terminal & (np.bincount(src, minlength=terminal.size) == 0))
    if dead.size:
        message = (
            f"terminal must include every state without an outgoing edge; state {dead[0]} (one of {dead.size}) is "
            "missing. Mark it as terminal, or add an outgoing edge."
        )
        raise InvalidMDP(message, parameter="terminal", value=int(dead[0]))


def check_history(history: ArrayLike, n_states: int) -> NDArray[np.int32]:
    """Return the original states (S, m) of each state after checking that only previous states are absent."""
    array = np.asarray(history)
    if array.ndim != 2 or array.shape[0] != n_states or array.shape[1] < 1 or array.dtype.kind not in "iu":
        rule = f"must be an integer array of shape ({n_states}, m) with m of at least 1"
        raise InvalidMDP.of("history", array.shape, rule, remedy="Create it with with_history.")
    least = np.where(np.arange(array.shape[1]) == 0, 0, -1)
    valid = (array >= least) & (array <= LARGEST_INDEX)
    check_each(valid, array, "history", "must be a state, or -1 for an absent state", error=InvalidMDP)
    return array.astype(np.int32)


def check_environment(
    environment: ArrayLike, p0: FloatArray, src: NDArray[np.int32], dst: NDArray[np.int32]
) -> NDArray[np.int32]:
    """Return the environments (S,) of states after checking that they are separate and that each has start states."""
    labels = as_indices(environment, "environment")
    if labels.shape != p0.shape or np.any((labels < 0) | (labels >= p0.size)):
        rule = f"must be {p0.size} integers from 0 on, one per state"
        raise InvalidMDP.of("environment", labels.shape, rule, remedy="Create it with combine_environments.")
    leaving = np.flatnonzero(labels[src] != labels[dst])
    if leaving.size:
        edge = int(leaving[0])
        rule = f"must be the same at both ends of an edge (edge {edge})"
        raise InvalidMDP.of("environment", (int(labels[src[edge]]), int(labels[dst[edge]])), rule, index=edge)
    empty = np.flatnonzero(np.bincount(labels, weights=p0) == 0.0)
    if empty.size:
        rule = f"must be positive for a state of environment {empty[0]}"
        raise InvalidMDP.of("p0", 0.0, rule, remedy="Every environment needs a start state.")
    return labels.astype(np.int32)


def check_row_sums(src: NDArray[np.integer], act: NDArray[np.integer], prob: FloatArray) -> None:
    """Check that the probabilities of the sorted edges sum to one for each (s, a) pair."""
    pair = pair_index(src, act)
    sums = np.bincount(pair, weights=prob)
    wrong = np.flatnonzero(np.abs(sums - 1.0) > TOLERANCE)
    if wrong.size:
        edge = int(np.searchsorted(pair, wrong[0]))
        index = (int(src[edge]), int(act[edge]))
        raise InvalidMDP(
            f"T rows must sum to 1; state {index[0]}, action {index[1]} sums to {sums[wrong[0]]:.10g}. "
            "Pass normalise=True to rescale.",
            parameter="prob",
            value=float(sums[wrong[0]]),
            index=index,
        )


def check_feature_rows(features: FeatureMatrix, rows: int, name: str, *, remedy: str = "") -> None:
    """Check that a feature matrix has `rows` finite rows."""
    if features.shape[0] != rows:
        raise InvalidMDP.of(name, features.shape, f"must have {rows} rows", remedy=remedy)
    bad = first_nonfinite(features)
    if bad is not None:
        raise InvalidMDP.of(name, bad[2], "must be finite", index=bad[:2])


def as_tuple(values: Iterable[str] | None, name: str) -> tuple[str, ...]:
    """Return names as a tuple, or () if `values` is None; raise `InvalidMDP` for a single string."""
    if isinstance(values, str):
        raise InvalidMDP.of(name, values, "must be a sequence of strings", remedy="Put it in a list.")
    if values is not None and not is_collection(values):
        raise InvalidMDP.of(name, values, "must be a sequence of strings")
    return () if values is None else tuple(values)


def check_names(values: Iterable[str], count: int, name: str, unit: str) -> tuple[str, ...]:
    """Return names as a tuple after checking that they are `count` strings."""
    names = as_tuple(values, name)
    if len(names) != count:
        raise InvalidMDP.of(name, len(names), f"must have one entry per {unit}, {count} in total")
    for position, value in enumerate(names):
        if not isinstance(value, str):
            raise InvalidMDP.of(name, value, "must be a string", index=position)
    if unit != "feature" and len(set(names)) < len(names):  # demonstrations are matched by name
        position = next(i for i, value in enumerate(names) if value in names[:i])
        remedy = f"Name each {unit} differently."
        raise InvalidMDP.of(name, names[position], "must not repeat a name", index=position, remedy=remedy)
    return tuple(str(value) for value in names)


def check_goal_features(given: Any, n_states: int, n_edges: int) -> tuple[GoalFeature, ...]:
    """Return goal features as a tuple after checking their types, shapes and conditions."""
    features = tuple(given)
    for i, feature in enumerate(features):
        if not isinstance(feature, GoalFeature):
            raise InvalidMDP.of("goal_features", type(feature).__name__, "must be GoalFeature objects", index=i)
        size = n_states if feature.of == "state" else n_edges
        if feature.values.shape[1] != size:
            rule = f"must have {size} columns, one per {feature.of}"
            raise InvalidMDP.of("goal_features", feature.values.shape, rule, index=i)
        ends = np.concatenate([feature.goals, () if feature.starts is None else feature.starts])
        if np.any(ends >= n_states):
            rule = f"must have conditions on states from 0 to {n_states - 1}"
            raise InvalidMDP.of("goal_features", int(ends.max()), rule, index=i)
    return features
