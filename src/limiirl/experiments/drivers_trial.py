"""One trial of the driver experiment: fit a mixture to a split's trips, and judge it by the others.

What the driver experiment compares: random splits of matched trips, initialisations and discounts.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning as SklearnConvergenceWarning

from limiirl._typing import FloatArray
from limiirl.demos import Demonstrations
from limiirl.errors import InvalidDemos, InvalidFile, InvalidParameter, LimiirlWarning
from limiirl.forecast import Forecaster, cheapest_routes
from limiirl.irl import DestinationMaxEnt, MaxEnt, check_device
from limiirl.mdp import MDP, RewardEnsemble
from limiirl.metrics import distance_missed
from limiirl.mixture import IntentMixture
from limiirl.roads.features import choose
from limiirl.roads.network import RoadNetwork

ONE_INTENT = "one intent"
DRIVER_METHODS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        ONE_INTENT: {},
        "k-means, MLE": {"init": "kmeans", "reward_init": "mle"},
        "k-means, mean": {"init": "kmeans", "reward_init": "mean_clipped"},
        "GMM, MLE": {"init": "gmm", "reward_init": "mle"},
        "random rewards": {"init": "random_rewards"},
    }
)
"""Methods by name, as parameters of `IntentMixture`. Mean rewards are moved into the bounds: outside them, loops of the
greatest length would outweigh every trip (spec, section F)."""

DESTINATION_METHODS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {f"{ONE_INTENT}, to a destination": {}, "k-means, MLE, to a destination": DRIVER_METHODS["k-means, MLE"]}
)
"""The model that is given where a trip ends: its likelihoods are of another event, so it has a table of its own."""


@dataclass(frozen=True)
class DriverPlan:
    """The settings of a driver experiment; the defaults are the paper's, with the discount that suits long trips.

    Attributes
    ----------
    n_intents : int
        K; the paper's stick-breaking mixture saw about 3.
    n_splits, n_train, n_test : int
        Splits of the trips into random halves; trips to learn from out of one half, and at most so many to judge by out
        of the other.
    gammas : tuple of float
        Discounts: 1, and 0.999 as in the released code.
    max_length : int
        The longest trip in segments, and L of the model, the same for training and test.
    bounds : (float, float)
    max_evaluations : int
        Of an M-step.
    tol, max_iter : float, int
        When EM stops: at a mean change of responsibilities a trip below `tol`.
    m_tol : float
        Relative gradient at which an M-step stops before its evaluations are used up.
    features : str
        "paper": the 24 dimensions. The model that is given a destination has numbers of turns beside them.
    destination_bounds : (float, float)
        Of that model, whose sums are finite only where short loops cost enough.
    n_routes : int
        Of how many of the test trips routes are predicted.
    seed : int
    device : {"cpu", "gpu", "auto"}
        Where the models compute. It is of the plan since the table has their times.
    """

    n_intents: int = 3
    n_splits: int = 8
    n_train: int = 1000
    n_test: int = 8000
    gammas: tuple[float, ...] = (1.0, 0.999)
    max_length: int = 300
    bounds: tuple[float, float] = (-10.0, 0.0)
    max_evaluations: int = 50
    tol: float = 1e-3
    max_iter: int = 30
    m_tol: float = 1e-3
    features: str = "paper"
    destination_bounds: tuple[float, float] = (-50.0, 0.0)
    n_routes: int = 1000
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        for name in (
            "n_intents",
            "n_splits",
            "n_train",
            "n_test",
            "max_length",
            "max_evaluations",
            "max_iter",
            "n_routes",
        ):
            value = getattr(self, name)
            if not _whole(value, least=1):
                raise InvalidParameter(f"{name} must be a whole number of at least 1; it is {value!r}.")
        if not _whole(self.seed, least=0):
            raise InvalidParameter(f"seed must be a whole number of at least 0; it is {self.seed!r}.")
        for name in ("gammas", "bounds", "destination_bounds"):
            object.__setattr__(self, name, _numbers(name, getattr(self, name)))
        if not self.gammas or len(set(self.gammas)) < len(self.gammas) or not all(0.0 < g <= 1.0 for g in self.gammas):
            raise InvalidParameter(
                f"gammas must be discounts above 0 and at most 1, at least one and none twice; they are {self.gammas}."
            )
        for name in ("bounds", "destination_bounds"):
            limits = getattr(self, name)
            if len(limits) != 2 or not limits[0] < limits[1]:
                raise InvalidParameter(f"{name} must be (low, high) with low < high; they are {limits}.")
        for name in ("tol", "m_tol"):
            (value,) = _numbers(name, [getattr(self, name)])
            if not 0.0 < value < math.inf:
                raise InvalidParameter(f"{name} must be a positive number; it is {value!r}.")
        if not isinstance(self.features, str):  # a choice of one's own has no form as JSON
            raise InvalidParameter(f"features must be 'paper' or 'plain'; got {self.features!r}.")
        choose(self.features)
        check_device(self.device)

    def trials(self) -> Iterator[Trial]:
        """Return all trials, the first discount's before the others', and split by split."""
        kinds = [(DRIVER_METHODS, self.gammas[0]), (DESTINATION_METHODS, 1.0)]
        kinds += [(DRIVER_METHODS, gamma) for gamma in self.gammas[1:]]
        for methods, gamma in kinds:
            for split in range(self.n_splits):
                for method in methods:
                    yield Trial(split, method, gamma)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return json.loads(json.dumps(asdict(self)))  # type: ignore[no-any-return]


def _whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _numbers(name: str, values: Any) -> tuple[float, ...]:
    """Return numbers as a tuple; a list would make the plan unhashable."""
    try:
        return tuple(float(value) for value in values)
    except (TypeError, ValueError):
        raise InvalidParameter(f"{name} must be numbers; got {values!r}.") from None


@dataclass(frozen=True)
class Trial:
    """One fit: a split, a method and a discount.

    Examples
    --------
    >>> Trial(3, "GMM, MLE", 0.999).name
    'split-3-gmm-mle-0.999'
    """

    split: int
    method: str
    gamma: float

    @property
    def to_destination(self) -> bool:
        """Whether its model is given where a trip ends."""
        return self.method in DESTINATION_METHODS

    @property
    def n_most(self) -> int | None:
        """1 for one intent, None for as many as the plan has."""
        return 1 if self.method.startswith(ONE_INTENT) else None

    @property
    def name(self) -> str:
        """A name for its file, that of no other trial."""
        words = self.method.lower().replace(",", "").replace(" ", "-")
        short = f"{self.gamma:g}"
        return f"split-{self.split}-{words}-{short if float(short) == self.gamma else repr(self.gamma)}"


@dataclass(frozen=True, eq=False)
class DriverData:
    """A road network and the trips that were matched to it.

    Attributes
    ----------
    network : RoadNetwork
    demos : Demonstrations
        States are segments; of at most `max_length` segments.
    """

    network: RoadNetwork
    demos: Demonstrations

    def fingerprint(self) -> str:
        """Return 16 hexadecimal digits that identify network and trips."""
        sha = hashlib.sha256(self.network.fingerprint().encode())
        for array in (self.demos.states, self.demos.offsets):
            sha.update(np.ascontiguousarray(array.astype("<i8")).data)
        return sha.hexdigest()[:16]

    def mdp(self, plan: DriverPlan, trial: Trial) -> MDP:
        """Return the MDP of the network with the plan's features, and turns where a destination is given."""
        features = replace(choose(plan.features), turns=True) if trial.to_destination else plan.features
        return self.network.mdp(features, gamma=trial.gamma)

    def split(self, plan: DriverPlan, number: int) -> tuple[Demonstrations, Demonstrations]:
        """Return the trips to learn from and those to judge by: out of two random halves of those that can be used.

        They are those that are not too long, and do not pass their last segment before their end.

        Examples
        --------
        >>> from limiirl.roads import RoadNetwork
        >>> ring = RoadNetwork.from_segments([41.15, 41.16, 41.16], [-8.63, -8.63, -8.62], [0, 1, 2], [1, 2, 0])
        >>> data = DriverData(ring, Demonstrations.from_lists([[0, 1], [1, 2], [2, 0], [0, 1, 2]]))
        >>> train, test = data.split(DriverPlan(n_train=2, n_test=5), 0)
        >>> len(train), len(test)
        (2, 2)
        """
        usable = (self.demos.lengths <= plan.max_length) & DestinationMaxEnt().admits(self.demos)
        short = np.flatnonzero(usable)
        half = short.size // 2
        if half < plan.n_train or half < 1:
            raise InvalidDemos(
                f"Half of the {short.size} usable trips of at most {plan.max_length} segments are fewer than "
                f"n_train = {plan.n_train}. Lower n_train (--train of `reproduce drivers`), or match more trips."
            )
        order: NDArray[np.int64] = np.random.default_rng([plan.seed, number]).permutation(short)
        return self.demos[order[: plan.n_train]], self.demos[order[half : half + plan.n_test]]


