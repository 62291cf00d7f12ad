"""Archives: round trips, and errors for corrupted and foreign files."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limiirl._io import FileFormat, as_path, atomic_write, escape_formula, load_json, read_archive, write_archive
from limiirl.errors import InvalidFile, InvalidParameter
from tests.helpers import claim_size, raises

FORMAT = FileFormat("limiirl.thing", 2, "a thing", "Thing.save")
ARRAYS = {"a": np.arange(6).reshape(2, 3), "b": np.array([np.nan, -0.0, np.inf]), "c": np.zeros((0, 4), dtype=np.int8)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "thing.npz"


def test_header_and_arrays_round_trip(path: Path):
    words = {"name": "Foz do Douro \u00e9 \u0000", "nested": {"list": [1, 2.5, None, True]}}
    write_archive(path, FORMAT, words, ARRAYS)
    header, arrays = read_archive(path, FORMAT)
    assert header == {"format": "limiirl.thing", "version": 2} | words
    assert arrays.keys() == ARRAYS.keys()
    for name, wanted in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], wanted)
        assert arrays[name].dtype == wanted.dtype


def test_failed_write_leaves_no_file(path: Path):
    with pytest.raises(TypeError):
        write_archive(path, FORMAT, {"not JSON": object()}, ARRAYS)
    with pytest.raises(ValueError, match="allow_pickle"):
        write_archive(path, FORMAT, {}, {"objects": np.array([{}], dtype=object)})
    assert list(path.parent.iterdir()) == []


def test_failed_write_keeps_the_old_file(path: Path):
    write_archive(path, FORMAT, {"n": 1}, ARRAYS)
    with pytest.raises(ValueError, match="allow_pickle"):
        write_archive(path, FORMAT, {"n": 2}, {"objects": np.array([{}], dtype=object)})
    assert read_archive(path, FORMAT)[0]["n"] == 1


@pytest.mark.parametrize("keep", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_truncated(path: Path, keep: float):
    write_archive(path, FORMAT, {}, {"a": np.random.default_rng(0).normal(size=300)})
    whole = path.read_bytes()
    path.write_bytes(whole[: int(keep * len(whole))])
    with pytest.raises(InvalidFile, match=r"thing\.npz is truncated.*Thing\.save"):
        read_archive(path, FORMAT)


def test_flipped_byte_is_detected(path: Path):
    write_archive(path, FORMAT, {}, {"a": np.random.default_rng(0).normal(size=3000)})
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2] ^= 0xFF
    path.write_bytes(whole)
    with pytest.raises(InvalidFile, match="truncated"):
        read_archive(path, FORMAT)


def test_missing_file_and_folder_are_rejected(tmp_path: Path):
    with pytest.raises(InvalidFile, match=r"x\.npz does not exist"):
        read_archive(tmp_path / "x.npz", FORMAT)
    with pytest.raises(InvalidFile, match="is a folder"):
        read_archive(tmp_path, FORMAT)


def test_files_of_another_kind_are_rejected(path: Path):
    path.write_text("id,lat,lon\n", encoding="ascii")
    with pytest.raises(InvalidFile, match="no npz signature") as caught:
        read_archive(path, FORMAT)
    assert "pickle" not in str(caught.value)
    with path.open("wb") as stream:
        np.save(stream, np.arange(3))
    with pytest.raises(InvalidFile, match="a single array"):
        read_archive(path, FORMAT)
    write_archive(path, FileFormat("limiirl.other", 1, "another", "Other.save"), {}, ARRAYS)
    with pytest.raises(InvalidFile, match=r"'limiirl\.other', not 'limiirl\.thing'"):
        read_archive(path, FORMAT)


@pytest.mark.parametrize("header", [b"", b"[1]", b"\xff", b'{"format": "limiirl.thing"}', b"3"])
def test_invalid_headers_are_rejected(path: Path, header: bytes):
    np.savez(path, header=np.frombuffer(header, dtype=np.uint8))
    with pytest.raises(InvalidFile, match="it has no header"):
        read_archive(path, FORMAT)
    np.savez(path, a=np.arange(3))
    with pytest.raises(InvalidFile, match="it has no header"):
        read_archive(path, FORMAT)


@pytest.mark.parametrize(("version", "words"), [(3, "reads up to 2. Upgrade limiirl"), ("2", "not 'limiirl.thing'")])
def test_versions(path: Path, version: Any, words: str):
    text = json.dumps({"format": FORMAT.name, "version": version}).encode()
    np.savez(path, header=np.frombuffer(text, dtype=np.uint8))
    with pytest.raises(InvalidFile, match=words):
        read_archive(path, FORMAT)


def test_older_versions_are_read(path: Path):
    write_archive(path, FORMAT._replace(version=1), {}, ARRAYS)
    assert read_archive(path, FORMAT)[0]["version"] == 1


def test_pickles_are_never_opened(path: Path):
    inner = io.BytesIO()
    np.save(inner, np.array([{"evil": 1}], dtype=object), allow_pickle=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", inner.getvalue())
    with pytest.raises(InvalidFile, match="truncated"):
        read_archive(path, FORMAT)


def test_missing_folder_is_the_file_name_of_the_error(tmp_path):
    with pytest.raises(FileNotFoundError) as caught, atomic_write(tmp_path / "nowhere" / "a.npz"):
        pass
    assert caught.value.filename == str(tmp_path / "nowhere")


def test_target_that_is_a_folder_is_the_file_name_of_the_error(tmp_path):
    (tmp_path / "a.npz").mkdir()
    with pytest.raises(OSError, match=r"a\.npz") as caught, atomic_write(tmp_path / "a.npz"):
        pass
    assert caught.value.filename == str(tmp_path / "a.npz")
    assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]


@pytest.mark.parametrize(("value", "shown"), [(None, None), (3, 3), (["a"], ["a"]), ("a\0b", "a\0b"), (b"a", b"a")])
def test_paths_that_no_file_has_are_rejected(value, shown):
    with raises(InvalidParameter, parameter="folder", value=shown):
        as_path(value, "folder")


def test_deeply_nested_json_is_invalid():
    assert load_json(b"[[1]]") == [[1]]
    with pytest.raises(ValueError, match="nested"):
        load_json("[" * 100_000)


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("+A1", "'+A1"),
        ("-A1", "'-A1"),
        ("@x", "'@x"),
        ("\tx", "'\tx"),
        ("-1.5e3", "-1.5e3"),
        ("a=", "a="),
    ],
)
def test_formulas_in_cells_have_an_apostrophe(text, cell):
    assert escape_formula(text) == cell


@pytest.mark.parametrize("n", [2**31, 2**50, 2**62])
def test_archives_that_claim_more_than_the_memory_are_rejected(path: Path, n):
    claim_size(path, n)
    with raises(InvalidFile, parameter="path", value=str(path)) as caught:
        read_archive(path, FORMAT)
    assert "pickle" not in str(caught.value)


def test_objects_are_rejected_without_advice_to_unpickle_them(path: Path):
    np.savez(path, a=np.array([{}, None], dtype=object))
    with raises(InvalidFile, parameter="path", value=str(path)) as caught:
        read_archive(path, FORMAT)
    assert "pickle" not in str(caught.value)


def test_loops_of_symbolic_links_are_rejected(tmp_path: Path):
    one, two = tmp_path / "one", tmp_path / "two"
    one.symlink_to(two)
    two.symlink_to(one)
    with raises(InvalidFile, parameter="folder", value=str(one)):
        as_path(one, "folder")
    assert as_path(tmp_path / "absent") == tmp_path / "absent"
