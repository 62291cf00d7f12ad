"""Stores of features: what they hold, what they refuse, and what is left of one that was stopped or damaged."""

import gc
import json
import os
import pickle
import time
import weakref

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from limiirl import MDP, Demonstrations, IntentMixture, MaxCausalEnt, MaxEnt, RewardEnsemble
from limiirl.errors import InvalidDemos, InvalidFile, InvalidParameter, LimiirlWarning, MissingFile
from limiirl.streams import FeatureStore, FunctionSource, assign, write_features
from limiirl.streams.sources import list_parts
from limiirl.streams.store import NewerFormat
from tests.helpers import raises
from tests.oracles.mixture import TASTES, crossings, walks


@pytest.fixture
def walked():
    return walks(300, seed=1)[0]


def files(folder, demos, *ends):
    """Parquet files of consecutive demonstrations."""
    folder.mkdir()
    for i, (lo, hi) in enumerate(zip((0, *ends), (*ends, len(demos)), strict=True)):
        demos[lo:hi].to_parquet(folder / f"walks-{i}.parquet")
    return folder


def stamps(folder):
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.iterdir()}


def test_a_store_has_the_features_of_the_demonstrations(tmp_path, walked):
    store = write_features(crossings(), files(tmp_path / "in", walked, 100, 101), tmp_path / "out")
    assert [part.facts.n for part in store.parts] == [100, 1, 199]
    assert [part.name for part in store.parts] == ["walks-0.parquet", "walks-1.parquet", "walks-2.parquet"]
    rows = store.take(np.arange(300))
    np.testing.assert_array_equal(rows.features, walked.features(crossings()))
    np.testing.assert_array_equal(rows.log_q, walked.log_q(crossings()))
    np.testing.assert_array_equal(rows.counts, np.ones(300))
    assert store.longest == walked.lengths.max()
    again = FeatureStore.open(tmp_path / "out")
    assert again == store
    assert again.fingerprint == store.fingerprint
    assert pickle.loads(pickle.dumps(again)) == store
    again.verify()
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "part-00000.features.npy"), rows.features[:100])


def test_sources_of_every_kind_give_the_same_rows(tmp_path, walked):
    folder = files(tmp_path / "in", walked, 100)
    kinds = {
        "folder": folder,
        "name": str(folder),
        "paths": sorted(folder.iterdir()),
        "list": [walked[:100], walked[100:]],
        "generator": (part for part in (walked[:100], walked[100:])),
        "calls": FunctionSource(lambda i: walked[100 * i : 100 + 200 * i], 2),
    }
    expected = walked.features(crossings())
    for name, source in kinds.items():
        store = write_features(crossings(), source, tmp_path / name)
        assert len(store.parts) == 2
        np.testing.assert_array_equal(store.take(np.arange(300)).features, expected)
    single = write_features(crossings(), walked, tmp_path / "single")
    np.testing.assert_array_equal(single.take(np.arange(300)).features, expected)


def test_csv_and_subfolders_are_read_in_order(tmp_path):
    (tmp_path / "in" / "b").mkdir(parents=True)
    Demonstrations.from_lists([[0, 4]]).to_parquet(tmp_path / "in" / "b" / "x.parquet")
    (tmp_path / "in" / "a.csv").write_text("demo,t,state\nann,0,0\nann,1,1\n")
    (tmp_path / "in" / "_notes.csv").write_text("nothing")
    assert [part.name for part in list_parts(tmp_path / "in")] == ["a.csv", "b/x.parquet"]
    store = write_features(crossings(), tmp_path / "in", tmp_path / "out")
    assert store.parts[0].names().tolist() == ["ann"]
    assert store.parts[1].names() is None


def test_stopped_and_called_again_it_makes_only_what_is_missing(tmp_path, walked):
    folder, out = files(tmp_path / "in", walked, 100, 200), tmp_path / "out"
    whole = write_features(crossings(), folder, tmp_path / "whole")

    def until_second():
        yield walked[:100]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_features(crossings(), until_second(), tmp_path / "stopped")
    with raises(InvalidFile, parameter="folder", value=str(tmp_path / "stopped")):
        FeatureStore.open(tmp_path / "stopped")
    write_features(crossings(), folder, out)
    (out / "part-00001.json").unlink()
    before = stamps(out)
    again = write_features(crossings(), folder, out)
    changed = {name for name, stamp in stamps(out).items() if before.get(name) != stamp}
    assert changed == {"part-00001.json", "part-00001.features.npy", "part-00001.base.npy", "store.json"}
    assert [part.fingerprint for part in again.parts] == [part.fingerprint for part in whole.parts]


