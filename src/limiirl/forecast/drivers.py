"""Whose trip is it? The posterior of a driver's intent, from earlier trips and from the one that is going on."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from limiirl.demos import Demonstrations
from limiirl.demos.checks import name_demo
from limiirl.errors import InvalidDemos
from limiirl.forecast.checks import log

Float = NDArray[np.float64]


def log_prior(shares: Float, model: Any, mdp: Any, thetas: Float, demos: Any, history: Demonstrations | None) -> Float:
    """Return (N, K) the log-probability of each intent of those who drive `demos`, before these trips.

    ``p(k | history) prop. to rho_k prod_i p(tau_i | theta_k)``: all trips of a driver follow one intent. Where both
    `demos` and `history` have groups, each driver is judged by the trips of the same group, and one without any by the
    shares; elsewhere the whole history is of the one who drives them all.

    Parameters
    ----------
    shares : (K,)
    model, mdp, thetas : what the mixture was fitted with
    demos : Demonstrations
        N trips that are going on.
    history : Demonstrations or None
        Earlier trips, whole.
    """
    found = np.tile(log(shares), (len(demos), 1))
    if history is None or len(history) == 0:
        return found
    log_p = np.asarray(model.log_prob(mdp, thetas, history))
    if history.groups is None or demos.groups is None:
        found += log_p.sum(axis=0)
    else:
        for group in np.unique(demos.groups):
            found[demos.groups == group] += log_p[history.groups == group].sum(axis=0)
    lost = np.max(found, axis=1) == -np.inf
    if np.any(lost):
        raise InvalidDemos(
            f"The history of {name_demo(demos.ids, int(np.argmax(lost)))} has no probability under any intent. Check "
            "that it was recorded in the MDP that was fitted."
        )
    return np.asarray(found - np.logaddexp.reduce(found, axis=1)[:, None])


def posterior(log_joint: Float) -> tuple[Float, NDArray[np.bool_]]:
    """Return the posterior (N, K) of joint log-probabilities (N, K), and whether each row is possible at all.

    Rows that are not are zero.

    Examples
    --------
    >>> posterior(np.log([[0.1, 0.3]]))
    (array([[0.25, 0.75]]), array([ True]))
    """
    total = np.logaddexp.reduce(log_joint, axis=1)
    possible = total > -np.inf
    return np.exp(log_joint - np.where(possible, total, 0.0)[:, None]), possible
