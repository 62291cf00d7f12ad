"""`Summary` of a fitted mixture, and the table of its posterior per demonstration."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from html import escape
from itertools import zip_longest
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit
from sklearn.base import clone

from limiirl._io import as_path, atomic_write, escape_formula, to_pandas
from limiirl._progress import escape_controls
from limiirl._typing import FloatArray
from limiirl.demos import Agents, Demonstrations, Groups
from limiirl.errors import (
    DivergentPartition,
    InvalidDemos,
    InvalidFile,
    InvalidParameter,
    NotFitted,
    NumericalError,
)
from limiirl.irl import AT_BOUND, FitProblem, MaxEnt, OptionalMembers, make_problem
from limiirl.mdp import RewardEnsemble
from limiirl.mixture.em import unit_weights
from limiirl.mixture.estimates import ProfileInterval, wald_statistics
from limiirl.mixture.information import free_parameters
from limiirl.mixture.init import is_given
from limiirl.mixture.membership import measure_errors
from limiirl.mixture.validate import check_demos, find_shared

if TYPE_CHECKING:
    from limiirl.mixture.estimator import IntentMixture

# A name, and for each intent a value, its error or status, and optionally its t-value and p-value.
Cells = tuple[str, ...]
Row = tuple[str, Sequence[Cells]]
# Largest number of rewards K d with standard errors: the information matrix has (K d)^2 entries.
MOST_PARAMETERS = 3000
# Maximum number of rows and characters of the printed table.
MOST_ROWS, _WIDEST = 40, 100
MARKS = {
    "bound": "the reward is on a bound of the model",
    "contrast": "a difference from the mean, without a standard error",
    "not identified": "the reward has a component in a direction that does not change any trajectory's probability",
    "up to scale": "only the proportions of rewards are identified; rewards are scaled to sum to 1",
    "empty": "the intent is nearly empty",
    "flat": "the likelihood is flat, or nearly: use fewer intents, more demonstrations or more iterations",
}


@dataclass(frozen=True, eq=False)
class Summary:
    """Summary of a fitted mixture: prints as text, is shown as a table in notebooks, and has `to_dict()`.

    Attributes
    ----------
    n_intents, n_units, unit : int, int, str
        `unit` is "demonstrations", "agents" or "groups".
    model, init, convergence, starts : str
    converged, n_iter, log_likelihood, bic, n_free
        `log_likelihood` is the mean per unit.
    total_log_likelihood, null_log_likelihood : float
        Sum over units; and the sum for the null model, one intent with theta = 0 (nan if it is not available).
    weights, weight_errors : (K,)
    sizes, counts : (K,)
        Sum of the responsibilities of each intent, and number of units for which it is the most probable intent.
    feature_names : tuple of str
    thetas, errors, status : (K, d)
        Rewards, standard errors (nan if unavailable), and "ok" or the reason (see `StandardErrors`).
    covariance : str
        "observed", "robust" or "cluster"; `spread` describes it.
    profile : tuple of ProfileInterval
        95 % profile-likelihood intervals of chosen parameters.
    wald : bool
        Whether `errors` are standard errors, from which t-values and p-values are computed.
    n_starts, n_best, distances : int, int, (n_starts,)
        Number of initialisations, number that reached the best objective, and distance of each initialisation from the
        best solution (see `Restart`).
    estimator, spread, model_choice : str
        Name of the estimator, description of `errors`, and explanation of the default model, if it was used.

    Examples
    --------
    >>> from limiirl import MDP, Demonstrations, IntentMixture, MaxEnt
    >>> mdp = MDP.from_edges([0], [1], p0=[1, 0], state_features=[[0], [1]], feature_names=["going on"])
    >>> demos = Demonstrations.from_lists([[0], [0, 1], [0, 1], [0, 1]])
    >>> print(IntentMixture(1, MaxEnt(2, bounds=None)).fit(mdp, demos).summary())
    IntentMixture: 1 intent behind 4 demonstrations
      model           MaxEnt(bounds=None), trajectories of up to 2 states that stop anywhere
      init            kmeans, rewards by mle
      EM              converged after 1 iteration
      initialisations 1; raise n_init to compare several
      log-likelihood  -0.5623 per demonstration, -2.25 in total
      rho-squared     0.1887, against theta = 0 (log-likelihood -2.77)
      BIC             5.9, with 1 free parameter
    <BLANKLINE>
                       intent 0         t      p
      weight          100.0 % ± 0.0
      expected size       4.0
      assigned              4
      going on            1.1 ± 1.2  0.95  0.341
    <BLANKLINE>
      ± one standard error, from the observed information
      t, p: Wald tests that a reward is 0
    """

    n_intents: int
    n_units: int
    unit: str
    model: str
    init: str
    convergence: str
    starts: str
    converged: bool
    n_iter: int
    log_likelihood: float
    bic: float
    n_free: int
    weights: FloatArray
    weight_errors: FloatArray
    sizes: FloatArray
    counts: NDArray[np.int64]
    feature_names: tuple[str, ...]
    thetas: FloatArray
    errors: FloatArray
    status: NDArray[np.str_]
    n_starts: int
    n_best: int
    distances: FloatArray
    estimator: str = "IntentMixture"
    spread: str = "one standard error, from the observed information"
    model_choice: str = ""
    total_log_likelihood: float = math.nan
    null_log_likelihood: float = math.nan
    covariance: str = "observed"
    profile: tuple[ProfileInterval, ...] = ()
    wald: bool = True

    @property
    def t_values(self) -> FloatArray:
        """Rewards (K, d) divided by their errors; nan if `errors` are not standard errors."""
        return wald_statistics(self.thetas, self.errors if self.wald else np.full(self.errors.shape, np.nan))[0]

    @property
    def p_values(self) -> FloatArray:
        """Two-sided p-values (K, d) of the hypothesis that a reward is 0."""
        return wald_statistics(self.thetas, self.errors if self.wald else np.full(self.errors.shape, np.nan))[1]

    @property
    def rho_squared(self) -> float:
        """McFadden's 1 - log L / log L_0, where L_0 is the likelihood of the null model theta = 0."""
        null = self.null_log_likelihood
        return 1.0 - self.total_log_likelihood / null if null < 0.0 else math.nan

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON types, with lists for arrays and None for nan."""
        plain = {field.name: to_plain(getattr(self, field.name)) for field in fields(self)}
        profile = [{name: to_plain(value) for name, value in row._asdict().items()} for row in self.profile]
        properties = {name: to_plain(getattr(self, name)) for name in ("rho_squared", "t_values", "p_values")}
        return plain | properties | {"profile": profile}

    def to_frame(self) -> Any:
        """Return the rewards as a pandas DataFrame with one row per intent and feature.

        Examples
        --------
        >>> from limiirl import MDP, Demonstrations, IntentMixture, MaxEnt
        >>> mdp = MDP.from_edges([0], [1], p0=[1, 0], state_features=[[0], [1]], feature_names=["going on"])
        >>> demos = Demonstrations.from_lists([[0], [0, 1], [0, 1], [0, 1]])
        >>> frame = IntentMixture(1, MaxEnt(2, bounds=None)).fit(mdp, demos).summary().to_frame()
        >>> frame[["intent", "feature", "reward", "standard_error"]].round(2).values.tolist()
        [[0, 'going on', 1.1, 1.15]]
        """
        K, d = self.thetas.shape
        of_intents = {"weight": self.weights, "weight_error": self.weight_errors, "expected_size": self.sizes}
        columns = {"intent": np.repeat(np.arange(K), d)}
        columns |= {name: np.repeat(values, d) for name, values in of_intents.items()}
        columns |= {"feature": np.tile(np.array(self.feature_names, dtype=object), K)}
        rewards: dict[str, Any] = {
            "reward": self.thetas,
            "standard_error": self.errors,
            "t": self.t_values,
            "p": self.p_values,
        }
        rewards |= {"status": self.status}
        return to_pandas(columns | {name: values.ravel() for name, values in rewards.items()})

    def __str__(self) -> str:
        lines = [self._title(), *(f"  {name:<16}{text}" for name, text in self._head())]
        rows = list(self._rows())
        for intents in table_blocks(rows):
            lines += ["", *align_rows(rows, intents)]
        lines += describe_remainder(self.thetas)
        # Names may contain escape sequences, which a terminal would execute.
        return escape_controls("\n".join([*lines, "", *(f"  {note}" for note in self._notes())]).rstrip())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = "".join(f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in self._head())
        body = table_rows_html(list(self._rows()))
        notes = "<br>".join(escape(note) for note in self._notes())
        return f"<p><b>{escape(self._title())}</b></p><table>{head}</table><table>{body}</table><p>{notes}</p>"

    def _title(self) -> str:
        intents = f"{self.n_intents} intent" + ("" if self.n_intents == 1 else "s")
        behind = f"{intents} behind" if self._is_mixture else "fitted to"
        return f"{self.estimator}: {behind} {self.n_units:,} {self.unit}"

    @property
    def _is_mixture(self) -> bool:
        """False for the summary of a model that was fitted without a mixture."""
        return bool(self.init)

    def _head(self) -> Iterator[tuple[str, str]]:
        yield "model", self.model
        if self.model_choice:
            yield "choice", self.model_choice
        if self._is_mixture:
            yield "init", self.init
        yield "EM" if self._is_mixture else "fit", self.convergence
        if self._is_mixture:
            yield "initialisations", self.starts
        total, null = self.total_log_likelihood, self.null_log_likelihood
        yield "log-likelihood", f"{self.log_likelihood:.4f} per {self.unit[:-1]}, {total:.2f} in total"
        if math.isfinite(self.rho_squared):
            yield "rho-squared", f"{self.rho_squared:.4f}, against theta = 0 (log-likelihood {null:.2f})"
        yield "BIC", f"{self.bic:.1f}, with {self.n_free} free parameter" + ("" if self.n_free == 1 else "s")

    def _rows(self) -> Iterator[Row]:
        tested = bool(np.any(np.isfinite(self.t_values)))
        heads = [("intent", str(k)) if self._is_mixture else ("reward", "") for k in range(self.n_intents)]
        yield "", [(*head, "t", "p") if tested else head for head in heads]
        weights = zip(self.weights, self.weight_errors, strict=True)
        measured = bool(np.any(np.isfinite(self.errors)) or np.any(np.isfinite(self.weight_errors)))
        unknown = "(not identified)" if measured and self.estimator == "IntentMixture" else ""
        if self._is_mixture:
            cells = [(f"{100 * x:.1f} %", f"± {100 * e:.1f}" if math.isfinite(e) else unknown) for x, e in weights]
            yield "weight", cells
            yield "expected size", [(f"{size:.1f}", "") for size in self.sizes]
            yield "assigned", [(str(count), "") for count in self.counts]
        columns = (self.thetas, self.errors, self.status, *((self.t_values, self.p_values) if tested else ()))
        for j in rank_features(self.thetas, self.errors):
            by_intent = zip(*(column[:, j] for column in columns), strict=True)
            yield self.feature_names[j], [format_estimate(*cell) for cell in by_intent]

    def _notes(self) -> Iterator[str]:
        if np.any(np.isfinite(self.errors)):
            yield f"± {self.spread}"
            if np.any(np.isfinite(self.t_values)):
                yield WALD_NOTE
        elif np.any(self.status == "ok"):
            few = self.thetas.size <= MOST_PARAMETERS
            yield f"no standard errors: {'pass the demonstrations to summary()' if few else 'see standard_errors()'}"
        yield from explain_marks(self.status, self.thetas, self.errors, self.feature_names)
        for row in self.profile:
            of = f"intent {row.intent}, {row.feature}" if self._is_mixture else row.feature
            yield f"95 % profile-likelihood interval of {of}: {row.low:.4g} to {row.high:.4g}"


def summarise(
    mixture: IntentMixture,
    problem: FitProblem | None,
    covariance: str = "observed",
    clusters: ArrayLike | None = None,
) -> Summary:
    """Return the summary of a fitted mixture; without a fit problem, there are no standard errors."""
    unit = _unit(mixture) if problem is None else problem.units.noun
    starts = mixture.restarts_
    facts: dict[str, Any] = {
        "model_choice": mixture.model_choice_,
        "init": _init(mixture),
        "convergence": _convergence(mixture),
        "starts": _starts(mixture, unit),
        "converged": bool(mixture.converged_),
        "n_iter": int(mixture.n_iter_),
        "n_starts": len(starts),
        "n_best": sum(start.best for start in starts),
        "distances": np.array([start.distance for start in starts]),
    }
    return _summarise(mixture, problem, unit, (covariance, clusters), facts)


def summarise_model(
    model: Any,
    mdp: Any,
    demos: Demonstrations,
    groups: ArrayLike | None = None,
    covariance: str = "observed",
    clusters: ArrayLike | None = None,
) -> Summary:
    """Return the summary of a single-intent model that was fitted to demonstrations with weights of 1.

    Parameters
    ----------
    model : model
        A fitted model with the attribute `theta_`.
    mdp, demos, groups : MDP, Demonstrations, (N,)
        The arguments of `fit`; demonstrations of a group are one unit.
    covariance, clusters
        See `IntentMixture.standard_errors`.

    Examples
    --------
    >>> from limiirl import MDP, Demonstrations, MaxEnt
    >>> mdp = MDP.from_edges([0], [1], p0=[1, 0], state_features=[[0], [1]], feature_names=["going on"])
    >>> demos = Demonstrations.from_lists([[0]] * 20 + [[0, 1]] * 60)
    >>> irl = MaxEnt(2, bounds=None)
    >>> theta = irl.fit(mdp, demos)
    >>> print(summarise_model(irl, mdp, demos))
    MaxEnt: fitted to 80 demonstrations
      model           MaxEnt(bounds=None), trajectories of up to 2 states that stop anywhere
      fit             converged after 4 evaluations
      log-likelihood  -0.5623 per demonstration, -44.99 in total
      rho-squared     0.1887, against theta = 0 (log-likelihood -55.45)
      BIC             94.4, with 1 free parameter
    <BLANKLINE>
                 reward            t        p
      going on     1.10 ± 0.26  4.25  2.1e-05
    <BLANKLINE>
      ± one standard error, from the observed information
      t, p: Wald tests that a reward is 0
    """
    problem, theta = problem_of_model(model, mdp, demos, groups)
    result = getattr(model, "result_", None)
    n, stopped = (0, "") if result is None else (result.n_evaluations, result.status.value)
    converged = result is None or result.converged
    facts: dict[str, Any] = {
        "estimator": type(model).__name__,
        "init": "",
        "convergence": f"converged after {n} evaluations" if converged else f"The fit {stopped}",
        "starts": "",
        "converged": converged,
        "n_iter": n,
        "n_starts": 1,
        "n_best": 1,
        "distances": np.zeros(1),
    }
    facts_of_mixture = {"weights_": np.ones(1), "membership_logits_": None, "covariates_": None, "groups_": None}
    fitted = SimpleNamespace(thetas_=theta, irl_=problem.model, mdp_=mdp, **facts_of_mixture)
    return _summarise(fitted, problem, problem.units.noun, (covariance, clusters), facts)


def problem_of_model(
    model: Any, mdp: Any, demos: Demonstrations, groups: ArrayLike | None = None
) -> tuple[FitProblem, FloatArray]:
    """Return the fit problem and the theta (1, d) of a single-intent model that was fitted without a mixture."""
    theta = getattr(model, "theta_", None)
    if theta is None:
        raise NotFitted(f"This {type(model).__name__} is not fitted. Call fit(mdp, demos) first.")
    problem = make_problem(model, mdp, check_demos(demos, mdp), groups)
    return problem, np.array(theta, dtype=np.float64)[None]


def _summarise(
    mixture: Any, problem: FitProblem | None, unit: str, errors_of: tuple[str, ArrayLike | None], facts: dict[str, Any]
) -> Summary:
    """Return the summary of a mixture or of a model as a mixture of one intent, with `facts` about the fit."""
    U, log_likelihood = evaluate(mixture, problem)
    rho, thetas = mixture.weights_, mixture.thetas_
    K, d = thetas.shape
    n_covariates = 0 if mixture.covariates_ is None else len(mixture.covariates_.names)
    shared = find_shared(getattr(mixture, "shared", None), mixture.mdp_)
    free = free_parameters(mixture.irl_, mixture.mdp_, rho, thetas, len(U), n_covariates, shared)
    weight_errors, errors, status = np.full(K, np.nan), np.full((K, d), np.nan), free.status
    method = "observed information"
    if problem is not None and thetas.size <= MOST_PARAMETERS:
        measured = measure_errors(mixture, problem, *errors_of)
        weight_errors, errors, status = measured.weights, measured.thetas, measured.status
        method = measured.method
    return Summary(
        n_intents=K,
        n_units=len(U),
        unit=unit,
        model=describe_model(mixture.irl_),
        log_likelihood=log_likelihood / len(U),
        total_log_likelihood=log_likelihood,
        null_log_likelihood=math.nan if problem is None else null_log_likelihood(problem, d),
        covariance=errors_of[0],
        bic=-2.0 * log_likelihood + free.n_free * math.log(len(U)),
        n_free=free.n_free,
        weights=rho,
        weight_errors=weight_errors,
        sizes=U.sum(axis=0),
        counts=np.bincount(np.argmax(U, axis=1), minlength=K),
        feature_names=feature_names(mixture.mdp_, d),
        thetas=thetas,
        errors=errors,
        status=status,
        spread=f"one standard error, from the {method}",
        **facts,
    )


def feature_names(mdp: Any, d: int) -> tuple[str, ...]:
    """Return the names of d features, or "parameter 0", ... if the MDP has none."""
    return tuple(getattr(mdp, "feature_names", None) or (f"parameter {j}" for j in range(d)))


def null_log_likelihood(problem: FitProblem, d: int) -> float:
    """Return the total log-likelihood of one intent with theta = 0, or nan if it is undefined.

    It is undefined if the partition function diverges, and for models that identify rewards only up to scale.
    """
    zero = np.zeros((1, d))
    if problem.up_to_scale or problem.demos is None:
        return math.nan
    try:
        total = float(problem.log_prob(zero).sum()) if problem.is_finite(zero) else math.nan
    except (DivergentPartition, InvalidParameter, NumericalError):
        return math.nan
    return total if math.isfinite(total) else math.nan


def evaluate(mixture: Any, problem: FitProblem | None) -> tuple[FloatArray, float]:
    """Return the responsibilities (G, K) and the total log-likelihood of units; the training data are the default."""
    if problem is None:
        U: FloatArray | None = mixture.responsibilities_ if mixture.groups_ is None else mixture.group_responsibilities_
        if U is None:
            message = "demos is required, because a mixture fitted to a stream has no responsibilities."
            raise InvalidParameter(message, parameter="demos")
        return U, mixture.log_likelihood_ * len(U)
    U = np.zeros((len(problem.units), len(mixture.weights_)))
    rho = unit_weights(problem, mixture.weights_, mixture.membership_logits_)
    return U, problem.e_step(rho, mixture.thetas_, U).log_likelihood


def _unit(mixture: IntentMixture) -> str:
    """Return the plural noun of the units; a mixture of agents has no MDP."""
    if mixture.groups_ is not None:
        return "groups"
    return "agents" if mixture.mdp_ is None else "demonstrations"


def describe_model(irl: Any) -> str:
    """Describe the model, its set of trajectories, and the bounds on rewards."""
    longest, stop = irl.max_length if isinstance(irl, MaxEnt) else None, getattr(irl, "stop", None)
    named = irl if longest is None else clone(irl).set_params(max_length=None)  # the text describes the length
    name = " ".join(repr(named).split())
    parts = [name]
    if longest is not None:
        length = "unbounded length" if longest == np.inf else f"up to {longest} states"
        parts.append(f"trajectories of {length}" + (f" that stop {stop}" if stop == "anywhere" else ""))
    bounds = OptionalMembers.of(irl).bounds
    if bounds is not None and np.shape(bounds) == (2,) and "bounds" not in name:  # the default, which repr omits
        parts.append(f"rewards from {bounds[0]:g} to {bounds[1]:g}")
    return ", ".join(parts)


def _init(mixture: IntentMixture) -> str:
    init = mixture.init
    if isinstance(init, RewardEnsemble):
        return "a given ensemble"
    if isinstance(init, str):
        how = init
    elif is_given(init):
        how = "given labels" if np.ndim(init) == 1 else "given responsibilities"
    else:
        how = getattr(init, "__name__", type(init).__name__)
    rewards = mixture.reward_init
    named = rewards if isinstance(rewards, str) else getattr(rewards, "__name__", type(rewards).__name__)
    return how if how == "random_rewards" else f"{how}, rewards by {named}"


def _convergence(mixture: IntentMixture) -> str:
    n = f"{mixture.n_iter_} iteration" + ("" if mixture.n_iter_ == 1 else "s")
    if mixture.converged_:
        return f"converged after {n}"
    if mixture.n_iter_ == 0:
        return "not run (max_iter=0): initial rewards"
    change = f"{mixture.history_[-1].change:.1e}"
    return f"not converged after {n}: mean change in responsibilities {change}. Raise max_iter or resp_tol."


def _starts(mixture: IntentMixture, unit: str) -> str:
    starts = mixture.restarts_
    if len(starts) == 1:
        return "1, given" if is_given(mixture.init) else "1; raise n_init to compare several"
    others = [start.distance for start in starts if not start.best]
    reached = f"{len(starts) - len(others)} of {len(starts)} reached the best solution"
    if not others:
        return reached
    low, high = (f"{100 * value:.0f} %" for value in (min(others), max(others)))
    return f"{reached}; the others differ in {low if low == high else f'{low} to {high}'} of the {unit}"


def format_reward(value: float, error: float, status: str) -> tuple[str, str]:
    """Format a reward to two digits of its error, and the error or the status; a dash for an empty intent."""
    if status == "empty":
        return "-", "(empty)"
    if not math.isfinite(error):
        value = value if abs(value) > AT_BOUND else 0.0
        return f"{value:.4g}", "" if status == "ok" else f"({status})"
    decimals = 1 - math.floor(math.log10(error)) if error > 0.0 else 4
    if not 0 <= decimals <= 6:
        return f"{value:.4g}", f"± {error:.2g}"
    return f"{value:.{decimals}f}", f"± {error:.{decimals}f}"


def rank_features(thetas: FloatArray, errors: FloatArray) -> list[int]:
    """Return the features of the printed table, given rewards and errors (K, d).

    If there are more than `MOST_ROWS`, these are the features whose rewards differ most between two intents, or from 0
    for a single intent, in units of the standard error of the difference; without errors, in absolute value.

    Examples
    --------
    >>> thetas = np.zeros((2, 100))
    >>> thetas[1, 70], thetas[0, 20] = 5.0, -3.0
    >>> rank_features(thetas, np.ones((2, 100)))[:3], rank_features(thetas[:, :3], np.ones((2, 3)))
    ([70, 20, 0], [0, 1, 2])
    """
    K, d = thetas.shape
    if d <= MOST_ROWS:
        return list(range(d))
    known = np.isfinite(errors) & (errors > 0.0)
    variance = np.where(known, errors, np.inf if known.any() else 1.0) ** 2
    pairs = [(k, m) for k in range(K) for m in range(k)] if K > 1 else [(0, None)]
    size = np.zeros(d)
    for k, m in pairs:
        difference = thetas[k] if m is None else thetas[k] - thetas[m]
        error = np.sqrt(variance[k] if m is None else variance[k] + variance[m])
        size = np.fmax(size, np.abs(difference) / error)
    order: list[int] = np.argsort(-size, kind="stable")[:MOST_ROWS].tolist()
    return order


def describe_remainder(thetas: FloatArray) -> list[str]:
    """Return the line below a table of rewards (K, d) that does not show all features, or no line."""
    left = thetas.shape[1] - MOST_ROWS
    if left <= 0:
        return []
    what = "smaller differences between intents" if len(thetas) > 1 else "smaller t-values"
    return [f"  ... {left} more features in to_dict(), with {what}"]


def explain_marks(
    status: NDArray[np.str_], thetas: FloatArray, errors: FloatArray, names: Sequence[str]
) -> Iterator[str]:
    """Yield the meaning of each mark in the printed table, for the status, values and errors (K, d) of rewards."""
    # A reward with an error has no mark.
    shown = np.where(np.isfinite(errors), "ok", status)[:, rank_features(thetas, errors)]
    for mark, meaning in MARKS.items():
        if np.any(shown == mark):
            yield f"({mark}) {meaning}"
    contrasts = np.flatnonzero(np.any(status == "contrast", axis=0))
    if contrasts.size:
        rewards = f"{contrasts.size} rewards ({names[contrasts[0]]}, ...)"
        yield f"{rewards} are relative to their mean, because only their differences are identified"


WALD_NOTE = "t, p: Wald tests that a reward is 0"


def format_estimate(value: float, error: float, status: str, t: float = math.nan, p: float = math.nan) -> Cells:
    """Format a reward and its error or status like `format_reward`, and the t-value and p-value if there are any.

    Examples
    --------
    >>> format_estimate(1.0986, 0.2582, "ok", 4.255, 2.1e-5)
    ('1.10', '± 0.26', '4.25', '2.1e-05')
    """
    cells = format_reward(value, error, status)
    return (*cells, f"{t:.2f}", f"{p:.2g}" if p < 0.001 else f"{p:.3f}") if math.isfinite(t) else cells


def _widths(rows: Sequence[Row], k: int) -> list[int]:
    columns = zip_longest(*(cells[k] for _, cells in rows), fillvalue="")
    return [max(map(len, column)) for column in columns]


def table_blocks(rows: list[Row]) -> Iterator[range]:
    """Yield ranges of intents whose columns fit into the width of the table."""
    K, names = len(rows[0][1]), max(len(name) for name, _ in rows) + 2
    first, used = 0, names
    for k in range(K):
        widths = _widths(rows, k)
        width = sum(widths) + 2 * len(widths)
        if k > first and used + width > _WIDEST:
            yield range(first, k)
            first, used = k, names
        used += width
    yield range(first, K)


def align_rows(rows: Sequence[Row], intents: range) -> Iterator[str]:
    """Yield the lines of a table with aligned columns for some intents."""
    names, widths = max(len(name) for name, _ in rows), [_widths(rows, k) for k in intents]
    for name, cells in rows:
        shown = (_align_cells(cells[k], own) for k, own in zip(intents, widths, strict=True))
        yield f"  {name:<{names}}{''.join(shown)}".rstrip()


def table_rows_html(rows: list[Row]) -> str:
    """Return the rows of an HTML table; values and errors share a cell, and t-values and p-values have their own."""
    parts, body = max(len(cell) for _, cells in rows for cell in cells), ""
    for i, (name, cells) in enumerate(rows):
        tag = "td" if i else "th"
        texts = (t for cell in cells for t in (" ".join(cell[:2]).strip(), *cell[2:], *[""] * (parts - len(cell))))
        body += f"<tr><th>{escape(name)}</th>{''.join(f'<{tag}>{escape(text)}</{tag}>' for text in texts)}</tr>"
    return body


def _align_cells(cells: tuple[str, ...], widths: list[int]) -> str:
    """Return a value, its error and further columns; only the error is left-aligned."""
    value, error, *others = [*cells, *[""] * (len(widths) - len(cells))]
    aligned = "".join(f"  {text:>{width}}" for text, width in zip(others, widths[2:], strict=True))
    return f"   {value:>{widths[0]}} {error:<{widths[1]}}{aligned}"


def to_plain(value: Any) -> Any:
    """Return JSON types: lists for arrays, None for nan."""
    if isinstance(value, np.ndarray):
        return to_plain(value.tolist())
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


_SHOWN = 20
# Recordings agree if the mean posterior of an intent is within this distance of 0 or 1.
_AGREED = 0.05
_PLURALS = {"demo": "demonstrations", "group": "groups", "agent": "agents"}


@dataclass(frozen=True, eq=False)
class GroupWeights:
    """Mixture weights of each group: the mean posterior of its demonstrations, with confidence intervals.

    Attributes
    ----------
    names, n_demos : (G,)
        Names of the groups, and their numbers of demonstrations.
    weights, low, high : (G, K)
        Mean posteriors, and the ends of their intervals; NaN for a group with a single recording.
    level : float
        Confidence level.
    """

    names: NDArray[Any]
    n_demos: NDArray[np.int64]
    weights: FloatArray
    low: FloatArray
    high: FloatArray
    level: float

    @classmethod
    def from_posterior(
        cls, posterior: FloatArray, groups: NDArray[Any], recordings: NDArray[Any], level: float = 0.95
    ) -> GroupWeights:
        """Return the weights per group, given the posterior (N, K), group (N,) and recording (N,) of demonstrations.

        Pieces of one recording are dependent, so standard errors are clustered by recording. Intervals use Student's t
        distribution. If all recordings agree, a weight is 0 or 1; the other end of its interval is then the one-sided
        confidence limit of a binomial proportion.

        Examples
        --------
        >>> U = np.array([[1.0, 0.0], [0.5, 0.5], [0.9, 0.1], [0.0, 1.0]])
        >>> print(GroupWeights.from_posterior(U, np.array(["a", "a", "a", "b"]), np.arange(4)))
        Mixture weights by group, with 95 % intervals clustered by recording:
        <BLANKLINE>
               group  demonstrations  intent 0           intent 1
                   a               3  80 % [14, 100]     20 % [0, 86]
                   b               1   0 %              100 %
        """
        units = Groups.from_labels(groups, len(posterior))
        weights = units.mean(posterior)
        _, recording = np.unique(recordings, return_inverse=True)
        residuals = posterior - units.broadcast(weights)
        low, high = np.full((2, *weights.shape), np.nan)
        for g in range(len(units)):
            own = units.index == g
            _, cluster = np.unique(recording[own], return_inverse=True)
            n = int(cluster.max()) + 1
            if n > 1:
                sums = np.zeros((n, posterior.shape[1]))
                np.add.at(sums, cluster, residuals[own])
                error = np.sqrt(n / (n - 1) * np.sum(sums**2, axis=0)) / np.count_nonzero(own)
                half = stdtrit(n - 1, 0.5 + level / 2.0) * error
                low[g], high[g] = np.maximum(weights[g] - half, 0.0), np.minimum(weights[g] + half, 1.0)
                # If all recordings agree, the standard error is 0: use the one-sided limit of a binomial proportion.
                limit = 1.0 - (1.0 - level) ** (1.0 / n)
                high[g] = np.where(weights[g] < _AGREED, np.maximum(high[g], limit), high[g])
                low[g] = np.where(weights[g] > 1.0 - _AGREED, np.minimum(low[g], 1.0 - limit), low[g])
        return cls(units.names, units.counts.astype(np.int64), weights, low, high, level)

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists for JSON, with None for nan."""
        return {field.name: to_plain(getattr(self, field.name)) for field in fields(self)}

    def __str__(self) -> str:
        K = self.weights.shape[1]
        head = "  ".join(f"{f'intent {k}':<17}" for k in range(K))
        bounded = bool(np.isfinite(self.low).any())
        rule = (
            f"{100 * self.level:g} % intervals clustered by recording"
            if bounded
            else "one recording each: no intervals"
        )
        title = f"Mixture weights by group, {'with ' * bounded}{rule}:"
        lines = [title, "", f"{'group':>12}  demonstrations  {head}".rstrip()]
        for g in range(min(len(self.names), _SHOWN)):
            cells = "  ".join(f"{self._cell(g, k):<17}" for k in range(K))
            lines.append(f"{self.names[g]!s:>12}  {self.n_demos[g]:>14}  {cells}".rstrip())
        if len(self.names) > _SHOWN:
            lines.append(f"{'...':>12}  {len(self.names) - _SHOWN} more")
        return escape_controls("\n".join(lines))

    def _cell(self, g: int, k: int) -> str:
        value, low, high = (100.0 * table[g, k] for table in (self.weights, self.low, self.high))
        return f"{value:3.0f} %" + (f" [{low:.0f}, {high:.0f}]" if math.isfinite(low) else "")


