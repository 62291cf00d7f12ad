"""Gradients with respect to the rewards of all states and edges: finite differences, theta gradients, and bridges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from limiirl import MDP, MLIRL, Demonstrations, DestinationMaxEnt, IntentMixture, MaxCausalEnt, MaxEnt
from limiirl.errors import InvalidParameter
from limiirl.irl import RewardLikelihood, RewardTable, value_and_reward_grad
from tests.helpers import raises

MODELS: list[Any] = [
    MaxEnt(6),
    MaxEnt(6, condition="start"),
    MaxEnt(np.inf),
    DestinationMaxEnt(),
    MaxCausalEnt(),
    MaxCausalEnt(max_length=6),
    MLIRL(q="bv"),
]


def problem(seed: int = 0) -> tuple[MDP, Demonstrations]:
    """Return a graph with features, and paths that end when they first visit their last state."""
    rng = np.random.default_rng(seed)
    src = np.array([0, 0, 1, 1, 2, 2, 3, 3, 1])
    dst = np.array([1, 2, 2, 3, 0, 3, 4, 0, 4])
    features = rng.random((5, 2)), rng.random((9, 2))
    mdp = MDP.from_edges(
        src, dst, 5, state_features=features[0], edge_features=features[1], p0=np.array([0.5, 0.3, 0.2, 0.0, 0.0])
    )
    paths = [[0, 1, 4], [0, 2, 3, 4], [1, 2, 3, 4], [1, 3, 4], [0, 1, 3], [2, 3]]
    return mdp, Demonstrations.from_lists(paths)


def mdp_for(model: Any, mdp: MDP) -> MDP:
    return mdp.replace(gamma=0.9) if isinstance(model, (MaxCausalEnt, MLIRL)) else mdp


def draw(seed: int, *shape: int) -> RewardTable:
    rng = np.random.default_rng(seed)
    return RewardTable(-2.0 - rng.random((*shape, 5)), -rng.random((*shape, 9)))


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_gradients_agree_with_finite_differences(model: Any) -> None:
    mdp, demos = problem()
    likelihood = RewardLikelihood(mdp_for(model, mdp), demos, model, weights=np.arange(1.0, 7.0))
    rewards, h = draw(1), 1e-5
    _, gradient = likelihood.value_and_grad(rewards)
    for name in ("state", "edge"):
        values = getattr(rewards, name)
        for j in range(values.size):
            above, below = (
                likelihood.value_and_grad(rewards._replace(**{name: values + sign * h * np.eye(values.size)[j]}))[0]
                for sign in (1.0, -1.0)
            )
            np.testing.assert_allclose(getattr(gradient, name)[j], (above - below) / (2 * h), atol=1e-7)


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_linear_rewards_have_the_same_likelihood_and_theta_gradient(model: Any) -> None:
    mdp, demos = problem()
    own = mdp_for(model, mdp)
    theta, weights = np.array([-2.0, -1.5, -0.5, 0.2]), np.arange(1.0, 7.0)
    rewards = RewardTable(own.state_features @ theta[:2], own.edge_features @ theta[2:])
    value, gradient = value_and_reward_grad(own, rewards, demos, model, weights)
    np.testing.assert_allclose(value, weights @ model.log_prob(own, theta, demos)[:, 0], rtol=1e-12)
    chained = np.concatenate([gradient.state @ own.state_features, gradient.edge @ own.edge_features])
    for j in range(4):
        sides = [weights @ model.log_prob(own, theta + sign * 1e-5 * np.eye(4)[j], demos)[:, 0] for sign in (1, -1)]
        np.testing.assert_allclose(chained[j], (sides[0] - sides[1]) / 2e-5, atol=1e-6)


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_several_intents_at_once_equal_separate_calls(model: Any) -> None:
    mdp, demos = problem()
    own, weights, rewards = mdp_for(model, mdp), np.random.default_rng(2).random((6, 3)), draw(3, 3)
    values, gradients = value_and_reward_grad(own, rewards, demos, model, weights)
    for k in range(3):
        one = RewardTable(rewards.state[k], rewards.edge[k])
        value, gradient = value_and_reward_grad(own, one, demos, model, weights[:, k])
        np.testing.assert_allclose(values[k], value, rtol=1e-12)
        np.testing.assert_allclose(gradients.state[k], gradient.state, atol=1e-12)
        np.testing.assert_allclose(gradients.edge[k], gradient.edge, atol=1e-12)


def test_infinite_partition_functions_have_the_value_minus_infinity() -> None:
    mdp, demos = problem()
    value, gradient = value_and_reward_grad(mdp, np.full(5, 1.0), demos, DestinationMaxEnt())
    assert value == -np.inf
    np.testing.assert_array_equal(gradient.state, np.zeros(5))
    assert gradient.edge is None


def test_ascent_on_edge_rewards_reaches_the_likelihood_of_the_same_linear_model() -> None:
    """With a reward per state, gradient ascent and the model's own fit maximise the same concave function."""
    mdp, demos = problem()
    linear = mdp.replace(state_features=np.eye(5), edge_features=None, feature_names=tuple("abcde"))
    model = MaxEnt(6, bounds=None, ridge=1e-2)
    theta = model.fit(linear, demos)
    likelihood, state = RewardLikelihood(mdp, demos, model), np.zeros(5)
    for _ in range(5000):
        state = state + 0.05 * (likelihood.value_and_grad(state)[1].state / 6 - 1e-2 * state)
    np.testing.assert_allclose(state, theta, atol=1e-5)