def abandon(path):
    """Half a file, of two hours ago."""
    path.write_text("{")
    then = time.time() - 7200.0
    os.utime(path, (then, then))


def test_what_a_killed_writer_leaves_behind_is_no_obstacle(tmp_path, walked):
    abandon(tmp_path / ".store.json.x1.tmp")
    store = write_features(crossings(), [walked], tmp_path)
    (tmp_path / "mdp.npz").unlink()  # killed just after the header
    (tmp_path / "part-00000.json").unlink()
    abandon(tmp_path / ".part-00000.features.npy.x2.tmp")
    (tmp_path / "part-00000.base.npy").write_bytes(b"of another time")
    assert write_features(crossings(), [walked], tmp_path) == store
    assert store.mdp() == crossings()
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".tmp")] == []


def test_parts_leave_memory_one_by_one(tmp_path):
    alive, most = weakref.WeakSet(), []

    def part(i):
        demos, _ = walks(50, seed=i)
        most.append(len(alive))
        alive.add(demos.steps(crossings_once))
        return demos

    crossings_once = crossings()
    gc.disable()  # it may be long in coming: arrays are few objects, however large
    try:
        write_features(crossings_once, FunctionSource(part, 6), tmp_path)
    finally:
        gc.enable()
    assert max(most) <= 1


def test_progress_counts_parts(tmp_path, walked):
    seen = []
    for number, source in enumerate(([walked, walked], iter([walked, walked]))):
        write_features(crossings(), source, tmp_path / str(number), progress=lambda *report: seen.append(report))
    assert [report[:2] for report in seen] == [(0, 2), (1, 2), (2, 2), (0, None), (1, None), (2, 2)]
    assert [report[2] for report in seen[:3]] == ["part 0", "part 1", ""]


def test_names_that_are_text_in_one_file_and_numbers_in_another_are_refused(tmp_path):
    (tmp_path / "in").mkdir()
    for name, demo in (("a", "x"), ("b", "2")):
        (tmp_path / "in" / f"{name}.csv").write_text(f"demo,t,state\n{demo},0,0\n{demo},1,1\n")
    with raises(InvalidDemos, parameter="source", value="demo"):
        write_features(crossings(), tmp_path / "in", tmp_path / "out")


def test_a_part_of_a_newer_version_is_not_written_anew(tmp_path, walked):
    write_features(crossings(), [walked], tmp_path)
    path = tmp_path / "part-00000.json"
    path.write_text(path.read_text().replace('"version": 1', '"version": 2'))
    before = path.read_bytes()
    with raises(NewerFormat, parameter="folder", value=str(path)):
        write_features(crossings(), [walked], tmp_path)
    assert path.read_bytes() == before


def test_files_without_rows_and_whole_numbers_of_other_sizes(tmp_path, walked):
    folder = files(tmp_path / "in", walked, 100)
    store = write_features(crossings(), folder, tmp_path / "out")
    table = pq.read_table(folder / "walks-1.parquet")
    pq.write_table(table.slice(0, 0), folder / "walks-0a.parquet")
    small = table.schema.set(table.schema.get_field_index("state"), pa.field("state", pa.int16()))
    pq.write_table(table.cast(small), folder / "walks-1.parquet")
    again = write_features(crossings(), folder, tmp_path / "again")
    assert [part.facts.n for part in again.parts] == [part.facts.n for part in store.parts]
    np.testing.assert_array_equal(again.take(np.arange(300)).features, store.take(np.arange(300)).features)
    for path in folder.iterdir():
        pq.write_table(table.slice(0, 0), path)
    with raises(InvalidFile, parameter="source", value=str(folder / "walks-0.parquet")):
        write_features(crossings(), folder, tmp_path / "nothing")


def test_a_csv_file_of_a_header_alone_has_no_rows_and_an_empty_one_is_damaged(tmp_path):
    (tmp_path / "a.csv").write_text("demo,t,state\n\n")
    with raises(InvalidFile, parameter="source", value=str(tmp_path / "a.csv")):
        write_features(crossings(), tmp_path, tmp_path / "out")
    (tmp_path / "b.csv").write_text("demo,t,state\nx,0,0\n")
    (part,) = write_features(crossings(), tmp_path, tmp_path / "out").parts
    assert part.facts.n == 1
    (tmp_path / "a.csv").write_bytes(b"demo,t,state\ry,0,0\rz,0,0\r")  # ends of lines of another time
    assert write_features(crossings(), tmp_path, tmp_path / "more").n == 3
    for nothing in ("", "\ufeff"):
        (tmp_path / "a.csv").write_text(nothing, encoding="utf-8")
        with pytest.raises(InvalidFile, match=r"a\.csv"):
            write_features(crossings(), tmp_path, tmp_path / "again")


