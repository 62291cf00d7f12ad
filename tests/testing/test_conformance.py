"""The conformance checks: good models pass all of them, and each check finds the fault that it is there for."""

import pickle
import re

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.base import BaseEstimator

from limiirl import MDP, Demonstrations, MaxEnt
from limiirl.errors import ConformanceError, InvalidParameter
from limiirl.irl import MODELS
from limiirl.irl.problem import FitProblem
from limiirl.testing import cases, check_irl_model, checks
from tests.helpers import raises


class Logit(BaseEstimator):
    """A good model: choices by a softmax of the features of the next step, fitted by convex optimisation."""

    def __init__(self, bounds=(-8.0, 8.0)):
        self.bounds = bounds

    def log_prob(self, mdp, thetas, demos):
        log_pi = self.log_policy(mdp, self.step_features(mdp) @ np.array(thetas).T)
        return demos.log_q(mdp)[:, None] + self.choices(mdp, demos) @ log_pi

    def fit(self, mdp, demos, weights=None, start=None):
        weights = np.ones(len(demos)) if weights is None else np.asarray(weights)
        x, counts = self.step_features(mdp), weights @ self.choices(mdp, demos) / weights.sum()
        visits = np.bincount(mdp.pair_state, counts, mdp.n_states)[mdp.pair_state]

        def loss(theta):
            log_pi = self.log_policy(mdp, (x @ theta)[:, None])[:, 0]
            return -counts @ log_pi, x.T @ (visits * np.exp(log_pi) - counts)

        start = np.clip(np.zeros(mdp.n_features) if start is None else start, *self.bounds)
        options = {"ftol": 1e-14, "gtol": 1e-9}
        return minimize(loss, start, jac=True, method="L-BFGS-B", bounds=[self.bounds] * start.size, options=options).x

    def step_features(self, mdp):
        of_state, of_edge = mdp.rewards(np.eye(mdp.n_features))
        gain = mdp.gamma * of_state[mdp.dst] + (0.0 if of_edge is None else of_edge)
        return np.add.reduceat(mdp.prob[:, None] * gain, np.flatnonzero(np.diff(mdp.pair_of_edge, prepend=-1)))

    def log_policy(self, mdp, value):
        first = np.flatnonzero(np.diff(mdp.pair_state, prepend=-1))
        state = np.cumsum(np.diff(mdp.pair_state, prepend=-1) > 0) - 1
        return value - np.logaddexp.reduceat(value, first)[state]

    def choices(self, mdp, demos):
        steps, counts = demos.steps(mdp), np.zeros((len(demos), mdp.n_pairs))
        np.add.at(counts, (steps.demo_of_step, mdp.pair_of_edge[steps.edge]), 1.0)
        return counts


class Batched(Logit):
    """A good model with everything that is optional."""

    def fit_many(self, mdp, demos, weights, starts=None):
        starts = [None] * weights.shape[1] if starts is None else starts
        return np.array([self.fit(mdp, demos, w, start) for w, start in zip(weights.T, starts, strict=True)])

    def features(self, mdp, demos):
        return self.choices(mdp, demos)


class Policy(Logit):
    """A causal model whose log_prob omits the transition probabilities."""

    def log_prob(self, mdp, thetas, demos):
        return super().log_prob(mdp, thetas, demos) - demos.log_q(mdp)[:, None]


class StatesOnly(Logit):
    """A model of state features only, which it declares."""

    takes_action_features = False

    def step_features(self, mdp):
        if mdp.n_action_features:
            raise InvalidParameter("rewards of states only")
        return super().step_features(mdp)


@pytest.mark.parametrize(
    "model",
    [MaxEnt(), MaxEnt(bounds=None), MaxEnt(bounds=(-5, 5), ridge=0.1), Batched(), Policy(), StatesOnly()],
    ids=lambda model: repr(model),
)
def test_good_models_pass(model):
    report = check_irl_model(model)
    assert report.model == type(model).__name__
    assert str(report).startswith(f"{report.model} passes {len(report.passed)} checks.")
    assert len(report.passed) + len(report.skipped) >= 50
    many = hasattr(model, "fit_many")
    assert any(line.startswith("fit_many_equals_fit") for line in report.passed) == many
    assert any(line.startswith("fit_many_equals_fit") for line in report.skipped) != many


