"""Problems with agents: the same agents for every method."""

import numpy as np
import pytest

from limiirl.experiments.problem import assign_agents, make_agents, make_problem
from limiirl.experiments.spec import BASE, parameters
from limiirl.experiments.studies import STUDIES
from limiirl.worlds.continuous_puddleworld import ContinuousPuddleWorld

ELEMENTS = BASE.in_world(n_elements=2).with_(
    n_demos=40, n_test=40, n_intents=2, n_agents=2, model="SigmaGIRL", model_parameters=parameters(gamma=0.99)
)


PUDDLE = STUDIES["sigma-girl"].spec("k-means, reward features", 5)


def test_agents_share_all_demonstrations_of_their_intent():
    labels = np.array([1, 0, 1, 1, 0, 1, 0])
    owners = assign_agents(labels, 2)
    np.testing.assert_array_equal(owners, [2, 0, 3, 2, 1, 3, 0])
    problem, plain = make_agents(ELEMENTS, 3), make_problem(ELEMENTS, 3)
    assert problem.labels.tolist() == problem.test_labels.tolist() == [0, 0, 1, 1]
    assert sum(len(agent.live) for agent in problem.demos) == 40
    for k in range(2):
        own = np.flatnonzero(plain.labels == k)
        for i in range(2):
            mine = plain.demos[own[i::2]]
            expected = -mine.features(plain.world.mdp).mean(axis=0)  # costs
            np.testing.assert_allclose(problem.demos.features(0.99)[2 * k + i], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
def test_agents_depend_on_the_seed_and_not_on_the_method():
    one, other = (make_agents(ELEMENTS.with_(init=init), 3) for init in ("kmeans", "labels"))
    assert one is other
    assert make_agents(ELEMENTS, 4).demos != one.demos
    assert one.test != one.demos
    one, other = (make_agents(STUDIES["sigma-girl"].spec(method, 5), 1) for method in ("supervised", "random rewards"))
    assert one is other
    assert make_agents(PUDDLE, 2).demos != one.demos
    assert one.test != one.demos


def test_agents_of_the_puddle_world():
    problem, world = make_agents(PUDDLE.with_(n_test=7), 1), ContinuousPuddleWorld(gamma=0.999, seed=1)
    assert problem.demos == world.agents(5, seed=2)
    assert problem.test == world.agents(7, seed=3)
    assert problem.labels.tolist() == [0, 1, 1]
    assert problem.mdp is None
