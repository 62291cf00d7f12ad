"""Checks of a model's arguments against the MDP and the demonstrations."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from limiirl._typing import FloatArray
from limiirl.demos import Demonstrations, Groups, name_demo
from limiirl.errors import ConvergenceWarning, IdentifiabilityWarning, InvalidDemos, InvalidParameter
from limiirl.irl.base import FitResult
from limiirl.irl.identifiability import describe
from limiirl.irl.optim.projected_newton import Box
from limiirl.mdp import MDP


def max_length(value: object) -> float:
    """Return a largest length: an integer of at least 1, or inf."""
    if isinstance(value, int | np.integer) and not isinstance(value, bool) and value >= 1:
        return int(value)
    if isinstance(value, float | np.floating) and (value == math.inf or (value >= 1 and float(value).is_integer())):
        return math.inf if value == math.inf else int(value)
    raise InvalidParameter(
        f"max_length must be a whole number of states, at least 1, or inf, or None for the longest demonstration; "
        f"it is {value!r}.",
        parameter="max_length",
        value=value,
    )


def box(bounds: Any, names: Sequence[str]) -> Box:
    """Return bounds on d named parameters from a pair, a (d, 2) array, or None."""
    d = len(names)
    if bounds is None:
        return Box(np.full(d, -np.inf), np.full(d, np.inf))
    try:
        given = np.asarray(bounds, dtype=np.float64)
    except (TypeError, ValueError):
        given = np.empty(0)
    if given.shape == (2,):
        given = np.tile(given, (d, 1))
    if given.shape != (d, 2):
        raise InvalidParameter(
            f"bounds must be (low, high), an array of shape ({d}, 2), or None; it is {bounds!r}.",
            parameter="bounds",
            value=bounds,
        )
    wrong = ~(given[:, 0] < given[:, 1])
    if np.any(wrong):
        j = int(np.argmax(wrong))
        raise InvalidParameter(
            f"bounds must have low < high; feature {j} ({names[j]}) has {given[j, 0]} and {given[j, 1]}. "
            "Swap or widen them.",
            parameter="bounds",
            value=bounds,
        )
    return Box(given[:, 0].copy(), given[:, 1].copy())


def at_bound(theta: FloatArray, bounds: Any, mdp: MDP) -> tuple[str, ...]:
    """Return the names of the features whose parameter lies on a bound."""
    limits = box(bounds, mdp.feature_names)
    on = (theta <= limits.lower) | (theta >= limits.upper)
    return tuple(name for name, held in zip(mdp.feature_names, on, strict=True) if held)


def weights(given: ArrayLike | None, demos: Demonstrations, *, columns: bool) -> FloatArray:
    """Return weights as (N, K), nonnegative, finite, no column all zero, from (N, K) or (N,); None is all ones."""
    n, one = len(demos), Groups.for_demos(None, demos).noun[:-1]
    if given is None:
        return np.ones((n, 1))
    try:
        checked = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidParameter(f"weights must be an array of numbers ({error}).", parameter="weights") from None
    if checked.ndim != 1 + columns or checked.shape[0] != n:
        wanted = f"({n}, K), a row for each {one}" if columns else f"({n},), one for each {one}"
        raise InvalidParameter(f"weights must have the shape {wanted}; it is {checked.shape}.", parameter="weights")
    checked = checked.reshape(n, -1)
    bad = ~(np.isfinite(checked) & (checked >= 0))
    if np.any(bad):
        i, k = np.argwhere(bad)[0]
        raise InvalidParameter(
            f"weights must be finite and not negative; {one} {i}, column {k} has {checked[i, k]}.", parameter="weights"
        )
    empty = checked.sum(axis=0) == 0
    if np.any(empty):
        where = f"those of column {int(np.argmax(empty))} are. Leave that intent out." if columns else "they are."
        raise InvalidParameter(f"weights must not all be zero; {where}", parameter="weights")
    return checked


def demonstrations(demos: Demonstrations) -> Demonstrations:
    """Return demonstrations to fit to: at least one."""
    _is_demonstrations(demos)
    if len(demos) == 0:
        raise InvalidDemos(
            "A fit needs at least one demonstration; there are none. Check the filter or the file they came from.",
            parameter="demos",
        )
    return demos


def _is_demonstrations(demos: object) -> None:
    if not isinstance(demos, Demonstrations):
        raise InvalidDemos(
            f"demos must be Demonstrations; it is a {type(demos).__name__}. Build them with Demonstrations.from_lists.",
            parameter="demos",
        )


def mdp(given: object) -> None:
    """Check that an MDP is one."""
    if not isinstance(given, MDP):
        raise InvalidParameter(
            f"mdp must be an MDP; it is a {type(given).__name__}. Build one with MDP.from_edges.", parameter="mdp"
        )


def one_theta(mdp: MDP, theta: ArrayLike) -> FloatArray:
    """Return one parameter vector (d,)."""
    checked: FloatArray = mdp.check_thetas(theta)
    if checked.shape[0] != 1:
        raise InvalidParameter(
            f"One parameter vector is wanted here; there are {checked.shape[0]}. Call it for each.", parameter="theta"
        )
    return np.asarray(checked[0])


def state(mdp: MDP, value: object, name: str) -> int:
    """Return the number of a state."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or not 0 <= value < mdp.n_states:  # type: ignore[operator]
        raise InvalidParameter(
            f"{name} must be the number of a state, 0 to {mdp.n_states - 1}; it is {value!r}.",
            parameter=name,
            value=value,
        )
    return int(value)  # type: ignore[call-overload, no-any-return]


