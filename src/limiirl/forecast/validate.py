"""Checks of what a forecast is asked for, and the small changes of form that go with them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from limiirl._typing import BoolArray, FloatArray, IntArray
from limiirl.demos import Demonstration, Demonstrations, name_demo
from limiirl.errors import InvalidDemos, InvalidParameter
from limiirl.mdp import MDP


def partials(given: Any) -> Demonstrations:
    """Return partial trips as demonstrations, at least one, from those, from one of them, or from a list of states.

    Examples
    --------
    >>> partials([4, 5]).states.tolist(), len(partials([4, 5]))
    ([4, 5], 1)
    """
    if isinstance(given, Demonstration):
        return Demonstrations.from_lists([given.states], [given.actions])
    if not isinstance(given, Demonstrations):
        if np.ndim(given) != 1 or np.size(given) == 0:
            raise InvalidDemos(
                f"A partial trip must be a list of states, at least one, or Demonstrations; it is {given!r}.",
                parameter="partial",
                value=given,
            )
        return Demonstrations.from_lists([given])
    if len(given) == 0:
        raise InvalidDemos("A forecast needs at least one partial trip; there are none.", parameter="partial", value=0)
    return given


def history(given: Any) -> Demonstrations:
    """Return a driver's earlier trips."""
    if not isinstance(given, Demonstrations):
        raise InvalidDemos(
            f"history must be Demonstrations, a driver's earlier trips; it is a {type(given).__name__}. "
            "Build them with Demonstrations.from_lists.",
            parameter="history",
        )
    return given


def states(given: ArrayLike, name: str, mdp: MDP, closed: BoolArray | None = None) -> IntArray:
    """Return numbers of states (n,) that exist and are open, from one or several.

    Examples
    --------
    >>> states(1, "goal", MDP.from_edges([0], [1]))
    array([1])
    """
    found = np.atleast_1d(np.asarray(given))
    if found.ndim != 1 or (found.size and found.dtype.kind not in "iu"):
        raise InvalidParameter(
            f"{name} must be a state or a row of states, whole numbers; it is {given!r}.", parameter=name
        )
    outside = (found < 0) | (found >= mdp.n_states)
    if np.any(outside):
        i = int(np.argmax(outside))
        place = f"{name}[{i}]" if found.size > 1 else name
        raise InvalidParameter(
            f"{place} must be a state, 0 to {mdp.n_states - 1}; it is {found[i]}.",
            parameter=name,
            value=int(found[i]),
            index=i,
        )
    found = found.astype(np.int64)
    if closed is not None and np.any(closed[found]):
        i = int(np.argmax(closed[found]))
        place = f"{name}[{i}]" if found.size > 1 else name
        raise InvalidParameter(
            f"{place} is state {found[i]}, which is closed. Choose another.",
            parameter=name,
            value=int(found[i]),
            index=i,
        )
    return found


def one_state(given: Any, name: str, mdp: MDP, closed: BoolArray | None = None) -> int:
    """Return the number of one state that is open."""
    found = states(given, name, mdp, closed)
    if found.size != 1:
        raise InvalidParameter(f"{name} must be one state; {found.size} are given.", parameter=name)
    return int(found[0])


def pairs(starts: ArrayLike, goals: ArrayLike, mdp: MDP) -> tuple[IntArray, IntArray]:
    """Return starts and goals (n,) each; one of either goes with all of the other."""
    first, last = states(starts, "starts", mdp), states(goals, "goals", mdp)
    if first.size != last.size and 1 not in (first.size, last.size):
        raise InvalidParameter(
            f"There must be a goal for each start; there are {first.size} and {last.size}.",
            parameter="goals",
            value=last.size,
        )
    n = max(first.size, last.size) if first.size and last.size else 0
    return np.resize(first, n), np.resize(last, n)


