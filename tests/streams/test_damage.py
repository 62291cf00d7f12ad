"""Stores that were damaged: what is told, and that the remedy which is told works."""

import gc
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from limiirl import IntentMixture, MaxEnt, RewardEnsemble
from limiirl.errors import InvalidFile, LimiirlWarning
from limiirl.kernels.e_step import Rows
from limiirl.streams import FeatureStore, fit_streamed, write_features
from limiirl.streams.store import REMEDY, PartFacts, StoredPart
from tests.helpers import raises
from tests.oracles.mixture import TASTES, crossings, walks


@pytest.fixture
def parts():
    demos, _ = walks(300, seed=1)
    named = demos.replace(ids=[f"w{i}" for i in range(300)])
    return [named[:100], named[100:]]


def read_everything(folder):
    """Open a store as a fit does, and read it whole."""
    mix = IntentMixture(2, MaxEnt(bounds=(-5, 5)), init=RewardEnsemble([0.5, 0.5], TASTES), max_iter=0)
    store = FeatureStore.open(folder)
    fit_streamed(mix, store.mdp(), store)
    store.verify()


def flip(path, at, bit=1):
    content = bytearray(path.read_bytes())
    content[at] ^= bit
    path.write_bytes(content)


def flipped(kind, at):
    return lambda folder: flip(folder / f"part-00001.{kind}.npy", at)


def reshaped(folder):
    path = folder / "part-00001.features.npy"
    size = path.stat().st_size
    np.save(path, np.load(path).reshape(-1, 1))
    assert path.stat().st_size == size


def smaller(folder):
    """Numbers of half the size, twice as many."""
    path = folder / "part-00001.base.npy"
    np.save(path, np.load(path).view(np.float32))


def header(name, value, within=None, file="part-00001.json"):
    def change(folder):
        path = folder / ("store.json" if name == "parts" else file)
        content = json.loads(path.read_text())
        (content if within is None else content[within])[name] = value
        path.write_text(json.dumps(content))

    return change


def mdp_junk(folder):
    (folder / "mdp.npz").write_bytes(b"junk")


def mdp_of_another(folder):
    crossings().replace(gamma=0.5).save(folder / "mdp.npz")


DAMAGES = {
    "a bit of the features": flipped("features", -1),
    "a bit of log q": flipped("base", 200),
    "a bit of the names": flipped("names", -4),
    "the magic": flipped("features", 0),
    "numpy's header": flipped("features", 20),
    "the shape": reshaped,
    "the type": smaller,
    "junk for an MDP": mdp_junk,
    "another MDP": mdp_of_another,
    "n too large": header("n", 201, "facts"),
    "n of no number": header("n", "x", "facts"),
    "n of nothing": header("n", 0, "facts"),
    "loose of one": header("loose", [1], "facts"),
    "fewer features": header("n_features", 2),
    "fewer features of the store": header("n_features", 2, file="store.json"),
} | {
    f"{name} {value!r}": header(name, value)
    for name, values in {
        "sizes": (None, 3, "x", [], {}, [1], {"features": "x", "base": 1}, {"features": 1, "base": -1}),
        "parts": (3, "x", [], {}, [1], True),
        "facts": (None, [], {}),
        "source": (None, 3),
        "by_group": (0,),
    }.items()
    for value in values
}


@pytest.mark.filterwarnings("ignore::limiirl.errors.LimiirlWarning")
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_what_is_damaged_is_told_and_the_remedy_works(tmp_path, parts, damage):
    store = write_features(crossings(), parts, tmp_path)
    damage(tmp_path)
    with raises(InvalidFile, parameter="folder") as caught:
        read_everything(tmp_path)
    assert str(caught.value).endswith(REMEDY)
    assert str(caught.value.value).startswith(str(tmp_path))
    assert write_features(crossings(), parts, tmp_path) == store
    read_everything(tmp_path)


@pytest.mark.parametrize("kind", ["features", "base"])
def test_numbers_of_another_type_are_not_taken_for_others(tmp_path, parts, kind):
    store = write_features(crossings(), parts, tmp_path)
    path = tmp_path / f"part-00001.{kind}.npy"
    np.save(path, np.load(path).view(np.int64))
    with raises(InvalidFile, parameter="folder", value=str(path)):
        store.take(np.arange(300))


def test_only_the_damaged_part_is_made_anew_with_a_warning(tmp_path, parts):
    write_features(crossings(), parts, tmp_path)
    flip(tmp_path / "part-00001.features.npy", -1)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("part-*")}
    with pytest.warns(LimiirlWarning, match=r"part-00001.json.*rebuilt now") as said:
        write_features(crossings(), parts, tmp_path)
    assert len(said) == 1
    changed = {path.name for path in tmp_path.glob("part-*") if before[path.name] != path.stat().st_mtime_ns}
    assert {name.partition(".")[0] for name in changed} == {"part-00001"}


@pytest.mark.parametrize(
    ("name", "value"), [("mdp", 3), ("by_group", "yes"), ("n_features", None), ("format", "other")]
)
def test_a_store_that_nobody_can_say_what_it_is_asks_for_another_folder(tmp_path, parts, name, value):
    write_features(crossings(), parts, tmp_path / "a")
    path = tmp_path / "a" / "store.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: value}))
    for job in (FeatureStore.open, lambda folder: write_features(crossings(), parts, folder)):
        with raises(InvalidFile, parameter="folder", value=str(path)):
            job(tmp_path / "a")


def test_a_full_disk_is_an_error_and_no_truncated_part(tmp_path, parts):
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # 200 rows of three features: numpy would leave the last 900 bytes or so to a buffer, whose errors it does not see.
    resource.setrlimit(resource.RLIMIT_FSIZE, (128 + 200 * 24 - 8, before[1]))
    try:
        with pytest.raises(OSError, match="part-00001.features.npy"):
            write_features(crossings(), [part.replace(ids=None) for part in parts], tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not (tmp_path / "part-00001.json").exists()


def test_threads_may_map_a_part_at_once(tmp_path):
    about = {"source": "", "mark": "", "mdp": "", "by_group": False}
    rows = Rows(np.ones((7, 3)), np.zeros(7), np.ones(7))
    StoredPart.write(tmp_path / "part.json", rows, None, PartFacts(7, 7, 4, 0, None, 0), about)
    part = StoredPart.open(tmp_path / "part.json")

    def read(_):
        return [part.take(np.arange(3)).features.sum() for _ in range(60)]

    def give_way(*_):
        time.sleep(0)

    # Another thread takes over in the middle of nearly everything.
    interval, threshold = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(20)
    gc.callbacks.append(give_way)
    try:
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(read, range(16)))
    finally:
        gc.callbacks.remove(give_way)
        gc.set_threshold(*threshold)
        sys.setswitchinterval(interval)
    np.testing.assert_array_equal(found, 9.0)
