"""One trial: generate a world and its demonstrations from a seed, fit a mixture, and compare it with the ground truth.

Paper: section "ElementWorld Results", experimental configuration.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning as SklearnConvergenceWarning
from sklearn.mixture import GaussianMixture

from limiirl._parallel import one_thread
from limiirl._typing import IntArray
from limiirl._validation import check_choice
from limiirl.demos import Agents, Demonstrations
from limiirl.errors import InvalidParameter, LimiirlWarning
from limiirl.experiments.record import Record, describe_error
from limiirl.experiments.spec import AGENT_WORLDS, FULL_GMM, Parameters, Spec
from limiirl.irl import model_class
from limiirl.mdp import MDP, RewardEnsemble
from limiirl.metrics import evaluate, gevd, recover
from limiirl.mixture import IntentMixture
from limiirl.theory import inter_cluster_margin
from limiirl.worlds import WORLDS, ContinuousPuddleWorld, IntentWorld, geometric_weights

TEST_SET = 1
"""Difference between the seeds of the test set and the training set."""


@dataclass(frozen=True, eq=False)
class WorldProblem:
    """A world, training and test demonstrations with labels (N,), and the true rewards and mixture weights."""

    world: IntentWorld
    truth: RewardEnsemble
    demos: Demonstrations
    labels: NDArray[np.int64]
    test: Demonstrations
    test_labels: NDArray[np.int64]

    @property
    def longest(self) -> int:
        """Length of the longest training or test demonstration."""
        return int(max(self.demos.lengths.max(), self.test.lengths.max()))

    @property
    def mdp(self) -> MDP:
        """MDP of the world."""
        return self.world.mdp

    @property
    def n_labels(self) -> int:
        """Number of true intents."""
        return self.truth.n_intents

    def points(self, irl: Any) -> NDArray[np.float64]:
        """Return the features (N, d) that are clustered by a warm start."""
        del irl
        return self.demos.features(self.world.mdp)

    def rewards(self, thetas: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return thetas unchanged, because the parameters of the model are rewards (K, d)."""
        return thetas

    def scores(self, mixture: IntentMixture) -> dict[str, Any]:
        """Return the scores of a mixture by their names in a record."""
        evaluation = evaluate(mixture, self.test, self.test_labels, self.truth)
        assert evaluation.recovery is not None  # because labels are passed
        assert evaluation.gevd is not None  # because the true rewards are passed
        return {
            "nll": evaluation.nll.mean,
            "train_nll": -mixture.log_likelihood_,
            "anid": evaluation.recovery.anid,
            "anid_hard": evaluation.recovery.anid_hard,
            "anid_truth": None if evaluation.reference is None else evaluation.reference.anid,
            "accuracy": evaluation.recovery.accuracy,
            "gevd": evaluation.gevd.value,
            "gevd_normalised": nan_to_none(evaluation.gevd.normalised),
            "weights": mixture.weights_.tolist(),
            "thetas": mixture.thetas_.tolist(),
        }


def nan_to_none(value: float) -> float | None:
    """Return a float, or None for NaN."""
    return None if np.isnan(value) else float(value)


# Consecutive trials apply different methods to the same data, so a few problems are cached.
@lru_cache(maxsize=4)
def _make_problem(world: str, given: Parameters, sizes: tuple[int, int], imbalance: float, seed: int) -> WorldProblem:
    instance: IntentWorld = WORLDS[check_choice(world, "world", tuple(WORLDS))](**dict(given), seed=seed)
    truth, weights = instance.ensemble, None
    if imbalance:
        weights = geometric_weights(truth.n_intents, imbalance)
        truth = RewardEnsemble(weights, truth.thetas)
    demos, labels = instance.sample(sizes[0], seed=2 * seed, weights=weights)
    test, test_labels = instance.sample(sizes[1], seed=2 * seed + TEST_SET, weights=weights)
    return WorldProblem(instance, truth, demos, labels, test, test_labels)


