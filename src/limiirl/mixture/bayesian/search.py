"""Deterministic search for the best variational posterior: coordinate ascent with merge, delete and split moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations, islice

import numpy as np
from numpy.typing import NDArray

from limiirl._progress import Progress
from limiirl._typing import FloatArray
from limiirl.mixture.bayesian.reward_posterior import RewardPosterior, node_weights
from limiirl.mixture.bayesian.variational import VariationalPosterior, VariationalProblem
from limiirl.mixture.em import nearly_empty

Proposals = Callable[[VariationalProblem, VariationalPosterior], Iterator[VariationalPosterior]]
# Maximum number of proposals per type of move, of proposals that are improved by sweeps, and of sweeps per proposal.
_PROPOSALS, _IMPROVED, _SWEEPS = 10, 2, 4
# Maximum number of cubature nodes of the mergers that are computed at once, if there are several.
_NODES = 600
# Number of trials towards the posteriors of merged and of split intents.
_TRIALS = 6
# Sweeps of a proposal end when the gain is below this many nats.
_LITTLE = 1e-2
# Bounds within this many nats count as tied; the posterior with fewer intents is then preferred.
_TIE = 1e-3
# Responsibility above which a unit is a member of the intent to split.
_MEMBER = 0.5


def merge(problem: VariationalProblem, state: VariationalPosterior) -> Iterator[VariationalPosterior]:
    """Yield posteriors with two intents merged, in descending order of the bound.

    Candidates are the pairs of intents with the lowest `_regret`. With many rewards, they are computed and ordered a
    few at a time, because usually one of the first raises the bound.
    """
    pairs = sorted(combinations(range(state.n_intents), 2), key=lambda pair: _regret(state, *pair))[:_PROPOSALS]
    at_once = max(1, _NODES // len(node_weights(state.rewards.mean.shape[1])))
    for i in range(0, len(pairs), at_once):
        yield from _rank(_merge_each(problem, state, pairs[i : i + at_once]))


def _merge_each(
    problem: VariationalProblem, state: VariationalPosterior, pairs: list[tuple[int, int]]
) -> Iterator[VariationalPosterior]:
    """Yield the posterior with each pair of intents merged."""
    k, other = np.array(pairs).T
    U = state.U[:, k] + state.U[:, other]
    rewards, log_p = problem.improve_rewards(U, state.rewards[k].combine(state.rewards[other]), _TRIALS)
    for j, pair in enumerate(pairs):
        yield _replace_intents(problem, state, pair, U[:, [j]], rewards[np.array([j])], log_p[:, [j]])


def prune(problem: VariationalProblem, state: VariationalPosterior) -> Iterator[VariationalPosterior]:
    """Yield candidate posteriors, each with one nearly empty intent removed."""
    for k in np.flatnonzero(nearly_empty(state.sizes, len(state.U)))[::-1]:
        if state.n_intents > 1 and (rest := _without(problem, state, k)) is not None:
            yield rest


def delete(problem: VariationalProblem, state: VariationalPosterior) -> Iterator[VariationalPosterior]:
    """Yield posteriors with one intent removed and its members reassigned, in descending order of the bound."""
    if state.n_intents > 1:
        smallest = range(state.n_intents - 1, max(-1, state.n_intents - 1 - _PROPOSALS), -1)
        yield from _rank(rest for k in smallest if (rest := _without(problem, state, k)) is not None)


def split(problem: VariationalProblem, state: VariationalPosterior) -> Iterator[VariationalPosterior]:
    """Yield posteriors with one intent split in two, in descending order of the bound."""
    cuts = [(k, side) for k in range(min(_PROPOSALS, state.n_intents)) if (side := _cut(problem, state, k)) is not None]
    if not cuts:
        return
    halves = [np.column_stack([state.U[:, k] * side, state.U[:, k] * ~side]) for k, side in cuts]
    parents = state.rewards[np.repeat([k for k, _ in cuts], 2)]
    rewards, log_p = problem.improve_rewards(np.hstack(halves), parents, _TRIALS)
    yield from _rank(
        _replace_intents(
            problem, state, (k,), halves[j], rewards[np.arange(2 * j, 2 * j + 2)], log_p[:, 2 * j : 2 * j + 2]
        )
        for j, (k, _) in enumerate(cuts)
    )


MOVES: dict[str, Proposals] = {"prune": prune, "merge": merge, "delete": delete, "split": split}


def improve_by_move(
    problem: VariationalProblem, state: VariationalPosterior, max_intents: int
) -> tuple[str, VariationalPosterior] | None:
    """Return the name and the result of the first move that raises the bound, or None."""
    for name, move in MOVES.items():
        if name == "split" and state.n_intents >= max_intents:
            continue
        enough = state.bound + (_TIE if name == "split" else -_TIE)
        for i, proposal in enumerate(move(problem, state)):
            trial = proposal
            if trial.bound <= enough and name != "prune" and i < _IMPROVED:
                trial, _ = problem.run(proposal, _SWEEPS, _LITTLE, goal=enough)
            if trial.bound > enough:
                return name, trial
    return None


def _rank(proposals: Iterator[VariationalPosterior]) -> list[VariationalPosterior]:
    return sorted((state for state in proposals if np.isfinite(state.bound)), key=lambda state: -state.bound)


def _regret(state: VariationalPosterior, k: int, other: int) -> float:
    """Return the decrease in log-likelihood in nats if the members of two intents are exchanged."""
    with np.errstate(invalid="ignore"):  # by convention 0 * inf = 0
        log_ratio = state.log_p[:, k] - state.log_p[:, other]
        shift = state.U[:, k] - state.U[:, other]
        total = float(np.sum(np.where(shift != 0.0, shift * log_ratio, 0.0)))
    return total if np.isfinite(total) else np.inf


def _replace_intents(
    problem: VariationalProblem,
    state: VariationalPosterior,
    replaced: tuple[int, ...],
    U: FloatArray,
    rewards: RewardPosterior,
    log_p: FloatArray,
) -> VariationalPosterior:
    rest = np.setdiff1d(np.arange(state.n_intents), replaced)
    return problem.state(
        np.hstack([state.U[:, rest], U]),
        RewardPosterior.concatenate([state.rewards[rest], rewards]),
        np.hstack([state.log_p[:, rest], log_p]),
    )


def _without(problem: VariationalProblem, state: VariationalPosterior, k: int | np.intp) -> VariationalPosterior | None:
    """Return the posterior without intent k, or None if a unit has zero likelihood under all others."""
    rest = np.setdiff1d(np.arange(state.n_intents), [k])
    log_p = state.log_p[:, rest]
    if np.any(np.all(np.isneginf(log_p), axis=1)):
        return None
    scores = log_p + state.stick_posterior.log_weights[rest]
    U = np.exp(scores - scores.max(axis=1, keepdims=True))
    return problem.state(U / U.sum(axis=1, keepdims=True), state.rewards[rest], log_p)


def _cut(problem: VariationalProblem, state: VariationalPosterior, k: int) -> NDArray[np.bool_] | None:
    """Return the side (G,) of each unit if intent k is split along the first principal axis of its members.

    The cut minimises the variance within sides. Returns None if all members coincide.
    """
    weights = state.U[:, k]
    members = weights > _MEMBER
    if np.count_nonzero(members) < 2 or problem.points.shape[1] == 0:
        return None
    points = problem.points - weights @ problem.points / weights.sum()
    axes = np.linalg.svd(points[members] * np.sqrt(weights[members])[:, None], full_matrices=False)[2]
    along = points @ axes[0]
    # Rounded, because the projections of equal points may differ in the last bits.
    levels, at = np.unique(along[members].round(9), return_inverse=True)
    if levels.size < 2:
        return None
    mass, moment = (np.bincount(at, weights=w) for w in (weights[members], weights[members] * along[members]))
    left, left_moment = np.cumsum(mass)[:-1], np.cumsum(moment)[:-1]
    between = left_moment**2 / left + (moment.sum() - left_moment) ** 2 / (mass.sum() - left)
    best = int(np.argmax(between))
    return np.asarray(along > 0.5 * (levels[best] + levels[best + 1]))


# Number of sweeps after each move. The next move does not require a converged posterior.
_BETWEEN = 1
# Maximum number of sweeps for numbers of intents other than the best, and the gain in nats below which they end.
_OTHER_SWEEPS, _OTHER_GAIN = 10, 1e-2
# Their sweeps also end if their bounds remain this many nats below the best, so that their probability is negligible.
_IMPROBABLE = 50.0
# Safety limits: in practice, there are about two moves per initial intent, and rarely one after convergence.
_MOST_MOVES, _MOST_ROUNDS = 200, 20
# Sweeps that gain fewer nats do not change which moves are accepted.
_SAME = 1e-2


@dataclass(frozen=True)
class SearchStep:
    """One entry of a search's history: "start", "sweep", or a move ("prune", "merge", "delete", "split").

    The bound (in nats) is nondecreasing, except that fewer intents are preferred in a tie.
    """

    bound: float
    n_intents: int
    event: str


@dataclass(frozen=True, eq=False)
class SearchResult:
    """The best posterior, whether its sweeps converged, the history, and the evidence by number of intents.

    `evidence` is the best bound of each visited number of intents plus `StickWeights.log_labellings`.
    """

    state: VariationalPosterior
    converged: bool
    history: list[SearchStep]
    evidence: dict[int, float]


def search(
    problem: VariationalProblem,
    U: FloatArray,
    max_intents: int,
    max_iter: int,
    tol: float,
    progress: Progress | None = None,
) -> SearchResult:
    """Return the best posterior reached by sweeps and moves from responsibilities (G, K).

    Moves are applied until none raises the bound, then sweeps until convergence; both are repeated. Sweeps end after
    `max_iter` or when the gain is below `tol` nats. `progress(done, None, message)` is called after each step.
    """
    history, evidence = list[SearchStep](), dict[int, float]()

    def record(state: VariationalPosterior, event: str = "sweep") -> None:
        history.append(SearchStep(state.bound, state.n_intents, event))
        if progress is not None:
            progress(len(history), None, f"{event}: {state.n_intents} intents, bound {state.bound:.3f}")

    state = best = problem.start(U)
    record(state, "start")
    converged = False
    for round_ in range(_MOST_ROUNDS):
        state = _apply_moves(problem, best, max_intents, tol, evidence, record)
        if round_ and state is best:
            break
        best, converged = problem.run(state, max_iter, tol, record)
        if best.bound - state.bound < _SAME:
            break
    _update_evidence(evidence, best, last=True)
    _visit_neighbours(problem, best, max_intents, evidence)
    return SearchResult(best, converged, history, evidence)


def _apply_moves(
    problem: VariationalProblem,
    state: VariationalPosterior,
    max_intents: int,
    tol: float,
    evidence: dict[int, float],
    record: Callable[[VariationalPosterior, str], None],
) -> VariationalPosterior:
    """Return the posterior after all moves that raise the bound, each followed by a few sweeps."""
    for _ in range(_MOST_MOVES):
        _update_evidence(evidence, state)
        move = improve_by_move(problem, state, max_intents)
        if move is None:
            break
        name, state = move
        record(state, name)
        if name != "prune":
            state, _ = problem.run(state, _BETWEEN, tol, lambda swept: record(swept, "sweep"))
    return state


def _update_evidence(evidence: dict[int, float], state: VariationalPosterior, *, last: bool = False) -> None:
    """Update the best evidence for a number of intents; posteriors with nearly empty intents count only if `last`."""
    if np.any(nearly_empty(state.sizes, len(state.U))) and not last:
        return
    value = state.bound + state.stick_posterior.log_labellings
    evidence[state.n_intents] = max(value, evidence.get(state.n_intents, -np.inf))


def _visit_neighbours(
    problem: VariationalProblem, state: VariationalPosterior, max_intents: int, evidence: dict[int, float]
) -> None:
    """Update the evidence for K + 1 intents with the best split, and for fewer than K with successive mergers."""
    best = state.bound
    if state.n_intents < max_intents:
        for proposal in islice(split(problem, state), 1):
            _update_evidence(evidence, proposal)
            trial, _ = problem.run(proposal, _OTHER_SWEEPS, _OTHER_GAIN, goal=best - _IMPROBABLE)
            _update_evidence(evidence, trial)
    while state.n_intents > 1:
        merger = next(merge(problem, state), None)
        if merger is None:
            return
        _update_evidence(evidence, merger)
        state, _ = problem.run(merger, _OTHER_SWEEPS, _OTHER_GAIN, goal=best - _IMPROBABLE)
        _update_evidence(evidence, state)
