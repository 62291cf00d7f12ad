"""`SwitchingSummary` of a fitted `SwitchingMixture`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from limiirl._io import to_pandas
from limiirl._typing import FloatArray
from limiirl.errors import DivergentPartition, NumericalError
from limiirl.mixture import (
    WALD_NOTE,
    align_rows,
    describe_model,
    describe_remainder,
    explain_marks,
    feature_names,
    format_estimate,
    format_reward,
    free_parameters,
    rank_features,
    table_blocks,
    table_rows_html,
    to_plain,
    wald_statistics,
)
from limiirl.switching.dynamics import DwellTimes
from limiirl.switching.information import SwitchingErrors
from limiirl.switching.problem import SwitchingProblem
from limiirl.switching.transitions import COVARIATES, HOMOGENEOUS

if TYPE_CHECKING:
    from limiirl.switching.estimator import SwitchingMixture

_NO_ERRORS = "no standard errors: see standard_errors()"
# A name, and for each intent a value, its error or status, and optionally its t-value and p-value.
Row = tuple[str, Sequence[tuple[str, ...]]]


@dataclass(frozen=True, eq=False)
class SwitchingSummary:
    """Summary of a fitted `SwitchingMixture`: prints as text, is shown as a table in notebooks, and has `to_dict()`.

    Attributes
    ----------
    n_intents, n_demos, n_steps : int
    model, switching, init, convergence, starts : str
    converged, n_iter, log_likelihood, bic, n_free
        `log_likelihood` is per step.
    shares, stationary, initial : (K,)
        Expected fraction of the steps, stationary distribution, and probabilities of the first intent.
    dwell_times : (K,)
        Expected number of steps, 1 / (1 - P_kk).
    n_segments, mean_segment : (K,) or None
        Number and mean length of the segments of the most probable sequences; None without demonstrations.
    transition : (K, K)
        `mean_transition_`.
    covariate_names, coefficients : (m,), (K, m)
        B, for standardised covariates.
    feature_names : tuple of str
    thetas, status : (K, d)
        Rewards, and "ok" or the reason why a reward has no standard error (see `StandardErrors`).
    initial_errors, dwell_errors, transition_errors, coefficient_errors, errors : (K,), (K,), (K, K), (K, m), (K, d)
        Standard errors of `initial`, `dwell_times`, `transition`, `coefficients` and `thetas`; nan if unavailable.
        If transitions depend on states or covariates, their mean has no standard errors; see
        `SwitchingMixture.standard_errors`.
    method : str
        Method of the standard errors; empty without them.
    n_starts, n_best : int
        Number of initialisations, and of those that reached the best objective.
    total_log_likelihood, null_log_likelihood : float
        Sum over steps; and the sum for the null model theta = 0 (nan if it is not available).
    initial_names, initial_coefficients, initial_coefficient_errors : (m,), (K, m), (K, m)
        Coefficients of the first intent, for standardised covariates, relative to intent 0; empty if its probabilities
        are constant.

    Examples
    --------
    >>> from limiirl import MDP, Demonstrations, MaxCausalEnt, SwitchingMixture
    >>> mdp = MDP.from_edges([0, 0], [0, 0], action=[0, 1], gamma=0.9, action_features=[[1.0], [0.0]])
    >>> demos = Demonstrations.from_lists([[0] * 41] * 2, [[0] * 20 + [1] * 20, [1] * 20 + [0] * 20])
    >>> sw = SwitchingMixture(2, MaxCausalEnt(ridge=1e-3), random_state=0).fit(mdp, demos)
    >>> sw.summary(demos).dwell_times.round(1).tolist(), sw.summary(demos).mean_segment.tolist()
    ([39.0, 39.0], [20.0, 20.0])
    """

    n_intents: int
    n_demos: int
    n_steps: int
    model: str
    switching: str
    init: str
    convergence: str
    starts: str
    converged: bool
    n_iter: int
    log_likelihood: float
    bic: float
    n_free: int
    shares: FloatArray
    stationary: FloatArray
    initial: FloatArray
    dwell_times: FloatArray
    n_segments: NDArray[np.int64] | None
    mean_segment: FloatArray | None
    transition: FloatArray
    covariate_names: tuple[str, ...]
    coefficients: FloatArray
    feature_names: tuple[str, ...]
    thetas: FloatArray
    status: NDArray[np.str_]
    initial_errors: FloatArray
    dwell_errors: FloatArray
    transition_errors: FloatArray
    coefficient_errors: FloatArray
    errors: FloatArray
    method: str
    n_starts: int
    n_best: int
    total_log_likelihood: float
    null_log_likelihood: float
    initial_names: tuple[str, ...]
    initial_coefficients: FloatArray
    initial_coefficient_errors: FloatArray

    @property
    def t_values(self) -> FloatArray:
        """Rewards (K, d) divided by their errors."""
        return wald_statistics(self.thetas, self.errors)[0]

    @property
    def p_values(self) -> FloatArray:
        """Two-sided p-values (K, d) of the hypothesis that a reward is 0."""
        return wald_statistics(self.thetas, self.errors)[1]

    @property
    def rho_squared(self) -> float:
        """McFadden's 1 - log L / log L_0, where L_0 is the likelihood of the null model theta = 0."""
        null = self.null_log_likelihood
        return 1.0 - self.total_log_likelihood / null if null < 0.0 else math.nan

    @property
    def unit(self) -> str:
        """Plural noun of the units of `log_likelihood`."""
        return "steps"

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON types, with lists for arrays and None for nan."""
        plain = {field.name: to_plain(getattr(self, field.name)) for field in fields(self)}
        return plain | {name: to_plain(getattr(self, name)) for name in ("rho_squared", "t_values", "p_values")}

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with the columns intent, parameter, name, value, standard_error, t, p and status.

        t and p are those of Wald tests of rewards and coefficients against 0.

        `parameter` is "share", "stationary", "dwell_time", "initial", "transition" (to the intent `name`),
        "coefficient" (of the covariate `name`, on the log odds of switching to the intent) or "reward" (of the feature
        `name`).
        """
        K = self.n_intents
        blocks = [
            ("share", ("",), self.shares, None),
            ("stationary", ("",), self.stationary, None),
            ("dwell_time", ("",), self.dwell_times, self.dwell_errors),
            ("initial", ("",), self.initial, self.initial_errors),
            ("initial_coefficient", self.initial_names, self.initial_coefficients, self.initial_coefficient_errors),
            ("transition", tuple(map(str, range(K))), self.transition, self.transition_errors),
            ("coefficient", self.covariate_names, self.coefficients, self.coefficient_errors),
            ("reward", self.feature_names, self.thetas, self.errors),
        ]
        tested = ("reward", "coefficient", "initial_coefficient")
        names = ("intent", "parameter", "name", "value", "standard_error", "t", "p", "status")
        columns: dict[str, list[Any]] = {name: [] for name in names}
        for parameter, labels, values, errors in blocks:
            columns["intent"] += np.repeat(np.arange(K), len(labels)).tolist()
            columns["parameter"] += [parameter] * values.size
            columns["name"] += labels * K
            columns["value"] += values.ravel().tolist()
            columns["standard_error"] += [np.nan] * values.size if errors is None else errors.ravel().tolist()
            known = errors if errors is not None and parameter in tested else np.full(values.shape, np.nan)
            for column, statistics in zip(("t", "p"), wald_statistics(values, known), strict=True):
                columns[column] += statistics.ravel().tolist()
            columns["status"] += self.status.ravel().tolist() if parameter == "reward" else ["ok"] * values.size
        return to_pandas(columns)

    def __str__(self) -> str:
        lines = [self._title(), *(f"  {name:<16}{text}" for name, text in self._head())]
        rows = list(self._rows())
        for intents in table_blocks(rows):
            lines += ["", *align_rows(rows, intents)]
        lines += describe_remainder(self.thetas)
        return "\n".join([*lines, "", *(f"  {note}" for note in self._notes())]).rstrip()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = "".join(f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in self._head())
        body = table_rows_html(list(self._rows()))
        notes = "<br>".join(escape(note) for note in self._notes())
        return f"<p><b>{escape(self._title())}</b></p><table>{head}</table><table>{body}</table><p>{notes}</p>"

    def _title(self) -> str:
        intents = f"{self.n_intents} intent" + ("" if self.n_intents == 1 else "s")
        demos = f"{self.n_demos:,} demonstration" + ("" if self.n_demos == 1 else "s")
        return f"SwitchingMixture: {intents} in {self.n_steps:,} steps of {demos}"

    def _head(self) -> Iterator[tuple[str, str]]:
        yield "model", self.model
        yield "switching", self.switching
        yield "init", self.init
        yield "EM", self.convergence
        yield "initialisations", self.starts
        yield "log-likelihood", f"{self.log_likelihood:.4f} per step, {self.total_log_likelihood:.2f} in total"
        if math.isfinite(self.rho_squared):
            null = self.null_log_likelihood
            yield "rho-squared", f"{self.rho_squared:.4f}, against theta = 0 (log-likelihood {null:.2f})"
        yield "BIC", f"{self.bic:.1f}, with {self.n_free} free parameter" + ("" if self.n_free == 1 else "s")

    def _rows(self) -> Iterator[Row]:
        tested = ("t", "p") if np.any(np.isfinite(self.t_values)) else ()
        yield "", [("intent", str(k), *tested) for k in range(self.n_intents)]
        yield "share of steps", [(f"{100 * x:.1f} %", "") for x in self.shares]
        yield "stationary share", [(f"{100 * x:.1f} %", "") for x in self.stationary]
        dwell = zip(self.dwell_times, self.dwell_errors, strict=True)
        yield "expected dwell time", [format_reward(*cell, "ok") for cell in dwell]
        if self.n_segments is not None and self.mean_segment is not None:
            yield "segments", [(str(n), "") for n in self.n_segments]
            yield "mean length", [(f"{x:.4g}" if math.isfinite(x) else "-", "") for x in self.mean_segment]
        yield "first intent", [_percent(*cell) for cell in zip(self.initial, self.initial_errors, strict=True)]
        for c, name in enumerate(self.initial_names):
            values, errors = self.initial_coefficients[:, c], self.initial_coefficient_errors[:, c]
            yield f"first intent: {name}", _estimates(values, errors)
        for k in range(self.n_intents):
            cells = zip(self.transition[:, k], self.transition_errors[:, k], strict=True)
            yield f"followed by {k}", [_percent(*cell) for cell in cells]
        for c, name in enumerate(self.covariate_names):
            values, errors = self.coefficients[:, c], self.coefficient_errors[:, c]
            yield f"towards it: {name}", _estimates(values, errors)
        columns = (self.thetas, self.errors, self.status, self.t_values, self.p_values)
        for j in rank_features(self.thetas, self.errors):
            by_intent = zip(*(column[:, j] for column in columns), strict=True)
            yield self.feature_names[j], [format_estimate(*cell) for cell in by_intent]

    def _notes(self) -> Iterator[str]:
        yield f"± one standard error, from the {self.method}" if self.method else _NO_ERRORS
        if np.any(np.isfinite(self.t_values)):
            yield WALD_NOTE
        yield from explain_marks(self.status, self.thetas, self.errors, self.feature_names)


