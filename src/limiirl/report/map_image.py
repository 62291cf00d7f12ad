"""A picture of a map, for paper and for browsers that run no script: what is shown at first, on white."""

from __future__ import annotations

import io
from typing import Any

import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray

from limiirl.report.maps import Layer, Map, Stroke
from limiirl.report.svg import INK, MUTED, STYLE, WIDE
from limiirl.roads import Plane

DPI = 150
"""Of the picture: as wide as a page of paper it has 1,200 pixels."""
# What the page shows so many pixels wide is here eight inches of 72 points.
_PIXELS = 830.0
_POINTS_A_PIXEL = WIDE * 72.0 / _PIXELS
_MOST_KEYS, _LONGEST = 24, 30


def still_png(item: Map) -> bytes:
    """Return a map as a PNG: the layers that are shown at first, a bar of length, a legend, and whom to name.

    Examples
    --------
    >>> trip = Layer("Trip", [[41.15, -8.63], [41.16, -8.62]], [0, 2])
    >>> still_png(Map("trip", "A trip", "A line.", "", [trip]))[1:4]
    b'PNG'
    """
    (south, west), (north, east) = item.bounds
    plane = Plane(0.5 * (south + north), 0.5 * (west + east))
    half = np.maximum(plane.xy([north], [east])[0], 20.0) / 0.94
    # The window has the map's proportions, and holds the view.
    half = np.array([max(half[0], half[1] * item.shape), max(half[1], half[0] / item.shape)])
    keys: list[Any] = []
    # From the defaults, so that a picture looks the same whatever the user has set for other figures.
    settings = dict(STYLE) | {"text.parse_math": False, "figure.constrained_layout.use": False}
    with matplotlib.style.context(["default", settings]):
        drawing = Drawing(figsize=(WIDE, WIDE / item.shape))
        ax = drawing.add_axes((0.0, 0.0, 1.0, 1.0))
        ax.set_axis_off()
        ax.set_xlim(-half[0], half[0])
        ax.set_ylim(-half[1], half[1])
        for layer, shown in zip(item.layers, item.starts_shown(), strict=True):
            if shown:
                _draw(ax, layer, plane, half)
                keys += _keys(layer, 2.0 * half[0] / _PIXELS)
        _bar(ax, half)
        if item.attribution:
            ax.text(0.995, 0.008, item.attribution, transform=ax.transAxes, ha="right", color=MUTED, fontsize=7.0)
        out = io.BytesIO()
        artists = []
        if item.legend and keys:
            artists = [drawing.legend(handles=keys[:_MOST_KEYS], loc="upper left", bbox_to_anchor=(0.0, 0.0), ncols=4)]
        drawing.savefig(
            out,
            format="png",
            dpi=DPI,
            facecolor="white",
            bbox_inches="tight",
            bbox_extra_artists=artists,
            pad_inches=0.04,
            metadata={"Software": None},
        )
    return out.getvalue()


def _draw(ax: Axes, layer: Layer, plane: Plane, half: NDArray[np.float64]) -> None:
    xy = plane.xy(layer.points[:, 0], layer.points[:, 1])
    ends = layer.offsets
    for code, stroke in enumerate(layer.strokes):
        things = np.flatnonzero(layer.stroke == code)
        if not things.size or not _seen(stroke, 2.0 * half[0] / _PIXELS):
            continue
        colour, width = _on_white(stroke), stroke.width * _POINTS_A_PIXEL
        if layer.kind == "points":
            at = xy[ends[things]]
            edge: dict[str, Any] = {"edgecolors": "white", "linewidths": 0.8} if stroke.halo else {"linewidths": 0.0}
            ax.scatter(at[:, 0], at[:, 1], s=width**2, color=colour, **edge)
            continue
        lines = [xy[ends[i] : ends[i + 1]] for i in things.tolist()]
        if layer.kind == "areas":
            ax.add_collection(
                PolyCollection(lines, facecolors=[(*colour, 0.25)], edgecolors=[colour], linewidths=width)
            )
            continue
        if stroke.halo:
            ax.add_collection(LineCollection(lines, colors="white", linewidths=width + 2.0, capstyle="round"))
        style = (0, (2.2, 1.8)) if stroke.dashed else "solid"
        ax.add_collection(
            LineCollection(lines, colors=[colour], linewidths=width, linestyles=[style], capstyle="round")
        )


def _on_white(stroke: Stroke) -> tuple[float, float, float]:
    red, green, blue = (stroke.strength * part + 1.0 - stroke.strength for part in to_rgb(stroke.colour))
    return red, green, blue


def _seen(stroke: Stroke, metres_a_pixel: float) -> bool:
    return not stroke.detail or metres_a_pixel <= stroke.detail


def _keys(layer: Layer, metres_a_pixel: float) -> list[Any]:
    keys: list[Any] = []
    used = set(layer.stroke.tolist())
    for code, stroke in enumerate(layer.strokes):
        label = stroke.label if len(layer.strokes) > 1 else layer.title
        if code not in used or not label or not _seen(stroke, metres_a_pixel):
            continue
        label = label if len(label) <= _LONGEST else f"{label[: _LONGEST - 1]}…"
        colour, width = _on_white(stroke), min(stroke.width * _POINTS_A_PIXEL, 9.0)
        if layer.kind == "points":
            keys.append(Line2D([], [], linestyle="", marker="o", color=colour, markersize=width, label=label))
        elif layer.kind == "areas":
            keys.append(Patch(facecolor=(*colour, 0.25), edgecolor=colour, label=label))
        else:
            style: Any = (0, (2.2, 1.8)) if stroke.dashed else "solid"
            keys.append(Line2D([], [], linewidth=max(width, 0.8), color=colour, linestyle=style, label=label))
    return keys


def _bar(ax: Axes, half: NDArray[np.float64]) -> None:
    """Draw a round length of about an eighth of the width."""
    most = half[0] / 4.0
    power = 10.0 ** np.floor(np.log10(most))
    metres = float(max(part * power for part in (1.0, 2.0, 5.0) if part * power <= most))
    left, foot = -0.985 * half[0], -half[1] + 0.015 * half[0]
    ax.plot(
        [left, left, left + metres, left + metres], [foot * 0.985, foot, foot, foot * 0.985], color=INK, linewidth=1.0
    )
    words = f"{metres / 1000.0:g} km" if metres >= 1000.0 else f"{metres:g} m"
    ax.text(left + metres / 2.0, foot, words, ha="center", va="bottom", color=INK, fontsize=7.5)
