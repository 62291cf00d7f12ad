"""Covariates of demonstrations, groups or steps: numbers, booleans, and indicators of the levels of text columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from limiirl._typing import FloatArray, IntArray
from limiirl._validation import as_floats
from limiirl.demos.groups import Groups
from limiirl.errors import InvalidParameter
from limiirl.mdp import column_names, encode, is_text, nulls

if TYPE_CHECKING:
    from limiirl.demos.demonstrations import Demonstrations

# Columns of a table that identify its rows; they are not covariates.
_KEYS = ("demo", "group")
# Relative standard deviation of a constant column, and of a column that is a combination of the preceding ones.
_CONSTANT, _DEPENDENT = 1e-12, 1e-8


class CovariateScale(NamedTuple):
    """Names, means (m,) and standard deviations (m,) of the covariates of the training data.

    `columns` are the columns of the table, and `levels` the levels of its text columns. The first level is the
    reference, and each of the others has an indicator, such as "site[north]".
    """

    names: tuple[str, ...]
    mean: FloatArray
    scale: FloatArray
    columns: tuple[str, ...]
    levels: dict[str, tuple[str, ...]]

    def standardise(self, values: FloatArray) -> FloatArray:
        """Return values (n, m) minus the means, divided by the standard deviations."""
        return np.asarray((values - self.mean) / self.scale)


class Covariates(NamedTuple):
    """Covariates (n, m) in original units, their names, the columns of the table, and the levels of text columns."""

    values: FloatArray
    names: tuple[str, ...]
    columns: tuple[str, ...]
    levels: dict[str, tuple[str, ...]]

    @classmethod
    def read(
        cls, given: Any, like: CovariateScale | None = None, rows: IntArray | None = None, noun: str = "row"
    ) -> Covariates:
        """Read covariates; raise for gaps and for values that are not numbers, booleans or text.

        Parameters
        ----------
        given : (n, m) array, data frame, pyarrow Table or mapping of columns
            A text or categorical column has one indicator per level except the first. The levels of a pandas
            Categorical are in its own order, others are sorted. The columns demo and group are not covariates.
        like : CovariateScale, optional
            Covariates of the training data; the same columns and levels are read.
        rows : (n,), optional
            Rows to read, in this order.
        noun : str
            What a row is, for messages.

        Examples
        --------
        >>> covariates = Covariates.read({"age": [3, 5, 4], "sex": ["m", "f", "m"]})
        >>> covariates.names, covariates.levels
        (('age', 'sex[m]'), {'sex': ('f', 'm')})
        >>> covariates.values.tolist()
        [[3.0, 1.0], [5.0, 0.0], [4.0, 1.0]]
        """
        names = column_names(given)
        result = cls._from_array(given, like, rows) if names is None else cls._from_table(given, names, like, rows)
        wrong = ~np.isfinite(result.values)
        if np.any(wrong):
            i, c = (int(at) for at in np.argwhere(wrong)[0])
            rule, value = f"must be finite (covariate {result.names[c]!r}, {noun} {i})", float(result.values[i, c])
            remedy = "Fill the gap, or drop the demonstration." if noun != "decision" else "Fill the gap, or cut there."
            raise InvalidParameter.of("covariates", value, rule, index=(i, c), remedy=remedy)
        return result

    @classmethod
    def _from_array(cls, given: Any, like: CovariateScale | None, rows: IntArray | None) -> Covariates:
        values = as_floats(given, "covariates", boolean=True)
        if values.ndim == 1:
            values = values[:, None]
        if values.ndim != 2 or values.shape[1] == 0:
            raise InvalidParameter.of("covariates", values.shape, "must have shape (rows, columns)")
        names = tuple(f"covariate {c}" for c in range(values.shape[1]))
        if like is not None:
            if like.levels or values.shape[1] != len(like.columns):
                rule = f"must have {len(like.columns)} columns, {', '.join(like.columns)}"
                raise InvalidParameter.of("covariates", values.shape, rule)
            names = like.columns
        return cls(values if rows is None else values[rows], names, names, {})

    @classmethod
    def _from_table(
        cls, table: Any, present: list[Any], like: CovariateScale | None, rows: IntArray | None
    ) -> Covariates:
        if len(set(map(str, present))) < len(present):
            raise InvalidParameter.of("covariates", present, "must not repeat a column", remedy="Rename one.")
        by_name = {str(name): name for name in present}
        columns = tuple(name for name in by_name if name not in _KEYS) if like is None else like.columns
        missing = [name for name in columns if name not in by_name]
        if missing or not columns:
            rule = f"must have the column {missing[0]!r}" if missing else "must have a column of a covariate"
            raise InvalidParameter.of("covariates", list(by_name), rule)
        blocks, names, levels = [], list[str](), dict[str, tuple[str, ...]]()
        for name in columns:
            known = None if like is None else like.levels.get(name, ())
            block, own = _read_column(table[by_name[name]], name, known, rows)
            blocks.append(block)
            names += [f"{name}[{level}]" for level in own[1:]] or [name]
            if own:
                levels[name] = own
        return cls(np.ascontiguousarray(np.hstack(blocks)), tuple(names), columns, levels)

    @classmethod
    def for_steps(cls, given: Any, demos: Demonstrations, like: CovariateScale | None = None) -> Covariates:
        """Read covariates with one row per decision, or per state, of demonstrations.

        A table with a column demo or group may have one row per demonstration or group instead.

        Examples
        --------
        >>> from limiirl.demos import Demonstrations
        >>> demos = Demonstrations.from_lists([[0, 1, 0], [1, 0]], groups=["ann", "bob"])
        >>> Covariates.for_steps({"group": ["bob", "ann"], "age": [5, 3]}, demos).values.tolist()
        [[3.0], [3.0], [5.0]]
        """
        if given is None:
            message = "covariates is required for switching='covariates'. Pass an array (steps, m) or a frame."
            raise InvalidParameter(message, parameter="covariates")
        n = _count_rows(given)
        key = next((name for name in _KEYS if name in (column_names(given) or ())), None)
        if key is not None and n not in (demos.n_transitions, demos.n_steps):
            of_demos = _match_rows(given[key], key, _labels(key, demos, Groups.for_demos(None, demos)))
            return cls.read(given, like, np.repeat(of_demos, demos.lengths - 1), "decision")
        if n not in (demos.n_transitions, demos.n_steps):
            per_state = f"or {demos.n_steps}, one per state of the demonstrations"
            rule = f"must have {demos.n_transitions} rows, one per decision, {per_state}"
            raise InvalidParameter.of("covariates", _shape(given), rule)
        rows = None
        if n == demos.n_steps:
            rows = np.delete(np.arange(n), demos.offsets[1:] - 1)  # the last state has no decision
        return cls.read(given, like, rows, "decision")

    @classmethod
    def for_units(cls, given: Any, demos: Any, units: Groups, like: CovariateScale | None = None) -> Covariates:
        """Read covariates of units, which are groups of demonstrations or single demonstrations.

        Parameters
        ----------
        given : array, data frame, pyarrow Table or mapping of columns
            Rows of a table with a column demo or group are matched by the ids of the demonstrations, or by the groups;
            other rows are ignored. Without such a column, there is one row per demonstration, or one row per group
            in sorted order.
        demos : Demonstrations or Agents
        units : Groups
        like : CovariateScale, optional

        Examples
        --------
        >>> from limiirl.demos import Demonstrations
        >>> demos = Demonstrations.from_lists([[0], [1], [0]])
        >>> units = Groups.from_labels(["ann", "bob", "ann"], 3)
        >>> Covariates.for_units({"group": ["bob", "ann"], "age": [5, 3]}, demos, units).values.tolist()
        [[3.0], [5.0]]
        """
        key = next((name for name in _KEYS if name in (column_names(given) or ())), None)
        n, N, G = _count_rows(given), len(demos), len(units)
        if key is not None:
            rows = _match_rows(given[key], key, _labels(key, demos, units))
        elif n in (N, G):
            rows = np.arange(N) if n == N else np.asarray(units.broadcast(np.arange(G)))
        else:
            rule = f"must have one row for each of the {N} {units.each}" + (f" or {G} groups" if units.grouped else "")
            raise InvalidParameter.of("covariates", _shape(given), rule)
        read = cls.read(given, like, rows, units.each[:-1])
        if units.index is None:
            return read
        _, first = np.unique(units.index, return_index=True)
        differs = np.any(read.values[first][units.index] != read.values, axis=1)
        if np.any(differs):
            i = int(np.argmax(differs))
            rule = f"must be the same for all demonstrations of {units.name(int(units.index[i]))}"
            raise InvalidParameter.of("covariates", read.values[i].tolist(), rule, index=i)
        return read._replace(values=read.values[first])

    def measure(self) -> CovariateScale:
        """Return the means and scales; raise if a covariate is constant."""
        scale = self.values.std(axis=0)
        constant = scale <= _CONSTANT * np.abs(self.values).max(axis=0, initial=0.0)
        if np.any(constant):
            c = int(np.argmax(constant))
            rule, value = f"must vary (covariate {self.names[c]!r})", float(self.values[0, c])
            raise InvalidParameter.of("covariates", value, rule, index=(0, c), remedy="Drop the column.")
        return CovariateScale(self.names, self.values.mean(axis=0), scale, self.columns, self.levels)

    def check_independent(self) -> None:
        """Raise if a covariate is a linear combination of others: their coefficients would not be identified."""
        scaled = self.measure().standardise(self.values)
        for c in range(1, scaled.shape[1]):
            before, column = scaled[:, :c], scaled[:, c]
            combination = np.linalg.lstsq(before, column, rcond=None)[0]
            if np.linalg.norm(column - before @ combination) <= _DEPENDENT * np.linalg.norm(column):
                others = [self.names[b] for b in np.flatnonzero(np.abs(combination) > 1e-6)]
                rule = f"must not be a linear combination of others: {self.names[c]!r} depends on {', '.join(others)}"
                raise InvalidParameter.of("covariates", self.names[c], rule, index=c, remedy="Drop the column.")


def _read_column(
    column: Any, name: str, known: tuple[str, ...] | None, rows: IntArray | None
) -> tuple[FloatArray, tuple[str, ...]]:
    """Return the values (n, r) of a column, nan for gaps, and its levels; numeric columns have none.

    `known` are the levels in the training data, () for a numeric column, or None for the training data themselves.
    """
    array: NDArray[Any] = np.asarray(column.to_numpy() if hasattr(column, "to_numpy") else column)
    array = array if rows is None else array[rows]
    categories = getattr(getattr(column, "dtype", None), "categories", None)
    missing = nulls(array)
    if known or (known is None and (categories is not None or is_text(array))):
        text = np.array([str(x) for x in array.tolist()], dtype=object)
        missing = missing | np.array([not x.strip() for x in text], dtype=bool)
        order: Sequence[str] | None = known
        if known is None and categories is not None:
            present = set(text[~missing].tolist())
            order = [str(level) for level in categories if str(level) in present]
        codes, levels = encode(text, missing, order)
        if np.any(codes == -2):
            i = int(np.argmax(codes == -2))
            rule = f"must be one of {', '.join(levels)} (covariate {name!r})"
            raise InvalidParameter.of("covariates", text[i], rule, index=i)
        if len(levels) < 2:
            rule = f"must have at least two levels (covariate {name!r})"
            raise InvalidParameter.of("covariates", list(levels), rule, remedy="Drop the column.")
        block = np.eye(len(levels))[codes][:, 1:]
        block[missing] = np.nan
        return block, tuple(levels)
    try:
        if array.ndim != 1 or array.dtype.kind not in "biufO" or is_text(array):
            raise TypeError
        values = np.where(missing, np.nan, array).astype(np.float64)
    except (TypeError, ValueError):
        rule = f"must be numbers, booleans or text (covariate {name!r})"
        raise InvalidParameter.of("covariates", str(array.dtype), rule) from None
    return values[:, None], ()


def _labels(key: str, demos: Any, units: Groups) -> NDArray[Any]:
    """Return the id or the group (N,) of each demonstration."""
    if key == "demo":
        ids = getattr(demos, "ids", getattr(demos, "names", None))
        return np.arange(len(demos)) if ids is None else np.asarray(ids)
    labels = units.labels if units.grouped else getattr(demos, "groups", None)
    if labels is None:
        message = "covariates has a column 'group', but the demonstrations have no groups. Pass groups, or drop it."
        raise InvalidParameter(message, parameter="covariates", value="group")
    return np.asarray(labels)


def _match_rows(column: Any, key: str, labels: NDArray[Any]) -> IntArray:
    """Return the row (N,) of each label in a column of distinct labels."""
    given = [str(x) for x in np.asarray(column.to_numpy() if hasattr(column, "to_numpy") else column).tolist()]
    row_of = {label: row for row, label in reversed(list(enumerate(given)))}
    if len(row_of) < len(given):
        row = next(row for row, label in enumerate(given) if row_of[label] != row)
        raise InvalidParameter.of("covariates", given[row], f"must have one row per {key}", index=row)
    rows = np.array([row_of.get(str(label), -1) for label in labels.tolist()], dtype=np.int64)
    if np.any(rows < 0):
        label = labels[int(np.argmax(rows < 0))]
        rule = f"must have a row for every {key}; one is missing"
        raise InvalidParameter.of("covariates", str(label), rule, remedy=f"Add the row, or drop the {key}.")
    return rows


def _count_rows(given: Any) -> int:
    """Return the number of rows of an array or table."""
    shape = _shape(given)
    return int(shape[0]) if shape else -1


def _shape(given: Any) -> tuple[int, ...]:
    names = column_names(given)
    if names is None:
        return as_floats(given, "covariates", boolean=True).shape
    return (len(given[names[0]]), len(names)) if names else ()
