"""Tables of demonstrations in pandas, polars and pyarrow, and estimated dynamics against counts by hand and by loop."""

import datetime as dt
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from limiirl.errors import InvalidDemos, InvalidParameter
from limiirl.mdp import MDP
from limiirl.mdp.estimation import read_frame
from tests.helpers import raises

# Two demonstrations, rows out of order; sorted: demo 3 = states 5, 6, 7 and demo 9 = states 1, 2.
ROWS = {
    "demo": [9, 3, 3, 9, 3],
    "t": [1, 2, 0, 0, 1],
    "state": [2, 7, 5, 1, 6],
    "action": [None, None, 4, 8, 0],
    "group": ["mouse", "rat", "rat", "mouse", "rat"],
    "label": [1, 0, 0, 1, 0],
    "speed": [0.1, 0.2, 0.3, 0.4, 0.5],
}
MAKERS = {
    "pandas": pd.DataFrame,
    "pandas nullable": lambda rows: pd.DataFrame(rows).convert_dtypes(),
    "pandas arrow": lambda rows: pd.DataFrame(rows).convert_dtypes(dtype_backend="pyarrow"),
    "polars": pl.DataFrame,
    "pyarrow": pa.table,
    "mapping": dict,
}


@pytest.mark.parametrize("maker", MAKERS)
def test_all_kinds_of_tables_give_the_same_result(maker):
    runs = read_frame(MAKERS[maker](ROWS))
    np.testing.assert_array_equal(runs.states, [5, 6, 7, 1, 2])
    np.testing.assert_array_equal(runs.actions, [4, 0, -1, 8, -1])
    np.testing.assert_array_equal(runs.offsets, [0, 3, 5])
    np.testing.assert_array_equal(runs.ids, [3, 9])
    np.testing.assert_array_equal(runs.groups, ["rat", "mouse"])
    np.testing.assert_array_equal(runs.labels, [0, 1])
    assert (runs.states.dtype, runs.actions.dtype, runs.offsets.dtype) == (np.int32, np.int32, np.int64)
    assert runs.ids.dtype.kind == runs.labels.dtype.kind == "i"
    assert runs.groups.dtype.kind == "U"


@pytest.mark.parametrize("maker", MAKERS)
def test_optional_columns_may_be_missing(maker):
    runs = read_frame(MAKERS[maker]({name: ROWS[name] for name in ("demo", "t", "state")}))
    assert runs.actions is None
    assert runs.groups is None
    assert runs.labels is None


@pytest.mark.parametrize("maker", MAKERS)
def test_last_actions_are_ignored(maker):
    # The outcome of a last action was not seen, so that nothing can be learnt from it.
    runs = read_frame(MAKERS[maker](ROWS | {"action": [3, 3, 4, 8, 0]}))
    np.testing.assert_array_equal(runs.actions, [4, 0, -1, 8, -1])


@pytest.mark.parametrize("empty", [None, float("nan"), -1])
def test_last_actions_may_be_missing_in_any_form(empty):
    runs = read_frame(pd.DataFrame(ROWS | {"action": [empty, empty, 4, 8, 0]}))
    np.testing.assert_array_equal(runs.actions, [4, 0, -1, 8, -1])


DAY = dt.date(2024, 2, 28)


@pytest.mark.parametrize(
    "times",
    [
        [0.5, 2e9, -7.0, 0.25, 1.5],
        [DAY + dt.timedelta(days=n) for n in (1, 2, 0, 0, 1)],
        [dt.datetime(2024, 1, 1, n, tzinfo=dt.UTC) for n in (1, 2, 0, 0, 1)],
        [dt.timedelta(hours=n) for n in (9, 30, 1, 2, 10)],
        ["9", "10", "-1", "8.5", "9.5"],
        ["2024-02-28", "2024-02-29 00:01", "2024-02-27", "0999-12-31", "2024-02-28T23:59:59.5"],
        [f"2024-02-28T{time}" for time in ("00:30Z", "02:00+01:00", "03:00+03:00", "01:00+01:00", "00:30Z")],
    ],
    ids=["numbers", "dates", "times", "durations", "text numbers", "text dates", "text with zones"],
)
@pytest.mark.parametrize("maker", MAKERS)
def test_t_is_only_a_sort_key(maker, times):
    runs = read_frame(MAKERS[maker](ROWS | {"t": times}))
    np.testing.assert_array_equal(runs.states, [5, 6, 7, 1, 2])


