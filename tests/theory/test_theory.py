"""Theorem 1: a valid bound in worlds where its assumptions hold, and the reported failures elsewhere."""

import re

import numpy as np
import pytest

from limiirl import MDP, Demonstrations, IntentMixture, MaxEnt
from limiirl.errors import InvalidDemos, InvalidParameter
from limiirl.theory import (
    PathSet,
    Quantities,
    bound,
    compute_epsilon,
    feature_distribution,
    feature_extremes,
    inter_cluster_margin,
    separation,
)
from limiirl.theory.bound import align_clusters, kmeans_clusters
from limiirl.theory.estimates import all_clouds, clouds_of_demos, quantities, smallest_bound
from limiirl.theory.feature_sets import find_supports
from limiirl.theory.separation import path_set
from limiirl.worlds import ElementWorld
from tests.helpers import raises
from tests.oracles.theory import Listed, lanes, margin

WORLDS = [(n_intents, seed) for n_intents in (2, 3) for seed in range(6)]


def exact_bound(world):
    paths = PathSet(world.mdp, world.policies, max_length=3)
    distributions = [feature_distribution(paths, k) for k in range(paths.n_intents)]
    return paths, smallest_bound(all_clouds(paths, world.demos, world.labels, world.clusters, distributions))


@pytest.mark.parametrize(("n_intents", "seed"), WORLDS)
def test_realised_epsilon_is_below_a_nontrivial_bound(n_intents, seed):
    world = lanes(n_intents, seed)
    _, result = exact_bound(world)
    assert result.applies, result.failures
    assert result.quantities.zeta > 0.0
    assert result.quantities.delta > 0.0
    assert result.epsilon < 0.5
    realised = compute_epsilon(world.mdp, world.demos, world.clusters, MaxEnt(max_length=3))
    assert 0.0 < realised <= result.epsilon


@pytest.mark.parametrize(("n_intents", "seed"), WORLDS[::3])
def test_assumptions_and_lemmas_hold_trajectory_by_trajectory(n_intents, seed):
    world = lanes(n_intents, seed)
    paths, result = exact_bound(world)
    q, listed = result.quantities, Listed(world.mdp, paths.supports, 3, "anywhere", True)
    of_demos = world.demos.features(world.mdp)
    F = listed.F - of_demos.mean(axis=0)
    lowest, highest, (between, within) = q.log_lower(), q.log_upper(), q.mean_margins
    for k in range(n_intents):
        inside = listed.inside[:, k]
        last = np.array([states[-1] for states, _ in listed.listed])
        core = inside & (last == 1 + 2 * n_intents + k)
        fringe, outside = inside & ~core, ~inside
        assert margin(F[core], F[core], F[outside]) >= q.margin_between - 1e-9
        assert margin(F[core], F[core], F[fringe]) >= q.margin_within - 1e-9
        assert margin(F[fringe], F[core], F[outside]) >= -q.margin_between
        assert margin(F[fringe], F[core], F[fringe]) >= -q.margin_within
        np.testing.assert_allclose(listed.q[fringe].sum() / listed.q[inside].sum(), world.slip, rtol=1e-9)
        Phi = (of_demos[world.clusters == k] - of_demos.mean(axis=0)).mean(axis=0)
        assert margin([Phi], F[core], F[outside]) >= between  # lemma 1
        assert margin([Phi], F[core], F[fringe]) >= within
        log_p = listed.log_prob(Phi)
        assert np.all(log_p[core] >= lowest[k])  # lemma 2
        assert np.all(log_p[outside] <= highest[k])


