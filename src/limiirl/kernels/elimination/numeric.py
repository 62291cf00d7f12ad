"""Sums over all paths between states, by state elimination (the Gauss-Jordan-Floyd algorithm) in the log semiring.

W(i, j) is the weight of the transition from i to j, and G = I + W + W^2 + ... = (I - W)^-1 contains the sums over all
paths. Eliminating state v adds the paths through v to the transitions between its neighbours: W(i, j) += W(i, v)
W(v, v)* W(v, j), with the Kleene star W(v, v)* = 1 / (1 - W(v, v)). In the resulting triangular factors, each state has
transitions only to and from its ancestors in the elimination tree. All values are logarithms. The only subtraction is
1 - W(v, v); the sums are finite if and only if it is positive for every v, that is, if I - W is an M-matrix.

G(i, j) is computed by triangular solves along the ancestor paths of i and j, whose results are combined at the common
ancestors. These use linear arithmetic after the diagonal scaling W(i, j) exp(shift(j) - shift(i)).
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
    """Return the initial log-values of elimination, given edge log-weights (E,); parallel edges are summed."""
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
    """Eliminate all states: overwrite `value` with the log-factors, and set star (S,) to -log(1 - W(v, v)).

    Return the first state with log W(v, v) >= -margin, at which the sum over paths diverges, or -1 if there is none.
    The other arguments are fields of `SymbolicFactorisation`.
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
        # Compute maxima first, then sums: this needs one exponential per term and one logarithm per sum.
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
    adjoint: FloatArray,
    star_adjoint: FloatArray,
) -> None:
    """Overwrite the adjoints of the log-factors with those of the initial values: the reverse mode of `eliminate`.

    `star_adjoint` (S,) contains the adjoints of the log Kleene stars and is overwritten.
    """
    n_states, n = star.size, up.size
    spot = np.empty(n_states, dtype=np.int64)
    for i in range(n_states - 1, -1, -1):
        a = up_ptr[i]
        for p in range(a, up_ptr[i + 1]):
            spot[up[p]] = p
        if value[2 * n + i] > -np.inf:
            adjoint[2 * n + i] += star_adjoint[i] * np.exp(value[2 * n + i] + star[i])
        for m in range(low_ptr[i], low_ptr[i + 1]):
            v, q0 = low[m], place[m]
            into, out = value[n + q0] + star[v], value[q0] + star[v]
            own = 0.0
            if adjoint[2 * n + i] != 0.0 and into + value[q0] > -np.inf:
                own = adjoint[2 * n + i] * np.exp(into + value[q0] - value[2 * n + i])
            by_into, by_out = own, own
            for q in range(q0 + 1, up_ptr[v + 1]):
                p = spot[up[q]]
                if adjoint[p] != 0.0 and into + value[q] > -np.inf:
                    part = adjoint[p] * np.exp(into + value[q] - value[p])
                    adjoint[q] += part
                    by_into += part
                if adjoint[n + p] != 0.0 and out + value[n + q] > -np.inf:
                    part = adjoint[n + p] * np.exp(out + value[n + q] - value[n + p])
                    adjoint[n + q] += part
                    by_out += part
            adjoint[n + q0] += by_into
            adjoint[q0] += by_out
            star_adjoint[v] += by_into + by_out - own


@njit(cache=True, nogil=True)
def _add(one: float, other: float) -> float:
    if one < other:
        one, other = other, one
    return one if other == -np.inf else one + np.log1p(np.exp(other - one))


@njit(cache=True, nogil=True)
def solve(up_ptr: IntArray, up: IntArray, value: FloatArray, star: FloatArray, right: FloatArray) -> None:
    """Overwrite right (S,), the logarithm of a vector b, with log(G b)."""
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
def scale_diagonally(
    up_ptr: IntArray, up: IntArray, value: FloatArray, star: FloatArray, shift: FloatArray
) -> FloatArray:
    """Return the weights (2 n,) of upward and downward transitions, multiplied by exp(shift(j) - shift(i)).

    Upward transitions from v and downward transitions to v are also multiplied by the Kleene star of v.
    """
    n = up.size
    scaled = np.zeros(2 * n)
    for v in range(star.size):
        if shift[v] > -np.inf:
            for p in range(up_ptr[v], up_ptr[v + 1]):
                continuation = shift[up[p]] - shift[v]
                if continuation > -np.inf:
                    scaled[p] = np.exp(value[p] + star[v] + continuation)
                    scaled[n + p] = np.exp(value[n + p] + star[v] - continuation)
    return scaled


