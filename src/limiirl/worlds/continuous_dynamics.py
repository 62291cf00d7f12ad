"""How agents move in the continuous PuddleWorld, and what they collect: arrays in, arrays out, any number at once.

The constants are those of the environment that was released with Sigma-GIRL (Ramponi et al. 2020), in spec.md, section
B. What it leaves open was settled by the released agents, whose walks these functions give again step by step:
positions are sums of clipped actions; the reward features of a step are those of the position that it *reaches*; the
goal does not include its rim; and the puddle of "up" and of "down" includes everything on the other side of the middle,
whatever its x.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from limiirl.errors import InvalidParameter
from limiirl.worlds.gaussian_policy import SIZE, GaussianPolicy

Float = NDArray[np.float64]

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

    positions: Float
    policy_features: Float
    actions: Float
    reward_features: Float
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
        raise InvalidParameter(f"There is no kind {kind!r}. Choose from {', '.join(KINDS)}.")
    return kind


def moved(positions: Float, actions: Float) -> Float:
    """Return positions (..., 2) after actions (..., 2), of which each component counts from -1 to 1; walls stop.

    Examples
    --------
    >>> moved(np.array([0.0, 4.5]), np.array([0.25, -3.0])).tolist()
    [0.25, 3.5]
    """
    steps = np.minimum(np.maximum(actions, -1.0), 1.0)  # np.clip takes twice as long on few numbers
    return np.minimum(np.maximum(positions + steps, 0.0), SIZE - _MARGIN)


def distance(positions: Float) -> Float:
    """Return how far positions (..., 2) are from the goal's rim; 0 within it.

    Examples
    --------
    >>> distance(np.array([[5.0, 4.5], [8.5, 4.5]])).tolist()
    [3.0, 0.0]
    """
    return np.maximum(np.hypot(positions[..., 0] - GOAL[0], positions[..., 1] - GOAL[1]) - RADIUS, 0.0)


def arrived(positions: Float) -> NDArray[np.bool_]:
    """Return whether positions (..., 2) lie in the goal, without its rim.

    Clipped steps lead exactly onto the rim, at (8, 4.5). A released walk that comes there goes on.

    Examples
    --------
    >>> arrived(np.array([[8.0, 4.5], [8.0, 4.5001], [8.001, 4.5]])).tolist()
    [False, False, True]
    """
    return np.asarray(np.hypot(positions[..., 0] - GOAL[0], positions[..., 1] - GOAL[1]) < RADIUS)


def in_puddle(positions: Float, kind: str) -> NDArray[np.bool_]:
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
    return np.asarray(inside & ~arrived(positions))


def reward_features(positions: Float, kind: str) -> Float:
    """Return (..., 3): (0, 0, 1) in the goal, (0, -1, 0) in the puddle, (-1, 0, 0) elsewhere.

    Costs enter as negative features, since the weights of Sigma-GIRL cannot be negative.

    Examples
    --------
    >>> reward_features(np.array([[1.0, 1.0], [4.5, 4.5], [8.5, 4.5]]), "center").tolist()
    [[-1.0, 0.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    goal, wet = arrived(positions), in_puddle(positions, kind)
    return np.stack([np.where(goal | wet, 0.0, -1.0), np.where(wet, -1.0, 0.0), np.where(goal, 1.0, 0.0)], axis=-1)


def walk(policy: GaussianPolicy, kind: str, noise: Float) -> Walks:
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
        there = np.where(going[:, None], moved(here, policy.disturbed(means[:, t], noise[:, t])), here)
        positions[:, t + 1] = there
        going = ~arrived(there)
        if not going.any():
            positions[:, t + 2 :] = there[:, None]
            break
    chosen = live[..., None]
    actions = policy.disturbed(means, noise) * chosen
    return Walks(positions, x * chosen, actions, reward_features(positions[:, 1:], kind), live)


def traced(actions: Float, live: NDArray[np.bool_]) -> Float:
    """Return positions (n, H + 1, 2) of walks of which only actions (n, H, 2) and live steps (n, H) were recorded.

    Examples
    --------
    >>> traced(np.array([[[1.0, 4.0], [0.5, 0.0], [9.0, 9.0]]]), np.array([[True, True, False]])).tolist()
    [[[0.0, 4.5], [1.0, 5.5], [1.5, 5.5], [1.5, 5.5]]]
    """
    positions = np.tile(np.array(START), (len(actions), actions.shape[1] + 1, 1))
    for t in range(actions.shape[1]):
        here = positions[:, t]
        positions[:, t + 1] = np.where(live[:, t, None], moved(here, actions[:, t]), here)
    return positions
