"""Generalised expected value difference (GEVD): optimal transport between two reward ensembles.

Paper: section "MI-IRL Performance Metrics" and its appendix. With ``e_ij = EVD(true i, learned j)``, ``GEVD = min
sum_ij w_ij e_ij`` over flows w >= 0 with the true weights as row sums and the learned weights as column sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linprog

from limiirl._typing import FloatArray
from limiirl._validation import as_floats, check_each, check_type
from limiirl.errors import InvalidParameter, NumericalError
from limiirl.mdp import MDP, RewardEnsemble, reachable_states
from limiirl.metrics.evd import TIES, compute_optimal_values, compute_regrets, prefix_errors, worst_values
from limiirl.metrics.reward_distances import shaping_distances

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# The smallest tolerance of HiGHS; weights are at most 1 and costs are scaled to 1.
_TOLERANCE = 1e-10
# Maximum number of rescalings of the costs, and the largest rescaled cost, in units of the optimal cost.
_ROUNDS, _LARGEST_COST = 3, 1e6
# Smaller flows are rounding errors of the solver.
_ZERO = 1e-12


def solve_transport(costs: ArrayLike, rows: ArrayLike, columns: ArrayLike) -> FloatArray:
    """Return the minimum-cost flow (K', K) from weights `rows` (K',) to weights `columns` (K,)."""
    all_costs, a, b = (np.asarray(values, dtype=np.float64) for values in (costs, rows, columns))
    flow = np.zeros(all_costs.shape)
    live = np.ix_(a > 0.0, b > 0.0)
    a, b, cost = a[a > 0.0], b[b > 0.0], all_costs[live]
    if a.size == 1 or b.size == 1:
        flow[live] = np.outer(a, b)
        return flow
    flow[live] = _solve_rescaled(cost, a, b)
    return flow


def _solve_rescaled(cost: FloatArray, a: FloatArray, b: FloatArray) -> FloatArray:
    """Return the minimum-cost flow, computed with HiGHS; costs are rescaled because its tolerance is absolute.

    If the optimum is far below the largest cost, costs are measured in units of the optimum, and large costs are
    clipped.
    """
    scale = float(cost.max()) or 1.0
    best = flow = _solve(cost / scale, a, b)
    for _ in range(_ROUNDS):
        value = float((flow * cost).sum())
        if value <= 0.0 or value > 1e-3 * scale:
            break
        scale = value
        flow = _solve(np.minimum(cost / scale, _LARGEST_COST), a, b)
        if float((flow * cost).sum()) < float((best * cost).sum()):
            best = flow
    return best


def _solve(cost: FloatArray, a: FloatArray, b: FloatArray) -> FloatArray:
    sums = np.vstack([np.kron(np.eye(a.size), np.ones(b.size)), np.kron(np.ones(a.size), np.eye(b.size))])
    result = linprog(
        cost.ravel(),
        A_eq=sums[:-1],  # the last sum is redundant
        b_eq=np.concatenate([a, b])[:-1],
        method="highs-ds",
        options={"primal_feasibility_tolerance": _TOLERANCE, "dual_feasibility_tolerance": _TOLERANCE},
    )
    if result.x is None:
        raise NumericalError(f"The transport problem was not solved: {result.message} Check the weights.")
    return np.asarray(np.where(result.x > _ZERO, result.x, 0.0).reshape(cost.shape))


def transport_cost(costs: FloatArray, rows: FloatArray, columns: FloatArray) -> float:
    """Return the optimal transport cost; entries of `costs` may be infinite."""
    finite = np.isfinite(costs)
    # Replace infinite costs by a finite cost that is large enough for the pair to be used only if necessary.
    large = (1.0 + costs[finite].max(initial=0.0)) * sum(costs.shape)
    flow = solve_transport(np.where(finite, costs, large), rows, columns)
    if flow[~finite].any():
        return math.inf
    return float((flow[finite] * costs[finite]).sum())


Distance = Callable[[MDP, FloatArray, FloatArray], float]

DISTANCES = ("evd", "ile", "epic", "dard")


class Contribution(NamedTuple):
    """Contribution of one pair of intents to a GEVD."""

    true: int
    learned: int
    flow: float
    evd: float
    contribution: float


@dataclass(frozen=True, eq=False)
class GEVD:
    """Distance between a true and a learned ensemble, with its decomposition.

    Attributes
    ----------
    value : float
        The optimal transport cost.
    normalised, normalised_tight : float
        `value` divided by the paper's bound ``max_k Delta_k / (1 - gamma)``, and by `bounds[1]`; NaN if the bound is
        infinite.
    bounds : (float, float)
        Lower bound 0, and upper bound ``sum_i rho_i e_i*``, where ``e_i*`` is the loss of the worst policy under true
        reward i. The upper bound is 1 for EPIC and DARD, and infinite for a custom distance.
    interval : (float, float)
        Range of `value` over the tie-breaking rules of the learned policies.
    flow, evd : (K', K)
        Mass transported between true intent i (row) and learned intent j (column), and the distance between the
        intents.
    distance : str

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0], [1, 2], 3, gamma=0.5, p0=[1.0, 0.0, 0.0], state_features=np.eye(3))
    >>> truth = RewardEnsemble([0.5, 0.5], [[0.0, 4.0, 2.0], [0.0, 0.0, 4.0]])
    >>> print(gevd(mdp, truth, RewardEnsemble([0.75, 0.25], truth.thetas)))
    GEVD 0.5 (EVD), 33.3 % of the bound 1.5, 6.25 % of the paper's bound
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
        """Return the n pairs with the largest contributions, in decreasing order."""
        if n < 0:
            raise InvalidParameter.of("n", n, "must be at least 0")
        pairs = [
            Contribution(int(i), int(j), float(self.flow[i, j]), float(self.evd[i, j]), float(cost))
            for (i, j), cost in np.ndenumerate(self.flow * self.evd)
            if self.flow[i, j] > 0.0
        ]
        return tuple(sorted(pairs, key=lambda pair: -pair.contribution)[:n])

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON types; infinite or undefined values are None."""
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
        """Draw the flow between learned and true intents as ribbons with mass as width and distance as colour."""
        from limiirl.metrics.plotting import draw

        return draw(self, ax)

    def __str__(self) -> str:
        name = self.distance.upper() if self.distance in DISTANCES else self.distance
        head = f"GEVD {self.value:.6g} ({name})"
        if math.isfinite(self.normalised_tight):
            head += f", {100 * self.normalised_tight:.3g} % of the bound {self.bounds[1]:.6g}"
        if math.isfinite(self.normalised) and self.distance in ("evd", "ile"):
            head += f", {100 * self.normalised:.3g} % of the paper's bound"
        if self.interval[1] > self.interval[0]:
            head += f"; {self.interval[0]:.6g} to {self.interval[1]:.6g} over tie-breaking rules"
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
    """Return the GEVD between a true and a learned ensemble; their sizes and weights may differ.

    Parameters
    ----------
    mdp : MDP
    truth, learned : RewardEnsemble
        The arguments are not interchangeable, because losses are measured under the true rewards.
    distance : "evd", "ile", "epic", "dard", callable or (K', K)
        Distance between two intents: a name, a function of (mdp, theta_true, theta_learned), or a matrix.
    tol : float
        Tolerance for ties in EVD and ILE; see `evd`.

    Examples
    --------
    >>> from limiirl.worlds import ElementWorld
    >>> world = ElementWorld()
    >>> halves = RewardEnsemble([1 / 6, 1 / 6, 1 / 3, 1 / 3], world.ensemble.thetas[[0, 0, 2, 1]])
    >>> gevd(world.mdp, world.ensemble, halves).value
    0.0
    >>> guess = RewardEnsemble([1.0], [[0.0] * 5])
    >>> g = gevd(world.mdp, world.ensemble, guess)
    >>> round(g.value, 1), [round(end, 1) for end in g.interval], round(g.normalised, 3)
    (185.3, [0.0, 970.5], 0.185)
    """
    rho_true, thetas_true = _unpack_ensemble(mdp, truth, "truth")
    rho, thetas = _unpack_ensemble(mdp, learned, "learned")
    if isinstance(distance, str) and distance in ("evd", "ile"):
        return _compute_by_planning(mdp, (rho_true, thetas_true), (rho, thetas), distance, tol)
    if isinstance(distance, str):
        if distance not in DISTANCES:
            rule = f"must be one of {', '.join(DISTANCES)}, a callable or a matrix"
            raise InvalidParameter.of("distance", distance, rule)
        costs, name, bound = shaping_distances(mdp, thetas_true, thetas, distance), distance, 1.0
    else:
        costs, name = _custom_distances(mdp, thetas_true, thetas, distance)
        bound = math.inf
    flow = solve_transport(costs, rho_true, rho)
    value = float((flow * costs).sum())
    normalised = _normalise(value, bound)
    return GEVD(value, normalised, normalised, (0.0, bound), (value, value), flow, costs, name)


def _unpack_ensemble(mdp: MDP, ensemble: RewardEnsemble, name: str) -> tuple[FloatArray, FloatArray]:
    """Validate an ensemble; return its normalised weights (K,) and its rewards (K, d)."""
    if not isinstance(ensemble, RewardEnsemble):
        raise InvalidParameter.of(name, type(ensemble).__name__, "must be a RewardEnsemble, such as mixture.ensemble_")
    check_type(mdp, "mdp", MDP)
    with prefix_errors(name, 0):
        return ensemble.weights / ensemble.weights.sum(), mdp.check_thetas(ensemble.thetas)


def _compute_by_planning(
    mdp: MDP, truth: tuple[FloatArray, FloatArray], learned: tuple[FloatArray, FloatArray], distance: str, tol: float
) -> GEVD:
    (rho_true, thetas_true), (rho, thetas) = truth, learned
    weights = mdp.p0 if distance == "evd" else np.ones(mdp.n_states)
    optimum = compute_optimal_values(mdp, thetas_true)
    regrets = compute_regrets(mdp, optimum, thetas_true, thetas, weights, tol=tol)
    flow = solve_transport(regrets.value, rho_true, rho)
    value = float((flow * regrets.value).sum())
    ends = [
        value if np.array_equal(costs, regrets.value) else transport_cost(costs, rho_true, rho)
        for costs in (regrets.low, regrets.high)
    ]
    used = np.flatnonzero(rho_true)
    at, counted = np.flatnonzero(weights), weights[weights > 0.0]
    worst = sum(rho_true[i] * counted @ (optimum[i] - worst_values(mdp, thetas_true[i]))[at] for i in used)
    tight = max(float(worst), value)
    loose = float(weights.sum()) * _compute_paper_bound(mdp, thetas_true[used], weights)
    interval = (min(ends[0], value), max(ends[1], value))
    normalised = _normalise(value, loose), _normalise(value, tight)
    return GEVD(value, *normalised, (0.0, tight), interval, flow, regrets.value, distance)


def _compute_paper_bound(mdp: MDP, thetas: FloatArray, weights: FloatArray) -> float:
    """Return ``max_k Delta_k / (1 - gamma)``.

    Delta_k is the range of the rewards of states that are reachable from states with nonzero weight.
    """
    reached = reachable_states(mdp, np.flatnonzero(weights))
    r_state, r_edge = mdp.rewards(thetas)
    steps = r_state[mdp.src] if r_edge is None else r_state[mdp.src] + r_edge
    last = r_state[mdp.terminal & reached]
    # The reward after a terminal state is 0.
    earned = np.concatenate([steps[reached[mdp.src]], last, np.zeros((min(len(last), 1), len(thetas)))])
    width = float(np.ptp(earned, axis=0).max())
    if mdp.gamma == 1.0:
        return math.inf if width > 0.0 else 0.0
    return width / (1.0 - mdp.gamma)


def _custom_distances(
    mdp: MDP, truth: FloatArray, learned: FloatArray, distance: Distance | ArrayLike
) -> tuple[FloatArray, str]:
    """Return the validated costs (K', K) and the name of a custom distance."""
    shape = (len(truth), len(learned))
    if callable(distance):
        costs = np.array([[float(distance(mdp, true, theta)) for theta in learned] for true in truth])
        name = str(getattr(distance, "__name__", type(distance).__name__))
    else:
        costs, name = as_floats(distance, "distance"), "matrix"
    if costs.shape != shape:
        rule = f"must have shape {shape}: one row per true intent, one column per learned intent"
        raise InvalidParameter.of("distance", costs.shape, rule)
    check_each(np.isfinite(costs) & (costs >= 0.0), costs, "distance", "must be finite and nonnegative")
    return costs, name


def _normalise(value: float, bound: float) -> float:
    """Return value / bound: 0 if the value is 0, NaN if the bound is infinite."""
    if not math.isfinite(bound):
        return math.nan
    return 0.0 if value == 0.0 else value / bound


def _finite_or_none(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
