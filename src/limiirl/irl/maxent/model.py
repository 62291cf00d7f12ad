"""`MaxEnt`: maximum entropy IRL over whole trajectories, exactly (Ziebart et al. 2008; paper, section 3)."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from limiirl._typing import FloatArray
from limiirl._validation import as_generator, check_choice, check_count, check_positive
from limiirl.demos import Demonstrations, Groups
from limiirl.errors import InvalidParameter, NotFitted, NumericalError
from limiirl.irl import validate
from limiirl.irl.base import SUFFICIENT_STATISTICS, FitResult
from limiirl.irl.device import choose_backend, choose_device
from limiirl.irl.estimator import LinearRewardModel
from limiirl.irl.identifiability import null_directions, variation
from limiirl.irl.maxent import inference
from limiirl.irl.maxent.backends import ARITHMETICS
from limiirl.irl.maxent.infinite_horizon import InfinitePathSums
from limiirl.irl.maxent.likelihood import ObservedPaths, PathLikelihood, feasible_start
from limiirl.irl.maxent.path_sums import ExpectedCounts, FinitePathSums
from limiirl.irl.maxent.problem import MaxEntProblem
from limiirl.irl.optim import SOLVERS
from limiirl.irl.problem import FitProblem
from limiirl.mdp import MDP

Engine = FinitePathSums | InfinitePathSums


class MaxEnt(LinearRewardModel):
    r"""The maximum entropy model of trajectories, p(tau | theta) = q(tau) exp(theta . F(tau)) / Z(theta).

    The sum Z runs over *all* trajectories of the MDP with at most `max_length` states, exactly. q(tau) is the
    probability of the start and of the moves' outcomes, F(tau) the discounted feature count. The model tilts start
    and dynamics towards reward ("luck"); the causal models do not.

    Parameters
    ----------
    max_length : int, inf or None
        The largest number of states of a trajectory. It is part of the model: another value is another distribution.
        None: the longest demonstration given to `fit`, recorded as `max_length_`. inf: any length, for discount 1 and
        rewards that make the sum finite.
    bounds : (low, high), (d, 2) array, or None
        Bounds on theta. The paper's experiments use (-10, 0); without bounds, a feature that every demonstration
        collects to the utmost (a goal that all reach) has no finite maximum.
    stop : {"anywhere", "terminal", "terminal_or_max_length"}
        Where a trajectory may end. The paper's set is "anywhere".
    condition : {"none", "start"}
        "start" models p(tau | first state), so that where demonstrations begin says nothing about the reward.
    ridge : float
        Adds ridge / 2 times the squared length of theta to minus the mean log-likelihood.
    solver : {"newton", "lbfgs", "bfgs"}
        Projected Newton with the exact Hessian, L-BFGS-B, or projected BFGS. ADR 0004 measures the first two.
    gtol : float
        Largest component of the projected gradient at the solution, relative to the feature's demonstrated mean where
        that is above 1.
    max_evaluations : int
        Cap on values with gradients in `fit`; the best point is kept.
    arithmetic : {"auto", "linear", "log"}
        "auto" computes in linear space where a rigorous bound allows it, else in log space. For a finite `max_length`;
        any length is solved in linear space.
    max_memory : float or None
        Bytes for messages; beyond it they are recomputed from checkpoints, for half as much time again. None: 1 GiB on
        the CPU, half of what is free on a GPU. Where `max_length` is inf, for what elimination needs on a GPU.
    device : {"cpu", "gpu", "auto"}
        Where to compute. "auto" takes a GPU where one works and the MDP is large enough to gain. Samples and most
        likely trajectories are found on the CPU, and so are Hessians where `max_length` is inf: solver="lbfgs" needs
        none. ADR 0018 has what was measured.

    Attributes
    ----------
    theta_ : (d,)
        The result of the last `fit`.
    max_length_ : int or inf
        Set by `fit`.
    result_ : FitResult
        What the last `fit` found, with directions that cannot be identified.
    results_ : list of FitResult
        What the last `fit` or `fit_many` found for each column of weights, without the directions.

    Examples
    --------
    Two ways lead from state 0 to state 3.

    >>> phi = [[0, 0], [1, 0], [0, 1], [0, 0]]
    >>> mdp = MDP.from_edges([0, 0, 1, 2], [1, 2, 3, 3], p0=[1, 0, 0, 0], state_features=phi)
    >>> demos = Demonstrations.from_lists([[0, 1, 3], [0, 1, 3], [0, 1, 3], [0, 2, 3]])
    >>> theta = MaxEnt(max_length=3, bounds=(-10, 10)).fit(mdp, demos)
    >>> print(round(theta[0] - theta[1], 4))  # three of four go by state 1: the log-odds are log 3
    1.0986
    """

    supports: ClassVar[frozenset[str]] = frozenset(
        {SUFFICIENT_STATISTICS, "expected_features", "marginals", "policy", "prefix", "sample"}
    )

    def __init__(  # noqa: PLR0913 (a model's parameters, each with a default)
        self,
        max_length: float | None = None,
        bounds: Any = (-10.0, 0.0),
        *,
        stop: str = "anywhere",
        condition: str = "none",
        ridge: float = 0.0,
        solver: str = "newton",
        gtol: float = 1e-6,
        max_evaluations: int = 1000,
        arithmetic: str = "auto",
        max_memory: float | None = None,
        device: str = "cpu",
    ) -> None:
        self.max_length = max_length
        self.bounds = bounds
        self.stop = stop
        self.condition = condition
        self.ridge = ridge
        self.solver = solver
        self.gtol = gtol
        self.max_evaluations = max_evaluations
        self.arithmetic = arithmetic
        self.max_memory = max_memory
        self.device = device

    def log_partition(self, mdp: MDP, thetas: ArrayLike) -> FloatArray:
        """Return log Z (K,) for thetas (K, d) or (d,); with condition="start", its mean over p0."""
        return self._engine(mdp).log_partition(mdp.check_thetas(thetas))

    def expected_features(self, mdp: MDP, thetas: ArrayLike) -> FloatArray:
        """Return E[F] (K, d), the exact gradient of `log_partition`."""
        return self._engine(mdp).value_and_grad(mdp.check_thetas(thetas))[1]

    def hessian(self, mdp: MDP, theta: ArrayLike) -> FloatArray:
        """Return the Hessian (d, d) of `log_partition` at theta (d,): the covariance of the path features."""
        return self._engine(mdp).covariance(validate.one_theta(mdp, theta))

    def state_marginals(self, mdp: MDP, thetas: ArrayLike) -> FloatArray:
        """Return (K, S): the expected number of visits to each state, not discounted."""
        found = self._counts(mdp, thetas)
        return np.ascontiguousarray(found.node.T)

    def edge_marginals(self, mdp: MDP, thetas: ArrayLike) -> FloatArray:
        """Return (K, E): the expected number of times each edge of the MDP is taken, not discounted."""
        return np.ascontiguousarray(np.asarray(self._counts(mdp, thetas).edge).T)

    def time_marginals(self, mdp: MDP, theta: ArrayLike) -> FloatArray:
        """Return p_t(s) (L, S) for theta (d,): the probability of being in s at step t."""
        engine = self._engine(mdp)
        if not isinstance(engine, FinitePathSums):
            raise InvalidParameter(
                "time_marginals needs a last step; max_length is inf. Use a model with a finite max_length.",
                parameter="max_length",
                value=self.max_length,
            )
        return engine.time_marginals(validate.one_theta(mdp, theta))

    def log_prob(self, mdp: MDP, thetas: ArrayLike, demos: Demonstrations) -> FloatArray:
        """Return the log-probability (N, K) of each demonstration under each of thetas (K, d), log q included.

        Where actions were not recorded, it is that of the states, summed over the actions that join them.
        """
        engine = self._engine(mdp)
        validate.fits_model(mdp, demos, self.stop, engine.max_length)
        problem = MaxEntProblem.from_demos(self, mdp, demos, Groups.from_labels(None, len(demos)), engine)
        return problem.log_prob(mdp.check_thetas(thetas))

    def _fitted_null_directions(
        self, mdp: MDP, demos: Demonstrations, weights: FloatArray, theta: FloatArray
    ) -> FloatArray:
        starts = np.bincount(demos.start_states, weights=weights, minlength=mdp.n_states)
        try:
            return self._null_directions(mdp, theta, starts / starts.sum())
        except NumericalError:  # the Hessian on the CPU overflows where a fit on a GPU did not
            return np.empty((0, mdp.n_features))

    @property
    def null_directions_vary(self) -> bool:
        """Whether `null_directions` depend on theta: not where trajectories may stop anywhere."""
        return self.stop != "anywhere"

    def null_directions(self, mdp: MDP, theta: ArrayLike) -> FloatArray:
        """Return an orthonormal basis (m, d) of the directions in which every trajectory's probability stays the same.

        They depend on the MDP alone where trajectories may stop anywhere; elsewhere the Hessian at theta shows them.

        Examples
        --------
        >>> mdp = MDP.from_edges([0, 1], [1, 0], state_features=[[1, 2], [3, 6]])
        >>> MaxEnt(max_length=5).null_directions(mdp, [0, 0]).round(3)
        array([[ 0.894, -0.447]])
        """
        return self._null_directions(mdp, validate.one_theta(mdp, theta), None)

    def _null_directions(self, mdp: MDP, theta: FloatArray, starts: FloatArray | None) -> FloatArray:
        """Return the null directions, of a model by start for a distribution of starts (S,), or p0."""
        engine = self._engine(mdp)
        if self.stop == "anywhere":
            return null_directions(*variation(mdp, engine.max_length, engine.by_start))
        starts = starts if engine.by_start else None
        covariance = engine.covariance(theta, starts=starts)
        mean = engine.value_and_grad(theta[None], starts=None if starts is None else starts[:, None])[1][0]
        return null_directions(covariance, np.sqrt(np.diag(covariance) + mean**2))

    def sample(
        self, mdp: MDP, theta: ArrayLike, n: int, seed: int | np.random.Generator | None = None
    ) -> Demonstrations:
        """Draw n trajectories from the model, exactly; starts from p0 where the model is conditioned on the start.

        Examples
        --------
        >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2], p0=[1, 0, 0])
        >>> MaxEnt(max_length=3).sample(mdp, [0.0, 1.0, 0.0], 1000, seed=0).lengths.max()
        np.int64(3)
        """
        engine = self._engine(mdp)
        return engine.sample(validate.one_theta(mdp, theta), check_count(n, "n"), as_generator(seed))

    def log_prob_prefix(self, mdp: MDP, thetas: ArrayLike, demos: Demonstrations) -> FloatArray:
        """Return the log-probability (N, K) that a trajectory begins with each demonstration, itself included.

        Unrecorded actions are summed over. -inf where no trajectory that begins so can end where the model allows.

        Examples
        --------
        >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2], p0=[1, 0, 0])
        >>> begun = Demonstrations.from_lists([[0], [0, 1]])
        >>> np.exp(MaxEnt(3).log_prob_prefix(mdp, [0, 0, 0], begun)).ravel()  # of 0, 0-1, 0-2, 0-1-2: all, and two
        array([1. , 0.5])
        """
        return inference.log_prob_prefix(self._engine(mdp), mdp.check_thetas(thetas), demos)

    def next_actions(self, mdp: MDP, thetas: ArrayLike, demos: Demonstrations) -> inference.NextActions:
        """Return the probabilities of each next action (N, K, A) and of stopping (N, K), given that it began so.

        They sum to 1, and are all 0 where `log_prob_prefix` is -inf.

        Examples
        --------
        >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2], p0=[1, 0, 0])
        >>> MaxEnt(3).next_actions(mdp, [0, 0, 0], Demonstrations.from_lists([[0]]))
        NextActions(action=array([[[0.5 , 0.25]]]), stop=array([[0.25]]))
        """
        return inference.next_actions(self._engine(mdp), mdp.check_thetas(thetas), demos)

    def policy(self, mdp: MDP, theta: ArrayLike, step: int = 0) -> FloatArray:
        """Return the probability (S, A) of each action for those who go on from each state at a step.

        Rows are zero where nobody can go on; where `max_length` is inf the step does not matter, and rows of states
        that no start leads to are zero too.

        Examples
        --------
        >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2])
        >>> MaxEnt(3).policy(mdp, [0, 0, 0]).round(2)  # of 0-1, 0-1-2 and 0-2 two begin with action 0
        array([[0.67, 0.33],
               [1.  , 0.  ],
               [0.  , 0.  ]])
        """
        return inference.policy(self._engine(mdp), validate.one_theta(mdp, theta), step)

    def most_likely(self, mdp: MDP, theta: ArrayLike, start: int, goal: int) -> tuple[Demonstrations, float]:
        """Return the most probable trajectory from one state that ends in another, and its log-probability.

        Exact for any discount and all features. The goal may be passed on the way. Of equally probable ones it takes
        the shortest, then the edge of the lowest number; where `max_length` is inf, the same one each time.

        Examples
        --------
        >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2], p0=[1, 0, 0])
        >>> demos, log_prob = MaxEnt(3).most_likely(mdp, [0, 1, 0], 0, 2)  # state 1 is worth a detour
        >>> demos.states, round(log_prob, 4)
        (array([0, 1, 2]), -1.0064)
        """
        return inference.most_likely(self._engine(mdp), validate.one_theta(mdp, theta), start, goal)

    def _counts(self, mdp: MDP, thetas: ArrayLike) -> ExpectedCounts:
        engine, checked = self._engine(mdp), mdp.check_thetas(thetas)
        if isinstance(engine, FinitePathSums):
            return engine.expected_counts(checked, gain=np.ones(engine.max_length), edges=True)
        return engine.expected_counts(checked, edges=True)

    def _fit(self, mdp: MDP, demos: Demonstrations, weights: FloatArray, starts: FloatArray | None) -> list[FitResult]:
        """Minimise the objective of each column of weights (N, K); set `max_length_`, and forget an older `result_`."""
        longest, engine = self._resolve(mdp, demos)
        box = validate.box(self.bounds, mdp.feature_names)
        observed = ObservedPaths(mdp, demos, by_start=engine.by_start)
        n_intents = weights.shape[1]
        ridge = np.full(n_intents, check_positive(self.ridge, "ridge", zero=True))
        objective = PathLikelihood(engine, observed, observed.moments(weights), ridge)
        if starts is None:
            starts = np.tile(feasible_start(engine, box), (n_intents, 1))
        tol = check_positive(self.gtol, "gtol") * np.maximum(1.0, np.abs(objective.mean_features))
        cap = check_count(self.max_evaluations, "max_evaluations")
        results = SOLVERS[self.solver](objective, starts, box, tol, cap)
        self.max_length_ = longest
        return results

    def make_problem(self, mdp: MDP, demos: Demonstrations, units: Groups) -> FitProblem:
        """Return the model with the data of a mixture, for `IntentMixture`; sets `max_length_` as `fit` does."""
        self.max_length_, engine = self._resolve(mdp, validate.demonstrations(demos))
        if SUFFICIENT_STATISTICS not in self.supports:
            return FitProblem(self, mdp, demos, units)
        return MaxEntProblem.from_demos(self, mdp, demos, units, engine)

    def resolve_max_length(self, mdp: MDP, longest: int) -> Engine:
        """Return the engine of the model's trajectories, for data that are known by their longest demonstration alone.

        Sets `max_length_` as `fit` does.
        """
        check_choice(self.solver, "solver", tuple(SOLVERS))
        self.max_length_ = longest if self.max_length is None else validate.max_length(self.max_length)
        return self._engine(mdp, self.max_length_)

    def _resolve(self, mdp: MDP, demos: Demonstrations) -> tuple[float, Engine]:
        """Return the largest length, settled by demonstrations unless it is given, and the engine for it."""
        check_choice(self.solver, "solver", tuple(SOLVERS))
        longest = int(demos.lengths.max()) if self.max_length is None else validate.max_length(self.max_length)
        engine = self._engine(mdp, longest)
        validate.fits_model(mdp, demos, self.stop, engine.max_length)
        return longest, engine

    def _engine(self, mdp: MDP, longest: float | None = None) -> Engine:
        """Return an engine for the model's trajectories in an MDP, checking the model's parameters on the way."""
        validate.mdp(mdp)
        by_start = check_choice(self.condition, "condition", ("none", "start")) == "start"
        check_choice(self.arithmetic, "arithmetic", ARITHMETICS)
        if self.max_memory is not None:
            check_positive(self.max_memory, "max_memory", zero=True)
        if longest is None and self.max_length is not None:
            longest = validate.max_length(self.max_length)
        elif longest is None:
            longest = getattr(self, "max_length_", None)
        if longest is None:
            raise NotFitted(
                "max_length=None is settled by fit, which was not called. Fit first, or pass max_length to the model.",
                parameter="max_length",
            )
        if longest == math.inf:
            device = choose_device(self.device, mdp.n_states + mdp.n_edges)
            if device is None:
                return InfinitePathSums(mdp, stop=self.stop, by_start=by_start)
            from limiirl.irl.maxent.gpu_infinite import GpuInfinitePathSums

            return GpuInfinitePathSums(mdp, device, stop=self.stop, by_start=by_start, max_bytes=self.max_memory)
        options: dict[str, Any] = {
            "stop": self.stop,
            "by_start": by_start,
            "arithmetic": self.arithmetic,
            "max_bytes": self.max_memory,
        }
        backend = None if self.device == "cpu" else choose_backend(self.device, mdp)
        if backend is None:
            return FinitePathSums(mdp, int(longest), **options)
        from limiirl.irl.maxent.gpu import GpuFinitePathSums

        path_sums: FinitePathSums = GpuFinitePathSums(mdp, int(longest), **options, backend=backend)
        return path_sums
