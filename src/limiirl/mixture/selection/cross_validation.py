"""The fits of a selection: to all units, to the complement of each fold, and to resamples.

Folds and resamples are the same for every K; seeds depend only on K and the task.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Iterator
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
from limiirl.demos import Demonstrations, Groups
from limiirl.errors import InvalidParameter
from limiirl.irl import MaxEnt, make_problem
from limiirl.mixture import validate
from limiirl.mixture.estimator import IntentMixture
from limiirl.mixture.init import is_given

T = TypeVar("T")

# Fraction of the units in each resample.
RESAMPLED = 0.8
# likelihood_tol of refits (nats per unit): they are compared for differences a hundred times as large, and EM with too
# many intents converges slowly.
REFIT_TOL = 1e-5
WHOLE, FOLD, RESAMPLE = "fit", "fold", "resample"
# Spawn keys of seeds: fits by kind, the choice of folds and of resamples, and the stick-breaking GMM.
_SEED_KEYS = {WHOLE: 0, FOLD: 2, RESAMPLE: 4}
_FOLDS, _RESAMPLES, STICKS = 1, 3, 5
Tick = Callable[[str], None]


class RefitTask(NamedTuple):
    """One fit of K intents: to all units, without a fold, or to a resample."""

    n_intents: int
    kind: str
    number: int = 0

    def __str__(self) -> str:
        return self.kind if self.kind == WHOLE else f"{self.kind} {self.number + 1}"


@dataclass
class Notes:
    """Errors and warnings of the fits of one row."""

    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def attempt(self, what: str, call: Callable[[], T]) -> T | None:
        """Return the result of a call, or None and record the error if it fails on the data."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                return call()
            except (ValueError, ArithmeticError, RuntimeError) as error:  # custom models may raise any of these
                self.errors.append(f"{what}: {error}")
                return None
            finally:
                self.warnings += [str(warning.message) for warning in caught]


@dataclass(frozen=True, eq=False)
class SelectionProblem:
    """A mixture to fit with several numbers of intents, to all units or to some.

    `entropy` is the root of all seeds; units of the same block (G,) stay in one fold.
    """

    mixture: IntentMixture
    mdp: Any
    demos: Demonstrations
    groups: NDArray[Any] | None
    units: Groups
    entropy: Any
    blocks: IntArray | None = None

    @classmethod
    def from_data(
        cls,
        mixture: IntentMixture,
        mdp: Any,
        demos: Demonstrations,
        groups: ArrayLike | None,
        random_state: Any,
        fold_groups: ArrayLike | None = None,
    ) -> SelectionProblem:
        """Return the problem, with `max_length` resolved from all demonstrations."""
        irl = MaxEnt() if mixture.irl is None else validate.clone_model(mixture.irl)
        if getattr(irl, "max_length", 0) is None:
            irl.set_params(max_length=int(validate.check_demos(demos).lengths.max()))
        units = Groups.for_demos(groups, validate.check_demos(demos))
        names = None if groups is None else units.broadcast(units.names)
        seed = validate.spawn_seeds(mixture.random_state if random_state is None else random_state, 1)[0]
        blocks = _blocks(fold_groups, groups, len(demos))
        return cls(clone(mixture).set_params(irl=irl), mdp, demos, names, units, seed.entropy, blocks)

    def check(self, most: int, folds: int, resamples: int) -> None:
        """Raise for parameters that would fail during the fits, for up to `most` intents."""
        validate.make_settings(self.mixture)
        init, n, noun = self.mixture.init, len(self.units), self.units.noun
        if is_given(init):
            rule = "must work for any number of intents and any part of the data: a name, a clusterer or a function"
            raise InvalidParameter.of("init", init, rule)
        for value, name in ((folds, "folds"), (resamples, "resamples")):
            if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 0 or value == 1:
                raise InvalidParameter.of(name, value, "must be an integer of at least 2, or 0 for none")
        blocks = np.arange(n) if self.blocks is None else self.blocks
        held = noun if self.blocks is None else "fold_groups"
        if folds > blocks.max() + 1:
            raise InvalidParameter.of("folds", folds, f"must be at most {blocks.max() + 1}, the number of {held}")
        smallest = [(n, f"there are {n} {noun}")]
        if folds:
            left = n - int(np.bincount(self.folds(folds)).max())
            smallest.append((left, f"{folds} folds leave {left} of {n} {noun}"))
        if resamples:
            left = resample_size(n)
            smallest.append((left, f"a resample has {left} of {n} {noun}"))
        possible, why = min(smallest)
        if most > possible:
            rule = f"must be at most {possible}, since {why}"
            raise InvalidParameter.of("n_intents", most, rule, remedy="Use fewer, or pass folds=0 and resamples=0.")

    def fit(self, task: RefitTask, chosen: BoolArray | None = None) -> IntentMixture:
        """Return the mixture fitted to the chosen units (G,), all by default."""
        key = (_SEED_KEYS[task.kind], task.n_intents, *(() if chosen is None else (task.number,)))
        mixture: IntentMixture = clone(self.mixture)
        mixture.set_params(n_intents=task.n_intents, random_state=self.seed(*key), progress=None, verbose=False)
        if chosen is None:
            return mixture.fit(self.mdp, self.demos, self.groups)
        if mixture.likelihood_tol is None:
            mixture.likelihood_tol = REFIT_TOL
        members = self.units.broadcast(chosen)
        if not (mixture.embedding is None or isinstance(mixture.embedding, str) or callable(mixture.embedding)):
            mixture.embedding = np.asarray(mixture.embedding)[members]
        return mixture.fit(self.mdp, *self.part(chosen))

    def part(self, chosen: BoolArray) -> tuple[Demonstrations, NDArray[Any] | None]:
        """Return the demonstrations of the chosen units (G,), and their groups."""
        members = self.units.broadcast(chosen)
        return self.demos[members], None if self.groups is None else self.groups[members]

    def folds(self, n: int) -> IntArray:
        """Return the random fold (G,) of each unit; folds differ by at most one unit, or block."""
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
        """Return the seed of a key."""
        return int(np.random.SeedSequence(self.entropy, spawn_key=key).generate_state(1)[0])

    def _rng(self, *key: int) -> np.random.Generator:
        return np.random.default_rng(np.random.SeedSequence(self.entropy, spawn_key=key))


