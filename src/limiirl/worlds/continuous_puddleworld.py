"""ContinuousPuddleWorld of the Sigma-GIRL paper, its Gaussian policies, and their training by GPOMDP."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from limiirl._typing import FloatArray, Seed
from limiirl._validation import check_choice, check_count, check_each, check_seed
from limiirl.demos import Agent, Agents
from limiirl.errors import ConvergenceWarning, InvalidParameter
from limiirl.kernels.sequences import baseline
from limiirl.mdp import RewardEnsemble
from limiirl.worlds.base import check_gamma, sampling_generator

if TYPE_CHECKING:
    from matplotlib.axes import Axes


VARIANCE = 0.1
"""Variance of each component of an action."""
SIZE = 9.0
"""Side of the square [0, 9] x [0, 9]."""


@dataclass(frozen=True, eq=False)
class GaussianPolicy:
    """Gaussian policy a ~ N(W^T x(s), variance I) with radial basis features x(s) of a position.

    The centres form a square grid that includes the corners, numbered along x first. The bandwidth is half the distance
    between adjacent centres, and the features of a position sum to 1.

    Parameters
    ----------
    weights : (p, b)
        Weight matrix W for p = 4, 9, 16, 25, ... features and actions of b components; copied and made read-only.
    variance : float
        Variance of each component of an action.

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
            raise InvalidParameter.of("weights", weights.shape, "must have shape (p, b) with p = 4, 9, 16, 25, ...")
        check_each(np.isfinite(weights), weights, "weights", "must be finite")
        if not self.variance > 0.0:
            raise InvalidParameter.of("variance", self.variance, "must be above 0")
        weights.flags.writeable = False
        object.__setattr__(self, "weights", weights)

    @property
    def n_features(self) -> int:
        """Number p of radial features."""
        return len(self.weights)

    @cached_property
    def _grid(self) -> FloatArray:
        """Coordinates of the centres on each axis."""
        return np.linspace(0.0, SIZE, int(np.sqrt(self.n_features)))

    def features(self, positions: FloatArray) -> FloatArray:
        """Return the radial features (..., p) of positions (..., 2)."""
        grid = self._grid
        # On a grid, the Gaussians and their sum over all centres are products of one factor per axis.
        axes = np.exp(-2.0 * ((positions[..., None] - grid) / (grid[1] - grid[0])) ** 2)
        axes /= np.add.reduce(axes, axis=-1, keepdims=True)
        products = axes[..., 1, :, None] * axes[..., 0, None, :]
        return np.asarray(products.reshape(*positions.shape[:-1], self.n_features))

    def mean(self, features: FloatArray) -> FloatArray:
        """Return the mean actions (..., b) for radial features (..., p)."""
        # Unlike a matrix product, this sum is bit-identical for every batch size.
        return np.asarray(np.add.reduce(features[..., None] * self.weights, axis=-2))

    def act(self, positions: FloatArray, noise: FloatArray) -> FloatArray:
        """Return the actions (..., b) at positions (..., 2) for standard normal noise (..., b)."""
        return self.add_noise(self.mean(self.features(positions)), noise)

    def add_noise(self, means: FloatArray, noise: FloatArray) -> FloatArray:
        """Return the actions (..., b) from their means and standard normal noise."""
        return np.asarray(means + np.sqrt(self.variance) * noise)


START, GOAL, RADIUS = (0.0, 4.5), (9.0, 4.5), 1.0
HORIZON = 30
"""Maximum number of steps per trajectory."""
PUDDLE = (2.0, 7.0)
"""Bounds of the puddle, an open square, in x and y."""
FEATURE_NAMES = ("dry", "puddle", "goal")

INDIFFERENT, AVOIDS = (1.0, 1.0, 1.0), (1.0, 10.0, 1.0)
KINDS: Mapping[str, tuple[float, float, float]] = MappingProxyType(
    {"center": INDIFFERENT, "up": AVOIDS, "down": AVOIDS, "border": AVOIDS}
)
"""Reward weights of each kind of agent: cost of a step, cost of a step in the puddle, reward of the goal."""

