"""Markov decision processes as sparse edge lists, and the ways to build them."""

from limiirl.mdp.mdp import MDP

__all__ = ["MDP"]
