"""Streams on worker processes: the same files and the same bits as in this process."""

import numpy as np
import pytest

from limiirl.executors import Executor
from limiirl.kernels.e_step import MixtureParameters
from limiirl.streams import write_features
from limiirl.streams.passes import sweep
from tests.oracles.mixture import TASTES, crossings, walks


@pytest.mark.slow
def test_worker_processes_change_no_bit(tmp_path):
    demos, _ = walks(5000, seed=8)
    parts = [demos[:120], demos[120:4500], demos[4500:]]
    alone = write_features(crossings(), parts, tmp_path / "alone")
    store = write_features(crossings(), parts, tmp_path / "workers", executor=Executor(workers=2))
    assert [part.fingerprint for part in store.parts] == [part.fingerprint for part in alone.parts]
    now, before = (MixtureParameters(TASTES * scale, np.array([1.0, 2.0]), np.log([0.3, 0.7])) for scale in (1.0, 0.5))
    seen = []
    there = sweep(store, now, before, executor=Executor(workers=2), progress=lambda *report: seen.append(report))
    here = sweep(alone, now, before, window=2048)
    assert seen == [(120, 5000, "part 0"), (4500, 5000, "part 1"), (5000, 5000, "part 2")]
    for one, other in zip(here, there, strict=True):
        np.testing.assert_array_equal(one, other)
