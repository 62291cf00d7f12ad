"""Prefixes, next actions, policies and most likely trajectories on random small MDPs, against enumeration."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from limiirl.demos import Demonstrations
from limiirl.errors import DivergentPartition, InvalidParameter
from limiirl.irl import MaxEnt
from limiirl.mdp import MDP
from tests.helpers import examples, raises
from tests.oracles.enumeration import Enumeration, Path, dense, log_sum
from tests.oracles.random_mdps import Case, cases

SMALL = {"max_length": 5, "most_paths": 200}
STOPS = ("anywhere", "terminal", "terminal_or_max_length")
CONDITIONS = ("none", "start")
# Arithmetic and memory bound; 0 bytes means that messages are recomputed from checkpoints.
OPTIONS = [("linear", 2.0**30), ("linear", 0.0), ("log", 0.0), ("auto", 2.0**30)]
# Every pair of values of stop, condition and options occurs in one of these 12 of the 24 combinations.
COMBINATIONS = [
    (stop, CONDITIONS[(i + j) % 2], options) for i, stop in enumerate(STOPS) for j, options in enumerate(OPTIONS)
]
ACYCLIC = {"acyclic": True, "discounts": (1.0,), "most_paths": 10**6}


class Prefixes:
    """Random prefixes of trajectories, with a random half of the actions unrecorded, and their probabilities.

    `extensions[i]` are the trajectories of `paths` that begin like prefix i.
    """

    def __init__(self, paths: Enumeration, seed: int, most: int = 25) -> None:
        mdp, rng = paths.mdp, np.random.default_rng(seed)
        candidates = [path for path in Enumeration(mdp, paths.max_length).listed if mdp.p0[path[0][0]] > 0]
        chosen = [candidates[i] for i in rng.permutation(len(candidates))[:most]]
        self.paths, self.states = paths, [path[0] for path in chosen]
        self.actions = [np.where(rng.random(len(e)) < 0.5, mdp.act[list(e)], -1).tolist() for _, e in chosen]
        self.demos = Demonstrations.from_lists(self.states, self.actions)
        self.extensions = [
            [i for i, path in enumerate(paths.listed) if self._begins(path, *prefix)]
            for prefix in zip(self.states, self.actions, strict=True)
        ]

    def _begins(self, path: Path, states: tuple[int, ...], actions: list[int]) -> bool:
        recorded = self.paths.mdp.act[list(path[1][: len(actions)])].tolist()
        return path[0][: len(states)] == states and all(b in (-1, a) for a, b in zip(recorded, actions, strict=False))

    def log_prob(self, log_p: np.ndarray) -> list[float]:
        return [log_sum(log_p[rows]) for rows in self.extensions]

    def next(self, log_p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the probability of each action (N, A) and of stopping (N,); both are 0 for impossible prefixes."""
        mdp = self.paths.mdp
        action, stop = np.zeros((len(self.states), mdp.n_actions)), np.zeros(len(self.states))
        for i, rows in enumerate(self.extensions):
            total, n = log_sum(log_p[rows]), len(self.states[i])
            for row in rows:
                edges, p = self.paths.listed[row][1], math.exp(log_p[row] - total)
                if len(edges) < n:
                    stop[i] += p
                else:
                    action[i, mdp.act[edges[n - 1]]] += p
        return action, stop


def log_probs(paths: Enumeration, theta: np.ndarray, condition: str) -> np.ndarray:
    """Return log p of every trajectory, or log p given its start; -inf if p0 is 0."""
    law, weight = paths.law(theta), paths.log_P + paths.F @ theta
    if condition == "start":
        return weight - law.log_Z_by_start[paths.first]
    with np.errstate(divide="ignore"):
        return np.log(paths.mdp.p0)[paths.first] + weight - law.log_Z


