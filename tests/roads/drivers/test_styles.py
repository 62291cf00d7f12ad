"""Normalisation of rewards, and descriptions of styles."""

import numpy as np
import pytest

from limiirl.errors import InvalidParameter
from limiirl.report.roads import styles_view
from limiirl.roads import FeatureChoice, RoadNetwork
from limiirl.roads.drivers.styles import NormalisedRewards, describe_fit, match_rewards, normalise_rewards
from tests.helpers import raises

RING = RoadNetwork.from_segments([41.15, 41.16, 41.16], [-8.63, -8.63, -8.62], [0, 1, 2], [1, 2, 0])


def test_extra_features_may_have_any_sum():
    km = RING.length_m / 1000.0
    choice = FeatureChoice(speed_groups=None, extra={"km in the park": km / 2.0, "climb": -km})
    phi = RING.mdp(choice).state_features.toarray()
    driven = phi.sum(axis=0)
    thetas = np.random.default_rng(0).normal(size=(2, phi.shape[1]))
    normalised = normalise_rewards(thetas, choice.groups, driven)
    np.testing.assert_allclose(normalised.reward(phi, km), thetas @ phi.T, rtol=1e-12)
    extra = list(choice.groups["extra"])
    np.testing.assert_array_equal(normalised.thetas[:, extra], thetas[:, extra])
    for group in ("road class", "region"):
        places = list(choice.groups[group])
        np.testing.assert_allclose(normalised.thetas[:, places] @ driven[places], 0.0, atol=1e-12)


@pytest.mark.parametrize("km", [-3.0, np.nan])
def test_an_invalid_length_is_reported(km):
    with raises(InvalidParameter, parameter="km", index=1):
        normalise_rewards([[1.0, 2.0, 3.0]], {"extra": (0,), "road class": (2, 1)}, [-9.0, km, 1.0])


def test_similarity_does_not_depend_on_the_sign_of_km():
    one = NormalisedRewards(np.zeros(2), np.array([[0.0, 0.0], [0.0, 5.0]]))
    two = NormalisedRewards(np.zeros(2), np.array([[0.0, 4.0], [0.0, 1.0]]))
    assert match_rewards(one, two, [1.0, -8.0]).tolist() == [1, 0]


def test_describe_fit_agrees_with_the_report_page(small_city, small_fit):
    assert describe_fit(small_fit) == styles_view(small_city.network, small_fit).descriptions
    assert all(style.long.endswith(".") for style in describe_fit(small_fit))
