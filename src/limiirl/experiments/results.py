"""Records of a study as arrays over worlds, and the values reported in the paper."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from limiirl._io import to_pandas
from limiirl._typing import FloatArray, IntArray
from limiirl.demos import Demonstrations
from limiirl.errors import InvalidParameter
from limiirl.experiments.record import FIELDS, Record
from limiirl.experiments.spec import Point, Spec, Study
from limiirl.metrics import Comparison, Interval, agrees_with, compare_paired, mean_interval
from limiirl.worlds import WORLDS, IntentWorld

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Cell = tuple[str, Point | tuple[Point, ...]]
"""A method at one point of a study's axis, or at several points over which measures are averaged within each world."""

MEASURES = {"n_iter": "iterations", "seconds": "seconds", "nll": "NLL", "anid": "ANID", "gevd": "GEVD"}
"""Measures that the paper reports, by their names in a record."""

TIES = {"nll": 1e-4, "anid": 1e-4, "gevd": 1e-3}
"""Largest differences that count as ties, by measure. EM runs that converge to the same solution differ by less."""


@dataclass(frozen=True)
class GevdFlow:
    """GEVD of a method, with the flow and the EVD between true intents (rows) and learned intents (columns)."""

    init: str
    value: float
    flow: list[list[float]]
    evd: list[list[float]]


@dataclass(frozen=True)
class WorldExample:
    """One world of a study: its demonstrations, the true ensemble, and the mixture fitted from the warm start.

    Learned intents are in the order of the true intents. `spec` is the specification of the warm start; `flows` maps
    methods to their GEVD.
    """

    seed: int
    spec: Spec
    states: list[int]
    offsets: list[int]
    labels: list[int]
    responsibilities: list[list[float]]
    weights: list[float]
    thetas: list[list[float]]
    true_weights: list[float]
    true_thetas: list[list[float]]
    feature_names: list[str]
    flows: dict[str, GevdFlow]

    @property
    def world(self) -> IntentWorld:
        """The world, generated from its seed."""
        world: IntentWorld = WORLDS[self.spec.world](**dict(self.spec.world_parameters), seed=self.seed)
        return world

    @property
    def demos(self) -> Demonstrations:
        """Training demonstrations."""
        return Demonstrations(np.array(self.states), np.array(self.offsets))

    @property
    def learned_labels(self) -> IntArray:
        """Most likely intents (N,)."""
        return np.asarray(np.argmax(self.responsibilities, axis=1), dtype=np.int64)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self) | {"spec": self.spec.to_dict()}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> WorldExample:
        """Inverse of `to_dict`."""
        flows = {method: GevdFlow(**flow) for method, flow in content["flows"].items()}
        return cls(**(content | {"spec": Spec.from_dict(content["spec"]), "flows": flows}))


