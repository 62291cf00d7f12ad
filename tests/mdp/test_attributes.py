"""Attributes of route choice, and features of the goal."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from limiirl import MDP
from limiirl.errors import InvalidParameter
from limiirl.mdp import (
    GoalFeature,
    add_edge_features,
    add_goal_features,
    class_constants,
    distance_to_goal,
    edge_attribute,
    edge_constants,
    next_choices,
    similarity_to_goal,
    state_constants,
    turn_kinds,
)
from tests.helpers import raises


def ladder() -> MDP:
    """Return six states: edges 0-1, 0-2, 1-3, 2-3, 3-4 (twice), 4-0; state 5 is isolated."""
    return MDP.from_edges([0, 0, 1, 2, 3, 3, 4], [1, 2, 3, 3, 4, 4, 0], 6, state_features=np.ones((6, 1)))


def test_next_choices_is_the_log_out_degree_of_the_next_state() -> None:
    mdp = ladder()
    column = next_choices(mdp).values.toarray().ravel()
    np.testing.assert_allclose(column, np.log([1, 1, 2, 2, 1, 1, 2]), rtol=1e-15)
    counted = np.array([True, True, True, True, True, False, True])
    column = next_choices(mdp, counted).values.toarray().ravel()
    np.testing.assert_allclose(column, np.log([1, 1, 1, 1, 1, 1, 2]), rtol=1e-15)
    with raises(InvalidParameter, parameter="counted", value=(2,)):
        next_choices(mdp, [True, False])


def test_turn_kinds_have_the_published_thresholds() -> None:
    angles = np.array([-3.2, -3.0, -0.53, -0.52, 0.53, 3.11, np.nan])
    kinds = turn_kinds(ladder(), angles)
    assert kinds.names == ("left turn", "right turn", "U-turn")
    rows = [[0, 0, 1], [1, 0, 0], [1, 0, 0], [0, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]]
    np.testing.assert_array_equal(kinds.values.toarray(), rows)
    with raises(InvalidParameter, parameter="angle", value=(1,)):
        turn_kinds(ladder(), [0.0])


def test_constants_are_one_hot() -> None:
    mdp = ladder()
    edges = edge_constants(mdp, "turn", scale=0.5)
    np.testing.assert_array_equal(edges.values.toarray(), 0.5 * np.eye(7))
    assert edges.names[0] == "turn 0 > 1"
    assert edges.names[4:6] == ("turn 3 > 4 (0)", "turn 3 > 4 (1)")  # parallel edges are distinct
    states = state_constants(mdp, "link")
    assert states.names == ("link 0", "link 1", "link 2", "link 3", "link 4")
    np.testing.assert_array_equal(np.argmax(states.values.toarray(), axis=1), mdp.dst)
    classes = class_constants(mdp, list("abbacb"), "road")
    assert classes.names == ("road a", "road b", "road c")
    np.testing.assert_array_equal(classes.values.toarray().sum(axis=0), [3, 2, 2])
    by_edge = class_constants(mdp, np.arange(7) % 2, of="edge")
    np.testing.assert_array_equal(by_edge.values.toarray()[:, 1], np.arange(7) % 2)
    both = add_edge_features(mdp, edges, classes)
    assert both.n_features == 1 + 7 + 3
    with raises(InvalidParameter, parameter="labels", value=(7,)):
        class_constants(mdp, np.arange(7))
    with raises(InvalidParameter, parameter="of", value="node"):
        class_constants(mdp, np.arange(7), of="node")


def test_attributes_of_states_are_those_of_the_next_state() -> None:
    mdp = ladder()
    minutes = edge_attribute(mdp, np.arange(6.0), "minutes")
    np.testing.assert_array_equal(minutes.values.toarray().ravel(), mdp.dst)
    np.testing.assert_array_equal(
        edge_attribute(mdp, np.arange(7.0), "minutes", of="edge").values.toarray().ravel(), np.arange(7)
    )
    with raises(InvalidParameter, parameter="values", index=2):
        edge_attribute(mdp, [0.0, 0.0, np.inf, 0.0, 0.0, 0.0], "minutes")


def test_distances_are_those_of_the_cheapest_path() -> None:
    mdp = ladder()
    cost = np.array([1.0, 4.0, 1.0, 0.0, 9.0, 2.0, 1.0])  # one of the parallel edges costs 2
    feature = distance_to_goal(mdp, [4, 3, 4], cost)
    assert feature.goals.tolist() == [3, 4]
    # State 5 cannot reach the goals: it has the largest finite distance.
    np.testing.assert_array_equal(feature.values[feature.rows(None, np.array([4]))[0]], [4, 3, 2, 2, 0, 4])
    xy = np.column_stack([np.arange(6.0), np.zeros(6)])
    np.testing.assert_array_equal(distance_to_goal(mdp, [1], xy=xy).values, [[1, 0, 1, 2, 3, 4]])
    with raises(InvalidParameter, parameter="cost"):
        distance_to_goal(mdp, [1], -cost)
    with raises(InvalidParameter, parameter="goals"):
        distance_to_goal(mdp, [6])


def test_similarities_are_cosines_or_values_of_a_function() -> None:
    mdp, rng = ladder(), np.random.default_rng(0)
    vectors = rng.normal(size=(6, 3))
    vectors[2] = 0.0
    feature = similarity_to_goal(mdp, [0, 5], vectors)
    size = np.linalg.norm(vectors, axis=1)
    expected = [0.0 if s == 2 else vectors[s] @ vectors[5] / (size[s] * size[5]) for s in range(6)]
    np.testing.assert_allclose(feature.values[1], expected, atol=1e-15)
    own = similarity_to_goal(mdp, [0, 5], lambda goal: np.full(6, goal))
    np.testing.assert_array_equal(own.values[1], np.full(6, 5.0))
    with raises(InvalidParameter, parameter="of", value=(5, 3)):
        similarity_to_goal(mdp, [0], vectors[:5])


def test_goal_features_survive_replacement_and_files(tmp_path: Path) -> None:
    mdp = add_goal_features(
        ladder(), distance_to_goal(ladder(), [3]), GoalFeature("pair", np.eye(1, 7), [3], [0], "edge")
    )
    assert mdp.feature_names == ("state[0]", "distance", "pair")
    assert mdp.without_goal_features == ladder()
    wider = add_edge_features(mdp, edge_constants(mdp))
    assert wider.feature_names[-2:] == ("distance", "pair")
    assert mdp.replace(state_features=np.ones((6, 2))).feature_names == ("state[0]", "state[1]", "distance", "pair")
    mdp.save(tmp_path / "mdp.npz")
    assert MDP.load(tmp_path / "mdp.npz") == mdp
    np.testing.assert_array_equal(mdp.feature_sizes, [1.0, 3.0, 1.0])
    kept = mdp.goal_features[1].select_edges(np.array([0, 2]))
    np.testing.assert_array_equal(kept.values, [[1.0, 0.0]])


@pytest.mark.parametrize("of", ["state", "edge"])
def test_feature_counts_use_the_goal_of_each_demonstration(of: str) -> None:
    from limiirl import Demonstrations

    mdp, rng = ladder(), np.random.default_rng(0)
    values = rng.random((6, 6 if of == "state" else 7))
    mdp = add_goal_features(mdp, GoalFeature("own", values, np.arange(6), of=of))
    demos = Demonstrations.from_lists([[0, 1, 3], [0, 2, 3, 4], [2, 3]], [[0, 0], [1, 0, 1], [0]])
    edges = [[0, 2], [1, 3, 5], [3]]
    columns = [np.asarray(mdp.dst)[path] if of == "state" else path for path in edges]
    expected = [values[goal, at].sum() for goal, at in zip((3, 4, 3), columns, strict=True)]
    np.testing.assert_allclose(demos.features(mdp)[:, 1], expected, rtol=1e-12)
