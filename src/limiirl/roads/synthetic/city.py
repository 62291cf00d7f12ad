"""`City`: a synthetic city with drivers of known styles, generated from a seed."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from limiirl._typing import FloatArray, IntArray
from limiirl._validation import check_count, check_seed
from limiirl.demos import Demonstrations
from limiirl.errors import InvalidParameter
from limiirl.irl import DestinationMaxEnt
from limiirl.mdp import MDP, RewardEnsemble
from limiirl.roads.features import FeatureChoice
from limiirl.roads.geometry import Plane
from limiirl.roads.network import RoadNetwork, freeze
from limiirl.roads.synthetic.plan import CLASS_NAMES, lay_lattice, lay_ring, plan_city, ring_outline
from limiirl.worlds import intent_counts

CENTRE = 3.0 / 7.0
"""Radius of the centre, as a fraction of the radius of the ring."""
_IN_CENTRE = "km in the centre"
FEATURES = ("km of motorway", "km of avenue", "km of street", _IN_CENTRE, "left turns", "right turns", "sharp turns")
"""Names of the features, in the order of the MDP."""
STYLES: dict[str, tuple[float, ...]] = {
    "ring road": (-1.0, -7.0, -9.5, -1.0, -2.0, -1.5, -4.0),
    "short cuts": (-9.0, -9.0, -6.5, 0.0, -1.4, -1.2, -3.0),
    "around the centre": (-6.0, -5.0, -8.0, -8.0, -2.0, -1.5, -4.0),
}
"""Reward weights of each style: per km by road class, per km in the centre, and per turn."""
_WEIGHTS = (0.3, 0.4, 0.3)
_APART = 5.0 / 7.0  # minimum distance between start and end of a trip, as a fraction of the radius of the ring


@dataclass(frozen=True)
class CityTrips:
    """Trips with known drivers and styles.

    Attributes
    ----------
    demos : Demonstrations
        True paths of segments; `groups` are drivers, `labels` are styles.
    style : (n_drivers,) int64
        Style of each driver, as an index into `City.styles`.
    home : (n_drivers,) int64
        Home segment of each driver.
    """

    demos: Demonstrations
    style: IntArray
    home: IntArray


def choose_places(network: RoadNetwork, n: int, rng: np.random.Generator) -> IntArray:
    """Sample n distinct segments as origins and destinations."""
    addresses = _addresses(network)
    if n > addresses.size:
        rule = f"must be at most {addresses.size}, the number of segments on which a trip may end"
        raise InvalidParameter.of("n_places", n, rule, remedy="Reduce n_places, or increase radius_km.")
    return np.sort(rng.choice(addresses, size=n, replace=False))


def _addresses(network: RoadNetwork) -> IntArray:
    """Return the segments on which a trip may start or end: at least 50 m long, and not on the motorway."""
    names = np.array(network.class_names)[network.road_class]
    return np.flatnonzero(~np.char.startswith(names, "motorway") & (network.length_m >= 50.0))


def _far_places(city: City, start: int) -> IntArray:
    """Return the places that are far enough from a start, or else the farthest place."""
    at = city.network.node_xy[city.network.head]
    away = np.hypot(*(at[city.places] - at[start]).T)
    return np.asarray(city.places[away >= min(1000.0 * _APART * city.radius_km, away.max())])


def _sample_routes(
    city: City, thetas: FloatArray, style: IntArray, start: IntArray, goal: IntArray, rng: np.random.Generator
) -> list[IntArray]:
    """Sample one route (k,) per trip from the distribution of its style."""
    model = DestinationMaxEnt()
    routes: dict[int, IntArray] = {}
    for k, theta in enumerate(thetas):
        mine = np.flatnonzero(style == k)
        if mine.size:
            sample = model.sample(city.mdp, theta, start[mine], goal[mine], seed=int(rng.integers(2**31)))
            routes |= {int(i): demo.states for i, demo in zip(mine, sample, strict=True)}
    return [routes[i] for i in range(style.size)]


_CENTRE = (41.15, -8.63)
_LATTICE = 0.82  # radius of the lattice, as a fraction of the radius of the ring
_LEAST_KM, _MOST_KM = 0.8, 6.0


@dataclass(frozen=True)
class City:
    """Synthetic city with drivers of known styles.

    The streets form a bent lattice with blocks of at most 120 m, crossed by a river with few bridges. Two avenues with
    two carriageways meet in the centre, and some arterials have a parallel service road. A ring road with two
    carriageways and up to eight interchanges surrounds the city. Many residential streets are one-way, some left turns
    and all U-turns are forbidden, and the network is strongly connected. As in real maps, some speed limits and most
    numbers of lanes are unknown. The coordinates are fictitious.

    Parameters
    ----------
    seed : int
        Seed of the city and its places.
    radius_km : float
        Mean radius of the ring road, from 0.8 to 6. The number of segments is proportional to its square.
    n_places : int
        Number of destinations.

    Attributes
    ----------
    network : RoadNetwork
    places : (n_places,) int64
        Destination segments.
    river : (k, 2)
        Latitudes and longitudes along the river.

    Examples
    --------
    >>> city = City(seed=1)
    >>> city.network
    RoadNetwork: 4,026 directed segments of 338.9 km in all, 8,490 turns, 1,667 nodes
    >>> driven = city.drive(n_drivers=6, trips_each=2)
    >>> len(driven.demos), city.styles[driven.style[0]]
    (12, 'around the centre')
    """

    seed: int = 0
    radius_km: float = 2.1
    n_places: int = 24
    network: RoadNetwork = field(init=False, repr=False, compare=False)
    places: IntArray = field(init=False, repr=False, compare=False)
    river: FloatArray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_seed(self.seed)
        check_count(self.n_places, "n_places", least=2)
        if not _LEAST_KM <= self.radius_km <= _MOST_KM:
            raise InvalidParameter.of("radius_km", self.radius_km, f"must lie in [{_LEAST_KM:g}, {_MOST_KM:g}]")
        # Python numbers, since the notes of the network are saved as JSON.
        for name, kind in (("seed", int), ("radius_km", float), ("n_places", int)):
            object.__setattr__(self, name, kind(getattr(self, name)))
        network, river = _build(self.seed, 1000.0 * self.radius_km)
        places = choose_places(network, self.n_places, np.random.default_rng((self.seed, 1)))
        for name, value in (("network", network), ("places", freeze(places)), ("river", freeze(river))):
            object.__setattr__(self, name, value)

    @property
    def styles(self) -> tuple[str, ...]:
        """Names of the driving styles, in the order of `ensemble`."""
        return tuple(STYLES)

    @cached_property
    def features(self) -> FeatureChoice:
        """Features of the rewards: km by road class, km in the centre, and turns."""
        network = self.network
        middle = (network.node_xy[network.tail] + network.node_xy[network.head]) / 2.0
        central = np.hypot(*middle.T) <= 1000.0 * CENTRE * self.radius_km
        groups = {"motorway": ("motorway",), "avenue": ("primary", "secondary"), "street": ("*",)}
        extra = {_IN_CENTRE: central * network.length_m / 1000.0}
        return FeatureChoice(class_groups=groups, speed_groups=None, regions=False, turns=True, extra=extra)

    @cached_property
    def mdp(self) -> MDP:
        """Undiscounted MDP of the city with `features`."""
        return self.network.mdp(self.features)

    @property
    def ensemble(self) -> RewardEnsemble:
        """Rewards of the styles, weighted by their fraction of the drivers."""
        return RewardEnsemble(_WEIGHTS, list(STYLES.values()))

    def drive(self, n_drivers: int = 36, trips_each: int = 10, seed: int = 0) -> CityTrips:
        """Simulate trips of drivers, each with a style and a home segment.

        A trip starts at the home or at one of the places, and ends at another place. Its route is sampled from the
        distribution of the style given the first and the last segment, ``p(tau | first, last)`` proportional to
        ``exp(theta . F(tau))``. The trips depend on `seed` and on the seed of the city.
        """
        check_count(n_drivers, "n_drivers")
        check_count(trips_each, "trips_each")
        check_seed(seed)
        rng = np.random.default_rng((self.seed, 2, seed))
        styles = self.ensemble
        style = rng.permutation(np.repeat(np.arange(styles.n_intents), intent_counts(n_drivers, styles.weights)))
        home = rng.choice(_addresses(self.network), size=n_drivers)
        driver = np.repeat(np.arange(n_drivers), trips_each)
        start, goal = np.empty(driver.size, dtype=np.int64), np.empty(driver.size, dtype=np.int64)
        for i, k in enumerate(driver):
            # Every second trip starts at home.
            start[i] = home[k] if i % 2 == 0 else rng.choice(self.places)
            goal[i] = rng.choice(_far_places(self, start[i]))
        paths = _sample_routes(self, styles.thetas, style[driver], start, goal, rng)
        return CityTrips(Demonstrations.from_lists(paths, groups=driver, labels=style[driver]), style, home)


def _build(seed: int, radius_m: float) -> tuple[RoadNetwork, FloatArray]:
    rng = np.random.default_rng((seed, 0))
    outline = ring_outline(rng)
    drawing, ends = lay_lattice(_LATTICE * radius_m, outline, rng)
    lay_ring(drawing, radius_m, outline, ends)
    plan = plan_city(drawing, rng)
    plane = Plane(*_CENTRE)
    lat, lon = plane.degrees(plan.node_xy).T
    notes = {"source": "limiirl.roads.City", "seed": seed, "radius_km": radius_m / 1000.0}
    fields: dict[str, Any] = {
        "class_names": CLASS_NAMES,
        "centre": _CENTRE,
        "attribution": "A synthetic city",
        "notes": notes,
    }
    fields |= {name: getattr(plan, name) for name in ("turns", "road_class", "speed_kmh", "lanes")}
    network = RoadNetwork.from_segments(lat, lon, plan.tail, plan.head, way_id=plan.way, **fields)
    return network, plane.degrees(plan.river)
