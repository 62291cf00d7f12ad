"""`City`: an invented city with drivers of known styles, made from a seed: the whole chain without a file."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from limiirl.errors import InvalidParameter
from limiirl.mdp import MDP
from limiirl.mdp.ensemble import RewardEnsemble
from limiirl.roads.checks import frozen
from limiirl.roads.city import people
from limiirl.roads.city.people import STYLES, Driven
from limiirl.roads.city.plan import CLASS_NAMES, Float, Int, lay_lattice, plan_city
from limiirl.roads.city.ring import lay_ring, ring_outline
from limiirl.roads.feature_choice import FeatureChoice
from limiirl.roads.geodesy import Plane
from limiirl.roads.network import RoadNetwork
from limiirl.worlds.parameters import check_count, check_seed

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
    places: Int = field(init=False, repr=False, compare=False)
    river: Float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_seed(self.seed)
        check_count("n_places", self.n_places, 2, "People must have somewhere to go.")
        if not _LEAST_KM <= self.radius_km <= _MOST_KM:
            raise InvalidParameter(
                f"radius_km must lie between {_LEAST_KM:g} and {_MOST_KM:g}; got {self.radius_km!r}. A smaller city "
                "has no arterials, and a larger one is no city."
            )
        # Plain numbers: the network's notes have them, and are saved as JSON.
        for name, kind in (("seed", int), ("radius_km", float), ("n_places", int)):
            object.__setattr__(self, name, kind(getattr(self, name)))
        network, river = _build(self.seed, 1000.0 * self.radius_km)
        places = people.choose_places(network, self.n_places, np.random.default_rng((self.seed, 1)))
        for name, value in (("network", network), ("places", frozen(places)), ("river", frozen(river))):
            object.__setattr__(self, name, value)

    @property
    def styles(self) -> tuple[str, ...]:
        """Names of the driving styles, in the order of `ensemble`."""
        return tuple(STYLES)

    @cached_property
    def features(self) -> FeatureChoice:
        """What the styles see: km by class of road and in the centre, and turns; seven numbers."""
        return people.style_features(self.network, self.radius_km)

    @cached_property
    def mdp(self) -> MDP:
        """The city as an MDP with `features`, without discount."""
        return self.network.mdp(self.features)

    @property
    def ensemble(self) -> RewardEnsemble:
        """The styles' rewards over `features`, and their shares among drivers."""
        return people.style_rewards()

    def drive(self, n_drivers: int = 36, trips_each: int = 10, seed: int = 0) -> Driven:
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
        check_count("n_drivers", n_drivers, 1, "Somebody must drive.")
        check_count("trips_each", trips_each, 1, "Everybody drives at least once.")
        check_seed(seed)
        return people.drive(self, n_drivers, trips_each, seed)


def _build(seed: int, radius_m: float) -> tuple[RoadNetwork, Float]:
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
