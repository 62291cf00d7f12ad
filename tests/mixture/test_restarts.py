"""Alignment of the intents of one mixture with another, and restarts."""

import numpy as np
import pytest

from limiirl import MDP, Demonstrations, IntentMixture, MaxEnt, RewardEnsemble
from limiirl.errors import InvalidParameter, NotFitted
from limiirl.mixture.em import Iteration
from limiirl.mixture.restarts import assign_columns, intent_order, permute_intents
from tests.helpers import raises

# A choice of three ways; each intent prefers one of them.
WAYS = MDP.from_edges([0, 0, 0], [1, 2, 3], p0=[1, 0, 0, 0], state_features=np.eye(4)[:, 1:])
THETAS = np.array([[2.0, -2.0, -2.0], [-2.0, 2.0, -2.0], [-2.0, -2.0, 2.0]])
TRUTH = RewardEnsemble([0.5, 0.3, 0.2], THETAS)
LABELS = np.repeat([0, 1, 2], [10, 6, 4])
DEMOS = Demonstrations.from_lists([[0, 1 + k] for k in LABELS])


def fit_mixture(labels: np.ndarray, demos: Demonstrations = DEMOS, **parameters) -> IntentMixture:
    groups = parameters.pop("groups", None)
    irl = MaxEnt(2, bounds=(-8, 8))  # rewards large enough to separate the intents in one step
    mix = IntentMixture(labels.max() + 1, irl, init=labels, **{"resp_tol": 1e-3, **parameters})
    return mix.fit(WAYS, demos, groups)


def test_alignment_to_an_ensemble_by_expected_features():
    mix = fit_mixture((LABELS + 1) % 3)
    assert intent_order(mix, TRUTH).tolist() == [1, 2, 0]
    np.testing.assert_array_equal(mix.align_to(TRUTH).labels_, LABELS)


def test_alignment_by_expected_features_not_rewards():
    # The third feature is constant: no behaviour depends on it, but most of the distance between rewards does.
    mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0, 0, 9], [1, 0, 0], [0, 1, 0]])
    demos = Demonstrations.from_lists([[0, 1], [0, 2]])
    start = RewardEnsemble([0.5, 0.5], [[1.0, -1.0, 5.0], [-1.0, 1.0, -5.0]])
    mix = IntentMixture(2, MaxEnt(2, bounds=None), init=start, max_iter=0).fit(mdp, demos)
    other = RewardEnsemble([0.5, 0.5], [[1.0, -1.0, -5.0], [-1.0, 1.0, 5.0]])
    assert intent_order(mix, other).tolist() == [0, 1]


def test_expected_features_are_standardised():
    # The first two features order the intents; the third, in a tiny unit, differs little and in the other order.
    scale = np.array([1.0, 1.0, 1e6])
    mdp = MDP.from_edges([0, 0, 0], [1, 2, 3], p0=[1, 0, 0, 0], state_features=np.eye(4)[:, 1:] * scale)
    ours, theirs = np.array([[0.7, 0.1, 0.10], [0.1, 0.7, 0.12]]), np.array([[0.7, 0.1, 0.12], [0.1, 0.7, 0.10]])
    mine, other = (
        RewardEnsemble([0.5, 0.5], np.log(p / (1.0 - p.sum(axis=1, keepdims=True))) / scale) for p in (ours, theirs)
    )
    mix = IntentMixture(2, MaxEnt(2, bounds=None), init=mine, max_iter=0).fit(mdp, DEMOS)
    np.testing.assert_allclose(mix.irl_.expected_features(mdp, mix.thetas_), ours * scale, rtol=1e-9)
    assert intent_order(mix, other).tolist() == [0, 1]


class Plain:
    """MaxEnt without `expected_features`."""

    bounds = (-2, 2)

    def __init__(self, inner=None):
        self.inner = inner

    def get_params(self, deep=False):
        return {"inner": self.inner}

    def set_params(self, **parameters):
        self.inner = parameters.get("inner", self.inner)
        return self

    def fit(self, mdp, demos, weights=None, start=None):
        return MaxEnt(2, bounds=self.bounds).fit_many(mdp, demos, weights[:, None], start[None])[0]

    def log_prob(self, mdp, thetas, demos):
        return MaxEnt(2).log_prob(mdp, thetas, demos)


def test_alignment_by_rewards_without_expected_features():
    start = RewardEnsemble(TRUTH.weights, THETAS[[1, 0, 2]])
    mix = IntentMixture(3, Plain(), init=start, max_iter=0).fit(WAYS, DEMOS)
    assert intent_order(mix, TRUTH).tolist() == [1, 0, 2]


def test_alignment_by_rewards_if_the_partition_function_is_infinite():
    loop = MDP.from_edges([0, 0, 1], [0, 1, 0], p0=[1, 0], state_features=np.eye(2))
    demos = Demonstrations.from_lists([[0], [0, 1]])
    start = RewardEnsemble([0.5, 0.5], [[-2.0, -3.0], [-3.0, -1.5]])
    mix = IntentMixture(2, MaxEnt(np.inf, bounds=(-9, 9)), init=start, max_iter=0).fit(loop, demos)
    assert intent_order(mix, RewardEnsemble([0.5, 0.5], [[0.0, 5.0], [5.0, 0.0]])).tolist() == [1, 0]


