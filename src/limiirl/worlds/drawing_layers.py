"""Picture of a layered MDP. Imports matplotlib, so the world imports it only when asked to plot."""

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D

from limiirl.worlds import drawing
from limiirl.worlds.drawing import HUES, Float, Picture

if TYPE_CHECKING:
    from limiirl.worlds.syntheticworld import SyntheticWorld

_DISC = 13.0  # points


def draw_layers(world: "SyntheticWorld", rewards: Float | None, ax: Axes | None, *, faded: bool) -> Picture:
    """Draw the states as discs, a column a layer, by feature or by reward (S,); and the moves as lines between them."""
    mdp, tallest = world.mdp, max(layer.size for layer in world.layers)
    ax = drawing.axes_for(ax, 0.75 * world.horizon + 2.6, 0.55 * tallest + 1.2)
    places = np.empty((world.n_states, 2))
    for x, layer in enumerate(world.layers):
        places[layer, 0] = x
        places[layer, 1] = np.arange(layer.size) + (tallest - layer.size) / 2.0
    # A pair of states may be joined by several actions: the line is as dark as the mean action makes it likely.
    pairs, inverse = np.unique(np.column_stack([mdp.src, mdp.dst]), axis=0, return_inverse=True)
    likely = np.bincount(inverse.ravel(), weights=mdp.prob) / world.n_actions
    moves = LineCollection(list(places[pairs]), colors=drawing.ink(), linewidths=0.8, zorder=1)
    moves.set_alpha(np.clip(0.3 * likely if faded else 0.9 * likely, 0.03, 0.9).tolist())
    ax.add_collection(moves)
    handles: list[Line2D] = []
    disc: dict[str, Any] = {"linestyle": "none", "marker": "o", "markeredgecolor": drawing.DARK}
    if rewards is None:
        hues = [*(HUES[j % len(HUES)] for j in range(world.n_features)), drawing.GOAL]
        names = [*world.feature_names, "end"]
        kinds = np.append(world.kinds, world.n_features)
        scale = drawing.palette(hues, faded=False)
        points = ax.scatter(places[:, 0], places[:, 1], c=kinds, cmap=scale, vmin=-0.5, vmax=len(hues) - 0.5)
        handles = [
            Line2D([], [], color=scale(kind), markersize=8, label=name, **disc) for kind, name in enumerate(names)
        ]
    else:
        points = ax.scatter(places[:, 0], places[:, 1], c=rewards, cmap=drawing.reward_map(faded=False))
        drawing.colour_bar(ax, points)
    # Walks lie between the moves and the discs.
    points.set(sizes=[_DISC**2], edgecolor=drawing.DARK, zorder=3)
    for (x, y), sign, colour in zip(places, world.signs, points.to_rgba(np.asarray(points.get_array())), strict=True):
        ax.text(x, y, sign, ha="center", va="center", fontsize=7, color=drawing.legible_on(colour[:3]), zorder=4)
    ax.set(
        xlim=(-0.5, world.horizon + 0.5),
        ylim=(tallest - 0.5, -0.5),
        xticks=range(world.horizon + 1),
        yticks=[],
        xlabel="step",
        title=f"SyntheticWorld, separation {world.separation:g}",
    )
    return Picture(ax, places, list(handles), jitter=0.1)