def test_a_model_is_not_changed_by_its_checks():
    model = MaxEnt(bounds=np.array([[-5.0, 5.0]] * 2))
    before = pickle.dumps(model)
    check_irl_model(model, mdp=cases()[0].mdp)
    assert pickle.dumps(model) == before


@pytest.mark.parametrize("check", checks(Logit()), ids=str)
def test_checks_parametrise_a_test(check):
    check()


class SilentSetter(Logit):
    def set_params(self, **parameters):
        super().set_params(**parameters)


class Tolerant(Logit):
    def set_params(self, **parameters):
        return self


class Copying(Logit):
    def __init__(self, bounds=(-8.0, 8.0)):
        self.bounds = tuple(np.array(bounds, dtype=object).tolist()) if isinstance(bounds, tuple | list) else [bounds]


class Busy(Logit):
    def __init__(self, bounds=(-8.0, 8.0)):
        self.bounds = bounds
        self.cache = {}


class Strict(Logit):
    def __init__(self, bounds=(-8.0, 8.0)):
        self.bounds = bounds
        self.low, self.high = bounds


class Hooked(Logit):
    def fit(self, mdp, demos, weights=None, start=None):
        self.hook_ = lambda: 0
        return super().fit(mdp, demos, weights, start)


class Row(Logit):
    def fit(self, mdp, demos, weights=None, start=None):
        return super().fit(mdp, demos, weights, start)[None]


class Infinite(Logit):
    def fit(self, mdp, demos, weights=None, start=None):
        return super().fit(mdp, demos, weights, start) + np.inf


class OutOfBounds(Logit):
    def fit(self, mdp, demos, weights=None, start=None):
        return Logit().fit(mdp, demos, weights, start)


class Noisy(Logit):
    def fit(self, mdp, demos, weights=None, start=None):
        theta = super().fit(mdp, demos, weights, start)
        return theta + 1e-9 * np.random.default_rng().normal(size=theta.size)


class Warm(Logit):
    def fit(self, mdp, demos, weights=None, start=None):
        start = getattr(self, "last_", None) if start is None else start
        self.last_ = super().fit(mdp, demos, weights, start)
        return self.last_


class InPlace(Logit):
    def fit(self, mdp, demos, weights=None, start=None):
        if weights is not None:
            weights /= weights.sum()
        return super().fit(mdp, demos, weights, start)


class Settling(Logit):
    def fit(self, mdp, demos, weights=None, start=None):
        theta = super().fit(mdp, demos, weights, start)
        self.bounds = (-9.0, 9.0)
        return theta


class Forgetful(Logit):
    def fit(self, mdp, demos, weights=None, start=None):
        theta = super().fit(mdp, demos, weights, start)
        return theta if start is None else np.zeros_like(theta)


class Shy(Logit):
    def fit(self, mdp, demos, weights=None, start=None):
        return 0.7 * super().fit(mdp, demos, weights, start)


class Respectful(Logit):
    def fit(self, mdp, demos, weights=None, start=None):
        weights = np.ones(len(demos)) if weights is None else weights
        return super().fit(mdp, demos, weights * np.where(np.arange(len(demos)) == 0, 5.0, 1.0), start)


class ByLength(Logit):
    def fit(self, mdp, demos, weights=None, start=None):
        return super().fit(mdp, demos, demos.lengths**2.0 if weights is None else weights, start)


class Generous(Logit):
    def fit(self, mdp, demos, weights=None, start=None):
        return super().fit(mdp, demos, None if weights is None else weights + 0.05, start)


class Counting(Logit):
    def fit(self, mdp, demos, weights=None, start=None):
        total = len(demos) if weights is None else np.sum(weights)
        return super().fit(mdp, demos, weights, start) * total / (total + 0.5)


class Flattening(Logit):
    def fit(self, mdp, demos, weights=None, start=None):
        return super().fit(mdp, demos, None if weights is None else np.sqrt(weights), start)


