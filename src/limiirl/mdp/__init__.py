"""Markov decision processes as sparse edge lists, and the ways to build them."""

from limiirl.mdp.ensemble import RewardEnsemble
from limiirl.mdp.estimation import read_frame
from limiirl.mdp.features import FeatureInput, FeatureMatrix
from limiirl.mdp.mdp import MDP
from limiirl.mdp.planning import (
    BellmanEquations,
    action_values,
    check_policy,
    optimal_policy,
    optimal_values,
    policy_values,
)
from limiirl.mdp.shortest_paths import PathFinder, ShortestPath, ShortestPaths

__all__ = [
    "MDP",
    "BellmanEquations",
    "FeatureInput",
    "FeatureMatrix",
    "PathFinder",
    "RewardEnsemble",
    "ShortestPath",
    "ShortestPaths",
    "action_values",
    "check_policy",
    "optimal_policy",
    "optimal_values",
    "policy_values",
    "read_frame",
]
