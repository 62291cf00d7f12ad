"""Write imitation_mce.json: results of the package `imitation` on a small MDP, for tests/irl/causal/test_imitation.py.

`imitation` needs torch and stable-baselines3, which limiirl does not, so that it lives in an environment of its own:

    python -m venv elsewhere && elsewhere/bin/pip install imitation==1.0.1
    elsewhere/bin/python tests/oracles/imitation_mce.py

Its conventions, as its source has them. The horizon H counts actions, each taken in a state that earns its reward; the
state after the last action earns nothing, so that the last policy is uniform, and H rewarded states are our horizon of
H states. Occupancies D (H + 1, S) count that last state too. Rewards are of states, all actions exist everywhere, and
there are no terminal states. `MCEIRL` discounts what it counts but not what it plans, so that it is run at discount 1.
It descends by Adam until occupancies differ by `linf_eps`, or its gradient is as short as `grad_l2_eps`. As that
gradient counts the last state, which planning does not, the solution need not attract it: from seed 23 it walks away.
"""

import json
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from imitation.algorithms.mce_irl import MCEIRL, mce_occupancy_measures, mce_partition_fh
from imitation.rewards.reward_nets import RewardNet
from seals.base_envs import TabularModelPOMDP

N_STATES, N_ACTIONS, HORIZON = 4, 2, 5
DISCOUNTS = (1.0, 0.8)
TRUTH = np.array([0.8, -0.5])
LINF_EPS, GRAD_L2_EPS = 1e-7, 1e-7


class LinearReward(RewardNet):
    """A reward that is linear in the features of a state, without a bias, in double precision."""

    def __init__(self, env: TabularModelPOMDP) -> None:
        super().__init__(env.observation_space, env.action_space)
        self.layer = torch.nn.Linear(env.obs_dim, 1, bias=False, dtype=torch.float64)
        torch.nn.init.zeros_(self.layer.weight)

    def forward(self, state, action, next_state, done) -> torch.Tensor:
        """Return the rewards of states."""
        return self.layer(state).squeeze(1)


def make_env() -> tuple[TabularModelPOMDP, np.ndarray]:
    """Return an MDP where each action has two outcomes, and the features of its states."""
    rng = np.random.default_rng(26)
    T = np.zeros((N_STATES, N_ACTIONS, N_STATES))
    for s in range(N_STATES):
        for a in range(N_ACTIONS):
            T[s, a, rng.choice(N_STATES, 2, replace=False)] = rng.dirichlet([2.0, 2.0])
    features = rng.normal(size=(N_STATES, TRUTH.size)).round(3)
    env = TabularModelPOMDP(
        transition_matrix=T,
        observation_matrix=features,
        reward_matrix=features @ TRUTH,
        horizon=HORIZON,
        initial_state_dist=rng.dirichlet(np.ones(N_STATES)),
    )
    return env, features


def main() -> None:
    """Plan, count and train, and write the numbers beside this file."""
    env, features = make_env()
    planned = []
    for discount in DISCOUNTS:
        V, Q, pi = mce_partition_fh(env, discount=discount)
        D, counted = mce_occupancy_measures(env, pi=pi, discount=discount)
        planned.append({"discount": discount, "V": V, "Q": Q, "pi": pi, "D": D, "D_discounted": counted})
    net = LinearReward(env)
    _, demonstrated = mce_occupancy_measures(env)
    learner = MCEIRL(
        demonstrated,
        env,
        net,
        np.random.default_rng(0),
        optimizer_kwargs={"lr": 0.02},
        linf_eps=LINF_EPS,
        grad_l2_eps=GRAD_L2_EPS,
        log_interval=None,
    )
    occupancy = learner.train(max_iter=5_000)
    numbers = {
        "imitation": version("imitation"),
        "horizon": HORIZON,
        "T": env.transition_matrix,
        "p0": env.initial_state_dist,
        "features": features,
        "theta": TRUTH,
        "planned": planned,
        "fit": {
            "linf_eps": LINF_EPS,
            "grad_l2_eps": GRAD_L2_EPS,
            "theta": net.layer.weight.detach().numpy()[0],
            "pi": learner.policy.pi,
            "demonstrated": demonstrated,
            "expected": occupancy,
            "expected_features": occupancy @ features,
        },
    }
    text = json.dumps(numbers, default=lambda array: array.tolist(), indent=1)
    Path(__file__).with_suffix(".json").write_text(text + "\n")


if __name__ == "__main__":
    main()
