"""`MaxCausalEnt` and `MLIRL`: values, fits, errors, and mixtures."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

from limiirl.demos import Demonstrations, Groups
from limiirl.demos.simulate import simulate
from limiirl.errors import ConvergenceWarning, DivergentPartition, InvalidDemos, InvalidParameter
from limiirl.irl.causal import stationary
from limiirl.irl.causal.maxcausalent import MaxCausalEnt
from limiirl.irl.causal.mlirl import MLIRL
from limiirl.irl.causal.problem import CausalLikelihood, CausalProblem, DecisionCounts
from limiirl.irl.optim import minimise_lbfgs
from limiirl.mdp import MDP
from limiirl.metrics import anid
from limiirl.mixture import IntentMixture
from limiirl.testing import checks
from limiirl.worlds import ElementWorld
from tests.helpers import raises
from tests.oracles.causal import stationary_policy

MODELS = {
    "soft": MaxCausalEnt(),
    "soft_bounded": MaxCausalEnt(bounds=(-10.0, 10.0), ridge=0.0),
    "horizon": MaxCausalEnt(max_length=6),
    "hard": MLIRL(),
    "bv": MLIRL(q="bv", n_backups=30),
}
CHECKS = [pytest.param(check, id=f"{name}-{check}") for name, model in MODELS.items() for check in checks(model)]


@pytest.mark.parametrize("check", CHECKS)
def test_conformance(check) -> None:
    check()


@pytest.fixture(scope="module")
def world() -> ElementWorld:
    return ElementWorld(n_elements=3, seed=2)


def ring(gamma: float = 1.0, n: int = 4) -> MDP:
    """Return a ring of states, each with an edge to the goal; the first feature is 1 except at the goal."""
    src = np.repeat(np.arange(n), 2)
    dst = np.column_stack([(np.arange(n) + 1) % n, np.full(n, n)]).ravel()
    features = np.column_stack([np.r_[np.ones(n), 0.0], np.r_[np.arange(n), 0.0]])
    return MDP.from_edges(
        src, dst, n_states=n + 1, gamma=gamma, state_features=features, terminal=np.arange(n + 1) == n
    )


def two_fixed_points() -> MDP:
    """Return the MDP of Asadi and Littman (2017): two actions that mostly stay in state 0."""
    return MDP.from_edges(
        [0, 0, 0, 0],
        [0, 1, 0, 1],
        action=[0, 0, 1, 1],
        prob=[0.66, 0.34, 0.99, 0.01],
        p0=[1.0, 0.0],
        gamma=0.98,
        action_features=[[0.122], [0.122], [0.033], [0.033]],
        terminal=[False, True],
    )


def test_backups_of_the_softmax_average_converge_to_the_fixed_point_from_r() -> None:
    beta, mdp = 17.0, two_fixed_points()

    def backup(Q: np.ndarray) -> np.ndarray:
        weight = np.exp(beta * (Q - Q.max()))
        V = float(weight @ Q / weight.sum())
        return np.array([0.122 + 0.98 * 0.66 * V, 0.033 + 0.98 * 0.99 * V])

    fixed = []
    for start in (np.array([0.122, 0.033]), np.array([2.0, 2.0])):
        Q = start
        for _ in range(20_000):
            Q = backup(Q)
        np.testing.assert_allclose(backup(Q), Q, rtol=1e-12)
        fixed.append(Q)
    assert abs(fixed[0][1] - fixed[1][1]) > 0.2
    model = MLIRL(beta=beta, q="bv", n_backups=5000)
    result = model.policy(mdp, [1.0])[0]
    np.testing.assert_allclose(np.log(result[1] / result[0]), beta * (fixed[0][1] - fixed[0][0]), rtol=1e-9)
    assert model.residual(mdp, [1.0])[0] < 1e-12


def test_few_backups_define_the_model_and_have_a_residual() -> None:
    mdp = two_fixed_points()
    few = MLIRL(beta=17.0, q="bv", n_backups=10)
    np.testing.assert_allclose(few.policy(mdp, [1.0]), stationary_policy(mdp, np.ones(1), "bv", 17.0, 10), rtol=1e-10)
    assert few.residual(mdp, [1.0])[0] > 1e-2
    assert MLIRL(q="bv", n_backups=1).residual(mdp, [1.0])[0] > 1e-2
    for model in (MaxCausalEnt(), MLIRL(), MaxCausalEnt(max_length=3)):
        assert model.residual(mdp, [1.0])[0] < 1e-12


@pytest.mark.parametrize("beta", [1e-3, 1e6])
def test_extreme_temperatures_are_finite(beta: float, world: ElementWorld) -> None:
    demos, _ = world.sample(20, seed=0)
    for model in (MaxCausalEnt(beta), MLIRL(beta), MLIRL(beta, "bv"), MaxCausalEnt(beta, max_length=50)):
        log_p = model.log_prob(world.mdp, world.ensemble.thetas, demos)
        assert np.all(np.isfinite(log_p))
        pi = model.policy(world.mdp, world.ensemble.thetas[0])
        np.testing.assert_allclose(pi.sum(axis=1), ~world.mdp.terminal, atol=1e-12)


@pytest.mark.parametrize("model", [MaxCausalEnt(1.3), MLIRL(0.7)], ids=["soft", "hard"])
def test_sparse_and_dense_systems_agree(model, world: ElementWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    demos, labels = world.sample(60, seed=1)
    problem = model.make_problem(world.mdp, demos, Groups.from_labels(None, 60))
    thetas, which = world.ensemble.thetas * 0.5, np.arange(3)
    weights = problem.moments(np.eye(3)[labels] + 0.1).decisions

    def gradient() -> np.ndarray:
        result = problem.solver.solve(thetas[which], problem.decisions.candidates)
        return np.vstack([result.log_prob, result.gradient(weights).T])

    dense = gradient()
    monkeypatch.setattr(stationary, "DENSE", 0)
    np.testing.assert_allclose(gradient(), dense, rtol=1e-9, atol=1e-9)
    # LU is used if BiCGSTAB does not converge.
    monkeypatch.setattr(stationary, "_ITERATIONS", 1)
    np.testing.assert_allclose(gradient(), dense, rtol=1e-9, atol=1e-9)


def test_values_at_discount_one_are_geometric_series() -> None:
    """V = log of the sum of exp(reward) over all trajectories to the goal, a geometric series."""
    mdp = ring()
    model = MaxCausalEnt()
    for cost in (-0.5, -2.0):
        leave = model.policy(mdp, [cost, 0.0])[0, 1]
        np.testing.assert_allclose(leave, 1.0 - np.exp(cost), rtol=1e-12)
    with raises(DivergentPartition, parameter="thetas", index=1):
        model.log_prob(mdp, [[-1.0, 0.0], [0.5, 0.0]], Demonstrations.from_lists([[0, 4]]))
    with raises(DivergentPartition, parameter="thetas", index=0):
        MLIRL().log_prob(mdp, [0.5, 0.0], Demonstrations.from_lists([[0, 4]]))


def test_fit_at_discount_one_starts_at_finite_values() -> None:
    mdp = ring()
    demos = MaxCausalEnt().sample(mdp, [-1.0, 0.1], 400, seed=0)
    theta = MaxCausalEnt(ridge=0.0).fit(mdp, demos)
    np.testing.assert_allclose(theta, [-1.0, 0.1], atol=0.2)
    hard = MLIRL(beta=1.0).fit(mdp, demos)
    assert hard[0] < 0.0


def test_fit_recovers_the_true_reward() -> None:
    rng = np.random.default_rng(0)
    T = rng.dirichlet(np.full(6, 0.4), size=(6, 3))
    mdp = MDP.from_dense(
        T, np.full(6, 1 / 6), gamma=0.8, state_features=np.eye(6)[:, :3], action_features=rng.normal(size=(6, 3, 1))
    )
    truth = np.array([1.0, -1.0, 0.5, 0.7])
    for model in (
        MaxCausalEnt(beta=2.0, ridge=0.0),
        MLIRL(beta=2.0, ridge=0.0),
        MLIRL(beta=2.0, q="bv", ridge=0.0),
        MaxCausalEnt(beta=2.0, max_length=20, stop="terminal_or_max_length", ridge=0.0),
    ):
        demos = model.sample(mdp, truth, 1500, seed=1, max_length=20)
        np.testing.assert_allclose(model.fit(mdp, demos), truth, atol=0.15)
        assert model.result_.converged


def test_sample_frequencies_agree_with_log_prob() -> None:
    mdp = ring(n=3)
    model, theta = MaxCausalEnt(max_length=3), np.array([-0.3, 0.2])
    demos = model.sample(mdp, theta, 20_000, seed=0)
    assert demos.lengths.max() == 3
    sequences, counts = np.unique([str(demo.states) for demo in demos], return_counts=True)
    first = [next(i for i, demo in enumerate(demos) if str(demo.states) == kind) for kind in sequences]
    expected = np.exp(model.log_prob(mdp, theta, demos[np.array(first)]))[:, 0]
    assert abs(expected.sum() - 1.0) < 1e-9
    np.testing.assert_allclose(counts / 20_000, expected, atol=0.01)


def test_prefixes_and_next_actions() -> None:
    mdp, theta = ring(n=3), np.array([-0.3, 0.2])
    model = MaxCausalEnt(max_length=3)
    prefixes = Demonstrations.from_lists([[0], [0, 1], [0, 3], [0, 1, 2]])
    following = model.next_actions(mdp, theta, prefixes)
    np.testing.assert_allclose(following.action.sum(axis=2) + following.stop, 1.0, rtol=1e-12)
    np.testing.assert_allclose(following.stop[2:], 1.0, rtol=0)
    prefix = model.log_prob_prefix(mdp, theta, prefixes)
    np.testing.assert_allclose(prefix[0, 0], np.log(mdp.p0[0]), rtol=1e-12)
    np.testing.assert_allclose(prefix + np.log(following.stop), model.log_prob(mdp, theta, prefixes), rtol=1e-12)
    np.testing.assert_allclose(prefix[1] - prefix[0], np.log(following.action[0, :, 0]), rtol=1e-12)
    plain = MaxCausalEnt()
    np.testing.assert_array_equal(plain.log_prob_prefix(mdp, theta, prefixes), plain.log_prob(mdp, theta, prefixes))
    assert plain.next_actions(mdp, theta, prefixes).stop.ravel().tolist() == [0.0, 0.0, 1.0, 0.0]


def test_counts_do_not_grow_with_the_number_of_demonstrations(world: ElementWorld) -> None:
    demos, _ = world.sample(50, seed=3)
    many = Demonstrations.concat([demos] * 20)
    one, twenty = (DecisionCounts.from_demos(world.mdp, d, Groups.from_labels(None, len(d))) for d in (demos, many))
    assert one.counts.shape[1] == twenty.counts.shape[1] <= world.mdp.n_pairs
    np.testing.assert_array_equal(twenty.total(np.ones((1000, 1))), 20.0 * one.total(np.ones((50, 1))))
    grouped = DecisionCounts.from_demos(world.mdp, many, Groups.from_labels(np.tile(np.arange(50), 20), 1000))
    np.testing.assert_array_equal(grouped.counts.toarray(), 20.0 * one.counts.toarray())
    np.testing.assert_allclose(grouped.log_q, 20.0 * one.log_q, rtol=1e-12)


def test_hard_model_continues_where_lbfgs_stalls_at_a_kink() -> None:
    """At theta = 0, where a fit starts, all actions are equally good and the objective has a kink."""
    for seed in (26, 34, 35):
        rng = np.random.default_rng(seed)
        mdp = MDP.from_edges(
            np.repeat(np.arange(7), 3), rng.integers(8, size=21), n_states=8, action=np.tile([0, 1, 2], 7),
            p0=np.append(np.full(7, 1 / 7), 0.0), gamma=0.9, state_features=rng.normal(size=(8, 4)),
            terminal=np.arange(8) == 7,
        )  # fmt: skip
        pi = rng.gamma(0.5, size=mdp.n_pairs) + 0.01
        demos = simulate(mdp, pi / np.bincount(mdp.pair_state, pi)[mdp.pair_state], 40, rng, max_length=8)
        model = MLIRL(beta=1.0)
        model.fit(mdp, demos)
        problem = model.make_problem(mdp, demos, Groups.from_labels(None, 40))
        plain = problem.m_step(problem.moments(np.ones((40, 1))), None, np.array([0]), 1)
        assert plain.n_evaluations == 1  # max_evaluations is respected
        assert model.result_.value < lbfgs_alone(problem, 40) - 0.05


def lbfgs_alone(problem: CausalProblem, n: int) -> float:
    moments = problem.moments(np.ones((n, 1)))
    f = CausalLikelihood(
        problem.solver, problem.decisions, moments.decisions, moments.counts, np.array([problem.model.ridge])
    )
    return minimise_lbfgs(f, np.zeros((1, 4)), problem.box(4), 1e-6, 1000)[0].value


@pytest.mark.parametrize("name", ["soft", "hard", "bv", "horizon"])
def test_mixture_recovers_intents_and_increases_monotonically(name: str, world: ElementWorld) -> None:
    demos, labels = world.sample(100, seed=1)
    irl = clone(MODELS[name]).set_params(**({"max_length": 50} if name == "horizon" else {}))
    mix = IntentMixture(3, irl, random_state=0).fit(world.mdp, demos)
    objective = [entry.objective for entry in mix.history_]
    assert np.all(np.diff(objective) >= -1e-9 * (1.0 + np.abs(objective[:-1])))
    assert mix.converged_
    assert anid(np.eye(3)[labels], mix.responsibilities_) < 0.02
    # Groups: all demonstrations of an intent together are one unit.
    grouped = IntentMixture(3, clone(irl), random_state=0).fit(world.mdp, demos, groups=labels)
    assert anid(np.eye(3)[labels], grouped.responsibilities_) < 1e-9


@pytest.mark.slow
def test_em_increases_monotonically_from_mixed_responsibilities(world: ElementWorld) -> None:
    demos, labels = world.sample(60, seed=1)
    U = 0.5 * np.eye(3)[labels] + 0.5 / 3
    for irl in (MaxCausalEnt(), MaxCausalEnt(bounds=(-10, 0), ridge=0.0), MLIRL(), MLIRL(q="bv")):
        mix = IntentMixture(3, irl, init=U, max_iter=20).fit(world.mdp, demos)
        objective = [entry.objective for entry in mix.history_]
        assert len(objective) > 2
        assert np.all(np.diff(objective) >= -1e-9 * (1.0 + np.abs(objective[:-1])))


@pytest.mark.parametrize(
    ("model", "parameter"),
    [
        (MaxCausalEnt(beta=0.0), "beta"),
        (MaxCausalEnt(max_length=0), "max_length"),
        (MaxCausalEnt(stop="never"), "stop"),
        (MaxCausalEnt(ridge=-1.0), "ridge"),
        (MaxCausalEnt(bounds=(1, 0)), "bounds"),
        (MLIRL(q="soft"), "q"),
        (MLIRL(n_backups=0), "n_backups"),
        (MLIRL(gtol=0.0), "gtol"),
        (MLIRL(max_evaluations=0), "max_evaluations"),
    ],
)
def test_errors_name_the_parameter(model, parameter: str) -> None:
    with raises(InvalidParameter, parameter=parameter):
        model.fit(ring(0.9), Demonstrations.from_lists([[0, 1, 4]]))


def test_errors_name_demonstrations_outside_the_horizon() -> None:
    mdp = ring(0.9)
    with raises(InvalidDemos, parameter="demos", value=3, index=1):
        MaxCausalEnt(max_length=2).fit(mdp, Demonstrations.from_lists([[0, 4], [0, 1, 4]]))
    model = MaxCausalEnt(max_length=3, stop="terminal_or_max_length")
    with raises(InvalidDemos, parameter="demos", value=1, index=0):
        model.fit(mdp, Demonstrations.from_lists([[0, 1]]))
    assert model.log_prob_prefix(mdp, [0.0, 0.0], Demonstrations.from_lists([[0, 1]])).shape == (1, 1)
    for step in (3, -1, 0.5):
        with raises(InvalidParameter, parameter="step"):
            model.policy(mdp, [0.0, 0.0], step)


def test_a_horizon_of_one_state_has_no_decisions() -> None:
    mdp, model = ring(0.9), MaxCausalEnt(max_length=1)
    assert set(model.sample(mdp, [0.0, 0.0], 20, seed=0).lengths) == {1}
    np.testing.assert_array_equal(model.policy(mdp, [0.0, 0.0]), np.zeros((mdp.n_states, mdp.n_actions)))
    with raises(InvalidParameter, parameter="step", value=1):
        model.policy(mdp, [0.0, 0.0], step=1)
    # A stationary policy has no last step.
    stationary_model = MaxCausalEnt()
    np.testing.assert_array_equal(
        stationary_model.policy(mdp, [0.0, 0.0], step=10), stationary_model.policy(mdp, [0.0, 0.0])
    )
    assert stationary_model.sample(mdp, [0.0, 0.0], 20, seed=0).lengths.max() > 1


@pytest.mark.parametrize("model", [MaxCausalEnt(), MaxCausalEnt(max_length=3), MLIRL()])
@pytest.mark.parametrize("demos", [None, [[0, 1]]])
def test_demonstrations_of_another_type(model, demos: object) -> None:
    for call in (model.log_prob, model.log_prob_prefix, model.next_actions):
        with raises(InvalidDemos, parameter="demos", value=type(demos).__name__):
            call(ring(0.9), [0.0, 0.0], demos)


@pytest.mark.parametrize("model", [MaxCausalEnt(), MLIRL()])
def test_mixture_supports_all_queries(model) -> None:
    demos = Demonstrations.from_lists([[0, 1, 4], [0, 4]])
    mix = IntentMixture(1, model).fit(ring(0.9), demos)
    assert len(mix.sample(3, seed=0)[0]) == 3
    assert mix.predict(demos, partial=True).tolist() == [0, 0]
    assert mix.next_actions(demos[:1]).action.shape == (1, 2)
    assert mix.policy(0).shape == (5, 2)
    assert mix.most_likely(0, 4).intent == 0


def test_arguments_of_fit_are_checked() -> None:
    mdp, demos = ring(0.9), Demonstrations.from_lists([[0, 1, 4]])
    with raises(InvalidParameter, parameter="starts"):
        MaxCausalEnt().fit_many(mdp, demos, np.ones((1, 2)), [[0.0, 0.0]])
    with raises(InvalidDemos, parameter="demos", value=0):
        MLIRL().fit(mdp, demos[:0])
    with raises(InvalidDemos, parameter="demos", value="list"):
        MLIRL().fit(mdp, [[0, 1]])
    with raises(InvalidParameter, parameter="mdp", value="NoneType"):
        MLIRL().log_prob(None, [0.0], demos)
    with pytest.warns(ConvergenceWarning, match="max_evaluations"):
        MaxCausalEnt(max_evaluations=2).fit(mdp, demos)


@pytest.mark.parametrize("n_states", [2, 3, 4, 5, 8])
def test_divergent_soft_values_are_errors(n_states):
    # Each state has edges to itself, to the next state and to the goal; without costs the path sum diverges.
    stay = np.arange(n_states)
    src = np.concatenate([stay, stay, stay])
    dst = np.concatenate([stay, (stay + 1) % n_states, np.full(n_states, n_states)])
    mdp = MDP.from_edges(src, dst, n_states=n_states + 1, gamma=1.0)
    demos = Demonstrations.from_lists([[0, n_states]])
    with raises(DivergentPartition, parameter="thetas", index=0):
        MaxCausalEnt().log_prob(mdp, np.zeros((1, n_states + 1)), demos)
    finite = MaxCausalEnt().log_prob(mdp, np.append(np.full(n_states, -2.0), 0.0)[None], demos)
    # V = -2 + log(2 e^V + 1), so e^V = e^-2 / (1 - 2 e^-2), and the goal is next with probability e^(-2 - V).
    V = -2.0 - np.log(1.0 - 2.0 * np.exp(-2.0))
    np.testing.assert_allclose(finite[0, 0] - demos.log_q(mdp)[0], -2.0 - V, rtol=1e-10)


@pytest.mark.parametrize("call", ["fit", "log_prob", "mixture"])
def test_cycles_without_end_at_discount_1_are_errors(call):
    # State 3 is terminal, but states 1 and 2 form a cycle that does not reach it.
    mdp = MDP.from_edges([0, 0, 1, 2], [1, 3, 2, 1])
    demos = Demonstrations.from_lists([[0, 3], [0, 1, 2, 1]])
    with raises(DivergentPartition, parameter="gamma", value=1.0, index=1):
        if call == "fit":
            MaxCausalEnt().fit(mdp, demos)
        elif call == "log_prob":
            MaxCausalEnt().log_prob(mdp, -np.ones(4), demos)
        else:
            IntentMixture(1, MaxCausalEnt()).fit(mdp, demos)
    for other, model in ((mdp.replace(gamma=0.9), MaxCausalEnt()), (mdp, MaxCausalEnt(max_length=4))):
        assert np.isfinite(model.log_prob(other, -np.ones(4), demos)).all()


@pytest.mark.parametrize("ridge", [0.02, 0.1])
def test_penalised_likelihood_of_unequal_intents_is_stationary(ridge):
    # Intents of 48 and 12 demonstrations: a penalty per intent would be 4 times stronger for the smaller.
    phi = [[0, 0], [1, 0], [0, 1], [0, 0]]
    mdp = MDP.from_edges([0, 0, 1, 1, 2, 2], [1, 2, 1, 3, 2, 3], p0=[1, 0, 0, 0], gamma=0.9, state_features=phi)
    demos = Demonstrations.from_lists([[0, *[1] * 20, 3]] * 48 + [[0, *[2] * 20, 3]] * 12)
    mixture = IntentMixture(2, MaxCausalEnt(ridge=ridge), resp_tol=1e-9, random_state=0).fit(mdp, demos)

    def objective(thetas):
        log_p = MaxCausalEnt().log_prob(mdp, thetas, demos) + np.log(mixture.weights_)
        return np.logaddexp.reduce(log_p, axis=1).mean() - 0.5 * ridge / 2 * np.sum(thetas**2)

    at = mixture.thetas_
    np.testing.assert_allclose(objective(at), mixture.objective_, rtol=1e-12)
    h, gradient = 1e-4, np.empty(at.shape)
    for index in np.ndindex(at.shape):
        shift = np.zeros(at.shape)
        shift[index] = h
        gradient[index] = (objective(at + shift) - objective(at - shift)) / (2 * h)
    np.testing.assert_allclose(gradient, 0.0, atol=1e-5)


@pytest.mark.parametrize("n_states", [5, 300])
def test_a_discount_below_rounding_needs_no_linear_system(n_states, monkeypatch: pytest.MonkeyPatch) -> None:
    """The policies and gradients are those of a discount of 1e-14, up to a relative error of that size."""
    rng = np.random.default_rng(0)
    src, dst = np.repeat(np.arange(n_states), 3), rng.integers(n_states, size=3 * n_states)
    args = {
        "action": np.tile([0, 1, 2], n_states),
        "n_states": n_states,
        "edge_features": rng.normal(size=(src.size, 4)),
    }
    tiny, small = (MDP.from_edges(src, dst, gamma=gamma, **args) for gamma in (np.finfo(np.float64).tiny, 1e-14))
    theta = rng.normal(size=tiny.n_features)
    expected = MaxCausalEnt().policy(small, theta)
    demos = simulate(small, expected[small.pair_state, small.pair_action], 20, rng, max_length=30)
    fitted = MaxCausalEnt(ridge=1e-3).fit(small, demos)
    monkeypatch.delattr(np.linalg, "solve")
    np.testing.assert_allclose(MaxCausalEnt().policy(tiny, theta), expected, rtol=1e-10)
    np.testing.assert_allclose(MaxCausalEnt(ridge=1e-3).fit(tiny, demos), fitted, rtol=0, atol=1e-4)
    assert MaxCausalEnt().residual(tiny, theta) == 0.0
    with raises(DivergentPartition, parameter="thetas", index=0):
        MaxCausalEnt().policy(tiny, np.full(tiny.n_features, 1e308))


@pytest.mark.parametrize("n_states", [20, 400])
def test_values_of_zero_are_accurate_for_large_rewards(n_states) -> None:
    """Rewards log pi have the value 0 in every state, and the policy pi, for every discount."""
    rng = np.random.default_rng(1)
    src = np.repeat(np.arange(n_states), 2)
    dst = np.column_stack([(np.arange(n_states) + 1) % n_states, (np.arange(n_states) - 1) % n_states]).ravel()
    pi = rng.uniform(0.05, 1.0, src.size)
    pi /= np.repeat(pi.reshape(-1, 2).sum(axis=1), 2)
    args = {"action": np.tile([0, 1], n_states), "edge_features": np.log(pi)[:, None], "gamma": 0.9}
    mdp = MDP.from_edges(src, dst, **args)
    theta = np.append(np.zeros(mdp.n_features - 1), 1.0)
    np.testing.assert_allclose(MaxCausalEnt().policy(mdp, theta), pi.reshape(-1, 2), rtol=1e-10)
