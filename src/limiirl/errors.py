"""Exceptions and warnings of limiirl.

An error message states the rule, the offending value with its index, and the remedy.
"""

from __future__ import annotations

from os import PathLike
from typing import Any, Self


class LimiirlError(ValueError):
    """Base class of the errors of limiirl.

    Attributes
    ----------
    parameter : str or None
        Name of the offending argument, as in the signature: "n_intents".
    value : object
        Offending value, or None.
    index : int, tuple or None
        Position of the offending value in the argument.

    Examples
    --------
    >>> error = InvalidParameter("n_intents must be at least 1; got 0.", parameter="n_intents", value=0)
    >>> error.parameter, error.value, error.index
    ('n_intents', 0, None)
    """

    def __init__(
        self,
        message: str,
        *,
        parameter: str | None = None,
        value: object = None,
        index: int | tuple[int, ...] | None = None,
    ) -> None:
        super().__init__(message)
        self.parameter = parameter
        self.value = value
        self.index = index

    @classmethod
    def of(
        cls, parameter: str, value: object, rule: str, *, index: int | tuple[int, ...] | None = None, remedy: str = ""
    ) -> Self:
        """Return an error with a message of the form "parameter[index] rule; got value. remedy".

        Examples
        --------
        >>> InvalidParameter.of("n_intents", 0, "must be at least 1")
        InvalidParameter('n_intents must be at least 1; got 0.')
        >>> InvalidMDP.of("p0", -0.1, "must not be negative", index=4, remedy="Pass probabilities.")
        InvalidMDP('p0[4] must not be negative; got -0.1. Pass probabilities.')
        """
        position = "" if index is None else f"[{', '.join(map(str, index)) if isinstance(index, tuple) else index}]"
        message = f"{parameter}{position} {rule}; got {_show(value)}. {remedy}".rstrip()
        return cls(message, parameter=parameter, value=value, index=index)


def _show(value: object) -> str:
    text = str(value.item()) if hasattr(value, "item") and getattr(value, "size", 0) == 1 else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


class InvalidMDP(LimiirlError):
    """The arrays of an MDP are inconsistent or not valid probabilities."""


class InvalidDemos(LimiirlError):
    """Demonstrations are malformed, or impossible in the MDP."""


class InvalidNetwork(LimiirlError):
    """The arrays of a road network are inconsistent, or a map contains no drivable network."""


class InvalidTrips(LimiirlError):
    """GPS traces are malformed, or far from the road network."""


class InvalidParameter(LimiirlError):
    """An argument of a model or function is outside its domain."""


class InvalidFile(LimiirlError):
    """A file is corrupted, has another format, or was written by a newer version of limiirl."""

    @classmethod
    def at(cls, path: str | PathLike[str], reason: str) -> Self:
        """Return an error whose message is the path followed by the reason."""
        return cls(f"{path} {reason}", parameter="path", value=str(path))


class MissingFile(InvalidFile, FileNotFoundError):
    """A file does not exist."""


class NotFitted(LimiirlError, AttributeError):
    """A method was called before `fit`; also an AttributeError, so that `hasattr` returns False before `fit`."""


class DivergentPartition(LimiirlError):
    """The partition function is infinite for this reward."""


class NumericalError(LimiirlError):
    """A computation exceeded the range of float64."""


class BackendUnavailable(LimiirlError):
    """An optional package or device is required but not available."""


class ConformanceError(LimiirlError):
    """A model violates the model protocol; `failures` maps the names of failed checks to their messages."""

    def __init__(self, message: str, failures: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.failures = failures or {}


class SelectionInterrupted(KeyboardInterrupt):
    """A comparison was interrupted (Ctrl-C); `selection` contains the models whose fits were complete."""

    def __init__(self, selection: Any) -> None:
        super().__init__("The comparison was interrupted.")
        self.selection = selection


class LimiirlWarning(UserWarning):
    """Base class of the warnings of limiirl.

    Attributes
    ----------
    parameter : str or None
        Name of the argument or attribute that the warning is about, such as ``"irl"`` or ``"thetas_"``.
    value : object
        Offending value, or None.
    index : int, tuple or None
        Position of the offending value, such as the index of an intent.

    Examples
    --------
    >>> warning = DegenerateIntentWarning("Intent 2 is nearly empty.", parameter="weights_", index=2)
    >>> warning.parameter, warning.value, warning.index
    ('weights_', None, 2)
    """

    def __init__(
        self,
        *args: object,
        parameter: str | None = None,
        value: object = None,
        index: int | tuple[int, ...] | None = None,
    ) -> None:
        super().__init__(*args)
        self.parameter = parameter
        self.value = value
        self.index = index


class ConvergenceWarning(LimiirlWarning):
    """An optimiser stopped before it reached its tolerance."""


class IdentifiabilityWarning(LimiirlWarning):
    """Some directions of theta do not change the probability of any trajectory."""


class FeatureScaleWarning(LimiirlWarning):
    """Features are far smaller than 1, so that bounds and ridge dominate their rewards."""


class DegenerateIntentWarning(LimiirlWarning):
    """An intent is empty or nearly empty, or two intents are equal."""


class ModelMismatchWarning(LimiirlWarning):
    """The assumptions of a model do not hold for the MDP or the demonstrations, which biases its rewards."""


class BoundWarning(LimiirlWarning):
    """A fitted coefficient is on a bound of the model."""


class SkippedTripsWarning(LimiirlWarning):
    """Some trips of a file could not be read, or were repaired."""


class DisconnectedWarning(LimiirlWarning):
    """A large part of a map was dropped, because it is not connected to the rest."""
