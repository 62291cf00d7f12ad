"""Path sums with scipy.sparse, the baselines for the speed of the library.

Value and gradient of log Z for K intents by the recursions of MaxEnt, with discount 1, deterministic transitions,
linear arithmetic, all messages stored, and buffers reused between calls. They are optimised: no exponentials inside
the loop, and messages are rescaled as rarely as in the library.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import reverse_cuthill_mckee

from limiirl import MDP

Float = NDArray[np.float64]
RESCALE_EVERY = 16


class _Formulation:
    def __init__(self, mdp: MDP, max_length: int, reordered: bool) -> None:
        links = csr_array((np.ones(mdp.n_edges), (mdp.src, mdp.dst)), shape=(mdp.n_states, mdp.n_states))
        self.phi = csr_array(mdp.state_features)
        self.p0, self.max_length = mdp.p0, max_length
        if reordered:
            order = reverse_cuthill_mckee((links + links.T).tocsr(), symmetric_mode=True)
            links, self.phi, self.p0 = links[order][:, order], self.phi[order], self.p0[order]
        self.links, self.back = links.tocsr(), links.T.tocsr()
        self.n_states = mdp.n_states
        self.stored = np.empty(0)

    def store(self, *shape: int) -> Float:
        if self.stored.shape != shape:
            self.stored = np.zeros(shape)
        return self.stored


class ProductPerIntent(_Formulation):
    """One matrix-vector product per intent and step, with the weights inside the matrix."""

    name = "one product per intent"

    def __call__(self, thetas: Float) -> tuple[Float, Float]:
        results = [self._one(theta) for theta in thetas]
        return np.array([log_Z for log_Z, _ in results]), np.array([features for _, features in results])

    def _one(self, theta: Float) -> tuple[float, Float]:
        w = np.exp(self.phi @ theta)
        forward, arrive = self.links.copy(), self.back.copy()
        forward.data = w[self.links.indices]
        arrive.data = np.repeat(w, np.diff(self.back.indptr))
        beta = self.store(self.max_length, self.n_states)
        log_scale = np.zeros(self.max_length)
        beta[-1] = 1.0
        for t in range(self.max_length - 2, -1, -1):
            log_scale[t] = log_scale[t + 1]
            np.add(forward @ beta[t + 1], np.exp(-log_scale[t]), out=beta[t])
            if t % RESCALE_EVERY == 0:
                top = beta[t].max()
                beta[t] /= top
                log_scale[t] += np.log(top)
        alpha = self.p0 * w
        log_Z = float(np.log(alpha @ beta[0]) + log_scale[0])
        counts = alpha * (beta[0] * np.exp(log_scale[0] - log_Z))
        alpha_scale, part = 0.0, np.empty(self.n_states)
        for t in range(1, self.max_length):
            alpha = arrive @ alpha
            if t % RESCALE_EVERY == 0 and (top := alpha.max()) > 0:
                alpha /= top
                alpha_scale += np.log(top)
            np.multiply(alpha, beta[t], out=part)
            part *= np.exp(alpha_scale + log_scale[t] - log_Z)
            counts += part
        return log_Z, self.phi.T @ counts


class BlockOfIntents(_Formulation):
    """One product with an (S, K) block per step, with the weights outside the matrix."""

    name = "one (S, K) block"

    def __call__(self, thetas: Float) -> tuple[Float, Float]:
        w = np.exp(self.phi @ thetas.T)
        u = self.store(self.max_length, *w.shape)
        log_scale = np.zeros((self.max_length, w.shape[1]))
        u[-1] = w
        for t in range(self.max_length - 2, -1, -1):
            log_scale[t] = log_scale[t + 1]
            np.add(self.links @ u[t + 1], np.exp(-log_scale[t]), out=u[t])
            if t > 0:
                u[t] *= w
            if t % RESCALE_EVERY == 0:
                top = u[t].max(axis=0)
                u[t] /= top
                log_scale[t] += np.log(top)
        alpha = self.p0[:, None] * w
        log_Z = np.log(np.sum(alpha * u[0], axis=0)) + log_scale[0]
        counts = alpha * (u[0] * np.exp(log_scale[0] - log_Z))
        alpha_scale, part = np.zeros(w.shape[1]), np.empty_like(w)
        for t in range(1, self.max_length):
            alpha = self.back @ alpha
            if t % RESCALE_EVERY == 0:
                top = alpha.max(axis=0)
                alpha /= top
                alpha_scale += np.log(top)
            np.multiply(alpha, u[t], out=part)
            part *= np.exp(alpha_scale + log_scale[t] - log_Z)
            counts += part
            alpha *= w
        return log_Z, (self.phi.T @ counts).T


FORMULATIONS = (ProductPerIntent, BlockOfIntents)
