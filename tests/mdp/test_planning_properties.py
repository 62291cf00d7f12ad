"""Planning against dense value iteration and the enumeration of policies, on random MDPs with features of all kinds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from limiirl.errors import InvalidParameter
from limiirl.mdp import MDP
from limiirl.mdp.planning import action_values, optimal_policy, optimal_values, policy_values
from tests.helpers import raises
from tests.oracles.compare import assert_close
from tests.oracles.dense_planning import best_of_all_policies, dense_q, policy_iterates, value_iteration
from tests.oracles.random_mdps import Case, cases, mdps

Float = NDArray[np.float64]
DISCOUNTED = cases(columns=(1,), discounts=(0.99, 0.9, 0.5))


def random_policy(mdp: MDP, rng: np.random.Generator) -> Float:
    """Probabilities of the pairs, about a third of them zero."""
    weights = rng.random(mdp.n_pairs) + 0.05
    weights[rng.random(mdp.n_pairs) < 0.35] = 0.0
    empty = np.bincount(mdp.pair_state, weights, minlength=mdp.n_states) == 0.0
    weights[empty[mdp.pair_state]] = 1.0
    return np.asarray(weights / np.bincount(mdp.pair_state, weights, minlength=mdp.n_states)[mdp.pair_state])


@given(case=DISCOUNTED, minimise=st.booleans())
def test_optimal_values_equal_value_iteration(case: Case, minimise: bool) -> None:
    theta = case.thetas[0]
    values = optimal_values(case.mdp, theta, minimise=minimise)
    assert_close(values, value_iteration(case.mdp, theta, minimise=minimise), "V*", size=1e-3)


@given(case=DISCOUNTED)
def test_action_values_and_ties_equal_dense_computation(case: Case) -> None:
    mdp, theta = case.mdp, case.thetas[0]
    V = value_iteration(mdp, theta)
    Q = dense_q(mdp, theta, V)
    assert_close(action_values(mdp, V, theta), Q[mdp.pair_state, mdp.pair_action], "Q", size=1e-3)
    policy = optimal_policy(mdp, theta)
    if not mdp.n_pairs:
        return
    slack = 1e-6 * (np.nanmax(Q) - np.nanmin(Q)) + 1e-11 * np.nanmax(np.abs(Q))
    for s in np.flatnonzero(~mdp.terminal):
        ties = Q[s] >= np.nanmax(Q[s]) - slack
        np.testing.assert_allclose(
            policy[mdp.pair_state == s], (ties / ties.sum())[~np.isnan(Q[s])], rtol=1e-12, atol=0.0
        )


@given(case=DISCOUNTED, seed=st.integers(0, 1000))
def test_policy_values_solve_the_bellman_equation_within_bounds(case: Case, seed: int) -> None:
    mdp, theta = case.mdp, case.thetas[0]
    policy = random_policy(mdp, np.random.default_rng(seed))
    V = policy_values(mdp, policy, theta)
    Q = np.nan_to_num(dense_q(mdp, theta, V))
    pi = np.zeros_like(Q)
    pi[mdp.pair_state, mdp.pair_action] = policy
    r = mdp.rewards(theta)[0][:, 0]
    # A residual of e is an error of e / (1 - gamma) at most.
    assert_close(np.where(mdp.terminal, r, (pi * Q).sum(axis=1)), V, "the policy's equation", 1e-12, size=1e-3)
    slack = 1e-10 * np.abs(V).max()
    assert np.all(optimal_values(mdp, theta, minimise=True) <= V + slack)
    assert np.all(optimal_values(mdp, theta) >= V - slack)


@given(case=DISCOUNTED)
def test_optimal_policy_has_the_optimal_values(case: Case) -> None:
    mdp, theta = case.mdp, case.thetas[0]
    values = policy_values(mdp, optimal_policy(mdp, theta), theta)
    assert_close(values, optimal_values(mdp, theta), "values of the optimal policy", size=1e-3)


@given(case=cases(columns=(1,), discounts=(1.0,), acyclic=True), minimise=st.booleans())
def test_undiscounted_acyclic_values_equal_backward_induction(case: Case, minimise: bool) -> None:
    mdp, theta = case.mdp, case.thetas[0]
    r = mdp.rewards(theta)[0][:, 0]
    V = np.where(mdp.terminal, r, 0.0)
    for s in reversed(np.flatnonzero(~mdp.terminal)):
        row = dense_q(mdp, theta, V)[s]
        V[s] = np.nanmin(row) if minimise else np.nanmax(row)
    assert_close(optimal_values(mdp, theta, minimise=minimise), V, "V*")


@st.composite
def costly(draw: st.DrawFn) -> tuple[MDP, Float]:
    """An undiscounted MDP, loops and all, whose rewards are nowhere positive and often zero."""
    mdp = draw(mdps(discounts=(1.0,)))
    kinds = ("state_features", "action_features", "edge_features")
    mdp = mdp.replace(**{name: -abs(getattr(mdp, name)) for name in kinds if getattr(mdp, name) is not None})
    theta = np.array(
        draw(st.lists(st.sampled_from((0.0, 0.0, 0.5, 2.0)), min_size=mdp.n_features, max_size=mdp.n_features))
    )
    return mdp, theta


@given(problem=costly(), minimise=st.booleans())
def test_undiscounted_values_equal_the_best_of_all_policies(problem: tuple[MDP, Float], minimise: bool) -> None:
    """Rewards of the other sign, minimised, are the same problem. Where the best total is infinite, it is an error."""
    mdp, theta = problem
    expected = best_of_all_policies(mdp, theta)
    sign = -1.0 if minimise else 1.0
    if np.isinf(expected).any():
        with raises(InvalidParameter, parameter="theta"):
            optimal_values(mdp, sign * theta, minimise=minimise)
        return
    assert_close(sign * optimal_values(mdp, sign * theta, minimise=minimise), expected, "V*", 1e-9)
    policy = optimal_policy(mdp, theta)
    assert_close(policy_values(mdp, policy, theta), expected, "values of the optimal policy", 1e-9)


@given(problem=costly(), seed=st.integers(0, 1000))
def test_undiscounted_policy_values_are_total_rewards(problem: tuple[MDP, Float], seed: int) -> None:
    mdp, theta = problem
    policy = random_policy(mdp, np.random.default_rng(seed))
    expected = policy_iterates(mdp, policy, theta)
    if np.isinf(expected).any():
        with raises(InvalidParameter, parameter="theta"):
            policy_values(mdp, policy, theta)
    else:
        assert_close(policy_values(mdp, policy, theta), expected, "V", 1e-9)
