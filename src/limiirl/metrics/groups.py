"""Comparison of groups, such as animals, between conditions, by permutation tests and bootstrap intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import chain, combinations
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from limiirl._io import to_pandas
from limiirl._typing import FloatArray, IntArray
from limiirl._validation import as_floats, as_generator, check_choice, check_count, check_level
from limiirl.demos import Groups, as_attribute
from limiirl.errors import InvalidParameter
from limiirl.metrics.intervals import bootstrap
from limiirl.mixture import align_rows, to_plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Maximum number of assignments of groups to conditions that are enumerated, and number of random ones beyond it.
_MOST_ASSIGNMENTS, _N_RANDOM, _BLOCK = 200_000, 9_999, 1_000
_CORRECTIONS = {"holm": "Holm", "benjamini-hochberg": "Benjamini-Hochberg", "none": "not corrected"}


@dataclass(frozen=True)
class GroupContrast:
    """Difference of one quantity between two conditions, averaged over groups.

    Attributes
    ----------
    quantity : str
    first, second : str
        Conditions.
    n_first, n_second : int
        Number of groups with a finite value.
    mean_first, mean_second, difference : float
        Means over groups, and their difference, first minus second.
    low, high : float
        Ends of the bootstrap interval of the difference (BCa), which resamples groups within each condition.
    p, p_corrected : float
        Two-sided p-value of the permutation test, and after the correction for the number of comparisons.
    n_assignments : int
        Number of assignments of groups to conditions in the test.
    exact : bool
        True if they are all assignments, False if they are a random sample of them.
    """

    quantity: str
    first: str
    second: str
    n_first: int
    n_second: int
    mean_first: float
    mean_second: float
    difference: float
    low: float
    high: float
    p: float
    p_corrected: float
    n_assignments: int
    exact: bool

    @property
    def least_p(self) -> float:
        """Smallest p-value that the test can have with these numbers of groups."""
        return (2.0 if self.exact and self.n_first == self.n_second else 1.0) / max(self.n_assignments, 1)


@dataclass(frozen=True)
class GroupComparison:
    """Result of `compare_groups`; prints as a table.

    Attributes
    ----------
    rows : tuple of GroupContrast
        For each pair of conditions, one row per quantity.
    correction : str
    level : float
        Confidence level of the intervals.
    groups, condition : (G,)
        Names and conditions of the groups.
    values : dict of str to (G,)
        The quantities that were compared.
    """

    rows: tuple[GroupContrast, ...]
    correction: str
    level: float
    groups: tuple[str, ...] = field(repr=False)
    condition: tuple[str, ...] = field(repr=False)
    values: dict[str, FloatArray] = field(repr=False)

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one row per quantity and pair of conditions."""
        return to_pandas({f.name: [getattr(row, f.name) for row in self.rows] for f in fields(GroupContrast)})

    def to_dict(self) -> dict[str, Any]:
        """Return JSON types, with None for nan."""
        rows = [{name: to_plain(value) for name, value in asdict(row).items()} for row in self.rows]
        values = {name: to_plain(value) for name, value in self.values.items()}
        groups = {"groups": list(self.groups), "condition": list(self.condition), "values": values}
        return {"rows": rows, "correction": self.correction, "level": self.level} | groups

    def plot(self, quantities: Sequence[str] | None = None) -> Figure:
        """Draw the value of each group by condition, with means, in one panel per quantity.

        Parameters
        ----------
        quantities : sequence of str, optional
            Names of the quantities to draw; by default all.

        Returns
        -------
        matplotlib.figure.Figure

        Examples
        --------
        >>> shares = {"share of drinking": [0.61, 0.55, 0.58, 0.64, 0.31, 0.42, 0.38, 0.29]}
        >>> figure = compare_groups(shares, ["thirsty"] * 4 + ["control"] * 4).plot()
        >>> [label.get_text() for label in figure.axes[0].get_xticklabels()]
        ['control', 'thirsty']
        """
        from limiirl.metrics.plotting import draw_groups

        chosen = list(self.values) if quantities is None else list(quantities)
        unknown = [name for name in chosen if name not in self.values]
        if unknown or not chosen:
            rule = f"must be names of quantities: {', '.join(self.values)}"
            raise InvalidParameter.of("quantities", unknown[0] if unknown else quantities, rule)
        return draw_groups(self, chosen)

    def __str__(self) -> str:
        lines: list[str] = []
        for first, second in dict.fromkeys((row.first, row.second) for row in self.rows):
            own = [row for row in self.rows if (row.first, row.second) == (first, second)]
            heads = (first, second, f"difference, {100 * self.level:g} %", "p", _CORRECTIONS[self.correction])
            table = [("", [(head, "") for head in heads])]
            for row in own:
                numbers = [f"{x:.4g}" for x in (row.mean_first, row.mean_second, row.difference)]
                interval = f"[{row.low:.4g}, {row.high:.4g}]"
                ps = [(_format_p(p), "") for p in (row.p, row.p_corrected)]
                table.append((row.quantity, [*((x, "") for x in numbers[:2]), (numbers[2], interval), *ps]))
            lines += [*align_rows(table, range(len(heads))), ""]
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])

    @property
    def notes(self) -> tuple[str, ...]:
        """The method in words, and limits of the test."""
        sizes = ", ".join(f"{self.condition.count(name)} {name}" for name in sorted(set(self.condition)))
        kind = "exact permutation test" if all(row.exact for row in self.rows) else "permutation test"
        notes = [f"means over groups ({sizes}); {kind} over groups; bootstrap intervals over groups, not corrected"]
        least = min((row.least_p for row in self.rows), default=0.0)
        if least > 1.0 - self.level:
            notes.append(f"with so few groups no p-value can be below {least:.2g}: a difference cannot be significant")
        return tuple(notes)


