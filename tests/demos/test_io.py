"""Parquet files of demonstrations, and rollouts in Gymnasium environments."""

import json
import os

import gymnasium
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from limiirl.demos import Demonstrations
from limiirl.errors import InvalidDemos, InvalidFile, InvalidParameter
from limiirl.mdp import MDP
from tests.helpers import examples, raises

STATES = [[0, 1, 2], [3], [1, 1], [4, 0, 2, 0]]
ACTIONS = [[5, 6], [], [0], [1, 0, 2]]
REMEDY = r"Demonstrations\.to_parquet.*Demonstrations\.from_frame"

ATTRIBUTES = {
    "none": None,
    "strings": ["x", "", "ünï", "a longer one"],
    "integers": [2**62, -1, 0, 0],
    "floats": [0.1, -np.inf, 1e300, 0.0],
    "booleans": [True, False, False, True],
}


def same_dtypes(one, other):
    names = ("states", "offsets", "actions", "groups", "labels", "ids")
    pairs = [(getattr(one, name), getattr(other, name)) for name in names]
    return all(a is b is None or a.dtype == b.dtype for a, b in pairs)


@pytest.mark.parametrize("actions", [None, ACTIONS, [[5, -1], None, [0], None]], ids=["none", "all", "some"])
@pytest.mark.parametrize("values", ATTRIBUTES.values(), ids=ATTRIBUTES)
def test_round_trip(tmp_path, actions, values):
    demos = Demonstrations.from_lists(STATES, actions, groups=values, labels=values).replace(ids=values)
    demos.to_parquet(tmp_path / "demos.parquet")
    again = Demonstrations.from_parquet(str(tmp_path / "demos.parquet"))
    assert again == demos
    assert same_dtypes(again, demos)
    assert not again.states.flags.writeable


@settings(deadline=None, max_examples=examples(50), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.lists(st.integers(0, 2**40), min_size=1, max_size=6), max_size=6),
    st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), min_size=6, max_size=6),
)
def test_round_trip_of_random_demonstrations(tmp_path, states, texts):
    demos = Demonstrations.from_lists(states).replace(groups=np.array(texts[: len(states)], dtype=str))
    demos.to_parquet(tmp_path / "demos.parquet")
    assert Demonstrations.from_parquet(tmp_path / "demos.parquet") == demos


def test_demonstrations_with_equal_ids_stay_separate(tmp_path):
    demos = Demonstrations.from_lists(STATES, ACTIONS).replace(ids=list("wxyz"))[[0, 0, 1, 1]]
    demos.to_parquet(tmp_path / "demos.parquet")
    assert Demonstrations.from_parquet(tmp_path / "demos.parquet") == demos


def test_table_has_one_row_per_step(tmp_path):
    path = tmp_path / "demos.parquet"
    demos = Demonstrations.from_lists(STATES, ACTIONS, groups=list("aabb"), labels=[0, 1, 2, 3])
    demos.to_parquet(path)
    table = pq.read_table(path)
    assert table.column_names == ["demo", "t", "state", "action", "group", "label"]
    assert table["demo"].to_pylist() == [0, 0, 0, 1, 2, 2, 3, 3, 3, 3]
    assert table["t"].to_pylist() == [0, 1, 2, 0, 0, 1, 0, 1, 2, 3]
    assert table["state"].to_pylist() == [0, 1, 2, 3, 1, 1, 4, 0, 2, 0]
    assert table["action"].to_pylist() == [5, 6, None, None, 0, None, 1, 0, 2, None]
    assert table["group"].to_pylist() == list("aaaabbbbbb"[:4]) + list("bbbbbb")
    assert table["label"].to_pylist() == [0, 0, 0, 1, 2, 2, 3, 3, 3, 3]
    assert Demonstrations.from_frame(pd.read_parquet(path)) == demos.replace(ids=[0, 1, 2, 3])
    bare = tmp_path / "bare.parquet"
    Demonstrations.from_lists(STATES).to_parquet(bare)
    assert pq.read_table(bare).column_names == ["demo", "t", "state"]


