"""MDP.from_gymnasium and MDP.from_networkx."""

from types import SimpleNamespace

import gymnasium
import networkx as nx
import numpy as np
import pytest
from gymnasium.envs.toy_text.cliffwalking import CliffWalkingEnv
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv
from gymnasium.envs.toy_text.taxi import TaxiEnv

from limiirl.errors import InvalidMDP
from limiirl.mdp import MDP
from tests.helpers import raises

ENVIRONMENTS = [
    (FrozenLakeEnv, {"map_name": "4x4", "is_slippery": True}, [5, 7, 11, 12, 15]),
    (FrozenLakeEnv, {"map_name": "8x8", "is_slippery": False}, [19, 29, 35, 41, 42, 46, 49, 52, 54, 59, 63]),
    (CliffWalkingEnv, {}, [47]),
    (CliffWalkingEnv, {"is_slippery": True}, [47]),
    # (row, column, passenger, destination) of the four places, with the passenger delivered there.
    (TaxiEnv, {}, [0, 85, 410, 475]),
]


def dense_table(env, terminal):
    core = env.unwrapped
    T = np.zeros((env.observation_space.n, env.action_space.n, env.observation_space.n))
    for s in range(T.shape[0]):
        for a in range(T.shape[1]):
            for prob, target, _, _ in core.P[s][a]:
                T[s, a, target] += prob
    T[terminal] = 0.0
    return T


@pytest.mark.parametrize(("kind", "options", "terminal"), ENVIRONMENTS)
def test_toy_text_environments_equal_their_dense_tables(kind, options, terminal):
    env = kind(**options)
    mdp = MDP.from_gymnasium(env)
    np.testing.assert_array_equal(np.flatnonzero(mdp.terminal), terminal)
    T = dense_table(env, terminal)
    rebuilt = np.zeros_like(T)
    rebuilt[mdp.src, mdp.act, mdp.dst] = mdp.prob
    # The sums of thirds may be added in another order.
    np.testing.assert_allclose(rebuilt, T, rtol=1e-15, atol=0)
    np.testing.assert_array_equal(mdp.p0, env.unwrapped.initial_state_distrib)
    assert mdp.gamma == 0.99
    assert mdp.n_features == mdp.n_states


def test_gymnasium_options_are_passed_on():
    env = gymnasium.make("FrozenLake-v1", map_name="4x4")
    assert not hasattr(env, "P")
    phi = np.arange(16.0)
    on_action = np.arange(64.0).reshape(16, 4, 1)
    p0 = np.full(16, 1 / 16)
    mdp = MDP.from_gymnasium(
        env, gamma=0.5, state_features=phi, action_features=on_action, p0=p0, terminal=[15], feature_names=["x", "y"]
    )
    assert mdp.gamma == 0.5
    np.testing.assert_array_equal(mdp.p0, p0)
    np.testing.assert_array_equal(np.flatnonzero(mdp.terminal), [15])
    np.testing.assert_array_equal(mdp.state_features[:, 0], phi)
    np.testing.assert_array_equal(mdp.action_features, on_action[mdp.pair_state, mdp.pair_action])
    assert mdp.feature_names == ("x", "y")


def environment(P, **attributes):
    return SimpleNamespace(P=P, **attributes)


def test_duplicate_outcomes_are_summed_and_zero_probabilities_dropped():
    P = [
        [[(0.25, 1, 0.0, True), (0.5, 0, 0.0, False), (0.25, 1, 1.0, True), (0.0, 0, 0.0, True)]],
        [[(1.0, 1, 0, True)]],
    ]
    mdp = MDP.from_gymnasium(environment(P))
    np.testing.assert_array_equal(mdp.dst, [0, 1])
    np.testing.assert_array_equal(mdp.prob, [0.5, 0.5])
    np.testing.assert_array_equal(mdp.p0, [1.0, 0.0])