def _format_p(p: float) -> str:
    return "-" if not math.isfinite(p) else f"{p:.2g}" if p >= 1e-4 else f"{p:.0e}"


def compare_groups(
    values: Any,
    condition: ArrayLike,
    names: Sequence[str] | None = None,
    *,
    groups: ArrayLike | None = None,
    correction: Literal["holm", "benjamini-hochberg", "none"] = "holm",
    level: float = 0.95,
    n_resamples: int = 9999,
    seed: int | np.random.Generator = 0,
) -> GroupComparison:
    """Compare quantities of groups, such as animals, between conditions.

    The test statistic is the difference between the means over groups. The test is exact if the groups are exchangeable
    under the null hypothesis: all assignments of groups to the two conditions are enumerated, or 9,999 random ones if
    there are more than 200,000. Groups are the units: pass one value per group, not per demonstration.

    Parameters
    ----------
    values : (G,) or (G, m) array, frame, or mapping of names to (G,)
        Quantities of each group; groups whose value is nan are omitted.
    condition : (G,)
        Condition of each group, as text or numbers. All pairs of conditions are compared.
    names : sequence of m strings, optional
        Names of the quantities, if `values` is an array.
    groups : (G,), optional
        Names of the groups.
    correction : {"holm", "benjamini-hochberg", "none"}
        Correction of the p-values for the number of rows: Holm controls the probability of any false rejection, and
        Benjamini-Hochberg the expected fraction of false rejections.
    level : float
    n_resamples, seed : int
        Number of bootstrap resamples, and seed of these and of random assignments.

    Examples
    --------
    >>> shares = {"share of drinking": [0.61, 0.55, 0.58, 0.64, 0.31, 0.42, 0.38, 0.29]}
    >>> print(compare_groups(shares, ["thirsty"] * 4 + ["control"] * 4))
                          control    thirsty    difference, 95 %                        p     Holm
      share of drinking      0.35      0.595              -0.245 [-0.305, -0.185]   0.029    0.029
    <BLANKLINE>
      means over groups (4 control, 4 thirsty); exact permutation test over groups; bootstrap intervals over groups, ...
    """
    columns = _read_columns(values, names)
    G = len(next(iter(columns.values())))
    labels, names_of = (_read_labels(given, name, G) for given, name in ((condition, "condition"), (groups, "groups")))
    kinds, index = np.unique(labels, return_inverse=True)
    if kinds.size < 2:
        raise InvalidParameter.of("condition", kinds[0].item(), "must have at least two values")
    check_choice(correction, "correction", tuple(_CORRECTIONS))
    check_level(level)
    check_count(n_resamples, "n_resamples", bytes_each=8.0 * G)
    rng = as_generator(seed)
    assignments: dict[tuple[int, int], IntArray] = {}
    rows = []
    for a, b in combinations(range(kinds.size), 2):
        for name, column in columns.items():
            known = np.isfinite(column)
            samples = column[(index == a) & known], column[(index == b) & known]
            contrast = _contrast_samples(*samples, assignments, level, n_resamples, rng)
            rows.append(GroupContrast(name, str(kinds[a]), str(kinds[b]), *contrast))
    corrected = correct_p_values([row.p for row in rows], correction)
    return GroupComparison(
        tuple(replace(row, p_corrected=p) for row, p in zip(rows, corrected.tolist(), strict=True)),
        correction,
        level,
        tuple(map(str, names_of)),
        tuple(map(str, labels)),
        columns,
    )


def _read_columns(values: Any, names: Sequence[str] | None) -> dict[str, FloatArray]:
    """Return the quantities as columns (G,) by name."""
    if isinstance(values, Mapping) or hasattr(values, "columns"):
        columns = {str(name): as_floats(values[name], "values") for name in values}
    else:
        array = as_floats(values, "values")
        array = array[:, None] if array.ndim == 1 else array
        if array.ndim != 2:
            raise InvalidParameter.of("values", array.shape, "must have shape (G,) or (G, m)")
        given = [f"quantity {j}" for j in range(array.shape[1])] if names is None else list(map(str, names))
        if len(given) != array.shape[1] or len(set(given)) != len(given):
            raise InvalidParameter.of("names", names, f"must be {array.shape[1]} different names, one per column")
        columns = dict(zip(given, array.T, strict=True))
    shapes = {column.shape for column in columns.values()}
    if len(shapes) != 1 or len(next(iter(shapes))) != 1:
        raise InvalidParameter.of("values", sorted(shapes), "must have columns of equal length, one value per group")
    return columns