def test_writing_replaces_a_file_atomically(tmp_path):
    path = tmp_path / "demos.parquet"
    path.write_text("something else")
    demos = Demonstrations.from_lists(STATES)
    with path.open() as reader:
        demos.to_parquet(path)
        # A reader of the old file is not affected.
        assert reader.read() == "something else"
    assert Demonstrations.from_parquet(path) == demos
    assert [x.name for x in tmp_path.iterdir()] == ["demos.parquet"]


def read_text(tmp_path, text, encoding="utf-8"):
    path = tmp_path / "steps.csv"
    path.write_bytes(text.encode(encoding))
    return Demonstrations.from_file(path)


@pytest.mark.parametrize(
    ("written", "ids"),
    [
        (["1", "01"], ["01", "1"]),
        (["1e2", "100"], ["100", "1e2"]),
        (["12345678901234567891", "12345678901234567890"], ["12345678901234567890", "12345678901234567891"]),
        (["2024-01-31", "true"], ["2024-01-31", "true"]),
        (["1.0", "1"], ["1", "1.0"]),
        (["12", "-3"], [-3, 12]),
    ],
)
@pytest.mark.parametrize("column", ["demo", "group", "label"])
def test_identifiers_of_a_csv_file_stay_apart(tmp_path, column, written, ids):
    names = {"demo": "demo,t,state", "group": "x,t,state,group,demo", "label": "x,t,state,label,demo"}
    rows = (f"{name},{t},{t}" if column == "demo" else f",{t},{t},{name},{t}" for t, name in enumerate(written))
    demos = read_text(tmp_path, "\n".join([names[column], *rows]))
    values = {"demo": demos.ids, "group": demos.groups, "label": demos.labels}[column]
    assert sorted(values.tolist()) == ids
    assert len(demos) == 2


def test_an_empty_csv_file_is_reported_as_empty(tmp_path):
    path = tmp_path / "empty.csv"
    path.touch()
    with raises(InvalidFile, parameter="path", value=str(path)) as caught:
        Demonstrations.from_file(path)
    assert "demo,t,state" in str(caught.value)


@pytest.mark.parametrize("empty", ["", "  ", '""', "NA", "nan"])
@pytest.mark.parametrize("column", ["demo", "group", "label"])
def test_empty_identifiers_of_a_csv_file_are_rejected(tmp_path, column, empty):
    row = {"demo": "a", "t": "0", "state": "1", "group": "b", "label": "c"}
    lines = [",".join(row), ",".join(row.values()), ",".join((row | {"t": "1", column: empty}).values())]
    with raises(InvalidFile, parameter="path", value=str(tmp_path / "steps.csv")) as caught:
        read_text(tmp_path, "\n".join(lines))
    assert "row 1" in str(caught.value)


def test_numbers_of_a_csv_file_stay_apart(tmp_path):
    demos = read_text(tmp_path, "demo,t,state,action\na,0,01,2.0\na,1, 10,-1.0\n")
    assert (demos.states.tolist(), demos.actions.tolist()) == ([1, 10], [2, -1])
    for states in ("01,1", "1e2,100", "1,true"):
        one, other = states.split(",")
        demos = read_text(tmp_path, f"demo,t,state\na,0,{one}\na,1,{other}\n")
        assert [demos.state_names[state] for state in demos.states] == [one, other]


@pytest.mark.parametrize("text", ["demo,t,state\nMüller,0,1\n", "demo,t,state,größe\na,0,1,2\n"])
def test_csv_files_in_other_encodings_are_rejected_with_the_line(tmp_path, text):
    with raises(InvalidFile, parameter="path", value=str(tmp_path / "steps.csv")) as caught:
        read_text(tmp_path, text, "latin-1")
    assert f"line {1 if 'größe' in text else 2} " in str(caught.value)
    assert len(read_text(tmp_path, f"\ufeff{text}")) == 1


