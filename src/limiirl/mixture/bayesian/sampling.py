"""Posterior samples of mixture weights and rewards: NUTS on the exact marginal likelihood and its gradient.

Priors are N(0, prior_scale^2) for rewards, truncated to the bounds of the model, and Dir(concentration) for constant
weights. For weights by covariates, the deviations of the logits of standardised covariates from their mean over intents
are N(0, covariate_scale^2). The ridge of the model is not used. Rewards are sampled as normal scores (`RewardPrior`),
and all coordinates are whitened by the curvature at the mode. See ADR 0038.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from limiirl._parallel import Mapper, map_tasks
from limiirl._typing import BoolArray, FloatArray
from limiirl._validation import check_count, check_level
from limiirl.errors import BackendUnavailable, InvalidParameter
from limiirl.irl import FitProblem, make_problem
from limiirl.mixture.bayesian.reward_posterior import RewardPrior, check_model
from limiirl.mixture.em import MarginalLikelihood, unit_weights
from limiirl.mixture.restarts import assign_columns
from limiirl.mixture.validate import spawn_seeds

# Step of the differences of gradients that yield the curvature at the mode, and the smallest eigenvalue of the
# curvature that is used: the prior alone has about 1.
_STEP, _LEAST_CURVATURE = 1e-4, 0.1
# Standard deviation of the first points of the chains in whitened coordinates. Chains from distant points may stay at
# local modes, such as an empty intent.
_SPREAD = 0.1
# Largest absolute normal score from which the search for the mode starts.
_FARTHEST = 3.0
# Tolerance on the gradient at the mode; the mode only centres and scales the coordinates.
_GTOL, _MODE_EVALUATIONS = 1e-3, 500


@dataclass(frozen=True)
class Priors:
    """Scale of the rewards, concentration of constant weights, and scale of the logits of covariates."""

    reward_scale: float
    concentration: float
    covariate_scale: float


class PosteriorDensity:
    """Log posterior density and its gradient, as functions of free logits ((K - 1) p) and normal scores (K d)."""

    def __init__(self, problem: FitProblem, K: int, d: int, priors: Priors) -> None:
        self.problem = copy.copy(problem)
        if problem.regulariser is not None:
            self.problem.regulariser = replace(problem.regulariser, ridge=np.zeros_like(problem.regulariser.ridge))
        if problem.weight_design is not None:
            self.problem.weight_design = replace(problem.weight_design, ridge=0.0)
        self.K, self.priors = K, priors
        self.rewards = RewardPrior(problem.box(d), priors.reward_scale)
        self.marginal = MarginalLikelihood(self.problem, K, np.ones(d))

    def unpack(self, v: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return logits (..., K, p) and rewards (..., K, d) of vectors (..., n)."""
        K, p = self.K, self.marginal.p
        n = (K - 1) * p
        logits = np.concatenate([np.zeros((*v.shape[:-1], p)), v[..., :n]], axis=-1).reshape(*v.shape[:-1], K, p)
        return logits, self.rewards.theta(v[..., n:].reshape(*v.shape[:-1], K, -1))

    def pack(self, logits: FloatArray, thetas: FloatArray) -> FloatArray:
        """Return the vector (n,) of logits (K, p) and rewards (K, d); scores of rewards on bounds are finite."""
        scores = np.clip(self.rewards.score(thetas), -_FARTHEST, _FARTHEST)
        return np.concatenate([logits[1:].ravel(), scores.ravel()])

    def evaluate(self, v: FloatArray) -> tuple[float, FloatArray]:
        """Return the log density, -inf where a partition function is infinite, and its gradient (n,)."""
        logits, thetas = self.unpack(v)
        loss, derivative = self.marginal.evaluate(self.marginal.pack(logits, thetas)[None], np.zeros(1, dtype=np.intp))
        n, u = logits[1:].size, v[logits[1:].size :]
        value, gradient = -loss[0] * self.marginal.n, -derivative[0] * self.marginal.n
        gradient[n:] = gradient[n:] * self.rewards.derivative(u.reshape(thetas.shape)).ravel() - u
        log_prior, prior_gradient = self._log_prior(logits)
        gradient[:n] += prior_gradient
        return float(value - 0.5 * (u @ u) + log_prior), gradient

    def _log_prior(self, logits: FloatArray) -> tuple[float, FloatArray]:
        """Return the log prior density of the free logits, and its gradient."""
        if self.problem.weight_design is None:
            # The Jacobian of the logits multiplies the density of Dir(alpha) by prod_k rho_k.
            alpha, log_rho = self.priors.concentration, log_softmax(logits[:, 0])
            return alpha * float(log_rho.sum()), alpha * (1.0 - self.K * np.exp(log_rho[1:]))
        centred = (logits - logits.mean(axis=0)) / self.priors.covariate_scale
        return -0.5 * float(np.sum(centred**2)), -centred[1:].ravel() / self.priors.covariate_scale

    def whiten(self, start: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the mode (n,), and the map (n, n) from whitened to free coordinates."""

        def loss(v: FloatArray) -> tuple[float, FloatArray]:
            value, gradient = self.evaluate(v)
            return (-value, -gradient) if np.isfinite(value) else (1e300, -gradient)

        options: Any = {"gtol": _GTOL, "maxfun": _MODE_EVALUATIONS}
        mode = np.asarray(minimize(loss, start, jac=True, method="L-BFGS-B", options=options).x)
        steps = _STEP * np.eye(mode.size)
        rows = [(self.evaluate(mode - step)[1] - self.evaluate(mode + step)[1]) / (2.0 * _STEP) for step in steps]
        curvature = np.array(rows)
        values, vectors = np.linalg.eigh(0.5 * (curvature + curvature.T))
        return mode, np.asarray(vectors / np.sqrt(np.maximum(values, _LEAST_CURVATURE)))


class PosteriorChain:
    """One Markov chain, as a picklable function of a seed; workers create the fit problem once.

    Parameters
    ----------
    data : tuple
        Arguments of `make_problem`.
    centre, whitening : (n,), (n, n)
        Free coordinates are centre + whitening z.
    """

    def __init__(
        self,
        data: tuple[Any, ...],
        shape: tuple[int, int],
        priors: Priors,
        centre: FloatArray,
        whitening: FloatArray,
        sizes: tuple[int, int],
    ) -> None:
        self.data, self.shape, self.priors = data, shape, priors
        self.centre, self.whitening, self.sizes = centre, whitening, sizes

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "density"}

    @cached_property
    def density(self) -> PosteriorDensity:
        """The density of free coordinates."""
        return PosteriorDensity(make_problem(*self.data), *self.shape, self.priors)

    def evaluate(self, z: FloatArray) -> tuple[float, FloatArray]:
        """Return the log density and its gradient in whitened coordinates."""
        value, gradient = self.density.evaluate(self.centre + self.whitening @ z)
        return value, self.whitening.T @ gradient

    def __call__(self, seed: np.random.SeedSequence) -> tuple[FloatArray, BoolArray]:
        """Return draws (draws, n) in free coordinates, and which of them ended in a divergence."""
        nutpie, from_pyfunc = _import_nutpie()
        n, (draws, tune) = self.centre.size, self.sizes
        rng = np.random.default_rng(seed)
        first = _SPREAD * rng.normal(size=n)
        model = from_pyfunc(
            n,
            lambda: lambda z, **_: self.evaluate(z),
            lambda *_: lambda z, **_: {"z": z},
            [np.dtype(np.float64)],
            [(n,)],
            ["z"],
            make_initial_point_fn=lambda _: first,
        )
        options = {"save_warmup": False, "progress_bar": False, "cores": 1, "chains": 1}
        trace = nutpie.sample(model, draws=draws, tune=tune, seed=int(rng.integers(2**31)), **options)
        z = np.asarray(trace.posterior["z"])[0]
        return self.centre + z @ self.whitening.T, np.asarray(trace.sample_stats["diverging"])[0]


def _import_nutpie() -> tuple[Any, Any]:
    try:
        import nutpie
        from nutpie.compiled_pyfunc import from_pyfunc
    except ImportError:
        message = 'sample_posterior requires nutpie and arviz. Install them with pip install "limiirl[bayes]".'
        raise BackendUnavailable(message) from None
    return nutpie, from_pyfunc


@dataclass(frozen=True, eq=False)
class PosteriorSamples:
    """Draws from the posterior of a mixture of intents, relabelled to the order of the fitted intents.

    Attributes
    ----------
    weights : (chains, draws, K)
        Mixture weights; with covariates, their means over the units.
    thetas : (chains, draws, K, d)
    logits : (chains, draws, K, p) or None
        Logits of the weights by standardised covariates, relative to intent 0.
    diverging : (chains, draws) bool
        Transitions that ended in a divergence. If there are any, increase `tune` or use a narrower prior.
    relabelled : (chains, draws) bool
        Draws whose intents were permuted.
    feature_names : tuple of str
    """

    weights: FloatArray
    thetas: FloatArray
    logits: FloatArray | None
    diverging: BoolArray
    relabelled: BoolArray
    feature_names: tuple[str, ...] = field(repr=False)

    @cached_property
    def _arviz(self) -> Any:
        try:
            import arviz
        except ImportError:
            message = 'Diagnostics require arviz. Install it with pip install "limiirl[bayes]".'
            raise BackendUnavailable(message) from None
        return arviz

    def to_arviz(self) -> Any:
        """Return an ArviZ `InferenceData` with the posterior and the sampler statistics."""
        posterior = {"weights": self.weights, "thetas": self.thetas}
        if self.logits is not None:
            posterior["logits"] = self.logits
        return self._arviz.from_dict(
            posterior=posterior,
            sample_stats={"diverging": self.diverging, "relabelled": self.relabelled},
            coords={"intent": np.arange(self.thetas.shape[2]), "feature": list(self.feature_names)},
            dims={"weights": ["intent"], "thetas": ["intent", "feature"], "logits": ["intent", "column"]},
        )

    @cached_property
    def _flat(self) -> Any:
        """The weights and rewards as one variable (chains, draws, K + K d)."""
        chains, draws = self.weights.shape[:2]
        flat = np.concatenate([self.weights, self.thetas.reshape(chains, draws, -1)], axis=2)
        return self._arviz.convert_to_dataset({"x": flat})

    @property
    def r_hat(self) -> FloatArray:
        """Rank-normalised split R-hat (K + K d,) of weights and rewards; nan for a constant."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(self._arviz.rhat(self._flat)["x"])

    @property
    def ess(self) -> FloatArray:
        """The smaller of the bulk and the tail effective sample size (K + K d,)."""
        sizes = [np.asarray(self._arviz.ess(self._flat, method=how)["x"]) for how in ("bulk", "tail")]
        return np.asarray(np.min(sizes, axis=0))

    def intervals(self, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
        """Return the central credible intervals (K, 2) of the weights and (K, d, 2) of the rewards."""
        check_level(level)
        ends = [0.5 - 0.5 * level, 0.5 + 0.5 * level]
        weights, thetas = (np.quantile(part, ends, axis=(0, 1)) for part in (self.weights, self.thetas))
        return np.moveaxis(weights, 0, -1), np.moveaxis(thetas, 0, -1)


def sample_posterior(
    mixture: Any,
    problem: FitProblem,
    priors: Priors,
    sizes: tuple[int, int, int],
    seed: Any,
    executor: Mapper | None,
) -> PosteriorSamples:
    """Sample the posterior of a fitted mixture; see `IntentMixture.sample_posterior`.

    `sizes` are the numbers of chains, draws and iterations of adaptation.
    """
    check_model(problem)
    K, d = mixture.thetas_.shape
    if problem.regulariser is None or problem.objective(np.full((len(problem.units), K), 1.0 / K)) is None:
        raise InvalidParameter.of("irl", type(problem.model).__name__, "must be a model with gradients")
    _import_nutpie()
    chains, draws, tune = (check_count(n, name) for n, name in zip(sizes, ("chains", "draws", "tune"), strict=True))
    design = problem.weight_design
    density = PosteriorDensity(problem, K, d, priors)
    logits = mixture.membership_logits_
    if logits is None:
        logits = np.log(mixture.weights_ / mixture.weights_[0])[:, None]
    centre, whitening = density.whiten(density.pack(logits, mixture.thetas_))
    data = problem.model, problem.mdp, problem.demos, problem.units.labels, design
    chain = PosteriorChain(data, (K, d), priors, centre, whitening, (draws, tune))
    results = list(map_tasks(chain, spawn_seeds(seed, chains, "seed"), executor))
    all_logits, thetas = density.unpack(np.array([v for v, _ in results]))
    reference = np.zeros((len(problem.units), K))
    rho = unit_weights(problem, mixture.weights_, mixture.membership_logits_)
    problem.e_step(rho, mixture.thetas_, reference)
    weights, relabelled = np.empty(thetas.shape[:3]), np.zeros(thetas.shape[:2], dtype=bool)
    U = np.zeros_like(reference)
    for index in np.ndindex(*relabelled.shape):
        rho = softmax(all_logits[index][:, 0]) if design is None else design.weights(all_logits[index])
        problem.e_step(np.maximum(rho, 1e-300), thetas[index], U)
        order = assign_columns(-(reference.T @ U))
        relabelled[index] = np.any(order != np.arange(K))
        thetas[index], all_logits[index] = thetas[index][order], all_logits[index][order] - all_logits[index][order[0]]
        weights[index] = (rho if design is None else rho.mean(axis=0))[order]
    names = tuple(getattr(problem.mdp, "feature_names", None) or (f"parameter {j}" for j in range(d)))
    diverging = np.array([flag for _, flag in results])
    return PosteriorSamples(weights, thetas, None if design is None else all_logits, diverging, relabelled, names)
