"""Random numbers from a counter, so that a seed gives the same whatever the threads; and normal ones between bounds."""

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

_ROOT_HALF = math.sqrt(0.5)
# A normal variable lies this many deviations off with a chance of 1e-300: beyond, the chance is no number any more.
FARTHEST = 37.0


@njit(cache=True, nogil=True)
def uniform(state: NDArray[np.uint64]) -> float:
    """Return a number in [0, 1) and move the counter `state[0]` on (SplitMix64: a counter, mixed)."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return float((z ^ (z >> np.uint64(31))) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@njit(cache=True, nogil=True)
def normal_mass(low: float, high: float) -> float:
    """Return the chance that a standard normal variable lies between two bounds, exact in the tails too."""
    if low > 0.0:
        return 0.5 * (math.erfc(low * _ROOT_HALF) - math.erfc(high * _ROOT_HALF))
    if high < 0.0:
        return 0.5 * (math.erfc(-high * _ROOT_HALF) - math.erfc(-low * _ROOT_HALF))
    return 0.5 * (math.erf(high * _ROOT_HALF) - math.erf(low * _ROOT_HALF))


@njit(cache=True, nogil=True)
def normal_between(low: float, high: float, state: NDArray[np.uint64]) -> float:
    """Draw a standard normal variable, given that it lies between two bounds, by rejection (Robert 1995)."""
    if high < 0.0:
        return -_above(-high, -low, state)
    if low > 0.0:
        return _above(low, high, state)
    if high - low < 2.5:
        return _flat(low, high, 0.0, state)
    while True:
        # Box and Muller's transform; both of a pair would do, one is simpler.
        radius = math.sqrt(-2.0 * math.log(1.0 - uniform(state)))
        z = radius * math.cos(2.0 * math.pi * uniform(state))
        if low <= z <= high:
            return z


@njit(cache=True, nogil=True)
def _above(low: float, high: float, state: NDArray[np.uint64]) -> float:
    """The same for bounds above 0: from an exponential variable, or a flat one where the bounds are close."""
    rate = 0.5 * (low + math.sqrt(low * low + 4.0))
    if (high - low) * rate < 1.0:
        return _flat(low, high, low, state)
    while True:
        z = low - math.log(1.0 - uniform(state)) / rate
        if z <= high and uniform(state) <= math.exp(-0.5 * (z - rate) ** 2):
            return z


@njit(cache=True, nogil=True)
def _flat(low: float, high: float, top: float, state: NDArray[np.uint64]) -> float:
    """The same from a flat variable, where the density is greatest at `top`."""
    while True:
        z = low + (high - low) * uniform(state)
        if uniform(state) <= math.exp(0.5 * (top * top - z * z)):
            return z