# Minimum distance of positions from the upper walls.
_MARGIN = 1e-8


class Walks(NamedTuple):
    """Trajectories of one policy.

    Attributes
    ----------
    positions : (n, H + 1, 2)
        Position before each step, and after the last step; constant after arrival at the goal.
    policy_features : (n, H, p)
        Radial features of the position before each step; zero after arrival.
    actions : (n, H, 2)
        Actions before clipping; zero after arrival.
    reward_features : (n, H, 3)
        Reward features of the position after each step; (0, 0, 1) after arrival.
    live : (n, H) bool
        True in the steps up to arrival at the goal.
    """

    positions: FloatArray
    policy_features: FloatArray
    actions: FloatArray
    reward_features: FloatArray
    live: NDArray[np.bool_]


def move(positions: FloatArray, actions: FloatArray) -> FloatArray:
    """Return the positions (..., 2) after actions (..., 2), clipped to [-1, 1] per component and to the square."""
    steps = np.minimum(np.maximum(actions, -1.0), 1.0)  # np.clip is twice as slow on small arrays
    return np.minimum(np.maximum(positions + steps, 0.0), SIZE - _MARGIN)


def goal_distance(positions: FloatArray) -> FloatArray:
    """Return the distance of positions (..., 2) from the goal disc; it is 0 inside the disc."""
    return np.maximum(np.hypot(positions[..., 0] - GOAL[0], positions[..., 1] - GOAL[1]) - RADIUS, 0.0)


def in_goal(positions: FloatArray) -> NDArray[np.bool_]:
    """Return the mask of positions (..., 2) in the open goal disc, as in the released data."""
    return np.asarray(np.hypot(positions[..., 0] - GOAL[0], positions[..., 1] - GOAL[1]) < RADIUS)


def in_puddle(positions: FloatArray, kind: str) -> NDArray[np.bool_]:
    """Return the mask of positions (..., 2) in the puddle of one kind of agent, outside of the goal.

    For "up", the lower half of the square is part of the puddle; for "down", the upper half.
    """
    inside = np.all((positions > PUDDLE[0]) & (positions < PUDDLE[1]), axis=-1)
    if kind == "up":
        inside = inside | (positions[..., 1] < SIZE / 2)
    elif kind == "down":
        inside = inside | (positions[..., 1] > SIZE / 2)
    return np.asarray(inside & ~in_goal(positions))


def reward_features(positions: FloatArray, kind: str) -> FloatArray:
    """Return features (..., 3): (0, 0, 1) in the goal, (0, -1, 0) in the puddle, (-1, 0, 0) elsewhere.

    Costs are negative features, since the weights of Sigma-GIRL are nonnegative.
    """
    goal, wet = in_goal(positions), in_puddle(positions, kind)
    return np.stack([np.where(goal | wet, 0.0, -1.0), np.where(wet, -1.0, 0.0), np.where(goal, 1.0, 0.0)], axis=-1)


def walk(policy: GaussianPolicy, kind: str, noise: FloatArray) -> Walks:
    """Simulate n trajectories of a policy with standard normal noise (n, H, 2)."""
    n, H, _ = noise.shape
    positions = np.tile(np.array(START), (n, H + 1, 1))
    x, means = np.zeros((n, H, policy.n_features)), np.zeros((n, H, 2))
    live = np.zeros((n, H), dtype=np.bool_)
    active = np.ones(n, dtype=np.bool_)
    for t in range(H):
        # Trajectories that have ended are computed too, which is faster than selecting the others.
        live[:, t], before = active, positions[:, t]
        x[:, t] = policy.features(before)
        means[:, t] = policy.mean(x[:, t])
        after = np.where(active[:, None], move(before, policy.add_noise(means[:, t], noise[:, t])), before)
        positions[:, t + 1] = after
        active = ~in_goal(after)
        if not active.any():
            positions[:, t + 2 :] = after[:, None]
            break
    mask = live[..., None]
    actions = policy.add_noise(means, noise) * mask
    return Walks(positions, x * mask, actions, reward_features(positions[:, 1:], kind), live)