def test_report_if_the_theorem_applies():
    world = lanes(3, 1)
    result = separation(world.mdp, world.demos, world.labels, clusters=world.clusters, policies=world.policies)
    assert result.guaranteed
    assert result.exact
    assert result.helps
    assert result.epsilon <= result.over_all.epsilon < 0.5
    text = str(result)
    assert "both assumptions hold over all trajectories" in text
    assert f"epsilon <= {result.over_all.epsilon:.3g}" in text
    assert f"Realised epsilon: {result.epsilon:.3g}" in text
    assert repr(result) == text
    F = world.demos.features(world.mdp)
    np.testing.assert_allclose(result.features, F - F.mean(axis=0), rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(result.clusters, world.clusters)


def test_supports_estimated_from_demonstrations_agree_with_the_policies():
    world = lanes(2, 0)
    supports = find_supports(world.mdp, world.demos, world.labels)
    assert not np.any(supports & (world.policies == 0))
    demonstrated, given = (separation(world.mdp, world.demos, world.labels, policies=p) for p in (None, world.policies))
    # The policy in lanes that an expert never enters does not matter.
    assert np.any(supports != (world.policies > 0))
    assert demonstrated.over_all.epsilon == given.over_all.epsilon < 0.5
    assert (demonstrated.supports, given.supports) == ("demonstrations", "policies")


@pytest.fixture(scope="module", params=[0.0, 0.1, 0.2])
def element_worlds(request):
    """The columns of the specification's table for eight ElementWorlds with one wind."""
    rows, reports = [], []
    for seed in range(8):
        world = ElementWorld(wind=request.param, seed=seed)
        demos, labels = world.sample(100, seed=1)
        result = separation(world.mdp, demos, labels, clusters=labels, policies=world.optimal_policies)
        paths = path_set(world.mdp, demos, labels, MaxEnt(), world.optimal_policies)
        F = demos.features(world.mdp)
        one = np.flatnonzero(labels == 0)[0]
        d = feature_extremes(paths, 0, F[one] - F.mean(axis=0)).margin[0]
        at_zero = quantities(clouds_of_demos(world.mdp, demos, labels, labels), 0.0).margin_between
        rows.append([result.margin, d, at_zero, result.log_Q_all - result.log_Q[0], result.epsilon])
        reports.append(result)
    return request.param, np.array(rows), reports


def test_table_of_the_specification(element_worlds):
    wind, rows, _ = element_worlds
    table = {0.0: (6.9, -20, 17, 14, 0.000), 0.1: (4.0, -110, -21, 25, 0.009), 0.2: (2.9, -149, -62, 34, 0.052)}
    error = rows.std(axis=0, ddof=1) / np.sqrt(len(rows))
    # The table has means over eight other worlds (hence the root of 2), rounded (hence the constants).
    slack = 3.0 * np.sqrt(2.0) * error + [0.05, 0.5, 0.5, 0.5, 0.0005]
    assert np.all(np.abs(rows.mean(axis=0) - table[wind]) <= slack), rows.mean(axis=0)


def test_elementworld_violates_assumption_1(element_worlds):
    wind, _, reports = element_worlds
    for result in reports:
        assert not result.guaranteed
        assert result.over_all.epsilon == 2.0
        assert result.helps
        text = str(result)
        assert "Theorem 1: does not apply" in text
        assert "assumption 1: (a)(i) margin_between = -" in text
        if wind == 0.0:
            assert result.separable
            assert result.among_demos.quantities.margin_between > 0.0


def test_without_policies_elementworld_violates_assumption_1_too():
    world = ElementWorld(wind=0.0, seed=2)
    demos, labels = world.sample(100, seed=1)
    result = separation(world.mdp, demos, labels)
    assert "assumption 1: (a)(i) margin_between = -" in str(result)
    assert (result.supports, result.purity, result.epsilon < 1e-6) == ("demonstrations", 1.0, True)


@pytest.mark.slow
def test_extremes_over_tens_of_thousands_of_trajectories():
    world = ElementWorld(n_elements=1, height=3, zone_size=3, wind=0.1, gamma=0.9, seed=3)
    paths = PathSet(world.mdp, world.optimal_policies, max_length=5)
    listed = Listed(world.mdp, paths.supports, 5, "anywhere", True)
    assert len(listed.listed) > 30_000
    tau = listed.F[np.flatnonzero(listed.inside[:, 0])[-1]]
    result, mine = feature_extremes(paths, 0, tau), listed.inside[:, 0]
    np.testing.assert_allclose(result.inside_min, (listed.F[mine] @ tau).min(), rtol=1e-12)
    np.testing.assert_allclose(result.outside_max, (listed.F[~mine] @ tau).max(), rtol=1e-12)
    np.testing.assert_allclose(np.exp(paths.log_Q), listed.q @ listed.inside, rtol=1e-10)
    np.testing.assert_allclose(np.exp(paths.log_Q_all), listed.q.sum(), rtol=1e-10)


def test_masses_of_long_trajectories_do_not_overflow():
    mdp = MDP.from_edges([0, 0, 0], [0, 0, 1], action=[0, 1, 2], p0=[1, 0])
    paths = PathSet(mdp, [[1, 0, 0], [0, 0, 1]], max_length=5001)
    # Of the 2^5000 paths that stay at state 0, one belongs to the first expert, which never leaves.
    np.testing.assert_allclose(paths.log_Q, [0.0, 0.0], atol=1e-9)
    np.testing.assert_allclose(paths.log_Q_all, np.log(3.0) + 5000 * np.log(2.0), rtol=1e-6)


def make_quantities(**changes):
    given = {
        "zeta": 0.1,
        "delta": 0.05,
        "margin_between": 9.0,
        "margin_within": 4.0,
        "r": [0.1, 0.2],
        "mean_norm": [3.0, 2.0],
        "sizes": [40, 60],
        "log_Q": [0.0, 0.5],
        "log_Q_other": [1.0, 2.0],
        "typical_norm": [3.0, 2.0],
    }
    return Quantities(**(given | changes))


def test_bound_is_the_papers_formula():
    q, result = make_quantities(), bound(make_quantities())
    d, g, zeta = 0.9 * 9.0, 0.9 * 4.0, 0.1
    beta = min(
        (1 - zeta) ** 2
        * np.exp(g)
        / (zeta + (1 - zeta) * np.exp(g))
        * (q.sizes[k] * (1 - zeta) * np.exp(q.log_Q[j]) * np.exp(d))
        / (q.sizes[j] * ((1 - zeta) * np.exp(q.log_Q[k]) * np.exp(d) + np.exp(q.log_Q_other[k])))
        * np.exp(d - 2 * q.r[k] * q.mean_norm[k])
        for k, j in ((0, 1), (1, 0))
    )
    np.testing.assert_allclose(result.log_beta, np.log(beta), rtol=1e-12)
    np.testing.assert_allclose(result.epsilon, 0.1 + 0.95 * 2 / (beta + 1), rtol=1e-12)


def test_bound_with_three_intents_counts_both_others():
    q = make_quantities(
        r=[0.1] * 3, mean_norm=[3.0] * 3, sizes=[1] * 3, log_Q=[0] * 3, log_Q_other=[1] * 3, typical_norm=[3] * 3
    )
    result = bound(q)
    np.testing.assert_allclose(result.epsilon, 0.1 + 0.95 * 4 / (np.exp(result.log_beta) + 2), rtol=1e-12)


def test_epsilon_converges_to_twice_delta_without_overflow():
    result = bound(make_quantities(margin_between=1e5, log_Q=[1e4, 1e4], log_Q_other=[3e4, 3e4]))
    assert result.epsilon == 2 * 0.05
    assert np.isfinite(result.log_beta)
    assert bound(make_quantities(zeta=0.0, delta=0.0, margin_within=np.inf, margin_between=1e5)).epsilon == 0.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"zeta": 0.5}, "assumption 1: zeta = 0.5, the atypical or shared fraction"),
        ({"margin_between": -1.0}, r"assumption 1: \(a\)\(i\) margin_between = -1 is not positive"),
        ({"margin_within": 0.0}, r"assumption 1: \(a\)\(i\) margin_within = 0 is not positive"),
        ({"atypical_between": -9.1}, r"assumption 1: \(a\)\(ii\) .* -9.1 and inf, are below -9 or -4"),
        ({"atypical_within": -4.1}, r"assumption 1: \(a\)\(ii\) .* inf and -4.1"),
        ({"r": [0.1, 5.0]}, r"assumption 1: \(b\) intent 1 is too wide: 2 r \|phi\| = 20 is not below"),
        ({"delta": 0.5}, "assumption 2: delta = 0.5, the misplaced or atypical fraction"),
        ({"misfit_between": -9.1}, "assumption 2: the margins of a misplaced or atypical demonstration"),
        ({"misfit_within": -4.1}, "assumption 2: the margins of a misplaced or atypical demonstration"),
    ],
)
def test_each_failed_condition_is_reported_with_the_trivial_bound(change, message):
    result = bound(make_quantities(**change))
    (failure,) = result.failures
    assert re.search(message, failure)
    assert (result.epsilon, result.applies, result.log_beta) == (2.0, False, -np.inf)


