"""`SwitchingMixture`: EM, restarts, invariances, conventions of scikit-learn, and invalid input."""

import copy
from types import SimpleNamespace

import numba
import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.base import clone

from limiirl import MDP, Demonstrations, IntentMixture, MaxCausalEnt, MaxEnt, SwitchingMixture, select_switching
from limiirl.errors import (
    ConvergenceWarning,
    DegenerateIntentWarning,
    InvalidDemos,
    InvalidParameter,
)
from limiirl.switching import SwitchingRestart
from tests.helpers import raises
from tests.oracles.switching import random_problem


def corridor():
    """Seven places in a row, in which agents go to the left end or to the right end, and the actions."""
    places = np.arange(7)
    src, dst = np.repeat(places, 2), np.clip(np.column_stack([places - 1, places + 1]), 0, 6).ravel()
    return MDP.from_edges(src, dst, action=np.tile([0, 1], 7), gamma=0.9, state_features=np.eye(7)[:, [0, 6]])


def switch(seed=0, n_demos=6, length=200, stay=0.95):
    """Demonstrations of agents that switch between the ends of the corridor, and the intents (n_demos, length)."""
    rng, mdp = np.random.default_rng(seed), corridor()
    policies = [MaxCausalEnt().policy(mdp, np.array(theta)) for theta in ([4.0, 0.0], [0.0, 4.0])]
    paths, actions, intents = [], [], []
    for _ in range(n_demos):
        z, s = [int(rng.integers(2))], [int(rng.integers(7))]
        a = []
        for t in range(length):
            a.append(int(rng.choice(2, p=policies[z[-1]][s[-1]])))
            s.append(int(np.clip(s[-1] + 2 * a[-1] - 1, 0, 6)))
            if t < length - 1:
                z.append(z[-1] if rng.random() < stay else 1 - z[-1])
        paths.append(s)
        actions.append(a)
        intents.append(z)
    return mdp, Demonstrations.from_lists(paths, actions), np.array(intents)


MODEL = MaxCausalEnt(ridge=1e-4)


