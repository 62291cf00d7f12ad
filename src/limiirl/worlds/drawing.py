"""Pictures of the worlds. Importing this module imports matplotlib, so the worlds do it only when asked to plot."""

from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import ArrayLike, NDArray

from limiirl.worlds.streets import ROAD_CLASSES

if TYPE_CHECKING:
    from limiirl.worlds.elementworld import ElementWorld
    from limiirl.worlds.roadgrid import RoadGrid

# Okabe and Ito's palette, distinguishable with colour blindness; with more elements than hues they repeat.
_START, _GOAL = "#f2efe6", "#3b3b3b"
_HUES = ("#e69f00", "#56b4e9", "#009e73", "#cc79a7", "#d55e00", "#0072b2", "#f0e442")
_ROAD_COLOURS = ("#c8102e", "#e8862e", "#5b7fa6", "#a9b1ba")
_ROAD_WIDTHS = (2.4, 1.5, 1.0, 0.6)
_TEXT = "#333333"


def draw_elementworld(world: "ElementWorld", theta: ArrayLike | None, ax: Axes | None) -> Axes:
    """Draw the unrolled cylinder; see `ElementWorld.plot`."""
    if ax is None:
        _, ax = plt.subplots(figsize=(0.62 * world.height + 2.2, 0.5 * world.n_rows + 1.2), layout="constrained")
    if theta is None:
        colours = [_START, _GOAL, *(_HUES[e % len(_HUES)] for e in range(world.n_elements))]
        shown: NDArray[Any] = world.grid
        mesh = ax.pcolormesh(shown, cmap=ListedColormap(colours), vmin=-0.5, vmax=len(colours) - 0.5)
        patches = [Patch(facecolor=c, edgecolor="#999999") for c in colours]
        ax.legend(patches, world.feature_names, loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False)
    else:
        shown = world.mdp.rewards(np.asarray(theta, dtype=np.float64))[0][:, 0].reshape(world.grid.shape)
        mesh = ax.pcolormesh(shown, cmap="viridis")
        ax.figure.colorbar(mesh, ax=ax, label="reward", shrink=0.8)
    mesh.set(edgecolor="white", linewidth=1.5)
    for (row, column), kind in np.ndenumerate(world.grid):
        sign = ("S", "G")[kind] if kind < 2 else str(kind - 1)
        level = np.dot(mesh.to_rgba(shown[row, column])[:3], (0.299, 0.587, 0.114))
        ax.text(
            column + 0.5,
            row + 0.5,
            sign,
            ha="center",
            va="center",
            fontsize=9,
            color="white" if level < 0.45 else _TEXT,
        )
    ax.set(
        aspect="equal",
        xticks=np.arange(world.height) + 0.5,
        xticklabels=range(world.height),
        yticks=np.arange(world.n_rows) + 0.5,
        yticklabels=range(world.n_rows),
        xlabel="column",
        ylabel="row (wraps around)",
        title=f"ElementWorld, wind {world.wind:g}",
    )
    ax.invert_yaxis()  # row 0 on top, as in str(world)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return ax


def draw_roadgrid(town: "RoadGrid", ax: Axes | None) -> Axes:
    """Draw the streets by road class; see `RoadGrid.plot`."""
    if ax is None:
        _, ax = plt.subplots(figsize=(8, 8), layout="constrained")
    once = town.one_way | (town.tail < town.head)  # both directions of a street lie on each other
    lines = np.stack([town.start_xy, town.end_xy], axis=1)
    extent = float(np.ptp(town.node_xy, axis=0).max())
    # Line widths are in points: thin them as the town outgrows the page.
    scale = min(1.0, max(0.4, 3.0 / extent))
    for k in reversed(range(len(ROAD_CLASSES))):
        chosen = once & (town.road_class == k)
        style = {"colors": _ROAD_COLOURS[k], "linewidths": scale * _ROAD_WIDTHS[k], "capstyle": "round"}
        ax.add_collection(LineCollection(list(lines[chosen]), rasterized=True, zorder=5 - k, **style))
    handles = [Line2D([], [], color=c, linewidth=w + 0.6) for c, w in zip(_ROAD_COLOURS, _ROAD_WIDTHS, strict=True)]
    ax.legend(handles, ROAD_CLASSES, loc="upper center", bbox_to_anchor=(0.5, -0.07), ncols=len(handles), frameon=False)
    ax.set(aspect="equal", xlabel="km east of the centre", ylabel="km north of the centre")
    ax.set_title(f"RoadGrid: {town.n_states:,} directed segments, {town.n_edges:,} turns")
    ax.autoscale_view()
    ax.spines[["top", "right"]].set_visible(False)
    return ax