def test_experts_with_full_support_share_all_trajectories():
    world = lanes(2, 0)
    uniform = np.ones((2, world.mdp.n_pairs))
    result = separation(world.mdp, world.demos, world.labels, policies=uniform)
    assert result.over_all.quantities.zeta == 1.0
    assert any("zeta = 1," in failure for failure in result.over_all.failures)


def test_trimming_lowers_the_bound():
    world = lanes(2, 0)
    paths, result = exact_bound(world)
    clouds = all_clouds(
        paths, world.demos, world.labels, world.clusters, [feature_distribution(paths, k) for k in range(2)]
    )
    assert bound(quantities(clouds, 0.0)).epsilon > result.epsilon
    assert smallest_bound(clouds, (0.0,)).epsilon == bound(quantities(clouds, 0.0)).epsilon


def test_realised_epsilon_is_the_first_change_of_a_mixture():
    world = ElementWorld(wind=0.2, seed=2)
    demos, labels = world.sample(100, seed=1)
    for start in ("mean", "mle"):
        mix = IntentMixture(3, MaxEnt(), init=labels, reward_init=start, max_iter=0).fit(world.mdp, demos)
        result = compute_epsilon(world.mdp, demos, labels, reward_init=start)
        np.testing.assert_allclose(result, mix.history_[0].change, rtol=1e-12)
        assert result > 0.0


