"""A first reward at which all sums over ways are finite."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from limiirl.errors import DivergentPartition
from limiirl.irl.destination_likelihood import finite_ways, surely_finite
from limiirl.irl.destination_values import GoalValues, flow_features
from limiirl.irl.domain import Domain
from limiirl.irl.optimise import Box

Float = NDArray[np.float64]
# What is tried first: features may be in any unit, so that a cost of 1 a step may need parameters of 1000.
_COSTS = (0.0, *(2.0**power for power in range(-4, 21)))
# Then points in the middle of what is left of boxes of these half-widths, this many in all.
_WIDTHS = tuple(4.0**power for power in range(11))
_ROUNDS = 50
# A ball of this share of the box is too small to look into.
_SMALLEST = 1e-9


def feasible_start(values: GoalValues, box: Box, domain: Domain | None = None) -> Float:
    """Return a point (d,) within the bounds where all sums over ways are finite: 0, or growing costs, or else any.

    A cost is a parameter of the sign that makes its feature, summed over all edges, a loss. Where features have both
    signs, that may miss the domain; every point outside cuts off a half-space, and the next is the middle of the rest.
    The domain learns from the points that are not feasible.

    Examples
    --------
    One may stay in state 0 at the weight exp(-theta); the feature of state 1 is larger, and says nothing of that.

    >>> from limiirl.mdp import MDP
    >>> mdp = MDP.from_edges([0, 0], [0, 1], state_features=[[-1.0], [5.0]])
    >>> feasible_start(GoalValues(mdp), Box(np.array([-20.0]), np.array([20.0]))).round(3)
    array([0.5])
    """
    domain = finite_ways(values) if domain is None else domain
    mdp = values.mdp
    start = box.clip(np.zeros(mdp.n_features))
    against = np.sign(flow_features(mdp, np.ones(mdp.n_edges)))
    for cost in _COSTS:
        trial = box.clip(start - cost * against)
        if surely_finite(values, trial):
            return trial
        domain.learn(trial)
    found = _between_cuts(values, box, start, domain)
    if found is not None:
        return found
    raise DivergentPartition(
        "The sum over ways of any length stays infinite whatever features cost within the bounds: some cycle collects "
        "too little for the choices on it. Add a cost of choices by limiirl.irl.with_choices(mdp), or widen the bounds."
    )


def _between_cuts(values: GoalValues, box: Box, start: Float, domain: Domain) -> Float | None:
    """Return a point of the domain, or None if half-spaces that hold it have nothing in common with the bounds."""
    tried = 0
    for width in _WIDTHS:
        part = Box(np.maximum(box.lower, start - width), np.minimum(box.upper, start + width))
        while (trial := middle(domain, part)) is not None:
            if surely_finite(values, trial):
                return trial
            tried += 1
            if not domain.learn(trial):  # no parameter changes the loops that weigh too much
                return None
            if tried == _ROUNDS:
                raise DivergentPartition(
                    f"No parameters with a finite sum over ways of any length were found in {tried} rounds. Give a "
                    "start at which every cycle costs more than the ways around it make up for, or narrower bounds."
                )
    return None


def middle(domain: Domain, box: Box) -> Float | None:
    """Return the centre (d,) of the largest ball in a bounded box and all half-spaces, or None if there is none.

    The ball is one where the box is the unit cube, so that units of features do not matter.

    Examples
    --------
    >>> disc = Domain(lambda x: (float(x @ x) - 1.0, 2.0 * x))
    >>> disc.learn(np.array([-2.0, 0.0]))
    True
    >>> float(middle(disc, Box(np.full(2, -3.0), np.full(2, -0.75)))[0].round(3))  # left is -1.25 <= x <= -0.75
    -1.0
    """
    d, widths = box.lower.size, box.upper - box.lower
    rows = domain.rows.reshape(-1, d) * widths
    sizes = np.linalg.norm(rows, axis=1)
    room = domain.most - domain.rows.reshape(-1, d) @ box.lower
    flat = sizes == 0.0
    if np.any(room[flat] <= 0.0):
        return None
    rows, room = rows[~flat] / sizes[~flat, None], room[~flat] / sizes[~flat]
    ones = np.ones((d, 1))
    faces = np.block([[np.eye(d), ones], [-np.eye(d), ones]])
    given = np.vstack([np.column_stack([rows, np.ones(len(rows))]), faces])
    most = np.concatenate([room, np.ones(d), np.zeros(d)])
    found = linprog(np.append(np.zeros(d), -1.0), A_ub=given, b_ub=most, bounds=[(0.0, 1.0)] * d + [(0.0, 0.5)])
    if found.x is None or found.x[-1] < _SMALLEST:
        return None
    return np.asarray(box.clip(box.lower + widths * found.x[:-1]))
