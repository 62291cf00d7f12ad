"""`City`: a synthetic city with drivers of known styles, generated from a seed."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

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
"""How far the centre reaches, as a share of the ring's radius."""
_IN_CENTRE = "km in the centre"
FEATURES = ("km of motorway", "km of avenue", "km of street", _IN_CENTRE, "left turns", "right turns", "sharp turns")
"""What the rewards of the styles see, in the order of the MDP's features."""
STYLES: dict[str, tuple[float, ...]] = {
    "ring road": (-1.0, -7.0, -9.5, -1.0, -2.0, -1.5, -4.0),
    "short cuts": (-9.0, -9.0, -6.5, 0.0, -1.4, -1.2, -3.0),
    "round the centre": (-6.0, -5.0, -8.0, -8.0, -2.0, -1.5, -4.0),
}
"""What each style pays: for a km by class of road, for one in the centre besides, and for a turn."""
_SHARES = (0.3, 0.4, 0.3)
_APART = 5.0 / 7.0  # from the start of a trip to its end, at least, as a share of the ring's radius


@dataclass(frozen=True)
class CityTrips:
    """Trips, and who drove them.

    Attributes
    ----------
    demos : Demonstrations
        True paths of segments; `groups` are drivers, `labels` styles.
    style : (n_drivers,) int64
        The style of each driver, an index into `City.styles`.
    home : (n_drivers,) int64
        The segment where each driver lives.
    """

    demos: Demonstrations
    style: IntArray
    home: IntArray


def style_features(network: RoadNetwork, radius_km: float) -> FeatureChoice:
    """Return the seven features that the styles see, in a city whose ring has some radius.

    Examples
    --------
    >>> from limiirl.roads import City
    >>> style_features(City(radius_km=0.8).network, 0.8).names == FEATURES
    True
    """
    middle = (network.node_xy[network.tail] + network.node_xy[network.head]) / 2.0
    central = np.hypot(*middle.T) <= 1000.0 * CENTRE * radius_km
    return FeatureChoice(
        class_groups={"motorway": ("motorway",), "avenue": ("primary", "secondary"), "street": ("*",)},
        speed_groups=None,
        regions=False,
        turns=True,
        extra={_IN_CENTRE: central * network.length_m / 1000.0},
    )


def style_rewards() -> RewardEnsemble:
    """Return the rewards of the styles, and their shares among drivers."""
    return RewardEnsemble(_SHARES, list(STYLES.values()))


def choose_places(network: RoadNetwork, n: int, rng: np.random.Generator) -> IntArray:
    """Return n segments where people live or go to: on streets, 50 m long or longer, no segment twice."""
    addresses = _addresses(network)
    if n > addresses.size:
        raise InvalidParameter(
            f"n_places is {n}, but the city has {addresses.size} segments where one may stop. Ask for fewer places, or "
            "for a larger city.",
            parameter="n_places",
            value=n,
        )
    return np.sort(rng.choice(addresses, size=n, replace=False))


def drive(city: City, n_drivers: int, trips_each: int, seed: int) -> CityTrips:
    """Draw drivers and their trips; `City.drive` says how."""
    rng = np.random.default_rng((city.seed, 2, seed))
    styles = city.ensemble
    style = rng.permutation(np.repeat(np.arange(styles.n_intents), intent_counts(n_drivers, styles.weights)))
    home = rng.choice(_addresses(city.network), size=n_drivers)
    driver = np.repeat(np.arange(n_drivers), trips_each)
    start, goal = np.empty(driver.size, dtype=np.int64), np.empty(driver.size, dtype=np.int64)
    for i, who in enumerate(driver):
        # Every other trip begins at home.
        start[i] = home[who] if i % 2 == 0 else rng.choice(city.places)
        goal[i] = rng.choice(_far(city, start[i]))
    paths = _routes(city, styles.thetas, style[driver], start, goal, rng)
    demos = Demonstrations.from_lists(paths, groups=driver, labels=style[driver])
    return CityTrips(demos, style, home)


def _addresses(network: RoadNetwork) -> IntArray:
    """Return the segments on which a trip may begin or end; of two directions between the same nodes, both."""
    names = np.array(network.class_names)[network.road_class]
    return np.flatnonzero(~np.char.startswith(names, "motorway") & (network.length_m >= 50.0))


def _far(city: City, start: int) -> IntArray:
    """Return the places that are far enough from a start, or the farthest where none is."""
    at = city.network.node_xy[city.network.head]
    away = np.hypot(*(at[city.places] - at[start]).T)
    return np.asarray(city.places[away >= min(1000.0 * _APART * city.radius_km, away.max())])


