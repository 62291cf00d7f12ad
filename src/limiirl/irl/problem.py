"""`FitProblem`: the E-step and the M-step of EM for a model and its demonstrations.

`FitProblem` works with every model that has `fit` and `log_prob`. Models with the capability "sufficient_statistics"
use subclasses that compute these statistics once per fit.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from limiirl._typing import BoolArray, FloatArray, IndexArray
from limiirl.demos import Demonstrations, Groups
from limiirl.errors import InvalidDemos, InvalidParameter, NumericalError
from limiirl.irl import validate
from limiirl.irl.base import FitResult
from limiirl.irl.optim import Box, Objective, Solver, minimise_scaled
from limiirl.kernels.e_step import EStepSums, e_step

# A reward within this distance of a bound is treated as being at the bound.
AT_BOUND = 1e-10
M_STEP_EVALUATIONS = 50
"""Maximum number of evaluations per M-step for `IntentMixture(max_evaluations=None)`, as in the paper."""
# Step of central differences, as a change in theta . F for typical feature counts F. The truncation error is about
# _STEP^2, and the rounding error is about 1e-15 / _STEP.
_STEP = 1e-4


class EStep(NamedTuple):
    """Result of an E-step.

    Attributes
    ----------
    log_likelihood : float
        Sum over units of log sum_k rho_k p_ik.
    change : float
        Mean over units of sum_k |u_ik - u'_ik|, where u' is from the previous E-step; the paper's convergence
        criterion.
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
    """Result of an M-step: thetas (J, d), and the largest number of evaluations for an intent (0 if unknown)."""

    thetas: FloatArray
    n_evaluations: int

    @classmethod
    def from_results(cls, results: Sequence[FitResult]) -> MStep:
        """Return the result of an M-step that consists of one search per intent."""
        return cls(np.array([result.theta for result in results]), max(result.n_evaluations for result in results))


@dataclass(frozen=True)
class OptionalMembers:
    """Optional methods and attributes of a model, with defaults for models that do not have them.

    `IntentMixture(max_evaluations=...)` requires a model with a parameter `max_evaluations`, the maximum number of
    evaluations per fit.

    Attributes
    ----------
    supports : frozenset of str
        Capabilities; see `Capabilities`. By default, the methods of the model that are in `QUERIES`.
    make_problem : callable (mdp, demos, units) -> FitProblem
        Returns the fit problem for EM. Its attribute `model`, in which parameters that depend on the demonstrations are
        resolved, becomes `irl_` of the mixture. The default is a `FitProblem` that calls `fit` and `log_prob`.
    fit_many : callable (mdp, demos, weights (N, K), starts) -> (K, d)
        Fits one theta per column of weights in one batch. By default, `fit` is called for each column.
    features : callable (mdp, demos) -> (N, m)
        Returns the vectors that a warm start clusters. By default, these are the feature counts of the demonstrations.
    expected_features : callable (mdp, thetas (K, d)) -> (K, d)
        Returns the quantities by which the intents of two mixtures are matched. By default, these are the rewards.
    null_directions : callable (mdp, theta (d,)) -> (m, d)
        Returns directions that leave the probability of every trajectory unchanged; none by default.
    null_directions_vary : bool
        True if `null_directions` depends on theta.
    null_status : str
        Status, in `StandardErrors` and summaries, of rewards with a component in a null direction.
    bounds : (low, high) or (d, 2) array or None
        Bounds on theta; none by default.
    normalised : bool
        True if the probabilities of all trajectories sum to at most 1.
    takes_action_features : bool
        False if the reward does not depend on action or edge features.

    Examples
    --------
    >>> from limiirl import MaxEnt
    >>> OptionalMembers.of(MaxEnt(ridge=0.1)).bounds, OptionalMembers.of(object()).bounds
    ((-10.0, 0.0), None)
    """

    supports: frozenset[str] | None = None
    make_problem: Callable[..., Any] | None = None
    fit_many: Callable[..., Any] | None = None
    features: Callable[..., Any] | None = None
    expected_features: Callable[..., Any] | None = None
    null_directions: Callable[..., Any] | None = None
    null_directions_vary: bool = True
    null_status: str = "not identified"
    bounds: Any = None
    normalised: bool = True
    takes_action_features: bool = True

    @classmethod
    def of(cls, model: Any) -> OptionalMembers:
        """Return the optional members of a model."""
        return cls(**{name: getattr(model, name) for name in _OPTIONAL if hasattr(model, name)})


_OPTIONAL = tuple(OptionalMembers.__dataclass_fields__)


