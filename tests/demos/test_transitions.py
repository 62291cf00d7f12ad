"""Steps of demonstrations matched to the edges of an MDP: against a dictionary, and each error with its place."""

import gc
import weakref

import numpy as np
import pytest

from limiirl.demos import Demonstrations
from limiirl.errors import InvalidDemos
from limiirl.mdp import MDP
from tests.helpers import raises


def random_table(rng, n_states=6, n_actions=3, deterministic=False):
    """T (S, A, S) with forbidden actions, self-loops and actions with the same targets; the last state is terminal."""
    T = np.zeros((n_states, n_actions, n_states))
    for s in range(n_states - 1):
        for a in range(n_actions):
            if a == 2 and rng.random() < 0.5:
                continue
            targets = rng.choice(n_states, size=1 if deterministic else rng.integers(1, 4), replace=False)
            if a == 1 and s in (0, 3):
                targets = np.flatnonzero(T[s, 0])
            T[s, a, targets] = 1 / len(targets) if deterministic else rng.dirichlet(np.ones(len(targets)))
    return T


def random_start(rng, n_states=6):
    p0 = rng.dirichlet(np.ones(n_states))
    p0[1] = 0
    return p0 / p0.sum()


def random_walks(rng, T, p0, n=30, longest=7):
    """States and actions of feasible walks; some have a single state, some end in the terminal state."""
    states, actions = [], []
    for _ in range(n):
        walk, taken = [int(rng.choice(len(p0), p=p0))], []
        for _ in range(rng.integers(0, longest)):
            available = np.flatnonzero(T[walk[-1]].any(axis=1))
            if available.size == 0:
                break
            taken.append(int(rng.choice(available)))
            row = T[walk[-1], taken[-1]]
            walk.append(int(rng.choice(len(p0), p=row / row.sum())))
        states.append(walk)
        actions.append(taken)
    return states, actions


def hide_some(rng, actions):
    return [[-1 if rng.random() < 0.5 else a for a in taken] for taken in actions]


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("recorded", ["all", "some", "none"])
@pytest.mark.parametrize("seed", range(10))
def test_edges_equal_those_found_by_a_dictionary(deterministic, recorded, seed):
    rng = np.random.default_rng([seed, deterministic])
    T, p0 = random_table(rng, deterministic=deterministic), random_start(rng)
    mdp = MDP.from_dense(T, p0)
    states, actions = random_walks(rng, T, p0)
    if recorded != "all":
        actions = hide_some(rng, actions) if recorded == "some" else None
    demos = Demonstrations.from_lists(states, actions)
    steps = demos.steps(mdp)

    number = {edge: i for i, edge in enumerate(zip(*(x.tolist() for x in (mdp.src, mdp.act, mdp.dst)), strict=True))}
    edge, demo_of_step, t_of_step, candidates = [], [], [], {}
    for i, walk in enumerate(states):
        for t in range(len(walk) - 1):
            a = -1 if actions is None else actions[i][t]
            found = [number[s, b, u] for (s, b, u) in number if (s, u) == (walk[t], walk[t + 1]) and a in (-1, b)]
            if len(found) > 1:
                candidates[len(edge)] = found
            edge.append(found[0] if len(found) == 1 else -1)
            demo_of_step.append(i)
            t_of_step.append(t)
    assert steps.n_transitions == demos.n_transitions == len(edge)
    np.testing.assert_array_equal(steps.edge, edge)
    np.testing.assert_array_equal(steps.demo_of_step, demo_of_step)
    np.testing.assert_array_equal(steps.t_of_step, t_of_step)
    np.testing.assert_array_equal(np.diff(steps.step_ptr), demos.lengths - 1)
    assert steps.ambiguous.tolist() == list(candidates)
    assert [x.tolist() for x in np.split(steps.cand_edge, steps.cand_ptr[1:-1])] == (list(candidates.values()) or [[]])
    # The cases must occur, or this test says nothing of them.
    assert bool(candidates) == (recorded != "all")


def test_parallel_edges_are_ambiguous_only_without_the_action():
    mdp = MDP.from_edges([0, 0, 0, 1], [1, 1, 2, 2], n_states=3, action=[4, 7, 7, 0], prob=[1, 0.5, 0.5, 1])
    recorded = Demonstrations.from_lists([[0, 1, 2]], [[7, 0]]).steps(mdp)
    np.testing.assert_array_equal(recorded.edge, [1, 3])
    assert recorded.ambiguous.size == recorded.cand_edge.size == 0
    unrecorded = Demonstrations.from_lists([[0, 1, 2], [0, 2]]).steps(mdp)
    np.testing.assert_array_equal(unrecorded.edge, [-1, 3, 2])
    np.testing.assert_array_equal(unrecorded.ambiguous, [0])
    np.testing.assert_array_equal(unrecorded.cand_ptr, [0, 2])
    np.testing.assert_array_equal(unrecorded.cand_edge, [0, 1])