@dataclass(frozen=True)
class DriverRecord:
    """What one trial came to. Likelihoods are in nats a trip.

    They include that of the first segment; those of a model that is given a destination are of the way between both
    ends.

    Attributes
    ----------
    split, method, gamma : the trial
    n_iter, converged, n_evaluations : int, bool, int
        M-steps after the initial ensemble, whether EM converged, and values with gradients of all M-steps.
    seconds_start, seconds_em : float
        Wall time of the initial ensemble, and of EM.
    train_nll, test_nll : float
        Of the mixture.
    test_nll_bound : float
        The mean over intents of their own NLL, which the released code reports: an upper bound of the mixture's.
    test_nll_segment : float
        Of the mixture, a segment.
    missed, missed_distance, missed_time : float
        Share of the driven distance that predicted routes leave out, given origin and destination, a mean over test
        trips: of the mixture, of the shortest distance, and of the shortest time.
    surplus, surplus_distance, surplus_time : float
        The reverse of these: share of the predicted distance that is off the driven route.
    n_at_bounds : int
        Parameters of all intents that are on a bound.
    weights, thetas : (K,), (K, d)
    history : list of float
        NLL of the training trips by iteration.
    """

    split: int
    method: str
    gamma: float
    n_iter: int
    converged: bool
    n_evaluations: int
    seconds_start: float
    seconds_em: float
    train_nll: float
    test_nll: float
    test_nll_bound: float
    test_nll_segment: float
    missed: float
    missed_distance: float
    missed_time: float
    surplus: float
    surplus_distance: float
    surplus_time: float
    n_at_bounds: int
    weights: list[float]
    thetas: list[list[float]]
    history: list[float]

    @property
    def ensemble(self) -> RewardEnsemble:
        """The rewards and their shares."""
        return RewardEnsemble(np.array(self.weights), np.array(self.thetas))

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> DriverRecord:
        """Return the record that `as_dict` wrote."""
        wanted = {part.name for part in fields(cls)}
        if not isinstance(values, dict) or wanted != values.keys():
            raise InvalidFile("A record of a driver trial must have exactly its fields.")
        return cls(**values)


