"""Directions in reward space that leave every trajectory's probability alone: found, named, and really null."""

import math

import numpy as np
import pytest
from scipy import sparse

from limiirl.demos import Demonstrations
from limiirl.errors import IdentifiabilityWarning, InvalidParameter
from limiirl.irl import MaxCausalEnt, MaxEnt, compare_environments
from limiirl.irl.identifiability import describe, null_directions, variation
from limiirl.mdp import MDP
from limiirl.worlds import ElementWorld, RoadGrid
from tests.helpers import raises
from tests.oracles.likelihood import small_mdp


@pytest.fixture(scope="module")
def town() -> MDP:
    return RoadGrid(2_000, 4_000, seed=1).mdp


def same_space(one: np.ndarray, other: np.ndarray) -> None:
    """Two orthonormal bases of the same space have the same projector."""
    np.testing.assert_allclose(one.T @ one, other.T @ other, atol=1e-8)


def check_null(model: MaxEnt, mdp: MDP, directions: np.ndarray, seed: int = 0) -> None:
    """Moving along them leaves the probabilities of many sampled trajectories as they were."""
    rng = np.random.default_rng(seed)
    theta = -rng.random(mdp.n_features)
    demos = model.sample(mdp, theta, 100, seed=rng)
    shifts = rng.normal(size=(3, len(directions))) @ directions
    before, after = model.log_prob(mdp, theta, demos), model.log_prob(mdp, theta + shifts, demos)
    np.testing.assert_allclose(after, np.repeat(before, 3, axis=1), rtol=1e-9, atol=1e-9)


# Worlds.


@pytest.mark.parametrize("condition", ["none", "start"])
def test_a_road_network_has_two_null_directions(town: MDP, condition: str):
    """Road classes, speeds and regions each sum to a segment's length."""
    model = MaxEnt(20, condition=condition)
    result = model.null_directions(town, np.zeros(24))
    groups = np.zeros((3, 24))
    groups[0, :4], groups[1, 4:7], groups[2, 7:] = 1.0, 1.0, 1.0
    wanted = np.linalg.svd(np.array([groups[0] - groups[1], groups[1] - groups[2]]), full_matrices=False)[2]
    assert result.shape == (2, 24)
    np.testing.assert_allclose(result @ result.T, np.eye(2), atol=1e-12)
    same_space(result, wanted)
    check_null(model, town, result)


def test_fit_on_a_road_network_warns(town: MDP):
    model = MaxEnt(12, max_evaluations=100)
    demos = model.sample(town, np.full(24, -1.0), 300, seed=0)
    with pytest.warns(IdentifiabilityWarning) as caught:
        theta = model.fit(town, demos)
    message = str(caught[0].message)
    assert message.startswith("2 of 24 directions in reward space cannot be identified; they involve km ")
    assert "result_.null_directions" in message
    assert "and 20 more" in message
    assert sum(name in message for name in town.feature_names) >= 4
    assert caught[0].filename == __file__
    assert model.result_.null_directions.shape == (2, 24)
    assert model.result_.converged
    np.testing.assert_allclose(model.log_prob(town, theta + 3 * model.result_.null_directions[0], demos),
                               model.log_prob(town, theta, demos), rtol=1e-9)  # fmt: skip


@pytest.mark.parametrize("condition", ["none", "start"])
@pytest.mark.parametrize("stop", ["anywhere", "terminal_or_max_length"])
def test_element_world_has_none(condition: str, stop: str):
    world = ElementWorld()
    result = MaxEnt(20, stop=stop, condition=condition).null_directions(world.mdp, np.full(5, -1.0))
    assert result.shape == (0, 5)


@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_element_world_that_must_reach_its_goal_has_one(gamma: float):
    """With discount 1 the goal's reward, collected exactly once.

    Below 1 the feature of the goal depends on when it was reached, and so does the sum of all indicators:
    goal / (1 - gamma) + all others is always 1 / (1 - gamma).
    """
    world = ElementWorld(gamma=gamma)
    model = MaxEnt(20, stop="terminal")
    result = model.null_directions(world.mdp, np.full(5, -1.0))
    at_goal = np.asarray(sparse.csr_array(world.mdp.state_features)[world.mdp.terminal].sum(axis=0)).ravel() > 0
    assert at_goal.sum() == 1
    wanted = at_goal.astype(float) if gamma == 1.0 else np.where(at_goal, 1 / (1 - gamma), 1.0)
    np.testing.assert_allclose(result, [wanted / np.linalg.norm(wanted)], atol=1e-6)
    check_null(model, world.mdp, result)


