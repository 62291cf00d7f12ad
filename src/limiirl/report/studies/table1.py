"""Table 1 with the values of the paper, variants that isolate the differences, and paired tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from limiirl.experiments import (
    EARLY_STOPS,
    FIXED_LENGTH,
    MEASURES,
    METHODS,
    NAMES,
    PAPER_LENGTH,
    RANDOM,
    SUPERVISED,
    TABLE1,
    TARGETS,
    WARM,
    Point,
    Results,
    verdict,
)
from limiirl.metrics import Comparison
from limiirl.report.tables import Cell, Column, Content, Mark, Table

MIN_WORLDS = 20
"""Number of worlds below which values are not compared with the paper."""
DIGITS = {"n_iter": 1, "seconds": 3, "nll": 2, "anid": 3, "accuracy": 3, "gevd": 2}
"""Number of decimals of each measure."""
TITLES = {name: title if title.isupper() else title.capitalize() for name, title in MEASURES.items()} | {
    "accuracy": "Accuracy"
}
"""Column heading of each measure."""
METHOD = Column("Method", align="left")
"""First column of most tables."""

_FEWER = sorted(EARLY_STOPS, key=lambda name: -EARLY_STOPS[name])
_SIGNS = {"agrees": "✓", "in rounding": "≈", "differs": "✗"}
_LEGEND = "✓ agrees, ≈ agrees within rounding, ✗ differs"
_ROUNDING = "Agrees only within the rounding of the printed value."


def score_cell(results: Results, method: str, x: Point, measure: str, *, compare: bool = True) -> Cell:
    """Return a mean with its half-width, marked by its agreement with the value of the paper, if there is one."""
    interval = results.interval(method, x, measure)
    target = measure.removesuffix("_start")
    digits = DIGITS.get(target, 3)
    if interval is None:
        finite = results.finite(method, x, measure)
        return Cell.number(float(finite[0]) if finite.size else None, digits, note=_note_failures(results, finite.size))
    reported = TABLE1.get(method, {}).get(target)
    note = _note_failures(results, interval.n)
    mark: Mark | None = None
    # Intervals over few worlds are so wide that they would agree with any value.
    if reported is not None and compare and target in TARGETS and interval.n >= MIN_WORLDS:
        agreement = verdict(interval, reported)
        mark = "agrees" if agreement == "agrees" else "differs"
        note = f"{_ROUNDING} {note}".strip() if agreement == "in rounding" else note
    return Cell.estimate(interval.mean, interval.half_width, digits, mark=mark, note=note)


def _note_failures(results: Results, n: int) -> str:
    return f"Over {n} of the {len(results.seeds)} worlds; the others failed." if 0 < n < len(results.seeds) else ""


def iterations_cell(results: Results, method: str, x: Point = PAPER_LENGTH, *, count: bool = True) -> Cell:
    """Return the EM iterations, with a note if fits did not converge; `count` adds the number of these fits."""
    plain = score_cell(results, method, x, "n_iter")
    converged = results.finite(method, x, "converged")
    cut = int(np.sum(converged == 0.0))
    spec = results.study.spec(method, x)
    if not cut or plain.half_width is None or spec is None or spec.max_iter == 0:
        return plain
    fits = f"{cut} of {converged.size} fits" if count else "Some fits"
    return replace(plain, note=f"{fits} reached the maximum number of iterations. {plain.note}".strip())


def _paper_cell(method: str, measure: str) -> Cell:
    reported = TABLE1[method].get(measure)
    if reported is None:
        return Cell.number(None)
    # One digit more than in the paper, because its widths are halved.
    digits = 3 if measure == "anid" else 2
    text = f"{reported.mean:.2f} ± {reported.half_width:.{digits}f}"
    return Cell(text, None, "", reported.mean, reported.half_width)


def _method_table(name: str, title: str, caption: str, measures: Sequence[str], rows: Sequence[list[Content]]) -> Table:
    return Table(name, title, caption, [METHOD, *(TITLES[measure] for measure in measures)], rows)


def score_table(results: Results, name: str, title: str, caption: str, x: Point, *, compare: bool = False) -> Table:
    """Return the table of iterations, duration, NLL, ANID and GEVD, with the values of the paper if `compare`."""
    rows: list[list[Content]] = []
    for method in results.study.methods if not compare else METHODS:
        scores = [score_cell(results, method, x, m, compare=compare) for m in MEASURES if m != "n_iter"]
        rows.append([method, iterations_cell(results, method, x), *scores])
        if compare and method in NAMES:
            rows.append([f"{NAMES[method]}, paper", *(_paper_cell(method, measure) for measure in MEASURES)])
    return _method_table(name, title, caption, list(MEASURES), rows)


def comparison_table(results: Results) -> Table:
    """Return Table 1: the scores of every method, each followed by the values of the paper."""
    worlds = f"{len(results.seeds)} world{'' if len(results.seeds) == 1 else 's'}"
    return score_table(
        results,
        "table1",
        f"Table 1, ElementWorld: mean ± half-width of the 95 % interval over {worlds}",
        "The paper prints the full width of the interval after ±, which is halved here. Two values agree if their "
        "difference is at most the root sum of squares of their half-widths. Iterations and durations are not "
        "compared, because the stopping rule and the machine of the paper were different. Values over fewer than "
        f"{MIN_WORLDS} worlds are not compared, because the intervals are too wide.",
        PAPER_LENGTH,
        compare=True,
    )


def comparison_text(results: Results) -> str:
    """Return Table 1 as text; brackets contain the paper's mean and a sign that indicates agreement."""
    width = max(map(len, METHODS))
    lines = [f"  {'':<{width}}  {'iterations':>13}  {'seconds':>15}" + "".join(f"  {TITLES[m]:>24}" for m in TARGETS)]
    for method in METHODS:
        plain = [score_cell(results, method, PAPER_LENGTH, measure).text for measure in ("n_iter", "seconds")]
        line = f"  {method:<{width}}  {plain[0]:>13}  {plain[1]:>15}"
        for measure in TARGETS:
            text = score_cell(results, method, PAPER_LENGTH, measure).text
            reported, interval = TABLE1.get(method, {}).get(measure), results.interval(method, PAPER_LENGTH, measure)
            if reported is not None and interval is not None:
                sign = _SIGNS[verdict(interval, reported)] if interval.n >= MIN_WORLDS else ""
                text += f" ({reported.mean:.2f} {sign})".replace(" )", ")")
            line += f"  {text:>24}"
        lines.append(line.rstrip())
    return "\n".join([*lines, f"  Mean ± half-width of the 95 % interval; mean of the paper in brackets: {_LEGEND}."])


