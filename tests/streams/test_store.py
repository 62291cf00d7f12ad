"""`FeatureStore`: content, rejection of corrupted files and files of other stores, and generated stores."""

import gc
import json
import pickle
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from limiirl import IntentMixture, MaxEnt, RewardEnsemble
from limiirl.errors import InvalidFile, InvalidParameter, LimiirlWarning, MissingFile
from limiirl.kernels.e_step import MixtureParameters, Rows
from limiirl.streams import FeatureStore, assign, fit_streamed, write_features
from limiirl.streams.passes import sum_store
from limiirl.streams.store import REMEDY, ShardInfo, StoredShard
from tests.helpers import raises
from tests.oracles.mixture import TASTES, crossings
from tests.oracles.stores import files, flip, quick_mixture

pytestmark = pytest.mark.filterwarnings("ignore::limiirl.errors.ConvergenceWarning")


def test_a_file_is_rejected_as_folder(tmp_path, few, small_store):
    (tmp_path / "file").write_text("mine")
    fitted = fit_streamed(quick_mixture(), crossings(), small_store)
    for folder in (tmp_path / "file", tmp_path / "file" / "within"):
        with raises(InvalidFile, parameter="folder", value=str(folder)):
            write_features(crossings(), [few], folder)
        with raises(InvalidFile, parameter="folder", value=str(folder)):
            assign(fitted, small_store, folder)
    for job in (
        lambda: write_features(crossings(), [few], 3),
        lambda: assign(fitted, small_store, 3),
        lambda: FeatureStore.open(3),
    ):
        with raises(InvalidParameter, parameter="folder", value=3):
            job()
    assert (tmp_path / "file").read_text() == "mine"


def test_a_store_can_be_passed_as_its_folder(tmp_path, small_store):
    fitted = fit_streamed(quick_mixture(), crossings(), small_store)
    by_name = fit_streamed(quick_mixture(), crossings(), str(tmp_path / "features"))
    np.testing.assert_array_equal(by_name.thetas_, fitted.thetas_)
    assert len(assign(fitted, tmp_path / "features", tmp_path / "out")) == 1
    with raises(InvalidParameter, parameter="store", value=None):
        fit_streamed(quick_mixture(), crossings(), None)
    with raises(InvalidParameter, parameter="store", value=3):
        assign(fitted, 3, tmp_path / "out")


N = 3


GOOD = (np.ones((N, 3)), np.zeros(N), np.ones(N))


@pytest.mark.parametrize(
    ("result", "value"),
    [
        (Rows(np.ones((N, 2)), *GOOD[1:]), (3, 2)),
        (Rows(np.ones((N, 7)), *GOOD[1:]), (3, 7)),
        (Rows(np.ones(N), *GOOD[1:]), (3,)),
        (Rows(GOOD[0], np.zeros((N, 2)), GOOD[2]), (3, 2)),
        (Rows(*GOOD[:2], np.ones((N, 1))), (3, 1)),
        (Rows(GOOD[0], 0.0, GOOD[2]), ()),
        (Rows(np.ones((2, 3)), np.zeros(2), np.ones(2)), (2, 3)),
        (Rows([["a"] * 3] * N, *GOOD[1:]), None),
        (Rows([[1.0], [1.0, 2.0], [1.0]], *GOOD[1:]), None),
        (None, None),
        (GOOD[0], None),
        (GOOD[:2], None),
    ],
    ids=range(12),
)
def test_generated_rows_of_the_wrong_shape_are_rejected(result, value):
    """The value of the error is the wrong shape, or the object itself."""
    store = FeatureStore.from_function(lambda i: result, [N], 3, longest=4)
    for job in (
        lambda: fit_streamed(quick_mixture(), crossings(), store),
        lambda: sum_store(store, MixtureParameters(TASTES, np.zeros(2), np.log([0.5, 0.5])), None),
    ):
        with raises(InvalidParameter, parameter="function", index=0) as caught:
            job()
        assert caught.value.value is result if value is None else caught.value.value == value


