"""Validation of arguments; each function raises `InvalidParameter` with the name and value of the argument."""

from __future__ import annotations

import math
from numbers import Integral, Real

import numpy as np

from limiirl.errors import InvalidParameter


def check_count(value: object, name: str, *, least: int = 1, remedy: str = "") -> int:
    """Return `value` as an int after checking that it is at least `least`; `remedy` ends the error message.

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


def check_choice(value: str, name: str, choices: tuple[str, ...]) -> str:
    """Return `value` after checking that it is one of the choices."""
    if value not in choices:
        raise InvalidParameter.of(name, value, f"must be one of {', '.join(choices)}")
    return value


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