def fits_model(mdp: MDP, demos: Demonstrations, stop: str, longest: float) -> None:
    """Check demonstrations against the MDP and against the model's set of trajectories."""
    _is_demonstrations(demos)
    demos.steps(mdp)
    lengths(demos, longest)
    endings(mdp, demos, stop, longest)


def lengths(demos: Demonstrations, longest: float) -> None:
    """Check that no demonstration is longer than the model's trajectories."""
    too_long = demos.lengths > longest
    if np.any(too_long):
        i = int(np.argmax(too_long))
        raise InvalidDemos(
            f"{name_demo(demos.ids, i)} has {demos.lengths[i]} states, more than max_length = {longest}. That is part "
            "of the model: shorten the demonstration, or make a model with a larger max_length and fit it anew.",
            parameter="demos",
            value=int(demos.lengths[i]),
            index=i,
        )


def endings(mdp: MDP, demos: Demonstrations, stop: str, longest: float) -> None:
    """Check that every demonstration ends where the model lets trajectories end."""
    if stop == "anywhere":
        return
    fine = mdp.terminal[demos.last_states]
    if stop == "terminal_or_max_length":
        fine = fine | (demos.lengths == longest)
    if not np.all(fine):
        i = int(np.argmin(fine))
        raise InvalidDemos(
            f"{name_demo(demos.ids, i)}, step {demos.lengths[i] - 1}: it ends in state "
            f"{demos.last_states[i]}, which is not terminal, but the model has stop={stop!r}. "
            "Use stop='anywhere', or mark the state as terminal.",
            parameter="demos",
            value=int(demos.last_states[i]),
            index=i,
        )


def warn_unless_converged(result: FitResult) -> None:
    """Warn of a fit that stopped early."""
    if not result.converged:
        warnings.warn(
            f"The fit {result.status.value}. The projected gradient is {result.projected_gradient:.2g} after "
            f"{result.n_evaluations} evaluations.",
            ConvergenceWarning,
            stacklevel=3,
        )


def identified(result: FitResult, directions: FloatArray, bounds: Any, mdp: MDP) -> FitResult:
    """Return a fit with its null directions (m, d), of which it warns, and with the features on their bounds."""
    if directions.shape[0]:
        warnings.warn(
            f"{describe(directions, mdp.feature_names)}. result_.null_directions has them; drop or merge features, "
            "or compare rewards only up to these directions.",
            IdentifiabilityWarning,
            stacklevel=3,
        )
    return replace(result, at_bound=at_bound(result.theta, bounds, mdp), null_directions=directions)
