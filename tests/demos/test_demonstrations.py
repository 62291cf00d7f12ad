"""Demonstrations: construction, validation, indexing, concatenation, equality and copies."""

import copy
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limiirl.demos import Demonstration, Demonstrations
from limiirl.errors import InvalidDemos, InvalidParameter
from tests.helpers import examples, raises

STATES = [[0, 1, 2], [3], [1, 1], [4, 0, 2, 0]]
ACTIONS = [[5, 6], [], [0], [1, 0, 2]]


def as_lists(demos):
    return [(d.states.tolist(), d.actions.tolist(), d.group, d.label, d.id) for d in demos]


@st.composite
def list_demos(draw, min_size=0):
    """Lists of (states, actions, group, label, id), some actions unrecorded, and the Demonstrations made of them."""
    n = draw(st.integers(min_size, 8))
    items = []
    for i in range(n):
        states = draw(st.lists(st.integers(0, 9), min_size=1, max_size=5))
        actions = draw(st.lists(st.integers(-1, 3), min_size=len(states) - 1, max_size=len(states) - 1))
        group = draw(st.sampled_from(["ann", "bob", "cecily"]))
        items.append((states, actions, group, draw(st.integers(0, 2)), 10 * i))
    states, actions, groups, labels, ids = ([item[k] for item in items] for k in range(5))
    demos = Demonstrations.from_lists(states, actions, groups=np.array(groups, dtype=str), labels=labels)
    return items, demos.replace(ids=np.array(ids, dtype=np.int64), labels=np.array(labels, dtype=np.int64))


def test_from_lists_flattens_with_offsets_and_marks_last_actions():
    demos = Demonstrations.from_lists(STATES, ACTIONS)
    np.testing.assert_array_equal(demos.states, [0, 1, 2, 3, 1, 1, 4, 0, 2, 0])
    np.testing.assert_array_equal(demos.actions, [5, 6, -1, -1, 0, -1, 1, 0, 2, -1])
    np.testing.assert_array_equal(demos.offsets, [0, 3, 4, 6, 10])
    assert demos.states.dtype == demos.actions.dtype == demos.offsets.dtype == np.int64
    assert (len(demos), demos.n_steps, demos.n_transitions) == (4, 10, 6)
    np.testing.assert_array_equal(demos.lengths, [3, 1, 2, 4])
    np.testing.assert_array_equal(demos.start_states, [0, 3, 1, 4])
    np.testing.assert_array_equal(demos.last_states, [2, 3, 1, 0])


def test_from_lists_accepts_arrays_tuples_and_integral_floats():
    expected = Demonstrations.from_lists(STATES, ACTIONS)
    arrays = [np.array(x) for x in STATES]
    assert Demonstrations.from_lists(arrays, [np.array(x) for x in ACTIONS]) == expected
    assert Demonstrations.from_lists([tuple(x) for x in STATES], ACTIONS) == expected
    assert Demonstrations.from_lists([[float(s) for s in x] for x in STATES], ACTIONS) == expected
    assert Demonstrations.from_lists([arrays[0], *STATES[1:]], ACTIONS) == expected
    assert Demonstrations.from_lists((x for x in STATES), (x for x in ACTIONS)) == expected
    assert Demonstrations.from_lists(np.array([[0, 1], [2, 3]])) == Demonstrations.from_lists([[0, 1], [2, 3]])


def test_actions_may_be_missing_altogether_for_a_demonstration_or_for_a_step():
    demos = Demonstrations.from_lists(STATES, [[5, -1], None, [0], None])
    np.testing.assert_array_equal(demos.actions, [5, -1, -1, -1, 0, -1, -1, -1, -1, -1])
    assert Demonstrations.from_lists(STATES, [None] * 4).actions is None
    assert Demonstrations.from_lists(STATES, [None] * 4) == Demonstrations.from_lists(STATES)


