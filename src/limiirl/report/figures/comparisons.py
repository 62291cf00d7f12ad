"""Comparisons of methods: box plots, counts of few values, and differences to a baseline world by world."""

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
from limiirl.metrics import paired_comparison
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
    numbers,
    panels,
    spans,
    styles,
    told,
)
from limiirl.report.figures.sweeps import summary
from limiirl.report.svg import INK, MUTED, PAPER, RULE

_REACH = 1.5
_HALF = 0.27
_FILL = 0.3


class FiveNumbers(NamedTuple):
    """What a box plot draws: whisker, quartile, median, quartile, whisker; and outliers beyond the whiskers.

    `n` values are finite and `failed` are not.

    >>> FiveNumbers(3, 0, 2.0, 1.0, 1.5, 2.0, 2.5, 3.0, ()).median
    2.0
    """

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
    """Return quartiles, and the whiskers: the outermost values within 1.5 times the interquartile range of the box.

    Quartiles interpolate linearly between the values. None, NaN and infinities count as failed.

    Examples
    --------
    >>> found = five_numbers([1.0, 2.0, 3.0, 4.0, 50.0, None])
    >>> found.q1, found.median, found.q3
    (2.0, 3.0, 4.0)
    >>> found.low, found.high, found.outliers, found.failed
    (1.0, 4.0, (50.0,), 1)
    """
    array = numbers(values)
    known = np.sort(array[np.isfinite(array)])
    failed = int(array.size - known.size)
    if not known.size:
        nothing = float("nan")
        return FiveNumbers(0, failed, nothing, nothing, nothing, nothing, nothing, nothing, ())
    q1, median, q3 = (float(q) for q in np.quantile(known, (0.25, 0.5, 0.75)))
    reach = _REACH * (q3 - q1)
    inside = known[(known >= q1 - reach) & (known <= q3 + reach)]
    # A whisker never ends inside its box, even where no value lies between the two.
    low, high = min(float(inside[0]), q1), max(float(inside[-1]), q3)
    beyond = known[(known < low) | (known > high)]
    return FiveNumbers(
        known.size, failed, float(known.mean()), low, q1, median, q3, high, tuple(float(x) for x in beyond)
    )


@in_ink
def boxes(
    values: Mapping[str, Mapping[str, ArrayLike]],
    reference: Mapping[str, Mapping[str, tuple[float, float]]] | None = None,
) -> Drawn:
    """Draw box plots by method, a panel a measure.

    Parameters
    ----------
    values : measure -> method -> (n,)
        One value a world; None or NaN where a trial failed. Methods stand in the order in which they are first met.
    reference : measure -> method -> (mean, half-width)
        The paper's figures, with half of what it prints after the "±". A method or measure without one has no mark.

    Examples
    --------
    >>> drawn = boxes({"anid": {"k-means, MLE": [0.02, 0.03, 0.05], "random rewards": [0.1, 0.2, None]}})
    >>> [(row["method"], row["median"], row["failed"]) for row in drawn.rows]
    [('k-means, MLE', 0.03, 0), ('random rewards', 0.15..., 1)]
    """
    methods = list(dict.fromkeys(name for by_method in values.values() for name in by_method))
    look = styles(methods)
    labels = [fitted(look[method].label) for method in methods]
    # Names of two lines in neighbouring rows need more room.
    height = 0.33 if any("\n" in a and "\n" in b for a, b in pairwise(labels)) else 0.26
    figure, axes, spare = panels(len(values), 0.66 + height * max(len(methods), 2))
    rows: list[Row] = []
    for place, (name, by_method) in enumerate(values.items()):
        ax = axes[place]
        marks = (reference or {}).get(name, {})
        for y, method in enumerate(methods):
            found = five_numbers(by_method.get(method, ()))
            mean, half = marks.get(method, (float("nan"), float("nan")))
            _box(ax, y, found, look[method])
            if np.isfinite(mean):
                _mark(ax, y, mean, half)
            given = found._asdict() | {"outliers": " ".join(f"{x:.10g}" for x in found.outliers)}
            rows.append({"measure": name, "method": method, **given, "paper": mean, "paper_half_width": half})
        _finish(ax, name, by_method, labels, names=place % 2 == 0)
    legend(figure, _key(reference is not None), spare)
    return Drawn(figure, rows, _alt(rows, look))


def _box(ax: Axes, y: float, found: FiveNumbers, style: MethodStyle) -> None:
    if not found.n:
        place = ax.get_yaxis_transform()
        ax.text(0.02, y, "none", transform=place, va="center", fontsize="small", color=MUTED, fontstyle="italic")
        return
    ends = [(found.low, found.q1), (found.q3, found.high)]
    for a, b in ends:
        ax.plot([a, b], [y, y], color=style.colour, linewidth=1.2, solid_capstyle="butt")
    for x in (found.low, found.high):
        ax.plot([x, x], [y - _HALF / 2, y + _HALF / 2], color=style.colour, linewidth=1.2)
    box: Keywords = {"facecolor": (style.colour, _FILL), "edgecolor": style.colour, "linewidth": 1.2}
    ax.add_patch(Rectangle((found.q1, y - _HALF), found.q3 - found.q1, 2 * _HALF, **box))
    ax.plot([found.median] * 2, [y - _HALF, y + _HALF], color=INK, linewidth=2.0, solid_capstyle="butt")
    at = [y] * len(found.outliers)
    ax.plot(found.outliers, at, "d", markersize=3.2, color=style.colour, markeredgewidth=0.0, alpha=0.8)


