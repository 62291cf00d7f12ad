"""Contents of the page of driving styles, as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from limiirl._typing import FloatArray, IntArray
from limiirl.demos import Demonstrations
from limiirl.errors import InvalidDemos, InvalidParameter
from limiirl.mdp import RewardEnsemble
from limiirl.report.tables import Table
from limiirl.roads import (
    NormalisedRewards,
    RoadNetwork,
    StyleDescription,
    check_groups,
    count_drivers_by_street,
    describe_styles,
    index_drivers,
    match_rewards,
    normalise_rewards,
)


@dataclass(frozen=True, eq=False)
class ForecastExample:
    """A trip cut at some segment, the forecast from there, and its actual continuation.

    `driven` (n,) and `actual` (m,) are the segments before and after the cut, `turns` pairs of next segment and
    probability, `routes` pairs of segments and probability to the true destination, the most probable first.
    `destinations` and `probability` (G,) are candidate segments for the end, `intents` (K,) the posterior over styles.
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

    `ensembles` holds the best ensemble per initialisation of EM; the page describes the styles of the first.
    `responsibilities` (N, K) are its posteriors of the trips `demos`, and `features` (N, d) the undiscounted feature
    counts of these; `groups` is `FeatureChoice.groups`. `trained` states whether the forecast trips are training trips
    (None if unknown), and `examples` whether single trips, which may identify drivers, are shown. Streets with fewer
    than `least` drivers of a style (trips, if drivers are unknown) are hidden for it. `source` is the origin of the
    ensembles, for a caption; `facts` are entries of the methods section.
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
    least: int = 5
    source: str = ""

    def __post_init__(self) -> None:
        if not self.ensembles:
            raise InvalidParameter("ensembles must have at least one entry; got none.", parameter="ensembles")
        n, d, k = len(self.demos), len(self.feature_names), self.main.n_intents
        check_groups(self.groups, d)
        for name, shape in {"responsibilities": (n, k), "features": (n, d)}.items():
            value = np.asarray(getattr(self, name), dtype=np.float64)
            if value.shape != shape:
                raise InvalidParameter.of(name, value.shape, f"must have shape {shape}")
            object.__setattr__(self, name, value)
        if self.demos.n_steps and self.demos.states.max() >= self.network.n_segments:
            raise InvalidDemos(
                f"demos must have segments below {self.network.n_segments}, the size of the network; got "
                f"{self.demos.states.max()}. Pass the network that the trips were matched to.",
                parameter="demos",
                value=int(self.demos.states.max()),
            )
        for start, ensemble in self.ensembles.items():
            if ensemble.n_features != d:
                raise InvalidParameter.of("ensembles", start, f"must have {d} features, as the view")

    @property
    def main(self) -> RewardEnsemble:
        """Ensemble whose styles the page describes."""
        return next(iter(self.ensembles.values()))

    @property
    def style_names(self) -> list[str]:
        """Names of the K styles."""
        return [f"style {k + 1}" for k in range(self.main.n_intents)]

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
        """Mean features (K, d) of the trips, weighted by responsibility."""
        weight = self.responsibilities.sum(axis=0)
        return np.asarray(self.responsibilities.T @ self.features / np.maximum(weight, 1e-300)[:, None])

    @cached_property
    def normalised(self) -> dict[str, NormalisedRewards]:
        """Normalised rewards of each ensemble."""
        return {start: normalise_rewards(e.thetas, self.groups, self.km) for start, e in self.ensembles.items()}

    @cached_property
    def panels(self) -> dict[str, tuple[FloatArray, FloatArray, FloatArray]]:
        """Weights, levels and rewards per initialisation, in the order of the first one's intents; NaN if missing."""
        first = next(iter(self.normalised.values()))
        panels = {}
        for start, normalised in self.normalised.items():
            order = match_rewards(first, normalised, self.km)
            rest = [k for k in range(len(normalised.level)) if k not in order]
            places = [*order.tolist(), *rest]
            missing = np.array(places) < 0
            weights, level, thetas = (
                np.array(part[places]) for part in (self.ensembles[start].weights, normalised.level, normalised.thetas)
            )
            weights[missing], level[missing], thetas[missing] = 0.0, np.nan, np.nan
            panels[start] = (weights, level, thetas)
        return panels

    @cached_property
    def words(self) -> list[StyleDescription]:
        """Descriptions of the styles."""
        normalised = next(iter(self.normalised.values()))
        return describe_styles(normalised, self.mean_features, self.main.weights, self.feature_names, self.groups)

    @cached_property
    def flows(self) -> FloatArray:
        """Trips (K, S) per style and segment, weighted by responsibility."""
        trip = np.repeat(np.arange(len(self.demos)), np.diff(self.demos.offsets))
        counts = [
            np.bincount(self.demos.states, self.responsibilities[trip, k], minlength=self.network.n_segments)
            for k in range(self.main.n_intents)
        ]
        return np.stack(counts)

    @cached_property
    def passed_by(self) -> IntArray:
        """Drivers (K, S) per style and street, in either direction; trips, if drivers are unknown.

        A trip counts for its most likely style.
        """
        own = (self.demos[self.labels == k] for k in range(self.main.n_intents))
        return np.array([count_drivers_by_street(demos, self.network.opposite) for demos in own])

    @cached_property
    def drivers(self) -> IntArray:
        """Drivers (K,) with trips of each style; trips, if drivers are unknown."""
        drivers = index_drivers(self.demos)
        return np.array([np.unique(drivers[self.labels == k]).size for k in range(self.main.n_intents)])

    @property
    def counted(self) -> str:
        """Unit of `passed_by` and `drivers`: "drivers" or "trips"."""
        return "trips" if self.demos.groups is None else "drivers"

    @property
    def too_few(self) -> str:
        """Text for hidden numbers."""
        return f"fewer than {self.least} {self.counted}"
