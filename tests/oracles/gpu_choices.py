"""Decisions of random walks, on which solvers of causal models on the GPU and on the CPU are compared."""

from typing import Any

import numpy as np

from limiirl import MDP, Demonstrations
from limiirl.demos import Groups
from limiirl.irl.causal.problem import DecisionCounts
from tests.oracles.gpu_cases import Case, assert_same


def circle() -> Case:
    """A circle of twelve states without a choice, whose values, or flows, may alternate by rounding forever."""
    rng, at = np.random.default_rng(0), np.arange(12)
    phi = rng.normal(size=(12, 3))
    mdp = MDP.from_edges(at, (at + 1) % 12, n_states=12, gamma=0.99, state_features=phi)
    return Case(mdp, 0, 10.0 * rng.normal(size=(1, 3)))


def walks(mdp: MDP, n: int, length: int, seed: int = 0) -> Demonstrations:
    """Random walks; some actions are not recorded."""
    rng = np.random.default_rng(seed)
    first = np.searchsorted(mdp.src, np.arange(mdp.n_states + 1))
    states, actions = [], []
    for i in range(n):
        s, path, taken = int(rng.choice(mdp.n_states, p=mdp.p0)), [], []
        for _ in range(int(rng.integers(1, max(2, length)))):
            path.append(s)
            if first[s] == first[s + 1]:
                break
            edge = int(rng.integers(first[s], first[s + 1]))
            taken.append(int(mdp.act[edge]))
            s = int(mdp.dst[edge])
        states.append(path)
        actions.append(None if i % 3 == 0 else taken[: len(path) - 1])
    return Demonstrations.from_lists(states, actions)


def events_of(mdp: MDP, horizon: int | None = None, *, stop: bool = False) -> DecisionCounts:
    """Return the choices of 40 walks."""
    demos = walks(mdp, 40, 12 if horizon is None else horizon)
    return DecisionCounts.from_demos(mdp, demos, Groups.from_labels(None, len(demos)), horizon, stop)


def compare(gpu: Any, cpu: Any, case: Case, events: DecisionCounts) -> None:
    """Fail unless log-probabilities, residuals and gradients agree."""
    mine, other = gpu.solve(case.thetas, events.candidates), cpu.solve(case.thetas, events.candidates)
    assert_same(mine.log_prob, other.log_prob)
    np.testing.assert_allclose(mine.residual, other.residual, rtol=1e-9, atol=1e-14)
    weight = np.random.default_rng(5).uniform(0.0, 1.0, other.log_prob.shape)
    assert_same(mine.gradient(weight), other.gradient(weight))
