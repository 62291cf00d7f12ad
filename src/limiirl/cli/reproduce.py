"""`limiirl reproduce`: the paper's experiments and those beyond, from scratch or from where they were left.

`limiirl reproduce drivers`: the paper's driver experiment, on files of your own or in the invented city.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator
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
    from limiirl.experiments.drivers import DriverResults
    from limiirl.experiments.drivers_trial import DriverData, DriverPlan
    from limiirl.experiments.run import Progress
    from limiirl.experiments.store import Store
    from limiirl.metrics import Interval


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
        with show_progress(every_s=0.0) as progress:

            def tell(done: int, total: int, name: str) -> None:
                nonlocal run
                run += done < total
                progress(done, total, name)

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
    from limiirl.experiments.drivers_trial import DriverData, DriverPlan
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
    from limiirl._io import atomic_write
    from limiirl.report.page import write
    from limiirl.report.roads import experiment_report

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


# Seconds between two lines about the progress, where there is no terminal to draw a bar on.
_BETWEEN_LINES = 15.0

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
        unused = {
            "--workers": workers is not None,
            "--executor": executor != "local",
            "--scheduler": scheduler is not None,
        }
        _check_unused(unused | {"--retry-failed": retry_failed})
        reproduce_drivers((network, matches), out, repeats, train, device=device, report=report, as_json=as_json)
        return
    if any(given is not None for given in (network, matches, train, device)):
        raise InvalidParameter(
            "--network, --matches, --train and --device are of `limiirl reproduce drivers`, by itself. Worlds of the "
            "other studies are far below the size from which a GPU gains."
        )
    if "drivers" in studies:
        raise InvalidParameter("drivers runs by itself: call `limiirl reproduce drivers`, and the other studies apart.")
    from limiirl.experiments.claims import findings
    from limiirl.experiments.run import run_studies
    from limiirl.experiments.store import Store
    from limiirl.experiments.studies import choose, tasks
    from limiirl.report.studies import gather, told_in_text

    chosen = choose(studies)
    placed = resolve_executor(executor or "local", workers, scheduler)  # before the folder is touched
    seeds = {seed for _, seed in tasks(chosen, repeats)}
    store = Store(out)
    # Where somebody's cluster is belongs in no report.
    words = [word.replace(scheduler, "ADDRESS") if scheduler else word for word in context.obj]
    store.note(["limiirl", *words], sorted(seeds))
    try:
        with told_progress(", ".join(study.name for study in chosen)) as tell:
            progress = run_studies(chosen, store, placed, repeats, retry_failed=retry_failed, tell=tell)
    except KeyboardInterrupt:
        typer.echo(INTERRUPTED, err=True)
        raise typer.Exit(130) from None
    for record in progress.failed:
        typer.echo(f"limiirl: trial {record.spec} with seed {record.seed} failed: {record.error}", err=True)
    page = _written(store, out / "report") if report else None
    if as_json:
        counts = {"total": progress.total, "skipped": progress.skipped, "run": progress.done}
        counts["failed_before"] = progress.failed_before
        failed = [{"spec": r.spec, "seed": r.seed, "error": r.error} for r in progress.failed]
        said = [asdict(finding) for found in gather(store, chosen) for finding in findings(found)]
        more = {"failed": failed, "findings": said, "report": None if page is None else str(page)}
        typer.echo(json.dumps(counts | more))
    else:
        typer.echo(told_in_text(store, chosen))
        typer.echo(_counts(progress))
        if page is not None:
            typer.echo(f"The report is {page}")
    if progress.failed:
        raise typer.Exit(1)


def _check_unused(options: dict[str, bool]) -> None:
    """Raise if an option was given that the driver experiment does not have."""
    for option, given in options.items():
        if given:
            raise InvalidParameter(
                f"{option} says nothing to reproduce drivers, whose trials run one after the other on all cores of "
                "this machine. Leave it out."
            )


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
    from limiirl.experiments.store import Store

    if (run / "drivers.json").exists():
        from limiirl.experiments.drivers import read_drivers

        found = read_drivers(run)
        raise InvalidFile(
            f"{run} is a driver experiment with {len(found.records)} of {len(list(found.plan.trials()))} trials. Its "
            "page needs the network and the trips: call `limiirl reproduce drivers` again with the same options and "
            f"--out {run}; what is done is not run again, and the page is written."
        )
    page = _written(Store(run, create=False), out or run / "report")
    typer.echo(json.dumps({"report": str(page)}) if as_json else f"The report is {page}")


def _written(store: Store, folder: Path) -> Path:
    """Write the report, with a bar on a terminal."""
    from limiirl.report.studies import write_run

    if not sys.stderr.isatty():
        return write_run(store, folder)
    with show_progress("writing the report") as progress:
        return write_run(store, folder, progress=progress)


def _counts(progress: Progress) -> str:
    parts = [f"{progress.done} trials run"]
    if progress.skipped:
        parts.append(f"{progress.skipped} skipped because they were done")
    if progress.failed_before:
        parts.append(f"{progress.failed_before} of them failed before (--retry-failed runs them again)")
    if progress.failed:
        parts.append(f"{len(progress.failed)} failed")
    return ", ".join(parts) + "."


@contextmanager
def told_progress(name: str) -> Iterator[Callable[[Progress], None]]:
    """Yield what is told of each trial: a bar on a terminal, a line now and then elsewhere. On stderr."""
    from rich import progress as bars
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(name)
        return
    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TextColumn("{task.fields[skipped]}"),
        bars.TimeElapsedColumn(),
        bars.TextColumn("elapsed, about"),
        bars.TimeRemainingColumn(),
        bars.TextColumn("left"),
    )
    with bars.Progress(*columns, console=console) as bar:
        task = bar.add_task(name, total=None, skipped="")

        def tell(progress: Progress) -> None:
            skipped = f"({progress.skipped} done before)" if progress.skipped else ""
            bar.update(task, total=progress.total, completed=progress.done + progress.skipped, skipped=skipped)

        yield tell


def _lines(name: str) -> Callable[[Progress], None]:
    last = time.monotonic()
    first: tuple[float, int] | None = None  # time and number of the first trials: before them workers load and compile

    def tell(progress: Progress) -> None:
        nonlocal last, first
        now = time.monotonic()
        reached = progress.done + progress.skipped
        if first is None and progress.done:
            first = now, progress.done
        if first is None or now - last < _BETWEEN_LINES or progress.done == first[1]:
            return
        last = now
        left = (now - first[0]) / (progress.done - first[1]) * (progress.total - reached)
        skipped = f" ({progress.skipped} done before)" if progress.skipped else ""
        typer.echo(f"{name}: {reached} of {progress.total}{skipped}, about {left:.0f} s left", err=True)

    return tell
