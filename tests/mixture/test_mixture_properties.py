"""Properties of every mixture: permutations, duplicates, one intent, groups of one."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limiirl import IntentMixture, MaxEnt
from limiirl.errors import LimiirlWarning
from tests.helpers import examples
from tests.oracles.mixture import crossings, walks
from tests.oracles.random_mdps import Case, cases

MDP = crossings()
BOUNDS = (-4.0, 4.0)


def fit(mdp, demos, U, *, max_length=7, n_iter=8, groups=None, **parameters):
    """A mixture after n_iter iterations from responsibilities U, M-steps solved tightly."""
    irl = MaxEnt(max_length=max_length, bounds=BOUNDS, gtol=1e-9, ridge=1e-3)
    mix = IntentMixture(U.shape[1], irl, init=U, max_iter=n_iter, resp_tol=0.0, max_evaluations=500, **parameters)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LimiirlWarning)
        return mix.fit(mdp, demos, groups)


def same(one, other, rows=slice(None), columns=slice(None)):
    np.testing.assert_allclose(other.weights_, one.weights_[columns], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(other.thetas_, one.thetas_[columns], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(other.responsibilities_, one.responsibilities_[rows][:, columns], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(other.log_likelihood_, one.log_likelihood_, rtol=1e-9)


@given(st.integers(0, 10**6))
@settings(max_examples=examples(10))
def test_permuting_demonstrations_or_intents_permutes_the_result(seed):
    rng = np.random.default_rng(seed)
    demos, _ = walks(60, seed=seed)
    U = rng.dirichlet(np.full(3, 0.5), size=60)
    one = fit(MDP, demos, U)
    rows, columns = rng.permutation(60), rng.permutation(3)
    same(one, fit(MDP, demos[rows], U[rows]), rows=rows)
    same(one, fit(MDP, demos, np.ascontiguousarray(U[:, columns])), columns=columns)


@given(st.integers(0, 10**6))
@settings(max_examples=examples(10))
def test_duplicating_every_demonstration_changes_nothing(seed):
    demos, _ = walks(60, seed=seed)
    U = np.random.default_rng(seed).dirichlet(np.full(2, 0.5), size=60)
    twice = np.repeat(np.arange(60), 2)
    same(fit(MDP, demos, U), fit(MDP, demos[twice], U[twice]), rows=twice)


@given(st.integers(0, 10**6))
@settings(max_examples=examples(6))
def test_groups_of_one_equal_demonstrations_and_pairs_double_the_log_likelihood(seed):
    demos, _ = walks(40, seed=seed)
    U = np.random.default_rng(seed).dirichlet(np.full(2, 0.5), size=40)
    one = fit(MDP, demos, U)
    same(one, fit(MDP, demos, U, groups=np.arange(40)))
    grouped = fit(MDP, demos, np.repeat(U[::2], 2, axis=0), groups=np.arange(40) // 2)
    np.testing.assert_allclose(grouped.group_responsibilities_.mean(axis=0), grouped.weights_, atol=0.2)
    log_p = grouped.irl_.log_prob(MDP, grouped.thetas_, demos)
    joint = log_p[::2] + log_p[1::2] + np.log(grouped.weights_)
    wanted = np.exp(joint - np.logaddexp.reduce(joint, axis=1)[:, None])
    np.testing.assert_allclose(grouped.group_responsibilities_, wanted, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(grouped.responsibilities_[::2], grouped.group_responsibilities_)
    np.testing.assert_allclose(grouped.log_likelihood_, np.logaddexp.reduce(joint, axis=1).mean(), rtol=1e-10)


@given(cases(columns=(2,), scales=(1.0,)), st.integers(0, 10**6))
@settings(max_examples=examples(40))
def test_em_is_monotone_and_one_intent_equals_the_single_fit(case: Case, seed):
    irl = MaxEnt(max_length=case.max_length, bounds=BOUNDS, gtol=1e-9, ridge=1e-3)
    rng = np.random.default_rng(seed)
    demos = irl.sample(case.mdp, case.thetas[0], 12, rng) + irl.sample(case.mdp, case.thetas[1], 8, rng)
    mix = fit(case.mdp, demos, rng.dirichlet(np.ones(2), size=20), max_length=case.max_length)
    objective = np.array([entry.objective for entry in mix.history_])
    assert np.all(np.diff(objective) >= -1e-9 * (1.0 + np.abs(objective[1:])))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LimiirlWarning)
        single = irl.fit(case.mdp, demos)
    one = fit(case.mdp, demos, np.ones((20, 1)), max_length=case.max_length)
    np.testing.assert_allclose(one.thetas_[0], single, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(one.log_likelihood_, irl.log_prob(case.mdp, single, demos).mean(), rtol=1e-8, atol=1e-8)
    assert one.weights_.tolist() == [1.0]


@pytest.mark.parametrize("init", ["kmeans", "gmm", "random"])
def test_one_intent_with_every_init(init):
    demos, _ = walks(50, seed=0)
    irl = MaxEnt(max_length=7, bounds=BOUNDS)
    mix = IntentMixture(1, irl, init=init, random_state=0).fit(MDP, demos)
    np.testing.assert_allclose(mix.thetas_[0], irl.fit(MDP, demos), rtol=1e-5, atol=1e-6)
    assert mix.converged_
    assert mix.n_iter_ == 1
