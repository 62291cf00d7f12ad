"""`limiirl reproduce drivers`: the paper's driver experiment, on files of your own or in the invented city."""

from __future__ import annotations

import json
import math
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from limiirl.cli.bars import told_stages
from limiirl.cli.inputs import check_page
from limiirl.cli.road_inputs import read_matched
from limiirl.errors import InvalidParameter

if TYPE_CHECKING:
    from limiirl.experiments.drivers import DriverResults
    from limiirl.experiments.drivers_plan import DriverData, DriverPlan
    from limiirl.metrics.intervals import Interval

INTERRUPTED = "limiirl: interrupted. What was done is kept; the same command goes on from it."
"""What is said of a run that somebody stopped."""
_CITY_DRIVERS, _CITY_TRIPS, _CITY_TRAIN = 60, 20, 400


def reproduce_drivers(
    files: tuple[Path | None, Path | None],
    out: Path,
    n_splits: int | None,
    n_train: int | None,
    *,
    device: str | None,
    report: bool,
    as_json: bool,
) -> None:
    """Run what the folder does not have yet, print the table, and write the page; `files` are network and matches."""
    from limiirl.experiments.drivers import run_drivers

    check_page(out / "report" if report else None)
    data, plan = _problem(*files, {"n_splits": n_splits, "n_train": n_train, "device": device})
    run = 0
    try:
        with told_stages() as told:

            def tell(done: int, total: int, name: str) -> None:
                nonlocal run
                run += done < total
                told(f"{name} ({done} of {total})")

            results = run_drivers(data, plan, out, tell)
    except KeyboardInterrupt:
        typer.echo(INTERRUPTED, err=True)
        raise typer.Exit(130) from None
    page = _page(data, results, out / "report") if report else None
    if as_json:
        total = len(results.records)
        typer.echo(
            json.dumps(
                {"total": total, "skipped": total - run, "run": run}
                | _plain(results)
                | {"report": None if page is None else str(page)}
            )
        )
        return
    typer.echo(table(results))
    if page is not None:
        typer.echo(f"\nThe report is {page}")


def _plain(results: DriverResults) -> dict[str, Any]:
    """Return settings and figures for JSON: intervals by the names of their parts, null for what is not known."""

    def plain(value: Any) -> Any:
        if isinstance(value, tuple) and hasattr(value, "_asdict"):
            value = value._asdict()
        if isinstance(value, dict):
            return {name: plain(part) for name, part in value.items()}
        return None if isinstance(value, float) and not math.isfinite(value) else value

    rows = [{part.name: plain(getattr(row, part.name)) for part in fields(row)} for row in results.rows()]
    beside = results.baselines("surplus")
    baselines = {
        name: {"missed": plain(missed), "surplus": plain(beside[name])} for name, missed in results.baselines().items()
    }
    return {"plan": results.plan.as_dict(), "rows": rows, "baselines": baselines}


def _problem(
    network: Path | None, matches: Path | None, settings: dict[str, int | str | None]
) -> tuple[DriverData, DriverPlan]:
    """Return the data and the plan; the invented city, with fewer trips, where no files are named."""
    from limiirl.experiments.drivers_plan import DriverData, DriverPlan
    from limiirl.roads import City

    more: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
    if (network is None) != (matches is None):
        raise InvalidParameter("reproduce drivers needs both --network and --matches, or neither: the invented city.")
    if network is None or matches is None:
        city = City()
        demos = city.drive(_CITY_DRIVERS, _CITY_TRIPS, 0).demos
        return DriverData(city.network, demos), DriverPlan(**({"n_train": _CITY_TRAIN, "max_length": 100} | more))
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
    head = ("method", "discount", "splits", "iterations", "minutes", "test NLL", "gain on one", "better", "missed",
            "beside")  # fmt: skip
    lines: list[tuple[str, ...]] = [head]
    for row in results.rows():
        gain = "-" if row.gain is None else _text(row.gain)
        better = "-" if row.gain is None else f"{row.n_better}/{row.gain.n}"
        first, last = (row.iterations, row.minutes, row.nll), (row.missed, row.surplus)
        figures = (*map(_text, first), gain, better, *map(_text, last))
        lines.append((row.method, f"{row.gamma:g}", str(row.n), *figures))
    beside = results.baselines("surplus")
    for name, missed in results.baselines().items():
        lines.append((name, *["-"] * 7, _text(missed), _text(beside[name])))
    widths = [max(len(line[j]) for line in lines) for j in range(len(head))]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(line[1:], widths[1:], strict=True))])
        for line in lines
    )


def _text(found: Interval) -> str:
    """Return a figure with its interval, or alone where there is none."""
    return str(found) if math.isfinite(found.half_width) else f"{found.mean:.4g}"
