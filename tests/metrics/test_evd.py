"""EVD, ILE and the interval over ties: hand-solved MDPs, the specification's figures, and errors."""

from __future__ import annotations

import math

import numpy as np
import pytest

from limiirl.errors import InvalidParameter
from limiirl.mdp import MDP
from limiirl.mdp.planning import optimal_policy, optimal_values, policy_values
from limiirl.metrics import evd, evd_interval, ile, ile_interval
from limiirl.metrics.evd import compute_optimal_values, compute_regrets
from limiirl.worlds import ElementWorld
from tests.helpers import raises


def star(p0: list[float] | None = None, gamma: float = 0.5) -> MDP:
    """From states 0 and 1 to any of the terminal states 2, 3 and 4."""
    src, dst = [0, 0, 0, 1, 1, 1], [2, 3, 4, 2, 3, 4]
    return MDP.from_edges(src, dst, 5, gamma=gamma, p0=p0 or [0.25, 0.75, 0.0, 0.0, 0.0], state_features=np.eye(5))


TRUE = [-1.0, -2.0, 8.0, 4.0, 0.0]


def test_values_by_hand() -> None:
    mdp = star()
    assert evd(mdp, TRUE, [0.0, 0.0, 0.0, 1.0, 0.0]) == 2.0
    assert evd(mdp, TRUE, [0.0, 0.0, 0.0, 0.0, 3.0]) == 4.0
    # Ties between 3 and 4 are mixed: (2 + 4) / 2.
    assert evd(mdp, TRUE, [0.0, 0.0, 0.0, 1.0, 1.0]) == 3.0
    assert evd_interval(mdp, TRUE, [0.0, 0.0, 0.0, 1.0, 1.0]) == (2.0, 3.0, 4.0)
    assert ile(mdp, TRUE, [0.0, 0.0, 0.0, 1.0, 1.0]) == 6.0
    # The learned reward of states that cannot be avoided has no effect.
    assert evd(mdp, TRUE, [50.0, -7.0, 8.0, 4.0, 0.0]) == 0.0


def test_the_order_of_the_rewards_matters() -> None:
    mdp, other = star(), [0.0, 0.0, 0.0, 1.0, 0.0]
    assert evd(mdp, TRUE, other) == 2.0
    assert evd(mdp, other, TRUE) == 0.5


def test_the_start_weighs_states_for_evd_but_not_for_ile() -> None:
    """State 1 can only go to 3; from 0 the learned reward chooses 3 as well, which loses 2."""
    mdp = MDP.from_edges([0, 0, 1], [2, 3, 3], 4, gamma=0.5, p0=[0.25, 0.75, 0, 0], state_features=np.eye(4))
    true, learned = [0.0, 0.0, 4.0, 0.0], [0.0, 0.0, 0.0, 1.0]
    assert evd(mdp, true, learned) == 0.5
    assert ile(mdp, true, learned) == 2.0
    assert evd(mdp.replace(p0=[1.0, 0, 0, 0]), true, learned) == 2.0
    assert evd(mdp.replace(p0=[0.0, 1.0, 0, 0]), true, learned) == 0.0


def test_rewards_of_actions_and_edges_count_within_the_ties() -> None:
    """Actions 1 and 2 tie for the learned reward; the restriction must keep their own features, not the first rows."""
    mdp = MDP.from_edges(
        [0, 0, 0],
        [1, 1, 1],
        2,
        action=[0, 1, 2],
        gamma=0.5,
        p0=[1.0, 0.0],
        action_features=[[9.0, 0.0], [5.0, 1.0], [2.0, 1.0]],
        edge_features=[0.0, 1.0, 2.0],
    )
    assert evd_interval(mdp, [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]) == (4.0, 5.5, 7.0)
    assert evd_interval(mdp, [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]) == (0.0, 0.5, 1.0)


def test_elementworld_figures_of_the_specification() -> None:
    """spec.md, section D: for a learned theta of 0, argmax 413, uniform over ties 185, best tie 0, worst tie 970."""
    world = ElementWorld()
    mdp, zero = world.mdp, np.zeros(5)
    first = np.zeros(mdp.n_pairs)
    first[np.unique(mdp.pair_state, return_index=True)[1]] = 1.0
    for theta in world.ensemble.thetas:
        low, value, high = evd_interval(mdp, theta, zero)
        assert low == 0.0
        np.testing.assert_allclose([value, high], [185.0, 970.5], rtol=0.0, atol=0.5)
        assert evd(mdp, theta, zero) == value
    argmax = [mdp.p0 @ (optimal_values(mdp, th) - policy_values(mdp, first, th)) for th in world.ensemble.thetas]
    np.testing.assert_allclose(argmax, 413.0, rtol=0.0, atol=0.5)


@pytest.mark.parametrize("scale", [1e-9, 1e-3, 1.0, 1e9])
def test_the_unit_of_the_learned_reward_does_not_matter(scale: float) -> None:
    """An absolute tolerance of 1e-3 would take many actions for ties where the reward is a thousandth."""
    world = ElementWorld()
    thetas = world.ensemble.thetas
    assert evd_interval(world.mdp, thetas[0], scale * thetas[0]) == (0.0, 0.0, 0.0)
    np.testing.assert_allclose(
        evd(world.mdp, thetas[0], scale * thetas[1]), evd(world.mdp, thetas[0], thetas[1]), rtol=1e-10
    )
    np.testing.assert_allclose(
        evd(world.mdp, scale * thetas[0], thetas[1]), scale * evd(world.mdp, thetas[0], thetas[1]), rtol=1e-10
    )


