"""The device of the GPU kernels, and their CUDA source.

A device is an array module and a function that launches kernels: a GPU through CuPy, or what `set_device_factory`
installed. The environment variable LIMIIRL_GPU=off hides it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from limiirl.errors import BackendUnavailable, InvalidParameter

# What is compiled together, in the order in which files need each other: a model waits for its own kernels alone.
_FAMILIES = (
    ("grid.cuh", "linear.cu", "logspace.cu", "means.cu", "choices.cu"),
    ("grid.cuh", "sparse.cu"),
    ("grid.cuh", "tiling.cuh", "goals.cu"),
    ("grid.cuh", "tiling.cuh", "tree_solve.cu"),
)
_KERNEL = re.compile(r'extern "C" __global__ void\s+(?:__launch_bounds__\([^)]*\)\s+)?(\w+)\(([^)]*)\)')


class Signature(NamedTuple):
    """A kernel's parameters: their declarations, their names, and the C type of each, "pointer" for all pointers."""

    declarations: tuple[str, ...]
    names: tuple[str, ...]
    types: tuple[str, ...]


def _text(names: tuple[str, ...]) -> str:
    folder = files("limiirl.kernels.gpu") / "cuda"
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in names)


@cache
def source(kernel: str) -> str:
    """Return the source of a kernel, with those that are compiled with it.

    Examples
    --------
    >>> "elimination_solve" in source("elimination_combine"), "elimination_solve" in source("linear_fill")
    (True, False)
    """
    for names in _FAMILIES:
        text = _text(names)
        if kernel in (name for name, _ in _KERNEL.findall(text)):
            return text
    raise KeyError(kernel)


@cache
def all_sources() -> str:
    """Return the source of all kernels."""
    return _text(tuple(dict.fromkeys(name for names in _FAMILIES for name in names)))


@cache
def signatures() -> dict[str, Signature]:
    """Return the signatures of all kernels by name.

    Examples
    --------
    >>> signatures()["linear_fill"].names
    ('size', 'n_columns', 'prob', 'reward', 'weight')
    """
    result = {}
    for name, parameters in _KERNEL.findall(all_sources()):
        declarations = tuple(" ".join(part.split()) for part in parameters.split(","))
        names = tuple(re.split(r"[ *]+", part)[-1] for part in declarations)
        types = tuple("pointer" if "*" in part else part.split()[0] for part in declarations)
        result[name] = Signature(declarations, names, types)
    return result


# What a kernel is compiled for: the columns, or 0 for any number; the width of the neighbours' table; whether it is
# plain.
_FIXED = ("COLUMNS", "WIDTH", "PLAIN")
_SCALARS: dict[str, Any] = {"i64": np.int64, "int": np.int32, "double": np.float64}
_INSTALL = (
    "Install CuPy with CUDA's libraries: pip install 'cupy-cuda13x[ctk]', or 'cupy-cuda12x[ctk]' for drivers of "
    "CUDA 12."
)
# The types of arrays, and the barrier's counter, which only needs to be large enough.
_ARRAYS: dict[str, Any] = {
    "double": np.float64, "u32": np.uint32, "u64": np.uint64, "i64": np.int64, "int": np.int32, "arrived": np.uint64
}  # fmt: skip
_FORKED = (
    "The GPU was opened before this process was forked, and CUDA does not survive that. Start processes by spawn: "
    "multiprocessing.set_start_method('spawn'). Or use device='cpu'."
)
_TRIAL = 'extern "C" __global__ void trial(double *x) { x[threadIdx.x] += 1.0; }'


