"""Demonstrators: the Boltzmann policy against a brute-force softmax, mixture weights, and sampling."""

import numpy as np
import pytest

from limiirl.errors import InvalidParameter
from limiirl.mdp import MDP
from limiirl.mdp.ensemble import RewardEnsemble
from limiirl.mdp.planning import optimal_policy
from limiirl.worlds import WORLDS, ElementWorld, IntentWorld, boltzmann_policy, geometric_weights
from limiirl.worlds.base import allocate_demonstrations
from tests.helpers import raises

FORK = MDP.from_edges([0, 0, 0, 1], [1, 2, 3, 3], p0=[1, 0, 0, 0], gamma=0.5, state_features=[0.0, -2.0, -1.0, -4.0])


def test_boltzmann_policy_by_hand() -> None:
    """Q*(0, a) is gamma V(s'): V(1) = -2 - 4 / 2 = -4, V(2) = -1, V(3) = -4; state 1 has one action."""
    mass = np.exp(0.7 * np.array([-2.0, -0.5, -2.0]))
    expected = [*(mass / mass.sum()), 1.0]
    np.testing.assert_allclose(boltzmann_policy(FORK, [1.0], beta=0.7), expected, rtol=1e-14, atol=0.0)


def test_boltzmann_policy_is_uniform_at_zero_and_optimal_in_the_limit() -> None:
    np.testing.assert_allclose(boltzmann_policy(FORK, [1.0], beta=0.0), [1 / 3] * 3 + [1.0], rtol=1e-15, atol=0.0)
    np.testing.assert_array_equal(boltzmann_policy(FORK, [1.0], beta=1e4), optimal_policy(FORK, [1.0]))
    # Ties are shared in the limit as well: with the rewards reversed, actions 0 and 2 are equally good.
    np.testing.assert_allclose(boltzmann_policy(FORK, [-1.0], beta=1e4), [0.5, 0.0, 0.5, 1.0], rtol=1e-12, atol=0.0)


def test_boltzmann_policy_of_large_rewards_does_not_overflow() -> None:
    policy = boltzmann_policy(FORK, [1e6], beta=1e6)
    np.testing.assert_array_equal(policy, [0.0, 1.0, 0.0, 1.0])
    assert boltzmann_policy(MDP.from_edges([], [], n_states=1, terminal=[True]), [1.0]).shape == (0,)


@pytest.mark.parametrize("name", WORLDS)
def test_boltzmann_converges_to_optimal_in_every_world(name: str) -> None:
    world = WORLDS[name]()
    limit, optimal = world.policies("boltzmann", 1e7), world.policies("optimal")
    np.testing.assert_allclose(limit, optimal, rtol=0.0, atol=1e-3)
    assert np.abs(world.policies("boltzmann", 0.1) - optimal).max() > 0.3


def test_beta_controls_the_noise_of_the_demonstrators() -> None:
    """The share of optimal actions rises with beta, from chance, and is all of them for optimal demonstrators."""
    world = ElementWorld(seed=2)
    best = world.optimal_policies > 0.0

    def optimal_share(**kind: object) -> float:
        demos, labels = world.sample(300, seed=1, **kind)  # type: ignore[arg-type]
        pairs = world.mdp.pair_of_edge[demos.steps(world.mdp).edge]
        return float(best[np.repeat(labels, demos.lengths - 1), pairs].mean())

    shares = [optimal_share(policy="boltzmann", beta=beta) for beta in (0.0, 0.2, 1.0, 5.0)]
    assert np.all(np.diff(shares) > 0.05)
    assert optimal_share() == 1.0


def test_boltzmann_samples_match_their_policy() -> None:
    """Actions in the start states against their probabilities: chi-square with 9 x 3 degrees of freedom, p = 1e-6."""
    world = ElementWorld(n_elements=3, seed=2)
    demos, labels = world.sample(30_000, seed=3, policy="boltzmann", beta=0.3, max_length=2)
    mine = labels == 0
    pairs = world.mdp.pair_of_edge[demos.steps(world.mdp).edge][mine]
    starts = demos.start_states[mine]
    expected = world.policies("boltzmann", 0.3)[0] * np.bincount(starts, minlength=54)[world.mdp.pair_state]
    counts = np.bincount(pairs, minlength=world.mdp.n_pairs)
    drawn = expected > 0.0
    assert counts[~drawn].sum() == 0
    assert ((counts - expected)[drawn] ** 2 / expected[drawn]).sum() < 77.0