def length_table(results: Results) -> Table:
    """Return the scores of fits with maximum length L = 50."""
    rows: list[list[Content]] = [
        [method, *(score_cell(results, method, FIXED_LENGTH, measure) for measure in MEASURES)] for method in NAMES
    ]
    caption = (
        "The maximum length is part of the model. With L = 50, trajectories longer than any demonstration have "
        "positive probability, which increases the NLL. The values of the paper agree with a maximum length equal to "
        "the length of the longest demonstration."
    )
    return _method_table("table1-length", "Scores with maximum length L = 50", caption, list(MEASURES), rows)


def early_table(results: Results) -> Table:
    """Return the scores of clustered initialisations with EM stopped after few iterations."""
    rows: list[list[Content]] = []
    for method in WARM:
        rows.append([f"{method}, at convergence", *(score_cell(results, method, PAPER_LENGTH, m) for m in TARGETS)])
        rows += [[f"{method}, {stop}", *(score_cell(results, method, stop, m) for m in TARGETS)] for stop in _FEWER]
        initial = [score_cell(results, method, PAPER_LENGTH, f"{m}_start") for m in TARGETS]
        rows.append([f"{method}, before EM", *initial])
        rows.append([f"{NAMES[method]}, paper", *(_paper_cell(method, m) for m in TARGETS)])
    caption = (
        "In the paper, EM from clustered initialisations ran for 3.4 iterations on average, and the stopping rule "
        "discarded the last one. Stopping EM equally early isolates the effect of further iterations: they increase "
        "the likelihood of a model that treats deflections by the wind as choices, while ANID and GEVD get worse."
    )
    title = "Effect of further EM iterations on clustered initialisations"
    return _method_table("table1-early", title, caption, TARGETS, rows)


