"""Table 1 beside the paper's own numbers, the runs that isolate what differs, and the paired tests."""

from __future__ import annotations

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
from limiirl.report.tables import Cell, Column, Mark, Table

LEAST_WORLDS = 20
_FEWER = sorted(EARLY_STOPS, key=lambda name: -EARLY_STOPS[name])
_SIGNS = {"agrees": "✓", "in rounding": "≈", "differs": "✗"}
DIGITS = {"n_iter": 1, "seconds": 3, "nll": 2, "anid": 3, "accuracy": 3, "gevd": 2}
"""Decimals of each measure."""

TITLES = {name: title if title.isupper() else title.capitalize() for name, title in MEASURES.items()} | {
    "accuracy": "Accuracy"
}
"""Headings of each measure."""


def cell(results: Results, method: str, x: Point, measure: str, *, compare: bool = True) -> Cell:
    """Return a mean with its half-width, marked by whether it agrees with the paper where that has a target."""
    found = results.interval(method, x, measure)
    digits = DIGITS.get(measure.removesuffix("_start"), 3)  # ANID's readings too
    if found is None:
        known = results.finite(method, x, measure)
        return Cell.number(float(known[0]) if known.size else None, digits, note=_fewer(results, known.size))
    target = measure.removesuffix("_start")
    reported = TABLE1.get(method, {}).get(target)
    # Of few worlds the interval is so wide that it agrees with anything.
    if reported is None or not compare or target not in TARGETS or found.n < LEAST_WORLDS:
        return Cell.estimate(found.mean, found.half_width, digits, note=_fewer(results, found.n))
    said = verdict(found, reported)
    note = (
        "Agrees only with some other number that the paper would print in the same way."
        if said == "in rounding"
        else ""
    )
    mark: Mark = "agrees" if said == "agrees" else "differs"
    note = f"{note} {_fewer(results, found.n)}".strip()
    return Cell.estimate(found.mean, found.half_width, digits, mark=mark, note=note)


def _fewer(results: Results, n: int) -> str:
    """Return a note where a number is of fewer worlds than the table's others."""
    return f"Over {n} of the {len(results.seeds)} worlds; the others failed." if 0 < n < len(results.seeds) else ""


def iterations(results: Results, method: str, x: Point = PAPER_LENGTH, *, counted: bool = True) -> Cell:
    """Return EM's iterations, with a note where some fits had to stop before they converged: how many, if `counted`."""
    plain = cell(results, method, x, "n_iter")
    known = results.finite(method, x, "converged")
    cut = int(np.sum(known == 0.0))
    spec = results.study.spec(method, x)
    if not cut or not plain.spread or spec is None or spec.max_iter == 0:
        return plain
    who = f"{cut} of {known.size}" if counted else "Some fits"
    return replace(plain, note=f"{who} stopped at the largest number, so that more was needed. {plain.note}".strip())


def _paper_cell(method: str, measure: str) -> Cell:
    reported = TABLE1[method].get(measure)
    if reported is None:
        return Cell.number(None)
    # One digit more than the paper prints, for its widths are halved.
    digits = 3 if measure == "anid" else 2
    return Cell(
        f"{reported.mean:.2f} ± {reported.half_width:.{digits}f}", None, "", reported.mean, (reported.half_width,)
    )


def comparison_table(results: Results) -> Table:
    """Return Table 1: every method's iterations, duration, NLL, ANID and GEVD, the paper's line under ours."""
    rows: list[list[Cell | str]] = []
    for method in METHODS:
        scores = [cell(results, method, PAPER_LENGTH, measure) for measure in MEASURES if measure != "n_iter"]
        rows.append([method, iterations(results, method), *scores])
        if method in NAMES:
            rows.append([f"the paper's {NAMES[method]}", *(_paper_cell(method, measure) for measure in MEASURES)])
    return Table(
        "table1",
        f"Table 1, ElementWorld: mean ± half-width of the 95 % interval over {len(results.seeds)} worlds",
        "The paper prints full widths after its ±; they are halved here. A figure agrees where the difference is at "
        "most the root of the sum of both half-widths' squares. Iterations and durations are no targets: the paper's "
        f"end by a rule that its inexact gradient triggers, on another machine. Fewer than {LEAST_WORLDS} worlds get "
        "no verdict: their intervals would agree with anything.",
        [Column("Method", align="left"), *(TITLES[measure] for measure in MEASURES)],
        rows,
    )


def comparison_text(results: Results) -> str:
    """Return Table 1 for a terminal, the paper's mean and a sign for the verdict in brackets."""
    width = max(map(len, METHODS))
    lines = [f"  {'':<{width}}  {'iterations':>13}  {'seconds':>15}" + "".join(f"  {TITLES[m]:>24}" for m in TARGETS)]
    for method in METHODS:
        plain = [cell(results, method, PAPER_LENGTH, measure).text for measure in ("n_iter", "seconds")]
        line = f"  {method:<{width}}  {plain[0]:>13}  {plain[1]:>15}"
        for measure in TARGETS:
            text = cell(results, method, PAPER_LENGTH, measure).text
            reported, found = TABLE1.get(method, {}).get(measure), results.interval(method, PAPER_LENGTH, measure)
            if reported is not None and found is not None:
                sign = _SIGNS[verdict(found, reported)] if found.n >= LEAST_WORLDS else ""
                text += f" ({reported.mean:.2f} {sign})".replace(" )", ")")
            line += f"  {text:>24}"
        lines.append(line.rstrip())
    legend = ", ".join(f"{sign} {name}" for name, sign in _SIGNS.items())
    return "\n".join([*lines, f"  Mean ± half-width of the 95 % interval; in brackets the paper's mean: {legend}."])


