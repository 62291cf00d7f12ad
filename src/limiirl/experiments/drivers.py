"""The driver experiment: run what a folder does not have yet, and say what came of it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np

from limiirl._io import atomic_write
from limiirl.errors import InvalidFile, InvalidParameter
from limiirl.experiments.drivers_trial import (
    DESTINATION_METHODS,
    DRIVER_METHODS,
    DriverData,
    DriverPlan,
    DriverRecord,
    Trial,
    baseline_distances,
    run_driver_trial,
)
from limiirl.irl import choose_device
from limiirl.metrics import Interval, mean_interval

_PLAN = "drivers.json"
_FORMAT = "limiirl.drivers"
Tell = Callable[[int, int, str], None]


@dataclass(frozen=True)
class DriverRow:
    """One line of the table: a method at a discount, over the splits that were run.

    Attributes
    ----------
    method, gamma : str, float
    n : int
        Splits.
    iterations, minutes, nll, missed, surplus : Interval
        M-steps after the start; wall time of start and EM; NLL of the test trips, a trip; share of the driven distance
        that predicted routes leave out, and of the predicted distance that is off the driven route. Of a single split,
        the mean alone: the rest is NaN. Splits overlap, so that intervals are too narrow.
    gain : Interval or None
        NLL of one intent less that of this method, split by split; None for one intent itself.
    n_better : int
        Splits in which the gain is above 0.
    """

    method: str
    gamma: float
    n: int
    iterations: Interval
    minutes: Interval
    nll: Interval
    missed: Interval
    surplus: Interval
    gain: Interval | None
    n_better: int


@dataclass(frozen=True, eq=False)
class DriverResults:
    """The records of a driver experiment, in the order of the plan's trials."""

    plan: DriverPlan
    records: tuple[DriverRecord, ...]

    def of(self, method: str, gamma: float) -> tuple[DriverRecord, ...]:
        """Return the records of one method at one discount, by split."""
        return tuple(r for r in self.records if r.method == method and r.gamma == gamma)

    def best(self, method: str, gamma: float, split: int | None = None) -> DriverRecord:
        """Return the record whose training trips are explained best, as the paper shows it; or that of one split.

        Training trips differ between splits: methods are compared within one.
        """
        found = [record for record in self.of(method, gamma) if split is None or record.split == split]
        if not found:
            where = "" if split is None else f" in split {split}"
            raise InvalidParameter(
                f"No trial of {method!r} at discount {gamma:g} has been run{where}. Run the experiment first."
            )
        return min(found, key=lambda record: record.train_nll)

    def rows(self) -> list[DriverRow]:
        """Return the table's lines of which at least one split has been run."""
        kinds = [(DRIVER_METHODS, gamma) for gamma in self.plan.gammas] + [(DESTINATION_METHODS, 1.0)]
        rows = []
        for methods, gamma in kinds:
            one, *_ = methods
            single = {record.split: record.test_nll for record in self.of(one, gamma)}
            for method in methods:
                found = self.of(method, gamma)
                gains = [single[r.split] - r.test_nll for r in found if r.split in single and method != one]
                if found:
                    rows.append(_row(method, gamma, found, gains))
        return rows

    def baselines(self, what: Literal["missed", "surplus"] = "missed") -> dict[str, Interval]:
        """Return what the shortest and the fastest routes miss of driven ones, over splits, or have beside them."""
        by_split = {record.split: record for record in self.records}
        if not by_split:
            return {}
        return {
            f"shortest {kind}": _over([getattr(record, f"{what}_{kind}") for record in by_split.values()])
            for kind in ("distance", "time")
        }

    def to_csv(self) -> str:
        """Return a line a trial, rewards and histories left out."""
        head = [name for name in DriverRecord.__dataclass_fields__ if name not in ("weights", "thetas", "history")]
        lines = [",".join(head)]
        for record in self.records:
            values = record.as_dict()
            lines.append(",".join(json.dumps(values[name]) for name in head))
        return "\n".join(lines) + "\n"


def _row(method: str, gamma: float, found: Sequence[DriverRecord], gains: list[float]) -> DriverRow:
    minutes = [(record.seconds_start + record.seconds_em) / 60.0 for record in found]
    return DriverRow(
        method,
        gamma,
        len(found),
        iterations=_over([float(record.n_iter) for record in found]),
        minutes=_over(minutes),
        nll=_over([record.test_nll for record in found]),
        missed=_over([record.missed for record in found]),
        surplus=_over([record.surplus for record in found]),
        gain=_over(gains) if gains else None,
        n_better=int(np.sum(np.array(gains) > 0.0)),
    )


