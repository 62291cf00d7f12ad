"""Curves of measures against a parameter, by method, by behaviour model or by initialisation."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.transforms import ScaledTranslation
from numpy.typing import ArrayLike

from limiirl._typing import FloatArray
from limiirl.report.figures.style import (
    Keywords,
    Measure,
    MethodStyle,
    Plot,
    Row,
    add_legend,
    describe_range,
    format_number,
    get_measure,
    legend_line,
    line_style,
    log_axis,
    method_styles,
    model_styles,
    new_figure,
    new_panels,
    root_axis,
    suits_log_axis,
    summarise,
    to_floats,
    use_report_style,
)
from limiirl.report.svg import INK, MUTED, NARROW, RULE, SERIES

Points = Mapping[float, ArrayLike]

# Horizontal offset in points between neighbouring lines, so that whiskers do not overlap, and its maximum over all
# lines.
_STEP, _SPREAD = 1.7, 8.0
# Number of characters of tick labels that fit below a panel of half the width.
_LETTERS = 20
_SUPERVISED: Keywords = {"linestyle": (0, (4, 1.5)), "markerfacecolor": "none", "markersize": 3.2, "linewidth": 1.0}


@use_report_style
def plot_sweep(
    values: Mapping[str, Mapping[str, Points]], parameter: str, *, mark: float | None = None, mark_label: str = ""
) -> Plot:
    """Plot means with 95 % intervals against a parameter, one panel per measure and one line per method.

    `values` maps measure -> method -> parameter -> (n,), with one value per world and None or NaN for a failed trial.
    `mark` is a parameter value that is marked by a vertical line with the label `mark_label`.
    """
    methods = list(dict.fromkeys(name for by_method in values.values() for name in by_method))
    styles = method_styles(methods)
    figure, axes, spare = new_panels(len(values), 1.85)
    rows: list[Row] = []
    for ax, (name, by_method) in zip(axes, values.items(), strict=True):
        drawn = []
        for index, (method, points) in enumerate(by_method.items()):
            lines = _summarise_points(points)
            _draw_line(ax, lines, styles[method], _line_offset(index, len(by_method)))
            drawn += [{"measure": name, "method": method, parameter: x, **row} for x, row in lines.items()]
        rows += drawn
        _finish(ax, get_measure(name), drawn, parameter, mark)
        if mark is not None and ax is axes[0] and mark_label:
            at: Keywords = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
            ax.annotate(mark_label, (mark, 1.0), (3, -1), va="top", color=MUTED, fontsize="small", **at)
    add_legend(figure, [legend_line(styles[method]) for method in methods], spare)
    return Plot(figure, rows, f"Means with 95 % intervals by method. {_describe_last(rows, parameter, 'method')}")


@use_report_style
def plot_margin(values: Points, parameter: str) -> Plot:
    """Plot the margins (n,) between intents against the wind, one value per world (paper, Assumption 1)."""
    figure = new_figure(2.5, NARROW)
    ax = figure.add_subplot()
    points = _summarise_points(values)
    xs, middle, low, high = _arrays(points)
    each = {x: to_floats(v) for x, v in sorted(values.items())}
    for x, worlds in each.items():
        ax.plot([x] * worlds.size, worlds, "o", color=SERIES[0], markersize=3.5, alpha=0.35, markeredgewidth=0.0)
    ax.fill_between(xs, low, high, color=SERIES[0], alpha=0.2, linewidth=0.0)
    ax.plot(xs, middle, "o-", color=SERIES[0], markersize=5.0)
    ax.set(xlabel=parameter, ylabel="mean margin between intents", xticks=xs)
    ax.set_ylim(bottom=min(0.0, float(np.nanmin(np.concatenate([[0.0], *each.values()])))))
    ax.grid(visible=True, axis="y", color=RULE)
    rows = [{parameter: x, **row} for x, row in points.items()]
    means = ", ".join(f"{format_number(row['mean'])} at {x:g}" for x, row in points.items())
    return Plot(figure, rows, f"Mean margin between intents against {parameter}, with 95 % intervals: {means}.")


@use_report_style
def plot_by_model(
    values: Mapping[str, Mapping[str, Points]], supervised: Mapping[str, Mapping[str, Points]], parameter: str
) -> Plot:
    """Plot measures against a parameter, one panel per measure and one line per behaviour model.

    `values` and `supervised` map measure -> model -> parameter -> (n,), with one value per world and None or NaN for a
    failed trial. `supervised` has the values of the same models given the true labels, drawn as dashed lines without
    intervals.
    """
    models = list(dict.fromkeys(name for by in (*values.values(), *supervised.values()) for name in by))
    styles = model_styles(models)
    figure, axes, _ = new_panels(len(values), 2.0, columns=1)
    rows: list[Row] = []
    for ax, (name, by) in zip(axes, values.items(), strict=True):
        drawn: list[Row] = []
        for index, model in enumerate(models):
            points, given = (_summarise_points(of.get(model, {})) for of in (by, supervised.get(name, {})))
            _draw_line(ax, points, styles[model], _line_offset(index, len(models)))
            ax.plot(
                list(given), [row["mean"] for row in given.values()], **{**line_style(styles[model]), **_SUPERVISED}
            )
            for is_supervised, line in ((False, points), (True, given)):
                at = {"measure": name, "model": model, "supervised": is_supervised}
                drawn += [{**at, parameter: x, **row} for x, row in line.items()]
        _finish(ax, _model_measure(name), drawn, parameter, root=name == "anid")
        rows += drawn
    below = Line2D([], [], color=MUTED, marker="o", label="given the true labels", **{**_SUPERVISED, "linewidth": 1.6})
    add_legend(figure, [*(legend_line(styles[model]) for model in models), below])
    learned = [row for row in rows if not row["supervised"]]
    return Plot(figure, rows, f"Means with 95 % intervals by model. {_describe_last(learned, parameter, 'model')}")


@use_report_style
def plot_by_start(values: Mapping[str, Mapping[str, Points]], name: str, parameter: str) -> Plot:
    """Plot one measure against a parameter, one panel per behaviour model and one line per initialisation.

    `values` maps model -> initialisation -> parameter -> (n,), as in `plot_by_model`. All panels have the same scale.
    """
    starts = list(dict.fromkeys(start for by in values.values() for start in by))
    styles = method_styles(starts)
    figure, axes, spare = new_panels(len(values), 1.85)
    rows: list[Row] = []
    for ax, (model, by) in zip(axes, values.items(), strict=True):
        for start, given in by.items():
            points = _summarise_points(given)
            _draw_line(ax, points, styles[start], _line_offset(starts.index(start), len(starts)))
            rows += [{"model": model, "initialisation": start, parameter: x, **row} for x, row in points.items()]
    for ax, model in zip(axes, values, strict=True):
        _finish(ax, _model_measure(name)._replace(title=model, axis=""), rows, parameter, root=name == "anid")
        ax.set_ylabel(get_measure(name).title)
    add_legend(figure, [legend_line(styles[start]) for start in starts], spare)
    ends = _describe_last(rows, parameter, "initialisation", group="model")
    return Plot(figure, rows, f"{get_measure(name).title} by initialisation, one panel per model. {ends}")


def _model_measure(name: str) -> Measure:
    # GEVD differs between models by orders of magnitude.
    return get_measure(name)._replace(log=True) if name == "gevd" else get_measure(name)


def _line_offset(index: int, n: int) -> float:
    return min(_STEP, _SPREAD / max(n - 1, 1)) * (index - (n - 1) / 2)


def _summarise_points(points: Points) -> dict[float, Row]:
    """Return mean, interval and counts at each parameter value, in ascending order."""
    rows = {}
    for x, values in sorted(points.items()):
        at = summarise(values)
        failed = to_floats(values).size - at.n
        rows[float(x)] = {"n": at.n, "failed": failed, "mean": at.mean, "low": at.low, "high": at.high}
    return rows


def _arrays(points: Mapping[float, Row]) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    mean, low, high = (np.array([row[key] for row in points.values()]) for key in ("mean", "low", "high"))
    return np.array(list(points)), mean, low, high


def _draw_line(ax: Axes, points: Mapping[float, Row], style: MethodStyle, offset: float) -> None:
    """Draw a line with whiskers, shifted horizontally by `offset` points without changing its data."""
    xs, middle, low, high = _arrays(points)
    moved = ax.transData + ScaledTranslation(offset / 72.0, 0.0, ax.figure.dpi_scale_trans)
    ax.plot(xs, middle, transform=moved, label=style.label, **line_style(style))
    finite = np.isfinite(low)
    ax.vlines(xs[finite], low[finite], high[finite], color=style.colour, linewidth=1.1, alpha=0.75, transform=moved)


def _finish(
    ax: Axes, about: Measure, rows: list[Row], parameter: str, mark: float | None = None, *, root: bool = False
) -> None:
    """Set the scales, limits, title and grid of a panel; `root` selects a square-root scale."""
    xs = np.array(sorted({row[parameter] for row in rows}))
    ends = np.array([row[key] for row in rows for key in ("low", "mean", "high")], dtype=np.float64)
    means = np.array([row["mean"] for row in rows], dtype=np.float64)
    finite = ends[np.isfinite(ends)]
    if about.log and suits_log_axis(means):
        log_axis(ax, "y", means)
        # A logarithmic axis cannot show the part of an interval below zero.
        ax.set_ylim(means[np.isfinite(means)].min() / 1.5, finite.max() * 1.2)
    elif finite.size:
        room = 0.06 * (float(np.ptp(finite)) or 1.0)
        bottom = finite.min() - room
        least = float(np.nanmin(means))
        if root:
            # Leave room for a marker at zero, where this scale is steep; intervals may be clipped.
            bottom = max(bottom, min(0.0, least) - room**2)
            ax.set_ylim(bottom, finite.max() + room)
            root_axis(ax, "y", np.maximum(finite, bottom))
        else:
            # Begin the axis at zero for a measure that cannot be negative.
            ax.set_ylim(0.0 if least >= 0.0 and bottom < 0.0 else bottom, finite.max() + room)
            ax.locator_params(axis="y", nbins=5)
    if suits_log_axis(xs):
        log_axis(ax, "x", xs)
        ax.minorticks_off()
    if xs.size:
        labels = [f"{x:g}" for x in xs]
        crowded = sum(map(len, labels)) > _LETTERS
        ax.set_xticks(xs, ["" if crowded and j % 2 else label for j, label in enumerate(labels)])
        # Explicit limits, because matplotlib would treat the offsets as data.
        ax.set_xlim(*_x_limits(xs, log=suits_log_axis(xs)))
    if mark is not None:
        ax.axvline(mark, color=MUTED, linewidth=1.0, linestyle=(0, (2, 2)), zorder=0)
    ax.set_title(f"{about.title}, {about.axis}" if about.axis == "seconds" else about.title)
    ax.set_xlabel(parameter)
    ax.tick_params(axis="x", labelcolor=INK)
    ax.grid(visible=True, axis="y", color=RULE)


def _x_limits(xs: FloatArray, *, log: bool) -> tuple[float, float]:
    ends = np.array([xs.min(), xs.max()])
    ends = np.log(ends) if log else ends
    ends += 0.09 * (float(np.ptp(ends)) or 1.0) * np.array([-1.0, 1.0])
    low, high = (np.exp(ends) if log else ends).tolist()
    return low, high


def _describe_last(rows: list[Row], parameter: str, label: str, group: str = "measure") -> str:
    """Return a sentence with the best and the worst mean of each group at its last parameter value."""
    parts = []
    for name in dict.fromkeys(row[group] for row in rows):
        own = [row for row in rows if row[group] == name and row["n"]]
        last = max((row[parameter] for row in own), default=None)
        about = get_measure(name) if group == "measure" else Measure(name, "", log=False)
        ends = describe_range((row for row in own if row[parameter] == last), label, rising=about.rising)
        parts += [f"{about.title} from {ends}, at {last:g}"] if ends else []
    return f"Best to worst at the largest {parameter}: {'; '.join(parts) or 'no values'}."
