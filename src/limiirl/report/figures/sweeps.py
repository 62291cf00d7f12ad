"""Measures against a swept parameter, by method or by model, and the speed-up by number of workers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.transforms import ScaledTranslation
from numpy.typing import ArrayLike

from limiirl._typing import FloatArray
from limiirl.metrics import Interval, mean_interval
from limiirl.report.figures.style import (
    Drawn,
    Keywords,
    Measure,
    MethodStyle,
    Row,
    blank,
    handle,
    in_ink,
    legend,
    line,
    log_axis,
    measure,
    model_styles,
    numbers,
    open_dashed,
    panels,
    root_axis,
    spans,
    styles,
    told,
)
from limiirl.report.svg import INK, MUTED, NARROW, RULE, SERIES

# Points by which neighbouring lines stand apart, so that whiskers do not hide each other; and all of them together at
# most, so that nobody takes a mark for one of the next value.
_APART, _SPREAD = 1.7, 8.0
# So many letters have room below a panel of half the width.
_LETTERS = 20


def summary(values: ArrayLike) -> Interval:
    """Return the mean of what is finite, with its 95 % interval; of one value the interval is NaN, of none the mean.

    Examples
    --------
    >>> summary([1.0, 3.0, None]).mean, summary([2.0])[:2], summary([None]).n
    (2.0, (2.0, nan), 0)
    """
    array = numbers(values)
    known = array[np.isfinite(array)]
    nothing = float("nan")
    if known.size >= 2:
        return mean_interval(known)
    return Interval(float(known[0]) if known.size else nothing, nothing, nothing, nothing, known.size)


def aside(place: int, n: int) -> float:
    """Return the points by which a line is moved sideways on paper, by its place among n lines.

    Examples
    --------
    >>> [aside(place, 3) for place in range(3)], aside(8, 9)
    ([-1.7, 0.0, 1.7], 4.0)
    """
    return min(_APART, _SPREAD / max(n - 1, 1)) * (place - (n - 1) / 2)


@in_ink
def sweep(
    values: Mapping[str, Mapping[str, Mapping[float, ArrayLike]]],
    parameter: str,
    *,
    mark: float | None = None,
    mark_label: str = "",
) -> Drawn:
    """Draw means with their 95 % intervals against a swept parameter, a panel a measure, a line a method.

    Parameters
    ----------
    values : measure -> method -> parameter -> (n,)
        One value a world; None or NaN where a trial failed. The axis is logarithmic where the parameter's values span
        a decade.
    parameter : str
        What is swept, for the axis, such as "number of demonstrations N".
    mark, mark_label : float, str
        A value to point out by a vertical line in each panel, such as 3, "K = E".

    Examples
    --------
    >>> drawn = sweep({"anid": {"k-means, MLE": {2: [0.0, 0.1], 3: [0.0, None]}}}, "intents K")
    >>> [(row["intents K"], row["mean"], row["n"], row["failed"]) for row in drawn.rows]
    [(2.0, 0.05, 2, 0), (3.0, 0.0, 1, 1)]
    """
    methods = list(dict.fromkeys(name for by_method in values.values() for name in by_method))
    look = styles(methods)
    figure, axes, spare = panels(len(values), 1.85)
    rows: list[Row] = []
    for ax, (name, by_method) in zip(axes, values.items(), strict=True):
        drawn = []
        for place, (method, points) in enumerate(by_method.items()):
            lines = points_of(points)
            draw_line(ax, lines, look[method], aside(place, len(by_method)))
            drawn += [{"measure": name, "method": method, parameter: x, **row} for x, row in lines.items()]
        rows += drawn
        finish(ax, measure(name), drawn, parameter, mark)
        if mark is not None and ax is axes[0] and mark_label:
            at: Keywords = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
            ax.annotate(mark_label, (mark, 1.0), (3, -1), va="top", color=MUTED, fontsize="small", **at)
    legend(figure, [handle(look[method]) for method in methods], spare)
    return Drawn(figure, rows, _alt(rows, parameter, look))


@in_ink
def margin(values: Mapping[float, ArrayLike], parameter: str = "wind w") -> Drawn:
    """Draw the mean margin between the intents' demonstrations against the wind: the paper's picture of Assumption 1.

    Parameters
    ----------
    values : wind -> (n,)
        The mean inter-cluster margin of each world.

    Examples
    --------
    >>> margin({0.0: [3.0, 3.2], 0.1: [1.0, 1.4]}).alt
    'Mean margin between intents against wind w, with 95 % intervals: 3.1 at 0, 1.2 at 0.1.'
    """
    figure = blank(2.5, NARROW)
    ax = figure.add_subplot()
    points = points_of(values)
    xs, middle, low, high = _arrays(points)
    each = {x: numbers(v) for x, v in sorted(values.items())}
    for x, worlds in each.items():
        ax.plot([x] * worlds.size, worlds, "o", color=SERIES[0], markersize=3.5, alpha=0.35, markeredgewidth=0.0)
    ax.fill_between(xs, low, high, color=SERIES[0], alpha=0.2, linewidth=0.0)
    ax.plot(xs, middle, "o-", color=SERIES[0], markersize=5.0)
    ax.set(xlabel=parameter, ylabel="mean margin between intents", xticks=xs)
    ax.set_ylim(bottom=min(0.0, float(np.nanmin(np.concatenate([[0.0], *each.values()])))))
    ax.grid(visible=True, axis="y", color=RULE)
    rows = [{parameter: x, **row} for x, row in points.items()]
    means = ", ".join(f"{told(row['mean'])} at {x:g}" for x, row in points.items())
    return Drawn(figure, rows, f"Mean margin between intents against {parameter}, with 95 % intervals: {means}.")


def points_of(points: Mapping[float, ArrayLike]) -> dict[float, Row]:
    """Return mean, interval and counts at each value of the parameter, in order.

    >>> points_of({3: [1.0, None], 2: [2.0]})[3.0]["failed"]
    1
    """
    found = {}
    for x, values in sorted(points.items()):
        at = summary(values)
        failed = numbers(values).size - at.n
        found[float(x)] = {"n": at.n, "failed": failed, "mean": at.mean, "low": at.low, "high": at.high}
    return found


def _arrays(points: Mapping[float, Row]) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    mean, low, high = (np.array([row[key] for row in points.values()]) for key in ("mean", "low", "high"))
    return np.array(list(points)), mean, low, high


def draw_line(ax: Axes, points: Mapping[float, Row], style: MethodStyle, shift: float) -> None:
    """Draw a line with whiskers, moved sideways on paper while its data stay what they are."""
    xs, middle, low, high = _arrays(points)
    moved = ax.transData + ScaledTranslation(shift / 72.0, 0.0, ax.figure.dpi_scale_trans)
    ax.plot(xs, middle, transform=moved, label=style.label, **line(style))
    sure = np.isfinite(low)
    ax.vlines(xs[sure], low[sure], high[sure], color=style.colour, linewidth=1.1, alpha=0.75, transform=moved)


def finish(
    ax: Axes, about: Measure, rows: list[Row], parameter: str, mark: float | None = None, *, root: bool = False
) -> None:
    """Give a panel of lines its axes, its title and its grid; `root` asks for the scale of a square root.

    Without it, the y-axis is logarithmic where the measure's may be and the means are far apart.
    """
    xs = np.array(sorted({row[parameter] for row in rows}))
    ends = np.array([row[key] for row in rows for key in ("low", "mean", "high")], dtype=np.float64)
    means = np.array([row["mean"] for row in rows], dtype=np.float64)
    known = ends[np.isfinite(ends)]
    if about.log and spans(means):
        log_axis(ax, "y", means)
        # An interval may reach below zero, where a log axis has no place.
        ax.set_ylim(means[np.isfinite(means)].min() / 1.5, known.max() * 1.2)
    elif known.size:
        room = 0.06 * (float(np.ptp(known)) or 1.0)
        bottom = known.min() - room
        least = float(np.nanmin(means))
        if root:
            # Room for a mark at zero, of which this scale makes much; an interval may reach further.
            bottom = max(bottom, min(0.0, least) - room**2)
            ax.set_ylim(bottom, known.max() + room)
            root_axis(ax, "y", np.maximum(known, bottom))
        else:
            # No measure that cannot be negative is shown with room below zero for it.
            ax.set_ylim(0.0 if least >= 0.0 and bottom < 0.0 else bottom, known.max() + room)
            ax.locator_params(axis="y", nbins=5)
    if spans(xs):
        log_axis(ax, "x", xs)
        ax.minorticks_off()
    if xs.size:
        labels = [f"{x:g}" for x in xs]
        # Every second one where all would run into each other.
        crowded = sum(map(len, labels)) > _LETTERS
        ax.set_xticks(xs, ["" if crowded and j % 2 else label for j, label in enumerate(labels)])
        # Explicit, for matplotlib takes the lines' shifts on paper for data.
        ax.set_xlim(*_room(xs, log=spans(xs)))
    if mark is not None:
        ax.axvline(mark, color=MUTED, linewidth=1.0, linestyle=(0, (2, 2)), zorder=0)
    ax.set_title(f"{about.title}" + (f", {about.axis}" if about.axis in ("seconds",) else ""))
    ax.set_xlabel(parameter)
    ax.tick_params(axis="x", labelcolor=INK)
    ax.grid(visible=True, axis="y", color=RULE)


def _room(xs: FloatArray, *, log: bool) -> tuple[float, float]:
    """Return the ends of an axis that leaves a little room beside its first and last value."""
    ends = np.array([xs.min(), xs.max()])
    ends = np.log(ends) if log else ends
    ends += 0.09 * (float(np.ptp(ends)) or 1.0) * np.array([-1.0, 1.0])
    low, high = (np.exp(ends) if log else ends).tolist()
    return low, high


def _alt(rows: list[Row], parameter: str, look: Mapping[str, MethodStyle]) -> str:
    xs = sorted({row[parameter] for row in rows})
    parts = []
    for name in dict.fromkeys(row["measure"] for row in rows):
        last = [row for row in rows if row["measure"] == name and row[parameter] == xs[-1] and row["n"]]
        if last:
            ends = sorted(last, key=lambda row: row["mean"], reverse=measure(name).rising)
            ends = [ends[0], ends[-1]]
            ends_told = [f"{look[row['method']].label} ({told(row['mean'])})" for row in ends]
            parts.append(f"{measure(name).title} from {' to '.join(ends_told)}")
    reach = f" from {xs[0]:g} to {xs[-1]:g}. At {xs[-1]:g}, best to worst: {'; '.join(parts)}" if xs else ""
    return f"Means with 95 % intervals by method against {parameter}{reach}."


Points = Mapping[float, ArrayLike]


def _about(name: str) -> Measure:
    """Return a measure as it is drawn here: models differ in GEVD by more than a linear axis can show."""
    return measure(name)._replace(log=True) if name == "gevd" else measure(name)


@in_ink
def by_model(
    values: Mapping[str, Mapping[str, Points]],
    floors: Mapping[str, Mapping[str, Points]],
    parameter: str,
    *,
    floor: str = "true labels given",
) -> Drawn:
    """Draw every measure against a swept parameter, a panel a measure and a line a model.

    Parameters
    ----------
    values : measure -> model -> parameter -> (n,)
        One value a world; None or NaN where a trial failed.
    floors : measure -> model -> parameter -> (n,)
        What each model could reach at best: dashed, in its colour, without an interval.
    parameter : str
        What is swept, for the axis.
    floor : str
        What the floors are, for the legend.

    Examples
    --------
    >>> drawn = by_model({"anid": {"MaxEnt": {2: [0.1, 0.3]}}}, {"anid": {"MaxEnt": {2: [0.0, 0.1]}}}, "elements E")
    >>> [(row["model"], row["floor"], row["mean"]) for row in drawn.rows]
    [('MaxEnt', False, 0.2), ('MaxEnt', True, 0.05)]
    """
    models = list(dict.fromkeys(name for by in (*values.values(), *floors.values()) for name in by))
    look = model_styles(models)
    figure, axes, _ = panels(len(values), 2.0, columns=1)
    rows: list[Row] = []
    for ax, (name, by) in zip(axes, values.items(), strict=True):
        drawn: list[Row] = []
        for place, model in enumerate(models):
            shift = aside(place, len(models))
            for known, is_floor in ((by.get(model, {}), False), (floors.get(name, {}).get(model, {}), True)):
                points = points_of(known)
                if is_floor:
                    style = {**line(open_dashed(look[model], "")), "markersize": 3.2, "linewidth": 1.0}
                    ax.plot(list(points), [row["mean"] for row in points.values()], **style)
                else:
                    draw_line(ax, points, look[model], shift)
                at = {"measure": name, "model": model, "floor": is_floor}
                drawn += [{**at, parameter: x, **row} for x, row in points.items()]
        finish(ax, _about(name), drawn, parameter, root=name == "anid")
        rows += drawn
    below = Line2D([], [], color=MUTED, linestyle=(0, (4, 1.5)), marker="o", markerfacecolor="none", markersize=3.2)
    below.set_label(floor)
    legend(figure, [*(handle(look[model]) for model in models), below])
    return Drawn(figure, rows, _alt_models(rows, parameter))


@in_ink
def by_start(values: Mapping[str, Mapping[str, Points]], name: str, parameter: str) -> Drawn:
    """Draw one measure against a swept parameter, a panel a model and a line a start, all on one scale.

    Parameters
    ----------
    values : model -> start -> parameter -> (n,)
        One value a world; None or NaN where a trial failed.
    name : str
        The measure.
    parameter : str
        What is swept, for the axis.

    Examples
    --------
    >>> drawn = by_start({"MaxEnt": {"k-means, MLE": {2: [0.1, 0.3]}}}, "anid", "elements E")
    >>> [(row["model"], row["start"], row["mean"]) for row in drawn.rows]
    [('MaxEnt', 'k-means, MLE', 0.2)]
    """
    starts = list(dict.fromkeys(start for by in values.values() for start in by))
    look = styles(starts)
    figure, axes, spare = panels(len(values), 1.85)
    rows: list[Row] = []
    for ax, (model, by) in zip(axes, values.items(), strict=True):
        for start, known in by.items():
            points = points_of(known)
            draw_line(ax, points, look[start], aside(starts.index(start), len(starts)))
            rows += [{"model": model, "start": start, parameter: x, **row} for x, row in points.items()]
    for ax, model in zip(axes, values, strict=True):
        # All rows: one scale, so that panels compare.
        finish(ax, _about(name)._replace(title=model, axis=""), rows, parameter, root=name == "anid")
        ax.set_ylabel(measure(name).title)
    legend(figure, [handle(look[start]) for start in starts], spare)
    return Drawn(figure, rows, _alt_starts(rows, name, parameter))


def _alt_models(rows: list[Row], parameter: str) -> str:
    parts = []
    for name in dict.fromkeys(row["measure"] for row in rows):
        mine = [row for row in rows if row["measure"] == name and not row["floor"] and row["n"]]
        last = max((row[parameter] for row in mine), default=None)
        ends = sorted((row for row in mine if row[parameter] == last), key=lambda row: row["mean"])
        if ends:
            said = [f"{row['model']} ({told(row['mean'])})" for row in (ends[0], ends[-1])]
            parts.append(f"{measure(name).title} at {last:g} from {' to '.join(said)}")
    return f"Means with 95 % intervals by model against {parameter}, lowest to highest: {'; '.join(parts) or 'none'}."


def _alt_starts(rows: list[Row], name: str, parameter: str) -> str:
    parts = []
    for model in dict.fromkeys(row["model"] for row in rows):
        mine = [row for row in rows if row["model"] == model and row["n"]]
        last = max((row[parameter] for row in mine), default=None)
        ends = sorted((row for row in mine if row[parameter] == last), key=lambda row: row["mean"])
        if ends:
            said = [f"{row['start']} ({told(row['mean'])})" for row in (ends[0], ends[-1])]
            parts.append(f"{model} at {last:g} from {' to '.join(said)}")
    title = measure(name).title
    return f"{title} by start against {parameter}, a panel a model, lowest to highest: {'; '.join(parts) or 'none'}."


_IDEAL: Keywords = {"color": MUTED, "linestyle": (0, (2, 2)), "linewidth": 1.2}


@in_ink
def scaling(seconds: Mapping[str, Mapping[int, ArrayLike]]) -> Drawn:
    """Draw wall time and speed-up against workers, one line an executor.

    The speed-up is over an executor's own time with its fewest workers, and the ideal divides that time evenly.

    Parameters
    ----------
    seconds : executor -> workers -> seconds, or seconds of several runs
        Of several runs the fastest counts: the others were disturbed.

    Examples
    --------
    >>> drawn = scaling({"local": {1: 10.0, 2: [6.0, 5.0]}})
    >>> [(row["workers"], row["speedup"], row["efficiency"]) for row in drawn.rows]
    [(1, 1.0, 1.0), (2, 2.0, 1.0)]
    """
    look = styles(seconds)
    figure, (time, gain), _ = panels(2, 2.1)
    rows: list[Row] = []
    for executor, by_workers in seconds.items():
        mine = _rows(executor, by_workers)
        if not mine:
            continue
        workers = np.array([row["workers"] for row in mine])
        time.plot(workers, mine[0]["seconds"] * workers[0] / workers, zorder=1.0, **_IDEAL)
        time.plot(workers, [row["seconds"] for row in mine], **line(look[executor]))
        gain.plot(workers, [row["speedup"] for row in mine], **line(look[executor]))
        rows += mine
    counts = np.array(sorted({row["workers"] for row in rows}), dtype=np.float64)
    if counts.size:
        gain.plot(counts, counts / counts[0], zorder=1.0, **_IDEAL)
        log_axis(time, "y", np.array([row["seconds"] for row in rows]))
    time.set(title="Wall time, seconds")
    gain.set(title="Speed-up")
    for ax in (time, gain):
        ax.set_xlabel("workers")
        ax.set_xscale("log")
        ax.minorticks_off()
        ax.set_xticks(counts, [f"{x:g}" for x in counts])
        ax.grid(visible=True, axis="y", color=RULE)
    gain.set_ylim(bottom=0.0)
    legend(figure, [*(handle(style) for style in look.values()), Line2D([], [], label="ideal", **_IDEAL)], columns=3)
    parts = [f"{row['executor']} with {row['workers']}: {told(row['speedup'])}" for row in rows]
    return Drawn(figure, rows, f"Wall time and speed-up against workers. Speed-ups: {', '.join(parts)}.")


def _rows(executor: str, by_workers: Mapping[int, ArrayLike]) -> list[Row]:
    known = {int(w): numbers(values) for w, values in sorted(by_workers.items())}
    best = {w: float(np.nanmin(values)) for w, values in known.items() if np.isfinite(values).any()}
    if not best:
        return []
    fewest = min(best)
    return [
        {
            "executor": executor,
            "workers": w,
            "runs": int(np.isfinite(known[w]).sum()),
            "seconds": s,
            "speedup": best[fewest] / s,
            "efficiency": best[fewest] / s * fewest / w,
        }
        for w, s in best.items()
    ]
