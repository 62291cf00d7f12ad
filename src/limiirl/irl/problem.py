"""A model together with the demonstrations it is fitted to, ready for many E- and M-steps.

EM asks the same questions of the same data again and again. `make_problem` gathers once what the answers need; `FitProblem`
works with any model that has `fit` and `log_prob`, and a model that can do better offers a `make_problem` of its own.

Demonstrations under a model whose parameters weigh the features of an MDP, within bounds and with a ridge.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from limiirl._typing import FloatArray, IndexArray
from limiirl._validation import check_positive
from limiirl.demos import Demonstrations, Groups
from limiirl.errors import InvalidDemos, InvalidParameter, NumericalError
from limiirl.irl import validate
from limiirl.irl.optim.projected_newton import Box
from limiirl.kernels.e_step import EStepSums, e_step


class EStep(NamedTuple):
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
        What `FitProblem.m_step` needs to know of the responsibilities.
    """

    log_likelihood: float
    change: float
    sizes: FloatArray
    moments: Any


class MStep(NamedTuple):
    """What an M-step finds: thetas (J, d), and the evaluations it took, the most of any intent; 0 if unknown."""

    thetas: FloatArray
    n_evaluations: int


class FitProblem:
    """Units (demonstrations or groups) under any model that has `fit` and `log_prob`.

    Parameters
    ----------
    model : IRLModel
    mdp : MDP
    demos : Demonstrations
    units : Groups
    """

    def __init__(self, model: Any, mdp: Any, demos: Demonstrations, units: Groups) -> None:
        self.model, self.mdp, self.demos, self.units = model, mdp, demos, units

    @property
    def n_parameters(self) -> int | None:
        """d, the length of theta, where it is known before a fit."""
        return None

    def log_prob(self, thetas: FloatArray) -> FloatArray:
        """Return (G, K): the log-probability of each unit's demonstrations together, under each intent."""
        found = np.asarray(self.model.log_prob(self.mdp, thetas, self.demos), dtype=np.float64)
        if found.shape != (len(self.demos), len(thetas)):
            raise InvalidParameter(
                f"{type(self.model).__name__}.log_prob must return a number for each of {len(self.demos)} "
                f"demonstrations and {len(thetas)} intents; its shape is {found.shape}."
            )
        return self.units.sum(found)

    def blank(self, n_intents: int) -> Any:
        """Return what `e_step` overwrites, before there is anything in it: responsibilities (G, K), all 0."""
        return np.zeros((len(self.units), n_intents))

    def e_step(self, rho: FloatArray, thetas: FloatArray, U: FloatArray, temperature: float = 1.0) -> EStep:
        """Overwrite the responsibilities U (G, K) with those of an ensemble.

        Parameters
        ----------
        rho : (K,)
        temperature : float
            Responsibilities are in proportion to (rho_k p_ik)^(1 / temperature). The likelihood is not tempered.
        """
        log_p = np.ascontiguousarray(self.log_prob(thetas))
        found = e_step(log_p, thetas, np.empty(0), np.log(rho), U, 1.0 / temperature)
        return self._expectation(found, self.moments(U))

    def _expectation(self, found: EStepSums, moments: Any) -> EStep:
        if found.bad_row >= 0:
            self._explain(found.bad_row)
        return EStep(found.log_likelihood, found.change / len(self.units), found.sizes, moments)

    def _explain(self, row: int) -> None:
        raise InvalidDemos(
            f"{self.units.name(row)} has no probability under any intent: its log-probabilities are all -inf, or not "
            "numbers. Remove it, fix the MDP, or bound the rewards."
        )

    def moments(self, U: FloatArray) -> Any:
        """Return what `m_step` needs to know of responsibilities U (G, K)."""
        return U

    def m_step(self, moments: Any, starts: FloatArray | None, which: IndexArray, max_evaluations: int) -> MStep:
        """Return parameters (J, d) of the intents `which` (J,) that raise, or keep, the expected log-likelihood.

        A model's `fit` may stop anywhere, by caps of its own; what is worse than its start is not taken.
        """
        del max_evaluations
        weights = self.units.broadcast(moments[:, which])
        thetas = self._fit(weights, starts)
        if starts is None:
            return MStep(thetas, 0)
        before, after = self._value(weights, starts), self._value(weights, thetas)
        worse = ~(after >= before)
        return MStep(np.where(worse[:, None], starts, thetas), 0)

    def _value(self, weights: FloatArray, thetas: FloatArray) -> FloatArray:
        """Return (J,): the weighted log-likelihood of each intent."""
        log_p = np.asarray(self.model.log_prob(self.mdp, thetas, self.demos), dtype=np.float64)
        with np.errstate(invalid="ignore"):  # an impossible demonstration of weight 0 counts for nothing
            return np.asarray(np.sum(np.where(weights > 0, weights * log_p, 0.0), axis=0))

    def _fit(self, weights: FloatArray, starts: FloatArray | None) -> FloatArray:
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

    def features(self) -> FloatArray:
        """Return (G, m): where each unit lies in the space in which a warm start clusters; the mean over a group."""
        own = getattr(self.model, "features", None)
        found = own(self.mdp, self.demos) if own is not None else self.demos.features(self.mdp)
        return self.units.mean(np.asarray(found, dtype=np.float64))

    def project(self, thetas: FloatArray) -> FloatArray:
        """Return the nearest parameters (K, d) that the model allows."""
        return self.box(thetas.shape[1]).clip(thetas)

    def finite(self, thetas: FloatArray) -> bool:
        """Return whether log-probabilities exist at parameters (K, d): sums over ways of any length may be infinite."""
        del thetas
        return True

    def box(self, n_features: int) -> Box:
        """Return the bounds on parameters that the model declares: (low, high), a (d, 2) array, or none."""
        return validate.box(getattr(self.model, "bounds", None), [f"parameter {j}" for j in range(n_features)])

    def penalty(self, thetas: FloatArray) -> float:
        """Return what the M-step's objective subtracts from the log-likelihood."""
        del thetas  # a model without a ridge subtracts nothing
        return 0.0


