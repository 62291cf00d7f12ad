"""Initialisation of EM: clusters in feature space (the paper's warm start), random draws, or given values.

Paper: section "The LiMIIRL algorithm". Points (feature counts, or an embedding) are clustered, labels are converted to
responsibilities (G, K), and `reward_init` computes the initial reward of each cluster: its maximum likelihood estimate,
or its mean features centred on the mean of all demonstrations. Uncentred feature counts are positive and would reward
cycles.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning as SklearnConvergenceWarning
from sklearn.mixture import GaussianMixture

from limiirl._parallel import one_thread
from limiirl._typing import FloatArray
from limiirl._validation import as_floats
from limiirl.demos import Groups
from limiirl.errors import DivergentPartition, InvalidParameter
from limiirl.irl import FitProblem, minimise_ray
from limiirl.mdp import RewardEnsemble
from limiirl.mixture import validate
from limiirl.mixture.em import Pooling, Settings, Start, check_gradients, fit_pooled_clusters, run
from limiirl.mixture.information import score_blocks

Rng = np.random.Generator
Clustering = Callable[[FloatArray, int, Rng], Any]

_KMEANS_STARTS = 20
_GMM_STARTS = 5
# Regularisation of the covariance of standardised features, which may be nearly collinear.
_LEAST_VARIANCE = 1e-3


def kmeans(points: FloatArray, n_intents: int, rng: Rng, n_starts: int = _KMEANS_STARTS) -> NDArray[np.int64]:
    """Return k-means labels (G,) of points (G, m), which are neither centred nor scaled, as in the paper."""
    clusterer = KMeans(n_intents, n_init=n_starts, random_state=_seed(rng))
    with warnings.catch_warnings():
        # Ignore the warning about fewer distinct points than clusters: `fit` warns of empty intents.
        warnings.simplefilter("ignore", SklearnConvergenceWarning)
        labels: NDArray[np.int64] = clusterer.fit_predict(points).astype(np.int64)
    return labels


def gmm(points: FloatArray, n_intents: int, rng: Rng, n_starts: int = _GMM_STARTS) -> FloatArray:
    """Return responsibilities (G, K) of a Gaussian mixture with a tied covariance, which cannot collapse."""
    scaled = standardise(points)
    if scaled.shape[1] == 0:
        return np.eye(n_intents)[np.zeros(len(points), dtype=np.int64)]
    mixture = GaussianMixture(
        n_intents, covariance_type="tied", reg_covar=_LEAST_VARIANCE, n_init=n_starts, random_state=_seed(rng)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SklearnConvergenceWarning)
        return np.asarray(mixture.fit(scaled).predict_proba(scaled))


def standardise(points: FloatArray) -> FloatArray:
    """Return points (G, r) with mean 0 and variance 1, without constant columns."""
    spread = points.std(axis=0)
    varies = spread > 1e-8 * np.abs(points).max(axis=0, initial=0.0)
    return np.asarray((points - points.mean(axis=0))[:, varies] / spread[varies])


def random_responsibilities(points: FloatArray, n_intents: int, rng: Rng) -> FloatArray:
    """Return responsibilities (G, K) uniform on the simplex."""
    return rng.dirichlet(np.ones(n_intents), size=len(points))


def random_rewards(lower: FloatArray, upper: FloatArray, n_intents: int, rng: Rng) -> RewardEnsemble:
    """Draw the paper's baseline: rewards uniform within the bounds, weights Dir(1 / K).

    Without bounds, rewards lie in (-10, 0); with a single bound, the range has width 10.
    """
    low = np.where(np.isfinite(lower), lower, np.where(np.isfinite(upper), upper, 0.0) - 10.0)
    high = np.where(np.isfinite(upper), upper, low + 10.0)
    thetas = rng.uniform(low, high, size=(n_intents, lower.size))
    return RewardEnsemble(rng.dirichlet(np.full(n_intents, 1.0 / n_intents)), thetas)


CLUSTERINGS: dict[str, Clustering] = {"kmeans": kmeans, "gmm": gmm, "random": random_responsibilities}
# Later initialisations use one random start per clustering; the best of many starts would nearly always be the same
# clustering.
_ONE_START: dict[str, Clustering] = {"kmeans": partial(kmeans, n_starts=1), "gmm": partial(gmm, n_starts=1)}


def is_given(init: Any) -> bool:
    """Return True if `init` is an array of labels or responsibilities, or a RewardEnsemble."""
    return not (
        isinstance(init, str) or callable(init) or hasattr(init, "fit_predict") or hasattr(init, "predict_proba")
    )


def check_choices(init: Any, embedding: Any, reward_init: Any = "mle") -> None:
    """Raise for unknown names of `init`, `embedding` and `reward_init`."""
    if isinstance(init, type):
        raise InvalidParameter.of("init", init, "must be an instance, not a class", remedy="Add parentheses.")
    names = (*CLUSTERINGS, BEST, "random_rewards")
    if isinstance(init, str) and init not in names:
        other = "labels, responsibilities, a RewardEnsemble, a clusterer or a function"
        raise InvalidParameter.of("init", init, f"must be one of {', '.join(names)}, or {other}")
    if isinstance(embedding, str) and embedding not in EMBEDDINGS:
        rule = f"must be one of {', '.join(EMBEDDINGS)}, an array, or a function of (mdp, demos)"
        raise InvalidParameter.of("embedding", embedding, rule)
    check_reward_init(reward_init)


def cluster(
    init: Any, points: FloatArray, n_intents: int, units: Groups, rng: Rng, *, first: bool
) -> FloatArray | RewardEnsemble:
    """Return responsibilities (G, K), or an ensemble, for any `init` except "best" and "random_rewards".

    Clusterings other than the `first` use one random start.
    """
    if isinstance(init, RewardEnsemble):
        return init
    if isinstance(init, str):
        clustering = CLUSTERINGS[init] if first else _ONE_START.get(init, CLUSTERINGS[init])
        with one_thread():
            clusters = clustering(points, n_intents, rng)
    elif hasattr(init, "fit_predict") or hasattr(init, "predict_proba"):
        with one_thread():
            clusters = _run_clusterer(init, points, n_intents, rng)
    elif callable(init):
        clusters = init(points, n_intents, rng)
    else:
        clusters = _reduce_to_units(init, units)
    return clusters if isinstance(clusters, RewardEnsemble) else as_responsibilities(clusters, n_intents, units)


def _run_clusterer(init: Any, points: FloatArray, n_intents: int, rng: Rng) -> Any:
    """Fit a copy of a scikit-learn clusterer with K clusters, and return its labels or responsibilities."""
    clusterer = clone(init)
    values = clusterer.get_params()  # includes the steps of a pipeline
    names = {name.rpartition("__")[2]: name for name in values}
    changes = {names[name]: n_intents for name in ("n_clusters", "n_components") if name in names}
    if "random_state" in names and values[names["random_state"]] is None:
        changes[names["random_state"]] = _seed(rng)
    clusterer.set_params(**changes)
    if hasattr(clusterer, "predict_proba"):
        return clusterer.fit(points).predict_proba(points)
    return clusterer.fit_predict(points)


def _reduce_to_units(init: Any, units: Groups) -> NDArray[Any]:
    """Return labels or responsibilities with one row per unit; rows per demonstration are reduced to rows per group."""
    try:
        given = np.asarray(init)
    except ValueError as error:
        message = f"init must be an array of labels or responsibilities ({error})."
        raise InvalidParameter(message, parameter="init", value=init) from None
    if units.index is None or given.ndim == 0 or given.shape[0] != units.index.size:
        return given
    _, first = np.unique(units.index, return_index=True)
    differs = np.asarray(given[first][units.index] != given)
    if np.any(differs):
        i = int(np.argmax(differs.reshape(len(differs), -1).any(axis=1)))
        rule = f"must be the same for all demonstrations of {units.name(int(units.index[i]))}"
        remedy = f"Pass one row for each of the {len(units)} groups, in sorted order."
        raise InvalidParameter.of("init", given[i].tolist(), rule, index=i, remedy=remedy)
    return np.asarray(given[first])


def as_responsibilities(labels: Any, n_intents: int, units: Groups) -> FloatArray:
    """Convert labels (G,) to responsibilities (G, K), or check given responsibilities."""
    given = np.asarray(labels)
    if given.ndim == 1:
        return _one_hot(given, n_intents, units)
    given = as_floats(labels, "init", boolean=True)
    if given.shape != (len(units), n_intents):
        raise InvalidParameter.of("init", given.shape, f"must have shape ({len(units)}, {n_intents}) for {units.noun}")
    U = given.astype(np.float64)
    wrong = ~(np.all((U >= 0) & np.isfinite(U), axis=1) & (np.abs(U.sum(axis=1) - 1.0) <= 1e-6))
    if np.any(wrong):
        i = int(np.argmax(wrong))
        remedy = "Divide each row by its sum."
        raise InvalidParameter.of("init", U[i].tolist(), "must be probabilities that sum to 1", index=i, remedy=remedy)
    return np.asarray(U / U.sum(axis=1, keepdims=True))


def _one_hot(labels: NDArray[Any], n_intents: int, units: Groups) -> FloatArray:
    """Return responsibilities (G, K): integers from 0 to K - 1 are intents, other labels are sorted and numbered."""
    if labels.shape != (len(units),):
        raise InvalidParameter.of("init", labels.size, f"must have one label for each of the {len(units)} {units.noun}")
    if labels.dtype.kind == "f" and np.all(labels == np.floor(labels)):  # tables may contain integers as floats
        labels = labels.astype(np.int64)
    if labels.dtype.kind not in "iubU":
        valid = [isinstance(x, str | int) or (x is not None and x == np.floor(x)) for x in labels.tolist()]
        i = valid.index(False) if False in valid else 0
        rule = "must be an integer or a string; -1 denotes an unknown intent"
        raise InvalidParameter.of("init", labels.tolist()[i], rule, index=i)
    integers = labels.dtype.kind in "iu"
    known = labels[labels >= 0] if integers else labels  # clusterers label noise as -1
    names, index = np.unique(known, return_inverse=True)
    if integers and (names.size == 0 or names[-1] < n_intents):
        index = known
    elif names.size > n_intents:
        rule = f"must have at most n_intents={n_intents} distinct labels"
        raise InvalidParameter.of("init", names.size, rule, remedy="Raise n_intents, or merge labels.")
    U = np.full((len(units), n_intents), 1.0 / n_intents)
    U[labels >= 0 if integers else slice(None)] = np.eye(n_intents)[index]
    return U


def _seed(rng: Rng) -> int:
    return int(rng.integers(2**31 - 1))


# Relative second moment below which a direction is a rounding error.
_FLAT = 1e-6
# Maximum number of evaluations of the single-intent fit.
_EVALUATIONS = 1000


def normalise_counts(problem: FitProblem) -> FloatArray:
    """Return the feature counts (G, m) divided by the sum of their absolute values.

    Feature counts grow with the length of a trajectory, so k-means on them may separate lengths instead of intents.
    """
    features = problem.features()
    total = np.abs(features).sum(axis=1, keepdims=True)
    return np.asarray(features / np.where(total > 0.0, total, 1.0))


def compute_gradients(problem: FitProblem) -> FloatArray:
    """Return the whitened scores (G, r) of units at the reward of a single-intent fit (ADR 0012).

    The score is the gradient of the unit's mean log-likelihood per demonstration. Whitening with sum_i s_i s_i' / G
    makes it independent of the scale of the features.
    """
    pooled = np.ones((len(problem.units), 1))
    limit = None if problem.initial_evaluations is None else _EVALUATIONS  # None: the model does not support a limit
    theta = problem.m_step(problem.moments(pooled), None, np.arange(1), limit).thetas
    blocks = [block[:, 0] for _, block in score_blocks(problem, theta, np.ones(theta.shape, dtype=bool))]
    return whiten_scores(np.concatenate(blocks) / problem.units.counts[:, None])


def whiten_scores(points: FloatArray) -> FloatArray:
    """Return points (G, r) with identity second moments, without directions of zero variance."""
    with one_thread():
        sizes, directions = np.linalg.eigh(points.T @ points / len(points))
        wide = sizes > _FLAT * max(sizes[-1], np.finfo(np.float64).tiny)
        if not np.any(wide):
            return np.zeros((len(points), 1))
        return np.ascontiguousarray(points @ directions[:, wide] / np.sqrt(sizes[wide]))


# Functions of a fit problem that return the points (G, m) to cluster.
EMBEDDINGS: dict[str, Callable[[FitProblem], FloatArray]] = {
    "shares": normalise_counts,
    "gradients": compute_gradients,
}

RewardInit = Callable[[FitProblem, FloatArray], FloatArray]
# Maximum relative difference between rewards that count as equal.
_EQUAL = 1e-9
# Two intents are indistinct if the range of their log-odds over all units is at most this.
_INDISTINCT = 0.05
# Relative size of the perturbation of equal rewards, and the number of attempts.
_NOISE, _ATTEMPTS = 0.1, 10
# Upper limit of the search in `mean_ray`: the factor times |theta|^2.
_LARGEST_DIFFERENCE = 1e3


def mle(problem: FitProblem, U: FloatArray) -> FloatArray:
    """Return the maximum likelihood rewards (K, d) of each cluster."""
    # The limit for M-steps is too small here, since the search starts far from the optimum.
    limit = problem.initial_evaluations
    return problem.m_step(problem.moments(U), None, np.arange(U.shape[1]), limit).thetas


def environment_fractions(problem: FitProblem) -> FloatArray | None:
    """Return the fractions (G, E) of each unit's demonstrations in each environment; None without environments."""
    environment = getattr(problem.mdp, "environment", None)
    if environment is None or problem.demos is None:
        return None
    return problem.units.mean(np.eye(int(environment.max()) + 1)[environment[problem.demos.start_states]])


