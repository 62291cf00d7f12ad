"""`fit_drivers` on six segments: model, selection of trips, and number of styles."""

from dataclasses import replace

import numpy as np
import pytest

from limiirl import Demonstrations, DestinationMaxEnt, IntentMixture, MaxEnt
from limiirl.errors import InvalidDemos, InvalidParameter
from limiirl.roads.drivers import fit
from limiirl.roads.drivers.fit import fit_drivers
from limiirl.roads.features import FeatureChoice
from tests.helpers import raises
from tests.oracles.two_ways import MOTORWAY, STREET, demonstrations, drives, two_ways

TOO_LONG, PASSED_BEFORE = [0, 3, 4, 5, 0, 3, 4, 5, 0, 1], [0, 3, 4, 5, 0]
PLAIN = {"features": "plain", "max_length": 9}
QUICK = PLAIN | {"resp_tol": 1.0}  # one step of EM


@pytest.fixture(scope="module")
def network():
    return two_ways()


@pytest.fixture(scope="module")
def demos():
    """24 trips of 6 drivers."""
    return demonstrations(drives(24), groups=np.arange(24) % 6)


class TestModel:
    @pytest.mark.parametrize("gamma", [1.0, 0.999])
    def test_fit_equals_the_mixture_of_the_paper_with_truncated_m_steps(self, network, demos, gamma):
        result = fit_drivers(network, demos, 2, model="MaxEnt", gamma=gamma, seed=3, likelihood_tol=None, **PLAIN)
        model = MaxEnt(9, (-10.0, 0.0), solver="lbfgs", gtol=1e-3, max_evaluations=50)
        mixture = IntentMixture(2, model, resp_tol=1e-3, max_evaluations=50, random_state=3)
        wanted = mixture.fit(network.mdp("plain", gamma=gamma), demos)
        np.testing.assert_array_equal(result.mixture.thetas_, wanted.thetas_)
        np.testing.assert_array_equal(result.mixture.weights_, wanted.weights_)
        assert result.mixture.get_params()["resp_tol"] == 1e-3
        assert result.mixture.n_iter_ == wanted.n_iter_
        assert result.mixture.mdp_.gamma == gamma
        assert result.selection is None

    def test_destination_model_is_the_default_with_turns_and_choices(self, network, demos):
        result = fit_drivers(network, demos, 2, **PLAIN)
        model = DestinationMaxEnt((-50.0, 0.0), ridge=1e-3, solver="bfgs", gtol=1e-3, max_evaluations=50)
        turns = FeatureChoice(speed_groups=None, regions=False, turns=True, choices=True)
        settings = {"resp_tol": 1e-3, "likelihood_tol": 5e-4, "random_state": 0}
        wanted = IntentMixture(2, model, **settings).fit(network.mdp(turns), demos)
        np.testing.assert_array_equal(result.mixture.thetas_, wanted.thetas_)
        assert result.mixture.n_iter_ == wanted.n_iter_
        assert result.mixture.get_params()["max_iter"] == 30
        assert result.features == turns
        # An explicit choice of features is not changed.
        own = replace(turns, turns=False)
        assert fit_drivers(network, demos, 1, **PLAIN | {"features": own}).features == own
        assert isinstance(result.mixture.irl_, DestinationMaxEnt)

    def test_mixture_settings_are_passed_on(self, network, demos):
        reports = []
        result = fit_drivers(
            network,
            demos,
            2,
            init="random",
            resp_tol=0.5,
            max_iter=4,
            progress=lambda *report: reports.append(report),
            **PLAIN,
        )
        assert (result.mixture.init, result.mixture.resp_tol, result.mixture.max_iter) == ("random", 0.5, 4)
        assert len(reports) == result.mixture.n_iter_ + 1

    def test_features_can_be_chosen(self, network, demos):
        turns = FeatureChoice(speed_groups=None, regions=False, turns=True)
        result = fit_drivers(network, demos, 1, model="MaxEnt", max_length=9, features=turns)
        assert result.features == turns
        assert result.mixture.mdp_.feature_names == network.mdp(turns).feature_names
        paper = fit_drivers(network, demos, 1, model="MaxEnt", max_length=9)
        assert paper.features == FeatureChoice()
        assert paper.mixture.thetas_.shape == (1, 24)

    def test_unknown_model_is_rejected(self, network, demos):
        with raises(InvalidParameter, parameter="model", value="Ziebart"):
            fit_drivers(network, demos, 2, model="Ziebart", **PLAIN)

    def test_destination_model_rejects_a_discount(self, network, demos):
        with raises(InvalidParameter, parameter="gamma", value=0.999):
            fit_drivers(network, demos, 2, gamma=0.999, **PLAIN)


