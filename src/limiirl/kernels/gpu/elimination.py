"""GPU version of `kernels.elimination.numeric` for K intents; the last axis of all arrays is K.

One launch eliminates all states; the blocks synchronise between levels of the elimination tree.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from limiirl.errors import InvalidParameter
from limiirl.kernels.elimination.numeric import Tiles, TreePaths, compute_heights, make_tiles
from limiirl.kernels.elimination.symbolic import SymbolicFactorisation
from limiirl.kernels.gpu.device import Device, flat_shape

# The number of intents is a run-time argument, so that the kernels are compiled only once.
_FIXED = (0, 1, 0)
_MAX_VALUES = 2**31
# Triangular solves: maximum number of threads per intent, and per block.
_PATH_LANES, _PATH_THREADS = 32, 256
# Blocks per multiprocessor for kernels without grid synchronisation.
_BLOCKS_PER_PROCESSOR = 16


class Eliminated(NamedTuple):
    """Log-factors `value` (2 n + S, K), log Kleene stars `star` (S, K), and log path sums `reach` (S, K).

    `reach` contains the sums over paths from each state to its descendants in the elimination tree. `divergent_state`
    (K,), on the host, is the first state at which the sum over paths diverges, or -1.
    """

    value: Any
    star: Any
    reach: Any
    divergent_state: NDArray[np.int64]


class DeviceTreePaths(NamedTuple):
    """`TreePaths` on a device; the pairs that use path i are pair[pair_ptr[i]:pair_ptr[i + 1]]."""

    node: Any
    ptr: Any
    path: Any
    on_paths: Any
    first: Any
    last: Any
    pair_ptr: Any
    pair: Any
    size: int


class DevicePairs(NamedTuple):
    """Positions (m,) of the root in the two ancestor paths of each pair, and the depth of their lowest common ancestor.

    The depth is -1 if there is no common ancestor.
    """

    one: Any
    other: Any
    lca_depth: Any


class DeviceElimination:
    """State elimination of one MDP on a device.

    Parameters
    ----------
    device : Device
    symbolic : SymbolicFactorisation
    slot : (E,)
        Index of each edge in the array of values.
    """

    def __init__(self, device: Device, symbolic: SymbolicFactorisation, slot: NDArray[np.int64]) -> None:
        if symbolic.n_values >= _MAX_VALUES:
            rule = f"must be 'cpu' for this MDP: elimination needs {symbolic.n_values} values (limit: {_MAX_VALUES})"
            raise InvalidParameter.of("device", "gpu", rule)
        self.device, self.symbolic, self.n = device, symbolic, symbolic.up.size

        def put(array: Any) -> Any:
            return device.put(np.ascontiguousarray(array, dtype=np.int32))

        self.up_ptr, self.up, self.level, self.depth = map(
            put, (symbolic.up_ptr, symbolic.up, symbolic.level, symbolic.depth)
        )
        self._low = tuple(map(put, (symbolic.low_ptr, symbolic.low, symbolic.place)))
        self.owner = put(np.repeat(np.arange(symbolic.rank.size), np.diff(symbolic.up_ptr)))
        order = np.argsort(slot, kind="stable")
        used, first = np.unique(slot[order], return_index=True)
        self._slots = tuple(map(put, (used, np.append(first, slot.size), order)))
        self._height = compute_heights(symbolic.parent)
        self._tiles: dict[tuple[str, int], tuple[Any, ...]] = {}

    def load(self, log_w: Any) -> Any:
        """Return the initial log-values (2 n + S, K) of elimination, given edge log-weights (E, K)."""
        k = log_w.shape[1]
        value = self.device.xp.full((self.symbolic.n_values, k), -np.inf)
        n = self._slots[0].size
        if n:
            self._launch_flat("elimination_load", n, k, (*self._slots, log_w, value))
        return value

    def eliminate(self, value: Any, margin: float) -> Eliminated:
        """Eliminate all states in place; see `numeric.eliminate`. Values are undefined if the sum diverges."""
        xp, k, n_states = self.device.xp, value.shape[1], self.symbolic.rank.size
        star, reach = xp.empty((n_states, k)), xp.empty((n_states, k))
        divergent = xp.zeros(k, dtype=np.uint64)
        rest = (margin, value, star, reach, divergent, self._counter())
        tiles = self._levels("transitions", k)
        arguments = (n_states, k, self.n, self.up_ptr, self.up, *self._low, *tiles, *rest)
        self._launch_grid("elimination_factorise", k, arguments)
        at = self.device.take(divergent).astype(np.int64)
        return Eliminated(value, star, reach, np.where(at > 0, n_states - at, -1))

    def finish_reach(self, factors: Eliminated) -> Any:
        """Overwrite `reach` (S, K) with the log-sums over all paths from each state, and return it."""
        k = factors.star.shape[1]
        n_levels, ptr, state, _, wide, lanes = self._levels("reach", k)
        arguments = (k, self.up_ptr, self.up, n_levels, ptr, state, wide, lanes, *factors[:3], self._counter())
        self._launch_grid("elimination_reach", k, arguments)
        return factors.reach

    def eliminate_adjoint(self, factors: Eliminated, adjoint: Any, star_adjoint: Any) -> None:
        """Overwrite the adjoints of the log-factors with the adjoints of the initial values; see `numeric`."""
        xp, k, n = self.device.xp, adjoint.shape[1], self.n
        rest = (factors.value, factors.star, adjoint, star_adjoint, self._counter())
        tiles = self._levels("descendants", k)
        self._launch_grid("elimination_adjoint", k, (k, n, self.up_ptr, self.up, *self._low, *tiles, *rest))
        loop = xp.exp(factors.value[2 * n :] + factors.star)
        adjoint[2 * n :] += xp.where(star_adjoint != 0.0, star_adjoint * loop, 0.0)

    def transition_weights(self, factors: Eliminated) -> tuple[Any, Any]:
        """Return the weights (n, K) of upward and of downward transitions, times the Kleene star of their source."""
        xp, n = self.device.xp, self.n
        value, star = factors.value, factors.star
        return xp.exp(value[:n] + star[self.owner]), xp.exp(value[n : 2 * n] + star[self.up])

    def solve_triangular(self, paths: DeviceTreePaths, weight: Any, stars: Any) -> Any:
        """Return the sums (size, K) over upward trajectories from the first state of each ancestor path to its states.

        The sum at the first state is 1, or its Kleene star if `stars` (S, K) is not None.
        """
        k = weight.shape[1]
        sums = self.device.xp.empty((paths.size, k))
        graph = (self.up_ptr, self.level, paths.path, paths.node, paths.ptr)
        self._launch_blocks("elimination_solve", paths.node.size, k, (*graph, weight, stars, sums), self._lanes(k))
        return sums

    def combine(self, pairs: DevicePairs, up_sum: Any, down_sum: Any) -> Any:
        """Return the sums (m, K) over all paths between the states of each pair."""
        m, k = pairs.lca_depth.size, up_sum.shape[1]
        sums = self.device.xp.empty((m, k))
        self._launch_blocks("elimination_combine", m, k, (*pairs, up_sum, down_sum, sums), self._lanes(k))
        return sums

    def path_adjoints(
        self, paths: DeviceTreePaths, weight: Any, by_sum: Any, other: Any, lca_depth: Any, other_sum: Any
    ) -> Any:
        """Return the adjoints (size, K) of the path sums, given the adjoints by_sum (m, K) of the pairwise sums.

        `other` (m,) is the position of the root in the other ancestor path of each pair; `other_sum` contains the sums
        of the other paths.
        """
        k = weight.shape[1]
        sums = self.device.xp.empty((paths.size, k))
        graph = (self.up_ptr, self.level, paths.path, paths.ptr, weight, paths.pair_ptr, paths.pair)
        arguments = (*graph, other, lca_depth, by_sum, other_sum, sums)
        self._launch_blocks("elimination_path_adjoints", paths.node.size, k, arguments, self._lanes(k))
        return sums

    def transition_adjoints(
        self,
        paths: DeviceTreePaths,
        weight: Any,
        path_sum: Any,
        path_adjoint: Any,
        down: bool,
        adjoint: Any,
        star_adjoint: Any,
    ) -> None:
        """Add the adjoints of log-transitions (n, K) and log Kleene stars (S, K), given those of the path sums."""
        k = weight.shape[1]
        rows = _power_below(max(1, min(_PATH_THREADS, self.device.n_threads) // k))
        wide = min(32, rows)
        graph = (self.up_ptr, self.level, self.depth, paths.on_paths, paths.first, paths.last, paths.ptr)
        arguments = (*graph, weight, path_sum, path_adjoint, wide, int(down), adjoint, star_adjoint)
        self._launch_blocks("elimination_transition_adjoints", paths.on_paths.size, k, arguments, rows)

    def _levels(self, kind: str, k: int) -> tuple[Any, ...]:
        """Return the number of levels and the arrays of `Tiles` for a kernel and K intents; they are cached."""
        cached = self._tiles.get((kind, k))
        if cached is None:
            above, below = np.diff(self.symbolic.up_ptr), np.diff(self.symbolic.low_ptr)
            columns, terms = {
                "transitions": (2 * above + 2, below + 1),
                "reach": (np.ones_like(above), above + 1),
                "descendants": (below, above),
            }[kind]
            tiles: Tiles = make_tiles(self._height, columns, terms, self.device.n_threads // k, self.device.n_blocks)
            cached = self._tiles[kind, k] = (tiles.wide.size, *map(self.device.put, tiles))
        return cached

    def _lanes(self, k: int) -> int:
        return _power_below(max(1, min(_PATH_LANES * k, _PATH_THREADS, self.device.n_threads) // k))

    def _counter(self) -> Any:
        return self.device.xp.zeros(1, dtype=np.uint64)

    def _launch_grid(self, kernel: str, k: int, arguments: tuple[Any, ...]) -> None:
        shape = (self.device.n_blocks, self.device.n_threads // k * k, 0)
        self.device.launch(kernel, shape, arguments, _FIXED)

    def _launch_blocks(self, kernel: str, n: int, k: int, arguments: tuple[Any, ...], rows: int) -> None:
        if n:
            shape = (min(n, _BLOCKS_PER_PROCESSOR * self.device.n_blocks), rows * k, 0)
            self.device.launch(kernel, shape, (n, k, *arguments), _FIXED)

    def _launch_flat(self, kernel: str, rows: int, k: int, arguments: tuple[Any, ...]) -> None:
        self.device.launch(kernel, flat_shape(self.device, rows * k), (rows, k, *arguments), _FIXED)


def put_tree_paths(device: Device, paths: TreePaths, path_of_pair: NDArray[np.int64]) -> DeviceTreePaths:
    """Copy ancestor paths to a device; `path_of_pair` (m,) is the path index of each pair."""
    order = np.argsort(path_of_pair, kind="stable").astype(np.int64)
    ptr = np.searchsorted(path_of_pair[order], np.arange(paths.node.size + 1)).astype(np.int64)
    parts: list[Any] = [*map(device.put, (*paths, ptr, order)), paths.path.size]
    return DeviceTreePaths(*parts)


def _power_below(value: int) -> int:
    return 1 << (value.bit_length() - 1)