def beginnings(starts: IntArray, mdp: MDP, closed: BoolArray) -> None:
    """Check that the model lets trips begin in those of the states that are open."""
    never = (mdp.p0[starts] == 0.0) & ~closed[starts]
    if np.any(never):
        state = starts[int(np.argmax(never))]
        raise InvalidParameter(
            f"starts must be states in which trips of the model begin; p0 of state {state} is 0. "
            "Fit with mdp.replace(p0=...) that gives it a share, or use DestinationMaxEnt, which has no p0.",
            parameter="starts",
        )


def goals_of(goal: ArrayLike, n: int, mdp: MDP, closed: BoolArray) -> IntArray:
    """Return a goal for each of n partial trips, from one for all or one each."""
    found = states(goal, "goal", mdp, closed)
    if found.size not in (1, n):
        raise InvalidParameter(
            f"There must be one goal for all, or one for each of {n} partial trips; got {found.size}.",
            parameter="goal",
            value=found.size,
        )
    return np.resize(found, n)


def open_trips(demos: Demonstrations, closed: BoolArray) -> None:
    """Check that no partial trip passes a closed state."""
    known = demos.states < closed.size
    shut = np.flatnonzero(known & closed[np.where(known, demos.states, 0)])
    if shut.size:
        i = int(np.searchsorted(demos.offsets, shut[0], side="right")) - 1
        raise InvalidDemos(
            f"{name_demo(demos.ids, i)}, step {shut[0] - demos.offsets[i]}: state {demos.states[shut[0]]} is closed. "
            "A forecast in the changed world needs a trip that is possible there.",
            parameter="partial",
            value=int(demos.states[shut[0]]),
            index=i,
        )


def weights(given: ArrayLike | None, n: int) -> FloatArray:
    """Return the trips (n,) of each pair, not negative; 1 by default."""
    if given is None:
        return np.ones(n)
    found = np.asarray(given, dtype=np.float64)
    if found.shape != (n,):
        raise InvalidParameter(
            f"weights must have shape ({n},), one a pair of start and goal; got {found.shape}.", parameter="weights"
        )
    wrong = ~(np.isfinite(found) & (found >= 0.0))
    if np.any(wrong):
        i = int(np.argmax(wrong))
        raise InvalidParameter(
            f"weights must be finite and not negative; weights[{i}] is {found[i]}.",
            parameter="weights",
            value=float(found[i]),
            index=i,
        )
    return found


def shares(given: ArrayLike, n: int, n_intents: int) -> FloatArray:
    """Return probabilities of intents (n, K), from one row for all or a row each."""
    found = np.asarray(given, dtype=np.float64)
    if found.shape not in ((n_intents,), (n, n_intents)):
        raise InvalidParameter(
            f"intents must have shape ({n_intents},) or ({n}, {n_intents}); got {found.shape}.", parameter="intents"
        )
    found = np.broadcast_to(found, (n, n_intents))
    if not np.all(found >= 0.0) or not np.allclose(found.sum(axis=1), 1.0, rtol=0.0, atol=1e-8):
        raise InvalidParameter("intents must be probabilities, not negative, each row with sum 1.", parameter="intents")
    return found


def prior(given: ArrayLike, n: int) -> FloatArray:
    """Return a distribution (G,) over candidate destinations, from weights that need not sum to 1."""
    found = np.asarray(given, dtype=np.float64)
    if found.shape != (n,):
        raise InvalidParameter(f"prior must have shape ({n},), one a candidate; got {found.shape}.", parameter="prior")
    if not np.all(np.isfinite(found) & (found >= 0.0)) or found.sum() == 0.0:
        raise InvalidParameter(
            "prior must be finite and not negative, and not zero for all candidates.", parameter="prior"
        )
    return np.asarray(found / found.sum())


def log(values: Any) -> FloatArray:
    """Return the logarithm, -inf of 0.

    Examples
    --------
    >>> log([0.0, 1.0])
    array([-inf,   0.])
    """
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(values))