def driver_mixture(plan: DriverPlan, trial: Trial) -> IntentMixture:
    """Return the mixture of a trial, not fitted.

    Examples
    --------
    >>> driver_mixture(DriverPlan(), Trial(0, "one intent", 1.0)).n_intents
    1
    """
    capped: dict[str, Any] = {
        "solver": "lbfgs",
        "tol": plan.m_tol,
        "max_evaluations": plan.max_evaluations,
        "device": plan.device,
    }
    if trial.to_destination:
        irl: Any = DestinationMaxEnt(bounds=plan.destination_bounds, **(capped | {"solver": "bfgs"}))
    else:
        irl = MaxEnt(max_length=plan.max_length, bounds=plan.bounds, **capped)
    return IntentMixture(
        trial.n_most or plan.n_intents,
        irl,
        max_iter=plan.max_iter,
        tol=plan.tol,
        max_evaluations=plan.max_evaluations,
        random_state=_seed(plan, trial),
        **(DESTINATION_METHODS if trial.to_destination else DRIVER_METHODS)[trial.method],
    )


def run_driver_trial(
    data: DriverData, plan: DriverPlan, trial: Trial, baselines: Mapping[str, FloatArray] | None = None
) -> DriverRecord:
    """Fit and judge one mixture; the record depends on the arguments alone, its times apart.

    `baselines` are those of its split, from `baseline_distances`; they are computed where absent.
    """
    mdp = data.mdp(plan, trial)
    train, test = data.split(plan, trial.split)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LimiirlWarning)  # what they say is in the record
        warnings.simplefilter("ignore", SklearnConvergenceWarning)
        start, seconds_start = _timed(driver_mixture(plan, trial).set_params(max_iter=0), mdp, train)
        again = driver_mixture(plan, trial).set_params(init=start.ensemble_)
        mixture, seconds_em = _timed(again, mdp, train)
    each = mixture.irl_.log_prob(mdp, mixture.thetas_, test)
    test_nll = -logsumexp(each + np.log(mixture.weights_), axis=1)
    missed, surplus = missed_distances(data, mixture, test[: plan.n_routes])
    low, high = plan.destination_bounds if trial.to_destination else plan.bounds
    if baselines is None:
        baselines = baseline_distances(data, plan, trial.split)
    return DriverRecord(
        trial.split,
        trial.method,
        trial.gamma,
        n_iter=mixture.n_iter_,
        converged=mixture.converged_,
        n_evaluations=sum(entry.n_evaluations for entry in mixture.history_),
        seconds_start=seconds_start,
        seconds_em=seconds_em,
        train_nll=-mixture.log_likelihood_,
        test_nll=float(test_nll.mean()),
        test_nll_bound=-float((each @ mixture.weights_).mean()),
        test_nll_segment=float(test_nll.sum() / test.lengths.sum()),
        missed=float(missed.mean()),
        missed_distance=float(baselines["distance"][0].mean()),
        missed_time=float(baselines["time"][0].mean()),
        surplus=float(surplus.mean()),
        surplus_distance=float(baselines["distance"][1].mean()),
        surplus_time=float(baselines["time"][1].mean()),
        n_at_bounds=int(np.sum((mixture.thetas_ <= low) | (mixture.thetas_ >= high))),
        weights=mixture.weights_.tolist(),
        thetas=mixture.thetas_.tolist(),
        history=[-entry.log_likelihood for entry in mixture.history_],
    )


