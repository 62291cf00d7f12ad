"""`FinitePathSums`: the partition function over trajectories of bounded length, and its derivatives."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from limiirl._parallel import BLOCK
from limiirl._typing import FloatArray
from limiirl._validation import check_choice
from limiirl.demos import Demonstrations
from limiirl.errors import InvalidParameter, NumericalError
from limiirl.irl.maxent.backends import (
    ARITHMETICS,
    LOSS,
    Backend,
    HostBackend,
    OrderedRewards,
    compile_mdp,
    log_loss_bound,
)
from limiirl.irl.maxent.messages import ForwardBackward, Messages
from limiirl.irl.maxent.trajectories import draw_starts, finite_steps, sample_trajectories
from limiirl.kernels.forward_backward import small
from limiirl.kernels.graph import EMPTY, CountBuffers, Rewards, row_of_entry
from limiirl.mdp import MDP

# Maximum number of intents per batch; a GPU block has one thread per intent.
_BATCH_SIZE = 8
# Smallest number of states for which one pass for a batch of intents costs less than one pass per intent.
_BATCH_STATES = 2048
# Maximum of S times L in a small problem, for which each forward or backward pass is a single compiled call.
_SMALL = 2**17
_LN2 = math.log(2.0)
_LOG_LOSS = math.log(LOSS)
STOPS = ("anywhere", "terminal", "terminal_or_max_length")


class ExpectedCounts(NamedTuple):
    """Partition functions log_Z (K,), expected counts of states (S, K), and expected counts of edges (E, K) or None."""

    log_Z: FloatArray
    node: FloatArray
    edge: FloatArray | None


class BackwardMessages(NamedTuple):
    """Logarithms `value + scale` (m, K) of backward messages of m (state, step) pairs, and log_Z (K,).

    log_Z is None if the model is conditioned on the start. At step 0, a message is beta_0(s), which excludes r(s). At
    later steps, it is u_t(s) = exp(gamma^t r(s)) beta_t(s). Pairs with the same step have the same scale, so that
    differences between their values are accurate.
    """

    log_Z: FloatArray | None
    value: FloatArray
    scale: FloatArray


class _Workspace(threading.local):
    """Per-thread buffers by number of columns; `last` is the last backward pass of a small problem, or None."""

    def __init__(self) -> None:
        self.messages: dict[int, Messages] = {}
        self.small: dict[int, SmallForwardBackward] = {}
        self.last: SmallForwardBackward | None = None

    def __reduce__(self) -> tuple[type[_Workspace], tuple[()]]:
        """Pickle as an empty workspace."""
        return _Workspace, ()


class SmallForwardBackward:
    """Forward-backward recursions of a small problem with state rewards. Each backward pass overwrites the buffers.

    `thetas` (K, d) and `log_Z` (K,) belong to the last pass.
    """

    thetas: FloatArray
    log_Z: FloatArray

    def __init__(self, path_sums: FinitePathSums, n_columns: int) -> None:
        self.graph, self.discount = path_sums.graph, path_sums.discount
        self.mdp, self.log_p0 = path_sums.mdp, path_sums.log_p0
        self.phi: Any = path_sums.mdp.state_features
        self.time_homogeneous = path_sums.mdp.gamma == 1.0
        log_paths = math.log(self.mdp.n_states) + 2 * math.log(path_sums.max_length)
        self._log_paths = log_paths if path_sums.arithmetic == "auto" else -math.inf
        self._shape = (self.mdp.n_states, n_columns)
        self._buffers = small.allocate(self.mdp.n_states, path_sums.max_length, n_columns)
        self._last = self._buffers.messages[-1, : self.mdp.n_states * n_columns]
        prob_out, prob_in = path_sums.compiled.edge_weights(False)
        self._out = (self.graph.out, *_weights(prob_out, self.graph.out.width, n_columns), self.discount)
        self._into = (self.graph.into, *_weights(prob_in, self.graph.into.width, n_columns), self.discount)
        self._into_one = (self.graph.into, *_weights(prob_in, self.graph.into.width, 1), self.discount)
        self._powers = np.stack([self.discount[1:], self.discount[1:] ** 2])

    def backward(self, thetas: FloatArray) -> bool:
        """Run the backward pass; return False if `ForwardBackward` must use log arithmetic or raise an error."""
        b = self._buffers
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            np.matmul(self.phi, thetas.T, out=b.node.reshape(self._shape))
            near, prob = self._out[:2]
            if not small.prepare(near, prob, self.discount, self.log_p0, self._log_paths, _LOG_LOSS, b):
                return False
            np.exp(self._last, out=self._last)
            np.exp(b.alpha, out=b.alpha)
            if not small.backward(*self._out, self.time_homogeneous, b):
                return False
            np.log(b.total, out=b.log_norm)
            self.log_Z = b.shift + b.log_norm + b.exponents[0] * _LN2
        self.thetas = thetas.copy()
        return math.isfinite(self.log_Z.sum())

    def find(self, theta: FloatArray) -> int:
        """Return the column of the last pass with the same rewards as theta (d,), or -1 if there is none."""
        equal = (self.thetas == theta).all(axis=1)
        k = int(equal.argmax())
        # The rewards of equal thetas may differ, because rounding depends on the number of columns of a matrix product.
        same = equal[k] and np.array_equal((self.phi @ theta[:, None])[:, 0], self._buffers.node[k :: len(equal)])
        return k if same else -1

    def expected_features(self) -> FloatArray | None:
        """Run the forward pass and return E[F] (K, d), the gradient of log_Z, or None if a count is out of range."""
        counts = np.empty(self._shape)
        if not small.forward(*self._into, self.time_homogeneous, self._buffers, counts.ravel()):
            return None
        return np.ascontiguousarray((self.phi.T @ counts).T)

    def covariance(self, k: int) -> FloatArray:
        """Return the Hessian (d, d) of log_Z of column k; see `_covariance`."""
        phi, marginals = self.phi, np.empty((self.discount.size, self.mdp.n_states))
        total = np.empty(phi.shape)
        with np.errstate(over="ignore", invalid="ignore"):
            small.feature_moments(*self._into_one, self.time_homogeneous, self._buffers, k, phi, marginals, total)
            counts = marginals[0] + self._powers @ marginals[1:]
            cross, mean = phi.T @ total, counts[0] @ phi
            second = cross + cross.T - (phi.T * counts[1]) @ phi
            return check_covariance(self.mdp, second - np.outer(mean, mean))


def _weights(prob: FloatArray | None, width: int, n_columns: int) -> tuple[FloatArray, FloatArray | None]:
    """Return edge probabilities, or an empty array; and their repetition for each column, padded for `Weights`."""
    if prob is None:
        return EMPTY, None
    return prob, np.concatenate([np.repeat(prob, n_columns), np.zeros(width * n_columns)])


class FinitePathSums:
    """Sums over trajectories of 1 to `max_length` states, weighted by q(tau) exp(theta . F(tau)).

    Parameters
    ----------
    mdp : MDP
    max_length : int
    stop : {"anywhere", "terminal", "terminal_or_max_length"}
        States in which a trajectory may end: all states, as in the paper; terminal states; or terminal states and, at
        `max_length`, all states.
    by_start : bool
        If True, condition on the start state; log_Z is then the mean of log Z(s) over the start distribution.
    arithmetic : {"auto", "linear", "log"}
    max_bytes : float, optional
        Memory for the messages of a thread. If the messages do not fit, they are recomputed from checkpoints. The
        default is 1 GiB on the CPU and half of the free memory on a GPU.
    backend : Backend, optional
        The CPU by default.

    Examples
    --------
    Two trajectories: 0 alone, and 0 then 1.

    >>> mdp = MDP.from_edges([0], [1], p0=[1, 0])
    >>> FinitePathSums(mdp, 5).log_partition(np.zeros((1, 2)))
    array([0.69314718])
    """

    def __init__(
        self,
        mdp: MDP,
        max_length: int,
        *,
        stop: str = "anywhere",
        by_start: bool = False,
        arithmetic: str = "auto",
        max_bytes: float | None = None,
        backend: Backend | None = None,
    ) -> None:
        if max_length < 1:
            raise InvalidParameter.of("max_length", max_length, "must be at least 1")
        mdp.check_no_goal_features()
        self.mdp, self.max_length, self.by_start = mdp, max_length, by_start
        self.stop = check_choice(stop, "stop", STOPS)
        self.arithmetic = check_choice(arithmetic, "arithmetic", ARITHMETICS)
        self.compiled = compile_mdp(mdp)
        self.backend: Backend = HostBackend(self.compiled, mdp) if backend is None else backend
        self.max_bytes = self.backend.max_bytes if max_bytes is None else max_bytes
        self._given_bytes = max_bytes
        self.graph = self.compiled.graph
        self.discount = mdp.gamma ** np.arange(max_length, dtype=np.float64)
        end = None if stop == "anywhere" else mdp.terminal[self.graph.order].astype(np.float64)
        self.end = None if end is None else self.backend.put(end)
        self.end_at_last = self.end if stop == "terminal" else None
        p0 = mdp.p0[self.graph.order][:, None]
        with np.errstate(divide="ignore"):
            self.p0, self.log_p0 = self.backend.put(p0), self.backend.put(np.log(p0))
        self.steps = self.backend.put(self.discount)
        self._workspace = _Workspace()
        self._edge_features = bool(mdp.n_action_features or mdp.n_edge_features)
        self._small = self._is_small(mdp)

    def _is_small(self, mdp: MDP) -> bool:
        """Return True if `SmallForwardBackward` supports the problem."""
        size = mdp.n_states * self.max_length
        return (
            isinstance(self.backend, HostBackend)
            and isinstance(mdp.state_features, np.ndarray)
            and not (self._edge_features or self.by_start or self.arithmetic == "log" or self.stop != "anywhere")
            and mdp.n_states <= BLOCK
            and self.max_length > 1
            and size <= _SMALL
            and 8.0 * (mdp.n_states + 1) * self.max_length * _BATCH_SIZE <= self.max_bytes
            and 8.0 * (mdp.n_states + mdp.n_edges) * self.max_length <= self.backend.step_bytes
        )

    def _small_pass(self, thetas: FloatArray) -> SmallForwardBackward | None:
        """Run the backward pass of a small problem; return None if `ForwardBackward` is required."""
        workspace, n_columns = self._workspace, thetas.shape[0]
        workspace.last = None
        if not (self._small and 0 < n_columns <= _BATCH_SIZE):
            return None
        run = workspace.small.get(n_columns)
        if run is None:
            run = workspace.small[n_columns] = SmallForwardBackward(self, n_columns)
        if not run.backward(thetas):
            return None
        workspace.last = run
        return run

    @property
    def batched(self) -> bool:
        """True if a batch of thetas costs less than separate calls."""
        return self.mdp.n_states >= _BATCH_STATES

    def buffer(self, n_columns: int) -> Messages:
        """Return the message buffer of this thread, which is reused between evaluations."""
        buffers = self._workspace.messages
        if n_columns not in buffers:
            buffers.clear()
            buffers[n_columns] = self.allocate_messages(n_columns)
        return buffers[n_columns]

    def allocate_messages(self, n_columns: int) -> Messages:
        """Return a new buffer for the backward messages of `n_columns` intents."""
        row = (self.mdp.n_states + 1) * n_columns
        return Messages(self.max_length, row, n_columns, self.max_bytes, self.backend.xp)

    def expected_counts(
        self,
        thetas: FloatArray,
        *,
        step_weights: FloatArray | None = None,
        starts: FloatArray | None = None,
        edges: bool | None = None,
    ) -> ExpectedCounts:
        """Return log_Z and the expected counts sum_t c_t p_t of states and edges, with step weights c (L,).

        Parameters
        ----------
        thetas : (K, d)
        step_weights : (L,), optional
            The default is gamma^t, so that the counts times the features are the gradient of log_Z.
        starts : (S, K), optional
            Distribution of start states per column, instead of p0.
        edges : bool, optional
            Whether edges are counted. By default, they are counted if actions or edges have features.
        """
        step_weights = self.discount if step_weights is None else step_weights
        edges = self._edge_features if edges is None else edges
        log_Z, node = np.empty(thetas.shape[0]), np.empty((self.mdp.n_states, thetas.shape[0]))
        edge = np.empty((self.mdp.n_edges, thetas.shape[0])) if edges else None
        take = self.backend.take
        for chosen, run in self.passes(thetas, starts):
            node_counts, edge_counts = self._forward_counts(run, step_weights, edges)
            log_Z[chosen] = run.log_Z
            node[self.graph.order[:, None], chosen] = take(node_counts)
            if edge is not None and edge_counts is not None:
                edge[:, chosen] = self.compiled.spread(take(edge_counts))
        return ExpectedCounts(log_Z, node, edge)

    def value_and_grad(self, thetas: FloatArray, *, starts: FloatArray | None = None) -> tuple[FloatArray, FloatArray]:
        """Return log_Z (K,) and its gradient E[F] (K, d), the expected features (Ziebart et al. 2008, eq. 6)."""
        small = self._small_pass(thetas) if starts is None else None
        expected = None if small is None else small.expected_features()
        if small is not None and expected is not None:
            return small.log_Z, expected
        log_Z, features = np.empty(thetas.shape[0]), np.empty(thetas.shape)
        edges = self._edge_features
        for chosen, run in self.passes(thetas, starts):
            log_Z[chosen] = run.log_Z
            features[chosen] = self.backend.expected_features(
                self.mdp, *self._forward_counts(run, self.discount, edges)
            )
        return log_Z, features

    def _forward_counts(self, run: ForwardBackward, step_weights: FloatArray, edges: bool) -> tuple[Any, Any]:
        """Return expected counts of states (S, K) in the order `graph.order`, and of edges by target (or None)."""
        node = (step_weights[0] * run.start_marginals).ravel()
        edge = self.backend.xp.zeros(self.graph.n_edges * run.n_columns) if edges else None
        run.forward(step_weights, CountBuffers(node, edge, None, None))
        shape, most = (-1, run.n_columns), float(step_weights.sum())
        return self._check_counts(node.reshape(shape), most), None if edge is None else edge.reshape(shape)

    def _check_counts(self, counts: Any, most: float) -> Any:
        """Return the counts (S, K); raise if a column is not finite or its sum exceeds `most`."""
        # Counts may be wrong without overflow. For example, rewards of 1e20 lose differences of order 1.
        sums = self.backend.take(self.backend.column_sums(counts))
        if not np.all((sums >= 0.0) & (sums <= most * (1.0 + 1e-6))):
            counts = self.backend.take(counts)
            wrong = ~np.isfinite(counts) | (sums > most * (1.0 + 1e-6))
            state = int(self.graph.order[np.argmax(wrong.any(axis=1))])
            raise NumericalError(
                f"The expected count of state {state} exceeds the range or the precision of float64. "
                "Use arithmetic='auto' or 'log', or smaller rewards.",
                parameter="thetas",
                index=state,
            )
        return counts

    def log_partition(self, thetas: FloatArray, *, starts: FloatArray | None = None) -> FloatArray:
        """Return log_Z (K,); if conditioned on the start, the mean of log Z(s) over the start distribution."""
        small_run = self._small_pass(thetas) if starts is None else None
        if small_run is not None:
            return small_run.log_Z
        log_Z = np.empty(thetas.shape[0])
        for chosen, run in self.passes(thetas, starts):
            log_Z[chosen] = run.log_Z
        return log_Z

    def log_partition_by_start(self, thetas: FloatArray) -> FloatArray:
        """Return log Z(s) (S, K), the log-weight of all trajectories from s, without p0; -inf if there is none."""
        log_Z = np.empty((self.mdp.n_states, thetas.shape[0]))
        # With an empty start distribution, -inf is returned if no trajectory from a start state can end; otherwise, an
        # error would be raised.
        no_starts = np.zeros((self.mdp.n_states, thetas.shape[0])) if self.by_start else None
        for chosen, run in self.passes(thetas, no_starts):
            run.check_all_starts()
            log_Z[self.graph.order[:, None], chosen] = self.backend.take(run.log_Z_by_start)
        return log_Z

    def covariance(self, theta: FloatArray, *, starts: FloatArray | None = None) -> FloatArray:
        """Return the Hessian (d, d) of log_Z at theta (d,): the covariance of the path features. `starts` is (S,)."""
        run = self._workspace.last if starts is None else None
        k = -1 if run is None else run.find(theta)
        if run is not None and k >= 0:
            return run.covariance(k)
        run = self._small_pass(theta[None]) if starts is None else None
        return _covariance(self, theta, starts) if run is None else run.covariance(0)

    def time_marginals(self, theta: FloatArray) -> FloatArray:
        """Return p_t(s) (L, S) for theta (d,): the probability that s is visited at step t."""
        run = self.single(theta)
        p = np.empty((self.max_length, self.mdp.n_states))
        p[0, self.graph.order] = self.backend.take(run.start_marginals[:, 0])
        for first, marginals in run.marginals():
            p[first : first + marginals.shape[0], self.graph.order] = self.backend.take(marginals)
        self.on_host()._check_counts(np.ascontiguousarray(p[:, self.graph.order].T), 1.0)
        return p

    def on_host(self) -> FinitePathSums:
        """Return these path sums on the CPU."""
        if isinstance(self.backend, HostBackend):
            return self
        return FinitePathSums(
            self.mdp,
            self.max_length,
            stop=self.stop,
            by_start=self.by_start,
            arithmetic=self.arithmetic,
            max_bytes=self._given_bytes,
        )

    def backward_messages(
        self, thetas: FloatArray, step: NDArray[np.int64], state: NDArray[np.int64]
    ) -> BackwardMessages:
        """Return the messages of states (m,) at steps (m,) below max_length; -inf if no continuation can end."""
        log_Z, value = np.empty(thetas.shape[0]), np.empty((step.size, thetas.shape[0]))
        scale, at = np.empty_like(value), self.graph.rank[state]
        no_starts = np.zeros((self.mdp.n_states, thetas.shape[0])) if self.by_start else None
        for chosen, first in self.passes(thetas, no_starts):
            run, (stored, scales) = first, first.read(step, at)
            # The bound on underflow is relative to Z, so messages of states with small weights may still underflow.
            if not run.log and not np.all((stored >= np.finfo(np.float64).tiny) & (stored < np.inf)):
                run = first.in_log_space()
                stored, scales = run.read(step, at)
            lost = np.isnan(stored) | (stored == np.inf)
            if np.any(lost):
                i = int(np.argmax(lost.any(axis=1)))
                raise NumericalError(
                    f"The weights of trajectories overflow float64 at step {step[i]}, state {state[i]}. "
                    "Use smaller rewards.",
                    parameter="thetas",
                    index=int(state[i]),
                )
            log_Z[chosen], scale[:, chosen] = run.log_Z, scales
            value[:, chosen] = stored if run.log else np.log(stored)
        return BackwardMessages(None if self.by_start else log_Z, value, scale)

    def sample(self, theta: FloatArray, n: int, rng: np.random.Generator) -> Demonstrations:
        """Draw n trajectories for parameters theta (d,), on the CPU."""
        if not isinstance(self.backend, HostBackend):
            return self.on_host().sample(theta, n, rng)
        run = self.single(theta)
        starts = draw_starts(run.start_marginals[:, 0], n, rng)
        return sample_trajectories(self.mdp, self.compiled, run.out, run.log, finite_steps(run), starts, rng)

    def single(self, theta: FloatArray, starts: FloatArray | None = None) -> ForwardBackward:
        """Run the backward pass for one intent."""
        ((_, run),) = self.passes(theta[None], None if starts is None else starts[:, None])
        return run

    def passes(
        self, thetas: FloatArray, starts: FloatArray | None = None
    ) -> Iterator[tuple[NDArray[np.intp], ForwardBackward]]:
        """Run one backward pass per batch of intents with the same arithmetic; yield the columns and the pass."""
        if starts is not None:
            starts = starts[self.graph.order]
        # The memory for checkpoints limits the number of intents per pass, which is at least one.
        room = self.max_bytes / (8.0 * (self.mdp.n_states + 1) * Messages.least_rows(self.max_length))
        most = max(1, min(self.backend.max_columns, int(room)))
        for first in range(0, thetas.shape[0], _BATCH_SIZE):
            block = thetas[first : first + _BATCH_SIZE]
            rewards = self.backend.rewards(self.mdp, block)
            log = self._needs_log(rewards)
            for space in (False, True):
                members = np.flatnonzero(log == space)
                for i in range(0, members.size, most):
                    chosen = members[i : i + most]
                    part = rewards if chosen.size == block.shape[0] else self._columns(rewards, chosen)
                    columns = first + chosen
                    given = self.p0 if starts is None else self.backend.put(np.ascontiguousarray(starts[:, columns]))
                    buffer = self.buffer(chosen.size)
                    yield columns, ForwardBackward(self, part, given, space, buffer).backward()

    def _columns(self, rewards: OrderedRewards, chosen: NDArray[np.intp]) -> OrderedRewards:
        xp, at = self.backend.xp, self.backend.put(chosen)
        edge = None if rewards.edge is None else xp.ascontiguousarray(rewards.edge[:, at])
        return OrderedRewards(xp.ascontiguousarray(rewards.node[:, at]), edge)

    def _needs_log(self, rewards: OrderedRewards) -> NDArray[np.bool_]:
        n_columns = rewards.node.shape[1]
        if self.arithmetic != "auto":
            return np.full(n_columns, self.arithmetic == "log")
        if self.stop != "anywhere":  # the bound assumes that Z is at least every forward message
            return np.ones(n_columns, dtype=bool)
        prob, _ = self.backend.edge_weights(False)
        flat = Rewards(
            rewards.node.ravel(), prob, None if rewards.edge is None else rewards.edge.ravel(), self.discount, False
        )
        growth = self.backend.log_growth(flat, self.discount, n_columns)
        # `growth` bounds the growth over a whole step. Intermediate values, which contain only state or edge weights,
        # may be larger.
        alone = self._positive_max(rewards.node)
        if rewards.edge is not None:
            with np.errstate(over="ignore"):  # an infinite value selects log arithmetic
                alone = alone + self._positive_max(rewards.edge)
        return log_loss_bound(self.mdp.n_states, self.max_length, growth, alone) >= _LOG_LOSS

    def _positive_max(self, values: Any) -> FloatArray:
        """Return the maxima (K,) of 0 and the columns of (n, K), on the host."""
        return np.asarray(np.maximum(0.0, self.backend.take(self.backend.column_max(values))))


def _covariance(path_sums: FinitePathSums, theta: FloatArray, starts: FloatArray | None = None) -> FloatArray:
    """Return the Hessian (d, d) of log_Z at theta (d,): Cov[F], or its mean over start states if conditioned on them.

    Let m_t(s) be the expected features up to step t given s_t = s, which are propagated forward along the edges. Then

        E[F F'] = X + X' - sum_t gamma^2t Phi' diag(p_t) Phi,      X = Phi' sum_t gamma^t diag(p_t) m_t,

    because X contains each pair of steps once, at the later of the two. Edge features are treated in the same way.
    """
    run = path_sums.single(theta, starts)
    moments = _Moments(path_sums)
    moments.begin(run.start_marginals[:, 0])
    most = max(1, int(path_sums.backend.step_bytes / (8 * (path_sums.mdp.n_states + path_sums.graph.n_edges))))
    with np.errstate(over="ignore", invalid="ignore"):
        for first, marginals, edge_prob in run.step_by_step(most):
            moments.add(first, marginals, edge_prob)
        second, mean = moments.finish()
        value = second - (_between_starts(path_sums, run, starts) if path_sums.by_start else np.outer(mean, mean))
    return check_covariance(path_sums.mdp, value)


def check_covariance(mdp: MDP, value: FloatArray) -> FloatArray:
    """Return a covariance (d, d); raise if it is not finite."""
    if not np.all(np.isfinite(value)):
        name = mdp.feature_names[int(np.argmin(np.isfinite(value).all(axis=1)))]
        message = f"The variance of feature {name!r} overflows float64. Rescale the features."
        raise NumericalError(message, parameter="mdp", value=name)
    return value


class _Moments:
    """First and second moments of the path features, accumulated step by step."""

    def __init__(self, path_sums: FinitePathSums) -> None:
        self.path_sums, self.backend = path_sums, path_sums.backend
        xp = self.backend.xp
        self.phi, self.edge_phi = self.backend.dense_features(path_sums.mdp)
        self.target = None if self.edge_phi is None else self.backend.put(row_of_entry(path_sums.graph.into))
        self.mean = xp.stack([self.phi, self.phi])
        self.total = xp.zeros_like(self.phi)
        self.edge_total = xp.zeros((0, 0) if self.edge_phi is None else self.edge_phi.shape)
        self.counts = xp.zeros((2, path_sums.mdp.n_states))
        self.edge_counts = xp.zeros((2, path_sums.graph.n_edges))

    def begin(self, marginals: Any) -> None:
        """Add step 0, with P(s_0 = s) (S,)."""
        self.total += marginals[:, None] * self.phi
        self.counts += marginals

    def add(self, first: int, marginals: Any, edge_prob: Any) -> None:
        """Add n steps from `first` on, with marginals (n, S) and edge_prob (n, E) = P(incoming edge | target state)."""
        n = marginals.shape[0]
        here, before = self.path_sums.discount[first : first + n], self.path_sums.discount[first - 1 : first - 1 + n]
        sums = (self.total, None if self.edge_phi is None else self.edge_total)
        into, put = self.backend.graph.into, self.backend.put
        self.backend.propagate_means(into, edge_prob, marginals, self.phi, self.edge_phi, self.mean, sums, here, before)
        if n % 2:
            self.mean[0] = self.mean[1]
        self.counts += put(np.stack([here, here**2])) @ marginals
        if self.edge_phi is not None:
            self.edge_counts += put(np.stack([before, before**2])) @ (marginals[:, self.target] * edge_prob)

    def finish(self) -> tuple[FloatArray, FloatArray]:
        """Return E[F F'] (d, d) and E[F] (d,), on the host."""
        cross = self.phi.T @ self.total
        own = (self.phi.T * self.counts[1]) @ self.phi
        mean = self.counts[0] @ self.phi
        if self.edge_phi is not None:
            cross += self.edge_phi.T @ self.edge_total
            own += (self.edge_phi.T * self.edge_counts[1]) @ self.edge_phi
            mean += self.edge_counts[0] @ self.edge_phi
        return self.backend.take(cross + cross.T - own), self.backend.take(mean)


def _between_starts(path_sums: FinitePathSums, run: ForwardBackward, starts: FloatArray | None) -> FloatArray:
    """Return sum_s c(s) E[F | s] E[F | s]' for start distribution c, by propagating expected features backward."""
    backend = path_sums.backend
    graph, xp = backend.graph, backend.xp
    phi, edge_phi = backend.dense_features(path_sums.mdp)
    if edge_phi is not None:  # change the order of edges from by target to by source
        sorted_out = xp.empty_like(edge_phi)
        sorted_out[graph.in_edge] = edge_phi
        edge_phi = sorted_out
    mean = xp.stack([path_sums.discount[-1] * phi, xp.empty_like(phi)])
    no_marginals = xp.zeros((1, path_sums.mdp.n_states))
    for t, edge_prob in run.departures():
        discount = path_sums.discount[t : t + 1]
        backend.propagate_means(
            graph.out, edge_prob[None], no_marginals, phi, edge_phi, mean, (None, None), discount, discount
        )
        mean[0] = mean[1]
    weights = backend.put((path_sums.mdp.p0 if starts is None else starts)[path_sums.graph.order])
    return backend.take((mean[0].T * weights) @ mean[0])
