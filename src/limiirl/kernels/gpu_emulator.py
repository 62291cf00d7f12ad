"""`EmulatedDevice`: the CUDA source compiled by a C++ compiler and run on the CPU, thread by thread.

It is for tests on machines without a GPU: every index, scale and barrier of the kernels is exercised, slowly.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limiirl.errors import BackendUnavailable
from limiirl.kernels.gpu_device import convert
from limiirl.kernels.gpu_source import emulator_source, signatures

_TYPES: dict[str, Any] = {"i64": ctypes.c_longlong, "int": ctypes.c_int, "double": ctypes.c_double}


def compiler() -> str | None:
    """Return the path of a C++ compiler, the one that CXX names if it does, or None."""
    return shutil.which(os.environ.get("CXX", "") or "g++") or shutil.which("c++")


@cache
def _library() -> ctypes.PyDLL:
    found = compiler()
    if found is None:
        raise BackendUnavailable("The emulated GPU needs a C++ compiler. Install g++, or set CXX.")
    with tempfile.TemporaryDirectory() as folder:
        code, library = Path(folder) / "kernels.cpp", Path(folder) / "kernels.so"
        code.write_text(emulator_source(), encoding="utf-8")
        command = [found, "-std=c++17", "-O1", "-shared", "-fPIC", "-w", str(code), "-o", str(library)]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode:
            raise BackendUnavailable(f"{found} could not compile the GPU kernels: {made.stderr[:2000]}")
        # PyDLL keeps Python's lock: the grid is static memory there, and two launches at once would share it.
        return ctypes.PyDLL(str(library))


class EmulatedDevice:
    """A small GPU, emulated: three blocks at once, of at most 32 threads, with little shared memory."""

    def __init__(self, n_blocks: int = 3, n_threads: int = 32, shared_bytes: int = 2048) -> None:
        self.xp: Any = np
        self.name = "emulated"
        self.n_blocks, self.n_threads, self.shared_bytes = n_blocks, n_threads, shared_bytes
        self._library = _library()

    def launch(
        self, kernel: str, shape: tuple[int, int, int], arguments: tuple[Any, ...], fixed: tuple[int, int, int]
    ) -> None:
        """Run a kernel; what it would be compiled for are arguments here."""
        del fixed
        if shape[1] > self.n_threads or shape[2] > self.shared_bytes:
            raise RuntimeError(f"{kernel} does not fit the device: {shape[1]} threads, {shape[2]} shared bytes.")
        types = signatures()[kernel].types
        call = getattr(self._library, f"run_{kernel}")
        call.argtypes = [ctypes.c_uint, ctypes.c_uint, ctypes.c_ulonglong]
        call.argtypes += [_TYPES.get(kind, ctypes.c_void_p) for kind in types]
        if call(*shape, *convert(kernel, arguments, _pointer)):
            raise RuntimeError(f"The threads of a block of {kernel} waited at different barriers.")

    def put(self, array: Any) -> Any:
        """Return a copy, as a device would have one."""
        return np.array(array)

    def take(self, array: Any) -> NDArray[Any]:
        """Return a copy, as a host would have one."""
        return np.array(array)

    def free_bytes(self) -> float:
        """Return what a small device would have."""
        return 2.0**31


def _pointer(array: NDArray[Any] | None) -> int | None:
    return None if array is None else array.ctypes.data