def centre_by_environment(points: FloatArray, fractions: FloatArray | None) -> FloatArray:
    """Return points (G, m) minus the means of their environments, given `environment_fractions` (G, E).

    Feature counts may differ more between environments than between intents. Without centring, clusters would be
    environments.

    Examples
    --------
    >>> points = np.array([[1.0], [3.0], [10.0], [12.0]])
    >>> centre_by_environment(points, np.repeat(np.eye(2), 2, axis=0)).ravel().round(9)
    array([-1.,  1., -1.,  1.])
    """
    if fractions is None:
        return points
    return np.asarray(points - fractions @ np.linalg.lstsq(fractions, points, rcond=None)[0])


def mean(problem: FitProblem, U: FloatArray) -> FloatArray:
    """Return the mean features (K, d) of each cluster minus the overall mean, regardless of bounds."""
    features = centre_by_environment(problem.features(), environment_fractions(problem))
    weights = U * problem.units.counts[:, None]
    counts = problem.units.counts / problem.units.counts.sum()
    return np.asarray((weights.T @ features) / weights.sum(axis=0)[:, None] - counts @ features)


def mean_clipped(problem: FitProblem, U: FloatArray) -> FloatArray:
    """Return `mean` (K, d) clipped to the bounds."""
    return problem.project(mean(problem, U))


