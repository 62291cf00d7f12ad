"""Timing a call, measuring the memory of a process, and naming the machine."""

import os
import platform
import re
import resource
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
    """Return the least time of `repeats` calls: other work on the machine only ever adds."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def peak_bytes() -> int:
    """Return the largest memory that this process has had in use."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Not getrusage: it counts what the parent held when it started this process.
    mark = re.search(r"VmHWM:\s+(\d+)", status.read_text())
    return 1024 * int(mark.group(1)) if mark else 0


def run_fresh(module: str, *args: str) -> str:
    """Run `python -m module args` in a fresh process and return what it printed: peaks of memory must not be shared."""
    command = [sys.executable, "-m", module, *args]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def describe_machine() -> str:
    """Return a line on the machine and the versions, to stand above results."""
    return (
        f"{os.cpu_count()} cores ({platform.machine()}), Python {platform.python_version()}, limiirl "
        f"{limiirl.__version__}, numpy {np.__version__}, scipy {scipy.__version__}, numba {numba.__version__}"
    )
