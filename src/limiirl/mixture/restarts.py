"""Restarts of EM, serial or on an executor, and the alignment of intents between fits."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from sklearn.base import clone

from limiirl._parallel import Mapper, map_tasks
from limiirl._progress import Progress
from limiirl._typing import FloatArray, IntArray
from limiirl.demos import Demonstrations
from limiirl.errors import DivergentPartition, InvalidParameter, NumericalError
from limiirl.irl import FitProblem, OptionalMembers, make_problem
from limiirl.mdp import RewardEnsemble
from limiirl.mixture import validate
from limiirl.mixture.em import Callback, Settings, Solution, WeightDesign, report_iterations, run
from limiirl.mixture.init import Starts
from limiirl.mixture.split_merge import refine

if TYPE_CHECKING:
    from limiirl.mixture.estimator import IntentMixture


def intent_order(mixture: IntentMixture, other: IntentMixture | RewardEnsemble) -> IntArray:
    """Return the permutation (K,) of a mixture's intents that best matches the intents of `other`.

    Mixtures fitted to the same demonstrations are matched by responsibilities; others by standardised expected
    features, or by rewards if the model has no `expected_features`. Unmatched intents come last.
    """
    validate.check_fitted(mixture)
    if not isinstance(other, RewardEnsemble):
        if not hasattr(other, "thetas_"):
            raise InvalidParameter.of("other", other, "must be a fitted IntentMixture or a RewardEnsemble")
        if _same_demonstrations(mixture, other):
            return assign_columns(-(other.responsibilities_.T @ mixture.responsibilities_))
    theirs = np.asarray(other.thetas if isinstance(other, RewardEnsemble) else other.thetas_)
    if theirs.shape[1] != mixture.thetas_.shape[1]:
        raise InvalidParameter.of("other", theirs.shape[1], f"must have {mixture.thetas_.shape[1]} features")
    features = _compute_features(mixture, np.vstack([mixture.thetas_, theirs]))
    spread = features.std(axis=0)
    varies = spread > 1e-12 * np.abs(features).max(axis=0)
    scaled = features[:, varies] / spread[varies]
    K = len(mixture.weights_)
    return assign_columns(cdist(scaled[K:], scaled[:K]))


def _same_demonstrations(one: Any, other: Any) -> bool:
    mine, theirs = getattr(one, "_problem", None), getattr(other, "_problem", None)
    return mine is not None and theirs is not None and bool(mine.demos == theirs.demos)


def _compute_features(mixture: Any, thetas: FloatArray) -> FloatArray:
    """Return the expected features (n, d) of thetas (n, d), or `thetas` if these cannot be computed."""
    expected = OptionalMembers.of(mixture.irl_).expected_features
    if expected is not None:
        try:
            return np.asarray(expected(mixture.mdp_, thetas), dtype=np.float64)
        except (DivergentPartition, NumericalError):
            pass  # the other mixture's rewards may have an infinite partition function
    return thetas


def assign_columns(cost: FloatArray) -> IntArray:
    """Return the columns (K,) of a cost matrix (K', K) in the order of their assigned rows, unassigned ones last."""
    _, columns = linear_sum_assignment(cost)  # rows are sorted
    left = np.setdiff1d(np.arange(cost.shape[1]), columns)
    return np.concatenate([columns, left]).astype(np.int64)


def align_to_labels(mixture: IntentMixture, labels: NDArray[np.int64], n_labels: int) -> IntentMixture:
    """Return a copy of a mixture whose intent k best matches label k of its training demonstrations (N,)."""
    truth = np.eye(n_labels)[labels]
    return permute_intents(mixture, assign_columns(-(truth.T @ mixture.responsibilities_)))


def permute_intents(mixture: IntentMixture, order: IntArray) -> IntentMixture:
    """Return a copy of a fitted mixture whose intent k is intent order[k], also in its history and restarts."""
    result: IntentMixture = clone(mixture)
    for name in vars(mixture).keys() - mixture.get_params(deep=False).keys():
        setattr(result, name, getattr(mixture, name))
    for name in ("weights_", "thetas_"):
        setattr(result, name, getattr(mixture, name)[order])
    logits = mixture.membership_logits_
    result.membership_logits_ = None if logits is None else logits[order] - logits[order[0]]
    for name in ("responsibilities_", "group_responsibilities_"):
        U = getattr(mixture, name, None)
        setattr(result, name, None if U is None else np.ascontiguousarray(U[:, order]))
    if result.responsibilities_ is not None:
        result.labels_ = np.argmax(result.responsibilities_, axis=1)
    index = np.argsort(order)
    result.history_ = [
        # Events contain indices of intents.
        replace(entry, weights=entry.weights[order], event=re.sub(r"\d+", lambda k: str(index[int(k[0])]), entry.event))
        for entry in mixture.history_
    ]
    result.restarts_ = [
        replace(start, ensemble=RewardEnsemble(start.ensemble.weights[order], start.ensemble.thetas[order]))
        for start in mixture.restarts_
    ]
    return result


Seed = np.random.SeedSequence
# Maximum difference between objectives (nats per unit) that count as equal.
_SAME_OBJECTIVE = 1e-5


@dataclass(frozen=True)
class Restart:
    """The result of EM from one initialisation; its intents are aligned with the best solution.

    Attributes
    ----------
    objective : float
        Mean penalised log-likelihood.
    n_iter, converged, ensemble : int, bool, RewardEnsemble
    distance : float
        Mean total variation distance of the responsibilities from the best solution. For hard assignments, it is the
        fraction of units that are assigned to a different intent.
    best : bool
        True if the objective is within 1e-5 nats of the best one.
    """

    objective: float
    n_iter: int
    converged: bool
    ensemble: RewardEnsemble
    distance: float
    best: bool


def compare(solutions: list[Solution], best: Solution) -> list[Restart]:
    """Return one `Restart` per solution, aligned with the best solution."""
    restarts = []
    for solution in solutions:
        order = assign_columns(-(best.U.T @ solution.U))
        restarts.append(
            Restart(
                solution.objective,
                solution.n_iter,
                solution.converged,
                RewardEnsemble(solution.rho[order], solution.thetas[order]),
                0.5 * float(np.mean(np.sum(np.abs(solution.U[:, order] - best.U), axis=1))),
                best.objective - solution.objective <= _SAME_OBJECTIVE,
            )
        )
    return restarts


class Outcome(NamedTuple):
    """EM solution from one initialisation, the indices of the initially `empty` intents, and its `warnings`.

    `model` is None if the model has `make_problem`; otherwise it is the fitted model, whose `fit` may have set
    attributes.
    """

    solution: Solution
    empty: tuple[int, ...]
    warnings: tuple[str, ...]
    model: Any


class EMFromSeed:
    """EM from one of several initialisations, as a picklable function of (index, seed).

    The fit problem is not pickled; each worker creates it once. `callbacks` is empty on workers.
    """

    def __init__(
        self,
        mixture: IntentMixture,
        irl: Any,
        settings: Settings,
        mdp: Any,
        demos: Demonstrations,
        groups: Any,
        weight_design: WeightDesign | None = None,
    ) -> None:
        self.n_intents, self.reward_init, self.refine = mixture.n_intents, mixture.reward_init, mixture.refine
        self.init, self.embedding = mixture.init, mixture.embedding
        self.irl, self.settings = irl, settings
        self.mdp, self.demos, self.groups, self.weight_design = mdp, demos, groups, weight_design
        self.callbacks: list[Callback | None] = []
        self._starts: Starts | None = None

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"callbacks": [], "_starts": None}

    @property
    def starts(self) -> Starts:
        """The initialisations of the fit problem."""
        if self._starts is None:
            problem = make_problem(self.irl, self.mdp, self.demos, self.groups, self.weight_design)
            self._starts = Starts(self.init, self.embedding, problem, pooling=self.settings.pooling)
        return self._starts

    @property
    def problem(self) -> FitProblem:
        """The fit problem."""
        return self.starts.problem

    def __call__(self, task: tuple[int, Seed]) -> Outcome:
        """Run EM from initialisation i."""
        i, seed = task
        rng, callback = np.random.default_rng(seed), self.callbacks[i] if self.callbacks else None
        start = self.starts.begin(self.n_intents, self.reward_init, rng, first=i == 0)
        solution = run(self.problem, start, self.settings, callback)
        if self.refine is not None:
            solution = refine(self.problem, solution, self.settings, callback)
        model = self.irl if OptionalMembers.of(self.irl).make_problem is None else None
        return Outcome(solution, start.empty, start.warnings, model)

    def report_to(self, progress: Progress | None, n_starts: int) -> None:
        """Report the iterations of each of `n_starts` initialisations to `progress`."""
        max_iter = self.settings.max_iter
        self.callbacks = [report_iterations(progress, i, n_starts, max_iter) for i in range(n_starts)]

    def map(self, seeds: Sequence[Seed], executor: Mapper) -> list[Outcome]:
        """Run EM from all seeds on an executor; the iterations of a run are reported after it has ended."""
        outcomes = []
        for callback, outcome in zip(self.callbacks, map_tasks(self, enumerate(seeds), executor), strict=True):
            outcomes.append(outcome)
            if callback is not None:
                for entry in outcome.solution.history:
                    callback(entry)
        model = outcomes[-1].model
        if model is not None:
            self.irl, self._starts = model, None
        return outcomes
