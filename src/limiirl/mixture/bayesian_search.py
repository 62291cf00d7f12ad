"""The search for the best variational posterior: sweeps and moves in turn, and what the numbers of intents are worth.

Every step is written down. What the search finds depends on its start and on nothing random.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from limiirl.mixture.bayesian_bound import Problem, State
from limiirl.mixture.bayesian_moves import improved, merge, split
from limiirl.mixture.em import few

Float = NDArray[np.float64]
# Sweeps after each move: the next needs no settled posterior, which takes many.
_BETWEEN = 2
# Sweeps that settle a number of intents beside the best, and the nats below which they end.
_BESIDE, _LITTLE = 10, 1e-2
# Moves that never end would be a fault; there are at most about two for each intent to begin with, and after sweeps
# have settled there is hardly ever one.
_MOST_MOVES, _MOST_ROUNDS = 200, 20
# Sweeps that gain fewer nats change no move's worth: those that were just refused would be again.
_SAME = 1e-2


@dataclass(frozen=True)
class Step:
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
class Found:
    """Where a search ended: the posterior, whether sweeps had settled, the way there, the bounds by number of intents.

    Attributes
    ----------
    evidence : dict of int to float
        For each number of intents that was met, the best bound plus `Sticks.log_labellings`.
    """

    state: State
    converged: bool
    history: list[Step]
    evidence: dict[int, float]


def search(
    problem: Problem, U: Float, max_intents: int, max_iter: int, tol: float, told: Callable[[Step], None] | None = None
) -> Found:
    """Return the best posterior that sweeps and moves reach from responsibilities (G, K).

    Moves are tried until none raises the bound; then sweeps settle it, and moves are tried again.

    Parameters
    ----------
    max_iter : int
        Most sweeps after the last move.
    tol : float
        Nats by which the bound must rise in a sweep to go on.
    told : callable, optional
        Called with each `Step`.

    Examples
    --------
    >>> from limiirl import MDP, Demonstrations, MaxEnt
    >>> from limiirl.irl.prepared import prepare
    >>> from limiirl.mixture.bayesian_prior import Prior
    >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0], [1], [-1]])
    >>> ready = prepare(MaxEnt(2, bounds=None), mdp, Demonstrations.from_lists([[0, 1]] * 6))
    >>> problem = Problem(ready, Prior(ready.box(1), 3.0), 1.0, ready.features())
    >>> [step.event for step in search(problem, np.eye(2)[[0, 0, 0, 0, 1, 1]], 2, 50, 1e-3).history]
    ['start', 'merge', 'sweep', 'sweep']
    """
    history, evidence = list[Step](), dict[int, float]()

    def tell(state: State, event: str = "sweep") -> None:
        history.append(Step(state.bound, state.n_intents, event))
        if told is not None:
            told(history[-1])

    state = settled = problem.start(U)
    tell(state, "start")
    converged = False
    for round_ in range(_MOST_ROUNDS):
        state = _moved(problem, settled, max_intents, tol, evidence, tell)
        if round_ and state is settled:
            break
        settled, converged = problem.run(state, max_iter, tol, tell)
        if settled.bound - state.bound < _SAME:
            break
    _note(evidence, settled, last=True)
    _look_around(problem, settled, max_intents, evidence)
    return Found(settled, converged, history, evidence)


def _moved(
    problem: Problem,
    state: State,
    max_intents: int,
    tol: float,
    evidence: dict[int, float],
    tell: Callable[[State, str], None],
) -> State:
    """Return where moves lead, with a few sweeps after each; the same posterior if none is taken."""
    for _ in range(_MOST_MOVES):
        _note(evidence, state)
        moved = improved(problem, state, max_intents)
        if moved is None:
            break
        name, state = moved
        tell(state, name)
        if name != "prune":
            state, _ = problem.run(state, _BETWEEN, tol, lambda swept: tell(swept, "sweep"))
    return state


def _note(evidence: dict[int, float], state: State, *, last: bool = False) -> None:
    """Keep the best of each number of intents.

    An intent that hardly anybody follows is none to be counted, unless it stands in the posterior that is returned.
    """
    if np.any(few(state.sizes, len(state.U))) and not last:
        return
    value = state.bound + state.sticks.log_labellings
    evidence[state.n_intents] = max(value, evidence.get(state.n_intents, -np.inf))


def _look_around(problem: Problem, state: State, max_intents: int, evidence: dict[int, float]) -> None:
    """Note what one intent more is worth, and each number below, settled alike."""
    if state.n_intents < max_intents:
        for proposal in islice(split(problem, state), 1):
            _note(evidence, proposal)
            _note(evidence, problem.run(proposal, _BESIDE, _LITTLE)[0])
    while state.n_intents > 1:
        joined = next(merge(problem, state), None)
        if joined is None:
            return
        _note(evidence, joined)
        state, _ = problem.run(joined, _BESIDE, _LITTLE)
        _note(evidence, state)
