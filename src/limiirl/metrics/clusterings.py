"""Normalised information distance between soft or hard clusterings, and its adjustment for chance.

Paper: section "Clustering Performance" and its appendix "ANID metric". Let I be the mutual information of the joint
distribution ``P = U^T V / N``, and H the larger of its two marginal entropies. Then ``NID = 1 - I / H`` and
``ANID = 1 - (I - E[I]) / (H - E[I])``, where the expectation is over random clusterings of the same shape.
"""

from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln, xlogy

from limiirl._typing import FloatArray
from limiirl._validation import check_choice, check_each, to_array
from limiirl.errors import InvalidParameter

_TOLERANCE = 1e-8
# Smaller values of information are rounding errors.
_ZERO = 1e-12
# Step sizes of the trapezoid rule in log s and of the double exponential rule; halving them changes E[I] by < 1e-13.
_LOG_STEP, _BETA_STEP = 0.1, 0.1


def nid(U: ArrayLike, V: ArrayLike) -> float:
    """Return the normalised information distance (NID) ``1 - I(U, V) / max(H(U), H(V))``, in [0, 1].

    Two clusterings with a single cluster each have distance 0. A soft clustering has a positive distance from itself.

    Parameters
    ----------
    U, V : (N, K) responsibilities or (N,) integer labels
        Rows are distributions over clusters.

    Examples
    --------
    >>> nid([0, 0, 1, 1], [5, 5, 3, 3]), nid([0, 0, 1, 1], [0, 1, 0, 1])
    (0.0, 1.0)
    """
    information, entropy = _compute_information(*_check_pair(U, V))
    return 0.0 if entropy <= _ZERO else 1.0 - information / entropy


def anid(U: ArrayLike, V: ArrayLike, *, null: Literal["dirichlet", "hypergeometric"] = "dirichlet") -> float:
    """Return the adjusted normalised information distance (ANID): 0 for equal labels, about 1 for random labels.

    If H <= E[I], no adjustment is possible; the distance is then 0 if I = 0, and `nid` otherwise.

    Parameters
    ----------
    U, V : (N, K) responsibilities or (N,) integer labels
        Rows are distributions over clusters; empty columns count as clusters in the null model.
    null : "dirichlet" or "hypergeometric"
        Null model: rows drawn from Dirichlet(1/K, ..., 1/K), as in the paper; or permuted hard labels, as in
        scikit-learn's `adjusted_mutual_info_score`.

    Examples
    --------
    >>> truth = np.repeat([0, 1, 2], 30)
    >>> anid(truth, (truth + 1) % 3)
    0.0
    >>> soft = 0.9 * np.eye(3)[truth] + 0.1 / 3
    >>> round(anid(truth, soft), 3), round(anid(soft, soft), 3), anid(truth, hard_labels(soft))
    (0.266, 0.428, 0.0)
    """
    check_choice(null, "null", ("dirichlet", "hypergeometric"))
    rows, columns = _check_pair(U, V)
    information, entropy = _compute_information(rows, columns)
    if null == "dirichlet":
        expected = expected_information(len(rows), rows.shape[1], columns.shape[1])
    else:
        expected = _hypergeometric_information(rows, columns)
    if entropy - expected > _ZERO:
        return (entropy - information) / (entropy - expected)
    return 0.0 if information <= _ZERO else 1.0 - information / entropy


def hard_labels(U: ArrayLike) -> FloatArray:
    """Return one-hot labels (N, K) of the largest responsibility in each row, or of the first one if several are equal.

    Examples
    --------
    >>> hard_labels([[0.2, 0.8], [0.5, 0.5]])
    array([[0., 1.],
           [1., 0.]])
    """
    rows = _check_responsibilities(U, "U")
    return np.asarray(np.eye(rows.shape[1])[np.argmax(rows, axis=1)])


@lru_cache(maxsize=4096)
def expected_information(n: int, k1: int, k2: int) -> float:
    """Return E[I] of two independent clusterings of n items with Dirichlet(1/K, ..., 1/K) rows.

    By exchangeability, E[I] is ``K1 K2 h(uv) - K1 h(u) - K2 h(v)``, where u ~ Beta(1/K1, 1 - 1/K1), v likewise, and
    ``h(x) = E[X log X]`` for the mean X of n independent copies of x. With ``log x = int (e^-s - e^-sx) ds / s`` and
    the Laplace transform l(z) = E e^-zx, ``h = int (E[x] e^-s + l'(s/n) l(s/n)^(n-1)) ds / s``; the trapezoidal rule in
    the variable log s is accurate to twelve digits. For large n, E[I] tends to ``(K1 - 1)(K2 - 1) / (8 n)`` (delta
    method).
    """
    if k1 > k2:
        return expected_information(n, k2, k1)  # bitwise symmetric
    if k1 == 1 or n == 1:
        return 0.0
    (u, weight_u), (v, weight_v) = _beta_nodes(k1), _beta_nodes(k2)
    log_s = np.arange(-36.0, 36.0, _LOG_STEP)
    z = np.exp(log_s) / n
    l_minus_1, gradient = _laplace(z, v, weight_v)
    h_v = _integrate(n, log_s, 1.0 / k2, l_minus_1, gradient)
    l_minus_1_u, gradient_u = _laplace(z, u, weight_u)
    h_u = _integrate(n, log_s, 1.0 / k1, l_minus_1_u, gradient_u)
    l_minus_1, gradient = np.zeros(z.size), np.zeros(z.size)
    for node, weight in zip(v, weight_v, strict=True):
        l_minus_1_u, gradient_u = _laplace(z * node, u, weight_u)
        l_minus_1 += weight * l_minus_1_u
        gradient += weight * node * gradient_u
    return float(k1 * k2 * _integrate(n, log_s, 1.0 / (k1 * k2), l_minus_1, gradient) - k1 * h_u - k2 * h_v)


