"""Deterministic search for the best variational posterior: sweeps in turn with merge, delete and split moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations, islice

import numpy as np
from numpy.typing import NDArray

from limiirl._typing import FloatArray
from limiirl.mixture.bayesian.reward_posterior import RewardPosterior, expected_log_prob, improve, loss
from limiirl.mixture.bayesian.variational import VariationalPosterior, VariationalProblem
from limiirl.mixture.em import nearly_empty

Proposals = Callable[[VariationalProblem, VariationalPosterior], Iterator[VariationalPosterior]]
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


def merge(problem: VariationalProblem, state: VariationalPosterior) -> Iterator[VariationalPosterior]:
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
    start = RewardPosterior(between, state.rewards.root[k])
    joined = improve(loss(problem.prepared, U, problem.prior.scale), problem.prior, start, _STEPS)
    log_p = expected_log_prob(problem.prepared, problem.prior, joined)
    yield from _best(
        _replace_intents(problem, state, pair, U[:, [j]], joined[np.array([j])], log_p[:, [j]])
        for j, pair in enumerate(pairs)
    )


def prune(problem: VariationalProblem, state: VariationalPosterior) -> Iterator[VariationalPosterior]:
    """Yield the posteriors without one of the intents that hardly anybody follows, as they are."""
    for k in np.flatnonzero(nearly_empty(state.sizes, len(state.U)))[::-1]:
        if state.n_intents > 1 and (found := _without(problem, state, k)) is not None:
            yield found


def delete(problem: VariationalProblem, state: VariationalPosterior) -> Iterator[VariationalPosterior]:
    """Yield the posteriors without one intent, whose members choose among the others, the most promising first."""
    if state.n_intents > 1:
        smallest = range(state.n_intents - 1, max(-1, state.n_intents - 1 - _LOOKED_AT), -1)
        yield from _best(found for k in smallest if (found := _without(problem, state, k)) is not None)


def split(problem: VariationalProblem, state: VariationalPosterior) -> Iterator[VariationalPosterior]:
    """Yield the posteriors in which one intent is two, the most promising first."""
    cuts = [(k, side) for k in range(min(_LOOKED_AT, state.n_intents)) if (side := _cut(problem, state, k)) is not None]
    if not cuts:
        return
    halves = [np.column_stack([state.U[:, k] * side, state.U[:, k] * ~side]) for k, side in cuts]
    rewards, log_p = problem.fresh(np.hstack(halves))
    yield from _best(
        _replace_intents(
            problem, state, (k,), halves[j], rewards[np.arange(2 * j, 2 * j + 2)], log_p[:, 2 * j : 2 * j + 2]
        )
        for j, (k, _) in enumerate(cuts)
    )


MOVES: dict[str, Proposals] = {"prune": prune, "merge": merge, "delete": delete, "split": split}


def improve_by_move(
    problem: VariationalProblem, state: VariationalPosterior, max_intents: int
) -> tuple[str, VariationalPosterior] | None:
    """Return the first move that raises the bound, by name, with where it leads; None if there is none."""
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


def _best(proposals: Iterator[VariationalPosterior]) -> list[VariationalPosterior]:
    """Return proposals in falling order of their bounds, without those that explain somebody by no means."""
    return sorted((state for state in proposals if np.isfinite(state.bound)), key=lambda state: -state.bound)


def _regret(state: VariationalPosterior, k: int, other: int) -> float:
    """Return the nats that the members of two intents lose where each is explained by the other."""
    with np.errstate(invalid="ignore"):  # 0 times inf: nobody is lost
        gap = state.log_p[:, k] - state.log_p[:, other]
        shift = state.U[:, k] - state.U[:, other]
        total = float(np.sum(np.where(shift != 0.0, shift * gap, 0.0)))
    return total if np.isfinite(total) else np.inf


def _replace_intents(
    problem: VariationalProblem,
    state: VariationalPosterior,
    gone: tuple[int, ...],
    U: FloatArray,
    rewards: RewardPosterior,
    log_p: FloatArray,
) -> VariationalPosterior:
    """Return the posterior with other intents in place of some."""
    rest = np.setdiff1d(np.arange(state.n_intents), gone)
    return problem.state(
        np.hstack([state.U[:, rest], U]),
        RewardPosterior.join([state.rewards[rest], rewards]),
        np.hstack([state.log_p[:, rest], log_p]),
    )


def _without(problem: VariationalProblem, state: VariationalPosterior, k: int | np.intp) -> VariationalPosterior | None:
    """Return the posterior without intent k; None where somebody could follow no other."""
    rest = np.setdiff1d(np.arange(state.n_intents), [k])
    log_p = state.log_p[:, rest]
    if np.any(np.all(np.isneginf(log_p), axis=1)):
        return None
    scores = log_p + state.stick_posterior.log_weights[rest]
    U = np.exp(scores - scores.max(axis=1, keepdims=True))
    return problem.state(U / U.sum(axis=1, keepdims=True), state.rewards[rest], log_p)


def _cut(problem: VariationalProblem, state: VariationalPosterior, k: int) -> NDArray[np.bool_] | None:
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


# Sweeps after each move: the next needs no settled posterior, which takes many.
_BETWEEN = 2
# Sweeps that settle a number of intents beside the best, and the nats below which they end.
_BESIDE, _LITTLE_GAIN = 10, 1e-2
# Moves that never end would be a fault; there are at most about two for each intent to begin with, and after sweeps
# have settled there is hardly ever one.
_MOST_MOVES, _MOST_ROUNDS = 200, 20
# Sweeps that gain fewer nats change no move's worth: those that were just refused would be again.
_SAME = 1e-2


@dataclass(frozen=True)
class SearchStep:
    """One line of a search's history.

    Attributes
    ----------
    bound : float
        The bound on the log evidence, in nats; it never falls, but for ties that fewer intents win.
    n_intents : int
    event : str
        "start", "sweep", or the move: "prune", "merge", "delete", "split".
    """

    bound: float
    n_intents: int
    event: str


@dataclass(frozen=True, eq=False)
class SearchResult:
    """Where a search ended: the posterior, whether sweeps had settled, the way there, the bounds by number of intents.

    Attributes
    ----------
    evidence : dict of int to float
        For each number of intents that was met, the best bound plus `StickWeights.log_labellings`.
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
    told: Callable[[SearchStep], None] | None = None,
) -> SearchResult:
    """Return the best posterior that sweeps and moves reach from responsibilities (G, K).

    Moves are tried until none raises the bound; then sweeps settle it, and moves are tried again.

    Parameters
    ----------
    max_iter : int
        Most sweeps after the last move.
    tol : float
        Nats by which the bound must rise in a sweep to go on.
    told : callable, optional
        Called with each `SearchStep`.

    Examples
    --------
    >>> from limiirl import MDP, Demonstrations, MaxEnt
    >>> from limiirl.irl.problem import make_problem
    >>> from limiirl.mixture.bayesian.reward_posterior import RewardPrior
    >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0], [1], [-1]])
    >>> ready = make_problem(MaxEnt(2, bounds=None), mdp, Demonstrations.from_lists([[0, 1]] * 6))
    >>> problem = VariationalProblem(ready, RewardPrior(ready.box(1), 3.0), 1.0, ready.features())
    >>> [step.event for step in search(problem, np.eye(2)[[0, 0, 0, 0, 1, 1]], 2, 50, 1e-3).history]
    ['start', 'merge', 'sweep', 'sweep']
    """
    history, evidence = list[SearchStep](), dict[int, float]()

    def tell(state: VariationalPosterior, event: str = "sweep") -> None:
        history.append(SearchStep(state.bound, state.n_intents, event))
        if told is not None:
            told(history[-1])

    state = settled = problem.start(U)
    tell(state, "start")
    converged = False
    for round_ in range(_MOST_ROUNDS):
        state = _apply_moves(problem, settled, max_intents, tol, evidence, tell)
        if round_ and state is settled:
            break
        settled, converged = problem.run(state, max_iter, tol, tell)
        if settled.bound - state.bound < _SAME:
            break
    _note(evidence, settled, last=True)
    _look_around(problem, settled, max_intents, evidence)
    return SearchResult(settled, converged, history, evidence)