class Reversed(Batched):
    def fit_many(self, mdp, demos, weights, starts=None):
        return super().fit_many(mdp, demos, weights, starts)[::-1]


class OneRow(Batched):
    def fit_many(self, mdp, demos, weights, starts=None):
        return super().fit_many(mdp, demos, weights, starts)[:1]


class Transposed(Logit):
    def log_prob(self, mdp, thetas, demos):
        return super().log_prob(mdp, thetas, demos).T


class Overflowing(Logit):
    def log_policy(self, mdp, value):
        weight = np.exp(1e3 * value)
        return np.log(weight / weight.sum(axis=0))


class Competing(Logit):
    def log_prob(self, mdp, thetas, demos):
        log_p = super().log_prob(mdp, thetas, demos)
        return log_p - np.logaddexp.reduce(log_p, axis=1, keepdims=True)


class Sorting(Logit):
    def log_prob(self, mdp, thetas, demos):
        return np.sort(super().log_prob(mdp, thetas, demos), axis=0)


class Centring(Logit):
    def log_prob(self, mdp, thetas, demos):
        log_p = super().log_prob(mdp, thetas, demos)
        return log_p - log_p.mean(axis=0)


class Flickering(Logit):
    def log_prob(self, mdp, thetas, demos):
        return super().log_prob(mdp, thetas, demos) - 1e-12 * np.random.default_rng().random()


class Tiring(Logit):
    def fit(self, mdp, demos, weights=None, start=None):
        self.fits_ = getattr(self, "fits_", 0) + 1
        return super().fit(mdp, demos, weights, start)

    def log_prob(self, mdp, thetas, demos):
        return super().log_prob(mdp, thetas, demos) - 0.1 * self.fits_


class Scribbling(Logit):
    def log_prob(self, mdp, thetas, demos):
        log_p = super().log_prob(mdp, thetas, demos)
        thetas -= thetas.mean()
        return log_p


class Unnormalised(Logit):
    def log_prob(self, mdp, thetas, demos):
        return super().log_prob(mdp, thetas, demos) + 0.01


class Impossible(Logit):
    def log_prob(self, mdp, thetas, demos):
        return np.full((len(demos), len(thetas)), -np.inf)


class Flat(Logit):
    def features(self, mdp, demos):
        return demos.lengths


class Preparing(Logit):
    """The fit problem has another likelihood than log_prob."""

    def make_problem(self, mdp, demos, units):
        return FitProblem(Unnormalised(), mdp, demos, units)


class Hiding(Logit):
    def fit(self, mdp, demos, weights=None, start=None):
        self._shift = 0.5
        return super().fit(mdp, demos, weights, start)

    def log_prob(self, mdp, thetas, demos):
        return super().log_prob(mdp, thetas, demos) - getattr(self, "_shift", 0.0)


