"""Split-and-merge moves out of local maxima of EM (after Ueda et al. 2000).

A move splits one intent, and merges the two of the resulting K + 1 intents whose merger lowers the likelihood least.
EM then continues, and the move is accepted if the objective increases.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

import numpy as np
from sklearn.cluster import KMeans

from limiirl._parallel import one_thread
from limiirl._typing import FloatArray
from limiirl.irl import FitProblem
from limiirl.mixture.em import Callback, Iteration, Settings, Solution, Start, nearly_empty, run
from limiirl.mixture.init import normalise_counts

# Maximum number of accepted moves per fit, and of moves tried before one is accepted.
_MOVES, _TRIES = 10, 3
# Iterations of EM before a move is accepted or rejected.
_TRIAL = 10
# Minimum increase of the objective (nats per unit) of an accepted move.
_LEAST_RISE = 1e-5
_KMEANS_STARTS = 5
# Minimum responsibility of a member of an intent, and the range below which points count as equal.
_MEMBER, _APART = 1e-6, 1e-12


class SplitMergeMove(NamedTuple):
    """Split of one intent and merger of `removed` into `kept`, with the gain in nats and the initial ensemble for EM.

    The gain is the increase in the log-likelihood before EM continues.
    """

    split: int
    kept: str
    removed: str
    gain: float
    start: Start

    def __str__(self) -> str:
        return f"split {self.split}, merged {self.removed} into {self.kept}"


def refine(problem: FitProblem, solution: Solution, settings: Settings, callback: Callback | None = None) -> Solution:
    """Return the solution after all moves that raise the objective.

    Each accepted move is one entry of the history, followed by the iterations of EM after it. Intents are split by
    clusters of normalised feature counts, regardless of the `embedding`.
    """
    if len(solution.rho) < 2 or settings.max_iter == 0:
        return solution
    plain = replace(settings, temperatures=())
    for _ in range(_MOVES):
        better = _try_moves(problem, solution, plain)
        if better is None:
            break
        solution = _continue(problem, solution, *better, plain, callback)
    return solution


def _try_moves(problem: FitProblem, solution: Solution, settings: Settings) -> tuple[SplitMergeMove, Solution] | None:
    """Return the first move that raises the objective, and its solution."""
    trial = replace(settings, max_iter=min(_TRIAL, settings.max_iter))
    for move in propose_moves(problem, solution, settings)[:_TRIES]:
        reached = run(problem, move.start, trial)
        if reached.objective > solution.objective + _LEAST_RISE:
            return move, reached
    return None


def _continue(
    problem: FitProblem,
    before: Solution,
    move: SplitMergeMove,
    reached: Solution,
    settings: Settings,
    callback: Callback | None,
) -> Solution:
    """Continue EM after a move, and append its iterations to the history."""
    last = before.history[-1].iteration + reached.n_iter
    entry = replace(reached.history[-1], iteration=last, change=np.nan, event=str(move))
    history = [*before.history, entry]
    if callback is not None:
        callback(entry)

    def record(later: Iteration) -> None:
        if later.iteration > 0:
            history.append(replace(later, iteration=last + later.iteration))
            if callback is not None:
                callback(history[-1])

    after = run(problem, Start(reached.rho, reached.thetas, reached.U, logits=reached.logits), settings, record)
    return replace(after, history=history)


def propose_moves(problem: FitProblem, solution: Solution, settings: Settings) -> list[SplitMergeMove]:
    """Return the moves that raise the likelihood even before EM continues, in descending order of gain.

    There is at most one move per split intent. The merged intent keeps the reward with the higher likelihood.
    """
    K, empty = len(solution.rho), nearly_empty(solution.U.sum(axis=0), len(solution.U))
    points = normalise_counts(problem)
    halves = {k: split_in_two(points, solution.U[:, k], seed=k) for k in range(K) if not empty[k]}
    split = {k: parts for k, parts in halves.items() if parts is not None}
    if not split:
        return []
    U = np.hstack([solution.U[:, [k]] * parts for k, parts in split.items()])
    starts = problem.project(np.repeat(solution.thetas[list(split)], 2, axis=0))
    thetas = problem.m_step(problem.moments(U), starts, np.arange(U.shape[1]), settings.max_evaluations).thetas
    log_p, log_halves = problem.log_prob(solution.thetas), problem.log_prob(thetas)
    proposals = []
    for j, k in enumerate(split):
        first, second = 2 * j, 2 * j + 1
        portion = U[:, [first, second]].sum(axis=0) / U[:, [first, second]].sum()
        # One half replaces the intent, the other is appended.
        wide, rewards = np.hstack([log_p, log_halves[:, [second]]]), np.vstack([solution.thetas, thetas[second]])
        wide[:, k], rewards[k] = log_halves[:, first], thetas[first]
        rho = np.append(solution.rho, solution.rho[k] * portion[1])
        rho[k] *= portion[0]
        log_likelihood, kept, removed = cheapest_merger(wide, rho, k)
        gain = log_likelihood - solution.log_likelihood * len(solution.U)
        if gain > 0.0:
            rho[kept] += rho[removed]
            rho[removed], rewards[removed] = rho[K], rewards[K]
            start = Start(rho[:K], rewards[:K])
            proposals.append(SplitMergeMove(k, _name(kept, k, K), _name(removed, k, K), gain, start))
    return sorted(proposals, key=lambda move: -move.gain)


def _name(i: int, split: int, K: int) -> str:
    return "a half" if i in (split, K) else str(i)


def cheapest_merger(log_p: FloatArray, rho: FloatArray, split: int) -> tuple[float, int, int]:
    """Return the highest log-likelihood after merging two intents, and the indices of the kept and the removed intent.

    `log_p` has shape (G, K + 1), `rho` (K + 1,). The `split` intent is not merged with the last intent, which is its
    other half.
    """
    top = np.max(log_p, axis=1)
    with np.errstate(invalid="ignore"):  # nan for units of zero likelihood, which is never the best value
        p = np.exp(log_p - top[:, None])
    total, last = p @ rho, rho.size - 1
    best = (-np.inf, 0, last)
    for i, j in combinations(range(rho.size), 2):
        if (i, j) == (split, last):
            continue
        rest = np.maximum(total - rho[i] * p[:, i] - rho[j] * p[:, j], 0.0)
        for kept, removed in ((i, j), (j, i)):
            with np.errstate(divide="ignore", invalid="ignore"):  # log 0 if no other intent can generate the unit
                value = float(np.sum(np.log(rest + (rho[i] + rho[j]) * p[:, kept]) + top))
            if value > best[0]:
                best = (value, kept, removed)
    return best


def split_in_two(points: FloatArray, weights: FloatArray, seed: int) -> FloatArray | None:
    """Split units in two by weighted k-means on points (G, m); return one-hot labels (G, 2).

    Returns None if all members coincide.
    """
    members = weights > _MEMBER
    if not np.any(np.ptp(points[members], axis=0) > _APART):
        return None
    halves = KMeans(2, n_init=_KMEANS_STARTS, random_state=seed)
    with one_thread():
        halves.fit(points[members], sample_weight=weights[members])
        labels = halves.predict(points)
    one_hot = np.eye(2)[labels]
    return one_hot if np.all(weights @ one_hot > 0.0) else None
