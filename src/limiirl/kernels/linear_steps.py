"""Linear space, one step at a time: how a message is scaled, and a block of states of a given step.

Scales are powers of two, so that scaling is exact.
"""

import math
from typing import Any

import numpy as np
from numba import njit

from limiirl.kernels.linear_rows import backward_block, forward_block

# Steps that sweep over a large graph together, each a block behind the one before (see `linear`).
WAVE = 4
# A column is rescaled every so many steps: each costs one more pass over the message, and doubles have room for many.
RESCALE_EVERY = 4 * WAVE
_LN2 = math.log(2.0)


@njit(cache=True, error_model="numpy")
def _shift_of(message: Any, t: int, shift: Any, columns: Any) -> None:
    """Choose the exponents by which a message is rescaled at step t: mostly 0, now and then those of its maxima."""
    n_columns = np.uint64(len(columns))
    for k in range(n_columns):
        shift[k] = 0
        if t % RESCALE_EVERY == 0:
            top = 0.0
            for s in range(np.uint64(message.size) // n_columns):
                top = max(top, message[s * n_columns + k])
            if 0.0 < top < np.inf:
                shift[k] = math.frexp(top)[1]


@njit(cache=True, error_model="numpy")
def backward_scales(messages: Any, exponents: Any, i: int, t: int, columns: Any) -> Any:
    """Return (stop, factor): what stopping weighs at step t, and what the message of the next step is multiplied by."""
    n_columns = len(columns)
    shift = np.empty(n_columns, dtype=np.int64)
    stop, factor = np.empty(n_columns), np.empty(n_columns)
    _shift_of(messages[i + 1], t, shift, columns)
    for k in range(n_columns):
        exponents[i, k] = exponents[i + 1, k] + shift[k]
        factor[k] = math.ldexp(1.0, -shift[k])
        stop[k] = math.ldexp(1.0, -exponents[i, k])
        messages[i, messages.shape[1] - n_columns + k] = 0.0
    return stop, factor


@njit(cache=True, error_model="numpy")
def backward_stage(sweep: Any, end: Any, messages: Any, i: int, scales: Any, t: int, b: int, block: int) -> None:
    """Set block b of messages[i], which is of step t; blocks beyond the states are nothing to do."""
    near, rewards, weights, columns = sweep
    n_states = messages.shape[1] // len(columns) - 1
    lo, hi = b * block, min(n_states, (b + 1) * block)
    if 0 <= lo < n_states:
        prev, out = messages[i + 1], messages[i]
        backward_block(near, rewards, weights, end, prev, out, scales, t, np.uint64(lo), np.uint64(hi), columns)


@njit(cache=True, error_model="numpy")
def forward_scales(cur: Any, alpha_exponent: Any, exponent: Any, log_norm: Any, gain: Any, t: int, columns: Any) -> Any:
    """Return (factor, scale, node gain, edge gain) of step t: of the next alpha, of a probability, of the tallies."""
    n_columns = len(columns)
    shift = np.empty(n_columns, dtype=np.int64)
    factor, scale, node_gain, edge_gain = (
        np.empty(n_columns),
        np.empty(n_columns),
        np.empty(n_columns),
        np.empty(n_columns),
    )
    _shift_of(cur, t, shift, columns)
    for k in range(n_columns):
        scale[k] = math.exp((alpha_exponent[k] + exponent[k]) * _LN2 - log_norm[k])
        node_gain[k] = gain[t] * scale[k]
        edge_gain[k] = gain[t - 1] * scale[k]
        factor[k] = math.ldexp(1.0, -shift[k])
        alpha_exponent[k] += shift[k]
    return factor, scale, node_gain, edge_gain


@njit(cache=True, error_model="numpy")
def forward_stage(sweep: Any, alpha: Any, u: Any, tally: Any, i: int, scales: Any, t: int, b: int, block: int) -> None:
    """Carry alpha to block b of step t and tally it in row i; blocks beyond the states are nothing to do."""
    near, rewards, weights, columns = sweep
    n_states = u.size // len(columns) - 1
    lo, hi = b * block, min(n_states, (b + 1) * block)
    if 0 <= lo < n_states:
        arrays = (alpha[(t - 1) % 2], alpha[t % 2], u)
        forward_block(near, rewards, weights, arrays, tally, i, scales, t, np.uint64(lo), np.uint64(hi), columns)
