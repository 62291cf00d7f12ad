"""Samples against the enumerated distribution and the expected features.

Seeds are fixed. With other seeds a correct sampler would fail each test with probability `FALSE_ALARM`; for the G test
this is approximate (chi-square limit, at least ten expected per cell).
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from limiirl.demos import Demonstrations
from limiirl.irl.maxent.infinite_horizon import InfinitePathSums
from limiirl.irl.maxent.path_sums import FinitePathSums
from limiirl.mdp import MDP, expected_features
from tests.oracles.enumeration import Enumeration, Law

FALSE_ALARM = 1e-6
N = 40_000


def five_state_mdp(features: str, gamma: float = 0.9) -> MDP:
    """Return an MDP with stochastic and deterministic actions, a self-loop, and parallel edges of unequal probability.

    With state features only, the path sums merge parallel edges; with edge features they do not.
    """
    src = [0, 0, 0, 0, 0, 1, 1, 2, 2, 2, 3]
    act = [0, 0, 1, 1, 2, 0, 1, 0, 0, 1, 0]
    dst = [1, 2, 1, 3, 1, 2, 4, 0, 2, 2, 4]
    prob = [0.3, 0.7, 0.8, 0.2, 1.0, 1.0, 1.0, 0.4, 0.6, 1.0, 1.0]
    rng = np.random.default_rng(8)
    options = {
        "state": {"state_features": rng.normal(size=(5, 2))},
        "edge": {"edge_features": rng.normal(size=(11, 2))},
        "all": {
            "state_features": rng.normal(size=(5, 2)),
            "action_features": rng.normal(size=(5, 3, 1)),
            "edge_features": rng.normal(size=(11, 1)),
        },
    }
    p0 = [0.5, 0.2, 0.3, 0.0, 0.0]
    return MDP.from_edges(src, dst, 5, action=act, prob=prob, p0=p0, gamma=gamma, terminal=[4], **options[features])


def frequencies(demos: Demonstrations, paths: Enumeration) -> np.ndarray:
    """Count how often each enumerated trajectory was drawn; raise KeyError for any other trajectory."""
    steps = demos.steps(paths.mdp)
    assert steps.ambiguous.size == 0, "an action is missing"
    states, edges = demos.states.tolist(), steps.edge.tolist()
    counts = np.zeros(len(paths.listed))
    for i in range(len(demos)):
        path = tuple(states[demos.offsets[i] : demos.offsets[i + 1]])
        counts[paths.index[path, tuple(edges[steps.step_ptr[i] : steps.step_ptr[i + 1]])]] += 1
    return counts


def check_frequencies(demos: Demonstrations, law: Law) -> None:
    counts = frequencies(demos, law.paths)
    assert not np.any(counts[law.p == 0.0]), "a trajectory of probability zero was drawn"
    expected = law.p * len(demos)
    rare = expected < 10.0
    observed, expected = (np.append(x[~rare], x[rare].sum()) for x in (counts, expected))
    assert expected.size > 5, "too few cells for a test"
    if expected[-1] < 10.0:  # the pooled cell is still rare: merge it with the last cell
        observed, expected = (np.append(x[:-2], x[-2:].sum()) for x in (observed, expected))
    drawn = observed > 0
    statistic = 2.0 * float(np.sum(observed[drawn] * np.log(observed[drawn] / expected[drawn])))
    assert statistic <= stats.chi2.isf(FALSE_ALARM, expected.size - 1)


def check_features(demos: Demonstrations, mdp: MDP, mean: np.ndarray, covariance: np.ndarray) -> None:
    """Check that all mean features lie within a joint confidence region of level 1 - FALSE_ALARM."""
    standard_error = np.sqrt(np.maximum(np.diag(covariance), 0.0) / len(demos))
    distance = np.abs(demos.features(mdp).mean(axis=0) - mean)
    assert np.all(distance <= stats.norm.isf(FALSE_ALARM / (2 * mean.size)) * standard_error + 1e-12)


@pytest.mark.parametrize("features", ["state", "edge", "all"])
@pytest.mark.parametrize("arithmetic", ["linear", "log"])
@pytest.mark.parametrize("stop", ["anywhere", "terminal", "terminal_or_max_length"])
@pytest.mark.parametrize("by_start", [False, True])
def test_finite_samples(by_start: bool, stop: str, arithmetic: str, features: str) -> None:
    mdp = five_state_mdp(features)
    theta = 0.7 * np.random.default_rng(4).normal(size=mdp.n_features)
    law = Enumeration(mdp, 6, stop).law(theta, by_start=by_start)
    path_sums = FinitePathSums(mdp, 6, stop=stop, by_start=by_start, arithmetic=arithmetic, max_bytes=0.0)
    demos = path_sums.sample(theta, N, np.random.default_rng(11))
    assert len(demos) == N
    check_frequencies(demos, law)
    counts = path_sums.expected_counts(theta[None])
    mean = expected_features(mdp, counts.node, counts.edge)[0]
    covariance = law.second_moment() - np.outer(law.mean(), law.mean())
    check_features(demos, mdp, mean, covariance)


@pytest.mark.parametrize("features", ["state", "all"])
@pytest.mark.parametrize("stop", ["anywhere", "terminal"])
@pytest.mark.parametrize("by_start", [False, True])
def test_infinite_samples(by_start: bool, stop: str, features: str) -> None:
    """Steps are so costly that almost all trajectories have at most nine states, the enumerated length."""
    mdp = five_state_mdp(features, gamma=1.0)
    mdp = mdp.replace(state_features=np.column_stack([np.asarray(mdp.state_features), np.ones(5)]))
    theta = 0.3 * np.random.default_rng(4).normal(size=mdp.n_features)
    theta[2] = -2.2
    path_sums = InfinitePathSums(mdp, stop=stop, by_start=by_start)
    demos = path_sums.sample(theta, N, np.random.default_rng(12))
    law = Enumeration(mdp, 9, stop).law(theta, by_start=by_start)
    listed = demos[demos.lengths <= 9]
    assert len(listed) >= N * (1.0 - 1e-3)
    check_frequencies(listed, law)
    counts = path_sums.expected_counts(theta[None])
    mean = expected_features(mdp, counts.node, counts.edge)[0]
    covariance = law.second_moment() - np.outer(law.mean(), law.mean())
    check_features(demos, mdp, mean, 1.05 * covariance)


@pytest.mark.parametrize("arithmetic", ["linear", "log"])
def test_long_samples_have_the_expected_features(arithmetic: str) -> None:
    """At length 200 messages are rescaled, and there are too many trajectories to enumerate."""
    mdp = five_state_mdp("all", gamma=0.99).replace(terminal=np.zeros(5, bool), **_ring_back())
    theta = 0.5 * np.random.default_rng(4).normal(size=mdp.n_features)
    path_sums = FinitePathSums(mdp, 200, arithmetic=arithmetic)
    demos = path_sums.sample(theta, 4000, np.random.default_rng(13))
    assert demos.lengths.max() <= 200
    counts = path_sums.expected_counts(theta[None])
    mean = expected_features(mdp, counts.node, counts.edge)[0]
    check_features(demos, mdp, mean, path_sums.covariance(theta))


def _ring_back() -> dict[str, np.ndarray]:
    """Return the edges of `five_state_mdp` and one from the last state to the first, so no state is terminal."""
    mdp = five_state_mdp("all")
    assert isinstance(mdp.action_features, np.ndarray)
    assert isinstance(mdp.edge_features, np.ndarray)
    return {
        "src": np.append(mdp.src, 4),
        "act": np.append(mdp.act, 0),
        "dst": np.append(mdp.dst, 0),
        "prob": np.append(mdp.prob, 1.0),
        "action_features": np.vstack([mdp.action_features, [[0.5]]]),
        "edge_features": np.vstack([mdp.edge_features, [[-0.5]]]),
    }


def test_wrong_samples_are_detected() -> None:
    """Samples at a slightly different theta fail the test, so it has power."""
    mdp = five_state_mdp("all")
    theta = 0.7 * np.random.default_rng(4).normal(size=mdp.n_features)
    demos = FinitePathSums(mdp, 6).sample(1.1 * theta, N, np.random.default_rng(11))
    with pytest.raises(AssertionError):
        check_frequencies(demos, Enumeration(mdp, 6).law(theta))
