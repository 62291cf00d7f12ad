"""Path sums against enumeration on random small MDPs, in linear and log arithmetic."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings

from limiirl.demos import Demonstrations
from limiirl.errors import InvalidParameter
from limiirl.irl.maxent.path_sums import FinitePathSums
from limiirl.mdp import MDP, expected_features
from tests.helpers import examples, raises
from tests.oracles.compare import TOLERANCE, assert_close
from tests.oracles.enumeration import Enumeration, Law
from tests.oracles.random_mdps import Case, cases
from tests.oracles.recursion import LogRecursion

ARITHMETICS = ("linear", "log", "auto")
EXACT = ("linear", "log")
NOT_ANYWHERE = ("terminal", "terminal_or_max_length")


def laws(case: Case, paths: Enumeration, **conditions: object) -> list[Law]:
    """Return the enumerated distribution per column, from p0 or, with starts=True, from `case.starts`."""
    given_starts = conditions.pop("starts", False)
    return [
        paths.law(theta, starts=case.starts[:, k] if given_starts else None, **conditions)  # type: ignore[arg-type]
        for k, theta in enumerate(case.thetas)
    ]


def check_counts(path_sums: FinitePathSums, case: Case, oracle: list[Law], starts: np.ndarray | None = None) -> None:
    """Compare log_Z, the counts of states and edges with and without discount, and the gradient."""
    log_Z = np.array([law.log_Z for law in oracle])
    assert_close(path_sums.log_partition(case.thetas, starts=starts), log_Z, "log_partition")
    discount = case.mdp.gamma ** np.arange(case.max_length)
    for weights, passed in ((discount, None), (np.ones(case.max_length), np.ones(case.max_length))):
        counts = path_sums.expected_counts(case.thetas, step_weights=passed, starts=starts, edges=True)
        assert counts.edge is not None
        assert_close(counts.log_Z, log_Z, "log_Z")
        assert_close(counts.node, np.stack([law.state_counts(weights) for law in oracle], axis=1), "counts of states")
        assert_close(counts.edge, np.stack([law.edge_counts(weights) for law in oracle], axis=1), "counts of edges")
        if passed is None:
            gradient = expected_features(case.mdp, counts.node, counts.edge)
            assert_close(gradient, [law.mean() for law in oracle], "expected features")


def check_marginals(path_sums: FinitePathSums, case: Case, oracle: list[Law]) -> None:
    for theta, law in zip(case.thetas, oracle, strict=True):
        assert_close(path_sums.time_marginals(theta), law.time_marginals(), "time marginals")
    by_start = np.stack([law.log_Z_by_start for law in oracle], axis=1)
    assert_close(path_sums.log_partition_by_start(case.thetas), by_start, "log Z by start")


@pytest.mark.parametrize("arithmetic", ARITHMETICS)
@settings(max_examples=examples(80))
@given(case=cases())
def test_sums_from_p0(arithmetic: str, case: Case) -> None:
    oracle = laws(case, Enumeration(case.mdp, case.max_length))
    path_sums = FinitePathSums(case.mdp, case.max_length, arithmetic=arithmetic)
    check_counts(path_sums, case, oracle)
    check_marginals(path_sums, case, oracle)


@pytest.mark.parametrize("arithmetic", ARITHMETICS)
@settings(max_examples=examples(60))
@given(case=cases())
def test_sums_by_start(arithmetic: str, case: Case) -> None:
    paths = Enumeration(case.mdp, case.max_length)
    path_sums = FinitePathSums(case.mdp, case.max_length, by_start=True, arithmetic=arithmetic)
    oracle = laws(case, paths, by_start=True)
    check_counts(path_sums, case, oracle)
    check_marginals(path_sums, case, oracle)
    check_counts(path_sums, case, laws(case, paths, by_start=True, starts=True), case.starts)


@settings(max_examples=examples(40))
@given(case=cases())
def test_start_distributions_replace_p0(case: Case) -> None:
    oracle = laws(case, Enumeration(case.mdp, case.max_length), starts=True)
    check_counts(FinitePathSums(case.mdp, case.max_length), case, oracle, case.starts)


@pytest.mark.parametrize("arithmetic", EXACT)
@pytest.mark.parametrize("by_start", [False, True])
@pytest.mark.parametrize("stop", NOT_ANYWHERE)
@settings(max_examples=examples(50))
@given(case=cases(columns=(1,)))
def test_sums_with_other_stopping_rules(stop: str, by_start: bool, arithmetic: str, case: Case) -> None:
    oracle = laws(case, Enumeration(case.mdp, case.max_length, stop), by_start=by_start)
    path_sums = FinitePathSums(case.mdp, case.max_length, stop=stop, by_start=by_start, arithmetic=arithmetic)
    if any(law.log_Z == -math.inf for law in oracle):
        with raises(InvalidParameter, parameter="stop", value=stop):
            path_sums.expected_counts(case.thetas)
        return
    check_counts(path_sums, case, oracle)
    check_marginals(path_sums, case, oracle)


@settings(max_examples=examples(40))
@given(case=cases(columns=(1,)))
def test_other_stopping_rules_use_log_arithmetic(case: Case) -> None:
    """The overflow bound does not apply to these rules, so auto must equal log."""
    stop = "terminal_or_max_length"
    assume(Enumeration(case.mdp, case.max_length, stop).law(case.thetas[0]).log_Z > -math.inf)
    auto, log = (
        FinitePathSums(case.mdp, case.max_length, stop=stop, arithmetic=arithmetic) for arithmetic in ("auto", "log")
    )
    np.testing.assert_array_equal(auto.expected_counts(case.thetas).node, log.expected_counts(case.thetas).node)


@pytest.mark.slow
@settings(max_examples=examples(80))
@given(case=cases(columns=(3,), scales=(30.0, 100.0, 300.0)))
def test_auto_is_accurate_for_large_rewards(case: Case) -> None:
    """With rewards in the hundreds, one call uses linear arithmetic for some columns and log for others."""
    oracle = laws(case, Enumeration(case.mdp, case.max_length))
    path_sums = FinitePathSums(case.mdp, case.max_length)
    check_counts(path_sums, case, oracle)
    check_marginals(path_sums, case, oracle)
    check_counts(
        FinitePathSums(case.mdp, case.max_length, by_start=True),
        case,
        laws(case, Enumeration(case.mdp, case.max_length), by_start=True),
    )


@pytest.mark.parametrize("by_start", [False, True])
@pytest.mark.parametrize(
    "theta",
    [
        pytest.param([0.0, 500.0, 208.9, -709.0, 0.0], id="edge underflows, later states compensate"),
        pytest.param([0.0, -900.0, 0.0, 900.0, 0.0], id="edge overflows, target compensates"),
        pytest.param([0.0, 900.0, 0.0, -900.0, 0.0], id="state overflows, edge compensates"),
        pytest.param([1000.0, 0.0, 0.0, 0.0, 0.0], id="state without incoming edges overflows"),
    ],
)
def test_overflow_bound_includes_each_factor_of_a_step(theta: list[float], by_start: bool) -> None:
    """On 0 -> 1 -> 2, the weight of a step can be moderate although one of its factors overflows."""
    features = {"state_features": np.eye(3), "edge_features": np.eye(2)}
    mdp = MDP.from_edges([0, 1], [1, 2], 3, p0=[1.0, 0.0, 0.0], **features)
    case = Case(mdp, 3, np.array([theta]), mdp.p0[:, None])
    oracle = laws(case, Enumeration(mdp, 3), by_start=by_start)
    check_counts(FinitePathSums(mdp, 3, by_start=by_start), case, oracle)


@pytest.mark.parametrize("arithmetic", EXACT)
@settings(max_examples=examples(60))
@given(case=cases(columns=(1,)))
def test_path_probabilities_sum_to_one(arithmetic: str, case: Case) -> None:
    """q exp(theta . F) / Z equals the enumerated p, with F and q from `Demonstrations` and Z from the path sums."""
    paths = Enumeration(case.mdp, case.max_length)
    law = paths.law(case.thetas[0])
    possible = [i for i in range(len(paths.listed)) if case.mdp.p0[paths.first[i]] > 0]
    demos = Demonstrations.from_lists(
        [paths.listed[i][0] for i in possible], [case.mdp.act[list(paths.listed[i][1])] for i in possible]
    )
    log_Z = FinitePathSums(case.mdp, case.max_length, arithmetic=arithmetic).log_partition(case.thetas)[0]
    p = np.exp(demos.log_q(case.mdp) + demos.features(case.mdp) @ case.thetas[0] - log_Z)
    np.testing.assert_allclose(p, law.p[possible], rtol=TOLERANCE, atol=0.0)
    assert abs(math.fsum(p) - 1.0) <= TOLERANCE


def all_sums(path_sums: FinitePathSums, case: Case) -> list[np.ndarray]:
    """Return all kinds of path sums, for bitwise comparison."""
    counts = path_sums.expected_counts(case.thetas, edges=True)
    assert counts.edge is not None
    plain = path_sums.expected_counts(
        case.thetas, step_weights=np.ones(case.max_length), starts=case.starts, edges=True
    )
    marginals = [path_sums.time_marginals(theta) for theta in case.thetas]
    samples = path_sums.sample(case.thetas[0], 50, np.random.default_rng(5))
    return [counts.log_Z, counts.node, counts.edge, plain.node, *marginals, samples.states, samples.offsets]


@pytest.mark.parametrize("arithmetic", EXACT)
@pytest.mark.parametrize("by_start", [False, True])
@settings(max_examples=examples(30))
@given(case=cases(max_length=10, max_states=2, max_actions=2))
def test_checkpoints_do_not_change_the_results(by_start: bool, arithmetic: str, case: Case) -> None:
    oracle = laws(case, Enumeration(case.mdp, case.max_length), by_start=by_start)
    stored, recomputed = (
        FinitePathSums(case.mdp, case.max_length, by_start=by_start, arithmetic=arithmetic, max_bytes=size)
        for size in (2.0**30, 0.0)
    )
    for one, other in zip(all_sums(stored, case), all_sums(recomputed, case), strict=True):
        np.testing.assert_array_equal(one, other)
    check_counts(recomputed, case, oracle)
    # A covariance ends in BLAS products, whose rounding depends on the memory alignment of the arrays.
    covariance = stored.covariance(case.thetas[0])
    assert_close(recomputed.covariance(case.thetas[0]), covariance, "covariance", 1e-13, _size(oracle[0]))
    assert len(recomputed.buffer(1).bounds) - 1 >= math.isqrt(case.max_length - 1)


def _size(law: Law) -> float:
    return 1.0 + float(np.linalg.norm(law.second_moment()))


@pytest.mark.parametrize("max_bytes", [2.0**30, 0.0])
@pytest.mark.parametrize("arithmetic", EXACT)
@settings(max_examples=examples(40))
@given(case=cases(columns=(3,), max_length=90, most_paths=10**30))
def test_long_trajectories_against_the_recursion(arithmetic: str, max_bytes: float, case: Case) -> None:
    """Messages are rescaled several times at these lengths, which are too long to enumerate."""
    assume(case.max_length > 17)
    oracle = [LogRecursion(case.mdp, case.max_length, theta) for theta in case.thetas]
    path_sums = FinitePathSums(case.mdp, case.max_length, arithmetic=arithmetic, max_bytes=max_bytes)
    counts = path_sums.expected_counts(case.thetas, edges=True)
    assert counts.edge is not None
    expected = [one.counts(one.discount) for one in oracle]
    assert_close(counts.log_Z, [one.log_Z for one in oracle], "log_Z")
    assert_close(counts.node, np.stack([node for node, _ in expected], axis=1), "counts of states")
    assert_close(counts.edge, np.stack([edge for _, edge in expected], axis=1), "counts of edges")
    for theta, one in zip(case.thetas, oracle, strict=True):
        assert_close(path_sums.time_marginals(theta), one.occupancy, "time marginals")


@settings(max_examples=examples(50))
@given(case=cases(columns=(1,)))
def test_recursion_agrees_with_enumeration(case: Case) -> None:
    """The recursion replaces enumeration where there are too many trajectories."""
    theta = case.thetas[0]
    for stop in ("anywhere", "terminal_or_max_length"):
        law = Enumeration(case.mdp, case.max_length, stop).law(theta)
        if law.log_Z > -math.inf:
            recursion = LogRecursion(case.mdp, case.max_length, theta, stop)
            node, edge = recursion.counts(recursion.discount)
            assert_close(recursion.log_Z, law.log_Z, "log_Z")
            assert_close(node, law.state_counts(recursion.discount), "counts of states")
            assert_close(edge, law.edge_counts(recursion.discount), "counts of edges")
            assert_close(recursion.occupancy, law.time_marginals(), "time marginals")
            assert_close(recursion.expected_features(), law.mean(), "expected features")