def missed_distances(data: DriverData, mixture: IntentMixture, test: Demonstrations) -> FloatArray:
    """Return (2, N) the share of each trip that the route predicted by a mixture misses, and of that off the trip.

    Routes are predicted from the first and the last segment of a trip. Discounts below 1 would make a route depend on
    where it begins, so that routes are found at discount 1 (spec, section G).
    """
    routes = Forecaster(mixture).predicted_routes(test.start_states, test.last_states)
    return _both_ways(data, test, routes)


def baseline_distances(data: DriverData, plan: DriverPlan, split: int) -> dict[str, FloatArray]:
    """Return `missed_distances` (2, N) of the shortest and of the fastest routes, of the test trips of a split."""
    network, test = data.network, data.split(plan, split)[1][: plan.n_routes]
    mdp = network.mdp(plan.features)
    costs = {"distance": network.length_m, "time": network.duration_s}
    return {
        name: _both_ways(data, test, cheapest_routes(mdp, cost[mdp.dst], test.start_states, test.last_states))
        for name, cost in costs.items()
    }


def _both_ways(data: DriverData, test: Demonstrations, routes: Demonstrations) -> FloatArray:
    """Return (2, N) what routes miss of trips, and what they have beside them: misses alone would reward detours."""
    lengths = data.network.length_m
    return np.stack([distance_missed(test, routes, lengths), distance_missed(routes, test, lengths)])


def _seed(plan: DriverPlan, trial: Trial) -> int:
    """Return the seed of a split: of seed + split, plans of neighbouring seeds would share most."""
    return int(np.random.SeedSequence([plan.seed, trial.split]).generate_state(1)[0])


def _timed(mixture: IntentMixture, mdp: MDP, demos: Demonstrations) -> tuple[IntentMixture, float]:
    begun = time.perf_counter()
    return mixture.fit(mdp, demos), time.perf_counter() - begun
