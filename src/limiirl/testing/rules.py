"""A model on one problem: what the rules ask of it, and how they say that it failed.

Small problems that every single-intent model should be able to fit.

Rules about `fit`: the M-step of a mixture, which must repeat itself and never make things worse.

Rules about `log_prob`: the E-step of a mixture, which compares intents demonstration by demonstration.

Rules about weights, which in a mixture are responsibilities: how often a demonstration counts.

Rules about a model's parameters: scikit-learn's, which let a mixture copy a model and a worker receive it.

Rules about a model inside a mixture: EM climbs, and what was fitted can be saved.
"""

from __future__ import annotations

import copy
import pickle
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from limiirl._typing import FloatArray
from limiirl.demos import Demonstrations, simulate
from limiirl.errors import InvalidParameter, LimiirlError
from limiirl.irl import MODELS, Box, make_problem
from limiirl.irl.validate import box
from limiirl.mdp import MDP
from limiirl.mixture import IntentMixture

_N_EACH = 12
_LONGEST = 6


@dataclass(frozen=True, eq=False)
class Problem:
    """Something to fit.

    Attributes
    ----------
    name : str
    mdp : MDP or None
    demos : Demonstrations
    complete : Demonstrations or None
        Every trajectory that ends in a terminal state, where they are few; then all moves are certain and all start
        in one state, so that the probability of a trajectory is that of its actions.
    action_features : bool
        Whether some features belong to actions.
    """

    name: str
    mdp: Any
    demos: Any
    complete: Demonstrations | None = None
    action_features: bool = False


def problems() -> list[Problem]:
    """Return the problems: certain moves, slippery ones, discounted ones with cycles, and features on actions.

    Examples
    --------
    >>> [problem.name for problem in problems()]
    ['deterministic', 'stochastic', 'discounted', 'action_features']
    """
    layers = _layers()
    return [
        Problem("deterministic", layers, walks(layers, 1), complete=_complete(layers)),
        Problem("stochastic", _slippery(), walks(_slippery(), 2)),
        Problem("discounted", _cyclic(), walks(_cyclic(), 3)),
        Problem("action_features", _with_actions(), walks(_with_actions(), 4), action_features=True),
    ]


def given(mdp: Any, demos: Any) -> Problem:
    """Return a user's problem; without demonstrations, random walks in the MDP."""
    if demos is None:
        if not isinstance(mdp, MDP):
            raise InvalidParameter(f"mdp must be an MDP; it is a {type(mdp).__name__}. Build one with MDP.from_edges.")
        demos = walks(mdp, 0)
    features = mdp is not None and getattr(mdp, "n_features", 0) > getattr(mdp, "n_state_features", 0)
    return Problem("given", mdp, demos, action_features=features)


def walks(mdp: MDP, seed: int) -> Demonstrations:
    """Draw demonstrations of two stochastic policies, one after the other; those that arrive, where any do."""
    rng = np.random.default_rng(seed)
    parts = []
    for _ in range(2):
        share = rng.gamma(1.0, size=mdp.n_pairs) + 0.1
        total = np.bincount(mdp.pair_state, weights=share, minlength=mdp.n_states)
        drawn = simulate(mdp, share / total[mdp.pair_state], 20 * _N_EACH, rng, max_length=_LONGEST)
        arrived = np.flatnonzero(mdp.terminal[drawn.last_states])
        parts.append(drawn[arrived[:_N_EACH] if arrived.size else np.arange(_N_EACH)])
    return Demonstrations.concat(parts)


# Three layers between the start, 0, and the goal, 5, and a short cut.
_SRC, _DST = [0, 0, 0, 1, 1, 2, 2, 3, 4], [1, 2, 5, 3, 4, 3, 4, 5, 5]
_PHI = [[0.0, 0.0], [1.0, 0.2], [0.3, 1.0], [0.8, 0.5], [0.1, 0.9], [0.5, 0.0]]


