"""`GpuInfinitePathSums`: sums over trajectories of unbounded length on a GPU, for several thetas at once.

The graph is augmented with an entrance, which has edges to the start states, and an exit, which has edges from the
states where a trajectory may end. `GpuGoalValues` sums over the paths from the entrance to the exit. Only log Z and its
gradient are computed on the GPU. If elimination is nearly singular, the CPU is used.
"""

from __future__ import annotations

import math
import weakref
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from limiirl._typing import FloatArray, IntArray
from limiirl.errors import DivergentPartition, NumericalError
from limiirl.irl.destination.gpu import GpuGoalValues, GpuPathSums
from limiirl.irl.maxent.gpu import side_by_side
from limiirl.irl.maxent.infinite_horizon import NEARLY_SINGULAR, InfinitePathSums
from limiirl.kernels.gpu.device import Device, convert_cuda_errors
from limiirl.mdp import MDP, edge_parts

# Log-weight of cycles above which the sum is certainly infinite. Between 0 and this value, the CPU is used, because
# rounding errors matter.
_CLEARLY = 1e-9


class _Augmented(NamedTuple):
    """MDP of the states that lie on a trajectory, with an exit and, unless conditioned on the start, an entrance.

    Attributes
    ----------
    mdp : MDP
        Augmented MDP. Its last feature is the log-probability of an edge, or log p0. Its transition probabilities are
        all 1, because after states are removed, the probabilities of an action may not sum to 1.
    place : (S,)
        Index of each state in the augmented MDP; -1 if the state is not included.
    exit : int
        Index of the exit; the entrance is exit - 1.
    """

    mdp: MDP
    place: IntArray
    exit: int


