"""Causal models on random small MDPs: policies as dense iteration finds them, exact gradients, probabilities of 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from limiirl.demos import Demonstrations, Groups
from limiirl.demos.simulate import simulate
from limiirl.irl import MaxEnt
from limiirl.irl.causal.maxcausalent import MaxCausalEnt
from limiirl.irl.causal.mlirl import MLIRL
from limiirl.irl.causal.model import CausalModel
from limiirl.irl.causal.problem import CausalLikelihood
from limiirl.irl.causal.state_actions import StateActions
from limiirl.irl.causal.stationary import HardBellmanSolver
from limiirl.mdp import MDP
from tests.helpers import examples
from tests.oracles.causal import horizon_policies, log_prob, stationary_policy
from tests.oracles.enumeration import paths
from tests.oracles.random_mdps import Case, cases

Float = NDArray[np.float64]
DISCOUNTED = (0.99, 0.9, 0.5)
SWEEPS = 7
HORIZON = 5


class Way(NamedTuple):
    """A model, the discounts it is for, and its policies by the oracle: pi, and stops with a horizon."""

    model: CausalModel
    discounts: tuple[float, ...]
    oracle: Callable[[MDP, Float], tuple[Float, Float | None]]


WAYS = {
    "soft": Way(MaxCausalEnt(beta=1.5), DISCOUNTED, lambda m, th: (stationary_policy(m, th, "soft", 1.5), None)),
    "hard": Way(MLIRL(beta=0.7), DISCOUNTED, lambda m, th: (stationary_policy(m, th, "hard", 0.7), None)),
    "bv": Way(
        MLIRL(beta=0.7, q="bv", n_backups=SWEEPS),
        (1.0, *DISCOUNTED),
        lambda m, th: (stationary_policy(m, th, "bv", 0.7, SWEEPS), None),
    ),
    "horizon": Way(
        MaxCausalEnt(beta=1.5, max_length=HORIZON),
        (1.0, *DISCOUNTED),
        lambda m, th: horizon_policies(m, th, 1.5, HORIZON, stop=True),
    ),
    "no_stop": Way(
        MaxCausalEnt(beta=1.5, max_length=HORIZON, stop="terminal_or_max_length"),
        (1.0, *DISCOUNTED),
        lambda m, th: horizon_policies(m, th, 1.5, HORIZON, stop=False),
    ),
}


def walks(mdp: MDP, seed: int, n: int = 12) -> Demonstrations:
    """Random walks of at most HORIZON states; the actions of about a third of their steps were not recorded."""
    rng = np.random.default_rng(seed)
    uniform = 1.0 / np.bincount(mdp.pair_state, minlength=mdp.n_states)[mdp.pair_state]
    demos = simulate(mdp, uniform, n, rng, max_length=HORIZON)
    if demos.actions is None:
        return demos
    return demos.replace(actions=np.where(rng.random(demos.n_steps) < 0.3, -1, demos.actions))


def objective(model: CausalModel, case: Case, demos: Demonstrations) -> CausalLikelihood:
    """Minus the mean log-likelihood under K random weightings, with a ridge."""
    K = len(case.thetas)
    ready = model.make_problem(case.mdp, demos, Groups.from_labels(None, len(demos)))
    weights = np.random.default_rng(1).random((len(demos), K))
    moments = ready.moments(weights)
    return CausalLikelihood(ready.solver, ready.decisions, moments.decisions, moments.counts, np.full(K, 0.1))  # type: ignore[attr-defined]


def finite_differences(f: CausalLikelihood, thetas: Float) -> Float:
    """Gradients (K, d) by central differences of order 4."""
    which = np.arange(len(thetas))
    result = np.zeros(thetas.shape)
    for j in range(thetas.shape[1]):
        for step, factor in ((1e-3, 8.0 / 12e-3), (2e-3, -1.0 / 12e-3)):
            shift = np.zeros(thetas.shape[1])
            shift[j] = step
            result[:, j] += factor * (f.evaluate(thetas + shift, which)[0] - f.evaluate(thetas - shift, which)[0])
    return result


def draw_case(data: st.DataObject, way: Way, **kinds: object) -> Case:
    case: Case = data.draw(cases(discounts=way.discounts, scales=(0.3, 1.0), **kinds))
    assume(case.mdp.n_edges > 0)
    return case


@pytest.mark.parametrize("name", WAYS)
@given(data=st.data(), seed=st.integers(0, 999))
@settings(max_examples=examples(25))
def test_log_prob_agrees_with_dense_iteration(name: str, data: st.DataObject, seed: int) -> None:
    way = WAYS[name]
    case = draw_case(data, way)
    demos = walks(case.mdp, seed)
    result = way.model.log_prob(case.mdp, case.thetas, demos)
    for k, theta in enumerate(case.thetas):
        pi, stops = way.oracle(case.mdp, theta)
        wanted = log_prob(case.mdp, demos, pi, stops)
        np.testing.assert_allclose(result[:, k], wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", WAYS)
@given(data=st.data())
@settings(max_examples=examples(25))
def test_policy_agrees_with_dense_iteration(name: str, data: st.DataObject) -> None:
    way = WAYS[name]
    case = draw_case(data, way)
    pi, stops = way.oracle(case.mdp, case.thetas[0])
    for step in (0, HORIZON - 2, HORIZON - 1) if stops is not None else (0,):
        wanted = pi
        if stops is not None:
            goes_on = 1.0 - stops[step]
            wanted = pi[step] / np.where(goes_on > 0, goes_on, 1.0)[:, None]
        result = way.model.policy(case.mdp, case.thetas[0], step)
        np.testing.assert_allclose(result, wanted, atol=1e-9)


@pytest.mark.parametrize("name", WAYS)
@given(data=st.data(), seed=st.integers(0, 999))
@settings(max_examples=examples(25))
def test_gradients_agree_with_finite_differences(name: str, data: st.DataObject, seed: int) -> None:
    way = WAYS[name]
    case = draw_case(data, way)
    if name == "hard":
        assume(not near_a_kink(case))
    f = objective(way.model, case, walks(case.mdp, seed))
    _, gradients = f.evaluate(case.thetas, np.arange(len(case.thetas)))
    wanted = finite_differences(f, case.thetas)
    np.testing.assert_allclose(gradients, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["soft", "hard"])
@given(data=st.data(), seed=st.integers(0, 999))
@settings(max_examples=examples(25))
def test_discount_one_is_like_any_where_all_ends(name: str, data: st.DataObject, seed: int) -> None:
    way = WAYS[name]
    case = data.draw(cases(discounts=(1.0,), acyclic=True, scales=(0.3, 1.0)))
    assume(case.mdp.n_edges > 0)
    demos = walks(case.mdp, seed)
    pi, _ = way.oracle(case.mdp, case.thetas[0])
    result = way.model.log_prob(case.mdp, case.thetas[0], demos)[:, 0]
    np.testing.assert_allclose(result, log_prob(case.mdp, demos, pi), rtol=1e-9, atol=1e-9)
    if name == "soft" or not near_a_kink(case):
        f = objective(way.model, case, demos)
        _, gradients = f.evaluate(case.thetas, np.arange(len(case.thetas)))
        np.testing.assert_allclose(gradients, finite_differences(f, case.thetas), rtol=1e-6, atol=1e-6)


def near_a_kink(case: Case) -> bool:
    """Return True if some state's two best actions are too close for finite differences not to mix them."""
    choices = StateActions(case.mdp)
    Q = HardBellmanSolver(choices, 1.0).values(case.thetas).Q
    for s in choices.alive:
        here = np.sort(Q[choices.graph.pair_ptr[s] : choices.graph.pair_ptr[s + 1]], axis=0)
        if len(here) > 1 and np.any(here[-1] - here[-2] < 0.02 / max(0.1, 1.0 - case.mdp.gamma)):
            return True
    return False


