"""Transition model of intents: P(z_{t+1} = k | z_t = j, x_t) = softmax_k(A_jk + B_k . x_t), and its M-step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from limiirl._typing import FloatArray, IndexArray, Int32Array
from limiirl.irl import Box, minimise_lbfgs
from limiirl.kernels.switching import ChainCounts, normalise_logits
from limiirl.mixture import floor_weights

CONSTANT, HOMOGENEOUS, STATE, COVARIATES = "constant", "homogeneous", "state", "covariates"
KINDS = (HOMOGENEOUS, STATE, COVARIATES)
# Largest logit of a transition relative to staying: its probability cannot become less than about 1e-8.
LARGEST_LOGIT = 18.4
# Tolerance on the gradient, per transition, and maximum number of evaluations of an M-step, which starts at the
# logits of the previous one.
_GTOL, _EVALUATIONS = 1e-8, 40


class Logits(NamedTuple):
    """Intercepts A (K, K), with A_jj = 0 unless transitions are homogeneous, and coefficients B (K, m)."""

    A: FloatArray
    B: FloatArray


@dataclass(frozen=True, eq=False)
class Design:
    """Row of x_t of each step: `row` (n,), and the distinct rows `X` (M, m), or None for one-hot states.

    Attributes
    ----------
    distinct : bool
        True if no two steps have the same row.
    """

    kind: str
    row: Int32Array
    n_rows: int
    X: FloatArray | None

    @classmethod
    def homogeneous(cls, n_steps: int) -> Design:
        """Return the design without covariates."""
        return cls(HOMOGENEOUS, np.zeros(n_steps, dtype=np.int32), 1, np.empty((1, 0)))

    @classmethod
    def by_state(cls, states: Any, n_states: int) -> Design:
        """Return the design with x_t = one-hot of s_t, for the states (n,) of decisions."""
        return cls(STATE, states.astype(np.int32), n_states, None)

    @classmethod
    def by_covariates(cls, scaled: FloatArray) -> Design:
        """Return the design of standardised covariates (n, m)."""
        return cls(COVARIATES, np.arange(len(scaled), dtype=np.int32), len(scaled), np.ascontiguousarray(scaled))

    @property
    def distinct(self) -> bool:
        """True if no two steps have the same row."""
        return self.kind == COVARIATES

    @property
    def n_columns(self) -> int:
        """Number m of columns of X."""
        return self.n_rows if self.X is None else int(self.X.shape[1])

    def eta(self, B: FloatArray) -> FloatArray:
        """Return X B' (M, K) for coefficients B (K, m)."""
        return np.ascontiguousarray(B.T if self.X is None else self.X @ B.T)

    def differentiate(self, d_eta: FloatArray) -> FloatArray:
        """Return the gradient (K, m) with respect to B of a function with gradient d_eta (M, K)."""
        return d_eta.T if self.X is None else d_eta.T @ self.X


class LogitObjective:
    """Negative expected log-likelihood of transitions, per transition, plus the ridge penalty on B.

    The variables are the off-diagonal entries of A, then B row by row, divided by `scale`.
    """

    def __init__(self, design: Design, counts: ChainCounts, ridge: float) -> None:
        self.design, self.counts, self.ridge = design, counts, ridge
        self.K = len(counts.transitions)
        self.total = float(counts.transitions.sum())
        self.off = ~np.eye(self.K, dtype=bool)
        self.scale = np.ones(self.K * (self.K - 1) + self.K * design.n_columns)

    def gradient(self, logits: Logits) -> tuple[float, FloatArray, FloatArray]:
        """Return the log-likelihood without the ridge, and its gradients with respect to A and B."""
        counts, eta = self.counts, self.design.eta(logits.B)
        norm, d_A, d_eta = normalise_logits(logits.A, eta, counts.origin)
        value = float(np.sum(counts.transitions * logits.A) + np.sum(counts.target * eta)) - norm
        return value, counts.transitions - d_A, self.design.differentiate(counts.target - d_eta)

    def rescale(self, logits: Logits) -> None:
        """Set the scale of each variable to the square root of the inverse curvature at these logits."""
        counts, eta = self.counts, self.design.eta(logits.B)
        _, d_A, d_eta = normalise_logits(logits.A, eta, counts.origin)
        p = d_A / np.maximum(d_A.sum(axis=1, keepdims=True), 1e-300)
        q = d_eta / np.maximum(d_eta.sum(axis=1, keepdims=True), 1e-300)
        squares = d_eta * (1.0 - q)
        own = squares if self.design.X is None else self.design.X.T**2 @ squares
        curvature = np.concatenate([(d_A * (1.0 - p))[self.off], (own.T + self.ridge).ravel()])
        self.scale = 1.0 / np.sqrt(np.maximum(curvature / self.total, 1e-6))

    def pack(self, logits: Logits) -> FloatArray:
        """Return logits as one vector (p,) for the optimiser."""
        return np.concatenate([logits.A[self.off], logits.B.ravel()]) / self.scale

    def unpack(self, x: FloatArray) -> Logits:
        """Return the logits of a vector (p,); the inverse of `pack`."""
        A, values = np.zeros((self.K, self.K)), x * self.scale
        n = self.K * (self.K - 1)
        A[self.off] = values[:n]
        return Logits(A, values[n:].reshape(self.K, -1))

    def evaluate(self, points: FloatArray, which: IndexArray) -> tuple[FloatArray, FloatArray]:
        """Return values (1,) and gradients (1, p)."""
        del which
        logits = self.unpack(points[0])
        value, d_A, d_B = self.gradient(logits)
        value = (0.5 * self.ridge * float(np.sum(logits.B**2)) - value) / self.total
        gradient = np.concatenate([-d_A[self.off], (self.ridge * logits.B - d_B).ravel()]) / self.total
        return np.array([value]), (gradient * self.scale)[None]


def fit_logits(design: Design, counts: ChainCounts, start: Logits, ridge: float) -> Logits:
    """Return the logits that maximise the expected log-likelihood of transitions minus the ridge penalty.

    Without x, they are the logarithms of the normalised counts, which are at least 1e-8. Otherwise a bounded search,
    which never lowers the objective, begins at `start`.
    """
    if design.kind == HOMOGENEOUS:
        left = counts.transitions.sum(axis=1)
        rows = [
            np.log(floor_weights(row, n)) if n > 0.0 else before
            for row, n, before in zip(counts.transitions, left, start.A, strict=True)
        ]
        return Logits(np.array(rows), start.B)
    if not counts.transitions.sum() > 0.0 or len(start.A) == 1:
        return start
    objective = LogitObjective(design, counts, ridge)
    referred = Logits(np.clip(start.A - np.diag(start.A)[:, None], -LARGEST_LOGIT, LARGEST_LOGIT), start.B)
    objective.rescale(referred)
    x = objective.pack(referred)
    limit = np.full(x.size, np.inf)
    n = objective.K * (objective.K - 1)
    limit[:n] = LARGEST_LOGIT / objective.scale[:n]
    (result,) = minimise_lbfgs(objective, x[None], Box(-limit, limit), _GTOL, _EVALUATIONS)
    return objective.unpack(result.theta)


def transition_table(logits: Logits, eta: FloatArray) -> FloatArray:
    """Return P(z_{t+1} = k | z_t = j) (M, K, K) for each row of eta (M, K)."""
    values = logits.A[None] + eta[:, None, :]
    values = np.exp(values - values.max(axis=2, keepdims=True))
    return np.asarray(values / values.sum(axis=2, keepdims=True))
