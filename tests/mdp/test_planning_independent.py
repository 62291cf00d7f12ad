"""Planning against an independent solver, quantecon's `DiscreteDP`, on random sparse MDPs."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

from limiirl.mdp import MDP
from limiirl.mdp.planning import optimal_policy, optimal_values, policy_values

markov = pytest.importorskip("quantecon.markov", reason="needs quantecon, an independent solver: pip install quantecon")

Float = NDArray[np.float64]


def random_mdp(n_states: int, gamma: float, seed: int, n_terminal: int) -> MDP:
    """One to four actions a state, one to three outcomes an action, and features of all kinds."""
    rng = np.random.default_rng(seed)
    terminal = np.zeros(n_states, dtype=bool)
    terminal[rng.choice(n_states, n_terminal, replace=False)] = True
    edges = [
        (s, a, int(t))
        for s in np.flatnonzero(~terminal)
        for a in range(rng.integers(1, 5))
        for t in rng.choice(n_states, rng.integers(1, 4), replace=False)
    ]
    src, act, dst = np.array(edges).T
    return MDP.from_edges(
        src,
        dst,
        n_states,
        action=act,
        prob=rng.random(src.size) + 0.1,
        normalise=True,
        gamma=gamma,
        terminal=terminal,
        state_features=rng.normal(size=(n_states, 2)),
        edge_features=rng.normal(size=(src.size, 2)),
    )


def independent(mdp: MDP, theta: Float) -> tuple[Float, Float]:
    """V* (S,) and a greedy action (S,) by quantecon; terminal states lead to one more state, which earns nothing."""
    n, end = mdp.n_states, mdp.n_states
    r_state, r_edge = mdp.rewards(theta)
    ends = np.append(np.flatnonzero(mdp.terminal), end)
    states = np.concatenate([mdp.pair_state, ends])
    actions = np.concatenate([mdp.pair_action, np.zeros(ends.size, dtype=int)])
    assert r_edge is not None
    edge_reward = np.bincount(mdp.pair_of_edge, mdp.prob * r_edge[:, 0], minlength=mdp.n_pairs)
    reward = np.append(r_state[:, 0], 0.0)[states] + np.append(edge_reward, np.zeros(ends.size))
    rows = np.concatenate([mdp.pair_of_edge, mdp.n_pairs + np.arange(ends.size)])
    columns = np.concatenate([mdp.dst, np.full(ends.size, end)])
    kernel = sparse.csr_matrix(
        (np.append(mdp.prob, np.ones(ends.size)), (rows, columns)), shape=(rows.max() + 1, n + 1)
    )
    order = np.lexsort((actions, states))
    problem = markov.DiscreteDP(reward[order], kernel[order], mdp.gamma, states[order], actions[order])
    solved = problem.solve(method="policy_iteration")
    return np.asarray(solved.v[:n]), np.asarray(solved.sigma[:n])


@pytest.mark.parametrize("gamma", [0.5, 0.9, 0.99])
@pytest.mark.parametrize(("n_states", "n_terminal"), [(5, 0), (30, 3), (200, 0), (400, 20)])
def test_planning_agrees_with_quantecon(n_states: int, n_terminal: int, gamma: float) -> None:
    for seed in range(3):
        mdp = random_mdp(n_states, gamma, seed, n_terminal)
        theta = np.random.default_rng(seed + 100).normal(size=mdp.n_features)
        V, action = independent(mdp, theta)
        scale = np.abs(V).max()
        np.testing.assert_allclose(optimal_values(mdp, theta), V, rtol=0.0, atol=1e-10 * scale)
        worst, _ = independent(mdp, -theta)
        np.testing.assert_allclose(optimal_values(mdp, theta, minimise=True), -worst, rtol=0.0, atol=1e-10 * scale)
        policy = optimal_policy(mdp, theta)
        # Its choice is one of ours, and our mixture of them is as good.
        assert np.all(policy[action[mdp.pair_state] == mdp.pair_action] > 0.0)
        np.testing.assert_allclose(policy_values(mdp, policy, theta), V, rtol=0.0, atol=1e-10 * scale)
