"""The engine's sums against every trajectory written out, on hundreds of random small MDPs, in both number spaces."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings

from limiirl.demos import Demonstrations
from limiirl.errors import InvalidParameter
from limiirl.irl.maxent.backends import expected_features
from limiirl.irl.maxent.path_sums import FinitePathSums
from limiirl.mdp import MDP
from tests.helpers import examples
from tests.oracles.compare import TOLERANCE, assert_close
from tests.oracles.enumeration import Enumeration, Law
from tests.oracles.random_mdps import Case, cases
from tests.oracles.recursion import LogRecursion

ARITHMETICS = ("linear", "log", "auto")
EXACT = ("linear", "log")
NOT_ANYWHERE = ("terminal", "terminal_or_max_length")


def laws(case: Case, paths: Enumeration, **conditions: object) -> list[Law]:
    """The enumerated distribution of every column, from p0 or, with starts=True, from the case's distributions."""
    given_starts = conditions.pop("starts", False)
    return [
        paths.law(theta, starts=case.starts[:, k] if given_starts else None, **conditions)  # type: ignore[arg-type]
        for k, theta in enumerate(case.thetas)
    ]


def check_totals(engine: FinitePathSums, case: Case, oracle: list[Law], starts: np.ndarray | None = None) -> None:
    """log_Z, counts of states and edges under both gains, and the gradient."""
    log_Z = np.array([law.log_Z for law in oracle])
    assert_close(engine.log_partition(case.thetas, starts=starts), log_Z, "log_partition")
    discount = case.mdp.gamma ** np.arange(case.max_length)
    for gain, passed in ((discount, None), (np.ones(case.max_length), np.ones(case.max_length))):
        totals = engine.expected_counts(case.thetas, gain=passed, starts=starts, edges=True)
        assert totals.edge is not None
        assert_close(totals.log_Z, log_Z, "log_Z")
        assert_close(totals.node, np.stack([law.state_counts(gain) for law in oracle], axis=1), "counts of states")
        assert_close(totals.edge, np.stack([law.edge_counts(gain) for law in oracle], axis=1), "counts of edges")
        if passed is None:
            gradient = expected_features(case.mdp, totals.node, totals.edge)
            assert_close(gradient, [law.mean() for law in oracle], "expected features")


def check_marginals(engine: FinitePathSums, case: Case, oracle: list[Law]) -> None:
    for theta, law in zip(case.thetas, oracle, strict=True):
        assert_close(engine.time_marginals(theta), law.time_marginals(), "time marginals")
    by_start = np.stack([law.log_Z_by_start for law in oracle], axis=1)
    assert_close(engine.log_partition_by_start(case.thetas), by_start, "log Z by start")


@pytest.mark.parametrize("space", ARITHMETICS)
@settings(max_examples=examples(80))
@given(case=cases())
def test_sums_from_p0(space: str, case: Case) -> None:
    oracle = laws(case, Enumeration(case.mdp, case.max_length))
    engine = FinitePathSums(case.mdp, case.max_length, arithmetic=space)
    check_totals(engine, case, oracle)
    check_marginals(engine, case, oracle)


@pytest.mark.parametrize("space", ARITHMETICS)
@settings(max_examples=examples(60))
@given(case=cases())
def test_sums_by_start(space: str, case: Case) -> None:
    paths = Enumeration(case.mdp, case.max_length)
    engine = FinitePathSums(case.mdp, case.max_length, by_start=True, arithmetic=space)
    oracle = laws(case, paths, by_start=True)
    check_totals(engine, case, oracle)
    check_marginals(engine, case, oracle)
    check_totals(engine, case, laws(case, paths, by_start=True, starts=True), case.starts)


@settings(max_examples=examples(40))
@given(case=cases())
def test_given_starts_replace_p0(case: Case) -> None:
    oracle = laws(case, Enumeration(case.mdp, case.max_length), starts=True)
    check_totals(FinitePathSums(case.mdp, case.max_length), case, oracle, case.starts)