def mean_ray(problem: FitProblem, U: FloatArray) -> FloatArray:
    """Return `mean` (K, d) with each row multiplied by the factor that maximises the likelihood."""
    direction = mean(problem, U)
    weights = U / U.sum(axis=0)
    thetas = np.zeros_like(direction)
    for k, theta in enumerate(direction):

        def loss(factor: float, theta: FloatArray = theta, k: int = k) -> float:
            log_p = problem.log_prob((factor * theta)[None])[:, 0]
            return -float(weights[:, k] @ log_p)

        length = float(theta @ theta)
        thetas[k] = minimise_ray(loss, _LARGEST_DIFFERENCE / length) * theta if length > 0.0 else 0.0
    return thetas


REWARDS: dict[str, RewardInit] = {"mle": mle, "mean": mean, "mean_ray": mean_ray, "mean_clipped": mean_clipped}


def check_reward_init(reward_init: Any) -> RewardInit:
    """Return the function that computes initial rewards."""
    compute: Any = REWARDS.get(reward_init) if isinstance(reward_init, str) else reward_init
    if not callable(compute):
        raise InvalidParameter.of("reward_init", reward_init, f"must be one of {', '.join(REWARDS)}, or a function")
    return cast("RewardInit", compute)


def start_from(problem: FitProblem, U: FloatArray, reward_init: Any, rng: np.random.Generator) -> Start:
    """Return the initial ensemble for responsibilities (G, K); an empty cluster gets the reward of all data."""
    compute = check_reward_init(reward_init)
    sizes = U.sum(axis=0)
    empty = sizes == 0.0
    listed = ", ".join(map(str, np.flatnonzero(empty)))
    message = (
        f"No {problem.units.noun} are initially assigned to intent {listed}; n_intents={len(sizes)} may exceed the "
        "number of distinct labels or feature vectors. Use fewer intents."
    )
    given = _check_thetas(compute(problem, np.where(empty, 1.0, U)), len(sizes), problem)
    thetas, equal = separate_equal(given, ~empty, problem, rng)
    warned = (message, *equal) if listed else equal
    return Start(sizes / len(U), thetas, U, tuple(np.flatnonzero(empty).tolist()), warned, "reward_init")


