"""Block size, compiler options, lock and wait policy of the multithreaded kernels."""

import os
import threading

# States or rows per block, the unit of work of a thread; smaller inputs are processed by one thread.
BLOCK = 2048
# Parallelise only explicit prange loops, not array expressions.
ONLY_PRANGE = dict.fromkeys(("comprehension", "reduction", "inplace_binop", "setitem", "numpy", "stencil"), False) | {
    "prange": True
}
# Numba's workqueue threading layer is not thread-safe.
LOCK = threading.Lock()
# Threads sleep at barriers instead of spinning. If another program uses a core, a spinning thread takes the processor
# from the thread that it waits for; see benchmarks/busy_core.py. OpenMP reads the variable when it is loaded, which is
# before the first parallel kernel runs.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