@pytest.mark.parametrize("maker", MAKERS)
def test_demo_ids_may_be_strings(maker):
    runs = read_frame(MAKERS[maker](ROWS | {"demo": ["z", "b", "b", "z", "b"]}))
    np.testing.assert_array_equal(runs.states, [5, 6, 7, 1, 2])
    np.testing.assert_array_equal(runs.ids, ["b", "z"])
    assert runs.ids.dtype.kind == "U"


def test_single_row_is_a_demonstration():
    runs = read_frame({"demo": [1], "t": [0], "state": [4], "action": [2]})
    np.testing.assert_array_equal(runs.states, [4])
    np.testing.assert_array_equal(runs.actions, [-1])


def test_integral_floats_are_states():
    np.testing.assert_array_equal(read_frame(ROWS | {"state": [2.0, 7.0, 5.0, 1.0, 6.0]}).states, [5, 6, 7, 1, 2])


BAD = [
    ({"state": [2, 7, 5, None, 6]}, "state", None, 3),
    ({"state": [2, 7, 5, 1, -6]}, "state", -6, 4),
    ({"state": [2, 7, 5, 1, -1]}, "state", -1, 4),
    ({"state": [2.0, 7.0, 5.0, 1.5, 6.0]}, "state", 1.5, 3),
    ({"state": [2, 7, 5, 2**31, 6]}, "state", 2**31, 3),
    ({"state": ["a", "b", None, "c", "d"]}, "state", None, 2),
    ({"state": ["a", "b", "", "c", "d"]}, "state", None, 2),
    ({"action": [None, None, "go", None, "stay"]}, "action", None, 3),
    ({"action": [None, None, 4, None, 0]}, "action", None, 3),
    ({"action": [None, None, -1, 8, 0]}, "action", None, 2),
    ({"action": [None, None, -2, 8, 0]}, "action", -2, 2),
    ({"t": [1, 2, 0, 0, 2]}, "t", 2, 4),
    ({"t": [1, None, 0, 0, 2]}, "t", None, 1),
    ({"demo": [9, 3, None, 9, 3]}, "demo", None, 2),
    ({"group": ["mouse", "rat", "cat", "mouse", "rat"]}, "group", "rat", 0),
    ({"label": [1, 0, 0, 2, 0]}, "label", 1, 1),
    ({"label": [1, 0, None, 1, 0]}, "label", None, 2),
]


@pytest.mark.parametrize("maker", ["pandas", "pandas nullable", "polars", "pyarrow"])
@pytest.mark.parametrize(("changes", "column", "value", "index"), BAD)
def test_invalid_rows_are_reported(maker, changes, column, value, index):
    with raises(InvalidDemos, parameter=column, value=value, index=index):
        read_frame(MAKERS[maker](ROWS | changes))


@pytest.mark.parametrize("maker", MAKERS)
def test_text_is_numbered_in_sorted_order(maker):
    rows = ROWS | {"state": ["pond", "den", "nest", "pond", "den"], "action": [None, "", "run", "hide", "run"]}
    runs = read_frame(MAKERS[maker](rows))
    order = read_frame(MAKERS[maker](ROWS)).states
    assert (runs.state_names, runs.action_names) == (("den", "nest", "pond"), ("hide", "run"))
    where = [ROWS["state"].index(state) for state in order]
    assert [runs.state_names[state] for state in runs.states] == [rows["state"][i] for i in where]
    assert runs.states.dtype == np.int32
    expected = [rows["action"][i] or None for i in where]
    last = runs.offsets[1:] - 1
    assert [None if a < 0 else runs.action_names[a] for a in np.delete(runs.actions, last)] == list(
        np.delete(np.array(expected, dtype=object), last)
    )


def test_categories_are_text():
    rows = pd.DataFrame(ROWS | {"state": pd.Categorical(["b", "a", "a", "b", "b"], categories=["b", "a", "z"])})
    assert read_frame(rows).state_names == ("a", "b")


