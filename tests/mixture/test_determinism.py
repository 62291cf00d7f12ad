"""The same seed gives the same bits: in this process and in others, on one thread and on two."""

import hashlib
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from limiirl import BayesianIntentMixture, IntentMixture, MaxEnt
from tests.oracles.mixture import crossings, walks

INITS = ("kmeans", "gmm", "best", "random_rewards", "bayesian")
CODE = """
import json, warnings
warnings.simplefilter("ignore")
from tests.mixture.test_determinism import INITS, fingerprint
print(json.dumps({init: fingerprint(init) for init in INITS}))
"""


def fit_mixture(init: str) -> IntentMixture | BayesianIntentMixture:
    """A fit to enough demonstrations for several blocks and threads."""
    demos, _ = walks(5000, seed=1)
    irl = MaxEnt(max_length=7, bounds=(-5, 5))
    if init == "bayesian":
        return BayesianIntentMixture(4, irl, random_state=7, max_iter=3).fit(crossings(), demos)
    mix = IntentMixture(2, irl, init=init, n_init=2, random_state=7, max_iter=6, resp_tol=1e-3)
    return mix.set_params(refine="split_merge" if init == "best" else None).fit(crossings(), demos)


def fingerprint(init: str) -> str:
    """Digest of all that a fit finds."""
    mix = fit_mixture(init)
    digest = hashlib.sha256()
    for array in (mix.weights_, mix.thetas_, mix.responsibilities_):
        digest.update(np.ascontiguousarray(array).tobytes())
    name = "bound" if init == "bayesian" else "objective"
    digest.update(repr([getattr(entry, name) for entry in mix.history_]).encode())
    return digest.hexdigest()


@pytest.fixture(scope="module")
def elsewhere() -> list[dict[str, str]]:
    """The digests of a process with one thread and of one with two."""
    results = []
    for threads in ("1", "2"):
        names = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        environment = os.environ | dict.fromkeys(names, threads)
        result = subprocess.run(
            [sys.executable, "-c", CODE], capture_output=True, text=True, check=True, env=environment
        )
        results.append(json.loads(result.stdout))
    return results


@pytest.mark.slow
@pytest.mark.parametrize("init", INITS)
@pytest.mark.filterwarnings("ignore::limiirl.errors.LimiirlWarning")
def test_same_bits_on_one_thread_and_two_and_in_another_process(init: str, elsewhere: list[dict[str, str]]) -> None:
    assert {digests[init] for digests in elsewhere} == {fingerprint(init)}
