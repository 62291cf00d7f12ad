"""Features of road segments and turns, and the MDP of drivers: the paper's 24 dimensions, or what you choose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from limiirl.errors import InvalidNetwork, InvalidParameter
from limiirl.mdp import MDP
from limiirl.roads.compass import REGIONS, regions
from limiirl.roads.feature_choice import PAPER, PLAIN, REST, FeatureChoice, choose
from limiirl.roads.geodesy import distance_m

if TYPE_CHECKING:
    from limiirl.roads.network import RoadNetwork

Float = NDArray[np.float64]

__all__ = [
    "PAPER",
    "PLAIN",
    "STRAIGHT",
    "FeatureChoice",
    "check_units",
    "choose",
    "driver_mdp",
    "state_features",
    "turn_features",
]

STRAIGHT = 45.0
"""Up to so many degrees a turn is straight on."""
_SHARP = 135.0
_MEDIAN_M = (1.0, 5000.0)
_STRETCH = (0.5, 3.0)  # of the length over the straight line; feet would give 3.3 and kilometres 0.001


def driver_mdp(network: RoadNetwork, features: str | FeatureChoice = "paper", gamma: float = 1.0) -> MDP:
    """Return the MDP of drivers: a state a segment, an action a turn, p0 uniform over all segments.

    Edge e of the MDP is turn e of the network. A segment without a turn onward is terminal.

    Examples
    --------
    >>> from limiirl.roads import RoadNetwork
    >>> ring = RoadNetwork.from_segments([41.15, 41.16, 41.16], [-8.63, -8.63, -8.62], [0, 1, 2], [1, 2, 0])
    >>> mdp = driver_mdp(ring, "plain")
    >>> mdp.n_states, mdp.n_edges, mdp.n_features
    (3, 3, 4)
    """
    choice = choose(features)
    n = network.n_segments
    # Numbered in the order of the turns, actions keep the MDP's edges in that order.
    return MDP.from_edges(
        network.turn_from,
        network.turn_to,
        n_states=n,
        p0=np.full(n, 1.0 / n),
        gamma=gamma,
        state_features=state_features(network, choice) if set(choice.groups) != {"turns"} else None,
        edge_features=turn_features(network) if choice.turns else None,
        feature_names=choice.names,
    )


def state_features(network: RoadNetwork, features: str | FeatureChoice = "paper") -> sparse.csr_array:
    """Return the features (S, d) of segments, those of turns left out.

    Examples
    --------
    >>> from limiirl.roads import RoadNetwork
    >>> ring = RoadNetwork.from_segments([41.15, 41.16, 41.16], [-8.63, -8.63, -8.62], [0, 1, 2], [1, 2, 0])
    >>> state_features(ring, FeatureChoice(regions=False)).toarray().round(1)[0]
    array([0. , 0. , 0. , 1.1, 0. , 0. , 1.1])
    """
    choice = choose(features)
    if choice.check_units:
        check_units(network)
    members: list[tuple[NDArray[np.int64], int]] = []
    if choice.class_groups:
        members.append((_class_member(network, choice.class_groups), len(choice.class_groups)))
    if choice.speed_groups is not None:
        members.append((_bounded_member(network.speed_kmh, choice.speed_groups), len(choice.speed_groups) + 2))
    if choice.lanes_bounds is not None:
        members.append((_bounded_member(network.lanes, choice.lanes_bounds), len(choice.lanes_bounds) + 2))
    if choice.regions:
        found = regions(network, choice.centre, choice.radius_km, corrected=choice.corrected)
        members.append((found, len(REGIONS)))
    if choice.length:
        members.append((np.zeros(network.n_segments, dtype=np.int64), 1))
    km, n = network.length_m / 1000.0, network.n_segments
    blocks = [sparse.csr_array((km, member, np.arange(n + 1)), shape=(n, size)) for member, size in members]
    if choice.extra:
        blocks.append(sparse.csr_array(_extra(network, choice.extra, check=choice.check_units)))
    if not blocks:
        return sparse.csr_array((n, 0))
    return sparse.csr_array(sparse.hstack(blocks, format="csr"))


def turn_features(network: RoadNetwork) -> Float:
    """Return the features `TURNS` (E, 3) of turns: 1 where a turn is to the left, to the right, or sharp.

    Only where three or more streets meet: where a street bends, nobody turns. Up to 45 degrees is straight on; over
    135 degrees is sharp, whichever the side, and so is a U-turn.

    Examples
    --------
    >>> from limiirl.roads import RoadNetwork
    >>> cross = RoadNetwork.from_segments([0.0, 0.01, 0.01, 0.01], [0.0, 0.0, -0.01, 0.01], [0, 1, 1], [1, 2, 3])
    >>> turn_features(cross)
    array([[1., 0., 0.],
           [0., 1., 0.]])
    """
    pairs = np.concatenate([np.stack([network.tail, network.head], 1), np.stack([network.head, network.tail], 1)])
    streets = np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)
    meeting = np.bincount(streets[:, 0], minlength=network.n_nodes)
    back = network.head[network.turn_to] == network.tail[network.turn_from]
    counts = (meeting[network.head[network.turn_from]] >= 3) | back
    angle = network.turn_angle
    sharp = (np.abs(angle) > _SHARP) | back
    left, right = (angle < -STRAIGHT) & ~sharp, (angle > STRAIGHT) & ~sharp
    return np.stack([left & counts, right & counts, sharp & counts], axis=1).astype(np.float64)


def check_units(network: RoadNetwork) -> None:
    """Raise `InvalidNetwork` where `length_m` cannot be metres.

    The median length must lie between 1 m and 5 km, and be between half and three times the straight line between the
    nodes. Weights scale inversely with the features, so that a wrong unit would pass unnoticed into every result.

    Examples
    --------
    >>> from limiirl.roads import RoadNetwork
    >>> check_units(RoadNetwork.from_segments([0.0, 0.01], [0.0, 0.0], [0], [1]))
    """
    tail, head = network.tail, network.head
    straight = distance_m(network.lat[tail], network.lon[tail], network.lat[head], network.lon[head])
    apart = straight > 0.0
    stretch = float(np.median(network.length_m[apart] / straight[apart])) if apart.any() else 1.0
    median = float(np.median(network.length_m))
    if not (_MEDIAN_M[0] <= median <= _MEDIAN_M[1] and _STRETCH[0] <= stretch <= _STRETCH[1]):
        raise InvalidNetwork(
            f"length_m does not look like metres: the median segment has {median:.4g}, {stretch:.3g} times the "
            "straight line between its nodes in metres. Convert it, or pass FeatureChoice(check_units=False)."
        )


def _bounded_member(values: Float, bounds: Sequence[float]) -> NDArray[np.int64]:
    """Return the group (S,) of each value: bounds belong to the group below them, and NaN to the last."""
    group = np.searchsorted(np.asarray(bounds, dtype=np.float64), values, side="left")
    return np.where(np.isnan(values), len(bounds) + 1, group).astype(np.int64)


def _class_member(network: RoadNetwork, groups: Mapping[str, Sequence[str]]) -> NDArray[np.int64]:
    home = {name: k for k, names in enumerate(groups.values()) for name in names}
    index = np.empty(len(network.class_names), dtype=np.int64)
    used = np.bincount(network.road_class, minlength=index.size)
    for k, name in enumerate(network.class_names):
        place = home.get(name, home.get(name.removesuffix("_link"), home.get(REST, -1)))
        if place < 0 and used[k]:
            raise InvalidParameter(
                f"class_groups has no place for {name!r}, the class of {used[k]} segments. Name it in a group, or put "
                f"{REST!r} into the one that takes the rest."
            )
        index[k] = max(place, 0)
    return index[network.road_class]


def _extra(network: RoadNetwork, extra: Mapping[str, Any], *, check: bool) -> Float:
    columns = []
    for name, values in extra.items():
        column = np.asarray(values, dtype=np.float64)
        if column.shape != (network.n_segments,):
            raise InvalidParameter(f"extra[{name!r}] must have shape ({network.n_segments},); it has {column.shape}.")
        if not np.all(np.isfinite(column)):
            i = int(np.argmin(np.isfinite(column)))
            raise InvalidParameter(
                f"extra[{name!r}][{i}] is {column[i]}; features must be finite. Give a number there."
            )
        longer = np.abs(column) > network.length_m / 1000.0 * (1.0 + 1e-9)
        if check and name.startswith("km") and longer.any():
            i = int(np.argmax(longer))
            raise InvalidParameter(
                f"extra[{name!r}][{i}] is {column[i]:g} km on a segment of {network.length_m[i] / 1000.0:g} km. Is it "
                "in metres? Divide by 1000, or choose a name that does not begin with 'km'."
            )
        columns.append(column)
    return np.stack(columns, axis=1)
