"""The exceptions and warnings of limiirl.

Every input that cannot be used raises exactly one of these. A message states the rule, the offending value with its
index, and the remedy, so that the reader can act without opening the source.
"""

from __future__ import annotations

from typing import Self


class LimiirlError(ValueError):
    """Base of all errors raised on purpose by limiirl.

    Attributes
    ----------
    parameter : str or None
        Name of the offending argument, as in the signature: "n_intents".
    value : object
        The offending value; None where there is none to show.
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
        """Return an error whose message is composed of its attributes.

        Examples
        --------
        >>> InvalidParameter.of("n_intents", 0, "must be at least 1")
        InvalidParameter('n_intents must be at least 1; got 0.')
        >>> InvalidMDP.of("p0", -0.1, "must not be negative", index=4, remedy="Pass probabilities.")
        InvalidMDP('p0[4] must not be negative; got -0.1. Pass probabilities.')
        """
        place = "" if index is None else f"[{', '.join(map(str, index)) if isinstance(index, tuple) else index}]"
        message = f"{parameter}{place} {rule}; got {_show(value)}. {remedy}".rstrip()
        return cls(message, parameter=parameter, value=value, index=index)


def _show(value: object) -> str:
    text = str(value.item()) if hasattr(value, "item") and getattr(value, "size", 0) == 1 else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


class InvalidMDP(LimiirlError):
    """An MDP's arrays contradict each other or the rules of probability."""


class InvalidDemos(LimiirlError):
    """Demonstrations are malformed, or impossible in the MDP they are used with."""


class InvalidNetwork(LimiirlError):
    """A road network's arrays contradict each other, or a map holds no network that can be driven."""


class InvalidTrips(LimiirlError):
    """GPS traces are malformed, or lie nowhere near the network they are used with."""


class InvalidParameter(LimiirlError):
    """An argument of a model or function is outside its domain."""


class InvalidFile(LimiirlError):
    """A file is truncated, foreign, or written by a newer version."""


class MissingFile(InvalidFile, FileNotFoundError):
    """There is no file of that name."""


class NotFitted(LimiirlError, AttributeError):
    """A model was asked for something that only `fit` can determine; `hasattr` takes it for an absent attribute."""


class DivergentPartition(LimiirlError):
    """The sum over all trajectories is infinite for this reward."""


class NumericalError(LimiirlError):
    """A computation left the range of float64; the message names the state and the step."""


class BackendUnavailable(LimiirlError):
    """An optional package or device is needed and absent."""


class ConformanceError(LimiirlError):
    """A model does not keep the rules of the protocol; the message lists every rule that it breaks.

    Attributes
    ----------
    failures : dict of str
        The message of each check that fails, by the name of the check.
    """

    def __init__(self, message: str, failures: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.failures = failures or {}


class LimiirlWarning(UserWarning):
    """Base of all warnings of limiirl."""


class ConvergenceWarning(LimiirlWarning):
    """An optimiser stopped before its tolerance was met."""


class IdentifiabilityWarning(LimiirlWarning):
    """Some direction in reward space leaves every trajectory's probability unchanged."""


class DegenerateIntentWarning(LimiirlWarning):
    """An intent is empty or nearly empty, or two intents are the same."""


class SkippedTripsWarning(LimiirlWarning):
    """Some of the trips in a file could not be read, or had to be repaired; the message counts them."""


class DisconnectedWarning(LimiirlWarning):
    """A large share of a map cannot be reached from the rest, and was left out."""