def length_table(results: Results) -> Table:
    """Return the same with L = 50: what the largest length does to the likelihood."""
    rows: list[list[Cell | str]] = [
        [method, *(cell(results, method, FIXED_LENGTH, measure) for measure in MEASURES)] for method in NAMES
    ]
    return Table(
        "table1-length",
        "The same with L = 50",
        "The largest length is part of the model. Trajectories that nobody walks take their share of the probability, "
        "so NLL is larger; the paper's numbers go with the longest demonstration.",
        [Column("Method", align="left"), *(TITLES[measure] for measure in MEASURES)],
        rows,
    )


def early_table(results: Results) -> Table:
    """Return warm starts that are cut after fewer and fewer iterations, down to none."""
    rows: list[list[Cell | str]] = []
    for method in WARM:
        rows.append([f"{method}, to convergence", *(cell(results, method, PAPER_LENGTH, m) for m in TARGETS)])
        rows += [[f"{method}, {stop}", *(cell(results, method, stop, m) for m in TARGETS)] for stop in _FEWER]
        rows.append([f"{method}, before EM", *(cell(results, method, PAPER_LENGTH, f"{m}_start") for m in TARGETS)])
        rows.append([f"the paper's {NAMES[method]}", *(_paper_cell(method, m) for m in TARGETS)])
    return Table(
        "table1-early",
        "What further iterations do to a warm start",
        "The paper's warm starts were counted 3.4 iterations on average, and a rule that its inexact gradient triggers "
        "rolled the last one back. Cutting ours there isolates what that does: EM raises the likelihood of a model "
        "that tilts the wind, and ANID and GEVD get worse with it.",
        [Column("Method", align="left"), *(TITLES[m] for m in TARGETS)],
        rows,
    )


def before_after_table(results: Results) -> Table:
    """Return the scores of the mixture with which EM began, and of the one with which it ended."""
    measures = ("nll", "anid", "gevd")
    columns = [Column("Method", align="left")]
    for measure in measures:
        columns += [Column("start", group=TITLES[measure]), Column("end", group=TITLES[measure])]
    rows: list[list[Cell | str]] = [
        [method]
        + [
            cell(results, method, PAPER_LENGTH, name, compare=False)
            for measure in measures
            for name in (f"{measure}_start", measure)
        ]
        for method in METHODS
    ]
    caption = (
        "Scores on the test demonstrations of the mixture with which EM begins, and of the one with which it ends."
    )
    return Table("start-and-end", "What EM adds to its start", caption, columns, rows)


def anid_table(results: Results) -> Table:
    """Return ANID by what counts as the truth, and of most likely intents."""
    kinds = {
        "anid": "from labels",
        "anid_truth": "from the true ensemble's posterior",
        "anid_hard": "of the most likely intents, from labels",
    }
    rows: list[list[Cell | str]] = [
        [method] + [cell(results, method, PAPER_LENGTH, name, compare=False) for name in kinds] for method in METHODS
    ]
    caption = "The paper speaks of the true mixture's responsibilities, its code compares with labels."
    return Table("anid", "ANID, three readings", caption, [Column("Method", align="left"), *kinds.values()], rows)


def random_table(results: Results, x: Point = PAPER_LENGTH, name: str = "paired-tests") -> Table:
    """Return paired tests of every learned method against random rewards."""
    columns: list[Column | str] = [Column("Method", align="left"), Column("Measure", align="left")]
    columns += ["Difference", "p, Student", "p, Wilcoxon", "Effect d"]
    rows: list[list[Cell | str]] = []
    for method in METHODS:
        if method in (RANDOM, SUPERVISED):
            continue
        for measure in ("anid", "gevd", "n_iter"):
            found = results.compare((method, x), (RANDOM, x), measure)
            if found is not None:
                rows.append(
                    [
                        method,
                        TITLES[measure],
                        *comparison_cells(results, found, measure, certain=found.better == method),
                    ]
                )
    caption = (
        "Method minus random rewards, world by world: mean ± half-width of the 99 % interval; negative is better. "
        "Certain is what has p < 0.01 in both tests."
    )
    return Table(name, "Against random rewards", caption, columns, rows)


def difference(results: Results, found: Comparison, digits: int, *, certain: bool) -> Cell:
    """Return the mean difference of a paired comparison with its half-width."""
    gap = found.difference
    mark: Mark | None = "certain" if certain else None
    return Cell.estimate(gap.mean, gap.half_width, digits, mark=mark, note=_fewer(results, gap.n))


def comparison_cells(
    results: Results, found: Comparison | None, measure: str, *, certain: bool | None = None
) -> list[Cell]:
    """Return the difference with its half-width, both p and the effect of a paired comparison, dashes for none.

    Marked certain is by default what both tests are sure of, whoever is better.
    """
    if found is None:
        return [Cell.number(None)] * 4
    certain = found.better is not None if certain is None else certain
    return [
        difference(results, found, DIGITS[measure], certain=certain),
        Cell(f"{found.p_t:.2g}", value=found.p_t),
        Cell(f"{found.p_wilcoxon:.2g}", value=found.p_wilcoxon),
        Cell.number(found.effect, 2),
    ]
