"""Checks of the arguments of a forecast."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from limiirl._typing import BoolArray, FloatArray, IntArray
from limiirl.demos import Demonstration, Demonstrations, name_demo
from limiirl.errors import InvalidDemos, InvalidParameter
from limiirl.mdp import MDP


def partials(given: Any) -> Demonstrations:
    """Return partial trips, at least one, from Demonstrations, a Demonstration, or a list of states."""
    if isinstance(given, Demonstration):
        return Demonstrations.from_lists([given.states], [given.actions])
    if not isinstance(given, Demonstrations):
        if np.ndim(given) != 1 or np.size(given) == 0:
            raise InvalidDemos.of("partial", given, "must be Demonstrations or a list of at least one state")
        return Demonstrations.from_lists([given])
    if len(given) == 0:
        raise InvalidDemos.of("partial", 0, "must hold at least one trip")
    return given


def history(given: Any) -> Demonstrations:
    """Return a driver's earlier trips."""
    if not isinstance(given, Demonstrations):
        remedy = "Build them with Demonstrations.from_lists."
        raise InvalidDemos.of("history", type(given).__name__, "must be Demonstrations", remedy=remedy)
    return given


def states(given: ArrayLike, name: str, mdp: MDP, closed: BoolArray | None = None) -> IntArray:
    """Return states (n,) that exist and are open, from one or several."""
    checked = np.atleast_1d(np.asarray(given))
    if checked.ndim != 1 or (checked.size and checked.dtype.kind not in "iu"):
        raise InvalidParameter.of(name, given, "must be a state or a vector of states (integers)")
    outside = (checked < 0) | (checked >= mdp.n_states)
    if np.any(outside):
        i = int(np.argmax(outside))
        raise InvalidParameter.of(name, int(checked[i]), f"must be a state, 0 to {mdp.n_states - 1}", index=i)
    checked = checked.astype(np.int64)
    if closed is not None and np.any(closed[checked]):
        i = int(np.argmax(closed[checked]))
        raise InvalidParameter.of(name, int(checked[i]), "must not be a closed state", index=i)
    return checked


def one_state(given: Any, name: str, mdp: MDP, closed: BoolArray | None = None) -> int:
    """Return one open state."""
    checked = states(given, name, mdp, closed)
    if checked.size != 1:
        raise InvalidParameter.of(name, given, "must be one state")
    return int(checked[0])


def pairs(starts: ArrayLike, goals: ArrayLike, mdp: MDP) -> tuple[IntArray, IntArray]:
    """Return starts and goals (n,) each; a single one is repeated."""
    first, last = states(starts, "starts", mdp), states(goals, "goals", mdp)
    if first.size != last.size and 1 not in (first.size, last.size):
        raise InvalidParameter.of("goals", last.size, f"must have {first.size} entries, one per start")
    n = max(first.size, last.size) if first.size and last.size else 0
    return np.resize(first, n), np.resize(last, n)


def check_starts(starts: IntArray, mdp: MDP, closed: BoolArray) -> None:
    """Check that trips of the model may begin in the open ones of the states."""
    impossible = (mdp.p0[starts] == 0.0) & ~closed[starts]
    if np.any(impossible):
        i = int(np.argmax(impossible))
        raise InvalidParameter.of(
            "starts",
            int(starts[i]),
            "must have p0 above 0",
            index=i,
            remedy="Fit with mdp.replace(p0=...), or use DestinationMaxEnt, which ignores p0.",
        )


def goals_of(goal: ArrayLike, n: int, mdp: MDP, closed: BoolArray) -> IntArray:
    """Return one goal per partial trip (n,), from one for all or one each."""
    checked = states(goal, "goal", mdp, closed)
    if checked.size not in (1, n):
        raise InvalidParameter.of("goal", checked.size, f"must be one state, or {n} states, one per partial trip")
    return np.resize(checked, n)


def open_trips(demos: Demonstrations, closed: BoolArray) -> None:
    """Check that no partial trip passes a closed state."""
    exists = demos.states < closed.size
    shut = np.flatnonzero(exists & closed[np.where(exists, demos.states, 0)])
    if shut.size:
        i = int(np.searchsorted(demos.offsets, shut[0], side="right")) - 1
        raise InvalidDemos(
            f"{name_demo(demos.ids, i)}, step {shut[0] - demos.offsets[i]}: state {demos.states[shut[0]]} is closed. "
            "A partial trip must be possible in the changed MDP.",
            parameter="partial",
            value=int(demos.states[shut[0]]),
            index=i,
        )


def weights(given: ArrayLike | None, n: int) -> FloatArray:
    """Return the number of trips (n,) per pair, nonnegative; 1 by default."""
    if given is None:
        return np.ones(n)
    checked = np.asarray(given, dtype=np.float64)
    if checked.shape != (n,):
        raise InvalidParameter.of("weights", checked.shape, f"must have shape ({n},), one per pair of start and goal")
    wrong = ~(np.isfinite(checked) & (checked >= 0.0))
    if np.any(wrong):
        i = int(np.argmax(wrong))
        raise InvalidParameter.of("weights", float(checked[i]), "must be finite and nonnegative", index=i)
    return checked


def intents(given: ArrayLike, n: int, n_intents: int) -> FloatArray:
    """Return probabilities of intents (n, K), from one row for all or one row each."""
    checked = np.asarray(given, dtype=np.float64)
    if checked.shape not in ((n_intents,), (n, n_intents)):
        raise InvalidParameter.of("intents", checked.shape, f"must have shape ({n_intents},) or ({n}, {n_intents})")
    checked = np.broadcast_to(checked, (n, n_intents))
    if not np.all(checked >= 0.0) or not np.allclose(checked.sum(axis=1), 1.0, rtol=0.0, atol=1e-8):
        raise InvalidParameter.of("intents", given, "must be nonnegative with rows that sum to 1")
    return checked


def prior(given: ArrayLike, n: int) -> FloatArray:
    """Return a distribution (G,) over candidate destinations, from unnormalised weights."""
    checked = np.asarray(given, dtype=np.float64)
    if checked.shape != (n,):
        raise InvalidParameter.of("prior", checked.shape, f"must have shape ({n},), one per candidate")
    if not np.all(np.isfinite(checked) & (checked >= 0.0)) or checked.sum() == 0.0:
        raise InvalidParameter.of("prior", given, "must be finite and nonnegative with a positive sum")
    return np.asarray(checked / checked.sum())


def log(values: Any) -> FloatArray:
    """Return the logarithm; -inf of 0, without a warning."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(values))
