"""Split-and-merge moves out of local maxima of EM (after Ueda et al. 2000).

A move splits one intent, merges the two of the K + 1 whose difference is worth least, and lets EM go on from there; it
is taken if that raises the objective.
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
from limiirl.mixture.em import Settings, Solution, Start, nearly_empty, run
from limiirl.mixture.embeddings import shares
from limiirl.mixture.monitor import Callback, Iteration

# Moves that are taken in one fit, and moves that are tried before one is, at most.
_MOVES, _TRIES = 10, 3
# Iterations that a move is given to show what it is worth.
_TRIAL = 10
# A move must raise the objective (nats a unit) by more: less is EM's own last bit of climbing.
_LEAST_RISE = 1e-5
_KMEANS_STARTS = 5
# Whose responsibility is below the first does not follow; shares of features nearer than the second are the same.
_FOLLOWS, _APART = 1e-6, 1e-12


class SplitMergeMove(NamedTuple):
    """Intent `split` in two, `gone` merged into `kept`; nats that this gains by itself, and the start that it makes."""

    split: int
    kept: str
    gone: str
    gain: float
    start: Start

    def __str__(self) -> str:
        return f"split {self.split}, merged {self.gone} into {self.kept}"


def refine(prepared: FitProblem, found: Solution, settings: Settings, callback: Callback | None = None) -> Solution:
    """Return a solution at least as good, by moves that each raise the objective.

    A move that is taken is one line of the history, with its `event`; the iterations of EM after it follow. Halves are
    always those of `shares` of feature counts, whatever embedding a start clustered: a move is to come upon what
    the start did not.

    Examples
    --------
    There are three kinds of walks. Intents 0 and 1 begin with one of them, intent 2 with the others; EM stays there.

    >>> from limiirl import MDP, Demonstrations, MaxEnt
    >>> from limiirl.irl.problem import make_problem
    >>> mdp = MDP.from_edges([0, 0, 0, 1, 2, 3, 3], [1, 2, 6, 3, 3, 4, 5], p0=[1, 0, 0, 0, 0, 0, 0])
    >>> demos = Demonstrations.from_lists([[0, 6]] * 4 + [[0, 1, 3, 4], [0, 2, 3, 5]] * 4)
    >>> ready = make_problem(MaxEnt(4, bounds=(-4, 4)), mdp, demos)
    >>> away = [0, 0, 0, 0, 0, 0, -4.0]
    >>> first = np.array([np.multiply(away, -1.0), np.multiply(away, -0.9), away])
    >>> stuck = run(ready, Start(np.ones(3) / 3, first), Settings())
    >>> free = refine(ready, stuck, Settings())
    >>> [entry.event[:15] for entry in free.history if entry.event]  # which of 0 and 1 is kept does not matter
    ['start', 'split 2, merged']
    >>> stuck.rho.round(2), free.rho.round(2)
    (array([0.24, 0.26, 0.5 ]), array([0.33, 0.33, 0.33]))
    """
    if len(found.rho) < 2 or settings.max_iter == 0:
        return found
    plain = replace(settings, temperatures=())
    for _ in range(_MOVES):
        better = _best_of(prepared, found, plain)
        if better is None:
            break
        found = _continued(prepared, found, *better, plain, callback)
    return found


def _best_of(prepared: FitProblem, found: Solution, settings: Settings) -> tuple[SplitMergeMove, Solution] | None:
    """Return the first move that raises the objective, and what it came to."""
    trial = replace(settings, max_iter=min(_TRIAL, settings.max_iter))
    for move in moves(prepared, found, settings)[:_TRIES]:
        reached = run(prepared, move.start, trial)
        if reached.objective > found.objective + _LEAST_RISE:
            return move, reached
    return None


def _continued(
    prepared: FitProblem,
    found: Solution,
    move: SplitMergeMove,
    reached: Solution,
    settings: Settings,
    callback: Callback | None,
) -> Solution:
    """Return what EM comes to after a move, with one history for all."""
    last = found.history[-1].iteration + reached.n_iter
    entry = replace(reached.history[-1], iteration=last, change=np.nan, event=str(move))
    history = [*found.history, entry]
    if callback is not None:
        callback(entry)

    def told(later: Iteration) -> None:
        if later.iteration > 0:
            history.append(replace(later, iteration=last + later.iteration))
            if callback is not None:
                callback(history[-1])

    after = run(prepared, Start(reached.rho, reached.thetas, reached.U), settings, told)
    return replace(after, history=history)


def moves(prepared: FitProblem, found: Solution, settings: Settings) -> list[SplitMergeMove]:
    """Return the moves that raise the likelihood by themselves, at most one for each intent to split, the best first.

    An intent is split; of the K + 1 that there are then, two are merged, the followers of both served by the better
    of their two rewards. They may be two others, or a half and another. Rewards of halves are fitted, all in one go.
    """
    K, empty = len(found.rho), nearly_empty(found.U.sum(axis=0), len(found.U))
    points = shares(prepared)
    halves = {k: split_in_two(points, found.U[:, k], seed=k) for k in range(K) if not empty[k]}
    split = {k: parts for k, parts in halves.items() if parts is not None}
    if not split:
        return []
    U = np.hstack([found.U[:, [k]] * parts for k, parts in split.items()])
    starts = prepared.project(np.repeat(found.thetas[list(split)], 2, axis=0))
    thetas = prepared.m_step(prepared.moments(U), starts, np.arange(U.shape[1]), settings.max_evaluations).thetas
    log_p, log_halves = prepared.log_prob(found.thetas), prepared.log_prob(thetas)
    made = []
    for j, k in enumerate(split):
        first, second = 2 * j, 2 * j + 1
        portion = U[:, [first, second]].sum(axis=0) / U[:, [first, second]].sum()
        # One half takes the place of the intent that is split, the other comes last.
        wide, rewards = np.hstack([log_p, log_halves[:, [second]]]), np.vstack([found.thetas, thetas[second]])
        wide[:, k], rewards[k] = log_halves[:, first], thetas[first]
        rho = np.append(found.rho, found.rho[k] * portion[1])
        rho[k] *= portion[0]
        log_likelihood, kept, gone = cheapest_merger(wide, rho, k)
        gain = log_likelihood - found.log_likelihood * len(found.U)
        if gain > 0.0:
            rho[kept] += rho[gone]
            rho[gone], rewards[gone] = rho[K], rewards[K]
            made.append(SplitMergeMove(k, _called(kept, k, K), _called(gone, k, K), gain, Start(rho[:K], rewards[:K])))
    return sorted(made, key=lambda move: -move.gain)


def _called(i: int, split: int, K: int) -> str:
    return "a half" if i in (split, K) else str(i)


def cheapest_merger(log_p: FloatArray, rho: FloatArray, split: int) -> tuple[float, int, int]:
    """Return the highest log-likelihood after a merger of two intents, who is kept, and who is gone.

    Parameters
    ----------
    log_p : (G, K + 1)
    rho : (K + 1,)
    split : int
        The intent that was split: it is not merged with the last one, which is its other half.
    """
    top = np.max(log_p, axis=1)
    with np.errstate(invalid="ignore"):  # a unit that is impossible now makes every merger no number, which none beats
        p = np.exp(log_p - top[:, None])
    total, last = p @ rho, rho.size - 1
    best = (-np.inf, 0, last)
    for i, j in combinations(range(rho.size), 2):
        if (i, j) == (split, last):
            continue
        rest = np.maximum(total - rho[i] * p[:, i] - rho[j] * p[:, j], 0.0)
        for kept, gone in ((i, j), (j, i)):
            with np.errstate(
                divide="ignore", invalid="ignore"
            ):  # where nobody else explains a unit, the merger is out of question
                value = float(np.sum(np.log(rest + (rho[i] + rho[j]) * p[:, kept]) + top))
            if value > best[0]:
                best = (value, kept, gone)
    return best


def split_in_two(points: FloatArray, weights: FloatArray, seed: int) -> FloatArray | None:
    """Return (G, 2) which of two halves each unit belongs to, by k-means of those who follow an intent; or None.

    Units count by how much they follow it, weights (G,). There is nothing to split where all are at one point (G, m).
    """
    follow = weights > _FOLLOWS
    if not np.any(np.ptp(points[follow], axis=0) > _APART):
        return None
    halves = KMeans(2, n_init=_KMEANS_STARTS, random_state=seed)
    with one_thread():
        halves.fit(points[follow], sample_weight=weights[follow])
        labels = halves.predict(points)
    found = np.eye(2)[labels]
    return found if np.all(weights @ found > 0.0) else None