def _apply_moves(
    problem: VariationalProblem,
    state: VariationalPosterior,
    max_intents: int,
    tol: float,
    evidence: dict[int, float],
    tell: Callable[[VariationalPosterior, str], None],
) -> VariationalPosterior:
    """Return where moves lead, with a few sweeps after each; the same posterior if none is taken."""
    for _ in range(_MOST_MOVES):
        _note(evidence, state)
        moved = improve_by_move(problem, state, max_intents)
        if moved is None:
            break
        name, state = moved
        tell(state, name)
        if name != "prune":
            state, _ = problem.run(state, _BETWEEN, tol, lambda swept: tell(swept, "sweep"))
    return state


def _note(evidence: dict[int, float], state: VariationalPosterior, *, last: bool = False) -> None:
    """Keep the best of each number of intents.

    An intent that hardly anybody follows is none to be counted, unless it stands in the posterior that is returned.
    """
    if np.any(nearly_empty(state.sizes, len(state.U))) and not last:
        return
    value = state.bound + state.stick_posterior.log_labellings
    evidence[state.n_intents] = max(value, evidence.get(state.n_intents, -np.inf))


def _look_around(
    problem: VariationalProblem, state: VariationalPosterior, max_intents: int, evidence: dict[int, float]
) -> None:
    """Note what one intent more is worth, and each number below, settled alike."""
    if state.n_intents < max_intents:
        for proposal in islice(split(problem, state), 1):
            _note(evidence, proposal)
            _note(evidence, problem.run(proposal, _BESIDE, _LITTLE_GAIN)[0])
    while state.n_intents > 1:
        joined = next(merge(problem, state), None)
        if joined is None:
            return
        _note(evidence, joined)
        state, _ = problem.run(joined, _BESIDE, _LITTLE_GAIN)
        _note(evidence, state)
