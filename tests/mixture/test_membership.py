"""Mixture weights by covariates: against statsmodels, finite differences, the plain mixture and simulated data."""

import copy
import pickle
import warnings
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

from limiirl import MDP, Demonstrations, IntentMixture, MaxCausalEnt, MaxEnt, RewardEnsemble
from limiirl.errors import DegenerateIntentWarning, InvalidParameter
from limiirl.irl.problem import make_problem
from limiirl.mixture.em import MarginalLikelihood, WeightDesign
from limiirl.mixture.membership import joint_information
from tests.helpers import raises

FORK = MDP.from_edges([0, 0, 0], [1, 2, 3], p0=[1, 0, 0, 0], state_features=np.eye(4)[:, 1:])
COEFFICIENTS = np.array([[0.0, 0.0, 0.0], [0.5, 1.0, -0.5], [-0.5, -1.0, 1.0]])


def draw_weights(coefficients, x):
    eta = coefficients[:, 0] + x @ coefficients[:, 1:].T
    p = np.exp(eta)
    return p / p.sum(axis=1, keepdims=True)


def one_choice(n=400, seed=0):
    """Return demonstrations of one choice, which reveals the intent, its label, and a table of covariates."""
    rng = np.random.default_rng(seed)
    age, trained = rng.normal(50.0, 10.0, size=n), rng.random(n) < 0.4
    p = draw_weights(COEFFICIENTS, np.column_stack([(age - 50.0) / 10.0, trained]))
    labels = np.array([rng.choice(3, p=row) for row in p])
    return Demonstrations.from_lists([[0, 1 + k] for k in labels]), labels, {"age": age, "trained": trained}


