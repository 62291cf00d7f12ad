"""From the records of a run to its report, and to the lines that a terminal shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from pathlib import Path

from limiirl.errors import InvalidFile
from limiirl.experiments.findings import FAILS, HOLDS, MARGINS, OPEN, Finding, findings
from limiirl.experiments.records import Record
from limiirl.experiments.results import Results
from limiirl.experiments.store import Store
from limiirl.experiments.studies import STUDIES, SWEEPS, Study, choose
from limiirl.report.cells import Cell, Column, Mark, Table
from limiirl.report.document import Report, Section
from limiirl.report.studies.inside import inside_section
from limiirl.report.studies.methods import methods_items
from limiirl.report.studies.sections import box_section, margin_section, sweep_section, table_section
from limiirl.report.studies.table1 import comparison_text
from limiirl.report.studies.terms import terms_section
from limiirl.report.write import write

TITLE = "Multiple intents in ElementWorld"
_BUILDERS: dict[str, tuple[Callable[[Results], Section | None], ...]] = {
    "table1": (table_section, box_section, inside_section),
    "boxplots": (inside_section, table_section, box_section),
    "margin": (margin_section,),
    **dict.fromkeys(SWEEPS, (sweep_section,)),
}
_RULE = (
    "One method is below another where both paired tests, Student's and Wilcoxon's, say so with p < 0.01 over the "
    "worlds that both have; in sweeps the mean over all points of a world counts. Two are on par where the 99 % "
    f"interval of their difference lies within {MARGINS['nll']} (NLL), {MARGINS['anid']} (ANID), {MARGINS['gevd']} "
    f"(GEVD) or {MARGINS['n_iter']:g} (iterations). *Open* is what these worlds do not decide. No correction was made "
    "for the number of tests. The numbers stand with each study below."
)


def gather(store: Store, studies: Sequence[Study] | None = None) -> list[Results]:
    """Return the results of those studies of which the store has a world in every setting."""
    records = store.read()
    found = [Results.of(study, records) for study in (studies or STUDIES.values())]
    tried = {results.study.name for results in found if results.seeds}
    # The box plots are of Table 1's own trials: with the table they are told already.
    return [r for r in found if r.seeds and not (r.study.name == "boxplots" and "table1" in tried)]


def asked(store: Store) -> Sequence[Study] | None:
    """Return the studies that the calls noted in a store asked for, None if they name none.

    Trials of one study may make up another: the sweep over the wind has all box plots' trials, at the paper's wind.
    """
    words = {word for run in store.runs() for word in str(run["command"]).split()}
    names = [name for name in (*STUDIES, "all") if name in words]
    return choose(names) if names else None


def run_report(store: Store, title: str = TITLE) -> Report:
    """Return the report of the paper's studies that were run into a store."""
    results = gather(store, asked(store))
    if not results:
        raise InvalidFile(
            f"{store.folder} has no world in which every setting of one of the paper's studies was tried, and the "
            "report is of these. Run `limiirl reproduce` on it. For a study of your own, compose one of limiirl.report."
        )
    said = [(found, finding) for found in results for finding in findings(found)]
    sections = [terms_section(), Section("Findings", [_findings_table(said)], lead=_RULE)]
    for found in results:
        sections += [section for build in _BUILDERS[found.study.name] if (section := build(found)) is not None]
    failures = {record.key: record for found in results for record in found.failures}
    if failures:
        sections.append(Section("Trials that failed", [_failures_table(failures.values())]))
    return Report(
        title,
        _lead(results, [finding.verdict for _, finding in said]),
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


def _lead(results: Sequence[Results], said: Sequence[str]) -> str:
    names = ", ".join(found.study.title[:1].lower() + found.study.title[1:] for found in results)
    hold, fail, undecided = (said.count(verdict) for verdict in (HOLDS, FAILS, OPEN))
    return (
        f"The experiments of the LiMIIRL paper on ElementWorld, computed anew: {names}. Of {len(said)} findings of the "
        f"paper that were put to the test, {hold} hold, {fail} do not, and {undecided} stay open."
    )


def _highlights(results: Sequence[Results]) -> dict[str, object]:
    trials = {key for found in results for key in found.records}
    worlds = max(len(found.seeds) for found in results)
    studies = "study" if len(results) == 1 else "studies"
    return {studies: len(results), "world" if worlds == 1 else "worlds": worlds, "fits": f"{len(trials):,}"}


def write_run(
    store: Store,
    folder: str | PathLike[str],
    title: str = TITLE,
    progress: Callable[[int, int, str], None] | None = None,
) -> Path:
    """Write the report of a run, and return its page."""
    return write(run_report(store, title), folder, progress)


def told_in_text(store: Store, studies: Sequence[Study]) -> str:
    """Return Table 1 where it is among the studies, and the verdicts on the paper's findings, for a terminal."""
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
