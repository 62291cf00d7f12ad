"""Edges, feature counts and log-probabilities of demonstrations, against a dictionary and loops."""

import gc
import weakref

import numpy as np
import pytest
from scipy.sparse import csr_array

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
def test_edges_equal_a_dictionary_lookup(deterministic, recorded, seed):
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
            matches = [number[s, b, u] for (s, b, u) in number if (s, u) == (walk[t], walk[t + 1]) and a in (-1, b)]
            if len(matches) > 1:
                candidates[len(edge)] = matches
            edge.append(matches[0] if len(matches) == 1 else -1)
            demo_of_step.append(i)
            t_of_step.append(t)
    assert steps.n_transitions == demos.n_transitions == len(edge)
    np.testing.assert_array_equal(steps.edge, edge)
    np.testing.assert_array_equal(steps.demo_of_step, demo_of_step)
    np.testing.assert_array_equal(steps.t_of_step, t_of_step)
    np.testing.assert_array_equal(np.diff(steps.step_ptr), demos.lengths - 1)
    assert steps.ambiguous.tolist() == list(candidates)
    assert [x.tolist() for x in np.split(steps.cand_edge, steps.cand_ptr[1:-1])] == (list(candidates.values()) or [[]])
    # All cases must occur.
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
def test_impossible_steps_have_the_index_and_a_remedy(states, actions, expected):
    good = Demonstrations.from_lists(GOOD, GOOD_ACTIONS)
    assert good.steps(line()).n_transitions == 5
    demos = good + Demonstrations.from_lists([states], None if actions is None else [actions]) + good
    for use in (demos.steps, demos.features, demos.log_q):
        with raises(InvalidDemos, **expected):
            use(line())


def test_first_impossible_step_is_reported():
    states = [[0, 1, 2, 3]] * 12 + [[0, 1, 0, 1, 3]] + [[0, 2]] * 5
    with raises(InvalidDemos, parameter="demos", value=3, index=(12, 3)):
        Demonstrations.from_lists(states).steps(line())
    named = Demonstrations.from_lists(states).replace(ids=[f"trip-{i}" for i in range(18)])
    with raises(InvalidDemos, parameter="demos", value=3, index=(12, 3)):
        named.steps(line())


def test_long_lists_of_alternatives_are_truncated():
    star = MDP.from_edges([0] * 20, range(1, 21), n_states=22)
    with raises(InvalidDemos, parameter="demos", value=21, index=(0, 0)):
        Demonstrations.from_lists([[0, 21]]).steps(star)


def test_steps_are_cached_per_mdp():
    demos = Demonstrations.from_lists(GOOD, GOOD_ACTIONS)
    one, other = line(), line()
    steps = demos.steps(one)
    assert demos.steps(one) is steps
    assert demos.steps(other) is not steps
    assert demos.steps(one) is steps
    with raises(InvalidDemos, parameter="demos", value=1, index=(0, 0)):
        demos.steps(MDP.from_edges([0, 1], [2, 2], n_states=4))


def test_cached_steps_do_not_keep_the_mdp_alive():
    demos = Demonstrations.from_lists(GOOD, GOOD_ACTIONS)
    mdp = line()
    gone, steps = weakref.ref(mdp), weakref.ref(demos.steps(mdp))
    gc.collect()
    assert steps() is not None
    del mdp
    gc.collect()
    assert gone() is None
    assert steps() is None


def test_reused_id_does_not_return_old_steps():
    demos = Demonstrations.from_lists([[0, 1]])
    for k in range(50):
        # Each MDP dies at once, so that the next one is likely to get its address.
        edges = demos.steps(MDP.from_edges([0] * (k % 5 + 1), [*range(2, k % 5 + 2), 1], n_states=7)).edge
        assert edges.tolist() == [k % 5]


KINDS = ("state_features", "action_features", "edge_features")


