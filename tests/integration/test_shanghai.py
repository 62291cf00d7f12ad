"""Route choice in Shanghai: a penalised constant per turn, on the authors' first fold."""

import runpy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from limiirl import DestinationMaxEnt, IntentMixture
from limiirl.datasets import load_shanghai
from limiirl.mdp import add_edge_features, edge_constants

# Held-out log-probability per path of the prototype with 1,747 features, from the README of the folds.
PROTOTYPE = -3.411
RIDGE = {"turn *": 1e-4}


@pytest.mark.slow
def test_a_constant_per_turn_converges_and_improves_on_the_prototype(shared_data: Callable[[str], Path]) -> None:
    data = load_shanghai(shared_data("shanghai_taxi_rcm"), fold=0)
    mdp = add_edge_features(data.mdp, edge_constants(data.mdp, name="turn"))
    train, test = data.demos[~data.test], data.demos[data.test]
    assert mdp.n_features == 1747
    model = DestinationMaxEnt(bounds=None, ridge=RIDGE)
    theta = model.fit_many(mdp, train, np.ones((len(train), 1)))
    assert model.results_[0].converged
    assert model.log_prob(mdp, theta, test).mean() > PROTOTYPE + 0.05


@pytest.mark.slow
def test_two_intents_share_the_constants(shared_data: Callable[[str], Path]) -> None:
    data = load_shanghai(shared_data("shanghai_taxi_rcm"), fold=0, size=1000)
    mdp, train = add_edge_features(data.mdp, edge_constants(data.mdp, name="turn")), data.demos[~data.test]
    model = DestinationMaxEnt(bounds=None, ridge={"turn *": 1e-3, "*": 1e-4})
    one, two = (
        IntentMixture(k, model, shared="turn *", accelerate=True, likelihood_tol=1e-6, random_state=0).fit(mdp, train)
        for k in (1, 2)
    )
    assert two.converged_
    assert two.objective_ > one.objective_
    assert np.ptp(two.thetas_[:, 10:], axis=0).max() == 0.0


@pytest.mark.slow
def test_a_neural_reward_improves_on_the_linear_one(shared_data: Callable[[str], Path]) -> None:
    pytest.importorskip("jax", reason="the example of neural rewards requires JAX")
    example = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "neural_rewards.py"))
    linear, network = example["main"](str(shared_data("shanghai_taxi_rcm")), 0, 1000, 50)
    assert network > linear + 0.05
