"""Restarts of EM, split-and-merge moves out of local maxima, and the alignment of intents between fits.

A split-and-merge move (after Ueda et al. 2000) splits one intent, and merges the two of the resulting K + 1 intents
whose merger lowers the likelihood least. EM then continues, and the move is accepted if the objective increases.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.cluster import KMeans

from limiirl._parallel import Mapper, map_tasks, one_thread
from limiirl._progress import Progress
from limiirl._typing import FloatArray, IntArray
from limiirl.demos import Demonstrations
from limiirl.errors import DivergentPartition, InvalidParameter, NumericalError
from limiirl.irl import FitProblem, OptionalMembers, make_problem
from limiirl.mdp import RewardEnsemble
from limiirl.mixture import validate
from limiirl.mixture.em import (
    Callback,
    Iteration,
    Settings,
    Solution,
    Start,
    WeightDesign,
    nearly_empty,
    report_iterations,
    run,
)
from limiirl.mixture.init import Starts, normalise_counts

if TYPE_CHECKING:
    from limiirl.mixture.estimator import IntentMixture

# Maximum number of accepted moves per fit, and of moves tried before one is accepted.
_MOVES, _TRIES = 10, 3
# Iterations of EM before a move is accepted or rejected.
_TRIAL = 10
# Minimum increase of the objective (nats per unit) of an accepted move.
_LEAST_RISE = 1e-5
_KMEANS_STARTS = 5
# Minimum responsibility of a member of an intent, and the range below which points count as equal.
_MEMBER, _APART = 1e-6, 1e-12


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


class SplitMergeMove(NamedTuple):
    """Split of one intent and merger of `removed` into `kept`, with the gain in nats and the initial ensemble for EM.

    The gain is the increase in the log-likelihood before EM continues.
    """

    split: int
    kept: str
    removed: str
    gain: float
    start: Start

    def __str__(self) -> str:
        return f"split {self.split}, merged {self.removed} into {self.kept}"


def refine(problem: FitProblem, solution: Solution, settings: Settings, callback: Callback | None = None) -> Solution:
    """Return the solution after all moves that raise the objective.

    Each accepted move is one entry of the history, followed by the iterations of EM after it. Intents are split by
    clusters of normalised feature counts, regardless of the `embedding`.
    """
    if len(solution.rho) < 2 or settings.max_iter == 0:
        return solution
    plain = replace(settings, temperatures=())
    for _ in range(_MOVES):
        better = _try_moves(problem, solution, plain)
        if better is None:
            break
        solution = _continue(problem, solution, *better, plain, callback)
    return solution


def _try_moves(problem: FitProblem, solution: Solution, settings: Settings) -> tuple[SplitMergeMove, Solution] | None:
    """Return the first move that raises the objective, and its solution."""
    trial = replace(settings, max_iter=min(_TRIAL, settings.max_iter))
    for move in propose_moves(problem, solution, settings)[:_TRIES]:
        reached = run(problem, move.start, trial)
        if reached.objective > solution.objective + _LEAST_RISE:
            return move, reached
    return None


def _continue(
    problem: FitProblem,
    before: Solution,
    move: SplitMergeMove,
    reached: Solution,
    settings: Settings,
    callback: Callback | None,
) -> Solution:
    """Continue EM after a move, and append its iterations to the history."""
    last = before.history[-1].iteration + reached.n_iter
    entry = replace(reached.history[-1], iteration=last, change=np.nan, event=str(move))
    history = [*before.history, entry]
    if callback is not None:
        callback(entry)

    def record(later: Iteration) -> None:
        if later.iteration > 0:
            history.append(replace(later, iteration=last + later.iteration))
            if callback is not None:
                callback(history[-1])

    after = run(problem, Start(reached.rho, reached.thetas, reached.U, logits=reached.logits), settings, record)
    return replace(after, history=history)


def propose_moves(problem: FitProblem, solution: Solution, settings: Settings) -> list[SplitMergeMove]:
    """Return the moves that raise the likelihood even before EM continues, in descending order of gain.

    There is at most one move per split intent. The merged intent keeps the reward with the higher likelihood.
    """
    K, empty = len(solution.rho), nearly_empty(solution.U.sum(axis=0), len(solution.U))
    points = normalise_counts(problem)
    halves = {k: split_in_two(points, solution.U[:, k], seed=k) for k in range(K) if not empty[k]}
    split = {k: parts for k, parts in halves.items() if parts is not None}
    if not split:
        return []
    U = np.hstack([solution.U[:, [k]] * parts for k, parts in split.items()])
    starts = problem.project(np.repeat(solution.thetas[list(split)], 2, axis=0))
    thetas = problem.m_step(problem.moments(U), starts, np.arange(U.shape[1]), settings.max_evaluations).thetas
    log_p, log_halves = problem.log_prob(solution.thetas), problem.log_prob(thetas)
    proposals = []
    for j, k in enumerate(split):
        first, second = 2 * j, 2 * j + 1
        portion = U[:, [first, second]].sum(axis=0) / U[:, [first, second]].sum()
        # One half replaces the intent, the other is appended.
        wide, rewards = np.hstack([log_p, log_halves[:, [second]]]), np.vstack([solution.thetas, thetas[second]])
        wide[:, k], rewards[k] = log_halves[:, first], thetas[first]
        rho = np.append(solution.rho, solution.rho[k] * portion[1])
        rho[k] *= portion[0]
        log_likelihood, kept, removed = cheapest_merger(wide, rho, k)
        gain = log_likelihood - solution.log_likelihood * len(solution.U)
        if gain > 0.0:
            rho[kept] += rho[removed]
            rho[removed], rewards[removed] = rho[K], rewards[K]
            start = Start(rho[:K], rewards[:K])
            proposals.append(SplitMergeMove(k, _name(kept, k, K), _name(removed, k, K), gain, start))
    return sorted(proposals, key=lambda move: -move.gain)


def _name(i: int, split: int, K: int) -> str:
    return "a half" if i in (split, K) else str(i)


def cheapest_merger(log_p: FloatArray, rho: FloatArray, split: int) -> tuple[float, int, int]:
    """Return the highest log-likelihood after merging two intents, and the indices of the kept and the removed intent.

    `log_p` has shape (G, K + 1), `rho` (K + 1,). The `split` intent is not merged with the last intent, which is its
    other half.
    """
    top = np.max(log_p, axis=1)
    with np.errstate(invalid="ignore"):  # nan for units of zero likelihood, which is never the best value
        p = np.exp(log_p - top[:, None])
    total, last = p @ rho, rho.size - 1
    best = (-np.inf, 0, last)
    for i, j in combinations(range(rho.size), 2):
        if (i, j) == (split, last):
            continue
        rest = np.maximum(total - rho[i] * p[:, i] - rho[j] * p[:, j], 0.0)
        for kept, removed in ((i, j), (j, i)):
            with np.errstate(divide="ignore", invalid="ignore"):  # log 0 if no other intent can generate the unit
                value = float(np.sum(np.log(rest + (rho[i] + rho[j]) * p[:, kept]) + top))
            if value > best[0]:
                best = (value, kept, removed)
    return best


def split_in_two(points: FloatArray, weights: FloatArray, seed: int) -> FloatArray | None:
    """Split units in two by weighted k-means on points (G, m); return one-hot labels (G, 2).

    Returns None if all members coincide.
    """
    members = weights > _MEMBER
    if not np.any(np.ptp(points[members], axis=0) > _APART):
        return None
    halves = KMeans(2, n_init=_KMEANS_STARTS, random_state=seed)
    with one_thread():
        halves.fit(points[members], sample_weight=weights[members])
        labels = halves.predict(points)
    one_hot = np.eye(2)[labels]
    return one_hot if np.all(weights @ one_hot > 0.0) else None
