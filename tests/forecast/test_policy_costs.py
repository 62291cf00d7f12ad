"""Routes under rewards of any sign and under features of the goal: against enumeration of all simple routes."""

from __future__ import annotations

import numpy as np
import pytest

from limiirl import MDP, Demonstrations, DestinationMaxEnt, IntentMixture, MaxEnt, RewardEnsemble
from limiirl.forecast import Forecaster
from limiirl.mdp import GoalFeature, add_goal_features
from tests.irl.destination.test_by_goal import flatten, lattice, trips, with_goals

pytestmark = pytest.mark.filterwarnings("ignore::limiirl.errors.LimiirlWarning")
# The first intent rewards the edge feature, so that rewards of some edges are positive.
ENSEMBLE = RewardEnsemble([0.6, 0.4], [[-1.6, 1.0, -0.6, -0.2], [-1.3, -0.5, -0.1, -0.8]])


def fit(mdp: MDP, ensemble: RewardEnsemble = ENSEMBLE) -> IntentMixture:
    return IntentMixture(2, DestinationMaxEnt(bounds=None), init=ensemble, max_iter=0).fit(
        mdp, trips(with_goals(False))
    )


def simple_paths(mdp: MDP, start: int, goal: int) -> list[list[int]]:
    """Return the edges of all paths without repeated states."""
    complete, partial = [], [(start, [start], [])]
    while partial:
        at, visited, path = partial.pop()
        for e in range(int(mdp.out_ptr[at]), int(mdp.out_ptr[at + 1])):
            target = int(mdp.dst[e])
            if target == goal:
                complete.append([*path, e])
            elif target not in visited:
                partial.append((target, [*visited, target], [*path, e]))
    return complete


def cases() -> list[tuple[str, MDP, RewardEnsemble]]:
    general = RewardEnsemble(ENSEMBLE.weights, np.asarray(ENSEMBLE.thetas)[:, :2])
    return [
        ("general", lattice(), general),
        ("goal", with_goals(False), ENSEMBLE),
        ("pair", with_goals(True), ENSEMBLE),
    ]


@pytest.mark.parametrize(("mdp", "ensemble"), [case[1:] for case in cases()], ids=[case[0] for case in cases()])
def test_routes_agree_with_enumeration(mdp: MDP, ensemble: RewardEnsemble) -> None:
    demos = trips(with_goals(False)) if mdp.goal_features else None
    model = DestinationMaxEnt(bounds=None)
    mix = IntentMixture(2, model, init=ensemble, max_iter=0).fit(mdp, trips(with_goals(False)))
    forecast = Forecaster(mix, demos)
    start, goal = 0, 10
    plain = flatten(mdp, start, goal)
    paths = simple_paths(mdp, start, goal)
    listed = Demonstrations.from_lists([[start, *mdp.dst[path].tolist()] for path in paths])
    log_prob = np.logaddexp.reduce(model.log_prob(plain, ensemble.thetas, listed) + np.log(ensemble.weights), axis=1)
    best = np.argsort(-log_prob)[:3]
    routes = forecast.routes(start, goal, 3)
    np.testing.assert_allclose([route.log_prob for route in routes], log_prob[best], rtol=1e-9)
    assert [route.edges.tolist() for route in routes] == [paths[i] for i in best]
    assert all(route.exact for route in routes)
    np.testing.assert_allclose(forecast.score_routes(listed), log_prob, rtol=1e-9)
    starts, goals = np.array([0, 15, 0, 3]), np.array([10, 0, 15, 12])
    by_intent = forecast.predict_routes(starts, goals)
    by_search = forecast.predict_routes(starts, goals, candidates=30)
    for i in range(4):
        assert by_intent[[i]].states.tolist() == forecast.route(int(starts[i]), int(goals[i])).states.tolist()
        assert by_search[[i]].states.tolist() == forecast.routes(int(starts[i]), int(goals[i]), 1)[0].states.tolist()
    assert np.all(forecast.score_routes(by_search) >= forecast.score_routes(by_intent) - 1e-12)


