"""The driver experiment: initialisations and discounts compared on random splits of matched trips.

The settings of a trial are a `DriverSpec`, and its seed is the index of the split. The header of the run contains the
plan and the fingerprint of the trips.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from os import PathLike
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning as SklearnConvergenceWarning

from limiirl._progress import Progress
from limiirl._typing import FloatArray
from limiirl._validation import check_choice, check_count, check_positive, check_seed
from limiirl.demos import Demonstrations
from limiirl.errors import InvalidDemos, InvalidFile, InvalidParameter, LimiirlWarning
from limiirl.executors import Executor
from limiirl.experiments.record import DriverRecord, describe_error
from limiirl.experiments.run import RunCounts, run_trials
from limiirl.experiments.store import Store
from limiirl.forecast import Forecaster, cheapest_routes
from limiirl.irl import DestinationMaxEnt, MaxEnt, choose_device
from limiirl.mdp import MDP
from limiirl.metrics import Interval, mean_interval, missing_distance_fraction
from limiirl.mixture import IntentMixture
from limiirl.roads import RoadNetwork, choose_features

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
"""Methods by name, as parameters of `IntentMixture`. Mean rewards are clipped to the bounds, because cycles of maximum
length dominate the partition function if rewards are outside the bounds."""

DESTINATION_METHODS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {f"{ONE_INTENT}, to a destination": {}, "k-means, MLE, to a destination": DRIVER_METHODS["k-means, MLE"]}
)
"""Methods with a model conditional on the destination. Their likelihoods are not comparable with those of `MaxEnt`."""


_COUNTS = ("n_intents", "n_splits", "n_train", "n_test", "max_length", "max_evaluations", "max_iter", "n_routes")


@dataclass(frozen=True)
class DriverPlan:
    """Settings of a driver experiment. The defaults are from the paper, except for the additional discount of 1.

    Attributes
    ----------
    n_intents : int
        K.
    n_splits, n_train, n_test : int
        Number of random splits of the trips into halves, number of training trips from one half, and maximum number of
        test trips from the other half.
    gammas : tuple of float
        Discount factors; the released code uses 0.999.
    max_length : int
        Maximum length of a trip in segments, and L of the model.
    bounds, destination_bounds : (float, float)
        Bounds on the rewards of `MaxEnt` and of the destination model. The path sums of the destination model converge
        only if short cycles are costly.
    max_evaluations, m_gtol : int, float
        Stopping criteria of the M-step: number of evaluations, and relative norm of the gradient.
    resp_tol, max_iter : float, int
        Stopping criteria of EM: mean change in the responsibilities, and number of iterations.
    features : {"paper", "plain"}
        Road features; the destination model also counts turns.
    n_routes : int
        Number of test trips whose routes are predicted.
    seed : int
    device : {"cpu", "gpu", "auto"}
        Device of the fits. It is stored with the settings, because the table reports times.
    """

    n_intents: int = 3
    n_splits: int = 8
    n_train: int = 1000
    n_test: int = 8000
    gammas: tuple[float, ...] = (1.0, 0.999)
    max_length: int = 300
    bounds: tuple[float, float] = (-10.0, 0.0)
    max_evaluations: int = 50
    resp_tol: float = 1e-3
    max_iter: int = 30
    m_gtol: float = 1e-3
    features: str = "paper"
    destination_bounds: tuple[float, float] = (-50.0, 0.0)
    n_routes: int = 1000
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        for name in _COUNTS:
            check_count(getattr(self, name), name)
        check_seed(self.seed)
        for name in ("gammas", "bounds", "destination_bounds"):
            object.__setattr__(self, name, _numbers(name, getattr(self, name)))
        if not self.gammas or len(set(self.gammas)) < len(self.gammas) or not all(0.0 < g <= 1.0 for g in self.gammas):
            raise InvalidParameter.of("gammas", self.gammas, "must be distinct discount factors in (0, 1]")
        for name in ("bounds", "destination_bounds"):
            limits = getattr(self, name)
            if len(limits) != 2 or not limits[0] < limits[1]:
                raise InvalidParameter.of(name, limits, "must be (low, high) with low < high")
        for name in ("resp_tol", "m_gtol"):
            check_positive(getattr(self, name), name)
        check_choice(self.features, "features", ("paper", "plain"))
        check_choice(self.device, "device", ("cpu", "gpu", "auto"))

    def trials(self) -> Iterator[tuple[DriverSpec, int]]:
        """Yield all trials (settings, split), in the order MaxEnt at the first discount, destination models, others."""
        groups = [(DRIVER_METHODS, self.gammas[0]), (DESTINATION_METHODS, 1.0)]
        groups += [(DRIVER_METHODS, gamma) for gamma in self.gammas[1:]]
        for methods, gamma in groups:
            for split in range(self.n_splits):
                for method in methods:
                    yield DriverSpec(method, gamma), split

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return json.loads(json.dumps(asdict(self)))  # type: ignore[no-any-return]


def _numbers(name: str, values: Any) -> tuple[float, ...]:
    try:
        return tuple(float(value) for value in values)
    except (TypeError, ValueError):
        raise InvalidParameter.of(name, values, "must be a sequence of numbers") from None


@dataclass(frozen=True)
class DriverSpec:
    """Settings of a trial: a method and a discount."""

    method: str
    gamma: float

    @property
    def to_destination(self) -> bool:
        """True if the model is conditional on the destination."""
        return self.method in DESTINATION_METHODS

    @cached_property
    def hash(self) -> str:
        """Hash of the method and the discount, in 16 hexadecimal digits."""
        return hashlib.sha256(json.dumps([self.method, self.gamma]).encode()).hexdigest()[:16]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> DriverSpec:
        """Inverse of `to_dict`."""
        return cls(**content)


@dataclass(frozen=True, eq=False)
class DriverData:
    """A road network and the trips matched to it; the states of trips are road segments."""

    network: RoadNetwork
    demos: Demonstrations

    def fingerprint(self) -> str:
        """Return 16 hexadecimal digits that identify the network and the trips."""
        sha = hashlib.sha256(self.network.fingerprint().encode())
        for array in (self.demos.states, self.demos.offsets):
            sha.update(np.ascontiguousarray(array.astype("<i8")).data)
        return sha.hexdigest()[:16]

    def mdp(self, plan: DriverPlan, spec: DriverSpec) -> MDP:
        """Return the MDP of the network with the features of the plan and, for the destination model, turns."""
        features = replace(choose_features(plan.features), turns=True) if spec.to_destination else plan.features
        return self.network.mdp(features, gamma=spec.gamma)

    def split(self, plan: DriverPlan, number: int) -> tuple[Demonstrations, Demonstrations]:
        """Return training trips and test trips, one set from each random half of the usable trips.

        Usable trips have at most `max_length` segments and visit their last segment only once.

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
                f"n_train must be at most {half}, half of the {short.size} usable trips; got {plan.n_train}.",
                parameter="n_train",
                value=plan.n_train,
            )
        order: NDArray[np.int64] = np.random.default_rng([plan.seed, number]).permutation(short)
        return self.demos[order[: plan.n_train]], self.demos[order[half : half + plan.n_test]]


