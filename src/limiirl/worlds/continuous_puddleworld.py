"""ContinuousPuddleWorld: the world of the Sigma-GIRL paper, in which agents with Gaussian policies walk to a goal."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from limiirl.demos.agents import Agents
from limiirl.errors import InvalidParameter
from limiirl.mdp.ensemble import RewardEnsemble
from limiirl.worlds.continuous_dynamics import FEATURE_NAMES, HORIZON, KINDS, Walks, check_kind, walk
from limiirl.worlds.gaussian_policy import GaussianPolicy
from limiirl.worlds.parameters import check_count, check_gamma, check_seed
from limiirl.worlds.policy_training import train

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Float = NDArray[np.float64]


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
    (`GaussianPolicy`), and trained when first used (`limiirl.worlds.policy_training`).

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
                'Pass kinds=("center", "border"), say.'
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
    def thetas(self) -> Float:
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

    def walks(self, kind: str, n: int, seed: int = 0) -> Walks:
        """Return n walks of a kind of agent, with positions; see `Walks`.

        For one seed all kinds have the same noise, so that their walks can be compared one by one: they are not
        independent. Take another seed for each kind where they should be; those of `agents` are.

        Examples
        --------
        >>> ContinuousPuddleWorld().walks("center", 5, seed=1).positions.shape
        (5, 31, 2)
        """
        check_count("n", n, 1, "Draw at least one walk.")
        check_seed(seed)
        return self._walks(check_kind(kind), n, np.random.default_rng([self.seed, seed, 1]))

    def _walks(self, kind: str, n: int, rng: np.random.Generator) -> Walks:
        return walk(self.policy(kind), kind, rng.standard_normal((n, HORIZON, 2)))

    def agents(self, n_trajectories: int = 100, seed: int = 0) -> Agents:
        """Return one agent for each of the kinds, with n_trajectories walks each, and the intents as labels.

        Parameters
        ----------
        n_trajectories : int
            Walks of an agent.
        seed : int
            Together with the world's seed determines the walks.

        Examples
        --------
        >>> ContinuousPuddleWorld().agents(20, seed=1)
        Agents: 3 agents, 20 trajectories each of up to 30 steps
          policy    25 features, actions in 2 dimensions
          reward    3 features
        """
        check_count("n_trajectories", n_trajectories, 1, "Draw at least one walk an agent.")
        check_seed(seed)
        rng = np.random.default_rng([self.seed, seed, 0])
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
        from limiirl.worlds.continuous_drawing import draw_puddle

        return draw_puddle(ax, agents)
