"""Causal models given rewards: most likely trajectories, null directions, linear solvers and mixtures."""

from __future__ import annotations

import itertools
from typing import ClassVar

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from limiirl.demos import Agents, Demonstrations, Groups
from limiirl.errors import IdentifiabilityWarning, InvalidParameter
from limiirl.irl.causal import model as causal_model
from limiirl.irl.causal import problem as causal_problem
from limiirl.irl.causal import state_actions, stationary
from limiirl.irl.causal.finite_horizon import FiniteHorizonSolver
from limiirl.irl.causal.maxcausalent import MaxCausalEnt
from limiirl.irl.causal.mlirl import MLIRL
from limiirl.irl.causal.state_actions import StateActions
from limiirl.irl.optim import Box, minimise_lbfgs
from limiirl.mdp import MDP
from limiirl.mixture import IntentMixture
from tests.helpers import raises

STATIONARY = {"soft": MaxCausalEnt(1.3), "hard": MLIRL(1.3), "bv": MLIRL(1.3, "bv", n_backups=400)}
HORIZONS = {
    "anywhere": MaxCausalEnt(1.3, max_length=5),
    "at the end": MaxCausalEnt(1.3, max_length=5, stop="terminal_or_max_length"),
}
MODELS = STATIONARY | HORIZONS


def random_mdp(seed: int, extra: np.ndarray | None = None, terminal: bool = True) -> MDP:
    """Return a five-state MDP with state and action features; `extra` adds state features."""
    rng = np.random.default_rng(seed)
    n = 5
    T = np.zeros((n, 2, n))
    for s, a in itertools.product(range(n - terminal), range(2)):
        T[s, a, rng.choice(n, 2, replace=False)] = rng.dirichlet([1.0, 1.0])
    if terminal:
        T[:2, :, n - 1] += 0.3
    T /= np.maximum(T.sum(axis=2, keepdims=True), 1e-300)
    states = rng.normal(size=(n, 2))
    return MDP.from_dense(
        T,
        np.full(n, 1.0 / n),
        gamma=0.8,
        state_features=states if extra is None else np.hstack([states, extra]),
        action_features=rng.normal(size=(n, 2, 1)),
    )


def all_trajectories(mdp: MDP, longest: int) -> Demonstrations:
    """Return every trajectory of at most `longest` states, from all start states."""
    paths = [([s], []) for s in range(mdp.n_states)]
    result = list(paths)
    for _ in range(longest - 1):
        paths = [
            ([*states, int(mdp.dst[e])], [*actions, int(mdp.act[e])])
            for states, actions in paths
            for e in range(mdp.out_ptr[states[-1]], mdp.out_ptr[states[-1] + 1])
        ]
        result += paths
    return Demonstrations.from_lists([states for states, _ in result], [actions for _, actions in result])


@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.parametrize("seed", range(3))
def test_most_likely_trajectory_against_enumeration(name: str, seed: int) -> None:
    mdp, model = random_mdp(seed), MODELS[name]
    theta = np.random.default_rng(seed).normal(size=mdp.n_features)
    demos = all_trajectories(mdp, 5)
    ends = mdp.terminal[demos.last_states] | (demos.lengths == 5)
    if name == "at the end":
        demos = demos[np.flatnonzero(ends)]
    log_p = model.log_prob(mdp, theta, demos)[:, 0]
    for start, goal in itertools.product(range(mdp.n_states), repeat=2):
        between = (demos.start_states == start) & (demos.last_states == goal)
        if not np.any(between):
            with raises(InvalidParameter, parameter="goal", value=goal):
                model.most_likely(mdp, theta, start, goal)
            continue
        result, log_prob = model.most_likely(mdp, theta, start, goal)
        assert (result.start_states[0], result.last_states[0]) == (start, goal)
        np.testing.assert_allclose(log_prob, model.log_prob(mdp, theta, result)[0, 0], rtol=1e-10)
        # Without a horizon there are longer trajectories than those enumerated, but none is the most likely.
        np.testing.assert_allclose(log_prob, log_p[between].max(), rtol=1e-10)


