"""The directions in reward space that no demonstration can tell apart.

A direction v is null if v . F(tau) is the same for every trajectory: moving theta along it multiplies all weights
alike. Then the covariance of F has v in its null space, whatever theta is. Three groups of indicators that each sum
to a road's length, say, leave two such directions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
# Relative to unit variance of each feature; rounding in the covariance leaves about 1e-13.
_NULL = 1e-10


def null_directions(covariance: Float) -> Float:
    """Return an orthonormal basis (m, d) of the directions in which the path features do not vary.

    Features are first scaled to unit variance, so that metres and kilometres give the same answer.

    Examples
    --------
    >>> null_directions(np.array([[1.0, 1.0], [1.0, 1.0]])).round(3)
    array([[ 0.707, -0.707]])
    """
    variance = np.diag(covariance)
    constant = variance <= _NULL * max(float(np.max(variance, initial=0.0)), np.finfo(float).tiny)
    scale = np.where(constant, 1.0, np.sqrt(np.where(constant, 1.0, variance)))
    correlation = covariance / np.outer(scale, scale)
    correlation[constant] = correlation[:, constant] = 0.0
    values, vectors = np.linalg.eigh(correlation)
    found = (vectors[:, values <= _NULL * covariance.shape[0]] / scale[:, None]).T
    if not found.size:
        return np.empty((0, covariance.shape[0]))
    basis = np.linalg.svd(found, full_matrices=False)[2]
    # The sign of a direction means nothing; the largest entry is made positive, so that the answer is always the same.
    largest = basis[np.arange(basis.shape[0]), np.argmax(np.abs(basis), axis=1)]
    return np.asarray(basis * np.sign(largest)[:, None])


def describe(directions: Float, names: Sequence[str], most: int = 4) -> str:
    """Say in words which features a set of null directions involves.

    Examples
    --------
    >>> describe(np.array([[0.6, 0.0, -0.8]]), ["length", "toll", "time"])
    '1 of 3 directions in reward space cannot be identified; it involves time, length'
    """
    involved = np.linalg.norm(directions, axis=0)
    order = [j for j in np.argsort(-involved, kind="stable") if involved[j] > 1e-6]
    listed = ", ".join(names[j] for j in order[:most]) + (f" and {len(order) - most} more" if len(order) > most else "")
    subject = "it involves" if directions.shape[0] == 1 else "they involve"
    of = f"{directions.shape[0]} of {directions.shape[1]}"
    return f"{of} directions in reward space cannot be identified; {subject} {listed}"
