"""One trial of the driver experiment: fit a mixture to a split's trips, and judge it by the others."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning as SklearnConvergenceWarning

from limiirl.demos import Demonstrations
from limiirl.errors import InvalidFile, LimiirlWarning
from limiirl.experiments.drivers_plan import DESTINATION_METHODS, DRIVER_METHODS, DriverData, DriverPlan, Trial
from limiirl.forecast import Forecaster
from limiirl.forecast.predicted import cheapest_routes
from limiirl.irl import DestinationMaxEnt, MaxEnt
from limiirl.mdp import MDP
from limiirl.mdp.ensemble import RewardEnsemble
from limiirl.metrics.routes import distance_missed
from limiirl.mixture import IntentMixture

Float = NDArray[np.float64]


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
    data: DriverData, plan: DriverPlan, trial: Trial, baselines: Mapping[str, Float] | None = None
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


def missed_distances(data: DriverData, mixture: IntentMixture, test: Demonstrations) -> Float:
    """Return (2, N) the share of each trip that the route predicted by a mixture misses, and of that off the trip.

    Routes are predicted from the first and the last segment of a trip. Discounts below 1 would make a route depend on
    where it begins, so that routes are found at discount 1 (spec, section G).
    """
    routes = Forecaster(mixture).predicted_routes(test.start_states, test.last_states)
    return _both_ways(data, test, routes)


def baseline_distances(data: DriverData, plan: DriverPlan, split: int) -> dict[str, Float]:
    """Return `missed_distances` (2, N) of the shortest and of the fastest routes, of the test trips of a split."""
    network, test = data.network, data.split(plan, split)[1][: plan.n_routes]
    mdp = network.mdp(plan.features)
    costs = {"distance": network.length_m, "time": network.duration_s}
    return {
        name: _both_ways(data, test, cheapest_routes(mdp, cost[mdp.dst], test.start_states, test.last_states))
        for name, cost in costs.items()
    }


def _both_ways(data: DriverData, test: Demonstrations, routes: Demonstrations) -> Float:
    """Return (2, N) what routes miss of trips, and what they have beside them: misses alone would reward detours."""
    lengths = data.network.length_m
    return np.stack([distance_missed(test, routes, lengths), distance_missed(routes, test, lengths)])


def _seed(plan: DriverPlan, trial: Trial) -> int:
    """Return the seed of a split: of seed + split, plans of neighbouring seeds would share most."""
    return int(np.random.SeedSequence([plan.seed, trial.split]).generate_state(1)[0])


def _timed(mixture: IntentMixture, mdp: MDP, demos: Demonstrations) -> tuple[IntentMixture, float]:
    begun = time.perf_counter()
    return mixture.fit(mdp, demos), time.perf_counter() - begun
