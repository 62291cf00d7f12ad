"""Selection of a model's device: "cpu", "gpu" or "auto"."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from limiirl.errors import InvalidParameter
from limiirl.kernels.gpu.device import Device, find_device, need_device
from limiirl.mdp import MDP

if TYPE_CHECKING:
    from limiirl.irl.maxent.gpu import GpuBackend


DEVICES = ("cpu", "gpu", "auto")
# Smallest number of states plus edges for which "auto" uses a GPU; smaller problems are faster on the CPU (ADR 0018).
GPU_MIN_SIZE = 10_000


def choose_device(name: object, size: int) -> Device | None:
    """Return the GPU to use for a problem of `size` states plus edges, or None for the CPU.

    Raises
    ------
    BackendUnavailable
        If `name` is "gpu" and no GPU works.
    """
    check_device(name)
    if name == "gpu":
        return need_device()
    return find_device() if name == "auto" and size >= GPU_MIN_SIZE else None


def check_device(name: object) -> None:
    """Raise unless a device name is valid; whether the device is available is not checked."""
    if not (isinstance(name, str) and name in DEVICES):
        raise InvalidParameter.of("device", name, f"must be one of {', '.join(DEVICES)}")


def choose_backend(name: object, mdp: MDP) -> GpuBackend | None:
    """Return the backend of an MDP on a GPU, or None for the CPU."""
    device = choose_device(name, mdp.n_states + mdp.n_edges)
    if device is None:
        return None
    from limiirl.irl.maxent.gpu import gpu_backend

    return gpu_backend(mdp, device)


def allow_cpu(model: Any) -> Any:
    """Change a model's device from "gpu" to "auto", so that the model also runs without a GPU; return the model.

    Examples
    --------
    >>> from limiirl import MaxEnt
    >>> allow_cpu(MaxEnt(device="gpu")).device, allow_cpu(MaxEnt()).device
    ('auto', 'cpu')
    """
    if getattr(model, "device", None) == "gpu":
        model.device = "auto"
    return model