def test_inter_cluster_margin_is_a_mean_over_pairs():
    rng = np.random.default_rng(0)
    points, labels = rng.normal(size=(30, 3)), np.repeat([4, 7, 9], 10)
    least = [
        min(np.linalg.norm(a - b) for a in points[labels == i] for b in points[labels == j])
        for i, j in ((4, 7), (4, 9), (7, 9))
    ]
    np.testing.assert_allclose(inter_cluster_margin(points, labels), np.mean(least), rtol=1e-12)


def test_clusters_are_aligned_to_the_intents():
    labels = np.array([0, 0, 1, 1, 2, 2, 2])
    np.testing.assert_array_equal(align_clusters(np.array([2, 2, 0, 0, 1, 1, 0]), labels), [0, 0, 1, 1, 2, 2, 1])
    points = np.array([[0.0], [0.1], [5.0], [5.1], [9.0], [9.1], [9.2]])
    np.testing.assert_array_equal(kmeans_clusters(points, labels), labels)


def test_experts_that_stop_anywhere():
    mdp = MDP.from_edges([0, 1, 0, 2], [1, 1, 2, 2], p0=[1, 0, 0], state_features=np.eye(3))
    demos = Demonstrations.from_lists([[0, 1, 1], [0, 1], [0, 2, 2], [0, 2]])
    paths = path_set(mdp, demos, np.array([0, 0, 1, 1]), MaxEnt())
    assert not paths.complete
    assert paths.contains(demos).tolist() == [[True, False], [True, False], [False, True], [False, True]]
    assert path_set(mdp, demos[[0, 2]], np.array([0, 1]), MaxEnt()).complete


def test_contains_rejects_trajectories_that_are_too_long_or_end_early():
    mdp = MDP.from_edges([0, 1, 1], [1, 1, 2], p0=[1, 0, 0])
    paths = PathSet(mdp, np.ones((1, 3)), max_length=3)
    demos = Demonstrations.from_lists([[0, 1], [0, 1, 1], [0, 1, 2], [0, 1, 1, 2]])
    assert paths.contains(demos).ravel().tolist() == [False, True, True, False]


