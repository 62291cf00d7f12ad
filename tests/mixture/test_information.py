"""The observed information of a mixture against second differences of its likelihood, and standard errors from it."""

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize

from limiirl import MDP, MLIRL, Agents, Demonstrations, IntentMixture, MaxCausalEnt, MaxEnt, RewardEnsemble, SigmaGIRL
from limiirl.demos import Groups
from limiirl.errors import InvalidParameter, NotFitted
from limiirl.irl import DestinationMaxEnt
from limiirl.irl.causal import stationary
from limiirl.irl.problem import FitProblem, make_problem
from limiirl.mixture import information as derivatives
from limiirl.mixture.information import free_parameters, information, standard_errors
from tests.helpers import raises
from tests.oracles.curvature import first_derivatives, second_derivatives, unit_log_likelihoods
from tests.oracles.enumeration import Enumeration
from tests.oracles.likelihood import as_demonstrations, possible, same_states, small_mdp

RHO = np.array([0.5, 0.3, 0.2])
GROUPS = np.array([2, 0, 0, 1, 2, 3, 3, 3, 4, 1, 0, 5])


def observe(problem, rho, thetas):
    """Return the observed information of all parameters."""
    return information(problem, rho, thetas, np.ones(thetas.shape, dtype=bool))[0]


def thetas_for(mdp: MDP, n_intents: int = 3) -> np.ndarray:
    return 0.7 * np.random.default_rng(3).normal(size=(n_intents, mdp.n_features))


def draw(paths: Enumeration, n: int = 12) -> np.ndarray:
    return np.random.default_rng(5).choice(possible(paths), size=n)


def flat(rho: np.ndarray, thetas: np.ndarray) -> np.ndarray:
    return np.concatenate([rho, thetas.ravel()])


def units_of(demos: list[list[int]], groups: np.ndarray | None) -> list[list[list[int]]]:
    if groups is None:
        return [[demo] for demo in demos]
    return [[demos[i] for i in np.flatnonzero(groups == g)] for g in np.unique(groups)]


# Two intents that differ enough for their trajectories to distinguish them.
FAR = np.array([[1.5, -1.0], [-1.5, 0.5]])


def mixture_probabilities(paths: Enumeration, rho: np.ndarray, thetas: np.ndarray) -> np.ndarray:
    """The probabilities of the possible trajectories under a mixture."""
    p = sum(share * paths.law(theta).p for share, theta in zip(rho, thetas, strict=True))
    chosen = p[possible(paths)]
    return chosen / chosen.sum()


def from_mixture(paths: Enumeration, n: int) -> np.ndarray:
    """Trajectories of a mixture of the two."""
    return np.random.default_rng(2).choice(
        possible(paths), size=n, p=mixture_probabilities(paths, np.array([0.6, 0.4]), FAR)
    )


class Plain:
    """A model with nothing but fit, log_prob and parameters, which are those of MaxEnt in a box."""

    bounds = (-10.0, 10.0)

    def __init__(self, inner: MaxEnt):
        self.inner = inner

    def get_params(self, deep=False):
        return {"inner": self.inner}

    def fit(self, mdp, demos, weights=None, start=None):
        return self.inner.fit(mdp, demos, weights, start)

    def log_prob(self, mdp, thetas, demos):
        return self.inner.log_prob(mdp, thetas, demos)


@pytest.mark.parametrize("groups", [None, GROUPS], ids=["alone", "grouped"])
@pytest.mark.parametrize("condition", ["none", "start"])
@pytest.mark.parametrize("moves", [False, True], ids=["states", "moves"])
def test_information_is_minus_the_second_derivative_of_the_log_likelihood(moves, condition, groups):
    mdp = small_mdp(moves=moves)
    paths, by_start = Enumeration(mdp, 4), condition == "start"
    rows, thetas = draw(paths), thetas_for(mdp)
    units = units_of([[int(i)] for i in rows], groups)

    def value(x):
        return sum(unit_log_likelihoods(paths, units, x[:3], x[3:].reshape(thetas.shape), by_start))

    ready = make_problem(MaxEnt(4, condition=condition), mdp, as_demonstrations(paths, rows), groups)
    result = observe(ready, RHO, thetas)
    np.testing.assert_allclose(result, -second_derivatives(value, flat(RHO, thetas)), rtol=1e-6, atol=2e-6)
    np.testing.assert_array_equal(result, result.T)


def test_unbounded_length():
    mdp = small_mdp(gamma=1.0)
    rows = np.arange(0, 40, 4)
    paths = Enumeration(mdp, 4)
    demos = as_demonstrations(paths, possible(paths)[rows])
    thetas = thetas_for(mdp, 2) - np.array([2.0, 2.0, 0.5, 0.5])
    ready = make_problem(MaxEnt(np.inf, bounds=None), mdp, demos)

    def value(x):
        log_p = ready.model.log_prob(mdp, x[2:].reshape(2, -1), demos)
        return float(np.log(np.exp(log_p) @ x[:2]).sum())

    rho = np.array([0.6, 0.4])
    result = observe(ready, rho, thetas)
    np.testing.assert_allclose(result, -second_derivatives(value, flat(rho, thetas)), rtol=1e-6, atol=2e-6)


def test_one_intent_has_n_times_the_covariance():
    mdp = small_mdp()
    paths = Enumeration(mdp, 4)
    theta = thetas_for(mdp, 1)
    ready = make_problem(MaxEnt(4, bounds=None), mdp, as_demonstrations(paths, draw(paths, 20)))
    covariance = paths.law(theta[0]).covariance()
    np.testing.assert_allclose(observe(ready, np.ones(1), theta)[1:, 1:], 20 * covariance, rtol=1e-9, atol=1e-9)
    result = standard_errors(ready, np.ones(1), theta)
    assert result.weights.tolist() == [0.0]
    assert result.n_free == 4