class TestTrips:
    def test_too_long_trips_are_left_out(self, network):
        odd = demonstrations([TOO_LONG, *drives(10), PASSED_BEFORE])
        assert fit_drivers(network, odd, 1, model="MaxEnt", **PLAIN).demos.ids.tolist() == list(range(1, 12))
        bound = fit_drivers(network, odd, 1, **PLAIN)
        assert bound.demos.ids.tolist() == list(range(1, 11))  # the last one visits its destination early
        assert len(fit_drivers(network, odd, 1, model="MaxEnt", features="plain", max_length=10).demos) == 12

    def test_no_remaining_trips_are_an_error(self, network, demos):
        with raises(InvalidDemos, parameter="max_length", value=2):
            fit_drivers(network, demos, 2, max_length=2)
        with raises(InvalidDemos, parameter="demos") as caught:
            fit_drivers(network, demonstrations([PASSED_BEFORE, TOO_LONG]), 1, **PLAIN)
        assert "max_length" not in str(caught.value)

    def test_trips_of_a_driver_share_a_style_with_by_driver(self, network, demos):
        result = fit_drivers(network, demos, 2, by_driver=True, **QUICK).mixture
        apart = fit_drivers(network, demos, 2, **QUICK).mixture
        assert len(result.groups_) == 6
        for driver in range(6):
            assert np.ptp(result.responsibilities_[demos.groups == driver], axis=0).max() == 0.0
        assert np.ptp(apart.responsibilities_[demos.groups == 0], axis=0).max() > 0.01

    def test_by_driver_needs_groups(self, network):
        with raises(InvalidDemos, parameter="by_driver", value=True):
            fit_drivers(network, demonstrations(drives(10)), 2, by_driver=True, **PLAIN)


class TestNumber:
    def test_stick_breaking_uses_the_number_of_clusters(self, network):
        # Two types of identical trips form two clusters with every method.
        two = Demonstrations.from_lists([MOTORWAY] * 10 + [STREET] * 14)
        result = fit_drivers(network, two, **QUICK)
        assert result.n_clusters == result.mixture.n_intents == len(result.mixture.weights_) == 2
        same = fit_drivers(network, Demonstrations.from_lists([STREET] * 12), **QUICK)
        assert same.n_clusters == same.mixture.n_intents == 1

    def test_a_given_number_is_used(self, network):
        two = Demonstrations.from_lists([MOTORWAY] * 10 + [STREET] * 14)
        result = fit_drivers(network, two, 1, **PLAIN)
        assert (result.n_clusters, len(result.mixture.weights_)) == (2, 1)

    def test_select_uses_the_recommended_number(self, network, demos):
        done = []
        result = fit_drivers(network, demos, "select", progress=lambda *report: done.append(report[:2]), **QUICK)
        assert done[-1][0] == done[-1][1] == len(done) > 6
        assert [row.n_intents for row in result.selection.rows] == [1, 2, 3, 4, 5, 6]
        assert result.mixture is result.selection.best
        assert len(result.mixture.weights_) == result.selection.recommended
        assert result.selection.to_dict()["unit"] == "demonstrations"

    def test_select_holds_out_whole_drivers(self, network, demos, monkeypatch):
        monkeypatch.setattr(fit, "_MOST_INTENTS", 1)
        held_out = []
        # With two drivers, there are two folds; with one driver, trips are held out.
        for groups in (np.arange(24) % 6, np.arange(24) % 2, np.zeros(24, dtype=int), None):
            few = fit_drivers(network, replace(demos, groups=groups), "select", **QUICK).selection
            held_out.append(few.rows[0].held_out)
        assert np.all(np.isfinite(held_out))
        assert len(set(held_out)) == 3
        assert held_out[2] == held_out[3]

    def test_there_are_never_more_styles_than_drivers(self, network, demos):
        free = fit_drivers(network, demos, 1, model="MaxEnt", **QUICK)
        assert (free.n_clusters, free.capped) == (3, False)
        two, three = (replace(demos, groups=np.arange(24) % n) for n in (2, 3))
        result = fit_drivers(network, two, model="MaxEnt", by_driver=True, **QUICK)
        assert result.n_clusters == len(result.mixture.weights_) == 2
        assert result.capped
        chosen = fit_drivers(network, three, "select", model="MaxEnt", by_driver=True, **QUICK)
        assert [row.n_intents for row in chosen.selection.rows] == [1, 2]  # a fold leaves two of three
        assert chosen.selection.to_dict()["unit"] == "groups"

    def test_another_word_is_rejected(self, network, demos):
        with raises(InvalidParameter, parameter="n_intents", value="stick"):
            fit_drivers(network, demos, "stick", **PLAIN)