def test_file_names_may_be_of_any_bytes(tmp_path):
    name = os.fsdecode(b"caf\xe9")
    (tmp_path / f"{name}.csv").write_text("demo,t,state\na,0,1\n")
    demos = Demonstrations.from_file(tmp_path / f"{name}.csv")
    demos.to_parquet(tmp_path / f"{name}.parquet")
    assert Demonstrations.from_file(tmp_path / f"{name}.parquet") == demos


def test_columns_of_a_csv_file_must_be_unique(tmp_path):
    with raises(InvalidFile, parameter="path", value=str(tmp_path / "steps.csv")):
        read_text(tmp_path, "demo,t,state,state\na,0,1,2\n")
    assert len(read_text(tmp_path, "demo,t,state,x,x\na,0,1,2,3\n")) == 1


@pytest.mark.parametrize("share", [0, 0.1, 0.5, 0.9, 0.999])
def test_truncated_file_is_rejected(tmp_path, share):
    path = tmp_path / "demos.parquet"
    Demonstrations.from_lists(STATES * 50, ACTIONS * 50).to_parquet(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(InvalidFile, match=rf"demos\.parquet is .*corrupted.* {REMEDY}"):
        Demonstrations.from_parquet(path)


def test_flipped_bits_in_the_states_are_detected(tmp_path):
    path = tmp_path / "demos.parquet"
    demos = Demonstrations.from_lists(np.random.default_rng(0).integers(1000, size=(20, 10)))
    demos.to_parquet(path)
    whole = path.read_bytes()
    column = pq.ParquetFile(path).metadata.row_group(0).column(2)
    assert column.path_in_schema == "state"
    refused = 0
    for position in range(column.dictionary_page_offset, column.data_page_offset):
        content = bytearray(whole)
        content[position] ^= 1
        path.write_bytes(content)
        try:
            assert Demonstrations.from_parquet(path) == demos
        except InvalidFile:
            refused += 1
    assert refused > 100


def rewrite(path, table, **about):
    """Write the table with the metadata of limiirl, partly changed."""
    metadata = {"limiirl.format": "limiirl.demonstrations", "limiirl.version": "1", "limiirl.ids": "0"} | about
    pq.write_table(table.replace_schema_metadata(metadata), path)


def columns(**changes):
    content = {"demo": [0, 0, 1], "t": [0, 1, 0], "state": [4, 5, 6]} | changes
    return pa.table({name: values for name, values in content.items() if values is not None})


def test_file_written_without_limiirl_in_the_same_format_is_read(tmp_path):
    rewrite(tmp_path / "hand.parquet", columns())
    expected = Demonstrations.from_lists([[4, 5], [6]])
    assert Demonstrations.from_parquet(tmp_path / "hand.parquet") == expected


@pytest.mark.parametrize(
    ("content", "about", "message"),
    [
        ({}, {"limiirl.format": "other"}, rf"was not written by.* {REMEDY}"),
        ({}, {"limiirl.version": "3"}, r"format version 3"),
        ({}, {"limiirl.version": "new"}, r"format version new"),
        ({}, {"limiirl.version": ""}, r"format version None"),
        ({"state": None}, {}, rf"'state'.* {REMEDY}"),
        ({"t": [0, 2, 0]}, {}, r"bad\.parquet must have t"),
        ({"t": [1, 0, 1]}, {}, r"bad\.parquet must have t"),
        ({"t": [0, None, 0]}, {}, r"bad\.parquet must have t"),
        ({"state": [4, None, 6]}, {}, "demonstration 0, step 1: state nan"),
        ({"action": [1, 1, None]}, {}, "demonstration 0, step 1: action 1"),
        ({"label": ["a", "a", None]}, {}, r"labels\[1\]"),
    ],
)
def test_foreign_newer_and_corrupted_tables_are_rejected(tmp_path, content, about, message):
    path = tmp_path / "bad.parquet"
    rewrite(path, columns(**content), **about)
    with pytest.raises(InvalidFile, match=message):
        Demonstrations.from_parquet(path)


def test_other_parquet_files_are_rejected_with_a_remedy(tmp_path):
    path = tmp_path / "pandas.parquet"
    pd.DataFrame({"demo": [0], "t": [0], "state": [1]}).to_parquet(path)
    with pytest.raises(InvalidFile, match=rf"pandas\.parquet was not written by.* {REMEDY}"):
        Demonstrations.from_parquet(path)
    pq.write_table(pa.table({"x": [1]}), path)
    with pytest.raises(InvalidFile, match="not written by"):
        Demonstrations.from_parquet(path)
    path.write_text(json.dumps(STATES))
    with pytest.raises(InvalidFile, match="not a parquet file"):
        Demonstrations.from_parquet(path)


def test_missing_files_and_directories_raise_os_errors(tmp_path):
    with pytest.raises(FileNotFoundError):
        Demonstrations.from_parquet(tmp_path / "absent.parquet")
    with pytest.raises(IsADirectoryError):
        Demonstrations.from_parquet(tmp_path)
    with pytest.raises(FileNotFoundError):
        Demonstrations.from_lists(STATES).to_parquet(tmp_path / "absent" / "demos.parquet")


def lake(slippery=True):
    return gymnasium.make("FrozenLake-v1", is_slippery=slippery)


def anything(observation, rng):
    return int(rng.integers(4))


@pytest.mark.parametrize("slippery", [True, False])
def test_every_step_of_frozen_lake_is_an_edge_of_its_mdp(slippery):
    env = lake(slippery)
    mdp = MDP.from_gymnasium(env)
    demos = Demonstrations.from_rollouts(env, anything, n=200, seed=3)
    steps = demos.steps(mdp)
    assert len(demos) == 200
    assert steps.n_transitions == demos.n_transitions > 500
    assert np.all(steps.edge >= 0)
    np.testing.assert_array_equal(mdp.act[steps.edge], demos.actions[demos.actions >= 0])
    # Holes and the goal end an episode, and nothing else does within so few steps.
    assert np.all(mdp.terminal[demos.last_states])
    assert np.all(np.isfinite(demos.log_q(mdp)))
    # On the ice the same walks are feasible without their actions too, and no less probable.
    without = demos.replace(actions=None)
    assert np.all(without.log_q(mdp) >= demos.log_q(mdp) - 1e-12)


def test_rollouts_are_determined_by_the_seed():
    one = Demonstrations.from_rollouts(lake(), anything, n=20, seed=5)
    assert Demonstrations.from_rollouts(lake(), anything, n=20, seed=5) == one
    assert Demonstrations.from_rollouts(lake(), anything, n=20, seed=6) != one
    # Even a policy without chance meets different luck in each episode.
    right = Demonstrations.from_rollouts(lake(), np.full(16, 2), n=20, seed=5)
    assert len({tuple(demo.states) for demo in right}) > 5


def test_policy_and_environment_have_independent_random_streams():
    # FrozenLake draws its slips from env.unwrapped.np_random; a policy given the same stream could foresee them.
    draws = []
    Demonstrations.from_rollouts(lake(), lambda s, rng: draws.append(rng.random()) or 0, n=1, seed=8)
    of_environment, _ = gymnasium.utils.seeding.np_random(8)
    assert set(draws).isdisjoint(of_environment.random(1000))


def test_policy_given_as_actions():
    rng = np.random.default_rng(0)
    policy = rng.integers(4, size=16)
    demos = Demonstrations.from_rollouts(lake(), policy, n=50, seed=1)
    acted = demos.actions >= 0
    np.testing.assert_array_equal(demos.actions[acted], policy[demos.states[acted]])


def test_policy_given_as_probabilities():
    policy = np.zeros((16, 4))
    policy[:, 1], policy[:, 2] = 0.25, 0.75
    policy[5] = policy[15] = 0  # a hole and the goal, where nothing is chosen
    demos = Demonstrations.from_rollouts(lake(), policy, n=400, seed=2)
    taken = demos.actions[demos.actions >= 0]
    assert set(taken.tolist()) == {1, 2}
    # The share of action 2 has standard error sqrt(0.25 * 0.75 / n); five of them err once in 1.7 million runs.
    assert abs(np.mean(taken == 2) - 0.75) < 5 * np.sqrt(0.1875 / taken.size)


def test_deterministic_probabilities_equal_actions():
    policy = np.random.default_rng(4).integers(4, size=16)
    one_hot = np.eye(4)[policy]
    assert Demonstrations.from_rollouts(lake(), one_hot, 30, 7) == Demonstrations.from_rollouts(lake(), policy, 30, 7)


@pytest.mark.parametrize("longest", [0, 1, 5])
def test_max_steps_counts_actions(longest):
    demos = Demonstrations.from_rollouts(lake(slippery=False), np.zeros(16, dtype=int), n=3, max_steps=longest)
    np.testing.assert_array_equal(demos.lengths, [longest + 1] * 3)
    np.testing.assert_array_equal(demos.states, 0)


def test_truncation_by_the_environment_ends_an_episode():
    env = gymnasium.make("FrozenLake-v1", is_slippery=False, max_episode_steps=7)
    demos = Demonstrations.from_rollouts(env, np.zeros(16, dtype=int), n=2)
    np.testing.assert_array_equal(demos.lengths, [8, 8])


class Countdown(gymnasium.Env):
    """Observations 10, 11, 12 and actions 3, 4; action 4 moves on, 12 is the end."""

    observation_space = gymnasium.spaces.Discrete(3, start=10)
    action_space = gymnasium.spaces.Discrete(2, start=3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 10
        return self.at, {}

    def step(self, action):
        if action not in (3, 4):
            raise ValueError(f"no action {action}")
        self.at += action - 3
        return self.at, 0.0, self.at == 12, False, {}


def test_spaces_with_another_start_are_numbered_from_0():
    expected = Demonstrations.from_lists([[0, 1, 2]], [[1, 1]])
    assert Demonstrations.from_rollouts(Countdown(), lambda observation, rng: 4, n=1) == expected
    assert Demonstrations.from_rollouts(Countdown(), [1, 1, 0], n=1) == expected
    assert Demonstrations.from_rollouts(Countdown(), [[0, 1], [0, 1], [0, 0]], n=1) == expected


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (np.zeros(15, dtype=int), {"parameter": "policy", "value": (15,)}),
        (np.zeros(16), {"parameter": "policy", "value": (16,)}),
        (np.full((4, 16), 0.25), {"parameter": "policy", "value": (4, 16)}),
        (np.r_[np.zeros(15, dtype=int), 4], {"parameter": "policy", "value": 4, "index": 15}),
        (np.full((16, 4), 0.2), {"parameter": "policy", "index": 0}),
        (np.r_[np.full((9, 4), 0.25), [[2, -1, 0, 0]], np.full((6, 4), 0.25)], {"parameter": "policy", "index": 9}),
        (np.r_[np.full((9, 4), 0.25), np.full((7, 4), np.nan)], {"parameter": "policy", "index": 9}),
        (np.zeros((16, 4)), {"parameter": "policy", "index": 0}),
    ],
)
def test_invalid_policies_are_rejected(policy, expected):
    with raises(InvalidParameter, **expected):
        Demonstrations.from_rollouts(lake(), policy, n=1)


def test_invalid_counts_and_environments_are_rejected():
    with raises(InvalidParameter, parameter="n", value=0):
        Demonstrations.from_rollouts(lake(), anything, n=0)
    with raises(InvalidParameter, parameter="seed", value=-1):
        Demonstrations.from_rollouts(lake(), anything, n=1, seed=-1)
    with raises(InvalidParameter, parameter="max_steps", value=-1):
        Demonstrations.from_rollouts(lake(), anything, n=1, max_steps=-1)
    with raises(InvalidDemos, parameter="env"):
        Demonstrations.from_rollouts(gymnasium.make("CartPole-v1"), anything, n=1)
    env = Countdown()
    env.action_space = gymnasium.spaces.Box(0, 1)
    with raises(InvalidDemos, parameter="env"):
        Demonstrations.from_rollouts(env, anything, n=1)
