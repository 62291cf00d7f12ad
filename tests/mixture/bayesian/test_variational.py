"""Prior, stick-breaking weights, posteriors, gradients and moves of the Bayesian mixture, independently computed."""

import numpy as np
import pytest
from scipy import integrate
from scipy.special import betaln, digamma, expit, gammaln
from scipy.stats import norm, truncnorm
from sklearn.mixture import BayesianGaussianMixture

from limiirl import MLIRL, Demonstrations, MaxCausalEnt, MaxEnt
from limiirl.errors import InvalidParameter
from limiirl.irl.optim import Box
from limiirl.irl.problem import FitProblem, make_problem
from limiirl.mixture.bayesian.reward_posterior import (
    RewardPosterior,
    RewardPrior,
    expected_log_prob,
    fit_posteriors,
    improve,
    log_probs,
    loss,
    node_weights,
)
from limiirl.mixture.bayesian.search import MOVES, improve_by_move, search
from limiirl.mixture.bayesian.variational import VariationalProblem, stick_posterior
from limiirl.worlds import ElementWorld
from tests.helpers import raises
from tests.oracles.mixture import crossings, walks
from tests.oracles.normal import Normal, numbers
from tests.oracles.partitions import block_evidence, log_restaurant, sample_posterior

MDP = crossings()
DEMOS, LABELS = walks(24, seed=5)
FREE = RewardPrior(Box(np.full(3, -np.inf), np.full(3, np.inf)), 3.0)


@pytest.mark.parametrize(("low", "high"), [(-10.0, 0.0), (0.0, np.inf), (-np.inf, 2.0), (3.0, 9.0), (-np.inf, np.inf)])
def test_the_prior_is_a_truncated_normal(low, high):
    prior, u = RewardPrior(Box(np.array([low]), np.array([high])), 4.0), np.array([-4.0, -1.0, 0.0, 0.5, 3.0])[:, None]
    expected = truncnorm(low / 4.0, high / 4.0, scale=4.0).ppf(norm.cdf(u))
    np.testing.assert_allclose(prior.theta(u), expected, rtol=1e-9, atol=1e-12)
    derivative = (prior.theta(u + 1e-6) - prior.theta(u - 1e-6)) / 2e-6
    np.testing.assert_allclose(prior.derivative(u), derivative, rtol=1e-5)
    np.testing.assert_allclose(prior.score(expected), u, rtol=1e-6, atol=1e-9)


def test_extreme_scores_stay_within_the_bounds():
    theta = RewardPrior(Box(np.array([-10.0]), np.array([0.0])), 10.0).theta(np.array([[-60.0], [60.0]]))
    np.testing.assert_allclose(theta.ravel(), [-10.0, 0.0], atol=1e-9)


def test_bounds_without_prior_mass_raise():
    with raises(InvalidParameter, parameter="prior_scale", value=1.0, index=1):
        RewardPrior(Box(np.array([0.0, 90.0]), np.array([1.0, 91.0])), 1.0)


@pytest.mark.parametrize("alpha", [0.3, 1.0, 4.0])
def test_the_bound_at_integer_sizes_is_the_probability_of_the_partition(alpha):
    result = stick_posterior(np.array([4.0, 2.0, 1.0]), alpha)
    expected = log_restaurant((0, 0, 0, 0, 1, 1, 2), alpha)
    np.testing.assert_allclose(result.bound + result.log_labellings, expected, rtol=1e-12)
    assert result.bound < expected


def test_stick_breaking_weights_agree_with_scikit_learn():
    rng = np.random.default_rng(0)
    points = np.concatenate([rng.normal(0.0, 1.0, (30, 1)), rng.normal(9.0, 1.0, (12, 1))])
    theirs = BayesianGaussianMixture(
        n_components=3, weight_concentration_prior=0.7, random_state=0, tol=1e-9, max_iter=5000
    )
    sizes = theirs.fit(points).predict_proba(points).sum(axis=0)
    ours = stick_posterior(sizes, 0.7)
    # Theirs are from the sweep before the last, and their concentrations are larger by 1e-15.
    np.testing.assert_allclose(ours.taken, theirs.weight_concentration_[0], rtol=1e-4)
    np.testing.assert_allclose(ours.left, theirs.weight_concentration_[1], rtol=1e-4)
    log_v = digamma(ours.taken) - digamma(ours.taken + ours.left)
    log_rest = digamma(ours.left) - digamma(ours.taken + ours.left)
    expected = [log_v[0], log_rest[0] + log_v[1], log_rest[0] + log_rest[1] + log_v[2]]
    np.testing.assert_allclose(ours.log_weights, expected, rtol=1e-12)