@pytest.mark.parametrize("by_start", [False, True])
def test_next_states_and_destinations_with_goal_features(by_start: bool) -> None:
    mdp = with_goals(by_start)
    mix = fit(mdp)
    forecast = Forecaster(mix, trips(with_goals(False)))
    model, begun = DestinationMaxEnt(bounds=None), Demonstrations.from_lists([[0, 1]])
    plain = flatten(mdp, 0, 10)
    log_p = model.log_prob_prefix(plain, ENSEMBLE.thetas, begun, [10])[0] + np.log(ENSEMBLE.weights)
    posterior = np.exp(log_p - np.logaddexp.reduce(log_p))
    np.testing.assert_allclose(forecast.intents(begun, 10)[0], posterior, rtol=1e-9)
    policy = np.array([model.policy_to(plain, theta, 10) for theta in ENSEMBLE.thetas]).T @ posterior
    following = forecast.next_states(begun, 10)
    for state, probability in zip(following.state.tolist(), following.probability.tolist(), strict=True):
        expected = policy[(mdp.src == 1) & (mdp.dst == state)].sum()
        np.testing.assert_allclose(probability, expected, rtol=1e-9)
    candidates = np.array([10, 5, 15])
    by_goal = [
        np.exp(model.log_prob_prefix(flatten(mdp, 0, int(g)), ENSEMBLE.thetas, begun, [g])[0]) @ ENSEMBLE.weights
        for g in candidates
    ]
    result = forecast.destinations(begun, candidates)
    np.testing.assert_allclose(result.probability[0], by_goal / np.sum(by_goal), rtol=1e-9)


def test_closures_keep_goal_features_of_the_open_edges() -> None:
    mdp = with_goals(True)
    closed = int(np.flatnonzero((mdp.src == 0) & (mdp.dst == 1))[0])
    after = Forecaster(fit(mdp)).with_closures(edges=[closed])
    route = after.route(0, 10)
    kept = np.delete(np.arange(mdp.n_edges), closed)
    plain = flatten(mdp, 0, 10)
    plain = MDP.from_edges(
        plain.src[kept],
        plain.dst[kept],
        16,
        state_features=plain.state_features,
        edge_features=plain.edge_features[kept],
    )
    demos = Demonstrations.from_lists([route.states])
    log_prob = DestinationMaxEnt(bounds=None).log_prob(plain, ENSEMBLE.thetas, demos)[0]
    np.testing.assert_allclose(route.log_prob, np.logaddexp.reduce(log_prob + np.log(ENSEMBLE.weights)), rtol=1e-9)


def test_scores_use_the_history_of_the_driver() -> None:
    mdp = add_goal_features(lattice(), GoalFeature("own", np.eye(16), np.arange(16)))
    ensemble = RewardEnsemble([0.5, 0.5], [[-1.5, 0.0, 0.0], [-1.5, -2.0, 0.5]])
    forecast = Forecaster(fit(mdp, ensemble))
    demos = trips(with_goals(False), 6)
    history, test = demos[:4], demos[4:]
    log_p = DestinationMaxEnt(bounds=None).log_prob(mdp, ensemble.thetas, history).sum(axis=0)
    own = log_p - np.logaddexp.reduce(log_p)
    expected = np.logaddexp.reduce(DestinationMaxEnt(bounds=None).log_prob(mdp, ensemble.thetas, test) + own, axis=1)
    np.testing.assert_allclose(forecast.score_routes(test, history), expected, rtol=1e-9)
    assert np.all(forecast.score_routes(test, history) != forecast.score_routes(test))


def test_scores_of_a_model_without_destinations_condition_on_the_ends() -> None:
    phi = [[0, 0], [1, 0], [0, 1], [0, 0]]
    mdp = MDP.from_edges([0, 0, 1, 2], [1, 2, 3, 3], p0=[1, 0, 0, 0], state_features=phi)
    demos = Demonstrations.from_lists([[0, 1, 3]] * 3 + [[0, 2, 3]])
    ensemble = RewardEnsemble([0.5, 0.5], [[-1.0, -2.0], [-3.0, 0.0]])
    mix = IntentMixture(2, MaxEnt(), init=ensemble, max_iter=0).fit(mdp, demos)
    forecast = Forecaster(mix)
    routes = forecast.routes(0, 3)
    scores = forecast.score_routes(Demonstrations.from_lists([route.states for route in routes]))
    np.testing.assert_allclose(scores, [route.log_prob for route in routes], rtol=1e-12)
    np.testing.assert_allclose(np.exp(scores).sum(), 1.0, rtol=1e-12)
