"""Normalised information distance between two clusterings, soft or hard, and its adjustment for chance.

Paper: section "Clustering Performance" and its appendix "ANID metric". With the joint distribution ``P = U^T V / N``,
its mutual information I and the larger H of the two marginal entropies, ``NID = 1 - I / H`` and
``ANID = 1 - (I - E[I]) / (H - E[I])``, where the expectation is over random clusterings of the same size.
"""

from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln, xlogy

from limiirl._typing import FloatArray
from limiirl.errors import InvalidParameter

_TOLERANCE = 1e-8
# Information below this is rounding.
_NOTHING = 1e-12
# Trapezoid steps: in log s, and in the variable of the double exponential rule for Beta variables. Halving either
# changes the expectation by less than 1e-13.
_LOG_STEP, _BETA_STEP = 0.1, 0.1


def nid(U: ArrayLike, V: ArrayLike) -> float:
    """Return the max-normalised information distance ``1 - I(U, V) / max(H(U), H(V))``, in [0, 1].

    Two clusterings without any entropy, each with a single cluster in use, are at distance 0. A soft clustering is at
    a positive distance from itself, because its memberships say less than labels would.

    Parameters
    ----------
    U, V : (N, K) responsibilities or (N,) integer labels
        Rows are distributions over clusters. Labels stand for as many clusters as there are distinct ones.

    Examples
    --------
    >>> nid([0, 0, 1, 1], [5, 5, 3, 3]), nid([0, 0, 1, 1], [0, 1, 0, 1])
    (0.0, 1.0)
    """
    information, entropy = _information(*_pair(U, V))
    return 0.0 if entropy <= _NOTHING else 1.0 - information / entropy


def anid(U: ArrayLike, V: ArrayLike, *, null: Literal["dirichlet", "hypergeometric"] = "dirichlet") -> float:
    """Return the adjusted max-normalised information distance: 0 for equal labels, about 1 for chance, or beyond.

    Where chance alone is expected to share as much information as there is, nothing can be adjusted: the distance is
    then 0 if nothing is shared, else that of `nid`.

    Parameters
    ----------
    U, V : (N, K) responsibilities or (N,) integer labels
        Rows are distributions over clusters; a column without mass still counts as a cluster for the null. Labels
        stand for as many clusters as there are distinct ones.
    null : "dirichlet" or "hypergeometric"
        The random clusterings: rows drawn from Dirichlet(1/K, ..., 1/K), the paper's; or all ways to deal out labels
        with the numbers given, for hard clusterings, as in scikit-learn's `adjusted_mutual_info_score`.

    Examples
    --------
    >>> truth = np.repeat([0, 1, 2], 30)
    >>> anid(truth, (truth + 1) % 3)
    0.0
    >>> soft = 0.9 * np.eye(3)[truth] + 0.1 / 3
    >>> round(anid(truth, soft), 3), round(anid(soft, soft), 3), anid(truth, hard_labels(soft))
    (0.266, 0.428, 0.0)
    """
    rows, columns = _pair(U, V)
    information, entropy = _information(rows, columns)
    if null == "dirichlet":
        expected = expected_information(len(rows), rows.shape[1], columns.shape[1])
    elif null == "hypergeometric":
        expected = _dealt_information(rows, columns)
    else:
        raise InvalidParameter(
            f"null must be 'dirichlet' or 'hypergeometric'; got {null!r}. The first is the paper's.",
            parameter="null",
            value=null,
        )
    if entropy - expected > _NOTHING:
        return (entropy - information) / (entropy - expected)
    return 0.0 if information <= _NOTHING else 1.0 - information / entropy


def hard_labels(U: ArrayLike) -> FloatArray:
    """Return the one-hot (N, K) form of responsibilities or labels: the largest of each row, the first among equals.

    Examples
    --------
    >>> hard_labels([[0.2, 0.8], [0.5, 0.5]])
    array([[0., 1.],
           [1., 0.]])
    """
    rows = _responsibilities(U, "U")
    return np.asarray(np.eye(rows.shape[1])[np.argmax(rows, axis=1)])


@lru_cache(maxsize=4096)
def expected_information(n: int, k1: int, k2: int) -> float:
    """Return E[I] of two independent clusterings of n items with Dirichlet(1/K, ..., 1/K) rows.

    By exchangeability it is ``K1 K2 h(uv) - K1 h(u) - K2 h(v)``, where u ~ Beta(1/K1, 1 - 1/K1), v likewise, and
    ``h(x) = E[X log X]`` for the mean X of n copies of x. With ``log x = int (e^-s - e^-sx) ds / s`` and the Laplace
    transform l(z) = E e^-zx, ``h = int (E[x] e^-s + l'(s/n) l(s/n)^(n-1)) ds / s``; in log s the trapezoid rule is
    exact to twelve digits. For large n it tends to the delta method's ``(K1 - 1)(K2 - 1) / (8 n)``.

    Examples
    --------
    >>> round(expected_information(20, 6, 6), 4), 25 / 160
    (0.1423, 0.15625)
    """
    if k1 > k2:
        # One value for both orders, to the last bit.
        return expected_information(n, k2, k1)
    if k1 == 1 or n == 1:
        return 0.0
    (u, weight_u), (v, weight_v) = _beta_nodes(k1), _beta_nodes(k2)
    log_s = np.arange(-36.0, 36.0, _LOG_STEP)
    z = np.exp(log_s) / n
    less, slope = _laplace(z, v, weight_v)
    h_v = _h(n, log_s, 1.0 / k2, less, slope)
    less_u, slope_u = _laplace(z, u, weight_u)
    h_u = _h(n, log_s, 1.0 / k1, less_u, slope_u)
    less, slope = np.zeros(z.size), np.zeros(z.size)
    for node, weight in zip(v, weight_v, strict=True):
        less_u, slope_u = _laplace(z * node, u, weight_u)
        less += weight * less_u
        slope += weight * node * slope_u
    return float(k1 * k2 * _h(n, log_s, 1.0 / (k1 * k2), less, slope) - k1 * h_u - k2 * h_v)


