"""Reward quality against clustering quality, and against time: one mark for each model of behaviour and start.

How numbers are spread: a histogram with its middle marked, for distances, confidences and the like.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike

from limiirl._typing import FloatArray
from limiirl.report.figures.style import (
    Drawn,
    Keywords,
    MethodStyle,
    Row,
    blank,
    fitted,
    in_ink,
    legend,
    log_axis,
    measure,
    model_styles,
    numbers,
    root_axis,
    spans,
    styles,
    told,
)
from limiirl.report.figures.sweeps import summary
from limiirl.report.svg import INK, MUTED, NARROW, RULE, SERIES

_MEASURES = ("anid", "gevd", "seconds")
_HEIGHTS = (3.3, 2.5)
# Inches between the lines of the models' names beside a panel.
_LINE = 0.17


@in_ink
def quality(values: Mapping[str, Mapping[str, Mapping[str, ArrayLike]]]) -> Drawn:
    """Draw GEVD against ANID, and below it against the duration of a fit: colours are models, shapes are starts.

    Marks are means, with 95 % intervals as crosses. Both axes that span a decade are logarithmic; an interval that
    reaches below the axis is cut there.

    Parameters
    ----------
    values : model -> start -> measure -> (n,)
        Of the measures "anid", "gevd" and "seconds" one value a world; None or NaN where a trial failed. Without a
        duration, as the supervised fit has none, a mark is in the first panel alone.

    Examples
    --------
    >>> at = {"anid": [0.02, 0.04], "gevd": [1.0, 3.0], "seconds": [0.1, 0.3]}
    >>> drawn = quality({"MaxEnt": {"k-means, MLE": at}})
    >>> row = drawn.rows[0]
    >>> row["model"], row["start"], row["n"], row["gevd"], row["seconds"]
    ('MaxEnt', 'k-means, MLE', 2, 2.0, 0.2)
    """
    rows = [_row(model, start, at) for model, by in values.items() for start, at in by.items()]
    rows = [row for row in rows if row["n"]]
    models = list(dict.fromkeys(row["model"] for row in rows))
    starts = list(dict.fromkeys(row["start"] for row in rows))
    colours, shapes = model_styles(models), styles(starts)
    figure = blank(sum(_HEIGHTS))
    panels = figure.subplots(2, 1, height_ratios=_HEIGHTS)
    for ax, name, height in zip(panels, ("anid", "seconds"), _HEIGHTS, strict=True):
        shown = [row for row in rows if np.isfinite(row[name])]
        _scales(ax, shown, name)
        for row in shown:
            _mark(ax, row, name, colours[row["model"]], shapes[row["start"]])
        _names(ax, shown, name, colours, height)
    panels[0].set_title("Rewards against clusters")
    panels[1].set_title("Rewards against time")
    legend(figure, [_handle(shapes[start]) for start in starts])
    return Drawn(figure, rows, _alt(rows))


def _row(model: str, start: str, at: Mapping[str, ArrayLike]) -> Row:
    row: Row = {"model": model, "start": start, "n": 0}
    for name in _MEASURES:
        found = summary(at.get(name, ()))
        row |= {name: found.mean, f"{name}_low": found.low, f"{name}_high": found.high}
        if name == "gevd":
            row["n"] = found.n
    return row


def _mark(ax: Axes, row: Row, name: str, colour: MethodStyle, shape: MethodStyle) -> None:
    bar: Keywords = {"color": colour.colour, "linewidth": 0.9, "alpha": 0.4, "solid_capstyle": "butt"}
    ax.plot([row[f"{name}_low"], row[f"{name}_high"]], [row["gevd"]] * 2, **bar)
    ax.plot([row[name]] * 2, [row["gevd_low"], row["gevd_high"]], **bar)
    # Open, so that those in one place show through each other; the supervised cross has no inside.
    look: Keywords = {"markersize": 6.5, "markerfacecolor": "none", "markeredgewidth": 1.3}
    if shape.colour == MUTED:
        look = {"markersize": 6.0, "markeredgewidth": 0.0}
    ax.plot([row[name]], [row["gevd"]], shape.marker, color=colour.colour, zorder=3.0, **look)


def _handle(shape: MethodStyle) -> Line2D:
    look: Keywords = {"markersize": 6.5, "markerfacecolor": "none", "markeredgewidth": 1.3}
    if shape.colour == MUTED:
        look = {"markersize": 6.0, "markeredgewidth": 0.0}
    return Line2D([], [], color=INK, linestyle="", marker=shape.marker, label=fitted(shape.label, 28), **look)


def _scales(ax: Axes, rows: Sequence[Row], name: str) -> None:
    for side, key in (("x", name), ("y", "gevd")):
        middle = np.array([row[key] for row in rows], dtype=np.float64)
        ends = np.array([row[f"{key}_{end}"] for row in rows for end in ("low", "high")], dtype=np.float64)
        everything = np.concatenate([middle, ends[np.isfinite(ends)]])
        if not middle.size:
            continue
        set_limits = getattr(ax, f"set_{side}lim")
        if key != "anid" and spans(middle):
            log_axis(ax, side, middle)
            set_limits(middle.min() / 1.4, everything.max() * 1.15)
        else:
            room = 0.05 * (float(np.ptp(everything)) or 1.0)
            low = everything.min() - room
            # Room for a mark at zero, which the scale of a square root makes much of; an interval may reach further.
            least = min(0.0, middle.min()) - room**2 if key == "anid" or middle.min() >= 0.0 else low
            bottom = max(low, least)
            set_limits(bottom, everything.max() + room)
            if key == "anid":
                root_axis(ax, side, np.maximum(everything, bottom))
    about = measure(name)
    ax.set_xlabel(f"{about.title}: {about.axis}" if name == "anid" else f"{about.title}, {about.axis}")
    ax.set_ylabel(f"GEVD: {measure('gevd').axis}")
    ax.tick_params(labelcolor=INK)
    ax.grid(visible=True, color=RULE)


def _names(ax: Axes, rows: Sequence[Row], name: str, colours: Mapping[str, MethodStyle], height: float) -> None:
    """Write the models beside a panel, each near the height of its middle mark and joined to it by a thin line."""
    by_model: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: float(row["gevd"])):
        by_model.setdefault(row["model"], []).append(row)
    # The middle one, for a start that went wrong may lie anywhere.
    middle = {model: mine[(len(mine) - 1) // 2] for model, mine in by_model.items()}
    to_axes = ax.transScale + ax.transLimits
    at = {model: float(to_axes.transform((row[name], row["gevd"]))[1]) for model, row in middle.items()}
    order = sorted(at, key=lambda model: at[model])
    # Titles, ticks and labels take about 0.7 inches of a panel's height.
    places = apart(np.array([at[model] for model in order]), _LINE / (height - 0.7))
    for model, place in zip(order, places, strict=True):
        row, colour = middle[model], colours[model].colour
        where: Keywords = {"xycoords": "data", "textcoords": "axes fraction", "va": "center", "annotation_clip": False}
        join: Keywords = {
            "arrowstyle": "-",
            "color": colour,
            "linewidth": 0.7,
            "alpha": 0.5,
            "shrinkA": 1,
            "shrinkB": 4,
        }
        ax.annotate(fitted(model, 18), (row[name], row["gevd"]), (1.02, place), color=colour, arrowprops=join, **where)


def apart(places: FloatArray, gap: float) -> FloatArray:
    """Return places in rising order moved no further than needed for each to lie `gap` above the one before.

    Those that have to move do so around their common middle.

    Examples
    --------
    >>> apart(np.array([0.1, 0.5, 0.52]), 0.1).round(3).tolist()
    [0.1, 0.46, 0.56]
    """
    # Pool neighbours until no two pools overlap: the least squares solution of an order with gaps.
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
        return "No trial of any model succeeded."
    parts = []
    for model in dict.fromkeys(row["model"] for row in rows):
        mine = [row for row in rows if row["model"] == model]
        best = min(mine, key=lambda row: float(row["gevd"]))
        parts.append(f"{model} {told(best['gevd'])} with {best['start']} (ANID {told(best['anid'])})")
    return f"GEVD against ANID and against seconds by model and start. Least GEVD of each model: {'; '.join(parts)}."


@in_ink
def spread(values: ArrayLike, axis: str, what: str, edges: ArrayLike, *, unit: str = "") -> Drawn:
    """Draw what share of values lies in each class; those beyond the last edge are counted in the last class.

    Parameters
    ----------
    values : (n,)
    axis : str
        What the horizontal axis says.
    what : str
        What is counted, such as "fixes".
    edges : (m + 1,)
        Where classes begin and end, ascending.
    unit : str
        After a number in the text.

    Examples
    --------
    >>> spread([0.1, 0.2, 0.9, 3.0], "metres", "fixes", [0.0, 0.5, 1.0]).rows
    [{'from': 0.0, 'to': 0.5, 'share': 0.5}, {'from': 0.5, 'to': 1.0, 'share': 0.5}]
    """
    known = numbers(values)
    known = known[np.isfinite(known)]
    ends = np.asarray(edges, dtype=np.float64)
    counts = np.histogram(np.clip(known, ends[0], ends[-1]), ends)[0]
    shares = counts / max(known.size, 1)
    figure = blank(2.1, NARROW)
    ax = figure.add_subplot()
    ax.stairs(100.0 * shares, ends, fill=True, color=SERIES[0], alpha=0.85)
    middle_words = ""
    if known.size:
        middle = float(np.median(known))
        middle_words = f": median {told(middle)}{unit}"
        ax.axvline(float(np.clip(middle, ends[0], ends[-1])), color=INK, linewidth=1.2, linestyle="--")
        ax.annotate(
            f" median {told(middle)}{unit}",
            (float(np.clip(middle, ends[0], ends[-1])), 1.0),
            xycoords=("data", "axes fraction"),
            va="bottom",
            ha="left" if middle < 0.5 * (ends[0] + ends[-1]) else "right",
        )
    ax.set_xlim(ends[0], ends[-1])
    ax.set_xlabel(axis + (", the rest in the last" if known.size and known.max() > ends[-1] else ""))
    ax.set_ylabel(f"% of {what}")
    ax.grid(visible=True, axis="y", color=RULE)
    rows: list[Row] = [
        {"from": float(a), "to": float(b), "share": float(share)}
        for a, b, share in zip(ends[:-1], ends[1:], shares, strict=True)
    ]
    alt = f"Histogram of {axis} of {known.size:,} {what}{middle_words}."
    return Drawn(figure, rows, alt)
