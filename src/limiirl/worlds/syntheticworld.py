"""SyntheticWorld: a random MDP with a dial for how far apart its intents are."""

from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from limiirl._validation import check_count, check_seed, check_share
from limiirl.errors import InvalidParameter
from limiirl.mdp import MDP, RewardEnsemble
from limiirl.worlds.base import IntentWorld, check_gamma

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from limiirl.worlds.plotting import WorldFigure


# The range of the rewards that all intents share, and what others' features cost besides at a separation of 1. A cost
# of twice the range leaves the dial an effect over its whole length: one far larger would have it all at the start.
_SHARED = (-4.0, -1.0)
_OTHERS = -6.0


@dataclass(frozen=True)
class SyntheticWorld(IntentWorld):
    """A random MDP in layers: every action leads on to a few random states of the next layer, the last to the end.

    All states but the last are shared out equally among `horizon` layers; a walk starts in the first, visits one state
    of each, and ends in the last state, which is terminal. Each of the `n_actions` of a state has `branching` random
    targets with probabilities uniform on the simplex. Each state has one of `n_features` one-hot features, each of
    which comes equally often, within one, in random places; the terminal state has none.

    All intents share rewards of the features that are drawn uniformly from -4..-1. A step on a feature that is not an
    intent's own costs it ``6 separation`` besides, where feature j belongs to intent j mod K. At separation 0 all
    intents are the same; the larger it is, the more of their choices differ.

    Parameters
    ----------
    n_states : int
        S, the terminal state included.
    n_actions : int
        Actions in every other state.
    n_features : int
        At least one per intent.
    n_intents : int
        K.
    branching : int
        Targets of an action: 1 is deterministic. At most the size of a layer.
    horizon : int
        Layers, and so the number of steps of every walk.
    separation : float
        The dial, in [0, 1].
    gamma : float
        Discount in (0, 1].
    seed : int
        Determines the graph, the features and the shared rewards, which do not depend on the dial.

    Examples
    --------
    >>> world = SyntheticWorld(separation=0.8, seed=1)
    >>> print(world)
    1 5 2 6 5 5 4 5 6 2 G
    2 1 1 6 1 2 1 3 4 3
    1 3 4 6 6 6 3 3 2 2
    4 3 1 5 3 2 3 5 3 1
    5 1 3 5 6 5 6 4 6 2
    4 6 2 1 4 4 5 4 4 2
    >>> world.mdp.n_states, world.mdp.n_features, world.ensemble.n_intents
    (61, 6, 3)
    """

    n_states: int = 61
    n_actions: int = 4
    n_features: int = 6
    n_intents: int = 3
    branching: int = 2
    horizon: int = 10
    separation: float = 1.0
    gamma: float = 0.99
    seed: int = 0

    def __post_init__(self) -> None:
        check_count(self.n_actions, "n_actions", remedy="A walk must go on.")
        check_count(self.n_intents, "n_intents", remedy="Somebody must walk.")
        check_count(
            self.n_features, "n_features", least=self.n_intents, remedy="Each intent calls one feature its own."
        )
        check_count(self.horizon, "horizon", remedy="A walk has at least one step.")
        check_count(self.branching, "branching", remedy="An action leads somewhere.")
        check_count(
            self.n_states, "n_states", least=self.horizon + 1, remedy="Each layer needs a state, and the end is one."
        )
        check_share(self.separation, "separation", remedy="At 0 all intents are the same.")
        check_gamma(self.gamma)
        check_seed(self.seed)
        smallest = (self.n_states - 1) // self.horizon
        if self.branching > smallest and self.horizon > 1:
            raise InvalidParameter(
                f"branching must be at most {smallest}, the size of the smallest of {self.horizon} layers; got "
                f"{self.branching}. Raise n_states to {self.branching * self.horizon + 1}, or lower branching.",
                parameter="branching",
                value=self.branching,
            )

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the one-hot features, counted from 1."""
        return tuple(f"feature {j}" for j in range(1, self.n_features + 1))

    @cached_property
    def layers(self) -> tuple[NDArray[np.int64], ...]:
        """States of each layer; the terminal state is the last layer."""
        return (*np.array_split(np.arange(self.n_states - 1), self.horizon), np.array([self.n_states - 1]))

    @cached_property
    def kinds(self) -> NDArray[np.int64]:
        """Feature (S - 1,) of every state but the terminal one. Read-only."""
        kinds = self._rng(1).permutation(np.arange(self.n_states - 1) % self.n_features)
        kinds.flags.writeable = False
        return kinds

    @cached_property
    def mdp(self) -> MDP:
        """The world as an MDP: d state features, starts uniform on the first layer, the last state terminal."""
        src, act, dst, prob = self._edges()
        features = np.zeros((self.n_states, self.n_features))
        features[np.arange(self.n_states - 1), self.kinds] = 1.0
        p0 = np.zeros(self.n_states)
        p0[self.layers[0]] = 1.0 / self.layers[0].size
        return MDP.from_edges(
            src,
            dst,
            n_states=self.n_states,
            action=act,
            prob=prob,
            p0=p0,
            gamma=self.gamma,
            state_features=features,
            terminal=np.arange(self.n_states) == self.n_states - 1,
            feature_names=self.feature_names,
        )

    def _edges(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Source, action, target and probability of every transition."""
        rng = self._rng(0)
        sources, actions, targets, probs = [], [], [], []
        for here, onward in zip(self.layers[:-1], self.layers[1:], strict=True):
            width = min(self.branching, onward.size)
            pairs = here.size * self.n_actions
            # The first `width` of a random order of the next layer, for each (s, a).
            chosen = rng.random((pairs, onward.size)).argsort(axis=1)[:, :width]
            targets.append(onward[chosen].ravel())
            probs.append(rng.dirichlet(np.ones(width), size=pairs).ravel())
            sources.append(np.repeat(here, self.n_actions * width))
            actions.append(np.tile(np.repeat(np.arange(self.n_actions), width), here.size))
        return np.concatenate(sources), np.concatenate(actions), np.concatenate(targets), np.concatenate(probs)

    @cached_property
    def ensemble(self) -> RewardEnsemble:
        """The truth: intents that share less of their rewards the larger the dial is; equal weights."""
        shared = self._rng(2).uniform(*_SHARED, size=self.n_features)
        own = np.arange(self.n_features) % self.n_intents == np.arange(self.n_intents)[:, None]
        thetas = shared + self.separation * np.where(own, 0.0, _OTHERS)
        return RewardEnsemble(np.full(self.n_intents, 1.0 / self.n_intents), thetas)

    def _rng(self, part: int) -> np.random.Generator:
        """A stream for each part of the world; demonstrations have two seeds and a 1 in theirs."""
        return np.random.default_rng([self.seed, part])

    @property
    def signs(self) -> tuple[str, ...]:
        """What the text shows of every state: its feature, counted from 1, or G at the end."""
        return (*(str(kind + 1) for kind in self.kinds), "G")

    def draw(self, rewards: NDArray[np.float64] | None, ax: "Axes | None", *, faded: bool) -> "WorldFigure":
        """Draw the layers; see `plot`."""
        from limiirl.worlds.plotting import draw_layers

        return draw_layers(self, rewards, ax, faded=faded)

    def __str__(self) -> str:
        """Return the features of the states, a column per layer; G is the end."""
        columns = [[self.signs[state] for state in layer] for layer in self.layers]
        width = max(len(sign) for sign in self.signs)
        rows = zip_longest(*columns, fillvalue="")
        return "\n".join(" ".join(sign.rjust(width) for sign in row).rstrip() for row in rows)
