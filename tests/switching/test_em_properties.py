"""EM never lowers the penalised log-likelihood, for random problems and truncated M-steps."""

import warnings

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from limiirl import MLIRL, MaxCausalEnt, SwitchingMixture
from limiirl.errors import LimiirlWarning
from tests.helpers import examples
from tests.oracles.switching import random_problem


@settings(max_examples=examples(60))
@given(
    seed=st.integers(0, 10_000),
    kind=st.sampled_from(["homogeneous", "state", "covariates"]),
    n_intents=st.sampled_from([1, 3]),
    recorded=st.sampled_from(["all", "some", "none"]),
    model=st.sampled_from([MaxCausalEnt, MLIRL]),
    ridge=st.sampled_from([0.0, 0.01, 1.0]),
    switching_ridge=st.sampled_from([0.01, 1.0]),
    max_evaluations=st.sampled_from([1, 3, 20]),
    init=st.sampled_from(["kmeans", "random", "given"]),
)
def test_objective_never_decreases(
    seed, kind, n_intents, recorded, model, ridge, switching_ridge, max_evaluations, init
):
    problem = random_problem(seed, kind, n_intents, recorded, lengths=(1, 30, 12))
    if init == "given":
        problem.thetas = np.clip(problem.thetas, -5, 5)
    mixture = SwitchingMixture(
        n_intents,
        model(ridge=ridge, bounds=(-5, 5)),
        kind,
        problem.start() if init == "given" else init,
        switching_ridge=switching_ridge,
        max_evaluations=max_evaluations,
        max_iter=12,
        window=7,
        random_state=seed,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LimiirlWarning)
        mixture.fit(problem.mdp, problem.demos, covariates=problem.covariates)
    objective = np.array([entry.objective for entry in mixture.history_])
    assert np.all(np.diff(objective) >= -1e-10 * np.abs(objective[:-1]))
    assert objective[-1] == mixture.objective_
    assert np.all(mixture.thetas_ >= -5)
    assert np.all(mixture.thetas_ <= 5)
    np.testing.assert_allclose(mixture.transition_.sum(axis=-1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(mixture.initial_.sum(), 1.0, rtol=1e-12)