@pytest.mark.parametrize(
    ("rewards", "value"),
    [
        (np.zeros(4), (4,)),
        (RewardTable(edge=np.zeros((2, 5))), (2, 5)),
        (RewardTable(), None),
        (RewardTable(np.zeros(5), np.zeros((2, 9))), [(5,), (2, 9)]),
        (np.full(5, np.nan), "nan or inf"),
    ],
)
def test_odd_rewards_are_refused(rewards: Any, value: Any) -> None:
    mdp, demos = problem()
    with raises(InvalidParameter, parameter="rewards", value=value):
        value_and_reward_grad(mdp, rewards, demos, MaxEnt(6))


def test_models_without_linear_rewards_are_refused() -> None:
    mdp, demos = problem()
    with raises(InvalidParameter, parameter="irl", value="IntentMixture"):
        RewardLikelihood(mdp, demos, IntentMixture(2))


@pytest.mark.parametrize("shape", [(), (3,)])
@pytest.mark.parametrize("library", ["jax", "torch"])
def test_bridges_have_the_same_gradients(library: str, shape: tuple[int, ...]) -> None:
    """The gradient of a small network by the chain rule of the library, and by that of NumPy."""
    pytest.importorskip(library, reason=f"{library} is not installed")
    mdp, demos = problem()
    weights = np.random.default_rng(4).random((6, *shape))
    model, x = DestinationMaxEnt(), draw(5, *shape)
    expected = value_and_reward_grad(mdp, RewardTable(-np.exp(x.state), x.edge**3), demos, model, weights)
    by_state, by_edge = expected[1].state * -np.exp(x.state), expected[1].edge * 3.0 * x.edge**2
    if library == "jax":
        import jax

        from limiirl.irl import jax_log_likelihood

        with jax.enable_x64(True):
            f = jax_log_likelihood(mdp, demos, model, weights)
            total = jax.jit(lambda state, edge: f(-jax.numpy.exp(state), edge**3).sum())
            value = float(total(x.state, x.edge))
            gradients = [np.asarray(part) for part in jax.grad(total, argnums=(0, 1))(x.state, x.edge)]
    else:
        import torch

        from limiirl.irl import torch_log_likelihood

        parts = [torch.tensor(part, requires_grad=True) for part in x]
        result = torch_log_likelihood(mdp, demos, model, weights)(-torch.exp(parts[0]), parts[1] ** 3).sum()
        result.backward()
        value, gradients = float(result), [np.asarray(part.grad) for part in parts]
    np.testing.assert_allclose(value, np.sum(expected[0]), rtol=1e-12)
    np.testing.assert_allclose(gradients[0], by_state, rtol=1e-10)
    np.testing.assert_allclose(gradients[1], by_edge, rtol=1e-10, atol=1e-12)