def trace_positions(actions: FloatArray, live: NDArray[np.bool_]) -> FloatArray:
    """Return the positions (n, H + 1, 2) from recorded actions (n, H, 2) and live steps (n, H)."""
    positions = np.tile(np.array(START), (len(actions), actions.shape[1] + 1, 1))
    for t in range(actions.shape[1]):
        before = positions[:, t]
        positions[:, t + 1] = np.where(live[:, t, None], move(before, actions[:, t]), before)
    return positions


ITERATIONS, EPISODES, LEARNING_RATE = 100, 50, 0.1
"""Training of the agents: number of iterations, trajectories per iteration, and learning rate of Adam."""

SHAPING = 1.0
"""Scale of the shaping reward during training; see `train`."""
ACCEPTED, ATTEMPTS = -20.0, 10
"""Minimum mean return of an accepted policy, and maximum number of training runs."""

_N_FEATURES = 25
# Keeps the baseline finite if all scores are zero.
_TINY = 1e-10


def estimate_gradient(scores: FloatArray, rewards: FloatArray) -> FloatArray:
    """Return the GPOMDP estimate (d,) of the policy gradient from scores (n, H, d) and discounted rewards (n, H).

    It is the mean over trajectories of ``sum_t G_t (r_t - b_t)``, where G_t is the sum of scores up to t, and b_t is
    the variance-minimising baseline per component: the mean reward weighted by G_t^2.
    """
    G = np.cumsum(scores, axis=1)
    total = np.einsum("ntd,nt->d", G, rewards) - np.einsum("ntd,td->d", G, baseline(G, rewards, _TINY))
    return np.asarray(total / len(scores))


@dataclass
class Adam:
    """Adam optimiser (Kingma and Ba 2015) for gradient ascent."""

    rate: float
    first: FloatArray | float = 0.0
    second: FloatArray | float = 0.0
    n_steps: int = 0

    def step(self, grad: FloatArray) -> FloatArray:
        """Return the update (d,) of the parameters for a gradient (d,)."""
        self.n_steps += 1
        self.first = 0.9 * self.first + 0.1 * grad
        self.second = 0.999 * self.second + 0.001 * grad**2
        first, second = self.first / (1.0 - 0.9**self.n_steps), self.second / (1.0 - 0.999**self.n_steps)
        return np.asarray(self.rate * first / (np.sqrt(second) + 1e-8))


def train(kind: str, gamma: float, rng: np.random.Generator) -> GaussianPolicy:
    """Train a policy for one kind of agent as in Ramponi et al. (2020), with three changes.

    - Shaping: gamma Phi(s') - Phi(s) is added to each reward, where -Phi is the distance from the goal. It preserves
      the ranking of policies that reach the goal (Ng, Harada and Russell 1999); without shaping, most policies do not
      reach the goal.
    - Restarts: about a quarter of the training runs end in a corner, with mean returns near -30 instead of above -20.
      Training is repeated if the mean return is below `ACCEPTED`.
    - Initialisation: paths through and around the puddle are equally short for "center"; its initial mean action
      points towards the goal, so that it crosses the puddle like the released agent.

    If no training run succeeds, as for small gamma, the best policy is returned with a `ConvergenceWarning`.
    """
    best, best_return = run_training(kind, gamma, rng)
    for _ in range(ATTEMPTS - 1):
        if best_return >= ACCEPTED:
            break
        policy, mean_return = run_training(kind, gamma, rng)
        if mean_return > best_return:
            best, best_return = policy, mean_return
    if best_return < ACCEPTED:
        warnings.warn(
            f"Training of kind {kind!r} with gamma={gamma:g} did not succeed in {ATTEMPTS} attempts: the best mean "
            f"return is {best_return:.3g}, below {ACCEPTED:g}. Use another seed, or a gamma closer to 1.",
            ConvergenceWarning,
            stacklevel=2,
        )
    return best