def driver_mixture(plan: DriverPlan, spec: DriverSpec, split: int) -> IntentMixture:
    """Return the unfitted mixture of a trial.

    Examples
    --------
    >>> driver_mixture(DriverPlan(), DriverSpec("one intent", 1.0), 0).n_intents
    1
    """
    # Seeds of the form plan.seed + split would coincide for plans with consecutive seeds.
    seed = int(np.random.SeedSequence([plan.seed, split]).generate_state(1)[0])
    options: dict[str, Any] = {
        "solver": "lbfgs",
        "gtol": plan.m_gtol,
        "max_evaluations": plan.max_evaluations,
        "device": plan.device,
    }
    if spec.to_destination:
        irl: Any = DestinationMaxEnt(bounds=plan.destination_bounds, **(options | {"solver": "bfgs"}))
    else:
        irl = MaxEnt(max_length=plan.max_length, bounds=plan.bounds, **options)
    return IntentMixture(
        1 if spec.method.startswith(ONE_INTENT) else plan.n_intents,
        irl,
        max_iter=plan.max_iter,
        resp_tol=plan.resp_tol,
        max_evaluations=plan.max_evaluations,
        random_state=seed,
        **(DESTINATION_METHODS if spec.to_destination else DRIVER_METHODS)[spec.method],
    )


