"""Checks of a mixture's parameters and inputs."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone

from limiirl._progress import check_progress
from limiirl._typing import BoolArray, FloatArray
from limiirl._validation import as_floats, check_choice, check_count, check_flag, check_positive, suggest
from limiirl.demos import Agents, Covariates, CovariateScale, Demonstrations, Groups
from limiirl.errors import InvalidParameter, ModelMismatchWarning, NotFitted
from limiirl.irl import MODELS, REQUIRED, FitProblem, MaxEnt, choose_model
from limiirl.irl import validate as irl_checks
from limiirl.mdp import MDP, RewardEnsemble
from limiirl.mixture.em import Pooling, Settings, WeightDesign

if TYPE_CHECKING:
    from limiirl.mixture.estimator import IntentMixture


# Least number of bytes of an entry of `history_`.
_ENTRY_BYTES = 256.0


def check_max_iter(value: object, *, least: int = 1) -> int:
    """Return a number of EM iterations; raise `InvalidParameter` if their history would exceed the available memory."""
    return check_count(value, "max_iter", least=least, bytes_each=_ENTRY_BYTES)


def find_shared(shared: str | Sequence[str] | None, mdp: Any) -> BoolArray | None:
    """Return the mask (d,) of the features whose names match one of the patterns `shared`, or None without patterns.

    Examples
    --------
    >>> mdp = MDP.from_edges([0], [1], state_features=[[1, 2, 3], [4, 5, 6]], feature_names=["km", "link 1", "link 2"])
    >>> find_shared("link *", mdp)
    array([False,  True,  True])
    """
    if shared is None:
        return None
    patterns = [shared] if isinstance(shared, str) else list(shared)
    if not isinstance(mdp, MDP):
        raise InvalidParameter.of("shared", shared, "must be None for a model without an MDP")
    mask = np.zeros(mdp.n_features, dtype=bool)
    for i, pattern in enumerate(patterns):
        matched = irl_checks.match_names(str(pattern), mdp.feature_names)
        if not np.any(matched):
            rule = "must have patterns that match the name of a feature, such as 'link *'"
            raise InvalidParameter.of("shared", pattern, rule, index=i)
        mask |= matched
    return mask


def make_settings(mixture: IntentMixture, shared: BoolArray | None = None) -> Settings:
    """Return the settings of EM from an estimator's parameters and the mask (d,) of shared features."""
    check_count(mixture.n_intents, "n_intents")
    check_max_iter(mixture.max_iter, least=0)
    check_progress(mixture.progress)
    if mixture.refine is not None:
        check_choice(mixture.refine, "refine", ("split_merge",))
    likelihood_tol, limit = mixture.likelihood_tol, mixture.max_evaluations
    return Settings(
        max_iter=mixture.max_iter,
        resp_tol=check_positive(mixture.resp_tol, "resp_tol", zero=True),
        likelihood_tol=None if likelihood_tol is None else check_positive(likelihood_tol, "likelihood_tol"),
        max_evaluations=None if limit is None else check_count(limit, "max_evaluations"),
        degenerate=check_choice(mixture.degenerate, "degenerate", ("fit", "keep", "reseed")),
        temperatures=_temperatures(mixture.annealing),
        accelerate=check_flag(mixture.accelerate, "accelerate"),
        pooling=None if shared is None else Pooling(shared),
    )


def make_weight_design(
    covariates: Any, demos: Any, groups: Any, ridge: Any
) -> tuple[CovariateScale | None, WeightDesign | None]:
    """Return the scale and the design of the covariates of the mixture weights, or None without covariates."""
    ridge = check_positive(ridge, "membership_ridge", zero=True)
    if covariates is None:
        return None, None
    checked = Covariates.for_units(covariates, demos, Groups.for_demos(groups, demos))
    checked.check_independent()
    scale = checked.measure()
    return scale, WeightDesign(add_intercept(scale.standardise(checked.values)), ridge)


def add_intercept(scaled: FloatArray) -> FloatArray:
    """Return standardised covariates (n, m) with a first column of ones."""
    return np.column_stack([np.ones(len(scaled)), scaled])


def caller_stacklevel() -> int:
    """Return the `stacklevel` of `warnings.warn` at which the nearest caller outside the package is reported."""
    frame, level = inspect.currentframe(), 0
    while frame is not None and frame.f_globals.get("__name__", "").startswith("limiirl."):
        frame, level = frame.f_back, level + 1
    return level


def _temperatures(annealing: Any) -> tuple[float, ...]:
    """Return the temperatures of the first iterations, in geometric progression towards 1."""
    if annealing is None:
        return ()
    try:
        hottest, n = annealing
        if check_positive(hottest, "annealing") < 1.0:
            raise ValueError
        steps = np.arange(check_count(n, "annealing"))
    except (TypeError, ValueError):
        rule = "must be None or (temperature, iterations), where both are at least 1"
        raise InvalidParameter.of("annealing", annealing, rule) from None
    return tuple((float(hottest) ** (1.0 - steps / steps.size)).tolist())


def check_irl(irl: Any) -> Any:
    """Return a single-intent model; raise unless it has the methods that EM calls."""
    if isinstance(irl, type):
        raise InvalidParameter.of("irl", irl, "must be an instance, not a class", remedy="Add parentheses.")
    if not all(callable(getattr(irl, name, None)) for name in REQUIRED):
        rule, remedy = f"must have the methods {' and '.join(REQUIRED)}", "See limiirl.testing.check_irl_model."
        if isinstance(irl, str):
            rule = "must be a model, not a name"
            remedy = f"Pass irl=limiirl.{irl}()." if irl in MODELS else suggest(irl, MODELS)
        raise InvalidParameter.of("irl", irl, rule, remedy=remedy)
    return irl