def test_an_unrecorded_action_is_in_a_support_if_a_candidate_is():
    mdp = MDP.from_edges([0, 0, 0], [1, 1, 2], action=[0, 1, 2], p0=[1, 0, 0])
    demos = Demonstrations.from_lists([[0, 1], [0, 2]])
    paths = PathSet(mdp, [[0, 1, 0], [0, 0, 1]], 2)
    assert paths.contains(demos).tolist() == [[True, False], [False, True]]
    assert find_supports(mdp, demos, np.array([0, 1])).tolist() == [[True, True, False], [False, False, True]]


def test_large_problems_use_a_fraction_of_each_cluster():
    world = ElementWorld(seed=1)
    demos, labels = world.sample(100, seed=1)
    result = separation(world.mdp, demos, labels, max_work=5.0 * demos.lengths.max() * 1000 * 3)
    assert 3 <= result.n_demos_used < 40
    assert f"estimated from {result.n_demos_used} demonstrations" in str(result)


def test_plot_shows_gaps_and_misplaced_demonstrations():
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    world = lanes(2, 0)
    result = separation(world.mdp, world.demos, world.labels, clusters=world.clusters)
    figure = result.plot()
    plane, *strips = figure.axes
    assert len(strips) == 2
    assert [text.get_text() for text in plane.get_legend().get_texts()] == [
        "intent 0",
        "intent 1",
        "in another cluster",
    ]
    rings = plane.lines[2].get_xydata()
    assert len(rings) == np.sum(world.labels != world.clusters)
    for k, strip in enumerate(strips):
        verb = "apart" if result.gaps[k] > 0 else "overlap"
        assert strip.get_title() == f"intent {k}: {verb} by {abs(result.gaps[k]):.3g} along its cluster mean"
    plt.close(figure)


def test_a_single_feature_can_be_plotted():
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0.0], [1.0], [-1.0]])
    demos = Demonstrations.from_lists([[0, 1], [0, 2], [0, 2]])
    result = separation(mdp, demos, ["up", "down", "down"], MaxEnt(bounds=(-3, 3)))
    np.testing.assert_allclose(result.gaps, [2.0, 2.0], rtol=1e-12)
    assert result.separable
    plt.close(result.plot())


WORLD = lanes(2, 0, n_each=10)


