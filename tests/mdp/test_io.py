"""Npz files of an MDP: exact round trips, and errors for corrupted and foreign files."""

import io
import json
import re
import zipfile

import numpy as np
import pytest
from scipy import sparse

from limiirl.errors import InvalidFile, MissingFile
from limiirl.mdp import MDP


def full_mdp(as_sparse):
    rng = np.random.default_rng(8)
    T = rng.random((6, 2, 6)) * (rng.random((6, 2, 6)) < 0.5)
    T[5] = 0.0
    on_state, on_edge = rng.normal(size=(6, 3)), rng.normal(size=(72, 2)) * (rng.random((72, 2)) < 0.3)
    on_action = rng.normal(size=(12, 2))
    if as_sparse:
        on_state, on_action, on_edge = (sparse.csr_array(x) for x in (on_state, on_action, on_edge))
    else:
        on_action, on_edge = on_action.reshape(6, 2, 2), on_edge.reshape(6, 2, 6, 2)
    return MDP.from_dense(
        T,
        p0=[0.1, 0.2, 0.3, 0.4, 0.0, 0.0],
        gamma=1 / 3,
        state_features=on_state,
        action_features=on_action,
        edge_features=on_edge,
        normalise=True,
        feature_names=["Länge", "", "a\0", "新", "e", "f", "\ud800"],
        state_names=[f"node {s}\n" for s in range(6)],
        action_names=["go", "新\ud800"],
    )


def memory(mdp):
    """The bytes of everything that an MDP holds."""
    parts = {name: getattr(mdp, name) for name in ("src", "act", "dst", "prob", "p0", "terminal")}
    for name in ("state_features", "action_features", "edge_features"):
        matrix = getattr(mdp, name)
        if sparse.issparse(matrix):
            parts |= {f"{name}.{part}": getattr(matrix, part) for part in ("data", "indices", "indptr")}
        elif matrix is not None:
            parts[name] = matrix
    return {name: (x.dtype.str, x.shape, x.tobytes()) for name, x in parts.items()}


@pytest.mark.parametrize("as_sparse", [False, True])
def test_round_trip_is_bit_for_bit(tmp_path, as_sparse):
    mdp = full_mdp(as_sparse)
    mdp.save(tmp_path / "m.npz")
    back = MDP.load(tmp_path / "m.npz")
    assert memory(back) == memory(mdp)
    assert back.gamma == mdp.gamma
    assert back.feature_names == mdp.feature_names
    assert (back.state_names, back.action_names) == (mdp.state_names, mdp.action_names)
    assert back == mdp
    assert back.fingerprint() == mdp.fingerprint()
    assert not back.prob.flags.writeable


@pytest.mark.parametrize(
    "mdp",
    [
        MDP.from_edges([0], [1]),
        MDP.from_edges([], [], n_states=1),
        MDP.from_edges([0], [0], state_features=[[-0.0, 5e-324, -1e308]]),
        MDP.from_edges([0], [1], edge_features=[[1.0]]),
        MDP.from_edges([0], [1], state_features=sparse.csr_array((2, 3))),
    ],
    ids=["identity", "no edges", "extreme numbers", "edges only", "empty sparse"],
)
def test_round_trip_of_special_cases(tmp_path, mdp):
    mdp.save(str(tmp_path / "m.npz"))
    back = MDP.load(str(tmp_path / "m.npz"))
    assert memory(back) == memory(mdp)
    assert back == mdp


def test_path_is_used_unchanged_and_no_temporary_file_remains(tmp_path):
    full_mdp(True).save(tmp_path / "no_suffix")
    full_mdp(False).save(tmp_path / "no_suffix")
    assert [path.name for path in tmp_path.iterdir()] == ["no_suffix"]
    assert MDP.load(tmp_path / "no_suffix") == full_mdp(False)


def test_file_is_a_plain_npz_without_pickle(tmp_path):
    full_mdp(True).save(tmp_path / "m.npz")
    with np.load(tmp_path / "m.npz", allow_pickle=False) as arrays:
        assert all(arrays[name].dtype != object for name in arrays.files)
        header = json.loads(arrays["header"].tobytes())
    assert (header["format"], header["version"]) == ("limiirl.mdp", 1)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_truncated_file_is_rejected(tmp_path, share):
    path = tmp_path / "m.npz"
    full_mdp(True).save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(InvalidFile, match=r"m\.npz is truncated"):
        MDP.load(path)


def test_flipped_bits_are_detected(tmp_path):
    path = tmp_path / "m.npz"
    mdp = full_mdp(False)
    mdp.save(path)
    whole = bytearray(path.read_bytes())
    whole[whole.find(mdp.prob.tobytes()) + 3] ^= 1
    path.write_bytes(bytes(whole))
    with pytest.raises(InvalidFile, match="Bad CRC"):
        MDP.load(path)


def npy_bytes():
    stream = io.BytesIO()
    np.save(stream, np.arange(3))
    return stream.getvalue()


def npz_bytes(**arrays):
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def header(**fields):
    return np.frombuffer(json.dumps(fields).encode(), dtype=np.uint8)


def foreign_zip():
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("readme.txt", "hello")
    return stream.getvalue()


FOREIGN = [
    (b"demo,t,state\n0,0,1\n", "not an npz file"),
    (npy_bytes(), "single array"),
    (foreign_zip(), "no header"),
    (npz_bytes(weights=np.ones(3)), "no header"),
    (npz_bytes(header=np.ones(3)), "no header"),
    (npz_bytes(header=header(format="limiirl.ensemble", version=1)), "'limiirl.ensemble', not 'limiirl.mdp'"),
    (
        npz_bytes(header=header(format="limiirl.mdp", version=2)),
        "format version 2",
    ),
    (npz_bytes(header=header(format="limiirl.mdp", version=1)), "array 'src' is missing"),
]


@pytest.mark.parametrize(("content", "message"), FOREIGN)
def test_foreign_and_newer_files_are_rejected(tmp_path, content, message):
    path = tmp_path / "m.npz"
    path.write_bytes(content)
    with pytest.raises(InvalidFile, match=re.escape(message)):
        MDP.load(path)


def test_pickled_objects_are_never_read(tmp_path):
    path = tmp_path / "m.npz"
    path.write_bytes(npz_bytes(header=np.array([{"format": "limiirl.mdp"}], dtype=object)))
    with pytest.raises(InvalidFile, match="not an npz file"):
        MDP.load(path)


def test_inconsistent_arrays_in_a_file_are_rejected(tmp_path):
    path = tmp_path / "m.npz"
    full_mdp(False).save(path)
    with np.load(path) as stored:
        arrays = dict(stored)
    arrays["prob"] = arrays["prob"] * 0.5
    path.write_bytes(npz_bytes(**arrays))
    with pytest.raises(InvalidFile, match="state 0, action 0"):
        MDP.load(path)


def test_missing_file_raises_missing_file_and_file_not_found(tmp_path):
    with pytest.raises(MissingFile, match="does not exist") as caught:
        MDP.load(tmp_path / "nothing.npz")
    assert isinstance(caught.value, FileNotFoundError)
