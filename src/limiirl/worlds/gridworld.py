"""Base class of gridworlds: cells, transitions and text output."""

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from limiirl.errors import InvalidParameter
from limiirl.mdp import MDP
from limiirl.worlds.base import IntentWorld

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from limiirl.worlds.plotting import WorldFigure


ACTIONS = ("up", "down", "left", "right")
"""Actions: row - 1, row + 1, column - 1, column + 1."""

_STEPS = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)])

Edges = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]


def grid_edges(shape: tuple[int, int], wind: float, terminal: NDArray[np.bool_], *, wraps: bool = False) -> Edges:
    """Return source, action, target and probability of every transition from a nonterminal cell.

    A move succeeds with probability ``1 - wind``, and otherwise leads to one of the other neighbours, uniformly; a move
    into a wall leaves the agent in its cell. `shape` is (rows, columns), at least (2, 2), or (3, 2) if rows wrap
    around; `terminal` (S,) is indexed by ``row * columns + column``.
    """
    n_rows, n_columns = shape
    src = np.flatnonzero(~terminal)
    rows, columns = np.divmod(src[:, None], n_columns)
    new_rows, new_columns = rows + _STEPS[:, 0], columns + _STEPS[:, 1]
    feasible = (new_columns >= 0) & (new_columns < n_columns)  # (n, 4)
    if not wraps:
        feasible &= (new_rows >= 0) & (new_rows < n_rows)
    targets = np.where(feasible, new_rows % n_rows * n_columns + new_columns, src[:, None])
    # prob[i, a, b]: action a in cell i leads to the target of action b. At least two moves are feasible.
    failure = wind / (feasible.sum(axis=1) - 1.0)
    prob = np.where(feasible[:, :, None] & feasible[:, None, :], failure[:, None, None], 0.0)
    prob[:, np.arange(4), np.arange(4)] = np.where(feasible, 1.0 - wind, 1.0)
    i, act, b = np.nonzero(prob)
    return src[i], act, targets[i, b], prob[i, act, b]


class GridWorld(IntentWorld):
    """World whose states are the cells of a grid, in row-major order."""

    wraps: ClassVar[bool] = False
    """True if the last row is connected to the first."""

    wind: float
    gamma: float

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Number of rows and columns."""

    @property
    @abstractmethod
    def grid(self) -> NDArray[np.int64]:
        """Type of every cell, (rows, columns): an index into `cell_types`."""

    @property
    @abstractmethod
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features."""

    @property
    def cell_types(self) -> tuple[str, ...]:
        """Names of the cell types; by default, the feature names."""
        return self.feature_names

    @property
    @abstractmethod
    def signs(self) -> NDArray[np.str_]:
        """Symbol of every cell in `str(world)`, (rows, columns)."""

    @property
    def n_states(self) -> int:
        """Number S of cells."""
        return self.shape[0] * self.shape[1]

    @property
    def state_names(self) -> tuple[str, ...]:
        """Name of every state: its row and column, such as "(0, 1)"."""
        return tuple(f"({row}, {column})" for row, column in np.ndindex(self.shape))

    def state(self, row: int, column: int) -> int:
        """Return the state of a cell; rows wrap around if `wraps`."""
        n_rows, n_columns = self.shape
        if not 0 <= column < n_columns:
            raise InvalidParameter.of("column", column, f"must lie in 0..{n_columns - 1}")
        if not self.wraps and not 0 <= row < n_rows:
            raise InvalidParameter.of("row", row, f"must lie in 0..{n_rows - 1}")
        return (row % n_rows) * n_columns + column

    def cell(self, state: int) -> tuple[int, int]:
        """Return the row and column of a state."""
        if not 0 <= state < self.n_states:
            raise InvalidParameter.of("state", state, f"must lie in 0..{self.n_states - 1}")
        return divmod(state, self.shape[1])

    def build_mdp(self, features: NDArray[np.float64], terminal: NDArray[np.bool_], p0: NDArray[np.float64]) -> MDP:
        """Return the MDP of the grid with state features (S, d), terminal states (S,) and start distribution (S,)."""
        src, act, dst, prob = grid_edges(self.shape, self.wind, terminal, wraps=self.wraps)
        mdp = MDP.from_edges(src, dst, self.n_states, act, prob, p0, self.gamma, features, None, None, terminal)
        return mdp.replace(feature_names=self.feature_names, state_names=self.state_names)

    def draw(self, rewards: NDArray[np.float64] | None, ax: "Axes | None", *, faded: bool) -> "WorldFigure":
        """Draw the cells; see `plot`."""
        from limiirl.worlds.plotting import draw_grid

        return draw_grid(self, rewards, ax, faded=faded)

    def __str__(self) -> str:
        width = max(len(sign) for sign in self.signs.ravel())
        return "\n".join(" ".join(sign.rjust(width) for sign in row) for row in self.signs)
