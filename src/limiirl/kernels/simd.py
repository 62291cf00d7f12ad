"""Numba intrinsics: rows of K doubles in vector registers, and an `exp` that LLVM can vectorise (ADR 0003)."""

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

_LOG2E = 1.4426950408889634
# ln 2 as the sum of two doubles, so that n * ln 2 has twice the working precision for every exponent n of a double.
_LN2_HI = 0.6931471803691238
_LN2_LO = 1.9082149292705877e-10
# Adding 1.5 * 2**52 rounds to the nearest integer, which is then in the low bits of the sum.
_ROUND = 6755399441055744.0
# Below this argument, exp is less than the smallest normal double and is set to zero.
_UNDERFLOW = -708.39
_OVERFLOW = 709.78


def _vector(builder: Any, row: Any) -> Any:
    """Convert a numba tuple of K doubles to an LLVM vector; LLVM removes the conversion if `_row` reverses it."""
    count = row.type.count
    vector = ir.Constant(ir.VectorType(ir.DoubleType(), count), ir.Undefined)
    for k in range(count):
        vector = builder.insert_element(vector, builder.extract_value(row, k), ir.Constant(ir.IntType(32), k))
    return vector


def _row(context: Any, builder: Any, row_type: Any, vector: Any) -> Any:
    """Convert an LLVM vector to a numba tuple of K doubles."""
    parts = [builder.extract_element(vector, ir.Constant(ir.IntType(32), k)) for k in range(row_type.count)]
    return context.make_tuple(builder, row_type, parts)


def _row_pointer(context: Any, builder: Any, array_type: Any, array: Any, offset: Any, count: int) -> Any:
    data = context.make_array(array_type)(context, builder, value=array).data
    place = builder.gep(data, [offset])
    return builder.bitcast(place, ir.VectorType(ir.DoubleType(), count).as_pointer())


def _width(columns: Any) -> int:
    return columns.count if isinstance(columns, types.BaseTuple) else 1


@intrinsic
def count(typingctx: Any, columns: Any) -> Any:
    """Return K: the length of `columns` if it is a tuple (a compile-time constant), otherwise its value."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.get_constant(types.uint64, columns.count) if isinstance(columns, types.BaseTuple) else args[0]

    return types.uint64(columns if isinstance(columns, types.BaseTuple) else types.uint64), codegen


@intrinsic
def lanes(typingctx: Any, columns: Any) -> Any:
    """Return the number of columns per row: K if `columns` is a tuple of length K, 1 if it is an integer."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.get_constant(types.uint64, _width(columns))

    return types.uint64(columns), codegen


@intrinsic
def load(typingctx: Any, array: Any, offset: Any, columns: Any) -> Any:
    """Return the row array[offset : offset + lanes(columns)] as a tuple."""
    row_type = types.UniTuple(types.float64, _width(columns))

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _row_pointer(context, builder, array, args[0], args[1], _width(columns))
        return _row(context, builder, row_type, builder.load(place, align=8))

    return row_type(array, types.uint64, columns), codegen


@intrinsic
def store(typingctx: Any, array: Any, offset: Any, row: Any) -> Any:
    """Set array[offset : offset + K] to the tuple `row`."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _row_pointer(context, builder, array, args[0], args[1], row.count)
        builder.store(_vector(builder, args[2]), place, align=8)
        return context.get_dummy_value()

    return types.void(array, types.uint64, row), codegen


@intrinsic
def add(typingctx: Any, a: Any, b: Any) -> Any:
    """Return the sum of two rows."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _row(context, builder, a, builder.fadd(_vector(builder, args[0]), _vector(builder, args[1])))

    return a(a, b), codegen


@intrinsic
def mul(typingctx: Any, a: Any, b: Any) -> Any:
    """Return the elementwise product of two rows."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _row(context, builder, a, builder.fmul(_vector(builder, args[0]), _vector(builder, args[1])))

    return a(a, b), codegen


@intrinsic
def scale(typingctx: Any, a: Any, x: Any) -> Any:
    """Return the product of a row and a scalar."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        parts = [builder.fmul(builder.extract_value(args[0], k), args[1]) for k in range(a.count)]
        return context.make_tuple(builder, a, parts)

    return a(a, types.float64), codegen


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
    """Return e**x to about one unit in the last place, with operations that LLVM can vectorise (unlike libm's `exp`).

    Results below the smallest normal double are zero, as the underflow bound of linear arithmetic assumes.
    """
    y = min(max(x, -720.0), _OVERFLOW)
    shifted = y * _LOG2E + _ROUND
    n = shifted - _ROUND
    r = (y - n * _LN2_HI) - n * _LN2_LO
    # Taylor polynomial of degree 13 on |r| <= ln(2) / 2; the truncation error 4e-18 is below half a unit in the last
    # place.
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
    # 2**n as a product of two factors, because n may be 1024 and 2**1024 is not a double.
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
