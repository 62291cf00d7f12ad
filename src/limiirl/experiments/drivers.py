"""The driver experiment: initialisations and discounts compared over random splits of matched trips.

Trials are run, stored and resumed as those of the other experiments: the settings of a trial are a `DriverSpec`, its
seed is the number of the split. The plan and the trips, which all trials share, are in the header of the run.
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
from limiirl.metrics import Interval, mean_interval, missed_distance_share
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
"""Methods by name, as parameters of `IntentMixture`. Mean rewards are moved into the bounds: outside them, loops of the
greatest length would outweigh every trip (spec, section F)."""

DESTINATION_METHODS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {f"{ONE_INTENT}, to a destination": {}, "k-means, MLE, to a destination": DRIVER_METHODS["k-means, MLE"]}
)
"""The model that is given where a trip ends: its likelihoods are of another event, so it has a table of its own."""


_COUNTS = ("n_intents", "n_splits", "n_train", "n_test", "max_length", "max_evaluations", "max_iter", "n_routes")


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
        for name in _COUNTS:
            check_count(getattr(self, name), name)
        check_seed(self.seed)
        for name in ("gammas", "bounds", "destination_bounds"):
            object.__setattr__(self, name, _numbers(name, getattr(self, name)))
        if not self.gammas or len(set(self.gammas)) < len(self.gammas) or not all(0.0 < g <= 1.0 for g in self.gammas):
            raise InvalidParameter(
                f"gammas must be distinct discounts in (0, 1], at least one; got {self.gammas}.",
                parameter="gammas",
                value=self.gammas,
            )
        for name in ("bounds", "destination_bounds"):
            limits = getattr(self, name)
            if len(limits) != 2 or not limits[0] < limits[1]:
                raise InvalidParameter(
                    f"{name} must be (low, high) with low < high; got {limits}.", parameter=name, value=limits
                )
        for name in ("tol", "m_tol"):
            check_positive(getattr(self, name), name)
        # A choice of one's own has no form as JSON.
        check_choice(self.features, "features", ("paper", "plain"))
        check_choice(self.device, "device", ("cpu", "gpu", "auto"))

    def trials(self) -> Iterator[tuple[DriverSpec, int]]:
        """Yield all trials, settings and split, the first discount's before the others', and split by split."""
        kinds = [(DRIVER_METHODS, self.gammas[0]), (DESTINATION_METHODS, 1.0)]
        kinds += [(DRIVER_METHODS, gamma) for gamma in self.gammas[1:]]
        for methods, gamma in kinds:
            for split in range(self.n_splits):
                for method in methods:
                    yield DriverSpec(method, gamma), split

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return json.loads(json.dumps(asdict(self)))  # type: ignore[no-any-return]


def _numbers(name: str, values: Any) -> tuple[float, ...]:
    """Return numbers as a tuple; a list would make the plan unhashable."""
    try:
        return tuple(float(value) for value in values)
    except (TypeError, ValueError):
        raise InvalidParameter(f"{name} must be numbers; got {values!r}.", parameter=name, value=values) from None


@dataclass(frozen=True)
class DriverSpec:
    """Settings of a trial beside the plan: a method and a discount.

    Examples
    --------
    >>> DriverSpec("one intent", 1.0).hash == DriverSpec("one intent", 0.999).hash
    False
    """

    method: str
    gamma: float

    @property
    def to_destination(self) -> bool:
        """Whether its model is given where a trip ends."""
        return self.method in DESTINATION_METHODS

    @cached_property
    def hash(self) -> str:
        """Sixteen hexadecimal digits."""
        return hashlib.sha256(json.dumps([self.method, self.gamma]).encode()).hexdigest()[:16]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> DriverSpec:
        """Return the settings that `to_dict` described."""
        return cls(**content)


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

    def mdp(self, plan: DriverPlan, spec: DriverSpec) -> MDP:
        """Return the MDP of the network with the plan's features, and turns where a destination is given."""
        features = replace(choose_features(plan.features), turns=True) if spec.to_destination else plan.features
        return self.network.mdp(features, gamma=spec.gamma)

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
                f"n_train = {plan.n_train}. Lower n_train (--train of `reproduce drivers`), or match more trips.",
                parameter="n_train",
                value=plan.n_train,
            )
        order: NDArray[np.int64] = np.random.default_rng([plan.seed, number]).permutation(short)
        return self.demos[order[: plan.n_train]], self.demos[order[half : half + plan.n_test]]


