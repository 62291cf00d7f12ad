"""`select_switching`: number of intents, ridges and discount by held-out demonstrations or groups."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from limiirl._io import to_pandas
from limiirl._parallel import Mapper, map_tasks
from limiirl._progress import Progress, check_progress, report_progress
from limiirl._typing import BoolArray, FloatArray, IntArray
from limiirl._validation import check_count, check_positive, check_type, is_collection
from limiirl.baselines import Baseline, MarkovChain, NGram, Uniform
from limiirl.demos import Covariates, Demonstrations, Groups
from limiirl.errors import InvalidParameter, LimiirlError, LimiirlWarning, SelectionInterrupted
from limiirl.irl import MaxCausalEnt
from limiirl.mixture import align_rows, validate
from limiirl.switching.estimator import SwitchingMixture
from limiirl.switching.problem import check_lengths, refuse_covariates
from limiirl.switching.transitions import COVARIATES, HOMOGENEOUS

# Models without rewards, to which every table compares the intents.
_BASELINES: dict[str, type[Baseline]] = {"uniform": Uniform, "Markov chain": MarkovChain, "n-gram": NGram}
_ORDERS = {"Markov chain": (2,), "n-gram": (5,)}


class SwitchingSetting(NamedTuple):
    """Parameters that are compared: K, the ridge of the rewards, that of the transition model, and the discount."""

    n_intents: int
    ridge: float
    switching_ridge: float
    gamma: float


@dataclass(frozen=True)
class SwitchingRow:
    """Held-out score of a setting, or of a baseline.

    Attributes
    ----------
    model : str
        "switching", or the name of a baseline.
    n_intents, ridge, switching_ridge, gamma
        nan (0 for `n_intents`) for a baseline.
    held_out, held_out_se : float
        Predictive log-likelihood in nats per step, and its standard error, clustered by unit (demonstration or group).
    behind, behind_se : float
        Difference from the best setting, and the standard error of the paired difference.
    n_unconverged : int
        Number of folds in which EM did not converge.
    error : str
        Message of a failed fit.
    """

    model: str
    n_intents: int = 0
    ridge: float = math.nan
    switching_ridge: float = math.nan
    gamma: float = math.nan
    held_out: float = math.nan
    held_out_se: float = math.nan
    behind: float = math.nan
    behind_se: float = math.nan
    n_unconverged: int = 0
    error: str = ""

    @property
    def setting(self) -> SwitchingSetting:
        """The parameters that are compared."""
        return SwitchingSetting(self.n_intents, self.ridge, self.switching_ridge, self.gamma)


@dataclass(frozen=True, eq=False)
class SwitchingSelection:
    """Result of `select_switching`; prints as a table.

    Attributes
    ----------
    rows : tuple of SwitchingRow
        Settings, then baselines.
    recommended : SwitchingSetting
    best : SwitchingMixture
        Fitted to all demonstrations with the recommended setting.
    nested, nested_se : float
        Score in nats per step of the whole procedure: settings are selected without the units that are scored. nan
        unless `outer_folds` was given.
    nested_settings : tuple of SwitchingSetting
        The setting that was selected in each outer fold.
    unit : str
        "demonstrations" or "groups".
    missing : tuple of SwitchingSetting
        Settings that are not compared, because the comparison was interrupted. `best` is then not fitted.
    """

    rows: tuple[SwitchingRow, ...]
    recommended: SwitchingSetting
    best: SwitchingMixture
    nested: float
    nested_se: float
    nested_settings: tuple[SwitchingSetting, ...]
    unit: str
    missing: tuple[SwitchingSetting, ...] = ()

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one row per setting and baseline."""
        names = [field.name for field in fields(SwitchingRow)]
        columns: dict[str, Any] = {name: [getattr(row, name) for row in self.rows] for name in names}
        return to_pandas(columns | {"recommended": [self._is_recommended(row) for row in self.rows]})

    def to_dict(self) -> dict[str, Any]:
        """Return everything except the mixture as JSON types, with None for nan."""
        facts: dict[str, Any] = {
            "rows": [asdict(row) for row in self.rows],
            "recommended": self.recommended._asdict(),
            "nested": self.nested,
            "nested_se": self.nested_se,
            "nested_settings": [setting._asdict() for setting in self.nested_settings],
            "unit": self.unit,
            "missing": [setting._asdict() for setting in self.missing],
        }
        return {name: _without_nan(value) for name, value in facts.items()}

    def _is_recommended(self, row: SwitchingRow) -> bool:
        return row.model == "switching" and row.setting == self.recommended

    def __str__(self) -> str:
        heads = ("ridge", "switching ridge", "discount", "held out", "behind best", "")
        table = [("K", [(head, "") for head in heads])]
        for row in self.rows:
            name = str(row.n_intents) if row.model == "switching" else row.model
            shown = [f"{value:g}" if math.isfinite(value) else "-" for value in row.setting[1:]]
            marks = ["<- recommended"] * self._is_recommended(row) + [f"failed: {row.error}"] * bool(row.error)
            if row.n_unconverged:
                marks.append(f"did not converge in {row.n_unconverged} folds")
            cells = [(text, "") for text in shown]
            cells += [_with_error(row.held_out, row.held_out_se), _with_error(row.behind, row.behind_se)]
            table.append((name, [*cells, ("", ", ".join(marks))]))
        lines = [*align_rows(table, range(len(heads))), "", f"  ± one standard error, clustered by {self.unit}"]
        if self.missing:
            numbers = ", ".join(str(k) for k in dict.fromkeys(setting.n_intents for setting in self.missing))
            lines.append(f"  Interrupted: {len(self.missing)} settings not compared (K = {numbers})")
        if math.isfinite(self.nested):
            score = " ".join(_with_error(self.nested, self.nested_se))
            lines.append(f"  {score} nats per step if the setting is selected without the {self.unit} that are scored")
        return "\n".join(lines)

    __repr__ = __str__


