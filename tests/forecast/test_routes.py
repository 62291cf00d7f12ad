"""Shortest simple paths, compared with networkx; costs and predicted routes; and errors."""

import itertools

import networkx as nx
import numpy as np
import pytest

from limiirl import MDP, Demonstrations, DestinationMaxEnt, IntentMixture, MaxEnt, RewardEnsemble
from limiirl.errors import InvalidParameter
from limiirl.forecast import Forecaster, cheapest_routes
from limiirl.mdp.shortest_paths import PathFinder
from limiirl.worlds import RoadGrid
from tests.helpers import raises
from tests.oracles.forecasts import make_mixture


def random_graph(seed: int, n: int = 7, density: float = 0.45) -> tuple[MDP, np.ndarray, nx.DiGraph]:
    """Return an MDP of random edges, integer costs (so that many paths tie), and the same graph for networkx."""
    rng = np.random.default_rng(seed)
    pairs = [(a, b) for a in range(n) for b in range(n) if a != b and rng.random() < density]
    src, dst = zip(*pairs, strict=True)
    mdp = MDP.from_edges(src, dst, n_states=n)
    cost = rng.integers(0, 5, size=mdp.n_edges).astype(float)
    graph = nx.DiGraph()
    graph.add_nodes_from(range(n))
    graph.add_weighted_edges_from(zip(mdp.src.tolist(), mdp.dst.tolist(), cost.tolist(), strict=True))
    return mdp, cost, graph


@pytest.mark.parametrize("seed", range(25))
def test_shortest_simple_paths_agree_with_networkx(seed):
    mdp, cost, graph = random_graph(seed)
    finder = PathFinder(mdp, cost)
    for start, goal in itertools.permutations(range(0, 7, 2), 2):
        try:
            paths = list(nx.shortest_simple_paths(graph, start, goal, weight="weight"))
        except nx.NetworkXNoPath:
            paths = []
        wanted = [(nx.path_weight(graph, path, "weight"), path) for path in paths]
        ranked = finder.shortest_simple_paths(start, goal)
        result = [(path.cost, [start, *mdp.dst[list(path.edges)].tolist()]) for path in ranked]
        assert [total for total, _ in result] == [total for total, _ in wanted]
        assert sorted(result) == sorted(wanted)


def two_forks(model, gamma=1.0):
    """0 via 1 or 2 to 3, then via 4 or 5 to 6: one intent prefers 1 and 4, the other 2 and 5."""
    phi = np.zeros((7, 2))
    phi[[1, 4], 0], phi[[2, 5], 1] = 1.0, 1.0
    mdp = MDP.from_edges(
        [0, 0, 1, 2, 3, 3, 4, 5], [1, 2, 3, 3, 4, 5, 6, 6], n_states=7, state_features=phi, gamma=gamma
    )
    start = RewardEnsemble([0.5, 0.5], [[0.0, -3.0], [-2.0, 0.0]])
    demos = Demonstrations.from_lists([[0, 1, 3, 4, 6], [0, 2, 3, 5, 6]])
    return IntentMixture(2, model, init=start, max_iter=0).fit(mdp, demos), mdp, start


