"""Planning: the value of acting optimally, of following a policy, and the policies that are optimal.

A visit to state s earns r(s), a terminal state's included, and a move along an edge earns r(s, a, s'):
``Q(s, a) = r(s) + sum_s' P(s' | s, a) (r(s, a, s') + gamma V(s'))``, and ``V(s) = r(s)`` where s is terminal.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl.errors import InvalidParameter
from limiirl.mdp.bellman import ROUNDING, Problem
from limiirl.mdp.sparse import MDP

Float = NDArray[np.float64]

# Sums of a policy's probabilities may miss 1 by this much, like those of an MDP.
_TOLERANCE = 1e-8


def optimal_values(mdp: MDP, theta: ArrayLike, *, minimise: bool = False) -> Float:
    """Return the optimal values V* (S,), exact up to rounding, by policy iteration.

    At a discount of 1 the supremum is over the policies that surely end or come to rest, in a terminal state or where
    nothing is earned any more; it is an error if some state has none, or if they can earn without bound.

    Parameters
    ----------
    mdp : MDP
    theta : (d,)
        One parameter vector.
    minimise : bool
        Whether to return the values of the worst policy instead.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2], gamma=0.5, state_features=[-1.0, -1.0, 4.0])
    >>> optimal_values(mdp, [1.0])
    array([1., 1., 4.])
    >>> optimal_values(mdp, [1.0], minimise=True)
    array([-0.5,  1. ,  4. ])
    """
    problem = _problem(mdp, theta, minimise=minimise)
    values = problem.solve()
    # Adding 0 turns -0.0 into 0.0.
    return -values + 0.0 if minimise else values


def action_values(mdp: MDP, values: ArrayLike, theta: ArrayLike) -> Float:
    """Return Q (P,) of every (s, a) pair, in the order of `mdp.pair_state`, where V (S,) follows.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2], gamma=0.5, state_features=[-1.0, -1.0, 4.0])
    >>> action_values(mdp, optimal_values(mdp, [1.0]), [1.0])
    array([-0.5,  1. ,  1. ])
    """
    V = np.asarray(values, dtype=np.float64)
    if V.shape != (mdp.n_states,):
        raise InvalidParameter(f"values must have shape ({mdp.n_states},), one a state; got shape {V.shape}.")
    return _problem(mdp, theta).action_values(V)


def optimal_policy(mdp: MDP, theta: ArrayLike, *, tol: float = 1e-6) -> Float:
    """Return the stochastic optimal policy: probabilities (P,) of the (s, a) pairs, uniform over ties.

    Action a is optimal in s if ``Q(s, a) >= max_a' Q(s, a') - tol (max Q - min Q)``, where the range of Q is over all
    pairs, so that neither the unit of the rewards nor rounding decides about ties.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 0, 1, 2], [1, 2, 3, 3, 3], gamma=0.5, state_features=[0.0, -1.0, -1.0, 8.0])
    >>> optimal_policy(mdp, [1.0])
    array([0., 0., 1., 1., 1.])
    >>> optimal_policy(mdp, [0.0])
    array([0.33333333, 0.33333333, 0.33333333, 1.        , 1.        ])
    """
    if not 0.0 <= tol < 1.0:
        raise InvalidParameter(f"tol must lie in [0, 1); got {tol!r}. It is a share of the range of Q.")
    problem = _problem(mdp, theta)
    Q = problem.action_values(problem.solve())
    if not Q.size:
        return Q
    # A range that is rounding only must not part what is equal.
    slack = max(tol * float(np.ptp(Q)), 10.0 * ROUNDING * float(np.abs(Q).max()))
    optimal = problem.best(Q)[problem.owner] <= Q + slack
    ties = np.add.reduceat(optimal, problem.first_pair, dtype=np.float64)
    return np.asarray(optimal / ties[problem.owner])


def policy_values(mdp: MDP, policy: ArrayLike, theta: ArrayLike) -> Float:
    """Return the values V (S,) of following a policy, by a linear solve.

    At a discount of 1 it is an error if from some state the policy may go on earning for ever.

    Parameters
    ----------
    mdp : MDP
    policy : (P,)
        Probabilities of the (s, a) pairs, in the order of `mdp.pair_state`; they sum to 1 over each state's pairs.
    theta : (d,)
        One parameter vector.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2], gamma=0.5, state_features=[-1.0, -1.0, 4.0])
    >>> policy_values(mdp, [0.5, 0.5, 1.0], [1.0])
    array([0.25, 1.  , 4.  ])
    """
    problem, weights = _problem(mdp, theta), check_policy(mdp, policy)
    resting = np.zeros(mdp.n_states, dtype=np.bool_)
    if mdp.gamma == 1.0:
        resting = problem.resting(weights > 0.0, every=True)
        problem.way_out(weights > 0.0, resting, "the policy never reaches a terminal state")
    return problem.evaluate(weights, resting)


def check_policy(mdp: MDP, policy: ArrayLike) -> Float:
    """Return a stationary policy (P,) as float64 after checking its shape, signs and sums.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2])
    >>> check_policy(mdp, [0.5, 0.4, 1.0])
    Traceback (most recent call last):
    limiirl.errors.InvalidParameter: A policy must sum to 1 over the actions of a state; state 0 sums to 0.9. Divide ...
    """
    try:
        weights = np.asarray(policy, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidParameter(f"A policy must be an array of numbers ({error}). Give one a (s, a) pair.") from error
    if weights.shape != (mdp.n_pairs,):
        raise InvalidParameter(
            f"A policy must have shape ({mdp.n_pairs},), one probability a (s, a) pair; got shape {weights.shape}. "
            "Follow the order of mdp.pair_state and mdp.pair_action."
        )
    wrong = np.flatnonzero(~(weights >= 0.0))
    if wrong.size:
        pair = int(wrong[0])
        raise InvalidParameter(
            f"A policy must not be negative; state {mdp.pair_state[pair]}, action {mdp.pair_action[pair]} has "
            f"{weights[pair]}. Replace it by a probability."
        )
    sums = np.bincount(mdp.pair_state, weights=weights, minlength=mdp.n_states)
    wrong = np.flatnonzero(~mdp.terminal & ~(np.abs(sums - 1.0) <= _TOLERANCE))
    if wrong.size:
        state = int(wrong[0])
        raise InvalidParameter(
            f"A policy must sum to 1 over the actions of a state; state {state} sums to {sums[state]:.10g}. "
            "Divide by the sums."
        )
    return weights


def _problem(mdp: MDP, theta: ArrayLike, *, minimise: bool = False) -> Problem:
    thetas = mdp.check_thetas(theta)
    if len(thetas) != 1:
        raise InvalidParameter(f"Planning takes one theta; got {len(thetas)} rows. Call it for each of them.")
    return Problem(mdp, -thetas[0] if minimise else thetas[0])
