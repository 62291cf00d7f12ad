"""`ForwardBackward`, the recursions for a batch of intents, and `Messages`, their storage with checkpointing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from limiirl._typing import FloatArray
from limiirl.errors import InvalidParameter, NumericalError
from limiirl.irl.maxent.backends import OrderedRewards
from limiirl.kernels.graph import Alpha, CountBuffers, Rewards, Weights, row_of_entry

if TYPE_CHECKING:
    from limiirl.irl.maxent.path_sums import FinitePathSums

_LN2 = float(np.log(2.0))


class ForwardBackward:
    """Forward-backward recursions of a batch of intents: one backward pass, followed by forward passes.

    Parameters
    ----------
    path_sums : FinitePathSums
    rewards : OrderedRewards
    starts : (S, K) or (S, 1)
        Distribution of start states.
    log : bool
        True for log arithmetic.
    messages : Messages
        Buffer for the backward messages, owned by the caller. The results are valid until the buffer is used again.

    Attributes
    ----------
    log_Z : (K,)
        On the host; other arrays are on the device.
    start_marginals : (S, K)
        P(s_0 = s), in the order `graph.order`.
    """

    log_Z: FloatArray
    start_marginals: Any

    def __init__(
        self, path_sums: FinitePathSums, rewards: OrderedRewards, starts: Any, log: bool, messages: Messages
    ) -> None:
        self.path_sums, self.log, self.messages = path_sums, log, messages
        self.backend, self.xp = path_sums.backend, path_sums.backend.xp
        self.graph = path_sums.backend.graph
        self._rewards, self._starts = rewards, starts
        self.kernels = self.backend.kernels(log)
        self.n_columns = rewards.node.shape[1]
        self.columns = (0,) * self.n_columns

    def backward(self) -> ForwardBackward:
        """Run the backward pass; return self."""
        node = self._rewards.node
        self.out, self.into = self._directions(self._rewards)
        out_weights, self.into_weights = self._weights()
        # resume(rows, exponents, t) computes the messages of steps t, t + 1, ... from the last of these rows.
        self.resume = partial(
            self.kernels.backward, self.graph.out, self.out, out_weights, self.path_sums.end, columns=self.columns
        )
        path_sums, xp = self.path_sums, self.xp
        last = xp.zeros_like(node) if path_sums.max_length == 1 else path_sums.discount[-1] * node
        with np.errstate(divide="ignore", over="ignore"):
            if path_sums.end_at_last is not None:
                last += xp.log(path_sums.end_at_last)[:, None]
            last = last if self.log else xp.exp(last)
        row, exponent = self.messages.run_backward(last.ravel(), self.resume)
        self._beta, self._exponent = row[: node.size].reshape(node.shape).copy(), exponent.copy()
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            self._start(node, self._starts)
        return self

    def _directions(self, rewards: OrderedRewards) -> tuple[Rewards, Rewards]:
        path_sums = self.path_sums
        time_homogeneous = path_sums.mdp.gamma == 1.0
        prob_out, prob_in = self.backend.edge_weights(self.log)
        node, edge_out, edge_in = rewards.node.ravel(), None, None
        if rewards.edge is not None:
            edge_out, edge_in = rewards.edge.ravel(), rewards.edge[self.graph.in_edge].ravel()
        return (
            Rewards(node, prob_out, edge_out, path_sums.steps, time_homogeneous),
            Rewards(node, prob_in, edge_in, path_sums.steps, time_homogeneous),
        )

    def _weights(self) -> tuple[Weights | None, Weights | None]:
        if self.log:
            return None, None
        graph, node = self.graph, self.xp.empty(self.out.node.size)
        sides: list[Weights] = []
        for near, rewards in ((graph.out, self.out), (graph.into, self.into)):
            plain = rewards.prob is None and rewards.edge is None
            edge = None if plain else self.xp.zeros((graph.n_edges + near.width) * self.n_columns)
            weights = Weights(node, edge)
            if edge is not None or not sides:  # both directions share the weights of states
                self.kernels.fill(near, rewards, weights, self.columns)
            sides.append(weights)
        return sides[0], sides[1]

    def _start(self, node: Any, starts: Any) -> None:
        """Combine beta_0 with the start distribution to set log_Z, `start_marginals` and alpha_0."""
        xp, path_sums = self.xp, self.path_sums
        unit = 1.0 if self.log else _LN2
        plain = starts is path_sums.p0 and not (self.log or path_sums.by_start)
        if not (plain and self._beta.min() > 0.0 and self._beta.max() < np.inf):
            used = starts > 0.0
            self._check_messages(used)
        self._alpha_exponent = -self._exponent
        if path_sums.by_start:
            beta = self._beta if self.log else xp.log(self._beta)
            seen = xp.where(used, self.log_Z_by_start, 0.0)
            self.log_Z = self.backend.take(self.backend.column_sums(xp.where(used, starts * seen, 0.0)))
            self._log_norm = xp.zeros(self.n_columns)
            self._alpha0 = xp.where(
                used, xp.log(starts) - beta if self.log else starts / self._beta, -np.inf if self.log else 0.0
            )
            self.start_marginals = xp.broadcast_to(starts, node.shape)
        else:
            # Normalise by the largest weight of a start state, because the weights may exceed the range of float64.
            alpha0 = (
                path_sums.log_p0 + node if starts is path_sums.p0 else xp.where(used, xp.log(starts) + node, -np.inf)
            )
            shift = self.backend.column_max(alpha0)
            self._alpha0 = alpha0 - shift if self.log else xp.exp(alpha0 - shift)
            if self.log:
                joint = xp.where(used, self._alpha0 + self._beta, -np.inf)
                self._log_norm = self._log_sums(joint)
                self.start_marginals = xp.exp(joint - self._log_norm)
            else:
                joint = self._alpha0 * self._beta
                total = self.backend.column_sums(joint)
                self._log_norm = xp.log(total)
                self.start_marginals = joint / total
            self.log_Z = self.backend.take(shift + self._log_norm + self._exponent * unit)
            if not np.all(np.isfinite(self.log_Z)):
                self._raise_where_lost(starts > 0.0)

    @cached_property
    def log_Z_by_start(self) -> Any:
        """Log Z (S, K) of the trajectories from each state, in the order `graph.order`; -inf if there is none."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            beta = self._beta if self.log else self.xp.log(self._beta)
            return self._rewards.node + beta + self._exponent * (1.0 if self.log else _LN2)

    def _log_sums(self, values: Any) -> Any:
        xp = self.xp
        top = self.backend.column_max(values)
        finite = xp.where(xp.isfinite(top), top, 0.0)
        return finite + xp.log(self.backend.column_sums(xp.exp(values - finite)))

    def check_all_starts(self) -> None:
        """Raise if log Z(s) of a state is nan or inf."""
        if self.xp.any(self.xp.isnan(self.log_Z_by_start) | (self.log_Z_by_start == np.inf)):
            self._raise_where_lost(self.xp.ones_like(self.log_Z_by_start, dtype=bool))

    def _check_messages(self, used: Any) -> None:
        xp = self.xp
        reached = xp.where(used, self.log_Z_by_start, 0.0)
        if xp.all(xp.isfinite(reached)):
            return
        impossible = used & (self.log_Z_by_start == -np.inf)
        if self.path_sums.stop != "anywhere" and (
            xp.any(impossible) if self.path_sums.by_start else xp.any(xp.all(impossible | ~used, axis=0))
        ):
            if not self.log:  # only log arithmetic distinguishes zero from underflow
                messages = self.path_sums.allocate_messages(self.n_columns)
                ForwardBackward(self.path_sums, self._rewards, self._starts, True, messages).backward()
                self._raise_where_lost(used)
            state = int(self.path_sums.graph.order[int(xp.argmax(xp.any(impossible, axis=1)))])
            raise InvalidParameter(
                f"No trajectory of at most {self.path_sums.max_length} states from state {state} ends in a state "
                f"that stop={self.path_sums.stop!r} allows. Increase max_length, or use stop='anywhere'.",
                parameter="stop",
                value=self.path_sums.stop,
                index=state,
            )
        if not (xp.any(xp.isnan(reached)) or xp.any(reached == np.inf)) and self.path_sums.stop != "anywhere":
            return
        self._raise_where_lost(used)

    def _raise_where_lost(self, used: Any) -> None:
        """Raise an error that names the step and the state at which the backward pass exceeds the range of float64."""
        xp, order = self.xp, self.path_sums.graph.order
        fault = ~xp.isfinite(self.log_Z_by_start) & used
        where = f"step 0, state {order[int(xp.argmax(fault.any(axis=1)))]}"
        for t, rows, _ in self.messages.segments(self.resume):
            lost = xp.isnan(rows) | (rows == np.inf)
            if xp.any(lost):
                i = int(xp.max(xp.nonzero(lost.any(axis=1))[0]))
                where = f"step {t + i}, state {order[int(xp.argmax(lost[i])) // self.n_columns]}"
        message = f"The weights of trajectories exceed the range of float64 at {where}. "
        raise NumericalError(message + "Use arithmetic='auto' or 'log', or smaller rewards.", parameter="thetas")

    def forward(self, step_weights: FloatArray, counts: CountBuffers) -> None:
        """Run the forward pass and add c_t p_t to `counts` for each step t, with step weights c (L,) on the host."""
        alpha, weights = self.alpha(), self.backend.put(step_weights)
        for t, rows, exponents in self.messages.segments(self.resume):
            self._forward(t, rows, exponents, alpha, weights, counts)

    def step_by_step(self, most: int) -> Iterator[tuple[int, Any, Any]]:
        """Yield (t, marginals (n, S K), edge_prob (n, E' K)) for blocks of at most `most` steps, beginning at step 1.

        A block contains the steps t, ..., t + n - 1: marginals[i] is P(s_{t+i} = s), and edge_prob[i] is
        P(edge into s_{t+i} = e | s_{t+i}).
        """
        alpha = self.alpha()
        for first, rows, exponents in self.messages.segments(self.resume):
            for i in range(0, rows.shape[0] - 1, most):
                n = min(most, rows.shape[0] - 1 - i)
                marginals = self.xp.empty((n, self.out.node.size))
                edge_prob = self.xp.empty((n, self.graph.n_edges * self.n_columns))
                part = rows[i : i + n + 1], exponents[i : i + n + 1]
                self._forward(
                    first + i, *part, alpha, self.path_sums.steps, CountBuffers(None, None, marginals, edge_prob)
                )
                yield first + i + 1, marginals, edge_prob

    def marginals(self) -> Iterator[tuple[int, Any]]:
        """Yield (t, marginals (n, S K)) for each segment of steps t, ..., t + n - 1, beginning at step 1."""
        alpha = self.alpha()
        for first, rows, exponents in self.messages.segments(self.resume):
            marginals = self.xp.empty((rows.shape[0] - 1, self.out.node.size))
            self._forward(
                first, rows, exponents, alpha, self.path_sums.steps, CountBuffers(None, None, marginals, None)
            )
            yield first + 1, marginals

    def departures(self) -> Iterator[tuple[int, Any]]:
        """Yield (t, edge_prob (E',)) for one intent, from the last step to 0; edge_prob[e] = P(next edge = e | s_t)."""
        graph, xp = self.graph, self.xp
        tail = self.backend.put(row_of_entry(self.path_sums.graph.out))
        log_p, _ = self.backend.edge_weights(True)
        for first, rows, exponents in self.messages.segments(self.resume, backwards=True):
            for i in range(rows.shape[0] - 2, -1, -1):
                t = first + i
                own = self.path_sums.discount[t] * self.out.node if t > 0 else 0.0
                log_beta = self._log_row(rows[i]) - own
                with np.errstate(invalid="ignore"):
                    log_prob = self._log_row(rows[i + 1])[graph.out.idx] - log_beta[tail]
                log_prob += (exponents[i + 1, 0] - exponents[i, 0]) * (1.0 if self.log else _LN2)
                if log_p is not None:
                    log_prob += log_p
                if self.out.edge is not None:
                    log_prob += self.path_sums.discount[t] * self.out.edge
                # If no continuation can end, log_beta is -inf and the probability is 0.
                yield t, xp.where(xp.isnan(log_prob), 0.0, xp.exp(log_prob))

    def read(self, step: NDArray[np.int64], at: NDArray[np.int64]) -> tuple[FloatArray, FloatArray]:
        """Return the messages (m, K) of states graph.order[at] at steps `step` (m,), and their log scales (m, K).

        At step 0, the message is beta_0(s). At later steps, it is u_t(s) = exp(gamma^t r(s)) beta_t(s). The results are
        on the host.
        """
        put, take = self.backend.put, self.backend.take
        value, scale = np.empty((step.size, self.n_columns)), np.empty((step.size, self.n_columns))
        first_step, last = step == 0, int(step.max(initial=0))
        value[first_step], scale[first_step] = take(self._beta[put(at[first_step])]), take(self._exponent)
        for first, rows, exponents in self.messages.segments(self.resume):
            chosen = np.flatnonzero((step > first) & (step < first + rows.shape[0]))
            row = step[chosen] - first
            shaped = rows[:, : self.out.node.size].reshape(rows.shape[0], -1, self.n_columns)
            value[chosen], scale[chosen] = take(shaped[put(row), put(at[chosen])]), take(exponents)[row]
            if first + rows.shape[0] > last:
                break
        return value, scale if self.log else scale * _LN2

    def in_log_space(self) -> ForwardBackward:
        """Run the backward pass again in log arithmetic, with the same buffer."""
        return ForwardBackward(self.path_sums, self._rewards, self._starts, True, self.messages).backward()

    def _log_row(self, row: Any) -> Any:
        """Return the logarithms of a stored row, without its exponent."""
        row = row[: self.out.node.size]
        if self.log:
            return row
        with np.errstate(divide="ignore"):
            return self.xp.log(row)

    def alpha(self) -> Alpha:
        """Return the forward message of step 0."""
        value = self.xp.zeros((2, self.out.node.size + self.n_columns))
        value[0, : self.out.node.size] = self._alpha0.ravel()
        return Alpha(value, self._alpha_exponent.copy(), self._log_norm)

    def _forward(self, t: int, rows: Any, exponents: Any, alpha: Alpha, weights: Any, counts: CountBuffers) -> None:
        self.kernels.forward(
            self.graph.into, self.into, self.into_weights, rows, exponents, alpha, weights, counts, t, self.columns
        )


