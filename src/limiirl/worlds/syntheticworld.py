"""SyntheticWorld: a random layered MDP with adjustable separation of the intents."""

from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from limiirl._validation import check_count, check_fraction, check_seed
from limiirl.errors import InvalidParameter
from limiirl.mdp import MDP, RewardEnsemble
from limiirl.worlds.base import IntentWorld, check_gamma

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from limiirl.worlds.plotting import WorldFigure


# Range of the shared rewards, and penalty of other intents' features at separation 1. The penalty is twice the range,
# so that the overlap of the intents decreases gradually over [0, 1].
_SHARED = (-4.0, -1.0)
_OTHERS = -6.0


@dataclass(frozen=True)
class SyntheticWorld(IntentWorld):
    """A random layered MDP: every action leads to a few random states of the next layer.

    All states except the last are split equally into `horizon` layers; a trajectory visits one state per layer and ends
    in the last state, which is terminal. Every action has `branching` random targets, with probabilities uniform on the
    simplex. Each nonterminal state has one of `n_features` one-hot features, assigned at random with equal frequency.

    All intents share feature rewards drawn uniformly from [-4, -1]. Feature j belongs to intent j mod K; for the other
    intents its reward is lower by ``6 * separation``. At separation 0 all intents are equal.

    Parameters
    ----------
    n_states : int
        Number S of states, including the terminal state.
    n_actions : int
        Actions per nonterminal state.
    n_features : int
        Number d of features, at least one per intent.
    n_intents : int
        Number K of intents.
    branching : int
        Targets per action, at most the size of a layer; 1 makes the transitions deterministic.
    horizon : int
        Number of layers, which is also the number of transitions of every trajectory.
    separation : float
        Separation of the intents, in [0, 1].
    gamma : float
        Discount in (0, 1].
    seed : int
        Seed of the graph, the features and the shared rewards, independent of `separation`.

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
        for name in ("n_actions", "n_intents", "horizon", "branching"):
            check_count(getattr(self, name), name)
        check_count(self.n_features, "n_features", least=self.n_intents, remedy="Every intent needs a feature.")
        check_count(self.n_states, "n_states", least=self.horizon + 1, remedy="Every layer needs a state.")
        check_fraction(self.separation, "separation")
        check_gamma(self.gamma)
        check_seed(self.seed)
        smallest = (self.n_states - 1) // self.horizon
        if self.branching > smallest and self.horizon > 1:
            rule = f"must be at most {smallest}, the size of the smallest of {self.horizon} layers"
            remedy = f"Increase n_states to {self.branching * self.horizon + 1}, or reduce branching."
            raise InvalidParameter.of("branching", self.branching, rule, remedy=remedy)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the one-hot features, numbered from 1."""
        return tuple(f"feature {j}" for j in range(1, self.n_features + 1))

    @cached_property
    def layers(self) -> tuple[NDArray[np.int64], ...]:
        """States of each layer; the terminal state is the last layer."""
        return (*np.array_split(np.arange(self.n_states - 1), self.horizon), np.array([self.n_states - 1]))

    @cached_property
    def kinds(self) -> NDArray[np.int64]:
        """Index of the feature (S - 1,) of every nonterminal state. Read-only."""
        kinds = self._rng(1).permutation(np.arange(self.n_states - 1) % self.n_features)
        kinds.flags.writeable = False
        return kinds

    @cached_property
    def mdp(self) -> MDP:
        """The world as an MDP: d state features, p0 uniform on the first layer, the last state terminal."""
        src, act, dst, prob = self._edges()
        features = np.zeros((self.n_states, self.n_features))
        features[np.arange(self.n_states - 1), self.kinds] = 1.0
        p0 = np.zeros(self.n_states)
        p0[self.layers[0]] = 1.0 / self.layers[0].size
        names, terminal = self.feature_names, np.arange(self.n_states) == self.n_states - 1
        return MDP.from_edges(
            src, dst, self.n_states, act, prob, p0, self.gamma, features, None, None, terminal, feature_names=names
        )

    def _edges(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Return source, action, target and probability of every transition."""
        rng = self._rng(0)
        sources, actions, targets, probs = [], [], [], []
        for layer, successors in zip(self.layers[:-1], self.layers[1:], strict=True):
            width = min(self.branching, successors.size)
            pairs = layer.size * self.n_actions
            # The first `width` states of a random permutation of the next layer, for each (s, a).
            selected = rng.random((pairs, successors.size)).argsort(axis=1)[:, :width]
            targets.append(successors[selected].ravel())
            probs.append(rng.dirichlet(np.ones(width), size=pairs).ravel())
            sources.append(np.repeat(layer, self.n_actions * width))
            actions.append(np.tile(np.repeat(np.arange(self.n_actions), width), layer.size))
        return np.concatenate(sources), np.concatenate(actions), np.concatenate(targets), np.concatenate(probs)

    @cached_property
    def ensemble(self) -> RewardEnsemble:
        """True rewards, which differ more for larger `separation`; equal weights."""
        shared = self._rng(2).uniform(*_SHARED, size=self.n_features)
        own = np.arange(self.n_features) % self.n_intents == np.arange(self.n_intents)[:, None]
        thetas = shared + self.separation * np.where(own, 0.0, _OTHERS)
        return RewardEnsemble(np.full(self.n_intents, 1.0 / self.n_intents), thetas)

    def _rng(self, stream: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, stream])  # independent of the demonstrations

    @property
    def signs(self) -> tuple[str, ...]:
        """Symbol of every state in `str(world)`: the number of its feature, from 1, or G for the terminal state."""
        return (*(str(kind + 1) for kind in self.kinds), "G")

    def draw(self, rewards: NDArray[np.float64] | None, ax: "Axes | None", *, faded: bool) -> "WorldFigure":
        """Draw the layers; see `plot`."""
        from limiirl.worlds.plotting import draw_layers

        return draw_layers(self, rewards, ax, faded=faded)

    def __str__(self) -> str:
        columns = [[self.signs[state] for state in layer] for layer in self.layers]
        width = max(len(sign) for sign in self.signs)
        rows = zip_longest(*columns, fillvalue="")
        return "\n".join(" ".join(sign.rjust(width) for sign in row).rstrip() for row in rows)
