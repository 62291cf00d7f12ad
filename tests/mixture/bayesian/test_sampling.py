"""Samples of the posterior: the density by finite differences, an integral, relabelling, and calibration."""

import warnings

import numpy as np
import pytest
from scipy import stats

from limiirl import MDP, Demonstrations, IntentMixture, MaxCausalEnt, MaxEnt, RewardEnsemble, SigmaGIRL
from limiirl.errors import InvalidParameter
from limiirl.irl.problem import make_problem
from limiirl.mixture.bayesian.sampling import PosteriorDensity, Priors
from limiirl.mixture.em import WeightDesign
from tests.helpers import raises
from tests.oracles.sigma import pickers

STEP = MDP.from_edges([0], [1], p0=[1, 0], state_features=[[0], [1]])
FORK = MDP.from_edges(
    [0, 0, 1, 1, 2, 2], [1, 2, 3, 4, 3, 4], p0=[1, 0, 0, 0, 0], state_features=[[0, 0], [1, 0], [0, 1], [0, 1], [1, 0]]
)
PRIORS = Priors(2.0, 1.5, 2.0)


def fork(n=30, seed=0):
    model, rng = MaxEnt(3, bounds=None, stop="terminal"), np.random.default_rng(seed)
    parts = [model.sample(FORK, theta, n // 2, rng) for theta in (np.array([1.5, -1.0]), np.array([-1.5, 1.0]))]
    return Demonstrations.concat(parts)


def densities(model):
    rng = np.random.default_rng(0)
    for design in (None, WeightDesign(np.column_stack([np.ones(30), rng.normal(size=30)]), 3.0)):
        yield PosteriorDensity(make_problem(model, FORK, fork(), None, design), 3, 2, PRIORS)


class TestDensity:
    @pytest.mark.parametrize("model", [MaxEnt(3, bounds=(-4, 4), ridge=0.1), MaxCausalEnt(bounds=None)], ids=str)
    def test_gradient(self, model):
        for density in densities(model):
            rng = np.random.default_rng(1)
            v = 0.5 * rng.normal(size=2 * density.marginal.p + 6)
            _, gradient = density.evaluate(v)
            for j, step in enumerate(1e-5 * np.eye(v.size)):
                ends = density.evaluate(v + step)[0] - density.evaluate(v - step)[0]
                np.testing.assert_allclose(gradient[j], ends / 2e-5, rtol=1e-6, atol=1e-6)

    def test_value_is_the_likelihood_times_the_priors_without_the_ridge(self):
        """Differences of the log density, in which the normalising constants cancel."""
        model = MaxEnt(3, bounds=None, ridge=0.1)
        density = next(densities(model))
        U = np.zeros((30, 3))

        def expected(v):
            rho = np.exp(np.r_[0.0, v[:2]])
            rho, thetas = rho / rho.sum(), 2.0 * v[2:].reshape(3, 2)
            log_prior = stats.dirichlet.logpdf(rho, [1.5] * 3) + np.log(rho).sum()  # and the Jacobian of the logits
            log_prior += stats.norm.logpdf(thetas, scale=2.0).sum()
            return density.problem.e_step(rho, thetas, U).log_likelihood + log_prior

        one, other = np.random.default_rng(2).normal(size=(2, 8))
        difference = density.evaluate(one)[0] - density.evaluate(other)[0]
        np.testing.assert_allclose(difference, expected(one) - expected(other), rtol=1e-10)

    def test_density_does_not_depend_on_the_order_of_intents(self):
        for density in densities(MaxEnt(3, bounds=(-4, 4))):
            p, rng = density.marginal.p, np.random.default_rng(3)
            logits, u = np.vstack([np.zeros(p), rng.normal(size=(2, p))]), rng.normal(size=(3, 2))
            values = []
            for order in ([0, 1, 2], [2, 0, 1]):
                moved = logits[order] - logits[order[0]]
                values.append(density.evaluate(np.concatenate([moved[1:].ravel(), u[order].ravel()]))[0])
            np.testing.assert_allclose(values[1], values[0], rtol=1e-12)


def test_model_without_gradients():
    mix = IntentMixture(1, SigmaGIRL()).fit(None, pickers(4, 0))
    with raises(InvalidParameter, parameter="irl"):
        mix.sample_posterior()


class TestSamples:
    @pytest.fixture(autouse=True)
    def sampler(self):
        pytest.importorskip("nutpie")
        pytest.importorskip("arviz")

    def test_moments_agree_with_an_integral(self):
        demos = Demonstrations.from_lists([[0], [0, 1], [0, 1], [0, 1]])
        samples = IntentMixture(1, MaxEnt(2, bounds=None)).fit(STEP, demos).sample_posterior(
            prior_scale=2.0, seed=0, chains=2
        )  # fmt: skip
        theta = np.linspace(-12.0, 12.0, 20001)
        log_p = 3.0 * theta - 4.0 * np.log1p(np.exp(theta)) - 0.5 * (theta / 2.0) ** 2
        p = np.exp(log_p - log_p.max())
        mean = np.sum(p * theta) / p.sum()
        sd = np.sqrt(np.sum(p * (theta - mean) ** 2) / p.sum())
        error = 4.0 * sd / np.sqrt(samples.ess[-1])
        assert abs(samples.thetas.mean() - mean) < error
        assert abs(samples.thetas.std() - sd) < error
        assert np.all(samples.r_hat[1:] < 1.02)
        lower, upper = samples.intervals()[1][0, 0]
        assert lower < mean - sd < mean + sd < upper

    def test_draws_are_reproducible_and_relabelled(self):
        mix = IntentMixture(
            2,
            MaxEnt(3, bounds=(-5, 5), stop="terminal"),
            init=RewardEnsemble([0.5, 0.5], [[1, -1], [-1, 1]]),
            accelerate=True,
        )
        mix.fit(FORK, fork(200), covariates=np.random.default_rng(0).normal(size=200))
        options = {"draws": 60, "tune": 60, "chains": 2, "seed": 1}
        one, two = mix.sample_posterior(**options), mix.sample_posterior(**options)
        np.testing.assert_array_equal(one.thetas, two.thetas)
        assert one.logits.shape == (2, 60, 2, 2)
        np.testing.assert_array_equal(one.logits[:, :, 0], 0.0)
        np.testing.assert_allclose(one.weights.sum(axis=2), 1.0, rtol=1e-12)
        assert np.mean(one.thetas[..., 0, 0] > one.thetas[..., 1, 0]) > 0.8
        posterior = one.to_arviz().posterior
        assert posterior["thetas"].dims == ("chain", "draw", "intent", "feature")

    @pytest.mark.slow
    def test_ranks_of_the_truth_are_uniform(self):
        """Simulation-based calibration (Talts et al. 2018) of quantities that do not depend on the order of intents."""
        n_sets, n_bins, n_draws, thin, ranks = 100, 5, 39, 4, []
        model = MaxEnt(3, bounds=(-3, 3), stop="terminal")
        for seed in range(n_sets):
            rng = np.random.default_rng(seed)
            rho = rng.dirichlet([1.0, 1.0])
            thetas = stats.truncnorm.rvs(-2.0, 2.0, scale=1.5, size=(2, 2), random_state=rng)
            labels = rng.choice(2, p=rho, size=25)
            demos = Demonstrations.concat([model.sample(FORK, thetas[k], 1, rng) for k in labels])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # intents may be empty
                mix = IntentMixture(2, model, init=RewardEnsemble(rho, thetas), max_iter=0).fit(FORK, demos)
            samples = mix.sample_posterior(draws=thin * n_draws, tune=120, chains=1, prior_scale=1.5, seed=seed)
            w, t = samples.weights[0, ::thin], samples.thetas[0, ::thin]
            mean, gap = np.einsum("nk,nkd->nd", w, t), np.abs(t[:, 0] - t[:, 1]).sum(axis=1)
            drawn = np.column_stack([w.max(axis=1), mean, gap])
            truth = np.concatenate([[rho.max()], rho @ thetas, [np.abs(thetas[0] - thetas[1]).sum()]])
            ranks.append(np.sum(drawn < truth, axis=0))
        width = (n_draws + 1) // n_bins
        counts = np.array([np.bincount(column // width, minlength=n_bins) for column in np.transpose(ranks)])
        p_values = stats.chisquare(counts, axis=1).pvalue
        assert np.all(p_values > 0.001), (counts, p_values)
