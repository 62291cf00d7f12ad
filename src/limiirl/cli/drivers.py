"""`limiirl reproduce drivers`: the paper's driver experiment, on files of your own or in the invented city."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from limiirl.cli.bars import told_stages
from limiirl.cli.road_inputs import read_matched
from limiirl.errors import InvalidParameter

if TYPE_CHECKING:
    from limiirl.experiments.drivers import DriverResults
    from limiirl.experiments.drivers_plan import DriverData, DriverPlan

_CITY_DRIVERS, _CITY_TRIPS, _CITY_TRAIN = 60, 20, 400


def reproduce_drivers(
    network: Path | None, matches: Path | None, out: Path, n_splits: int | None, *, report: bool, as_json: bool
) -> None:
    """Run what the folder does not have yet, print the table, and write the page."""
    from limiirl.experiments.drivers import run_drivers

    data, plan = _problem(network, matches, n_splits)
    with told_stages() as tell:
        results = run_drivers(data, plan, out, lambda done, total, name: tell(f"{name} ({done} of {total})"))
    page = _page(data, results, out / "report") if report else None
    if as_json:
        rows = [asdict(row) for row in results.rows()]
        typer.echo(json.dumps({"rows": rows, "report": None if page is None else str(page)}))
        return
    typer.echo(table(results))
    if page is not None:
        typer.echo(f"\nThe report is {page}")


def _problem(network: Path | None, matches: Path | None, n_splits: int | None) -> tuple[DriverData, DriverPlan]:
    """Return the data and the plan; the invented city, with fewer trips, where no files are named."""
    from limiirl.experiments.drivers_plan import DriverData, DriverPlan
    from limiirl.roads import City

    more: dict[str, Any] = {} if n_splits is None else {"n_splits": n_splits}
    if (network is None) != (matches is None):
        raise InvalidParameter("reproduce drivers needs both --network and --matches, or neither: the invented city.")
    if network is None or matches is None:
        city = City()
        demos = city.drive(_CITY_DRIVERS, _CITY_TRIPS, 0).demos
        return DriverData(city.network, demos), DriverPlan(n_train=_CITY_TRAIN, max_length=100, **more)
    roads, matched = read_matched(network, matches)
    return DriverData(roads, matched.demonstrations()), DriverPlan(**more)


def _page(data: DriverData, results: DriverResults, folder: Path) -> Path:
    from limiirl.files import atomic_write
    from limiirl.report.roads import experiment_report
    from limiirl.report.write import write

    page = write(experiment_report(data, results), folder)
    with atomic_write(folder / "trials.csv") as scratch:
        scratch.write_text(results.to_csv())
    return page


def table(results: DriverResults) -> str:
    """Return the table of the paper as text: iterations, minutes, NLL, and what predicted routes miss."""
    head = ("method", "discount", "splits", "iterations", "minutes", "test NLL", "gain on one", "better", "missed")
    lines: list[tuple[str, ...]] = [head]
    for row in results.rows():
        gain = "-" if row.gain is None else str(row.gain)
        better = "-" if row.gain is None else f"{row.n_better}/{row.gain.n}"
        figures = (str(row.iterations), str(row.minutes), str(row.nll), gain, better, str(row.missed))
        lines.append((row.method, f"{row.gamma:g}", str(row.n), *figures))
    for name, missed in results.baselines().items():
        lines.append((name, *["-"] * 7, str(missed)))
    widths = [max(len(line[j]) for line in lines) for j in range(len(head))]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(line[1:], widths[1:], strict=True))])
        for line in lines
    )