@dataclass(frozen=True)
class Regulariser:
    """Bounds on theta, and the ridge penalty of a mixture, N / (2 K) sum_kj ridge_j theta_kj^2 with N = `n_demos`.

    The penalty equals that of K separate fits to N / K demonstrations each.
    """

    box: Box
    ridge: FloatArray
    n_demos: int

    @classmethod
    def from_model(cls, model: Any, mdp: Any, n_demos: int) -> Regulariser:
        """Check the `bounds` and `ridge` of a model and return its regulariser."""
        names = mdp.feature_names
        return cls(validate.box(model.bounds, names), validate.ridge(model.ridge, names), n_demos)

    def ridges(self, n_intents: int, counts: FloatArray) -> FloatArray:
        """Return the ridge coefficients (J, d) of M-step objectives, which are means over `counts` (J,) demonstrations.

        The coefficients are inversely proportional to `counts`, so that the penalty of an intent does not depend on its
        weight.
        """
        return np.asarray(self.ridge * self.n_demos / (n_intents * counts[:, None]))

    def penalty(self, thetas: FloatArray) -> float:
        """Return the ridge penalty of a mixture with rewards (K, d)."""
        return 0.5 * self.n_demos / len(thetas) * float(np.sum(self.ridge * thetas**2))

    def penalty_gradient(self, thetas: FloatArray) -> FloatArray:
        """Return the gradient (K, d) of `penalty`."""
        return np.asarray(self.ridge * self.n_demos / len(thetas) * thetas)


class UnitScores(NamedTuple):
    """Gradients of the log-probabilities of units under K intents, F_i - sum_s n_is E_k[F | s].

    Attributes
    ----------
    features : (G, d)
        Sums F_i of the features of the unit's demonstrations.
    counts : (G, m) sparse
        Number n_is of demonstrations of unit i with condition s, where s is, for example, the start state.
    expected : (m, K, d)
        E_k[F | s].
    """

    features: FloatArray
    counts: Any
    expected: FloatArray

    def select(self, units: slice) -> FloatArray:
        """Return the scores (b, K, d) of a slice of units."""
        _, K, d = self.expected.shape
        expected = np.asarray(self.counts[units] @ self.expected.reshape(-1, K * d))
        return np.asarray(self.features[units, None, :] - expected.reshape(-1, K, d))