def test_a_ridge_adds_its_curvature():
    mdp = small_mdp()
    paths = Enumeration(mdp, 4)
    demos, thetas = as_demonstrations(paths, draw(paths)), thetas_for(mdp)
    plain, ridged = (observe(make_problem(MaxEnt(4, ridge=x), mdp, demos), RHO, thetas) for x in (0.0, 0.3))
    # The penalty is ridge / 2 N / K sum theta^2.
    added = np.diag(np.concatenate([np.zeros(3), np.full(12, 0.3 * 12 / 3)]))
    np.testing.assert_allclose(ridged - plain, added, rtol=0, atol=1e-10)


@pytest.mark.parametrize("groups", [None, GROUPS], ids=["alone", "grouped"])
def test_unrecorded_actions_have_a_covariance_of_their_own(groups):
    mdp = small_mdp()
    paths = Enumeration(mdp, 4)
    alike = list(same_states(paths).values())
    demos_paths = [alike[i] for i in np.random.default_rng(1).integers(len(alike), size=12)]
    assert any(len(demo) > 1 for demo in demos_paths)
    demos = Demonstrations.from_lists([paths.listed[demo[0]][0] for demo in demos_paths])
    units, thetas = units_of(demos_paths, groups), thetas_for(mdp)

    def value(x):
        return sum(unit_log_likelihoods(paths, units, x[:3], x[3:].reshape(thetas.shape)))

    ready = make_problem(MaxEnt(4), mdp, demos, groups)
    assert not ready.observed.fixed
    expected = -second_derivatives(value, flat(RHO, thetas))
    np.testing.assert_allclose(observe(ready, RHO, thetas), expected, rtol=1e-6, atol=2e-6)


