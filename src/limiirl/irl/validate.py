"""Validation of a model's arguments against the MDP and the demonstrations."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from limiirl._typing import BoolArray, FloatArray, IntArray
from limiirl._validation import as_floats, check_positive, check_type, scale_exponent
from limiirl.demos import Demonstrations, Groups, name_demo
from limiirl.errors import (
    ConvergenceWarning,
    DivergentPartition,
    FeatureScaleWarning,
    IdentifiabilityWarning,
    InvalidDemos,
    InvalidParameter,
    NumericalError,
)
from limiirl.irl.base import FitResult
from limiirl.irl.identifiability import describe
from limiirl.irl.optim import Box
from limiirl.mdp import MDP, find_reachable

# A forward pass of this length takes seconds even in the smallest MDP, and cannot be interrupted.
LONGEST = 10_000_000


def max_length(value: object) -> float:
    """Check `max_length` and return it as an int or inf."""
    if isinstance(value, float | np.floating) and value == math.inf:
        return math.inf
    whole = isinstance(value, int | np.integer | float | np.floating) and not isinstance(value, bool)
    if whole and 1 <= value <= LONGEST and value == int(value):  # type: ignore[operator, call-overload]
        return int(value)  # type: ignore[call-overload, no-any-return]
    rule = f"must be an integer from 1 to {LONGEST:,}, inf, or None"
    raise InvalidParameter.of("max_length", value, rule, remedy="Use inf for an unbounded length.")


def box(bounds: Any, names: Sequence[str]) -> Box:
    """Return the bounds of d parameters from (low, high), an array (d, 2), or None for no bounds."""
    d = len(names)
    if bounds is None:
        return Box(np.full(d, -np.inf), np.full(d, np.inf))
    try:
        limits = as_floats(bounds, "bounds")
    except InvalidParameter:
        limits = np.empty(0)
    if limits.shape == (2,):
        limits = np.tile(limits, (d, 1))
    if limits.shape != (d, 2):
        raise InvalidParameter.of("bounds", bounds, f"must be (low, high), an array of shape ({d}, 2), or None")
    wrong = ~(limits[:, 0] < limits[:, 1])
    if np.any(wrong):
        j = int(np.argmax(wrong))
        rule = f"must have low < high (feature {names[j]!r})"
        raise InvalidParameter.of("bounds", limits[j].tolist(), rule, index=j)
    return Box(limits[:, 0].copy(), limits[:, 1].copy())


def ridge(given: Any, names: Sequence[str]) -> FloatArray:
    """Return the ridge coefficients (d,) of features from a number, or from a mapping of patterns to numbers.

    The first pattern that matches a name applies; other features have the coefficient 0.

    Examples
    --------
    >>> ridge({"link *": 0.1, "*": 0.0}, ["time", "link 1", "link 2"])
    array([0. , 0.1, 0.1])
    """
    if not isinstance(given, Mapping):
        return np.full(len(names), check_positive(given, "ridge", zero=True))
    result = np.zeros(len(names))
    unset = np.ones(len(names), dtype=bool)
    for pattern, value in given.items():
        matched = match_names(str(pattern), names)
        if not np.any(matched):
            rule = "must have patterns that match the name of a feature, such as 'link *'"
            raise InvalidParameter.of("ridge", pattern, rule)
        result[matched & unset] = check_positive(value, "ridge", zero=True)
        unset &= ~matched
    return result


def match_names(pattern: str, names: Sequence[str]) -> BoolArray:
    """Return the mask (d,) of the names that equal a pattern or match it, such as "link *"."""
    return np.array([name == pattern or fnmatchcase(name, pattern) for name in names], dtype=bool)


def weights(given: ArrayLike | None, demos: Demonstrations, *, columns: bool) -> FloatArray:
    """Check the weights (N, K) or (N,) of demonstrations and return them as (N, K); None is replaced by ones."""
    n, one = len(demos), Groups.for_demos(None, demos).noun[:-1]
    if given is None:
        return np.ones((n, 1))
    checked = as_floats(given, "weights", boolean=True)  # a boolean mask selects demonstrations
    if checked.ndim != 1 + columns or checked.shape[0] != n:
        shape = f"({n}, K), one row per {one}" if columns else f"({n},), one per {one}"
        raise InvalidParameter.of("weights", checked.shape, f"must have shape {shape}")
    checked = checked.reshape(n, -1)
    bad = ~(np.isfinite(checked) & (checked >= 0))
    if np.any(bad):
        i, k = (int(at) for at in np.argwhere(bad)[0])
        index = (i, k) if columns else i
        raise InvalidParameter.of("weights", float(checked[i, k]), "must be finite and nonnegative", index=index)
    checked = np.ldexp(
        checked, -scale_exponent(checked)
    )  # rescale, because only ratios matter and sums must not overflow
    empty = checked.sum(axis=0) == 0
    if np.any(empty):
        k = int(np.argmax(empty))
        message = (
            f"weights[:, {k}] must not be all zero. Remove the column." if columns else "weights must not be all zero."
        )
        raise InvalidParameter(message, parameter="weights", value=0.0, index=k if columns else None)
    return checked


def starts(given: FloatArray | None, n_intents: int, name: str = "starts") -> None:
    """Check that there is one initial point per column of weights."""
    if given is not None and given.shape[0] != n_intents:
        raise InvalidParameter.of(name, given.shape, f"must have {n_intents} rows, one per column of weights")


@contextmanager
def start_errors() -> Iterator[None]:
    """Replace `starts[0]` by `start`, the argument of `fit`, in errors raised within the context."""
    try:
        yield
    except DivergentPartition as error:
        if error.parameter == "starts":
            raise DivergentPartition(
                str(error).replace("starts[0]", "start"), parameter="start", value=error.value
            ) from None
        raise


def in_numbers_of(mdp: MDP, demos: Demonstrations) -> Demonstrations:
    """Check the type of demonstrations, and number their states and actions as in the MDP."""
    check_demonstrations(demos)
    # A user-defined model may have an MDP of another type.
    return demos.renumber(mdp) if isinstance(mdp, MDP) else demos


def demonstrations(demos: Demonstrations) -> Demonstrations:
    """Check that there is at least one demonstration and return the demonstrations."""
    check_demonstrations(demos)
    if len(demos) == 0:
        message = "demos must contain at least one demonstration; got none. Check the file and the selection."
        raise InvalidDemos(message, parameter="demos", value=0)
    return demos


def check_demonstrations(demos: object) -> None:
    """Check the type of demonstrations."""
    if not isinstance(demos, Demonstrations):
        remedy = "Create them with Demonstrations.from_lists."
        raise InvalidDemos.of("demos", type(demos).__name__, "must be Demonstrations", remedy=remedy)


def mdp(given: object) -> None:
    """Check the type of an MDP."""
    if not isinstance(given, MDP):
        raise InvalidParameter.of(
            "mdp", type(given).__name__, "must be an MDP", remedy="Create one with MDP.from_edges."
        )


def one_theta(mdp: MDP, theta: ArrayLike, name: str = "theta") -> FloatArray:
    """Check a single parameter vector and return it as an array (d,)."""
    check_type(mdp, "mdp", MDP, remedy="Create one with MDP.from_edges.")
    checked: FloatArray = mdp.check_thetas(theta, name)
    if checked.shape[0] != 1:
        raise InvalidParameter.of(name, checked.shape, f"must be one vector of {mdp.n_features} parameters")
    return np.asarray(checked[0])


def state(mdp: MDP, value: object, name: str) -> int:
    """Check the index of a state and return it."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or not 0 <= value < mdp.n_states:  # type: ignore[operator]
        raise InvalidParameter.of(name, value, f"must be a state index from 0 to {mdp.n_states - 1}")
    return int(value)  # type: ignore[call-overload, no-any-return]


