"""Directions in reward space that change no policy of a causal model, from the MDP alone.

A direction changes none if c(s) = r(s, a) + gamma sum_s' P(s' | s, a) (r(s') + c(s')) for every action a of a state.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from scipy import sparse

from limiirl._typing import BoolArray, FloatArray
from limiirl.errors import NumericalError
from limiirl.irl.causal import stationary
from limiirl.irl.causal.finite_horizon import FiniteHorizonSolver
from limiirl.irl.causal.state_actions import StateActions
from limiirl.irl.causal.stationary import PolicySolver
from limiirl.irl.identifiability import null_directions

_LOG = logging.getLogger(__name__)

LARGEST = 2**23
"""Choices times features beyond which null directions are not looked for. With a feature for each state, memory grows
by the square of the states, and time by the cube; with four actions this is about 1,450 states."""


def causal_null_directions(solver: PolicySolver) -> FloatArray:
    """Return an orthonormal basis (m, d) of the directions in which no policy changes, whatever theta is.

    States that no start leads to, by the step in question, do not count. For the softmax average it is meant of sweeps
    that have settled.

    Where choices times features are more than `LARGEST`, none is looked for: the log says so, and there are none.
    """
    choices = solver.choices
    mdp, d = choices.mdp, choices.mdp.n_features
    if mdp.n_pairs * d > LARGEST:
        _LOG.warning(
            "Null directions are not looked for: %d choices times %d features are more than %d. Check yourself whether "
            "features add up to a constant.",
            mdp.n_pairs,
            d,
            LARGEST,
        )
        return np.empty((0, d))
    states, pairs = choices.feature_rows()
    own = pairs + mdp.gamma * np.asarray(choices.moves @ states)
    uniform = 1.0 / np.diff(choices.graph.pair_ptr)[mdp.pair_state]
    tally = _GramAccumulator(d)
    if not isinstance(solver, FiniteHorizonSolver):
        try:
            mean = _mean(choices, uniform, own)
            one = stationary.LUFactors(np.zeros(d, dtype=np.intp))  # all columns are of one system, and share its LU
            later = stationary.solve(choices, np.tile(uniform[:, None], (1, d)), mean, factors=one)
        except NumericalError:  # at discount 1 and by chance one never ends: no direction is known to be without effect
            return np.empty((0, d))
        rows = own + mdp.gamma * np.asarray(choices.moves @ later)
        tally.add(rows, rows - later[mdp.pair_state], _reached(choices, mdp.n_states)[-1][mdp.pair_state])
        return tally.null()
    last = solver.max_length - 2  # the last step at which there is a choice
    if solver.stop and last >= 0:  # to stop adds nothing, and so must going on; then nothing is added later either
        tally.add(own, own, _reached(choices, last)[-1][mdp.pair_state])
        return tally.null()
    reached, later = _reached(choices, last, every=True), np.zeros(states.shape)
    for t in range(last, -1, -1):
        rows = own + mdp.gamma * np.asarray(choices.moves @ later)
        later = _mean(choices, uniform, rows)
        tally.add(rows, rows - later[mdp.pair_state], reached[t][mdp.pair_state])
    return tally.null()


class _GramAccumulator:
    """The Gram matrix (d, d) of what directions add differently to choices, and the size of what they add at all."""

    def __init__(self, d: int) -> None:
        self.gram, self.squares = np.zeros((d, d)), np.zeros(d)

    def add(self, rows: FloatArray, differences: FloatArray, counted: BoolArray) -> None:
        self.gram += differences[counted].T @ differences[counted]
        self.squares += np.sum(rows[counted] ** 2, axis=0)

    def null(self) -> FloatArray:
        return null_directions(self.gram, np.sqrt(self.squares))


def _mean(choices: StateActions, uniform: FloatArray, rows: FloatArray) -> FloatArray:
    """Return (S, d): rows (P, d) averaged over the pairs of each state, 0 where there is none."""
    n = choices.mdp.n_states
    average: Any = sparse.csr_array((uniform, np.arange(uniform.size), choices.graph.pair_ptr), shape=(n, uniform.size))
    return np.asarray(average @ rows)


def _reached(choices: StateActions, most: int, *, every: bool = False) -> list[BoolArray]:
    """Return which states (S,) can be reached: in at most `most` moves, or with `every` in just 0, 1, 2, ... moves."""
    mdp = choices.mdp
    found = [mdp.p0 > 0.0]
    for _ in range(most):
        now = np.zeros(mdp.n_states, dtype=bool) if every else found[-1].copy()
        now[mdp.dst[found[-1][mdp.src]]] = True
        if not every and np.array_equal(now, found[-1]):
            break
        found.append(now)
    return found
