"""Comparisons of methods: box plots, counts of discrete values, and paired differences from a baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from numpy.typing import ArrayLike

from limiirl._typing import FloatArray
from limiirl.errors import InvalidParameter
from limiirl.metrics import compare_paired
from limiirl.report.figures.style import (
    Keywords,
    MethodStyle,
    Plot,
    Row,
    add_legend,
    describe_range,
    get_measure,
    log_axis,
    method_styles,
    new_figure,
    new_panels,
    note_empty,
    set_rows,
    suits_log_axis,
    summarise,
    to_floats,
    use_report_style,
    wrap_label,
)
from limiirl.report.svg import INK, MUTED, PAPER

# Whiskers reach to the outermost value within this many interquartile ranges of the box.
_REACH = 1.5
_HALF = 0.27
_FILL = 0.3
_PAPER_MARK: Keywords = {"color": INK, "markersize": 3.6, "markerfacecolor": PAPER}
# Values closer than this share one dot: posteriors that are nearly certain differ by less.
_SAME = 0.01
# Diameter in points of a dot that stands for all repeats.
_LARGEST = 11.0


class FiveNumbers(NamedTuple):
    """Values of a box plot: whiskers, quartiles, median and outliers; `n` values are finite, `failed` are not."""

    n: int
    failed: int
    mean: float
    low: float
    q1: float
    median: float
    q3: float
    high: float
    outliers: tuple[float, ...]


def five_numbers(values: ArrayLike) -> FiveNumbers:
    """Return quartiles, interpolated linearly, and whiskers at 1.5 interquartile ranges (paper, Appendix D).

    >>> box = five_numbers([1.0, 2.0, 3.0, 4.0, 50.0, None])
    >>> box.low, box.q1, box.median, box.q3, box.high, box.outliers, box.failed
    (1.0, 2.0, 3.0, 4.0, 4.0, (50.0,), 1)
    """
    array = to_floats(values)
    finite = np.sort(array[np.isfinite(array)])
    failed = int(array.size - finite.size)
    if not finite.size:
        nan = float("nan")
        return FiveNumbers(0, failed, nan, nan, nan, nan, nan, nan, ())
    q1, median, q3 = (float(q) for q in np.quantile(finite, (0.25, 0.5, 0.75)))
    reach = _REACH * (q3 - q1)
    inside = finite[(finite >= q1 - reach) & (finite <= q3 + reach)]
    # A whisker never ends inside its box, even if no value lies between the two.
    low, high = min(float(inside[0]), q1), max(float(inside[-1]), q3)
    outliers = tuple(finite[(finite < low) | (finite > high)].tolist())
    return FiveNumbers(finite.size, failed, float(finite.mean()), low, q1, median, q3, high, outliers)


@use_report_style
def plot_boxes(
    values: Mapping[str, Mapping[str, ArrayLike]],
    reference: Mapping[str, Mapping[str, tuple[float, float]]] | None = None,
) -> Plot:
    """Draw box plots by method, one panel per measure.

    `values` maps measure -> method -> (n,), one value per world, None or NaN for a failed trial. `reference` maps
    measure -> method -> (mean, half-width): numbers of the paper, drawn below the boxes.
    """
    methods = list(dict.fromkeys(name for by_method in values.values() for name in by_method))
    styles = method_styles(methods)
    labels = [wrap_label(method) for method in methods]
    # Neighbouring labels of two lines need more room.
    height = 0.33 if any("\n" in a and "\n" in b for a, b in pairwise(labels)) else 0.26
    figure, axes, spare = new_panels(len(values), 0.66 + height * max(len(methods), 2))
    rows: list[Row] = []
    for place, (name, by_method) in enumerate(values.items()):
        ax = axes[place]
        for y, method in enumerate(methods):
            box = five_numbers(by_method.get(method, ()))
            mean, half = (reference or {}).get(name, {}).get(method, (float("nan"), float("nan")))
            _draw_box(ax, y, box, styles[method])
            if np.isfinite(mean):
                # Just below the box, where the mark hides nothing.
                mark = {"fmt": "o", "markeredgewidth": 1.0, "elinewidth": 1.0, "capsize": 0.0, **_PAPER_MARK}
                ax.errorbar(mean, y + _HALF + 0.14, xerr=half if np.isfinite(half) else None, **mark)
            numbers = box._asdict() | {"outliers": " ".join(f"{x:.10g}" for x in box.outliers)}
            rows.append({"measure": name, "method": method, **numbers, "paper": mean, "paper_half_width": half})
        about = get_measure(name)
        everything = np.concatenate([np.zeros(0), *(to_floats(v) for v in by_method.values())])
        logarithmic = about.log and suits_log_axis(everything)
        if logarithmic:
            log_axis(ax, "x", everything)
        ax.set(title=about.title, xlabel=about.axis)
        set_rows(ax, labels if place % 2 == 0 else [""] * len(labels), bins=None if logarithmic else 5)
    add_legend(figure, _box_legend(paper=reference is not None), spare)
    worlds = max((row["n"] for row in rows), default=0)
    ends = {
        name: describe_range((row for row in rows if row["measure"] == name and row["n"]), "method", "median")
        for name in values
    }
    parts = "; ".join(f"{get_measure(name).title} from {end}" for name, end in ends.items() if end)
    return Plot(figure, rows, f"Box plots by method over up to {worlds} worlds. Medians, best to worst: {parts}.")


def _draw_box(ax: Axes, y: float, box: FiveNumbers, style: MethodStyle) -> None:
    if not box.n:
        note_empty(ax, y)
        return
    for a, b in ((box.low, box.q1), (box.q3, box.high)):
        ax.plot([a, b], [y, y], color=style.colour, linewidth=1.2, solid_capstyle="butt")
    for x in (box.low, box.high):
        ax.plot([x, x], [y - _HALF / 2, y + _HALF / 2], color=style.colour, linewidth=1.2)
    fill: Keywords = {"facecolor": (style.colour, _FILL), "edgecolor": style.colour, "linewidth": 1.2}
    ax.add_patch(Rectangle((box.q1, y - _HALF), box.q3 - box.q1, 2 * _HALF, **fill))
    ax.plot([box.median] * 2, [y - _HALF, y + _HALF], color=INK, linewidth=2.0, solid_capstyle="butt")
    at = [y] * len(box.outliers)
    ax.plot(box.outliers, at, "d", markersize=3.2, color=style.colour, markeredgewidth=0.0, alpha=0.8)


def _box_legend(*, paper: bool) -> list[Patch | Line2D]:
    entries: list[Patch | Line2D] = [
        Patch(facecolor=(MUTED, _FILL), edgecolor=MUTED, label="middle half"),
        Line2D([], [], color=INK, linewidth=2.0, marker="", label="median"),
        Line2D([], [], color=MUTED, linewidth=1.2, label="within 1.5 IQR"),
        Line2D([], [], color=MUTED, linestyle="", marker="d", markersize=3.2, label="outlier"),
    ]
    if paper:
        entries.append(Line2D([], [], marker="o", linewidth=1.0, label="paper: mean, 95 %", **_PAPER_MARK))
    return entries


@use_report_style
def plot_value_counts(values: Mapping[str, Mapping[str, Mapping[str, ArrayLike]]]) -> Plot:
    """Draw a dot for each value that occurs, its area proportional to its count, with mean and 95 % interval below.

    `values` maps measure -> setting -> method -> (n,), one value per repeat, None or NaN for a failed trial. Each
    measure is a row of panels, each setting a panel. The axis spans the values; wider intervals are cut.
    """
    settings = list(dict.fromkeys(setting for by in values.values() for setting in by))
    methods = list(dict.fromkeys(name for by in values.values() for at in by.values() for name in at))
    styles = method_styles(methods)
    lines = max(len(values), 1)
    figure = new_figure((0.75 + 0.34 * max(len(methods), 2)) * lines)
    rows: list[Row] = []
    for line, (name, by) in enumerate(values.items()):
        first: Axes | None = None
        for column, setting in enumerate(settings):
            ax = figure.add_subplot(lines, len(settings), line * len(settings) + column + 1, sharex=first)
            first = first or ax
            for y, method in enumerate(methods):
                own = _count_values(by.get(setting, {}).get(method, ()))
                _draw_counts(ax, y, own, styles[method])
                rows += [{"measure": name, "setting": setting, "method": method, **row} for row in own]
            ax.set(title=setting, xlabel=get_measure(name).title)
            set_rows(ax, [wrap_label(method) if column == 0 else "" for method in methods], bins=3)
        shown = [row["value"] for row in rows if row["measure"] == name]
        if first is not None and shown:
            # Room for half of the largest dot.
            room = 0.15 * ((max(shown) - min(shown)) or 1.0)
            first.set_xlim(min(shown) - room, max(shown) + room)
    add_legend(figure, _count_legend(max((row["n"] for row in rows), default=0)), columns=3)
    parts = []
    for name, setting in dict.fromkeys((row["measure"], row["setting"]) for row in rows):
        of_panel = {row["method"]: row for row in rows if (row["measure"], row["setting"]) == (name, setting)}
        ends = describe_range(of_panel.values(), "method", rising=get_measure(name).rising)
        parts.append(f"{get_measure(name).title}, {setting}, from {ends}")
    alt = f"Frequency of each value by method. Means, best to worst: {'; '.join(parts) or 'no values'}."
    return Plot(figure, rows, alt)


def _count_values(values: ArrayLike) -> list[Row]:
    """Return each value that occurs with its count; neighbours closer than 0.01 are merged to their mean."""
    array = to_floats(values)
    finite = np.sort(array[np.isfinite(array)])
    at = summarise(finite)
    groups = np.split(finite, np.flatnonzero(np.diff(finite) > _SAME) + 1) if finite.size else []
    about = {"n": at.n, "failed": array.size - finite.size, "mean": at.mean, "low": at.low, "high": at.high}
    return [{"value": float(group.mean()), "count": group.size, **about} for group in groups]


def _dot_size(count: int, n: int) -> float:
    # A minimum keeps rare values visible.
    return max(_LARGEST * float(np.sqrt(count / n)), 1.8)


def _draw_counts(ax: Axes, y: float, rows: Sequence[Row], style: MethodStyle) -> None:
    if not rows:
        note_empty(ax, y)
        return
    for row in rows:
        dot: Keywords = {"markersize": _dot_size(row["count"], row["n"]), "markeredgewidth": 0.8}
        ax.plot(row["value"], y - 0.1, "o", color=style.colour, markerfacecolor=(style.colour, 0.35), **dot)
    below = y + 0.33
    ax.plot([rows[0]["low"], rows[0]["high"]], [below] * 2, color=INK, linewidth=1.4, solid_capstyle="butt")
    ax.plot(rows[0]["mean"], below, "|", color=INK, markersize=5.0, markeredgewidth=1.6)


def _count_legend(n: int) -> list[Line2D]:
    look: Keywords = {"linestyle": "", "marker": "o", "color": MUTED, "markerfacecolor": (MUTED, 0.35)}
    dots = [
        Line2D([], [], **look, markersize=_dot_size(c, max(n, 1)), label=f"{c} repeat{'s' if c > 1 else ''}")
        for c in sorted({1, max(n // 4, 1), max(n, 1)})
    ]
    bar: Keywords = {"color": INK, "linewidth": 1.4, "marker": "|", "markersize": 5.0, "markeredgewidth": 1.6}
    return [*dots, Line2D([], [], label="mean and 95 % interval", **bar)]


@use_report_style
def plot_differences(values: Mapping[str, Mapping[str, ArrayLike]], baseline: str = "random rewards") -> Plot:
    """Plot each method's values minus the baseline's, one dot per world, with mean and 95 % interval.

    `values` maps measure -> method -> (n,). Entry i of all methods belongs to the same world; pairs with None or NaN
    (a failed trial) are left out.
    """
    gaps = {name: _gaps(name, by_method, baseline) for name, by_method in values.items()}
    methods = list(dict.fromkeys(method for by_method in gaps.values() for method in by_method))
    styles = method_styles([baseline, *methods])
    figure = new_figure((0.62 + 0.33 * max(len(methods), 1)) * max(len(gaps), 1))
    rows: list[Row] = []
    for place, (name, by_method) in enumerate(gaps.items()):
        ax = figure.add_subplot(len(gaps), 1, place + 1)
        for y, method in enumerate(methods):
            gap = by_method.get(method, np.zeros(0))
            row = _summarise_gap(gap)
            rows.append({"measure": name, "method": method, **row})
            _draw_gap(ax, y, gap, row, styles[method])
        ax.axvline(0.0, color=MUTED, linewidth=1.2, zorder=0.5)
        ax.set_title(f"{get_measure(name).title} minus that of {wrap_label(baseline, 40, 1)}")
        ax.set_xlabel("left of 0 is better")
        set_rows(ax, [wrap_label(method) for method in methods], bottom=0.5, bins=6)
    parts = []
    for name in dict.fromkeys(row["measure"] for row in rows):
        own = [row for row in rows if row["measure"] == name and row["n"]]
        lower = "; ".join(f"{row['method']} in {row['lower']} of {row['n']}" for row in own)
        parts.append(f"{get_measure(name).title}: {lower}")
    return Plot(figure, rows, f"Differences from {baseline} on the same worlds. Lower than it: {'. '.join(parts)}.")


def _gaps(name: str, by_method: Mapping[str, ArrayLike], baseline: str) -> dict[str, FloatArray]:
    if baseline not in by_method:
        raise InvalidParameter.of("values", name, f"must hold the baseline {baseline!r} for every measure")
    base, gaps = to_floats(by_method[baseline]), {}
    for method, values in by_method.items():
        own = to_floats(values)
        if own.size != base.size:
            raise InvalidParameter(
                f"Methods must have the same worlds; {method!r} has {own.size} values of {name} and {baseline!r} "
                f"{base.size}. Use None for a failed trial.",
                parameter="values",
                value=method,
            )
        gap = own - base
        # A method without the measure (supervised fits have no iterations) has no row.
        if method != baseline and (np.isfinite(gap).any() or not np.isfinite(base).any()):
            gaps[method] = gap
    return gaps


def _summarise_gap(gap: FloatArray) -> Row:
    finite = gap[np.isfinite(gap)]
    at = summarise(finite)
    tests = compare_paired(finite, np.zeros(finite.size)) if finite.size >= 2 else None
    return {
        "n": finite.size,
        "mean": at.mean,
        "low": at.low,
        "high": at.high,
        "lower": int(np.sum(finite < 0.0)),
        "higher": int(np.sum(finite > 0.0)),
        "p_t": float("nan") if tests is None else tests.p_t,
        "p_wilcoxon": float("nan") if tests is None else tests.p_wilcoxon,
    }


def _draw_gap(ax: Axes, y: float, gap: FloatArray, row: Row, style: MethodStyle) -> None:
    finite = np.sort(gap[np.isfinite(gap)])
    label = f"lower in {row['lower']} of {row['n']}" if finite.size else "none"
    ax.text(1.01, y, label, transform=ax.get_yaxis_transform(), va="center", fontsize="small", color=MUTED)
    # Vertical jitter by rank, without randomness, keeps equal differences visible.
    jitter = (np.arange(finite.size) * 3 % 7 - 3) / 22.0
    ax.plot(finite, y + jitter, "o", color=style.colour, markersize=3.2, alpha=0.4, markeredgewidth=0.0)
    ax.plot([row["low"], row["high"]], [y] * 2, color=INK, linewidth=2.4, solid_capstyle="butt")
    ax.plot(row["mean"], y, style.marker, color=INK, markerfacecolor=style.colour, markersize=5.0)
