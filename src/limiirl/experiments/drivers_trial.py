"""One trial of the driver experiment: fit a mixture to a split's trips, and judge it by the others."""

from __future__ import annotations

import time
import warnings
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
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
    capped: dict[str, Any] = {"solver": "lbfgs", "tol": plan.m_tol, "max_evaluations": plan.max_evaluations}
    if trial.to_destination:
        irl: Any = DestinationMaxEnt(bounds=plan.destination_bounds, **capped)
    else:
        irl = MaxEnt(max_length=plan.max_length, bounds=plan.bounds, **capped)
    return IntentMixture(
        trial.n_most or plan.n_intents,
        irl,
        max_iter=plan.max_iter,
        tol=plan.tol,
        max_evaluations=plan.max_evaluations,
        random_state=plan.seed + trial.split,
        **(DESTINATION_METHODS if trial.to_destination else DRIVER_METHODS)[trial.method],
    )


def run_driver_trial(data: DriverData, plan: DriverPlan, trial: Trial) -> DriverRecord:
    """Fit and judge one mixture; the record depends on the arguments alone, its times apart."""
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
    missed = missed_distances(data, mixture, test[: plan.n_routes])
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
        missed_distance=float(baselines["distance"].mean()),
        missed_time=float(baselines["time"].mean()),
        weights=mixture.weights_.tolist(),
        thetas=mixture.thetas_.tolist(),
        history=[-entry.log_likelihood for entry in mixture.history_],
    )


def missed_distances(data: DriverData, mixture: IntentMixture, test: Demonstrations) -> Float:
    """Return the share (N,) of each trip's distance that the route predicted by a mixture leaves out.

    Routes are predicted from the first and the last segment of a trip. Discounts below 1 would make a route depend on
    where it begins, so that routes are found at discount 1 (spec, section G).
    """
    routes = Forecaster(mixture).predicted_routes(test.start_states, test.last_states)
    return distance_missed(test, routes, data.network.length_m)


@lru_cache(maxsize=2)  # the methods of a split come one after the other
def baseline_distances(data: DriverData, plan: DriverPlan, split: int) -> dict[str, Float]:
    """Return the share (N,) that the shortest and the fastest routes leave out, of the test trips of a split."""
    network, test = data.network, data.split(plan, split)[1][: plan.n_routes]
    mdp = network.mdp(plan.features)
    costs = {"distance": network.length_m, "time": network.duration_s}
    return {
        name: distance_missed(
            test, cheapest_routes(mdp, cost[mdp.dst], test.start_states, test.last_states), network.length_m
        )
        for name, cost in costs.items()
    }


def _timed(mixture: IntentMixture, mdp: MDP, demos: Demonstrations) -> tuple[IntentMixture, float]:
    begun = time.perf_counter()
    return mixture.fit(mdp, demos), time.perf_counter() - begun
