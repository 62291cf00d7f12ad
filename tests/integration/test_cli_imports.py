"""The modules that a command executes: a fit needs neither experiments nor theory nor a cluster."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

_RUN = """
import sys
from limiirl.cli import main
main(sys.argv[1:])
packages = ("limiirl.experiments", "limiirl.theory", "limiirl.executors", "dask", "distributed")
loaded = [name for name in sys.modules if name.startswith(packages)]
assert not loaded, loaded
assert "limiirl.report.roads.styles" in sys.modules
"""


@pytest.fixture(scope="module")
def matched(tmp_path_factory):
    """A folder with a small city's network and its drivers' matched trips."""
    from limiirl.roads import City, clean, match, record

    folder = tmp_path_factory.mktemp("city")
    city = City(seed=1, radius_km=0.8)
    driven = city.drive(n_drivers=8, trips_each=5, seed=1)
    trips = record(city.network, driven.demos, seed=1).trips
    city.network.save(folder / "network.npz")
    match(city.network, clean(trips, city.network)).save(folder / "matches.npz")
    return folder


def test_a_fit_with_its_page_executes_no_experiments_theory_or_cluster_code(matched):
    words = ["roads", "fit", matched / "network.npz", matched / "matches.npz", "--intents", "2"]
    words += ["--features", "plain", "--model", "DestinationMaxEnt", "--out", matched / "styles"]
    words += ["--page", matched / "page"]
    done = subprocess.run([sys.executable, "-c", _RUN, *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert Path(matched / "page/index.html").is_file()


@pytest.mark.parametrize("words", [["--help"], ["roads", "fit", "--help"]])
def test_help_is_quick(words):
    times = []
    for _ in range(3):
        begun = time.perf_counter()
        subprocess.run([sys.executable, "-m", "limiirl.cli", *words], capture_output=True, check=True)
        times.append(time.perf_counter() - begun)
        if times[-1] < 0.5:
            break
    assert min(times) < 0.5, times
