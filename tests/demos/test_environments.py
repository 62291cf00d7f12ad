"""Several environments as one MDP: structure, features by name, and the same likelihoods as separately."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

import limiirl as ll
from limiirl.demos import Demonstrations, resolve_environments, split_environments
from limiirl.errors import InvalidDemos, InvalidMDP, InvalidParameter
from limiirl.irl import MLIRL, DestinationMaxEnt, MaxCausalEnt, MaxEnt
from limiirl.mdp import MDP, GoalFeature, add_goal_features
from tests.helpers import raises

THETAS = np.random.default_rng(0).uniform(-2.0, 0.0, (3, 4))


def random_mdp(seed: int, n_states: int, names: list[str], *, stochastic: bool = True, gamma: float = 0.9) -> MDP:
    """A random MDP in which the last state is terminal, with two state features, an action and an edge feature."""
    rng = np.random.default_rng(seed)
    T = np.zeros((n_states, 2, n_states))
    for s in range(n_states - 1):
        for a in range(2):
            likely = rng.permutation(n_states)[: 2 if stochastic else 1]
            T[s, a, likely] = rng.dirichlet(np.ones(likely.size))
        T[s, 0] = 0.5 * T[s, 0] * stochastic + np.eye(n_states)[s + 1] * (0.5 if stochastic else 1.0)
    mdp = MDP.from_dense(
        T, [*rng.dirichlet(np.ones(n_states - 1)), 0.0], gamma=gamma, state_features=rng.random((n_states, 2))
    )
    return mdp.replace(
        action_features=rng.random((mdp.n_pairs, 1)), edge_features=rng.random((mdp.n_edges, 1)), feature_names=names
    )


def simulate(mdp: MDP, n: int, seed: int) -> Demonstrations:
    demos = MaxCausalEnt(max_length=8).sample(mdp, np.full(mdp.n_features, -1.0), n, seed=seed)
    return demos[demos.lengths > 1]


@pytest.fixture(scope="module")
def pairs() -> list[tuple[MDP, Demonstrations]]:
    worlds = [random_mdp(1, 5, ["a", "b", "act", "edge"]), random_mdp(2, 7, ["b", "a", "act", "edge"])]
    return [(mdp, simulate(mdp, 30 + 10 * e, e)) for e, mdp in enumerate(worlds)]


def separate_thetas(mdp: MDP) -> np.ndarray:
    """THETAS in the order of the features of an environment."""
    return THETAS[:, [["a", "b", "act", "edge"].index(name) for name in mdp.feature_names]]


class TestUnion:
    def test_states_edges_and_features_are_those_of_the_environments(self, pairs):
        mdp, demos = ll.combine_environments(pairs)
        assert (mdp.n_states, mdp.n_edges) == (12, sum(own.n_edges for own, _ in pairs))
        assert mdp.feature_names == ("a", "b", "act", "edge")
        np.testing.assert_array_equal(mdp.environment, np.repeat([0, 1], [5, 7]))
        np.testing.assert_array_equal(mdp.state_features[5:], pairs[1][0].state_features[:, ::-1])
        np.testing.assert_array_equal(demos.states, np.concatenate([pairs[0][1].states, pairs[1][1].states + 5]))
        share = len(pairs[0][1]) / len(demos)
        np.testing.assert_allclose(mdp.p0[:5], share * pairs[0][0].p0, rtol=1e-15)
        with np.errstate(divide="ignore"):
            np.testing.assert_allclose(mdp.log_p0, np.log(np.concatenate([own.p0 for own, _ in pairs])), rtol=1e-12)

    def test_environments_are_recovered(self, pairs):
        mdp, _ = ll.combine_environments(pairs)
        for (own, _), part in zip(pairs, split_environments(mdp), strict=True):
            np.testing.assert_array_equal(part.mdp.dst, own.dst)
            np.testing.assert_array_equal(part.mdp.action_features, own.action_features)
            np.testing.assert_array_equal(part.mdp.edge_features, own.edge_features)
            np.testing.assert_allclose(part.mdp.p0, own.p0, rtol=1e-14)
            np.testing.assert_array_equal(mdp.prob[part.edges], own.prob)

    def test_absent_features_are_zero_and_sparse_features_stay_sparse(self):
        one = MDP.from_edges([0], [1], state_names=["den", "pond"])
        two = MDP.from_edges([0], [1], state_names=["pond", "nest"])
        demos = Demonstrations.from_lists([[0, 1]])
        mdp, joint = ll.combine_environments({"north": (one, demos), "south": (two, demos)})
        assert mdp.feature_names == ("state[den]", "state[pond]", "state[nest]")
        assert mdp.state_names == ("north: den", "north: pond", "south: pond", "south: nest")
        assert sparse.issparse(mdp.state_features)
        np.testing.assert_array_equal(mdp.state_features.toarray(), [[1, 0, 0], [0, 1, 0], [0, 1, 0], [0, 0, 1]])
        assert joint.state_names == mdp.state_names

    def test_groups_and_names_of_demonstrations_are_kept(self):
        mdp = MDP.from_edges([0], [1], state_names=["den", "pond"])
        demos = Demonstrations.from_lists([["den", "pond"], ["den"]], groups=["ann", "bob"])
        _, joint = ll.combine_environments([(mdp, demos), (mdp, demos)])
        assert joint.groups.tolist() == ["ann", "bob", "ann", "bob"]
        np.testing.assert_array_equal(joint.states, [0, 1, 0, 2, 3, 2])

    def test_history_and_files(self, tmp_path):
        line = MDP.from_edges([0, 1, 1], [1, 0, 2], state_names=["den", "pond", "nest"])
        longer, own = ll.with_history(line, Demonstrations.from_lists([["den", "pond", "den", "pond", "nest"]]))
        mdp, demos = ll.combine_environments([(longer, own), (longer, own)])
        np.testing.assert_array_equal(mdp.history[3:], longer.history + 3)
        assert mdp.original_names[3:] == ("1: den", "1: pond", "1: nest")
        mdp.save(tmp_path / "union.npz")
        again = MDP.load(tmp_path / "union.npz")
        assert again == mdp
        assert again.fingerprint() == mdp.fingerprint()
        assert again != mdp.replace(environment=None, environment_names=())
        assert mdp.replace(environment_names=["x", "y"]) != mdp
        np.testing.assert_array_equal(demos.states, np.concatenate([own.states, own.states + 3]))

    def test_history_of_a_union_keeps_the_environments(self, pairs):
        mdp, demos = ll.combine_environments(pairs)
        longer, own = ll.with_history(mdp, demos)
        np.testing.assert_array_equal(longer.environment, mdp.environment[longer.history[:, 0]])
        log_prob = MaxEnt(max_length=9).log_prob(longer, THETAS, own)
        for e in (0, 1):
            part = split_environments(longer)[e]
            mine = longer.environment[own.start_states] == e
            alone = own[mine].replace(
                states=np.searchsorted(part.states, own[mine].states), state_names=None, action_names=None
            )
            np.testing.assert_allclose(
                log_prob[mine], MaxEnt(max_length=9).log_prob(part.mdp, THETAS, alone), rtol=1e-12
            )

    def test_goal_features(self):
        mdps = [MDP.from_edges([0, 1], [1, 2], state_features=[[c], [c], [c]]) for c in (1.0, 2.0)]
        mdps = [
            add_goal_features(mdp, GoalFeature("far", np.array([[2.0, 1.0, c]]), [2])) for c, mdp in enumerate(mdps)
        ]
        demos = Demonstrations.from_lists([[0, 1, 2]])
        mdp, joint = ll.combine_environments([(own, demos) for own in mdps])
        (far,) = mdp.goal_features
        np.testing.assert_array_equal(far.goals, [2, 5])
        np.testing.assert_array_equal(far.values.toarray(), [[2, 1, 0, 0, 0, 0], [0, 0, 0, 2, 1, 1]])
        thetas = np.array([[-1.0, -0.5]])
        model = DestinationMaxEnt(bounds=None)
        alone = np.concatenate([model.log_prob(own, thetas, demos) for own in mdps])
        np.testing.assert_allclose(model.log_prob(mdp, thetas, joint), alone, atol=1e-12)


class TestErrors:
    demos = Demonstrations.from_lists([[0, 1]])

    def test_pairs(self):
        mdp = MDP.from_edges([0], [1])
        for given, index in (([], None), ([(mdp,)], 0), ([(mdp, self.demos), (mdp, self.demos[:0])], 1), (3, None)):
            with raises(InvalidParameter, parameter="environments", index=index):
                ll.combine_environments(given)
        with raises(InvalidDemos, parameter="demos"):
            resolve_environments(mdp, None)
        union, _ = ll.combine_environments([(mdp, self.demos)])
        with raises(InvalidMDP, parameter="environment", index=1):
            ll.combine_environments([(mdp, self.demos), (union, self.demos)])

    @pytest.mark.parametrize(
        ("changes", "parameter"),
        [
            ({"gamma": 0.5}, "gamma"),
            ({"action_names": ["go"]}, "action_names"),
            ({"feature_names": ["x", "y"]}, "feature_names"),
            ({"feature_names": ["p", "p"]}, "feature_names"),
            ({"history": [[0], [1]]}, "history"),
            ({"goal_features": (GoalFeature("far", np.ones((1, 2)), [1]),)}, "goal_features"),
        ],
    )
    def test_environments_that_do_not_match(self, changes, parameter):
        one = MDP.from_edges([0], [1], state_features=np.eye(2), feature_names=["p", "q"])
        two = (
            one.replace(**changes)
            if "goal_features" not in changes
            else add_goal_features(one, changes["goal_features"][0])
        )
        with raises(InvalidMDP, parameter=parameter):
            ll.combine_environments([(one, self.demos), (two, self.demos)])

    def test_kinds_of_features(self):
        one = MDP.from_edges([0], [1], state_features=np.eye(2), feature_names=["p", "q"])
        two = MDP.from_edges([0], [1], edge_features=[[1.0]], state_features=[1, 0], feature_names=["q", "p"])
        with raises(InvalidMDP, parameter="feature_names", value="p"):
            ll.combine_environments([(one, self.demos), (two, self.demos)])

    def test_fields_of_the_mdp(self):
        mdp = MDP.from_edges([0], [1], p0=[1, 0])
        with raises(InvalidMDP, parameter="environment", index=0):
            mdp.replace(environment=[0, 1])
        with raises(InvalidMDP, parameter="environment", value=(1,)):
            mdp.replace(environment=[0])
        apart = MDP.from_edges([0, 2], [1, 3], p0=[1, 0, 0, 0])
        with raises(InvalidMDP, parameter="p0"):
            apart.replace(environment=[0, 0, 1, 1])

    def test_environments_of_new_demonstrations(self, pairs):
        mdp, _ = ll.combine_environments({"x": pairs[0], "y": pairs[1]})
        own = pairs[1][1][:3]
        np.testing.assert_array_equal(ll.to_environment(mdp, own, "y").states, own.states + 5)
        np.testing.assert_array_equal(ll.to_environment(mdp, own, 1).states, own.states + 5)
        with raises(InvalidParameter, parameter="environment", value="z"):
            ll.to_environment(mdp, own, "z")
        with raises(InvalidDemos, parameter="demos", value=6):
            ll.to_environment(mdp, Demonstrations.from_lists([[6]]), 0)
        with raises(InvalidParameter, parameter="mdp"):
            ll.to_environment(pairs[0][0], own, 0)


MODELS = [
    MaxEnt(max_length=9),
    MaxEnt(max_length=9, condition="start"),
    MaxEnt(max_length=9, stop="terminal_or_max_length"),
    MaxCausalEnt(),
    MaxCausalEnt(max_length=9),
    MLIRL(),
    MLIRL(q="bv"),
]


@pytest.mark.parametrize("model", MODELS, ids=str)
class TestLikelihood:
    def demonstrations(self, model, pairs):
        """Demonstrations that end where the model allows; some actions are not recorded."""
        if getattr(model, "stop", "anywhere") == "anywhere":
            return [(mdp, demos.replace(actions=None) if e == 0 else demos) for e, (mdp, demos) in enumerate(pairs)]
        return [(mdp, model.sample(mdp, np.full(4, -1.0), 40, seed=e)) for e, (mdp, _) in enumerate(pairs)]

    def test_it_is_the_product_of_the_separate_likelihoods(self, model, pairs):
        own = self.demonstrations(model, pairs)
        mdp, demos = ll.combine_environments(own)
        alone = np.vstack([model.log_prob(part, separate_thetas(part), demo) for part, demo in own])
        np.testing.assert_allclose(model.log_prob(mdp, THETAS, demos), alone, rtol=1e-10)

    def test_gradients_and_curvature_are_sums(self, model, pairs):
        own = self.demonstrations(model, pairs)
        mdp, demos = ll.combine_environments(own)
        theta, U = THETAS[:1], np.ones((len(demos), 1))
        joint = ll.irl.make_problem(model, mdp, demos)
        value, gradient = joint.objective(U).evaluate(theta, np.arange(1))
        curvature = joint.curvature(U, theta, np.ones((1, 4), dtype=bool))
        values, gradients, curvatures = 0.0, np.zeros(4), np.zeros((4, 4))
        for part, demo in own:
            problem, ones = ll.irl.make_problem(model, part, demo), np.ones((len(demo), 1))
            order = [part.feature_names.index(name) for name in mdp.feature_names]
            v, g = problem.objective(ones).evaluate(separate_thetas(part)[:1], np.arange(1))
            values, gradients = values + len(demo) * v[0], gradients + len(demo) * g[0][order]
            own_curvature = problem.curvature(ones, separate_thetas(part)[:1], np.ones((1, 4), dtype=bool))[0]
            curvatures += own_curvature[np.ix_(order, order)]
        np.testing.assert_allclose(len(demos) * value[0], values, rtol=1e-10)
        np.testing.assert_allclose(len(demos) * gradient[0], gradients, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(curvature[0], curvatures, rtol=1e-5, atol=1e-5 * np.abs(curvatures).max())

    def test_two_copies_with_half_of_the_data_give_the_fit_of_one(self, model, pairs):
        mdp, demos = self.demonstrations(model, pairs)[1]
        halves = [(mdp, demos[::2]), (mdp, demos[1::2])]
        model = clone(model).set_params(bounds=(-5.0, 5.0), ridge=0.01)
        alone = model.fit(mdp, demos)
        np.testing.assert_allclose(model.fit(halves), alone, rtol=1e-4, atol=1e-4)
        assert model.result_.null_directions.shape[0] == len(model.null_directions(mdp, alone))


def test_the_condition_on_the_environment_matters(pairs):
    mdp, demos = ll.combine_environments(pairs)
    without = mdp.replace(environment=None, environment_names=())
    model = MaxEnt(max_length=9)
    assert np.abs(model.log_prob(mdp, THETAS, demos) - model.log_prob(without, THETAS, demos)).min() > 0.1


class TestDestinations:
    """`DestinationMaxEnt` is conditioned on both ends, and therefore on the environment."""

    def trips(self, seed: int, n_states: int) -> tuple[MDP, Demonstrations]:
        rng = np.random.default_rng(seed)
        ring = np.arange(n_states)
        src, dst = np.concatenate([ring, ring, ring]), np.concatenate([(ring + step) % n_states for step in (1, 2, -1)])
        mdp = MDP.from_edges(src, dst, n_states=n_states, edge_features=rng.uniform(0.5, 1.5, (3 * n_states, 2)))
        ends = rng.permutation(n_states)[:2]
        model = DestinationMaxEnt(bounds=None)
        paths = [model.most_likely(mdp, np.full(2, -1.0), int(s), int(g))[0] for s in ends for g in ring if s != g]
        return mdp, Demonstrations.concat(paths)

    def test_likelihood_and_fit(self):
        pairs = [self.trips(seed, n) for seed, n in ((0, 6), (1, 8))]
        mdp, demos = ll.combine_environments(pairs)
        model = DestinationMaxEnt(bounds=(-8.0, -0.1), ridge=0.01)
        thetas = np.array([[-1.0, -2.0], [-2.0, -1.5]])
        alone = np.vstack([model.log_prob(own, thetas, part) for own, part in pairs])
        np.testing.assert_allclose(model.log_prob(mdp, thetas, demos), alone, rtol=1e-9, atol=1e-12)
        one, part = pairs[0]
        twice = model.fit([(one, part[::2]), (one, part[1::2])])
        np.testing.assert_allclose(twice, model.fit(one, part), rtol=1e-4)
