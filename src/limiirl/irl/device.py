"""Where a model computes: `device="cpu"`, `"gpu"`, or `"auto"`, the faster of the two where there is a choice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from limiirl.errors import InvalidParameter
from limiirl.kernels.gpu.device import Device, find_device, need_device
from limiirl.mdp import MDP

if TYPE_CHECKING:
    from limiirl.irl.maxent.gpu import GpuBackend


DEVICES = ("cpu", "gpu", "auto")
# States and edges from which on "auto" takes a GPU: below, waiting for its launches costs more than a sweep on the CPU
# (benchmarks/gpu.py, ADR 0018).
WORTH_IT = 10_000


def choose_device(name: object, size: int) -> Device | None:
    """Return the GPU to use for a problem of `size` states and edges, or None for the CPU.

    Raises
    ------
    BackendUnavailable
        With device="gpu" where there is none: the message says what is missing.

    Examples
    --------
    >>> choose_device("cpu", 1_000_000) is None
    True
    """
    check_device(name)
    if name == "gpu":
        return need_device()
    return find_device() if name == "auto" and size >= WORTH_IT else None


def check_device(name: object) -> None:
    """Check a device's name, and not that it is there.

    Examples
    --------
    >>> check_device("gpu")
    """
    if not (isinstance(name, str) and name in DEVICES):
        raise InvalidParameter(
            f"device must be one of {', '.join(DEVICES)}; it is {name!r}.", parameter="device", value=name
        )


def choose_backend(name: object, mdp: MDP) -> GpuBackend | None:
    """Return the place of an MDP on the GPU to use, or None for the CPU."""
    device = choose_device(name, mdp.n_states + mdp.n_edges)
    if device is None:
        return None
    from limiirl.irl.maxent.gpu import gpu_backend

    return gpu_backend(mdp, device)


def anywhere(model: Any) -> Any:
    """Return a model that was written where there is a GPU, to be used where there may be none.

    Examples
    --------
    >>> from limiirl import MaxEnt
    >>> anywhere(MaxEnt(device="gpu")).device, anywhere(MaxEnt()).device
    ('auto', 'cpu')
    """
    if getattr(model, "device", None) == "gpu":
        model.device = "auto"
    return model
