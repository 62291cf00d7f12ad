"""Simulated mice with three known intents, to run the study without recordings and to test recovery.

The intent of a bout is to drink, to explore, or to linger in one area; every bout ends at home. Water-restricted mice
visit the water port more often.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import limiirl as ll
from examples.mouse_labyrinth import maze
from examples.mouse_labyrinth.recordings import Recordings

INTENTS = ("water", "explore", "linger")
_REWARDS: tuple[dict[str, float], ...] = (
    {"water port": 4.0, "level 0": 1.0, "turn round": -4.0, "home": -2.0},
    {"level 6": 1.0, "outer wall": 0.5, "turn round": -1.0, "home": -2.0},
    {"level 5": 1.0, "turn round": 2.0, "branch to branch": -1.0, "home": -2.0},
)
# Rewards at the end of every bout, when the mouse returns home.
_LEAVING = {"home": 12.0, "level 5": -1.0, "level 6": -2.0, "turn round": -2.0}
# Mean probability of a bout for water, by water restriction, and its standard deviation over mice. The other two
# intents are equally likely.
_THIRST, _SPREAD = {True: 0.6, False: 0.25}, 0.06
# Range of the number of moves before a mouse goes home.
_PATIENCE = (40, 120)


def _theta(mdp: ll.MDP, rewards: dict[str, float]) -> NDArray[np.float64]:
    return np.array([rewards.get(name, 0.0) for name in mdp.feature_names])


def true_rewards(mdp: ll.MDP) -> ll.RewardEnsemble:
    """Return the rewards of `INTENTS`; the weights are equal."""
    thetas = np.array([_theta(mdp, rewards) for rewards in _REWARDS])
    return ll.RewardEnsemble(np.full(len(_REWARDS), 1.0 / len(_REWARDS)), thetas)


def simulate(gamma: float, n_mice: int = 8, n_bouts: int = 20, seed: int = 0) -> Recordings:
    """Simulate recordings of mice, half of them water restricted, with the true intent of every state."""
    rng, mdp = np.random.default_rng(seed), maze.steps_mdp(gamma)
    policies = [ll.MaxCausalEnt().policy(mdp, theta) for theta in [*true_rewards(mdp).thetas, _theta(mdp, _LEAVING)]]
    # Successor of each state-action pair (S, A); transitions are deterministic.
    target = np.zeros((mdp.n_states, mdp.n_actions), dtype=np.int64)
    target[mdp.src, mdp.act] = mdp.dst
    bouts, intents, mouse, restricted = [], [], [], {}
    for i in range(n_mice):
        name = f"S{i + 1:02d}"
        restricted[name] = i < n_mice // 2
        thirst = float(np.clip(rng.normal(_THIRST[restricted[name]], _SPREAD), 0.05, 0.95))
        for _ in range(n_bouts):
            intent = int(rng.choice(3, p=[thirst, (1.0 - thirst) / 2, (1.0 - thirst) / 2]))
            states = _bout(policies, target, intent, rng)
            bouts.append(maze.nodes_of(states))
            intents.append(np.full(states.size, intent))
            mouse.append(name)
    return Recordings(bouts, np.array(mouse), restricted, (), intents)


def _bout(
    policies: list[NDArray[np.float64]], target: NDArray[np.int64], intent: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return the states of a bout, which follows the rewards of an intent for a while and then goes home."""
    states, patience = [0], int(rng.integers(*_PATIENCE))
    while states[-1] != maze.HOME:
        policy = policies[intent if len(states) < patience else -1][states[-1]]
        states.append(int(target[states[-1], rng.choice(policy.size, p=policy)]))
    return np.array(states)
