"""Mixtures that are fitted to several environments."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

import limiirl as ll
from limiirl.errors import InvalidDemos
from limiirl.mixture import centre_by_environment, environment_fractions
from limiirl.worlds import ElementWorld
from tests.helpers import raises


@pytest.fixture(scope="module")
def worlds():
    """Two element worlds of different sizes; `labels` are the intents of all demonstrations."""
    built = [ElementWorld(n_elements=2, seed=e, wind=0.0, height=4 + 2 * e) for e in range(2)]
    samples = [world.sample(30 + 10 * e, seed=e) for e, world in enumerate(built)]
    pairs = {name: (world.mdp, demos) for name, world, (demos, _) in zip("ab", built, samples, strict=True)}
    return pairs, np.concatenate([labels for _, labels in samples])


@pytest.mark.parametrize("irl", [ll.MaxEnt(max_length=20), ll.MaxCausalEnt(bounds=(-10, 0))], ids=str)
class TestIntentMixture:
    def test_intents_are_recovered_in_all_environments(self, worlds, irl):
        pairs, labels = worlds
        mix = ll.IntentMixture(2, irl, random_state=0).fit(pairs)
        assert adjusted_rand_score(labels, mix.labels_) == 1.0
        assert mix.mdp_.environment_names == ("a", "b")
        # The log-likelihood at the joint estimate is the sum of those of the environments.
        total = 0.0
        for mdp, demos in pairs.values():
            log_joint = irl.log_prob(mdp, mix.thetas_, demos) + np.log(mix.weights_)
            total += float(np.logaddexp.reduce(log_joint, axis=1).sum())
        assert mix.log_likelihood_ * len(labels) == pytest.approx(total, rel=1e-10)

    def test_two_copies_with_half_of_the_data_give_the_fit_of_one(self, worlds, irl):
        mdp, demos = worlds[0]["a"]
        alone = ll.IntentMixture(2, irl, init=worlds[1][:30], resp_tol=1e-9).fit(mdp, demos)
        order = np.concatenate([np.arange(0, 30, 2), np.arange(1, 30, 2)])
        halves = [(mdp, demos[::2]), (mdp, demos[1::2])]
        joint = ll.IntentMixture(2, irl, init=worlds[1][order], resp_tol=1e-9).fit(halves)
        np.testing.assert_allclose(joint.thetas_, alone.thetas_, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(joint.responsibilities_, alone.responsibilities_[order], atol=1e-6)
        assert joint.log_likelihood_ == pytest.approx(alone.log_likelihood_, rel=1e-8)
        errors = joint.standard_errors().thetas, alone.standard_errors().thetas
        np.testing.assert_allclose(*errors, rtol=1e-2)

    def test_predictions_for_one_environment_and_files(self, worlds, irl, tmp_path):
        pairs, _ = worlds
        mix = ll.IntentMixture(2, irl, random_state=0).fit(pairs)
        mix.save(tmp_path / "mix")
        again = ll.IntentMixture.load(tmp_path / "mix")
        new = ll.to_environment(again.mdp_, pairs["b"][1][:5], "b")
        np.testing.assert_array_equal(again.predict_proba(new), mix.responsibilities_[30:35])
        np.testing.assert_array_equal(again.predict(new), mix.labels_[30:35])
        sample, _ = again.sample(50, seed=0)
        assert set(again.mdp_.environment[sample.start_states]) == {0, 1}


def test_groups_and_covariates_are_those_of_the_union(worlds):
    pairs, labels = worlds
    groups = np.concatenate([labels[:30], labels[30:]])  # each group was recorded in both environments
    mix = ll.IntentMixture(2, ll.MaxEnt(max_length=20), random_state=0).fit(pairs, groups=groups)
    assert mix.groups_.tolist() == [0, 1]
    np.testing.assert_allclose(mix.group_responsibilities_.max(axis=1), 1.0, atol=1e-6)
    dose = np.arange(70.0)
    mix.fit(pairs, covariates={"dose": dose})
    assert mix.covariates_.mean == pytest.approx(dose.mean())


@pytest.mark.parametrize(
    "mixture",
    [ll.IntentMixture(), ll.SwitchingMixture(), ll.BayesianIntentMixture(), ll.MaxEnt(), ll.MaxCausalEnt()],
    ids=lambda mixture: type(mixture).__name__,
)
def test_demonstrations_are_required(mixture, worlds):
    with raises(InvalidDemos, parameter="demos"):
        mixture.fit(worlds[0]["a"][0])


def test_bayesian_mixture(worlds):
    pairs, labels = worlds
    irl = ll.MaxEnt(max_length=20, bounds=(-5, 0))
    mix = ll.BayesianIntentMixture(3, irl, random_state=0).fit(pairs)
    assert adjusted_rand_score(labels, mix.labels_) == 1.0


class TestSwitching:
    irl = ll.MaxCausalEnt(bounds=(-10, 0), ridge=1e-3)

    def test_log_probabilities_are_those_of_the_environments(self, worlds):
        pairs, _ = worlds
        mix = ll.SwitchingMixture(2, self.irl, random_state=0, max_iter=5, tol=1e-1).fit(pairs)
        alone = []
        for mdp, demos in pairs.values():
            one = ll.SwitchingMixture(2, self.irl, random_state=0, max_iter=0).fit(mdp, demos)
            one.initial_, one.thetas_, one.logits_ = mix.initial_, mix.thetas_, mix.logits_
            alone.append(one.predictive_log_prob(demos))
        mdp, demos = ll.combine_environments(pairs)
        np.testing.assert_allclose(mix.predictive_log_prob(demos), np.concatenate(alone), rtol=1e-8, atol=1e-10)
        assert mix.log_likelihood_ == pytest.approx(np.concatenate(alone).mean(), rel=1e-8)

    def test_transitions_by_state(self, worlds):
        pairs, _ = worlds
        mix = ll.SwitchingMixture(2, self.irl, "state", random_state=0, max_iter=5, tol=1e-1).fit(pairs)
        assert mix.transition_.shape == (mix.mdp_.n_states, 2, 2)


class TestInitialisation:
    def test_points_are_relative_to_their_environment(self, worlds):
        mdp, demos = ll.combine_environments(worlds[0])
        problem = ll.irl.make_problem(ll.MaxEnt(max_length=20), mdp, demos)
        points = centre_by_environment(problem.features(), environment_fractions(problem))
        for part in (points[:30], points[30:]):
            np.testing.assert_allclose(part.mean(axis=0), 0.0, atol=1e-12)
        np.testing.assert_allclose(points[:30] - points[0], problem.features()[:30] - problem.features()[0], atol=1e-12)

    def test_groups_in_several_environments(self, worlds):
        mdp, demos = ll.combine_environments(worlds[0])
        groups = np.concatenate([np.zeros(30), np.repeat([0.0, 1.0], [30, 10])])
        problem = ll.irl.make_problem(ll.MaxEnt(max_length=20), mdp, demos, groups)
        np.testing.assert_allclose(environment_fractions(problem), [[0.5, 0.5], [0.0, 1.0]], rtol=1e-12)

    def test_one_environment(self, worlds):
        mdp, demos = worlds[0]["a"]
        problem = ll.irl.make_problem(ll.MaxEnt(max_length=20), mdp, demos)
        assert environment_fractions(problem) is None
