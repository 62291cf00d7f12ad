"""One-step choices: agreement with statsmodels (logit with clustered errors) and Biogeme (latent class logit)."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from limiirl import MDP, Demonstrations, IntentMixture, MaxCausalEnt, RewardEnsemble

N_PEOPLE, N_CHOICES, N_SITUATIONS, N_ALTERNATIVES = 400, 5, 60, 3


def draw_choices() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return attributes (situations, alternatives, 2), and situations and choices (people, choices)."""
    rng = np.random.default_rng(23)
    attributes = rng.uniform(0.0, 2.0, size=(N_SITUATIONS, N_ALTERNATIVES, 2)).round(2)
    theta = np.array([[-2.0, -0.5], [0.3, -1.8]])[(rng.random(N_PEOPLE) < 0.35).astype(int)]
    situation = rng.integers(N_SITUATIONS, size=(N_PEOPLE, N_CHOICES))
    utility = np.einsum("ptaj,pj->pta", attributes[situation], theta)
    return attributes, situation, np.argmax(utility + rng.gumbel(size=utility.shape), axis=2)


def as_problem(attributes: np.ndarray, situation: np.ndarray, choice: np.ndarray) -> tuple[MDP, Demonstrations]:
    """Return an MDP with one state per situation, whose actions are the alternatives, and the choices."""
    n, m = attributes.shape[:2]
    src, act = np.repeat(np.arange(n), m), np.tile(np.arange(m), n)
    mdp = MDP.from_edges(
        src, n + act, n_states=n + m, action=act, p0=np.append(np.full(n, 1.0 / n), np.zeros(m)),
        edge_features=attributes.reshape(n * m, -1), feature_names=["cost", "time"],
    )  # fmt: skip
    states = np.column_stack([situation.ravel(), n + choice.ravel()])
    return mdp, Demonstrations.from_lists(states.tolist(), [[a] for a in choice.ravel().tolist()])


def fit_classes() -> IntentMixture:
    """Return the latent class logit with the choices of a person as one unit; the larger class is intent 0."""
    mdp, demos = as_problem(*draw_choices())
    person = np.repeat(np.arange(N_PEOPLE), N_CHOICES)
    start = RewardEnsemble([0.6, 0.4], [[-1.5, -0.5], [0.1, -1.5]])
    irl = MaxCausalEnt(bounds=None, ridge=0.0)
    mix = IntentMixture(2, irl, init=start, max_iter=500, resp_tol=1e-9, accelerate=True)
    return mix.fit(mdp, demos, person)


# Final log-likelihood, and value, standard error (Rao-Cramer) and robust standard error, from Biogeme 3.3.2:
# pip install biogeme==3.3.2 "tomlkit<0.14", then estimate_with_biogeme().
BIOGEME_LOG_LIKELIHOOD = -1788.05084191263
BIOGEME = {
    "odds": (0.70973133, 0.16657966, 0.17018499),
    "cost_0": (-1.82009017, 0.10544897, 0.10256759),
    "time_0": (-0.49031378, 0.08451709, 0.08914701),
    "cost_1": (0.48067703, 0.15506576, 0.16111450),
    "time_1": (-2.10916781, 0.18012418, 0.16945359),
}


def estimate_with_biogeme() -> tuple[float, dict[str, tuple[float, float, float]]]:
    """Return the log-likelihood and the estimates with both standard errors; writes files to the working directory."""
    import pandas as pd
    from biogeme import biogeme, database, models
    from biogeme.expressions import Beta, Variable, exp, log
    from biogeme.results_processing import EstimateVarianceCovariance, get_pandas_estimated_parameters

    attributes, situation, choice = draw_choices()
    columns = {f"choice{t}": choice[:, t] for t in range(N_CHOICES)}
    for t, a, (j, name) in product(range(N_CHOICES), range(N_ALTERNATIVES), enumerate(("cost", "time"))):
        columns[f"{name}{t}_{a}"] = attributes[situation[:, t], a, j]
    data = database.Database("choices", pd.DataFrame(columns).astype(float))
    classes = []
    for k, (cost, time) in enumerate(((-1.5, -0.5), (0.1, -1.5))):
        by_cost, by_time = Beta(f"cost_{k}", cost, None, None, 0), Beta(f"time_{k}", time, None, None, 0)
        probability = 1
        for t in range(N_CHOICES):
            utility = {
                a: by_cost * Variable(f"cost{t}_{a}") + by_time * Variable(f"time{t}_{a}")
                for a in range(N_ALTERNATIVES)
            }
            probability = probability * models.logit(utility, None, Variable(f"choice{t}"))
        classes.append(probability)
    weight = 1 / (1 + exp(-Beta("odds", 0.5, None, None, 0)))
    estimator = biogeme.BIOGEME(data, log(weight * classes[0] + (1 - weight) * classes[1]), generate_html=False)
    estimator.model_name = "choices"
    results = estimator.estimate()
    kinds = (EstimateVarianceCovariance.RAO_CRAMER, EstimateVarianceCovariance.ROBUST)
    tables = [
        get_pandas_estimated_parameters(results, variance_covariance_type=kind).set_index("Name") for kind in kinds
    ]
    rows = zip(tables[0].index, *(table.iloc[:, :2].to_numpy() for table in tables), strict=True)
    return results.final_log_likelihood, {name: (own[0], own[1], robust[1]) for name, own, robust in rows}


