"""Hidden Markov models over Markov chains."""

import numpy as np
import pytest
from sklearn.base import clone

from limiirl.baselines import HMM, NGram
from limiirl.demos import Demonstrations
from limiirl.errors import InvalidParameter
from tests.helpers import raises
from tests.oracles.ngrams import DictionaryNGram, enumerate_hmm


def simulate(seed, n=12, length=60):
    """Return demonstrations that switch between two chains over three states, and the components (n, length)."""
    rng = np.random.default_rng(seed)
    chains = np.array(
        [[[0.0, 0.9, 0.1], [0.1, 0.0, 0.9], [0.9, 0.1, 0.0]], [[0.0, 0.1, 0.9], [0.9, 0.0, 0.1], [0.1, 0.9, 0.0]]]
    )
    paths, components = [], []
    for _ in range(n):
        path, hidden = [int(rng.integers(3))], [int(rng.integers(2))]
        for _ in range(length):
            path.append(int(rng.choice(3, p=chains[hidden[-1], path[-1]])))
            hidden.append(hidden[-1] if rng.random() < 0.97 else 1 - hidden[-1])
        paths.append(path)
        components.append(hidden[:-1])
    return Demonstrations.from_lists(paths), np.array(components)


@pytest.mark.parametrize("order", [1, 2])
def test_predictions_equal_an_enumeration_of_components(order):
    train, _ = simulate(0, n=4, length=30)
    test, _ = simulate(1, n=3, length=7)
    model = HMM(2, order, concentration=1.5, n_init=1, max_iter=7, random_state=0).fit(train)
    chain = NGram(order).fit(train)
    oracle = DictionaryNGram(
        [(d.states.tolist(), d.states[1:].tolist()) for d in train], chain.concentration_, lambda _: 3
    )
    weights = expected_counts(model, train, order)
    predicted = np.split(model.predictive_log_prob(test), np.cumsum(test.lengths - 1)[:-1])
    for demo, own in zip(test, predicted, strict=True):
        states, B = demo.states.tolist(), np.empty((len(demo) - 1, 2))
        for t in range(len(states) - 1):
            context = tuple(states[max(0, t - order + 1) : t + 1])
            base = oracle.prob(states, t, states[t + 1])
            for k in range(2):
                count = {event: weights.get((context, event), np.zeros(2))[k] for event in range(3)}
                B[t, k] = (count[states[t + 1]] + 1.5 * base) / (sum(count.values()) + 1.5)
        np.testing.assert_allclose(own, enumerate_hmm(model.initial_, model.transition_, B), rtol=0, atol=1e-10)


def expected_counts(model, demos, order):
    """Return {(context, event): expected counts (K,)} of the last M-step of a model."""
    states, chain = demos.states.tolist(), model._chain
    events = model._read(demos, check=True)
    slot = np.searchsorted(model._keys, chain.number_contexts(demos, events) * model.n_events_ + events.event)
    names = {}
    for i, (position, t) in enumerate(zip(events.position.tolist(), events.t.tolist(), strict=True)):
        context = tuple(states[position - min(t, order - 1) : position + 1])
        names[context, int(events.event[i])] = model._parameters.own[slot[i]]
    assert len(names) == len(model._keys)  # one slot per context and event
    return names


def test_expected_counts_are_posteriors_of_an_enumeration():
    """One iteration of EM, with the posterior by Bayes' rule over all sequences of components."""
    demos = Demonstrations.from_lists([[0, 1, 0, 0, 1], [1, 1, 0]])
    settings = {"concentration": 1.0, "n_init": 1, "window": 2, "tol": 0.0, "random_state": 3}
    one = HMM(2, 1, max_iter=1, **settings).fit(demos)
    two = HMM(2, 1, max_iter=2, **settings).fit(demos)
    counts = expected_counts(one, demos, 1)
    base = {}
    chain = NGram(1).fit(demos)
    for (context, event), log_p in zip(
        [((d.states[t].item(),), d.states[t + 1].item()) for d in demos for t in range(len(d) - 1)],
        chain.predictive_log_prob(demos),
        strict=True,
    ):
        base[context, event] = np.exp(log_p)
    total = {context: sum(counts.get((context, e), np.zeros(2)) for e in (0, 1)) for context in ((0,), (1,))}
    expected, start = {key: np.zeros(2) for key in counts}, np.zeros(2)
    for demo in demos:
        steps = [((demo.states[t].item(),), demo.states[t + 1].item()) for t in range(len(demo) - 1)]
        B = np.array([(counts[s] + base[s]) / (total[s[0]] + 1.0) for s in steps])
        T = len(steps)
        joint = {}
        for path in np.ndindex(*[2] * T):
            p = one.initial_[path[0]] * B[0, path[0]]
            for t in range(1, T):
                p *= one.transition_[path[t - 1], path[t]] * B[t, path[t]]
            joint[path] = p
        norm = sum(joint.values())
        for path, p in joint.items():
            start[path[0]] += p / norm
            for t, step in enumerate(steps):
                expected[step][path[t]] += p / norm
    after = expected_counts(two, demos, 1)
    for key, value in expected.items():
        np.testing.assert_allclose(after[key], value, rtol=0, atol=1e-12)
    np.testing.assert_allclose(two.initial_, (start + 0.1) / (start + 0.1).sum(), rtol=0, atol=1e-12)


