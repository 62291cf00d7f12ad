"""`limiirl reproduce` and `limiirl report`: the paper's experiments and those beyond, from scratch or resumed."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from limiirl._progress import show_progress
from limiirl.cli.inputs import check_page
from limiirl.cli.options import ExecutorName, Scheduler, Workers, resolve_executor
from limiirl.cli.roads_inputs import read_matched
from limiirl.errors import InvalidFile, InvalidParameter

if TYPE_CHECKING:
    from limiirl.executors import Executor
    from limiirl.experiments import DriverData, DriverPlan, DriverResults, Record, RunCounts, Store
    from limiirl.metrics import Interval


INTERRUPTED = "limiirl: interrupted. What was done is kept; the same command goes on from it."
"""Message of an interrupted run."""
_CITY_DRIVERS, _CITY_TRIPS, _CITY_TRAIN = 60, 20, 400


def reproduce_drivers(
    files: tuple[Path | None, Path | None],
    out: Path,
    settings: dict[str, int | str | None],
    executor: Executor | None,
    *,
    retry_failed: bool,
    report: bool,
    as_json: bool,
) -> None:
    """Run what the folder does not have yet, print the table, and write the page; `files` are network and matches."""
    from limiirl.experiments import run_drivers

    check_page(out / "report" if report else None)
    data, plan = _read_problem(*files, settings)
    with _interruptible(), show_progress("drivers", every_s=0.0) as progress:
        results = run_drivers(data, plan, out, progress, executor=executor, retry_failed=retry_failed)
    assert results.counts is not None  # of this run
    _report_failures(results.counts)
    page = _write_drivers(data, results, out / "report") if report else None
    if as_json:
        content = _count_trials(results.counts) | _plain(results) | {"report": None if page is None else str(page)}
        typer.echo(json.dumps(content))
    else:
        typer.echo(table(results))
        if page is not None:
            typer.echo(f"\nThe report is {page}")
    if results.counts.failed:
        raise typer.Exit(1)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Turn an interrupt into a message and the exit status of a shell."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(INTERRUPTED, err=True)
        raise typer.Exit(130) from None


def _report_failures(counts: RunCounts) -> None:
    for record in counts.failed:
        typer.echo(f"limiirl: trial {record.spec} with seed {record.seed} failed: {record.error}", err=True)


def _count_trials(counts: RunCounts) -> dict[str, Any]:
    """Return the counts of a run for JSON."""
    failed = [{"spec": r.spec, "seed": r.seed, "error": r.error} for r in counts.failed]
    return {
        "total": counts.total,
        "skipped": counts.skipped,
        "run": counts.done,
        "failed_before": counts.failed_before,
        "failed": failed,
    }


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


def _read_problem(
    network: Path | None, matches: Path | None, settings: dict[str, int | str | None]
) -> tuple[DriverData, DriverPlan]:
    """Return the data and the plan; the invented city, with fewer trips, where no files are named."""
    from limiirl.experiments import DriverData, DriverPlan
    from limiirl.roads import City

    more: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
    if (network is None) != (matches is None):
        raise InvalidParameter(
            "reproduce drivers needs both --network and --matches, or neither: the invented city.", parameter="network"
        )
    if network is None or matches is None:
        city = City()
        demos = city.drive(_CITY_DRIVERS, _CITY_TRIPS, 0).demos
        return DriverData(city.network, demos), DriverPlan(**({"n_train": _CITY_TRAIN, "max_length": 100} | more))
    roads, matched = read_matched(network, matches)
    return DriverData(roads, matched.demonstrations()), DriverPlan(**more)


def _write_drivers(data: DriverData, results: DriverResults, folder: Path) -> Path:
    from limiirl._io import atomic_write
    from limiirl.experiments import driver_example
    from limiirl.report.page import write
    from limiirl.report.roads import experiment_report

    page = write(experiment_report(data, results, driver_example(data, results)), folder)
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


Names = Annotated[
    list[str],
    typer.Argument(
        help="table1, boxplots, demos, wind, clusters, elements, imbalance, margin, mlirl, sigma-girl: the paper's, or "
        "all for all of these; beyond-models, beyond-elements, beyond-wind: not the paper's, or beyond for these. "
        "models is boxplots, mlirl and sigma-girl. `all beyond` is everything of these. drivers, by itself: the "
        "paper's driver experiment on your own files."
    ),
]


def reproduce(  # noqa: PLR0913 (a command's options, each with a default)
    context: typer.Context,
    studies: Names,
    out: Annotated[Path, typer.Option("--out", "-o", help="Run folder; what it has is not done again.")] = Path("run"),
    repeats: Annotated[
        int | None,
        typer.Option(
            help="Worlds a study. By default 100 of table1, boxplots and beyond-models, 40 of sigma-girl, 10 of "
            "margin, 20 of others; splits of drivers, 8 by default."
        ),
    ] = None,
    network: Annotated[Path | None, typer.Option(help="drivers: an .npz of `limiirl roads build`.")] = None,
    matches: Annotated[Path | None, typer.Option(help="drivers: an .npz of `limiirl roads match`.")] = None,
    train: Annotated[
        int | None, typer.Option(help="drivers: trips to learn from in a split; 1,000 by default, 400 in the city.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="drivers: where to compute, cpu, gpu, or auto (a GPU where it is worth it).")
    ] = None,
    workers: Workers = None,
    executor: ExecutorName = "local",
    scheduler: Scheduler = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run again what ended in an error.")] = False,
    report: Annotated[bool, typer.Option(help="Write the report when all is done.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Run the paper's experiments, or those that go beyond it, and write a report of them.

    A run that was stopped, or killed, goes on where it was: call it again with the same folder.

    Example: limiirl reproduce table1 --repeats 100 --out run
    """
    if studies == ["drivers"]:
        # By default one trial after the other, on all cores of this machine; with an executor on one thread each.
        chosen_executor = workers is not None or executor != "local" or scheduler is not None
        reproduce_drivers(
            (network, matches),
            out,
            {"n_splits": repeats, "n_train": train, "device": device},
            resolve_executor(executor, workers, scheduler) if chosen_executor else None,
            retry_failed=retry_failed,
            report=report,
            as_json=as_json,
        )
        return
    if any(given is not None for given in (network, matches, train, device)):
        raise InvalidParameter(
            "--network, --matches, --train and --device are of `limiirl reproduce drivers`, by itself. Worlds of the "
            "other studies are far below the size from which a GPU gains.",
            parameter="studies",
        )
    if "drivers" in studies:
        raise InvalidParameter(
            "drivers runs by itself: call `limiirl reproduce drivers`, and the other studies apart.",
            parameter="studies",
            value="drivers",
        )
    from limiirl.experiments import Store, choose, findings, run_studies, tasks
    from limiirl.report.studies import gather, summarise_run

    chosen = choose(studies)
    placed = resolve_executor(executor or "local", workers, scheduler)  # before the folder is touched
    seeds = {seed for _, seed in tasks(chosen, repeats)}
    store = Store(out)
    # The address of a cluster does not belong in a report.
    words = [word.replace(scheduler, "ADDRESS") if scheduler else word for word in context.obj]
    names = [study.name for study in chosen]
    store.note(["limiirl", *words], sorted(seeds), names)
    with _interruptible(), show_progress(", ".join(names)) as progress:
        counts = run_studies(chosen, store, placed, repeats, retry_failed=retry_failed, progress=progress)
    _report_failures(counts)
    page = _write_report(store, out / "report") if report else None
    if as_json:
        verdicts = [asdict(finding) for results in gather(store, chosen) for finding in findings(results)]
        more = {"findings": verdicts, "report": None if page is None else str(page)}
        typer.echo(json.dumps(_count_trials(counts) | more))
    else:
        typer.echo(summarise_run(store, chosen))
        typer.echo(_summarise_counts(counts))
        if page is not None:
            typer.echo(f"The report is {page}")
    if counts.failed:
        raise typer.Exit(1)


