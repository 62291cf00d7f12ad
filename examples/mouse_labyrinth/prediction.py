"""Leave-one-out prediction of labels by the nearest centroid, with an exact permutation p-value.

Under the null hypothesis all labelings with the same number of labels are equally likely; all of them are tried. Chance
does not give half right: if the two means nearly coincide, leaving a mouse out moves the mean of its own group away
from it. `Prediction.by_chance` is the usual range.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from limiirl.errors import InvalidParameter

Float = NDArray[np.float64]
Bool = NDArray[np.bool_]

LEVEL = 0.01
"""Significance level of all tests."""

MOST_LABELINGS = 1_000_000
"""Maximum number of labelings; 22 mice in two groups of 11 have 705,432."""


@dataclass(frozen=True)
class Prediction:
    """Predictions of the labels of M mice, each from the others.

    Attributes
    ----------
    name : str
        Name of the predictor.
    predicted, labels : (M,) bool
    by_chance : (int, int)
        Number right in the middle 90 % of all labelings.
    p_exact : float
        Fraction of all labelings that are predicted as well or better.
    n_labelings : int
    p_within : float
        The same fraction among the labelings with the same number of labels per stratum.
    n_within : int
        Number of those; 1 / n_within is the smallest possible `p_within`.
    """

    name: str
    predicted: Bool
    labels: Bool
    by_chance: tuple[int, int]
    p_exact: float
    n_labelings: int
    p_within: float
    n_within: int

    @property
    def n_right(self) -> int:
        """Number of correct predictions."""
        return int(np.sum(self.predicted == self.labels))


def labelings(n: int, n_true: int) -> Bool:
    """Return all labelings (C(n, n_true), n) with n_true of n labels true."""
    if comb(n, n_true) > MOST_LABELINGS:
        raise InvalidParameter(
            f"{n_true} of {n} can be labelled in {comb(n, n_true):.2g} ways; at most {MOST_LABELINGS:,} are all tried. "
            "Leave animals out, or compare with labelings drawn at random."
        )
    chosen = np.array(list(combinations(range(n), n_true)), dtype=np.int64).reshape(-1, n_true)
    result = np.zeros((len(chosen), n), dtype=bool)
    np.put_along_axis(result, chosen, True, axis=1)
    return result


def predict_left_out(points: Float, labels: Bool) -> Bool:
    """Return the predictions (P, M) of each mouse under P labelings (P, M) of the others.

    Parameters
    ----------
    points : (M, M, m)
        points[i] are the coordinates of all mice as they look without mouse i.
    """
    n = len(points)
    result = np.zeros(labels.shape, dtype=bool)
    for i in range(n):
        others = np.arange(n) != i
        own = labels[:, others].astype(np.float64)
        n_true = own.sum(axis=1, keepdims=True)
        with np.errstate(invalid="ignore"):  # a group of one has no mean: predict the other
            true = own @ points[i][others] / n_true
            false = (1.0 - own) @ points[i][others] / (n - 1.0 - n_true)
        distance = [np.sum((points[i][i] - centre) ** 2, axis=1) for centre in (false, true)]
        result[:, i] = np.where(np.isnan(distance[0]), True, distance[1] < distance[0])
    return result


def predict(name: str, points: ArrayLike, labels: ArrayLike, strata: ArrayLike | None = None) -> Prediction:
    """Predict every mouse from the others, and compare with every other labeling.

    Parameters
    ----------
    points : (M, m), or (M, M, m) where coordinates depend on who is left out
    labels : (M,) bool
    strata : (M,), optional
        Strata, such as the batch of each mouse.
    """
    truth, given = two_groups(labels), np.asarray(points, dtype=np.float64)
    n = truth.size
    seen = np.broadcast_to(given, (n, *given.shape)) if given.ndim == 2 else given
    every = labelings(n, int(truth.sum()))
    right = np.sum(predict_left_out(seen, every) == every, axis=1)
    predicted = predict_left_out(seen, truth[None])[0]
    as_well = right >= np.sum(predicted == truth)
    stratum = np.zeros(n) if strata is None else np.asarray(strata)
    low, high = np.quantile(right, [0.05, 0.95], method="inverted_cdf").tolist()
    own = [stratum == value for value in np.unique(stratum)]
    within = np.all([every[:, mice].sum(axis=1) == truth[mice].sum() for mice in own], axis=0)
    return Prediction(
        name,
        predicted,
        truth,
        (int(low), int(high)),
        float(as_well.mean()),
        len(every),
        float(as_well[within].mean()),
        int(within.sum()),
    )


def compare(one: Prediction, other: Prediction) -> tuple[int, int, float]:
    """Return how many mice only the one has right, how many only the other, and McNemar's exact two-sided p-value.

    The test assumes independent mice, which leave-one-out predictions are not quite.
    """
    a, b = one.predicted == one.labels, other.predicted == other.labels
    only, less = int(np.sum(a & ~b)), int(np.sum(b & ~a))
    return only, less, float(stats.binomtest(only, only + less).pvalue) if only + less else 1.0


def rank_test(values: ArrayLike, labels: ArrayLike) -> tuple[float, float]:
    """Return the chance that a labelled mouse has the larger value of two (AUC), and the exact two-sided p-value."""
    x, truth = np.asarray(values, dtype=np.float64), two_groups(labels)
    result = stats.mannwhitneyu(x[truth], x[~truth], method="exact")
    return float(result.statistic) / float(truth.sum() * (~truth).sum()), float(result.pvalue)


def two_groups(labels: ArrayLike) -> Bool:
    """Return labels (M,), which must contain both values."""
    truth = np.asarray(labels, dtype=bool)
    if truth.all() or not truth.any():
        group = "none" if truth.size and not truth.any() else "all"
        raise InvalidParameter(
            f"labels must name two groups; {group} of the {truth.size} are true. Add animals of the other group."
        )
    return truth