def _layers() -> MDP:
    return MDP.from_edges(_SRC, _DST, p0=[1, 0, 0, 0, 0, 0], state_features=_PHI)


def _slippery() -> MDP:
    """Two actions in each of four states; one in five moves goes where the other action leads."""
    src = np.repeat([0, 1, 2, 3], 4)
    dst = [1, 2, 1, 2, 3, 4, 3, 4, 3, 4, 3, 4, 4, 5, 4, 5]
    return MDP.from_edges(
        src,
        dst,
        action=np.tile([0, 0, 1, 1], 4),
        prob=np.tile([0.8, 0.2, 0.2, 0.8], 4),
        p0=[0.6, 0.1, 0.3, 0, 0, 0],
        state_features=_PHI,
    )


def _cyclic() -> MDP:
    """A ring of four states, left for the goal from two of them."""
    src, dst = [0, 0, 1, 1, 1, 2, 2, 3, 3, 3], [1, 3, 0, 2, 4, 1, 3, 2, 0, 4]
    return MDP.from_edges(src, dst, p0=[0.5, 0, 0.5, 0, 0], gamma=0.9, state_features=_PHI[1:])


def _with_actions() -> MDP:
    mdp = _slippery()
    return mdp.replace(action_features=np.linspace(-0.5, 0.5, mdp.n_pairs)[:, None] ** 2 * [[1.0, -2.0]])


def _complete(mdp: MDP) -> Demonstrations:
    """Return every trajectory of an MDP without cycles that ends in a terminal state."""

    def onward(states: list[int], actions: list[int]) -> Iterator[tuple[list[int], list[int]]]:
        if mdp.terminal[states[-1]]:
            yield states, actions
        for edge in range(mdp.out_ptr[states[-1]], mdp.out_ptr[states[-1] + 1]):
            yield from onward([*states, int(mdp.dst[edge])], [*actions, int(mdp.act[edge])])

    listed = [path for start in np.flatnonzero(mdp.p0) for path in onward([int(start)], [])]
    return Demonstrations.from_lists([states for states, _ in listed], [actions for _, actions in listed])


# Log-probabilities of a demonstration under two fits that should be the same: optimisers stop where they like.
SAME_FIT = 1e-3
# The same sums, added up in another order.
ROUNDING = 1e-9
# A mean log-likelihood that should not be lower than another.
NOT_WORSE = 1e-6


class Failure(NamedTuple):
    """A rule that a model breaks: the check's name, what was expected, what came, and the remedy."""

    check: str
    expected: str
    got: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.check}: expected {self.expected}; got {self.got}. {self.remedy}"


class Unmet(Exception):
    """A rule is not kept."""

    def __init__(self, expected: str, got: str, remedy: str) -> None:
        super().__init__(expected, got, remedy)
        self.expected, self.got, self.remedy = expected, got, remedy


