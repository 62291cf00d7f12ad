"""Rewards normalised to what is identifiable, and driving styles described in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment

from limiirl._typing import FloatArray
from limiirl.errors import InvalidParameter

if TYPE_CHECKING:
    from limiirl.roads.drivers.fit import DriverFit

Groups = Mapping[str, Sequence[int]]

NOT_LENGTHS = ("turns", "extra")
"""Groups of `limiirl.roads.features` whose features do not divide a segment's length."""


@dataclass(frozen=True)
class NormalisedRewards:
    """Rewards of K intents, normalised so that every group of lengths has mean zero.

    Attributes
    ----------
    level : (K,)
        Reward a km, averaged over the kilometres that were driven.
    thetas : (K, d)
        What a km of each feature adds to it; features that are no lengths as they were.
    """

    level: FloatArray
    thetas: FloatArray

    def reward(self, features: ArrayLike, km: ArrayLike) -> FloatArray:
        """Return the rewards (K, n) of segments or trips with features (n, d) and lengths (n,) in km.

        Examples
        --------
        >>> NormalisedRewards(np.array([-2.0]), np.array([[0.5, -0.5]])).reward([[1.0, 0.0], [0.0, 2.0]], [1.0, 2.0])
        array([[-1.5, -5. ]])
        """
        return np.asarray(self.thetas @ np.asarray(features, dtype=np.float64).T) + np.outer(
            self.level, np.asarray(km, dtype=np.float64)
        )