def run_driver_trial(
    data: DriverData, plan: DriverPlan, spec: DriverSpec, split: int, baselines: Mapping[str, FloatArray] | None = None
) -> DriverRecord:
    """Fit and evaluate one mixture; except for the times, the record depends only on the arguments.

    `baselines` is the result of `measure_baselines` for the split; if None, it is computed.
    """
    mdp = data.mdp(plan, spec)
    train, test = data.split(plan, split)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LimiirlWarning)  # the record contains the content of these warnings
        warnings.simplefilter("ignore", SklearnConvergenceWarning)
        start, seconds_start = _time_fit(driver_mixture(plan, spec, split).set_params(max_iter=0), mdp, train)
        restarted = driver_mixture(plan, spec, split).set_params(init=start.ensemble_)
        mixture, seconds_em = _time_fit(restarted, mdp, train)
    each = mixture.irl_.log_prob(mdp, mixture.thetas_, test)
    test_nll = -logsumexp(each + np.log(mixture.weights_), axis=1)
    missed, surplus = measure_routes(data, mixture, test[: plan.n_routes])
    low, high = plan.destination_bounds if spec.to_destination else plan.bounds
    if baselines is None:
        baselines = measure_baselines(data, plan, split)
    return DriverRecord(
        spec.hash,
        split,
        method=spec.method,
        gamma=spec.gamma,
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


def measure_routes(data: DriverData, mixture: IntentMixture, test: Demonstrations) -> FloatArray:
    """Return the errors of predicted routes (2, N), as fractions of distance.

    The first row is the fraction of each trip that is not on its predicted route, and the second row is the fraction of
    the predicted route that is not on the trip. Routes are predicted between the first and the last segment with a
    discount of 1; with a smaller discount, the cost of a segment would depend on its distance from the origin.
    """
    routes = Forecaster(mixture).predict_routes(test.start_states, test.last_states)
    return _compare_routes(data, test, routes)


def measure_baselines(data: DriverData, plan: DriverPlan, split: int) -> dict[str, FloatArray]:
    """Return the errors (2, N) of shortest and fastest routes for the test trips of a split; see `measure_routes`."""
    network, test = data.network, data.split(plan, split)[1][: plan.n_routes]
    mdp = network.mdp(plan.features)
    costs = {"distance": network.length_m, "time": network.duration_s}
    return {
        name: _compare_routes(data, test, cheapest_routes(mdp, cost[mdp.dst], test.start_states, test.last_states))
        for name, cost in costs.items()
    }


def _compare_routes(data: DriverData, test: Demonstrations, routes: Demonstrations) -> FloatArray:
    # The missed distance alone would favour predictions with detours.
    lengths = data.network.length_m
    return np.stack(
        [missing_distance_fraction(test, routes, lengths), missing_distance_fraction(routes, test, lengths)]
    )


def _time_fit(mixture: IntentMixture, mdp: MDP, demos: Demonstrations) -> tuple[IntentMixture, float]:
    start = time.perf_counter()
    return mixture.fit(mdp, demos), time.perf_counter() - start


@dataclass(frozen=True)
class DriverRow:
    """Row of the table: statistics of a method at a discount over the splits.

    Attributes
    ----------
    method, gamma : str, float
    n : int
        Number of splits.
    iterations, minutes, nll, missed, surplus : Interval
        EM iterations, wall time, test NLL per trip, and errors of predicted routes (`measure_routes`). The intervals
        are too narrow, because the splits overlap. They are NaN for a single split.
    gain : Interval or None
        Test NLL of the single-intent model minus test NLL of this method in the same split; None for one intent.
    n_better : int
        Number of splits with a positive gain.
    """

    method: str
    gamma: float
    n: int
    iterations: Interval
    minutes: Interval
    nll: Interval
    missed: Interval
    surplus: Interval
    gain: Interval | None
    n_better: int


@dataclass(frozen=True, eq=False)
class DriverResults:
    """Records of successful trials and of failed trials, in the order of the plan; `run_drivers` sets `counts`."""

    plan: DriverPlan
    records: tuple[DriverRecord, ...]
    failures: tuple[DriverRecord, ...] = ()
    counts: RunCounts | None = None

    def of(self, method: str, gamma: float) -> tuple[DriverRecord, ...]:
        """Return the records of a method at a discount, sorted by split."""
        return tuple(r for r in self.records if r.method == method and r.gamma == gamma)

    def best(self, method: str, gamma: float, split: int | None = None) -> DriverRecord:
        """Return the record with the lowest training NLL over all splits, or over one split."""
        records = [record for record in self.of(method, gamma) if split is None or record.split == split]
        if not records:
            where = "" if split is None else f" in split {split}"
            raise InvalidParameter(
                f"method must have a record at discount {gamma:g}{where}; {method!r} has none.",
                parameter="method",
                value=method,
            )
        return min(records, key=lambda record: record.train_nll)

    def rows(self) -> list[DriverRow]:
        """Return the rows of the table that have at least one split."""
        groups = [(DRIVER_METHODS, gamma) for gamma in self.plan.gammas] + [(DESTINATION_METHODS, 1.0)]
        rows = []
        for methods, gamma in groups:
            one, *_ = methods
            single = {record.split: record.test_nll for record in self.of(one, gamma)}
            for method in methods:
                records = self.of(method, gamma)
                gains = [single[r.split] - r.test_nll for r in records if r.split in single and method != one]
                if records:
                    rows.append(_make_row(method, gamma, records, gains))
        return rows

    def baselines(self, what: Literal["missed", "surplus"] = "missed") -> dict[str, Interval]:
        """Return the mean missed or surplus distance of shortest and fastest routes over splits."""
        by_split = {record.split: record for record in self.records}
        if not by_split:
            return {}
        return {
            f"shortest {kind}": _interval([getattr(record, f"{what}_{kind}") for record in by_split.values()])
            for kind in ("distance", "time")
        }

    def to_csv(self) -> str:
        """Return the records in CSV format, one line per trial, without rewards and histories."""
        omitted = ("spec", "seed", "error", "trace", "weights", "thetas", "history")
        columns = ["split", *(entry.name for entry in fields(DriverRecord) if entry.name not in omitted)]
        lines = [",".join(columns)]
        lines += [",".join(json.dumps(getattr(record, name)) for name in columns) for record in self.records]
        return "\n".join(lines) + "\n"


def _make_row(method: str, gamma: float, records: Sequence[DriverRecord], gains: list[float]) -> DriverRow:
    return DriverRow(
        method,
        gamma,
        len(records),
        iterations=_interval([float(record.n_iter) for record in records]),
        minutes=_interval([(record.seconds_start + record.seconds_em) / 60.0 for record in records]),
        nll=_interval([record.test_nll for record in records]),
        missed=_interval([record.missed for record in records]),
        surplus=_interval([record.surplus for record in records]),
        gain=_interval(gains) if gains else None,
        n_better=int(np.sum(np.array(gains) > 0.0)),
    )


def _interval(values: list[float]) -> Interval:
    return mean_interval(values) if len(values) > 1 else Interval(values[0], math.nan, math.nan, math.nan, 1)


@dataclass(eq=False)
class _Attempt:
    """Callable that runs a trial and caches the baselines of each split; each worker receives it once."""

    data: DriverData
    plan: DriverPlan
    baselines: dict[int, dict[str, FloatArray]] = field(default_factory=dict)

    def __call__(self, trial: tuple[DriverSpec, int]) -> DriverRecord:
        spec, split = trial
        try:
            if split not in self.baselines:
                self.baselines[split] = measure_baselines(self.data, self.plan, split)
            return run_driver_trial(self.data, self.plan, spec, split, self.baselines[split])
        except Exception as error:  # noqa: BLE001 (any error is recorded and must not stop other trials)
            return DriverRecord(spec.hash, split, *describe_error(error), method=spec.method, gamma=spec.gamma)


def run_drivers(
    data: DriverData,
    plan: DriverPlan,
    folder: str | PathLike[str],
    progress: Progress | None = None,
    splits: Sequence[int] | None = None,
    *,
    executor: Executor | None = None,
    retry_failed: bool = False,
) -> DriverResults:
    """Run every trial of a plan that is missing from the folder, and return all records.

    Parameters
    ----------
    data : DriverData
    plan : DriverPlan
    folder : path
        Run folder, created if absent. It belongs to one plan and one set of trips; an interrupted run is resumed.
    progress : callable, optional
        Called as ``progress(done, total, message)`` after each trial.
    splits : sequence of int, optional
        Splits to run; several machines can run different splits in the same folder.
    executor : Executor, optional
        By default, trials run one after the other on all threads. With an executor, each trial uses one thread.
    retry_failed : bool
        Whether to run failed trials again.
    """
    unknown = sorted(set(splits or ()) - set(range(plan.n_splits)))
    if unknown:
        raise InvalidParameter.of("splits", unknown[0], f"must be integers from 0 to {plan.n_splits - 1}")
    # Check the device, the number of trips and the features before the folder is created.
    trials = [(spec, split) for spec, split in plan.trials() if splits is None or split in splits]
    choose_device(plan.device, 0)
    data.split(plan, 0)
    data.mdp(plan, next(plan.trials())[0])
    store = _open(folder, create=True)
    header = {"plan": plan.to_dict(), "data": data.fingerprint()}
    store.set_header(header)
    if store.header != header:
        stored = store.header.get("plan")
        stored = stored if isinstance(stored, dict) else {}
        differing = [name for name, value in plan.to_dict().items() if stored.get(name) != value] or ["trips"]
        raise InvalidFile(
            f"{folder} contains a driver experiment with different {', '.join(differing)}. Pass another folder.",
            parameter="plan",
            value=differing,
        )
    counts = run_trials(trials, store, _Attempt(data, plan), executor, retry_failed=retry_failed, progress=progress)
    return replace(_results(plan, store, trials), counts=counts)


def read_drivers(folder: str | PathLike[str]) -> DriverResults:
    """Read the results of a driver experiment, which may be incomplete, from its folder."""
    store = _open(folder, create=False)
    try:
        content: dict[str, Any] = store.header["plan"]
        plan = DriverPlan(**content)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidFile(
            f"{folder} does not contain a driver experiment written by `limiirl reproduce drivers` ({error!s:.100}).",
            parameter="folder",
            value=str(folder),
        ) from error
    return _results(plan, store, plan.trials())


def _open(folder: str | PathLike[str], *, create: bool) -> Store[DriverRecord]:
    return Store(folder, create=create, record=DriverRecord, spec=DriverSpec)


def _results(plan: DriverPlan, store: Store[DriverRecord], trials: Iterable[tuple[DriverSpec, int]]) -> DriverResults:
    records = {record.key: record for record in store.read()}
    present = [records[spec.hash, split] for spec, split in trials if (spec.hash, split) in records]
    return DriverResults(
        plan,
        tuple(record for record in present if not record.failed),
        tuple(record for record in present if record.failed),
    )


@dataclass(frozen=True, eq=False)
class DriverExample:
    """Fitted mixtures of one split, for the report.

    Attributes
    ----------
    split : int
        Split in which hard clustering has the lowest training NLL.
    trips : Demonstrations
        Test trips of the split.
    mixture : IntentMixture
        Mixture that was initialised by hard clustering. Its responsibilities are those of `trips`.
    guide : IntentMixture
        Mixture of destination models, used for forecasts.
    """

    split: int
    trips: Demonstrations
    mixture: IntentMixture
    guide: IntentMixture


def driver_example(data: DriverData, results: DriverResults, n_trips: int = 2000) -> DriverExample:
    """Restore the fitted mixtures of one split for the report."""
    plan, hard = results.plan, DriverSpec("k-means, MLE", results.plan.gammas[0])
    split = results.best(hard.method, hard.gamma).split
    train, test = data.split(plan, split)
    trips = test[:n_trips]
    guide = DriverSpec(list(DESTINATION_METHODS)[-1], 1.0)
    return DriverExample(
        split, trips, _restore(data, results, hard, split, trips), _restore(data, results, guide, split, train)
    )


def _restore(
    data: DriverData, results: DriverResults, spec: DriverSpec, split: int, demos: Demonstrations
) -> IntentMixture:
    """Return the fitted mixture of a trial, with the responsibilities of `demos`."""
    ensemble = results.best(spec.method, spec.gamma, split).ensemble
    mixture = driver_mixture(results.plan, spec, split).set_params(init=ensemble, max_iter=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LimiirlWarning)  # the original fit has issued the warnings
        fitted: IntentMixture = mixture.fit(data.mdp(results.plan, spec), demos)
    return fitted