class TestFit:
    @pytest.mark.parametrize("switching", ["homogeneous", "state"])
    def test_recovers_intents_and_switching(self, switching):
        mdp, demos, intents = switch()
        sw = SwitchingMixture(2, MODEL, switching, random_state=0).fit(mdp, demos)
        right = int(np.argmax(sw.thetas_[:, 1] - sw.thetas_[:, 0]))
        agreement = np.mean((sw.predict(demos) == right) == intents.ravel())
        assert agreement > 0.9
        np.testing.assert_allclose(np.diag(sw.mean_transition_), 0.95, rtol=0, atol=0.03)
        assert sw.converged_
        assert sw.n_iter_ == len(sw.history_) - 1
        assert (sw.n_demos_, sw.n_steps_) == (6, 1200)

    def test_covariate_that_causes_switches_has_a_positive_coefficient(self):
        rng, mdp = np.random.default_rng(0), corridor()
        policies = [MaxCausalEnt().policy(mdp, np.array(theta)) for theta in ([4.0, 0.0], [0.0, 4.0])]
        light = np.repeat(rng.integers(2, size=80), 15).astype(float)
        s, a, z = [3], [], 0
        for t in range(light.size):
            a.append(int(rng.choice(2, p=policies[z][s[-1]])))
            s.append(int(np.clip(s[-1] + 2 * a[-1] - 1, 0, 6)))
            z = int(rng.random() < (0.95 if light[t] else 0.05))
        demos = Demonstrations.from_lists([s], [a])
        frame = pd.DataFrame({"light": light, "noise": rng.normal(size=light.size)})
        sw = SwitchingMixture(2, MODEL, "covariates", random_state=0).fit(mdp, demos, covariates=frame)
        right = int(np.argmax(sw.thetas_[:, 1] - sw.thetas_[:, 0]))
        B = sw.logits_.B[right] - sw.logits_.B[1 - right]
        error = sw.standard_errors().B[right]
        assert B[0] > 6 * error[0]
        assert abs(B[1]) < 6 * error[1]
        dark, bright = sw.transition_at([[0.0, 0.0], [1.0, 0.0]])[:, :, right]
        assert dark.max() < 0.25
        assert bright.min() > 0.75
        plain = SwitchingMixture(2, MODEL, random_state=0).fit(mdp, demos)
        assert sw.log_likelihood_ > plain.log_likelihood_ + 0.01

    def test_covariates_per_state_equal_those_per_decision(self):
        mdp, demos, _ = switch(n_demos=2, length=60)
        X = np.random.default_rng(0).normal(size=(122, 1))
        keep = np.ones(122, dtype=bool)
        keep[[60, 121]] = False
        fits = [
            SwitchingMixture(2, MODEL, "covariates", random_state=0, tol=1e-4).fit(mdp, demos, covariates=x)
            for x in (X, X[keep])
        ]
        np.testing.assert_array_equal(fits[0].thetas_, fits[1].thetas_)
        np.testing.assert_array_equal(fits[0].predict_proba(demos, X[keep]), fits[1].predict_proba(demos, X))

    def test_one_intent_is_the_causal_model(self):
        mdp, demos, _ = switch(n_demos=3, length=80)
        model = MaxCausalEnt(ridge=1e-3, ridge_per="step", gtol=1e-6)
        sw = SwitchingMixture(1, model).fit(mdp, demos)
        np.testing.assert_allclose(sw.thetas_[0], clone(model).fit(mdp, demos), rtol=0, atol=1e-5)
        np.testing.assert_array_equal(sw.transition_, [[1.0]])
        assert sw.dwell_times_.tolist() == [np.inf]

    def test_ridge_per_step_does_not_depend_on_the_cut(self):
        mdp, demos, _ = switch(n_demos=2, length=100)
        whole = SwitchingMixture(1, MaxCausalEnt(ridge=0.1)).fit(mdp, demos)
        pieces = SwitchingMixture(1, MaxCausalEnt(ridge=0.1)).fit(mdp, demos.cut(25))
        assert len(pieces.mdp_.p0)
        np.testing.assert_allclose(whole.thetas_, pieces.thetas_, rtol=0, atol=1e-4)
        assert whole.n_steps_ == pieces.n_steps_

    def test_unreachable_states_do_not_matter(self):
        mdp, demos, _ = switch(n_demos=2, length=60)
        src, dst = np.append(mdp.src, [7, 8]), np.append(mdp.dst, [8, 0])
        features = np.vstack([mdp.state_features, [[9.0, 0.0], [0.0, 7.0]]])
        wider = MDP.from_edges(src, dst, action=np.append(mdp.act, [0, 0]), gamma=0.9, state_features=features)
        for switching in ("homogeneous", "state"):
            one, two = (
                # Rounding errors grow with the number of iterations.
                SwitchingMixture(2, MODEL, switching, random_state=0, tol=1e-2).fit(m, demos)
                for m in (mdp, wider)
            )
            np.testing.assert_allclose(two.thetas_, one.thetas_, rtol=0, atol=1e-6)
            np.testing.assert_allclose(two.predict_proba(demos), one.predict_proba(demos), rtol=0, atol=1e-6)

    def test_missing_actions_that_are_unique_change_nothing(self):
        mdp, demos, _ = switch(n_demos=2, length=60)
        # At the ends, staying is the only action that leads to the same place, so that every action can be inferred.
        one, two = (
            SwitchingMixture(2, MODEL, random_state=0).fit(mdp, d) for d in (demos, demos.replace(actions=None))
        )
        np.testing.assert_array_equal(one.thetas_, two.thetas_)


