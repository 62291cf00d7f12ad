"""Route metrics against plain loops over lists, and what must hold for any pair of trajectories."""

from collections import Counter
from functools import cache

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from limiirl import MDP, Demonstrations, IntentMixture, MaxEnt
from limiirl.errors import InvalidDemos, InvalidParameter, NotFitted
from limiirl.metrics import routes
from limiirl.metrics.routes import (
    bleu_scores,
    edit_distance,
    feature_distance,
    match_rate,
    missing_distance_fraction,
    next_action_accuracy,
    route_accuracy,
)
from tests.helpers import examples, raises
from tests.oracles.mixture import crossings, walks

paths = st.lists(st.integers(0, 5), min_size=1, max_size=9)
pairs = st.lists(st.tuples(paths, paths), min_size=1, max_size=6)
lengths = st.lists(st.integers(0, 40).map(lambda n: n / 8), min_size=6, max_size=8)


def both(listed):
    one, other = zip(*listed, strict=True)
    return Demonstrations.from_lists(one), Demonstrations.from_lists(other)


def naive_missed(true, forecast, length):
    total = sum(length[s] for s in true)
    shared = sum(length[s] for s in (Counter(true) & Counter(forecast)).elements())
    return 1 - shared / total if total else 0.0


def naive_edits(one, other):
    @cache
    def edits(i, j):
        if i == 0 or j == 0:
            return i + j
        return min(edits(i - 1, j) + 1, edits(i, j - 1) + 1, edits(i - 1, j - 1) + (one[i - 1] != other[j - 1]))

    return edits(len(one), len(other))


@given(pairs, lengths)
@example([([0, 1, 1, 1], [1, 1])], [1.0] * 6)
@example([([0], [5])], [0.0] * 6)
@settings(max_examples=examples(200))
def test_distance_missed_equals_counting_in_lists(listed, each):
    true, forecast = both(listed)
    result = missing_distance_fraction(true, forecast, each)
    np.testing.assert_allclose(result, [naive_missed(*pair, each) for pair in listed], rtol=1e-12, atol=1e-12)
    assert np.all((result >= 0.0) & (result <= 1.0))
    np.testing.assert_array_equal(
        missing_distance_fraction(true, forecast), missing_distance_fraction(true, forecast, np.ones(6))
    )
    np.testing.assert_array_equal(missing_distance_fraction(true, true, each), 0.0)
    # The order in which states are passed does not matter, and detours cost nothing.
    np.testing.assert_array_equal(
        missing_distance_fraction(true, both([(a, b[::-1]) for a, b in listed])[1], each), result
    )
    np.testing.assert_array_equal(missing_distance_fraction(true, both([(a, b + a) for a, b in listed])[1], each), 0.0)
    for share in (0.0, 0.5, 0.9, 1.0):
        matched = np.mean([naive_missed(*pair, each) <= 1.0 - share + 1e-9 for pair in listed])
        assert match_rate(true, forecast, each, threshold=share) == matched


def test_nine_tenths_are_ninety_per_cent_and_the_direction_counts():
    # 3.7 is no binary number: nine such segments sum to a hair less than 90 % of ten.
    true, forecast = both([(list(range(10)), list(range(1, 10)))])
    for length in (0.1, 0.7, 1.1, 3.7):
        assert match_rate(true, forecast, np.full(10, length)) == 1.0
    assert match_rate(true, forecast, threshold=0.91) == 0.0
    missed = (
        missing_distance_fraction(*both([([0, 1], [0, 1, 2, 3])])),
        missing_distance_fraction(*both([([0, 1, 2, 3], [0, 1])])),
    )
    assert [value.tolist() for value in missed] == [[0.0], [0.5]]


def test_numbers_of_states_may_be_large():
    true, forecast = both([([2**61, 7], [7, 2**61 - 1])])
    assert missing_distance_fraction(true, forecast).tolist() == [0.5]
    assert edit_distance(true, forecast).tolist() == [2.0]


GRID = MDP.from_edges([0, 0, 0, 1, 2], [1, 1, 2, 0, 1], action=[0, 1, 2, 0, 0])


def test_missing_distance_on_edges_distinguishes_parallel_edges_and_directions():
    true = Demonstrations.from_lists([[0, 1, 0, 1]] * 3, [[0, 0, 1]] * 3)
    forecast = Demonstrations.from_lists([[0, 1, 0, 1], [0, 1], [0, 2, 1]], [[0, 0, 0], [1], [2, 0]])
    each = np.array([1.0, 2.0, 8.0, 4.0, 16.0])  # of 0-1 by action 0 and 1, 0-2, 1-0 and 2-1
    np.testing.assert_allclose(
        missing_distance_fraction(true, forecast, each, mdp=GRID), [2 / 7, 5 / 7, 1.0], rtol=1e-14
    )
    np.testing.assert_allclose(missing_distance_fraction(true, forecast, mdp=GRID), [1 / 3, 2 / 3, 1.0], rtol=1e-14)
    assert match_rate(true, forecast, each, mdp=GRID, threshold=0.5) == pytest.approx(1 / 3, rel=1e-12)
    alone = Demonstrations.from_lists([[0]] * 3)
    np.testing.assert_array_equal(missing_distance_fraction(alone, forecast, each, mdp=GRID), 0.0)
    np.testing.assert_array_equal(missing_distance_fraction(true, alone, each, mdp=GRID), 1.0)
    np.testing.assert_array_equal(missing_distance_fraction(alone, alone, each, mdp=GRID), 0.0)
    with raises(InvalidDemos, parameter="mdp"):
        missing_distance_fraction(Demonstrations.from_lists([[0, 1]]), Demonstrations.from_lists([[0, 2]]), mdp=GRID)