def run_training(kind: str, gamma: float, rng: np.random.Generator) -> tuple[GaussianPolicy, float]:
    """Run the training once; return the policy and its mean return in the last iteration."""
    weights = rng.random((_N_FEATURES, 2)) - (0.0, 0.5 if kind == "center" else 0.0)
    adam = Adam(LEARNING_RATE)
    for _ in range(ITERATIONS):
        policy = GaussianPolicy(weights)
        walks = walk(policy, kind, rng.standard_normal((EPISODES, HORIZON, 2)))
        rewards = compute_rewards(kind, walks)
        grad = estimate_gradient(compute_scores(policy, walks), compute_shaped_rewards(rewards, walks, gamma))
        weights = weights + adam.step(grad).reshape(weights.shape)
    # As in the released code, the last update is discarded.
    return policy, float(np.mean(np.sum(rewards, axis=1)))


def compute_scores(policy: GaussianPolicy, walks: Walks) -> FloatArray:
    """Return the scores grad log pi (n, T, p b) of the T steps of the longest trajectory."""
    T = _longest(walks)
    x, a, live = walks.policy_features[:, :T], walks.actions[:, :T], walks.live[:, :T]
    residual = (a - policy.mean(x)) * live[..., None] / policy.variance
    return np.asarray((x[..., :, None] * residual[..., None, :]).reshape(len(x), T, -1))


def compute_rewards(kind: str, walks: Walks) -> FloatArray:
    """Return the rewards (n, T) of the steps up to arrival at the goal."""
    T = _longest(walks)
    return np.asarray(walks.reward_features[:, :T] @ np.array(KINDS[kind]) * walks.live[:, :T])


def compute_shaped_rewards(rewards: FloatArray, walks: Walks, gamma: float) -> FloatArray:
    """Return discounted rewards (n, T) with potential-based shaping."""
    T = rewards.shape[1]
    cost = SHAPING * goal_distance(walks.positions[:, : T + 1])
    return np.asarray(gamma ** np.arange(T) * (rewards + cost[:, :-1] - gamma * cost[:, 1:]))


def _longest(walks: Walks) -> int:
    return int(np.max(np.sum(walks.live, axis=1)))