def check_classes(expected_log_likelihood: float, expected: dict[str, tuple[float, float, float]]) -> None:
    mix = fit_classes()
    # The model of limiirl includes the uniform probability of situations.
    starts = N_PEOPLE * N_CHOICES * np.log(N_SITUATIONS)
    np.testing.assert_allclose(N_PEOPLE * mix.log_likelihood_ + starts, expected_log_likelihood, rtol=0.0, atol=1e-5)
    factor = np.sqrt(N_PEOPLE / (N_PEOPLE - 1))  # limiirl multiplies the sandwich by N / (N - 1)
    for covariance, column in (("observed", 1), ("robust", 2)):
        errors = mix.standard_errors(covariance=covariance)
        odds = errors.delta_method(lambda weights, thetas: np.log(weights[0] / weights[1]))
        scale = factor if covariance == "robust" else 1.0
        np.testing.assert_allclose(odds.value, expected["odds"][0], rtol=1e-3)
        np.testing.assert_allclose(odds.error, scale * expected["odds"][column], rtol=1e-3)
        for k, j in np.ndindex(2, 2):
            row = expected[f"{('cost', 'time')[j]}_{k}"]
            np.testing.assert_allclose(mix.thetas_[k, j], row[0], rtol=1e-3)
            np.testing.assert_allclose(errors.thetas[k, j], scale * row[column], rtol=1e-3)


def test_latent_class_logit_agrees_with_recorded_figures_of_biogeme() -> None:
    check_classes(BIOGEME_LOG_LIKELIHOOD, BIOGEME)


@pytest.mark.slow
def test_latent_class_logit_agrees_with_biogeme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("biogeme")
    monkeypatch.chdir(tmp_path)
    check_classes(*estimate_with_biogeme())


def test_logit_and_clustered_errors_agree_with_statsmodels() -> None:
    api = pytest.importorskip("statsmodels.api")
    attributes, situation, choice = draw_choices()
    attributes, choice = attributes[:, :2], np.minimum(choice, 1)  # a binary choice
    mdp, demos = as_problem(attributes, situation, choice)
    irl = MaxCausalEnt(bounds=None, ridge=0.0, gtol=1e-10)
    theta = irl.fit(mdp, demos)
    person = np.repeat(np.arange(N_PEOPLE), N_CHOICES)
    difference = (attributes[:, 1] - attributes[:, 0])[situation.ravel()]
    logit = api.Logit(choice.ravel(), difference)
    expected = logit.fit(disp=0, tol=1e-12)
    np.testing.assert_allclose(theta, expected.params, rtol=1e-7)
    np.testing.assert_allclose(irl.standard_errors(mdp, demos).thetas[0], expected.bse, rtol=1e-6)
    summary = irl.summary(mdp, demos)
    np.testing.assert_allclose(summary.t_values[0], expected.tvalues, rtol=1e-6)
    np.testing.assert_allclose(summary.p_values[0], expected.pvalues, rtol=1e-5)
    # statsmodels has the null model with an intercept; theta = 0 gives each alternative the probability 1 / 2.
    starts = demos.n_transitions * np.log(N_SITUATIONS)
    np.testing.assert_allclose(summary.total_log_likelihood + starts, expected.llf, rtol=1e-10)
    np.testing.assert_allclose(summary.null_log_likelihood + starts, -len(demos) * np.log(2.0), rtol=1e-12)
    robust = logit.fit(disp=0, tol=1e-12, cov_type="HC0")
    own = irl.standard_errors(mdp, demos, covariance="robust").thetas[0]
    np.testing.assert_allclose(own, robust.bse * np.sqrt(len(demos) / (len(demos) - 1)), rtol=1e-6)
    options = {"groups": person, "use_correction": False}
    clustered = logit.fit(disp=0, tol=1e-12, cov_type="cluster", cov_kwds=options)
    own = irl.standard_errors(mdp, demos, covariance="cluster", clusters=person).thetas[0]
    np.testing.assert_allclose(own, clustered.bse * np.sqrt(N_PEOPLE / (N_PEOPLE - 1)), rtol=1e-6)