class Trial:
    """A model and a problem; every question is asked of a fresh copy of the model."""

    def __init__(self, model: Any, problem: Problem) -> None:
        self.model, self.problem = model, problem
        self.mdp, self.demos = problem.mdp, problem.demos
        self.n = len(problem.demos)

    def fresh(self) -> Any:
        """Return an unfitted copy. What `clone` cannot copy breaks a rule of its own; the others go on."""
        try:
            return clone(self.model)
        except (RuntimeError, TypeError):
            return copy.deepcopy(self.model)

    def rng(self) -> np.random.Generator:
        """Return the same random numbers for every rule."""
        return np.random.default_rng(20)

    def weights(self) -> FloatArray:
        """Return weights (N,), all different and none zero."""
        return self.rng().uniform(0.2, 1.0, self.n)

    def fit(self, **arguments: Any) -> tuple[Any, FloatArray]:
        """Return a fresh model and the theta (d,) that it fits to the problem's demonstrations."""
        model = self.fresh()
        return model, np.asarray(model.fit(self.mdp, self.demos, **arguments), dtype=np.float64)

    def log_prob(self, model: Any, thetas: FloatArray, demos: Any = None) -> FloatArray:
        """Return log-probabilities (N, K)."""
        found = model.log_prob(self.mdp, np.atleast_2d(thetas), self.demos if demos is None else demos)
        return np.asarray(found, dtype=np.float64)

    def box(self, d: int) -> Box:
        """Return the model's bounds, infinite where it has none."""
        return box(getattr(self.model, "bounds", None), [f"parameter {j}" for j in range(d)])

    def nearby(self, theta: FloatArray, n: int) -> FloatArray:
        """Return other parameters (n, d) that the model allows."""
        return self.box(theta.size).clip(theta + 0.3 * self.rng().normal(size=(n, theta.size)))

    def objective(self, model: Any, theta: FloatArray, weights: FloatArray) -> float:
        """Return the weighted mean log-likelihood, less the model's penalty if it has one."""
        used = weights > 0
        log_p = self.log_prob(model, theta)[used, 0]
        penalty = make_problem(model, self.mdp, self.demos).penalty(theta[None])
        return float(weights[used] @ log_p) / float(weights.sum()) - penalty / self.n

    def same_fit(self, model: Any, one: FloatArray, other: FloatArray, which: Any = slice(None)) -> float:
        """Return the largest difference of the demonstrations' log-probabilities under two parameters."""
        log_p = self.log_prob(model, np.array([one, other]))[which]
        equal = log_p[:, 0] == log_p[:, 1]  # -inf is equal to itself
        with np.errstate(invalid="ignore"):
            return float(np.max(np.where(equal, 0.0, np.abs(log_p[:, 0] - log_p[:, 1])), initial=0.0))


def always(_: Trial) -> str:
    """Say that a rule applies."""
    return ""


@dataclass(frozen=True)
class Rule:
    """Something that must hold.

    Attributes
    ----------
    function : callable
        Raises `Unmet`.
    skip : callable
        Returns why the rule does not apply to a trial, or an empty text.
    once : bool
        Whether one problem is enough to see it.
    """

    function: Callable[[Trial], None]
    skip: Callable[[Trial], str] = always
    once: bool = False

    @property
    def name(self) -> str:
        """The function's name."""
        return self.function.__name__


def expect(condition: Any, expected: str, got: Any, remedy: str) -> None:
    """Raise `Unmet` unless a condition holds."""
    if not condition:
        raise Unmet(expected, str(got), remedy)


def same_value(one: Any, other: Any) -> bool:
    """Return whether two parameters are the same, arrays by their content."""
    if one is other:
        return True
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return np.array_equal(np.asarray(one), np.asarray(other))
    try:
        return bool(one == other)
    except (TypeError, ValueError):
        return False