@pytest.mark.parametrize("kind", ["features", "base"])
def test_a_truncated_part_is_told_and_made_anew(tmp_path, walked, kind):
    folder, out = files(tmp_path / "in", walked, 100), tmp_path / "out"
    store = write_features(crossings(), folder, out)
    damaged = out / f"part-00001.{kind}.npy"
    damaged.write_bytes(damaged.read_bytes()[:-8])
    with raises(InvalidFile, parameter="folder", value=str(damaged)):
        FeatureStore.open(out)
    with pytest.warns(LimiirlWarning, match="rebuilt now"):
        again = write_features(crossings(), folder, out)
    assert again == store
    damaged.unlink()
    with raises(InvalidFile, parameter="folder", value=str(damaged)):
        FeatureStore.open(out)


def test_a_changed_bit_is_found_by_verify(tmp_path, walked):
    store = write_features(crossings(), [walked], tmp_path)
    content = bytearray((tmp_path / "part-00000.features.npy").read_bytes())
    content[-1] ^= 1
    (tmp_path / "part-00000.features.npy").write_bytes(content)
    with raises(InvalidFile, parameter="folder", value=str(tmp_path / "part-00000.json")):
        store.verify()


def test_damaged_headers(tmp_path, walked):
    write_features(crossings(), [walked], tmp_path)
    header = tmp_path / "part-00000.json"
    good = header.read_text()
    header.write_text(good[:50])
    with raises(InvalidFile, parameter="folder", value=str(header)):
        FeatureStore.open(tmp_path)
    header.write_text(json.dumps(json.loads(good) | {"mdp": "other"}))
    with raises(InvalidFile, parameter="folder", value=str(header)):
        FeatureStore.open(tmp_path)
    (tmp_path / "store.json").write_text("{")
    with raises(InvalidFile, parameter="folder", value=str(tmp_path / "store.json")):
        FeatureStore.open(tmp_path)
    (tmp_path / "store.json").write_text('{"format": "limiirl.features", "version": 9}')
    with raises(InvalidFile, parameter="folder", value=str(tmp_path / "store.json")):
        FeatureStore.open(tmp_path)
    with raises(MissingFile, parameter="folder", value=str(tmp_path / "nowhere")):
        FeatureStore.open(tmp_path / "nowhere")
    with raises(MissingFile, parameter="folder", value=str(tmp_path.parent)):
        FeatureStore.open(tmp_path.parent)


def test_changed_data_are_refused(tmp_path, walked):
    folder, out = files(tmp_path / "in", walked, 100), tmp_path / "out"
    write_features(crossings(), folder, out)
    walked[100:299].to_parquet(folder / "walks-1.parquet")
    with raises(InvalidFile, parameter="folder", value=str(out / "part-00001.json")):
        write_features(crossings(), folder, out)
    (folder / "walks-1.parquet").rename(folder / "walks-9.parquet")
    with raises(InvalidFile, parameter="folder", value=str(out / "part-00001.json")) as caught:
        write_features(crossings(), folder, out)
    assert "not walks-9.parquet" in str(caught.value)
    (folder / "walks-9.parquet").unlink()
    with raises(InvalidFile, parameter="folder", value=str(out / "part-00001.json")):
        write_features(crossings(), folder, out)


def test_given_demonstrations_that_changed_are_refused(tmp_path, walked):
    write_features(crossings(), [walked], tmp_path)
    with raises(InvalidFile, parameter="folder", value=str(tmp_path / "part-00000.json")):
        write_features(crossings(), [walked[::-1]], tmp_path)


