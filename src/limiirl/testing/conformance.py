"""Conformance checks of single-intent models: functions of a `Case` that raise `AssertionError` on failure."""

from __future__ import annotations

import copy
import pickle
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from sklearn.base import clone

from limiirl._typing import FloatArray
from limiirl.demos import Demonstrations, simulate
from limiirl.errors import ConformanceError, InvalidParameter, LimiirlError
from limiirl.irl import MODELS, PARAMETERS, REQUIRED, OptionalMembers, make_problem
from limiirl.mdp import MDP
from limiirl.mixture import IntentMixture

_SAME_FIT = 1e-3  # tolerance of log-probabilities between equivalent fits
_ROUNDING = 1e-9  # tolerance of sums that are added in another order
_NOT_WORSE = 1e-6  # largest accepted decrease of the mean log-likelihood
_FAR = 1000.0  # magnitude of extreme rewards if the model has no bounds
_N_EACH, _LONGEST = 12, 6
_STORE = "Let __init__ only set self.name = name for each parameter; check values in fit."
_WEIGHTS = "Maximise sum_i weights_i log_prob_i / sum_i weights_i, and use weights nowhere else."


@dataclass(frozen=True, eq=False)
class Case:
    """A problem and the model to check on it.

    `complete` has all trajectories that end in a terminal state, if the MDP is deterministic with a single start state;
    otherwise it is None.
    """

    name: str
    mdp: Any
    demos: Any
    model: Any = None
    complete: Demonstrations | None = None

    def fresh(self) -> Any:
        """Return an unfitted copy of the model; a deep copy if `clone` fails, which another check reports."""
        try:
            return clone(self.model)
        except (RuntimeError, TypeError):
            return copy.deepcopy(self.model)

    def rng(self) -> np.random.Generator:
        """Return a random generator; every check uses the same seed."""
        return np.random.default_rng(20)

    def weights(self) -> FloatArray:
        """Return distinct positive weights (N,)."""
        return self.rng().uniform(0.2, 1.0, len(self.demos))

    def fit(self, **arguments: Any) -> tuple[Any, FloatArray]:
        """Return a fitted copy of the model and its theta (d,)."""
        model = self.fresh()
        return model, np.asarray(model.fit(self.mdp, self.demos, **arguments), dtype=np.float64)

    def log_prob(self, model: Any, thetas: FloatArray, demos: Any = None) -> FloatArray:
        """Return log-probabilities (N, K)."""
        demos = self.demos if demos is None else demos
        return np.asarray(model.log_prob(self.mdp, np.atleast_2d(thetas), demos), dtype=np.float64)

    def bounds(self, d: int) -> tuple[FloatArray, FloatArray]:
        """Return the lower and upper bounds (d,) of the model, which are infinite if it has no bounds."""
        bounds = OptionalMembers.of(self.model).bounds
        lower, upper = np.broadcast_to(np.array([np.nan] * 2 if bounds is None else bounds, dtype=float), (d, 2)).T
        return np.where(np.isnan(lower), -np.inf, lower), np.where(np.isnan(upper), np.inf, upper)

    def nearby(self, theta: FloatArray, n: int) -> FloatArray:
        """Return n random parameter vectors (n, d) near theta, within the bounds."""
        return np.clip(theta + 0.3 * self.rng().normal(size=(n, theta.size)), *self.bounds(theta.size))

    def objective(self, model: Any, theta: FloatArray, weights: FloatArray) -> float:
        """Return the penalised weighted mean log-likelihood."""
        penalty = make_problem(model, self.mdp, self.demos).penalty(theta[None])
        return float(weights @ self.log_prob(model, theta)[:, 0] / weights.sum()) - penalty / len(self.demos)

    def expect_same_fit(
        self, model: Any, theta: FloatArray, other: Any, what: str, which: Any = slice(None), remedy: str = _WEIGHTS
    ) -> None:
        """Check that the log-probabilities under two parameter vectors agree."""
        log_p = self.log_prob(model, np.array([theta, np.asarray(other, dtype=np.float64)]))[which]
        with np.errstate(invalid="ignore"):  # equal values, including -inf
            difference = np.where(log_p[:, 0] == log_p[:, 1], 0.0, np.abs(log_p[:, 0] - log_p[:, 1])).max(initial=0.0)
        got = f"log-probabilities that differ by {difference:.2g}"
        expect(difference <= _SAME_FIT, f"the same fit {what}", got, remedy)

    def mixture(self) -> IntentMixture:
        """Return a fitted mixture of two intents."""
        return IntentMixture(n_intents=2, irl=self.fresh(), random_state=0, max_iter=10).fit(self.mdp, self.demos)


