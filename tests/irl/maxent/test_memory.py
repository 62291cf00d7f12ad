"""Peak memory of a process that evaluates the path sums of the paper's road network."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import limiirl

# The peak includes the interpreter, the numba compiler, and the construction of the road network.
PROGRAM = """
import json, re, resource
from pathlib import Path
import numpy as np
from limiirl.irl.maxent.path_sums import FinitePathSums
from limiirl.mdp import expected_features
from limiirl.worlds import RoadGrid

mdp = RoadGrid().mdp
path_sums = FinitePathSums(mdp, 300, max_bytes=0.0)
thetas = -np.array([[1.0], [2.0], [4.0]]) * np.ones(mdp.n_features)
counts = path_sums.expected_counts(thetas)
gradient = expected_features(mdp, counts.node, counts.edge)
# getrusage includes memory of the parent at the fork; VmHWM does not.
status = Path("/proc/self/status")
if status.exists():
    peak = 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", status.read_text()).group(1))
else:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({
    "peak": peak,
    "states": mdp.n_states, "edges": mdp.n_edges, "messages": path_sums.buffer(3).nbytes,
    "finite": bool(np.isfinite(counts.log_Z).all() and np.isfinite(gradient).all()), "shape": gradient.shape,
    "linear": not path_sums.single(thetas[0]).log,
}))
"""


@pytest.mark.slow
def test_road_network_needs_less_than_a_gigabyte() -> None:
    pytest.importorskip("resource", reason="peak memory cannot be measured on this platform")
    source = str(Path(limiirl.__file__).parents[1])
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert (report["states"], report["edges"], report["shape"]) == (292_604, 594_933, [3, 24])
    assert report["finite"]
    assert report["linear"]
    assert report["peak"] < 1e9
    # All messages would need 2.1 GB; about 2 sqrt(300) rows are stored.
    assert report["messages"] < 2.2 * 300**0.5 * 292_605 * 3 * 8
