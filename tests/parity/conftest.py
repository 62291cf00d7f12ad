"""A cluster for all tests that need no other, since starting one takes longer than most of them; and a GPU."""

from collections.abc import Iterator

import pytest

from tests.oracles.clusters import Cluster, cluster


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two workers, which may be killed; a task may lose three of them before its scheduler gives it up."""
    folder = tmp_path_factory.mktemp("dask")
    with cluster(folder, workers=2, allowed_failures=3, preloaded="limiirl.experiments.trial") as opened:
        yield opened


@pytest.fixture
def on_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let device="gpu" be the GPU, or its emulation where there is none."""
    from tests.oracles.gpu_cases import REAL  # here: tests of clusters need none

    if not REAL:
        monkeypatch.setenv("LIMIIRL_GPU", "emulated")
