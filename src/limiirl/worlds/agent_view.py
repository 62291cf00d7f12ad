"""A world with an agent in it, as text and as a picture."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from limiirl.worlds.base import IntentWorld

if TYPE_CHECKING:
    from matplotlib.lines import Line2D


def text_with_agent(world: Any, state: int) -> str:
    """Return the world's text with brackets around what stands for the agent's state.

    Below the text of a world that is neither a grid nor layers, a line names the state.

    Examples
    --------
    >>> from limiirl.worlds import ElementWorld
    >>> print(text_with_agent(ElementWorld(n_elements=1, height=4), 6))
     S 1 1 G
     S 1[1]G
     S 1 1 G
    """
    place = place_of(world, state)
    if place is None:
        return f"{world}\nagent in state {state}"
    row, column = place
    lines = [f" {line} " for line in str(world).splitlines()]
    # Columns have one width, are separated by a blank and aligned to the right, and the first row has them all.
    n_columns = world.shape[1] if hasattr(world, "cell") else len(world.layers)
    end = (column + 1) * ((len(lines[0]) - 1) // n_columns)
    start = lines[row].rindex(" ", 0, end) + 1
    lines[row] = f"{lines[row][: start - 1]}[{lines[row][start:end]}]{lines[row][end + 1 :]}"
    return "\n".join(line.rstrip() for line in lines)


def place_of(world: Any, state: int) -> tuple[int, int] | None:
    """Return row and column of a state: its cell in a grid, or its rank in its layer and the layer; else None.

    Examples
    --------
    >>> from limiirl.worlds import ElementWorld, SyntheticWorld
    >>> place_of(ElementWorld(), 13), place_of(SyntheticWorld(n_states=7, horizon=2), 4)
    ((2, 1), (1, 1))
    """
    if hasattr(world, "cell"):
        row, column = world.cell(state)
        return int(row), int(column)
    for column, layer in enumerate(getattr(world, "layers", ())):
        if state in layer:
            return int(np.searchsorted(layer, state)), column
    return None


class AgentPicture:
    """A picture of a world in which a mark moves.

    It is drawn by matplotlib off screen: no window opens, and pyplot knows nothing of the figure.

    Parameters
    ----------
    world : IntentWorld, or an object with ``plot(ax=...)``
        The mark is where a world of ours draws the state. For others, whose plot does not tell, the title names it.

    Examples
    --------
    >>> from limiirl.worlds import ElementWorld
    >>> frame = AgentPicture(ElementWorld()).frame(0)
    >>> frame.shape, frame.dtype
    ((600, 600, 3), dtype('uint8'))
    """

    def __init__(self, world: Any) -> None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=(6.0, 6.0), dpi=100, layout="constrained")
        self._canvas: Any = FigureCanvasAgg(figure)
        self._ax = figure.add_subplot()
        self._places: NDArray[np.float64] | None = None
        if isinstance(world, IntentWorld):
            self._places = world.draw(None, self._ax, faded=False).places
        else:
            world.plot(ax=self._ax)
            self._ax.set_title("agent in state 0")  # so that the layout has room for it
        # The layout is found once; found anew for each frame, it drifts by fractions of a pixel.
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        self._mark = self._draw_mark()

    def _draw_mark(self) -> "Line2D | None":
        """Draw a ring that fits between neighbouring states."""
        from matplotlib.patheffects import withStroke

        if self._places is None:
            return None
        pixels = self._ax.transData.transform(self._places)
        nearest = np.asarray(cKDTree(pixels).query(pixels, k=2)[0])[:, 1]
        points = 72.0 / self._canvas.figure.dpi * min(nearest.min(), 60.0)
        # A white rim makes the ring visible on dark cells.
        rim = withStroke(linewidth=0.18 * points, foreground="white")
        style = {"markersize": 0.7 * points, "markeredgewidth": 0.1 * points, "path_effects": [rim], "zorder": 10}
        (mark,) = self._ax.plot([], [], "o", color="none", markeredgecolor="black", scalex=False, scaley=False, **style)
        return mark

    def frame(self, state: int) -> NDArray[np.uint8]:
        """Return the picture (600, 600, 3) with the agent in a state."""
        if self._mark is None or self._places is None:
            self._ax.set_title(f"agent in state {state}")
        else:
            x, y = self._places[state]
            self._mark.set_data([x], [y])
        self._canvas.draw()
        return np.array(self._canvas.buffer_rgba())[..., :3].copy()
