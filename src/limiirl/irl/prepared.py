"""A model together with the demonstrations it is fitted to, ready for many E- and M-steps.

EM asks the same questions of the same data again and again. `prepare` gathers once what the answers need; `Prepared`
works with any model that has `fit` and `log_prob`, and a model that can do better offers a `prepare` of its own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl.demos import Demonstrations
from limiirl.demos.units import Units
from limiirl.errors import InvalidDemos, InvalidParameter, NumericalError
from limiirl.irl import checks
from limiirl.irl.optimise import Box
from limiirl.kernels.expectation import Pass, expect

Float = NDArray[np.float64]
Int = NDArray[np.intp]


class Expectation(NamedTuple):
    """What an E-step finds.

    Attributes
    ----------
    log_likelihood : float
        Sum over units of log sum_k rho_k p_ik.
    change : float
        Mean over units of sum_k |u_ik - the u_ik before|: the paper's measure of convergence.
    sizes : (K,)
        Sum over units of u_ik.
    moments : object
        What `Prepared.maximise` needs to know of the responsibilities.
    """

    log_likelihood: float
    change: float
    sizes: Float
    moments: Any


class Maximised(NamedTuple):
    """What an M-step finds: thetas (J, d), and the evaluations it took, the most of any intent; 0 if unknown."""

    thetas: Float
    n_evaluations: int


class Prepared:
    """Units (demonstrations or groups) under any model that has `fit` and `log_prob`.

    Parameters
    ----------
    model : IRLModel
    mdp : MDP
    demos : Demonstrations
    units : Units
    """

    def __init__(self, model: Any, mdp: Any, demos: Demonstrations, units: Units) -> None:
        self.model, self.mdp, self.demos, self.units = model, mdp, demos, units

    @property
    def n_parameters(self) -> int | None:
        """d, the length of theta, where it is known before a fit."""
        return None

    def log_prob(self, thetas: Float) -> Float:
        """Return (G, K): the log-probability of each unit's demonstrations together, under each intent."""
        found = np.asarray(self.model.log_prob(self.mdp, thetas, self.demos), dtype=np.float64)
        if found.shape != (len(self.demos), len(thetas)):
            raise InvalidParameter(
                f"{type(self.model).__name__}.log_prob must return a number for each of {len(self.demos)} "
                f"demonstrations and {len(thetas)} intents; its shape is {found.shape}."
            )
        return self.units.total(found)

    def blank(self, n_intents: int) -> Any:
        """Return what `expect` overwrites, before there is anything in it: responsibilities (G, K), all 0."""
        return np.zeros((len(self.units), n_intents))

    def expect(self, rho: Float, thetas: Float, U: Float, temperature: float = 1.0) -> Expectation:
        """Overwrite the responsibilities U (G, K) with those of an ensemble.

        Parameters
        ----------
        rho : (K,)
        temperature : float
            Responsibilities are in proportion to (rho_k p_ik)^(1 / temperature). The likelihood is not tempered.
        """
        log_p = np.ascontiguousarray(self.log_prob(thetas))
        found = expect(log_p, thetas, np.empty(0), np.log(rho), U, 1.0 / temperature)
        return self._expectation(found, self.moments(U))

    def _expectation(self, found: Pass, moments: Any) -> Expectation:
        if found.bad_row >= 0:
            self._explain(found.bad_row)
        return Expectation(found.log_likelihood, found.change / len(self.units), found.sizes, moments)

    def _explain(self, row: int) -> None:
        raise InvalidDemos(
            f"{self.units.name(row)} has no probability under any intent: its log-probabilities are all -inf, or not "
            "numbers. Remove it, fix the MDP, or bound the rewards."
        )

    def moments(self, U: Float) -> Any:
        """Return what `maximise` needs to know of responsibilities U (G, K)."""
        return U

    def maximise(self, moments: Any, starts: Float | None, which: Int, max_evaluations: int) -> Maximised:
        """Return parameters (J, d) of the intents `which` (J,) that raise, or keep, the expected log-likelihood.

        A model's `fit` may stop anywhere, by caps of its own; what is worse than its start is not taken.
        """
        del max_evaluations
        weights = self.units.spread(moments[:, which])
        thetas = self._fit(weights, starts)
        if starts is None:
            return Maximised(thetas, 0)
        before, after = self._value(weights, starts), self._value(weights, thetas)
        worse = ~(after >= before)
        return Maximised(np.where(worse[:, None], starts, thetas), 0)

    def _value(self, weights: Float, thetas: Float) -> Float:
        """Return (J,): the weighted log-likelihood of each intent."""
        log_p = np.asarray(self.model.log_prob(self.mdp, thetas, self.demos), dtype=np.float64)
        with np.errstate(invalid="ignore"):  # an impossible demonstration of weight 0 counts for nothing
            return np.asarray(np.sum(np.where(weights > 0, weights * log_p, 0.0), axis=0))

    def _fit(self, weights: Float, starts: Float | None) -> Float:
        if hasattr(self.model, "fit_many"):
            found = self.model.fit_many(self.mdp, self.demos, weights, starts)
        else:
            each = range(weights.shape[1])
            found = [
                self.model.fit(self.mdp, self.demos, weights[:, k], None if starts is None else starts[k]) for k in each
            ]
        shapes = sorted({np.shape(theta) for theta in found})
        if len(found) != weights.shape[1] or len(shapes) != 1 or len(shapes[0]) != 1:
            raise InvalidParameter(
                f"{type(self.model).__name__}.fit must return one parameter vector for each intent, all of the same "
                f"length; got the shapes {', '.join(map(str, shapes))}."
            )
        thetas = np.array(found, dtype=np.float64)
        if not np.all(np.isfinite(thetas)):
            raise NumericalError(f"{type(self.model).__name__}.fit returned parameters that are not finite.")
        return thetas

    def features(self) -> Float:
        """Return (G, m): where each unit lies in the space in which a warm start clusters; the mean over a group."""
        own = getattr(self.model, "features", None)
        found = own(self.mdp, self.demos) if own is not None else self.demos.features(self.mdp)
        return self.units.mean(np.asarray(found, dtype=np.float64))

    def project(self, thetas: Float) -> Float:
        """Return the nearest parameters (K, d) that the model allows."""
        return self.box(thetas.shape[1]).clip(thetas)

    def finite(self, thetas: Float) -> bool:
        """Return whether log-probabilities exist at parameters (K, d): sums over ways of any length may be infinite."""
        del thetas
        return True

    def box(self, n_features: int) -> Box:
        """Return the bounds on parameters that the model declares: (low, high), a (d, 2) array, or none."""
        return checks.box(getattr(self.model, "bounds", None), [f"parameter {j}" for j in range(n_features)])

    def penalty(self, thetas: Float) -> float:
        """Return what the M-step's objective subtracts from the log-likelihood."""
        del thetas  # a model without a ridge subtracts nothing
        return 0.0


def prepare(model: Any, mdp: Any, demos: Demonstrations, groups: ArrayLike | None = None) -> Prepared:
    """Return a model with its data, through the model's own `prepare` where it has one.

    Examples
    --------
    >>> from limiirl.irl import MaxEnt
    >>> from limiirl.mdp import MDP
    >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0])
    >>> demos = Demonstrations.from_lists([[0, 1], [0, 2]])
    >>> ready = prepare(MaxEnt(max_length=2), mdp, demos)
    >>> np.exp(ready.log_prob(np.zeros((1, 3)))).round(3).ravel()  # 0 alone, 0 then 1, 0 then 2
    array([0.333, 0.333])
    """
    units = Units.among(groups, demos)
    own = getattr(model, "prepare", None)
    found: Prepared = own(mdp, demos, units) if own is not None else Prepared(model, mdp, demos, units)
    return found
