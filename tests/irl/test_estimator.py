"""Fits of the models with a linear reward: fitted attributes, keyword-only parameters, and the scale of the ridge."""

import inspect

import numpy as np
import pytest
from sklearn.base import clone

from limiirl import MDP, MLIRL, Demonstrations, DestinationMaxEnt, MaxCausalEnt, MaxEnt, SigmaGIRL
from limiirl.errors import InvalidParameter
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


@pytest.mark.parametrize("model", [MaxCausalEnt, MLIRL])
def test_a_ridge_per_step_does_not_depend_on_how_a_recording_is_cut(model):
    per_step = [model(ridge=0.05, ridge_per="step", gtol=1e-10).fit(CHAIN, demos) for demos in (WHOLE, PIECES)]
    np.testing.assert_allclose(per_step[0], per_step[1], rtol=1e-6)
    per_demo = [model(ridge=0.05, gtol=1e-10).fit(CHAIN, demos) for demos in (WHOLE, PIECES)]
    assert abs(per_demo[0] - per_demo[1]) > 1e-3
    with raises(InvalidParameter, parameter="ridge_per", value="trip"):
        model(ridge_per="trip").fit(CHAIN, WHOLE)
