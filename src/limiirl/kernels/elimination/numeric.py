"""Sums over all walks between states, by elimination in the (logsumexp, +) semiring: one factorisation for all goals.

Let W(s, t) be the weight of a move and G = I + W + W^2 + ... the weight of all walks. States are eliminated one after
the other: walks that pass through an eliminated state v are added to the moves between its neighbours,
W(i, j) += W(i, v) W(v, j) / (1 - W(v, v)). What is left are moves up to states eliminated later, and down from them,
and every walk climbs and then descends. All values are logarithms: nothing underflows, however far states are apart,
and nothing is subtracted but W(v, v) from 1. The sums are finite if and only if each of these differences is positive
(I - W is then an M-matrix), so that divergence is found, not guessed.

Each state needs its own climb to the root, which is short: a *leg*. Legs are summed in linear space, in a frame: moves
multiplied by exp(shift(j) - shift(i)), which leaves sums over walks the same up to a factor that is known.

The tree of a `Plan` as a GPU walks it: what may be done at once, and the legs of states with their ancestors.

Walks to a goal, drawn edge by edge.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from limiirl._typing import FloatArray, Int32Array, IntArray
from limiirl.kernels.elimination.symbolic import ROOT


@njit(cache=True, nogil=True)
def load(log_w: FloatArray, slot: IntArray, n_values: int) -> FloatArray:
    """Return the values of moves before elimination: log_w (E,) summed where several join the same two states."""
    top, total = np.full(n_values, -np.inf), np.zeros(n_values)
    for e in range(slot.size):
        top[slot[e]] = max(top[slot[e]], log_w[e])
    for e in range(slot.size):
        if log_w[e] > -np.inf:
            total[slot[e]] += np.exp(log_w[e] - top[slot[e]])
    for p in range(n_values):
        if top[p] > -np.inf:
            top[p] += np.log(total[p])
    return top


@njit(cache=True, nogil=True)
def eliminate(
    up_ptr: IntArray,
    up: IntArray,
    low_ptr: IntArray,
    low: IntArray,
    place: IntArray,
    value: FloatArray,
    star: FloatArray,
    margin: float,
) -> int:
    """Complete the values of all moves, and fill star (S,) with -log(1 - W(v, v)).

    Returns the state at which walks are found to have an infinite weight, or -1; with a margin, also one at which
    log W(v, v) is so near 0.
    """
    n_states, n = star.size, up.size
    spot = np.empty(n_states, dtype=np.int64)
    top_up, top_down = np.empty(n_states), np.empty(n_states)
    sum_up, sum_down = np.empty(n_states), np.empty(n_states)
    for i in range(n_states):
        a = up_ptr[i]
        for p in range(a, up_ptr[i + 1]):
            spot[up[p]] = p - a
            top_up[p - a], top_down[p - a] = value[p], value[n + p]
        here = value[2 * n + i]
        # First the largest term of each sum, then the sums: one exponential a term, and one logarithm a sum.
        for m in range(low_ptr[i], low_ptr[i + 1]):
            v, q0 = low[m], place[m]
            into, out = value[n + q0] + star[v], value[q0] + star[v]
            here = max(here, into + value[q0])
            for q in range(q0 + 1, up_ptr[v + 1]):
                c = spot[up[q]]
                top_up[c] = max(top_up[c], into + value[q])
                top_down[c] = max(top_down[c], out + value[n + q])
        width = up_ptr[i + 1] - a
        for c in range(width):
            sum_up[c] = np.exp(value[a + c] - top_up[c]) if top_up[c] > -np.inf else 0.0
            sum_down[c] = np.exp(value[n + a + c] - top_down[c]) if top_down[c] > -np.inf else 0.0
        total = np.exp(value[2 * n + i] - here) if here > -np.inf else 0.0
        for m in range(low_ptr[i], low_ptr[i + 1]):
            v, q0 = low[m], place[m]
            into, out = value[n + q0] + star[v], value[q0] + star[v]
            if into + value[q0] > -np.inf:
                total += np.exp(into + value[q0] - here)
            for q in range(q0 + 1, up_ptr[v + 1]):
                c = spot[up[q]]
                if into + value[q] > -np.inf:
                    sum_up[c] += np.exp(into + value[q] - top_up[c])
                if out + value[n + q] > -np.inf:
                    sum_down[c] += np.exp(out + value[n + q] - top_down[c])
        for c in range(width):
            value[a + c] = top_up[c] + np.log(sum_up[c]) if top_up[c] > -np.inf else -np.inf
            value[n + a + c] = top_down[c] + np.log(sum_down[c]) if top_down[c] > -np.inf else -np.inf
        if here > -np.inf:
            here += np.log(total)
        value[2 * n + i] = here
        if not here < -margin:
            return i
        star[i] = -np.log(-np.expm1(here))
    return -1


@njit(cache=True, nogil=True)
def eliminate_adjoint(
    up_ptr: IntArray,
    up: IntArray,
    low_ptr: IntArray,
    low: IntArray,
    place: IntArray,
    value: FloatArray,
    star: FloatArray,
    pull: FloatArray,
    pull_star: FloatArray,
) -> None:
    """Turn derivatives by completed values (pull) and by star (pull_star) into those by the values before, in place."""
    n_states, n = star.size, up.size
    spot = np.empty(n_states, dtype=np.int64)
    for i in range(n_states - 1, -1, -1):
        a = up_ptr[i]
        for p in range(a, up_ptr[i + 1]):
            spot[up[p]] = p
        if value[2 * n + i] > -np.inf:
            pull[2 * n + i] += pull_star[i] * np.exp(value[2 * n + i] + star[i])
        for m in range(low_ptr[i], low_ptr[i + 1]):
            v, q0 = low[m], place[m]
            into, out = value[n + q0] + star[v], value[q0] + star[v]
            own = 0.0
            if pull[2 * n + i] != 0.0 and into + value[q0] > -np.inf:
                own = pull[2 * n + i] * np.exp(into + value[q0] - value[2 * n + i])
            by_into, by_out = own, own
            for q in range(q0 + 1, up_ptr[v + 1]):
                p = spot[up[q]]
                if pull[p] != 0.0 and into + value[q] > -np.inf:
                    share = pull[p] * np.exp(into + value[q] - value[p])
                    pull[q] += share
                    by_into += share
                if pull[n + p] != 0.0 and out + value[n + q] > -np.inf:
                    share = pull[n + p] * np.exp(out + value[n + q] - value[n + p])
                    pull[n + q] += share
                    by_out += share
            pull[n + q0] += by_into
            pull[q0] += by_out
            pull_star[v] += by_into + by_out - own


@njit(cache=True, nogil=True)
def _add(one: float, other: float) -> float:
    """Return the logarithm of a sum."""
    if one < other:
        one, other = other, one
    return one if other == -np.inf else one + np.log1p(np.exp(other - one))


@njit(cache=True, nogil=True)
def solve(up_ptr: IntArray, up: IntArray, value: FloatArray, star: FloatArray, right: FloatArray) -> None:
    """Overwrite right (S,), the logarithm of a vector, with that of G times it."""
    n = up.size
    for v in range(star.size):
        here = right[v] + star[v]
        if here > -np.inf:
            for p in range(up_ptr[v], up_ptr[v + 1]):
                right[up[p]] = _add(right[up[p]], here + value[n + p])
    for v in range(star.size - 1, -1, -1):
        total = right[v]
        for p in range(up_ptr[v], up_ptr[v + 1]):
            total = _add(total, value[p] + right[up[p]])
        right[v] = total + star[v]


@njit(cache=True, nogil=True)
def frame(up_ptr: IntArray, up: IntArray, value: FloatArray, star: FloatArray, shift: FloatArray) -> FloatArray:
    """Return weights (2 n,) of the moves up and down, with W(i, j) multiplied by exp(shift(j) - shift(i)).

    Those up from v, and those down to v, are also multiplied by 1 / (1 - W(v, v)).
    """
    n = up.size
    found = np.zeros(2 * n)
    for v in range(star.size):
        if shift[v] > -np.inf:
            for p in range(up_ptr[v], up_ptr[v + 1]):
                ahead = shift[up[p]] - shift[v]
                if ahead > -np.inf:
                    found[p] = np.exp(value[p] + star[v] + ahead)
                    found[n + p] = np.exp(value[n + p] + star[v] - ahead)
    return found


@njit(cache=True, nogil=True)
def climb(
    up_ptr: IntArray,
    level: NDArray[np.int32],
    parent: IntArray,
    depth: IntArray,
    weight: FloatArray,
    node: IntArray,
    leg_ptr: IntArray,
    leg: FloatArray,
) -> None:
    """Fill the legs of states (m,): the weight of all walks that climb to each ancestor, up to their first visit.

    A leg has a place for the state itself, then one for each ancestor. `weight` (n,) is that of the moves up, for legs
    that begin in a state, or that of the moves down, for legs that end there.
    """
    for i in range(node.size):
        base, v = leg_ptr[i], node[i]
        low = base + depth[v]
        leg[base : leg_ptr[i + 1]] = 0.0
        leg[base] = 1.0
        while v != ROOT:
            here = leg[low - depth[v]]
            if here != 0.0:
                for p in range(up_ptr[v], up_ptr[v + 1]):
                    leg[low - level[p]] += here * weight[p]
            v = parent[v]


@njit(cache=True, nogil=True)
def climb_adjoint(
    up_ptr: IntArray,
    level: NDArray[np.int32],
    parent: IntArray,
    depth: IntArray,
    weight: FloatArray,
    node: IntArray,
    leg_ptr: IntArray,
    leg: FloatArray,
    pull_leg: FloatArray,
    pull: FloatArray,
) -> None:
    """Add to pull (n,), derivatives by weights, what those by legs make of them."""
    path = np.empty(np.max(depth) + 1, dtype=np.int64)
    for i in range(node.size):
        base, v, length = leg_ptr[i], node[i], 0
        low = base + depth[v]
        while v != ROOT:
            path[length] = v
            length += 1
            v = parent[v]
        for k in range(length - 1, -1, -1):
            here, total = leg[base + k], 0.0
            if here != 0.0:
                for p in range(up_ptr[path[k]], up_ptr[path[k] + 1]):
                    ahead = pull_leg[low - level[p]]
                    pull[p] += ahead * here
                    total += ahead * weight[p]
                pull_leg[base + k] += total


@njit(cache=True, nogil=True)
def meet(parent: IntArray, depth: IntArray, one: int, other: int) -> int:
    """Return the first common ancestor of two states, or -1."""
    while one != other:
        if depth[one] == 0 and depth[other] == 0:
            return ROOT
        if depth[one] < depth[other]:
            one, other = other, one
        one = parent[one]
    return one


@njit(cache=True, nogil=True)
def join(
    parent: IntArray,
    depth: IntArray,
    loops: FloatArray,
    start: IntArray,
    goal: IntArray,
    first: IntArray,
    last: IntArray,
    leg_up: FloatArray,
    leg_down: FloatArray,
) -> FloatArray:
    """Return G (m,) of pairs of states, given where their legs begin: `first` in leg_up, `last` in leg_down.

    `loops` (S,) is 1 / (1 - W(v, v)).
    """
    found = np.zeros(start.size)
    for i in range(start.size):
        v = meet(parent, depth, start[i], goal[i])
        up_low, down_low = first[i] + depth[start[i]], last[i] + depth[goal[i]]
        while v != ROOT:
            found[i] += leg_up[up_low - depth[v]] * loops[v] * leg_down[down_low - depth[v]]
            v = parent[v]
    return found


@njit(cache=True, nogil=True)
def join_adjoint(
    parent: IntArray,
    depth: IntArray,
    loops: FloatArray,
    start: IntArray,
    goal: IntArray,
    first: IntArray,
    last: IntArray,
    leg_up: FloatArray,
    leg_down: FloatArray,
    by_sum: FloatArray,
    pull_up: FloatArray,
    pull_down: FloatArray,
    pull_star: FloatArray,
) -> None:
    """Add derivatives by legs and by star, given those by the sums that `join` returns, by_sum (m,)."""
    for i in range(start.size):
        if by_sum[i] == 0.0:
            continue
        v = meet(parent, depth, start[i], goal[i])
        up_low, down_low = first[i] + depth[start[i]], last[i] + depth[goal[i]]
        while v != ROOT:
            at, to, scale = up_low - depth[v], down_low - depth[v], by_sum[i] * loops[v]
            pull_up[at] += scale * leg_down[to]
            pull_down[to] += scale * leg_up[at]
            pull_star[v] += scale * leg_up[at] * leg_down[to]
            v = parent[v]


# The most and the fewest columns of a tile: neighbours in memory are read together, but few tiles leave blocks idle.
_WIDEST, _NARROWEST = 32, 4


class Tiles(NamedTuple):
    """What the groups of threads of a grid do, level by level: a tile is a state and some of its columns.

    Attributes
    ----------
    ptr : (levels + 1,)
        The tiles of each level.
    state, first : (tiles,)
        The state of a tile, and its first column.
    wide, lanes : (levels,)
        Columns of a tile, and threads for each; powers of two.
    """

    ptr: IntArray
    state: Int32Array
    first: Int32Array
    wide: Int32Array
    lanes: Int32Array


class Legs(NamedTuple):
    """States with all that is above each, sorted so that those below any state stand together.

    Attributes
    ----------
    node : (l,)
    ptr : (l + 1,)
        Where each leg begins; it has a place for the state, then one for each ancestor.
    path : (ptr[-1],)
        The states at these places.
    touched, first, last : (t,)
        Every state on some leg, and the legs that it is on: first, ..., last - 1.
    """

    node: IntArray
    ptr: IntArray
    path: Int32Array
    touched: Int32Array
    first: Int32Array
    last: Int32Array


@njit(cache=True, nogil=True)
def heights(parent: IntArray) -> IntArray:
    """Return (S,) how many levels of states lie below each.

    Examples
    --------
    >>> heights(np.array([2, 2, 3, -1]))
    array([0, 0, 1, 2])
    """
    found = np.zeros(parent.size, dtype=np.int64)
    for v in range(parent.size):
        if parent[v] != ROOT:
            found[parent[v]] = max(found[parent[v]], found[v] + 1)
    return found


@njit(cache=True, nogil=True)
def intervals(parent: IntArray) -> tuple[IntArray, IntArray]:
    """Return numbers (S,) of the states, and the ends (S,) of ranges: below v are those numbered v's to its end.

    Examples
    --------
    >>> intervals(np.array([2, 2, 3, -1]))
    (array([3, 2, 1, 0]), array([4, 3, 4, 4]))
    """
    size = np.ones(parent.size, dtype=np.int64)
    for v in range(parent.size):
        if parent[v] != ROOT:
            size[parent[v]] += size[v]
    number, free, roots = np.empty_like(size), np.empty_like(size), 0
    for v in range(parent.size - 1, -1, -1):
        if parent[v] == ROOT:
            number[v], roots = roots, roots + size[v]
        else:
            number[v] = free[parent[v]]
            free[parent[v]] += size[v]
        free[v] = number[v] + 1
    return number, number + size


@njit(cache=True, nogil=True)
def _paths(parent: IntArray, node: IntArray, ptr: IntArray) -> Int32Array:
    found = np.empty(ptr[-1], dtype=np.int32)
    for i in range(node.size):
        v = node[i]
        for at in range(ptr[i], ptr[i + 1]):
            found[at] = v
            v = parent[v]
    return found


@njit(cache=True, nogil=True)
def meets(parent: IntArray, depth: IntArray, one: IntArray, other: IntArray) -> Int32Array:
    """Return the depth (m,) of the first common ancestor of pairs of states, or -1 where there is none.

    Examples
    --------
    >>> meets(np.array([2, 2, 3, -1]), np.array([2, 2, 1, 0]), np.array([0, 3]), np.array([1, 1]))
    array([1, 0], dtype=int32)
    """
    found = np.full(one.size, -1, dtype=np.int32)
    for i in range(one.size):
        v = meet(parent, depth, one[i], other[i])
        if v != ROOT:
            found[i] = depth[v]
    return found


def legs(parent: IntArray, depth: IntArray, nodes: IntArray) -> Legs:
    """Return the legs of some states (l,), each once.

    Examples
    --------
    >>> found = legs(np.array([2, 2, 3, -1]), np.array([2, 2, 1, 0]), np.array([0, 2]))
    >>> found.node, found.path
    (array([2, 0]), array([2, 3, 0, 2, 3], dtype=int32))
    >>> found.touched, found.first, found.last
    (array([0, 2, 3], dtype=int32), array([1, 0, 0], dtype=int32), array([2, 2, 2], dtype=int32))
    """
    number, end = intervals(parent)
    node = nodes[np.argsort(number[nodes])]
    ptr = np.concatenate([[0], np.cumsum(depth[node] + 1)])
    path = _paths(parent, node, ptr)
    touched = np.unique(path)
    first, last = (np.searchsorted(number[node], part[touched]).astype(np.int32) for part in (number, end))
    return Legs(node, ptr, path, touched, first, last)


def tiles(height: IntArray, columns: IntArray, terms: IntArray, rows: int, blocks: int) -> Tiles:
    """Return the tiles of all levels for a grid of blocks that have `rows` threads for each intent.

    Columns come first, since threads for the same column have to add up what they found; then as many threads a column
    as it has terms, or as are there.

    Parameters
    ----------
    height, columns, terms : (S,)
        The level of each state, its columns, and how many terms the longest of these has.

    Examples
    --------
    Two states of one level have 3 columns of 9 terms each, and four blocks have 16 threads.

    >>> found = tiles(np.zeros(2, int), np.full(2, 3), np.full(2, 9), 16, 4)
    >>> found.state, found.first, found.wide, found.lanes
    (array([0, 1], dtype=int32), array([0, 0], dtype=int32), array([4], dtype=int32), array([4], dtype=int32))
    """
    order = np.argsort(height, kind="stable")
    bounds = np.searchsorted(height[order], np.arange(int(height.max(initial=-1)) + 2))
    largest = 1 << (rows.bit_length() - 1)
    parts: list[tuple[IntArray, IntArray]] = []
    shapes: list[tuple[int, int]] = []
    for states in np.split(order, bounds[1:-1]):
        mine = columns[states]
        wide = min(_power_above(float(np.mean(mine))), _WIDEST, largest)
        while wide > _NARROWEST and int(np.sum(-(-mine // wide))) < blocks:
            wide //= 2
        counts = -(-mine // wide)
        n = int(counts.sum())
        lanes = min(_power_above(float(terms[states].max())), largest // wide)
        while lanes > 1 and n * wide * lanes > blocks * largest:
            lanes //= 2
        place = np.arange(n) - np.repeat(np.cumsum(counts) - counts, counts)
        parts.append((np.repeat(states, counts), place * wide))
        shapes.append((wide, lanes))
    state, first = (np.concatenate(part).astype(np.int32) for part in zip(*parts, strict=True))
    wide_of, lanes_of = (np.array(part, dtype=np.int32) for part in zip(*shapes, strict=True))
    return Tiles(np.concatenate([[0], np.cumsum([part.size for part, _ in parts])]), state, first, wide_of, lanes_of)


def _power_above(value: float) -> int:
    """Return the least power of two that is at least this; 1 or more."""
    return 1 << max(0, int(np.ceil(value)) - 1).bit_length()


@njit(cache=True, nogil=True)
def walk(
    out_ptr: IntArray, dst: NDArray[np.int32], share: FloatArray, start: int, goal: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return the edges of a walk that ends at its first arrival in the goal.

    Parameters
    ----------
    out_ptr, dst : the target (E,) of the edges that leave each state, as CSR
    share : (E,)
        Probability of each edge for those who are bound for the goal.
    """
    edges, n, at = np.empty(16, dtype=np.int64), 0, start
    while at != goal:
        left, last = rng.random(), -1
        for e in range(out_ptr[at], out_ptr[at + 1]):
            if share[e] > 0.0:
                # Rounding may leave a little of 1: the last possible edge has it.
                last = e
                left -= share[e]
                if left < 0.0:
                    break
        if n == edges.size:
            edges = np.concatenate((edges, np.empty(n, dtype=np.int64)))
        edges[n], at = last, dst[last]
        n += 1
    return edges[:n]
