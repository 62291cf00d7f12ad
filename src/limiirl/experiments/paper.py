"""What the paper reports of ElementWorld, and whether a figure of ours agrees with it.

Paper: Table 1. It prints full widths of 95 % intervals after the "±" (spec.md, section 0), which are halved here.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import NamedTuple

from limiirl.metrics import Interval, agrees


class Reported(NamedTuple):
    """A mean as printed, its half-width, and what its decimals may hide."""

    mean: float
    half_width: float
    rounding: float = 0.005


NAMES = MappingProxyType(
    {
        "k-means, MLE": "LiMIIRL-MLE",
        "k-means, mean": "LiMIIRL-Mean",
        "random rewards": "Random",
        "supervised": "Supervised",
    }
)
"""The paper's names of our methods."""

TABLE1 = MappingProxyType(
    {
        "k-means, MLE": {
            "n_iter": Reported(3.41, 0.70),
            "seconds": Reported(33.20, 6.745),
            "nll": Reported(19.65, 0.32),
            "anid": Reported(0.03, 0.005),
            "gevd": Reported(3.70, 0.555),
        },
        "k-means, mean": {
            "n_iter": Reported(5.08, 0.565),
            "seconds": Reported(21.86, 3.325),
            "nll": Reported(19.76, 0.225),
            "anid": Reported(0.04, 0.005),
            "gevd": Reported(4.49, 0.49),
        },
        "random rewards": {
            "n_iter": Reported(17.22, 2.40),
            "seconds": Reported(136.58, 19.845),
            "nll": Reported(20.05, 0.355),
            "anid": Reported(0.13, 0.035),
            "gevd": Reported(6.75, 1.045),
        },
        "supervised": {
            "nll": Reported(19.65, 0.33),
            "anid": Reported(0.04, 0.005),
            "gevd": Reported(3.65, 0.635),
        },
    }
)
"""Table 1, the ElementWorld half: by method and measure. The paper's iterations and durations are no target."""

TARGETS = ("nll", "anid", "gevd")
"""Measures that are to agree: the paper's iterations end by a rule that its inexact gradient triggers."""


def verdict(ours: Interval, reported: Reported) -> str:
    """Return "agrees", "in rounding" if it does for some number that the paper would print so, or "differs".

    Examples
    --------
    >>> verdict(Interval(0.043, 0.007, 0.036, 0.05, 100), TABLE1["k-means, MLE"]["anid"])
    'in rounding'
    """
    target = (reported.mean, reported.half_width)
    if agrees(ours, target):
        return "agrees"
    return "in rounding" if agrees(ours, target, reported.rounding) else "differs"