def random_features(rng, S, A, by_action=True):
    """Features of all three kinds; without `by_action`, actions between the same states have equal features."""
    phi_s, phi_a, phi_e = rng.normal(size=(S, 2)), rng.normal(size=(S, A, 3)), rng.normal(size=(S, A, S, 2))
    phi_e[rng.random(phi_e.shape) < 0.5] = 0
    if not by_action:
        phi_a[:], phi_e[:] = phi_a[:, :1], phi_e[:, :1]
    return dict(zip(KINDS, (phi_s, phi_a, phi_e), strict=True))


def with_sparse_features(mdp):
    return mdp.replace(**{kind: csr_array(getattr(mdp, kind)) for kind in KINDS if getattr(mdp, kind) is not None})


def naive_features(states, actions, phi, gamma):
    rows = []
    for walk, taken in zip(states, actions, strict=True):
        parts = [np.zeros(phi[kind].shape[-1]) if kind in phi else np.zeros(0) for kind in KINDS]
        for t, s in enumerate(walk):
            if "state_features" in phi:
                parts[0] += gamma**t * phi["state_features"][s]
            if t < len(taken) and "action_features" in phi:
                parts[1] += gamma**t * phi["action_features"][s, taken[t]]
            if t < len(taken) and "edge_features" in phi:
                parts[2] += gamma**t * phi["edge_features"][s, taken[t], walk[t + 1]]
        rows.append(np.concatenate(parts))
    return np.array(rows)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("gamma", [0.5, 0.9, 1.0])
