"""Contents of the page on driving styles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from limiirl._typing import FloatArray, IntArray
from limiirl.demos import Demonstrations
from limiirl.errors import InvalidDemos
from limiirl.mdp import RewardEnsemble
from limiirl.mixture import StandardErrors
from limiirl.report.roads.figures import Panel
from limiirl.report.tables import Table
from limiirl.roads import (
    NormalisedRewards,
    RoadNetwork,
    StyleDescription,
    count_style_drivers,
    count_style_trips,
    describe_styles,
    index_drivers,
    match_rewards,
    normalise_rewards,
)


@dataclass(frozen=True, eq=False)
class ForecastExample:
    """A truncated trip with its forecast and its actual continuation.

    `driven` (n,) and `actual` (m,) are the segments before and after the truncation. `turns` has pairs of a next
    segment and its probability. `routes` has pairs of a route to the true destination and its probability, in
    descending order. `destinations` (G,) and `probability` (G,) are the candidate segments of the destination and their
    probabilities, and `intents` (K,) is the posterior over styles.
    """

    title: str
    driven: IntArray
    actual: IntArray
    turns: Sequence[tuple[int, float]] = ()
    routes: Sequence[tuple[IntArray, float]] = ()
    destinations: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    probability: FloatArray = field(default_factory=lambda: np.empty(0))
    intents: FloatArray = field(default_factory=lambda: np.empty(0))


@dataclass(frozen=True, eq=False)
class DriversView:
    """Driving styles learned on a network, with the trips that they were learned from.

    `ensembles` has the best ensemble per initialisation of EM; the page describes the styles of the first.
    `responsibilities` (N, K) is the posterior over these styles for each trip in `demos`, and `features` (N, d) are the
    undiscounted feature counts of the trips; `groups` is `FeatureChoice.groups`. `trained` is True if the forecast
    trips are training trips (None if unknown). Single trips, which may identify drivers, are shown if `examples` is
    True. For each style, streets with fewer than `min_drivers` drivers (trips, if drivers are unknown) are hidden.
    `errors` are the standard errors of the main ensemble. `source` is a remark on the origin of the ensembles; `facts`
    are listed in the methods section.
    """

    network: RoadNetwork
    feature_names: Sequence[str]
    groups: Mapping[str, Sequence[int]]
    ensembles: Mapping[str, RewardEnsemble]
    demos: Demonstrations
    responsibilities: FloatArray
    features: FloatArray
    forecasts: Sequence[ForecastExample] = ()
    trained: bool | None = None
    examples: bool = True
    tables: Sequence[Table] = ()
    title: str = "Driving styles"
    facts: Mapping[str, object] = field(default_factory=dict)
    min_drivers: int = 5
    source: str = ""
    errors: StandardErrors | None = None

    def __post_init__(self) -> None:
        if self.demos.n_steps and self.demos.states.max() >= self.network.n_segments:
            raise InvalidDemos(
                f"demos must have segments below {self.network.n_segments}, the size of the network; got "
                f"{self.demos.states.max()}. Pass the network that the trips were matched to.",
                parameter="demos",
                value=int(self.demos.states.max()),
            )

    @property
    def main(self) -> RewardEnsemble:
        """Ensemble whose styles the page describes."""
        return next(iter(self.ensembles.values()))

    @property
    def style_names(self) -> list[str]:
        """Names of the K styles; style k is intent k of the mixture."""
        return [f"style {k}" for k in range(self.main.n_intents)]

    def path(self, i: int) -> IntArray:
        """Return the segments of trip i."""
        return self.demos.states[self.demos.offsets[i] : self.demos.offsets[i + 1]]

    @cached_property
    def trip_km(self) -> FloatArray:
        """Length (N,) of each trip in km."""
        total = np.concatenate([[0.0], np.cumsum(self.network.length_m[self.demos.states])])
        return np.asarray(np.diff(total[self.demos.offsets]) / 1000.0)

    @cached_property
    def km(self) -> FloatArray:
        """Sum (d,) of each feature over all trips."""
        return np.asarray(self.features.sum(axis=0))

    @cached_property
    def labels(self) -> IntArray:
        """Most likely style (N,) of each trip."""
        return np.asarray(self.responsibilities.argmax(axis=1))

    @cached_property
    def mean_features(self) -> FloatArray:
        """Mean features (K, d) of the trips per style, weighted by responsibility."""
        weight = self.responsibilities.sum(axis=0)
        return np.asarray(self.responsibilities.T @ self.features / np.maximum(weight, 1e-300)[:, None])

    @cached_property
    def normalised(self) -> dict[str, NormalisedRewards]:
        """Normalised rewards of each ensemble."""
        return {
            start: normalise_rewards(e.thetas, self.groups, self.km, errors=self.errors if e is self.main else None)
            for start, e in self.ensembles.items()
        }

    @cached_property
    def panels(self) -> dict[str, Panel]:
        """Rewards by initialisation; intents are in the order of the first, with NaN if missing."""
        first = next(iter(self.normalised.values()))
        panels = {}
        for start, normalised in self.normalised.items():
            order = match_rewards(first, normalised, self.km)
            rest = [k for k in range(len(normalised.level)) if k not in order]
            indices = [*order.tolist(), *rest]
            missing = np.array(indices) < 0
            weights, level, thetas = (
                np.array(part[indices]) for part in (self.ensembles[start].weights, normalised.level, normalised.thetas)
            )
            weights[missing], level[missing], thetas[missing] = 0.0, np.nan, np.nan
            # The main ensemble is not reordered; only it has errors.
            panels[start] = Panel(weights, level, thetas, normalised.level_errors, normalised.errors)
        return panels

    @cached_property
    def descriptions(self) -> list[StyleDescription]:
        """Descriptions of the K styles."""
        normalised = next(iter(self.normalised.values()))
        return describe_styles(normalised, self.mean_features, self.main.weights, self.feature_names, self.groups)

    @cached_property
    def flows(self) -> FloatArray:
        """Expected number of trips (K, S) per style and segment."""
        return count_style_trips(self.demos, self.responsibilities, self.network.n_segments)

    @cached_property
    def drivers_per_street(self) -> IntArray:
        """Number of drivers (K, S) per style and street in either direction, or of trips if drivers are unknown.

        A trip belongs to its most likely style.
        """
        return count_style_drivers(self.demos, self.labels, self.main.n_intents, self.network.opposite)

    @cached_property
    def drivers_per_style(self) -> IntArray:
        """Number of drivers (K,) with trips of each style, or of trips if drivers are unknown."""
        drivers = index_drivers(self.demos)
        return np.array([np.unique(drivers[self.labels == k]).size for k in range(self.main.n_intents)])

    @property
    def unit(self) -> str:
        """Unit of `drivers_per_street` and `drivers_per_style`: "drivers" or "trips"."""
        return "trips" if self.demos.groups is None else "drivers"

    @property
    def too_few(self) -> str:
        """Text that replaces hidden values."""
        return f"fewer than {self.min_drivers} {self.unit}"