def test_bound_of_stick_breaking_is_expected_log_probability_minus_divergence():
    sizes, alpha = np.array([5.5, 3.0, 0.5]), 1.3
    result = stick_posterior(sizes, alpha)
    a, b = result.taken, result.left
    log_v, log_rest = digamma(a) - digamma(a + b), digamma(b) - digamma(a + b)
    explained = sizes @ result.log_weights
    divergence = np.sum(betaln(1.0, alpha) - betaln(a, b) + (a - 1.0) * log_v + (b - alpha) * log_rest)
    np.testing.assert_allclose(result.bound, explained - divergence, rtol=1e-10)


def test_a_learned_concentration_is_bounded_by_the_integral_over_it():
    sizes, (shape, rate) = np.array([6.0, 3.0, 1.0]), (2.0, 1.0)

    def joint(alpha: float) -> float:
        prior = shape * np.log(rate) - gammaln(shape) + (shape - 1.0) * np.log(alpha) - rate * alpha
        return float(np.exp(stick_posterior(sizes, alpha).bound + prior))

    exact = np.log(integrate.quad(joint, 1e-9, 60.0)[0])
    mean = integrate.quad(lambda alpha: alpha * joint(alpha), 1e-9, 60.0)[0] / np.exp(exact)
    result = stick_posterior(sizes, (shape, rate))
    # The posteriors of alpha and of the stick-breaking weights are assumed to be independent, which costs about
    # 0.25 nats here.
    assert exact - 0.3 < result.bound < exact
    np.testing.assert_allclose(result.concentration, mean, rtol=0.1)


@pytest.mark.parametrize("d", [1, 2, 5, 20])
def test_nodes_give_exact_means_of_cubics(d):
    rng = np.random.default_rng(d)
    root = rng.normal(size=(d, d))
    root = root @ root.T / d + np.eye(d)
    mean, derivative = rng.normal(size=d), rng.normal(size=d)
    nodes = RewardPosterior(mean[None], root[None]).nodes[0]
    np.testing.assert_allclose(node_weights(d).sum(), 1.0, rtol=1e-12)
    at, spread = mean @ derivative, np.sum((root @ derivative) ** 2)
    np.testing.assert_allclose(node_weights(d) @ (nodes @ derivative) ** 2, at**2 + spread, rtol=1e-9)
    cubic = at**3 + 3.0 * at * spread
    np.testing.assert_allclose(node_weights(d) @ (nodes @ derivative) ** 3, cubic, rtol=1e-9)


def test_nodes_of_many_rewards_are_as_far_from_the_mean_as_samples():
    # E |u|^4 = d (d + 2) for u ~ N(0, I). Nodes at sqrt(3) along the coordinates would give 3 d.
    d = 40
    nodes = RewardPosterior(np.zeros((1, d)), np.eye(d)[None]).nodes[0]
    assert np.min(node_weights(d)) >= 0.0
    np.testing.assert_allclose(node_weights(d) @ np.sum(nodes**2, axis=1) ** 2, d * (d + 2.0), rtol=0.1)
    assert np.max(np.abs(nodes)) < 3.0  # no reward is extreme


def well(depth: float):
    """Return the loss depth (1 - exp(-u_0^2 / 2)) of normal scores u = theta / 3; other rewards have no effect."""

    def loss_of(thetas, which):
        u = thetas / 3.0
        fall = depth * np.exp(-0.5 * u[:, 0] ** 2)
        gradients = np.zeros_like(thetas)
        gradients[:, 0] = u[:, 0] * fall / 3.0
        return depth - fall, gradients

    return loss_of


def test_improve_escapes_where_the_likelihood_is_not_concave():
    # At u_0 = 2 the curvature is negative. A step with a small positive curvature instead would be far too long, and
    # the width of u_1, about which the data contain nothing, would remain that of the start.
    start = RewardPosterior.narrow(np.array([[2.0, 0.3, 0.0]]))
    result = improve(well(1e5), FREE, start, 40)
    np.testing.assert_allclose(result.mean, [[0.0, 0.0, 0.0]], atol=1e-3)
    widths = np.linalg.norm(result.root[0], axis=1)
    np.testing.assert_allclose(widths, [1e5**-0.5, 1.0, 1.0], rtol=1e-2)


