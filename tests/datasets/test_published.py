"""Readers of published data sets: the shared data, and files with faults."""

import gzip
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from limiirl import datasets
from limiirl.datasets import base
from limiirl.errors import InvalidFile, InvalidParameter
from tests.helpers import claim_size, raises

SharedData = Callable[[str], Path]


class TestSharedData:
    """Numbers are from the READMEs of the data sets."""

    def test_mouse_labyrinth(self, shared_data: SharedData):
        data = datasets.load_mouse_labyrinth(shared_data("mouse_labyrinth"))
        assert len(np.unique(data.demos.groups)) == 19
        restricted = np.unique(data.demos.groups[data.condition == "restricted"])
        assert restricted.tolist() == ["B1", "B2", "B3", "B4", "C1", "C3", "C6", "C7", "C8", "C9"]
        assert data.demos.steps(data.mdp).edge.min() >= 0
        assert data.mdp.state_names[116] == "water"

    def test_swirl_labyrinth(self, shared_data: SharedData):
        data = datasets.load_swirl_labyrinth(shared_data("swirl_labyrinth"))
        assert (len(data.demos), int(data.test.sum()), data.demos.n_transitions) == (238, 48, 238 * 500)
        assert data.mdp.n_edges == 4 * 127

    def test_swirl_gridworld(self, shared_data: SharedData):
        data = datasets.load_swirl_gridworld(shared_data("swirl_gridworld"))
        assert (len(data.demos), int(data.test.sum())) == (200, 40)
        assert data.intents.size == data.demos.n_transitions == 200 * 500
        assert data.demos.steps(data.mdp).edge.min() >= 0

    def test_borlange(self, shared_data: SharedData):
        data = datasets.load_borlange(shared_data("borlange"))
        assert (len(data.demos), data.mdp.n_edges, int(data.mdp.terminal.sum())) == (1832, 21452, 466)
        assert data.splits.shape == (20, 1832)
        assert set(data.splits.sum(axis=1)) == {366}

    @pytest.mark.parametrize(("fold", "n", "n_test"), [(None, 24468, None), (0, 4993, 4893)])
    def test_shanghai(self, shared_data: SharedData, fold, n, n_test):
        data = datasets.load_shanghai(shared_data("shanghai_taxi_rcm"), fold=fold, size=100)
        assert (data.mdp.n_states, data.mdp.n_edges, len(data.demos)) == (714, 1737, n)
        assert (None if data.test is None else int(data.test.sum())) == n_test
        assert data.demos.steps(data.mdp).edge.min() >= 0
        # Every link has kilometres of exactly one class.
        assert np.all(np.count_nonzero(np.asarray(data.mdp.state_features)[:, :5], axis=1) == 1)

    def test_unknown_fold_is_refused(self, shared_data: SharedData):
        with raises(InvalidParameter, parameter="fold", value=5):
            datasets.load_shanghai(shared_data("shanghai_taxi_rcm"), fold=5)


@pytest.mark.parametrize(
    "load",
    [datasets.load_mouse_labyrinth, datasets.load_swirl_labyrinth, datasets.load_borlange, datasets.load_shanghai],
)
def test_missing_file_is_named(load, tmp_path):
    with raises(InvalidFile):
        load(tmp_path)


def test_missing_column_is_named(tmp_path):
    (tmp_path / "bouts.csv").write_text("mouse,nodes\nA,0 1 0\n")
    with pytest.raises(InvalidFile, match="water_restricted"):
        datasets.load_mouse_labyrinth(tmp_path)


@pytest.mark.parametrize("nodes", ["0 x 0", "0 127 0", "0 -1 0", ""])
def test_invalid_states_are_named_with_their_row(tmp_path, nodes):
    (tmp_path / "bouts.csv").write_text(f"mouse,water_restricted,nodes\nA,1,0 1 0\nA,1,{nodes}\n")
    with pytest.raises(InvalidFile, match="row 3"):
        datasets.load_mouse_labyrinth(tmp_path)


def test_text_in_a_column_of_numbers_is_named(tmp_path):
    header = "src,dst,travel_time,turn_angle,to_destination\n"
    (tmp_path / "link_pairs.csv.gz").write_bytes(gzip.compress(f"{header}0,1,0.5,0.1,0\n1,0,fast,0.1,0\n".encode()))
    with pytest.raises(InvalidFile, match=r"row 3, column travel_time"):
        datasets.load_borlange(tmp_path)


def test_columns_are_read_by_name(tmp_path):
    text = "note,dst,src,travel_time,turn_angle,to_destination\nx,1,0,0.5,0.1,0\nx,2,1,0.7,3.14,0\n"
    (tmp_path / "link_pairs.csv.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "trips.csv.gz").write_bytes(gzip.compress(b"path\n0_1_2\n"))
    np.savez(tmp_path / "splits.npz", test=np.ones((1, 1), dtype=bool))
    mdp = datasets.load_borlange(tmp_path).mdp
    np.testing.assert_array_equal([mdp.src, mdp.dst], [[0, 1], [1, 2]])
    np.testing.assert_allclose(np.asarray(mdp.edge_features), [[0.5, 0, 1, 0], [0.7, 0, 1, 1]], rtol=1e-15)


@pytest.mark.parametrize("state", [-1, 2])
def test_states_and_actions_outside_of_the_labyrinth_are_refused(tmp_path, state):
    arrays = {"states": [[0, state]], "actions": [[0, 0]], "next_state": [[1], [0]]}
    np.savez(tmp_path / "labyrinth.npz", **arrays)
    with raises(InvalidFile):
        datasets.load_swirl_labyrinth(tmp_path)


def test_truncated_archives_are_refused(shared_data: SharedData, tmp_path):
    for name in ("link_pairs.csv.gz", "trips.csv.gz", "splits.npz"):
        shutil.copy(shared_data("borlange") / name, tmp_path / name)
    path = tmp_path / "splits.npz"
    path.write_bytes(path.read_bytes()[:500])
    with raises(InvalidFile):
        datasets.load_borlange(tmp_path)
    path = tmp_path / "link_pairs.csv.gz"
    path.write_bytes(path.read_bytes()[:-500])
    with raises(InvalidFile):
        datasets.load_borlange(tmp_path)


def test_arrays_that_are_missing_or_need_pickle_are_refused(tmp_path):
    np.savez(tmp_path / "labyrinth.npz", states=np.zeros((1, 2)), actions=np.zeros((1, 2)))
    with raises(InvalidFile):
        datasets.load_swirl_labyrinth(tmp_path)
    objects = np.array([[None]], dtype=object)
    np.savez(tmp_path / "labyrinth.npz", states=objects, actions=objects, next_state=objects)
    with raises(InvalidFile):
        datasets.load_swirl_labyrinth(tmp_path)


def test_compressed_text_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "rows.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * 100_000))
    assert len(base.read_rows(path, ["a", "b"])) == 100_000
    monkeypatch.setattr(base, "_MOST_BYTES", 100_000)
    with raises(InvalidFile, parameter="path", value=str(path)):
        base.read_rows(path, ["a", "b"])


def test_arrays_that_exceed_the_memory_and_objects_are_refused(tmp_path: Path):
    path = tmp_path / "arrays.npz"
    claim_size(path, 2**50)
    with raises(InvalidFile, parameter="path", value=str(path)):
        base.read_arrays(path, ["a"])
    np.savez(path, a=np.array([{}], dtype=object))
    with raises(InvalidFile, parameter="path", value=str(path)):
        base.read_arrays(path, ["a"])
