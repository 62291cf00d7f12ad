"""The fits behind a selection, each on its own: to all units, to those outside a fold, to a resample.

Any of them may run elsewhere. What it finds comes back small: numbers of the units that it was asked about, or a
mixture without its data.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from limiirl.irl.prepared import prepare
from limiirl.mixture.criteria import Float, Int, Notes, Problem
from limiirl.mixture.estimator import IntentMixture

WHOLE, FOLD, RESAMPLE = "fit", "fold", "resample"
Tick = Callable[[str], None]


class Part(NamedTuple):
    """One fit: of K intents to all units, to those outside a fold, or to a resample."""

    n_intents: int
    kind: str
    number: int = 0

    def __str__(self) -> str:
        return self.kind if self.kind == WHOLE else f"{self.kind} {self.number + 1}"


@dataclass(frozen=True, eq=False)
class Whole:
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
        for name in ("mdp_", "_prepared"):
            light.__dict__.pop(name, None)
        return vars(self) | {"mixture": light}

    def with_data(self, problem: Problem) -> Whole:
        """Return the same with a mixture that has its MDP and its demonstrations."""
        if hasattr(self.mixture, "mdp_"):
            return self
        found = copy.copy(self.mixture)
        found._prepared = prepare(found.irl_, problem.mdp, problem.demos, problem.groups)
        found.mdp_ = found._prepared.mdp
        return replace(self, mixture=found)


class Found(NamedTuple):
    """What a fit has found, and what went wrong: a `Whole`, scores or labels of units; None where it failed."""

    part: Part
    value: Any
    notes: Notes


@dataclass(frozen=True, eq=False)
class Refits:
    """The fits of a problem, as a function of the part."""

    problem: Problem
    folds: int

    def __call__(self, part: Part) -> Found:
        """Return what a fit finds; what fails on the data is noted."""
        notes = Notes()
        if part.kind == WHOLE:
            return Found(part, self._whole(part.n_intents, notes), notes)
        find = self.scores if part.kind == FOLD else self.labels
        return Found(part, notes.attempt(str(part), partial(find, part.n_intents, part.number)), notes)

    def _whole(self, n_intents: int, notes: Notes) -> Whole | None:
        problem = self.problem
        fitted = notes.attempt(WHOLE, lambda: problem.fit(n_intents))
        if fitted is None:
            return None
        told = tuple(notes.warnings)
        criteria = {
            name: notes.attempt(name, partial(getattr(fitted, name), problem.demos, problem.groups))
            for name in ("bic", "aic", "icl")
        }
        return Whole(fitted, criteria, told)

    def scores(self, n_intents: int, fold: int) -> Float:
        """Return the log-likelihood of each unit of a fold under the mixture fitted without it."""
        out = self.problem.folds(self.folds) == fold
        fitted = self.problem.fit_fold(n_intents, fold, ~out)
        # Both are in the order of the units' names.
        return fitted.score_samples(*self.problem.part(out))

    def labels(self, n_intents: int, i: int) -> Int:
        """Return the intent (G,) of each unit, chosen for resample i or not, under the fit to that resample."""
        problem = self.problem
        _, first = np.unique(problem.units.spread(problem.units.names), return_index=True)
        fitted = problem.fit_resample(n_intents, i, problem.resample(i))
        return np.asarray(fitted.predict(problem.demos, problem.groups)[first])


def parts(numbers: list[int], folds: int, resamples: int, failed: set[int], tick: Tick) -> Iterator[Part]:
    """Yield all fits to make, lazily, for what cannot be fitted cannot be recommended, and its parts are left out.

    Parameters
    ----------
    failed : set of int
        Numbers of intents whose fit to all units has failed so far; grows while fits come back.
    tick : callable
        Counts what is left out.
    """
    for k in numbers:
        yield Part(k, WHOLE)
        for kind, n in ((FOLD, folds), (RESAMPLE, resamples)):
            for i in range(n):
                if k in failed:
                    tick(f"K = {k} failed")
                elif kind == RESAMPLE and k == 1:
                    tick(f"K = 1, resample {i + 1}")  # one intent leaves nothing to agree on
                else:
                    yield Part(k, kind, i)


def held_out(problem: Problem, found: dict[Part, Found], n_intents: int, folds: int) -> Float:
    """Return the log-likelihood (G,) of each unit under the mixture fitted without its fold; nan where that failed."""
    scores = np.full(len(problem.units), np.nan)
    for fold in range(folds):
        value = found[Part(n_intents, FOLD, fold)].value
        if value is not None:
            scores[problem.folds(folds) == fold] = value
    return scores