def test_a_model_with_fit_and_log_prob_uses_the_outer_product_of_scores():
    mdp = small_mdp()
    paths = Enumeration(mdp, 4)
    rows, thetas = draw(paths), thetas_for(mdp)
    units = units_of([[int(i)] for i in rows], GROUPS)
    each = first_derivatives(
        lambda x: unit_log_likelihoods(paths, units, x[:3], x[3:].reshape(thetas.shape)), flat(RHO, thetas)
    )
    ready = make_problem(Plain(MaxEnt(4)), mdp, as_demonstrations(paths, rows), GROUPS)
    assert type(ready) is FitProblem
    np.testing.assert_allclose(observe(ready, RHO, thetas), each.T @ each, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("groups", [None, GROUPS], ids=["alone", "grouped"])
@pytest.mark.parametrize("kind", ["exact", "start", "unrecorded", "plain"])
def test_blocks_add_up_to_the_whole(kind, groups, monkeypatch):
    mdp = small_mdp()
    paths = Enumeration(mdp, 4)
    demos = as_demonstrations(paths, draw(paths), actions=kind != "unrecorded")
    model = MaxEnt(4, condition="start" if kind == "start" else "none")
    ready = make_problem(Plain(model) if kind == "plain" else model, mdp, demos, groups)
    thetas = thetas_for(mdp)
    whole = observe(ready, RHO, thetas)
    monkeypatch.setattr(derivatives, "_BLOCK_BYTES", 5 * 8 * thetas.size)  # five units at a time
    sizes = [units.stop - units.start for units, _ in derivatives.score_blocks(ready, thetas, np.ones((3, 4), bool))]
    assert sizes == ([5, 5, 2] if groups is None else [5, 1])
    np.testing.assert_allclose(observe(ready, RHO, thetas), whole, rtol=1e-8, atol=1e-8)


def test_errors_do_not_depend_on_which_weight_is_eliminated():
    mdp = small_mdp(moves=False)
    paths = Enumeration(mdp, 4)
    rows = from_mixture(paths, 4000)
    counts = np.bincount(rows, minlength=len(paths.listed))

    def value(x):
        used = np.flatnonzero(counts)
        rho = np.array([x[0], 1.0 - x[0]])
        each = unit_log_likelihoods(paths, [[[int(i)]] for i in used], rho, x[1:].reshape(2, 2))
        return float(counts[used] @ np.array(each))

    start = np.concatenate([[0.62], FAR.ravel()])
    hessian = -second_derivatives(value, start)
    covariance = np.linalg.inv(hessian)
    ready = make_problem(MaxEnt(4, bounds=None), mdp, as_demonstrations(paths, rows))
    result = standard_errors(ready, np.array([0.62, 0.38]), FAR)
    np.testing.assert_allclose(result.thetas.ravel() ** 2, np.diag(covariance)[1:], rtol=1e-5)
    np.testing.assert_allclose(result.weights**2, np.full(2, covariance[0, 0]), rtol=1e-5)
    kept = np.array([0, 2, 3, 4, 5])
    np.testing.assert_allclose(result.covariance[np.ix_(kept, kept)], covariance, rtol=1e-4, atol=1e-9)
    np.testing.assert_allclose(result.covariance[1, 2:], -covariance[0, 1:], rtol=1e-4, atol=1e-9)
    assert result.n_free == 5
    assert np.all(result.status == "ok")


def test_units_of_features_do_not_matter():
    mdp = small_mdp(moves=False)
    paths = Enumeration(mdp, 4)
    demos = as_demonstrations(paths, from_mixture(paths, 2000))
    scale = np.array([1e-4, 1e3])
    other = MDP.from_edges(
        mdp.src, mdp.dst, action=mdp.act, prob=mdp.prob, p0=mdp.p0, gamma=mdp.gamma,
        state_features=mdp.state_features * scale,
    )  # fmt: skip
    for condition in ("none", "start"):
        irl = MaxEnt(4, bounds=None, condition=condition)
        a = standard_errors(make_problem(irl, mdp, demos), np.array([0.6, 0.4]), FAR)
        b = standard_errors(make_problem(irl, other, demos), np.array([0.6, 0.4]), FAR / scale)
        np.testing.assert_allclose(b.thetas * scale, a.thetas, rtol=1e-5)
        assert np.all(a.status == b.status)


def repeat_feature(copies: int = 2) -> MDP:
    """The small MDP, its second feature there several times over."""
    mdp = small_mdp(moves=False)
    features = np.column_stack([mdp.state_features[:, :1], *[mdp.state_features[:, 1:]] * copies])
    return MDP.from_edges(
        mdp.src, mdp.dst, action=mdp.act, prob=mdp.prob, p0=mdp.p0, gamma=mdp.gamma, state_features=features
    )


@pytest.mark.parametrize("ridge", [0.0, 0.01])
def test_null_directions_are_marked_and_do_not_affect_other_errors(ridge):
    mdp, twice = small_mdp(moves=False), repeat_feature()
    paths = Enumeration(mdp, 4)
    demos = as_demonstrations(paths, from_mixture(paths, 2000))
    rho = np.array([0.6, 0.4])
    plain = standard_errors(make_problem(MaxEnt(4, bounds=None), mdp, demos), rho, FAR)
    split = np.column_stack([FAR[:, 0], FAR[:, 1] - 0.3, np.full(2, 0.3)])
    ready = make_problem(MaxEnt(4, bounds=None, ridge=ridge), twice, demos)
    result = standard_errors(ready, rho, split)
    assert result.status.tolist() == [["ok", "not identified", "not identified"]] * 2
    assert np.all(np.isnan(result.thetas[:, 1:]))
    assert result.n_free == plain.n_free == 5
    if ridge == 0.0:
        np.testing.assert_allclose(result.thetas[:, 0], plain.thetas[:, 0], rtol=1e-8)
        np.testing.assert_allclose(result.weights, plain.weights, rtol=1e-8)
    else:
        # The ridge makes the information regular: whatever is left out, the others are those of its whole inverse.
        free = np.zeros((8, 7))
        free[:2, 0], free[2:, 1:] = [1.0, -1.0], np.eye(6)
        whole = np.linalg.inv(free.T @ observe(ready, rho, split) @ free)
        np.testing.assert_allclose(result.thetas[:, 0] ** 2, np.diag(whole)[[1, 4]], rtol=1e-8)
        np.testing.assert_allclose(result.weights**2, whole[[0, 0], [0, 0]], rtol=1e-8)


def test_contrasts_of_identified_rewards_follow_from_the_covariance():
    mix, _ = fit_mixture()
    errors = mix.standard_errors()
    K, d = errors.thetas.shape
    assert (errors.status == "ok").all()
    np.testing.assert_allclose(errors.of_contrasts(np.eye(d)), errors.thetas, rtol=1e-9)
    contrast = np.random.default_rng(0).normal(size=d)
    for k in range(K):
        own = errors.covariance[K + k * d : K + (k + 1) * d, K + k * d : K + (k + 1) * d]
        np.testing.assert_allclose(errors.of_contrasts(contrast)[k, 0], np.sqrt(contrast @ own @ contrast), rtol=1e-9)


def test_a_contrast_is_identified_although_its_rewards_are_not():
    """With two copies of a feature, only the sum of their rewards is identified."""
    mdp, one = repeat_feature(2), repeat_feature(1)
    paths = Enumeration(one, 3, "anywhere")
    demos = as_demonstrations(paths, draw(paths), one)
    models = [(m, MaxEnt(3, bounds=(-5.0, 5.0))) for m in (one, mdp)]
    alone, twice = (
        standard_errors(make_problem(irl, m, demos), np.ones(1), np.zeros((1, m.n_features))) for m, irl in models
    )
    extra = mdp.n_features - one.n_features
    assert extra == 1
    unsure = np.flatnonzero(twice.status[0] == "not identified")
    assert unsure.size == 2
    difference, total = np.zeros((2, mdp.n_features))
    difference[unsure], total[unsure] = (1.0, -1.0), (0.5, 0.5)
    errors = twice.of_contrasts([difference, total])[0]
    assert np.isnan(errors[0])
    np.testing.assert_allclose(2.0 * errors[1], alone.thetas[0, unsure[0]], rtol=1e-6)


def test_a_bound_on_a_null_direction_identifies_its_other_parameters():
    paths = Enumeration(small_mdp(moves=False), 4)
    demos = as_demonstrations(paths, from_mixture(paths, 2000))
    theta = np.array([[-0.5, -1.0, 0.0]])  # the third lies on the bound: the second cannot be traded for it
    result = standard_errors(make_problem(MaxEnt(4), repeat_feature(), demos), np.ones(1), theta)
    assert result.status.tolist() == [["ok", "ok", "bound"]]
    covariance = paths.law(np.array([-0.5, -1.0])).covariance()
    np.testing.assert_allclose(result.thetas[0, :2] ** 2, np.diag(np.linalg.inv(2000 * covariance)), rtol=1e-8)
    assert np.isnan(result.thetas[0, 2])
    assert np.isnan(result.covariance[3]).all()
    assert result.n_free == 2


def test_errors_with_an_active_bound_equal_errors_with_the_value_fixed():
    mdp = small_mdp(moves=False)
    paths = Enumeration(mdp, 4)
    rows = from_mixture(paths, 2000)
    theta = np.array([-0.5, 0.0])
    result = standard_errors(make_problem(MaxEnt(4), mdp, as_demonstrations(paths, rows)), np.ones(1), theta[None])
    assert result.status.tolist() == [["ok", "bound"]]
    np.testing.assert_allclose(result.thetas[0, 0], 1 / np.sqrt(2000 * paths.law(theta).covariance()[0, 0]), rtol=1e-9)


def test_three_copies_with_one_on_a_bound():
    paths = Enumeration(small_mdp(moves=False), 4)
    result = free_parameters(MaxEnt(4), repeat_feature(3), np.ones(1), np.array([[-0.5, -1.0, -2.0, 0.0]]), 100)
    assert paths.mdp.n_features == 2
    assert result.status.tolist() == [["ok", "not identified", "not identified", "bound"]]
    assert result.n_free == 2  # the first, and the sum of the two that are left


def to_an_end(gamma: float = 0.99) -> MDP:
    """Seven places of three kinds, and an end, the fourth kind: all walks end there, by whatever places."""
    rng = np.random.default_rng(4)
    src = np.repeat(np.arange(7), 3)
    dst = np.concatenate([[*rng.choice(np.delete(np.arange(7), s), 2, replace=False), 7] for s in range(7)])
    kinds = np.eye(4)[[0, 1, 2, 0, 1, 2, 0, 3]]
    return MDP.from_edges(src, dst, p0=[0.5, 0.5, 0, 0, 0, 0, 0, 0], gamma=gamma, state_features=kinds)


def test_parameters_with_a_small_component_of_a_null_direction_keep_their_errors():
    """A step more costs 1 - gamma of what the end is worth, whatever the way: (1, 1, 1, 100) changes no choice.

    Let v be that direction, of length 1, and C the covariance if the reward of the end is known. To leave v out is to
    look at Q theta, Q = I - v v', whose covariance is Q C Q. So a standard error differs from one in C by at most
    |v_j| sqrt(v' C v): that is the triangle inequality of the norm that C makes.
    """
    mdp, rho, end = to_an_end(), np.array([0.6, 0.4]), 0.5
    thetas = np.array([[-2.0, -0.6, -1.2, end], [-0.8, -1.8, -1.5, end]])
    irl = MaxCausalEnt(bounds=None, ridge=0.0)
    demos = irl.sample(mdp, thetas[0], 3600, seed=0) + irl.sample(mdp, thetas[1], 2400, seed=1)
    assert 3 < demos.lengths.mean() < 10  # all reach the end, and none at once
    v = np.array([0.01, 0.01, 0.01, 1.0]) / np.sqrt(1.0003)
    np.testing.assert_allclose(irl.null_directions(mdp, thetas[0]), [v], rtol=0, atol=1e-9)
    result = standard_errors(make_problem(irl, mdp, demos), rho, thetas)
    assert result.status.tolist() == [["ok", "ok", "ok", "not identified"]] * 2
    assert result.n_free == 7
    assert np.isfinite(result.thetas[:, :3]).all()
    assert np.isnan(result.thetas[:, 3]).all()

    known = MaxCausalEnt(
        bounds=[(-np.inf, np.inf)] * 3 + [(-np.inf, end)], ridge=0.0
    )  # on its bound, the end's is held
    held = standard_errors(make_problem(known, mdp, demos), rho, thetas)
    assert held.status.tolist() == [["ok", "ok", "ok", "bound"]] * 2
    assert held.n_free == result.n_free
    C, Q = np.nan_to_num(held.covariance), np.eye(10)
    Q[2:6, 2:6] -= np.outer(v, v)
    Q[6:, 6:] -= np.outer(v, v)
    finite = np.isfinite(np.diag(result.covariance))
    np.testing.assert_allclose(
        result.covariance[np.ix_(finite, finite)], (Q @ C @ Q)[np.ix_(finite, finite)], rtol=1e-6
    )
    for k, own in enumerate((slice(2, 6), slice(6, 10))):
        most = 0.01 * np.sqrt(v @ C[own, own] @ v)
        assert most < 0.01 * held.thetas[k, :3].min()
        np.testing.assert_allclose(result.thetas[k, :3], held.thetas[k, :3], rtol=0, atol=most)
        assert not np.array_equal(result.thetas[k, :3], held.thetas[k, :3])


def test_a_null_direction_of_all_parameters_leaves_none_identified():
    # With a discount of a half, the end weighs 2: all four have a component above a tenth.
    irl, mdp = MaxCausalEnt(bounds=None), to_an_end(gamma=0.5)
    result = free_parameters(irl, mdp, np.ones(1), np.zeros((1, 4)), 100)
    np.testing.assert_allclose(irl.null_directions(mdp, np.zeros(4)), [np.array([1, 1, 1, 2]) / np.sqrt(7)], rtol=1e-9)
    assert result.status.tolist() == [["not identified"] * 4]
    assert result.n_free == 3


@pytest.mark.parametrize(
    ("kind", "parameters", "calls"),
    [(MaxCausalEnt, {}, 1), (MaxEnt, {"max_length": 4}, 1), (MaxEnt, {"max_length": 4, "stop": "terminal"}, 2)],
)
def test_null_directions_independent_of_theta_are_computed_once(kind, parameters, calls):
    calls_made = []

    class Counted(kind):
        def null_directions(self, mdp, theta):
            calls_made.append(theta)
            return super().null_directions(mdp, theta)

    irl = Counted(**parameters)
    thetas, rho = np.random.default_rng(0).normal(size=(3, 4)) - 1.0, np.array([0.6, 0.4 - 1e-9, 1e-9])
    result = free_parameters(irl, to_an_end(), rho, thetas, 100)
    assert len(calls_made) == calls  # of three intents, one is empty
    assert result.status[2].tolist() == ["empty"] * 4
    for k in range(2):
        alone = free_parameters(kind(**parameters), to_an_end(), np.ones(1), thetas[[k]], 100)
        assert result.status[k].tolist() == alone.status[0].tolist()


def test_intent_without_demonstrations_is_empty():
    mdp = small_mdp(moves=False)
    paths = Enumeration(mdp, 4)
    demos = as_demonstrations(paths, from_mixture(paths, 2000))
    ready = make_problem(MaxEnt(4, bounds=None), mdp, demos)
    two = standard_errors(ready, np.array([0.6, 0.4]), FAR)
    rho, thetas = np.array([0.6, 1e-8, 0.4 - 1e-8]), np.insert(FAR, 1, [0.0, 0.0], axis=0)
    result = standard_errors(ready, rho, thetas)
    assert result.status.tolist() == [["ok", "ok"], ["empty", "empty"], ["ok", "ok"]]
    assert np.isnan(result.weights[1])
    np.testing.assert_allclose(result.weights[[0, 2]], two.weights, rtol=1e-5)
    np.testing.assert_allclose(result.thetas[[0, 2]], two.thetas, rtol=1e-5)
    assert result.n_free == two.n_free == 5


def test_an_intent_of_a_thousandth_is_empty_and_one_of_a_hundredth_is_not():
    mdp = small_mdp(moves=False)
    for share, status in ((0.0009, "empty"), (0.01, "ok")):
        result = free_parameters(MaxEnt(4, bounds=None), mdp, np.array([1 - share, share]), FAR, 10_000)
        assert result.status.tolist() == [["ok", "ok"], [status, status]]


def test_two_equal_intents_are_flat():
    mdp = small_mdp(moves=False)
    paths = Enumeration(mdp, 4)
    ready = make_problem(MaxEnt(4, bounds=None), mdp, as_demonstrations(paths, draw(paths, 100)))
    result = standard_errors(ready, np.array([0.5, 0.5]), np.tile(FAR[0], (2, 1)))
    assert np.all(result.status == "flat")
    assert np.all(np.isnan(result.thetas))
    assert np.all(np.isnan(result.weights))
    assert result.n_free == 5


# Three states: from each, on to 1 or to 2. Trajectories of both intents overlap much.
FORK = MDP.from_edges([0, 0, 1, 1, 2, 2], [1, 2, 1, 2, 1, 2], p0=[1, 0, 0], state_features=[[0, 0], [1, 0], [0, 1]])
TRUTH = RewardEnsemble([0.6, 0.4], [[1.0, -0.2], [-0.2, 1.0]])
TRUE = flat(TRUTH.weights, TRUTH.thetas)


class Enumerated:
    """Maximum likelihood of two intents on the fork, from counts of its trajectories: a fit of milliseconds."""

    def __init__(self) -> None:
        self.paths = Enumeration(FORK, 6)
        self.rows = possible(self.paths)
        self.F, self.log_q = self.paths.F[self.rows], self.paths.log_P[self.rows]
        self.p = mixture_probabilities(self.paths, TRUTH.weights, TRUTH.thetas)

    def loss(self, x: np.ndarray, counts: np.ndarray) -> tuple[float, np.ndarray]:
        """Minus the log-likelihood in (logit of the first share, thetas), and its gradient."""
        rho = np.array([1.0, np.exp(-x[0])]) / (1.0 + np.exp(-x[0]))
        weight = self.F @ x[1:].reshape(2, 2).T + self.log_q[:, None]
        log_Z = np.logaddexp.reduce(weight, axis=0)
        joint = weight - log_Z + np.log(rho)
        total = np.logaddexp.reduce(joint, axis=1)
        U = np.exp(joint - total[:, None]) * counts[:, None]
        expected = np.exp(weight - log_Z).T @ self.F
        gradient = U.T @ self.F - U.sum(axis=0)[:, None] * expected
        return -float(counts @ total), -np.concatenate([[U[:, 0].sum() - counts.sum() * rho[0]], gradient.ravel()])

    def fit(self, rows: np.ndarray) -> RewardEnsemble:
        """The maximum that is reached from the truth."""
        counts = np.bincount(rows, minlength=self.rows.size).astype(float)
        start = np.concatenate([[np.log(1.5)], TRUTH.thetas.ravel()])
        result = minimize(self.loss, start, (counts,), jac=True, method="BFGS", options={"gtol": 1e-6 * rows.size})
        share = 1.0 / (1.0 + np.exp(-result.x[0]))
        return RewardEnsemble([share, 1.0 - share], result.x[1:].reshape(2, 2))


@pytest.mark.slow
def test_errors_cover_at_their_nominal_rate_and_those_of_complete_data_do_not():
    oracle, rng, n, n_sets = Enumerated(), np.random.default_rng(11), 500, 240
    covered, covered_if_complete = np.empty((2, n_sets, 6), dtype=bool)
    everything = as_demonstrations(oracle.paths, oracle.rows)
    for i in range(n_sets):
        rows = rng.choice(oracle.rows.size, size=n, p=oracle.p)
        best, demos = oracle.fit(rows), everything[rows]
        ready = make_problem(MaxEnt(6, bounds=None), FORK, demos)
        result = standard_errors(ready, best.weights, best.thetas)
        assert np.all(result.status == "ok")
        off = np.abs(flat(best.weights, best.thetas) - TRUE)
        covered[i] = off <= 1.96 * flat(result.weights, result.thetas)
        U = np.zeros((n, 2))
        ready.e_step(best.weights, best.thetas, U)
        curvature = ready.curvature(U, best.thetas, np.ones((2, 2), dtype=bool))
        narrow = [np.sqrt(np.diag(np.linalg.inv(each))) for each in curvature]
        share = np.sqrt(best.weights.prod() / n)
        covered_if_complete[i] = off <= 1.96 * np.concatenate([[share, share], *narrow])
    low, high = stats.binom.ppf([0.0005, 0.9995], n_sets, 0.95)
    assert np.all((covered.sum(axis=0) >= low) & (covered.sum(axis=0) <= high)), covered.mean(axis=0)
    assert covered_if_complete[:, 0].mean() < 0.80
    assert covered_if_complete[:, 2:].mean() < 0.90
    assert np.all(covered_if_complete.sum(axis=0) < low)


def test_a_fit_to_ten_thousand_is_within_three_standard_errors_of_the_truth():
    irl, rng = MaxEnt(6, bounds=None), np.random.default_rng(7)
    sizes = rng.multinomial(10_000, TRUTH.weights)
    parts = [irl.sample(FORK, theta, int(n), rng) for theta, n in zip(TRUTH.thetas, sizes, strict=True)]
    mix = IntentMixture(2, irl, random_state=0, max_iter=500).fit(FORK, Demonstrations.concat(parts)).align_to(TRUTH)
    result = mix.standard_errors()
    errors = flat(result.weights, result.thetas)
    assert np.all(errors < 0.06)
    assert np.all(np.abs(flat(mix.weights_, mix.thetas_) - TRUE) <= 3.0 * errors)


def fit_mixture(**parameters) -> tuple[IntentMixture, Demonstrations]:
    demos = MaxEnt(6).sample(FORK, TRUTH.thetas[0], 60, 0) + MaxEnt(6).sample(FORK, TRUTH.thetas[1], 40, 1)
    mix = IntentMixture(2, MaxEnt(bounds=(-3, 3)), init=TRUTH, max_iter=1000, resp_tol=1e-5, **parameters)
    return mix.fit(FORK, demos), demos


def test_a_mixture_stores_its_data_or_accepts_them():
    mix, demos = fit_mixture()
    remembered = mix.standard_errors()
    result = mix.standard_errors(demos)
    np.testing.assert_array_equal(result.covariance, remembered.covariance)
    # Shorter demonstrations must not make the model one of shorter trajectories.
    longest = mix.irl_.max_length
    short = demos[demos.lengths < longest]
    same = make_problem(MaxEnt(longest, bounds=(-3, 3)), FORK, short)
    expected = standard_errors(same, mix.weights_, mix.thetas_)
    np.testing.assert_array_equal(mix.standard_errors(short).covariance, expected.covariance)
    assert mix.irl_.max_length == longest
    vars(mix).pop("_problem")
    with raises(InvalidParameter, parameter="demos"):
        mix.standard_errors()
    np.testing.assert_array_equal(mix.standard_errors(demos).covariance, remembered.covariance)


class TestBeforeTheMaximum:
    """Rewards between the mean of the intents, a saddle point, and the truth."""

    @staticmethod
    def at(fraction):
        demos = MaxEnt(6).sample(FORK, TRUTH.thetas[0], 60, 0) + MaxEnt(6).sample(FORK, TRUTH.thetas[1], 40, 1)
        mean = TRUTH.thetas.mean(axis=0)
        problem, thetas = make_problem(MaxEnt(6, bounds=(-3, 3)), FORK, demos), mean + fraction * (TRUTH.thetas - mean)
        return problem, thetas, standard_errors(problem, TRUTH.weights, thetas)

    def test_errors_are_from_outer_products_where_the_information_is_indefinite(self):
        problem, thetas, result = self.at(0.3)
        assert result.method.startswith("outer products of scores")
        assert np.linalg.eigvalsh(observe(problem, TRUTH.weights, thetas)).min() < 0.0

        def value(x):
            return np.logaddexp.reduce(np.log(x[:2]) + problem.log_prob(x[2:].reshape(2, 2)), axis=1)

        # Scores by differences of the log-likelihood of each trip; weights sum to 1.
        x, steps = flat(TRUTH.weights, thetas), 1e-5 * np.eye(6)
        scores = np.stack([(value(x + step) - value(x - step)) / 2e-5 for step in steps], axis=1)
        basis = np.vstack([np.r_[1.0, -1.0, np.zeros(4)] / np.sqrt(2.0), np.eye(6)[2:]]).T
        inverse = np.linalg.inv(basis.T @ scores.T @ scores @ basis)
        expected = np.sqrt(np.diag(basis @ inverse @ basis.T))
        np.testing.assert_allclose(result.thetas.ravel(), expected[2:], rtol=1e-6)

    def test_equal_intents_stay_flat(self):
        _, _, result = self.at(0.05)
        assert np.all(result.status == "flat")

    def test_errors_are_from_the_observed_information_elsewhere(self):
        assert self.at(0.7)[2].method == "observed information"


def test_errors_require_a_fit_and_groups_require_demonstrations():
    with pytest.raises(NotFitted, match="not fitted"):
        IntentMixture(2).standard_errors()
    mix, demos = fit_mixture()
    with raises(InvalidParameter, parameter="groups"):
        mix.standard_errors(groups=np.arange(len(demos)))


@pytest.mark.parametrize("grouped", [False, True])
def test_criteria(grouped):
    mix, demos = fit_mixture()
    groups = np.arange(100) // 2 if grouped else None
    n = 50 if grouped else 100
    log_p = Groups.from_labels(groups, 100).sum(mix.irl_.log_prob(FORK, mix.thetas_, demos))
    joint = log_p + np.log(mix.weights_)
    log_likelihood = np.log(np.exp(joint).sum(axis=1))
    U = np.exp(joint - log_likelihood[:, None])
    n_free = 1 + np.count_nonzero(np.abs(mix.thetas_) < 3.0)
    bic = -2 * log_likelihood.sum() + n_free * np.log(n)
    np.testing.assert_allclose(mix.bic(demos, groups), bic, rtol=1e-10)
    if not grouped:  # as in the fit
        np.testing.assert_allclose(mix.bic(), bic, rtol=1e-10)
    np.testing.assert_allclose(mix.aic(demos, groups), -2 * log_likelihood.sum() + 2 * n_free, rtol=1e-10)
    np.testing.assert_allclose(mix.icl(demos, groups), bic - 2 * np.sum(U * np.log(U)), rtol=1e-10)


def test_criteria_with_demonstrations_that_cannot_overlap():
    phi = [[0, 0], [1, 0], [0, 1], [0, 0]]
    mdp = MDP.from_edges([0, 0, 1, 2], [1, 2, 3, 3], p0=[1, 0, 0, 0], state_features=phi)
    demos = Demonstrations.from_lists([[0, 1, 3]] * 3 + [[0, 2, 3]])
    ensemble = RewardEnsemble([0.75, 0.25], [[500.0, -500.0], [-500.0, 500.0]])
    mix = IntentMixture(2, MaxEnt(bounds=(-500, 500)), init=ensemble, max_iter=0).fit(mdp, demos)
    assert mix.icl(demos) == mix.bic(demos)  # responsibilities of exactly 0 and 1 have no entropy
    assert mix.aic(demos) == pytest.approx(-2 * demos_log_likelihood(mix, demos) + 2 * 1, rel=1e-12)


def demos_log_likelihood(mix: IntentMixture, demos: Demonstrations) -> float:
    return float(mix.score_samples(demos).sum())


@pytest.mark.parametrize("theta", [-5e-5, -1e-3, -0.5])
def test_scores_near_the_boundary_of_the_domain(theta):
    # Any number of loops in 0, then on to 1: log p(n loops) = n theta + log(1 - exp(theta)), finite below 0 only.
    mdp = MDP.from_edges([0, 0], [0, 1], edge_features=[[1.0], [0.0]])
    demos = Demonstrations.from_lists([[0, 1], [0, 0, 1]])
    ready = make_problem(DestinationMaxEnt(), mdp, demos)
    ((_, result),) = derivatives.score_blocks(ready, np.array([[theta]]), np.ones((1, 1), bool))
    wanted = np.arange(2) - np.exp(theta) / -np.expm1(theta)
    # A step is at most a tenth of the way to the edge, where the difference errs by a third of a hundredth.
    np.testing.assert_allclose(result[:, 0, 0], wanted, rtol=1 / 290)


def test_scores_at_the_boundary_are_one_sided():
    mdp = MDP.from_edges([0, 0], [0, 1], edge_features=[[1.0], [0.0]])
    ready = make_problem(DestinationMaxEnt(), mdp, Demonstrations.from_lists([[0, 1], [0, 0, 1]]))
    thetas = np.array([[-1e-9], [-0.5]])
    ((_, result),) = derivatives.score_blocks(ready, thetas, np.ones((2, 1), bool))
    # The first is nearer to the edge than any step: all that can be finite is that it falls steeply towards it.
    assert np.all(np.isfinite(result))
    assert np.all(result[:, 0, 0] < -100.0)
    np.testing.assert_allclose(result[:, 1, 0], np.arange(2) - np.exp(-0.5) / -np.expm1(-0.5), rtol=1e-6)


def second_differences(problem: FitProblem, rho: np.ndarray, thetas: np.ndarray) -> np.ndarray:
    """Return minus the second differences of the log-likelihood of a mixture."""
    K = len(rho)

    def value(x):
        log_p = problem.log_prob(x[K:].reshape(thetas.shape))
        return float(np.log(np.exp(log_p) @ x[:K]).sum())

    return -second_derivatives(value, flat(rho, thetas))


CAUSAL = {
    "soft": MaxCausalEnt(1.7, ridge=0.0),
    "hard": MLIRL(1.3, ridge=0.0),
    "average": MLIRL(1.3, q="bv", ridge=0.0),
    "horizon": MaxCausalEnt(max_length=8, ridge=0.0),
}


@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "unrecorded"])
@pytest.mark.parametrize("name", CAUSAL)
def test_observed_information_of_causal_models(name: str, recorded: bool) -> None:
    irl, mdp = CAUSAL[name], small_mdp()
    thetas = 0.7 * np.random.default_rng(0).normal(size=(2, mdp.n_features))
    demos = irl.sample(mdp, thetas[0], 8, seed=0, max_length=5) + irl.sample(mdp, thetas[1], 6, seed=1, max_length=5)
    if not recorded:
        each = zip(demos.offsets[:-1], demos.offsets[1:], strict=True)
        demos = Demonstrations.from_lists([demos.states[first:last].tolist() for first, last in each])
    ready, rho = make_problem(irl, mdp, demos), np.array([0.6, 0.4])
    assert ready.decisions.certain == recorded
    result = information(ready, rho, thetas, np.ones(thetas.shape, dtype=bool))
    assert result.method == "observed information"
    np.testing.assert_allclose(result.observed, second_differences(ready, rho, thetas), rtol=1e-6, atol=2e-6)


