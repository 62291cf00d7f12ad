"""`Matches`: combination, selection, geometry, files."""

from dataclasses import replace

import numpy as np
import pytest

from limiirl.errors import InvalidDemos, InvalidFile, InvalidTrips
from limiirl.roads import Matches, Trips
from limiirl.roads.matching.matches import MatchedPiece, TripMatch
from tests.helpers import raises
from tests.oracles.road_networks import from_xy


def street(n=40):
    return from_xy([(i * 10.0, 0.0) for i in range(n + 1)], range(n), range(1, n + 1))


def one_path(segments, n_fixes=3, confidence=0.9):
    """Return a complete match; fixes are on the first, the middle and the last segment, 4 m from the start."""
    segments = np.asarray(segments)
    at = segments[np.linspace(0, segments.size - 1, n_fixes).astype(int)]
    piece = MatchedPiece(0, n_fixes - 1, segments, confidence)
    return TripMatch((piece,), at, np.full(n_fixes, 4.0), np.full(n_fixes, 1.0))


def trips(lengths, **names):
    return Trips.from_lists([np.full(n, 41.15) for n in lengths], [np.full(n, -8.63) for n in lengths], **names)


def four():
    """Return matches of four trips: complete, cut in two, too short, and with a cycle."""
    cut = TripMatch(
        (MatchedPiece(0, 1, np.arange(12), 0.8), MatchedPiece(3, 4, np.arange(20, 34), 0.7)),
        np.array([0, 11, -1, 20, 33]), np.array([4.0, 4.0, np.nan, 4.0, 4.0]), np.array([1.0, 1.0, np.nan, 1.0, 1.0]),
        ("cut", "off"),
    )  # fmt: skip
    matches = [one_path(np.arange(15)), cut, one_path(np.arange(3)), one_path([*range(10), 9, 8], confidence=0.3)]
    given = trips([3, 5, 3, 3], ids=["a", "b", "c", "d"], groups=[7, 7, 8, 9])
    return Matches.from_trips(given, matches, settings={"method": "hmm"})


def test_pieces_are_combined():
    matches = four()
    assert matches.trip.tolist() == [0, 1, 1, 2, 3]
    assert matches.ids.tolist() == ["a", "b", "b", "c", "d"]
    assert matches.groups.tolist() == [7, 7, 7, 8, 9]
    assert matches.whole.tolist() == [True, False, False, True, True]
    assert matches.span.tolist() == [[0, 2], [3, 4], [6, 7], [8, 10], [11, 13]]
    assert matches.lengths.tolist() == [15, 12, 14, 3, 12]
    assert matches.reasons == {"cut": 1, "off": 1}
    assert matches.n_whole == 3
    assert matches.fix_segment[3:8].tolist() == [0, 11, -1, 20, 33]
    assert "complete   3 trips" in repr(matches)
    assert "1: cut" in repr(matches)


def test_a_piece_of_a_cut_trip_is_not_whole():
    matches = Matches.from_trips(trips([3, 3]), [one_path(range(12))] * 2, whole=np.array([True, False]))
    assert matches.whole.tolist() == [True, False]


def test_demonstrations_are_the_selected_paths():
    demos = four().demonstrations()
    assert [demo.states.tolist() for demo in demos] == [list(range(15)), [*range(10), 9, 8]]
    assert demos.ids.tolist() == ["a", "d"]
    assert demos.groups.tolist() == [7, 9]


@pytest.mark.parametrize(
    ("rules", "ids", "dropped"),
    [
        ({}, ["a", "d"], {"not matched completely": 2, "fewer than 10 segments": 1}),
        ({"whole": False}, ["a", "b", "b", "d"], {"fewer than 10 segments": 1}),
        ({"min_segments": 1}, ["a", "c", "d"], {"not matched completely": 2}),
        (
            {"min_segments": 1, "max_segments": 14},
            ["c", "d"],
            {"not matched completely": 2, "more than 14 segments": 1},
        ),
        (
            {"min_confidence": 0.5, "whole": False, "min_segments": 13},
            ["a", "b"],
            {"fewer than 13 segments": 3},
        ),
        (
            {"min_confidence": 0.75, "whole": False},
            ["a", "b"],
            {"fewer than 10 segments": 1, "confidence below 0.75": 2},
        ),
        (
            {"drop_cycles": True},
            ["a"],
            {"not matched completely": 2, "fewer than 10 segments": 1, "repeated segment": 1},
        ),
    ],
)
def test_rules_of_selection(rules, ids, dropped):
    matches = four()
    chosen, counts = matches.selection(**rules)
    assert matches.ids[chosen].tolist() == ids
    assert counts == dropped
    assert matches.demonstrations(**rules).ids.tolist() == ids


def test_an_empty_selection_is_an_error():
    with raises(InvalidDemos, parameter="matches"):
        four().demonstrations(min_segments=100)


def test_cycles_are_repeated_segments_within_a_piece():
    assert four().cycles().tolist() == [False, False, False, False, True]


def test_lengths_and_geometry():
    network, matches = street(), four()
    np.testing.assert_allclose(matches.lengths_m(network), 10.0 * matches.lengths, rtol=1e-5)
    line = network.plane.xy(*matches.geometry(network, 2).T)
    np.testing.assert_allclose(line[:, 0], np.arange(200.0, 341.0, 10.0), rtol=0.0, atol=1e-6)
    clipped = network.plane.xy(*matches.geometry(network, 2, clip=True).T)
    np.testing.assert_allclose(clipped[:, 0], [204.0, *np.arange(210.0, 331.0, 10.0), 334.0], rtol=0.0, atol=1e-3)


