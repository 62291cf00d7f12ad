"""Checks of the parameters that worlds share."""

from numbers import Integral, Real

from limiirl.errors import InvalidParameter


def check_count(name: str, value: object, least: int, remedy: str) -> None:
    """Raise unless `value` is an integer of at least `least`.

    >>> check_count("height", 2, 3, "Add a column.")
    Traceback (most recent call last):
    ...
    limiirl.errors.InvalidParameter: height must be an integer of at least 3; got 2. Add a column.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise InvalidParameter(f"{name} must be an integer of at least {least}; got {value!r}. {remedy}")


def check_gamma(value: object) -> None:
    """Raise unless `value` is a discount in (0, 1]."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0.0 < float(value) <= 1.0:
        raise InvalidParameter(f"gamma must lie in (0, 1]; got {value!r}. Use 1.0 for no discounting.")


def check_share(name: str, value: object, remedy: str) -> None:
    """Raise unless `value` lies in [0, 1].

    >>> check_share("wind", 1.5, "It is the probability of going astray.")
    Traceback (most recent call last):
    ...
    limiirl.errors.InvalidParameter: wind must lie in [0, 1]; got 1.5. It is the probability of going astray.
    """
    if isinstance(value, bool) or not isinstance(value, Real) or not 0.0 <= float(value) <= 1.0:
        raise InvalidParameter(f"{name} must lie in [0, 1]; got {value!r}. {remedy}")


def check_wind(value: object) -> None:
    """Raise unless `value` is the probability that a move goes astray."""
    check_share("wind", value, "It is the probability of going astray.")


def check_seed(value: object) -> None:
    """Raise unless `value` is a nonnegative integer."""
    check_count("seed", value, 0, "Pass a nonnegative integer.")