# Small cases with known answers.


def with_features(features: object, **changes: object) -> MDP:
    """Two ways from state 0 to state 3, of three or two states."""
    return MDP.from_edges([0, 0, 1, 2], [1, 3, 2, 3], p0=[1, 0, 0, 0], state_features=features, **changes)


def test_duplicated_columns():
    phi = np.random.default_rng(0).normal(size=(4, 2))
    mdp = with_features(
        np.column_stack([phi, phi[:, 0], 2 * phi[:, 1]]), feature_names=["a", "b", "a again", "twice b"]
    )
    model = MaxEnt(4)
    result = model.null_directions(mdp, np.zeros(4))
    root2, root5 = math.sqrt(2), math.sqrt(5)
    same_space(result, np.array([[1 / root2, 0, -1 / root2, 0], [0, 2 / root5, 0, -1 / root5]]))
    check_null(model, mdp, result)
    with pytest.warns(IdentifiabilityWarning, match="2 of 4 directions .*; they involve .*a again"):
        model.fit(mdp, Demonstrations.from_lists([[0, 1, 2], [0, 3]]))


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_features_that_no_trajectory_can_collect(kind: object):
    """State 3 lies beyond the largest length; state 4 has no way in."""
    mdp = MDP.from_edges([0, 1, 2, 4], [1, 2, 3, 0], p0=[0.5, 0.5, 0, 0, 0], state_features=kind(np.eye(5)))  # type: ignore[operator]
    np.testing.assert_array_equal(MaxEnt(3).null_directions(mdp, np.zeros(5)), [[0, 0, 0, 0, 1]])
    same_space(MaxEnt(2).null_directions(mdp, np.zeros(5)), np.eye(5)[3:])
    assert MaxEnt(1).null_directions(mdp, np.zeros(5)).shape == (4, 5)  # the two starts against each other


def test_start_state_is_unidentified_if_conditioned_on():
    """State 0 is never revisited, so its reward multiplies all trajectories from it by the same factor."""
    mdp = MDP.from_edges([0, 0, 1], [1, 2, 2], p0=[0.5, 0.5, 0])
    assert MaxEnt(3).null_directions(mdp, np.zeros(3)).shape == (0, 3)
    np.testing.assert_array_equal(MaxEnt(3, condition="start").null_directions(mdp, np.zeros(3)), [[1, 0, 0]])


def test_single_start_state_is_unidentified():
    mdp = MDP.from_edges([0, 0, 1], [1, 2, 2], p0=[1, 0, 0])
    np.testing.assert_array_equal(MaxEnt(3).null_directions(mdp, np.zeros(3)), [[1, 0, 0]])


def test_a_constant_feature_counts_length():
    """With discount 1 it distinguishes long from short trajectories, unless all are equally long."""
    mdp = with_features(np.ones((4, 1)))
    assert MaxEnt(4).null_directions(mdp, [0.0]).shape == (0, 1)
    square = MDP.from_edges([0, 0, 1, 2], [1, 2, 3, 3], p0=[1, 0, 0, 0], state_features=np.ones((4, 1)))
    np.testing.assert_array_equal(MaxEnt(4, stop="terminal").null_directions(square, [0.0]), [[1.0]])
    with pytest.warns(IdentifiabilityWarning, match=r"1 of 1 directions .*; it involves state\[0\]\. "):
        MaxEnt(4, stop="terminal").fit(square, Demonstrations.from_lists([[0, 1, 3]]))


@pytest.mark.parametrize("stop", ["anywhere", "terminal"])
def test_features_on_actions_and_edges(stop: str):
    """The edge feature is the sum of the action feature and the target's state feature."""
    base = small_mdp(gamma=1.0)
    pairs = base.action_features[base.pair_of_edge]
    mdp = base.replace(edge_features=pairs + base.state_features[base.dst, :1])
    model = MaxEnt(5, stop=stop)
    result = model.null_directions(mdp, np.zeros(4))
    if stop == "anywhere":  # the start's own feature is not on an edge, so only differences between starts count
        assert result.shape == (0, 4)
        only = mdp.replace(p0=[1, 0, 0, 0])
        result = model.null_directions(only, np.zeros(4))
        same_space(result, np.array([[1, 0, 1, -1]]) / math.sqrt(3))
        check_null(model, only, result)