@dataclass(frozen=True)
class ContinuousPuddleWorld:
    """A 9 by 9 square with a puddle between the start and the goal; some kinds of agents avoid the puddle.

    An agent starts at (0, 4.5) and moves by at most 1 in x and y per step until it is within 1 of the goal at
    (9, 4.5), for at most 30 steps. The reward features of a step are (-1, 0, 0) on dry ground, (0, -1, 0) in the puddle
    and (0, 0, 1) in the goal, where the agent stays. There are four kinds of agents:

    - "center" has weights (1, 1, 1): it is indifferent to the puddle and crosses it.
    - "border" has weights (1, 10, 1) and walks around the puddle.
    - "up" has the same weights, with the lower half of the square as part of the puddle.
    - "down" is the mirror image of "up".

    "center" has one intent; the other three kinds share a second intent. Policies are Gaussian in 25 radial features
    (`GaussianPolicy`) and are trained on first use.

    The weights are not identifiable: -phi_1 - phi_2 + phi_3 = 1 in every step, so that adding (-1, -1, 1) to the
    weights only adds a constant to every reward. Compare the clustering of the agents instead. As for the released
    agents, the goal is rewarded once, on arrival, although its feature stays 1.

    Parameters
    ----------
    kinds : sequence of str
        Kind of each agent; agents of one kind have the same policy.
    gamma : float
        Discount in (0, 1] that is used in training.
    seed : int
        Seed of the training of the policies.

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
            rule = f"must be a non-empty list with entries from {', '.join(KINDS)}"
            raise InvalidParameter.of("kinds", self.kinds, rule)
        kinds = tuple(check_choice(kind, "kinds", tuple(KINDS)) for kind in self.kinds)
        object.__setattr__(self, "kinds", kinds)  # a tuple is hashable
        check_gamma(self.gamma)
        check_seed(self.seed)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the reward features."""
        return FEATURE_NAMES

    @cached_property
    def thetas(self) -> FloatArray:
        """Reward weights (K, 3) of the intents, in order of appearance among the kinds."""
        thetas = np.array(list(dict.fromkeys(KINDS[kind] for kind in self.kinds)))
        thetas.flags.writeable = False
        return thetas

    @property
    def n_intents(self) -> int:
        """Number K of intents among the kinds: 1 or 2."""
        return len(self.thetas)

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """Intent (M,) of each agent. Read-only."""
        weights = np.array([KINDS[kind] for kind in self.kinds])
        labels: NDArray[np.int64] = np.argmax(np.all(weights[:, None] == self.thetas, axis=2), axis=1)
        labels.flags.writeable = False
        return labels

    @cached_property
    def ensemble(self) -> RewardEnsemble:
        """True rewards, weighted by the fraction of agents; the rewards are not identifiable (see the class)."""
        return RewardEnsemble(np.bincount(self.labels) / len(self.labels), self.thetas)

    def policy(self, kind: str) -> GaussianPolicy:
        """Return the trained policy of one kind of agent, which need not be in `kinds`."""
        policies: dict[str, GaussianPolicy] = self._policies
        if check_choice(kind, "kind", tuple(KINDS)) not in policies:
            # One random stream per kind, so that policies do not depend on the order of training.
            policies[kind] = train(kind, self.gamma, np.random.default_rng([self.seed, list(KINDS).index(kind), 2]))
        return policies[kind]

    @cached_property
    def _policies(self) -> dict[str, GaussianPolicy]:
        return {}

    def walks(self, kind: str, n: int, seed: Seed = 0) -> Walks:
        """Sample n trajectories of one kind of agent, with positions.

        Equal seeds give equal noise for all kinds of agents; use different seeds for independent trajectories.
        """
        check_count(n, "n")
        return self._walks(check_choice(kind, "kind", tuple(KINDS)), n, sampling_generator(self.seed, seed, 1))

    def _walks(self, kind: str, n: int, rng: np.random.Generator) -> Walks:
        return walk(self.policy(kind), kind, rng.standard_normal((n, HORIZON, 2)))

    def agents(self, n_trajectories: int = 100, seed: Seed = 0) -> Agents:
        """Sample the trajectories of one agent per entry of `kinds`; the labels are the intents.

        Parameters
        ----------
        n_trajectories : int
            Number of trajectories per agent.
        seed : int, Generator or None
            Seed of the trajectories; an integer is combined with the world's seed.

        Examples
        --------
        >>> ContinuousPuddleWorld().agents(20, seed=1)
        Agents: 3 agents, 20 trajectories each of up to 30 steps
          policy    25 features, actions in 2 dimensions
          reward    3 features
        """
        check_count(n_trajectories, "n_trajectories")
        rng = sampling_generator(self.seed, seed, 0)
        samples = [self._walks(kind, n_trajectories, rng) for kind in self.kinds]
        return Agents.from_arrays(
            *([getattr(walks, name) for walks in samples] for name in Agent._fields),
            names=list(self.kinds),
            labels=self.labels,
        )

    def plot(self, ax: "Axes | None" = None, *, agents: Agents | None = None) -> "Axes":
        """Draw the puddle of "center" and "border", the start and the goal; return the axes.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Default: a new figure with a transparent background.
        agents : Agents, optional
            Agents of this world, or released agents. Up to 60 trajectories of each are drawn, with one dot per step.
        """
        from limiirl.worlds.plotting import draw_puddle

        return draw_puddle(ax, agents)