@pytest.mark.parametrize(
    ("changed", "value", "index"),
    [
        ({"sizes": ["a"]}, "a", 0),
        ({"sizes": [N, -1.5]}, -1.5, 1),
        ({"sizes": [np.inf]}, np.inf, 0),
        ({"sizes": [None]}, None, 0),
        ({"sizes": [4, 0]}, 0, 1),
        ({"sizes": [2.5]}, 2.5, 0),
        ({"sizes": []}, [], None),
        ({"sizes": 3}, 3, None),
        ({"longest": "5"}, "5", None),
        ({"longest": 0}, 0, None),
        ({"n_features": 2.5}, 2.5, None),
        ({"function": 3}, 3, None),
        ({"version": 3}, 3, None),
    ],
    ids=str,
)
def test_from_function_rejects_invalid_arguments(changed, value, index):
    given = {"function": lambda i: Rows(*GOOD), "sizes": [N], "n_features": 3, "longest": 4} | changed
    with raises(InvalidParameter, parameter=next(iter(changed)), value=value, index=index):
        FeatureStore.from_function(**given)


def test_nan_sizes_are_rejected():
    with raises(InvalidParameter, parameter="sizes", index=1):
        FeatureStore.from_function(lambda i: Rows(*GOOD), [N, np.nan], 3, longest=4)


def test_sizes_may_be_any_integers():
    for sizes in ((N, N), np.array([N, N]), [float(N), np.int32(N)]):
        assert FeatureStore.from_function(lambda i: Rows(*GOOD), sizes, 3, longest=4).n == 2 * N


def read_everything(folder):
    """Open a store as a fit does, and read all of it."""
    mix = IntentMixture(2, MaxEnt(bounds=(-5, 5)), init=RewardEnsemble([0.5, 0.5], TASTES), max_iter=0)
    store = FeatureStore.open(folder)
    fit_streamed(mix, store.mdp(), store)
    store.verify()


def flip_in(kind, at):
    return lambda folder: flip(folder / f"shard-00001.{kind}.npy", at)


def reshape(folder):
    path = folder / "shard-00001.features.npy"
    size = path.stat().st_size
    np.save(path, np.load(path).reshape(-1, 1))
    assert path.stat().st_size == size


def shrink(folder):
    """Replace the numbers by float32 of the same total size."""
    path = folder / "shard-00001.base.npy"
    np.save(path, np.load(path).view(np.float32))


def header(name, value, within=None, file="shard-00001.json"):
    def change(folder):
        path = folder / ("store.json" if name == "shards" else file)
        content = json.loads(path.read_text())
        (content if within is None else content[within])[name] = value
        path.write_text(json.dumps(content))

    return change


def write_junk_mdp(folder):
    (folder / "mdp.npz").write_bytes(b"junk")


def write_another_mdp(folder):
    crossings().replace(gamma=0.5).save(folder / "mdp.npz")


DAMAGES = {
    "a bit of the features": flip_in("features", -1),
    "a bit of log q": flip_in("base", 200),
    "a bit of the names": flip_in("names", -4),
    "the magic": flip_in("features", 0),
    "numpy's header": flip_in("features", 20),
    "the shape": reshape,
    "the type": shrink,
    "junk for an MDP": write_junk_mdp,
    "another MDP": write_another_mdp,
    "n too large": header("n", 201, "info"),
    "n of no number": header("n", "x", "info"),
    "n of nothing": header("n", 0, "info"),
    "open_ended of one": header("open_ended", [1], "info"),
    "fewer features": header("n_features", 2),
    "fewer features of the store": header("n_features", 2, file="store.json"),
} | {
    f"{name} {value!r}": header(name, value)
    for name, values in {
        "sizes": (None, 3, "x", [], {}, [1], {"features": "x", "base": 1}, {"features": 1, "base": -1}),
        "shards": (3, "x", [], {}, [1], True),
        "info": (None, [], {}),
        "source": (None, 3),
        "by_group": (0,),
    }.items()
    for value in values
}


