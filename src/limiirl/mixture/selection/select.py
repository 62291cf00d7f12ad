"""`select_intents`: selection of the number of intents, with a table and a figure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Protocol, cast, overload, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from limiirl._io import to_pandas
from limiirl._parallel import Mapper, map_tasks
from limiirl._progress import Progress, check_progress, report_progress
from limiirl._typing import FloatArray
from limiirl.demos import Demonstrations
from limiirl.errors import InvalidParameter, LimiirlError, SelectionInterrupted
from limiirl.irl import make_problem
from limiirl.mixture.em import nearly_empty
from limiirl.mixture.estimator import IntentMixture
from limiirl.mixture.init import embed
from limiirl.mixture.selection.cross_validation import (
    FOLD,
    RESAMPLE,
    STICK_BREAKING,
    WHOLE,
    Notes,
    RefitResult,
    RefitRunner,
    RefitTask,
    SelectionProblem,
    Tick,
    agreement,
    check_numbers,
    refit_tasks,
    score_held_out,
)
from limiirl.mixture.selection.recommend import SelectionRow, compare_held_out, explain, recommend, stick_breaking

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Selection:
    """Result of `select_intents`; prints as a table with the recommendation below it.

    Attributes
    ----------
    rows : tuple of SelectionRow
        One per number of intents, in ascending order.
    recommended : int
    recommendations : dict
        Number of intents for each available criterion: "held_out", "bic", "icl", "aic", "stability", "stick_breaking".
    reason : str
        The rule behind the recommendation, the criteria that agree or differ, and cautions.
    mixtures : dict
        The `IntentMixture` fitted to all demonstrations for each number of intents, without failed fits.
    noun : str
        "demonstrations" or "groups".
    missing : tuple of int
        Numbers of intents that are not compared, because the comparison was interrupted.

    Examples
    --------
    >>> row = SelectionRow(1, log_likelihood=-2.0, bic=12.0)
    >>> selection = Selection((row,), 1, {"bic": 1}, "1 intent, by BIC.", {})
    >>> selection.to_dict()["rows"][0]["bic"]
    12.0
    """

    rows: tuple[SelectionRow, ...]
    recommended: int
    recommendations: dict[str, int]
    reason: str
    mixtures: dict[int, IntentMixture]
    noun: str = "demonstrations"
    missing: tuple[int, ...] = ()

    @property
    def best(self) -> IntentMixture:
        """The mixture with the recommended number of intents, fitted to all demonstrations."""
        return self.mixtures[self.recommended]

    def table(self) -> str:
        """Return the rows as text; a star marks the optimum of each criterion, an arrow the recommendation."""
        shown = ("log_likelihood", "held_out", "behind", "bic", "icl", "aic", "stability")
        heads = ("K", "log-likelihood", "held out", "behind best", "BIC", "ICL", "AIC", "stability", "")
        lines = [list(heads)]
        for row in self.rows:
            cells = [self._cell(row, name) for name in shown]
            lines.append([str(row.n_intents), *cells, self._remarks(row)])
        widths = [max(len(line[j]) for line in lines) for j in range(len(heads))]
        # Numbers are right-aligned, remarks left-aligned.
        return "\n".join(
            "  ".join([*(cell.rjust(width) for cell, width in zip(line[:-1], widths, strict=False)), line[-1]]).rstrip()
            for line in lines
        )

    def _cell(self, row: SelectionRow, name: str) -> str:
        value = getattr(row, name)
        if not math.isfinite(value):
            return "- "
        digits = {"bic": 1, "icl": 1, "aic": 1, "stability": 2}.get(name, 3)
        error = {"held_out": row.held_out_se, "behind": row.behind_se}.get(name)
        text = f"{value:.{digits}f}" + ("" if error is None else f" ± {error:.3f}")
        return text + ("*" if self.recommendations.get(name) == row.n_intents else " ")

    def _remarks(self, row: SelectionRow) -> str:
        remarks = []
        if row.n_intents == self.recommended:
            remarks.append("<- recommended")
        if row.n_intents in self.mixtures and not row.converged:
            remarks.append("did not converge")
        if row.n_empty:
            remarks.append(f"{row.n_empty} nearly empty")
        if row.n_warnings:
            remarks.append(f"{row.n_warnings} {'warning' if row.n_warnings == 1 else 'warnings'}")
        if row.error:
            remarks.append(f"failed: {row.error}")
        return ", ".join(remarks)

    def __str__(self) -> str:
        number = self.recommendations.get("stick_breaking")
        gmm = [] if number is None else [f"Stick-breaking GMM: {number}"]
        absent = ", ".join(map(str, self.missing))
        partial = [f"Interrupted: K = {absent} not compared. Recommendation among the other numbers:"] * bool(absent)
        return "\n".join([self.table(), *gmm, *partial, self.reason])

    def to_dict(self) -> dict[str, Any]:
        """Return everything except the mixtures as JSON types, with None for unavailable criteria."""
        rows = [
            {name: None if isinstance(x, float) and not math.isfinite(x) else x for name, x in asdict(row).items()}
            | {"warnings": list(row.warnings)}
            for row in self.rows
        ]
        return {
            "recommended": self.recommended,
            "recommendations": dict(self.recommendations),
            "reason": self.reason,
            "unit": self.noun,
            "rows": rows,
            "missing": list(self.missing),
        }

    def to_frame(self) -> Any:
        """Return the rows as a pandas DataFrame with one row per number of intents and one column per criterion.

        Examples
        --------
        >>> Selection((SelectionRow(1, bic=12.0),), 1, {"bic": 1}, "1 intent, by BIC.", {}).to_frame().loc[0, "bic"]
        np.float64(12.0)
        """
        names = [field.name for field in fields(SelectionRow) if field.name != "warnings"]
        columns: dict[str, Any] = {name: [getattr(row, name) for row in self.rows] for name in names}
        return to_pandas(columns | {"recommended": [row.n_intents == self.recommended for row in self.rows]})

    def plot(self, ax: Axes | None = None) -> Figure:
        """Draw one panel per criterion, or only the most reliable criterion if `ax` is given."""
        return draw(self, ax)


@runtime_checkable
class SelectsIntents(Protocol):
    """An estimator with its own selection of the number of intents, such as `SwitchingMixture`."""

    def select(self, mdp: Any, demos: Demonstrations, n_intents: Iterable[int], **options: Any) -> Any:
        """Compare numbers of intents."""
        ...


@overload
def select_intents(
    mdp: Any,
    demos: Demonstrations,
    n_intents: Iterable[int] = ...,
    *,
    irl: Any = ...,
    mixture: IntentMixture | None = ...,
    groups: ArrayLike | None = ...,
    fold_groups: ArrayLike | None = ...,
    covariates: Any = ...,
    folds: int = ...,
    resamples: int = ...,
    seed: Any = ...,
    verbose: bool = ...,
    progress: Progress | None = ...,
    executor: Mapper | None = ...,
) -> Selection: ...


@overload
def select_intents(
    mdp: Any, demos: Demonstrations, n_intents: Iterable[int] = ..., *, mixture: SelectsIntents, **options: Any
) -> Any: ...


def select_intents(  # noqa: PLR0913 (the data, and independent options with defaults)
    mdp: Any,
    demos: Demonstrations,
    n_intents: Iterable[int] = range(1, 7),
    *,
    irl: Any = None,
    mixture: Any = None,
    groups: ArrayLike | None = None,
    fold_groups: ArrayLike | None = None,
    covariates: Any = None,
    folds: int = 5,
    resamples: int = 10,
    seed: Any = None,
    verbose: bool = False,
    progress: Progress | None = None,
    executor: Mapper | None = None,
    **options: Any,
) -> Any:
    """Fit mixtures with several numbers of intents, and recommend a number.

    Criteria: BIC, AIC, ICL, cross-validated likelihood, stability of labels under resampling, and the number of
    clusters of the paper's stick-breaking GMM. The recommendation is the number with the lowest BIC among those whose
    held-out likelihood is within two standard errors, or one nat in total, of the best; numbers with nearly empty
    intents are excluded. A failed fit affects only its own row. Ctrl-C raises `limiirl.errors.SelectionInterrupted`, a
    KeyboardInterrupt whose `selection` compares the numbers of intents whose fit and folds are complete.

    Parameters
    ----------
    mdp : MDP
    demos : Demonstrations
    n_intents : iterable of int
        Numbers to try; 1 is always included.
    irl : model, optional
        Single-intent model; by default the model of `mixture`, or the choice of `limiirl.irl.default_model`.
    mixture : IntentMixture or SwitchingMixture, optional
        Template for all other parameters except `progress` and `verbose`. `max_length=None` is resolved from all
        demonstrations, so that the model is the same in every fold. For a `SwitchingMixture` the result is that of
        `select_switching`, whose `ridges`, `switching_ridges`, `gammas`, `outer_folds` and `n_errors` are also
        accepted.
    groups : (N,), optional
        Group of each demonstration, as for `IntentMixture.fit`. No group is split between folds.
    fold_groups : (N,), optional
        Groups of demonstrations that are held out together, for example the parts of one recording. Demonstrations of a
        group may differ in intent. Standard errors are clustered by these groups.
    covariates : array, data frame, pyarrow Table or mapping of columns, optional
        Covariates of the mixture weights, as for `IntentMixture.fit`, or of the steps, as for `SwitchingMixture.fit`.
        Held-out demonstrations are scored with the weights that their covariates predict.
    folds : int
        Number of cross-validation folds; 0 disables cross-validation.
    resamples : int
        Number of fits to random subsets of 80 % of the units, from which the stability is computed; 0 disables them.
    seed : int, Generator, RandomState or None
        By default the `random_state` of the mixture. Results for one number of intents do not depend on the other
        numbers, except for the stick-breaking GMM.
    verbose : bool
        Show the progress on stderr: a bar on a terminal, lines elsewhere.
    progress : callable, optional
        Called as ``progress(done, total, message)`` after each fit.
    executor : limiirl.executors.Executor or concurrent.futures.Executor, optional
        Runs the fits in parallel. The result is the same, bit for bit.

    Examples
    --------
    >>> from limiirl import MDP, Demonstrations, MaxEnt, select_intents
    >>> mdp = MDP.from_edges([0, 0, 1, 1, 2, 2], [1, 2, 1, 2, 2, 1], p0=[1, 0, 0])
    >>> demos = Demonstrations.from_lists([[0, 1, 1, 1]] * 8 + [[0, 2, 2, 2]] * 8)
    >>> irl = MaxEnt(bounds=(-3, 3))
    >>> selection = select_intents(mdp, demos, [1, 2], irl=irl, folds=4, resamples=3, seed=0)
    >>> selection.recommended, selection.best.weights_
    (2, array([0.5, 0.5]))
    """
    check_progress(progress)
    if isinstance(mixture, SelectsIntents):
        given = {"irl": irl, "groups": groups if fold_groups is None else fold_groups, "folds": folds, "seed": seed}
        common = {"covariates": covariates, "verbose": verbose, "progress": progress, "executor": executor}
        return mixture.select(mdp, demos, n_intents, **given, **common, **options)
    if options:
        name = next(iter(options))
        raise InvalidParameter.of(name, options[name], "requires mixture=SwitchingMixture(...)")
    problem = SelectionProblem.from_data(_template(mixture, irl), mdp, demos, groups, seed, fold_groups, covariates)
    numbers = check_numbers(n_intents)
    problem.check(numbers[-1], folds, resamples)
    total, done = len(numbers) * (1 + folds + resamples) + 1, 0
    with report_progress("fits", verbose, progress) as report:

        def tick(message: str) -> None:
            nonlocal done
            done += 1
            if report is not None:
                report(done, total, message)

        results: dict[RefitTask, RefitResult] = {}
        try:
            _run_fits(problem, numbers, (folds, resamples), executor, tick, results)
            stick_breaking_gmm = _count_clusters(problem, numbers[-1])
        except KeyboardInterrupt:
            partial = _summarise_complete(problem, numbers, results, folds, resamples)
            if partial is None:
                raise
            raise SelectionInterrupted(partial) from None
        tick("stick-breaking GMM")
    return _summarise(problem, numbers, results, folds, stick_breaking_gmm)


def _template(mixture: Any, irl: Any) -> IntentMixture:
    """Return the mixture with the parameters of all fits."""
    if mixture is not None and not isinstance(mixture, IntentMixture):
        raise InvalidParameter.of("mixture", mixture, "must be an IntentMixture, a SwitchingMixture or None")
    template = IntentMixture() if mixture is None else mixture
    if irl is None:
        return template
    if template.irl is not None:
        raise InvalidParameter("Pass either irl or a mixture with a model, not both.", parameter="irl", value=irl)
    return cast("IntentMixture", clone(template).set_params(irl=irl))


def _summarise(
    problem: SelectionProblem,
    numbers: list[int],
    results: dict[RefitTask, RefitResult],
    folds: int,
    stick_breaking_gmm: int | None,
) -> Selection:
    rows, scores, mixtures = [], {}, {}
    for k in numbers:
        row, scores[k], fitted = _row(problem, k, results, folds)
        rows.append(row)
        if fitted is not None:
            mixtures[k] = fitted
    rows = compare_held_out(rows, scores, problem.blocks)
    recommendations = recommend(rows, stick_breaking_gmm)
    recommended, reason = explain(rows, recommendations, problem.units.noun)
    return Selection(tuple(rows), recommended, recommendations, reason, mixtures, problem.units.noun)


def _summarise_complete(
    problem: SelectionProblem, numbers: list[int], results: dict[RefitTask, RefitResult], folds: int, resamples: int
) -> Selection | None:
    """Return the comparison of the numbers of intents whose fit and folds are complete, or None if there are none."""
    complete = []
    for k in numbers:
        tasks = [RefitTask(k, WHOLE), *(RefitTask(k, FOLD, i) for i in range(folds))]
        if all(task in results for task in tasks) and results[tasks[0]].value is not None:
            complete.append(k)
    if not complete:
        return None
    kept = {
        task: result
        for task, result in results.items()
        if task.kind != RESAMPLE or RefitTask(task.n_intents, RESAMPLE, resamples - 1) in results
    }
    missing = tuple(k for k in numbers if k not in complete)
    return replace(_summarise(problem, complete, kept, folds, None), missing=missing)


def _run_fits(
    problem: SelectionProblem,
    numbers: list[int],
    refits: tuple[int, int],
    executor: Mapper | None,
    tick: Tick,
    results: dict[RefitTask, RefitResult],
) -> None:
    """Add the results of all tasks, in order, to `results`; `refits` are the numbers of folds and of resamples."""
    failed: set[int] = set()
    for fit in map_tasks(RefitRunner(problem, refits[0]), refit_tasks(numbers, *refits, failed, tick), executor):
        results[fit.task] = fit
        if fit.task.kind == WHOLE and fit.value is None:
            failed.add(fit.task.n_intents)
        tick(f"K = {fit.task.n_intents}, {fit.task}")
    if len(failed) == len(numbers):
        message = f"No number of intents could be fitted. {results[RefitTask(1, WHOLE)].notes.errors[0]}"
        raise LimiirlError(message, parameter="n_intents", value=numbers)


def _row(
    problem: SelectionProblem, k: int, results: dict[RefitTask, RefitResult], folds: int
) -> tuple[SelectionRow, FloatArray, IntentMixture | None]:
    """Return the row of k intents, its held-out log-likelihoods (G,), and the fit to all units, if it succeeded."""
    whole, first = results[RefitTask(k, WHOLE)].value, results[RefitTask(k, WHOLE)].notes
    if whole is None:
        issued = tuple(first.warnings)
        return SelectionRow(k, n_warnings=len(issued), warnings=issued, error=first.errors[0]), np.empty(0), None
    notes = [entry.notes for task, entry in results.items() if task.n_intents == k]
    labels = [entry.value for task, entry in results.items() if task.n_intents == k and task.kind == RESAMPLE]
    fitted = whole.with_data(problem).mixture
    criteria: dict[str, Any] = {name: math.nan if x is None else x for name, x in whole.criteria.items()}
    row = SelectionRow(
        k,
        log_likelihood=fitted.log_likelihood_,
        **criteria,
        stability=agreement([known for known in labels if known is not None]),
        n_iter=fitted.n_iter_,
        converged=fitted.converged_,
        n_empty=int(np.count_nonzero(nearly_empty(fitted.weights_ * len(problem.units), len(problem.units)))),
        n_warnings=sum(len(noted.warnings) for noted in notes),
        warnings=whole.warnings,
        error="; ".join(error for noted in notes for error in noted.errors),
    )
    return row, score_held_out(problem, results, k, folds), fitted


def _count_clusters(problem: SelectionProblem, most: int) -> int | None:
    """Fit a stick-breaking GMM to the points to cluster; return its number of clusters, or None if the fit failed."""
    if most < 2:
        return None

    def count() -> int:
        data = make_problem(problem.mixture.irl, problem.mdp, problem.demos, problem.groups)
        return stick_breaking(embed(problem.mixture.embedding, data), most, problem.seed(STICK_BREAKING))

    return Notes().attempt("stick-breaking GMM", count)  # a model may have no features


# Field of a criterion, its standard error, title, and direction.
_PANELS = (
    ("behind", "behind_se", "held-out log-likelihood below the best", "lower is better"),
    ("bic", None, "BIC", "lower is better"),
    ("icl", None, "ICL", "lower is better"),
    ("aic", None, "AIC", "lower is better"),
    ("stability", None, "stability (adjusted Rand index)", "higher is better"),
    ("log_likelihood", None, "log-likelihood of all data", "increases with K"),
)
_LINE, _MARK, _FAINT = "#0072b2", "#d55e00", "#999999"
_WIDTH, _HEIGHT, _COLUMNS = 3.4, 2.4, 3


def draw(selection: Selection, ax: Axes | None) -> Figure:
    """Draw one panel per available criterion, or the most reliable one; see `Selection.plot`."""
    import matplotlib.pyplot as plt

    known = [panel for panel in _PANELS if any(np.isfinite(getattr(row, panel[0])) for row in selection.rows)]
    if ax is not None:
        _draw_panel(selection, known[0], ax)
        return ax.get_figure(root=True) or plt.gcf()
    columns = min(_COLUMNS, len(known))
    lines = -(-len(known) // columns)
    figure, axes = plt.subplots(
        lines, columns, figsize=(_WIDTH * columns, _HEIGHT * lines + 0.5), squeeze=False, layout="constrained"
    )
    for panel, ax_ in zip(known, axes.flat, strict=False):
        _draw_panel(selection, panel, ax_)
    for ax_ in axes.flat[len(known) :]:
        ax_.remove()
    clusters = selection.recommendations.get("stick_breaking")
    gmm = "" if clusters is None else f"; stick-breaking GMM: {clusters}"
    number = f"{selection.recommended} {'intent' if selection.recommended == 1 else 'intents'}"
    figure.suptitle(f"{number} recommended (line); a ring marks the optimum of each criterion{gmm}", fontsize=10)
    return figure


def _draw_panel(selection: Selection, panel: tuple[str, str | None, str, str], ax: Axes) -> None:
    name, error, title, direction = panel
    numbers = [row.n_intents for row in selection.rows]
    values = np.array([getattr(row, name) for row in selection.rows])
    ax.axvline(selection.recommended, color=_MARK, alpha=0.35, linewidth=6, zorder=0)
    if error is None:
        ax.plot(numbers, values, "o-", color=_LINE, markersize=4)
    else:
        errors = np.array([getattr(row, error) for row in selection.rows])
        ax.errorbar(numbers, values, errors, fmt="o-", color=_LINE, markersize=4, capsize=3)
        ax.axhline(0.0, color=_FAINT, linewidth=0.8, linestyle=":", zorder=0)
    chosen = selection.recommendations.get("held_out" if name == "behind" else name)
    if chosen is not None:
        ax.plot(chosen, values[numbers.index(chosen)], "o", markersize=11, markerfacecolor="none", color=_MARK)
    ax.set_title(title, fontsize=9)
    ax.set_xlabel(f"intents ({direction})", fontsize=8)
    ax.set_xticks(numbers)
    ax.tick_params(labelsize=8)
    ax.spines[["top", "right"]].set_visible(False)
