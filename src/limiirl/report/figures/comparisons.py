"""Comparisons of methods and models: box plots, value counts, paired differences, quality, and histograms."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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
    format_number,
    get_measure,
    log_axis,
    method_styles,
    model_styles,
    new_figure,
    new_panels,
    note_empty,
    root_axis,
    set_rows,
    suits_log_axis,
    summarise,
    to_floats,
    use_report_style,
    wrap_label,
)
from limiirl.report.svg import INK, MUTED, NARROW, PAPER, RULE, SERIES

# Whiskers extend to the outermost value within this many interquartile ranges of the box.
_REACH = 1.5
_HALF = 0.27
_FILL = 0.3
_PAPER_MARK: Keywords = {"color": INK, "markersize": 3.6, "markerfacecolor": PAPER}
# Values closer than this are drawn as one dot.
_SAME = 0.01
# Diameter in points of the dot of a value that occurs in all repeats.
_LARGEST = 11.0


class FiveNumbers(NamedTuple):
    """Statistics of a box plot; `n` values are finite, `failed` values are not, `low` and `high` are the whiskers."""

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
    """Return linearly interpolated quartiles and whiskers at 1.5 interquartile ranges (paper, Appendix D).

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
    # A whisker ends at its quartile if no value lies between the quartile and the limit.
    low, high = min(float(inside[0]), q1), max(float(inside[-1]), q3)
    outliers = tuple(finite[(finite < low) | (finite > high)].tolist())
    return FiveNumbers(finite.size, failed, float(finite.mean()), low, q1, median, q3, high, outliers)


@use_report_style
def plot_boxes(
    values: Mapping[str, Mapping[str, ArrayLike]],
    reference: Mapping[str, Mapping[str, tuple[float, float]]] | None = None,
) -> Plot:
    """Draw box plots by method, one panel per measure.

    `values` maps measure -> method -> (n,), with one value per world and None or NaN for a failed trial. `reference`
    maps measure -> method -> (mean, half-width) of the paper, drawn below the boxes.
    """
    methods = list(dict.fromkeys(name for by_method in values.values() for name in by_method))
    styles = method_styles(methods)
    labels = [wrap_label(method) for method in methods]
    # Neighbouring labels of two lines need more room.
    height = 0.33 if any("\n" in a and "\n" in b for a, b in pairwise(labels)) else 0.26
    figure, axes, spare = new_panels(len(values), 0.66 + height * max(len(methods), 2))
    rows: list[Row] = []
    for index, (name, by_method) in enumerate(values.items()):
        ax = axes[index]
        for y, method in enumerate(methods):
            box = five_numbers(by_method.get(method, ()))
            mean, half = (reference or {}).get(name, {}).get(method, (float("nan"), float("nan")))
            _draw_box(ax, y, box, styles[method])
            if np.isfinite(mean):
                # Below the box, so that the marker does not hide it.
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
        set_rows(ax, labels if index % 2 == 0 else [""] * len(labels), bins=None if logarithmic else 5)
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
        Patch(facecolor=(MUTED, _FILL), edgecolor=MUTED, label="quartiles"),
        Line2D([], [], color=INK, linewidth=2.0, marker="", label="median"),
        Line2D([], [], color=MUTED, linewidth=1.2, label="range within 1.5 IQR"),
        Line2D([], [], color=MUTED, linestyle="", marker="d", markersize=3.2, label="outlier"),
    ]
    if paper:
        entries.append(Line2D([], [], marker="o", linewidth=1.0, label="paper: mean and 95 % interval", **_PAPER_MARK))
    return entries


