"""ObjectWorld: a gridworld strewn with coloured objects; intents differ in the colours that they like."""

from dataclasses import dataclass
from functools import cached_property
from string import ascii_uppercase
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from limiirl._validation import check_count, check_seed
from limiirl.errors import InvalidParameter
from limiirl.mdp import MDP, RewardEnsemble
from limiirl.worlds.base import check_gamma, check_wind
from limiirl.worlds.gridworld import GridWorld, grid_edges

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from limiirl.worlds.plotting import WorldFigure


# Rewards of a step near no object, and near each outer colour that the intent dislikes; near the one it likes: 0.
_CLEAR, _DISLIKED = -2.0, -5.0


class Objects(NamedTuple):
    """Objects of an `ObjectWorld`: row, column, outer and inner colour of each, (n,) int64."""

    row: NDArray[np.int64]
    column: NDArray[np.int64]
    outer: NDArray[np.int64]
    inner: NDArray[np.int64]


@dataclass(frozen=True)
class ObjectWorld(GridWorld):
    """A walled field strewn with objects, each of an outer and an inner colour; walks start anywhere and never end.

    The objects lie in random cells; each outer colour comes equally often, within one, and inner colours are drawn.
    The moves and the wind are those of `ElementWorld`, but for walls on all sides. The features are binary: clear
    (near no object), near outer colour c, near inner colour c, where near means at most `radius` steps away.

    Intent k likes outer colour k and dislikes all others: a step costs 2 where no object is near, 5 for each disliked
    colour that is, and nothing near the liked colour alone. So it walks to an object of its colour, around those of
    others, and stays near it. Inner colours mean nothing to anybody; they are there to be told apart from what does.

    As in the world of Levine, Popovic and Koltun there is no terminal state: a demonstration ends when it has
    `max_length` states. But likes are written as smaller costs, so that rewards stay at most 0, where MaxEnt's default
    bounds are.

    Parameters
    ----------
    size : int
        Rows and columns: at least 2.
    n_objects : int
        At least one of each colour, and at most one per cell.
    n_colours : int
        Outer colours, and as many inner ones.
    n_intents : int
        At most `n_colours`.
    radius : int
        Steps within which an object is near.
    wind : float
        In [0, 1], the probability that a move goes astray.
    gamma : float
        Discount in (0, 1): walks do not end.
    seed : int
        Places and colours the objects.

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
        check_count(self.size, "size", least=2, remedy="Every cell needs two neighbours.")
        check_count(self.n_colours, "n_colours", remedy="Objects have a colour.")
        check_count(self.n_intents, "n_intents", remedy="Each intent likes a colour.")
        check_count(self.n_objects, "n_objects", least=self.n_colours, remedy="Place one of each colour at least.")
        check_count(self.radius, "radius", least=0, remedy="At 0 an object is near in its own cell only.")
        check_wind(self.wind)
        check_gamma(self.gamma)
        check_seed(self.seed)
        if self.gamma == 1.0:
            raise InvalidParameter(
                "gamma must be less than 1, for walks do not end; got 1. Use 0.99, for example.",
                parameter="gamma",
                value=self.gamma,
            )
        if self.n_objects > self.n_states:
            raise InvalidParameter(
                f"n_objects must be at most {self.n_states}, one per cell; got {self.n_objects}. Raise size.",
                parameter="n_objects",
                value=self.n_objects,
            )
        if self.n_colours > len(ascii_uppercase):
            raise InvalidParameter(
                f"n_colours must be at most {len(ascii_uppercase)}, one per letter; got {self.n_colours}. Lower it.",
                parameter="n_colours",
                value=self.n_colours,
            )
        if self.n_intents > self.n_colours:
            raise InvalidParameter(
                f"n_intents must be at most n_colours, {self.n_colours}, for each likes its own; got {self.n_intents}. "
                "Raise n_colours.",
                parameter="n_intents",
                value=self.n_intents,
            )

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns."""
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
    def kind_names(self) -> tuple[str, ...]:
        """Names of the kinds of cells."""
        return ("field",)

    @cached_property
    def grid(self) -> NDArray[np.int64]:
        """Kind of every cell, shape (size, size): all are field."""
        return np.zeros(self.shape, dtype=np.int64)

    @cached_property
    def objects(self) -> Objects:
        """Where the objects lie, and their colours."""
        rng = np.random.default_rng(self.seed)
        row, column = np.divmod(rng.choice(self.n_states, size=self.n_objects, replace=False), self.size)
        outer = np.arange(self.n_objects) % self.n_colours
        return Objects(row, column, outer, rng.integers(self.n_colours, size=self.n_objects))

    @property
    def signs(self) -> NDArray[np.str_]:
        """What the text shows of every cell: a dot, or an object's outer (capital) and inner colour."""
        signs = np.full(self.shape, ".", dtype="U2")
        for row, column, outer, inner in zip(*self.objects, strict=True):
            signs[row, column] = ascii_uppercase[outer] + ascii_uppercase[inner].lower()
        return signs

    @cached_property
    def features(self) -> NDArray[np.float64]:
        """The binary state features, (S, 1 + 2 C). Read-only."""
        row, column = np.divmod(np.arange(self.n_states), self.size)
        things = self.objects
        near = np.abs(row[:, None] - things.row) + np.abs(column[:, None] - things.column) <= self.radius
        colours = np.arange(self.n_colours)
        by_colour = [(near[:, :, None] & (c[:, None] == colours)).any(axis=1) for c in (things.outer, things.inner)]
        features = np.column_stack([~near.any(axis=1), *by_colour]).astype(np.float64)
        features.flags.writeable = False
        return features

    @cached_property
    def mdp(self) -> MDP:
        """The world as an MDP: one state per cell, none terminal, starts uniform."""
        terminal = np.zeros(self.n_states, dtype=np.bool_)
        src, act, dst, prob = grid_edges(self.shape, self.wind, terminal)
        return MDP.from_edges(
            src,
            dst,
            n_states=self.n_states,
            action=act,
            prob=prob,
            gamma=self.gamma,
            state_features=self.features,
            terminal=terminal,
            feature_names=self.feature_names,
            state_names=self.state_names,
        )

    @cached_property
    def ensemble(self) -> RewardEnsemble:
        """The truth: intent k likes outer colour k and dislikes all others; equal weights."""
        thetas = np.zeros((self.n_intents, len(self.feature_names)))
        thetas[:, 0] = _CLEAR
        thetas[:, 1 : 1 + self.n_colours] = _DISLIKED
        thetas[:, 1:][np.diag_indices(self.n_intents)] = 0.0
        return RewardEnsemble(np.full(self.n_intents, 1.0 / self.n_intents), thetas)

    def draw(self, rewards: NDArray[np.float64] | None, ax: "Axes | None", *, faded: bool) -> "WorldFigure":
        """Draw the cells and the objects; see `plot`."""
        from limiirl.worlds.plotting import draw_objects

        return draw_objects(self, rewards, ax, faded=faded)