@pytest.mark.parametrize("stop", ["anywhere", "terminal_or_max_length"])
@pytest.mark.parametrize("unit", [1e-3, 1e3])
def test_units_do_not_matter(town: MDP, unit: float, stop: str):
    """Metres or kilometres, for all features or for one group of them."""
    model = MaxEnt(8, stop=stop)
    scale = np.ones(24)
    for changed in (slice(None), slice(0, 4)):
        scale[:] = 1.0
        scale[changed] = unit
        mdp = town.replace(state_features=town.state_features @ sparse.diags_array(scale, format="csr"))
        result = model.null_directions(mdp, np.full(24, -1.0) / scale)
        assert result.shape == (2, 24)
        back = np.linalg.svd(result * scale, full_matrices=False)[2]
        same_space(back, model.null_directions(town, np.full(24, -1.0)))


@pytest.mark.parametrize("ratio", [1e-3, 1e-5, 1e-6, 1e-9])
def test_a_feature_of_small_numbers_is_still_a_feature(ratio: float):
    """Money in millions beside an indicator, say."""
    mdp = with_features(np.array([[0, 0], [1, 0], [0, ratio], [0.0, 0]]))
    assert MaxEnt(4).null_directions(mdp, np.zeros(2)).shape == (0, 2)


@pytest.mark.parametrize("offset", [1e3, 1e6])
@pytest.mark.parametrize("stop", ["anywhere", "terminal"])
def test_a_large_constant_is_not_taken_for_variation(stop: str, offset: float):
    """All trajectories begin with the same large number, which rounds when means are taken off squares."""
    rng = np.random.default_rng(0)
    features = np.zeros((7, 2))
    features[:5, 0] = offset / 3
    features[5:, 1] = [1.0, 2.0]
    p0 = rng.dirichlet(np.ones(5))
    mdp = MDP.from_edges(
        [*range(5), *range(5), 5], [5] * 5 + [6] * 5 + [6], p0=[*p0, 0, 0], state_features=features
    )  # fmt: skip
    np.testing.assert_allclose(MaxEnt(4, stop=stop).null_directions(mdp, np.zeros(2)), [[1.0, 0.0]], atol=1e-6)


# The pieces.


