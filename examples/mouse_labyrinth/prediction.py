"""Does a mouse's mixture of intents tell how it was kept? Leave one mouse out, with an exact p-value.

Whoever is left out is predicted by the nearer of the two group means of the others. How likely is such a success by
chance? Every way to give the same number of labels to the mice is tried: if labels had nothing to do with behaviour,
each was as likely as the one that happened. No tuning, no distribution assumed.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

Float = NDArray[np.float64]
Bool = NDArray[np.bool_]


@dataclass(frozen=True)
class Prediction:
    """How well labels of M mice were predicted, each from the others.

    Attributes
    ----------
    name : str
        What they were predicted from.
    predicted, labels : (M,) bool
    p_exact : float
        The share of all labelings that are predicted as well or better.
    p_majority : float
        The chance to do so by saying the more frequent label with its frequency, mouse by mouse (binomial).
    n_labelings : int
    """

    name: str
    predicted: Bool
    labels: Bool
    p_exact: float
    p_majority: float
    n_labelings: int

    @property
    def n_right(self) -> int:
        """How many were predicted right."""
        return int(np.sum(self.predicted == self.labels))


def labelings(n: int, n_true: int) -> Bool:
    """Return all ways (C(n, n_true), n) to label n_true of n mice."""
    chosen = np.array(list(combinations(range(n), n_true)), dtype=np.int64).reshape(-1, n_true)
    found = np.zeros((len(chosen), n), dtype=bool)
    np.put_along_axis(found, chosen, True, axis=1)
    return found


def left_out(points: Float, labels: Bool) -> Bool:
    """Return (P, M), what each mouse is predicted to be under each of P labelings (P, M) of the others.

    Parameters
    ----------
    points : (M, M, m)
        points[i] are the coordinates of all mice as they look without mouse i.
    """
    n = len(points)
    found = np.zeros(labels.shape, dtype=bool)
    for i in range(n):
        others = np.arange(n) != i
        own = labels[:, others].astype(np.float64)
        n_true = own.sum(axis=1, keepdims=True)
        with np.errstate(invalid="ignore"):  # a group of one, left out, has no mean: the other is said
            true = own @ points[i][others] / n_true
            false = (1.0 - own) @ points[i][others] / (n - 1.0 - n_true)
        distance = [np.sum((points[i][i] - centre) ** 2, axis=1) for centre in (false, true)]
        found[:, i] = np.where(np.isnan(distance[0]), True, distance[1] < distance[0])
    return found


def predict(name: str, points: ArrayLike, labels: ArrayLike) -> Prediction:
    """Predict every mouse from the others, and compare with every other labeling.

    Parameters
    ----------
    points : (M, m), or (M, M, m) where coordinates depend on who is left out
    labels : (M,) bool
    """
    truth, given = np.asarray(labels, dtype=bool), np.asarray(points, dtype=np.float64)
    n = truth.size
    seen = np.broadcast_to(given, (n, *given.shape)) if given.ndim == 2 else given
    every = labelings(n, int(truth.sum()))
    right = np.sum(left_out(seen, every) == every, axis=1)
    predicted = left_out(seen, truth[None])[0]
    n_right = int(np.sum(predicted == truth))
    most = max(truth.mean(), 1.0 - truth.mean())
    p_majority = float(stats.binomtest(n_right, n, most, alternative="greater").pvalue)
    return Prediction(name, predicted, truth, float(np.mean(right >= n_right)), p_majority, len(every))


def rank_test(values: ArrayLike, labels: ArrayLike) -> tuple[float, float]:
    """Return the chance that a labelled mouse has the larger value of two (AUC), and the exact two-sided p-value."""
    x, truth = np.asarray(values, dtype=np.float64), np.asarray(labels, dtype=bool)
    found = stats.mannwhitneyu(x[truth], x[~truth], method="exact")
    return float(found.statistic) / float(truth.sum() * (~truth).sum()), float(found.pvalue)
