"""`Pass`: the backward sweep for a few intents in one number space, and the forward sweeps that may follow it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from limiirl.errors import InvalidParameter, NumericalError
from limiirl.irl.engine.space import kernels_of
from limiirl.kernels import linear
from limiirl.kernels.graph import owners
from limiirl.kernels.layout import Alpha, Rewards, Tally, Weights

if TYPE_CHECKING:
    from limiirl.irl.engine.finite import FiniteEngine

Float = NDArray[np.float64]
_LN2 = float(np.log(2.0))


class EngineRewards(NamedTuple):
    """Rewards of K intents in engine order: node (S, K), and edge (E', K) sorted by source, or None."""

    node: Float
    edge: Float | None


class Pass:
    """A backward sweep that has been run, ready to be followed by forward sweeps.

    Its messages lie in the engine's memory, so that it is of use until the engine begins the next.

    Attributes
    ----------
    log_Z : (K,)
    log_Z_by_start : (S, K), in engine order
    start_visits : (S, K), in engine order
        p_0, the probability of each start state.
    """

    def __init__(self, engine: FiniteEngine, rewards: EngineRewards, starts: Float, log: bool) -> None:
        self.engine, self.log = engine, log
        self._node, self._edge, self._starts = rewards.node, rewards.edge, starts
        self.kernels = kernels_of(log)
        self.n_columns = rewards.node.shape[1]
        self.columns = (0,) * self.n_columns
        self.out, self.into = self._directions(rewards)
        self._out_weights, self.into_weights = self._weights()
        self.messages = engine.buffer(self.n_columns)
        self._beta, self._exponent = self._sweep_back(rewards.node)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            self._start(rewards.node, starts)

    def _directions(self, rewards: EngineRewards) -> tuple[Rewards, Rewards]:
        engine = self.engine
        steady = engine.mdp.gamma == 1.0
        prob_out, prob_in = engine.compiled.edge_weights(self.log)
        node, edge_out, edge_in = rewards.node.ravel(), None, None
        if rewards.edge is not None:
            edge_out, edge_in = rewards.edge.ravel(), rewards.edge[engine.graph.in_edge].ravel()
        return (
            Rewards(node, prob_out, edge_out, engine.discount, steady),
            Rewards(node, prob_in, edge_in, engine.discount, steady),
        )

    def _weights(self) -> tuple[Weights | None, Weights | None]:
        if self.log:
            return None, None
        graph, node = self.engine.graph, np.empty(self.out.node.size)
        sides = []
        for near, rewards in ((graph.out, self.out), (graph.into, self.into)):
            plain = rewards.prob is None and rewards.edge is None
            edge = None if plain else np.zeros((graph.n_edges + near.width) * self.n_columns)
            weights = Weights(node, edge)
            linear.fill(near, rewards, weights, self.columns)
            sides.append(weights)
        return sides[0], sides[1]

    def _sweep_back(self, node: Float) -> tuple[Float, NDArray[np.int64]]:
        engine = self.engine
        last = np.zeros_like(node) if engine.max_length == 1 else engine.discount[-1] * node
        end = engine.end_at_last
        if end is not None:
            with np.errstate(divide="ignore"):
                last += np.log(end)[:, None]
        with np.errstate(over="ignore"):
            last = last if self.log else np.exp(last)
        row, exponent = self.messages.sweep_back(last.ravel(), self.resume)
        return row[: node.size].reshape(node.shape).copy(), exponent.copy()

    def resume(self, rows: Float, exponents: NDArray[np.int64], t: int) -> None:
        """Fill a stretch of messages that begins at step t from its last one."""
        self.kernels.backward(
            self.engine.graph.out, self.out, self._out_weights, self.engine.end, rows, exponents, t, self.columns
        )

    def _start(self, node: Float, starts: Float) -> None:
        """Join the messages of step 0 to the start distribution: log_Z, p_0 and the first alpha."""
        beta = self._beta if self.log else np.log(self._beta)
        unit = 1.0 if self.log else _LN2
        self.log_Z_by_start = node + beta + self._exponent * unit
        used = starts > 0.0
        self._check_messages(used)
        if self.engine.by_start:
            self.log_Z = _column_sums(np.where(used, starts * np.where(used, self.log_Z_by_start, 0.0), 0.0))
            self._log_norm = np.zeros(self.n_columns)
            self._alpha0 = np.where(
                used, np.log(starts) - beta if self.log else starts / self._beta, -np.inf if self.log else 0.0
            )
            self._alpha_exponent = -self._exponent
            self.start_visits = np.broadcast_to(starts, node.shape)
        else:
            # The heaviest start is taken out: its weight alone may be zero or infinite, its probability tiny.
            alpha0 = np.where(used, np.log(starts) + node, -np.inf)
            shift = np.max(alpha0, axis=0)
            self._alpha0 = alpha0 - shift if self.log else np.exp(alpha0 - shift)
            if self.log:
                joint = np.where(used, self._alpha0 + beta, -np.inf)
                self._log_norm = logsumexp(np.ascontiguousarray(joint.T), axis=1)
                self.start_visits = np.exp(joint - self._log_norm)
            else:
                joint = self._alpha0 * self._beta
                total = _column_sums(joint)
                self._log_norm = np.log(total)
                self.start_visits = joint / total
            self.log_Z = shift + self._log_norm + self._exponent * unit
            self._alpha_exponent = -self._exponent
            if not np.all(np.isfinite(self.log_Z)):
                self._raise_where_lost(used)

    def check_all_starts(self) -> None:
        """Raise unless every state's log_Z is a number, those included where nobody starts."""
        if np.any(np.isnan(self.log_Z_by_start) | (self.log_Z_by_start == np.inf)):
            self._raise_where_lost(np.ones_like(self.log_Z_by_start, dtype=bool))

    def _check_messages(self, used: NDArray[np.bool_]) -> None:
        reached = np.where(used, self.log_Z_by_start, 0.0)
        if np.all(np.isfinite(reached)):
            return
        impossible = used & (self.log_Z_by_start == -np.inf)
        if self.engine.stop != "anywhere" and (
            np.any(impossible) if self.engine.by_start else np.any(np.all(impossible | ~used, axis=0))
        ):
            if not self.log:  # log space can tell whether there was nothing, or whether it underflowed
                Pass(self.engine, EngineRewards(self._node, self._edge), self._starts, True)
                self._sweep_back(self._node)  # the two share their messages' memory
                self._raise_where_lost(used)
            state = int(self.engine.graph.order[np.argmax(np.any(impossible, axis=1))])
            raise InvalidParameter(
                f"No trajectory of at most {self.engine.max_length} states from state {state} ends where "
                f"stop={self.engine.stop!r} allows. "
                "Raise max_length, or use stop='anywhere'."
            )
        if not (np.any(np.isnan(reached)) or np.any(reached == np.inf)) and self.engine.stop != "anywhere":
            return
        self._raise_where_lost(used)

    def _raise_where_lost(self, used: NDArray[np.bool_]) -> None:
        """Find the step and the state where the backward sweep left the range of float64, and say so."""
        fault = ~np.isfinite(self.log_Z_by_start) & used
        where = f"step 0, state {self.engine.graph.order[int(np.argmax(fault.any(axis=1)))]}"
        for t, rows, _ in self.messages.stretches(self.resume):
            lost = np.isnan(rows) | (rows == np.inf)
            if np.any(lost):
                i = int(np.max(np.nonzero(lost.any(axis=1))[0]))
                where = f"step {t + i}, state {self.engine.graph.order[int(np.argmax(lost[i])) // self.n_columns]}"
        raise NumericalError(
            f"The weights of trajectories left the range of float64 at {where}. "
            "Use number_space='auto' or 'log', or smaller rewards."
        )

    def forward(self, gain: Float, tally: Tally) -> None:
        """Sweep forward over all steps, adding gain_t times the probabilities of step t to the tallies."""
        alpha = self.alpha()
        for t, rows, exponents in self.messages.stretches(self.resume):
            self._carry(t, rows, exponents, alpha, gain, tally)

    def step_by_step(self, most: int) -> Iterator[tuple[int, Float, Float]]:
        """Yield (t, visits (n, S K), share (n, E' K)) for up to `most` consecutive steps from t = 1 on.

        Row i of visits is p_{t+i}; row i of share says how one who is in a state at step t + i came there.
        """
        alpha = self.alpha()
        for first, rows, exponents in self.messages.stretches(self.resume):
            for i in range(0, rows.shape[0] - 1, most):
                n = min(most, rows.shape[0] - 1 - i)
                visits, share = (
                    np.empty((n, self.out.node.size)),
                    np.empty((n, self.engine.graph.n_edges * self.n_columns)),
                )
                part = rows[i : i + n + 1], exponents[i : i + n + 1]
                self._carry(first + i, *part, alpha, self.engine.discount, Tally(None, None, visits, share))
                yield first + i + 1, visits, share

    def visits(self) -> Iterator[tuple[int, Float]]:
        """Yield (t, p_t to p_{t+n-1} (n, S K)), stretch by stretch, from t = 1 on."""
        alpha = self.alpha()
        for first, rows, exponents in self.messages.stretches(self.resume):
            visits = np.empty((rows.shape[0] - 1, self.out.node.size))
            self._carry(first, rows, exponents, alpha, self.engine.discount, Tally(None, None, visits, None))
            yield first + 1, visits

    def departures(self) -> Iterator[tuple[int, Float]]:
        """Yield (t, share (E',)) from the last step that can be left down to 0, for a pass of one intent.

        share[e] is the probability that one who is in the source of edge e at step t goes on along it; what a state's
        edges leave to 1 is the probability of stopping there.
        """
        graph = self.engine.graph
        tail = owners(graph.out)
        prob, _ = self.engine.compiled.edge_weights(True)
        for first, rows, exponents in self.messages.stretches(self.resume, backwards=True):
            for i in range(rows.shape[0] - 2, -1, -1):
                t = first + i
                own = self.out.discount[t] * self.out.node if t > 0 else 0.0
                log_beta = self._log_row(rows[i]) - own
                with np.errstate(invalid="ignore"):
                    share = self._log_row(rows[i + 1])[graph.out.idx] - log_beta[tail]
                share += (exponents[i + 1, 0] - exponents[i, 0]) * (1.0 if self.log else _LN2)
                if prob is not None:
                    share += prob
                if self.out.edge is not None:
                    share += self.out.discount[t] * self.out.edge
                # A state from which no trajectory can end has log_beta = -inf: nobody leaves it.
                yield t, np.where(np.isnan(share), 0.0, np.exp(share))

    def ahead(self, step: NDArray[np.int64], at: NDArray[np.int64]) -> tuple[Float, Float]:
        """Return the stored messages (m, K) of states `at` (m,), in engine order, at steps (m,), and log scales (m, K).

        They are those of beta_0 at step 0, and of u_t = w_t beta_t after it. One stream of the stretches serves all.
        """
        value, scale = np.empty((step.size, self.n_columns)), np.empty((step.size, self.n_columns))
        first_step, last = step == 0, int(step.max(initial=0))
        value[first_step], scale[first_step] = self._beta[at[first_step]], self._exponent
        for first, rows, exponents in self.messages.stretches(self.resume):
            chosen = np.flatnonzero((step > first) & (step < first + rows.shape[0]))
            row = step[chosen] - first
            value[chosen] = rows[:, : self.out.node.size].reshape(rows.shape[0], -1, self.n_columns)[row, at[chosen]]
            scale[chosen] = exponents[row]
            if first + rows.shape[0] > last:
                break
        return value, scale if self.log else scale * _LN2

    def in_log_space(self) -> Pass:
        """Run the same sweep in log space; it takes over the memory of this one."""
        return Pass(self.engine, EngineRewards(self._node, self._edge), self._starts, True)

    def _log_row(self, row: Float) -> Float:
        """Return the logarithms of a stored row, without its exponent."""
        row = row[: self.out.node.size]
        if self.log:
            return row
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(row))

    def alpha(self) -> Alpha:
        """Return the forward message of step 0."""
        value = np.zeros((2, self.out.node.size + self.n_columns))
        value[0, : self.out.node.size] = self._alpha0.ravel()
        return Alpha(value, self._alpha_exponent.copy(), self._log_norm)

    def _carry(
        self, t: int, rows: Float, exponents: NDArray[np.int64], alpha: Alpha, gain: Float, tally: Tally
    ) -> None:
        self.kernels.forward(
            self.engine.graph.into, self.into, self.into_weights, rows, exponents, alpha, gain, tally, t, self.columns
        )


def _column_sums(values: Float) -> Float:
    """Return the sums (K,) over the rows of (S, K), in an order that K does not change: the same bits in any batch."""
    return np.asarray(np.ascontiguousarray(values.T).sum(axis=1))