class TestFirstIntent:
    """Probabilities of the first intent by covariates of the demonstrations."""

    def data(self, n_demos=150, length=10):
        """Agents prefer action 0 or 1; the first preference depends on age, and switches are rare."""
        rng = np.random.default_rng(5)
        mdp = MDP.from_edges([0, 0], [0, 0], action=[0, 1], gamma=0.9, action_features=[[1.0], [0.0]])
        age = rng.normal(4.0, 2.0, size=n_demos)
        intent = (rng.random(n_demos) < expit(0.5 + 0.8 * (age - 4.0))).astype(int)
        actions = []
        for first in intent:
            z = (first + np.cumsum(rng.random(length) < 0.1)) % 2
            actions.append((rng.random(length) < np.where(z == 1, 0.1, 0.85)).astype(int).tolist())
        return mdp, Demonstrations.from_lists([[0] * (length + 1)] * n_demos, actions), age

    def mixture(self, **options):
        given = {"initial": "covariates", "switching_ridge": 1e-6, "random_state": 0} | options
        return SwitchingMixture(2, MaxCausalEnt(ridge=1e-6), **given)

    def test_coefficients_are_recovered_and_maximise_the_likelihood(self):
        mdp, demos, age = self.data()
        table = {"demo": np.arange(len(demos)), "age": age}
        sw = self.mixture().fit(mdp, demos, covariates=table)
        towards = int(np.argmax(sw.thetas_[:, 0]))  # intent 1 of the simulation avoids action 1
        coefficient = sw.initial_logits_[1, 1] / age.std() * (1 if towards == 1 else -1)
        error = sw.standard_errors().initial_logits[1, 1] / age.std()
        assert abs(coefficient - 0.8) < 3.0 * error
        assert error < 0.3
        assert sw.n_free_ == self.mixture(initial="constant").fit(mdp, demos).n_free_ + 1
        best = sw.score(demos, table)
        constant = self.mixture(initial="constant").fit(mdp, demos).score(demos)
        assert best > constant + 1e-3
        for change in np.eye(4).reshape(4, 2, 2)[2:]:
            for sign in (-0.05, 0.05):
                moved = copy.copy(sw)
                moved.initial_logits_ = sw.initial_logits_ + sign * change
                assert moved.score(demos, table) < best

    def test_delta_method_of_the_initial_probabilities(self):
        mdp, demos, age = self.data(60)
        errors = self.mixture().fit(mdp, demos, covariates=np.repeat(age, 10)[:, None]).standard_errors()
        estimate = errors.delta_method(lambda initial, thetas, transition: initial)
        np.testing.assert_allclose(estimate.error, errors.initial, rtol=1e-5)

    def test_summary_files_and_selection(self, tmp_path):
        mdp, demos, age = self.data(40)
        table = {"demo": np.arange(40), "age": age}
        sw = self.mixture(switching="covariates", switching_ridge=1.0).fit(mdp, demos, covariates=table)
        summary = sw.summary()
        assert summary.initial_names == summary.covariate_names == ("age",)
        assert np.isfinite(summary.initial_coefficient_errors[1, 0])
        frame = summary.to_frame()
        assert (frame.parameter == "initial_coefficient").sum() == 2
        sw.save(tmp_path / "sw")
        again = SwitchingMixture.load(tmp_path / "sw")
        np.testing.assert_array_equal(again.predict_proba(demos, table), sw.predict_proba(demos, table))
        assert again.initial == "covariates"
        start = self.mixture(init=again, max_iter=0, switching_ridge=1.0).fit(mdp, demos, covariates=table)
        np.testing.assert_allclose(start.initial_logits_, sw.initial_logits_, rtol=1e-12)
        template = SwitchingMixture(2, MaxCausalEnt(ridge=1e-6), initial="covariates", random_state=0)
        selection = select_switching(mdp, demos, [2], mixture=template, covariates=table, folds=2)
        assert np.isfinite(selection.rows[0].held_out)
        assert selection.best.initial_logits_.shape == (2, 2)

    def test_one_demonstration_and_errors(self):
        mdp, demos, _ = self.data(1, 40)
        x = np.random.default_rng(0).normal(size=(40, 1))
        sw = self.mixture(switching_ridge=1.0).fit(mdp, demos, covariates=x)
        assert sw.initial_.sum() == pytest.approx(1.0)
        with raises(InvalidParameter, parameter="covariates"):
            self.mixture().fit(mdp, demos)
        with raises(InvalidParameter, parameter="switching"):
            sw.transition_at([[0.0]])