def _beta_nodes(k: int) -> tuple[FloatArray, FloatArray]:
    """Return quadrature nodes and weights for Beta(1/k, 1 - 1/k): the double exponential rule x = expit(pi sinh t).

    The nodes cluster at both singular ends, so that e^-zx is integrated accurately for all z.
    """
    a = 1.0 / k
    left, right = (np.arcsinh(40.0 / (np.pi * power)) for power in (a, 1.0 - a))
    t = np.arange(-left, right + _BETA_STEP, _BETA_STEP)
    bend = np.pi * np.sinh(t)
    log_x, log_rest = -np.logaddexp(0.0, -bend), -np.logaddexp(0.0, bend)
    scale = gammaln(a) + gammaln(1.0 - a)
    weights = _BETA_STEP * np.pi * np.cosh(t) * np.exp(a * log_x + (1.0 - a) * log_rest - scale)
    return np.exp(log_x), weights / weights.sum()


def _laplace(z: FloatArray, x: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return l(z) - 1, accurate for small z, and -l'(z)."""
    power = np.expm1(-np.outer(z, x))
    return power @ weights, (power + 1.0) @ (weights * x)


def _integrate(n: int, log_s: FloatArray, mean: float, l_minus_1: FloatArray, gradient: FloatArray) -> float:
    """Integrate E[X log X] from l - 1 and -l' at the points s / n."""
    # l may round to 0 for large z.
    with np.errstate(divide="ignore"):
        power = np.exp((n - 1) * np.log1p(np.maximum(l_minus_1, -1.0)))
    return float(_LOG_STEP * np.sum(mean * np.exp(-np.exp(log_s)) - power * gradient))


def _hypergeometric_information(rows: FloatArray, columns: FloatArray) -> float:
    """Return E[I] under random permutations of the labels."""
    from sklearn.metrics.cluster import expected_mutual_information

    for name, values in (("U", rows), ("V", columns)):
        soft = np.flatnonzero((np.abs(values - np.rint(values)) > _TOLERANCE).any(axis=1))
        if soft.size:
            i = int(soft[0])
            remedy = f"Pass hard_labels({name}), or null='dirichlet'."
            rule = "must be a hard label for null='hypergeometric'"
            raise InvalidParameter.of(name, values[i].tolist(), rule, index=i, remedy=remedy)
    table = np.rint(rows.T @ columns).astype(np.int64)
    table = table[table.any(axis=1)][:, table.any(axis=0)]
    return float(expected_mutual_information(table, len(rows)))


def _compute_information(rows: FloatArray, columns: FloatArray) -> tuple[float, float]:
    """Return I(U, V) and max(H(U), H(V)) of two clusterings."""
    joint = rows.T @ columns / len(rows)
    h_rows, h_columns = (-float(xlogy(p, p).sum()) for p in (rows.mean(axis=0), columns.mean(axis=0)))
    information = h_rows + h_columns + float(xlogy(joint, joint).sum())
    # Clip rounding errors.
    return min(max(information, 0.0), h_rows, h_columns), max(h_rows, h_columns, 0.0)


def _check_pair(U: ArrayLike, V: ArrayLike) -> tuple[FloatArray, FloatArray]:
    rows, columns = _check_responsibilities(U, "U"), _check_responsibilities(V, "V")
    if len(rows) != len(columns):
        raise InvalidParameter.of("V", len(columns), f"must have as many rows as U, {len(rows)}")
    return rows, columns


def _check_responsibilities(values: ArrayLike, name: str) -> FloatArray:
    """Validate responsibilities (N, K); labels (N,) are converted to one-hot responsibilities."""
    array = to_array(values, name)
    if array.ndim == 1 and array.size and array.dtype.kind in "iu":
        distinct, index = np.unique(array, return_inverse=True)
        return np.eye(distinct.size)[index]
    if array.ndim != 2 or 0 in array.shape or array.dtype.kind not in "biuf":
        rule = "must be responsibilities (N, K) or integer labels (N,) with N >= 1"
        raise InvalidParameter.of(name, (array.shape, str(array.dtype)), rule)
    rows = array.astype(np.float64)
    good = (rows >= 0.0).all(axis=1) & (np.abs(rows.sum(axis=1) - 1.0) <= _TOLERANCE)
    check_each(good, rows, name, "must contain probabilities that sum to 1", remedy="Divide each row by its sum.")
    return rows
