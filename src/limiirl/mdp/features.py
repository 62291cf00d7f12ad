"""Dense and sparse feature matrices, and features that depend on the goal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from limiirl._typing import FloatArray, IntArray
from limiirl._validation import as_floats
from limiirl.errors import InvalidMDP, InvalidParameter

if TYPE_CHECKING:
    from limiirl.mdp.mdp import MDP

FeatureMatrix: TypeAlias = "FloatArray | sparse.csr_array[np.float64, tuple[int, int]]"
KINDS = ("state", "action", "edge")
FeatureInput: TypeAlias = "ArrayLike | sparse.sparray[Any, Any] | sparse.spmatrix[Any]"


def as_features(features: FeatureInput, name: str) -> FeatureMatrix:
    """Return a copy of `features` as a C-contiguous float64 ndarray or a csr_array in canonical form.

    A one-dimensional array becomes one column. Sparse matrices have sorted indices, no duplicates and no explicit
    zeros. A read-only matrix in this form is returned without a copy.
    """
    if isinstance(features, sparse.csr_array) and _is_canonical(features):
        return features
    if sparse.issparse(features):
        kind = np.dtype(features.dtype).kind
        if kind not in "biuf":
            raise InvalidMDP.of(name, str(features.dtype), "must contain real numbers")
        matrix = sparse.csr_array(features, dtype=np.float64, copy=True)
        if matrix.ndim != 2:
            raise InvalidMDP.of(name, matrix.shape, "must be two-dimensional", remedy="Reshape it.")
        if not matrix.has_canonical_format:
            matrix.sum_duplicates()
        if not matrix.data.all():
            matrix.eliminate_zeros()
        return matrix
    dense = as_floats(features, name, boolean=True, error=InvalidMDP)
    if dense.ndim == 1:
        dense = dense[:, None]
    if dense.ndim != 2:
        raise InvalidMDP.of(name, dense.shape, "must be one- or two-dimensional", remedy="Reshape it.")
    return dense if is_frozen(dense) else np.array(dense, dtype=np.float64, order="C")


def _parts(features: FeatureMatrix) -> tuple[NDArray[Any], ...]:
    if isinstance(features, np.ndarray):
        return (features,)
    return features.data, features.indices, features.indptr


def _is_canonical(matrix: sparse.csr_array[Any, Any]) -> bool:
    return (
        all(is_frozen(part) for part in _parts(matrix))
        and matrix.dtype == np.float64
        and matrix.ndim == 2
        and matrix.has_canonical_format
        and bool(matrix.data.all())
    )


def freeze(features: FeatureMatrix) -> FeatureMatrix:
    """Make a feature matrix read-only, including the arrays that it views, and return it."""
    for part in _parts(features):
        for array in _with_bases(part):
            array.flags.writeable = False
    return features


def is_frozen(array: NDArray[Any]) -> bool:
    """Return True if an array is contiguous and its memory is read-only, so that it can be shared."""
    return array.flags.c_contiguous and not any(owner.flags.writeable for owner in _with_bases(array))


def _with_bases(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Yield an array and the arrays whose memory it views."""
    owner: Any = array
    while isinstance(owner, np.ndarray):
        yield owner
        owner = owner.base


