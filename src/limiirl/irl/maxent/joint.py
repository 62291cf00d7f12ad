"""`JointPathSums`: path sums of several environments, each with its own partition function."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from limiirl._typing import FloatArray
from limiirl.demos import Demonstrations, Environment
from limiirl.irl.maxent.infinite_horizon import InfinitePathSums
from limiirl.irl.maxent.path_sums import BackwardMessages, ExpectedCounts, FinitePathSums
from limiirl.mdp import MDP


class JointPathSums:
    """Path sums of a model that is conditioned on the environment of the start state.

    The methods are those of `FinitePathSums` with ``by_start=True``, where the environment takes the place of the start
    state: `starts` (S, K) are summed over the states of each environment, and log_Z is the mean of the environments'
    log Z_e with these weights.

    Parameters
    ----------
    mdp : MDP
        Union of the environments.
    environments : sequence of Environment
    parts : sequence of FinitePathSums or InfinitePathSums
        Path sums of each environment.
    """

    by_start = True

    def __init__(
        self,
        mdp: MDP,
        environments: Sequence[Environment],
        parts: Sequence[FinitePathSums | InfinitePathSums],
    ) -> None:
        self.mdp, self.environments, self.parts = mdp, environments, parts
        self.max_length, self.stop = parts[0].max_length, parts[0].stop
        self.batched = any(part.batched for part in parts)

    def weights(self, starts: FloatArray | None, n_columns: int) -> FloatArray:
        """Return the weights (E, K) of the environments, given start distributions (S, K); p0 by default."""
        given = np.repeat(self.mdp.p0[:, None], n_columns, axis=1) if starts is None else starts
        return np.array([given[environment.states].sum(axis=0) for environment in self.environments])

    def log_partition(self, thetas: FloatArray, *, starts: FloatArray | None = None) -> FloatArray:
        """Return the mean (K,) of log Z_e."""
        log_Z = np.array([part.log_partition(thetas) for part in self.parts])
        return np.asarray(np.sum(self.weights(starts, len(thetas)) * log_Z, axis=0))

    def log_partition_by_start(self, thetas: FloatArray) -> FloatArray:
        """Return log Z_e - log p0(s | e) (S, K) for the environment e of each state s.

        Log-weights of trajectories that are conditioned on the start state exclude p0, which this difference restores.
        """
        log_Z = np.empty((self.mdp.n_states, len(thetas)))
        for environment, part in zip(self.environments, self.parts, strict=True):
            log_Z[environment.states] = part.log_partition(thetas)
        return log_Z - self.mdp.log_p0[:, None]

    def value_and_grad(self, thetas: FloatArray, *, starts: FloatArray | None = None) -> tuple[FloatArray, FloatArray]:
        """Return the mean (K,) of log Z_e, and its gradient (K, d)."""
        log_Z, features = np.zeros(len(thetas)), np.zeros(thetas.shape)
        for weight, part in zip(self.weights(starts, len(thetas)), self.parts, strict=True):
            value, gradient = part.value_and_grad(thetas)
            log_Z += weight * value
            features += weight[:, None] * gradient
        return log_Z, features

    def expected_counts(
        self, thetas: FloatArray, *, step_weights: FloatArray | None = None, edges: bool | None = None
    ) -> ExpectedCounts:
        """Return the mean of log Z_e (K,), and the expected counts of states (S, K) and edges (E, K) or None."""
        log_Z, K = np.zeros(len(thetas)), len(thetas)
        node, edge = np.zeros((self.mdp.n_states, K)), np.zeros((self.mdp.n_edges, K))
        counted = True
        for weight, environment, part in zip(self.weights(None, K), self.environments, self.parts, strict=True):
            if isinstance(part, FinitePathSums):
                counts = part.expected_counts(thetas, step_weights=step_weights, edges=edges)
            else:
                counts = part.expected_counts(thetas, edges=edges)
            log_Z += weight * counts.log_Z
            node[environment.states] = weight * counts.node
            counted = counts.edge is not None
            if counts.edge is not None:
                edge[environment.edges] = weight * counts.edge
        return ExpectedCounts(log_Z, node, edge if counted else None)

    def covariance(self, theta: FloatArray, *, starts: FloatArray | None = None) -> FloatArray:
        """Return the mean (d, d) of the covariances of the path features, the Hessian of the mean of log Z_e."""
        weights = self.weights(None if starts is None else starts[:, None], 1)[:, 0]
        return np.asarray(
            sum(weight * part.covariance(theta) for weight, part in zip(weights, self.parts, strict=True) if weight > 0)
        )

    def time_marginals(self, theta: FloatArray) -> FloatArray:
        """Return p_t(s) (L, S) for theta (d,), for environments with the probabilities of p0."""
        marginals = np.zeros((int(self.max_length), self.mdp.n_states))
        weights = self.weights(None, 1)[:, 0]
        for weight, environment, part in zip(weights, self.environments, self.parts, strict=True):
            assert isinstance(part, FinitePathSums)  # the caller checks max_length
            marginals[:, environment.states] = weight * part.time_marginals(theta)
        return marginals

    def backward_messages(
        self, thetas: FloatArray, step: NDArray[np.int64], state: NDArray[np.int64]
    ) -> BackwardMessages:
        """Return the messages of states (m,) at steps (m,); see `FinitePathSums.backward_messages`."""
        value, scale = np.empty((step.size, len(thetas))), np.empty((step.size, len(thetas)))
        for environment, part in zip(self.environments, self.parts, strict=True):
            rows = np.flatnonzero(np.isin(state, environment.states))
            own = np.searchsorted(environment.states, state[rows])
            if rows.size:
                messages = part.backward_messages(thetas, step[rows], own)
                value[rows], scale[rows] = messages.value, messages.scale
        return BackwardMessages(None, value, scale)

    def sample(self, theta: FloatArray, n: int, rng: np.random.Generator) -> Demonstrations:
        """Draw n trajectories; the environment of each is drawn with the probabilities of p0."""
        weights = self.weights(None, 1)[:, 0]
        chosen = rng.choice(len(self.parts), size=n, p=weights / weights.sum())
        samples = []
        for e, (environment, part) in enumerate(zip(self.environments, self.parts, strict=True)):
            size = int(np.count_nonzero(chosen == e))
            if size:
                own = part.sample(theta, size, rng)
                samples.append(own.replace(states=environment.states[own.states]))
        # The samples are ordered by environment; restore the order of `chosen`.
        order = np.empty(n, dtype=np.int64)
        order[np.argsort(chosen, kind="stable")] = np.arange(n)
        return Demonstrations.concat(samples)[order]
