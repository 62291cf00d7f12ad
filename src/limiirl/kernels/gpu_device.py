"""The device that the GPU kernels run on: a GPU through CuPy, or its emulation on the CPU.

A device is an array module and a way to launch kernels. `find_device` returns the one that there is. The environment
variable LIMIIRL_GPU chooses: `emulated` runs the same CUDA source on the CPU, for tests; `off` is as if there were no
GPU.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from limiirl.errors import BackendUnavailable, InvalidParameter
from limiirl.kernels.gpu_source import signatures, source

# What a kernel is compiled for: the columns, the width of the neighbours' table, and whether it is plain.
_FIXED = ("COLUMNS", "WIDTH", "PLAIN")
_SCALARS: dict[str, Any] = {"i64": np.int64, "int": np.int32, "double": np.float64}
_INSTALL = "Install CuPy for your CUDA version: pip install 'limiirl[gpu]' (CUDA 13), or pip install cupy-cuda12x."


class Device(Protocol):
    """Where arrays live and kernels run.

    Attributes
    ----------
    xp : the array module, numpy's functions on the device's arrays
    name : what it is, in words
    n_blocks : blocks of a grid that run at once, so that they can wait for each other
    n_threads : the most threads of a block
    shared_bytes : shared memory of a block
    """

    xp: Any
    name: str
    n_blocks: int
    n_threads: int
    shared_bytes: int

    def launch(
        self, kernel: str, shape: tuple[int, int, int], arguments: tuple[Any, ...], fixed: tuple[int, int, int]
    ) -> None:
        """Run a kernel on (blocks, threads, bytes of shared memory); `fixed` holds what it may be compiled for."""
        ...

    def put(self, array: Any) -> Any:
        """Return a host array on the device."""
        ...

    def put_sparse(self, matrix: Any) -> Any:
        """Return a host csr_array as a sparse matrix on the device, for products with dense ones."""
        ...

    def take(self, array: Any) -> NDArray[Any]:
        """Return a device array on the host."""
        ...

    def free_bytes(self) -> float:
        """Return the memory that is free on the device."""
        ...


class CupyDevice:
    """The current CUDA device, through CuPy."""

    def __init__(self) -> None:
        import cupy

        self.xp = cupy
        self._modules: dict[tuple[tuple[int, int, int], bool], Any] = {}
        found = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
        self.name = found["name"].decode()
        self.n_blocks = int(found["multiProcessorCount"])
        self.n_threads = 1024
        # A block's static shared memory, and what the driver keeps for itself, come out of the same memory.
        self.shared_bytes = int(found["sharedMemPerBlockOptin"]) - 10 * 1024

    def launch(
        self, kernel: str, shape: tuple[int, int, int], arguments: tuple[Any, ...], fixed: tuple[int, int, int]
    ) -> None:
        """Compile the kernels for K columns, a table of this width and plain sweeps or not, once, and launch one."""
        waits = "arrived" in signatures()[kernel].names  # for other blocks, so that all must run at once
        known = self._modules.get((fixed, waits))
        if known is None:
            options = ("-std=c++17", *(f"-DFIXED_{name}={value}" for name, value in zip(_FIXED, fixed, strict=True)))
            known = self.xp.RawModule(code=source(), options=options, enable_cooperative_groups=waits)
            self._modules[fixed, waits] = known
        function = known.get_function(kernel)
        if shape[2]:
            function.max_dynamic_shared_size_bytes = shape[2]
        function(shape[:1], shape[1:2], convert(kernel, arguments, _pointer), shared_mem=shape[2])

    def put(self, array: Any) -> Any:
        """Return a host array on the device."""
        return self.xp.asarray(array)

    def put_sparse(self, matrix: Any) -> Any:
        """Return a host csr_array as a CuPy csr_matrix."""
        import cupyx.scipy.sparse

        return cupyx.scipy.sparse.csr_matrix(
            tuple(self.xp.asarray(part) for part in (matrix.data, matrix.indices, matrix.indptr)), shape=matrix.shape
        )

    def take(self, array: Any) -> NDArray[Any]:
        """Return a device array on the host."""
        return np.asarray(self.xp.asnumpy(array))

    def free_bytes(self) -> float:
        """Return the memory that is free on the device, that of CuPy's pool included."""
        free, _ = self.xp.cuda.runtime.memGetInfo()
        return float(free + self.xp.get_default_memory_pool().free_bytes())


def _pointer(array: Any) -> Any:
    return np.uint64(0 if array is None else array.data.ptr)


def flat_shape(device: Device, size: int) -> tuple[int, int, int]:
    """Return the launch of a kernel that deals `size` entries out, with eight blocks for each that runs at once."""
    threads = min(256, device.n_threads)
    return max(1, min(8 * device.n_blocks, -(-size // threads))), threads, 0


def convert(kernel: str, arguments: tuple[Any, ...], pointer: Any) -> tuple[Any, ...]:
    """Return the arguments of a kernel as the types that it takes; `pointer` turns an array or None into an address."""
    types = signatures()[kernel].types
    return tuple(
        pointer(value) if kind == "pointer" else _SCALARS[kind](value)
        for kind, value in zip(types, arguments, strict=True)
    )


@cache
def _open(choice: str) -> tuple[Device | None, str]:
    """Return a device, or None and what is missing."""
    if choice == "emulated":
        from limiirl.kernels.gpu_emulator import EmulatedDevice

        return EmulatedDevice(), ""
    if choice == "off":
        return None, "LIMIIRL_GPU=off says to use no GPU. Unset it, or use device='cpu'."
    if choice:
        raise InvalidParameter(f"LIMIIRL_GPU must be 'emulated' or 'off', or not be set; it is {choice!r}.")
    try:
        import cupy
    except ImportError:
        return None, f"device='gpu' needs CuPy, which is not installed. {_INSTALL} Or use device='cpu'."
    try:
        if cupy.cuda.runtime.getDeviceCount() > 0:
            return CupyDevice(), ""
        reason = "CUDA reports no device"
    except Exception as error:  # noqa: BLE001 (drivers fail in many ways, and CuPy passes on all of them)
        reason = str(error).splitlines()[0]
    return None, f"device='gpu' needs a CUDA GPU that works: {reason}. Check nvidia-smi, or use device='cpu'."


def find_device() -> Device | None:
    """Return the device that there is, or None."""
    return _open(os.environ.get("LIMIIRL_GPU", ""))[0]


def need_device() -> Device:
    """Return the device that there is, or raise `BackendUnavailable` with what is missing."""
    device, missing = _open(os.environ.get("LIMIIRL_GPU", ""))
    if device is None:
        raise BackendUnavailable(missing)
    return device
