"""Forecaster with two intents: drivers with a history, known and unknown destinations, and errors."""

import copy
from functools import cache

import numpy as np
import pytest

from limiirl import MDP, MLIRL, Demonstrations, IntentMixture, MaxEnt
from limiirl.errors import InvalidDemos, InvalidParameter, NotFitted
from limiirl.forecast import Forecaster
from limiirl.irl.destination.model import DestinationMaxEnt
from tests.helpers import raises
from tests.oracles.forecasts import Begun, Trips, make_mixture
from tests.oracles.mixture import TASTES, crossings, walks

RHO = np.array([0.6, 0.4])
WALKS = crossings()
DEMOS, LABELS = walks(60, seed=8)
# Four states in a ring, with edges in both directions: U-turns are possible but costly.
RING = MDP.from_edges(
    [0, 1, 1, 2, 2, 3, 3, 0], [1, 0, 2, 1, 3, 2, 0, 3], state_features=[[1, 0], [1, 1], [1, 0], [1, 0]]
)
COSTS = np.array([[-2.0, -1.0], [-2.5, 1.0]])


def maxent_forecaster(**settings: object) -> Forecaster:
    return Forecaster(make_mixture(MaxEnt(7, None, **settings), WALKS, RHO, TASTES), DEMOS)


def destination_forecaster(ends: list[int] | None = None) -> Forecaster:
    demos = None if ends is None else Demonstrations.from_lists([[g] for g in ends])
    return Forecaster(make_mixture(DestinationMaxEnt(None), RING, RHO, COSTS), demos)


def list_trips(ends: np.ndarray | None = None) -> Trips:
    """Return the trips of the ring with a prior over destinations."""
    result = copy.copy(every_trip())
    result.ends = ends
    return result


@cache
def every_trip() -> Trips:
    """Return the trips of the ring with up to 12 states; longer trips have a total weight below 1e-6."""
    return Trips(RING, 12, COSTS, RHO, condition="ends")


@pytest.mark.parametrize(("states", "goal"), [((0,), 2), ((0, 1), 2), ((0, 1, 0), 2), ((0, 3, 0, 1), 3), ((1, 2), 2)])
def test_next_states_after_u_turns(states, goal):
    begun, forecast, trips = Begun(states, None), destination_forecaster(), list_trips()
    wanted = trips.intents(begun, goal)
    if wanted is None:  # the goal was visited before
        with raises(InvalidDemos, parameter="goal", value=goal, index=0):
            forecast.next_states(list(states), goal)
        return
    np.testing.assert_allclose(forecast.intents(list(states), goal)[0], wanted, atol=1e-5)
    result, (move, stop) = forecast.next_states(list(states), goal), trips.next(begun, goal)
    np.testing.assert_allclose(result.probability, [move.get(e, 0.0) for e in result.edge.tolist()], atol=1e-5)
    np.testing.assert_allclose(result.stop, [stop], atol=1e-12)


@pytest.mark.parametrize("states", [(0, 1), (0, 3, 0, 1)], ids=["two candidates", "3 was visited before"])
def test_an_unknown_destination_is_averaged_over_the_ends_of_demonstrations(states):
    forecast, prior = destination_forecaster([2, 2, 3]), np.array([0.0, 0.0, 2.0, 1.0]) / 3.0
    begun, trips = Begun(states, None), list_trips(prior)
    result, (move, _) = forecast.next_states(list(states)), trips.next(begun, None)
    np.testing.assert_allclose(result.probability, [move.get(e, 0.0) for e in result.edge.tolist()], atol=1e-5)
    np.testing.assert_allclose(result.intents[0], trips.intents(begun, None), atol=1e-5)
    where = forecast.destinations(list(states))
    np.testing.assert_array_equal(where.candidates, [2, 3])
    np.testing.assert_allclose(where.probability[0], trips.destinations(begun, [2, 3], prior[2:]), atol=1e-5)
    assert (where.probability[0, 1] == 0.0) == (3 in states)


def test_destination_maxent_requires_goals_or_candidates():
    with raises(InvalidParameter, parameter="goal"):
        destination_forecaster().next_states([0, 1])
    with raises(InvalidParameter, parameter="candidates"):
        destination_forecaster().destinations([0, 1])
    with raises(InvalidParameter, parameter="starts"):
        destination_forecaster().flows()


def test_destination_maxent_ignores_p0():
    elsewhere = RING.replace(p0=[1.0, 0.0, 0.0, 0.0])
    forecast = Forecaster(make_mixture(DestinationMaxEnt(None), elsewhere, RHO, COSTS))
    np.testing.assert_array_equal(
        forecast.next_states([2, 1], 0).probability, destination_forecaster().next_states([2, 1], 0).probability
    )


