"""Compilation and launch of the CUDA kernels, and products with sparse matrices.

A `Device` provides an array module and launches kernels. It is a GPU used through CuPy, or the device returned by the
factory that was set with `set_device_factory`. The environment variable LIMIIRL_GPU=off disables it.

The products are bit-reproducible. cuSPARSE is not used because its order of summation is not deterministic for long
rows (ADR 0018).
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

from limiirl._typing import IntArray
from limiirl.errors import BackendUnavailable, InvalidParameter

# Source files of each CUDA module, in order of inclusion; a model compiles only the modules it uses.
_MODULES = (
    ("grid.cuh", "linear.cu", "logspace.cu", "hessian.cu", "soft_bellman.cu"),
    ("grid.cuh", "sparse.cu"),
    ("grid.cuh", "tiling.cuh", "elimination.cu"),
    ("grid.cuh", "tiling.cuh", "tree_solve.cu"),
)
_KERNEL = re.compile(r'extern "C" __global__ void\s+(?:__launch_bounds__\([^)]*\)\s+)?(\w+)\(([^)]*)\)')


class Signature(NamedTuple):
    """Parameters of a kernel: declarations, names, and C types ("pointer" for all pointers)."""

    declarations: tuple[str, ...]
    names: tuple[str, ...]
    types: tuple[str, ...]


def _text(names: tuple[str, ...]) -> str:
    folder = files("limiirl.kernels.gpu") / "cuda"
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in names)


@cache
def source(kernel: str) -> str:
    """Return the source code of the module that contains a kernel."""
    for names in _MODULES:
        text = _text(names)
        if kernel in (name for name, _ in _KERNEL.findall(text)):
            return text
    raise KeyError(kernel)


@cache
def all_sources() -> str:
    """Return the source code of all kernels."""
    return _text(tuple(dict.fromkeys(name for names in _MODULES for name in names)))


@cache
def signatures() -> dict[str, Signature]:
    """Return the signatures of all kernels by name."""
    result = {}
    for name, parameters in _KERNEL.findall(all_sources()):
        declarations = tuple(" ".join(part.split()) for part in parameters.split(","))
        names = tuple(re.split(r"[ *]+", part)[-1] for part in declarations)
        types = tuple("pointer" if "*" in part else part.split()[0] for part in declarations)
        result[name] = Signature(declarations, names, types)
    return result


# Compile-time constants of a kernel: number of columns (0 if it is a run-time argument), width of the neighbour table,
# and 1 if the graph is plain (PLAIN in cuda/grid.cuh).
_FIXED = ("COLUMNS", "WIDTH", "PLAIN")
_SCALARS: dict[str, Any] = {"i64": np.int64, "int": np.int32, "double": np.float64}
_INSTALL = 'Install CuPy and the CUDA libraries: pip install "cupy-cuda13x[ctk]" (CUDA 12: "cupy-cuda12x[ctk]").'
# dtypes of array arguments, by C type; `arrived` is the counter of the barrier.
_ARRAYS: dict[str, Any] = {
    "double": np.float64, "u32": np.uint32, "u64": np.uint64, "i64": np.int64, "int": np.int32, "arrived": np.uint64
}  # fmt: skip
_FORKED = (
    "The GPU cannot be used in a process that was forked after CUDA was initialised. Start processes with spawn "
    "(multiprocessing.set_start_method('spawn')), or use device='cpu'."
)
_TEST_KERNEL = 'extern "C" __global__ void test(double *x) { x[threadIdx.x] += 1.0; }'


class Device(Protocol):
    """Interface of a device that stores arrays and runs kernels.

    Attributes
    ----------
    xp : array module with the interface of numpy
    name : name of the device
    n_blocks : number of blocks that run concurrently, and can therefore synchronise
    n_threads : maximum number of threads per block
    shared_bytes : shared memory per block
    """

    xp: Any
    name: str
    n_blocks: int
    n_threads: int
    shared_bytes: int

    def launch(
        self, kernel: str, shape: tuple[int, int, int], arguments: tuple[Any, ...], fixed: tuple[int, int, int]
    ) -> None:
        """Launch a kernel with `shape` (blocks, threads, bytes of shared memory) and compile-time constants `fixed`."""
        ...

    def put(self, array: Any) -> Any:
        """Copy a host array to the device."""
        ...

    def take(self, array: Any) -> NDArray[Any]:
        """Copy a device array to the host."""
        ...

    def free_bytes(self) -> float:
        """Return the free memory of the device in bytes."""
        ...


class CupyDevice:
    """The current CUDA device, through CuPy; valid only in the process that created it."""

    def __init__(self) -> None:
        import cupy

        self.xp, self._process = cupy, os.getpid()
        self._modules: dict[tuple[str, tuple[int, int, int], bool], Any] = {}
        self._functions: dict[tuple[str, tuple[int, int, int]], Any] = {}
        properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
        self.name = properties["name"].decode()
        self.n_blocks = int(properties["multiProcessorCount"])
        self.n_threads = 1024
        # Reserve memory for the static shared memory of the kernels and for the driver.
        self.shared_bytes = int(properties["sharedMemPerBlockOptin"]) - 10 * 1024

    def launch(
        self, kernel: str, shape: tuple[int, int, int], arguments: tuple[Any, ...], fixed: tuple[int, int, int]
    ) -> None:
        """Compile the module of a kernel for the constants `fixed` if necessary, and launch the kernel."""
        if os.getpid() != self._process:
            raise BackendUnavailable(_FORKED)
        function = self._functions.get((kernel, fixed))
        if function is None:
            function = self._functions[kernel, fixed] = self._compile(kernel, fixed)
        if shape[2]:
            function.max_dynamic_shared_size_bytes = shape[2]
        function(shape[:1], shape[1:2], convert(kernel, arguments, _pointer), shared_mem=shape[2])

    def _compile(self, kernel: str, fixed: tuple[int, int, int]) -> Any:
        synchronises = "arrived" in signatures()[kernel].names  # a cooperative launch: all blocks run concurrently
        code = source(kernel)
        module = self._modules.get((code, fixed, synchronises))
        if module is None:
            options = ("-std=c++17", *macro_options(fixed))
            module = self.xp.RawModule(code=code, options=options, enable_cooperative_groups=synchronises)
            self._modules[code, fixed, synchronises] = module
        return module.get_function(kernel)

    def check(self) -> None:
        """Run a test kernel and a matrix product, to detect missing libraries before a fit."""
        result = self.xp.ones((32, 32))
        self.xp.RawKernel(_TEST_KERNEL, "test")((1,), (32 * 32,), (result,))
        if not np.all(self.take(result @ result) == 4.0 * 32.0):
            raise RuntimeError("a test kernel returned incorrect results")

    def put(self, array: Any) -> Any:
        """Copy a host array to the device."""
        return self.xp.asarray(array)

    def take(self, array: Any) -> NDArray[Any]:
        """Copy a device array to the host."""
        return np.asarray(self.xp.asnumpy(array))

    def free_bytes(self) -> float:
        """Return the free memory of the device in bytes, including the free memory in CuPy's pool."""
        free, _ = self.xp.cuda.runtime.memGetInfo()
        return float(free + self.xp.get_default_memory_pool().free_bytes())