def driver_mixture(plan: DriverPlan, spec: DriverSpec, split: int) -> IntentMixture:
    """Return the mixture of a trial, not fitted.

    Examples
    --------
    >>> driver_mixture(DriverPlan(), DriverSpec("one intent", 1.0), 0).n_intents
    1
    """
    # Of seed + split, plans of neighbouring seeds would share most.
    seed = int(np.random.SeedSequence([plan.seed, split]).generate_state(1)[0])
    capped: dict[str, Any] = {
        "solver": "lbfgs",
        "gtol": plan.m_tol,
        "max_evaluations": plan.max_evaluations,
        "device": plan.device,
    }
    if spec.to_destination:
        irl: Any = DestinationMaxEnt(bounds=plan.destination_bounds, **(capped | {"solver": "bfgs"}))
    else:
        irl = MaxEnt(max_length=plan.max_length, bounds=plan.bounds, **capped)
    return IntentMixture(
        1 if spec.method.startswith(ONE_INTENT) else plan.n_intents,
        irl,
        max_iter=plan.max_iter,
        tol=plan.tol,
        max_evaluations=plan.max_evaluations,
        random_state=seed,
        **(DESTINATION_METHODS if spec.to_destination else DRIVER_METHODS)[spec.method],
    )


def run_driver_trial(
    data: DriverData, plan: DriverPlan, spec: DriverSpec, split: int, baselines: Mapping[str, FloatArray] | None = None
) -> DriverRecord:
    """Fit and judge one mixture; the record depends on the arguments alone, its times apart.

    `baselines` are those of its split, from `baseline_distances`; they are computed where absent.
    """
    mdp = data.mdp(plan, spec)
    train, test = data.split(plan, split)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LimiirlWarning)  # what they say is in the record
        warnings.simplefilter("ignore", SklearnConvergenceWarning)
        start, seconds_start = _timed(driver_mixture(plan, spec, split).set_params(max_iter=0), mdp, train)
        again = driver_mixture(plan, spec, split).set_params(init=start.ensemble_)
        mixture, seconds_em = _timed(again, mdp, train)
    each = mixture.irl_.log_prob(mdp, mixture.thetas_, test)
    test_nll = -logsumexp(each + np.log(mixture.weights_), axis=1)
    missed, surplus = missed_distances(data, mixture, test[: plan.n_routes])
    low, high = plan.destination_bounds if spec.to_destination else plan.bounds
    if baselines is None:
        baselines = baseline_distances(data, plan, split)
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
    return np.stack([missed_distance_share(test, routes, lengths), missed_distance_share(routes, test, lengths)])


def _timed(mixture: IntentMixture, mdp: MDP, demos: Demonstrations) -> tuple[IntentMixture, float]:
    begun = time.perf_counter()
    return mixture.fit(mdp, demos), time.perf_counter() - begun