@dataclass(frozen=True, eq=False, repr=False)
class Results:
    """Records of one study by (hash of the specification, seed), and the example world, if stored."""

    study: Study
    records: dict[tuple[str, int], Record]
    example: WorldExample | None = None

    @classmethod
    def of(cls, study: Study, records: Iterable[Record]) -> Results:
        """Create the results of a study from the records of one or more studies."""
        hashes = {spec.hash for spec in study.specs}
        return cls(study, {record.key: record for record in records if record.spec in hashes})

    def __repr__(self) -> str:
        return f"Results({self.study.name!r}: {len(self.records)} records, {len(self.seeds)} complete worlds)"

    @cached_property
    def seeds(self) -> tuple[int, ...]:
        """Seeds of the worlds in which every setting has a record."""
        tried = [{seed for key, seed in self.records if key == spec.hash} for spec in self.study.specs]
        return tuple(sorted(set.intersection(*tried)))

    @property
    def failures(self) -> list[Record]:
        """Records of failed trials."""
        return [record for record in self.records.values() if record.failed]

    def record(self, method: str, x: Point, seed: int) -> Record | None:
        """Return the record of one trial, or None if there is none."""
        spec = self.study.spec(method, x)
        return None if spec is None else self.records.get((spec.hash, seed))

    def values(self, method: str, x: Point | tuple[Point, ...], measure: str) -> FloatArray:
        """Return the values (n,) of a measure in the worlds, nan if missing; several points are averaged in each world.

        The number of iterations and the duration of the supervised baseline are nan.
        """
        if isinstance(x, tuple):
            return np.asarray(np.mean([self.values(method, point, measure) for point in x], axis=0))
        if measure not in FIELDS and measure not in MEASURES:
            raise InvalidParameter.of("measure", measure, f"must be one of {', '.join(FIELDS)}")
        spec = self.study.spec(method, x)
        if spec is None:
            methods, points = ", ".join(self.study.methods), ", ".join(map(str, self.study.points))
            rule = f"must be a method and a point of {self.study.name} (methods: {methods}; points: {points})"
            raise InvalidParameter.of("method", (method, x), rule)
        if spec.supervised and measure in ("n_iter", "seconds"):
            return np.full(len(self.seeds), np.nan)
        records = [self.record(method, x, seed) for seed in self.seeds]
        values = [None if record is None else getattr(record, measure) for record in records]
        return np.array([np.nan if value is None else value for value in values], dtype=np.float64)

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one row per trial: method, point, seed, error and all measures.

        Fields that are lists, such as the history, are omitted.
        """
        trials = [
            ({"method": method, "point": x}, self.record(method, x, seed))
            for method in self.study.methods
            for x in self.study.points
            for seed in sorted({seed for _, seed in self.records})
        ]
        rows = [(setting, record) for setting, record in trials if record is not None]
        columns: dict[str, Any] = {name: [setting[name] for setting, _ in rows] for name in ("method", "point")}
        for name in FIELDS:
            values = [getattr(record, name) for _, record in rows]
            if name not in ("spec", "trace") and not any(isinstance(value, list | tuple) for value in values):
                columns[name] = values
        return to_pandas(columns)

    def plot(self, measures: Sequence[str] | None = None) -> Figure:
        """Plot measures by method: means with 95 % intervals if the axis is numeric, otherwise box plots.

        Parameters
        ----------
        measures : sequence of str, optional
            Names in `limiirl.experiments.MEASURES`, or "accuracy". The default is all measures with values.

        Returns
        -------
        matplotlib.figure.Figure
        """
        from limiirl.report.studies import plot_results

        return plot_results(self, measures).figure

    def interval(self, method: str, x: Point, measure: str) -> Interval | None:
        """Return the mean over worlds with its 95 % interval, or None if there are fewer than two worlds."""
        values = self.finite(method, x, measure)
        return mean_interval(values) if values.size > 1 else None

    def finite(self, method: str, x: Point, measure: str) -> FloatArray:
        """Return the values of a measure that are not missing."""
        values = self.values(method, x, measure)
        return values[np.isfinite(values)]

    def compare(self, first: Cell, second: Cell, measure: str, level: float = 0.99) -> Comparison | None:
        """Compare two cells over their common worlds; return None if there are fewer than two common worlds."""
        a, b = (self.values(method, x, measure) for method, x in (first, second))
        both = np.isfinite(a) & np.isfinite(b)
        names = (first[0], second[0])
        if first[1] != second[1]:
            names = (f"{first[0]} at {first[1]}", f"{second[0]} at {second[1]}")
        if both.sum() < 2:
            return None
        return compare_paired(a[both], b[both], names, level=level, tie=TIES.get(measure, 0.0))


class Reported(NamedTuple):
    """A mean printed in the paper, the half-width of its interval, and its rounding error."""

    mean: float
    half_width: float
    rounding: float = 0.005


NAMES = MappingProxyType(
    {
        "k-means, MLE": "LiMIIRL-MLE",
        "k-means, mean": "LiMIIRL-Mean",
        "random rewards": "Random",
        "supervised": "Supervised",
    }
)
"""Names of the methods in the paper."""

_REPORTED = {
    "k-means, MLE": ((3.41, 0.70), (33.20, 6.745), (19.65, 0.32), (0.03, 0.005), (3.70, 0.555)),
    "k-means, mean": ((5.08, 0.565), (21.86, 3.325), (19.76, 0.225), (0.04, 0.005), (4.49, 0.49)),
    "random rewards": ((17.22, 2.40), (136.58, 19.845), (20.05, 0.355), (0.13, 0.035), (6.75, 1.045)),
    "supervised": (None, None, (19.65, 0.33), (0.04, 0.005), (3.65, 0.635)),
}
TABLE1 = MappingProxyType(
    {
        method: {measure: Reported(*cell) for measure, cell in zip(MEASURES, row, strict=True) if cell is not None}
        for method, row in _REPORTED.items()
    }
)
"""Values of Table 1 for ElementWorld, by method and measure."""

TARGETS = ("nll", "anid", "gevd")
"""Measures that should agree with the paper. Iterations are excluded, because the paper's gradient is inexact."""


def verdict(ours: Interval, reported: Reported) -> str:
    """Return "agrees", "in rounding" (agreement within the rounding error of the printed value) or "differs".

    Examples
    --------
    >>> verdict(Interval(0.043, 0.007, 0.036, 0.05, 100), TABLE1["k-means, MLE"]["anid"])
    'in rounding'
    """
    target = (reported.mean, reported.half_width)
    if agrees_with(ours, target):
        return "agrees"
    return "in rounding" if agrees_with(ours, target, reported.rounding) else "differs"
