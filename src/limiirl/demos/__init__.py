"""Demonstrations: recorded trajectories, checked against an MDP, summed into features."""

from limiirl.demos.agents import Agent, Agents
from limiirl.demos.demonstrations import Demonstrations
from limiirl.demos.groups import Groups
from limiirl.demos.indexing import Demonstration, same
from limiirl.demos.io import read_table
from limiirl.demos.simulate import simulate
from limiirl.demos.transitions import Steps, feature_counts
from limiirl.demos.validate import as_attribute, frozen, name_demo

__all__ = [
    "Agent",
    "Agents",
    "Demonstration",
    "Demonstrations",
    "Groups",
    "Steps",
    "as_attribute",
    "feature_counts",
    "frozen",
    "name_demo",
    "read_table",
    "same",
    "simulate",
]
