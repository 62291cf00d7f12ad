"""Several starts of EM, here or on the workers of an executor; what they found, and how far their solutions lie apart.

Intents of one fit in the order of another's: intents have no numbers by nature, so every fit numbers them anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from sklearn.base import clone

from limiirl._parallel import Mapper, map_tasks
from limiirl._typing import FloatArray, IntArray
from limiirl.demos import Demonstrations
from limiirl.errors import DivergentPartition, InvalidParameter, NumericalError
from limiirl.irl import FitProblem, make_problem
from limiirl.mdp import RewardEnsemble
from limiirl.mixture import validate
from limiirl.mixture.em import Settings, Solution, run
from limiirl.mixture.init import Starts
from limiirl.mixture.monitor import Iteration, Reports
from limiirl.mixture.split_merge import refine

if TYPE_CHECKING:
    from limiirl.mixture.estimator import IntentMixture


def intent_order(mixture: IntentMixture, other: IntentMixture | RewardEnsemble) -> IntArray:
    """Return (K,) the intents of a mixture in the order of those of another that they resemble most.

    Two mixtures of the same demonstrations are compared by who follows which intent. Otherwise what matters is how
    intents behave: features that they are expected to collect, in units of their spread, where the mixture's model has
    `expected_features`; else rewards themselves. Where the numbers of intents differ, some have no counterpart; those
    of the mixture come last.

    Examples
    --------
    >>> from limiirl import MDP, Demonstrations, IntentMixture, MaxEnt
    >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0], [1], [-1]])
    >>> demos = Demonstrations.from_lists([[0, 1], [0, 1], [0, 2]])
    >>> mix = IntentMixture(2, MaxEnt(2, bounds=(-3, 3)), init=[0, 0, 1]).fit(mdp, demos)
    >>> mix.thetas_.ravel().tolist()
    [3.0, -3.0]
    >>> intent_order(mix, RewardEnsemble([0.5, 0.5], [[-1.0], [1.0]])).tolist()
    [1, 0]
    """
    validate.fitted(mixture)
    if not isinstance(other, RewardEnsemble):
        if not hasattr(other, "thetas_"):
            raise InvalidParameter(
                f"Intents are aligned to a fitted IntentMixture or a RewardEnsemble; got {type(other).__name__}. "
                "Fit it first.",
                parameter="other",
            )
        if _same_demonstrations(mixture, other):
            return assign(-(other.responsibilities_.T @ mixture.responsibilities_))
    theirs = np.asarray(other.thetas if isinstance(other, RewardEnsemble) else other.thetas_)
    if theirs.shape[1] != mixture.thetas_.shape[1]:
        raise InvalidParameter(
            f"Intents can only be aligned where rewards have the same features; these have {mixture.thetas_.shape[1]}, "
            f"the others {theirs.shape[1]}.",
            parameter="other",
        )
    behaviour = _behaviour(mixture, np.vstack([mixture.thetas_, theirs]))
    spread = behaviour.std(axis=0)
    told_apart = spread > 1e-12 * np.abs(behaviour).max(axis=0)
    scaled = behaviour[:, told_apart] / spread[told_apart]
    K = len(mixture.weights_)
    return assign(cdist(scaled[K:], scaled[:K]))


def _same_demonstrations(one: Any, other: Any) -> bool:
    mine, theirs = getattr(one, "_problem", None), getattr(other, "_problem", None)
    return mine is not None and theirs is not None and bool(mine.demos == theirs.demos)


def _behaviour(mixture: Any, thetas: FloatArray) -> FloatArray:
    """Return a row for each of thetas (n, d): expected features, or the rewards where these cannot be had."""
    expected = getattr(mixture.irl_, "expected_features", None)
    if expected is not None:
        try:
            return np.asarray(expected(mixture.mdp_, thetas), dtype=np.float64)
        except (DivergentPartition, NumericalError):
            pass  # the other's rewards may lie where this model has no finite sum
    return thetas


def assign(cost: FloatArray) -> IntArray:
    """Return (K,) the columns of cost (K', K) in the order of the rows that they go with; those left over come last.

    Examples
    --------
    >>> assign(np.array([[5.0, 0.0, 5.0], [5.0, 5.0, 1.0]])).tolist()
    [1, 2, 0]
    """
    _, columns = linear_sum_assignment(cost)  # rows come sorted
    left = np.setdiff1d(np.arange(cost.shape[1]), columns)
    return np.concatenate([columns, left]).astype(np.int64)


def in_order_of_labels(mixture: IntentMixture, labels: NDArray[np.int64], n_labels: int) -> IntentMixture:
    """Return a copy of a mixture whose intent k is that which most resembles label k of its own demonstrations (N,).

    Examples
    --------
    >>> from limiirl import MDP, Demonstrations, IntentMixture, MaxEnt
    >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0], [1], [-1]])
    >>> demos = Demonstrations.from_lists([[0, 1], [0, 1], [0, 2]])
    >>> mix = IntentMixture(2, MaxEnt(2, bounds=(-3, 3)), init=[0, 0, 1]).fit(mdp, demos)
    >>> in_order_of_labels(mix, np.array([1, 1, 0]), 2).labels_
    array([1, 1, 0])
    """
    truth = np.eye(n_labels)[labels]
    return permuted(mixture, assign(-(truth.T @ mixture.responsibilities_)))


def permuted(mixture: IntentMixture, order: IntArray) -> IntentMixture:
    """Return a copy of a fitted mixture whose intent k is what was intent order[k]; history and restarts follow.

    Examples
    --------
    >>> from limiirl import MDP, Demonstrations, IntentMixture, MaxEnt
    >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0], [1], [-1]])
    >>> demos = Demonstrations.from_lists([[0, 1], [0, 1], [0, 2]])
    >>> mix = IntentMixture(2, MaxEnt(2, bounds=(-3, 3)), init=[0, 0, 1]).fit(mdp, demos)
    >>> permuted(mix, np.array([1, 0])).weights_.round(2)
    array([0.33, 0.67])
    """
    found: IntentMixture = clone(mixture)
    for name in vars(mixture).keys() - mixture.get_params(deep=False).keys():
        setattr(found, name, getattr(mixture, name))
    for name in ("weights_", "thetas_"):
        setattr(found, name, getattr(mixture, name)[order])
    for name in ("responsibilities_", "group_responsibilities_"):
        U = getattr(mixture, name, None)
        setattr(found, name, None if U is None else np.ascontiguousarray(U[:, order]))
    if found.responsibilities_ is not None:
        found.labels_ = np.argmax(found.responsibilities_, axis=1)
    found.history_ = [_permuted_iteration(entry, order) for entry in mixture.history_]
    found.restarts_ = [
        replace(start, ensemble=RewardEnsemble(start.ensemble.weights[order], start.ensemble.thetas[order]))
        for start in mixture.restarts_
    ]
    return found


def _permuted_iteration(entry: Iteration, order: IntArray) -> Iteration:
    event, word = entry.event, "reseeded "
    if event.startswith(word):  # it names an intent
        event = f"{word}{int(np.argmax(order == int(event.removeprefix(word))))}"
    return replace(entry, weights=entry.weights[order], event=event)


Seed = np.random.SeedSequence
# Objectives (nats a unit) closer than this are the same solution, reached to within EM's tolerance.
_SAME_OBJECTIVE = 1e-5


@dataclass(frozen=True)
class Restart:
    """One start of EM.

    Attributes
    ----------
    objective : float
        Mean penalised log-likelihood.
    n_iter, converged : int, bool
    ensemble : RewardEnsemble
        Intents in the order of the best solution's.
    distance : float
        Share of the units that would have to change intent to turn this solution into the best.
    best : bool
        Whether it reached the best objective.
    """

    objective: float
    n_iter: int
    converged: bool
    ensemble: RewardEnsemble
    distance: float
    best: bool


def compare(solutions: list[Solution], best: Solution) -> list[Restart]:
    """Return what each start found, aligned with the best."""
    found = []
    for solution in solutions:
        order = assign(-(best.U.T @ solution.U))
        distance = 0.5 * float(np.mean(np.sum(np.abs(solution.U[:, order] - best.U), axis=1)))
        found.append(
            Restart(
                solution.objective,
                solution.n_iter,
                solution.converged,
                RewardEnsemble(solution.rho[order], solution.thetas[order]),
                distance,
                best.objective - solution.objective <= _SAME_OBJECTIVE,
            )
        )
    return found


class Outcome(NamedTuple):
    """What one start led to.

    Attributes
    ----------
    solution : Solution
    empty : tuple of int
        Intents that had no members where it began.
    model : object
        The single-intent model afterwards: one without a `make_problem` may keep what its `fit` has settled.
    """

    solution: Solution
    empty: tuple[int, ...]
    model: Any


class EMFromSeed:
    """EM from one of several starts, as a function of the start's number and its seed.

    Copies for workers leave the fit problem behind; each makes it once, whatever the number of its starts.

    Parameters
    ----------
    mixture : IntentMixture
        Whose parameters to use.
    irl : model
        Its model, fresh.
    settings : Settings
    mdp, demos, groups
        Those of `IntentMixture.fit`.

    Attributes
    ----------
    reports : callable or None
        From the number of a start to the callback of its EM.
    """

    def __init__(
        self, mixture: IntentMixture, irl: Any, settings: Settings, mdp: Any, demos: Demonstrations, groups: Any
    ) -> None:
        self.n_intents, self.reward_init, self.refine = mixture.n_intents, mixture.reward_init, mixture.refine
        self.init, self.embedding = mixture.init, mixture.embedding
        self.irl, self.settings = irl, settings
        self.mdp, self.demos, self.groups = mdp, demos, groups
        self.reports: Reports | None = None
        self._starts: Starts | None = None

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"reports": None, "_starts": None}

    @property
    def starts(self) -> Starts:
        """The `init` with the data that it is applied to."""
        if self._starts is None:
            problem = make_problem(self.irl, self.mdp, self.demos, self.groups)
            self._starts = Starts(self.init, self.embedding, problem)
        return self._starts

    @property
    def problem(self) -> FitProblem:
        """The model with its data."""
        return self.starts.problem

    def __call__(self, task: tuple[int, Seed]) -> Outcome:
        """Return the outcome of EM from start i."""
        i, seed = task
        rng, callback = np.random.default_rng(seed), None if self.reports is None else self.reports(i)
        start = self.starts.begin(self.n_intents, self.reward_init, rng, first=i == 0)
        solution = run(self.problem, start, self.settings, callback)
        if self.refine is not None:
            solution = refine(self.problem, solution, self.settings, callback)
        return Outcome(solution, start.empty, None if hasattr(self.irl, "make_problem") else self.irl)

    def map(self, seeds: Sequence[Seed], reports: Reports, executor: Mapper) -> list[Outcome]:
        """Return the outcome of each start, in order, from the workers of an executor; report each once it ends."""
        outcomes = []
        for i, outcome in enumerate(map_tasks(self, enumerate(seeds), executor)):
            outcomes.append(outcome)
            if (report := reports(i)) is not None:
                for entry in outcome.solution.history:
                    report(entry)
        model = outcomes[-1].model
        if model is not None:
            self.irl, self._starts = model, None
        return outcomes
