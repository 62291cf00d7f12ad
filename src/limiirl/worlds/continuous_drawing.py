"""Pictures of the continuous PuddleWorld. Imports matplotlib, so the world imports it only when asked to plot."""

from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Rectangle
from numpy.typing import NDArray

from limiirl.demos.agents import Agents
from limiirl.errors import InvalidParameter
from limiirl.worlds import drawing
from limiirl.worlds.continuous_dynamics import GOAL, PUDDLE, RADIUS, START, traced
from limiirl.worlds.gaussian_policy import SIZE

_DRY, _WET = "#f2efe6", "#a9d3ee"
# With more walks than this, lines lie so thick that the first ones say it all.
_WALKS = 60


def draw_puddle(ax: Axes | None, agents: Agents | None) -> Axes:
    """Draw the world and walks over it; see `ContinuousPuddleWorld.plot`."""
    if agents is not None:
        _check(agents)
    ax = drawing.axes_for(ax, 6.4, 4.4)
    puddle, wide = PUDDLE[0], PUDDLE[1] - PUDDLE[0]
    ground = Rectangle((0.0, 0.0), SIZE, SIZE, facecolor=_DRY, edgecolor="none", zorder=0)
    ax.add_patch(ground)
    wet = ax.add_patch(Rectangle((puddle, puddle), wide, wide, facecolor=_WET, edgecolor="none", label="puddle"))
    goal = ax.add_patch(Circle(GOAL, RADIUS, facecolor=drawing.HUES[2], edgecolor="none", alpha=0.55, label="goal"))
    goal.set_clip_path(ground)
    handles: list[Artist] = [wet, goal]
    if agents is not None:
        handles += _draw_walks(ax, agents)
    (start,) = ax.plot(*START, "o", color=drawing.DARK, markersize=5, clip_on=False, zorder=5, label="start")
    handles.insert(0, start)
    ax.set(xlim=(0.0, SIZE), ylim=(0.0, SIZE), aspect="equal")
    ax.set_xticks([0, 2, 7, 9])
    ax.set_yticks([0, 2, 4.5, 7, 9], ["0", "2", "4.5", "7", "9"])
    ax.set(xlabel="x", ylabel="y", title="ContinuousPuddleWorld")
    ax.legend(handles=handles, frameon=False, labelcolor=drawing.ink(), loc="center left", bbox_to_anchor=(1.02, 0.5))
    return ax


def _check(agents: Agents) -> None:
    if not isinstance(agents, Agents):
        raise InvalidParameter(f"agents must be Agents; got {type(agents).__name__}. Draw them with world.agents(...).")
    if agents.discrete or agents[0].actions.shape[2] != 2:
        raise InvalidParameter(
            "Agents of this world step in x and in y; these have other actions. Draw them with world.agents(...)."
        )


def _draw_walks(ax: Axes, agents: Agents) -> list[Artist]:
    """Draw every agent's walks in a colour of its own, and return the legend."""
    handles: list[Artist] = []
    for i, agent in enumerate(agents):
        colour = drawing.INTENTS[i % len(drawing.INTENTS)]
        paths = traced(agent.actions[:_WALKS], agent.live[:_WALKS])
        # After its arrival a walk stands still, and its line would end in a blot.
        pieces = [path[: steps + 1] for path, steps in zip(paths, agent.live.sum(axis=1), strict=False)]
        alpha = float(np.clip(12.0 / len(pieces), 0.2, 0.9))
        lines = LineCollection(pieces, colors=colour, linewidths=1.2, alpha=alpha, capstyle="round", joinstyle="round")
        ax.add_collection(lines, autolim=False)
        # A step over a corner of the puddle does not touch it: what counts is where steps end.
        ends = np.concatenate(pieces)
        ax.plot(ends[:, 0], ends[:, 1], "o", color=colour, markersize=2, markeredgewidth=0, alpha=min(1.0, 2 * alpha))
        name = str(agents.names[i]) if agents.labels is None else f"{agents.names[i]}, intent {agents.labels[i]}"
        handles.append(Line2D([], [], color=colour, linewidth=2.0, label=name))
    return handles


class WalkerPicture:
    """A picture of the world in which a mark moves, drawn off screen.

    Examples
    --------
    >>> WalkerPicture().frame(np.array(START)).shape
    (480, 600, 3)
    """

    def __init__(self) -> None:
        figure = Figure(figsize=(6.0, 4.8), dpi=100, layout="constrained")
        self._canvas: Any = FigureCanvasAgg(figure)
        ax = draw_puddle(figure.add_subplot(), None)
        # The layout is found once; found anew for each frame, it drifts by fractions of a pixel.
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        (self._mark,) = ax.plot(
            [], [], "o", color="white", markeredgecolor="black", markersize=9, clip_on=False, zorder=6
        )

    def frame(self, position: NDArray[np.float64]) -> NDArray[np.uint8]:
        """Return the picture (height, width, 3) with the agent at a position (2,)."""
        self._mark.set_data([position[0]], [position[1]])
        self._canvas.draw()
        return np.array(self._canvas.buffer_rgba())[..., :3].copy()
