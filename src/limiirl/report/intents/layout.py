"""Positions of states for drawing: coordinates, cells of a grid, or a layout of the transition graph."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse import csgraph

from limiirl._typing import FloatArray, IntArray
from limiirl.errors import InvalidParameter
from limiirl.mdp import MDP

Kind: TypeAlias = Literal["grid", "coordinates", "graph"]

# Pairs of feature names that are coordinates, in the order (horizontal, vertical).
_AXES = (("x", "y"), ("lon", "lat"), ("longitude", "latitude"), ("column", "row"), ("col", "row"))
_CELL = re.compile(r"\((\d+), ?(\d+)\)")
# Fraction of the edges that must connect neighbouring cells of a grid; the others may be resets to the start.
_NEIGHBOURS = 0.8
# Maximum number of states, and maximum mean number of neighbours, of a graph that is drawn.
_MOST_STATES, _MOST_NEIGHBOURS = 160, 5.0
_STEPS = 200


@dataclass(frozen=True, eq=False)
class Layout:
    """Positions (S, 2) of the states, and pairs (E, 2) of neighbouring states that are connected by lines.

    The vertical axis points upwards. `kind` is "grid" (cells of unit size), "coordinates" or "graph".
    """

    kind: Kind
    xy: FloatArray
    links: NDArray[np.int64]


def merge_previous(mdp: MDP | None) -> tuple[MDP | None, IntArray]:
    """Merge states that differ only in their history; return the merged MDP and the index (S,) of each state in it.

    `with_history` and `with_counter` add histories; an MDP without histories is returned unchanged.

    >>> pairs = MDP.from_edges([0, 1], [1, 0], gamma=0.9)
    >>> pairs = pairs.replace(history=[[1, 0], [0, 1]], original_names=["den", "pond"])
    >>> places, place_of = merge_previous(pairs)
    >>> places.state_names, place_of
    (('den', 'pond'), array([1, 0]))
    """
    if mdp is None:
        return None, np.empty(0, dtype=np.int64)
    if mdp.history is None:
        return mdp, np.arange(mdp.n_states)
    current, first, place_of = np.unique(mdp.history[:, 0], return_index=True, return_inverse=True)
    names = [(mdp.original_names or ())[s] for s in current.tolist()]
    src, dst = np.unique(np.column_stack([place_of[mdp.src], place_of[mdp.dst]]), axis=0).T
    features = None if mdp.state_features is None else mdp.state_features[first]
    named = None if features is None else mdp.feature_names[: mdp.n_state_features]
    places = MDP.from_edges(
        src, dst, n_states=first.size, gamma=mdp.gamma, state_features=features, feature_names=named, state_names=names
    )
    return places, place_of


def find_layout(mdp: MDP | None, coordinates: ArrayLike | None = None) -> Layout | None:
    """Return the positions of the states of an MDP, or None if a drawing would be illegible.

    Positions are, in order of preference: the given coordinates (S, 2); cells in state names such as "(2, 3)"; features
    with names of coordinates; the cells of a grid if most transitions connect neighbouring cells; or a layout of the
    graph if it is small and sparse.

    >>> corridor = MDP.from_edges([0, 1, 1, 2], [1, 0, 2, 1], p0=[1, 0, 0])
    >>> find_layout(corridor).kind
    'graph'
    >>> find_layout(corridor, [[0, 0], [1, 0], [2, 0]]).kind
    'coordinates'
    """
    if mdp is None:
        return None
    if coordinates is not None:
        return Layout("coordinates", _check_coordinates(coordinates, mdp.n_states), _links(mdp))
    cells = _cells_of_names(mdp)
    if cells is not None:
        return Layout("grid", cells, _links(mdp))
    xy = _coordinate_features(mdp)
    if xy is not None:
        return Layout("coordinates", xy, _links(mdp))
    cells = _cells_of_transitions(mdp)
    if cells is not None:
        return Layout("grid", cells, _links(mdp))
    links = _links(mdp)
    if mdp.n_states <= _MOST_STATES and len(links) <= 0.5 * _MOST_NEIGHBOURS * mdp.n_states:
        return Layout("graph", _spread(mdp.n_states, links), links)
    return None


def _check_coordinates(coordinates: ArrayLike, n_states: int) -> FloatArray:
    xy = np.array(coordinates, dtype=np.float64)
    if xy.shape != (n_states, 2):
        rule = f"must have shape ({n_states}, 2), the position of each state"
        raise InvalidParameter.of("coordinates", xy.shape, rule)
    return xy


def _links(mdp: MDP) -> NDArray[np.int64]:
    """Return the pairs (E, 2) of different states that are connected in either direction."""
    pairs = np.sort(np.column_stack([mdp.src, mdp.dst]).astype(np.int64), axis=1)
    return np.unique(pairs[pairs[:, 0] < pairs[:, 1]], axis=0)


def _cells_of_names(mdp: MDP) -> FloatArray | None:
    """Return the cells of states with names such as "(2, 3)": row and column."""
    matches = [_CELL.fullmatch(name) for name in mdp.state_names or ()]
    if not matches or None in matches:
        return None
    cells = np.array([(int(match[2]), -int(match[1])) for match in matches if match], dtype=np.float64)
    return cells if len(np.unique(cells, axis=0)) == len(cells) else None


def _coordinate_features(mdp: MDP) -> FloatArray | None:
    if mdp.state_features is None:
        return None
    names = [name.lower() for name in mdp.feature_names[: mdp.n_state_features]]
    for horizontal, vertical in _AXES:
        if horizontal in names and vertical in names:
            columns = [names.index(horizontal), names.index(vertical)]
            features = mdp.state_features[:, columns]
            xy = np.asarray(features.toarray() if sparse.issparse(features) else features, dtype=np.float64)
            return xy * [1.0, -1.0] if vertical == "row" else xy
    return None


def _cells_of_transitions(mdp: MDP) -> FloatArray | None:
    """Return the cells of states that are numbered row by row, if most edges connect neighbouring cells."""
    step = np.abs(mdp.dst.astype(np.int64) - mdp.src)
    moving = step > 0
    steps, counts = np.unique(step[moving], return_counts=True)
    for width in steps[np.argsort(-counts, kind="stable")][:3].tolist():
        if width < 2 or mdp.n_states % width or 1 not in steps:
            continue
        row_of, column_of = np.divmod(np.arange(mdp.n_states), width)
        apart = np.abs(row_of[mdp.src] - row_of[mdp.dst]) + np.abs(column_of[mdp.src] - column_of[mdp.dst])
        if np.mean(apart[moving] == 1) >= _NEIGHBOURS:
            return np.column_stack([column_of, -row_of]).astype(np.float64)
    return None


def _spread(n: int, links: NDArray[np.int64]) -> FloatArray:
    """Return positions whose distances approximate the distances in the graph, by stress majorisation."""
    graph = sparse.csr_array((np.ones(len(links)), (links[:, 0], links[:, 1])), shape=(n, n))
    distance = csgraph.shortest_path(graph, directed=False, unweighted=True)
    finite = distance[np.isfinite(distance)]
    distance[~np.isfinite(distance)] = finite.max() + 2.0  # separate components
    np.fill_diagonal(distance, 1.0)
    weight = distance**-2.0
    np.fill_diagonal(weight, 0.0)
    angle = 2.0 * np.pi * np.arange(n) / n
    xy = np.column_stack([np.cos(angle), np.sin(angle)]) * 0.5 * distance.max()
    for _ in range(_STEPS if n > 1 else 0):
        apart = xy[:, None, :] - xy[None, :, :]
        scale = distance / np.maximum(np.linalg.norm(apart, axis=2), 1e-9)
        moved = weight[:, :, None] * (xy[None, :, :] + scale[:, :, None] * apart)
        xy = moved.sum(axis=1) / weight.sum(axis=1)[:, None]
    return np.asarray(xy - xy.mean(axis=0))
