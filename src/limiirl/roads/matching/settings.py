"""What both matchers do with their numbers, which each has in a dataclass `Settings` of its own."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any, NamedTuple, TypeVar

import numpy as np

from limiirl.errors import InvalidParameter

_Settings = TypeVar("_Settings")
_LEAST_RADIUS_M, _RADIUS_SIGMAS = 50.0, 4.0


class Radii(NamedTuple):
    """How far from a fix roads are looked for, and up to where that grows if there are none."""

    radius_m: float
    max_radius_m: float


def check_numbers(
    settings: Any, *, whole: Collection[str], from_zero: Collection[str], optional: Collection[str] = ()
) -> None:
    """Check a frozen dataclass of numbers, and make them plain: those of numpy cannot be written to a file's header.

    Parameters
    ----------
    settings : dataclass
        In its ``__post_init__``.
    whole : names
        Whole numbers; all others may be broken ones.
    from_zero : names
        May be 0; all others are above it.
    optional : names
        May be None.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Few:
    ...     n: int
    ...     def __post_init__(self):
    ...         check_numbers(self, whole=("n",), from_zero=())
    >>> Few(np.int64(3))
    Few(n=3)
    >>> Few(0)
    Traceback (most recent call last):
    ...
    limiirl.errors.InvalidParameter: n must be a whole number of at least 1; it is 0.
    """
    for part in fields(settings):
        name, value = part.name, getattr(settings, part.name)
        if value is None and name in optional:
            continue
        good = isinstance(value, int | float | np.number) and not isinstance(value, bool) and 0 <= value < np.inf
        if not good or (value == 0 and name not in from_zero) or (name in whole and value != int(value)):
            kind = "a whole number" if name in whole else "a finite number"
            rule = "of at least 0" if name in from_zero else "of at least 1" if name in whole else "above 0"
            raise InvalidParameter(f"{name} must be {kind} {rule}; it is {value!r}.")
        object.__setattr__(settings, name, int(value) if name in whole else float(value))


def chosen(kind: type[_Settings], matcher: str, given: Mapping[str, Any]) -> _Settings:
    """Return settings of a kind, or say which name the matcher does not know.

    Examples
    --------
    >>> from limiirl.roads.matching.hmm import Settings
    >>> chosen(Settings, "HMM", {"sigma_m": 5.0}).sigma_m
    5.0
    """
    known = [part.name for part in fields(kind)]  # type: ignore[arg-type]
    unknown = [name for name in given if name not in known]
    if unknown:
        raise InvalidParameter(f"The {matcher} knows no {unknown[0]!r}; its settings are {', '.join(known)}.")
    return kind(**given)


def radii(sigma_m: float, radius_m: float | None, max_radius_m: float | None) -> Radii:
    """Return the radii of a search: 4 sigmas, but at least 50 m, and twice that, where they are not given.

    With less than 4 sigmas the right road is out of sight too often.

    Examples
    --------
    >>> radii(25.0, None, None)
    Radii(radius_m=100.0, max_radius_m=200.0)
    """
    near_m = max(_LEAST_RADIUS_M, _RADIUS_SIGMAS * sigma_m) if radius_m is None else radius_m
    return Radii(near_m, max(near_m, 2.0 * near_m if max_radius_m is None else max_radius_m))