@dataclass(frozen=True, eq=False)
class Membership:
    """Table of posteriors: name, most probable intent, posterior (G, K) and log-likelihood of each unit.

    `keys` are further columns: the group of each demonstration, and its first and last time. `groups` are the mixture
    weights of groups of demonstrations.
    """

    unit: str
    names: NDArray[Any]
    intent: NDArray[np.int64]
    posterior: NDArray[np.float64]
    log_likelihood: NDArray[np.float64]
    keys: dict[str, NDArray[Any]] = field(default_factory=dict)
    groups: GroupWeights | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists for JSON."""
        columns = {self.unit: self.names} | self.keys
        plain = {name: _as_text(values).tolist() for name, values in columns.items()}
        plain |= {name: getattr(self, name).tolist() for name in ("intent", "posterior", "log_likelihood")}
        return plain if self.groups is None else plain | {"group_weights": self.groups.to_dict()}

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one row per unit and one probability column per intent."""
        return to_pandas(self._columns() | {"log_likelihood": self.log_likelihood})

    def _columns(self) -> dict[str, Any]:
        columns: dict[str, Any] = {self.unit: self.names, **self.keys, "intent": self.intent}
        return columns | {f"probability_{k}": column for k, column in enumerate(self.posterior.T)}

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write a .csv or .parquet file with one probability column per intent, atomically.

        In a CSV file, names that a spreadsheet would evaluate as formulas have a leading apostrophe.
        """
        write_columns(self._columns() | {"log_likelihood": self.log_likelihood}, path)

    def __str__(self) -> str:
        n, K = self.posterior.shape
        counts = np.bincount(self.intent, minlength=K)
        sizes = ", ".join(f"intent {k}: {count}" for k, count in enumerate(counts))
        noun = _PLURALS[self.unit][: -1 if n == 1 else None]
        lines = [f"{n} {noun} ({sizes})", ""]
        keys = {name: [str(x) for x in _as_text(values[:_SHOWN]).tolist()] for name, values in self.keys.items()}
        widths = {name: max(map(len, (name, *values))) for name, values in keys.items()}
        head = "".join(f"{name:>{width}}  " for name, width in widths.items())
        lines.append(f"{self.unit:>12}  {head}intent  {'  '.join(f'p({k})' for k in range(K))}  log-likelihood")
        for i in range(min(n, _SHOWN)):
            posterior = " ".join(f"{p:5.3f}" for p in self.posterior[i])
            key = "".join(f"{keys[name][i]:>{width}}  " for name, width in widths.items())
            lines.append(
                f"{self.names[i]!s:>12}  {key}{self.intent[i]:>6}  {posterior}  {self.log_likelihood[i]:14.3f}"
            )
        if n > _SHOWN:
            lines.append(f"{'...':>12}  {n - _SHOWN} more")
        return escape_controls("\n".join([*lines, "", str(self.groups)] if self.groups is not None else lines))


def _as_text(values: NDArray[Any]) -> NDArray[Any]:
    return values.astype(np.str_) if values.dtype.kind in "mM" else values


def write_columns(columns: dict[str, NDArray[Any]], path: str | os.PathLike[str]) -> None:
    """Write columns to a .csv or .parquet file, atomically; in a CSV file, formulas have a leading apostrophe."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet as pq

    check_suffix(path)
    as_csv = as_path(path).suffix == ".csv"
    shown: dict[str, Any] = dict(columns)
    if as_csv:
        text = {name: values.tolist() for name, values in columns.items() if values.dtype.kind == "U"}
        shown |= {name: [escape_formula(value) for value in values] for name, values in text.items()}
    table = pa.table({name: pa.array(values) for name, values in shown.items()})
    with atomic_write(path) as scratch, scratch.open("wb") as stream:
        if as_csv:
            pyarrow.csv.write_csv(table, stream)
        else:
            pq.write_table(table, stream)


