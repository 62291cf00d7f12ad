"""The world and the demonstrations of a trial, or its agents, with the truth behind them.

Paper: section "ElementWorld Results", experimental configuration.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limiirl._typing import IntArray
from limiirl.demos import Agents, Demonstrations
from limiirl.errors import InvalidParameter
from limiirl.experiments.spec import AGENT_WORLDS, Parameters, Spec
from limiirl.mdp import MDP, RewardEnsemble
from limiirl.metrics import evaluate, gevd, recover
from limiirl.mixture import IntentMixture
from limiirl.worlds import WORLDS, ContinuousPuddleWorld, World, geometric_weights

SECOND_SET = 1
"""Added to the seed of the demonstrations to learn from, it is that of those to judge by."""


@dataclass(frozen=True, eq=False)
class WorldProblem:
    """What a trial is about: a world, its demonstrations, and the truth behind them.

    Attributes
    ----------
    world : World
    truth : RewardEnsemble
        The true rewards, with the shares by which demonstrations were drawn.
    demos, labels : Demonstrations, (N,)
        To learn from.
    test, test_labels : Demonstrations, (N',)
        To judge by.
    """

    world: World
    truth: RewardEnsemble
    demos: Demonstrations
    labels: NDArray[np.int64]
    test: Demonstrations
    test_labels: NDArray[np.int64]

    @property
    def longest(self) -> int:
        """The longest demonstration of both sets."""
        return int(max(self.demos.lengths.max(), self.test.lengths.max()))

    @property
    def fitted_in(self) -> MDP:
        """The MDP that a model is given."""
        return self.world.mdp

    @property
    def n_labels(self) -> int:
        """Number of true intents."""
        return self.truth.n_intents

    def points(self, irl: Any) -> NDArray[np.float64]:
        """Return (N, d), what a warm start clusters: the demonstrations' features."""
        del irl
        return self.demos.features(self.world.mdp)

    def rewards(self, thetas: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return rewards (K, d) in the world from a model's parameters, or the other way round: they are the same."""
        return thetas

    def scores(self, mixture: IntentMixture) -> dict[str, Any]:
        """Return the scores of one mixture by their names in a record."""
        found = evaluate(mixture, self.test, self.test_labels, self.truth)
        assert found.recovery is not None  # labels were given
        assert found.gevd is not None  # and the truth
        return {
            "nll": found.nll.mean,
            "train_nll": -mixture.log_likelihood_,
            "anid": found.recovery.anid,
            "anid_hard": found.recovery.anid_hard,
            "anid_truth": None if found.reference is None else found.reference.anid,
            "accuracy": found.recovery.accuracy,
            "gevd": found.gevd.value,
            "gevd_normalised": known(found.gevd.normalised),
            "weights": mixture.weights_.tolist(),
            "thetas": mixture.thetas_.tolist(),
        }


def known(value: float) -> float | None:
    """Return None for what does not exist, such as the change of a start without clusters.

    Examples
    --------
    >>> known(1), known(float("nan"))
    (1.0, None)
    """
    return None if np.isnan(value) else float(value)


# Methods are compared on the same data, and come one after the other: a few problems are kept.
@lru_cache(maxsize=4)
def _problem(world: str, given: Parameters, sizes: tuple[int, int], imbalance: float, seed: int) -> WorldProblem:
    if world not in WORLDS:
        raise InvalidParameter(
            f"world must be one of {', '.join(WORLDS)}; got {world!r}.", parameter="world", value=world
        )
    made: World = WORLDS[world](**dict(given), seed=seed)
    truth, weights = made.ensemble, None
    if imbalance:
        weights = geometric_weights(truth.n_intents, imbalance)
        truth = RewardEnsemble(weights, truth.thetas)
    demos, labels = made.sample(sizes[0], seed=2 * seed, weights=weights)
    test, test_labels = made.sample(sizes[1], seed=2 * seed + SECOND_SET, weights=weights)
    return WorldProblem(made, truth, demos, labels, test, test_labels)


def make_problem(spec: Spec, seed: int) -> WorldProblem:
    """Return the world and the demonstrations of a trial: those of two methods with one seed are the same.

    Examples
    --------
    >>> problem = make_problem(Spec(n_demos=12), seed=3)
    >>> problem.world.seed, len(problem.demos), len(problem.test), problem.truth.n_intents
    (3, 12, 100, 3)
    """
    return _problem(spec.world, spec.world_parameters, (spec.n_demos, spec.n_test), spec.imbalance, seed)


@dataclass(frozen=True, eq=False)
class AgentsProblem:
    """What a trial with agents is about.

    Attributes
    ----------
    demos, labels : Agents, (M,)
        To learn from.
    test, test_labels : Agents, (M',)
        To judge by.
    mdp, truth : MDP, RewardEnsemble
        What to plan in, and the true rewards, where rewards can be compared with them; else None.
    """

    demos: Agents
    labels: IntArray
    test: Agents
    test_labels: IntArray
    mdp: MDP | None = None
    truth: RewardEnsemble | None = None

    @property
    def fitted_in(self) -> None:
        """The MDP that a model is given: none."""
        return None

    @property
    def n_labels(self) -> int:
        """Number of true intents."""
        return int(self.labels.max()) + 1

    def points(self, irl: Any) -> NDArray[np.float64]:
        """Return (M, m), what a warm start clusters."""
        return np.asarray(irl.features(None, self.demos))

    def rewards(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return rewards (K, d) in the MDP from weights of costs, or the other way round; without an MDP the same."""
        return weights if self.mdp is None else -weights

    def scores(self, mixture: IntentMixture) -> dict[str, Any]:
        """Return the scores of one mixture by their names in a record.

        Weights are known up to their length and to what is the same in all steps, so that without an MDP to plan in
        nothing can be said of them.
        """
        found = recover(self.test_labels, mixture.predict_proba(self.test))  # type: ignore[arg-type]
        learned = RewardEnsemble(mixture.weights_, self.rewards(mixture.thetas_))
        value = None if self.mdp is None or self.truth is None else gevd(self.mdp, self.truth, learned)
        return {
            "nll": -mixture.score(self.test),  # type: ignore[arg-type]
            "train_nll": -mixture.log_likelihood_,
            "anid": found.anid,
            "anid_hard": found.anid_hard,
            "anid_truth": None,
            "accuracy": found.accuracy,
            "gevd": None if value is None else value.value,
            "gevd_normalised": None if value is None else known(value.normalised),
            "weights": learned.weights.tolist(),
            "thetas": learned.thetas.tolist(),
        }


def with_agents(spec: Spec) -> bool:
    """Whether a specification is of a model that learns from agents.

    Examples
    --------
    >>> with_agents(Spec()), with_agents(Spec(n_agents=3))
    (False, True)
    """
    return spec.n_agents is not None or spec.world in AGENT_WORLDS


# Methods are compared on the same data, and come one after the other: a few problems are kept.
@lru_cache(maxsize=4)
def _own_agents(given: Parameters, sizes: tuple[int, int], seed: int) -> AgentsProblem:
    made = _puddle(given, seed)
    demos, test = (made.agents(n, 2 * seed + which) for n, which in zip(sizes, (0, SECOND_SET), strict=True))
    return AgentsProblem(demos, _numbers(demos), test, _numbers(test))


@lru_cache(maxsize=2)
def _puddle(given: Parameters, seed: int) -> ContinuousPuddleWorld:
    """Return a world with its policies, which take seconds to train."""
    return ContinuousPuddleWorld(**dict(given), seed=seed)  # type: ignore[arg-type]


def _numbers(agents: Agents) -> IntArray:
    """Return the intents of agents as numbers from 0."""
    if agents.labels is None:
        raise InvalidParameter("The agents of a trial must have labels; these have none.", parameter="labels")
    return np.unique(agents.labels, return_inverse=True)[1].astype(np.int64)


@lru_cache(maxsize=4)
def _handed_out(spec: Spec, n_agents: int, seed: int) -> AgentsProblem:
    problem = make_problem(spec, seed)
    mdp = problem.world.mdp
    if mdp.state_features is None or mdp.n_features != mdp.n_state_features:
        raise InvalidParameter(
            f"Agents need a world whose features are all of states; got {spec.world!r}.",
            parameter="world",
            value=spec.world,
        )
    # Weights are not negative, so that they are costs here: every true reward in these worlds is at most zero.
    costs = -mdp.state_features
    given = ((problem.demos, problem.labels), (problem.test, problem.test_labels))
    demos, test = (
        Agents.from_demonstrations(mdp, of.replace(labels=labels), handed_out(labels, n_agents), reward_features=costs)
        for of, labels in given
    )
    return AgentsProblem(demos, _numbers(demos), test, _numbers(test), mdp, problem.truth)


def make_agents(spec: Spec, seed: int) -> AgentsProblem:
    """Return the agents of a trial: those of two methods with one seed are the same.

    Examples
    --------
    >>> problem = make_agents(Spec(n_agents=2, n_demos=30), seed=3)
    >>> len(problem.demos), problem.labels.tolist()
    (6, [0, 0, 1, 1, 2, 2])
    """
    sizes = (spec.n_demos, spec.n_test)
    if spec.world in AGENT_WORLDS:
        return _own_agents(spec.world_parameters, sizes, seed)
    if spec.n_agents is None:
        raise InvalidParameter(
            f"n_agents must be given: {spec.world} has no agents of its own; got None.", parameter="n_agents"
        )
    # Only what makes the agents, so that all methods share them.
    made = Spec(spec.world, spec.world_parameters, *sizes, spec.imbalance)
    return _handed_out(made, spec.n_agents, seed)


def handed_out(labels: IntArray, n_agents: int) -> IntArray:
    """Return the agent (N,) of each demonstration: those of an intent go to its agents by turns.

    Examples
    --------
    >>> handed_out(np.array([0, 1, 0, 0, 1]), 2).tolist()
    [0, 2, 1, 0, 3]
    """
    rank = np.zeros(labels.size, dtype=np.int64)
    for k in np.unique(labels):
        rank[labels == k] = np.arange(int(np.sum(labels == k)))
    return np.asarray(labels * n_agents + rank % n_agents)
