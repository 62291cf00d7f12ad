"""From the records of a run to its report, and to the lines that a terminal shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path

from limiirl._progress import Progress
from limiirl.errors import InvalidFile
from limiirl.experiments import (
    CAUSAL_GEVD,
    FAILS,
    GROUPS,
    HOLDS,
    MARGINS,
    N_HEADLINES,
    OPEN,
    STUDIES,
    SWEEPS,
    Finding,
    Record,
    Results,
    Store,
    Study,
    WorldExample,
    findings,
)
from limiirl.report.document import Fold, Item, Report, Section
from limiirl.report.page import write
from limiirl.report.studies.beyond import beyond_section, quality_section, setting_section
from limiirl.report.studies.methods import methods_items, terms_section
from limiirl.report.studies.models import beyond_text, mlirl_section, models_text, sigma_section
from limiirl.report.studies.sections import (
    box_section,
    inside_section,
    margin_section,
    sweep_section,
    table_section,
    unbroken,
)
from limiirl.report.studies.table1 import comparison_text
from limiirl.report.tables import Cell, Column, Mark, Table

_BUILDERS: dict[str, tuple[Callable[[Results], Section | None], ...]] = {
    "table1": (table_section, box_section, inside_section),
    "boxplots": (inside_section, table_section, box_section),
    "margin": (margin_section,),
    **dict.fromkeys(SWEEPS, (sweep_section,)),
    "mlirl": (mlirl_section,),
    "sigma-girl": (sigma_section,),
    "beyond-models": (setting_section,),
    **dict.fromkeys(GROUPS["beyond"][1:], (quality_section, beyond_section)),
}
_TEXTS: dict[str, Callable[[Results], str]] = {
    "table1": comparison_text,
    "boxplots": comparison_text,
    "mlirl": models_text,
    "sigma-girl": models_text,
    **dict.fromkeys(GROUPS["beyond"], beyond_text),
}
_RULE = (
    "One method is below another where both paired tests, Student's and Wilcoxon's, say so with p < 0.01 over the "
    "worlds that both have; in sweeps the mean over all points of a world counts. Two are on par where the 99 % "
    f"interval of their difference lies within {MARGINS['nll']} (NLL), {MARGINS['anid']} (ANID), {MARGINS['gevd']} "
    f"(GEVD with MaxEnt), {CAUSAL_GEVD} (GEVD with causal models) or {MARGINS['n_iter']:g} (iterations), and not on "
    "par where it lies wholly outside. *Open* is what these worlds do not decide. No correction was made for the "
    "number of tests. The numbers stand with each study below."
)


def gather(store: Store[Record], studies: Sequence[Study] | None = None) -> list[Results]:
    """Return the results of those studies of which the store has a world in every setting."""
    records = store.read()
    results = [Results.of(study, records) for study in (studies or STUDIES.values())]
    tried = {one.study.name for one in results if one.seeds}
    # The box plots are of Table 1's own trials: the section of the table has them.
    results = [one for one in results if one.seeds and not (one.study.name == "boxplots" and "table1" in tried)]
    examples = {one.study.name: store.example(one.study.name) for one in results}
    return [
        one if (content := examples[one.study.name]) is None else replace(one, example=WorldExample.from_dict(content))
        for one in results
    ]


def requested(store: Store[Record]) -> Sequence[Study] | None:
    """Return the studies that the runs into a store requested, None if there are none.

    Trials of one study may make up another: the sweep over the wind has all box plots' trials, at the paper's wind.
    """
    names = set(store.studies())
    return [study for name, study in STUDIES.items() if name in names] or None


def title_of(results: Sequence[Results]) -> str:
    """Return a title for a report of some studies."""
    names = {found.study.name for found in results}
    beyond, models = names & {*GROUPS["beyond"]}, names & {"mlirl", "sigma-girl"}
    if beyond:
        more = "every model, every start" if names == beyond else "the paper's experiments, and beyond"
        return f"Multiple intents: {more}"
    if not models:
        return "Multiple intents in ElementWorld"
    only = names <= {*GROUPS["models"]}
    return "Multiple intents with other models of behaviour" if only else "Multiple intents: the paper's experiments"


def run_report(store: Store[Record], title: str | None = None) -> Report:
    """Return the report of the studies that were run into a store; the title is by default of what they are."""
    results = gather(store, requested(store))
    if not results:
        raise InvalidFile(
            f"{store.folder} has no world in which every setting of one of our studies was tried, and the "
            "report is of these. Run `limiirl reproduce` on it. For a study of your own, compose a report with "
            "limiirl.report.",
            value=str(store.folder),
        )
    said = [(found, finding) for found in results for finding in findings(found)]
    sections = [terms_section(results)]
    if said:
        sections.append(Section("Findings", _findings(said), lead=_RULE))
    sections += _study_sections(results)
    failures = {record.key: record for found in results for record in found.failures}
    if failures:
        sections.append(Section("Trials that failed", [_failures_table(failures.values())]))
    return Report(
        title_of(results) if title is None else title,
        _lead(results, [finding.verdict for _, finding in said]),
        sections,
        methods=methods_items(results, store.runs()),
        highlights=_highlights(results),
    )


def _study_sections(results: Sequence[Results]) -> list[Section]:
    sections: list[Section] = []
    done: set[Callable[[Results], Section | None]] = set()
    for found in results:
        for build in _BUILDERS[found.study.name]:
            # The paper's setting is a point of both studies beyond the paper: one look at it is enough.
            if build is quality_section and build in done:
                continue
            section = build(found)
            if section is not None:
                sections.append(section)
                done.add(build)
    return sections


def _failures_table(failures: Iterable[Record]) -> Table:
    rows: list[list[Cell | str]] = [[record.spec, str(record.seed), record.error] for record in failures]
    columns: list[Column | str] = [Column("Specification", align="left"), "Seed", Column("Error", align="left")]
    return Table("failures", "Failed trials", "They are left out of all figures and tables.", columns, rows)


def _findings(said: Sequence[tuple[Results, Finding]]) -> list[Item]:
    """Return the paper's findings as a table, and ours, which are many, as one that is folded away."""
    ours = [(found, finding) for found, finding in said if found.study.name in GROUPS["beyond"]]
    papers = [pair for pair in said if pair not in ours]
    items: list[Item] = []
    if papers:
        # With Sigma-GIRL the paper saw no difference, so that some of what is tested there is our own claim.
        more = any(found.study.name == "sigma-girl" for found, _ in papers)
        title = f"The paper's findings{', and some of ours' if more else ''}, put to the test"
        items.append(_findings_table("findings", title, "Claim" if more else "The paper finds", papers))
    if ours:
        table = _findings_table("claims", "What is claimed beyond the paper, put to the test", "Claim", ours)
        counts = _counts([finding.verdict for _, finding in ours])
        items.append(Fold(f"{len(ours)} claims that go beyond the paper: {counts}", [table]))
    return items