def test_read_only_views_of_writeable_arrays_are_copied():
    states, offsets = np.array([0, 1, 2]), np.array([0, 3])
    view = states.view()
    view.flags.writeable = False
    demos = Demonstrations(view, offsets)
    states[0] = 2
    assert demos.states.tolist() == [0, 1, 2]
    assert Demonstrations(demos.states, demos.offsets).states is demos.states  # read-only memory is shared


def test_arrays_are_read_only_and_do_not_share_memory_with_the_input():
    states, groups = np.array([0, 1, 2]), np.array(["a", "b"])
    demos = Demonstrations(states, np.array([0, 2, 3]), groups=groups)
    states[0], groups[0] = 9, "z"
    assert demos.states[0] == 0
    assert demos.groups[0] == "a"
    assert states.flags.writeable
    for array in (demos.states, demos.offsets, demos.groups, demos[0].states):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    with pytest.raises(AttributeError, match="cannot assign"):
        demos.states = states


def test_empty_list_gives_an_empty_set():
    empty = Demonstrations.from_lists([])
    assert len(empty) == empty.n_steps == 0
    assert empty == Demonstrations.concat([]) == Demonstrations.from_lists(STATES)[:0]
    assert list(empty) == []
    assert repr(empty) == "Demonstrations: 0 demonstrations, 0 steps"


@pytest.mark.parametrize(
    ("states", "actions", "expected"),
    [
        ([[0], [], [1]], None, {"parameter": "states", "value": 0, "index": 1}),
        ([[0], [1, -2]], None, {"parameter": "states", "value": -2, "index": (1, 1)}),
        ([[0, 1], [2, 0.5]], None, {"parameter": "states", "value": 0.5, "index": (1, 1)}),
        ([[0, 1], [2, float("nan")]], None, {"parameter": "states", "index": (1, 1)}),
        ([[0, 1], [2, float("inf")]], None, {"parameter": "states", "index": (1, 1)}),
        ([[0, 1], [2, None]], None, {"parameter": "states", "index": (1, 1)}),
        ([[0, 1], [2, "home"]], None, {"parameter": "states", "value": "home", "index": (1, 1)}),
        ([[True, False]], None, {"parameter": "states", "value": True, "index": (0, 0)}),
        (
            [np.array([0, 2**63], dtype=np.uint64)],
            None,
            {"parameter": "states", "value": 9223372036854775808, "index": (0, 1)},
        ),
        ([[0, 2**70]], None, {"parameter": "states", "value": 1180591620717411303424, "index": (0, 1)}),
        ([0, 1, 2], None, {"parameter": "states", "value": 0, "index": 0}),
        ([[0], np.array(3)], None, {"parameter": "states", "index": 1}),
        ([np.zeros((2, 2), dtype=int)], None, {"parameter": "states", "value": (2, 2)}),
        ([[0, [1, 2]]], None, {"parameter": "states"}),
        ([[0, 1], [1, 2, 3]], [[0], [0]], {"parameter": "actions", "value": 1, "index": 1}),
        (
            [[0, 1], [1, 2]],
            [[0], [0, 1]],
            {"parameter": "actions", "value": 2, "index": 1},
        ),
        ([[0, 1], [1, 2]], [[0]], {"parameter": "actions", "value": 1}),
        ([[0, 1], [1]], [[0], 3], {"parameter": "actions", "value": 3, "index": 1}),
        ([[0, 1], [3, 1, 2]], [[0], [0, -2]], {"parameter": "actions", "value": -2, "index": (1, 1)}),
        ([[0, 1], [3, 1, 2]], [[0], [0, 1.5]], {"parameter": "actions", "value": 1.5, "index": (1, 1)}),
        ([[0, 1], [3, 1, 2]], [[0], [0, None]], {"parameter": "actions", "index": (1, 1)}),
    ],
)
def test_invalid_lists_have_the_index(states, actions, expected):
    with raises(InvalidDemos, **expected):
        Demonstrations.from_lists(states, actions)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"labels": [0, 1, 2]},
            {"parameter": "labels", "value": (3,)},
        ),
        ({"groups": ["a"]}, {"parameter": "groups", "value": (1,)}),
        ({"labels": [0.0, 1.0, np.nan, 0.0]}, {"parameter": "labels", "index": 2}),
        ({"groups": ["a", None, "b", "b"]}, {"parameter": "groups", "index": 1}),
        ({"groups": ["a", "b", "b", float("nan")]}, {"parameter": "groups", "index": 3}),
        ({"groups": np.array(["a", "b", 3, "c"], dtype=object)}, {"parameter": "groups", "value": 3, "index": 2}),
        ({"labels": np.zeros(4, dtype="datetime64[s]")}, {"parameter": "labels"}),
        (
            {"labels": np.array([0, 1, 2, 2**63], dtype=np.uint64)},
            {"parameter": "labels", "value": 9223372036854775808, "index": 3},
        ),
        ({"offsets": [0, 3, 2, 6, 10]}, {"parameter": "offsets", "value": 2, "index": 2}),
        ({"offsets": [0, 3, 4, 6]}, {"parameter": "offsets", "value": (0, 6)}),
        ({"offsets": [0.0, 10.0]}, {"parameter": "offsets", "value": (2,)}),
        ({"label": [0, 1, 2, 3]}, {"parameter": "label"}),
        ({"actions": [0, 1, 2]}, {"parameter": "actions", "value": 3}),
        (
            {"actions": [0, 0, -1, -1, 0, 7, 0, 0, 0, -1]},
            {"parameter": "actions", "value": 7, "index": (2, 1)},
        ),
    ],
)
def test_invalid_fields_have_the_index(changes, expected):
    demos = Demonstrations.from_lists(STATES)
    with raises(InvalidDemos, **expected):
        demos.replace(**changes)


