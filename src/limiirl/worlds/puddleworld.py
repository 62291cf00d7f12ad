"""PuddleWorld: a gridworld with a puddle in front of the goal and two intents (Babes-Vroman et al. 2011)."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from limiirl._validation import check_count, check_fraction, check_seed
from limiirl.mdp import MDP, RewardEnsemble
from limiirl.worlds.base import check_gamma
from limiirl.worlds.gridworld import GridWorld

DRY, PUDDLE, GOAL = 0, 1, 2
"""Cell types, which are also the indices of the features."""

# Rewards of dry cells, the puddle and the goal.
_AVOIDS = (-1.0, -10.0, 0.0)
_PREFERS = (-2.0, -1.0, 0.0)


@dataclass(frozen=True)
class PuddleWorld(GridWorld):
    """A walled grid with a puddle between the start column and a terminal goal.

    The puddle is a rectangle over all columns except the first and the last and over half of the rows (rounded up);
    the first and the last row are dry. The goal is a cell of the last column behind the puddle. With seed 0 both are
    centred, as in the literature; other seeds draw the rows of the puddle and of the goal at random.

    Actions and wind are as in `ElementWorld`, with walls on all sides. The features are one-hot: dry, puddle, goal.
    Both intents go to the goal. Intent 0 avoids the puddle (reward -1 on dry cells, -10 in the puddle); intent 1
    prefers it slightly (-2 on dry cells, -1 in the puddle). From every start, the two intents have different optimal
    paths.

    Parameters
    ----------
    n_rows, n_columns : int
        Numbers of rows and columns, at least 3 each.
    wind : float
        Probability in [0, 1] that a move fails.
    gamma : float
        Discount in (0, 1].
    seed : int
        Seed of the positions of the puddle and the goal; 0 centres them.

    References
    ----------
    Babes-Vroman, Marivate, Subramanian, Littman: Apprenticeship learning about multiple intentions, ICML 2011.

    Examples
    --------
    >>> world = PuddleWorld()
    >>> print(world)
    S . . . .
    S ~ ~ ~ .
    S ~ ~ ~ G
    S ~ ~ ~ .
    S . . . .
    >>> demos, labels = world.sample(100, seed=1)
    >>> in_puddle = demos.features(world.mdp)[:, 1]
    >>> print(in_puddle[labels == 0].mean().round(1), in_puddle[labels == 1].mean().round(1))
    0.2 4.2
    """

    n_rows: int = 5
    n_columns: int = 5
    wind: float = 0.1
    gamma: float = 0.99
    seed: int = 0

    def __post_init__(self) -> None:
        check_count(self.n_rows, "n_rows", least=3)
        check_count(self.n_columns, "n_columns", least=3)
        check_fraction(self.wind, "wind")
        check_gamma(self.gamma)
        check_seed(self.seed)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and columns."""
        return self.n_rows, self.n_columns

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the one-hot features."""
        return ("dry", "puddle", "goal")

    @cached_property
    def grid(self) -> NDArray[np.int64]:
        """Type of every cell, shape (n_rows, n_columns): `DRY`, `PUDDLE` or `GOAL`. Read-only."""
        depth = min((self.n_rows + 1) // 2, self.n_rows - 2)
        top, goal = (self.n_rows - depth) // 2, depth // 2
        if self.seed:
            rng = np.random.default_rng(self.seed)
            top, goal = int(rng.integers(1, self.n_rows - depth)), int(rng.integers(depth))
        grid = np.full(self.shape, DRY, dtype=np.int64)
        grid[top : top + depth, 1:-1] = PUDDLE
        grid[top + goal, -1] = GOAL
        grid.flags.writeable = False
        return grid

    @property
    def signs(self) -> NDArray[np.str_]:
        """Symbol of every cell in `str(world)`: S start, ~ puddle, G goal, . dry."""
        signs = np.array([".", "~", "G"])[self.grid]
        signs[:, 0] = "S"
        return signs

    @cached_property
    def mdp(self) -> MDP:
        """The world as an MDP: one state per cell, 3 state features, the goal terminal."""
        kind = self.grid.ravel()
        p0 = np.zeros(self.shape)
        p0[:, 0] = 1.0 / self.n_rows
        return self.build_mdp(np.eye(3)[kind], kind == GOAL, p0.ravel())

    @cached_property
    def ensemble(self) -> RewardEnsemble:
        """True rewards: intent 0 avoids the puddle, intent 1 prefers it; equal weights."""
        return RewardEnsemble([0.5, 0.5], [_AVOIDS, _PREFERS])
