"""What a world with known intents offers, and what all of ours share: demonstrators, sampling, pictures."""

from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl.demos import Demonstrations
from limiirl.errors import InvalidParameter
from limiirl.mdp import MDP
from limiirl.mdp.ensemble import RewardEnsemble
from limiirl.mdp.planning import optimal_policy
from limiirl.worlds.demonstrators import boltzmann_policy, check_beta, sample_intents, share_out
from limiirl.worlds.parameters import check_count, check_seed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from limiirl.worlds.drawing import Picture

_PAPERS_BETA = 5.0
POLICIES = ("optimal", "boltzmann")
"""How demonstrators act: optimally and uniform over ties, or with noise by `boltzmann_policy`."""


@runtime_checkable
class World(Protocol):
    """A problem with a known answer: what an experiment needs of a world.

    Examples
    --------
    >>> from limiirl.worlds import ElementWorld, RoadGrid
    >>> isinstance(ElementWorld(), World), hasattr(RoadGrid, "ensemble")
    (True, False)
    """

    @property
    def mdp(self) -> MDP:
        """The MDP."""

    @property
    def ensemble(self) -> RewardEnsemble:
        """The truth: the intents' rewards and shares."""

    def sample(
        self,
        n: int,
        seed: int = 0,
        *,
        max_length: int = 50,
        weights: ArrayLike | None = None,
        policy: str = "optimal",
        beta: float | None = None,
    ) -> tuple[Demonstrations, NDArray[np.int64]]:
        """Draw demonstrations, and the intent (N,) behind each."""

    def plot(
        self,
        theta: ArrayLike | None = None,
        ax: "Axes | None" = None,
        *,
        demos: Demonstrations | None = None,
        labels: ArrayLike | None = None,
    ) -> "Axes":
        """Draw the world."""


class IntentWorld(ABC):
    """A world of ours: a frozen dataclass with a seed, which gives its MDP and its ensemble and inherits the rest."""

    seed: int

    @property
    @abstractmethod
    def mdp(self) -> MDP:
        """The world as an MDP."""

    @property
    @abstractmethod
    def ensemble(self) -> RewardEnsemble:
        """The truth: the intents' rewards and shares."""

    @abstractmethod
    def draw(self, rewards: NDArray[np.float64] | None, ax: "Axes | None", *, faded: bool) -> "Picture":
        """Draw the world itself, by reward (S,) where it is given, and faded where walks are to be drawn over it."""

    @cached_property
    def optimal_policies(self) -> NDArray[np.float64]:
        """Optimal policy of each intent, uniform over ties: probabilities (K, P) of the (s, a) pairs. Read-only."""
        policies = np.stack([optimal_policy(self.mdp, theta) for theta in self.ensemble.thetas])
        policies.flags.writeable = False
        return policies

    def policies(self, policy: str = "optimal", beta: float | None = None) -> NDArray[np.float64]:
        """Return how the demonstrators of each intent act: probabilities (K, P) of the (s, a) pairs.

        Parameters
        ----------
        policy : {"optimal", "boltzmann"}
            Optimal, uniform over ties; or ``pi(a | s)`` proportional to ``exp(beta Q*(s, a))``, where Q* is the value
            of a followed by optimal actions (`boltzmann_policy`).
        beta : float, optional
            Inverse temperature of "boltzmann", 5 by default.
        """
        if policy not in POLICIES:
            raise InvalidParameter(f"policy must be one of {', '.join(POLICIES)}; got {policy!r}. Choose one of them.")
        if policy == "optimal":
            if beta is not None:
                raise InvalidParameter(f"beta is for policy='boltzmann'; got {beta!r} with optimal ones. Leave it out.")
            return self.optimal_policies
        beta = _PAPERS_BETA if beta is None else beta
        check_beta(beta)
        return np.stack([boltzmann_policy(self.mdp, theta, beta) for theta in self.ensemble.thetas])

    def sample(
        self,
        n: int,
        seed: int = 0,
        *,
        max_length: int = 50,
        weights: ArrayLike | None = None,
        policy: str = "optimal",
        beta: float | None = None,
    ) -> tuple[Demonstrations, NDArray[np.int64]]:
        """Draw demonstrations of the intents' policies, in a random order, and the intent behind each.

        Parameters
        ----------
        n : int
            N, the number of demonstrations.
        seed : int
            Together with the world's seed determines the draw.
        max_length : int
            A demonstration stops in a terminal state, or once it has this many states.
        weights : array_like, shape (K,), optional
            Shares of the intents, each of which gets one demonstration at least; `geometric_weights` are the paper's
            unequal ones. By default the numbers are equal, within one.
        policy : {"optimal", "boltzmann"}
            How demonstrators act: optimally, uniform over ties; or with noise, ``pi(a | s)`` proportional to
            ``exp(beta Q*(s, a))``, where Q* is the value of a followed by optimal actions.
        beta : float, optional
            Inverse temperature of "boltzmann"; 5, that of the paper's released code, by default.

        Returns
        -------
        demos : Demonstrations
            With the labels.
        labels : (N,) int64
            Intent of each demonstration.

        Examples
        --------
        >>> from limiirl.worlds import ElementWorld, geometric_weights
        >>> demos, labels = ElementWorld().sample(100, seed=1)
        >>> len(demos), np.bincount(labels)
        (100, array([34, 33, 33]))
        >>> demos, labels = ElementWorld().sample(100, weights=geometric_weights(3, 0.4), policy="boltzmann")
        >>> np.bincount(labels)
        array([51, 31, 18])
        """
        check_count("n", n, 1, "Draw at least one demonstration.")
        check_seed(seed)
        check_count("max_length", max_length, 1, "A demonstration has at least one state.")
        counts = share_out(n, self.ensemble, weights)
        # The world itself comes from a stream of its seed alone; the 1 keeps this one apart even where `seed` is 0.
        rng = np.random.default_rng([self.seed, seed, 1])
        return sample_intents(self.mdp, self.policies(policy, beta), counts, rng, max_length)

    def plot(
        self,
        theta: ArrayLike | None = None,
        ax: "Axes | None" = None,
        *,
        demos: Demonstrations | None = None,
        labels: ArrayLike | None = None,
    ) -> "Axes":
        """Draw the world, coloured by what is where, or by reward where `theta` is given, and walks over it.

        Parameters
        ----------
        theta : array_like, shape (d,), optional
            A reward vector.
        ax : matplotlib Axes, optional
            Where to draw; a new figure with a transparent background by default.
        demos : Demonstrations, optional
            Walks to draw, each moved a little, always by the same amount, so that many can be told apart.
        labels : array_like, shape (N,) or (N, K), optional
            The intent of each walk, which decides its colour; of responsibilities the largest counts. By default the
            labels that `demos` has, if any.

        Returns
        -------
        matplotlib Axes
        """
        from limiirl.worlds.drawing import draw_world

        return draw_world(self, theta, ax, demos, labels)
