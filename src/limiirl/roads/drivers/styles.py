"""Normalisation of rewards that makes them identifiable, and descriptions of driving styles in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment

from limiirl._typing import FloatArray, IntArray
from limiirl.errors import InvalidParameter
from limiirl.roads.privacy import count_drivers_by_street

if TYPE_CHECKING:
    from limiirl.demos import Demonstrations
    from limiirl.mixture import StandardErrors
    from limiirl.roads.drivers.fit import DriverFit

Groups = Mapping[str, Sequence[int]]

NOT_LENGTHS = ("turns", "choices", "extra")
"""Groups of `limiirl.roads.features` whose features do not sum to the length of a segment."""


@dataclass(frozen=True)
class NormalisedRewards:
    """Normalised rewards of K intents: in every group of length features, the mean over the driven km is zero.

    Attributes
    ----------
    level : (K,)
        Mean reward per driven km.
    thetas : (K, d)
        Difference between the reward per km of each feature and the mean of its group. Rewards of features that are not
        lengths are unchanged.
    level_errors, errors : (K,), (K, d), optional
        Standard errors of `level` and `thetas`: nan for rewards on a bound and for rewards that the trips do not
        determine, None if they were not computed.
    """

    level: FloatArray
    thetas: FloatArray
    level_errors: FloatArray | None = None
    errors: FloatArray | None = None

    def reward(self, features: ArrayLike, km: ArrayLike) -> FloatArray:
        """Return the rewards (K, n) of segments or trips with features (n, d) and lengths (n,) in km."""
        phi, lengths = np.asarray(features, dtype=np.float64), np.asarray(km, dtype=np.float64)
        return np.asarray(self.thetas @ phi.T) + np.outer(self.level, lengths)


def normalise_rewards(
    thetas: ArrayLike,
    groups: Groups,
    km: ArrayLike,
    *,
    errors: StandardErrors | None = None,
    not_lengths: Sequence[str] = NOT_LENGTHS,
) -> NormalisedRewards:
    """Normalise rewards so that the mean of each group over the driven km is zero.

    ``theta'_j = theta_j - c_g`` for feature j of group g, ``c_g = sum_j km_j theta_j / sum_j km_j``, and the level is
    ``sum_g c_g``. The reward of every segment is unchanged: ``theta . phi = theta' . phi + level km``.

    Parameters
    ----------
    thetas : (K, d)
    groups : mapping of names to indices
        Indices of the features of each group; every feature is in one group.
    km : (d,)
        Sum of each feature over the demonstrations.
    errors : StandardErrors, optional
        Standard errors of `thetas`, from `IntentMixture.standard_errors`.
    not_lengths : sequence of str
        Groups whose features do not sum to the length; their rewards are unchanged.

    Examples
    --------
    >>> groups = {"road class": (0, 1), "region": (2, 3)}
    >>> normalised = normalise_rewards([[-1.0, -3.0, -5.0, -1.0]], groups, [1, 1, 1, 3])
    >>> normalised.level, normalised.thetas
    (array([-4.]), array([[ 1., -1., -3.,  1.]]))
    """
    given = np.atleast_2d(np.array(thetas, dtype=np.float64))
    driven = np.asarray(km, dtype=np.float64)
    check_groups(groups, given.shape[1])
    if driven.shape != given.shape[1:]:
        raise InvalidParameter.of("km", driven.shape, f"must have one entry per feature ({given.shape[1]})")
    level, means = np.zeros(len(given)), np.zeros((given.shape[1], given.shape[1]))
    total = np.zeros(given.shape[1])
    for name, members in groups.items():
        if name in not_lengths:
            continue
        indices = list(members)
        weight = driven[indices]
        wrong = ~(np.isfinite(weight) & (weight >= 0.0))
        if wrong.any():
            j = indices[int(np.argmax(wrong))]
            rule = f"must be finite and nonnegative in group {name!r}, which partitions the length"
            remedy = "Pass the driven km, or add the group to not_lengths."
            raise InvalidParameter.of("km", float(driven[j]), rule, index=j, remedy=remedy)
        if not weight.sum() > 0.0:
            message = f"km must not be 0 for all features of group {name!r}, since its mean is then undefined."
            raise InvalidParameter(message, parameter="km", value=name)
        mean = given[:, indices] @ (weight / weight.sum())
        given[:, indices] -= mean[:, None]
        level += mean
        means[np.ix_(indices, indices)] = total[indices] = weight / weight.sum()
    if errors is None:
        return NormalisedRewards(level, given)
    spread = errors.of_contrasts(np.vstack([np.eye(len(total)) - means, total]))
    return NormalisedRewards(level, given, spread[:, -1], np.where(errors.status == "bound", np.nan, spread[:, :-1]))


def match_rewards(first: NormalisedRewards, second: NormalisedRewards, km: ArrayLike) -> NDArray[np.int64]:
    """Return, for each intent of `first`, the matching intent (K,) of `second`; -1 if there is none.

    The one-to-one assignment minimises the sum of squared differences, weighted by the driven km.

    Examples
    --------
    >>> one = NormalisedRewards(np.array([-1.0, -2.0]), np.array([[1.0, -1.0], [0.0, 0.0]]))
    >>> two = NormalisedRewards(np.array([-2.1, -1.0]), np.array([[0.0, 0.0], [0.9, -0.9]]))
    >>> match_rewards(one, two, [1.0, 1.0])
    array([1, 0])
    """
    weight = np.abs(np.asarray(km, dtype=np.float64))  # the sum of a feature that is not a length may be negative
    weight = weight / max(float(weight.sum()), 1e-300)
    difference = first.thetas[:, None, :] - second.thetas[None, :, :]
    cost = difference**2 @ weight + (first.level[:, None] - second.level[None, :]) ** 2
    rows, columns = linear_sum_assignment(cost)
    partner = np.full(len(first.level), -1, dtype=np.int64)
    partner[rows] = columns
    return partner


def check_groups(groups: Groups, d: int) -> None:
    """Check that each of d features is in one group."""
    members = sorted(index for indices in groups.values() for index in indices)
    if members != list(range(d)):
        rule, remedy = f"must contain each of the {d} features once", "Pass the groups of the FeatureChoice."
        raise InvalidParameter.of("groups", members, rule, remedy=remedy)


# A feature is mentioned if its fraction of the km is at least 25 % above or 20 % below its fraction in all trips, the
# difference is at least 3 percentage points, and one of the fractions is at least 2 %.
_MORE, _LESS, _APART, _LEAST_SHARE = 1.25, 0.8, 0.03, 0.02
# Smaller differences between rewards per km are not described.
_MATTERS = 0.1
# Differences below this number of standard errors are not described.
_CERTAIN = 2.0
# Maximum number of rewards that are listed as preferred or avoided.
_LISTED = 3


@dataclass(frozen=True)
class StyleDescription:
    """Description of a style, in a few words (`short`) and in a few sentences (`long`)."""

    short: str
    long: str


def describe_styles(
    normalised: NormalisedRewards,
    mean_features: ArrayLike,
    shares: ArrayLike,
    feature_names: Sequence[str],
    groups: Groups,
    *,
    not_lengths: Sequence[str] = NOT_LENGTHS,
) -> list[StyleDescription]:
    """Describe the differences between each of K styles and all trips.

    If `normalised` has standard errors, rewards are described only if they exceed two of them.

    Parameters
    ----------
    normalised : NormalisedRewards
    mean_features : (K, d)
        Mean features of the trips of each style.
    shares : (K,)
        Fraction of the trips of each style.
    feature_names : sequence of d str
        Names such as "km of highway".
    groups, not_lengths
        As in `normalise_rewards`.

    Examples
    --------
    >>> normalised = NormalisedRewards(np.array([-1.0, -3.0]), np.array([[0.5, -1.0], [-0.2, 0.3]]))
    >>> names, groups = ["km of highway", "km of street"], {"road class": (0, 1)}
    >>> words = describe_styles(normalised, [[8.0, 2.0], [1.0, 3.0]], [0.25, 0.75], names, groups)
    >>> [style.short for style in words]
    ['long trips, more highway, less street', 'short trips, more street, less highway']
    >>> print(words[0].long)
    25 % of the trips. Long trips: 10 km on average (all trips: 5.5 km). 80 % of the km are highway (all trips: 50 %);
    less street (20 %, all trips: 50 %). A km costs 1 on average (all trips: 2.5): less sensitive to detours. Prefers
    highway (+0.5 per km). Avoids street (−1 per km).
    """
    mean, weight = np.asarray(mean_features, dtype=np.float64), np.asarray(shares, dtype=np.float64)
    lengths = [list(places) for name, places in groups.items() if name not in not_lengths]
    # The coefficient of the number of choices is not a preference.
    others = [list(places) for name, places in groups.items() if name in not_lengths and name != "choices"]
    km = mean[:, lengths[0]].sum(axis=1) if lengths else np.full(len(mean), np.nan)
    weights = weight / max(float(weight.sum()), 1e-300)
    facts = _StyleFacts(normalised, mean, weights, km, tuple(feature_names), lengths, others)
    return [_describe(k, facts) for k in range(len(mean))]


def describe_fit(fit: DriverFit) -> list[StyleDescription]:
    """Describe the styles of a fit, given its trips and responsibilities."""
    mixture, groups = fit.mixture, fit.features.groups
    mdp = mixture.mdp_.replace(gamma=1.0)
    features, memberships = fit.demos.features(mdp), np.asarray(mixture.responsibilities_)
    mean = memberships.T @ features / np.maximum(memberships.sum(axis=0), 1e-300)[:, None]
    rewards = normalise_rewards(
        mixture.ensemble_.thetas, groups, features.sum(axis=0), errors=mixture.standard_errors()
    )
    return describe_styles(rewards, mean, mixture.ensemble_.weights, mdp.feature_names, groups)


def count_style_trips(demos: Demonstrations, responsibilities: ArrayLike, n_segments: int) -> FloatArray:
    """Return the expected number of trips (K, S) per style and segment, given the posterior (N, K) of the trips."""
    U = np.asarray(responsibilities, dtype=np.float64)
    trip = np.repeat(np.arange(len(demos)), np.diff(demos.offsets))
    return np.stack([np.bincount(demos.states, column[trip], minlength=n_segments) for column in U.T])


def count_style_drivers(demos: Demonstrations, labels: ArrayLike, n_styles: int, opposite: IntArray) -> IntArray:
    """Return the number of drivers (K, S) per style and street in either direction, or of trips if unknown.

    `labels` (N,) is the style of each trip, and `opposite` (S,) is `RoadNetwork.opposite`.
    """
    style = np.asarray(labels)
    return np.array([count_drivers_by_street(demos[style == k], opposite) for k in range(n_styles)])


@dataclass(frozen=True)
class _StyleFacts:
    """Statistics of all styles."""

    normalised: NormalisedRewards
    mean: FloatArray  # (K, d) features
    weights: FloatArray  # (K,)
    km: FloatArray  # (K,) mean length
    names: tuple[str, ...]  # "km of highway"
    lengths: list[list[int]]  # groups whose features sum to the length
    others: list[list[int]]

    @property
    def nouns(self) -> list[str]:
        return [name.removeprefix("km of ") for name in self.names]


def _describe(k: int, facts: _StyleFacts) -> StyleDescription:
    short: list[str] = []
    sentences = [f"{100 * facts.weights[k]:.0f} % of the trips."]
    if facts.lengths:
        overall = float(facts.weights @ facts.km)
        ratio = facts.km[k] / overall if overall else 1.0
        size = "Long" if ratio >= _MORE else "Short" if ratio <= _LESS else "Typical"
        sentences.append(f"{size} trips: {facts.km[k]:.3g} km on average (all trips: {overall:.3g} km).")
        short += [f"{size.lower()} trips"] if size != "Typical" else []
        more, less = _compare_use(k, facts)
        nouns, names = facts.nouns, [name.removeprefix("km ").removeprefix("of ") for name in facts.names]
        short += [f"more {nouns[j]}" for j, _, _ in more[:2]] + [_less(nouns[j]) for j, _, _ in less[:1]]
        parts = []
        if more:
            shares = (f"{a:.0%} of the km are {names[j]} (all trips: {b:.0%})" for j, a, b in more[:3])
            parts.append(" and ".join(shares))
        if less:
            parts.append(" and ".join(f"{_less(nouns[j])} ({a:.0%}, all trips: {b:.0%})" for j, a, b in less[:2]))
        if parts:
            sentence = "; ".join(parts)
            sentences.append(f"{sentence[0].upper()}{sentence[1:]}.".replace("%", " %"))
        sentences += _describe_cost(k, facts)
    sentences += _describe_preferences(k, facts)
    sentences += [sentence for places in facts.others for sentence in _describe_others(k, facts, places)]
    return StyleDescription(", ".join(short) or "like all trips", " ".join(sentences))


def _describe_cost(k: int, facts: _StyleFacts) -> list[str]:
    level, overall = float(facts.normalised.level[k]), float(facts.weights @ facts.normalised.level)
    if abs(level - overall) < _MATTERS or abs(overall) < _MATTERS or _LESS < level / overall < _MORE:
        return []
    if not _differs(k, level - overall, facts.normalised.level_errors, facts.weights):
        return []
    degree = "more" if level / overall >= _MORE else "less"
    return [f"A km costs {-level:.3g} on average (all trips: {-overall:.3g}): {degree} sensitive to detours."]


def _differs(k: int, difference: float, errors: FloatArray | None, weights: FloatArray) -> bool:
    """Return True if the difference of style k from the mean of all styles exceeds two standard errors.

    The sum of the errors of the style and of the mean is an upper bound on the error of their difference. NaN yields
    False.
    """
    if errors is None:
        return True
    occupied = weights > 0.0
    return bool(abs(difference) >= _CERTAIN * (errors[k] + weights[occupied] @ errors[occupied]))


def _compare_use(k: int, facts: _StyleFacts) -> tuple[list[tuple[int, float, float]], list[tuple[int, float, float]]]:
    """Return the features with a larger and a smaller fraction of the km than in all trips, with both fractions."""
    share = facts.mean[k] / max(float(facts.km[k]), 1e-300)
    overall = (facts.weights @ facts.mean) / max(float(facts.weights @ facts.km), 1e-300)
    places = [j for group in facts.lengths for j in group if max(share[j], overall[j]) >= _LEAST_SHARE]
    more = [j for j in places if share[j] >= max(_MORE * overall[j], overall[j] + _APART)]
    less = [j for j in places if share[j] <= min(_LESS * overall[j], overall[j] - _APART)]
    rising = sorted(more, key=lambda j: overall[j] - share[j])
    falling = sorted(less, key=lambda j: share[j] - overall[j])
    sides = [[(j, float(share[j]), float(overall[j])) for j in side] for side in (rising, falling)]
    return sides[0], sides[1]


def _describe_preferences(k: int, facts: _StyleFacts) -> list[str]:
    """Return sentences about the highest and lowest rewards among features of the trips of a style."""
    theta, mean = facts.normalised.thetas[k], facts.mean[k]
    total = max((float(mean[group].sum()) for group in facts.lengths), default=0.0)
    used = [j for group in facts.lengths for j in group if mean[j] >= _LEAST_SHARE * total]
    errors = None if facts.normalised.errors is None else facts.normalised.errors[k]
    places = [j for j in used if abs(theta[j]) >= _MATTERS]
    if errors is not None:
        places = [j for j in places if abs(theta[j]) >= _CERTAIN * errors[j]]
    texts = {j: _format_reward(float(theta[j]), None if errors is None else float(errors[j])) for j in places}
    sentences = []
    for verb, sign in (("Prefers", 1.0), ("Avoids", -1.0)):
        ordered = sorted((j for j in places if sign * theta[j] > 0.0), key=lambda j: -sign * theta[j])
        chosen = _list_distinct(ordered, theta)
        if chosen:
            rewards = ", ".join(f"{facts.nouns[j]} ({texts[j]} per km)" for j in chosen)
            sentences.append(f"{verb} {rewards}.")
        elif ordered:
            sentences.append(f"{verb} {len(ordered)} features equally ({texts[ordered[0]]} per km).")
    if errors is not None and used:
        unknown = sum(not np.isfinite(errors[j]) for j in used)
        if unknown:
            verb = "is" if unknown == 1 else "are"
            sentences.append(f"{unknown} of {len(used)} rewards {verb} on a bound or not determined by the trips.")
    return sentences


def _list_distinct(ordered: list[int], theta: FloatArray) -> list[int]:
    """Return the first features, at most three; features with equal rewards (to two digits) are not separated."""
    n = min(_LISTED, len(ordered))
    while 0 < n < len(ordered) and _format_signed(theta[ordered[n - 1]]) == _format_signed(theta[ordered[n]]):
        n -= 1
    return ordered[:n]


def _describe_others(k: int, facts: _StyleFacts, places: list[int]) -> list[str]:
    """Return sentences about the features that are not lengths and whose reward differs from the mean of all styles."""
    sentences, thetas, errors = [], facts.normalised.thetas, facts.normalised.errors
    for j in places:
        overall, name = float(facts.weights @ thetas[:, j]), facts.names[j]
        difference = float(thetas[k, j]) - overall
        if abs(difference) < max(_MATTERS, 0.25 * abs(overall)):
            continue
        if _differs(k, difference, None if errors is None else errors[:, j], facts.weights):
            unit = "per km" if name.startswith("km") else "each"
            text = _format_reward(float(thetas[k, j]), None if errors is None else float(errors[k, j]))
            numbers = f"({text} {unit}, all trips: {_format_signed(overall)})"
            sentences.append(f"{_describe_reward(float(thetas[k, j]), overall, name)} {numbers}.")
    return sentences


def _format_reward(value: float, error: float | None) -> str:
    """Return a signed reward, with its standard error to two significant digits if there is one."""
    if error is None:
        return _format_signed(value)
    digits = max(0, 1 - math.floor(math.log10(error))) if error > 0.0 else 2
    return f"{value:+.{digits}f} ± {error:.{digits}f}".replace("-", "−")


def _describe_reward(theta: float, overall: float, name: str) -> str:
    if abs(theta) < _MATTERS:
        return f"Does not mind {name}" if theta > overall else f"Is indifferent to {name}"
    verb, less = ("Likes", theta < overall) if theta > 0.0 else ("Minds", theta > overall)
    return f"{verb} {name}" + (" less" if less else "")


def _format_signed(value: float) -> str:
    """Return a signed reward with two significant digits; "0" if its absolute value is below 0.005."""
    if abs(value) < 0.005:
        return "0"
    rounded = float(f"{value:.2g}")
    return (f"{rounded:+,.0f}" if abs(rounded) >= 10.0 else f"{rounded:+g}").replace("-", "−")


def _less(noun: str) -> str:
    return f"fewer {noun}" if noun.startswith("km ") else f"less {noun}"
