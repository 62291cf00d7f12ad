"""`InfinitePathSums`: sums over trajectories of any length, for discount 1, by two sparse solves instead of sweeps.

With W(s, s') = x(s, s') w(s') the messages are beta = (I - W)^-1 end and alpha = (I - W')^-1 alpha_0. The sum is
finite if and only if the spectral radius of W is below 1 on the states that matter. The solve itself proves it: if (I
- W) y = 1 has a solution y > 0, then W y < y, so that the radius is below 1 (Collatz and Wielandt); if there is none,
it is not.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import breadth_first_order, connected_components
from scipy.special import logsumexp

from limiirl._typing import FloatArray
from limiirl.demos import Demonstrations
from limiirl.errors import DivergentPartition, InvalidParameter, NumericalError
from limiirl.irl.maxent.backends import compile_mdp, dense_features, expected_features
from limiirl.irl.maxent.path_sums import BackwardMessages, ExpectedCounts, check_covariance
from limiirl.irl.maxent.sampling import Onward, draw_starts, walk
from limiirl.kernels.elimination.symbolic import diagonal_lu
from limiirl.kernels.graph import Rewards, owners
from limiirl.mdp import MDP

# Sums of weights from which on a solve is looked at again, and at which cycles count as having weight 1.
NEARLY_SINGULAR = 1e9
_SINGULAR = 1e12


@dataclass(eq=False)
class _Solution:
    """One intent, solved; arrays are in graph order and zero on states that do not matter."""

    lu: Any
    keep: NDArray[np.intp]
    w: FloatArray
    x: FloatArray
    node: FloatArray
    beta: FloatArray

    def solve(self, right: FloatArray, transposed: bool = False) -> FloatArray:
        found = np.zeros_like(right)
        found[self.keep] = self.lu.solve(np.ascontiguousarray(right[self.keep]), trans="T" if transposed else "N")
        return found


class InfinitePathSums:
    """All trajectories of an MDP with discount 1, of any length; the methods are those of `FinitePathSums`.

    Parameters
    ----------
    mdp : MDP
    stop : {"anywhere", "terminal"}
    by_start : bool

    Attributes
    ----------
    together : bool
        Whether several thetas at once cost less than one after the other.

    Examples
    --------
    A state that may be left for itself with weight 1/2 each time: 1 + 1/2 + 1/4 + ... = 2, and the first visit weighs
    1/2.

    >>> mdp = MDP.from_edges([0], [0], n_states=1)
    >>> np.exp(InfinitePathSums(mdp).log_partition(np.log([[0.5]])))
    array([1.])
    """

    together = False

    def __init__(self, mdp: MDP, *, stop: str = "anywhere", by_start: bool = False) -> None:
        if mdp.gamma != 1.0:
            raise DivergentPartition(
                f"max_length=inf needs discount 1; it is {mdp.gamma}. Rewards that fade away no longer hold back the "
                "growing number of long trajectories. Set a finite max_length, or use mdp.replace(gamma=1.0)."
            )
        if stop not in ("anywhere", "terminal"):
            raise InvalidParameter(f"stop must be 'anywhere' or 'terminal' with max_length=inf; it is {stop!r}.")
        self.mdp, self.stop, self.by_start = mdp, stop, by_start
        self.max_length = np.inf
        self.compiled = compile_mdp(mdp)
        self.graph = self.compiled.graph
        self._tail = owners(self.graph.out)
        self._head = self.graph.out.idx.astype(np.int64)
        self._end = np.ones(mdp.n_states) if stop == "anywhere" else mdp.terminal[self.graph.order].astype(np.float64)
        self._p0 = mdp.p0[self.graph.order]

    def expected_counts(
        self, thetas: FloatArray, *, starts: FloatArray | None = None, edges: bool | None = None
    ) -> ExpectedCounts:
        """Return log_Z (K,) and the expected numbers of visits to states (S, K) and of uses of edges (E, K)."""
        edges = bool(self.mdp.n_action_features or self.mdp.n_edge_features) if edges is None else edges
        log_Z, node = np.empty(thetas.shape[0]), np.empty((self.mdp.n_states, thetas.shape[0]))
        edge = np.empty((self.graph.n_edges, thetas.shape[0])) if edges else None
        with np.errstate(over="ignore", invalid="ignore"):
            for k, theta in enumerate(thetas):
                found = self._solve(theta, None if starts is None else starts[:, k])
                log_Z[k], alpha, _ = self._start(found, None if starts is None else starts[:, k])
                node[self.graph.order, k] = alpha * found.beta
                if edge is not None:
                    edge[:, k] = (alpha[self._tail] * found.x * (found.w * found.beta)[self._head])[self.graph.in_edge]
        for values, what, names in ((node, "state", None), (edge, "edge", self.graph.edge_order[self.graph.in_edge])):
            if values is not None and not np.all(np.isfinite(values)):
                row = int(np.argmin(np.isfinite(values).all(axis=1)))
                row = row if names is None else int(names[row])
                raise NumericalError(
                    f"The expected count of {what} {row} left the range of float64. Use smaller rewards."
                )
        return ExpectedCounts(log_Z, node, None if edge is None else self.compiled.spread(edge))

    def value_and_grad(self, thetas: FloatArray, *, starts: FloatArray | None = None) -> tuple[FloatArray, FloatArray]:
        """Return log_Z (K,) and its gradient (K, d), the expected features."""
        found = self.expected_counts(thetas, starts=starts)
        return found.log_Z, expected_features(self.mdp, found.node, found.edge)

    def log_partition(self, thetas: FloatArray, *, starts: FloatArray | None = None) -> FloatArray:
        """Return log_Z (K,)."""
        return self.expected_counts(thetas, starts=starts, edges=False).log_Z

    def log_partition_by_start(self, thetas: FloatArray) -> FloatArray:
        """Return log Z(s) (S, K); -inf for states that no start leads to."""
        found = np.empty((self.mdp.n_states, thetas.shape[0]))
        for k, theta in enumerate(thetas):
            solution = self._solve(theta, None)
            with np.errstate(divide="ignore"):
                found[self.graph.order, k] = solution.node + np.log(solution.beta)
        return found

    def log_beta(self, theta: FloatArray, starts: FloatArray | None = None) -> FloatArray:
        """Return (S,) the log-weight of all ways to go on from each state, stopping included, its own reward excluded.

        -inf for states that no start leads to, or from which no trajectory can end.
        """
        found, solution = np.empty(self.mdp.n_states), self._solve(theta, starts)
        with np.errstate(divide="ignore"):
            found[self.graph.order] = np.log(solution.beta)
        return found

    def backward_messages(
        self, thetas: FloatArray, step: NDArray[np.int64], state: NDArray[np.int64]
    ) -> BackwardMessages:
        """Return what lies ahead of states (m,) at steps (m,); -inf where no start leads, or no trajectory can end."""
        value, starts = np.full((step.size, thetas.shape[0]), -np.inf), None
        if self.by_start:  # starts from which no trajectory ends are no reason to refuse the others
            starts = np.where(self._ending()[self.graph.rank], self.mdp.p0, 0.0)
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
        found = self._solve(theta, starts)
        _, alpha, weights = self._start(found, starts)
        phi, edge_phi = dense_features(self.mdp, self.compiled)
        pushed = alpha[:, None] * phi
        onward = (found.x * (found.w * found.beta)[self._head])[:, None]
        if edge_phi is not None:
            by_source = np.empty_like(edge_phi)
            by_source[self.graph.in_edge] = edge_phi
            edge_phi = by_source
            flow = (alpha[self._tail] * found.x * found.w[self._head])[:, None] * edge_phi
            np.add.at(pushed, self._head, flow)
        tangent = found.solve(pushed, transposed=True)
        cross = phi.T @ (found.beta[:, None] * tangent)
        own = (phi.T * (alpha * found.beta)) @ phi
        mean = (alpha * found.beta) @ phi
        if edge_phi is not None:
            cross += edge_phi.T @ (onward * (tangent[self._tail] + alpha[self._tail][:, None] * edge_phi))
            used = onward[:, 0] * alpha[self._tail]
            own += (edge_phi.T * used) @ edge_phi
            mean += used @ edge_phi
        second = cross + cross.T - own
        if not self.by_start:
            return second - np.outer(mean, mean)
        ahead = found.beta[:, None] * phi
        if edge_phi is not None:
            np.add.at(ahead, self._tail, onward * edge_phi)
        expected = found.solve(ahead)[found.keep] / found.beta[found.keep, None]
        return second - (expected.T * weights[found.keep]) @ expected

    def sample(self, theta: FloatArray, n: int, rng: np.random.Generator) -> Demonstrations:
        """Draw n trajectories from the model with parameters theta (d,)."""
        found = self._solve(theta, None)
        _, _, weights = self._start(found, None)
        message = np.append(found.w * found.beta, 0.0)
        rewards = Rewards(
            found.node, None, np.log(found.x, where=found.x > 0, out=np.full(found.x.size, -np.inf)), np.ones(1), True
        )
        steps = itertools.repeat(Onward(message, self._end, 1.0))
        return walk(self.mdp, self.compiled, rewards, False, steps, draw_starts(weights, n, rng), rng)

    def _start(self, found: _Solution, starts: FloatArray | None) -> tuple[float, FloatArray, FloatArray]:
        """Return log_Z, alpha divided by Z, and the distribution of start states (S,)."""
        given = self._p0 if starts is None else starts[self.graph.order]
        used = given > 0
        if self.by_start:
            log_Z = float(given[used] @ (found.node[used] + np.log(found.beta[used])))
            first = np.zeros_like(given)
            first[used] = given[used] / found.beta[used]
            return log_Z, found.solve(first, transposed=True), given
        used &= found.beta > 0  # a start from which no trajectory ends is never drawn
        log_first = np.full(given.size, -np.inf)
        log_first[used] = np.log(given[used]) + found.node[used]
        shift = float(np.max(log_first))
        first = np.exp(log_first - shift)
        total = float(first @ found.beta)
        return shift + float(np.log(total)), found.solve(first / total, transposed=True), first * found.beta / total

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
                raise NumericalError(
                    f"The weight of {what} {row} left the range of float64 at step 0. Use smaller rewards."
                )
        keep = self._relevant(starts)
        n = self.mdp.n_states
        with np.errstate(over="ignore"):
            step = x * w[self._head]
        if not np.all(np.isfinite(step)):
            state = int(self.graph.order[self._tail[np.argmin(np.isfinite(step))]])
            raise NumericalError(
                f"The weight of a step out of state {state} left the range of float64 at step 0. Use smaller rewards."
            )
        weights = sparse.csr_array((step, (self._tail, self._head)), shape=(n, n))[keep][:, keep]
        lu = self._factor(weights)
        beta = np.zeros(n)
        beta[keep] = lu.solve(self._end[keep])
        if not np.all(beta[keep] > 0):
            state = int(self.graph.order[keep[np.argmin(beta[keep])]])
            raise NumericalError(
                f"The weight of trajectories from state {state} to a terminal state underflowed. "
                "Use a finite max_length, which has a log space."
            )
        return _Solution(lu, keep, w, x, node, beta)

    def _factor(self, weights: Any) -> Any:
        """Return the LU factors of I - W, or raise `DivergentPartition` if the series does not converge."""
        lu, proof = _invert(weights)
        if proof is not None and np.max(proof) > NEARLY_SINGULAR:
            # Large weights on the way are one reason, a cycle of weight 1 up to rounding the other. Only cycles count:
            # they lie within the strongly connected parts.
            _, part = connected_components(weights, connection="strong")
            moves = weights.tocoo()
            inner = part[moves.row] == part[moves.col]
            cycles = (moves.data[inner], (moves.row[inner], moves.col[inner]))
            _, proof = _invert(sparse.csr_array(cycles, shape=weights.shape))
            if proof is not None and np.max(proof) > _SINGULAR:
                proof = None
        if proof is None:
            raise DivergentPartition(
                "The sum over trajectories of any length is infinite: their weight grows by a factor of about "
                f"{_growth(weights):.4g} a step. Use lower rewards (a cost on every step), or a finite max_length."
            )
        return lu

    def _relevant(self, starts: FloatArray | None) -> NDArray[np.intp]:
        """Return the states that lie on some trajectory, ascending, in graph order."""
        given = self._p0 if starts is None else starts[self.graph.order]
        links = self._links()
        reached = _reach(links, given > 0)
        if self.stop == "terminal":
            reached &= self._ending()
            stuck = (given > 0) & ~reached
            if np.any(stuck) if self.by_start else np.all(stuck == (given > 0)):
                state = int(self.graph.order[np.argmax(stuck)])
                raise InvalidParameter(
                    f"No trajectory from state {state} ends in a terminal state. Use stop='anywhere'."
                )
        return np.flatnonzero(reached)

    def _ending(self) -> NDArray[np.bool_]:
        """Return (S,), in graph order, from which states a trajectory can end."""
        return _reach(self._links().T.tocsr(), self._end > 0)

    def _links(self) -> Any:
        n = self.mdp.n_states
        return sparse.csr_array((np.ones(self._tail.size), (self._tail, self._head)), shape=(n, n))


def _invert(weights: Any) -> tuple[Any, FloatArray | None]:
    """Return the LU factors of I - W, and y = (I - W)^-1 1 where it proves the radius of W to be below 1, else None."""
    n = weights.shape[0]
    try:
        lu = diagonal_lu((sparse.eye_array(n) - weights).tocsc())
    except RuntimeError:  # exactly singular: the radius is exactly 1
        return None, None
    proof = np.asarray(lu.solve(np.ones(n)))
    proven = np.all(np.isfinite(proof)) and np.min(proof, initial=1.0) >= 1.0 - 1e-6
    return lu, proof if proven else None


def _reach(links: Any, sources: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which states can be reached from the sources: a search from one more node that leads to all of them."""
    n = sources.size
    extra = sparse.csr_array(
        (np.ones(int(sources.sum())), (np.zeros(int(sources.sum()), dtype=int), np.flatnonzero(sources))), shape=(1, n)
    )
    full = sparse.block_array([[links, sparse.csr_array((n, 1))], [extra, None]], format="csr")
    found = np.zeros(n + 1, dtype=bool)
    found[breadth_first_order(full, n, return_predecessors=False)] = True
    return found[:n]


def _growth(weights: Any, steps: int = 200) -> float:
    """Return the growth a step of W^n 1, by power iteration: an estimate of the spectral radius for a message."""
    vector, growth = np.ones(weights.shape[0]), 0.0
    for _ in range(steps):
        vector = weights @ vector
        growth = float(np.max(vector))
        if growth == 0.0:
            break
        vector /= growth
    return growth
