"""Data sets: small ones that are simulated here, and readers of published ones from a local folder.

Nothing is downloaded. Every function returns a `Dataset` with an MDP and demonstrations.
"""

from limiirl.datasets.base import Dataset
from limiirl.datasets.published import (
    load_borlange,
    load_mouse_labyrinth,
    load_shanghai,
    load_swirl_gridworld,
    load_swirl_labyrinth,
)
from limiirl.datasets.simulated import make_commutes, make_foraging

__all__ = [
    "Dataset",
    "load_borlange",
    "load_mouse_labyrinth",
    "load_shanghai",
    "load_swirl_gridworld",
    "load_swirl_labyrinth",
    "make_commutes",
    "make_foraging",
]
