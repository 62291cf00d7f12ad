r"""Observed information of switching intents, and standard errors from it.

By Louis' identity the observed information is that of the complete data minus the missing information,

    I = E[B | decisions] - Cov[S | decisions],

where S is the gradient and B the negative Hessian of the log-probability of decisions and intents. S is linear in the
counts of decisions, first intents and transitions, so that Cov[S | decisions] v is the derivative of the expected S
along v: one forward-backward recursion on each side of v.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag, helmert

from limiirl._typing import BoolArray, FloatArray
from limiirl.demos import Groups
from limiirl.kernels.switching import Chain, ChainCounts, Decisions, count, normalise_logits
from limiirl.mixture import (
    SMALLEST_WEIGHT,
    FreeEstimates,
    FreeParameters,
    WeightDesign,
    describe_sandwich,
    free_parameters,
    invert_information,
    mean_jacobian,
    sandwich,
    score_blocks,
    wald_statistics,
)
from limiirl.switching.problem import Parameters, SwitchingProblem
from limiirl.switching.transitions import HOMOGENEOUS, LARGEST_LOGIT, STATE, Logits, transition_table

# Largest change in the logarithm of a probability for central differences of expected counts.
_STEP = 3e-5
# Rows of the design per block of the information of transitions.
_ROWS = 4096
# A direction involves a parameter if its component exceeds this value.
_INVOLVED = 1e-6
# The likelihood is treated as flat if a probability has a standard error above 0.5, the largest standard deviation of a
# proportion, or a reward has one above this multiple of the largest absolute reward.
_IMPRECISE, _LARGEST_ERROR = 10.0, 0.5


@dataclass(frozen=True, eq=False)
class SwitchingErrors(FreeEstimates):
    """Standard errors of a `SwitchingMixture`; nan for parameters without one.

    Arguments of functions for `delta_method` are the probabilities of the first intent (K,), the thetas (K, d), and the
    transition probabilities (K, K) or (S, K, K); for covariates, the latter are those at the mean covariates.

    Attributes
    ----------
    initial : (K,)
        Errors of the initial probabilities; nan for a probability of (almost) 0 or 1. With ``initial="covariates"``,
        errors of their means over demonstrations.
    thetas, status : (K, d)
        Standard errors of rewards, and "ok" or the reason why there is none (see `StandardErrors`).
    transition : (K, K) or (S, K, K)
        Errors of `transition_`; nan for a probability of (almost) 0, and in states without transitions.
    A, B : (K, K), (K, m)
        Errors of the logits relative to A_jj = 0: A_jk is the log odds of switching from intent j to k instead of
        staying.
    initial_logits : (K, 1 + m) or None
        Errors of the intercepts and coefficients of the first intent, relative to intent 0.
    covariance : (n, n)
        Covariance of the n = K + K d + K K + K m parameters: initial, thetas, A and B, row by row; the first are the
        K (1 + m) logits if the first intent depends on covariates. If only differences between intents are identified,
        parameters are relative to their mean over intents.
    n_free : int
        Number of identified directions.
    method : str
    """

    initial: FloatArray
    thetas: FloatArray
    status: NDArray[np.str_]
    transition: FloatArray
    A: FloatArray
    B: FloatArray
    initial_logits: FloatArray | None
    covariance: FloatArray = field(repr=False)
    n_free: int
    method: str
    _basis: FloatArray = field(repr=False)  # (n, r), orthonormal
    _free_covariance: FloatArray = field(repr=False)  # (r, r); nan in flat directions
    _estimates: FloatArray = field(repr=False)  # (n,)
    _first: WeightDesign | None = field(repr=False)

    @property
    def t(self) -> FloatArray:
        """Rewards (K, d) divided by their standard errors."""
        return wald_statistics(self._arguments(self._estimates)[1], self.thetas)[0]

    @property
    def p(self) -> FloatArray:
        """Two-sided p-values (K, d) of the hypothesis that a reward is 0, from `t`."""
        return wald_statistics(self._arguments(self._estimates)[1], self.thetas)[1]

    def _arguments(self, x: FloatArray) -> tuple[FloatArray, ...]:
        initial, thetas, A, B = self._layout.split(x)
        by_state = self.transition.ndim == 3
        table = transition_table(Logits(A, B), B.T if by_state else np.zeros((1, self.initial.size)))
        if self._first is not None:
            initial = self._first.weights(initial).mean(axis=0)
        return initial, thetas, table if by_state else table[0]

    def _movable(self) -> BoolArray:
        thetas = self._layout.slices[1]
        result = np.zeros(self._estimates.size, dtype=bool)
        result[thetas] = ~np.isin(self.status, ("bound", "empty")).ravel()
        return result

    @property
    def _layout(self) -> _Layout:
        K, d = self.thetas.shape
        return _Layout(K, d, self.B.shape[1], 0 if self._first is None else self._first.X.shape[1])


class _Layout(NamedTuple):
    """Numbers of intents, rewards and columns; parameters are initial, thetas, A and B, row by row.

    `p` is the number of columns of the logits of the first intent, or 0 if its probabilities are constant.
    """

    K: int
    d: int
    m: int
    p: int = 0

    def split(self, values: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Return the parts (K,) or (K, p), (K, d), (K, K), (K, m) of parameters."""
        K, d, m, p = self
        ends = np.cumsum([K * max(p, 1), K * d, K * K, K * m])
        initial, thetas, A, B = np.split(values[: ends[-1]], ends[:-1])
        first = initial.reshape(K, p) if p else initial
        return first, thetas.reshape(K, d), A.reshape(K, K), B.reshape(K, m)

    @property
    def slices(self) -> tuple[slice, slice, slice, slice]:
        """Slices of the parts."""
        K, d, m, p = self
        ends = np.cumsum([0, K * max(p, 1), K * d, K * K, K * m]).tolist()
        first, second, third, fourth = (slice(lo, hi) for lo, hi in pairwise(ends))
        return first, second, third, fourth


