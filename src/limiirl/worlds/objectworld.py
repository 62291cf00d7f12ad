"""ObjectWorld: a gridworld with coloured objects; intents prefer different colours (Levine et al. 2011)."""

from dataclasses import dataclass
from functools import cached_property
from string import ascii_uppercase
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from limiirl._validation import check_count, check_fraction, check_seed
from limiirl.errors import InvalidParameter
from limiirl.mdp import MDP, RewardEnsemble
from limiirl.worlds.base import check_gamma
from limiirl.worlds.gridworld import GridWorld

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from limiirl.worlds.plotting import WorldFigure


# Rewards of clear cells, and of cells near a disliked outer colour; the preferred colour has reward 0.
_CLEAR, _DISLIKED = -2.0, -5.0


class Objects(NamedTuple):
    """Row, column, outer colour and inner colour of every object of an `ObjectWorld`, each (n,) int64."""

    row: NDArray[np.int64]
    column: NDArray[np.int64]
    outer: NDArray[np.int64]
    inner: NDArray[np.int64]


@dataclass(frozen=True)
class ObjectWorld(GridWorld):
    """A walled grid with objects that have an outer and an inner colour; there is no terminal state.

    The objects are in random cells. Outer colours are equally frequent, inner colours are random. Actions and wind are
    as in `ElementWorld`, with walls on all sides. The features are binary: clear (no object within `radius` steps),
    near outer colour c, near inner colour c.

    Intent k prefers outer colour k: the reward is -2 in clear cells and -5 per other outer colour nearby. Inner colours
    do not affect the reward. Unlike in Levine et al., rewards are at most 0, within MaxEnt's default bounds. All
    demonstrations have `max_length` states.

    Parameters
    ----------
    size : int
        Number of rows, which is also the number of columns; at least 2.
    n_objects : int
        Number of objects: at least one per colour, and at most one per cell.
    n_colours : int
        Number of outer colours, which is also the number of inner colours.
    n_intents : int
        Number K of intents, at most `n_colours`.
    radius : int
        Objects within this Manhattan distance of a cell are near it.
    wind : float
        Probability in [0, 1] that a move fails.
    gamma : float
        Discount in (0, 1).
    seed : int
        Seed of the positions and colours of the objects.

    References
    ----------
    Levine, Popovic, Koltun: Nonlinear inverse reinforcement learning with Gaussian processes, NeurIPS 2011.

    Examples
    --------
    >>> world = ObjectWorld(size=5, n_objects=4, n_colours=2, n_intents=2)
    >>> print(world)
     .  .  .  .  .
     . Aa  .  .  .
     .  . Ba  . Bb
     .  .  . Ab  .
     .  .  .  .  .
    >>> world.mdp.feature_names
    ('clear', 'outer A', 'outer B', 'inner a', 'inner b')
    """

    size: int = 8
    n_objects: int = 12
    n_colours: int = 3
    n_intents: int = 3
    radius: int = 1
    wind: float = 0.1
    gamma: float = 0.99
    seed: int = 0

    def __post_init__(self) -> None:
        check_count(self.size, "size", least=2)
        check_count(self.n_colours, "n_colours")
        check_count(self.n_intents, "n_intents")
        check_count(self.n_objects, "n_objects", least=self.n_colours, remedy="Every colour needs an object.")
        check_count(self.radius, "radius", least=0)
        check_fraction(self.wind, "wind")
        check_gamma(self.gamma)
        check_seed(self.seed)
        if self.gamma == 1.0:
            raise InvalidParameter.of("gamma", self.gamma, "must be less than 1, since there is no terminal state")
        for name, limit, reason in (
            ("n_objects", self.n_states, "one per cell"),
            ("n_colours", len(ascii_uppercase), "one per letter"),
            ("n_intents", self.n_colours, "one per colour"),
        ):
            if getattr(self, name) > limit:
                raise InvalidParameter.of(name, getattr(self, name), f"must be at most {limit}, {reason}")

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and columns."""
        return self.size, self.size

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the 1 + 2 C binary features."""
        colours = self.colour_names
        return ("clear", *(f"outer {c}" for c in colours), *(f"inner {c.lower()}" for c in colours))

    @property
    def colour_names(self) -> tuple[str, ...]:
        """Letters of the colours."""
        return tuple(ascii_uppercase[: self.n_colours])

    @property
    def cell_types(self) -> tuple[str, ...]:
        """Names of the cell types."""
        return ("field",)

    @cached_property
    def grid(self) -> NDArray[np.int64]:
        """Type of every cell, (size, size): all cells are "field"."""
        return np.zeros(self.shape, dtype=np.int64)

    @cached_property
    def objects(self) -> Objects:
        """Positions and colours of the objects."""
        rng = np.random.default_rng(self.seed)
        row, column = np.divmod(rng.choice(self.n_states, size=self.n_objects, replace=False), self.size)
        outer = np.arange(self.n_objects) % self.n_colours
        return Objects(row, column, outer, rng.integers(self.n_colours, size=self.n_objects))

    @property
    def signs(self) -> NDArray[np.str_]:
        """Symbol of every cell in `str(world)`: a dot, or the letters of the outer (upper case) and inner colour."""
        signs = np.full(self.shape, ".", dtype="U2")
        for row, column, outer, inner in zip(*self.objects, strict=True):
            signs[row, column] = ascii_uppercase[outer] + ascii_uppercase[inner].lower()
        return signs

    @cached_property
    def features(self) -> NDArray[np.float64]:
        """Binary state features (S, 1 + 2 C). Read-only."""
        row, column = np.divmod(np.arange(self.n_states), self.size)
        objects = self.objects
        near = np.abs(row[:, None] - objects.row) + np.abs(column[:, None] - objects.column) <= self.radius
        colours = np.arange(self.n_colours)
        by_colour = [(near[:, :, None] & (c[:, None] == colours)).any(axis=1) for c in (objects.outer, objects.inner)]
        features = np.column_stack([~near.any(axis=1), *by_colour]).astype(np.float64)
        features.flags.writeable = False
        return features

    @cached_property
    def mdp(self) -> MDP:
        """The world as an MDP: one state per cell, no terminal state, uniform p0."""
        terminal = np.zeros(self.n_states, dtype=np.bool_)
        return self.build_mdp(self.features, terminal, np.full(self.n_states, 1.0 / self.n_states))

    @cached_property
    def ensemble(self) -> RewardEnsemble:
        """True rewards: intent k prefers outer colour k; equal weights."""
        thetas = np.zeros((self.n_intents, len(self.feature_names)))
        thetas[:, 0] = _CLEAR
        thetas[:, 1 : 1 + self.n_colours] = _DISLIKED
        thetas[:, 1:][np.diag_indices(self.n_intents)] = 0.0
        return RewardEnsemble(np.full(self.n_intents, 1.0 / self.n_intents), thetas)

    def draw(self, rewards: NDArray[np.float64] | None, ax: "Axes | None", *, faded: bool) -> "WorldFigure":
        """Draw the cells and the objects; see `plot`."""
        from limiirl.worlds.plotting import draw_objects

        return draw_objects(self, rewards, ax, faded=faded)