BROKEN = [
    (SilentSetter(), "parameters_round_trip", "set_params to return the model itself; got NoneType. Return self"),
    (Tolerant(), "parameters_round_trip", "set_params to reject an unknown parameter; got no error"),
    (Copying(), "parameters_round_trip", "expected clone(model) to succeed; got RuntimeError"),
    (Copying(), "constructor_stores_parameters", "stored unchanged; got a changed bounds"),
    (Busy(), "constructor_stores_parameters", "no attributes other than the parameters before fit; got cache"),
    (Strict(), "constructor_stores_parameters", "a constructor that accepts any value; got TypeError"),
    (Hooked(), "model_can_be_pickled", "a model that can be pickled; got AttributeError"),
    (Row(), "fit_returns_theta", "a non-empty vector (d,) of finite values; got shape (1, 2)"),
    (Infinite(), "fit_returns_theta", "got [inf inf]"),
    (OutOfBounds(bounds=(-0.1, 0.1)), "fit_respects_bounds", "expected theta within (-0.1, 0.1); got"),
    (Noisy(), "fit_is_deterministic", "identical results of two fits; got different results"),
    (Warm(), "fit_is_deterministic", "identical results after refitting an object; got different"),
    (InPlace(), "fit_does_not_modify_inputs", "weights unchanged; got other values"),
    (
        Settling(),
        "fit_does_not_modify_inputs",
        "expected the parameters {'bounds': (-8.0, 8.0)} after fit; got {'bounds'",
    ),
    (Forgetful(), "fit_does_not_decrease_objective", "the value at the start; got -"),
    (Shy(), "fit_is_local_maximum", "fit to maximise the weighted log-likelihood; got -"),
    (Respectful(), "order_of_demos_is_irrelevant", "the same demonstrations in another order; got log-"),
    (ByLength(), "default_weights_are_equal", "the same fit with weights=None as with weights of 1; got log-"),
    (Generous(), "zero_weights_are_ignored", "the same fit with and without demonstrations of weight 0; got log-"),
    (Counting(), "scale_of_weights_is_irrelevant", "the same fit for weights multiplied by 0.01; got log-"),
    (
        Flattening(),
        "weight_two_equals_duplicate",
        "the same fit with weights of 2 as with duplicated demonstrations; got log-",
    ),
    (Reversed(), "fit_many_equals_fit", "the same fit in row 0 of fit_many as with fit; got log-"),
    (OneRow(), "fit_many_equals_fit", "thetas of shape (3, 2); got shape (1, 2)"),
    (Transposed(), "log_prob_returns_matrix", "expected shape (24, 1); got shape (1, 24)"),
    (Overflowing(), "log_prob_returns_matrix", "expected finite values or -inf; got nan at"),
    (
        Competing(),
        "log_prob_columns_are_independent",
        "each column to equal log_prob of its theta alone; got different values",
    ),
    (Sorting(), "log_prob_rows_are_independent", "rows in the order of demonstrations; got different values"),
    (Centring(), "log_prob_rows_are_independent", "the same rows for half of the demonstrations; got different values"),
    (Flickering(), "log_prob_is_deterministic", "identical results of two calls; got different results"),
    (Tiring(), "log_prob_is_deterministic", "the same log_prob after a fit with other weights; got different values"),
    (Scribbling(), "log_prob_does_not_modify_inputs", "thetas unchanged; got other values"),
    (Unnormalised(), "probabilities_sum_to_at_most_one", "probabilities that sum to at most 1; got 1.01"),
    (Impossible(), "probabilities_sum_to_at_most_one", "a complete trajectory with positive probability; got none"),
    (Flat(), "features_are_finite", "finite points of shape (24, m); got shape (24,)"),
    (Tiring(), "works_in_a_mixture", "expected an objective of at least -"),
    (Preparing(), "problem_agrees_with_log_prob", "of log_prob in EM; got "),
]


@pytest.mark.parametrize(
    ("model", "rule", "message"), BROKEN, ids=[f"{type(model).__name__}-{rule}" for model, rule, _ in BROKEN]
)
def test_each_check_detects_its_fault(model, rule, message):
    (check, *_) = [check for check in checks(model) if check.function.__name__ == rule]
    assert str(check) == f"{rule}[{check.case.name}]"
    with pytest.raises(AssertionError, match=re.escape(message)) as raised:
        check()
    assert str(raised.value).startswith("expected ")


def test_every_check_has_a_model_that_breaks_it():
    known = {check.function.__name__ for model in (Batched(), MaxEnt()) for check in checks(model)}
    assert known - {rule for _, rule, _ in BROKEN} == {"mixture_can_be_saved"}


def test_a_registered_model_is_saved_and_loaded(monkeypatch):
    def name_checks(model):
        return [check for check in checks(model) if check.function.__name__ == "mixture_can_be_saved"]

    assert name_checks(Hiding()) == []
    monkeypatch.setitem(MODELS, "Hiding", Hiding)
    with pytest.raises(AssertionError, match="saving"):
        name_checks(Hiding())[0]()
    monkeypatch.setitem(MODELS, "Logit", Logit)
    (check,) = name_checks(Logit())
    check()


def run_checks(model, **problem):
    with pytest.raises(ConformanceError) as raised:
        check_irl_model(model, **problem)
    lines = str(raised.value).splitlines()
    assert re.fullmatch(rf"{type(model).__name__} fails {len(lines) - 1} of \d+ checks:", lines[0])
    assert lines[1:] == [f"- {check}: {message}" for check, message in raised.value.failures.items()]
    return set(raised.value.failures)