def test_optimal_samples_do_not_change_between_versions() -> None:
    """Published results depend on them: the first walks of a seed, as version 0.1 drew them."""
    demos, labels = ElementWorld(seed=2).sample(100, seed=1)
    assert labels[:12].tolist() == [2, 0, 2, 2, 0, 0, 2, 0, 2, 0, 1, 2]
    assert demos.states[:20].tolist() == [
        30,
        36,
        42,
        48,
        49,
        50,
        44,
        45,
        39,
        33,
        34,
        35,
        36,
        30,
        24,
        18,
        19,
        18,
        19,
        13,
    ]
    assert int(demos.states.sum()) == 29997


def test_geometric_weights() -> None:
    for n_intents in (1, 2, 5):
        np.testing.assert_array_equal(geometric_weights(n_intents, 0.0), np.full(n_intents, 1.0 / n_intents))
        for p in (0.1, 0.4, 0.9):
            weights = geometric_weights(n_intents, p)
            k = np.arange(1, n_intents + 1)
            law = p * (1.0 - p) ** k
            np.testing.assert_allclose(weights, law / law.sum(), rtol=1e-14, atol=0.0)
            np.testing.assert_allclose(weights[1:] / weights[:-1], 1.0 - p, rtol=1e-14, atol=0.0)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((0, 0.1), {"parameter": "n_intents", "value": 0}),
        ((3, 1.0), {"parameter": "p", "value": 1.0}),
        ((3, -0.1), {"parameter": "p", "value": -0.1}),
        ((3, float("nan")), {"parameter": "p"}),
        ((3, "0.1"), {"parameter": "p", "value": "0.1"}),
        ((3, False), {"parameter": "p", "value": False}),
    ],
)
def test_invalid_geometric_weights_are_rejected(arguments: tuple[int, float], expected: dict[str, object]) -> None:
    with raises(InvalidParameter, **expected):
        geometric_weights(*arguments)


def test_weights_are_met_and_no_intent_is_empty() -> None:
    truth = RewardEnsemble([0.5, 0.25, 0.25], np.zeros((3, 1)))
    np.testing.assert_array_equal(allocate_demonstrations(8, truth, None), [4, 2, 2])
    np.testing.assert_array_equal(allocate_demonstrations(1, truth, None), [1, 0, 0])
    np.testing.assert_array_equal(allocate_demonstrations(100, truth, geometric_weights(3, 0.4)), [51, 31, 18])
    np.testing.assert_array_equal(allocate_demonstrations(5, truth, [1.0, 0.0, 0.0]), [3, 1, 1])


@pytest.mark.parametrize("name", WORLDS)
def test_every_world_has_the_same_sampling_interface(name: str) -> None:
    world = WORLDS[name](seed=3)
    assert isinstance(world, IntentWorld)
    assert type(world).__name__ == name
    K = world.ensemble.n_intents
    for policy in ("optimal", "boltzmann"):
        demos, labels = world.sample(30, seed=1, policy=policy, max_length=12, weights=geometric_weights(K, 0.4))
        again, _ = WORLDS[name](seed=3).sample(
            30, seed=1, policy=policy, max_length=12, weights=geometric_weights(K, 0.4)
        )
        assert demos == again
        assert demos != world.sample(30, seed=2, policy=policy, max_length=12)[0]
        np.testing.assert_array_equal(demos.labels, labels)
        counts = np.bincount(labels, minlength=K)
        assert counts.min() >= 1
        assert np.all(np.diff(counts) < 0)
        demos.steps(world.mdp)  # every move is possible
        assert np.all(world.mdp.terminal[demos.last_states] | (demos.lengths == 12))
        assert np.all(world.mdp.p0[demos.start_states] > 0.0)


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"n": 0}, {"parameter": "n", "value": 0}),
        ({"n": 9, "seed": -1}, {"parameter": "seed", "value": -1}),
        ({"n": 9, "max_length": 0}, {"parameter": "max_length", "value": 0}),
        ({"n": 9, "policy": "greedy"}, {"parameter": "policy", "value": "greedy"}),
        ({"n": 9, "policy": "boltzmann", "beta": -1.0}, {"parameter": "beta", "value": -1.0}),
        ({"n": 9, "policy": "boltzmann", "beta": np.inf}, {"parameter": "beta"}),
        ({"n": 9, "policy": "boltzmann", "beta": "hot"}, {"parameter": "beta", "value": "hot"}),
        ({"n": 9, "beta": 3.0}, {"parameter": "beta", "value": 3.0}),
        ({"n": 9, "weights": [1.0]}, {"parameter": "weights", "value": (1,)}),
        ({"n": 1, "weights": "equal"}, {"parameter": "n", "value": 1}),
    ],
)
def test_invalid_sample_arguments_are_rejected(
    name: str, parameters: dict[str, object], expected: dict[str, object]
) -> None:
    world = WORLDS[name]()
    if parameters.get("weights") == "equal":
        parameters = parameters | {"weights": world.ensemble.weights}
    with raises(InvalidParameter, **expected):
        world.sample(**parameters)