def _beta_nodes(k: int) -> tuple[FloatArray, FloatArray]:
    """Nodes and weights of the law Beta(1/k, 1 - 1/k), by the double exponential rule x = expit(pi sinh t).

    Its nodes crowd at both singular ends on every scale, so that e^-zx is integrated as well for large z as for small.
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
    """Return l(z) - 1 and -l'(z); what is left of 1 keeps its digits where z is small and n large."""
    power = np.expm1(-np.outer(z, x))
    return power @ weights, (power + 1.0) @ (weights * x)


def _h(n: int, log_s: FloatArray, mean: float, less: FloatArray, slope: FloatArray) -> float:
    """Integrate E[X log X] from l - 1 and -l' at the points s / n."""
    # For large z rounding may take l, which is positive, to 0: a logarithm of -inf is then meant.
    with np.errstate(divide="ignore"):
        power = np.exp((n - 1) * np.log1p(np.maximum(less, -1.0)))
    return float(_LOG_STEP * np.sum(mean * np.exp(-np.exp(log_s)) - power * slope))


def _dealt_information(rows: FloatArray, columns: FloatArray) -> float:
    """Return E[I] when the labels of either clustering are dealt out at random."""
    from sklearn.metrics.cluster import expected_mutual_information

    for name, values in (("U", rows), ("V", columns)):
        soft = np.flatnonzero((np.abs(values - np.rint(values)) > _TOLERANCE).any(axis=1))
        if soft.size:
            raise InvalidParameter(
                f"null='hypergeometric' takes hard clusterings; row {soft[0]} of {name} is {values[soft[0]].tolist()}. "
                f"Pass hard_labels({name}), or null='dirichlet'.",
                parameter=name,
                index=int(soft[0]),
            )
    table = np.rint(rows.T @ columns).astype(np.int64)
    table = table[table.any(axis=1)][:, table.any(axis=0)]
    return float(expected_mutual_information(table, len(rows)))


def _information(rows: FloatArray, columns: FloatArray) -> tuple[float, float]:
    """Return I(U, V) and max(H(U), H(V)) of two clusterings."""
    joint = rows.T @ columns / len(rows)
    h_rows, h_columns = (-float(xlogy(p, p).sum()) for p in (rows.mean(axis=0), columns.mean(axis=0)))
    information = h_rows + h_columns + float(xlogy(joint, joint).sum())
    # Both bounds hold exactly; rounding may overstep them.
    return min(max(information, 0.0), h_rows, h_columns), max(h_rows, h_columns, 0.0)


def _pair(U: ArrayLike, V: ArrayLike) -> tuple[FloatArray, FloatArray]:
    rows, columns = _responsibilities(U, "U"), _responsibilities(V, "V")
    if len(rows) != len(columns):
        raise InvalidParameter(
            f"U and V must cluster the same items; U has {len(rows)} rows and V {len(columns)}. Give both N rows.",
            parameter="V",
            value=len(columns),
        )
    return rows, columns


def _responsibilities(values: ArrayLike, name: str) -> FloatArray:
    """Return responsibilities (N, K) from themselves or from labels (N,)."""
    array = np.asarray(values)
    if array.ndim == 1 and array.size and array.dtype.kind in "iu":
        distinct, index = np.unique(array, return_inverse=True)
        return np.eye(distinct.size)[index]
    if array.ndim != 2 or 0 in array.shape or array.dtype.kind not in "biuf":
        raise InvalidParameter(
            f"{name} must be responsibilities (N, K) or integer labels (N,) of at least one item; got shape "
            f"{array.shape}, dtype {array.dtype}. Give one row an item.",
            parameter=name,
        )
    rows = array.astype(np.float64)
    good = (rows >= 0.0).all(axis=1) & (np.abs(rows.sum(axis=1) - 1.0) <= _TOLERANCE)
    if not good.all():
        i = int(np.argmin(good))
        raise InvalidParameter(
            f"Rows of {name} must be distributions, not negative and summing to 1; row {i} is {rows[i].tolist()}. "
            "Divide each row by its sum.",
            parameter=name,
            value=rows[i].tolist(),
            index=i,
        )
    return rows
