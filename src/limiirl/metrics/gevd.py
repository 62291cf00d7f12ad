"""GEVD: the distance of two reward ensembles, by the cheapest way to pair up their intents.

Paper: section "MI-IRL Performance Metrics" and its appendix. With ``e_ij = EVD(true i, learned j)``,
``GEVD = min sum_ij w_ij e_ij`` over flows w >= 0 whose rows sum to the true weights and columns to the learned ones.

The cheapest flow between two sets of weights: discrete optimal transport, by the simplex method of HiGHS.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.optimize import linprog
from scipy.sparse.csgraph import breadth_first_order

from limiirl._typing import FloatArray
from limiirl.errors import InvalidParameter, NumericalError
from limiirl.mdp import MDP, RewardEnsemble
from limiirl.metrics.evd import TIES, blame, optima, regrets, worst_values
from limiirl.metrics.reward_distances import shaping_distances

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# The least tolerance that HiGHS takes; weights are at most 1, and costs are scaled to it.
_TOLERANCE = 1e-10
# How often costs are scaled anew, and the largest cost then, in units of the flow's.
_ROUNDS, _DEAREST = 3, 1e6
# A flow this small is what the solver leaves of zero.
_NOTHING = 1e-12


def transport(costs: ArrayLike, rows: ArrayLike, columns: ArrayLike) -> FloatArray:
    """Return the flow (K', K) of least cost from rows (K',) to columns (K,), nonnegative weights that sum to 1 both.

    Examples
    --------
    >>> transport([[0.0, 1.0], [2.0, 0.0]], [0.5, 0.5], [0.75, 0.25])
    array([[0.5 , 0.  ],
           [0.25, 0.25]])
    """
    all_costs, a, b = (np.asarray(values, dtype=np.float64) for values in (costs, rows, columns))
    flow = np.zeros(all_costs.shape)
    live = np.ix_(a > 0.0, b > 0.0)
    a, b, cost = a[a > 0.0], b[b > 0.0], all_costs[live]
    if a.size == 1 or b.size == 1:
        flow[live] = np.outer(a, b)
        return flow
    flow[live] = _cheapest(cost, a, b)
    return flow


def _cheapest(cost: FloatArray, a: FloatArray, b: FloatArray) -> FloatArray:
    """Return the cheapest flow by HiGHS, whose tolerance is absolute: costs are scaled, again if few of them matter.

    A pair that costs a million times as much as the flow itself hides differences among the others. So costs are then
    measured by the flow's, those far above it cut down; of all flows found the one that is cheapest in truth is taken.
    """
    scale = float(cost.max()) or 1.0
    best = flow = _solve(cost / scale, a, b)
    for _ in range(_ROUNDS):
        value = float((flow * cost).sum())
        if value <= 0.0 or value > 1e-3 * scale:
            break
        scale = value
        flow = _solve(np.minimum(cost / scale, _DEAREST), a, b)
        if float((flow * cost).sum()) < float((best * cost).sum()):
            best = flow
    return best


def _solve(cost: FloatArray, a: FloatArray, b: FloatArray) -> FloatArray:
    sums = np.vstack([np.kron(np.eye(a.size), np.ones(b.size)), np.kron(np.ones(a.size), np.eye(b.size))])
    found = linprog(
        cost.ravel(),
        # The last sum follows from the others.
        A_eq=sums[:-1],
        b_eq=np.concatenate([a, b])[:-1],
        method="highs-ds",
        options={"primal_feasibility_tolerance": _TOLERANCE, "dual_feasibility_tolerance": _TOLERANCE},
    )
    if found.x is None:
        raise NumericalError(f"The transport problem was not solved: {found.message} Check the weights.")
    return np.asarray(np.where(found.x > _NOTHING, found.x, 0.0).reshape(cost.shape))


def least_cost(costs: FloatArray, rows: FloatArray, columns: FloatArray) -> float:
    """Return the cost of the cheapest flow, where some pairs may cost infinitely much.

    Examples
    --------
    >>> half = np.array([0.5, 0.5])
    >>> least_cost(np.array([[0.0, 1.0], [np.inf, 4.0]]), half, half)
    2.0
    >>> least_cost(np.array([[0.0, 1.0], [np.inf, 4.0]]), half, np.array([0.75, 0.25]))
    inf
    """
    finite = np.isfinite(costs)
    # Dearer than any detour through the others, so taken only where it must be.
    dear = (1.0 + costs[finite].max(initial=0.0)) * sum(costs.shape)
    flow = transport(np.where(finite, costs, dear), rows, columns)
    if flow[~finite].any():
        return math.inf
    return float((flow[finite] * costs[finite]).sum())


Distance = Callable[[MDP, FloatArray, FloatArray], float]

DISTANCES = ("evd", "ile", "epic", "dard")


class Contribution(NamedTuple):
    """What one pair of intents adds to a GEVD.

    Examples
    --------
    >>> Contribution(true=0, learned=2, flow=0.5, evd=3.0, contribution=1.5).contribution
    1.5
    """

    true: int
    learned: int
    flow: float
    evd: float
    contribution: float


@dataclass(frozen=True, eq=False)
class GEVD:
    """The distance between a true ensemble and a learned one, and where it comes from.

    Attributes
    ----------
    value : float
        The least cost of turning the learned ensemble into the true one.
    normalised : float
        `value` as a share of the paper's bound ``max_k Delta_k / (1 - gamma)``; NaN where that is infinite.
    normalised_tight : float
        `value` as a share of the upper of `bounds`; NaN where that is infinite.
    bounds : (float, float)
        0 and ``sum_i rho_i e_i*``, where ``e_i*`` is what the worst policy of all loses under the true reward i. For
        EPIC and DARD the upper bound is 1; for a distance of your own it is infinite.
    interval : (float, float)
        Between these the value lies however the learned policies break ties.
    flow : (K', K)
        Shares of true intent i (rows) that are paired with learned intent j (columns).
    evd : (K', K)
        The distance of every pair.
    distance : str
        Its name.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0], [1, 2], 3, gamma=0.5, p0=[1.0, 0.0, 0.0], state_features=np.eye(3))
    >>> truth = RewardEnsemble([0.5, 0.5], [[0.0, 4.0, 2.0], [0.0, 0.0, 4.0]])
    >>> print(gevd(mdp, truth, RewardEnsemble([0.75, 0.25], truth.thetas)))
    GEVD 0.5 (EVD), 33.3 % of its bound 1.5, 6.25 % of the paper's
      true  learned    flow       EVD    contribution
         1        0    0.25         2             0.5
         0        0     0.5         0               0
         1        1    0.25         0               0
    """

    value: float
    normalised: float
    normalised_tight: float
    bounds: tuple[float, float]
    interval: tuple[float, float]
    flow: FloatArray
    evd: FloatArray
    distance: str

    def largest(self, n: int = 3) -> tuple[Contribution, ...]:
        """Return the n pairs that cost most, among those that are paired at all, the costliest first.

        Examples
        --------
        >>> found = GEVD(1.5, 0.1, 0.2, (0.0, 9.0), (1.5, 1.5), np.diag([0.25, 0.75]), np.diag([3.0, 1.0]), "evd")
        >>> found.largest(1)
        (Contribution(true=0, learned=0, flow=0.25, evd=3.0, contribution=0.75),)
        """
        if n < 0:
            raise InvalidParameter(f"n must be a number of pairs; got {n}. Pass 0 or more.", parameter="n")
        pairs = [
            Contribution(int(i), int(j), float(self.flow[i, j]), float(self.evd[i, j]), float(cost))
            for (i, j), cost in np.ndenumerate(self.flow * self.evd)
            if self.flow[i, j] > 0.0
        ]
        return tuple(sorted(pairs, key=lambda pair: -pair.contribution)[:n])

    def to_dict(self) -> dict[str, Any]:
        """Return everything in types that JSON knows; None stands for what is infinite or undefined."""
        single = {name: _finite_or_none(getattr(self, name)) for name in ("value", "normalised", "normalised_tight")}
        ranges = {name: [_finite_or_none(end) for end in getattr(self, name)] for name in ("bounds", "interval")}
        return {
            **single,
            **ranges,
            "flow": self.flow.tolist(),
            "evd": self.evd.tolist(),
            "distance": self.distance,
            "largest": [pair._asdict() for pair in self.largest()],
        }

    def plot(self, ax: Axes | None = None) -> Figure:
        """Draw the flow from learned to true intents: wide where much is paired, dark where the pair differs much.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.
        """
        from limiirl.metrics.plotting import draw

        return draw(self, ax)

    def __str__(self) -> str:
        name = self.distance.upper() if self.distance in DISTANCES else self.distance
        head = f"GEVD {self.value:.6g} ({name})"
        if math.isfinite(self.normalised_tight):
            head += f", {100 * self.normalised_tight:.3g} % of its bound {self.bounds[1]:.6g}"
        if math.isfinite(self.normalised) and self.distance in ("evd", "ile"):
            head += f", {100 * self.normalised:.3g} % of the paper's"
        if self.interval[1] > self.interval[0]:
            head += f"; {self.interval[0]:.6g} to {self.interval[1]:.6g} over ties"
        lines = [head, f"  true  learned    flow  {name:>8}    contribution"]
        lines += [
            f"  {pair.true:4}  {pair.learned:7}  {pair.flow:6.4g}  {pair.evd:8.4g}  {pair.contribution:14.4g}"
            for pair in self.largest(self.flow.size)
        ]
        return "\n".join(lines)


def gevd(
    mdp: MDP,
    truth: RewardEnsemble,
    learned: RewardEnsemble,
    *,
    distance: str | Distance | ArrayLike = "evd",
    tol: float = TIES,
) -> GEVD:
    """Return the distance of a learned ensemble from the true one; their sizes and weights may differ.

    Intents of weight 0 take no part in the transport, but stay in the matrices.

    Parameters
    ----------
    mdp : MDP
    truth, learned : RewardEnsemble
        The order matters: what the learned policies lose is counted in true rewards.
    distance : "evd", "ile", "epic", "dard", callable or (K', K)
        Of a pair of intents. A callable takes (mdp, theta_true, theta_learned) and returns a number.
    tol : float
        For EVD and ILE: actions tie where their Q differs by less than this share of the range of Q.

    Examples
    --------
    >>> from limiirl.worlds import ElementWorld
    >>> world = ElementWorld()
    >>> halves = RewardEnsemble([1 / 6, 1 / 6, 1 / 3, 1 / 3], world.ensemble.thetas[[0, 0, 2, 1]])
    >>> gevd(world.mdp, world.ensemble, halves).value
    0.0
    >>> guess = RewardEnsemble([1.0], [[0.0] * 5])
    >>> found = gevd(world.mdp, world.ensemble, guess)
    >>> round(found.value, 1), [round(end, 1) for end in found.interval], round(found.normalised, 3)
    (185.3, [0.0, 970.5], 0.185)
    """
    rho_true, thetas_true = _parts(mdp, truth, "truth")
    rho, thetas = _parts(mdp, learned, "learned")
    if isinstance(distance, str) and distance in ("evd", "ile"):
        return _by_planning(mdp, (rho_true, thetas_true), (rho, thetas), distance, tol)
    if isinstance(distance, str):
        if distance not in DISTANCES:
            raise InvalidParameter(
                f"distance must be one of {', '.join(DISTANCES)}, a callable or a matrix; got {distance!r}.",
                parameter="distance",
            )
        costs, name, bound = shaping_distances(mdp, thetas_true, thetas, distance), distance, 1.0
    else:
        costs, name = _own_distances(mdp, thetas_true, thetas, distance)
        bound = math.inf
    flow = transport(costs, rho_true, rho)
    value = float((flow * costs).sum())
    share = _share(value, bound)
    return GEVD(value, share, share, (0.0, bound), (value, value), flow, costs, name)


def _parts(mdp: MDP, ensemble: RewardEnsemble, name: str) -> tuple[FloatArray, FloatArray]:
    """Return the weights (K,) of an ensemble, with a sum of 1, and its rewards (K, d)."""
    if not isinstance(ensemble, RewardEnsemble):
        raise InvalidParameter(
            f"{name} must be a RewardEnsemble; got {type(ensemble).__name__}. Pass RewardEnsemble(weights, thetas), or "
            "a mixture's ensemble_.",
            parameter=name,
        )
    with blame(name, 0):
        return ensemble.weights / ensemble.weights.sum(), mdp.check_thetas(ensemble.thetas)


def _by_planning(
    mdp: MDP, truth: tuple[FloatArray, FloatArray], learned: tuple[FloatArray, FloatArray], distance: str, tol: float
) -> GEVD:
    (rho_true, thetas_true), (rho, thetas) = truth, learned
    weights = mdp.p0 if distance == "evd" else np.ones(mdp.n_states)
    optimum = optima(mdp, thetas_true)
    lost = regrets(mdp, optimum, thetas_true, thetas, weights, tol=tol)
    flow = transport(lost.value, rho_true, rho)
    value = float((flow * lost.value).sum())
    ends = []
    for costs in (lost.low, lost.high):
        if np.array_equal(costs, lost.value):
            ends.append(value)
        else:
            ends.append(least_cost(costs, rho_true, rho))
    used = np.flatnonzero(rho_true)
    at, counted = np.flatnonzero(weights), weights[weights > 0.0]
    worst = sum(rho_true[i] * counted @ (optimum[i] - worst_values(mdp, thetas_true[i]))[at] for i in used)
    tight = max(float(worst), value)
    loose = float(weights.sum()) * _largest_range(mdp, thetas_true[used], weights)
    interval = (min(ends[0], value), max(ends[1], value))
    return GEVD(value, _share(value, loose), _share(value, tight), (0.0, tight), interval, flow, lost.value, distance)


def _largest_range(mdp: MDP, thetas: FloatArray, weights: FloatArray) -> float:
    """Return ``max_k Delta_k / (1 - gamma)``, with Delta_k over what can be earned from the states that have weight."""
    sink, n = mdp.n_states, mdp.n_states + 1
    starts = np.flatnonzero(weights)
    graph = sparse.csr_array(
        (
            np.ones(mdp.n_edges + starts.size),
            (np.concatenate([mdp.src, np.full(starts.size, sink)]), np.concatenate([mdp.dst, starts])),
        ),
        shape=(n, n),
    )
    reached = np.zeros(n, dtype=np.bool_)
    reached[breadth_first_order(graph, sink, return_predecessors=False)] = True
    r_state, r_edge = mdp.rewards(thetas)
    steps = r_state[mdp.src] if r_edge is None else r_state[mdp.src] + r_edge
    last = r_state[mdp.terminal & reached[:sink]]
    # After a terminal state nothing is earned for ever.
    earned = np.concatenate([steps[reached[mdp.src]], last, np.zeros((min(len(last), 1), len(thetas)))])
    width = float(np.ptp(earned, axis=0).max())
    if mdp.gamma == 1.0:
        return math.inf if width > 0.0 else 0.0
    return width / (1.0 - mdp.gamma)


def _own_distances(
    mdp: MDP, truth: FloatArray, learned: FloatArray, distance: Distance | ArrayLike
) -> tuple[FloatArray, str]:
    """Return the user's own costs (K', K), checked, and their name."""
    shape = (len(truth), len(learned))
    if callable(distance):
        costs = np.array([[float(distance(mdp, true, theta)) for theta in learned] for true in truth])
        name = str(getattr(distance, "__name__", type(distance).__name__))
    else:
        try:
            costs, name = np.array(distance, dtype=np.float64), "matrix"
        except (TypeError, ValueError) as error:
            raise InvalidParameter(
                f"distance must be a name, a callable or a matrix of numbers ({error}).", parameter="distance"
            ) from error
    if costs.shape != shape:
        raise InvalidParameter(
            f"distance must have shape {shape}, a row for each true intent and a column for each learned one; got "
            f"shape {costs.shape}. Transpose it, or add what is missing.",
            parameter="distance",
        )
    bad = np.argwhere(~(np.isfinite(costs) & (costs >= 0.0)))
    if len(bad):
        i, j = (int(index) for index in bad[0])
        raise InvalidParameter(
            f"distance must be finite and nonnegative; true intent {i}, learned intent {j} has {costs[i, j]}. "
            "Shift or cap it.",
            parameter="distance",
            value=float(costs[i, j]),
            index=(int(i), int(j)),
        )
    return costs, name


def _share(value: float, bound: float) -> float:
    """Return value / bound; nothing is no share of nothing, and no share of infinity says anything."""
    if not math.isfinite(bound):
        return math.nan
    return 0.0 if value == 0.0 else value / bound


def _finite_or_none(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
