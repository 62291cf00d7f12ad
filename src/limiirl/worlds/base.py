"""Worlds with known intents: their demonstrators, sampling and plotting."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from numbers import Integral, Real
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl._typing import FloatArray, IntArray, Seed
from limiirl._validation import as_generator, check_count, check_positive, check_seed, check_share
from limiirl.demos import Demonstrations, simulate
from limiirl.errors import InvalidParameter
from limiirl.mdp import MDP, RewardEnsemble, action_values, optimal_policy, optimal_values

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from limiirl.worlds.plotting import WorldFigure


def check_gamma(value: object) -> None:
    """Raise unless `value` is a discount in (0, 1]."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0.0 < float(value) <= 1.0:
        raise InvalidParameter(
            f"gamma must lie in (0, 1]; got {value!r}. Use 1.0 for no discounting.", parameter="gamma", value=value
        )


def check_wind(value: object) -> None:
    """Raise unless `value` is the probability that a move goes astray."""
    check_share(value, "wind", remedy="It is the probability that a move goes astray.")


def sampling_generator(world_seed: int, seed: Seed, stream: int) -> np.random.Generator:
    """Return the generator of a sample from a world; `stream` keeps it apart from the one that made the world."""
    if isinstance(seed, Integral):
        return np.random.default_rng([world_seed, check_seed(seed), stream])
    return as_generator(seed)


def boltzmann_policy(mdp: MDP, theta: ArrayLike, beta: float = 5.0) -> FloatArray:
    """Return ``pi(a | s) = exp(beta Q*(s, a)) / sum_a' exp(beta Q*(s, a'))``: probabilities (P,) of the (s, a) pairs.

    Q* is the action value of `limiirl.mdp.planning`: what acting optimally earns after a, without any entropy bonus.

    Parameters
    ----------
    mdp : MDP
    theta : (d,)
        One parameter vector.
    beta : float
        Inverse temperature, finite and at least 0. At 0 all actions are equally likely; the larger it is, the nearer
        the policy comes to the optimal one, uniform over ties. 5 is what the paper's released code has.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0], [1, 2], state_features=[0.0, 0.0, -1.0])
    >>> boltzmann_policy(mdp, [1.0], beta=np.log(3.0))
    array([0.75, 0.25])
    """
    check_positive(beta, "beta", zero=True, remedy='For no noise use policy="optimal".')
    if not mdp.n_pairs:
        return np.zeros(0)
    logits = beta * action_values(mdp, optimal_values(mdp, theta), theta)
    first, owner = np.unique(mdp.pair_state, return_index=True, return_inverse=True)[1:]
    # Less the largest of its state: no exponential overflows, and the largest is 1.
    mass = np.exp(logits - np.maximum.reduceat(logits, first)[owner])
    return np.asarray(mass / np.add.reduceat(mass, first)[owner])


def geometric_weights(n_intents: int, p: float) -> FloatArray:
    """Return the paper's unequal shares (K,): ``rho_k`` proportional to ``p (1 - p) ** k``.

    Parameters
    ----------
    n_intents : int
        K.
    p : float
        In [0, 1): each intent is followed by a share `p` less than the one before it. 0 gives equal shares.

    Examples
    --------
    >>> geometric_weights(3, 0.0)
    array([0.33333333, 0.33333333, 0.33333333])
    >>> geometric_weights(3, 0.5)
    array([0.57142857, 0.28571429, 0.14285714])
    """
    check_count(n_intents, "n_intents", remedy="A mixture has at least one intent.")
    if isinstance(p, bool) or not isinstance(p, Real) or not 0.0 <= float(p) < 1.0:
        raise InvalidParameter(f"p must lie in [0, 1); got {p!r}. Use 0 for equal shares.", parameter="p", value=p)
    # The common factor p cancels, which leaves p = 0 its limit.
    shares = (1.0 - float(p)) ** np.arange(n_intents)
    return np.asarray(shares / shares.sum())


def allocate_demonstrations(n: int, ensemble: RewardEnsemble, weights: ArrayLike | None) -> IntArray:
    """Return how many of n demonstrations each of K intents gets (K,): by the ensemble's shares, or by given ones.

    Given shares leave no intent without a demonstration.
    """
    if weights is None:
        return intent_counts(n, ensemble.weights)
    K = ensemble.n_intents
    if np.shape(weights) != (K,):
        raise InvalidParameter(
            f"weights must have shape ({K},), one share per intent; got shape {np.shape(weights)}. Give one weight an "
            "intent.",
            parameter="weights",
            value=np.shape(weights),
        )
    if n < K:
        raise InvalidParameter(
            f"n must be at least {K}, one demonstration per intent; got {n}. Raise n.", parameter="n", value=n
        )
    return intent_counts(n, RewardEnsemble(weights, ensemble.thetas).weights, least=1)


def intent_counts(n: int, weights: FloatArray, *, least: int = 0) -> IntArray:
    """Share n demonstrations among K intents, as near to n * weights as whole numbers of at least `least` can be.

    Parameters
    ----------
    n : int
        At least ``K * least``.
    weights : (K,)
        Shares that sum to 1.
    least : int
        The smallest number that an intent gets.

    Examples
    --------
    >>> intent_counts(10, np.full(3, 1 / 3))
    array([4, 3, 3])
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
    """Draw counts[k] demonstrations of policy k, in a random order.

    Parameters
    ----------
    mdp : MDP
    policies : (K, P)
        Probabilities of the (s, a) pairs, one row per intent.
    counts : (K,) int
        Number of demonstrations of each intent.
    rng : Generator
    max_length : int
        The largest number of states.

    Returns
    -------
    demos : Demonstrations
        With the labels.
    labels : (N,) int64
    """
    chosen = [(policy, int(count)) for policy, count in zip(policies, counts, strict=True) if count]
    parts = [simulate(mdp, policy, count, rng, max_length=max_length) for policy, count in chosen]
    order = rng.permutation(int(np.sum(counts)))
    labels = np.repeat(np.arange(len(counts), dtype=np.int64), counts)[order]
    return Demonstrations.concat(parts)[order].replace(labels=labels), labels


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
        seed: Seed = 0,
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
    def draw(self, rewards: NDArray[np.float64] | None, ax: "Axes | None", *, faded: bool) -> "WorldFigure":
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
            raise InvalidParameter(
                f"policy must be one of {', '.join(POLICIES)}; got {policy!r}. Choose one of them.",
                parameter="policy",
                value=policy,
            )
        if policy == "optimal":
            if beta is not None:
                raise InvalidParameter(
                    f"beta is for policy='boltzmann'; got {beta!r} with optimal ones. Leave it out.",
                    parameter="beta",
                    value=beta,
                )
            return self.optimal_policies
        beta = _PAPERS_BETA if beta is None else beta
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
        """Draw demonstrations of the intents' policies, in a random order, and the intent behind each.

        Parameters
        ----------
        n : int
            N, the number of demonstrations.
        seed : int, Generator or None
            An integer determines the draw together with the world's seed.
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
        check_count(n, "n", remedy="Draw at least one demonstration.")
        check_count(max_length, "max_length", remedy="A demonstration has at least one state.")
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
        from limiirl.worlds.plotting import draw_world

        return draw_world(self, theta, ax, demos, labels)
