"""Real recordings pass through the library: mice in a labyrinth (Rosenberg et al. 2021)."""

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import limiirl as ll

pytestmark = pytest.mark.smoke

# The data set's README: a complete binary tree; node n has the children 2n + 1 and 2n + 2; node 0 is next to the home.
N_NODES = 127


def labyrinth() -> ll.MDP:
    child = np.arange(1, N_NODES)
    parent = (child - 1) // 2
    src, dst = np.concatenate([parent, child]), np.concatenate([child, parent])
    return ll.MDP.from_edges(src, dst, n_states=N_NODES, state_features=np.eye(N_NODES))


def bouts(folder: Path) -> tuple[list[list[int]], list[str]]:
    with (folder / "bouts.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [[int(node) for node in row["nodes"].split()] for row in rows], [row["mouse"] for row in rows]


def test_every_recorded_move_of_the_mice_is_legal(shared_data: Callable[[str], Path]):
    paths, mice = bouts(shared_data("mouse_labyrinth"))
    demos = ll.Demonstrations.from_lists(paths, groups=mice)
    assert (len(demos), demos.n_steps, len(set(mice))) == (3320, 286362, 20)

    mdp = labyrinth()
    steps = demos.steps(mdp)
    moves = np.concatenate([np.stack([path[:-1], path[1:]], axis=1) for path in paths if len(path) > 1])
    np.testing.assert_array_equal(np.stack([mdp.src[steps.edge], mdp.dst[steps.edge]], axis=1), moves)


def test_features_of_the_bouts_count_their_visits(shared_data: Callable[[str], Path]):
    paths, _ = bouts(shared_data("mouse_labyrinth"))
    visits = np.stack([np.bincount(path, minlength=N_NODES) for path in paths])
    np.testing.assert_array_equal(ll.Demonstrations.from_lists(paths).features(labyrinth()), visits)


def test_a_jump_through_a_wall_is_named(shared_data: Callable[[str], Path]):
    paths, _ = bouts(shared_data("mouse_labyrinth"))
    assert paths[3][:4] == [0, 2, 5, 12]
    paths[3][3] = 99
    demos = ll.Demonstrations.from_lists(paths)
    with pytest.raises(
        ll.errors.InvalidDemos, match="demonstration 3, step 2: no action leads from state 5 to state 99"
    ):
        demos.steps(labyrinth())
