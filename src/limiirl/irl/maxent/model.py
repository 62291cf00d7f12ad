"""`MaxEnt`: exact maximum entropy IRL over trajectories (Ziebart et al. 2008; section 3 of the paper)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from limiirl._typing import FloatArray
from limiirl._validation import as_generator, check_choice, check_count, check_positive
from limiirl.demos import Demonstrations, Groups, split_environments
from limiirl.errors import InvalidParameter, NotFitted, NumericalError
from limiirl.irl import validate
from limiirl.irl.base import QUERIES, SUFFICIENT_STATISTICS, FitResult, NextActions
from limiirl.irl.estimator import LinearRewardModel, choose_backend, choose_device
from limiirl.irl.identifiability import null_directions, variation
from limiirl.irl.maxent import inference
from limiirl.irl.maxent.backends import ARITHMETICS
from limiirl.irl.maxent.infinite_horizon import InfinitePathSums
from limiirl.irl.maxent.joint import JointPathSums
from limiirl.irl.maxent.path_sums import ExpectedCounts, FinitePathSums
from limiirl.irl.maxent.problem import MaxEntProblem, PathSums
from limiirl.irl.optim import SOLVERS
from limiirl.irl.problem import FitProblem
from limiirl.mdp import MDP


class MaxEnt(LinearRewardModel):
    r"""Maximum entropy model of trajectories, p(tau | theta) = q(tau) exp(theta . F(tau)) / Z(theta).

    Z(theta) is the exact sum over all trajectories of at most `max_length` states. q(tau) is the probability of the
    start state and of the transitions, and F(tau) is the discounted feature count. Rewards also affect the
    probabilities of start states and outcomes, unlike in the causal models.

    Parameters
    ----------
    max_length : int, inf or None
        Maximum number of states in a trajectory; it is part of the model. If None, `fit` uses the length of the longest
        demonstration and stores it as `max_length_`. If inf, the length is unbounded, which requires discount 1 and
        rewards with a finite partition function.
    bounds : (low, high), (d, 2) array, or None
        Bounds on theta; the paper's experiments use (-10, 0). Without bounds, theta diverges for a feature that every
        demonstration maximises, such as a common goal.
    stop : {"anywhere", "terminal", "terminal_or_max_length"}
        States in which a trajectory may end; "anywhere" in the paper.
    condition : {"none", "start"}
        With "start", the model is p(tau | s_0), so that the distribution of start states does not affect the reward.
        With several environments, the model is always conditioned on the environment.
    ridge : float or mapping of str to float
        Coefficient of the penalty ``|theta|^2 / 2`` that is added to the negative mean log-likelihood. A mapping has
        one coefficient per pattern of feature names, such as ``{"link *": 0.01}``. The first pattern that matches a
        name applies; features without a pattern are not penalised.
    solver : {"newton", "lbfgs", "bfgs"}
        Projected Newton with the exact Hessian, L-BFGS-B, or projected BFGS; ADR 0004 compares the first two.
    gtol : float
        Tolerance on the components of the projected gradient. A component is relative to the mean of its feature over
        the demonstrations if this mean exceeds 1.
    max_evaluations : int
        Maximum number of evaluations in `fit`. If it is reached, the best point is returned.
    arithmetic : {"auto", "linear", "log"}
        "auto" uses linear arithmetic if an error bound excludes underflow, otherwise log arithmetic. The parameter is
        ignored if max_length=inf.
    max_memory : float or None
        Memory for messages in bytes. If the messages do not fit, checkpointing is used, which takes 50 % more time. The
        default is 1 GiB on the CPU and half of the free memory on a GPU. If max_length=inf, the parameter limits the
        memory for elimination on a GPU.
    device : {"cpu", "gpu", "auto"}
        "auto" uses a GPU if one works and the MDP is large enough (ADR 0018). Samples, most likely trajectories, and
        Hessians for max_length=inf are always computed on the CPU. With solver="lbfgs", no Hessians are required.

    Attributes
    ----------
    theta_ : (d,)
        Result of the last `fit`.
    max_length_ : int or inf
        Maximum length of the last `fit`.
    result_ : FitResult
        Details of the last `fit`, including null directions.
    results_ : list of FitResult
        Details of the last `fit` or `fit_many`, one per column of weights, without null directions.

    Examples
    --------
    Two paths lead from state 0 to state 3.

    >>> phi = [[0, 0], [1, 0], [0, 1], [0, 0]]
    >>> mdp = MDP.from_edges([0, 0, 1, 2], [1, 2, 3, 3], p0=[1, 0, 0, 0], state_features=phi)
    >>> demos = Demonstrations.from_lists([[0, 1, 3], [0, 1, 3], [0, 1, 3], [0, 2, 3]])
    >>> theta = MaxEnt(max_length=3, bounds=(-10, 10)).fit(mdp, demos)
    >>> print(round(theta[0] - theta[1], 4))  # three of four visit state 1: the log-odds are log 3
    1.0986
    """

    supports: ClassVar[frozenset[str]] = QUERIES | {SUFFICIENT_STATISTICS}

    def __init__(  # noqa: PLR0913 (a model's parameters, each with a default)
        self,
        max_length: float | None = None,
        bounds: Any = (-10.0, 0.0),
        *,
        stop: str = "anywhere",
        condition: str = "none",
        ridge: float | Mapping[str, float] = 0.0,
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
        """Return log Z (K,) for thetas (K, d) or (d,); with condition="start", the mean of log Z(s_0) over p0."""
        return self.path_sums(mdp).log_partition(mdp.check_thetas(thetas))

    def expected_features(self, mdp: MDP, thetas: ArrayLike) -> FloatArray:
        """Return the expected feature counts E[F] (K, d), the gradient of `log_partition`."""
        return self.path_sums(mdp).value_and_grad(mdp.check_thetas(thetas))[1]

    def hessian(self, mdp: MDP, theta: ArrayLike) -> FloatArray:
        """Return the Hessian (d, d) of `log_partition` at theta (d,): the covariance of the path features."""
        return self.path_sums(mdp).covariance(validate.one_theta(mdp, theta))

    def state_marginals(self, mdp: MDP, thetas: ArrayLike) -> FloatArray:
        """Return the occupancy (K, S): the expected number of visits to each state, undiscounted."""
        return np.ascontiguousarray(self._counts(mdp, thetas).node.T)

    def edge_marginals(self, mdp: MDP, thetas: ArrayLike) -> FloatArray:
        """Return the expected number of traversals (K, E) of each edge of the MDP, undiscounted."""
        return np.ascontiguousarray(np.asarray(self._counts(mdp, thetas).edge).T)

    def time_marginals(self, mdp: MDP, theta: ArrayLike) -> FloatArray:
        """Return p_t(s) (L, S) for theta (d,): the probability that s is visited at step t."""
        path_sums = self.path_sums(mdp)
        if isinstance(path_sums, InfinitePathSums) or path_sums.max_length == math.inf:
            raise InvalidParameter.of("max_length", self.max_length, "must be finite for time_marginals")
        return path_sums.time_marginals(validate.one_theta(mdp, theta))

    def log_prob(self, mdp: MDP, thetas: ArrayLike, demos: Demonstrations) -> FloatArray:
        """Return the log-probability (N, K) of each demonstration under each of thetas (K, d), including log q.

        The probability is summed over unrecorded actions.
        """
        path_sums, demos = self.path_sums(mdp), validate.in_numbers_of(mdp, demos)
        validate.check_trajectories(mdp, demos, self.stop, path_sums.max_length)
        problem = MaxEntProblem.from_demos(self, mdp, demos, Groups.from_labels(None, len(demos)), path_sums)
        return problem.log_prob(mdp.check_thetas(thetas))

    def _null_directions_of_fit(
        self, mdp: MDP, demos: Demonstrations, weights: FloatArray, theta: FloatArray
    ) -> FloatArray:
        starts = np.bincount(demos.start_states, weights=weights, minlength=mdp.n_states)
        try:
            return self._null_directions(mdp, theta, starts / starts.sum())
        except NumericalError:  # the Hessian overflows on the CPU, although the fit on a GPU succeeded
            return np.empty((0, mdp.n_features))

    @property
    def null_directions_vary(self) -> bool:
        """True if `null_directions` depends on theta; False if trajectories may stop anywhere."""
        return self.stop != "anywhere"

    def null_directions(self, mdp: MDP, theta: ArrayLike) -> FloatArray:
        """Return an orthonormal basis (m, d) of the directions that leave every trajectory's probability unchanged.

        With stop="anywhere", the directions depend only on the MDP. Otherwise, they span the null space of the Hessian
        at theta.

        Examples
        --------
        >>> mdp = MDP.from_edges([0, 1], [1, 0], state_features=[[1, 2], [3, 6]])
        >>> MaxEnt(max_length=5).null_directions(mdp, [0, 0]).round(3)
        array([[ 0.894, -0.447]])
        """
        return self._null_directions(mdp, validate.one_theta(mdp, theta), None)

    def _null_directions(self, mdp: MDP, theta: FloatArray, starts: FloatArray | None) -> FloatArray:
        """Return the null directions; `starts` (S,) replaces p0 if the model is conditioned on the start."""
        path_sums = self.path_sums(mdp)
        if self.stop == "anywhere":
            return null_directions(*variation(mdp, path_sums.max_length, self.condition == "start"))
        starts = starts if path_sums.by_start else None
        covariance = path_sums.covariance(theta, starts=starts)
        mean = path_sums.value_and_grad(theta[None], starts=None if starts is None else starts[:, None])[1][0]
        return null_directions(covariance, np.sqrt(np.diag(covariance) + mean**2))

    def sample(
        self, mdp: MDP, theta: ArrayLike, n: int, seed: int | np.random.Generator | None = None
    ) -> Demonstrations:
        """Draw n trajectories from the model; with condition="start", start states are drawn from p0.

        Examples
        --------
        >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2], p0=[1, 0, 0])
        >>> MaxEnt(max_length=3).sample(mdp, [0.0, 1.0, 0.0], 1000, seed=0).lengths.max()
        np.int64(3)
        """
        path_sums = self.path_sums(mdp)
        return path_sums.sample(
            validate.one_theta(mdp, theta), check_count(n, "n", bytes_each=64.0), as_generator(seed)
        )

    def log_prob_prefix(self, mdp: MDP, thetas: ArrayLike, demos: Demonstrations) -> FloatArray:
        """Return the log-probability (N, K) that a trajectory begins with, or equals, each demonstration.

        The probability is summed over unrecorded actions. It is 0 if no continuation ends in a state that `stop`
        allows.

        Examples
        --------
        >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2], p0=[1, 0, 0])
        >>> begun = Demonstrations.from_lists([[0], [0, 1]])
        >>> np.exp(MaxEnt(3).log_prob_prefix(mdp, [0, 0, 0], begun)).ravel()  # 4 and 2 of 4
        array([1. , 0.5])
        """
        path_sums, demos = self.path_sums(mdp), validate.in_numbers_of(mdp, demos)
        return inference.log_prob_prefix(path_sums, mdp.check_thetas(thetas), demos)

    def next_actions(self, mdp: MDP, thetas: ArrayLike, demos: Demonstrations) -> NextActions:
        """Return the probabilities of each next action (N, K, A) and of stopping (N, K), given the prefixes `demos`.

        For each prefix and intent, the probabilities sum to 1, or to 0 if `log_prob_prefix` is -inf.

        Examples
        --------
        >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2], p0=[1, 0, 0])
        >>> MaxEnt(3).next_actions(mdp, [0, 0, 0], Demonstrations.from_lists([[0]]))
        NextActions(action=array([[[0.5 , 0.25]]]), stop=array([[0.25]]))
        """
        path_sums, demos = self.path_sums(mdp), validate.in_numbers_of(mdp, demos)
        return inference.next_actions(path_sums, mdp.check_thetas(thetas), demos)

    def policy(self, mdp: MDP, theta: ArrayLike, step: int = 0) -> FloatArray:
        """Return P(a | s_t = s, the trajectory continues) (S, A) at step t.

        Rows of states without a continuation are zero. With max_length=inf, the policy does not depend on the step, and
        rows of unreachable states are zero too.

        Examples
        --------
        >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2])
        >>> MaxEnt(3).policy(mdp, [0, 0, 0]).round(2)  # of 0-1, 0-1-2 and 0-2 two begin with action 0
        array([[0.67, 0.33],
               [1.  , 0.  ],
               [0.  , 0.  ]])
        """
        return inference.policy(self.path_sums(mdp), validate.one_theta(mdp, theta), step)

    def most_likely(self, mdp: MDP, theta: ArrayLike, start: int, goal: int) -> tuple[Demonstrations, float]:
        """Return the most probable trajectory from `start` that ends in `goal`, and its log-probability.

        The trajectory may visit the goal before its end. Ties are broken deterministically: if max_length is finite, by
        length and then by edge index.

        Examples
        --------
        >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2], p0=[1, 0, 0])
        >>> demos, log_prob = MaxEnt(3).most_likely(mdp, [0, 1, 0], 0, 2)  # state 1 is worth a detour
        >>> demos.states, round(log_prob, 4)
        (array([0, 1, 2]), -1.0064)
        """
        return inference.most_likely(self.path_sums(mdp), validate.one_theta(mdp, theta), start, goal)

    def _counts(self, mdp: MDP, thetas: ArrayLike) -> ExpectedCounts:
        path_sums, checked = self.path_sums(mdp), mdp.check_thetas(thetas)
        if isinstance(path_sums, InfinitePathSums) or path_sums.max_length == math.inf:
            return path_sums.expected_counts(checked, edges=True)
        return path_sums.expected_counts(checked, step_weights=np.ones(int(path_sums.max_length)), edges=True)

    def _fit(self, mdp: MDP, demos: Demonstrations, weights: FloatArray, starts: FloatArray | None) -> list[FitResult]:
        problem = self._problem(mdp, demos, Groups.from_labels(None, len(demos)))
        assert problem.observed is not None  # because the demonstrations are in memory
        moments = problem.observed.moments(weights)
        ridge = np.tile(problem.regulariser.ridge, (weights.shape[1], 1))
        return problem.search(moments, ridge, starts, check_count(self.max_evaluations, "max_evaluations"))

    def make_problem(self, mdp: MDP, demos: Demonstrations, units: Groups) -> FitProblem:
        """Return the fit problem of a mixture, for `IntentMixture`; its model has the resolved `max_length`."""
        demos = validate.in_numbers_of(mdp, demos)
        problem = self._problem(mdp, validate.demonstrations(demos), units)
        if SUFFICIENT_STATISTICS not in self.supports:
            return FitProblem(problem.model, mdp, demos, units)  # a subclass has its own likelihood or fit
        return problem

    def _problem(self, mdp: MDP, demos: Demonstrations, units: Groups) -> MaxEntProblem:
        model = self.resolve_max_length(int(demos.lengths.max()))
        path_sums = model.path_sums(mdp)
        validate.check_trajectories(mdp, demos, self.stop, path_sums.max_length)
        return MaxEntProblem.from_demos(model, mdp, demos, units, path_sums)

    def resolve_max_length(self, longest: int) -> Self:
        """Return this model, or an unfitted copy with max_length=`longest` if its maximum length is None."""
        if self.max_length is not None:
            return self
        resolved: Self = clone(self)
        resolved.max_length = longest
        return resolved

    def _store_resolved(self, demos: Demonstrations) -> None:
        self.max_length_ = validate.max_length(int(demos.lengths.max()) if self.max_length is None else self.max_length)

    def path_sums(self, mdp: MDP) -> PathSums:
        """Check the parameters and return the path sums of the model in an MDP."""
        validate.mdp(mdp)
        check_choice(self.solver, "solver", tuple(SOLVERS))
        by_start = check_choice(self.condition, "condition", ("none", "start")) == "start"
        if mdp.environment is not None and not by_start:
            environments = split_environments(mdp)
            return JointPathSums(mdp, environments, [self._path_sums(part.mdp, by_start) for part in environments])
        return self._path_sums(mdp, by_start)

    def _path_sums(self, mdp: MDP, by_start: bool) -> FinitePathSums | InfinitePathSums:
        check_choice(self.arithmetic, "arithmetic", ARITHMETICS)  # check it even if max_length=inf
        if self.max_memory is not None:
            check_positive(self.max_memory, "max_memory", zero=True)
        longest = getattr(self, "max_length_", None) if self.max_length is None else self.max_length
        if longest is None:
            message = "The model must be fitted if max_length is None. Call fit first, or set max_length."
            raise NotFitted(message, parameter="max_length")
        longest = validate.max_length(longest)
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
