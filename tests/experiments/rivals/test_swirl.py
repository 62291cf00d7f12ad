"""Methods on the data of SWIRL."""

import numpy as np
import pytest

from limiirl import MDP, Demonstrations
from limiirl.baselines import Uniform
from limiirl.experiments.rivals.swirl import (
    GRIDWORLD,
    HabitSetting,
    Windows,
    fit_baseline,
    fit_habit_intents,
    fit_intents,
    match_intents,
    read_windows,
    score_windows,
)

N = 127


def tree_walks(n, length, seed):
    """Return an MDP of the labyrinth, and walks that rarely turn back."""
    below = np.arange(1, N)
    above = (below - 1) // 2
    mdp = MDP.from_edges(np.concatenate([below, above]), np.concatenate([above, below]), gamma=0.9)
    rng, paths = np.random.default_rng(seed), []
    for _ in range(n):
        path = [0]
        for _ in range(length):
            after = mdp.dst[mdp.out_ptr[path[-1]] : mdp.out_ptr[path[-1] + 1]]
            weight = np.where(np.isin(after, path[-2:-1]), 0.1, 1.0)
            path.append(int(rng.choice(after, p=weight / weight.sum())))
        paths.append(path)
    return mdp, Demonstrations.from_lists(paths)


@pytest.fixture(scope="module")
def walks():
    mdp, demos = tree_walks(20, 60, 0)
    return Windows(mdp, demos, np.arange(20) % 5 != 0)


def uniform(mdp, demos):
    return fit_baseline(Uniform, mdp, demos)


def test_first_decisions_are_not_scored(walks):
    score = score_windows(uniform, walks, 0)
    degree = np.diff(walks.mdp.out_ptr)
    expected = [-np.sum(np.log(degree[walks.demos[i].states[1:-1]])) for i in np.flatnonzero(~walks.train).tolist()]
    np.testing.assert_allclose(score.sums, expected, rtol=1e-12)
    np.testing.assert_allclose(score.sizes, 59.0, rtol=0)


def test_unused_actions_have_the_probability_of_the_rule_of_succession(walks):
    """With four actions per state, the root has two and other nodes have one or three that occur."""
    score = score_windows(uniform, walks, 0)
    four = score_windows(uniform, walks._replace(n_actions=4), 0)
    n = int(np.sum(walks.demos[walks.train].lengths))
    np.testing.assert_allclose(four.sums, score.sums + 59 * np.log(1.0 - 1.0 / (n + 2)), rtol=1e-12)


def test_folds_divide_the_training_recordings(walks):
    folds = [walks.split(fold) for fold in range(5)]
    scored = np.concatenate([test for _, test in folds])
    assert sorted(scored.tolist()) == np.flatnonzero(walks.train).tolist()
    assert all(not np.intersect1d(*fold).size for fold in folds)


def test_habits_of_several_steps_predict_walks_that_rarely_turn_back(walks):
    setting = HabitSetting(order=2, habit_sequences=(0.3, 0.1), habit_turns=(1.0,), turns=(1.0,), sequences=(1.0,))
    alone = score_windows(
        lambda *given: fit_habit_intents(HabitSetting(**{**vars(setting), "n_intents": 1}), *given), walks, 0
    )
    assert alone.sums.sum() > score_windows(uniform, walks, 0).sums.sum() + 15.0
    two = score_windows(
        lambda *given: fit_habit_intents(HabitSetting(**{**vars(setting), "n_intents": 2, "ridge": 1.0}), *given),
        walks,
        0,
    )
    # There is one intent, so that a second one with strongly shrunken rewards changes little.
    np.testing.assert_allclose(two.sums.sum(), alone.sums.sum(), rtol=0.03)
    assert two.note.startswith("K = 2")


def test_predictions_of_habits_are_probabilities(walks):
    """The probabilities of all continuations of a recording sum to 1."""
    setting = HabitSetting(order=2, habit_sequences=(0.3, 0.1), habit_turns=(1.0,), turns=(), sequences=(1.0,))
    model = fit_habit_intents(setting, walks.mdp, walks.demos[walks.train])
    path = [0, 1, 3]
    after = walks.mdp.dst[walks.mdp.out_ptr[3] : walks.mdp.out_ptr[4]].tolist()
    continued = Demonstrations.from_lists([[*path, node] for node in after])
    last = model.log_prob(continued).reshape(len(after), -1)[:, -1]
    np.testing.assert_allclose(np.exp(last).sum(), 1.0, rtol=1e-9)


def test_matching_of_intents_is_the_best_one():
    truth = np.array([0, 0, 0, 1, 1, 2])
    assert match_intents(truth, np.array([2, 2, 1, 0, 0, 1])) == pytest.approx(5 / 6)


def test_grid_intents_are_recovered():
    """Two intents, which prefer one action each, switch every 40 steps."""
    n, rng = 5, np.random.default_rng(0)
    mdp = MDP.from_edges(
        np.repeat(np.arange(n), 2), np.column_stack([(np.arange(n) + 1) % n, (np.arange(n) - 1) % n]).ravel(),
        action=np.tile([0, 1], n), gamma=0.9,
    )  # fmt: skip
    intents = np.tile(np.repeat([0, 1], 40), 3)
    paths, actions = [], []
    for _ in range(10):
        taken = np.where(rng.random(240) < 0.9, intents, 1 - intents)
        paths.append(np.append(0, np.cumsum(1 - 2 * taken) % n).tolist())
        actions.append(taken.tolist())
    data = Windows(mdp, Demonstrations.from_lists(paths, actions), np.arange(10) % 5 != 0, intents=np.tile(intents, 10))

    def fit(mdp, demos):
        from limiirl.mdp import add_edge_features, sequence_features

        return fit_intents(
            lambda own: add_edge_features(own, sequence_features(own, 2)), {"n_intents": 2}, mdp, demos, ridge=1e-3
        )

    score = score_windows(fit, data, 0)
    assert score.accuracy > 0.93
    assert GRIDWORLD.goals[1].attribute == "accuracy"


def test_windows_of_swirl(shared_data):
    data = read_windows(shared_data("swirl_labyrinth"))
    assert (len(data.demos), int(data.train.sum()), data.n_actions) == (238, 190, 4)
    # 63 junctions with three moves, of which that of the root to itself is one, and 64 dead ends with one.
    assert data.mdp.n_edges == 63 * 3 + 64
    score = score_windows(uniform, data, 0)
    assert score.sizes.sum() == 48 * 499
