"""Fits for the selection of K: to all units, to the complement of each fold, and to resamples.

Folds and resamples are the same for every K; seeds depend only on K and the task.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

from limiirl._typing import BoolArray, FloatArray, IntArray
from limiirl._validation import check_count
from limiirl.demos import Covariates, Demonstrations, Groups
from limiirl.errors import InvalidParameter, ModelMismatchWarning
from limiirl.irl import make_problem
from limiirl.mixture import validate
from limiirl.mixture.estimator import IntentMixture
from limiirl.mixture.init import check_choices, is_given

T = TypeVar("T")

# Fraction of the units in each resample.
RESAMPLED = 0.8
# likelihood_tol of refits (nats per unit), because EM with too many intents converges slowly; differences between
# refits matter only above a hundred times this value.
REFIT_TOL = 1e-4
WHOLE, FOLD, RESAMPLE = "fit", "fold", "resample"
# Spawn keys of seeds: fits by type, folds, resamples, and the stick-breaking GMM.
_SEED_KEYS = {WHOLE: 0, FOLD: 2, RESAMPLE: 4}
_FOLDS, _RESAMPLES, STICK_BREAKING = 1, 3, 5
Tick = Callable[[str], None]


class RefitTask(NamedTuple):
    """One fit of K intents: to all units, to the complement of a fold, or to a resample."""

    n_intents: int
    kind: str
    number: int = 0

    def __str__(self) -> str:
        return self.kind if self.kind == WHOLE else f"{self.kind} {self.number + 1}"


@dataclass
class Notes:
    """Errors and warnings of the fits with one number of intents."""

    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def attempt(self, what: str, call: Callable[[], T]) -> T | None:
        """Return the result of a call; if the call fails, record the error and return None."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warnings.simplefilter("ignore", ModelMismatchWarning)  # already issued before the fits
            try:
                return call()
            except (ValueError, ArithmeticError, RuntimeError) as error:  # custom models may raise any of these
                self.errors.append(f"{what}: {error}")
                return None
            finally:
                self.warnings += [str(warning.message) for warning in caught]