def test_the_posterior_given_the_history_is_the_prior_of_forecasts():
    forecast, irl = maxent_forecaster(), MaxEnt(7, None)
    joint = np.log(RHO) + irl.log_prob(WALKS, TASTES, DEMOS[:5]).sum(axis=0)
    prior = np.exp(joint - np.logaddexp.reduce(joint))
    np.testing.assert_allclose(forecast.intents(history=DEMOS[:5])[0], prior, rtol=1e-10)
    np.testing.assert_allclose(forecast.intents()[0], RHO, rtol=1e-12)
    begun = [0, 1, 2]
    joint = prior * np.exp(irl.log_prob_prefix(WALKS, TASTES, Demonstrations.from_lists([begun]))[0])
    np.testing.assert_allclose(forecast.intents(begun, history=DEMOS[:5])[0], joint / joint.sum(), rtol=1e-10)
    other = Forecaster(make_mixture(irl, WALKS, prior, TASTES))
    one, two = forecast.next_states(begun, history=DEMOS[:5]), other.next_states(begun)
    np.testing.assert_allclose(one.probability, two.probability, rtol=1e-10)
    np.testing.assert_allclose(
        forecast.destinations(begun, [15, 11, 14], history=DEMOS[:5]).probability,
        other.destinations(begun, [15, 11, 14]).probability,
        rtol=1e-10,
    )


def test_each_group_has_its_own_history():
    forecast = maxent_forecaster()
    history = DEMOS[:6].replace(groups=["ann", "bob", "ann", "bob", "ann", "bob"])
    begun = Demonstrations.from_lists([[0, 1], [0, 1], [0, 4]], groups=["bob", "cid", "ann"])
    result = forecast.intents(begun, history=history)
    for i, own in enumerate((history[1::2], history[:0], history[::2])):
        np.testing.assert_allclose(
            result[i], forecast.intents(begun[[i]].replace(groups=None), history=own)[0], rtol=1e-10
        )
    with raises(InvalidDemos, parameter="history"):
        forecast.intents([0], history=[[0, 1]])


def test_routes_use_the_history_of_the_driver():
    costs = -np.abs(COSTS)
    forecast = Forecaster(make_mixture(DestinationMaxEnt(), RING, RHO, costs))
    history = Demonstrations.from_lists([[0, 3, 2]] * 4)
    joint = RHO * np.exp(DestinationMaxEnt().log_prob(RING, costs, history).sum(axis=0))
    sure = Forecaster(make_mixture(DestinationMaxEnt(), RING, joint / joint.sum(), costs))
    known_driver, wanted = forecast.routes(0, 2, k=2, history=history), sure.routes(0, 2, k=2)
    for one, two in zip(known_driver, wanted, strict=True):
        np.testing.assert_array_equal(one.states, two.states)
        np.testing.assert_allclose(one.probability, two.probability, rtol=1e-10)
    assert forecast.routes(0, 2, k=1)[0].probability < known_driver[0].probability


def test_flows_and_changes_with_history_use_the_posterior():
    costs = -np.abs(COSTS)
    forecast = Forecaster(make_mixture(DestinationMaxEnt(), RING, RHO, costs))
    history = Demonstrations.from_lists([[0, 3, 2]] * 40)
    driver = forecast.with_history(history)
    sure = Forecaster(make_mixture(DestinationMaxEnt(), RING, forecast.intents(history=history)[0], costs))
    assert abs(driver.weights[0] - RHO[0]) > 0.05
    np.testing.assert_allclose(driver.flows([0, 1], [2, 3]).edge, sure.flows([0, 1], [2, 3]).edge, rtol=1e-12)
    mine, theirs = (one.compare(one.with_closures(edges=[0]), [0], [2]) for one in (driver, sure))
    np.testing.assert_allclose(mine.edge, theirs.edge, rtol=1e-10, atol=1e-14)
    mine, theirs = (one.compare_routes(one.with_closures(edges=[0]), 0, 2) for one in (driver, sure))
    np.testing.assert_allclose(mine.before, theirs.before, rtol=1e-10)
    np.testing.assert_array_equal(forecast.weights, RHO)
    with raises(InvalidDemos, parameter="history"):
        forecast.with_history([[0, 1]])


def test_unbounded_length_is_the_limit_of_large_max_length():
    costs = np.array([[-2.0, -1.0], [-2.5, -0.5]])
    unbounded, long = (Forecaster(make_mixture(MaxEnt(n), RING, RHO, costs)) for n in (np.inf, 60))
    np.testing.assert_allclose(
        unbounded.next_states([0, 1], 3).probability, long.next_states([0, 1], 3).probability, rtol=1e-9
    )
    np.testing.assert_allclose(unbounded.flows([0, 1], [2, 3]).edge, long.flows([0, 1], [2, 3]).edge, rtol=1e-9)
    np.testing.assert_allclose(
        unbounded.destinations([0, 1], [1, 2, 3]).probability,
        long.destinations([0, 1], [1, 2, 3]).probability,
        rtol=1e-9,
    )
    for one, two in zip(unbounded.routes(0, 2), long.routes(0, 2), strict=True):
        np.testing.assert_allclose(one.probability, two.probability, rtol=1e-9)