@pytest.mark.parametrize("space", EXACT)
@pytest.mark.parametrize("by_start", [False, True])
@pytest.mark.parametrize("stop", NOT_ANYWHERE)
@settings(max_examples=examples(50))
@given(case=cases(columns=(1,)))
def test_sums_with_other_ends(stop: str, by_start: bool, space: str, case: Case) -> None:
    oracle = laws(case, Enumeration(case.mdp, case.max_length, stop), by_start=by_start)
    engine = FinitePathSums(case.mdp, case.max_length, stop=stop, by_start=by_start, arithmetic=space)
    if any(law.log_Z == -math.inf for law in oracle):
        with pytest.raises(InvalidParameter, match="Raise max_length, or use stop='anywhere'"):
            engine.expected_counts(case.thetas)
        return
    check_totals(engine, case, oracle)
    check_marginals(engine, case, oracle)


@settings(max_examples=examples(40))
@given(case=cases(columns=(1,)))
def test_other_ends_choose_log_space(case: Case) -> None:
    """The guard's bound does not hold for them, so that auto must be the same as log."""
    stop = "terminal_or_max_length"
    assume(Enumeration(case.mdp, case.max_length, stop).law(case.thetas[0]).log_Z > -math.inf)
    auto, log = (FinitePathSums(case.mdp, case.max_length, stop=stop, arithmetic=space) for space in ("auto", "log"))
    np.testing.assert_array_equal(auto.expected_counts(case.thetas).node, log.expected_counts(case.thetas).node)


@pytest.mark.slow
@settings(max_examples=examples(80))
@given(case=cases(columns=(3,), scales=(30.0, 100.0, 300.0)))
def test_auto_survives_large_rewards(case: Case) -> None:
    """Rewards of some hundreds: linear for some columns, log for others, in one call."""
    oracle = laws(case, Enumeration(case.mdp, case.max_length))
    engine = FinitePathSums(case.mdp, case.max_length)
    check_totals(engine, case, oracle)
    check_marginals(engine, case, oracle)
    check_totals(
        FinitePathSums(case.mdp, case.max_length, by_start=True),
        case,
        laws(case, Enumeration(case.mdp, case.max_length), by_start=True),
    )


@pytest.mark.parametrize("by_start", [False, True])
@pytest.mark.parametrize(
    "theta",
    [
        pytest.param([0.0, 500.0, 208.9, -709.0, 0.0], id="an edge's weight underflows, what follows makes up for it"),
        pytest.param([0.0, -900.0, 0.0, 900.0, 0.0], id="an edge's weight overflows, its target's makes up for it"),
        pytest.param([0.0, 900.0, 0.0, -900.0, 0.0], id="a state's weight overflows, the edge's makes up for it"),
        pytest.param([1000.0, 0.0, 0.0, 0.0, 0.0], id="the weight of a state that no edge enters overflows"),
    ],
)
def test_guard_sees_each_factor_of_a_step(theta: list[float], by_start: bool) -> None:
    """0 -> 1 -> 2 with a reward for each state and edge: a step may be moderate though its factors are not."""
    features = {"state_features": np.eye(3), "edge_features": np.eye(2)}
    mdp = MDP.from_edges([0, 1], [1, 2], 3, p0=[1.0, 0.0, 0.0], **features)
    case = Case(mdp, 3, np.array([theta]), mdp.p0[:, None])
    oracle = laws(case, Enumeration(mdp, 3), by_start=by_start)
    check_totals(FinitePathSums(mdp, 3, by_start=by_start), case, oracle)


@pytest.mark.parametrize("space", EXACT)
@settings(max_examples=examples(60))
@given(case=cases(columns=(1,)))
def test_path_probabilities_sum_to_one(space: str, case: Case) -> None:
    """q exp(theta . F) / Z, with F and q from `Demonstrations` and Z from the engine: the enumerated p, 1 in all."""
    paths = Enumeration(case.mdp, case.max_length)
    law = paths.law(case.thetas[0])
    possible = [i for i in range(len(paths.listed)) if case.mdp.p0[paths.first[i]] > 0]
    demos = Demonstrations.from_lists(
        [paths.listed[i][0] for i in possible], [case.mdp.act[list(paths.listed[i][1])] for i in possible]
    )
    log_Z = FinitePathSums(case.mdp, case.max_length, arithmetic=space).log_partition(case.thetas)[0]
    p = np.exp(demos.log_q(case.mdp) + demos.features(case.mdp) @ case.thetas[0] - log_Z)
    np.testing.assert_allclose(p, law.p[possible], rtol=TOLERANCE, atol=0.0)
    assert abs(math.fsum(p) - 1.0) <= TOLERANCE


