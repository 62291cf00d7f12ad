"""The exact MaxEnt engine: sums over every trajectory of an MDP, their derivatives, and samples."""

from limiirl.irl.engine.finite import FiniteEngine
from limiirl.irl.engine.infinite import InfiniteEngine

__all__ = ["FiniteEngine", "InfiniteEngine"]
