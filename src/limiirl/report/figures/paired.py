"""A method against the baseline world by world: the picture of the paired test."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike, NDArray

from limiirl.errors import InvalidParameter
from limiirl.metrics.intervals import paired
from limiirl.report.figures.look import Drawn, Row, blank, fitted, in_ink, measure, numbers
from limiirl.report.figures.method_styles import MethodStyle, styles
from limiirl.report.figures.sweeps import summary
from limiirl.report.ink import INK, MUTED, RULE

Float = NDArray[np.float64]


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
        _finish(ax, name, [fitted(look[method].label) for method in methods], baseline)
    return Drawn(figure, rows, _alt(rows, look, baseline))


def _gaps(name: str, by_method: Mapping[str, ArrayLike], baseline: str) -> dict[str, Float]:
    if baseline not in by_method:
        raise InvalidParameter(f"values[{name!r}] must hold the baseline {baseline!r}; it has {list(by_method)}.")
    base, found = numbers(by_method[baseline]), {}
    for method, values in by_method.items():
        mine = numbers(values)
        if mine.size != base.size:
            raise InvalidParameter(
                f"Methods must be of the same worlds; {method!r} has {mine.size} values of {name} and {baseline!r} "
                f"{base.size}. Pair them up, with None where a trial failed."
            )
        gap = mine - base
        # A method that lacks the measure altogether, as the supervised one has no iterations, has no strip.
        if method != baseline and (np.isfinite(gap).any() or not np.isfinite(base).any()):
            found[method] = gap
    return found


def _row(gap: Float) -> Row:
    known = gap[np.isfinite(gap)]
    at = summary(known)
    tests = paired(known, np.zeros(known.size)) if known.size >= 2 else None
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


def _dots(ax: Axes, y: float, gap: Float, row: Row, style: MethodStyle) -> None:
    known = np.sort(gap[np.isfinite(gap)])
    place = ax.get_yaxis_transform()
    said = f"lower in {row['lower']} of {row['n']}" if known.size else "none"
    ax.text(1.01, y, said, transform=place, va="center", fontsize="small", color=MUTED)
    # Spread by rank over the strip, so that equal differences stay visible without chance in the picture.
    spread = (np.arange(known.size) * 3 % 7 - 3) / 22.0
    ax.plot(known, y + spread, "o", color=style.colour, markersize=3.2, alpha=0.4, markeredgewidth=0.0)
    ax.plot([row["low"], row["high"]], [y] * 2, color=INK, linewidth=2.4, solid_capstyle="butt")
    ax.plot(row["mean"], y, style.marker, color=INK, markerfacecolor=style.colour, markersize=5.0)


def _finish(ax: Axes, name: str, labels: list[str], base: str) -> None:
    ax.axvline(0.0, color=MUTED, linewidth=1.2, zorder=0.5)
    ax.set_title(f"{measure(name).title}, minus that of {fitted(base, 40, 1)}")
    ax.set_xlabel("left of 0 is better")
    ax.set_yticks(np.arange(len(labels)), labels)
    ax.set_ylim(len(labels) - 0.5, -0.5)
    ax.locator_params(axis="x", nbins=6)
    ax.tick_params(axis="y", length=0, labelcolor=INK)
    ax.spines["left"].set_visible(False)
    ax.grid(visible=True, axis="x", color=RULE)


def _alt(rows: list[Row], look: Mapping[str, MethodStyle], baseline: str) -> str:
    parts = []
    for name in dict.fromkeys(row["measure"] for row in rows):
        known = [row for row in rows if row["measure"] == name and row["n"]]
        said = [f"{look[row['method']].label} in {row['lower']} of {row['n']}" for row in known]
        parts.append(f"{measure(name).title}: {'; '.join(said)}")
    return f"Differences from {baseline} on the same worlds. Lower than it: {'. '.join(parts)}."