def check_demos(demos: Any, mdp: Any = None) -> Any:
    """Return demonstrations with the state and action indices of an MDP, or agents unchanged; raise if empty."""
    if isinstance(demos, Agents):
        return demos
    return irl_checks.demonstrations(irl_checks.in_numbers_of(mdp, demos))


def check_new_demos(demos: Demonstrations, mdp: Any) -> Demonstrations:
    """Return demonstrations, possibly none, with the state and action indices of an MDP."""
    return demos if isinstance(demos, Demonstrations) and len(demos) == 0 else check_demos(demos, mdp)


def resolve_model(irl: Any, mdp: Any, demos: Any) -> tuple[Any, str]:
    """Return an unfitted copy of a model, or the default model if it is None, and the explanation of the default.

    Warn if `MaxEnt` is given for stochastic transitions.
    """
    if irl is None:
        if not isinstance(mdp, MDP) and not isinstance(demos, Agents):
            return MaxEnt(), ""  # any model: its fit raises the error
        choice = choose_model(mdp, demos)
        return choice.model, str(choice)
    model = clone_model(irl)
    if isinstance(model, MaxEnt) and isinstance(mdp, MDP) and not mdp.deterministic:
        message = (
            f"{type(model).__name__} assumes deterministic transitions, but the MDP has stochastic transitions. The "
            "model attributes favourable outcomes to the agent's preference, which biases rewards. Use MaxCausalEnt."
        )
        warning = ModelMismatchWarning(message, parameter="irl", value=type(model).__name__)
        warnings.warn(warning, stacklevel=caller_stacklevel())
    return model, ""


def clone_model(irl: Any) -> Any:
    """Return an unfitted copy of a model, or a deep copy if it has no `get_params`."""
    return clone(check_irl(irl)) if hasattr(irl, "get_params") else deepcopy(check_irl(irl))


def check_enough_units(n_intents: int, units: Groups) -> None:
    """Raise if there are fewer units than intents."""
    if n_intents > len(units):
        rule = f"must be at most {len(units)}, the number of {units.noun}"
        raise InvalidParameter.of("n_intents", n_intents, rule)


def spawn_seeds(random_state: Any, n: int, name: str = "random_state") -> list[np.random.SeedSequence]:
    """Return n independent seeds from an integer, a Generator, a RandomState or None."""
    if isinstance(random_state, np.random.RandomState):
        random_state = int(random_state.randint(2**31 - 1))
    elif isinstance(random_state, np.random.Generator):
        random_state = int(random_state.integers(2**63 - 1))
    try:
        return np.random.SeedSequence(random_state).spawn(n)
    except (TypeError, ValueError):
        rule = "must be a nonnegative integer, a Generator, a RandomState or None"
        raise InvalidParameter.of(name, random_state, rule) from None


def check_points(given: Any, n: int, parameter: str = "embedding") -> FloatArray:
    """Return points (n, m) to cluster; `parameter` is "embedding", or "irl" for the model's features."""
    rule = "must be" if parameter == "embedding" else "must have features that are"
    points = np.ascontiguousarray(as_floats(given, parameter, boolean=True))
    if points.ndim != 2 or points.shape[0] != n or points.shape[1] == 0:
        raise InvalidParameter.of(parameter, points.shape, f"{rule} of shape ({n}, m) with m >= 1")
    wrong = ~np.all(np.isfinite(points), axis=1)
    if np.any(wrong):
        i = int(np.argmax(wrong))
        raise InvalidParameter.of(parameter, points[i].tolist(), f"{rule} finite", index=i)
    return points


def check_ensemble(given: RewardEnsemble, n_intents: int, problem: FitProblem) -> None:
    """Raise unless an initial ensemble has K intents and the MDP's number of features."""
    if given.n_intents != n_intents:
        raise InvalidParameter.of("init", given.n_intents, f"must have n_intents={n_intents} intents")
    d = problem.n_parameters
    if d is not None and given.n_features != d:
        raise InvalidParameter.of("init", given.n_features, f"must have {d} features, like the MDP")


def check_fitted(mixture: Any) -> None:
    """Raise `NotFitted` unless the mixture is fitted."""
    if not hasattr(mixture, "thetas_"):
        raise NotFitted(f"This {type(mixture).__name__} is not fitted. Call fit(mdp, demos) first.")


def training_demos(mixture: Any) -> Demonstrations | None:
    """Return the training demonstrations of a mixture, or None if it was loaded from a file."""
    demos: Demonstrations | None = getattr(getattr(mixture, "_problem", None), "demos", None)
    return demos


def training_units(mixture: Any) -> Groups | None:
    """Return the units of the training demonstrations of a mixture, or None if it was loaded from a file."""
    units: Groups | None = getattr(getattr(mixture, "_problem", None), "units", None)
    return units


def check_intent(k: Any, n_intents: int, name: str = "k") -> int:
    """Return the index of an intent as an int."""
    if not isinstance(k, int | np.integer) or isinstance(k, bool) or not 0 <= k < n_intents:
        raise InvalidParameter.of(name, k, f"must be an integer from 0 to {n_intents - 1}")
    return int(k)
