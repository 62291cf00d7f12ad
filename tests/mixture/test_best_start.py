"""`init="best"`: never worse than its candidate clusterings, reproducible, and with one set of warnings."""

import warnings

import numpy as np
import pytest

from limiirl import Demonstrations, IntentMixture, MaxCausalEnt, MaxEnt
from limiirl.errors import DegenerateIntentWarning, InvalidParameter
from limiirl.irl.problem import make_problem
from limiirl.mixture.init import Starts
from limiirl.worlds import ElementWorld
from tests.oracles.mixture import crossings, walks

DEMOS, LABELS = walks(80, seed=3)


def start(model, init, **parameters):
    return IntentMixture(2, model, init, random_state=0, max_iter=0, **parameters).fit(crossings(), DEMOS)


@pytest.mark.parametrize("irl", [MaxEnt(7, bounds=(-5, 5)), MaxCausalEnt(bounds=(-5, 5))], ids=["MaxEnt", "causal"])
def test_best_has_the_highest_objective_of_its_candidates(irl):
    best = start(irl, "best").objective_
    others = [start(irl, "kmeans"), start(irl, "gmm"), start(irl, "kmeans", embedding="gradients")]
    assert max(other.objective_ for other in others) <= best + 1e-6
    assert min(other.objective_ for other in others) < best - 5e-5


def test_best_separates_intents_that_kmeans_confuses():
    world = ElementWorld(n_elements=6, wind=0.1, height=6, gamma=0.99, seed=1002)
    demos, labels = world.sample(100, seed=2004)
    result = {}
    for init in ("kmeans", "best"):
        mix = IntentMixture(6, MaxEnt(int(demos.lengths.max())), init, random_state=0, max_iter=0)
        U = mix.fit(world.mdp, demos).responsibilities_
        result[init] = sum(np.bincount(U.argmax(axis=1)[labels == k], minlength=6).max() for k in range(6))
    assert result["best"] > result["kmeans"]


def test_best_clusters_a_given_embedding_only():
    ready = make_problem(MaxEnt(7), crossings(), DEMOS)
    points = np.asarray(LABELS, dtype=np.float64)[:, None]
    assert [c.init for c in Starts("best", points, ready).candidates] == ["kmeans", "gmm"]
    assert len(Starts("best", None, ready).candidates) == 3
    mix = start(MaxEnt(7, bounds=(-5, 5)), "best", embedding=points)
    np.testing.assert_allclose(np.sort(mix.history_[0].weights), np.sort(np.bincount(LABELS) / 80), atol=1e-6)


def test_groups_restarts_and_one_intent():
    groups = np.arange(80) // 4
    irl = MaxEnt(7, bounds=(-5, 5))
    fits = [
        IntentMixture(2, irl, "best", n_init=2, random_state=1, likelihood_tol=1e-3).fit(crossings(), DEMOS, groups)
        for _ in range(2)
    ]
    np.testing.assert_array_equal(fits[0].thetas_, fits[1].thetas_)
    assert len(fits[0].restarts_) == 2
    assert IntentMixture(1, irl, "best", random_state=0).fit(crossings(), DEMOS).weights_.tolist() == [1.0]


def test_identical_demonstrations_warn_once():
    same = Demonstrations.from_lists([[0, 1, 5]] * 4)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        IntentMixture(2, MaxEnt(7, bounds=(-5, 5)), "best", random_state=0).fit(crossings(), same)
    empty = [w for w in caught if "initially assigned" in str(w.message)]
    assert len(empty) == 1
    assert issubclass(empty[0].category, DegenerateIntentWarning)


def test_a_similar_name_is_rejected():
    with pytest.raises(InvalidParameter, match="best, random_rewards"):
        start(MaxEnt(7), "beste")
