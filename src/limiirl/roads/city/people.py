"""People of the invented city: styles as rewards, homes and places, and trips between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from limiirl.demos import Demonstrations
from limiirl.errors import InvalidParameter
from limiirl.irl import DestinationMaxEnt
from limiirl.mdp.ensemble import RewardEnsemble
from limiirl.roads.feature_choice import FeatureChoice
from limiirl.worlds.demonstrators import intent_counts

if TYPE_CHECKING:
    from limiirl.roads.city.city import City
    from limiirl.roads.network import RoadNetwork

Float = NDArray[np.float64]
Int = NDArray[np.int64]

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
class Driven:
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
    style: Int
    home: Int


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


def choose_places(network: RoadNetwork, n: int, rng: np.random.Generator) -> Int:
    """Return n segments where people live or go to: on streets, 50 m long or longer, no segment twice."""
    addresses = _addresses(network)
    if n > addresses.size:
        raise InvalidParameter(
            f"n_places is {n}, but the city has {addresses.size} segments where one may stop. Ask for fewer places, or "
            "for a larger city."
        )
    return np.sort(rng.choice(addresses, size=n, replace=False))


def drive(city: City, n_drivers: int, trips_each: int, seed: int) -> Driven:
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
    return Driven(demos, style, home)


def _addresses(network: RoadNetwork) -> Int:
    """Return the segments on which a trip may begin or end; of two directions between the same nodes, both."""
    names = np.array(network.class_names)[network.road_class]
    return np.flatnonzero(~np.char.startswith(names, "motorway") & (network.length_m >= 50.0))


def _far(city: City, start: int) -> Int:
    """Return the places that are far enough from a start, or the farthest where none is."""
    at = city.network.node_xy[city.network.head]
    away = np.hypot(*(at[city.places] - at[start]).T)
    return np.asarray(city.places[away >= min(1000.0 * _APART * city.radius_km, away.max())])


def _routes(city: City, thetas: Float, style: Int, start: Int, goal: Int, rng: np.random.Generator) -> list[Int]:
    """Draw a route (k,) of each style between a start and a goal."""
    model = DestinationMaxEnt()
    routes: dict[int, Int] = {}
    for k, theta in enumerate(thetas):
        mine = np.flatnonzero(style == k)
        if mine.size:
            found = model.sample(city.mdp, theta, start[mine], goal[mine], seed=int(rng.integers(2**31)))
            routes |= {int(i): demo.states for i, demo in zip(mine, found, strict=True)}
    return [routes[i] for i in range(style.size)]