@pytest.mark.filterwarnings("ignore::limiirl.errors.LimiirlWarning")
@pytest.mark.parametrize(
    ("model", "gamma"),
    [(DestinationMaxEnt(bounds=(-10, 0)), 1.0), (MaxEnt(5, (-10, 0)), 1.0), (MaxEnt(5, (-10, 0)), 0.8)],
    ids=["destination", "maxent", "discounted"],
)
def test_routes_of_a_partial_trip_equal_enumeration(model, gamma):
    mixture, mdp, ensemble = two_forks(model, gamma)
    forecast = Forecaster(mixture)
    whole = [[0, a, 3, b, 6] for a in (1, 2) for b in (4, 5)]
    joint = np.exp(mixture.irl_.log_prob(mdp, ensemble.thetas, Demonstrations.from_lists(whole))) * ensemble.weights
    for a, rows in ((1, joint[:2]), (2, joint[2:])):
        result = forecast.routes(3, 6, 2, partial=[0, a, 3])
        wanted = dict(zip((4, 5), rows.sum(axis=1) / rows.sum(), strict=True))
        assert {int(route.states[1]) for route in result} == {4, 5}
        for route in result:
            np.testing.assert_allclose(route.probability, wanted[int(route.states[1])], rtol=1e-9)
            own = rows[int(route.states[1]) - 4]
            np.testing.assert_allclose(route.intents, own / own.sum(), rtol=1e-9)
        likeliest = forecast.route(3, 6, partial=[0, a, 3])
        assert likeliest.states.tolist() == [3, 4 if a == 1 else 5, 6]
        np.testing.assert_allclose(likeliest.probability, max(wanted.values()), rtol=1e-9)
    with raises(InvalidParameter, parameter="partial"):
        forecast.routes(3, 6, partial=[0, 1])


def test_paths_along_parallel_edges_are_distinct():
    mdp = MDP.from_edges([0, 0, 1, 1], [1, 1, 2, 2], action=[0, 1, 0, 1])
    result = list(PathFinder(mdp, [1.0, 2.0, 0.0, 4.0]).shortest_simple_paths(0, 2))
    assert [path.edges for path in result] == [(0, 2), (1, 2), (0, 3), (1, 3)]
    assert [path.cost for path in result] == [1.0, 2.0, 5.0, 6.0]


def test_infinite_costs_close_edges_and_the_path_to_the_start_is_empty():
    mdp = MDP.from_edges([0, 0, 1], [1, 2, 2])
    finder = PathFinder(mdp, [np.inf, 2.0, 1.0])
    assert [path.edges for path in finder.shortest_simple_paths(0, 2)] == [(1,)]
    assert list(finder.shortest_simple_paths(0, 1)) == []
    assert [tuple(path) for path in finder.shortest_simple_paths(1, 1)] == [((), 0.0)]


@pytest.mark.parametrize("threads", [1, 3])
def test_cheapest_routes_of_many_pairs(threads):
    town = RoadGrid(n_states=400, n_edges=800, seed=3)
    cost = town.length_km[town.mdp.dst]
    graph = nx.DiGraph()
    graph.add_weighted_edges_from(zip(town.mdp.src.tolist(), town.mdp.dst.tolist(), cost.tolist(), strict=True))
    rng = np.random.default_rng(0)
    starts, goals = rng.integers(400, size=(2, 300))
    starts[0] = goals[0]
    result = cheapest_routes(town.mdp, cost, starts, goals, threads=threads)
    np.testing.assert_array_equal(result.start_states, starts)
    np.testing.assert_array_equal(result.last_states, goals)
    lengths = dict(nx.all_pairs_dijkstra_path_length(graph))
    steps = result.steps(town.mdp)
    total = np.bincount(steps.demo_of_step, weights=cost[steps.edge], minlength=300)
    np.testing.assert_allclose(total, [lengths[s][g] for s, g in zip(starts, goals, strict=True)], rtol=1e-12)


def test_costs_and_pairs_are_checked():
    mdp = MDP.from_edges([0, 1], [1, 2])
    for cost, index in (([1.0], None), ([1.0, -2.0], 1), (["a", "b"], None)):
        with raises(InvalidParameter, parameter="cost", index=index):
            cheapest_routes(mdp, cost, [0], [1])
    with raises(InvalidParameter, parameter="cost", index=0):
        PathFinder(mdp, [np.nan, 1.0])
    with raises(InvalidParameter, parameter="starts", value=3, index=1):
        cheapest_routes(mdp, [1.0, 1.0], [0, 3], [1, 1])
    with raises(InvalidParameter, parameter="goals", value=0, index=1):
        cheapest_routes(mdp, [1.0, 1.0], [0, 2], [1, 0])
    with raises(InvalidParameter, parameter="goals", value=3):
        cheapest_routes(mdp, [1.0, 1.0], [0, 1], [1, 1, 2])
    with raises(InvalidParameter, parameter="starts"):
        cheapest_routes(mdp, [1.0, 1.0], [0.5], [1])
    assert len(cheapest_routes(mdp, [1.0, 1.0], [], [])) == 0