def test_most_likely_trajectory_that_does_not_exist() -> None:
    mdp = MDP.from_edges([0, 1, 2], [1, 0, 0], p0=[0.5, 0.5, 0.0], gamma=0.9)
    theta = np.zeros(3)
    for model in (MaxCausalEnt(), MLIRL(), MaxCausalEnt(max_length=3)):
        with raises(InvalidParameter, parameter="start", value=2):
            model.most_likely(mdp, theta, 2, 0)
        with pytest.raises(InvalidParameter, match="^goal must.* 3"):
            model.most_likely(mdp, theta, 0, 3)
        with raises(InvalidParameter, parameter="goal", value=2):
            model.most_likely(mdp, theta, 0, 2)
    exact = MaxCausalEnt(max_length=4, stop="terminal_or_max_length")
    with raises(InvalidParameter, parameter="goal", value=0):
        exact.most_likely(mdp, theta, 0, 0)
    assert exact.most_likely(mdp, theta, 0, 1)[0].states.tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.parametrize("terminal", [False, True])
def test_null_directions_change_no_policy_and_others_do(name: str, terminal: bool) -> None:
    """The added features are constant, the sum of two others, and zero."""
    plain = random_mdp(3, terminal=terminal)
    twice = plain.state_features[:, :1] + plain.state_features[:, 1:2]
    mdp = random_mdp(3, np.hstack([np.ones((5, 1)), twice, np.zeros((5, 1))]), terminal=terminal)
    model, rng = MODELS[name], np.random.default_rng(0)
    theta = rng.normal(size=mdp.n_features)
    result = model.null_directions(mdp, theta)
    np.testing.assert_allclose(result @ result.T, np.eye(len(result)), atol=1e-12)
    # The constant feature is unidentified only if all trajectories have the same length.
    assert len(result) == 2 + (not terminal and name != "anywhere")

    def policies(at: np.ndarray) -> np.ndarray:
        if name in HORIZONS:
            logs = FiniteHorizonSolver(StateActions(mdp), 1.3, 5, stop=name == "anywhere").log_policies(at)
            return np.exp([np.append(*logs(step)) for step in range(4)])
        return model.policy(mdp, at)

    before = policies(theta)
    for direction in result:
        np.testing.assert_allclose(policies(theta + 0.7 * direction), before, atol=1e-9)
    others = np.linalg.svd(result)[2][len(result) :]
    rises = np.array([(policies(theta + 1e-4 * other) - before).ravel() for other in others]) / 1e-4
    assert np.linalg.svd(rises, compute_uv=False).min() > 1e-3