def states(mdp: MDP, given: ArrayLike | None, name: str) -> IntArray:
    """Check the indices of states, for a model that is conditioned on them, and return them as a vector."""
    if given is None:
        raise InvalidParameter(f"{name} must be given, because DestinationMaxEnt is conditioned on it.", parameter=name)
    indices = np.atleast_1d(np.asarray(given))
    if indices.ndim != 1 or (indices.size and not np.issubdtype(indices.dtype, np.integer)):
        raise InvalidParameter.of(name, given, "must be a vector of state indices")
    bad = (indices < 0) | (indices >= mdp.n_states)
    if np.any(bad):
        i = int(np.argmax(bad))
        raise InvalidParameter.of(name, int(indices[i]), f"must be a state index from 0 to {mdp.n_states - 1}", index=i)
    return indices.astype(np.int64)


def pairs(mdp: MDP, starts: ArrayLike, goals: ArrayLike | None) -> tuple[IntArray, IntArray]:
    """Check the indices of starts and goals, and return them as vectors (m,)."""
    begin, end = states(mdp, starts, "starts"), states(mdp, goals, "goals")
    if begin.size != end.size:
        raise InvalidParameter.of("goals", end.size, f"must have {begin.size} entries, one per start")
    return begin, end


def step(value: object, max_length: float) -> int:
    """Check a step of trajectories of at most `max_length` states and return it."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or not 0 <= value < max_length:  # type: ignore[operator]
        upper = "" if max_length == math.inf else f" and at most max_length - 1 = {int(max_length) - 1}"
        raise InvalidParameter.of("step", value, f"must be an integer of at least 0{upper}")
    return int(value)  # type: ignore[call-overload, no-any-return]


def check_termination(mdp: MDP) -> None:
    """Raise `DivergentPartition` at discount 1 unless every state can reach a terminal state."""
    if mdp.gamma < 1.0:
        return
    endless = ~find_reachable(mdp.dst, mdp.src, mdp.terminal)
    if endless.any():
        state = int(np.argmax(endless))
        name = state if mdp.state_names is None else repr(str(mdp.state_names[state]))
        message = (
            f"gamma must be below 1 if a state cannot reach a terminal state; gamma is 1, and state {name} (the first "
            f"of {np.count_nonzero(endless)}) cannot. Use gamma < 1, a finite max_length, or make a state terminal."
        )
        raise DivergentPartition(message, parameter="gamma", value=1.0, index=state)


def check_trajectories(mdp: MDP, demos: Demonstrations, stop: str, longest: float) -> None:
    """Check that demonstrations are possible in the MDP, end where `stop` allows, and have at most `longest` states."""
    check_demonstrations(demos)
    demos.steps(mdp)
    too_long = demos.lengths > longest
    if np.any(too_long):
        i = int(np.argmax(too_long))
        raise InvalidDemos(
            f"{name_demo(demos.ids, i)} must have at most max_length = {longest} states; it has {demos.lengths[i]}. "
            "Shorten it, or increase max_length.",
            parameter="demos",
            value=int(demos.lengths[i]),
            index=i,
        )
    if stop == "anywhere":
        return
    ends = mdp.terminal[demos.last_states]
    if stop == "terminal_or_max_length":
        ends = ends | (demos.lengths == longest)
    if not np.all(ends):
        i = int(np.argmin(ends))
        raise InvalidDemos(
            f"{name_demo(demos.ids, i)} must end in a terminal state if stop={stop!r}; it ends in state "
            f"{demos.last_states[i]} at step {demos.lengths[i] - 1}. Use stop='anywhere', or make this state terminal.",
            parameter="demos",
            value=int(demos.last_states[i]),
            index=i,
        )


# Features up to size _SMALL are rescaled in optimisers. Features below size _TINY cause a warning.
_SMALL, _TINY = 1e-2, 1e-3


def check_log_prob(log_prob: FloatArray) -> FloatArray:
    """Return log-probabilities (n, K); raise `NumericalError` if one is undefined because values overflow."""
    undefined = np.isnan(log_prob)
    if np.any(undefined):
        k = int(np.argmax(undefined.any(axis=0)))
        rule = f"The log-probabilities under thetas[{k}] overflow float64. Use smaller parameters."
        raise NumericalError(rule, parameter="thetas", index=k)
    return log_prob


def feature_scale(mdp: MDP) -> FloatArray:
    """Return the scale (d,) of each feature in optimisers: its maximum absolute value if at most 0.01, otherwise 1."""
    sizes = mdp.feature_sizes
    return np.where((sizes > 0.0) & (sizes <= _SMALL), sizes, 1.0)


def warn_of_small_features(mdp: MDP, stacklevel: int = 3) -> None:
    """Issue a `FeatureScaleWarning` if features are so small that bounds and ridge dominate their rewards."""
    sizes = mdp.feature_sizes
    small = np.flatnonzero((sizes > 0.0) & (sizes < _TINY))
    if small.size:
        j = int(small[0])
        others = f" and {small.size - 1} more" if small.size > 1 else ""
        warnings.warn(
            f"Feature {mdp.feature_names[j]!r}{others} should not be far smaller than 1; its largest value is "
            f"{sizes[j]:.2g}. Bounds and ridge limit its effect, because its parameter must be about "
            f"{1.0 / sizes[j]:.0e} times as large as for a feature of size 1. Rescale the feature.",
            FeatureScaleWarning,
            stacklevel=stacklevel,
        )


def warn_unless_converged(result: FitResult) -> None:
    """Issue a `ConvergenceWarning` if the fit stopped early."""
    if not result.converged:
        warnings.warn(
            f"The fit {result.status.value}. The projected gradient is {result.projected_gradient:.2g} after "
            f"{result.n_evaluations} evaluations.",
            ConvergenceWarning,
            stacklevel=3,
        )


def with_identifiability(result: FitResult, directions: FloatArray, bounds: Any, mdp: MDP) -> FitResult:
    """Add null directions (m, d) and the features at bounds to a result; warn if there are null directions."""
    if directions.shape[0]:
        warnings.warn(
            f"{describe(directions, mdp.feature_names)}. See result_.null_directions. Drop or merge features, or "
            "compare rewards only up to these directions.",
            IdentifiabilityWarning,
            stacklevel=3,
        )
    limits = box(bounds, mdp.feature_names)
    at_bound = (result.theta <= limits.lower) | (result.theta >= limits.upper)
    names = tuple(name for name, on in zip(mdp.feature_names, at_bound, strict=True) if on)
    return replace(result, at_bound=names, null_directions=directions)
