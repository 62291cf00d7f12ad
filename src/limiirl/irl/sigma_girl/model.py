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
    r"""Reward weights omega on the simplex for which agents' cloned policies are as good as stationary.

    Each agent's policy is cloned, and the Jacobian of its expected reward features in the policy's parameters estimated
    by GPOMDP. An agent that maximises omega . phi has a Jacobian J with J omega = 0; the likelihood of omega is that of
    the estimate under the nearest such Jacobian, its covariance taken into account:
    ``log p(agent | omega) = -obj(omega) / 2 - log det(2 pi Sigma) / 2``, and obj does not depend on omega's length.

    In `IntentMixture`, an agent is what a demonstration is elsewhere: `IntentMixture(2, SigmaGIRL()).fit(None, agents)`
    clusters the agents' mean discounted features first, and goes on with EM.

    Parameters
    ----------
    gamma : float
        Discount of the rewards, above 0 and at most 1.
    ridge : float
        Regularisation of the cloned policies, not of the rewards as in other models. Radial features are nearly
        collinear, so that it is never 0.
    covariance : {"diagonal", "full"}
        Whether the entries of a Jacobian count as uncorrelated, as in the experiments of Ramponi et al. Both are shrunk
        by Ledoit and Wolf's rule.
    cluster_on : {"reward", "policy"}
        The features whose mean discounted sums a mixture's warm start clusters.
    baseline_floor : float
        What GPOMDP's baselines add to the sums that they are divided by, 1e-10 in the original. An agent that collects
        the same features in all its trajectories then has a Jacobian of about this size, and not of 0; the likelihood
        does not look at sizes, so that it sees a preference where there is none. With 0 such an agent fits all rewards
        alike. It decides the results on the released agents: see docs/sigma_girl.md.
    n_starts : int
        Points drawn on the simplex from which to search, beside uniform weights and a start that is given; at least 3.
    gtol : float
        Largest component of the projected gradient of the mean of obj / 2, relative to that where it is above 1.
    max_evaluations : int
        Cap on values with gradients of each search in `fit`.
    random_state : int
        Seeds the points from which to search; every fit has the same.

    Attributes
    ----------
    result_ : FitResult
        What the last `fit` found.

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
    # What is left of a density that was maximised over the Jacobian does not integrate to 1.
    normalised = False
    # What a summary says of the direction without effect, which is the length of the weights.
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
        """Return the profile log-likelihood (M, K) of each agent under each of thetas (K, q); mdp is None.

        Any length of a theta gives the same.
        """
        ready = self.make_problem(mdp, agents, Groups.for_demos(None, _checked(agents)))
        return ready.log_prob(_weights(thetas, ready.n_parameters))

    def fit(
        self, mdp: None, agents: Agents, weights: ArrayLike | None = None, start: ArrayLike | None = None
    ) -> FloatArray:
        """Return the weights omega (q,), not negative and of sum 1, that maximise the weighted likelihood.

        Parameters
        ----------
        mdp : None
            The model knows no MDP.
        agents : Agents
        weights : (M,), optional
            How much each agent counts; equal by default.
        start : (q,), optional
            One more point to search from.
        """
        result = self._search(mdp, agents, weights, start, columns=False)[0]
        validate.warn_unless_converged(result)
        self.result_, self.theta_ = result, result.theta
        return result.theta

    def fit_many(self, mdp: None, agents: Agents, weights: ArrayLike, starts: ArrayLike | None = None) -> FloatArray:
        """Return weights (K, q), one row for each column of weights (M, K), each as `fit` finds it."""
        results = self._search(mdp, agents, weights, starts, columns=True)
        return np.array([result.theta for result in results])

    def features(self, mdp: None, agents: Agents) -> FloatArray:
        """Return the points (M, m) that a warm start clusters: mean discounted reward or policy features."""
        self._check(mdp)
        return _checked(agents).features(check_positive(self.gamma, "gamma"), of=self.cluster_on)

    def null_directions(self, mdp: None, theta: ArrayLike) -> FloatArray:
        """Return (1, q), the direction of theta (q,) itself: its length has no effect, so that q - 1 weights are free.

        Features that always sum to the same, step by step, leave one more that this does not know of.

        Examples
        --------
        >>> SigmaGIRL().null_directions(None, [0.6, 0.0, 0.8])
        array([[0.6, 0. , 0.8]])
        """
        self._check(mdp)
        found = _weights(theta, np.size(theta))
        return np.asarray(found / np.linalg.norm(found))

    def make_problem(self, mdp: None, agents: Agents, units: Groups) -> SigmaProblem:
        """Return the model with the data of a mixture, for `IntentMixture`."""
        self._check(mdp)
        return SigmaProblem(self, _checked(agents), units)

    def _search(
        self, mdp: None, agents: Agents, weights: ArrayLike | None, starts: ArrayLike | None, *, columns: bool
    ) -> list[FitResult]:
        ready = self.make_problem(mdp, agents, Groups.for_demos(None, _checked(agents)))
        given = validate.weights(weights, agents, columns=columns)  # type: ignore[arg-type]
        first = None if starts is None else _weights(starts, ready.n_parameters)
        if first is not None and len(first) != given.shape[1]:
            raise InvalidParameter(
                f"There must be one start for each of {given.shape[1]} columns of weights; there are {len(first)}.",
                parameter="starts",
                value=first.shape,
            )
        return ready.search(given, first, check_count(self.max_evaluations, "max_evaluations"))

    def _check(self, mdp: object) -> None:
        """Check the parameters, and that no MDP is given."""
        if mdp is not None:
            raise InvalidParameter(
                f"SigmaGIRL knows no MDP: pass mdp=None, and what happened as Agents; mdp is a {type(mdp).__name__}.",
                parameter="mdp",
                value=mdp,
            )
        if check_positive(self.gamma, "gamma") > 1.0:
            raise InvalidParameter(
                f"gamma must be above 0 and at most 1; got {self.gamma!r}.", parameter="gamma", value=self.gamma
            )
        check_choice(self.covariance, "covariance", tuple(PROFILES))
        check_choice(self.cluster_on, "cluster_on", ("reward", "policy"))
        if check_count(self.n_starts, "n_starts") < 3:
            raise InvalidParameter(
                f"n_starts must be at least 3, since the likelihood has several maxima; it is {self.n_starts}.",
                parameter="n_starts",
                value=self.n_starts,
            )
        if isinstance(self.random_state, bool) or not isinstance(self.random_state, int | np.integer):
            raise InvalidParameter(
                f"random_state must be a whole number, so that every fit searches alike; got {self.random_state!r}.",
                parameter="random_state",
                value=self.random_state,
            )


def _checked(given: Any) -> Agents:
    """Return agents, if it is agents that are given."""
    if not isinstance(given, Agents):
        raise InvalidDemos(
            f"SigmaGIRL learns from Agents; got a {type(given).__name__}. Use Agents.from_arrays.",
            parameter="agents",
            value=given,
        )
    return given


def _weights(given: ArrayLike, q: int) -> FloatArray:
    """Return thetas (K, q), each of which has a direction."""
    try:
        found = np.atleast_2d(np.asarray(given, dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise InvalidParameter(f"thetas must be numbers ({error}).", parameter="thetas", value=given) from None
    if found.ndim != 2 or found.shape[1] != q:
        raise InvalidParameter(
            f"thetas must have the shape (K, {q}), a weight a reward feature; it is {found.shape}.",
            parameter="thetas",
            value=found.shape,
        )
    bad = ~(np.all(np.isfinite(found), axis=1) & np.any(found != 0.0, axis=1))
    if np.any(bad):
        k = int(np.argmax(bad))
        raise InvalidParameter(
            f"thetas must be finite and not all zero; row {k} is {found[k].tolist()}.",
            parameter="thetas",
            value=found[k].tolist(),
            index=k,
        )
    return found
