"""Fits of the models with a linear reward: fitted attributes, keyword-only parameters, and the scale of the ridge."""

import inspect

import numpy as np
import pytest
from sklearn.base import clone

from limiirl import MDP, MLIRL, Demonstrations, DestinationMaxEnt, MaxCausalEnt, MaxEnt, SigmaGIRL
from limiirl.errors import DivergentPartition, InvalidDemos, InvalidParameter
from limiirl.irl import MODELS
from limiirl.irl.base import QUERIES, SUFFICIENT_STATISTICS
from tests.helpers import raises

CONTRACT = {MaxEnt: 2, MaxCausalEnt: 2, MLIRL: 3, DestinationMaxEnt: 1, SigmaGIRL: 0}
CHAIN = MDP.from_edges(
    [0, 0, 1, 1], [0, 1, 0, 1], action=[0, 1, 0, 1], gamma=0.9, state_features=[[0.0], [1.0]], p0=[0.5, 0.5]
)
WHOLE = Demonstrations.from_lists([[0, 1, 1, 0, 1, 1, 1, 0, 0, 1]])
PIECES = Demonstrations.from_lists([[0, 1, 1, 0], [0, 1, 1], [1, 1, 0, 0, 1]])


@pytest.mark.parametrize("model", CONTRACT)
def test_further_parameters_are_keyword_only(model):
    kinds = [parameter.kind for parameter in inspect.signature(model).parameters.values()]
    positional = [kind for kind in kinds if kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    assert len(positional) == CONTRACT[model]
    assert "gtol" in model().get_params()
    assert not [name for name in dir(model) if name.startswith("set_") and name.endswith("_request")]


@pytest.mark.parametrize("model", [MaxEnt(max_length=10), MaxCausalEnt(), MLIRL()])
def test_fit_stores_theta_which_clone_drops(model):
    model = clone(model)
    theta = model.fit(CHAIN, WHOLE)
    np.testing.assert_array_equal(model.theta_, theta)
    assert not hasattr(clone(model), "theta_")
    model.fit_many(CHAIN, WHOLE, np.ones((1, 2)))
    np.testing.assert_array_equal(model.theta_, theta)
    assert model.result_.theta is model.theta_
    assert len(model.results_) == 2


@pytest.mark.parametrize("name", MODELS)
def test_declared_queries_are_methods(name):
    model = MODELS[name]
    assert SUFFICIENT_STATISTICS in model.supports
    assert model.supports <= QUERIES | {SUFFICIENT_STATISTICS}
    assert all(callable(getattr(model, query)) for query in model.supports - {SUFFICIENT_STATISTICS})


def test_supported_queries():
    assert MaxEnt.supports == MaxCausalEnt.supports == MLIRL.supports == QUERIES | {SUFFICIENT_STATISTICS}
    assert DestinationMaxEnt.supports & QUERIES == {"most_likely"}
    assert not SigmaGIRL.supports & QUERIES


@pytest.mark.parametrize("model", [MaxEnt(max_length=10), MaxCausalEnt(), MLIRL(), DestinationMaxEnt()])
def test_missing_demonstrations(model):
    mdp = CHAIN.replace(gamma=1.0) if isinstance(model, DestinationMaxEnt) else CHAIN
    for call in (lambda: model.log_prob(mdp, [0.0], None), lambda: model.fit(mdp, None)):
        with raises(InvalidDemos, parameter="demos"):
            call()


def test_errors_of_starts_name_the_argument():
    models = [MaxEnt(max_length=10), MaxCausalEnt(), MLIRL()]
    for model in models:
        with raises(InvalidParameter, parameter="start"):
            model.fit(CHAIN, WHOLE, start=[0.0, 0.0])
        with raises(InvalidParameter, parameter="starts"):
            model.fit_many(CHAIN, WHOLE, np.ones((1, 2)), np.zeros((2, 2)))
    with raises(InvalidParameter, parameter="theta"):
        models[0].hessian(CHAIN, [0.0, 0.0])
    endless, infinite = CHAIN.replace(gamma=1.0, state_features=[[1.0], [1.0]]), MaxEnt(np.inf, bounds=None)
    with raises(DivergentPartition, parameter="start", value=np.array([1.0]), index=None):
        infinite.fit(endless, WHOLE, start=[1.0])
    with raises(DivergentPartition, parameter="starts", index=1):
        infinite.fit_many(endless, WHOLE, np.ones((1, 2)), [[-2.0], [1.0]])


@pytest.mark.parametrize("model", [MaxCausalEnt, MLIRL])
def test_a_ridge_per_step_does_not_depend_on_how_a_recording_is_cut(model):
    per_step = [model(ridge=0.05, ridge_per="step", gtol=1e-10).fit(CHAIN, demos) for demos in (WHOLE, PIECES)]
    np.testing.assert_allclose(per_step[0], per_step[1], rtol=1e-6)
    per_demo = [model(ridge=0.05, gtol=1e-10).fit(CHAIN, demos) for demos in (WHOLE, PIECES)]
    assert abs(per_demo[0] - per_demo[1]) > 1e-3
    with raises(InvalidParameter, parameter="ridge_per", value="trip"):
        model(ridge_per="trip").fit(CHAIN, WHOLE)
