"""`DestinationMaxEnt`: exact maximum entropy IRL over the paths to a known destination (Ziebart et al. 2008).

With deterministic transitions, the model is the recursive logit model of route choice (Fosgerau, Frejinger and
Karlström 2013). Its value function V satisfies exp V(s) = sum over all paths from s to the destination of exp(reward),
and P(s' | s) is the logit of r(s, s') + V(s').
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse.csgraph import breadth_first_order

from limiirl._typing import BoolArray, FloatArray, IntArray
from limiirl._validation import as_floats, as_generator, check_choice, check_count
from limiirl.demos import Demonstrations, Groups
from limiirl.errors import InvalidParameter
from limiirl.irl import validate
from limiirl.irl.base import SUFFICIENT_STATISTICS, FitResult
from limiirl.irl.destination.by_goal import ConditionalGoalValues
from limiirl.irl.destination.dense import make_goal_values
from limiirl.irl.destination.likelihood import ObservedTrips, arrives_once, log_weight_after_start
from limiirl.irl.destination.path_sums import GoalValues
from limiirl.irl.destination.problem import FEW_FEATURES, DestinationProblem
from limiirl.irl.estimator import LinearRewardModel, choose_device
from limiirl.irl.identifiability import null_directions
from limiirl.irl.maxent.trajectories import heaviest_edges
from limiirl.irl.observed_paths import ObservedPaths
from limiirl.irl.optim import SOLVERS
from limiirl.irl.problem import FitProblem, Regulariser
from limiirl.kernels.elimination.numeric import sample_path
from limiirl.mdp import MDP, edge_parts, find_reachable


class DestinationMaxEnt(LinearRewardModel):
    r"""Maximum entropy model of paths to a goal, p(tau | s_1, g) = q(tau) exp(theta . F(tau)) / Z(s_1, g; theta).

    The partition function Z is the exact sum over *all* paths, of unbounded length, from s_1 to their first arrival in
    g. The model is conditioned on the first state s_1 and the goal g, which is the last state of a demonstration. The
    discount must be 1, and a demonstration may visit its last state only at the end.

    A parameter vector theta is feasible if the sum over all closed paths of the MDP is finite; then Z is finite for
    every goal. A fit returns a feasible theta. In dense networks such as cities, rewards that only penalise distance
    may be infeasible; `limiirl.irl.with_choices` adds a feature that makes them feasible.

    Parameters
    ----------
    bounds : (low, high), (d, 2) array, or None
        Bounds on theta. The default is (-10, 0), as for `MaxEnt`, because positive rewards on cycles are infeasible.
    ridge : float or mapping of str to float
        Coefficient of the penalty ``|theta|^2 / 2`` that is added to the negative mean log-likelihood. It is 0 by
        default, because the bounds keep theta finite. A mapping has
        one coefficient per pattern of feature names, such as ``{"link *": 0.01}``. The first pattern that matches a
        name applies; features without a pattern are not penalised.
    solver : {"auto", "bfgs", "newton", "lbfgs"}
        Projected BFGS, projected Newton, or L-BFGS-B. "auto" is projected BFGS for up to 200 features, which remembers
        cutting planes of the feasible set, and L-BFGS-B for more features, because it stores no matrices of d x d.
        Projected Newton requires 2 d gradients per step for the Hessian.
    gtol : float
        Tolerance on the components of the projected gradient. A component is relative to the mean of its feature over
        the demonstrations if this mean exceeds 1. The default is larger than for other models, because gradients are
        less accurate near the boundary of the feasible set.
    max_evaluations : int
        Maximum number of evaluations in `fit`. If it is reached, the best point is returned.
    device : {"cpu", "gpu", "auto"}
        Device for fits and log-probabilities; "auto" uses a GPU if one works and the MDP is large. Flows, samples and
        values for a single theta are always computed on the CPU.

    Attributes
    ----------
    theta_ : (d,)
        Result of the last `fit`.
    result_ : FitResult
        Details of the last `fit`, including null directions.
    results_ : list of FitResult
        Details of the last `fit` or `fit_many`, one per column of weights.

    Examples
    --------
    Two paths lead from state 0 to state 3, and both may turn back.

    >>> phi = [[1, 0], [1, 1], [1, 0], [0, 0]]
    >>> mdp = MDP.from_edges([0, 0, 1, 1, 2, 2], [1, 2, 0, 3, 0, 3], state_features=phi)
    >>> demos = Demonstrations.from_lists([[0, 2, 3], [0, 2, 3], [0, 2, 3], [0, 1, 3]])
    >>> theta = DestinationMaxEnt(bounds=(-5, 0)).fit(mdp, demos)
    >>> print(theta.round(2))  # none turns back; three of four visit state 2: the log-odds are log 3
    [-5.  -1.1]
    """

    null_directions_vary = False

    # `sample` and `log_prob_prefix` require goals, which a mixture does not provide.
    supports: ClassVar[frozenset[str]] = frozenset({SUFFICIENT_STATISTICS, "most_likely"})

    def __init__(
        self,
        bounds: Any = (-10.0, 0.0),
        *,
        ridge: float | Mapping[str, float] = 0.0,
        solver: str = "auto",
        gtol: float = 1e-5,
        max_evaluations: int = 1000,
        device: str = "cpu",
    ) -> None:
        self.bounds = bounds
        self.ridge = ridge
        self.solver = solver
        self.gtol = gtol
        self.max_evaluations = max_evaluations
        self.device = device

    def admits(self, demos: Demonstrations) -> NDArray[np.bool_]:
        """Return the mask (N,) of demonstrations that visit their last state only at the end.

        Examples
        --------
        >>> DestinationMaxEnt().admits(Demonstrations.from_lists([[0, 1], [1, 0, 1]]))
        array([ True, False])
        """
        validate.check_demonstrations(demos)
        return arrives_once(demos)

    def _null_directions_of_fit(
        self, mdp: MDP, demos: Demonstrations, weights: FloatArray, theta: FloatArray
    ) -> FloatArray:
        del theta
        used, columns = weights > 0, np.ones(mdp.n_features, dtype=bool)
        if mdp.n_features > FEW_FEATURES:  # the search takes O(d^3); a ridge determines the rewards of many constants
            columns = Regulariser.from_model(self, mdp, len(demos)).ridge == 0.0
        own = null_directions_between(mdp, demos.start_states[used], demos.last_states[used], columns)
        directions = np.zeros((len(own), mdp.n_features))
        directions[:, columns] = own
        return directions

    def log_prob(self, mdp: MDP, thetas: ArrayLike, demos: Demonstrations) -> FloatArray:
        """Return the log-probability (N, K) of each demonstration, given its first and last state, for thetas (K, d).

        The probability is summed over unrecorded actions.
        """
        validate.mdp(mdp)
        demos = validate.in_numbers_of(mdp, demos)
        trips = ObservedTrips.from_demos(mdp, demos)
        return trips.log_prob(self._values(mdp, trips.starts, trips.goals), mdp.check_thetas(thetas))

    def null_directions(self, mdp: MDP, theta: ArrayLike) -> FloatArray:
        """Return an orthonormal basis (m, d) of the directions that leave all probabilities unchanged, for every theta.

        Paths from all states to a subset of goals are compared; in `fit`, only paths between the first and last states
        of the demonstrations are compared.

        Examples
        --------
        All paths to state 3 collect its feature, the first, once.

        >>> mdp = MDP.from_edges([0, 1, 0, 2], [1, 3, 2, 3], state_features=[[0, 0], [0, 1], [0, 0], [1, 0]])
        >>> DestinationMaxEnt().null_directions(mdp, [0, 0])
        array([[1., 0.]])
        """
        validate.one_theta(mdp, theta)
        states = np.arange(mdp.n_states)
        if mdp.goal_features:
            return null_directions_between(mdp, *condition_pairs(mdp))
        goals = subsample_goals(states, mdp)
        return null_directions_between(mdp, np.tile(states, goals.size), np.repeat(goals, mdp.n_states))

    def log_value(self, mdp: MDP, thetas: ArrayLike, goals: ArrayLike, start: int | None = None) -> FloatArray:
        """Return log beta_g(s) (G, S, K): the log total weight of the paths from each state to each of the goals (G,).

        The reward of s itself is excluded. The value is 0 at the goal, and -inf if the goal is unreachable. If features
        depend on the start of a path, `start` is required, also in `policy_to`.

        Examples
        --------
        >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2])
        >>> np.exp(DestinationMaxEnt().log_value(mdp, [0.0, 0.0, 0.0], [2, 1]))[:, :, 0]
        array([[2., 1., 1.],
               [1., 1., 0.]])
        """
        values, checked, ends = self._values(mdp), mdp.check_thetas(thetas), validate.states(mdp, goals, "goals")
        log_beta = np.empty((ends.size, mdp.n_states, checked.shape[0]))
        for k, theta in enumerate(checked):
            for i, goal in enumerate(ends):
                log_beta[i, :, k] = values.solve_at(theta, start, int(goal)).values_to(int(goal))
        return log_beta

    def policy_to(self, mdp: MDP, theta: ArrayLike, goal: int, start: int | None = None) -> FloatArray:
        """Return the probability (E,) of each edge, given its source state and the goal.

        The probability is 0 if the source is the goal, or if the goal is unreachable from the source.

        Examples
        --------
        >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2])
        >>> DestinationMaxEnt().policy_to(mdp, [0.0, 0.0, 0.0], 2)
        array([0.5, 0.5, 1. ])
        """
        values, one, g = self._values(mdp), validate.one_theta(mdp, theta), validate.state(mdp, goal, "goal")
        return values.solve_at(one, start, g).policy_to(g)

    def expected_flow(
        self, mdp: MDP, theta: ArrayLike, starts: ArrayLike, goals: ArrayLike, weights: ArrayLike | None = None
    ) -> FloatArray:
        """Return the expected number of traversals (E,) of each edge by trips between pairs (m,) of a start and a goal.

        Parameters
        ----------
        weights : (m,), optional
            Number of trips per pair; 1 by default.

        Examples
        --------
        >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2])
        >>> DestinationMaxEnt().expected_flow(mdp, [0.0, 0.0, 0.0], [0, 1], [2, 2], [10, 1])
        array([5., 5., 6.])
        """
        begin, end = validate.pairs(mdp, starts, goals)
        trips = np.ones(begin.size) if weights is None else as_floats(weights, "weights")
        if trips.shape != begin.shape or not np.all(np.isfinite(trips) & (trips >= 0.0)):
            raise InvalidParameter.of("weights", weights, f"must be {begin.size} finite nonnegative values")
        sums = self._values(mdp, begin, end).pair_sums(validate.one_theta(mdp, theta), begin, end, trips)
        _check_reachable(sums.log_value, begin, end)
        assert sums.flow is not None
        return sums.flow

    def sample(
        self,
        mdp: MDP,
        theta: ArrayLike,
        starts: ArrayLike,
        goals: ArrayLike | None = None,
        seed: int | np.random.Generator | None = None,
    ) -> Demonstrations:
        """Draw one path from the model for each pair (m,) of a start and a goal.

        Examples
        --------
        >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2])
        >>> drawn = DestinationMaxEnt().sample(mdp, [0.0, 0.0, 0.0], np.zeros(1000, int), np.full(1000, 2), seed=0)
        >>> drawn.lengths.mean().round(1)
        np.float64(2.5)
        """
        begin, end = validate.pairs(mdp, starts, goals)
        values, one, rng = self._values(mdp), validate.one_theta(mdp, theta), as_generator(seed)
        edges: list[IntArray] = [np.empty(0, dtype=np.int64)] * begin.size
        for mine, start, goal in group_conditions(mdp, begin, end):
            solution = values.solve_at(one, start, goal)
            log_value = solution.values_to(goal)
            _check_reachable(log_value[begin[mine]], begin[mine], end[mine])
            prob = solution.policy_to(goal, log_value)
            for i in mine:
                edges[i] = sample_path(mdp.out_ptr, mdp.dst, prob, int(begin[i]), goal, rng)
        return _from_edges(mdp, begin, edges)

    def most_likely(self, mdp: MDP, theta: ArrayLike, start: int, goal: int) -> tuple[Demonstrations, float]:
        """Return the most probable path from a start to a goal, and its log-probability given start and goal.

        Examples
        --------
        >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2])
        >>> demos, log_prob = DestinationMaxEnt(bounds=None).most_likely(mdp, [0.0, 1.0, 0.0], 0, 2)
        >>> demos.states, round(log_prob, 4)  # state 1 is worth a detour
        (array([0, 1, 2]), -0.3133)
        """
        s, g = validate.state(mdp, start, "start"), validate.state(mdp, goal, "goal")
        one = validate.one_theta(mdp, theta)
        sums = self._values(mdp).solve_at(one, s, g)
        log_value, log_w = sums.values_to(g), sums.log_weights()
        if log_value[s] == -np.inf:
            raise InvalidParameter.of("goal", g, f"must be reachable from state {s}")
        best = heaviest_edges(mdp, log_w, log_value, s, g)
        return _from_edges(mdp, np.array([s]), [best]), float(log_w[best].sum() - log_value[s])

    def log_prob_prefix(
        self, mdp: MDP, thetas: ArrayLike, demos: Demonstrations, goals: ArrayLike | None = None
    ) -> FloatArray:
        """Return the log-probability (N, K) that a trip to a goal (N,) begins with each demonstration.

        The value is -inf if the demonstration visits the goal before its last state, or if the goal is unreachable from
        its last state.

        Examples
        --------
        >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2])
        >>> begun = Demonstrations.from_lists([[0], [0, 1], [0, 1, 2]])
        >>> np.exp(DestinationMaxEnt().log_prob_prefix(mdp, [0.0, 0.0, 0.0], begun, [2, 2, 1])).ravel()
        array([1. , 0.5, 0. ])
        """
        demos = validate.in_numbers_of(mdp, demos)
        ends, checked = validate.states(mdp, goals, "goals"), mdp.check_thetas(thetas)
        if ends.size != len(demos):
            raise InvalidParameter.of("goals", ends.size, f"must have {len(demos)} entries, one per demonstration")
        given = ends if mdp.goal_features else None
        log_prob = log_weight_after_start(ObservedPaths.from_demos(mdp, demos, by_start=True, goals=given), checked)
        passed = demos.states == np.repeat(ends, demos.lengths)
        passed[demos.offsets[1:] - 1] = False
        over = np.add.reduceat(passed, demos.offsets[:-1]) > 0 if len(demos) else np.zeros(0, dtype=bool)
        values, both = self._values(mdp), np.concatenate([demos.last_states, demos.start_states])
        for k, theta in enumerate(checked):
            sums = values.pair_sums(theta, both, np.tile(ends, 2), origins=np.tile(demos.start_states, 2))
            rest, whole = np.split(sums.log_value, 2)
            # `whole` may also be -inf if `rest` is.
            possible = ~over & (rest > -np.inf)
            log_prob[:, k] = np.where(possible, log_prob[:, k] + rest - np.where(possible, whole, 0.0), -np.inf)
        return log_prob

    def make_problem(self, mdp: MDP, demos: Demonstrations, units: Groups) -> FitProblem:
        """Return the fit problem of a mixture, for `IntentMixture`."""
        demos = validate.in_numbers_of(mdp, demos)
        if SUFFICIENT_STATISTICS not in self.supports:
            return FitProblem(self, mdp, demos, units)  # a subclass with its own likelihood
        return self._problem(mdp, demos, units)

    def features(self, mdp: MDP, demos: Demonstrations) -> FloatArray:
        """Return the features (N, d) that a warm start clusters; see `DestinationProblem.features`."""
        demos = validate.in_numbers_of(mdp, demos)
        return self._problem(mdp, demos, Groups.from_labels(None, len(demos))).features()

    def _problem(self, mdp: MDP, demos: Demonstrations, units: Groups) -> DestinationProblem:
        check_choice(self.solver, "solver", ("auto", *SOLVERS))
        validate.mdp(mdp)
        trips = ObservedTrips.from_demos(mdp, validate.demonstrations(demos))
        return DestinationProblem(self, mdp, trips, units, self._values(mdp, trips.starts, trips.goals))

    def _fit(self, mdp: MDP, demos: Demonstrations, weights: FloatArray, starts: FloatArray | None) -> list[FitResult]:
        problem = self._problem(mdp, demos, Groups.from_labels(None, len(demos)))
        ridge = np.tile(problem.regulariser.ridge, (weights.shape[1], 1))
        return problem.search(weights, ridge, starts, check_count(self.max_evaluations, "max_evaluations"))

    def _values(self, mdp: MDP, starts: IntArray | None = None, goals: IntArray | None = None) -> GoalValues:
        """Return the path sums of an MDP; `starts` and `goals` (m,) are the pairs that a fit requires to be finite."""
        validate.mdp(mdp)
        if mdp.goal_features:
            none = np.empty(0, dtype=np.int64)
            return ConditionalGoalValues(mdp, none if starts is None else starts, none if goals is None else goals)
        device = choose_device(self.device, mdp.n_states + mdp.n_edges)
        if device is None:
            return make_goal_values(mdp)
        from limiirl.irl.destination.gpu import GpuGoalValues

        return GpuGoalValues(mdp, device)


def _check_reachable(log_value: FloatArray, starts: IntArray, goals: IntArray) -> None:
    if np.any(log_value == -np.inf):
        i = int(np.argmin(log_value))
        raise InvalidParameter.of("goals", int(goals[i]), f"must be reachable from state {starts[i]}", index=i)


def _from_edges(mdp: MDP, starts: IntArray, edges: list[IntArray]) -> Demonstrations:
    states = [np.concatenate([[s], mdp.dst[path]]) for s, path in zip(starts, edges, strict=True)]
    actions = [mdp.act[path].astype(np.int64) for path in edges]
    return Demonstrations.from_lists(states, actions)


def with_choices(mdp: MDP) -> MDP:
    """Add an action feature "choices", the log of the number of actions in the state, and return the new MDP.

    If the parameter of "choices" is -1, the edge weights are the probabilities of a uniform random walk times the
    exponentiated rewards. Therefore all partition functions are finite if every cycle has a positive cost.

    Examples
    --------
    >>> mdp = with_choices(MDP.from_edges([0, 0, 1, 2], [1, 2, 0, 0]))
    >>> mdp.feature_names
    ('state[0]', 'state[1]', 'state[2]', 'choices')
    >>> mdp.action_features.ravel().round(3)
    array([0.693, 0.693, 0.   , 0.   ])
    """
    validate.mdp(mdp)
    n_actions = np.bincount(mdp.pair_state, minlength=mdp.n_states)
    column = np.log(n_actions[mdp.pair_state])[:, None]
    own = mdp.action_features
    if own is None:
        features = column
    elif isinstance(own, np.ndarray):
        features = np.hstack([own, column])
    else:
        features = sparse.hstack([own, sparse.csr_array(column)], format="csr")
    at = mdp.n_state_features + mdp.n_action_features
    names = (*mdp.feature_names[:at], "choices", *mdp.feature_names[at:])
    return mdp.replace(action_features=features, feature_names=names)


# Maximum number of states times goals to compare, which is divided by the number of blocks of _BLOCK features, and the
# minimum number of goals.
_WORK, _BLOCK = 100_000, 50
_LEAST = 4


def variation(
    mdp: MDP, starts: IntArray, goals: IntArray, columns: BoolArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return the Gram matrix (d, d) of feature differences between paths, and the scale (d,) of each feature.

    With a mask `columns`, d is the number of its features. Paths between the pairs (m,) of starts and goals are
    compared for a subset of the goals; see `subsample_goals`. If paths differ in a direction only for other goals, the
    direction is reported as null.
    """
    columns = np.ones(mdp.n_features, dtype=bool) if columns is None else columns
    d = np.count_nonzero(columns)
    gram, size = np.zeros((d, d)), np.zeros(d)
    phi = edge_features(mdp.without_goal_features)
    conditions = group_conditions(mdp, starts, goals)
    for i in subsample_goals(np.arange(len(conditions)), mdp):
        mine, start, goal = conditions[i]
        origin = None if start is None else np.array([start])
        own = [f.of_edges(int(f.rows(origin, np.array([goal]))[0]), mdp.dst)[:, None] for f in mdp.goal_features]
        differences, squares = _differences(mdp, np.hstack([phi, *own])[:, columns], np.unique(starts[mine]), goal)
        gram += differences.T @ differences
        size += squares
    return gram, np.sqrt(size)