def test_one_trial_near_the_optimum_gains_what_there_is_to_gain():
    ready, U = make_problem(MaxEnt(7), MDP, DEMOS), np.ones((24, 1))
    objective = loss(ready, U, 3.0)

    def bound(rewards: RewardPosterior) -> float:
        return float(np.sum(expected_log_prob(ready, FREE, rewards)) - rewards.divergence[0])

    optimum = fit_posteriors(objective, FREE, np.zeros(3), 1, 60)
    shifted = RewardPosterior(optimum.mean + 0.3 * optimum.root[:, 0], 1.1 * optimum.root)
    gap = bound(optimum) - bound(shifted)
    assert gap > 0.05
    np.testing.assert_allclose(bound(improve(objective, FREE, shifted, 1)) - bound(shifted), gap, rtol=0.15)


def test_a_steep_direction_does_not_keep_the_others_narrow():
    # Beyond u_0 = 1 the loss rises steeply. The widths of the 9 others are 1 at the optimum.
    def wall(thetas, which):
        distance = 50.0 * (thetas[:, 0] / 3.0 - 1.0)
        gradients = np.zeros_like(thetas)
        gradients[:, 0] = 1e3 * expit(distance) * 50.0 / 3.0
        return 1e3 * np.logaddexp(0.0, distance), gradients

    prior = RewardPrior(Box(np.full(10, -np.inf), np.full(10, np.inf)), 3.0)
    result = improve(wall, prior, RewardPosterior.narrow(np.zeros((1, 10))), 20)
    widths = np.linalg.norm(result.root[0], axis=1)
    assert widths[0] < 0.9
    np.testing.assert_allclose(widths[1:], 1.0, rtol=0.02)


def test_merged_posteriors_of_quadratic_likelihoods_are_exact():
    rng = np.random.default_rng(4)
    precisions = [np.eye(3) + (rows := rng.normal(size=(5, 3))).T @ rows for _ in range(2)]
    weighted = rng.normal(size=(2, 3))
    parts = [
        RewardPosterior(np.linalg.solve(precision, b)[None], np.linalg.cholesky(np.linalg.inv(precision))[None])
        for precision, b in zip(precisions, weighted, strict=True)
    ]
    merged = parts[0].combine(parts[1])
    precision = precisions[0] + precisions[1] - np.eye(3)
    np.testing.assert_allclose(merged.root[0] @ merged.root[0].T, np.linalg.inv(precision), rtol=1e-9)
    np.testing.assert_allclose(merged.mean[0], np.linalg.solve(precision, weighted.sum(axis=0)), rtol=1e-9)


def test_divergence_from_the_prior():
    rewards = RewardPosterior(np.array([[0.5, -1.0]]), np.array([[[0.6, 0.2], [0.2, 0.4]]]))
    covariance = rewards.root[0] @ rewards.root[0].T
    expected = 0.5 * (np.trace(covariance) + 1.25 - 2.0 - np.log(np.linalg.det(covariance)))
    np.testing.assert_allclose(rewards.divergence, [expected], rtol=1e-12)


