"""The fits behind a selection: to all units, to those outside a fold, to a resample.

Folds and resamples are the same for every K; seeds depend on K and the part alone.
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

# The share of the units in each resample.
RESAMPLED = 0.8
# Refits end once the objective rises by less than this many nats a unit. They are compared for differences a hundred
# times as large, and with an intent too many EM creeps on for long, to settle who shares it.
REFIT_TOL = 1e-5
WHOLE, FOLD, RESAMPLE = "fit", "fold", "resample"
# What a seed is for: the fits of a kind, the choice of folds and resamples, and the stick-breaking GMM.
_SEED_KEYS = {WHOLE: 0, FOLD: 2, RESAMPLE: 4}
_FOLDS, _RESAMPLES, STICKS = 1, 3, 5
Tick = Callable[[str], None]


class RefitTask(NamedTuple):
    """One fit: of K intents to all units, to those outside a fold, or to a resample."""

    n_intents: int
    kind: str
    number: int = 0

    def __str__(self) -> str:
        return self.kind if self.kind == WHOLE else f"{self.kind} {self.number + 1}"


@dataclass
class Notes:
    """What went wrong on the way to one row: errors that were survived, and warnings."""

    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def attempt(self, what: str, call: Callable[[], T]) -> T | None:
        """Return what a call returns, or None where it fails on the data, noting why."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                return call()
            except (
                ValueError,
                ArithmeticError,
                RuntimeError,
            ) as error:  # ours are ValueErrors, others' models raise all
                self.errors.append(f"{what}: {error}")
                return None
            finally:
                self.warnings += [str(warning.message) for warning in caught]


