"""Scenarios with closures and other features: changed flows and routes, and pairs that are no longer connected."""

import numpy as np
import pytest

from limiirl import MDP, Demonstrations, MaxEnt
from limiirl.errors import InvalidDemos, InvalidParameter
from limiirl.forecast import Forecaster, condition_on_ends
from limiirl.irl.destination.model import DestinationMaxEnt
from tests.helpers import raises
from tests.oracles.forecasts import make_mixture

# Two paths from 0 to 3, via 1 or via 2; 4 is connected to 3, and 5 only to 4.
PHI = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 1.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
EDGES = ([0, 0, 1, 2, 3, 4, 4, 5], [1, 2, 3, 3, 4, 3, 5, 4])
TOWN = MDP.from_edges(*EDGES, state_features=PHI)
COSTS = np.array([[-3.0, -1.0], [-3.0, 0.0]])
MODELS = [MaxEnt(8), DestinationMaxEnt()]
both = pytest.mark.parametrize("irl", MODELS, ids=["maxent", "destination"])


def forecaster(irl, mdp: MDP = TOWN) -> Forecaster:
    return Forecaster(make_mixture(irl, mdp, [0.5, 0.5], COSTS), Demonstrations.from_lists([[3], [4]]))


@both
def test_closing_a_state_diverts_all_trips(irl):
    before = forecaster(irl)
    after = before.with_closures(states=[1])
    change = before.compare(after, [0], [3], [10.0])
    np.testing.assert_allclose(change.after.edge[[1, 3]], 10.0, rtol=1e-9)
    np.testing.assert_array_equal(change.after.edge[[0, 2]], 0.0)
    np.testing.assert_allclose(change.edge, change.after.edge - change.before.edge, rtol=1e-12)
    assert set(change.gains(2)) == {1, 3}
    assert set(change.losses()[:2]) == {0, 2}
    assert change.cut_off.size == 0
    np.testing.assert_allclose(after.next_states([0], 3).probability, [1.0], rtol=1e-9)
    routes = before.compare_routes(after, 0, 3, k=2)
    assert [states.tolist() for states in routes.routes] == [[0, 1, 3], [0, 2, 3]]
    assert routes.after[0] == 0.0
    assert 0.99 < routes.after[1] <= 1.0
    np.testing.assert_allclose(routes.before, [r.probability for r in before.routes(0, 3, k=2)], rtol=1e-12)
    assert repr(routes).splitlines()[0].endswith("-> 0.0 %: 0 - 1 - 3")


@both
def test_pairs_that_are_no_longer_connected(irl):
    before = forecaster(irl)
    after = before.with_closures(edges=[4])
    change = before.compare(after, [0, 0, 5], [3, 4, 3], [1.0, 2.0, 4.0])
    assert change.cut_off.tolist() == [1]
    assert change.trips_lost == 2.0
    assert repr(change).endswith("no longer connected: 1 pairs, 2 trips")
    assert after.flows([0, 0], [4, 5]).cut_off.tolist() == [0, 1]
    assert after.flows([0, 0], [4, 5]).trips == 0.0
    gone = before.compare_routes(after, 0, 4)
    np.testing.assert_array_equal(gone.after, 0.0)
    with raises(InvalidParameter, parameter="goal", value=4):
        after.routes(0, 4)
    with raises(InvalidDemos, parameter="goal", value=4, index=0):
        after.next_states([0, 1], 4)


@both
def test_closed_states_are_rejected_as_arguments(irl):
    after = forecaster(irl).with_closures(states=[4])
    assert after.flows([0, 4, 0], [3, 3, 4]).cut_off.tolist() == [1, 2]
    with raises(InvalidParameter, parameter="start", value=4, index=0):
        after.route(4, 3)
    with raises(InvalidParameter, parameter="goal", value=4, index=0):
        after.next_states([0], 4)
    with raises(InvalidParameter, parameter="goals", value=4, index=1):
        after.predict_routes([0, 0], [3, 4])
    with raises(InvalidDemos, parameter="partial", value=4, index=0):
        after.next_states([1, 3, 4])
    np.testing.assert_array_equal(after.destinations([0]).candidates, [3])
    nothing = after.with_closures(states=[3])
    with raises(InvalidParameter, parameter="candidates"):
        nothing.destinations([0])
    assert after.mdp.n_states == TOWN.n_states