class Careless(Busy, InPlace, Unnormalised):
    pass


def test_all_failures_are_in_one_error():
    names = run_checks(Careless())
    assert "constructor_stores_parameters[deterministic]" in names
    assert {f"fit_does_not_modify_inputs[{problem.name}]" for problem in cases()} <= names
    assert "probabilities_sum_to_at_most_one[deterministic]" in names
    assert not any(name.startswith("log_prob") for name in names)


class Refusing(Logit):
    def fit(self, mdp, demos, weights=None, start=None):
        if mdp.gamma < 1:
            raise InvalidParameter("no discounts here.")
        return super().fit(mdp, demos, weights, start)


def test_a_problem_that_cannot_be_fitted_is_reported_once():
    assert run_checks(Refusing()) == {"fit_returns_theta[discounted]"}
    with pytest.raises(InvalidParameter, match="no discounts here"):
        next(check for check in checks(Refusing()) if str(check) == "fit_returns_theta[discounted]")()


def test_declarations_skip_checks():
    class Score(Unnormalised):
        normalised = False

    reasons = check_local_model(Score()).skipped
    assert "normalised = False" in reasons["probabilities_sum_to_at_most_one[deterministic]"]
    assert not any("action_features" in name for name in check_irl_model(StatesOnly()).passed)


def check_local_model(model):
    """Return the report on a local class, which cannot be pickled."""
    model.__class__.__reduce__ = lambda self: (Unnormalised, (self.bounds,))
    return check_irl_model(model)


def test_a_given_problem():
    mdp = MDP.from_edges([0, 0, 1, 2], [1, 2, 3, 3], p0=[1, 0, 0, 0], gamma=0.9)
    demos = Demonstrations.from_lists([[0, 1, 3]] * 4 + [[0, 2, 3]] * 3 + [[0, 1]])
    for given in ({"mdp": mdp, "demos": demos}, {"mdp": mdp}):
        report = check_irl_model(MaxEnt(bounds=(-4, 4)), **given)
        assert {name[name.index("[") :] for name in report.passed} == {"[given]"}
    assert run_checks(OutOfBounds(bounds=(-0.1, 0.1)), mdp=mdp, demos=demos) == {"fit_respects_bounds[given]"}
    with raises(InvalidParameter, parameter="demos", value=1):
        check_irl_model(MaxEnt(), mdp=mdp, demos=demos[:1])
    with raises(InvalidParameter, parameter="mdp", value="grid"):
        check_irl_model(MaxEnt(), mdp="grid")


class Bare:
    def log_prob(self, mdp, thetas, demos):
        raise NotImplementedError


def test_missing_methods_are_named():
    wanted = "Bare has no method fit, get_params, set_params"
    with pytest.raises(ConformanceError, match=wanted):
        check_irl_model(Bare())
    with pytest.raises(ConformanceError, match=wanted):
        checks(Bare())
    with pytest.raises(ConformanceError, match="MaxEnt"):
        check_irl_model(MaxEnt)


def test_properties_of_the_problems():
    problems = {problem.name: problem for problem in cases()}
    assert problems["deterministic"].mdp.deterministic
    assert not problems["stochastic"].mdp.deterministic
    assert problems["discounted"].mdp.gamma < 1
    assert problems["action_features"].mdp.n_action_features > 0
    assert [problem.mdp.n_action_features > 0 for problem in problems.values()] == [False, False, False, True]
    complete = problems["deterministic"].complete
    assert sorted(demo.states.tolist() for demo in complete) == [
        [0, 1, 3, 5],
        [0, 1, 4, 5],
        [0, 2, 3, 5],
        [0, 2, 4, 5],
        [0, 5],
    ]
    for problem in problems.values():
        assert np.all(problem.mdp.terminal[problem.demos.last_states])
        assert len(problem.demos) == 24
        assert problem.demos.lengths.max() <= 6
        assert len(np.unique(problem.demos.features(problem.mdp).round(9), axis=0)) >= 3
