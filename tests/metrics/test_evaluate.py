"""`evaluate`: every figure against the function or the count that it stands for."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax

from limiirl import IntentMixture, MaxEnt, RewardEnsemble
from limiirl.errors import DivergentPartition, InvalidDemos, InvalidParameter, NotFitted
from limiirl.metrics import anid, hard_labels, nid
from limiirl.metrics.evaluate import ensemble_nll, evaluate, mixture_nll, recover
from limiirl.metrics.gevd import gevd
from tests.helpers import examples, raises
from tests.oracles.mixture import TASTES, crossings, walks

TRUTH = RewardEnsemble([0.6, 0.4], TASTES)


@pytest.fixture(scope="module")
def fitted():
    demos, _ = walks(80, seed=2)
    mix = IntentMixture(2, MaxEnt(7, (-5, 5)), random_state=0).fit(crossings(), demos)
    return mix, *walks(50, seed=3)


def test_every_part_is_what_its_function_says(fitted):
    mix, demos, labels = fitted
    evaluation = evaluate(mix, demos, labels, TRUTH)
    U, one_hot = mix.predict_proba(demos), np.eye(2)[labels]
    assert evaluation.n_intents == 2
    np.testing.assert_array_equal(evaluation.nll.values, mixture_nll(mix, demos).values)
    assert (evaluation.recovery.nid, evaluation.recovery.anid) == (nid(one_hot, U), anid(one_hot, U))
    assert (evaluation.recovery.nid_hard, evaluation.recovery.anid_hard) == (
        nid(one_hot, hard_labels(U)),
        anid(one_hot, hard_labels(U)),
    )
    assert evaluation.recovery.anid != evaluation.recovery.anid_hard
    np.testing.assert_array_equal(evaluation.gevd.evd, gevd(mix.mdp_, TRUTH, mix.ensemble_).evd)
    assert evaluation.gevd.value == gevd(mix.mdp_, TRUTH, mix.ensemble_).value
    np.testing.assert_allclose(
        evaluation.reference.nll, ensemble_nll(mix.irl_, mix.mdp_, TRUTH, demos).mean, rtol=1e-12
    )
    V = softmax(mix.irl_.log_prob(mix.mdp_, TASTES, demos) + np.log(TRUTH.weights), axis=1)
    np.testing.assert_allclose(evaluation.reference.anid, anid(V, U), rtol=1e-9)
    np.testing.assert_allclose(evaluation.reference.anid_hard, anid(hard_labels(V), hard_labels(U)), rtol=1e-9)


def test_text_and_json_of_an_evaluation(fitted):
    mix, demos, labels = fitted
    evaluation = evaluate(mix, demos, np.array(["river", "park"])[labels], TRUTH)
    text = str(evaluation)
    assert text.startswith(f"2 intents on 50 demonstrations, {demos.n_steps} steps\n  NLL   ")
    assert f"{evaluation.nll.per_step:.4f} per step" in text
    assert f"ANID  {evaluation.recovery.anid:.4f} soft, {evaluation.recovery.anid_hard:.4f} hard" in text
    assert "river" in text
    assert str(evaluation.gevd) in text
    assert f"NLL   {evaluation.reference.nll:.4f} per demonstration under the true rewards" in text
    assert repr(evaluation) == text
    read = json.loads(json.dumps(evaluation.to_dict(), allow_nan=False))
    assert read["nll"]["mean"] == evaluation.nll.mean
    assert read["recovery"]["labels"] == ["park", "river"]
    assert np.sum(read["recovery"]["counts"]) == 50
    assert read["gevd"]["value"] == evaluation.gevd.value
    assert {"normalised", "normalised_tight", "largest"} <= read["gevd"].keys()
    assert read["reference"]["anid"] == evaluation.reference.anid


def test_parts_without_anything_to_compare_with_are_left_out(fitted):
    mix, demos, labels = fitted
    alone = evaluate(mix, demos)
    assert (alone.recovery, alone.gevd, alone.reference) == (None, None, None)
    assert "labels" not in str(alone)
    assert "GEVD" not in str(alone)
    assert alone.to_dict()["gevd"] is None
    # Labels that demonstrations carry are used; those given come before them.
    carried = demos.replace(labels=labels)
    assert evaluate(mix, carried).recovery.accuracy == evaluate(mix, demos, labels).recovery.accuracy
    assert evaluate(mix, carried, np.zeros(50, dtype=int)).recovery.labels.tolist() == [0]
    single = evaluate(mix, carried[:1])
    assert "±" not in str(single)
    assert single.recovery.accuracy == 1.0


def test_groups_share_their_posterior(fitted):
    mix, demos, labels = fitted
    order = np.argsort(labels, kind="stable")
    demos, labels = demos[order], labels[order]
    groups = 10 * labels + np.arange(50) % 5
    alone, evaluation = evaluate(mix, demos, labels, TRUTH), evaluate(mix, demos, labels, TRUTH, groups)
    np.testing.assert_array_equal(evaluation.nll.values, -mix.score_samples(demos, groups))
    assert "in 10 groups" in str(evaluation)
    assert "per group" in str(evaluation)
    assert evaluation.recovery.anid == anid(labels, mix.predict_proba(demos, groups)) < alone.recovery.anid
    np.testing.assert_allclose(
        evaluation.reference.nll, ensemble_nll(mix.irl_, mix.mdp_, TRUTH, demos, groups).mean, rtol=1e-12
    )


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 4), st.integers(1, 20))
@settings(max_examples=examples(60))
def test_accuracy_is_the_maximum_over_all_matchings(seed, L, K, n):
    rng = np.random.default_rng(seed)
    labels, U = rng.integers(L, size=n), rng.dirichlet(np.full(K, 0.5), size=n)
    evaluation = recover(labels, U)
    hard = U.argmax(axis=1)
    names = sorted(set(labels.tolist()))
    size = max(len(names), K)
    best = max(
        sum(order[names.index(label)] == k for label, k in zip(labels, hard, strict=True))
        for order in itertools.permutations(range(size))
    )
    assert evaluation.accuracy == best / n
    assert evaluation.counts.sum() == n
    matched = evaluation.intent[evaluation.intent >= 0]
    assert np.unique(matched).size == matched.size == min(len(names), K)
    assert evaluation.accuracy == sum(evaluation.counts[i, k] for i, k in enumerate(evaluation.intent) if k >= 0) / n
    assert np.count_nonzero(evaluation.intent == -1) == str(evaluation).count("none")


def test_more_labels_than_fit_on_a_page_are_counted():
    text = str(recover(np.arange(30), np.full((30, 2), 0.5)))
    assert "... 18 more" in text
    assert len(text.splitlines()) == 4 + 12 + 1


class Divergent(MaxEnt):
    """A model that cannot sum over trajectories under the true rewards."""

    def log_prob(self, mdp, thetas, demos):
        if np.array_equal(thetas, TASTES):
            raise DivergentPartition("infinite")
        return super().log_prob(mdp, thetas, demos)


def test_a_truth_without_a_likelihood_still_has_a_gevd(fitted):
    demos = fitted[1]
    mix = IntentMixture(2, Divergent(7, (-5, 5)), max_iter=0, random_state=0).fit(crossings(), demos)
    evaluation = evaluate(mix, demos, truth=TRUTH)
    assert evaluation.reference is None
    assert evaluation.gevd.value >= 0.0
    assert "same model" not in str(evaluation)


def test_errors(fitted):
    mix, demos, labels = fitted
    with pytest.raises(NotFitted):
        evaluate(IntentMixture(), demos)
    with raises(InvalidDemos, parameter="labels", value=(49,)):
        evaluate(mix, demos, labels[:-1])
    with raises(InvalidParameter, parameter="truth"):
        evaluate(mix, demos, truth=TASTES)
    with raises(InvalidParameter, parameter="truth", value=(1, 2)):
        evaluate(mix, demos, truth=RewardEnsemble([1.0], [[1.0, 2.0]]))
    with raises(InvalidDemos, parameter="demos"):
        evaluate(mix, demos[:0])
