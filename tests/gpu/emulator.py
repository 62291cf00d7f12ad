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
import pytest
from numpy.typing import NDArray

from limiirl.errors import BackendUnavailable
from limiirl.kernels.gpu import device
from limiirl.kernels.gpu.device import Device, all_sources, convert, macro_options, set_device_factory, signatures

_TYPES: dict[str, Any] = {"i64": ctypes.c_longlong, "int": ctypes.c_int, "double": ctypes.c_double}
# The most threads of a block, for which kernels have memory, and the parameters that they are compiled for on a GPU.
_MOST_THREADS = 1024
_FIXED = ("n_columns", "width", "plain")


def compiler() -> str | None:
    """Return the path of a C++ compiler, the one that CXX names if it does, or None."""
    return shutil.which(os.environ.get("CXX", "") or "g++") or shutil.which("c++")


@cache
def _source() -> str:
    """The C++ that runs the kernels on a CPU: the same source, and a function `run_<kernel>` for each."""
    calls = []
    for name, kernel in signatures().items():
        given = ", ".join(("unsigned blocks", "unsigned threads", "u64 shared", "int reverse", *kernel.declarations))
        call = f"emulate(blocks, threads, shared, reverse, [&] {{ {name}({', '.join(kernel.names)}); }})"
        calls.append(f'extern "C" int run_{name}({given}) {{ return {call}; }}')
    runner = Path(__file__).with_name("emulator.hpp").read_text(encoding="utf-8")
    return "\n".join((runner, all_sources(), *calls, ""))


@cache
def _library(options: tuple[str, ...] = ()) -> ctypes.PyDLL:
    compiler_path = compiler()
    if compiler_path is None:
        raise BackendUnavailable("The emulated GPU needs a C++ compiler. Install g++, or set CXX.")
    with tempfile.TemporaryDirectory() as folder:
        code, library = Path(folder) / "kernels.cpp", Path(folder) / "kernels.so"
        code.write_text(_source(), encoding="utf-8")
        command = [
            compiler_path,
            "-std=c++17",
            "-O1",
            "-shared",
            "-fPIC",
            "-w",
            *options,
            str(code),
            "-o",
            str(library),
        ]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode:
            raise BackendUnavailable(f"{compiler_path} could not compile the GPU kernels: {made.stderr[:2000]}")
        # PyDLL keeps Python's lock: the grid is static memory there, and two launches at once would share it.
        return ctypes.PyDLL(str(library))


class EmulatedDevice:
    """A small GPU, emulated: three blocks at once, of at most 32 threads, with little shared memory.

    Parameters
    ----------
    n_blocks, n_threads, shared_bytes : int
        See `Device`.
    reverse : bool
        Whether the last thread runs first. A barrier that is missing may show in one order alone.
    compiled : bool
        Whether kernels are compiled for their columns, as on a GPU, and not once for all: seconds for each number.
    """

    def __init__(
        self,
        n_blocks: int = 3,
        n_threads: int = 32,
        shared_bytes: int = 2048,
        *,
        reverse: bool = False,
        compiled: bool = False,
    ) -> None:
        if n_blocks < 1 or not 1 <= n_threads <= _MOST_THREADS or shared_bytes < 0:
            raise ValueError(f"no such device: n_blocks={n_blocks}, n_threads={n_threads}, shared_bytes={shared_bytes}")
        self.xp: Any = np
        self.name = "emulated"
        self.n_blocks, self.n_threads, self.shared_bytes = n_blocks, n_threads, shared_bytes
        self._reverse, self._compiled = reverse, compiled
        self._library = _library()

    def launch(
        self, kernel: str, shape: tuple[int, int, int], arguments: tuple[Any, ...], fixed: tuple[int, int, int]
    ) -> None:
        """Run a kernel; what it would be compiled for must be its arguments, which are used here unless `compiled`."""
        if shape[1] > self.n_threads or shape[2] > self.shared_bytes:
            raise RuntimeError(f"{kernel} does not fit the device: {shape[1]} threads, {shape[2]} shared bytes.")
        signature = signatures()[kernel]
        given = dict(zip(signature.names, arguments, strict=True))
        for name, value in zip(_FIXED, fixed, strict=True):
            any_number = name == "n_columns" and value == 0
            if not any_number and given.get(name, value) != value:
                raise RuntimeError(f"{kernel} would be compiled for {name} {value}, but {name} is {given[name]}.")
        library = _library(macro_options(fixed)) if self._compiled else self._library
        call = getattr(library, f"run_{kernel}")
        call.argtypes = [ctypes.c_uint, ctypes.c_uint, ctypes.c_ulonglong, ctypes.c_int]
        call.argtypes += [_TYPES.get(kind, ctypes.c_void_p) for kind in signature.types]
        if call(*shape, self._reverse, *convert(kernel, arguments, _pointer)):
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


@cache
def _default_device() -> Device:
    return EmulatedDevice()


def install_emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let device="gpu" be the emulated one until the end of the test."""
    monkeypatch.setattr(device, "_factory", None)  # restores it at the end
    set_device_factory(_default_device)