class GpuInfinitePathSums(InfinitePathSums):
    """`InfinitePathSums` on a device; see `GpuGoalValues` for `max_bytes`."""

    batched = True

    def __init__(
        self,
        mdp: MDP,
        device: Device,
        *,
        stop: str = "anywhere",
        by_start: bool = False,
        max_bytes: float | None = None,
    ) -> None:
        super().__init__(mdp, stop=stop, by_start=by_start)
        self._device, self._max_bytes = device, max_bytes

    @cached_property
    def _augmented(self) -> _Augmented:
        cached, key = _AUGMENTED.setdefault(self.mdp, {}), (self.stop, self.by_start)
        if key not in cached:
            cached[key] = self._augment()
        return cached[key]

    @cached_property
    def _values(self) -> GpuGoalValues:
        return GpuGoalValues(self._augmented.mdp, self._device, self._max_bytes, last=1 if self.by_start else 2)

    def log_partition(self, thetas: FloatArray, *, starts: FloatArray | None = None) -> FloatArray:
        """Return log_Z (K,); its gradient is computed as well and discarded."""
        return self.value_and_grad(thetas, starts=starts)[0]

    @convert_cuda_errors()
    def value_and_grad(self, thetas: FloatArray, *, starts: FloatArray | None = None) -> tuple[FloatArray, FloatArray]:
        """Return log_Z (K,) and its gradient (K, d), the expected features."""
        K = thetas.shape[0]
        if starts is not None and not self.by_start:  # the entrance has edges to the start states of p0 only
            return super().value_and_grad(thetas, starts=starts)
        begin, weights = self._start_nodes(starts, K)
        log_Z, expected = np.full(K, np.nan), np.zeros(thetas.shape)
        if not np.any(
            begin < 0
        ):  # otherwise no trajectory from some start state can end, and the CPU code raises an error
            for columns in self._values.columns(K):
                part = slice(columns.start, columns.stop)
                mine = None if starts is None else starts[:, part]
                log_Z[part], expected[part] = self._sum_batch(thetas[part], begin, weights[:, part], mine)
        for k in np.flatnonzero(np.isnan(log_Z)):
            mine = None if starts is None else starts[:, k : k + 1]
            log_Z[k : k + 1], expected[k : k + 1] = super().value_and_grad(thetas[k : k + 1], starts=mine)
        return log_Z, expected

    def _sum_batch(
        self, thetas: FloatArray, begin: IntArray, weights: FloatArray, starts: FloatArray | None
    ) -> tuple[FloatArray, FloatArray]:
        """Return log_Z (K,) and the expected features (K, d) of one batch; nan for intents that need the CPU."""
        log_Z, expected = np.full(thetas.shape[0], np.nan), np.full(thetas.shape, np.nan)
        try:
            batch = GpuPathSums(self._values, np.column_stack([thetas, np.ones(thetas.shape[0])]), 0.0)
        except NumericalError:
            return log_Z, expected
        self._check_loops(batch, starts)
        if np.all(batch.divergent_state >= 0):
            return log_Z, expected
        goals = np.full(begin.size, self._augmented.exit)
        result = batch.sum_pairs(begin, goals, np.where(batch.divergent_state < 0, weights, 0.0))
        fine = (batch.log_most <= math.log(NEARLY_SINGULAR)) & ~np.any(result.left, axis=0)
        log_Z[fine], expected[fine] = result.value[fine], result.gradient[fine, :-1]
        own = self._start_features(begin, weights)
        return log_Z + np.sum(own * thetas, axis=1), expected + own

    def _start_features(self, begin: IntArray, weights: FloatArray) -> FloatArray:
        """Return the mean features (K, d) of the start states, which path sums do not include."""
        result = np.zeros((weights.shape[1], self.mdp.n_features))
        features = self._augmented.mdp.state_features
        if features is not None:  # the features of the entrance are 0
            result[:, : self.mdp.n_state_features] = np.asarray((features[begin].T @ weights).T)
        return result

    def _start_nodes(self, starts: FloatArray | None, K: int) -> tuple[IntArray, FloatArray]:
        """Return the nodes (m,) where paths start, and the weights (m, K) of their log path sums."""
        if not self.by_start:
            return np.array([self._augmented.exit - 1]), np.ones((1, K))
        weights = np.broadcast_to(self.mdp.p0[:, None], (self.mdp.n_states, K)) if starts is None else starts
        used = np.flatnonzero(np.any(weights > 0, axis=1))
        return self._augmented.place[used], np.ascontiguousarray(weights[used])

    def _check_loops(self, batch: GpuPathSums, starts: FloatArray | None) -> None:
        """Raise if a trajectory can visit a state such that the cycles through it have a total weight above 1."""
        for j in np.flatnonzero(batch.divergent_state >= 0):
            at = int(np.flatnonzero(self._values.symbolic.rank == batch.divergent_state[j])[0])
            state = int(np.flatnonzero(self._augmented.place == at)[0])
            if batch.loop_weight(int(j)) > _CLEARLY and self._is_visited(
                state, None if starts is None else starts[:, j]
            ):
                raise DivergentPartition(
                    f"The partition function over trajectories of unbounded length is infinite: cycles through state "
                    f"{state} have weight above 1. Use lower rewards, or a finite max_length.",
                    parameter="thetas",
                    index=int(j),
                )

    def _is_visited(self, state: int, starts: FloatArray | None) -> bool:
        """Return True if a trajectory with start distribution `starts` (S,) can visit a state."""
        return not self.by_start or state in self.graph.order[self._relevant(starts)]

    def _augment(self) -> _Augmented:
        """Build the augmented MDP; if conditioned on the start, include all states from which a trajectory can end."""
        mdp, order = self.mdp, self.graph.order
        end, place = np.zeros(mdp.n_states, dtype=bool), np.full(mdp.n_states, -1)
        end[order] = self._end > 0
        kept = np.sort(order[self._find_ending() if self.by_start else self._relevant(None)])
        n = kept.size
        place[kept] = np.arange(n)
        inner = np.flatnonzero((place[mdp.src] >= 0) & (place[mdp.dst] >= 0))
        last = place[kept[end[kept]]]
        first = np.empty(0, dtype=np.int64) if self.by_start else place[kept[mdp.p0[kept] > 0]]
        exit_ = n if self.by_start else n + 1
        log_q = [np.log(mdp.prob[inner]), np.zeros(last.size), np.log(mdp.p0[kept[first]])]
        parts = [_pad_rows(part[inner], last.size + first.size) for part in edge_parts(mdp)]
        built = MDP.from_edges(
            np.concatenate([place[mdp.src[inner]], last, np.full(first.size, n)]),
            np.concatenate([place[mdp.dst[inner]], np.full(last.size, exit_), first]),
            exit_ + 1,
            state_features=None if mdp.state_features is None else _pad_rows(mdp.state_features[kept], exit_ + 1 - n),
            edge_features=side_by_side([*parts, np.concatenate(log_q)[:, None]]),
        )
        return _Augmented(built, place, exit_)


_AUGMENTED: weakref.WeakKeyDictionary[MDP, dict[tuple[str, bool], _Augmented]] = weakref.WeakKeyDictionary()


def _pad_rows(features: Any, n: int) -> Any:
    shape = (n, features.shape[1])
    if isinstance(features, np.ndarray):
        return np.vstack([features, np.zeros(shape)])
    return sparse.vstack([features, sparse.csr_array(shape)]).tocsr()