def _over(values: list[float]) -> Interval:
    """Return the mean with its interval, which one value alone does not have."""
    return mean_interval(values) if len(values) > 1 else Interval(values[0], math.nan, math.nan, math.nan, 1)


def run_drivers(
    data: DriverData,
    plan: DriverPlan,
    folder: str | PathLike[str],
    tell: Tell | None = None,
    splits: Sequence[int] | None = None,
) -> DriverResults:
    """Run every trial of a plan that the folder does not have, and return all.

    Each trial is a file of its own, written whole: a run that was stopped goes on where it was. A folder belongs to one
    plan and one set of trips; another is refused.

    Parameters
    ----------
    data : DriverData
    plan : DriverPlan
    folder : path
        Made if absent.
    tell : callable, optional
        Called as ``tell(done, total, name)`` before each trial, and once at the end.
    splits : sequence of int, optional
        Run only these, so that several machines or processes can share the work of one folder.
    """
    place = Path(folder)
    unknown = sorted(set(splits or ()) - set(range(plan.n_splits)))
    if unknown:
        raise InvalidParameter(f"splits are numbered 0 to {plan.n_splits - 1}; there is no {unknown[0]}.")
    # A GPU that is not there, too few trips, and features that the network does not have, are told before a folder is
    # made.
    choose_device(plan.device, 0)
    data.split(plan, 0)
    data.mdp(plan, next(plan.trials()))
    _claim(place, {"format": _FORMAT, "plan": plan.as_dict(), "data": data.fingerprint()})
    trials = [trial for trial in plan.trials() if splits is None or trial.split in splits]
    baselines = cache(lambda split: baseline_distances(data, plan, split))  # the methods of a split share them
    records = []
    for done, trial in enumerate(trials):
        record = _read(place, trial)
        if record is None:
            if tell is not None:
                tell(done, len(trials), trial.name)
            record = run_driver_trial(data, plan, trial, baselines(trial.split))
            with atomic_write(_file(place, trial)) as scratch:
                scratch.write_text(json.dumps(record.as_dict(), indent=1) + "\n")
        records.append(record)
    if tell is not None:
        tell(len(trials), len(trials), "done")
    return DriverResults(plan, tuple(records))


def read_drivers(folder: str | PathLike[str]) -> DriverResults:
    """Return what a folder has of a driver experiment, finished or not."""
    place = Path(folder)
    try:
        written = json.loads((place / _PLAN).read_text())
        given: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in written["plan"].items()}
        plan = DriverPlan(**given)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidFile(
            f"{place} is not the folder of a driver experiment ({error!s:.100}). Name one that "
            "`limiirl reproduce drivers` wrote."
        ) from error
    found = (_read(place, trial) for trial in plan.trials())
    return DriverResults(plan, tuple(record for record in found if record is not None))


def _claim(place: Path, wanted: dict[str, Any]) -> None:
    """Make a folder that of one plan and one set of trips, or check that it is."""
    file = place / _PLAN
    (place / "trials").mkdir(parents=True, exist_ok=True)
    if file.exists():
        try:
            written = json.loads(file.read_text())
        except ValueError as error:
            raise InvalidFile(
                f"{file} is damaged ({error!s:.100}), so that nobody knows what its trials are of. Choose another "
                "folder, or remove it."
            ) from error
        plan = written.get("plan") if isinstance(written, dict) else None
        plan = {"device": "cpu"} | plan if isinstance(plan, dict) else {}  # plans did not name one at first
        if not plan or written | {"plan": plan} != wanted:
            named = [name for name, value in wanted["plan"].items() if plan.get(name) != value]
            raise InvalidFile(
                f"{place} holds a driver experiment with other settings or other trips: it differs in "
                f"{', '.join(named) or 'trips'}. Choose another folder, or remove it."
            )
        return
    with atomic_write(file) as scratch:
        scratch.write_text(json.dumps(wanted, indent=1) + "\n")


def _file(place: Path, trial: Trial) -> Path:
    return place / "trials" / f"{trial.name}.json"


def _read(place: Path, trial: Trial) -> DriverRecord | None:
    file = _file(place, trial)
    if not file.exists():
        return None
    try:
        record = DriverRecord.from_dict(json.loads(file.read_text()))
    except (ValueError, TypeError) as error:
        raise InvalidFile(f"{file} is damaged: {error!s:.200} Remove it; the trial is then run again.") from error
    if (record.split, record.method, record.gamma) != (trial.split, trial.method, trial.gamma):
        raise InvalidFile(
            f"{file} holds {record.method!r} at discount {record.gamma:g} in split {record.split}: it was renamed or "
            "copied. Remove it; the trial is then run again."
        )
    return record
