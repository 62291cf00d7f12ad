"""Block size, parallel options and lock of the threaded kernels."""

import threading

# States per thread and task; smaller graphs run on one thread.
BLOCK = 2048
# Parallelise explicit prange loops only, not every array assignment.
ONLY_PRANGE = dict.fromkeys(("comprehension", "reduction", "inplace_binop", "setitem", "numpy", "stencil"), False) | {
    "prange": True
}
# Numba's workqueue threading layer is not thread-safe.
LOCK = threading.Lock()
