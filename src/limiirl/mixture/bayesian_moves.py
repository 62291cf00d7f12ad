"""Moves that sweeps cannot make: two intents become one, one is given up, one becomes two.

Sweeps move members between intents a little at a time, and stop where two intents share what one would explain as
well. A move proposes another number of intents, lets a few sweeps settle it, and is taken only if the bound rises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from limiirl.mixture.bayesian_bound import Problem, State
from limiirl.mixture.bayesian_rewards import Rewards, expected_log_prob, improve
from limiirl.mixture.bayesian_slopes import loss
from limiirl.mixture.em import few

Float = NDArray[np.float64]
Move = Callable[[Problem, State], Iterator[State]]
# Proposals that are looked at, of which so many are settled by so many sweeps.
_LOOKED_AT, _SETTLED, _SWEEPS = 10, 2, 4
# Newton steps towards the posterior of a joined intent.
_STEPS = 10
# Sweeps that settle a proposal end when they gain less than this many nats.
_LITTLE = 1e-2
# Bounds that differ by fewer nats tie, and fewer intents win.
_TIE = 1e-3
# Those are cut in two who follow an intent rather than all the others.
_RATHER = 0.5


def merge(problem: Problem, state: State) -> Iterator[State]:
    """Yield the posteriors in which two intents are one, the most promising first.

    Pairs are looked at whose members the other intent explains nearly as well as their own.
    """
    pairs = sorted(combinations(range(state.n_intents), 2), key=lambda pair: _regret(state, *pair))[:_LOOKED_AT]
    if not pairs:
        return
    k, other = np.array(pairs).T  # k is the larger
    U = state.U[:, k] + state.U[:, other]
    share = (state.sizes[k] / (state.sizes[k] + state.sizes[other]))[:, None]
    between = share * state.rewards.mean[k] + (1.0 - share) * state.rewards.mean[other]
    start = Rewards(between, state.rewards.root[k])
    joined = improve(loss(problem.prepared, U, problem.prior.scale), problem.prior, start, _STEPS)
    log_p = expected_log_prob(problem.prepared, problem.prior, joined)
    yield from _best(
        _replaced(problem, state, pair, U[:, [j]], joined[np.array([j])], log_p[:, [j]]) for j, pair in enumerate(pairs)
    )


def prune(problem: Problem, state: State) -> Iterator[State]:
    """Yield the posteriors without one of the intents that hardly anybody follows, as they are."""
    for k in np.flatnonzero(few(state.sizes, len(state.U)))[::-1]:
        if state.n_intents > 1 and (found := _without(problem, state, k)) is not None:
            yield found


def delete(problem: Problem, state: State) -> Iterator[State]:
    """Yield the posteriors without one intent, whose members choose among the others, the most promising first."""
    if state.n_intents > 1:
        smallest = range(state.n_intents - 1, max(-1, state.n_intents - 1 - _LOOKED_AT), -1)
        yield from _best(found for k in smallest if (found := _without(problem, state, k)) is not None)


def split(problem: Problem, state: State) -> Iterator[State]:
    """Yield the posteriors in which one intent is two, the most promising first."""
    cuts = [(k, side) for k in range(min(_LOOKED_AT, state.n_intents)) if (side := _cut(problem, state, k)) is not None]
    if not cuts:
        return
    halves = [np.column_stack([state.U[:, k] * side, state.U[:, k] * ~side]) for k, side in cuts]
    rewards, log_p = problem.fresh(np.hstack(halves))
    yield from _best(
        _replaced(problem, state, (k,), halves[j], rewards[np.arange(2 * j, 2 * j + 2)], log_p[:, 2 * j : 2 * j + 2])
        for j, (k, _) in enumerate(cuts)
    )


MOVES: dict[str, Move] = {"prune": prune, "merge": merge, "delete": delete, "split": split}


def improved(problem: Problem, state: State, max_intents: int) -> tuple[str, State] | None:
    """Return the first move that raises the bound, by name, with where it leads; None if there is none.

    Examples
    --------
    >>> from limiirl import MDP, Demonstrations, MaxEnt
    >>> from limiirl.irl.prepared import prepare
    >>> from limiirl.mixture.bayesian_prior import Prior
    >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0], [1], [-1]])
    >>> ready = prepare(MaxEnt(2, bounds=None), mdp, Demonstrations.from_lists([[0, 1]] * 6))
    >>> problem = Problem(ready, Prior(ready.box(1), 3.0), 1.0, ready.features())
    >>> name, found = improved(problem, problem.start(np.eye(2)[[0, 0, 0, 0, 1, 1]]), 2)
    >>> name, found.n_intents
    ('merge', 1)
    """
    for name, move in MOVES.items():
        if name == "split" and state.n_intents >= max_intents:
            continue
        # Of two posteriors that differ by less than this, the one with fewer intents is as good.
        enough = state.bound + (_TIE if name == "split" else -_TIE)
        for i, proposal in enumerate(move(problem, state)):
            found = proposal
            if found.bound <= enough and name != "prune" and i < _SETTLED:
                found, _ = problem.run(proposal, _SWEEPS, _LITTLE)
            if found.bound > enough:
                return name, found
    return None


def _best(proposals: Iterator[State]) -> list[State]:
    """Return proposals in falling order of their bounds, without those that explain somebody by no means."""
    return sorted((state for state in proposals if np.isfinite(state.bound)), key=lambda state: -state.bound)


def _regret(state: State, k: int, other: int) -> float:
    """Return the nats that the members of two intents lose where each is explained by the other."""
    with np.errstate(invalid="ignore"):  # 0 times inf: nobody is lost
        gap = state.log_p[:, k] - state.log_p[:, other]
        shift = state.U[:, k] - state.U[:, other]
        total = float(np.sum(np.where(shift != 0.0, shift * gap, 0.0)))
    return total if np.isfinite(total) else np.inf


def _replaced(problem: Problem, state: State, gone: tuple[int, ...], U: Float, rewards: Rewards, log_p: Float) -> State:
    """Return the posterior with other intents in place of some."""
    rest = np.setdiff1d(np.arange(state.n_intents), gone)
    return problem.state(
        np.hstack([state.U[:, rest], U]),
        Rewards.join([state.rewards[rest], rewards]),
        np.hstack([state.log_p[:, rest], log_p]),
    )


def _without(problem: Problem, state: State, k: int | np.intp) -> State | None:
    """Return the posterior without intent k; None where somebody could follow no other."""
    rest = np.setdiff1d(np.arange(state.n_intents), [k])
    log_p = state.log_p[:, rest]
    if np.any(np.all(np.isneginf(log_p), axis=1)):
        return None
    scores = log_p + state.sticks.log_weights[rest]
    U = np.exp(scores - scores.max(axis=1, keepdims=True))
    return problem.state(U / U.sum(axis=1, keepdims=True), state.rewards[rest], log_p)


def _cut(problem: Problem, state: State, k: int) -> NDArray[np.bool_] | None:
    """Return a side (G,) for each unit: the best cut of intent k's members along the direction in which they vary most.

    The best has the least variance within its sides. None where members do not differ.
    """
    weights = state.U[:, k]
    members = weights > _RATHER
    if np.count_nonzero(members) < 2 or problem.points.shape[1] == 0:
        return None
    points = problem.points - weights @ problem.points / weights.sum()
    axes = np.linalg.svd(points[members] * np.sqrt(weights[members])[:, None], full_matrices=False)[2]
    along = points @ axes[0]
    # Members at the same point differ by rounding.
    levels, at = np.unique(along[members].round(9), return_inverse=True)
    if levels.size < 2:
        return None
    mass, moment = (np.bincount(at, weights=w) for w in (weights[members], weights[members] * along[members]))
    left, left_moment = np.cumsum(mass)[:-1], np.cumsum(moment)[:-1]
    between = left_moment**2 / left + (moment.sum() - left_moment) ** 2 / (mass.sum() - left)
    best = int(np.argmax(between))
    return np.asarray(along > 0.5 * (levels[best] + levels[best + 1]))