def _routes(
    city: City, thetas: FloatArray, style: IntArray, start: IntArray, goal: IntArray, rng: np.random.Generator
) -> list[IntArray]:
    """Draw a route (k,) of each style between a start and a goal."""
    model = DestinationMaxEnt()
    routes: dict[int, IntArray] = {}
    for k, theta in enumerate(thetas):
        mine = np.flatnonzero(style == k)
        if mine.size:
            found = model.sample(city.mdp, theta, start[mine], goal[mine], seed=int(rng.integers(2**31)))
            routes |= {int(i): demo.states for i, demo in zip(mine, found, strict=True)}
    return [routes[i] for i in range(style.size)]


_CENTRE = (41.15, -8.63)
_LATTICE = 0.82  # of the ring's radius
_LEAST_KM, _MOST_KM = 0.8, 6.0


@dataclass(frozen=True)
class City:
    """An invented city about five kilometres across, and people who drive in it.

    Blocks have sides of at most 120 m, except along the river, which few bridges cross. Two avenues of two roadways,
    30 m apart, meet in the centre; other arterials have a service road 30 m beside them. A ring road of two roadways
    surrounds it all, with slip roads at up to eight places. Many residential streets are one-way, some are curved, some
    left turns are forbidden, no U-turn is allowed, and all segments reach all others. Some speed limits and most
    numbers of lanes are unknown, as in real maps.

    No such city exists: the coordinates are those of a place on earth only because coordinates must be.

    Parameters
    ----------
    seed : int
        Determines the city and its places.
    radius_km : float
        Of the ring road, on average; 0.8 to 6. The number of segments grows with its square.
    n_places : int
        Where people drive to.

    Attributes
    ----------
    network : RoadNetwork
    places : (n_places,) int64
        Segments where trips end.
    river : (k, 2)
        Its course, latitudes and longitudes.

    Examples
    --------
    >>> city = City(seed=1)
    >>> city.network
    RoadNetwork: 4,026 directed segments of 338.9 km in all, 8,490 turns, 1,667 nodes
    >>> driven = city.drive(n_drivers=6, trips_each=2)
    >>> len(driven.demos), city.styles[driven.style[0]]
    (12, 'round the centre')
    """

    seed: int = 0
    radius_km: float = 2.1
    n_places: int = 24
    network: RoadNetwork = field(init=False, repr=False, compare=False)
    places: IntArray = field(init=False, repr=False, compare=False)
    river: FloatArray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_seed(self.seed)
        check_count(self.n_places, "n_places", least=2, remedy="People must have somewhere to go.")
        if not _LEAST_KM <= self.radius_km <= _MOST_KM:
            raise InvalidParameter(
                f"radius_km must lie between {_LEAST_KM:g} and {_MOST_KM:g}; got {self.radius_km!r}. A smaller city "
                "has no arterials, and a larger one is no city.",
                parameter="radius_km",
                value=self.radius_km,
            )
        # Plain numbers: the network's notes have them, and are saved as JSON.
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
        """What the styles see: km by class of road and in the centre, and turns; seven numbers."""
        return style_features(self.network, self.radius_km)

    @cached_property
    def mdp(self) -> MDP:
        """The city as an MDP with `features`, without discount."""
        return self.network.mdp(self.features)

    @property
    def ensemble(self) -> RewardEnsemble:
        """The styles' rewards over `features`, and their shares among drivers."""
        return style_rewards()

    def drive(self, n_drivers: int = 36, trips_each: int = 10, seed: int = 0) -> CityTrips:
        """Let people drive: each has one style and one home, and goes from there or from a place to another place.

        Routes are drawn from the style's exact distribution over all paths between two segments,
        ``p(tau | first, last)`` proportional to ``exp(theta . F(tau))``.

        Parameters
        ----------
        n_drivers, trips_each : int
            How many people drive, and how often each.
        seed : int
            Together with the city's seed determines who drives where, and how.
        """
        check_count(n_drivers, "n_drivers", remedy="Somebody must drive.")
        check_count(trips_each, "trips_each", remedy="Everybody drives at least once.")
        check_seed(seed)
        return drive(self, n_drivers, trips_each, seed)


def _build(seed: int, radius_m: float) -> tuple[RoadNetwork, FloatArray]:
    rng = np.random.default_rng((seed, 0))
    outline = ring_outline(rng)
    drawing, ends = lay_lattice(_LATTICE * radius_m, outline, rng)
    lay_ring(drawing, radius_m, outline, ends)
    plan = plan_city(drawing, rng)
    plane = Plane(*_CENTRE)
    lat, lon = plane.degrees(plan.node_xy).T
    network = RoadNetwork.from_segments(
        lat,
        lon,
        plan.tail,
        plan.head,
        turns=plan.turns,
        road_class=plan.road_class,
        class_names=CLASS_NAMES,
        speed_kmh=plan.speed_kmh,
        lanes=plan.lanes,
        way_id=plan.way,
        centre=_CENTRE,
        attribution="An invented city",
        notes={"source": "limiirl.roads.City", "seed": seed, "radius_km": radius_m / 1000.0},
    )
    return network, plane.degrees(plan.river)