@both
def test_closures_accumulate_and_edges_keep_their_indices(irl):
    once = forecaster(irl).with_closures(edges=[0], states=[5])
    twice = forecaster(irl).with_closures(states=[5]).with_closures(edges=[0])
    assert once.mdp == twice.mdp
    np.testing.assert_array_equal(once.edges, [1, 2, 3, 4, 5])
    np.testing.assert_array_equal(twice.edges, once.edges)
    np.testing.assert_array_equal(once.mdp.act, TOWN.act[once.edges])
    for edge in (0, 99, 0.5):  # closed, unknown, not an integer
        with raises(InvalidParameter, parameter="edges"):
            once.with_closures(edges=[edge])
    with raises(InvalidParameter, parameter="states"):
        once.with_closures(states=["a"])


@both
def test_other_features_shift_flows(irl):
    before = forecaster(irl)
    phi = PHI.copy()
    phi[1] = [1.0, 4.0]  # one intent now avoids state 1
    after = before.with_features(state_features=phi)
    change = before.compare(after, [0], [3])
    assert change.edge[0] < -0.1
    assert change.edge[1] > 0.1
    np.testing.assert_allclose(change.edge[0] + change.edge[1], 0.0, atol=1e-9)
    np.testing.assert_array_equal(after.edges, np.arange(8))
    same = before.compare(before.with_features(state_features=PHI), [0, 5], [3, 3])
    np.testing.assert_allclose(same.edge, 0.0, atol=1e-12)
    with raises(InvalidParameter, parameter="state_features"):
        before.with_features()
    with raises(InvalidParameter, parameter="state_features", value=(6, 1)):
        before.with_features(state_features=phi[:, :1])
    with raises(InvalidParameter, parameter="edge_features", value=(8, 1)):
        before.with_features(edge_features=np.ones((8, 1)))


def test_actions_with_a_closed_edge_are_removed():
    mdp = MDP.from_edges(
        [0, 0, 0, 1, 2],
        [1, 2, 2, 0, 0],
        action=[0, 0, 1, 0, 0],
        prob=[0.5, 0.5, 1.0, 1.0, 1.0],
        action_features=[[1.0], [1.0], [2.0], [3.0], [4.0]],
        edge_features=[[1.0], [2.0], [3.0], [4.0], [5.0]],
    )
    after = Forecaster(make_mixture(MaxEnt(5), mdp, [1.0], [[-1.0, -1.0]])).with_closures(edges=[0])
    np.testing.assert_array_equal(after.edges, [2, 3, 4])
    np.testing.assert_array_equal(after.mdp.action_features.ravel(), [2.0, 3.0, 4.0])
    np.testing.assert_array_equal(after.mdp.edge_features.ravel(), [3.0, 4.0, 5.0])
    assert after.mdp.feature_names == mdp.feature_names


def test_dead_ends_are_rejected_unless_trips_may_stop_anywhere():
    mdp = MDP.from_edges([0, 0, 1], [1, 2, 2], state_features=np.ones(3))
    before = Forecaster(make_mixture(MaxEnt(4, stop="terminal"), mdp, [1.0], [[-1.0]]))
    with raises(InvalidParameter, parameter="edges", index=1):
        before.with_closures(edges=[2])
    with raises(InvalidParameter, parameter="states", index=0):
        before.with_closures(states=[1, 2])
    result = before.with_closures(edges=[2], states=[1])
    assert result.route(0, 2).states.tolist() == [0, 2]
    free = Forecaster(make_mixture(MaxEnt(4), mdp, [1.0], [[-1.0]])).with_closures(edges=[2])
    assert free.mdp.terminal.tolist() == [False, True, True]
    with raises(InvalidParameter, parameter="states"):
        before.with_closures(states=[0, 1])


