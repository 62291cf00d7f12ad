"""Dwell times, stationary shares and the graph of switches."""

import numpy as np
import pytest

from limiirl.demos import Groups
from limiirl.switching import DwellTimes, GroupDynamics, Segments, SwitchingGraph
from limiirl.switching.dynamics import expected_dwell_times, stationary_shares


@pytest.mark.parametrize("K", [1, 2, 5])
def test_stationary_shares_solve_the_balance_equations(K):
    P = np.random.default_rng(K).dirichlet(np.full(K, 0.3), size=K)
    shares = stationary_shares(P)
    np.testing.assert_allclose(shares @ P, shares, rtol=0, atol=1e-14)
    assert shares.sum() == pytest.approx(1.0, abs=1e-14)


def test_stationary_shares_of_rare_switches_keep_relative_accuracy():
    P = np.array([[1 - 1e-8, 1e-8], [3e-8, 1 - 3e-8]])
    np.testing.assert_allclose(stationary_shares(P), [0.75, 0.25], rtol=1e-12)


def test_expected_dwell_time_is_the_mean_of_simulated_ones():
    P = np.array([[0.9, 0.06, 0.04], [0.5, 0.25, 0.25], [0.0, 0.0, 1.0]])
    assert expected_dwell_times(P).tolist() == pytest.approx([10.0, 4.0 / 3.0, np.inf])
    draws = np.random.default_rng(0).geometric(0.1, size=200_000)
    assert draws.mean() == pytest.approx(expected_dwell_times(P)[0], abs=0.1)


def test_dwell_times_of_segments():
    path = np.array([0, 0, 1, 1, 1, 0, 2, 2, 0, 0, 0, 1])
    segments = Segments.from_path(path, np.eye(4)[path], np.array([0, 8, 12]))
    dwell = DwellTimes.from_segments(segments, np.full((4, 4), 0.25), np.array([8, 4]))
    assert dwell.n_segments.tolist() == [3, 2, 1, 0]
    assert dwell.n_complete.tolist() == [1, 1, 0, 0]
    assert dwell.mean.tolist()[:3] == [2.0, 2.0, 2.0]
    assert dwell.median.tolist()[:3] == [2.0, 2.0, 2.0]
    assert np.isnan(dwell.mean[3])
    assert dwell.to_frame()["n_segments"].tolist() == [3, 2, 1, 0]


def test_graph_of_switches():
    counts = np.array([[90.0, 6.0, 3.0], [4.0, 50.0, 0.0], [0.0, 5.0, 7.0]])
    graph = SwitchingGraph.from_counts(counts)
    np.testing.assert_allclose(graph.probability, [[0, 2 / 3, 1 / 3], [1, 0, 0], [0, 1, 0]], rtol=1e-15)
    frame = graph.to_frame()
    assert frame[["from", "to"]].values.tolist() == [[0, 1], [0, 2], [1, 0], [1, 2], [2, 0], [2, 1]]
    assert frame["switches"].tolist() == [6.0, 3.0, 4.0, 0.0, 0.0, 5.0]


def test_group_without_switches_has_a_finite_dwell_time_and_one_without_the_intent_has_none():
    # Intent 0: 50 transitions in group a without a switch, 40 in b with 4 switches. Intent 1 occurs in b only.
    transitions = np.array([[[50.0, 0.0], [0.0, 0.0]], [[36.0, 4.0], [4.0, 16.0]]])
    dynamics = GroupDynamics(Groups.from_labels(["a", "b"], 2), transitions.sum(axis=2), transitions)
    pooled = 90 / 4, 20 / 4
    expected = [[50 + pooled[0], np.nan], [(40 + pooled[0]) / 5, (20 + pooled[1]) / 5]]
    np.testing.assert_allclose(dynamics.dwell_times, expected, rtol=1e-14)
    np.testing.assert_allclose(dynamics.switching_rate, [0.0, 100 * 8 / 60], rtol=1e-14)
    np.testing.assert_allclose(dynamics.shares, [[1.0, 0.0], [2 / 3, 1 / 3]], rtol=1e-14)
    frame = dynamics.to_frame()
    assert frame["group"].tolist() == ["a", "b"]
    assert frame.shape == (2, 6)


def test_group_of_recordings_of_one_step_has_no_switching_rate():
    dynamics = GroupDynamics(Groups.from_labels(None, 1), np.array([[2.0, 1.0]]), np.zeros((1, 2, 2)))
    assert np.isnan(dynamics.switching_rate).all()
    assert np.isnan(dynamics.dwell_times).all()