def before_after_table(results: Results) -> Table:
    """Return the scores of the mixture before and after EM."""
    measures = ("nll", "anid", "gevd")
    columns = [METHOD]
    for measure in measures:
        columns += [Column("before", group=TITLES[measure]), Column("after", group=TITLES[measure])]
    names = [name for measure in measures for name in (f"{measure}_start", measure)]
    caption = "Test scores of the mixture before the first and after the last EM iteration."
    return Table("before-and-after", "Effect of EM", caption, columns, _rows_of(results, names))


def anid_table(results: Results) -> Table:
    """Return the ANID of each method by three definitions, which differ in the compared clusterings."""
    kinds = {
        "anid": "Responsibilities and labels",
        "anid_truth": "Responsibilities and true posterior",
        "anid_hard": "Most likely intents and labels",
    }
    caption = (
        "Each column names the two clusterings that are compared. The paper defines ANID with the posterior of the "
        "true mixture; the code of the paper uses the labels."
    )
    rows = _rows_of(results, list(kinds))
    return Table("anid", "Three definitions of ANID", caption, [METHOD, *kinds.values()], rows)


def _rows_of(results: Results, measures: Sequence[str]) -> list[list[Content]]:
    return [[m, *(score_cell(results, m, PAPER_LENGTH, name, compare=False) for name in measures)] for m in METHODS]


def random_table(results: Results, x: Point = PAPER_LENGTH, name: str = "paired-tests") -> Table:
    """Return the paired tests of every unsupervised method against random rewards."""
    columns: list[Column | str] = [METHOD, Column("Measure", align="left")]
    columns += ["Difference", "p, Student", "p, Wilcoxon", "Effect size d"]
    rows: list[list[Content]] = []
    for method in METHODS:
        if method in (RANDOM, SUPERVISED):
            continue
        for measure in ("anid", "gevd", "n_iter"):
            result = results.compare((method, x), (RANDOM, x), measure)
            if result is not None:
                cells = comparison_cells(results, result, measure, certain=result.better == method)
                rows.append([method, TITLES[measure], *cells])
    caption = (
        "Paired difference between each method and random rewards: mean ± half-width of the 99 % interval. Negative "
        "values favour the method. Differences are marked as significant if p < 0.01 in both tests."
    )
    return Table(name, "Paired tests against random rewards", caption, columns, rows)


def difference_cell(results: Results, result: Comparison, digits: int, mark: Mark | None) -> Cell:
    """Return the mean difference of a paired comparison with its half-width."""
    interval = result.difference
    note = _note_failures(results, interval.n)
    return Cell.estimate(interval.mean, interval.half_width, digits, mark=mark, note=note)


def comparison_cells(
    results: Results, result: Comparison | None, measure: str, *, certain: bool | None = None
) -> list[Cell]:
    """Return the difference, both p-values and the effect size of a paired comparison, or dashes if it is None.

    By default, a difference is marked if both tests are significant, whichever method is better.
    """
    if result is None:
        return [Cell.number(None)] * 4
    certain = result.better is not None if certain is None else certain
    return [
        difference_cell(results, result, DIGITS[measure], "certain" if certain else None),
        Cell(f"{result.p_t:.2g}", value=result.p_t),
        Cell(f"{result.p_wilcoxon:.2g}", value=result.p_wilcoxon),
        Cell.number(result.effect, 2),
    ]


def comparison_columns(measures: Sequence[str]) -> list[Column]:
    """Return the headings of `comparison_cells` for each measure."""
    titles = ("difference", "p, Student", "p, Wilcoxon", "d")
    return [Column(title, group=TITLES[measure]) for measure in measures for title in titles]
