"""The twin of `kernels.goals` on a GPU: elimination, its adjoint, and legs, K intents side by side.

Arrays are the device's, with a last axis for the intents. A launch eliminates all states, its blocks waiting for each
other between the levels of the tree (`kernels.goal_tree`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from limiirl.errors import InvalidParameter
from limiirl.kernels.elimination.numeric import Legs, Tiles, heights, tiles
from limiirl.kernels.elimination.symbolic import Plan
from limiirl.kernels.gpu.device import Device, flat_shape

# The kernels take the number of intents as it comes: compiled once for all of them.
_FIXED = (0, 1, 0)
_COUNTS = 2**31
# Threads of a block that climbs or joins legs, for each intent, and of one that gathers derivatives from legs.
_LEG_LANES, _LEG_THREADS = 32, 256
# Blocks at once of the kernels that do not wait for each other, for each that runs at once if it is large.
_CROWD = 16


class Eliminated(NamedTuple):
    """Completed values (2 n + S, K), -log(1 - W(v, v)) (S, K), and the walks that have climbed to a state (S, K).

    `stuck` (K,), on the host, is the state at which walks have an infinite weight, or -1.
    """

    value: Any
    star: Any
    reach: Any
    stuck: NDArray[np.int64]


class DeviceLegs(NamedTuple):
    """`goal_tree.Legs` on a device, and the pairs that each is of: ptr (l + 1,), and numbers of pairs."""

    node: Any
    ptr: Any
    path: Any
    touched: Any
    first: Any
    last: Any
    pair_ptr: Any
    pair: Any
    size: int


class DevicePairs(NamedTuple):
    """Pairs (m,): where the root stands in the first leg and in the second, and the depth at which they meet, or -1."""

    one: Any
    other: Any
    meet: Any


class DeviceGoals:
    """The plan of an MDP on a device, and the kernels that use it.

    Parameters
    ----------
    device : Device
    plan : Plan
    slot : (E,)
        Where the value of each edge stands.
    """

    def __init__(self, device: Device, plan: Plan, slot: NDArray[np.int64]) -> None:
        if plan.n_values >= _COUNTS:
            raise InvalidParameter(
                f"Elimination leaves {plan.n_values} values of moves, more than a GPU's kernels can count. Use "
                "device='cpu', or a smaller network."
            )
        self.device, self.plan, self.n = device, plan, plan.up.size

        def put(array: Any) -> Any:
            return device.put(np.ascontiguousarray(array, dtype=np.int32))

        self.up_ptr, self.up, self.level, self.depth = map(put, (plan.up_ptr, plan.up, plan.level, plan.depth))
        self._low = tuple(map(put, (plan.low_ptr, plan.low, plan.place)))
        self.owner = put(np.repeat(np.arange(plan.rank.size), np.diff(plan.up_ptr)))
        order = np.argsort(slot, kind="stable")
        used, first = np.unique(slot[order], return_index=True)
        self._slots = tuple(map(put, (used, np.append(first, slot.size), order)))
        self._height = heights(plan.parent)
        self._tiles: dict[tuple[str, int], tuple[Any, ...]] = {}

    def load(self, log_w: Any) -> Any:
        """Return the values (2 n + S, K) of moves before elimination, from the log-weights (E, K) of edges."""
        k = log_w.shape[1]
        value = self.device.xp.full((self.plan.n_values, k), -np.inf)
        n = self._slots[0].size
        if n:
            self._flat("goal_load", n, k, (*self._slots, log_w, value))
        return value

    def eliminate(self, value: Any, margin: float) -> Eliminated:
        """Complete values, in place; see `kernels.goals.eliminate`. Intents that are stuck have values of no use."""
        xp, k, n_states = self.device.xp, value.shape[1], self.plan.rank.size
        star, reach = xp.empty((n_states, k)), xp.empty((n_states, k))
        stuck = xp.zeros(k, dtype=np.uint64)
        rest = (margin, value, star, reach, stuck, self._counter())
        given = (n_states, k, self.n, self.up_ptr, self.up, *self._low, *self._levels("moves", k), *rest)
        self._waiting("goal_eliminate", k, given)
        found = self.device.take(stuck).astype(np.int64)
        return Eliminated(value, star, reach, np.where(found > 0, n_states - found, -1))

    def finish_reach(self, found: Eliminated) -> Any:
        """Return (S, K), in place of `reach`: the logarithm of the weight of all walks from each state."""
        k = found.star.shape[1]
        n_levels, ptr, state, _, wide, lanes = self._levels("reach", k)
        given = (k, self.up_ptr, self.up, n_levels, ptr, state, wide, lanes, *found[:3], self._counter())
        self._waiting("goal_reach", k, given)
        return found.reach

    def pull_back(self, found: Eliminated, pull: Any, pull_star: Any) -> None:
        """Turn derivatives by completed values and by star into those by the values before, in place."""
        xp, k, n = self.device.xp, pull.shape[1], self.n
        rest = (found.value, found.star, pull, pull_star, self._counter())
        self._waiting("goal_pull_back", k, (k, n, self.up_ptr, self.up, *self._low, *self._levels("below", k), *rest))
        loop = xp.exp(found.value[2 * n :] + found.star)
        pull[2 * n :] += xp.where(pull_star != 0.0, pull_star * loop, 0.0)

    def moves(self, found: Eliminated) -> tuple[Any, Any]:
        """Return the weights (n, K) of moves up and of moves down, each with all loops at the state that it leaves."""
        xp, n = self.device.xp, self.n
        value, star = found.value, found.star
        return xp.exp(value[:n] + star[self.owner]), xp.exp(value[n : 2 * n] + star[self.up])

    def climb(self, legs: DeviceLegs, weight: Any, loops: Any) -> Any:
        """Return legs (size, K) along moves (n, K) that begin at 1, or at `loops` (S, K) of their states."""
        k = weight.shape[1]
        found = self.device.xp.empty((legs.size, k))
        graph = (self.up_ptr, self.level, legs.path, legs.node, legs.ptr)
        self._crowd("goal_climb", legs.node.size, k, (*graph, weight, loops, found), self._lanes(k))
        return found

    def join(self, pairs: DevicePairs, leg_up: Any, leg_down: Any) -> Any:
        """Return the sums (m, K) over all walks between the two ends of pairs."""
        m, k = pairs.meet.size, leg_up.shape[1]
        found = self.device.xp.empty((m, k))
        self._crowd("goal_join", m, k, (*pairs, leg_up, leg_down, found), self._lanes(k))
        return found

    def legs_back(self, legs: DeviceLegs, weight: Any, by_sum: Any, other: Any, meet: Any, other_leg: Any) -> Any:
        """Return derivatives (size, K) by legs, given those (m, K) by the sums of pairs.

        `other` (m,) is where the root stands in the other leg of each pair, and `meet` (m,) the depth of the first
        state that the two share.
        """
        k = weight.shape[1]
        found = self.device.xp.empty((legs.size, k))
        graph = (self.up_ptr, self.level, legs.path, legs.ptr, weight, legs.pair_ptr, legs.pair)
        given = (*graph, other, meet, by_sum, other_leg, found)
        self._crowd("goal_legs_back", legs.node.size, k, given, self._lanes(k))
        return found

    def moves_back(
        self, legs: DeviceLegs, weight: Any, leg: Any, pull_leg: Any, down: bool, pull: Any, pull_star: Any
    ) -> None:
        """Add derivatives by moves (n, K) and by star (S, K) of all legs, given those by the legs."""
        k = weight.shape[1]
        rows = _power_below(max(1, min(_LEG_THREADS, self.device.n_threads) // k))
        wide = min(32, rows)
        where = (self.up_ptr, self.level, self.depth, legs.touched, legs.first, legs.last, legs.ptr)
        given = (*where, weight, leg, pull_leg, wide, int(down), pull, pull_star)
        self._crowd("goal_moves_back", legs.touched.size, k, given, rows)

    def _levels(self, kind: str, k: int) -> tuple[Any, ...]:
        """Return the tiles of a kernel for K intents on the device, made once: their levels, and `Tiles`."""
        known = self._tiles.get((kind, k))
        if known is None:
            above, below = np.diff(self.plan.up_ptr), np.diff(self.plan.low_ptr)
            columns, terms = {
                "moves": (2 * above + 2, below + 1),
                "reach": (np.ones_like(above), above + 1),
                "below": (below, above),
            }[kind]
            made: Tiles = tiles(self._height, columns, terms, self.device.n_threads // k, self.device.n_blocks)
            known = self._tiles[kind, k] = (made.wide.size, *map(self.device.put, made))
        return known

    def _lanes(self, k: int) -> int:
        return _power_below(max(1, min(_LEG_LANES * k, _LEG_THREADS, self.device.n_threads) // k))

    def _counter(self) -> Any:
        return self.device.xp.zeros(1, dtype=np.uint64)

    def _waiting(self, kernel: str, k: int, given: tuple[Any, ...]) -> None:
        shape = (self.device.n_blocks, self.device.n_threads // k * k, 0)
        self.device.launch(kernel, shape, given, _FIXED)

    def _crowd(self, kernel: str, n: int, k: int, given: tuple[Any, ...], rows: int) -> None:
        if n:
            shape = (min(n, _CROWD * self.device.n_blocks), rows * k, 0)
            self.device.launch(kernel, shape, (n, k, *given), _FIXED)

    def _flat(self, kernel: str, rows: int, k: int, given: tuple[Any, ...]) -> None:
        self.device.launch(kernel, flat_shape(self.device, rows * k), (rows, k, *given), _FIXED)


def put_legs(device: Device, legs: Legs, leg_of_pair: NDArray[np.int64]) -> DeviceLegs:
    """Return legs on a device, given the leg of each pair (m,)."""
    order = np.argsort(leg_of_pair, kind="stable").astype(np.int64)
    ptr = np.searchsorted(leg_of_pair[order], np.arange(legs.node.size + 1)).astype(np.int64)
    parts: list[Any] = [*map(device.put, (*legs, ptr, order)), legs.path.size]
    return DeviceLegs(*parts)


def _power_below(value: int) -> int:
    return 1 << (value.bit_length() - 1)