def expect(condition: Any, expected: str, got: Any, remedy: str) -> None:
    """Raise `AssertionError` unless a condition holds."""
    if not condition:
        _fail(expected, got, remedy)


def _fail(expected: str, got: Any, remedy: str) -> NoReturn:
    raise AssertionError(f"expected {expected}; got {got}. {remedy}") from None


# Features of six states: start 0, goal 5, and two layers of states between them.
_PHI = [[0.0, 0.0], [1.0, 0.2], [0.3, 1.0], [0.8, 0.5], [0.1, 0.9], [0.5, 0.0]]


def cases() -> list[Case]:
    """Return the default problems: deterministic, stochastic, discounted with cycles, and with action features.

    Examples
    --------
    >>> [case.name for case in cases()]
    ['deterministic', 'stochastic', 'discounted', 'action_features']
    """
    layers = MDP.from_edges(
        [0, 0, 0, 1, 1, 2, 2, 3, 4], [1, 2, 5, 3, 4, 3, 4, 5, 5], p0=[1, 0, 0, 0, 0, 0], state_features=_PHI
    )
    slippery = MDP.from_edges(
        np.repeat([0, 1, 2, 3], 4),
        [1, 2, 1, 2, 3, 4, 3, 4, 3, 4, 3, 4, 4, 5, 4, 5],
        action=np.tile([0, 0, 1, 1], 4),
        prob=np.tile([0.8, 0.2, 0.2, 0.8], 4),
        p0=[0.6, 0.1, 0.3, 0, 0, 0],
        state_features=_PHI,
    )
    ring = MDP.from_edges(
        [0, 0, 1, 1, 1, 2, 2, 3, 3, 3],
        [1, 3, 0, 2, 4, 1, 3, 2, 0, 4],
        p0=[0.5, 0, 0.5, 0, 0],
        gamma=0.9,
        state_features=_PHI[1:],
    )
    actions = slippery.replace(action_features=np.linspace(-0.5, 0.5, slippery.n_pairs)[:, None] ** 2 * [[1.0, -2.0]])
    return [
        Case("deterministic", layers, random_walks(layers, 1), complete=_all_trajectories(layers)),
        Case("stochastic", slippery, random_walks(slippery, 2)),
        Case("discounted", ring, random_walks(ring, 3)),
        Case("action_features", actions, random_walks(actions, 4)),
    ]


def random_walks(mdp: MDP, seed: int) -> Demonstrations:
    """Draw demonstrations from two random policies; if any reach a terminal state, keep only those."""
    rng = np.random.default_rng(seed)
    parts = []
    for _ in range(2):
        policy = rng.gamma(1.0, size=mdp.n_pairs) + 0.1
        policy /= np.bincount(mdp.pair_state, weights=policy, minlength=mdp.n_states)[mdp.pair_state]
        drawn = simulate(mdp, policy, 20 * _N_EACH, rng, max_length=_LONGEST)
        arrived = np.flatnonzero(mdp.terminal[drawn.last_states])
        parts.append(drawn[arrived[:_N_EACH] if arrived.size else np.arange(_N_EACH)])
    return Demonstrations.concat(parts)


def _all_trajectories(mdp: MDP) -> Demonstrations:
    """Enumerate the trajectories of an acyclic MDP that end in a terminal state."""

    def extend(states: list[int], actions: list[int]) -> Iterator[tuple[list[int], list[int]]]:
        if mdp.terminal[states[-1]]:
            yield states, actions
        for edge in range(mdp.out_ptr[states[-1]], mdp.out_ptr[states[-1] + 1]):
            yield from extend([*states, int(mdp.dst[edge])], [*actions, int(mdp.act[edge])])

    listed = [path for start in np.flatnonzero(mdp.p0) for path in extend([int(start)], [])]
    return Demonstrations.from_lists([states for states, _ in listed], [actions for _, actions in listed])


