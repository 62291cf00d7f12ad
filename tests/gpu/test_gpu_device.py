"""Choice of the device of a model, errors without a device, and the choice in clones and files."""

import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

from limiirl import MDP, Demonstrations, DestinationMaxEnt, IntentMixture, MaxCausalEnt, MaxEnt
from limiirl.errors import BackendUnavailable, InvalidParameter, LimiirlError
from limiirl.irl.estimator import GPU_MIN_SIZE, choose_backend, choose_device
from limiirl.irl.maxent.path_sums import FinitePathSums
from limiirl.kernels.gpu.device import convert_cuda_errors, find_device, signatures
from limiirl.kernels.gpu.forward_backward import grid_of
from tests.gpu.emulator import EmulatedDevice, install_emulator
from tests.helpers import raises
from tests.oracles.gpu_cases import NEEDS_COMPILER

PATHS = [[0, 1, 3], [0, 1, 3], [0, 1, 3], [0, 2, 3]]


def world() -> tuple[MDP, Demonstrations]:
    phi = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]
    return MDP.from_edges([0, 0, 1, 2], [1, 2, 3, 3], p0=[1, 0, 0, 0], state_features=phi), Demonstrations.from_lists(
        PATHS
    )


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    install_emulator(monkeypatch)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIMIIRL_GPU", "off")


@pytest.mark.parametrize(
    "model",
    [
        MaxEnt(3, device="gpu"),
        MaxCausalEnt(device="gpu"),
        MaxCausalEnt(max_length=3, device="gpu"),
        DestinationMaxEnt(device="gpu"),
    ],
)
def test_error_without_a_gpu_has_a_remedy(model: object, no_gpu: None) -> None:
    mdp, demos = world()
    with raises(BackendUnavailable, parameter="device", value="gpu"):
        model.fit(mdp, demos)  # type: ignore[attr-defined]


def test_without_cupy_the_error_names_the_package() -> None:
    """In a process of its own, where importing CuPy fails."""
    code = (
        "import sys; sys.modules['cupy'] = None\n"
        "from limiirl.kernels.gpu.device import need_device\n"
        "from limiirl.errors import BackendUnavailable\n"
        "try:\n    need_device()\nexcept BackendUnavailable as error:\n    print(error)\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": ":".join(sys.path)}
    )
    assert "needs CuPy, which is not installed" in process.stdout
    assert 'pip install "cupy-cuda13x[ctk]"' in process.stdout


def test_a_device_or_an_environment_that_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    mdp, demos = world()
    models = (MaxEnt(3, device="tpu"), MaxCausalEnt(device="tpu"), MaxEnt(np.inf, device="tpu"))
    for model in (*models, DestinationMaxEnt(device="tpu")):
        with raises(InvalidParameter, parameter="device", value="tpu"):
            model.fit(mdp, demos)
    monkeypatch.setenv("LIMIIRL_GPU", "maybe")
    with raises(InvalidParameter, parameter="LIMIIRL_GPU", value="maybe"):
        find_device()


@NEEDS_COMPILER
def test_auto_takes_a_gpu_for_large_problems_only(emulated: None) -> None:
    assert choose_device("auto", GPU_MIN_SIZE - 1) is None
    assert choose_device("cpu", GPU_MIN_SIZE) is None
    assert isinstance(choose_device("auto", GPU_MIN_SIZE), EmulatedDevice)
    assert isinstance(choose_device("gpu", 1), EmulatedDevice)


def test_auto_without_a_gpu_is_the_cpu(no_gpu: None) -> None:
    assert choose_device("auto", GPU_MIN_SIZE) is None


@NEEDS_COMPILER
def test_an_mdp_goes_to_the_device_once(emulated: None) -> None:
    mdp, _ = world()
    assert choose_backend("gpu", mdp) is choose_backend("gpu", mdp)