@pytest.mark.filterwarnings("ignore::limiirl.errors.LimiirlWarning")
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damage_is_reported_and_the_remedy_works(tmp_path, named_shards, damage):
    store = write_features(crossings(), named_shards, tmp_path)
    damage(tmp_path)
    with raises(InvalidFile, parameter="folder") as caught:
        read_everything(tmp_path)
    assert str(caught.value).endswith(REMEDY)
    assert str(caught.value.value).startswith(str(tmp_path))
    assert write_features(crossings(), named_shards, tmp_path) == store
    read_everything(tmp_path)


@pytest.mark.parametrize("kind", ["features", "base"])
def test_arrays_of_another_type_are_rejected(tmp_path, named_shards, kind):
    store = write_features(crossings(), named_shards, tmp_path)
    path = tmp_path / f"shard-00001.{kind}.npy"
    np.save(path, np.load(path).view(np.int64))
    with raises(InvalidFile, parameter="folder", value=str(path)):
        store.take(np.arange(300))


@pytest.mark.parametrize(
    ("name", "value"), [("mdp", 3), ("by_group", "yes"), ("n_features", None), ("format", "other")]
)
def test_a_corrupted_store_header_is_rejected(tmp_path, named_shards, name, value):
    write_features(crossings(), named_shards, tmp_path / "a")
    path = tmp_path / "a" / "store.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: value}))
    for job in (FeatureStore.open, lambda folder: write_features(crossings(), named_shards, folder)):
        with raises(InvalidFile, parameter="folder", value=str(path)):
            job(tmp_path / "a")


def test_threads_can_map_a_shard_concurrently(tmp_path):
    provenance = {"source": "", "source_checksum": "", "mdp": "", "by_group": False}
    rows = Rows(np.ones((7, 3)), np.zeros(7), np.ones(7))
    StoredShard.write(tmp_path / "shard.json", rows, None, ShardInfo(7, 7, 4, 0, None, 0), provenance)
    shard = StoredShard.open(tmp_path / "shard.json")

    def read(_):
        return [shard.take(np.arange(3)).features.sum() for _ in range(60)]

    def give_way(*_):
        time.sleep(0)

    # Switch threads as often as possible.
    interval, threshold = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(20)
    gc.callbacks.append(give_way)
    try:
        with ThreadPoolExecutor(8) as pool:
            result = list(pool.map(read, range(16)))
    finally:
        gc.callbacks.remove(give_way)
        gc.set_threshold(*threshold)
        sys.setswitchinterval(interval)
    np.testing.assert_array_equal(result, 9.0)


def test_a_store_has_the_features_of_the_demonstrations(tmp_path, walked):
    store = write_features(crossings(), files(tmp_path / "in", walked, 100, 101), tmp_path / "out")
    assert [shard.info.n for shard in store.shards] == [100, 1, 199]
    assert [shard.name for shard in store.shards] == ["walks-0.parquet", "walks-1.parquet", "walks-2.parquet"]
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
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "shard-00000.features.npy"), rows.features[:100])


@pytest.mark.parametrize("kind", ["features", "base"])
def test_a_truncated_shard_is_reported_and_rebuilt(tmp_path, walked, kind):
    folder, out = files(tmp_path / "in", walked, 100), tmp_path / "out"
    store = write_features(crossings(), folder, out)
    damaged = out / f"shard-00001.{kind}.npy"
    damaged.write_bytes(damaged.read_bytes()[:-8])
    with raises(InvalidFile, parameter="folder", value=str(damaged)):
        FeatureStore.open(out)
    with pytest.warns(LimiirlWarning, match="rebuilt"):
        again = write_features(crossings(), folder, out)
    assert again == store
    damaged.unlink()
    with raises(InvalidFile, parameter="folder", value=str(damaged)):
        FeatureStore.open(out)


def test_verify_detects_a_changed_bit(tmp_path, walked):
    store = write_features(crossings(), [walked], tmp_path)
    content = bytearray((tmp_path / "shard-00000.features.npy").read_bytes())
    content[-1] ^= 1
    (tmp_path / "shard-00000.features.npy").write_bytes(content)
    with raises(InvalidFile, parameter="folder", value=str(tmp_path / "shard-00000.json")):
        store.verify()


def test_corrupted_headers_are_reported(tmp_path, walked):
    write_features(crossings(), [walked], tmp_path)
    header = tmp_path / "shard-00000.json"
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
