"""From the records of a run to its report, and to the lines that a terminal shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from pathlib import Path

from limiirl.errors import InvalidFile
from limiirl.experiments.findings import FAILS, HOLDS, OPEN, Finding, findings
from limiirl.experiments.records import Record
from limiirl.experiments.results import Results
from limiirl.experiments.store import Store
from limiirl.experiments.studies import STUDIES, SWEEPS, Study
from limiirl.report.cells import Cell, Column, Mark, Table
from limiirl.report.document import Report, Section
from limiirl.report.studies.inside import inside_section
from limiirl.report.studies.methods import methods_items
from limiirl.report.studies.sections import box_section, margin_section, sweep_section, table_section
from limiirl.report.studies.table1 import comparison_text
from limiirl.report.write import write

_BUILDERS: dict[str, tuple[Callable[[Results], Section | None], ...]] = {
    "table1": (table_section, box_section, inside_section),
    "boxplots": (table_section, box_section, inside_section),
    "margin": (margin_section,),
    **dict.fromkeys(SWEEPS, (sweep_section,)),
}
_RULE = (
    "One method is below another where both paired tests, Student's and Wilcoxon's, say so with p < 0.01 over the "
    "worlds that both have. *Open* is what no test decides. The numbers stand with each study below."
)


def gather(store: Store, studies: Sequence[Study] | None = None) -> list[Results]:
    """Return the results of those studies of which the store has a world in every setting."""
    records = store.read()
    found = [Results.of(study, records) for study in (studies or STUDIES.values())]
    tried = {results.study.name for results in found if results.seeds}
    # The box plots are of Table 1's own trials: with the table they are told already.
    return [r for r in found if r.seeds and not (r.study.name == "boxplots" and "table1" in tried)]


def run_report(store: Store, title: str = "Multiple intents in ElementWorld") -> Report:
    """Return the report of all studies that a store has."""
    results = gather(store)
    if not results:
        raise InvalidFile(
            f"{store.folder} has no world in which every setting of a study was tried. Run `limiirl reproduce` on it."
        )
    said = [(found, finding) for found in results for finding in findings(found)]
    sections = [Section("Findings", [_findings_table(said)], lead=_RULE)]
    for found in results:
        sections += [section for build in _BUILDERS[found.study.name] if (section := build(found)) is not None]
    failures = {record.key: record for found in results for record in found.failures}
    if failures:
        sections.append(Section("Trials that failed", [_failures_table(failures.values())]))
    return Report(
        title,
        _lead(results),
        sections,
        methods=methods_items(results, store.runs()),
        highlights=_highlights(results),
    )


def _failures_table(failures: Iterable[Record]) -> Table:
    rows: list[list[Cell | str]] = [[record.spec, str(record.seed), record.error] for record in failures]
    columns: list[Column | str] = [Column("Specification", align="left"), "Seed", Column("Error", align="left")]
    return Table("failures", "Failed trials", "They are left out of all figures and tables.", columns, rows)


def _findings_table(said: Sequence[tuple[Results, Finding]]) -> Table:
    marks: dict[str, Mark] = {HOLDS: "agrees", FAILS: "differs"}
    rows: list[list[Cell | str]] = [
        [found.study.title, finding.claim, Cell(finding.verdict, mark=marks.get(finding.verdict))]
        for found, finding in said
    ]
    columns = [Column("Study", align="left"), Column("The paper finds", align="left"), Column("Here", align="left")]
    return Table("findings", "The paper's findings, put to the test", "", columns, rows)


def _lead(results: Sequence[Results]) -> str:
    said = [finding.verdict for found in results for finding in findings(found)]
    names = ", ".join(found.study.title[:1].lower() + found.study.title[1:] for found in results)
    counts = ", ".join(f"{said.count(verdict)} {verdict}" for verdict in (HOLDS, FAILS, OPEN) if said.count(verdict))
    start = f"The experiments of the LiMIIRL paper on ElementWorld, computed anew: {names}."
    return f"{start} Of {len(said)} findings of the paper that were put to the test, {counts}." if said else start


def _highlights(results: Sequence[Results]) -> dict[str, object]:
    trials = {key for found in results for key in found.records}
    worlds = max(len(found.seeds) for found in results)
    studies = "study" if len(results) == 1 else "studies"
    return {studies: len(results), "worlds": worlds, "fits": f"{len(trials):,}"}


def write_run(
    store: Store, folder: str | PathLike[str], progress: Callable[[int, int, str], None] | None = None
) -> Path:
    """Write the report of a run, and return its page."""
    return write(run_report(store), folder, progress)


def told_in_text(store: Store, studies: Sequence[Study]) -> str:
    """Return Table 1 where it is among the studies, and the verdicts on the paper's findings."""
    lines: list[str] = []
    for found in gather(store, studies):
        said = findings(found)
        if said:
            lines.append(f"{found.study.title}, {len(found.seeds)} worlds")
            if found.study.name in ("table1", "boxplots"):
                lines.append(comparison_text(found))
            lines += [f"  {finding.verdict:<13}  {finding.claim}" for finding in said]
            lines.append("")
    return "\n".join(lines)
