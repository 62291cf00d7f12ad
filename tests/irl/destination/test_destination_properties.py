"""`DestinationMaxEnt` on small random MDPs, against 60-digit arithmetic and enumeration."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp

from limiirl import DestinationMaxEnt
from limiirl.demos import Demonstrations
from limiirl.errors import DivergentPartition
from limiirl.irl.destination import path_sums
from limiirl.irl.destination.dense import DenseGoalValues
from limiirl.irl.destination.likelihood import DestinationLikelihood, ObservedTrips
from limiirl.irl.destination.path_sums import GoalValues
from limiirl.mdp import MDP
from tests.helpers import examples, raises
from tests.oracles.compare import assert_close
from tests.oracles.goals import ExactPaths, list_paths, log_weights
from tests.oracles.random_mdps import Case, cases
from tests.oracles.recursion import rewards


def radius(mdp: MDP, theta: np.ndarray) -> float:
    """Return the spectral radius of the transition weights."""
    r_state, r_edge = rewards(mdp, theta)
    W = np.zeros((mdp.n_states, mdp.n_states))
    np.add.at(W, (mdp.src, mdp.dst), mdp.prob * np.exp(r_edge + r_state[mdp.dst]))
    return float(np.max(np.abs(np.linalg.eigvals(W))))


def reachable(mdp: MDP) -> np.ndarray:
    """Return the reachability matrix: entry (s, t) is True if a path leads from s to t."""
    result = np.eye(mdp.n_states, dtype=bool)
    for _ in range(mdp.n_states):
        for s, t in zip(mdp.src, mdp.dst, strict=True):
            result[s] |= result[t]
    return result


def all_pairs(mdp: MDP) -> tuple[np.ndarray, np.ndarray]:
    starts, goals = np.nonzero(reachable(mdp))
    return starts.astype(np.int64), goals.astype(np.int64)


kinds = st.sampled_from((GoalValues, DenseGoalValues))
feasible_cases = cases(columns=(1,), discounts=(1.0,), scales=(0.3, 1.0, 3.0))


@settings(max_examples=examples(40))
@given(case=feasible_cases, kind=kinds)
def test_values_and_flows_agree_with_the_linear_systems(case: Case, kind: type[GoalValues]) -> None:
    mdp, theta = case.mdp, case.thetas[0]
    assume(radius(mdp, theta) < 0.95)
    solution, connected = kind(mdp).solve(theta), reachable(mdp)
    starts, goals = all_pairs(mdp)
    weights = 1.0 + np.arange(starts.size) % 3
    result = solution.pair_sums(starts, goals, weights)
    assert result.flow is not None
    flow = np.zeros(mdp.n_edges)
    for goal in range(mdp.n_states):
        exact = ExactPaths(mdp, theta, goal)
        expected = np.where(connected[:, goal], exact.log_value(), -np.inf)
        assert_close(solution.values_to(goal), expected, "log value of all states")
        mine = goals == goal
        assert_close(result.log_value[mine], expected[starts[mine]], "log value of pairs")
        flow += sum(w * exact.flow(int(s)) for s, w in zip(starts[mine], weights[mine], strict=True))
    assert_close(result.flow, flow, "expected edge counts")


@settings(max_examples=examples(40))
@given(case=feasible_cases)
def test_scaling_per_goal_gives_the_same_result(case: Case) -> None:
    mdp, theta = case.mdp, case.thetas[0]
    assume(radius(mdp, theta) < 0.95)
    starts, goals = all_pairs(mdp)
    weights = np.ones(starts.size)
    near = GoalValues(mdp).solve(theta).pair_sums(starts, goals, weights)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(path_sums, "_LARGEST", 1e-300)  # scale every goal separately
        far = GoalValues(mdp).solve(theta).pair_sums(starts, goals, weights)
    assert far.flow is not None
    assert near.flow is not None
    assert_close(far.log_value, near.log_value, "log values")
    assert_close(far.flow, near.flow, "flows")


@settings(max_examples=examples(60))
@given(case=cases(columns=(1,), discounts=(1.0,), scales=(0.3, 1.0)))
def test_divergent_loops_are_the_same_in_both_arithmetics(case: Case) -> None:
    values, theta = GoalValues(case.mdp), case.thetas[0]
    linear = values.divergent_loop(theta, 1e-6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(path_sums, "_LARGEST", 1e-300)
        log = values.divergent_loop(theta, 1e-6)
    assert (linear is None) == (log is None)
    if linear is not None and log is not None:
        assert_close(np.array(linear[0]), np.array(log[0]), "log-weight of the loop")
        assert_close(linear[1], log[1], "edge counts of the loop")


@settings(max_examples=examples(100))
@given(case=cases(columns=(1,), discounts=(1.0,), scales=(0.3, 1.0)), kind=kinds)
def test_divergence_agrees_with_the_spectral_radius(case: Case, kind: type[GoalValues]) -> None:
    mdp, theta = case.mdp, case.thetas[0]
    rho = radius(mdp, theta)
    assume(abs(rho - 1.0) > 1e-9)
    values = kind(mdp)
    assert values.is_finite(theta) == (rho < 1.0)
    if rho > 1.0:
        with raises(DivergentPartition, parameter="theta"):
            values.solve(theta)


@settings(max_examples=examples(25))
@given(case=cases(columns=(1,), discounts=(1.0,), acyclic=True))
def test_acyclic_paths_against_enumeration(case: Case) -> None:
    mdp, theta = case.mdp.replace(p0=np.full(case.mdp.n_states, 1.0 / case.mdp.n_states)), case.thetas[0]
    model = DestinationMaxEnt(bounds=None)
    for start, goal in zip(*all_pairs(mdp), strict=True):
        paths = list_paths(mdp, int(start), int(goal), mdp.n_states)
        log_w = log_weights(mdp, theta, paths)
        states = [[int(start), *mdp.dst[path].tolist()] for path in paths]
        demos = Demonstrations.from_lists(states, [mdp.act[path].tolist() for path in paths])
        result = model.log_prob(mdp, theta, demos)[:, 0]
        assert_close(result, log_w - logsumexp(log_w), "log-probabilities")
        best, log_best = model.most_likely(mdp, theta, int(start), int(goal))
        assert_close(log_best, result.max(), "log-probability of the most likely path")
        assert_close(model.log_prob(mdp, theta, best)[0, 0], log_best, "log_prob of the most likely path")


@settings(max_examples=examples(25))
@given(case=feasible_cases, seed=st.integers(0, 1000))
def test_gradients_agree_with_central_differences(case: Case, seed: int) -> None:
    mdp = case.mdp.replace(p0=np.full(case.mdp.n_states, 1.0 / case.mdp.n_states))
    theta, model, rng = case.thetas[0], DestinationMaxEnt(bounds=None), np.random.default_rng(seed)
    assume(radius(mdp, theta) < 0.9)
    starts, goals = all_pairs(mdp)
    demos = model.sample(mdp, theta, starts, goals, seed=seed)
    stripped = Demonstrations(demos.states, demos.offsets)  # without actions, parallel edges are summed
    for given_demos in (demos, stripped):
        weights = rng.uniform(0.1, 1.0, (len(given_demos), 2))
        objective = DestinationLikelihood(
            GoalValues(mdp), ObservedTrips.from_demos(mdp, given_demos), weights, np.array([0.0, 0.5])
        )
        both = np.tile(theta, (2, 1))
        _, gradients = objective.evaluate(both, np.arange(2))
        for j in range(theta.size):
            move = 1e-5 * np.eye(theta.size)[j]
            upper, _ = objective.evaluate(both + move, np.arange(2))
            lower, _ = objective.evaluate(both - move, np.arange(2))
            numeric = (upper - lower) / 2e-5
            np.testing.assert_allclose(gradients[:, j], numeric, rtol=1e-6, atol=1e-6)


@settings(max_examples=examples(30))
@given(case=feasible_cases, data=st.data())
def test_prefixes_and_policies_agree(case: Case, data: st.DataObject) -> None:
    mdp, theta = case.mdp.replace(p0=np.full(case.mdp.n_states, 1.0 / case.mdp.n_states)), case.thetas[0]
    assume(radius(mdp, theta) < 0.95)
    model = DestinationMaxEnt(bounds=None)
    goal = data.draw(st.integers(0, mdp.n_states - 1))
    policy = model.policy_to(mdp, theta, goal)
    total = np.bincount(mdp.src, weights=policy, minlength=mdp.n_states)
    on = np.isfinite(model.log_value(mdp, theta, [goal])[0, :, 0]) & (np.arange(mdp.n_states) != goal)
    np.testing.assert_allclose(total, on.astype(float), rtol=0, atol=1e-9)
    edges = np.flatnonzero(on[mdp.src])
    moves = Demonstrations.from_lists(
        [[int(mdp.src[e]), int(mdp.dst[e])] for e in edges], [[int(mdp.act[e])] for e in edges]
    )
    if edges.size:
        log_prob = model.log_prob_prefix(mdp, theta, moves, np.full(edges.size, goal))[:, 0]
        np.testing.assert_allclose(np.exp(log_prob), policy[edges], rtol=1e-9, atol=1e-12)


@settings(max_examples=examples(20), deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(case=feasible_cases, seed=st.integers(0, 1000))
def test_bfgs_agrees_with_newton_from_several_starts(case: Case, seed: int) -> None:
    theta, rng = case.thetas[0], np.random.default_rng(seed)
    mdp = case.mdp.replace(p0=np.full(case.mdp.n_states, 1.0 / case.mdp.n_states))
    assume(radius(mdp, theta) < 0.999)
    starts, goals = all_pairs(mdp)
    apart = starts != goals
    assume(np.any(apart))
    chosen = rng.choice(np.flatnonzero(apart), 8)
    demos = DestinationMaxEnt().sample(mdp, theta, starts[chosen], goals[chosen], seed=rng)
    # The ridge makes the optimum unique and finite; starts outside the domain are skipped.
    initial = [s for s in theta + 0.3 * rng.normal(size=(4, theta.size)) if radius(mdp, s) < 0.999]
    options = {"bounds": (-20.0, 20.0), "ridge": 0.1, "gtol": 1e-6}
    newton = DestinationMaxEnt(solver="newton", **options)
    best = newton._fit(mdp, demos, np.ones((len(demos), 1)), theta[None])[0]
    assume(best.converged)
    for start in initial:
        result = DestinationMaxEnt(**options)._fit(mdp, demos, np.ones((len(demos), 1)), start[None])[0]
        assert result.value <= best.value + 1e-6
