"""Properties of all worlds and demonstrators (hypothesis)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from limiirl.worlds import ElementWorld, IntentWorld, ObjectWorld, PuddleWorld, SyntheticWorld, boltzmann_policy
from limiirl.worlds.base import intent_counts
from limiirl.worlds.gridworld import grid_edges
from tests.helpers import examples
from tests.oracles.dense_planning import dense_q, value_iteration
from tests.oracles.random_mdps import Case, cases

WIND = st.sampled_from([0.0, 0.1, 0.5, 1.0])
SEED = st.integers(0, 10**6)
ELEMENT = st.builds(
    ElementWorld, n_elements=st.integers(1, 4), wind=WIND, height=st.integers(3, 6), zone_size=st.just(3), seed=SEED
)
PUDDLE = st.builds(PuddleWorld, n_rows=st.integers(3, 8), n_columns=st.integers(3, 8), wind=WIND, seed=SEED)
OBJECT = st.builds(ObjectWorld, size=st.integers(3, 7), n_objects=st.integers(3, 9), wind=WIND, seed=SEED)
SYNTHETIC = st.builds(
    SyntheticWorld,
    n_states=st.integers(21, 40),
    n_actions=st.integers(1, 4),
    branching=st.integers(1, 4),
    horizon=st.integers(1, 5),
    separation=st.floats(0.0, 1.0),
    seed=SEED,
)


@given(case=cases(columns=(1,), discounts=(0.99, 0.9, 0.5)), beta=st.sampled_from([0.0, 0.1, 1.0, 5.0]))
def test_boltzmann_policy_is_the_softmax_of_optimal_action_values(case: Case, beta: float) -> None:
    mdp, theta = case.mdp, case.thetas[0]
    policy = boltzmann_policy(mdp, theta, beta)
    Q = dense_q(mdp, theta, value_iteration(mdp, theta))
    for s in np.flatnonzero(~mdp.terminal):
        own = np.flatnonzero(mdp.pair_state == s)
        q = [float(Q[s, a]) for a in mdp.pair_action[own]]
        # 1 / sum_b exp(beta (Q_b - Q_a)) needs no stabilising: exp may overflow to infinity, and 1 / inf is 0.
        with np.errstate(over="ignore"):
            expected = [1.0 / sum(np.exp(beta * (other - mine)) for other in q) for mine in q]
        np.testing.assert_allclose(policy[own], expected, rtol=1e-6, atol=1e-12)
        np.testing.assert_allclose(policy[own].sum(), 1.0, rtol=1e-12, atol=0.0)


@settings(max_examples=examples(40))
@given(world=st.one_of(ELEMENT, PUDDLE, OBJECT, SYNTHETIC), seed=SEED)
def test_worlds_are_consistent(world: IntentWorld, seed: int) -> None:
    mdp = world.mdp
    sums = np.bincount(mdp.pair_of_edge, weights=mdp.prob)
    np.testing.assert_allclose(sums, 1.0, rtol=0.0, atol=1e-12)
    np.testing.assert_allclose(mdp.p0.sum(), 1.0, rtol=0.0, atol=1e-12)
    assert not np.isin(mdp.src, np.flatnonzero(mdp.terminal)).any()
    assert mdp.terminal.any() != isinstance(world, ObjectWorld)
    assert world.ensemble.n_features == mdp.n_features
    assert -10.0 <= world.ensemble.thetas.min() <= world.ensemble.thetas.max() <= 0.0  # MaxEnt's default bounds
    assert replace(world).mdp == mdp  # type: ignore[type-var]
    demos, labels = world.sample(world.ensemble.n_intents * 2, seed, max_length=15)
    assert np.bincount(labels).tolist() == [2] * world.ensemble.n_intents
    demos.steps(mdp)
    lines = str(world).splitlines()
    assert len(lines) >= 1
    assert all(line.strip() for line in lines)


@given(rows=st.integers(3, 6), columns=st.integers(2, 6), wind=WIND, wraps=st.booleans(), data=st.data())
def test_transitions_of_a_grid_equal_loops(
    rows: int, columns: int, wind: float, wraps: bool, data: st.DataObject
) -> None:
    S = rows * columns
    terminal = np.array(data.draw(st.lists(st.booleans(), min_size=S, max_size=S)))
    T = np.zeros((S, 4, S))
    src, act, dst, prob = grid_edges((rows, columns), wind, terminal, wraps=wraps)
    np.add.at(T, (src, act, dst), prob)
    expected = np.zeros_like(T)
    for s in np.flatnonzero(~terminal):
        r, c = divmod(int(s), columns)
        cells = [(r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1)]
        inside = [0 <= y < columns and (wraps or 0 <= x < rows) for x, y in cells]
        for a in range(4):
            if not inside[a]:
                expected[s, a, s] = 1.0
                continue
            others = [b for b in range(4) if inside[b] and b != a]
            for b in [a, *others]:
                x, y = cells[b]
                expected[s, a, (x % rows) * columns + y] += 1.0 - wind if b == a else wind / len(others)
    np.testing.assert_allclose(T, expected, rtol=0.0, atol=1e-14)


@given(n=st.integers(1, 60), shares=st.lists(st.floats(0.01, 1.0), min_size=1, max_size=6), least=st.integers(0, 1))
def test_intent_counts_are_optimal(n: int, shares: list[float], least: int) -> None:
    weights = np.array(shares) / np.sum(shares)
    assume(n >= least * weights.size)
    counts = intent_counts(n, weights, least=least)
    assert counts.sum() == n
    assert counts.min() >= least
    if least == 0:
        assert np.all(np.abs(counts - n * weights) < 1.0)
