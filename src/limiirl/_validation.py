"""Validation of arguments; each function raises `InvalidParameter` with the name and value of the argument."""

from __future__ import annotations

import contextlib
import difflib
import math
import os
import sys
from collections.abc import Iterable
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from limiirl._typing import BoolArray, FloatArray
from limiirl.errors import InvalidParameter, LimiirlError


def check_count(value: object, name: str, *, least: int = 1, bytes_each: float = 0.0, remedy: str = "") -> int:
    """Return `value` as an int after checking that it is at least `least`; `remedy` ends the error message.

    `bytes_each` is the minimum memory per counted item. A count that requires more than the available memory is
    refused.

    Examples
    --------
    >>> check_count(np.int64(3), "n_intents")
    3
    >>> check_count(2, "height", least=3, remedy="Add a column.")
    Traceback (most recent call last):
    limiirl.errors.InvalidParameter: height must be an integer of at least 3; got 2. Add a column.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise InvalidParameter.of(name, value, f"must be an integer of at least {least}", remedy=remedy)
    check_memory(bytes_each * int(value), name, value, "Reduce it.")
    return int(value)


def check_positive(value: object, name: str, *, zero: bool = False, remedy: str = "") -> float:
    """Return `value` as a float after checking that it is finite and positive, or nonnegative if `zero`.

    Examples
    --------
    >>> check_positive(2, "ridge", zero=True)
    2.0
    """
    number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    if not math.isfinite(number) or number < 0 or (number == 0 and not zero):
        rule = f"must be a finite number {'of at least' if zero else 'above'} 0"
        raise InvalidParameter.of(name, value, rule, remedy=remedy)
    return number


def check_fraction(value: object, name: str, *, remedy: str = "") -> float:
    """Return `value` as a float after checking that it lies in [0, 1].

    Examples
    --------
    >>> check_fraction(1.5, "wind")
    Traceback (most recent call last):
    limiirl.errors.InvalidParameter: wind must lie in [0, 1]; got 1.5.
    """
    if isinstance(value, bool) or not isinstance(value, Real) or not 0.0 <= float(value) <= 1.0:
        raise InvalidParameter.of(name, value, "must lie in [0, 1]", remedy=remedy)
    return float(value)


def check_level(value: object) -> float:
    """Return a confidence level as a float after checking that it lies in (0, 1).

    Examples
    --------
    >>> check_level(95)
    Traceback (most recent call last):
    limiirl.errors.InvalidParameter: level must lie in (0, 1); got 95. Pass 0.95 for 95 %.
    """
    if isinstance(value, bool) or not isinstance(value, Real) or not 0.0 < float(value) < 1.0:
        raise InvalidParameter.of("level", value, "must lie in (0, 1)", remedy="Pass 0.95 for 95 %.")
    return float(value)


def check_type(value: object, name: str, kind: type, *, remedy: str = "") -> None:
    """Raise `InvalidParameter` unless `value` is an instance of a class.

    Examples
    --------
    >>> check_type(3, "name", str)
    Traceback (most recent call last):
    limiirl.errors.InvalidParameter: name must be str; got 3.
    """
    if not isinstance(value, kind):
        raise InvalidParameter.of(name, value, f"must be {kind.__name__}", remedy=remedy)


def check_flag(value: object, name: str) -> bool:
    """Return `value` as a bool after checking that it is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise InvalidParameter.of(name, value, "must be True or False")
    return bool(value)


def is_collection(values: object) -> TypeGuard[Iterable[Any]]:
    """Return True for iterables, except text and zero-dimensional arrays.

    Examples
    --------
    >>> is_collection(["a"]), is_collection("a"), is_collection(np.array(3))
    (True, False, False)
    """
    return isinstance(values, Iterable) and not isinstance(values, str | bytes) and getattr(values, "ndim", 1) > 0


def to_array(values: object, name: str) -> NDArray[Any]:
    """Return `values` as an array; raise an error for nested lists of unequal lengths and for masked entries."""
    if np.ma.is_masked(values):
        raise InvalidParameter.of(name, values, "must not have masked entries", remedy="Drop or fill them.")
    try:
        return np.asarray(values)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidParameter(f"{name} must be an array ({error}).", parameter=name, value=values) from None


def check_each(
    valid: BoolArray,
    values: NDArray[Any],
    name: str,
    rule: str,
    *,
    error: type[LimiirlError] = InvalidParameter,
    remedy: str = "",
) -> None:
    """Raise an error about the first entry of an array that is not valid.

    Parameters
    ----------
    valid : mask of the leading axes of `values`
    values : array
    name, rule, remedy : str
        As for `LimiirlError.of`.

    Examples
    --------
    >>> values = np.array([0.5, -0.5])
    >>> check_each(values >= 0.0, values, "weights", "must not be negative")
    Traceback (most recent call last):
    limiirl.errors.InvalidParameter: weights[1] must not be negative; got -0.5.
    """
    if not np.all(valid):
        at = tuple(int(i) for i in np.argwhere(~valid)[0])
        raise error.of(name, values[at].tolist(), rule, index=at[0] if len(at) == 1 else at, remedy=remedy)


def check_choice(value: str, name: str, choices: tuple[str, ...]) -> str:
    """Return `value` after checking that it is one of the choices."""
    if not isinstance(value, str) or value not in choices:
        raise InvalidParameter.of(name, value, f"must be one of {', '.join(choices)}", remedy=suggest(value, choices))
    return value


