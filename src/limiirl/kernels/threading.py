"""Block size, compiler options and lock of the multithreaded kernels."""

import threading

# States or rows per block, the unit of work of a thread; smaller inputs are processed by one thread.
BLOCK = 2048
# Parallelise only explicit prange loops, not array expressions.
ONLY_PRANGE = dict.fromkeys(("comprehension", "reduction", "inplace_binop", "setitem", "numpy", "stencil"), False) | {
    "prange": True
}
# Numba's workqueue threading layer is not thread-safe.
LOCK = threading.Lock()
