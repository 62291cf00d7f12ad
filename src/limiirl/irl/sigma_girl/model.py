"""`SigmaGIRL`: model-free IRL from batches of several agents (Ramponi et al. 2020; spec.md, section B)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from limiirl._estimator import NoMetadataRouting
from limiirl._typing import FloatArray
from limiirl._validation import check_choice, check_count, check_positive
from limiirl.demos import Agents, Groups
from limiirl.errors import InvalidDemos, InvalidParameter
from limiirl.irl import validate
from limiirl.irl.base import SUFFICIENT_STATISTICS, Capabilities, FitResult
from limiirl.irl.sigma_girl.likelihood import PROFILES, SigmaProblem


class SigmaGIRL(Capabilities, NoMetadataRouting, BaseEstimator):  # type: ignore[misc]
    r"""Reward weights omega on the simplex under which the agents' cloned policies are nearly stationary.

    Each agent's policy is cloned, and the Jacobian of its expected reward features with respect to the policy's
    parameters is estimated by GPOMDP. An agent that maximises omega . phi has J omega = 0; the likelihood of omega is
    that of the estimate under the nearest such Jacobian:
    ``log p(agent | omega) = -obj(omega) / 2 - log det(2 pi Sigma) / 2``, where obj does not depend on |omega|.

    In `IntentMixture`, an agent takes the role of a demonstration: `IntentMixture(2, SigmaGIRL()).fit(None, agents)`.

    Parameters
    ----------
    gamma : float
        Discount, above 0 and at most 1; a parameter here because there is no MDP.
    ridge : float
        Ridge of the cloned policies, not of the rewards as in other models; above 0, because radial features are nearly
        collinear. It is added to sums over steps, so it does not depend on how recordings are cut.
    covariance : {"diagonal", "full"}
        "diagonal" ignores correlations between the entries of a Jacobian, as do the experiments of Ramponi et al. Both
        are shrunk by the rule of Ledoit and Wolf.
    cluster_on : {"reward", "policy"}
        Features whose mean discounted sums a mixture's warm start clusters.
    baseline_floor : float
        Constant added to the denominators of GPOMDP's baselines, 1e-10 in the original. An agent with the same features
        in all trajectories then has a Jacobian of about this size instead of 0, and the likelihood, which ignores
        sizes, shows a preference. With 0 such an agent fits all rewards equally. See docs/sigma_girl.md for its effect
        on the released agents.
    n_starts : int
        Number of random starts on the simplex, besides uniform weights and a given start; at least 3, because the
        likelihood has several maxima.
    gtol : float
        Largest component of the projected gradient of the mean of obj / 2, relative to that mean where it is above 1.
    max_evaluations : int
        Maximum number of evaluations per start in `fit`.
    random_state : int
        Seed of the random starts; an integer, so that every fit uses the same starts.

    Attributes
    ----------
    theta_ : (q,)
        Result of the last `fit`.
    result_ : FitResult
        Details of the last `fit`.

    Examples
    --------
    Ann and Bob walk on a line. The reward is -(end)^2 times omega_0 and -(end - 1)^2 times omega_1: Ann stays about 0.

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
    # Label of the null direction, the length of the weights, in summaries.
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
            The model is model-free.
        agents : Agents
        weights : (M,), optional
            Weight of each agent; 1 by default.
        start : (q,), optional
            An additional start.
        """
        result = self._search(mdp, agents, weights, start, columns=False)[0]
        validate.warn_unless_converged(result)
        self.result_, self.theta_ = result, result.theta
        return result.theta

    def fit_many(self, mdp: None, agents: Agents, weights: ArrayLike, starts: ArrayLike | None = None) -> FloatArray:
        """Return parameters (K, q), one row per column of weights (M, K), each equal to the result of `fit`."""
        results = self._search(mdp, agents, weights, starts, columns=True)
        return np.array([result.theta for result in results])

    def features(self, mdp: None, agents: Agents) -> FloatArray:
        """Return the embedding (M, m) of a warm start: mean discounted reward or policy features."""
        self._check(mdp)
        return _check_agents(agents).features(check_positive(self.gamma, "gamma"), of=self.cluster_on)

    def null_directions(self, mdp: None, theta: ArrayLike) -> FloatArray:
        """Return the direction (1, q) of theta (q,) itself, whose length is not identified.

        Features with a constant sum have one more null direction, which is not detected.

        Examples
        --------
        >>> SigmaGIRL().null_directions(None, [0.6, 0.0, 0.8])
        array([[0.6, 0. , 0.8]])
        """
        self._check(mdp)
        direction = _check_thetas(theta, np.size(theta))
        return np.asarray(direction / np.linalg.norm(direction))

    def make_problem(self, mdp: None, agents: Agents, units: Groups) -> SigmaProblem:
        """Return the fit problem of a mixture, for `IntentMixture`."""
        self._check(mdp)
        return SigmaProblem(self, _check_agents(agents), units)

    def _search(
        self, mdp: None, agents: Agents, weights: ArrayLike | None, starts: ArrayLike | None, *, columns: bool
    ) -> list[FitResult]:
        problem = self.make_problem(mdp, agents, Groups.for_demos(None, _check_agents(agents)))
        matrix = validate.weights(weights, agents, columns=columns)  # type: ignore[arg-type]
        first = None if starts is None else _check_thetas(starts, problem.n_parameters)
        validate.starts(first, matrix.shape[1])
        return problem.search(matrix, first, check_count(self.max_evaluations, "max_evaluations"))

    def _check(self, mdp: object) -> None:
        """Check the parameters, and that no MDP is given."""
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
        check_count(self.n_starts, "n_starts", least=3)
        if isinstance(self.random_state, bool) or not isinstance(self.random_state, int | np.integer):
            raise InvalidParameter.of("random_state", self.random_state, "must be an integer")


def _check_agents(agents: Any) -> Agents:
    if not isinstance(agents, Agents):
        raise InvalidDemos(
            f"agents must be Agents; got a {type(agents).__name__}. Use Agents.from_arrays.",
            parameter="agents",
            value=agents,
        )
    return agents


def _check_thetas(given: ArrayLike, q: int) -> FloatArray:
    """Return thetas (K, q), finite and nonzero."""
    try:
        thetas = np.atleast_2d(np.asarray(given, dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise InvalidParameter(f"thetas must be numeric ({error}).", parameter="thetas", value=given) from None
    if thetas.ndim != 2 or thetas.shape[1] != q:
        raise InvalidParameter.of("thetas", thetas.shape, f"must have shape (K, {q}), one column per reward feature")
    bad = ~(np.all(np.isfinite(thetas), axis=1) & np.any(thetas != 0.0, axis=1))
    if np.any(bad):
        k = int(np.argmax(bad))
        raise InvalidParameter.of("thetas", thetas[k].tolist(), "must be finite and not all zero", index=k)
    return thetas
