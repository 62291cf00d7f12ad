"""Pictures of worlds of cells. Imports matplotlib, so the worlds import it only when asked to plot."""

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from limiirl.worlds import drawing
from limiirl.worlds.drawing import HUES, Float, Picture

if TYPE_CHECKING:
    from limiirl.worlds.grid import GridWorld
    from limiirl.worlds.objectworld import ObjectWorld

# Kinds of cells that worlds share; all others take the hues in turn.
_KINDS = {
    "start": drawing.START,
    "goal": drawing.GOAL,
    "dry": "#eee3c8",
    "puddle": "#7fb7dd",
    "field": "#e4ecd6",
}
_EDGE = "#999999"


def draw_grid(world: "GridWorld", rewards: Float | None, ax: Axes | None, *, faded: bool) -> Picture:
    """Draw the cells by kind, or by reward (S,) where it is given."""
    n_rows, n_columns = world.shape
    ax = drawing.axes_for(ax, 0.62 * n_columns + 2.2, 0.5 * n_rows + 1.2)
    handles: list[Patch] = []
    if rewards is None:
        spare = iter(range(len(world.kind_names)))
        colours = [_KINDS.get(name) or HUES[next(spare) % len(HUES)] for name in world.kind_names]
        scale = drawing.palette(colours, faded=faded)
        mesh = ax.pcolormesh(world.grid, cmap=scale, vmin=-0.5, vmax=len(colours) - 0.5)
        handles = [
            Patch(facecolor=scale(kind), edgecolor=_EDGE, label=name) for kind, name in enumerate(world.kind_names)
        ]
    else:
        mesh = ax.pcolormesh(rewards.reshape(world.shape), cmap=drawing.reward_map(faded=faded))
        drawing.colour_bar(ax, mesh)
    mesh.set(edgecolor="white", linewidth=1.5)
    colours_of_cells = mesh.to_rgba(np.asarray(mesh.get_array()).reshape(world.shape))
    for (row, column), sign in np.ndenumerate(world.signs):
        style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 9, "alpha": 0.45 if faded else 1.0}
        colour = drawing.legible_on(colours_of_cells[row, column, :3])
        ax.text(column + 0.5, row + 0.5, sign, color=colour, **style)
    ax.set(
        aspect="equal",
        xlim=(0, n_columns),
        ylim=(n_rows, 0),  # row 0 on top, as in str(world)
        xticks=np.arange(n_columns) + 0.5,
        xticklabels=range(n_columns),
        yticks=np.arange(n_rows) + 0.5,
        yticklabels=range(n_rows),
        xlabel="column",
        ylabel="row (wraps around)" if world.wraps else "row",
        title=f"{type(world).__name__}, wind {world.wind:g}",
    )
    rows, columns = np.divmod(np.arange(world.n_states), n_columns)
    places = np.column_stack([columns, rows]) + 0.5
    return Picture(ax, places, list(handles), period=n_rows if world.wraps else None)


def draw_objects(world: "ObjectWorld", rewards: Float | None, ax: Axes | None, *, faded: bool) -> Picture:
    """Draw the cells, and every object as a disc of its outer colour with one of its inner colour on it."""
    picture = draw_grid(world, rewards, ax, faded=faded)
    for text in list(picture.ax.texts):
        text.remove()  # the discs say it
    things = world.objects
    hues = [HUES[c % len(HUES)] for c in range(world.n_colours)]
    style: dict[str, Any] = {"linestyle": "none", "marker": "o", "markeredgecolor": drawing.DARK}
    for colour, size in ((things.outer, 15.0), (things.inner, 6.5)):
        for c, hue in enumerate(hues):
            x, y = things.column[colour == c] + 0.5, things.row[colour == c] + 0.5
            picture.ax.plot(x, y, color=hue, markersize=size, **style)
    discs = [
        Line2D([], [], color=hue, markersize=9, label=f"colour {name}", **style)
        for name, hue in zip(world.colour_names, hues, strict=True)
    ]
    return picture._replace(handles=[*picture.handles, *discs])
