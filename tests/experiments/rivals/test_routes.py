"""Route choice with published splits: attributes, scores and settings, on simulated trips."""

from dataclasses import replace

import numpy as np
import pytest

from limiirl import DestinationMaxEnt
from limiirl.datasets import make_commutes
from limiirl.experiments.rivals import routes
from limiirl.experiments.rivals.routes import RouteSetting, Split, fit_routes, score_paths, score_total

RIDGE = {"turn ?*": 1e-3, "*": 0.0}


@pytest.fixture(scope="module")
def splits():
    """Trips of both intents, every fifth of which is held out."""
    data = make_commutes(300, seed=0)
    test = np.arange(300) % 5 == 0
    mdp = data.mdp.replace(feature_names=("minutes", "bend", "U-turn"), state_names=None)
    demos = data.demos.replace(ids=np.arange(300), state_names=None)
    return [Split(mdp, demos[~test], demos[test]), Split(mdp, demos[test], demos[~test])]


def test_total_is_that_of_the_model_per_366_trips(splits):
    score = score_total(RouteSetting(), splits, 1)
    mdp, train, test = splits[1]
    model = DestinationMaxEnt(bounds=None)
    theta = model.fit(mdp, train)
    np.testing.assert_allclose(score.sums, [model.log_prob(mdp, theta, test).sum()], rtol=1e-6)
    np.testing.assert_allclose(score.sizes, [240 / 366], rtol=1e-12)
    np.testing.assert_allclose(score.train, 366 * model.log_prob(mdp, theta, train).mean(), rtol=1e-6)


def test_units_of_paths_are_destinations(splits):
    score = score_paths(RouteSetting(), splits, 0)
    total = score_total(RouteSetting(), splits, 0)
    np.testing.assert_allclose(score.sums.sum(), total.sums[0], rtol=1e-9)
    np.testing.assert_allclose(score.sizes, np.unique(splits[0].test.last_states, return_counts=True)[1], rtol=0)
    assert set(score.figures) == {"edit", "bleu", "exact"}
    truth = score_paths(RouteSetting(), [splits[0]._replace(test=splits[0].train)], 0)
    np.testing.assert_allclose(truth.sums.sum() / len(splits[0].train), score.train, rtol=1e-9)
    assert 0.2 < score.figures["exact"] < score.figures["bleu"] < 1.0


def test_selection_does_not_use_the_test_trips(splits):
    mdp, train, test = splits[0]
    plain = score_total(RouteSetting(), splits, 1, select=True)
    other = score_total(RouteSetting(), [Split(mdp, train, test[:1])], 1, select=True)
    np.testing.assert_allclose(plain.sums, other.sums, rtol=0)
    np.testing.assert_allclose(plain.sizes, [80 / 366], rtol=1e-12)
    folds = [splits[0].fold(number).test.ids for number in range(3)]
    assert sorted(np.concatenate(folds).tolist()) == sorted(train.ids.tolist())


def test_constants_are_penalised(splits):
    one = fit_routes(RouteSetting(("next links", "turns"), RIDGE), splits[0])
    n = splits[0].mdp.n_edges
    assert one.thetas_.shape == (1, 4 + n)
    strong = fit_routes(RouteSetting(("next links", "turns"), {"turn ?*": 10.0, "*": 0.0}), splits[0])
    assert np.abs(strong.thetas_[0, 4:]).max() < 0.05 < np.abs(one.thetas_[0, 4:]).max()


def test_intents_share_the_named_rewards(splits):
    two = fit_routes(RouteSetting(n_intents=2, shared=("minutes",)), splits[0])
    assert np.ptp(two.thetas_[:, 0]) == 0.0
    assert np.ptp(two.thetas_[:, 1:], axis=0).min() > 0.01


def test_link_size_uses_the_fixed_parameters(splits, monkeypatch):
    monkeypatch.setattr(routes, "_FIXED", (-1.0, -1.0, -4.0))
    wide = fit_routes(RouteSetting(("link size",)), splits[0])
    assert wide.mdp_.feature_names[-1] == "link size"
    plain = fit_routes(RouteSetting(), splits[0])
    assert wide.score(splits[0].train) > plain.score(splits[0].train)


def test_figures_describe_the_fit(splits):
    plain, wide = (fit_routes(setting, splits[0]) for setting in (RouteSetting(), RouteSetting(("turns",), RIDGE)))
    figures = routes.summarise_fit(plain, splits[0].train)
    np.testing.assert_allclose(figures["BIC"], plain.bic(), rtol=1e-12)
    assert figures["converged"] == 1.0
    assert figures["evaluations"] == sum(entry.n_evaluations for entry in plain.history_)
    assert "BIC" not in routes.summarise_fit(wide, splits[0].train)
    assert routes.describe(plain) == "K = 1, 3 features"


@pytest.mark.slow
def test_acceleration_converges_in_fewer_evaluations_and_not_at_a_lower_likelihood(splits):
    setting = RouteSetting(ridge={"*": 1e-4}, n_intents=2)
    fast, plain = (fit_routes(s, splits[0]) for s in (setting, replace(setting, accelerate=False, max_iter=1000)))
    assert fast.converged_
    assert fast.objective_ > plain.objective_ - 1e-6
    count = [sum(entry.n_evaluations for entry in fit.history_) for fit in (fast, plain)]
    assert count[0] < count[1]


def test_chosen_settings_of_shanghai_are_candidates():
    for size, name in routes.SHANGHAI_CHOSEN.items():
        assert name in routes.SHANGHAI_CANDIDATES[size]
    two = routes.SHANGHAI_CANDIDATES[1000]["constants per turn, 2 intents, ridge 3e-4"]
    assert (two.n_intents, two.shared, two.ridge["turn ?*"]) == (2, ("turn ?*",), 3e-4)
