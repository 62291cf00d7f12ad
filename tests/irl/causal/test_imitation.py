"""`MaxCausalEnt` with a horizon against `imitation`'s tabular MCE IRL; tests/oracles/imitation_mce.py made the numbers.

Theirs counts H actions, in states that earn their rewards; ours counts those H states. Their last policy, after which
nothing is earned, has no counterpart and is uniform. Ours has one policy for each step before.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limiirl.demos import Demonstrations
from limiirl.demos.groups import Groups
from limiirl.irl.causal.maxcausalent import MaxCausalEnt
from limiirl.mdp import MDP

NUMBERS: dict[str, Any] = json.loads((Path(__file__).parents[2] / "oracles" / "imitation_mce.json").read_text())
T, FEATURES, TRUTH = np.array(NUMBERS["T"]), np.array(NUMBERS["features"]), np.array(NUMBERS["theta"])
HORIZON, FIT = NUMBERS["horizon"], NUMBERS["fit"]
# Theirs stops once occupancies differ by linf_eps from the demonstrated, or its gradient is as short as grad_l2_eps.
EPS = max(FIT["linf_eps"], FIT["grad_l2_eps"])
PLANS = [pytest.param(plan, id=f"discount {plan['discount']}") for plan in NUMBERS["planned"]]


def problem(discount: float) -> MDP:
    return MDP.from_dense(T, NUMBERS["p0"], gamma=discount, state_features=FEATURES)


def model(**parameters: Any) -> MaxCausalEnt:
    return MaxCausalEnt(max_length=HORIZON, stop="terminal_or_max_length", **parameters)


def all_trajectories() -> Demonstrations:
    """Every trajectory of H states that can happen."""
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
    """The probability (H, S) of each state at each step, given that of each trajectory (N,)."""
    result = np.zeros((HORIZON, T.shape[0]))
    np.add.at(result, (np.tile(np.arange(HORIZON), len(demos)), demos.states), np.repeat(p, HORIZON))
    return result


def probability(demos: Demonstrations, pi: np.ndarray) -> np.ndarray:
    """The probability (N,) of each trajectory under policies pi (H, S, A), step by step."""
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
    assert np.abs(theirs[0] - theirs[-2]).max() > 1e-2  # the step matters, so that an index off by one would show


@pytest.mark.parametrize("plan", PLANS)
def test_occupancies_are_the_same(plan: dict[str, Any]) -> None:
    demos, theirs = all_trajectories(), np.array(plan["D"])
    p = np.exp(model().log_prob(problem(plan["discount"]), TRUTH, demos))[:, 0]
    np.testing.assert_allclose(p.sum(), 1.0, rtol=1e-12)
    D = occupancies(demos, p)
    np.testing.assert_allclose(D, theirs[:-1], rtol=1e-11)
    # Theirs counts the state after the last action too, which a uniform policy leads to.
    gain = plan["discount"] ** np.arange(HORIZON + 1)
    after = np.vstack([D, D[-1] @ T.mean(axis=1)])
    np.testing.assert_allclose(gain @ after @ FEATURES, plan["D_discounted"] @ FEATURES, rtol=1e-11)


def test_a_fit_expects_the_features_that_theirs_expects() -> None:
    """Demonstrations are all trajectories, each weighted by its probability under their policy: no noise of sampling.

    Our fit leaves a gradient of 1e-10 a choice. Theirs is as exact as its stopping rule: occupancies to EPS, features
    to EPS times the sum of their sizes; rewards and policies to that divided by the curvature, about 100 times.
    """
    mdp, demos = problem(1.0), all_trajectories()
    weights = probability(demos, np.array(NUMBERS["planned"][0]["pi"]))
    irl = model(ridge=0.0, gtol=1e-10)
    theta = irl.fit(mdp, demos, weights)
    np.testing.assert_allclose(theta, TRUTH, atol=1e-8)
    D = occupancies(demos, np.exp(irl.log_prob(mdp, theta, demos))[:, 0])
    np.testing.assert_allclose(D.sum(axis=0), occupancies(demos, weights).sum(axis=0), atol=1e-9)
    visits = D.sum(axis=0) + D[-1] @ T.mean(axis=1)
    np.testing.assert_allclose(visits, FIT["expected"], atol=2.0 * EPS)
    slack = 2.0 * EPS * float(np.abs(FEATURES).sum(axis=0).max())
    np.testing.assert_allclose(visits @ FEATURES, FIT["expected_features"], atol=slack)
    np.testing.assert_allclose(theta, FIT["theta"], atol=100.0 * EPS)
    for step in range(HORIZON - 1):
        np.testing.assert_allclose(irl.policy(mdp, theta, step), FIT["pi"][step], atol=100.0 * EPS)


def test_the_gradient_is_the_difference_of_expected_features() -> None:
    """Ziebart's duality, and theirs: the likelihood's slope is what was demonstrated less what is expected."""
    mdp, demos, theta = problem(1.0), all_trajectories(), np.array([-0.3, 0.4])
    weights = probability(demos, np.array(NUMBERS["planned"][0]["pi"]))
    ready = model(ridge=0.0).make_problem(mdp, demos, Groups.from_labels(None, len(demos)))
    result = ready.solver.solve(theta[None], ready.decisions.moves)
    slope = result.gradient(np.repeat(ready.decisions.total(weights[:, None]), np.diff(ready.decisions.ptr), axis=0))[0]
    own = np.exp(model().log_prob(mdp, theta, demos))[:, 0]
    visits = occupancies(demos, weights - own).sum(axis=0)
    np.testing.assert_allclose(slope, visits @ FEATURES, atol=1e-12)
