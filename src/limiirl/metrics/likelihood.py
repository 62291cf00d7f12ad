"""How well a mixture explains demonstrations: negative log-likelihood, a demonstration and a step.

The likelihood of a demonstration is ``sum_k rho_k p(tau | theta_k)``: intents are summed over inside the logarithm. The
mean over intents of their own NLL, ``sum_k rho_k NLL_k``, is only an upper bound of what is computed here (Jensen).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl.demos import Demonstrations
from limiirl.demos.units import Units
from limiirl.errors import InvalidDemos, InvalidParameter
from limiirl.mdp.ensemble import RewardEnsemble

if TYPE_CHECKING:
    from limiirl.mixture import IntentMixture

Float = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class NLL:
    """Negative log-likelihood of demonstrations, or of groups that share an intent, in nats.

    Attributes
    ----------
    values : (G,) float64
        One of each demonstration, in their order; or of each group, all its demonstrations together.
    names : (G,)
        The demonstrations' numbers, or the groups, sorted.
    n_demos, n_steps : (G,) int64
        Demonstrations of each, and their states.
    unit : "demonstrations" or "groups"

    Examples
    --------
    >>> found = NLL(np.array([2.0, 4.0]), np.arange(2), np.array([1, 1]), np.array([1, 3]), "demonstrations")
    >>> found.total, found.mean, found.per_demo, found.per_step
    (6.0, 3.0, 3.0, 1.5)
    >>> found
    NLL 3.0000 a demonstration, 1.5000 a step (2 demonstrations, 4 steps)
    """

    values: Float
    names: NDArray[Any]
    n_demos: NDArray[np.int64]
    n_steps: NDArray[np.int64]
    unit: str

    @property
    def total(self) -> float:
        """Sum of all values: minus the log-likelihood of the data."""
        return float(self.values.sum())

    @property
    def mean(self) -> float:
        """Mean of the values: over demonstrations, or over groups."""
        return float(self.values.mean())

    @property
    def per_demo(self) -> float:
        """Total over the number of demonstrations; differs from the mean where groups are scored."""
        return self.total / int(self.n_demos.sum())

    @property
    def per_step(self) -> float:
        """Total over the number of states: on a road network, of segments."""
        return self.total / int(self.n_steps.sum())

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "unit": self.unit,
            "mean": self.mean,
            "per_demo": self.per_demo,
            "per_step": self.per_step,
            "total": self.total,
            "n_demos": int(self.n_demos.sum()),
            "n_steps": int(self.n_steps.sum()),
            "names": self.names.tolist(),
            "values": self.values.tolist(),
        }

    def __repr__(self) -> str:
        grouped = f"{self.mean:.4f} a group, " if self.unit == "groups" else ""
        counted = f"{self.n_demos.sum()} demonstrations, {self.n_steps.sum()} steps"
        return f"NLL {grouped}{self.per_demo:.4f} a demonstration, {self.per_step:.4f} a step ({counted})"


def mixture_nll(mixture: IntentMixture, demos: Demonstrations, groups: ArrayLike | None = None) -> NLL:
    """Return ``-log sum_k rho_k p(tau | theta_k)`` of each demonstration under a fitted mixture.

    It is `IntentMixture.score_samples` with its sign turned. Start and transition probabilities are part of it, so that
    figures compare only within one MDP, and for one largest length of the model.

    Parameters
    ----------
    mixture : IntentMixture
        Fitted, or loaded.
    demos : Demonstrations
        The same as it was fitted to, or others of the same MDP.
    groups : (N,), optional
        Demonstrations of a group share their intent, and are scored together.

    Examples
    --------
    >>> from limiirl import MDP, IntentMixture, MaxEnt
    >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0], [1], [-1]])
    >>> demos = Demonstrations.from_lists([[0, 1], [0, 1], [0, 2]])
    >>> mix = IntentMixture(2, MaxEnt(2, bounds=(-3, 3)), init=[0, 0, 1]).fit(mdp, demos)
    >>> mixture_nll(mix, demos).values.round(3)
    array([0.454, 0.454, 1.147])
    """
    units, lengths = _units(demos, groups)
    if not hasattr(mixture, "score_samples"):
        raise InvalidParameter(
            f"mixture must be a fitted IntentMixture; got {type(mixture).__name__}. For rewards of your own there is "
            "ensemble_nll(irl, mdp, ensemble, demos)."
        )
    return _scored(-np.asarray(mixture.score_samples(demos, groups), dtype=np.float64), units, lengths)


def ensemble_nll(
    irl: Any, mdp: Any, ensemble: RewardEnsemble, demos: Demonstrations, groups: ArrayLike | None = None
) -> NLL:
    """Return the negative log-likelihood of demonstrations under an ensemble: a single-intent model says what it means.

    Parameters
    ----------
    irl : model
        Anything with ``log_prob(mdp, thetas, demos)``. Its largest length must be known: ``MaxEnt(50)``, or fitted.
    mdp : MDP
    ensemble : RewardEnsemble
        Intents of weight 0 play no part.
    demos, groups
        See `mixture_nll`.

    Examples
    --------
    >>> from limiirl import MDP, MaxEnt
    >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0], [1], [-1]])
    >>> demos = Demonstrations.from_lists([[0, 1], [0, 2]])
    >>> ensemble_nll(MaxEnt(2), mdp, RewardEnsemble([0.5, 0.5], [[3.0], [-3.0]]), demos).values.round(4)
    array([0.7416, 0.7416])
    """
    units, lengths = _units(demos, groups)
    if not isinstance(ensemble, RewardEnsemble):
        raise InvalidParameter(
            f"ensemble must be a RewardEnsemble; got {type(ensemble).__name__}. A fitted mixture has one: ensemble_."
        )
    if not hasattr(irl, "log_prob"):
        raise InvalidParameter(
            f"irl must be a single-intent model such as MaxEnt(50); got {type(irl).__name__}. The order is irl, mdp, "
            "ensemble, demos."
        )
    used = ensemble.weights > 0.0
    log_p = units.total(np.asarray(irl.log_prob(mdp, ensemble.thetas[used], demos), dtype=np.float64))
    values = -np.logaddexp.reduce(log_p + np.log(ensemble.weights[used]), axis=1)
    impossible = np.flatnonzero(~np.isfinite(values))
    if impossible.size:
        raise InvalidDemos(
            f"{units.name(int(impossible[0]))} has no probability under any intent. Check that it was recorded in the "
            "MDP given."
        )
    return _scored(values, units, lengths)


def _units(demos: Demonstrations, groups: ArrayLike | None) -> tuple[Units, NDArray[np.int64]]:
    if not isinstance(demos, Demonstrations) or len(demos) == 0:
        given = "there are none" if isinstance(demos, Demonstrations) else f"got {type(demos).__name__}"
        raise InvalidDemos(f"A likelihood needs Demonstrations, at least one; {given}.")
    return Units.of(groups, len(demos)), demos.lengths


def _scored(values: Float, units: Units, lengths: NDArray[np.int64]) -> NLL:
    steps = np.rint(units.total(lengths.astype(np.float64))).astype(np.int64)
    return NLL(values, units.names, units.counts.astype(np.int64), steps, units.noun)
