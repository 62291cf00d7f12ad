"""`GpuGoalValues`: path sums between pairs of states on a GPU, for several thetas at once.

Policies, samples and flows for a single theta, and path sums that overflow or underflow on the GPU, are computed on the
CPU.
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
from limiirl.irl.destination.path_sums import GoalValues, divergent, is_accurate, is_within_limit
from limiirl.irl.maxent.gpu import gpu_backend
from limiirl.kernels.elimination.numeric import find_lca_depths, make_tree_paths
from limiirl.kernels.elimination.symbolic import SymbolicFactorisation
from limiirl.kernels.gpu.device import Device, SparseRows, convert_cuda_errors
from limiirl.kernels.gpu.elimination import DeviceElimination, DevicePairs, DeviceTreePaths, Eliminated, put_tree_paths
from limiirl.kernels.gpu.forward_backward import column_max
from limiirl.mdp import MDP

# Number of cached queries, one for the pairs of an E-step and one for the pairs of an M-step.
_CACHE_SIZE = 2


class AncestorPaths(NamedTuple):
    """Ancestor paths of pairs of states in the elimination tree, on a device.

    Attributes
    ----------
    pairs : (m,)
        Indices of the pairs in the query.
    end_of : (m,)
        Index of each pair's goal among the distinct goals.
    up, down : DeviceTreePaths
        `up` contains the ancestor paths of starts and goals, and `down` the ancestor paths of goals.
    ends : DevicePairs
        Pairs (start, goal), followed by (goal, goal) for each distinct goal.
    """

    pairs: IntArray
    end_of: NDArray[np.intp]
    up: DeviceTreePaths
    down: DeviceTreePaths
    ends: DevicePairs


def make_ancestor_paths(
    device: Device, symbolic: SymbolicFactorisation, pairs: IntArray, start: IntArray, goal: IntArray
) -> AncestorPaths:
    """Return the ancestor paths of pairs (m,) of states, which are given by their ranks in the elimination order."""
    ends, end_of = np.unique(goal, return_inverse=True)
    one, other = np.concatenate([start, ends]), np.concatenate([goal, ends])
    sides = []
    for nodes, of in ((np.unique(one), one), (ends, other)):
        made = make_tree_paths(symbolic.parent, symbolic.depth, nodes)
        path_of = np.empty(symbolic.rank.size, dtype=np.int64)
        path_of[made.node] = np.arange(made.node.size)
        sides.append((put_tree_paths(device, made, path_of[of]), device.put(made.ptr[path_of[of] + 1] - 1)))
    (up, first), (down, last) = sides
    lca_depth = device.put(find_lca_depths(symbolic.parent, symbolic.depth, one, other))
    return AncestorPaths(pairs, end_of, up, down, DevicePairs(first, last, lca_depth))


class AncestorPathCache:
    """Cache of the ancestor paths of recent queries."""

    def __init__(self, device: Device, symbolic: SymbolicFactorisation) -> None:
        self._device, self._symbolic = device, symbolic
        self._recent: OrderedDict[tuple[bytes, bytes], AncestorPaths] = OrderedDict()

    def batches(self, starts: IntArray, goals: IntArray, n_columns: int, max_bytes: float) -> Iterator[AncestorPaths]:
        """Yield the ancestor paths of pairs (m,) in batches of at most `max_bytes`; a single batch is cached."""
        symbolic, key = self._symbolic, (starts.tobytes(), goals.tobytes())
        paths = self._recent.pop(key, None)
        if paths is None or (paths.up.size + paths.down.size) * entry_bytes(n_columns) > max_bytes:
            start, goal = symbolic.rank[starts], symbolic.rank[goals]
            order = np.argsort(goal, kind="stable")
            # Each pair requires at most one path of its start and two paths of its goal, with depth + 1 states each.
            size = (symbolic.depth[start] + 2 * symbolic.depth[goal] + 3)[order]
            cuts = _cuts(size, max_bytes / entry_bytes(n_columns))
            if cuts:
                for part in np.split(order, cuts):
                    yield make_ancestor_paths(self._device, symbolic, part, start[part], goal[part])
                return
            paths = make_ancestor_paths(self._device, symbolic, order, start[order], goal[order])
        self._recent[key] = paths
        while len(self._recent) > _CACHE_SIZE:
            self._recent.popitem(last=False)
        yield paths


def _cuts(size: IntArray, most: float) -> list[int]:
    """Return the indices that divide sizes (m,) into batches, as long as possible, with sums of at most `most`."""
    ends, cuts, last = np.cumsum(size), [], 0
    while last < size.size:
        before = int(ends[last - 1]) if last else 0
        last = max(last + 1, int(np.searchsorted(ends, before + most, side="right")))
        cuts.append(last)
    return cuts[:-1]


def entry_bytes(n_columns: int) -> float:
    """Return the bytes per state of an ancestor path, which has one index, and one value and one adjoint per intent."""
    return 4.0 + 16.0 * n_columns


# Maximum number of thetas per batch. Additional thetas cost little, because the kernels are latency-bound.
_COLUMNS = 8


class _DeviceElimination:
    """An MDP and its symbolic factorisation on a device."""

    def __init__(self, mdp: MDP, symbolic: SymbolicFactorisation, device: Device) -> None:
        self.device = device
        self.backend = gpu_backend(mdp, device)
        compiled = self.backend.host
        graph = compiled.graph
        slot = np.empty(graph.n_edges, dtype=np.int64)
        slot[compiled.edge_of] = symbolic.slot
        slot = slot[graph.edge_order]
        self.goals, self.slot = DeviceElimination(device, symbolic, slot), device.put(slot)
        self.head = device.put(graph.out.idx.astype(np.int64))
        shape = (graph.n_states, graph.n_edges)
        into = (np.ones(graph.n_edges), graph.in_edge.astype(np.int32), graph.into.ptr.astype(np.int32))
        self._into = SparseRows(device, sparse.csr_array(into, shape=shape))
        self.paths = AncestorPathCache(device, symbolic)

    def edge_log_weights(self, mdp: MDP, thetas: FloatArray) -> Any:
        """Return the log-weights (E', K) of the compiled edges, sorted by source."""
        node, edge = self.backend.rewards(mdp, thetas)
        log_w = node[self.head]
        mass = self.backend.edge_weights(log=True)[0]
        for part in (None if mass is None else mass[:, None], edge):
            if part is not None:
                log_w = log_w + part
        return log_w

    def edge_counts(self, log_w: Any, eliminated: Eliminated, adjoint: Any) -> Any:
        """Return the derivatives (E', K) with respect to the edge log-weights, from the adjoints of the values."""
        return adjoint[self.slot] * self.device.xp.exp(log_w - eliminated.value[self.slot])

    def features(self, mdp: MDP, flow: Any) -> FloatArray:
        """Return the sums (K, d) of edge counts (E', K) times the features of edges and their target states."""
        return self.backend.expected_features(mdp, self._into.times(flow), flow[self.backend.graph.in_edge])


_ELIMINATIONS: weakref.WeakKeyDictionary[MDP, _DeviceElimination] = weakref.WeakKeyDictionary()


class GpuGoalValues(GoalValues):
    """`GoalValues` on a device.

    `max_bytes` limits the memory for values; the default is half of the free memory. Larger queries are divided into
    batches.
    """

    batched = True

    @convert_cuda_errors()
    def __init__(self, mdp: MDP, device: Device, max_bytes: float | None = None, last: int = 0) -> None:
        super().__init__(mdp, last)
        elimination = _ELIMINATIONS.get(mdp)
        if elimination is None or elimination.device is not device:
            elimination = _ELIMINATIONS[mdp] = _DeviceElimination(mdp, self.symbolic, device)
        self.device, self._elimination = device, elimination
        self.max_bytes = max_bytes

    @convert_cuda_errors()
    def is_finite(self, theta: FloatArray, margin: float = 0.0) -> bool:
        """See `GoalValues`."""
        return bool(self._eliminate_many(theta[None], margin)[1].divergent_state[0] < 0)

    @convert_cuda_errors()
    def divergent_loop(self, theta: FloatArray, margin: float = 0.0) -> tuple[float, FloatArray] | None:
        """See `GoalValues`."""
        log_w, eliminated = self._eliminate_many(theta[None], margin)
        state = int(eliminated.divergent_state[0])
        if state < 0:
            return None
        xp, elimination = self.device.xp, self._elimination
        entry, adjoint = 2 * self.symbolic.up.size + state, xp.zeros_like(eliminated.value)
        adjoint[entry] = 1.0
        with np.errstate(
            all="ignore"
        ):  # values of states that are eliminated later are invalid, but their adjoints are 0
            elimination.goals.eliminate_adjoint(eliminated, adjoint, xp.zeros_like(eliminated.star))
            flow = elimination.edge_counts(log_w, eliminated, adjoint)[elimination.backend.graph.in_edge]
        value = float(self.device.take(eliminated.value[entry])[0])
        return value, elimination.backend.host.spread(self.device.take(flow))[:, 0]

    @convert_cuda_errors()
    def log_values(self, thetas: FloatArray, starts: IntArray, goals: IntArray) -> FloatArray:
        """See `GoalValues`."""
        log_beta = np.empty((starts.size, thetas.shape[0]))
        for columns in self.columns(thetas.shape[0]):
            batch = GpuPathSums(self, thetas[columns], 0.0)
            if np.any(batch.divergent_state >= 0):
                raise divergent(self.symbolic.state_at(batch.divergent_state[np.argmax(batch.divergent_state >= 0)]))
            for paths in self._elimination.paths.batches(starts, goals, len(columns), self._max_bytes() / 2):
                log_beta[paths.pairs, columns.start : columns.stop] = batch.log_values(paths)
            for k in columns:
                far = np.flatnonzero(np.isnan(log_beta[:, k]))
                if far.size:
                    log_beta[far, k] = self.solve(thetas[k]).pair_sums(starts[far], goals[far]).log_value
        return log_beta

    @convert_cuda_errors()
    def sum_pairs(
        self, thetas: FloatArray, starts: IntArray, goals: IntArray, weights: FloatArray, margin: float = 0.0
    ) -> tuple[FloatArray, FloatArray]:
        """See `GoalValues`."""
        values, gradients = np.full(thetas.shape[0], np.inf), np.zeros_like(thetas)
        for columns in self.columns(thetas.shape[0]):
            try:
                batch = GpuPathSums(self, thetas[columns], margin)
            except NumericalError:  # at least one theta overflows; evaluate thetas one by one
                for k in columns if len(columns) > 1 else ():
                    one = slice(k, k + 1)
                    part = self.sum_pairs(thetas[one], starts, goals, weights[:, one], margin)
                    values[one], gradients[one] = part
                continue
            if np.all(batch.divergent_state >= 0):
                continue
            sums = batch.sum_pairs(starts, goals, np.where(batch.divergent_state < 0, weights[:, columns], 0.0))
            for j, k in enumerate(columns):
                if batch.divergent_state[j] < 0:
                    values[k], gradients[k] = float(sums.value[j]), sums.gradient[j]
                    if np.any(sums.left[:, j]):  # pairs that need the CPU
                        more = self._sum_pairs(thetas[k], starts, goals, sums.left[:, j], margin)
                        values[k], gradients[k] = values[k] + more[0], gradients[k] + more[1]
        return values, gradients

    def _eliminate_many(self, thetas: FloatArray, margin: float) -> tuple[Any, Eliminated]:
        """Return the edge log-weights and the eliminated values; raise `NumericalError` if a reward is not finite."""
        elimination, log_w = self._elimination, None
        with suppress(NumericalError):
            log_w = elimination.edge_log_weights(self.mdp, thetas)
        if log_w is None or not np.all(np.isfinite(self.device.take(elimination.backend.column_sums(log_w)))):
            for theta in thetas:
                self.edge_log_weights(theta)
            log_w = elimination.edge_log_weights(self.mdp, thetas)  # only the sum overflowed
        return log_w, elimination.goals.eliminate(elimination.goals.load(log_w), margin)

    def _max_bytes(self) -> float:
        return self.device.free_bytes() / 2 if self.max_bytes is None else self.max_bytes

    def columns(self, n: int) -> list[range]:
        """Divide n thetas into batches whose values, adjoints and edge weights fit in half of `max_bytes`."""
        one = 8.0 * (4 * self.symbolic.n_values + 4 * self.mdp.n_states + 4 * self.mdp.n_edges)
        most = int(max(1, min(_COLUMNS, self.device.n_threads, self._max_bytes() / 2 / one)))
        return [range(k, min(n, k + most)) for k in range(0, n, most)]


class WeightedPathSums(NamedTuple):
    """Weighted sums (K,) over pairs, their gradients (K, d), and the weights (m, K) of pairs that need the CPU."""

    value: FloatArray
    gradient: FloatArray
    left: FloatArray


class GpuPathSums:
    """Path sums under thetas (K, d).

    `divergent_state` (K,) is the first state with a divergent sum, or -1 if the path sums under the theta are valid.
    `log_most` (K,) is the maximum over states of the log-sum over all walks from the state.
    """

    def __init__(self, values: GpuGoalValues, thetas: FloatArray, margin: float) -> None:
        self._values, self._elimination, self._goals = values, values._elimination, values._elimination.goals
        self._log_w, self._eliminated = values._eliminate_many(thetas, margin)
        self.divergent_state = self._eliminated.divergent_state
        self.log_most = np.full(self.divergent_state.size, np.inf)
        if np.any(self.divergent_state < 0):
            with np.errstate(all="ignore"):
                self._moves = self._goals.transition_weights(self._eliminated)
                self._loops = values.device.xp.exp(self._eliminated.star)
            sums = values.device.take(column_max(values.device, self._goals.finish_reach(self._eliminated)))
            self.log_most = np.where(self.divergent_state < 0, sums, np.inf)
            self._fine = is_within_limit(self.log_most)

    def loop_weight(self, k: int) -> float:
        """Return the log-weight of the cycles through `divergent_state[k]`, where the path sum of theta k diverges."""
        entry = 2 * self._values.symbolic.up.size + int(self.divergent_state[k])
        return float(self._values.device.take(self._eliminated.value[entry])[k])

    def log_values(self, paths: AncestorPaths) -> FloatArray:
        """Return log beta (m, K); nan for pairs that need the CPU."""
        total, done = self._sum_over_paths(paths, *self._path_weights(paths))
        m = paths.pairs.size
        with np.errstate(all="ignore"):
            return np.where(done, np.log(total[:m] / total[m:][paths.end_of]), np.nan)

    def sum_pairs(self, starts: IntArray, goals: IntArray, weights: FloatArray) -> WeightedPathSums:
        """Return the sums of log beta(start, goal) over pairs (m,), weighted by `weights` (m, K)."""
        values, elimination, xp = self._values, self._elimination, self._values.device.xp
        adjoint, star_adjoint = xp.zeros_like(self._eliminated.value), xp.zeros_like(self._eliminated.star)
        value, left = np.zeros(self.divergent_state.size), np.zeros_like(weights)
        for paths in elimination.paths.batches(starts, goals, self.divergent_state.size, values._max_bytes() / 2):
            part, path_weights = weights[paths.pairs], self._path_weights(paths)
            total, done = self._sum_over_paths(paths, *path_weights)
            m = paths.pairs.size
            counted = np.where(done, part, 0.0)
            left[paths.pairs] = part - counted
            own = np.zeros((total.shape[0] - m, self.divergent_state.size))
            np.subtract.at(own, paths.end_of, counted)
            by_sum = np.concatenate([counted, own])
            used = by_sum != 0.0
            value += np.sum(by_sum * np.log(total, out=np.zeros_like(total), where=used), axis=0)
            np.divide(by_sum, total, out=by_sum, where=used)
            self._add_adjoints(paths, path_weights, values.device.put(by_sum), adjoint, star_adjoint)
        with np.errstate(all="ignore"):
            self._goals.eliminate_adjoint(self._eliminated, adjoint, star_adjoint)
            # The subtraction of walks beyond the goal may cause negative rounding errors.
            flow = xp.maximum(elimination.edge_counts(self._log_w, self._eliminated, adjoint), 0.0)
            return WeightedPathSums(value, elimination.features(values.mdp, flow), left)

    def _path_weights(self, paths: AncestorPaths) -> tuple[Any, Any]:
        up, down = self._moves
        return self._goals.solve_triangular(paths.up, up, None), self._goals.solve_triangular(
            paths.down, down, self._loops
        )

    def _sum_over_paths(self, paths: AncestorPaths, up: Any, down: Any) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Return the sums over walks from start to goal and from goal to goal, and a mask (m, K) of accurate pairs."""
        total = self._values.device.take(self._goals.combine(paths.ends, up, down))
        return total, is_accurate(total[: paths.pairs.size]) & self._fine

    def _add_adjoints(
        self, paths: AncestorPaths, path_weights: tuple[Any, Any], by_sum: Any, adjoint: Any, star_adjoint: Any
    ) -> None:
        """Propagate `by_sum`, the adjoints of the sums over pairs, to the eliminated values and the Kleene stars."""
        n, ends, (up, down) = self._goals.n, paths.ends, path_weights
        sides = (
            (paths.up, self._moves[0], up, down, ends.other, adjoint[:n]),
            (paths.down, self._moves[1], down, up, ends.one, adjoint[n : 2 * n]),
        )
        for side, (tree_paths, weight, own, opposite, other, part) in enumerate(sides):
            own_adjoint = self._goals.path_adjoints(tree_paths, weight, by_sum, other, ends.lca_depth, opposite)
            self._goals.transition_adjoints(tree_paths, weight, own, own_adjoint, bool(side), part, star_adjoint)
