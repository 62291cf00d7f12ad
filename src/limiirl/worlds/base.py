"""Base class of worlds with known intents: policies, sampling and plotting."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from numbers import Integral, Real
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl._typing import FloatArray, IntArray, Seed
from limiirl._validation import as_generator, check_choice, check_count, check_positive, check_seed
from limiirl.demos import Demonstrations, simulate
from limiirl.errors import InvalidParameter
from limiirl.mdp import MDP, RewardEnsemble, action_values, optimal_policy, optimal_values

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from limiirl.worlds.plotting import WorldFigure


def check_gamma(value: object) -> None:
    """Raise `InvalidParameter` unless `value` is a discount in (0, 1]."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0.0 < float(value) <= 1.0:
        raise InvalidParameter.of("gamma", value, "must lie in (0, 1]", remedy="Use 1.0 for no discounting.")


def sampling_generator(world_seed: int, seed: Seed, stream: int) -> np.random.Generator:
    """Return a random generator for a sample; generators with different values of `stream` are independent."""
    if isinstance(seed, Integral):
        return np.random.default_rng([world_seed, check_seed(seed), stream])
    return as_generator(seed)


def boltzmann_policy(mdp: MDP, theta: ArrayLike, beta: float = 5.0) -> FloatArray:
    """Return the Boltzmann policy (P,): ``pi(a | s)`` proportional to ``exp(beta Q*(s, a))``.

    Q* is the optimal action value, without an entropy bonus.

    Parameters
    ----------
    mdp : MDP
    theta : (d,)
        One parameter vector.
    beta : float
        Inverse temperature; 0 is the uniform policy. The default is the value in the paper's released code.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0], [1, 2], state_features=[0.0, 0.0, -1.0])
    >>> boltzmann_policy(mdp, [1.0], beta=np.log(3.0))
    array([0.75, 0.25])
    """
    check_positive(beta, "beta", zero=True, remedy='Use policy="optimal" for no noise.')
    if not mdp.n_pairs:
        return np.zeros(0)
    logits = beta * action_values(mdp, optimal_values(mdp, theta), theta)
    first, owner = np.unique(mdp.pair_state, return_index=True, return_inverse=True)[1:]
    # Subtracting the maximum of each state prevents overflow.
    mass = np.exp(logits - np.maximum.reduceat(logits, first)[owner])
    return np.asarray(mass / np.add.reduceat(mass, first)[owner])


def geometric_weights(n_intents: int, p: float) -> FloatArray:
    """Return the paper's unequal mixture weights (K,): ``rho_k`` proportional to ``p (1 - p) ** k``.

    Parameters
    ----------
    n_intents : int
        Number K of intents.
    p : float
        Parameter in [0, 1) of the geometric distribution; 0 gives equal weights.

    Examples
    --------
    >>> geometric_weights(3, 0.0)
    array([0.33333333, 0.33333333, 0.33333333])
    >>> geometric_weights(3, 0.5)
    array([0.57142857, 0.28571429, 0.14285714])
    """
    check_count(n_intents, "n_intents")
    if isinstance(p, bool) or not isinstance(p, Real) or not 0.0 <= float(p) < 1.0:
        raise InvalidParameter.of("p", p, "must lie in [0, 1)", remedy="Use 0 for equal weights.")
    # The common factor p cancels, so that p = 0 is allowed.
    weights = (1.0 - float(p)) ** np.arange(n_intents)
    return np.asarray(weights / weights.sum())


def allocate_demonstrations(n: int, ensemble: RewardEnsemble, weights: ArrayLike | None) -> IntArray:
    """Return the number of demonstrations (K,) of each intent, at least one if `weights` is given."""
    if weights is None:
        return intent_counts(n, ensemble.weights)
    K = ensemble.n_intents
    if np.shape(weights) != (K,):
        raise InvalidParameter.of("weights", np.shape(weights), f"must have shape ({K},), one entry per intent")
    if n < K:
        raise InvalidParameter.of("n", n, f"must be at least {K}, one demonstration per intent")
    return intent_counts(n, RewardEnsemble(weights, ensemble.thetas).weights, least=1)


def intent_counts(n: int, weights: FloatArray, *, least: int = 0) -> IntArray:
    """Return integers (K,) >= `least` that sum to n and are as close to n * weights as possible.

    Examples
    --------
    >>> intent_counts(10, np.array([0.96, 0.04, 0.0]), least=1)
    array([8, 1, 1])
    """
    quotas = n * weights
    counts = np.maximum(np.floor(quotas).astype(np.int64), least)
    while counts.sum() < n:
        counts[np.argmax(quotas - counts)] += 1
    while counts.sum() > n:
        counts[np.argmax(np.where(counts > least, counts - quotas, -np.inf))] -= 1
    return counts