def _findings_table(name: str, title: str, heading: str, said: Sequence[tuple[Results, Finding]]) -> Table:
    marks: dict[str, Mark] = {HOLDS: "agrees", FAILS: "differs"}
    rows: list[list[Cell | str]] = [
        [unbroken(finding.claim), Cell(finding.verdict, mark=marks.get(finding.verdict)), found.study.title]
        for found, finding in said
    ]
    # The verdict stands beside the claim, where a narrow screen still shows it.
    columns = [Column(heading, align="left"), Column("Here", align="left"), Column("Study", align="left")]
    return Table(name, title, "", columns, rows)


def _counts(verdicts: Sequence[str]) -> str:
    hold, fail, undecided = (verdicts.count(verdict) for verdict in (HOLDS, FAILS, OPEN))
    return f"{hold} hold, {fail} do not, and {undecided} stay open"


def _lead(results: Sequence[Results], said: Sequence[str]) -> str:
    names = [found.study.title[:1].lower() + found.study.title[1:] for found in results]
    beyond = [name for name, found in zip(names, results, strict=True) if found.study.name in GROUPS["beyond"]]
    papers = [name for name in names if name not in beyond]
    where = "" if any(found.study.name == "sigma-girl" for found in results) else " on ElementWorld"
    parts = [f"The experiments of the LiMIIRL paper{where}, computed anew: {', '.join(papers)}."] if papers else []
    if beyond:
        parts.append(
            f"{'And beyond' if papers else 'Beyond'} the paper: every model of behaviour with every start, on the same "
            "ElementWorlds."
        )
    if said:
        what = "claims" if beyond or not where else "findings of the paper"
        parts.append(f"Of {len(said)} {what} that were put to the test, {_counts(said)}.")
    return " ".join(parts)


def _highlights(results: Sequence[Results]) -> dict[str, object]:
    trials = {key for found in results for key in found.records}
    worlds = max(len(found.seeds) for found in results)
    studies = "study" if len(results) == 1 else "studies"
    return {studies: len(results), "world" if worlds == 1 else "worlds": worlds, "fits": f"{len(trials):,}"}


def write_run(
    store: Store[Record], folder: str | PathLike[str], title: str | None = None, progress: Progress | None = None
) -> Path:
    """Write the report of a run, and return its page."""
    return write(run_report(store, title), folder, progress)


def summarise_run(store: Store[Record], studies: Sequence[Study]) -> str:
    """Return the scores of those studies that have a table, and the verdicts on what was claimed, for a terminal."""
    lines: list[str] = []
    told: set[Callable[[Results], str]] = set()
    for found in gather(store, studies):
        said = findings(found)
        tell = _TEXTS.get(found.study.name)
        # Both studies beyond the paper have its setting.
        tell = None if tell is beyond_text and tell in told else tell
        if said or tell is not None:
            lines.append(f"{found.study.title}, {len(found.seeds)} worlds")
            if tell is not None:
                told.add(tell)
                lines.append(tell(found))
            shown = N_HEADLINES if found.study.name in GROUPS["beyond"] else len(said)
            lines += [f"  {finding.verdict:<13}  {finding.claim}" for finding in said[:shown]]
            if said[shown:]:
                counts = _counts([finding.verdict for finding in said[shown:]])
                lines.append(f"  {len(said) - shown} further claims, in the report: {counts}.")
            lines.append("")
    return "\n".join(lines)
