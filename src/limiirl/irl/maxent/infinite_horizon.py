"""`InfinitePathSums`: sums over trajectories of unbounded length, for discount 1, from two sparse linear systems.

W(s, s') is the weight of a transition times exp(r(s')). The messages are beta = (I - W)^-1 end and
alpha = (I - W')^-1 alpha_0, where `end` is 1 in the states where a trajectory may end, and alpha_0 contains the weights
of the start states. The sum is finite if and only if the spectral radius of W, restricted to states on trajectories, is
below 1. This holds if and only if (I - W) y = 1 has a solution y > 0 (Collatz and Wielandt).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from scipy.special import logsumexp

from limiirl._typing import FloatArray
from limiirl.demos import Demonstrations
from limiirl.errors import DivergentPartition, InvalidParameter, NumericalError
from limiirl.irl.maxent.backends import compile_mdp, dense_features
from limiirl.irl.maxent.path_sums import BackwardMessages, ExpectedCounts, check_covariance
from limiirl.irl.maxent.trajectories import StepWeights, draw_starts, sample_trajectories
from limiirl.kernels.graph import Rewards, row_of_entry
from limiirl.kernels.sparse_lu import diagonal_lu
from limiirl.mdp import MDP, expected_features, find_reachable

# Entry of y above which cycles are checked separately, and entry above which the spectral radius is treated as 1.
NEARLY_SINGULAR = 1e9
_SINGULAR = 1e12


@dataclass(eq=False)
class _Solution:
    """Solution for one intent, in the order `graph.order`. Entries of states that are on no trajectory are 0."""

    lu: Any
    keep: NDArray[np.intp]
    w: FloatArray
    x: FloatArray
    node: FloatArray
    beta: FloatArray

    def solve(self, right: FloatArray, transposed: bool = False) -> FloatArray:
        result = np.zeros_like(right)
        result[self.keep] = self.lu.solve(np.ascontiguousarray(right[self.keep]), trans="T" if transposed else "N")
        return result


class InfinitePathSums:
    """Sums over all trajectories of an MDP with discount 1; see `FinitePathSums` for the parameters and methods.

    `stop` is "anywhere" or "terminal". The attribute `batched` is True if a batch of thetas costs less than separate
    calls.

    Examples
    --------
    A self-loop of weight 1/2: Z = 1/2 (1 + 1/2 + 1/4 + ...) = 1.

    >>> mdp = MDP.from_edges([0], [0], n_states=1)
    >>> np.exp(InfinitePathSums(mdp).log_partition(np.log([[0.5]])))
    array([1.])
    """

    batched = False

    def __init__(self, mdp: MDP, *, stop: str = "anywhere", by_start: bool = False) -> None:
        if mdp.gamma != 1.0:
            raise DivergentPartition(
                f"max_length=inf requires gamma = 1; got {mdp.gamma}. Use a finite length, or mdp.replace(gamma=1.0).",
                parameter="max_length",
                value=math.inf,
            )
        if stop not in ("anywhere", "terminal"):
            raise InvalidParameter.of("stop", stop, "must be 'anywhere' or 'terminal' with max_length=inf")
        self.mdp, self.stop, self.by_start = mdp, stop, by_start
        self.max_length = math.inf
        self.compiled = compile_mdp(mdp)
        self.graph = self.compiled.graph
        self._tail = row_of_entry(self.graph.out)
        self._head = self.graph.out.idx.astype(np.int64)
        self._end = np.ones(mdp.n_states) if stop == "anywhere" else mdp.terminal[self.graph.order].astype(np.float64)
        self._p0 = mdp.p0[self.graph.order]

    def expected_counts(
        self, thetas: FloatArray, *, starts: FloatArray | None = None, edges: bool | None = None
    ) -> ExpectedCounts:
        """Return log_Z (K,) and the expected counts of states (S, K) and edges (E, K)."""
        edges = bool(self.mdp.n_action_features or self.mdp.n_edge_features) if edges is None else edges
        log_Z, node = np.empty(thetas.shape[0]), np.empty((self.mdp.n_states, thetas.shape[0]))
        edge = np.empty((self.graph.n_edges, thetas.shape[0])) if edges else None
        with np.errstate(over="ignore", invalid="ignore"):
            for k, theta in enumerate(thetas):
                solution = self._solve(theta, None if starts is None else starts[:, k])
                log_Z[k], alpha, _ = self._start(solution, None if starts is None else starts[:, k])
                node[self.graph.order, k] = alpha * solution.beta
                if edge is not None:
                    edge[:, k] = (alpha[self._tail] * solution.x * (solution.w * solution.beta)[self._head])[
                        self.graph.in_edge
                    ]
        for values, what, names in ((node, "state", None), (edge, "edge", self.graph.edge_order[self.graph.in_edge])):
            if values is not None and not np.all(np.isfinite(values)):
                row = int(np.argmin(np.isfinite(values).all(axis=1)))
                row = row if names is None else int(names[row])
                message = f"The expected count of {what} {row} overflows float64. Use smaller rewards."
                raise NumericalError(message, parameter="thetas", index=row)
        return ExpectedCounts(log_Z, node, None if edge is None else self.compiled.spread(edge))

    def value_and_grad(self, thetas: FloatArray, *, starts: FloatArray | None = None) -> tuple[FloatArray, FloatArray]:
        """Return log_Z (K,) and its gradient (K, d), the expected features."""
        counts = self.expected_counts(thetas, starts=starts)
        return counts.log_Z, expected_features(self.mdp, counts.node, counts.edge)

    def log_partition(self, thetas: FloatArray, *, starts: FloatArray | None = None) -> FloatArray:
        """Return log_Z (K,)."""
        return self.expected_counts(thetas, starts=starts, edges=False).log_Z

    def log_partition_by_start(self, thetas: FloatArray) -> FloatArray:
        """Return log Z(s) (S, K), or -inf for states that are unreachable from the start states."""
        log_beta = np.empty((self.mdp.n_states, thetas.shape[0]))
        for k, theta in enumerate(thetas):
            solution = self._solve(theta, None)
            with np.errstate(divide="ignore"):
                log_beta[self.graph.order, k] = solution.node + np.log(solution.beta)
        return log_beta

    def log_beta(self, theta: FloatArray, starts: FloatArray | None = None) -> FloatArray:
        """Return log beta (S,), the log-weight of all continuations, including stopping, without the state's reward.

        The value is -inf for states that are unreachable, and for states from which no trajectory can end.
        """
        log_beta, solution = np.empty(self.mdp.n_states), self._solve(theta, starts)
        with np.errstate(divide="ignore"):
            log_beta[self.graph.order] = np.log(solution.beta)
        return log_beta

    def backward_messages(
        self, thetas: FloatArray, step: NDArray[np.int64], state: NDArray[np.int64]
    ) -> BackwardMessages:
        """Return the messages of states (m,) at steps (m,); -inf if unreachable or if no continuation can end."""
        value, starts = np.full((step.size, thetas.shape[0]), -np.inf), None
        if self.by_start:  # ignore start states from which no trajectory can end
            starts = np.where(self._find_ending()[self.graph.rank], self.mdp.p0, 0.0)
        log_Z, used = np.empty(thetas.shape[0]), self.mdp.p0 > 0
        if starts is None or np.any(starts > 0):
            node, _ = self.mdp.rewards(thetas)
            for k, theta in enumerate(thetas):
                log_beta = self.log_beta(theta, starts)
                value[:, k] = log_beta[state] + np.where(step > 0, node[state, k], 0.0)
                log_Z[k] = logsumexp((np.log(self.mdp.p0[used]) + node[used, k]) + log_beta[used])
        return BackwardMessages(None if self.by_start else log_Z, value, np.zeros_like(value))

    def covariance(self, theta: FloatArray, *, starts: FloatArray | None = None) -> FloatArray:
        """Return the Hessian (d, d) of log_Z at theta (d,): the covariance of the path features."""
        with np.errstate(over="ignore", invalid="ignore"):
            return check_covariance(self.mdp, self._covariance(theta, starts))

    def _covariance(self, theta: FloatArray, starts: FloatArray | None) -> FloatArray:
        solution = self._solve(theta, starts)
        _, alpha, weights = self._start(solution, starts)
        phi, edge_phi = dense_features(self.mdp, self.compiled)
        pushed = alpha[:, None] * phi
        continuation = (solution.x * (solution.w * solution.beta)[self._head])[:, None]
        if edge_phi is not None:
            by_source = np.empty_like(edge_phi)
            by_source[self.graph.in_edge] = edge_phi
            edge_phi = by_source
            flow = (alpha[self._tail] * solution.x * solution.w[self._head])[:, None] * edge_phi
            np.add.at(pushed, self._head, flow)
        tangent = solution.solve(pushed, transposed=True)
        cross = phi.T @ (solution.beta[:, None] * tangent)
        own = (phi.T * (alpha * solution.beta)) @ phi
        mean = (alpha * solution.beta) @ phi
        if edge_phi is not None:
            cross += edge_phi.T @ (continuation * (tangent[self._tail] + alpha[self._tail][:, None] * edge_phi))
            used = continuation[:, 0] * alpha[self._tail]
            own += (edge_phi.T * used) @ edge_phi
            mean += used @ edge_phi
        second = cross + cross.T - own
        if not self.by_start:
            return second - np.outer(mean, mean)
        backward = solution.beta[:, None] * phi
        if edge_phi is not None:
            np.add.at(backward, self._tail, continuation * edge_phi)
        expected = solution.solve(backward)[solution.keep] / solution.beta[solution.keep, None]
        return second - (expected.T * weights[solution.keep]) @ expected

    def sample(self, theta: FloatArray, n: int, rng: np.random.Generator) -> Demonstrations:
        """Draw n trajectories from the model with parameters theta (d,)."""
        solution = self._solve(theta, None)
        _, _, weights = self._start(solution, None)
        message = np.append(solution.w * solution.beta, 0.0)
        rewards = Rewards(
            solution.node,
            None,
            np.log(solution.x, where=solution.x > 0, out=np.full(solution.x.size, -np.inf)),
            np.ones(1),
            True,
        )
        steps = itertools.repeat(StepWeights(message, self._end, 1.0))
        return sample_trajectories(self.mdp, self.compiled, rewards, False, steps, draw_starts(weights, n, rng), rng)

    def _start(self, solution: _Solution, starts: FloatArray | None) -> tuple[float, FloatArray, FloatArray]:
        """Return log_Z, alpha / Z (S,), and the distribution of start states (S,)."""
        given = self._p0 if starts is None else starts[self.graph.order]
        used = given > 0
        if self.by_start:
            log_Z = float(given[used] @ (solution.node[used] + np.log(solution.beta[used])))
            first = np.zeros_like(given)
            first[used] = given[used] / solution.beta[used]
            return log_Z, solution.solve(first, transposed=True), given
        used &= solution.beta > 0  # start states from which no trajectory can end have probability 0
        log_first = np.full(given.size, -np.inf)
        log_first[used] = np.log(given[used]) + solution.node[used]
        shift = float(np.max(log_first))
        first = np.exp(log_first - shift)
        total = float(first @ solution.beta)
        return (
            shift + float(np.log(total)),
            solution.solve(first / total, transposed=True),
            first * solution.beta / total,
        )

    def _solve(self, theta: FloatArray, starts: FloatArray | None) -> _Solution:
        with np.errstate(over="ignore", invalid="ignore"):
            node, edge = self.mdp.rewards(theta)
            node = node[self.graph.order, 0]
            w = np.exp(node)
            x = self.compiled.mass[self.graph.edge_order]
            if edge is not None:
                x = x * np.exp(edge[self.graph.edge_order, 0])
        for values, what, names in ((w, "state", self.graph.order), (x, "edge", self.graph.edge_order)):
            if not np.all(np.isfinite(values)):
                row = int(names[np.argmin(np.isfinite(values))])
                message = f"The weight of {what} {row} at step 0 overflows float64. Use smaller rewards."
                raise NumericalError(message, parameter="thetas", index=row)
        keep = self._relevant(starts)
        n = self.mdp.n_states
        with np.errstate(over="ignore"):
            step = x * w[self._head]
        if not np.all(np.isfinite(step)):
            state = int(self.graph.order[self._tail[np.argmin(np.isfinite(step))]])
            message = f"The weight of a transition from state {state} overflows float64. Use smaller rewards."
            raise NumericalError(message, parameter="thetas", index=state)
        weights = sparse.csr_array((step, (self._tail, self._head)), shape=(n, n))[keep][:, keep]
        lu = self._factor(weights)
        beta = np.zeros(n)
        beta[keep] = lu.solve(self._end[keep])
        if not np.all(beta[keep] > 0):
            state = int(self.graph.order[keep[np.argmin(beta[keep])]])
            raise NumericalError(
                f"The weight of trajectories from state {state} to a terminal state underflows float64. Use a finite "
                "max_length, for which log arithmetic is available.",
                parameter="thetas",
                index=state,
            )
        return _Solution(lu, keep, w, x, node, beta)

    def _factor(self, weights: Any) -> Any:
        """Return the LU factors of I - W; raise `DivergentPartition` if the sum over trajectories is infinite."""
        lu, proof = _invert(weights)
        if proof is not None and np.max(proof) > NEARLY_SINGULAR:
            # The cause may be large weights along paths, or cycles of weight 1 up to rounding. Only cycles make the sum
            # infinite, and cycles are within strongly connected components.
            _, part = connected_components(weights, connection="strong")
            moves = weights.tocoo()
            inner = part[moves.row] == part[moves.col]
            cycles = (moves.data[inner], (moves.row[inner], moves.col[inner]))
            _, proof = _invert(sparse.csr_array(cycles, shape=weights.shape))
            if proof is not None and np.max(proof) > _SINGULAR:
                proof = None
        if proof is None:
            raise DivergentPartition(
                "The partition function over trajectories of unbounded length is infinite: weights grow by a factor of "
                f"about {_growth(weights):.4g} per step. Use lower rewards, or a finite max_length.",
                parameter="thetas",
            )
        return lu

    def _relevant(self, starts: FloatArray | None) -> NDArray[np.intp]:
        """Return the indices into `graph.order`, in ascending order, of the states on trajectories."""
        given = self._p0 if starts is None else starts[self.graph.order]
        reached = find_reachable(self._tail, self._head, given > 0)
        if self.stop == "terminal":
            reached &= self._find_ending()
            stuck = (given > 0) & ~reached
            if np.any(stuck) if self.by_start else np.all(stuck == (given > 0)):
                state = int(self.graph.order[np.argmax(stuck)])
                message = f"No trajectory from state {state} reaches a terminal state. Use stop='anywhere'."
                raise InvalidParameter(message, parameter="stop", value=self.stop, index=state)
        return np.flatnonzero(reached)

    def _find_ending(self) -> NDArray[np.bool_]:
        """Return the mask (S,), in the order `graph.order`, of states from which a trajectory can end."""
        return find_reachable(self._head, self._tail, self._end > 0)


def _invert(weights: Any) -> tuple[Any, FloatArray | None]:
    """Return the LU factors of I - W, and y = (I - W)^-1 1 if it proves a spectral radius below 1, otherwise None."""
    n = weights.shape[0]
    try:
        lu = diagonal_lu((sparse.eye_array(n) - weights).tocsc())
    except RuntimeError:  # the matrix is singular, so the spectral radius is 1
        return None, None
    proof = np.asarray(lu.solve(np.ones(n)))
    proven = np.all(np.isfinite(proof)) and np.min(proof, initial=1.0) >= 1.0 - 1e-6
    return lu, proof if proven else None


def _growth(weights: Any, steps: int = 200) -> float:
    """Return an estimate of the spectral radius of W by power iteration, for the error message."""
    vector, growth = np.ones(weights.shape[0]), 0.0
    for _ in range(steps):
        vector = weights @ vector
        growth = float(np.max(vector))
        if growth == 0.0:
            break
        vector /= growth
    return growth