@given(pairs)
@example([([0, 1, 2], [1, 2, 0])])
@example([([1, 1], [1]), ([0], [0, 1, 0, 1])])
@settings(max_examples=examples(200))
def test_edit_distance_equals_the_recursion(listed):
    one, other = both(listed)
    result = edit_distance(one, other)
    np.testing.assert_array_equal(result, [naive_edits(tuple(a), tuple(b)) for a, b in listed])
    np.testing.assert_array_equal(edit_distance(other, one), result)
    np.testing.assert_array_equal(edit_distance(one, one), 0.0)
    longest = [max(len(a), len(b)) for a, b in listed]
    share = edit_distance(one, other, normalised=True)
    np.testing.assert_allclose(share, result / longest, rtol=1e-14)
    assert np.all(share <= 1.0)


@given(paths, paths, paths)
def test_edit_distance_obeys_the_triangle(a, b, c):
    ab, bc, ac = (edit_distance(*both([pair]))[0] for pair in ((a, b), (b, c), (a, c)))
    assert ac <= ab + bc


@given(st.integers(0, 10**6))
@settings(max_examples=examples(20))
def test_feature_distance_compares_discounted_counts(seed):
    mdp = crossings().replace(gamma=0.8)
    (true, _), (forecast, _) = walks(5, seed=seed), walks(5, seed=seed + 1)
    result = feature_distance(mdp, true, forecast)
    phi = np.asarray(mdp.state_features)
    F, G = (
        np.array([sum(0.8**t * phi[s] for t, s in enumerate(demo.states)) for demo in demos])
        for demos in (true, forecast)
    )
    np.testing.assert_allclose(result, np.sqrt(((F - G) ** 2).sum(axis=1)), rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(feature_distance(mdp, forecast, true), result)
    np.testing.assert_array_equal(feature_distance(mdp, true, true), 0.0)


@pytest.fixture(scope="module")
def fitted():
    demos, _ = walks(60, seed=2)
    return IntentMixture(2, MaxEnt(7, (-5, 5)), random_state=0).fit(crossings(), demos), walks(12, seed=8)[0]


def naive_next(mix, demos):
    """(demo, t, most likely action, probability of the action taken), one prefix at a time."""
    for i, demo in enumerate(demos):
        taken = mix.mdp_.act[demos[[i]].steps(mix.mdp_).edge]
        for t, action in enumerate(taken):
            predicted = mix.next_actions(Demonstrations.from_lists([demo.states[: t + 1]])).action[0]
            yield i, t, float(np.argmax(predicted) == action), predicted[action]


@pytest.mark.parametrize("batch", [1, 30, 10**6])
def test_next_actions_are_predicted_prefix_by_prefix(fitted, batch, monkeypatch):
    mix, demos = fitted
    monkeypatch.setattr(routes, "_BATCH", batch)
    result = next_action_accuracy(mix, demos)
    demo, t, correct, probability = (np.array(column) for column in zip(*naive_next(mix, demos), strict=True))
    np.testing.assert_array_equal(result.demo, demo)
    np.testing.assert_array_equal(result.t, t)
    np.testing.assert_array_equal(result.correct, correct)
    np.testing.assert_allclose(result.probability, probability, rtol=1e-10)
    np.testing.assert_allclose(result.log_loss, -np.log(probability).mean(), rtol=1e-12)
    assert 0.3 < result.accuracy == correct.mean() < 1.0
    np.testing.assert_allclose(result.by_step()[0], correct[t == 0].mean(), rtol=1e-14)
    assert result.by_step().size == t.max() + 1
    assert f"of {t.size} next actions predicted" in repr(result)


def test_recorded_actions_before_the_move_are_used_but_not_the_one_to_foresee():
    mdp = MDP.from_edges([0, 0, 1, 1], [1, 1, 2, 3], action=[0, 1, 0, 1], p0=[1, 0, 0, 0])
    mdp = mdp.replace(action_features=np.eye(4))
    demos = Demonstrations.from_lists([[0, 1, 2]] * 6 + [[0, 1, 3]] * 6, [[0, 0]] * 6 + [[1, 1]] * 6)
    init = np.repeat([0, 1], 6)
    mix = IntentMixture(2, MaxEnt(3, (-6, 6), stop="terminal"), init=init).fit(mdp, demos)
    result = next_action_accuracy(mix, demos)
    # The first action is a toss-up; it gives away the second.
    np.testing.assert_array_equal(result.correct[result.t == 1], 1.0)
    np.testing.assert_allclose(result.probability[result.t == 0], 0.5, rtol=1e-3)
    assert result.probability[result.t == 1].min() > 0.99
    unknown = next_action_accuracy(mix, demos.replace(actions=None))
    np.testing.assert_array_equal(unknown.t, 1)  # two edges join 0 and 1, so that the first action is unknown
    np.testing.assert_allclose(unknown.probability, 0.5, rtol=1e-3)


def test_ties_are_shared_out():
    mdp = MDP.from_edges([0, 0, 0], [1, 2, 3], p0=[1, 0, 0, 0], state_features=np.ones((4, 1)))
    demos = Demonstrations.from_lists([[0, 1], [0, 3]])
    mix = IntentMixture(1, MaxEnt(2), max_iter=0).fit(mdp, demos)
    np.testing.assert_allclose(next_action_accuracy(mix, demos).correct, 1 / 3, rtol=1e-14)


def test_route_accuracy_compares_with_all_routes_between_the_same_states():
    true = Demonstrations.from_lists([[0, 1, 2, 3, 9], [0, 4, 5, 6, 7, 9], [0, 1, 2, 3, 9], [1, 2, 9], [0, 8]])
    forecast = Demonstrations.from_lists([[0, 4, 5, 6, 9], [0, 1, 2, 3, 9], [0, 1, 2, 3, 9], [1, 4, 4, 4, 9], [0, 8]])
    accuracy = route_accuracy(true, forecast)
    # The first forecast is one insertion from the second route; the fourth requires 3 edits of 3 states, at most 1.
    np.testing.assert_allclose(accuracy.edit, (1 / 5 + 0 + 0 + 1 + 0) / 5, rtol=1e-12)
    np.testing.assert_allclose(accuracy.exact, 2 / 5, rtol=1e-12)
    np.testing.assert_allclose(accuracy.bleu, bleu_scores(true, forecast).mean(), rtol=1e-12)


def test_bleu_by_hand():
    """Two references clip the counts, a count of zero becomes 0.1, and short forecasts are penalised."""
    true = Demonstrations.from_lists([[0, 1, 2, 3, 9], [0, 1, 2, 4, 5, 9], [6, 6, 6, 7, 8, 8, 8]])
    forecast = Demonstrations.from_lists([[0, 1, 2, 4, 9], [0, 1, 1, 1, 5, 9], [6, 6, 8, 8]])
    # 1: states 5/5, pairs 3/4, triples 2/3, fours 1/2. 2: 4/6, pairs 2/5, then 0.1/4 and 0.1/3.
    # 3: 4/4, 2/3, 0.1/2 and 0.1/1, with 4 of 7 states.
    precisions = np.array([[1, 3 / 4, 2 / 3, 1 / 2], [4 / 6, 2 / 5, 0.1 / 4, 0.1 / 3], [1, 2 / 3, 0.1 / 2, 0.1]])
    expected = np.exp(np.log(precisions).mean(axis=1)) * np.exp([0, 0, 1 - 7 / 4])
    np.testing.assert_allclose(bleu_scores(true, forecast), expected, rtol=1e-12)
    nothing = bleu_scores(Demonstrations.from_lists([[1, 2]]), Demonstrations.from_lists([[3, 4]]))
    np.testing.assert_allclose(nothing, 0.0, rtol=0, atol=0)


def test_errors(fitted):
    mix, _ = fitted
    one, two = Demonstrations.from_lists([[0, 1]]), Demonstrations.from_lists([[0, 1], [0]])
    for metric in (missing_distance_fraction, match_rate, edit_distance, lambda a, b: feature_distance(mix.mdp_, a, b)):
        with raises(InvalidDemos, parameter="other" if metric is edit_distance else "forecast", value=2):
            metric(one, two)
        with pytest.raises(InvalidDemos):
            metric(one[:0], one[:0])
    with raises(InvalidParameter, parameter="lengths"):
        missing_distance_fraction(one, one, [1.0])
    with raises(InvalidParameter, parameter="lengths"):
        missing_distance_fraction(one, one, np.ones(25), mdp=crossings())
    with raises(InvalidParameter, parameter="lengths"):
        missing_distance_fraction(one, one, [1.0, -1.0])
    parallel = MDP.from_edges([0, 1, 1], [1, 2, 2], action=[0, 0, 1])
    twice = Demonstrations.from_lists([[0, 1], [0, 1, 2]])
    with raises(InvalidDemos, parameter="mdp", index=(1, 1)):
        missing_distance_fraction(twice, twice, mdp=parallel)
    with raises(InvalidParameter, parameter="threshold"):
        match_rate(one, one, threshold=90)
    with pytest.raises(NotFitted):
        next_action_accuracy(IntentMixture(), one)
    with raises(InvalidDemos, parameter="demos"):
        next_action_accuracy(mix, Demonstrations.from_lists([[0]]))
