"""The picture of a `Selection`: a small panel for each criterion. Importing this imports matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from limiirl.mixture.recommendation import NAMES

if TYPE_CHECKING:
    from limiirl.mixture.selection import Selection

# A criterion's field, its standard error, its title, and the direction that speaks for a number of intents.
_PANELS = (
    ("behind", "behind_se", "held-out log-likelihood below the best", "lower is better"),
    ("bic", None, "BIC", "lower is better"),
    ("icl", None, "ICL", "lower is better"),
    ("aic", None, "AIC", "lower is better"),
    ("stability", None, "stability (adjusted Rand index)", "higher is better"),
    ("log_likelihood", None, "log-likelihood of all data", "rises with K: no criterion"),
)
_LINE, _MARK, _FAINT = "#0072b2", "#d55e00", "#999999"
_WIDTH, _HEIGHT, _COLUMNS = 3.4, 2.4, 3


def draw(selection: Selection, ax: Axes | None) -> Figure:
    """Draw a panel for each known criterion, or the most trusted one alone; see `Selection.plot`."""
    known = [panel for panel in _PANELS if any(np.isfinite(getattr(row, panel[0])) for row in selection.rows)]
    if ax is not None:
        _draw_panel(selection, known[0], ax)
        return ax.get_figure(root=True) or plt.gcf()
    columns = min(_COLUMNS, len(known))
    lines = -(-len(known) // columns)
    figure, axes = plt.subplots(
        lines, columns, figsize=(_WIDTH * columns, _HEIGHT * lines + 0.5), squeeze=False, layout="constrained"
    )
    for panel, place in zip(known, axes.flat, strict=False):
        _draw_panel(selection, panel, place)
    for place in axes.flat[len(known) :]:
        place.remove()
    sticks = selection.recommendations.get("stick_breaking")
    told = "" if sticks is None else f"; {NAMES['stick_breaking']} sees {sticks}"
    number = f"{selection.recommended} {'intent' if selection.recommended == 1 else 'intents'}"
    figure.suptitle(f"{number} recommended (line); a criterion's own choice is ringed{told}", fontsize=10)
    return figure


def _draw_panel(selection: Selection, panel: tuple[str, str | None, str, str], ax: Axes) -> None:
    name, error, title, direction = panel
    numbers = [row.n_intents for row in selection.rows]
    values = np.array([getattr(row, name) for row in selection.rows])
    ax.axvline(selection.recommended, color=_MARK, alpha=0.35, linewidth=6, zorder=0)
    if error is None:
        ax.plot(numbers, values, "o-", color=_LINE, markersize=4)
    else:
        errors = np.array([getattr(row, error) for row in selection.rows])
        ax.errorbar(numbers, values, errors, fmt="o-", color=_LINE, markersize=4, capsize=3)
        ax.axhline(0.0, color=_FAINT, linewidth=0.8, linestyle=":", zorder=0)
    chosen = selection.recommendations.get("held_out" if name == "behind" else name)
    if chosen is not None:
        ax.plot(chosen, values[numbers.index(chosen)], "o", markersize=11, markerfacecolor="none", color=_MARK)
    ax.set_title(title, fontsize=9)
    ax.set_xlabel(f"intents ({direction})", fontsize=8)
    ax.set_xticks(numbers)
    ax.tick_params(labelsize=8)
    ax.spines[["top", "right"]].set_visible(False)
