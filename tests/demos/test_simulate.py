"""Simulated demonstrations against the exact distribution of trajectories, and numbers of demonstrations per intent.

Seeds are fixed; a correct sampler would fail a G test with probability 1e-6 at other seeds.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from limiirl.demos import Demonstrations
from limiirl.demos.simulate import simulate
from limiirl.errors import InvalidParameter
from limiirl.mdp import MDP
from limiirl.worlds.base import intent_counts, sample_intents
from tests.helpers import raises

N = 40_000


def branching() -> MDP:
    """Stochastic and certain moves, a self-loop, parallel edges; state 4 terminal; it starts there now and then."""
    src = [0, 0, 0, 0, 0, 1, 1, 2, 2, 2, 3]
    act = [0, 0, 1, 1, 2, 0, 1, 0, 0, 1, 0]
    dst = [1, 2, 1, 3, 1, 2, 4, 0, 2, 2, 4]
    prob = [0.3, 0.7, 0.8, 0.2, 1.0, 1.0, 1.0, 0.4, 0.6, 1.0, 1.0]
    return MDP.from_edges(src, dst, 5, action=act, prob=prob, p0=[0.5, 0.0, 0.3, 0.0, 0.2], terminal=[4])


POLICY = np.array([0.0, 0.6, 0.4, 0.3, 0.7, 1.0, 0.0, 1.0])
"""Of the pairs (0,0), (0,1), (0,2), (1,0), (1,1), (2,0), (2,1), (3,0): the first and another are never chosen."""


def law(mdp: MDP, policy: np.ndarray, max_length: int) -> dict[tuple[tuple[int, ...], tuple[int, ...]], float]:
    """Probability of every (states, actions), by following each edge of positive probability."""
    law: dict[tuple[tuple[int, ...], tuple[int, ...]], float] = {}

    def follow(states: tuple[int, ...], actions: tuple[int, ...], p: float) -> None:
        if mdp.terminal[states[-1]] or len(states) == max_length:
            law[states, actions] = p
            return
        for e in np.flatnonzero(mdp.src == states[-1]):
            mass = p * policy[mdp.pair_of_edge[e]] * mdp.prob[e]
            if mass > 0.0:
                follow((*states, int(mdp.dst[e])), (*actions, int(mdp.act[e])), mass)

    for s in np.flatnonzero(mdp.p0):
        follow((int(s),), (), float(mdp.p0[s]))
    return law


@pytest.mark.parametrize("max_length", [1, 2, 5])
def test_frequencies_match_the_exact_distribution(max_length: int) -> None:
    mdp = branching()
    demos = simulate(mdp, POLICY, N, np.random.default_rng(1), max_length=max_length)
    exact = law(mdp, POLICY, max_length)
    np.testing.assert_allclose(sum(exact.values()), 1.0, rtol=1e-12)
    counts = dict.fromkeys(exact, 0)
    for demo in demos:
        actions = () if demos.actions is None else tuple(demo.actions.tolist())
        counts[tuple(demo.states.tolist()), actions[: len(demo.states) - 1]] += 1  # a KeyError is an impossible path
    observed = np.array(list(counts.values()), dtype=np.float64)
    expected = N * np.array(list(exact.values()))
    assert expected.min() > 10
    statistic = 2.0 * np.sum(observed * np.log(np.maximum(observed, 1e-300) / expected))
    assert stats.chi2.sf(statistic, observed.size - 1) > 1e-6
    assert observed.size == 3 or max_length > 1


def test_trajectories_are_complete_with_actions() -> None:
    mdp = branching()
    demos = simulate(mdp, POLICY, 2000, 3, max_length=9)
    assert len(demos) == 2000
    stopped = mdp.terminal[demos.last_states]
    assert np.all(stopped | (demos.lengths == 9))
    assert stopped.any()
    assert not stopped.all()
    assert demos.actions is not None
    lasts = demos.offsets[1:] - 1
    np.testing.assert_array_equal(np.flatnonzero(demos.actions == -1), lasts)
    assert demos.steps(mdp).ambiguous.size == 0


def test_seed_determines_the_sample_and_a_generator_advances() -> None:
    mdp = branching()
    first = simulate(mdp, POLICY, 50, 7)
    assert first == simulate(mdp, POLICY, 50, np.random.default_rng(7))
    assert first != simulate(mdp, POLICY, 50, 8)
    rng = np.random.default_rng(7)
    assert simulate(mdp, POLICY, 50, rng) == first
    assert simulate(mdp, POLICY, 50, rng) != first


def test_draw_at_the_upper_bound_stays_in_its_interval() -> None:
    """The largest number below 1 that a generator can give must not fall into the next state's edges."""

    class Highest(np.random.Generator):
        def random(self, size: object = None, *args: object, **kwargs: object) -> np.ndarray:  # type: ignore[override]
            return np.full(size, 1.0 - 2.0**-53)  # type: ignore[call-overload]

    mdp = branching().replace(p0=[0.0, 0.1, 0.2, 0.7, 0.0])
    policy = np.array([0.1, 0.2, 0.7, 1.0, 0.0, 0.0, 1.0, 1.0])
    assert simulate(mdp, policy, 2, Highest(np.random.PCG64()), max_length=3) == Demonstrations.from_lists(
        [[3, 4], [3, 4]], actions=[[0], [0]]
    )
    mdp = mdp.replace(p0=[1.0, 0.0, 0.0, 0.0, 0.0])
    assert simulate(mdp, policy, 1, Highest(np.random.PCG64()), max_length=4) == Demonstrations.from_lists(
        [[0, 1, 2, 2]], actions=[[2, 0, 1]]
    )


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"n": 0}, {"parameter": "n", "value": 0}),
        ({"n": 2.0}, {"parameter": "n", "value": 2.0}),
        ({"max_length": 0}, {"parameter": "max_length", "value": 0}),
        ({"policy": POLICY[1:]}, {"parameter": "policy", "value": (7,)}),
        ({"policy": POLICY / 2}, {"parameter": "policy", "value": 0.5, "index": 0}),
        ({"policy": [0.5, 0.7, -0.2, 0.3, 0.7, 1, 0, 1]}, {"parameter": "policy", "value": -0.2, "index": 2}),
        ({"policy": [np.nan, 1, 0, 0.3, 0.7, 1, 0, 1]}, {"parameter": "policy", "index": 0}),
        ({"policy": ["a"] * 8}, {"parameter": "policy"}),
    ],
)
def test_invalid_arguments_are_rejected(change: dict[str, object], expected: dict[str, object]) -> None:
    given = {"policy": POLICY, "n": 3, "seed": 0, "max_length": 5} | change
    with raises(InvalidParameter, **expected):
        simulate(branching(), **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("n", "weights", "least", "expected"),
    [
        (100, [1 / 3, 1 / 3, 1 / 3], 0, [34, 33, 33]),
        (99, [1 / 3, 1 / 3, 1 / 3], 0, [33, 33, 33]),
        (2, [1 / 3, 1 / 3, 1 / 3], 0, [1, 1, 0]),
        (10, [0.5, 0.26, 0.24], 1, [5, 3, 2]),
        (10, [1.0, 0.0, 0.0], 1, [8, 1, 1]),
        (3, [0.9, 0.1, 0.0], 1, [1, 1, 1]),
        (8, [0.48, 0.47, 0.05, 0.0], 1, [3, 3, 1, 1]),
        (5, [1.0], 1, [5]),
    ],
)
def test_intent_counts_are_as_close_as_possible(n: int, weights: list[float], least: int, expected: list[int]) -> None:
    np.testing.assert_array_equal(intent_counts(n, np.array(weights), least=least), expected)


def test_intents_are_in_random_order() -> None:
    mdp = MDP.from_edges([0, 0, 0], [1, 2, 3])
    demos, labels = sample_intents(mdp, np.eye(3), [40, 0, 60], np.random.default_rng(0), 5)
    np.testing.assert_array_equal(np.bincount(labels), [40, 0, 60])
    np.testing.assert_array_equal(demos.last_states - 1, labels)
    np.testing.assert_array_equal(demos.labels, labels)
    assert 30 < np.sum(labels[:60] == 2) < 60
