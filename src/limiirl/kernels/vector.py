"""Two primitives that make numba's loops as fast as hand-written ones: a vectorisable `exp`, and `rowwise`.

Neither knows anything of the mathematics above; both are measured in `benchmarks/engine.py` and explained in ADR 0003.
"""

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

_LOG2E = 1.4426950408889634
# ln 2 in two pieces, so that n * ln 2 is exact to twice the working precision for every exponent n of a double.
_LN2_HI = 0.6931471803691238
_LN2_LO = 1.9082149292705877e-10
# Adding 1.5 * 2**52 rounds to the nearest integer and leaves that integer in the low bits of the sum.
_ROUND = 6755399441055744.0
# Below this exp is smaller than the least normal double, and is flushed to zero.
_UNDERFLOW = -708.39
_OVERFLOW = 709.78


@intrinsic
def rowwise(typingctx: Any) -> Any:
    """Keep the loop that holds this call from being vectorised over its own index.

    A row of a message is K neighbouring doubles. LLVM would rather vectorise over states, which turns every row into
    K strided gathers, three times slower; an empty assembly statement is something it cannot widen, so it vectorises
    inside the row.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        nothing = ir.FunctionType(ir.VoidType(), [])
        builder.call(ir.InlineAsm(nothing, "", "", side_effect=True), [])
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def _bits(typingctx: Any, x: Any) -> Any:
    """Return the 64 bits of a double as an integer."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(64))

    return types.int64(types.float64), codegen


@intrinsic
def _from_bits(typingctx: Any, n: Any) -> Any:
    """Return the double whose 64 bits are the integer `n`."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), codegen


@njit(inline="always")
def exp(x: float) -> float:
    """Return e**x to about one unit in the last place, in operations that LLVM can vectorise (libm's `exp` is a call).

    Results below the least normal double are zero, which is what the guard of the linear number space assumes.
    """
    y = min(max(x, -720.0), _OVERFLOW)
    shifted = y * _LOG2E + _ROUND
    n = shifted - _ROUND
    r = (y - n * _LN2_HI) - n * _LN2_LO
    # Taylor's polynomial of degree 13 on |r| <= ln(2) / 2: its truncation error, 4e-18, is below half a unit in the
    # last place.
    p = 1.0 / 6227020800.0
    p = p * r + 1.0 / 479001600.0
    p = p * r + 1.0 / 39916800.0
    p = p * r + 1.0 / 3628800.0
    p = p * r + 1.0 / 362880.0
    p = p * r + 1.0 / 40320.0
    p = p * r + 1.0 / 5040.0
    p = p * r + 1.0 / 720.0
    p = p * r + 1.0 / 120.0
    p = p * r + 1.0 / 24.0
    p = p * r + 1.0 / 6.0
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    # 2**n in two factors: n runs to 1024, and 2**1024 alone is not a double.
    whole = _bits(shifted) << 52 >> 52
    half = whole >> 1
    value = p * _from_bits((half + 1023) << 52) * _from_bits((whole - half + 1023) << 52)
    if x < _UNDERFLOW:
        value = 0.0
    if x > _OVERFLOW:
        value = float("inf")
    if x != x:
        value = x
    return value