@dataclass(frozen=True, eq=False)
class SelectionProblem:
    """A mixture to fit with several numbers of intents, to all units or to some.

    Attributes
    ----------
    mixture : IntentMixture
        Its parameters but `n_intents` and `random_state` are used.
    groups : (N,) or None
    units : Groups
        What the groups make of the demonstrations.
    entropy : int
        The root of all seeds.
    blocks : (G,) or None
        Numbers of those whose units stay in one fold.
    """

    mixture: IntentMixture
    mdp: Any
    demos: Demonstrations
    groups: NDArray[Any] | None
    units: Groups
    entropy: Any
    blocks: IntArray | None = None

    @classmethod
    def of(
        cls,
        mixture: IntentMixture,
        mdp: Any,
        demos: Demonstrations,
        groups: ArrayLike | None,
        random_state: Any,
        fold_groups: ArrayLike | None = None,
    ) -> SelectionProblem:
        """Return a problem whose model's longest trajectory does not depend on the part of the data that it sees."""
        irl = MaxEnt() if mixture.irl is None else validate.fresh(mixture.irl)
        if getattr(irl, "max_length", 0) is None:
            irl.set_params(max_length=int(validate.demonstrations(demos).lengths.max()))
        units = Groups.for_demos(groups, validate.demonstrations(demos))
        names = None if groups is None else units.broadcast(units.names)
        seed = validate.seeds(mixture.random_state if random_state is None else random_state, 1)[0]
        blocks = _blocks(fold_groups, groups, len(demos))
        return cls(clone(mixture).set_params(irl=irl), mdp, demos, names, units, seed.entropy, blocks)

    def check(self, most: int, folds: int, resamples: int) -> None:
        """Check everything that would otherwise fail in the middle of the work, `most` intents included."""
        validate.settings(self.mixture)
        init, n, noun = self.mixture.init, len(self.units), self.units.noun
        if is_given(init):
            raise InvalidParameter(
                f"select_intents needs an init that works for any number of intents and any part of the data; "
                f"{type(init).__name__} does not. Pass a name, a clusterer or a function.",
                parameter="init",
                value=init,
            )
        for value, name in ((folds, "folds"), (resamples, "resamples")):
            if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 0 or value == 1:
                raise InvalidParameter(
                    f"{name} must be a whole number of at least 2, or 0 for none; got {value!r}.",
                    parameter=name,
                    value=value,
                )
        blocks = np.arange(n) if self.blocks is None else self.blocks
        held = noun if self.blocks is None else "fold_groups"
        if folds > blocks.max() + 1:
            raise InvalidParameter(
                f"folds={folds} is more than the {blocks.max() + 1} {held}. Use at most {blocks.max() + 1}.",
                parameter="folds",
                value=folds,
            )
        smallest = [(n, f"there are {n} {noun}")]
        if folds:
            left = n - int(np.bincount(self.folds(folds)).max())
            smallest.append((left, f"{folds} folds leave {left} of {n} {noun} to fit"))
        if resamples:
            left = resample_size(n)
            smallest.append((left, f"a resample has {left} of {n} {noun}"))
        possible, why = min(smallest)
        if most > possible:
            raise InvalidParameter(
                f"n_intents must be at most {possible}, since {why}; the largest is {most}. Use fewer, or pass folds=0 "
                "and resamples=0 to go without what needs refits.",
                parameter="n_intents",
                value=most,
            )

    def fit(self, task: RefitTask, chosen: BoolArray | None = None) -> IntentMixture:
        """Return the mixture fitted to the chosen units (G,), or to all."""
        key = (_SEED_KEYS[task.kind], task.n_intents, *(() if chosen is None else (task.number,)))
        mixture: IntentMixture = clone(self.mixture)
        mixture.set_params(n_intents=task.n_intents, random_state=self.seed(*key), callback=None, verbose=False)
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
        """Return the fold (G,) of each unit, at random; numbers of units, or of blocks, differ by one at most."""
        blocks = np.arange(len(self.units)) if self.blocks is None else self.blocks
        order = self._rng(_FOLDS, n).permutation(int(blocks.max()) + 1)
        found = np.empty(order.size, dtype=np.int64)
        found[order] = np.arange(order.size) % n
        return found[blocks]

    def resample(self, i: int) -> BoolArray:
        """Return which units (G,) are in resample i: a share of `RESAMPLED`, without repetition."""
        n = len(self.units)
        found = np.zeros(n, dtype=bool)
        found[self._rng(_RESAMPLES, i).permutation(n)[: resample_size(n)]] = True
        return found

    def seed(self, *key: int) -> int:
        """Return a seed of its own for each key."""
        return int(np.random.SeedSequence(self.entropy, spawn_key=key).generate_state(1)[0])

    def _rng(self, *key: int) -> np.random.Generator:
        return np.random.default_rng(np.random.SeedSequence(self.entropy, spawn_key=key))


def _blocks(fold_groups: ArrayLike | None, groups: ArrayLike | None, n: int) -> IntArray | None:
    """Return the number (N,) of each demonstration's fold group."""
    if fold_groups is None:
        return None
    if groups is not None:
        raise InvalidParameter(
            "With groups no group is split between folds anyway. Pass groups or fold_groups.", parameter="fold_groups"
        )
    found = Groups.from_labels(fold_groups, n).index
    assert found is not None  # groups were given
    return found


def whole_numbers(n_intents: Iterable[int]) -> list[int]:
    """Return the numbers of intents to try, in order; 1 is always one of them."""
    try:
        given = list(n_intents)
    except TypeError:
        raise InvalidParameter(
            f"n_intents must be several whole numbers, such as range(1, 7); got {n_intents!r}.",
            parameter="n_intents",
            value=n_intents,
        ) from None
    return sorted({1, *(check_count(k, "n_intents") for k in given)})


def resample_size(n: int) -> int:
    """Return the number of units in a resample of n."""
    return max(1, int(RESAMPLED * n))


def agreement(labels: list[Any]) -> float:
    """Return the mean adjusted Rand index between any two of several labellings; nan for fewer than two.

    Two labellings with one label alone each are left out: they agree fully, but on nothing.
    """
    told = [(a, b) for a, b in combinations(labels, 2) if np.unique(a).size > 1 or np.unique(b).size > 1]
    pairs = [adjusted_rand_score(a, b) for a, b in told]
    return float(np.mean(pairs)) if pairs else float("nan")


