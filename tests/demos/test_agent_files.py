"""Files of agents: what is saved is read again, and what is not a file of agents is said to be none."""

import json
import zipfile

import numpy as np
import pytest

from limiirl.demos import Agents
from limiirl.errors import InvalidFile
from limiirl.mdp import MDP

RNG = np.random.default_rng(0)
X, PHI = RNG.normal(size=(2, 4, 5, 3)), RNG.normal(size=(2, 4, 5, 2))
VECTORS, NUMBERS = RNG.normal(size=(2, 4, 5, 2)), RNG.integers(0, 3, size=(2, 4, 5))


def agents(actions=VECTORS, **known) -> Agents:
    live = RNG.random((2, 4, 5)) < 0.7
    live[:, :, 0] = True
    return Agents.from_arrays(list(X), list(actions), list(PHI), list(live), **known)


@pytest.mark.parametrize(
    "known",
    [
        {},
        {"names": ["ann", "Bob the 2nd, né Ø\x00"], "labels": ["in", "out"]},
        {"names": [7, 3], "labels": [0.5, np.inf]},
        {"labels": [True, False]},
    ],
)
@pytest.mark.parametrize("actions", [VECTORS, NUMBERS])
def test_what_is_saved_is_read_again(tmp_path, actions, known):
    given = agents(actions, **known)
    given.save(tmp_path / "agents.npz")
    found = Agents.load(str(tmp_path / "agents.npz"))
    assert found == given
    assert (found.names.tolist(), found.discrete) == (given.names.tolist(), given.discrete)
    for one, two in zip(found, given, strict=True):
        for part, wanted in zip(one, two, strict=True):
            assert part.dtype == wanted.dtype
            assert not part.flags.writeable
    assert [path.name for path in tmp_path.iterdir()] == ["agents.npz"]


def test_agents_of_different_lengths(tmp_path):
    given = Agents.from_arrays([X[0], X[1, :2, :3]], [NUMBERS[0], NUMBERS[1, :2, :3]], [PHI[0], PHI[1, :2, :3]])
    given.save(tmp_path / "agents")
    assert Agents.load(tmp_path / "agents") == given


def test_a_failed_save_leaves_what_was_there(tmp_path):
    with pytest.raises(OSError, match="none"):
        agents().save(tmp_path / "none" / "agents.npz")
    folder = tmp_path / "folder"  # a folder cannot be replaced by a file
    folder.mkdir()
    (folder / "note.txt").write_text("mine")
    with pytest.raises(OSError, match="folder"):
        agents().save(folder)
    assert [str(each.relative_to(tmp_path)) for each in sorted(tmp_path.rglob("*"))] == ["folder", "folder/note.txt"]


def test_no_file_holds_objects(tmp_path):
    agents(names=["ann", "bob"], labels=["x", "y"]).save(tmp_path / "agents.npz")
    with np.load(tmp_path / "agents.npz", allow_pickle=False) as stored:
        assert all(stored[name].dtype.kind in "iufb" for name in stored.files)


def test_truncated_anywhere(tmp_path):
    path = tmp_path / "agents.npz"
    agents().save(path)
    whole = path.read_bytes()
    for length in [0, 1, 3, 4, 100, *range(200, len(whole) - 1, 977), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(InvalidFile, match=r"agents\.npz is truncated"):
            Agents.load(path)


def test_a_flipped_byte_is_noticed_or_harmless(tmp_path):
    path = tmp_path / "agents.npz"
    given = agents()
    given.save(path)
    whole = bytearray(path.read_bytes())
    noticed = 0
    for position in range(0, len(whole), 37):
        broken = whole.copy()
        broken[position] ^= 0xFF
        path.write_bytes(broken)
        try:
            # Dates and other things that no reader needs are not protected by a check sum.
            assert Agents.load(path) == given
        except InvalidFile:
            noticed += 1
    assert noticed > 0.9 * len(whole) / 37


def test_files_that_are_something_else(tmp_path):
    with pytest.raises(InvalidFile, match=r"none\.npz does not exist"):
        Agents.load(tmp_path / "none.npz")
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(InvalidFile, match="no npz signature"):
        Agents.load(tmp_path / "text.npz")
    np.save(tmp_path / "one.npy", X)
    with pytest.raises(InvalidFile, match="single array"):
        Agents.load(tmp_path / "one.npy")
    np.savez(tmp_path / "other.npz", x=X)
    with pytest.raises(InvalidFile, match="no header"):
        Agents.load(tmp_path / "other.npz")
    MDP.from_edges([0, 1], [1, 0]).save(tmp_path / "mdp.npz")
    with pytest.raises(InvalidFile, match=r"'limiirl\.mdp', not 'limiirl\.agents'"):
        Agents.load(tmp_path / "mdp.npz")
    np.savez(tmp_path / "objects.npz", header=np.array([{}], dtype=object))
    with pytest.raises(InvalidFile, match="objects"):
        Agents.load(tmp_path / "objects.npz")


def rewritten(path, *, without=(), **changes) -> None:
    """Write a file of agents again, without some arrays, with others changed; a dict changes the header."""
    with np.load(path) as stored:
        arrays = {name: stored[name] for name in stored.files if name not in without}
    if isinstance(changes.get("header"), dict):
        header = {**json.loads(arrays["header"].tobytes()), **changes["header"]}
        changes["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    np.savez(path, **{**arrays, **changes})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"header": {"version": 2}}, "format version 2"),
        ({"header": {"version": "new"}}, "not 'limiirl.agents'"),
        ({"header": {"n_agents": 3}}, r"damaged: '2\.policy_features'"),
        ({"header": {"n_agents": 0}}, "damaged: records"),
        ({"header": {"texts": 5}}, "damaged"),
        ({"header": np.array([255], dtype=np.uint8)}, "no header"),
        ({"without": ["1.live"]}, r"damaged: '1\.live'"),
        ({"without": ["names"]}, "damaged: 'names'"),
        ({"names": np.arange(3)}, "damaged: names must"),
        ({"1.actions": np.full((4, 5, 2), np.nan)}, r"damaged: actions\[1, 0, 0, 0\]"),
    ],
)
def test_damaged_files(tmp_path, change, message):
    path = tmp_path / "agents.npz"
    agents().save(path)
    rewritten(path, **change)
    with pytest.raises(InvalidFile, match=message):
        Agents.load(path)


def test_a_file_that_another_method_of_compression_wrote(tmp_path):
    path = tmp_path / "agents.npz"
    agents().save(path)
    with zipfile.ZipFile(path) as stored:
        parts = {name: stored.read(name) for name in stored.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in parts.items():
            packed.writestr(name, content)
    whole = bytearray(path.read_bytes())
    assert len(Agents.load(path)) == 2
    whole[30 + len(next(iter(parts)))] = 0xFF  # what is packed begins after a header and a name, by no such byte
    path.write_bytes(whole)
    with pytest.raises(InvalidFile, match="Error -3"):
        Agents.load(path)
