"""Models of behaviour against a swept parameter: a line a model, and a panel a model with a line a start."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.lines import Line2D
from numpy.typing import ArrayLike

from limiirl.report.figures.look import Drawn, Measure, Row, in_ink, legend, measure, panels, told
from limiirl.report.figures.method_styles import handle, line, model_styles, open_dashed, styles
from limiirl.report.figures.sweeps import aside, draw_line, finish, points_of
from limiirl.report.ink import MUTED

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