@use_report_style
def plot_value_counts(values: Mapping[str, Mapping[str, Mapping[str, ArrayLike]]]) -> Plot:
    """Draw one dot per distinct value with area proportional to its count, above the mean and its 95 % interval.

    `values` maps measure -> setting -> method -> (n,), with one value per repeat and None or NaN for a failed trial.
    Rows of panels are measures and columns are settings. The axis spans the values; wider intervals are clipped.
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
            # Leave room for half of the largest dot.
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
    """Return the distinct values with their counts; neighbours closer than 0.01 are replaced by their mean."""
    array = to_floats(values)
    finite = np.sort(array[np.isfinite(array)])
    at = summarise(finite)
    groups = np.split(finite, np.flatnonzero(np.diff(finite) > _SAME) + 1) if finite.size else []
    about = {"n": at.n, "failed": array.size - finite.size, "mean": at.mean, "low": at.low, "high": at.high}
    return [{"value": float(group.mean()), "count": group.size, **about} for group in groups]


def _dot_size(count: int, n: int) -> float:
    # The minimum size keeps rare values visible.
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
def plot_differences(values: Mapping[str, Mapping[str, ArrayLike]], baseline: str) -> Plot:
    """Plot the paired differences of each method from a baseline, one dot per world, with mean and 95 % interval.

    `values` maps measure -> method -> (n,). Entry i of all methods belongs to the same world; pairs with None or NaN
    (a failed trial) are omitted.
    """
    differences = {name: _subtract_baseline(name, by_method, baseline) for name, by_method in values.items()}
    methods = list(dict.fromkeys(method for by_method in differences.values() for method in by_method))
    styles = method_styles([baseline, *methods])
    figure = new_figure((0.62 + 0.33 * max(len(methods), 1)) * max(len(differences), 1))
    rows: list[Row] = []
    for index, (name, by_method) in enumerate(differences.items()):
        ax = figure.add_subplot(len(differences), 1, index + 1)
        for y, method in enumerate(methods):
            difference = by_method.get(method, np.zeros(0))
            row = _summarise_difference(difference)
            rows.append({"measure": name, "method": method, **row})
            _draw_difference(ax, y, difference, row, styles[method])
        ax.axvline(0.0, color=MUTED, linewidth=1.2, zorder=0.5)
        ax.set_title(get_measure(name).title)
        ax.set_xlabel(f"difference from {wrap_label(baseline, 40, 1)}")
        set_rows(ax, [wrap_label(method) for method in methods], bottom=0.5, bins=6)
    parts = []
    for name in dict.fromkeys(row["measure"] for row in rows):
        own = [row for row in rows if row["measure"] == name and row["n"]]
        lower = "; ".join(f"{row['method']} in {row['lower']} of {row['n']}" for row in own)
        parts.append(f"{get_measure(name).title}: {lower}")
    return Plot(figure, rows, f"Paired differences from {baseline}. Worlds with lower values: {'. '.join(parts)}.")


def _subtract_baseline(name: str, by_method: Mapping[str, ArrayLike], baseline: str) -> dict[str, FloatArray]:
    if baseline not in by_method:
        raise InvalidParameter(
            f"values must have the baseline {baseline!r} for every measure; it is missing for {name!r}.",
            parameter="values",
            value=name,
        )
    base, differences = to_floats(by_method[baseline]), {}
    for method, values in by_method.items():
        own = to_floats(values)
        if own.size != base.size:
            raise InvalidParameter(
                f"values must have the same worlds for all methods; {method!r} has {own.size} values of {name}, and "
                f"{baseline!r} has {base.size}. Use None for a failed trial.",
                parameter="values",
                value=method,
            )
        difference = own - base
        # Methods without the measure are omitted: supervised fits have no iterations.
        if method != baseline and (np.isfinite(difference).any() or not np.isfinite(base).any()):
            differences[method] = difference
    return differences


def _summarise_difference(difference: FloatArray) -> Row:
    finite = difference[np.isfinite(difference)]
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


def _draw_difference(ax: Axes, y: float, difference: FloatArray, row: Row, style: MethodStyle) -> None:
    finite = np.sort(difference[np.isfinite(difference)])
    label = f"lower in {row['lower']} of {row['n']}" if finite.size else "no data"
    ax.text(1.01, y, label, transform=ax.get_yaxis_transform(), va="center", fontsize="small", color=MUTED)
    # Deterministic vertical jitter keeps equal differences visible.
    jitter = (np.arange(finite.size) * 3 % 7 - 3) / 22.0
    ax.plot(finite, y + jitter, "o", color=style.colour, markersize=3.2, alpha=0.4, markeredgewidth=0.0)
    ax.plot([row["low"], row["high"]], [y] * 2, color=INK, linewidth=2.4, solid_capstyle="butt")
    ax.plot(row["mean"], y, style.marker, color=INK, markerfacecolor=style.colour, markersize=5.0)


_MEASURES = ("anid", "gevd", "seconds")
_HEIGHTS = (3.3, 2.5)
# Line spacing in inches of the model names beside a panel.
_LINE = 0.17


@use_report_style
def plot_quality(values: Mapping[str, Mapping[str, Mapping[str, ArrayLike]]]) -> Plot:
    """Plot GEVD against ANID and, below, against the fit time; colours denote models, shapes denote initialisations.

    Markers are means; crosses are 95 % intervals, clipped at the axis limits. `values` maps model -> initialisation ->
    measure ("anid", "gevd", "seconds") -> (n,), with one value per world and None or NaN for a failed trial.
    Supervised fits have no fit time and are in the first panel only.
    """
    rows = [_quality_row(model, start, at) for model, by in values.items() for start, at in by.items()]
    rows = [row for row in rows if row["n"]]
    models = list(dict.fromkeys(row["model"] for row in rows))
    starts = list(dict.fromkeys(row["initialisation"] for row in rows))
    colours, shapes = model_styles(models), method_styles(starts)
    figure = new_figure(sum(_HEIGHTS))
    panels = figure.subplots(2, 1, height_ratios=_HEIGHTS)
    for ax, name, height in zip(panels, ("anid", "seconds"), _HEIGHTS, strict=True):
        shown = [row for row in rows if np.isfinite(row[name])]
        _set_scales(ax, shown, name)
        for row in shown:
            _draw_marker(ax, row, name, colours[row["model"]], shapes[row["initialisation"]])
        _label_models(ax, shown, name, colours, height)
    panels[0].set_title("Reward quality against clustering quality")
    panels[1].set_title("Reward quality against fit time")
    add_legend(figure, [_legend_marker(shapes[start]) for start in starts])
    return Plot(figure, rows, _describe_quality(rows))


def _quality_row(model: str, start: str, at: Mapping[str, ArrayLike]) -> Row:
    row: Row = {"model": model, "initialisation": start, "n": 0}
    for name in _MEASURES:
        interval = summarise(at.get(name, ()))
        row |= {name: interval.mean, f"{name}_low": interval.low, f"{name}_high": interval.high}
        if name == "gevd":
            row["n"] = interval.n
    return row


def _draw_marker(ax: Axes, row: Row, name: str, colour: MethodStyle, shape: MethodStyle) -> None:
    bar: Keywords = {"color": colour.colour, "linewidth": 0.9, "alpha": 0.4, "solid_capstyle": "butt"}
    ax.plot([row[f"{name}_low"], row[f"{name}_high"]], [row["gevd"]] * 2, **bar)
    ax.plot([row[name]] * 2, [row["gevd_low"], row["gevd_high"]], **bar)
    ax.plot([row[name]], [row["gevd"]], shape.marker, color=colour.colour, zorder=3.0, **_marker_style(shape))


def _marker_style(shape: MethodStyle) -> Keywords:
    # Open markers remain visible where they overlap; the supervised cross has no interior.
    if shape.colour == MUTED:
        return {"markersize": 6.0, "markeredgewidth": 0.0}
    return {"markersize": 6.5, "markerfacecolor": "none", "markeredgewidth": 1.3}


def _legend_marker(shape: MethodStyle) -> Line2D:
    label = wrap_label(shape.label, 28)
    return Line2D([], [], color=INK, linestyle="", marker=shape.marker, label=label, **_marker_style(shape))


def _set_scales(ax: Axes, rows: Sequence[Row], name: str) -> None:
    for side, key in (("x", name), ("y", "gevd")):
        middle = np.array([row[key] for row in rows], dtype=np.float64)
        ends = np.array([row[f"{key}_{end}"] for row in rows for end in ("low", "high")], dtype=np.float64)
        everything = np.concatenate([middle, ends[np.isfinite(ends)]])
        if not middle.size:
            continue
        set_limits = getattr(ax, f"set_{side}lim")
        if key != "anid" and suits_log_axis(middle):
            log_axis(ax, side, middle)
            set_limits(middle.min() / 1.4, everything.max() * 1.15)
        else:
            room = 0.05 * (float(np.ptp(everything)) or 1.0)
            low = everything.min() - room
            # Leave room for a marker at zero, where the square-root scale is steep; intervals may be clipped.
            least = min(0.0, middle.min()) - room**2 if key == "anid" or middle.min() >= 0.0 else low
            bottom = max(low, least)
            set_limits(bottom, everything.max() + room)
            if key == "anid":
                root_axis(ax, side, np.maximum(everything, bottom))
    about = get_measure(name)
    ax.set_xlabel(f"{about.title}: {about.axis}" if name == "anid" else f"{about.title}, {about.axis}")
    ax.set_ylabel(f"GEVD: {get_measure('gevd').axis}")
    ax.tick_params(labelcolor=INK)
    ax.grid(visible=True, color=RULE)


def _label_models(ax: Axes, rows: Sequence[Row], name: str, colours: Mapping[str, MethodStyle], height: float) -> None:
    """Write the model names beside a panel, each connected to its median marker by a thin line."""
    by_model: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: float(row["gevd"])):
        by_model.setdefault(row["model"], []).append(row)
    # The median, because the mean would depend on failed initialisations.
    middle = {model: mine[(len(mine) - 1) // 2] for model, mine in by_model.items()}
    to_axes = ax.transScale + ax.transLimits
    at = {model: float(to_axes.transform((row[name], row["gevd"]))[1]) for model, row in middle.items()}
    order = sorted(at, key=lambda model: at[model])
    # Title, ticks and axis label occupy about 0.7 inches of the height of a panel.
    positions = separate_labels(np.array([at[model] for model in order]), _LINE / (height - 0.7))
    for model, position in zip(order, positions, strict=True):
        row, colour = middle[model], colours[model].colour
        where: Keywords = {"xycoords": "data", "textcoords": "axes fraction", "va": "center", "annotation_clip": False}
        line = {"arrowstyle": "-", "color": colour, "linewidth": 0.7, "alpha": 0.5, "shrinkA": 1, "shrinkB": 4}
        text = wrap_label(model, 18)
        ax.annotate(text, (row[name], row["gevd"]), (1.02, position), color=colour, arrowprops=line, **where)


def separate_labels(positions: FloatArray, distance: float) -> FloatArray:
    """Return sorted positions, shifted by least squares so that neighbours are at least `distance` apart.

    >>> separate_labels(np.array([0.1, 0.5, 0.52]), 0.1).round(3).tolist()
    [0.1, 0.46, 0.56]
    """
    # Isotonic regression by pooling adjacent violators.
    pools: list[tuple[float, int]] = []
    for j, position in enumerate(positions):
        total, count = float(position) - j * distance, 1
        while pools and pools[-1][0] / pools[-1][1] > total / count:
            before = pools.pop()
            total, count = total + before[0], count + before[1]
        pools.append((total, count))
    levels = np.concatenate([np.zeros(0), *(np.full(count, total / count) for total, count in pools)])
    return np.asarray(levels + distance * np.arange(levels.size))


def _describe_quality(rows: Sequence[Row]) -> str:
    if not rows:
        return "No trial succeeded."
    parts = []
    for model in dict.fromkeys(row["model"] for row in rows):
        best = min((row for row in rows if row["model"] == model), key=lambda row: float(row["gevd"]))
        parts.append(
            f"{model} {format_number(best['gevd'])} with {best['initialisation']} (ANID {format_number(best['anid'])})"
        )
    return f"GEVD against ANID and fit time by model and initialisation. Lowest GEVD per model: {'; '.join(parts)}."


@use_report_style
def plot_histogram(values: ArrayLike, axis: str, what: str, edges: ArrayLike, *, unit: str = "") -> Plot:
    """Plot a histogram of values (n,) in percent, with the median; larger values are counted in the last bin.

    `axis` labels the horizontal axis, `what` is the noun for the values, and `unit` is the unit of the median.
    """
    finite = to_floats(values)
    finite = finite[np.isfinite(finite)]
    bins = np.asarray(edges, dtype=np.float64)
    fractions = np.histogram(np.clip(finite, bins[0], bins[-1]), bins)[0] / max(finite.size, 1)
    figure = new_figure(2.1, NARROW)
    ax = figure.add_subplot()
    ax.stairs(100.0 * fractions, bins, fill=True, color=SERIES[0], alpha=0.85)
    label = ""
    if finite.size:
        median = float(np.median(finite))
        label = f" median {format_number(median)}{unit}"
        x = float(np.clip(median, bins[0], bins[-1]))
        ax.axvline(x, color=INK, linewidth=1.2, linestyle="--")
        side = "left" if median < 0.5 * (bins[0] + bins[-1]) else "right"
        ax.annotate(label, (x, 1.0), xycoords=("data", "axes fraction"), va="bottom", ha=side)
    ax.set_xlim(bins[0], bins[-1])
    overflow = finite.size and finite.max() > bins[-1]
    ax.set_xlabel(axis + (", larger values in the last bin" if overflow else ""))
    ax.set_ylabel(f"% of {what}")
    ax.grid(visible=True, axis="y", color=RULE)
    rows: list[Row] = [
        {"from": float(a), "to": float(b), "fraction": float(fraction)}
        for a, b, fraction in zip(bins[:-1], bins[1:], fractions, strict=True)
    ]
    return Plot(figure, rows, f"Histogram of {axis} of {finite.size:,} {what}{label and ':'}{label}.")


@use_report_style
def plot_scores(
    values: Mapping[str, tuple[float, float]], axis: str, published: Collection[str] = (), ours: str = ""
) -> Plot:
    """Plot the score of each method with two standard errors, from top to bottom.

    Parameters
    ----------
    values : mapping of str to (float, float)
        Score and standard error, which may be nan, of each method.
    axis : str
        Label of the axis.
    published : collection of str
        Methods whose scores are quoted; their markers are empty.
    ours : str
        Method that is emphasised.
    """
    figure = new_figure(0.75 + 0.27 * len(values))
    ax = figure.add_subplot()
    rows: list[Row] = []
    for y, (method, (score, error)) in enumerate(values.items()):
        quoted = method in published
        colour = SERIES[0] if method == ours else INK
        half = 0.0 if np.isnan(error) else 2.0 * error
        ax.plot([score - half, score + half], [y, y], color=colour, linewidth=1.6, solid_capstyle="butt")
        ax.plot(score, y, "o", color=colour, markerfacecolor="white" if quoted else colour, markersize=5.0)
        rows.append({"method": method, "score": score, "standard error": error, "published": quoted})
    set_rows(ax, [wrap_label(method, 36) for method in values], bottom=0.5, bins=5)
    ax.set_xlabel(axis)
    order = sorted(rows, key=lambda row: -row["score"])
    listed = ", ".join(f"{row['method']} {row['score']:.4f}" for row in order[:4])
    return Plot(figure, rows, f"Scores of {len(rows)} methods, higher is better. The highest: {listed}.")