def test_rounding_is_no_loss() -> None:
    """Under a constant reward all policies are equally good, but their values differ in the last digits."""
    n_states, largest = 60, 0.0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        src, act = np.repeat(np.arange(n_states), 6), np.tile([0, 0, 1, 1, 2, 2], n_states)
        dst = np.concatenate([rng.choice(n_states, 2, replace=False) for _ in range(3 * n_states)])
        prob = rng.random(src.size) + 0.1
        same = np.ones(n_states)
        mdp = MDP.from_edges(src, dst, n_states, action=act, prob=prob, normalise=True, gamma=0.99, state_features=same)
        gap = optimal_values(mdp, [-0.1]) - policy_values(mdp, optimal_policy(mdp, [-0.3]), [-0.1])
        largest = max(largest, float(gap.max()))
        assert evd_interval(mdp, [-0.1], [-0.3]) == (0.0, 0.0, 0.0)
        assert ile(mdp, [-0.1], [-0.3]) == 0.0
    assert largest > 0.0


def test_the_tolerance_of_ties_is_the_callers() -> None:
    mdp = star([1.0, 0.0, 0.0, 0.0, 0.0])
    learned = [0.0, 0.0, 0.0, 1.0, 1.0 - 1e-4]
    assert evd(mdp, TRUE, learned) == 2.0
    assert evd(mdp, TRUE, learned, tol=1e-2) == 3.0
    assert ile(mdp, TRUE, learned, tol=1e-2) == 6.0
    assert evd_interval(mdp, TRUE, learned, tol=1e-2) == (2.0, 3.0, 4.0)
    with raises(InvalidParameter, parameter="theta_learned", value=2.0):
        evd(mdp, TRUE, learned, tol=2.0)


def test_pairs_are_the_single_ones() -> None:
    world = ElementWorld()
    mdp, truth = world.mdp, world.ensemble.thetas
    learned = np.vstack([truth[1] + 0.5, np.zeros(5)])
    result = compute_regrets(mdp, compute_optimal_values(mdp, truth), truth, learned, mdp.p0)
    for i in range(3):
        for j in range(2):
            single = evd_interval(mdp, truth[i], learned[j])
            assert (result.low[i, j], result.value[i, j], result.high[i, j]) == single


def waiting(reward: float) -> MDP:
    """Undiscounted: state 0 may wait, at a price, or go on to the terminal state 1."""
    return MDP.from_edges([0, 0], [0, 1], 2, gamma=1.0, p0=[1.0, 0.0], state_features=[[reward, 0.0], [0.0, 1.0]])


def test_without_discount_the_worst_tie_may_lose_without_bound() -> None:
    # Waiting and going on are equally good for a reward of nothing; half the time waiting costs 1 more.
    assert evd_interval(waiting(-1.0), [1.0, 0.0], [0.0, 0.0]) == (0.0, 1.0, math.inf)


def test_without_discount_errors_name_the_reward() -> None:
    mdp = waiting(-1.0)
    with raises(InvalidParameter, parameter="theta_true"):
        evd(mdp, [-1.0, 0.0], [1.0, 0.0])
    with raises(InvalidParameter, parameter="theta_learned"):
        ile(mdp, [1.0, 0.0], [-1.0, 0.0])
    # Waiting is free for the learned reward, and ending is not: it never ends, which the true one pays for.
    with raises(InvalidParameter, parameter="theta_learned"):
        evd(mdp, [1.0, 0.0], [0.0, -1.0])
    lost = MDP.from_edges([0, 1], [1, 0], gamma=1.0, state_features=[-1.0, -1.0])
    with raises(InvalidParameter, parameter="theta_true"):
        evd(lost, [1.0], [1.0])


def test_rewards_that_do_not_fit() -> None:
    mdp = star()
    with raises(InvalidParameter, parameter="theta_true", value=(3,)):
        evd(mdp, [1.0, 2.0, 3.0], TRUE)
    with raises(InvalidParameter, parameter="theta_learned", value=(2,)):
        ile(mdp, TRUE, [1.0, 2.0])
    with raises(InvalidParameter, parameter="theta_learned", value=2):
        evd_interval(mdp, TRUE, [TRUE, TRUE])
    with raises(InvalidParameter, parameter="theta_true"):
        evd(mdp, [0.0, 0.0, np.nan, 0.0, 0.0], TRUE)


def test_ile_has_an_interval_over_ties_too():
    world = ElementWorld()
    low, value, high = ile_interval(world.mdp, world.ensemble.thetas[0], np.zeros(5))
    uniform = world.mdp.replace(p0=np.full(world.mdp.n_states, 1 / world.mdp.n_states))
    wanted = np.array(evd_interval(uniform, world.ensemble.thetas[0], np.zeros(5))) * world.mdp.n_states
    np.testing.assert_allclose([low, value, high], wanted, rtol=1e-9, atol=1e-7)
    assert low < value < high
