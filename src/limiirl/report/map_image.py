"""Static image of the initial view of a map, for print and for browsers without JavaScript."""

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
from matplotlib.patheffects import withStroke

from limiirl._typing import FloatArray
from limiirl.report.maps import Layer, Map, Stroke
from limiirl.report.svg import INK, MUTED, STYLE, WIDE
from limiirl.roads import Plane

# 1,200 pixels for a width of eight inches.
_DPI = 150
# Width of the map on the page in pixels, which corresponds to eight inches of 72 points in the image.
_PIXELS = 830.0
_POINTS_PER_PIXEL = WIDE * 72.0 / _PIXELS
_MAX_ENTRIES, _MAX_LABEL = 24, 30


def map_png(item: Map) -> bytes:
    """Return a map as PNG, with the visible layers, a scale bar, a legend and the attribution."""
    (south, west), (north, east) = item.bounds
    plane = Plane(0.5 * (south + north), 0.5 * (west + east))
    half = np.maximum(plane.xy([north], [east])[0], 20.0) / 0.94
    # The window has the aspect ratio of the map and contains the view.
    half = np.array([max(half[0], half[1] * item.aspect), max(half[1], half[0] / item.aspect)])
    entries: list[Any] = []
    # Start from the defaults, so that the output does not depend on the user's settings.
    settings = dict(STYLE) | {"text.parse_math": False, "figure.constrained_layout.use": False}
    with matplotlib.style.context(["default", settings]):
        drawing = Drawing(figsize=(WIDE, WIDE / item.aspect))
        ax = drawing.add_axes((0.0, 0.0, 1.0, 1.0))
        ax.set_axis_off()
        ax.set_xlim(-half[0], half[0])
        ax.set_ylim(-half[1], half[1])
        for layer, visible in zip(item.layers, item.visible(), strict=True):
            if visible:
                _draw_layer(ax, layer, plane, half)
                entries += _legend_entries(layer, 2.0 * half[0] / _PIXELS)
        _draw_scale_bar(ax, half)
        if item.attribution:
            ax.text(0.995, 0.008, item.attribution, transform=ax.transAxes, ha="right", color=MUTED, fontsize=7.0)
        below: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (0.0, 0.0), "ncols": 4}
        artists = [drawing.legend(handles=entries[:_MAX_ENTRIES], **below)] if entries else []
        out = io.BytesIO()
        layout: dict[str, Any] = {"bbox_inches": "tight", "bbox_extra_artists": artists, "pad_inches": 0.04}
        drawing.savefig(out, format="png", dpi=_DPI, facecolor="white", metadata={"Software": None}, **layout)
    return out.getvalue()


def _draw_layer(ax: Axes, layer: Layer, plane: Plane, half: FloatArray) -> None:
    xy = plane.xy(layer.points[:, 0], layer.points[:, 1])
    ends = layer.offsets
    taken: list[FloatArray] = []  # positions of labels
    for code, stroke in enumerate(layer.strokes):
        features = np.flatnonzero(layer.stroke == code)
        if not features.size or not _is_drawn(stroke, 2.0 * half[0] / _PIXELS):
            continue
        colour, width = _on_white(stroke), stroke.width * _POINTS_PER_PIXEL
        if layer.kind == "points":
            at = xy[ends[features]]
            edge: dict[str, Any] = {"edgecolors": "white", "linewidths": 0.8} if stroke.halo else {"linewidths": 0.0}
            ax.scatter(at[:, 0], at[:, 1], s=width**2, color=colour, **edge)
            continue
        if layer.kind == "labels":
            _draw_labels(ax, layer, xy[ends[features]], features.tolist(), (colour, width), half, taken)
            continue
        lines = [xy[ends[i] : ends[i + 1]] for i in features.tolist()]
        if layer.kind == "areas":
            ax.add_collection(PolyCollection(lines, facecolors=[colour], linewidths=0.0))
            continue
        if stroke.halo:
            ax.add_collection(LineCollection(lines, colors="white", linewidths=width + 2.0, capstyle="round"))
        look: dict[str, Any] = {"colors": [colour], "linewidths": width, "capstyle": "round"}
        ax.add_collection(LineCollection(lines, linestyles=[_dashes(stroke)], **look))


def _draw_labels(
    ax: Axes,
    layer: Layer,
    at: FloatArray,
    features: list[int],
    look: tuple[Any, float],
    half: FloatArray,
    taken: list[FloatArray],
) -> None:
    """Write the names inside the window; a name that is near an earlier one is omitted."""
    colour, size = look
    apart = half * [0.2, 0.06]
    for point, i in zip(at, features, strict=True):
        if (np.abs(point) < 0.95 * half).all() and all((np.abs(point - other) > apart).any() for other in taken):
            taken.append(point)
            outline = [withStroke(linewidth=2.0, foreground="white")]
            text = str(layer.facts[""][i])
            ax.text(
                point[0], point[1], text, ha="center", va="center", color=colour, fontsize=size, path_effects=outline
            )


def _dashes(stroke: Stroke) -> Any:
    return (0, (2.2, 1.8)) if stroke.dashed else "solid"


def _on_white(stroke: Stroke) -> tuple[float, float, float]:
    red, green, blue = (stroke.strength * part + 1.0 - stroke.strength for part in to_rgb(stroke.colour))
    return red, green, blue


def _is_drawn(stroke: Stroke, metres_per_pixel: float) -> bool:
    return not stroke.detail or metres_per_pixel <= stroke.detail


def _legend_entries(layer: Layer, metres_per_pixel: float) -> list[Any]:
    entries: list[Any] = []
    if layer.kind == "labels":
        return entries
    used = set(layer.stroke.tolist())
    for code, stroke in enumerate(layer.strokes):
        label = stroke.label if len(layer.strokes) > 1 else layer.title
        if code not in used or not label or not _is_drawn(stroke, metres_per_pixel):
            continue
        label = label if len(label) <= _MAX_LABEL else f"{label[: _MAX_LABEL - 1]}…"
        look: dict[str, Any] = {"color": _on_white(stroke), "label": label}
        width = min(stroke.width * _POINTS_PER_PIXEL, 9.0)
        if layer.kind == "points":
            entries.append(Line2D([], [], linestyle="", marker="o", markersize=width, **look))
        else:
            entries.append(Line2D([], [], linewidth=max(width, 0.8), linestyle=_dashes(stroke), **look))
    return entries


def _draw_scale_bar(ax: Axes, half: FloatArray) -> None:
    """Draw a scale bar of at most an eighth of the width; `half` (2,) is half the size of the window in metres."""
    metres = round_length(half[0] / 4.0)
    left, foot = -0.985 * half[0], -half[1] + 0.015 * half[0]
    xs, ys = [left, left, left + metres, left + metres], [foot * 0.985, foot, foot, foot * 0.985]
    ax.plot(xs, ys, color=INK, linewidth=1.0)
    label = f"{metres / 1000.0:g} km" if metres >= 1000.0 else f"{metres:g} m"
    ax.text(left + metres / 2.0, foot, label, ha="center", va="bottom", color=INK, fontsize=7.5)


def round_length(length: float) -> float:
    """Round a length down to 1, 2 or 5 times a power of ten."""
    power = 10.0 ** np.floor(np.log10(length))
    return float(max(part * power for part in (1.0, 2.0, 5.0) if part * power <= length))
