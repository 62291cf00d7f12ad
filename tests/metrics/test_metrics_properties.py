"""EVD, GEVD and EPIC on random MDPs, against dense planning and the enumeration of all ways to break ties."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from limiirl.mdp import MDP
from limiirl.mdp.ensemble import RewardEnsemble
from limiirl.mdp.planning import optimal_policy, policy_values
from limiirl.metrics import dard, epic, evd, evd_interval, gevd, ile
from tests.helpers import examples
from tests.oracles.dense_planning import dense_q, tensors, value_iteration
from tests.oracles.random_mdps import Case, cases

Float = NDArray[np.float64]
PAIRS = cases(columns=(2,), discounts=(0.9, 0.5))
MANY = cases(columns=(5,), discounts=(0.9, 0.5))


def dense_evd(mdp: MDP, true: Float, learned: Float) -> float:
    """Value iteration for both rewards on dense tensors, and a linear solve for the mixture over ties."""
    Q = dense_q(mdp, learned, value_iteration(mdp, learned))
    T, R = tensors(mdp, true)
    r = mdp.rewards(true)[0][:, 0]
    pi = np.zeros(Q.shape)
    if mdp.n_pairs:
        slack = 1e-6 * (np.nanmax(Q) - np.nanmin(Q)) + 1e-11 * np.nanmax(np.abs(Q))
        alive = ~mdp.terminal
        pi[alive] = Q[alive] >= np.nanmax(Q[alive], axis=1, keepdims=True) - slack
        pi[alive] /= pi[alive].sum(axis=1, keepdims=True)
    P = np.einsum("sa,sat->st", pi, T)
    earned = np.where(mdp.terminal, r, np.einsum("sa,sat,sat->s", pi, T, R))
    V = np.linalg.solve(np.eye(mdp.n_states) - mdp.gamma * P, earned)
    return float(mdp.p0 @ (value_iteration(mdp, true) - V))


def size(mdp: MDP, theta: Float) -> float:
    """About the largest value there may be, for tolerances."""
    return 1e-3 + sum(float(np.abs(part).max(initial=0.0)) for part in mdp.rewards(theta) if part is not None)


@settings(max_examples=examples(50))
@given(case=PAIRS)
def test_evd_equals_dense_computation(case: Case) -> None:
    mdp, (true, learned) = case.mdp, case.thetas
    atol = 1e-9 * size(mdp, true)
    np.testing.assert_allclose(evd(mdp, true, learned), dense_evd(mdp, true, learned), rtol=0.0, atol=atol)
    uniform = mdp.replace(p0=np.full(mdp.n_states, 1.0 / mdp.n_states))
    np.testing.assert_allclose(
        ile(mdp, true, learned), mdp.n_states * evd(uniform, true, learned), rtol=1e-9, atol=atol
    )
    assert evd(mdp, true, learned) <= ile(mdp, true, learned) + atol


@settings(max_examples=examples(50))
@given(case=PAIRS, ties=st.booleans())
def test_interval_spans_all_tie_breaking_rules(case: Case, ties: bool) -> None:
    mdp, (true, learned) = case.mdp, case.thetas
    learned = learned * (0.0 if ties else 1.0)
    low, value, high = evd_interval(mdp, true, learned)
    assert 0.0 <= low <= value <= high
    policy = optimal_policy(mdp, learned)
    pairs = [np.flatnonzero((mdp.pair_state == s) & (policy > 0.0)) for s in np.flatnonzero(~mdp.terminal)]
    best = value_iteration(mdp, true)
    losses = []
    for choice in product(*pairs):
        chosen = np.zeros(mdp.n_pairs)
        chosen[list(choice)] = 1.0
        losses.append(float(mdp.p0 @ (best - policy_values(mdp, chosen, true))))
    np.testing.assert_allclose([low, high], [min(losses), max(losses)], rtol=0.0, atol=1e-9 * size(mdp, true))


@st.composite
def weights(draw: st.DrawFn, n: int) -> Float:
    """Shares, some of them nothing."""
    drawn = np.array(draw(st.lists(st.integers(0, 4), min_size=n, max_size=n)), dtype=np.float64)
    drawn[draw(st.integers(0, n - 1))] += 1.0
    return np.asarray(drawn / drawn.sum())


@settings(max_examples=examples(50))
@given(case=MANY, data=st.data())
def test_gevd_keeps_its_rules(case: Case, data: st.DataObject) -> None:
    mdp, thetas = case.mdp, case.thetas
    truth = RewardEnsemble(data.draw(weights(2)), thetas[:2])
    learned = RewardEnsemble(data.draw(weights(3)), thetas[2:])
    result = gevd(mdp, truth, learned)
    atol = 1e-9 * size(mdp, truth.thetas)
    low, high = result.bounds
    assert low <= result.value <= high
    assert result.interval[0] <= result.value <= result.interval[1] <= high + atol
    assert 0.0 <= result.normalised <= result.normalised_tight + 1e-9
    assert result.normalised_tight <= 1.0
    np.testing.assert_allclose(result.flow.sum(axis=1), truth.weights, rtol=0.0, atol=1e-12)
    np.testing.assert_allclose(result.flow.sum(axis=0), learned.weights, rtol=0.0, atol=1e-12)
    # No pairing by the product of the shares is cheaper, and none is cheaper than the cheapest partner of each.
    assert result.value <= truth.weights @ result.evd @ learned.weights + atol
    assert result.value >= truth.weights @ result.evd[:, learned.weights > 0.0].min(axis=1) - atol
    order, other = np.array([1, 0]), np.array([2, 0, 1])
    again = gevd(
        mdp,
        RewardEnsemble(truth.weights[order], truth.thetas[order]),
        RewardEnsemble(learned.weights[other], learned.thetas[other]),
    )
    np.testing.assert_allclose(again.value, result.value, rtol=0.0, atol=atol)
    np.testing.assert_array_equal(again.evd, result.evd[np.ix_(order, other)])


@settings(max_examples=examples(40))
@given(case=MANY, data=st.data(), share=st.sampled_from((0.25, 0.5, 1.0)))
def test_an_ensemble_is_itself_split_or_not(case: Case, data: st.DataObject, share: float) -> None:
    mdp, thetas = case.mdp, case.thetas
    truth = RewardEnsemble(data.draw(weights(5)), thetas)
    k = data.draw(st.integers(0, 4))
    parts = np.append(truth.weights, (1.0 - share) * truth.weights[k])
    parts[k] *= share
    split = RewardEnsemble(parts, np.vstack([thetas, thetas[k]]))
    itself = gevd(mdp, truth, truth).value
    # Where actions are within the tolerance of ties without being equal, a policy loses a little against itself.
    assert itself <= 1e-4 * size(mdp, thetas)
    for one, other in ((truth, split), (split, truth)):
        np.testing.assert_allclose(gevd(mdp, one, other).value, itself, rtol=0.0, atol=1e-9 * size(mdp, thetas))


@settings(max_examples=examples(50))
@given(case=cases(columns=(2,), discounts=(0.9, 0.5)), scale=st.sampled_from((0.01, 1.0, 70.0)))
def test_epic_and_dard_are_symmetric_and_blind_to_scale(case: Case, scale: float) -> None:
    mdp, (one, other) = case.mdp, case.thetas
    states = np.random.default_rng(mdp.n_edges).normal(size=(mdp.n_states, 2))
    mdp = mdp.replace(state_features=states, action_features=None, edge_features=None)
    one, other = np.resize(one, 2), np.resize(other, 2)
    for measure in (epic, dard):
        result = measure(mdp, one, other)
        assert 0.0 <= result <= 1.0
        np.testing.assert_allclose(measure(mdp, other, one), result, rtol=0.0, atol=1e-9)
        np.testing.assert_allclose(measure(mdp, scale * one, other), result, rtol=0.0, atol=1e-7)
        assert measure(mdp, one, scale * one) <= 1e-7
