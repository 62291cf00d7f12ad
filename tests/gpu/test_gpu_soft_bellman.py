"""The soft causal models on a GPU, or its emulation, against the CPU: log-probabilities of choices and gradients."""

from typing import Any

import numpy as np
import pytest

from limiirl import MDP, Demonstrations
from limiirl.demos import Groups
from limiirl.errors import DivergentPartition
from limiirl.irl.causal.finite_horizon import FiniteHorizonSolver
from limiirl.irl.causal.gpu import GpuFiniteHorizonSolver, GpuSoftBellmanSolver
from limiirl.irl.causal.problem import DecisionCounts
from limiirl.irl.causal.state_actions import StateActions
from limiirl.irl.causal.stationary import SoftBellmanSolver
from tests.oracles.gpu_cases import NO_DEVICE, ONLY_REAL, WORLDS, Case, device, make_case
from tests.oracles.gpu_choices import circle, compare, events_of

pytestmark = NO_DEVICE


def horizon(case: Case, n: int, *, stop: bool, beta: float = 1.3) -> None:
    choices = StateActions(case.mdp)
    gpu = GpuFiniteHorizonSolver(choices, beta, n, device(), stop=stop)
    compare(gpu, FiniteHorizonSolver(choices, beta, n, stop=stop), case, events_of(case.mdp, n, stop=stop))


def stationary(case: Case, beta: float = 0.7) -> None:
    choices = StateActions(case.mdp)
    compare(GpuSoftBellmanSolver(choices, beta, device()), SoftBellmanSolver(choices, beta), case, events_of(case.mdp))


@pytest.mark.parametrize("stop", [True, False])
@pytest.mark.parametrize("gamma", [1.0, 0.9])
@pytest.mark.parametrize("world", WORLDS)
def test_up_to_a_horizon(world: str, gamma: float, stop: bool) -> None:
    horizon(make_case(gamma=gamma, **WORLDS[world]), 12, stop=stop)


@pytest.mark.parametrize("K", [1, 8])
def test_any_number_of_intents(K: int) -> None:
    horizon(make_case(K=K), 7, stop=True)
    stationary(make_case(K=K, gamma=0.8))


@pytest.mark.parametrize("n", [1, 2])
def test_short_horizons(n: int) -> None:
    horizon(make_case(), n, stop=True)


@pytest.mark.parametrize("gamma", [0.5, 0.95])
@pytest.mark.parametrize("world", WORLDS)
def test_without_a_horizon(world: str, gamma: float) -> None:
    stationary(make_case(gamma=gamma, **WORLDS[world]))


def test_without_a_horizon_or_a_discount() -> None:
    """Those who surely end have finite values at discount 1."""
    rng = np.random.default_rng(3)
    src = np.repeat(np.arange(20), 2)
    dst = np.minimum(20, src + rng.integers(1, 5, src.size))
    dst[5] = 1  # a way back
    pairs = np.unique(np.stack([src, dst]), axis=1)
    phi = rng.uniform(0.5, 1.0, (21, 2))
    p0 = np.append(np.full(20, 0.05), 0.0)
    mdp = MDP.from_edges(*pairs, n_states=21, p0=p0, terminal=np.arange(21) == 20, state_features=phi)
    stationary(Case(mdp, 10, np.array([[-1.0, -2.0], [-3.0, -0.5]])))


class OnDeviceOnly(GpuSoftBellmanSolver):
    """Soft values that may not be left to the CPU."""

    def solve_on_cpu(self, thetas: Any, moves: Any) -> Any:
        raise AssertionError("left to the CPU")


def test_sharp_policies_stay_on_the_device() -> None:
    """On a nearly deterministic circle, rounding errors circulate with the flow."""
    for case in (make_case(gamma=0.95), circle()):
        choices = StateActions(case.mdp)
        compare(OnDeviceOnly(choices, 20.0, device()), SoftBellmanSolver(choices, 20.0), case, events_of(case.mdp))


def test_infinite_values_are_detected_by_the_cpu() -> None:
    mdp = MDP.from_edges([0, 0], [0, 0], action=[0, 1], n_states=1)
    demos = Demonstrations.from_lists([[0, 0]], [[0]])
    events = DecisionCounts.from_demos(mdp, demos, Groups.from_labels(None, 1))
    with pytest.raises(DivergentPartition, match="soft values of thetas\\[0\\] are infinite"):
        GpuSoftBellmanSolver(StateActions(mdp), 1.0, device()).solve(np.zeros((1, 1)), events.candidates)


@ONLY_REAL
@pytest.mark.parametrize("K", [1, 3, 8])
def test_large_worlds(K: int) -> None:
    horizon(make_case(n_states=20_000, K=K, kinds="state edge", stochastic=True), 60, stop=True)
    stationary(make_case(n_states=20_000, K=K, gamma=0.99, stochastic=True))
