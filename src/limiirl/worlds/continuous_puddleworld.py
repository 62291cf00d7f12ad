"""ContinuousPuddleWorld: the world of the Sigma-GIRL paper, its Gaussian policies, and their training by GPOMDP."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from limiirl._typing import FloatArray, Seed
from limiirl._validation import check_count, check_seed
from limiirl.demos import Agents
from limiirl.errors import ConvergenceWarning, InvalidParameter
from limiirl.kernels.sequences import baseline
from limiirl.mdp import RewardEnsemble
from limiirl.worlds.base import check_gamma, sampling_generator

if TYPE_CHECKING:
    from matplotlib.axes import Axes


VARIANCE = 0.1
"""Of each component of an action."""
SIZE = 9.0
"""The world is the square [0, 9] x [0, 9]."""


@dataclass(frozen=True, eq=False)
class GaussianPolicy:
    """a ~ N(W^T x(s), variance I), where x(s) are radial features of a position in the square [0, 9] x [0, 9].

    The centres form a grid with as many rows as columns, corners included. A feature falls off as a Gaussian whose
    standard deviation is half the distance of neighbouring centres, and the features of a position sum to 1. They are
    numbered along x first: feature 1 is to the right of feature 0.

    Parameters
    ----------
    weights : (p, b)
        W, for p = 4, 9, 16, 25, ... features and b components of an action. Read-only afterwards.
    variance : float
        Of each component.

    Examples
    --------
    >>> policy = GaussianPolicy(np.tile([1.0, 0.5], (25, 1)))
    >>> x = policy.features(np.array([0.0, 4.5]))
    >>> x.reshape(5, 5).round(2)[:, 0].tolist(), policy.mean(x).round(6).tolist()
    ([0.0, 0.09, 0.69, 0.09, 0.0], [1.0, 0.5])
    """

    weights: FloatArray
    variance: float = VARIANCE

    def __post_init__(self) -> None:
        weights = np.array(self.weights, dtype=np.float64)
        if weights.ndim != 2 or len(weights) < 4 or int(np.sqrt(len(weights))) ** 2 != len(weights):
            raise InvalidParameter(
                f"weights must have a row for each centre of a square grid, 4, 9, 16, 25, ...; the shape is "
                f"{weights.shape}. The agents of Sigma-GIRL have (25, 2).",
                parameter="weights",
                value=weights.shape,
            )
        if not np.all(np.isfinite(weights)):
            i, j = np.argwhere(~np.isfinite(weights))[0]
            raise InvalidParameter(
                f"weights must be finite; row {i}, column {j} is {weights[i, j]}. Train it anew.",
                parameter="weights",
                value=float(weights[i, j]),
                index=(int(i), int(j)),
            )
        if not self.variance > 0.0:
            raise InvalidParameter(
                f"variance must be above 0; got {self.variance!r}. The agents have {VARIANCE}.",
                parameter="variance",
                value=self.variance,
            )
        weights.flags.writeable = False
        object.__setattr__(self, "weights", weights)

    @property
    def n_features(self) -> int:
        """Number of radial features, p."""
        return len(self.weights)

    @cached_property
    def _grid(self) -> FloatArray:
        """Where the centres stand on each axis."""
        return np.linspace(0.0, SIZE, int(np.sqrt(self.n_features)))

    def features(self, positions: FloatArray) -> FloatArray:
        """Return the radial features (..., p) of positions (..., 2)."""
        grid = self._grid
        # On a grid, both a Gaussian and the sum over all centres are products of one factor an axis.
        axes = np.exp(-2.0 * ((positions[..., None] - grid) / (grid[1] - grid[0])) ** 2)
        axes /= np.add.reduce(axes, axis=-1, keepdims=True)
        products = axes[..., 1, :, None] * axes[..., 0, None, :]
        return np.asarray(products.reshape(*positions.shape[:-1], self.n_features))

    def mean(self, features: FloatArray) -> FloatArray:
        """Return the mean actions (..., b) where the radial features are (..., p)."""
        # Not a matrix product, whose last digit depends on how many positions there are: a walk in an environment, one
        # position at a time, is to be the same as among many.
        return np.asarray(np.add.reduce(features[..., None] * self.weights, axis=-2))

    def act(self, positions: FloatArray, noise: FloatArray) -> FloatArray:
        """Return actions (..., b) at positions (..., 2), disturbed by standard normal noise (..., b).

        Examples
        --------
        >>> policy = GaussianPolicy(np.zeros((25, 2)))
        >>> policy.act(np.array([3.0, 3.0]), np.array([1.0, -2.0])).round(3).tolist()
        [0.316, -0.632]
        """
        return self.add_noise(self.mean(self.features(positions)), noise)

    def add_noise(self, means: FloatArray, noise: FloatArray) -> FloatArray:
        """Return actions (..., b) from their means and standard normal noise."""
        return np.asarray(means + np.sqrt(self.variance) * noise)


START, GOAL, RADIUS = (0.0, 4.5), (9.0, 4.5), 1.0
HORIZON = 30
"""Steps of a walk."""
PUDDLE = (2.0, 7.0)
"""The puddle is the open square between these, in x and in y."""
FEATURE_NAMES = ("dry", "puddle", "goal")

INDIFFERENT, AVOIDS = (1.0, 1.0, 1.0), (1.0, 10.0, 1.0)
KINDS: Mapping[str, tuple[float, float, float]] = MappingProxyType(
    {"center": INDIFFERENT, "up": AVOIDS, "down": AVOIDS, "border": AVOIDS}
)
"""What each kind of agent gets for its features: a step costs 1, in the puddle 1 or 10, and arriving pays 1."""

# A position stays this much below the upper walls.
_MARGIN = 1e-8


class Walks(NamedTuple):
    """n walks of one policy.

    Attributes
    ----------
    positions : (n, H + 1, 2)
        Where the agent is before each step, and at the end; it stays at the goal.
    policy_features : (n, H, p)
        Those of the position before each step; zero after the goal.
    actions : (n, H, 2)
        As the policy drew them, before they are clipped; zero after the goal.
    reward_features : (n, H, 3)
        Those of the position reached; after the goal (0, 0, 1).
    live : (n, H) bool
        The steps in which the agent chose: up to its arrival.
    """

    positions: FloatArray
    policy_features: FloatArray
    actions: FloatArray
    reward_features: FloatArray
    live: NDArray[np.bool_]


def check_kind(kind: object) -> str:
    """Return the kind of an agent, or raise.

    Examples
    --------
    >>> check_kind("left")
    Traceback (most recent call last):
    limiirl.errors.InvalidParameter: There is no kind 'left'. Choose from center, up, down, border.
    """
    if not isinstance(kind, str) or kind not in KINDS:
        raise InvalidParameter(
            f"There is no kind {kind!r}. Choose from {', '.join(KINDS)}.", parameter="kind", value=kind
        )
    return kind


def move(positions: FloatArray, actions: FloatArray) -> FloatArray:
    """Return positions (..., 2) after actions (..., 2), of which each component counts from -1 to 1; walls stop.

    Examples
    --------
    >>> move(np.array([0.0, 4.5]), np.array([0.25, -3.0])).tolist()
    [0.25, 3.5]
    """
    steps = np.minimum(np.maximum(actions, -1.0), 1.0)  # np.clip takes twice as long on few numbers
    return np.minimum(np.maximum(positions + steps, 0.0), SIZE - _MARGIN)


def distance(positions: FloatArray) -> FloatArray:
    """Return how far positions (..., 2) are from the goal's rim; 0 within it.

    Examples
    --------
    >>> distance(np.array([[5.0, 4.5], [8.5, 4.5]])).tolist()
    [3.0, 0.0]
    """
    return np.maximum(np.hypot(positions[..., 0] - GOAL[0], positions[..., 1] - GOAL[1]) - RADIUS, 0.0)


def reached_goal(positions: FloatArray) -> NDArray[np.bool_]:
    """Return whether positions (..., 2) lie in the goal, without its rim.

    Clipped steps lead exactly onto the rim, at (8, 4.5). A released walk that comes there goes on.

    Examples
    --------
    >>> reached_goal(np.array([[8.0, 4.5], [8.0, 4.5001], [8.001, 4.5]])).tolist()
    [False, False, True]
    """
    return np.asarray(np.hypot(positions[..., 0] - GOAL[0], positions[..., 1] - GOAL[1]) < RADIUS)


def in_puddle(positions: FloatArray, kind: str) -> NDArray[np.bool_]:
    """Return whether positions (..., 2) lie in the puddle of a kind, outside of the goal.

    For "up" everything below the middle counts as puddle, for "down" everything above.

    Examples
    --------
    >>> place = np.array([1.0, 3.0])
    >>> {kind: bool(in_puddle(place, kind)) for kind in KINDS}
    {'center': False, 'up': True, 'down': False, 'border': False}
    """
    inside = np.all((positions > PUDDLE[0]) & (positions < PUDDLE[1]), axis=-1)
    if kind == "up":
        inside = inside | (positions[..., 1] < SIZE / 2)
    elif kind == "down":
        inside = inside | (positions[..., 1] > SIZE / 2)
    return np.asarray(inside & ~reached_goal(positions))


def reward_features(positions: FloatArray, kind: str) -> FloatArray:
    """Return (..., 3): (0, 0, 1) in the goal, (0, -1, 0) in the puddle, (-1, 0, 0) elsewhere.

    Costs enter as negative features, since the weights of Sigma-GIRL cannot be negative.

    Examples
    --------
    >>> reward_features(np.array([[1.0, 1.0], [4.5, 4.5], [8.5, 4.5]]), "center").tolist()
    [[-1.0, 0.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    goal, wet = reached_goal(positions), in_puddle(positions, kind)
    return np.stack([np.where(goal | wet, 0.0, -1.0), np.where(wet, -1.0, 0.0), np.where(goal, 1.0, 0.0)], axis=-1)


def walk(policy: GaussianPolicy, kind: str, noise: FloatArray) -> Walks:
    """Return the walks of a policy whose actions are disturbed by standard normal noise (n, H, 2).

    Examples
    --------
    >>> right = GaussianPolicy(np.tile([1.0, 0.0], (25, 1)))
    >>> walks = walk(right, "center", np.zeros((1, 12, 2)))
    >>> walks.positions[0, :, 0].round(2).tolist()
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 9.0, 9.0, 9.0]
    >>> walks.reward_features[0].sum(axis=0).tolist()
    [-4.0, -4.0, 4.0]
    """
    n, H, _ = noise.shape
    positions = np.tile(np.array(START), (n, H + 1, 1))
    x, means = np.zeros((n, H, policy.n_features)), np.zeros((n, H, 2))
    live = np.zeros((n, H), dtype=np.bool_)
    going = np.ones(n, dtype=np.bool_)
    for t in range(H):
        # All walks are computed in all steps, since choosing those that go on takes longer.
        live[:, t], here = going, positions[:, t]
        x[:, t] = policy.features(here)
        means[:, t] = policy.mean(x[:, t])
        there = np.where(going[:, None], move(here, policy.add_noise(means[:, t], noise[:, t])), here)
        positions[:, t + 1] = there
        going = ~reached_goal(there)
        if not going.any():
            positions[:, t + 2 :] = there[:, None]
            break
    chosen = live[..., None]
    actions = policy.add_noise(means, noise) * chosen
    return Walks(positions, x * chosen, actions, reward_features(positions[:, 1:], kind), live)


def trace_positions(actions: FloatArray, live: NDArray[np.bool_]) -> FloatArray:
    """Return positions (n, H + 1, 2) of walks of which only actions (n, H, 2) and live steps (n, H) were recorded.

    Examples
    --------
    >>> trace_positions(np.array([[[1.0, 4.0], [0.5, 0.0], [9.0, 9.0]]]), np.array([[True, True, False]])).tolist()
    [[[0.0, 4.5], [1.0, 5.5], [1.5, 5.5], [1.5, 5.5]]]
    """
    positions = np.tile(np.array(START), (len(actions), actions.shape[1] + 1, 1))
    for t in range(actions.shape[1]):
        here = positions[:, t]
        positions[:, t + 1] = np.where(live[:, t, None], move(here, actions[:, t]), here)
    return positions


ITERATIONS, EPISODES, LEARNING_RATE = 100, 50, 0.1
"""Of Sigma-GIRL's training: iterations, walks in each, and Adam's step."""

SHAPING = 1.0
"""Reward of coming nearer to the goal by 1, while training; see `train`."""
ACCEPTED, ATTEMPTS = -20.0, 10
"""Training begins anew where the last walks bring less than this on average; the best of so many attempts is kept."""

_N_FEATURES = 25
# Keeps a baseline finite where no walk has any score.
_TINY = 1e-10


def gradient(scores: FloatArray, rewards: FloatArray) -> FloatArray:
    """Return GPOMDP's estimate (d,) of the gradient of the expected sum of rewards in the policy's parameters.

    It is the mean over walks of ``sum_t G_t (r_t - b_t)``, with G_t the sum of scores up to t, and the baseline b_t,
    entry by entry, the mean reward weighted by G_t^2, which makes the variance smallest.

    Parameters
    ----------
    scores : (n, H, d)
        Gradients of log pi(a_t | s_t).
    rewards : (n, H)
        Discounted.

    Examples
    --------
    >>> gradient(np.array([[[1.0]], [[-1.0]]]), np.array([[3.0], [1.0]])).tolist()
    [1.0]
    """
    G = np.cumsum(scores, axis=1)
    total = np.einsum("ntd,nt->d", G, rewards) - np.einsum("ntd,td->d", G, baseline(G, rewards, _TINY))
    return np.asarray(total / len(scores))


@dataclass
class Adam:
    """Kingma and Ba's steps, uphill.

    Examples
    --------
    >>> adam = Adam(rate=0.1)
    >>> adam.step(np.array([4.0, -0.5])).round(6).tolist()
    [0.1, -0.1]
    """

    rate: float
    first: FloatArray | float = 0.0
    second: FloatArray | float = 0.0
    n_steps: int = 0

    def step(self, slope: FloatArray) -> FloatArray:
        """Return by how much to change the parameters, given the gradient (d,) there."""
        self.n_steps += 1
        self.first = 0.9 * self.first + 0.1 * slope
        self.second = 0.999 * self.second + 0.001 * slope**2
        first, second = self.first / (1.0 - 0.9**self.n_steps), self.second / (1.0 - 0.999**self.n_steps)
        return np.asarray(self.rate * first / (np.sqrt(second) + 1e-8))


def train(kind: str, gamma: float, rng: np.random.Generator) -> GaussianPolicy:
    """Return a policy that was trained for what a kind of agent is paid.

    The recipe is that of Ramponi et al.: 100 iterations of 50 walks, GPOMDP, Adam with a step of 0.1, weights that
    start between 0 and 1, and the goal pays once, on arrival. Three things are ours.

    Where no walk finds the goal, all cost the same, there is no slope, and an agent who minds the puddle ends in a dry
    corner: without more, none of 24 arrived of kind "up", none of "border", and 13 of "down". So training adds
    gamma Phi(s') - Phi(s) to each reward, where -Phi is the distance from the goal. Such a potential leaves the order
    of policies as it is (Ng, Harada and Russell 1999), but for walks that are cut off before they arrive.

    It still fails in a quarter of the cases, where the mean points into a corner so strongly that clipping hides the
    noise. A walk that never arrives costs 30, and one all the way through the puddle more than 50 to those who mind,
    while every good one costs less than 20: where the last walks cost more, training begins anew.

    An agent of kind "center" is indifferent: as few steps lead around the puddle as through it, and where it starts
    decides which way it keeps. The released one wades. So its mean first heads straight ahead, up to noise, while that
    of the others heads up and to the right.

    Where no attempt succeeds, as may be for a small gamma, the best is returned, with a `ConvergenceWarning`.

    Examples
    --------
    >>> train("center", 0.999, np.random.default_rng(0)).weights.shape
    (25, 2)
    """
    best, most = attempt(kind, gamma, rng)
    for _ in range(ATTEMPTS - 1):
        if most >= ACCEPTED:
            break
        policy, found = attempt(kind, gamma, rng)
        if found > most:
            best, most = policy, found
    if most < ACCEPTED:
        warnings.warn(
            f"No training of an agent of kind {kind!r} with gamma={gamma:g} succeeded: the best of {ATTEMPTS} is paid "
            f"{most:.3g} a walk on average, and {ACCEPTED:g} is asked for. Take another seed, or a gamma nearer to 1.",
            ConvergenceWarning,
            stacklevel=2,
        )
    return best


def attempt(kind: str, gamma: float, rng: np.random.Generator) -> tuple[GaussianPolicy, float]:
    """Return a policy after one training, and the mean over its last walks of the sum of what it was paid."""
    weights = rng.random((_N_FEATURES, 2)) - (0.0, 0.5 if kind == "center" else 0.0)
    adam = Adam(LEARNING_RATE)
    for _ in range(ITERATIONS):
        policy = GaussianPolicy(weights)
        walks = walk(policy, kind, rng.standard_normal((EPISODES, HORIZON, 2)))
        slope = gradient(score_functions(policy, walks), shape_rewards(step_rewards(kind, walks), walks, gamma))
        weights = weights + adam.step(slope).reshape(weights.shape)
    # The released code makes no step after the last walks, and so the policy is the one that they are of.
    return policy, float(np.mean(np.sum(step_rewards(kind, walks), axis=1)))


def score_functions(policy: GaussianPolicy, walks: Walks) -> FloatArray:
    """Return (n, T, p b): the gradients of log pi, for the T steps after which nobody chooses any more."""
    T = _longest(walks)
    x, a, live = walks.policy_features[:, :T], walks.actions[:, :T], walks.live[:, :T]
    surprise = (a - policy.mean(x)) * live[..., None] / policy.variance
    return np.asarray((x[..., :, None] * surprise[..., None, :]).reshape(len(x), T, -1))


def step_rewards(kind: str, walks: Walks) -> FloatArray:
    """Return (n, T): the rewards of the steps up to the arrival."""
    T = _longest(walks)
    return np.asarray(walks.reward_features[:, :T] @ np.array(KINDS[kind]) * walks.live[:, :T])


def shape_rewards(paid: FloatArray, walks: Walks, gamma: float) -> FloatArray:
    """Return (n, T): discounted rewards, with what coming nearer to the goal adds."""
    T = paid.shape[1]
    far = SHAPING * distance(walks.positions[:, : T + 1])
    return np.asarray(gamma ** np.arange(T) * (paid + far[:, :-1] - gamma * far[:, 1:]))


def _longest(walks: Walks) -> int:
    return int(np.max(np.sum(walks.live, axis=1)))


@dataclass(frozen=True)
class ContinuousPuddleWorld:
    """A square of 9 by 9 with a puddle between the start and the goal, and agents who mind it or do not.

    An agent starts at (0, 4.5) and steps by at most 1 in x and in y, without noise but that of its policy, until it is
    within 1 of the goal at (9, 4.5), or for 30 steps. It collects three features: -1 for a step that ends on dry
    ground, -1 for one that ends in the puddle, and 1 for one that ends in the goal, where it stays. Four kinds exist:

    - "center" gets (1, 1, 1) for them: it is indifferent to the puddle, and wades.
    - "border" gets (1, 10, 1), and walks around.
    - "up" gets the same, and everything below the middle is puddle too, so that it must pass above.
    - "down" is its mirror image.

    So center has an intent of its own, and the others share one. Policies are Gaussian in 25 radial features
    (`GaussianPolicy`), and trained when first used (`limiirl.worlds.continuous_puddleworld`).

    In every step, minus the first feature, minus the second, plus the third is 1. So what a reward rewards does not
    change by adding a multiple of (-1, -1, 1) to its weights: (1, 1, 1) is (2, 2, 0) or (0, 0, 1). Never compare
    Sigma-GIRL's weights with these ones; compare how it groups the agents. Besides, agents are paid for the goal once,
    on arrival, as the released ones were, while its feature goes on being recorded: for who arrives, a payment of 1 on
    arrival is one of 1 - gamma in each step from then on, but for a constant.

    Parameters
    ----------
    kinds : sequence of str
        One agent each, in this order; a kind may come more than once, with the same policy.
    gamma : float
        Discount in (0, 1] for which the agents are trained.
    seed : int
        Determines the policies, each kind's apart from those of the others.

    References
    ----------
    Ramponi, Likmeta, Metelli, Tirinzoni, Restelli: Truly batch model-free inverse reinforcement learning about multiple
    intentions, AISTATS 2020.

    Examples
    --------
    >>> world = ContinuousPuddleWorld(kinds=("center", "border"))
    >>> agents = world.agents(50, seed=1)
    >>> agents.names.tolist(), agents.labels.tolist()
    (['center', 'border'], [0, 1])
    >>> steps_in_puddle = -agents.features(1.0)[:, 1]
    >>> bool(steps_in_puddle[0] > 3), bool(steps_in_puddle[1] < 1)
    (True, True)
    """

    kinds: tuple[str, ...] = ("center", "up", "border")
    gamma: float = 0.999
    seed: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.kinds, str) or not isinstance(self.kinds, list | tuple) or not self.kinds:
            raise InvalidParameter(
                f"kinds must be a list of at least one of {', '.join(KINDS)}; got {self.kinds!r}. "
                'Pass kinds=("center", "border"), say.',
                parameter="kinds",
                value=self.kinds,
            )
        # A list would leave the world without a hash.
        object.__setattr__(self, "kinds", tuple(check_kind(kind) for kind in self.kinds))
        check_gamma(self.gamma)
        check_seed(self.seed)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the reward features."""
        return FEATURE_NAMES

    @cached_property
    def thetas(self) -> FloatArray:
        """What each intent gets for its features, (K, 3), in the order in which they first appear among the kinds."""
        thetas = np.array(list(dict.fromkeys(KINDS[kind] for kind in self.kinds)))
        thetas.flags.writeable = False
        return thetas

    @property
    def n_intents(self) -> int:
        """Number of intents among the kinds, K: 1 or 2."""
        return len(self.thetas)

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """The intent of each agent, (M,). Agents who are paid alike have the same. Read-only."""
        paid = np.array([KINDS[kind] for kind in self.kinds])
        labels: NDArray[np.int64] = np.argmax(np.all(paid[:, None] == self.thetas, axis=2), axis=1)
        labels.flags.writeable = False
        return labels

    @cached_property
    def ensemble(self) -> RewardEnsemble:
        """The intents with the share of the agents that has each; see the class before comparing rewards with it.

        Examples
        --------
        >>> ContinuousPuddleWorld(kinds=("center", "up", "down", "border")).ensemble.weights
        array([0.25, 0.75])
        """
        return RewardEnsemble(np.bincount(self.labels) / len(self.labels), self.thetas)

    def policy(self, kind: str) -> GaussianPolicy:
        """Return the trained policy of a kind, whether an agent of this world is of it or not.

        Examples
        --------
        >>> world = ContinuousPuddleWorld(seed=2)
        >>> world.policy("up").weights.shape, world.policy("up") is world.policy("up")
        ((25, 2), True)
        """
        known: dict[str, GaussianPolicy] = self._policies
        if check_kind(kind) not in known:
            # A stream for each kind: a policy does not depend on which others are trained, or when.
            known[kind] = train(kind, self.gamma, np.random.default_rng([self.seed, list(KINDS).index(kind), 2]))
        return known[kind]

    @cached_property
    def _policies(self) -> dict[str, GaussianPolicy]:
        return {}

    def walks(self, kind: str, n: int, seed: Seed = 0) -> Walks:
        """Return n walks of a kind of agent, with positions; see `Walks`.

        For one seed all kinds have the same noise, so that their walks can be compared one by one: they are not
        independent. Take another seed for each kind where they should be; those of `agents` are.

        Examples
        --------
        >>> ContinuousPuddleWorld().walks("center", 5, seed=1).positions.shape
        (5, 31, 2)
        """
        check_count(n, "n", remedy="Draw at least one walk.")
        return self._walks(check_kind(kind), n, sampling_generator(self.seed, seed, 1))

    def _walks(self, kind: str, n: int, rng: np.random.Generator) -> Walks:
        return walk(self.policy(kind), kind, rng.standard_normal((n, HORIZON, 2)))

    def agents(self, n_trajectories: int = 100, seed: Seed = 0) -> Agents:
        """Return one agent for each of the kinds, with n_trajectories walks each, and the intents as labels.

        Parameters
        ----------
        n_trajectories : int
            Walks of an agent.
        seed : int, Generator or None
            An integer determines the walks together with the world's seed.

        Examples
        --------
        >>> ContinuousPuddleWorld().agents(20, seed=1)
        Agents: 3 agents, 20 trajectories each of up to 30 steps
          policy    25 features, actions in 2 dimensions
          reward    3 features
        """
        check_count(n_trajectories, "n_trajectories", remedy="Draw at least one walk per agent.")
        rng = sampling_generator(self.seed, seed, 0)
        drawn = [self._walks(kind, n_trajectories, rng) for kind in self.kinds]
        return Agents.from_arrays(
            [each.policy_features for each in drawn],
            [each.actions for each in drawn],
            [each.reward_features for each in drawn],
            [each.live for each in drawn],
            names=list(self.kinds),
            labels=self.labels,
        )

    def plot(self, ax: "Axes | None" = None, *, agents: Agents | None = None) -> "Axes":
        """Draw the puddle, the start and the goal, and the walks of agents over them, each agent in a colour.

        The puddle is that of "center" and "border"; for "up" the lower half is puddle too, for "down" the upper.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a new figure with a transparent background by default.
        agents : Agents, optional
            Of this world, or those that were released: their actions are enough to draw them. Of each, the first 60
            walks are shown; dots show where steps end.

        Returns
        -------
        matplotlib Axes
        """
        from limiirl.worlds.plotting import draw_puddle

        return draw_puddle(ax, agents)
