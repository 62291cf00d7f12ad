"""A network as both matchers search it: the grid over its segments, and its streets."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from limiirl.errors import InvalidParameter
from limiirl.kernels.candidates import GridIndex, rasterise
from limiirl.kernels.routing import Streets, streets
from limiirl.roads.network import RoadNetwork

CELL_M = 60.0
"""Side of a cell: about the search radius, so that a search looks at some nine cells."""


def only_neighbours(network: RoadNetwork) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return (S,) the segment before each and (S,) the one after, where neither end offers a choice; else -1.

    Segment b is after a if b is the only turn out of a and a the only turn into b.

    Examples
    --------
    >>> fork = RoadNetwork.from_segments([0, 0, 0, 1], [0, 1, 2, 2], [0, 1, 2, 2], [1, 2, 1, 3])
    >>> only_neighbours(fork)[1]  # from 0 to 1; there 3 is the only way on, since back is no turn
    array([ 1,  3, -1, -1], dtype=int32)
    """
    n = network.n_segments
    ways_out = np.bincount(network.turn_from, minlength=n)
    ways_in = np.bincount(network.turn_to, minlength=n)
    single = (ways_out[network.turn_from] == 1) & (ways_in[network.turn_to] == 1)
    before, after = np.full(n, -1, dtype=np.int32), np.full(n, -1, dtype=np.int32)
    before[network.turn_to[single]] = network.turn_from[single]
    after[network.turn_from[single]] = network.turn_to[single]
    return before, after


def streets_of(network: RoadNetwork) -> Streets:
    """Return the streets of a network: chains of segments without a choice.

    Examples
    --------
    >>> fork = RoadNetwork.from_segments([0, 0, 0, 1], [0, 1, 2, 2], [0, 1, 2, 2], [1, 2, 1, 3])
    >>> streets_of(fork).street
    array([0, 0, 1, 0], dtype=int32)
    """
    return streets(*only_neighbours(network), network.length_m, network.out_ptr, network.turn_to)


def index(network: RoadNetwork, cell_m: float = CELL_M) -> GridIndex:
    """Return the grid over a network's segments, on its flat map.

    Examples
    --------
    >>> street = RoadNetwork.from_segments([41.15, 41.151], [-8.63, -8.63], [0, 1], [1, 0])
    >>> index(street).items  # cell by cell: 111 m in each direction touch three cells of 60 m
    array([0, 1, 0, 1, 0, 1], dtype=int32)
    """
    if not (np.isfinite(cell_m) and cell_m > 0.0):
        raise InvalidParameter(f"cell_m must be positive; it is {cell_m!r}. About the search radius is quick.")
    return rasterise(network.node_xy, network.tail, network.head, *only_neighbours(network), float(cell_m))
