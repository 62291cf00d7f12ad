"""Fixtures of the shared data, and deterministic hypothesis profiles."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.oracles.clusters import Cluster, cluster

if TYPE_CHECKING:
    from limiirl.roads import City, DriverFit, Matches

ROOT = Path(__file__).resolve().parents[1]

# Numba compiles during the first example, so the first example may be slow. `tests.helpers.examples` multiplies numbers
# of examples by max_examples / 100 of the profile: `make quick` and `make test` draw fewer than `make test-all`.
settings.register_profile("ci", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("ci"), max_examples=20)
settings.register_profile("test", settings.get_profile("ci"), max_examples=25)
# HYPOTHESIS_PROFILE=explore searches for counterexamples; add each one to its test as an `@example`.
settings.register_profile("explore", settings.get_profile("ci"), derandomize=False, max_examples=2000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# Marker: the folders or files whose tests have it.
_BY_PATH = {
    "integration": re.compile(r"tests/integration/"),
    "cluster": re.compile(r"tests/integration/test_.*(dask|records_executors)"),
    "docs": re.compile(r"tests/integration/test_(docs|readme)"),
    "gpu": re.compile(r"tests/gpu/|test_gpu_"),
    "property": re.compile(r"_properties\.py$"),
}
_BROWSER = {"browser", "browser_at_hand", "require_browser", "examine"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by cost, for the tiers of the Makefile."""
    emulated: set[str] = set()
    for item in items:
        path = item.path.relative_to(ROOT).as_posix()
        for name, pattern in _BY_PATH.items():
            if pattern.search(path):
                item.add_marker(name)
        if isinstance(item, pytest.Function):
            if _BROWSER & {*item.fixturenames, *item.function.__code__.co_names}:
                item.add_marker("browser")
            # Each test of the GPU once: its first case.
            if item.get_closest_marker("gpu") and item.nodeid.partition("[")[0] not in emulated:
                emulated.add(item.nodeid.partition("[")[0])
                item.add_marker("smoke")


def locate_shared_data(name: str) -> Path:
    """Return the folder of a shared data set; skip the test if it is missing, or fail it if LIMIIRL_REQUIRE_DATA=1."""
    folder = Path(os.environ.get("LIMIIRL_DATA", ROOT.parent / "shared" / "data")) / name
    if folder.exists():
        return folder
    reason = f"no data set {name!r} at {folder}; set LIMIIRL_DATA to the folder that holds it"
    if os.environ.get("LIMIIRL_REQUIRE_DATA") == "1":
        pytest.fail(f"{reason} (LIMIIRL_REQUIRE_DATA=1 forbids skipping)")
    pytest.skip(reason)


@pytest.fixture
def shared_data() -> Callable[[str], Path]:
    """Return a function from the name of a shared data set to its folder."""
    return locate_shared_data


@pytest.fixture(autouse=True)
def _no_figure_is_left() -> Iterator[None]:
    """Close the pyplot figures of a test, because the next test in the process may count figures."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Start a cluster of two workers; a task fails after three of its workers were killed."""
    folder = tmp_path_factory.mktemp("dask")
    with cluster(folder, workers=2, allowed_failures=3, preloaded="limiirl.experiments.trial") as opened:
        yield opened


@pytest.fixture
def on_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run device="gpu" on the GPU, or on the emulator if there is none."""
    from tests.gpu.emulator import install_emulator  # here: tests of clusters need none
    from tests.oracles.gpu_cases import REAL

    if not REAL:
        install_emulator(monkeypatch)


@pytest.fixture(scope="session")
def small_city() -> City:
    """A synthetic city of a few hundred segments."""
    from limiirl.roads import City

    return City(seed=1, radius_km=0.8)


@pytest.fixture(scope="session")
def small_matches(small_city: City) -> Matches:
    """Noisy trips of eight drivers in the small city, matched."""
    from limiirl.roads import clean, match, simulate_gps

    demos = small_city.drive(n_drivers=8, trips_each=4).demos
    return match(small_city.network, clean(simulate_gps(small_city.network, demos, noise_m=5.0), small_city.network))


@pytest.fixture(scope="session")
def small_fit(small_city: City, small_matches: Matches) -> DriverFit:
    """Two driving styles learned from the matched trips of the small city."""
    from limiirl.roads import fit_drivers

    settings = {"features": small_city.features, "by_driver": True}
    return fit_drivers(small_city.network, small_matches.demonstrations(min_segments=5), 2, **settings)