@dataclass(frozen=True)
class DriverRow:
    """One line of the table: a method at a discount, over the splits that were run.

    Attributes
    ----------
    method, gamma : str, float
    n : int
        Splits.
    iterations, minutes, nll, missed, surplus : Interval
        M-steps after the start; wall time of start and EM; NLL of the test trips, a trip; share of the driven distance
        that predicted routes leave out, and of the predicted distance that is off the driven route. Of a single split,
        the mean alone: the rest is NaN. Splits overlap, so that intervals are too narrow.
    gain : Interval or None
        NLL of one intent less that of this method, split by split; None for one intent itself.
    n_better : int
        Splits in which the gain is above 0.
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
    """The records of a driver experiment, in the order of the plan's trials; those of failed trials apart.

    `counts` are those of the run that returned them, None if they were read.
    """

    plan: DriverPlan
    records: tuple[DriverRecord, ...]
    failures: tuple[DriverRecord, ...] = ()
    counts: RunCounts | None = None

    def of(self, method: str, gamma: float) -> tuple[DriverRecord, ...]:
        """Return the records of one method at one discount, by split."""
        return tuple(r for r in self.records if r.method == method and r.gamma == gamma)

    def best(self, method: str, gamma: float, split: int | None = None) -> DriverRecord:
        """Return the record whose training trips are explained best, as the paper shows it; or that of one split.

        Training trips differ between splits: methods are compared within one.
        """
        records = [record for record in self.of(method, gamma) if split is None or record.split == split]
        if not records:
            where = "" if split is None else f" in split {split}"
            raise InvalidParameter(
                f"No trial of {method!r} at discount {gamma:g} has been run{where}. Run the experiment first.",
                parameter="method",
                value=method,
            )
        return min(records, key=lambda record: record.train_nll)

    def rows(self) -> list[DriverRow]:
        """Return the table's lines of which at least one split has been run."""
        kinds = [(DRIVER_METHODS, gamma) for gamma in self.plan.gammas] + [(DESTINATION_METHODS, 1.0)]
        rows = []
        for methods, gamma in kinds:
            one, *_ = methods
            single = {record.split: record.test_nll for record in self.of(one, gamma)}
            for method in methods:
                found = self.of(method, gamma)
                gains = [single[r.split] - r.test_nll for r in found if r.split in single and method != one]
                if found:
                    rows.append(_row(method, gamma, found, gains))
        return rows

    def baselines(self, what: Literal["missed", "surplus"] = "missed") -> dict[str, Interval]:
        """Return what the shortest and the fastest routes miss of driven ones, over splits, or have beside them."""
        by_split = {record.split: record for record in self.records}
        if not by_split:
            return {}
        return {
            f"shortest {kind}": _over([getattr(record, f"{what}_{kind}") for record in by_split.values()])
            for kind in ("distance", "time")
        }

    def to_csv(self) -> str:
        """Return a line a trial, rewards and histories left out."""
        left_out = ("spec", "seed", "error", "trace", "weights", "thetas", "history")
        head = ["split", *(part.name for part in fields(DriverRecord) if part.name not in left_out)]
        lines = [",".join(head)]
        lines += [",".join(json.dumps(getattr(record, name)) for name in head) for record in self.records]
        return "\n".join(lines) + "\n"


def _row(method: str, gamma: float, found: Sequence[DriverRecord], gains: list[float]) -> DriverRow:
    minutes = [(record.seconds_start + record.seconds_em) / 60.0 for record in found]
    return DriverRow(
        method,
        gamma,
        len(found),
        iterations=_over([float(record.n_iter) for record in found]),
        minutes=_over(minutes),
        nll=_over([record.test_nll for record in found]),
        missed=_over([record.missed for record in found]),
        surplus=_over([record.surplus for record in found]),
        gain=_over(gains) if gains else None,
        n_better=int(np.sum(np.array(gains) > 0.0)),
    )


def _over(values: list[float]) -> Interval:
    """Return the mean with its interval, which one value alone does not have."""
    return mean_interval(values) if len(values) > 1 else Interval(values[0], math.nan, math.nan, math.nan, 1)


