"""ElementWorld: the gridworld of the LiMIIRL paper (section "ElementWorld Benchmark Experiment")."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from limiirl._validation import check_count, check_fraction, check_seed
from limiirl.errors import InvalidParameter
from limiirl.mdp import MDP, RewardEnsemble
from limiirl.worlds.base import check_gamma
from limiirl.worlds.gridworld import GridWorld

START, GOAL = 0, 1
"""Cell types of the first and last column; element e has type 2 + e. Types are also the indices of the features."""

_OWN_REWARD, _OTHER_REWARD = -1.0, -10.0

# Minimum memory per cell, for its row of features and its edges.
_CELL_BYTES = 100.0


@dataclass(frozen=True)
class ElementWorld(GridWorld):
    """A cylinder of coloured lanes that connect a start column with a terminal goal column.

    There are `n_elements * zone_size` rows, which wrap around, and `height` columns. Each element is a lane of
    `zone_size` rows; from column 1 on, every column is shifted relative to the previous one by an integer uniform on
    -2..2. Column 0 is the start zone, and the last column is the goal.

    The actions are `ACTIONS`. A feasible move succeeds with probability ``1 - wind``; otherwise the agent moves to one
    of the other feasible neighbours, uniformly. A move beyond the first or last column leaves the agent in its
    cell. The features are one-hot in the cell type. Intent k has reward -1 on its own element and in the start zone,
    -10 on other elements, and 0 in the goal.

    Parameters
    ----------
    n_elements : int
        Number E of elements, which is also the number of intents.
    wind : float
        Probability in [0, 1] that a move fails.
    height : int
        Number of columns, including start and goal; at least 3.
    zone_size : int
        Rows per element; there must be at least three rows in total.
    gamma : float
        Discount in (0, 1].
    seed : int
        Seed of the shifts.

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
        check_count(self.n_elements, "n_elements", bytes_each=_CELL_BYTES * 3)
        check_count(self.height, "height", least=3, bytes_each=_CELL_BYTES * self.n_elements)
        check_count(self.zone_size, "zone_size")
        check_seed(self.seed)
        if self.n_rows < 3:
            rule = f"must be at least {-(-3 // self.n_elements)}, so that n_elements * zone_size is at least 3"
            raise InvalidParameter.of("zone_size", self.zone_size, rule)
        check_fraction(self.wind, "wind")
        check_gamma(self.gamma)

    @property
    def n_rows(self) -> int:
        """Number of rows around the cylinder."""
        return self.n_elements * self.zone_size

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and columns."""
        return self.n_rows, self.height

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the E + 2 one-hot features: start, goal, then the elements."""
        return ("start", "goal", *(f"element {e}" for e in range(1, self.n_elements + 1)))

    @cached_property
    def grid(self) -> NDArray[np.int64]:
        """Type of every cell, shape (n_rows, height): `START`, `GOAL` or 2 + element. Read-only."""
        rng = np.random.default_rng(self.seed)
        rolls = np.concatenate([[0], np.cumsum(rng.integers(-2, 3, size=self.height - 1))])
        lanes = 2 + np.arange(self.n_rows) // self.zone_size
        grid: NDArray[np.int64] = lanes[(np.arange(self.n_rows)[:, None] - rolls) % self.n_rows]
        grid[:, 0] = START
        grid[:, -1] = GOAL
        grid.flags.writeable = False
        return grid

    @property
    def signs(self) -> NDArray[np.str_]:
        """Symbol of every cell in `str(world)`: S, G, or the number of its element, from 1."""
        return np.array(["S", "G", *(str(e) for e in range(1, self.n_elements + 1))])[self.grid]

    @cached_property
    def mdp(self) -> MDP:
        """The world as an MDP: S = n_rows * height states, E + 2 state features, the goal column terminal."""
        kind = self.grid.ravel()
        return self.build_mdp(np.eye(self.n_elements + 2)[kind], kind == GOAL, (kind == START) / self.n_rows)

    @cached_property
    def ensemble(self) -> RewardEnsemble:
        """True rewards: one intent per element, with equal weights."""
        thetas = np.full((self.n_elements, self.n_elements + 2), _OTHER_REWARD)
        thetas[:, START] = _OWN_REWARD
        thetas[:, GOAL] = 0.0
        thetas[:, 2:][np.diag_indices(self.n_elements)] = _OWN_REWARD
        return RewardEnsemble(np.full(self.n_elements, 1.0 / self.n_elements), thetas)
