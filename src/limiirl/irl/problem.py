"""A model together with the demonstrations of a mixture: the E-step and the M-step of EM.

`FitProblem` works with every model that has `fit` and `log_prob`. A model that can do better (`supports` holds
"sufficient_statistics") makes its own problem from statistics that are gathered once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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
"""Cap on the evaluations of an M-step where `IntentMixture(max_evaluations=None)`: that of the paper."""


class EStep(NamedTuple):
    """The result of an E-step.

    Attributes
    ----------
    log_likelihood : float
        Sum over units of log sum_k rho_k p_ik.
    change : float
        Mean over units of sum_k |u_ik - the u_ik before|: the paper's measure of convergence.
    sizes : (K,)
        Sum over units of u_ik.
    moments : object
        The sums of responsibilities that `FitProblem.m_step` needs.
    """

    log_likelihood: float
    change: float
    sizes: FloatArray
    moments: Any


class MStep(NamedTuple):
    """The result of an M-step: thetas (J, d), and its evaluations, the most of any intent; 0 if unknown."""

    thetas: FloatArray
    n_evaluations: int


@dataclass(frozen=True)
class Regulariser:
    """Bounds on theta, and the ridge: a Gaussian prior on every intent.

    Attributes
    ----------
    box : Box
    ridge : float
        The model's.
    n_demos : int
        N, all demonstrations: the penalty of a mixture is as strong as `fit` has it for N / K demonstrations.
    """

    box: Box
    ridge: float
    n_demos: int

    @classmethod
    def from_model(cls, model: Any, mdp: Any, n_demos: int) -> Regulariser:
        """Return that of a model with `bounds` and `ridge`, checked."""
        ridge = check_positive(model.ridge, "ridge", zero=True)
        return cls(validate.box(model.bounds, mdp.feature_names), ridge, n_demos)

    def ridges(self, n_intents: int, counts: FloatArray) -> FloatArray:
        """Return (J,) the ridge of the M-step of intents with so many demonstrations (J,), of `n_intents` in all.

        One penalty for the whole mixture, so that the mixture weight of an intent does not change its prior: `penalty`,
        in the scale of a mean over the intent's demonstrations.
        """
        return np.asarray(self.ridge * self.n_demos / (n_intents * counts))

    def penalty(self, thetas: FloatArray) -> float:
        """Return what the objective of a mixture of rewards (K, d) subtracts from the log-likelihood."""
        return 0.5 * self.ridge * self.n_demos / len(thetas) * float(np.sum(thetas**2))


class FitProblem:
    """Groups of demonstrations (or single ones) under any model that has `fit` and `log_prob`.

    Parameters
    ----------
    model : IRLModel
    mdp : MDP
    demos : Demonstrations
        None where only statistics of them are known.
    units : Groups
    regulariser : Regulariser, optional
        Of a model whose parameters weigh the features of an MDP.
    """

    def __init__(self, model: Any, mdp: Any, demos: Any, units: Any, regulariser: Regulariser | None = None) -> None:
        self.model, self.mdp, self.demos = model, mdp, demos
        self.units: Groups = units
        self.regulariser = regulariser

    @property
    def n_parameters(self) -> int | None:
        """d, the length of theta, where it is known before a fit."""
        return None if self.regulariser is None else int(self.mdp.n_features)

    @property
    def initial_evaluations(self) -> int | None:
        """Cap on the evaluations of a fit from far away, the model's own; None where the model has a fit of its own."""
        return None if self.regulariser is None else int(self.model.max_evaluations)

    def log_prob(self, thetas: FloatArray) -> FloatArray:
        """Return (G, K): the log-probability of each unit's demonstrations together, under each intent."""
        result = np.asarray(self.model.log_prob(self.mdp, thetas, self.demos), dtype=np.float64)
        if result.shape != (len(self.demos), len(thetas)):
            raise InvalidParameter(
                f"{type(self.model).__name__}.log_prob must return a number for each of {len(self.demos)} "
                f"demonstrations and {len(thetas)} intents; its shape is {result.shape}."
            )
        return self.units.sum(result)

    def allocate(self, n_intents: int) -> Any:
        """Return responsibilities (G, K) for `e_step` to overwrite, all 0."""
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
        sums = e_step(log_p, thetas, np.empty(0), np.log(rho), U, 1.0 / temperature)
        return self.e_step_of(sums, self.moments(U))

    def e_step_of(self, sums: EStepSums, moments: Any) -> EStep:
        """Return the E-step of sums over groups, or raise for a group without probability."""
        if sums.bad_row >= 0:
            self._explain(sums.bad_row)
        return EStep(sums.log_likelihood, sums.change / len(self.units), sums.sizes, moments)

    def _explain(self, row: int) -> None:
        raise InvalidDemos(
            f"{self.units.name(row)} has probability 0 under every intent: its log-probabilities are all -inf, or not "
            "numbers. Remove it, fix the MDP, or bound the rewards.",
            parameter="demos",
            index=row,
        )

    def moments(self, U: FloatArray) -> Any:
        """Return what `m_step` needs to know of responsibilities U (G, K)."""
        return U

    def m_step(
        self, moments: Any, starts: FloatArray | None, which: IndexArray, max_evaluations: int | None = None
    ) -> MStep:
        """Return parameters (J, d) of the intents `which` (J,) that raise, or keep, the expected log-likelihood.

        A model's `fit` may stop anywhere, by caps of its own; what is worse than its start is not taken.

        Raises
        ------
        InvalidParameter
            For a `max_evaluations` that the model's `fit` does not take.
        """
        weights = self.units.broadcast(moments[:, which])
        with _evaluations(self.model, max_evaluations):
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
            result = self.model.fit_many(self.mdp, self.demos, weights, starts)
        else:
            each = range(weights.shape[1])
            result = [
                self.model.fit(self.mdp, self.demos, weights[:, k], None if starts is None else starts[k]) for k in each
            ]
        shapes = sorted({np.shape(theta) for theta in result})
        if len(result) != weights.shape[1] or len(shapes) != 1 or len(shapes[0]) != 1:
            raise InvalidParameter(
                f"{type(self.model).__name__}.fit must return one parameter vector for each intent, all of the same "
                f"length; got the shapes {', '.join(map(str, shapes))}."
            )
        thetas = np.array(result, dtype=np.float64)
        if not np.all(np.isfinite(thetas)):
            raise NumericalError(f"{type(self.model).__name__}.fit returned parameters that are not finite.")
        return thetas

    def features(self) -> FloatArray:
        """Return (G, m): where each unit lies in the space in which a warm start clusters; the mean over a group."""
        own = getattr(self.model, "features", None)
        result = own(self.mdp, self.demos) if own is not None else self.demos.features(self.mdp)
        return self.units.mean(np.asarray(result, dtype=np.float64))

    def project(self, thetas: FloatArray) -> FloatArray:
        """Return the nearest parameters (K, d) that the model allows."""
        return self.box(thetas.shape[1]).clip(thetas)

    def finite(self, thetas: FloatArray) -> bool:
        """Return whether the partition function is finite at parameters (K, d)."""
        del thetas
        return True

    def box(self, n_features: int) -> Box:
        """Return the bounds on parameters that the model declares: (low, high), a (d, 2) array, or none."""
        if self.regulariser is not None:
            return self.regulariser.box
        return validate.box(getattr(self.model, "bounds", None), [f"parameter {j}" for j in range(n_features)])

    def penalty(self, thetas: FloatArray) -> float:
        """Return what the M-step's objective subtracts from the log-likelihood; 0 for a model without a ridge."""
        return 0.0 if self.regulariser is None else self.regulariser.penalty(thetas)


@contextmanager
def _evaluations(model: Any, cap: int | None) -> Iterator[None]:
    """Set a model's own cap on evaluations for the time of a fit, or refuse one that it does not have."""
    if cap is None:
        yield
        return
    if not hasattr(model, "max_evaluations"):
        raise InvalidParameter(
            f"max_evaluations must be None for {type(model).__name__}, whose fit takes no cap; got {cap}.",
            parameter="max_evaluations",
            value=cap,
        )
    own, model.max_evaluations = model.max_evaluations, cap
    try:
        yield
    finally:
        model.max_evaluations = own


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
    problem: FitProblem = FitProblem(model, mdp, demos, units) if own is None else own(mdp, demos, units)
    return problem