def test_same_demonstrations_are_matched_by_responsibilities():
    one, other = fit_mixture(LABELS), fit_mixture((LABELS + 2) % 3)
    order = intent_order(other, one)
    np.testing.assert_array_equal(order, assign_columns(-(one.responsibilities_.T @ other.responsibilities_)))
    assert order.tolist() == [2, 0, 1]
    # Responsibilities take precedence over exchanged rewards, except on other demonstrations.
    other.thetas_ = other.thetas_[[1, 2, 0]]
    assert intent_order(other, one).tolist() == [2, 0, 1]
    elsewhere = fit_mixture(LABELS[:-1], DEMOS[:-1])
    assert intent_order(other, elsewhere).tolist() == [1, 2, 0]


def test_a_loaded_mixture_is_matched_by_expected_features():
    one, other = fit_mixture(LABELS), fit_mixture((LABELS + 2) % 3)
    vars(one).pop("_problem")
    assert intent_order(other, one).tolist() == [2, 0, 1]


def test_all_attributes_with_an_intent_axis_are_permuted():
    groups = np.concatenate([LABELS * 3 + np.arange(20) % 2])
    mix = fit_mixture((LABELS + 1) % 3, groups=groups)
    mix.history_[-1] = Iteration(9, -1.0, -1.0, 0.1, mix.weights_, 1, 1.0, "reseeded 2")
    before = {name: np.copy(getattr(mix, name)) for name in ("weights_", "thetas_", "responsibilities_", "labels_")}
    result = mix.align_to(TRUTH)
    order = [1, 2, 0]
    assert result is not mix
    assert type(result) is IntentMixture
    assert result.get_params().keys() == mix.get_params().keys()
    np.testing.assert_array_equal(result.weights_, mix.weights_[order])
    np.testing.assert_array_equal(result.thetas_, mix.thetas_[order])
    np.testing.assert_array_equal(result.responsibilities_, mix.responsibilities_[:, order])
    np.testing.assert_array_equal(result.group_responsibilities_, mix.group_responsibilities_[:, order])
    np.testing.assert_array_equal(result.groups_, mix.groups_)
    np.testing.assert_array_equal(result.labels_, LABELS)
    np.testing.assert_array_equal(result.predict(DEMOS, groups), LABELS)
    assert result.score(DEMOS) == pytest.approx(mix.score(DEMOS), rel=1e-12)
    for new, old in zip(result.history_, mix.history_, strict=True):
        np.testing.assert_array_equal(new.weights, old.weights[order])
        assert new.log_likelihood == old.log_likelihood
    assert result.history_[-1].event == "reseeded 1"
    for new, old in zip(result.restarts_, mix.restarts_, strict=True):
        np.testing.assert_array_equal(new.ensemble.thetas, old.ensemble.thetas[order])
        np.testing.assert_array_equal(new.ensemble.weights, old.ensemble.weights[order])
    np.testing.assert_array_equal(result.standard_errors().status, mix.standard_errors().status[order])
    for name, value in before.items():
        np.testing.assert_array_equal(getattr(mix, name), value)


@pytest.mark.parametrize(
    ("event", "permuted"),
    [
        ("split 2, merged 0 into 1", "split 1, merged 2 into 0"),
        ("split 2, merged 1 into a half", "split 1, merged 0 into a half"),
        ("split 0, merged a half into 2", "split 2, merged a half into 1"),
        ("annealed", "annealed"),
    ],
)
def test_every_intent_of_an_event_is_permuted(event, permuted):
    mix = fit_mixture(LABELS)
    mix.history_ = [Iteration(0, -1.0, -1.0, 0.1, mix.weights_, event=event)]
    (entry,) = permute_intents(mix, np.array([1, 2, 0])).history_
    assert entry.event == permuted


def test_aligning_again_changes_nothing_and_aligning_to_itself_is_the_identity():
    mix = fit_mixture((LABELS + 1) % 3)
    once = mix.align_to(TRUTH)
    assert intent_order(once, TRUTH).tolist() == [0, 1, 2]
    assert intent_order(mix, mix).tolist() == [0, 1, 2]
    np.testing.assert_array_equal(permute_intents(mix, np.array([1, 2, 0])).thetas_, once.thetas_)


def test_intents_without_a_counterpart_come_last():
    more = fit_mixture((LABELS + 1) % 3)
    two = RewardEnsemble([0.5, 0.5], THETAS[[2, 1]])
    assert intent_order(more, two).tolist() == [0, 2, 1]
    fewer = fit_mixture(np.where(LABELS == 2, 0, 1))
    assert intent_order(fewer, TRUTH).tolist() == [1, 0]
    # The same demonstrations, by members.
    assert intent_order(more, fewer).tolist() == [0, 1, 2]
    assert intent_order(fewer, more).tolist() == [0, 1]


def test_assign_minimises_the_total_cost():
    rng = np.random.default_rng(0)
    for rows, columns in ((3, 3), (2, 4), (4, 2), (1, 1)):
        cost = rng.random((rows, columns))
        order = assign_columns(cost)
        assert sorted(order.tolist()) == list(range(columns))
        if rows <= columns:
            total = cost[np.arange(rows), order[:rows]].sum()
            assert total <= min(cost[np.arange(rows), rng.permutation(columns)[:rows]].sum() for _ in range(50)) + 1e-12


def test_invalid_arguments():
    with pytest.raises(NotFitted, match="not fitted"):
        IntentMixture(2).align_to(TRUTH)
    mix = fit_mixture(LABELS)
    with raises(InvalidParameter, parameter="other"):
        mix.align_to(IntentMixture(2))
    with raises(InvalidParameter, parameter="other", value=2):
        mix.align_to(RewardEnsemble([1.0], [[0.0, 0.0]]))
