"""Figures of a GEVD and of a comparison of groups; this module imports matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path

from limiirl._typing import FloatArray

if TYPE_CHECKING:
    from limiirl.metrics.gevd import GEVD
    from limiirl.metrics.groups import GroupComparison


# Learned intents are on the left and true intents on the right, as in the paper's figure.
_LEFT, _RIGHT, _BAR = 0.0, 1.0, 0.03
# Total space between the bars of one side, relative to their total height.
_GAP = 0.12
# Minimum width of a ribbon that is labelled with its distance.
_LEGIBLE = 0.04
_INK, _MUTED = "#1a1b1e", "#5c6069"


def draw(gevd: GEVD, ax: Axes | None) -> Figure:
    """Draw the flow as ribbons; see `GEVD.plot`."""
    if ax is None:
        height = 1.6 + 0.7 * max(gevd.flow.shape)
        figure, ax = plt.subplots(figsize=(6.4, height), layout="constrained")
    else:
        figure = ax.get_figure(root=True) or plt.gcf()
    draw_flow(ax, gevd.flow, gevd.evd, gevd.distance)
    ax.set_title(f"GEVD {gevd.value:.4g}: optimal flow between learned and true intents", fontsize=10)
    return figure


def draw_flow(
    ax: Axes, flow: FloatArray, evd: FloatArray, distance: str, *, ink: str = _INK, muted: str = _MUTED
) -> None:
    """Draw ribbons from learned to true intents, with a colour bar and without a title.

    `flow` and `evd` (K', K) are the mass and the distance of every pair of intents. `ink` is the colour of text, and
    `muted` the colour of bars and edges.
    """
    name = distance.upper() if len(distance) <= 4 else distance
    shading = ScalarMappable(Normalize(0.0, float(evd.max()) or 1.0), plt.get_cmap("YlOrRd"))
    left, right = (_upper_edges(flow.sum(axis=axis)) for axis in (0, 1))
    _draw_ribbons(ax, flow, evd, (left, right), shading, muted)
    _draw_bars(ax, flow.sum(axis=0), left, _LEFT - _BAR, "learned", (ink, muted))
    _draw_bars(ax, flow.sum(axis=1), right, _RIGHT, "true", (ink, muted))
    figure = ax.get_figure(root=True)
    if figure is not None:
        scale = figure.colorbar(shading, ax=ax, shrink=0.8, pad=0.02)
        scale.set_label(f"{name} of the pair", color=ink)
        scale.ax.tick_params(color=muted, labelcolor=ink)
        scale.outline.set_edgecolor(muted)
    ax.set_xlim(_LEFT - 0.35, _RIGHT + 0.3)
    ax.set_ylim(-1.02 - _GAP, 0.06)
    ax.axis("off")


def _upper_edges(weights: FloatArray) -> FloatArray:
    gap = _GAP / max(weights.size - 1, 1)
    return np.asarray(-np.concatenate([[0.0], np.cumsum(weights + gap)[:-1]]))


def _draw_ribbons(
    ax: Axes, flow: FloatArray, evd: FloatArray, tops: tuple[FloatArray, FloatArray], shading: ScalarMappable, edge: str
) -> None:
    """Draw one ribbon per pair of intents, stacked in the order of the intents at the other end."""
    at_left, at_right = (side.copy() for side in tops)
    middle = 0.5 * (_LEFT + _RIGHT)
    codes = [Path.MOVETO, *[Path.CURVE4] * 3, Path.LINETO, *[Path.CURVE4] * 3]
    for (i, j), width in np.ndenumerate(flow):
        if width == 0.0:
            continue
        a, b = float(at_left[j]), float(at_right[i])
        at_left[j] -= width
        at_right[i] -= width
        upper = [(_LEFT, a), (middle, a), (middle, b), (_RIGHT, b)]
        lower = [(_RIGHT, b - width), (middle, b - width), (middle, a - width), (_LEFT, a - width)]
        colour = shading.to_rgba(evd[i, j])
        ax.add_patch(PathPatch(Path([*upper, *lower], codes), facecolor=colour, edgecolor=edge, linewidth=0.4))
        if width >= _LEGIBLE:
            # The label is near the left end, where ribbons do not cross.
            position, text = (_LEFT + 0.02, a - width / 2), f"{evd[i, j]:.3g}"
            ax.text(*position, text, va="center", fontsize=8, color=_contrasting_colour(colour), zorder=3)


def _contrasting_colour(ground: Any) -> str:
    """Return black or white, whichever has the higher contrast (WCAG) with the background."""
    channels = np.asarray(ground[:3], dtype=np.float64)
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    luminance = float(linear @ (0.2126, 0.7152, 0.0722))
    return "#000000" if (luminance + 0.05) ** 2 > 1.05 * 0.05 else "#ffffff"


def _draw_bars(ax: Axes, weights: FloatArray, tops: FloatArray, x: float, side: str, colours: tuple[str, str]) -> None:
    ink, fill = colours
    for k, (weight, top) in enumerate(zip(weights, tops, strict=True)):
        ax.add_patch(Rectangle((x, top - weight), _BAR, weight, color=fill))
        align, text_x = ("right", x - 0.015) if side == "learned" else ("left", x + _BAR + 0.015)
        text = f"{side} {k}  ({100 * weight:.3g} %)"
        ax.text(text_x, top - weight / 2, text, ha=align, va="center", fontsize=9, color=ink)


# Size of a panel in inches, panels per row, and horizontal distance between the points of neighbouring groups.
_PANEL, _COLUMNS, _SPREAD = (2.4, 2.2), 4, 0.3


def draw_groups(comparison: GroupComparison, quantities: list[str]) -> Figure:
    """Draw one panel per quantity; see `GroupComparison.plot`."""
    columns = min(_COLUMNS, len(quantities))
    lines = -(-len(quantities) // columns)
    size = (_PANEL[0] * columns, _PANEL[1] * lines)
    figure, axes = plt.subplots(lines, columns, figsize=size, squeeze=False, layout="constrained")
    kinds = sorted(set(comparison.condition))
    label = np.array([kinds.index(kind) for kind in comparison.condition])
    for ax, name in zip(axes.flat, quantities, strict=False):
        values = comparison.values[name]
        for x in range(len(kinds)):
            own = values[(label == x) & np.isfinite(values)]
            offset = np.linspace(-_SPREAD, _SPREAD, own.size) / 2 if own.size > 1 else np.zeros(own.size)
            ax.plot(x + offset, np.sort(own), "o", color=_MUTED, markersize=4, alpha=0.7)
            if own.size:
                ax.plot([x - _SPREAD, x + _SPREAD], [own.mean()] * 2, color=_INK, linewidth=2)
        ax.set_xticks(range(len(kinds)), kinds)
        ax.set_xlim(-0.6, len(kinds) - 0.4)
        ps = [row.p_corrected for row in comparison.rows if row.quantity == name]
        stated = f"\np = {min(ps):.2g}, corrected" if np.isfinite(min(ps)) else ""
        ax.set_title(name + (stated if len(ps) == 1 else ""), fontsize=9)
        ax.tick_params(labelsize=8)
        ax.spines[["top", "right"]].set_visible(False)
    for ax in axes.flat[len(quantities) :]:
        ax.remove()
    return figure
