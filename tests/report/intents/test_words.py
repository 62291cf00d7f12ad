from dataclasses import dataclass

import numpy as np

from limiirl.report.intents import words
from limiirl.report.intents.view import Contrasts


@dataclass
class View:
    """The part of an `IntentsView` that words about rewards use."""

    rewards: Contrasts
    feature_names: list[str]
    scale: np.ndarray
    n_intents: int = 2


def view_of(values, errors, others=None, scale=None):
    values, errors = np.array([values, np.zeros(len(values))], float), np.array([errors, errors], float)
    other = np.zeros(values.shape) if others is None else np.array([others, others], float)
    names = [f"f{j}" for j in range(values.shape[1])]
    return View(Contrasts(values, other, errors), names, np.ones(len(names)) if scale is None else np.array(scale))


def test_differences_within_their_error_are_not_claimed():
    described = words.reward_claims(view_of([0.28, 5.0], [4.2, 0.5]), 0)
    assert [claim.name for claim in described.claims] == ["f1"]
    assert words.describe_rewards(view_of([0.28], [4.2]), 0) == ""


def test_the_critical_value_grows_with_the_number_of_differences():
    # 2.5 standard errors are clear for one reward, and not for fifty.
    assert words.reward_claims(view_of([2.5], [1.0]), 0).n_clear == 1
    assert words.reward_claims(view_of([2.5] + [0.0] * 49, [1.0] * 50), 0).n_clear == 0


def test_rewards_without_an_error_are_not_claimed():
    assert words.reward_claims(view_of([-10.0, 1.0], [np.nan, 0.1]), 0).n_clear == 1


def test_claims_are_ordered_by_effect_and_the_others_are_counted():
    view = view_of([1.0, 9.0, 5.0, 3.0, 7.0], [0.01] * 5, scale=[100.0, 1.0, 1.0, 1.0, 1.0])
    described = words.reward_claims(view, 0)
    assert [claim.name for claim in described.claims] == ["f0", "f1", "f4"]
    assert (described.tied, described.n_clear) == (0, 5)


def test_twelve_tied_values_are_counted_and_none_is_named():
    view = view_of([5.0] * 12, [0.5] * 12)
    described = words.reward_claims(view, 0)
    assert (described.claims, described.tied, described.n_clear) == ((), 12, 12)
    text = words.describe_rewards(view, 0)
    assert "12" in text
    assert "f0" not in text


def test_a_list_ends_before_a_tie():
    view = view_of([9.0, 5.0, 5.0, 5.0, 5.0, 5.0], [0.2] * 6)
    assert [claim.name for claim in words.reward_claims(view, 0).claims] == ["f0"]


def test_a_few_tied_values_are_all_named():
    described = words.reward_claims(view_of([5.0, 5.1, 4.9, 5.0, 1.0], [0.2] * 5), 0)
    assert sorted(claim.name for claim in described.claims) == ["f0", "f1", "f2", "f3"]


def test_signs_decide_between_preferring_and_avoiding():
    text = words.describe_rewards(view_of([4.0, -8.0], [0.1, 0.1]), 0)
    assert text.index("f1") > text.index("avoids")
    assert text.index("prefers") < text.index("f0") < text.index("avoids")


def test_names_are_escaped():
    view = view_of([4.0], [0.1])
    view.feature_names = ["*bold*"]
    assert r"\*bold\*" in words.describe_rewards(view, 0)
