"""`RoadNetwork`: validation, derived properties by hand, files and fingerprints."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limiirl import roads
from limiirl.errors import InvalidFile, InvalidNetwork
from limiirl.roads import RoadNetwork
from limiirl.roads.geometry import distance_m
from tests.helpers import raises

# A block: nodes 0 (south-west), 1 (north-west), 2 (north-east), 3 (south-east); two-way except 2 - 3.
LAT, LON = [41.0, 41.01, 41.01, 41.0], [-8.01, -8.01, -8.0, -8.0]
TAIL, HEAD = [0, 1, 1, 2, 2, 3, 0], [1, 0, 2, 1, 3, 0, 3]
TURNS_WITHOUT_U_TURNS = [(0, 2), (1, 6), (2, 4), (3, 1), (4, 5), (5, 0)]


def block(**known: Any) -> RoadNetwork:
    return RoadNetwork.from_segments(LAT, LON, TAIL, HEAD, **known)


def pairs(network: RoadNetwork) -> list[tuple[int, int]]:
    return list(zip(network.turn_from.tolist(), network.turn_to.tolist(), strict=True))


def test_turns_join_segments_without_u_turns_by_default():
    assert pairs(block()) == TURNS_WITHOUT_U_TURNS
    back = [(0, 1), (1, 0), (2, 3), (3, 2), (5, 6), (6, 5)]
    assert pairs(block(u_turns=True)) == sorted(TURNS_WITHOUT_U_TURNS + back)


def test_given_turns_are_sorted_and_unique():
    assert pairs(block(turns=[(5, 0), (0, 2), (5, 0)])) == [(0, 2), (5, 0)]
    assert block(turns=[]).n_turns == 0
    assert block(turns=np.empty((0, 2))).n_turns == 0


def test_defaults_are_unknown_and_lengths_are_measured():
    network = block()
    assert np.isnan(network.lanes).all()
    assert np.isnan(network.speed_kmh).all()
    assert network.class_names == ("road",)
    assert network.way_id.tolist() == [-1] * 7
    lat, lon = np.array(LAT), np.array(LON)
    np.testing.assert_allclose(network.length_m, distance_m(lat[TAIL], lon[TAIL], lat[HEAD], lon[HEAD]), rtol=1e-12)
    np.testing.assert_allclose(network.centre, (41.005, -8.005), rtol=1e-12)
    assert (network.n_nodes, network.n_segments, network.n_turns) == (4, 7, 6)
    assert repr(network).startswith("RoadNetwork: 7 directed segments of ")


def test_derived_properties():
    network = block()
    assert network.out_ptr.tolist() == [0, 1, 2, 3, 4, 5, 6, 6]
    assert network.opposite.tolist() == [1, 0, 3, 2, -1, 6, 5]
    np.testing.assert_allclose(network.bearing, [0, 180, 90, 270, 180, 270, 90], atol=1e-9)
    np.testing.assert_allclose(network.turn_angle, [90, -90, 90, -90, 90, 90], atol=1e-9)
    np.testing.assert_allclose(block(u_turns=True).turn_angle[1], 90.0, atol=1e-9)
    np.testing.assert_allclose(np.abs(block(u_turns=True).turn_angle[0]), 180.0, atol=1e-9)
    np.testing.assert_allclose(network.node_xy.mean(axis=0), 0.0, atol=1e-6)
    np.testing.assert_allclose(network.node_xy[1] - network.node_xy[0], [0.0, 1110.6], atol=0.1)


def test_durations_use_limits_but_are_not_features():
    speed = [100.0, 80.0, 30.0, np.nan, np.nan, np.nan, 120.0]
    network = block(speed_kmh=speed, road_class=[0, 0, 1, 1, 0, 2, 0], class_names=("motorway", "road", "track"))
    used = np.array([100.0, 80.0, 30.0, 30.0, 100.0, 50.0, 120.0])
    np.testing.assert_allclose(network.duration_s, network.length_m / used * 3.6, rtol=1e-12)
    np.testing.assert_array_equal(network.speed_kmh, speed)
    unknown = network.mdp().feature_names.index("km at unknown speed")
    assert np.flatnonzero(network.mdp().state_features.toarray()[:, unknown]).tolist() == [3, 4, 5]


def test_arrays_are_read_only():
    given = np.array(LAT)
    network = RoadNetwork.from_segments(given, LON, TAIL, HEAD)
    for array in (network.lat, network.tail, network.length_m, network.turn_from, network.out_ptr, network.bearing):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    given[0] = 0.0
    assert network.lat[0] == 41.0


INVALID: list[tuple[dict[str, Any], str, int | None]] = [
    ({"lat": [41.0, 91.0, 41.0, 41.0]}, "lat", 1),
    ({"lat": [41.0, np.nan, 41.0, 41.0]}, "lat", 1),
    ({"lat": np.reshape(LAT, (2, 2))}, "lat", None),
    ({"lat": np.reshape(LAT, (2, 2)), "lon": np.reshape(LON, (2, 2))}, "lat", None),
    ({"lon": [-8.0, -8.0, 181.0, -8.0]}, "lon", 2),
    ({"lon": [-8.0]}, "lon", None),
    ({"node_id": [1, 2]}, "node_id", None),
    ({"tail": [0, 1, 1, 2, 2, 3, 4]}, "tail", 6),
    ({"head": [-1, 0, 2, 1, 3, 0, 3]}, "head", 0),
    ({"head": [1.0, 0, 2, 1, 3, 0, 3]}, "head", None),
    ({"head": [1, 0]}, "head", None),
    ({"tail": np.empty(0, dtype=int)}, "tail", None),
    ({"length_m": [1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0]}, "length_m", 2),
    ({"length_m": np.full(7, np.nan)}, "length_m", 0),
    ({"lanes": [-1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]}, "lanes", 0),
    ({"speed_kmh": np.full(7, np.inf)}, "speed_kmh", 0),
    ({"road_class": np.ones(7, dtype=int)}, "road_class", 0),
    ({"turn_from": [0], "turn_to": [4]}, "turns", 0),
    ({"turn_from": [0, 0], "turn_to": [2]}, "turn_to", None),
    ({"turn_from": [1, 0], "turn_to": [6, 2]}, "turns", 1),
    ({"turn_from": [0, 0], "turn_to": [2, 2]}, "turns", 1),
    ({"turn_from": [7], "turn_to": [0]}, "turn_from", 0),
    ({"centre": (-100.0, 41.0)}, "centre", 0),
    ({"centre": (41.0, 200.0)}, "centre", 1),
    ({"centre": (41.0, float("nan"))}, "centre", 1),
]


@pytest.mark.parametrize(("changes", "parameter", "index"), INVALID)
def test_every_rule_is_checked(changes: dict[str, Any], parameter: str, index: int | None):
    with raises(InvalidNetwork, parameter=parameter, index=index):
        block().replace(**changes)


def test_building_from_arrays_is_checked():
    with raises(InvalidNetwork, parameter="head", value=(1,)):
        RoadNetwork.from_segments(LAT, LON, [0, 1], [1])
    with raises(InvalidNetwork, parameter="turns", value=(1, 2)):
        block(turns=[(0.5, 2.0)])
    with raises(InvalidNetwork, parameter="turns", value=(3,)):
        block(turns=[0, 2, 4])


def test_files_and_fingerprints(tmp_path: Path):
    network = block(lanes=[1, 2, 3, 4, 5, 6, np.nan], attribution="me", notes={"how": ["by hand", 1]})
    network.save(tmp_path / "block.npz")
    loaded = RoadNetwork.load(tmp_path / "block.npz")
    assert loaded == network
    assert hash(loaded) == hash(network)
    assert (loaded.notes, loaded.attribution) == ({"how": ["by hand", 1]}, "me")
    assert loaded.lanes.tolist()[:6] == [1, 2, 3, 4, 5, 6]
    assert loaded.tail.dtype == np.int32
    assert len(network.fingerprint()) == 16


@pytest.mark.parametrize(
    "changes", [{"lanes": np.ones(7)}, {"class_names": ("street",)}, {"centre": (41.0, -8.0)}, {"turn_to": None}]
)
def test_fingerprints_distinguish_contents(changes: dict[str, Any]):
    network = block()
    if "turn_to" in changes:
        changes = {"turn_from": network.turn_from[1:], "turn_to": network.turn_to[1:]}
    assert network.replace(**changes) != network
    assert network.replace(notes={"other": 1}, attribution="you") == network
    assert network != "a network"


def test_corrupted_files(tmp_path: Path):
    path = tmp_path / "block.npz"
    block().save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with raises(InvalidFile, parameter="path"):
        RoadNetwork.load(path)
    from limiirl._io import read_archive, write_archive
    from limiirl.roads.network import FORMAT

    block().save(path)
    header, arrays = read_archive(path, FORMAT)
    words = {name: value for name, value in header.items() if name not in ("format", "version")}
    arrays["tail"] = arrays["tail"] + 10
    write_archive(path, FORMAT, words, arrays)
    with raises(InvalidFile, parameter="path"):
        RoadNetwork.load(path)
    write_archive(path, FORMAT, words, {"tail": arrays["tail"]})
    with raises(InvalidFile, parameter="path"):
        RoadNetwork.load(path)


def test_facts_by_hand():
    network = block(
        lanes=[1, 1, np.nan, np.nan, 2, 1, 1], road_class=[0, 0, 0, 0, 1, 0, 0], class_names=("road", "ramp", "unused")
    )
    facts = roads.summarize(network)
    km = network.length_m / 1000.0
    assert (facts["segments"], facts["turns"], facts["nodes"]) == (7, 6, 4)
    assert facts["km_by_class"] == {"road": round(km.sum() - km[4], 3), "ramp": round(km[4], 3)}
    assert facts["lanes"]["km"] == {"1": round(km[[0, 1, 5, 6]].sum(), 3), "2": round(km[4], 3)}
    np.testing.assert_allclose(facts["lanes"]["known_share"], 1.0 - km[[2, 3]].sum() / km.sum(), atol=1e-6)
    np.testing.assert_allclose(facts["one_way_share"], km[4] / km.sum(), atol=1e-6)
    assert facts["bounds"] == [41.0, -8.01, 41.01, -8.0]
    assert facts["turns_out"] == {"0": 1, "1": 6}
    assert facts["dead_ends"] == 1
    assert facts["segment_m"]["0.5"] == round(float(np.median(network.length_m)), 3)
    assert facts["dropped"] == {}


@pytest.mark.parametrize("lon", [[-8.63], [[-8.63, -8.62]], []])
def test_invalid_nodes_are_rejected_first(lon: Any):
    with raises(InvalidNetwork, parameter="lon", value=np.shape(lon)):
        RoadNetwork.from_segments([41.15, 41.16], lon, [0], [1])
    with raises(InvalidNetwork, parameter="lat", value=(1, 2)):
        RoadNetwork.from_segments([[41.15, 41.16]], [lon], [0], [1])