def test_a_folder_of_something_else_is_refused(tmp_path, walked):
    write_features(crossings(), [walked], tmp_path / "out")
    with raises(InvalidFile, parameter="folder", value=str(tmp_path / "out")):
        write_features(crossings().replace(gamma=0.5), [walked], tmp_path / "out")
    with raises(InvalidFile, parameter="folder", value=str(tmp_path / "out")):
        write_features(crossings(), [walked.replace(groups=np.arange(300))], tmp_path / "out", by_group=True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with raises(InvalidFile, parameter="folder", value=str(tmp_path / "mine")):
        write_features(crossings(), [walked], tmp_path / "mine")


def bad_input(case, folder):
    """Make a source with a fault."""
    good = Demonstrations.from_lists([[0, 1, 2], [0, 4]])
    rows = {"demo": [0, 0], "t": [0, 1], "state": [0, 1]}
    second = folder / "b.parquet"
    if case == "nothing":
        return
    good.to_parquet(folder / "a.parquet")
    if case == "schemas":
        Demonstrations.from_lists([[0, 1]], actions=[[0]]).to_parquet(second)
    elif case == "outside":
        Demonstrations.from_lists([[0, 1], [0, 4], [0, 1, 99]]).to_parquet(second)
    elif case == "impossible":
        Demonstrations.from_lists([[0, 1], [0, 15]]).to_parquet(second)
    elif case == "start":
        Demonstrations.from_lists([[0, 1], [5, 6]]).to_parquet(second)
    elif case == "damaged":
        second.write_bytes((folder / "a.parquet").read_bytes()[:-20])
    elif case == "nan":
        (folder / "a.parquet").unlink()
        pq.write_table(pa.table(rows | {"state": [0.0, float("nan")]}), second)
    elif case == "null":
        (folder / "a.parquet").unlink()
        pq.write_table(pa.table(rows | {"state": [0, None]}), second)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("nothing", "has no .parquet or .csv file"),
        ("schemas", "b.parquet has .*, action integer"),
        ("outside", r"b.parquet: demonstration 2, step 2: .*99"),
        ("impossible", r"b.parquet: demonstration 1, step 0: "),
        ("start", r"b.parquet: demonstration 1"),
        ("damaged", "b.parquet is not a parquet file"),
        ("nan", "b.parquet.*"),
        ("null", "b.parquet.*"),
    ],
)
def test_bad_input_is_named(tmp_path, case, message):
    (tmp_path / "in").mkdir()
    bad_input(case, tmp_path / "in")
    with pytest.raises((InvalidDemos, InvalidFile), match=message):
        write_features(crossings(), tmp_path / "in", tmp_path / "out")


def test_other_bad_sources(tmp_path, walked):
    with raises(MissingFile, parameter="source", value=str(tmp_path / "nowhere")):
        write_features(crossings(), tmp_path / "nowhere", tmp_path / "a")
    with raises(InvalidParameter, parameter="source", value=3, index=1):
        write_features(crossings(), [walked, 3], tmp_path / "b")
    with raises(InvalidParameter, parameter="source", value=7):
        write_features(crossings(), 7, tmp_path / "c")
    with raises(InvalidDemos, parameter="source"):
        write_features(crossings(), [], tmp_path / "d")
    with raises(InvalidDemos, parameter="source", value=[]):
        write_features(crossings(), FunctionSource(lambda i: [], 1), tmp_path / "e")
    with raises(InvalidParameter, parameter="irl"):
        write_features(crossings(), [walked], tmp_path / "f", irl=MaxCausalEnt())
    with raises(InvalidDemos, parameter="max_length", value=7):
        write_features(crossings(), [walked], tmp_path / "g", irl=MaxEnt(max_length=4))


def test_unrecorded_actions_that_matter_are_refused(tmp_path):
    double = {"src": [0, 0], "dst": [1, 1], "action": [0, 1], "p0": [1, 0]}
    demos = Demonstrations.from_lists([[0, 1]])
    mdp = MDP.from_edges(**double, edge_features=[[1.0], [2.0]])
    with pytest.raises(InvalidDemos, match="part 0: demonstration 0, step 0: several actions lead"):
        write_features(mdp, [demos], tmp_path / "a")
    alike = MDP.from_edges(**double, edge_features=[[2.0], [2.0]])
    store = write_features(alike, [demos], tmp_path / "b")
    assert store.take(np.arange(1)).features.tolist() == [[2.0]]


def test_groups_must_lie_within_a_part(tmp_path, walked):
    named = walked.replace(groups=[f"g{i // 10}" for i in range(300)])
    store = write_features(crossings(), [named[:100], named[100:]], tmp_path / "a", by_group=True)
    assert store.n == 30
    assert store.parts[1].names()[0] == "g10"
    with raises(InvalidDemos, parameter="source", value="g9"):
        write_features(crossings(), [named[:95], named[95:]], tmp_path / "b", by_group=True)
    with raises(InvalidDemos, parameter="by_group"):
        write_features(crossings(), [walked], tmp_path / "c", by_group=True)
    with raises(InvalidFile, parameter="folder", value=str(tmp_path / "b")):
        FeatureStore.open(tmp_path / "b")