def test_single_states_and_no_demonstrations_have_no_steps():
    mdp = MDP.from_edges([0], [1])
    for demos in (Demonstrations.from_lists([[0], [0]]), Demonstrations.from_lists([])):
        steps = demos.steps(mdp)
        assert steps.n_transitions == steps.edge.size == steps.demo_of_step.size == steps.ambiguous.size == 0
        np.testing.assert_array_equal(steps.cand_ptr, [0])
        np.testing.assert_array_equal(steps.step_ptr, np.zeros(len(demos) + 1))


def test_steps_are_read_only():
    steps = Demonstrations.from_lists([[0, 1]]).steps(MDP.from_edges([0], [1]))
    with pytest.raises(ValueError, match="read-only"):
        steps.edge[0] = 5


def line():
    """0 -> 1 -> 2 -> 3 (terminal); a second action in 1 leads back to 0 or stays; nothing starts in 2."""
    return MDP.from_edges(
        [0, 1, 1, 1, 2],
        [1, 2, 0, 1, 3],
        n_states=4,
        action=[0, 0, 2, 2, 1],
        prob=[1, 1, 0.5, 0.5, 1],
        p0=[0.5, 0.25, 0, 0.25],
    )


GOOD = [[0, 1, 2, 3], [0], [1, 1, 0]]
GOOD_ACTIONS = [[0, 0, 1], [], [2, 2]]


@pytest.mark.parametrize(
    ("states", "actions", "expected"),
    [
        (
            [0, 1, 3],
            [0, 2],
            {"parameter": "demos", "value": 3, "index": (3, 1)},
        ),
        (
            [0, 1, 3],
            [0, 1],
            {"parameter": "demos", "value": 3, "index": (3, 1)},
        ),
        (
            [0, 1, 3],
            [0, 99],
            {"parameter": "demos", "value": 3, "index": (3, 1)},
        ),
        (
            [0, 1, 3],
            None,
            {"parameter": "demos", "value": 3, "index": (3, 1)},
        ),
        (
            [1, 2, 3, 3],
            [0, 1, 0],
            {"parameter": "demos", "value": 3, "index": (3, 2)},
        ),
        ([3, 0], None, {"parameter": "demos", "value": 0, "index": (3, 0)}),
        (
            [2, 3],
            [1],
            {"parameter": "demos", "value": 2, "index": (3, 0)},
        ),
        (
            [0, 1, 4],
            [0, 0],
            {"parameter": "demos", "value": 4, "index": (3, 2)},
        ),
    ],
)
def test_impossible_steps_name_the_place_and_the_remedy(states, actions, expected):
    good = Demonstrations.from_lists(GOOD, GOOD_ACTIONS)
    assert good.steps(line()).n_transitions == 5
    demos = good + Demonstrations.from_lists([states], None if actions is None else [actions]) + good
    for use in (demos.steps, demos.features, demos.log_q):
        with raises(InvalidDemos, **expected):
            use(line())


def test_the_first_impossible_step_is_named_among_many():
    states = [[0, 1, 2, 3]] * 12 + [[0, 1, 0, 1, 3]] + [[0, 2]] * 5
    with raises(InvalidDemos, parameter="demos", value=3, index=(12, 3)):
        Demonstrations.from_lists(states).steps(line())
    named = Demonstrations.from_lists(states).replace(ids=[f"trip-{i}" for i in range(18)])
    with raises(InvalidDemos, parameter="demos", value=3, index=(12, 3)):
        named.steps(line())


def test_long_lists_of_alternatives_are_cut():
    star = MDP.from_edges([0] * 20, range(1, 21), n_states=22)
    with raises(InvalidDemos, parameter="demos", value=21, index=(0, 0)):
        Demonstrations.from_lists([[0, 21]]).steps(star)


def test_steps_are_computed_once_for_each_mdp():
    demos = Demonstrations.from_lists(GOOD, GOOD_ACTIONS)
    one, other = line(), line()
    steps = demos.steps(one)
    assert demos.steps(one) is steps
    assert demos.steps(other) is not steps
    assert demos.steps(one) is steps
    with raises(InvalidDemos, parameter="demos", value=1, index=(0, 0)):
        demos.steps(MDP.from_edges([0, 1], [2, 2], n_states=4))


def test_remembered_steps_keep_neither_the_mdp_nor_themselves_alive():
    demos = Demonstrations.from_lists(GOOD, GOOD_ACTIONS)
    mdp = line()
    gone, steps = weakref.ref(mdp), weakref.ref(demos.steps(mdp))
    gc.collect()
    assert steps() is not None
    del mdp
    gc.collect()
    assert gone() is None
    assert steps() is None


def test_a_recycled_identity_is_not_mistaken_for_the_old_mdp():
    demos = Demonstrations.from_lists([[0, 1]])
    for k in range(50):
        # Each MDP dies at once, so that the next one is likely to get its address.
        edges = demos.steps(MDP.from_edges([0] * (k % 5 + 1), [*range(2, k % 5 + 2), 1], n_states=7)).edge
        assert edges.tolist() == [k % 5]
