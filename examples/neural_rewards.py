"""Fit a neural reward to taxi routes: the reward of a turn is a function of both links and their neighbourhoods.

Run as `python examples/neural_rewards.py FOLDER [FOLD [SIZE]]`, where FOLDER is shanghai_taxi_rcm of the shared data,
and SIZE is the number of training paths: 100, 1000 (default) or 10000. Requires JAX (`pip install jax`). The network is
added to a linear reward, which is fitted first. The weight decay is chosen within the training paths.
"""

import sys
import time
import warnings
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from scipy.optimize import minimize

import limiirl as ll
from limiirl.datasets import load_shanghai
from limiirl.irl import jax_log_likelihood
from limiirl.mdp import MDP, add_edge_features, next_choices

jax.config.update("jax_enable_x64", True)
HIDDEN = 24
DECAYS = (1e-2, 1e-3, 1e-4)
STEPS = 400


def describe_turns(mdp: MDP) -> np.ndarray:
    """Return standardised features (E, m): both links, the means over links up to two turns ahead, and the turn."""
    adjacency = np.zeros((mdp.n_states, mdp.n_states))
    adjacency[mdp.src, mdp.dst] = 1.0
    degree = adjacency.sum(axis=1, keepdims=True)
    link = np.hstack([np.asarray(mdp.state_features)[:, :-1], degree, adjacency.sum(axis=0)[:, None]])
    after = adjacency @ link / np.maximum(degree, 1.0)
    two_after = adjacency @ after / np.maximum(degree, 1.0)
    before = adjacency.T @ link / np.maximum(adjacency.sum(axis=0)[:, None], 1.0)
    turn = np.eye(mdp.n_actions)[mdp.act]
    columns = [link[mdp.src], link[mdp.dst], before[mdp.dst], after[mdp.dst], two_after[mdp.dst], turn]
    features = np.hstack(columns)
    return (features - features.mean(axis=0)) / np.maximum(features.std(axis=0), 1e-9)


def start_network(n_inputs: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the parameters of two hidden layers and of the output, which is 0 at the start."""
    rng, sizes = np.random.default_rng(0), (n_inputs, HIDDEN, HIDDEN, 1)
    layers = [(rng.normal(size=(a, b)) / np.sqrt(a), np.zeros(b)) for a, b in pairwise(sizes)]
    return [*layers[:-1], (0.0 * layers[-1][0], layers[-1][1])]


def evaluate_network(layers, x):
    """Return the output (E,) of the network."""
    for weight, bias in layers[:-1]:
        x = jnp.tanh(x @ weight + bias)
    return (x @ layers[-1][0] + layers[-1][1])[:, 0]


def fit_linear(mdp: MDP, demos: ll.Demonstrations) -> np.ndarray:
    """Return the reward (E,) of turns that is linear in the features of the MDP."""
    state, edge = mdp.rewards(ll.DestinationMaxEnt(bounds=None).fit(mdp, demos))
    return state[mdp.dst, 0] + edge[:, 0]


def fit_network(mdp: MDP, demos: ll.Demonstrations, linear: np.ndarray, decay: float, steps: int) -> np.ndarray:
    """Return the reward (E,) that maximises the mean log-likelihood minus the weight decay: linear + network."""
    x, zeros = describe_turns(mdp), jnp.zeros(mdp.n_states)
    log_likelihood = jax_log_likelihood(mdp, demos, ll.DestinationMaxEnt(bounds=None))
    first, unravel = ravel_pytree(start_network(x.shape[1]))

    def loss(parameters):
        reward = linear + evaluate_network(unravel(parameters), x)
        return -log_likelihood(zeros, reward) / len(demos) + 0.5 * decay * jnp.sum(parameters**2)

    value_and_grad = jax.value_and_grad(loss)

    def objective(parameters):
        value, gradient = value_and_grad(parameters)
        # Positive cycles make the likelihood 0. The line search of L-BFGS requires finite values.
        return (float(value), np.asarray(gradient)) if np.isfinite(value) else (1e6, np.zeros(first.size))

    best = minimize(objective, np.asarray(first), jac=True, method="L-BFGS-B", options={"maxiter": steps})
    return np.asarray(linear + evaluate_network(unravel(best.x), x))


def score(mdp: MDP, reward: np.ndarray, demos: ll.Demonstrations) -> float:
    """Return the mean log-probability of paths under a reward of turns."""
    plain = mdp.replace(state_features=None, edge_features=reward[:, None], goal_features=(), feature_names=("reward",))
    return float(ll.DestinationMaxEnt(bounds=None).log_prob(plain, [1.0], demos).mean())


def main(folder: str, fold: int = 0, size: int = 1000, steps: int = STEPS) -> tuple[float, float]:
    """Choose the weight decay on a third of the training paths, fit to all of them, and score the test paths.

    Returns the mean log-probability of test paths with the linear reward and with the network.
    """
    warnings.simplefilter("ignore", ll.errors.LimiirlWarning)
    begun = time.process_time()
    data = load_shanghai(folder, fold=fold, size=size)
    mdp = add_edge_features(data.mdp, next_choices(data.mdp))
    train, test = data.demos[~data.test], data.demos[data.test]
    held_out = np.random.default_rng(0).permutation(len(train)) % 3 == 0
    linear, scores = fit_linear(mdp, train[~held_out]), {}
    print(f"within training: linear {score(mdp, linear, train[held_out]):.4f}", flush=True)
    for decay in DECAYS:
        reward = fit_network(mdp, train[~held_out], linear, decay, steps)
        scores[decay] = score(mdp, reward, train[held_out])
        print(f"within training: network, weight decay {decay:g}, {scores[decay]:.4f}", flush=True)
    linear = fit_linear(mdp, train)
    reward = fit_network(mdp, train, linear, max(scores, key=lambda decay: scores[decay]), steps)
    results = score(mdp, linear, test), score(mdp, reward, test)
    print(
        f"fold {fold}, {size} paths, log-probability per test path: linear {results[0]:.4f}, network {results[1]:.4f}"
    )
    print(f"{time.process_time() - begun:.0f} s of CPU")
    return results


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:4]))
