"""`ForwardBackward`: the recursion for a batch of reward vectors, in linear or log arithmetic.

`Messages` stores the backward messages, with optional sqrt(L) checkpointing: the rest are recomputed during the forward
pass.
"""

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
from limiirl.kernels.graph import Alpha, CountBuffers, Rewards, Weights, owners

if TYPE_CHECKING:
    from limiirl.irl.maxent.path_sums import FinitePathSums

_LN2 = float(np.log(2.0))


class ForwardBackward:
    """The backward pass for some intents, and the forward passes that may follow it.

    Parameters
    ----------
    engine : FinitePathSums
    rewards : OrderedRewards
    starts : (S, K) or (S, 1)
        Distribution of start states.
    log : bool
        Whether to compute in log arithmetic.
    messages : Messages
        The buffer of the backward messages. It belongs to the caller: a pass is valid until the next uses the same.

    Attributes
    ----------
    log_Z : (K,), on the host; the rest is where the path sums are computed
    start_visits : (S, K), in graph order
        p_0, the probability of each start state.
    """

    log_Z: FloatArray
    start_visits: Any

    def __init__(
        self, engine: FinitePathSums, rewards: OrderedRewards, starts: Any, log: bool, messages: Messages
    ) -> None:
        self.engine, self.log, self.messages = engine, log, messages
        self.backend, self.xp = engine.backend, engine.backend.xp
        self.graph = engine.backend.graph
        self._rewards, self._starts = rewards, starts
        self.kernels = self.backend.sweeps(log)
        self.n_columns = rewards.node.shape[1]
        self.columns = (0,) * self.n_columns

    def backward(self) -> ForwardBackward:
        """Run the backward pass, and return this."""
        node = self._rewards.node
        self.out, self.into = self._directions(self._rewards)
        out_weights, self.into_weights = self._weights()
        # (rows, exponents, t): fill the messages that begin at step t from the last of them.
        self.resume = partial(
            self.kernels.backward, self.graph.out, self.out, out_weights, self.engine.end, columns=self.columns
        )
        engine, xp = self.engine, self.xp
        last = xp.zeros_like(node) if engine.max_length == 1 else engine.discount[-1] * node
        with np.errstate(divide="ignore", over="ignore"):
            if engine.end_at_last is not None:
                last += xp.log(engine.end_at_last)[:, None]
            last = last if self.log else xp.exp(last)
        row, exponent = self.messages.sweep_back(last.ravel(), self.resume)
        self._beta, self._exponent = row[: node.size].reshape(node.shape).copy(), exponent.copy()
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            self._start(node, self._starts)
        return self

    def _directions(self, rewards: OrderedRewards) -> tuple[Rewards, Rewards]:
        engine = self.engine
        steady = engine.mdp.gamma == 1.0
        prob_out, prob_in = self.backend.edge_weights(self.log)
        node, edge_out, edge_in = rewards.node.ravel(), None, None
        if rewards.edge is not None:
            edge_out, edge_in = rewards.edge.ravel(), rewards.edge[self.graph.in_edge].ravel()
        return (
            Rewards(node, prob_out, edge_out, engine.steps, steady),
            Rewards(node, prob_in, edge_in, engine.steps, steady),
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
            if edge is not None or not sides:  # both sides share the weights of states
                self.kernels.fill(near, rewards, weights, self.columns)
            sides.append(weights)
        return sides[0], sides[1]

    def _start(self, node: Any, starts: Any) -> None:
        """Join the messages of step 0 to the start distribution: log_Z, p_0 and the first alpha."""
        xp, engine = self.xp, self.engine
        unit = 1.0 if self.log else _LN2
        plain = starts is engine.p0 and not (self.log or engine.by_start)
        if not (plain and self._beta.min() > 0.0 and self._beta.max() < np.inf):
            used = starts > 0.0
            self._check_messages(used)
        self._alpha_exponent = -self._exponent
        if engine.by_start:
            beta = self._beta if self.log else xp.log(self._beta)
            seen = xp.where(used, self.log_Z_by_start, 0.0)
            self.log_Z = self.backend.take(self.backend.column_sums(xp.where(used, starts * seen, 0.0)))
            self._log_norm = xp.zeros(self.n_columns)
            self._alpha0 = xp.where(
                used, xp.log(starts) - beta if self.log else starts / self._beta, -np.inf if self.log else 0.0
            )
            self.start_visits = xp.broadcast_to(starts, node.shape)
        else:
            # The heaviest start is taken out: its weight alone may be zero or infinite, its probability tiny.
            alpha0 = engine.log_p0 + node if starts is engine.p0 else xp.where(used, xp.log(starts) + node, -np.inf)
            shift = xp.max(alpha0, axis=0)
            self._alpha0 = alpha0 - shift if self.log else xp.exp(alpha0 - shift)
            if self.log:
                joint = xp.where(used, self._alpha0 + self._beta, -np.inf)
                self._log_norm = self._log_sums(joint)
                self.start_visits = xp.exp(joint - self._log_norm)
            else:
                joint = self._alpha0 * self._beta
                total = self.backend.column_sums(joint)
                self._log_norm = xp.log(total)
                self.start_visits = joint / total
            self.log_Z = self.backend.take(shift + self._log_norm + self._exponent * unit)
            if not np.all(np.isfinite(self.log_Z)):
                self._raise_where_lost(starts > 0.0)

    @cached_property
    def log_Z_by_start(self) -> Any:
        """Log Z (S, K) of the trajectories that start in each state, in graph order; -inf if there is none."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            beta = self._beta if self.log else self.xp.log(self._beta)
            return self._rewards.node + beta + self._exponent * (1.0 if self.log else _LN2)

    def _log_sums(self, values: Any) -> Any:
        """Return log sum exp (K,) of the columns of (S, K); minus infinity for a column of nothing else."""
        xp = self.xp
        top = xp.max(values, axis=0)
        finite = xp.where(xp.isfinite(top), top, 0.0)
        return finite + xp.log(self.backend.column_sums(xp.exp(values - finite)))

    def check_all_starts(self) -> None:
        """Raise unless every state's log_Z is a number, those included where nobody starts."""
        if self.xp.any(self.xp.isnan(self.log_Z_by_start) | (self.log_Z_by_start == np.inf)):
            self._raise_where_lost(self.xp.ones_like(self.log_Z_by_start, dtype=bool))

    def _check_messages(self, used: Any) -> None:
        xp = self.xp
        reached = xp.where(used, self.log_Z_by_start, 0.0)
        if xp.all(xp.isfinite(reached)):
            return
        impossible = used & (self.log_Z_by_start == -np.inf)
        if self.engine.stop != "anywhere" and (
            xp.any(impossible) if self.engine.by_start else xp.any(xp.all(impossible | ~used, axis=0))
        ):
            if not self.log:  # log space can tell whether there was nothing, or whether it underflowed
                messages = self.engine.allocate_messages(self.n_columns)
                ForwardBackward(self.engine, self._rewards, self._starts, True, messages).backward()
                self._raise_where_lost(used)
            state = int(self.engine.graph.order[int(xp.argmax(xp.any(impossible, axis=1)))])
            raise InvalidParameter(
                f"No trajectory of at most {self.engine.max_length} states from state {state} ends where "
                f"stop={self.engine.stop!r} allows. "
                "Raise max_length, or use stop='anywhere'.",
                parameter="stop",
                value=self.engine.stop,
                index=state,
            )
        if not (xp.any(xp.isnan(reached)) or xp.any(reached == np.inf)) and self.engine.stop != "anywhere":
            return
        self._raise_where_lost(used)

    def _raise_where_lost(self, used: Any) -> None:
        """Find the step and the state where the backward sweep left the range of float64, and say so."""
        xp, order = self.xp, self.engine.graph.order
        fault = ~xp.isfinite(self.log_Z_by_start) & used
        where = f"step 0, state {order[int(xp.argmax(fault.any(axis=1)))]}"
        for t, rows, _ in self.messages.stretches(self.resume):
            lost = xp.isnan(rows) | (rows == np.inf)
            if xp.any(lost):
                i = int(xp.max(xp.nonzero(lost.any(axis=1))[0]))
                where = f"step {t + i}, state {order[int(xp.argmax(lost[i])) // self.n_columns]}"
        raise NumericalError(
            f"The weights of trajectories left the range of float64 at {where}. "
            "Use arithmetic='auto' or 'log', or smaller rewards."
        )

    def forward(self, gain: FloatArray, tally: CountBuffers) -> None:
        """Sweep forward over all steps, adding gain_t (the host's) times the probabilities of step t to the tallies."""
        alpha, gain = self.alpha(), self.backend.put(gain)
        for t, rows, exponents in self.messages.stretches(self.resume):
            self._carry(t, rows, exponents, alpha, gain, tally)

    def step_by_step(self, most: int) -> Iterator[tuple[int, Any, Any]]:
        """Yield (t, visits (n, S K), share (n, E' K)) for up to `most` consecutive steps from t = 1 on.

        Row i of visits is p_{t+i}; row i of share says how one who is in a state at step t + i came there.
        """
        alpha = self.alpha()
        for first, rows, exponents in self.messages.stretches(self.resume):
            for i in range(0, rows.shape[0] - 1, most):
                n = min(most, rows.shape[0] - 1 - i)
                visits = self.xp.empty((n, self.out.node.size))
                share = self.xp.empty((n, self.graph.n_edges * self.n_columns))
                part = rows[i : i + n + 1], exponents[i : i + n + 1]
                self._carry(first + i, *part, alpha, self.engine.steps, CountBuffers(None, None, visits, share))
                yield first + i + 1, visits, share

    def visits(self) -> Iterator[tuple[int, Any]]:
        """Yield (t, p_t to p_{t+n-1} (n, S K)), stretch by stretch, from t = 1 on."""
        alpha = self.alpha()
        for first, rows, exponents in self.messages.stretches(self.resume):
            visits = self.xp.empty((rows.shape[0] - 1, self.out.node.size))
            self._carry(first, rows, exponents, alpha, self.engine.steps, CountBuffers(None, None, visits, None))
            yield first + 1, visits

    def departures(self) -> Iterator[tuple[int, Any]]:
        """Yield (t, share (E',)) from the last step that can be left down to 0, for a pass of one intent.

        share[e] is the probability that one who is in the source of edge e at step t goes on along it; what a state's
        edges leave to 1 is the probability of stopping there.
        """
        graph, xp = self.graph, self.xp
        tail = self.backend.put(owners(self.engine.graph.out))
        prob, _ = self.backend.edge_weights(True)
        for first, rows, exponents in self.messages.stretches(self.resume, backwards=True):
            for i in range(rows.shape[0] - 2, -1, -1):
                t = first + i
                own = self.engine.discount[t] * self.out.node if t > 0 else 0.0
                log_beta = self._log_row(rows[i]) - own
                with np.errstate(invalid="ignore"):
                    share = self._log_row(rows[i + 1])[graph.out.idx] - log_beta[tail]
                share += (exponents[i + 1, 0] - exponents[i, 0]) * (1.0 if self.log else _LN2)
                if prob is not None:
                    share += prob
                if self.out.edge is not None:
                    share += self.engine.discount[t] * self.out.edge
                # A state from which no trajectory can end has log_beta = -inf: nobody leaves it.
                yield t, xp.where(xp.isnan(share), 0.0, xp.exp(share))

    def ahead(self, step: NDArray[np.int64], at: NDArray[np.int64]) -> tuple[FloatArray, FloatArray]:
        """Return the stored messages (m, K) of states `at` (m,), in graph order, at steps (m,), and log scales (m, K).

        They are those of beta_0 at step 0, and of u_t = w_t beta_t after it. One stream of the stretches serves all.
        All these arrays are the host's.
        """
        put, take = self.backend.put, self.backend.take
        value, scale = np.empty((step.size, self.n_columns)), np.empty((step.size, self.n_columns))
        first_step, last = step == 0, int(step.max(initial=0))
        value[first_step], scale[first_step] = take(self._beta[put(at[first_step])]), take(self._exponent)
        for first, rows, exponents in self.messages.stretches(self.resume):
            chosen = np.flatnonzero((step > first) & (step < first + rows.shape[0]))
            row = step[chosen] - first
            shaped = rows[:, : self.out.node.size].reshape(rows.shape[0], -1, self.n_columns)
            value[chosen], scale[chosen] = take(shaped[put(row), put(at[chosen])]), take(exponents)[row]
            if first + rows.shape[0] > last:
                break
        return value, scale if self.log else scale * _LN2

    def in_log_space(self) -> ForwardBackward:
        """Run the same pass in log arithmetic; it takes over the buffer of this one."""
        return ForwardBackward(self.engine, self._rewards, self._starts, True, self.messages).backward()

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

    def _carry(self, t: int, rows: Any, exponents: Any, alpha: Alpha, gain: Any, tally: CountBuffers) -> None:
        self.kernels.forward(
            self.graph.into, self.into, self.into_weights, rows, exponents, alpha, gain, tally, t, self.columns
        )


# (rows, exponents, first step): fill the rows of a stretch of steps from its last one.
Sweep = Callable[[FloatArray, NDArray[np.int64], int], None]


class Messages:
    """The messages of `length` steps, of `row` doubles and `n_columns` exponents each.

    Storing all takes length * row doubles. Where that is more than `max_bytes`, the steps are cut into stretches of
    about sqrt(length): the first backward sweep keeps the message at the end of each stretch, and `stretches`
    recomputes the ones inside, for one more backward sweep in all and about 2 sqrt(length) rows of memory. Recomputed
    messages are the same bits. `xp` is the module whose arrays they are.
    """

    def __init__(self, length: int, row: int, n_columns: int, max_bytes: float, xp: Any = np) -> None:
        self.length = length
        self.stretch = max(1, length - 1) if 8 * row * length <= max_bytes else _root(length)
        self.bounds = _bounds(length, self.stretch)
        held, kept = _sizes(self.bounds)
        self._rows: Any = xp.zeros((held, row))
        self._exponents: Any = xp.zeros((held, n_columns), dtype=np.int64)
        self._marks: Any = xp.zeros((kept, row))
        self._mark_exponents: Any = xp.zeros((kept, n_columns), dtype=np.int64)
        self._loaded = 0  # the stretch whose messages are in place

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes."""
        return int(self._rows.nbytes + self._marks.nbytes)

    @staticmethod
    def least_rows(length: int) -> int:
        """Return how many rows are held where `max_bytes` does not allow all of them.

        Examples
        --------
        >>> Messages.least_rows(300), Messages.least_rows(4000)
        (37, 129)
        """
        return sum(_sizes(_bounds(length, _root(length))))

    def sweep_back(self, last: FloatArray, sweep: Sweep) -> tuple[FloatArray, NDArray[np.int64]]:
        """Run the whole backward sweep from the message of the last step; return that of step 0 and its exponents."""
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
            sweep(self._rows[: size + 1], self._exponents[: size + 1], self.bounds[j])
        self._loaded = 0
        return self._rows[0], self._exponents[0]

    def stretches(self, sweep: Sweep, backwards: bool = False) -> Iterator[tuple[int, FloatArray, NDArray[np.int64]]]:
        """Yield (first step, messages, exponents) of each stretch, in the order of time or against it.

        Neighbouring stretches share a step.
        """
        count = len(self.bounds) - 1
        for j in range(count - 1, -1, -1) if backwards else range(count):
            size = self.bounds[j + 1] - self.bounds[j]
            rows, exponents = self._rows[: size + 1], self._exponents[: size + 1]
            if j != self._loaded:
                rows[size] = self._marks[j + 1]
                exponents[size] = self._mark_exponents[j + 1]
                sweep(rows, exponents, self.bounds[j])
                self._loaded = j
            yield self.bounds[j], rows, exponents


def _root(length: int) -> int:
    """Return how many steps make a stretch where messages are recomputed."""
    return math.isqrt(max(1, length - 1))


def _bounds(length: int, stretch: int) -> list[int]:
    """Return the steps at which stretches begin and end."""
    return [*range(0, length - 1, stretch), length - 1]


def _sizes(bounds: list[int]) -> tuple[int, int]:
    """Return how many rows there are for the steps of one stretch, and for those at which several meet."""
    longest = max((after - before for before, after in pairwise(bounds)), default=0)
    return longest + 1, len(bounds) if len(bounds) > 2 else 0
