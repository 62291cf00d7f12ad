"""Helpers that every test may use."""

import io
import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from limiirl.errors import LimiirlError

_ANY = object()


@contextmanager
def raises(
    kind: type[LimiirlError], *, parameter: Any = _ANY, value: Any = _ANY, index: Any = _ANY
) -> Iterator[pytest.ExceptionInfo[LimiirlError]]:
    """Expect an error of exactly this kind whose attributes are the given ones.

    The message is not compared, but must not be empty.
    """
    with pytest.raises(kind) as caught:
        yield caught
    error = caught.value
    assert type(error) is kind
    assert len(str(error)) > 10, str(error)
    for name, expected in (("parameter", parameter), ("value", value), ("index", index)):
        if expected is not _ANY:
            actual = getattr(error, name)
            both_nan = expected != expected and actual != actual
            assert actual == expected or both_nan, f"{name} is {getattr(error, name)!r}, not {expected!r}: {error}"


def read_error(stderr: str, folder: object) -> tuple[Any, Any]:
    """Return the option and the value of an error printed with --json; paths are relative to `folder`."""
    facts = json.loads(stderr.splitlines()[-1])
    assert len(facts["message"]) > 10, facts
    value = facts["value"]
    return facts["option"], value.removeprefix(f"{folder}/") if isinstance(value, str) else value


def examples(n: int) -> int:
    """Scale a number of hypothesis examples by the profile's, where 100 stand for all of them."""
    return max(2, round(n * settings().max_examples / 100))


def claim_size(path: Path, n: int) -> None:
    """Write an archive whose array "a" claims n numbers and has none."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "<f8", "fortran_order": False, "shape": (n,)})
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", stream.getvalue())