def _mark(ax: Axes, y: float, mean: float, half: float) -> None:
    """Draw the paper's mean and interval just under its box, where it hides nothing."""
    at = y + _HALF + 0.14
    ax.errorbar(mean, at, xerr=half if np.isfinite(half) else None, **_paper_style())


def _paper_style() -> Keywords:
    return {
        "fmt": "o",
        "color": INK,
        "markersize": 3.6,
        "markerfacecolor": PAPER,
        "markeredgewidth": 1.0,
        "elinewidth": 1.0,
        "capsize": 0.0,
    }


def _finish(ax: Axes, name: str, by_method: Mapping[str, ArrayLike], labels: list[str], *, names: bool) -> None:
    about = measure(name)
    everything = np.concatenate([np.zeros(0), *(numbers(v) for v in by_method.values())])
    if about.log and spans(everything):
        log_axis(ax, "x", everything)
    else:
        ax.locator_params(axis="x", nbins=5)
    ax.set_title(about.title)
    ax.set_xlabel(about.axis)
    ax.set_yticks(range(len(labels)), labels if names else [""] * len(labels))
    ax.set_ylim(len(labels) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0, labelcolor=INK)
    ax.spines["left"].set_visible(False)
    ax.grid(visible=True, axis="x", color=RULE)


def _key(paper: bool) -> list[Patch | Line2D]:
    grey: Keywords = {"color": MUTED}
    known: list[Patch | Line2D] = [
        Patch(facecolor=(MUTED, _FILL), edgecolor=MUTED, label="middle half"),
        Line2D([], [], color=INK, linewidth=2.0, marker="", label="median"),
        Line2D([], [], linewidth=1.2, label="within 1.5 IQR", **grey),
        Line2D([], [], linestyle="", marker="d", markersize=3.2, label="outlier", **grey),
    ]
    if paper:
        look: Keywords = {"color": INK, "markersize": 3.6, "markerfacecolor": PAPER, "linewidth": 1.0}
        known.append(Line2D([], [], marker="o", label="paper: mean, 95 %", **look))
    return known


def _alt(rows: list[Row], look: Mapping[str, MethodStyle]) -> str:
    parts = []
    for name in dict.fromkeys(row["measure"] for row in rows):
        known = [row for row in rows if row["measure"] == name and row["n"]]
        if known:
            least, most = (choose(known, key=lambda row: row["median"]) for choose in (min, max))
            ends = [f"{look[row['method']].label} ({told(row['median'])})" for row in (least, most)]
            parts.append(f"{measure(name).title} from {' to '.join(ends)}")
    worlds = max((row["n"] for row in rows), default=0)
    return f"Box plots by method over up to {worlds} worlds. Medians, best to worst: {'; '.join(parts)}."


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
            _finish_counts(ax, name, setting, labels)
        if first is not None:
            _limits(first, [row["value"] for row in rows if row["measure"] == name])
    legend(figure, _key_counts(max((row["n"] for row in rows), default=0)), columns=3)
    return Drawn(figure, rows, _alt_counts(rows))


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


def _finish_counts(ax: Axes, name: str, setting: str, labels: list[str]) -> None:
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


