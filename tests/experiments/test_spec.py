"""Specifications: their hashes are stable, depend on every field, and survive JSON."""

import json
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from limiirl.errors import InvalidFile, InvalidParameter
from limiirl.experiments.spec import BASE, Spec, parameters
from tests.helpers import raises

CHANGES = {
    "world": "PuddleWorld",
    "world_parameters": parameters(wind=0.2),
    "n_demos": 99,
    "n_test": 99,
    "imbalance": 0.1,
    "n_intents": 4,
    "model": "Other",
    "model_parameters": parameters(bounds=(-5, 0)),
    "init": "gmm",
    "reward_init": "mean",
    "max_iter": 3,
    "max_length": 50,
    "mixture_parameters": parameters(n_init=10),
    "n_agents": 2,
}


def test_the_hash_of_the_main_setting_is_stable():
    # A change here makes every stored result unreachable: raise PROCEDURE only where trials come to other results.
    assert BASE.hash == "09f06c2f9d183a30"


@pytest.mark.parametrize("name", CHANGES)
def test_every_field_changes_the_hash(name):
    assert BASE.with_(**{name: CHANGES[name]}).hash != BASE.hash


def test_the_hash_covers_all_fields():
    assert set(CHANGES) == set(BASE.to_dict())


@pytest.mark.parametrize(
    ("field", "name"),
    [
        ("mixture_parameters", "max_iter"),
        ("mixture_parameters", "init"),
        ("mixture_parameters", "irl"),
        ("mixture_parameters", "random_state"),
        ("model_parameters", "max_length"),
        ("world_parameters", "seed"),
    ],
)
def test_reserved_parameters_are_rejected(field, name):
    with raises(InvalidParameter, parameter=field, value=name):
        Spec(**{field: {name: 3}})


@pytest.mark.parametrize(("name", "value"), [("imbalance", 0.1), ("n_agents", 2), ("max_length", 50)])
def test_fields_without_effect_on_agent_worlds_are_rejected(name, value):
    with raises(InvalidParameter, parameter=name, value=value):
        Spec(world="ContinuousPuddleWorld", **{name: value})


@pytest.mark.slow
def test_hashes_do_not_depend_on_the_process():
    code = "from limiirl.experiments.studies import BASE; print(BASE.hash)"
    for seed in ("0", "1"):
        message = subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        )
        assert message.stdout.strip() == BASE.hash


def test_equal_settings_have_equal_hashes():
    assert parameters(wind=0.1, n_elements=3) == parameters(n_elements=3, wind=0.1)
    assert BASE.with_(imbalance=0).hash == BASE.with_(imbalance=0.0).hash
    calm = Spec(world_parameters={"wind": 0.0, "n_elements": 3})
    for same in (parameters(n_elements=np.int64(3), wind=0), (("wind", np.float64(0.0)), ("n_elements", 3.0))):
        assert Spec(world_parameters=same) == calm
        assert Spec(world_parameters=same).hash == calm.hash
    assert Spec(mixture_parameters={"n_init": 3.0}).hash == Spec(mixture_parameters=parameters(n_init=3)).hash
    assert Spec(model_parameters=parameters(bounds=[-10, 0])) == Spec(model_parameters=parameters(bounds=(-10.0, 0.0)))


@given(st.integers(1, 10**6), st.floats(0, 0.9), st.text(max_size=5), st.floats(allow_nan=False, allow_infinity=False))
def test_specifications_round_trip_through_json(n, p, init, wind):
    spec = Spec(n_demos=n, imbalance=p, init=init, world_parameters=parameters(wind=wind))
    again = Spec.from_dict(json.loads(json.dumps(spec.to_dict())))
    assert again == spec
    assert again.hash == spec.hash


def test_a_specification_can_be_pickled():
    assert pickle.loads(pickle.dumps(BASE)).hash == BASE.hash


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_demos", 0),
        ("n_intents", 2.0),
        ("n_test", True),
        ("max_length", "short"),
        ("max_length", 0),
        ("max_length", 5.5),
        ("max_iter", -3),
        ("n_agents", 0),
        ("imbalance", 1.0),
        ("imbalance", float("nan")),
    ],
)
def test_invalid_fields_are_rejected(name, value):
    with raises(InvalidParameter, parameter=name) as caught:
        BASE.with_(**{name: value})
    assert repr(caught.value.value) == repr(value)


def test_integers_stay_integers():
    (annealing,) = (value for _, value in parameters(annealing=(5.5, 10.0)))
    assert annealing == (5.5, 10)
    assert [type(number) for number in annealing] == [float, int]


def test_a_parameter_that_is_not_json_is_rejected():
    with raises(InvalidParameter, parameter="f", value=print):
        parameters(f=print)


def test_unknown_and_missing_fields_are_named():
    given = BASE.to_dict()
    given["odd"] = given.pop("init")
    with raises(InvalidFile, value=["init", "odd"]):
        Spec.from_dict(given)