def test_observed_information_of_causal_models_with_sparse_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    mdp, rho = to_an_end(1.0), np.array([0.6, 0.4])
    thetas = np.array([[-2.0, -0.6, -1.2, 0.5], [-0.8, -1.8, -1.5, 0.5]])
    for irl in (CAUSAL["soft"], CAUSAL["hard"]):
        demos = irl.sample(mdp, thetas[0], 8, seed=0) + irl.sample(mdp, thetas[1], 6, seed=1)
        ready = make_problem(irl, mdp, demos)
        dense = observe(ready, rho, thetas)
        np.testing.assert_allclose(dense, second_differences(ready, rho, thetas), rtol=1e-6, atol=2e-6)
        with monkeypatch.context() as patch:
            patch.setattr(stationary, "DENSE", 0)
            np.testing.assert_allclose(observe(ready, rho, thetas), dense, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "unrecorded"])
def test_observed_information_of_the_destination_model(recorded: bool) -> None:
    mdp, rho = small_mdp(gamma=1.0), np.array([0.6, 0.4])
    thetas = 0.3 * thetas_for(mdp, 2) - np.array([2.0, 2.0, 0.5, 0.5])
    paths = Enumeration(mdp, 4)
    demos = as_demonstrations(paths, draw(paths, 30), actions=recorded)
    irl = DestinationMaxEnt(bounds=None)
    ready = make_problem(irl, mdp, demos[irl.admits(demos)])
    assert len(ready.demos) >= 10
    assert ready.trips.observed.fixed == recorded
    result = information(ready, rho, thetas, np.ones(thetas.shape, dtype=bool))
    assert result.method == "observed information"
    np.testing.assert_allclose(result.observed, second_differences(ready, rho, thetas), rtol=2e-6, atol=2e-5)


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_observed_information_of_sigma_girl(covariance: str) -> None:
    rng = np.random.default_rng(0)
    x, moves = rng.normal(size=(8, 3, 1)), rng.normal(size=(6, 8, 3, 1))
    phi = [np.concatenate([-((move - target) ** 2) for target in (0.0, 1.0, 0.3)], axis=2) for move in moves]
    irl = SigmaGIRL(gamma=0.9, covariance=covariance)
    ready = make_problem(irl, None, Agents.from_arrays([x] * 6, list(moves), phi))
    rho, thetas = np.array([0.6, 0.4]), np.array([[0.2, 0.5, 0.3], [0.6, 0.1, 0.3]])
    result = information(ready, rho, thetas, np.ones(thetas.shape, dtype=bool))
    assert result.method == "observed information"
    np.testing.assert_allclose(result.observed, second_differences(ready, rho, thetas), rtol=1e-5, atol=1e-4)