@pytest.mark.parametrize(
    "irl", [MaxEnt(7), MaxEnt(7, condition="start"), MaxCausalEnt(max_length=7), MLIRL(q="bv"), MLIRL()], ids=repr
)
def test_gradients_agree_with_the_log_likelihood(irl):
    ready = make_problem(irl, MDP, DEMOS, np.arange(24) // 2)
    U = np.random.default_rng(0).random((12, 2))
    thetas, which = np.array([[-0.4, 0.3, -0.9], [-0.7, -0.2, 0.1], [-0.1, 0.5, 0.2]]), np.array([1, 0, 1])
    values, gradients = loss(ready, U, 3.0)(thetas, which)
    plain = FitProblem(ready.model, ready.mdp, ready.demos, ready.units)  # knows log_prob alone
    other_values, other = loss(plain, U, 3.0)(thetas, which)
    np.testing.assert_allclose(gradients, other, rtol=1e-4, atol=1e-5)
    constants = (values - other_values)[[0, 2]]  # of one column: what does not depend on theta
    np.testing.assert_allclose(constants[0], constants[1], atol=1e-9)


@pytest.mark.parametrize("weight", [1.0, 3.0, 24.0])
@pytest.mark.parametrize("irl", [MaxEnt(7), MaxCausalEnt(max_length=7)], ids=["MaxEnt", "MaxCausalEnt"])
def test_a_posterior_attains_the_evidence_of_its_members(irl, weight):
    one = crossings()
    one = type(one).from_edges(one.src, one.dst, p0=one.p0, state_features=np.repeat([0, 0, 1, 0], 4)[:, None])
    ready, U = make_problem(irl, one, DEMOS), np.full((24, 1), weight / 24.0)
    prior = RewardPrior(Box(np.array([-np.inf]), np.array([np.inf])), 2.0)
    rewards = fit_posteriors(loss(ready, U, 2.0), prior, np.zeros(1), 1, 40)
    attained = float(np.sum(U * expected_log_prob(ready, prior, rewards)) - rewards.divergence[0])
    grid = np.linspace(-16.0, 16.0, 801)
    log_prior = norm.logpdf(grid, 0.0, 2.0) + np.log(grid[1] - grid[0])
    exact = block_evidence(log_probs(ready, grid[:, None]), U[:, 0], log_prior)
    # No Gaussian has more; the nodes' own error is of either sign, a few hundredths of a nat.
    assert exact - 0.05 < attained < exact + 0.02


@pytest.mark.parametrize("n_elements", [2, 6])
def test_nodes_in_four_and_eight_dimensions_agree_with_sampling(n_elements):
    world = ElementWorld(n_elements=n_elements, seed=0)
    demos, labels = world.sample(25 * n_elements, seed=1)
    ready = make_problem(MaxEnt(), world.mdp, demos[labels == 0])
    prior = RewardPrior(ready.box(n_elements + 2), 10.0)
    pooled = np.ones((len(ready.units), 1))
    rewards = fit_posteriors(loss(ready, pooled, 10.0), prior, np.zeros(n_elements + 2), 1, 40)
    nodes = float(expected_log_prob(ready, prior, rewards).sum())
    result = sample_posterior(
        lambda u: log_probs(ready, prior.theta(u)).sum(axis=0), rewards.mean[0], rewards.root[0], 8000
    )
    assert result.log_p - 0.2 < nodes < result.log_p + 1.5
    # What an intent is worth is nearer to the truth than that: the best Gaussian by nodes is no bound, but below.
    np.testing.assert_allclose(nodes - rewards.divergence[0], result.log_evidence, atol=0.4)


@pytest.mark.slow
def test_improve_never_increases_the_loss():
    ready, U = make_problem(MaxEnt(7), MDP, DEMOS), np.random.default_rng(1).dirichlet(np.ones(2), size=24)
    rewards = RewardPosterior(np.array([[0.5, 1.0, -1.0], [-1.0, 0.0, 2.0]]), np.tile(0.7 * np.eye(3), (2, 1, 1)))

    def worth(some: RewardPosterior) -> np.ndarray:
        return np.sum(U * expected_log_prob(ready, FREE, some), axis=0) - some.divergence

    values = [worth(rewards)]
    for _ in range(6):
        rewards = improve(loss(ready, U, 3.0), FREE, rewards, 1)
        values.append(worth(rewards))
    assert np.min(np.diff(values, axis=0)) > -1e-9
    assert np.all(values[-1] > values[0] + 1.0)


def problem() -> VariationalProblem:
    ready = make_problem(MaxEnt(7), MDP, DEMOS, LABELS * 20 + np.arange(24) // 6)
    return VariationalProblem(ready, FREE, 1.0, ready.features())


def test_a_sweep_never_lowers_the_bound():
    made = problem()
    states = [made.start(np.random.default_rng(3).dirichlet(np.ones(4), size=len(made.points)))]
    for _ in range(25):
        states.append(made.update_responsibilities(states[-1]))
        states.append(made.update(states[-1]))
    bounds = np.array([state.bound for state in states])
    assert np.min(np.diff(bounds)) > -1e-9 * abs(bounds[0])
    assert bounds[-1] > bounds[0] + 1.0


def test_sweeps_end_early_if_the_goal_is_out_of_reach():
    made = problem()
    start = made.start(np.random.default_rng(3).dirichlet(np.ones(4), size=len(made.points)))
    bounds: list[float] = []
    made.run(start, 10, 1e-9, lambda state: bounds.append(state.bound), goal=0.0)  # a log-probability is negative
    assert len(bounds) == 2
    made.run(start, 10, -1.0, lambda state: bounds.append(state.bound), goal=bounds[1])
    assert len(bounds) == 12


def test_intents_are_sorted_by_size_and_empty_ones_removed():
    made = problem()
    U = np.zeros((len(made.points), 4))
    U[:2, 1] = U[2:, 3] = 1.0
    state = made.start(U)
    assert state.sizes.tolist() == sorted([2.0, len(U) - 2.0], reverse=True)


@pytest.mark.parametrize("name", list(MOVES))
def test_moves_propose_valid_posteriors(name):
    made = problem()
    state = made.start(np.eye(3)[np.arange(len(made.points)) % 3])
    if name == "prune":
        U = np.tile([0.6, 0.38, 0.02], (len(made.points), 1))
        state = made.state(U, state.rewards, state.log_p)
    proposals = list(MOVES[name](made, state))
    assert proposals
    wanted = {"prune": 2, "merge": 2, "delete": 2, "split": 4}[name]
    assert {proposal.n_intents for proposal in proposals} == {wanted}
    for proposal in proposals:
        np.testing.assert_allclose(proposal.U.sum(axis=1), 1.0, rtol=1e-12)
        again = made.state(proposal.U, proposal.rewards, expected_log_prob(made.fit_problem, FREE, proposal.rewards))
        np.testing.assert_allclose(proposal.bound, again.bound, rtol=1e-9)
    assert [p.bound for p in proposals] == sorted((p.bound for p in proposals), reverse=True) or name == "prune"


def test_a_move_is_accepted_only_if_the_bound_increases():
    made = problem()
    state = made.start(np.eye(3)[np.arange(len(made.points)) % 3])
    seen = [state]
    while (moved := improve_by_move(made, seen[-1], 3)) is not None:
        seen.append(moved[1])
    bounds = [result.bound for result in seen]
    assert len(seen) > 1
    assert np.min(np.diff(bounds)) >= -1e-3  # the tie that fewer intents win


def one_dimension(values: list[float], scale: float, alpha: float) -> VariationalProblem:
    ready = make_problem(Normal(), *numbers(values))
    return VariationalProblem(
        ready, RewardPrior(Box(np.array([-np.inf]), np.array([np.inf])), scale), alpha, ready.features()
    )


def test_moves_are_retried_after_convergence():
    made = one_dimension([0.0, -0.5, -2.3, 0.0, 0.9, 1.0, -0.5, 2.2, 1.9], 1.0, 5.0)
    result = search(made, np.ones((9, 1)), 6, 100, 1e-4)
    events = [step.event for step in result.history]
    assert "sweep" in events[: len(events) - events[::-1].index("split") - 1]
    assert result.converged
    assert improve_by_move(made, result.state, 6) is None


def test_last_posterior_is_recorded_with_a_nearly_empty_intent():
    result = search(one_dimension([-0.3, -0.3, -0.2, 1.1, 0.1, 0.4, 0.0], 1.0, 0.3), np.ones((7, 1)), 6, 100, 1e-4)
    assert result.state.sizes[-1] < 0.5
    assert result.state.n_intents in result.evidence


def test_log_labellings_excludes_nearly_empty_intents():
    result = stick_posterior(np.array([4.0, 2.0, 0.1]), 1.0)
    np.testing.assert_allclose(result.log_labellings, np.log(7.1 / 4.0) + np.log(3.1 / 2.0), rtol=1e-12)


def test_divergent_rewards_have_zero_probability_and_posteriors_avoid_them():
    loop = type(MDP).from_edges([0, 0], [0, 1], p0=[1, 0], state_features=[[1], [0]])
    ready = make_problem(MaxEnt(np.inf, bounds=None), loop, Demonstrations.from_lists([[0, 1], [0, 0, 1]]))
    log_p = log_probs(ready, np.array([[-1.0], [1.0], [-2.0]]))
    np.testing.assert_array_equal(np.isfinite(log_p), [[True, False, True]] * 2)
    prior, wide = (
        RewardPrior(Box(np.array([-np.inf]), np.array([np.inf])), 2.0),
        RewardPosterior(np.full((1, 1), -0.5), np.ones((1, 1, 1))),
    )
    assert np.all(np.isneginf(expected_log_prob(ready, prior, wide)))
    result = improve(loss(ready, np.ones((2, 1)), 2.0), prior, wide, 20)
    assert np.all(np.isfinite(expected_log_prob(ready, prior, result)))
