"""Comparison with published methods on their own data and splits: `limiirl reproduce rivals`.

`RIVAL_PARTS` contains the data sets. A new one is a module that defines a `RivalPart`, and an entry here.
"""

from limiirl.experiments.rivals.routes import BORLANGE, BORLANGE_SAMPLE, SHANGHAI
from limiirl.experiments.rivals.run import (
    Goal,
    Published,
    RivalPart,
    RivalRecord,
    RivalResults,
    RivalRow,
    RivalSpec,
    Score,
    choose_parts,
    read_rivals,
    run_rivals,
)
from limiirl.experiments.rivals.swirl import GRIDWORLD, LABYRINTH, MICE

RIVAL_PARTS = {part.name: part for part in (LABYRINTH, GRIDWORLD, MICE, BORLANGE, BORLANGE_SAMPLE, *SHANGHAI)}
"""Parts of the comparison by name."""

__all__ = [
    "RIVAL_PARTS",
    "Goal",
    "Published",
    "RivalPart",
    "RivalRecord",
    "RivalResults",
    "RivalRow",
    "RivalSpec",
    "Score",
    "choose_parts",
    "read_rivals",
    "run_rivals",
]
