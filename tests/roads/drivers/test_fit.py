"""Driving styles from trips on six segments: which model is fitted, to which trips, and how many styles there are."""

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
QUICK = PLAIN | {"tol": 1.0}  # one step of EM


@pytest.fixture(scope="module")
def network():
    return two_ways()


@pytest.fixture(scope="module")
def demos():
    """24 trips of 6 drivers."""
    return demonstrations(drives(24), groups=np.arange(24) % 6)


class TestModel:
    @pytest.mark.parametrize("gamma", [1.0, 0.999])
    def test_is_the_papers_with_capped_steps(self, network, demos, gamma):
        found = fit_drivers(network, demos, 2, gamma=gamma, random_state=3, **PLAIN)
        model = MaxEnt(9, (-10.0, 0.0), solver="lbfgs", gtol=1e-3, max_evaluations=50)
        mixture = IntentMixture(2, model, tol=1e-3, max_evaluations=50, random_state=3)
        wanted = mixture.fit(network.mdp("plain", gamma=gamma), demos)
        np.testing.assert_array_equal(found.mixture.thetas_, wanted.thetas_)
        np.testing.assert_array_equal(found.mixture.weights_, wanted.weights_)
        assert found.mixture.get_params()["tol"] == 1e-3
        assert found.mixture.n_iter_ == wanted.n_iter_
        assert found.mixture.mdp_.gamma == gamma
        assert found.selection is None

    def test_to_a_destination_needs_wider_bounds_and_turns(self, network, demos):
        found = fit_drivers(network, demos, 1, model="DestinationMaxEnt", **PLAIN)
        model = DestinationMaxEnt((-50.0, 0.0), solver="bfgs", gtol=1e-3, max_evaluations=50)
        turns = FeatureChoice(speed_groups=None, regions=False, turns=True)
        wanted = IntentMixture(1, model, tol=1e-3, random_state=0).fit(network.mdp(turns), demos)
        np.testing.assert_array_equal(found.mixture.thetas_, wanted.thetas_)
        assert found.features == turns
        # Features that were put together by hand are left as they are.
        own = replace(turns, turns=False)
        assert fit_drivers(network, demos, 1, model="DestinationMaxEnt", **PLAIN | {"features": own}).features == own
        assert isinstance(found.mixture.irl_, DestinationMaxEnt)

    def test_settings_of_the_mixture_come_through(self, network, demos):
        told = []
        found = fit_drivers(network, demos, 2, init="random", tol=0.5, max_iter=4, callback=told.append, **PLAIN)
        assert (found.mixture.init, found.mixture.tol, found.mixture.max_iter) == ("random", 0.5, 4)
        assert len(told) == found.mixture.n_iter_ + 1

    def test_features_can_be_chosen_and_are_told(self, network, demos):
        turns = FeatureChoice(speed_groups=None, regions=False, turns=True)
        found = fit_drivers(network, demos, 1, max_length=9, features=turns)
        assert found.features == turns
        assert found.mixture.mdp_.feature_names == network.mdp(turns).feature_names
        paper = fit_drivers(network, demos, 1, max_length=9)
        assert paper.features == FeatureChoice()
        assert paper.mixture.thetas_.shape == (1, 24)

    def test_an_unknown_one_is_refused_by_its_name(self, network, demos):
        with raises(InvalidParameter, parameter="model", value="Ziebart"):
            fit_drivers(network, demos, 2, model="Ziebart", **PLAIN)

    def test_to_a_destination_has_no_discount(self, network, demos):
        with raises(InvalidParameter, parameter="gamma", value=0.999):
            fit_drivers(network, demos, 2, model="DestinationMaxEnt", gamma=0.999, **PLAIN)


