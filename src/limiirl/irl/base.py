"""Protocol of single-intent models, their capabilities, and the result of a fit."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from limiirl._typing import FloatArray

REQUIRED = ("fit", "log_prob")
"""Required methods of a model; see `OptionalMembers` for optional members."""
PARAMETERS = ("get_params", "set_params")
"""Methods that are required to clone and save a model; scikit-learn's BaseEstimator provides them."""


@runtime_checkable
class IRLModel(Protocol):
    """A single-intent model p(tau | theta), the component of a mixture. See `OptionalMembers` for other methods."""

    def fit(self, mdp: Any, demos: Any, weights: ArrayLike | None = None, start: ArrayLike | None = None) -> FloatArray:
        """Return the theta (d,) that maximises the weighted log-likelihood."""

    def log_prob(self, mdp: Any, thetas: ArrayLike, demos: Any) -> FloatArray:
        """Return the log-likelihood (N, K) of each demonstration under each row of thetas (K, d)."""


SUFFICIENT_STATISTICS = "sufficient_statistics"
"""Capability: the likelihood depends on the demonstrations only through statistics that are computed once per fit."""
QUERIES = frozenset({"sample", "log_prob_prefix", "next_actions", "policy", "most_likely"})
"""Optional methods of a model that fitted mixtures call. A model lists the methods that it has in `supports`."""
_LIKELIHOOD = ("log_prob", "_log_prob", "fit", "fit_many", "_fit")


class Capabilities:
    """Base class of models that declare their capabilities in `supports`.

    Capabilities are "sufficient_statistics" and the names in `QUERIES`. If a subclass does not define `supports`, it
    inherits the capabilities of its parent, and the queries that it defines are added. If it overrides the likelihood
    or the fit, "sufficient_statistics" is removed, so that EM calls its `fit` and `log_prob`.

    Examples
    --------
    >>> from limiirl.irl import MaxEnt
    >>> class Tempered(MaxEnt):
    ...     def log_prob(self, mdp, thetas, demos):
    ...         return 2.0 * super().log_prob(mdp, thetas, demos)
    >>> "sufficient_statistics" in MaxEnt.supports, "sufficient_statistics" in Tempered.supports
    (True, False)
    """

    supports: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = vars(cls)
        if "supports" not in own:
            lost = {SUFFICIENT_STATISTICS} if any(name in own for name in _LIKELIHOOD) else set()
            cls.supports = (cls.supports | QUERIES.intersection(own)) - lost


class Status(Enum):
    """Reason why an optimiser stopped. The value completes the sentence "The fit ..." in messages."""

    CONVERGED = "converged"
    EVALUATIONS = "stopped at max_evaluations with the best point so far; raise max_evaluations to continue"
    STALLED = (
        "stopped because no step lowers the objective in floating point; a larger gtol or rescaled features may help"
    )


@dataclass(frozen=True)
class FitResult:
    """Result of a single-intent fit.

    Attributes
    ----------
    theta : (d,)
    value : float
        Minimum of the objective: the negative mean log-likelihood plus the ridge penalty. The term log q, which does
        not depend on theta, is omitted.
    status : Status
    n_evaluations, n_hessians : int
    projected_gradient : float
        Largest absolute component of the projected gradient.
    at_bound : tuple of str
        Names of the features whose parameter is at a bound.
    null_directions : (m, d)
        Orthonormal directions that leave the probability of every trajectory unchanged. Along these directions, `theta`
        has the components of the initial point.
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
        """True if the tolerance was met."""
        return self.status is Status.CONVERGED


class NextActions(NamedTuple):
    """Distribution of the next action of N prefixes under K intents.

    Attributes
    ----------
    action : (N, K, A)
        Probability of each next action.
    stop : (N, K)
        Probability that the trajectory ends. `stop` and `action` sum to 1, or to 0 if the prefix has probability 0.
    """

    action: FloatArray
    stop: FloatArray