class TestInvariance:
    def fit(self, mdp, demos, **options):
        options = {"init": "kmeans", "random_state": 0} | options
        return SwitchingMixture(2, MODEL, "state", **options).fit(mdp, demos)

    def test_refit_is_identical(self):
        mdp, demos, _ = switch(n_demos=4)
        one, two = self.fit(mdp, demos), self.fit(mdp, demos)
        np.testing.assert_array_equal(one.thetas_, two.thetas_)
        np.testing.assert_array_equal(one.logits_.B, two.logits_.B)

    def test_number_of_threads_changes_no_bit(self):
        mdp, demos, _ = switch(n_demos=40)
        before, fits = numba.get_num_threads(), []
        try:
            for threads in (1, before):
                numba.set_num_threads(threads)
                fits.append(self.fit(mdp, demos, max_iter=4, tol=0.1))
        finally:
            numba.set_num_threads(before)
        assert before > 1
        np.testing.assert_array_equal(fits[0].thetas_, fits[1].thetas_)
        np.testing.assert_array_equal(fits[0].transition_, fits[1].transition_)
        assert fits[0].objective_ == fits[1].objective_

    def test_order_of_demonstrations_does_not_matter(self):
        mdp, demos, intents = switch(n_demos=5)
        order = np.array([3, 0, 4, 2, 1])
        one = self.fit(mdp, demos, init=intents.ravel(), tol=1e-2)
        two = self.fit(mdp, demos[order], init=intents[order].ravel(), tol=1e-2)
        np.testing.assert_allclose(two.thetas_, one.thetas_, rtol=0, atol=1e-6)
        np.testing.assert_allclose(two.transition_, one.transition_, rtol=0, atol=1e-6)

    def test_permuted_labels_permute_the_intents(self):
        mdp, demos, intents = switch(n_demos=4)
        one, two = (self.fit(mdp, demos, init=x.ravel(), tol=1e-2) for x in (intents, 1 - intents))
        np.testing.assert_allclose(two.thetas_[::-1], one.thetas_, rtol=0, atol=1e-6)
        np.testing.assert_allclose(two.initial_[::-1], one.initial_, rtol=0, atol=1e-6)
        np.testing.assert_allclose(two.transition_[:, ::-1, ::-1], one.transition_, rtol=0, atol=1e-6)
        assert two.objective_ == pytest.approx(one.objective_, abs=1e-9)

    def test_groups_do_not_change_the_fit(self):
        mdp, demos, _ = switch(n_demos=4)
        one = self.fit(mdp, demos)
        two = SwitchingMixture(2, MODEL, "state", random_state=0).fit(mdp, demos, ["a", "b", "a", "b"])
        np.testing.assert_array_equal(one.thetas_, two.thetas_)
        assert two.groups_.tolist() == ["a", "b", "a", "b"]
        assert one.groups_ is None


class TestRestarts:
    def test_best_of_several_is_kept_and_counted(self):
        mdp, demos, _ = switch(n_demos=3, length=100)
        sw = SwitchingMixture(2, MODEL, init="random", n_init=4, random_state=1).fit(mdp, demos)
        objectives = np.array([run.objective for run in sw.restarts_])
        assert len(objectives) == 4
        assert sw.objective_ == objectives.max()
        assert [run.best for run in sw.restarts_] == (objectives.max() - objectives <= 1e-5).tolist()
        best = sw.restarts_[int(np.argmax(objectives))]
        expected = SwitchingRestart(sw.objective_, sw.log_likelihood_, sw.n_iter_, sw.converged_, True)
        assert best == expected

    def test_first_restart_is_the_fit_without_restarts(self):
        mdp, demos, _ = switch(n_demos=3, length=100)
        one = SwitchingMixture(2, MODEL, random_state=3).fit(mdp, demos)
        several = SwitchingMixture(2, MODEL, n_init=3, random_state=3).fit(mdp, demos)
        assert several.restarts_[0] == one.restarts_[0]

    def test_given_starts_run_once(self):
        mdp, demos, intents = switch(n_demos=3, length=100)
        sw = SwitchingMixture(2, MODEL, init=intents.ravel(), n_init=5).fit(mdp, demos)
        assert len(sw.restarts_) == 1

    def test_progress_is_reported(self):
        mdp, demos, _ = switch(n_demos=2, length=50)
        calls = []
        sw = SwitchingMixture(2, MODEL, random_state=0, progress=lambda *call: calls.append(call)).fit(mdp, demos)
        assert [done for done, _, _ in calls] == list(range(sw.n_iter_ + 1))