class Device(Protocol):
    """A device that holds arrays and runs kernels.

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

    def take(self, array: Any) -> NDArray[Any]:
        """Return a device array on the host."""
        ...

    def free_bytes(self) -> float:
        """Return the memory that is free on the device."""
        ...


class CupyDevice:
    """The current CUDA device, through CuPy; it is of use in the process that made it."""

    def __init__(self) -> None:
        import cupy

        self.xp, self._process = cupy, os.getpid()
        self._modules: dict[tuple[str, tuple[int, int, int], bool], Any] = {}
        result = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
        self.name = result["name"].decode()
        self.n_blocks = int(result["multiProcessorCount"])
        self.n_threads = 1024
        # A block's static shared memory, and what the driver keeps for itself, come out of the same memory.
        self.shared_bytes = int(result["sharedMemPerBlockOptin"]) - 10 * 1024

    def launch(
        self, kernel: str, shape: tuple[int, int, int], arguments: tuple[Any, ...], fixed: tuple[int, int, int]
    ) -> None:
        """Compile the kernels for K columns, a table of this width and plain backups or not, once, and launch one."""
        if os.getpid() != self._process:
            raise BackendUnavailable(_FORKED)
        waits = "arrived" in signatures()[kernel].names  # for other blocks, so that all must run at once
        code = source(kernel)
        known = self._modules.get((code, fixed, waits))
        if known is None:
            options = ("-std=c++17", *definitions(fixed))
            known = self.xp.RawModule(code=code, options=options, enable_cooperative_groups=waits)
            self._modules[code, fixed, waits] = known
        function = known.get_function(kernel)
        if shape[2]:
            function.max_dynamic_shared_size_bytes = shape[2]
        function(shape[:1], shape[1:2], convert(kernel, arguments, _pointer), shared_mem=shape[2])

    def try_out(self) -> None:
        """Compile and run a kernel and multiply two matrices: what may be missing shows here, and not in a fit."""
        result = self.xp.ones((32, 32))
        self.xp.RawKernel(_TRIAL, "trial")((1,), (32 * 32,), (result,))
        if not np.all(self.take(result @ result) == 4.0 * 32.0):
            raise RuntimeError("a trial kernel computed wrong numbers")

    def put(self, array: Any) -> Any:
        """Return a host array on the device."""
        return self.xp.asarray(array)

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


def definitions(fixed: tuple[int, int, int]) -> tuple[str, ...]:
    """Return the compiler's options for what a kernel is compiled for.

    Examples
    --------
    >>> definitions((3, 4, 0))
    ('-DFIXED_COLUMNS=3', '-DFIXED_WIDTH=4', '-DFIXED_PLAIN=0')
    """
    return tuple(f"-DFIXED_{name}={value}" for name, value in zip(_FIXED, fixed, strict=True))


def convert(kernel: str, arguments: tuple[Any, ...], pointer: Any) -> tuple[Any, ...]:
    """Return the arguments of a kernel as the types that it takes; `pointer` turns an array or None into an address."""
    result = signatures()[kernel]
    given = []
    for kind, name, declared, value in zip(result.types, result.names, result.declarations, arguments, strict=True):
        if kind != "pointer":
            given.append(_SCALARS[kind](value))
            continue
        element = name if name in _ARRAYS else declared.removeprefix("const ").split()[0]
        if value is not None and not (value.dtype == _ARRAYS[element] and value.flags.c_contiguous):
            raise TypeError(f"{kernel} takes {name} as a C-contiguous array of {_ARRAYS[element].__name__}.")
        given.append(pointer(value))
    return tuple(given)


@contextmanager
def faults() -> Iterator[None]:
    """Turn what CuPy raises (no memory, faults of CUDA) into `BackendUnavailable`, with what to do.

    Examples
    --------
    >>> with faults():
    ...     "what does not use CuPy is as before"
    'what does not use CuPy is as before'
    """
    try:
        yield
    except Exception as error:
        kind = type(error)
        if not kind.__module__.startswith("cupy"):
            raise
        reason = _first_line(error)
        if kind.__name__ == "OutOfMemoryError":
            todo = "Give the model a smaller max_memory, free what else is on the GPU, or use device='cpu'."
            raise BackendUnavailable(f"The GPU has too little memory: {reason} {todo}") from error
        todo = "After a fault CUDA needs a new process: start one, or use device='cpu'."
        raise BackendUnavailable(f"The GPU failed: {reason}. {todo}") from error


def _open() -> tuple[Device | None, str]:
    """Return a device, or None and what is missing."""
    choice = os.environ.get("LIMIIRL_GPU", "")
    if choice == "off":
        return None, "LIMIIRL_GPU=off hides the GPU. Unset it, or use device='cpu'."
    if choice:
        message = f"LIMIIRL_GPU must be 'off' or not be set; got {choice!r}."
        raise InvalidParameter(message, parameter="LIMIIRL_GPU", value=choice)
    if _factory is not None:
        return _factory(), ""
    if (
        _requests and os.getpid() not in _requests
    ):  # nothing may be asked of CUDA here, not even which device is current
        return None, _FORKED
    try:
        import cupy
    except ImportError:
        return None, f"device='gpu' needs CuPy, which is not installed. {_INSTALL} Or use device='cpu'."
    try:
        if cupy.cuda.runtime.getDeviceCount() > 0:
            _requests.add(os.getpid())
            return _on_cuda(int(cupy.cuda.Device().id))
        return None, _broken("CUDA reports no device")
    except Exception as error:  # noqa: BLE001 (CuPy passes on all driver errors)
        return None, _broken(_first_line(error))


# The processes that have used CUDA: this one alone, or its parent if it is a fork.
_requests: set[int] = set()
_factory: Callable[[], Device] | None = None


def set_device_factory(factory: Callable[[], Device] | None) -> None:
    """Let `find_device` return what `factory` returns, instead of looking for a GPU; None undoes it.

    The tests install an emulated device with it.
    """
    global _factory  # noqa: PLW0603 (one device per process)
    _factory = factory


@cache
def _on_cuda(number: int) -> tuple[Device | None, str]:
    """Return the device of a number, which is the current one, once it was tried out; or None and what is missing."""
    del number
    try:
        device = CupyDevice()
        device.try_out()
    except Exception as error:  # noqa: BLE001 (so do compilers and libraries)
        return None, _broken(_first_line(error))
    return device, ""


def _broken(reason: str) -> str:
    return (
        f"device='gpu' needs a CUDA GPU that works: {reason}. Check nvidia-smi, and that CUDA's libraries are there. "
        f"{_INSTALL} Or use device='cpu'."
    )


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def find_device() -> Device | None:
    """Return the device that there is, or None."""
    return _open()[0]


def need_device() -> Device:
    """Return the device that there is, or raise `BackendUnavailable` with what is missing."""
    device, missing = _open()
    if device is None:
        raise BackendUnavailable(missing)
    return device
