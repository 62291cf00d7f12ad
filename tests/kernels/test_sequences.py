"""GPOMDP's baseline against loops, for one reward and for several features, and what it is for."""

import numpy as np
import pytest

from limiirl.kernels.sequences import baseline

RNG = np.random.default_rng(0)
G, COLLECTED = np.cumsum(RNG.normal(size=(6, 4, 3)), axis=1), RNG.normal(size=(6, 4, 2))
G[:, 1, 2] = 0.0  # a step and an entry without a score


@pytest.mark.parametrize("floor", [0.0, 1e-10, 0.5])
def test_a_baseline_is_a_weighted_mean(floor):
    actual = baseline(G, COLLECTED, floor)
    for t, d, q in np.ndindex(4, 3, 2):
        weights = [G[n, t, d] ** 2 for n in range(6)]
        total = sum(weights) + floor
        wanted = sum(w * COLLECTED[n, t, q] for n, w in enumerate(weights)) / total if total > 0.0 else 0.0
        np.testing.assert_allclose(actual[t, d, q], wanted, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("floor", [0.0, 0.5])
def test_one_reward_is_a_single_feature(floor):
    for q in range(2):
        alone = baseline(G, COLLECTED[..., q], floor)
        assert alone.shape == (4, 3)
        np.testing.assert_allclose(alone, baseline(G, COLLECTED, floor)[..., q], rtol=1e-12)


def test_no_other_baseline_has_a_smaller_second_moment():
    best = baseline(G, COLLECTED, 0.0)

    def moment(b: np.ndarray) -> np.ndarray:
        return np.sum((G[..., None] * (COLLECTED[:, :, None, :] - b)) ** 2, axis=0)

    for change in (-0.1, 0.1):
        assert np.all(moment(best + change) >= moment(best))
    assert np.any(moment(best + 0.1) > moment(best))
