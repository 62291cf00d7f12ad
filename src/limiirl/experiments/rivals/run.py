"""Trials, records and tables of the comparison with published methods on their own data and splits.

A `RivalPart` is a data set with a split, methods that are fitted to it, and published scores. Each trial fits one
method and scores the data that it has not seen. The settings of our methods are fixed in the modules of the parts; the
trials of `RivalPart.candidates` repeat their selection, within the training data.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from limiirl._progress import Progress
from limiirl._typing import FloatArray
from limiirl.errors import InvalidFile, InvalidParameter, LimiirlWarning
from limiirl.experiments.record import BaseRecord, describe_error
from limiirl.experiments.run import RunCounts, run_trials
from limiirl.experiments.store import Store
from limiirl.experiments.trial import single_threaded
from limiirl.switching import mean_per_step


class Score(NamedTuple):
    """Log-likelihoods (U,) of held-out units, such as recordings, their numbers of decisions (U,), and further figures.

    Attributes
    ----------
    train : float
        Mean log-likelihood per decision of the training data.
    accuracy : float or None
        Fraction of decisions that are assigned to the true intent, if it is known.
    note : str
        Settings that the fit has chosen.
    figures : mapping of str to float
        Further figures by name, such as the edit distance of predicted routes.
    """

    sums: FloatArray
    sizes: FloatArray
    train: float
    accuracy: float | None = None
    note: str = ""
    figures: Mapping[str, float] = MappingProxyType({})


class Published(NamedTuple):
    """Score of a method as published or as measured from its released parameters; its source is cited in a footnote."""

    method: str
    held_out: float
    source: str
    train: float | None = None
    error: float | None = None
    accuracy: float | None = None
    figures: Mapping[str, float] = MappingProxyType({})


class Goal(NamedTuple):
    """A score that our method has to exceed or, with `below`, to stay below.

    `attribute` is that of `RivalRow`, or a name in its figures. The score is that of one `split`, or of all splits.
    """

    text: str
    threshold: float
    attribute: str = "held_out"
    below: bool = False
    split: int | None = None

    def read(self, row: RivalRow) -> float:
        """Return the score of a row."""
        return float(row.figures[self.attribute] if self.attribute in row.figures else getattr(row, self.attribute))

    def is_reached(self, value: float) -> bool:
        """Return True if a score reaches the goal."""
        return value < self.threshold if self.below else value > self.threshold


@dataclass(frozen=True)
class RivalPart:
    """A data set with a split.

    Attributes
    ----------
    name, title, description : str
    folder : str
        Folder of the data.
    unit : str
        What the log-likelihood is divided by, such as "step".
    read : callable
        Reads the folder of the data; raises `InvalidFile` if a file is missing.
    methods : mapping of str to callable
        Methods by name. ``method(data, number)`` fits to the training data of a split and returns a `Score`.
    ours : str
        Name of our method.
    n_splits : int
        Number of splits.
    published : tuple of Published
    goals : tuple of Goal
    candidates : mapping of str to callable
        Settings that were compared to choose those of `ours`, by name. ``candidate(data, number)`` scores a fold of
        the training data.
    chosen : str
        Name of the chosen candidate.
    n_folds : int
    paired : str
        The held-out units, which differences are paired by.
    """

    name: str
    title: str
    description: str
    folder: str
    unit: str
    read: Callable[[Path], Any]
    methods: Mapping[str, Callable[[Any, int], Score]]
    ours: str
    n_splits: int = 1
    published: tuple[Published, ...] = ()
    goals: tuple[Goal, ...] = ()
    candidates: Mapping[str, Callable[[Any, int], Score]] = field(default_factory=dict)
    chosen: str = ""
    n_folds: int = 5
    paired: str = "recording"

    def trials(self, *, select: bool = False) -> Iterator[tuple[RivalSpec, int]]:
        """Yield the trials (settings, number of the split or fold), those of the selection first."""
        if select:
            for name in self.candidates:
                yield from ((RivalSpec(self.name, name, selection=True), fold) for fold in range(self.n_folds))
        for name in self.methods:
            yield from ((RivalSpec(self.name, name), split) for split in range(self.n_splits))


@dataclass(frozen=True)
class RivalSpec:
    """Settings of a trial: a part, and the name of a method or, for `selection`, of a candidate."""

    part: str
    method: str
    selection: bool = False

    @cached_property
    def hash(self) -> str:
        """Hash of the settings, in 16 hexadecimal digits."""
        return hashlib.sha256(json.dumps([self.part, self.method, self.selection]).encode()).hexdigest()[:16]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> RivalSpec:
        """Inverse of `to_dict`."""
        return cls(**content)


@dataclass(frozen=True)
class RivalRecord(BaseRecord):
    """Outcome of one trial; its seed is the number of the split or fold.

    Attributes
    ----------
    sums, sizes : (U,)
        Log-likelihood and number of decisions of each held-out unit.
    train : float
    accuracy : float or None
    note : str
    seconds : float
        Processor time of the fit and of the scores.
    """

    sums: list[float] = field(default_factory=list)
    sizes: list[float] = field(default_factory=list)
    train: float = math.nan
    accuracy: float | None = None
    note: str = ""
    seconds: float = math.nan
    figures: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class RivalRow:
    """Row of a table: a fitted method, a published score, or a candidate of the selection.

    Attributes
    ----------
    held_out, error : float
        Held-out log-likelihood per decision, and its standard error, clustered by unit.
    gain, gain_error : float
        Our held-out score minus this one, on the same units, and its standard error; nan for published scores.
    train, accuracy, seconds : float
        nan if unknown.
    n_units, n_splits : int
    source : str
        Empty for fitted methods.
    figures : mapping of str to float
        Means over the splits.
    """

    method: str
    held_out: float
    error: float = math.nan
    gain: float = math.nan
    gain_error: float = math.nan
    train: float = math.nan
    accuracy: float = math.nan
    seconds: float = math.nan
    n_units: int = 0
    n_splits: int = 0
    source: str = ""
    note: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class RivalResults:
    """Records of the trials of a part.

    Attributes
    ----------
    part : RivalPart
    records : dict of (str, bool) to list of RivalRecord
        Successful records by method and `selection`, in the order of the splits.
    failures : tuple of RivalRecord
    """

    part: RivalPart
    records: dict[tuple[str, bool], list[RivalRecord]]
    failures: tuple[RivalRecord, ...] = ()

    def rows(self) -> list[RivalRow]:
        """Return the published scores and the fitted methods, in the order of their scores."""
        rows = [
            RivalRow(
                p.method,
                p.held_out,
                error=math.nan if p.error is None else p.error,
                train=math.nan if p.train is None else p.train,
                accuracy=math.nan if p.accuracy is None else p.accuracy,
                source=p.source,
                figures=dict(p.figures),
            )
            for p in self.part.published
        ]
        rows += self._summarise(list(self.part.methods), self.part.ours, self.part.n_splits, selection=False)
        return sorted(rows, key=lambda row: row.held_out)

    def candidates(self) -> list[RivalRow]:
        """Return the candidates of the selection, in the order of the part; empty unless they were run."""
        return self._summarise(list(self.part.candidates), self.part.chosen, self.part.n_folds, selection=True)

    def _summarise(self, names: list[str], reference: str, n_splits: int, *, selection: bool) -> list[RivalRow]:
        ours = self.records.get((reference, selection), [])
        rows = []
        for name in names:
            records = self.records.get((name, selection), [])
            if len(records) == n_splits:
                rows.append(_make_row(name, records, ours if len(ours) == n_splits else []))
        return rows

    @property
    def ours(self) -> RivalRow | None:
        """The row of our method, if its trials are complete."""
        return next((row for row in self.rows() if row.method == self.part.ours and not row.source), None)

    def goals(self) -> list[tuple[Goal, float, bool]]:
        """Return each goal with our figure, and whether it is reached."""
        row = self.ours
        if row is None:
            return []
        each = [_make_row(row.method, [record], []) for record in self.records[row.method, False]]
        values = [goal.read(row if goal.split is None else each[goal.split]) for goal in self.part.goals]
        return [(goal, value, goal.is_reached(value)) for goal, value in zip(self.part.goals, values, strict=True)]

    def to_csv(self) -> str:
        """Return the held-out log-likelihood of each unit and method in CSV format."""
        lines = ["part,method,selection,split,unit,log_likelihood,decisions"]
        for (method, selection), records in self.records.items():
            for record in records:
                for unit, (total, size) in enumerate(zip(record.sums, record.sizes, strict=True)):
                    cells = [self.part.name, method, selection, record.seed, unit, total, size]
                    lines.append(",".join(json.dumps(cell) for cell in cells))
        return "\n".join(lines) + "\n"


def _make_row(name: str, records: Sequence[RivalRecord], ours: Sequence[RivalRecord]) -> RivalRow:
    sums, sizes = _join(records)
    held_out, error = mean_per_step(sums, sizes)
    gain, gain_error = mean_per_step(_join(ours)[0] - sums, sizes) if ours else (math.nan, math.nan)
    known = [record.accuracy for record in records if record.accuracy is not None]
    return RivalRow(
        name,
        held_out,
        error,
        gain,
        gain_error,
        train=float(np.mean([record.train for record in records])),
        accuracy=float(np.mean(known)) if known else math.nan,
        seconds=float(np.sum([record.seconds for record in records])),
        n_units=sums.size,
        n_splits=len(records),
        note=records[0].note if len(records) == 1 else "",
        figures={name: float(np.mean([r.figures[name] for r in records])) for name in records[0].figures},
    )


def _join(records: Sequence[RivalRecord]) -> tuple[FloatArray, FloatArray]:
    """Return the log-likelihoods and sizes (U,) of the units of all records."""
    return np.concatenate([r.sums for r in records]), np.concatenate([r.sizes for r in records])


@dataclass(eq=False)
class _Attempt:
    """Callable that runs a trial on the data of a part."""

    part: RivalPart
    data: Any

    def __call__(self, trial: tuple[RivalSpec, int]) -> RivalRecord:
        spec, number = trial
        method = (self.part.candidates if spec.selection else self.part.methods)[spec.method]
        try:
            start = time.process_time()
            with single_threaded(), warnings.catch_warnings():
                warnings.simplefilter("ignore", LimiirlWarning)  # fits of many settings, most of which are not used
                score = method(self.data, number)
            return RivalRecord(
                spec.hash,
                number,
                sums=score.sums.tolist(),
                sizes=score.sizes.tolist(),
                train=score.train,
                accuracy=score.accuracy,
                note=score.note,
                seconds=time.process_time() - start,
                figures=dict(score.figures),
            )
        except Exception as error:  # noqa: BLE001 (any error is recorded and must not stop other trials)
            return RivalRecord(spec.hash, number, *describe_error(error))


def run_rivals(
    parts: Sequence[RivalPart],
    data: str | PathLike[str],
    folder: str | PathLike[str],
    *,
    select: bool = False,
    retry_failed: bool = False,
    progress: Progress | None = None,
) -> tuple[list[RivalResults], RunCounts]:
    """Run the trials of some parts that are missing from a run folder; return the results, and the numbers of trials.

    Parameters
    ----------
    parts : sequence of RivalPart
    data : path
        Folder that contains the folders of the parts.
    folder : path
        Run folder, created if absent; an interrupted run is resumed.
    select : bool
        Whether to repeat the selection of the settings of our methods.
    retry_failed : bool
        Whether to run failed trials again.
    progress : callable, optional
        Called as ``progress(done, total, message)`` after each trial.
    """
    root = Path(data)
    contents = {part.name: _read(part, root) for part in parts}  # before the run folder is created
    store = _open(folder, create=True)
    counts = RunCounts(sum(len(list(part.trials(select=select))) for part in parts))
    for part in parts:
        trials = list(part.trials(select=select))
        attempt = _Attempt(part, contents[part.name])
        shifted = None if progress is None else _shift(progress, part.name, counts)
        own = run_trials(trials, store, attempt, retry_failed=retry_failed, progress=shifted)
        counts.done += own.done
        counts.skipped += own.skipped
        counts.failed_before += own.failed_before
        counts.failures += own.failures
    return [_results(part, store) for part in parts], counts


def _shift(progress: Progress, name: str, counts: RunCounts) -> Progress:
    """Return the progress of the trials of a part as that of all trials; `counts` has those of earlier parts."""
    before = counts.done + counts.skipped

    def report(done: int, total: int | None, message: str, /) -> None:
        del total
        progress(before + done, counts.total, ", ".join(filter(None, [name, message])))

    return report


def _read(part: RivalPart, root: Path) -> Any:
    folder = root / part.folder
    if not folder.is_dir():
        raise InvalidFile(
            f"data must contain the folder {part.folder} for the part {part.name!r}; {root} does not. Choose other "
            "parts with --part, or pass another folder.",
            parameter="data",
            value=str(root),
        )
    return part.read(folder)


def read_rivals(parts: Sequence[RivalPart], folder: str | PathLike[str]) -> list[RivalResults]:
    """Read the results of some parts, which may be incomplete, from a run folder."""
    store = _open(folder, create=False)
    return [_results(part, store) for part in parts]


def _open(folder: str | PathLike[str], *, create: bool) -> Store[RivalRecord]:
    return Store(folder, create=create, record=RivalRecord, spec=RivalSpec)


def _results(part: RivalPart, store: Store[RivalRecord]) -> RivalResults:
    stored = {record.key: record for record in store.read()}
    records: dict[tuple[str, bool], list[RivalRecord]] = {}
    failures = []
    for spec, number in part.trials(select=True):
        record = stored.get((spec.hash, number))
        if record is not None and record.failed:
            failures.append(record)
        elif record is not None:
            records.setdefault((spec.method, spec.selection), []).append(record)
    return RivalResults(part, records, tuple(failures))


def choose_parts(names: Sequence[str], parts: Mapping[str, RivalPart]) -> list[RivalPart]:
    """Return the parts with some names; all parts if there are none."""
    for i, name in enumerate(names):
        if name not in parts:
            raise InvalidParameter.of("part", name, f"must be one of {', '.join(parts)}", index=i)
    return [part for name, part in parts.items() if name in names or not names]
