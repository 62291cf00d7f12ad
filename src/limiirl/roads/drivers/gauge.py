"""Rewards in a fixed gauge: what is learned of a road's class, its speed and its region can be moved among the three.

Each group of features divides the same length: its features sum to a segment's km. Add c to all weights of one group
and take c from all of another, and no segment's reward changes, so a plot of the weights as they are compares what the
data do not tell apart. In the gauge used here, each group's weights have mean zero over the kilometres that were
driven, and what was taken off them all is a level: the reward of an average driven kilometre.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment

from limiirl.errors import InvalidParameter

Float = NDArray[np.float64]
Groups = Mapping[str, Sequence[int]]

NOT_LENGTHS = ("turns", "extra")
"""Groups of `limiirl.roads.features` whose features do not divide a segment's length."""


@dataclass(frozen=True)
class Gauged:
    """Rewards of K intents in the fixed gauge.

    Attributes
    ----------
    level : (K,)
        Reward a km, averaged over the kilometres that were driven.
    thetas : (K, d)
        What a km of each feature adds to it; features that are no lengths as they were.
    """

    level: Float
    thetas: Float

    def reward(self, features: ArrayLike, km: ArrayLike) -> Float:
        """Return the rewards (K, n) of segments or trips with features (n, d) and lengths (n,) in km.

        Examples
        --------
        >>> Gauged(np.array([-2.0]), np.array([[0.5, -0.5]])).reward([[1.0, 0.0], [0.0, 2.0]], [1.0, 2.0])
        array([[-1.5, -5. ]])
        """
        return np.asarray(self.thetas @ np.asarray(features, dtype=np.float64).T) + np.outer(
            self.level, np.asarray(km, dtype=np.float64)
        )


def fixed_gauge(
    thetas: ArrayLike, groups: Groups, km: ArrayLike, *, not_lengths: Sequence[str] = NOT_LENGTHS
) -> Gauged:
    """Return rewards moved into the gauge in which each group's mean over the driven kilometres is zero.

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
    >>> gauged = fixed_gauge([[-1.0, -3.0, -5.0, -1.0]], {"road class": (0, 1), "region": (2, 3)}, [1, 1, 1, 3])
    >>> gauged.level, gauged.thetas
    (array([-4.]), array([[ 1., -1., -3.,  1.]]))
    """
    given = np.atleast_2d(np.array(thetas, dtype=np.float64))
    driven = np.asarray(km, dtype=np.float64)
    check_groups(groups, given.shape[1])
    if driven.shape != given.shape[1:]:
        raise InvalidParameter(f"km must have one entry a feature, {given.shape[1]}; it has shape {driven.shape}.")
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
                "was driven of it, or name the group among not_lengths."
            )
        if not weight.sum() > 0.0:
            raise InvalidParameter(f"no km were driven of any feature of group {name!r}; its mean is not defined.")
        mean = given[:, places] @ (weight / weight.sum())
        given[:, places] -= mean[:, None]
        level += mean
    return Gauged(level, given)


def matched(first: Gauged, second: Gauged, km: ArrayLike) -> NDArray[np.int64]:
    """Return which intent (K,) of the second is most like each of the first, each taken once; -1 where none is left.

    Alike are rewards that differ little on the kilometres that were driven.

    Examples
    --------
    >>> one = Gauged(np.array([-1.0, -2.0]), np.array([[1.0, -1.0], [0.0, 0.0]]))
    >>> two = Gauged(np.array([-2.1, -1.0]), np.array([[0.0, 0.0], [0.9, -0.9]]))
    >>> matched(one, two, [1.0, 1.0])
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
            "FeatureChoice with which the MDP was made."
        )