@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("kinds", [KINDS, KINDS[:1], KINDS[1:2], KINDS[2:], KINDS[1:]], ids="+".join)
def test_features_of_recorded_actions(seed, gamma, deterministic, kinds):
    rng = np.random.default_rng([seed, deterministic])
    T, p0 = random_table(rng, deterministic=deterministic), random_start(rng)
    phi = {kind: x for kind, x in random_features(rng, *T.shape[:2]).items() if kind in kinds}
    states, actions = random_walks(rng, T, p0)
    expected = naive_features(states, actions, phi, gamma)
    demos = Demonstrations.from_lists(states, actions)
    dense = MDP.from_dense(T, p0, gamma=gamma, **phi)
    for mdp in (dense, with_sparse_features(dense)):
        features = demos.features(mdp)
        assert features.shape == (30, mdp.n_features)
        assert features.dtype == np.float64
        assert features.flags.c_contiguous
        np.testing.assert_allclose(features, expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("recorded", ["some", "none"])
def test_features_of_indistinguishable_unrecorded_actions(seed, deterministic, recorded):
    rng = np.random.default_rng([seed, deterministic])
    T, p0 = random_table(rng, deterministic=deterministic), random_start(rng)
    phi = random_features(rng, *T.shape[:2], by_action=False)
    states, actions = random_walks(rng, T, p0)
    demos = Demonstrations.from_lists(states, hide_some(rng, actions) if recorded == "some" else None)
    dense = MDP.from_dense(T, p0, gamma=0.9, **phi)
    assert demos.steps(dense).ambiguous.size > 0
    for mdp in (dense, with_sparse_features(dense)):
        expected = naive_features(states, actions, phi, 0.9)
        np.testing.assert_allclose(demos.features(mdp), expected, rtol=1e-13, atol=1e-13)


def two_ways(sparse, **features):
    """0 -> 1 by actions 0 and 1, 1 -> 2 by action 0 alone."""
    mdp = MDP.from_edges([0, 0, 1], [1, 1, 2], n_states=3, action=[0, 1, 0], p0=[0.5, 0.5, 0], gamma=0.5, **features)
    return with_sparse_features(mdp) if sparse else mdp


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kind", ["action_features", "edge_features"])
def test_unrecorded_actions_with_different_features_are_rejected(sparse, kind):
    states, actions = [[1, 2], [0, 1, 2], [0, 1]], [[0], [1, 0], [0]]
    differing = two_ways(sparse, **{kind: [[1.0, 3.0], [1.5, 2.5], [7.0, 0.0]]})
    with raises(InvalidDemos, parameter="demos", index=(1, 0)):
        Demonstrations.from_lists(states).features(differing)
    # Once the actions are known, or where the ambiguous step does not occur, there is nothing to ask.
    recorded = Demonstrations.from_lists(states, actions).features(differing)
    np.testing.assert_array_equal(recorded, [[7, 0], [5, 2.5], [1, 3]])
    np.testing.assert_array_equal(Demonstrations.from_lists(states[:1]).features(differing), [[7, 0]])
    equal = two_ways(sparse, **{kind: [[1.0, 3.0], [1.0, 3.0], [7.0, 0.0]]})
    np.testing.assert_array_equal(Demonstrations.from_lists(states).features(equal), [[7, 0], [4.5, 3], [1, 3]])


def test_error_has_the_first_step_with_different_candidates():
    # Both 0 -> 1 and 1 -> 2 are ambiguous; only the actions of 1 -> 2 have different features.
    mdp = MDP.from_edges(
        [0, 0, 1, 1], [1, 1, 2, 2], n_states=3, action=[0, 1, 0, 1], edge_features=[[1.0], [1.0], [2.0], [3.0]]
    )
    demos = Demonstrations.from_lists([[0, 1], [0, 1, 2], [1, 2]])
    with raises(InvalidDemos, parameter="demos", index=(1, 1)):
        demos.features(mdp)


def test_state_features_alone_need_no_actions():
    mdp = two_ways(False, state_features=np.eye(3))
    np.testing.assert_array_equal(Demonstrations.from_lists([[0, 1, 2]]).features(mdp), [[1, 0.5, 0.25]])


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("recorded", ["all", "some", "none"])
def test_log_q_sums_over_unrecorded_actions(seed, deterministic, recorded):
    rng = np.random.default_rng([seed, deterministic])
    T, p0 = random_table(rng, deterministic=deterministic), random_start(rng)
    states, actions = random_walks(rng, T, p0)
    if recorded != "all":
        actions = hide_some(rng, actions) if recorded == "some" else [[-1] * len(x) for x in actions]
    expected = []
    for walk, taken in zip(states, actions, strict=True):
        q = np.log(p0[walk[0]])
        for t, a in enumerate(taken):
            q += np.log(T[walk[t], :, walk[t + 1]].sum() if a < 0 else T[walk[t], a, walk[t + 1]])
        expected.append(q)
    log_q = Demonstrations.from_lists(states, actions).log_q(MDP.from_dense(T, p0))
    assert log_q.shape == (30,)
    np.testing.assert_allclose(log_q, expected, rtol=1e-13, atol=1e-13)


def test_log_q_of_two_deterministic_actions_is_log_2():
    mdp = two_ways(False)
    log_q = Demonstrations.from_lists([[0, 1], [1, 2], [0]]).log_q(mdp)
    np.testing.assert_allclose(log_q, np.log([0.5 * 2, 0.5, 0.5]), rtol=1e-15, atol=1e-15)


def test_features_and_log_q_of_empty_sets_and_edgeless_mdps():
    mdp = two_ways(False, action_features=[[1.0], [2.0], [3.0]])
    empty = Demonstrations.from_lists([])
    assert empty.features(mdp).shape == (0, 1)
    assert empty.log_q(mdp).shape == (0,)
    still = MDP.from_edges([], [], n_states=2, p0=[0.25, 0.75])
    demos = Demonstrations.from_lists([[0], [1]])
    np.testing.assert_array_equal(demos.features(still), np.eye(2))
    np.testing.assert_allclose(demos.log_q(still), np.log([0.25, 0.75]), rtol=1e-15)


def test_long_demonstrations_are_discounted_to_the_end():
    mdp = MDP.from_edges([0], [0], n_states=1, gamma=0.999, state_features=[[1.0]], edge_features=[[1.0]])
    features = Demonstrations.from_lists([[0] * 5000]).features(mdp)
    expected = [(1 - 0.999**5000) / 0.001, (1 - 0.999**4999) / 0.001]
    np.testing.assert_allclose(features, [expected], rtol=1e-11)
