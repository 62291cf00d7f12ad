"""Report on a run of built-in or custom studies, and a text summary of it, from the stored records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from limiirl._progress import Progress
from limiirl.errors import InvalidFile, InvalidParameter
from limiirl.experiments import (
    CAUSAL_GEVD,
    FAILS,
    GROUPS,
    HOLDS,
    MARGINS,
    MEASURES,
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
    judge_claims,
)
from limiirl.metrics import Comparison
from limiirl.report.document import Code, Facts, Figure, Fold, Item, Report, Section
from limiirl.report.figures import Plot, plot_boxes, plot_sweep
from limiirl.report.markup import literal
from limiirl.report.page import write
from limiirl.report.studies.beyond import beyond_section, quality_section, setting_section
from limiirl.report.studies.methods import MEASURE_TERMS, methods_items, run_facts, terms_section
from limiirl.report.studies.models import beyond_text, mlirl_section, models_text, sigma_section
from limiirl.report.studies.sections import (
    box_section,
    count_worlds,
    inside_section,
    keep_together,
    margin_section,
    sweep_section,
    table_section,
)
from limiirl.report.studies.table1 import TITLES, comparison_text, score_cell
from limiirl.report.tables import Column, Content, Table

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
    "A claim that two methods differ holds if two paired tests over worlds, Student's and Wilcoxon's, both have "
    "p < 0.01; in sweeps, values are first averaged over the points of each world. A claim that two methods are "
    "equivalent holds if the 99\u00a0% interval of their difference lies within a margin, and does not hold if the "
    f"interval lies outside. The margins are ±{MARGINS['nll']} (NLL), ±{MARGINS['anid']} (ANID), ±{MARGINS['gevd']} "
    f"(GEVD with MaxEnt), ±{CAUSAL_GEVD} (GEVD with causal models) and ±{MARGINS['n_iter']:g} (iterations). All other "
    "claims are *open*. There is no correction for multiple comparisons. Each study lists its comparisons below."
)


def gather(store: Store[Record], studies: Sequence[Study] | None = None) -> list[Results]:
    """Return the results of the studies that have at least one complete world in the store."""
    records = store.read()
    results = [Results.of(study, records) for study in (studies or STUDIES.values())]
    names = {result.study.name for result in results if result.seeds}
    # The section on Table 1 includes the box plots, which show the same trials.
    results = [r for r in results if r.seeds and not (r.study.name == "boxplots" and "table1" in names)]
    examples = {result.study.name: store.example(result.study.name) for result in results}
    return [
        result
        if (content := examples[result.study.name]) is None
        else replace(result, example=WorldExample.from_dict(content))
        for result in results
    ]


def _title(results: Sequence[Results]) -> str:
    names = {result.study.name for result in results}
    beyond, models = names & {*GROUPS["beyond"]}, names & {"mlirl", "sigma-girl"}
    if beyond:
        return f"Multiple intents: {'models and initialisations' if names == beyond else 'the paper and beyond'}"
    if not models:
        return "Multiple intents in ElementWorld"
    only = names <= {*GROUPS["models"]}
    return "Multiple intents with other behaviour models" if only else "Multiple intents: the experiments of the paper"


def run_report(store: Store[Record], title: str | None = None) -> Report:
    """Return the report on the studies of the runs in a store."""
    names, defined = set(store.studies()), store.custom_studies()
    # Only the studies that were run: their trials may also complete other studies.
    chosen = [study for name, study in STUDIES.items() if name in names]
    results = gather(store, chosen or None) if chosen or not defined else []
    records = store.read() if defined else []
    custom = [result for result in (Results.of(study, records) for study in defined) if result.seeds]
    if not results and not custom:
        raise InvalidFile(
            f"{store.folder} has no world with results for all settings of a study. Complete the run with `limiirl "
            "reproduce`, or with run_studies if you defined the study.",
            value=str(store.folder),
        )
    # The only study is described at the top of the page.
    described = len(results) + len(custom) > 1
    own = [
        _custom_section(result, f"study-{number}", described=described) for number, result in enumerate(custom, start=1)
    ]
    if not results:
        return _custom_report(custom, own, store, title)
    verdicts = [(result, finding) for result in results for finding in judge_claims(result)]
    sections = [terms_section(results)]
    if verdicts:
        sections.append(Section("Findings", findings_items(verdicts), lead=_RULE))
    sections += [*_study_sections(results), *own, *_failures([*results, *custom])]
    return Report(
        _title(results) if title is None else title,
        _lead(results, [finding.verdict for _, finding in verdicts]),
        sections,
        methods=methods_items(results, store.runs()),
        highlights=_highlights(results),
    )


def _custom_report(
    results: Sequence[Results], sections: Sequence[Section], store: Store[Record], title: str | None
) -> Report:
    """Return the report on a run that contains only studies of the user."""
    titles = [result.study.title for result in results]
    return Report(
        title or "; ".join(titles),
        describe_custom_study(results[0]) if len(results) == 1 else f"Scores of {len(results)} studies.",
        [*sections, *_failures(results)],
        methods=_custom_methods(results, store.runs()),
        highlights=_highlights(results),
    )


def _failures(results: Sequence[Results]) -> list[Section]:
    failures = {record.key: record for result in results for record in result.failures}
    return [Section("Failed trials", [_failures_table(failures.values())])] if failures else []


def _study_sections(results: Sequence[Results]) -> list[Section]:
    sections: list[Section] = []
    built: set[Callable[[Results], Section | None]] = set()
    for result in results:
        for build in _BUILDERS[result.study.name]:
            # Both sweeps beyond the paper include its setting, which is shown once.
            section = None if build is quality_section and build in built else build(result)
            if section is not None:
                sections.append(section)
                built.add(build)
    return sections


def _failures_table(failures: Iterable[Record]) -> Table:
    rows: list[list[Content]] = [[record.spec, str(record.seed), record.error] for record in failures]
    columns: list[Column | str] = [Column("Specification", align="left"), "Seed", Column("Error", align="left")]
    return Table("failures", "Failed trials", "Failed trials are excluded from all figures and tables.", columns, rows)


def findings_items(verdicts: Sequence[tuple[Results, Finding]]) -> list[Item]:
    """Return the table of the findings of the paper, and a collapsed table of the claims beyond the paper."""
    ours = [(result, finding) for result, finding in verdicts if result.study.name in GROUPS["beyond"]]
    papers = [pair for pair in verdicts if pair not in ours]
    items: list[Item] = []
    if papers:
        # Some claims about Sigma-GIRL are not in the paper.
        mixed = any(result.study.name == "sigma-girl" for result, _ in papers)
        title = f"Tests of the findings of the paper{' and of further claims' if mixed else ''}"
        items.append(_findings_table("findings", title, "Claim" if mixed else "Finding of the paper", papers))
    if ours:
        table = _findings_table("claims", "Tests of claims beyond the paper", "Claim", ours)
        counts = count_verdicts([finding.verdict for _, finding in ours])
        items.append(Fold(f"{len(ours)} claims beyond the paper: {counts}", [table]))
    return items


def _findings_table(name: str, title: str, heading: str, verdicts: Sequence[tuple[Results, Finding]]) -> Table:
    rows: list[list[Content]] = [
        [keep_together(finding.claim), finding.verdict, result.study.title] for result, finding in verdicts
    ]
    # The verdict is the second column so that it is visible on narrow screens.
    columns = [Column(heading, align="left"), Column("Verdict", align="left"), Column("Study", align="left")]
    return Table(name, title, "", columns, rows)


def count_verdicts(verdicts: Sequence[str]) -> str:
    """Return the numbers of claims with each verdict as text."""
    hold, fail, undecided = (verdicts.count(verdict) for verdict in (HOLDS, FAILS, OPEN))
    verbs = ("holds" if hold == 1 else "hold", "does" if fail == 1 else "do", "is" if undecided == 1 else "are")
    return f"{hold} {verbs[0]}, {fail} {verbs[1]} not hold and {undecided} {verbs[2]} open"


def _lead(results: Sequence[Results], verdicts: Sequence[str]) -> str:
    titles = [result.study.title[:1].lower() + result.study.title[1:] for result in results]
    beyond = [title for title, result in zip(titles, results, strict=True) if result.study.name in GROUPS["beyond"]]
    papers = [title for title in titles if title not in beyond]
    where = "" if any(result.study.name == "sigma-girl" for result in results) else " on ElementWorld"
    parts = [f"Reproduction of the experiments of the LiMIIRL paper{where}: {', '.join(papers)}."] if papers else []
    if beyond:
        parts.append(
            "Beyond the paper: comparison of every behaviour model with every initialisation on the same ElementWorlds."
        )
    if verdicts:
        what = "claims" if beyond or not where else "findings of the paper"
        parts.append(f"Of {len(verdicts)} tested {what}, {count_verdicts(verdicts)}.")
    return " ".join(parts)


def _highlights(results: Sequence[Results]) -> dict[str, object]:
    trials = {key for result in results for key in result.records}
    worlds = max(len(result.seeds) for result in results)
    studies = "study" if len(results) == 1 else "studies"
    return {studies: len(results), "world" if worlds == 1 else "worlds": worlds, "fits": f"{len(trials):,}"}


def write_run(
    store: Store[Record], folder: str | PathLike[str], title: str | None = None, progress: Progress | None = None
) -> Path:
    """Write the report on a run to a folder, and return the path of its page."""
    return write(run_report(store, title), folder, progress)


def summarise_run(store: Store[Record], studies: Sequence[Study]) -> str:
    """Return the scores and verdicts of studies as text."""
    lines: list[str] = []
    shown: set[Callable[[Results], str]] = set()
    for result in gather(store, studies):
        verdicts = judge_claims(result)
        describe = _TEXTS.get(result.study.name)
        # Both sweeps beyond the paper include its setting.
        describe = None if describe is beyond_text and describe in shown else describe
        if verdicts or describe is not None:
            lines.append(f"{result.study.title}, {len(result.seeds)} worlds")
            if describe is not None:
                shown.add(describe)
                lines.append(describe(result))
            n = N_HEADLINES if result.study.name in GROUPS["beyond"] else len(verdicts)
            lines += [f"  {finding.verdict:<13}  {finding.claim}" for finding in verdicts[:n]]
            if verdicts[n:]:
                counts = count_verdicts([finding.verdict for finding in verdicts[n:]])
                lines.append(f"  {len(verdicts) - n} further claims in the report: {counts}.")
            lines.append("")
    return "\n".join(lines)


# Studies that users define: scores of every setting, in the same form for all studies.

_SHOWN = (*MEASURES, "accuracy")
# Measures by which methods are compared in words, and their numbers of decimals.
_COMPARED = {"anid": 2, "nll": 2}


def describe_custom_study(results: Results) -> str:
    """Describe in words which method is best, and whether both paired tests of the difference are significant.

    Methods are compared over the settings that all of them have, averaged over the points of the axis.
    """
    sentences = []
    for measure, digits in _COMPARED.items():
        means = {}
        for method in results.study.methods:
            if all(results.study.spec(method, x) is not None for x in results.study.points):
                values = results.values(method, results.study.points, measure)
                if np.isfinite(values).any():
                    means[method] = float(np.nanmean(values))
        if len(means) < 2:
            continue
        best, second = sorted(means, key=lambda name: means[name])[:2]
        result = results.compare((best, results.study.points), (second, results.study.points), measure)
        title = TITLES[measure]
        sentences.append(
            f"{literal(best)} has the lowest mean {title} ({means[best]:.{digits}f}), followed by {literal(second)} "
            f"({means[second]:.{digits}f}); {_judge(result)}."
        )
    return " ".join(sentences)


def _judge(result: Comparison | None) -> str:
    if result is None:
        return "a single world is not sufficient to test the difference"
    if result.better is None:
        return "the difference is not significant"
    return f"the difference is significant (p = {max(result.p_t, result.p_wilcoxon):.1g})"


def _custom_section(results: Results, name: str, *, described: bool = True) -> Section:
    """Return the section on a study; `name` is the prefix of its figures and tables.

    With `described`, the section begins with the description of the study in words.
    """
    study = results.study
    items: list[Item] = [_custom_figure(results, name), _custom_table(results, name), _custom_settings(results, name)]
    trials = f"{len(study.methods)} methods, {len(study.points)} values of {study.axis}, {count_worlds(results)}."
    if len(study.points) == 1:
        trials = f"{len(study.methods)} methods, {count_worlds(results)}."
    return Section(
        study.title, items, lead=f"{describe_custom_study(results) if described else ''} {literal(trials)}".strip()
    )


def _list_measures(results: Results) -> list[str]:
    return [m for m in _SHOWN if _has_values(results, m)]


def _has_values(results: Results, measure: str) -> bool:
    return any(results.finite(setting.method, setting.x, measure).size for setting in results.study.settings)


def plot_results(results: Results, measures: Sequence[str] | None = None) -> Plot:
    """Plot means with 95 % intervals against the axis of a study, or box plots if the axis is not numeric.

    `measures` are all those that have values by default.
    """
    study = results.study
    chosen = _list_measures(results) if measures is None else list(measures)
    for index, m in enumerate(chosen):
        if m not in _SHOWN or not _has_values(results, m):
            rule = f"must be measures that have values ({', '.join(_list_measures(results))})"
            raise InvalidParameter.of("measures", m, rule, index=index)
    if not chosen:
        raise InvalidParameter.of("measures", measures, "must contain at least one measure that has values")
    if _is_numeric(study):
        lines = {
            m: {
                method: {float(x): results.values(method, x, m) for x in study.points if study.spec(method, x)}
                for method in study.methods
            }
            for m in chosen
        }
        return plot_sweep(lines, study.axis)
    boxes = {
        m: {
            method if len(study.points) == 1 else f"{method}, {x}": results.values(method, x, m)
            for method, x in ((setting.method, setting.x) for setting in study.settings)
            if results.finite(method, x, m).size
        }
        for m in chosen
    }
    return plot_boxes(boxes)


def _is_numeric(study: Study) -> bool:
    return len(study.points) > 1 and all(not isinstance(x, str) for x in study.points)


def _custom_figure(results: Results, name: str) -> Figure:
    caption = f"Distributions over {count_worlds(results)}: medians, quartiles and outliers."
    if _is_numeric(results.study):
        caption = f"Means over {count_worlds(results)} with 95\u00a0% intervals."
    return Figure.from_plot(name, results.study.title, caption, plot_results(results))


def _custom_table(results: Results, name: str) -> Table:
    study, measures = results.study, _list_measures(results)
    rows: list[list[Content]] = [
        [
            setting.method,
            str(setting.x),
            *(score_cell(results, setting.method, setting.x, measure, compare=False) for measure in measures),
        ]
        for setting in study.settings
    ]
    columns = [Column("Method", "left"), Column(study.axis, "left"), *(Column(TITLES[m]) for m in measures)]
    caption = "Mean ± half-width of the 95\u00a0% interval over worlds, on test demonstrations."
    return Table(f"{name}-scores", f"Scores: {study.title}", caption, columns, rows)


def _custom_settings(results: Results, name: str) -> Fold:
    """Return the specification fields that differ between settings, and the common ones."""
    study = results.study
    contents = [_flatten(setting.spec.to_dict()) for setting in study.settings]
    keys = list(dict.fromkeys(key for content in contents for key in content))
    varying = [key for key in keys if len({str(content.get(key)) for content in contents}) > 1]
    shared = {key: contents[0][key] for key in keys if key not in varying and contents[0][key] not in (None, "")}
    rows: list[list[Content]] = [
        [setting.method, str(setting.x), *(str(content.get(key, "")) for key in varying)]
        for setting, content in zip(study.settings, contents, strict=True)
    ]
    columns = [Column("Method", "left"), Column(study.axis, "left"), *(Column(key, "left") for key in varying)]
    table = Table(f"{name}-settings", f"Settings: {study.title}", "Fields that differ.", columns, rows)
    return Fold("Settings", [table, Facts(shared)])


def _flatten(content: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in content.items():
        flat |= {f"{key}: {name}": part for name, part in value.items()} if isinstance(value, dict) else {key: value}
    return flat


def _custom_methods(results: Sequence[Results], runs: Sequence[dict[str, Any]]) -> list[Item]:
    seeds = {f"worlds of {result.study.name}": len(result.seeds) for result in results}
    items: list[Item] = [Fold("Terms and abbreviations", [Facts(MEASURE_TERMS)]), Facts(seeds | run_facts(runs))]
    commands = dict.fromkeys(str(run["command"]) for run in runs)
    return [*items, Code("\n".join(commands), "Command")] if commands else items
