"""Streets drawn on the plane and cut at shape points into directed segments: the geometry of a `RoadGrid`.

Why the map is planar. Put the streets on the integer lattice, where they meet in junctions only, and move every point
p of the plane to p + D(p). If D is Lipschitz with a constant below 1, two points never move to the same place, and
the image is planar again. D is the sum of four fields, with these constants:

- a stretch that widens the blocks from the centre outwards, ``_STRETCH``;
- a long wave that bends all lines, ``_WAVE``;
- a jitter of each junction within a disc of radius ``_JITTER``: along either leg of a lattice triangle it changes by
  at most 2 ``_JITTER``, so the constant is 2 sqrt(2) ``_JITTER``;
- an arc that bows each street sideways by ``_BOW`` t (1 - t) at the fraction t of its way, falling linearly to 0 on
  the rim of the square that has the street as diagonal (these squares tile the plane): sqrt(2) ``_BOW``.

The first three are taken at the junctions and are linear on the lattice triangles between them; the arc is linear
between shape points. Neither makes a constant larger, and both keep the pieces straight.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from limiirl.worlds.streets import BoolArray, IntArray, StreetPlan

BLOCK_KM = 0.11
_STRETCH, _WAVE, _JITTER, _BOW = 0.22, 0.18, 0.1, 0.2
LIPSCHITZ = _STRETCH + _WAVE + 2.0 * np.sqrt(2.0) * _JITTER + np.sqrt(2.0) * _BOW
"""Bound on the displacement's Lipschitz constant, 0.97."""

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Segments:
    """S directed segments between consecutive map nodes (junctions and shape points), and E turns."""

    node_xy: FloatArray  # (nodes, 2) km east and north of the centre
    tail: IntArray  # (S,) node
    head: IntArray  # (S,) node
    street: IntArray  # (S,) street of the plan
    turns: IntArray  # (E, 3) from and to segment, and the index into TURNS


def cut_streets(plan: StreetPlan, n_segments: int, rng: np.random.Generator) -> Segments | None:
    """Draw the streets and cut them into exactly `n_segments` directed segments; None where the plan does not allow it.

    Longer streets get more shape points. Both directions of a street share its points, so a cut adds a segment on a
    one-way street and two on another.
    """
    junctions = _place(plan, rng)
    chord = np.linalg.norm(junctions[plan.ends[:, 1]] - junctions[plan.ends[:, 0]], axis=1)
    directions = np.bincount(plan.street)
    cuts = _share_cuts(n_segments - plan.street.size, chord, directions == 1, rng)
    if cuts is None:
        return None
    before = len(plan.junctions) + np.cumsum(cuts) - cuts  # the street's first shape point is this node
    pieces = cuts + 1

    def node(street: IntArray, point: IntArray) -> IntArray:
        """The street's nodes are numbered 0 (first end) to its number of pieces (second end)."""
        inner = before[street] + point - 1
        at_end = np.where(point == 0, plan.ends[street, 0], plan.ends[street, 1])
        return np.where((point == 0) | (point == pieces[street]), at_end, inner)

    count = pieces[plan.street]
    first = np.cumsum(count) - count  # segment with which each directed street begins
    directed = np.repeat(np.arange(count.size), count)
    step = np.arange(n_segments) - first[directed]
    street, forward, total = plan.street[directed], plan.forward[directed], count[directed]
    inner = np.flatnonzero(step < total - 1)  # segments that end at a shape point, where the only way is on
    turns = np.concatenate(
        [
            np.column_stack([inner, inner + 1, np.zeros_like(inner)]),
            np.column_stack([(first + count - 1)[plan.turns[:, 0]], first[plan.turns[:, 1]], plan.turns[:, 2]]),
        ]
    )
    return Segments(
        node_xy=BLOCK_KM * np.concatenate([junctions, _shape_points(plan, junctions, cuts, rng)]) @ _rotation(rng),
        tail=node(street, np.where(forward, step, total - step)),
        head=node(street, np.where(forward, step + 1, total - step - 1)),
        street=street,
        turns=turns,
    )


def _place(plan: StreetPlan, rng: np.random.Generator) -> FloatArray:
    """The junctions, moved, in blocks."""
    lattice = plan.junctions.astype(np.float64)
    reach = np.abs(lattice).max()
    stretched = _STRETCH * lattice * (2.0 / 3.0 * (lattice / reach) ** 2 - 1.0)
    wavelength = 1.4 * plan.radius
    phase = rng.uniform(0.0, 2.0 * np.pi, size=2)
    waved = _WAVE * wavelength / (2.0 * np.pi) * np.sin(2.0 * np.pi / wavelength * lattice[:, ::-1] + phase)
    # Arterials are straighter than local streets.
    size = _JITTER * np.sqrt(rng.random(len(lattice))) * np.where(plan.on_arterial, 0.4, 1.0)
    angle = rng.uniform(0.0, 2.0 * np.pi, size=len(lattice))
    jittered = size[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    placed: FloatArray = lattice + stretched + waved + jittered
    return placed


def _rotation(rng: np.random.Generator) -> FloatArray:
    """A random tilt of the map by up to 0.4 radians: streets need not run along the compass."""
    tilt = rng.uniform(-0.4, 0.4)
    return np.array([[np.cos(tilt), np.sin(tilt)], [-np.sin(tilt), np.cos(tilt)]])


def _share_cuts(extra: int, chord: FloatArray, one_way: BoolArray, rng: np.random.Generator) -> IntArray | None:
    """Cuts a street, such that they add exactly `extra` directed segments, drawn in proportion to the length."""
    if extra < 0:
        return None
    weight = chord * np.where(one_way, 1.0, 2.0)
    single = round(extra * float(weight[one_way].sum() / weight.sum()))
    if (extra - single) % 2:
        single += 1 if single < extra else -1
    if single and not one_way.any():
        return None
    cuts = np.zeros(chord.size, dtype=np.int64)
    for chosen, total in ((one_way, single), (~one_way, (extra - single) // 2)):
        if total:
            cuts[chosen] = rng.multinomial(total, chord[chosen] / chord[chosen].sum())
    return cuts


def _shape_points(plan: StreetPlan, junctions: FloatArray, cuts: IntArray, rng: np.random.Generator) -> FloatArray:
    """The shape points in blocks, street by street: evenly spaced on an arc between the ends."""
    bow = _BOW * rng.uniform(-1.0, 1.0, size=cuts.size)
    street = np.repeat(np.arange(cuts.size), cuts)
    point = np.arange(street.size) - (np.cumsum(cuts) - cuts)[street] + 1
    t = (point / (cuts[street] + 1.0))[:, None]
    start, end = junctions[plan.ends[street, 0]], junctions[plan.ends[street, 1]]
    sideways = np.abs(plan.junctions[plan.ends[street, 1]] - plan.junctions[plan.ends[street, 0]])[:, ::-1]
    points: FloatArray = (1.0 - t) * start + t * end + bow[street, None] * t * (1.0 - t) * sideways
    return points
