"""Simulated data sets: reproducible, with the shares that they promise, and recoverable by the estimators."""

import numpy as np
import pytest

import limiirl as ll
from limiirl.datasets import make_commutes, make_foraging
from limiirl.errors import InvalidParameter
from tests.helpers import raises


@pytest.mark.parametrize("make", [make_foraging, make_commutes])
def test_a_seed_determines_the_data(make):
    assert make(40, seed=3).demos == make(40, seed=3).demos
    assert make(40, seed=3).demos != make(40, seed=4).demos


@pytest.mark.parametrize("make", [make_foraging, make_commutes])
def test_transitions_are_possible(make):
    data = make(40, seed=1)
    assert data.demos.steps(data.mdp).edge.min() >= 0


def test_foraging_has_the_documented_shares_and_dwell_times():
    data = make_foraging(20_000, seed=0)
    intents = data.intents.reshape(8, -1)
    for name, expected in (("control", [0.5, 0.3, 0.2]), ("thirsty", [0.3, 0.2, 0.5])):
        chosen = intents[data.condition == name]
        np.testing.assert_allclose(np.bincount(chosen.ravel()) / chosen.size, expected, rtol=0.0, atol=0.03)
    switches = np.mean(intents[:, 1:] != intents[:, :-1])
    np.testing.assert_allclose(1.0 / switches, 25.0, rtol=0.05)


@pytest.mark.slow
def test_switching_intents_are_recovered():
    data = make_foraging(seed=0)
    sw = ll.SwitchingMixture(3, ll.MaxCausalEnt(ridge=1e-4), n_init=5, random_state=0)
    sw.fit(data.mdp, data.demos)
    predicted = sw.predict(data.demos)
    counts = np.array([[np.sum((predicted == j) & (data.intents == k)) for k in range(3)] for j in range(3)])
    assert counts.max(axis=1).sum() > 0.95 * data.intents.size
    assert sorted(counts.argmax(axis=1)) == [0, 1, 2]


@pytest.mark.slow
def test_kinds_of_drivers_are_recovered():
    data = make_commutes(seed=0)
    mix = ll.IntentMixture(2, ll.DestinationMaxEnt(bounds=None), random_state=0)
    mix.fit(data.mdp, data.demos, groups=data.demos.groups)
    agreement = np.mean(mix.labels_ == data.demos.labels)
    assert max(agreement, 1.0 - agreement) > 0.9


@pytest.mark.parametrize(("make", "least"), [(make_foraging, 1), (make_commutes, 7)])
def test_too_few_steps_or_trips_are_refused(make, least):
    with raises(InvalidParameter, value=least):
        make(least)
