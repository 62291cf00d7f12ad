"""The E-step and the M-step of a mixture: a model together with its demonstrations.

`FitProblem` works with every model that has `fit` and `log_prob`. Models that support "sufficient_statistics" have
subclasses of it that compute the statistics once.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from limiirl._typing import FloatArray, IndexArray
from limiirl._validation import check_positive
from limiirl.demos import Demonstrations, Groups
from limiirl.errors import InvalidDemos, InvalidParameter, NumericalError
from limiirl.irl import validate
from limiirl.irl.optim import Box
from limiirl.kernels.e_step import EStepSums, e_step

M_STEP_EVALUATIONS = 50
"""Maximum number of evaluations per M-step for `IntentMixture(max_evaluations=None)`, as in the paper."""


class EStep(NamedTuple):
    """Result of an E-step.

    Attributes
    ----------
    log_likelihood : float
        Sum over units of log sum_k rho_k p_ik.
    change : float
        Mean over units of sum_k |u_ik - previous u_ik|, the paper's convergence criterion.
    sizes : (K,)
        Sum over units of u_ik.
    moments : object
        Argument of `FitProblem.m_step`.
    """

    log_likelihood: float
    change: float
    sizes: FloatArray
    moments: Any


class MStep(NamedTuple):
    """Result of an M-step: thetas (J, d), and the largest number of evaluations of any intent, or 0 if unknown."""

    thetas: FloatArray
    n_evaluations: int


@dataclass(frozen=True)
class Regulariser:
    """Bounds on theta and ridge penalty of a mixture, which is ridge N / (2 K) sum_k |theta_k|^2.

    This is the penalty of `fit` for N / K demonstrations per intent, where N is `n_demos`.
    """

    box: Box
    ridge: float
    n_demos: int

    @classmethod
    def from_model(cls, model: Any, mdp: Any, n_demos: int) -> Regulariser:
        """Return the regulariser of a model with `bounds` and `ridge`, after checking both."""
        ridge = check_positive(model.ridge, "ridge", zero=True)
        return cls(validate.box(model.bounds, mdp.feature_names), ridge, n_demos)

    def ridges(self, n_intents: int, counts: FloatArray) -> FloatArray:
        """Return the ridge coefficients (J,) of M-step objectives, means over expected `counts` (J,) of demonstrations.

        They add up to `penalty`, so that the prior of an intent does not depend on its mixture weight.
        """
        return np.asarray(self.ridge * self.n_demos / (n_intents * counts))

    def penalty(self, thetas: FloatArray) -> float:
        """Return the ridge penalty of a mixture with rewards (K, d)."""
        return 0.5 * self.ridge * self.n_demos / len(thetas) * float(np.sum(thetas**2))


class FitProblem:
    """E-step and M-step of any model that has `fit` and `log_prob`.

    Parameters
    ----------
    model : IRLModel
    mdp : MDP
    demos : Demonstrations
        None if only statistics of them are available.
    units : Groups
        G groups of demonstrations with a common intent, or single demonstrations.
    regulariser : Regulariser, optional
        For a model with rewards linear in the features of the MDP.
    """

    def __init__(self, model: Any, mdp: Any, demos: Any, units: Any, regulariser: Regulariser | None = None) -> None:
        self.model, self.mdp, self.demos = model, mdp, demos
        self.units: Groups = units
        self.regulariser = regulariser

    @property
    def n_parameters(self) -> int | None:
        """The length d of theta, or None if it is not known before a fit."""
        return None if self.regulariser is None else int(self.mdp.n_features)

    @property
    def initial_evaluations(self) -> int | None:
        """Maximum number of evaluations in the model's `fit`, for the initial rewards; None if `m_step` calls `fit`."""
        return None if self.regulariser is None else int(self.model.max_evaluations)

    def log_prob(self, thetas: FloatArray) -> FloatArray:
        """Return the joint log-probabilities (G, K) of the demonstrations of each unit under each intent."""
        result = np.asarray(self.model.log_prob(self.mdp, thetas, self.demos), dtype=np.float64)
        if result.shape != (len(self.demos), len(thetas)):
            raise InvalidParameter(
                f"{type(self.model).__name__}.log_prob must return a number for each of {len(self.demos)} "
                f"demonstrations and {len(thetas)} intents; its shape is {result.shape}.",
                parameter="irl",
            )
        return self.units.sum(result)

    def allocate(self, n_intents: int) -> Any:
        """Return responsibilities (G, K) of 0, which `e_step` overwrites."""
        return np.zeros((len(self.units), n_intents))

    def e_step(self, rho: FloatArray, thetas: FloatArray, U: FloatArray, temperature: float = 1.0) -> EStep:
        """Overwrite the responsibilities U (G, K) with those of weights and rewards; return their sums.

        Parameters
        ----------
        rho : (K,)
        temperature : float
            Responsibilities are proportional to (rho_k p_ik)^(1 / temperature). The likelihood is not tempered.
        """
        log_p = np.ascontiguousarray(self.log_prob(thetas))
        sums = e_step(log_p, thetas, np.empty(0), np.log(rho), U, 1.0 / temperature)
        return self.e_step_of(sums, self.moments(U))

    def e_step_of(self, sums: EStepSums, moments: Any) -> EStep:
        """Return the E-step of sums over units; raise if a unit has probability 0 under every intent."""
        if sums.bad_row >= 0:
            raise InvalidDemos(
                f"{self.units.name(sums.bad_row)} has probability 0 under every intent: its log-probabilities are all "
                "-inf, or not numbers. Remove it, fix the MDP, or bound the rewards.",
                parameter="demos",
                index=sums.bad_row,
            )
        return EStep(sums.log_likelihood, sums.change / len(self.units), sums.sizes, moments)

    def moments(self, U: FloatArray) -> Any:
        """Return the statistics of responsibilities U (G, K) that `m_step` needs."""
        return U

    def m_step(
        self, moments: Any, starts: FloatArray | None, which: IndexArray, max_evaluations: int | None = None
    ) -> MStep:
        """Return parameters (J, d) of the intents `which` (J,); a result worse than its start is replaced by the start.

        Raises
        ------
        InvalidParameter
            If `max_evaluations` is given and the model has no such parameter.
        """
        weights = self.units.broadcast(moments[:, which])
        thetas = self._fit(_with_cap(self.model, max_evaluations), weights, starts)
        if starts is None:
            return MStep(thetas, 0)
        before, after = self._value(weights, starts), self._value(weights, thetas)
        worse = ~(after >= before)
        return MStep(np.where(worse[:, None], starts, thetas), 0)

    def _value(self, weights: FloatArray, thetas: FloatArray) -> FloatArray:
        """Return the weighted log-likelihood (J,) of each intent."""
        log_p = np.asarray(self.model.log_prob(self.mdp, thetas, self.demos), dtype=np.float64)
        with np.errstate(invalid="ignore"):  # 0 times -inf counts as 0
            return np.asarray(np.sum(np.where(weights > 0, weights * log_p, 0.0), axis=0))

    def _fit(self, model: Any, weights: FloatArray, starts: FloatArray | None) -> FloatArray:
        if hasattr(model, "fit_many"):
            result = model.fit_many(self.mdp, self.demos, weights, starts)
        else:
            first = [None] * weights.shape[1] if starts is None else starts
            result = [model.fit(self.mdp, self.demos, w, start) for w, start in zip(weights.T, first, strict=True)]
        shapes = sorted({np.shape(theta) for theta in result})
        if len(result) != weights.shape[1] or len(shapes) != 1 or len(shapes[0]) != 1:
            raise InvalidParameter(
                f"{type(self.model).__name__}.fit must return one parameter vector for each intent, all of the same "
                f"length; got the shapes {', '.join(map(str, shapes))}.",
                parameter="irl",
            )
        thetas = np.array(result, dtype=np.float64)
        if not np.all(np.isfinite(thetas)):
            message = f"{type(self.model).__name__}.fit returned parameters that are not finite."
            raise NumericalError(message, parameter="irl")
        return thetas

    def features(self) -> FloatArray:
        """Return the embedding (G, m) in which a warm start clusters the units; a group is the mean of its members."""
        own = getattr(self.model, "features", None)
        result = own(self.mdp, self.demos) if own is not None else self.demos.features(self.mdp)
        return self.units.mean(np.asarray(result, dtype=np.float64))

    def project(self, thetas: FloatArray) -> FloatArray:
        """Return the parameters (K, d) projected onto the feasible set of the model."""
        return self.box(thetas.shape[1]).clip(thetas)

    def finite(self, thetas: FloatArray) -> bool:
        """Return True if all partition functions are finite at parameters (K, d)."""
        del thetas
        return True

    def box(self, n_features: int) -> Box:
        """Return the model's bounds on parameters; infinite for a model without `bounds`."""
        if self.regulariser is not None:
            return self.regulariser.box
        return validate.box(getattr(self.model, "bounds", None), [f"parameter {j}" for j in range(n_features)])

    def penalty(self, thetas: FloatArray) -> float:
        """Return the penalty that the objective of EM subtracts from the log-likelihood."""
        return 0.0 if self.regulariser is None else self.regulariser.penalty(thetas)