@dataclass(frozen=True, eq=False)
class FullFit:
    """The fit to all units.

    Attributes
    ----------
    mixture : IntentMixture
        It leaves its data behind when it travels; `with_data` gives them back.
    criteria : dict
        "bic", "aic" and "icl"; None where one could not be had.
    warnings : tuple of str
        What the fit itself warned of.
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
        """Return the same with a mixture that has its MDP and its demonstrations."""
        if hasattr(self.mixture, "mdp_"):
            return self
        found = copy.copy(self.mixture)
        found._problem = make_problem(found.irl_, problem.mdp, problem.demos, problem.groups)
        found.mdp_ = found._problem.mdp
        return replace(self, mixture=found)


class RefitResult(NamedTuple):
    """What a fit has found, and what went wrong: a `FullFit`, scores or labels of units; None where it failed."""

    part: RefitTask
    value: Any
    notes: Notes


@dataclass(frozen=True, eq=False)
class RefitRunner:
    """The fits of a problem, as a function of the part."""

    problem: SelectionProblem
    folds: int

    def __call__(self, part: RefitTask) -> RefitResult:
        """Return what a fit finds; what fails on the data is noted."""
        notes = Notes()
        if part.kind == WHOLE:
            return RefitResult(part, self._whole(part, notes), notes)
        find = self.scores if part.kind == FOLD else self.labels
        return RefitResult(part, notes.attempt(str(part), partial(find, part)), notes)

    def _whole(self, task: RefitTask, notes: Notes) -> FullFit | None:
        problem = self.problem
        fitted = notes.attempt(WHOLE, lambda: problem.fit(task))
        if fitted is None:
            return None
        told = tuple(notes.warnings)
        criteria = {
            name: notes.attempt(name, partial(getattr(fitted, name), problem.demos, problem.groups))
            for name in ("bic", "aic", "icl")
        }
        return FullFit(fitted, criteria, told)

    def scores(self, task: RefitTask) -> FloatArray:
        """Return the log-likelihood of each unit of a fold under the mixture fitted without it."""
        out = self.problem.folds(self.folds) == task.number
        fitted = self.problem.fit(task, ~out)
        # Both are in the order of the units' names.
        return fitted.score_samples(*self.problem.part(out))

    def labels(self, task: RefitTask) -> IntArray:
        """Return the intent (G,) of each unit, chosen for the resample or not, under the fit to it."""
        problem = self.problem
        _, first = np.unique(problem.units.broadcast(problem.units.names), return_index=True)
        fitted = problem.fit(task, problem.resample(task.number))
        return np.asarray(fitted.predict(problem.demos, problem.groups)[first])


def parts(numbers: list[int], folds: int, resamples: int, failed: set[int], tick: Tick) -> Iterator[RefitTask]:
    """Yield all fits to make, lazily, for what cannot be fitted cannot be recommended, and its parts are left out.

    Parameters
    ----------
    failed : set of int
        Numbers of intents whose fit to all units has failed so far; grows while fits come back.
    tick : callable
        Counts what is left out.
    """
    for k in numbers:
        yield RefitTask(k, WHOLE)
        for kind, n in ((FOLD, folds), (RESAMPLE, resamples)):
            for i in range(n):
                if k in failed:
                    tick(f"K = {k} failed")
                elif kind == RESAMPLE and k == 1:
                    tick(f"K = 1, resample {i + 1}")  # one intent leaves nothing to agree on
                else:
                    yield RefitTask(k, kind, i)


def held_out(problem: SelectionProblem, found: dict[RefitTask, RefitResult], n_intents: int, folds: int) -> FloatArray:
    """Return the log-likelihood (G,) of each unit under the mixture fitted without its fold; nan where that failed."""
    scores = np.full(len(problem.units), np.nan)
    for fold in range(folds):
        value = found[RefitTask(n_intents, FOLD, fold)].value
        if value is not None:
            scores[problem.folds(folds) == fold] = value
    return scores