def test_numbers_among_text_are_reported():
    rows = pd.DataFrame(ROWS | {"state": ["den", "pond", 7, "den", "pond"]})
    with raises(InvalidDemos, parameter="state", value=7, index=2):
        read_frame(rows)


@pytest.mark.parametrize("missing", ["demo", "t", "state"])
@pytest.mark.parametrize("maker", MAKERS)
def test_missing_columns_are_reported(maker, missing):
    rows = {name: column for name, column in ROWS.items() if name != missing}
    with raises(InvalidDemos, parameter="df", value=missing):
        read_frame(MAKERS[maker](rows))


def test_other_objects_are_rejected():
    with raises(InvalidDemos, parameter="df", value="ndarray"):
        read_frame(np.zeros((3, 3)))
    with raises(InvalidDemos, parameter="df", value=0):
        read_frame(pd.DataFrame({"demo": [], "t": [], "state": []}))
    with raises(InvalidDemos, parameter="df"):
        read_frame({"demo": [0, 0], "t": [0], "state": [1, 2]})
    with raises(InvalidDemos, parameter="demo", value="int"):
        read_frame(pd.DataFrame({"demo": ["a", 1], "t": [0, 0], "state": [1, 2]}))


def test_ids_must_be_scalars_of_one_type():
    objects = np.array(["a", float("nan")], dtype=object)
    with raises(InvalidDemos, parameter="demo", index=1):
        read_frame({"demo": objects, "t": [0, 0], "state": [1, 2]})
    pairs = pd.DataFrame({"demo": [("a", 1), ("b", 2)], "t": [0, 0], "state": [1, 2]})
    with raises(InvalidDemos, parameter="demo", index=0):
        read_frame(pairs)
    with raises(InvalidDemos, parameter="t"):
        read_frame(pd.DataFrame({"demo": [0, 0], "t": [DAY, 1], "state": [1, 2]}))


def test_large_tables_are_read_fast():
    rng = np.random.default_rng(0)
    n = 200_000
    order = rng.permutation(n)
    demo, t = np.divmod(np.arange(n), 100)
    runs = read_frame(pd.DataFrame({"demo": demo[order], "t": t[order], "state": np.arange(n)[order]}))
    np.testing.assert_array_equal(runs.states, np.arange(n))
    np.testing.assert_array_equal(runs.offsets, np.arange(0, n + 1, 100))


# Three runs in a corridor 0, 1, 2, 3. In state 1: action 0 led to 2, 2 and 0; action 1 led to 0. State 3 is never left.
STATES = [[0, 1, 2, 3], [0, 1, 2, 3], [1, 0, 1, 0]]
ACTIONS = [[0, 0, 0, -1], [0, 0, 2, -1], [0, 0, 1, -1]]


def frame(states=STATES, actions=ACTIONS, make=pd.DataFrame):
    rows = {
        "demo": [i for i, run in enumerate(states) for _ in run],
        "t": [t for run in states for t in range(len(run))],
        "state": [s for run in states for s in run],
    }
    if actions is not None:
        rows["action"] = [a for run in actions for a in run]
    return make(rows)


def flat(states=STATES, actions=ACTIONS):
    """An object with the flat arrays of Demonstrations."""
    return SimpleNamespace(
        states=np.concatenate(states),
        actions=None if actions is None else np.concatenate(actions),
        offsets=np.cumsum([0] + [len(run) for run in states]),
    )


def edges(mdp):
    return {(int(s), int(a), int(t)): float(p) for s, a, t, p in zip(mdp.src, mdp.act, mdp.dst, mdp.prob, strict=True)}


