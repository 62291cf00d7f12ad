"""Trials of models that learn from agents: several trajectories each, one intent an agent.

A world may have agents of its own, as the continuous PuddleWorld has. In any other, the demonstrations of an intent are
handed out to some agents: each knows which trajectories are its own, and nobody knows which agents share an intent.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limiirl.demos.agents import Agents
from limiirl.errors import InvalidParameter
from limiirl.experiments.problems import SECOND_SET, known, make_problem
from limiirl.experiments.spec import AGENT_WORLDS, Parameters, Spec
from limiirl.mdp import MDP
from limiirl.mdp.ensemble import RewardEnsemble
from limiirl.metrics import gevd
from limiirl.metrics.evaluation import recover
from limiirl.mixture import IntentMixture
from limiirl.worlds.continuous_puddleworld import ContinuousPuddleWorld

Labels = NDArray[np.int64]


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
    labels: Labels
    test: Agents
    test_labels: Labels
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


def _numbers(agents: Agents) -> Labels:
    """Return the intents of agents as numbers from 0."""
    if agents.labels is None:
        raise InvalidParameter("The agents of a trial must have labels; these have none.")
    return np.unique(agents.labels, return_inverse=True)[1].astype(np.int64)


@lru_cache(maxsize=4)
def _handed_out(spec: Spec, n_agents: int, seed: int) -> AgentsProblem:
    problem = make_problem(spec, seed)
    mdp = problem.world.mdp
    if mdp.state_features is None or mdp.n_features != mdp.n_state_features:
        raise InvalidParameter(f"Agents collect features of states; those of {spec.world} are not all of that kind.")
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
        raise InvalidParameter(f"n_agents must be given: {spec.world} has no agents of its own; got None.")
    # Only what makes the agents, so that all methods share them.
    made = Spec(spec.world, spec.world_parameters, *sizes, spec.imbalance)
    return _handed_out(made, spec.n_agents, seed)


def handed_out(labels: Labels, n_agents: int) -> Labels:
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