def test_null_directions_agree_with_a_dense_solution(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare one sparse factorisation for all features with dense solutions on a ring with shortcuts."""
    rng, n = np.random.default_rng(0), 300
    phi = rng.normal(size=(n, 3))
    phi = np.hstack([phi, np.ones((n, 1)), phi[:, :1] - phi[:, 1:2]])
    mdp = MDP.from_edges(
        np.r_[:n, :n], np.r_[np.arange(1, n + 1) % n, (np.arange(n) + 7) % n], gamma=0.97, state_features=phi
    )
    result = MLIRL().null_directions(mdp, np.zeros(5))
    monkeypatch.setattr(stationary, "DENSE", 1000)
    expected = MLIRL().null_directions(mdp, np.zeros(5))
    assert len(result) == len(expected) == 2
    np.testing.assert_allclose(result.T @ result, expected.T @ expected, rtol=0, atol=1e-9)


def test_null_directions_are_skipped_for_large_problems(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    mdp = random_mdp(1, np.ones((5, 1)), terminal=False)  # ten state-action pairs, four features
    for largest, number in ((40, 1), (39, 0)):
        monkeypatch.setattr(causal_model, "LARGEST", largest)
        assert MLIRL().null_directions(mdp, np.zeros(4)).shape == (number, 4)
        assert ("10 state-action pairs times 4 features" in caplog.text) == (number == 0)


def test_states_beyond_the_horizon_are_ignored() -> None:
    """In a chain from state 0, the feature of the last state has an effect only if the horizon reaches it."""
    mdp = MDP.from_edges(
        [0, 0, 1, 1, 2, 2],
        [1, 4, 2, 4, 3, 4],
        n_states=5,
        p0=[1, 0, 0, 0, 0],
        gamma=1.0,
        state_features=np.eye(5)[:, 3:],
    )
    for stop in ("anywhere", "terminal_or_max_length"):
        counts = [
            len(MaxCausalEnt(max_length=horizon, stop=stop).null_directions(mdp, [0.0, 0.0]))
            for horizon in (1, 2, 3, 4)
        ]
        # With exactly four states one terminal state is always reached; otherwise trajectories may stop earlier.
        assert counts == [2, 1, 1, stop != "anywhere"]
    cut = mdp.replace(p0=np.array([0.0, 0.0, 0.0, 1.0, 0.0]))
    assert len(MLIRL().null_directions(cut, [0.0, 0.0])) == 2


def test_fit_warns_about_null_directions() -> None:
    phi = [[0, 0], [1, 0], [0, 1], [0, 0]]
    mdp = MDP.from_edges([0, 0, 1, 2], [1, 2, 3, 3], p0=[1, 0, 0, 0], state_features=phi)
    demos = Demonstrations.from_lists([[0, 1, 3], [0, 1, 3], [0, 1, 3], [0, 2, 3]])
    for model in (MaxCausalEnt(), MLIRL(), MLIRL(q="bv")):
        with pytest.warns(IdentifiabilityWarning, match="1 of 2 directions"):
            model.fit(mdp, demos)
        np.testing.assert_allclose(np.abs(model.result_.null_directions), np.sqrt(0.5), rtol=1e-12)
    MaxCausalEnt(max_length=3).fit(mdp, demos)  # the option to stop identifies both features: no warning


@pytest.mark.parametrize("name", list(MODELS))
def test_methods_of_mixtures(name: str) -> None:
    ones = np.ones((5, 1))
    mdp, model = random_mdp(1, ones, terminal=False), MODELS[name]
    draw = MODELS[name].sample
    thetas = np.array([[2.0, 0.0, 0.0, 0.0], [-2.0, 1.0, 0.0, 1.0]])
    demos = Demonstrations.concat([draw(mdp, theta, 40, seed=k, max_length=5) for k, theta in enumerate(thetas)])
    mix = IntentMixture(2, model, init=np.repeat([0, 1], 40), resp_tol=1e-4).fit(mdp, demos)
    summary = mix.summary()
    identified = summary.status != "not identified"
    assert np.all(identified == (np.array([True, True, name == "anywhere", True])))
    assert np.all(np.isfinite(summary.errors[summary.status == "ok"]))
    assert "demonstrations" in str(summary)
    assert mix.policy(0).shape == (5, 2)
    drawn, labels = mix.sample(7, seed=0)
    assert len(drawn) == labels.size == 7
    prefixes = Demonstrations.from_lists([[int(mdp.src[0]), int(mdp.dst[0])]], [[int(mdp.act[0])]])
    np.testing.assert_allclose(mix.predict_proba(prefixes, partial=True).sum(), 1.0, rtol=1e-12)
    following = mix.next_actions(prefixes)
    np.testing.assert_allclose(following.action.sum(axis=1) + following.stop, 1.0, rtol=1e-12)
    best = mix.most_likely(0, int(mdp.dst[0]))
    each = [np.log(mix.weights_[k]) + model.log_prob(mdp, mix.thetas_[k], best.demos)[0, 0] for k in range(2)]
    np.testing.assert_allclose(best.log_prob, each[best.intent], rtol=1e-10)
    assert mix.bic(demos) > 0.0


def test_policies_of_all_steps_equal_policies_of_each_step() -> None:
    mdp = random_mdp(4)
    theta = np.random.default_rng(1).normal(size=mdp.n_features)
    for stop in (True, False):
        solver = FiniteHorizonSolver(StateActions(mdp), 1.3, 6, stop=stop)
        together, logs = solver.policies(theta), solver.log_policies(theta)
        for step in range(7):
            pi, stops = together(step)
            np.testing.assert_array_equal(pi, solver.policy(theta, step)[0])
            np.testing.assert_array_equal(stops, solver.policy(theta, step)[1])
            log_pi, log_stop = logs(step)
            np.testing.assert_allclose(np.exp(log_pi), pi * (1.0 - stops[mdp.pair_state]), atol=1e-12)
            np.testing.assert_allclose(np.exp(log_stop), stops, atol=1e-12)


def test_bandwidth_of_a_narrow_and_a_random_graph() -> None:
    """Compare a randomly numbered path of 400 states with a random graph."""
    rng = np.random.default_rng(0)
    numbering = rng.permutation(400)
    street = MDP.from_edges(numbering[np.r_[:399, 1:400]], numbering[np.r_[1:400, :399]], gamma=0.9)
    random = MDP.from_edges(np.repeat(np.arange(400), 3), rng.integers(400, size=1200), gamma=0.9)
    narrow = state_actions.NARROW * np.sqrt(400)
    assert StateActions(street).bandwidth < narrow < StateActions(random).bandwidth
    assert StateActions(street).bandwidth <= 2


@pytest.mark.parametrize("model", [MaxCausalEnt(), MLIRL()], ids=["soft", "hard"])
def test_linear_solvers_agree(model, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    n = 300  # more states than the dense solver handles
    mdp = MDP.from_edges(
        np.r_[:n, :n],
        np.r_[np.arange(1, n + 1) % n, (np.arange(n) + 7) % n],
        gamma=0.97,
        state_features=rng.normal(size=(n, 3)),
    )
    demos = model.sample(mdp, np.array([0.5, -0.5, 0.1]), 30, seed=0, max_length=20)
    thetas = rng.normal(size=(3, 3))
    problem = model.make_problem(mdp, demos, Groups.from_labels(None, 30))
    weights = rng.random((problem.decisions.candidates.pair.size, 3))

    def answer() -> np.ndarray:
        result = problem.solver.solve(thetas, problem.decisions.candidates)
        return np.vstack([result.log_prob, result.gradient(weights).T])

    direct = answer()
    monkeypatch.setattr(stationary, "_FEW_FACTORS", 0)  # Newton steps with the factors of earlier steps
    np.testing.assert_allclose(answer(), direct, rtol=1e-9, atol=1e-9)
    monkeypatch.setattr(stationary, "CORRECTIONS", 0)  # separate factors for every system
    np.testing.assert_allclose(answer(), direct, rtol=1e-9, atol=1e-9)
    monkeypatch.setattr(state_actions, "NARROW", 0.0)
    np.testing.assert_allclose(answer(), direct, rtol=1e-9, atol=1e-9)
    monkeypatch.setattr(stationary, "DENSE", 1000)
    np.testing.assert_allclose(answer(), direct, rtol=1e-9, atol=1e-9)


def test_factors_are_reused_or_replaced() -> None:
    rng = np.random.default_rng(3)
    n = 300
    mdp = MDP.from_edges(np.r_[:n, :n], np.r_[np.arange(1, n + 1) % n, (np.arange(n) + 7) % n], gamma=0.97)
    pairs, right = StateActions(mdp), rng.normal(size=(n, 1))
    near = np.full((2 * n, 1), 0.5)
    far = np.tile([[1.0], [0.0]], (n, 1))
    factors = stationary.FactorCache(np.arange(1))
    for transposed in (False, True):
        stationary.solve(pairs, near, right, factors=factors)
        before = factors.by_column[0].value.copy()
        for omega in (near * 1.001, far):
            result = stationary.solve(pairs, omega, right, transposed=transposed, factors=factors)
            alone = stationary.solve(pairs, omega, right, transposed=transposed)
            np.testing.assert_allclose(result, alone, rtol=1e-9, atol=1e-9)
            assert np.array_equal(factors.by_column[0].value, before) == (omega is not far)


@pytest.mark.parametrize("narrow", [np.inf, 0.0], ids=["elimination", "BiCGSTAB"])
def test_one_policy_for_several_right_hand_sides(narrow: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_actions, "NARROW", narrow)
    rng, n = np.random.default_rng(4), 300
    mdp = MDP.from_edges(np.r_[:n, :n], np.r_[np.arange(1, n + 1) % n, (np.arange(n) + 7) % n], gamma=0.97)
    pairs, right, omega = StateActions(mdp), rng.normal(size=(n, 3)), rng.random((2 * n, 1))
    omega /= np.repeat(np.bincount(mdp.pair_state, omega[:, 0]), 2)[:, None]
    dense = np.eye(n)
    np.add.at(dense, (mdp.src, mdp.dst), -0.97 * omega[mdp.pair_of_edge, 0])
    np.testing.assert_allclose(stationary.solve(pairs, omega, right), np.linalg.solve(dense, right), rtol=1e-9)


def test_newton_search_finds_the_reward_of_lbfgs(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, n = np.random.default_rng(5), 300
    phi = rng.normal(size=(n, 3))
    steps = np.r_[np.arange(1, n + 1) % n, (np.arange(n) + 7) % n]
    mdp = MDP.from_edges(np.r_[:n, :n], steps, gamma=0.95, state_features=phi)
    model = MaxCausalEnt(gtol=1e-8)
    demos = model.sample(mdp, [0.5, -0.3, 0.1], 50, seed=0, max_length=30)
    newton = model.fit(mdp, demos)
    assert model.result_.n_hessians > 0
    monkeypatch.setattr(stationary, "_SMALL_HESSIAN", 0)
    np.testing.assert_allclose(model.fit(mdp, demos), newton, rtol=0, atol=1e-6)
    assert model.result_.n_hessians == 0


def test_m_step_of_newton_reduces_the_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """An M-step ends before convergence, and a fit does not."""
    rng, n = np.random.default_rng(6), 300
    steps = np.r_[np.arange(1, n + 1) % n, (np.arange(n) + 7) % n]
    mdp = MDP.from_edges(np.r_[:n, :n], steps, gamma=0.95, state_features=rng.normal(size=(n, 3)))
    model = MaxCausalEnt()
    demos = model.sample(mdp, [0.5, -0.3, 0.1], 50, seed=0, max_length=30)
    problem = model.make_problem(mdp, demos, Groups.from_labels(None, 50))
    U, start = np.ones((50, 1)), np.zeros((1, 3))
    objective = problem.objective(U)
    sizes = []
    for reduction in (0.1, 0.0):
        monkeypatch.setattr(causal_problem, "_REDUCTION", reduction)
        thetas = problem.m_step(problem.moments(U), start, np.arange(1)).thetas
        ratio = objective.evaluate(thetas, np.arange(1))[1] / np.abs(objective.evaluate(start, np.arange(1))[1]).max()
        sizes.append(float(np.abs(ratio).max()))
    assert sizes[1] < 1e-5 < sizes[0] < 0.11


def test_lbfgs_limits_blas_to_one_thread() -> None:
    class Square:
        threads: ClassVar[set[int]] = set()

        def evaluate(self, thetas: np.ndarray, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            self.threads |= {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}
            return np.sum((thetas - 1.0) ** 2, axis=1), 2.0 * (thetas - 1.0)

    box = Box(np.full(2, -9.0), np.full(2, 9.0))
    with threadpool_limits(2, "blas"):
        minimise_lbfgs(Square(), np.zeros((1, 2)), box, 1e-6, 100)
        assert {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"} == {2}
    assert Square.threads == {1}


def test_noun_of_groups() -> None:
    agents = Agents.from_arrays([np.zeros((2, 3, 1))] * 2, [np.zeros((2, 3, 1))] * 2, [np.zeros((2, 3, 1))] * 2)
    units = Groups.for_demos(None, agents)
    assert units.noun == "agents"
    assert units.name(1) == "agent 1"
    assert Groups.for_demos(["a", "a"], agents).name(0) == "group 'a'"
    assert Groups.for_demos(None, Demonstrations.from_lists([[0]])).noun == "demonstrations"