def separate_equal(
    thetas: FloatArray, counted: NDArray[np.bool_], problem: FitProblem, rng: np.random.Generator
) -> tuple[FloatArray, tuple[str, ...]]:
    """Perturb rewards (K, d) if two of the `counted` intents have equal rewards; return rewards and warnings."""
    pair = find_equal_pair(thetas, counted)
    if pair is None or not np.any(np.ptp(problem.features(), axis=0) > 0):
        return thetas, ()
    message = (
        f"Intents {pair[0]} and {pair[1]} have the same initial rewards, and EM would not separate them; random noise "
        "was added. Pass distinct initial responsibilities or rewards, or init='kmeans'."
    )
    noisy = thetas
    for _ in range(_ATTEMPTS):
        noisy = problem.project(thetas + _NOISE * (1.0 + np.abs(thetas)) * rng.normal(size=thetas.shape))
        if find_equal_pair(noisy, counted) is None:
            break
    return noisy, (message,)


def _check_thetas(given: Any, n_intents: int, problem: FitProblem) -> FloatArray:
    thetas = np.ascontiguousarray(as_floats(given, "reward_init"))
    d = problem.n_parameters
    wrong = thetas.ndim != 2 or thetas.shape[0] != n_intents or (d is not None and thetas.shape[1] != d)
    if wrong or not np.all(np.isfinite(thetas)):
        rule = f"must return finite rewards of shape ({n_intents}, {'d' if d is None else d})"
        raise InvalidParameter.of("reward_init", thetas.shape, rule)
    return thetas