def test_errors_show_the_id_of_a_demonstration():
    with raises(InvalidDemos, parameter="states", value=-1, index=(1, 0)):
        Demonstrations(np.array([0, -1]), np.array([0, 1, 2]), ids=np.array(["trip-a", "trip-b"]))
    with raises(InvalidDemos, parameter="states", value=-1, index=(1, 0)):
        Demonstrations(np.array([0, -1]), np.array([0, 1, 2]), ids=np.array([0, 1]))


@pytest.mark.parametrize(
    ("values", "kind"), [(["a", "bcd", "", "é"], "U"), ([3, 1, 2, 0], "i"), ([0.5, 1, 2, 3], "f"), ([True] * 4, "b")]
)
@pytest.mark.parametrize("container", [list, np.array, lambda x: np.array(x, dtype=object), pd.Series])
def test_groups_and_labels_of_each_type_keep_their_values(values, kind, container):
    demos = Demonstrations.from_lists(STATES, groups=container(values), labels=container(values))
    assert demos.groups.dtype.kind == demos.labels.dtype.kind == kind
    assert demos.groups.tolist() == demos.labels.tolist() == values


def test_repr_summarises():
    demos = Demonstrations.from_lists(
        STATES, [[5, 6], None, [0], None], groups=["a", "a", "b", "c"], labels=[0, 1, 1, 1]
    )
    assert repr(demos) == (
        "Demonstrations: 4 demonstrations, 10 steps\n"
        "  lengths   1 to 4, median 2.5\n"
        "  states    5 distinct, 0 to 4\n"
        "  actions   3 of 6 recorded, 3 distinct\n"
        "  groups    3 distinct\n"
        "  labels    2 distinct"
    )
    assert "actions   not recorded" in repr(Demonstrations.from_lists(STATES))
    assert "states    2 distinct, 5 to 1000000000000" in repr(Demonstrations.from_lists([[5, 10**12, 5]]))