def check_suffix(path: str | os.PathLike[str]) -> None:
    """Raise unless `write_columns` can write to this path."""
    if as_path(path).suffix not in (".csv", ".parquet"):
        raise InvalidFile(f"{path} must end in .csv or .parquet.", parameter="path", value=path)
    if not Path(path).parent.is_dir():
        raise InvalidFile(f"The folder {Path(path).parent} does not exist. Create it.", parameter="path", value=path)


def membership_table(
    mixture: IntentMixture,
    demos: Any,
    groups: ArrayLike | None = None,
    *,
    covariates: Any = None,
    partial: bool = False,
) -> Membership:
    """Return the table of posteriors over intents, with one row per demonstration, agent or group.

    Rows of demonstrations have their group, and their first and last time if times were recorded.

    Examples
    --------
    >>> from limiirl import MDP, Demonstrations, IntentMixture, MaxEnt
    >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0], [1], [-1]])
    >>> demos = Demonstrations.from_lists([[0, 1], [0, 1], [0, 2]])
    >>> mix = IntentMixture(2, MaxEnt(bounds=(-3, 3)), init=[0, 0, 1]).fit(mdp, demos)
    >>> print(membership_table(mix, demos))
    3 demonstrations (intent 0: 2, intent 1: 1)
    <BLANKLINE>
            demo  intent  p(0)  p(1)  log-likelihood
               0       0  0.999 0.001          -0.454
               1       0  0.999 0.001          -0.454
               2       1  0.005 0.995          -1.147
    """
    if type(demos).__name__ not in ("Demonstrations", "Agents"):
        raise InvalidDemos.of("demos", type(demos).__name__, "must be Demonstrations or Agents")
    if not hasattr(mixture, "thetas_"):
        raise NotFitted(f"mixture must be a fitted mixture; got {type(mixture).__name__}.", parameter="mixture")
    units = Groups.from_labels(groups, len(demos))
    posterior = mixture.predict_proba(demos, groups, covariates=covariates, partial=partial)
    log_likelihood = mixture.score_samples(demos, groups, covariates=covariates, partial=partial)
    known = demos.names if isinstance(demos, Agents) else demos.ids
    names = np.arange(len(demos)) if known is None else known
    if units.index is not None:
        _, first = np.unique(units.index, return_index=True)
        posterior, names = posterior[first], units.names
    unit = "group" if units.grouped else "agent" if isinstance(demos, Agents) else "demo"
    keys, weights = {}, None
    if isinstance(demos, Demonstrations) and not units.grouped:
        if demos.groups is not None:
            keys["group"] = demos.groups
            weights = GroupWeights.from_posterior(posterior, demos.groups, names) if len(demos) else None
        if demos.times is not None:
            keys |= {"start": demos.times[demos.offsets[:-1]], "stop": demos.times[demos.offsets[1:] - 1]}
    intent = np.argmax(posterior, axis=1)
    return Membership(unit, names, intent, posterior, log_likelihood, keys, weights)
