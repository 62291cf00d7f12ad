"""What a warm start may cluster instead of feature counts: their shares, or gradients of the likelihood.

Feature counts grow with the length of a walk, so that k-means may tell the long from the short rather than one intent
from another. ADR 0012 compares embeddings, among them some that are not here as they found nothing that these did not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from limiirl._parallel import one_thread
from limiirl._typing import FloatArray
from limiirl.errors import InvalidParameter
from limiirl.irl import Prepared
from limiirl.mixture import validate
from limiirl.mixture.information import scores

Embedding = Callable[[Any, Any], Any]
"""A function of the MDP and the demonstrations, or agents, to points (N, m)."""
# Directions in which scores have a smaller mean square than this, relative to the widest, are rounding: a thousandth of
# the spread.
_FLAT = 1e-6
# Evaluations that the fit of a single intent may take.
_EVALUATIONS = 1000


def shares(prepared: Prepared) -> FloatArray:
    """Return (G, m): feature counts divided by the sum of their sizes, so that a walk twice as long is the same point.

    Examples
    --------
    >>> from limiirl import MDP, Demonstrations, MaxEnt
    >>> from limiirl.irl.problem import prepare
    >>> mdp = MDP.from_edges([0, 1], [1, 0], p0=[1, 0], state_features=[[1, 0], [0, 1]])
    >>> shares(prepare(MaxEnt(), mdp, Demonstrations.from_lists([[0, 1], [0, 1, 0, 1]]))).tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """
    features = prepared.features()
    total = np.abs(features).sum(axis=1, keepdims=True)
    return np.asarray(features / np.where(total > 0.0, total, 1.0))


def gradients(prepared: Prepared) -> FloatArray:
    r"""Return (G, r): how each unit would change the reward that explains all together.

    A unit's score is the gradient of its log-likelihood at that reward, a demonstration's mean; scores are divided by
    the root of their own information, sum_i s_i s_i^T / G, so that units of features do not matter. In a causal model
    chance moves no score on average, only choices do.

    Examples
    --------
    >>> from limiirl import MDP, Demonstrations, MaxEnt
    >>> from limiirl.irl.problem import prepare
    >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0], [1], [-1]])
    >>> found = gradients(prepare(MaxEnt(max_length=2), mdp, Demonstrations.from_lists([[0, 1], [0, 2]])))
    >>> np.abs(found).round(6).tolist(), bool(found[0, 0] == -found[1, 0])
    ([[1.0], [1.0]], True)
    """
    together = np.ones((len(prepared.units), 1))
    theta = prepared.maximise(prepared.moments(together), None, np.arange(1), _EVALUATIONS).thetas
    parts = [part[:, 0] for _, part in scores(prepared, theta, np.ones(theta.shape, dtype=bool)).blocks()]
    return whitened(np.concatenate(parts) / prepared.units.counts[:, None])


def whitened(points: FloatArray) -> FloatArray:
    """Return points (G, r) whose second moments are the identity, in the directions in which they are not all zero.

    Examples
    --------
    >>> whitened(np.array([[2.0, 0.0], [-2.0, 0.0]])).ravel().tolist()
    [1.0, -1.0]
    """
    with one_thread():
        sizes, directions = np.linalg.eigh(points.T @ points / len(points))
        wide = sizes > _FLAT * max(sizes[-1], np.finfo(np.float64).tiny)
        if not np.any(wide):
            return np.zeros((len(points), 1))
        return np.ascontiguousarray(points @ directions[:, wide] / np.sqrt(sizes[wide]))


EMBEDDINGS: dict[str, Embedding] = {}
"""The user's embeddings by name; `register_embedding` adds to them."""
_BUILT_IN: dict[str, Callable[[Prepared], FloatArray]] = {"shares": shares, "gradients": gradients}


def register_embedding(name: str, function: Embedding) -> None:
    """Make `embedding=name` available: a function of (mdp, demos) to points (N, m), as `embedding=function` takes it.

    A name can be written to a file and into an experiment's specification, which a function cannot. Where
    demonstrations are grouped, a group's point is the mean of theirs.

    Examples
    --------
    >>> register_embedding("lengths", lambda mdp, demos: demos.lengths[:, None])
    >>> "lengths" in EMBEDDINGS
    True
    >>> del EMBEDDINGS["lengths"]
    """
    if not isinstance(name, str) or not callable(function):
        raise InvalidParameter(f"register_embedding needs a name and a function; got {name!r} and {function!r}.")
    if name in _BUILT_IN:
        raise InvalidParameter(f"embedding={name!r} is built in. Choose another name.")
    EMBEDDINGS[name] = function


def embedding_names() -> list[str]:
    """Return the names that `embedding` takes: those that are built in, then those that were registered.

    Examples
    --------
    >>> embedding_names()
    ['shares', 'gradients']
    """
    return [*_BUILT_IN, *EMBEDDINGS]


def embedding(name: str) -> Callable[[Prepared], FloatArray]:
    """Return an embedding by its name, as a function of the prepared model to a point a unit (G, m).

    Examples
    --------
    >>> embedding("shares") is shares
    True
    """
    if name in _BUILT_IN:
        return _BUILT_IN[name]
    if name not in EMBEDDINGS:
        raise InvalidParameter(
            f"embedding must be one of {', '.join(embedding_names())}, or points, or a function of (mdp, demos); it is "
            f"{name!r}."
        )

    def of_units(prepared: Prepared) -> FloatArray:
        made = EMBEDDINGS[name](prepared.mdp, prepared.demos)
        return prepared.units.mean(validate.points(made, len(prepared.demos), f"The embedding {name!r}"))

    return of_units
