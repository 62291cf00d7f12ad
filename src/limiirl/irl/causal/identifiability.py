"""Directions in reward space that leave the policies of a causal model unchanged.

A reward r is such a direction if there is a function c of states with c(s) = r(s, a) + gamma sum_s' P(s' | s, a) (r(s')
+ c(s')) for every action a of each state s.
"""

from __future__ import annotations

import logging

import numpy as np

from limiirl._typing import BoolArray, FloatArray
from limiirl.errors import NumericalError
from limiirl.irl.causal import stationary
from limiirl.irl.causal.finite_horizon import FiniteHorizonSolver
from limiirl.irl.causal.state_actions import StateActions
from limiirl.irl.causal.stationary import PolicySolver
from limiirl.irl.identifiability import null_directions

_LOG = logging.getLogger(__name__)

LARGEST = 2**23
"""Maximum number of state-action pairs times features for which null directions are computed.

It is reached by about 1,450 states with four actions and one feature each."""


def causal_null_directions(solver: PolicySolver) -> FloatArray:
    """Return an orthonormal basis (m, d) of the directions that leave policies unchanged, for every theta.

    Unreachable states are ignored. The backups of the softmax average are assumed to have converged. The result is
    empty if the problem exceeds `LARGEST`, in which case a warning is logged, or if, at discount 1, the uniform policy
    may never reach a terminal state.
    """
    pairs = solver.pairs
    mdp, d = pairs.mdp, pairs.mdp.n_features
    if mdp.n_pairs * d > LARGEST:
        _LOG.warning(
            "Null directions are not computed: %d state-action pairs times %d features exceed %d. Check that no "
            "combination of features is constant.",
            mdp.n_pairs,
            d,
            LARGEST,
        )
        return np.empty((0, d))
    state_rows, pair_rows = pairs.feature_rows()
    own = pair_rows + mdp.gamma * np.asarray(pairs.transitions @ state_rows)
    uniform = 1.0 / np.diff(pairs.graph.pair_ptr)[mdp.pair_state]
    gram = _GramAccumulator(d)
    if not isinstance(solver, FiniteHorizonSolver):
        try:
            mean = pairs.average(uniform, own)
            shared = stationary.LUFactors(np.zeros(d, dtype=np.intp))  # all columns have the same matrix
            later = stationary.solve(pairs, np.tile(uniform[:, None], (1, d)), mean, factors=shared)
        except NumericalError:  # the uniform policy may never reach a terminal state
            return np.empty((0, d))
        rows = own + mdp.gamma * np.asarray(pairs.transitions @ later)
        gram.add(rows, rows - later[mdp.pair_state], _reachable(pairs, mdp.n_states)[-1][mdp.pair_state])
        return gram.null()
    last = solver.max_length - 2  # the last step with a decision
    if solver.stop and last >= 0:  # the value of stopping is 0, so the value of continuing must be 0 too
        gram.add(own, own, _reachable(pairs, last)[-1][mdp.pair_state])
        return gram.null()
    reached, later = _reachable(pairs, last, every=True), np.zeros(state_rows.shape)
    for t in range(last, -1, -1):
        rows = own + mdp.gamma * np.asarray(pairs.transitions @ later)
        later = pairs.average(uniform, rows)
        gram.add(rows, rows - later[mdp.pair_state], reached[t][mdp.pair_state])
    return gram.null()


class _GramAccumulator:
    """Gram matrix (d, d) of feature differences between actions, and the sum of squares (d,) of the features."""

    def __init__(self, d: int) -> None:
        self.gram, self.squares = np.zeros((d, d)), np.zeros(d)

    def add(self, rows: FloatArray, differences: FloatArray, counted: BoolArray) -> None:
        self.gram += differences[counted].T @ differences[counted]
        self.squares += np.sum(rows[counted] ** 2, axis=0)

    def null(self) -> FloatArray:
        return null_directions(self.gram, np.sqrt(self.squares))


def _reachable(pairs: StateActions, most: int, *, every: bool = False) -> list[BoolArray]:
    """Return masks (S,) of states reachable in at most (`every`: exactly) 0, 1, ..., `most` transitions."""
    mdp = pairs.mdp
    reached = [mdp.p0 > 0.0]
    for _ in range(most):
        now = np.zeros(mdp.n_states, dtype=bool) if every else reached[-1].copy()
        now[mdp.dst[reached[-1][mdp.src]]] = True
        if not every and np.array_equal(now, reached[-1]):
            break
        reached.append(now)
    return reached
