"""Sections on studies that users define: scores of every setting, in the same form for all studies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from limiirl.experiments import MEASURES, Results
from limiirl.metrics import Comparison
from limiirl.report.document import Code, Facts, Figure, Fold, Item, Section
from limiirl.report.figures import plot_boxes, plot_sweep
from limiirl.report.markup import literal
from limiirl.report.studies.methods import MEASURE_TERMS, run_facts
from limiirl.report.studies.sections import count_worlds
from limiirl.report.studies.table1 import TITLES, score_cell
from limiirl.report.tables import Column, Content, Table

_SHOWN = (*MEASURES, "accuracy")
# The measures by which methods are compared in words, and the number of decimals.
_COMPARED = {"anid": 2, "nll": 2}


def describe_study(results: Results) -> str:
    """Describe which method is best in words; a difference is mentioned only if both paired tests are significant.

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
        return "one world does not show whether this is chance"
    if result.better is None:
        return "the difference is not significant"
    return f"the difference is significant (p = {max(result.p_t, result.p_wilcoxon):.1g})"


def custom_section(results: Results, name: str, *, described: bool = True) -> Section:
    """Return the section on a study; `name` is the prefix of its figures and tables.

    With `described`, the section begins with the description of the study in words.
    """
    study = results.study
    items: list[Item] = [_figure(results, name), _table(results, name), _settings(results, name)]
    trials = f"{len(study.methods)} methods, {len(study.points)} values of {study.axis}, {count_worlds(results)}."
    if len(study.points) == 1:
        trials = f"{len(study.methods)} methods, {count_worlds(results)}."
    return Section(study.title, items, lead=f"{describe_study(results) if described else ''} {literal(trials)}".strip())


def _list_measures(results: Results) -> list[str]:
    """Return the measures that have at least one value."""
    study = results.study
    cells = [(setting.method, setting.x) for setting in study.settings]
    return [m for m in _SHOWN if any(results.finite(method, x, m).size for method, x in cells)]


def _figure(results: Results, name: str) -> Figure:
    study, measures = results.study, _list_measures(results)
    numeric = len(study.points) > 1 and all(not isinstance(x, str) for x in study.points)
    if numeric:
        lines = {
            m: {
                method: {float(x): results.values(method, x, m) for x in study.points if study.spec(method, x)}
                for method in study.methods
            }
            for m in measures
        }
        caption = f"Means over {count_worlds(results)} with 95\u00a0% intervals."
        return Figure.from_plot(name, study.title, caption, plot_sweep(lines, study.axis))
    boxes = {
        m: {
            method if len(study.points) == 1 else f"{method}, {x}": results.values(method, x, m)
            for method, x in ((setting.method, setting.x) for setting in study.settings)
            if results.finite(method, x, m).size
        }
        for m in measures
    }
    caption = f"Distributions over {count_worlds(results)}: medians, quartiles and outliers."
    return Figure.from_plot(name, study.title, caption, plot_boxes(boxes))


def _table(results: Results, name: str) -> Table:
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


def _settings(results: Results, name: str) -> Fold:
    """Return the fields of the specifications that differ between settings, and those that they share."""
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


def custom_methods(results: Sequence[Results], runs: Sequence[dict[str, Any]]) -> list[Item]:
    """Return the methods of a report on studies of users."""
    seeds = {f"worlds of {result.study.name}": len(result.seeds) for result in results}
    items: list[Item] = [Fold("Terms and abbreviations", [Facts(MEASURE_TERMS)]), Facts(seeds | run_facts(runs))]
    commands = dict.fromkeys(str(run["command"]) for run in runs)
    return [*items, Code("\n".join(commands), "Command")] if commands else items