def test_smoothed_frequencies_by_hand():
    mdp = MDP.from_demonstrations(frame(), smoothing=0.5)
    expected = {
        (0, 0, 1): 1.0,
        (1, 0, 0): (1 + 0.5) / (3 + 1.0),
        (1, 0, 2): (2 + 0.5) / (3 + 1.0),
        # Action 1 was never observed to lead to 2, but 2 follows 1 under action 0.
        (1, 1, 0): (1 + 0.5) / (1 + 1.0),
        (1, 1, 2): (0 + 0.5) / (1 + 1.0),
        (2, 0, 3): 1.0,
        (2, 2, 3): 1.0,
    }
    assert edges(mdp).keys() == expected.keys()
    for edge, prob in expected.items():
        assert edges(mdp)[edge] == pytest.approx(prob, rel=1e-15)
    np.testing.assert_array_equal(mdp.terminal, [False, False, False, True])
    np.testing.assert_allclose(mdp.p0, [2.5 / 5, 1.5 / 5, 0.5 / 5, 0.5 / 5], rtol=1e-15, atol=0)
    assert mdp.gamma == 1.0


def test_without_smoothing_only_observed_transitions_exist():
    mdp = MDP.from_demonstrations(frame(), smoothing=0)
    assert edges(mdp) == {
        (0, 0, 1): 1.0,
        (1, 0, 0): 1 / 3,
        (1, 0, 2): 2 / 3,
        (1, 1, 0): 1.0,
        (2, 0, 3): 1.0,
        (2, 2, 3): 1.0,
    }
    np.testing.assert_array_equal(mdp.p0, [2 / 3, 1 / 3, 0.0, 0.0])


def test_without_actions_each_transition_is_an_action():
    mdp = MDP.from_demonstrations(frame(actions=None))
    assert edges(mdp) == {(0, 0, 1): 1.0, (1, 0, 0): 1.0, (1, 1, 2): 1.0, (2, 0, 3): 1.0}
    np.testing.assert_allclose(mdp.p0, np.array([2.1, 1.1, 0.1, 0.1]) / 3.4, rtol=1e-15, atol=0)


@pytest.mark.parametrize("actions", [ACTIONS, None])
def test_frames_and_demonstrations_agree(actions):
    mdp = MDP.from_demonstrations(frame(actions=actions))
    assert MDP.from_demonstrations(flat(actions=actions)) == mdp
    assert MDP.from_demonstrations(frame(actions=actions, make=pl.DataFrame)) == mdp


@pytest.mark.parametrize("seed", range(5))
def test_frequencies_equal_a_loop(seed):
    rng = np.random.default_rng(seed)
    states = [rng.integers(0, 6, size=rng.integers(1, 12)) for _ in range(15)]
    actions = [np.append(rng.integers(0, 3, size=run.size - 1), -1) for run in states]
    mdp = MDP.from_demonstrations(flat(states, actions), n_states=8, smoothing=0.3)
    counts, successors = {}, {}
    for run, choices in zip(states, actions, strict=True):
        for s, a, t in zip(run[:-1].tolist(), choices[:-1].tolist(), run[1:].tolist(), strict=True):
            counts[s, a, t] = counts.get((s, a, t), 0) + 1
            successors.setdefault(s, set()).add(t)
    expected = {}
    for s, a in {(s, a) for s, a, _ in counts}:
        weights = {t: counts.get((s, a, t), 0) + 0.3 for t in successors[s]}
        expected |= {(s, a, t): weight / sum(weights.values()) for t, weight in weights.items()}
    estimated = edges(mdp)
    assert estimated.keys() == expected.keys()
    for edge, prob in expected.items():
        assert estimated[edge] == pytest.approx(prob, rel=1e-13)
    starts = np.full(8, 0.3)
    for run in states:
        starts[run[0]] += 1
    np.testing.assert_allclose(mdp.p0, starts / starts.sum(), rtol=1e-14, atol=0)
    np.testing.assert_array_equal(mdp.terminal, [s not in successors for s in range(8)])


def test_features_are_attached():
    phi = np.arange(12.0).reshape(6, 2)
    on_action = np.arange(18.0).reshape(6, 3, 1)
    mdp = MDP.from_demonstrations(
        frame(), gamma=0.9, state_features=phi, action_features=on_action, feature_names=["x", "y", "z"]
    )
    # The features say that there are six states, although only four were visited.
    assert mdp.n_states == 6
    np.testing.assert_array_equal(mdp.terminal, [False, False, False, True, True, True])
    np.testing.assert_array_equal(mdp.state_features, phi)
    np.testing.assert_array_equal(mdp.action_features, on_action[mdp.pair_state, mdp.pair_action])
    assert mdp.feature_names == ("x", "y", "z")
    assert mdp.gamma == 0.9
    longer = mdp.replace(edge_features=np.ones((mdp.n_edges, 1)))
    assert longer.feature_names == ("x", "y", "z", "edge[0]")