def _estimates(values: FloatArray, errors: FloatArray) -> list[tuple[str, ...]]:
    tests = zip(values, errors, *wald_statistics(values, errors), strict=True)
    return [format_estimate(x, error, "ok", t, p) for x, error, t, p in tests]


def _percent(value: float, error: float) -> tuple[str, str]:
    return f"{100 * value:.2f} %", f"± {100 * error:.2f}" if math.isfinite(error) else ""


def null_log_likelihood(problem: SwitchingProblem) -> float:
    """Return the log-likelihood of the decisions if theta = 0 for every intent, or nan if the values diverge."""
    try:
        log_emission = problem.log_emission(np.zeros((1, problem.mdp.n_features)))
    except (DivergentPartition, NumericalError):
        return math.nan
    return float(log_emission[problem.decisions.number, 0].sum())


def summarise_switching(
    mixture: SwitchingMixture,
    dwell: DwellTimes | None = None,
    measured: SwitchingErrors | None = None,
    log_likelihoods: tuple[float, float] | None = None,
) -> SwitchingSummary:
    """Return the summary of a fitted mixture, with what is available of demonstrations.

    This is their dwell times, the standard errors, and their total log-likelihood and that of the null model.
    """
    total, null = (mixture.log_likelihood_ * mixture.n_steps_, math.nan) if log_likelihoods is None else log_likelihoods
    K, d = mixture.thetas_.shape
    names = () if mixture.covariates_ is None else mixture.covariates_.names
    covariates = names if mixture.switching == COVARIATES else ()
    first = np.zeros((K, 0)) if mixture.initial_logits_ is None else mixture.initial_logits_[:, 1:]
    first_errors = np.full(first.shape, np.nan)
    if measured is not None and measured.initial_logits is not None:
        first_errors = measured.initial_logits[:, 1:]
    coefficients = mixture.logits_.B if covariates else np.zeros((K, 0))
    transition_errors = np.full((K, K), np.nan)
    if measured is not None and mixture.switching == HOMOGENEOUS:
        transition_errors = measured.transition
    coefficient_errors = np.full(coefficients.shape, np.nan)
    if measured is not None and covariates:
        coefficient_errors = measured.B
    errors = np.full((K, d), np.nan) if measured is None else measured.thetas
    free = free_parameters(mixture.irl_, mixture.mdp_, mixture.shares_, mixture.thetas_, mixture.n_steps_)
    return SwitchingSummary(
        n_intents=K,
        n_demos=mixture.n_demos_,
        n_steps=mixture.n_steps_,
        model=describe_model(mixture.irl_),
        switching=_describe_switching(mixture),
        init=mixture.init if isinstance(mixture.init, str) else f"a given {type(mixture.init).__name__}",
        convergence=_describe_convergence(mixture),
        starts=_describe_starts(mixture),
        converged=bool(mixture.converged_),
        n_iter=int(mixture.n_iter_),
        log_likelihood=mixture.log_likelihood_,
        bic=mixture.bic(),
        n_free=mixture.n_free_,
        shares=mixture.shares_,
        stationary=mixture.stationary_,
        initial=mixture.initial_,
        dwell_times=mixture.dwell_times_,
        n_segments=None if dwell is None else dwell.n_segments,
        mean_segment=None if dwell is None else dwell.mean,
        transition=mixture.mean_transition_,
        feature_names=feature_names(mixture.mdp_, d),
        thetas=mixture.thetas_,
        covariate_names=covariates,
        coefficients=coefficients,
        status=free.status if measured is None else measured.status,
        initial_errors=np.full(K, np.nan) if measured is None else measured.initial,
        dwell_errors=np.diag(transition_errors) * mixture.dwell_times_**2,  # delta method
        transition_errors=transition_errors,
        coefficient_errors=coefficient_errors,
        errors=errors,
        method="" if measured is None else measured.method,
        n_starts=len(mixture.restarts_),
        n_best=sum(run.best for run in mixture.restarts_),
        total_log_likelihood=total,
        null_log_likelihood=null,
        initial_names=names if first.size else (),
        initial_coefficients=first,
        initial_coefficient_errors=first_errors,
    )


def _describe_switching(mixture: SwitchingMixture) -> str:
    if mixture.switching == HOMOGENEOUS:
        return "the same probabilities at every step"
    ridge = f"ridge {mixture.switching_ridge:g}"
    if mixture.switching == COVARIATES and mixture.covariates_ is not None:
        return f"by {', '.join(mixture.covariates_.names)}, {ridge}"
    return f"by state, {ridge}"


def _describe_convergence(mixture: SwitchingMixture) -> str:
    n = f"{mixture.n_iter_} iteration" + ("" if mixture.n_iter_ == 1 else "s")
    if mixture.converged_:
        return f"converged after {n}"
    if mixture.n_iter_ == 0:
        return "not run (max_iter=0): initial parameters"
    return f"not converged after {n}. Raise max_iter or tol."


def _describe_starts(mixture: SwitchingMixture) -> str:
    runs = mixture.restarts_
    if len(runs) == 1:
        return "1; raise n_init to compare several" if isinstance(mixture.init, str) else "1, given"
    return f"{sum(run.best for run in runs)} of {len(runs)} reached the best objective"
