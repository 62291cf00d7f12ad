"""The scores of other models for a terminal: a block a measure, methods down and settings across."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from limiirl.experiments.results import Results
from limiirl.experiments.studies import Point
from limiirl.report.studies.beyond_tables import methods_at, paper_point
from limiirl.report.studies.table1 import TITLES, cell

_LEGEND = "  Mean ± half-width of the 95 % interval"
_At = tuple[str, Point]


def models_text(results: Results) -> str:
    """Return the means of a study of one model."""
    points, methods = results.study.points, results.study.methods
    # Of agents there is no GEVD.
    rewards = any(results.finite(name, x, "gevd").size for name in methods for x in points)
    measures = [*(["gevd"] if rewards else []), "anid", "accuracy", "nll", "n_iter", "seconds"]
    if len(points) == 1:
        at = {(name, m): _cell(results, (name, points[0]), m) for name in methods for m in measures}
        return "\n".join([_block("", methods, measures, at, TITLES), f"{_LEGEND}."])
    blocks = []
    for m in measures:
        at = {(name, str(x)): _cell(results, (name, x), m) for name in methods for x in points}
        blocks.append(_block(TITLES[m], methods, [str(x) for x in points], at))
    return "\n".join([*blocks, f"{_LEGEND}, by {results.study.axis}."])


def beyond_text(results: Results) -> str:
    """Return the means of every model and start at the paper's setting, where the study has that."""
    x = paper_point(results)
    if x is None:
        return ""
    known = methods_at(results, x)
    models = list(dict.fromkeys(model for model, _ in known))
    # The first model has the most starts.
    starts = list(dict.fromkeys(start for _, start in known))
    blocks = []
    for m in ("gevd", "anid", "seconds"):
        at = {(start, model): _cell(results, (name, x), m) for (model, start), name in known.items()}
        blocks.append(_block(TITLES[m], starts, models, at))
    return "\n".join([*blocks, f"{_LEGEND} at the paper's setting, E = 3 and wind 0.1."])


def _cell(results: Results, at: _At, measure: str) -> str:
    return cell(results, *at, measure, compare=False).text


def _block(
    title: str,
    rows: Sequence[str],
    columns: Sequence[str],
    at: Mapping[tuple[str, str], str],
    headings: Mapping[str, str] | None = None,
) -> str:
    """Return rows and columns in fixed width; what is not there is a dash."""
    width = max(map(len, [title, *rows]))
    names = [(headings or {}).get(column, column) for column in columns]
    table = [(title, names), *((row, [at.get((row, column), "–") for column in columns]) for row in rows)]
    wide = max(len(text) for _, texts in table for text in texts)
    return "\n".join(f"  {name:<{width}}" + "".join(f"  {text:>{wide}}" for text in texts) for name, texts in table)