def _blocks(fold_groups: ArrayLike | None, groups: ArrayLike | None, n: int) -> IntArray | None:
    """Return the number (N,) of each demonstration's fold group."""
    if fold_groups is None:
        return None
    if groups is not None:
        message = "fold_groups and groups exclude each other: no group is split between folds anyway."
        raise InvalidParameter(message, parameter="fold_groups", value=fold_groups)
    index = Groups.from_labels(fold_groups, n).index
    assert index is not None  # fold_groups were given
    return index


def check_numbers(n_intents: Iterable[int]) -> list[int]:
    """Return the numbers of intents to try in ascending order, always including 1."""
    try:
        given = list(n_intents)
    except TypeError:
        rule = "must be an iterable of integers, such as range(1, 7)"
        raise InvalidParameter.of("n_intents", n_intents, rule) from None
    return sorted({1, *(check_count(k, "n_intents") for k in given)})


def resample_size(n: int) -> int:
    """Return the number of units in a resample of n."""
    return max(1, int(RESAMPLED * n))


def agreement(labels: list[Any]) -> float:
    """Return the mean adjusted Rand index over pairs of labellings; nan without pairs.

    Pairs of constant labellings are left out, since their agreement is trivial.
    """
    pairs = [(a, b) for a, b in combinations(labels, 2) if np.unique(a).size > 1 or np.unique(b).size > 1]
    return float(np.mean([adjusted_rand_score(a, b) for a, b in pairs])) if pairs else float("nan")


@dataclass(frozen=True, eq=False)
class FullFit:
    """The fit to all units, its "bic", "aic" and "icl" (None if they failed), and its warnings.

    The mixture is pickled without its data; `with_data` restores them.
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
        mixture._problem = make_problem(mixture.irl_, problem.mdp, problem.demos, problem.groups)
        mixture.mdp_ = mixture._problem.mdp
        return replace(self, mixture=mixture)


class RefitResult(NamedTuple):
    """The result of a task: a `FullFit`, scores or labels of units, None if it failed; and its errors and warnings."""

    part: RefitTask
    value: Any
    notes: Notes


@dataclass(frozen=True, eq=False)
class RefitRunner:
    """Picklable function that runs one task of a problem."""

    problem: SelectionProblem
    folds: int

    def __call__(self, part: RefitTask) -> RefitResult:
        """Run a task, and record failures on the data."""
        notes = Notes()
        if part.kind == WHOLE:
            return RefitResult(part, self._whole(part, notes), notes)
        run = self.scores if part.kind == FOLD else self.labels
        return RefitResult(part, notes.attempt(str(part), partial(run, part)), notes)

    def _whole(self, task: RefitTask, notes: Notes) -> FullFit | None:
        problem = self.problem
        fitted = notes.attempt(WHOLE, lambda: problem.fit(task))
        if fitted is None:
            return None
        issued = tuple(notes.warnings)
        criteria = {
            name: notes.attempt(name, partial(getattr(fitted, name), problem.demos, problem.groups))
            for name in ("bic", "aic", "icl")
        }
        return FullFit(fitted, criteria, issued)

    def scores(self, task: RefitTask) -> FloatArray:
        """Return the log-likelihoods of the units of a fold under the mixture fitted without it."""
        out = self.problem.folds(self.folds) == task.number
        fitted = self.problem.fit(task, ~out)
        return fitted.score_samples(*self.problem.part(out))

    def labels(self, task: RefitTask) -> IntArray:
        """Return the labels (G,) of all units under the fit to a resample."""
        problem = self.problem
        _, first = np.unique(problem.units.broadcast(problem.units.names), return_index=True)
        fitted = problem.fit(task, problem.resample(task.number))
        return np.asarray(fitted.predict(problem.demos, problem.groups)[first])


def refit_tasks(numbers: list[int], folds: int, resamples: int, failed: set[int], tick: Tick) -> Iterator[RefitTask]:
    """Yield all tasks, lazily: those of a number of intents in `failed`, which grows meanwhile, are skipped.

    `tick` counts skipped tasks.
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
    """Return the log-likelihood (G,) of each unit under the mixture fitted without its fold; nan if that failed."""
    scores = np.full(len(problem.units), np.nan)
    for fold in range(folds):
        value = results[RefitTask(n_intents, FOLD, fold)].value
        if value is not None:
            scores[problem.folds(folds) == fold] = value
    return scores