def test_a_line_within_one_segment_is_clipped_at_both_ends():
    match = TripMatch((MatchedPiece(0, 1, np.array([5]), 1.0),), np.array([5, 5]), np.array([2.0, 7.0]), np.zeros(2))
    matches = Matches.from_trips(trips([2]), [match])
    line = street().plane.xy(*matches.geometry(street(), 0, clip=True).T)
    np.testing.assert_allclose(line[:, 0], [52.0, 57.0], rtol=0.0, atol=1e-3)
    back = Matches.from_trips(trips([2]), [match._replace(along_m=np.array([7.0, 2.0]))])
    line = street().plane.xy(*back.geometry(street(), 0, clip=True).T)
    np.testing.assert_allclose(line[:, 0], [52.0, 52.0], rtol=0.0, atol=1e-3)


def test_a_smaller_network_is_rejected():
    with raises(InvalidTrips, parameter="network", value=30):
        four().lengths_m(street(30))


@pytest.mark.parametrize("groups", [None, [1, 2, 3, 4], ["x", "y", "z", "w\0"]])
@pytest.mark.parametrize("ids", [[5, 6, 7, 8], ["a", "b", "c", "ü"]])
def test_save_and_load_round_trip(tmp_path, ids, groups):
    given = trips([3, 3, 3, 3], ids=ids, groups=groups)
    result = Matches.from_trips(given, [one_path(range(12))] * 4, settings={"method": "hmm", "sigma_m": 8.0})
    result.save(tmp_path / "matches.npz")
    again = Matches.load(tmp_path / "matches.npz")
    assert again == result
    assert again.settings == result.settings
    assert again.ids.dtype == result.ids.dtype
    assert Matches.from_trips(given, [one_path(range(11))] * 4) != result


def test_empty_matches_can_be_saved(tmp_path):
    nothing = Matches.from_trips(
        trips([2]), [TripMatch((), np.array([-1, -1]), np.full(2, np.nan), np.full(2, np.nan))]
    )
    nothing.save(tmp_path / "none.npz")
    assert Matches.load(tmp_path / "none.npz") == nothing
    with raises(InvalidDemos, parameter="matches"):
        nothing.demonstrations()


def test_damaged_files_are_reported(tmp_path):
    path = tmp_path / "matches.npz"
    four().save(path)
    path.write_bytes(path.read_bytes()[:200])
    with raises(InvalidFile, parameter="path"):
        Matches.load(path)
    street().save(path)
    with raises(InvalidFile, parameter="path"):
        Matches.load(path)


def test_inconsistent_arrays_are_rejected():
    matches = four()
    parts = {name: getattr(matches, name) for name in matches.__dataclass_fields__}
    for name, value in (
        ("offsets", np.array([0, 15, 27, 41, 44, 55])),
        ("offsets", np.array([0, 15, 15, 41, 44, 56])),
        ("confidence", np.zeros(4)),
        ("fix_along_m", np.zeros(3)),
        ("fix_offsets", np.array([], dtype=np.int64)),
        ("fix_offsets", np.array([0, 5, 3, 8, 14])),
        ("segments", matches.segments - 1),
        ("fix_segment", matches.fix_segment - 1),
        ("trip", matches.trip + 1),
        ("span", matches.span + 1),
        ("fix_offsets", np.array([0, 3])),
    ):
        with raises(InvalidTrips, parameter=name):
            Matches(**(parts | {name: value}))
    with raises(InvalidTrips, parameter="matches", value=2):
        Matches.from_trips(trips([3]), [one_path(range(3))] * 2)


def test_arrays_are_read_only():
    with pytest.raises(ValueError, match="read-only"):
        four().segments[0] = 1


def test_another_network_of_the_same_size_is_rejected():
    network, matches = street(), four()
    marked = replace(matches, settings={"network": network.fingerprint()})
    assert marked.lengths_m(network).size == 5
    with raises(InvalidTrips, parameter="network", value="36f36ca1b36995e8"):
        marked.geometry(network.replace(length_m=network.length_m + 1.0), 0)


def test_negative_indices_count_from_the_end():
    matches = four()
    for i in (-1, -5):
        assert matches.path(i).tolist() == matches.path(5 + i).tolist() != []
        for clip in (False, True):
            line = matches.geometry(street(), i, clip=clip)
            np.testing.assert_array_equal(line, matches.geometry(street(), 5 + i, clip=clip))
    for i in (5, -6):
        with pytest.raises(IndexError, match=f"piece {i} "):
            matches.path(i)
        with pytest.raises(IndexError, match=f"piece {i} "):
            matches.geometry(street(), i)


def test_pieces_of_one_trip_are_not_whole():
    given = trips([3, 3, 3], ids=["a", "a", "b"], groups=[1, 1, 1])
    assert Matches.from_trips(given, [one_path(range(12))] * 3).whole.tolist() == [False, False, True]
    others = trips([3, 3, 3], ids=["a", "a", "b"], groups=[1, 2, 1])
    assert Matches.from_trips(others, [one_path(range(12))] * 3).whole.tolist() == [True, True, True]