def _with_error(value: float, error: float) -> tuple[str, str]:
    if not math.isfinite(value):
        return "-", ""
    return f"{value:.4f}", f"± {error:.4f}" if math.isfinite(error) else ""


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nan(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class _Scores(NamedTuple):
    """Log-likelihood (U,) of the held-out steps of each unit, whether EM converged, and the message of an error."""

    values: FloatArray
    converged: bool
    error: str


@dataclass(frozen=True, eq=False)
class _Task:
    """A fit of a setting, or of a baseline, to some units (U,), which is scored on others (U,)."""

    model: SwitchingSetting | str
    fitted: BoolArray
    scored: BoolArray


@dataclass(frozen=True, eq=False)
class SwitchingSelectionProblem:
    """Demonstrations whose units are divided into folds, and the template of all fits; a picklable function of tasks.

    `covariates` (n, m) have one row per decision.
    """

    template: SwitchingMixture
    mdp: Any
    demos: Demonstrations
    covariates: FloatArray | None
    units: Groups

    def __call__(self, task: _Task) -> _Scores:
        """Run a task; errors of the data are recorded, not raised."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", LimiirlWarning)
                return self._score(task)
        except LimiirlError as error:
            return _Scores(np.full(len(self.units), np.nan), True, str(error))

    def _score(self, task: _Task) -> _Scores:
        fitted, scored = self.units.broadcast(task.fitted), self.units.broadcast(task.scored)
        train, test = self.demos[fitted], self.demos[scored]
        if isinstance(task.model, str):
            model = _BASELINES[task.model](*_ORDERS.get(task.model, ()))
            log_prob, converged = model.fit(train, self.mdp).predictive_log_prob(test), True
        else:
            mixture, mdp = self.apply(task.model)
            mixture.fit(mdp, train, covariates=self._rows(fitted))
            log_prob, converged = mixture.predictive_log_prob(test, self._rows(scored)), bool(mixture.converged_)
        sums = np.add.reduceat(log_prob, np.concatenate([[0], np.cumsum(test.lengths - 1)[:-1]]))
        values = np.zeros(len(self.demos))
        values[scored] = sums
        return _Scores(np.where(task.scored, self.units.sum(values), np.nan), converged, "")

    def _rows(self, members: BoolArray) -> FloatArray | None:
        return None if self.covariates is None else self.covariates[np.repeat(members, self.demos.lengths - 1)]

    def apply(self, setting: SwitchingSetting) -> tuple[SwitchingMixture, Any]:
        """Return the unfitted mixture and the MDP for a setting."""
        irl = clone(MaxCausalEnt() if self.template.irl is None else self.template.irl)
        irl.set_params(ridge=setting.ridge)
        mixture: SwitchingMixture = clone(self.template)
        mixture.set_params(
            n_intents=setting.n_intents, irl=irl, switching_ridge=setting.switching_ridge, progress=None, verbose=False
        )
        return mixture, self.mdp if setting.gamma == self.mdp.gamma else self.mdp.replace(gamma=setting.gamma)

    @property
    def sizes(self) -> FloatArray:
        """Number (U,) of steps of each unit."""
        return self.units.sum((self.demos.lengths - 1).astype(np.float64))

    def compare(
        self,
        settings: list[SwitchingSetting],
        within: BoolArray,
        folds: IntArray,
        run: Any,
        results: dict[SwitchingSetting | str, list[_Scores]],
    ) -> list[SwitchingRow]:
        """Return one row per setting and baseline, from the folds of the units `within` (U,).

        The scores of each model are added to `results` when all its folds are complete; baselines are the first.
        """
        models: list[SwitchingSetting | str] = [*_BASELINES, *settings]
        numbers = np.unique(folds[within])
        tasks = [_Task(m, within & (folds != f), within & (folds == f)) for m in models for f in numbers]
        scores = iter(run(tasks))
        for model in models:
            results[model] = [next(scores) for _ in numbers]
        return self.tabulate(results, within)

    def tabulate(self, results: dict[SwitchingSetting | str, list[_Scores]], within: BoolArray) -> list[SwitchingRow]:
        """Return one row per setting, then one per baseline, from the scores of all folds of units `within` (U,)."""
        rows, values = [], []
        for model in sorted(results, key=lambda model: isinstance(model, str)):
            own = results[model]
            total = np.nansum([scores.values for scores in own], axis=0)
            failed = [scores.error for scores in own if scores.error]
            values.append(np.full(len(total), np.nan) if failed else np.where(within, total, np.nan))
            row = SwitchingRow(model) if isinstance(model, str) else SwitchingRow("switching", *model)
            rows.append(
                replace(row, n_unconverged=sum(not x.converged for x in own), error=failed[0] if failed else "")
            )
        return _compare_rows(rows, np.array(values)[:, within], self.sizes[within])


def _compare_rows(rows: list[SwitchingRow], values: FloatArray, sizes: FloatArray) -> list[SwitchingRow]:
    """Return rows with scores, for log-likelihoods (R, U) and numbers of steps (U,) of units."""
    means = [mean_per_step(value, sizes) for value in values]
    own = [i for i, row in enumerate(rows) if row.model == "switching" and math.isfinite(means[i][0])]
    if not own:
        raise LimiirlError(f"No setting could be fitted. {rows[0].error}", parameter="n_intents")
    best = max(own, key=lambda i: means[i][0])
    result = []
    for row, value, (mean, error) in zip(rows, values, means, strict=True):
        behind, behind_se = mean_per_step(values[best] - value, sizes)
        result.append(replace(row, held_out=mean, held_out_se=error, behind=behind, behind_se=behind_se))
    return result


def mean_per_step(values: FloatArray, sizes: FloatArray) -> tuple[float, float]:
    """Return the mean per step, given sums (U,) over units and their numbers of steps (U,), and its standard error.

    Units are independent; the steps of a unit are not.

    Examples
    --------
    >>> mean, error = mean_per_step(np.array([-10.0, -24.0]), np.array([10.0, 20.0]))
    >>> round(mean, 4), round(error, 4)
    (-1.1333, 0.0889)
    """
    n = float(sizes.sum())
    mean = float(values.sum()) / n
    if len(values) < 2:
        return mean, math.nan
    residuals = values - mean * sizes
    return mean, math.sqrt(len(values) / (len(values) - 1.0) * float(np.sum(residuals**2))) / n


def recommend_setting(rows: Iterable[SwitchingRow], n_errors: float) -> SwitchingSetting:
    """Return the fewest intents within `n_errors` standard errors of the best setting, with their best ridges.

    Examples
    --------
    >>> rows = [SwitchingRow("switching", 1, 0.1, 1.0, 0.9, -0.8, 0.1, 0.3, 0.01)]
    >>> rows += [SwitchingRow("switching", k, 0.1, 1.0, 0.9, -0.5, 0.1, 0.1 / k**3, 0.02) for k in (2, 3)]
    >>> recommend_setting(rows, 1.0).n_intents, recommend_setting(rows, 0.0).n_intents
    (2, 3)
    """
    own = [row for row in rows if row.model == "switching" and math.isfinite(row.held_out)]
    best = min(own, key=lambda row: row.behind)
    # For the best setting, the difference and its standard error are 0.
    near = [row for row in own if row is best or row.behind <= n_errors * row.behind_se]
    fewest = min(row.n_intents for row in near)
    return min((row for row in near if row.n_intents == fewest), key=lambda row: row.behind).setting


def select_switching(  # noqa: PLR0913 (the data, and independent options with defaults)
    mdp: Any,
    demos: Demonstrations,
    n_intents: Iterable[int] = range(1, 6),
    *,
    mixture: SwitchingMixture | None = None,
    ridges: Iterable[float] | None = None,
    switching_ridges: Iterable[float] | None = None,
    gammas: Iterable[float] | None = None,
    groups: ArrayLike | None = None,
    covariates: Any = None,
    folds: int = 5,
    outer_folds: int = 0,
    n_errors: float = 1.0,
    seed: Any = None,
    verbose: bool = False,
    progress: Progress | None = None,
    executor: Mapper | None = None,
) -> SwitchingSelection:
    """Compare settings of a `SwitchingMixture` by the predictive log-likelihood of held-out units.

    All combinations are fitted. The table also has the scores of models without rewards: uniform, a Markov chain of
    order 2, and a back-off n-gram over five states, whose smoothing is chosen within the training folds. Ctrl-C raises
    `limiirl.errors.SelectionInterrupted`, a KeyboardInterrupt whose `selection` compares the settings whose folds are
    complete.

    Parameters
    ----------
    mdp : MDP
    demos : Demonstrations
    n_intents : iterable of int
    mixture : SwitchingMixture, optional
        Template for all other parameters.
    ridges, switching_ridges, gammas : iterables of float, optional
        Ridges per step of the model, ridges of the transition model (used unless transitions are homogeneous), and
        discounts; by default, those of the template and of the MDP.
    groups : (N,), optional
        Group of each demonstration, such as an animal. Groups are held out as a whole; otherwise demonstrations are.
    covariates : (n, m) array or frame, optional
        As for `SwitchingMixture.fit`.
    folds : int
    outer_folds : int
        Number of outer folds of nested cross-validation, 0 for none: the selection is repeated without each fold, and
        the units of the fold are scored with the selected setting.
    n_errors : float
        The recommendation is the smallest number of intents whose score is within `n_errors` standard errors of the
        best; 0 recommends the best.
    seed : int, Generator, RandomState or None
        Seed of the folds; by default the `random_state` of the template.
    verbose, progress, executor
        As for `select_intents`.

    Examples
    --------
    >>> from limiirl import MDP, Demonstrations, MaxCausalEnt
    >>> mdp = MDP.from_edges([0, 0], [0, 0], action=[0, 1], gamma=0.9, action_features=[[1.0], [0.0]])
    >>> demos = Demonstrations.from_lists([[0] * 41] * 6, [[0] * 20 + [1] * 20, [1] * 20 + [0] * 20] * 3)
    >>> template = SwitchingMixture(irl=MaxCausalEnt(ridge=1e-3), random_state=0)
    >>> selection = select_switching(mdp, demos, [1, 2], mixture=template, folds=2)
    >>> selection.recommended.n_intents, len(selection.rows)
    (2, 5)
    """
    check_progress(progress)
    template = SwitchingMixture() if mixture is None else mixture
    check_type(template, "mixture", SwitchingMixture)
    if not isinstance(template.init, str):
        rule = "must be a name, because fits have different numbers of intents and data"
        raise InvalidParameter.of("init", type(template.init).__name__, rule)
    demos = validate.check_demos(demos, mdp)
    check_lengths(demos)
    problem = SwitchingSelectionProblem(
        template, mdp, demos, _align_covariates(template, demos, covariates), Groups.for_demos(groups, demos)
    )
    settings = _list_settings(problem, n_intents, ridges, switching_ridges, gammas)
    entropy = validate.spawn_seeds(template.random_state if seed is None else seed, 1, "seed")[0].entropy
    n_units = len(problem.units)
    inner, outer = _folds(problem, folds, entropy, 0, "folds"), None
    if outer_folds:
        outer = _folds(problem, outer_folds, entropy, 1, "outer_folds")
    check_positive(n_errors, "n_errors", zero=True)
    fits = (len(settings) + len(_BASELINES)) * folds
    total, done = fits * (1 + (outer_folds if outer is not None else 0)) + 1, 0
    with report_progress("fits", verbose, progress) as report:

        def run(tasks: list[_Task]) -> Iterator[_Scores]:
            nonlocal done
            for scores in map_tasks(problem, tasks, executor):
                done += 1
                if report is not None:
                    report(done, total, "held-out scores")
                yield scores

        everyone = np.ones(n_units, dtype=bool)
        results: dict[SwitchingSetting | str, list[_Scores]] = {}
        try:
            rows = problem.compare(settings, everyone, inner, run, results)
            recommended = recommend_setting(rows, n_errors)
            nested = _nest(problem, settings, outer, folds, entropy, n_errors, run) if outer is not None else None
            best, own = problem.apply(recommended)
            best.fit(own, demos, groups, covariates=covariates)
        except KeyboardInterrupt:
            if not any(isinstance(model, SwitchingSetting) for model in results):
                raise
            rows = problem.tabulate(results, everyone)
            recommended = recommend_setting(rows, n_errors)
            missing = tuple(setting for setting in settings if setting not in results)
            best, _ = problem.apply(recommended)
            partial = SwitchingSelection(
                tuple(rows), recommended, best, math.nan, math.nan, (), problem.units.noun, missing
            )
            raise SelectionInterrupted(partial) from None
        if report is not None:
            report(total, total, "fit to all demonstrations")
    score, chosen = ((math.nan, math.nan), ()) if nested is None else nested
    return SwitchingSelection(tuple(rows), recommended, best, *score, chosen, problem.units.noun)


def _align_covariates(template: SwitchingMixture, demos: Demonstrations, covariates: Any) -> FloatArray | None:
    """Return covariates with one row per decision, or None."""
    if COVARIATES not in (template.switching, template.initial):
        refuse_covariates(covariates)
        return None
    return Covariates.for_steps(covariates, demos).values


def _list_settings(
    problem: SwitchingSelectionProblem, n_intents: Any, ridges: Any, switching_ridges: Any, gammas: Any
) -> list[SwitchingSetting]:
    """Return all combinations of the values to compare, with the fewest intents first."""
    template = problem.template
    if template.switching == HOMOGENEOUS and switching_ridges is not None:
        rule = "is not used with switching='homogeneous'"
        raise InvalidParameter.of("switching_ridges", switching_ridges, rule, remedy="Omit it.")
    irl = MaxCausalEnt() if template.irl is None else template.irl
    default = float(getattr(irl, "ridge", 0.0))
    numbers = sorted({check_count(k, "n_intents") for k in _values(n_intents, "n_intents")})
    checked = []
    for given, name, fallback in (
        (ridges, "ridges", default),
        (switching_ridges, "switching_ridges", float(template.switching_ridge)),
        (gammas, "gammas", float(problem.mdp.gamma)),
    ):
        values = [fallback] if given is None else _values(given, name)
        checked.append(sorted({check_positive(value, name, zero=name != "gammas") for value in values}))
    return [SwitchingSetting(k, *rest) for k in numbers for rest in product(*checked)]


def _values(given: Any, name: str) -> list[Any]:
    values = list(given) if is_collection(given) else []
    if not values:
        raise InvalidParameter.of(name, given, "must be a nonempty list")
    return values


def _folds(problem: SwitchingSelectionProblem, n: Any, entropy: Any, key: int, name: str) -> IntArray:
    """Return the random fold (U,) of each unit; fold sizes differ by at most one unit."""
    units = problem.units
    n_folds = check_count(n, name, least=2)
    if n_folds > len(units):
        raise InvalidParameter.of(name, n, f"must be at most {len(units)}, the number of {units.noun}")
    rng = np.random.default_rng(np.random.SeedSequence(entropy, spawn_key=(key, n_folds)))
    folds = np.empty(len(units), dtype=np.int64)
    folds[rng.permutation(len(units))] = np.arange(len(units)) % n_folds
    return folds


def _nest(
    problem: SwitchingSelectionProblem,
    settings: list[SwitchingSetting],
    outer: IntArray,
    n_folds: int,
    entropy: Any,
    n_errors: float,
    run: Any,
) -> tuple[tuple[float, float], tuple[SwitchingSetting, ...]]:
    """Return the scores of units under settings selected without these units, and the settings."""
    total, chosen = np.zeros(len(problem.units)), []
    for fold in range(int(outer.max()) + 1):
        within = outer != fold
        rng = np.random.default_rng(np.random.SeedSequence(entropy, spawn_key=(2, fold)))
        inner = np.zeros(len(outer), dtype=np.int64)
        members = rng.permutation(np.flatnonzero(within))
        inner[members] = np.arange(members.size) % min(n_folds, members.size)
        setting = recommend_setting(problem.compare(settings, within, inner, run, {}), n_errors)
        scores = problem(_Task(setting, within, ~within))
        if scores.error:
            raise LimiirlError(f"The fit of an outer fold failed. {scores.error}", parameter="outer_folds")
        total[~within] = scores.values[~within]
        chosen.append(setting)
    return mean_per_step(total, problem.sizes), tuple(chosen)