@pytest.fixture
def mix(walked):
    return IntentMixture(2, MaxEnt(bounds=(-5, 5)), init=RewardEnsemble([0.5, 0.5], TASTES), max_iter=0).fit(
        crossings(), walked
    )


def test_assignments_are_the_mixtures_predictions(tmp_path, walked, mix):
    named = Demonstrations(walked.states, walked.offsets, ids=[f"w{i}" for i in range(300)])
    store = write_features(crossings(), [named[:100], walked[100:]], tmp_path / "features")
    seen = []
    paths = assign(mix, store, tmp_path / "out", progress=lambda *report: seen.append(report))
    assert seen == [(100, 300, "part 0"), (300, 300, "part 1")]
    tables = [pq.read_table(path) for path in paths]
    assert tables[0].column_names == ["demo", "intent", "probability_0", "probability_1", "log_likelihood"]
    assert tables[0]["demo"].to_pylist() == [f"w{i}" for i in range(100)]
    assert tables[1]["demo"].to_pylist() == list(range(200))
    whole = pa.concat_tables([table.drop(["demo"]) for table in tables])
    np.testing.assert_array_equal(whole["intent"].to_numpy(), mix.predict(walked))
    np.testing.assert_allclose(whole["probability_1"].to_numpy(), mix.predict_proba(walked)[:, 1], rtol=1e-12)
    np.testing.assert_allclose(whole["log_likelihood"].to_numpy(), mix.score_samples(walked), rtol=1e-12)
    assert assign(mix, store, tmp_path / "out") == paths  # replaced
    (tmp_path / "out" / "part-00002.parquet").write_bytes(b"")
    with raises(InvalidFile, parameter="folder", value=str(tmp_path / "out" / "part-00002.parquet")):
        assign(mix, store, tmp_path / "out")


def test_assignments_of_groups(tmp_path, walked, mix):
    named = walked.replace(groups=np.arange(300) // 10)
    store = write_features(crossings(), [named[:100], named[100:]], tmp_path / "features", by_group=True)
    tables = [pq.read_table(path) for path in assign(mix, store, tmp_path / "out")]
    groups = np.concatenate([table["group"].to_numpy() for table in tables])
    np.testing.assert_array_equal(groups, np.arange(30))
    found = np.concatenate([table["probability_0"].to_numpy() for table in tables])
    np.testing.assert_allclose(found, mix.predict_proba(named, named.groups)[::10, 0], rtol=1e-10)


def test_assignments_need_the_mdp_and_the_trajectories_of_the_fit(tmp_path, walked, mix):
    short = IntentMixture(1, MaxEnt(), max_iter=0).fit(crossings(), walked[walked.lengths <= 4])
    store = write_features(crossings(), [walked], tmp_path / "features")
    with raises(InvalidDemos, parameter="max_length"):
        assign(short, store, tmp_path / "out")
    other = write_features(crossings().replace(gamma=0.9), [walked], tmp_path / "other")
    with raises(InvalidParameter, parameter="mdp"):
        assign(mix, other, tmp_path / "out")


def test_a_part_that_is_missing_is_named_with_its_remedy(tmp_path, walked):
    write_features(crossings(), [walked[:100], walked[100:]], tmp_path)
    (tmp_path / "part-00001.json").unlink()
    with raises(InvalidFile, parameter="folder", value=str(tmp_path / "part-00001.json")):
        FeatureStore.open(tmp_path)
    assert write_features(crossings(), [walked[:100], walked[100:]], tmp_path).n == len(walked)


def test_hidden_folders_and_folders_named_like_files_are_passed_over(tmp_path, walked):
    place = tmp_path / "in"
    for name in ("sub", ".hidden", "_tmp"):
        (place / name).mkdir(parents=True)
        walked.to_parquet(place / name / "a.parquet")
    (place / "b.parquet").mkdir()
    assert [part.name for part in list_parts(place)] == ["sub/a.parquet"]


def test_calls_with_another_mark_are_refused(tmp_path, walked):
    write_features(crossings(), FunctionSource(lambda i: walked, 1, mark="monday"), tmp_path)
    assert write_features(crossings(), FunctionSource(lambda i: walked, 1, mark="monday"), tmp_path).n == len(walked)
    with raises(InvalidFile, parameter="folder", value=str(tmp_path / "part-00000.json")):
        write_features(crossings(), FunctionSource(lambda i: walked, 1, mark="tuesday"), tmp_path)