def make_problem(spec: Spec, seed: int) -> WorldProblem:
    """Return the world and the demonstrations of a trial; they do not depend on the method.

    Examples
    --------
    >>> problem = make_problem(Spec(n_demos=12), seed=3)
    >>> problem.world.seed, len(problem.demos), len(problem.test), problem.truth.n_intents
    (3, 12, 100, 3)
    """
    return _make_problem(spec.world, spec.world_parameters, (spec.n_demos, spec.n_test), spec.imbalance, seed)


@dataclass(frozen=True, eq=False)
class AgentsProblem:
    """Training and test agents with labels (M,).

    If learned rewards can be compared with the truth, `plan_mdp` is the MDP and `truth` contains the true rewards.
    """

    demos: Agents
    labels: IntArray
    test: Agents
    test_labels: IntArray
    plan_mdp: MDP | None = None
    truth: RewardEnsemble | None = None

    @property
    def mdp(self) -> None:
        """None, because models of agents are fitted without an MDP."""
        return None

    @property
    def n_labels(self) -> int:
        """Number of true intents."""
        return int(self.labels.max()) + 1

    def points(self, irl: Any) -> NDArray[np.float64]:
        """Return the features (M, m) that are clustered by a warm start."""
        return np.asarray(irl.features(None, self.demos))

    def rewards(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Convert cost weights to rewards (K, d) or vice versa; without an MDP, return them unchanged."""
        return weights if self.plan_mdp is None else -weights

    def scores(self, mixture: IntentMixture) -> dict[str, Any]:
        """Return the scores of a mixture by their names in a record.

        Cost weights are identified only up to scale, and up to features that are constant over steps. Therefore only
        their effect on plans in an MDP is compared.
        """
        recovery = recover(self.test_labels, mixture.predict_proba(self.test))  # type: ignore[arg-type]
        learned = RewardEnsemble(mixture.weights_, self.rewards(mixture.thetas_))
        error = None if self.plan_mdp is None or self.truth is None else gevd(self.plan_mdp, self.truth, learned)
        return {
            "nll": -mixture.score(self.test),  # type: ignore[arg-type]
            "train_nll": -mixture.log_likelihood_,
            "anid": recovery.anid,
            "anid_hard": recovery.anid_hard,
            "anid_truth": None,
            "accuracy": recovery.accuracy,
            "gevd": None if error is None else error.value,
            "gevd_normalised": None if error is None else nan_to_none(error.normalised),
            "weights": learned.weights.tolist(),
            "thetas": learned.thetas.tolist(),
        }


def with_agents(spec: Spec) -> bool:
    """Return True if the model of a specification is fitted to `Agents`."""
    return spec.n_agents is not None or spec.world in AGENT_WORLDS


@lru_cache(maxsize=4)
def _make_puddle_agents(given: Parameters, sizes: tuple[int, int], seed: int) -> AgentsProblem:
    world = _make_puddle_world(given, seed)
    demos, test = (world.agents(n, 2 * seed + offset) for n, offset in zip(sizes, (0, TEST_SET), strict=True))
    return AgentsProblem(demos, _index_labels(demos), test, _index_labels(test))


@lru_cache(maxsize=2)
def _make_puddle_world(given: Parameters, seed: int) -> ContinuousPuddleWorld:
    return ContinuousPuddleWorld(**dict(given), seed=seed)  # type: ignore[arg-type]


def _index_labels(agents: Agents) -> IntArray:
    assert agents.labels is not None  # set by worlds and by `_convert_to_agents`
    return np.unique(agents.labels, return_inverse=True)[1].astype(np.int64)


@lru_cache(maxsize=4)
def _convert_to_agents(spec: Spec, n_agents: int, seed: int) -> AgentsProblem:
    problem = make_problem(spec, seed)
    mdp = problem.world.mdp
    if mdp.state_features is None or mdp.n_features != mdp.n_state_features:
        raise InvalidParameter.of("world", spec.world, "must have state features only if n_agents is set")
    # Sigma-GIRL learns nonnegative weights, but the true rewards are nonpositive. Therefore the weights are costs.
    costs = -mdp.state_features
    given = ((problem.demos, problem.labels), (problem.test, problem.test_labels))
    demos, test = (
        Agents.from_demonstrations(
            mdp, of.replace(labels=labels), assign_agents(labels, n_agents), reward_features=costs
        )
        for of, labels in given
    )
    return AgentsProblem(demos, _index_labels(demos), test, _index_labels(test), mdp, problem.truth)


def make_agents(spec: Spec, seed: int) -> AgentsProblem:
    """Return the agents of a trial; they do not depend on the method.

    Examples
    --------
    >>> problem = make_agents(Spec(n_agents=2, n_demos=30), seed=3)
    >>> len(problem.demos), problem.labels.tolist()
    (6, [0, 0, 1, 1, 2, 2])
    """
    sizes = (spec.n_demos, spec.n_test)
    if spec.world in AGENT_WORLDS:
        return _make_puddle_agents(spec.world_parameters, sizes, seed)
    if spec.n_agents is None:
        raise InvalidParameter.of(
            "n_agents", None, f"must be an integer (agents per intent) for the world {spec.world}"
        )
    # Pass only the fields that determine the agents, so that all methods share the cached problem.
    return _convert_to_agents(Spec(spec.world, spec.world_parameters, *sizes, spec.imbalance), spec.n_agents, seed)


def assign_agents(labels: IntArray, n_agents: int) -> IntArray:
    """Return the agent (N,) of each demonstration; the agents of an intent receive its demonstrations in turn.

    Examples
    --------
    >>> assign_agents(np.array([0, 1, 0, 0, 1]), 2).tolist()
    [0, 2, 1, 0, 3]
    """
    rank = np.zeros(labels.size, dtype=np.int64)
    for k in np.unique(labels):
        rank[labels == k] = np.arange(int(np.sum(labels == k)))
    return np.asarray(labels * n_agents + rank % n_agents)


_GMM_STARTS = 5


def get_problem(spec: Spec, seed: int) -> WorldProblem | AgentsProblem:
    """Return the problem of a trial, with demonstrations or agents depending on the model."""
    return make_agents(spec, seed) if with_agents(spec) else make_problem(spec, seed)


def make_mixture(spec: Spec, seed: int) -> IntentMixture:
    """Return the unfitted mixture of a trial.

    Examples
    --------
    >>> make_mixture(Spec(n_intents=2, init="gmm"), seed=3)
    IntentMixture(...)
    >>> make_mixture(Spec(model="MaxCausalEnt", max_length=30), seed=3).irl.max_length
    30
    """
    problem = get_problem(spec, seed)
    irl = model_class(spec.model)(**dict(spec.model_parameters))
    model_length = irl.get_params().get("max_length", 0)  # None for MaxEnt: the longest demonstration
    if not isinstance(spec.max_length, str):
        if model_length == 0:
            raise InvalidParameter.of("max_length", spec.max_length, f"must be 'longest' for {spec.model}")
        irl.set_params(max_length=spec.max_length)
    elif model_length is None and isinstance(problem, WorldProblem):
        irl.set_params(max_length=problem.longest)
    init: Any = spec.init
    if spec.supervised:
        init = problem.labels
    elif spec.init == FULL_GMM:
        init = GaussianMixture(init_params="random", n_init=_GMM_STARTS)
    more: dict[str, Any] = dict(spec.mixture_parameters)
    return IntentMixture(spec.n_intents, irl, init, spec.reward_init, max_iter=spec.max_iter, random_state=seed, **more)


def run_trial(spec: Spec, seed: int) -> Record:
    """Fit and evaluate one mixture; except for the times, the record depends only on the arguments.

    The initial ensemble is evaluated first, and EM starts from it. If `mixture_parameters` is set, which may request
    several initialisations, the mixture is instead fitted again from the beginning; the time of EM is then the time of
    this fit minus the time of the initialisation.

    Parameters
    ----------
    spec : Spec
    seed : int
        Seed of the world, of both sets of demonstrations and of the initialisation.

    Examples
    --------
    >>> record = run_trial(Spec(n_demos=60), seed=2)
    >>> record.n_iter, record.train_nll < record.train_nll_start, round(record.anid, 2)
    (2, True, 0.03)
    """
    with single_threaded():
        problem = get_problem(spec, seed)
        _warm_up(spec.model, spec.model_parameters, spec.mixture_parameters, with_agents(spec))
        mixture = make_mixture(spec, seed)
        first, seconds_start = _time(lambda: fit_problem(mixture.set_params(max_iter=0), problem))
        mixture = make_mixture(spec, seed)
        if spec.supervised or spec.max_iter == 0:
            last, seconds_em = first, 0.0
        elif spec.mixture_parameters:
            last, seconds = _time(lambda: fit_problem(mixture, problem))
            seconds_em = max(seconds - seconds_start, 0.0)
        else:
            last, seconds_em = _time(lambda: fit_problem(mixture.set_params(init=first.ensemble_), problem))
        start = problem.scores(first)
        final = start if last is first else problem.scores(last)
    max_length = last.irl_.get_params().get("max_length", math.inf)
    return Record(
        spec.hash,
        seed,
        max_length=max_length if math.isfinite(max_length) else None,
        n_iter=last.n_iter_,
        converged=last.converged_,
        seconds_start=seconds_start,
        seconds_em=seconds_em,
        margin=inter_cluster_margin(problem.points(last.irl_), problem.labels) if problem.n_labels > 1 else None,
        change=nan_to_none(first.history_[0].change),
        history=[-entry.log_likelihood for entry in last.history_],
        **{f"{name}_start": value for name, value in start.items()},
        **final,
    )


def attempt(task: tuple[Spec, int]) -> Record:
    """Run a trial and return its record; if the trial fails, the record contains the error.

    Examples
    --------
    >>> attempt((Spec(world="Nowhere"), 0)).error
    "InvalidParameter: world must be one of ElementWorld, PuddleWorld, ...; got 'Nowhere'."
    """
    spec, seed = task
    try:
        return run_trial(spec, seed)
    except Exception as error:  # noqa: BLE001 (any error is recorded and must not stop other trials)
        return Record(spec.hash, seed, *describe_error(error))


@lru_cache
def _warm_up(model: str, given: Parameters, more: Parameters, agents: bool) -> None:
    """Compile the kernels of a fit once per process, so that the times of trials do not include compilation."""
    small = Spec(n_demos=18, n_test=18, model=model, model_parameters=given, mixture_parameters=more)
    small = small.with_(n_agents=2) if agents else small
    for init in ("kmeans", "gmm"):
        fit_problem(make_mixture(small.with_(init=init, max_iter=1), 0), get_problem(small, 0))


@contextmanager
def single_threaded() -> Iterator[None]:
    """Return a context manager that suppresses warnings and uses one thread, because rounding depends on threads."""
    import numba

    before = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        with one_thread(), warnings.catch_warnings():
            warnings.simplefilter("ignore", LimiirlWarning)  # the record contains the content of these warnings
            warnings.simplefilter("ignore", SklearnConvergenceWarning)  # scikit-learn warns about poor clusterings
            yield
    finally:
        numba.set_num_threads(before)


def _time(function: Callable[[], IntentMixture]) -> tuple[IntentMixture, float]:
    start = time.perf_counter()
    return function(), time.perf_counter() - start


def fit_problem(mixture: IntentMixture, problem: WorldProblem | AgentsProblem) -> IntentMixture:
    """Fit a mixture to the demonstrations or agents of a problem."""
    return mixture.fit(problem.mdp, problem.demos)  # type: ignore[arg-type]
