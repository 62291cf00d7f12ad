"""log Z and expected counts in 60 digits: the recursions over all trajectories, on numbers that cannot overflow.

Written from the mathematics, not from the library: no rescaling, no reordering, no merged edges. mpmath's exponents
are unbounded, so that the only error is the 60th digit. Slow, hence for graphs of a few states.
"""

from dataclasses import dataclass

import mpmath
import numpy as np
from mpmath import mpf
from numpy.typing import NDArray
from scipy import sparse

from limiirl.mdp import MDP

DIGITS = 60
Float = NDArray[np.float64]
Numbers = list[mpf]


@dataclass(frozen=True)
class Precise:
    """Results of the recursions, rounded to doubles only at the end.

    log_Z of the model, log_Z_by_start (S,) of trajectories from each state (without p0; -inf where
    none can end), and the discounted expected counts of states (S,) and edges (E,).
    """

    log_Z: float
    log_Z_by_start: Float
    node: Float
    edge: Float


def exact_rewards(mdp: MDP, theta: Float) -> tuple[Numbers, Numbers]:
    """The rewards of states and of edges without rounding: doubles in features and theta are taken as exact."""
    ds, da = mdp.n_state_features, mdp.n_action_features
    node = _products(mdp.state_features, theta[:ds], mdp.n_states)
    action = _products(mdp.action_features, theta[ds : ds + da], mdp.n_pairs)
    edge = _products(mdp.edge_features, theta[ds + da :], mdp.n_edges)
    return node, [action[int(mdp.pair_of_edge[e])] + edge[e] for e in range(mdp.n_edges)]


def solve(
    mdp: MDP, theta: Float, max_length: int, *, stop: str = "anywhere", by_start: bool = False, digits: int = DIGITS
) -> Precise:
    """Sum over all trajectories of at most `max_length` states that may end where `stop` allows.

    `by_start`: condition on the start state, so that log_Z is the mean of log Z(s) over p0, and counts are means too.
    """
    with mpmath.workdps(digits):
        w, x = _step_weights(mdp, theta, max_length)
        end = _ends(mdp, max_length, stop)
        beta = _backward(mdp, w, x, end)
        total = [w[0][s] * beta[0][s] for s in range(mdp.n_states)]
        p0 = [mpf(float(p)) for p in mdp.p0]
        if by_start:
            log_Z = mpmath.fsum(p * mpmath.log(z) for p, z in zip(p0, total, strict=True) if p)
            first = [p * v / z if p else mpf(0) for p, v, z in zip(p0, w[0], total, strict=True)]
            norm = mpf(1)
        else:
            norm = mpmath.fsum(p * z for p, z in zip(p0, total, strict=True))
            log_Z = mpmath.log(norm)
            first = [p * v for p, v in zip(p0, w[0], strict=True)]
        alpha = _forward(mdp, w, x, first)
        ended = mpmath.fsum(a * e for row, ends in zip(alpha, end, strict=True) for a, e in zip(row, ends, strict=True))
        began = mpmath.fsum(p0) if by_start else norm
        if abs(ended / began - 1) > mpf(10) ** (10 - digits):  # every trajectory that starts ends somewhere
            raise ArithmeticError(f"the two directions disagree: {ended} ended of {began}")
        node, edge = _counts(mdp, alpha, beta, w, x, norm)
        by = [float(mpmath.log(z)) if z else -np.inf for z in total]
        return Precise(float(log_Z), np.array(by), np.array(node), np.array(edge))


def _products(features: Float | sparse.csr_array | None, theta: Float, rows: int) -> Numbers:
    if features is None:
        return [mpf(0)] * rows
    dense = features if isinstance(features, np.ndarray) else features.toarray()
    return [
        mpmath.fsum(mpf(float(f)) * mpf(float(v)) for f, v in zip(row, theta, strict=True) if f and v) for row in dense
    ]


def _step_weights(mdp: MDP, theta: Float, max_length: int) -> tuple[list[Numbers], list[Numbers]]:
    """w[t][s] = exp(gamma^t r(s)) and x[t][e] = p(e) exp(gamma^t r(e))."""
    node, edge = exact_rewards(mdp, theta)
    gamma, prob = mpf(mdp.gamma), [mpf(float(p)) for p in mdp.prob]
    w, x = [], []
    for t in range(max_length):
        if t > 0 and mdp.gamma == 1.0:
            w.append(w[0])
            x.append(x[0])
            continue
        d = gamma**t
        known = {r: mpmath.exp(d * r) for r in {*node, *edge}}
        w.append([known[r] for r in node])
        x.append([p * known[r] for p, r in zip(prob, edge, strict=True)])
    return w, x


def _ends(mdp: MDP, max_length: int, stop: str) -> list[list[int]]:
    """end[t][s] is 1 where a trajectory whose t-th state is s may end there."""
    anywhere, terminal = [1] * mdp.n_states, [int(flag) for flag in mdp.terminal]
    rows = [anywhere if stop == "anywhere" else terminal] * max_length
    if stop == "terminal_or_max_length":
        rows[-1] = anywhere
    return rows


def _backward(mdp: MDP, w: list[Numbers], x: list[Numbers], end: list[list[int]]) -> list[Numbers]:
    edges = list(zip(mdp.src.tolist(), mdp.dst.tolist(), strict=True))
    beta: list[Numbers] = [[mpf(e) for e in row] for row in end]
    for t in range(len(w) - 2, -1, -1):
        continuation = [v * b for v, b in zip(w[t + 1], beta[t + 1], strict=True)]
        for e, (s, target) in enumerate(edges):
            beta[t][s] += x[t][e] * continuation[target]
    return beta


def _forward(mdp: MDP, w: list[Numbers], x: list[Numbers], first: Numbers) -> list[Numbers]:
    edges = list(zip(mdp.src.tolist(), mdp.dst.tolist(), strict=True))
    alpha = [first]
    for t in range(len(w) - 1):
        arrived = [mpf(0)] * mdp.n_states
        for e, (s, target) in enumerate(edges):
            arrived[target] += x[t][e] * alpha[t][s]
        alpha.append([v * a for v, a in zip(w[t + 1], arrived, strict=True)])
    return alpha


def _counts(
    mdp: MDP, alpha: list[Numbers], beta: list[Numbers], w: list[Numbers], x: list[Numbers], norm: mpf
) -> tuple[list[float], list[float]]:
    edges = list(zip(mdp.src.tolist(), mdp.dst.tolist(), strict=True))
    node, edge = [mpf(0)] * mdp.n_states, [mpf(0)] * mdp.n_edges
    gamma = mpf(mdp.gamma)
    for t in range(len(alpha)):
        d = gamma**t / norm
        for s in range(mdp.n_states):
            node[s] += d * alpha[t][s] * beta[t][s]
        if t + 1 < len(alpha):
            continuation = [v * b for v, b in zip(w[t + 1], beta[t + 1], strict=True)]
            for e, (s, target) in enumerate(edges):
                edge[e] += d * alpha[t][s] * x[t][e] * continuation[target]
    return [float(n) for n in node], [float(n) for n in edge]