def _key_counts(n: int) -> list[Line2D]:
    counts = sorted({1, max(n // 4, 1), max(n, 1)})
    look: Keywords = {"linestyle": "", "marker": "o", "color": MUTED, "markerfacecolor": (MUTED, 0.35)}
    dots = [
        Line2D([], [], **look, markersize=_size(c, max(n, 1)), label=f"{c} repeat{'s' if c > 1 else ''}")
        for c in counts
    ]
    bar = Line2D([], [], color=INK, linewidth=1.4, marker="|", markersize=5.0, markeredgewidth=1.6)
    bar.set_label("mean and 95 % interval")
    return [*dots, bar]


def _alt_counts(rows: Sequence[Row]) -> str:
    parts = []
    for name in dict.fromkeys(row["measure"] for row in rows):
        for setting in dict.fromkeys(row["setting"] for row in rows):
            mine = {row["method"]: row for row in rows if (row["measure"], row["setting"]) == (name, setting)}
            order = sorted(mine.values(), key=lambda row: float(row["mean"]), reverse=measure(name).rising)
            if order:
                said = [f"{row['method']} ({told(row['mean'])})" for row in (order[0], order[-1])]
                parts.append(f"{measure(name).title}, {setting}, from {' to '.join(said)}")
    return f"How often each value occurs, by method. Means, best to worst: {'; '.join(parts) or 'none'}."


@in_ink
def differences(values: Mapping[str, Mapping[str, ArrayLike]], baseline: str = "random rewards") -> Drawn:
    """Draw each method's values minus the baseline's, a dot a world, with mean and 95 % interval.

    Parameters
    ----------
    values : measure -> method -> (n,)
        Entry i of all methods is of the same world; None or NaN where a trial failed, which leaves that pair out.
    baseline : str
        The method that is subtracted.

    Examples
    --------
    >>> drawn = differences({"anid": {"k-means, MLE": [0.0, 0.1, 0.2], "random rewards": [0.2, 0.2, None]}})
    >>> row = drawn.rows[0]
    >>> row["method"], row["n"], round(row["mean"], 3), row["lower"], row["higher"]
    ('k-means, MLE', 2, -0.15, 2, 0)
    """
    gaps = {name: _gaps(name, by_method, baseline) for name, by_method in values.items()}
    methods = list(dict.fromkeys(method for by_method in gaps.values() for method in by_method))
    look = styles([baseline, *methods])
    figure = blank((0.62 + 0.33 * max(len(methods), 1)) * max(len(gaps), 1))
    rows: list[Row] = []
    for place, (name, by_method) in enumerate(gaps.items()):
        ax = figure.add_subplot(len(gaps), 1, place + 1)
        for y, method in enumerate(methods):
            gap = by_method.get(method, np.zeros(0))
            row = _row(gap)
            rows.append({"measure": name, "method": method, **row})
            _dots(ax, y, gap, row, look[method])
        _finish_pairs(ax, name, [fitted(look[method].label) for method in methods], baseline)
    return Drawn(figure, rows, _alt_pairs(rows, look, baseline))


def _gaps(name: str, by_method: Mapping[str, ArrayLike], baseline: str) -> dict[str, FloatArray]:
    if baseline not in by_method:
        raise InvalidParameter(
            f"values[{name!r}] must hold the baseline {baseline!r}; it has {list(by_method)}.",
            parameter="values",
            value=name,
        )
    base, found = numbers(by_method[baseline]), {}
    for method, values in by_method.items():
        mine = numbers(values)
        if mine.size != base.size:
            raise InvalidParameter(
                f"Methods must be of the same worlds; {method!r} has {mine.size} values of {name} and {baseline!r} "
                f"{base.size}. Pair them up, with None where a trial failed.",
                parameter="values",
                value=method,
            )
        gap = mine - base
        # A method that lacks the measure altogether, as the supervised one has no iterations, has no strip.
        if method != baseline and (np.isfinite(gap).any() or not np.isfinite(base).any()):
            found[method] = gap
    return found


def _row(gap: FloatArray) -> Row:
    known = gap[np.isfinite(gap)]
    at = summary(known)
    tests = paired_comparison(known, np.zeros(known.size)) if known.size >= 2 else None
    return {
        "n": known.size,
        "mean": at.mean,
        "low": at.low,
        "high": at.high,
        "lower": int(np.sum(known < 0.0)),
        "higher": int(np.sum(known > 0.0)),
        "p_t": float("nan") if tests is None else tests.p_t,
        "p_wilcoxon": float("nan") if tests is None else tests.p_wilcoxon,
    }


def _dots(ax: Axes, y: float, gap: FloatArray, row: Row, style: MethodStyle) -> None:
    known = np.sort(gap[np.isfinite(gap)])
    place = ax.get_yaxis_transform()
    said = f"lower in {row['lower']} of {row['n']}" if known.size else "none"
    ax.text(1.01, y, said, transform=place, va="center", fontsize="small", color=MUTED)
    # Spread by rank over the strip, so that equal differences stay visible without chance in the picture.
    spread = (np.arange(known.size) * 3 % 7 - 3) / 22.0
    ax.plot(known, y + spread, "o", color=style.colour, markersize=3.2, alpha=0.4, markeredgewidth=0.0)
    ax.plot([row["low"], row["high"]], [y] * 2, color=INK, linewidth=2.4, solid_capstyle="butt")
    ax.plot(row["mean"], y, style.marker, color=INK, markerfacecolor=style.colour, markersize=5.0)


def _finish_pairs(ax: Axes, name: str, labels: list[str], base: str) -> None:
    ax.axvline(0.0, color=MUTED, linewidth=1.2, zorder=0.5)
    ax.set_title(f"{measure(name).title}, minus that of {fitted(base, 40, 1)}")
    ax.set_xlabel("left of 0 is better")
    ax.set_yticks(np.arange(len(labels)), labels)
    ax.set_ylim(len(labels) - 0.5, -0.5)
    ax.locator_params(axis="x", nbins=6)
    ax.tick_params(axis="y", length=0, labelcolor=INK)
    ax.spines["left"].set_visible(False)
    ax.grid(visible=True, axis="x", color=RULE)


def _alt_pairs(rows: list[Row], look: Mapping[str, MethodStyle], baseline: str) -> str:
    parts = []
    for name in dict.fromkeys(row["measure"] for row in rows):
        known = [row for row in rows if row["measure"] == name and row["n"]]
        said = [f"{look[row['method']].label} in {row['lower']} of {row['n']}" for row in known]
        parts.append(f"{measure(name).title}: {'; '.join(said)}")
    return f"Differences from {baseline} on the same worlds. Lower than it: {'. '.join(parts)}."