class TestConventions:
    def test_clone_keeps_parameters_and_no_results(self):
        mdp, demos, _ = switch(n_demos=2, length=50)
        sw = SwitchingMixture(2, MODEL, "state", switching_ridge=3.0, random_state=0).fit(mdp, demos)
        copy = clone(sw)
        assert not hasattr(copy, "thetas_")
        assert copy.get_params(deep=False).keys() == sw.get_params(deep=False).keys()
        assert (copy.switching, copy.switching_ridge, copy.irl.ridge) == ("state", 3.0, 1e-4)

    def test_clone_keeps_a_fitted_init(self):
        mdp, demos, _ = switch(n_demos=2, length=50)
        sw = SwitchingMixture(2, MODEL, random_state=0).fit(mdp, demos)
        again = clone(SwitchingMixture(2, MODEL, init=sw))
        assert again.init is sw
        assert again.fit(mdp, demos).n_iter_ <= 2

    def test_model_is_not_modified(self):
        mdp, demos, _ = switch(n_demos=2, length=50)
        model = MaxCausalEnt(ridge=0.01)
        SwitchingMixture(2, model, random_state=0).fit(mdp, demos)
        assert model.ridge_per == MaxCausalEnt().ridge_per
        assert not [name for name in vars(model) if name.endswith("_")]

    def test_set_params_reaches_the_model(self):
        sw = SwitchingMixture(2, MaxCausalEnt()).set_params(irl__ridge=0.5, n_intents=4)
        assert (sw.irl.ridge, sw.n_intents) == (0.5, 4)
        assert not hasattr(sw, "set_fit_request")


class TestWarnings:
    def test_iterations_below_convergence(self):
        mdp, demos, _ = switch(n_demos=2, length=100)
        with pytest.warns(ConvergenceWarning):
            sw = SwitchingMixture(2, MODEL, random_state=0, max_iter=1).fit(mdp, demos)
        assert not sw.converged_

    def test_nearly_empty_intent(self):
        mdp, demos, _ = switch(n_demos=2, length=100)
        logits = SimpleNamespace(A=np.array([[0.0, -18.0], [0.0, 0.0]]), B=np.zeros((2, 0)))
        start = SimpleNamespace(
            initial_=np.array([1 - 1e-8, 1e-8]), thetas_=np.eye(2), logits_=logits, transition_=None
        )
        with pytest.warns(DegenerateIntentWarning) as caught:
            SwitchingMixture(2, MODEL, init=start, max_iter=0).fit(mdp, demos)
        (warning,) = caught
        assert (warning.message.parameter, warning.message.index) == ("shares_", 1)


