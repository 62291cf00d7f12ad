"""Leave-one-out prediction of labels by the nearest centroid, with an exact permutation p-value.

Under the null hypothesis all labelings with the same number of true labels are equally likely; all of them are
enumerated. By chance, fewer than half of the predictions may be correct: if the two means nearly coincide, leaving a
mouse out moves the mean of its own group away from it. `Prediction.by_chance` is the range to expect.
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
"""Maximum number of labelings to enumerate; 22 mice in two groups of 11 have 705,432 labelings."""


@dataclass(frozen=True)
class Prediction:
    """Leave-one-out predictions of the labels of M mice.

    Attributes
    ----------
    name : str
        Name of the predictor.
    predicted, labels : (M,) bool
    by_chance : (int, int)
        Range of the number of correct predictions over the middle 90 % of all labelings.
    p_exact : float
        Fraction of all labelings that are predicted at least as well as `labels`.
    n_labelings : int
    p_within : float
        The same fraction among the labelings that preserve the number of true labels in each stratum.
    n_within : int
        Number of labelings that preserve the strata; 1 / n_within is the smallest possible `p_within`.
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
            f"There are {comb(n, n_true):.2g} labelings with {n_true} of {n} labels true; at most {MOST_LABELINGS:,} "
            "can be enumerated. Exclude animals, or compare with random labelings."
        )
    chosen = np.array(list(combinations(range(n), n_true)), dtype=np.int64).reshape(-1, n_true)
    result = np.zeros((len(chosen), n), dtype=bool)
    np.put_along_axis(result, chosen, True, axis=1)
    return result


def predict_left_out(points: Float, labels: Bool) -> Bool:
    """Predict each mouse from the labels of the others, for each of P labelings (P, M); return the predictions (P, M).

    Parameters
    ----------
    points : (M, M, m)
        points[i] are the coordinates of all mice, computed without mouse i.
    """
    n = len(points)
    result = np.zeros(labels.shape, dtype=bool)
    for i in range(n):
        others = np.arange(n) != i
        own = labels[:, others].astype(np.float64)
        n_true = own.sum(axis=1, keepdims=True)
        with np.errstate(invalid="ignore"):  # without other members a group has no mean: predict the other group
            true = own @ points[i][others] / n_true
            false = (1.0 - own) @ points[i][others] / (n - 1.0 - n_true)
        distance = [np.sum((points[i][i] - centre) ** 2, axis=1) for centre in (false, true)]
        result[:, i] = np.where(np.isnan(distance[0]), True, distance[1] < distance[0])
    return result


def predict(name: str, points: ArrayLike, labels: ArrayLike, strata: ArrayLike | None = None) -> Prediction:
    """Predict the label of every mouse from the others, and compare the accuracy with that of all labelings.

    Parameters
    ----------
    points : (M, m), or (M, M, m) if the coordinates depend on the mouse that is left out
    labels : (M,) bool
    strata : (M,), optional
        Stratum of each mouse, such as its batch.
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
    """Compare two predictors with McNemar's exact two-sided test.

    Return the number of mice that only `one` predicts correctly, the number that only `other` predicts correctly, and
    the p-value. The test assumes independent predictions; leave-one-out predictions are only approximately independent.
    """
    a, b = one.predicted == one.labels, other.predicted == other.labels
    only, less = int(np.sum(a & ~b)), int(np.sum(b & ~a))
    return only, less, float(stats.binomtest(only, only + less).pvalue) if only + less else 1.0


def rank_test(values: ArrayLike, labels: ArrayLike) -> tuple[float, float]:
    """Return the AUC of one value per mouse, and the exact two-sided p-value of the Mann-Whitney test."""
    x, truth = np.asarray(values, dtype=np.float64), two_groups(labels)
    result = stats.mannwhitneyu(x[truth], x[~truth], method="exact")
    return float(result.statistic) / float(truth.sum() * (~truth).sum()), float(result.pvalue)


def two_groups(labels: ArrayLike) -> Bool:
    """Return the labels as booleans (M,); raise an error unless both values occur."""
    truth = np.asarray(labels, dtype=bool)
    if truth.all() or not truth.any():
        group = "none" if truth.size and not truth.any() else "all"
        raise InvalidParameter(
            f"labels must contain both groups; {group} of the {truth.size} are true. Add animals of the other group."
        )
    return truth
