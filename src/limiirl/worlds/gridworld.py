"""Worlds of cells: their numbering, their moves and their text."""

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from limiirl.errors import InvalidParameter
from limiirl.worlds.base import IntentWorld

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from limiirl.worlds.plotting import WorldFigure


ACTIONS = ("up", "down", "left", "right")
"""Row - 1, row + 1, column - 1, column + 1."""

_STEPS = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)])

Edges = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]


def grid_edges(shape: tuple[int, int], wind: float, terminal: NDArray[np.bool_], *, wraps: bool = False) -> Edges:
    """Return source, action, target and probability of every possible transition out of a non-terminal cell.

    A move to a cell succeeds with probability ``1 - wind``, and `wind` is shared equally by the other neighbours; a
    move against a wall stays put with probability 1.

    Parameters
    ----------
    shape : (rows, columns)
        Each at least 2, so that every cell has two neighbours.
    wind : float
        In [0, 1].
    terminal : (S,) bool
        By state, ``row * columns + column``.
    wraps : bool
        Whether the rows close to a cylinder, of at least 3 rows.

    Examples
    --------
    >>> src, act, dst, prob = grid_edges((2, 2), 0.25, np.array([False, True, True, True]))
    >>> for edge in zip(src, act, dst, prob): print(*edge)
    0 0 0 1.0
    0 1 2 0.75
    0 1 1 0.25
    0 2 0 1.0
    0 3 2 0.25
    0 3 1 0.75
    """
    n_rows, n_columns = shape
    src = np.flatnonzero(~terminal)
    rows, columns = np.divmod(src[:, None], n_columns)
    new_rows, new_columns = rows + _STEPS[:, 0], columns + _STEPS[:, 1]
    feasible = (new_columns >= 0) & (new_columns < n_columns)  # (n, 4)
    if not wraps:
        feasible &= (new_rows >= 0) & (new_rows < n_rows)
    targets = np.where(feasible, new_rows % n_rows * n_columns + new_columns, src[:, None])
    # prob[i, a, b]: action a in cell i moves to the target of b. Two moves at least are always feasible.
    astray = wind / (feasible.sum(axis=1) - 1.0)
    prob = np.where(feasible[:, :, None] & feasible[:, None, :], astray[:, None, None], 0.0)
    prob[:, np.arange(4), np.arange(4)] = np.where(feasible, 1.0 - wind, 1.0)
    i, act, b = np.nonzero(prob)
    return src[i], act, targets[i, b], prob[i, act, b]


class GridWorld(IntentWorld):
    """A world whose states are the cells of a grid, row by row. Subclasses say what is in them."""

    wraps: ClassVar[bool] = False
    """Whether the rows close to a cylinder."""

    wind: float

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns."""

    @property
    @abstractmethod
    def grid(self) -> NDArray[np.int64]:
        """Kind of every cell, by row and column: an index into `kind_names`."""

    @property
    @abstractmethod
    def kind_names(self) -> tuple[str, ...]:
        """Names of the kinds of cells."""

    @property
    @abstractmethod
    def signs(self) -> NDArray[np.str_]:
        """What the text shows of every cell, by row and column."""

    @property
    def n_states(self) -> int:
        """S, the number of cells."""
        return self.shape[0] * self.shape[1]

    @property
    def state_names(self) -> tuple[str, ...]:
        """Row and column of every state, as text."""
        return tuple(f"({row}, {column})" for row, column in np.ndindex(self.shape))

    def state(self, row: int, column: int) -> int:
        """Return the state of a cell; rows wrap around where the world does.

        >>> from limiirl.worlds import ElementWorld
        >>> ElementWorld().state(-1, 0) == ElementWorld().state(8, 0)
        True
        """
        n_rows, n_columns = self.shape
        if not 0 <= column < n_columns:
            hint = "Only rows wrap around." if self.wraps else "Count columns from the left."
            raise InvalidParameter(
                f"column must lie in 0..{n_columns - 1}; got {column}. {hint}", parameter="column", value=column
            )
        if not self.wraps and not 0 <= row < n_rows:
            raise InvalidParameter(
                f"row must lie in 0..{n_rows - 1}; got {row}. Count rows from the top.", parameter="row", value=row
            )
        return (row % n_rows) * n_columns + column

    def cell(self, state: int) -> tuple[int, int]:
        """Return row and column of a state.

        >>> from limiirl.worlds import ElementWorld
        >>> ElementWorld().cell(13)
        (2, 1)
        """
        if not 0 <= state < self.n_states:
            raise InvalidParameter(
                f"state must lie in 0..{self.n_states - 1}; got {state}. There is one per cell.",
                parameter="state",
                value=state,
            )
        return divmod(state, self.shape[1])

    def draw(self, rewards: NDArray[np.float64] | None, ax: "Axes | None", *, faded: bool) -> "WorldFigure":
        """Draw the cells; see `plot`."""
        from limiirl.worlds.plotting import draw_grid

        return draw_grid(self, rewards, ax, faded=faded)

    def __str__(self) -> str:
        width = max(len(sign) for sign in self.signs.ravel())
        return "\n".join(" ".join(sign.rjust(width) for sign in row) for row in self.signs)
