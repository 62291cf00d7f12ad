"""The variational bound of the Bayesian mixture, and the sweeps that raise it.

With q(z) = U, Beta sticks q(v) and Gaussian rewards q(theta_k), the log evidence is at least

    sum_ik u_ik E[log p(i | theta_k)] + entropy(U) + sticks(U) - sum_k KL(q(theta_k) | prior)

The last term is what each intent costs: without it a Dirichlet process splits clusters as long as they differ at all.
A sweep updates U, the sticks, then the rewards; none of the three lowers the bound. Expectations over rewards are
those of `bayesian_rewards`: the bound is one where they are exact, and their error away from it elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

from limiirl.errors import InvalidDemos
from limiirl.irl.prepared import Prepared
from limiirl.mixture.bayesian_prior import Prior
from limiirl.mixture.bayesian_rewards import Rewards, expected_log_prob, fresh, improve
from limiirl.mixture.bayesian_slopes import finite_scores, loss
from limiirl.mixture.bayesian_sticks import Concentration, Sticks, sticks

Float = NDArray[np.float64]
Int = NDArray[np.intp]
# An intent with fewer followers than this is none: dropping it changes the bound by less than rounding.
_NOBODY = 1e-12
# Newton steps of a posterior that begins anew, and of one that has only to follow its members.
_FRESH_STEPS, _STEPS = 20, 2


@dataclass(frozen=True, eq=False)
class State:
    """A variational posterior, intents in falling order of size.

    Attributes
    ----------
    U : (G, K)
        Responsibilities of units.
    rewards : Rewards
    log_p : (G, K)
        Expected log-probabilities.
    sticks : Sticks
    bound : float
    """

    U: Float
    rewards: Rewards
    log_p: Float
    sticks: Sticks
    bound: float

    @property
    def n_intents(self) -> int:
        """K, the number of intents that anybody follows."""
        return int(self.U.shape[1])

    @property
    def sizes(self) -> Float:
        """Expected number (K,) of units that follow each intent."""
        return np.asarray(self.U.sum(axis=0))


class Problem:
    """Units under a model, with the priors: makes posteriors and improves them.

    Parameters
    ----------
    prepared : Prepared
    prior : Prior
    concentration : float or (shape, rate)
    points : (G, m)
        Where units lie, for those who divide an intent.
    """

    def __init__(self, prepared: Prepared, prior: Prior, concentration: Concentration, points: Float) -> None:
        self.prepared, self.prior, self.concentration, self.points = prepared, prior, concentration, points
        self.origin = finite_scores(prepared, prior)

    def state(self, U: Float, rewards: Rewards, log_p: Float) -> State:
        """Return the posterior of these responsibilities and rewards, with its best sticks.

        Intents are sorted by size, and those that nobody follows are left out.
        """
        sizes = U.sum(axis=0)
        order = np.lexsort((*rewards.mean.T[::-1], -sizes.round(9)))
        order = order[sizes[order] > _NOBODY]
        U, rewards, log_p = np.ascontiguousarray(U[:, order]), rewards[order], log_p[:, order]
        found = sticks(U.sum(axis=0), self.concentration)
        with np.errstate(invalid="ignore"):  # an impossible intent has responsibility 0
            explained = np.sum(np.where(U > 0.0, U * log_p, 0.0))
        bound = float(explained - np.sum(xlogy(U, U)) + found.bound - np.sum(rewards.divergence))
        return State(U, rewards, log_p, found, bound)

    def fresh(self, U: Float) -> tuple[Rewards, Float]:
        """Return the posterior rewards of responsibilities (G, J), no column all 0, and their log-probabilities."""
        found = fresh(loss(self.prepared, U, self.prior.scale), self.prior, self.origin, U.shape[1], _FRESH_STEPS)
        return found, expected_log_prob(self.prepared, self.prior, found)

    def start(self, U: Float) -> State:
        """Return the posterior that begins with responsibilities (G, K)."""
        U = np.ascontiguousarray(U[:, U.sum(axis=0) > _NOBODY])
        return self.state(U, *self.fresh(U))

    def expect(self, state: State) -> State:
        """Return the posterior with the best responsibilities."""
        scores = state.log_p + state.sticks.log_weights
        top = scores.max(axis=1)
        if not np.all(np.isfinite(top)):
            unit = self.prepared.units.name(int(np.argmin(np.isfinite(top))))
            raise InvalidDemos(
                f"{unit} has no probability under any intent. Remove it, fix the MDP, or bound the rewards."
            )
        U = np.exp(scores - top[:, None])
        return self.state(U / U.sum(axis=1, keepdims=True), state.rewards, state.log_p)

    def sweep(self, state: State) -> State:
        """Return the posterior after one round: responsibilities, sticks, rewards."""
        state = self.expect(state)
        rewards = improve(loss(self.prepared, state.U, self.prior.scale), self.prior, state.rewards, _STEPS)
        return self.state(state.U, rewards, expected_log_prob(self.prepared, self.prior, rewards))

    def run(
        self, state: State, max_iter: int, tol: float, told: Callable[[State], None] | None = None
    ) -> tuple[State, bool]:
        """Return where sweeps end, and whether the last rise was below `tol`."""
        for _ in range(max_iter):
            before, state = state.bound, self.sweep(state)
            if told is not None:
                told(state)
            if state.bound - before < tol:
                return state, True
        return state, False