def test_one_demonstration():
    demos = Demonstrations.from_lists(STATES, ACTIONS, groups=list("abcd"), labels=[7, 8, 9, 10])
    demo = demos[3]
    assert isinstance(demo, Demonstration)
    assert as_lists([demo]) == [([4, 0, 2, 0], [1, 0, 2], "d", 10, None)]
    assert len(demo) == 4
    assert type(demo.group) is str
    assert type(demo.label) is int
    assert demos[-1] == demo == demos[np.int64(3)]
    assert demos[2] != demo
    assert hash(demos[-1]) == hash(demo)
    assert Demonstrations.from_lists(STATES)[1].actions.tolist() == []
    assert Demonstrations.from_lists(STATES)[0].actions.tolist() == [-1, -1]
    assert demo != demos.replace(labels=[7, 8, 9, 0])[3]
    assert demo != Demonstrations.from_lists(STATES, groups=list("abcd"), labels=[7, 8, 9, 10])[3]


@settings(deadline=None, max_examples=examples(200))
@given(list_demos(), st.data())
def test_indexing_equals_list_indexing(case, data):
    items, demos = case
    assert as_lists(demos) == items
    some = data.draw(st.slices(len(items)))
    assert as_lists(demos[some]) == items[some]
    mask = data.draw(st.lists(st.booleans(), min_size=len(items), max_size=len(items)))
    assert as_lists(demos[np.array(mask, dtype=bool)]) == [x for x, keep in zip(items, mask, strict=True) if keep]
    if items:
        index = data.draw(st.lists(st.integers(-len(items), len(items) - 1), max_size=10))
        assert as_lists(demos[index]) == [items[i] for i in index]
        assert as_lists(demos.subset(np.array(index, dtype=np.int16))) == [items[i] for i in index]


@settings(deadline=None, max_examples=examples(200))
@given(st.lists(list_demos(), min_size=1, max_size=4))
def test_concatenation_equals_list_concatenation(cases):
    joined = Demonstrations.concat([demos for _, demos in cases])
    assert as_lists(joined) == [item for items, _ in cases for item in items]
    total = cases[0][1]
    for _, demos in cases[1:]:
        total = total + demos
    assert total == joined


@settings(deadline=None, max_examples=examples(200))
@given(list_demos(min_size=1), st.data())
def test_splitting_and_concatenating_is_the_identity(case, data):
    _, demos = case
    cut = data.draw(st.integers(0, len(demos)))
    assert demos[:cut] + demos[cut:] == demos
    assert Demonstrations.concat([demos[i : i + 1] for i in range(len(demos))]) == demos
    states, actions = [d.states for d in demos], [d.actions for d in demos]
    again = Demonstrations.from_lists(states, actions, groups=[d.group for d in demos], labels=[d.label for d in demos])
    assert again.replace(ids=demos.ids) == demos


def test_invalid_selections_are_rejected():
    demos = Demonstrations.from_lists(STATES)
    for index in (4, -5, [0, 4], np.array([-5])):
        with pytest.raises(IndexError, match=r"index (4|-5)"):
            demos[index]
    with raises(InvalidParameter, parameter="index", value=2):
        demos[np.array([True, False])]
    with raises(InvalidParameter, parameter="index"):
        demos[[0.0, 1.0]]
    with raises(InvalidParameter, parameter="index", value=(1, 2)):
        demos[np.array([[0, 1]])]


def test_concatenation_requires_the_same_attributes():
    plain = Demonstrations.from_lists(STATES)
    with raises(InvalidDemos, parameter="groups", index=1):
        _ = plain.replace(groups=list("abcd")) + plain
    with raises(InvalidDemos, parameter="ids", index=0):
        Demonstrations.concat([plain, plain, plain.replace(ids=list("abcd"))])
    with raises(InvalidDemos, parameter="labels", index=1):
        _ = plain.replace(labels=[0, 1, 2, 3]) + plain.replace(labels=list("abcd"))
    with pytest.raises(TypeError, match="unsupported operand"):
        _ = plain + STATES


