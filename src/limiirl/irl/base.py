"""The protocol that every single-intent model follows, and what a fit reports."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from limiirl._typing import FloatArray

REQUIRED = ("fit", "log_prob")
"""The methods that a model must have."""
PARAMETERS = ("get_params", "set_params")
"""The methods by which a model is cloned and saved; scikit-learn's BaseEstimator brings them."""


@runtime_checkable
class IRLModel(Protocol):
    """A model p(tau | theta) of behaviour that serves one intent; mixtures are made of it.

    `fit` returns the parameters (d,) that maximise the weighted log-likelihood, and `log_prob` the log-likelihood (N,
    K) of every demonstration under every row of thetas (K, d). A model that can fit several weightings together also
    has `fit_many`.
    """

    def fit(self, mdp: Any, demos: Any, weights: ArrayLike | None = None, start: ArrayLike | None = None) -> FloatArray:
        """Return theta (d,)."""
        ...

    def log_prob(self, mdp: Any, thetas: ArrayLike, demos: Any) -> FloatArray:
        """Return (N, K)."""
        ...


SUFFICIENT_STATISTICS = "sufficient_statistics"
"""The capability of a likelihood that statistics of the demonstrations, gathered once, determine."""
_LIKELIHOOD = ("log_prob", "_log_prob", "fit", "fit_many", "_fit")


class Capabilities:
    """Base of models that declare what they can do, in `supports`.

    A subclass that overrides the likelihood or its fit, and does not declare `supports` itself, loses
    "sufficient_statistics": EM then calls its `fit` and `log_prob`, never those of its parent.

    Examples
    --------
    >>> from limiirl.irl import MaxEnt
    >>> class Louder(MaxEnt):
    ...     def log_prob(self, mdp, thetas, demos):
    ...         return 2.0 * super().log_prob(mdp, thetas, demos)
    >>> "sufficient_statistics" in MaxEnt.supports, "sufficient_statistics" in Louder.supports
    (True, False)
    """

    supports: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = vars(cls)
        if "supports" not in own and any(name in own for name in _LIKELIHOOD):
            cls.supports = cls.supports - {SUFFICIENT_STATISTICS}


class Status(Enum):
    """Why an optimiser stopped; the value is the sentence that a user reads."""

    CONVERGED = "converged"
    EVALUATIONS = "stopped at the cap on evaluations, with the best point found; raise max_evaluations to go on"
    STALLED = (
        "stopped where no step lowers the objective in floating point; a larger gtol, or rescaled features, may help"
    )


@dataclass(frozen=True)
class FitResult:
    """What a fit of one intent found.

    Attributes
    ----------
    theta : (d,)
    value : float
        The objective: minus the mean log-likelihood (without log q, which no reward changes), plus the ridge.
    status : Status
    n_evaluations, n_hessians : int
    projected_gradient : float
        Largest component of the gradient, components that push against a bound not counted.
    at_bound : tuple of str
        Names of the features whose parameter lies on a bound.
    null_directions : (m, d)
        Orthonormal directions in which every trajectory's probability stays the same: the data cannot tell how far to
        go there, and `theta` has kept what the start had.
    """

    theta: FloatArray
    value: float
    status: Status
    n_evaluations: int
    n_hessians: int
    projected_gradient: float
    at_bound: tuple[str, ...] = ()
    null_directions: FloatArray = field(default_factory=lambda: np.empty((0, 0)))

    @property
    def converged(self) -> bool:
        """Whether the tolerance was met."""
        return self.status is Status.CONVERGED
