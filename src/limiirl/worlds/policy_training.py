"""Training the agents of the continuous PuddleWorld: GPOMDP with a baseline, and Adam's steps."""

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from limiirl.errors import ConvergenceWarning
from limiirl.kernels.gpomdp import baseline
from limiirl.worlds.continuous_dynamics import HORIZON, KINDS, Walks, distance, walk
from limiirl.worlds.gaussian_policy import GaussianPolicy

Float = NDArray[np.float64]

ITERATIONS, EPISODES, LEARNING_RATE = 100, 50, 0.1
"""Of Sigma-GIRL's training: iterations, walks in each, and Adam's step."""

SHAPING = 1.0
"""Reward of coming nearer to the goal by 1, while training; see `train`."""
ACCEPTED, ATTEMPTS = -20.0, 10
"""Training begins anew where the last walks bring less than this on average; the best of so many attempts is kept."""

_N_FEATURES = 25
# Keeps a baseline finite where no walk has any score.
_TINY = 1e-10


def gradient(scores: Float, rewards: Float) -> Float:
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
    first: Float | float = 0.0
    second: Float | float = 0.0
    n_steps: int = 0

    def step(self, slope: Float) -> Float:
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
        slope = gradient(scores_of(policy, walks), shaped(paid_to(kind, walks), walks, gamma))
        weights = weights + adam.step(slope).reshape(weights.shape)
    # The released code makes no step after the last walks, and so the policy is the one that they are of.
    return policy, float(np.mean(np.sum(paid_to(kind, walks), axis=1)))


def scores_of(policy: GaussianPolicy, walks: Walks) -> Float:
    """Return (n, T, p b): the gradients of log pi, for the T steps after which nobody chooses any more."""
    T = _longest(walks)
    x, a, live = walks.policy_features[:, :T], walks.actions[:, :T], walks.live[:, :T]
    surprise = (a - policy.mean(x)) * live[..., None] / policy.variance
    return np.asarray((x[..., :, None] * surprise[..., None, :]).reshape(len(x), T, -1))


def paid_to(kind: str, walks: Walks) -> Float:
    """Return (n, T): the rewards of the steps up to the arrival."""
    T = _longest(walks)
    return np.asarray(walks.reward_features[:, :T] @ np.array(KINDS[kind]) * walks.live[:, :T])


def shaped(paid: Float, walks: Walks, gamma: float) -> Float:
    """Return (n, T): discounted rewards, with what coming nearer to the goal adds."""
    T = paid.shape[1]
    far = SHAPING * distance(walks.positions[:, : T + 1])
    return np.asarray(gamma ** np.arange(T) * (paid + far[:, :-1] - gamma * far[:, 1:]))


def _longest(walks: Walks) -> int:
    return int(np.max(np.sum(walks.live, axis=1)))