def _read_labels(given: Any, name: str, n: int) -> NDArray[Any]:
    """Return one label per group; numbers 0, 1, ... if none are given."""
    if given is None:
        return np.arange(n)
    if np.shape(given) != (n,):
        raise InvalidParameter.of(name, np.shape(given), f"must have {n} entries, one per group")
    labels = as_attribute(given, name, n)
    assert labels is not None  # only for None
    return labels


def condition_of_groups(condition: Any, units: Groups) -> NDArray[Any]:
    """Return the condition (G,) of each group, given one per demonstration or a mapping of groups to conditions.

    Examples
    --------
    >>> condition_of_groups({"ann": "thirsty", "bob": "control"}, Groups.from_labels(["ann", "bob", "ann"], 3)).tolist()
    ['thirsty', 'control']
    """
    if isinstance(condition, Mapping):
        missing = [name for name in units.names.tolist() if name not in condition]
        if missing:
            raise InvalidParameter.of("condition", missing[0], "must have a condition for each group")
        return np.asarray([condition[name] for name in units.names.tolist()])
    return units.reduce(condition, "condition")


def _contrast_samples(
    a: FloatArray,
    b: FloatArray,
    assignments: dict[tuple[int, int], IntArray],
    level: float,
    n_resamples: int,
    rng: np.random.Generator,
) -> tuple[Any, ...]:
    """Return the fields of a `GroupContrast` after its conditions; `assignments` caches enumerations by size."""
    means = [float(x.mean()) if x.size else math.nan for x in (a, b)]
    difference = means[0] - means[1]
    if min(a.size, b.size) < 2:
        return a.size, b.size, *means, difference, *[math.nan] * 4, 0, True
    low, high = difference, difference
    if np.ptp(a) > 0.0 or np.ptp(b) > 0.0:
        for method in ("bca", "percentile"):  # BCa is undefined for some small samples
            low, high = bootstrap((a, b), _subtract_means, level, method, n_resamples, rng)
            if math.isfinite(low) and math.isfinite(high):
                break
    p, n, exact = _permute(a, b, assignments, rng)
    return a.size, b.size, *means, difference, low, high, p, math.nan, n, exact


def _subtract_means(a: FloatArray, b: FloatArray, axis: int = -1) -> Any:
    return a.mean(axis=axis) - b.mean(axis=axis)


def _permute(
    a: FloatArray, b: FloatArray, assignments: dict[tuple[int, int], IntArray], rng: np.random.Generator
) -> tuple[float, int, bool]:
    """Return the two-sided p-value of the permutation test, the number of assignments, and whether they are all."""
    pooled = np.concatenate([a, b])
    # For centred values, the difference of the means is proportional to the sum of the first sample.
    centred = pooled - pooled.mean()
    n, m = centred.size, a.size
    least = abs(float(centred[:m].sum())) - 1e-12 * float(np.abs(centred).sum())
    total = math.comb(n, m)
    if total <= _MOST_ASSIGNMENTS:
        if (n, m) not in assignments:
            flat = chain.from_iterable(combinations(range(n), m))
            assignments[n, m] = np.fromiter(flat, dtype=np.int64, count=total * m).reshape(total, m)
        sums = centred[assignments[n, m]].sum(axis=1)
        return float(np.mean(np.abs(sums) >= least)), total, True
    extreme = 1  # the observed assignment
    for first in range(0, _N_RANDOM, _BLOCK):
        size = min(_BLOCK, _N_RANDOM - first)
        shuffled = rng.permuted(np.broadcast_to(centred, (size, n)), axis=1)
        extreme += int(np.sum(np.abs(shuffled[:, :m].sum(axis=1)) >= least))
    return extreme / (_N_RANDOM + 1), _N_RANDOM + 1, False


def correct_p_values(p: ArrayLike, correction: str = "holm") -> FloatArray:
    """Return p-values (m,) after a correction for their number; nan are neither counted nor changed.

    Examples
    --------
    >>> correct_p_values([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    >>> correct_p_values([0.01, 0.04, 0.03], "benjamini-hochberg").tolist()
    [0.03, 0.04, 0.04]
    """
    check_choice(correction, "correction", tuple(_CORRECTIONS))
    result = np.array(as_floats(p, "p"))
    known = np.isfinite(result)
    if result.ndim != 1 or np.any((result[known] < 0.0) | (result[known] > 1.0)):
        rule = "must be a one-dimensional array of probabilities"
        raise InvalidParameter.of("p", result.tolist(), rule, remedy="nan marks tests without a p-value.")
    if correction == "benjamini-hochberg" and known.any():
        result[known] = stats.false_discovery_control(result[known])
    elif correction == "holm":
        order = np.flatnonzero(known)[np.argsort(result[known], kind="stable")]
        factors = np.arange(order.size, 0, -1)
        result[order] = np.minimum(np.maximum.accumulate(factors * result[order]), 1.0)
    return result