def _pointer(array: Any) -> Any:
    return np.uint64(0 if array is None else array.data.ptr)


def flat_shape(device: Device, size: int) -> tuple[int, int, int]:
    """Return the launch shape of a kernel with one thread per entry, and at most eight blocks per multiprocessor."""
    threads = min(256, device.n_threads)
    return max(1, min(8 * device.n_blocks, -(-size // threads))), threads, 0


def macro_options(fixed: tuple[int, int, int]) -> tuple[str, ...]:
    """Return the compiler flags that define the compile-time constants of a kernel."""
    return tuple(f"-DFIXED_{name}={value}" for name, value in zip(_FIXED, fixed, strict=True))


def convert(kernel: str, arguments: tuple[Any, ...], pointer: Any) -> tuple[Any, ...]:
    """Return the arguments of a kernel in the declared types; `pointer` maps an array or None to an address."""
    converted = []
    for (name, scalar, dtype), value in zip(_parameters(kernel), arguments, strict=True):
        if scalar is not None:
            converted.append(scalar(value))
            continue
        if value is not None and not (value.dtype == dtype and value.flags.c_contiguous):
            raise TypeError(f"{kernel}: {name} must be a C-contiguous array of {dtype}.")
        converted.append(pointer(value))
    return tuple(converted)


@cache
def _parameters(kernel: str) -> list[tuple[str, Any, Any]]:
    """Return the name of each parameter, with its numpy type if it is a scalar, or its dtype if it is an array."""
    signature, result = signatures()[kernel], []
    for kind, name, declared in zip(signature.types, signature.names, signature.declarations, strict=True):
        element = name if name in _ARRAYS else declared.removeprefix("const ").split()[0]
        result.append((name, None, np.dtype(_ARRAYS[element])) if kind == "pointer" else (name, _SCALARS[kind], None))
    return result


@contextmanager
def convert_cuda_errors() -> Iterator[None]:
    """Convert exceptions of CuPy (out of memory, CUDA errors) to `BackendUnavailable` with a remedy."""
    try:
        yield
    except Exception as error:
        kind = type(error)
        if not kind.__module__.startswith("cupy"):
            raise
        reason = _first_line(error)
        if kind.__name__ == "OutOfMemoryError":
            remedy = "Set a smaller max_memory for the model, free GPU memory, or use device='cpu'."
            raise BackendUnavailable(f"GPU out of memory: {reason} {remedy}") from error
        remedy = "CUDA can no longer be used in this process. Restart it, or use device='cpu'."
        raise BackendUnavailable(f"CUDA error: {reason}. {remedy}") from error


def _open() -> tuple[Device | None, str]:
    """Return a device and an empty string, or None and the reason why no device is available."""
    choice = os.environ.get("LIMIIRL_GPU", "")
    if choice == "off":
        return None, "LIMIIRL_GPU=off disables the GPU. Unset it, or use device='cpu'."
    if choice:
        message = f"LIMIIRL_GPU must be 'off' or unset; got {choice!r}."
        raise InvalidParameter(message, parameter="LIMIIRL_GPU", value=choice)
    if _factory is not None:
        return _factory(), ""
    if _cuda_processes and os.getpid() not in _cuda_processes:  # CUDA calls are invalid in a forked process
        return None, _FORKED
    try:
        import cupy
    except ImportError:
        return None, f"device='gpu' needs CuPy, which is not installed. {_INSTALL} Or use device='cpu'."
    try:
        if cupy.cuda.runtime.getDeviceCount() > 0:
            _cuda_processes.add(os.getpid())
            return _open_cuda(int(cupy.cuda.Device().id))
        return None, _unusable("CUDA reports no device")
    except Exception as error:  # noqa: BLE001 (CuPy raises driver errors of any type)
        return None, _unusable(_first_line(error))


# IDs of processes that used CUDA: this process, or its parent if it was forked.
_cuda_processes: set[int] = set()
_factory: Callable[[], Device] | None = None


def set_device_factory(factory: Callable[[], Device] | None) -> None:
    """Make `find_device` return `factory()` instead of detecting a GPU; None restores the default.

    Used in tests to install an emulated device.
    """
    global _factory  # noqa: PLW0603 (one device per process)
    _factory = factory


@cache
def _open_cuda(number: int) -> tuple[Device | None, str]:
    """Return the current CUDA device after a check, or None and the reason; `number` is used only as the cache key."""
    del number
    try:
        device = CupyDevice()
        device.check()
    except Exception as error:  # noqa: BLE001 (compilers and libraries raise errors of any type)
        return None, _unusable(_first_line(error))
    return device, ""


def _unusable(reason: str) -> str:
    remedy = f"Check nvidia-smi and the CUDA libraries. {_INSTALL} Or use device='cpu'."
    return f"device='gpu' needs a working CUDA GPU: {reason}. {remedy}"


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def find_device() -> Device | None:
    """Return the GPU, or None if no GPU is available."""
    return _open()[0]


def need_device() -> Device:
    """Return the GPU; raise `BackendUnavailable` if no GPU is available."""
    device, reason = _open()
    if device is None:
        raise BackendUnavailable(reason, parameter="device", value="gpu")
    return device


# Maximum number of terms per thread; longer rows are split.
PIECE = 128


class _Pass(NamedTuple):
    """Ranges of terms summed by each thread in one launch of `sparse_sums` (cuda/sparse.cu)."""

    n: int
    first: Any
    last: Any
    step: Any


def _split_rows(ptr: IntArray) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Split CSR rows into strided pieces of at most PIECE entries; return first, last, step and the row pointers.

    Piece i has the entries range(first[i], last[i], step[i]). The pieces of a row are interleaved, so that neighbouring
    threads read neighbouring entries.
    """
    length = np.diff(ptr)
    count = -(-length // PIECE)
    row = np.repeat(np.arange(length.size), count)
    ends = np.concatenate([[0], np.cumsum(count)])
    first = ptr[row] + np.arange(row.size) - ends[row]
    return first, ptr[row + 1], count[row], ends


class SparseRows:
    """A sparse matrix (n, m) on a device.

    Parameters
    ----------
    device : Device
    matrix : scipy.sparse.csr_array
    """

    def __init__(self, device: Device, matrix: Any) -> None:
        self.device, self.shape = device, matrix.shape
        self._at = device.put(matrix.indices.astype(np.int32))
        self._weight = device.put(matrix.data.astype(np.float64))
        self._passes: list[_Pass] = []
        ptr = matrix.indptr.astype(np.int64)
        while np.max(np.diff(ptr), initial=0) > PIECE:
            *pieces, ptr = _split_rows(ptr)
            self._passes.append(_Pass(pieces[0].size, *map(device.put, pieces)))
        self._passes.append(_Pass(ptr.size - 1, device.put(ptr), None, None))

    def times(self, dense: Any) -> Any:
        """Return the product (n, K) with a dense matrix (m, K) on the device."""
        result, k = self.device.xp.ascontiguousarray(dense), dense.shape[1]
        at, weight = self._at, self._weight
        for rows in self._passes:
            x, result = result, self.device.xp.empty((rows.n, k))
            if result.size:
                arguments = (rows.n, k, rows.first, rows.last, rows.step, at, weight, x, result)
                self.device.launch("sparse_sums", flat_shape(self.device, rows.n * k), arguments, (0, 1, 0))
            at = weight = None
        return result
