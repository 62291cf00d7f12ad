"""Demonstrations: recorded trajectories, checked against an MDP, summed into features."""

from limiirl.demos.agents import Agents
from limiirl.demos.demonstrations import Demonstrations
from limiirl.demos.indexing import Demonstration
from limiirl.demos.transitions import Steps

__all__ = ["Agents", "Demonstration", "Demonstrations", "Steps"]
