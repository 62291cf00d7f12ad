"""`DriversView`: all that the page of drivers shows, as plain values."""

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
    """A trip that was cut, what was forecast from its beginning, and how it went on.

    Attributes
    ----------
    title : str
    driven, actual : (n,), (m,)
        Segments before the forecast and after it.
    turns : sequence of (segment, probability)
        Of what comes next.
    routes : sequence of (segments, probability)
        To the true destination, the most probable first.
    destinations : (G,), probability : (G,)
        Segments, and how probable each is as the end of the trip.
    intents : (K,)
        The posterior of the driver's style.
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
    """What was learned of drivers on a network.

    Attributes
    ----------
    network : RoadNetwork
    feature_names : d texts
    groups : mapping of a name to indices
        Of `FeatureChoice.groups`.
    ensembles : mapping of a start's name to RewardEnsemble
        The best of each way of starting EM: hard, soft, random. The first is the one whose styles the page describes.
    demos : Demonstrations
        The trips, states are segments.
    responsibilities : (N, K)
        Of the first ensemble's styles for each trip.
    features : (N, d)
        Of the trips, summed and not discounted.
    flows : (K, S), optional
        Uses of each segment by each style, expected or counted; counted from the trips where absent.
    flow_unit : str
        What `flows` counts.
    forecasts : sequence of ForecastExample
    trained : bool, optional
        Whether the trips of the forecasts are among those that were learned from; None where that is not known.
    examples : bool
        Whether single trips are shown: typical ones, two routes, forecasts. They may tell who drove.
    tables : sequence of Table
        Cross-validation, and what else there is.
    names : K texts, optional
        Of the styles; "style 1" and so on where absent.
    title, lead : str
    source : str
        Where the ensembles are from, for the caption of their rewards.
    facts : mapping
        For the methods.
    least : int
        Streets that fewer drivers of a style use are not drawn for it; fewer trips, where drivers are not known.

    Examples
    --------
    >>> from limiirl.roads import City
    >>> from limiirl.mdp import RewardEnsemble
    >>> city = City(seed=1, radius_km=0.8)
    >>> driven = city.drive(n_drivers=4, trips_each=2)
    >>> view = DriversView(
    ...     city.network,
    ...     city.mdp.feature_names,
    ...     city.features.groups,
    ...     {"true": city.ensemble},
    ...     driven.demos,
    ...     np.eye(3)[driven.demos.labels],
    ...     driven.demos.features(city.mdp),
    ... )
    >>> view.style_names
    ('style 1', 'style 2', 'style 3')
    """

    network: RoadNetwork
    feature_names: Sequence[str]
    groups: Mapping[str, Sequence[int]]
    ensembles: Mapping[str, RewardEnsemble]
    demos: Demonstrations
    responsibilities: FloatArray
    features: FloatArray
    flows: FloatArray | None = None
    flow_unit: str = "trips"
    forecasts: Sequence[ForecastExample] = ()
    trained: bool | None = None
    examples: bool = True
    tables: Sequence[Table] = ()
    names: Sequence[str] | None = None
    title: str = "Driving styles"
    lead: str = ""
    facts: Mapping[str, object] = field(default_factory=dict)
    least: int = 5
    source: str = ""

    def __post_init__(self) -> None:
        if not self.ensembles:
            raise InvalidParameter("ensembles must have at least one entry; got none.", parameter="ensembles")
        n, d, k = len(self.demos), len(self.feature_names), self.main.n_intents
        check_groups(self.groups, d)
        shapes = {"responsibilities": (n, k), "features": (n, d)}
        if self.flows is not None:
            shapes["flows"] = (k, self.network.n_segments)
        for name, shape in shapes.items():
            value = np.asarray(getattr(self, name), dtype=np.float64)
            if value.shape != shape:
                raise InvalidParameter(
                    f"{name} must have shape {shape}; got {value.shape}.", parameter=name, value=value.shape
                )
            object.__setattr__(self, name, value)
        if self.demos.n_steps and self.demos.states.max() >= self.network.n_segments:
            raise InvalidDemos(
                f"A trip passes segment {self.demos.states.max()}, but the network has {self.network.n_segments}. Give "
                "the network that the trips were matched to.",
                parameter="demos",
                value=int(self.demos.states.max()),
            )
        for start, ensemble in self.ensembles.items():
            if ensemble.n_features != d:
                raise InvalidParameter(
                    f"ensemble {start!r} has {ensemble.n_features} features; the view has {d}.",
                    parameter="ensembles",
                    value=start,
                )

    @property
    def main(self) -> RewardEnsemble:
        """The ensemble whose styles the page describes."""
        return next(iter(self.ensembles.values()))

    @cached_property
    def style_names(self) -> tuple[str, ...]:
        """Names of the K styles."""
        given = () if self.names is None else tuple(self.names)
        return tuple(given[k] if k < len(given) else f"style {k + 1}" for k in range(self.main.n_intents))

    @cached_property
    def km(self) -> FloatArray:
        """How much (d,) of each feature all trips drove."""
        return np.asarray(self.features.sum(axis=0))

    @cached_property
    def labels(self) -> IntArray:
        """The likeliest style (N,) of each trip."""
        return np.asarray(self.responsibilities.argmax(axis=1))

    @cached_property
    def mean_features(self) -> FloatArray:
        """Of the trips of each style (K, d), each trip counted by how much it is of that style."""
        weight = self.responsibilities.sum(axis=0)
        return np.asarray(self.responsibilities.T @ self.features / np.maximum(weight, 1e-300)[:, None])

    @cached_property
    def normalised(self) -> dict[str, NormalisedRewards]:
        """Each ensemble in the fixed gauge."""
        return {start: normalise_rewards(found.thetas, self.groups, self.km) for start, found in self.ensembles.items()}

    @cached_property
    def panels(self) -> dict[str, tuple[FloatArray, FloatArray, FloatArray]]:
        """For each start weights, levels and rewards, in the order of the first one's intents; NaN for one it lacks."""
        first = next(iter(self.normalised.values()))
        found = {}
        for start, normalised in self.normalised.items():
            order = match_rewards(first, normalised, self.km)
            rest = [k for k in range(len(normalised.level)) if k not in order]
            places = [*order.tolist(), *rest]
            lacking = np.array(places) < 0
            weights, level, thetas = (
                np.array(part[places]) for part in (self.ensembles[start].weights, normalised.level, normalised.thetas)
            )
            weights[lacking], level[lacking], thetas[lacking] = 0.0, np.nan, np.nan
            found[start] = (weights, level, thetas)
        return found

    @cached_property
    def words(self) -> list[StyleDescription]:
        """The styles in words."""
        normalised = next(iter(self.normalised.values()))
        return describe_styles(normalised, self.mean_features, self.main.weights, self.feature_names, self.groups)

    @cached_property
    def counted_flows(self) -> FloatArray:
        """How often (K, S) trips of each style use each segment: as given, or counted."""
        if self.flows is not None:
            return self.flows
        trip = np.repeat(np.arange(len(self.demos)), np.diff(self.demos.offsets))
        uses = [
            np.bincount(self.demos.states, self.responsibilities[trip, k], minlength=self.network.n_segments)
            for k in range(self.main.n_intents)
        ]
        return np.stack(uses)

    @cached_property
    def passed_by(self) -> IntArray:
        """How many drivers (K, S) with trips of each style pass a street, either way: few of them are people.

        A trip is of its likeliest style, however unsure. Trips are counted where drivers are not known.
        """
        own = (self.demos[self.labels == k] for k in range(self.main.n_intents))
        return np.array([count_drivers_by_street(demos, self.network.opposite) for demos in own])

    @cached_property
    def drivers(self) -> IntArray:
        """How many drivers (K,) have trips of each style; trips, where drivers are not known."""
        return np.array(
            [np.unique(index_drivers(self.demos)[self.labels == k]).size for k in range(self.main.n_intents)]
        )

    @property
    def counted(self) -> str:
        """What `passed_by` and `drivers` count: drivers or trips."""
        return "trips" if self.demos.groups is None else "drivers"