@pytest.mark.parametrize("name", WAYS)
@given(data=st.data())
@settings(max_examples=examples(25))
def test_columns_are_independent(name: str, data: st.DataObject) -> None:
    way = WAYS[name]
    case = draw_case(data, way)
    f = objective(way.model, case, walks(case.mdp, 0))
    which = np.arange(len(case.thetas))
    values, gradients = f.evaluate(case.thetas, which)
    for k in which:
        value, gradient = f.evaluate(case.thetas[k : k + 1], which[k : k + 1])
        np.testing.assert_allclose(values[k], value[0], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(gradients[k], gradient[0], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", WAYS)
@given(data=st.data())
@settings(max_examples=examples(25))
def test_probabilities_of_all_trajectories_sum_to_one(name: str, data: st.DataObject) -> None:
    """With a stop, of all up to the horizon; without one, of those that end and those that are still going on."""
    way = WAYS[name]
    case = draw_case(data, way, max_length=HORIZON)
    horizon = name in ("horizon", "no_stop")
    length = HORIZON if horizon else case.max_length
    rule = "anywhere" if name == "horizon" else "terminal_or_max_length"
    listed = [path for path in paths(case.mdp, length, rule) if case.mdp.p0[path[0][0]] > 0]
    assume(len(listed) <= 2000)
    demos = Demonstrations.from_lists([p[0] for p in listed], [[int(case.mdp.act[e]) for e in p[1]] for p in listed])
    total = np.exp(way.model.log_prob(case.mdp, case.thetas, demos)).sum(axis=0)
    np.testing.assert_allclose(total, 1.0, rtol=1e-9)
    # Trajectories with the same states are one where actions were not recorded.
    states = sorted({path[0] for path in listed})
    unrecorded = Demonstrations.from_lists([list(s) for s in states])
    total = np.exp(way.model.log_prob(case.mdp, case.thetas, unrecorded)).sum(axis=0)
    np.testing.assert_allclose(total, 1.0, rtol=1e-9)


@given(data=st.data(), seed=st.integers(0, 999))
@settings(max_examples=examples(25))
def test_with_certain_moves_a_horizon_gives_maxent_by_start(data: st.DataObject, seed: int) -> None:
    """Spec A: beta 1, discount 1, an explicit stop."""
    case = data.draw(cases(discounts=(1.0,)))
    assume(case.mdp.n_edges > 0)
    assume(case.mdp.deterministic)
    demos = walks(case.mdp, seed)
    maxent = MaxEnt(max_length=HORIZON, condition="start").log_prob(case.mdp, case.thetas, demos)
    causal = MaxCausalEnt(max_length=HORIZON).log_prob(case.mdp, case.thetas, demos)
    log_start = np.log(case.mdp.p0[demos.start_states])[:, None]
    np.testing.assert_allclose(causal, maxent + log_start, rtol=1e-11, atol=1e-11)


@given(data=st.data())
@settings(max_examples=examples(25))
def test_beta_and_rewards_are_one_scale(data: st.DataObject) -> None:
    case = draw_case(data, WAYS["soft"])
    demos = walks(case.mdp, 3)
    for one, other in (
        (MaxCausalEnt(beta=2.0), MaxCausalEnt(beta=0.5)),
        (MLIRL(beta=2.0), MLIRL(beta=0.5)),
        (MLIRL(beta=2.0, q="bv"), MLIRL(beta=0.5, q="bv")),
        (MaxCausalEnt(beta=2.0, max_length=6), MaxCausalEnt(beta=0.5, max_length=6)),
    ):
        result = other.log_prob(case.mdp, 4.0 * case.thetas, demos)
        np.testing.assert_allclose(one.log_prob(case.mdp, case.thetas, demos), result, rtol=1e-9, atol=1e-9)