def make_problem(model: Any, mdp: Any, demos: Demonstrations, groups: ArrayLike | None = None) -> FitProblem:
    """Return a model with its data, through the model's own `make_problem` where it has one.

    Examples
    --------
    >>> from limiirl.irl import MaxEnt
    >>> from limiirl.mdp import MDP
    >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0])
    >>> demos = Demonstrations.from_lists([[0, 1], [0, 2]])
    >>> ready = make_problem(MaxEnt(max_length=2), mdp, demos)
    >>> np.exp(ready.log_prob(np.zeros((1, 3)))).round(3).ravel()  # 0 alone, 0 then 1, 0 then 2
    array([0.333, 0.333])
    """
    units = Groups.for_demos(groups, demos)
    own = getattr(model, "make_problem", None)
    found: FitProblem = own(mdp, demos, units) if own is not None else FitProblem(model, mdp, demos, units)
    return found


class PreparedFeatures(FitProblem):
    """What such models share: the number of parameters, the bounds, and the ridge.

    Parameters
    ----------
    model : IRLModel
        With `bounds` and `ridge`.
    n_demos : int
        N, all demonstrations together; the ridge is in proportion to it.
    """

    def __init__(self, model: Any, mdp: Any, demos: Any, units: Any, n_demos: int) -> None:
        super().__init__(model, mdp, demos, units)
        self.n_demos = n_demos
        self._ridge = check_positive(model.ridge, "ridge", zero=True)
        self._box = validate.box(model.bounds, mdp.feature_names)
        self._start: FloatArray | None = None

    @property
    def n_parameters(self) -> int:
        """d, the number of features of the MDP."""
        return int(self.mdp.n_features)

    def ridges(self, n_intents: int, counts: FloatArray) -> FloatArray:
        """Return (J,) the ridge of the M-step of intents that have so many demonstrations (J,), of `n_intents` in all.

        One penalty for the whole mixture, so that no share of an intent changes its prior: `penalty`, in the scale of a
        mean over the intent's demonstrations.
        """
        return np.asarray(self._ridge * self.n_demos / (n_intents * counts))

    def box(self, n_features: int) -> Box:
        """Return the bounds on theta."""
        del n_features
        return self._box

    def penalty(self, thetas: FloatArray) -> float:
        """Return the ridge: a Gaussian prior on every intent, as strong as `fit` has it for N / K demonstrations."""
        return 0.5 * self._ridge * self.n_demos / len(thetas) * float(np.sum(thetas**2))