class TestInvalid:
    def fit(self, demos=None, mdp=None, covariates=None, groups=None, irl=MODEL, **options):
        own_mdp, own, _ = switch(n_demos=2, length=20)
        mixture = SwitchingMixture(**({"n_intents": 2, "irl": irl, "random_state": 0} | options))
        demos = own if demos is None else demos
        return mixture.fit(own_mdp if mdp is None else mdp, demos, groups, covariates=covariates)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            *(("n_intents", value) for value in (0, -1, 1.5, True, "2")),
            *(("switching", value) for value in ("markov", None, 3)),
            *(("initial", value) for value in ("state", None)),
            *(("switching_ridge", value) for value in (np.nan, -1.0, np.inf, "1")),
            *(("window", value) for value in (0, 2.5)),
            *(("n_init", value) for value in (0, -2)),
            *(("max_iter", value) for value in (-1, 0.5)),
            *(("tol", value) for value in (0.0, np.nan, -1e-3)),
            *(("max_evaluations", value) for value in (0, None)),
            *(("init", value) for value in ("best", "")),
            ("progress", 3),
            ("random_state", -1),
        ],
    )
    def test_parameter(self, name, value):
        with raises(InvalidParameter, parameter=name, value=value):
            self.fit(**{name: value})

    @pytest.mark.parametrize("ridge", [np.nan, -1.0, np.inf])
    def test_ridge_of_the_model(self, ridge):
        with raises(InvalidParameter, parameter="ridge", value=ridge):
            self.fit(irl=MaxCausalEnt(ridge=ridge))

    def test_model_without_stationary_policy(self):
        with raises(InvalidParameter, parameter="irl"):
            self.fit(irl=MaxEnt())

    def test_more_intents_than_steps(self):
        with raises(InvalidParameter, parameter="n_intents", value=41):
            self.fit(n_intents=41)

    def test_demonstrations_of_one_decision(self):
        demos = Demonstrations.from_lists([[0, 1], [3, 2], [3, 4]])
        with raises(InvalidDemos, parameter="demos", value=1):
            self.fit(demos)
        assert self.fit(demos, n_intents=1).n_steps_ == 3

    def test_demonstration_without_decision(self):
        with raises(InvalidDemos, parameter="demos", value=1, index=1):
            self.fit(Demonstrations.from_lists([[0, 1, 2], [3]]))

    def test_no_demonstrations(self):
        with raises(InvalidDemos, parameter="demos"):
            self.fit(switch(n_demos=2, length=3)[1][:0])

    def test_impossible_transition(self):
        with raises(InvalidDemos, index=(1, 1)):
            self.fit(Demonstrations.from_lists([[0, 1, 2], [3, 4, 1]]))

    def test_unknown_state(self):
        with raises(InvalidDemos):
            self.fit(Demonstrations.from_lists([[5, 6, 7]]))

    def test_wrong_types(self):
        with raises(InvalidParameter, parameter="mdp"):
            self.fit(mdp=3)
        with raises(InvalidDemos):
            self.fit([[0, 1, 2]])

    @pytest.mark.parametrize("shape", [(39,), (2,), (40, 3), (3, 40, 2), ()])
    def test_init_of_wrong_shape(self, shape):
        with raises(InvalidParameter, parameter="init"):
            self.fit(init=np.zeros(shape, dtype=int))

    @pytest.mark.parametrize("init", [np.full((40, 2), np.nan), np.arange(40), np.full((40, 2), -1.0)])
    def test_init_with_wrong_values(self, init):
        with raises(InvalidParameter, parameter="init"):
            self.fit(init=init)

    def test_init_that_is_not_fitted(self):
        for init in (SwitchingMixture(2), IntentMixture(2)):
            with raises(InvalidParameter, parameter="init"):
                self.fit(init=init)

    @pytest.mark.parametrize("init", [None, 3, len, [["a"] * 2] * 40], ids=["None", "3", "function", "text"])
    def test_init_of_another_type(self, init):
        with raises(InvalidParameter, parameter="init"):
            self.fit(init=init)

    def test_init_with_another_number_of_intents_or_features(self):
        sw = self.fit()
        with raises(InvalidParameter, parameter="init", value=2):
            self.fit(init=sw, n_intents=3)
        other = random_problem(0).start()
        with raises(InvalidParameter, parameter="init", value=3):
            self.fit(init=other)

    @pytest.mark.parametrize("groups", [["a"], [["a", "b"]], [None, None]])
    def test_groups(self, groups):
        with pytest.raises((InvalidDemos, InvalidParameter)) as caught:
            self.fit(groups=groups)
        assert caught.value.parameter == "groups"

    def test_covariates_are_required_and_only_then_allowed(self):
        with raises(InvalidParameter, parameter="covariates"):
            self.fit(switching="covariates")
        with raises(InvalidParameter, parameter="covariates"):
            self.fit(covariates=np.zeros((40, 1)))

    def test_covariates_with_gap_constant_or_wrong_rows(self):
        X = np.random.default_rng(0).normal(size=(40, 2))
        gap, constant = X.copy(), X.copy()
        gap[7, 1], constant[:, 0] = np.nan, 3.0
        with raises(InvalidParameter, parameter="covariates", value=np.nan, index=(7, 1)):
            self.fit(switching="covariates", covariates=gap)
        with raises(InvalidParameter, parameter="covariates", value=3.0, index=(0, 0)):
            self.fit(switching="covariates", covariates=constant)
        with raises(InvalidParameter, parameter="covariates", value=(41, 2)):
            self.fit(switching="covariates", covariates=np.vstack([X, X[:1]]))

    def test_covariates_of_predictions(self):
        X = np.random.default_rng(0).normal(size=(40, 2))
        sw = self.fit(switching="covariates", covariates=X)
        demos = switch(n_demos=2, length=20)[1]
        with raises(InvalidParameter, parameter="covariates", value=(40, 1)):
            sw.predict(demos, X[:, :1])
        with raises(InvalidParameter, parameter="covariates"):
            sw.predict(demos)
        with raises(InvalidParameter, parameter="covariates", value=(39, 2)):
            sw.predict(demos, X[1:])
