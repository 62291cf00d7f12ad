"""How the number of styles was chosen: what `select_intents` found, as a table of a page."""

from __future__ import annotations

import math

from limiirl.mixture.recommendation import Row
from limiirl.mixture.selection import Selection
from limiirl.report.cells import Cell, Column, Content, Table
from limiirl.report.inline import literal


def selection_table(selection: Selection) -> Table:
    """Return a table with a line a number of styles; the recommended one is marked.

    Examples
    --------
    >>> rows = (Row(1, held_out=-9.0, held_out_se=0.2), Row(2, held_out=-8.5, held_out_se=0.2, bic=17.0))
    >>> found = Selection(rows, 2, {"held_out": 2}, "2 intents, by cross-validation.", {})
    >>> [cell.text for cell in selection_table(found).cells[1]][:3]
    ['2', '–', '−8.50 ± 0.20']
    """
    columns: list[Column | str] = [
        Column("Styles", "left"),
        "Log-likelihood",
        "Held out",
        "Behind the best",
        "BIC",
        "ICL",
        Column("Remarks", "left"),
    ]
    what = "trip" if selection.noun == "demonstrations" else "driver"
    caption = (
        f"Log-likelihoods in nats a {what}: of the fit to all, and of what cross-validation left out, with standard "
        "errors. Behind is how far the held-out one is below the best, with the standard error of that difference. BIC "
        f"and ICL count parameters; lower is better. {literal(selection.reason)}"
    )
    rows = [_line(row, selection) for row in selection.rows]
    return Table("cross-validation-styles", "How many styles", caption, columns, rows)


def _line(row: Row, selection: Selection) -> list[Content]:
    best = row.n_intents == selection.recommended
    remarks = [
        "recommended" if best else "",
        f"failed: {row.error}" if row.error else "",
        "" if row.error or row.converged else "EM did not converge",
        f"{row.n_empty} without trips" if row.n_empty else "",
    ]
    return [
        Cell(f"{row.n_intents}", mark="best" if best else None, value=row.n_intents),
        Cell.number(row.log_likelihood, 2),
        _with_error(row.held_out, row.held_out_se),
        _with_error(row.behind, row.behind_se),
        Cell.number(row.bic, 0),
        Cell.number(row.icl, 0),
        ", ".join(remark for remark in remarks if remark),
    ]


def _with_error(value: float, error: float) -> Cell:
    return Cell.estimate(value, error, 2) if math.isfinite(error) else Cell.number(value, 2)
