"""Where EM begins: clusters in feature space (the paper's warm start), random draws, or what the user knows already.

Paper: section "The LiMIIRL algorithm". Anything that says who belongs together becomes responsibilities (G, K), which
`limiirl.mixture.reward_init` turns into rewards.

`init="best"`: several clusterings, of which the one whose rewards explain the demonstrations best begins EM.

Where a mixture begins: an `init` together with the data that it is applied to, for either estimator.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning as SklearnConvergenceWarning
from sklearn.mixture import GaussianMixture

from limiirl._parallel import one_thread
from limiirl._typing import FloatArray
from limiirl.demos import Groups
from limiirl.errors import DivergentPartition, InvalidParameter
from limiirl.irl import FitProblem
from limiirl.mdp import RewardEnsemble
from limiirl.mixture import validate
from limiirl.mixture.em import Settings, Start, run
from limiirl.mixture.embeddings import embedding as by_name
from limiirl.mixture.embeddings import gradients
from limiirl.mixture.reward_init import separated, start_from

Rng = np.random.Generator
Clustering = Callable[[FloatArray, int, Rng], Any]

_KMEANS_STARTS = 20
_GMM_STARTS = 5
# Added to the variances of standardised features: nearly collinear ones would give a component no volume.
_LEAST_VARIANCE = 1e-3


def kmeans(points: FloatArray, n_intents: int, rng: Rng, n_starts: int = _KMEANS_STARTS) -> NDArray[np.int64]:
    """Return labels (G,) by k-means on points (G, m) as they are: the paper neither centres nor scales them."""
    clusterer = KMeans(n_intents, n_init=n_starts, random_state=_seed(rng))
    with warnings.catch_warnings():
        # Fewer distinct points than clusters: the empty ones are reported as intents that nobody follows.
        warnings.simplefilter("ignore", SklearnConvergenceWarning)
        labels: NDArray[np.int64] = clusterer.fit_predict(points).astype(np.int64)
    return labels


def gmm(points: FloatArray, n_intents: int, rng: Rng, n_starts: int = _GMM_STARTS) -> FloatArray:
    """Return responsibilities (G, K) of a Gaussian mixture with one covariance for all, which cannot collapse.

    With a covariance each, a component of few or collinear points shrinks onto them.
    """
    scaled = standardised(points)
    if scaled.shape[1] == 0:
        return np.eye(n_intents)[np.zeros(len(points), dtype=np.int64)]
    mixture = GaussianMixture(
        n_intents, covariance_type="tied", reg_covar=_LEAST_VARIANCE, n_init=n_starts, random_state=_seed(rng)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SklearnConvergenceWarning)
        return np.asarray(mixture.fit(scaled).predict_proba(scaled))


def standardised(points: FloatArray) -> FloatArray:
    """Return points (G, r) of mean 0 and variance 1, without the columns that do not vary but for rounding.

    Examples
    --------
    >>> standardised(np.array([[1.0, 0.3], [3.0, 0.1 + 0.2]])).tolist()
    [[-1.0], [1.0]]
    """
    spread = points.std(axis=0)
    varies = spread > 1e-8 * np.abs(points).max(axis=0, initial=0.0)
    return np.asarray((points - points.mean(axis=0))[:, varies] / spread[varies])


def random_responsibilities(points: FloatArray, n_intents: int, rng: Rng) -> FloatArray:
    """Return rows (G, K) uniform on the simplex."""
    return rng.dirichlet(np.ones(n_intents), size=len(points))


def random_rewards(lower: FloatArray, upper: FloatArray, n_intents: int, rng: Rng) -> RewardEnsemble:
    """Return the paper's baseline: rewards uniform within bounds, weights Dir(1 / K).

    Without bounds they lie between -10 and 0; beside a single bound, within 10 of it.
    """
    low = np.where(np.isfinite(lower), lower, np.where(np.isfinite(upper), upper, 0.0) - 10.0)
    high = np.where(np.isfinite(upper), upper, low + 10.0)
    thetas = rng.uniform(low, high, size=(n_intents, lower.size))
    return RewardEnsemble(rng.dirichlet(np.full(n_intents, 1.0 / n_intents)), thetas)


CLUSTERINGS: dict[str, Clustering] = {"kmeans": kmeans, "gmm": gmm, "random": random_responsibilities}
"""Clusterings by name."""
# Restarts after the first: the best of many starts would nearly always be the same.
_ONE_START: dict[str, Clustering] = {"kmeans": partial(kmeans, n_starts=1), "gmm": partial(gmm, n_starts=1)}


def is_given(init: Any) -> bool:
    """Whether an init is labels, responsibilities or rewards, so that starting from it twice gives the same."""
    made = isinstance(init, str) or callable(init) or hasattr(init, "fit_predict") or hasattr(init, "predict_proba")
    return not made


def grouping(
    init: Any, points: FloatArray, n_intents: int, units: Groups, rng: Rng, *, first: bool
) -> FloatArray | RewardEnsemble:
    """Return responsibilities (G, K), or an ensemble, from any form of `init` but "best" and "random_rewards".

    Parameters
    ----------
    first : bool
        Whether this is the first of several restarts; the others cluster from one random start each.
    """
    if isinstance(init, RewardEnsemble):
        return init
    if isinstance(init, str):
        if init not in CLUSTERINGS:
            known = ", ".join([*CLUSTERINGS, "best", "random_rewards"])
            raise InvalidParameter(
                f"init must be one of {known}, or labels, responsibilities, a RewardEnsemble, a clusterer or a "
                f"function; it is {init!r}.",
                parameter="init",
                value=init,
            )
        clustering = CLUSTERINGS[init] if first else _ONE_START.get(init, CLUSTERINGS[init])
        with one_thread():
            found = clustering(points, n_intents, rng)
    elif hasattr(init, "fit_predict") or hasattr(init, "predict_proba"):
        with one_thread():
            found = _by_clusterer(init, points, n_intents, rng)
    elif callable(init):
        found = init(points, n_intents, rng)
    else:
        found = _per_unit(init, units)
    return found if isinstance(found, RewardEnsemble) else as_responsibilities(found, n_intents, units)


def _by_clusterer(init: Any, points: FloatArray, n_intents: int, rng: Rng) -> Any:
    """Return labels or responsibilities of a scikit-learn clusterer, told K and a seed where it takes them."""
    clusterer = clone(init)
    known = clusterer.get_params()  # those of a pipeline's steps included
    last = {name.rpartition("__")[2]: name for name in known}
    wanted = {last[name]: n_intents for name in ("n_clusters", "n_components") if name in last}
    if "random_state" in last and known[last["random_state"]] is None:
        wanted[last["random_state"]] = _seed(rng)
    clusterer.set_params(**wanted)
    if hasattr(clusterer, "predict_proba"):
        return clusterer.fit(points).predict_proba(points)
    return clusterer.fit_predict(points)


def _per_unit(init: Any, units: Groups) -> NDArray[Any]:
    """Return given labels or responsibilities with one row a unit, from one a demonstration where these are grouped."""
    try:
        given = np.asarray(init)
    except ValueError as error:
        raise InvalidParameter(
            f"init must be an array of labels or responsibilities ({error}).", parameter="init"
        ) from None
    if units.index is None or given.ndim == 0 or given.shape[0] != units.index.size:
        return given
    _, first = np.unique(units.index, return_index=True)
    differs = np.asarray(given[first][units.index] != given)
    if np.any(differs):
        i = int(np.argmax(differs.reshape(len(differs), -1).any(axis=1)))
        name = units.name(int(units.index[i]))
        raise InvalidParameter(
            f"init must be the same for all demonstrations of a group; demonstration {i} differs from the first of "
            f"{name}. Pass one row for each of the {len(units)} groups, in sorted order.",
            parameter="init",
        )
    return np.asarray(given[first])


def as_responsibilities(found: Any, n_intents: int, units: Groups) -> FloatArray:
    """Return responsibilities (G, K) from labels (G,) or rows of probabilities (G, K), checked."""
    given = np.asarray(found)
    if given.ndim == 1:
        return _one_hot(given, n_intents, units)
    if given.dtype.kind not in "fiub":
        raise InvalidParameter(
            f"Initial responsibilities must be real numbers; their dtype is {given.dtype}.", parameter="init"
        )
    if given.shape != (len(units), n_intents):
        raise InvalidParameter(
            f"Initial responsibilities must have the shape ({len(units)}, {n_intents}), a row for each of the "
            f"{units.noun} and a column for each intent; got shape {given.shape}.",
            parameter="init",
        )
    U = given.astype(np.float64)
    wrong = ~(np.all((U >= 0) & np.isfinite(U), axis=1) & (np.abs(U.sum(axis=1) - 1.0) <= 1e-6))
    if np.any(wrong):
        i = int(np.argmax(wrong))
        raise InvalidParameter(
            f"Initial responsibilities must be rows of probabilities; row {i} is {U[i].tolist()}, which sums to "
            f"{U[i].sum():.6g}. Divide each row by its sum.",
            parameter="init",
        )
    return np.asarray(U / U.sum(axis=1, keepdims=True))


def _one_hot(labels: NDArray[Any], n_intents: int, units: Groups) -> FloatArray:
    """Return (G, K); integers from 0 to K - 1 name their intents, other labels are numbered in sorted order."""
    if labels.shape != (len(units),):
        raise InvalidParameter(
            f"Initial labels must be one for each of the {len(units)} {units.noun}; there are {labels.size}.",
            parameter="init",
        )
    if labels.dtype.kind == "f" and np.all(labels == np.floor(labels)):  # what a table makes of whole numbers
        labels = labels.astype(np.int64)
    if labels.dtype.kind not in "iubU":
        fine = [isinstance(label, str | int) or label == np.floor(label or np.nan) for label in labels.tolist()]
        odd = fine.index(False) if False in fine else 0
        raise InvalidParameter(
            f"Initial labels must be whole numbers or texts, none missing; label {odd} is {labels.tolist()[odd]!r}. "
            "Give it one, or -1 for a demonstration that may be of any intent.",
            parameter="init",
        )
    integers = labels.dtype.kind in "iu"
    known = labels[labels >= 0] if integers else labels  # clusterers mark noise by -1
    names, index = np.unique(known, return_inverse=True)
    if integers and (names.size == 0 or names[-1] < n_intents):
        index = known
    elif names.size > n_intents:
        raise InvalidParameter(
            f"There are {names.size} different initial labels for n_intents={n_intents}. Raise n_intents, or merge "
            "labels.",
            parameter="init",
        )
    U = np.full((len(units), n_intents), 1.0 / n_intents)
    U[labels >= 0 if integers else slice(None)] = np.eye(n_intents)[index]
    return U


def _seed(rng: Rng) -> int:
    return int(rng.integers(2**31 - 1))


BEST = "best"
# Clusters that differ by less (in responsibility) are the same: their rewards would be, too.
_SAME = 1e-3


class Candidate(NamedTuple):
    """A clustering by name, and the points (G, m) that it is given."""

    init: str
    points: FloatArray


def candidates(problem: FitProblem, points: FloatArray, *, with_gradients: bool) -> list[Candidate]:
    """Return what to try: k-means and a Gaussian mixture of the points, and k-means of gradients.

    Parameters
    ----------
    points : (G, m)
        Feature counts, or the user's embedding.
    with_gradients : bool
        Whether to try the gradients, beside the points.
    """
    found = [Candidate("kmeans", points), Candidate("gmm", points)]
    if with_gradients:
        found.append(Candidate("kmeans", gradients(problem)))
    return found


def best_start(
    problem: FitProblem, tried: list[Candidate], n_intents: int, reward_init: Any, rng: Rng, *, first: bool
) -> Start:
    """Return the start of the highest objective among those of some clusterings, the first of equals.

    Warnings are those of the start that is taken.

    Examples
    --------
    >>> from limiirl import MDP, Demonstrations, MaxEnt
    >>> from limiirl.irl.problem import make_problem
    >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0], [1], [-1]])
    >>> ready = make_problem(MaxEnt(2, bounds=(-3, 3)), mdp, Demonstrations.from_lists([[0, 1], [0, 1], [0, 2]]))
    >>> tried = candidates(ready, ready.features(), with_gradients=True)
    >>> start = best_start(ready, tried, 2, "mle", np.random.default_rng(0), first=True)
    >>> sorted(start.rho.round(2).tolist())
    [0.33, 0.67]
    """
    known: list[FloatArray] = []
    best, told, highest, failed = None, [], -np.inf, None
    for candidate in tried:
        U = _clusters(candidate, n_intents, problem.units, rng, first=first)
        if any(_same(U, other) for other in known):
            continue
        known.append(U)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            start = start_from(problem, U, reward_init, rng)
            try:
                objective = run(problem, start, Settings(max_iter=0)).objective
            except DivergentPartition as error:
                failed = error
                continue
        if best is None or objective > highest:
            best, told, highest = start, said, objective
    if best is None:
        assert failed is not None  # there is at least one candidate
        raise failed
    for warning in told:
        warnings.warn(warning.message, stacklevel=4)
    return best


def _clusters(candidate: Candidate, n_intents: int, units: Groups, rng: Rng, *, first: bool) -> FloatArray:
    found = grouping(candidate.init, candidate.points, n_intents, units, rng, first=first)
    assert not isinstance(found, RewardEnsemble)  # k-means and Gaussian mixtures say who belongs together
    return found


def _same(U: FloatArray, other: FloatArray) -> bool:
    """Whether two clusterings are the same but for the numbers of clusters."""
    order = np.argmax(U.T @ other, axis=1)
    if np.unique(order).size < order.size:
        return False
    return bool(np.max(np.abs(U - other[:, order])) < _SAME)


def points(embedding: Any, problem: FitProblem) -> FloatArray:
    """Return (G, m), what a warm start clusters: feature counts, or the embedding.

    Examples
    --------
    >>> from limiirl import MDP, Demonstrations, MaxEnt
    >>> from limiirl.irl.problem import make_problem
    >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0], [1], [-1]])
    >>> ready = make_problem(MaxEnt(), mdp, Demonstrations.from_lists([[0, 1], [0, 2]]))
    >>> points(None, ready).tolist(), points([[3], [4]], ready).tolist()
    ([[1.0], [-1.0]], [[3.0], [4.0]])
    """
    if embedding is None:
        return validate.points(problem.features(), len(problem.units), "The feature counts")
    if isinstance(embedding, str):
        return validate.points(by_name(embedding)(problem), len(problem.units), "The embedding")
    made = embedding(problem.mdp, problem.demos) if callable(embedding) else embedding
    found = validate.points(made, len(problem.demos), "embedding")
    return problem.units.mean(found)


class Starts:
    """An `init` with what it is applied to.

    Parameters
    ----------
    init, embedding : Any
        Those of `IntentMixture`.
    problem : FitProblem
    n_parameters : int, optional
        d, where the model does not say it; otherwise it is taken to have one for each feature.

    Examples
    --------
    >>> from limiirl import MDP, Demonstrations, MaxEnt
    >>> from limiirl.irl.problem import make_problem
    >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0], [1], [-1]])
    >>> ready = make_problem(MaxEnt(2, bounds=(-3, 3)), mdp, Demonstrations.from_lists([[0, 1], [0, 2]]))
    >>> starts = Starts([0, 1], None, ready)
    >>> starts.guess(2, np.random.default_rng(0)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    >>> starts.begin(2, "mle", np.random.default_rng(0)).thetas.tolist()
    [[3.0], [-3.0]]
    """

    def __init__(self, init: Any, embedding: Any, problem: FitProblem, n_parameters: int | None = None) -> None:
        self.init, self.embedding, self.problem = init, embedding, problem
        self._n_parameters = n_parameters

    @cached_property
    def points(self) -> FloatArray:
        """(G, m), what is clustered; nobody asks where the start is given."""
        return points(self.embedding, self.problem)

    @property
    def seeks_best(self) -> bool:
        """Whether several clusterings are compared by the rewards that they lead to."""
        return isinstance(self.init, str) and self.init == BEST

    @cached_property
    def _tried(self) -> list[Candidate]:
        return candidates(self.problem, self.points, with_gradients=self.embedding is None)

    def guess(
        self, n_intents: int, rng: Rng, *, first: bool = True, order: NDArray[np.intp] | None = None
    ) -> FloatArray | RewardEnsemble:
        """Return responsibilities (G, K), or an ensemble, as any `init` but "best" has it.

        Parameters
        ----------
        first : bool
            Whether this is the first of several starts; the others cluster from one random start each.
        order : (G,), optional
            In which a clusterer is shown the points.
        """
        shown = np.empty((len(self.problem.units), 0)) if is_given(self.init) else self.points
        if isinstance(self.init, str) and self.init == "random_rewards":
            d = self._n_parameters or self.problem.n_parameters or self.problem.features().shape[1]
            box = self.problem.box(d)
            return random_rewards(box.lower, box.upper, n_intents, rng)
        if order is None:
            return grouping(self.init, shown, n_intents, self.problem.units, rng, first=first)
        found = grouping(self.init, shown[order], n_intents, self.problem.units, rng, first=first)
        return found if isinstance(found, RewardEnsemble) else found[np.argsort(order)]

    def begin(self, n_intents: int, reward_init: Any, rng: Rng, *, first: bool = True) -> Start:
        """Return where EM begins: rewards by `reward_init` from responsibilities, or an ensemble as it is."""
        problem = self.problem
        if self.seeks_best:
            return best_start(problem, self._tried, n_intents, reward_init, rng, first=first)
        found = self.guess(n_intents, rng, first=first)
        if isinstance(found, RewardEnsemble):
            validate.ensemble(found, n_intents, problem)
            thetas = separated(np.array(found.thetas), found.weights > 0, problem, rng)
            return Start(found.weights, thetas)
        return start_from(problem, found, reward_init, rng)
