"""`DestinationMaxEnt`: maximum entropy IRL over the paths to a known destination, exactly (Ziebart et al. 2008)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator

from limiirl._estimator import NoMetadataRouting
from limiirl._typing import FloatArray, IntArray
from limiirl._validation import as_generator, check_choice, check_count, check_positive
from limiirl.demos import Demonstrations, Groups
from limiirl.errors import InvalidParameter
from limiirl.irl import validate
from limiirl.irl.base import SUFFICIENT_STATISTICS, Capabilities, FitResult
from limiirl.irl.destination.identifiability import nulls, spread
from limiirl.irl.destination.likelihood import ObservedTrips, arrives_once, log_weight_onward
from limiirl.irl.destination.path_sums import GoalValues
from limiirl.irl.destination.problem import DestinationProblem
from limiirl.irl.device import choose_device
from limiirl.irl.maxent.likelihood import ObservedPaths
from limiirl.irl.maxent.viterbi import heaviest_of_any_length
from limiirl.irl.optim import SOLVERS
from limiirl.irl.problem import FitProblem
from limiirl.kernels.elimination.numeric import walk
from limiirl.mdp import MDP


class DestinationMaxEnt(Capabilities, NoMetadataRouting, BaseEstimator):  # type: ignore[misc]
    r"""The maximum entropy model of ways to a goal, p(tau | s_1, g) = q(tau) exp(theta . F(tau)) / Z(s_1, g; theta).

    The sum Z runs over *all* trajectories from s_1 that end at their first arrival in g, of any length, exactly. The
    goal of a demonstration is its last state, and what is modelled is how it got there from its first: neither end
    says anything about the reward. The discount must be 1. A demonstration of one state has probability 1; one that is
    in its last state before its end is refused.

    theta is feasible if the sum over all closed walks in the MDP is finite, whether or not they touch the goals at
    hand: then every goal has a finite Z, also those that no demonstration has. Fits keep to feasible parameters. Where
    choices are near each other, as in a city, costs a kilometre are not enough: `limiirl.irl.with_choices` adds a
    feature that is.

    Parameters
    ----------
    bounds : (low, high), (d, 2) array, or None
        Bounds on theta.
    ridge : float
        Adds ridge / 2 times the squared length of theta to minus the mean log-likelihood.
    solver : {"bfgs", "newton", "lbfgs"}
        Projected BFGS; projected Newton with central differences of the exact gradient, which takes 2 d gradients a
        step; or L-BFGS-B, which loses its memory at every infinite sum and may stop far from the optimum.
    gtol : float
        Largest component of the projected gradient at the solution, relative to the feature's demonstrated mean where
        that is above 1.
    max_evaluations : int
        Cap on values with gradients in `fit`; the best point is kept.
    device : {"cpu", "gpu", "auto"}
        Where fits and log-probabilities are computed; "auto" takes a GPU where one works and the MDP is large enough to
        gain. What is asked for one reward (flows, samples, values to a goal) is computed on the CPU in any case.

    Attributes
    ----------
    result_ : FitResult
        What the last `fit` found, with directions that cannot be identified.
    results_ : list of FitResult
        What the last `fit` or `fit_many` found for each column of weights, without the directions.

    Examples
    --------
    Two ways lead from state 0 to state 3, and one may turn back on the way.

    >>> phi = [[1, 0], [1, 1], [1, 0], [0, 0]]
    >>> mdp = MDP.from_edges([0, 0, 1, 1, 2, 2], [1, 2, 0, 3, 0, 3], state_features=phi)
    >>> demos = Demonstrations.from_lists([[0, 2, 3], [0, 2, 3], [0, 2, 3], [0, 1, 3]])
    >>> theta = DestinationMaxEnt(bounds=(-5, 0)).fit(mdp, demos)
    >>> print(theta.round(2))  # nobody turns back, and three of four go by state 2: the log-odds are log 3
    [-5.  -1.1]
    """

    null_directions_vary = False

    supports: ClassVar[frozenset[str]] = frozenset({SUFFICIENT_STATISTICS, "prefix", "sample"})

    def __init__(
        self,
        bounds: Any = (-10.0, 0.0),
        *,
        ridge: float = 0.0,
        solver: str = "bfgs",
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
        """Return (N,): whether each demonstration ends at the first arrival in its last state.

        Examples
        --------
        >>> DestinationMaxEnt().admits(Demonstrations.from_lists([[0, 1], [1, 0, 1]]))
        array([ True, False])
        """
        return arrives_once(demos)

    def fit(
        self, mdp: MDP, demos: Demonstrations, weights: ArrayLike | None = None, start: ArrayLike | None = None
    ) -> FloatArray:
        """Return the parameters (d,) that maximise the weighted log-likelihood within the bounds.

        Parameters
        ----------
        weights : (N,), optional
            How much each demonstration counts; equal by default.
        start : (d,), optional
            Where to begin: a previous solution saves most of the work. By default 0, or else the least of a sequence
            of costs on all features that is feasible.
        """
        given = validate.weights(weights, validate.demonstrations(demos), columns=False)
        result = self._fit(mdp, demos, given, None if start is None else validate.one_theta(mdp, start)[None])[0]
        validate.warn_unless_converged(result)
        used = given[:, 0] > 0
        directions = nulls(mdp, demos.start_states[used], demos.last_states[used])
        self.result_ = validate.identified(result, directions, self.bounds, mdp)
        self.theta_ = self.result_.theta
        return self.theta_

    def fit_many(
        self, mdp: MDP, demos: Demonstrations, weights: ArrayLike, starts: ArrayLike | None = None
    ) -> FloatArray:
        """Return parameters (K, d), one row for each column of weights (N, K); `starts` is (K, d)."""
        given = validate.weights(weights, validate.demonstrations(demos), columns=True)
        results = self._fit(mdp, demos, given, None if starts is None else mdp.check_thetas(starts))
        return np.array([result.theta for result in results])

    def log_prob(self, mdp: MDP, thetas: ArrayLike, demos: Demonstrations) -> FloatArray:
        """Return the log-probability (N, K) of each demonstration given its two ends, under each of thetas (K, d).

        Where actions were not recorded, it is that of the states, summed over the actions that join them.
        """
        return ObservedTrips(mdp, demos).log_prob(self._values(mdp), mdp.check_thetas(thetas))

    def null_directions(self, mdp: MDP, theta: ArrayLike) -> FloatArray:
        """Return an orthonormal basis (m, d) of the directions in which the probability of every way stays the same.

        They do not depend on theta. Looked at are ways from all states to some goals; `fit` looks at those between the
        two ends of each demonstration.

        Examples
        --------
        All ways to state 3 collect its feature, the first, once.

        >>> mdp = MDP.from_edges([0, 1, 0, 2], [1, 3, 2, 3], state_features=[[0, 0], [0, 1], [0, 0], [1, 0]])
        >>> DestinationMaxEnt().null_directions(mdp, [0, 0])
        array([[1., 0.]])
        """
        validate.one_theta(mdp, theta)
        everywhere = np.arange(mdp.n_states)
        goals = spread(everywhere, mdp.n_states)
        return nulls(mdp, np.tile(everywhere, goals.size), np.repeat(goals, mdp.n_states))

    def log_value(self, mdp: MDP, thetas: ArrayLike, goals: ArrayLike) -> FloatArray:
        """Return log beta_g(s) (G, S, K): the log-weight of all ways from each state to each of the goals (G,).

        The reward of s itself is not counted. 0 at the goal, and -inf where no way leads to it.

        Examples
        --------
        >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2])
        >>> np.exp(DestinationMaxEnt().log_value(mdp, [0.0, 0.0, 0.0], [2, 1]))[:, :, 0]
        array([[2., 1., 1.],
               [1., 1., 0.]])
        """
        values, checked, wanted = self._values(mdp), mdp.check_thetas(thetas), _states(mdp, goals, "goals")
        found = np.empty((wanted.size, mdp.n_states, checked.shape[0]))
        for k, theta in enumerate(checked):
            solution = values.known(theta)
            for i, goal in enumerate(wanted):
                found[i, :, k] = solution.values_to(int(goal))
        return found

    def policy_to(self, mdp: MDP, theta: ArrayLike, goal: int) -> FloatArray:
        """Return (E,) the probability of each edge of the MDP for those bound for the goal.

        0 for the edges of the goal itself, and of states from which no way leads to it.

        Examples
        --------
        >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2])
        >>> DestinationMaxEnt().policy_to(mdp, [0.0, 0.0, 0.0], 2)
        array([0.5, 0.5, 1. ])
        """
        return self._values(mdp).known(validate.one_theta(mdp, theta)).policy_to(validate.state(mdp, goal, "goal"))

    def expected_flow(
        self, mdp: MDP, theta: ArrayLike, starts: ArrayLike, goals: ArrayLike, weights: ArrayLike | None = None
    ) -> FloatArray:
        """Return (E,) the expected number of uses of each edge by trips between pairs (m,) of starts and goals.

        Parameters
        ----------
        weights : (m,), optional
            Trips of each pair; 1 by default.

        Examples
        --------
        >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2])
        >>> DestinationMaxEnt().expected_flow(mdp, [0.0, 0.0, 0.0], [0, 1], [2, 2], [10, 1])
        array([5., 5., 6.])
        """
        begin, end = _pairs(mdp, starts, goals)
        given = np.ones(begin.size) if weights is None else np.asarray(weights, dtype=np.float64)
        if given.shape != begin.shape or not np.all(np.isfinite(given) & (given >= 0.0)):
            raise InvalidParameter(
                f"weights must be {begin.size} finite numbers, none negative, one for each pair.",
                parameter="weights",
                value=weights,
            )
        found = self._values(mdp).known(validate.one_theta(mdp, theta)).ways(begin, end, given)
        _connected(found.log_value, begin, end)
        assert found.flow is not None
        return found.flow

    def sample(
        self,
        mdp: MDP,
        theta: ArrayLike,
        starts: ArrayLike,
        goals: ArrayLike | None = None,
        seed: int | np.random.Generator | None = None,
    ) -> Demonstrations:
        """Draw one way for each pair (m,) of a start and a goal, exactly.

        Examples
        --------
        >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2])
        >>> drawn = DestinationMaxEnt().sample(mdp, [0.0, 0.0, 0.0], np.zeros(1000, int), np.full(1000, 2), seed=0)
        >>> drawn.lengths.mean().round(1)
        np.float64(2.5)
        """
        begin, end = _pairs(mdp, starts, goals)
        solution, rng = self._values(mdp).known(validate.one_theta(mdp, theta)), as_generator(seed)
        edges: list[IntArray] = [np.empty(0, dtype=np.int64)] * begin.size
        for goal in np.unique(end):
            mine, log_value = np.flatnonzero(end == goal), solution.values_to(int(goal))
            _connected(log_value[begin[mine]], begin[mine], end[mine])
            share = solution.policy_to(int(goal), log_value)
            for i in mine:
                edges[i] = walk(mdp.out_ptr, mdp.dst, share, int(begin[i]), int(goal), rng)
        return _along(mdp, begin, edges)

    def most_likely(self, mdp: MDP, theta: ArrayLike, start: int, goal: int) -> tuple[Demonstrations, float]:
        """Return the most probable way from a start to a goal, and its log-probability given the two.

        Examples
        --------
        >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2])
        >>> demos, log_prob = DestinationMaxEnt(bounds=None).most_likely(mdp, [0.0, 1.0, 0.0], 0, 2)
        >>> demos.states, round(log_prob, 4)  # state 1 is worth a detour
        (array([0, 1, 2]), -0.3133)
        """
        s, g, one = (
            validate.state(mdp, start, "start"),
            validate.state(mdp, goal, "goal"),
            validate.one_theta(mdp, theta),
        )
        log_value = self._values(mdp).known(one).values_to(g)
        _connected(log_value[[s]], np.array([s]), np.array([g]))
        found = heaviest_of_any_length(mdp, one, log_value, s, g)
        first = float(mdp.rewards(one)[0][s, 0])
        return _along(mdp, np.array([s]), [found.edges]), found.log_weight - first - float(log_value[s])

    def log_prob_prefix(
        self, mdp: MDP, thetas: ArrayLike, demos: Demonstrations, goals: ArrayLike | None = None
    ) -> FloatArray:
        """Return the log-probability (N, K) that a trip to a goal (N,) begins with each demonstration, itself included.

        -inf where the demonstration has passed the goal, or no way leads there from its end.

        Examples
        --------
        >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2])
        >>> begun = Demonstrations.from_lists([[0], [0, 1], [0, 1, 2]])
        >>> np.exp(DestinationMaxEnt().log_prob_prefix(mdp, [0.0, 0.0, 0.0], begun, [2, 2, 1])).ravel()
        array([1. , 0.5, 0. ])
        """
        wanted, checked = _states(mdp, goals, "goals"), mdp.check_thetas(thetas)
        if wanted.size != len(demos):
            raise InvalidParameter(
                f"There must be a goal for each of {len(demos)} demonstrations; got {wanted.size}.",
                parameter="goals",
                value=wanted.size,
            )
        found = log_weight_onward(ObservedPaths(mdp, demos, by_start=True), checked)
        passed = demos.states == np.repeat(wanted, demos.lengths)
        passed[demos.offsets[1:] - 1] = False
        over = np.add.reduceat(passed, demos.offsets[:-1]) > 0 if len(demos) else np.zeros(0, dtype=bool)
        for k, theta in enumerate(checked):
            solution = self._values(mdp).known(theta)
            both = np.concatenate([demos.last_states, demos.start_states])
            ahead, whole = np.split(solution.ways(both, np.tile(wanted, 2)).log_value, 2)
            # Where no way leads from the end, it may be that none leads from the start either.
            possible = ~over & (ahead > -np.inf)
            found[:, k] = np.where(possible, found[:, k] + ahead - np.where(possible, whole, 0.0), -np.inf)
        return found

    def make_problem(self, mdp: MDP, demos: Demonstrations, units: Groups) -> FitProblem:
        """Return the model with the data of a mixture, for `IntentMixture`."""
        if SUFFICIENT_STATISTICS not in self.supports:
            return FitProblem(self, mdp, demos, units)  # a subclass with a likelihood of its own
        return self._problem(mdp, demos, units)

    def features(self, mdp: MDP, demos: Demonstrations) -> FloatArray:
        """Return (N, d): the score of each demonstration under one reward for all, which is what a warm start clusters.

        See `DestinationProblem.features`.
        """
        return self._problem(mdp, demos, Groups.from_labels(None, len(demos))).features()

    def _problem(self, mdp: MDP, demos: Demonstrations, units: Groups) -> DestinationProblem:
        check_choice(self.solver, "solver", tuple(SOLVERS))
        return DestinationProblem(self, mdp, validate.demonstrations(demos), units, self._values(mdp))

    def _fit(self, mdp: MDP, demos: Demonstrations, weights: FloatArray, starts: FloatArray | None) -> list[FitResult]:
        """Minimise the objective of each column of weights (N, K), and forget an older `result_`."""
        ready = self._problem(mdp, demos, Groups.from_labels(None, len(demos)))
        n_intents = weights.shape[1]
        if starts is not None and starts.shape[0] != n_intents:
            raise InvalidParameter(
                f"There must be one start for each of {n_intents} columns of weights; there are {starts.shape[0]}.",
                parameter="starts",
                value=starts.shape,
            )
        ridge = np.full(n_intents, check_positive(self.ridge, "ridge", zero=True))
        cap = check_count(self.max_evaluations, "max_evaluations")
        self.results_ = ready.search(weights, ridge, starts, cap)
        for name in ("result_", "theta_"):  # of an earlier fit
            self.__dict__.pop(name, None)
        return self.results_

    def _values(self, mdp: MDP) -> GoalValues:
        validate.mdp(mdp)
        device = choose_device(self.device, mdp.n_states + mdp.n_edges)
        if device is None:
            return GoalValues(mdp)
        from limiirl.irl.destination.gpu import GpuGoalValues

        return GpuGoalValues(mdp, device)


def _states(mdp: MDP, given: ArrayLike | np.random.Generator | None, name: str) -> IntArray:
    """Return numbers of states (m,)."""
    if given is None or isinstance(given, np.random.Generator):  # as from a mixture, which knows of no destinations
        raise InvalidParameter(
            f"DestinationMaxEnt needs {name}: it says how trips get from state to state, not where they begin and "
            "end. Call the model itself (mixture.irl_), or use limiirl.forecast.",
            parameter=name,
        )
    found = np.atleast_1d(np.asarray(given))
    if found.ndim != 1 or (found.size and not np.issubdtype(found.dtype, np.integer)):
        raise InvalidParameter(
            f"{name} must be the numbers of states; got {found.dtype} of shape {found.shape}.",
            parameter=name,
            value=given,
        )
    bad = (found < 0) | (found >= mdp.n_states)
    if np.any(bad):
        i = int(np.argmax(bad))
        raise InvalidParameter(
            f"{name} must be numbers of states, 0 to {mdp.n_states - 1}; number {i} is {found[i]}. Check their source.",
            parameter=name,
            value=int(found[i]),
            index=i,
        )
    return found.astype(np.int64)


def _pairs(mdp: MDP, starts: ArrayLike, goals: ArrayLike | None) -> tuple[IntArray, IntArray]:
    begin, end = _states(mdp, starts, "starts"), _states(mdp, goals, "goals")
    if begin.size != end.size:
        raise InvalidParameter(
            f"Each start needs a goal; there are {begin.size} starts and {end.size} goals.",
            parameter="goals",
            value=end.size,
        )
    return begin, end


def _connected(log_value: FloatArray, starts: IntArray, goals: IntArray) -> None:
    if np.any(log_value == -np.inf):
        i = int(np.argmin(log_value))
        raise InvalidParameter(
            f"No way leads from state {starts[i]} to state {goals[i]}. Choose other ends, or a connected network.",
            parameter="goals",
            value=int(goals[i]),
            index=i,
        )


def _along(mdp: MDP, starts: IntArray, edges: list[IntArray]) -> Demonstrations:
    """Return demonstrations that follow edges from each start."""
    states = [np.concatenate([[s], mdp.dst[way]]) for s, way in zip(starts, edges, strict=True)]
    actions = [mdp.act[way].astype(np.int64) for way in edges]
    return Demonstrations.from_lists(states, actions)


NAME = "choices"


def with_choices(mdp: MDP) -> MDP:
    """Return the MDP with one more action feature, "choices": the log of the number of actions to choose from.

    0 where there is no choice. At a parameter of -1 every choice is weighed as by a random walk, which prefers none of
    its actions: then any cost on every cycle, however small, makes all sums over ways finite. A fit says how much a
    choice costs beyond, or below, that.

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
    given = mdp.action_features
    if given is None:
        joined = column
    elif isinstance(given, np.ndarray):
        joined = np.hstack([given, column])
    else:
        joined = sparse.hstack([given, sparse.csr_array(column)], format="csr")
    at = mdp.n_state_features + mdp.n_action_features
    names = (*mdp.feature_names[:at], NAME, *mdp.feature_names[at:])
    return mdp.replace(action_features=joined, feature_names=names)
