"""Checks of arguments that every package needs; each raises `InvalidParameter` with the name and the value."""

from __future__ import annotations

import math

import numpy as np

from limiirl.errors import InvalidParameter


def check_count(value: object, name: str) -> int:
    """Return an integer of at least 1.

    Examples
    --------
    >>> check_count(np.int64(3), "n_intents")
    3
    """
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
        raise InvalidParameter(
            f"{name} must be a whole number, at least 1; it is {value!r}.", parameter=name, value=value
        )
    return int(value)


def check_positive(value: float, name: str, *, zero: bool = False) -> float:
    """Return a finite number above 0, or of at least 0 if `zero`.

    Examples
    --------
    >>> check_positive(2, "ridge", zero=True)
    2.0
    """
    number = isinstance(value, int | float | np.number)
    if not number or not math.isfinite(value) or value < 0 or (value == 0 and not zero):
        raise InvalidParameter(
            f"{name} must be a finite number {'of at least' if zero else 'above'} 0; it is {value!r}.",
            parameter=name,
            value=value,
        )
    return float(value)


def check_choice(value: str, name: str, choices: tuple[str, ...]) -> str:
    """Return `value`, which must be one of the choices.

    Examples
    --------
    >>> check_choice("hard", "q", ("hard", "bv"))
    'hard'
    """
    if value not in choices:
        raise InvalidParameter(
            f"{name} must be one of {', '.join(choices)}; it is {value!r}.", parameter=name, value=value
        )
    return value


def as_generator(seed: object) -> np.random.Generator:
    """Return a random generator from an integer, a Generator or None.

    Examples
    --------
    >>> int(as_generator(0).integers(10))
    8
    """
    try:
        return np.random.default_rng(seed)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise InvalidParameter(
            f"seed must be a whole number of at least 0, a Generator, or None ({error}).", parameter="seed", value=seed
        ) from None