@pytest.mark.parametrize("actions", [[[-1]], None])
def test_demonstrations_without_a_transition(actions):
    mdp = MDP.from_demonstrations(flat([[2]], actions), smoothing=0)
    assert mdp.n_edges == 0
    np.testing.assert_array_equal(mdp.p0, [0.0, 0.0, 1.0])


@pytest.mark.parametrize("smoothing", [-0.1, np.nan, np.inf, "much"])
def test_invalid_smoothing_is_rejected(smoothing):
    with raises(InvalidParameter, parameter="smoothing", value=smoothing):
        MDP.from_demonstrations(frame(), smoothing=smoothing)


def test_states_out_of_range_are_reported():
    with raises(InvalidDemos, parameter="states", value=3, index=(0, 3)):
        MDP.from_demonstrations(frame(), n_states=3)
    with raises(InvalidDemos, parameter="states", value=3, index=(0, 3)):
        MDP.from_demonstrations(frame(), state_features=np.ones((3, 1)))
    with raises(InvalidDemos, parameter="states", value=-2, index=(1, 1)):
        MDP.from_demonstrations(flat([[0, 1], [0, -2]], None))


def test_invalid_tables_are_rejected_like_demonstrations():
    with raises(InvalidDemos, parameter="df", value="state"):
        MDP.from_demonstrations(frame().drop(columns="state"))


RENAMED = {"demo": "session", "t": "step", "state": "place", "group": "animal"}


@pytest.mark.parametrize("maker", MAKERS)
def test_columns_may_have_other_names(maker):
    rows = {RENAMED.get(name, name): values for name, values in ROWS.items()} | {"state": [0] * 5}
    runs, expected = read_frame(MAKERS[maker](rows), RENAMED), read_frame(ROWS)
    for name in ("states", "actions", "offsets", "ids", "groups", "labels"):
        np.testing.assert_array_equal(getattr(runs, name), getattr(expected, name))


def test_identifiers_may_join_columns():
    rows = {"mouse": ["a", "b", "a", "a"], "bout": [1, 1, 2, 2], "t": [0, 0, 1, 0], "state": [4, 5, 7, 6]}
    runs = read_frame(rows, {"demo": "mouse+bout", "group": "mouse"})
    assert runs.ids.tolist() == ["a/1", "a/2", "b/1"]
    assert (runs.states.tolist(), runs.groups.tolist()) == ([4, 6, 7, 5], ["a", "a", "b"])
    slashes = {"mouse": ["a/1", "a"], "bout": ["2", "1/2"], "t": [0, 0], "state": [4, 5]}
    with raises(InvalidDemos, parameter="demo", value="a/1/2"):
        read_frame(slashes, {"demo": "mouse + bout"})
    # A column may have a plus sign in its name.
    assert read_frame(rows | {"mouse+bout": [0, 1, 2, 2]}, {"demo": "mouse+bout"}).ids.tolist() == [0, 1, 2]


def test_unknown_columns_are_reported():
    with raises(InvalidDemos, parameter="df", value="bout"):
        read_frame(ROWS, {"demo": "bout"})
    with raises(InvalidDemos, parameter="df", value="animal"):
        read_frame(ROWS, {"group": "animal"})
    with raises(InvalidParameter, parameter="columns", value="place"):
        read_frame(ROWS, {"place": "state"})


def test_times_are_kept_unless_they_are_step_numbers():
    assert read_frame(ROWS).times is None
    assert read_frame(ROWS | {"t": [1, 25, 3, 0, 7]}).times.tolist() == [3, 7, 25, 0, 1]
    days = [DAY + dt.timedelta(days=n) for n in (1, 2, 0, 0, 1)]
    recorded = [str(time)[:10] for time in read_frame(ROWS | {"t": days}).times]
    assert recorded == [str(DAY + dt.timedelta(days=n)) for n in (0, 1, 2, 0, 1)]