def test_em_raises_the_penalised_likelihood():
    train, _ = simulate(2, n=4, length=80)
    settings = {"concentration": 2.0, "n_init": 1, "tol": 0.0, "random_state": 1}
    objective = [compute_objective(HMM(2, 1, max_iter=n, **settings).fit(train), train) for n in range(1, 9)]
    assert np.all(np.diff(objective) > 0.0)


def compute_objective(model, demos):
    """Return the log-likelihood plus the log-density of the Dirichlet priors, up to a constant."""
    chain, weights = NGram(1).fit(demos), expected_counts(model, demos, 1)
    pairs = Demonstrations.from_lists([[s, e] for s in range(3) for e in range(3)])
    base = np.exp(chain.predictive_log_prob(pairs)).reshape(3, 3)
    value = model.predictive_log_prob(demos).sum()
    for s in range(3):
        own = np.array([weights.get(((s,), e), np.zeros(2)) for e in range(3)])
        emission = (own + 2.0 * base[s][:, None]) / (own.sum(axis=0) + 2.0)
        value += 2.0 * np.sum(base[s][:, None] * np.log(emission))
    return value + 0.1 * (np.log(model.initial_).sum() + np.log(model.transition_).sum())


def test_switching_chains_are_recovered():
    train, _ = simulate(3, n=30, length=200)
    test, _ = simulate(4, n=10, length=200)
    model = HMM(2, 1, random_state=0).fit(train)
    np.testing.assert_allclose(np.diag(model.transition_), 0.97, rtol=0, atol=0.015)
    assert model.score(test) > NGram(2).fit(train).score(test) + 0.02
    known = 0.9 * np.log(0.9) + 0.1 * np.log(0.1)  # the expected score of a model that knows the components
    assert known - 0.2 < model.score(test) < known + 0.05


def test_one_component_is_a_smoothed_chain():
    train, _ = simulate(0)
    model = HMM(1, 1, concentration=1e-9, random_state=0).fit(train)
    counts = np.zeros((3, 3))
    np.add.at(counts, tuple(np.concatenate([[d.states[:-1], d.states[1:]] for d in train], axis=1)), 1)
    chain = counts / counts.sum(axis=1, keepdims=True)
    expected = np.log(np.concatenate([chain[d.states[:-1], d.states[1:]] for d in train]))
    np.testing.assert_allclose(model.predictive_log_prob(train), expected, rtol=0, atol=1e-8)


def test_a_seed_reproduces_the_fit_and_clones_are_unfitted():
    train, _ = simulate(0, n=6)
    model = HMM(2, 1, n_init=2, random_state=7)
    one, other = model.fit(train).transition_, clone(model).fit(train).transition_
    np.testing.assert_array_equal(one, other)
    assert not hasattr(clone(model), "transition_")
    assert model.concentration_ in (0.5, 2.0, 8.0, 32.0)
    assert len(model.history_) < model.max_iter
    assert model.converged_


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_components", 0),
        ("order", 0),
        ("n_init", 0),
        ("window", 0),
        ("max_iter", 0),
        ("concentration", 0.0),
        ("tol", -1.0),
    ],
)
def test_parameters_are_checked(name, value):
    with raises(InvalidParameter, parameter=name, value=value):
        HMM().set_params(**{name: value}).fit(Demonstrations.from_lists([[0, 1, 0]]))
