"""Box plots of each measure by method, as in the paper's appendix: quartiles, whiskers at 1.5 IQR, outliers."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from numpy.typing import ArrayLike

from limiirl.report.figures.look import (
    Drawn,
    Keywords,
    Row,
    fitted,
    in_ink,
    legend,
    log_axis,
    measure,
    numbers,
    panels,
    spans,
    told,
)
from limiirl.report.figures.method_styles import MethodStyle, styles
from limiirl.report.ink import INK, MUTED, PAPER, RULE

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