def test_training_demonstrations_are_the_default_candidates():
    mix = IntentMixture(2, MaxEnt(7, (-5, 5)), random_state=0).fit(WALKS, DEMOS)
    result = Forecaster(mix).destinations([0, 1])
    states, counts = np.unique(DEMOS.last_states, return_counts=True)
    np.testing.assert_array_equal(result.candidates, states)
    same = Forecaster(mix).destinations([0, 1], states, counts)
    np.testing.assert_allclose(result.probability, same.probability, rtol=1e-12)
    np.testing.assert_allclose(
        Forecaster(mix).next_states([0, 1]).stop,
        mix.next_actions(DEMOS[:0] + Demonstrations.from_lists([[0, 1]])).stop,
        rtol=1e-9,
    )


def test_unfitted_mixtures_and_other_models_are_rejected():
    with raises(NotFitted):
        Forecaster(IntentMixture(2))
    with raises(InvalidParameter, parameter="mixture"):
        Forecaster(make_mixture(MLIRL(), WALKS, RHO, TASTES))
    several = IntentMixture(1, MaxEnt(bounds=(-3, 0))).fit([(WALKS, DEMOS), (WALKS, DEMOS)])
    with raises(InvalidParameter, parameter="mixture", value=("0", "1")):
        Forecaster(several)
    with raises(InvalidParameter, parameter="mixture", value="terminal_or_max_length"):
        maxent_forecaster(stop="terminal_or_max_length")


def test_invalid_arguments():
    forecast = maxent_forecaster()
    for partial in ([], [[0, 1]], 7):
        with raises(InvalidDemos, parameter="partial", value=partial):
            forecast.next_states(partial)
    with raises(InvalidDemos, parameter="partial", value=0):
        forecast.next_states(DEMOS[:0])
    with raises(InvalidDemos, parameter="demos", value=9, index=(0, 1)):
        forecast.next_states([0, 1, 9])
    with raises(InvalidDemos, parameter="demos", value=99, index=(0, 1)):
        forecast.next_states([0, 99])
    with raises(InvalidParameter, parameter="goal", value=16, index=0):
        forecast.next_states([0, 1], 16)
    with raises(InvalidParameter, parameter="goal", value=2):
        forecast.next_states([0, 1], [3, 4])
    with raises(InvalidDemos, parameter="goal", value=0, index=0):
        forecast.next_states([0, 1], 0)
    with raises(InvalidDemos, parameter="candidates", index=0):
        forecast.destinations([0, 1], [0, 4])
    with raises(InvalidParameter, parameter="candidates"):
        forecast.destinations([0, 1], [5, 5])
    for prior in ([1.0], [0.0, 0.0], [-1.0, 2.0], "own"):
        with raises(InvalidParameter, parameter="prior"):
            forecast.destinations([0, 1], [5, 6], prior)
    with raises(InvalidParameter, parameter="partial"):
        forecast.intents(goal=3)
    for method in (forecast.route, forecast.flows, forecast.predict_routes):
        with raises(InvalidParameter, parameter="starts"):
            method(5, 15)
    with raises(InvalidParameter, parameter="goals"):
        forecast.flows([0])
    for weights in ([1.0, 2.0], [-1.0], [np.nan]):
        with raises(InvalidParameter, parameter="weights"):
            forecast.flows([0], [5], weights)
    with raises(InvalidParameter, parameter="weights"):
        forecast.flows(weights=[1.0])
    with raises(InvalidParameter, parameter="n_trips", value=2.0):
        forecast.flows([0], [5], n_trips=2.0)


def test_a_prefix_of_max_length_ends():
    forecast = maxent_forecaster()
    whole = [0, 1, 2, 3, 7, 11, 15]
    result = forecast.next_states(whole)
    assert result.state.size == 0
    np.testing.assert_allclose(result.stop, [1.0], rtol=1e-12)
    assert result.most_likely.tolist() == [-1]
    assert repr(result) == "next: dead end; ends here 100.0 %"
    with raises(InvalidDemos, parameter="demos", value=7, index=0):
        Forecaster(make_mixture(MaxEnt(6, None), WALKS, RHO, TASTES)).next_states(whole)


def test_repr():
    forecast = maxent_forecaster()
    assert repr(forecast) == "Forecaster: 2 intents, unconditioned, 16 states"
    assert (
        repr(destination_forecaster().with_closures(edges=[0]))
        == "Forecaster: 2 intents, destination-conditioned, 4 states, changed"
    )
    both = forecast.next_states(Demonstrations.from_lists([[0], [0, 1]]))
    assert repr(both) == "4 next states of 2 partial trips"
    assert repr(both[-1]) == repr(forecast.next_states([0, 1]))
    with pytest.raises(IndexError, match="index 2"):
        both[2]
    assert repr(forecast.destinations(Demonstrations.from_lists([[0], [0, 1]]), [5, 6])) == (
        "destinations of 2 partial trips among 2 candidates"
    )
    assert repr(destination_forecaster().with_closures(states=[2]).flows([0, 1], [1, 2])).endswith(
        "; 1 pairs are not connected"
    )