@njit(cache=True, nogil=True)
def solve_triangular(
    up_ptr: IntArray,
    level: NDArray[np.int32],
    parent: IntArray,
    depth: IntArray,
    weight: FloatArray,
    node: IntArray,
    path_ptr: IntArray,
    path_sum: FloatArray,
) -> None:
    """Set `path_sum` to the sums over upward paths from the states `node` (m,) to themselves and to each ancestor.

    The sums of state node[i] are path_sum[path_ptr[i]:path_ptr[i + 1]]. `weight` (n,) contains the weights of upward
    transitions; with the weights of downward transitions, the sums are over paths from the ancestors to the state.
    """
    for i in range(node.size):
        base, v = path_ptr[i], node[i]
        low = base + depth[v]
        path_sum[base : path_ptr[i + 1]] = 0.0
        path_sum[base] = 1.0
        while v != ROOT:
            here = path_sum[low - depth[v]]
            if here != 0.0:
                for p in range(up_ptr[v], up_ptr[v + 1]):
                    path_sum[low - level[p]] += here * weight[p]
            v = parent[v]


@njit(cache=True, nogil=True)
def solve_triangular_adjoint(
    up_ptr: IntArray,
    level: NDArray[np.int32],
    parent: IntArray,
    depth: IntArray,
    weight: FloatArray,
    node: IntArray,
    path_ptr: IntArray,
    path_sum: FloatArray,
    path_adjoint: FloatArray,
    adjoint: FloatArray,
) -> None:
    """Add the adjoints of the weights (n,) to `adjoint`, given the adjoints of the path sums, which are overwritten."""
    path = np.empty(np.max(depth) + 1, dtype=np.int64)
    for i in range(node.size):
        base, v, length = path_ptr[i], node[i], 0
        low = base + depth[v]
        while v != ROOT:
            path[length] = v
            length += 1
            v = parent[v]
        for k in range(length - 1, -1, -1):
            here, total = path_sum[base + k], 0.0
            if here != 0.0:
                for p in range(up_ptr[path[k]], up_ptr[path[k] + 1]):
                    continuation = path_adjoint[low - level[p]]
                    adjoint[p] += continuation * here
                    total += continuation * weight[p]
                path_adjoint[base + k] += total


@njit(cache=True, nogil=True)
def lowest_common_ancestor(parent: IntArray, depth: IntArray, one: int, other: int) -> int:
    """Return the lowest common ancestor of two states, or -1 if there is none."""
    while one != other:
        if depth[one] == 0 and depth[other] == 0:
            return ROOT
        if depth[one] < depth[other]:
            one, other = other, one
        one = parent[one]
    return one


@njit(cache=True, nogil=True)
def combine(
    parent: IntArray,
    depth: IntArray,
    stars: FloatArray,
    start: IntArray,
    goal: IntArray,
    first: IntArray,
    last: IntArray,
    up_sum: FloatArray,
    down_sum: FloatArray,
) -> FloatArray:
    """Return G(start[i], goal[i]) for m pairs of states.

    The path sums of pair i begin at up_sum[first[i]] and down_sum[last[i]]; `stars` (S,) contains the Kleene stars.
    """
    total = np.zeros(start.size)
    for i in range(start.size):
        v = lowest_common_ancestor(parent, depth, start[i], goal[i])
        up_low, down_low = first[i] + depth[start[i]], last[i] + depth[goal[i]]
        while v != ROOT:
            total[i] += up_sum[up_low - depth[v]] * stars[v] * down_sum[down_low - depth[v]]
            v = parent[v]
    return total


@njit(cache=True, nogil=True)
def combine_adjoint(
    parent: IntArray,
    depth: IntArray,
    stars: FloatArray,
    start: IntArray,
    goal: IntArray,
    first: IntArray,
    last: IntArray,
    up_sum: FloatArray,
    down_sum: FloatArray,
    by_sum: FloatArray,
    up_adjoint: FloatArray,
    down_adjoint: FloatArray,
    star_adjoint: FloatArray,
) -> None:
    """Reverse-mode derivative of `combine`.

    Given the adjoints `by_sum` (m,) of the result, add to the adjoints of the path sums and of the log Kleene stars.
    """
    for i in range(start.size):
        if by_sum[i] == 0.0:
            continue
        v = lowest_common_ancestor(parent, depth, start[i], goal[i])
        up_low, down_low = first[i] + depth[start[i]], last[i] + depth[goal[i]]
        while v != ROOT:
            at, to, scale = up_low - depth[v], down_low - depth[v], by_sum[i] * stars[v]
            up_adjoint[at] += scale * down_sum[to]
            down_adjoint[to] += scale * up_sum[at]
            star_adjoint[v] += scale * up_sum[at] * down_sum[to]
            v = parent[v]