def same_parameters(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return whether two sets of parameters are the same."""
    return one.keys() == other.keys() and all(same_value(one[name], other[name]) for name in one)


def fit_returns_theta(trial: Trial) -> None:
    """The parameters come as one vector of finite numbers."""
    _, theta = trial.fit()
    shape = "a vector (d,) of at least one finite number"
    remedy = "Return theta as a one-dimensional array; bounds keep a maximum from running away to infinity."
    expect(theta.ndim == 1 and theta.size, shape, f"shape {theta.shape}", remedy)
    expect(np.all(np.isfinite(theta)), shape, theta, remedy)
    _, other = trial.fit(weights=trial.weights())
    expect(other.shape == theta.shape, f"{theta.size} parameters for any weights", other.shape, remedy)


def fit_respects_bounds(trial: Trial) -> None:
    """Theta lies within `bounds`, from any start."""
    _, theta = trial.fit()
    box = trial.box(theta.size)
    for found in (theta, trial.fit(weights=trial.weights(), start=trial.nearby(theta, 1)[0])[1]):
        out = np.flatnonzero((found < box.lower) | (found > box.upper))
        expect(
            not out.size,
            f"theta within {trial.model.bounds}",
            f"{found[out[:1]]} at parameter {out[:1]}",
            "Pass the bounds to the optimiser, or clip what it returns.",
        )


def fit_repeats_itself(trial: Trial) -> None:
    """Equal questions get equal answers, also of a model that was fitted to something else in between."""
    model, theta = trial.fit()
    remedy = "Seed what is random within fit, and begin from `start` or from a fixed point, not from the last fit."
    expect(np.array_equal(trial.fit()[1], theta), "the same bits from a second fit", "others", remedy)
    model.fit(trial.mdp, trial.demos, weights=trial.weights())
    again = np.asarray(model.fit(trial.mdp, trial.demos))
    expect(np.array_equal(again, theta), "the same bits after another fit of the same object", "others", remedy)


def fit_leaves_inputs_alone(trial: Trial) -> None:
    """Weights, start and the model's parameters are as before."""
    _, theta = trial.fit()
    weights, start = trial.weights(), trial.nearby(theta, 1)[0]
    model, copies = trial.fresh(), (weights.copy(), start.copy())
    before = dict(model.get_params(deep=False))
    model.fit(trial.mdp, trial.demos, weights=weights, start=start)
    for name, value, copied in zip(("weights", "start"), (weights, start), copies, strict=True):
        expect(np.array_equal(value, copied), f"{name} untouched", "other values", f"Work on a copy of {name}.")
    expect(
        same_parameters(before, model.get_params(deep=False)),
        f"the parameters {before} after fit",
        model.get_params(deep=False),
        "Write what fit finds to attributes with a trailing underscore.",
    )


def fit_improves_on_its_start(trial: Trial) -> None:
    """EM starts each M-step from the current reward; one that ends lower is lost."""
    model, theta = trial.fit(weights=trial.weights())
    for start in (theta, *trial.nearby(theta, 2)):
        _, found = trial.fit(weights=trial.weights(), start=start)
        before, after = (trial.objective(model, x, trial.weights()) for x in (start, found))
        expect(
            after >= before - NOT_WORSE * (1.0 + abs(before)),
            f"a mean log-likelihood of at least {before:.6g}, the start's",
            f"{after:.6g}",
            "Keep the best point seen, the start included. A model with a prior says so by FitProblem.penalty.",
        )


def fit_beats_other_rewards(trial: Trial) -> None:
    """No parameters nearby explain the weighted demonstrations better."""
    weights = trial.weights()
    model, theta = trial.fit(weights=weights)
    best = trial.objective(model, theta, weights)
    for other in trial.nearby(theta, 8):
        found = trial.objective(model, other, weights)
        expect(
            found <= best + NOT_WORSE * (1.0 + abs(best)),
            "fit to find the highest weighted log-likelihood",
            f"{best:.6g}, and {found:.6g} at theta = {other.round(3)}",
            "Check that fit maximises sum_i weights_i log_prob_i: its sign, its gradient, and that it ran long enough.",
        )


def order_of_demos_is_irrelevant(trial: Trial) -> None:
    """Demonstrations are a set."""
    order, weights = trial.rng().permutation(trial.n), trial.weights()
    model, theta = trial.fit(weights=weights)
    other = trial.fresh().fit(trial.mdp, trial.demos[order], weights=weights[order])
    apart = trial.same_fit(model, theta, np.asarray(other))
    expect(
        apart <= SAME_FIT,
        "the same fit to the same demonstrations in another order",
        f"log-probabilities that differ by {apart:.2g}",
        "Let no demonstration count by its place.",
    )


def _without_bounds(trial: Trial) -> str:
    return "" if getattr(trial.model, "bounds", None) is not None else "the model has no bounds"


FIT_RULES = (
    Rule(fit_respects_bounds, skip=_without_bounds),
    Rule(fit_repeats_itself),
    Rule(fit_leaves_inputs_alone),
    Rule(fit_improves_on_its_start),
    Rule(fit_beats_other_rewards),
    Rule(order_of_demos_is_irrelevant),
)


# Where a model has no bounds, a cluster that nothing contradicts drives rewards far out.
_FAR = 1000.0


def log_prob_is_a_matrix(trial: Trial) -> None:
    """log_prob is (N, K), of numbers or -inf, also far out."""
    model, theta = trial.fit()
    thetas = np.vstack([theta, trial.nearby(theta, 2)])
    for given in (thetas[:1], thetas):
        found = trial.log_prob(model, given)
        shape = (trial.n, len(given))
        remedy = "Return a row for each demonstration and a column for each row of thetas, also where there is one."
        expect(found.shape == shape, f"shape {shape}", f"shape {found.shape}", remedy)
        _numbers(found)
    box = trial.box(theta.size)
    for corner in (np.maximum(box.lower, -_FAR), np.minimum(box.upper, _FAR)):
        try:
            far = trial.log_prob(model, corner)
        except LimiirlError:
            continue  # a model may refuse what it cannot compute
        _numbers(far)


def _numbers(found: FloatArray) -> None:
    bad = np.argwhere(np.isnan(found) | (found == np.inf))
    remedy = "Sum in log space (scipy.special.logsumexp); a trajectory that is impossible has -inf."
    expect(not len(bad), "numbers or -inf", f"{found[tuple(bad[0])] if len(bad) else 0} at {bad[:1].tolist()}", remedy)


def log_prob_columns_are_independent(trial: Trial) -> None:
    """An intent's column does not depend on the intents beside it."""
    model, theta = trial.fit()
    thetas = np.vstack([theta, trial.nearby(theta, 2)])
    together = trial.log_prob(model, thetas)
    alone = np.hstack([trial.log_prob(model, one) for one in thetas])
    remedy = "Normalise each intent by itself; a mixture compares them with its own weights."
    _same(together, alone, "each column as for its theta alone", remedy)
    _same(trial.log_prob(model, thetas[::-1]), together[:, ::-1], "columns in the order of thetas", remedy)


def log_prob_rows_follow_demos(trial: Trial) -> None:
    """A demonstration's row goes where the demonstration goes, and does not depend on those beside it."""
    model, theta = trial.fit()
    thetas = np.vstack([theta, trial.nearby(theta, 1)])
    whole, order = trial.log_prob(model, thetas), trial.rng().permutation(trial.n)
    remedy = "Keep what depends on the data out of log_prob; fit may settle it."
    _same(
        trial.log_prob(model, thetas, trial.demos[order]), whole[order], "rows in the order of demonstrations", remedy
    )
    half = order[: max(1, trial.n // 2)]
    _same(trial.log_prob(model, thetas, trial.demos[half]), whole[half], "the same rows for half the data", remedy)


def log_prob_repeats_itself(trial: Trial) -> None:
    """Equal questions get equal answers, whatever was fitted in between to the same demonstrations."""
    model, theta = trial.fit()
    first = trial.log_prob(model, theta)
    remedy = "log_prob depends on its arguments and on the model's parameters, not on the last theta."
    expect(np.array_equal(trial.log_prob(model, theta), first), "the same bits from a second call", "others", remedy)
    model.fit(trial.mdp, trial.demos, weights=trial.weights())
    _same(trial.log_prob(model, theta), first, "the same after a fit with other weights", remedy)


def log_prob_leaves_inputs_alone(trial: Trial) -> None:
    """Thetas and the model's parameters are as before."""
    model, theta = trial.fit()
    thetas = np.vstack([theta, trial.nearby(theta, 2)])
    before = thetas.copy()
    model.log_prob(trial.mdp, thetas, trial.demos)
    expect(np.array_equal(thetas, before), "thetas untouched", "other values", "Work on a copy of thetas.")


def probabilities_sum_to_at_most_one(trial: Trial) -> None:
    """Where moves are certain, complete trajectories exclude each other, so that their probabilities cannot exceed 1.

    Models of whole trajectories leave some for those that stop early; causal models, with or without the probability
    of the moves, give all of it to the complete ones.
    """
    complete = trial.problem.complete
    model = trial.fresh()
    theta = np.asarray(model.fit(trial.mdp, complete, weights=1.0 + np.arange(len(complete or ()))), dtype=np.float64)
    thetas = np.vstack([theta, trial.nearby(theta, 3)])
    total = np.exp(trial.log_prob(model, thetas, complete)).sum(axis=0)
    remedy = "Divide by the sum over all trajectories (or actions). A score that is none declares normalised = False."
    expect(np.all(total <= 1.0 + ROUNDING), "probabilities that sum to at most 1", total.max(), remedy)
    expect(np.all(total > 0.0), "some complete trajectory to be possible", "none", remedy)


def features_are_points(trial: Trial) -> None:
    """`features`, where a model has it, gives a warm start points to cluster."""
    model, _ = trial.fit()
    found = np.asarray(model.features(trial.mdp, trial.demos), dtype=np.float64)
    fine = found.ndim == 2 and len(found) == trial.n and found.shape[1] > 0 and bool(np.all(np.isfinite(found)))
    remedy = "Return a finite point for each demonstration, or leave the method out to have feature counts clustered."
    expect(fine, f"finite points of shape ({trial.n}, m)", f"shape {found.shape}", remedy)


def _same(found: FloatArray, wanted: FloatArray, what: str, remedy: str) -> None:
    fine = found.shape == wanted.shape and np.allclose(found, wanted, rtol=ROUNDING, atol=ROUNDING, equal_nan=True)
    expect(fine, what, "other numbers" if found.shape == wanted.shape else f"shape {found.shape}", remedy)


def _not_listed(trial: Trial) -> str:
    if not getattr(trial.model, "normalised", True):
        return "the model declares normalised = False"
    return "" if trial.problem.complete is not None else "only where all trajectories are listed"


def _no_features(trial: Trial) -> str:
    return "" if hasattr(trial.model, "features") else "the model has no features, which is optional"


LOG_PROB_RULES = (
    Rule(log_prob_columns_are_independent),
    Rule(log_prob_rows_follow_demos),
    Rule(log_prob_repeats_itself),
    Rule(log_prob_leaves_inputs_alone),
    Rule(probabilities_sum_to_at_most_one, skip=_not_listed),
    Rule(features_are_points, skip=_no_features),
)


def no_weights_are_equal_weights(trial: Trial) -> None:
    """weights=None counts every demonstration once."""
    model, theta = trial.fit()
    _alike(trial, model, theta, trial.fit(weights=np.ones(trial.n))[1], "without weights as with weights of 1")


def zero_weight_is_absence(trial: Trial) -> None:
    """A demonstration of weight 0 might as well not be there."""
    weights = trial.weights()
    weights[1::2] = 0.0
    # The longest may settle the model's length, so it stays.
    longest = int(np.argmax(getattr(trial.demos, "lengths", np.zeros(trial.n))))
    weights[longest] = 0.5
    kept = np.flatnonzero(weights)
    model, theta = trial.fit(weights=weights)
    other = trial.fresh().fit(trial.mdp, trial.demos[kept], weights=weights[kept])
    _alike(trial, model, theta, other, "with demonstrations of weight 0 as without them", kept)


def scale_of_weights_is_irrelevant(trial: Trial) -> None:
    """Weights say how demonstrations compare."""
    model, theta = trial.fit(weights=trial.weights())
    for factor in (0.01, 40.0):
        other = trial.fit(weights=factor * trial.weights())[1]
        _alike(trial, model, theta, other, f"for weights as for {factor:g} times these")


def weight_two_is_a_copy(trial: Trial) -> None:
    """A demonstration of weight 2 counts as two of weight 1."""
    twice = np.arange(trial.n) % 3 == 0
    model, theta = trial.fit(weights=1.0 + twice)
    copied = trial.demos[np.concatenate([np.arange(trial.n), np.flatnonzero(twice)])]
    _alike(
        trial, model, theta, trial.fresh().fit(trial.mdp, copied), "for weights of 2 as for demonstrations given twice"
    )


def fit_many_is_fit(trial: Trial) -> None:
    """`fit_many` finds for each column of weights what `fit` finds for it alone, with and without starts."""
    weights = np.column_stack([trial.weights(), trial.weights()[::-1] ** 2, np.ones(trial.n)])
    model, theta = trial.fit()
    for starts in (None, trial.nearby(theta, 3)):
        found = np.asarray(trial.fresh().fit_many(trial.mdp, trial.demos, weights, starts))
        remedy = "Return one row for each column of weights, in their order."
        expect(found.shape == (3, theta.size), f"thetas of shape {(3, theta.size)}", f"shape {found.shape}", remedy)
        for k, row in enumerate(found):
            _, alone = trial.fit(weights=weights[:, k], start=None if starts is None else starts[k])
            _alike(trial, model, alone, row, f"from fit_many in row {k} as from fit")


def _alike(trial: Trial, model: Any, one: FloatArray, other: Any, what: str, which: Any = slice(None)) -> None:
    apart = trial.same_fit(model, one, np.asarray(other, dtype=np.float64), which)
    expect(
        apart <= SAME_FIT,
        f"the same fit {what}",
        f"log-probabilities that differ by {apart:.2g}",
        "Maximise sum_i weights_i log_prob_i / sum_i weights_i, and let weights enter nowhere else.",
    )


def _no_fit_many(trial: Trial) -> str:
    return "" if hasattr(trial.model, "fit_many") else "the model has no fit_many, which is optional"


WEIGHT_RULES = (
    Rule(no_weights_are_equal_weights),
    Rule(zero_weight_is_absence),
    Rule(scale_of_weights_is_irrelevant),
    Rule(weight_two_is_a_copy),
    Rule(fit_many_is_fit, skip=_no_fit_many),
)


_STORE = "Let __init__ do nothing but self.name = name for each parameter; check values in fit."


def parameters_round_trip(trial: Trial) -> None:
    """get_params, set_params and clone agree."""
    model, wanted = trial.model, trial.model.get_params(deep=False)
    try:
        twin = clone(model)
    except (RuntimeError, TypeError) as error:
        raise Unmet("clone(model) to succeed", f"{type(error).__name__}: {error}", _STORE) from None
    expect(type(twin) is type(model), "clone(model) to be of the same class", type(twin).__name__, _STORE)
    expect(
        same_parameters(twin.get_params(deep=False), {name: clone(value, safe=False) for name, value in wanted.items()})
        or same_parameters(twin.get_params(deep=False), wanted),
        f"the parameters {wanted} of a clone",
        twin.get_params(deep=False),
        _STORE,
    )
    returned = twin.set_params(**wanted)
    expect(
        returned is twin,
        "set_params to return the model itself",
        type(returned).__name__,
        "Return self; sklearn.base.BaseEstimator does all of this.",
    )
    try:
        twin.set_params(no_such_parameter_=1)
    except ValueError:
        return
    raise Unmet("set_params to refuse an unknown parameter", "no error", "Derive from sklearn.base.BaseEstimator.")


def constructor_does_no_work(trial: Trial) -> None:
    """The constructor stores what it is given, whatever it is, and nothing else."""
    given = {name: object() for name in trial.model.get_params(deep=False)}
    try:
        made = type(trial.model)(**given)
    except Exception as error:  # noqa: BLE001 (whatever a constructor raises is what the rule forbids)
        raise Unmet("a constructor that takes anything", f"{type(error).__name__}: {error}", _STORE) from None
    changed = [name for name, value in given.items() if getattr(made, name, None) is not value]
    expect(not changed, "each parameter stored as it is", f"a changed {', '.join(changed)}", _STORE)
    more = sorted(set(vars(made)) - set(given))
    expect(not more, "no attribute but the parameters before fit", ", ".join(more), _STORE)


def pickles(trial: Trial) -> None:
    """A worker process gets the same model."""
    model, theta = trial.fit()
    remedy = "Define the class at the top of a module, and keep no open files, locks or lambdas in it."
    try:
        copied = pickle.loads(pickle.dumps(model))  # noqa: S301 (made in this very line, as joblib does)
    except Exception as error:  # noqa: BLE001 (any error means that it cannot be sent)
        raise Unmet("a model that can be sent to a worker", f"{type(error).__name__}: {error}", remedy) from None
    expect(
        same_parameters(copied.get_params(deep=False), model.get_params(deep=False)),
        "the same parameters in a worker",
        copied.get_params(deep=False),
        remedy,
    )
    expect(
        np.array_equal(trial.log_prob(copied, theta), trial.log_prob(model, theta)),
        "the same log_prob in a worker",
        "another",
        "Keep what fit settles in attributes with a trailing underscore, not in a module's variables.",
    )


PARAMETER_RULES = (
    Rule(parameters_round_trip, once=True),
    Rule(constructor_does_no_work, once=True),
    Rule(pickles, once=True),
)


def works_in_a_mixture(trial: Trial) -> None:
    """Two intents are learnt, and the objective never falls but where the history says why."""
    mixture = _mixture(trial)
    expect(
        np.all(np.isfinite(mixture.thetas_)) and np.all(np.isfinite(mixture.responsibilities_)),
        "finite rewards and responsibilities",
        mixture.thetas_,
        "Check what fit returns for the weights of a small cluster.",
    )
    for before, entry in zip(mixture.history_[:-1], mixture.history_[1:], strict=True):
        expect(
            entry.event or entry.objective >= before.objective - ROUNDING * (1.0 + abs(before.objective)),
            f"an objective of at least {before.objective:.9g} at iteration {entry.iteration}",
            f"{entry.objective:.9g}",
            "fit must maximise what log_prob computes, and log_prob must not change as the model is fitted.",
        )


def prepared_agrees(trial: Trial) -> None:
    """What EM asks of the model with its data is what the model says of the demonstrations."""
    mixture = _mixture(trial)
    score = mixture.score(trial.demos)
    expect(
        abs(score - mixture.log_likelihood_) <= ROUNDING * (1.0 + abs(score)),
        f"the log-likelihood {score:.9g} that log_prob gives, in EM too",
        f"{mixture.log_likelihood_:.9g}",
        "A prepare of its own, or an inherited one, must compute what log_prob does; remove it to use log_prob itself.",
    )


def saves_and_loads(trial: Trial) -> None:
    """A registered model comes back from disk as it was."""
    mixture = _mixture(trial)
    with tempfile.TemporaryDirectory() as folder:
        mixture.save(Path(folder) / "mixture")
        back = IntentMixture.load(Path(folder) / "mixture")
    expect(
        np.array_equal(back.score_samples(trial.demos), mixture.score_samples(trial.demos)),
        "the same log-likelihoods from a mixture that was saved and loaded",
        "others",
        "Keep what fit settles in attributes with a trailing underscore: numbers, texts, arrays, or lists of them.",
    )


def _mixture(trial: Trial) -> IntentMixture:
    return IntentMixture(n_intents=2, irl=trial.fresh(), random_state=0, max_iter=10).fit(trial.mdp, trial.demos)


def _not_registered(trial: Trial) -> str:
    return "" if type(trial.model) in MODELS.values() else "the model is not registered (limiirl.irl.register_model)"


MIXTURE_RULES = (
    Rule(works_in_a_mixture),
    Rule(prepared_agrees),
    Rule(saves_and_loads, skip=_not_registered, once=True),
)
