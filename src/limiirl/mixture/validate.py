"""Checks of a mixture's parameters and of what it is given."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone

from limiirl._typing import FloatArray
from limiirl._validation import check_choice, check_count, check_positive
from limiirl.demos import Agents, Demonstrations, Groups
from limiirl.errors import InvalidParameter, NotFitted
from limiirl.irl import REQUIRED, FitProblem
from limiirl.irl import validate as irl_checks
from limiirl.mdp import RewardEnsemble
from limiirl.mixture.em import Settings

if TYPE_CHECKING:
    from limiirl.mixture.estimator import IntentMixture


def settings(mixture: IntentMixture) -> Settings:
    """Return EM's settings from an estimator's parameters."""
    check_count(mixture.n_intents, "n_intents")
    whole = isinstance(mixture.max_iter, int | np.integer) and not isinstance(mixture.max_iter, bool)
    if not (whole and mixture.max_iter == 0):  # 0 keeps the start
        check_count(mixture.max_iter, "max_iter")
    if mixture.callback is not None and not callable(mixture.callback):
        raise InvalidParameter(
            f"callback must be a function of an EMProgress, or None; got {mixture.callback!r}.",
            parameter="callback",
            value=mixture.callback,
        )
    if mixture.refine is not None:
        check_choice(mixture.refine, "refine", ("split_merge",))
    instance(mixture.init)
    rise, cap = mixture.likelihood_tol, mixture.max_evaluations
    return Settings(
        max_iter=mixture.max_iter,
        tol=check_positive(mixture.tol, "tol", zero=True),
        likelihood_tol=None if rise is None else check_positive(rise, "likelihood_tol"),
        max_evaluations=None if cap is None else check_count(cap, "max_evaluations"),
        degenerate=check_choice(mixture.degenerate, "degenerate", ("fit", "keep", "reseed")),
        temperatures=_temperatures(mixture.annealing),
    )


def instance(init: Any) -> None:
    """Check that a clusterer is one, and not its class."""
    if isinstance(init, type):
        raise InvalidParameter(
            f"init must be an instance; {init.__name__} is a class. Add parentheses.", parameter="init", value=init
        )


def _temperatures(annealing: Any) -> tuple[float, ...]:
    """Return the temperatures of the first iterations, in geometric progression towards 1."""
    if annealing is None:
        return ()
    try:
        hottest, n = annealing
    except (TypeError, ValueError):
        raise InvalidParameter(
            f"annealing must be (temperature, iterations) or None; it is {annealing!r}.",
            parameter="annealing",
            value=annealing,
        ) from None
    if check_positive(hottest, "annealing's temperature") < 1.0:
        raise InvalidParameter(
            f"annealing must begin with a temperature of at least 1; it is {hottest!r}.",
            parameter="annealing",
            value=annealing,
        )
    steps = np.arange(check_count(n, "annealing's iterations"))
    return tuple((float(hottest) ** (1.0 - steps / steps.size)).tolist())


def model(irl: Any) -> Any:
    """Return a single-intent model that has what EM needs."""
    if isinstance(irl, type):
        raise InvalidParameter(
            f"irl must be an instance of a model; {irl.__name__} is a class. Add parentheses.",
            parameter="irl",
            value=irl,
        )
    for name in REQUIRED:
        if not callable(getattr(irl, name, None)):
            raise InvalidParameter(
                f"irl must be a single-intent model with the methods {' and '.join(REQUIRED)}; {type(irl).__name__} "
                f"has no {name}. limiirl.testing.check_irl_model says all that a model needs.",
                parameter="irl",
                value=irl,
            )
    return irl


def demonstrations(demos: Any) -> Any:
    """Return what to fit to, of which there is at least one: demonstrations, or agents for a model without an MDP."""
    return demos if isinstance(demos, Agents) else irl_checks.demonstrations(demos)


def fresh(irl: Any) -> Any:
    """Return a copy of a model that has not been fitted, or, where it has no get_params, just a copy."""
    return clone(model(irl)) if hasattr(irl, "get_params") else deepcopy(model(irl))


def enough(n_intents: int, units: Groups) -> None:
    """Check that there are at least as many units as intents."""
    if n_intents > len(units):
        raise InvalidParameter(
            f"n_intents must be at most {len(units)}, the number of {units.noun}; got {n_intents}.",
            parameter="n_intents",
            value=n_intents,
        )


def seeds(random_state: Any, n: int) -> list[np.random.SeedSequence]:
    """Return n independent seeds from a whole number, a Generator, a RandomState or None."""
    if isinstance(random_state, np.random.RandomState):
        random_state = int(random_state.randint(2**31 - 1))
    elif isinstance(random_state, np.random.Generator):
        random_state = int(random_state.integers(2**63 - 1))
    try:
        return np.random.SeedSequence(random_state).spawn(n)
    except (TypeError, ValueError) as error:
        raise InvalidParameter(
            f"random_state must be a whole number of at least 0, a Generator, a RandomState or None ({error}).",
            parameter="random_state",
            value=random_state,
        ) from None


def points(given: Any, n: int, what: str) -> FloatArray:
    """Return points (n, m) to cluster."""
    try:
        found = np.ascontiguousarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidParameter(f"{what} must be an array of numbers ({error}).", parameter="embedding") from None
    if found.ndim != 2 or found.shape[0] != n or found.shape[1] == 0:
        raise InvalidParameter(
            f"{what} must have the shape ({n}, m), a row for each; it is {found.shape}.", parameter="embedding"
        )
    wrong = ~np.all(np.isfinite(found), axis=1)
    if np.any(wrong):
        raise InvalidParameter(
            f"{what} must be finite; row {int(np.argmax(wrong))} is not. Remove or mend it.", parameter="embedding"
        )
    return found


def ensemble(given: RewardEnsemble, n_intents: int, problem: FitProblem) -> None:
    """Check that an initial ensemble has K intents, of as many features as the MDP."""
    if given.n_intents != n_intents:
        raise InvalidParameter(
            f"The initial ensemble has {given.n_intents} intents; n_intents is {n_intents}.", parameter="init"
        )
    wanted = problem.n_parameters
    if wanted is not None and given.n_features != wanted:
        raise InvalidParameter(
            f"The initial ensemble has {given.n_features} features; the MDP has {wanted}.", parameter="init"
        )


def fitted(mixture: Any) -> None:
    """Check that `fit` was called."""
    if not hasattr(mixture, "thetas_"):
        raise NotFitted(f"This {type(mixture).__name__} is not fitted. Call fit(mdp, demos) first.")


def trained_on(mixture: Any) -> Demonstrations | None:
    """Return the demonstrations that a mixture was fitted to; None for one read from a file, which has them no more."""
    found: Demonstrations | None = getattr(getattr(mixture, "_problem", None), "demos", None)
    return found


def one_intent(k: Any, n_intents: int) -> int:
    """Return an intent's number."""
    if not isinstance(k, int | np.integer) or isinstance(k, bool) or not 0 <= k < n_intents:
        raise InvalidParameter(
            f"An intent is a whole number from 0 to {n_intents - 1}; got {k!r}.", parameter="k", value=k
        )
    return int(k)


def new_demonstrations(demos: Demonstrations) -> Demonstrations:
    """Return demonstrations to look at, of which there may be none."""
    return demos if isinstance(demos, Demonstrations) and len(demos) == 0 else demonstrations(demos)