def test_concatenation_keeps_recorded_and_unrecorded_actions():
    mixed = Demonstrations.from_lists([[0, 1]], [[3]]) + Demonstrations.from_lists([[1, 2, 3]])
    np.testing.assert_array_equal(mixed.actions, [3, -1, -1, -1, -1])
    assert mixed[1:].actions is None


@pytest.mark.parametrize(
    "changes",
    [
        {"states": [0, 1, 2, 3, 1, 1, 4, 0, 2, 1]},
        {"offsets": [0, 2, 4, 6, 10], "actions": None},
        {"actions": None},
        {"groups": list("abce")},
        {"groups": None},
        {"labels": [0, 1, 2, 4]},
        {"labels": [0.0, 1.0, 2.0, 3.0]},
        {"ids": ["w", "x", "y", "zz"]},
    ],
)
def test_equality_compares_every_field(changes):
    demos = Demonstrations.from_lists(STATES, ACTIONS, groups=list("abcd"), labels=[0, 1, 2, 3]).replace(
        ids=list("wxyz")
    )
    twin = Demonstrations.from_lists(STATES, ACTIONS, groups=list("abcd"), labels=[0, 1, 2, 3]).replace(
        ids=list("wxyz")
    )
    assert demos == twin
    assert hash(demos) == hash(twin)
    base = demos.replace(actions=None) if "offsets" in changes else demos
    assert base != base.replace(**changes)
    assert demos != STATES


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_are_equal_and_frozen(duplicate):
    demos = Demonstrations.from_lists(STATES, ACTIONS, groups=list("abcd"), labels=[0, 1, 2, 3])
    twin = duplicate(demos)
    assert twin == demos
    assert not twin.states.flags.writeable
    assert not twin.actions.flags.writeable


FRAME = pd.DataFrame(
    {
        "demo": ["b", "b", "b", "a", "c", "c"],
        "t": [0, 1, 2, 0, 3, 9],
        "state": [0, 1, 2, 3, 1, 1],
        "action": [5, 6, None, None, 0, None],
        "group": ["x", "x", "x", "y", "x", "x"],
        "label": [1, 1, 1, 0, 2, 2],
    }
)


@pytest.mark.parametrize(
    "convert", [lambda df: df, pl.from_pandas, pa.Table.from_pandas], ids=["pandas", "polars", "arrow"]
)
@pytest.mark.parametrize("seed", range(3))
def test_from_frame_accepts_rows_in_any_order(convert, seed):
    shuffled = FRAME.sample(frac=1, random_state=seed, ignore_index=True)
    demos = Demonstrations.from_frame(convert(shuffled))
    expected = Demonstrations.from_lists(
        [[3], [0, 1, 2], [1, 1]], [[], [5, 6], [0]], groups=["y", "x", "x"], labels=[0, 1, 2]
    ).replace(ids=["a", "b", "c"])
    assert demos.replace(times=None) == expected
    without = Demonstrations.from_frame(convert(shuffled[["demo", "t", "state"]]))
    assert without.replace(times=None) == expected.replace(actions=None, groups=None, labels=None)


def test_from_frame_rejects_a_frame_without_states():
    with raises(InvalidDemos, parameter="df", value="state"):
        Demonstrations.from_frame(FRAME.drop(columns="state"))
    with raises(InvalidDemos, parameter="state", index=2):
        Demonstrations.from_frame(FRAME.assign(state=[0, 1, None, 3, 1, 1]))


MASKED = np.ma.array([1, 2], mask=[False, True])


@pytest.mark.parametrize(
    ("states", "value", "index"),
    [
        (None, None, None),
        (3, 3, None),
        ("01", "01", None),
        ([[1, True]], True, (0, 1)),
        ([np.array([1, -1], dtype=object)], -1, (0, 1)),
    ],
)
def test_states_that_are_no_lists_of_integers_are_rejected(states, value, index):
    with raises(InvalidDemos, parameter="states", value=value, index=index):
        Demonstrations.from_lists(states)