def test_state_entered_with_and_without_done_is_rejected():
    # 0 -> 1 ends the episode by action 0, but not by action 1.
    P = {0: {0: [(1.0, 1, 0, True)], 1: [(1.0, 1, 0, False)]}, 1: {0: [(1.0, 0, 0, False)]}}
    with raises(InvalidMDP, parameter="terminal", value=1):
        MDP.from_gymnasium(environment(P))
    with raises(InvalidMDP, parameter="terminal", value=1):
        MDP.from_gymnasium(environment(P, initial_state_distrib=[1.0, 0.0]))
    assert not MDP.from_gymnasium(environment(P), terminal=[]).terminal.any()


def test_terminal_start_state_is_rejected():
    P = {0: {0: [(1.0, 1, 0, False)]}, 1: {0: [(1.0, 0, 0, True)]}}
    with raises(InvalidMDP, parameter="terminal", value=0):
        MDP.from_gymnasium(environment(P, initial_state_distrib=[1.0, 0.0]))


def test_unreachable_transitions_do_not_affect_terminal_states():
    # State 2 is out of reach and enters 1 without done; 1 goes on after the end; 3 ends only by its own loop.
    P = {
        0: {0: [(1.0, 1, 0, True)]},
        1: {0: [(1.0, 1, 0, False)]},
        2: {0: [(1.0, 1, 0, False)]},
        3: {0: [(1.0, 3, 0, True)]},
    }
    mdp = MDP.from_gymnasium(environment(P, initial_state_distrib=np.array([1.0, 0, 0, 0])))
    np.testing.assert_array_equal(mdp.terminal, [False, True, False, True])


BAD_ENVIRONMENTS = [
    (
        SimpleNamespace(),
        {"parameter": "env", "value": "SimpleNamespace"},
    ),
    (environment({0: {0: [(1.0, 0, 0)]}}), {"parameter": "env", "index": (0, 0)}),
    (environment({0: {"up": [(1.0, 0, 0, False)]}}), {"parameter": "env"}),
    (environment({0: {0: [(0.5, 0, 0, False)]}}), {"parameter": "prob", "value": 0.5, "index": (0, 0)}),
    (environment({0: {0: [(np.nan, 0, 0, False)]}}), {"parameter": "prob", "index": 0}),
    (environment({0: {0: [(1.0, -1, 0, False)]}}), {"parameter": "dst", "value": -1, "index": 0}),
    (
        environment({0: {0: [(1.0, 3, 0, True)]}}, observation_space=SimpleNamespace(n=2)),
        {"parameter": "dst", "value": 3, "index": 0},
    ),
    (
        environment({0: {0: [(1.0, 1, 0, True)]}}, initial_state_distrib=[0.5, 0.25, 0.25]),
        {"parameter": "p0", "value": (3,)},
    ),
    (environment({}), {"parameter": "n_states", "value": 0}),
]


@pytest.mark.parametrize(("env", "expected"), BAD_ENVIRONMENTS)
def test_invalid_environments_are_rejected(env, expected):
    with raises(InvalidMDP, **expected):
        MDP.from_gymnasium(env)


def edge_list(mdp):
    return list(zip(mdp.src.tolist(), mdp.act.tolist(), mdp.dst.tolist(), strict=True))


def test_directed_graph():
    graph = nx.DiGraph()
    graph.add_node("c", toll=3)
    graph.add_node("a", toll=True)
    graph.add_node("b", toll=0.5)
    graph.add_edge("a", "b", length=2.0, lanes=1)
    graph.add_edge("c", "a", length=4.0, lanes=2)
    graph.add_edge("a", "c", length=8.0, lanes=np.int64(3))
    mdp = MDP.from_networkx(graph, features=["lanes", "toll", "length"], gamma=0.9)
    assert mdp.state_names == ("c", "a", "b")
    assert edge_list(mdp) == [(0, 0, 1), (1, 0, 2), (1, 1, 0)]
    assert mdp.feature_names == ("toll", "lanes", "length")
    np.testing.assert_array_equal(mdp.state_features, [[3.0], [1.0], [0.5]])
    np.testing.assert_array_equal(mdp.edge_features, [[2.0, 4.0], [1.0, 2.0], [3.0, 8.0]])
    np.testing.assert_array_equal(mdp.terminal, [False, False, True])
    np.testing.assert_array_equal(mdp.p0, [0.5, 0.5, 0.0])
    assert mdp.gamma == 0.9
    assert mdp.deterministic


