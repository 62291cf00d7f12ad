"""`limiirl reproduce` and `limiirl report`: run experiments, and write reports on them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from limiirl._progress import show_progress
from limiirl.cli.inputs import check_page
from limiirl.cli.options import AsJson, ByGroup, Columns, Covariates, Cut, Scheduler, Workers, echo, resolve_executor
from limiirl.cli.pages import is_mixture, report_mixture
from limiirl.cli.roads_inputs import read_matched
from limiirl.errors import InvalidFile, InvalidParameter

if TYPE_CHECKING:
    from limiirl.executors import Executor
    from limiirl.experiments import DriverData, DriverPlan, DriverResults, Record, RunCounts, Store
    from limiirl.metrics import Interval


INTERRUPTED = "limiirl: interrupted. Finished trials are saved; run the same command to resume."
"""Message of an interrupted run."""
_CITY_DRIVERS, _CITY_TRIPS, _CITY_TRAIN = 60, 20, 400


def reproduce(  # noqa: PLR0913 (a command's options, each with a default)
    context: typer.Context,
    studies: Annotated[
        list[str], typer.Argument(metavar="STUDY", help="Studies or groups to run; see the list above.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Run folder; finished trials are skipped.")] = Path("run"),
    repeats: Annotated[
        int | None,
        typer.Option(help="Number of worlds per study, or of splits for drivers. [default: depends on the study]"),
    ] = None,
    network: Annotated[
        Path | None, typer.Option(help="For drivers: road network written by `limiirl roads build`.")
    ] = None,
    matches: Annotated[
        Path | None, typer.Option(help="For drivers: matched trips written by `limiirl roads match`.")
    ] = None,
    train: Annotated[
        int | None,
        typer.Option(help="For drivers: training trips per split. [default: 1000; 400 in the synthetic city]"),
    ] = None,
    device: Annotated[str | None, typer.Option(help="For drivers: device (cpu, gpu or auto). [default: cpu]")] = None,
    data: Annotated[
        Path | None, typer.Option(help="For rivals: folder with the folders swirl_labyrinth, borlange, ...")
    ] = None,
    part: Annotated[
        list[str] | None,
        typer.Option(help="For rivals: a part of the comparison, such as gridworld; repeatable. [default: all]"),
    ] = None,
    select: Annotated[
        bool, typer.Option("--select", help="For rivals: repeat the selection of the settings of our methods.")
    ] = False,
    workers: Workers = None,
    executor: Annotated[
        str | None, typer.Option(help="Executor: local (processes) or dask. [default: local; none for drivers]")
    ] = None,
    scheduler: Scheduler = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run failed trials again.")] = False,
    report: Annotated[bool, typer.Option(help="Write an HTML report.")] = True,
    as_json: AsJson = False,
) -> None:
    """Run the experiments of the paper, and further experiments.

    \b
    Paper:   table1, boxplots, demos, wind, clusters, elements, imbalance, margin, mlirl, sigma-girl
    Further: beyond-models, beyond-elements, beyond-wind
    Groups:  all (paper), beyond (further), models (boxplots, mlirl, sigma-girl)
    Drivers: drivers (the driver experiment; cannot be combined with other studies)
    Rivals:  rivals (published methods on their own data; requires --data; cannot be combined with other studies)

    Without --network and --matches, the driver experiment uses a synthetic city. To resume an interrupted run, run the
    same command again.
    """  # noqa: D301 (the escape keeps the line breaks of the help)
    # `resolve_executor` raises before the folder is created.
    run = _Run(out, resolve_executor(executor, workers, scheduler), retry_failed, report, as_json)
    if studies == ["rivals"]:
        _reproduce_rivals(run, data, part or [], " ".join(["limiirl", *context.obj]), select=select)
        return
    for name, given in (("data", data), ("part", part), ("select", select or None)):
        if given is not None:
            rule = "applies to `limiirl reproduce rivals` only"
            raise InvalidParameter.of(name, str(given), rule, remedy=f"Omit --{name}.")
    if studies == ["drivers"]:
        _reproduce_drivers(run, network, matches, {"n_splits": repeats, "n_train": train, "device": device})
        return
    for name, value in (("network", network), ("matches", matches), ("train", train), ("device", device)):
        if value is not None:
            rule = "applies to `limiirl reproduce drivers` only"
            raise InvalidParameter.of(name, str(value), rule, remedy=f"Omit --{name}.")
    for single in ("drivers", "rivals"):
        if single in studies:
            others = " ".join(name for name in studies if name != single)
            raise InvalidParameter(
                f"STUDY cannot combine {single} with other studies; got {' '.join(studies)}. Run `limiirl reproduce "
                f"{single}` and `limiirl reproduce {others}` separately.",
                parameter="studies",
                value=single,
            )
    # Reports are published, so they must not contain the address of a cluster.
    words = [word.replace(scheduler, "ADDRESS") if scheduler else word for word in context.obj]
    _reproduce_studies(run, studies, repeats, words)


class _Run(NamedTuple):
    """Options shared by the studies and the driver experiment."""

    out: Path
    executor: Executor | None
    retry_failed: bool
    report: bool
    as_json: bool


def _reproduce_studies(run: _Run, names: list[str], repeats: int | None, words: list[str]) -> None:
    """Run the trials that are missing from the run folder, print the results, and write the report."""
    from limiirl.experiments import Store, choose_studies, iterate_trials, judge_claims, run_studies
    from limiirl.report.studies import gather, summarise_run

    studies = choose_studies(names)
    seeds = {seed for _, seed in iterate_trials(studies, repeats)}
    store = Store(run.out)
    store.note(["limiirl", *words], sorted(seeds), [study.name for study in studies])
    with _interruptible(), show_progress(", ".join(study.name for study in studies)) as progress:
        counts = run_studies(studies, store, run.executor, repeats, retry_failed=run.retry_failed, progress=progress)
    _report_failures(counts)
    page = _write_report(store, run.out / "report") if run.report else None
    if run.as_json:
        verdicts = [asdict(finding) for results in gather(store, studies) for finding in judge_claims(results)]
        echo(json.dumps(_count_trials(counts) | {"findings": verdicts, "report": page and str(page)}))
    else:
        lines = [summarise_run(store, studies), _summarise_counts(counts)]
        echo("\n".join(lines + ([] if page is None else [f"Report: {page}"])))
    if counts.failures:
        raise typer.Exit(1)


def _reproduce_drivers(
    run: _Run, network: Path | None, matches: Path | None, settings: dict[str, int | str | None]
) -> None:
    """Run the trials that are missing from the run folder, print the table, and write the report."""
    from limiirl.experiments import run_drivers

    check_page(run.out / "report" if run.report else None)
    data, plan = _read_drivers(network, matches, settings)
    with _interruptible(), show_progress("drivers", every_s=0.0) as progress:
        results = run_drivers(data, plan, run.out, progress, executor=run.executor, retry_failed=run.retry_failed)
    assert results.counts is not None  # set by run_drivers
    _report_failures(results.counts)
    page = _write_drivers(data, results, run.out / "report") if run.report else None
    if run.as_json:
        echo(json.dumps(_count_trials(results.counts) | _plain(results) | {"report": page and str(page)}))
    else:
        echo(format_drivers(results) + ("" if page is None else f"\n\nReport: {page}"))
    if results.counts.failures:
        raise typer.Exit(1)


def _reproduce_rivals(run: _Run, data: Path | None, names: list[str], command: str, *, select: bool) -> None:
    """Run the trials that are missing from the run folder, print the scores, and write the page."""
    from limiirl._io import atomic_write
    from limiirl.experiments.rivals import RIVAL_PARTS, choose_parts, run_rivals
    from limiirl.report import write
    from limiirl.report.studies import format_rivals, rivals_report

    if data is None:
        folders = ", ".join(part.folder for part in RIVAL_PARTS.values())
        message = f"data is required for `limiirl reproduce rivals`. Pass --data with the folder of {folders}."
        raise InvalidParameter(message, parameter="data")
    parts = choose_parts(names, RIVAL_PARTS)
    check_page(run.out / "report" if run.report else None)
    with _interruptible(), show_progress("rivals", every_s=0.0) as progress:
        results, counts = run_rivals(
            parts, data, run.out, select=select, retry_failed=run.retry_failed, progress=progress
        )
    _report_failures(counts)
    page = None
    if run.report:
        page = write(rivals_report(results, command.replace(str(data), "FOLDER")), run.out / "report")
        for part in results:
            with atomic_write(run.out / "report" / f"{part.part.name}.csv") as scratch:
                scratch.write_text(part.to_csv(), encoding="utf-8", newline="")
    if run.as_json:
        rows = {part.part.name: [asdict(row) for row in part.rows()] for part in results}
        goals = {
            part.part.name: [{"goal": g.text, "value": value, "reached": ok} for g, value, ok in part.goals()]
            for part in results
        }
        plain = {name: [_without_nan(row) for row in own] for name, own in rows.items()}
        echo(json.dumps(_count_trials(counts) | {"scores": plain, "goals": goals, "report": page and str(page)}))
    else:
        lines = [format_rivals(results), "", _summarise_counts(counts)]
        echo("\n".join(lines + ([] if page is None else [f"Report: {page}"])))
    if counts.failures:
        raise typer.Exit(1)


def _without_nan(row: dict[str, Any]) -> dict[str, Any]:
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in row.items()
    }


@contextmanager
def _interruptible() -> Iterator[None]:
    """Return a context manager that converts an interrupt to a message and exit code 130."""
    try:
        yield
    except KeyboardInterrupt:
        echo(INTERRUPTED, err=True)
        raise typer.Exit(130) from None


def _report_failures(counts: RunCounts) -> None:
    for record in counts.failures:
        echo(f"limiirl: trial {record.spec} with seed {record.seed} failed: {record.error}", err=True)


def _count_trials(counts: RunCounts) -> dict[str, Any]:
    failed = [{"spec": r.spec, "seed": r.seed, "error": r.error} for r in counts.failures]
    numbers = {"total": counts.total, "skipped": counts.skipped, "run": counts.done}
    return numbers | {"failed_before": counts.failed_before, "failed": failed}


def _summarise_counts(counts: RunCounts) -> str:
    parts = [f"{counts.done} trials run"]
    if counts.skipped:
        parts.append(f"{counts.skipped} skipped (finished before)")
    if counts.failed_before:
        parts.append(f"{counts.failed_before} of the skipped trials failed (use --retry-failed to run them again)")
    if counts.failures:
        parts.append(f"{len(counts.failures)} failed")
    return ", ".join(parts) + "."


def _plain(results: DriverResults) -> dict[str, Any]:
    """Convert settings and results to JSON types: intervals to objects, and missing values to null."""

    def plain(value: Any) -> Any:
        if isinstance(value, tuple) and hasattr(value, "_asdict"):
            value = value._asdict()
        if isinstance(value, dict):
            return {name: plain(entry) for name, entry in value.items()}
        return None if isinstance(value, float) and not math.isfinite(value) else value

    rows = [{field.name: plain(getattr(row, field.name)) for field in fields(row)} for row in results.rows()]
    surplus = results.baselines("surplus")
    baselines = {
        name: {"missed": plain(missed), "surplus": plain(surplus[name])} for name, missed in results.baselines().items()
    }
    return {"plan": results.plan.to_dict(), "rows": rows, "baselines": baselines}


def _read_drivers(
    network: Path | None, matches: Path | None, settings: dict[str, int | str | None]
) -> tuple[DriverData, DriverPlan]:
    """Return the data and the plan; if no files are given, simulate the data in a synthetic city."""
    from limiirl.experiments import DriverData, DriverPlan
    from limiirl.roads import City

    more: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
    if (network is None) != (matches is None):
        name, other = ("network", "matches") if matches is None else ("matches", "network")
        rule, remedy = f"requires --{other}", "Pass both options, or neither to use a synthetic city."
        raise InvalidParameter.of(name, str(network or matches), rule, remedy=remedy)
    if network is None or matches is None:
        city = City()
        demos = city.drive(_CITY_DRIVERS, _CITY_TRIPS, 0).demos
        return DriverData(city.network, demos), DriverPlan(**({"n_train": _CITY_TRAIN, "max_length": 100} | more))
    roads, matched = read_matched(network, matches)
    return DriverData(roads, matched.demonstrations()), DriverPlan(**more)


def _write_drivers(data: DriverData, results: DriverResults, folder: Path) -> Path:
    from limiirl._io import atomic_write
    from limiirl.experiments import driver_example
    from limiirl.report import write
    from limiirl.report.roads import experiment_report

    page = write(experiment_report(data, results, driver_example(data, results)), folder)
    with atomic_write(folder / "trials.csv") as scratch:
        scratch.write_text(results.to_csv(), encoding="utf-8", newline="")
    return page


def format_drivers(results: DriverResults) -> str:
    """Return the results of the driver experiment as a table."""
    head = ("discount", "splits", "iterations", "minutes", "test NLL", "gain", "better", "missed", "surplus")
    lines = [["method", *head]]
    for row in results.rows():
        gain = ("-", "-") if row.gain is None else (_format(row.gain), f"{row.n_better}/{row.gain.n}")
        before, after = (row.iterations, row.minutes, row.nll), (row.missed, row.surplus)
        lines.append([row.method, f"{row.gamma:g}", str(row.n), *map(_format, before), *gain, *map(_format, after)])
    surplus = results.baselines("surplus")
    for name, missed in results.baselines().items():
        lines.append([name, *["-"] * 7, _format(missed), _format(surplus[name])])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(line[1:], widths[1:], strict=True))])
        for line in lines
    )


def _format(interval: Interval) -> str:
    return str(interval) if math.isfinite(interval.half_width) else f"{interval.mean:.4g}"


def report(  # noqa: PLR0913 (a command's options, each with a default)
    context: typer.Context,
    run: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="Run folder of `limiirl reproduce`, or a mixture saved by `limiirl fit`."),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Output folder. [default: RUN/report, or MIXTURE-report]")
    ] = None,
    demos: Annotated[
        Path | None,
        typer.Option(
            "--demos", help="Demonstrations for the report on a mixture; adds standard errors, trajectories and visits."
        ),
    ] = None,
    columns: Columns = None,
    cut: Cut = None,
    by_group: ByGroup = False,
    covariates: Covariates = None,
    coordinates: Annotated[
        Path | None, typer.Option("--coordinates", help="Table with the columns state, x and y, for drawings.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write the HTML report of a run of studies, or of a saved mixture.

    Figures are also written as SVG, PNG and CSV files, and tables as LaTeX, Markdown and CSV files.
    """
    if is_mixture(run):
        report_mixture(context, run, out, demos, columns, cut, by_group, covariates, coordinates, as_json)
        return
    for name, value in (("demos", demos), ("columns", columns), ("cut", cut), ("coordinates", coordinates)):
        if value is not None:
            rule = f"requires a saved mixture, but {run} is not the folder of a mixture"
            raise InvalidParameter.of(name, str(value), rule, remedy=f"Omit --{name}.")
    from limiirl.experiments import Store, read_drivers

    try:
        results = read_drivers(run)
    except InvalidFile:
        page = _write_report(Store(run, create=False), out or run / "report")
        echo(json.dumps({"report": str(page)}) if as_json else f"Report: {page}")
        return
    raise InvalidFile(
        f"{run} is a driver experiment with {len(results.records)} of {len(list(results.plan.trials()))} trials. Its "
        "report requires the network and the trips; write it with `limiirl reproduce drivers --out "
        f"{run}` and the same options.",
        parameter="run",
        value=str(run),
    )


def _write_report(store: Store[Record], folder: Path) -> Path:
    from limiirl.report.studies import write_run

    with show_progress("writing the report") as progress:
        return write_run(store, folder, progress=progress)