def group_conditions(mdp: MDP, starts: IntArray, goals: IntArray) -> list[tuple[IntArray, int | None, int]]:
    """Return the indices, the start and the goal of the pairs (m,) with equal path sums.

    The start is None unless a feature of the MDP depends on it.
    """
    by_start = any(feature.by_start for feature in mdp.goal_features)
    keys = np.stack([goals, starts] if by_start else [goals])
    distinct, index = np.unique(keys, axis=1, return_inverse=True)
    order = np.argsort(index.ravel(), kind="stable")
    groups = np.split(order, np.searchsorted(index.ravel()[order], np.arange(1, distinct.shape[1])))
    return [
        (mine, int(condition[1]) if by_start else None, int(condition[0]))
        for mine, condition in zip(groups, distinct.T, strict=True)
    ]


def condition_pairs(mdp: MDP) -> tuple[IntArray, IntArray]:
    """Return pairs (m,) of starts and goals for which the goal features of an MDP have values."""
    first = next((f for f in mdp.goal_features if f.by_start), mdp.goal_features[0])
    if first.starts is not None:
        return first.starts, first.goals
    return np.tile(np.arange(mdp.n_states), first.goals.size), np.repeat(first.goals, mdp.n_states)


def subsample_goals(goals: IntArray, mdp: MDP) -> IntArray:
    """Return the goals to compare: all of them, or an evenly spaced subset if there are too many.

    The number is at most 100,000 / S, or fewer with more than 50 features, but at least 4.
    """
    most = max(_LEAST, _WORK // (mdp.n_states * max(1, mdp.n_features // _BLOCK)))
    return goals if goals.size <= most else goals[np.linspace(0, goals.size - 1, most).astype(np.int64)]


def null_directions_between(
    mdp: MDP, starts: IntArray, goals: IntArray, columns: BoolArray | None = None
) -> FloatArray:
    """Return an orthonormal basis of the directions that are null for all pairs (m,) of a start and a goal.

    With a mask `columns` (d,), these are the directions that change the rewards of its features only.
    """
    return null_directions(*variation(mdp, starts, goals, columns))


def edge_features(mdp: MDP) -> FloatArray:
    """Return the sums (E, d) of the features of each edge and its target state."""
    blocks = []
    if mdp.state_features is not None:
        blocks.append(sparse.csr_array(mdp.state_features)[mdp.dst])
    blocks += map(sparse.csr_array, edge_parts(mdp))
    return np.asarray(sparse.hstack(blocks, format="csr").toarray())


def _differences(mdp: MDP, phi: FloatArray, starts: IntArray, goal: int) -> tuple[FloatArray, FloatArray]:
    """Return feature differences (m, d) between paths to the goal, and sums of squared path features (d,).

    Two paths per edge are compared: the edge followed by the tree path from its target, and the tree path from its
    source. The tree is the breadth-first tree towards the goal.
    """
    n, on = mdp.n_states, mdp.src != goal
    tail, head = mdp.dst[on], mdp.src[on]
    back = sparse.csr_array((np.ones(tail.size), (tail, head)), shape=(n, n))
    order, before = breadth_first_order(back, goal)
    arrives = np.zeros(n, dtype=bool)
    arrives[order] = True
    on &= arrives[mdp.dst]
    begins = np.zeros(n, dtype=bool)
    begins[starts[arrives[starts]]] = True
    used = np.flatnonzero(on & find_reachable(mdp.src[on], mdp.dst[on], begins)[mdp.src])
    if used.size == 0:
        return np.zeros((0, phi.shape[1])), np.zeros(phi.shape[1])
    # Features of the tree paths, as potentials.
    key, wanted = mdp.src[used].astype(np.int64) * n + mdp.dst[used], order[1:] * np.int64(n) + before[order[1:]]
    by_key = np.argsort(key, kind="stable")
    at = np.minimum(np.searchsorted(key[by_key], wanted), used.size - 1)
    matched = key[by_key][at] == wanted
    potential = np.zeros((n, phi.shape[1]))
    for s, edge in zip(order[1:][matched], used[by_key[at[matched]]], strict=True):
        potential[s] = phi[edge] + potential[mdp.dst[edge]]
    differences = phi[used] + potential[mdp.dst[used]] - potential[mdp.src[used]]
    squares = np.sum(phi[used] ** 2 + potential[mdp.src[used]] ** 2, axis=0)
    return differences, squares