class SwitchingInformation:
    """Complete-data scores and information at fitted parameters.

    Parameters
    ----------
    problem : SwitchingProblem
    parameters : Parameters
    ridge : float
        Coefficient of the penalty on B.
    free : FreeParameters
        Free parameters of the rewards.
    """

    def __init__(self, problem: SwitchingProblem, parameters: Parameters, ridge: float, free: FreeParameters) -> None:
        self.problem, self.parameters, self.ridge, self.free = problem, parameters, ridge, free
        K, d = parameters.thetas.shape
        self.first = None if problem.first is None else replace(problem.first, ridge=ridge)
        self.layout = _Layout(K, d, parameters.logits.B.shape[1], 0 if self.first is None else self.first.X.shape[1])
        self.initial = problem.initial(parameters)
        self.log_emission = problem.log_emission(parameters.thetas)
        moving = np.isin(free.status, ("ok", "contrast", "not identified", "up to scale"))
        self._moving = moving
        blocks = score_blocks(problem.emissions, parameters.thetas, moving)
        self.scores = np.concatenate([block for _, block in blocks])  # (decisions, K, d)
        self.eta = problem.design.eta(parameters.logits.B)

    def count(self, direction: FloatArray | None = None, data: Decisions | None = None) -> ChainCounts:
        """Return the expected counts at the parameters plus a small step in a direction."""
        initial, log_emission, A, eta = self.initial, self.log_emission, self.parameters.logits.A, self.eta
        if direction is not None:
            d_initial, d_thetas, d_A, d_B = self.layout.split(direction)
            log_emission = log_emission + np.einsum("mkd,kd->mk", self.scores, d_thetas)
            if self.first is None or self.parameters.first is None:
                initial = initial * np.exp(d_initial / initial)
            else:
                initial = self.first.weights(self.parameters.first + d_initial)
            A, eta = A + d_A, eta + self.problem.design.eta(d_B)
        chain = Chain.of(log_emission, initial, A, eta)
        data = self.problem.data if data is None else data
        return count(chain, data, distinct_rows=self.problem.design.distinct)

    def score(self, counts: ChainCounts, data: Decisions | None = None) -> FloatArray:
        """Return the gradient (n,) of the complete log-likelihood for counts, without penalties.

        `data` are the decisions that were counted, by default all.
        """
        _, d_A, d_eta = normalise_logits(self.parameters.logits.A, self.eta, counts.origin)
        if self.first is None:
            of_initial = counts.initial / self.initial
        else:
            rows = (self.problem.data if data is None else data).start
            of_initial = (np.atleast_2d(counts.initial) - self.initial[rows]).T @ self.first.X[rows]
        parts = (
            of_initial,
            np.einsum("mk,mkd->kd", counts.decisions, self.scores),
            counts.transitions - d_A,
            self.problem.design.differentiate(counts.target - d_eta),
        )
        return np.concatenate([np.ravel(part) for part in parts])

    def missing(self, basis: FloatArray) -> FloatArray:
        """Return Cov[S | decisions] basis (n, r) for directions (n, r)."""
        result = np.empty(basis.shape)
        for i, direction in enumerate(basis.T):
            step = _STEP / self._largest_change(direction)
            high, low = (self.score(self.count(sign * step * direction)) for sign in (1.0, -1.0))
            result[:, i] = (high - low) / (2.0 * step)
        return result

    def _largest_change(self, direction: FloatArray) -> float:
        """Return the largest change in the logarithm of a probability per unit of a direction."""
        d_initial, d_thetas, d_A, d_B = self.layout.split(direction)
        changes = (
            d_initial / self.initial if self.first is None else self.first.X @ d_initial.T,
            np.einsum("mkd,kd->mk", self.scores, d_thetas),
            d_A,
            self.problem.design.eta(d_B),
        )
        return max(float(np.max(np.abs(change), initial=0.0)) for change in changes) or 1.0

    def complete(self, counts: ChainCounts) -> FloatArray:
        """Return the expected information (n, n) of the complete data, with the curvature of the penalties."""
        first, second, third, fourth = self.layout.slices
        n = fourth.stop
        result = np.zeros((n, n))
        if self.first is None:
            result[first, first] = np.diag(counts.initial / self.initial**2)
        else:
            result[first, first] = self.first.information(self.initial) + self.first.penalty_curvature(self.layout.K)
        curvature = self.problem.emissions.curvature(counts.decisions, self.parameters.thetas, self._moving)
        if curvature is None:
            weighted = counts.decisions[:, :, None] * self.scores
            curvature = np.einsum("mkd,mke->kde", weighted, self.scores)
        result[second, second] = block_diag(*curvature)
        regulariser = self.problem.emissions.regulariser
        if regulariser is not None:
            ridge = regulariser.ridge * regulariser.n_demos / self.layout.K
            result[second, second] += np.diag(np.tile(ridge, self.layout.K))
        AA, AB, BB = self._logit_information(counts)
        result[third, third], result[third, fourth], result[fourth, fourth] = AA, AB, BB
        result[fourth, third] = AB.T
        result[fourth, fourth] += self.ridge * np.eye(fourth.stop - fourth.start)
        return result

    def _logit_information(self, counts: ChainCounts) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the information of A (K^2, K^2), of A and B (K^2, K m), and of B (K m, K m)."""
        K, _, m, _ = self.layout
        design, X = self.problem.design, self.problem.design.X
        AA, AB, BB = np.zeros((K, K, K, K)), np.zeros((K, K, K, m)), np.zeros((K, m, K, m))
        for lo in range(0, self.eta.shape[0], _ROWS):
            rows = slice(lo, lo + _ROWS)
            P = transition_table(self.parameters.logits, self.eta[rows])
            # V[r, j, k, l] = origin_rj (P_jk 1(k = l) - P_jk P_jl)
            V = -np.einsum("rj,rjk,rjl->rjkl", counts.origin[rows], P, P)
            index = np.arange(K)
            V[:, :, index, index] += counts.origin[rows][:, :, None] * P
            AA[index, :, index, :] += V.sum(axis=0)
            total = V.sum(axis=1)
            if X is not None:
                AB += np.einsum("rjkl,rc->jklc", V, X[rows])
                BB += np.einsum("rkl,rc,re->kcle", total, X[rows], X[rows], optimize=True)
            elif design.kind == STATE:
                at = np.arange(lo, lo + len(P))
                AB[..., at] = np.moveaxis(V, 0, -1)
                BB[:, at, :, at] += total
        return AA.reshape(K * K, K * K), AB.reshape(K * K, K * m), BB.reshape(K * m, K * m)

    def basis(self, counts: ChainCounts) -> FloatArray:
        """Return an orthonormal basis (n, r) of the free directions."""
        K, _, m, p = self.layout
        n_weights = max(int(np.count_nonzero(self.free.occupied)) - 1, 0)
        thetas = self.free.basis[K:, n_weights:]
        A = [_tangent(mask) for mask in self.free_transitions()]
        reached = counts.origin.sum(axis=1) > 0.0 if self.problem.design.kind == STATE else np.ones(m, dtype=bool)
        contrasts = _tangent(np.ones(K, dtype=bool))
        # B_kc = contrast_k 1(column = c)
        columns = np.kron(contrasts, np.eye(m)[:, reached]) if m else np.zeros((0, 0))
        initial = np.kron(contrasts, np.eye(p)) if p else _tangent(_inside(self.initial))
        return np.asarray(block_diag(initial, thetas, *A, columns))

    def free_transitions(self) -> BoolArray:
        """Return the mask (K, K) of logits that are not on a bound; an intent that is alone in its row is fixed."""
        A = self.parameters.logits.A
        if self.problem.design.kind == HOMOGENEOUS:
            return np.array([_inside(np.exp(row)) for row in A])
        return np.abs(A) < LARGEST_LOGIT * (1.0 - 1e-9)


def _inside(probabilities: FloatArray) -> BoolArray:
    return probabilities > SMALLEST_WEIGHT * (1.0 + 1e-6)


def _tangent(mask: BoolArray) -> FloatArray:
    """Return an orthonormal basis (K, r - 1) of the vectors that sum to 0 and are 0 outside of a mask of r entries."""
    r = int(np.count_nonzero(mask))
    basis = np.zeros((mask.size, max(r - 1, 0)))
    if r > 1:
        basis[mask] = helmert(r).T
    return basis


def group_scores(information: SwitchingInformation, groups: Groups) -> FloatArray:
    """Return the gradient (G, n) of the log-likelihood of the demonstrations of each group."""
    parts = information.problem.split(groups)
    return np.array([information.score(information.count(data=part), part) for part in parts])


def switching_errors(
    problem: SwitchingProblem, parameters: Parameters, shares: FloatArray, ridge: float, groups: Groups | None
) -> SwitchingErrors:
    """Return the standard errors of fitted parameters.

    Parameters
    ----------
    shares : (K,)
        Expected fraction of the steps with each intent.
    ridge : float
        Coefficient of the penalty on B.
    groups : Groups or None
        If given, the covariance is the `sandwich` of the scores of groups.
    """
    free = free_parameters(problem.model, problem.mdp, shares, parameters.thetas, problem.n_steps)
    own = SwitchingInformation(problem, parameters, ridge, free)
    counts = own.count()
    basis, complete = own.basis(counts), own.complete(counts)
    observed = basis.T @ (complete @ basis - own.missing(basis))
    observed = 0.5 * (observed + observed.T)
    inverse, flat = invert_information(observed, (basis**2).T @ np.diag(complete))
    method = "observed information"
    if groups is not None:
        scores = group_scores(own, groups) @ basis
        inverse, method = sandwich(inverse, scores), describe_sandwich(len(groups), groups.noun)
    covariance = basis @ inverse @ basis.T
    on_flat = np.any(np.abs(basis[:, flat]) > _INVOLVED, axis=1)
    inverse[flat] = inverse[:, flat] = np.nan
    return _report(own, covariance, on_flat, (basis, inverse), method)


def _report(
    own: SwitchingInformation,
    covariance: FloatArray,
    on_flat: BoolArray,
    free_estimates: tuple[FloatArray, FloatArray],
    method: str,
) -> SwitchingErrors:
    """Return the standard errors; nan for parameters that are fixed or in a flat direction of the likelihood.

    `free_estimates` are the basis (n, r) of free directions, and the covariance (r, r) along them.
    """
    parameters, free, layout = own.parameters, own.free, own.layout
    variance = np.diag(covariance)
    flat_initial, flat_thetas, flat_A, flat_B = layout.split(on_flat.astype(np.float64))
    initial, thetas, _, _ = (np.sqrt(np.maximum(part, 0.0)) for part in layout.split(variance))
    first_errors = None
    if own.first is not None:
        initial, first_errors = _first_errors(own, own.first, covariance[layout.slices[0], layout.slices[0]])
        flat_initial = flat_initial.max(axis=1)
        first_errors[flat_initial > 0.0] = np.nan
    inside = _inside(parameters.initial)
    usable = inside & (inside.sum() > 1) & (flat_initial == 0.0) & (initial <= _LARGEST_ERROR)
    initial = np.where(usable, initial, np.nan)
    scale = float(np.max(np.abs(parameters.thetas[free.occupied]), initial=0.0))
    imprecise = (flat_thetas > 0.0) | ((thetas > _IMPRECISE * scale) & (scale > 0.0))
    with_error = np.isin(free.status, ("ok", "contrast"))
    status = np.where(with_error & imprecise, "flat", free.status)
    thetas = np.where(np.isin(status, ("ok", "contrast")), thetas, np.nan)
    A, B, transition = _logit_errors(own, covariance)
    A = np.where((flat_A > 0.0) | (np.diag(flat_A) > 0.0)[:, None] | ~own.free_transitions(), np.nan, A)
    np.fill_diagonal(A, np.nan)
    moved = layout.split(np.any(np.abs(covariance) > 0.0, axis=1).astype(np.float64))[3] > 0.0
    B = np.where((flat_B > 0.0) | ~moved, np.nan, B)
    bad = ~own.free_transitions() | (flat_A > 0.0) | ~np.isfinite(transition) | (transition > _LARGEST_ERROR)
    if transition.ndim == 3:
        bad = bad | ~np.any(moved, axis=0)[:, None, None]
    transition = np.where(bad | (transition == 0.0), np.nan, transition)
    n_free = int(np.count_nonzero(np.isfinite(np.diag(free_estimates[1]))))
    start = parameters.initial if parameters.first is None else parameters.first
    parts = (start, parameters.thetas, parameters.logits.A, parameters.logits.B)
    estimates = np.concatenate([np.ravel(part) for part in parts])
    return SwitchingErrors(
        *(initial, thetas, status, transition, A, B, first_errors, covariance, n_free, method),
        *(*free_estimates, estimates, own.first),
    )


def _first_errors(
    own: SwitchingInformation, design: WeightDesign, covariance: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the errors (K,) of the mean initial probabilities, and (K, p) of the logits relative to intent 0."""
    K, p = own.layout.K, own.layout.p
    jacobian = mean_jacobian(design.X, own.initial)
    to_reference = np.eye(K)
    to_reference[:, 0] -= 1.0
    change = np.kron(to_reference, np.eye(p))
    errors = np.sqrt(np.maximum(np.diag(change @ covariance @ change.T), 0.0)).reshape(K, p)
    errors[0] = np.nan
    return np.sqrt(np.maximum(np.diag(jacobian @ covariance @ jacobian.T), 0.0)), errors