def town_forecaster(gamma: float = 1.0, max_length: int = 60, n_states: int = 300) -> tuple[RoadGrid, Forecaster]:
    """Return a small road grid and a forecaster with two intents."""
    town = RoadGrid(n_states=n_states, n_edges=2 * n_states, seed=1, gamma=gamma)
    rng = np.random.default_rng(2)
    thetas = -rng.uniform(0.5, 8.0, size=(2, town.mdp.n_features))
    return town, Forecaster(make_mixture(MaxEnt(max_length), town.mdp, [0.7, 0.3], thetas))


def test_predict_routes_maximises_the_mixture_probability():
    town, forecast = town_forecaster()
    rng = np.random.default_rng(0)
    starts, goals = rng.integers(town.mdp.n_states, size=(2, 40))
    result = forecast.predict_routes(starts, goals, threads=2)
    own = [forecast.predict_routes(starts, goals, np.eye(2)[k]) for k in range(2)]
    log_joint = [forecast.mixture.irl_.log_prob(town.mdp, forecast.thetas, r) + np.log(forecast.weights) for r in own]
    log_p = np.array([np.logaddexp.reduce(each, axis=1) for each in log_joint])
    best = np.argmax(log_p, axis=0)
    for i in range(40):
        np.testing.assert_array_equal(result[i].states, own[best[i]][i].states)
        assert result.labels[i] == np.argmax(log_joint[best[i]][i])
    for i in range(0, 40, 8):
        np.testing.assert_array_equal(forecast.route(int(starts[i]), int(goals[i])).states, result[i].states)
    # Each intent wins some pairs, and for some pairs the route with the largest single term is not the best.
    single = np.array([each[:, k] for k, each in enumerate(log_joint)])
    assert np.any(best == 0)
    assert np.any(best == 1)
    assert np.any(np.argmax(single, axis=0) != best)