# A function of (rows, exponents, first step) that computes the messages of a segment from its last message.
BackwardPass = Callable[[FloatArray, NDArray[np.int64], int], None]


class Messages:
    """Storage of the backward messages of `length` steps, with `row` doubles and `n_columns` exponents per step.

    If the messages exceed `max_bytes`, the steps are divided into segments of about sqrt(length) steps. The backward
    pass stores the last message of each segment as a checkpoint, and `segments` recomputes the other messages, bit for
    bit. This requires a second backward pass, and memory for about 2 sqrt(length) messages. `xp` is the array module.
    """

    def __init__(self, length: int, row: int, n_columns: int, max_bytes: float, xp: Any = np) -> None:
        self.length = length
        self.segment = max(1, length - 1) if 8 * row * length <= max_bytes else _root(length)
        self.bounds = _bounds(length, self.segment)
        n_rows, n_checkpoints = _sizes(self.bounds)
        self._rows: Any = xp.zeros((n_rows, row))
        self._exponents: Any = xp.zeros((n_rows, n_columns), dtype=np.int64)
        self._marks: Any = xp.zeros((n_checkpoints, row))
        self._mark_exponents: Any = xp.zeros((n_checkpoints, n_columns), dtype=np.int64)
        self._loaded = 0  # index of the segment in memory

    @property
    def nbytes(self) -> int:
        """Allocated memory in bytes."""
        return int(self._rows.nbytes + self._marks.nbytes)

    @staticmethod
    def least_rows(length: int) -> int:
        """Return the number of messages that are stored with checkpointing."""
        return sum(_sizes(_bounds(length, _root(length))))

    def run_backward(self, last: FloatArray, recompute: BackwardPass) -> tuple[FloatArray, NDArray[np.int64]]:
        """Run the backward pass from the message of the last step; return the message of step 0 and its exponents."""
        if self.length == 1:
            self._rows[0, : last.size] = last
            self._exponents[0] = 0
            return self._rows[0], self._exponents[0]
        n = len(self.bounds) - 1
        for j in range(n - 1, -1, -1):
            size = self.bounds[j + 1] - self.bounds[j]
            if j == n - 1:
                self._rows[size, : last.size] = last
                self._rows[size, last.size :] = 0.0
                self._exponents[size] = 0
            else:
                self._rows[size] = self._rows[0]
                self._exponents[size] = self._exponents[0]
            if self._marks.size:
                self._marks[j + 1] = self._rows[size]
                self._mark_exponents[j + 1] = self._exponents[size]
            recompute(self._rows[: size + 1], self._exponents[: size + 1], self.bounds[j])
        self._loaded = 0
        return self._rows[0], self._exponents[0]

    def segments(
        self, recompute: BackwardPass, backwards: bool = False
    ) -> Iterator[tuple[int, FloatArray, NDArray[np.int64]]]:
        """Yield (first step, messages, exponents) of each segment; adjacent segments overlap by one step."""
        count = len(self.bounds) - 1
        for j in range(count - 1, -1, -1) if backwards else range(count):
            size = self.bounds[j + 1] - self.bounds[j]
            rows, exponents = self._rows[: size + 1], self._exponents[: size + 1]
            if j != self._loaded:
                rows[size] = self._marks[j + 1]
                exponents[size] = self._mark_exponents[j + 1]
                recompute(rows, exponents, self.bounds[j])
                self._loaded = j
            yield self.bounds[j], rows, exponents


def _root(length: int) -> int:
    return math.isqrt(max(1, length - 1))


def _bounds(length: int, segment: int) -> list[int]:
    return [*range(0, length - 1, segment), length - 1]


def _sizes(bounds: list[int]) -> tuple[int, int]:
    """Return the number of messages per segment, and the number of checkpoints."""
    longest = max((after - before for before, after in pairwise(bounds)), default=0)
    return longest + 1, len(bounds) if len(bounds) > 2 else 0