@pytest.mark.parametrize(
    ("change", "error", "expected"),
    [
        ({"labels": [0, 1]}, InvalidParameter, {"parameter": "labels", "value": (2,)}),
        ({"labels": np.zeros(20, int)}, InvalidParameter, {"parameter": "labels", "value": 0}),
        ({"labels": np.where(WORLD.labels, 1.0, np.nan)}, InvalidParameter, {"parameter": "labels", "value": np.nan}),
        ({"clusters": np.arange(20) % 3}, InvalidParameter, {"parameter": "clusters", "value": 3}),
        ({"clusters": [0]}, InvalidParameter, {"parameter": "clusters", "value": (1,)}),
        ({"policies": np.ones((3, WORLD.mdp.n_pairs))}, InvalidParameter, {"parameter": "policies", "value": 3}),
        ({"policies": np.ones((2, 5))}, InvalidParameter, {"parameter": "policies", "value": (2, 5)}),
        (
            {"policies": -np.ones((2, WORLD.mdp.n_pairs))},
            InvalidParameter,
            {"parameter": "policies", "value": -1.0, "index": (0, 0)},
        ),
        ({"irl": MaxEnt(max_length=np.inf)}, InvalidParameter, {"parameter": "max_length", "value": np.inf}),
        ({"demos": WORLD.demos[:0], "labels": []}, InvalidDemos, {"parameter": "demos", "value": 0}),
        ({"demos": WORLD.demos[[0] * 20]}, InvalidDemos, {"parameter": "demos", "value": 1}),
        ({"mdp": "nothing"}, InvalidParameter, {"parameter": "mdp", "value": "str"}),
        ({"max_work": 0}, InvalidParameter, {"parameter": "max_work", "value": 0}),
        ({"seed": -1}, InvalidParameter, {"parameter": "seed", "value": -1}),
    ],
)
def test_separation_errors(change, error, expected):
    arguments = {"mdp": WORLD.mdp, "demos": WORLD.demos, "labels": WORLD.labels} | change
    with raises(error, **expected):
        separation(**arguments)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (
            lambda: compute_epsilon(WORLD.mdp, WORLD.demos, WORLD.labels, reward_init="best"),
            {"parameter": "reward_init", "value": "best"},
        ),
        (lambda: compute_epsilon(WORLD.mdp, WORLD.demos, WORLD.labels[:3]), {"parameter": "clusters", "value": (3,)}),
        (lambda: inter_cluster_margin(np.ones(3), [0, 1, 2]), {"parameter": "features", "value": (3,)}),
        (lambda: inter_cluster_margin(np.ones((3, 2)), [0, 0, 0]), {"parameter": "labels", "value": [0, 0, 0]}),
        (lambda: inter_cluster_margin(np.ones((3, 2)), [0, 1]), {"parameter": "labels", "value": [0, 1]}),
        (lambda: make_quantities(sizes=[1], r=[1]), {"parameter": "r", "value": [1.0]}),
        (lambda: make_quantities(r=[1.0, 2.0, 3.0]), {"parameter": "r", "value": [1.0, 2.0, 3.0]}),
        (lambda: make_quantities(zeta=1.5), {"parameter": "zeta", "value": 1.5}),
        (lambda: PathSet(WORLD.mdp, np.ones((2, 5)), 3), {"parameter": "supports", "value": (2, 5)}),
        (lambda: PathSet(WORLD.mdp, WORLD.policies, 0), {"parameter": "max_length", "value": 0}),
        (lambda: PathSet(WORLD.mdp, WORLD.policies, 3, stop="never"), {"parameter": "stop", "value": "never"}),
    ],
)
def test_other_errors(call, expected):
    with raises(InvalidParameter, **expected):
        call()


def test_the_theorem_is_restricted_to_maxent():
    result = separation(WORLD.mdp, WORLD.demos, WORLD.labels, MaxEnt(condition="start"))
    assert not result.maxent
    assert "Theorem 1 assumes MaxEnt" in str(result)
    assert "Theorem 1 assumes MaxEnt" not in str(separation(WORLD.mdp, WORLD.demos, WORLD.labels))


@pytest.mark.parametrize("wrong", [{"sizes": [0, 50]}, {"sizes": [-1, 50]}, {"r": [-1, 1]}, {"mean_norm": [-1, 1]}])
def test_sizes_and_norms_must_not_be_negative(wrong):
    given = {"r": [0.1, 0.1], "mean_norm": [3, 3], "sizes": [50, 50], "log_Q": [0, 0], "log_Q_other": [1, 1]}
    ((name, value),) = wrong.items()
    with raises(InvalidParameter, parameter=name, value=[float(x) for x in value]):
        Quantities(zeta=0.1, delta=0.05, margin_between=9, margin_within=4, typical_norm=[3, 3], **given | wrong)


def test_labels_of_a_data_frame_column():
    mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0.0], [3.0], [-3.0]])
    demos = Demonstrations.from_lists([[0, 1], [0, 1], [0, 2], [0, 2]])
    column = np.array(["l", "l", "r", "r"], dtype=object)
    result = separation(mdp, demos, column, MaxEnt(bounds=(-5, 5)))
    assert result.separable
    assert result.names.tolist() == ["l", "r"]
    column[1] = None
    with raises(InvalidParameter, parameter="labels"):
        separation(mdp, demos, column, MaxEnt(bounds=(-5, 5)))


def test_a_sample_of_the_demonstrations_is_not_exact():
    mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0.0], [3.0], [-3.0]])
    demos = Demonstrations.from_lists([[0, 1], [0, 2]] * 20)
    labels = np.tile([0, 1], 20)
    assert separation(mdp, demos, labels, MaxEnt(bounds=(-5, 5))).exact
    assert not separation(mdp, demos, labels, MaxEnt(bounds=(-5, 5)), max_work=1.0).exact