def sample_intents(
    mdp: MDP, policies: FloatArray, counts: Sequence[int] | IntArray, rng: np.random.Generator, max_length: int
) -> tuple[Demonstrations, IntArray]:
    """Return counts[k] demonstrations of each policies[k] (P,), with names, in random order, and their labels (N,)."""
    pairs = [(policy, int(count)) for policy, count in zip(policies, counts, strict=True) if count]
    parts = [simulate(mdp, policy, count, rng, max_length=max_length) for policy, count in pairs]
    order = rng.permutation(int(np.sum(counts)))
    labels = np.repeat(np.arange(len(counts), dtype=np.int64), counts)[order]
    demos = Demonstrations.concat(parts)[order]
    return demos.replace(labels=labels, state_names=mdp.state_names, action_names=mdp.action_names), labels


_PAPER_BETA = 5.0
POLICIES = ("optimal", "boltzmann")
"""Policies of the demonstrators: optimal and uniform over tied actions, or `boltzmann_policy`."""


class IntentWorld(ABC):
    """Base class of the worlds: frozen dataclasses with a seed, an MDP and a true ensemble."""

    seed: int

    @property
    @abstractmethod
    def mdp(self) -> MDP:
        """The world as an MDP."""

    @property
    @abstractmethod
    def ensemble(self) -> RewardEnsemble:
        """True rewards and mixture weights."""

    @abstractmethod
    def draw(self, rewards: NDArray[np.float64] | None, ax: "Axes | None", *, faded: bool) -> "WorldFigure":
        """Draw the world, coloured by `rewards` (S,) if given; `faded` draws it as a background for demonstrations."""

    @cached_property
    def optimal_policies(self) -> NDArray[np.float64]:
        """Optimal policies (K, P) of the intents, uniform over tied actions. Read-only."""
        policies = np.stack([optimal_policy(self.mdp, theta) for theta in self.ensemble.thetas])
        policies.flags.writeable = False
        return policies

    def policies(self, policy: str = "optimal", beta: float | None = None) -> NDArray[np.float64]:
        """Return the demonstrators' policies (K, P), one per intent.

        Parameters
        ----------
        policy : {"optimal", "boltzmann"}
            Optimal and uniform over tied actions, or `boltzmann_policy`.
        beta : float, optional
            Inverse temperature of the "boltzmann" policy. Default: 5.
        """
        check_choice(policy, "policy", POLICIES)
        if policy == "optimal":
            if beta is not None:
                raise InvalidParameter.of("beta", beta, "must be None unless policy='boltzmann'")
            return self.optimal_policies
        beta = _PAPER_BETA if beta is None else beta
        return np.stack([boltzmann_policy(self.mdp, theta, beta) for theta in self.ensemble.thetas])

    def sample(
        self,
        n: int,
        seed: Seed = 0,
        *,
        max_length: int = 50,
        weights: ArrayLike | None = None,
        policy: str = "optimal",
        beta: float | None = None,
    ) -> tuple[Demonstrations, NDArray[np.int64]]:
        """Return sampled demonstrations in random order, and their intents (N,), which are also their labels.

        Parameters
        ----------
        n : int
            Number N of demonstrations.
        seed : int, Generator or None
            Seed of the sample; an integer is combined with the world's seed.
        max_length : int
            Maximum number of states per demonstration.
        weights : array_like, shape (K,), optional
            Mixture weights; every intent has at least one demonstration. Default: the weights of the ensemble.
            `geometric_weights` returns the paper's unequal weights.
        policy : {"optimal", "boltzmann"}
            Policy of the demonstrators: optimal and uniform over tied actions, or `boltzmann_policy`.
        beta : float, optional
            Inverse temperature of the "boltzmann" policy. Default: 5, as in the paper's released code.

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
        check_count(n, "n", bytes_each=64.0)
        check_count(max_length, "max_length")
        counts = allocate_demonstrations(n, self.ensemble, weights)
        rng = sampling_generator(self.seed, seed, 1)
        return sample_intents(self.mdp, self.policies(policy, beta), counts, rng, max_length)

    def plot(
        self,
        theta: ArrayLike | None = None,
        ax: "Axes | None" = None,
        *,
        demos: Demonstrations | None = None,
        labels: ArrayLike | None = None,
    ) -> "Axes":
        """Draw the world, coloured by state type or by reward, with demonstrations on top; return the axes.

        Parameters
        ----------
        theta : array_like, shape (d,), optional
            Reward vector that determines the colours of the states. Default: colours by state type.
        ax : matplotlib Axes, optional
            Default: a new figure with a transparent background.
        demos : Demonstrations, optional
            Demonstrations to draw, with a small fixed jitter.
        labels : array_like, shape (N,) or (N, K), optional
            Intents or responsibilities that determine the colours. Default: `demos.labels`.
        """
        from limiirl.worlds.plotting import draw_world

        return draw_world(self, theta, ax, demos, labels)
