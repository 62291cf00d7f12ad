"""MDPs of every kind for comparing the GPU with the CPU, and the figures that both compute."""

import os
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

from limiirl import MDP
from limiirl.irl.destination.path_sums import GoalValues
from limiirl.irl.maxent.gpu import GpuBackend, GpuFinitePathSums
from limiirl.irl.maxent.path_sums import FinitePathSums
from limiirl.kernels.gpu.device import find_device
from tests.gpu.emulator import EmulatedDevice, compiler

# On a machine with a GPU (LIMIIRL_GPU unset and CuPy there), the same tests run on it, and larger cases with them.
REAL = os.environ.get("LIMIIRL_GPU", "") == "" and find_device() is not None
NO_DEVICE = pytest.mark.skipif(
    not REAL and compiler() is None, reason="neither a GPU nor a C++ compiler to emulate one is there"
)
# For what the emulation alone can do: such tests keep to it where a GPU is too.
NEEDS_COMPILER = pytest.mark.skipif(compiler() is None, reason="no C++ compiler to emulate a GPU")
ONLY_REAL = pytest.mark.skipif(not REAL, reason="too large to emulate: needs a GPU and CuPy")
RTOL = 1e-10


# Cases of every kind of MDP, for models that need nothing else.
WORLDS: dict[str, dict[str, Any]] = {
    "deterministic": {},
    "stochastic": {"stochastic": True, "kinds": "state action edge"},
    "sparse": {"stochastic": True, "kinds": "state edge sparse"},
    "hub": {"n_states": 110, "hub": True, "kinds": "edge"},
}


class Case(NamedTuple):
    """An MDP, a largest length, and parameters (K, d)."""

    mdp: MDP
    length: int
    thetas: NDArray[np.float64]


def device() -> Any:
    """Return the GPU, or its emulation."""
    return find_device() if REAL else EmulatedDevice()


def make_case(
    n_states: int = 23,
    *,
    seed: int = 0,
    gamma: float = 1.0,
    stochastic: bool = False,
    kinds: str = "state",
    K: int = 3,
    length: int = 20,
    hub: bool = False,
    scale: float = 1.0,
) -> Case:
    """Return a random case; `kinds` names the features, "sparse" among them makes these sparse."""
    rng = np.random.default_rng(seed)
    degree = rng.integers(1, 4, n_states)
    src = np.repeat(np.arange(n_states), degree)
    dst = (src + rng.integers(1, max(2, min(n_states, 40)), src.size)) % n_states
    if hub:  # a state with more edges than a table has room for
        src = np.concatenate([src, np.zeros(min(n_states, 90), dtype=int)])
        dst = np.concatenate([dst, np.arange(min(n_states, 90))])
    pairs = np.unique(np.stack([src, dst]), axis=1)
    src, dst = pairs
    action, prob = None, None
    if stochastic:
        action = np.concatenate([np.arange(n) // 2 for n in np.bincount(src, minlength=n_states)])
        raw = rng.uniform(0.2, 1.0, src.size)
        pair = src * (action.max() + 1) + action
        prob = raw / np.bincount(pair, weights=raw)[pair]
    p0 = np.where(rng.random(n_states) < 0.7, rng.uniform(0.1, 1.0, n_states), 0.0)
    p0[0] = 1.0
    mdp = MDP.from_edges(src, dst, n_states=n_states, action=action, prob=prob, p0=p0 / p0.sum(), gamma=gamma)
    features: dict[str, Any] = {}
    for kind, rows in (("state", n_states), ("action", mdp.n_pairs), ("edge", mdp.n_edges)):
        if kind in kinds:
            dense = rng.normal(size=(rows, 3)) * (rng.random((rows, 3)) < 0.6)
            features[f"{kind}_features"] = sparse.csr_array(dense) if "sparse" in kinds else dense
        elif kind == "state":
            features["state_features"] = None
    mdp = mdp.replace(**features)
    thetas = scale * rng.normal(-0.3, 0.7, (K, mdp.n_features))
    return Case(mdp, length, thetas)


def costly_world(K: int = 3, **options: Any) -> tuple[MDP, NDArray[np.float64]]:
    """A case of the parity suite with a cost per step, the first feature, and feasible parameters (K, d)."""
    case = make_case(K=K, scale=0.3, **options)
    ones, given = np.ones((case.mdp.n_states, 1)), case.mdp.state_features
    if given is None:
        phi: Any = ones
    else:
        phi = np.hstack([ones, given]) if isinstance(given, np.ndarray) else sparse.hstack([ones, given]).tocsr()
    mdp = case.mdp.replace(state_features=phi, feature_names=None)
    for cost in (1.0, 2.0, 4.0):
        thetas = np.hstack([np.full((K, 1), -cost), case.thetas])
        if all(GoalValues(mdp).is_finite(theta, 1e-3) for theta in thetas):
            return mdp, thetas
    raise AssertionError("no cost is enough")


def make_path_sums(case: Case, place: Any = None, **options: Any) -> tuple[FinitePathSums, FinitePathSums]:
    """Return the same path sums on the GPU, or another device, and on the CPU."""
    backend = GpuBackend(case.mdp, place or device())
    return GpuFinitePathSums(case.mdp, case.length, backend=backend, **options), FinitePathSums(
        case.mdp, case.length, **options
    )


def assert_same(actual: Any, expected: Any) -> None:
    """Fail unless two arrays agree to RTOL, relative to the largest entry for those that are tiny beside it."""
    expected = np.asarray(expected)
    finite = expected[np.isfinite(expected)]
    top = float(np.max(np.abs(finite), initial=0.0))
    np.testing.assert_allclose(np.asarray(actual), expected, rtol=RTOL, atol=RTOL * top)