# Parameters (conventions of scikit-learn).


def _same_parameters(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(
        value is other[name] or bool(np.array_equal(np.asarray(value, object), np.asarray(other[name], object)))
        for name, value in one.items()
    )


def parameters_round_trip(case: Case) -> None:
    """Check get_params, set_params and clone."""
    model, params = case.model, case.model.get_params(deep=False)
    try:
        twin = clone(model)
    except (RuntimeError, TypeError) as error:
        _fail("clone(model) to succeed", f"{type(error).__name__}: {error}", _STORE)
    expect(type(twin) is type(model), "clone(model) to be of the same class", type(twin).__name__, _STORE)
    cloned, copied = twin.get_params(deep=False), {name: clone(value, safe=False) for name, value in params.items()}
    same = _same_parameters(cloned, copied) or _same_parameters(cloned, params)
    expect(same, f"the parameters {params} of a clone", cloned, _STORE)
    remedy = "Return self, or derive from sklearn.base.BaseEstimator."
    returned = twin.set_params(**params)
    expect(returned is twin, "set_params to return the model itself", type(returned).__name__, remedy)
    try:
        twin.set_params(no_such_parameter_=1)
    except ValueError:
        return
    _fail("set_params to reject an unknown parameter", "no error", "Derive from sklearn.base.BaseEstimator.")


def constructor_stores_parameters(case: Case) -> None:
    """Check that the constructor stores its arguments unchanged and sets no other attributes."""
    given = {name: object() for name in case.model.get_params(deep=False)}
    try:
        made = type(case.model)(**given)
    except Exception as error:  # noqa: BLE001 (a constructor must not raise)
        _fail("a constructor that accepts any value", f"{type(error).__name__}: {error}", _STORE)
    changed = [name for name, value in given.items() if getattr(made, name, None) is not value]
    expect(not changed, "each parameter stored unchanged", f"a changed {', '.join(changed)}", _STORE)
    more = sorted(set(vars(made)) - set(given))
    expect(not more, "no attributes other than the parameters before fit", ", ".join(more), _STORE)


def model_can_be_pickled(case: Case) -> None:
    """Check that a fitted model can be pickled."""
    model, theta = case.fit()
    remedy = "Define the class at module level, without open files, locks or lambdas in attributes."
    try:
        copied = pickle.loads(pickle.dumps(model))  # noqa: S301 (pickled in the same line)
    except Exception as error:  # noqa: BLE001 (any error means that it cannot be pickled)
        _fail("a model that can be pickled", f"{type(error).__name__}: {error}", remedy)
    params = copied.get_params(deep=False)
    expect(
        _same_parameters(params, model.get_params(deep=False)), "the same parameters after unpickling", params, remedy
    )
    remedy = "Store fitted values in attributes with a trailing underscore, not in module variables."
    same = np.array_equal(case.log_prob(copied, theta), case.log_prob(model, theta))
    expect(same, "the same log_prob after unpickling", "different values", remedy)


# fit, the M-step of a mixture.


def fit_returns_theta(case: Case) -> None:
    """Check that fit returns a vector of finite values."""
    _, theta = case.fit()
    shape = "a non-empty vector (d,) of finite values"
    remedy = "Return theta as a one-dimensional array of finite values. If the optimiser diverges, set bounds."
    expect(theta.ndim == 1 and theta.size, shape, f"shape {theta.shape}", remedy)
    expect(np.all(np.isfinite(theta)), shape, theta, remedy)
    _, other = case.fit(weights=case.weights())
    expect(other.shape == theta.shape, f"{theta.size} parameters for any weights", other.shape, remedy)


def fit_respects_bounds(case: Case) -> None:
    """Check that theta lies within `bounds` for any start."""
    _, theta = case.fit()
    lower, upper = case.bounds(theta.size)
    remedy = "Pass the bounds to the optimiser, or clip its result."
    for fitted in (theta, case.fit(weights=case.weights(), start=case.nearby(theta, 1)[0])[1]):
        out = np.flatnonzero((fitted < lower) | (fitted > upper))[:1]
        expect(not out.size, f"theta within {case.model.bounds}", f"{fitted[out]} at parameter {out}", remedy)


def fit_is_deterministic(case: Case) -> None:
    """Check that fit is deterministic and does not depend on earlier fits."""
    model, theta = case.fit()
    remedy = "Use fixed seeds within fit, and start from `start` or a fixed point, not from the last fit."
    expect(np.array_equal(case.fit()[1], theta), "identical results of two fits", "different results", remedy)
    model.fit(case.mdp, case.demos, weights=case.weights())
    again = np.asarray(model.fit(case.mdp, case.demos))
    expect(np.array_equal(again, theta), "identical results after refitting an object", "different results", remedy)


def fit_does_not_modify_inputs(case: Case) -> None:
    """Check that fit does not modify weights, start or the parameters of the model."""
    given = {"weights": case.weights(), "start": case.nearby(case.fit()[1], 1)[0]}
    model, copies = case.fresh(), {name: value.copy() for name, value in given.items()}
    before = dict(model.get_params(deep=False))
    model.fit(case.mdp, case.demos, **given)
    for name, value in given.items():
        expect(np.array_equal(value, copies[name]), f"{name} unchanged", "other values", f"Work on a copy of {name}.")
    after = model.get_params(deep=False)
    remedy = "Store fitted values in attributes with a trailing underscore."
    expect(_same_parameters(before, after), f"the parameters {before} after fit", after, remedy)


def fit_does_not_decrease_objective(case: Case) -> None:
    """Check that the objective at the fit is not lower than at the start, as EM requires."""
    weights = case.weights()
    model, theta = case.fit(weights=weights)
    remedy = "Return the best iterate, including the start. A model with a prior must implement FitProblem.penalty."
    for start in (theta, *case.nearby(theta, 2)):
        before = case.objective(model, start, weights)
        after = case.objective(model, case.fit(weights=weights, start=start)[1], weights)
        wanted = f"a mean log-likelihood of at least {before:.6g}, the value at the start"
        expect(after >= before - _NOT_WORSE * (1.0 + abs(before)), wanted, f"{after:.6g}", remedy)


def fit_is_local_maximum(case: Case) -> None:
    """Check that no nearby parameters have a higher objective."""
    weights = case.weights()
    model, theta = case.fit(weights=weights)
    best = case.objective(model, theta, weights)
    remedy = "Check the sign and the gradient of the objective, and the stopping rule."
    for other in case.nearby(theta, 8):
        value = case.objective(model, other, weights)
        got = f"{best:.6g} at the fit and {value:.6g} at theta = {other.round(3)}"
        expected = "fit to maximise the weighted log-likelihood"
        expect(value <= best + _NOT_WORSE * (1.0 + abs(best)), expected, got, remedy)


def order_of_demos_is_irrelevant(case: Case) -> None:
    """Check that fit does not depend on the order of the demonstrations."""
    order, weights = case.rng().permutation(len(case.demos)), case.weights()
    model, theta = case.fit(weights=weights)
    other = case.fresh().fit(case.mdp, case.demos[order], weights=weights[order])
    what = "to the same demonstrations in another order"
    case.expect_same_fit(model, theta, other, what, remedy="Do not use the index of a demonstration.")


# Weights, which are responsibilities in a mixture.


def default_weights_are_equal(case: Case) -> None:
    """Check that weights=None is equivalent to weights of 1."""
    other = case.fit(weights=np.ones(len(case.demos)))[1]
    case.expect_same_fit(*case.fit(), other, "with weights=None as with weights of 1")


def zero_weights_are_ignored(case: Case) -> None:
    """Check that a demonstration of weight 0 is ignored."""
    weights = case.weights()
    weights[1::2] = 0.0
    # Keep the longest demonstration, which may determine max_length.
    weights[int(np.argmax(getattr(case.demos, "lengths", np.zeros(weights.size))))] = 0.5
    kept = np.flatnonzero(weights)
    other = case.fresh().fit(case.mdp, case.demos[kept], weights=weights[kept])
    case.expect_same_fit(*case.fit(weights=weights), other, "with and without demonstrations of weight 0", kept)


def scale_of_weights_is_irrelevant(case: Case) -> None:
    """Check that fit does not depend on the scale of the weights."""
    model, theta = case.fit(weights=case.weights())
    for factor in (0.01, 40.0):
        other = case.fit(weights=factor * case.weights())[1]
        case.expect_same_fit(model, theta, other, f"for weights multiplied by {factor:g}")


def weight_two_equals_duplicate(case: Case) -> None:
    """Check that a demonstration of weight 2 is equivalent to two copies of weight 1."""
    index = np.arange(len(case.demos))
    twice = index % 3 == 0
    other = case.fresh().fit(case.mdp, case.demos[np.concatenate([index, index[twice]])])
    case.expect_same_fit(*case.fit(weights=1.0 + twice), other, "with weights of 2 as with duplicated demonstrations")


def fit_many_equals_fit(case: Case) -> None:
    """Check that `fit_many` is equivalent to one `fit` per column of weights, with and without starts."""
    weights = np.column_stack([case.weights(), case.weights()[::-1] ** 2, np.ones(len(case.demos))])
    model, theta = case.fit()
    remedy = "Return one row per column of weights, in order."
    for starts in (None, case.nearby(theta, 3)):
        thetas = np.asarray(case.fresh().fit_many(case.mdp, case.demos, weights, starts))
        expect(thetas.shape == (3, theta.size), f"thetas of shape {(3, theta.size)}", f"shape {thetas.shape}", remedy)
        for k, row in enumerate(thetas):
            _, alone = case.fit(weights=weights[:, k], start=None if starts is None else starts[k])
            case.expect_same_fit(model, alone, row, f"in row {k} of fit_many as with fit")


# log_prob, the E-step of a mixture.


def _expect_numbers(log_p: FloatArray) -> None:
    bad = np.argwhere(np.isnan(log_p) | (log_p == np.inf))
    remedy = "Sum in log space (scipy.special.logsumexp), and return -inf for impossible trajectories."
    expect(
        not len(bad),
        "finite values or -inf",
        f"{log_p[tuple(bad[0])] if len(bad) else 0} at {bad[:1].tolist()}",
        remedy,
    )


def _expect_equal(log_p: FloatArray, wanted: FloatArray, what: str, remedy: str) -> None:
    same = log_p.shape == wanted.shape and np.allclose(log_p, wanted, rtol=_ROUNDING, atol=_ROUNDING, equal_nan=True)
    expect(same, what, "different values" if log_p.shape == wanted.shape else f"shape {log_p.shape}", remedy)


def log_prob_returns_matrix(case: Case) -> None:
    """Check that log_prob has shape (N, K) and is never NaN or +inf, even for extreme rewards."""
    model, theta = case.fit()
    remedy = "Return one row per demonstration and one column per row of thetas, even for a single theta."
    for thetas in (theta[None], np.vstack([theta, case.nearby(theta, 2)])):
        log_p, shape = case.log_prob(model, thetas), (len(case.demos), len(thetas))
        expect(log_p.shape == shape, f"shape {shape}", f"shape {log_p.shape}", remedy)
        _expect_numbers(log_p)
    lower, upper = case.bounds(theta.size)
    for corner in (np.maximum(lower, -_FAR), np.minimum(upper, _FAR)):
        try:
            log_p = case.log_prob(model, corner)
        except LimiirlError:
            continue  # a model may reject extreme rewards
        _expect_numbers(log_p)


def log_prob_columns_are_independent(case: Case) -> None:
    """Check that each column depends only on its own theta."""
    model, theta = case.fit()
    thetas = np.vstack([theta, case.nearby(theta, 2)])
    together = case.log_prob(model, thetas)
    alone = np.hstack([case.log_prob(model, one) for one in thetas])
    remedy = "Normalise each intent separately; the mixture applies the mixture weights."
    _expect_equal(together, alone, "each column to equal log_prob of its theta alone", remedy)
    _expect_equal(case.log_prob(model, thetas[::-1]), together[:, ::-1], "columns in the order of thetas", remedy)


def log_prob_rows_are_independent(case: Case) -> None:
    """Check that each row depends only on its own demonstration."""
    model, theta = case.fit()
    thetas = np.vstack([theta, case.nearby(theta, 1)])
    whole, order = case.log_prob(model, thetas), case.rng().permutation(len(case.demos))
    remedy = "Compute each row from its own demonstration; fit may store statistics of the data."
    shuffled = case.log_prob(model, thetas, case.demos[order])
    _expect_equal(shuffled, whole[order], "rows in the order of demonstrations", remedy)
    half = order[: max(1, order.size // 2)]
    part = case.log_prob(model, thetas, case.demos[half])
    _expect_equal(part, whole[half], "the same rows for half of the demonstrations", remedy)


def log_prob_is_deterministic(case: Case) -> None:
    """Check that log_prob is deterministic and does not depend on later fits."""
    model, theta = case.fit()
    first = case.log_prob(model, theta)
    remedy = "Let log_prob depend on its arguments and the parameters of the model, not on the last theta."
    expect(
        np.array_equal(case.log_prob(model, theta), first),
        "identical results of two calls",
        "different results",
        remedy,
    )
    model.fit(case.mdp, case.demos, weights=case.weights())
    _expect_equal(case.log_prob(model, theta), first, "the same log_prob after a fit with other weights", remedy)


def log_prob_does_not_modify_inputs(case: Case) -> None:
    """Check that log_prob does not modify thetas."""
    model, theta = case.fit()
    thetas = np.vstack([theta, case.nearby(theta, 2)])
    before = thetas.copy()
    model.log_prob(case.mdp, thetas, case.demos)
    expect(np.array_equal(thetas, before), "thetas unchanged", "other values", "Work on a copy of thetas.")


def probabilities_sum_to_at_most_one(case: Case) -> None:
    """Check that the probabilities of the complete trajectories of a deterministic MDP sum to at most 1."""
    complete, model = case.complete, case.fresh()
    theta = np.asarray(model.fit(case.mdp, complete, weights=1.0 + np.arange(len(complete or ()))), dtype=np.float64)
    total = np.exp(case.log_prob(model, np.vstack([theta, case.nearby(theta, 3)]), complete)).sum(axis=0)
    remedy = "Divide by the partition function. A model whose log_prob is a score declares normalised = False."
    expect(np.all(total <= 1.0 + _ROUNDING), "probabilities that sum to at most 1", total.max(), remedy)
    expect(np.all(total > 0.0), "a complete trajectory with positive probability", "none", remedy)


def features_are_finite(case: Case) -> None:
    """Check that `features` returns finite points (N, m), which are clustered to initialise EM."""
    model, _ = case.fit()
    points, n = np.asarray(model.features(case.mdp, case.demos), dtype=np.float64), len(case.demos)
    fine = points.ndim == 2 and len(points) == n and points.shape[1] > 0 and np.all(np.isfinite(points))
    remedy = "Return one finite point per demonstration, or omit the method to cluster feature counts."
    expect(fine, f"finite points of shape ({n}, m)", f"shape {points.shape}", remedy)


# Use in a mixture.


def works_in_a_mixture(case: Case) -> None:
    """Check that the objective of EM never decreases, except at iterations with an event in `history_`."""
    mixture = case.mixture()
    finite = np.all(np.isfinite(mixture.thetas_)) and np.all(np.isfinite(mixture.responsibilities_))
    remedy = "Check the result of fit for the weights of a small cluster."
    expect(finite, "finite rewards and responsibilities", mixture.thetas_, remedy)
    remedy = "Maximise the log-likelihood that log_prob returns, and let log_prob not depend on earlier fits."
    for before, entry in zip(mixture.history_[:-1], mixture.history_[1:], strict=True):
        increases = entry.event or entry.objective >= before.objective - _ROUNDING * (1.0 + abs(before.objective))
        wanted = f"an objective of at least {before.objective:.9g} at iteration {entry.iteration}"
        expect(increases, wanted, f"{entry.objective:.9g}", remedy)


def problem_agrees_with_log_prob(case: Case) -> None:
    """Check that EM and `log_prob` compute the same log-likelihood."""
    mixture, (model, _) = case.mixture(), case.fit()
    log_prob = np.asarray(model.log_prob(case.mdp, mixture.thetas_, case.demos), dtype=np.float64)
    score = float(np.mean(np.logaddexp.reduce(log_prob + np.log(mixture.weights_), axis=1)))
    inside = mixture.log_likelihood_
    remedy = "The model's make_problem must compute the same log-likelihood as log_prob."
    wanted = f"the log-likelihood {score:.9g} of log_prob in EM"
    expect(abs(score - inside) <= _ROUNDING * (1.0 + abs(score)), wanted, f"{inside:.9g}", remedy)


def mixture_can_be_saved(case: Case) -> None:
    """Check that a mixture of a registered model can be saved and loaded."""
    mixture = case.mixture()
    with tempfile.TemporaryDirectory() as folder:
        mixture.save(Path(folder) / "mixture")
        loaded = IntentMixture.load(Path(folder) / "mixture")
    same = np.array_equal(loaded.score_samples(case.demos), mixture.score_samples(case.demos))
    remedy = "Store fitted values in attributes with a trailing underscore: numbers, strings, arrays or lists of them."
    expect(same, "the same log-likelihoods after saving and loading", "different values", remedy)


# If one of these checks fails on a problem, the other checks on that problem are skipped.
_GATES = (fit_returns_theta, log_prob_returns_matrix)
_ONCE = (parameters_round_trip, constructor_stores_parameters, model_can_be_pickled, mixture_can_be_saved)
_CHECKS: tuple[Callable[[Case], None], ...] = (
    *_ONCE[:3],
    *_GATES,
    fit_respects_bounds, fit_is_deterministic, fit_does_not_modify_inputs, fit_does_not_decrease_objective,
    fit_is_local_maximum, order_of_demos_is_irrelevant,
    default_weights_are_equal, zero_weights_are_ignored, scale_of_weights_is_irrelevant, weight_two_equals_duplicate,
    fit_many_equals_fit,
    log_prob_columns_are_independent, log_prob_rows_are_independent, log_prob_is_deterministic,
    log_prob_does_not_modify_inputs, probabilities_sum_to_at_most_one, features_are_finite,
    works_in_a_mixture, problem_agrees_with_log_prob, mixture_can_be_saved,
)  # fmt: skip


def _skip_reason(function: Callable[[Case], None], case: Case) -> str:
    """Return the reason why a check does not apply, or an empty string."""
    members = OptionalMembers.of(case.model)
    if function is fit_respects_bounds and members.bounds is None:
        return "the model has no bounds"
    if function is fit_many_equals_fit and members.fit_many is None:
        return "the model has no fit_many, which is optional"
    if function is features_are_finite and members.features is None:
        return "the model has no features, which is optional"
    if function is probabilities_sum_to_at_most_one and not members.normalised:
        return "the model declares normalised = False"
    if function is probabilities_sum_to_at_most_one and case.complete is None:
        return "the trajectories of the problem cannot be enumerated"
    if function is mixture_can_be_saved and type(case.model) not in MODELS.values():
        return "the model is not registered (limiirl.irl.register_model)"
    return ""


@dataclass(frozen=True)
class Check:
    """One check of one model on one problem; calling it raises `AssertionError` if the check fails."""

    function: Callable[[Case], None]
    case: Case

    def __str__(self) -> str:
        return f"{self.function.__name__}[{self.case.name}]"

    def __call__(self) -> None:
        """Run the check with small-sample warnings suppressed."""
        with warnings.catch_warnings(action="ignore"):
            self.function(self.case)


@dataclass(frozen=True)
class ConformanceReport:
    """Checks that a model passed, and skipped checks with reasons."""

    model: str
    passed: tuple[str, ...]
    skipped: dict[str, str]

    def __str__(self) -> str:
        lines = [f"  skipped: {name}: {reason}" for name, reason in self.skipped.items()]
        return "\n".join([f"{self.model} passes {len(self.passed)} checks.", *lines])


def checks(model: Any, *, mdp: Any = None, demos: Any = None) -> list[Check]:
    """Return the checks that apply to a model, for `pytest.mark.parametrize`.

    Parameters
    ----------
    model, mdp, demos
        See `check_irl_model`.

    Examples
    --------
    In a test module: ``@pytest.mark.parametrize("check", checks(MyModel()), ids=str)``, then ``check()``.

    >>> from limiirl import MaxEnt
    >>> first = checks(MaxEnt())[0]
    >>> print(first)
    parameters_round_trip[deterministic]
    >>> first()
    """
    return [check for check, reason in _all_checks(model, mdp, demos) if not reason]


def check_irl_model(model: Any, *, mdp: Any = None, demos: Any = None) -> ConformanceReport:
    """Check that a single-intent model works in `IntentMixture`; raise `ConformanceError` with all failures.

    Checks that do not apply are skipped: a model may set ``normalised = False`` (its `log_prob` is not a
    log-probability) or ``takes_action_features = False`` (it supports state features only).

    Parameters
    ----------
    model : object
        Instance to check; it is copied, not modified.
    mdp : MDP, optional
        MDP to use instead of the problems of `cases`.
    demos : Demonstrations, optional
        Demonstrations in `mdp`; simulated with random policies by default.

    Returns
    -------
    ConformanceReport

    Examples
    --------
    >>> from limiirl import MaxEnt
    >>> report = check_irl_model(MaxEnt(bounds=(-5, 5)))
    >>> "fit_many_equals_fit[discounted]" in report.passed
    True
    >>> from sklearn.cluster import KMeans
    >>> check_irl_model(KMeans())
    Traceback (most recent call last):
    limiirl.errors.ConformanceError: KMeans has no method log_prob. A model needs fit, log_prob, get_params and ...
    """
    passed: list[str] = []
    skipped: dict[str, str] = {}
    failures: dict[str, str] = {}
    failed_cases: set[str] = set()
    for check, reason in _all_checks(model, mdp, demos):
        name = str(check)
        if reason or check.case.name in failed_cases:
            skipped[name] = reason or "fit or log_prob failed on this problem"
            continue
        try:
            check()
        except AssertionError as error:
            failures[name] = str(error)
        except Exception as error:  # noqa: BLE001 (any error of a model is reported)
            failures[name] = f"expected no error; got {type(error).__name__}: {error}"
        else:
            passed.append(name)
        if name in failures and check.function in _GATES:
            failed_cases.add(check.case.name)
    kind = type(model).__name__
    if failures:
        lines = "\n".join(f"- {name}: {message}" for name, message in failures.items())
        total = len(failures) + len(passed)
        raise ConformanceError(f"{kind} fails {len(failures)} of {total} checks:\n{lines}", failures)
    return ConformanceReport(kind, tuple(passed), skipped)


def _all_checks(model: Any, mdp: Any, demos: Any) -> Iterator[tuple[Check, str]]:
    """Yield every check of a model with the reason why it is skipped, or an empty string."""
    _require_methods(model)
    problems = cases() if mdp is None and demos is None else [_make_case(mdp, demos)]
    if mdp is None and demos is None and not OptionalMembers.of(model).takes_action_features:
        problems = [case for case in problems if not case.mdp.n_action_features]
    for function in _CHECKS:
        own = [replace(case, model=model) for case in problems]
        reasons = [(Check(function, case), _skip_reason(function, case)) for case in own]
        # A check that applies to some problems is not reported as skipped for the others.
        apply = [(check, reason) for check, reason in reasons if not reason] or reasons[:1]
        yield from apply[:1] if function in _ONCE else apply


def _make_case(mdp: Any, demos: Any) -> Case:
    if demos is None:
        if not isinstance(mdp, MDP):
            raise InvalidParameter.of("mdp", mdp, "must be an MDP")
        demos = random_walks(mdp, 0)
    if len(demos) < 2:
        raise InvalidParameter.of("demos", len(demos), "must have at least 2 demonstrations")
    return Case("given", mdp, demos)


def _require_methods(model: Any) -> None:
    if isinstance(model, type):
        raise ConformanceError(f"{model.__name__} is a class. Pass an instance: {model.__name__}().")
    missing = [name for name in REQUIRED + PARAMETERS if not callable(getattr(model, name, None))]
    if missing:
        raise ConformanceError(
            f"{type(model).__name__} has no method {', '.join(missing)}. A model needs fit, log_prob, get_params and "
            "set_params; derive from sklearn.base.BaseEstimator for the last two."
        )