@dataclass(frozen=True, eq=False)
class SelectionProblem:
    """A mixture to fit with several numbers of intents, to all units or to subsets.

    All seeds are derived from `entropy`. Units of the same block (G,) are in one fold. `model_choice` explains the
    model if it is the default. `covariates` are those given by the user, and `rows` (N, m) their values.
    """

    mixture: IntentMixture
    mdp: Any
    demos: Demonstrations
    groups: NDArray[Any] | None
    units: Groups
    entropy: Any
    blocks: IntArray | None = None
    model_choice: str = ""
    covariates: Any = None
    rows: FloatArray | None = None

    @classmethod
    def from_data(
        cls,
        mixture: IntentMixture,
        mdp: Any,
        demos: Demonstrations,
        groups: ArrayLike | None,
        seed: Any,
        fold_groups: ArrayLike | None = None,
        covariates: Any = None,
    ) -> SelectionProblem:
        """Return the problem, with `max_length` resolved from all demonstrations."""
        demos = validate.check_demos(demos, mdp)
        irl, choice = validate.resolve_model(mixture.irl, mdp, demos)
        if getattr(irl, "max_length", 0) is None:
            irl.set_params(max_length=int(demos.lengths.max()))
        units = Groups.for_demos(groups, demos)
        names = None if groups is None else units.broadcast(units.names)
        given = (mixture.random_state, 1) if seed is None else (seed, 1, "seed")
        entropy = validate.spawn_seeds(*given)[0].entropy
        blocks = _blocks(fold_groups, groups, len(demos))
        rows = None
        if covariates is not None:
            checked = Covariates.for_units(covariates, demos, units)
            checked.check_independent()
            rows = np.asarray(units.broadcast(checked.values))
        template = clone(mixture).set_params(irl=irl)
        return cls(template, mdp, demos, names, units, entropy, blocks, choice, covariates, rows)

    def check(self, most: int, folds: int, resamples: int) -> None:
        """Validate the parameters of fits with up to `most` intents before any fit is run."""
        validate.make_settings(self.mixture)
        check_choices(self.mixture.init, self.mixture.embedding, self.mixture.reward_init)
        init, n, noun = self.mixture.init, len(self.units), self.units.noun
        if is_given(init):
            rule = "must be a name, a clusterer or a function, because fits have different numbers of intents and data"
            raise InvalidParameter.of("init", init, rule)
        for value, name in ((folds, "folds"), (resamples, "resamples")):
            if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 0 or value == 1:
                raise InvalidParameter.of(name, value, "must be 0 or an integer of at least 2")
        blocks = np.arange(n) if self.blocks is None else self.blocks
        what = noun if self.blocks is None else "fold_groups"
        if folds > blocks.max() + 1:
            raise InvalidParameter.of("folds", folds, f"must be at most {blocks.max() + 1}, the number of {what}")
        smallest = [(n, f"there are {n} {noun}")]
        if folds:
            left = n - int(np.bincount(self.folds(folds)).max())
            smallest.append((left, f"{folds} folds leave {left} of {n} {noun}"))
        if resamples:
            left = resample_size(n)
            smallest.append((left, f"a resample has {left} of {n} {noun}"))
        possible, why = min(smallest)
        if most > possible:
            rule, remedy = f"must be at most {possible}, because {why}", "Use fewer, or pass folds=0 and resamples=0."
            raise InvalidParameter.of("n_intents", most, rule, remedy=remedy)

    def fit(self, task: RefitTask, chosen: BoolArray | None = None) -> IntentMixture:
        """Return the mixture fitted to the chosen units (G,), all by default."""
        key = (_SEED_KEYS[task.kind], task.n_intents, *(() if chosen is None else (task.number,)))
        mixture: IntentMixture = clone(self.mixture)
        mixture.set_params(n_intents=task.n_intents, random_state=self.seed(*key), progress=None, verbose=False)
        if chosen is None:
            return mixture.fit(self.mdp, self.demos, self.groups, covariates=self.covariates)
        if mixture.likelihood_tol is None:
            mixture.likelihood_tol = REFIT_TOL
        members = self.units.broadcast(chosen)
        if not (mixture.embedding is None or isinstance(mixture.embedding, str) or callable(mixture.embedding)):
            mixture.embedding = np.asarray(mixture.embedding)[members]
        return mixture.fit(self.mdp, *self.subset(chosen), covariates=self.select_rows(chosen))

    def subset(self, chosen: BoolArray) -> tuple[Demonstrations, NDArray[Any] | None]:
        """Return the demonstrations of the chosen units (G,), and their groups."""
        members = self.units.broadcast(chosen)
        return self.demos[members], None if self.groups is None else self.groups[members]

    def select_rows(self, chosen: BoolArray) -> FloatArray | None:
        """Return the covariates of the demonstrations of the chosen units (G,), or None without covariates."""
        return None if self.rows is None else self.rows[self.units.broadcast(chosen)]

    def folds(self, n: int) -> IntArray:
        """Return the random fold (G,) of each unit; fold sizes differ by at most one unit (or block)."""
        blocks = np.arange(len(self.units)) if self.blocks is None else self.blocks
        order = self._rng(_FOLDS, n).permutation(int(blocks.max()) + 1)
        folds = np.empty(order.size, dtype=np.int64)
        folds[order] = np.arange(order.size) % n
        return folds[blocks]

    def resample(self, i: int) -> BoolArray:
        """Return the mask (G,) of resample i: a fraction `RESAMPLED` of the units, without replacement."""
        n = len(self.units)
        mask = np.zeros(n, dtype=bool)
        mask[self._rng(_RESAMPLES, i).permutation(n)[: resample_size(n)]] = True
        return mask

    def seed(self, *key: int) -> int:
        """Return the random seed derived from a key."""
        return int(np.random.SeedSequence(self.entropy, spawn_key=key).generate_state(1)[0])

    def _rng(self, *key: int) -> np.random.Generator:
        return np.random.default_rng(np.random.SeedSequence(self.entropy, spawn_key=key))


def _blocks(fold_groups: ArrayLike | None, groups: ArrayLike | None, n: int) -> IntArray | None:
    """Return the index (N,) of each demonstration's fold group, or None."""
    if fold_groups is None:
        return None
    if groups is not None:
        message = "fold_groups and groups cannot be combined; groups are never split between folds."
        raise InvalidParameter(message, parameter="fold_groups", value=fold_groups)
    index = Groups.from_labels(fold_groups, n).index
    assert index is not None  # fold_groups were given
    return index


def check_numbers(n_intents: Iterable[int]) -> list[int]:
    """Return the numbers of intents to fit in ascending order, always including 1."""
    try:
        check_count(len(n_intents) if isinstance(n_intents, Sized) else 1, "n_intents", least=0, bytes_each=2000.0)
        given = list(n_intents)
    except (TypeError, OverflowError):
        rule = "must be an iterable of integers, such as range(1, 7)"
        raise InvalidParameter.of("n_intents", n_intents, rule) from None
    return sorted({1, *(check_count(k, "n_intents") for k in given)})


def resample_size(n: int) -> int:
    """Return the number of units in a resample of n."""
    return max(1, int(RESAMPLED * n))


