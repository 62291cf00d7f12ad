"""Simulated worlds with known rewards."""

from typing import Any

from limiirl.worlds.base import IntentWorld, boltzmann_policy, geometric_weights, intent_counts
from limiirl.worlds.continuous_puddleworld import ContinuousPuddleWorld
from limiirl.worlds.elementworld import ElementWorld
from limiirl.worlds.objectworld import ObjectWorld
from limiirl.worlds.puddleworld import PuddleWorld
from limiirl.worlds.roadgrid import REGIONS, SECTORS, RoadGrid
from limiirl.worlds.syntheticworld import SyntheticWorld

WORLDS: dict[str, type[Any]] = {cls.__name__: cls for cls in (ElementWorld, PuddleWorld, ObjectWorld, SyntheticWorld)}
"""Finite worlds with a true ensemble, by name."""

# fmt: off
__all__ = [
    "REGIONS", "SECTORS", "WORLDS", "ContinuousPuddleWorld", "ElementWorld", "IntentWorld", "ObjectWorld",
    "PuddleWorld", "RoadGrid", "SyntheticWorld", "boltzmann_policy", "geometric_weights", "intent_counts",
]
# fmt: on