def report(
    run: Annotated[Path, typer.Argument(help="A run folder that `limiirl reproduce` wrote.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder of the report; RUN/report by default.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Write the report of a run: one page, its figures as SVG, PNG and CSV, its tables as LaTeX, Markdown and CSV.

    Example: limiirl report run --out report
    """
    from limiirl.experiments import Store, read_drivers

    try:
        results = read_drivers(run)
    except InvalidFile:
        store = Store(run, create=False)
    else:
        raise InvalidFile(
            f"{run} is a driver experiment with {len(results.records)} of {len(list(results.plan.trials()))} trials. "
            "Its page needs the network and the trips: call `limiirl reproduce drivers` again with the same options "
            f"and --out {run}; what is done is not run again, and the page is written.",
            parameter="run",
            value=str(run),
        )
    page = _write_report(store, out or run / "report")
    typer.echo(json.dumps({"report": str(page)}) if as_json else f"The report is {page}")


def _write_report(store: Store[Record], folder: Path) -> Path:
    """Write the report, with a bar on a terminal."""
    from limiirl.report.studies import write_run

    if not sys.stderr.isatty():
        return write_run(store, folder)
    with show_progress("writing the report") as progress:
        return write_run(store, folder, progress=progress)


def _summarise_counts(counts: RunCounts) -> str:
    parts = [f"{counts.done} trials run"]
    if counts.skipped:
        parts.append(f"{counts.skipped} skipped because they were done")
    if counts.failed_before:
        parts.append(f"{counts.failed_before} of them failed before (--retry-failed runs them again)")
    if counts.failed:
        parts.append(f"{len(counts.failed)} failed")
    return ", ".join(parts) + "."