@dataclass(frozen=True, eq=False)
class GoalFeature:
    """A feature of states or edges that depends on the goal, or on the start and the goal, of a path.

    Its values are stored for C conditions, which are goals or pairs of a start and a goal. Only `DestinationMaxEnt`
    accepts MDPs with such features.

    Parameters
    ----------
    name : str
    values : (C, S) or (C, E)
        ndarray or scipy.sparse. With of="state", a transition has the value of its target state.
    goals : (C,)
    starts : (C,), optional
        If None, the feature depends on the goal only.
    of : {"state", "edge"}

    Examples
    --------
    >>> from limiirl.mdp import MDP, add_goal_features
    >>> distance = GoalFeature("distance", [[2.0, 1.0, 0.0], [1.0, 0.0, 9.0]], goals=[2, 1])
    >>> distance.rows(np.array([0, 0]), np.array([1, 2]))
    array([1, 0])
    >>> add_goal_features(MDP.from_edges([0, 1], [1, 2], state_features=[1, 1, 1]), distance).feature_names
    ('state[0]', 'distance')
    """

    name: str
    values: FeatureMatrix
    goals: IntArray
    starts: IntArray | None = None
    of: str = "state"

    def __post_init__(self) -> None:
        if self.of not in ("state", "edge"):
            raise InvalidMDP.of("of", self.of, "must be 'state' or 'edge'")
        values = as_features(self.values, "values")
        bad = first_nonfinite(values)
        if bad is not None:
            raise InvalidMDP.of("values", bad[2], "must be finite", index=bad[:2])
        object.__setattr__(self, "values", freeze(values))
        for name in ("goals", "starts"):
            given = getattr(self, name)
            if given is None:
                continue
            states = np.array(given)
            if states.shape != (values.shape[0],) or states.dtype.kind not in "iu" or np.any(states < 0):
                rule = f"must be {values.shape[0]} state indices, one per row of values"
                raise InvalidMDP.of(name, given, rule)
            states = states.astype(np.int64)
            states.flags.writeable = False
            object.__setattr__(self, name, states)
        keys, order = np.unique(self._keys(self.starts, self.goals), return_index=True)
        if keys.size < self.goals.size:
            raise InvalidMDP.of("goals", self.goals.size - keys.size, "must not repeat a condition; repeated rows")
        object.__setattr__(self, "_sorted", (keys, order))

    def _keys(self, starts: IntArray | None, goals: IntArray) -> IntArray:
        return goals if self.starts is None or starts is None else (starts << 32) | goals

    @property
    def by_start(self) -> bool:
        """True if the feature also depends on the start."""
        return self.starts is not None

    def rows(self, starts: IntArray | None, goals: IntArray) -> IntArray:
        """Return the rows (m,) of `values` for pairs (m,); raise `InvalidParameter` if there are no values."""
        if self.by_start and starts is None:
            raise InvalidParameter.of("start", None, f"must be given, because feature {self.name!r} depends on it")
        keys, order = self.__dict__["_sorted"]
        wanted = self._keys(starts, goals)
        at = np.minimum(np.searchsorted(keys, wanted), keys.size - 1)
        missing = (keys[at] != wanted) if keys.size else np.ones(wanted.size, dtype=bool)
        if np.any(missing):
            i = int(np.argmax(missing))
            pair = int(goals[i]) if starts is None or not self.by_start else (int(starts[i]), int(goals[i]))
            remedy = "Compute the feature for all goals of the demonstrations and of the forecasts."
            rule = f"must be a condition for which feature {self.name!r} has values"
            raise InvalidParameter.of("goals", pair, rule, index=i, remedy=remedy)
        return np.asarray(order[at])

    def select_edges(self, kept: NDArray[np.integer[Any]]) -> GoalFeature:
        """Return the feature of an MDP that has only the edges `kept` (m,)."""
        values: Any = self.values
        return replace(self, values=values[:, kept]) if self.of == "edge" else self

    def of_edges(self, row: int, dst: NDArray[np.integer[Any]]) -> FloatArray:
        """Return the values (E,) of all edges with targets dst (E,) in a row of `values`."""
        own: Any = self.values[[row]]
        dense = own[0] if isinstance(own, np.ndarray) else own.toarray()[0]
        return np.asarray(dense[dst] if self.of == "state" else dense)

    def lookup(self, rows: IntArray, columns: NDArray[np.integer[Any]]) -> FloatArray:
        """Return the values (m,) at rows (m,) and columns (m,)."""
        picked: Any = self.values[rows, columns] if rows.size else np.empty(0)
        dense = picked if isinstance(picked, np.ndarray) else picked.toarray()
        return np.asarray(dense, dtype=np.float64).ravel()

    def same_as(self, other: GoalFeature) -> bool:
        """Return True if the name, the conditions and the values are equal."""
        starts = (self.starts is None) == (other.starts is None) and np.array_equal(
            () if self.starts is None else self.starts, () if other.starts is None else other.starts
        )
        same = (self.name, self.of) == (other.name, other.of) and np.array_equal(self.goals, other.goals)
        return bool(starts and same and same_features(self.values, other.values))


def goal_feature_counts(
    features: tuple[GoalFeature, ...],
    dst: NDArray[np.integer[Any]],
    edge: IntArray,
    owner: IntArray,
    weights: FloatArray,
    starts: IntArray,
    goals: IntArray,
) -> FloatArray:
    """Return the weighted sums (N, g) of goal features along N paths between starts (N,) and goals (N,).

    The paths traverse edges (m,) with weights (m,); `owner` (m,) is the path of each edge, and `dst` (E,) contains the
    targets of all edges.
    """
    counts = np.zeros((starts.size, len(features)))
    for j, feature in enumerate(features):
        rows = feature.rows(starts, goals)[owner]
        values = feature.lookup(rows, dst[edge] if feature.of == "state" else edge)
        counts[:, j] = np.bincount(owner, weights=weights * values, minlength=starts.size)
    return counts


