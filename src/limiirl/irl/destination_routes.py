"""The legs of pairs of states on a GPU, made once for all rewards, in parts that fit its memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from limiirl.kernels.goal_plan import Plan
from limiirl.kernels.goal_tree import legs, meets
from limiirl.kernels.gpu_device import Device
from limiirl.kernels.gpu_goals import DeviceLegs, DevicePairs, put_legs

Int = NDArray[np.int64]
# Sets of pairs whose legs are remembered: those of an E-step, and of an M-step.
_REMEMBERED = 2


class Routes(NamedTuple):
    """Pairs with their legs on a device.

    Attributes
    ----------
    pairs : (m,)
        Their numbers among all that were asked for.
    end_of : (m,)
        The number of the goal of each among the distinct ones.
    up, down : DeviceLegs
        Legs that begin in a start or a goal, and legs that end in a goal.
    ends : DevicePairs
        The pairs, and then each goal with itself.
    """

    pairs: Int
    end_of: NDArray[np.intp]
    up: DeviceLegs
    down: DeviceLegs
    ends: DevicePairs


def make_routes(device: Device, plan: Plan, pairs: Int, start: Int, goal: Int) -> Routes:
    """Return the legs of pairs (m,) of states, which are numbered by the plan."""
    ends, end_of = np.unique(goal, return_inverse=True)
    one, other = np.concatenate([start, ends]), np.concatenate([goal, ends])
    sides = []
    for nodes, of in ((np.unique(one), one), (ends, other)):
        made = legs(plan.parent, plan.depth, nodes)
        leg_of = np.empty(plan.rank.size, dtype=np.int64)
        leg_of[made.node] = np.arange(made.node.size)
        sides.append((put_legs(device, made, leg_of[of]), device.put(made.ptr[leg_of[of] + 1] - 1)))
    (up, first), (down, last) = sides
    meet = device.put(meets(plan.parent, plan.depth, one, other))
    return Routes(pairs, end_of, up, down, DevicePairs(first, last, meet))


class RouteMemory:
    """The legs of the pairs that were asked for lately.

    Parameters
    ----------
    device : Device
    plan : Plan
    """

    def __init__(self, device: Device, plan: Plan) -> None:
        self._device, self._plan = device, plan
        self._recent: OrderedDict[tuple[bytes, bytes], Routes] = OrderedDict()

    def parts(self, starts: Int, goals: Int, n_columns: int, max_bytes: float) -> Iterator[Routes]:
        """Yield pairs (m,) of states in parts whose legs and derivatives take at most so much, or are one pair each.

        Pairs that fit at once are remembered; others are made anew each time, and one part after the other.
        """
        plan, key = self._plan, (starts.tobytes(), goals.tobytes())
        known = self._recent.pop(key, None)
        if known is None or (known.up.size + known.down.size) * entry_bytes(n_columns) > max_bytes:
            start, goal = plan.rank[starts], plan.rank[goals]
            order = np.argsort(goal, kind="stable")
            # At most a leg of the start and two of the goal, with a place for each state above and itself.
            size = (plan.depth[start] + 2 * plan.depth[goal] + 3)[order]
            cuts = _cuts(size, max_bytes / entry_bytes(n_columns))
            if cuts:
                for part in np.split(order, cuts):
                    yield make_routes(self._device, plan, part, start[part], goal[part])
                return
            known = make_routes(self._device, plan, order, start[order], goal[order])
        self._recent[key] = known
        while len(self._recent) > _REMEMBERED:
            self._recent.popitem(last=False)
        yield known


def _cuts(size: Int, most: float) -> list[int]:
    """Return where to cut a row of sizes (m,), so that each part is as long as it can be with a sum of at most `most`.

    Examples
    --------
    >>> _cuts(np.array([4, 3, 4, 9, 1, 5]), 7.0)
    [2, 3, 4]
    """
    ends, cuts, last = np.cumsum(size), [], 0
    while last < size.size:
        before = int(ends[last - 1]) if last else 0
        last = max(last + 1, int(np.searchsorted(ends, before + most, side="right")))
        cuts.append(last)
    return cuts[:-1]


def entry_bytes(n_columns: int) -> float:
    """Return the memory of one place of a leg: its state, and for each intent the leg and its derivative."""
    return 4.0 + 16.0 * n_columns