def test_the_label_of_a_summary_is_its_method() -> None:
    mdp = small_mdp()
    paths = Enumeration(mdp, 4)
    demos = as_demonstrations(paths, draw(paths, 40))
    for irl, method in (
        (MaxEnt(4, bounds=(-10, 10)), "observed information"),
        (Plain(MaxEnt(4)), "outer products of scores"),
    ):
        mix = IntentMixture(1, irl).fit(mdp, demos)
        assert mix.standard_errors().method == method
        assert method in mix.summary().spread
        assert method in str(mix.summary())


def test_contrasts_are_rewards_relative_to_the_mean():
    # A ring has no terminal state: a constant reward of all states has no effect.
    n = 5
    ring = MDP.from_edges(np.repeat(np.arange(n), 2), (np.repeat(np.arange(n), 2) + np.tile([1, -1], n)) % n, gamma=0.9)
    rng = np.random.default_rng(0)
    demos = Demonstrations.from_lists([np.cumsum([rng.integers(n), *rng.choice([-1, 1], 20)]) % n for _ in range(30)])
    errors, rewards = {}, {}
    for name, phi in {"all": np.eye(n), "reference": np.eye(n)[:, 1:]}.items():
        mix = IntentMixture(1, MaxCausalEnt(ridge=1e-7)).fit(ring.replace(state_features=phi), demos)
        errors[name], rewards[name] = mix.standard_errors(), mix.thetas_[0]
    assert set(errors["all"].status.ravel()) == {"contrast"}
    np.testing.assert_allclose(rewards["all"].sum(), 0.0, atol=1e-6)
    # Differences from the first state, and their errors, do not depend on the coding.
    assert set(errors["reference"].status.ravel()) == {"ok"}
    np.testing.assert_allclose(rewards["all"][1:] - rewards["all"][0], rewards["reference"], rtol=1e-3)
    differences = np.hstack([-np.ones((n - 1, 1)), np.eye(n - 1)])
    np.testing.assert_allclose(errors["all"].of_contrasts(differences)[0], errors["reference"].thetas[0], rtol=1e-3)


def test_rewards_with_an_arbitrary_constant_are_no_contrasts():
    ring = MDP.from_edges([0, 0, 1, 1], [0, 1, 0, 1], gamma=0.9)
    demos = Demonstrations.from_lists([[0, 1, 1, 0], [1, 0, 0, 1], [0, 0, 1, 1]])
    shifted = RewardEnsemble([1.0], [[2.0, 3.0]])
    mix = IntentMixture(1, MaxCausalEnt(ridge=0.0), init=shifted, max_iter=0).fit(ring, demos)
    assert set(mix.standard_errors(demos).status.ravel()) == {"not identified"}
