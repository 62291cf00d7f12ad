"""Models by name."""

import pytest
from sklearn.base import BaseEstimator

from limiirl.errors import InvalidParameter
from limiirl.irl import MODELS, MaxEnt, model_class, model_name, register_model
from tests.helpers import raises


class Silent(BaseEstimator):
    def fit(self, mdp, demos, weights=None, start=None):
        raise NotImplementedError

    def log_prob(self, mdp, thetas, demos):
        raise NotImplementedError


@pytest.fixture
def registered(monkeypatch):
    """A registry that is put back afterwards."""
    for name in set(MODELS) - {"MaxEnt"}:
        monkeypatch.delitem(MODELS, name)
    monkeypatch.setitem(MODELS, "Silent", Silent)
    return MODELS


def test_maxent_is_known():
    assert model_class("MaxEnt") is MaxEnt
    assert model_name(MaxEnt(max_length=3)) == "MaxEnt"


def test_registered_class_by_name_and_instance(registered):
    del registered["Silent"]
    register_model("quiet", Silent)
    try:
        assert model_class("quiet") is Silent
        assert model_name(Silent()) == "quiet"
    finally:
        del registered["quiet"]


def test_a_class_may_be_registered_again_as_a_notebook_does(registered):
    redefined = type("Silent", (Silent,), {"__module__": Silent.__module__, "__qualname__": "Silent"})
    register_model("Silent", redefined)
    assert model_class("Silent") is redefined


def test_a_taken_name_is_refused(registered):
    with raises(InvalidParameter, parameter="name", value="MaxEnt"):
        register_model("MaxEnt", Silent)
    assert model_class("MaxEnt") is MaxEnt


def test_a_subclass_does_not_pass_for_its_base(registered):
    class Louder(Silent):
        pass

    with raises(InvalidParameter, parameter="irl", value="Louder"):
        model_name(Louder())


def test_error_for_unknown_name_mentions_registration(registered):
    with raises(InvalidParameter, parameter="name", value="Loud") as e:
        model_class("Loud")
    assert "register_model('Loud'" in str(e.value)


class Fitless(BaseEstimator):
    def log_prob(self, mdp, thetas, demos):
        raise NotImplementedError


@pytest.mark.parametrize(
    ("name", "cls", "parameter"),
    [("", Silent, "name"), (3, Silent, "name"), ("x", Silent(), "cls"), ("x", Fitless, "cls")],
)
def test_what_cannot_be_registered(name, cls, parameter):
    with raises(InvalidParameter, parameter=parameter, value={"name": name, "cls": cls}[parameter]):
        register_model(name, cls)
    assert name not in MODELS
