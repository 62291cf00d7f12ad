"""The memory bound at the paper's road size, measured on a whole process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import limiirl

# Everything counts: the interpreter, numba's compiler, the making of the town, and the evaluation.
PROGRAM = """
import json, re, resource
from pathlib import Path
import numpy as np
from limiirl.irl.maxent.path_sums import FinitePathSums
from limiirl.irl.maxent.backends import expected_features
from limiirl.worlds import RoadGrid

mdp = RoadGrid().mdp
engine = FinitePathSums(mdp, 300, max_bytes=0.0)
thetas = -np.array([[1.0], [2.0], [4.0]]) * np.ones(mdp.n_features)
found = engine.expected_counts(thetas)
gradient = expected_features(mdp, found.node, found.edge)
# getrusage counts what the parent held when it started this process; the high-water mark of the kernel does not.
status = Path("/proc/self/status")
if status.exists():
    peak = 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", status.read_text()).group(1))
else:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({
    "peak": peak,
    "states": mdp.n_states, "edges": mdp.n_edges, "messages": engine.buffer(3).nbytes,
    "finite": bool(np.isfinite(found.log_Z).all() and np.isfinite(gradient).all()), "shape": gradient.shape,
    "linear": not engine.single(thetas[0]).log,
}))
"""


@pytest.mark.slow
def test_the_road_network_is_evaluated_in_less_than_a_gigabyte() -> None:
    pytest.importorskip("resource", reason="peak memory is asked of the operating system, which here does not tell")
    source = str(Path(limiirl.__file__).parents[1])
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["states"], found["edges"], found["shape"]) == (292_604, 594_933, [3, 24])
    assert found["finite"]
    assert found["linear"]
    assert found["peak"] < 1e9
    # All messages would take 2.1 GB; about 2 sqrt(300) of them are held.
    assert found["messages"] < 2.2 * 300**0.5 * 292_605 * 3 * 8
