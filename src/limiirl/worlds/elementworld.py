"""ElementWorld: the paper's gridworld on a cylinder, with one intent for each element.

Paper: section "ElementWorld Benchmark Experiment".
"""

from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl.demos import Demonstrations
from limiirl.errors import InvalidParameter
from limiirl.mdp import MDP
from limiirl.mdp.ensemble import RewardEnsemble
from limiirl.mdp.planning import optimal_policy
from limiirl.worlds.demonstrators import intent_counts, sample_intents
from limiirl.worlds.parameters import check_count, check_gamma

if TYPE_CHECKING:
    from matplotlib.axes import Axes

START, GOAL = 0, 1
"""Cell types of the first and last column; element e of 0..E-1 has type 2 + e. A cell's type is its feature's index."""

ACTIONS = ("up", "down", "left", "right")
"""Row - 1, row + 1, column - 1, column + 1."""

_STEPS = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)])
_OWN_REWARD, _OTHER_REWARD = -1.0, -10.0


@dataclass(frozen=True)
class ElementWorld:
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

    n_elements: int = 3
    wind: float = 0.1
    height: int = 6
    zone_size: int = 3
    gamma: float = 0.99
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("n_elements", self.n_elements, 1, "Each element is an intent.")
        check_count("height", self.height, 3, "The start and goal columns need a column between them.")
        check_count("zone_size", self.zone_size, 1, "Each element needs a row.")
        check_count("seed", self.seed, 0, "Pass a nonnegative integer.")
        if self.n_rows < 3:
            raise InvalidParameter(
                f"The cylinder must have at least 3 rows; n_elements * zone_size is {self.n_elements} * "
                f"{self.zone_size} = {self.n_rows}. Raise zone_size to {-(-3 // self.n_elements)}."
            )
        if isinstance(self.wind, bool) or not isinstance(self.wind, Real) or not 0.0 <= self.wind <= 1.0:
            raise InvalidParameter(
                f"wind must lie in [0, 1]; got {self.wind!r}. It is the probability of going astray."
            )
        check_gamma(self.gamma)

    @property
    def n_rows(self) -> int:
        """Number of rows around the cylinder."""
        return self.n_elements * self.zone_size

    @property
    def n_states(self) -> int:
        """S, the number of cells."""
        return self.n_rows * self.height

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
        # Cell (row, column) shows what a roll by `rolls[column]` brings there.
        grid: NDArray[np.int64] = lanes[(np.arange(self.n_rows)[:, None] - rolls) % self.n_rows]
        grid[:, 0] = START
        grid[:, -1] = GOAL
        grid.flags.writeable = False
        return grid

    def state(self, row: int, column: int) -> int:
        """State index of a cell; rows wrap around.

        >>> ElementWorld().state(-1, 0) == ElementWorld().state(8, 0)
        True
        """
        if not 0 <= column < self.height:
            raise InvalidParameter(f"column must lie in 0..{self.height - 1}; got {column}. Only rows wrap around.")
        return (row % self.n_rows) * self.height + column

    def cell(self, state: int) -> tuple[int, int]:
        """Row and column of a state.

        >>> ElementWorld().cell(13)
        (2, 1)
        """
        if not 0 <= state < self.n_states:
            raise InvalidParameter(f"state must lie in 0..{self.n_states - 1}; got {state}. There is one a cell.")
        return divmod(state, self.height)

    @cached_property
    def mdp(self) -> MDP:
        """The world as an MDP: S = n_rows * height states, E + 2 state features, the goal column terminal."""
        src, act, dst, prob = self._edges()
        kind = self.grid.ravel()
        p0 = (kind == START) / self.n_rows
        names = tuple(f"({row}, {column})" for row, column in np.ndindex(self.grid.shape))
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
            state_names=names,
        )

    def _edges(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Source, action, target and probability of every possible transition out of a non-terminal cell."""
        src = np.flatnonzero(self.grid.ravel() != GOAL)
        rows, columns = np.divmod(src[:, None], self.height)
        new_columns = columns + _STEPS[:, 1]
        feasible = (new_columns >= 0) & (new_columns < self.height)  # (n, 4)
        moved = (rows + _STEPS[:, 0]) % self.n_rows * self.height + new_columns
        targets = np.where(feasible, moved, src[:, None])
        # prob[i, a, b]: action a in cell i moves to the target of b. Three of the four moves are always feasible.
        astray = self.wind / (feasible.sum(axis=1) - 1.0)
        prob = np.where(feasible[:, :, None] & feasible[:, None, :], astray[:, None, None], 0.0)
        prob[:, np.arange(4), np.arange(4)] = np.where(feasible, 1.0 - self.wind, 1.0)
        i, act, b = np.nonzero(prob)
        return src[i], act, targets[i, b], prob[i, act, b]

    @cached_property
    def ensemble(self) -> RewardEnsemble:
        """The truth: one intent an element, with equal weights."""
        thetas = np.full((self.n_elements, self.n_elements + 2), _OTHER_REWARD)
        thetas[:, START] = _OWN_REWARD
        thetas[:, GOAL] = 0.0
        thetas[:, 2:][np.diag_indices(self.n_elements)] = _OWN_REWARD
        return RewardEnsemble(np.full(self.n_elements, 1.0 / self.n_elements), thetas)

    @cached_property
    def optimal_policies(self) -> NDArray[np.float64]:
        """Optimal policy of each intent, uniform over ties: probabilities (E, P) of the (s, a) pairs. Read-only."""
        policies = np.stack([optimal_policy(self.mdp, theta) for theta in self.ensemble.thetas])
        policies.flags.writeable = False
        return policies

    def sample(
        self, n: int, seed: int = 0, *, max_length: int = 50, weights: ArrayLike | None = None
    ) -> tuple[Demonstrations, NDArray[np.int64]]:
        """Draw demonstrations of the optimal policies, in a random order, and the intent behind each.

        Parameters
        ----------
        n : int
            N, the number of demonstrations.
        seed : int
            Together with the world's seed determines the draw.
        max_length : int
            A demonstration stops at the goal, or once it has this many states.
        weights : array_like, shape (E,), optional
            Shares of the intents, each of which gets one demonstration at least. By default the numbers are equal,
            within one.

        Returns
        -------
        demos : Demonstrations
            With the labels.
        labels : (N,) int64
            Intent of each demonstration.

        Examples
        --------
        >>> demos, labels = ElementWorld().sample(100, seed=1)
        >>> len(demos), np.bincount(labels)
        (100, array([34, 33, 33]))
        """
        check_count("n", n, 1, "Draw at least one demonstration.")
        check_count("seed", seed, 0, "Pass a nonnegative integer.")
        check_count("max_length", max_length, 1, "A demonstration has at least one state.")
        counts = intent_counts(n, self.ensemble.weights) if weights is None else self._counts(n, weights)
        # The world's rolls come from a stream of its seed alone; the 1 keeps this one apart even where `seed` is 0.
        rng = np.random.default_rng([self.seed, seed, 1])
        return sample_intents(self.mdp, self.optimal_policies, counts, rng, max_length)

    def _counts(self, n: int, weights: ArrayLike) -> NDArray[np.int64]:
        if np.shape(weights) != (self.n_elements,):
            raise InvalidParameter(
                f"weights must have shape ({self.n_elements},), one share an intent; got shape {np.shape(weights)}. "
                "Give one weight an element."
            )
        if n < self.n_elements:
            raise InvalidParameter(
                f"n must be at least {self.n_elements}, one demonstration an intent; got {n}. Raise n."
            )
        return intent_counts(n, RewardEnsemble(weights, self.ensemble.thetas).weights, least=1)

    def __str__(self) -> str:
        signs = ["S", "G", *(str(e) for e in range(1, self.n_elements + 1))]
        width = len(signs[-1])
        return "\n".join(" ".join(signs[kind].rjust(width) for kind in row) for row in self.grid)

    def plot(self, theta: ArrayLike | None = None, ax: "Axes | None" = None) -> "Axes":
        """Draw the unrolled cylinder, coloured by cell type, or by reward where `theta` is given.

        Parameters
        ----------
        theta : array_like, shape (E + 2,), optional
            A reward vector.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        matplotlib Axes
        """
        from limiirl.worlds.drawing import draw_elementworld

        return draw_elementworld(self, theta, ax)
