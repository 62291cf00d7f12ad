"""Measures that take few values: how many repeats came to each, beside the mean, where a box plot would hide it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike

from limiirl.report.figures.look import Drawn, Keywords, Row, blank, fitted, in_ink, legend, measure, numbers, told
from limiirl.report.figures.method_styles import MethodStyle, styles
from limiirl.report.figures.sweeps import summary
from limiirl.report.ink import INK, MUTED, RULE

# Values closer than this are one: posteriors that are all but certain differ by less.
_SAME = 0.01
# Points across of a dot that stands for all repeats.
_LARGEST = 11.0


@in_ink
def counted(values: Mapping[str, Mapping[str, Mapping[str, ArrayLike]]]) -> Drawn:
    """Draw a dot for each value that occurs, as large as it is frequent, with mean and 95 % interval below.

    The axis is of the values that occur, and an interval that reaches further is cut.

    Parameters
    ----------
    values : measure -> setting -> method -> (n,)
        One value a repeat; None or NaN where a trial failed. A row of panels a measure, a panel a setting.

    Examples
    --------
    >>> drawn = counted({"accuracy": {"5 trajectories": {"random rewards": [1.0, 1.0, 2 / 3, None]}}})
    >>> [(round(row["value"], 2), row["count"], row["n"], round(row["mean"], 3)) for row in drawn.rows]
    [(0.67, 1, 3, 0.889), (1.0, 2, 3, 0.889)]
    """
    settings = list(dict.fromkeys(setting for by in values.values() for setting in by))
    methods = list(dict.fromkeys(name for by in values.values() for at in by.values() for name in at))
    look = styles(methods)
    lines = max(len(values), 1)
    figure = blank((0.75 + 0.34 * max(len(methods), 2)) * lines)
    rows: list[Row] = []
    for line, (name, by) in enumerate(values.items()):
        first: Axes | None = None
        for column, setting in enumerate(settings):
            ax = figure.add_subplot(lines, len(settings), line * len(settings) + column + 1, sharex=first)
            first = first or ax
            for y, method in enumerate(methods):
                mine = _rows(by.get(setting, {}).get(method, ()))
                _strip(ax, y, mine, look[method])
                rows += [{"measure": name, "setting": setting, "method": method, **row} for row in mine]
            labels = [fitted(look[method].label) for method in methods] if column == 0 else [""] * len(methods)
            _finish(ax, name, setting, labels)
        if first is not None:
            _limits(first, [row["value"] for row in rows if row["measure"] == name])
    legend(figure, _key(max((row["n"] for row in rows), default=0)), columns=3)
    return Drawn(figure, rows, _alt(rows))


def _rows(values: ArrayLike) -> list[Row]:
    """Return each value that occurs with its count; neighbours that are all but equal count as their mean."""
    array = numbers(values)
    known = np.sort(array[np.isfinite(array)])
    at = summary(known)
    groups = np.split(known, np.flatnonzero(np.diff(known) > _SAME) + 1) if known.size else []
    about = {"n": at.n, "failed": array.size - known.size, "mean": at.mean, "low": at.low, "high": at.high}
    return [{"value": float(group.mean()), "count": group.size, **about} for group in groups]


def _size(count: int, n: int) -> float:
    """Return a dot's width: its area is in proportion to its count, but for dots too small to see."""
    return max(_LARGEST * float(np.sqrt(count / n)), 1.8)


def _strip(ax: Axes, y: float, rows: Sequence[Row], style: MethodStyle) -> None:
    if not rows:
        place = ax.get_yaxis_transform()
        ax.text(0.02, y, "none", transform=place, va="center", fontsize="small", color=MUTED, fontstyle="italic")
        return
    for row in rows:
        dot: Keywords = {"markersize": _size(row["count"], row["n"]), "markeredgewidth": 0.8}
        ax.plot(row["value"], y - 0.1, "o", color=style.colour, markerfacecolor=(style.colour, 0.35), **dot)
    below = y + 0.33
    ax.plot([rows[0]["low"], rows[0]["high"]], [below] * 2, color=INK, linewidth=1.4, solid_capstyle="butt")
    ax.plot(rows[0]["mean"], below, "|", color=INK, markersize=5.0, markeredgewidth=1.6)


def _finish(ax: Axes, name: str, setting: str, labels: list[str]) -> None:
    ax.set_title(setting)
    ax.set_xlabel(measure(name).title)
    ax.set_yticks(np.arange(len(labels)), labels)
    ax.set_ylim(len(labels) - 0.4, -0.6)
    ax.locator_params(axis="x", nbins=3)
    ax.tick_params(axis="y", length=0, labelcolor=INK)
    ax.spines["left"].set_visible(False)
    ax.grid(visible=True, axis="x", color=RULE)


def _limits(ax: Axes, values: Sequence[float]) -> None:
    """Show what occurs, with room for half of the largest dot; an interval of few repeats may reach beyond it."""
    if values:
        room = 0.15 * ((max(values) - min(values)) or 1.0)
        ax.set_xlim(min(values) - room, max(values) + room)


def _key(n: int) -> list[Line2D]:
    counts = sorted({1, max(n // 4, 1), max(n, 1)})
    look: Keywords = {"linestyle": "", "marker": "o", "color": MUTED, "markerfacecolor": (MUTED, 0.35)}
    dots = [
        Line2D([], [], **look, markersize=_size(c, max(n, 1)), label=f"{c} repeat{'s' if c > 1 else ''}")
        for c in counts
    ]
    bar = Line2D([], [], color=INK, linewidth=1.4, marker="|", markersize=5.0, markeredgewidth=1.6)
    bar.set_label("mean and 95 % interval")
    return [*dots, bar]


def _alt(rows: Sequence[Row]) -> str:
    parts = []
    for name in dict.fromkeys(row["measure"] for row in rows):
        for setting in dict.fromkeys(row["setting"] for row in rows):
            mine = {row["method"]: row for row in rows if (row["measure"], row["setting"]) == (name, setting)}
            order = sorted(mine.values(), key=lambda row: float(row["mean"]), reverse=measure(name).rising)
            if order:
                said = [f"{row['method']} ({told(row['mean'])})" for row in (order[0], order[-1])]
                parts.append(f"{measure(name).title}, {setting}, from {' to '.join(said)}")
    return f"How often each value occurs, by method. Means, best to worst: {'; '.join(parts) or 'none'}."
