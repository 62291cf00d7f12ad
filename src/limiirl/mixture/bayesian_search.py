"""The search for the best variational posterior: sweeps and moves in turn, and what the numbers of intents are worth.

Every step is written down. What the search finds depends on its start and on nothing random.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from limiirl.mixture.bayesian_bound import Problem, State
from limiirl.mixture.bayesian_moves import improved, merge, split

Float = NDArray[np.float64]
# Sweeps before the first move and after each: moves need no settled posterior, which takes many.
_BETWEEN = 2
# Sweeps that settle a number of intents beside the best.
_BESIDE = 10
_HALF = 0.5
# Moves that never end would be a fault; there are at most about two for each intent to begin with.
_MOST_MOVES = 200


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


def search(problem: Problem, U: Float, max_intents: int, max_iter: int, tol: float) -> Found:
    """Return the best posterior that sweeps and moves reach from responsibilities (G, K).

    Parameters
    ----------
    max_iter : int
        Most sweeps after the last move.
    tol : float
        Nats by which the bound must rise in a sweep to go on.

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
    state = problem.start(U)
    history, evidence = [Step(state.bound, state.n_intents, "start")], dict[int, float]()

    def told(swept: State) -> None:
        history.append(Step(swept.bound, swept.n_intents, "sweep"))

    for _ in range(_MOST_MOVES):
        _note(evidence, state)
        moved = improved(problem, state, max_intents)
        if moved is None:
            break
        name, state = moved
        history.append(Step(state.bound, state.n_intents, name))
        if name != "prune":
            state, _ = problem.run(state, _BETWEEN, tol, told)
    state, converged = problem.run(state, max_iter, tol, told)
    _note(evidence, state)
    _look_around(problem, state, max_intents, evidence)
    return Found(state, converged, history, evidence)


def _note(evidence: dict[int, float], state: State) -> None:
    """Keep the best of each number of intents; with less than half a member, an intent is none to be counted."""
    if state.sizes.min() < _HALF:
        return
    value = state.bound + state.sticks.log_labellings
    evidence[state.n_intents] = max(value, evidence.get(state.n_intents, -np.inf))


def _look_around(problem: Problem, state: State, max_intents: int, evidence: dict[int, float]) -> None:
    """Note what one intent more is worth, and each number below."""
    if state.n_intents < max_intents:
        for proposal in split(problem, state):
            _note(evidence, proposal)
    while state.n_intents > 1:
        joined = next(merge(problem, state))
        _note(evidence, joined)
        state, _ = problem.run(joined, _BESIDE, 0.0)
        _note(evidence, state)
