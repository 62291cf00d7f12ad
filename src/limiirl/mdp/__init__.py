"""Markov decision processes as sparse edge lists, with planning and shortest paths."""

from limiirl.mdp.ensemble import RewardEnsemble
from limiirl.mdp.estimation import read_frame, rename_columns, split_columns
from limiirl.mdp.features import (
    FeatureInput,
    FeatureMatrix,
    edge_parts,
    expected_features,
    feature_sizes,
    is_frozen,
    to_dense,
)
from limiirl.mdp.habits import EdgeFeatures, add_edge_features, policy_features, sequence_features, turn_features
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
    "MDP", "BellmanEquations", "EdgeFeatures", "FeatureInput", "FeatureMatrix", "PathFinder", "RewardEnsemble",
    "ShortestPath", "ShortestPaths", "StateFeatures", "action_values", "add_edge_features", "check_policy",
    "column_names", "edge_parts", "encode", "expected_features", "feature_sizes", "find_reachable", "is_connected",
    "is_frozen", "is_text", "name_of", "nulls", "optimal_policy", "optimal_values", "policy_features", "policy_pairs",
    "policy_table", "policy_values", "reachable_states", "read_frame", "read_state_features", "rename_columns",
    "renumber", "sequence_features", "shortest_path", "split_columns", "to_dense", "turn_features",
]
# fmt: on
