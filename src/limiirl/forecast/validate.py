"""Checks of the arguments of a forecast."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from limiirl._typing import BoolArray, FloatArray, IntArray
from limiirl._validation import as_floats, check_each
from limiirl.demos import Demonstration, Demonstrations, name_demo
from limiirl.errors import InvalidDemos, InvalidParameter
from limiirl.mdp import MDP


def check_partial(given: Any) -> Demonstrations:
    """Convert a `Demonstrations` object, a `Demonstration` or a list of states to partial trips."""
    if isinstance(given, Demonstration):
        return Demonstrations.from_lists([given.states], [given.actions])
    if not isinstance(given, Demonstrations):
        if np.ndim(given) != 1 or np.size(given) == 0:
            raise InvalidDemos.of("partial", given, "must be a Demonstrations object or a non-empty list of states")
        return Demonstrations.from_lists([given])
    if len(given) == 0:
        raise InvalidDemos.of("partial", 0, "must contain at least one trip")
    return given


def check_history(given: Any) -> Demonstrations:
    """Return the history; raise `InvalidDemos` unless it is a `Demonstrations` object."""
    if not isinstance(given, Demonstrations):
        remedy = "Build it with Demonstrations.from_lists."
        raise InvalidDemos.of("history", type(given).__name__, "must be a Demonstrations object", remedy=remedy)
    return given


def check_states(given: ArrayLike, name: str, mdp: MDP, closed: BoolArray | None = None) -> IntArray:
    """Return one or several states as an array (n,); raise if one is invalid or closed."""
    checked = np.atleast_1d(np.asarray(given))
    if checked.ndim != 1 or (checked.size and checked.dtype.kind not in "iu"):
        raise InvalidParameter.of(name, given, "must be an integer or a one-dimensional array of integers")
    check_each((checked >= 0) & (checked < mdp.n_states), checked, name, f"must be a state, 0 to {mdp.n_states - 1}")
    checked = checked.astype(np.int64)
    if closed is not None:
        check_each(~closed[checked], checked, name, "must not be a closed state")
    return checked


def check_state(given: Any, name: str, mdp: MDP, closed: BoolArray | None = None) -> int:
    """Return a single state; raise if it is invalid or closed."""
    checked = check_states(given, name, mdp, closed)
    if checked.size != 1:
        raise InvalidParameter.of(name, given, "must be one state")
    return int(checked[0])


def check_pairs(starts: ArrayLike, goals: ArrayLike, mdp: MDP) -> tuple[IntArray, IntArray]:
    """Return starts (n,) and goals (n,); a single start or goal applies to all pairs."""
    first, last = check_states(starts, "starts", mdp), check_states(goals, "goals", mdp)
    if first.size != last.size and 1 not in (first.size, last.size):
        raise InvalidParameter.of("goals", last.size, f"must have {first.size} entries, one per start")
    n = max(first.size, last.size) if first.size and last.size else 0
    return np.resize(first, n), np.resize(last, n)


def check_starts(starts: IntArray, mdp: MDP, closed: BoolArray) -> None:
    """Raise `InvalidParameter` if p0 is zero in a start state that is not closed."""
    remedy = "Fit with mdp.replace(p0=...), or use DestinationMaxEnt, which ignores p0."
    check_each((mdp.p0[starts] > 0.0) | closed[starts], starts, "starts", "must have p0 > 0", remedy=remedy)


def check_goals(goal: ArrayLike, n: int, mdp: MDP, closed: BoolArray) -> IntArray:
    """Return goals (n,), one per partial trip; a single goal applies to all trips."""
    checked = check_states(goal, "goal", mdp, closed)
    if checked.size not in (1, n):
        raise InvalidParameter.of("goal", checked.size, f"must be one state, or {n} states, one per partial trip")
    return np.resize(checked, n)


def check_open(demos: Demonstrations, closed: BoolArray) -> None:
    """Raise if a partial trip visits a closed state."""
    exists = demos.states < closed.size
    shut = np.flatnonzero(exists & closed[np.where(exists, demos.states, 0)])
    if shut.size:
        i = int(np.searchsorted(demos.offsets, shut[0], side="right")) - 1
        raise InvalidDemos(
            f"{name_demo(demos.ids, i)}, step {shut[0] - demos.offsets[i]}: state {demos.states[shut[0]]} is closed. "
            "Pass partial trips that visit only open states.",
            parameter="partial",
            value=int(demos.states[shut[0]]),
            index=i,
        )


def check_weights(given: ArrayLike | None, n: int) -> FloatArray:
    """Validate the numbers of trips (n,) per pair; the default is 1."""
    if given is None:
        return np.ones(n)
    checked = as_floats(given, "weights")
    if checked.shape != (n,):
        raise InvalidParameter.of("weights", checked.shape, f"must have shape ({n},), one per pair of start and goal")
    check_each(np.isfinite(checked) & (checked >= 0.0), checked, "weights", "must be finite and nonnegative")
    return checked


def check_intents(given: ArrayLike, n: int, n_intents: int) -> FloatArray:
    """Validate intent probabilities (n, K); a single row (K,) applies to all trips."""
    checked = as_floats(given, "intents")
    if checked.shape not in ((n_intents,), (n, n_intents)):
        raise InvalidParameter.of("intents", checked.shape, f"must have shape ({n_intents},) or ({n}, {n_intents})")
    checked = np.broadcast_to(checked, (n, n_intents))
    if not np.all(checked >= 0.0) or not np.allclose(checked.sum(axis=1), 1.0, rtol=0.0, atol=1e-8):
        raise InvalidParameter.of("intents", given, "must be nonnegative with rows that sum to 1")
    return checked


def check_prior(given: ArrayLike, n: int) -> FloatArray:
    """Normalise weights (G,) to a distribution over candidate destinations."""
    checked = as_floats(given, "prior")
    if checked.shape != (n,):
        raise InvalidParameter.of("prior", checked.shape, f"must have shape ({n},), one per candidate")
    if not np.all(np.isfinite(checked) & (checked >= 0.0)) or checked.sum() == 0.0:
        raise InvalidParameter.of("prior", given, "must be finite and nonnegative with a positive sum")
    return np.asarray(checked / checked.sum())


def log(values: Any) -> FloatArray:
    """Return the natural logarithm, -inf at 0, without a warning."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(values))