@NEEDS_COMPILER
@pytest.mark.parametrize("solver", ["newton", "lbfgs", "bfgs"])
@pytest.mark.parametrize("condition", ["none", "start"])
def test_fits_agree_with_the_cpu(solver: str, condition: str, emulated: None) -> None:
    mdp, demos = world()
    both = [MaxEnt(3, (-9, 9), solver=solver, condition=condition, device=device) for device in ("gpu", "cpu")]
    mine, other = (model.fit(mdp, demos) for model in both)
    np.testing.assert_allclose(mine, other, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(both[0].log_prob(mdp, mine, demos), both[1].log_prob(mdp, mine, demos), rtol=1e-12)
    np.testing.assert_allclose(both[0].hessian(mdp, mine), both[1].hessian(mdp, mine), rtol=1e-11, atol=1e-13)
    drawn = [model.sample(mdp, mine, 20, seed=1).states for model in both]
    np.testing.assert_array_equal(*drawn)


@NEEDS_COMPILER
@pytest.mark.parametrize("max_length", [np.inf, 3])
def test_causal_fits_agree_with_the_cpu(max_length: float, emulated: None) -> None:
    mdp, demos = world()
    with warnings.catch_warnings(action="ignore"):  # that one direction has no effect
        mine, other = (MaxCausalEnt(max_length=max_length, device=device).fit(mdp, demos) for device in ("gpu", "cpu"))
    np.testing.assert_allclose(mine, other, rtol=1e-7, atol=1e-7)


@NEEDS_COMPILER
def test_a_mixture_keeps_the_device_in_clones_and_leaves_it_open_in_files(tmp_path: Path, emulated: None) -> None:
    """Files are read where there may be no GPU."""
    mdp, demos = world()
    mixture = IntentMixture(2, MaxEnt(3, device="gpu"), random_state=0, max_iter=3, resp_tol=1e-12)
    assert clone(mixture).irl.device == "gpu"
    with warnings.catch_warnings(action="ignore"):  # two of four trips are too few to converge
        mixture.fit(mdp, demos)
    mixture.save(tmp_path / "mixture")
    loaded = IntentMixture.load(tmp_path / "mixture")
    assert loaded.irl.device == "auto"
    np.testing.assert_allclose(loaded.predict_proba(demos), mixture.predict_proba(demos), rtol=1e-12)
    with warnings.catch_warnings(action="ignore"):  # two of four trips are too few to converge
        other = clone(mixture).set_params(irl__device="cpu").fit(mdp, demos)
    np.testing.assert_allclose(mixture.log_likelihood_, other.log_likelihood_, rtol=1e-8)


@NEEDS_COMPILER
def test_errors_agree_with_the_cpu(emulated: None) -> None:
    """Messages name the same state and step."""
    mdp, _ = world()
    bad = MDP.from_edges([0, 1], [1, 2], p0=[1, 0, 0], terminal=[False, False, True], state_features=np.eye(3))
    for options, theta, given in (
        ({"arithmetic": "linear"}, [800.0, 900.0], mdp),
        ({"arithmetic": "linear"}, [1e308, 1e308], mdp.replace(state_features=1e10 * np.ones((4, 2)))),
        ({"stop": "terminal"}, [0.0, 0.0, 0.0], bad),
    ):
        errors = []
        for device in ("gpu", "cpu"):
            with pytest.raises(LimiirlError) as caught:
                MaxEnt(2, device=device, **options).expected_features(given, theta)
            errors.append((type(caught.value), str(caught.value)))
        assert errors[0] == errors[1]
        assert "state" in errors[0][1]


def test_kernels_with_grid_barriers_have_a_barrier_parameter() -> None:
    """The parameter `arrived` decides how a kernel is launched."""
    waiting = {name for name, signature in signatures().items() if "arrived" in signature.names}
    assert waiting == {
        "linear_backward", "linear_forward", "log_backward", "log_forward", "bellman_plan", "bellman_plan_adjoint",
        "bellman_iterate", "bellman_adjoint", "elimination_factorise", "elimination_reach", "elimination_adjoint",
    }  # fmt: skip


@pytest.mark.slow
@NEEDS_COMPILER
def test_more_intents_than_threads_of_a_block(emulated: None) -> None:
    """A block has 1024 at most; the CPU's kernels too are compiled for fewer columns."""
    K = 1025
    mdp = MDP.from_edges([0, 0, 1], [1, 2, 2], p0=[1, 0, 0], state_features=np.eye(3), edge_features=[[1.0], [0], [2]])
    thetas = np.random.default_rng(0).normal(size=(K, 4))
    thetas[:, 0] *= np.where(np.arange(K) % 2, 1.0, 400.0)  # some need log arithmetic
    mine, other = (MaxEnt(3, device=device).log_partition(mdp, thetas) for device in ("gpu", "cpu"))
    np.testing.assert_allclose(mine, other, rtol=1e-12, atol=1e-12)


@NEEDS_COMPILER
def test_launches_beyond_the_device_limits_are_rejected() -> None:
    device = EmulatedDevice()
    with pytest.raises(InvalidParameter, match="33 columns"):
        grid_of(device, 5, 33)
    given = (1, 1, None, None, np.zeros(1))
    with pytest.raises(RuntimeError, match="linear_fill .* 33 threads"):
        device.launch("linear_fill", (1, 33, 0), given, (1, 1, 0))
    device.launch("linear_fill", (1, 32, 0), given, (1, 1, 0))
    for wrong in (np.zeros(1, dtype=np.float32), np.zeros(4)[::2]):
        with pytest.raises(TypeError, match="weight .* float64"):
            device.launch("linear_fill", (1, 32, 0), (1, 1, None, None, wrong), (1, 1, 0))


@NEEDS_COMPILER
def test_a_kernel_is_launched_with_the_arguments_it_is_compiled_for() -> None:
    """Without this check only a GPU would fail."""
    device, given = EmulatedDevice(), (6, 3, None, None, np.zeros(6))
    with pytest.raises(RuntimeError, match="n_columns 1, .* 3"):
        device.launch("linear_fill", (1, 32, 0), given, (1, 1, 0))
    for columns in (0, 3):  # 0 stands for any number
        device.launch("linear_fill", (1, 32, 0), given, (columns, 1, 0))


@NEEDS_COMPILER
@pytest.mark.parametrize("shape", [(1, 2, 0), (2, 1, 0)])
def test_threads_and_blocks_run_in_the_given_order(shape: tuple[int, int, int]) -> None:
    """Two threads write to the same place, and the second write remains."""
    slot, ptr, edge = (np.array(part, dtype=np.int32) for part in ([0, 0], [0, 1, 2], [0, 1]))
    for reverse, last in ((False, 7.0), (True, 5.0)):
        value = np.zeros(1)
        EmulatedDevice(reverse=reverse).launch(
            "elimination_load", shape, (2, 1, slot, ptr, edge, np.array([5.0, 7.0]), value), (0, 1, 0)
        )
        assert value[0] == last


@pytest.mark.parametrize("wrong", [{"n_threads": 0}, {"n_threads": 1025}, {"shared_bytes": -1}, {"n_blocks": 0}])
def test_devices_that_cannot_be_emulated(wrong: dict[str, int]) -> None:
    ((name, value),) = wrong.items()
    with pytest.raises(ValueError, match=f"{name}={value}"):
        EmulatedDevice(**wrong)


@pytest.mark.parametrize(
    ("module", "name", "message"),
    [
        ("cupy.cuda.memory", "OutOfMemoryError", "out of memory: it is so.* smaller max_memory"),
        ("cupy_backends.cuda.api.runtime", "CUDARuntimeError", "CUDA error: it is so. .* Restart"),
    ],
)
def test_faults_of_a_gpu_raise_backend_unavailable(module: str, name: str, message: str) -> None:
    """Errors are identified by their module, since CuPy may be absent."""
    kind = type(name, (RuntimeError,), {"__module__": module})
    with pytest.raises(BackendUnavailable, match=message), convert_cuda_errors():
        raise kind("it is so\nand more")
    with pytest.raises(ZeroDivisionError), convert_cuda_errors():
        raise ZeroDivisionError("not of a GPU")


@NEEDS_COMPILER
def test_max_bytes_applies_on_the_host_too(emulated: None) -> None:
    """Work that a GPU leaves to the CPU, such as samples, has the same limit, but not the GPU's own default."""
    mdp, _ = world()
    backend = choose_backend("gpu", mdp)
    assert FinitePathSums(mdp, 5, max_bytes=1000.0, backend=backend).on_host().max_bytes == 1000.0
    assert FinitePathSums(mdp, 5, backend=backend).on_host().max_bytes == FinitePathSums(mdp, 5).max_bytes