def feature_sizes(mdp: MDP) -> FloatArray:
    """Return the largest absolute value (d,) of each feature.

    Examples
    --------
    >>> from limiirl.mdp import MDP
    >>> feature_sizes(MDP.from_edges([0], [1], state_features=[[1.0, 0.0], [-3.0, 1e-6]])).tolist()
    [3.0, 1e-06]
    """
    sizes = []
    for part in (mdp.state_features, mdp.action_features, mdp.edge_features):
        if part is not None and part.shape[0]:
            values: Any = abs(part)
            largest = values.max(axis=0)
            sizes.append(largest.toarray().ravel() if sparse.issparse(values) else largest)
        elif part is not None:
            sizes.append(np.zeros(part.shape[1]))
    for feature in mdp.goal_features:
        entries: Any = abs(feature.values)
        sizes.append(np.array([float(entries.max()) if 0 not in entries.shape else 0.0]))
    return np.concatenate(sizes)


def first_nonfinite(features: FeatureMatrix) -> tuple[int, int, float] | None:
    """Return (row, column, value) of the first NaN or infinite entry, or None if there is none."""
    values = features if isinstance(features, np.ndarray) else features.data
    finite = np.isfinite(values)
    if finite.all():
        return None
    if isinstance(features, np.ndarray):
        row, column = np.argwhere(~finite)[0]
        return int(row), int(column), float(features[row, column])
    position = int(np.flatnonzero(~finite)[0])
    row = np.searchsorted(features.indptr, position, side="right") - 1
    return int(row), int(features.indices[position]), float(features.data[position])


def same_features(one: FeatureMatrix | None, other: FeatureMatrix | None) -> bool:
    """Return True if two canonical feature matrices have the same storage (dense or sparse), shape and values."""
    if one is None or other is None:
        return one is other
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return isinstance(one, np.ndarray) and isinstance(other, np.ndarray) and np.array_equal(one, other)
    return (
        one.shape == other.shape
        and np.array_equal(one.indptr, other.indptr)
        and np.array_equal(one.indices, other.indices)
        and np.array_equal(one.data, other.data)
    )


def width(features: FeatureMatrix | None) -> int:
    """Return the number of columns, or 0 if `features` is None."""
    return 0 if features is None else int(features.shape[1])


def default_names(kind: str, count: int) -> tuple[str, ...]:
    """Return the names "kind[0]", "kind[1]", ..."""
    return tuple(f"{kind}[{column}]" for column in range(count))


def update_names(mdp: MDP, changes: dict[str, Any]) -> tuple[str, ...]:
    """Return the feature names after applying `changes`.

    State, action or edge features keep their names if their number of columns is unchanged.
    """
    names: tuple[str, ...] = ()
    start = 0
    for kind in KINDS:
        field = f"{kind}_features"
        before = width(getattr(mdp, field))
        given = changes.get(field)
        after = before if field not in changes else 0 if given is None else width(as_features(given, field))
        names += mdp.feature_names[start : start + before] if after == before else default_names(kind, after)
        start += before
    return names + tuple(feature.name for feature in changes.get("goal_features", mdp.goal_features))


def multiply(features: FeatureMatrix | None, thetas: FloatArray, rows: int) -> FloatArray:
    """Return the products (rows, K) of features (rows, d) and parameters (K, d), or zeros if `features` is None."""
    if features is None:
        return np.zeros((rows, thetas.shape[0]))
    return np.ascontiguousarray(features @ thetas.T)


def expected_features(mdp: MDP, node: FloatArray, edge: FloatArray | None) -> FloatArray:
    """Return expected features (K, d), given expected counts of states (S, K) and edges (E, K)."""
    parts: list[Any] = []
    if mdp.state_features is not None:
        parts.append(mdp.state_features.T @ node)
    if edge is not None:
        if mdp.action_features is not None:
            pairs = np.zeros((mdp.n_pairs, edge.shape[1]))
            np.add.at(pairs, mdp.pair_of_edge, edge)
            parts.append(mdp.action_features.T @ pairs)
        if mdp.edge_features is not None:
            parts.append(mdp.edge_features.T @ edge)
    return np.ascontiguousarray(np.vstack(parts).T)


def edge_parts(mdp: MDP) -> list[FeatureMatrix]:
    """Return the action features and the edge features (E, c) of each edge, in the order of theta."""
    parts = [] if mdp.action_features is None else [mdp.action_features[mdp.pair_of_edge]]
    return parts if mdp.edge_features is None else [*parts, mdp.edge_features]


def to_dense(features: FeatureMatrix) -> FloatArray:
    """Return features as a dense array."""
    return features if isinstance(features, np.ndarray) else features.toarray()
