"""The picture of a GEVD: ribbons from learned to true intents. Importing this imports matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path
from numpy.typing import NDArray

if TYPE_CHECKING:
    from limiirl.metrics.gevd import GEVD

Float = NDArray[np.float64]

# Learned intents stand on the left, true ones on the right, as in the paper's figure.
_LEFT, _RIGHT, _BAR = 0.0, 1.0, 0.03
# Space between the intents of a side, as a share of their whole height.
_GAP = 0.12
_BAR_COLOUR = "#444444"
# Ribbons wide enough to carry their distance as a number.
_LEGIBLE = 0.04


def draw(found: GEVD, ax: Axes | None) -> Figure:
    """Draw the flow as ribbons; see `GEVD.plot`."""
    if ax is None:
        height = 1.6 + 0.7 * max(found.flow.shape)
        figure, ax = plt.subplots(figsize=(6.4, height), layout="constrained")
    else:
        figure = ax.get_figure(root=True) or plt.gcf()
    name = found.distance.upper() if len(found.distance) <= 4 else found.distance
    shading = ScalarMappable(Normalize(0.0, float(found.evd.max()) or 1.0), _colours())
    left, right = (_tops(found.flow.sum(axis=axis)) for axis in (0, 1))
    _ribbons(ax, found, left, right, shading)
    _bars(ax, found.flow.sum(axis=0), left, _LEFT - _BAR, "learned", "right")
    _bars(ax, found.flow.sum(axis=1), right, _RIGHT, "true", "left")
    figure.colorbar(shading, ax=ax, label=f"{name} of the pair", shrink=0.8, pad=0.02)
    ax.set_title(f"GEVD {found.value:.4g}: the cheapest pairing of learned and true intents", fontsize=10)
    ax.set_xlim(_LEFT - 0.35, _RIGHT + 0.3)
    ax.set_ylim(-1.02 - _GAP, 0.06)
    ax.axis("off")
    return figure


def _colours() -> Colormap:
    return plt.get_cmap("YlOrRd")


def _tops(weights: Float) -> Float:
    """Return the upper edge (K,) of every intent of a side, from the top down."""
    gap = _GAP / max(weights.size - 1, 1)
    return np.asarray(-np.concatenate([[0.0], np.cumsum(weights + gap)[:-1]]))


def _ribbons(ax: Axes, found: GEVD, left: Float, right: Float, shading: ScalarMappable) -> None:
    """Draw a band for each pair, stacked at both ends in the order of the other side, so that few cross."""
    at_left, at_right = left.copy(), right.copy()
    for (i, j), width in np.ndenumerate(found.flow):
        if width == 0.0:
            continue
        a, b = float(at_left[j]), float(at_right[i])
        at_left[j] -= width
        at_right[i] -= width
        middle = 0.5 * (_LEFT + _RIGHT)
        upper = [(_LEFT, a), (middle, a), (middle, b), (_RIGHT, b)]
        lower = [(_RIGHT, b - width), (middle, b - width), (middle, a - width), (_LEFT, a - width)]
        codes = [Path.MOVETO, *[Path.CURVE4] * 3, Path.LINETO, *[Path.CURVE4] * 3]
        cost = found.evd[i, j]
        ax.add_patch(
            PathPatch(
                Path([*upper, *lower], codes), facecolor=shading.to_rgba(cost), edgecolor=_BAR_COLOUR, linewidth=0.4
            )
        )
        if width >= _LEGIBLE:
            # Near the left end, where ribbons have not crossed yet.
            ax.text(_LEFT + 0.02, a - width / 2, f"{cost:.3g}", va="center", fontsize=8)


def _bars(ax: Axes, weights: Float, tops: Float, x: float, side: str, align: str) -> None:
    for k, (weight, top) in enumerate(zip(weights, tops, strict=True)):
        ax.add_patch(Rectangle((x, top - weight), _BAR, weight, color=_BAR_COLOUR))
        place = x - 0.015 if align == "right" else x + _BAR + 0.015
        text = f"{side} {k}  ({100 * weight:.3g} %)"
        ax.text(place, top - weight / 2, text, ha=align, va="center", fontsize=9)