def normalise_rewards(
    thetas: ArrayLike, groups: Groups, km: ArrayLike, *, not_lengths: Sequence[str] = NOT_LENGTHS
) -> NormalisedRewards:
    """Normalise rewards so that the mean of each group over the driven kilometres is zero.

    ``theta'_j = theta_j - c_g`` for feature j of group g, ``c_g = sum_j km_j theta_j / sum_j km_j``, and the level is
    ``sum_g c_g``. The reward of every segment is unchanged: ``theta . phi = theta' . phi + level km``.

    Parameters
    ----------
    thetas : (K, d)
    groups : mapping of a name to indices
        Each of the d features is in one group.
    km : (d,)
        How much of each feature the demonstrations drove in all.
    not_lengths : names
        Of groups that do not divide the length, and stay as they are.

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
        raise InvalidParameter(
            f"km must have one entry per feature, {given.shape[1]}; it has shape {driven.shape}.",
            parameter="km",
            value=driven.shape,
        )
    level = np.zeros(len(given))
    for name, members in groups.items():
        if name in not_lengths:
            continue
        places = list(members)
        weight = driven[places]
        wrong = ~(np.isfinite(weight) & (weight >= 0.0))
        if wrong.any():
            j = places[int(np.argmax(wrong))]
            raise InvalidParameter(
                f"km[{j}] is {driven[j]:g}, but feature {j} is of group {name!r}, which divides a length: give what "
                "was driven of it, or name the group among not_lengths.",
                parameter="km",
                value=float(driven[j]),
                index=j,
            )
        if not weight.sum() > 0.0:
            raise InvalidParameter(
                f"no km were driven of any feature of group {name!r}; its mean is not defined.",
                parameter="km",
                value=name,
            )
        mean = given[:, places] @ (weight / weight.sum())
        given[:, places] -= mean[:, None]
        level += mean
    return NormalisedRewards(level, given)


def match_rewards(first: NormalisedRewards, second: NormalisedRewards, km: ArrayLike) -> NDArray[np.int64]:
    """Return which intent (K,) of the second is most like each of the first, each taken once; -1 where none is left.

    Alike are rewards that differ little on the kilometres that were driven.

    Examples
    --------
    >>> one = NormalisedRewards(np.array([-1.0, -2.0]), np.array([[1.0, -1.0], [0.0, 0.0]]))
    >>> two = NormalisedRewards(np.array([-2.1, -1.0]), np.array([[0.0, 0.0], [0.9, -0.9]]))
    >>> match_rewards(one, two, [1.0, 1.0])
    array([1, 0])
    """
    share = np.abs(np.asarray(km, dtype=np.float64))  # what is no length, such as a climb, may have a negative sum
    share = share / max(float(share.sum()), 1e-300)
    gap = first.thetas[:, None, :] - second.thetas[None, :, :]
    cost = gap**2 @ share + (first.level[:, None] - second.level[None, :]) ** 2
    rows, columns = linear_sum_assignment(cost)
    found = np.full(len(first.level), -1, dtype=np.int64)
    found[rows] = columns
    return found


def check_groups(groups: Groups, d: int) -> None:
    """Every feature is in one group."""
    members = [place for places in groups.values() for place in places]
    if sorted(members) != list(range(d)):
        raise InvalidParameter(
            f"groups must hold each of the {d} features once; they hold {sorted(members)}. Use the groups of the "
            "FeatureChoice with which the MDP was made.",
            parameter="groups",
            value=sorted(members),
        )


# A style stands out where it has a quarter more or a fifth less than all, and three hundredths of its way; what hardly
# anybody drives says nothing.
_MORE, _LESS, _APART, _LEAST_SHARE = 1.25, 0.8, 0.03, 0.02
# Rewards a km that differ by less than this from an average km are not worth a word.
_MATTERS = 0.1


@dataclass(frozen=True)
class StyleDescription:
    """A style in a few words and in some sentences."""

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
    """Say in words how each of K styles differs from all trips together.

    Parameters
    ----------
    normalised : NormalisedRewards
        Normalised rewards.
    mean_features : (K, d)
        Of a style's trips; km, except in the groups `not_lengths`.
    shares : (K,)
        Of the trips.
    feature_names : d texts
        Such as "km of highway".
    groups : mapping of a name to indices

    Examples
    --------
    >>> normalised = NormalisedRewards(np.array([-1.0, -3.0]), np.array([[0.5, -1.0], [-0.2, 0.3]]))
    >>> names, groups = ["km of highway", "km of street"], {"road class": (0, 1)}
    >>> words = describe_styles(normalised, [[8.0, 2.0], [1.0, 3.0]], [0.25, 0.75], names, groups)
    >>> [style.short for style in words]
    ['long trips, more highway, less street', 'short trips, more street, less highway']
    >>> print(words[0].long)
    25 % of the trips. Long ones: 10 km on average, 5.5 km over all. Of its km, 80 % are highway (all: 50 %); less
    street (20 %, all: 50 %). A km costs 1 on average (all: 2.5), so detours matter less to it. Prefers highway (+0.5 a
    km). Avoids street (−1 a km).
    """
    mean, weight = np.asarray(mean_features, dtype=np.float64), np.asarray(shares, dtype=np.float64)
    lengths = [list(places) for name, places in groups.items() if name not in not_lengths]
    others = [list(places) for name, places in groups.items() if name in not_lengths]
    km = mean[:, lengths[0]].sum(axis=1) if lengths else np.full(len(mean), np.nan)
    facts = _StyleFacts(
        normalised, mean, weight / max(float(weight.sum()), 1e-300), km, tuple(feature_names), lengths, others
    )
    return [_describe(k, facts) for k in range(len(mean))]


def describe_fit(fit: DriverFit) -> list[StyleDescription]:
    """Describe the styles of a fit in words, from its own trips and responsibilities.

    Examples
    --------
    >>> from limiirl.roads import City, fit_drivers
    >>> city = City(seed=1, radius_km=0.8)
    >>> demos = city.drive(n_drivers=6, trips_each=4).demos
    >>> fit = fit_drivers(city.network, demos, 2, model="DestinationMaxEnt", features=city.features, by_driver=True)
    >>> len(describe_fit(fit))
    2
    """
    mixture, groups = fit.mixture, fit.features.groups
    mdp = mixture.mdp_.replace(gamma=1.0)
    features, memberships = fit.demos.features(mdp), np.asarray(mixture.responsibilities_)
    mean = memberships.T @ features / np.maximum(memberships.sum(axis=0), 1e-300)[:, None]
    rewards = normalise_rewards(mixture.ensemble_.thetas, groups, features.sum(axis=0))
    return describe_styles(rewards, mean, mixture.ensemble_.weights, mdp.feature_names, groups)


@dataclass(frozen=True)
class _StyleFacts:
    """The numbers of all styles: rewards, mean features, shares, mean km, names of features, groups of either kind."""

    normalised: NormalisedRewards
    mean: FloatArray
    everybody: FloatArray
    km: FloatArray
    full: tuple[str, ...]
    lengths: list[list[int]]
    others: list[list[int]]

    @property
    def names(self) -> list[str]:
        return [_plain(name) for name in self.full]

    @property
    def nouns(self) -> list[str]:
        return [name.removeprefix("km of ") for name in self.full]


def _describe(k: int, facts: _StyleFacts) -> StyleDescription:
    names = facts.names
    short: list[str] = []
    said = [f"{100 * facts.everybody[k]:.0f} % of the trips."]
    if facts.lengths:
        overall = float(facts.everybody @ facts.km)
        ratio = facts.km[k] / overall if overall else 1.0
        size = "Long" if ratio >= _MORE else "Short" if ratio <= _LESS else "Ordinary"
        said.append(f"{size} ones: {facts.km[k]:.3g} km on average, {overall:.3g} km over all.")
        short += [f"{size.lower()} trips"] if size != "Ordinary" else []
        more, less = _use(k, facts)
        nouns = facts.nouns
        short += [f"more {nouns[j]}" for j, _, _ in more[:2]] + [_less(nouns[j]) for j, _, _ in less[:1]]
        parts = []
        if more:
            parts.append("Of its km, " + " and ".join(f"{a:.0%} are {names[j]} (all: {b:.0%})" for j, a, b in more[:3]))
        if less:
            parts.append(" and ".join(f"{_less(nouns[j])} ({a:.0%}, all: {b:.0%})" for j, a, b in less[:2]))
        if parts:
            sentence = "; ".join(parts)
            said.append(f"{sentence[0].upper()}{sentence[1:]}.".replace("%", " %"))
        said += _cost(float(facts.normalised.level[k]), float(facts.everybody @ facts.normalised.level))
    said += _tastes(facts.normalised.thetas[k], facts.mean[k], facts.nouns, facts.lengths)
    said += [word for places in facts.others for word in _beside(k, facts, places)]
    return StyleDescription(", ".join(short) or "like all trips", " ".join(said))


def _cost(level: float, overall: float) -> list[str]:
    """What an average km costs, where that is unlike the others by more than rounding."""
    if abs(level - overall) < _MATTERS or abs(overall) < _MATTERS or _LESS < level / overall < _MORE:
        return []
    so = "so it minds detours" if level / overall >= _MORE else "so detours matter less to it"
    return [f"A km costs {-level:.3g} on average (all: {-overall:.3g}), {so}."]


def _use(k: int, facts: _StyleFacts) -> tuple[list[tuple[int, float, float]], list[tuple[int, float, float]]]:
    """Return the features that a style's trips use more than all do, and less, most telling first: place and shares."""
    share = facts.mean[k] / max(float(facts.km[k]), 1e-300)
    overall = (facts.everybody @ facts.mean) / max(float(facts.everybody @ facts.km), 1e-300)
    places = [j for group in facts.lengths for j in group if max(share[j], overall[j]) >= _LEAST_SHARE]
    more = [j for j in places if share[j] >= max(_MORE * overall[j], overall[j] + _APART)]
    less = [j for j in places if share[j] <= min(_LESS * overall[j], overall[j] - _APART)]
    rising = sorted(more, key=lambda j: overall[j] - share[j])
    falling = sorted(less, key=lambda j: share[j] - overall[j])
    sides = [[(j, float(share[j]), float(overall[j])) for j in side] for side in (rising, falling)]
    return sides[0], sides[1]