@dataclass(eq=False)
class _Attempt:
    """Runs a trial with data that travel once to each worker; the methods of a split share its baselines."""

    data: DriverData
    plan: DriverPlan
    baselines: dict[int, dict[str, FloatArray]] = field(default_factory=dict)

    def __call__(self, trial: tuple[DriverSpec, int]) -> DriverRecord:
        spec, split = trial
        try:
            if split not in self.baselines:
                self.baselines[split] = baseline_distances(self.data, self.plan, split)
            return run_driver_trial(self.data, self.plan, spec, split, self.baselines[split])
        except Exception as error:  # noqa: BLE001 (whatever it is, it belongs in the record and must not stop the others)
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
    """Run every trial of a plan that the folder does not have, and return the records of all.

    A run that was stopped resumes where it was. A folder belongs to one plan and one set of trips; another is refused.

    Parameters
    ----------
    data : DriverData
    plan : DriverPlan
    folder : path
        Created if absent.
    progress : callable, optional
        Called as ``progress(done, total, message)`` after each trial.
    splits : sequence of int, optional
        Run only these, so that several machines or processes can share the work of one folder.
    executor : Executor, optional
        By default trials run one after the other in this process, on all its threads. An executor runs each on one
        thread, so that the measured minutes are of one thread.
    retry_failed : bool
        Whether trials whose record is an error are run again.
    """
    unknown = sorted(set(splits or ()) - set(range(plan.n_splits)))
    if unknown:
        raise InvalidParameter(
            f"splits must be numbers from 0 to {plan.n_splits - 1}; got {unknown[0]}.",
            parameter="splits",
            value=unknown[0],
        )
    # A GPU that is absent, too few trips, and features that the network does not have: before a folder is created.
    trials = [(spec, split) for spec, split in plan.trials() if splits is None or split in splits]
    choose_device(plan.device, 0)
    data.split(plan, 0)
    data.mdp(plan, next(plan.trials())[0])
    store = _open(folder, create=True)
    header = {"plan": plan.as_dict(), "data": data.fingerprint()}
    store.set_header(header)
    if store.header != header:
        present = store.header.get("plan")
        known = present if isinstance(present, dict) else {}
        differing = [name for name, value in plan.as_dict().items() if known.get(name) != value]
        raise InvalidFile(
            f"{folder} holds a driver experiment with other settings or other trips: it differs in "
            f"{', '.join(differing) or 'trips'}. Choose another folder, or remove it.",
            value=differing or ["trips"],
        )
    counts = run_trials(trials, store, _Attempt(data, plan), executor, retry_failed=retry_failed, progress=progress)
    return replace(_results(plan, store, trials), counts=counts)


def read_drivers(folder: str | PathLike[str]) -> DriverResults:
    """Return the results that a folder has of a driver experiment, finished or not."""
    store = _open(folder, create=False)
    try:
        content: dict[str, Any] = store.header["plan"]
        plan = DriverPlan(**content)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidFile(
            f"{folder} is not the folder of a driver experiment ({error!s:.100}). Pass one that "
            "`limiirl reproduce drivers` wrote.",
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
    """Fitted mixtures that a page shows, restored from the records of one split.

    Attributes
    ----------
    split : int
        The split whose hard start explains its training trips best.
    trips : Demonstrations
        Test trips of that split.
    mixture : IntentMixture
        The hard start's, with the responsibilities of `trips`.
    guide : IntentMixture
        The model that is given destinations, for forecasts.
    """

    split: int
    trips: Demonstrations
    mixture: IntentMixture
    guide: IntentMixture


def driver_example(data: DriverData, results: DriverResults, n_trips: int = 2000) -> DriverExample:
    """Return what a page shows of one split; nothing is learned again."""
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
    """Return the mixture of a trial as it was fitted, with the responsibilities of some trips."""
    ensemble = results.best(spec.method, spec.gamma, split).ensemble
    mixture = driver_mixture(results.plan, spec, split).set_params(init=ensemble, max_iter=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LimiirlWarning)  # of the fit; they were issued then
        fitted: IntentMixture = mixture.fit(data.mdp(results.plan, spec), demos)
    return fitted
