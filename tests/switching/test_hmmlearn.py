"""At a discount of almost 0 and with one state, switching intents are the categorical model of hmmlearn."""

from types import SimpleNamespace

import numpy as np
import pytest
from hmmlearn.hmm import CategoricalHMM

from limiirl import MDP, Demonstrations, MaxCausalEnt, SwitchingMixture

N_ACTIONS = 4


@pytest.fixture(params=[2, 3])
def both(request):
    """The same parameters as a model of hmmlearn, and as the start of a mixture; symbols, lengths, MDP and demos."""
    K, rng = request.param, np.random.default_rng(request.param)
    hmm = CategoricalHMM(K, init_params="", n_iter=1, implementation="log", n_features=N_ACTIONS)
    hmm.startprob_ = rng.dirichlet(np.ones(K))
    hmm.transmat_ = 0.85 * np.eye(K) + 0.15 * rng.dirichlet(np.full(K, 5.0), size=K)
    hmm.emissionprob_ = 0.7 * np.eye(N_ACTIONS)[:K] + 0.3 * rng.dirichlet(np.full(N_ACTIONS, 5.0), size=K)
    lengths = [1, 400, 750, 230]
    symbols = np.concatenate([hmm.sample(n, random_state=int(rng.integers(999)))[0] for n in lengths])[:, 0]
    none, actions = np.zeros(N_ACTIONS, int), np.arange(N_ACTIONS)
    mdp = MDP.from_edges(none, none, action=actions, gamma=1e-12, action_features=np.eye(N_ACTIONS))
    parts = np.split(symbols, np.cumsum(lengths)[:-1])
    demos = Demonstrations.from_lists([[0] * (n + 1) for n in lengths], [part.tolist() for part in parts])
    logits = SimpleNamespace(A=np.log(hmm.transmat_), B=np.zeros((K, 0)))
    start = SimpleNamespace(
        initial_=hmm.startprob_, thetas_=np.log(hmm.emissionprob_), logits_=logits, transition_=hmm.transmat_
    )
    return hmm, start, symbols[:, None], lengths, mdp, demos


def test_likelihood_and_posteriors(both):
    hmm, start, symbols, lengths, mdp, demos = both
    sw = SwitchingMixture(len(start.initial_), MaxCausalEnt(), init=start, max_iter=0).fit(mdp, demos)
    assert sw.score_samples(demos).sum() == pytest.approx(hmm.score(symbols, lengths), abs=1e-8)
    np.testing.assert_allclose(sw.predict_proba(demos), hmm.predict_proba(symbols, lengths), rtol=0, atol=1e-8)


def test_viterbi_paths(both):
    hmm, start, symbols, lengths, mdp, demos = both
    sw = SwitchingMixture(len(start.initial_), MaxCausalEnt(), init=start, max_iter=0).fit(mdp, demos)
    np.testing.assert_array_equal(sw.predict(demos), hmm.predict(symbols, lengths))


def test_em_converges_to_the_same_maximum(both):
    hmm, start, symbols, lengths, mdp, demos = both
    hmm.n_iter = hmm.monitor_.n_iter = 4000
    hmm.tol = hmm.monitor_.tol = 1e-11
    hmm.fit(symbols, lengths)
    assert hmm.monitor_.iter > 20
    model = MaxCausalEnt(ridge=0.0, gtol=1e-12)
    sw = SwitchingMixture(len(start.initial_), model, init=start, max_iter=4000, tol=1e-15, max_evaluations=200)
    sw.fit(mdp, demos)
    # Probabilities are at least 1e-8 here, and may be 0 there.
    assert sw.score(demos) == pytest.approx(hmm.score(symbols, lengths) / demos.n_transitions, abs=1e-8)
    np.testing.assert_allclose(sw.transition_, hmm.transmat_, rtol=0, atol=1e-4)
