"""Worlds with known truth: an MDP, and where intents exist, the true ensemble."""

from limiirl.worlds.elementworld import ElementWorld
from limiirl.worlds.roadgrid import RoadGrid

__all__ = ["ElementWorld", "RoadGrid"]