def _logit_errors(own: SwitchingInformation, covariance: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the standard errors of A relative to A_jj (K, K), of B (K, m), and of the transition probabilities."""
    K, _, m, _ = own.layout
    _, _, third, fourth = own.layout.slices
    VA = covariance[third, third].reshape(K, K, K, K)
    VB = covariance[fourth, fourth].reshape(K, m, K, m)
    VAB = covariance[third, fourth].reshape(K, K, K, m)
    variance = np.einsum("jkjk->jk", VA)
    index = np.arange(K)
    staying = variance[index, index][:, None]
    A = variance + staying - 2.0 * np.array([VA[j, :, j, j] for j in range(K)])
    B = np.einsum("kckc->kc", VB)
    logits = own.parameters.logits
    by_state = own.problem.design.kind == STATE
    P = transition_table(logits, own.eta if by_state else np.zeros((1, K)))
    transition = np.empty(P.shape)
    for s in range(len(P)):
        for j in range(K):
            V = VA[j, :, j, :].copy()
            if by_state:
                cross = VAB[j, :, :, s]
                V += cross + cross.T + VB[:, s, :, s]
            gradient = np.diag(P[s, j]) - np.outer(P[s, j], P[s, j])
            transition[s, j] = np.diag(gradient @ V @ gradient)
    A, B, transition = (np.sqrt(np.maximum(part, 0.0)) for part in (A, B, transition))
    return A, B, transition if by_state else transition[0]