def suggest(value: object, choices: Iterable[str]) -> str:
    """Return a sentence with the most similar choice, or "" if no choice is similar.

    Examples
    --------
    >>> suggest("tabel1", ("table1", "wind")), suggest("maxent", ("MaxEnt", "MLIRL")), suggest("x", ("MLIRL",))
    ("Did you mean 'table1'?", "Did you mean 'MaxEnt'?", '')
    """
    by_lower = {choice.lower(): choice for choice in choices}
    similar = difflib.get_close_matches(str(value).lower(), by_lower, n=1, cutoff=0.7)
    return f"Did you mean {by_lower[similar[0]]!r}?" if similar else ""


def check_seed(value: object, name: str = "seed") -> int:
    """Return `value` as an int after checking that it is nonnegative."""
    return check_count(value, name, least=0)


def as_generator(seed: object) -> np.random.Generator:
    """Return a random generator from an integer, a Generator (returned unchanged) or None.

    Examples
    --------
    >>> int(as_generator(0).integers(10))
    8
    """
    try:
        return np.random.default_rng(seed)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        rule = f"must be a nonnegative integer, a Generator or None ({error})"
        raise InvalidParameter.of("seed", seed, rule) from None


def available_memory() -> float:
    """Return the number of bytes of memory that this process can allocate without swapping; inf if it is unknown."""
    sizes = [math.inf]
    if sys.platform == "win32":
        import ctypes

        # The structure MEMORYSTATUSEX: its size and the load in one number, then the total and the available memory.
        status = (ctypes.c_uint64 * 8)(64)
        if ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status)):
            sizes.append(float(status[2]))
        return min(sizes)
    with contextlib.suppress(OSError, ValueError, IndexError):  # Linux
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        sizes.append(1024.0 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")))
    with contextlib.suppress(OSError, ValueError):
        folder = Path("/sys/fs/cgroup")
        sizes.append(float((folder / "memory.max").read_text()) - float((folder / "memory.current").read_text()))
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit != resource.RLIM_INFINITY:
            sizes.append(float(limit))
    if sizes == [math.inf]:
        with contextlib.suppress(AttributeError, OSError, ValueError):  # other Unix systems: the physical memory
            sizes.append(float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")))
    return min(sizes)


def check_memory(n_bytes: float, name: str, value: object, remedy: str) -> None:
    """Raise `InvalidParameter` if a computation with an argument needs more memory than is available.

    Examples
    --------
    >>> check_memory(8e3, "n", 1000, "Reduce it.")
    """
    if n_bytes > 2**26 and n_bytes > (available := available_memory()):
        required, free = f"{n_bytes / 2**30:,.1f} GiB of memory", f"{available / 2**30:,.1f} GiB"
        need = f"must be smaller: it requires {required}, and {free} are available"
        raise InvalidParameter.of(name, value, need, remedy=remedy)


def as_floats(
    values: Any, name: str, *, boolean: bool = False, error: type[LimiirlError] = InvalidParameter
) -> FloatArray:
    """Return real numbers as a float64 array, without a copy if possible.

    Text, complex numbers, dates, durations and masked entries are refused, because a conversion would change their
    meaning. Booleans are refused unless `boolean` is True; they are then converted to 0 and 1.

    Examples
    --------
    >>> as_floats([1, 2.5], "weights")
    array([1. , 2.5])
    >>> as_floats([1, "2"], "weights")
    Traceback (most recent call last):
    limiirl.errors.InvalidParameter: weights must contain real numbers; got an array of str.
    """
    if np.ma.is_masked(values):
        at = tuple(int(i) for i in np.argwhere(np.ma.getmaskarray(values))[0])
        index = at[0] if len(at) == 1 else at
        message = f"{name} must not have masked entries; entry {index} is masked. Fill or drop it."
        raise error(message, parameter=name, index=index)
    try:
        array: NDArray[Any] = np.asarray(values)
    except (TypeError, ValueError) as reason:  # ragged lists
        message = f"{name} must be an array of real numbers ({reason})."
        raise error(message, parameter=name) from None
    kinds = "biuf" if boolean else "iuf"
    if array.dtype.kind == "O":
        for position, value in enumerate(array.ravel().tolist()):
            if not isinstance(value, Real) or (isinstance(value, bool) and not boolean):
                raise _not_real(name, type(value).__name__, array, position, error)
    elif array.dtype.kind not in kinds:
        raise _not_real(name, array.dtype.type.__name__.removesuffix("_"), array, None, error)
    return array.astype(np.float64, copy=False)


def _not_real(
    name: str, kind: str, array: NDArray[Any], position: int | None, error: type[LimiirlError]
) -> LimiirlError:
    index: Any = None
    if position is not None and array.ndim:
        at = tuple(int(i) for i in np.unravel_index(position, array.shape))
        index = at[0] if len(at) == 1 else at
    where = "an array" if index is None else f"an entry {index}"
    return error(f"{name} must contain real numbers; got {where} of {kind}.", parameter=name, value=kind, index=index)


# Powers of two beyond which arrays are scaled before squares and sums.
_EXPONENT = 300


def scale_exponent(values: FloatArray) -> int:
    """Return an exponent e such that values / 2^e can be squared and summed without overflow or underflow.

    The exponent is 0 if the values need no scaling. Division by a power of two is exact.

    Examples
    --------
    >>> scale_exponent(np.array([3.0, -1e5])), scale_exponent(np.array([1e300, 1.0])), scale_exponent(np.zeros(2))
    (0, 997, 0)
    """
    largest = float(np.max(np.abs(values), initial=0.0))
    exponent = math.frexp(largest)[1] if math.isfinite(largest) else 0
    return exponent if abs(exponent) > _EXPONENT else 0