def test_variation_is_the_gram_matrix_of_what_a_step_adds():
    mdp = small_mdp(gamma=0.8)
    phi, pairs, edges = mdp.state_features, mdp.action_features[mdp.pair_of_edge], mdp.edge_features
    rows = np.hstack([0.8 * phi[mdp.dst], pairs, edges])
    gram, size = variation(mdp, 5, by_start=True)
    np.testing.assert_allclose(gram, rows.T @ rows, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(size**2, np.sum(rows**2, axis=0), rtol=1e-12)
    starts = phi[:3] - phi[:3].mean(axis=0)
    expected = rows.T @ rows
    expected[:2, :2] += starts.T @ starts
    first = np.append(np.sum(phi[:3] ** 2, axis=0), [0.0, 0.0])  # sizes are those before the mean is taken off
    for length in (2, 5, math.inf):
        gram, size = variation(mdp, length, by_start=False)
        np.testing.assert_allclose(gram, expected, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(size**2, np.sum(rows**2, axis=0) + first, rtol=1e-12)
    alone = np.zeros((4, 4))
    alone[:2, :2] = starts.T @ starts
    gram, size = variation(mdp, 1, by_start=False)
    np.testing.assert_allclose(gram, alone, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(size**2, first, rtol=1e-12)


def of_gram(gram: np.ndarray) -> np.ndarray:
    """Of a matrix from which no mean was taken off, so that its diagonal has the sizes."""
    return null_directions(gram, np.sqrt(np.diag(gram)))


def test_null_directions_of_a_matrix():
    assert of_gram(np.diag([1.0, 2.0, 3.0])).shape == (0, 3)
    np.testing.assert_array_equal(of_gram(np.diag([1.0, 0.0, 3.0])), [[0, 1, 0]])
    np.testing.assert_allclose(np.abs(of_gram(np.zeros((2, 2)))), np.eye(2), atol=1e-12)
    row = np.array([3.0, 4.0])
    np.testing.assert_allclose(of_gram(np.outer(row, row)), [[0.8, -0.6]], rtol=1e-12)
    assert of_gram(np.outer(row, row) + 1e-4 * np.eye(2)).shape == (0, 2)


def test_what_is_left_of_a_feature_is_judged_by_its_own_size():
    """A variance of 1e-12 is rounding where squares of size 1 were subtracted, and a small unit where none were."""
    gram = np.diag([1.0, 1e-12])
    np.testing.assert_array_equal(null_directions(gram, np.array([1.0, 1.0])), [[0, 1]])
    assert null_directions(gram, np.array([1.0, 1e-6])).shape == (0, 2)
    assert null_directions(gram, np.array([1e3, 1e-6])).shape == (0, 2)  # the other's size does not matter
    rounded = np.array([[1.0, 1e-7], [1e-7, -1e-14]])  # rounding may leave less than nothing
    np.testing.assert_array_equal(null_directions(rounded, np.array([1.0, 1.0])), [[0, 1]])


@pytest.mark.parametrize(
    "scale",
    [
        [1.0, 1.0, 1.0, 1.0, 1.0],
        [1e-3, 1.0, 1.0, 0.1, 1.0],
        [1.0, 1.0, 1e3, 1e4, 1.0],
        [1e-3, 1.0, 1e3, 1e2, 1e-2],
    ],
)
def test_null_directions_of_differently_scaled_features_are_orthonormal(scale: list[float]):
    rows = np.random.default_rng(0).normal(size=(30, 3)) @ np.random.default_rng(1).normal(size=(3, 5))
    result = of_gram((rows * scale).T @ (rows * scale))
    assert result.shape == (2, 5)
    np.testing.assert_allclose(result @ result.T, np.eye(2), atol=1e-12)
    np.testing.assert_allclose(rows * scale @ result.T, 0.0, atol=1e-11 * np.max(scale))


def test_sign_of_directions_is_fixed():
    for gram in (np.array([[1.0, 1.0], [1.0, 1.0]]), np.array([[4.0, 2.0], [2.0, 1.0]])):
        (direction,) = of_gram(gram)
        assert direction[np.argmax(np.abs(direction))] > 0


def test_describe():
    names = ["a", "b", "c", "d", "e", "f"]
    assert describe(np.array([[0.6, 0, 0, 0, 0, -0.8]]), names) == (
        "1 of 6 directions in reward space cannot be identified; it involves f, a"
    )
    all_of_them = np.eye(6)[:5]
    assert describe(all_of_them, names) == (
        "5 of 6 directions in reward space cannot be identified; they involve a, b, c, d and 1 more"
    )


def test_a_fit_keeps_what_the_start_had_in_null_directions():
    phi = np.array([[0.0], [1.0], [2.0], [0.5]])
    mdp = with_features(np.column_stack([phi, phi]))
    with pytest.warns(IdentifiabilityWarning):
        theta = MaxEnt(4, None).fit(mdp, Demonstrations.from_lists([[0, 1, 2], [0, 3], [0]]), start=[0.7, 0.1])
    np.testing.assert_allclose(theta[0] - theta[1], 0.6, atol=1e-9)


def test_no_warning_if_all_directions_are_identified():
    MaxEnt(4).fit(small_mdp(), Demonstrations.from_lists([[0, 1, 3], [0, 2], [1, 3]], [[0, 1], [0], [0]]))


class TestEnvironments:
    """Two MDPs, or two discounts, identify directions that one does not."""

    names = ("a", "b", "c")
    rng = np.random.default_rng(0)

    def world(self, features, names=names, gamma=0.9):
        return MDP.from_edges([0, 0, 1, 2], [1, 2, 0, 0], gamma=gamma, state_features=features, feature_names=names)

    def test_joint_null_space_is_the_intersection(self):
        one = self.world(np.eye(3))
        report = compare_environments(MaxCausalEnt(), [one, one])
        (alone,) = compare_environments(MaxCausalEnt(), [one]).separate
        assert report.joint.shape == alone.shape
        np.testing.assert_allclose(report.joint.T @ report.joint, alone.T @ alone, atol=1e-9)
        assert report.find_resolved(0).shape == (0, 3)

    def test_another_discount_identifies_a_direction(self):
        worlds = [self.world(np.eye(3), gamma=gamma) for gamma in (0.9, 0.5)]
        features = np.random.default_rng(1).normal(size=(3, 3))
        worlds.append(self.world(features))
        report = compare_environments(MaxCausalEnt(), worlds)
        for mdp, null in zip(worlds, report.separate, strict=True):
            theta = np.array([0.3, -1.0, 0.5])
            for direction in null:
                policies = [MaxCausalEnt().policy(mdp, at) for at in (theta, theta + 2.0 * direction)]
                np.testing.assert_allclose(policies[0], policies[1], atol=1e-8)
        assert len(report.joint) < min(len(null) for null in report.separate)
        gained = report.find_resolved(0)
        assert len(gained) == len(report.separate[0]) - len(report.joint)
        np.testing.assert_allclose(gained @ report.joint.T, 0.0, atol=1e-9)

    def test_features_are_matched_by_name_and_missing_features_are_null(self):
        features = np.random.default_rng(2).normal(size=(3, 3))
        one, other = self.world(features), self.world(features[:, [2, 0]], names=("c", "a"))
        report = compare_environments(MaxCausalEnt(), [other, one])
        assert report.feature_names == ("c", "a", "b")
        assert np.any(np.all(np.abs(report.separate[0] - [0.0, 0.0, 1.0]) < 1e-12, axis=1))
        turned = compare_environments(MaxCausalEnt(), [one]).separate[0][:, [2, 0, 1]]
        np.testing.assert_allclose(report.separate[1].T @ report.separate[1], turned.T @ turned, atol=1e-9)

    def choose(self, features, names=("a", "b"), scale=1.0) -> tuple[MDP, Demonstrations]:
        """One choice between states with the given features, with equal probabilities at theta = 0."""
        n = len(features)
        phi = np.vstack([np.zeros(2), np.multiply(features, scale)])
        mdp = MDP.from_edges([0] * n, range(1, n + 1), p0=[1] + [0] * n, state_features=phi, feature_names=names)
        return mdp, Demonstrations.from_lists([[0, i] for i in range(1, n + 1)])

    @pytest.mark.parametrize("scale", [1.0, [1e3, 1e-2]])
    def test_condition_index_of_two_collinear_features(self, scale):
        """For two features with correlation r, it is sqrt((1 + r) / (1 - r)), in any units."""
        features = np.array([[1.0, 1.0], [2.0, 2.01], [3.0, 2.99], [4.0, 4.0]])
        pair = self.choose(features, scale=scale)
        model = MaxEnt(2, stop="terminal")
        report = compare_environments(model, [pair])
        r = np.corrcoef(features.T)[0, 1]
        directions, indices = report.find_weak()
        np.testing.assert_allclose(indices, [np.sqrt((1 + r) / (1 - r))], rtol=1e-6)
        standardised = directions[0] * features.std(axis=0) * scale
        np.testing.assert_allclose(standardised / standardised[0], [1.0, -1.0], rtol=1e-6)
        np.testing.assert_allclose(report.information[0], 4.0 * np.cov((features * scale).T, bias=True), rtol=1e-9)
        assert str(report).count("weakly identified") == 2
        assert report.find_weak(threshold=1e6)[0].shape == (0, 2)

    def test_another_environment_resolves_a_weak_direction(self):
        model = MaxEnt(2, stop="terminal")
        pairs = [self.choose([[1.0, 1.0], [2.0, 2.01], [3.0, 2.99]]), self.choose([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])]
        report = compare_environments(model, pairs)
        assert [len(report.find_weak(e)[0]) for e in (0, 1, None)] == [1, 0, 0]
        theta = {"a": 0.5, "b": -0.2}
        at = compare_environments(model, pairs, theta).information
        expected = [len(demos) * model.hessian(mdp, [0.5, -0.2]) for mdp, demos in pairs]
        np.testing.assert_allclose(at, expected, rtol=1e-9)

    def test_null_directions_are_not_weak(self):
        report = compare_environments(MaxEnt(2, stop="terminal"), [self.choose([[1.0, 2.0], [2.0, 4.0]])])
        assert report.joint.shape == (1, 2)
        assert report.find_weak()[0].shape == (0, 2)

    def test_invalid_arguments(self):
        with raises(InvalidParameter, parameter="mdps"):
            compare_environments(MaxCausalEnt(), [self.world(np.eye(3))]).find_weak()
        with raises(InvalidParameter, parameter="mdps", value=0):
            compare_environments(MaxCausalEnt(), [])
        with raises(InvalidParameter, parameter="theta", value="z"):
            compare_environments(MaxCausalEnt(), [self.world(np.eye(3))], {"z": 1.0})
        with raises(InvalidParameter, parameter="model", value="object"):
            compare_environments(object(), [self.world(np.eye(3))])
