"""Two demonstrated trips between nearly the same places by drivers of different intents: the left of figure 1."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike, NDArray

from limiirl.report.figures.look import Drawn, Row, blank, fitted, in_ink, intent_colour
from limiirl.report.ink import INK, MUTED, PAPER, RULE
from limiirl.roads.geodesy import Plane

Float = NDArray[np.float64]

_WIDTH = 5.0


@in_ink
def two_routes(
    lines: Sequence[ArrayLike],
    names: Sequence[str],
    intents: Sequence[int],
    streets: Sequence[tuple[ArrayLike, float]] = (),
) -> Drawn:
    """Draw routes on a map of streets, each in its intent's colour, with its length.

    Parameters
    ----------
    lines : sequence of (k, 2)
        Latitudes and longitudes.
    names : texts
        For the legend.
    intents : sequence of int
    streets : sequence of ((n, 2), width)
        Background: points with rows of NaN between lines, and a width in points.

    Examples
    --------
    >>> there = [[41.15, -8.63], [41.16, -8.63], [41.16, -8.62]]
    >>> around = [[41.15, -8.63], [41.15, -8.62], [41.16, -8.62]]
    >>> two_routes([there, around], ["slow", "fast"], [0, 1]).rows[0]["km"]
    1.95
    """
    routes = [np.asarray(line, dtype=np.float64) for line in lines]
    everything = np.concatenate(routes)
    low, high = everything.min(axis=0), everything.max(axis=0)
    plane = Plane(*(0.5 * (low + high)).tolist())
    flat = [plane.xy(line[:, 0], line[:, 1]) / 1000.0 for line in routes]
    half = np.abs(np.concatenate(flat)).max(axis=0) + 0.25
    # Not so flat that it shows nothing, not so tall that it fills a page.
    half = np.maximum(half, half[::-1] * np.array([0.85, 0.55]))
    figure = blank(float(_WIDTH * half[1] / half[0]) + 0.45, _WIDTH)
    ax = figure.add_subplot()
    for points, width in streets:
        at = np.asarray(points, dtype=np.float64).reshape(-1, 2)
        xy = plane.xy(at[:, 0], at[:, 1]) / 1000.0
        ax.plot(xy[:, 0], xy[:, 1], color=MUTED if width > 1.0 else RULE, linewidth=width, alpha=0.6, zorder=1)
    km = [float(np.hypot(*np.diff(line, axis=0).T).sum()) for line in flat]
    for line, name, intent, length in zip(flat, names, intents, km, strict=True):
        ax.plot(line[:, 0], line[:, 1], color=PAPER, linewidth=5.5, solid_capstyle="round", zorder=2)
        look = {"color": intent_colour(intent), "linewidth": 3.0, "solid_capstyle": "round"}
        ax.plot(line[:, 0], line[:, 1], label=f"{fitted(name, 40, 1)}, {length:.1f} km", zorder=3, **look)  # type: ignore[arg-type]
    _finish(ax, flat, half)
    figure.legend(loc="outside lower center", ncols=1)
    figure.set_figheight(float(figure.get_figheight()) + 0.2 * len(flat))
    rows: list[Row] = [
        {"route": name, "intent": intent, "km": round(length, 3), "points": len(line)}
        for name, intent, length, line in zip(names, intents, km, flat, strict=True)
    ]
    said = " and ".join(f"{name}: {length:.1f} km" for name, length in zip(names, km, strict=True))
    return Drawn(figure, rows, f"A map with {len(flat)} routes between nearly the same places. {said}.")


def _free_side(places: Float, flat: Sequence[Float], half: Float) -> tuple[Float, tuple[float, float]]:
    """Return the place of a word and the side of it, right, left, above or below, on which fewest routes pass."""
    steps = np.linspace(0.0, 1.0, 30)[:, None, None]
    passed = np.concatenate([(line[:-1] + steps * np.diff(line, axis=0)).reshape(-1, 2) for line in flat] + [places])
    room = 0.13 * half[0]  # about the width of a word
    found: list[tuple[bool, int, int, Float, tuple[float, float]]] = []
    for place in places:
        for side in ((1.0, 0.0), (-1.0, 0.0), (0.0, 1.0), (0.0, -1.0)):
            middle = place + room * np.array(side) * [1.0, 0.6]
            taken = int(np.all(np.abs(passed - middle) <= [0.85 * room, 0.4 * room], axis=1).sum())
            outside = bool(np.any(np.abs(middle) + np.array([room, 0.5 * room]) > half))
            found.append((outside, taken, len(found), place, side))
    *_, place, side = min(found, key=lambda one: one[:3])
    return place, side


def _finish(ax: Axes, flat: Sequence[Float], half: Float) -> None:
    for word, which, fill in (("start", 0, PAPER), ("end", -1, INK)):
        places = np.stack([line[which] for line in flat])
        ax.plot(*places.T, "o", color=INK, markerfacecolor=fill, markersize=7.0, markeredgewidth=1.6, zorder=4)
        at, side = _free_side(places, flat, half)
        ax.annotate(
            word,
            (at[0], at[1]),
            (9.0 * side[0], 10.0 * side[1]),
            textcoords="offset points",
            ha={1.0: "left", -1.0: "right"}.get(side[0], "center"),
            va={1.0: "bottom", -1.0: "top"}.get(side[1], "center"),
            bbox={"boxstyle": "round,pad=0.15", "facecolor": PAPER, "edgecolor": "none", "alpha": 0.85},
            zorder=5,
        )
    ax.set_xlim(-half[0], half[0])
    ax.set_ylim(-half[1], half[1])
    ax.set_aspect("equal")
    ax.set_xticks([])
    ax.set_yticks([])
    ax.spines[:].set_visible(False)
    most = half[0] / 2.0
    power = 10.0 ** np.floor(np.log10(most))
    bar = float(max(part * power for part in (1.0, 2.0, 5.0) if part * power <= most))
    left, foot = -0.96 * half[0], -0.95 * half[1]
    ax.plot([left, left + bar], [foot, foot], color=INK, linewidth=1.6, zorder=6)
    words = f"{bar:g} km" if bar >= 1.0 else f"{1000.0 * bar:g} m"
    paper = {"boxstyle": "square,pad=0.1", "facecolor": PAPER, "edgecolor": "none", "alpha": 0.85}
    ax.annotate(words, (left, foot), (0.0, 4.0), textcoords="offset points", bbox=paper, zorder=6)