def agreement(labels: list[Any]) -> float:
    """Return the mean adjusted Rand index over pairs of labellings, or nan if there are no pairs.

    Pairs of constant labellings are excluded, because their agreement is trivial.
    """
    pairs = [(a, b) for a, b in combinations(labels, 2) if np.unique(a).size > 1 or np.unique(b).size > 1]
    return float(np.mean([adjusted_rand_score(a, b) for a, b in pairs])) if pairs else float("nan")


@dataclass(frozen=True, eq=False)
class FullFit:
    """The fit to all units, its "bic", "aic" and "icl" (None if the computation failed), and its warnings.

    The mixture is pickled without its data, which `with_data` restores.
    """

    mixture: IntentMixture
    criteria: dict[str, float | None]
    warnings: tuple[str, ...]

    def __getstate__(self) -> dict[str, Any]:
        light = copy.copy(self.mixture)
        for name in ("mdp_", "_problem"):
            light.__dict__.pop(name, None)
        return vars(self) | {"mixture": light}

    def with_data(self, problem: SelectionProblem) -> FullFit:
        """Return the fit with the mixture's MDP and demonstrations restored."""
        if hasattr(self.mixture, "mdp_"):
            return self
        mixture = copy.copy(self.mixture)
        ridge = mixture.membership_ridge
        _, design = validate.make_weight_design(problem.covariates, problem.demos, problem.groups, ridge)
        mixture._problem = make_problem(mixture.irl_, problem.mdp, problem.demos, problem.groups, design)
        mixture.mdp_ = mixture._problem.mdp
        return replace(self, mixture=mixture)


class RefitResult(NamedTuple):
    """The result of a task (a `FullFit`, scores or labels of units, or None if it failed), and its notes."""

    task: RefitTask
    value: Any
    notes: Notes


@dataclass(frozen=True, eq=False)
class RefitRunner:
    """Picklable function that runs one task of a problem."""

    problem: SelectionProblem
    folds: int

    def __call__(self, task: RefitTask) -> RefitResult:
        """Run a task; failures caused by the data are recorded, not raised."""
        notes = Notes()
        if task.kind == WHOLE:
            return RefitResult(task, self._whole(task, notes), notes)
        run = self.scores if task.kind == FOLD else self.labels
        return RefitResult(task, notes.attempt(str(task), partial(run, task)), notes)

    def _whole(self, task: RefitTask, notes: Notes) -> FullFit | None:
        problem = self.problem
        fitted = notes.attempt(WHOLE, lambda: problem.fit(task))
        if fitted is None:
            return None
        fitted.model_choice_ = problem.model_choice
        issued = tuple(notes.warnings)
        criteria = {
            name: notes.attempt(
                name, partial(getattr(fitted, name), problem.demos, problem.groups, covariates=problem.covariates)
            )
            for name in ("bic", "aic", "icl")
        }
        return FullFit(fitted, criteria, issued)

    def scores(self, task: RefitTask) -> FloatArray:
        """Return the log-likelihoods of the units of a fold under the mixture fitted to the other folds."""
        out = self.problem.folds(self.folds) == task.number
        fitted = self.problem.fit(task, ~out)
        return fitted.score_samples(*self.problem.subset(out), covariates=self.problem.select_rows(out))

    def labels(self, task: RefitTask) -> IntArray:
        """Return the labels (G,) of all units under the fit to a resample."""
        problem = self.problem
        _, first = np.unique(problem.units.broadcast(problem.units.names), return_index=True)
        fitted = problem.fit(task, problem.resample(task.number))
        return np.asarray(fitted.predict(problem.demos, problem.groups, covariates=problem.rows)[first])


def refit_tasks(numbers: list[int], folds: int, resamples: int, failed: set[int], tick: Tick) -> Iterator[RefitTask]:
    """Yield tasks lazily; numbers of intents in `failed`, which may grow during the iteration, are skipped.

    `tick` is called for each skipped task.
    """
    for k in numbers:
        yield RefitTask(k, WHOLE)
        for kind, n in ((FOLD, folds), (RESAMPLE, resamples)):
            for i in range(n):
                if k in failed:
                    tick(f"K = {k} failed")
                elif kind == RESAMPLE and k == 1:
                    tick(f"K = 1, resample {i + 1}")  # stability is trivial
                else:
                    yield RefitTask(k, kind, i)


def score_held_out(
    problem: SelectionProblem, results: dict[RefitTask, RefitResult], n_intents: int, folds: int
) -> FloatArray:
    """Return the log-likelihood (G,) of each unit under the mixture fitted without its fold; nan if the fit failed."""
    scores = np.full(len(problem.units), np.nan)
    for fold in range(folds):
        value = results[RefitTask(n_intents, FOLD, fold)].value
        if value is not None:
            scores[problem.folds(folds) == fold] = value
    return scores
