"""`GpuGoalValues`: path sums between pairs of states on a GPU, for several rewards at once.

Policies, samples and flows of a single reward are computed on the CPU, and so are pairs out of float64's range.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from limiirl._typing import FloatArray, IntArray
from limiirl.errors import NumericalError
from limiirl.irl.destination.path_sums import GoalValues, bounded, divergent, near
from limiirl.irl.maxent.gpu import gpu_backend
from limiirl.kernels.elimination.numeric import legs, meets
from limiirl.kernels.elimination.symbolic import Plan
from limiirl.kernels.gpu.device import Device, faults
from limiirl.kernels.gpu.elimination import DeviceGoals, DeviceLegs, DevicePairs, Eliminated, put_legs
from limiirl.kernels.gpu.forward_backward import column_max
from limiirl.kernels.gpu.sparse import SparseRows
from limiirl.mdp import MDP

# Sets of pairs whose legs are remembered: those of an E-step, and of an M-step.
_REMEMBERED = 2


class AncestorPaths(NamedTuple):
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

    pairs: IntArray
    end_of: NDArray[np.intp]
    up: DeviceLegs
    down: DeviceLegs
    ends: DevicePairs


def make_ancestor_paths(device: Device, plan: Plan, pairs: IntArray, start: IntArray, goal: IntArray) -> AncestorPaths:
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
    return AncestorPaths(pairs, end_of, up, down, DevicePairs(first, last, meet))


class AncestorPathCache:
    """The legs of the pairs that were asked for lately."""

    def __init__(self, device: Device, plan: Plan) -> None:
        self._device, self._plan = device, plan
        self._recent: OrderedDict[tuple[bytes, bytes], AncestorPaths] = OrderedDict()

    def parts(self, starts: IntArray, goals: IntArray, n_columns: int, max_bytes: float) -> Iterator[AncestorPaths]:
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
                    yield make_ancestor_paths(self._device, plan, part, start[part], goal[part])
                return
            known = make_ancestor_paths(self._device, plan, order, start[order], goal[order])
        self._recent[key] = known
        while len(self._recent) > _REMEMBERED:
            self._recent.popitem(last=False)
        yield known


def _cuts(size: IntArray, most: float) -> list[int]:
    """Return where to cut a row of sizes (m,) into the longest parts whose sums are at most `most`."""
    ends, cuts, last = np.cumsum(size), [], 0
    while last < size.size:
        before = int(ends[last - 1]) if last else 0
        last = max(last + 1, int(np.searchsorted(ends, before + most, side="right")))
        cuts.append(last)
    return cuts[:-1]


def entry_bytes(n_columns: int) -> float:
    """Return the memory of one place of a leg: its state, and for each intent the leg and its derivative."""
    return 4.0 + 16.0 * n_columns


# Rewards at once: blocks mostly wait for each other, so that a few more cost little.
_COLUMNS = 8


class _DeviceElimination:
    """An MDP and its plan on a device."""

    def __init__(self, mdp: MDP, plan: Plan, device: Device) -> None:
        self.device = device
        self.backend = gpu_backend(mdp, device)
        compiled = self.backend.host
        graph = compiled.graph
        slot = np.empty(graph.n_edges, dtype=np.int64)
        slot[compiled.edge_of] = plan.slot
        slot = slot[graph.edge_order]
        self.goals, self.slot = DeviceGoals(device, plan, slot), device.put(slot)
        self.head = device.put(graph.out.idx.astype(np.int64))
        shape = (graph.n_states, graph.n_edges)
        into = (np.ones(graph.n_edges), graph.in_edge.astype(np.int32), graph.into.ptr.astype(np.int32))
        self._into = SparseRows(device, sparse.csr_array(into, shape=shape))
        self.routes = AncestorPathCache(device, plan)

    def log_moves(self, mdp: MDP, thetas: FloatArray) -> Any:
        """Return (E', K) the log-weights of the engine's edges, sorted by source."""
        node, edge = self.backend.rewards(mdp, thetas)
        found = node[self.head]
        mass = self.backend.edge_weights(log=True)[0]
        for part in (None if mass is None else mass[:, None], edge):
            if part is not None:
                found = found + part
        return found

    def uses(self, log_w: Any, found: Eliminated, pull: Any) -> Any:
        """Return (E', K) the derivatives by the log-weights of edges, from those by the values of moves."""
        return pull[self.slot] * self.device.xp.exp(log_w - found.value[self.slot])

    def features(self, mdp: MDP, flow: Any) -> FloatArray:
        """Return (K, d) the features collected by uses (E', K) of edges, those of the states they lead to included."""
        return self.backend.expected_features(mdp, self._into.times(flow), flow[self.backend.graph.in_edge])


_known: weakref.WeakKeyDictionary[MDP, _DeviceElimination] = weakref.WeakKeyDictionary()


class GpuGoalValues(GoalValues):
    """`GoalValues` on a device.

    Parameters
    ----------
    mdp : MDP
    device : Device
    max_bytes : float, optional
        Memory for what depends on the rewards; by default half of what is free on the device. Pairs that need more are
        taken a part at a time.
    last : int
        See `GoalValues`.
    """

    together = True

    @faults()
    def __init__(self, mdp: MDP, device: Device, max_bytes: float | None = None, last: int = 0) -> None:
        super().__init__(mdp, last)
        known = _known.get(mdp)
        if known is None or known.device is not device:
            known = _known[mdp] = _DeviceElimination(mdp, self.plan, device)
        self.device, self._place = device, known
        self.max_bytes = max_bytes

    @faults()
    def finite(self, theta: FloatArray, margin: float = 0.0) -> bool:
        """See `GoalValues`."""
        return bool(self._eliminated(theta[None], margin)[1].stuck[0] < 0)

    @faults()
    def edge(self, theta: FloatArray, margin: float = 0.0) -> tuple[float, FloatArray] | None:
        """See `GoalValues`."""
        log_w, found = self._eliminated(theta[None], margin)
        stuck = int(found.stuck[0])
        if stuck < 0:
            return None
        xp, place = self.device.xp, self._place
        loop, pull = 2 * self.plan.up.size + stuck, xp.zeros_like(found.value)
        pull[loop] = 1.0
        with np.errstate(all="ignore"):  # what is above the state has values of no use, and no share in this
            place.goals.pull_back(found, pull, xp.zeros_like(found.star))
            flow = place.uses(log_w, found, pull)[place.backend.graph.in_edge]
        value = float(self.device.take(found.value[loop])[0])
        return value, place.backend.host.spread(self.device.take(flow))[:, 0]

    @faults()
    def log_values(self, thetas: FloatArray, starts: IntArray, goals: IntArray) -> FloatArray:
        """See `GoalValues`."""
        found = np.empty((starts.size, thetas.shape[0]))
        for columns in self.columns(thetas.shape[0]):
            batch = GpuPathSums(self, thetas[columns], 0.0)
            if np.any(batch.stuck >= 0):
                raise divergent(self.plan, int(batch.stuck[np.argmax(batch.stuck >= 0)]))
            for routes in self._place.routes.parts(starts, goals, len(columns), self._max_bytes() / 2):
                found[routes.pairs, columns.start : columns.stop] = batch.log_values(routes)
            for k in columns:
                far = np.flatnonzero(np.isnan(found[:, k]))
                if far.size:
                    found[far, k] = self.solve(thetas[k]).ways(starts[far], goals[far]).log_value
        return found

    @faults()
    def weigh(
        self, thetas: FloatArray, starts: IntArray, goals: IntArray, weights: FloatArray, margin: float = 0.0
    ) -> tuple[FloatArray, FloatArray]:
        """See `GoalValues`."""
        values, slopes = np.full(thetas.shape[0], np.inf), np.zeros_like(thetas)
        for columns in self.columns(thetas.shape[0]):
            try:
                batch = GpuPathSums(self, thetas[columns], margin)
            except NumericalError:  # of one of them: the others still count
                for k in columns if len(columns) > 1 else ():
                    one = slice(k, k + 1)
                    values[one], slopes[one] = self.weigh(thetas[one], starts, goals, weights[:, one], margin)
                continue
            if np.all(batch.stuck >= 0):
                continue
            found = batch.weigh(starts, goals, np.where(batch.stuck < 0, weights[:, columns], 0.0))
            for j, k in enumerate(columns):
                if batch.stuck[j] < 0:
                    values[k], slopes[k] = self._with_far(thetas[k], starts, goals, found, j, margin)
        return values, slopes

    def _with_far(
        self, theta: FloatArray, starts: IntArray, goals: IntArray, found: WeightedPathSums, j: int, margin: float
    ) -> tuple[float, FloatArray]:
        """Return the sum and its derivatives under one reward, with the pairs that are left to the CPU."""
        value, slope = float(found.value[j]), found.slope[j]
        if np.any(found.left[:, j]):
            more, steeper = self._weigh(theta, starts, goals, found.left[:, j], margin)
            value, slope = value + more, slope + steeper
        return value, slope

    def _eliminated(self, thetas: FloatArray, margin: float) -> tuple[Any, Eliminated]:
        """Return log-weights of edges and completed values, or raise `NumericalError` in the words of the CPU."""
        place, log_w = self._place, None
        with suppress(NumericalError):
            log_w = place.log_moves(self.mdp, thetas)
        if log_w is None or not np.all(np.isfinite(self.device.take(place.backend.column_sums(log_w)))):
            for theta in thetas:
                self.log_moves(theta)
            log_w = place.log_moves(self.mdp, thetas)  # it was the sum alone
        return log_w, place.goals.eliminate(place.goals.load(log_w), margin)

    def _max_bytes(self) -> float:
        return self.device.free_bytes() / 2 if self.max_bytes is None else self.max_bytes

    def columns(self, n: int) -> list[range]:
        """Return which of n rewards are computed together: values, their derivatives and moves fill half the memory."""
        one = 8.0 * (4 * self.plan.n_values + 4 * self.mdp.n_states + 4 * self.mdp.n_edges)
        most = int(max(1, min(_COLUMNS, self.device.n_threads, self._max_bytes() / 2 / one)))
        return [range(k, min(n, k + most)) for k in range(0, n, most)]


class WeightedPathSums(NamedTuple):
    """Sums (K,) over pairs, their derivatives (K, d), and the weights (m, K) of pairs that they leave out."""

    value: FloatArray
    slope: FloatArray
    left: FloatArray


class GpuPathSums:
    """Sums over walks under some rewards (K, d); of no use where `stuck` (K,) is a state and not -1.

    `log_most` (K,) is the logarithm of the largest sum of all walks from a state.
    """

    def __init__(self, values: GpuGoalValues, thetas: FloatArray, margin: float) -> None:
        self._values, self._place, self._goals = values, values._place, values._place.goals
        self._log_w, self._found = values._eliminated(thetas, margin)
        self.stuck = self._found.stuck
        self.log_most = np.full(self.stuck.size, np.inf)
        if np.any(self.stuck < 0):
            with np.errstate(all="ignore"):
                self._moves = self._goals.moves(self._found)
                self._loops = values.device.xp.exp(self._found.star)
            sums = values.device.take(column_max(values.device, self._goals.finish_reach(self._found)))
            self.log_most = np.where(self.stuck < 0, sums, np.inf)
            self._fine = bounded(self.log_most)

    def loop_weight(self, k: int) -> float:
        """Return the log-weight of the loops at the state that the k-th reward is stuck at."""
        loop = 2 * self._values.plan.up.size + int(self.stuck[k])
        return float(self._values.device.take(self._found.value[loop])[k])

    def log_values(self, routes: AncestorPaths) -> FloatArray:
        """Return (m, K); nan where a pair is left to the CPU."""
        total, done = self._totals(routes, *self._legs(routes))
        m = routes.pairs.size
        with np.errstate(all="ignore"):
            return np.where(done, np.log(total[:m] / total[m:][routes.end_of]), np.nan)

    def weigh(self, starts: IntArray, goals: IntArray, weights: FloatArray) -> WeightedPathSums:
        """Return sums by weights (m, K)."""
        values, place, goals_of, xp = self._values, self._place, self._goals, self._values.device.xp
        pull, pull_star = xp.zeros_like(self._found.value), xp.zeros_like(self._found.star)
        value, left = np.zeros(self.stuck.size), np.zeros_like(weights)
        for routes in place.routes.parts(starts, goals, self.stuck.size, values._max_bytes() / 2):
            given, legs = weights[routes.pairs], self._legs(routes)
            total, done = self._totals(routes, *legs)
            m = routes.pairs.size
            counted = np.where(done, given, 0.0)
            left[routes.pairs] = given - counted
            own = np.zeros((total.shape[0] - m, self.stuck.size))
            np.subtract.at(own, routes.end_of, counted)
            by_sum = np.concatenate([counted, own])
            used = by_sum != 0.0
            value += np.sum(by_sum * np.log(total, out=np.zeros_like(total), where=used), axis=0)
            np.divide(by_sum, total, out=by_sum, where=used)
            self._pull(routes, legs, values.device.put(by_sum), pull, pull_star)
        with np.errstate(all="ignore"):
            goals_of.pull_back(self._found, pull, pull_star)
            # What is subtracted for walks beyond the goal may leave a little less than 0.
            flow = xp.maximum(place.uses(self._log_w, self._found, pull), 0.0)
            return WeightedPathSums(value, place.features(values.mdp, flow), left)

    def _legs(self, routes: AncestorPaths) -> tuple[Any, Any]:
        up, down = self._moves
        return self._goals.climb(routes.up, up, None), self._goals.climb(routes.down, down, self._loops)

    def _totals(self, routes: AncestorPaths, leg_up: Any, leg_down: Any) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Return sums over walks of the pairs and of each goal with itself, and which pairs (m, K) are right."""
        total = self._values.device.take(self._goals.join(routes.ends, leg_up, leg_down))
        return total, near(total[: routes.pairs.size]) & self._fine

    def _pull(self, routes: AncestorPaths, legs: tuple[Any, Any], by_sum: Any, pull: Any, pull_star: Any) -> None:
        """Add derivatives by completed values and by star, given those by the sums of pairs."""
        n, ends = self._goals.n, routes.ends
        sides = (
            (routes.up, self._moves[0], legs[0], legs[1], ends.other, pull[:n]),
            (routes.down, self._moves[1], legs[1], legs[0], ends.one, pull[n : 2 * n]),
        )
        for down, (mine, weight, leg, other_leg, other, part) in enumerate(sides):
            pull_leg = self._goals.legs_back(mine, weight, by_sum, other, ends.meet, other_leg)
            self._goals.moves_back(mine, weight, leg, pull_leg, bool(down), part, pull_star)