def _tastes(theta: FloatArray, mean: FloatArray, names: Sequence[str], lengths: list[list[int]]) -> list[str]:
    """What the rewards prefer and avoid, among features that the style's own trips drive."""
    total = max((float(mean[group].sum()) for group in lengths), default=0.0)
    places = [j for group in lengths for j in group if mean[j] >= _LEAST_SHARE * total and abs(theta[j]) >= _MATTERS]
    liked = sorted((j for j in places if theta[j] > 0.0), key=lambda j: -theta[j])[:3]
    shunned = sorted((j for j in places if theta[j] < 0.0), key=lambda j: theta[j])[:3]
    said = []
    for verb, chosen in (("Prefers", liked), ("Avoids", shunned)):
        if chosen:
            said.append(f"{verb} " + ", ".join(f"{names[j]} ({_signed(theta[j])} a km)" for j in chosen) + ".")
    return said


def _beside(k: int, facts: _StyleFacts, places: list[int]) -> list[str]:
    """What a style minds more or less than others, of features that divide no length."""
    said, thetas = [], facts.normalised.thetas
    for j in places:
        overall = float(facts.everybody @ thetas[:, j])
        if abs(thetas[k, j] - overall) >= max(_MATTERS, 0.25 * abs(overall)):
            unit = "a km" if facts.full[j].startswith("km") else "each"
            numbers = f"({_signed(thetas[k, j])} {unit}, all: {_signed(overall)})"
            said.append(f"{_verdict(float(thetas[k, j]), overall, facts.full[j])} {numbers}.")
    return said


def _verdict(theta: float, overall: float, name: str) -> str:
    """Return a reward beside that of all, as words; one of less than `_MATTERS` is neither liked nor minded."""
    if abs(theta) < _MATTERS:
        return f"Does not mind {name}" if theta > overall else f"Is indifferent to {name}"
    verb, less = ("Likes", theta < overall) if theta > 0.0 else ("Minds", theta > overall)
    return f"{verb} {name}" + (" less" if less else "")


def _signed(value: float) -> str:
    """Return a reward with its sign and two digits, and what is nothing at two decimals as 0.

    Examples
    --------
    >>> _signed(-2.2e-15), _signed(-0.707), _signed(4.0), _signed(-123.4)
    ('0', '−0.71', '+4', '−120')
    """
    if abs(value) < 0.005:
        return "0"
    rounded = float(f"{value:.2g}")
    return (f"{rounded:+,.0f}" if abs(rounded) >= 10.0 else f"{rounded:+g}").replace("-", "−")


def _less(noun: str) -> str:
    """Return less of a feature, as words.

    Examples
    --------
    >>> _less("highway"), _less("km in centre")
    ('less highway', 'fewer km in centre')
    """
    return f"fewer {noun}" if noun.startswith("km ") else f"less {noun}"


def _plain(name: str) -> str:
    """Return a feature's name as it stands in a sentence.

    Examples
    --------
    >>> _plain("km of highway"), _plain("km in centre"), _plain("left turns")
    ('highway', 'in centre', 'left turns')
    """
    return name.removeprefix("km ").removeprefix("of ")