class FitProblem:
    """E-step and M-step of any model that has `fit` and `log_prob`.

    Parameters
    ----------
    model : IRLModel
    mdp : MDP
    demos : Demonstrations
        None if only their statistics are available.
    units : Groups
        G units: groups of demonstrations with a common intent, or single demonstrations.
    regulariser : Regulariser, optional
        Required if the reward is linear in the features of the MDP.

    Attributes
    ----------
    up_to_scale : bool
        True if rewards are identified only up to scale.
    compiles_per_batch : bool
        True if kernels are compiled for each number of thetas per call.
    weight_design : limiirl.mixture.WeightDesign or None
        Covariates of the mixture weights; None if the weights are the same for all units.
    """

    up_to_scale = False
    compiles_per_batch = False
    weight_design: Any = None

    def __init__(self, model: Any, mdp: Any, demos: Any, units: Any, regulariser: Regulariser | None = None) -> None:
        self.model, self.mdp, self.demos = model, mdp, demos
        self.units: Groups = units
        self.regulariser = regulariser

    @property
    def n_parameters(self) -> int | None:
        """Length d of theta, or None if it is unknown before the first fit."""
        return None if self.regulariser is None else int(self.mdp.n_features)

    @property
    def initial_evaluations(self) -> int | None:
        """Maximum number of evaluations in the fit of initial rewards, or None if `m_step` calls the model's `fit`."""
        return None if self.regulariser is None else int(self.model.max_evaluations)

    @cached_property
    def feature_scale(self) -> FloatArray:
        """Scale (d,) of the features in optimisers; see `validate.feature_scale`."""
        return validate.feature_scale(self.mdp)

    def rescale(self, solver: Solver) -> Solver:
        """Return a solver that works in rescaled variables if features are small."""
        scale = self.feature_scale
        return solver if np.all(scale == 1.0) else partial(minimise_scaled, solver, scale=scale)

    def limit_evaluations(self, max_evaluations: int | None) -> int:
        """Return the maximum number of evaluations per M-step, by default the smaller of 50 and the model's limit."""
        return min(M_STEP_EVALUATIONS, self.model.max_evaluations) if max_evaluations is None else max_evaluations

    def log_prob(self, thetas: FloatArray) -> FloatArray:
        """Return the joint log-probabilities (G, K) of the demonstrations of each unit under each intent."""
        result = np.asarray(self.model.log_prob(self.mdp, thetas, self.demos), dtype=np.float64)
        if result.shape != (len(self.demos), len(thetas)):
            raise InvalidParameter(
                f"{type(self.model).__name__}.log_prob must return an array of shape "
                f"{(len(self.demos), len(thetas))}, (demonstrations, intents); got {result.shape}.",
                parameter="irl",
                value=result.shape,
            )
        return self.units.sum(result)

    def allocate(self, n_intents: int) -> Any:
        """Return a buffer for the responsibilities (G, K), which `e_step` overwrites."""
        return np.zeros((len(self.units), n_intents))

    def e_step(self, rho: FloatArray, thetas: FloatArray, U: FloatArray, temperature: float = 1.0) -> EStep:
        """Overwrite U (G, K) with the responsibilities under mixture weights rho (K,) or (G, K) and thetas (K, d).

        Responsibilities are proportional to (rho_k p_ik)^(1 / temperature). The temperature does not affect the
        log-likelihood.
        """
        log_p, log_rho = self.log_prob(thetas), np.zeros(len(thetas))
        if rho.ndim == 1:
            log_rho = np.log(rho)
        else:
            with np.errstate(divide="ignore"):  # a weight may be less than the smallest float
                log_p = log_p + np.log(rho)
        sums = e_step(np.ascontiguousarray(log_p), thetas, np.empty(0), log_rho, U, 1.0 / temperature)
        return self._finish_e_step(sums, self.moments(U))

    def _finish_e_step(self, sums: EStepSums, moments: Any) -> EStep:
        """Return the `EStep`, given sums over units; raise if a unit has probability 0 under every intent."""
        if sums.bad_row >= 0:
            raise impossible_unit(self.units, sums.bad_row)
        return EStep(sums.log_likelihood, sums.change / len(self.units), sums.sizes, moments)

    def moments(self, U: FloatArray) -> Any:
        """Return the argument of `m_step` for responsibilities U (G, K)."""
        return U

    def m_step(
        self, moments: Any, starts: FloatArray | None, which: IndexArray, max_evaluations: int | None = None
    ) -> MStep:
        """Return thetas (J, d) of intents `which` (J,), with at least the likelihood of `starts` (J, d).

        Raises
        ------
        InvalidParameter
            If `max_evaluations` is given, but the model has no such parameter.
        """
        weights = self.units.broadcast(moments[:, which])
        thetas = self._fit(_with_limit(self.model, max_evaluations), weights, starts)
        if starts is None:
            return MStep(thetas, 0)
        before, after = self._value(weights, starts), self._value(weights, thetas)
        worse = ~(after >= before)
        return MStep(np.where(worse[:, None], starts, thetas), 0)

    def _value(self, weights: FloatArray, thetas: FloatArray) -> FloatArray:
        log_p = np.asarray(self.model.log_prob(self.mdp, thetas, self.demos), dtype=np.float64)
        with np.errstate(invalid="ignore"):  # a weight of 0 times -inf is treated as 0
            return np.asarray(np.sum(np.where(weights > 0, weights * log_p, 0.0), axis=0))

    def _fit(self, model: Any, weights: FloatArray, starts: FloatArray | None) -> FloatArray:
        fit_many = OptionalMembers.of(model).fit_many
        if fit_many is not None:
            result = fit_many(self.mdp, self.demos, weights, starts)
        else:
            first = [None] * weights.shape[1] if starts is None else starts
            result = [model.fit(self.mdp, self.demos, w, start) for w, start in zip(weights.T, first, strict=True)]
        shapes = sorted({np.shape(theta) for theta in result})
        if len(result) != weights.shape[1] or len(shapes) != 1 or len(shapes[0]) != 1:
            raise InvalidParameter(
                f"{type(self.model).__name__}.fit must return one parameter vector per intent, all of the same length; "
                f"got {len(result)} vectors of shapes {', '.join(map(str, shapes))} for {weights.shape[1]} intents.",
                parameter="irl",
                value=shapes,
            )
        thetas = np.array(result, dtype=np.float64)
        if not np.all(np.isfinite(thetas)):
            k = int(np.argmin(np.isfinite(thetas).all(axis=1)))
            message = f"{type(self.model).__name__}.fit must return finite parameters; got {thetas[k]} for intent {k}."
            raise NumericalError(message, parameter="irl", value=thetas[k], index=k)
        return thetas

    def curvature(self, U: FloatArray, thetas: FloatArray, free: BoolArray) -> FloatArray | None:
        """Return -sum_i u_ik Hessian(log p_ik) (K, d, d), or None if the model has no gradients.

        Rows and columns of parameters that are not `free` (K, d) may be 0.
        """
        del U, thetas, free
        return None

    def scores(self, thetas: FloatArray) -> UnitScores | None:
        """Return the gradients of `log_prob` at thetas (K, d), or None if finite differences must be used."""
        del thetas
        return None

    def difference_steps(self, d: int) -> FloatArray:
        """Return the step (d,) of each parameter in central differences."""
        features = self.features()
        if features.shape[1] != d:  # the parameters are not weights of these features
            return np.full(d, _STEP)
        size = np.sqrt(np.mean(features**2, axis=0))
        return np.asarray(_STEP / np.where(size > 0.0, size, 1.0))

    def objective(self, U: FloatArray) -> Objective | None:
        """Return the negative weighted mean log-likelihoods for the columns of U (G, K), without the ridge penalty.

        If the model has no gradients, the result is None, and `log_prob` is differentiated numerically.
        """
        del U
        return None

    def store_solutions(self, n: int) -> None:
        """Store what was computed for the last `n` reward vectors, if the model can use it again; 0 for the default."""
        del n

    def feasible_start(self) -> FloatArray | None:
        """Return a theta (d,) within the bounds with finite partition functions, or None if this is not supported."""
        return None

    def restrict(self, which: slice) -> FitProblem:
        """Return the problem of a slice of units."""
        return FitProblem(self.model, self.mdp, *self._select(which))

    def _select(self, which: slice) -> tuple[Any, Groups]:
        """Return the demonstrations of a slice of units, and the slice as `Groups`."""
        units = self.units
        if units.index is None:
            rows, index = np.arange(which.start, which.stop), None
        else:
            rows = np.flatnonzero((units.index >= which.start) & (units.index < which.stop))
            index = units.index[rows] - which.start
        return self.demos[rows], Groups(index, units.counts[which], units.names[which], units.each)

    def warn_of_features(self, stacklevel: int) -> None:
        """Issue warnings about features whose rewards cannot be learned; called once per fit."""
        if self.regulariser is not None:  # the reward is linear in the features of the MDP
            validate.warn_of_small_features(self.mdp, stacklevel + 1)

    def features(self) -> FloatArray:
        """Return the feature vectors (G, m) that a warm start clusters; the vector of a group is its mean."""
        own = OptionalMembers.of(self.model).features
        result = self.demos.features(self.mdp) if own is None else own(self.mdp, self.demos)
        return self.units.mean(np.asarray(result, dtype=np.float64))

    def project(self, thetas: FloatArray) -> FloatArray:
        """Project thetas (K, d) onto the feasible set of the model."""
        return self.box(thetas.shape[1]).clip(thetas)

    def is_finite(self, thetas: FloatArray) -> bool:
        """Return True if the partition functions of all thetas (K, d) are finite."""
        del thetas
        return True

    def box(self, n_features: int) -> Box:
        """Return the model's bounds on theta, which are infinite if the model has no attribute `bounds`."""
        if self.regulariser is not None:
            return self.regulariser.box
        return validate.box(OptionalMembers.of(self.model).bounds, [f"parameter {j}" for j in range(n_features)])

    def count_at_bound(self, thetas: FloatArray) -> tuple[int, int]:
        """Return the number of rewards (K, d) at a nonzero bound, and the number of all rewards."""
        box = self.box(thetas.shape[1])
        low = (np.abs(thetas - box.lower) <= AT_BOUND) & (box.lower != 0.0)
        high = (np.abs(thetas - box.upper) <= AT_BOUND) & (box.upper != 0.0)
        return int(np.count_nonzero(low | high)), int(thetas.size)

    def penalty(self, thetas: FloatArray) -> float:
        """Return the penalty that EM subtracts from the log-likelihood of thetas (K, d)."""
        return 0.0 if self.regulariser is None else self.regulariser.penalty(thetas)

    def penalty_gradient(self, thetas: FloatArray) -> FloatArray:
        """Return the gradient (K, d) of `penalty`."""
        return np.zeros_like(thetas) if self.regulariser is None else self.regulariser.penalty_gradient(thetas)


def impossible_unit(units: Groups, i: int) -> InvalidDemos:
    """Return the error for unit i, which has probability 0 under every intent."""
    return InvalidDemos(
        f"{units.name(i)} must have positive probability under at least one intent; its log-probabilities are all -inf "
        "or nan. Remove it, correct the MDP, or set bounds on the rewards.",
        parameter="demos",
        index=i,
    )


def _with_limit(model: Any, limit: int | None) -> Any:
    if limit is None:
        return model
    if not hasattr(model, "max_evaluations"):
        rule = f"must be None for {type(model).__name__}, which has no such parameter"
        raise InvalidParameter.of("max_evaluations", limit, rule)
    limited = copy.copy(model)  # a model need not have set_params
    limited.max_evaluations = limit
    return limited


def make_problem(
    model: Any, mdp: Any, demos: Demonstrations, groups: ArrayLike | None = None, weight_design: Any = None
) -> FitProblem:
    """Return the fit problem from the model's `make_problem` or, if the model has none, a `FitProblem`."""
    units = Groups.for_demos(groups, demos)
    own = OptionalMembers.of(model).make_problem
    problem: FitProblem = FitProblem(model, mdp, demos, units) if own is None else own(mdp, demos, units)
    problem.weight_design = weight_design
    return problem
