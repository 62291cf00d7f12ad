"""Measure the time of a call and the memory of a process, and describe the machine."""

import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numba
import numpy as np
import scipy

import limiirl


def seconds(call: Callable[[], object], repeats: int = 5) -> float:
    """Return the smallest time of `repeats` calls, because other processes can only increase it."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def peak_bytes() -> int:
    """Return the peak memory of this process in bytes."""
    if sys.platform == "win32":
        import psutil

        return int(psutil.Process().memory_info().peak_wset)
    status = Path("/proc/self/status")
    if not status.exists():
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # getrusage is not used, because it includes memory of the parent process.
    mark = re.search(r"VmHWM:\s+(\d+)", status.read_text(encoding="utf-8"))
    return 1024 * int(mark.group(1)) if mark else 0


def run_fresh(module: str, *args: str) -> str:
    """Run `python -m module args` in a new process, so that its peak memory is its own, and return its output."""
    command = [sys.executable, "-m", module, *args]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def describe_machine() -> str:
    """Describe the machine and the package versions in one line."""
    return (
        f"{os.cpu_count()} cores ({platform.machine()}), Python {platform.python_version()}, limiirl "
        f"{limiirl.__version__}, numpy {np.__version__}, scipy {scipy.__version__}, numba {numba.__version__}"
    )