def check_prefixes(model: MaxEnt, paths: Enumeration, thetas: np.ndarray, seed: int) -> None:
    mdp, prefixes = paths.mdp, Prefixes(paths, seed)
    log_prob, following = (f(mdp, thetas, prefixes.demos) for f in (model.log_prob_prefix, model.next_actions))
    assert not np.isnan(log_prob).any()
    for k, theta in enumerate(thetas):
        log_p = log_probs(paths, theta, model.condition)
        oracle, (action, stop) = prefixes.log_prob(log_p), prefixes.next(log_p)
        np.testing.assert_allclose(log_prob[:, k], oracle, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(following.action[:, k], action, rtol=0.0, atol=1e-10)
        np.testing.assert_allclose(following.stop[:, k], stop, rtol=0.0, atol=1e-10)
    total = following.action.sum(axis=2) + following.stop
    np.testing.assert_allclose(total, np.where(log_prob > -np.inf, 1.0, 0.0), rtol=0.0, atol=1e-12)


def check_policy(
    model: MaxEnt, mdp: MDP, theta: np.ndarray, step: int, paths: Enumeration, reached: np.ndarray
) -> None:
    """Compare the policy at `step` with enumeration; `paths` are the trajectories of the remaining length."""
    oracle = np.zeros((mdp.n_states, mdp.n_actions))
    weight = paths.log_P + mdp.gamma**step * (paths.F @ theta)
    continues = np.array([len(edges) > 0 for _, edges in paths.listed], dtype=bool)
    for s in np.flatnonzero(reached):
        rows = np.flatnonzero(continues & (paths.first == s))
        for row in rows:
            oracle[s, mdp.act[paths.listed[row][1][0]]] += math.exp(weight[row] - log_sum(weight[rows]))
    np.testing.assert_allclose(model.policy(mdp, theta, step), oracle, rtol=0.0, atol=1e-10)


def check_most_likely(model: MaxEnt, paths: Enumeration, theta: np.ndarray, log_p: np.ndarray) -> None:
    """Compare probabilities, because several trajectories can be equally probable."""
    mdp, last = paths.mdp, np.array([states[-1] for states, _ in paths.listed])
    for start in range(mdp.n_states):
        for goal in range(mdp.n_states):
            rows = np.flatnonzero((paths.first == start) & (last == goal)) if len(last) else []
            if len(rows) == 0 or (model.condition == "none" and mdp.p0[start] == 0):
                with pytest.raises(InvalidParameter) as caught:
                    model.most_likely(mdp, theta, start, goal)
                assert caught.value.parameter in ("start", "goal", "stop")
                continue
            demos, log_prob = model.most_likely(mdp, theta, start, goal)
            np.testing.assert_allclose(log_prob, log_p[rows].max(), rtol=1e-10, atol=1e-10)
            edges = demos.replace().steps(mdp.replace(p0=np.full(mdp.n_states, 1.0 / mdp.n_states))).edge
            assert (edges >= 0).all()
            assert demos.states[0] == start
            assert demos.states[-1] == goal
            row = paths.index[(tuple(demos.states.tolist()), tuple(edges.tolist()))]
            np.testing.assert_allclose(log_p[row], log_prob, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("stop", "condition", "options"), COMBINATIONS)
@settings(max_examples=examples(25))
@given(case=cases(**SMALL), seed=st.integers(0, 2**20))
def test_prefixes_and_next_actions(
    stop: str, condition: str, options: tuple[str, float], case: Case, seed: int
) -> None:
    paths = Enumeration(case.mdp, case.max_length, stop)
    model = MaxEnt(case.max_length, stop=stop, condition=condition, arithmetic=options[0], max_memory=options[1])
    if condition == "none" and not (case.mdp.p0[paths.first] > 0).any():
        with raises(InvalidParameter, parameter="stop", value=stop):
            model.log_prob_prefix(case.mdp, case.thetas, Prefixes(paths, seed).demos)
        return
    check_prefixes(model, paths, case.thetas, seed)


@pytest.mark.parametrize(("stop", "condition", "options"), COMBINATIONS)
@settings(max_examples=examples(25))
@given(case=cases(columns=(1,), **SMALL), seed=st.integers(0, 2**20))
def test_policies(stop: str, condition: str, options: tuple[str, float], case: Case, seed: int) -> None:
    mdp, step = case.mdp, seed % case.max_length
    model = MaxEnt(case.max_length, stop=stop, condition=condition, arithmetic=options[0], max_memory=options[1])
    assume(condition == "start" or (mdp.p0[Enumeration(mdp, case.max_length, stop).first] > 0).any())
    remaining = Enumeration(mdp, case.max_length - step, stop)
    check_policy(model, mdp, case.thetas[0], step, remaining, np.ones(mdp.n_states, dtype=bool))


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("stop", STOPS)
@settings(max_examples=examples(25))
@given(case=cases(columns=(1,), **SMALL))
def test_most_likely_trajectories(stop: str, condition: str, case: Case) -> None:
    theta, paths = case.thetas[0], Enumeration(case.mdp, case.max_length, stop)
    assume(condition == "start" or (case.mdp.p0[paths.first] > 0).any())
    model = MaxEnt(case.max_length, stop=stop, condition=condition)
    check_most_likely(model, paths, theta, log_probs(paths, theta, condition))


@settings(max_examples=examples(25))
@given(case=cases(columns=(1,), max_length=12, max_states=2, max_actions=2, most_paths=2000))
def test_most_likely_trajectories_with_costs_only(case: Case) -> None:
    """With rewards of at most zero the search ends early; these lengths have several segments."""
    size = 1.0 / 8.0
    phi = size * np.arange(case.mdp.n_states)[:, None]
    mdp = case.mdp.replace(state_features=phi, action_features=None, edge_features=None)
    theta, paths = np.array([-1.0]), Enumeration(mdp, case.max_length)
    check_most_likely(MaxEnt(case.max_length, condition="start"), paths, theta, log_probs(paths, theta, "start"))


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("stop", ["anywhere", "terminal"])
@settings(max_examples=examples(25))
@given(case=cases(**ACYCLIC), seed=st.integers(0, 2**20))
def test_unbounded_length_without_cycles(stop: str, condition: str, case: Case, seed: int) -> None:
    mdp, theta = case.mdp, case.thetas[0]
    paths = Enumeration(mdp, mdp.n_states, stop)
    assume((mdp.p0[paths.first] > 0).any())
    model = MaxEnt(math.inf, stop=stop, condition=condition)
    check_prefixes(model, paths, case.thetas, seed)
    check_most_likely(model, paths, theta, log_probs(paths, theta, condition))
    every = Enumeration(mdp, mdp.n_states)
    reached = np.isin(np.arange(mdp.n_states), every.states[mdp.p0[every.first] > 0])
    for step in (0, 7):
        check_policy(model, mdp, theta, step, Enumeration(mdp, mdp.n_states + 1, stop), reached)


def with_cost(mdp: MDP, theta: np.ndarray) -> tuple[MDP, np.ndarray]:
    """Add a cost per visit such that the weights of the edges of a state sum to at most 3 exp(-3) = 0.15."""
    r_state, r_edge = mdp.rewards(theta)
    cost = 3.0 + max(0.0, r_state.max()) + (0.0 if r_edge is None else max(0.0, r_edge.max(initial=0.0)))
    phi = dense(mdp.state_features, mdp.n_states)
    wider = mdp.replace(state_features=np.hstack([phi, np.ones((mdp.n_states, 1))]))
    return wider, np.insert(theta, phi.shape[1], -cost)


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("stop", ["anywhere", "terminal"])
@settings(max_examples=examples(25))
@given(case=cases(columns=(1,), discounts=(1.0,), max_length=4, most_paths=100), seed=st.integers(0, 2**20))
def test_unbounded_length_is_the_limit_of_finite_lengths(stop: str, condition: str, case: Case, seed: int) -> None:
    """The MDP has cycles; trajectories of more than 60 states have a total weight below 1e-40."""
    mdp, theta = with_cost(case.mdp, case.thetas[0])
    paths = Enumeration(mdp, mdp.n_states, stop) if stop == "terminal" else Enumeration(mdp, 1)
    assume(condition == "start" or (mdp.p0[paths.first] > 0).any())
    infinite = MaxEnt(math.inf, stop=stop, condition=condition)
    finite = MaxEnt(60, stop=stop, condition=condition, arithmetic="log", max_memory=0.0)
    demos = Prefixes(Enumeration(mdp, case.max_length), seed).demos
    log_prob, limit = (model.log_prob_prefix(mdp, theta, demos) for model in (infinite, finite))
    np.testing.assert_allclose(log_prob, limit, rtol=1e-10, atol=1e-10)
    following = (model.next_actions(mdp, theta, demos) for model in (infinite, finite))
    for mine, theirs in zip(*following, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0.0, atol=1e-10)


@settings(max_examples=examples(40))
@given(case=cases(columns=(1,), discounts=(1.0,), **SMALL))
def test_most_likely_trajectories_of_finite_sums_have_no_cycles(case: Case) -> None:
    """Unbounded length and a length of S states then have the same largest weight."""
    mdp, theta = case.mdp.replace(p0=np.full(case.mdp.n_states, 1.0 / case.mdp.n_states)), case.thetas[0]
    infinite, finite = MaxEnt(math.inf), MaxEnt(mdp.n_states)
    try:
        log_Z = infinite.log_partition(mdp, theta)[0]
    except DivergentPartition:
        assume(False)
    paths = Enumeration(mdp, mdp.n_states)
    for start, goal in {(states[0], states[-1]) for states, _ in paths.listed}:
        demos, log_prob = infinite.most_likely(mdp, theta, start, goal)
        other = finite.most_likely(mdp, theta, start, goal)[1] + finite.log_partition(mdp, theta)[0]
        np.testing.assert_allclose(log_prob + log_Z, other, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(infinite.log_prob(mdp, theta, demos)[0, 0], log_prob, rtol=1e-10, atol=1e-10)
