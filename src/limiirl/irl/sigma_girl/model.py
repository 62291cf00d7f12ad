"""`SigmaGIRL`: model-free IRL from trajectories of several agents (Ramponi et al. 2020)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from limiirl._estimator import NoMetadataRouting
from limiirl._typing import FloatArray
from limiirl._validation import as_floats, check_choice, check_count, check_each, check_positive, check_seed
from limiirl.demos import Agents, Groups
from limiirl.errors import InvalidDemos, InvalidParameter
from limiirl.irl import validate
from limiirl.irl.base import SUFFICIENT_STATISTICS, Capabilities, FitResult
from limiirl.irl.sigma_girl.likelihood import PROFILES, SigmaProblem


class SigmaGIRL(Capabilities, NoMetadataRouting, BaseEstimator):  # type: ignore[misc]
    r"""Model-free IRL: reward weights omega on the simplex for which the agents' cloned policies are stationary points.

    Each agent's policy is cloned, and the Jacobian J of the expected reward features with respect to the policy's
    parameters is estimated with GPOMDP. For an agent that maximises omega . phi, J omega = 0. The likelihood of omega
    is that of the estimated Jacobian under the nearest J that satisfies this equation:
    ``log p(agent | omega) = -obj(omega) / 2 - log det(2 pi Sigma) / 2``. It does not depend on the norm of omega.

    In `IntentMixture`, agents replace demonstrations: `IntentMixture(2, SigmaGIRL()).fit(None, agents)`.

    Parameters
    ----------
    gamma : float
        Discount, above 0 and at most 1. It is a parameter of the model because there is no MDP.
    ridge : float
        Ridge of the cloned policies, not of the rewards as in other models. It must be positive, because policy
        features may be nearly collinear. It is added to sums over steps, so that the fit does not depend on how
        recordings are divided into trajectories.
    covariance : {"diagonal", "full"}
        "diagonal" ignores correlations between the entries of a Jacobian, as in the experiments of Ramponi et al. Both
        estimates use Ledoit-Wolf shrinkage.
    cluster_on : {"reward", "policy"}
        Features for the warm start of a mixture, which clusters their mean discounted sums.
    baseline_floor : float
        Constant that is added to the denominators of GPOMDP's baselines; 1e-10 in the original implementation. If an
        agent has the same features in all trajectories, its Jacobian is then of about this size instead of 0. Because
        the likelihood does not depend on the size of the Jacobian, its maximum is then arbitrary. With 0,
        all rewards explain such an agent equally well. See docs/sigma_girl.md for the effect on the released agents.
    n_starts : int
        Number of random initial points on the simplex, in addition to uniform weights and `start`. Use at least 3,
        because the likelihood has several local maxima.
    gtol : float
        Tolerance on the largest component of the projected gradient of the mean of obj / 2, relative to this mean if
        the mean exceeds 1.
    max_evaluations : int
        Maximum number of evaluations per initial point in `fit`.
    random_state : int
        Seed of the random initial points. It must be an integer, so that every fit uses the same points.

    Attributes
    ----------
    theta_ : (q,)
        Result of the last `fit`.
    result_ : FitResult
        Details of the last `fit`.

    Examples
    --------
    Ann and Bob each make one move on a line from 0. The features are -x^2 and -(x - 1)^2 of the final position x; Ann
    stays near 0, and Bob moves to about 0.5.

    >>> rng = np.random.default_rng(0)
    >>> x = np.ones((200, 1, 1))
    >>> a = rng.normal([0.0, 0.5], 0.3, size=(200, 2)).T[..., None, None]
    >>> phi = [np.concatenate([-(move**2), -((move - 1) ** 2)], axis=2) for move in a]
    >>> agents = Agents.from_arrays([x, x], list(a), phi, names=["Ann", "Bob"])
    >>> irl = SigmaGIRL(gamma=1.0)
    >>> ann, bob = irl.fit(None, agents, weights=[1, 0]), irl.fit(None, agents, weights=[0, 1])
    >>> ann.round(1).tolist(), bob.round(1).tolist()
    ([1.0, 0.0], [0.5, 0.5])
    """

    bounds = (0.0, 1.0)
    # A profile likelihood is not a normalised density.
    normalised = False
    # Label in summaries for weights whose norm is not identified.
    null_status = "up to scale"

    supports: ClassVar[frozenset[str]] = frozenset({SUFFICIENT_STATISTICS})

    def __init__(  # noqa: PLR0913 (an estimator's parameters, each with a default)
        self,
        *,
        gamma: float = 0.99,
        ridge: float = 1e-2,
        covariance: str = "diagonal",
        cluster_on: str = "reward",
        baseline_floor: float = 1e-10,
        n_starts: int = 4,
        gtol: float = 1e-6,
        max_evaluations: int = 1000,
        random_state: int = 0,
    ) -> None:
        self.gamma = gamma
        self.ridge = ridge
        self.covariance = covariance
        self.cluster_on = cluster_on
        self.baseline_floor = baseline_floor
        self.n_starts = n_starts
        self.gtol = gtol
        self.max_evaluations = max_evaluations
        self.random_state = random_state

    def log_prob(self, mdp: None, thetas: ArrayLike, agents: Agents) -> FloatArray:
        """Return the profile log-likelihood (M, K) of each agent under each of thetas (K, q)."""
        problem = self.make_problem(mdp, agents, Groups.for_demos(None, _check_agents(agents)))
        return problem.log_prob(_check_thetas(thetas, problem.n_parameters))

    def fit(
        self, mdp: None, agents: Agents, weights: ArrayLike | None = None, start: ArrayLike | None = None
    ) -> FloatArray:
        """Return the omega (q,) on the simplex that maximises the weighted likelihood.

        Parameters
        ----------
        mdp : None
            Not used; present for API consistency, because the method is model-free.
        agents : Agents
        weights : (M,), optional
            Weight of each agent; 1 by default.
        start : (q,), optional
            Additional initial point.
        """
        result = self._search(mdp, agents, weights, start, columns=False)[0]
        validate.warn_unless_converged(result)
        self.result_, self.theta_ = result, result.theta
        return result.theta

    def fit_many(self, mdp: None, agents: Agents, weights: ArrayLike, starts: ArrayLike | None = None) -> FloatArray:
        """Return thetas (K, q), one per column of weights (M, K); each row equals the result of `fit`."""
        results = self._search(mdp, agents, weights, starts, columns=True)
        return np.array([result.theta for result in results])

    def features(self, mdp: None, agents: Agents) -> FloatArray:
        """Return the features (M, m) that a warm start clusters: mean discounted reward or policy features."""
        self._check(mdp)
        return _check_agents(agents).features(check_positive(self.gamma, "gamma"), of=self.cluster_on)

    def null_directions(self, mdp: None, theta: ArrayLike) -> FloatArray:
        """Return the direction (1, q) of theta (q,), because the norm of theta is not identified.

        If features have a constant sum, there is another null direction, which is not detected.

        Examples
        --------
        >>> SigmaGIRL().null_directions(None, [0.6, 0.0, 0.8])
        array([[0.6, 0. , 0.8]])
        """
        self._check(mdp)
        direction = _check_thetas(theta, np.size(theta), "theta")
        return np.asarray(direction / np.linalg.norm(direction))

    def make_problem(self, mdp: None, agents: Agents, units: Groups) -> SigmaProblem:
        """Return the fit problem of a mixture, for `IntentMixture`."""
        self._check(mdp)
        return SigmaProblem.from_agents(self, _check_agents(agents), units)

    def _search(
        self, mdp: None, agents: Agents, weights: ArrayLike | None, starts: ArrayLike | None, *, columns: bool
    ) -> list[FitResult]:
        problem = self.make_problem(mdp, agents, Groups.for_demos(None, _check_agents(agents)))
        matrix = validate.weights(weights, agents, columns=columns)  # type: ignore[arg-type]
        name = "starts" if columns else "start"
        first = None if starts is None else _check_thetas(starts, problem.n_parameters, name)
        validate.starts(first, matrix.shape[1], name)
        if not columns:
            problem.warn_of_features(3)
        return problem.search(matrix, first, check_count(self.max_evaluations, "max_evaluations"))

    def _check(self, mdp: object) -> None:
        """Check the parameters of the model, and that `mdp` is None."""
        if mdp is not None:
            raise InvalidParameter(
                f"mdp must be None for SigmaGIRL, which learns from Agents alone; got a {type(mdp).__name__}.",
                parameter="mdp",
                value=mdp,
            )
        if check_positive(self.gamma, "gamma") > 1.0:
            raise InvalidParameter.of("gamma", self.gamma, "must be above 0 and at most 1")
        check_choice(self.covariance, "covariance", tuple(PROFILES))
        check_choice(self.cluster_on, "cluster_on", ("reward", "policy"))
        check_count(self.n_starts, "n_starts", least=3, bytes_each=64.0)
        check_seed(self.random_state, "random_state")


def _check_agents(agents: Any) -> Agents:
    if not isinstance(agents, Agents):
        raise InvalidDemos(
            f"agents must be an Agents object; got a {type(agents).__name__}. Build one with Agents.from_arrays.",
            parameter="agents",
            value=agents,
        )
    return agents


def _check_thetas(given: ArrayLike, q: int, name: str = "thetas") -> FloatArray:
    """Return the argument `name` as an array (K, q); raise unless its rows are finite and nonzero."""
    thetas = np.atleast_2d(as_floats(given, name))
    if thetas.ndim != 2 or thetas.shape[1] != q:
        raise InvalidParameter.of(name, thetas.shape, f"must have shape (K, {q}), one column per reward feature")
    valid = np.all(np.isfinite(thetas), axis=1) & np.any(thetas != 0.0, axis=1)
    check_each(valid, thetas, name, "must be finite and not all zero")
    return thetas