def test_undirected_edges_are_two_actions_and_loops_one():
    graph = nx.Graph()
    graph.add_edge(10, 20, length=1.0)
    graph.add_edge(20, 30, length=2.0)
    graph.add_edge(30, 30, length=3.0)
    mdp = MDP.from_networkx(graph, features=["length"], terminal=[10])
    assert edge_list(mdp) == [(1, 0, 0), (1, 1, 2), (2, 0, 1), (2, 1, 2)]
    np.testing.assert_array_equal(mdp.edge_features[:, 0], [1.0, 2.0, 2.0, 3.0])
    assert mdp.state_names == ("10", "20", "30")
    assert mdp.gamma == 1.0


@pytest.mark.parametrize("kind", [nx.MultiGraph, nx.MultiDiGraph])
def test_parallel_edges_are_separate_actions(kind):
    graph = kind()
    graph.add_edge("a", "b", length=1.0)
    graph.add_edge("a", "b", length=2.0)
    mdp = MDP.from_networkx(graph, features=["length"])
    both_ways = kind is nx.MultiGraph
    assert edge_list(mdp) == [(0, 0, 1), (0, 1, 1)] + ([(1, 0, 0), (1, 1, 0)] if both_ways else [])
    np.testing.assert_array_equal(mdp.edge_features[:, 0], [1.0, 2.0] * (2 if both_ways else 1))


def test_default_features_are_state_indicators():
    mdp = MDP.from_networkx(nx.path_graph(3))
    np.testing.assert_array_equal(mdp.state_features.toarray(), np.eye(3))


@pytest.mark.parametrize("p0", [{"b": 0.25, "a": 0.75}, [0.75, 0.25]])
def test_start_by_node_or_by_array(p0):
    mdp = MDP.from_networkx(nx.DiGraph([("a", "b")]), p0=p0)
    np.testing.assert_array_equal(mdp.p0, [0.75, 0.25])


def partial_graph():
    graph = nx.DiGraph([("a", "b"), ("b", "c")])
    graph.add_nodes_from(graph, both=1.0, name="x")
    graph.add_edges_from(graph.edges, both=2.0)
    graph.nodes["a"]["height"] = 1.0
    graph["a"]["b"]["length"] = 1.0
    return graph


BAD_GRAPHS = [
    ({"features": ["both"]}, {"parameter": "features", "value": "both"}),
    ({"features": ["height"]}, {"parameter": "features", "value": "height"}),
    ({"features": ["length"]}, {"parameter": "features", "value": "length"}),
    ({"features": ["nonsense"]}, {"parameter": "features", "value": "nonsense"}),
    ({"features": ["name"]}, {"parameter": "features", "value": "x", "index": 0}),
    ({"features": "name"}, {"parameter": "features", "value": "name"}),
    ({"terminal": ["z"]}, {"parameter": "terminal", "value": "z"}),
    ({"p0": {"z": 1.0}}, {"parameter": "p0", "value": "z"}),
    ({"p0": {"a": 0.5}}, {"parameter": "p0", "value": 0.5}),
]


@pytest.mark.parametrize(("options", "expected"), BAD_GRAPHS)
def test_invalid_graph_options_are_rejected(options, expected):
    with raises(InvalidMDP, **expected):
        MDP.from_networkx(partial_graph(), **options)


def test_nodes_with_equal_names_are_rejected():
    with raises(InvalidMDP, parameter="graph", value="1"):
        MDP.from_networkx(nx.DiGraph([(1, "1")]))


def test_feature_of_an_edge_must_be_a_number():
    graph = nx.DiGraph()
    graph.add_edge("a", "b", kind="street")
    with raises(InvalidMDP, parameter="features", value="street", index=0):
        MDP.from_networkx(graph, features=["kind"])


def test_graph_without_edges_or_nodes():
    graph = nx.Graph()
    with raises(InvalidMDP, parameter="n_states", value=0):
        MDP.from_networkx(graph)
    graph.add_node("a", size=2.0)
    np.testing.assert_array_equal(MDP.from_networkx(graph, features=["size"]).state_features, [[2.0]])