def _with_cap(model: Any, cap: int | None) -> Any:
    """Return the model, or a copy of it with its `max_evaluations` set to a cap."""
    if cap is None:
        return model
    if not hasattr(model, "max_evaluations"):
        raise InvalidParameter(
            f"max_evaluations must be None for {type(model).__name__}, whose fit takes no cap; got {cap}.",
            parameter="max_evaluations",
            value=cap,
        )
    capped = copy.copy(model)  # a model need not have set_params
    capped.max_evaluations = cap
    return capped


def make_problem(model: Any, mdp: Any, demos: Demonstrations, groups: ArrayLike | None = None) -> FitProblem:
    """Return the fit problem of a model: its own `make_problem`, or a `FitProblem` if it has none.

    Examples
    --------
    >>> from limiirl.irl import MaxEnt
    >>> from limiirl.mdp import MDP
    >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0])
    >>> demos = Demonstrations.from_lists([[0, 1], [0, 2]])
    >>> problem = make_problem(MaxEnt(max_length=2), mdp, demos)
    >>> np.exp(problem.log_prob(np.zeros((1, 3)))).round(3).ravel()  # 0 alone, 0 then 1, 0 then 2
    array([0.333, 0.333])
    """
    units = Groups.for_demos(groups, demos)
    own = getattr(model, "make_problem", None)
    problem: FitProblem = FitProblem(model, mdp, demos, units) if own is None else own(mdp, demos, units)
    return problem