class TestTrips:
    def test_that_are_too_long_are_left_out(self, network):
        odd = demonstrations([TOO_LONG, *drives(10), PASSED_BEFORE])
        assert fit_drivers(network, odd, 1, **PLAIN).demos.ids.tolist() == list(range(1, 12))
        bound = fit_drivers(network, odd, 1, model="DestinationMaxEnt", **PLAIN)
        assert bound.demos.ids.tolist() == list(range(1, 11))  # the last one passes its end before
        assert len(fit_drivers(network, odd, 1, features="plain", max_length=10).demos) == 12

    def test_none_left_is_an_error(self, network, demos):
        with raises(InvalidDemos, parameter="max_length", value=2):
            fit_drivers(network, demos, 2, max_length=2)
        with raises(InvalidDemos, parameter="demos") as caught:
            fit_drivers(network, demonstrations([PASSED_BEFORE, TOO_LONG]), 1, model="DestinationMaxEnt", **PLAIN)
        assert "max_length" not in str(caught.value)

    def test_of_a_driver_share_a_style_where_asked(self, network, demos):
        found = fit_drivers(network, demos, 2, by_driver=True, **QUICK).mixture
        apart = fit_drivers(network, demos, 2, **QUICK).mixture
        assert len(found.groups_) == 6
        for driver in range(6):
            assert np.ptp(found.responsibilities_[demos.groups == driver], axis=0).max() == 0.0
        assert np.ptp(apart.responsibilities_[demos.groups == 0], axis=0).max() > 0.01

    def test_of_nobody_in_particular_share_none(self, network):
        with raises(InvalidDemos, parameter="by_driver", value=True):
            fit_drivers(network, demonstrations(drives(10)), 2, by_driver=True, **PLAIN)


class TestNumber:
    def test_by_sticks_is_what_they_see(self, network):
        # Two kinds of trips, all alike: two clusters, whatever the method.
        two = Demonstrations.from_lists([MOTORWAY] * 10 + [STREET] * 14)
        found = fit_drivers(network, two, **QUICK)
        assert found.sticks == found.mixture.n_intents == len(found.mixture.weights_) == 2
        same = fit_drivers(network, Demonstrations.from_lists([STREET] * 12), **QUICK)
        assert same.sticks == same.mixture.n_intents == 1

    def test_that_is_given_is_taken_and_the_sticks_are_told(self, network):
        two = Demonstrations.from_lists([MOTORWAY] * 10 + [STREET] * 14)
        found = fit_drivers(network, two, 1, **PLAIN)
        assert (found.sticks, len(found.mixture.weights_)) == (2, 1)

    def test_by_selection_is_the_recommended_one(self, network, demos):
        done = []
        found = fit_drivers(network, demos, "select", progress=lambda *told: done.append(told[:2]), **QUICK)
        assert done[-1][0] == done[-1][1] == len(done) > 6
        assert [row.n_intents for row in found.selection.rows] == [1, 2, 3, 4, 5, 6]
        assert found.mixture is found.selection.best
        assert len(found.mixture.weights_) == found.selection.recommended
        assert found.selection.to_dict()["unit"] == "demonstrations"

    def test_by_selection_holds_out_whole_drivers_where_they_are_known(self, network, demos, monkeypatch):
        monkeypatch.setattr(fit, "_MOST_INTENTS", 1)
        held_out = []
        # Two drivers make two folds; one makes none, and then trips are held out as if nobody were known.
        for groups in (np.arange(24) % 6, np.arange(24) % 2, np.zeros(24, dtype=int), None):
            few = fit_drivers(network, replace(demos, groups=groups), "select", **QUICK).selection
            held_out.append(few.rows[0].held_out)
        assert np.all(np.isfinite(held_out))
        assert len(set(held_out)) == 3
        assert held_out[2] == held_out[3]

    def test_of_styles_is_never_more_than_of_drivers(self, network, demos):
        free = fit_drivers(network, demos, 1, **QUICK)
        assert (free.sticks, free.capped) == (3, False)
        two, three = (replace(demos, groups=np.arange(24) % n) for n in (2, 3))
        found = fit_drivers(network, two, by_driver=True, **QUICK)
        assert found.sticks == len(found.mixture.weights_) == 2
        assert found.capped
        chosen = fit_drivers(network, three, "select", by_driver=True, **QUICK)
        assert [row.n_intents for row in chosen.selection.rows] == [1, 2]  # a fold leaves two of three
        assert chosen.selection.to_dict()["unit"] == "groups"

    def test_in_other_words_is_refused(self, network, demos):
        with raises(InvalidParameter, parameter="n_intents", value="stick"):
            fit_drivers(network, demos, "stick", **PLAIN)
