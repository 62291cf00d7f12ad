"""`MaxCausalEnt` with a finite horizon against `imitation`'s MCE IRL (values of tests/oracles/imitation_mce.py).

`imitation` counts H actions; limiirl counts the H states in which they are taken. The last policy of `imitation` has no
effect on the reward and is uniform; limiirl has one policy for each step before it.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limiirl.demos import Demonstrations, Groups
from limiirl.irl.causal.maxcausalent import MaxCausalEnt
from limiirl.mdp import MDP

NUMBERS: dict[str, Any] = json.loads((Path(__file__).parents[2] / "oracles" / "imitation_mce.json").read_text())
T, FEATURES, TRUTH = np.array(NUMBERS["T"]), np.array(NUMBERS["features"]), np.array(NUMBERS["theta"])
HORIZON, FIT = NUMBERS["horizon"], NUMBERS["fit"]
# `imitation` stops if occupancies differ by less than linf_eps or the gradient norm is below grad_l2_eps.
EPS = max(FIT["linf_eps"], FIT["grad_l2_eps"])
PLANS = [pytest.param(plan, id=f"discount {plan['discount']}") for plan in NUMBERS["planned"]]


def problem(discount: float) -> MDP:
    return MDP.from_dense(T, NUMBERS["p0"], gamma=discount, state_features=FEATURES)


def model(**parameters: Any) -> MaxCausalEnt:
    return MaxCausalEnt(max_length=HORIZON, stop="terminal_or_max_length", **parameters)


def all_trajectories() -> Demonstrations:
    """Return every possible trajectory of H states."""
    n_states, n_actions, _ = T.shape
    states, actions = [], []
    for start in range(n_states):
        for taken in itertools.product(range(n_actions), repeat=HORIZON - 1):
            paths = [[start]]
            for a in taken:
                paths = [[*path, s] for path in paths for s in np.flatnonzero(T[path[-1], a])]
            states += paths
            actions += [list(taken)] * len(paths)
    return Demonstrations.from_lists(states, actions)


def occupancies(demos: Demonstrations, p: np.ndarray) -> np.ndarray:
    """Return the probability (H, S) of each state at each step, given trajectory probabilities (N,)."""
    result = np.zeros((HORIZON, T.shape[0]))
    np.add.at(result, (np.tile(np.arange(HORIZON), len(demos)), demos.states), np.repeat(p, HORIZON))
    return result


def probability(demos: Demonstrations, pi: np.ndarray) -> np.ndarray:
    """Return the probability (N,) of each trajectory under the policies pi (H, S, A)."""
    result = np.empty(len(demos))
    for i, demo in enumerate(demos):
        steps = enumerate(zip(demo.states[:-1], demo.actions, demo.states[1:], strict=False))
        result[i] = NUMBERS["p0"][demo.states[0]] * np.prod(
            [pi[t, s, a] * T[s, a, target] for t, (s, a, target) in steps]
        )
    return result


@pytest.mark.parametrize("plan", PLANS)
def test_policies_are_the_same_at_every_step(plan: dict[str, Any]) -> None:
    mdp, theirs = problem(plan["discount"]), np.array(plan["pi"])
    for step in range(HORIZON - 1):
        np.testing.assert_allclose(model().policy(mdp, TRUTH, step), theirs[step], rtol=1e-12)
    np.testing.assert_allclose(theirs[-1], 0.5, rtol=1e-12)
    assert (
        np.abs(theirs[0] - theirs[-2]).max() > 1e-2
    )  # policies differ between steps, so an off-by-one error is detected


@pytest.mark.parametrize("plan", PLANS)
def test_occupancies_are_the_same(plan: dict[str, Any]) -> None:
    demos, theirs = all_trajectories(), np.array(plan["D"])
    p = np.exp(model().log_prob(problem(plan["discount"]), TRUTH, demos))[:, 0]
    np.testing.assert_allclose(p.sum(), 1.0, rtol=1e-12)
    D = occupancies(demos, p)
    np.testing.assert_allclose(D, theirs[:-1], rtol=1e-11)
    # `imitation` also counts the state after the last action, which a uniform policy selects.
    gain = plan["discount"] ** np.arange(HORIZON + 1)
    after = np.vstack([D, D[-1] @ T.mean(axis=1)])
    np.testing.assert_allclose(gain @ after @ FEATURES, plan["D_discounted"] @ FEATURES, rtol=1e-11)


def test_fit_agrees_with_imitation() -> None:
    """Demonstrations are all trajectories weighted by their probability, so there is no sampling error.

    Our gradient is below 1e-10. `imitation` is as accurate as its stopping rule: EPS for occupancies, EPS times the
    sum of the features for expected features, and about 100 EPS for rewards and policies.
    """
    mdp, demos = problem(1.0), all_trajectories()
    weights = probability(demos, np.array(NUMBERS["planned"][0]["pi"]))
    irl = model(ridge=0.0, gtol=1e-10)
    theta = irl.fit(mdp, demos, weights)
    np.testing.assert_allclose(theta, TRUTH, atol=1e-8)
    D = occupancies(demos, np.exp(irl.log_prob(mdp, theta, demos))[:, 0])
    np.testing.assert_allclose(D.sum(axis=0), occupancies(demos, weights).sum(axis=0), atol=1e-9)
    counts = D.sum(axis=0) + D[-1] @ T.mean(axis=1)
    np.testing.assert_allclose(counts, FIT["expected"], atol=2.0 * EPS)
    slack = 2.0 * EPS * float(np.abs(FEATURES).sum(axis=0).max())
    np.testing.assert_allclose(counts @ FEATURES, FIT["expected_features"], atol=slack)
    np.testing.assert_allclose(theta, FIT["theta"], atol=100.0 * EPS)
    for step in range(HORIZON - 1):
        np.testing.assert_allclose(irl.policy(mdp, theta, step), FIT["pi"][step], atol=100.0 * EPS)


def test_gradient_is_the_difference_of_expected_features() -> None:
    """The gradient of the log-likelihood is demonstrated minus expected features (Ziebart 2010)."""
    mdp, demos, theta = problem(1.0), all_trajectories(), np.array([-0.3, 0.4])
    weights = probability(demos, np.array(NUMBERS["planned"][0]["pi"]))
    ready = model(ridge=0.0).make_problem(mdp, demos, Groups.from_labels(None, len(demos)))
    result = ready.solver.solve(theta[None], ready.decisions.candidates)
    gradient = result.gradient(
        np.repeat(ready.decisions.total(weights[:, None]), np.diff(ready.decisions.ptr), axis=0)
    )[0]
    own = np.exp(model().log_prob(mdp, theta, demos))[:, 0]
    counts = occupancies(demos, weights - own).sum(axis=0)
    np.testing.assert_allclose(gradient, counts @ FEATURES, atol=1e-12)
