"""Wait policy of the threads of parallel kernels."""

import os
import runpy

import pytest

from limiirl.kernels import threading


@pytest.mark.parametrize(("given", "expected"), [(None, "passive"), ("active", "active")])
def test_threads_sleep_at_barriers_unless_the_user_decides(
    monkeypatch: pytest.MonkeyPatch, given: str | None, expected: str
) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "to be restored")
    if given is None:
        monkeypatch.delenv("OMP_WAIT_POLICY")
    else:
        monkeypatch.setenv("OMP_WAIT_POLICY", given)
    assert threading.__file__ is not None
    runpy.run_path(threading.__file__)
    assert os.environ["OMP_WAIT_POLICY"] == expected
