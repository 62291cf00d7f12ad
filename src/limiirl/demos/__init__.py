"""Demonstrations: recorded trajectories, checked against an MDP, summed into features."""

from limiirl.demos.agents import Agents
from limiirl.demos.demonstrations import Demonstrations
from limiirl.demos.selection import Demonstration
from limiirl.demos.steps import Steps

__all__ = ["Agents", "Demonstration", "Demonstrations", "Steps"]
