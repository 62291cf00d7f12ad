"""ElementWorld: the paper's gridworld on a cylinder, with one intent for each element.

Paper: section "ElementWorld Benchmark Experiment".
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from limiirl._validation import check_count, check_seed
from limiirl.errors import InvalidParameter
from limiirl.mdp import MDP, RewardEnsemble
from limiirl.worlds.base import check_gamma, check_wind
from limiirl.worlds.gridworld import GridWorld, grid_edges

START, GOAL = 0, 1
"""Cell types of the first and last column; element e of 0..E-1 has type 2 + e. A cell's type is its feature's index."""

_OWN_REWARD, _OTHER_REWARD = -1.0, -10.0


@dataclass(frozen=True)
class ElementWorld(GridWorld):
    """A cylinder of coloured lanes that connect a start column with a terminal goal column.

    There are `n_elements * zone_size` rows, which wrap around, and `height` columns. Each element begins as a lane of
    `zone_size` rows. From column 1 on, each column and all after it roll by an integer uniform on -2..2,
    cumulatively, so that the lanes wind around the cylinder. Column 0 is then the start zone and the last column the
    goal.

    The four moves are `ACTIONS`. A move that stays on the cylinder succeeds with probability ``1 - wind``, and `wind`
    is shared equally by the other feasible neighbours; a move off either end stays put with probability 1. The
    features are one-hot in the cell type. Intent k pays 1 for a step on its own element or the start zone, 10 on any
    other element, and nothing at the goal.

    Parameters
    ----------
    n_elements : int
        E, the number of elements and of intents.
    wind : float
        w in [0, 1], the probability that a move goes astray.
    height : int
        h, the number of columns, start and goal included: at least 3.
    zone_size : int
        Rows an element. The cylinder needs three rows at least, for a cell's neighbours to be distinct.
    gamma : float
        Discount in (0, 1].
    seed : int
        Determines the rolls, and thereby the world.

    Examples
    --------
    >>> world = ElementWorld(seed=2)
    >>> print(world)
    S 3 3 1 1 G
    S 3 1 1 2 G
    S 1 1 2 2 G
    S 1 1 2 2 G
    S 1 2 2 3 G
    S 2 2 3 3 G
    S 2 2 3 3 G
    S 2 3 3 1 G
    S 3 3 1 1 G
    >>> world.mdp.n_states, world.mdp.n_features, world.ensemble.n_intents
    (54, 5, 3)
    """

    wraps: ClassVar[bool] = True

    n_elements: int = 3
    wind: float = 0.1
    height: int = 6
    zone_size: int = 3
    gamma: float = 0.99
    seed: int = 0

    def __post_init__(self) -> None:
        check_count(self.n_elements, "n_elements", remedy="Each element is an intent.")
        check_count(self.height, "height", least=3, remedy="The start and goal columns need a column between them.")
        check_count(self.zone_size, "zone_size", remedy="Each element needs a row.")
        check_seed(self.seed)
        if self.n_rows < 3:
            raise InvalidParameter(
                f"The cylinder must have at least 3 rows; n_elements * zone_size is {self.n_elements} * "
                f"{self.zone_size} = {self.n_rows}. Raise zone_size to {-(-3 // self.n_elements)}.",
                parameter="zone_size",
                value=self.zone_size,
            )
        check_wind(self.wind)
        check_gamma(self.gamma)

    @property
    def n_rows(self) -> int:
        """Number of rows around the cylinder."""
        return self.n_elements * self.zone_size

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows, which wrap around, and of columns."""
        return self.n_rows, self.height

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the E + 2 one-hot features: start, goal, then the elements."""
        return ("start", "goal", *(f"element {e}" for e in range(1, self.n_elements + 1)))

    @property
    def kind_names(self) -> tuple[str, ...]:
        """Names of the kinds of cells, which are the features."""
        return self.feature_names

    @cached_property
    def grid(self) -> NDArray[np.int64]:
        """Type of every cell, shape (n_rows, height): `START`, `GOAL` or 2 + element. Read-only."""
        rng = np.random.default_rng(self.seed)
        rolls = np.concatenate([[0], np.cumsum(rng.integers(-2, 3, size=self.height - 1))])
        lanes = 2 + np.arange(self.n_rows) // self.zone_size
        # Cell (row, column) shows what a roll by `rolls[column]` brings there.
        grid: NDArray[np.int64] = lanes[(np.arange(self.n_rows)[:, None] - rolls) % self.n_rows]
        grid[:, 0] = START
        grid[:, -1] = GOAL
        grid.flags.writeable = False
        return grid

    @property
    def signs(self) -> NDArray[np.str_]:
        """What the text shows of every cell: S, G, or the number of its element, counted from 1."""
        return np.array(["S", "G", *(str(e) for e in range(1, self.n_elements + 1))])[self.grid]

    @cached_property
    def mdp(self) -> MDP:
        """The world as an MDP: S = n_rows * height states, E + 2 state features, the goal column terminal."""
        kind = self.grid.ravel()
        src, act, dst, prob = grid_edges(self.shape, self.wind, kind == GOAL, wraps=True)
        p0 = (kind == START) / self.n_rows
        return MDP.from_edges(
            src,
            dst,
            n_states=self.n_states,
            action=act,
            prob=prob,
            p0=p0,
            gamma=self.gamma,
            state_features=np.eye(self.n_elements + 2)[kind],
            terminal=kind == GOAL,
            feature_names=self.feature_names,
            state_names=self.state_names,
        )

    @cached_property
    def ensemble(self) -> RewardEnsemble:
        """The truth: one intent an element, with equal weights."""
        thetas = np.full((self.n_elements, self.n_elements + 2), _OTHER_REWARD)
        thetas[:, START] = _OWN_REWARD
        thetas[:, GOAL] = 0.0
        thetas[:, 2:][np.diag_indices(self.n_elements)] = _OWN_REWARD
        return RewardEnsemble(np.full(self.n_elements, 1.0 / self.n_elements), thetas)