# Maximum and minimum number of columns per tile: wide tiles coalesce memory access, narrow tiles use more blocks.
_WIDEST, _NARROWEST = 32, 4


class Tiles(NamedTuple):
    """Work items of a GPU grid, sorted by level of the elimination tree; a tile is a range of columns of a state.

    Attributes
    ----------
    ptr : (levels + 1,)
        The tiles of level l are ptr[l]:ptr[l + 1].
    state, first : (tiles,)
        State and first column of each tile.
    wide, lanes : (levels,)
        Columns per tile and threads per column in each level; powers of two.
    """

    ptr: IntArray
    state: Int32Array
    first: Int32Array
    wide: Int32Array
    lanes: Int32Array


class TreePaths(NamedTuple):
    """Ancestor paths of l states, sorted so that the descendants of any state are consecutive.

    Attributes
    ----------
    node : (l,)
        First state of each path.
    ptr, path : (l + 1,), (ptr[-1],)
        Path i is path[ptr[i]:ptr[i + 1]]: the state, followed by its ancestors.
    on_paths, first, last : (t,)
        The distinct states on the paths; state on_paths[j] is on the paths first[j], ..., last[j] - 1.
    """

    node: IntArray
    ptr: IntArray
    path: Int32Array
    on_paths: Int32Array
    first: Int32Array
    last: Int32Array


@njit(cache=True, nogil=True)
def compute_heights(parent: IntArray) -> IntArray:
    """Return the height (S,) of the subtree rooted at each state."""
    height = np.zeros(parent.size, dtype=np.int64)
    for v in range(parent.size):
        if parent[v] != ROOT:
            height[parent[v]] = max(height[parent[v]], height[v] + 1)
    return height


@njit(cache=True, nogil=True)
def number_preorder(parent: IntArray) -> tuple[IntArray, IntArray]:
    """Return `number` and `end` (S,): the subtree of v has the preorder numbers number[v], ..., end[v] - 1."""
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
    path = np.empty(ptr[-1], dtype=np.int32)
    for i in range(node.size):
        v = node[i]
        for at in range(ptr[i], ptr[i + 1]):
            path[at] = v
            v = parent[v]
    return path


@njit(cache=True, nogil=True)
def find_lca_depths(parent: IntArray, depth: IntArray, one: IntArray, other: IntArray) -> Int32Array:
    """Return the depth (m,) of the lowest common ancestor of each pair of states, or -1 if there is none."""
    result = np.full(one.size, -1, dtype=np.int32)
    for i in range(one.size):
        v = lowest_common_ancestor(parent, depth, one[i], other[i])
        if v != ROOT:
            result[i] = depth[v]
    return result


def make_tree_paths(parent: IntArray, depth: IntArray, nodes: IntArray) -> TreePaths:
    """Return the ancestor paths of l distinct states."""
    number, end = number_preorder(parent)
    node = nodes[np.argsort(number[nodes])]
    ptr = np.concatenate([[0], np.cumsum(depth[node] + 1)])
    path = _paths(parent, node, ptr)
    on_paths = np.unique(path)
    first, last = (np.searchsorted(number[node], part[on_paths]).astype(np.int32) for part in (number, end))
    return TreePaths(node, ptr, path, on_paths, first, last)


def make_tiles(height: IntArray, columns: IntArray, terms: IntArray, rows: int, blocks: int) -> Tiles:
    """Return the tiles of all levels for a grid of `blocks` blocks with `rows` threads per intent.

    If there are more threads than columns, several threads share the sum of a column.

    Parameters
    ----------
    height, columns, terms : (S,)
        Level, number of columns, and maximum number of terms per column of each state.
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
    """Return the least power of two that is at least `value`."""
    return 1 << max(0, int(np.ceil(value)) - 1).bit_length()


@njit(cache=True, nogil=True)
def sample_path(
    out_ptr: IntArray, dst: NDArray[np.int32], edge_prob: FloatArray, start: int, goal: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Sample a path that ends at its first visit to the goal; return its edges.

    Parameters
    ----------
    out_ptr, dst : targets (E,) of the outgoing edges, as CSR
    edge_prob : (E,)
        P(next edge = e | source of e, goal).
    """
    edges, n, at = np.empty(16, dtype=np.int64), 0, start
    while at != goal:
        left, last = rng.random(), -1
        for e in range(out_ptr[at], out_ptr[at + 1]):
            if edge_prob[e] > 0.0:
                last = e  # the last possible edge absorbs the rounding error of the sum
                left -= edge_prob[e]
                if left < 0.0:
                    break
        if n == edges.size:
            edges = np.concatenate((edges, np.empty(n, dtype=np.int64)))
        edges[n], at = last, dst[last]
        n += 1
    return edges[:n]
