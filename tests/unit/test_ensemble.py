"""RewardEnsemble: a frozen value with shares and reward vectors."""

import dataclasses

import numpy as np
import pytest

from limiirl.errors import InvalidParameter
from limiirl.mdp.ensemble import RewardEnsemble

WEIGHTS = [0.25, 0.75]
THETAS = [[0.0, -1.0, -10.0], [0.0, -10.0, -1.0]]


def test_keeps_what_it_is_given() -> None:
    ensemble = RewardEnsemble(WEIGHTS, THETAS)
    assert (ensemble.n_intents, ensemble.n_features) == (2, 3)
    np.testing.assert_array_equal(ensemble.weights, WEIGHTS)
    np.testing.assert_array_equal(ensemble.thetas, THETAS)
    assert ensemble.weights.dtype == ensemble.thetas.dtype == np.float64


def test_is_frozen_and_owns_its_arrays() -> None:
    thetas = np.array(THETAS)
    ensemble = RewardEnsemble(WEIGHTS, thetas)
    thetas[0, 0] = 5.0
    assert ensemble.thetas[0, 0] == 0.0
    with pytest.raises(ValueError, match="read-only"):
        ensemble.thetas[0, 0] = 1.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        ensemble.weights = np.ones(2)  # type: ignore[misc]


def test_equality_and_hash_are_by_content() -> None:
    ensemble = RewardEnsemble(WEIGHTS, THETAS)
    signed_zeros = np.where(np.array(THETAS) == 0.0, -0.0, THETAS)
    assert ensemble == RewardEnsemble(WEIGHTS, signed_zeros)
    assert hash(ensemble) == hash(RewardEnsemble(WEIGHTS, signed_zeros))
    assert ensemble != RewardEnsemble(WEIGHTS[::-1], THETAS)
    assert ensemble != RewardEnsemble(WEIGHTS, THETAS[::-1])
    assert ensemble != "an ensemble"


def test_repr_shows_shares_and_rewards() -> None:
    text = repr(RewardEnsemble(WEIGHTS, THETAS))
    assert "2 intents, 3 features" in text
    assert "25.0 %" in text
    assert "-10." in text


def test_weights_may_be_off_by_rounding_only() -> None:
    RewardEnsemble([0.5, 0.5 + 9e-9], THETAS)
    with pytest.raises(InvalidParameter, match=r"sum to 1\.00000002. Divide them by their sum"):
        RewardEnsemble([0.5, 0.5 + 2e-8], THETAS)


@pytest.mark.parametrize(
    ("weights", "thetas", "message"),
    [
        ([], np.zeros((0, 3)), r"weights must have shape \(K,\) with K >= 1; got shape \(0,\). Pass"),
        ([WEIGHTS], THETAS, r"weights must have shape \(K,\).*got shape \(1, 2\). Pass"),
        ([1.25, -0.25], THETAS, r"weights\[1\] is -0.25. Drop or fix"),
        ([np.nan, 1.0], THETAS, r"weights\[0\] is nan. Drop or fix"),
        ([0.5, 0.25], THETAS, "sum to 0.75. Divide them by their sum"),
        (["a", "b"], THETAS, "weights must be an array of numbers.*Pass nested lists"),
        (WEIGHTS, THETAS[0], r"thetas must have shape \(K, d\) with K = 2.*got shape \(3,\). Pass one row"),
        (WEIGHTS, THETAS[:1], r"K = 2.*got shape \(1, 3\). Pass one row"),
        (WEIGHTS, np.zeros((2, 0)), r"got shape \(2, 0\). Pass one row of d >= 1"),
        (WEIGHTS, [[0.0, 1.0], [2.0, np.inf]], r"thetas\[1, 1\] is inf. Refit or bound"),
        (WEIGHTS, [[0.0, np.nan], [2.0, np.inf]], r"thetas\[0, 1\] is nan. Refit or bound"),
        (WEIGHTS, [[0.0], [1.0, 2.0]], "thetas must be an array of numbers.*Pass nested lists"),
    ],
)
def test_bad_input_names_index_and_remedy(weights: object, thetas: object, message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        RewardEnsemble(weights, thetas)  # type: ignore[arg-type]
