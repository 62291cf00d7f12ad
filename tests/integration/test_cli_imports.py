"""The modules that a command executes: a fit needs neither experiments nor theory nor a cluster."""

import subprocess
import sys
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
    from limiirl.roads import City, clean, match, simulate_gps

    folder = tmp_path_factory.mktemp("city")
    city = City(seed=1, radius_km=0.8)
    driven = city.drive(n_drivers=8, trips_each=5, seed=1)
    trips = simulate_gps(city.network, driven.demos, seed=1)
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


_HELP = """
import sys, time
begun = time.process_time()
from limiirl.cli import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
slow = [name for name in ("numpy", "scipy", "numba", "matplotlib", "pyarrow") if name in sys.modules]
assert not slow, slow
assert time.process_time() - begun < 0.5
"""


@pytest.mark.smoke
@pytest.mark.parametrize("words", [["--help"], ["roads", "fit", "--help"]])
def test_help_is_quick(words):
    done = subprocess.run([sys.executable, "-c", _HELP, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Usage" in done.stdout