def find_equal_pair(thetas: FloatArray, counted: NDArray[np.bool_]) -> tuple[int, int] | None:
    """Return two of the `counted` intents with equal rewards, or None."""
    for k in np.flatnonzero(counted):
        for other in np.flatnonzero(counted[:k]):
            if np.all(np.abs(thetas[k] - thetas[other]) <= _EQUAL * (1.0 + np.abs(thetas[k]))):
                return int(other), int(k)
    return None


def find_indistinct_pair(U: FloatArray, counted: NDArray[np.bool_]) -> tuple[int, int] | None:
    """Return two of the `counted` intents whose columns of U (n, K) have the same ratio for all units, or None."""
    with np.errstate(divide="ignore", invalid="ignore"):
        log_U = np.log(U)
        for k in np.flatnonzero(counted):
            for other in np.flatnonzero(counted[:k]):
                if np.ptp(log_U[:, k] - log_U[:, other]) <= _INDISTINCT:
                    return int(other), int(k)
    return None


BEST = "best"
# Maximum difference between the responsibilities of equal clusterings.
_SAME = 1e-3


class Candidate(NamedTuple):
    """Name of a clustering, and the points (G, m) to cluster."""

    init: str
    points: FloatArray


def choose_best(
    problem: FitProblem, candidates: list[Candidate], n_intents: int, reward_init: Any, rng: Rng, *, first: bool
) -> Start:
    """Return the initialisation with the highest objective among those of the candidates."""
    seen: list[FloatArray] = []
    best, highest, failed = None, -np.inf, None
    for candidate in candidates:
        U = cluster(candidate.init, candidate.points, n_intents, problem.units, rng, first=first)
        assert not isinstance(U, RewardEnsemble)  # k-means and GMM return clusters
        if any(_same(U, other) for other in seen):
            continue
        seen.append(U)
        start = start_from(problem, U, reward_init, rng)
        try:
            objective = run(problem, start, Settings(max_iter=0)).objective
        except DivergentPartition as error:
            failed = error
            continue
        if best is None or objective > highest:
            best, highest = start, objective
    if best is None:
        assert failed is not None  # there is at least one candidate
        raise failed
    return best