@pytest.fixture(scope="module")
def revealed():
    demos, labels, table = one_choice()
    start = RewardEnsemble(np.full(3, 1 / 3), np.where(np.eye(3) > 0, 20.0, -20.0))
    mix = IntentMixture(3, MaxEnt(2, bounds=(-20.0, 20.0), stop="terminal"), init=start, resp_tol=1e-12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rewards on bounds
        mix.fit(FORK, demos, covariates=table)
    X = sm.add_constant(np.column_stack([table["age"], table["trained"]]).astype(float))
    return mix, sm.MNLogit(labels, X).fit(disp=0, method="newton", tol=1e-14), table


class TestStatsmodels:
    """The responsibilities are one-hot, so that the weights are an ordinary multinomial logit."""

    def test_coefficients_and_errors(self, revealed):
        mix, reference, _ = revealed
        assert np.min(np.max(mix.responsibilities_, axis=1)) > 1.0 - 1e-8
        model = mix.membership_
        own = np.column_stack([model.intercepts, model.coefficients])
        np.testing.assert_allclose(own[1:], reference.params.T, rtol=1e-6)
        np.testing.assert_allclose(model.errors[1:], reference.bse.T, rtol=1e-6)
        np.testing.assert_allclose(model.covariance[3:, 3:], reference.cov_params(), rtol=1e-5, atol=1e-12)
        np.testing.assert_array_equal(own[0], 0.0)

    def test_predicted_weights(self, revealed):
        mix, reference, table = revealed
        np.testing.assert_allclose(mix.membership_.predict(pd.DataFrame(table)), reference.predict(), rtol=1e-6)
        np.testing.assert_allclose(mix.weights_, reference.predict().mean(axis=0), rtol=1e-6)

    def test_average_marginal_effects(self, revealed):
        mix, reference, _ = revealed
        effects, expected = mix.membership_.marginal_effects(), reference.get_margeff(dummy=True)
        np.testing.assert_allclose(effects.values, expected.margeff.T, rtol=1e-5, atol=1e-9)
        np.testing.assert_allclose(effects.errors, expected.margeff_se.T, rtol=1e-5)

    def test_likelihood_ratio_test(self, revealed):
        mix, reference, _ = revealed
        test = mix.membership_.likelihood_ratio_test()
        np.testing.assert_allclose(test.statistic, reference.llr, rtol=1e-5)
        assert test.df == 4
        np.testing.assert_allclose(test.p, reference.llr_pvalue, rtol=1e-4)

    def test_odds_ratios(self, revealed):
        mix, reference, _ = revealed
        model = mix.membership_
        np.testing.assert_allclose(model.odds_ratios[1:], np.exp(reference.params.T[:, 1:]), rtol=1e-6)
        intervals = np.exp(reference.conf_int())[:, 1:]
        np.testing.assert_allclose(model.odds_ratio_intervals()[1:], intervals, rtol=1e-6)

    def test_information_criterion_counts_coefficients(self, revealed):
        mix, _, _ = revealed
        assert mix.summary().n_free == 2 * 3 + 0 + np.count_nonzero(mix.standard_errors().status == "ok")

    def test_weights_over_a_covariate(self, revealed):
        mix, reference, table = revealed
        predicted = mix.membership_.predict_over("age", [40.0, 60.0])
        for value, weights in zip([40.0, 60.0], predicted.weights, strict=True):
            X = np.column_stack([np.ones(400), np.full(400, value), table["trained"]])
            np.testing.assert_allclose(weights, reference.predict(X).mean(axis=0), rtol=1e-6)
        assert mix.membership_.predict_over("trained").weights.shape == (2, 3)
        assert mix.membership_.plot("age").axes[0].get_xlabel() == "age"


def layers(n_steps=4):
    """Return an MDP of successive choices between two states."""
    states = [[0]] + [[2 * t - 1, 2 * t] for t in range(1, n_steps + 1)]
    edges = [(a, b) for before, after in pairwise(states) for a in before for b in after]
    numbers = np.arange(2 * n_steps + 1)
    features = np.column_stack([numbers % 2, numbers % 3 == 1])
    return MDP.from_edges(*np.transpose(edges), p0=np.eye(numbers.size)[0], state_features=features)


def overlapping(n=60, seed=0, n_intents=2):
    """Return an MDP, demonstrations of overlapping intents, covariates, and true logits and rewards."""
    mdp, rng = layers(), np.random.default_rng(seed)
    x = np.column_stack([rng.normal(size=n), rng.random(n) < 0.5])
    logits, thetas = COEFFICIENTS[:n_intents], np.array([[1.5, -0.5], [-1.5, 0.5], [0.0, 1.5]])[:n_intents]
    model = MaxEnt(5, bounds=None, stop="terminal")
    labels = [int(rng.choice(n_intents, p=p)) for p in draw_weights(logits, x)]
    parts = [model.sample(mdp, thetas[k], 1, rng) for k in labels]
    return mdp, Demonstrations.concat(parts), x, logits, thetas


class TestDerivatives:
    @pytest.mark.parametrize("groups", [None, np.arange(60) // 3])
    @pytest.mark.parametrize("ridge", [0.0, 2.0])
    @pytest.mark.parametrize("model", [MaxEnt(5, bounds=None, ridge=0.01), MaxCausalEnt(bounds=None)], ids=str)
    def test_information_agrees_with_second_differences(self, model, ridge, groups):
        mdp, demos, x, logits, thetas = overlapping(n_intents=3)
        n = 60 if groups is None else 20
        design = WeightDesign(np.column_stack([np.ones(n), x[:n]]), ridge)
        problem = make_problem(model, mdp, demos, groups, design)
        U = np.zeros((n, 3))

        def value(vector):
            C, theta = vector[:9].reshape(3, 3), vector[9:].reshape(3, 2)
            log_likelihood = problem.e_step(design.weights(C), theta, U).log_likelihood
            return log_likelihood - design.penalty(C) - problem.penalty(theta)

        at, step = np.concatenate([logits.ravel(), thetas.ravel()]), 1e-3
        expected = np.empty((15, 15))
        for i in range(15):
            for j in range(15):
                a, b = step * np.eye(15)[i], step * np.eye(15)[j]
                second = value(at + a + b) - value(at + a - b) - value(at - a + b) + value(at - a - b)
                expected[i, j] = -second / (4 * step**2)
        measured = joint_information(problem, logits, thetas, np.ones((3, 2), dtype=bool))
        np.testing.assert_allclose(measured.observed, expected, atol=2e-4)

    @pytest.mark.parametrize("ridge", [0.0, 2.0])
    def test_gradient_of_the_marginal_likelihood(self, ridge):
        mdp, demos, x, logits, thetas = overlapping(n_intents=3)
        design = WeightDesign(np.column_stack([np.ones(60), x]), ridge)
        objective = MarginalLikelihood(make_problem(MaxEnt(5, bounds=None), mdp, demos, None, design), 3, np.ones(2))
        at = objective.pack(logits, thetas)
        _, gradient = objective.evaluate(at[None], np.array([0]))
        for j, step in enumerate(1e-5 * np.eye(at.size)):
            ends = [objective.evaluate((at + sign * step)[None], np.array([0]))[0][0] for sign in (1.0, -1.0)]
            np.testing.assert_allclose(gradient[0, j], (ends[0] - ends[1]) / 2e-5, atol=1e-8)

    def test_newton_reaches_the_maximum(self):
        rng = np.random.default_rng(0)
        design = WeightDesign(np.column_stack([np.ones(50), rng.normal(size=(50, 2))]), 0.7)
        U = rng.dirichlet(np.ones(3), size=50)
        logits = design.fit(U, np.zeros((3, 3)))
        gradient = (U - design.weights(logits)).T @ design.X - (design.penalty_curvature(3) @ logits.ravel()).reshape(
            3, 3
        )
        np.testing.assert_allclose(gradient, 0.0, atol=2e-6)
        np.testing.assert_array_equal(logits[0], 0.0)


class TestFit:
    def test_a_large_ridge_gives_the_mixture_without_covariates(self):
        mdp, demos, x, _, thetas = overlapping(200)
        options = {"irl": MaxEnt(5, bounds=(-5, 5)), "init": RewardEnsemble([0.5, 0.5], thetas), "max_iter": 500}
        plain = IntentMixture(2, **options).fit(mdp, demos)
        penalised = IntentMixture(2, membership_ridge=1e9, **options).fit(mdp, demos, covariates=x)
        np.testing.assert_allclose(penalised.membership_.coefficients, 0.0, atol=1e-6)
        np.testing.assert_allclose(penalised.weights_, plain.weights_, atol=1e-5)
        np.testing.assert_allclose(penalised.thetas_, plain.thetas_, atol=1e-4)
        np.testing.assert_allclose(penalised.log_likelihood_, plain.log_likelihood_, atol=1e-8)
        assert plain.membership_ is None

    @pytest.mark.parametrize("accelerate", [False, True])
    @pytest.mark.parametrize("ridge", [0.0, 1.0])
    def test_the_objective_never_decreases_and_ends_at_a_stationary_point(self, ridge, accelerate):
        mdp, demos, x, _, thetas = overlapping(300)
        options = {"init": RewardEnsemble([0.5, 0.5], thetas), "max_iter": 2000, "resp_tol": 1e-9}
        mix = IntentMixture(
            2, MaxEnt(5, bounds=(-9, 9), gtol=1e-9), membership_ridge=ridge, accelerate=accelerate, **options
        ).fit(mdp, demos, covariates=x)
        objective = np.array([entry.objective for entry in mix.history_])
        assert np.all(np.diff(objective) >= -1e-11)
        marginal = MarginalLikelihood(mix._problem, 2, np.ones(2))
        at = marginal.pack(mix.membership_logits_, mix.thetas_)
        value, gradient = marginal.evaluate(at[None], np.array([0]))
        np.testing.assert_allclose(-value[0], mix.objective_, rtol=1e-10)
        np.testing.assert_allclose(gradient, 0.0, atol=2e-5)

    def test_rows_per_group(self):
        mdp, demos, x, _, thetas = overlapping(90)
        groups = np.array([f"g{i // 3}" for i in range(90)])
        names = sorted(set(groups))
        options = {
            "init": RewardEnsemble([0.5, 0.5], thetas),
            "irl": MaxEnt(5, bounds=(-5, 5)),
            "membership_ridge": 1.0,
        }
        by_row = IntentMixture(2, **options).fit(mdp, demos, groups, covariates=x[:30])
        table = {"group": names[::-1], "a": x[:30, 0][::-1], "b": x[:30, 1][::-1]}
        by_key = IntentMixture(2, **options).fit(mdp, demos, groups, covariates=table)
        np.testing.assert_array_equal(by_row.membership_logits_, by_key.membership_logits_)
        assert by_key.group_responsibilities_.shape == (30, 2)

    def test_complete_separation_issues_a_warning(self):
        demos = Demonstrations.from_lists([[0, 1]] * 20 + [[0, 2]] * 20)
        x = np.r_[np.linspace(-2, -1, 20), np.linspace(1, 2, 20)]
        mix = IntentMixture(2, MaxEnt(2, bounds=(-9, 9)), init=x > 0)
        with pytest.warns(DegenerateIntentWarning) as caught:
            mix.fit(FORK, demos, covariates=x)
        assert "membership_ridge" in {warning.message.parameter for warning in caught}
        ridged = IntentMixture(2, MaxEnt(2, bounds=(-9, 9)), init=x > 0, membership_ridge=1.0)
        ridged.fit(FORK, demos, covariates=x)
        assert np.all(np.isfinite(ridged.membership_.errors[1]))

    def test_split_and_merge(self):
        mdp, demos, x, _, _ = overlapping(150, n_intents=3)
        options = {"init": "random", "random_state": 0, "max_iter": 30, "membership_ridge": 1.0}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # EM is stopped early
            plain, refined = (
                IntentMixture(3, MaxEnt(5, bounds=(-5, 5)), refine=refine, **options).fit(mdp, demos, covariates=x)
                for refine in (None, "split_merge")
            )
        assert refined.objective_ >= plain.objective_
        np.testing.assert_allclose(refined.score(demos), refined.log_likelihood_, rtol=1e-12)

    def test_one_intent(self):
        mdp, demos, x, _, _ = overlapping(30)
        mix = IntentMixture(1, MaxEnt(5, bounds=(-5, 5))).fit(mdp, demos, covariates=x)
        np.testing.assert_array_equal(mix.membership_logits_, np.zeros((1, 3)))
        np.testing.assert_allclose(mix.weights_, [1.0], rtol=0)

    @pytest.mark.parametrize("ridge", [-1.0, np.nan, "1"])
    def test_ridge_must_not_be_negative(self, ridge):
        mdp, demos, x, _, _ = overlapping(30)
        with raises(InvalidParameter, parameter="membership_ridge", value=ridge):
            IntentMixture(2, membership_ridge=ridge).fit(mdp, demos, covariates=x)

    def test_columns_that_do_not_identify_coefficients(self):
        mdp, demos, x, _, _ = overlapping(30)
        with raises(InvalidParameter, parameter="covariates", value=2.0):
            IntentMixture(2).fit(mdp, demos, covariates=np.column_stack([x, np.full(30, 2.0)]))
        with raises(InvalidParameter, parameter="covariates", value="covariate 2"):
            IntentMixture(2).fit(mdp, demos, covariates=np.column_stack([x, 3.0 - x[:, 0]]))


@pytest.fixture(scope="module")
def fitted():
    mdp, demos, x, _, thetas = overlapping(120)
    table = {"a": x[:, 0], "b": np.where(x[:, 1] > 0, "yes", "no")}
    mix = IntentMixture(2, MaxEnt(5, bounds=(-5, 5)), init=RewardEnsemble([0.4, 0.6], thetas), max_iter=300)
    return mix.fit(mdp, demos, covariates=table), demos, table


class TestFitted:
    def test_predictions_use_the_weights_of_each_demonstration(self, fitted):
        mix, demos, table = fitted
        np.testing.assert_allclose(mix.predict_proba(demos, covariates=table), mix.responsibilities_, atol=1e-12)
        np.testing.assert_array_equal(mix.predict_proba(demos), mix.predict_proba(demos, covariates=table))
        np.testing.assert_allclose(mix.score(demos, covariates=table), mix.log_likelihood_, rtol=1e-12)
        log_p = mix.irl_.log_prob(mix.mdp_, mix.thetas_, demos[:3])
        part = {name: column[:3] for name, column in table.items()}
        expected = np.logaddexp.reduce(log_p + np.log(mix.membership_.predict(part)), axis=1)
        np.testing.assert_allclose(mix.score_samples(demos[:3], covariates=part), expected, rtol=1e-12)
        assert mix.next_actions(demos[:3], covariates=part).action.shape[0] == 3

    def test_covariates_are_required_for_new_demonstrations(self, fitted):
        mix, demos, table = fitted
        with raises(InvalidParameter, parameter="covariates"):
            mix.predict(demos[:3])
        with raises(InvalidParameter, parameter="covariates"):
            mix.bic(demos[:3])
        with raises(InvalidParameter, parameter="covariates", value="dict"):
            IntentMixture(1, mix.irl).fit(mix.mdp_, demos).predict(demos, covariates=table)

    @pytest.mark.parametrize("restore", [copy.deepcopy, lambda mix: pickle.loads(pickle.dumps(mix))])
    def test_copies_keep_the_covariates(self, fitted, restore):
        mix, demos, _ = fitted
        back = restore(mix)
        np.testing.assert_array_equal(back.predict_proba(demos), mix.predict_proba(demos))
        np.testing.assert_allclose(back.membership_.errors, mix.membership_.errors, rtol=1e-9)

    def test_saved_mixtures_are_restored(self, fitted, tmp_path):
        mix, demos, table = fitted
        mix.save(tmp_path / "mix")
        back = IntentMixture.load(tmp_path / "mix")
        np.testing.assert_array_equal(back.membership_logits_, mix.membership_logits_)
        assert (back.covariates_.names, back.covariates_.levels) == (("a", "b[yes]"), {"b": ("no", "yes")})
        predicted = mix.predict_proba(demos, covariates=table)
        np.testing.assert_array_equal(back.predict_proba(demos, covariates=table), predicted)
        assert "-" in str(back.membership_)
        measured = back.membership_.with_data(demos, covariates=table)
        np.testing.assert_allclose(measured.errors, mix.membership_.errors, rtol=1e-9)
        frame = back.to_frame(demos, covariates=table)
        np.testing.assert_allclose(frame["standard_error"], mix.to_frame()["standard_error"], rtol=1e-9)
        for plot in (back.plot, back.plot_memberships):
            assert plot(demos, covariates=table).axes

    def test_intents_are_relabelled_with_their_coefficients(self, fitted):
        mix, demos, table = fitted
        other = mix.align_to(RewardEnsemble(mix.weights_[::-1], mix.thetas_[::-1]))
        np.testing.assert_allclose(other.membership_.coefficients[1], -mix.membership_.coefficients[1], rtol=1e-12)
        expected = mix.predict_proba(demos, covariates=table)[:, ::-1]
        np.testing.assert_allclose(other.predict_proba(demos, covariates=table), expected, rtol=1e-9)

    def test_weight_errors_are_those_of_the_mean(self, fitted):
        mix, _, _ = fitted
        errors, model = mix.standard_errors(), mix.membership_
        design = model.design
        step, gradient = 1e-6, np.empty((2, 3))
        for j in range(3):
            shift = np.zeros((2, 3))
            shift[1, j] = step
            ends = [design.weights(mix.membership_logits_ + sign * shift).mean(axis=0) for sign in (1.0, -1.0)]
            gradient[:, j] = (ends[0] - ends[1]) / (2 * step)
        to_scaled = np.linalg.inv(model._to_original)
        covariance = to_scaled @ model.covariance[3:, 3:] @ to_scaled.T
        np.testing.assert_allclose(errors.weights, np.sqrt(np.diag(gradient @ covariance @ gradient.T)), rtol=1e-6)
        assert mix.summary().n_free == 3 + 4

    def test_table(self, fitted):
        mix, _, _ = fitted
        frame = mix.membership_.to_frame()
        assert frame["covariate"].tolist() == 2 * ["(intercept)", "a", "b[yes]"]
        np.testing.assert_allclose(frame["z"][3:], frame["coefficient"][3:] / frame["error"][3:], rtol=1e-12)
        assert mix.membership_.plot("b").axes[0].get_xlabel() == "b"
        with raises(InvalidParameter, parameter="values", value="maybe"):
            mix.membership_.predict_over("b", ["maybe"])


@pytest.mark.slow
def test_intervals_cover_the_truth():
    """Intervals of 95 % for coefficients, rewards and mean effects contain the truth in 92 to 98 % of 300 data sets."""
    covered, n_sets = [], 300
    for seed in range(n_sets):
        mdp, demos, x, logits, thetas = overlapping(400, seed=1000 + seed)
        mix = IntentMixture(
            2, MaxEnt(5, bounds=None, stop="terminal"), init=RewardEnsemble([0.5, 0.5], thetas), max_iter=400,
            accelerate=True,
        )  # fmt: skip
        mix.fit(mdp, demos, covariates=x)
        model = mix.membership_
        estimate = np.concatenate([[model.intercepts[1]], model.coefficients[1], mix.thetas_.ravel()])
        errors = np.concatenate([model.errors[1], mix.standard_errors().thetas.ravel()])
        truth = np.concatenate([logits[1], thetas.ravel()])
        covered.append(np.abs(estimate - truth) <= 1.959964 * errors)
    share = np.mean(covered, axis=0)
    assert np.all((share >= 0.92) & (share <= 0.98)), share
