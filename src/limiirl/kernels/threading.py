"""How the kernels use threads."""

import threading

# States a thread works on at a time; a graph of at most this many states is swept without waking a second thread.
BLOCK = 2048
# Only explicit prange loops go to the threads; numba would otherwise send every small array assignment there too.
ONLY_PRANGE = dict.fromkeys(("comprehension", "reduction", "inplace_binop", "setitem", "numpy", "stencil"), False) | {
    "prange": True
}
# One of numba's threading layers ends the process when two threads enter parallel code at once.
LOCK = threading.Lock()