def _same(U: FloatArray, other: FloatArray) -> bool:
    order = np.argmax(U.T @ other, axis=1)
    if np.unique(order).size < order.size:
        return False
    return bool(np.max(np.abs(U - other[:, order])) < _SAME)


def embed(embedding: Any, problem: FitProblem) -> FloatArray:
    """Return the points (G, m) to cluster: the model's features, or the embedding."""
    if embedding is None:
        points = validate.check_points(problem.features(), len(problem.units), "irl")
        return centre_by_environment(points, environment_fractions(problem))
    if isinstance(embedding, str):
        return validate.check_points(EMBEDDINGS[embedding](problem), len(problem.units))
    points = embedding(problem.mdp, problem.demos) if callable(embedding) else embedding
    return problem.units.mean(validate.check_points(points, len(problem.demos)))


class Starts:
    """Initialisations of a fit problem for one `init`; `n_parameters` is d if the model does not specify it.

    With `pooling`, features whose rewards are shared are not clustered, and "mle" estimates shared rewards.
    """

    def __init__(
        self,
        init: Any,
        embedding: Any,
        problem: FitProblem,
        n_parameters: int | None = None,
        pooling: Pooling | None = None,
    ) -> None:
        self.init, self.embedding, self.problem = init, embedding, problem
        self._n_parameters, self._pooling = n_parameters, pooling

    @cached_property
    def points(self) -> FloatArray:
        """The points (G, m) to cluster."""
        points = embed(self.embedding, self.problem)
        if self._pooling is None or self.embedding is not None or np.all(self._pooling.shared):
            return points
        return points[:, ~self._pooling.shared] if points.shape[1] == self._pooling.shared.size else points

    @property
    def seeks_best(self) -> bool:
        """True for `init="best"`."""
        return isinstance(self.init, str) and self.init == BEST

    @cached_property
    def candidates(self) -> list[Candidate]:
        """The candidates of "best": k-means and GMM on the points, and k-means on gradients."""
        listed = [Candidate("kmeans", self.points), Candidate("gmm", self.points)]
        if self.embedding is None:
            listed.append(Candidate("kmeans", compute_gradients(self.problem)))
        return listed

    def guess(
        self, n_intents: int, rng: Rng, *, first: bool = True, order: NDArray[np.intp] | None = None
    ) -> FloatArray | RewardEnsemble:
        """Return responsibilities (G, K), or an ensemble, for any `init` except "best".

        Clusterings other than the `first` use one random start. Points are clustered in the given `order`.
        """
        points = np.empty((len(self.problem.units), 0)) if is_given(self.init) else self.points
        if isinstance(self.init, str) and self.init == "random_rewards":
            d = self._n_parameters or self.problem.n_parameters or self.problem.features().shape[1]
            box = self.problem.box(d)
            return random_rewards(box.lower, box.upper, n_intents, rng)
        if order is None:
            return cluster(self.init, points, n_intents, self.problem.units, rng, first=first)
        guess = cluster(self.init, points[order], n_intents, self.problem.units, rng, first=first)
        return guess if isinstance(guess, RewardEnsemble) else guess[np.argsort(order)]

    def begin(self, n_intents: int, reward_init: Any, rng: Rng, *, first: bool = True) -> Start:
        """Return the initial ensemble, which is given or computed by `reward_init` from responsibilities."""
        problem, pooling = self.problem, self._pooling
        if pooling is not None and reward_init == "mle":
            check_gradients(problem, n_intents, "shared", int(np.count_nonzero(pooling.shared)))
            reward_init = partial(fit_pooled_clusters, pooling=pooling)
        if self.seeks_best:
            return choose_best(problem, self.candidates, n_intents, reward_init, rng, first=first)
        guess = self.guess(n_intents, rng, first=first)
        if isinstance(guess, RewardEnsemble):
            validate.check_ensemble(guess, n_intents, problem)
            thetas, warned = separate_equal(np.array(guess.thetas), guess.weights > 0, problem, rng)
            return Start(guess.weights, thetas, warnings=warned)
        return start_from(problem, guess, reward_init, rng)
