"""PuddleWorld: a gridworld with a puddle before the goal and two intents, as in the papers before LiMIIRL."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from limiirl._validation import check_count, check_seed
from limiirl.mdp import MDP, RewardEnsemble
from limiirl.worlds.base import check_gamma, check_wind
from limiirl.worlds.gridworld import GridWorld, grid_edges

DRY, PUDDLE, GOAL = 0, 1, 2
"""Kinds of cells. A cell's kind is its feature's index."""

# Rewards of a visit to a dry cell, the puddle, and the goal.
_AVOIDS = (-1.0, -10.0, 0.0)
_WADES = (-2.0, -1.0, 0.0)


@dataclass(frozen=True)
class PuddleWorld(GridWorld):
    """A walled grid with a puddle between the first column, where all walks start, and a terminal goal.

    The puddle is a rectangle that fills all columns but the first and the last, and half of the rows, rounded up; a
    row above and a row below it stay dry. The goal is a cell of the last column, right behind the puddle. With seed 0
    both are in the middle, as in the figures of the literature; any other seed shifts the puddle up or down as far as
    there is room, of which five rows have none, and the goal along the puddle.

    The moves and the wind are those of `ElementWorld`, but for walls on all sides. The features are one-hot: dry,
    puddle, goal. Both intents go to the goal. Intent 0 avoids the puddle: a step costs 1, in the puddle 10, so that it
    walks around, whatever the detour. Intent 1 wades: a step costs 2, in the puddle 1. An expert who is merely
    indifferent has many equally short ways, some of which happen to be dry and would pass for the other intent; with
    a small preference, ways through the puddle are best from every start, and the two intents are told apart from
    all of them.

    Parameters
    ----------
    n_rows : int
        At least 3: the first and the last stay dry.
    n_columns : int
        At least 3: start, puddle, goal.
    wind : float
        In [0, 1], the probability that a move goes astray.
    gamma : float
        Discount in (0, 1].
    seed : int
        Places the puddle and the goal; 0 puts them in the middle.

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
        check_count(self.n_rows, "n_rows", least=3, remedy="The puddle lies between two dry rows.")
        check_count(
            self.n_columns, "n_columns", least=3, remedy="The start and goal columns need the puddle between them."
        )
        check_wind(self.wind)
        check_gamma(self.gamma)
        check_seed(self.seed)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns."""
        return self.n_rows, self.n_columns

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the one-hot features."""
        return ("dry", "puddle", "goal")

    @property
    def kind_names(self) -> tuple[str, ...]:
        """Names of the kinds of cells, which are the features."""
        return self.feature_names

    @cached_property
    def grid(self) -> NDArray[np.int64]:
        """Kind of every cell, shape (n_rows, n_columns): `DRY`, `PUDDLE` or `GOAL`. Read-only."""
        depth = min((self.n_rows + 1) // 2, self.n_rows - 2)
        top, behind = (self.n_rows - depth) // 2, depth // 2
        if self.seed:
            rng = np.random.default_rng(self.seed)
            top, behind = int(rng.integers(1, self.n_rows - depth)), int(rng.integers(depth))
        grid = np.full(self.shape, DRY, dtype=np.int64)
        grid[top : top + depth, 1:-1] = PUDDLE
        grid[top + behind, -1] = GOAL
        grid.flags.writeable = False
        return grid

    @property
    def signs(self) -> NDArray[np.str_]:
        """What the text shows of every cell: S where walks start, ~ the puddle, G the goal, else a dot."""
        signs = np.array([".", "~", "G"])[self.grid]
        signs[:, 0] = "S"
        return signs

    @cached_property
    def mdp(self) -> MDP:
        """The world as an MDP: one state per cell, 3 state features, the goal terminal."""
        kind = self.grid.ravel()
        src, act, dst, prob = grid_edges(self.shape, self.wind, kind == GOAL)
        p0 = np.zeros(self.shape)
        p0[:, 0] = 1.0 / self.n_rows
        return MDP.from_edges(
            src,
            dst,
            n_states=self.n_states,
            action=act,
            prob=prob,
            p0=p0.ravel(),
            gamma=self.gamma,
            state_features=np.eye(3)[kind],
            terminal=kind == GOAL,
            feature_names=self.feature_names,
            state_names=self.state_names,
        )

    @cached_property
    def ensemble(self) -> RewardEnsemble:
        """The truth: intent 0 avoids the puddle, intent 1 wades; equal weights."""
        return RewardEnsemble([0.5, 0.5], [_AVOIDS, _WADES])
