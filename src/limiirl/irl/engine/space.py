"""Linear or log space? A rigorous bound on what linear space could lose decides."""

from __future__ import annotations

import math
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from limiirl.errors import InvalidParameter
from limiirl.kernels import linear, logspace

# Linear space is used where its relative loss by underflow is certainly below this.
LOSS = 1e-12
# exp(-708) is about the least normal double: what is smaller, relative to its scale, is lost.
_RANGE = 708.0
SPACES = ("auto", "linear", "log")


def log_loss_bound(
    n_states: int, max_length: int, log_growth: NDArray[np.float64], log_weight: NDArray[np.float64] | float = 0.0
) -> NDArray[np.float64]:
    """Return (K,) an upper bound on the logarithm of the share of Z that underflow can lose in linear space.

    log eps <= log S + 2 log L + L max(0, g) + v - 708, with g the largest growth of a step and v (`log_weight`) the
    largest weight that a message can have between the two factors of a step. It holds because trajectories may stop
    anywhere: then Z is at least every entry of every forward message, so that an entry lost to underflow, e^-708 of its
    message's scale, can have contributed at most that times the largest weight of going on, L e^(L g).

    Examples
    --------
    >>> log_loss_bound(54, 50, np.array([math.log(4)])) < math.log(LOSS)
    array([ True])
    """
    paths = math.log(n_states) + 2 * math.log(max_length)
    return paths + max_length * np.maximum(0.0, log_growth) + log_weight - _RANGE


def kernels_of(log: bool) -> ModuleType:
    """Return the sweeps of a number space: modules with the same functions and arguments."""
    return logspace if log else linear


def check_space(number_space: str) -> str:
    """Return the name of a number space, or say which there are."""
    if number_space not in SPACES:
        raise InvalidParameter(f"number_space must be one of {', '.join(SPACES)}; it is {number_space!r}.")
    return number_space
