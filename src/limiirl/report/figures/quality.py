"""Reward quality against clustering quality and fit time by model and initialisation; histograms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike

from limiirl._typing import FloatArray
from limiirl.report.figures.style import (
    Keywords,
    MethodStyle,
    Plot,
    Row,
    add_legend,
    format_number,
    get_measure,
    log_axis,
    method_styles,
    model_styles,
    new_figure,
    root_axis,
    suits_log_axis,
    summarise,
    to_floats,
    use_report_style,
    wrap_label,
)
from limiirl.report.svg import INK, MUTED, NARROW, RULE, SERIES

_MEASURES = ("anid", "gevd", "seconds")
_HEIGHTS = (3.3, 2.5)
# Line distance in inches of the model names beside a panel.
_LINE = 0.17


@use_report_style
def plot_quality(values: Mapping[str, Mapping[str, Mapping[str, ArrayLike]]]) -> Plot:
    """Plot GEVD against ANID, and below it against the fit time: colours are models, shapes are initialisations.

    Marks are means, crosses their 95 % intervals, which are cut at the axes. `values` maps model -> initialisation ->
    measure ("anid", "gevd", "seconds") -> (n,), one value per world, None or NaN for a failed trial. Supervised fits
    have no fit time and are in the first panel only.
    """
    rows = [_row(model, start, at) for model, by in values.items() for start, at in by.items()]
    rows = [row for row in rows if row["n"]]
    models = list(dict.fromkeys(row["model"] for row in rows))
    starts = list(dict.fromkeys(row["start"] for row in rows))
    colours, shapes = model_styles(models), method_styles(starts)
    figure = new_figure(sum(_HEIGHTS))
    panels = figure.subplots(2, 1, height_ratios=_HEIGHTS)
    for ax, name, height in zip(panels, ("anid", "seconds"), _HEIGHTS, strict=True):
        shown = [row for row in rows if np.isfinite(row[name])]
        _scales(ax, shown, name)
        for row in shown:
            _mark(ax, row, name, colours[row["model"]], shapes[row["start"]])
        _names(ax, shown, name, colours, height)
    panels[0].set_title("Reward quality against clustering quality")
    panels[1].set_title("Reward quality against fit time")
    add_legend(figure, [_legend_marker(shapes[start]) for start in starts])
    return Plot(figure, rows, _alt(rows))


def _row(model: str, start: str, at: Mapping[str, ArrayLike]) -> Row:
    row: Row = {"model": model, "start": start, "n": 0}
    for name in _MEASURES:
        interval = summarise(at.get(name, ()))
        row |= {name: interval.mean, f"{name}_low": interval.low, f"{name}_high": interval.high}
        if name == "gevd":
            row["n"] = interval.n
    return row


def _mark(ax: Axes, row: Row, name: str, colour: MethodStyle, shape: MethodStyle) -> None:
    bar: Keywords = {"color": colour.colour, "linewidth": 0.9, "alpha": 0.4, "solid_capstyle": "butt"}
    ax.plot([row[f"{name}_low"], row[f"{name}_high"]], [row["gevd"]] * 2, **bar)
    ax.plot([row[name]] * 2, [row["gevd_low"], row["gevd_high"]], **bar)
    ax.plot([row[name]], [row["gevd"]], shape.marker, color=colour.colour, zorder=3.0, **_marker_style(shape))


def _marker_style(shape: MethodStyle) -> Keywords:
    # Open markers show through each other; the supervised cross has no interior.
    if shape.colour == MUTED:
        return {"markersize": 6.0, "markeredgewidth": 0.0}
    return {"markersize": 6.5, "markerfacecolor": "none", "markeredgewidth": 1.3}


def _legend_marker(shape: MethodStyle) -> Line2D:
    label = wrap_label(shape.label, 28)
    return Line2D([], [], color=INK, linestyle="", marker=shape.marker, label=label, **_marker_style(shape))


def _scales(ax: Axes, rows: Sequence[Row], name: str) -> None:
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
            # Room for a marker at zero, where the square-root scale is steep; intervals may be cut.
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


def _names(ax: Axes, rows: Sequence[Row], name: str, colours: Mapping[str, MethodStyle], height: float) -> None:
    """Write the model names beside a panel, each joined by a thin line to its median mark."""
    by_model: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: float(row["gevd"])):
        by_model.setdefault(row["model"], []).append(row)
    # The median: a failed initialisation may lie anywhere.
    middle = {model: mine[(len(mine) - 1) // 2] for model, mine in by_model.items()}
    to_axes = ax.transScale + ax.transLimits
    at = {model: float(to_axes.transform((row[name], row["gevd"]))[1]) for model, row in middle.items()}
    order = sorted(at, key=lambda model: at[model])
    # Title, ticks and axis label take about 0.7 inches of the height of a panel.
    places = separate_labels(np.array([at[model] for model in order]), _LINE / (height - 0.7))
    for model, place in zip(order, places, strict=True):
        row, colour = middle[model], colours[model].colour
        where: Keywords = {"xycoords": "data", "textcoords": "axes fraction", "va": "center", "annotation_clip": False}
        line = {"arrowstyle": "-", "color": colour, "linewidth": 0.7, "alpha": 0.5, "shrinkA": 1, "shrinkB": 4}
        text = wrap_label(model, 18)
        ax.annotate(text, (row[name], row["gevd"]), (1.02, place), color=colour, arrowprops=line, **where)


def separate_labels(places: FloatArray, gap: float) -> FloatArray:
    """Return ascending places moved by least squares so that neighbours are at least `gap` apart.

    >>> separate_labels(np.array([0.1, 0.5, 0.52]), 0.1).round(3).tolist()
    [0.1, 0.46, 0.56]
    """
    # Isotonic regression by pooling adjacent violators.
    pools: list[tuple[float, int]] = []
    for j, place in enumerate(places):
        total, count = float(place) - j * gap, 1
        while pools and pools[-1][0] / pools[-1][1] > total / count:
            before = pools.pop()
            total, count = total + before[0], count + before[1]
        pools.append((total, count))
    levels = np.concatenate([np.zeros(0), *(np.full(count, total / count) for total, count in pools)])
    return np.asarray(levels + gap * np.arange(levels.size))


def _alt(rows: Sequence[Row]) -> str:
    if not rows:
        return "No trial succeeded."
    parts = []
    for model in dict.fromkeys(row["model"] for row in rows):
        best = min((row for row in rows if row["model"] == model), key=lambda row: float(row["gevd"]))
        parts.append(f"{model} {format_number(best['gevd'])} with {best['start']} (ANID {format_number(best['anid'])})")
    return f"GEVD against ANID and fit time by model and initialisation. Lowest GEVD of each model: {'; '.join(parts)}."


@use_report_style
def plot_histogram(values: ArrayLike, axis: str, what: str, edges: ArrayLike, *, unit: str = "") -> Plot:
    """Plot the percentage of values (n,) per bin with the median marked; larger values are in the last bin.

    `axis` labels the horizontal axis, `what` is the noun for the values, and `unit` follows the median.
    """
    finite = to_floats(values)
    finite = finite[np.isfinite(finite)]
    bins = np.asarray(edges, dtype=np.float64)
    shares = np.histogram(np.clip(finite, bins[0], bins[-1]), bins)[0] / max(finite.size, 1)
    figure = new_figure(2.1, NARROW)
    ax = figure.add_subplot()
    ax.stairs(100.0 * shares, bins, fill=True, color=SERIES[0], alpha=0.85)
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
        {"from": float(a), "to": float(b), "share": float(share)}
        for a, b, share in zip(bins[:-1], bins[1:], shares, strict=True)
    ]
    return Plot(figure, rows, f"Histogram of {axis} of {finite.size:,} {what}{label and ':'}{label}.")
