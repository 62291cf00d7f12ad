r"""Mixture weights by covariates: coefficients with standard errors, effects, predicted weights and tests.

The weights are rho_k(x_i) = softmax_k(c_k + D_k . x_i), with intent 0 as the reference. Standard errors are from Louis'
identity over all logits C and rewards together. Given that unit i has intent k, the complete-data score is
(1(k = l) - rho_il) x_i with respect to C_l, and s_ik with respect to theta_k. Its conditional covariance, the missing
information, is that of z_ik = e_k x (x_i, s_ik) under the responsibilities:

    I = sum_i [ (diag(rho_i) - rho_i rho_i') x (x_i x_i') + sum_k u_ik B_ik - sum_k u_ik z_ik z_ik' + zbar_i zbar_i' ]
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import block_diag
from scipy.special import chdtrc, ndtr, ndtri
from sklearn.base import clone

from limiirl._io import to_pandas
from limiirl._typing import BoolArray, FloatArray, IntArray
from limiirl._validation import as_floats, check_choice
from limiirl.demos import Covariates, CovariateScale
from limiirl.errors import InvalidParameter, LimiirlWarning
from limiirl.irl import FitProblem
from limiirl.mdp import RewardEnsemble
from limiirl.mixture.em import WeightDesign, nearly_empty
from limiirl.mixture.information import (
    OUTER_PRODUCTS,
    FreeParameters,
    Information,
    StandardErrors,
    free_parameters,
    invert,
    make_errors,
    penalty_curvature,
    resolve_clusters,
    score_blocks,
    standard_errors,
)
from limiirl.mixture.validate import find_shared

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Number of values of a numeric covariate in predicted weights, by default.
_GRID = 41
# A parameter involves a flat direction if its component exceeds this value.
_INVOLVED = 1e-6


class JointErrors(NamedTuple):
    """Covariance (r, r) of the coordinates of the free directions of logits and rewards; see `information.invert`."""

    free: FreeParameters
    inverse: FloatArray
    flat: BoolArray
    method: str


# Cache of the last errors of each fit problem, as for constant weights.
_RECENT: WeakKeyDictionary[FitProblem, tuple[bytes, JointErrors]] = WeakKeyDictionary()


def joint_information(
    problem: FitProblem, logits: FloatArray, thetas: FloatArray, free: BoolArray, clusters: IntArray | None = None
) -> Information:
    """Return the observed information of logits (K, p) and thetas (K, d), row by row; see `information.information`."""
    design: WeightDesign = problem.weight_design
    (K, d), p, rho = thetas.shape, logits.shape[1], design.weights(logits)
    n, U = K * p, np.zeros((len(problem.units), K))
    problem.e_step(rho, thetas, U)
    curvature = problem.curvature(U, thetas, free)
    penalties = np.diag(np.concatenate([np.zeros(n), penalty_curvature(problem, thetas).ravel()]))
    penalties[:n, :n] = design.penalty_curvature(K)
    of_weights = design.information(rho)
    outer, missing = penalties.copy(), np.zeros(penalties.shape)
    complete = np.diag(penalties) + np.concatenate([np.diag(of_weights), np.zeros(K * d)])
    of_clusters = None if clusters is None else np.zeros((int(clusters.max()) + 1, len(penalties)))
    for units, score in score_blocks(problem, thetas, free):
        u, x = U[units], design.X[units]
        weighted = u[:, :, None] * score
        mean = np.hstack([(u[:, :, None] * x[:, None, :]).reshape(len(u), n), weighted.reshape(len(u), K * d)])
        scores = mean.copy()
        scores[:, :n] -= (rho[units][:, :, None] * x[:, None, :]).reshape(len(u), n)
        outer += scores.T @ scores
        if of_clusters is not None and clusters is not None:
            np.add.at(of_clusters, clusters[units], scores)
        complete[n:] += (weighted * score).sum(axis=0).ravel()
        missing -= mean.T @ mean
        for k in range(K):
            z = np.hstack([x, score[:, k]])
            own = np.r_[k * p : (k + 1) * p, n + k * d : n + (k + 1) * d]
            missing[np.ix_(own, own)] += z.T @ (u[:, k, None] * z)
    if of_clusters is not None and clusters is not None:
        # Each unit has an equal part of the penalties.
        gradient = np.concatenate(
            [design.penalty_curvature(K) @ logits.ravel(), problem.penalty_gradient(thetas).ravel()]
        )
        of_clusters -= np.outer(np.bincount(clusters) / len(problem.units), gradient)
    if curvature is None:
        return Information(outer, outer, complete, OUTER_PRODUCTS, of_clusters)
    observed = penalties + block_diag(of_weights, *curvature) - missing
    observed = np.asarray(0.5 * (observed + observed.T))
    return Information(observed, outer, complete, "observed information", of_clusters)


def joint_errors(
    problem: FitProblem,
    logits: FloatArray,
    thetas: FloatArray,
    covariance: str = "observed",
    clusters: ArrayLike | None = None,
    shared: BoolArray | None = None,
) -> JointErrors:
    """Return the covariance of the free directions of logits (K, p) and thetas (K, d); see `standard_errors`."""
    index, noun = resolve_clusters(problem, covariance, clusters)
    given = (part for part in (index, shared) if part is not None)
    key = b"".join(array.tobytes() for array in (logits, thetas, *given))
    cached = _RECENT.get(problem)
    if cached is None or cached[0] != key:
        rho, n = problem.weight_design.weights(logits).mean(axis=0), len(problem.units)
        free = free_parameters(problem.model, problem.mdp, rho, thetas, n, logits.shape[1] - 1, shared)
        measured = joint_information(problem, logits, thetas, free.moving, index)
        cached = _RECENT[problem] = key, JointErrors(free, *invert(measured, free.basis, noun))
    return cached[1]


def measure_errors(
    mixture: Any, problem: FitProblem, covariance: str = "observed", clusters: ArrayLike | None = None
) -> StandardErrors:
    """Return standard errors of the mixture weights and rewards of a fitted mixture.

    With covariates, the weights are means over the units, and their errors follow by the delta method.
    """
    logits, thetas = mixture.membership_logits_, mixture.thetas_
    shared = find_shared(getattr(mixture, "shared", None), mixture.mdp_)
    if logits is None:
        return standard_errors(problem, mixture.weights_, thetas, covariance, clusters, shared)
    free, inverse, flat, method = joint_errors(problem, logits, thetas, covariance, clusters, shared)
    design: WeightDesign = problem.weight_design
    rho = design.weights(logits)
    jacobian = mean_jacobian(design.X, rho)
    basis = np.vstack([jacobian @ free.basis[: logits.size], free.basis[logits.size :]])
    return make_errors(free, (rho.mean(axis=0), thetas), basis, inverse.copy(), flat, method)


def mean_jacobian(X: FloatArray, rho: FloatArray) -> FloatArray:
    """Return the derivative (K, K p) of the mean over units of rho (G, K) with respect to the logits."""
    K, p = rho.shape[1], X.shape[1]
    blocks = -np.einsum("ik,il,ic->klc", rho, rho, X, optimize=True)
    blocks[np.arange(K), np.arange(K)] += rho.T @ X
    return np.asarray(blocks.reshape(K, K * p) / len(X))


class Effects(NamedTuple):
    """Average marginal effects (K, m) of covariates on the mixture weights, and their standard errors."""

    values: FloatArray
    errors: FloatArray


class PredictedWeights(NamedTuple):
    """Mean mixture weights (n, K) over all units if a covariate has each of n values, and their standard errors."""

    covariate: str
    values: Any
    weights: FloatArray
    errors: FloatArray


class LikelihoodRatio(NamedTuple):
    """Twice the difference between two log-likelihoods, its degrees of freedom, and the p-value."""

    statistic: float
    df: int
    p_value: float


@dataclass(frozen=True, eq=False)
class MembershipLogit:
    """Multinomial logit of the mixture weights on covariates, rho_k(x) = softmax_k(c_k + D_k . x), in original units.

    Coefficients are log odds relative to intent 0: exp(D_kj) is the factor by which the odds of intent k against intent
    0 change per unit of covariate j. Errors require the training data, which a loaded mixture does not contain; see
    `with_data`.

    Attributes
    ----------
    scale : CovariateScale
        Names of the covariates, and the levels of text columns, of which the first is the reference.
    logits : (K, 1 + m)
        Intercepts and coefficients of the standardised covariates.

    Examples
    --------
    >>> from limiirl import MDP, Demonstrations, IntentMixture, MaxEnt
    >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0], [1], [-1]])
    >>> demos = Demonstrations.from_lists([[0, 1]] * 40 + [[0, 2]] * 40)
    >>> table = {"sex": (["f"] * 30 + ["m"] * 10) + (["f"] * 10 + ["m"] * 30)}
    >>> mix = IntentMixture(2, MaxEnt(2, bounds=(-5, 5)), init=[0] * 40 + [1] * 40)
    >>> print(mix.fit(mdp, demos, covariates=table).membership_)
    Mixture weights by covariates (multinomial logit, reference intent 0)
    <BLANKLINE>
      intent  covariate    coefficient   error      z      p  odds ratio
           1  (intercept)        -1.10    0.37  -3.01  0.003       0.333
           1  sex[m]              2.20    0.52   4.25  0.000       9.002
    <BLANKLINE>
      reference level: sex[f]
      errors from the observed information
    >>> mix.membership_.predict({"sex": ["f", "m"]}).round(2).tolist()
    [[0.75, 0.25], [0.25, 0.75]]
    """

    scale: CovariateScale
    logits: FloatArray
    _mixture: Any = field(repr=False)
    _data: FitProblem | None = field(default=None, repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """Names (m,) of the covariates."""
        return self.scale.names

    @property
    def n_intents(self) -> int:
        """Number K of intents."""
        return len(self.logits)

    @property
    def intercepts(self) -> FloatArray:
        """Intercepts (K,), at 0 of all covariates."""
        return self._original[:, 0]

    @property
    def coefficients(self) -> FloatArray:
        """Coefficients (K, m), per unit of each covariate."""
        return self._original[:, 1:]

    @property
    def odds_ratios(self) -> FloatArray:
        """Odds ratios exp(D) (K, m)."""
        return np.exp(self.coefficients)

    @property
    def _original(self) -> FloatArray:
        return np.asarray(self.logits @ self._to_original.T)

    @property
    def _to_original(self) -> FloatArray:
        """Matrix (p, p) from logits of standardised covariates to those of original units."""
        matrix = np.diag(np.concatenate([[1.0], 1.0 / self.scale.scale]))
        matrix[0, 1:] = -self.scale.mean / self.scale.scale
        return matrix

    def with_data(self, demos: Any, groups: ArrayLike | None = None, covariates: Any = None) -> MembershipLogit:
        """Return a copy that computes errors and effects with the given training data."""
        return replace(self, _data=self._mixture._data(demos, groups, covariates))

    @property
    def problem(self) -> FitProblem:
        """The fit problem of the training data; raises if the mixture was loaded and no data were given."""
        problem: FitProblem = self._mixture._data(None, None) if self._data is None else self._data
        return problem

    @property
    def design(self) -> WeightDesign:
        """The standardised covariates of the units."""
        design: WeightDesign = self.problem.weight_design
        return design

    @cached_property
    def _joint(self) -> JointErrors:
        shared = find_shared(getattr(self._mixture, "shared", None), self._mixture.mdp_)
        return joint_errors(self.problem, self.logits, self._mixture.thetas_, shared=shared)

    @cached_property
    def _covariance(self) -> FloatArray:
        """Covariance (K p, K p) of the logits up to a common change of all intents, for the delta method."""
        basis = self._joint.free.basis[: self.logits.size]
        return np.asarray(basis @ self._joint.inverse @ basis.T)

    @property
    def method(self) -> str:
        """Source of the standard errors; see `StandardErrors`."""
        return self._joint.method

    @cached_property
    def covariance(self) -> FloatArray:
        """Covariance (K p, K p) of intercept and coefficients, intent by intent, in original units.

        It is 0 for the reference, and nan for nearly empty intents and for flat directions of the likelihood.
        """
        K, p = self.logits.shape
        to_reference = np.eye(K)
        to_reference[:, 0] -= 1.0
        change = np.kron(to_reference, self._to_original)
        covariance = change @ self._covariance @ change.T
        free, flat = self._joint.free, self._joint.flat
        unknown = np.any(np.abs(change @ free.basis[: K * p][:, flat]) > _INVOLVED, axis=1)
        unknown |= np.repeat(~free.occupied | ~free.occupied[0], p)
        covariance[unknown] = covariance[:, unknown] = np.nan
        return np.asarray(covariance)

    @property
    def errors(self) -> FloatArray:
        """Standard errors (K, 1 + m) of the intercepts and the coefficients; nan for the reference."""
        errors = np.sqrt(np.diag(self.covariance)).reshape(self.logits.shape)
        errors[0] = np.nan
        return errors

    def odds_ratio_intervals(self, level: float = 0.95) -> FloatArray:
        """Return the confidence intervals (K, m, 2) of the odds ratios."""
        width = float(ndtri(0.5 + 0.5 * _check_level(level))) * self.errors[:, 1:]
        return np.exp(np.stack([self.coefficients - width, self.coefficients + width], axis=2))

    def predict(self, covariates: Any) -> FloatArray:
        """Return the mixture weights (n, K) for the rows of an array or table of covariates."""
        values = Covariates.read(covariates, self.scale).values
        design = np.column_stack([np.ones(len(values)), self.scale.standardise(values)])
        return WeightDesign(design).weights(self.logits)

    def marginal_effects(self) -> Effects:
        """Return the average marginal effects on the mixture weights, with standard errors by the delta method.

        The effect of a number is the mean over units of d rho_k / d x_j. The effect of a boolean or a level is the mean
        change if the column is True instead of False, or has this level instead of the reference.
        """
        X, rho = self.design.X, self.design.weights(self.logits)
        (n, K), p = rho.shape, X.shape[1]
        values, errors = np.empty((K, p - 1)), np.empty((K, p - 1))
        for c in range(1, p):
            if self._is_indicator(c):
                low, high = (self._with(c, value) for value in (0.0, 1.0))
                ends = [WeightDesign(part).weights(self.logits) for part in (low, high)]
                effect = (ends[1] - ends[0]).mean(axis=0)
                gradient = mean_jacobian(high, ends[1]) - mean_jacobian(low, ends[0])
            else:
                direction = self.logits[:, c] - (rho @ self.logits[:, c])[:, None]  # (n, K)
                effect = (rho * direction).mean(axis=0)
                # g_k = D_kc - sum_l rho_l D_lc has the derivative
                # d (rho_k g_k) / d C_l = rho_k [(1(k = l) - rho_l) (g_k x + e_c) - rho_l g_l x].
                gradient = -np.einsum("ik,il,ip->klp", rho * direction, rho, X) - np.einsum(
                    "ik,il,ip->klp", rho, rho * direction, X
                )
                gradient[np.arange(K), np.arange(K)] += (rho * direction).T @ X
                gradient[:, :, c] += np.diag(rho.sum(axis=0)) - rho.T @ rho
                gradient = gradient.reshape(K, K * p) / (n * self.scale.scale[c - 1])
                effect = effect / self.scale.scale[c - 1]
            values[:, c - 1], errors[:, c - 1] = effect, self._propagate(gradient)
        return Effects(values, errors)

    def _propagate(self, gradient: FloatArray) -> FloatArray:
        """Return the standard errors (r,) of functions with this gradient (r, K p) with respect to the logits."""
        variance = np.einsum("ri,ij,rj->r", gradient, self._covariance, gradient)
        return np.asarray(np.sqrt(np.maximum(variance, 0.0)))

    def _is_indicator(self, c: int) -> bool:
        values = self.design.X[:, c] * self.scale.scale[c - 1] + self.scale.mean[c - 1]
        return bool(np.all((np.abs(values) < 1e-9) | (np.abs(values - 1.0) < 1e-9)))

    def _columns_of(self, name: str) -> list[int]:
        """Return the columns of the design for a column of the table."""
        levels = self.scale.levels.get(name, ())
        names = [f"{name}[{level}]" for level in levels[1:]] or [name]
        return [1 + self.names.index(own) for own in names]

    def _with(self, c: int, value: float) -> FloatArray:
        """Return the design if column c has a value in original units; other levels of the same column are 0."""
        name = next(name for name in self.scale.columns if c in self._columns_of(name))
        X = self.design.X.copy()
        for other in self._columns_of(name):
            X[:, other] = ((value if other == c else 0.0) - self.scale.mean[other - 1]) / self.scale.scale[other - 1]
        return X

    def predict_over(self, covariate: str, values: Sequence[Any] | None = None) -> PredictedWeights:
        """Return the mean weights over all units if a covariate has given values and the others are as observed.

        Parameters
        ----------
        covariate : str
            Column of the table.
        values : sequence, optional
            By default, the levels of a text column, or a grid between the smallest and the largest number.
        """
        check_choice(covariate, "covariate", self.scale.columns)
        columns, levels = self._columns_of(covariate), self.scale.levels.get(covariate, ())
        grid: Any
        if levels:
            grid = list(levels if values is None else values)
            unknown = [value for value in grid if value not in levels]
            if unknown:
                raise InvalidParameter.of("values", unknown[0], f"must be one of {', '.join(levels)}")
            designs = [self._with(columns[max(levels.index(v) - 1, 0)], float(v != levels[0])) for v in grid]
        else:
            c = columns[0]
            original = self.design.X[:, c] * self.scale.scale[c - 1] + self.scale.mean[c - 1]
            default = (
                np.array([0.0, 1.0]) if self._is_indicator(c) else np.linspace(original.min(), original.max(), _GRID)
            )
            grid = default if values is None else as_floats(values, "values", boolean=True)
            designs = [self._with(c, float(value)) for value in grid]
        weights, errors = [], []
        for X in designs:
            rho = WeightDesign(X).weights(self.logits)
            weights.append(rho.mean(axis=0))
            errors.append(self._propagate(mean_jacobian(X, rho)))
        return PredictedWeights(covariate, grid, np.array(weights), np.array(errors))

    def likelihood_ratio_test(self) -> LikelihoodRatio:
        """Test constant mixture weights against weights by covariates: 2 (L - L_0) with a chi-squared distribution.

        The mixture without covariates is fitted from the weights and rewards of this one. The distribution holds for
        many units, if the number of intents is right, the weights are positive and `membership_ridge` is 0.
        """
        mixture, problem = self._mixture, self.problem
        start = RewardEnsemble(mixture.weights_, mixture.thetas_)
        options = {"irl": mixture.irl_, "init": start, "n_init": 1, "refine": None, "progress": None, "verbose": False}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LimiirlWarning)  # about data that the fit has warned of
            constant = clone(mixture).set_params(**options).fit(problem.mdp, problem.demos, problem.units.labels)
        U = np.zeros((len(problem.units), self.n_intents))
        log_likelihood = problem.e_step(self.design.weights(self.logits), mixture.thetas_, U).log_likelihood
        statistic = max(2.0 * (log_likelihood - constant.log_likelihood_ * len(U)), 0.0)
        occupied = int(np.count_nonzero(~nearly_empty(U.sum(axis=0), len(U))))
        df = len(self.names) * (occupied - 1)
        return LikelihoodRatio(statistic, df, float(chdtrc(df, statistic)) if df else math.nan)

    def to_dict(self) -> dict[str, Any]:
        """Return the coefficients, errors, odds ratios and marginal effects as columns of plain lists."""
        return {name: np.asarray(values).tolist() for name, values in self._table().items()}

    def to_frame(self) -> Any:
        """Return the coefficients as a pandas DataFrame with one row per intent and covariate."""
        return to_pandas(self._table())

    def _table(self) -> dict[str, Any]:
        K, p = self.logits.shape
        known = self._data is not None or hasattr(self._mixture, "_problem")
        errors = self.errors if known else np.full((K, p), np.nan)
        effects = self.marginal_effects() if known else Effects(*np.full((2, K, p - 1), np.nan))
        with np.errstate(invalid="ignore", divide="ignore"):
            z = self._original / errors
        columns: dict[str, Any] = {
            "intent": np.repeat(np.arange(K), p),
            "covariate": np.tile(np.array(["(intercept)", *self.names], dtype=object), K),
        }
        blank = np.full((K, 1), np.nan)
        tables = {
            "coefficient": self._original,
            "error": errors,
            "z": z,
            "p": 2.0 * ndtr(-np.abs(z)),
            "odds_ratio": np.exp(self._original),
            "marginal_effect": np.hstack([blank, effects.values]),
            "marginal_effect_error": np.hstack([blank, effects.errors]),
        }
        return columns | {name: table.ravel() for name, table in tables.items()}

    def __str__(self) -> str:
        table = self._table()
        width = max(len("(intercept)"), *map(len, self.names))
        head = f"  intent  {'covariate':<{width}}  coefficient   error      z      p  odds ratio"
        lines = ["Mixture weights by covariates (multinomial logit, reference intent 0)", "", head]
        names = ("intent", "covariate", "coefficient", "error", "z", "p", "odds_ratio")
        for k, name, value, error, z, p, ratio in zip(*(table[column] for column in names), strict=True):
            if k > 0:
                cells = (
                    f"{value:>11.2f}  {_cell(error, '6.2f')}  {_cell(z, '5.2f')}  {_cell(p, '5.3f')}  {ratio:>10.3f}"
                )
                lines.append(f"  {k:>6}  {name:<{width}}  {cells}")
        lines.append("")
        references = [f"{name}[{levels[0]}]" for name, levels in self.scale.levels.items()]
        if references:
            lines.append(f"  reference level{'s' if len(references) > 1 else ''}: {', '.join(references)}")
        known = np.any(np.isfinite(table["error"]))
        lines.append(f"  errors from the {self.method}" if known else "  no standard errors: see with_data()")
        return "\n".join(lines)

    def plot(self, covariate: str, values: Sequence[Any] | None = None, level: float = 0.95) -> Figure:
        """Draw the predicted mixture weights over a covariate, with confidence intervals; see `predict_over`."""
        import matplotlib.pyplot as plt

        width = float(ndtri(0.5 + 0.5 * _check_level(level)))
        predicted = self.predict_over(covariate, values)
        figure, axes = plt.subplots(figsize=(5.0, 3.5), layout="constrained")
        low, high = (np.clip(predicted.weights + sign * width * predicted.errors, 0.0, 1.0) for sign in (-1.0, 1.0))
        categories = covariate in self.scale.levels
        x = np.arange(len(predicted.values)) if categories else np.asarray(predicted.values)
        for k in range(self.n_intents):
            if categories:
                ends = np.abs(np.stack([low[:, k], high[:, k]]) - predicted.weights[:, k])
                axes.errorbar(x, predicted.weights[:, k], ends, fmt="o", capsize=3, label=f"intent {k}")
            else:
                (line,) = axes.plot(x, predicted.weights[:, k], label=f"intent {k}")
                axes.fill_between(x, low[:, k], high[:, k], color=line.get_color(), alpha=0.2, linewidth=0)
        if categories:
            axes.set_xticks(x, list(predicted.values))
        axes.set(xlabel=covariate, ylabel=f"mixture weight, with {100 * level:g} % interval", ylim=(0.0, 1.0))
        axes.legend()
        plt.close(figure)
        return figure


def _cell(value: float, form: str) -> str:
    return f"{value:>{form}}" if math.isfinite(value) else f"{'-':>{int(form.split('.', maxsplit=1)[0])}}"


def _check_level(level: float) -> float:
    if not 0.0 < level < 1.0:
        raise InvalidParameter.of("level", level, "must lie between 0 and 1")
    return level
