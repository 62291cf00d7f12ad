"""The released agents of Sigma-GIRL: the data, their gradients, and the effect of the warm start."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from limiirl.demos import Groups
from limiirl.demos.agents import Agents
from limiirl.irl.sigma_girl.likelihood import clone_policy, jacobians
from limiirl.irl.sigma_girl.model import SigmaGIRL
from tests.oracles.released import SIZES, exact, gap, join, load, mix_sets, own, same_policy, score, seed

REPEATS = 12
# In each step -phi_0 - phi_1 + phi_2 = 1.
CONSTANT = np.array([-1.0, -1.0, 1.0])


@pytest.fixture(name="sets")
def data_sets(shared_data: Callable[[str], Path]) -> list[Agents]:
    return load(shared_data("sigma_girl_gridworld"))


def test_six_data_sets_of_a_hundred_trajectories(sets):
    assert len(sets) == 6
    for agents in sets:
        assert agents.names.tolist() == ["center", "up", "border"]
        for agent in agents:
            assert agent.policy_features.shape == (100, 30, 25)
            assert agent.actions.shape == (100, 30, 2)
            assert agent.reward_features.shape == (100, 30, 3)
            assert all(np.all(np.isfinite(part)) for part in agent)
            # Radial features are normalised while an agent acts, from the start to the goal.
            np.testing.assert_allclose(agent.policy_features[agent.live].sum(axis=1), 1.0, rtol=0, atol=1e-6)
            assert np.all(agent.live[:, 0])
            assert np.all(np.diff(agent.live.astype(int), axis=1) <= 0)
            np.testing.assert_array_equal(agent.actions[~agent.live], 0.0)
            np.testing.assert_array_equal(
                agent.reward_features[~agent.live], np.tile([0, 0, 1], ((~agent.live).sum(), 1))
            )


def test_agents_have_the_same_policy_in_all_data_sets(sets):
    # Pooling requires equal policies across data sets; policies of different agents differ significantly.
    assert min(same_policy(sets)) > 0.01
    crossed = [agents[[k % 2, 1, 2]] for k, agents in enumerate(sets)]  # center and up alternate
    assert min(same_policy(crossed)) < 1e-10


def test_pooled_trajectories_are_all_of_them_and_repeats_differ(sets):
    whole = join(sets)
    assert [len(agent.live) for agent in whole] == [600, 600, 600]
    np.testing.assert_array_equal(whole[1].actions[200:300], sets[2][1].actions)
    for read in (own, mix_sets):
        inputs = [read(sets, 100, repeat) for repeat in range(40)]
        assert len({hash(agents) for agents in inputs}) == (6 if read is own else 40)
    assert len({hash(whole.subsample(100, seed(100, repeat))) for repeat in range(40)}) == 40


@pytest.mark.parametrize("n", SIZES)
def test_constant_reward_has_no_gradient(sets, n):
    for i, agent in enumerate(sets[0].subsample(n, 0)):
        np.testing.assert_allclose(agent.reward_features @ CONSTANT, 1.0, rtol=0, atol=1e-12)
        scores = clone_policy(agent, 1e-2, i).scores
        J = jacobians(scores, agent.reward_features, 0.99, floor=0.0)
        # Size of the terms before subtraction.
        size = np.abs(np.cumsum(scores, axis=1)).max() * np.abs(agent.reward_features).sum(axis=1).max()
        np.testing.assert_allclose(J @ CONSTANT, 0.0, rtol=0, atol=1e-13 * size)
        original = jacobians(scores, agent.reward_features, 0.99, floor=1e-10)
        np.testing.assert_allclose(original @ CONSTANT, 0.0, rtol=0, atol=1e-6 * size)
        if i > 0:
            assert np.abs(J @ [1.0, -1.0, 1.0]).max() > 1e-3 * size  # other directions have a gradient


def test_center_has_the_same_features_in_nearly_all_trajectories(sets):
    # Small changes of its policy do not change its features, so its Jacobian is uninformative.
    distinct = [np.unique(agent.reward_features, axis=0, return_counts=True)[1] for agent in join(sets)]
    assert distinct[0].tolist() == [589, 11]
    assert min(len(distinct[1]), len(distinct[2])) > 10
    center = join(sets)[[0]].subsample(5, seed(5, 0))
    omegas = np.random.default_rng(0).dirichlet(np.ones(3), 20)
    exactly, original = (SigmaGIRL(baseline_floor=floor).log_prob(None, omegas, center)[0] for floor in (0.0, 1e-10))
    assert np.ptp(exactly) == 0.0
    assert np.ptp(original) > 1.0  # effect of the constant 1e-10 of the original code


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_objective_is_invariant_to_the_norm_of_omega(sets, covariance):
    agents = sets[1].subsample(20, 3)
    profile = SigmaGIRL(covariance=covariance).make_problem(None, agents, Groups.from_labels(None, 3)).profile
    omegas = np.random.default_rng(0).dirichlet(np.ones(3), 8)
    values = profile.values(omegas)
    assert np.ptp(values, axis=1).min() > 1.0
    for factor in (1e-6, 3.0, 1e6):
        np.testing.assert_allclose(profile.values(factor * omegas), values, rtol=1e-9)
    for omega in omegas:
        _, gradients = profile.gradients(omega)
        np.testing.assert_allclose(gradients @ omega, 0.0, rtol=0, atol=1e-8 * np.abs(gradients).max())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::limiirl.errors.IdentifiabilityWarning")  # agent "center" has a constant feature
def test_the_warm_start_is_never_below_random_and_above_in_all(sets):
    """The experiment with fewer repeats; `benchmarks.agents` has 40 repeats and more initialisations."""
    whole, warm, chance = join(sets), [], []
    for n in SIZES:
        inputs = [whole.subsample(n, seed(n, repeat)) for repeat in range(REPEATS)]
        ours, theirs = (
            [score(agents, init, "reward", repeat) for repeat, agents in enumerate(inputs)]
            for init in ("kmeans", "random")
        )
        assert not gap(ours, theirs).below
        warm, chance = warm + ours, chance + theirs
    result = gap(warm, chance)
    assert result.p_exact < 1e-3
    assert result.higher > result.lower
    assert result.anid.difference.high < 0.0


def test_center_is_misassigned_without_the_constant(sets):
    # All five trajectories of center have the same features, so it is assigned to the larger intent.
    inputs = [join(sets).subsample(5, seed(5, repeat)) for repeat in range(4)]
    assert all(len(np.unique(agents[0].reward_features, axis=0)) == 1 for agents in inputs)
    for floor, expected in ((0.0, 2 / 3), (1e-10, 1.0)):
        result = [score(agents, [0, 1, 1], "reward", 0, floor).accuracy for agents in inputs]
        np.testing.assert_allclose(result, expected, rtol=1e-12)


def test_an_exact_sign_test_counts_pairs_that_differ():
    up, down, p = exact([1.0, 1.0, 1.0, 2 / 3, 1.0], [2 / 3, 2 / 3, 2 / 3, 1.0, 1.0])
    assert (up, down) == (3, 1)
    assert p == pytest.approx(2 * (1 + 4) / 16, rel=1e-12)  # at most one of four coins falls the other way
    assert exact([1.0], [1.0]) == (0, 0, 1.0)