def test_predicted_routes_of_one_intent_and_of_one_driver():
    town, forecast = town_forecaster()
    starts, goals = [3, 10, 77], [200, 150, 20]
    by_intent = [forecast.predict_routes(starts, goals, np.eye(2)[k]) for k in range(2)]
    for k in range(2):
        np.testing.assert_array_equal(by_intent[k].labels, k)
        costs = -town.mdp.rewards(forecast.thetas)[0][town.mdp.dst, k]
        assert by_intent[k].replace(labels=None) == cheapest_routes(town.mdp, costs, starts, goals)
    mixed = forecast.predict_routes(starts, goals, [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    assert mixed.labels.tolist() == [0, 1, 0]
    assert mixed[1] == by_intent[1][1]
    for wrong in ([0.5, 0.6], [1.0], [[1.0, 0.0]], [1.5, -0.5]):
        with raises(InvalidParameter, parameter="intents"):
            forecast.predict_routes(starts, goals, wrong)


@pytest.mark.parametrize("gamma", [1.0, 0.95])
def test_routes_longer_than_max_length_are_excluded(gamma):
    # Via 1, 2 and 3 the route is cheap but long; via 5 it is short but expensive.
    phi = [[0.0], [0.1], [0.1], [0.1], [0.0], [3.0]]
    mdp = MDP.from_edges([0, 1, 2, 3, 0, 5], [1, 2, 3, 4, 5, 4], gamma=gamma, state_features=phi)
    for length, best in ((5, [0, 1, 2, 3, 4]), (4, [0, 5, 4])):
        mix = make_mixture(MaxEnt(length), mdp, [1.0], [[-1.0]])
        forecast = Forecaster(mix)
        assert forecast.routes(0, 4)[0].states.tolist() == best
        assert len(forecast.routes(0, 4)) == (2 if length == 5 else 1)
        assert forecast.predict_routes([0], [4])[0].states.tolist() == [0, 1, 2, 3, 4]
    with raises(InvalidParameter, parameter="goal", value=4):
        forecast.route(0, 4)


def test_exact_marks_the_routes_whose_rank_is_proven():
    _, forecast = town_forecaster()
    certain = forecast.routes(3, 120, k=4)
    assert all(route.exact for route in certain)
    cut = forecast.routes(3, 120, k=4, most=4)
    assert not all(route.exact for route in cut)
    for route, other in zip(cut, certain, strict=False):
        assert not route.exact or route.states.tolist() == other.states.tolist()
    assert [r.probability for r in certain] == sorted((r.probability for r in certain), reverse=True)
    assert certain[0].probability >= forecast.route(3, 120).probability * (1.0 - 1e-12)


def test_probabilities_of_routes_are_exact_with_a_discount():
    town, forecast = town_forecaster(gamma=0.99, max_length=40)
    for route in forecast.routes(3, 120, k=3, most=60):
        demo = Demonstrations.from_lists([route.states], [town.mdp.act[route.edges]])
        joint = forecast.weights * np.exp(forecast.mixture.irl_.log_prob(town.mdp, forecast.thetas, demo)[0])
        np.testing.assert_allclose(route.intents, joint / joint.sum(), rtol=1e-8)


def test_with_a_discount_a_more_expensive_route_may_be_more_likely():
    # Via 1 the cost of 2 comes first; via 2, 3 and 5 the cost of 2.5 comes late, with a larger discount.
    phi = [[0.0], [2.0], [0.0], [0.0], [0.0], [2.5]]
    mdp = MDP.from_edges([0, 1, 0, 2, 3, 5], [1, 4, 2, 3, 5, 4], gamma=0.5, state_features=phi)
    forecast = Forecaster(make_mixture(MaxEnt(5), mdp, [1.0], [[-1.0]]))
    (best,) = forecast.routes(0, 4, k=1)
    assert best.states.tolist() == [0, 2, 3, 5, 4]
    assert best.exact
    (first,) = forecast.routes(0, 4, k=1, most=1)
    assert first.states.tolist() == [0, 1, 4]
    assert not first.exact


def test_positive_rewards_are_rejected():
    mdp = MDP.from_edges([0, 1], [1, 2], state_features=[[0.0], [1.0], [0.0]], edge_features=[[0.0], [1.0]])
    for theta, value, what in (([0.5, 0.0], 0.5, "state 1"), ([0.0, 0.25], 0.25, "edge 1")):
        mix = make_mixture(MaxEnt(3, (-1, 1)), mdp, [1.0], [theta])
        with raises(InvalidParameter, parameter="mixture", value=value, index=(1, 0)) as caught:
            Forecaster(mix).route(0, 2)
        assert what in str(caught.value)


def test_unreachable_goals_are_rejected():
    mdp = MDP.from_edges([0, 1], [1, 2], state_features=[1.0, 1.0, 1.0], p0=[0.5, 0.25, 0.25])
    mix = make_mixture(MaxEnt(3), mdp, [1.0], [[-1.0]])
    forecast = Forecaster(mix)
    for method in (forecast.route, forecast.routes):
        with raises(InvalidParameter, parameter="goal", value=0):
            method(2, 0)
    with raises(InvalidParameter, parameter="goals", value=0, index=0):
        forecast.predict_routes([2], [0])
    (here,) = forecast.routes(1, 1)
    assert here.states.tolist() == [1]
    with raises(InvalidParameter, parameter="k", value=0):
        forecast.routes(0, 2, k=0)
