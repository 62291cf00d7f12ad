""""""

import numpy as np
import pytest
from sklearn.base import BaseEstimator

import limiirl as ll
from limiirl.errors import InvalidParameter, ModelMismatchWarning
from limiirl.irl import MODELS, MaxEnt, choose_model, default_model, model_class, model_name, register_model
from tests.helpers import raises


def grid(n: int, **changes: object) -> ll.MDP:
    """Return an n x n grid with moves in four directions; state n x + y."""
    edges = [
        (n * x + y, n * (x + a) + y + b)
        for x in range(n)
        for y in range(n)
        for a, b in ((1, 0), (-1, 0), (0, 1), (0, -1))
        if 0 <= x + a < n and 0 <= y + b < n
    ]
    src, dst = np.array(edges).T
    return ll.MDP.from_edges(src, dst, state_features=np.ones((n * n, 1))).replace(**changes)


def trips(n: int, number: int, *, detour: bool = False) -> ll.Demonstrations:
    """Return trips from the corner, first along x, to different states; a detour adds moves to and fro."""
    paths = []
    for goal in range(n * n - number, n * n):
        x, y = divmod(goal, n)
        path = [*range(0, n * x, n), *range(n * x, n * x + y + 1)]
        paths.append([0, 1, 0, 1, 0, 1, 0, *path] if detour else path)
    return ll.Demonstrations.from_lists([path for path in paths if len(path) > 1])


def test_models_follow_dynamics_and_discount():
    world = ll.worlds.ElementWorld(seed=0)
    demos, _ = world.sample(20, seed=0)
    assert isinstance(default_model(world.mdp, demos), ll.MaxCausalEnt)
    assert isinstance(default_model(grid(4)), ll.MaxEnt)
    assert isinstance(default_model(grid(4, gamma=0.9)), ll.MaxCausalEnt)
    estimated = choose_model(grid(4), trips(4, 3), estimated=True)
    assert type(estimated.model).__name__ == "MaxCausalEnt"
    assert "MaxEnt" in estimated.alternatives


def test_agents_need_no_mdp():
    assert isinstance(default_model(None), ll.SigmaGIRL)


def test_goal_directed_trips_get_the_destination_model():
    assert isinstance(default_model(grid(5), trips(5, 20)), ll.DestinationMaxEnt)


@pytest.mark.parametrize(
    ("changes", "demos"),
    [
        ({"gamma": 0.9}, trips(5, 20)),
        ({}, trips(5, 9)),  # too few destinations
        ({}, trips(5, 20, detour=True)),  # indirect
        ({}, ll.Demonstrations.concat([trips(5, 20), *[trips(5, 1)] * 10])),  # one destination is common
        ({}, ll.Demonstrations.concat([trips(5, 20), ll.Demonstrations.from_lists([[6, 1, 6]])])),  # a round trip
    ],
)
def test_other_demonstrations_do_not(changes, demos):
    assert not isinstance(default_model(grid(5, **changes), demos), ll.DestinationMaxEnt)


def test_infinite_values_get_a_maximum_length():
    """At discount 1 without a terminal state, soft values are infinite."""
    mdp = ll.MDP.from_edges([0, 0, 1, 1], [0, 1, 0, 1], action=[0, 0, 0, 0], prob=[0.5] * 4)
    demos = ll.Demonstrations.from_lists([[0, 1, 1], [1, 0, 1, 0]], [[0, 0], [0, 0, 0]])
    assert default_model(mdp, demos).max_length == 4
    assert default_model(mdp.replace(gamma=0.9), demos).max_length == np.inf


def test_fits_use_the_default_and_explain_it(tmp_path):
    world = ll.worlds.ElementWorld(seed=0)
    demos, _ = world.sample(30, seed=0)
    mix = ll.IntentMixture(1).fit(world.mdp, demos)
    assert isinstance(mix.irl_, ll.MaxCausalEnt)
    assert mix.model_choice_ == str(choose_model(world.mdp, demos))
    assert mix.summary().to_dict()["model_choice"] == mix.model_choice_
    assert mix.model_choice_ in str(mix.summary())
    mix.save(tmp_path / "mix")
    assert ll.IntentMixture.load(tmp_path / "mix").model_choice_ == mix.model_choice_
    chosen = ll.select_intents(world.mdp, demos, [1], folds=0, resamples=0, seed=0)
    assert chosen.best.model_choice_ == mix.model_choice_
    np.testing.assert_array_equal(chosen.best.thetas_, mix.thetas_)
    given = ll.IntentMixture(1, ll.MaxCausalEnt()).fit(world.mdp, demos)
    assert given.model_choice_ == given.summary().model_choice == ""


def test_maxent_for_stochastic_transitions_warns_once():
    world = ll.worlds.ElementWorld(seed=0, height=3)
    demos, _ = world.sample(20, seed=0)
    with pytest.warns(ModelMismatchWarning) as issued:
        ll.select_intents(world.mdp, demos, [1], irl=ll.MaxEnt(), folds=2, resamples=0, seed=0)
    assert [(w.message.parameter, w.message.value) for w in issued] == [("irl", "MaxEnt")]
    with pytest.warns(ModelMismatchWarning) as issued:
        ll.BayesianIntentMixture(1, ll.MaxEnt()).fit(world.mdp, demos).summary()
    assert len(issued) == 1


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
