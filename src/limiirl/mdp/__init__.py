"""Markov decision processes as sparse edge lists, with planning and shortest paths."""

from limiirl.mdp.attributes import (
    class_constants,
    distance_to_goal,
    edge_attribute,
    edge_constants,
    next_choices,
    similarity_to_goal,
    state_constants,
    turn_kinds,
)
from limiirl.mdp.ensemble import RewardEnsemble
from limiirl.mdp.estimation import read_frame, rename_columns, split_columns
from limiirl.mdp.features import (
    FeatureInput,
    FeatureMatrix,
    GoalFeature,
    as_features,
    edge_parts,
    expected_features,
    feature_sizes,
    goal_feature_counts,
    is_frozen,
    to_dense,
)
from limiirl.mdp.habits import (
    EdgeFeatures,
    add_edge_features,
    add_goal_features,
    policy_features,
    sequence_features,
    turn_features,
)
from limiirl.mdp.mdp import MDP, reachable_states
from limiirl.mdp.planning import (
    BellmanEquations,
    action_values,
    check_policy,
    optimal_policy,
    optimal_values,
    policy_pairs,
    policy_table,
    policy_values,
)
from limiirl.mdp.shortest_paths import (
    PathFinder,
    ShortestPath,
    ShortestPaths,
    find_reachable,
    is_connected,
    shortest_path,
)  # fmt: skip
from limiirl.mdp.tables import (
    StateFeatures,
    column_names,
    encode,
    is_text,
    name_of,
    nulls,
    read_state_features,
    renumber,
)

# fmt: off
__all__ = [
    "MDP", "BellmanEquations", "EdgeFeatures", "FeatureInput", "FeatureMatrix", "GoalFeature", "PathFinder",
    "RewardEnsemble", "ShortestPath", "ShortestPaths", "StateFeatures", "action_values", "add_edge_features",
    "add_goal_features", "as_features", "check_policy", "class_constants", "column_names", "distance_to_goal",
    "edge_attribute", "edge_constants", "edge_parts", "encode", "expected_features", "feature_sizes",
    "find_reachable", "goal_feature_counts", "is_connected", "is_frozen", "is_text", "name_of", "next_choices",
    "nulls", "optimal_policy", "optimal_values", "policy_features", "policy_pairs", "policy_table", "policy_values",
    "reachable_states", "read_frame", "read_state_features", "rename_columns", "renumber", "sequence_features",
    "shortest_path", "similarity_to_goal", "split_columns", "state_constants", "to_dense", "turn_features",
    "turn_kinds",
]
# fmt: on
