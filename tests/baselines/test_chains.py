"""Uniform predictions, Markov chains and back-off n-grams."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limiirl.baselines import MarkovChain, NGram, Uniform
from limiirl.demos import Demonstrations
from limiirl.errors import InvalidDemos, InvalidParameter, NotFitted
from limiirl.mdp import MDP
from tests.helpers import examples, raises
from tests.oracles.ngrams import DictionaryNGram

MODELS = pytest.mark.parametrize("model", [Uniform(), MarkovChain(2), NGram(3)], ids=lambda m: type(m).__name__)


def random_mdp(rng, n_states=4, n_actions=3):
    """Return a deterministic MDP with parallel actions, in which not every action is available."""
    keep = rng.random((n_states, n_actions)) < 0.7
    keep[:, 0] = True
    src, act = np.nonzero(keep)
    return MDP.from_edges(src, rng.integers(0, n_states, src.size), n_states=n_states, action=act)


def random_demos(rng, mdp, n=6, habits=None):
    """Return random paths of different lengths, some without a step; `habits` are weights (S, S, A) of actions."""
    states, actions = [], []
    for _ in range(n):
        path, taken = [int(rng.integers(mdp.n_states))], []
        for _ in range(int(rng.integers(0, 9))):
            edges = np.arange(mdp.out_ptr[path[-1]], mdp.out_ptr[path[-1] + 1])
            weights = np.ones(3) if habits is None else habits[path[-2 if len(path) > 1 else -1], path[-1]] + 1e-3
            edge = int(rng.choice(edges, p=weights[mdp.act[edges]] / weights[mdp.act[edges]].sum()))
            taken.append(int(mdp.act[edge]))
            path.append(int(mdp.dst[edge]))
        states.append(path)
        actions.append(taken)
    return Demonstrations.from_lists([[0, int(mdp.dst[0])], *states], [[int(mdp.act[0])], *actions])


def as_lists(demos, by_action):
    return [
        (d.states.tolist(), d.actions.tolist() if by_action else d.states[1:].tolist()) for d in demos if len(d) > 1
    ]


def count_available(mdp, by_action):
    values = mdp.act if by_action else mdp.dst
    return lambda s: len(set(values[mdp.src == s].tolist()))


@settings(max_examples=examples(40))
@given(st.integers(0, 10**6), st.integers(1, 4), st.booleans(), st.booleans(), st.booleans())
def test_probabilities_equal_those_of_dictionaries(seed, order, shared, by_action, with_mdp):
    rng = np.random.default_rng(seed)
    mdp = random_mdp(rng)
    train, test = random_demos(rng, mdp), random_demos(rng, mdp)
    if not by_action:
        train, test = train.replace(actions=None), test.replace(actions=None)
    model = (MarkovChain if shared else NGram)(order).fit(train, mdp if with_mdp else None)
    if not with_mdp:  # states and actions that do not occur in the training data are unknown
        parts = [(d.states[:-1], d.actions if by_action else d.states[1:]) for d in test]
        limits = model.n_states_, model.n_events_
        known = [all(np.all(x < n) for x, n in zip(part, limits, strict=True)) for part in parts]
        test = test[np.array(known)]
    available = count_available(mdp, by_action) if with_mdp else lambda s: model.n_events_
    oracle = DictionaryNGram(as_lists(train, by_action), model.concentration_, available)
    np.testing.assert_allclose(
        model.predictive_log_prob(test), oracle.log_prob(as_lists(test, by_action)), rtol=0, atol=1e-12
    )


@MODELS
def test_probabilities_sum_to_one_over_actions(model):
    rng = np.random.default_rng(3)
    mdp = random_mdp(rng)
    model.fit(random_demos(rng, mdp), mdp)
    for demo in random_demos(rng, mdp):
        for t in range(len(demo)):
            s = int(demo.states[t])
            edges = range(mdp.out_ptr[s], mdp.out_ptr[s + 1])
            paths = [[*demo.states[: t + 1], mdp.dst[e]] for e in edges]
            prefixes = Demonstrations.from_lists(paths, [[*demo.actions[:t], mdp.act[e]] for e in edges])
            last = prefixes.offsets[1:] - 1 - np.arange(1, len(prefixes) + 1)
            np.testing.assert_allclose(np.exp(model.predictive_log_prob(prefixes)[last]).sum(), 1.0, rtol=1e-12)


def score_left_out(demos, alphas, mdp):
    """Return the mean log-probability of each demonstration given the others."""
    data, available = as_lists(demos, True), count_available(mdp, True)
    parts = [DictionaryNGram(data[:i] + data[i + 1 :], alphas, available).log_prob([data[i]]) for i in range(len(data))]
    return np.concatenate(parts).mean()


@pytest.mark.parametrize("shared", [True, False])
def test_concentrations_maximise_the_left_out_likelihood(shared):
    rng = np.random.default_rng(5)
    mdp = random_mdp(rng)
    habits = rng.dirichlet([0.3] * 3, (4, 4))  # by the previous and the current state
    demos = random_demos(rng, mdp, 60, habits)
    model = (MarkovChain if shared else NGram)(2).fit(demos, mdp)
    best = score_left_out(demos, model.concentration_, mdp)
    for factor in ([1.3, 1.3], [0.7, 0.7], *([] if shared else [[1.3, 1.0], [1.0, 1.3], [0.7, 1.0], [1.0, 0.7]])):
        assert score_left_out(demos, model.concentration_ * factor, mdp) <= best + 1e-7


def test_a_useless_level_is_smoothed_away():
    rng = np.random.default_rng(0)
    states = rng.integers(0, 3, (40, 60))  # no memory at all
    demos = Demonstrations.from_lists(states.tolist())
    one, three = NGram(1).fit(demos[:30]), NGram(3).fit(demos[:30])
    assert three.concentration_[1:].min() > 100.0
    assert three.score(demos[30:]) > one.score(demos[30:]) - 0.01


def test_one_demonstration_is_smoothed_by_its_parts():
    states = np.random.default_rng(0).integers(0, 3, 300).tolist()
    model = NGram(2).fit(Demonstrations.from_lists([states]))
    assert model.concentration_[1] > 20.0
    assert abs(model.score(Demonstrations.from_lists([states])) + np.log(3)) < 0.05


def test_uniform_counts_available_actions():
    mdp = MDP.from_edges([0, 0, 0, 1], [1, 1, 0, 0], action=[0, 1, 2, 0])
    demos = Demonstrations.from_lists([[0, 1, 0, 0]], [[1, 0, 2]])
    expected = -np.log([3, 1, 3])
    np.testing.assert_allclose(Uniform().fit(demos, mdp).predictive_log_prob(demos), expected, rtol=1e-15)
    paths = demos.replace(actions=None)  # two different next states of state 0
    np.testing.assert_allclose(Uniform().fit(paths, mdp).predictive_log_prob(paths), -np.log([2, 1, 2]), rtol=1e-15)
    assert Uniform(n_actions=4).fit(demos).score(demos) == pytest.approx(-np.log(4), rel=1e-15)
    with raises(InvalidParameter, parameter="n_actions", value=2):
        Uniform(n_actions=2).fit(demos)


@MODELS
def test_bad_demonstrations_are_named(model):
    train = Demonstrations.from_lists([[0, 1, 0]], [[0, 1]])
    with pytest.raises(NotFitted):
        type(model)().predictive_log_prob(train)
    with raises(InvalidDemos, parameter="demos"):
        model.fit(Demonstrations.from_lists([[0], [1]]))
    with raises(InvalidDemos, parameter="demos", value=-1, index=(1, 1)):
        model.fit(Demonstrations.from_lists([[0, 1], [0, 1, 0]], [[0], [0, -1]]))
    model.fit(train)
    with raises(InvalidDemos, parameter="demos", value=2, index=(1, 0)):
        model.score(Demonstrations.from_lists([[0, 1], [2, 0]], [[0], [0]]))
    with raises(InvalidDemos, parameter="demos", value=3, index=(0, 0)):
        model.score(Demonstrations.from_lists([[0, 1]], [[3]]))
    with raises(InvalidDemos, parameter="demos"):
        model.score(train.replace(actions=None))
    with raises(InvalidDemos, parameter="demos"):
        model.score(train.replace(state_names=("a", "b")))


def test_names_are_matched_by_an_mdp():
    mdp = MDP.from_edges([0, 1], [1, 0], state_names=["den", "pond"])
    train = Demonstrations.from_lists([["den", "pond", "den"]])
    test = Demonstrations.from_lists([["pond", "den"]], state_names=["pond", "den"])
    assert NGram(2).fit(train, mdp).score(test) == 0.0
    with raises(InvalidDemos, parameter="demos", index=(0, 0)):
        NGram(2).fit(train, mdp).score(Demonstrations.from_lists([["nest", "den"]]))


@pytest.mark.parametrize("model", [MarkovChain(0), NGram(0), NGram(1.5)])
def test_orders_are_checked(model):
    with raises(InvalidParameter, parameter="order", value=model.order):
        model.fit(Demonstrations.from_lists([[0, 1]]))
