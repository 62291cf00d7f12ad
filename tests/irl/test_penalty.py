"""Choice of ridge coefficients: scores against separate fits, folds of groups, and odd grids."""

import numpy as np
import pytest

from limiirl import MaxCausalEnt, MaxEnt
from limiirl.errors import InvalidParameter
from limiirl.irl import select_penalty
from limiirl.worlds import ElementWorld
from tests.helpers import raises

WORLD = ElementWorld(seed=1)
DEMOS, _ = WORLD.sample(30, seed=1)
GRID = {"element *": [0.1, 10.0], "*": [1e-3]}


# The reward of the goal is not identified in a causal model.
@pytest.mark.filterwarnings("ignore::limiirl.errors.IdentifiabilityWarning")
@pytest.mark.parametrize("model", [MaxEnt(40, bounds=None, gtol=1e-8), MaxCausalEnt(gtol=1e-8)], ids=str)
def test_scores_are_those_of_separate_fits(model):
    path = select_penalty(WORLD.mdp, DEMOS, model, GRID, n_folds=3, seed=5)
    assert path.ridges == [{"element *": 10.0, "*": 1e-3}, {"element *": 0.1, "*": 1e-3}]
    fold = np.random.default_rng(5).permutation(np.arange(30) % 3)
    names = WORLD.mdp.feature_names
    for i, ridge in enumerate(path.ridges):
        for f in range(3):
            alone = type(model)(**{**model.get_params(), "ridge": ridge})
            theta = alone.fit(WORLD.mdp, DEMOS[fold != f])
            expected = alone.log_prob(WORLD.mdp, theta, DEMOS[fold == f]).mean()
            np.testing.assert_allclose(path.scores[i, f], expected, rtol=1e-4)
    assert path.best == int(np.argmax(path.scores.mean(axis=1)))
    assert path.model.ridge == path.ridge
    assert path.theta.shape == (len(names),)
    frame = path.to_frame()
    np.testing.assert_allclose(frame["score"], path.scores.mean(axis=1), rtol=1e-14)
    assert frame["element *"].tolist() == [10.0, 0.1]


def test_demonstrations_of_a_group_are_held_out_together():
    seen = []

    class Recording(MaxEnt):
        def log_prob(self, mdp, thetas, demos):
            seen.append(set(demos.groups.tolist()))
            return super().log_prob(mdp, thetas, demos)

    groups = np.repeat(np.arange(6), 5)
    grouped = type(DEMOS)(DEMOS.states, DEMOS.offsets, DEMOS.actions, groups=groups)
    select_penalty(WORLD.mdp, grouped, Recording(40), {"*": [1.0]}, n_folds=3)
    assert sorted(len(part) for part in seen) == [2, 2, 2]
    assert set.union(*seen) == set(range(6))


@pytest.mark.parametrize(
    ("changes", "parameter", "value"),
    [
        ({"grid": {}}, "grid", {}),
        ({"grid": {"*": []}}, "grid", "*"),
        ({"grid": {"*": [-1.0]}}, "grid", -1.0),
        ({"grid": {"lane *": [1.0]}}, "ridge", "lane *"),
        ({"n_folds": 1}, "n_folds", 1),
        ({"n_folds": 31}, "n_folds", 31),
    ],
)
def test_odd_arguments_are_refused(changes, parameter, value):
    arguments = {"mdp": WORLD.mdp, "demos": DEMOS, "irl": MaxEnt(40), "grid": GRID} | changes
    with raises(InvalidParameter, parameter=parameter, value=value):
        select_penalty(**arguments)


def test_progress_counts_the_fits():
    calls = []
    options = {"n_folds": 2, "progress": lambda *call: calls.append(call[:2])}
    select_penalty(WORLD.mdp, DEMOS, MaxEnt(40), {"*": [1.0, 0.1]}, **options)
    assert calls == [(1, 4), (2, 4), (3, 4), (4, 4)]