def everything(engine: FinitePathSums, case: Case) -> list[np.ndarray]:
    """All sums over trajectories that an engine takes, for comparisons bit by bit."""
    totals = engine.expected_counts(case.thetas, edges=True)
    assert totals.edge is not None
    plain = engine.expected_counts(case.thetas, gain=np.ones(case.max_length), starts=case.starts, edges=True)
    marginals = [engine.time_marginals(theta) for theta in case.thetas]
    samples = engine.sample(case.thetas[0], 50, np.random.default_rng(5))
    return [totals.log_Z, totals.node, totals.edge, plain.node, *marginals, samples.states, samples.offsets]


@pytest.mark.parametrize("space", EXACT)
@pytest.mark.parametrize("by_start", [False, True])
@settings(max_examples=examples(30))
@given(case=cases(max_length=10, max_states=2, max_actions=2))
def test_checkpoints_change_no_bit(by_start: bool, space: str, case: Case) -> None:
    oracle = laws(case, Enumeration(case.mdp, case.max_length), by_start=by_start)
    stored, recomputed = (
        FinitePathSums(case.mdp, case.max_length, by_start=by_start, arithmetic=space, max_bytes=size)
        for size in (2.0**30, 0.0)
    )
    for one, other in zip(everything(stored, case), everything(recomputed, case), strict=True):
        np.testing.assert_array_equal(one, other)
    check_totals(recomputed, case, oracle)
    # The last products of a covariance are BLAS's, whose rounding depends on where an array happens to lie in memory.
    covariance = stored.covariance(case.thetas[0])
    assert_close(recomputed.covariance(case.thetas[0]), covariance, "covariance", 1e-13, _size(oracle[0]))
    assert len(recomputed.buffer(1).bounds) - 1 >= math.isqrt(case.max_length - 1)


def _size(law: Law) -> float:
    return 1.0 + float(np.linalg.norm(law.second_moment()))


@pytest.mark.parametrize("max_bytes", [2.0**30, 0.0])
@pytest.mark.parametrize("space", EXACT)
@settings(max_examples=examples(40))
@given(case=cases(columns=(3,), max_length=90, most_paths=10**30))
def test_long_trajectories_against_the_recursion(space: str, max_bytes: float, case: Case) -> None:
    """Lengths at which messages are rescaled several times: too many trajectories to list, so a recursion checks."""
    assume(case.max_length > 17)
    oracle = [LogRecursion(case.mdp, case.max_length, theta) for theta in case.thetas]
    engine = FinitePathSums(case.mdp, case.max_length, arithmetic=space, max_bytes=max_bytes)
    totals = engine.expected_counts(case.thetas, edges=True)
    assert totals.edge is not None
    counts = [one.counts(one.discount) for one in oracle]
    assert_close(totals.log_Z, [one.log_Z for one in oracle], "log_Z")
    assert_close(totals.node, np.stack([node for node, _ in counts], axis=1), "counts of states")
    assert_close(totals.edge, np.stack([edge for _, edge in counts], axis=1), "counts of edges")
    for theta, one in zip(case.thetas, oracle, strict=True):
        assert_close(engine.time_marginals(theta), one.occupancy, "time marginals")


@settings(max_examples=examples(50))
@given(case=cases(columns=(1,)))
def test_the_recursion_is_an_oracle(case: Case) -> None:
    """What is used where trajectories are too many agrees with them where they are few."""
    theta = case.thetas[0]
    for stop in ("anywhere", "terminal_or_max_length"):
        law = Enumeration(case.mdp, case.max_length, stop).law(theta)
        if law.log_Z > -math.inf:
            found = LogRecursion(case.mdp, case.max_length, theta, stop)
            node, edge = found.counts(found.discount)
            assert_close(found.log_Z, law.log_Z, "log_Z")
            assert_close(node, law.state_counts(found.discount), "counts of states")
            assert_close(edge, law.edge_counts(found.discount), "counts of edges")
            assert_close(found.occupancy, law.time_marginals(), "time marginals")
            assert_close(found.expected_features(), law.mean(), "expected features")