def test_only_scenarios_of_one_mixture_are_compared():
    one, other = forecaster(MaxEnt(8)), forecaster(MaxEnt(8))
    with raises(InvalidParameter, parameter="other"):
        one.compare(other)
    own = one.compare(one.with_closures(states=[2]))
    assert own.before.trips == own.after.trips == 1.0
    assert own.edge[1] < 0.0
    for flows in (own.before, own.after):
        entered, left = (np.bincount(x, weights=flows.edge, minlength=6) for x in (TOWN.dst, TOWN.src))
        ends = flows.state - left  # trips that end in each state
        np.testing.assert_allclose(ends.sum(), 1.0, rtol=1e-10)
        assert np.all(flows.state - entered > -1e-12)  # trips that begin in each state


class TestGivenEnds:
    """Rewards of `MaxEnt` for trips with given ends, on a town with cycles."""

    mdp = MDP.from_edges(*EDGES, state_features=PHI)
    demos = Demonstrations.from_lists([[0, 1, 3], [0, 2, 3], [0, 2, 3, 4, 5], [3, 4, 3, 4, 5], [0, 2, 3, 4], [5, 4, 3]])

    def convert(self, **more):
        mixture = make_mixture(MaxEnt(8, **more), self.mdp, [0.3, 0.7], COSTS)
        return mixture, condition_on_ends(mixture, self.demos)

    def test_the_expected_number_of_states_is_the_observed_one(self):
        mixture, converted = self.convert()
        assert converted.thetas_.shape == (2, 3)
        np.testing.assert_array_equal(converted.weights_, [0.3, 0.7])
        np.testing.assert_array_equal(converted.thetas_[:, :2], COSTS)
        for k, u in enumerate(mixture.predict_proba(self.demos).T):
            expected = 0.0
            for demo, weight in zip(self.demos, u, strict=True):
                start, goal = demo.states[0], demo.states[-1]
                reward = np.hstack([PHI, np.ones((6, 1))]) @ converted.thetas_[k]
                W = np.zeros((6, 6))
                W[EDGES] = np.exp(reward[EDGES[1],])
                # Paths end on first arrival: the rows of the goal are 0.
                green = np.linalg.inv(np.eye(6) - np.where(np.arange(6)[:, None] == goal, 0.0, W))
                expected += weight * (green[start] @ green[:, goal] / green[start, goal] - 1.0)
            assert expected == pytest.approx(u @ (self.demos.lengths - 1), rel=1e-4)

    def test_routes_of_equal_length_keep_their_odds(self):
        mixture, converted = self.convert()
        paths = Demonstrations.from_lists([[0, 1, 3], [0, 2, 3]])
        before, after = (m.irl_.log_prob(m.mdp_, m.thetas_, paths) for m in (mixture, converted))
        np.testing.assert_allclose(after[0] - after[1], before[0] - before[1], rtol=1e-9, atol=1e-12)

    def test_a_discount_and_long_trips_are_accepted(self):
        long = Demonstrations.from_lists([[0, 1, *[3, 4] * 9, 5], [0, 1, 3]])
        mixture = make_mixture(MaxEnt(8), self.mdp.replace(gamma=0.9), [0.3, 0.7], COSTS)
        converted = condition_on_ends(mixture, long)
        assert converted.mdp_.gamma == 1.0
        assert np.all(np.isfinite(converted.thetas_))

    def test_trips_that_pass_their_destination_only_are_rejected(self):
        mixture = make_mixture(MaxEnt(8), self.mdp, [0.3, 0.7], COSTS)
        with raises(InvalidDemos, parameter="demos"):
            condition_on_ends(mixture, Demonstrations.from_lists([[3, 4, 3], [1]]))