def test_masked_entries_are_rejected():
    with raises(InvalidDemos, parameter="states", index=1):
        Demonstrations.from_lists([[0, 1], MASKED])
    with raises(InvalidDemos, parameter="states"):
        Demonstrations(MASKED, [0, 2])
    for name in ("groups", "labels"):
        with raises(InvalidDemos, parameter=name):
            Demonstrations.from_lists([[0], [1]], **{name: MASKED})
    assert Demonstrations.from_lists([np.ma.array([0, 1])]).states.tolist() == [0, 1]


def test_names_that_numpy_would_shorten_are_rejected():
    with raises(InvalidDemos, parameter="groups", value="b\0", index=1):
        Demonstrations.from_lists([[0], [1]], groups=["a", "b\0"])


def test_pieces_have_every_transition_once():
    rng = np.random.default_rng(0)
    states = [rng.integers(9, size=n).tolist() for n in (1, 2, 7, 8, 23)]
    actions = [rng.integers(5, size=len(x) - 1).tolist() for x in states]
    demos = Demonstrations.from_lists(states, actions, groups=list("aabbc"), labels=range(5)).replace(ids=list("vwxyz"))
    pieces = demos.cut(7)
    assert pieces.lengths.max() <= 8
    assert [len(pieces[pieces.ids == name]) for name in "vwxyz"] == [1, 1, 1, 1, 4]
    assert np.ptp(pieces[pieces.ids == "z"].lengths) <= 1
    for name, recording in zip("vwxyz", demos, strict=True):
        mine = pieces[pieces.ids == name]
        moves = [step for piece in mine for step in zip(piece.states, piece.actions, piece.states[1:], strict=False)]
        assert moves == list(zip(recording.states, recording.actions, recording.states[1:], strict=False))
        assert set(mine.groups) == {recording.group}
        assert set(mine.labels) == {recording.label}
        starts = mine.times[mine.offsets[:-1]]
        np.testing.assert_array_equal(mine.states[mine.offsets[:-1]], recording.states[starts])


def test_pieces_of_recordings_without_groups_are_groups():
    demos = Demonstrations.from_lists([[0, 1, 2], [3]])
    assert demos.cut(1).groups.tolist() == [0, 0, 1]
    assert demos.replace(ids=["x", "y"]).cut(1).groups.tolist() == ["x", "x", "y"]
    assert Demonstrations.from_lists([["a", "b", "c"]]).cut(1).state_names == ("a", "b", "c")
    with raises(InvalidParameter, parameter="max_steps", value=0):
        demos.cut(0)


def test_times_are_kept(tmp_path):
    demos = Demonstrations.from_lists([[0, 1, 2], [3]]).replace(times=np.array([5.0, 6.5, 9.0, 2.0]), ids=["x", "y"])
    assert demos[[1, 0]].times.tolist() == [2.0, 5.0, 6.5, 9.0]
    assert demos.cut(1).times.tolist() == [5.0, 6.5, 6.5, 9.0, 2.0]
    plain = Demonstrations.from_lists([[4, 5]]).replace(ids=["z"])
    assert (demos + plain).times.tolist() == [5.0, 6.5, 9.0, 2.0, 0.0, 1.0]
    dates = demos.replace(times=np.array(["2024-01-01"] * 4, dtype="M8[s]"))
    for each in (demos, dates):
        each.to_parquet(tmp_path / "d.parquet")
        assert Demonstrations.from_parquet(tmp_path / "d.parquet") == each
    with raises(InvalidDemos, parameter="times", value=(2,)):
        demos.replace(times=[1, 2])
    with raises(InvalidDemos, parameter="times"):
        dates + demos
